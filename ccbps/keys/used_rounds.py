"""A ledger of used numbers: rounds, events, and others that name one use of a secret.

Hazard: this ledger is in memory and lives as long as its role. A new role for the same seed must
not get rounds that an earlier role has used. `ccbps.rounds.disk_ledger.DiskLedger` remembers across
roles, processes and restarts. After a fork the ledger refuses in the child, which would otherwise
use the rounds that its parent uses.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Lock
from typing import Final, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccbps.arrays import Rounds
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.keys.secret import Confined

ROUND_RULE: Final = (
    "each round encodes one event and one predicate, once: encode under a fresh round"
)
"""Rule for the use of a round, in errors."""
_PADS_AND_DISKS: Final = (
    "Make the role in the child, with a pad that it has loaded itself, for {noun}s that no other "
    "process uses; or give the roles of all processes one ledger on disk, ledger=path"
)

_ONE: Final = np.uint64(1)

_Intervals: TypeAlias = tuple[NDArray[np.intp], Rounds, Rounds]
"""Disjoint intervals, sorted by pair and first round: columns pair, first, last."""

_forks = 0
"""Number of forks between the first process and this one. A process id may be reused, this number
is not."""


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def this_process() -> tuple[int, int]:
    """Return a value that is the same within one process, and another in a forked child.

    A process id does not suffice: in a namespace of its own, a child's may equal its parent's.
    """
    return os.getpid(), _forks


class RoundLedger(Confined):
    """The rounds, or other numbers, that a role has used, pair by pair. None may be used again.

    They are kept as intervals, so consecutive numbers take little memory, and a whole batch is
    checked at once. Several threads may use one ledger.

    Args:
        noun: name of a number in errors.
        rule: rule of its use, for errors.
        holder: user of the numbers, for errors.
        after_fork: advice for a forked child, for errors.
        first: first number that is free, at most 2^64. An earlier role may have used smaller ones.
    """

    def __init__(
        self,
        noun: str = "round",
        rule: str = ROUND_RULE,
        holder: str = "this role",
        after_fork: str = _PADS_AND_DISKS,
        first: int = 0,
    ) -> None:
        self._noun, self._rule, self._holder = noun, rule, holder
        self._after_fork, self._first = after_fork.format(noun=noun), first
        self._pairs: dict[str | None, int] = {}
        self._used: _Intervals = (
            np.empty(0, dtype=np.intp),
            np.empty(0, dtype=np.uint64),
            np.empty(0, dtype=np.uint64),
        )
        self._lock, self._process = Lock(), this_process()

    @property
    def forked(self) -> bool:
        """True in a forked child, whose parent goes on with this ledger."""
        return self._process != this_process()

    @property
    def next(self) -> int:
        """Number after the greatest that any pair has used; `first` if there is none."""
        last = self._used[2]
        return max(self._first, int(last.max()) + 1) if len(last) else self._first

    def check(
        self,
        rounds: Rounds,
        pairs: DictionaryColumn[str] | None = None,
        *,
        inherited: bool = False,
    ) -> None:
        """Raise the errors of `claim`, and change nothing.

        Args:
            rounds: numbers, shape (batch,).
            pairs: pair of each row; None for a role of one pair.
            inherited: True to check, in a forked child, against the numbers used before the fork,
                rather than refuse.
        """
        if inherited and self.forked:
            # Without the lock, which the parent may have held; intervals are replaced as a whole.
            self._with(rounds, pairs)
            return
        self._refuse_fork()
        with self._lock:
            self._with(rounds, pairs)

    def claim(self, rounds: Rounds, pairs: DictionaryColumn[str] | None = None) -> None:
        """Mark rounds as used: all of them, or none when it raises.

        Args:
            rounds: numbers, shape (batch,).
            pairs: pair of each row; None for a role of one pair.

        Raises:
            RandomnessReuseError: a pair's number was used before, or occurs twice (the error names
                both); or the process has forked since the ledger was made.
        """
        self._refuse_fork()
        with self._lock:
            self._used = self._with(rounds, pairs)

    def take(self, count: int) -> Rounds:
        """Claim and return the next `count` numbers, for a role of one pair, shape (count,).

        Raises:
            RandomnessReuseError: fewer are left below 2^64, or the process has forked since the
                ledger was made. None is taken.
        """
        self._refuse_fork()
        with self._lock:
            start = self.next
            if start + count > 1 << 64:
                raise RandomnessReuseError(
                    f"the counter stands at {start} and has no {count} numbers left below 2^64: "
                    f"give {self._noun}s that were not used"
                )
            taken = np.arange(count, dtype=np.uint64)
            if count:
                taken += np.uint64(start)
            self._used = self._with(taken, None)
        return taken

    def _refuse_fork(self) -> None:
        # Before the lock, which the parent may have held when it forked.
        if self.forked:
            raise RandomnessReuseError(
                "this process was forked after the role, or its one-time pad, was made: parent "
                f"and child would use one {self._noun} twice. {self._after_fork}"
            )

    def _with(self, rounds: Rounds, pairs: DictionaryColumn[str] | None) -> _Intervals:
        """Return the intervals with a batch added."""
        if not len(rounds):
            return self._used
        if self._first and int(rounds.min()) < self._first:
            raise RandomnessReuseError(
                f"{self._noun} {rounds.min()} may have been used before {self._holder}'s key was "
                f"saved: give numbers from {self._first} on"
            )
        names: Sequence[str | None] = [None] if pairs is None else pairs.values
        numbers = [self._pairs.setdefault(name, len(self._pairs)) for name in names]
        start, stop, count = rounds.item(0), rounds.item(-1), len(rounds)
        ascending = count < 3 or bool((rounds[1:] > rounds[:-1]).all())
        if len(names) == 1 and stop - start == count - 1 and ascending:
            return self._with_run(numbers[0], start, stop)
        owner = np.array(numbers, dtype=np.intp)
        owner = owner[np.zeros(len(rounds), np.intp) if pairs is None else pairs.index]
        if len(names) > 1 or not ascending or stop <= start:
            order = np.lexsort((rounds, owner))
            owner, rounds = owner[order], rounds[order]
        same = owner[1:] == owner[:-1]
        self._refuse(
            same & (rounds[1:] == rounds[:-1]),
            owner,
            rounds,
            "occurs more than once in this batch",
            ", or name the subscriptions of a round by pairs=",
        )
        batch = _joined(owner, rounds, rounds)
        parts = [np.concatenate(columns) for columns in zip(self._used, batch, strict=True)]
        order = np.lexsort((parts[1], parts[0]))
        owner, first, last = (part[order] for part in parts)
        # Both sides are disjoint, so a round in both makes two neighbours overlap.
        overlap = (owner[1:] == owner[:-1]) & (first[1:] <= last[:-1])
        self._refuse(overlap, owner, first, f"was already used by {self._holder}")
        return _joined(owner, first, last)

    def _with_run(self, number: int, start: int, stop: int) -> _Intervals:
        """Return the intervals with the rounds from `start` to `stop` of one pair added.

        Nothing is sorted, as most calls bring one round, or a few that follow one another.
        """
        owner, first, last = self._used
        low, high = 0, len(owner)
        if len(self._pairs) > 1:
            low, high = owner.searchsorted([number, number + 1])
        place = high  # of the interval that follows
        if high > low and last.item(high - 1) >= start:
            place = low + int(first[low:high].searchsorted(np.uint64(start), side="right"))
        # Neighbours; where there is none, one that is far away.
        end = last.item(place - 1) if place > low else -2
        begin = first.item(place) if place < high else 1 << 65
        if end >= start or begin <= stop:
            again = start if end >= start else begin
            self._refuse_round(number, again, f"was already used by {self._holder}")
        before, after = end + 1 == start, begin == stop + 1
        if before and not after:  # the common case
            last = last.copy()
            last[place - 1] = stop
            return owner, first, last
        left, right = place - before, place + after
        values = number, int(first[left]) if before else start, int(last[place]) if after else stop
        columns = [
            np.concatenate([column[:left], np.array([value], column.dtype), column[right:]])
            for column, value in zip(self._used, values, strict=True)
        ]
        return columns[0], columns[1], columns[2]

    def _refuse(
        self,
        wrong: NDArray[np.bool_],
        owner: NDArray[np.intp],
        rounds: Rounds,
        reason: str,
        hint: str = "",
    ) -> None:
        """Raise an error if a round does not fit the one before it: about the first that does not.

        Args:
            wrong: for each round but the first, whether it does not fit.
            owner: place of each round's pair.
            rounds: the rounds, in order.
            reason: reason, as the error says it.
            hint: end of the error for rounds that belong to no named pair.
        """
        if wrong.any():
            row = int(np.argmax(wrong)) + 1
            self._refuse_round(int(owner[row]), int(rounds[row]), reason, hint)

    def _refuse_round(self, owner: int, number: int, reason: str, hint: str = "") -> NoReturn:
        name = next(name for name, place in self._pairs.items() if place == owner)
        pair = "" if name is None else f"pair {name!r}: "
        hint = hint if name is None and self._noun == "round" else ""
        raise RandomnessReuseError(f"{pair}{self._noun} {number} {reason}; {self._rule}{hint}")


def _joined(owner: NDArray[np.intp], first: Rounds, last: Rounds) -> _Intervals:
    """Merge the touching ones of sorted disjoint intervals."""
    apart = np.ones(len(owner), dtype=np.bool_)
    # Differences of neighbours are positive within a pair, so they do not wrap around.
    apart[1:] = (owner[1:] != owner[:-1]) | (first[1:] - last[:-1] != _ONE)
    starts = np.flatnonzero(apart)
    ends = np.append(starts[1:], len(owner)) - 1
    return owner[starts], first[starts], last[ends]


def as_rounds(rounds: ArrayLike, count: int | None, name: str = "rounds") -> Rounds:
    """Check round numbers: integers 0 .. 2^64 - 1, one for each row.

    Args:
        rounds: numbers as callers write them.
        count: number of rows; None for any.
        name: the argument's name, for errors.

    Raises:
        ParameterError: the numbers are not integers, negative, or not `count` of them.
    """
    if isinstance(rounds, np.ma.MaskedArray):
        raise ParameterError(f"{name} must not be masked; leave such rows out")
    array = np.asarray(rounds)
    if array.size == 0:
        array = array.astype(np.uint64)
    elif array.dtype.kind == "f" and all(isinstance(r, int) for r in np.asarray(rounds, object)):
        # Python ints on both sides of 2^63 have no common NumPy integer type.
        array = np.asarray(rounds, dtype=object)
        if all(0 <= r < 1 << 64 for r in array):
            array = array.astype(np.uint64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ParameterError(
            f"{name} must be a sequence of whole numbers, one per row, got {array.dtype} "
            f"of shape {array.shape}"
        )
    if array.dtype.kind == "i" and (
        array.item() < 0 if array.size == 1 else np.count_nonzero(array < 0)
    ):
        raise ParameterError(f"{name} must not be negative, got {int(array.min())}")
    if count is not None and len(array) != count:
        raise ParameterError(f"{count} rows need {count} {name}, got {len(array)}")
    return array.astype(np.uint64)
