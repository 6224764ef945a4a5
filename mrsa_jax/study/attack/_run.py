"""Runs an attack from its settings, and saves what it found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrsa_jax._memory import memory_words
from mrsa_jax.study import _attack_config as setting
from mrsa_jax.study import _store
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._kinds import kind_of
from mrsa_jax.study._progress import Progress, note
from mrsa_jax.study.attack._canaries import run_canaries
from mrsa_jax.study.attack._counts import run_disaggregation
from mrsa_jax.study.attack._images import run_gradients, run_model_inversion
from mrsa_jax.study.attack._members import run_inconsistency, run_membership
from mrsa_jax.study.attack._memory import attack_bytes
from mrsa_jax.study.attack._save import save
from mrsa_jax.study.attack._shifts import run_distinguish
from mrsa_jax.study.attack._sums import run_least_squares

_ATTACKS: dict[type, Callable[[Any, AttackFindings, Progress], None]] = {
    setting.LeastSquaresConfig: run_least_squares,
    setting.DistinguishConfig: run_distinguish,
    setting.CanariesConfig: run_canaries,
    setting.DisaggregationConfig: run_disaggregation,
    setting.GradientsConfig: run_gradients,
    setting.ModelInversionConfig: run_model_inversion,
    setting.MembershipConfig: run_membership,
    setting.InconsistencyConfig: run_inconsistency,
}


def attack(config: setting.AttackSettings, found: AttackFindings, progress: Progress) -> None:
    """Run an attack and add to what was found, thing by thing."""
    _ATTACKS[type(config)](config, found, progress)


def check(config: setting.AttackSettings) -> str:
    """Say what memory is needed, or refuse what the machine has not."""
    reduce = "the sizes of what is attacked"
    name = kind_of(config).name.removeprefix("attack ")
    return memory_words(attack_bytes(config), "attack", name, reduce)


def run(config: setting.AttackSettings, progress: Progress) -> AttackFindings:
    """Run an attack and hold all that it found."""
    note(progress, check(config))
    found = AttackFindings()
    attack(config, found, progress)
    return found


def run_and_save(
    config: setting.AttackSettings, progress: Progress, show: Callable[[AttackFindings], None]
) -> AttackFindings:
    """Run an attack and write scores, figures and what was recovered.

    An interruption saves what was finished by then, unless the same is there complete.
    """
    words = check(config)
    _store.restore_replaced(config.out.absolute())
    with _store.study_folder(config) as folder:
        found = AttackFindings(folder.path)
        try:
            note(progress, words)
            attack(config, found, progress)
        except KeyboardInterrupt:
            if not found.scores or (config.out / "study.json").exists():
                raise
            found.is_complete = False
        show(found)
        save(found, folder)
    return found
