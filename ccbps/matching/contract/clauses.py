"""The walk over clauses: an interest is an AND of clauses, and a clause an OR of alternatives.

The walk looks further only where the answer is open: a pair of an event and an interest ends at the
first clause that does not hold, and a clause at the first alternative that does. The first clause
decides most pairs, so it is tried with all of them, without indices. The time shows the answers,
which the broker knows anyway.

- `all_of` walks from clause to clause. A clause may be anything: `TagMatch`'s are sets of keys.
- `Alternatives` walks in each clause from alternative to alternative, too. A scheme of words
  derives from it, says how to test a word with all events and with one event for each interest,
  and calls `answers`.

Both rely on order: clauses in use come before unused ones, and so do a clause's alternatives. A
broker refuses interests that do not keep it (`gaps`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from ccbps.arrays import Bools, Index

Test = Callable[[Index, Index], Bools]
"""Function of pairs: ``test(event, interest)`` is True for those in which a clause holds."""


def all_of(first: Bools, further: Iterable[tuple[Test, Bools | None]]) -> Bools:
    """Return the pairs in which all clauses hold, shape (events, interests).

    Args:
        first: True where the first clause holds, shape (events, interests), C-contiguous. It is
            changed, and returned.
        further: for each further clause its test, and True for the interests that have it; None if
            all have it. Interests without a clause have none after it, either.
    """
    flat, width = first.reshape(-1), first.shape[1]
    pairs: Index | None = None
    for test, used in further:
        if pairs is None:
            pairs = np.flatnonzero(first if used is None else first & used)
            event = pairs // width
        else:
            event = pairs // width
            if used is not None:
                chosen = np.flatnonzero(used.take(pairs - event * width))
                pairs, event = pairs.take(chosen), event.take(chosen)
        if not len(pairs):
            break
        holds = test(event, pairs - event * width)
        flat[pairs] = holds
        pairs = pairs[holds]
    return first


class Alternatives(ABC):
    """Some events with some interests, whose clauses are alternatives.

    Args:
        events: number of events.
        used: True for alternatives in use, shape (clauses, slots, interests).
    """

    def __init__(self, events: int, used: Bools) -> None:
        self.events, self.used = events, used

    @abstractmethod
    def all_pairs(self, clause: int, slot: int, interests: Index | None) -> Bools:
        """Return the pairs in which an alternative holds, (events, interests), contiguous.

        Args:
            clause: place of the clause.
            slot: place of the alternative in the clause.
            interests: places of the interests; None for all.
        """

    @abstractmethod
    def pairs(self, clause: int, slot: int, event: Index, interest: Index) -> Bools:
        """Return True where an alternative of interest[i] holds for event[i]."""

    def answers(self) -> Bools:
        """Return the pairs in which all clauses hold, shape (events, interests)."""
        further = (
            (partial(self._holds, clause), used[0])
            for clause, used in enumerate(self.used)
            if clause and used[0].any()
        )
        return all_of(self._first(), further)

    def _first(self) -> Bools:
        """Return the pairs in which the first clause holds, of all pairs."""
        out = np.empty((self.events, self.used.shape[2]), dtype=np.bool_)
        out[:] = ~self.used[0, 0]
        for slot, used in enumerate(self.used[0]):
            count = np.count_nonzero(used)
            if not count:
                break
            left = np.flatnonzero(used & ~out) if slot else None
            # Pairs taken one by one cost twice what they do in rows.
            if left is not None and not len(left):
                continue
            if left is not None and 2 * len(left) < self.events * count:
                event = left // len(used)
                interest = left - event * len(used)
                out.reshape(-1)[left] = self.pairs(0, slot, event, interest)
            elif count == len(used):
                holds = self.all_pairs(0, slot, None)
                out = np.logical_or(out, holds, out=out) if slot else holds
            else:
                columns = np.flatnonzero(used)
                out[:, columns] |= self.all_pairs(0, slot, columns)
        return out

    def _holds(self, clause: int, event: Index, interest: Index) -> Bools:
        """Return True where a clause holds, for pairs whose interests all have it."""
        holds = self.pairs(clause, 0, event, interest)
        for slot, used in enumerate(self.used[clause][1:], 1):
            left = np.flatnonzero(used.take(interest) & ~holds)
            if not len(left):
                break
            holds[left] = self.pairs(clause, slot, event.take(left), interest.take(left))
        return holds


def gaps(used: Bools) -> Bools:
    """Return the interests that use a clause or slot after an unused one.

    The walk stops at an interest's first clause that is not used, and at the first one that no
    interest of a table uses. Past a gap the answer to one interest would depend on the others.

    Args:
        used: True for slots in use, shape (interests, clauses, slots).
    """
    first = used[:, :, 0]
    inside = (used[:, :, 1:] & ~used[:, :, :-1]).any(axis=(1, 2))
    return np.asarray(inside | (first[:, 1:] & ~first[:, :-1]).any(axis=1), dtype=np.bool_)
