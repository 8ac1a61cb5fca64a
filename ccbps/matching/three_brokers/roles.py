"""Publishers and subscribers of three brokers, with payload keys where no broker learns answers.

The publisher encrypts each event's payload under its payload key, and sends it to every subscriber,
with the commitment. The key opens the payload for those who match.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time_ns
from typing import Any

import numpy as np

from ccbps.arrays import Bytes
from ccbps.checks import octets, whole
from ccbps.encodings.rows import used_bits
from ccbps.errors import ParameterError, ShapeError
from ccbps.matching.contract.roles import MatcherRole, Publisher, Subscriber
from ccbps.predicates import Predicate
from ccbps.shares.answers import OpenedAnswers, SealedAnswers, commitments, opened_answers
from ccbps.shares.clients import (
    CLIENT_BYTES,
    GRANTEE,
    HEAD_BYTES,
    NUMBER,
    SharedKeys,
    head_causes,
)
from ccbps.wire import raise_for


class ThreeBrokerPublisher(Publisher):
    """Encodes events for three brokers; made by `ThreeBrokerMatch.publisher`.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import ThreeBrokerMatch
        >>> matcher = ThreeBrokerMatch.box(Schema(price=UInt(16)), reveal="subscriber")
        >>> publisher = matcher.publisher(matcher.local().public)
        >>> messages = publisher.encode({"price": [119, 120]})
        >>> publisher.payload_keys(messages).shape, publisher.commitments(messages).shape
        ((2, 16), (2, 32))
    """

    def payload_keys(self, messages: Bytes) -> Bytes:
        """Return the payload keys of events, shape (count, 16).

        Only matching subscribers get them from the brokers. They need not be stored: they follow
        from the messages' heads and the client's key.

        Args:
            messages: messages that this role made, shape (count, bytes).

        Raises:
            DecodeError: another publisher made some of them.
            ParameterError: the brokers learn the answers, and there are no such keys.
        """
        _require_reveal(self)
        heads = _heads("messages", messages)
        raise_for(head_causes("event", self._shares.client.keys, heads))
        return self._shares.client.payload_keys(heads)

    def commitments(self, messages: Bytes) -> Bytes:
        """Return the public commitments to the payload keys, shape (count, 32).

        Args:
            messages: messages that this role made, shape (count, bytes).

        Raises:
            DecodeError, ParameterError: as `payload_keys`.
        """
        return commitments(_heads("messages", messages), self.payload_keys(messages))


class ThreeBrokerSubscriber(Subscriber):
    """Encodes predicates for three brokers; made by `ThreeBrokerMatch.subscriber`."""

    def open(
        self,
        events: Bytes,
        interests: Bytes,
        sealed: Sequence[SealedAnswers],
        commitments: Bytes,
    ) -> OpenedAnswers:
        """Open the answers to this role's interests.

        Args:
            events: event messages or their heads, shape (events, at least 52).
            interests: messages that this role made, or their heads, in the order of the answers,
                shape (interests, at least 52).
            sealed: parts of brokers 0, 1 and 2, as they sealed them for these interests.
            commitments: commitments of the events' publishers, shape (events, 32).

        Returns:
            the answers, and the payload keys of events that match.

        Raises:
            DecodeError: answers are of different attempts, do not fit the commitments of some
                events (`rows` has their places), or the interests are another subscriber's.
            ParameterError: the brokers learn the answers, or there are not three parts.
            ShapeError: the arrays do not fit one another.
        """
        _require_reveal(self)
        keys: SharedKeys = self._shares.client.keys
        own = _heads("interests", interests)
        raise_for(head_causes("interest", keys, own))
        return opened_answers(keys, _heads("events", events), own, sealed, commitments)


class ThreeBrokerAuthority(MatcherRole):
    """Limits the events that clients may see at all; made by `ThreeBrokerMatch.authority`.

    Each broker is made with the authority's hello, by which it knows the authority. Brokers do not
    learn the content of grants.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import ThreeBrokerMatch
        >>> matcher = ThreeBrokerMatch.box(Schema(price=UInt(16)), grants=True)
        >>> brokers = matcher.local()
        >>> authority = matcher.authority(brokers.public)
        >>> subscriber = matcher.subscriber(brokers.public)
        >>> len(authority.grant("price < 100", to=subscriber.client))
        1
    """

    _role = "subscriber"
    _last = 0

    def grant(
        self,
        predicate: str | Predicate | None,
        to: bytes | Sequence[bytes],
        *,
        number: int | None = None,
    ) -> Bytes:
        """Make grants, sealed for the three brokers (`ccbps.shares.clients.sealed_part`).

        A grant replaces the client's earlier one, also for subscriptions that the brokers have.
        Brokers see its client and the time when it came, and nothing of its content.

        Args:
            predicate: the events that the clients may see, as a predicate that a box takes; None
                for no events.
            to: public name of a client (`Subscriber.client`, 16 bytes), or of several ones.
            number: number of these grants, greater than those of all earlier ones for the same
                clients, below 2^64; None for nanoseconds since 1970.

        Returns:
            a message for each client, shape (clients, bytes).

        Raises:
            PredicateError: the predicate cannot be used.
            ParameterError: `to` has no names of clients, or has one twice.
        """
        names = [to] if isinstance(to, bytes) else list(to)
        rows = b"".join(octets("to", name, CLIENT_BYTES) for name in names)
        if len({*names}) < len(names):
            raise ParameterError("to names a client twice, and brokers take one grant of a number")
        now = max(time_ns(), self._last + 1) if number is None else number
        self._last = whole("number", now, 0, (1 << 64) - 1)
        matcher: Any = self.matcher
        row, client = matcher.grant_row(predicate), self._shares.client
        heads = client.heads("grant", len(names))
        heads[:, GRANTEE] = np.frombuffer(rows, dtype=np.uint8).reshape(-1, CLIENT_BYTES)
        heads[:, NUMBER] = np.frombuffer(self._last.to_bytes(8, "little"), dtype=np.uint8)
        body = row ^ client.mask("grant", heads, row.shape[1])
        body[:, -1] &= used_bits(matcher.grant_form.rows)
        return client.seal("grant", np.concatenate([heads, body], axis=1))


def _heads(name: str, messages: Bytes) -> Bytes:
    if messages.ndim != 2 or messages.shape[1] < HEAD_BYTES:
        raise ShapeError(
            f"{name} must be an array of shape (count, at least {HEAD_BYTES}), got {messages.shape}"
        )
    return messages[:, :HEAD_BYTES]


def _require_reveal(role: Publisher | Subscriber) -> None:
    if getattr(role.matcher, "reveal", None) != "subscriber":
        raise ParameterError(
            'the brokers learn the answers of this matcher; take one with reveal="subscriber"'
        )
