"""Run attacks from settings, alone or as points of a sweep, and save findings."""

from __future__ import annotations

import json
import math
import pathlib
import tempfile
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._core.memory import memory_words
from mrsa_jax.study._attack_rows import AttackSettings, OfRun
from mrsa_jax.study._findings import AttackFindings
from mrsa_jax.study._progress import Progress, Silent, note
from mrsa_jax.study.attack._recorded import noise_words
from mrsa_jax.study.kinds import attack_of
from mrsa_jax.study.publishing._plots import attack_charts, save_charts
from mrsa_jax.study.settings._config import studied
from mrsa_jax.study.settings._load import to_dict
from mrsa_jax.study.stores import _store
from mrsa_jax.study.stores._files import restore_replaced, write_json, write_rows
from mrsa_jax.study.stores._runner import Machine, Variable

if TYPE_CHECKING:
    from mrsa_jax.study.stores._store import StudyFolder


def save(report: AttackFindings, folder: StudyFolder) -> None:
    """Write scores, figures and arrays into a folder."""
    folder.manifest["is_complete"] = report.is_complete
    for name, rows in (("summary", report.summary), ("scores", report.scores)):
        if rows:
            write_rows(folder.path / f"{name}.csv", rows)
    content = {**report.content, "manifest": folder.manifest}
    write_json(folder.path / "scores.json", content)
    save_charts(report.figures, folder.path)
    for name, array in report.arrays.items():
        np.save(folder.path / f"{name}.npy", array, allow_pickle=False)


def attack(
    config: AttackSettings, findings: AttackFindings, progress: Progress
) -> None:
    """Run an attack and add to what was found, thing by thing; then draw it."""
    row = attack_of(config)
    findings.title = row.does
    row.run(config, findings, progress)
    if isinstance(config, OfRun) and config.run is not None:
        findings.sentences += noise_words(config.run)
    findings.figures |= attack_charts(findings.summary, findings.scores)


def check(config: AttackSettings) -> str:
    """Say what memory is needed, or refuse what the machine has not."""
    reduce = "the sizes of what is attacked"
    row = attack_of(config)
    return memory_words(row.memory_bytes(config), "attack", row.name, reduce)


def run(config: AttackSettings, progress: Progress) -> AttackFindings:
    """Run an attack and hold all that it found."""
    note(progress, check(config))
    findings = AttackFindings()
    attack(config, findings, progress)
    return findings


def run_and_save(
    config: AttackSettings, progress: Progress, show: Callable[[AttackFindings], None]
) -> AttackFindings:
    """Run an attack and write scores, figures and what was recovered.

    An interruption saves what was finished by then, unless the same is there complete.
    """
    words = check(config)
    # before the check for a complete study below
    restore_replaced(config.out.absolute())
    with _store.study_folder(config) as folder:
        findings = AttackFindings(folder.path)
        try:
            note(progress, words)
            attack(config, findings, progress)
        except KeyboardInterrupt:
            # a complete study is worth more than part of a new one
            if not findings.scores or (config.out / "study.json").exists():
                raise
            findings.is_complete = False
        show(findings)
        save(findings, folder)
    return findings


_LABEL_LENGTH = 48
# columns of a summary that name a row
_LABELS = ("scheme", "updates", "whose", "method", "seen", "pads")


def _num_rows(config: Any) -> int:
    """Count the things that an attack is about.

    Those of its settings that are lists of them.
    """
    sources = ("run", "aggregates", "solved")
    is_given = any(getattr(config, name, None) is not None for name in sources)
    # a run has one scheme, and shows sums alone
    listed = ["others", "clients", "methods", "estimators", "pads"]
    listed += [] if is_given else ["schemes", "seen"]
    return math.prod(
        len(getattr(config, name)) for name in listed if hasattr(config, name)
    )


def group_of(config: AttackSettings) -> Hashable:
    """Return all settings but the seed.

    What is a number of a program differs between attacks.
    """
    content = studied(to_dict(config))
    return json.dumps(
        {name: value for name, value in content.items() if name != "seed"}
    )


def sizes(configs: Sequence[AttackSettings]) -> dict[str, int]:
    """Return the most rows of a summary."""
    return {"row": max(map(_num_rows, configs))}


def variables(
    configs: Sequence[AttackSettings], keep: Collection[str]
) -> dict[str, Variable]:
    """Return the summary's columns."""
    label = Variable(("row",), f"<U{_LABEL_LENGTH}", "1", "What the row is of")
    numbers = {
        name: Variable(
            ("row",), "float64", units, f"{name.replace('_', ' ')} of the row"
        )
        for name, units in attack_of(configs[0]).units.items()
    }
    return {"label": label} | numbers


def is_trained(name: str) -> bool:
    """Return True: every finding depends on trained numbers, or on rounded sums."""
    return True


def together(config: AttackSettings, machine: Machine) -> int:
    """Return 1: an attack fills the machine."""
    return 1


def memory_bytes(
    config: AttackSettings, machine: Machine, count: int, keep: Collection[str] = ()
) -> int:
    """Return about what an attack needs, its programs and libraries among it."""
    return count * attack_of(config).memory_bytes(config)


def run_points(
    configs: Sequence[AttackSettings],
    machine: Machine,
    keep: Collection[str],
    together: int,
) -> Iterator[dict[str, np.ndarray]]:
    """Run each attack and give its summary."""
    for config in configs:
        with tempfile.TemporaryDirectory() as folder:
            findings = AttackFindings(pathlib.Path(folder))
            attack_of(config).run(config, findings, Silent())
        # one that has no summary has a single row for each thing attacked
        yield _columns(attack_of(config).units, findings.summary or findings.scores)


def _columns(names: Iterable[str], rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    labels = [", ".join(str(row[key]) for key in _LABELS if key in row) for row in rows]
    columns = {"label": np.asarray([label[:_LABEL_LENGTH] for label in labels])}
    for name in names:
        values = [row.get(name) for row in rows]
        columns[name] = np.asarray(
            [math.nan if v is None else float(v) for v in values]
        )
    return columns
