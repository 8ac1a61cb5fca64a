"""ObliviousTopicMatch through Spark: its publisher's and its subscribers' stage.

No broker answers anything: every event message goes to everybody, and a subscriber's job finds out
which it can open. Requests and sessions are few and are exchanged once, by the roles themselves on
the driver; what `publisher.key` and `subscriber.key` hold afterwards is what the workers read.

Conventions: each event has a number of its own. A worker makes its publisher anew for each batch,
from the same key, so that a task that is run again gives the same messages.

Hazard: as with rounds, duplicate numbers are found within a DataFrame only. Numbers of earlier jobs
are the caller's to remember, and the input must be stable: number rows once, in a table. A number
that two events share shows whether they are alike, and opens the payload of one to anyone who knows
the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from ccbps.arrow import binary_rows, check_room, integers, is_valid, row_name
from ccbps.errors import DecodeError, EventError, ParameterError
from ccbps.keys.confine import confined
from ccbps.keys.role_key import RoleKey
from ccbps.keys.sources import KeySource, role_key
from ccbps.matching.session.oblivious_topic import ObliviousSubscriber, ObliviousTopicMatch
from ccbps.spark.causes import (
    MATCH_NOTHING,
    check_on_error,
    encoded,
    encoded_type,
    examine_events,
    no_reasons,
    refuse_rows,
    usable,
)
from ccbps.spark.frames import (
    check_keep,
    check_key,
    check_matcher,
    check_once,
    finish_encoded,
    refuse_floats,
    require,
    struct,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["open_events", "publish_events"]


def publish_events(
    df: DataFrame,
    matcher: ObliviousTopicMatch,
    key: KeySource,
    *,
    number: str = "number",
    payload: str | None = None,
    keep: Sequence[str] = (),
    output: str = "event_message",
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Encrypt events of the publisher's topics, one message each, for everybody.

    Example:
        .. code-block:: python

            sent = cs.publish_events(numbered, topics, cs.FileKey("/run/secrets/publisher-topics"))
            # number, event_message

    Args:
        df: has the schema's attributes, `number` and `payload`.
        matcher: public.
        key: where the workers find `publisher.key`.
        number: column with the event's number, a whole number; it is public, and is kept.
        payload: binary column, values of at most `matcher.payload_bytes` bytes; None, and only
            then, if the matcher has no payloads.
        keep: other columns to leave as they are, in the clear, for everybody to see.
        output: name of the message column.
        on_error: "raise" fails the job at the first record that does not fit the schema, or is of
            none of the publisher's topics, and at the first payload that is too long; "reject"
            gives these NULL and the reason, which shows no value, in a string column "rejected".

    Returns:
        `number`, what `keep` names and a binary message column, NULL where number or payload is;
        with "reject", also "rejected" (NULL where nothing is wrong).

    Raises:
        ParameterError: a column is missing, of the wrong type, used twice, or not wanted; `keep`
            names an attribute or the payload; or, when the result is computed, a number is negative
            or a payload too long.
        RandomnessReuseError: a number occurs twice (runs one job to find out); or, when the result
            is computed, may have been used before the key was saved.
        EventError (when the result is computed): a record does not fit the schema, or belongs to
            none of the publisher's topics; names its number.
    """
    check_on_error(on_error)
    reject = on_error == "reject"
    check_key(key)
    check_matcher(matcher, ObliviousTopicMatch)
    attributes = list(matcher.schema)
    if (payload is None) == bool(matcher.payload_bytes):
        wanted = "a binary column of payloads" if matcher.payload_bytes else "None"
        raise ParameterError(
            f"payload must be {wanted}, as the matcher has payload_bytes={matcher.payload_bytes}; "
            f"got {payload!r}"
        )
    if number in attributes:
        raise ParameterError(
            f"number={number!r} is also an attribute, and numbers are public; use another column"
        )
    binary = [] if payload is None else [payload]
    kept = check_keep(keep, [number], [*attributes, *binary])
    require(df, [*attributes, *kept], whole=[number], binary=binary, rest=False)
    refuse_floats(df, attributes)

    @F.arrow_udf(encoded_type(reject))
    @confined
    def encode(row: pa.Array) -> pa.Array:
        columns = row.flatten()
        public = columns[: 1 + len(binary)]
        valid = is_valid(*public)
        numbers, *chosen = [column.filter(pa.array(valid)) for column in public]
        records = pa.RecordBatch.from_arrays(
            [column.filter(pa.array(valid)) for column in columns[len(public) :]], names=attributes
        )
        publisher = matcher.publisher_from(role_key(key))
        reasons = no_reasons(len(numbers))
        events: Any = records
        if reject:
            events, reasons = examine_events(matcher.schema, records)
            own = publisher.serves(events)
            reasons[np.flatnonzero(usable(reasons))[~own]] = "none of the publisher's topics"
            events = events.take(np.flatnonzero(own))
        for column in chosen:
            long = pc.greater(pc.binary_length(column), matcher.payload_bytes)
            rows = np.flatnonzero(long.to_numpy(zero_copy_only=False))
            problem = f"the payload is longer than payload_bytes={matcher.payload_bytes}"
            if len(rows) and not reject:
                named = row_name([number], [numbers], int(rows[0]))
                raise ParameterError(f"{named}: {problem}")
            short = ~np.isin(np.flatnonzero(usable(reasons)), rows)
            reasons[rows[usable(reasons)[rows]]] = problem
            events = events.take(np.flatnonzero(short)) if reject else events
        good = pa.array(usable(reasons))
        numbers, *chosen = [column.filter(good) for column in (numbers, *chosen)]
        check_room(len(numbers), matcher.event_bytes(publisher.requests))
        payloads = chosen[0].to_pylist() if chosen else None
        try:
            messages = publisher.encode(events, payloads, integers(numbers))
        except EventError as error:
            named = row_name([number], [numbers], error.row or 0)
            raise EventError(f"{named}: {error}", attribute=error.attribute) from None
        whole = no_reasons(len(row))
        whole[valid] = reasons
        sent = valid.copy()
        sent[valid] = usable(reasons)
        return encoded(messages, sent, whole if reject else None)

    row = encode(struct([number, *binary, *attributes]))
    result = finish_encoded(df, kept, row, output, reject)
    check_once(df, [number], "each number is for one event, once")
    return result


@lru_cache(maxsize=8)
def _subscriber(matcher: ObliviousTopicMatch, key: RoleKey) -> ObliviousSubscriber:
    return matcher.subscriber_from(key)


def open_events(
    df: DataFrame,
    matcher: ObliviousTopicMatch,
    key: KeySource,
    *,
    event: str = "event_message",
    on_error: Literal["raise", "drop"] = "raise",
) -> DataFrame:
    """Try a subscriber's keys on every event.

    Example:
        .. code-block:: python

            opened = cs.open_events(sent, topics, cs.FileKey("/run/secrets/alice-topics"))
            # number, interest: one row for each event and interest that match

    Args:
        df: has `event`; its other columns are kept.
        matcher: public.
        key: where the workers find `subscriber.key`.
        event: binary message column; messages may be of different widths.
        on_error: "raise" fails the job at the first message that is malformed, altered, or of a
            publisher whose sessions were not accepted, and names its row; "drop" lets it match
            nothing.

    Returns:
        one row for each event and interest of the subscriber that match: the columns of `df`
        without the message; `interest`, long, the interest's place among those it encoded; and,
        where the matcher has payloads, the binary `payload`. An event that is NULL matches nothing.

    Raises:
        ParameterError: a column is missing, of the wrong type, or has the name of a new one.
        DecodeError (when the result is computed): a message is malformed.
    """
    check_on_error(on_error, "drop")
    check_key(key)
    check_matcher(matcher, ObliviousTopicMatch)
    require(df, [], binary=[event])
    new = [StructField("interest", LongType())]
    if matcher.payload_bytes:
        new.append(StructField("payload", BinaryType()))
    kept = [name for name in df.columns if name != event]
    for field in new:
        if field.name in kept:
            raise ParameterError(f"column {field.name!r} would be there twice; rename it")
    schema = StructType([*(f for f in df.schema.fields if f.name in kept), *new])

    @confined
    def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        subscriber = _subscriber(matcher, role_key(key))
        for batch in batches:
            messages = batch.column(batch.schema.get_field_index(event))
            others = [batch.column(batch.schema.get_field_index(name)) for name in kept]
            row, which, payloads, problems = _examine(subscriber, messages)
            if on_error == "raise":
                refuse_rows(problems, kept, others, MATCH_NOTHING)
            columns = [other.take(pa.array(row)) for other in others]
            columns.append(pa.array(which, pa.int64()))
            if matcher.payload_bytes:
                columns.append(payloads.take(pa.array(row)))
            yield pa.RecordBatch.from_arrays(columns, names=schema.names)

    return df.mapInArrow(opened, schema)


def _examine(
    subscriber: ObliviousSubscriber, messages: pa.Array
) -> tuple[NDArray[np.intp], NDArray[np.intp], pa.Array, dict[int, str]]:
    """Row and interest of each match; payloads and what is wrong, by row."""
    widths = pc.binary_length(messages).fill_null(-1).to_numpy(zero_copy_only=False)
    payloads: list[bytes | None] = [None] * len(messages)
    problems: dict[int, str] = {}
    matches = np.empty((2, 0), dtype=np.intp)
    for width in np.unique(widths[widths >= 0]).tolist():
        rows = np.flatnonzero(widths == width)
        bodies, _ = binary_rows(messages.filter(pa.array(widths == width)), width)
        try:
            read, causes = subscriber.examine(bodies)
        except DecodeError as error:
            problems |= dict.fromkeys(rows.tolist(), str(error))
            continue
        problems |= {int(rows[at]): cause for at, cause in causes.items()}
        found, which = np.nonzero(read.matched)
        matches = np.concatenate([matches, [rows[found], which]], axis=1)
        for at in np.unique(found).tolist():
            payloads[rows[at]] = read.payloads[at]
    return matches[0], matches[1], pa.array(payloads, pa.binary()), problems
