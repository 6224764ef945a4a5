"""Small pieces of HTML that notebooks and reports share: escaped and bounded.

What is shown in a notebook carries its few styles in its own tags and no colours, so
that it reads on a light and on a dark page. Nothing here imports NumPy or JAX.
"""

from __future__ import annotations

import dataclasses
import html
import itertools
import math
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, dataclass_transform

from mrsa_watch._base.untrusted import printable
from mrsa_watch._base.values import by_value

_Result = TypeVar("_Result")

_MOST_CHARACTERS = 120
_MOST_ROWS = 40
_MOST_SETTINGS = 30  # that are shown without being asked for
_MOST_BRIEF = 400
# a tuple of more values than this shows only the first few
_MANY = 8
_FEW = 6
_MOST_LOOKED_AT = 2**20
_SECRETS = frozenset({"key_material", "self_seed", "pair_seed"})
_CELL = "text-align:left;vertical-align:top;padding:.15em .8em .15em 0"


class Markup(str):
    """Text that is HTML already, and so is not escaped again."""

    def __html__(self) -> str:
        """Return it as it is, to templates that escape what has no such method."""
        return str(self)


def tidy(value: Any) -> str:
    """Return text or HTML as HTML.

    Everything is escaped but `Markup`, control characters too.

    Examples:
        >>> tidy("a < b"), tidy(Markup("<b>a</b>"))
        ('a &lt; b', '<b>a</b>')
    """
    if isinstance(value, Markup):
        return str(value)
    return html.escape(printable(value, "\n\t"))


def shown(value: Any, most: int = _MOST_CHARACTERS) -> str:
    """Return a value as a short text: arrays by type and shape, long texts cut.

    Examples:
        >>> shown(None), shown(True), shown([0.1, 0.2]), shown(1234567), shown(range(3))
        ('none', 'yes', '0.1, 0.2', '1,234,567', '0, 1, 2')
        >>> shown("x" * 200, most=10)
        'xxxxxxx...'
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{int(value):,}" if abs(value) >= 10**5 else str(int(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array(value, most)
    if isinstance(value, Mapping):
        items = _first(value.items())
        text = ", ".join(f"{name}: {shown(entry)}" for name, entry in items)
    elif isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
        text = str(value)
    else:
        text = ", ".join(map(shown, _first(value))) or "none"
    return _cut(text, most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def brief(value: Any) -> str:
    """Return a dataclass or named tuple as Python writes it, but bounded in length.

    For `__repr__ = brief` in the class: nothing of an array is printed but its type,
    its shape and its least and largest numbers, of numbers without axes themselves; of
    secrets not even these.

    Examples:
        >>> import numpy as np
        >>> @dataclasses.dataclass(frozen=True)
        ... class Some:
        ...     size: object
        ...     rows: tuple[int, ...]
        ...     __repr__ = brief
        >>> Some(np.int32(3), (1, 2))
        Some(size=3, rows=(1, 2))
        >>> Some(np.linspace(0.1, 0.5, 200), tuple(range(1000)))
        Some(size=float64[200] in [0.1, 0.5], rows=(0, 1, 2, 3, 4, 5, ... 1,000 in all))
    """
    parts = (f"{name}={text}" for name, text in _fields(value))
    return f"{type(value).__name__}({', '.join(parts)})"


def told(value: Any) -> str:
    """Return the description of an object in a line.

    Its `_rows()`, else title and sentences.
    For `__repr__ = told` in the class.

    Examples:
        >>> class Found:
        ...     __repr__ = told
        ...     def _rows(self):
        ...         return [("exposed clients", "3"), ("weak T", "1", "certified")]
        >>> Found()
        Found(exposed clients: 3; weak T: 1, certified)
    """
    parts = [f"{name}: {', '.join(map(str, cells))}" for name, *cells in value._rows()]
    if parts:
        parts += getattr(value, "notes", ())
    else:
        parts = [value.title, *value.sentences]
    text = _cut(printable("; ".join(parts)), _MOST_BRIEF)
    return f"{type(value).__name__}({text})"


@dataclass_transform(
    frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,)
)
def finding(cls: type[_Result]) -> type[_Result]:
    """Make a frozen dataclass print as `told`, or as `brief` where it has no `_rows`.

    It compares by value.
    """
    cls.__repr__ = told if hasattr(cls, "_rows") else brief  # type: ignore[method-assign]
    return dataclasses.dataclass(frozen=True, eq=False, repr=False)(by_value(cls))


def brief_tuple(cls: type[_Result]) -> type[_Result]:
    """Make a named tuple print as `brief`, and as `telling` in a notebook."""
    cls.__repr__ = brief  # type: ignore[method-assign]
    cls._repr_html_ = telling  # type: ignore[attr-defined]
    return cls


def telling(value: Any) -> str:
    """Return the same as a table for a notebook, or else the fields of an object.

    For `_repr_html_ = telling` in the class. Its title, sentences or notes stand around
    the table.

    Examples:
        >>> @dataclasses.dataclass
        ... class Some:
        ...     size: int
        >>> "size" in telling(Some(3)), "<strong>Some</strong>" in telling(Some(3))
        (True, True)
    """
    words: Any = getattr(value, "sentences", getattr(value, "notes", ()))
    words = words() if callable(words) else words
    lines = "".join(f"<p>{tidy(shown(each, _MOST_BRIEF))}</p>" for each in words)
    rows = value._rows() if hasattr(value, "_rows") else _fields(value)
    title = repr(value) if hasattr(value, "typed") else type(value).__name__
    return card(getattr(value, "title", title), rows, note=Markup(lines))


def _fields(value: Any) -> list[tuple[str, str]]:
    """Return names and short texts of the fields of a dataclass or a named tuple."""
    names = getattr(value, "_fields", None)
    if names is None:
        names = [field.name for field in dataclasses.fields(value) if field.repr]
    return [(name, _brief(getattr(value, name), name in _SECRETS)) for name in names]


def _brief(value: Any, is_secret: bool = False) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        kind = f"{value.dtype}[{', '.join(map(str, value.shape))}]"
        return kind if is_secret else _with_range(value, kind)
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        is_long = len(value) > _MANY
        parts = list(map(_brief, value[:_FEW] if is_long else value))
        if is_long:
            parts.append(f"... {len(value):,} in all")
        text = ", ".join(parts)
        if isinstance(value, list):
            return f"[{text}]"
        return f"({text},)" if len(value) == 1 else f"({text})"
    if is_secret and value is not None:
        return "..."
    return _cut(repr(value), _MOST_BRIEF)


def _with_range(value: Any, kind: str) -> str:
    """Return an array by its numbers, if they are known and few enough to look at."""
    try:
        jax = sys.modules.get("jax")
        is_traced = jax is not None and isinstance(value, jax.core.Tracer)
        if is_traced or value.size > _MOST_LOOKED_AT:
            return kind
        array = sys.modules["numpy"].asarray(value)
        letter = array.dtype.kind
        if letter not in "biuf":
            return kind
        if not array.shape:
            return f"{array.item():.7g}" if letter == "f" else str(array.item())
        if letter == "b":
            return f"{kind}, {int(array.sum()):,} true"
        if not array.size:
            return kind
        return f"{kind} in [{array.min():.6g}, {array.max():.6g}]"
    # a key, an array that was given away: what is shown must not fail
    except Exception:
        return kind


def number(value: Any, digits: int = 4) -> str:
    """Return a number as tables show it: whole, with few digits, or "-" for none.

    Examples:
        >>> values = 0.30000001, 12.0, 1234567, 0.000123456, 2e-9, -0.0
        >>> [number(value) for value in values]
        ['0.3', '12', '1,234,567', '0.0001235', '2e-9', '0']
        >>> values = float("nan"), float("-inf"), 98765.4321, 1.5e20
        >>> [number(value) for value in values]
        ['-', '-inf', '98,765', '1.5e20']
    """
    if value is None or value != value:
        return "-"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(value)
    if size < 10**15 and (value == int(value) or size >= 10**digits - 0.5):
        whole = round(value)
        return f"{whole:,}" if abs(whole) >= 10**4 else str(whole)
    if 1e-4 <= size < 10**digits:
        text = f"{value:.{digits - 1 - math.floor(math.log10(size))}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    head, _, power = f"{value:.{digits - 1}e}".partition("e")
    return f"{head.rstrip('0').rstrip('.')}e{int(power)}"


def counted(count: Any, noun: str) -> str:
    """Return a number of things in words, given as a number or as text.

    Examples:
        >>> counted(1, "point"), counted(0, "cell"), counted("2 to 4", "client")
        ('1 point', '0 cells', '2 to 4 clients')
    """
    return f"{count} {noun}{'' if str(count) == '1' else 's'}"


def hidden_words(size: float | None) -> str:
    """Return the size of a sum that hides a client equally well: "1" if exposed.

    None and nan are values that floats cannot decide.

    Examples:
        >>> [hidden_words(size) for size in (1.0, 12.0, 1.0004, 2.7441)]
        ['1', '12.00', '1.0004', '2.74']
        >>> hidden_words(1.0 + 2**-52), hidden_words(10001.0)
        ('just above 1', '10,001')
    """
    if size is None or math.isnan(size):
        return "a number not known"
    excess = size - 1.0
    if excess == 0.0:
        return "1"
    if excess < 1e-9:
        return "just above 1"
    digits = max(2, -math.floor(math.log10(excess)))
    return f"{size:.{digits}f}" if size < 1000 else f"{size:,.0f}"


def _first(values: Iterable[Any]) -> list[Any]:
    """Return the first values only: there may be very many, and no more are shown."""
    return list(itertools.islice(values, _MOST_CHARACTERS))


def _array(value: Any, most: int) -> str:
    shape = ", ".join(map(str, value.shape))
    if not value.shape:
        return shown(value.item(), most) if hasattr(value, "item") else str(value)
    return f"{value.dtype}[{shape}]"


def table(
    rows: Iterable[Sequence[Any]],
    headings: Sequence[Any] = (),
    *,
    most: int = _MOST_ROWS,
) -> str:
    """Return a table with its styles in its tags.

    Cells are escaped unless they are `Markup`.

    Args:
        rows: Cells; a row of one cell is a heading of those below it.
        headings: Of the columns; none when left out.
        most: Rows that are shown; how many are left out stands below them.

    Examples:
        >>> "<td" in table([("a", 1)]) and "&lt;i&gt;" in table([("<i>", 1)])
        True
    """
    listed = list(rows)
    width = max(map(len, listed), default=1)
    head = "".join(
        f'<th scope="col" style="{_CELL}">{tidy(cell)}</th>' for cell in headings
    )
    body = "".join(_row(row, width) for row in listed[:most])
    if len(listed) > most:
        body += _row((f"... and {len(listed) - most} more",), width)
    thead = f"<thead><tr>{head}</tr></thead>" if headings else ""
    style = "border-collapse:collapse"
    return f'<table style="{style}">{thead}<tbody>{body}</tbody></table>'


def _row(row: Sequence[Any], width: int) -> str:
    if len(row) == 1 and width > 1:
        style = f"{_CELL};padding-top:.5em"
        return f'<tr><th colspan="{width}" style="{style}">{tidy(row[0])}</th></tr>'
    name, *values = row
    cells = "".join(f'<td style="{_CELL}">{tidy(cell)}</td>' for cell in values)
    return (
        f'<tr><th scope="row" style="{_CELL};font-weight:normal">'
        f"{tidy(name)}</th>{cells}</tr>"
    )


def card(
    title: str, rows: Iterable[Sequence[Any]], *, note: str = "", **options: Any
) -> str:
    """Return a titled table, as a notebook shows an object."""
    below = f"<div>{tidy(note)}</div>" if note else ""
    return f"<div><strong>{tidy(title)}</strong>{table(rows, **options)}{below}</div>"


def plain_settings(config: Any) -> dict[str, Any]:
    """Return a dataclass of settings as nested mappings of plain values.

    Examples:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Some:
        ...     size: int = 3
        >>> plain_settings(Some())
        {'size': 3}
    """
    result = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            value = plain_settings(value)
        elif isinstance(value, pathlib.Path):
            value = str(value)
        result[field.name] = value
    return result


def differs(value: Any, default: Any) -> bool:
    """Return whether a setting is not its default; lists and tuples are alike."""
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return list(value) != list(default)
    return bool(value != default)


def settings_rows(
    values: Mapping[str, Any], defaults: Mapping[str, Any] | None
) -> list[tuple[str, tuple[tuple[str, Any, Any, bool], ...]]]:
    """Return settings section by section: name, value, default, whether it was changed.

    Args:
        values: Nested settings; one that is left out is None if that is its default.
        defaults: The same with default values; None where they are not known.

    Returns:
        Pairs of a section's dotted name ("" for the top) and its rows.
    """
    usual = defaults or {}
    # None is left out where settings are kept, and so is what a later version has added
    unset = [
        name
        for name, default in usual.items()
        if name not in values and default is None
    ]
    top = []
    nested = []
    for name in [*values, *unset]:
        value = values.get(name)
        default = usual.get(name)
        if isinstance(value, Mapping) or isinstance(default, Mapping):
            for below, rows in settings_rows(value or {}, default):
                nested.append((f"{name}.{below}" if below else name, rows))
        else:
            changed = name in usual and differs(value, default)
            top.append((name, value, default, changed))
    return ([("", tuple(top))] if top else []) + nested


def config_repr(config: Any) -> str:
    """Return a dataclass of settings as HTML: changed values bold, a long one folded.

    A class of settings shows itself so in a notebook if it is a `Shown`.
    """
    try:
        defaults = plain_settings(type(config)())
    except TypeError:  # a field without a default
        defaults = None
    sections = settings_rows(plain_settings(config), defaults)
    rows = _config_rows(sections)
    if len(rows) <= _MOST_SETTINGS or defaults is None:
        return card(type(config).__name__, rows, most=200)
    changed = []
    others = []
    for name, lines in sections:
        if not name or any(is_changed for *_, is_changed in lines):
            changed.append((name, lines))
        else:
            others.append(name)
    short = _config_rows(changed)
    if others:
        short.append(("as by default", ", ".join(others)))
    every = f"<details><summary>all settings</summary>{table(rows, most=200)}</details>"
    return card(type(config).__name__, short, note=Markup(every), most=200)


class Shown:
    """The base of dataclasses of settings, which notebooks show as tables."""

    _repr_html_ = config_repr


def _config_rows(
    sections: list[tuple[str, tuple[tuple[str, Any, Any, bool], ...]]],
) -> list[Any]:
    """Return sections of settings as rows of a table."""
    rows: list[tuple[Any, ...]] = []
    for section, lines in sections:
        rows += [(section,)] if section else []
        for name, value, default, changed in lines:
            text = tidy(shown(value))
            words = f"<strong>{text}</strong> (default {tidy(shown(default))})"
            rows.append((name, Markup(words if changed else text)))
    return rows
