"""A subscriber's own: every event message goes to everybody, and its job finds out what it opens.

Requests and sessions are few and are exchanged once, by the roles themselves on the driver; what
their `key` holds afterwards is what the workers read.

Hazard: a number that two events share shows whether they are alike, and opens the payload of one to
anyone who knows the other's (`ccbps.spark.encode_events` says whose care numbers are).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from ccbps.columnar.sessions import Opening, payload_bytes
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.spark.columns import map_batches
from ccbps.spark.frames import check_on_error, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def match_own(
    events: DataFrame, matcher: Matcher, key: KeySource, event: str, on_error: str
) -> DataFrame:
    """See `ccbps.spark.match`."""
    check_on_error(on_error, drop=True)
    require(events, [], binary=[event], name="events")
    new = [StructField("interest", LongType())]
    if payload_bytes(matcher):
        new.append(StructField("payload", BinaryType()))
    if on_error == "reject":
        new.append(StructField("rejected", StringType()))
    kept = tuple(name for name in events.columns if name != event)
    for field in new:
        if field.name in kept:
            raise ParameterError(f"column {field.name!r} would be there twice; rename it")
    schema = StructType([*(f for f in events.schema.fields if f.name in kept), *new])
    names = tuple(schema.names)
    opening = Opening(matcher, key, event, kept, names, on_error)
    return map_batches(events, opening.matches, schema)
