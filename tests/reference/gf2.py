"""Slow twin: determinants over GF(2) by elimination with row exchanges."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def determinant(matrix: NDArray[np.uint8]) -> bool:
    """Return whether a square 0/1 matrix is invertible mod 2."""
    rows = matrix.astype(np.bool_)
    for column in range(len(rows)):
        pivots = column + np.flatnonzero(rows[column:, column])
        if not len(pivots):
            return False
        rows[[column, pivots[0]]] = rows[[pivots[0], column]]
        below = column + 1 + np.flatnonzero(rows[column + 1 :, column])
        rows[below] ^= rows[column]
    return True
