"""Runs an attack from its settings, and saves what it found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import plotting
from mrsa_jax._core.memory import memory_words
from mrsa_jax.study import _store
from mrsa_jax.study._attack_rows import AttackSettings
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._kinds import attack_of
from mrsa_jax.study._plots import attack_plots
from mrsa_jax.study._progress import Progress, note
from mrsa_jax.study._run_folder import write_json, write_rows

if TYPE_CHECKING:
    from mrsa_jax.study._store import StudyFolder


def rows_of(**columns: Any) -> list[dict[str, Any]]:
    """Return a row for each place of some columns; what is one value is the same in all."""
    lists = [own.tolist() for own in np.broadcast_arrays(*columns.values())]
    return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]


def save(report: AttackFindings, folder: StudyFolder) -> None:
    """Write scores, figures and arrays into a folder."""
    folder.manifest["is_complete"] = report.is_complete
    for name, rows in (("summary", report.summary), ("scores", report.scores)):
        if rows:
            write_rows(folder.path / f"{name}.csv", rows)
    content = {**report.content, "manifest": folder.manifest}
    write_json(folder.path / "scores.json", content)
    for name, figure in report.figures.items():
        plotting.save_figure(figure, folder.path / name, apart=True)
    for name, array in report.arrays.items():
        np.save(folder.path / f"{name}.npy", array, allow_pickle=False)


def attack(config: AttackSettings, found: AttackFindings, progress: Progress) -> None:
    """Run an attack and add to what was found, thing by thing; then draw it."""
    row = attack_of(config)
    found.title = row.does
    row.run(config, found, progress)
    found.figures |= attack_plots(found.summary, found.scores)


def check(config: AttackSettings) -> str:
    """Say what memory is needed, or refuse what the machine has not."""
    reduce = "the sizes of what is attacked"
    row = attack_of(config)
    return memory_words(row.memory_bytes(config), "attack", row.name, reduce)


def run(config: AttackSettings, progress: Progress) -> AttackFindings:
    """Run an attack and hold all that it found."""
    note(progress, check(config))
    found = AttackFindings()
    attack(config, found, progress)
    return found


def run_and_save(
    config: AttackSettings, progress: Progress, show: Callable[[AttackFindings], None]
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
