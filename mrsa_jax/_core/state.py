"""The state of an object.

A digest that changes with every value that the object reaches.
Each kind of object has one rule, which accounts for all of its state. A kind without a
rule raises, and so does code that reads what lies outside of the program: files, the
environment, modules that are named while it runs. `depends` then names these things
instead.

Code counts as it was compiled, with its defaults, its closure, and the globals and
attributes of modules that it uses. Libraries count by the names of what is used, and by
their versions. Nothing depends on paths, on addresses in memory, on the order of sets
or on the numbers of lines.
"""

from __future__ import annotations

import builtins
import contextlib
import copyreg
import functools
import hashlib
import importlib
import importlib.util
import pathlib
import sys
import types
import typing
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from mrsa_jax._core.bytecode import Use, names_used
from mrsa_jax._core.outside import (
    PATH_METHODS,
    READING_METHODS,
    loaded_readers,
    read_by,
)
from mrsa_watch._base.errors import ConfigurationError, require, shortened

_LIBRARIES = ("site-packages", "dist-packages")
_PACKAGES = ("mrsa_jax", "mrsa_watch", "mrsa_papers")
_READS_OUTSIDE = "which reads what lies outside of the program"
_MOST_NESTED = 40  # tuples in tuples that count as one constant


class _Missing:
    """Stand for a name that nothing defines."""


_MISSING = _Missing()

Told: TypeAlias = tuple[str, Sequence[Any]]
"""The words of an object, and the parts whose words follow."""


class _UnaccountedError(Exception):
    """An object whose state no rule accounts for.

    Attributes:
        got: The object, as a message shows it.
        reason: Why there is no rule.
    """

    def __init__(self, got: str, reason: str) -> None:
        super().__init__(got, reason)
        self.got = got
        self.reason = reason


def digest_of(content: bytes) -> str:
    """Return 32 hex digits that name some bytes."""
    return hashlib.sha256(content).hexdigest()[:32]


def file_of(name: str) -> pathlib.Path | None:
    """Return the Python file of a loaded module; None for a notebook or a script."""
    path = pathlib.Path(getattr(sys.modules.get(name), "__file__", None) or "")
    return (
        path if name != "__main__" and path.suffix == ".py" and path.is_file() else None
    )


def is_library(name: str, path: pathlib.Path | None) -> bool:
    """Return whether a module is Python's, this package's or an installed one."""
    top = name.partition(".")[0]
    if top == "__main__":
        return False
    if top in sys.stdlib_module_names or top in _PACKAGES or top.startswith("_cython_"):
        return True
    return path is not None and any(part in path.parts for part in _LIBRARIES)


class Walk:
    """Goes through all that an object reaches.

    Args:
        is_named: Whether `depends` names what has no rule, which then counts by its
            kind alone.
        reads_paths: Whether a path stands for the content of its file or folder.
        own: Top-level names of installed packages that count as a user's code.

    Attributes:
        modules: Names of a user's modules that hold some of it.
        libraries: Top-level names of the installed packages that it uses.
        files: Names and digests of the files that paths stand for.
    """

    def __init__(
        self,
        *,
        is_named: bool = False,
        reads_paths: bool = False,
        own_packages: Collection[str] = (),
    ) -> None:
        """Begin with nothing seen."""
        self.modules: dict[str, None] = {}
        self.libraries: dict[str, None] = {}
        self.files: list[tuple[str, str]] = []
        self._is_named = is_named
        self._reads_paths = reads_paths
        self._own = frozenset(own_packages)
        self._known: dict[str, bool] = {}  # modules, by whether they are a library's
        # an object that is kept keeps its address
        self._numbers: dict[int, tuple[int, Any]] = {}
        self._constants: dict[int, tuple[str | None, Any]] = {}
        self._outside = loaded_readers()
        self._attributes: set[str] = set()  # that some code reads
        self._passed: set[str] = set()  # modules of libraries that are values

    def digest(self, root: object, argument: str) -> str:
        """Return the digest of an object.

        Args:
            root: The object.
            argument: What it was given for.

        Raises:
            ConfigurationError: If a part of it has no rule.
        """
        try:
            digest = self._digest(root)
            for module in sorted(self._passed):
                self._refuse(
                    read_by(module, self._attributes), "code that it is given to"
                )
            return digest
        except _UnaccountedError as error:
            raise ConfigurationError(
                f"`{argument}` must hold only values that a digest can be made of; got "
                f"{error.got} ({error.reason}): name what it depends on with depends=, "
                "such as "
                "depends=pathlib.Path('data.npy') for the content of a file"
            ) from error.__cause__

    def _digest(self, root: object) -> str:
        content = hashlib.sha256()
        pending = [root]
        while pending:
            thing = pending.pop()
            try:
                words, parts = self._told(thing)
            except _UnaccountedError:
                if not self._is_named:
                    raise
                words, parts = f"named {_kind(thing)}", ()
            except ConfigurationError:
                raise
            except Exception as error:  # whatever a class of a user's raises
                if not self._is_named:
                    raise _UnaccountedError(shortened(thing), str(error)) from error
                words, parts = f"named {_kind(thing)}", ()
            text = f"{words} {len(parts)}".encode("utf-8", "surrogatepass")
            content.update(b"%d:%b" % (len(text), text))
            pending.extend(reversed(parts))
        return content.hexdigest()[:32]

    def _told(self, thing: object) -> Told:
        """Return the words of an object that was not met yet, and its parts."""
        constant = self._constant(thing)
        if constant is not None:
            return constant, ()
        if id(thing) in self._numbers:
            return f"again {self._numbers[id(thing)][0]}", ()
        self._numbers[id(thing)] = len(self._numbers), thing
        self._check_inside(thing)
        name = self._library_name(thing)
        if name is not None:
            return f"library {name}", self._patches(thing)
        if isinstance(thing, type):
            return self._class(thing)
        if isinstance(thing, types.ModuleType):
            return self._module(thing)
        rule = _RULES.get(type(thing), Walk._instance)
        return rule(self, thing)

    def _check_inside(self, thing: object) -> None:
        if id(thing) in self._outside:
            name, _ = self._outside[id(thing)]
            raise _UnaccountedError(name, _READS_OUTSIDE)

    def _constant(self, thing: object, depth: int = 0) -> str | None:
        """Return the words of a value that cannot change.

        A number, a text, code, tuples of them.
        Whether two of these are one object says nothing, and may differ between
        processes.
        """
        kind = type(thing)
        if kind in _ATOMS:
            return f"{kind.__name__} {_ATOMS[kind](thing)}"
        if kind not in _CONSTANTS or depth > _MOST_NESTED:
            return None
        if id(thing) not in self._constants:
            inner = [
                self._constant(part, depth + 1) for part in _CONSTANTS[kind](thing)
            ]
            words = [own for own in inner if own is not None]
            text = None
            if len(words) == len(inner):
                words = sorted(words) if kind is frozenset else words
                each = "".join(f"{len(own)}:{own}" for own in words)
                content = each.encode("utf-8", "surrogatepass")
                text = f"{kind.__name__} {digest_of(content)}"
            self._constants[id(thing)] = text, thing
        return self._constants[id(thing)][0]

    def is_library(self, name: str) -> bool:
        """Return whether a module is not a user's."""
        if name not in self._known:
            top = name.partition(".")[0]
            places = filter(None, map(_place, (name, top)))
            self._known[name] = top not in self._own and is_library(
                name, next(places, None)
            )
        return self._known[name]

    def _library_name(self, thing: Any) -> str | None:
        """Return the name by which an installed package offers an object.

        None if none does.
        """
        if isinstance(thing, types.ModuleType):
            return None
        kind = type(thing)
        if not isinstance(thing, type) and not self.is_library(_module_of(kind)):
            return None
        module = getattr(thing, "__module__", None)
        name = getattr(thing, "__qualname__", None)
        if isinstance(thing, _METHODS):
            module, name = _module_of(thing.__objclass__), thing.__qualname__
        if _kind_of(kind) == "numpy.ufunc":
            module, name = _module_with(thing.__name__, thing), thing.__name__
        if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
            return None
        if not self.is_library(module):
            return None
        offered: Any = sys.modules.get(module)
        for part in name.split("."):
            offered = getattr(offered, part, _MISSING)
        if offered is not thing:
            return None
        self._met_library(module)
        return f"{module}.{name}"

    def _patches(self, thing: object) -> list[Any]:
        """Return the functions of a user's that were put into a class of a library."""
        if not isinstance(thing, type):
            return []
        patches = []
        for function in vars(thing).values():
            if isinstance(function, types.FunctionType):
                module = str(function.__globals__.get("__name__", ""))
                if module in sys.modules and not self.is_library(module):
                    patches.append(function)
        return patches

    def _met_library(self, module: str) -> None:
        top = module.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in _PACKAGES:
            self.libraries[top] = None

    def _function(self, thing: types.FunctionType) -> Told:
        if thing.__code__ is _DISPATCH_CODE:  # it also holds a cache of what was called
            return "singledispatch", [dict(thing.registry)]  # type: ignore[attr-defined]
        module = str(thing.__globals__.get("__name__", "__main__"))
        cells = [_content(cell) for cell in thing.__closure__ or ()]
        parts = [thing.__defaults__, thing.__kwdefaults__, cells, _more(thing)]
        if self.is_library(module):
            self._met_library(module)
            return f"library function {module}.{thing.__code__.co_qualname}", parts
        self.modules[module] = None
        head = [thing.__qualname__, thing.__code__, _annotations(thing)]
        return "function", [*head, *parts, self._used(thing)]

    def _used(self, function: types.FunctionType) -> list[Any]:
        """Return the globals that a function uses, by name."""
        uses, attributes = names_used(function.__code__)
        self._attributes |= attributes
        used: list[object] = []
        for use in uses:
            if use.level < 0:
                used += self._global(function, use)
            else:
                used += self._imported(function, use, attributes)
        has_paths = any(_is_of_paths(function, use) for use in uses)
        methods = attributes & (PATH_METHODS if has_paths else READING_METHODS)
        if methods:
            self._refuse(f"pathlib.Path.{min(methods)}", function.__qualname__)
        return used

    def _global(self, function: types.FunctionType, use: Use) -> list[Any]:
        """Return a global by its name, or what is read of a module that it is."""
        if use.name in _OF_MODULES:
            return [use.name]
        if use.name == "globals":
            return [use.name, _Globals(function.__globals__)]
        thing = function.__globals__.get(use.name, _MISSING)
        if thing is _MISSING:
            thing = getattr(builtins, use.name, _MISSING)
        return self._read(function, use.name, thing, use.attributes)

    def _imported(
        self,
        function: types.FunctionType,
        use: Use,
        attributes: frozenset[str],
    ) -> list[Any]:
        """List the imports of a function that happen when it runs.

        A user's module is imported for that.
        """
        package = function.__globals__.get("__package__") or ""
        name = "." * use.level + use.name
        name = importlib.util.resolve_name(name, package) if use.level else name
        if self.is_library(name) or (name not in sys.modules and _is_installed(name)):
            self._met_library(name)
            outside = read_by(name, {*use.attributes, *attributes})
            self._refuse(outside, function.__qualname__)
            return [f"import {name}", list(use.attributes)]
        try:
            module: object = importlib.import_module(name)
        except Exception:  # it fails when the function runs, or is not needed there
            return [f"missing {name}"]
        if not use.attributes:
            return self._read(function, name, module, ())
        used: list[object] = []
        for attribute in use.attributes:
            if not hasattr(module, attribute) and _is_found(f"{name}.{attribute}"):
                importlib.import_module(f"{name}.{attribute}")
            used += self._read(function, name, module, (attribute,))
        return used

    def _read(
        self,
        function: types.FunctionType,
        name: str,
        thing: object,
        behind: tuple[str, ...],
    ) -> list[Any]:
        """Resolve a name, or the attributes behind it where it is a module."""
        holder = None
        place = 0
        while isinstance(thing, types.ModuleType) and place < len(behind):
            holder = thing
            if not self.is_library(holder.__name__):
                self.modules[holder.__name__] = None
            thing = getattr(thing, behind[place], _MISSING)
            name = f"{name}.{behind[place]}"
            place += 1
        if thing is _MISSING:
            return [f"missing {name}"]
        if holder is not None and self.is_library(holder.__name__):
            return self._of_library(function, name, thing, holder)
        return [name, thing]

    def _of_library(
        self,
        function: types.FunctionType,
        name: str,
        thing: object,
        holder: types.ModuleType,
    ) -> list[Any]:
        """Return an attribute of a library's module.

        By its name, unless a user can have set it.
        """
        self._met_library(holder.__name__)
        if id(thing) in self._outside:
            self._refuse(self._outside[id(thing)][0], function.__qualname__)
        elif isinstance(thing, types.ModuleType):
            return [name]
        elif self._is_own(thing) or _is_plain(thing):
            return [name, thing]
        return [name]

    def _refuse(self, outside: str | None, where: str) -> None:
        """Raise if something lies outside, unless `depends` names what that is."""
        if outside is not None and not self._is_named:
            raise _UnaccountedError(outside, f"{_READS_OUTSIDE}, in {where}")

    def _is_own(self, thing: object) -> bool:
        """Return whether an object is code of a user's, or wraps some."""
        for _ in range(_MOST_NESTED):
            if isinstance(thing, types.FunctionType):
                if not self.is_library(str(thing.__globals__.get("__name__", ""))):
                    return True
            elif not self.is_library(
                _module_of(thing if isinstance(thing, type) else type(thing))
            ):
                return True
            thing = getattr(thing, "__wrapped__", None)
            if thing is None:
                return False
        return True

    def _class(self, thing: type) -> Told:
        """Describe a class that no library offers by its name: all that it defines."""
        module = _module_of(thing)
        if not self.is_library(module):
            self.modules[module] = None
        defined = _more(thing)
        abstract = getattr(thing, "_abc_impl", None)
        virtual = (
            {ref() for ref in _virtual(thing)} - {None}
            if abstract is not None
            else set()
        )
        return "class", [
            thing.__qualname__,
            type(thing),
            thing.__bases__,
            defined,
            virtual,
            _pytree(thing),
        ]

    def _module(self, thing: types.ModuleType) -> Told:
        """Describe a module that is used as a whole by all that it defines."""
        if self.is_library(thing.__name__):
            self._met_library(thing.__name__)
            self._passed.add(thing.__name__)
            return f"library {thing.__name__}", ()
        self.modules[thing.__name__] = None
        place = pathlib.Path(getattr(thing, "__file__", None) or "")
        if place.suffix in (".so", ".pyd") and place.is_file():
            return f"extension {digest_of(place.read_bytes())}", ()
        return "module", [_Globals(vars(thing))]

    def _globals(self, thing: _Globals) -> Told:
        """Describe all globals of a module, sorted.

        Modules that are imported later add names.
        """
        inner = f"{thing.names.get('__name__')}."
        parts: list[object] = []
        for name in sorted(thing.names):
            value = thing.names[name]
            if name in _OF_MODULES:
                continue
            if not isinstance(value, types.ModuleType):
                parts += [name, value]
            elif self.is_library(value.__name__):
                self._met_library(value.__name__)
                parts += [name, value.__name__]
            elif not value.__name__.startswith(inner):
                parts += [name, value]
        return "globals", parts

    def _set(self, thing: Any) -> Told:
        """Describe elements by their digests, sorted.

        What they share among them says nothing.
        """
        elements = (
            set.__iter__(thing) if isinstance(thing, set) else frozenset.__iter__(thing)
        )
        before = self._numbers
        several = []
        for element in elements:
            self._numbers = dict(before)
            several.append(self._constant(element) or self._digest(element))
        self._numbers = before
        return (
            "set "
            f"{digest_of(' '.join(sorted(several)).encode('utf-8', 'surrogatepass'))}",
            (),
        )

    def _array(self, thing: Any) -> Told:
        """Describe an array of NumPy.

        Its type, its shape and its content, part by part.
        """
        import numpy as np  # --help must not wait for it

        plain = thing.view(np.ndarray)
        dtype = plain.dtype
        words = f"array {plain.shape}"
        if dtype.names is not None:  # bytes between its fields say nothing
            return words, [dtype, *(plain[name] for name in dtype.names)]
        if dtype.hasobject or dtype.kind == "T":  # its bytes are addresses
            return words, [dtype, plain.ravel().tolist()]
        return f"{words} {digest_of(plain.tobytes())}", [dtype]

    def _dtype(self, thing: Any) -> Told:
        fields = None
        if thing.names is not None:
            fields = [
                (name, thing.fields[name][1:], thing.fields[name][0])
                for name in thing.names
            ]
        words = f"dtype {thing!r} {thing.byteorder} {thing.itemsize} {thing.alignment}"
        return words, [fields, dict(thing.metadata or {})]

    def _scalar(self, thing: object) -> Told:
        """Describe a single value of NumPy."""
        import numpy as np

        return "scalar", [np.asarray(thing)]

    def _path(self, thing: pathlib.PurePath) -> Told:
        if not self._reads_paths:
            return "path", [str(thing)]
        path = pathlib.Path(thing)
        require(
            path.exists(),
            "depends",
            "must name files and folders that there are",
            str(path),
        )
        inner = sorted(path.rglob("*")) if path.is_dir() else [path]
        files = [
            (file, digest_of(file.read_bytes())) for file in inner if file.is_file()
        ]
        self.files += [(file.name, digest) for file, digest in files]
        return "path", [(str(file.relative_to(path)), digest) for file, digest in files]

    def _instance(self, thing: object) -> Told:
        """Describe a value of a class.

        What its built-in base holds, slots and attributes.
        """
        special = _special(thing)
        if special is not None:
            return special
        kind = type(thing)
        for base in kind.__mro__:
            for name in _FILLED_AT_FIRST_USE.get(_kind_of(base), ()):
                getattr(thing, name)
        # first: what pickle keeps differs once they are there
        attributes = _attributes(thing)
        derived = {
            name for base in kind.__mro__ for name in _DERIVED.get(_kind_of(base), ())
        }
        content: Told = ("", ())
        covered: tuple[type, ...] = (object,)
        for place, base in enumerate(kind.__mro__):
            ruled = _rule_of_base(kind, base)
            if ruled is not None:
                rule, base = ruled
                content, covered = (
                    rule(self, thing),
                    (*kind.__mro__[place:], *base.__mro__),
                )
                break
            if _has_hidden_state(base):
                # pickle keeps all that it holds, unless a class of a user's says
                # otherwise
                above = kind.__mro__[: place + 1]
                base = next(
                    (member for member in above if self.is_library(_module_of(member))),
                    base,
                )
                reduced = _without(_reduced(thing, base), derived)
                content, covered = ("reduced", [reduced]), base.__mro__
                break
        state = {
            name if base is None else f"{name} of {base.__qualname__}": member
            for (base, name), member in attributes.items()
            if base not in covered and name not in derived and name not in _NOT_TOLD
        }
        words, parts = content
        # a value of a class that reads files holds what it has read
        of = _kind_of(kind) if id(kind) in self._outside else kind
        return f"value {words}", [of, list(parts), state]


class _Globals:
    """All names of a module, as one object.

    Attributes:
        names: What they mean.
    """

    def __init__(self, names: dict[str, object]) -> None:
        self.names = names


_NOT_TOLD = frozenset(
    (
        "__dict__",
        "__weakref__",
        "__doc__",
        "__module__",
        "__firstlineno__",
        "__static_attributes__",
        "_abc_impl",
    )
)
"""Attributes of classes, functions and values that decide on no result."""
_OF_MODULES = frozenset(
    (
        "__name__",
        "__file__",
        "__doc__",
        "__package__",
        "__loader__",
        "__spec__",
        "__builtins__",
        "__cached__",
        "__path__",
        "__annotations__",
        "__warningregistry__",
    )
)
"""Globals that say where a module lies."""
_DERIVED: dict[str, tuple[str, ...]] = {
    "flax.Module": ("_id", "_state", "_parent_ref", "scope"),
    "flax.FrozenDict": ("_hash",),
    "numpy.memmap": ("_mmap", "filename", "offset", "mode"),
    "numpy.vectorize": ("_ufunc",),
    "pandas.NDFrame": ("_item_cache", "_cacher", "_is_copy"),
    "pandas.Index": ("_cache", "_engine", "_id", "_references"),
    "pandas.NoNewAttributesMixin": ("_cache",),
    "pandas.PandasObject": ("_cache",),
    "pandas.ExtensionArray": ("_cache",),
    "pandas.ExtensionDtype": ("_cache",),
    "xarray.Dataset": ("_cache", "_close"),
    "xarray.DataArray": ("_cache", "_close"),
}
"""Attributes that libraries fill as their objects are used."""

_FILLED_AT_FIRST_USE: dict[str, tuple[str, ...]] = {
    "numpy.MaskedArray": ("fill_value",),
    "xarray.Dataset": ("attrs", "encoding"),
    "xarray.Variable": ("attrs", "encoding"),
}
"""Properties that put a default into an attribute of the value when they are read."""


def _kind_of(kind: type) -> str:
    return f"{_module_of(kind).partition('.')[0]}.{kind.__qualname__}"


def _module_of(kind: type) -> str:
    """Return the name of a class's module; classes written in C may have none."""
    return kind.__module__ if isinstance(kind.__module__, str) else "builtins"


def _kind(thing: object) -> str:
    """Return the name of an object's class, or its own where it has one."""
    kind = thing if isinstance(thing, type) else type(thing)
    return f"{kind.__qualname__} {getattr(thing, '__qualname__', '')}"


def _more(thing: object) -> dict[str, Any]:
    """Return the attributes of a function or a class."""
    return {name: value for name, value in vars(thing).items() if name not in _NOT_TOLD}


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return _MISSING


def _module_with(name: str, thing: object) -> str | None:
    """Return the name of a loaded module that has an object by its name."""
    several = list(sys.modules.items())
    return next(
        (
            at
            for at, module in several
            if getattr(module, "__dict__", {}).get(name) is thing
        ),
        None,
    )


def _annotations(function: types.FunctionType) -> dict[str, Any]:
    return {
        name: getattr(hint, "__forward_arg__", hint)
        for name, hint in function.__annotations__.items()
    }


def _is_of_paths(function: types.FunctionType, use: Use) -> bool:
    """Return whether a name in a function is a path, or their class or module."""
    if use.level >= 0:
        return use.name == "pathlib"
    thing = function.__globals__.get(use.name)
    if isinstance(thing, type):
        return issubclass(thing, pathlib.PurePath)
    return thing is pathlib or isinstance(thing, pathlib.PurePath)


def _virtual(thing: type) -> Iterable[Any]:
    """Return references to the classes that were registered with an abstract one."""
    import _abc  # type: ignore[import-not-found]

    registered: Iterable[object] = _abc._get_dump(thing)[0]
    return registered


def _pytree(thing: type) -> Any:
    """Return the rule by which JAX flattens a class, None without one."""
    registry: dict[type, object] = getattr(
        sys.modules.get("jax._src.tree_util"), "_registry", {}
    )
    return registry.get(thing)


def _place(name: str) -> pathlib.Path | None:
    """Locate a loaded module; None if it has no place."""
    module = sys.modules.get(name)
    place = getattr(module, "__file__", None) or next(
        iter(getattr(module, "__path__", ())), None
    )
    return pathlib.Path(place) if place else None


def _is_installed(name: str) -> bool:
    """Return whether a module that is not loaded belongs to a library."""
    if not _is_found(name.partition(".")[0]):
        return False
    spec = importlib.util.find_spec(name.partition(".")[0])
    origin = getattr(spec, "origin", None)
    return is_library(name, pathlib.Path(origin) if origin else None)


def _is_found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _is_plain(thing: Any) -> bool:
    """Return whether a value is a number, a text, an array, or a container of such."""
    kind = type(thing)
    if kind in (list, tuple, set, frozenset):
        return all(map(_is_plain, thing))
    if kind is dict:
        return all(map(_is_plain, (*thing, *thing.values())))
    is_of_numpy = any(
        _module_of(base) == "numpy" and base.__name__ in _OF_NUMPY
        for base in kind.__mro__
    )
    return kind in _ATOMS or is_of_numpy or kind.__name__ == "ArrayImpl"


def _has_hidden_state(kind: type) -> bool:
    """Return whether a class holds more than its slots and attributes show.

    That is so of classes written in C: their values are larger than what Python can
    read of them.
    """
    base = kind.__base__
    if base is None:
        return False
    members_by_name = vars(kind)
    members = sum(
        isinstance(value, types.MemberDescriptorType)
        for value in members_by_name.values()
    )
    size = kind.__basicsize__ - base.__basicsize__ - 8 * members
    visible = 8 * (("__dict__" in members_by_name) + ("__weakref__" in members_by_name))
    return not 0 <= size <= visible or kind.__itemsize__ != base.__itemsize__


def _reduced(thing: Any, base: Any) -> Any:
    """Reduce a value as pickle would, as one of a library's class."""
    reducer: Any = copyreg.dispatch_table.get(type(thing))
    # one that another library has put there depends on whether that was imported
    if reducer is not None and not _is_own_reducer(reducer, type(thing)):
        reducer = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if reducer is not None:
            reduced = reducer(thing)
        elif base.__reduce_ex__ is not object.__reduce_ex__:
            reduced = base.__reduce_ex__(thing, 4)
        elif base.__reduce__ is not object.__reduce__:
            reduced = base.__reduce__(thing)
        elif getattr(base, "__getstate__", None) is not getattr(
            object, "__getstate__", None
        ):
            reduced = base.__getstate__(thing)
        else:
            raise _UnaccountedError(
                shortened(thing), f"no rule reads a {type(thing).__qualname__}"
            )
    if isinstance(reduced, str):  # a name, by which no module offers it
        raise _UnaccountedError(
            shortened(thing), f"no rule reads a {type(thing).__qualname__}"
        )
    if isinstance(reduced, tuple):
        return [list(part) if isinstance(part, Iterator) else part for part in reduced]
    return reduced


def _without(reduced: Any, names: set[str]) -> Any:
    """Leave derived attributes out of what pickle keeps."""
    if isinstance(reduced, list | tuple):
        parts = [_without(part, names) for part in reduced]
        # a value that was never used has no attributes, not an empty set of them
        return [part for part in parts if type(part) is not dict or part]
    if type(reduced) is dict and names:
        return {name: part for name, part in reduced.items() if name not in names}
    return reduced


def _is_own_reducer(reducer: Any, kind: type) -> bool:
    """Return whether what pickles a class is its library's or Python's."""
    library = str(getattr(reducer, "__module__", None)).partition(".")[0]
    own = _module_of(kind).partition(".")[0]
    return library in (own, "builtins") or library in sys.stdlib_module_names


def _attributes(thing: object) -> dict[tuple[type | None, str], Any]:
    """Return a value's slots by class and name, its attributes by None and name."""
    attributes: dict[tuple[type | None, str], object] = {}
    is_read = False
    for base in type(thing).__mro__:
        for name, member in vars(base).items():
            is_slot = isinstance(member, types.MemberDescriptorType)
            if name == "__dict__" and (
                is_slot or isinstance(member, types.GetSetDescriptorType)
            ):
                is_read = True
                attributes |= {
                    (None, attribute): value
                    for attribute, value in member.__get__(thing).items()
                }
            elif is_slot:
                with contextlib.suppress(AttributeError):  # it was never set
                    attributes[base, name] = member.__get__(thing)
    if type(thing).__dictoffset__ and not is_read:
        raise _UnaccountedError(shortened(thing), "its class hides its attributes")
    return attributes


def _of(words: str, *names: str) -> Callable[[Walk, Any], Told]:
    """Return the rule of a kind all of whose state lies in some attributes."""
    return lambda walk, thing: (words, [getattr(thing, name) for name in names])


def _constant_of_code(code: types.CodeType) -> list[Any]:
    counts = (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
    )
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return [code.co_code, code.co_exceptiontable, *counts, *names, code.co_consts]


def _builtin(walk: Walk, thing: Any) -> Told:
    """Describe a function in C, which may be a method of a value."""
    owner = thing.__self__
    if owner is None or isinstance(owner, types.ModuleType):
        module = str(thing.__module__ or getattr(owner, "__name__", ""))
        if not walk.is_library(module) and module:
            return f"builtin {thing.__qualname__}", [sys.modules.get(module)]
        return f"builtin {module}.{thing.__qualname__}", ()
    return f"builtin {thing.__name__}", [owner]


def _special(thing: Any) -> Told | None:
    """Describe a value of JAX, Numba or the library that has a rule of its kind."""
    kind = type(thing)
    top = _module_of(kind).partition(".")[0]
    if top in ("jax", "jaxlib"):
        return _of_jax(thing)
    if top == "numba" and hasattr(thing, "py_func"):
        return "numba", [thing.py_func, dict(thing.targetoptions), dict(thing.locals)]
    if isinstance(thing, typing.TypeVar):
        bound, kinds = thing.__bound__, thing.__constraints__
        return f"{thing!r}", [bound, kinds]
    if isinstance(thing, typing.ParamSpec | typing.TypeVarTuple):
        return f"{kind.__name__} {thing!r}", ()
    if isinstance(thing, weakref.ref):
        return "reference", [thing()]
    if (
        _module_of(kind) in ("_thread", "threading", "logging")
        and kind.__name__ != "_local"
    ):
        return f"{kind.__qualname__}", ()  # it decides on no result
    return None


def _of_jax(thing: Any) -> Told | None:
    jax: Any = sys.modules["jax"]
    name = type(thing).__name__
    if isinstance(thing, jax.core.Tracer):
        raise _UnaccountedError(shortened(thing), "a traced value has no digest")
    if isinstance(thing, jax.Array):
        import numpy as np

        if jax.numpy.issubdtype(thing.dtype, jax.dtypes.prng_key):
            return f"key {thing.dtype}", [np.asarray(jax.random.key_data(thing))]
        return f"jax array {thing.aval.weak_type}", [np.asarray(thing)]
    if name == "PjitFunction":
        state = thing.__getstate__()
        names = "fun", "static_argnums", "static_argnames", "global_cache_key"
        return "jit", [state[field] for field in names]
    if name in ("PyTreeDef", "Device", "Client"):
        return f"{name} {thing}", ()
    return None


def _local() -> types.CodeType:
    """Return the code that all functions of `functools.singledispatch` share."""

    @functools.singledispatch
    def any_kind(thing: object) -> object:
        return thing

    return any_kind.__code__  # type: ignore[attr-defined]


_DISPATCH_CODE = _local()
_METHODS = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)
_ATOMS: dict[type, Callable[[Any], str]] = {
    types.NoneType: repr,
    types.EllipsisType: repr,
    types.NotImplementedType: repr,
    bool: repr,
    int: lambda number: format(number, "x"),  # a text in decimals has a limit
    float: repr,
    complex: repr,
    str: repr,
    bytes: lambda content: f"{len(content)} {digest_of(content)}",
}
_CONSTANTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    tuple: list,
    frozenset: list,
    types.CodeType: _constant_of_code,
    slice: lambda thing: [thing.start, thing.stop, thing.step],
    range: lambda thing: [thing.start, thing.stop, thing.step],
}
_RULES: dict[type, Callable[[Walk, Any], Told]] = {
    int: lambda walk, thing: (f"int {int.__int__(thing):x}", ()),
    float: lambda walk, thing: (f"float {float.__float__(thing)!r}", ()),
    complex: lambda walk, thing: (f"complex {complex.__complex__(thing)!r}", ()),
    bytes: lambda walk, thing: (f"bytes {digest_of(bytes.__bytes__(thing))}", ()),
    str: lambda walk, thing: (f"str {str.__str__(thing)!r}", ()),
    bytearray: lambda walk, thing: ("bytearray", [bytes(thing)]),
    memoryview: lambda walk, thing: (
        "memoryview",
        [thing.format, thing.shape, thing.tobytes()],
    ),
    list: lambda walk, thing: ("list", list(list.__iter__(thing))),
    tuple: lambda walk, thing: ("tuple", list(tuple.__iter__(thing))),
    dict: lambda walk, thing: (
        "dict",
        [own for pair in dict.items(thing) for own in pair],
    ),
    types.MappingProxyType: lambda walk, thing: ("mapping", [dict(thing)]),
    set: Walk._set,
    frozenset: Walk._set,
    slice: _of("slice", "start", "stop", "step"),
    types.FunctionType: Walk._function,
    types.MethodType: _of("method", "__func__", "__self__"),
    types.BuiltinFunctionType: _builtin,
    types.MethodWrapperType: _of("wrapper", "__name__", "__self__"),
    **dict.fromkeys(_METHODS, _of("descriptor", "__name__", "__objclass__")),
    types.MemberDescriptorType: _of("slot", "__name__"),
    types.GetSetDescriptorType: _of("attribute", "__name__"),
    types.CellType: lambda walk, thing: ("cell", [_content(thing)]),
    _Globals: Walk._globals,
    _Missing: lambda walk, thing: ("missing", ()),
    property: _of("property", "fget", "fset", "fdel"),
    staticmethod: lambda walk, thing: ("staticmethod", [thing.__func__, _more(thing)]),
    classmethod: lambda walk, thing: ("classmethod", [thing.__func__, _more(thing)]),
    functools.cached_property: _of("cached_property", "func"),
    type(functools.cache(len)): lambda walk, thing: (
        "cache",
        [thing.__wrapped__, thing.cache_parameters(), _more(thing)],
    ),
    pathlib.PurePath: Walk._path,
}
"""The rule of each kind.

A class on top of one has its slots and attributes in addition.
"""
_OF_NUMPY: dict[str, Callable[[Walk, Any], Told]] = {
    "ndarray": Walk._array,
    "dtype": Walk._dtype,
    "generic": Walk._scalar,
}
"""Rules of classes of NumPy, by name: nothing here imports it."""


def _rule_of_base(
    kind: type, base: type
) -> tuple[Callable[[Walk, Any], Told], type] | None:
    """Find the rule of a value's base class, and the class that it is for."""
    if base in _RULES:
        return _RULES[base], base
    # NumPy's have layers below theirs
    if base.__module__ == "numpy" or _has_hidden_state(base):
        for ancestor in kind.__mro__:
            if ancestor.__module__ == "numpy" and ancestor.__name__ in _OF_NUMPY:
                return _OF_NUMPY[ancestor.__name__], ancestor
    return None
