"""A sweep from Python.

From a study as it is written, perhaps with objects, to its data set.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from mrsa_jax._core.floats import usual_floats
from mrsa_jax._core.registry import label_of_words, no_parameters
from mrsa_jax._core.sources import Code
from mrsa_jax._core.state import digest_of
from mrsa_jax.availability import registry as availability
from mrsa_jax.graphs import registry as graphs
from mrsa_jax.selection import registry as selection
from mrsa_jax.study import _parts, _store
from mrsa_jax.study._load import plain_values
from mrsa_jax.study._progress import Progress, checked_progress
from mrsa_jax.study._runner import Machine
from mrsa_jax.study.sweeps._axes import load_sweep, sweep_of
from mrsa_jax.study.sweeps._engine import complete
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
    """Compute a grid of settings into one store, or what is missing of it, and open the store.

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
        >>> grid = {"scheme": ["uniform", "batch_partitioning"], "privacy_target": [2, 3]}
        >>> small = {"num_clients": 12, "cohort_size": 6}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = mj.study.sweep(
        ...         {"rounds": 9, "trials": 2, "population": small, "grid": grid}, out=folder
        ...     ).load()
        >>> found["strong_privacy"].sel(scheme="Multi-RoundSecAgg").min("trial").values.tolist()
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
            asked = sweep_of(objects.named(plain_values(study)))
        else:
            asked = load_sweep(study)
        rule = "must only be set with objects: what is registered names its own with `register`"
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
        asked = dataclasses.replace(
            asked,
            out=asked.out if out is None else pathlib.Path(out),
            overwrite=overwrite or asked.overwrite,
            reuse=None if reuse is None else pathlib.Path(reuse),
        )
        check_sweep_output(asked)
        plan = plan_sweep(asked, Machine(memory_bytes, devices))
        if dry_run:
            return plan.content()
        complete(plan, progress, workers=workers)
        return _store.open_study(asked.out)


# ---- Objects on the axes: what has no name gets one for the time of the sweep. It is
# registered as
# a plugin's would be, with a digest of its code and of all that it holds. So everything
# behind it,
# keys and stores among them, sees a name.

_MOST_CHARACTERS = 80


@dataclasses.dataclass(frozen=True)
class _Family:
    """What may be given as it is.

    Attributes:
        rows: Those that have names.
        register: (name, factory) -> None.
        has: What a value has, and a factory that makes one has not.
        made: A value -> the factory that returns it.
    """

    rows: dict[str, Any]
    register: Callable[[str, Any], None]
    has: tuple[str, ...]
    made: Callable[[Any], Callable[..., Any]] = lambda value: lambda *given: value

    def has_value(self, thing: Any) -> bool:
        """Return whether an object is a value of the family."""
        has_all = all(
            any(hasattr(thing, one) for one in own.split(" or ")) for own in self.has
        )
        return has_all and not isinstance(thing, type)


def _of_its_sizes(selector: Any) -> Callable[..., Any]:
    def factory(num_clients: int, cohort_size: int) -> Any:
        own = selector.num_clients, int(getattr(selector, "cohort_size", cohort_size))
        rule = "must be made for the clients and the cohort of the population"
        require(
            own == (num_clients, cohort_size),
            "scheme",
            rule,
            own,
            (num_clients, cohort_size),
        )
        return selector

    return factory


def _of_its_model(trainer: Any) -> Callable[..., Any]:
    def factory(model: Any, training: Any) -> Any:
        own = getattr(trainer, "model", model)
        require(
            own == model,
            "trainer",
            "must be made for the model that is trained",
            own,
            model,
        )
        return trainer

    return factory


_SCHEMES = _Family(
    selection.ROWS, selection.register, ("init", "select"), _of_its_sizes
)
_FAMILIES = {
    "scheme": _SCHEMES,
    "schemes": _SCHEMES,
    "availability": _Family(
        availability.ROWS, availability.register, ("for_clients", "sample")
    ),
    "graph": _Family(graphs.ROWS, graphs.register, ("num_clients", "sample")),
    **{
        kind: _Family(own.rows, functools.partial(_parts.register, kind), own.has)
        for kind, own in _parts.KINDS.items()
    },
}
_FAMILIES["trainer"] = dataclasses.replace(_FAMILIES["trainer"], made=_of_its_model)


class Objects:
    """Gives names to the objects of a study.

    Args:
        stack: Takes the names back when it ends.
        depends: What they depend on in addition to what they reach.

    Attributes:
        names: Those that were given.
    """

    def __init__(self, stack: contextlib.ExitStack, depends: Any = None) -> None:
        """Begin with none."""
        self._depends = depends
        self.names: list[str] = []
        self._stack = stack

    def named(self, content: Mapping[str, Any], path: str = "") -> dict[str, Any]:
        """Return settings in which names stand for the objects.

        Raises:
            ConfigurationError: If an object has no name, the name of another, or no
                digest.
        """
        return {
            name: self._named(str(name), value, path) for name, value in content.items()
        }

    def _named(self, name: str, value: Any, path: str) -> Any:
        family, path = _FAMILIES.get(name.rpartition(".")[2]), f"{path}{name}"
        if isinstance(value, list):
            places = [(one, f"{path}[{i}]") for i, one in enumerate(value)]
            if family is not None:
                return [
                    own for one, at in places for own in self._names(family, one, at)
                ]
            tables = all(isinstance(one, Mapping) for one in value)  # [[zip]]
            return (
                [self.named(one, f"{at}.") for one, at in places] if tables else value
            )
        if family is not None:
            several = self._names(family, value, path)
            return several[0] if len(several) == 1 else several
        return self.named(value, f"{path}.") if isinstance(value, Mapping) else value

    def _names(self, family: _Family, item: Any, path: str) -> list[Any]:
        """Return the name of an object, or those of a table of some.

        Another value as it is.
        """
        if isinstance(item, Mapping):
            for name, thing in item.items():
                rule = "must be an object, or a function that makes one"
                good = family.has_value(thing) or callable(thing)
                require(good, f"{path}.{name}", rule, thing)
                self._register(family, name, thing, path)
            return list(item)
        if not family.has_value(item) and not callable(item):
            return [item]
        name = getattr(item, "__name__", None) or repr(item)
        self._register(family, name, item, path)
        return [name]

    def _register(self, family: _Family, name: Any, thing: Any, path: str) -> None:
        good = (
            isinstance(name, str)
            and 0 < len(name) <= _MOST_CHARACTERS
            and name.isprintable()
        )
        good = good and not any(one in name for one in (":", " at 0x", "<lambda>"))
        rule = "must have a name that tables can show, without a colon, as {'mine': object} gives"
        require(good, path, rule, name)
        code = Code(thing, name, path, self._depends)
        digests = code()
        rows = family.rows
        if name in rows:
            rule = (
                "must have a name that nothing else has, as {'another': object} gives"
            )
            require(
                name in self.names and rows[name].code() == digests, path, rule, name
            )
            return
        value, legal = _linen(thing), f"object_{digest_of(name.encode())}"
        is_value = family.has_value(value)
        family.register(legal, family.made(value) if is_value else value)
        row = rows.pop(legal)
        own: dict[str, Any] = {
            "code": code.again,
            "rule": row.rule.replace(legal, name),
        }
        if hasattr(row, "label"):
            own["label"] = label_of_words(name)
        if is_value:
            own |= {"read": no_parameters, "rule": ""}
        rows[name] = dataclasses.replace(row, **own)
        self._stack.callback(rows.pop, name)
        self.names.append(name)


def _linen(thing: Any) -> Any:
    """Return a class of `flax.nnx` as the linen module that trainings take."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is not None and isinstance(thing, type) and issubclass(thing, nnx.Module):
        return nnx.bridge.to_linen(thing)
    return thing
