"""Message stores: the broker's workers read messages from files by themselves.

`match` moves every message through Spark's joins and its socket to Python, which takes longer than
deciding the pair. Here Spark moves messages once, when a store is written; to match two stores, the
driver looks up in their indexes which rows belong together, and the workers map the files into
memory and hand back answers alone. Nothing secret comes here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ccbps.errors import ParameterError
from ccbps.matching import Matcher
from ccbps.spark.causes import cause_texts, check_on_error, refuse
from ccbps.spark.frames import check_matcher, column, require
from ccbps.spark.storefiles import (
    Folder,
    Index,
    PartReader,
    PartWriter,
    Refused,
    StoreKind,
    is_part,
    message_width,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["match_messages", "write_messages"]

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

# Pairs of a piece of work, about; also the rows of a batch of answers.
PIECE_ROWS: Final = 1 << 15
# Neighbouring messages are decided where they lie, if there are that many bytes at a time; fewer
# are gathered in blocks, which the kernel prefers to many short calls.
VIEW_BYTES: Final = 1 << 20
BLOCK_BYTES: Final = 8 << 20


class Segments(NamedTuple):
    """Pairs whose messages follow one another on both sides: first rows there, and how many."""

    events: Numbers
    interests: Numbers
    lengths: Numbers


_MANIFEST = pa.schema(
    [
        ("part", pa.string()),
        ("subscription", pa.string()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("first_round", pa.int64()),
        ("last_round", pa.int64()),
        ("problem", pa.string()),
    ]
)


def write_messages(
    df: DataFrame,
    path: str | os.PathLike[str],
    matcher: Matcher,
    *,
    kind: StoreKind,
    message: str | None = None,
    pair: str = "subscription",
    round: str = "round",
    mode: Literal["error", "overwrite"] = "error",
    partitions: int | None = None,
) -> None:
    """Write messages as a store, which `match_messages` reads. Runs one job.

    Args:
        df: has `pair`, `round` and `message`; other columns are not kept.
        path: a folder, or its URI, which driver and workers must see under the same path.
        matcher: whose messages these are; public.
        kind: "event" or "interest": which side's messages these are.
        message: binary column with messages; by default "event_message" or "interest_message".
        pair: string column with the label of the pair. One pair's messages go into one file.
        round: column with the round, a whole number.
        mode: "error" refuses a folder that is not empty; "overwrite" replaces a store once the new
            one is complete.
        partitions: tasks, and files at most; by default as many as Spark chooses. Two stores of the
            same pairs with the same number are laid out alike.

    Raises:
        ParameterError: a column is missing or of the wrong type; the folder is not empty; a row has
            a NULL or a message of another width; a (pair, round) comes twice. Nothing is left.
    """
    if mode not in ("error", "overwrite"):
        raise ParameterError(f"mode must be 'error' or 'overwrite', got {mode!r}")
    if kind not in ("event", "interest"):
        raise ParameterError(f"kind must be 'event' or 'interest', got {kind!r}")
    check_matcher(matcher, Matcher)
    message = f"{kind}_message" if message is None else message
    require(df, [], whole=[round], text=[pair], binary=[message])
    if df.isStreaming:
        raise ParameterError("a store is written once: call this in foreachBatch, a path each time")
    folder = Folder.of(path, "path")
    found = folder.names()
    if found and mode == "error":
        raise ParameterError(
            f"path={folder.path!r} is not empty; choose another folder, or mode='overwrite'"
        )
    width = message_width(matcher, kind)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part, runs, problem = PartWriter(folder, width), {}, None
        try:
            for batch in batches:
                part.append(*batch.columns)
            runs = part.finish()
        except BaseException as error:
            part.abandon()
            if not isinstance(error, Refused):
                raise
            problem = str(error)
        # A problem is an answer, not a failure: Spark would try a failed task again.
        if problem is not None:
            runs = {"problem": pa.array([problem])}
        rows = len(next(iter(runs.values()), ()))
        yield pa.RecordBatch.from_arrays(
            [
                runs[f.name].cast(f.type) if f.name in runs else pa.nulls(rows, f.type)
                for f in _MANIFEST
            ],
            schema=_MANIFEST,
        )

    chosen = df.select(
        column(pair).alias("subscription"),
        column(round).cast("long").alias("round"),
        column(message).alias("message"),
    )
    by = column("subscription")
    spread = chosen.repartition(by) if partitions is None else chosen.repartition(partitions, by)
    ordered = spread.sortWithinPartitions("subscription", "round")
    kept = set(found)
    try:
        manifest = ordered.mapInArrow(write, _as_spark(_MANIFEST)).toArrow().cast(_MANIFEST)
        problems, labels = (manifest[name].drop_null() for name in ("problem", "subscription"))
        if len(problems):
            raise ParameterError(f"path={folder.path!r}: nothing was written: {problems[0]}")
        if pc.count_distinct(labels).as_py() < len(labels):
            raise ParameterError(f"rows of one {pair!r} came in several partitions")
        Index.write(folder, matcher, kind, width, manifest.drop_columns(["problem"]))
        kept = set(manifest["part"].to_pylist())
    finally:
        # What the index does not name: parts of a store replaced, of tasks tried twice, or of this
        # attempt if it failed.
        folder.remove(*(name for name in folder.names() if is_part(name) and name not in kept))


def match_messages(
    spark: SparkSession,
    events: str | os.PathLike[str],
    interests: str | os.PathLike[str],
    matcher: Matcher,
    *,
    on_error: Literal["raise", "reject"] = "raise",
    keep: Literal["all", "matches"] = "all",
    partitions: int | None = None,
) -> DataFrame:
    """Match a store of event messages with a store of interest messages.

    Messages of the same pair and round are matched, as by `match`; those without a counterpart are
    not read. The indexes are read now, the messages when the result is computed, which must be
    before either store is overwritten.

    Args:
        events: path of a store of event messages, from `write_messages`.
        interests: path of a store of interest messages.
        matcher: public.
        on_error: "raise" fails the job and names the first malformed row by pair and round;
            "reject" gives it NULL and the cause in a string column "rejected", and leaves the other
            rows' answers as they are.
        keep: "matches" leaves out the pairs that do not match, so that Spark need not move them;
            with "reject", those that were set aside stay.
        partitions: tasks; by default the session's parallelism. A task costs some 0.05 s.

    Returns:
        columns subscription (string), round (long), matched (boolean) and, with "reject", rejected
        (string, NULL where nothing is wrong); in no particular order.

    Raises:
        ParameterError: a path has no complete store, or one of another matcher or side.
        DecodeError: an index is damaged; or (as the cause of Spark's error, when the result is
            computed) a file is, or see `on_error`.
    """
    check_on_error(on_error)
    check_matcher(matcher, Matcher)
    if keep not in ("all", "matches"):
        raise ParameterError(f"keep must be 'all' or 'matches', got {keep!r}")
    event_index = Index.read(Folder.of(events, "events"), matcher, "event")
    interest_index = Index.read(Folder.of(interests, "interests"), matcher, "interest")
    pieces = spark.createDataFrame(
        plan(event_index, interest_index), "event_part string, interest_part string, runs binary"
    )
    if partitions is not None:
        pieces = pieces.repartition(partitions)
    reject = on_error == "reject"
    stores = [(i.folder, i.width, i.batch_rows) for i in (event_index, interest_index)]

    def decide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        broker = matcher.broker()

        @lru_cache(maxsize=8)
        def part(side: int, name: str) -> PartReader:
            folder, width, batch_rows = stores[side]
            return PartReader(folder, name, width, batch_rows)

        for piece in (row for batch in batches for row in batch.to_pylist()):
            readers = part(0, piece["event_part"]), part(1, piece["interest_part"])
            with pa.ipc.open_stream(piece["runs"]) as stream:
                runs = stream.read_all()
            labels, rounds, segments = pair_rows(runs, *readers)
            answers = np.empty(len(rounds), dtype=np.bool_)
            causes = np.empty(len(rounds), dtype=np.uint8)
            done = 0
            for messages in pairs_of_blocks(segments, *readers):
                at = slice(done, done := done + len(messages[0]))
                answers[at], causes[at] = broker.examine(*messages)
            ids = [labels, pa.array(rounds)]
            if reject:
                columns = [*ids, pa.array(answers, mask=causes != 0), cause_texts(causes)]
            else:
                refuse(causes, ("subscription", "round"), ids)
                columns = [*ids, pa.array(answers)]
            decided = pa.RecordBatch.from_arrays(columns, schema=answers_schema)
            if keep == "matches":
                decided = decided.filter(pa.array(answers | (causes != 0)))
            yield decided

    fields = [("subscription", pa.string()), ("round", pa.int64()), ("matched", pa.bool_())]
    answers_schema = pa.schema(fields + [("rejected", pa.string())] * reject)
    return pieces.mapInArrow(decide, _as_spark(answers_schema))


def plan(events: Index, interests: Index) -> pa.Table:
    """Pieces of work: which rows of which parts may belong together.

    Returns:
        a row a piece: `event_part`, `interest_part` and `runs`, an Arrow IPC stream with a row a
        run: `subscription`, `event_start`, `event_stop`, `interest_start`, `interest_stop`, and
        `first`. Where `first` is not NULL, both sides hold the consecutive rounds from there on;
        else rounds are to be looked up.
    """
    found = pc.index_in(events.subscription, value_set=interests.subscription)
    e = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    i = found.drop_null().to_numpy()
    low = np.maximum(events.first[e], interests.first[i])
    high = np.minimum(events.last[e], interests.last[i])
    overlap = low <= high
    e, i, low, high = e[overlap], i[overlap], low[overlap], high[overlap]
    order = np.lexsort((events.start[e], interests.part[i], events.part[e]))
    e, i, low, high = e[order], i[order], low[order], high[order]

    dense = _dense(events)[e] & _dense(interests)[i]
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
    number = (np.cumsum(rows) - rows) // PIECE_ROWS
    new = np.ones(len(run), dtype=np.bool_)
    new[1:] = np.any([np.diff(x) != 0 for x in (*parts, number)], axis=0)
    starts = np.flatnonzero(new)
    stops = np.append(starts[1:], len(run))[: len(starts)]
    names = [
        pa.array(index.parts, pa.string()).take(pa.array(part[starts]))
        for index, part in zip((events, interests), parts, strict=True)
    ]
    streams = [_stream(table.slice(a, b - a)) for a, b in zip(starts, stops, strict=True)]
    return pa.table(
        [*names, pa.array(streams, pa.binary())], names=["event_part", "interest_part", "runs"]
    )


def _dense(index: Index) -> NDArray[np.bool_]:
    """Runs whose rounds are consecutive: as many as rows, since none comes twice."""
    dense: NDArray[np.bool_] = index.last - index.first == index.stop - index.start - 1
    return dense


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    out: bytes = sink.getvalue().to_pybytes()
    return out


def spans(starts: Numbers, stops: Numbers) -> tuple[NDArray[np.intp], Numbers]:
    """The whole numbers of several spans, one after the other: (span, number), shape (total,)."""
    lengths = stops - starts
    span = np.repeat(np.arange(len(starts)), lengths)
    before = np.cumsum(lengths) - lengths
    return span, np.arange(len(span)) + (starts - before)[span]


def pair_rows(
    runs: pa.Table, events: PartReader, interests: PartReader
) -> tuple[pa.Array, Numbers, Segments]:
    """Pairs of messages that belong together, by `plan`'s runs: labels, rounds, and where."""
    names = "event_start", "event_stop", "interest_start", "interest_stop"
    start, stop, other, end = (runs[name].to_numpy() for name in names)
    if not runs["first"].null_count:
        first = runs["first"].to_numpy()
        run, rounds = spans(first, first + (stop - start))
        segments = _joined(start, other, stop - start)
    else:
        run, rows = spans(start, stop)
        rounds = events.rounds[rows]
        found = lower_bound(interests.rounds, other[run], end[run], rounds)
        there = found < end[run]
        there[there] = interests.rounds[found[there]] == rounds[there]
        run, rounds = run[there], rounds[there]
        segments = _joined(rows[there], found[there], np.ones(len(run), dtype=np.int64))
    labels = runs["subscription"].combine_chunks().take(pa.array(run))
    return labels, rounds, segments


def _joined(events: Numbers, interests: Numbers, lengths: Numbers) -> Segments:
    """Segments with those put together that follow one another on both sides."""
    new = np.ones(len(lengths), dtype=np.bool_)
    for rows in (events, interests):
        new[1:] &= rows[1:] == rows[:-1] + lengths[:-1]
    new[1:] = ~new[1:]
    starts = np.flatnonzero(new)
    if len(starts):
        lengths = np.add.reduceat(lengths, starts)
    return Segments(events[starts], interests[starts], lengths)


def lower_bound(values: Numbers, start: Numbers, stop: Numbers, wanted: Numbers) -> Numbers:
    """First place in ``values[start:stop]``, ascending, with at least `wanted`, else `stop`.

    Of each row of `start`, `stop` and `wanted`, shape (rows,), at once.
    """
    low, high = start.copy(), stop.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        less = open_.copy()
        less[open_] = values[middle[open_]] < wanted[open_]
        low = np.where(less, middle + 1, low)
        high = np.where(open_ & ~less, middle, high)
    return low


def pairs_of_blocks(
    segments: Segments, events: PartReader, interests: PartReader
) -> Iterator[tuple[Bytes, Bytes]]:
    """Messages of all pairs in order, in blocks for the kernel, each side (block, its width)."""
    total, width = int(segments.lengths.sum()), max(events.width, interests.width)
    if total * width < VIEW_BYTES * len(segments.lengths):
        rows, others = (
            spans(first, first + segments.lengths)[1]
            for first in (segments.events, segments.interests)
        )
        step = max(1, BLOCK_BYTES // width)
        for start in range(0, total, step):
            at = slice(start, start + step)
            yield events.gather(rows[at]), interests.gather(others[at])
        return
    for row, other, length in zip(*(part.tolist() for part in segments), strict=True):
        done = 0
        while done < length:
            views = (
                events.view(row + done, length - done),
                interests.view(other + done, length - done),
            )
            count = min(map(len, views))
            yield views[0][:count], views[1][:count]
            done += count


def _as_spark(schema: pa.Schema) -> str:
    kinds = {pa.string(): "string", pa.int64(): "long", pa.bool_(): "boolean"}
    return ", ".join(f"{field.name} {kinds[field.type]}" for field in schema)
