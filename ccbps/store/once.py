"""A pair and round has one message, in all generations and in all stores that are matched together.

Indexes say where two of them may have the same; only there files are looked into.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from ccbps.arrays import Index as Places
from ccbps.arrays import Numbers
from ccbps.errors import RandomnessReuseError
from ccbps.store.files import PartReader
from ccbps.store.index import Index
from ccbps.store.plan import Work, meetings, open_rows, pair_names, plan, spans

# Parts that are open at a time: a process may have some hundreds, and holds rounds of each.
_OPEN: Final = 4


def refuse_twice(several: Sequence[Index]) -> None:
    """Refuse a (subscription, round) that two stores of a side have; or of a broadcast's events a
    round. Reads rounds where runs overlap, and nothing elsewhere.

    Raises:
        RandomnessReuseError: names one.
    """
    index = Index.together(several)
    one, other = meetings(index.labelled(), index.labelled())
    of = np.repeat(np.arange(len(several)), [len(each.part) for each in several])
    new = of[one] < of[other]
    for work, *_ in _shared(index, index, (one[new], other[new])):
        raise RandomnessReuseError(
            f"{_name(work, 0, index)} has a message in two stores; a pair and round has one message"
        )


def without_known(now: Index, fresh: Index) -> Index:
    """What was just written, without messages that the store has already, as where they were sent
    again. Reads rounds where runs overlap, and messages where rounds are the same.

    Raises:
        RandomnessReuseError: the store has another message for a pair and round; names one.
        DecodeError: a file is missing or damaged.
    """
    known: dict[str, list[Numbers]] = {}
    for work, names, rows in _shared(now, fresh):
        for at, *messages in work.blocks:
            other = (messages[0] != messages[1]).any(axis=1)
            if other.any():
                place = int(np.arange(len(rows[0]))[at][other.argmax()])
                # If one of them is damaged, that is what is wrong.
                for index, name, row in zip((now, fresh), names, rows, strict=True):
                    index.files.reader(name, verify=True).gather(row[place : place + 1])
                raise RandomnessReuseError(
                    f"{_name(work, place, now)} has a message already, and this is another one; a "
                    "pair and round has one message"
                )
        known.setdefault(names[1], []).append(rows[1])
    return _without(fresh, {name: np.unique(np.concatenate(rows)) for name, rows in known.items()})


def _without(index: Index, gone: Mapping[str, Numbers]) -> Index:
    """Without some rows, of parts by their names, in order; runs are cut where these are."""
    for name, rows in gone.items():
        index = _cut(index, index.parts.index(name), rows)
    return index.keeping(np.ones(len(index.part), dtype=np.bool_)) if gone else index


def _cut(index: Index, number: int, rows: Numbers) -> Index:
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
    """Messages of two indexes for the same pair and round, or of a broadcast's events for the same
    round: some at a time, with the parts that have them, and their rows there. Of all runs, or
    those that are `chosen`."""
    sides = one.labelled(), other.labelled()

    @lru_cache(maxsize=_OPEN)
    def part(side: int, name: str) -> PartReader:
        return sides[side].files.reader(name)

    for piece in plan(*sides, chosen).to_pylist():
        work, segments = open_rows(piece, part)
        if work.counts.sum():
            first, second = (
                spans(rows, rows + segments.lengths)[1]
                for rows in (segments.events, segments.interests)
            )
            yield work, (piece["event_part"], piece["interest_part"]), (first, second)


def _name(work: Work, place: int, index: Index) -> str:
    """Of a pair, for errors."""
    labels, rounds = (column[place].as_py() for column in pair_names(work))
    return f"round={rounds}" if index.about.rounds else f"subscription={labels!r}, round={rounds}"
