"""All pairs: every event with every interest, each encoded once.

A few interests travel to every worker with the plan; the events come in batches, and each batch is
matched with all interests by one call of the same kernel as without Spark. Many interests are
packed in blocks, and so are the events: a row of a cross join is then two blocks. A broker's key
travels by name, too, since some schemes give it a share for each user.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from ccbps.columnar.all_pairs import AllPairs, blocks
from ccbps.errors import ParameterError
from ccbps.keys.confine import confined
from ccbps.keys.sources import KeySource
from ccbps.matching.matcher import Matcher
from ccbps.spark.frames import PLAN_BYTES, check_on_error, column, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["match_all_pairs"]

BLOCK_BYTES: Final = 8 << 20
"""Of interests, or of events, in a row of the cross join, about."""


def match_all_pairs(
    events: DataFrame,
    interests: DataFrame,
    matcher: Matcher,
    key: KeySource,
    subscription: str,
    event: str,
    interest: str,
    on_error: str,
) -> DataFrame:
    """See `ccbps.spark.match`."""
    check_on_error(on_error, "drop")
    require(events, [], binary=[event], name="events")
    require(interests, [], text=[subscription], binary=[interest], name="interests")
    if subscription in events.columns:
        raise ParameterError(f"column {subscription!r} is in both DataFrames; rename one")
    kept = tuple(name for name in events.columns if name != event)
    fields = [field for field in events.schema.fields if field.name in kept]
    schema = StructType([StructField(subscription, StringType()), *fields])
    broker = AllPairs(matcher, key, subscription, event, kept, on_error == "raise")

    few = interests.select(column(subscription), column(interest)).dropna()
    # Counted without the messages, which are perhaps encoded only when they are asked for.
    size = few.select(column(subscription)).count() * matcher.interest_bytes
    if size <= PLAN_BYTES:
        collected = few.toArrow()
        labels, content = broker.interests(
            collected.column(0).combine_chunks().cast(pa.string()),
            collected.column(1).combine_chunks(),
        )

        # The plan holds messages, which the broker sees anyway, and no key.
        @confined
        def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from broker.matches(labels, content, batches)

        return events.mapInArrow(match, schema)

    block_bytes = BLOCK_BYTES

    @confined
    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from blocks(batch, block_bytes)

    @confined
    def match_blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from broker.block_matches(batches)

    packed = few.repartition(-(-size // PLAN_BYTES)).mapInArrow(pack, "block binary")
    pairs = events.mapInArrow(pack, "block binary").crossJoin(
        packed.withColumnRenamed("block", "interests")
    )
    return pairs.mapInArrow(match_blocks, schema)
