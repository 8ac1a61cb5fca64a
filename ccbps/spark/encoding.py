"""Encoders: attributes or predicates in, one-time messages out.

Each row names the pair it is for and its round. A pair's seed comes from the key source by label:
derived from a publisher's master, or one of a subscriber's ring. A (pair, round) may be used by one
event and one predicate, once each. Duplicates within a DataFrame are found before anything is
encoded; rounds used by earlier jobs are the caller's to remember (a sequence number that never goes
back will do).

Of the other columns, only those that `keep` names stay, in the clear: nothing else in a DataFrame
travels to the broker unasked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F

from ccbps.arrow import check_room, row_name, strings
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import EventError, ParameterError, PredicateError
from ccbps.keys.confine import confined
from ccbps.keys.sources import KeySource, seeds
from ccbps.matching import Matcher
from ccbps.matching.roles import Subscriber
from ccbps.spark.causes import (
    check_on_error,
    encoded,
    encoded_type,
    examine_events,
    examine_interests,
    no_reasons,
    or_null,
    usable,
)
from ccbps.spark.frames import (
    check_keep,
    check_key,
    check_matcher,
    check_once,
    finish_encoded,
    ordered,
    refuse_floats,
    require,
    struct,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["encode_events", "encode_interests"]

_ONCE = "each pair and round encodes one event and one predicate, once"


def encode_events(
    df: DataFrame,
    matcher: Matcher,
    key: KeySource,
    *,
    pair: str = "subscription",
    round: str = "round",
    keep: Sequence[str] = (),
    output: str = "event_message",
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Encode events: one row for each event and subscription it is meant for.

    Example:
        .. code-block:: python

            events = cs.encode_events(quotes, matcher, key)
            # subscription, round, event_message

    Args:
        df: has the schema's attributes, `pair` and `round`.
        matcher: public.
        key: where the workers find the publisher's master seed.
        pair: string column with the label of the pair.
        round: column with the round, a whole number.
        keep: other columns to leave as they are, in the clear, for the broker to see.
        output: name of the message column.
        on_error: "raise" fails the job at the first row that cannot be encoded; "reject" gives it
            NULL and the reason, which shows no value, in a string column "rejected".

    Returns:
        `pair`, `round`, what `keep` names and a binary message column, NULL where pair or round is;
        with "reject", also "rejected" (NULL where nothing is wrong).

    Raises:
        ParameterError: a column is missing, of the wrong type, or used twice; `keep` names an
            attribute.
        RandomnessReuseError: a (pair, round) occurs twice. Runs one job to find out.
        EventError (when the result is computed): with "raise", a record does not fit the schema;
            names its pair and round.
    """
    check_on_error(on_error)
    reject = on_error == "reject"
    check_key(key)
    check_matcher(matcher, Matcher)
    attributes = list(matcher.schema)
    _require_apart({"pair": pair, "round": round}, attributes)
    kept = check_keep(keep, [pair, round], attributes)
    require(df, [*attributes, *kept], whole=[round], text=[pair], rest=False)
    refuse_floats(df, attributes)

    @F.arrow_udf(encoded_type(reject))
    @confined
    def encode(row: pa.Array) -> pa.Array:
        pairs, rounds, *columns = row.flatten()
        valid, order, label, number = ordered(pairs, rounds)
        mask = pa.array(valid)
        records = pa.RecordBatch.from_arrays([c.filter(mask) for c in columns], names=attributes)
        reasons = no_reasons(len(row)) if reject else None
        try:
            events = matcher.schema.encode(records)
        except EventError as error:
            if reasons is None:
                where = np.flatnonzero(valid)[error.row or 0]
                named = row_name((pair, round), (pairs, rounds), int(where))
                raise EventError(f"{named}: {error}", attribute=error.attribute) from None
            events, reasons[valid] = examine_events(matcher.schema, records)
            valid, order, label, number = ordered(pairs, rounds, or_null(usable(reasons)))
        check_room(len(order), matcher.event_bytes)
        messages = np.empty((len(order), matcher.event_bytes), dtype=np.uint8)
        events = events.take(order)
        messages[order] = matcher.publisher(seeds(key)).encode(events, number, pairs=label)
        return encoded(messages, valid, reasons)

    message = encode(struct([pair, round, *attributes]))
    result = finish_encoded(df, kept, message, output, reject)
    check_once(df, [pair, round], _ONCE)
    return result


def encode_interests(
    df: DataFrame,
    matcher: Matcher,
    key: KeySource,
    *,
    pair: str = "subscription",
    round: str = "round",
    predicate: str = "predicate",
    constants: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    output: str = "interest_message",
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Encode subscriptions: one row for each subscription and round.

    Example:
        .. code-block:: python

            interests = cs.encode_interests(wanted, matcher, key)
            # subscription, round, interest_message

    Args:
        df: has `pair`, `round` and the predicate's columns.
        matcher: public.
        key: where the workers find the subscribers' seeds (or the master they come from).
        pair: string column with the label of the pair.
        round: column with the round, a whole number.
        predicate: column with SQL text, where an interest is a predicate.
        constants: where the matcher has `private_names`, the column of each; by default, columns of
            the same names.
        keep: other columns to leave as they are, in the clear, for the broker to see.
        output: name of the message column.
        on_error: "raise" fails the job at the first row that cannot be encoded; "reject" gives it
            NULL and the reason, which shows no value, in a string column "rejected".

    Returns:
        `pair`, `round`, what `keep` names and a binary message column, NULL where one of pair,
        round, predicate and constants is; with "reject", also "rejected" (NULL where nothing is
        wrong).

    Raises:
        ParameterError: a column is missing, of the wrong type, or used twice; `keep` names a column
            of the predicate.
        RandomnessReuseError: a (pair, round) occurs twice. Runs one job to find out.
        PredicateError (when the result is computed): with "raise", a predicate cannot be used;
            names its pair and round, and shows no name or constant of the predicate but the
            schema's own names.
    """
    check_on_error(on_error)
    reject = on_error == "reject"
    check_key(key)
    check_matcher(matcher, Matcher)
    names = matcher.private_names
    if names is None:
        sources = {predicate: predicate}
    else:
        unknown = set(constants or {}) - set(names)
        if unknown:
            raise ParameterError(
                f"constants names {min(unknown)!r}; the matcher's private constants are "
                f"{', '.join(names) or 'none'}"
            )
        sources = {name: (constants or {}).get(name, name) for name in names}
    secret = list(sources.values())
    _require_apart({"pair": pair, "round": round}, secret)
    kept = check_keep(keep, [pair, round], secret)
    require(df, [*secret, *kept], whole=[round], text=[pair], rest=False)
    refuse_floats(df, secret)

    @F.arrow_udf(encoded_type(reject))
    @confined
    def encode(row: pa.Array) -> pa.Array:
        pairs, rounds, *given = row.flatten()
        valid, order, label, number = ordered(pairs, rounds, *given)
        chosen = [column.filter(pa.array(valid)) for column in given]
        if names is None:
            interests: DictionaryColumn[Any] = strings(chosen[0])
        else:
            interests = _bindings(list(sources), chosen, int(valid.sum()))
        check_room(len(order), matcher.interest_bytes)
        subscriber, reasons = matcher.subscriber(seeds(key)), no_reasons(len(row))
        try:
            messages = _in_order(subscriber, interests, order, number, label)
        except PredicateError as error:
            if not reject:
                where = np.flatnonzero(valid)[order[error.row or 0]]
                named = row_name((pair, round), (pairs, rounds), int(where))
                raise type(error)(f"{named}: {error.summary}") from None
            found = examine_interests(matcher, interests)
            reasons[valid], good = found, usable(found)
            interests = DictionaryColumn(interests.values, interests.index[good])
            valid, order, label, number = ordered(pairs, rounds, *given, or_null(usable(reasons)))
            messages = _in_order(subscriber, interests, order, number, label)
        return encoded(messages, valid, reasons if reject else None)

    message = encode(struct([pair, round, *secret]))
    result = finish_encoded(df, kept, message, output, reject)
    check_once(df, [pair, round], _ONCE)
    return result


def _in_order(
    subscriber: Subscriber,
    interests: DictionaryColumn[Any],
    order: NDArray[np.intp],
    rounds: NDArray[np.int64],
    pairs: DictionaryColumn[str],
) -> NDArray[np.uint8]:
    """Messages of interests, encoded in `order`, in which rounds and pairs already are."""
    out = np.empty((len(order), subscriber.matcher.interest_bytes), dtype=np.uint8)
    sorted_ = DictionaryColumn(interests.values, interests.index[order])
    out[order] = subscriber.encode(sorted_, rounds, pairs=pairs)
    return out


def _require_apart(public: Mapping[str, str], private: list[str]) -> None:
    """The public columns must not be among those that are encoded."""
    for argument, name in public.items():
        if name in private:
            raise ParameterError(
                f"{argument}={name!r} is also a column to be encoded; use another column for "
                f"{argument}="
            )


def _bindings(
    names: list[str], columns: list[pa.Array], rows: int
) -> DictionaryColumn[dict[str, Any]]:
    """Values of private constants, one mapping for each distinct combination."""
    coded = [column.dictionary_encode() for column in columns]
    index = np.zeros((rows, len(coded)), dtype=np.intp)
    for i, column in enumerate(coded):
        index[:, i] = column.indices.to_numpy(zero_copy_only=False)
    distinct, place = np.unique(index, axis=0, return_inverse=True)
    values = [column.dictionary.to_pylist() for column in coded]
    mappings = [
        {name: values[i][code] for i, (name, code) in enumerate(zip(names, row, strict=True))}
        for row in distinct.tolist()
    ]
    return DictionaryColumn(mappings, place.reshape(-1).astype(np.intp))
