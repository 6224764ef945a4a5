"""Refuses compiled loops in which signed integers meet unsigned ones, or become floats unasked.

numba compiles a loop again for every type that it meets. Where int64 meets uint64, products turn
signed and comparisons are made in float64: residues of 61 bits lose their last digits in silence.
Such a loop does not compile here.

Import inside functions only (see `_compiled`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from numba.core import ir
from numba.core import types as _types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.errors import TypingError
from numba.core.typed_passes import NopythonTypeInference

types: Any = _types  # its stubs know half of it
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


def _is_mixed(operation: Any, sources: Iterable[Any]) -> bool:
    """Return whether uint64 meets a signed integer; a comparison with a small constant is exact."""
    whole = [source for source in sources if isinstance(source, types.Integer)]
    if operation in _COMPARISONS:
        whole = [source for source in whole if not _is_small_constant(source)]
    return types.uint64 in whole and any(source.signed for source in whole)


def _is_small_constant(source: Any) -> bool:
    return isinstance(source, types.IntegerLiteral) and 0 <= source.literal_value < 2**53


def _is_lost(target: Any, sources: Iterable[Any]) -> bool:
    """Return whether a float is made of nothing but integers."""
    if isinstance(target, types.BaseTuple):
        kept = list(sources)
        return any(
            _is_lost(part, [own[k] for own in kept if isinstance(own, types.BaseTuple)])
            for k, part in enumerate(target)
        )
    own = list(sources)
    is_whole = bool(own) and all(isinstance(source, types.Integer) for source in own)
    return is_whole and isinstance(target, types.Float)


@register_pass(mutates_CFG=False, analysis_only=True)
class _IntegersStay(AnalysisPass):
    _name = "integers_stay"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Raise where an operation, a variable or the result turns integers into a float."""
        typemap, returned = state.typemap, []
        for block in state.func_ir.blocks.values():
            for statement in block.find_insts(ir.Assign):
                value, target = statement.value, typemap[statement.target.name]
                if not isinstance(value, ir.Expr):
                    continue
                sources = [typemap[var.name] for var in value.list_vars()]
                if value.op == "cast":
                    returned += sources
                    continue
                if value.op in ("binop", "inplace_binop"):
                    if value.fn in (operator.truediv, operator.itruediv):
                        continue
                    is_lost = _is_mixed(value.fn, sources) or _is_lost(target, sources)
                elif value.op == "call":
                    key = getattr(typemap[value.func.name], "typing_key", None)
                    is_lost = key in (min, max) and _is_lost(target, sources[1:])
                else:
                    chosen = [own for own in sources if own is not types.undefined]
                    is_lost = value.op == "phi" and _is_lost(target, chosen)
                if is_lost:
                    raise TypingError(_message(sources), loc=statement.loc)
        if _is_lost(state.return_type, returned):
            raise TypingError(_message(returned), loc=state.func_ir.loc)
        return False


def _message(sources: Iterable[Any]) -> str:
    met = ", ".join(dict.fromkeys(str(source) for source in sources))
    return f"integers must be of one kind in a compiled loop; {met} meet"


class IntegerCompiler(CompilerBase):
    """numba's own compiler, and the check after its inference of types."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_IntegersStay, NopythonTypeInference)
        passes.finalize()
        return [passes]
