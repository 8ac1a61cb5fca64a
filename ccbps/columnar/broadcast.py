"""Answers for interests of rounds whose events, one for each round, the worker has already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccbps.arrays import Bools, Bytes, Index
from ccbps.columnar.pairs import examine_rows
from ccbps.errors import ParameterError
from ccbps.matching.contract.matcher import Matcher


@dataclass(frozen=True, slots=True)
class RoundEvents:
    """Event messages of rounds, which the broker sees anyway. Picklable.

    Attributes:
        matcher: whose messages these are; a broadcast.
        names: columns without NULL that together name a round.
        messages: binary, the event of each.
    """

    matcher: Matcher
    names: tuple[pa.Array, ...]
    messages: pa.Array

    def rows(self, names: Sequence[pa.Array]) -> Index:
        """Find the event of the rounds of these names, shape (rows,); -1 for none."""
        ours = np.zeros(len(self.messages), dtype=np.intp)
        theirs = np.zeros(len(names[0]), dtype=np.intp)
        for own, column in zip(self.names, names, strict=True):
            own = own.cast(column.type)
            values = pc.unique(own)
            codes = [
                pc.fill_null(pc.index_in(one, value_set=values), -1).to_numpy(zero_copy_only=False)
                for one in (own, column)
            ]
            # Numbered anew after each column, so that numbers stay small.
            found, ours = np.unique(ours * len(values) + codes[0], return_inverse=True)
            unknown = (theirs < 0) | (codes[1] < 0)
            theirs = _places(found, theirs * len(values) + codes[1])
            theirs[unknown] = -1
        numbers, first = np.unique(ours, return_index=True)
        place = _places(numbers, theirs)
        return np.where(place < 0, -1, first[place]) if len(first) else place

    def examine(self, interests: pa.Array, names: Sequence[pa.Array]) -> tuple[Bools, Bools, Bytes]:
        """Answer interests with the events of the rounds of these names; see `examine_rows`.

        Raises:
            ParameterError: a round has no event.
        """
        rows = self.rows(names)
        if (rows < 0).any():
            raise ParameterError(
                "the events changed while they were matched: a round has none any more; write "
                "them to a table first"
            )
        # Interests of one event together: its labels' key schedules serve all of them.
        order = np.argsort(rows, kind="stable")
        place = pa.array(order)
        found = examine_rows(
            self.matcher, None, self.messages.take(pa.array(rows[order])), interests.take(place)
        )
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        answers, valid, causes = found
        return answers[back], valid[back], causes[back]


def _places(values: Index, wanted: Index) -> Index:
    """Find numbers among ascending ones; -1 for those that are not there."""
    place = np.searchsorted(values, wanted)
    place[place == len(values)] = 0
    if not len(values):
        return np.full(len(wanted), -1, dtype=np.intp)
    return np.where(values[place] == wanted, place, -1)
