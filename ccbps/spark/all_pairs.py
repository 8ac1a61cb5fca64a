"""All pairs: every event with every interest, each encoded once.

How they meet is a strategy. *Closure*: a few interests travel to every worker with the plan; the
events come in batches, and each batch is matched with all interests by one call of the same kernel
as without Spark. *Blocks*: many interests are packed in blocks, and so are the events: a row of a
cross join is then two blocks. *Topic*: both sides have a public column that says what they are
about, and blocks of one topic each are joined on it; where it is NULL, a row is about all topics.
A broker's key travels by name, too, since some schemes give it a share for each user.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

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
    require,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BLOCK_BYTES: Final = 8 << 20
"""Of interests, or of events, in a row of the cross join, about."""
CONNECT_BYTES: Final = 64 << 20
CLASSIC_BYTES: Final = 128 << 20
"""Of interests and their labels in a plan, at most."""
_NESTED: Final = ("struct", "array", "map", "variant")


def match_all_pairs(
    events: DataFrame,
    interests: DataFrame,
    matcher: Matcher,
    key: KeySource,
    *,
    subscription: str = "subscription",
    topic: str | None = None,
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
        events: has `event`. Its other columns are kept. May be a stream.
        interests: has `interest` and `subscription`.
        matcher: public; one whose broker answers for all pairs (`Answers.ALL`).
        key: where the workers find the broker's `RoleKey`.
        subscription: string column of `interests` that names one.
        topic: a column of both DataFrames that the broker sees, such as `topic_tokens` makes: only
            rows of equal topics are matched, and those where it is NULL with all. None if there is
            no such column.
        strategy: how events and interests meet. "closure": the driver collects interests, and
            workers get all of them. "blocks": both are packed in blocks, and crossed. "topic":
            blocks of one topic are joined. "auto": by topic where there is one; else as a closure,
            if interests (which are counted now) have at most 32 MiB, or in blocks.
        event: binary column of `events`.
        interest: binary column of `interests`.
        on_error: "raise" fails the job at the first malformed message, and names its row. "drop"
            lets malformed messages match nothing. "reject" does so, too, and gives each a row with
            the cause in a string column "rejected", and NULL for what it did not meet:
            `subscription` of an event, the columns of `events` of an interest (which has no such
            row where `events` is a stream, since it comes again with each micro-batch). Messages of
            users who were revoked match nothing either way.

    Returns:
        A row for each match: `subscription`, the columns of `events` without the message and, with
        "reject", "rejected" (NULL where nothing is wrong). A message that is NULL matches nothing.

    Raises:
        ParameterError: a column is missing, of the wrong type, or in both DataFrames, or names of
            the result differ in case only (unless ``spark.sql.caseSensitive`` is on); the matcher
            is of another kind; or the interests are too many for "closure".
        DecodeError: (as the cause of Spark's error, when the result is computed; at once for
            interests of the wrong width that the driver collects) with "raise", a message is
            malformed.
    """
    check_answers(matcher, "match_all_pairs")
    check_key(key)
    kept = [name for name in events.columns if name != event]
    refuse_alike(events, {"events": kept, "interests": [subscription]})
    check_on_error(on_error, drop=True)
    if strategy not in ("auto", "closure", "blocks", "topic"):
        raise ParameterError(
            f"strategy must be 'auto', 'closure', 'blocks' or 'topic', got {strategy!r}"
        )
    if strategy != "auto" and (strategy == "topic") != (topic is not None):
        raise ParameterError(
            "strategy='topic' goes with topic=, a public column of both DataFrames; "
            f"got strategy={strategy!r}, topic={topic!r}"
        )
    topics = [] if topic is None else [topic]
    require(events, topics, binary=[event], name="events")
    require(interests, topics, text=[subscription], binary=[interest], name="interests")
    if subscription in events.columns:
        raise ParameterError(f"column {subscription!r} is in both DataFrames; rename one")
    if interests.isStreaming:
        raise ParameterError(
            "interests is a stream, of which nobody knows when it is whole: write interests to a "
            "table, which is read again for each micro-batch of a stream of events"
        )
    if topic is not None:
        _require_one_type(events, interests, topic)
    pairs = _Pairs(events, matcher, key, subscription, event, on_error)
    needed = [column(subscription), column(interest), *map(column, topics)]
    few = interests.select(*needed)
    for one in needed[:2]:
        few = few.where(one.isNotNull())
    if topic is not None:
        found = pairs.by_topic(events, few, topic)
    else:
        found = pairs.of_all(events, few.select(*needed[:2]), strategy)
    # A stream and a table have no union.
    told = on_error == "reject" and not events.isStreaming
    return pairs.with_interests(found, few) if told else found


class _Pairs:
    """One match, however its sides meet."""

    def __init__(
        self,
        events: DataFrame,
        matcher: Matcher,
        key: KeySource,
        subscription: str,
        event: str,
        on_error: str,
    ) -> None:
        kept = tuple(name for name in events.columns if name != event)
        if on_error == "reject" and "rejected" in {name.lower() for name in (*kept, subscription)}:
            raise ParameterError(
                "there is a column 'rejected' already, and on_error='reject' makes one; drop it, "
                "and the rows that it rejects"
            )
        label = StructField(subscription, StringType())
        why = [StructField("rejected", StringType())] * (on_error == "reject")
        fields = [field for field in events.schema.fields if field.name in kept]
        self._schema, self._bad = StructType([label, *fields, *why]), StructType([label, *why])
        self._broker = AllPairs(matcher, key, subscription, event, kept, on_error)

    def of_all(self, events: DataFrame, interests: DataFrame, strategy: str) -> DataFrame:
        """Match all events with all interests, by a strategy without topics."""
        # Counted without the messages, which are perhaps encoded only when they are asked for.
        label = column(interests.columns[0])
        told = interests.select(label).agg(F.count(label), F.sum(F.octet_length(label))).first()
        count, text = (0, 0) if told is None else (int(told[0]), int(told[1] or 0))
        size = count * self._broker.matcher.interest_bytes + text
        if strategy == "closure":
            _check_closure(events, size)
        if strategy == "closure" or (strategy == "auto" and size <= PLAN_BYTES):
            return self.by_closure(events, interests)
        return self.by_blocks(events, interests, -(-size // PLAN_BYTES), report=True)

    def with_interests(self, found: DataFrame, interests: DataFrame) -> DataFrame:
        """Add a row for each malformed interest."""
        broker, labels = self._broker, interests.columns[:2]

        bad = map_batches(interests.select(*map(column, labels)), broker.rejected, self._bad)
        return found.unionByName(bad, allowMissingColumns=True)

    def by_closure(self, events: DataFrame, interests: DataFrame) -> DataFrame:
        """Match events at workers that have all interests, which the driver collects."""
        broker, collected = self._broker, interests.toArrow()
        labels, content = broker.interests(
            collected.column(0).combine_chunks().cast(pa.string()),
            collected.column(1).combine_chunks(),
        )

        # The plan holds messages, which the broker sees anyway, and no key.
        return map_batches(events, partial(broker.matches, labels, content), self._schema)

    def by_blocks(
        self, events: DataFrame, interests: DataFrame, tasks: int, *, report: bool
    ) -> DataFrame:
        """Match every block of events with every block of interests."""
        packed = _packed(interests.repartition(max(1, tasks)), None)
        if report and self._broker.on_error == "reject":
            # Where events meet this one, those that are malformed are reported, so each once.
            none = interests.sparkSession.range(0, 1, 1, 1)
            none = none.select(F.lit(NO_INTERESTS).alias("block"))
            # Events are packed once for each task of interests: there must be no more of these.
            packed = packed.union(none).coalesce(max(1, tasks))
        return self._decided(
            _packed(events, None).crossJoin(packed.withColumnRenamed("block", "interests"))
        )

    def by_topic(self, events: DataFrame, interests: DataFrame, topic: str) -> DataFrame:
        """Match blocks of one topic with each other, and rows about all topics with everything."""
        some, every = (df.where(column(topic).isNotNull()) for df in (events, interests))
        packed = _packed(every, topic).withColumnRenamed("block", "interests")
        # The join puts all blocks of a topic in one task, however many want it; so pairs of blocks
        # are spread again, those of the same interests to one task, which prepares them once.
        pairs = _packed(some, topic).join(packed, "topic")
        spread = pairs.withColumn("which", F.xxhash64("interests")).hint("rebalance", "which")
        found = self._decided(spread.select("block", "interests"))
        labels = interests.columns[:2]
        wide, others = (df.where(column(topic).isNull()) for df in (events, interests))
        # Both are few, or nobody would have named a topic.
        for left, right in ((events, others), (wide, every)):
            narrow = right.select(*map(column, labels))
            found = found.unionByName(self.by_blocks(left, narrow, 1, report=left is events))
        return found

    def _decided(self, pairs: DataFrame) -> DataFrame:
        return map_batches(pairs, self._broker.block_matches, self._schema)


def _packed(df: DataFrame, topic: str | None) -> DataFrame:
    """Pack rows in a column `block`; with a topic, of one topic each, in a column `topic`."""
    block_bytes = BLOCK_BYTES
    schema = StructType([StructField("block", BinaryType())])
    if topic is not None:
        schema = StructType([StructField("topic", df.schema[topic].dataType), *schema.fields])
        df = df.repartition(column(topic))
        # Spark sorts no stream: there, each batch is.
        apart = df.isStreaming
        df = df if apart else df.sortWithinPartitions(column(topic))

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if topic is not None and apart:
            batches = (batch.take(pc.array_sort_indices(batch[topic])) for batch in batches)
        yield from blocks(batches, block_bytes, topic)

    return map_batches(df, pack, schema)


def _require_one_type(events: DataFrame, interests: DataFrame, topic: str) -> None:
    kinds = [df.schema[topic].dataType.simpleString() for df in (events, interests)]
    if kinds[0] != kinds[1]:
        raise ParameterError(
            f"topic={topic!r} must be of one type in both DataFrames, got {' and '.join(kinds)}"
        )
    if events.schema[topic].dataType.typeName() in _NESTED:
        raise ParameterError(f"topic={topic!r} must be a column of single values, got {kinds[0]}")


def _check_closure(events: DataFrame, size: int) -> None:
    """Refuse interests that do not get to the workers with a plan."""
    connect = is_connect(events)
    most = CONNECT_BYTES if connect else CLASSIC_BYTES
    if size > most:
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
