"""Plans of matching a broadcast: each event with all interests of its round.

The broker prepares the labels of an event once for consecutive interests
(`ccbps.encodings.labels`). But interests are stored by subscription, in many parts. So a piece of
work is a range of rounds of many subscriptions, and the broker gets its pairs round by round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappush, heapreplace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Index, Numbers
from ccbps.store import plan as pairs
from ccbps.store.files import PartReader, by_part
from ccbps.store.index import Index as StoreIndex

TOGETHER: Final = 256
"""Number of subscriptions of a piece: enough for the broker, and few enough to read consecutive
rounds of a file together."""
PIECES: Final = 64
"""Number of pieces of work if the number of tasks is not known. It is less than `plan.PIECES`,
since the plan lists the subscriptions of each."""


class _Runs(NamedTuple):
    """Interests of one subscription each, with the events that they may meet; shape (runs,) each.

    Attributes:
        run: number of the run in the index of interests.
        begin: first row of events, which are counted through all parts by round.
        end: row behind the last row of events.
        start: first row of interests.
        stop: row behind the last row of interests.
        first: round of the rows `begin` and `start`, if rounds are consecutive from there on;
            otherwise -1.
    """

    run: Index
    begin: Numbers
    end: Numbers
    start: Numbers
    stop: Numbers
    first: Numbers

    def take(self, rows: Index | slice) -> _Runs:
        return _Runs(*(column[rows] for column in self))

    def within(self, low: int, high: int) -> _Runs:
        """Return the runs restricted to rows `low` to `high` of events."""
        begin, end = np.maximum(self.begin, low), np.minimum(self.end, high)
        ahead, known = begin - self.begin, self.first >= 0
        start = np.where(known, self.start + ahead, self.start)
        stop = np.where(known, start + (end - begin), self.stop)
        first = np.where(known, self.first + ahead, -1)
        return _Runs(self.run, begin, end, start, stop, first).take(np.flatnonzero(begin < end))


@dataclass(frozen=True)
class RoundParts:
    """The parts of both stores by number, as pieces name them. It travels to the workers.

    Attributes:
        events: names of the parts of events.
        part: number of each run's part of events; runs are in order of their rounds.
        ends: number of rows of events up to the end of each run.
        starts: first row of each run in its part.
        interests: names of the parts of interests.
        width: bytes of a message of the wider side.
    """

    events: tuple[str, ...]
    part: Index
    ends: Numbers
    starts: Numbers
    interests: tuple[str, ...]
    width: int

    def open_piece(self, piece: Mapping[str, Any], part: pairs.Part) -> pairs.Work:
        """Find the pairs of a piece, which is a row of a plan.

        Raises:
            DecodeError: a file is missing or damaged.
        """
        runs = pairs.runs_of(piece["runs"])
        names = "event_start", "event_stop", "interest_start", "interest_stop", "interest_part"
        begin, end, start, stop, number = (runs[name].to_numpy() for name in names)
        run, events = pairs.spans(begin, end)
        if not runs["first"].null_count:
            interests = (start - begin)[run] + events
            counts, rounds = end - begin, None
        else:
            all_rounds = np.empty(len(events), dtype=np.int64)
            for reader, at, rows in self._by_part(0, part, *self._places(events)):
                all_rounds[at] = reader.rounds[rows]
            interests = np.empty_like(events)
            common = np.empty(len(events), dtype=np.bool_)
            for reader, at, own in self._by_part(1, part, number[run], run):
                wanted, last = all_rounds[at], stop[own]
                place = pairs.lower_bound(reader.rounds, start[own], last, wanted)
                equal = place < last
                equal[equal] = reader.rounds[place[equal]] == wanted[equal]
                interests[at], common[at] = place, equal
            run, events, interests = run[common], events[common], interests[common]
            counts, rounds = np.bincount(run, minlength=len(runs)), all_rounds[common]
        blocks = self._blocks(part, events, number[run], interests)
        return pairs.Work(runs, counts, rounds, blocks)

    def _blocks(
        self, part: pairs.Part, events: Numbers, numbers: Index, interests: Numbers
    ) -> Iterator[pairs.Block]:
        """Yield the messages of all pairs, round by round."""
        order = np.argsort(events, kind="stable")
        step = max(1, pairs.BLOCK_BYTES // self.width)
        for at in (order[row : row + step] for row in range(0, len(order), step)):
            yield (
                at,
                self._gather(0, part, *self._places(events[at])),
                self._gather(1, part, numbers[at], interests[at]),
            )

    def _places(self, events: Numbers) -> tuple[Index, Numbers]:
        """Return the part of rows of events, and their places in it."""
        run = np.searchsorted(self.ends, events, side="right")
        before = np.append(0, self.ends)[run]
        return self.part[run], events - before + self.starts[run]

    def _by_part(
        self, side: int, part: pairs.Part, numbers: Index, rows: Numbers
    ) -> Iterator[tuple[PartReader, Index, Numbers]]:
        """Group rows by part, and hold those of one part at a time in memory."""
        names = (self.events, self.interests)[side]
        for reader, at, own in by_part(lambda number: part(side, names[number]), numbers, rows):
            yield reader, at, own
            reader.release()

    def _gather(self, side: int, part: pairs.Part, numbers: Index, rows: Numbers) -> Bytes:
        """Return the messages of some rows, shape (rows, width)."""
        out = np.empty((0, 0), dtype=np.uint8)
        for reader, at, places in self._by_part(side, part, numbers, rows):
            if len(at) == len(rows):
                out = reader.gather(places)
                continue
            if not len(out):
                out = np.empty((len(rows), reader.width), dtype=np.uint8)
            reader.scatter(places, out, at)
        return out


def plan_rounds(
    events: StoreIndex, interests: StoreIndex, *, tasks: int = 0
) -> tuple[pa.Table, RoundParts]:
    """Plan pieces of work for stores of a broadcast.

    Args:
        events: index of the events.
        interests: index of the interests.
        tasks: number of tasks; 0 if unknown.

    Returns:
        one row per piece: `runs`, an Arrow IPC stream with one row per subscription:
        `subscription`, `interest_part` (by its number), `interest_start`, `interest_stop`;
        `event_start` and `event_stop`, rows of events counted through all parts; and `first`. If
        `first` is not NULL, both sides hold the consecutive rounds from there on. Otherwise rounds
        must be looked up. Also the parts, which open pieces.
    """
    layers = _layers(events)
    order = np.concatenate(layers)
    rows = (events.stop - events.start)[order]
    parts = RoundParts(
        tuple(events.parts),
        events.part[order].astype(np.intp),
        np.cumsum(rows),
        events.start[order],
        tuple(interests.parts),
        max(events.files.width, interests.files.width),
    )
    ends = np.cumsum([0, *map(len, layers)])
    row = np.append(0, np.cumsum(rows))[ends[:-1]].tolist()
    meetings = [_meeting(events, interests, *one) for one in zip(layers, row, strict=True)]
    runs, streams = _Runs(*map(np.concatenate, zip(*meetings, strict=True))), []
    size = pairs.piece_rows(int((runs.end - runs.begin).sum()), PIECES, tasks)
    for known in (runs.first >= 0, runs.first < 0):
        for piece in _pieces(runs.take(np.flatnonzero(known)), size):
            streams.append(_listed(piece, interests))
    return pa.table({"runs": pa.array(streams, pa.binary())}), parts


def _layers(events: StoreIndex) -> list[Index]:
    """Return runs of events in layers, at least one, each in order of rounds.

    Runs of one layer do not overlap. Generations overlap if several jobs append to which a ledger
    allots rounds in turn.
    """
    order = np.argsort(events.first, kind="stable")
    layers: list[list[int]] = [[]]
    ends = [(-1, 0)]  # the last round of each layer, the least first
    for run, first, last in zip(
        order.tolist(), events.first[order].tolist(), events.last[order].tolist(), strict=True
    ):
        if ends[0][0] < first:
            layer = ends[0][1]
            heapreplace(ends, (last, layer))
        else:
            layer = len(layers)
            layers.append([])
            heappush(ends, (last, layer))
        layers[layer].append(run)
    return [np.array(layer, dtype=np.intp) for layer in layers]


def _meeting(events: StoreIndex, interests: StoreIndex, order: Index, row: int) -> _Runs:
    """Return the runs of interests that may meet events of a layer, neighbours in a file together.

    Args:
        events: index of the events.
        interests: index of the interests.
        order: runs of the layer.
        row: number of rows of events in front of the layer.
    """
    first, last = events.first[order], events.last[order]
    dense, rows = pairs.dense_runs(events)[order], (events.stop - events.start)[order]
    before = row + np.append(0, np.cumsum(rows))
    # Of each run, the first part of events that ends late enough, and the first that begins too
    # late.
    low_part = np.searchsorted(last, interests.first)
    high_part = np.searchsorted(first, interests.last, side="right")
    run = np.flatnonzero(low_part < high_part)
    run = run[np.lexsort((interests.start[run], interests.part[run]))]
    a, b = low_part[run], high_part[run] - 1
    low = np.maximum(interests.first[run], first[a])
    high = np.minimum(interests.last[run], last[b])
    begin = before[a] + np.where(dense[a], low - first[a], 0)
    end = before[b] + np.where(dense[b], high - first[b] + 1, rows[b])
    sparse = np.append(0, np.cumsum(~dense))
    known = pairs.dense_runs(interests)[run] & (sparse[a] == sparse[b + 1])
    known &= end - begin == high - low + 1
    start = interests.start[run] + np.where(known, low - interests.first[run], 0)
    stop = np.where(known, start + (end - begin), interests.stop[run])
    return _Runs(run, begin, end, start, stop, np.where(known, low, -1))


def _pieces(runs: _Runs, size: int) -> Iterator[_Runs]:
    """Cut runs into pieces of about `size` pairs at most, with many subscriptions a round."""
    if not len(runs.run):
        return
    # Runs of about the same rounds, neighbours in files first.
    about = max(1, int(np.median(runs.end - runs.begin)))
    runs = runs.take(np.argsort(runs.begin // about, kind="stable"))
    # Some at a time, and more of short runs.
    length = runs.end - runs.begin
    totals = np.add.reduceat(length, np.arange(0, len(length), TOGETHER))
    group = np.repeat((np.cumsum(totals) - totals) // size, TOGETHER)[: len(length)]
    edges = np.flatnonzero(np.diff(group, prepend=-1)).tolist()
    for a, z in zip(edges, [*edges[1:], len(length)], strict=True):
        some = runs.take(slice(a, z))
        cuts = _cuts(some.begin, some.end, size)
        for low, high in pairwise(cuts):
            piece = some.within(low, high)
            if len(piece.run):
                yield piece


def _cuts(begin: Numbers, end: Numbers, size: int) -> list[int]:
    """Cut rows of events so that about `size` pairs lie between two cuts.

    A row of events pairs with each of the runs ``begin[i]:end[i]`` that it is in.
    """
    points = np.unique(np.concatenate([begin, end]))
    active = np.searchsorted(np.sort(begin), points, side="right")
    active = (active - np.searchsorted(np.sort(end), points, side="right"))[:-1]
    pairs_before = np.append(0, np.cumsum(active * np.diff(points)))
    wanted = np.arange(size, pairs_before[-1], size)
    at = np.searchsorted(pairs_before, wanted) - 1
    cuts = points[at] - (pairs_before[at] - wanted) // active[at]
    rows: list[int] = np.unique(np.concatenate([points[:1], cuts, points[-1:]])).tolist()
    return rows


def _listed(piece: _Runs, interests: StoreIndex) -> bytes:
    """Return a piece as `plan_rounds` describes it."""
    known: NDArray[np.bool_] = piece.first >= 0
    return pairs.stream(
        pa.table(
            {
                "subscription": interests.subscription.take(pa.array(piece.run)),
                "interest_part": interests.part[piece.run],
                "event_start": piece.begin,
                "event_stop": piece.end,
                "interest_start": piece.start,
                "interest_stop": piece.stop,
                "first": pa.array(piece.first, mask=~known),
            }
        )
    )
