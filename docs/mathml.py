"""Sphinx extension that sets formulas as MathML, which browsers display by themselves.

No script is loaded from elsewhere, so pages read the same without a network.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def inline(self: Any, node: nodes.math) -> None:
    """Set a formula in a line."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    """Set a formula on lines of its own."""
    text = node.astext()
    if r"\\" in text:
        text = rf"\begin{{align*}}{text}\end{{align*}}"
    self.body.append(f'<div class="math">{convert(text, display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True}
