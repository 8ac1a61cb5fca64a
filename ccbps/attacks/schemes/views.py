"""Views of a broker that keeps its messages, and guesses from the leaks of better matchers."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from ccbps.arrays import Bools, Bytes, Numbers, Randomness, Reals, slices
from ccbps.ciphers.word_prf import NonceHash, to_blocks
from ccbps.errors import BrokenSchemeWarning
from ccbps.keys.seeds import SharedSeed
from ccbps.matching.contract.access import MAC_BYTES
from ccbps.matching.contract.key_server import KeyServer
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.one_time.formula import FormulaMatch
from ccbps.matching.reusable import ReusableMatcher
from ccbps.matching.tag.tag import NONCE_BYTES, TagMatch
from ccbps.matching.tag.tag_words import TagWords
from ccbps.predicates import Schema
from ccbps.wire import KEY_HEADER_BYTES

M = TypeVar("M", bound=Matcher)
T = TypeVar("T", bound=Hashable)

BODY: Final = slice(KEY_HEADER_BYTES, -MAC_BYTES)
"""Bytes of the scheme itself in a message that was made with a key."""


@dataclass(frozen=True, slots=True)
class View:
    """All that a broker has.

    Attributes:
        key: data of the broker's key.
        events: bodies of the events, a row each.
        interests: bodies of the subscriptions, a row each.
    """

    key: Mapping[str, Any]
    events: Bytes
    interests: Bytes


def make_broken(kind: Callable[..., M], schema: Schema, **options: Any) -> M:
    """Make a matcher of a broken scheme without the warning that it is broken."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenSchemeWarning)
        return kind(schema, **options)


def watch(
    matcher: ReusableMatcher,
    records: Any,
    interests: Any,
    server: KeyServer | None = None,
    randomness: Randomness = os.urandom,
) -> View:
    """Let a publisher and a subscriber send, and return the view of their broker.

    Args:
        matcher: matcher of all roles.
        records: events in the clear.
        interests: subscriptions in the clear.
        server: server that gives the keys; None for a new one.
        randomness: source of messages' randomness, and of a new server's keys.
    """
    server = matcher.key_server(randomness=randomness) if server is None else server
    publisher = matcher.publisher(server.publisher_key(), randomness=randomness)
    subscriber = matcher.subscriber(server.subscriber_key("alice"), randomness=randomness)
    events, sent = publisher.encode(records), subscriber.encode(interests)
    return View(server.broker_key().export_secret_data(), events[:, BODY], sent[:, BODY])


def codes_of(schema: Schema, records: Any) -> Any:
    """Return the codes of records, shape (records, attributes), to compare readings with."""
    encoded = schema.encode(records)
    return np.stack([encoded.codes[name][0] for name in schema], axis=1).astype(np.int64)


def name_by_frequency(tokens: Iterable[T], names: Sequence[Any]) -> dict[T, Any]:
    """Name the tokens that occur most often.

    Args:
        tokens: tokens, one for each message; equal values have equal tokens.
        names: values, the most frequent one first.

    Returns:
        the name of each of the `len(names)` most frequent tokens.
    """
    ranked = Counter(tokens).most_common(len(names))
    return {token: name for (token, _), name in zip(ranked, names, strict=False)}


def guess_by_frequency(tokens: Sequence[T], names: Sequence[Any]) -> list[Any]:
    """Guess the value of every message by how often its token occurs.

    Tokens that occur once, or are not among the most frequent ones, are taken for the most frequent
    value.

    Args:
        tokens: token of each message.
        names: all values, the most frequent one first.
    """
    counts = Counter(tokens)
    known = name_by_frequency(tokens, names)
    return [known.get(each, names[0]) if counts[each] > 1 else names[0] for each in tokens]


def hits_of(permutation: str, events: Bytes, interests: Bytes) -> Bools:
    """Find the keys that fit some tag of an event.

    Args:
        permutation: key of the public permutation, in hexadecimal, from the broker's key.
        events: bodies of events.
        interests: bodies of subscriptions.

    Returns:
        hits, shape (events, subscriptions, keys).
    """
    hashed = NonceHash(bytes.fromhex(permutation))
    keys = to_blocks(interests.tobytes())
    nonces = to_blocks(events[:, :NONCE_BYTES].tobytes())
    tags = np.ascontiguousarray(events[:, NONCE_BYTES:]).view("<u8")
    hits = np.empty((len(events), len(keys)), dtype=np.bool_)
    for rows in slices(len(events), (1 << 22) // max(1, len(keys) * tags.shape[1])):
        values = hashed.all_pairs(keys, nonces[rows])
        hits[rows] = (values[:, :, None] == tags[rows, None]).any(axis=2)
    return hits.reshape(len(events), len(interests), -1)


def read_hits(schema: Schema, records: Any, interests: Any) -> dict[str, Bools]:
    """Return what a broker of `TagMatch` sees of events and subscriptions.

    Returns:
        the keys of subscriptions that fit a tag of an event, for each attribute, shape
        (events, subscriptions, keys).
    """
    view = watch(TagMatch(schema), records, interests)
    hits = hits_of(view.key["permutation"], view.events, view.interests)
    words = TagWords(schema, ())
    parts = np.split(hits, np.cumsum(words.sizes)[:-1], axis=2)
    return {words.others[place]: part for place, part in zip(words.order, parts, strict=True)}


def read_answers(schema: Schema, records: Mapping[str, Any], interests: Sequence[str]) -> Bools:
    """Return what a broker of `FormulaMatch` sees: the answers, shape (events, subscriptions, 1).

    Every pair of an event and a subscription takes a round of its own.
    """
    matcher, seed = FormulaMatch.box(schema), SharedSeed.generate()
    count = len(next(iter(records.values())))
    rounds = range(count * len(interests))
    pairs = {name: np.repeat(values, len(interests)) for name, values in records.items()}
    events = matcher.publisher(seed).encode(pairs, rounds)
    sent = matcher.subscriber(seed).encode([*interests] * count, rounds)
    return np.asarray(matcher.broker().match(events, sent).reshape(count, -1, 1))


def guess_by_hits(hits: Bools, known: Any) -> Reals:
    """Guess the values of events from the known events that look most like them.

    Those are the known events for which most intervals have the same answer, and of these the ones
    that have most hits in common.

    Args:
        hits: keys that hit each event, shape (events, subscriptions, keys), the known events first.
        known: values of the known events.

    Returns:
        the mean of these known values, for each of the other events.
    """
    keys = hits.reshape(len(hits), -1)
    distance = _count_differences(np.asarray(hits.any(axis=2)), len(known)) * (keys.shape[1] + 1.0)
    distance += _count_differences(keys, len(known))
    near = distance == distance.min(axis=1)[:, None]
    return np.asarray(near @ np.asarray(known, dtype=np.float64) / near.sum(axis=1))


def _count_differences(rows: Bools, known: int) -> Reals:
    """Count the places in which each of the other rows differs from each known one."""
    first, others = rows[:known].astype(np.float64), rows[known:].astype(np.float64)
    return np.asarray(others.sum(axis=1)[:, None] + first.sum(axis=1) - 2 * others @ first.T)


def guess_best(shown: Bools, values: Numbers) -> Bools:
    """Mark the events that the best of all guesses from what is shown of them gets right.

    The guess is the most frequent value of all events that look alike. No broker can do better on
    these events: it would have to know which value that is.

    Args:
        shown: hits or answers of the events, a row each.
        values: their values, whole numbers from 0 on.
    """
    rows = np.packbits(shown.reshape(len(shown), -1), axis=1)
    _, look = np.unique(rows, axis=0, return_inverse=True)
    counts = np.zeros((int(look.max()) + 1, int(values.max()) + 1), dtype=np.int64)
    np.add.at(counts, (look.reshape(-1), values), 1)
    return np.asarray(counts.argmax(axis=1)[look.reshape(-1)] == values)
