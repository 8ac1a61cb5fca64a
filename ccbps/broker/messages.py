"""What clients send to a matching broker, and get from it: records behind kind and version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from ccbps.arrays import Bytes
from ccbps.broker.names import check_name
from ccbps.filters.tokens import TOKEN_BYTES
from ccbps.records import Message, Number, Record
from ccbps.wire import Kind

VERSION: Final = 2
Token = Annotated[bytes, Meta(min_length=TOKEN_BYTES, max_length=TOKEN_BYTES)]


class Subscription(Message, frozen=True):
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

    front: ClassVar[bytes] = bytes([Kind.SUBSCRIBE, VERSION])
    what: ClassVar[str] = "a subscription"
    name: str
    interests: Bytes
    token: Token | None = None
    publisher: str | None = None
    first_round: Number | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("name", self.name)
        if self.publisher is not None:
            check_name("publisher", self.publisher)


class Publication(Message, frozen=True):
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

    front: ClassVar[bytes] = bytes([Kind.PUBLISH, VERSION])
    what: ClassVar[str] = "a publication"
    number: Number
    event: bytes | None
    payload: bytes | None
    token: Token | None = None
    round: Number | None = None
    events: Mapping[str, bytes] = {}
    wraps: Mapping[str, bytes] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, by_label in (("events", self.events), ("wraps", self.wraps)):
            for label in by_label:
                client, _, own = label.partition("/")
                check_name(f"the client in {name}", client)
                check_name(f"the subscription in {name}", own)


class Payloads(Message, frozen=True):
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

    front: ClassVar[bytes] = bytes([Kind.PAYLOADS, VERSION])
    what: ClassVar[str] = "payloads"
    number: Number
    messages: Mapping[str, bytes]
    last: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for client in self.messages:
            check_name("the client in messages", client)


class Delivery(Message, frozen=True):
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

    front: ClassVar[bytes] = bytes([Kind.DELIVERY, VERSION])
    what: ClassVar[str] = "a delivery"
    sequence: Number
    publisher: str
    number: Number
    names: tuple[str, ...]
    payload: bytes
    event: bytes | None = None
    wrap: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of what it carries."""
        names = sum(map(len, self.names))
        return names + len(self.payload) + len(self.event or b"") + len(self.wrap or b"")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (self.publisher, *self.names):
            check_name("each name in a delivery", name)


class Receipt(Record, frozen=True):
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

    number: Number
    again: bool = False
    clients: tuple[str, ...] = ()
