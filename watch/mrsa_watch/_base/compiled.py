"""Compiled loops for exact searches on the CPU.

XLA splits the small, branching steps of an elimination or an enumeration over threads
and loses most of its time there; such loops are compiled by numba instead. Modules of
compiled loops are imported only by the functions that use them, so that the package
starts without numba.

numba compiles a loop again for every type that it meets. Where int64 meets uint64,
products turn signed and comparisons are made in float64: residues of 61 bits lose their
last digits in silence. A loop in which uint64 meets signed integers, or a float
unasked, does not compile here, and none is loaded that was compiled without this check,
or with other loops or constants than today's.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import inspect
import operator
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

import numpy as np

from mrsa_watch._base.cache import cache_folder, may_write, say_not_kept
from mrsa_watch._base.numba_here import numba

# isort: split
from numba.core import ir, types as _types
from numba.core.caching import FunctionCache, NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError
from numba.core.runtime import rtsys
from numba.core.typed_passes import NopythonTypeInference

types: Any = _types  # its stubs know half of it
_COMPARISONS = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
)
_DIVISIONS = (operator.truediv, operator.itruediv)
_MAKERS = (np.full, np.full_like)  # a size is no part of what they hold


def _parts(source: Any) -> Iterator[Any]:
    """Yield the types of the numbers that something of a type holds."""
    if isinstance(source, types.BaseTuple):
        for part in source:
            yield from _parts(part)
    elif isinstance(source, types.Optional):
        yield from _parts(source.type)
    elif isinstance(source, types.Array | types.List | types.Set):
        yield from _parts(source.dtype)
    elif isinstance(source, types.Number | types.Boolean):
        yield source


def _is_unsigned(part: Any) -> bool:
    return isinstance(part, types.Integer) and not part.signed


def _is_wide(part: Any) -> bool:
    return _is_unsigned(part) and part.bitwidth == 64


def _is_mixed(operation: Any, sources: Iterable[Any]) -> bool:
    """Return whether uint64 meets other kinds; comparing with a constant is exact."""
    met = [part for source in sources for part in _parts(source)]
    if operation in _COMPARISONS:
        met = [part for part in met if not _is_small_constant(part)]
    return any(map(_is_wide, met)) and not all(map(_is_unsigned, met))


def _is_small_constant(part: Any) -> bool:
    return isinstance(part, types.IntegerLiteral) and 0 <= part.literal_value < 2**53


def _is_lost(target: Any, sources: Iterable[Any]) -> bool:
    """Return whether a float is made of uint64, or of nothing but integers."""
    defined = [source for source in sources if source is not types.undefined]
    if isinstance(target, types.BaseTuple):
        tuples = [source for source in defined if isinstance(source, types.BaseTuple)]
        return any(
            _is_lost(part, [each[k] for each in tuples])
            for k, part in enumerate(target)
        )
    if not isinstance(target, types.Float):
        return False
    is_whole = all(isinstance(source, types.Integer) for source in defined)
    return (bool(defined) and is_whole) or any(map(_is_wide, defined))


@register_pass(mutates_CFG=False, analysis_only=True)
class _IntegersStay(AnalysisPass):
    _name = "integers_stay"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Raise where an operation, variable or result mixes or loses integers."""
        typemap = state.typemap
        returned = []
        for block in state.func_ir.blocks.values():
            for statement in block.find_insts(ir.Assign):
                value = statement.value
                target = typemap[statement.target.name]
                if not isinstance(value, ir.Expr):
                    continue
                sources = [typemap[var.name] for var in value.list_vars()]
                if value.op == "cast":
                    returned += sources
                elif _is_refused(value, typemap, target, sources):
                    raise TypingError(_message(sources), loc=statement.loc)
        if _is_lost(state.return_type, returned):
            raise TypingError(_message(returned), loc=state.func_ir.loc)
        return False


def _is_refused(value: Any, typemap: Any, target: Any, sources: list[Any]) -> bool:
    if value.op in ("binop", "inplace_binop"):
        if value.fn in _DIVISIONS:
            return False
        return _is_mixed(value.fn, sources) or _is_lost(target, sources)
    if value.op == "call":  # of a function such as min or np.where, not of a type
        function = typemap[value.func.name]
        is_known = (
            isinstance(function, types.Function) and function.typing_key not in _MAKERS
        )
        return is_known and _is_mixed(None, sources)
    if value.op in ("build_list", "build_set"):
        return _is_mixed(None, sources)
    return value.op == "phi" and _is_lost(target, sources)


def _message(sources: Iterable[Any]) -> str:
    met = dict.fromkeys(str(part) for source in sources for part in _parts(source))
    return f"integers must be of one kind in a compiled loop; {', '.join(met)} meet"


# LLVM takes half of the width of AVX-512 on Intel's processors, which were slower with
# all of it when that was decided. Where there is no AVX-512 this asks for nothing.
_VECTORS = '"prefer-vector-width"="512"'


class _Loop(JITCodeLibrary):
    """Code that is optimised once: as a whole, after all of its parts are in it."""

    def add_ir_module(self, ir_module: Any) -> None:
        """Add functions, whose vectors are as wide as the processor's."""
        for function in ir_module.functions:
            if not function.is_declaration:
                # llvmlite's own `add` knows only attributes without a value
                set.add(function.attributes, _VECTORS)
        super().add_ir_module(ir_module)

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout


class _Part(_Loop):
    """Code that is only a part of other loops, which make machine code of it."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        self._ensure_finalized()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "external":
                function.linkage = "linkonce_odr"
        return self._final_module


@contextlib.contextmanager
def _of_parts(codegen: Any) -> Iterator[None]:
    """Let functions that a loop calls, also numba's, be compiled as its parts.

    Meanwhile memory is not searched for what numba no longer holds: it makes millions
    of objects.
    """
    set_address = codegen.set_env
    collects = gc.isenabled()

    def set_if_there(name: str, env: Any) -> None:
        if codegen._engine.get_global_value_address(name):
            set_address(name, env)

    codegen._library_class = _Part
    codegen.set_env = set_if_there
    gc.disable()
    try:
        yield
    finally:
        del codegen._library_class, codegen.set_env
        if collects:
            gc.enable()


class IntegerCompiler(CompilerBase):
    """numba's own compiler with a check of integers and one machine code per loop.

    numba optimises each function that a loop calls by itself, makes machine code of it
    that nobody runs, and does so again for the loop that it is a part of.
    """

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_IntegersStay, NopythonTypeInference)
        passes.finalize()
        return [passes]

    def compile_extra(self, func: Any) -> Any:
        """Compile a loop, or what is only a part of the loop that is being compiled."""
        context = self.state.targetctx
        codegen = context.codegen()
        if codegen._library_class is _Part:
            return super().compile_extra(func)
        rtsys.initialize(context)  # no part of a loop
        self.state.library = _Loop(codegen, func.__qualname__)
        self.state.library.enable_object_caching()
        with _of_parts(codegen):
            return super().compile_extra(func)


def call_by_part(loop: Any, part: Any) -> None:
    """Let other loops call a loop's part, compiled once for each kind of integer.

    A constant among the arguments is a separate type for numba, which would compile it
    again.
    """

    def template(args: Any, kws: Any) -> Any:
        named = {name: types.unliteral(each) for name, each in kws.items()}
        return part.get_call_template(tuple(map(types.unliteral, args)), named)

    def add(result: Any) -> None:  # without an entry for Python
        part.overloads[tuple(result.signature.args)] = result

    loop.part = part
    part.add_overload = add
    loop.get_call_template = template
    loop.get_overload = part.get_overload


class LoopCache(FunctionCache):
    """numba's cache of machine code, without entries that a change makes void.

    numba looks at a function's own file alone; loops that it calls and constants from
    elsewhere are part of its machine code as well.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kept machine code; None if there is none that can be read."""
        try:
            return super().load_overload(sig, target_context)
        # of a damaged, foreign or half-written entry: anything
        except Exception as error:
            with contextlib.suppress(Exception):
                self.flush()  # so that it is made again
            why = f"{type(error).__name__}: {error}"
            say_not_kept(_FOLDER, f"an entry cannot be read: {why}")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, where that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:  # a full disk, a folder that was taken away
            say_not_kept(_FOLDER, f"{type(error).__name__}: {error}")

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), _CHECK, self._digest)

    @functools.cached_property
    def _digest(self) -> str:
        parts = sorted(_compiled_in(self._py_func, {}).values())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


_FOLDER = "NUMBA_CACHE_DIR"
_CHECK = hashlib.sha256(inspect.getsource(sys.modules[__name__]).encode()).hexdigest()


def _compiled_in(function: Any, parts: dict[Any, str]) -> dict[Any, str]:
    """Return the code in a function's machine code, with that of all it calls."""
    if function not in parts:
        text, names = _code(function.__code__)
        values = {name: function.__globals__.get(name) for name in sorted(set(names))}
        parts[function] = text + "".join(
            f"; {name} {type(value).__name__} {value!r}"
            for name, value in values.items()
            if isinstance(value, int | float | str | tuple | np.generic)
        )
        for value in values.values():
            if isinstance(value, Dispatcher):
                _compiled_in(value.py_func, parts)
    return parts


def _code(code: CodeType) -> tuple[str, list[str]]:
    """Return bytecode with its constants, and the names that it uses."""
    text = f"{code.co_name} {code.co_code.hex()}"
    names = list(code.co_names)
    for value in code.co_consts:
        inner = repr(value)
        if isinstance(value, CodeType):
            inner, more = _code(value)
            names += more
        text += f", {inner}"
    return text, names


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function of NumPy arrays and integers; it runs without Python's lock.

    The machine code is kept between runs, next to the source or in `NUMBA_CACHE_DIR`.
    It contains all that the function calls: a loop called by another is a part of that
    one's machine code, and has its own only once Python calls it. Other types of
    arguments compile the function again; types whose integers would meet in a float
    (int64 and uint64) raise numba's `TypingError`.

    Raises:
        ConfigurationError: If numba is not there.
    """
    # A type checker may have wrapped the function on import; the loop itself is
    # compiled.
    plain = inspect.unwrap(function)
    settings: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "no_cfunc_wrapper": True,
        "pipeline_class": IntegerCompiler,
    }
    loop = numba.njit(plain, **settings)
    call_by_part(loop, numba.njit(plain, no_cpython_wrapper=True, **settings))
    loop._cache = _cache_of(loop.py_func)
    return loop


def _cache_of(function: Callable[..., Any]) -> Any:
    """Return the cache of a function's machine code, which may keep nothing."""
    folders = [pathlib.Path(inspect.getfile(function)).parent / "__pycache__"]
    if numba.config.CACHE_DIR:
        folders.append(pathlib.Path(numba.config.CACHE_DIR))
    # numba would make a folder called ~ for a user without a home
    if cache_folder() is not None or any(map(may_write, folders)):
        with contextlib.suppress(RuntimeError):  # of numba, which found no folder
            return LoopCache(function)
    say_not_kept(_FOLDER, "no folder for it can be written")
    return NullCache()
