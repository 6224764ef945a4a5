"""How what an attack found is put into rows, and saved."""

from __future__ import annotations

import csv
import json
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import plotting

if TYPE_CHECKING:
    from mrsa_jax.study._findings import AttackFindings
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
            _write_csv(folder.path / f"{name}.csv", rows)
    content = {**report.content, "manifest": folder.manifest}
    text = json.dumps(content, indent=2) + "\n"
    (folder.path / "scores.json").write_text(text, encoding="utf-8")
    for name, figure in report.figures.items():
        plotting.save_figure(figure, folder.path / name, apart=True)
    for name, array in report.arrays.items():
        np.save(folder.path / f"{name}.npy", array, allow_pickle=False)


def _write_csv(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
