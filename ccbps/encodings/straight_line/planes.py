"""Which kernel runs a straight-line program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccbps.compiled import rows_compiled
from ccbps.encodings.straight_line.array_planes import ArrayPlanes
from ccbps.encodings.straight_line.program import StraightLine

if TYPE_CHECKING:
    from ccbps.encodings.straight_line.compiled_planes import CompiledPlanes


def planes(program: StraightLine, batch: int) -> ArrayPlanes | CompiledPlanes:
    """What runs a program on a batch of so many rows, block by block."""
    if rows_compiled(
        batch, program.inputs + program.outputs, "encodings.straight_line.compiled_planes"
    ):
        from ccbps.encodings.straight_line.compiled_planes import CompiledPlanes

        return CompiledPlanes(program)
    return ArrayPlanes(program, batch)
