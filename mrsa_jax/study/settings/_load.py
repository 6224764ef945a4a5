"""Configurations from and to TOML files; nothing here imports JAX."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from mrsa_jax._core.flags import check_ranges, renamed
from mrsa_watch._base.errors import ConfigurationError, check_known, nearest, require
from mrsa_watch._base.files import user_path
from mrsa_watch._base.html import plain_settings
from mrsa_watch._base.untrusted import read_bytes

ConfigT = TypeVar("ConfigT")
FoundT = TypeVar("FoundT")
_MOST_BYTES = 2**24
_MOST_DEPTH = 20
_MOST_KEY = 100
_MOST_VALUES = 10**6
_hints: Any = functools.cache(typing.get_type_hints)  # each point of a sweep is checked


def to_dict(config: Any) -> dict[str, Any]:
    """Return a configuration as plain values of JSON and TOML, without None.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.study.to_dict(mj.study.DemoConfig())["population"]["num_clients"]
        120
    """
    plain: dict[str, Any] = _plain(plain_settings(config))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    return list(value) if isinstance(value, tuple) else value


def own_and_tables(config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the plain values of a configuration without None, and its tables.

    Examples:
        >>> from mrsa_jax.study import DemoConfig
        >>> own, tables = own_and_tables(DemoConfig())
        >>> own["rounds"], tables["population"].num_clients
        (150, 120)
    """
    values, tables = {}, {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            tables[field.name] = value
        elif value is not None:
            values[field.name] = _plain(
                str(value) if isinstance(value, pathlib.Path) else value
            )
    return values, tables


def each_once(function: Callable[[Any], FoundT]) -> Callable[[Any], FoundT]:
    """Return a function of tables of settings that evaluates each object once.

    Points of a sweep share the tables that their axes do not change. Equal tables are
    not taken for each other: 1, 1.0 and True are equal, and not all of them are counts.
    """
    results: dict[int, tuple[Any, FoundT]] = {}

    def once(table: Any) -> FoundT:
        if id(table) not in results:
            # the table is kept, so that no other gets its id
            results[id(table)] = table, function(table)
        return results[id(table)][1]

    return once


def to_toml(config: Any) -> str:
    """Return a configuration as the text of a TOML file that `load_config` reads back.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.study.to_toml(mj.study.SimulateConfig(rounds=7)).splitlines()[2]
        'rounds = 7'
    """
    tables = [to_dict(config)]
    lines = [_line(k, v) for k, v in tables[0].items() if not isinstance(v, dict)]
    for name, table in tables[0].items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(_line(k, v) for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _line(name: str, value: Any) -> str:
    # strings, numbers, booleans and lists of them are written alike in JSON and in
    # TOML, except a character that JSON leaves as it is
    text = json.dumps(value).replace("\x7f", "\\u007f")
    return f"{name} = {text}"


def load_config(cls: type[ConfigT], path: str | pathlib.Path) -> ConfigT:
    """Read a configuration from a TOML file; missing fields keep their defaults.

    Args:
        cls: Settings of a command, such as `SimulateConfig`.
        path: The file.

    Raises:
        ConfigurationError: If the file is missing or no TOML, has an unknown field
            (named with its path and the nearest known one), or gives a value of the
            wrong type.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "study.toml")
        >>> _ = file.write_text("population.cohort_size = 6")
        >>> config = mj.study.load_config(mj.study.SimulateConfig, file)
        >>> config.population.cohort_size, config.population.num_clients
        (6, 120)
    """
    path = pathlib.Path(path)
    require(path.is_file(), "config", "must be an existing TOML file", str(path))
    return from_dict(cls, parse_toml(read_toml(path, "config"), "config", path), "")


def read_toml(path: pathlib.Path, argument: str) -> str:
    """Return the text of a file of settings; raise an error that names the argument."""
    try:
        return read_bytes(path, _MOST_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"`{argument}` must be valid TOML; {path}: {error}"
        ) from error


def parse_toml(
    text: str, argument: str, path: pathlib.Path | None = None
) -> dict[str, Any]:
    """Return the content of TOML, whose values messages can quote.

    Args:
        text: The TOML.
        argument: Its name in messages.
        path: Its file, if it is from one.

    Raises:
        ConfigurationError: If it is no TOML, is nested too deeply, or holds an integer
            beyond 64 bits or text with a NUL.
    """
    where = "" if path is None else f"{path}: "
    rule = f"`{argument}` must be valid TOML; {where}"
    try:
        content = tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        words = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigurationError(f"{rule}{words}") from error
    below: list[tuple[Any, str, int]] = [(content, "", 0)]
    while below:
        value, dotted, depth = below.pop()
        if depth > _MOST_DEPTH:
            raise ConfigurationError(f"{rule}nested too deeply")
        if isinstance(value, dict):
            for key, item in value.items():
                is_short = len(key) <= _MOST_KEY
                require(is_short, dotted or argument, "must have shorter names", key)
                below.append((key, dotted or key, depth + 1))
                below.append((item, _below(dotted, key), depth + 1))
        elif isinstance(value, list):
            below += [
                (item, f"{dotted}[{i}]", depth + 1) for i, item in enumerate(value)
            ]
        elif isinstance(value, str):
            require("\0" not in value, dotted, "must hold no NUL", value)
        elif isinstance(value, int):
            fits = -(2**63) <= value < 2**63
            require(fits, dotted, "must be an integer of 64 bits", value)
    return content


def from_dict(cls: type[ConfigT], content: dict[str, Any], where: str) -> ConfigT:
    """Build a configuration from plain values; `where` is the path of its table."""
    return cls(**_fields(cls, content, where))


def _fields(cls: type[Any], content: dict[str, Any], where: str) -> dict[str, Any]:
    hints = _hints(cls)
    fields = {flag: field for field, flag in renamed(cls).items()}
    values = {}
    for key, value in content.items():
        name, dotted = fields.get(key, key), f"{where}{key}"
        if name not in hints:
            raise ConfigurationError(
                f"`{dotted}` is not a field; {nearest(name, hints)}"
            )
        # a table whose defaults here are not those of its type
        usual = getattr(cls, name, None)
        if isinstance(value, dict) and dataclasses.is_dataclass(usual):
            assert not isinstance(usual, type)
            changes = _fields(type(usual), value, f"{dotted}.")
            values[name] = dataclasses.replace(usual, **changes)
        else:
            values[name] = read_value(hints[name], value, dotted)
    return values


def without_none(hint: Any) -> Any:
    """Return the type of a setting without None."""
    return kind_for(hint, None)


def kind_for(hint: Any, value: Any) -> Any:
    """Return the type of a setting that a value must have: names, or the first one.

    Examples:
        >>> kind_for(int | Literal["majority"] | None, 3)
        <class 'int'>
    """
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint
    inner = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    names = [kind for kind in inner if typing.get_origin(kind) is Literal]
    return names[0] if isinstance(value, str) and names else inner[0]


def check_types(config: Any, check_table: Callable[[Any], None] | None = None) -> None:
    """Check the types of the fields of a configuration, and of its tables.

    Args:
        config: To check.
        check_table: Checks a table; by default this function does.

    Raises:
        ConfigurationError: Naming the first field that does not.

    Examples:
        >>> from mrsa_jax.study import SimulateConfig
        >>> check_types(SimulateConfig(rounds=5))
    """
    for name, hint in _hints(type(config)).items():
        _check_type(hint, getattr(config, name), name, check_table or check_types)
    check_ranges(config)


def _check_type(
    hint: Any, value: Any, name: str, check_table: Callable[[Any], None]
) -> None:
    inner = kind_for(hint, value)
    if inner is not hint and value is None:
        return
    hint, origin = inner, typing.get_origin(inner)
    if origin is Literal:
        check_known(value, name, typing.get_args(hint), "a known name")
    elif origin is tuple:
        require(isinstance(value, tuple | list), name, "must be a tuple", value)
        for item in value:
            _check_type(typing.get_args(hint)[0], item, name, check_table)
    elif dataclasses.is_dataclass(hint):
        expected: Any = hint
        require(
            isinstance(value, expected), name, f"must be a {expected.__name__}", value
        )
        check_table(value)
    elif hint is pathlib.Path:
        require(isinstance(value, str | os.PathLike), name, "must be a path", value)
        is_plain = not os.fspath(value).startswith("~")
        require(
            is_plain, name, "must not begin with ~ (pathlib.Path.expanduser)", value
        )
    else:
        is_bool = isinstance(value, bool) and hint is not bool
        fits = isinstance(value, float | int if hint is float else hint) and not is_bool
        require(fits, name, f"must be of type {hint.__name__}", value)


def plain_values(value: Any, path: str = "") -> Any:
    """Return settings from Python as a TOML file would hold them, exactly.

    Objects stay. Arrays, series, tuples and ranges become lists, their numbers
    Python's, and paths text.

    Args:
        value: Settings, or a part of them.
        path: Their path, for messages.

    Raises:
        ConfigurationError: For masked entries, and ranges of more values than a sweep
            may have.

    Examples:
        >>> import numpy as np
        >>> rates = np.array([0.1, 0.5])
        >>> plain_values({"rounds": np.int64(9), "rates": rates, "t": (1, 2)})
        {'rounds': 9, 'rates': [0.1, 0.5], 't': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {
            name: plain_values(item, _below(path, name)) for name, item in value.items()
        }
    if isinstance(value, range):
        # `len` fails for a range of very many values
        count = (value.stop - value.start) // value.step
        rule = f"must have at most {_MOST_VALUES} values"
        require(count <= _MOST_VALUES, path, rule, value)
        return list(value)
    if type(value) in (list, tuple):
        return [plain_values(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "dtype") and hasattr(value, "__array__"):
        return _plain_array(value, path)
    return value


def with_plain_values(config: ConfigT) -> ConfigT:
    """Return settings with Python's numbers and lists, also in their tables."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, config)):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            table = with_plain_values(value)
            changes |= {field.name: table} if table is not value else {}
        elif not _is_plain(value):
            plain = plain_values(value, field.name)
            changes[field.name] = tuple(plain) if isinstance(plain, list) else plain
    return (
        dataclasses.replace(typing.cast(Any, config), **changes) if changes else config
    )


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    is_array = hasattr(value, "dtype") and hasattr(value, "__array__")
    return not is_array and not isinstance(value, range)


def _below(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


def _plain_array(value: Any, path: str) -> Any:
    import numpy as np  # --help must not wait for it

    try:
        array = np.ma.asanyarray(value)
    except (TypeError, ValueError):
        return value  # JAX's keys and traced values have no numbers to show
    require(not np.ma.is_masked(array), path, "must have no masked entries", value)
    return np.asarray(array).tolist()


def read_value(hint: Any, value: Any, dotted: str) -> Any:
    """Convert a plain value to the type of its field; `dotted` is its path."""
    hint = kind_for(hint, value)
    if dataclasses.is_dataclass(hint):
        require(isinstance(value, dict), dotted, "must be a table", value)
        return from_dict(typing.cast(type, hint), value, f"{dotted}.")
    origin = typing.get_origin(hint)
    if origin is Literal:
        return check_known(value, dotted, typing.get_args(hint), "a known name")
    if origin is tuple:
        require(isinstance(value, list), dotted, "must be a list", value)
        inner_hint = typing.get_args(hint)[0]
        return tuple(
            read_value(inner_hint, item, f"{dotted}[{i}]")
            for i, item in enumerate(value)
        )
    if hint is pathlib.Path:
        require(isinstance(value, str), dotted, "must be a path in quotes", value)
        return user_path(value, dotted)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    require(type(value) is hint, dotted, f"must be of type {hint.__name__}", value)
    return value
