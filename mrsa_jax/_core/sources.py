"""What code is made of: a module's text and that of its neighbours, or compiled functions.

A finished result is kept only where the code that made it is unchanged. No digest holds a path: the
same text elsewhere is the same code. Of a module that has a file its text counts, and that of the
modules it imports, however they are nested, except those of libraries. What a notebook or a script
defines has no separate text that can be trusted: there its compiled functions count, with all
that they name. Of an object all that it holds counts too.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mrsa_watch._base.errors import ConfigurationError, shortened

PLUGIN = "mrsa_jax_plugin_"
"""How the module of a plugin's file begins."""
_LIBRARIES = ("site-packages", "dist-packages")


def digest_of(content: bytes) -> str:
    """Return 32 hex digits that name some bytes."""
    return hashlib.sha256(content).hexdigest()[:32]


@functools.cache  # a process computes with what it has loaded, whatever is committed later
def commit() -> str | None:
    """Return the commit of the source tree that the package is imported from, if it is one.

    With a mark if it was changed since.
    """
    import subprocess  # which `--help` need not wait for

    root = pathlib.Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    words = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(
            words, cwd=root, capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if it is not there."""
    from importlib import metadata  # takes 20 ms

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def file_of(name: str) -> pathlib.Path | None:
    """Return the Python file of a loaded module; None for a notebook or a script."""
    path = pathlib.Path(getattr(sys.modules.get(name), "__file__", None) or "")
    return path if name != "__main__" and path.suffix == ".py" and path.is_file() else None


def module_sources(name: str, path: pathlib.Path) -> dict[str, str]:
    """Return digests of a module and of those that it imports, libraries left out.

    Args:
        name: Its dotted name.
        path: Its file.

    Returns:
        By dotted name a digest and the name of the file.
    """
    found: dict[str, str] = {}
    left = [(name, path)]
    root = path.parents[name.count(".") + (path.name == "__init__.py")]
    while left:
        own, file = left.pop()
        if own in found:
            continue
        text = file.read_bytes()
        found[own] = f"{digest_of(text)} {file.name}"
        package = own if file.name == "__init__.py" else own.rpartition(".")[0]
        for one in _imported(text, package):
            there = file_of(one) if one in sys.modules else _beside(root, one)
            if there is not None and _is_own(one, there, name):
                left.append((one, there))
    return found


def _imported(text: bytes, package: str) -> Iterator[str]:
    """Go through the dotted names of all modules that a text may import."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # an error when it runs
        return
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.lstrip(".").split(".")
            yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _beside(root: pathlib.Path, name: str) -> pathlib.Path | None:
    """Return the file in a folder of a module that is imported later, if at all."""
    inside = root.joinpath(*name.split("."))
    both = (inside / "__init__.py", inside.with_name(f"{inside.name}.py"))
    return next((path for path in both if path.is_file()), None)


def _is_own(name: str, path: pathlib.Path, start: str) -> bool:
    """Return whether a module is no library's, unless the first one is of the same library."""
    top = name.partition(".")[0]
    if top == start.partition(".")[0]:
        return True
    is_library = top in sys.stdlib_module_names or _is_package(name)
    return not is_library and not any(one in path.parts for one in _LIBRARIES)


def code_of(factory: Any, caller: str, plugins: Iterable[str] = ()) -> Callable[[], dict[str, str]]:
    """Return what gives the digests of a factory's code.

    Args:
        factory: A function, a class, or another object that can be called.
        caller: Name of the module that registers it; it does not count where it is a library's.
        plugins: Names of further modules that decide what it does: those that are being loaded.

    Returns:
        A function: the text of modules is that of now. If one of them is a notebook or a script,
        whose definitions can be replaced, all is as it is when the function is called.
    """
    there = file_of(caller)
    callers = [caller] if there is None or _is_own(caller, there, "") else []
    names = dict.fromkeys([*plugins, *callers, _module(factory)])
    found: dict[str, str] = {}
    for place, name in enumerate(name for name in names if not _is_package(name)):
        path = file_of(name)
        if path is None:
            return lambda: _compiled(factory)
        sources = module_sources(name, path)
        if name.startswith(PLUGIN):  # whatever its file is called
            sources[f"{PLUGIN}{place}"] = sources.pop(name)
        found |= sources
    return lambda: found


def _is_package(name: str) -> bool:
    return name.partition(".")[0] == __name__.partition(".")[0]


def _module(thing: Any) -> str:
    while isinstance(thing, functools.partial):
        thing = thing.func
    named = thing if isinstance(thing, type | types.FunctionType) else type(thing)
    return str(getattr(thing, "__module__", None) or named.__module__)


def code_of_object(thing: Any, name: str, argument: str) -> dict[str, str]:
    """Return the digests of an object: of all that it holds, and of the code that it is made of.

    Code counts as it was compiled, in addition to the text of its module, which may have been
    edited since it was imported.

    Args:
        thing: Any object: a scheme, arrays, a function with what it closes over.
        name: What it is called.
        argument: What it was given for.

    Raises:
        ConfigurationError: If a part of it has a state that cannot be read, such as an open file.
    """
    return _compiled(thing, name, argument)


def _compiled(factory: Any, named: str = "", whole: str = "") -> dict[str, str]:
    """Return the digests of what a notebook or script defines of a factory, and of its modules."""
    walk = _Walk(whole)
    walk.tell(factory)
    digest = digest_of(chr(10).join(walk.texts).encode())
    found = {"": f"{digest} {named or _name(factory)}"}
    for name in walk.modules:
        path = file_of(name)
        if path is not None and _is_own(name, path, ""):
            found |= module_sources(name, path)
    return found


def _name(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))


class _Walk:
    """Goes through all that a value names: code as it was compiled, other values as they are.

    Args:
        whole: The argument that an object was given for, all of whose values count: those of
            libraries, and the code of modules, of which else the name and the text do. A value
            that cannot be compared raises. Empty for code that is registered.

    Attributes:
        texts: What was found.
        modules: Names of modules that hold some of it.
    """

    def __init__(self, whole: str) -> None:
        """Begin with nothing."""
        self._whole = whole
        self.texts: list[str] = []
        self.modules: dict[str, None] = {}
        self._seen: dict[int, tuple[int, Any]] = {}  # a value that is kept keeps its number

    def tell(self, thing: Any) -> None:
        """Add a value, and what it names."""
        if thing is None or isinstance(thing, bool | int | float | complex | str | bytes):
            self.texts.append(repr(thing))
            return
        if id(thing) in self._seen:
            self.texts.append(f"again {self._seen[id(thing)][0]}")
            return
        self._seen[id(thing)] = len(self._seen), thing
        for one in self._parts(thing):
            self.tell(one)

    def _parts(self, thing: Any) -> list[Any]:
        """Add the words about a value itself, and return its parts."""
        if isinstance(thing, types.ModuleType):
            self.modules[thing.__name__] = None
            return [thing.__name__]
        if isinstance(thing, set | frozenset):
            return sorted(map(repr, thing))
        if isinstance(thing, types.MappingProxyType):
            return [dict(thing)]
        if isinstance(thing, list | tuple | dict):
            inner = (
                [x for pair in thing.items() for x in pair] if isinstance(thing, dict) else thing
            )
            is_plain = type(thing) in (list, tuple, dict)  # else a class with methods, perhaps
            return [type(thing).__name__ if is_plain else type(thing), len(thing), *inner]
        if isinstance(thing, types.CodeType):
            code = [thing.co_code, thing.co_exceptiontable, *thing.co_names, *thing.co_varnames]
            return [*code, thing.co_consts]
        if isinstance(thing, functools.partial):
            return [thing.func, thing.args, thing.keywords]
        if isinstance(thing, types.MethodType):
            return [thing.__func__, thing.__self__]
        if isinstance(thing, property):
            return [thing.fget, thing.fset]
        if isinstance(thing, functools.cached_property):
            return [thing.func]
        if not isinstance(thing, type) and hasattr(thing, "__wrapped__"):  # jit, cache
            return [thing.__wrapped__]
        told = None
        if not isinstance(thing, type) and hasattr(thing, "__array__"):
            told = _array(thing)
        return self._defined(thing) if told is None else told

    def _defined(self, thing: Any) -> list[Any]:
        """Do so with a function, a class, or a value of a class."""
        is_value = not isinstance(thing, type | types.FunctionType)
        module = _module(thing)
        is_there = module != "__main__" and module in sys.modules
        path = file_of(module) if is_there else None
        is_own = not is_there or (path is not None and _is_own(module, path, ""))
        if is_there:
            self.modules[module] = None
        if is_value:
            is_told = is_own or self._whole or dataclasses.is_dataclass(thing)
            kind = _name(thing) if is_there and not self._whole else type(thing)
            return [kind, self._state(thing) if is_told else None]
        closure = thing.__closure__ if isinstance(thing, types.FunctionType) else None
        cells = [cell.cell_contents for cell in closure or () if cell != _EMPTY]
        if is_there and not (is_own and self._whole):
            return [_name(thing), cells or None]
        if isinstance(thing, type):
            own = {name: v for name, v in vars(thing).items() if name not in _NOT_TOLD}
            return [thing.__qualname__, own, *thing.__bases__]
        named = dict.fromkeys(_names(thing.__code__))
        found = [thing.__globals__[name] for name in named if name in thing.__globals__]
        return [thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells, found]

    def _state(self, thing: Any) -> Any:
        """Return all that a value holds: its fields, or else what pickle would keep of it."""
        if dataclasses.is_dataclass(thing):
            return {own.name: getattr(thing, own.name, None) for own in dataclasses.fields(thing)}
        if not self._whole:
            return getattr(thing, "__dict__", None)
        try:
            return thing.__reduce_ex__(2)
        except Exception as error:  # whatever a class of somebody's raises
            raise ConfigurationError(
                f"`{self._whole}` must hold only values that a digest can be made of; got "
                f"{shortened(thing)} ({error}): register what makes it in a file, and name the "
                "file with --plugin"
            ) from error


_EMPTY = types.CellType()
_NOT_TOLD = ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__",
             "__static_attributes__", "_abc_impl")  # fmt: skip


def _names(code: types.CodeType) -> Iterator[str]:
    """Go through the names that a function and those inside it look up."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names(const)


def _array(thing: Any) -> list[Any] | None:
    """Return the words of an array, or of a typed key; None of one that NumPy cannot hold."""
    import numpy as np  # --help must not wait for it

    kind = str(getattr(thing, "dtype", ""))
    if kind.startswith("key<"):
        import jax

        thing = jax.random.key_data(thing)
    try:
        values = np.asarray(thing)
    except Exception:  # of a library's own kind
        return None
    content = values.tolist() if values.dtype.kind == "O" else digest_of(values.tobytes())
    return [kind or str(values.dtype), str(values.shape), content]
