"""Boolean circuits: building blocks, rewriting, sorting networks, universal circuits, files."""

from ccbps.circuits.circuit import Circuit, CircuitBuilder, Gate, Op, Wire
from ccbps.circuits.rewriting import balance, fix_inputs, negation_normal_form, pad, without_xor

__all__ = [
    "Circuit",
    "CircuitBuilder",
    "Gate",
    "Op",
    "Wire",
    "balance",
    "fix_inputs",
    "negation_normal_form",
    "pad",
    "without_xor",
]
