"""`mrsa-jax sweep STUDY.toml`: many settings of a command, in one store."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mrsa_jax._core.compile_cache import use_compile_cache
from mrsa_jax._core.flags import (
    IS_POSITIVE,
    Count,
    Folder,
    Number,
    Within,
    check_ranges,
    shown,
)
from mrsa_jax.cli.console import (
    INTERRUPTS,
    Bars,
    error_console,
    output_console,
    print_json,
    print_words,
    use_cores,
)
from mrsa_watch._base.errors import require
from mrsa_watch._base.html import counted

if TYPE_CHECKING:
    import xarray as xr

    from mrsa_jax.study.sweeps import Plan


@dataclasses.dataclass(frozen=True)
class SweepCommand:
    """Compute a grid of settings of one command into one store; resume after any interruption.

    A study is a TOML file with the settings of one command, and the axes.

      command = "simulate"                    # or train, secagg, segments, "attack NAME"
      rounds = 500
      trials = 100
      keep = ["first_exposure", "status"]     # also "skipped", "expected_fairness_gap"
      best_over = { axis = "privacy_target", by = "aggregation_cardinality" }
      [population]
      num_clients = 120
      [grid]                                  # crossed with each other, in this order
      scheme = ["uniform", "partition", "batch_partitioning"]
      privacy_target = [3, 4, 6]              # of schemes with blocks, no others
      population.dropout_rates = { linspace = [0.1, 0.5, 5] }
      [[zip]]                                 # change together
      population.num_clients = [60, 120]
      population.cohort_size = [6, 12]

      mrsa-jax sweep study.toml --dry-run     # points, compilations, memory, size
      mrsa-jax sweep study.toml               # run it; again if interrupted; or twice
      mrsa-jax sweep study.toml --reuse DIR   # takes the points that another sweep has
      mrsa-jax sweep merge DIR DIR --out NEW  # combines parts that were computed apart
      mrsa-jax sweep study.toml --workers 2   # in separate processes (extra: dask)
      mrsa-jax sweep study.toml --scheduler tcp://host:8786

    mrsa_jax.study.open_study(DIR) opens the store: an xarray data set whose `done`
    marks the complete points. Exit status: 0 done, 1 not written (a full disk), 2
    misuse, 130 interrupted, 143 terminated; then the complete points are kept.
    """

    study: tyro.conf.Positional[
        Annotated[tuple[pathlib.Path, ...], shown("STUDY.toml | merge DIR DIR")]
    ] = tyro.MISSING
    """File with settings and axes; or merge, and folders of sweeps."""
    out: Folder = None
    """Folder of the store. Default: as the file states, or results/sweep."""
    dry_run: bool = False
    """Check every cell and report the size of the sweep, without computing anything."""
    workers: Annotated[Count, Within(1)] = None
    """Compute in N processes of this machine, by dask. Default: in this process."""
    scheduler: Annotated[str | None, shown("ADDRESS")] = None
    """Compute on the workers of a dask scheduler, such as tcp://host:8786, all of which
    see DIR. Default: on this machine."""
    memory_gib: Annotated[Number, IS_POSITIVE] = None
    """Bound on the memory of the points that are computed at once, in GiB. Default: as
    the machine allows."""
    devices: Annotated[Count, Within(1)] = None
    """Devices over which the trials of a point are distributed. Default: one; for
    trainings, one per core."""
    json: bool = False
    """Print the completed work as JSON on standard output."""
    overwrite: bool = False
    """Replace another study in DIR, or start this one again."""
    reuse: Folder = None
    """Folder of another sweep; the points that both have are taken from it. Default: no
    other sweep."""


def run_sweep_command(command: SweepCommand) -> int:
    """Plan and run a sweep, and return the exit status."""
    from mrsa_jax.study import sweeps

    first, *folders = command.study
    if folders:
        return _merge(command, str(first), folders)
    sweep = sweeps.load_sweep(first)
    overwrites = command.overwrite or sweep.overwrite
    sweep = dataclasses.replace(
        sweep, out=command.out or sweep.out, overwrite=overwrites, reuse=command.reuse
    )
    _check(command)
    use_compile_cache()
    use_cores(command.devices)
    start = time.perf_counter()
    # before planning, which may take seconds
    sweeps.check_sweep_output(sweep)
    bound = None if command.memory_gib is None else int(command.memory_gib * 2**30)
    plan = sweeps.plan_sweep(sweep, sweeps.Machine(bound, command.devices))
    if command.dry_run or not command.json:
        _show_plan(plan, command)
    if command.dry_run:
        return 0
    # workers start JAX, not this process: it would hold memory of their GPU
    is_here = command.workers is None and command.scheduler is None
    with Bars(device=is_here) as bars:
        INTERRUPTS.kept = lambda: (
            f"{bars.done} of {sweep.size} cells are kept in {sweep.out}; the same "
            "command computes the others"
        )
        done = sweeps.complete(
            plan, bars, workers=command.workers, scheduler=command.scheduler
        )
    seconds = time.perf_counter() - start
    best = None
    if sweep.best_over is not None:
        from mrsa_jax.study import open_study

        best = open_study(sweep.out)
    _show_results(command, done, sweep.size, sweep.out, seconds, best)
    return 0


def _merge(command: SweepCommand, word: str, folders: list[pathlib.Path]) -> int:
    rule = "must be one file, or the word merge and folders"
    require(word == "merge", "study", rule, " ".join(map(str, command.study)))
    # equal to a command of defaults: no other flag was set
    bare = dataclasses.replace(command, study=(), out=None, json=False)
    plain = bare == SweepCommand(())
    require(
        plain,
        "study",
        "must have no flags but --out and --json where folders are merged",
    )
    require(command.out is not None, "out", "must be given: the folder of the result")
    from mrsa_jax.study import merge

    with Bars(device=False) as bars:
        results = merge(folders, command.out or "", progress=bars)
    done = int(results["done"].values.sum())
    _show_results(command, done, results["done"].size, command.out)
    return 0


def _check(command: SweepCommand) -> None:
    check_ranges(command)
    rule = "must not be set with `scheduler`, which has its own"
    both = command.workers is not None and command.scheduler is not None
    require(not both, "workers", rule, command.workers)


def _show_plan(plan: Plan, command: SweepCommand) -> None:
    from mrsa_jax._core.memory import accelerator_words, bytes_in_words

    sweep, content = plan.sweep, plan.content() if command.dry_run else {}
    if command.json:
        print_json(content)
        return
    axes = " x ".join(f"{len(axis.values)} {axis.name}" for axis in sweep.axes)
    empty = (
        f", {len(plan.impossible)} impossible and left empty" if plan.impossible else ""
    )
    lines = (
        f"{sweep.kind.name}: {axes} = {sweep.size} cells{empty}; "
        f"{counted(plan.num_computed, 'point')} to compute (equal ones once)",
        *(f"left empty: {line.strip()}" for line in plan.left_empty()),
        *plan.unread(),
        f"{counted(len(plan.groups), 'group')}, each compiled once: "
        + ", ".join(
            f"{counted(len(group.numbers), 'point')}, {group.together} at a time"
            for group in plan.groups[:6]
        )
        + (", ..." if len(plan.groups) > 6 else ""),
        f"memory: about {bytes_in_words(plan.memory_bytes)}{accelerator_words()} for "
        "the points computed at once; "
        f"store: {bytes_in_words(plan.store_bytes)} before compression, in {sweep.out}",
        *(_standing(content) if content else ()),
    )
    print_words(
        output_console() if command.dry_run else error_console(), "\n".join(lines)
    )


def _standing(content: dict[str, Any]) -> list[str]:
    """Say what is there, and what is to be computed and why."""
    points, num_there, new = content["points"], content["there"], content["new"]
    more = [
        f"{count} have {has} trials, and get {has} to {end - 1}"
        for has, end, count in content["more_trials"]
    ]
    lines = [
        "; ".join([f"{num_there} of {points} points are there, {new} are new", *more])
    ]
    lines += content["changed"]
    num_left, unknown = points - num_there, content["unknown"]
    if num_left > unknown:
        lines.append(
            f"time: about {content['seconds']:.2g} s, as records of such points took"
        )
    if unknown:
        lines.append(
            f"time: no record yet of points like {unknown} of the {num_left} missing "
            "ones"
        )
    return [*lines, f"files: about {content['files']} when it is done"]


def _show_results(
    command: SweepCommand,
    done: int,
    cells: int,
    out: Any,
    seconds: float | None = None,
    best: xr.Dataset | None = None,
) -> None:
    from mrsa_jax.study import sweeps

    if command.json:
        more: dict[str, Any] = {} if seconds is None else {"seconds": seconds}
        if best is not None:
            more["best_over"] = list(sweeps.best_rows(best.mrsa.best_over()))
        print_json({"out": str(out), "done": done, "cells": cells} | more)
        return
    took = "" if seconds is None else f", {seconds:.0f} s"
    words = f"{done} of {cells} cells are done{took}; mrsa-jax report {out} shows them"
    chosen = () if best is None else sweeps.best_sentences(best)
    print_words(output_console(), "\n".join((words, *chosen)))
