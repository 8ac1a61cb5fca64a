"""Plans of matching: the rows of two message stores that belong together.

The driver plans pieces of work from the indexes alone. A worker finds the pairs of a piece in the
files, and hands their messages to the broker in blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Numbers, slices
from ccbps.arrays import Index as Places
from ccbps.store.files import PartReader
from ccbps.store.index import Index

PIECES: Final = 256
"""Number of pieces of work if that of tasks is not known: enough for the cores of a cluster."""
LEAST_PIECES: Final = 96
TASK_PIECES: Final = 4
"""Number of pieces for each task; more if all tasks together had fewer than `LEAST_PIECES`."""
PIECE_ROWS: Final = 1 << 15
MOST_ROWS: Final = 1 << 20
"""Least and largest number of pairs of a piece. The least is also the largest number of pairs of a
run."""
VIEW_BYTES: Final = 1 << 20
"""Least mean bytes of stretches of neighbouring messages that are decided in place. Shorter ones
are gathered in blocks, to avoid many short calls of the kernel."""
BLOCK_BYTES: Final = 8 << 20
"""Bytes of a block on the wider side."""


class Segments(NamedTuple):
    """Stretches of pairs whose messages are consecutive on both sides; shape (segments,) each.

    Attributes:
        events: first row of each stretch in the part of events.
        interests: first row of each stretch in the part of interests.
        lengths: number of pairs of each stretch.
    """

    events: Numbers
    interests: Numbers
    lengths: Numbers


Block: TypeAlias = tuple[slice | Places, Bytes, Bytes]
"""Places of pairs in a piece, and their events and interests, each of shape (block, width)."""

Part: TypeAlias = Callable[[int, str], PartReader]
"""Function that opens a part of events (0) or of interests (1) by its name."""


class Work(NamedTuple):
    """A piece of work: pairs of messages that belong together, run by run.

    Attributes:
        runs: planned runs.
        counts: number of pairs of each run, shape (runs,).
        rounds: round of each pair; None if each run's rounds are consecutive from its `first` on.
        blocks: messages of all pairs, for the kernel.
        segments: rows of the pairs in the two parts of `plan`; None for a broadcast.
    """

    runs: pa.RecordBatch
    counts: Numbers
    rounds: Numbers | None
    blocks: Iterator[Block]
    segments: Segments | None = None


def meetings(events: Index, interests: Index) -> tuple[Places, Places]:
    """Return pairs of runs of the same subscription that may have rounds in common."""
    every = pa.concat_arrays([events.subscription, interests.subscription]).dictionary_encode()
    labels = every.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    own, label = labels[: len(events.part)], labels[len(events.part) :]
    order = np.lexsort((interests.first, label))
    label, first = label[order], interests.first[order]
    until = last_so_far(label, interests.last[order])
    begin, end = np.searchsorted(label, own), np.searchsorted(label, own, side="right")
    low = lower_bound(until, begin, end, events.first)
    # Nothing comes after the last number that there is.
    most = events.last == np.iinfo(np.int64).max
    after = lower_bound(first, begin, end, np.where(most, -1, events.last) + 1)
    event, place = spans(low, np.maximum(low, np.where(most, end, after)))
    interest = order[place]
    both = interests.last[interest] >= events.first[event]
    return event[both], interest[both]


def last_so_far(label: Numbers, last: Numbers) -> Numbers:
    """Return for each run the greatest last round of all runs of its label up to this one.

    Args:
        label: labels of the runs, small numbers in ascending order.
        last: last rounds of the runs.
    """
    # Numbers are replaced by their ranks, since sums of two may not fit.
    values, rank = np.unique(last, return_inverse=True)
    own = label * max(1, len(values))
    rounds: Numbers = values[np.maximum.accumulate(own + rank.reshape(-1)) - own]
    return rounds


def plan(
    events: Index,
    interests: Index,
    chosen: tuple[Places, Places] | None = None,
    *,
    tasks: int = 0,
) -> pa.Table:
    """Plan pieces of work: rows of two parts that may belong together.

    Args:
        events: index of the events.
        interests: index of the interests.
        chosen: pairs of runs, all or some of `meetings`; None for all.
        tasks: number of tasks, each of which gets some pieces if there is enough work; 0 if
            unknown.

    Returns:
        one row per piece: `event_part`, `interest_part` and `runs`, an Arrow IPC stream with one
        row per run: `subscription`, `event_start`, `event_stop`, `interest_start`, `interest_stop`,
        and `first`. If `first` is not NULL, both sides hold the consecutive rounds from there on.
        Otherwise rounds must be looked up.
    """
    e, i = meetings(events, interests) if chosen is None else chosen
    low = np.maximum(events.first[e], interests.first[i])
    high = np.minimum(events.last[e], interests.last[i])
    order = np.lexsort((events.start[e], interests.part[i], events.part[e]))
    e, i, low, high = e[order], i[order], low[order], high[order]

    dense = dense_runs(events)[e] & dense_runs(interests)[i]
    sides = []
    for index, runs in ((events, e), (interests, i)):
        start = np.where(dense, index.start[runs] + (low - index.first[runs]), index.start[runs])
        stop = np.where(dense, start + (high - low) + 1, index.stop[runs])
        sides.append((start, stop))
    (event_start, event_stop), (interest_start, interest_stop) = sides

    # Cut long runs by the rows of events; where rounds are looked up, each cut may need all rows of
    # interests.
    cuts = -(-(event_stop - event_start) // PIECE_ROWS)
    run, cut = spans(np.zeros_like(cuts), cuts)
    ahead = cut * PIECE_ROWS
    together = dense[run]
    start = event_start[run] + ahead
    stop = np.minimum(start + PIECE_ROWS, event_stop[run])
    other = interest_start[run] + np.where(together, ahead, 0)
    table = pa.table(
        {
            "subscription": events.subscription.take(pa.array(e[run])),
            "event_start": start,
            "event_stop": stop,
            "interest_start": other,
            "interest_stop": np.where(together, other + (stop - start), interest_stop[run]),
            "first": pa.array(low[run] + ahead, mask=~together),
        }
    )

    # Put short runs of the same two parts together.
    parts = events.part[e][run], interests.part[i][run]
    rows = stop - start
    number = (np.cumsum(rows) - rows) // piece_rows(int(rows.sum()), PIECES, tasks)
    new = np.ones(len(run), dtype=np.bool_)
    new[1:] = np.any([np.diff(x) != 0 for x in (*parts, number)], axis=0)
    starts = np.flatnonzero(new)
    stops = np.append(starts[1:], len(run))[: len(starts)]
    names = [
        pa.array(index.parts, pa.string()).take(pa.array(part[starts]))
        for index, part in zip((events, interests), parts, strict=True)
    ]
    streams = [stream(table.slice(a, b - a)) for a, b in zip(starts, stops, strict=True)]
    return pa.table(
        [*names, pa.array(streams, pa.binary())], names=["event_part", "interest_part", "runs"]
    )


def piece_rows(total: int, pieces: int, tasks: int) -> int:
    """Return the number of pairs of a piece.

    Args:
        total: number of all pairs.
        pieces: number of pieces if the number of tasks is not known.
        tasks: number of tasks, which all get equally many pieces; 0 if unknown.
    """
    if tasks:
        pieces = max(TASK_PIECES, -(-min(pieces, LEAST_PIECES) // tasks)) * tasks
    return int(np.clip(total // pieces, PIECE_ROWS, max(MOST_ROWS, PIECE_ROWS)))


def dense_runs(index: Index) -> NDArray[np.bool_]:
    """Mark the runs whose rounds are consecutive: as many as rows, as no round occurs twice."""
    dense: NDArray[np.bool_] = index.last - index.first == index.stop - index.start - 1
    return dense


def stream(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    out: bytes = sink.getvalue().to_pybytes()
    return out


def spans(starts: Numbers, stops: Numbers) -> tuple[NDArray[np.intp], Numbers]:
    """List the whole numbers of several spans.

    Returns:
        the span of each number, and the numbers, span by span; both of shape (total,).
    """
    lengths = stops - starts
    span = np.repeat(np.arange(len(starts)), lengths)
    before = np.cumsum(lengths) - lengths
    return span, np.arange(len(span)) + (starts - before)[span]


def runs_of(content: bytes) -> pa.RecordBatch:
    """Read the runs that `stream` wrote."""
    with pa.ipc.open_stream(content) as runs:
        return runs.read_next_batch()


def open_piece(piece: Mapping[str, Any], part: Part) -> Work:
    """Find the pairs of a piece, which is a row of a plan.

    Raises:
        DecodeError: a file is missing or damaged.
    """
    runs = runs_of(piece["runs"])
    events, interests = part(0, piece["event_part"]), part(1, piece["interest_part"])
    names = "event_start", "event_stop", "interest_start", "interest_stop"
    start, stop, other, end = (runs[name].to_numpy() for name in names)
    if not runs["first"].null_count:
        counts, rounds = stop - start, None
        segments = _joined(start, other, counts)
    else:
        run, rows = spans(start, stop)
        wanted = events.rounds[rows]
        place = lower_bound(interests.rounds, other[run], end[run], wanted)
        common = place < end[run]
        common[common] = interests.rounds[place[common]] == wanted[common]
        segments = _joined(rows[common], place[common], np.ones(common.sum(), dtype=np.int64))
        counts, rounds = np.bincount(run[common], minlength=len(start)), wanted[common]
    return Work(runs, counts, rounds, _blocks(segments, events, interests), segments)


def pair_names(work: Work) -> tuple[pa.Array, pa.Array]:
    """Return the subscription and the round of each pair, shape (pairs,)."""
    run = np.repeat(np.arange(len(work.runs)), work.counts)
    rounds = work.rounds
    if rounds is None:
        first = work.runs["first"].to_numpy()
        rounds = spans(first, first + work.counts)[1]
    return work.runs["subscription"].take(pa.array(run)), pa.array(rounds)


def _joined(events: Numbers, interests: Numbers, lengths: Numbers) -> Segments:
    """Return segments, joined where they follow one another on both sides."""
    new = np.ones(len(lengths), dtype=np.bool_)
    for rows in (events, interests):
        new[1:] &= rows[1:] == rows[:-1] + lengths[:-1]
    new[1:] = ~new[1:]
    starts = np.flatnonzero(new)
    if len(starts):
        lengths = np.add.reduceat(lengths, starts)
    return Segments(events[starts], interests[starts], lengths)


def lower_bound(values: Numbers, start: Numbers, stop: Numbers, wanted: Numbers) -> Numbers:
    """Return the first place in ``values[start:stop]`` with at least `wanted`, `stop` if none.

    The values between `start` and `stop` are in ascending order. All rows of `start`, `stop` and
    `wanted`, shape (rows,), are searched at once.
    """
    low, high = start.copy(), stop.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        less = open_.copy()
        less[open_] = values[middle[open_]] < wanted[open_]
        low = np.where(less, middle + 1, low)
        high = np.where(open_ & ~less, middle, high)
    return low


def _blocks(segments: Segments, events: PartReader, interests: PartReader) -> Iterator[Block]:
    """Yield the messages of all pairs in order."""
    total, width = int(segments.lengths.sum()), max(events.width, interests.width)
    if total * width < VIEW_BYTES * len(segments.lengths):
        rows, others = (
            spans(first, first + segments.lengths)[1]
            for first in (segments.events, segments.interests)
        )
        step = max(1, BLOCK_BYTES // width)
        for at in slices(total, step):
            yield at, events.gather(rows[at]), interests.gather(others[at])
        return
    before = 0
    for row, other, length in zip(*(part.tolist() for part in segments), strict=True):
        done = 0
        while done < length:
            views = (
                events.view(row + done, length - done),
                interests.view(other + done, length - done),
            )
            count = min(map(len, views))
            yield slice(before, before + count), views[0][:count], views[1][:count]
            done, before = done + count, before + count
