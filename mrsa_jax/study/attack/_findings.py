"""What an attack found: tables, sentences, figures and arrays, and how they are saved."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mrsa_jax.study._store import StudyFolder

__all__ = ["AttackFindings", "save"]


@dataclasses.dataclass
class AttackFindings:
    """What an attack has found so far.

    Attributes:
        folder: Where files may be written that are too large to hold; None: all is held.
        title: Of the tables.
        summary: A row for each thing that was attacked.
        scores: A row for each client, image or sample behind the summary.
        sentences: What they show, in words.
        figures: By file name, without its ending.
        arrays: What was recovered, by file name.
        is_complete: False after an interruption.
    """

    folder: pathlib.Path | None = None
    title: str = ""
    summary: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    scores: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    sentences: list[str] = dataclasses.field(default_factory=list)
    figures: dict[str, Figure] = dataclasses.field(default_factory=dict)
    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    is_complete: bool = True

    @property
    def content(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return {
            "title": self.title,
            "is_complete": self.is_complete,
            "summary": [_plain(row) for row in self.summary],
            "scores": [_plain(row) for row in self.scores],
            "sentences": self.sentences,
        }


def save(report: AttackFindings, folder: StudyFolder) -> None:
    """Write scores, figures and arrays into a folder."""
    folder.manifest["is_complete"] = report.is_complete
    for name, rows in (("summary", report.summary), ("scores", report.scores)):
        if rows:
            _write_csv(folder.path / f"{name}.csv", rows)
    content = {**report.content, "manifest": folder.manifest}
    text = json.dumps(content, indent=2) + "\n"
    (folder.path / "scores.json").write_text(text, encoding="utf-8")
    for name, figure in report.figures.items():
        figure.savefig(folder.path / f"{name}.png", dpi=160)
    for name, array in report.arrays.items():
        np.save(folder.path / f"{name}.npy", array, allow_pickle=False)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as JSON can hold it."""
    result = {}
    for name, value in row.items():
        plain = value.item() if isinstance(value, np.generic) else value
        is_odd = isinstance(plain, float) and not math.isfinite(plain)
        result[name] = None if is_odd else plain
    return result


def _write_csv(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
