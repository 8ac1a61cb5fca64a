"""What clients send to a matching broker, and get from it. All numbers big-endian.

Each message is kind and version, a byte each, and fields, each behind its length, 4 bytes. A field
that is not there has no bytes and the length 2^32 - 1.

============  ============================================================================
kind          fields
============  ============================================================================
SUBSCRIBE     name; topic's token or none; publisher or none; first round, 8 bytes, or
              none; bytes of each interest message, 4; interest messages, one after another
PUBLISH       number, 8; token or none; round, 8, or none; payload or none; the event for
              all, or none; then labels, events and wrapped keys, three fields each
DELIVERY      sequence, 8; number, 8; publisher; payload; event; wrapped key; then names
============  ============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ccbps.arrays import Bytes
from ccbps.errors import DecodeError, ParameterError
from ccbps.filters.tokens import TOKEN_BYTES
from ccbps.wire import Kind

__all__ = ["Delivery", "Publication", "Receipt", "Subscription", "check_name"]

VERSION: Final = 1
NUMBER_BYTES: Final = 8
LENGTH_BYTES: Final = 4
_NONE: Final = (1 << 8 * LENGTH_BYTES) - 1
MOST_NAME: Final = 256
"""Bytes of names."""


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
        _check_token(self.token)
        if self.publisher is not None:
            check_name("publisher", self.publisher)
        _check_number("first_round", self.first_round)
        rows = self.interests
        if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype != np.uint8:
            raise ParameterError("interests must be a uint8 array of shape (rounds, bytes)")

    def to_bytes(self) -> bytes:
        """As it is sent."""
        width = self.interests.shape[1].to_bytes(LENGTH_BYTES)
        parts = [self.name.encode(), self.token, _text(self.publisher), _number(self.first_round)]
        return _joined(Kind.SUBSCRIBE, [*parts, width, self.interests.tobytes()])

    @classmethod
    def from_bytes(cls, message: bytes) -> Subscription:
        """Raises DecodeError if it is not one."""
        parts = _split(message, Kind.SUBSCRIBE, "a subscription", 6)
        if len(parts) != 6:
            raise _malformed("a subscription")
        name, token, publisher, first, width_bytes, messages = parts
        if name is None or width_bytes is None or messages is None:
            raise _malformed("a subscription")
        width = int.from_bytes(width_bytes)
        if len(width_bytes) != LENGTH_BYTES or (len(messages) % width if width else messages):
            raise _malformed("a subscription")
        rows = np.frombuffer(messages, dtype=np.uint8).reshape(-1, width) if width else _NO_ROWS
        try:
            return cls(_name(name), rows, token, _opt_name(publisher), _opt_number(first))
        except ParameterError:
            raise _malformed("a subscription") from None


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
        _check_token(self.token)
        if self.number is None:
            raise ParameterError("number must be a whole number, 0 .. 2^63 - 1, got None")
        _check_number("number", self.number)
        _check_number("round", self.round)
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
        parts = [_number(self.number), self.token, _number(self.round), self.payload, self.event]
        for label in {**self.events, **self.wraps}:
            parts += [label.encode(), self.events.get(label), self.wraps.get(label)]
        return _joined(Kind.PUBLISH, parts)

    @classmethod
    def from_bytes(cls, message: bytes) -> Publication:
        """Raises DecodeError if it is not one."""
        number, token, turn, payload, event, *rest = _split(
            message, Kind.PUBLISH, "a publication", 5
        )
        found = _opt_number(number)
        if found is None or len(rest) % 3:
            raise _malformed("a publication")
        labels = [_label(label) for label in rest[::3]]
        events = {one: own for one, own in zip(labels, rest[1::3], strict=True) if own is not None}
        wraps = {one: own for one, own in zip(labels, rest[2::3], strict=True) if own is not None}
        if len({*labels}) != len(labels):
            raise _malformed("a publication")
        try:
            return cls(found, event, payload, token, _opt_number(turn), events, wraps)
        except ParameterError:
            raise _malformed("a publication") from None


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
        head = [_number(self.sequence), _number(self.number), self.publisher.encode()]
        names = [name.encode() for name in self.names]
        return _joined(Kind.DELIVERY, [*head, self.payload, self.event, self.wrap, *names])

    @classmethod
    def from_bytes(cls, message: bytes) -> Delivery:
        """Raises DecodeError if it is not one."""
        parts = _split(message, Kind.DELIVERY, "a delivery", 6)
        first, second, publisher, payload, event, wrap, *names = parts
        sequence, number = _opt_number(first), _opt_number(second)
        if sequence is None or number is None or publisher is None or payload is None:
            raise _malformed("a delivery")
        found = tuple(_name(name) for name in names)
        return cls(sequence, _name(publisher), number, found, payload, event, wrap)


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


_NO_ROWS: Final = np.empty((0, 0), dtype=np.uint8)


def _joined(kind: Kind, parts: list[bytes | None]) -> bytes:
    out = [bytes([kind, VERSION])]
    for part in parts:
        out.append((_NONE if part is None else len(part)).to_bytes(LENGTH_BYTES))
        out.append(part or b"")
    return b"".join(out)


def _split(message: bytes, kind: Kind, what: str, least: int) -> list[bytes | None]:
    if not isinstance(message, bytes) or message[:2] != bytes([kind, VERSION]):
        raise _malformed(what)
    parts: list[bytes | None] = []
    at = 2
    while at < len(message):
        length = int.from_bytes(message[at : at + LENGTH_BYTES])
        at += LENGTH_BYTES
        end = at if length == _NONE else at + length
        if end > len(message) or at > len(message):
            raise _malformed(what)
        parts.append(None if length == _NONE else message[at:end])
        at = end
    if len(parts) < least:
        raise _malformed(what)
    return parts


def _malformed(what: str) -> DecodeError:
    return DecodeError(f"not {what} of this version, or cut off")


def _name(name: bytes | None) -> str:
    try:
        found = b"".join([name] if name else []).decode()
        check_name("name", found)
    except (UnicodeDecodeError, ParameterError):
        raise _malformed("a message with a name") from None
    return found


def _label(label: bytes | None) -> str:
    client, _, name = (label or b"").partition(b"/")
    return f"{_name(client)}/{_name(name)}"


def _opt_name(name: bytes | None) -> str | None:
    return None if name is None else _name(name)


def _text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _number(number: int | None) -> bytes | None:
    return None if number is None else number.to_bytes(NUMBER_BYTES)


def _opt_number(number: bytes | None) -> int | None:
    if number is None:
        return None
    if len(number) != NUMBER_BYTES or number[0] >> 7:
        raise _malformed("a message with a number")
    return int.from_bytes(number)


def _check_number(what: str, number: int | None) -> None:
    if number is not None and (type(number) is not int or not 0 <= number < 1 << 63):
        raise ParameterError(f"{what} must be a whole number, 0 .. 2^63 - 1, got {number!r}")


def _check_token(token: bytes | None) -> None:
    if token is not None and (not isinstance(token, bytes) or len(token) != TOKEN_BYTES):
        raise ParameterError(
            f"token must be {TOKEN_BYTES} bytes, as TopicTokens makes, or None, got "
            f"{type(token).__name__}"
        )


def check_name(what: str, name: str) -> None:
    """Raises ParameterError if it is none: names stand in labels, and in topics of MQTT."""
    if (
        not isinstance(name, str)
        or not name.isprintable()  # so that it can be encoded
        or not 0 < len(name.encode()) <= MOST_NAME
        or set(name) & set("/+#$")
    ):
        raise ParameterError(
            f"{what} must be 1 to {MOST_NAME} bytes of printable text without / + # $, got {name!r}"
        )
