"""Message stores matched: the broker's workers read messages from files by themselves.

`match` moves every message through Spark's joins and its socket to Python, which takes longer than
deciding the pair. Here the driver looks up in indexes which rows of two stores belong together. The
workers map the files into memory, and hand back answers alone. Nothing secret comes here.

Spark takes long for each row, and for each element of a list, that comes out of Python. But it
unfolds lists in compiled code. So a row that comes out of Python here holds all pairs of a run that
have one answer. It lists their rounds as distances from the first, or has a bit for each round. A
filter on the answer or the reason drops whole rows, before anything is unfolded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps.arrays import Bools, Index, Numbers
from ccbps.columnar.reasons import cause_texts, refuse
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers
from ccbps.spark.frames import check_on_error, check_partitions, is_connect
from ccbps.spark.stores import Stores, as_spark, check_pairs, indexes, pieces_of
from ccbps.spark.workers import on_worker
from ccbps.store.broadcast_plan import plan_rounds
from ccbps.store.files import PartReader
from ccbps.store.plan import Work, open_piece, pair_names, plan, spans

_OPEN: Final = 8
"""Number of parts that a worker keeps open: pairs need two at a time."""
_OPEN_TOGETHER: Final = 128
"""Number of parts for a broadcast, whose events meet several subscriptions together."""
_NUMBER: Final = "number"
# Spark looks twice at each element of a list that may have NULLs.
_STEPS: Final = pa.list_(pa.field("element", pa.int32(), nullable=False))
_BITS: Final = pa.list_(pa.field("element", pa.int64(), nullable=False))

ANSWERS: Final = pa.schema(
    [
        ("subscription", pa.string()),
        ("base", pa.int64()),
        ("steps", _STEPS),
        ("first", pa.int32()),
        ("last", pa.int32()),
        ("bits", _BITS),
        ("matched", pa.bool_()),
        ("rejected", pa.string()),
    ]
)
"""Columns of rows that hold the pairs of one run and one answer. The rounds are `base` plus each of
`steps`; or plus each step from `first` to `last` whose bit is set, 64 bits to a number, the least
significant first."""

BITS: Final = 1024
"""Average number of pairs in a run from which bits are smaller."""


def match_messages(
    spark: SparkSession,
    events: Stores,
    interests: Stores,
    matcher: Matcher,
    *,
    on_error: Literal["raise", "reject"] = "raise",
    matches_only: bool = False,
    verify: bool = False,
    partitions: int | None = None,
) -> DataFrame:
    """Match stores of event messages with stores of interest messages.

    Messages of the same pair and round are matched, as by `match`; of a broadcast, those of the
    same round. Messages without a counterpart are not read. The indexes are read now. The messages
    are read when the result is computed, which must be before a store is overwritten or compacted.

    Example:
        .. code-block:: python

            answers = cs.match_messages(spark, "/data/events", "/data/interests", matcher)
            # subscription, round, matched

    Args:
        spark: the session.
        events: path of a store of event messages, from `write_messages`; or several paths.
        interests: path of a store of interest messages; or several paths, such as one for each
            subscriber.
        matcher: the matcher of the messages; public.
        on_error: "raise" fails the job and names the first malformed row by pair and round.
            "reject" gives it NULL and the cause in a string column "rejected", and leaves the other
            rows' answers as they are.
        matches_only: True to leave out pairs that do not match before Spark makes rows of them,
            which is faster than ``.where("matched")``. Malformed rows stay, with "reject".
        verify: True to compare all checksums, which takes about half as long as deciding the
            messages; False to compare only those of the indexes, and of rounds that must be looked
            up.
        partitions: number of tasks; by default the session's parallelism. A task costs some 0.05 s.
            With fewer than 32,768 pairs for each task, some have nothing to do.

    Returns:
        The columns subscription (string), round (long), matched (boolean) and, with "reject",
        rejected (string, NULL where nothing is wrong); in no particular order.

    Raises:
        ParameterError: a path has no complete store, or one of another matcher or side; or comes
            twice.
        RandomnessReuseError: two stores of a side have a message for one (pair, round); or, of a
            broadcast's events, for one round.
        DecodeError: an index is damaged; or (as the cause of Spark's error, when the result is
            computed) a file is damaged; or, with "raise", a message is malformed.
    """
    reject = check_on_error(on_error)
    check_pairs(matcher)
    partitions = check_partitions(partitions)
    sides = indexes(events, matcher, "event"), indexes(interests, matcher, "interest")
    # Spark Connect does not tell its parallelism; 0 leaves the number to the plan.
    tasks = partitions or (0 if is_connect(spark) else int(spark.sparkContext.defaultParallelism))
    opened, most = open_piece, _OPEN
    if matcher.answers is Answers.ROUND:
        planned, parts = plan_rounds(*sides, tasks=tasks)
        opened, most = parts.open_piece, _OPEN_TOGETHER
    else:
        planned = plan(*sides, tasks=tasks)
    numbered = planned.append_column(_NUMBER, pa.array(np.arange(len(planned))))
    pieces = pieces_of(spark, numbered)
    if partitions is not None:
        # Pieces in turn, to random tasks, would leave a third of them with none.
        pieces = pieces.repartitionByRange(partitions, _NUMBER)
    stores = [index.files for index in sides]

    @on_worker
    def decide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        broker = matcher.broker()

        @lru_cache(maxsize=most)
        def part(side: int, name: str) -> PartReader:
            return stores[side].reader(name, verify=verify)

        for batch in batches:
            for piece in batch.to_pylist():
                work = opened(piece, part)
                yield answers_of(work, broker, reject=reject, matches_only=matches_only)

    return unfolded(pieces.mapInArrow(decide, as_spark(ANSWERS)), reject=reject)


def answers_of(
    work: Work, broker: Broker, *, reject: bool, matches_only: bool = False
) -> pa.RecordBatch:
    """Decide all pairs of a piece of work.

    Args:
        work: the piece.
        broker: the broker.
        reject: give malformed pairs a reason.
        matches_only: leave out pairs that do not match.

    Returns:
        Rows with the columns `ANSWERS`.

    Raises:
        DecodeError: a file is damaged; or, without `reject`, a message is malformed.
    """
    answers = np.empty(work.counts.sum(), dtype=np.bool_)
    causes = np.empty(len(answers), dtype=np.uint8)
    for at, *messages in work.blocks:
        answers[at], causes[at] = broker.examine(*messages)
    present = np.unique(causes) if causes.any() else causes[:0]
    if len(present) and not reject:
        refuse(causes, ("subscription", "round"), pair_names(work))
    groups = [_group(work, answers, True)]
    if not matches_only:
        others = ~(answers | (causes != 0)) if len(present) else ~answers
        groups.append(_group(work, others, False))
    for cause, why in zip(present, cause_texts(present).to_pylist(), strict=True):
        if cause:
            groups.append(_group(work, causes == cause, None, why))
    return pa.concat_batches(groups)


def _group(work: Work, mask: Bools, matched: bool | None, why: str | None = None) -> pa.RecordBatch:
    """Group the pairs that have one answer, in a row for each run with some."""
    runs = len(work.counts)
    if work.rounds is None and 2 * np.count_nonzero(mask) > len(mask) > BITS * runs:
        run, columns = _as_bits(work, mask)
    else:
        run, columns = _as_steps(work, np.flatnonzero(mask))
    columns["subscription"] = work.runs["subscription"].take(pa.array(run))
    columns["matched"] = pa.repeat(pa.scalar(matched, pa.bool_()), len(run))
    columns["rejected"] = pa.repeat(pa.scalar(why, pa.string()), len(run))
    nothing = {field.name: pa.nulls(len(run), field.type) for field in ANSWERS}
    return pa.RecordBatch.from_pydict(nothing | columns, schema=ANSWERS)


def _as_steps(work: Work, chosen: Index) -> tuple[Index, dict[str, Any]]:
    """Return the run of each row and its columns, for chosen pairs of a piece, in order."""
    ends = np.cumsum(work.counts)
    counts = np.diff(np.searchsorted(chosen, ends), prepend=0)
    if work.rounds is None:
        run = np.flatnonzero(counts)
        counts = counts[run]
        base = work.runs["first"].to_numpy()[run]
        steps = chosen - np.repeat((ends - work.counts)[run], counts)
    else:
        # A row for each 2^31 rounds of a run, since steps have 32 bits.
        rounds, pair_run = work.rounds[chosen], np.repeat(np.arange(len(counts)), counts)
        far = rounds >> 31
        new = (np.diff(pair_run, prepend=-1) != 0) | (np.diff(far, prepend=-1) != 0)
        starts = np.flatnonzero(new)
        run, base = pair_run[starts], far[starts] << 31
        counts, steps = np.diff(starts, append=len(rounds)), rounds & (1 << 31) - 1
    return run, {"base": base, "steps": _lists(counts, steps.astype(np.int32), _STEPS)}


def _as_bits(work: Work, mask: Bools) -> tuple[Index, dict[str, Any]]:
    """Return the run of each row and its columns, for the pairs of a mask.

    Runs are packed as one, so the first and the last number of each may have bits of its
    neighbours.
    """
    words = np.zeros((-(-len(mask) // 64), 8), dtype=np.uint8)
    packed = np.packbits(mask, bitorder="little")
    words.reshape(-1)[: len(packed)] = packed
    run = np.flatnonzero(work.counts)
    counts = work.counts[run]
    ends = np.cumsum(counts)
    starts = ends - counts
    low, high = starts >> 6, (ends + 63) >> 6
    first = starts & 63
    return run, {
        "base": work.runs["first"].to_numpy()[run] - first,
        "first": first.astype(np.int32),
        "last": (first + counts - 1).astype(np.int32),
        "bits": _lists(high - low, words.view("<i8")[:, 0][spans(low, high)[1]], _BITS),
    }


def _lists(counts: Numbers, values: Numbers, kind: pa.ListType) -> pa.ListArray:
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(values), type=kind)


def unfolded(answered: DataFrame, *, reject: bool) -> DataFrame:
    """Unfold rows of `ANSWERS` in a row for each pair.

    The columns are subscription, round, matched and, with `reject`, rejected.
    """
    steps = F.expr("coalesce(steps, sequence(first, last))")
    return (
        answered.select("*", F.explode(steps).alias("step"))
        .where("bits IS NULL OR bits[step >> 6] >> (step & 63) & 1 = 1")
        .select(
            "subscription",
            F.expr("base + step").alias("round"),
            "matched",
            *["rejected"] * reject,
        )
    )
