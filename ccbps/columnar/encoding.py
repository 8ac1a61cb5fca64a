"""Encode columns of records or predicates as messages.

A role that uses up rounds or numbers is made for each batch, so that a task that runs again gives
the same messages. (A broadcast's interests have a new nonce then.) Other roles are kept from batch
to batch, by their key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ccbps.arrays import Bytes, Index
from ccbps.arrow import binary_column, by_round, check_room, integers, row_name, strings
from ccbps.columnar.reasons import Batch, examine_interests, named, no_reasons, readable, usable
from ccbps.columnar.roles import for_subscribers, kept_role
from ccbps.columnar.sessions import examine_sent
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import EventError, PredicateError
from ccbps.keys.sources import KeySource, client_key, role_key, seeds
from ccbps.matching.contract.access import RoleName
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.roles import Subscriber
from ccbps.matching.contract.scheme import REUSABLE, Answers, Keying
from ccbps.predicates import Events
from ccbps.predicates.syntax import single_quoted


def event_messages(
    matcher: Matcher,
    key: KeySource,
    row: pa.StructArray,
    ids: Sequence[str],
    *,
    payload: bool = False,
    once: bool = True,
    reject: bool = False,
) -> pa.Array:
    """Encode events; NULL where an id or the payload is NULL.

    Args:
        matcher: the public parameters.
        key: source of the publisher's key or seeds.
        row: fields by position: `ids`, the payload if there is one, and the schema's attributes.
        ids: names of columns, for errors: of pair and round; of the round, where the matcher is a
            broadcast; of the event's number, where it has sessions; none, where messages are
            reusable.
        payload: whether there is a column of payloads.
        once: refuse a round that occurs twice. Otherwise both rows must have the same content, and
            get the same message.
        reject: whether to set aside rows that cannot be encoded.

    Returns:
        binary; with `reject`, a struct of the message and the reason. Where three brokers do not
        learn the answers, a commitment follows each message.

    Raises:
        EventError: a row cannot be encoded, and is not set aside; names it by its ids.
        ParameterError, RandomnessReuseError: rounds or numbers cannot be used.
    """
    others = ["the payload"] * payload
    batch = _batch(matcher, key, row, ids, others, len(ids) + payload, reject)
    publisher = _role(matcher, "publisher", key)
    events = batch.encode(matcher.schema, ids, reject=reject)
    if matcher.keying is Keying.SESSION:
        reasons = examine_sent(matcher, publisher, events, batch.public[1:])
        unsent = np.flatnonzero(~usable(reasons))
        if len(unsent) and not reject:
            first = int(unsent[0])
            raise named(EventError(str(reasons[first]), row=first), ids, batch.public)
        events = events.take(batch.set_aside(reasons))
    messages = _events(matcher, publisher, events, batch.public, once)
    return batch.answer(binary_column(messages, batch.valid), reject=reject)


def interest_messages(
    matcher: Matcher,
    key: KeySource,
    row: pa.StructArray,
    ids: Sequence[str],
    *,
    double_quoted_strings: bool = False,
    reject: bool = False,
) -> pa.Array:
    """Encode interests; NULL where an id or any part of the interest is NULL.

    Args:
        matcher: the public parameters.
        key: source of the subscriber's key or seeds.
        row: fields by position: `ids`; and predicates as SQL text, or values of the matcher's
            `private_names`.
        ids: names of columns, for errors: of pair and round, or of the subscription alone.
        double_quoted_strings: read text in double quotes as strings; see `Schema.parse`.
        reject: whether to set aside rows that cannot be encoded.

    Returns:
        binary; with `reject`, a struct of the message and the reason.

    Raises:
        PredicateError: an interest cannot be encoded, and is not set aside; names its ids, and
            shows no name or constant of it but the schema's own names.
    """
    private = matcher.private_names
    parts = ["the predicate"] if private is None else [f"constant {name!r}" for name in private]
    batch = _batch(matcher, key, row, ids, parts, len(ids), reject)
    if private is None:
        interests: DictionaryColumn[Any] = strings(batch.values[0])
        if double_quoted_strings:
            texts = [single_quoted(text) for text in interests.values]
            interests = DictionaryColumn(texts, interests.index)
    else:
        interests = bindings(private, batch.values, len(batch.rows))
    subscriber = _role(matcher, "subscriber", key)
    try:
        messages = _interests(matcher, subscriber, interests, batch.public)
    except PredicateError as error:
        if not reject:
            place = error.row or 0
            where = row_name(ids, batch.public, place) or f"row {place} of the batch"
            raise type(error)(f"{where}: {error.summary}") from None
        good = batch.set_aside(examine_interests(matcher, interests))
        interests = DictionaryColumn(interests.values, interests.index[good])
        messages = _interests(matcher, subscriber, interests, batch.public)
    return batch.answer(binary_column(messages, batch.valid), reject=reject)


def _batch(
    matcher: Matcher,
    key: KeySource,
    row: pa.StructArray,
    ids: Sequence[str],
    others: Sequence[str],
    public: int,
    reject: bool,
) -> Batch:
    """Return the rows that have ids and all other columns that `others` describe."""
    columns, count = row.flatten(), len(ids) + len(others)
    if not count:
        return Batch(columns, 0, np.ones(len(row), dtype=np.bool_), no_reasons(len(row)))
    # Unless messages are reusable, the last of the ids is a round or a number.
    numbers = [] if matcher.keying in REUSABLE else [len(ids) - 1]
    # A broadcast has one seed for all labels.
    seed = seeds(key) if matcher.answers is Answers.PAIRS and reject else None
    valid, reasons = readable(
        ids, columns[:count], reject=reject, others=others, numbers=numbers, seed=seed
    )
    return Batch(columns, public, valid, reasons)


def _role(matcher: Matcher, role: RoleName, key: KeySource) -> Any:
    """Return a role: a new one if it uses up rounds or numbers, else the worker's own."""
    if matcher.keying is Keying.ROUNDS:
        return getattr(matcher, role)(seeds(key))
    if matcher.keying is Keying.SESSION:
        return getattr(matcher, role)(role_key(key))
    if matcher.keying is Keying.BROKERS:
        return kept_role(matcher, role, client_key(key))
    return kept_role(matcher, role, role_key(key))


def _events(
    matcher: Matcher, publisher: Any, events: Events, public: Sequence[pa.Array], once: bool
) -> Bytes:
    """Return messages, in the order of the events.

    Commitments follow them where no broker learns the answers.
    """
    encode: Callable[..., Bytes] = publisher.encode
    if matcher.keying is Keying.SESSION:
        width = matcher.event_bytes + publisher.requests * matcher.sizes.event_per_request
        check_room(events.count, width)
        payloads = public[1].to_pylist() if public[1:] else None
        return encode(events, integers(public[0]), payloads=payloads)
    check_room(events.count, matcher.event_bytes)
    if matcher.keying in REUSABLE:
        messages = encode(events)
        if not for_subscribers(matcher):
            return messages
        return np.concatenate([messages, publisher.commitments(messages)], axis=1)
    if matcher.answers is Answers.ROUND:
        number = integers(public[0])
        if once:
            return encode(events, number)
        number, first, place = np.unique(number, return_index=True, return_inverse=True)
        return encode(events.take(first), number)[place]
    order, label, number = by_round(*public)
    if once:
        return _back(order, encode(events.take(order), number, pairs=label))
    # The first row of each pair and round is encoded; the others get its message.
    first = (np.diff(label.index, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0)
    labels = DictionaryColumn(label.values, label.index[first])
    messages = encode(events.take(order[first]), number[first], pairs=labels)
    return _back(order, messages[np.cumsum(first) - 1])


def _interests(
    matcher: Matcher,
    subscriber: Subscriber,
    interests: DictionaryColumn[Any],
    public: Sequence[pa.Array],
) -> Bytes:
    """Return messages, in the order of the interests."""
    check_room(len(interests), matcher.interest_bytes)
    if matcher.keying in REUSABLE:
        return subscriber.encode(interests)
    order, label, number = by_round(*public)
    sorted_ = DictionaryColumn(interests.values, interests.index[order])
    try:
        return _back(order, subscriber.encode(sorted_, number, pairs=label))
    except PredicateError as error:
        error.row = int(order[error.row or 0])
        raise


def _back(order: Index, messages: Bytes) -> Bytes:
    """Return messages of sorted rows in the order of the rows before sorting."""
    if (np.diff(order) == 1).all():
        return messages  # the usual case
    out = np.empty_like(messages)
    out[order] = messages
    return out


def bindings(
    names: Sequence[str], columns: Sequence[pa.Array], rows: int
) -> DictionaryColumn[dict[str, Any]]:
    """Collect values of private constants as a mapping for each distinct combination."""
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
