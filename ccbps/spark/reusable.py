"""Reusable matchers through Spark: each event and each subscription encrypted once, all pairs.

The interests, which are few, travel to every worker with the plan; the events come in batches, and
each batch is matched with all interests by one call of the same kernel as without Spark. Keys
travel by name, as everywhere: a broker's too, since some schemes give it a share for each user.

A worker keeps roles and prepared interests from batch to batch, by key and by content.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ccbps.errors import ParameterError, PredicateError
from ccbps.matching.reusable import ReusableMatcher
from ccbps.matching.reusable_roles import (
    ReusableBroker,
    ReusablePublisher,
    ReusableSubscriber,
    Table,
)
from ccbps.matching.role_keys import RoleKey
from ccbps.spark.arrow import binary_column, binary_rows, check_room, is_valid, strings
from ccbps.spark.causes import MATCH_NOTHING, check_on_error, refuse
from ccbps.spark.confine import confined
from ccbps.spark.frames import check_key, check_matcher, column, finish, require, struct
from ccbps.spark.keysource import KeySource, role_key
from ccbps.wire import Cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["encrypt_events", "encrypt_interests", "match_all"]

Bytes = NDArray[np.uint8]

MATCH_CELLS: Final = 1 << 24
"""Pairs of an event and an interest decided at a time: a byte each."""


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
    """Interests as this worker's broker keeps them, but for those it refuses, and the
    `ccbps.wire.Cause` of each."""
    broker = _broker(matcher, key)
    rows = np.frombuffer(interests, dtype=np.uint8).reshape(-1, matcher.interest_bytes)
    causes = broker.examine_interests(rows)
    return broker.prepare(rows[causes == Cause.NONE]), causes


def encrypt_events(
    df: DataFrame, matcher: ReusableMatcher, key: KeySource, *, output: str = "event_message"
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
        output: name of the message column.

    Returns:
        `df` without the attributes, with a binary message column.

    Raises:
        ParameterError: a column is missing.
        EventError (when the result is computed): a record does not fit the schema.
    """
    check_key(key)
    check_matcher(matcher, ReusableMatcher)
    attributes = list(matcher.schema)
    require(df, attributes)

    @F.arrow_udf("binary")
    @confined
    def encode(row: pa.Array) -> pa.Array:
        check_room(len(row), matcher.event_bytes)
        records = pa.RecordBatch.from_arrays(row.flatten(), names=attributes)
        return binary_column(_publisher(matcher, role_key(key)).encode(records))

    return finish(df, attributes, encode(struct(attributes)), output)


def encrypt_interests(
    df: DataFrame,
    matcher: ReusableMatcher,
    key: KeySource,
    *,
    predicate: str = "predicate",
    output: str = "interest_message",
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
        df: has the string column `predicate`, SQL text.
        matcher: public.
        key: where the workers find a subscriber's `RoleKey`.
        output: name of the message column.

    Returns:
        `df` without the predicate, with a binary message column; NULL where the predicate is.

    Raises:
        ParameterError: the column is missing or no string.
        PredicateError (when the result is computed): a predicate cannot be used; names its row in
            the batch and shows no name or constant of the predicate but the schema's own
            names.
    """
    check_key(key)
    check_matcher(matcher, ReusableMatcher)
    require(df, [], text=[predicate])

    @F.arrow_udf("binary")
    @confined
    def encode(texts: pa.Array) -> pa.Array:
        valid = is_valid(texts)
        chosen = strings(texts.filter(pa.array(valid)))
        check_room(int(valid.sum()), matcher.interest_bytes)
        try:
            # Equal predicates are encrypted anew, each with randomness of its own.
            messages = _subscriber(matcher, role_key(key)).encode(
                [chosen.values[i] for i in chosen.index]
            )
        except PredicateError as error:
            where = np.flatnonzero(valid)[error.row or 0]
            raise type(error)(f"row {where} of the batch: {error.summary}") from None
        return binary_column(messages, valid)

    return finish(df, [predicate], encode(column(predicate)), output)


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
        interests: has the string column `subscription` and `interest`. Collected by the driver.
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
        ParameterError: a column is missing, of the wrong type, or in both.
        DecodeError (when the result is computed, and at once for interests of the wrong width): a
            message is malformed.
    """
    check_on_error(on_error, "drop")
    check_key(key)
    check_matcher(matcher, ReusableMatcher)
    require(events, [], binary=[event], name="events")
    require(interests, [], text=[subscription], binary=[interest], name="interests")
    if subscription in events.columns:
        raise ParameterError(f"column {subscription!r} is in both DataFrames; rename one")
    few = interests.select(column(subscription), column(interest)).dropna().toArrow()
    labels = few.column(0).combine_chunks().cast(pa.string())
    rows, good = binary_rows(few.column(1).combine_chunks(), matcher.interest_bytes)
    if on_error == "raise":
        causes = np.where(good, np.uint8(Cause.NONE), np.uint8(Cause.INTEREST_WIDTH))
        refuse(causes, [subscription], [labels], MATCH_NOTHING)
    labels, content = labels.filter(pa.array(good)), rows[good].tobytes()
    kept = [name for name in events.columns if name != event]
    fields = [field for field in events.schema.fields if field.name in kept]
    schema = StructType([StructField(subscription, StringType()), *fields])

    # The plan holds messages, which the broker sees anyway, and no key.
    @confined
    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = role_key(key)
        broker = _broker(matcher, found)
        table, refused = _table(matcher, found, content)
        if on_error == "raise":
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
            if on_error == "raise":
                every = np.where(is_valid(messages), np.uint8(Cause.EVENT_WIDTH), Cause.NONE)
                every[usable] = causes
                refuse(every, kept, others, MATCH_NOTHING)
            row, which = np.nonzero(answers)
            place = pa.array(usable[row])
            yield pa.RecordBatch.from_arrays(
                [served.take(pa.array(which)), *(other.take(place) for other in others)],
                names=[subscription, *kept],
            )

    return events.mapInArrow(match, schema)
