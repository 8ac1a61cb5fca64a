"""A subscriber's own: every event message goes to everybody, and its job finds out what it opens.

Requests and sessions are few and are exchanged once, by the roles themselves on the driver; what
their `key` holds afterwards is what the workers read.

Hazard: a number that two events share shows whether they are alike, and opens the payload of one to
anyone who knows the other's (`ccbps.spark.encode_events` says whose care numbers are).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from ccbps.columnar.sessions import Opening, payload_bytes
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.spark.columns import map_batches
from ccbps.spark.frames import check_answers, check_key, check_on_error, refuse_alike, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def match_own(
    events: DataFrame,
    matcher: Matcher,
    key: KeySource,
    *,
    event: str = "event_message",
    on_error: Literal["raise", "reject", "drop"] = "raise",
) -> DataFrame:
    """Find the events that match a subscriber's own interests, which its key holds.

    Example:
        .. code-block:: python

            alice = cs.FileKey("/run/secrets/alice-topics")
            mine = cs.match_own(numbered, topics, alice, on_error="drop")
            # round, interest: one row for each event and interest that match

    Args:
        events: has `event`. Its other columns are kept.
        matcher: public; one whose subscribers find out what matches (`Answers.SUBSCRIBER`).
        key: where the workers find the subscriber's `RoleKey`.
        event: binary column of `events`.
        on_error: "raise" fails the job at the first malformed message, and names its row. "drop"
            lets it match nothing. "reject" gives it a row with the cause in a string column
            "rejected", and NULL for `interest`.

    Returns:
        A row for each match: the columns of `events` without the message; `interest`, long, the
        interest's place among those that the subscriber encoded; where the matcher has payloads,
        the binary `payload`; and, with "reject", "rejected". A message that is NULL matches
        nothing.

    Raises:
        ParameterError: a column is missing, of the wrong type, or has the name of a result; or the
            matcher is of another kind.
        DecodeError: (as the cause of Spark's error, when the result is computed) with "raise", a
            message is malformed.
    """
    check_answers(matcher, "match_own")
    check_key(key)
    kept = tuple(name for name in events.columns if name != event)
    refuse_alike(events, {"events": kept, "the result": ["interest", "payload", "rejected"]})
    check_on_error(on_error, drop=True)
    require(events, [], binary=[event], name="events")
    new = [StructField("interest", LongType())]
    if payload_bytes(matcher):
        new.append(StructField("payload", BinaryType()))
    if on_error == "reject":
        new.append(StructField("rejected", StringType()))
    for field in new:
        if field.name in kept:
            raise ParameterError(f"column {field.name!r} would be there twice; rename it")
    schema = StructType([*(f for f in events.schema.fields if f.name in kept), *new])
    opening = Opening(matcher, key, event, kept, tuple(schema.names), on_error)
    return map_batches(events, opening.matches, schema)
