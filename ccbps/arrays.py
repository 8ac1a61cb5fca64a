"""Array types, and slices of arrays, which all layers share."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bools: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]
Index: TypeAlias = NDArray[np.signedinteger[Any]]
"""Places in another array."""
Numbers: TypeAlias = NDArray[np.int64]
Ranks: TypeAlias = NDArray[np.uint8]
"""Elements of a small group, by rank."""
Reals: TypeAlias = NDArray[np.float64]
Rounds: TypeAlias = NDArray[np.uint64]
Words: TypeAlias = NDArray[np.uint64]

Randomness: TypeAlias = Callable[[int], bytes]
"""Source of uniform bytes: ``randomness(n)`` returns n fresh ones. The default is the operating
system's; tests pass their own."""


def slices(count: int, size: int) -> Iterator[slice]:
    """Cut `count` rows into slices of `size` rows, the last one perhaps of fewer."""
    for start in range(0, count, max(1, size)):
        yield slice(start, min(start + max(1, size), count))
