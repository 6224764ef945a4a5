"""Members of a family by name: one reader for schemes, graphs and availability models.

Flags and files write one `name:parameters`. A family's table has a row for each name,
and a user's own row is like the package's. Nothing here imports JAX.

A user's files and modules run with the rights of who names them. Only a caller names
them (`--plugin` on the command line), never a file of settings: a study that was sent
by somebody else is data. An installed package may offer members by entry points: its
module is imported when a name is not known otherwise.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import math
import os
import pathlib
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

from mrsa_jax._core.sources import PLUGIN, code_of, file_of, module_sources
from mrsa_watch._base.errors import (
    ConfigurationError,
    MrsaError,
    nearest,
    require,
    shortened,
)

Parameters: TypeAlias = tuple[Any, ...]
"""What follows a member's name in flags and files, read."""
Reader: TypeAlias = Callable[[list[str]], Parameters]
"""Parts behind the name -> parameters; `ValueError` where they are ill-formed."""

# digests of each one's own text and its neighbours'
_LOADED: dict[str, dict[str, str]] = {}
_loading: list[str] = []
_FOLDERS: set[str] = set()  # of plugins' files, in which later imports look last


def loaded_plugins() -> dict[str, dict[str, str]]:
    """Return all loaded plugins, for processes that are to do as this one.

    Paths and modules.

    """
    return dict(_LOADED)


def loading() -> tuple[str, ...]:
    """Return the names of the modules of plugins that are being loaded."""
    return tuple(_loading)


def load_plugins(names: Iterable[str]) -> None:
    """Run Python files, and import modules.

    Args:
        names: Paths that end in .py, or dotted names of modules that are installed.

    Raises:
        ConfigurationError: If there is none of a name, or it cannot be run, with where
            and why.
    """
    for name in names:
        is_file = name.endswith(".py") or os.sep in name
        path = pathlib.Path(name).absolute()
        require(
            not is_file or (path.suffix == ".py" and path.is_file()),
            "plugin",
            "must be an existing Python file (.py), or an installed module",
            name,
        )
        module = f"{PLUGIN}{path.stem}" if is_file else name
        _loading.append(module)
        try:
            # results alone go to standard output
            with contextlib.redirect_stdout(sys.stderr):
                _run_file(module, path) if is_file else importlib.import_module(name)
        except (Exception, SystemExit) as error:  # a user's code raises what it likes
            raise ConfigurationError(
                f"`plugin` must run without an error; got {name!r}: "
                f"{_where(error, path)}"
                f"{type(error).__name__}: {error}"
            ) from error
        finally:
            _loading.pop()
        source = path if is_file else file_of(name)
        key = str(path) if is_file else name
        _LOADED[key] = {} if source is None else module_sources(module, source)


ENTRY_POINTS = {
    "scheme": "mrsa_jax.selectors",
    "graph": "mrsa_jax.graphs",
    "availability": "mrsa_jax.availability",
    "attack": "mrsa_jax.attacks",
}
"""Groups of entry points in which installed packages offer members, by setting."""


def load_installed(
    argument: str, name: str, names: Callable[[], Collection[str]]
) -> None:
    """Import the module of an installed package that registers an unknown name.

    The package has an entry point of this name, whose value is the module. A known name
    imports nothing, nor does a name that no package offers.

    Args:
        argument: The setting that names a member, a key of `ENTRY_POINTS`.
        name: As it is registered.
        names: Returns the names of the family.

    Raises:
        ConfigurationError: If two packages offer the name with different modules, or
            the module cannot be imported or does not register it.
    """
    if name in names() or argument not in ENTRY_POINTS:
        return
    from importlib import metadata  # it looks through all installed packages

    # a package may be younger than the last look at its folder
    importlib.invalidate_caches()
    metadata.MetadataPathFinder().invalidate_caches()  # not by the line above in 3.11
    points = metadata.entry_points(group=ENTRY_POINTS[argument], name=name)
    modules = sorted({point.value for point in points})
    if not modules:
        return
    rule = "must be offered by the entry point of one installed package"
    require(len(modules) == 1, argument, f"{rule}: {name}", modules)
    load_plugins(modules)
    rule = f"must be registered by {modules[0]}, which its entry point names"
    require(name in names(), argument, rule, name)


def _run_file(module_name: str, path: pathlib.Path) -> None:
    """Run a file's current text, with its neighbours as they are now."""
    before = _LOADED.get(str(path), {})
    sources = module_sources(module_name, path)
    if any(before.get(name) != text for name, text in sources.items()):
        for name in before:
            sys.modules.pop(name, None)
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = (
        module  # where dataclasses and pickle look for its classes
    )
    try:
        with _neighbours(path):
            exec(compile(path.read_bytes(), path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[module_name]
        raise


@contextlib.contextmanager
def _neighbours(path: pathlib.Path) -> Iterator[None]:
    """Let a file import other files of its folder, as a script does.

    Installed modules come first.
    Where another plugin has imported a file of the same name, each plugin has its own.
    """
    folder, before = str(path.parent), sys.path[:]
    for name in {name for sources in _LOADED.values() for name in sources}:
        loaded = file_of(name)
        top = path.parent / name.partition(".")[0]
        is_beside = top.is_dir() or top.with_suffix(".py").is_file()
        if loaded is not None and is_beside and path.parent not in loaded.parents:
            del sys.modules[name]
    sys.path[:] = [
        place for place in before if place not in _FOLDERS or place == folder
    ]
    if folder not in sys.path:
        _FOLDERS.add(folder)
        sys.path.append(folder)
    # a file may be younger than its folder's last listing
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path += [place for place in before if place not in sys.path]


def _where(error: BaseException, path: pathlib.Path) -> str:
    """Return the last line of the file that led to an error, if one did."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"line {lines[-1]}: " if lines else ""


def read_member(
    text: Any,
    rows: Mapping[str, Any],
    argument: str,
    kind: str,
) -> tuple[str, Parameters]:
    """Return the name and the parameters of a member as written in flags and files.

    Args:
        text: `name` or `name:parameters`.
        rows: Of the family. Each has `read` (parts behind the name -> parameters,
            `ValueError` where they are ill-formed) and `rule` (what the text must be;
            empty if plain).
        argument: The setting that names it.
        kind: What a member is called.

    Raises:
        ConfigurationError: For an unknown name (naming the nearest), or bad parameters.
    """
    name, *rest = str(text).split(":")
    load_installed(argument, name, rows.keys)
    if name not in rows:
        hint = _hint(str(text), rows)
        raise ConfigurationError(
            f"`{argument}` must be a known {kind}; got {shortened(name)}; {hint}"
        )
    try:
        return name, rows[name].read(rest)
    except ConfigurationError:  # it names a rule already
        raise
    except ValueError as error:
        rule = rows[name].rule or f"must be plain {name!r} (it has no parameter)"
        raise ConfigurationError(
            f"`{argument}` {rule}; got {shortened(text)}"
        ) from error


def no_parameters(rest: list[str]) -> Parameters:
    """Read what is behind the name of a member that has no parameter."""
    if rest:
        raise ValueError
    return ()


def built_by(package: str, module: str, name: str) -> Callable[..., Any]:
    """Build a member by a function of a package that is imported when called."""
    return lambda *parameters: getattr(import_module(f"{package}.{module}"), name)(
        *parameters
    )


def _hint(text: str, rows: Mapping[str, Any]) -> str:
    """Suggest the nearest known name."""
    if "," in text:
        apart = " ".join(text.replace(",", " ").split())
        example = f": {apart}" if apart == textwrap.shorten(apart, 120) else ""
        return f"separate several with spaces{example}"
    words = {name.replace("_", " "): name for name in rows}
    for name, row in rows.items():
        # no label, or only of parameters
        with contextlib.suppress(AttributeError, TypeError):
            words[row.label().lower()] = name
    plain = text.lower().split(":")[0].split(" (")[0].replace("_", " ")
    close = difflib.get_close_matches(plain, words, 1, 0.5)
    return nearest(words[close[0]] if close else text, rows)


def own_row(
    name: str,
    factory: Callable[..., object],
    label: str | Callable[..., str] | None,
    papers: str | Sequence[str],
    *,
    nouns: str,
    given: Sequence[str],
    taken: Collection[str],
    depends: object = None,
) -> dict[str, Any]:
    """Make the part of a user's own row that all registries share.

    How it is written, shown, cited.

    Args:
        name: As it is registered.
        factory: Takes what is given, and parameters by their place.
        label: What tables and figures show, or what makes it from the parameters.
        papers: Keys or BibTeX.
        nouns: What the package's own are called.
        given: What the factory takes first, in words.
        taken: Names of the package's own.
        depends: What the factory depends on in addition to what it reaches.

    Returns:
        `label`, `rule` and `read` (see `read_member`), `fields` (names of the
        parameters), `papers`, and `code` (digests of the code of whoever called the
        caller).

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.
    """
    require(
        isinstance(name, str) and re.fullmatch("[a-z][a-z0-9_]*", name) is not None,
        "name",
        "must be lower-case letters, digits and underscores",
        name,
    )
    require(
        name not in taken, "name", f"must be none of the package's own {nouns}", name
    )
    words = f"{', '.join(given)} and parameters"
    require(callable(factory), "factory", f"must be a function of {words}", factory)
    fields, least, most = _parameters(
        factory, len(given), f"must take {words} by their place"
    )
    require(
        label is None or isinstance(label, str) or callable(label),
        "label",
        "must be text or a function that returns it",
        label,
    )
    keys = (papers,) if isinstance(papers, str) else tuple(papers)
    require(all(isinstance(key, str) for key in keys), "papers", "must be text", papers)

    def read(rest: list[str]) -> Parameters:
        if not least <= len(rest) <= most:
            raise ValueError
        return tuple(map(_value, rest))

    caller = sys._getframe(2).f_globals.get("__name__", "__main__")
    return {
        "label": label if callable(label) else label_of_words(label or name),
        "rule": f"must be written {':'.join([name, *map(str.upper, fields)])}",
        "read": read,
        "fields": fields,
        "papers": keys,
        "code": code_of(factory, name, caller, loading(), depends),
    }


def made(factory: Callable[..., object], what: str, *values: object) -> Any:
    """Call a user's factory.

    An error in it is reported as a fault of the factory.

    """
    try:
        return factory(*values)
    except MrsaError:
        raise
    except Exception as error:  # a user's code raises what it likes
        got = ", ".join(map(shortened, values))
        raise ConfigurationError(
            f"`factory` must make {what}; of ({got}) it raised {type(error).__name__}: "
            f"{error}"
        ) from error


def check_pytree(value: object, argument: str) -> None:
    """Raise if a scheme is no pytree, saying what its class needs to be one."""
    import jax

    rule = (
        "must be a pytree, so that its numbers pass through compiled programs: put "
        "@jax.tree_util.register_dataclass over @dataclasses.dataclass(frozen=True) "
        "before its "
        'class, and `= dataclasses.field(metadata={"static": True})` behind its sizes'
    )
    require(not jax.tree_util.all_leaves([value]), argument, rule, value)


def written(parameter: object) -> str:
    """Return a parameter as flags and files write it."""
    return f"{parameter:g}" if isinstance(parameter, float) else str(parameter)


def label_of_words(words: str) -> Callable[..., str]:
    """Return the label of words and, in parentheses, parameters."""

    def label(*parameters: object) -> str:
        texts = [
            getattr(value, "label", None) or written(value) for value in parameters
        ]
        return f"{words} ({', '.join(texts)})" if texts else words

    return label


def _parameters(
    factory: Callable[..., object],
    num_leading: int,
    rule: str,
) -> tuple[tuple[str, ...], int, int | float]:
    """Return the names of a factory's parameters behind the given.

    How many it needs, and takes.
    """
    parameters = list(inspect.signature(factory).parameters.values())
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    places = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    needed = [
        p for p in parameters if p.default is p.empty and p.kind is p.KEYWORD_ONLY
    ]
    require(
        (len(places) >= num_leading or takes_any) and not needed,
        "factory",
        rule,
        factory,
    )
    behind = places[num_leading:]
    least = sum(p.default is p.empty for p in behind)
    return tuple(p.name for p in behind), least, math.inf if takes_any else len(behind)


def _value(text: str) -> Any:
    """Return text as an integer or a finite real number where it is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            if math.isfinite(kind(text)):
                return kind(text)
    return text
