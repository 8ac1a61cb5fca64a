"""Message stores matched: the broker's workers read messages from files by themselves.

`match` moves every message through Spark's joins and its socket to Python, which takes longer than
deciding the pair. Here the driver looks up in indexes which rows of two stores belong together, and
the workers map the files into memory and hand back answers alone. Nothing secret comes here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa

from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers
from ccbps.spark.frames import check_on_error, check_partitions, parallelism
from ccbps.spark.store_answers import ANSWERS, answers_of, unfolded
from ccbps.spark.store_tables import Stores, as_spark, check_pairs, indexes
from ccbps.spark.workers import on_worker
from ccbps.store.broadcast_plan import plan_rounds
from ccbps.store.files import PartReader
from ccbps.store.plan import open_piece, plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Parts that a worker keeps open: two of pairs at a time, and all those of the subscriptions that
# the events of a broadcast meet together.
_OPEN: Final = 8
_OPEN_TOGETHER: Final = 128
_NUMBER: Final = "number"


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

    Messages of the same pair and round are matched, or of a broadcast those of the same round, as
    by `match`; those without a counterpart are not read. The indexes are read now, the messages
    when the result is computed, which must be before a store is overwritten or compacted.

    Example:
        .. code-block:: python

            answers = cs.match_messages(spark, "/data/events", "/data/interests", matcher)
            # subscription, round, matched

    Args:
        events: path of a store of event messages, from `write_messages`; or of several.
        interests: path of a store of interest messages; or of several, such as one of each
            subscriber.
        matcher: public.
        on_error: "raise" fails the job and names the first malformed row by pair and round;
            "reject" gives it NULL and the cause in a string column "rejected", and leaves the other
            rows' answers as they are.
        matches_only: leave out pairs that do not match before Spark makes rows of them: sooner than
            ``.where("matched")`` does. Malformed rows stay, with "reject".
        verify: compare all checksums, which takes about half as long as deciding the messages.
            Otherwise those of the indexes are, and those of rounds that must be looked up.
        partitions: tasks; by default the session's parallelism. A task costs some 0.05 s; with
            fewer than 32,768 pairs a task, some have nothing to do.

    Returns:
        columns subscription (string), round (long), matched (boolean) and, with "reject", rejected
        (string, NULL where nothing is wrong); in no particular order.

    Raises:
        ParameterError: a path has no complete store, or one of another matcher or side; or comes
            twice.
        RandomnessReuseError: two stores of a side have a message for one (pair, round); or, of a
            broadcast's events, for one round.
        DecodeError: an index is damaged; or (as the cause of Spark's error, when the result is
            computed) a file is, or see `on_error`.
    """
    reject = check_on_error(on_error)
    check_pairs(matcher)
    check_partitions(partitions)
    event_index = indexes(events, matcher, "event")
    interest_index = indexes(interests, matcher, "interest")
    tasks = parallelism(spark) if partitions is None else partitions
    opened, most = open_piece, _OPEN
    if matcher.answers is Answers.ROUND:
        planned, parts = plan_rounds(event_index, interest_index, tasks=tasks)
        opened, most = parts.open_piece, _OPEN_TOGETHER
    else:
        planned = plan(event_index, interest_index, tasks=tasks)
    numbered = planned.append_column(_NUMBER, pa.array(np.arange(len(planned))))
    # A plan that is large has a task for each chunk.
    chunks = [numbered.slice(row, 1) for row in range(len(numbered))] or [numbered]
    pieces = spark.createDataFrame(pa.concat_tables(chunks), as_spark(numbered.schema))
    if partitions is not None:
        # Pieces in turn, to random tasks, would leave a third of them with none.
        pieces = pieces.repartitionByRange(partitions, _NUMBER)
    stores = [index.files for index in (event_index, interest_index)]

    @on_worker
    def decide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        broker = matcher.broker()

        @lru_cache(maxsize=most)
        def part(side: int, name: str) -> PartReader:
            return stores[side].reader(name, verify=verify)

        for piece in (row for batch in batches for row in batch.to_pylist()):
            work = opened(piece, part)
            yield answers_of(work, broker, reject=reject, matches_only=matches_only)

    return unfolded(pieces.mapInArrow(decide, as_spark(ANSWERS)), reject=reject)
