"""Encoders: records or predicates in, messages out.

A role that uses up rounds or numbers is made anew for each batch, so that a task that is run again
gives the same messages (or, of a broadcast's interests, others with a nonce of their own). Any
other is kept from batch to batch, by its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ccbps.arrays import Bools, Bytes, Index
from ccbps.arrow import binary_column, by_round, check_room, chosen, integers, row_name, strings
from ccbps.columnar.reasons import (
    Reasons,
    examine_events,
    examine_interests,
    named,
    no_reasons,
    readable,
    usable,
    with_reasons,
)
from ccbps.columnar.roles import kept_role
from ccbps.columnar.sessions import event_width, examine_sent
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import EventError, PredicateError
from ccbps.keys.sources import KeySource, role_key, seeds
from ccbps.matching.contract.access import RoleName
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.roles import Subscriber
from ccbps.matching.contract.scheme import Answers, Keying
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
        row: fields by position: `ids`, the payload if there is one, and the schema's attributes.
        ids: names, for errors: of pair and round; none, where the matcher has a key server; of the
            event's number, where it has sessions, or of the round, where it is a broadcast.
        once: refuse a round that occurs twice; otherwise both rows must have the same content, and
            get the same message.
        reject: set aside what cannot be encoded.

    Returns:
        binary; with `reject`, a struct of the message and why there is none.

    Raises:
        EventError: a row cannot be encoded, and is not set aside; names it by its ids.
        ParameterError, RandomnessReuseError: rounds or numbers cannot be used.
    """
    columns = row.flatten()
    count, whole = len(ids) + payload, no_reasons(len(row))
    valid = np.ones(len(row), dtype=np.bool_)
    if count:
        others = ["the payload"] * payload
        valid, whole = _readable(matcher, key, ids, others, columns[:count], reject)
    columns = chosen(valid, *columns)
    public, names = columns[:count], list(matcher.schema)
    records = pa.RecordBatch.from_arrays(columns[count:], names=names)
    publisher, reasons = _role(matcher, "publisher", key), no_reasons(len(records))
    try:
        events = matcher.schema.encode(records)
    except EventError as error:
        if not reject:
            raise named(error, ids, public) from None
        events, reasons = examine_events(matcher.schema, records)
    if matcher.keying is Keying.SESSION:
        good = usable(reasons)
        found = examine_sent(matcher, publisher, events, chosen(good, *public[1:]))
        own = usable(found)
        if not (own.all() or reject):
            first = int(np.argmin(own))
            raise named(EventError(str(found[first]), row=first), ids, public)
        reasons[good], events = found, events.take(own)
    messages = _events(matcher, publisher, events, chosen(usable(reasons), *public), once)
    return _column(messages, valid, reasons, whole, reject)


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
        row: fields by position: `ids`; and predicates as SQL text, or values of the matcher's
            `private_names`.
        ids: names, for errors: of pair and round, or of the subscription alone.
        double_quoted_strings: how predicates are read; see `Schema.parse`.
        reject: as for `event_messages`, which see.

    Raises:
        PredicateError: an interest cannot be encoded, and is not set aside; names its ids, and
            shows no name or constant of it but the schema's own names.
    """
    columns, private = row.flatten(), matcher.private_names
    parts = ["the predicate"] if private is None else [f"constant {one!r}" for one in private]
    valid, whole = _readable(matcher, key, ids, parts, columns, reject)
    columns = chosen(valid, *columns)
    public, given = columns[: len(ids)], columns[len(ids) :]
    if private is None:
        interests: DictionaryColumn[Any] = strings(given[0])
        if double_quoted_strings:
            texts = [single_quoted(text) for text in interests.values]
            interests = DictionaryColumn(texts, interests.index)
    else:
        interests = _bindings(private, given, int(valid.sum()))
    subscriber, reasons = _role(matcher, "subscriber", key), no_reasons(len(interests))
    try:
        messages = _interests(matcher, subscriber, interests, public)
    except PredicateError as error:
        if not reject:
            named = row_name(ids, public, error.row or 0)
            raise type(error)(f"{named}: {error.summary}") from None
        reasons = examine_interests(matcher, interests)
        good = usable(reasons)
        interests = DictionaryColumn(interests.values, interests.index[good])
        messages = _interests(matcher, subscriber, interests, chosen(good, *public))
    return _column(messages, valid, reasons, whole, reject)


def _role(matcher: Matcher, role: RoleName, key: KeySource) -> Any:
    """Return a role: the one that the worker keeps, unless it uses up rounds or numbers."""
    if matcher.keying is Keying.ROUNDS:
        return getattr(matcher, role)(seeds(key))
    if matcher.keying is Keying.SESSION:
        return getattr(matcher, role)(role_key(key))
    return kept_role(matcher, role, role_key(key))


def _events(
    matcher: Matcher, publisher: Any, events: Events, public: Sequence[pa.Array], once: bool
) -> Bytes:
    """Return messages, in the order of the events."""
    messages: Bytes
    if matcher.keying is Keying.SESSION:
        check_room(events.count, event_width(matcher, publisher))
        payloads = public[1].to_pylist() if public[1:] else None
        messages = publisher.encode(events, integers(public[0]), payloads=payloads)
        return messages
    check_room(events.count, matcher.event_bytes)
    if matcher.keying is Keying.SERVER:
        messages = publisher.encode(events)
        return messages
    if matcher.answers is Answers.ROUND:
        number = integers(public[0])
        if once:
            return publisher.encode(events, number)  # type: ignore[no-any-return]
        number, first, place = np.unique(number, return_index=True, return_inverse=True)
        messages = publisher.encode(events.take(first), number)
        return messages[place]
    order, label, number = by_round(*public)
    if once:
        return _back(order, publisher.encode(events.take(order), number, pairs=label))
    other = (np.diff(label.index) != 0) | (np.diff(number) != 0)
    fresh = np.concatenate([np.ones(min(1, len(number)), dtype=np.bool_), other])
    labels = DictionaryColumn(label.values, label.index[fresh])
    messages = publisher.encode(events.take(order[fresh]), number[fresh], pairs=labels)
    return _back(order, messages[np.cumsum(fresh) - 1])


def _interests(
    matcher: Matcher,
    subscriber: Subscriber,
    interests: DictionaryColumn[Any],
    public: Sequence[pa.Array],
) -> Bytes:
    """Return messages, in the order of the interests."""
    check_room(len(interests), matcher.interest_bytes)
    if matcher.keying is Keying.SERVER:
        return subscriber.encode(interests)
    order, label, number = by_round(*public)
    sorted_ = DictionaryColumn(interests.values, interests.index[order])
    try:
        return _back(order, subscriber.encode(sorted_, number, pairs=label))
    except PredicateError as error:
        error.row = int(order[error.row or 0])
        raise


def _back(order: Index, messages: Bytes) -> Bytes:
    """Return messages of sorted rows in the rows' own order, in which they often are already."""
    if (np.diff(order) == 1).all():
        return messages
    out = np.empty_like(messages)
    out[order] = messages
    return out


def _readable(
    matcher: Matcher,
    key: KeySource,
    ids: Sequence[str],
    others: Sequence[str],
    columns: Sequence[pa.Array],
    reject: bool,
) -> tuple[Bools, Reasons]:
    """Return rows with all that they need, and why the others are set aside."""
    # Without a key server, the last of the ids is a round, or a number.
    numbers = [] if matcher.keying is Keying.SERVER else [len(ids) - 1]
    # A broadcast has one seed, whatever the labels.
    seed = seeds(key) if matcher.answers is Answers.PAIRS and reject else None
    return readable(ids, columns, reject=reject, others=others, numbers=numbers, seed=seed)


def _column(
    messages: Bytes, valid: Bools, reasons: Reasons, whole: Reasons, reject: bool
) -> pa.Array:
    """Make a batch's column of messages.

    `messages` are of the usable rows among the rows `valid`, to which `reasons` belong; `whole` has
    the reasons of the others.
    """
    sent = valid.copy()
    sent[valid] = usable(reasons)
    whole[valid] = reasons
    return with_reasons(binary_column(messages, sent), whole if reject else None)


def _bindings(
    names: Sequence[str], columns: list[pa.Array], rows: int
) -> DictionaryColumn[dict[str, Any]]:
    """Collect values of private constants, one mapping for each distinct combination."""
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
