"""Sweeps: settings of one command, and axes along which some of them change.

A TOML file holds the settings as the command's own file does, and next to them
`[grid]`, whose fields are crossed with each other, and any number of `[[zip]]`, whose
fields change together. Nothing here imports JAX.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import itertools
import json
import math
import pathlib
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mrsa_jax.availability.registry import Model
from mrsa_jax.graphs.registry import Graph
from mrsa_jax.selection.registry import ROWS as SCHEMES, Scheme
from mrsa_jax.study.kinds import Kind, swept_kind
from mrsa_jax.study.settings._config import studied
from mrsa_jax.study.settings._load import (
    check_types,
    each_once,
    from_dict,
    own_and_tables,
    parse_toml,
    read_toml,
    read_value,
    to_dict,
    without_none,
)
from mrsa_jax.study.settings._parts import check_parts
from mrsa_jax.study.sweeps._keys import as_read
from mrsa_watch._base.errors import (
    ConfigurationError,
    check_known,
    is_number,
    nearest,
    require,
)

# fields whose text is read by its family
_WRITTEN: dict[str, Any] = {
    "scheme": Scheme.parse,
    "population.availability": Model.parse,
    "protocol.graph": Graph.parse,
}
_RANGES = {
    "range": (2, 3, "[first, end] or [first, end, step], the end left out"),
    "linspace": (3, 3, "[first, last, how many]"),
    "geomspace": (3, 3, "[first, last, how many]"),
}
_MOST_POINTS = 10**6


@dataclasses.dataclass(frozen=True)
class Axis:
    """A direction of a sweep.

    Attributes:
        name: Of the dimension in the results.
        fields: Dotted names of the settings that change along it.
        values: For each place on the axis, the value of each field.
    """

    name: str
    fields: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """A sweep as plain values: what its store is named and compared by."""

    seed: int
    out: pathlib.Path
    overwrite: bool
    swept: str
    base: dict[str, Any]
    axes: tuple[dict[str, Any], ...]
    skip_impossible: bool
    trajectories: bool
    # None where nothing is asked for: as it was before it could be
    keep: tuple[str, ...] | None
    # shown of the results, of which no point knows
    best_over: dict[str, Any] | None


@dataclasses.dataclass(frozen=True)
class Point:
    """One cell of the grid.

    Attributes:
        index: Its place on each axis.
        config: The command's configuration; None where there can be none.
        problem: Why there can be none.
    """

    index: tuple[int, ...]
    config: Any
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep, read and checked field by field; its cells are checked by `points`.

    Attributes:
        kind: Of the points.
        base: Settings that do not change.
        axes: Directions, in the order of the file.
        out: Folder of the results.
        overwrite: Whether to replace another study there.
        reuse: Folder of another sweep, whose points are taken where they are the same.
        skip_impossible: Leave cells that make no sense empty instead of refusing the
            sweep.
        trajectories: Keep what there is after each round, too.
        keep: Names of what else to keep of who took part.
        best_over: The axis whose best value is shown for each point of the others, and
            by which quantity; None for none.
        source: Text of the file.
    """

    kind: Kind
    base: Any
    axes: tuple[Axis, ...]
    out: pathlib.Path
    overwrite: bool = False
    reuse: pathlib.Path | None = None
    skip_impossible: bool = False
    trajectories: bool = False
    keep: tuple[str, ...] | None = None
    best_over: dict[str, Any] | None = None
    source: str = ""

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the extra variables that points keep."""
        return (*(["trajectories"] if self.trajectories else []), *(self.keep or ()))

    @property
    def shape(self) -> tuple[int, ...]:
        """Places on each axis."""
        return tuple(len(axis.values) for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @property
    def config(self) -> SweepConfig:
        """The studied settings as plain values."""
        axes = [
            {"name": axis.name, "fields": axis.fields, "values": axis.values}
            for axis in self.axes
        ]
        return SweepConfig(
            seed=self.base.seed,
            out=self.out,
            overwrite=self.overwrite,
            swept=self.kind.name,
            base=studied(to_dict(self.base)),
            axes=tuple(json.loads(json.dumps(axes, default=str))),
            skip_impossible=self.skip_impossible,
            trajectories=self.trajectories,
            keep=self.keep,
            best_over=self.best_over,
        )

    def settings_at(
        self, index: tuple[int, ...], tables: dict[tuple[Any, ...], Any] | None = None
    ) -> Any:
        """Return the settings of a cell.

        Args:
            index: Its place on each axis.
            tables: Those of other cells, which share those that do not change between
                them.
        """
        tables, changed = {} if tables is None else tables, {}
        # tables that no axis changes are shared by all cells; the others by those cells
        # that have the same places on the axes that change them
        for name, axes in self._changing.items():
            place = name, *(index[k] for k in axes)
            if place not in tables:
                settings = self.base
                for field, value in self.changes(index):
                    if field.partition(".")[0] == name:
                        settings = _replaced(settings, field.split("."), value)
                tables[place] = getattr(settings, name)
            changed[name] = tables[place]
        return dataclasses.replace(self.base, **changed)

    @functools.cached_property
    def _changing(self) -> dict[str, list[int]]:
        """Settings and tables that axes change, with the numbers of these axes."""
        changing: dict[str, list[int]] = {}
        for k, axis in enumerate(self.axes):
            for name in dict.fromkeys(field.partition(".")[0] for field in axis.fields):
                changing.setdefault(name, []).append(k)
        return changing

    def changes(self, index: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
        """Go through the fields that the axes set, with their values at a cell."""
        for axis, place in zip(self.axes, index, strict=True):
            yield from zip(axis.fields, axis.values[place], strict=True)

    def points(self) -> Iterator[Point]:
        """Go through the cells, the last axis fastest."""
        cached: dict[tuple[Any, ...], Any] = {}
        checks, read = (
            (each_once(check_types), each_once(check_parts)),
            each_once(as_read),
        )
        for index in itertools.product(*map(range, self.shape)):
            try:
                # checks see each table once, however many cells share it
                config = self.kind.resolve(self.settings_at(index, cached), checks)
                tables = {
                    name: read(table)
                    for name, table in own_and_tables(config)[1].items()
                }
                yield Point(
                    index, dataclasses.replace(config, **tables) if tables else config
                )
            except ConfigurationError as error:
                yield Point(index, None, str(error))

    def labels(self, axis: Axis) -> dict[str, list[Any]]:
        """Return each field's values along an axis as coordinates: numbers or text."""
        return {
            field: _coordinate([self._label(field, row[k]) for row in axis.values])
            for k, field in enumerate(axis.fields)
        }

    def named(self, index: tuple[int, ...]) -> str:
        """Return a cell's place in words."""
        return ", ".join(
            f"{field.rpartition('.')[2]} = {self._label(field, value)}"
            for field, value in self.changes(index)
        )

    def among(self, indices: Sequence[tuple[int, ...]], but: int | None = None) -> str:
        """Describe the places of some cells on the axes that they do not cover.

        `but`: number of an axis that is left out.
        """
        words = []
        for k, places in enumerate(zip(*indices, strict=True)):
            axis, chosen = self.axes[k], sorted(set(places))
            if len(chosen) < len(axis.values) and k != but:
                names = " with ".join(field.rpartition(".")[2] for field in axis.fields)
                labels = [
                    " with ".join(
                        str(self._label(field, value))
                        for field, value in zip(
                            axis.fields, axis.values[place], strict=True
                        )
                    )
                    for place in chosen[:6]
                ]
                words.append(
                    f"{names} = {' or '.join(labels)}{' or ...' * (len(chosen) > 6)}"
                )
        return ", ".join(words)

    def _label(self, field: str, value: Any) -> Any:
        label = self.kind.label(field, value)
        if label is not None:
            return label
        if isinstance(value, tuple):
            return value[0] if len(value) == 1 else ", ".join(map(str, value))
        return str(value) if isinstance(value, pathlib.Path) else value


def load_sweep(path: str | pathlib.Path) -> Sweep:
    """Read a sweep from a TOML file.

    Args:
        path: The file.

    Raises:
        ConfigurationError: If the file is missing or no TOML, or as `parse_sweep`.
    """
    path = pathlib.Path(path)
    require(path.is_file(), "study", "must be an existing TOML file", str(path))
    return parse_sweep(read_toml(path, "study"))


def parse_sweep(text: str) -> Sweep:
    """Read a sweep from the text of a TOML file; as `sweep_of` its content."""
    return dataclasses.replace(sweep_of(parse_toml(text, "study")), source=text)


def sweep_of(content: Mapping[str, Any]) -> Sweep:
    """Return the sweep that plain values describe, as a TOML file holds them.

    Args:
        content: Settings of one command (named by `command`, `"simulate"` when left
            out), `grid` and `zip` tables of lists, `skip_impossible`, `trajectories`,
            `keep` and `best_over`.

    Raises:
        ConfigurationError: For an unknown command or field (by its path in the file,
            with the nearest known one), a value of another type, an empty or repeated
            axis, or zipped lists of different lengths.
    """
    rest = copy.deepcopy(dict(content))  # fields are taken out as they are read
    name = rest.pop("command", "simulate")
    kind = swept_kind(name)
    flags = {}
    for flag in ("skip_impossible", "trajectories"):
        flags[flag] = rest.pop(flag, False)
        require(
            isinstance(flags[flag], bool), flag, "must be true or false", flags[flag]
        )
    keep = rest.pop("keep", [])
    good = isinstance(keep, list) and all(isinstance(one, str) for one in keep)
    require(good, "keep", "must be a list of names", keep)
    best_over = rest.pop("best_over", None)
    grid, zips = rest.pop("grid", {}), rest.pop("zip", [])
    require(isinstance(grid, dict), "grid", "must be a table of lists", grid)
    one_table = isinstance(zips, dict)
    zips = [zips] if one_table else zips
    rule = "must be tables of lists: [[zip]]"
    good = isinstance(zips, list) and all(isinstance(one, dict) for one in zips)
    require(good, "zip", rule, zips)
    fields = _flat_fields(kind.settings, grid, "grid")
    rule = "must not be an axis: all points of a sweep keep the same"
    require("keep" not in fields, "grid.keep", rule)
    # a list of schemes in the base is an axis where a point has one scheme
    swept = {*fields, *(name for table in zips for name in table)}
    implied = kind.implied_axes(rest, swept)
    axes = [
        _axis(kind, "grid", {name: values})
        for name, values in (implied | fields).items()
    ]
    for i, table in enumerate(zips):
        where = "zip" if one_table else f"zip[{i}]"
        title = table.pop("name", None)
        axes.append(
            _axis(kind, where, _flat_fields(kind.settings, table, where), title)
        )
    check_axes(axes)
    if best_over is not None:
        _check_best_over(best_over, axes)
    _check_tables(kind, rest)
    base: Any = from_dict(kind.settings, rest, "")
    tracked = getattr(base, "track", ())
    rule = (
        "must not be set for a sweep: its store has each point's results and, by "
        "`trajectories`"
    )
    require(not tracked, "track", f"{rule}, paths", tracked)
    out = rest.get("out")
    return Sweep(
        kind=kind,
        base=base,
        axes=tuple(axes),
        out=pathlib.Path("results/sweep") if out is None else base.out,
        overwrite=bool(getattr(base, "overwrite", False)),
        keep=tuple(dict.fromkeys(keep)) or None,
        best_over=best_over,
        **flags,
    )


def _check_tables(kind: Kind, content: Mapping[str, Any]) -> None:
    """Raise for a table that a sweep has not, such as `[base]`."""
    hints = typing.get_type_hints(kind.settings)
    tables = [name for name in hints if dataclasses.is_dataclass(hints[name])]
    for name, value in content.items():
        if isinstance(value, dict) and name not in hints:
            known = (*tables, "grid", "zip", "best_over")
            raise ConfigurationError(
                f"`{name}` must be a table of a sweep of {kind.name}; "
                f"{nearest(name, known)}; settings outside of these tables stand at "
                "the top of the file"
            )


def _check_best_over(best_over: Any, axes: list[Axis]) -> None:
    """Raise unless `best_over` names an axis; its quantity is checked with the points."""
    rule = "must be a table: { axis = ..., by = ..., least = true or false }"
    require(isinstance(best_over, dict) and "axis" in best_over, "best_over", rule)
    for name in best_over:
        check_known(name, "best_over", ("axis", "by", "least"), "a field of best_over")
    names = [axis.name for axis in axes]
    fields = [field for axis in axes for field in axis.fields]
    known = (*names, *fields)
    check_known(best_over["axis"], "best_over.axis", known, "an axis of the sweep")
    is_seed = best_over["axis"] == "seed"
    require(not is_seed, "best_over.axis", "must not be an axis of seeds", "seed")
    is_flag = isinstance(best_over.get("least", False), bool)
    rule = "must be true or false"
    require(is_flag, "best_over.least", rule, best_over.get("least"))


def _flat_fields(
    cls: type, table: dict[str, Any], where: str, prefix: str = ""
) -> dict[str, Any]:
    """Return the lists of a table by dotted field.

    Both ways to write a dotted name are taken.
    """
    fields: dict[str, Any] = {}
    for key, value in table.items():
        dotted = f"{prefix}{key}"
        hint = hint_of(cls, dotted, where)
        if dataclasses.is_dataclass(hint):
            first = dataclasses.fields(hint)[0].name
            rule = f"must name one of its fields, as in {dotted}.{first}"
            require(isinstance(value, dict), f"{where}.{dotted}", rule)
            fields |= _flat_fields(cls, value, where, f"{dotted}.")
        else:
            fields[dotted] = value
    return fields


def hint_of(cls: type, dotted: str, where: str) -> Any:
    """Return the type of a field, or say which one may be meant."""
    hints = dict(hints_of(cls))
    if dotted in hints:
        return hints[dotted]
    names = [name for name, hint in hints.items() if not dataclasses.is_dataclass(hint)]
    # the same last part in another table, before words that look alike
    close = [
        name for name in names if name.rpartition(".")[2] == dotted.rpartition(".")[2]
    ]
    close = close or difflib.get_close_matches(dotted, names, n=1, cutoff=0.5)
    advice = (
        f"; did you mean {close[0]!r}?" if close else f" (known: {', '.join(names)})"
    )
    raise ConfigurationError(f"`{where}.{dotted}` is not a field{advice}")


def hints_of(cls: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Go through all fields by dotted name, with their types.

    Tables, and what is in them.
    """
    for name, hint in typing.get_type_hints(cls).items():
        yield f"{prefix}{name}", hint
        if dataclasses.is_dataclass(hint):
            yield from hints_of(hint, f"{prefix}{name}.")


def _axis(
    kind: Kind, where: str, lists: dict[str, Any], title: str | None = None
) -> Axis:
    """Return an axis of fields that change together."""
    require(len(lists) > 0, where, "must name at least one field")
    columns = {}
    for field, values in lists.items():
        path = f"{where}.{field}"
        alone = ("out", "json", "overwrite", "resume", "track")
        require(field not in alone, path, "cannot be an axis")
        hint = hint_of(kind.settings, field, where)
        items = _expanded(values, path)
        rule = "must be a list of at least one value, or a range"
        require(isinstance(items, list) and len(items) > 0, path, rule, values)
        columns[field] = [
            read_field(hint, item, f"{path}[{i}]") for i, item in enumerate(items)
        ]
        for i, item in enumerate(columns[field]):
            _check_written(field, item, f"{path}[{i}]")
    lengths = {field: len(column) for field, column in columns.items()}
    rule = "must hold lists of one length"
    require(len(set(lengths.values())) == 1, where, rule, lengths)
    rows = tuple(zip(*columns.values(), strict=True))
    first = next(iter(columns))
    if where == "grid":
        repeated = len(set(rows)) < len(rows)
        require(
            not repeated,
            f"{where}.{first}",
            "must not hold a value twice",
            lists[first],
        )
    require(
        title is None or isinstance(title, str), f"{where}.name", "must be text", title
    )
    return Axis(title or first.rpartition(".")[2], tuple(columns), rows)


def _check_written(field: str, value: Any, path: str) -> None:
    """Raise if a member of a family is ill-written, whatever the other axes are.

    A bare name may lack parameters, which other axes can give.
    """
    parse = _WRITTEN.get(field)
    if parse is None or not isinstance(value, str):
        return
    if field == "scheme" and value in SCHEMES and SCHEMES[value].fields:
        return
    try:
        parse(value)
    except ConfigurationError as error:
        raise ConfigurationError(f"`{path}`: {error}") from None


def _expanded(values: Any, path: str) -> Any:
    """Return a list; a table such as {linspace = [0.1, 0.5, 5]} becomes one."""
    if not isinstance(values, dict):
        return values
    require(
        len(values) == 1, path, f"must be a list or one of {', '.join(_RANGES)}", values
    )
    ((name, numbers),) = values.items()
    check_known(name, path, _RANGES, "a list or a range")
    least, most, form = _RANGES[name]
    good = isinstance(numbers, list) and least <= len(numbers) <= most
    good = good and all(
        is_number(number) and math.isfinite(number) for number in numbers
    )
    require(good, f"{path}.{name}", f"must be {form}", numbers)
    if name == "range":
        whole = all(isinstance(number, int) for number in numbers)
        require(
            whole and numbers[2:] != [0],
            f"{path}.range",
            f"must be whole: {form}",
            numbers,
        )
        made = range(*numbers)
        # one of very many has no length
        _check_size(path, (made[-1] - made[0]) // made.step + 1 if made else 0)
        return list(made)
    count = numbers[2]
    require(
        isinstance(count, int) and count >= 1,
        f"{path}.{name}",
        f"must be {form}",
        numbers,
    )
    _check_size(path, count)
    positive = name == "linspace" or min(numbers[:2]) > 0
    require(positive, f"{path}.{name}", "must have positive ends", numbers)
    import numpy as np  # --help must not wait for it

    spaced = (np.linspace if name == "linspace" else np.geomspace)(*numbers)
    return [
        float(f"{number:.12g}") for number in spaced
    ]  # 0.3, not 0.30000000000000004


def read_field(hint: Any, value: Any, path: str) -> Any:
    """Return a value of a field's type.

    A single one stands for a list of it, 1.0 for 1.
    """
    inner = without_none(hint)
    if typing.get_origin(inner) is tuple and not isinstance(value, list):
        value = [value]
    # TOML's linspace gives floats
    if inner is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    return read_value(hint, value, path)


def check_axes(axes: list[Axis]) -> None:
    """Raise for axes that share a field or a name, or have too many cells."""
    require(
        len(axes) > 0,
        "grid",
        "must name at least one field, or there must be a [[zip]]",
    )
    fields = list(itertools.chain.from_iterable(axis.fields for axis in axes))
    for field in fields:
        require(
            fields.count(field) == 1,
            "grid",
            "must not change a field on two axes",
            field,
        )
    names = [axis.name for axis in axes]
    for name in names:
        rule = "must differ from those of other axes; a [[zip]] takes a `name`"
        require(names.count(name) == 1, "name", rule, name)
        rule = (
            "must begin with a letter or digit, and hold only these, _, -, . and spaces"
        )
        require(re.fullmatch(r"\w[\w .-]*", name) is not None, "name", rule, name)
        taken = ("trial", "round", "client", "row", "done", "seconds")
        require(name not in taken, "name", f"must be none of {taken}", name)
    _check_size("grid", math.prod(len(axis.values) for axis in axes))


def _check_size(where: str, size: int) -> None:
    require(
        size <= _MOST_POINTS, where, f"must have at most {_MOST_POINTS} points", size
    )


def _replaced(settings: Any, path: list[str], value: Any) -> Any:
    if len(path) > 1:
        value = _replaced(getattr(settings, path[0]), path[1:], value)
    return dataclasses.replace(settings, **{path[0]: value})


def _coordinate(values: list[Any]) -> list[Any]:
    """Return labels of one type: numbers where all are, else text."""
    if all(isinstance(value, bool) for value in values):
        return [str(value).lower() for value in values]
    if all(map(is_number, values)):
        return values
    return ["none" if value is None else str(value) for value in values]
