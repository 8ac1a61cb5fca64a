"""Programs that compute a predicate: mod-2 branching programs over two parties' bits."""

from ccbps.programs.branching import (
    ONE,
    ZERO,
    BranchingProgram,
    Label,
    conjunction,
    constant,
    disjunction,
    event_bit,
    interest_bit,
    negation,
    parallel,
    series,
)
from ccbps.programs.comparison import (
    below_constant,
    equality,
    interval,
    less_than,
)
from ccbps.programs.counting import (
    at_least,
    at_least_size,
    hamming_within,
)

__all__ = [
    "ONE",
    "ZERO",
    "BranchingProgram",
    "Label",
    "at_least",
    "at_least_size",
    "below_constant",
    "conjunction",
    "constant",
    "disjunction",
    "equality",
    "event_bit",
    "hamming_within",
    "interest_bit",
    "interval",
    "less_than",
    "negation",
    "parallel",
    "series",
]
