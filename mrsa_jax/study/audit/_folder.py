"""What an audit leaves in its folder: findings, certificates, tables and figures."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax._untrusted import cell
from mrsa_jax.privacy import Recipe
from mrsa_jax.study._plots import audit_plots

if TYPE_CHECKING:
    from mrsa_jax.privacy import Audit, ParticipationLog
    from mrsa_jax.study._findings import AuditFindings
    from mrsa_jax.study._store import StudyFolder


def save_audit(folder: StudyFolder, findings: AuditFindings) -> None:
    """Write what a later reader needs to judge the findings, and to check the certificates.

    The log itself is not kept: the provenance names it by its content.
    """
    log, found = findings.log, findings.audit
    folder.manifest["log"] = _fingerprint(findings.file, log)
    _write_clients(folder.path / "clients.csv", log, found)
    columns = _rounds(log, found)
    rounds = zip(*columns.values(), strict=True)
    _write_rows(folder.path / "rounds.csv", tuple(columns), rounds)
    if found.recipe is not None:
        _write_lines(folder.path / "recipe.csv", found.recipe.lines())
        _draw(folder.path, columns, found)
    group = found.group
    if group is not None and group.support:
        plain = Recipe.of(log, group.witness, group.support)
        if plain != found.recipe:
            _write_lines(folder.path / "plain_sum.csv", plain.lines())
    content = {
        "title": findings.title,
        "sentences": findings.sentences,
        "summary": [
            dict(zip(("question", "answer", "how_sure"), row, strict=True))
            for row in findings.summary
        ],
        **findings.verdicts,
        "shares": findings.shares,
        "findings": found.to_dict(),
    }
    text = json.dumps(content, indent=2) + "\n"
    (folder.path / "audit.json").write_text(text, encoding="utf-8")


def _fingerprint(file: pathlib.Path, log: ParticipationLog) -> dict[str, Any]:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {
        "name": file.name,
        "bytes": file.stat().st_size,
        "sha256": digest,
        "first_round": str(log.rounds[0]),
        "last_round": str(log.rounds[-1]),
    }


def _write_clients(path: pathlib.Path, log: ParticipationLog, found: Audit) -> None:
    """Write how often each client took part, since when it is exposed, among how many hidden."""
    first = dict(found.exposed)
    counts = (log.participation != 0).sum(axis=0).tolist()
    sizes = [math.inf] * len(counts) if found.hidden is None else found.hidden.values.tolist()
    rows = (
        (client, count, first.get(client, ""), size if math.isfinite(size) else "")
        for client, count, size in zip(log.clients, counts, sizes, strict=True)
    )
    _write_rows(path, ("client", "rounds", "first_exposed", "hidden_among"), rows)


def _rounds(log: ParticipationLog, found: Audit) -> dict[str, Sequence[Any]]:
    """Return what was known after each round, by column: the data of the figures."""
    after = found.over_rounds(log)
    columns: dict[str, Sequence[Any]] = {
        "round": log.rounds,
        "clients": (log.participation != 0).sum(axis=1).tolist(),
        "exposed_clients": after.exposed.tolist(),
        "weak_lower": after.lower.tolist(),
        "weak_upper": after.upper.tolist(),
    }
    if after.strong is not None:
        columns["strong_privacy"] = after.strong.tolist()
    if after.hidden is not None:
        columns["hidden_among_worst"] = after.hidden.tolist()
    return columns


def _draw(folder: pathlib.Path, columns: dict[str, Sequence[Any]], found: Audit) -> None:
    """Draw how privacy fell over the rounds, and who was exposed if anybody was."""
    import pandas as pd

    from mrsa_jax import plotting

    plots = audit_plots(pd.DataFrame(columns), found.num_clients, is_exposed=bool(found.exposed))
    for name, plot in plots.items():
        plotting.save_figure(plot, folder / name, apart=True)


def _write_rows(path: pathlib.Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(head)
        writer.writerows([cell(value) for value in row] for row in rows)


def _write_lines(path: pathlib.Path, lines: Iterable[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
