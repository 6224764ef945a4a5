"""Runs an audit from its settings, and writes the folder of what it found."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import math
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import privacy
from mrsa_jax._core.memory import memory_words
from mrsa_jax.privacy import Recipe
from mrsa_jax.study._findings import AuditFindings, first_rows, shares_of
from mrsa_jax.study._progress import Progress, note, stages
from mrsa_jax.study._values import values_of
from mrsa_jax.study.publishing._plots import audit_charts, save_charts
from mrsa_jax.study.settings._commands import AuditConfig
from mrsa_jax.study.stores import _store
from mrsa_jax.study.stores._files import write_json
from mrsa_watch._base.errors import ConfigurationError, require
from mrsa_watch._base.files import write_whole
from mrsa_watch._base.untrusted import cell, start_of

if TYPE_CHECKING:
    from mrsa_jax.privacy import Audit, ParticipationLog
    from mrsa_jax.study.stores._store import StudyFolder


def save_audit(folder: StudyFolder, findings: AuditFindings) -> None:
    """Write all that a later reader needs to judge findings and check certificates.

    The log itself is not kept: the provenance names it by its content.
    """
    log, audit = findings.log, findings.audit
    folder.manifest["log"] = _fingerprint(findings.file, log)
    _write_clients(folder.path / "clients.csv", log, audit)
    columns = _rounds(log, audit)
    _write_columns(folder.path / "rounds.csv", columns)
    if audit.recipe is not None:
        _write_lines(folder.path / "recipe.csv", audit.recipe.lines())
    # a scheduler that has interrupted it waits some seconds: a report draws figures
    # anew
    if audit.recipe is not None and findings.is_complete:
        charts = audit_charts(
            columns, audit.num_clients, is_exposed=bool(audit.exposed)
        )
        save_charts(charts, folder.path)
    group = audit.group
    if group is not None and group.support:
        # the plain sum of the smallest group, unless that is the recipe already
        plain = Recipe.of(log, group.witness, group.support)
        if plain != audit.recipe:
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
        "values": findings.values,
        "findings": audit.to_dict(),
    }
    write_json(folder.path / "audit.json", content)


def _fingerprint(file: pathlib.Path, log: ParticipationLog) -> dict[str, Any]:
    return {
        "name": file.name,
        "bytes": file.stat().st_size,
        "sha256": _digest(file),
        "first_round": str(log.printed_rounds[0]),
        "last_round": str(log.printed_rounds[-1]),
    }


def _write_clients(path: pathlib.Path, log: ParticipationLog, audit: Audit) -> None:
    """Write each client's participations, exposing round and hidden among."""
    first = {client: audit.printed_round(name) for client, name in audit.exposed}
    columns = {
        "client": log.clients,
        "rounds": (log.participation != 0).sum(axis=0).tolist(),
        "first_exposed": [first.get(client, "") for client in log.clients],
        "hidden_among": [""] * len(log.clients),
    }
    sizes = {
        "hidden_among": audit.hidden,
        "update_hidden_among": audit.updates,
        "lasting_hidden_among": audit.lasting,
        "resembling_hidden_among": audit.resembling,
    }
    for name, hidden in sizes.items():
        if hidden is not None:  # no size is known of clients in no sum
            values = hidden.values.tolist()
            columns[name] = [size if math.isfinite(size) else "" for size in values]
    _write_columns(path, columns)


def _rounds(log: ParticipationLog, audit: Audit) -> dict[str, Sequence[Any]]:
    """Return the state of knowledge after each round, by column, for the figures."""
    after = audit.over_rounds(log)
    columns: dict[str, Sequence[Any]] = {
        "round": log.printed_rounds,
        "clients": (log.participation != 0).sum(axis=1).tolist(),
        "exposed_clients": after.exposed.tolist(),
        "weak_lower": after.lower.tolist(),
        "weak_upper": after.upper.tolist(),
    }
    more = {
        "strong_privacy": after.strong,
        "hidden_among_worst": after.hidden,
        "update_hidden_worst": after.updates,
        "lasting_hidden_worst": after.lasting,
    }
    return columns | {
        name: column.tolist() for name, column in more.items() if column is not None
    }


def _write_columns(path: pathlib.Path, columns: Mapping[str, Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow(map(cell, row))


def _write_lines(path: pathlib.Path, lines: Iterable[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# Measured: what searches and their programs take, and bytes for each entry of the
# matrix.
_PROGRAMS, _ENTRY_BYTES = 2**28, 80
_NO_RECIPE = ["kind,name,coefficient"]


def check(config: AuditConfig) -> None:
    """Reject nothing more: what an audit needs depends on its log."""


def run(config: AuditConfig, progress: Progress) -> AuditFindings:
    """Read a log and audit it; an interrupt ends the searches with results so far."""
    note(progress, f"reading {config.file}")
    memory_bytes = int(config.memory_gib * 2**30)
    log = privacy.read_log(config.file, memory_bytes=memory_bytes, **config.columns)
    note(progress, _memory(log))
    shares = shares_of(config, log)
    values = values_of(config, log)
    audit = _audit(config, log, progress)
    demands: Any = (
        (config.fail_below, config.definition),
        (config.fail_below_hidden, "hidden"),
    )
    gates = tuple(
        audit.gate(least, what) for least, what in demands if least is not None
    )
    return AuditFindings(config.file, log, audit, gates, shares, values)


def run_and_save(
    config: AuditConfig, progress: Progress, show: Callable[[AuditFindings], None]
) -> AuditFindings:
    """Run an audit, and write its folder, recipe and certificate as set."""
    # a certificate names the log by its digest, so the log must be the one audited
    digest = _digest(config.file) if config.certificate is not None else ""
    with _store.folder_if_asked(config) as folder:
        findings = run(config, progress)
        show(findings)  # before it is saved, which may fail
        if folder is not None:
            # an interrupt that was heard is raised again by the next report of progress
            if findings.is_complete:
                progress.stage("tables and figures", 1)
            save_audit(folder, findings)
    if config.recipe_file is not None:
        lines = (
            findings.audit.recipe.lines()
            if findings.audit.recipe is not None
            else _NO_RECIPE
        )
        write_whole(config.recipe_file, "\n".join(lines) + "\n", "recipe_file")
    if config.certificate is not None:
        if findings.is_complete:
            progress.stage("certificate", 1)
        made = privacy.certificate(findings.log, findings.audit, config.file)
        same = made["log"]["sha256"] == digest
        require(same, "file", "must not change while it is audited", str(config.file))
        write_whole(config.certificate, json.dumps(made) + "\n", "certificate")
    return findings


def _covariance(file: pathlib.Path, clients: Sequence[Any]) -> np.ndarray:
    """Read the covariance of a log's clients, in their order.

    A CSV may begin with their names, and may then have others as well. It must if the
    log names its clients: their order in the log is nothing that its user sees.
    """
    has_names = any(isinstance(client, str) for client in clients)
    unnamed = "must be a CSV whose first line names the clients, as the log names them"
    rule = "must be a matrix of numbers as NPY or CSV"
    try:
        if start_of(file, 6) == b"\x93NUMPY":
            values = np.asarray(np.load(file, allow_pickle=False))
            require(not has_names, "covariance", unnamed, str(file))
            return values
        with file.open(encoding="utf-8-sig", newline="") as stream:
            first, *lines = list(csv.reader(stream))
        # a square matrix has as many lines as columns, and names make one more
        is_named = len(lines) == len(first)
        rows = lines if is_named else [first, *lines]
        values = np.array([[float(cell) for cell in row] for row in rows])
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"`covariance` {rule}; got {error}") from error
    if not is_named:
        require(not has_names, "covariance", unnamed, str(file))
        return values
    names = [name.strip() for name in first]
    wanted = [str(client) for client in clients]
    missing = [name for name in wanted if names.count(name) != 1]
    rule = "must name each client of the log once in its first line"
    require(not missing, "covariance", rule, missing[:3])
    places = [names.index(name) for name in wanted]
    # rows and columns in the order of the log's clients
    return np.asarray(values[np.ix_(places, places)])


def _digest(file: pathlib.Path) -> str:
    """Return the digest of a log's content.

    "" where it cannot be read: its reader says what fails.
    """
    with contextlib.suppress(OSError), file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
    return ""


def _memory(log: privacy.ParticipationLog) -> str:
    """Say what the audit of a log needs, or refuse what the machine has not."""
    rounds, clients = log.participation.shape
    reduce = "its rounds or clients"
    size = f"{rounds} rounds of {clients} clients"
    return memory_words(
        _PROGRAMS + _ENTRY_BYTES * rounds * clients, "file", size, reduce
    )


def _audit(
    config: AuditConfig, log: privacy.ParticipationLog, progress: Progress
) -> privacy.Audit:
    """Audit a log; an interrupt ends the searches with the results so far."""
    latest: privacy.Audit | None = None
    names = (
        [name.strip() for name in config.coalition.split(",")]
        if config.coalition
        else []
    )
    # if clients share the noise, a sum has that of its survivors
    noise, clip = config.noise_multiplier, config.clip
    # the ledger counts that noise, with the survivors of each sum
    if config.counts_shares:
        noise = clip = None
    memory, share = config.memory, config.share
    if config.drift is not None:
        memory, share = _store.measured_drift(config.drift)
    covariance = None
    if config.covariance is not None:
        covariance = _covariance(config.covariance, log.clients)
    try:
        # each step knows more than the one before: the first is shown at once
        for step in privacy.audit_steps(
            log,
            effort=config.effort,
            coalition=names,
            progress=stages(progress),
            noise_multiplier=noise,
            clip=clip,
            delta=config.delta,
            spread=config.spread,
            memory=memory,
            share=share,
            covariance=covariance,
        ):
            if latest is None:
                note(
                    progress, "; ".join(": ".join(row[:2]) for row in first_rows(step))
                )
            latest = step
    except KeyboardInterrupt:
        if latest is None:
            raise
        note(progress, "interrupted: what was found so far follows")
    assert latest is not None
    return latest
