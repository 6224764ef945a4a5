"""The public surface, one line each: names with their signatures, commands with their flags.

    python tests/release/surface.py          # at a release: writes surface.txt
    python tests/release/surface.py --page   # lists what breaks in docs/versions.md

`surface.txt` is the surface of the last release. `test_surface.py` holds the package
against it.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import functools
import importlib
import inspect
import io
import os
import pathlib
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import tyro

FILE = pathlib.Path(__file__).with_name("surface.txt")
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "versions.md"
PACKAGES = ("mrsa_jax", "mrsa_watch")
_FLAG = re.compile(r"^(?:│|  ) ?(?:-h, )?--([a-z-]+)", re.MULTILINE)
_CHOICES = re.compile(r": \{[^}]*\}")  # of a parameter
# a flag as the file has it: its choices, and its default
_TOLD = re.compile(r"(?P<flag>[\w-]+)(?:\{(?P<choices>[^}]*)\})?(?:=(?P<default>.*))?")
_STARS = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}
_PLAIN = (bool, int, float, str, bytes, types.NoneType)


# --- what there is


def surface() -> dict[str, str]:
    """Return the signature of each public name, and the flags of each command."""
    names: dict[str, str] = {}
    for package in PACKAGES:
        names.update(_names(importlib.import_module(package)))
    return dict(sorted(names.items())) | flags()


def _names(module: types.ModuleType) -> Iterator[tuple[str, str]]:
    for name in getattr(module, "__all__", sorted(vars(module))):
        value = getattr(module, name)
        path = f"{module.__name__}.{name}"
        # a module without a list offers what it defines, as in docs/reference
        made_in = getattr(value, "__module__", "") or ""
        is_own = hasattr(module, "__all__") or made_in.startswith(module.__name__)
        if name.startswith("_") or not is_own:
            continue
        if inspect.ismodule(value):
            # a family that two packages offer is listed where it is
            if value.__name__ == path:
                yield from _names(value)
            continue
        yield path, signature(value)
        if inspect.isclass(value):
            yield from _members(path, value)


def _members(path: str, value: type) -> Iterator[tuple[str, str]]:
    """Yield the public methods, properties and members of a class."""
    for name in sorted(vars(value)):
        member = inspect.getattr_static(value, name)
        function = getattr(member, "__func__", member)
        if name.startswith("_"):
            continue
        if inspect.isfunction(inspect.unwrap(function)):
            yield f"{path}.{name}", signature(function)
        elif isinstance(member, property | value):
            yield f"{path}.{name}", ""


def signature(value: object) -> str:
    """Return the parameters and their choices, as in `(rule: {'a', 'b'}, *, seed=0)`.

    It is empty for constants, for aliases of types, and for classes that nobody calls.
    """
    is_class = inspect.isclass(value)
    if not callable(value) or (is_class and _is_only_described(value)):
        return ""
    try:
        found = inspect.signature(inspect.unwrap(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # an alias of a type
        return ""
    words: list[str] = []
    # Python's own marks: what follows `*` is by name only
    has_star = False
    for parameter in found.parameters.values():
        if parameter.kind == parameter.KEYWORD_ONLY and not has_star:
            words.append("*")
            has_star = True
        has_star |= parameter.kind == parameter.VAR_POSITIONAL
        stars = _STARS.get(parameter.kind, "")
        choices = sorted(map(repr, _choices_of(value, parameter)))
        allowed = f": {{{', '.join(choices)}}}" if choices else ""
        words.append(stars + parameter.name + allowed + _default(parameter))
    return f"({', '.join(words)})"


def _choices_of(value: object, parameter: inspect.Parameter) -> set[str]:
    """Return the words that a parameter's type allows, if it names them."""
    hint = parameter.annotation
    classes = value.__mro__ if inspect.isclass(value) else (inspect.unwrap(value),)  # type: ignore[arg-type]
    # a field's type is read where its own class stands
    for one in classes:
        if isinstance(hint, str):
            # a name that only a type checker knows
            with contextlib.suppress(Exception):
                hint = eval(hint, vars(sys.modules[one.__module__]))
    return choices(hint)


def choices(hint: Any) -> set[str]:
    """Return the words of each `Literal` in a type."""
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return {word for word in inner if isinstance(word, str)}
    return set().union(*(choices(one) for one in inner if typing.get_origin(one)))


def _is_only_described(value: object) -> bool:
    is_protocol = getattr(value, "_is_protocol", False)
    return bool(is_protocol) or issubclass(value, enum.Enum | BaseException)  # type: ignore[arg-type]


def _default(parameter: inspect.Parameter) -> str:
    has_one = parameter.default is not parameter.empty
    return f"={_shown(parameter.default)}" if has_one else ""


def _shown(default: object) -> str:
    # an absolute path is one of this machine
    if isinstance(default, pathlib.PurePath) and not default.is_absolute():
        default = default.as_posix()
    return repr(default) if _is_plain(default) else "..."


def _is_plain(default: object) -> bool:
    if isinstance(default, tuple):
        return type(default) is tuple and all(map(_is_plain, default))
    return isinstance(default, _PLAIN)


def flags() -> dict[str, str]:
    """Return the flags of each command that its help shows, with choices and defaults."""
    from mrsa_jax import cli
    from mrsa_jax.study.kinds import attacks
    from mrsa_watch._command import main

    settings = {name: command.config for name, command in cli._COMMANDS.items()}
    settings |= {f"attack {name}": row.settings for name, row in attacks().items()}
    # `reproduce` is of another distribution, and an attack is named by a second word
    ours = {
        f"mrsa-jax {name}": words_of(cli.main, name, cls)
        for name, cls in settings.items()
        if name not in ("attack", "reproduce")
    }
    small = ("record", "watch", "gate", "check", "preflight")
    theirs = {f"mrsa-watch {name}": words_of(main, name) for name in small}
    return dict(sorted(ours.items())) | theirs


def words_of(main: object, command: str, settings: Any = None) -> str:
    """Return what a command's help shows: its flags, and words that stand without one.

    Args:
        main: Runs the program, of its words.
        command: Its name.
        settings: Dataclass of its flags, which has their choices and defaults.
    """
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    asked = "--help" if settings is None else "--help-all"
    # a wide terminal shows flags in several columns
    with (
        mock.patch.dict(os.environ, COLUMNS="80"),
        mock.patch.object(sys, "stdout", printed),
        contextlib.suppress(SystemExit),
    ):
        main([*command.split(), asked])  # type: ignore[operator]
    printed.seek(0)
    text = printed.read()
    known = {} if settings is None else dict(_details(settings))
    shown = sorted({*_FLAG.findall(text)} - {"help"})
    # what may stand behind the flags, as `verify`; arguments there have capitals
    _, _, last = text.partition("\n\n")[0].partition(" OPTIONS]")
    alone = sorted(re.findall(r"(?<![\w.])[a-z]+\b", last))
    return " ".join([*(f"--{flag}{known.get(flag, '')}" for flag in shown), *alone])


def _details(settings: Any, table: object = None) -> Iterator[tuple[str, str]]:
    """Yield each flag of settings, and its choices and default as the file has them.

    Args:
        settings: Their dataclass.
        table: Its instance in the settings of a command, which may have other defaults.
    """
    from mrsa_jax._core.flags import renamed

    hints = typing.get_type_hints(settings, include_extras=True)
    for field in dataclasses.fields(settings):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        default = getattr(table, field.name, default)
        if dataclasses.is_dataclass(default):
            yield from _details(type(default), default)
            continue
        flag = renamed(settings).get(field.name, field.name).replace("_", "-")
        allowed = choices(hints[field.name]) | {*_registered().get(field.name, ())}
        words = f"{{{'|'.join(sorted(allowed))}}}" if allowed else ""
        has_one = default not in (dataclasses.MISSING, tyro.MISSING)
        shown = re.sub(r"\s", "", f"={_shown(default)}") if has_one else ""
        yield flag, words + shown


def _registered() -> dict[str, tuple[str, ...]]:
    """Return the package's own names by the field that takes one."""
    from mrsa_jax.availability import registry as availability
    from mrsa_jax.data.sources import SOURCES
    from mrsa_jax.graphs import registry as graphs
    from mrsa_jax.selection import registry as selection
    from mrsa_jax.study.settings import _parts

    return _parts._BUILT_IN | {
        "scheme": selection.BUILT_IN,
        "schemes": selection.BUILT_IN,
        "graph": graphs.BUILT_IN,
        "availability": availability.BUILT_IN,
        "dataset": tuple(SOURCES),
    }


# --- what differs


def broken(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return by name what no longer works, and in words what became of it."""
    changes: dict[str, str] = {}
    for name, was in before.items():
        if name.startswith(("mrsa-jax ", "mrsa-watch ")):
            gone = _words_gone(was, now.get(name, ""))
            changes |= {f"{name} {flag}": words for flag, words in gone}
        elif name not in now:
            changes[name] = _new_place(name, now)
        elif was != now[name] and not accepts(now[name], was):
            changes[name] = f"{name.rpartition('.')[2]}{_CHOICES.sub('', now[name])}"
        elif was != now[name]:
            changes |= {f"{name}({one})": "" for one in _choices_gone(was, now[name])}
    # a class that left takes its methods with it
    return {
        name: words
        for name, words in changes.items()
        if name.rpartition(".")[0] in now
        or name.rpartition(".")[0] not in changes
        or " " in name
    }


def _words_gone(was: str, now: str) -> Iterator[tuple[str, str]]:
    """Yield what a command no longer takes, and the default that a flag has instead."""
    new = _told(now)
    for flag, (words, default) in _told(was).items():
        if flag not in new:
            yield flag, ""
            continue
        # a flag that takes any text now takes these too
        gone = words - new[flag][0] if new[flag][0] else ()
        yield from ((f"{flag}={word}", "") for word in sorted(gone))
        if default is not None and new[flag][1] != default:
            yield f"{flag}={default}", f"{new[flag][1]}"


def _told(text: str) -> dict[str, tuple[set[str], str | None]]:
    """Return by flag its choices and its default, from a command's line."""
    found = (_TOLD.fullmatch(word) for word in text.split())
    return {
        one["flag"]: ({*(one["choices"] or "").split("|")} - {""}, one["default"])
        for one in found
        if one
    }


def _choices_gone(was: str, now: str) -> Iterator[str]:
    """Yield `name='choice'` for what a parameter no longer allows."""
    new = _parameters(now)
    for name, (_, _, allowed) in _parameters(was).items():
        # one that takes any text now takes these too
        kept = new[name][2] if name in new else set()
        yield from (f"{name}={one!r}" for one in sorted(allowed - kept) if kept)


def _new_place(name: str, now: Mapping[str, str]) -> str:
    package, family, *rest = name.split(".")
    ends = f".{rest[-1]}" if rest else f".{family}"
    places = [
        other
        for other in now
        if other.endswith(ends) and other.startswith(f"{package}.{family}.")
    ]
    return places[0].removeprefix("mrsa_jax.") if len(places) == 1 else ""


def accepts(now: str, was: str) -> bool:
    """Return whether each call of the old signature means the same to the new one."""
    if not (now and was):
        return not now and not was
    new, old = _parameters(now), _parameters(was)
    places = [name for name, (kind, *_) in new.items() if kind == "place"]
    old_places = [name for name, (kind, *_) in old.items() if kind == "place"]
    if places[: len(old_places)] != old_places:
        return False
    for name, (kind, default, _) in old.items():
        own = new.get(name)
        # a parameter by name may also be one by place; its default is part of the call
        if own is None or (kind.startswith("*") and own[0] != kind):
            return False
        if default is not None and own[1] != default:
            return False
    return all(
        default is not None or kind.startswith("*")
        for name, (kind, default, _) in new.items()
        if name not in old
    )


@functools.cache
def _parameters(text: str) -> dict[str, tuple[str, str | None, set[str]]]:
    """Return by name the kind, the default and the choices of each parameter."""
    (function,) = ast.parse(f"def f{text}: ...").body
    assert isinstance(function, ast.FunctionDef)
    own = function.args
    places = own.posonlyargs + own.args
    missing: list[ast.expr | None] = [None] * (len(places) - len(own.defaults))
    rows = [
        ("place", *pair) for pair in zip(places, [*missing, *own.defaults], strict=True)
    ]
    rows += [
        ("name", *pair) for pair in zip(own.kwonlyargs, own.kw_defaults, strict=True)
    ]
    rows += [
        (kind, one, None)
        for kind, one in (("*args", own.vararg), ("**kwargs", own.kwarg))
        if one
    ]
    return {
        one.arg: (
            kind,
            None if default is None else ast.unparse(default),
            ast.literal_eval(one.annotation) if one.annotation else set(),
        )
        for kind, one, default in rows
    }


# --- its file, and its table


def read(path: pathlib.Path = FILE) -> tuple[str, dict[str, str]]:
    """Return the version of a stored surface, and its lines by name."""
    version, *lines = path.read_text(encoding="utf-8").splitlines()
    ends = re.compile(r"(?=\()| (?=--)|$")
    pairs = (ends.split(line, maxsplit=1) for line in lines)
    return version, dict(pairs)


def write(path: pathlib.Path = FILE) -> None:
    """Write the surface of the package as it is."""
    import mrsa_jax

    lines = [
        f"{name}{' ' * text.startswith('--')}{text}" for name, text in surface().items()
    ]
    path.write_text("\n".join([mrsa_jax.__version__, *lines, ""]), encoding="utf-8")


def table(changes: Mapping[str, str]) -> str:
    """Return what breaks as the text of docs/versions.md, a paragraph for each family."""
    families: dict[str, list[str]] = {}
    for name, words in changes.items():
        is_flag = " " in name
        family = name.rpartition(" ")[0] if is_flag else ".".join(name.split(".")[:2])
        own = name[len(family) + 1 :]
        is_call = words.endswith(")")
        text = words if is_call else f"{own} (now {words})" if words else own
        families.setdefault(family.removeprefix("mrsa_jax."), []).append(text)
    rows = [f"{family}: {', '.join(own)}" for family, own in families.items()]
    fill = textwrap.TextWrapper(100, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(map(fill.fill, rows))


def old_spellings() -> dict[str, str]:
    """Return the flags that are still read by their old names, and the new names."""
    from mrsa_jax import cli
    from mrsa_jax._core.flags import renamed
    from mrsa_jax.study.kinds import attacks

    settings = {name: command.config for name, command in cli._COMMANDS.items()}
    settings |= {f"attack {name}": row.settings for name, row in attacks().items()}
    return {
        f"mrsa-jax {name} --{old.replace('_', '-')}": f"--{new.replace('_', '-')}"
        for name, cls in settings.items()
        for old, new in (renamed(cls) | cli._OLD_FLAGS.get(name, {})).items()
    }


def changes() -> dict[str, str]:
    """Return what breaks since the last release; an old spelling does not."""
    before, now = read()[1], surface()
    for old, new in old_spellings().items():
        command, _, flag = old.rpartition(" ")
        # the new one has the choices and the default of the old one
        before[command] = re.sub(rf"{flag}(?=[ {{=]|$)", new, before.get(command, ""))
    return broken(before, now)


def update(page: pathlib.Path = PAGE) -> None:
    """Write what breaks into the last block of docs/versions.md."""
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.rpartition("```text\n")
    _, _, tail = rest.partition("```\n")
    page.write_text(f"{head}```text\n{table(changes())}\n```\n{tail}", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--page"]:
        update()
    else:
        write()
