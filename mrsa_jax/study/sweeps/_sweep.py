"""Run a sweep from Python: from a study, perhaps with objects, to its data set."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from mrsa_jax._core.floats import usual_floats
from mrsa_jax.study._progress import Progress, checked_progress
from mrsa_jax.study.publishing._accessor import open_study
from mrsa_jax.study.publishing._best import (
    best_rows as best_rows,
    best_sentences as best_sentences,
)
from mrsa_jax.study.settings._load import plain_values
from mrsa_jax.study.stores._runner import Machine
from mrsa_jax.study.sweeps._axes import load_sweep, sweep_of
from mrsa_jax.study.sweeps._engine import complete
from mrsa_jax.study.sweeps._objects import Objects
from mrsa_jax.study.sweeps._plan import plan_sweep
from mrsa_jax.study.sweeps._store import check_sweep_output
from mrsa_watch._base.errors import check_count, require


@usual_floats
def sweep(
    study: str | pathlib.Path | Mapping[str, Any],
    *,
    out: str | pathlib.Path | None = None,
    overwrite: bool = False,
    reuse: str | pathlib.Path | None = None,
    depends: Any = None,
    memory_bytes: int | None = None,
    devices: int | None = None,
    workers: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Any:
    """Compute a grid of settings into one store, or its missing points, and open it.

    Use it for any comparison of more than a few settings: equal points are computed
    once, those that differ in numbers alone are compiled once, and a kill loses the
    points in flight only. The same folder with a larger grid, or more trials, computes
    what is new; a point whose plugin or files have changed since is computed anew.

    A scheme, availability model, graph, model, data set, trainer or quantizer need not
    be registered: its setting, or axis, also takes the object itself, or the factory
    that `register` takes. It is shown as `{"mine": object}` names it, else by the
    factory's name or as the object was typed. Its code and all values that it holds are
    part of what a point is.

    Args:
        study: A TOML file, or what one holds: settings of `simulate` or `train` (named
            by `command`), and the axes in `grid` and `zip` (`mrsa-jax sweep --help`).
            `best_over` names an axis whose best value is shown for each point of the
            others.
            Numbers may be NumPy's, and lists arrays, tuples, ranges or series: the
            points are the same.
        out: Folder of the store; as the study says, or `results/sweep`, if left out.
        overwrite: Replace another study there, or start this one anew.
        reuse: Folder of another sweep: points that it has are taken from there.
        depends: What the results depend on in addition to what the objects reach, as in
            `selection.register`; it counts for each of them.
        memory_bytes: Bound on the memory of the points that are computed at once.
        devices: Devices that a point's trials, or clients, are dealt out to.
        workers: Compute in so many processes of this machine, by dask. Objects do not
            reach them.
        dry_run: Only check every cell and say what the sweep comes to.
        progress: Receives how many points are done.

    Returns:
        Data set with an axis for each line of the grid, and `done` for each point. A
        result with the name of an axis ends in `_found`. Of a dry run a dictionary, as
        `mrsa-jax sweep` prints it with `--dry-run --json`: points, those that are
        `there` and `new`, what `changed`, `unread` axes, `seconds`, `files`, bytes.

    Raises:
        ConfigurationError: By the path of the field that breaks a rule, or with the
            cells that make no sense, or with an object that has no name or no digest;
            nothing is run then.
        OutputExistsError: If the folder holds something else, or a sweep with points
            that this one has not.
        StoreError: If it cannot be written.

    Examples:
        >>> import mrsa_jax as mj
        >>> import tempfile
        >>> grid = {"privacy_target": [2, 3]}
        >>> grid["scheme"] = ["uniform", "batch_partitioning"]
        >>> small = {"num_clients": 12, "cohort_size": 6}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = mj.study.sweep(
        ...         {"rounds": 9, "trials": 2, "population": small, "grid": grid},
        ...         out=folder,
        ...     ).load()
        >>> blocks = found["strong_privacy"].sel(scheme="Multi-RoundSecAgg")
        >>> blocks.min("trial").values.tolist()
        [2.0, 3.0]
    """
    is_file = isinstance(study, str | os.PathLike)
    rule = "must be a TOML file's path, or a mapping of what one holds"
    require(is_file or isinstance(study, Mapping), "study", rule, study)
    for name, path in (("out", out), ("reuse", reuse)):
        is_path = path is None or isinstance(path, str | os.PathLike)
        require(is_path, name, "must be the path of a folder", path)
    for name, flag in (("overwrite", overwrite), ("dry_run", dry_run)):
        require(isinstance(flag, bool), name, "must be True or False", flag)
    numbers = {"memory_bytes": memory_bytes, "devices": devices, "workers": workers}
    for name, value in numbers.items():
        if value is not None:
            check_count(value, name, "must be a positive integer or None")
    progress = checked_progress(progress)
    with contextlib.ExitStack() as stack:
        objects = Objects(stack, depends)
        if isinstance(study, Mapping):
            swept = sweep_of(objects.named(plain_values(study)))
        else:
            swept = load_sweep(study)
        rule = (
            "must only be set with objects: what is registered names its own with "
            "`register`"
        )
        require(depends is None or bool(objects.names), "depends", rule, depends)
        rule = (
            "must not be set with objects, which other processes do not have: register "
            "them in a "
            "file, and run mrsa-jax sweep STUDY.toml --plugin FILE.py --workers"
        )
        require(
            workers is None or not objects.names,
            "workers",
            rule,
            workers,
            *objects.names,
        )
        swept = dataclasses.replace(
            swept,
            out=swept.out if out is None else pathlib.Path(out),
            overwrite=overwrite or swept.overwrite,
            reuse=None if reuse is None else pathlib.Path(reuse),
        )
        check_sweep_output(swept)
        plan = plan_sweep(swept, Machine(memory_bytes, devices))
        if dry_run:
            return plan.content()
        complete(plan, progress, workers=workers)
        return open_study(swept.out)
