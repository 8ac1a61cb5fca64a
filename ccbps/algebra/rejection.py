"""Spare draws for sampling by rejection: exact uniformity from a fixed budget of bytes.

15 of 16 first draws are kept, in `S5` (bytes below 240) and in `A5` (rows that are not zero). A
draw that is rejected is replaced from a reserve at the end of the sequence's bytes, and again,
until it is kept. Which draws are rejected says nothing about the values of those kept: so as long
as the reserve lasts, the result is exactly uniform. How much of the reserve a sequence needs is
random; the budgets leave slack so that it runs out with probability below 2^-64 (Chernoff's bound;
the tests compute it).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccbps.errors import SamplingError


class Reserve:
    """The spare draws of a batch of sequences, each handed out once, in order.

    Args:
        draws: shape (batch, ..., budget), any dtype.
    """

    def __init__(self, draws: NDArray[Any]) -> None:
        self._draws = draws
        self._used = np.zeros(len(draws), dtype=np.intp)

    def take(self, places: NDArray[np.intp], each: int) -> NDArray[Any]:
        """The next draw for each of `places`, counted through all sequences of `each` places.

        Args:
            places: ascending.

        Returns:
            shape (..., len(places)).

        Raises:
            SamplingError: a reserve is used up.
        """
        before = self._used
        if len(before) == 1:
            sequences, counts = None, np.array([len(places)])
        else:
            sequences = places // each
            counts = np.bincount(sequences, minlength=len(before))
        self._used = before + counts
        if self._used.max() > self._draws.shape[-1]:
            raise SamplingError(
                "random elements: too many draws were rejected (expected less than once in 2^64 "
                "sequences, unless the bytes are not random); give this round up and use another"
            )
        if sequences is None:
            fresh: NDArray[Any] = self._draws[0, ..., before[0] : self._used[0]]
            return fresh
        first = before - (np.cumsum(counts) - counts)
        draws = self._draws[sequences, ..., first[sequences] + np.arange(len(places))]
        return np.moveaxis(draws, 0, -1)
