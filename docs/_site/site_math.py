"""Formulas as MathML, which browsers draw by themselves.

No script, no fonts, no network.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def _inline(writer: Any, node: nodes.math) -> None:
    formula = convert(node.astext(), display="inline")
    writer.body.append(f'<span class="formula-inline">{formula}</span>')
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(
        f'<div class="formula">{convert(node.astext(), display="block")}</div>'
    )
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Register the renderer that `html_math_renderer` names."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
