"""What clients send to a matching broker, and get from it, in fields (`ccbps.broker.fields`).

============  ============================================================================
kind          fields
============  ============================================================================
SUBSCRIBE     name; topic's token or none; publisher or none; first round, 8 bytes, or
              none; bytes of each interest message, 4; interest messages, one after another
PUBLISH       number, 8; token or none; round, 8, or none; payload or none; the event for
              all, or none; then labels, events and wrapped keys, three fields each
PAYLOADS      number, 8; whether it is the last, 1; then clients and payloads, two each
DELIVERY      sequence, 8; number, 8; publisher; payload; event; wrapped key; then names
============  ============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ccbps.arrays import Bytes
from ccbps.broker.fields import (
    LENGTH_BYTES,
    check_name,
    check_number,
    check_token,
    joined,
    label_from,
    malformed,
    name_from,
    number_bytes,
    number_from,
    optional_name,
    split,
    text_bytes,
)
from ccbps.errors import ParameterError
from ccbps.wire import Kind

_NO_ROWS: Final = np.empty((0, 0), dtype=np.uint8)


@dataclass(frozen=True)
class Subscription:
    """A client's interest.

    Attributes:
        name: the client's for it.
        interests: interest messages, shape (rounds, interest_bytes); one where there are no rounds,
            none where subscribers decide by themselves.
        token: of the topic; None for all topics.
        publisher: whose events, where publisher and subscriber share a seed.
        first_round: of the interest messages, which are for consecutive rounds.

    Example:
        >>> import numpy as np
        >>> from ccbps.broker import Subscription
        >>> wanted = Subscription("cheap", np.zeros((1, 984), dtype=np.uint8), token=bytes(16))
        >>> Subscription.from_bytes(wanted.to_bytes()).name
        'cheap'
    """

    name: str
    interests: Bytes
    token: bytes | None = None
    publisher: str | None = None
    first_round: int | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_token(self.token)
        if self.publisher is not None:
            check_name("publisher", self.publisher)
        check_number("first_round", self.first_round)
        rows = self.interests
        if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype != np.uint8:
            raise ParameterError("interests must be a uint8 array of shape (rounds, bytes)")

    def to_bytes(self) -> bytes:
        """As it is sent."""
        width = self.interests.shape[1].to_bytes(LENGTH_BYTES)
        parts = [
            self.name.encode(),
            self.token,
            text_bytes(self.publisher),
            number_bytes(self.first_round),
        ]
        return joined(Kind.SUBSCRIBE, [*parts, width, self.interests.tobytes()])

    @classmethod
    def from_bytes(cls, message: bytes) -> Subscription:
        """Raises DecodeError if it is not one."""
        parts = split(message, Kind.SUBSCRIBE, "a subscription", 6)
        if len(parts) != 6:
            raise malformed("a subscription")
        name, token, publisher, first, width_bytes, messages = parts
        if name is None or width_bytes is None or messages is None:
            raise malformed("a subscription")
        width = int.from_bytes(width_bytes)
        if len(width_bytes) != LENGTH_BYTES or (len(messages) % width if width else messages):
            raise malformed("a subscription")
        rows = np.frombuffer(messages, dtype=np.uint8).reshape(-1, width) if width else _NO_ROWS
        try:
            return cls(name_from(name), rows, token, optional_name(publisher), number_from(first))
        except ParameterError:
            raise malformed("a subscription") from None


@dataclass(frozen=True)
class Publication:
    """An event and its payload.

    Attributes:
        number: the publisher's for it, growing; below 2^63. One number names one event, always.
        event: event message for all subscriptions; None if each has its own.
        payload: for those that match, encrypted by the publisher; None if it is sealed for them
            once the publisher knows who matches (`MatchingBroker.deliver`).
        token: of the topic; None for all topics.
        round: where the matcher has rounds.
        events: by "client/name" of the subscription, where each has its own.
        wraps: by "client/name", 32 bytes that open the payload, for those that match.

    Example:
        >>> from ccbps.broker import Publication
        >>> event = Publication(7, bytes(96), b"encrypted", token=bytes(16))
        >>> Publication.from_bytes(event.to_bytes()) == event
        True
    """

    number: int
    event: bytes | None
    payload: bytes | None
    token: bytes | None = None
    round: int | None = None
    events: Mapping[str, bytes] = field(default_factory=dict)
    wraps: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_token(self.token)
        if self.number is None:
            raise ParameterError("number must be a whole number, 0 .. 2^63 - 1, got None")
        check_number("number", self.number)
        check_number("round", self.round)
        for name, value in (("event", self.event), ("payload", self.payload)):
            if value is not None and not isinstance(value, bytes):
                raise ParameterError(f"{name} must be bytes or None, got {type(value).__name__}")
        for name, each in (("events", self.events), ("wraps", self.wraps)):
            for label, value in each.items():
                client, _, own = str(label).partition("/")
                check_name(f"the client in {name}", client)
                check_name(f"the subscription in {name}", own)
                if not isinstance(value, bytes):
                    raise ParameterError(f"{name} must hold bytes, got {type(value).__name__}")

    def to_bytes(self) -> bytes:
        """As it is sent. Equal publications are equal bytes."""
        parts = [
            number_bytes(self.number),
            self.token,
            number_bytes(self.round),
            self.payload,
            self.event,
        ]
        for label in {**self.events, **self.wraps}:
            parts += [label.encode(), self.events.get(label), self.wraps.get(label)]
        return joined(Kind.PUBLISH, parts)

    @classmethod
    def from_bytes(cls, message: bytes) -> Publication:
        """Raises DecodeError if it is not one."""
        number, token, turn, payload, event, *rest = split(
            message, Kind.PUBLISH, "a publication", 5
        )
        found = number_from(number)
        if found is None or len(rest) % 3:
            raise malformed("a publication")
        labels = [label_from(label) for label in rest[::3]]
        events = {one: own for one, own in zip(labels, rest[1::3], strict=True) if own is not None}
        wraps = {one: own for one, own in zip(labels, rest[2::3], strict=True) if own is not None}
        if len({*labels}) != len(labels):
            raise malformed("a publication")
        try:
            return cls(found, event, payload, token, number_from(turn), events, wraps)
        except ParameterError:
            raise malformed("a publication") from None


@dataclass(frozen=True)
class Payloads:
    """Payloads of a publication that came without one, sealed for clients that match.

    Attributes:
        number: of the publication.
        messages: by client, of `Receipt.clients`.
        last: whether those who are left out are to get nothing.

    Example:
        >>> from ccbps.broker import Payloads
        >>> sealed = Payloads(7, {"alice": b"encrypted"})
        >>> Payloads.from_bytes(sealed.to_bytes()) == sealed
        True
    """

    number: int
    messages: Mapping[str, bytes]
    last: bool = False

    def __post_init__(self) -> None:
        if self.number is None:
            raise ParameterError("number must be a whole number, 0 .. 2^63 - 1, got None")
        check_number("number", self.number)
        for client, message in self.messages.items():
            check_name("the client in messages", client)
            if not isinstance(message, bytes):
                raise ParameterError(f"messages must hold bytes, got {type(message).__name__}")

    def to_bytes(self) -> bytes:
        """As it is sent."""
        parts = [number_bytes(self.number), bytes([self.last])]
        for client, message in self.messages.items():
            parts += [client.encode(), message]
        return joined(Kind.PAYLOADS, parts)

    @classmethod
    def from_bytes(cls, message: bytes) -> Payloads:
        """Raises DecodeError if it is not one."""
        first, last, *rest = split(message, Kind.PAYLOADS, "payloads", 2)
        number = number_from(first)
        clients = [name_from(client) for client in rest[::2]]
        messages = [sealed for sealed in rest[1::2] if sealed is not None]
        if number is None or last not in (b"\0", b"\1") or len(rest) != 2 * len(messages):
            raise malformed("payloads")
        if len({*clients}) != len(clients):
            raise malformed("payloads")
        return cls(number, dict(zip(clients, messages, strict=True)), last == b"\1")


@dataclass(frozen=True)
class Delivery:
    """What a client gets of a publication that matched.

    Attributes:
        sequence: of this client's deliveries, growing; what `MatchingBroker.acknowledge` takes.
        publisher: whose.
        number: of the publication.
        names: of the client's subscriptions that matched.
        payload: encrypted.
        event: the event message, where subscribers decide by themselves; None otherwise.
        wrap: what opens the payload, if the publisher sent one for the first of the names.

    Example:
        >>> from ccbps.broker import Delivery
        >>> delivery = Delivery(0, "feed", 7, ("cheap",), b"encrypted")
        >>> Delivery.from_bytes(delivery.to_bytes()) == delivery
        True
    """

    sequence: int
    publisher: str
    number: int
    names: tuple[str, ...]
    payload: bytes
    event: bytes | None = None
    wrap: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of what it carries."""
        names = sum(map(len, self.names))
        return names + len(self.payload) + len(self.event or b"") + len(self.wrap or b"")

    def to_bytes(self) -> bytes:
        """As it is sent."""
        head = [number_bytes(self.sequence), number_bytes(self.number), self.publisher.encode()]
        names = [name.encode() for name in self.names]
        return joined(Kind.DELIVERY, [*head, self.payload, self.event, self.wrap, *names])

    @classmethod
    def from_bytes(cls, message: bytes) -> Delivery:
        """Raises DecodeError if it is not one."""
        parts = split(message, Kind.DELIVERY, "a delivery", 6)
        first, second, publisher, payload, event, wrap, *names = parts
        sequence, number = number_from(first), number_from(second)
        if sequence is None or number is None or publisher is None or payload is None:
            raise malformed("a delivery")
        found = tuple(name_from(name) for name in names)
        return cls(sequence, name_from(publisher), number, found, payload, event, wrap)


@dataclass(frozen=True)
class Receipt:
    """What a publisher is told.

    Attributes:
        number: of the publication.
        again: whether it had been accepted before, and nothing was done now.
        clients: who gets it; empty unless the publication came without a payload, since only who
            seals needs to know.

    Example:
        >>> from ccbps.broker import Receipt
        >>> Receipt(7).again
        False
    """

    number: int
    again: bool = False
    clients: tuple[str, ...] = ()
