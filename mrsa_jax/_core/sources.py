"""Digest the code of an object: what it reaches, and its modules' texts.

A finished result is kept only where the code that made it is unchanged. No digest holds
a path: the same text elsewhere is the same code. All that an object reaches counts
(`state`): functions as they were compiled, and values. Of a module that has a file its
text counts too, and that of the modules it imports, however they are nested, except
those of libraries, which have versions.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import pathlib
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from mrsa_jax._core.state import Walk, digest_of, file_of, is_library

Digests: TypeAlias = dict[str, str]
"""By dotted name of a module a digest and the name of its file."""

PLUGIN = "mrsa_jax_plugin_"
"""The beginning of the module name of a plugin's file."""


# a process computes with what it has loaded, whatever is committed later
@functools.cache
def commit() -> str | None:
    """Return the commit of the source tree that the package comes from, if any.

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


LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy")
"""Distributions whose versions belong to what made a result."""


@functools.cache  # reading each takes a millisecond
def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that results are computed with."""
    return {name: version_of(name) or "none" for name in LIBRARIES}


def module_sources(name: str, path: pathlib.Path) -> Digests:
    """Return digests of a module and of those that it imports, libraries left out.

    Args:
        name: Its dotted name.
        path: Its file.

    Returns:
        By dotted name a digest and the name of the file.
    """
    digests: Digests = {}
    pending = [(name, path)]
    root = path.parents[name.count(".") + (path.name == "__init__.py")]
    while pending:
        module, file = pending.pop()
        if module in digests:
            continue
        text = file.read_bytes()
        digests[module] = f"{digest_of(text)} {file.name}"
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        for imported in _imported(text, package):
            source = (
                file_of(imported)
                if imported in sys.modules
                else _beside(root, imported)
            )
            if source is not None and _is_own(imported, source, name):
                pending.append((imported, source))
    return digests


@functools.lru_cache(maxsize=256)
def _imported(text: bytes, package: str) -> tuple[str, ...]:
    """Return the dotted names of all modules that a text may import."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # an error when it runs
        return ()
    return tuple(dict.fromkeys(_names_imported(tree, package)))


def _names_imported(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = (
                package.split(".")[: package.count(".") + 2 - node.level]
                if node.level
                else []
            )
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
    """Return whether a module is no library's, or of the first one's library."""
    is_same = name.partition(".")[0] == start.partition(".")[0]
    return is_same or not is_library(name, path)


@dataclasses.dataclass(eq=False)
class Code:
    """Digest the code and values that a user's object is made of, when called.

    Attributes:
        thing: A function, a class, a scheme, arrays: any object.
        name: What it is called.
        argument: What it was given for.
        depends: What it depends on in addition; None if that is only what it reaches.
        texts: Digests of modules that count in any case, as they were when it was
            given.
        own: Top-level names of installed packages that count as a user's code.
    """

    thing: Any
    name: str
    argument: str
    depends: Any = None
    texts: Digests = dataclasses.field(default_factory=dict)
    own: tuple[str, ...] = ()
    _state: Digests | None = dataclasses.field(default=None, init=False)

    def __call__(self) -> Digests:
        """Return the digests of now, by name; each with what it is of."""
        self._state = self._read()
        return self.again()

    def again(self) -> Digests:
        """Return the first digests again, with those of files as they are now.

        Code that runs may keep what it has computed, in a cache: that changes no
        result.
        """
        state = self._state or self._read()
        return state | self.texts | self._needed()

    def _read(self) -> Digests:
        walk = Walk(is_named=self.depends is not None, own_packages=self.own)
        digest = walk.digest(self.thing, self.argument)
        digests = {"": f"{digest} {self.name}"}
        for name in walk.modules:
            path = file_of(name)
            if (
                path is not None
                and not name.startswith(PLUGIN)
                and not walk.is_library(name)
            ):
                digests |= module_sources(name, path)
        digests["python"] = f"{sys.version_info.major}.{sys.version_info.minor} Python"
        for name in walk.libraries:
            if name not in LIBRARIES:  # whose versions belong to every result
                digests[name] = f"{_version_of_module(name)} {name}"
        return digests

    def _needed(self) -> Digests:
        if self.depends is None:
            return {}
        walk = Walk(reads_paths=True, own_packages=self.own)
        digest = walk.digest(self.depends, "depends")
        files = {
            f"depends {place}": f"{content} {name}"
            for place, (name, content) in enumerate(walk.files)
        }
        return {"depends": f"{digest} depends", **files}


def _version_of_module(name: str) -> str:
    """Return the version of an installed package by the name that it is imported by."""
    version = getattr(sys.modules.get(name), "__version__", None)
    return str(version or version_of(name) or "none").replace(" ", "_")


def code_of(
    factory: object,
    name: str,
    caller: str,
    plugins: Iterable[str] = (),
    depends: object = None,
) -> Code:
    """Make the callable that digests a factory's code.

    Args:
        factory: A function, a class, or another object that can be called.
        name: What it is registered as.
        caller: Name of the module that registers it; it does not count where it is a
            library's.
        plugins: Names of further modules that decide what it does: those that are being
            loaded.
        depends: What it depends on in addition to what it reaches.

    Returns:
        Called, it gives the text of modules as it was at registration, and all that the
        factory reaches as it is then: a notebook replaces definitions, and sets
        attributes of modules.
    """
    plugins = tuple(plugins)
    texts: Digests = {}
    others = [
        module
        for module in (caller, _module(factory))
        if not is_library(module, file_of(module))
    ]
    for place, module in enumerate(dict.fromkeys([*plugins, *others])):
        path = file_of(module)
        if path is None:  # a notebook or a script
            continue
        sources = module_sources(module, path)
        if module.startswith(PLUGIN):  # whatever its file is called
            sources[f"{PLUGIN}{place}"] = sources.pop(module)
        texts |= sources
    tops = tuple(module.partition(".")[0] for module in plugins)
    return Code(factory, name, "factory", depends, texts, tops)


def _module(thing: object) -> str:
    while isinstance(thing, functools.partial):
        thing = thing.func
    named = thing if isinstance(thing, type | types.FunctionType) else type(thing)
    return str(getattr(thing, "__module__", None) or named.__module__)
