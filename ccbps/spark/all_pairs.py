"""All pairs: every event with every interest, each encoded once.

Events and interests meet by a strategy:

- *Closure*: a few interests travel to every worker with the plan. The events come in batches. One
  call of the kernel matches a batch with all interests.
- *Blocks*: interests are packed in blocks, and so are the events. A row of a cross join is then two
  blocks.
- *Topic*: both sides have a public column of topics, and blocks of one topic each are joined on it.
  A row whose topic is NULL belongs to all topics.

A broker's key, too, travels by name, since in some schemes it holds a share for each user.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ccbps.checks import choice
from ccbps.columnar.all_pairs import NO_INTERESTS, AllPairs, blocks
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.spark.columns import column, map_batches
from ccbps.spark.frames import (
    PLAN_BYTES,
    check_answers,
    check_key,
    check_on_error,
    is_connect,
    refuse_alike,
    refuse_rejected,
    require,
)

BLOCK_BYTES: Final = 8 << 20
"""Approximate size of the interests, or of the events, in a row of the cross join (bytes)."""
CONNECT_BYTES: Final = 64 << 20
CLASSIC_BYTES: Final = 128 << 20
"""Largest size of the interests and their labels in a plan (bytes)."""


def match_all_pairs(
    events: DataFrame,
    interests: DataFrame,
    matcher: Matcher,
    key: KeySource,
    *,
    subscription: str = "subscription",
    topic: str | None = None,
    mask: str | None = None,
    strategy: Literal["auto", "closure", "blocks", "topic"] = "auto",
    event: str = "event_message",
    interest: str = "interest_message",
    on_error: Literal["raise", "reject", "drop"] = "raise",
) -> DataFrame:
    """Match every event message with every interest message.

    Example:
        .. code-block:: python

            broker = cs.FileKey("/run/secrets/broker-role")
            blocked = cs.match_all_pairs(sent, kept, tags, broker, strategy="blocks")
            # subscription, once for each event that it matches

    Args:
        events: event messages, perhaps a stream. Other columns are kept.
        interests: interest messages, with their subscriptions.
        matcher: the matcher; public. Its broker answers for all pairs (`Answers.ALL`).
        key: source of the broker's `RoleKey` for the workers.
        subscription: string column of `interests` that names a subscription.
        topic: column of both DataFrames that the broker sees, such as `topic_tokens` makes. Rows of
            equal topics are matched with each other, and rows whose topic is NULL with all rows.
            None if there is no such column.
        mask: binary column of both DataFrames with masks of a content pre-filter, as `event_masks`
            and `interest_masks` make them. Only pairs that pass are tested; a row whose mask is
            NULL or of another width passes. None if there is no such column.
        strategy: way in which events and interests meet. "closure": the driver collects interests,
            and workers get all of them. "blocks": both are packed in blocks, and crossed. "topic":
            blocks of one topic are joined. "auto": "topic" where there is one; else "closure", if
            interests (which are counted now) have at most 32 MiB; else "blocks".
        event: binary column of `events`.
        interest: binary column of `interests`.
        on_error: "raise" fails the job at the first malformed message, and names its row. "drop"
            lets malformed messages match nothing. "reject" does so, too, and gives each of them a
            row with the cause in a string column "rejected". In this row the columns of the other
            side are NULL. A malformed interest has no such row where `events` is a stream, since
            the row would come again with each micro-batch. Messages of revoked users match nothing,
            whatever `on_error` is.

    Returns:
        A row for each match: `subscription`, the columns of `events` without the message and, with
        "reject", "rejected" (NULL where nothing is wrong). A message that is NULL matches nothing.

    Raises:
        ParameterError: a column is missing, of the wrong type, or in both DataFrames, or names of
            the result differ in case only (unless ``spark.sql.caseSensitive`` is on); the matcher
            is of another kind; or the interests are too many for "closure".
        DecodeError: (as the cause of Spark's error, when the result is computed) with "raise", a
            message is malformed. Interests of the wrong width that the driver collects are refused
            at once.
    """
    check_answers(matcher, "match_all_pairs")
    check_key(key)
    kept = tuple(name for name in events.columns if name not in (event, mask))
    refuse_alike(events, {"events": kept, "interests": [subscription]})
    reject = check_on_error(on_error, drop=True)
    choice("strategy", strategy, ("auto", "closure", "blocks", "topic"))
    if strategy != "auto" and (strategy == "topic") != (topic is not None):
        raise ParameterError(
            "strategy='topic' goes with topic=, a public column of both DataFrames; "
            f"got strategy={strategy!r}, topic={topic!r}"
        )
    topics = [] if topic is None else [topic]
    masks = [] if mask is None else [mask]
    require(events, topics, binary=[event, *masks], name="events")
    require(interests, topics, text=[subscription], binary=[interest, *masks], name="interests")
    if subscription in events.columns:
        raise ParameterError(f"column {subscription!r} is in both DataFrames; rename one")
    if interests.isStreaming:
        raise ParameterError(
            "interests is a stream, of which nobody knows when it is whole: write interests to a "
            "table, which is read again for each micro-batch of a stream of events"
        )
    if topic is not None:
        kind, other = (df.schema[topic].dataType for df in (events, interests))
        if kind.simpleString() != other.simpleString():
            raise ParameterError(
                f"topic={topic!r} must be of one type in both DataFrames, got "
                f"{kind.simpleString()} and {other.simpleString()}"
            )
        if kind.typeName() in ("struct", "array", "map", "variant"):
            raise ParameterError(
                f"topic={topic!r} must be a column of single values, got {kind.simpleString()}"
            )
    schema = StructType().add(subscription, "string")
    for field in events.schema.fields:
        if field.name in kept:
            schema.add(field)
    if reject:
        refuse_rejected([*kept, subscription])
        schema.add("rejected", "string")
    pairs = _Pairs(AllPairs(matcher, key, subscription, event, kept, on_error, mask), schema)
    label, message = column(subscription), column(interest)
    asked = interests.select(label, message, *map(column, [*masks, *topics]))
    asked = asked.where(label.isNotNull()).where(message.isNotNull())
    if topic is not None:
        result = pairs.by_topic(events, asked, topic)
    else:
        result = pairs.of_all(events, asked, strategy)
    # A stream and a table have no union.
    if not reject or events.isStreaming:
        return result
    malformed = StructType([schema.fields[0], schema.fields[-1]])
    labelled = asked.select(label, message)
    rows = map_batches(labelled, pairs.broker.rejected, malformed)
    return result.unionByName(rows, allowMissingColumns=True)


@dataclass(frozen=True)
class _Pairs:
    """One match, by any strategy.

    Attributes:
        broker: answers for batches of events.
        schema: columns of the result.
    """

    broker: AllPairs
    schema: StructType

    def of_all(self, events: DataFrame, interests: DataFrame, strategy: str) -> DataFrame:
        """Match all events with all interests, by a strategy without topics."""
        # Counted without the messages, which Spark may encode only when they are selected.
        label = column(interests.columns[0])
        totals = interests.select(label).agg(F.count(label), F.sum(F.octet_length(label))).first()
        count, text = totals or (0, 0)
        size = count * self.broker.matcher.interest_bytes + (text or 0)
        connect = is_connect(events)
        most = CONNECT_BYTES if connect else CLASSIC_BYTES
        if strategy == "closure" and size > most:
            why = (
                "a plan of Spark Connect is one gRPC message of 128 MiB at most"
                if connect
                else "the driver holds all interests several times, in Java's memory "
                "(spark.driver.memory) and in Python's, and sends them to every worker"
            )
            raise ParameterError(
                f"strategy='closure' takes at most {most >> 20} MiB of interests, got "
                f"{size / (1 << 20):.1f} MiB: {why}. Take strategy='blocks', or name a topic="
            )
        if strategy == "blocks" or (strategy == "auto" and size > PLAN_BYTES):
            return self.by_blocks(events, interests, -(-size // PLAN_BYTES), report=True)
        labels, *content = (chunks.combine_chunks() for chunks in interests.toArrow().columns)
        collected = self.broker.interests(labels.cast(pa.string()), *content)
        # The plan holds messages, which the broker sees anyway, and no key.
        return map_batches(events, partial(self.broker.matches, *collected), self.schema)

    def by_blocks(
        self, events: DataFrame, interests: DataFrame, tasks: int, *, report: bool
    ) -> DataFrame:
        """Match every block of events with every block of interests."""
        packed = _packed(interests.repartition(max(1, tasks)), None)
        if report and self.broker.on_error == "reject":
            # Malformed events are reported where they meet this block, so once each.
            none = interests.sparkSession.range(0, 1, 1, 1)
            none = none.select(F.lit(NO_INTERESTS).alias("block"))
            # Events are packed once for each task of interests: there must be no more of these.
            packed = packed.union(none).coalesce(max(1, tasks))
        pairs = _packed(events, None).crossJoin(packed.withColumnRenamed("block", "interests"))
        return map_batches(pairs, self.broker.block_matches, self.schema)

    def by_topic(self, events: DataFrame, interests: DataFrame, topic: str) -> DataFrame:
        """Match blocks of one topic with each other, and rows about all topics with everything."""
        some, every = (df.where(column(topic).isNotNull()) for df in (events, interests))
        packed = _packed(every, topic).withColumnRenamed("block", "interests")
        # The join puts all blocks of a topic in one task, however many interests have it. So pairs
        # of blocks are spread again: those of the same interests to one task, which prepares these
        # once.
        pairs = _packed(some, topic).join(packed, "topic")
        spread = pairs.withColumn("which", F.xxhash64("interests")).hint("rebalance", "which")
        blocks = spread.select("block", "interests")
        result = map_batches(blocks, self.broker.block_matches, self.schema)
        wide, others = (df.where(column(topic).isNull()) for df in (events, interests))
        # Both are few, or nobody would have named a topic.
        for left, right in ((events, others), (wide, every)):
            narrow = right.drop(column(topic))
            result = result.unionByName(self.by_blocks(left, narrow, 1, report=left is events))
        return result


def _packed(df: DataFrame, topic: str | None) -> DataFrame:
    """Pack rows in a column `block`. With a topic, a block has one, in a column `topic`."""
    block_bytes, schema = BLOCK_BYTES, StructType()
    if topic is not None:
        schema.add("topic", df.schema[topic].dataType)
        df = df.repartition(column(topic))
        # Spark does not sort a stream, so each of its batches is sorted.
        df = df if df.isStreaming else df.sortWithinPartitions(column(topic))
    unsorted = topic is not None and df.isStreaming

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if unsorted:
            batches = (batch.take(pc.array_sort_indices(batch[topic])) for batch in batches)
        yield from blocks(batches, block_bytes, topic)

    return map_batches(df, pack, schema.add("block", "binary"))
