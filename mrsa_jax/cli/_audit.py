"""`mrsa-jax audit FILE`: what a participation log of any system leaks, and a gate for pipelines.

With `--out` everything is kept in a folder, of which `mrsa-jax report` makes a page.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import tyro

from mrsa_jax._compile_cache import use_compile_cache
from mrsa_jax._errors import require, writing
from mrsa_jax._memory import memory_words
from mrsa_jax._untrusted import printable
from mrsa_jax.cli._console import Bars, escape

if TYPE_CHECKING:
    from mrsa_jax.privacy import Audit, Gate, ParticipationLog
    from mrsa_jax.study._config import Settings
    from mrsa_jax.study._store import StudyFolder

__all__ = ["BELOW_TARGET", "AuditConfig", "run_audit", "title_of"]

# Measured: what searches and their programs take, and bytes for each entry of the matrix.
_PROGRAMS, _ENTRY_BYTES = 2**28, 80
BELOW_TARGET = 3  # exit status of a gate that failed
INTERRUPTED = 130


@dataclasses.dataclass(frozen=True)
class AuditConfig:
    """Audit a participation log of any system."""

    file: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = (
        tyro.MISSING
    )
    """CSV with a header (round,client), or a 0/1 matrix without one; Parquet, NPY or NPZ."""

    layout: Literal["auto", "long", "matrix"] = "auto"
    """Rows of (round, client), or a matrix with a row a round; told apart by the header."""

    round_column: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Name of the column with the round; the usual names are known."""

    client_column: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Name of the column with the client; the usual names are known."""

    weight_column: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Name of the column with each client's weight in the sum; "weight" is known."""

    where: tyro.conf.UseAppendAction[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN=TEXT")]
    ] = ()
    """Keep only the rows with this text (or one of TEXT,TEXT) in this column; may be repeated."""

    ignore_columns: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    """Columns to pass over, with commas: each that may say who was in a sum waits for a word."""

    round_order: Literal["sorted", "file"] = "sorted"
    """Order of the rounds: by number or name, or as in the file."""

    array: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Which array of an NPZ archive."""

    memory_gib: float = 2.0
    """Most memory that the history may take as a matrix."""

    effort: float = 1.0
    """How much may be tried: 1 is searches and proofs of about 90 seconds of one core."""

    fail_below: Annotated[int | None, tyro.conf.arg(metavar="T")] = None
    """Exit with status 3 unless privacy of at least this T is proven (2: nobody is exposed)."""

    definition: Literal["weak", "strong"] = "weak"
    """Of --fail-below: clients in any combination of sums, or clients who only move together."""

    recipe_file: Annotated[pathlib.Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Where to write the whole recipe as CSV."""

    out: Annotated[pathlib.Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for findings, certificates, tables and figures; mrsa-jax report makes a page of it."""

    overwrite: bool = False
    """Replace other results in --out."""

    json: bool = False
    """Print everything as JSON instead."""


def run_audit(config: AuditConfig) -> int:
    """Audit a log and return the exit status: 0, 3 where the gate fails, 130 if interrupted."""
    _validate(config)  # before JAX is imported: a misuse is answered at once
    use_compile_cache()
    with _folder(config) as folder:
        with Bars(device=False) as bars:  # a log that cannot be read is said at once
            log = _read(config, bars)
            bars.say_device()
            bars.say(_memory(log))
            found, is_whole = _audit(config, log, bars)
        gate = None
        if config.fail_below is not None:
            gate = found.gate(config.fail_below, config.definition)
        _show(config, found, gate)  # before it is saved, which may fail
        if folder is not None:
            from mrsa_jax.cli._audit_folder import save_audit

            with Bars(device=False) as bars:
                bars.stage("tables and figures", 1)
                save_audit(folder, config.file, log, found, gate, _rows(found))
                bars.update(1, 1)
    if config.recipe_file is not None:
        _write_recipe(config.recipe_file, found)
    if config.out is not None and not config.json:
        sys.stdout.write(
            f"\nWritten to {config.out}; mrsa-jax report {config.out} makes a page of it\n"
        )
    if not is_whole:
        return INTERRUPTED
    return 0 if gate is None or gate.passed else BELOW_TARGET


def _memory(log: ParticipationLog) -> str:
    """Say what the audit of a log needs, or refuse what the machine has not."""
    rounds, clients = log.participation.shape
    reduce = "its rounds or clients"
    size = f"{rounds} rounds of {clients} clients"
    return memory_words(_PROGRAMS + _ENTRY_BYTES * rounds * clients, "file", size, reduce)


def _show(config: AuditConfig, found: Audit, gate: Gate | None) -> None:
    if not config.json:
        return _print(config, found, gate)
    content = {"file": str(config.file), **found.to_dict()}
    if config.out is not None:
        content["out"] = str(config.out)
    content["gate"] = None if gate is None else gate._asdict()
    sys.stdout.write(json.dumps(content, indent=2) + "\n")
    return None


def _folder(config: AuditConfig) -> contextlib.AbstractContextManager[StudyFolder | None]:
    """Return the folder that is written whole or not at all; None where none is asked for."""
    if config.out is None:
        return contextlib.nullcontext()
    from mrsa_jax.study import _store

    return _store.study_folder(cast("Settings", config))


def _read(config: AuditConfig, bars: Bars) -> ParticipationLog:
    from mrsa_jax import privacy

    bars.stage(f"reading {config.file}", 1)
    log = privacy.read_log(
        config.file,
        layout=config.layout,
        round_column=config.round_column,
        client_column=config.client_column,
        weight_column=config.weight_column,
        round_order=config.round_order,
        array=config.array,
        memory_bytes=int(config.memory_gib * 2**30),
        where=config.where,
        ignore_columns=config.ignore_columns,
    )
    bars.update(1, 1)
    return log


def _audit(config: AuditConfig, log: ParticipationLog, bars: Bars) -> tuple[Audit, bool]:
    """Return what was found, and whether that is all; an interrupt ends it with what there is."""
    from mrsa_jax import privacy

    found: Audit | None = None
    try:
        for step in privacy.audit_steps(log, effort=config.effort, progress=_stages(bars)):
            if found is None:
                bars.say("; ".join(": ".join(row[:2]) for row in _first_rows(step)))
            found = step
        bars.update(1, 1)
    except KeyboardInterrupt:
        if found is None:
            raise
        bars.say("interrupted: what was found so far follows")
    assert found is not None
    return found, not found.pending


def _validate(config: AuditConfig) -> None:
    positive = math.isfinite(config.memory_gib) and config.memory_gib > 0
    require(positive, "memory_gib", "must be positive", config.memory_gib)
    finite = math.isfinite(config.effort) and config.effort >= 0
    require(finite, "effort", "must be a number of at least 0", config.effort)
    enough = config.fail_below is None or config.fail_below >= 1
    require(enough, "fail_below", "must be at least 1", config.fail_below)
    recipe = config.recipe_file
    there = recipe is None or recipe.parent.is_dir()
    require(there, "recipe_file", "must lie in an existing folder", str(recipe))
    if config.out is None:
        require(not config.overwrite, "overwrite", "must come with --out", config.overwrite)
    else:
        from mrsa_jax.study._store import check_output

        check_output(cast("Settings", config))


def _stages(bars: Bars) -> Any:
    """Return a report of stages and of the parts of each that are done."""
    last = ""

    def report(stage: str, done: int, total: int) -> None:
        nonlocal last
        if stage != last:
            bars.update(1, 1)
            bars.stage(stage, total)
            last = stage
        bars.update(done, total)

    return report


def _write_recipe(path: pathlib.Path, found: Audit) -> None:
    lines = found.recipe.lines() if found.recipe is not None else ["kind,name,coefficient"]
    part = path.with_name(path.name + ".part")
    with writing(path, "recipe_file"):
        try:
            part.write_text("\n".join(lines) + "\n", encoding="utf-8")
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def _print(config: AuditConfig, found: Audit, gate: Gate | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    table = Table(
        title=escape(title_of(config.file, found)),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name in ("question", "answer", "how sure"):
        table.add_column(name)
    for row in _rows(found):
        table.add_row(*map(escape, row))
    console.print(table)
    for sentence in found.sentences():
        console.print(sentence, highlight=False, markup=False)
    if found.recipe is not None:
        console.print(
            "Exact where a client's update stays the same over the rounds; otherwise the recipe "
            "gives it up to the change.",
            style="dim",
        )
    if gate is not None:
        verdict = "[green]PASSED[/]" if gate.passed else "[bold red]FAILED[/]"
        console.print(f"\n{verdict}: {escape(gate.reason)}", highlight=False)


def title_of(file: pathlib.Path, found: Audit) -> str:
    """Return what was audited, in a line."""
    empty = f" ({found.empty_rounds} without anybody)" if found.empty_rounds else ""
    kind = "weighted" if found.is_weighted else "plain"
    size = f"{found.num_rounds} rounds{empty}, {found.num_clients} clients"
    return f"{printable(file)}: {size}, {kind} sums"


def _first_rows(found: Audit) -> list[tuple[str, str, str]]:
    """Return what is known at once."""
    weak = found.weak
    if weak.lower is None:
        return [("clients in any sum", "0", "exact")]
    first = f", first after round {printable(found.exposed[0][1])}" if found.exposed else ""
    return [
        ("exposed clients", f"{len(found.exposed)}{first}", weak.surety),
        ("strong privacy T", str(found.strong), "exact"),
        (
            "lightest combination so far",
            f"{weak.upper} client{'' if weak.upper == 1 else 's'}",
            "exact",
        ),
    ]


def _rows(found: Audit) -> list[tuple[str, str, str]]:
    from mrsa_jax.privacy._audit import share

    weak = found.weak
    exposed, *others = _first_rows(found)
    if not others:
        return [exposed]
    leverage = "not computed"
    if found.max_leverage is not None:
        leverage = f"{share(found.max_leverage)} (client {printable(found.max_leverage_client)})"
    plain = []
    group = found.group
    if group is not None and group.upper is not None:
        sizes = str(group.upper) if group.certified else f"{group.lower} to {group.upper}"
        plural = "" if sizes == "1" else "s"
        sure = "certified" if group.certified else "not decided"
        plain = [("smallest plain sum", f"{sizes} client{plural}", sure)]
    both = weak.lower == weak.upper
    return [
        exposed,
        ("maximum leverage", leverage, "float64"),
        ("weak privacy T", str(weak.lower) if both else f"{weak.lower} to {weak.upper}",
         f"{weak.verdict}; from below: {weak.lower_method}, from above: {weak.upper_method}"),
        *plain,
        ("strong privacy T", str(found.strong), "exact"),
        ("rank of the sums", f"{weak.rank} for {weak.num_groups} groups of clients", weak.surety),
    ]  # fmt: skip
