"""Checks that a pair and round has one message, in all generations and stores matched together.

Files are read only where, by the indexes, two stores may have the same round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from ccbps.arrays import Index as Places
from ccbps.arrays import Numbers
from ccbps.errors import CcbpsError, ParameterError, RandomnessReuseError
from ccbps.store.files import PartReader
from ccbps.store.index import Index
from ccbps.store.plan import Work, meetings, open_piece, pair_names, plan, spans

_OPEN: Final = 4
"""Parts that are open at a time: a process may have some hundreds, and holds rounds of each."""


def refuse_twice(several: Sequence[Index]) -> None:
    """Refuse stores of one side that have a message for the same pair and round.

    For events of a broadcast, refuse stores that have an event for the same round. Rounds are read
    only where runs overlap.

    Raises:
        RandomnessReuseError: there are such messages; the error names one.
        ParameterError: there are such messages of three brokers, whose randomness is not reused.
    """
    index = Index.together(several)
    one, other = meetings(index.labelled(), index.labelled())
    of = np.repeat(np.arange(len(several)), [len(each.part) for each in several])
    new = of[one] < of[other]
    for work, *_ in _shared(index, index, (one[new], other[new])):
        raise _twice(index, work, 0, "in two stores")


def without_known(now: Index, fresh: Index) -> Index:
    """Return an index without messages that a store has already, such as repeated ones.

    Rounds are read where runs overlap, and messages where rounds are equal.

    Args:
        now: index of the store.
        fresh: index of parts that were just written.

    Raises:
        RandomnessReuseError: the store has another message for a pair and round, which the error
            names.
        ParameterError: the same with three brokers, whose randomness is not reused.
        DecodeError: a file is missing or damaged.
    """
    known: dict[str, list[Numbers]] = {}
    for work, names, rows in _shared(now, fresh):
        for at, *messages in work.blocks:
            other = (messages[0] != messages[1]).any(axis=1)
            if other.any():
                place = int(np.arange(len(rows[0]))[at][other.argmax()])
                # If one of them is damaged, that is the error to report.
                for index, name, row in zip((now, fresh), names, rows, strict=True):
                    index.files.reader(name, verify=True).gather(row[place : place + 1])
                raise _twice(now, work, place, "already, and this is another one")
        known.setdefault(names[1], []).append(rows[1])
    index = fresh
    for name, places in known.items():
        index = _cut(index, fresh.parts.index(name), np.unique(np.concatenate(places)))
    return index.keeping(np.ones(len(index.part), dtype=np.bool_)) if known else fresh


def _cut(index: Index, number: int, rows: Numbers) -> Index:
    """Return an index without some rows, in order, of one part. Runs are cut there."""
    here = np.flatnonzero(index.part == number)
    here = here[np.argsort(index.start[here])]
    # Each row ends a piece, and begins one: pieces in order have ends in order.
    start = np.sort(np.append(index.start[here], rows + 1))
    stop = np.sort(np.append(index.stop[here], rows))
    left = start < stop
    start, stop = start[left], stop[left]
    of = here[np.searchsorted(index.start[here], start, side="right") - 1]
    rounds = index.files.reader(index.parts[number]).rounds
    others = np.flatnonzero(index.part != number)
    runs = pa.array(np.append(others, of))
    return replace(
        index,
        part=np.append(index.part[others], index.part[of]),
        subscription=index.subscription.take(runs),
        start=np.append(index.start[others], start),
        stop=np.append(index.stop[others], stop),
        first=np.append(index.first[others], rounds[start]),
        last=np.append(index.last[others], rounds[stop - 1]),
    )


def _shared(
    one: Index, other: Index, chosen: tuple[Places, Places] | None = None
) -> Iterator[tuple[Work, tuple[str, str], tuple[Numbers, Numbers]]]:
    """Yield messages of two indexes for the same pair and round, some at a time.

    For events of a broadcast, yield those for the same round.

    Args:
        one: index of the first messages.
        other: index of the second messages.
        chosen: pairs of runs; None for all.

    Yields:
        the messages, the parts that have them, and their rows there.
    """
    sides = one.labelled(), other.labelled()

    @lru_cache(maxsize=_OPEN)
    def part(side: int, name: str) -> PartReader:
        return sides[side].files.reader(name)

    for piece in plan(*sides, chosen).to_pylist():
        work = open_piece(piece, part)
        if work.counts.sum():
            assert work.segments is not None
            *sides_rows, lengths = work.segments
            first, second = (spans(rows, rows + lengths)[1] for rows in sides_rows)
            yield work, (piece["event_part"], piece["interest_part"]), (first, second)


def _twice(index: Index, work: Work, place: int, where: str) -> CcbpsError:
    """Return the error for a pair with two messages; it names the pair."""
    labels, rounds = (column[place].as_py() for column in pair_names(work))
    about = index.about
    name = f"round={rounds}" if about.rounds else f"subscription={labels!r}, round={rounds}"
    if about.party is None:
        rule = "a pair and round has one message"
        return RandomnessReuseError(f"{name} has a message {where}; {rule}")
    rule = "an event has one message" if about.rounds else "drop_interests removes the old one"
    return ParameterError(f"{name} has a message {where}; {rule}")
