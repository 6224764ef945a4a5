"""`mrsa-jax attack NAME`: what a curious server gets out of the sums, tried and scored."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pathlib
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from mrsa_jax._compile_cache import use_compile_cache
from mrsa_jax._errors import ConfigurationError, nearest
from mrsa_jax._memory import memory_words
from mrsa_jax.cli import _attack_setting as setting
from mrsa_jax.cli._attack_checks import validate
from mrsa_jax.cli._console import Bars, error_console, use_cores
from mrsa_jax.study import _config

if TYPE_CHECKING:
    from mrsa_jax.cli._attack_report import Report

__all__ = ["ATTACKS", "DESCRIPTION", "DETAILS", "AttackCommand", "defaults", "run_attack"]

DESCRIPTION = "Attack what secure aggregation leaves to see: sums, models, uploads; and score it."

DETAILS = """

  mrsa-jax attack least-squares            each client's update, from the sums of many rounds
  mrsa-jax attack disaggregation           who was in each sum, from how often each took part
  mrsa-jax attack gradients                images, from one update or a sum of several
  mrsa-jax attack model-inversion          a typical image of each class, from a model
  mrsa-jax attack membership               whether a sample was among those trained on
  mrsa-jax attack inconsistency            a server that breaks the protocol, and the defence

Each says by `mrsa-jax attack NAME --help` what it takes. Scores are printed and saved in --out.
Exit status: 0 done, 2 misuse, 130 interrupted (what was finished by then is saved).
"""

_INTERRUPTED = 130


class _Attack(NamedTuple):
    config: type[setting.AttackSettings]
    module: str  # where its `run` is, imported when it is needed
    function: str
    details: str


ATTACKS = {
    "least-squares": _Attack(
        setting.LeastSquaresConfig,
        "_attack_sums",
        "run_least_squares",
        """
A server that keeps every sum and knows who was in it solves the linear system (Multi-RoundSecAgg,
eq. (33) to (35)). Random selection exposes single clients; blocks of T leave only their sums.
  mrsa-jax attack least-squares --frozen
  mrsa-jax attack least-squares --schemes uniform batch_partitioning:2 --learning-rate 0.01
  mrsa-jax attack least-squares --run results/train --window 60
  mrsa-jax attack least-squares --aggregates sums.npy --participation who.npy""",
    ),
    "disaggregation": _Attack(
        setting.DisaggregationConfig,
        "_attack_counts",
        "run_disaggregation",
        """
A server that is not told who took part finds out from how often each client did (Lam et al. 2021).
  mrsa-jax attack disaggregation --num-clients 40 --rounds 100
  mrsa-jax attack disaggregation --drift 0.1
  mrsa-jax attack disaggregation --aggregates sums.npy --counts counts.npy""",
    ),
    "gradients": _Attack(
        setting.GradientsConfig,
        "_attack_images",
        "run_gradients",
        """
An update of few images shows them (Zhu et al. 2019; Geiping et al. 2020), a sum of few updates too,
but not whose they are; an upload under pads shows nothing.
  mrsa-jax attack gradients
  mrsa-jax attack gradients --photo china --seen plain --iterations 4800 --restarts 8
  mrsa-jax attack gradients --dataset mnist_5k --model lenet --num-summed 4
  mrsa-jax attack gradients --folder ~/pictures --method euclidean""",
    ),
    "model-inversion": _Attack(
        setting.ModelInversionConfig,
        "_attack_images",
        "run_model_inversion",
        """
Softmax regression shows its classes (Fredrikson et al. 2015): a face where a class is a person.
  mrsa-jax attack model-inversion
  mrsa-jax attack model-inversion --dataset olivetti --num-epochs 50 --num-clients 4
  mrsa-jax attack model-inversion --connection-probability 0.7 --num-clients 40""",
    ),
    "membership": _Attack(
        setting.MembershipConfig,
        "_attack_members",
        "run_membership",
        """
A model that knows its samples by heart gives them away; AUC 0.5 is chance.
  mrsa-jax attack membership
  mrsa-jax attack membership --methods loss --num-epochs 100 --label-noise 0
  mrsa-jax attack membership --seen sum --num-summed 8""",
    ),
    "inconsistency": _Attack(
        setting.InconsistencyConfig,
        "_attack_members",
        "run_inconsistency",
        """
Outside the papers' threat model: the server lies (Pasquini et al. 2022). The others' updates are
zero, so the sum is the target's. Pads bound to the model's hash do not cancel then.
  mrsa-jax attack inconsistency
  mrsa-jax attack inconsistency --cohort-size 20 --target 7 --pads bound""",
    ),
}


@dataclasses.dataclass(frozen=True)
class AttackCommand:
    """Attack what secure aggregation leaves to see.

    What is parsed is of a class of its own (`defaults`) with a field `attack`, the settings.
    """


def defaults(path: pathlib.Path | None, words: list[str]) -> AttackCommand:
    """Return a command to be filled in, whose class knows the attacks; the first word names one.

    Args:
        path: A TOML file with settings, or None.
        words: Behind `attack`.

    Raises:
        ConfigurationError: If they name no attack and do not ask for help.
    """
    name = words[0] if words else ""
    if name not in ATTACKS and (not name.startswith("-") or path is not None):
        known = ", ".join(ATTACKS)
        if not words or name.startswith("-"):
            raise ConfigurationError(f"`attack` must be followed by the name of one: {known}")
        hint = nearest(name, ATTACKS)
        raise ConfigurationError(f"`attack` must be a known attack; got {name!r}; {hint}")
    union: Any = None
    for one, attack in ATTACKS.items():
        described = attack.config.__doc__ or ""
        described += "\n" + attack.details if one == name else ""
        mark = tyro.conf.subcommand(one, description=described)
        member: Any = Annotated[attack.config, mark]
        union = member if union is None else union | member
    fields: Any = [("attack", union, dataclasses.field(default=tyro.MISSING))]
    cls = dataclasses.make_dataclass("AttackCommand", fields, bases=(AttackCommand,), frozen=True)
    loaded = [] if path is None else [_config.load_config(ATTACKS[name].config, path)]
    return cls(*loaded)


def run_attack(command: Any) -> int:
    """Run an attack, print and save its scores, and return the exit status."""
    config: setting.AttackSettings = command.attack
    validate(config)  # before JAX is imported: a misuse is answered at once
    use_compile_cache()
    use_cores()  # restarts of gradient inversion are dealt out to them
    from mrsa_jax.cli._attack_report import Report, print_report, save_report
    from mrsa_jax.study import _store

    ((name, attack),) = (pair for pair in ATTACKS.items() if pair[1].config is type(config))
    run = getattr(importlib.import_module(f"mrsa_jax.cli.{attack.module}"), attack.function)
    from mrsa_jax.cli._sweep_attack_memory import attack_bytes

    words = memory_words(attack_bytes(config), "attack", name, "the sizes of what is attacked")
    start = time.perf_counter()
    _store.restore_replaced(config.out.absolute())
    with _store.study_folder(config) as folder:
        report = Report(folder.path)
        try:
            with Bars() as bars:
                bars.say(words)
                run(config, report, bars)
        except KeyboardInterrupt:
            if not report.scores or (config.out / "study.json").exists():
                raise  # nothing to save, or what is there is the same and complete
            report.is_complete = False
        if config.json:
            _print_json(report, config)
        else:
            print_report(report)
        save_report(report, folder)
    if not config.json:
        files = ", ".join([f"{name}.png" for name in report.figures] or ["scores.csv"])
        seconds = time.perf_counter() - start
        sys.stdout.write(f"\nWritten in {seconds:.0f} s to {config.out} ({files})\n")
    if not report.is_complete:
        words = f"interrupted; what was finished is in {config.out}"
        error_console().print(words, markup=False, soft_wrap=True)
    return 0 if report.is_complete else _INTERRUPTED


def _print_json(report: Report, config: setting.AttackSettings) -> None:
    content = {"out": str(config.out), **report.content()}
    sys.stdout.write(json.dumps(content, indent=2) + "\n")
