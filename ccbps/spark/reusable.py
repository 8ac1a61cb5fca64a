"""Reusable matchers through Spark: each event and subscription encrypted once, all pairs matched.

A few interests travel to every worker with the plan; the events come in batches, and each
batch is matched with all interests by one call of the same kernel as without Spark. Many interests
are packed in blocks, and so are the events: a row of a cross join is then two blocks. Keys travel
by name, as everywhere: a broker's too, since some schemes give it a share for each user.

A worker keeps roles and prepared interests from batch to batch, by key and by content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ccbps.arrays import Bytes
from ccbps.arrow import binary_rows, check_room, is_valid, row_name, strings
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import EventError, ParameterError, PredicateError
from ccbps.keys.confine import confined
from ccbps.keys.role_key import RoleKey
from ccbps.keys.sources import KeySource, role_key
from ccbps.matching.reusable import ReusableMatcher
from ccbps.matching.reusable_roles import (
    ReusableBroker,
    ReusablePublisher,
    ReusableSubscriber,
    Table,
)
from ccbps.spark.causes import (
    MATCH_NOTHING,
    check_on_error,
    encoded,
    encoded_type,
    examine_events,
    examine_interests,
    no_reasons,
    refuse,
    usable,
)
from ccbps.spark.frames import (
    check_keep,
    check_key,
    check_matcher,
    column,
    finish_encoded,
    refuse_floats,
    require,
    struct,
)
from ccbps.wire import Cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["encrypt_events", "encrypt_interests", "match_all"]


MATCH_CELLS: Final = 1 << 24
"""Pairs of an event and an interest decided at a time: a byte each."""


PLAN_BYTES: Final = 32 << 20
"""Interests that travel with the plan, at most: Spark Connect fails, or hangs, at 128 MiB."""
BLOCK_BYTES: Final = 8 << 20
"""Of interests, or of events, in a row of the cross join, about."""


@lru_cache(maxsize=8)
def _publisher(matcher: ReusableMatcher, key: RoleKey) -> ReusablePublisher:
    return matcher.publisher(key)


@lru_cache(maxsize=64)
def _subscriber(matcher: ReusableMatcher, key: RoleKey) -> ReusableSubscriber:
    return matcher.subscriber(key)


@lru_cache(maxsize=8)
def _broker(matcher: ReusableMatcher, key: RoleKey) -> ReusableBroker:
    return matcher.broker(key)


@lru_cache(maxsize=8)
def _table(matcher: ReusableMatcher, key: RoleKey, interests: bytes) -> tuple[Table, Bytes]:
    """Interests as this worker's broker keeps them, except those it refuses, and the
    `ccbps.wire.Cause` of each."""
    broker = _broker(matcher, key)
    rows = np.frombuffer(interests, dtype=np.uint8).reshape(-1, matcher.interest_bytes)
    causes = broker.examine_interests(rows)
    return broker.prepare(rows[causes == Cause.NONE]), causes


def encrypt_events(
    df: DataFrame,
    matcher: ReusableMatcher,
    key: KeySource,
    *,
    keep: Sequence[str] = (),
    output: str = "event_message",
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Encrypt events, one message each.

    Example:
        .. code-block:: python

            sent = cs.encrypt_events(
                quotes.select("issue", "price"), tags, cs.FileKey("/run/secrets/publisher-role")
            )
            # event_message

    Args:
        df: has the schema's attributes.
        matcher: public.
        key: where the workers find a publisher's `RoleKey`.
        keep: columns to leave as they are, in the clear, for the broker to see, such as an event's
            number.
        output: name of the message column.
        on_error: "raise" fails the job at the first record that does not fit the schema; "reject"
            gives it NULL and the reason, which shows no value, in a string column "rejected".

    Returns:
        what `keep` names and a binary message column; with "reject", also "rejected" (NULL where
        nothing is wrong).

    Raises:
        ParameterError: a column is missing; `keep` names an attribute.
        EventError (when the result is computed): with "raise", a record does not fit the schema.
    """
    check_on_error(on_error)
    reject = on_error == "reject"
    check_key(key)
    check_matcher(matcher, ReusableMatcher)
    attributes = list(matcher.schema)
    kept = check_keep(keep, [], attributes)
    require(df, [*attributes, *kept], rest=False)
    refuse_floats(df, attributes)

    @F.arrow_udf(encoded_type(reject))
    @confined
    def encode(row: pa.Array) -> pa.Array:
        check_room(len(row), matcher.event_bytes)
        records = pa.RecordBatch.from_arrays(row.flatten(), names=attributes)
        reasons = no_reasons(len(row))
        try:
            events = matcher.schema.encode(records)
        except EventError:
            if not reject:
                raise
            events, reasons = examine_events(matcher.schema, records)
        messages = _publisher(matcher, role_key(key)).encode(events)
        return encoded(messages, usable(reasons), reasons if reject else None)

    return finish_encoded(df, kept, encode(struct(attributes)), output, reject)


def encrypt_interests(
    df: DataFrame,
    matcher: ReusableMatcher,
    key: KeySource,
    *,
    subscription: str = "subscription",
    predicate: str = "predicate",
    keep: Sequence[str] = (),
    output: str = "interest_message",
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Encrypt subscriptions, one message each.

    Example:
        .. code-block:: python

            kept = cs.encrypt_interests(
                wanted.select("subscription", "predicate").distinct(),
                tags,
                cs.FileKey("/run/secrets/subscriber-role"),
            )
            # subscription, interest_message

    Args:
        df: has the string columns `subscription` and `predicate`, SQL text.
        matcher: public.
        key: where the workers find a subscriber's `RoleKey`.
        subscription: what names an interest; stays, for the broker to see.
        keep: other columns to leave as they are, in the clear.
        output: name of the message column.
        on_error: "raise" fails the job at the first predicate that cannot be used; "reject" gives
            it NULL and the reason, which shows no value, in a string column "rejected".

    Returns:
        `subscription`, what `keep` names and a binary message column, NULL where the predicate is;
        with "reject", also "rejected" (NULL where nothing is wrong).

    Raises:
        ParameterError: a column is missing or not a string; `keep` names the predicate.
        PredicateError (when the result is computed): with "raise", a predicate cannot be used;
            names its subscription and shows no name or constant of the predicate but the schema's
            own names.
    """
    check_on_error(on_error)
    reject = on_error == "reject"
    check_key(key)
    check_matcher(matcher, ReusableMatcher)
    if subscription == predicate:
        raise ParameterError(f"subscription={subscription!r} is also the predicate")
    kept = check_keep(keep, [subscription], [predicate])
    require(df, kept, text=[subscription, predicate], rest=False)

    @F.arrow_udf(encoded_type(reject))
    @confined
    def encode(row: pa.Array) -> pa.Array:
        labels, texts = row.flatten()
        valid = is_valid(texts)
        chosen = strings(texts.filter(pa.array(valid)))
        check_room(len(chosen), matcher.interest_bytes)
        reasons = no_reasons(len(row))
        subscriber = _subscriber(matcher, role_key(key))
        try:
            messages = _encrypted(subscriber, chosen)
        except PredicateError as error:
            if not reject:
                where = int(np.flatnonzero(valid)[error.row or 0])
                named = row_name([subscription], [labels], where)
                raise type(error)(f"{named}: {error.summary}") from None
            found = examine_interests(matcher, chosen)
            reasons[valid] = found
            valid &= usable(reasons)
            good = DictionaryColumn(chosen.values, chosen.index[usable(found)])
            messages = _encrypted(subscriber, good)
        return encoded(messages, valid, reasons if reject else None)

    message = encode(struct([subscription, predicate]))
    return finish_encoded(df, kept, message, output, reject)


def _encrypted(subscriber: ReusableSubscriber, texts: DictionaryColumn[str]) -> Bytes:
    # Equal predicates are encrypted anew, each with randomness of its own.
    return subscriber.encode([texts.values[i] for i in texts.index])


def match_all(
    events: DataFrame,
    interests: DataFrame,
    matcher: ReusableMatcher,
    key: KeySource,
    *,
    subscription: str = "subscription",
    event: str = "event_message",
    interest: str = "interest_message",
    on_error: Literal["raise", "drop"] = "raise",
) -> DataFrame:
    """Match every event with every interest.

    Example:
        .. code-block:: python

            found = cs.match_all(sent, kept, tags, cs.FileKey("/run/secrets/broker-role"))
            # subscription, once for each event that it matches

    Args:
        events: has `event`; its other columns are kept.
        interests: has the string column `subscription` and `interest`. Counted now; up to
            `PLAN_BYTES` of messages are then collected by the driver; more are not collected, but
            joined with the events in blocks.
        matcher: public.
        key: where the workers find the broker's `RoleKey`.
        subscription: what names an interest.
        event: binary column of event messages.
        interest: binary column of interest messages.
        on_error: "raise" fails the job at the first malformed message and names an interest by its
            subscription, an event by its row in the batch; "drop" lets it match nothing. Interests
            of users who were revoked match nothing either way.

    Returns:
        one row for each match: `subscription` and the columns of `events` without the message. An
        event or interest that is NULL matches nothing.

    Raises:
        ParameterError: a column is missing, of the wrong type, or in both DataFrames.
        DecodeError (when the result is computed, and at once for interests of the wrong width that
            the driver collects): a message is malformed.
    """
    check_on_error(on_error, "drop")
    check_key(key)
    check_matcher(matcher, ReusableMatcher)
    require(events, [], binary=[event], name="events")
    require(interests, [], text=[subscription], binary=[interest], name="interests")
    if subscription in events.columns:
        raise ParameterError(f"column {subscription!r} is in both DataFrames; rename one")
    strict = on_error == "raise"
    kept = [name for name in events.columns if name != event]
    fields = [field for field in events.schema.fields if field.name in kept]
    schema = StructType([StructField(subscription, StringType()), *fields])

    def usable_interests(labels: pa.Array, messages: pa.Array) -> tuple[pa.Array, bytes]:
        rows, good = binary_rows(messages, matcher.interest_bytes)
        if strict:
            causes = np.where(good, np.uint8(Cause.NONE), np.uint8(Cause.INTEREST_WIDTH))
            refuse(causes, [subscription], [labels], MATCH_NOTHING)
        return labels.filter(pa.array(good)), rows[good].tobytes()

    def decide(
        labels: pa.Array, content: bytes, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        found = role_key(key)
        broker = _broker(matcher, found)
        table, refused = _table(matcher, found, content)
        if strict:
            causes = np.where(refused == Cause.USER, np.uint8(Cause.NONE), refused)
            refuse(causes, [subscription], [labels], MATCH_NOTHING)
        served = labels.filter(pa.array(refused == Cause.NONE))
        rows_at_once = max(1, MATCH_CELLS // max(1, len(table)))
        for batch in (
            whole.slice(start, rows_at_once)
            for whole in batches
            for start in range(0, whole.num_rows, rows_at_once)
        ):
            messages = batch.column(batch.schema.get_field_index(event))
            others = [batch.column(batch.schema.get_field_index(name)) for name in kept]
            bodies, fits = binary_rows(messages, matcher.event_bytes)
            usable = np.flatnonzero(fits)
            answers, causes = broker.examine(np.ascontiguousarray(bodies[usable]), table)
            if strict:
                every = np.where(is_valid(messages), np.uint8(Cause.EVENT_WIDTH), Cause.NONE)
                every[usable] = causes
                refuse(every, kept, others, MATCH_NOTHING)
            row, which = np.nonzero(answers)
            place = pa.array(usable[row])
            yield pa.RecordBatch.from_arrays(
                [served.take(pa.array(which)), *(other.take(place) for other in others)],
                names=[subscription, *kept],
            )

    few = interests.select(column(subscription), column(interest)).dropna()
    # Counted without the messages, which are perhaps encrypted only when they are asked for.
    size = few.select(column(subscription)).count() * matcher.interest_bytes
    if size <= PLAN_BYTES:
        collected = few.toArrow()
        labels, content = usable_interests(
            collected.column(0).combine_chunks().cast(pa.string()),
            collected.column(1).combine_chunks(),
        )

        # The plan holds messages, which the broker sees anyway, and no key.
        @confined
        def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from decide(labels, content, batches)

        return events.mapInArrow(match, schema)

    block_bytes = BLOCK_BYTES

    @confined
    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = max(1, batch.num_rows * block_bytes // max(1, batch.nbytes))
            for start in range(0, batch.num_rows, rows):
                yield pa.record_batch({"block": pa.array([_packed(batch.slice(start, rows))])})

    @confined
    def match_blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for some_events, some_interests in zip(*batch.columns, strict=True):
                labels, messages = _unpacked(some_interests).columns
                found = usable_interests(labels.cast(pa.string()), messages)
                yield from decide(*found, [_unpacked(some_events)])

    blocks = few.repartition(-(-size // PLAN_BYTES)).mapInArrow(pack, "block binary")
    pairs = events.mapInArrow(pack, "block binary").crossJoin(
        blocks.withColumnRenamed("block", "interests")
    )
    return pairs.mapInArrow(match_blocks, schema)


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    out: bytes = sink.getvalue().to_pybytes()
    return out


def _unpacked(block: pa.Scalar) -> pa.RecordBatch:
    with pa.ipc.open_stream(block.as_buffer()) as stream:
        return stream.read_next_batch()
