"""Runs an audit from its settings, and saves what it found."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

from mrsa_jax import privacy
from mrsa_jax._errors import require, writing
from mrsa_jax._memory import memory_words
from mrsa_jax.study import _store
from mrsa_jax.study._audit_config import AuditConfig
from mrsa_jax.study._findings import AuditFindings, first_rows
from mrsa_jax.study._progress import Progress, note, stages
from mrsa_jax.study._shares import shares_of
from mrsa_jax.study.audit._folder import save_audit

# Measured: what searches and their programs take, and bytes for each entry of the matrix.
_PROGRAMS, _ENTRY_BYTES = 2**28, 80
_NO_RECIPE = ["kind,name,coefficient"]
# Settings that are arguments of `read_log`.
_AS_READ = ("format", "layout", "round_column", "client_column", "weight_column", "round_order",
            "array", "where", "ignore_columns", "sum_columns", "restarts")  # fmt: skip


def check(config: AuditConfig) -> None:
    """Reject nothing more: what an audit needs depends on its log."""


def run(config: AuditConfig, progress: Progress) -> AuditFindings:
    """Read a log and audit it; an interrupt ends the searches with what there is."""
    note(progress, f"reading {config.file}")
    log = _read(config)
    note(progress, _memory(log))
    shares = shares_of(config, log)
    found = _audit(config, log, progress)
    gates = []
    if config.fail_below is not None:
        gates.append(found.gate(config.fail_below, config.definition))
    if config.fail_below_hidden is not None:
        gates.append(found.gate(config.fail_below_hidden, "hidden"))
    return AuditFindings(config.file, log, found, tuple(gates), shares)


def run_and_save(
    config: AuditConfig, progress: Progress, show: Callable[[AuditFindings], None]
) -> AuditFindings:
    """Run an audit and write its folder, recipe and certificate, those that are asked for."""
    digest = _digest(config.file) if config.certificate is not None else ""
    with _store.folder_if_asked(config) as folder:
        found = run(config, progress)
        show(found)  # before it is saved, which may fail
        if folder is not None:
            # an interrupt that was heard is raised again by the next report of progress
            if found.is_complete:
                progress.stage("tables and figures", 1)
            save_audit(folder, found)
    if config.recipe_file is not None:
        lines = found.audit.recipe.lines() if found.audit.recipe is not None else _NO_RECIPE
        _write(config.recipe_file, "recipe_file", "\n".join(lines) + "\n")
    if config.certificate is not None:
        if found.is_complete:
            progress.stage("certificate", 1)
        made = privacy.certificate(found.log, found.audit, config.file)
        same = made["log"]["sha256"] == digest
        require(same, "file", "must not change while it is audited", str(config.file))
        _write(config.certificate, "certificate", json.dumps(made) + "\n")
    return found


def _digest(file: pathlib.Path) -> str:
    """Return what a certificate is bound to, before the log is read; its reader says what fails."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(file.read_bytes()).hexdigest()
    return ""


def _read(config: AuditConfig) -> privacy.ParticipationLog:
    options: dict[str, Any] = {name: getattr(config, name) for name in _AS_READ}
    return privacy.read_log(config.file, memory_bytes=int(config.memory_gib * 2**30), **options)


def _memory(log: privacy.ParticipationLog) -> str:
    """Say what the audit of a log needs, or refuse what the machine has not."""
    rounds, clients = log.participation.shape
    reduce = "its rounds or clients"
    size = f"{rounds} rounds of {clients} clients"
    return memory_words(_PROGRAMS + _ENTRY_BYTES * rounds * clients, "file", size, reduce)


def _audit(config: AuditConfig, log: privacy.ParticipationLog, progress: Progress) -> privacy.Audit:
    """Return what was found; an interrupt ends the searches with what there is."""
    found: privacy.Audit | None = None
    names = [name.strip() for name in config.coalition.split(",")] if config.coalition else []
    # with shares of clients a sum's noise is what its survivors added
    noise, clip = config.noise_multiplier, config.clip
    if config.counts_shares:
        noise = clip = None
    try:
        for step in privacy.audit_steps(
            log, effort=config.effort, coalition=names, progress=stages(progress),
            noise_multiplier=noise, clip=clip, delta=config.delta, spread=config.spread,
        ):  # fmt: skip
            if found is None:
                note(progress, "; ".join(": ".join(row[:2]) for row in first_rows(step)))
            found = step
    except KeyboardInterrupt:
        if found is None:
            raise
        note(progress, "interrupted: what was found so far follows")
    assert found is not None
    return found


def _write(path: pathlib.Path, argument: str, text: str) -> None:
    part = path.with_name(path.name + ".part")
    with writing(path, argument):
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
