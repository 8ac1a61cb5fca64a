"""Names of the array types that all layers hand to each other."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bools: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]
Index: TypeAlias = NDArray[np.signedinteger[Any]]
"""Places in another array."""
Numbers: TypeAlias = NDArray[np.int64]
Ranks: TypeAlias = NDArray[np.uint8]
"""Elements of a small group by their place in it."""
Reals: TypeAlias = NDArray[np.float64]
Rounds: TypeAlias = NDArray[np.uint64]
Words: TypeAlias = NDArray[np.uint64]

Randomness: TypeAlias = Callable[[int], bytes]
"""``randomness(n)``: n fresh uniform bytes; the operating system's unless a test says otherwise."""
