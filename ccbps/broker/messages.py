"""Messages between clients and a matching broker: records behind kind and version.

Names of clients, publishers and subscriptions stand in labels, "client/name", and in topics of
MQTT. `check_name` says which characters they may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, ClassVar, Final

from msgspec import Meta, structs

from ccbps.arrays import Bytes
from ccbps.errors import ParameterError
from ccbps.filters.tokens import TOKEN_BYTES
from ccbps.records import Message, Number, Record
from ccbps.wire import Kind

VERSION: Final = 4
Token = Annotated[bytes, Meta(min_length=TOKEN_BYTES, max_length=TOKEN_BYTES)]
NAME_BYTES: Final = 256
"""Largest length of a name."""


def check_name(argument: str, name: str) -> None:
    """Refuse a text that cannot be the name of a client, publisher or subscription.

    Raises:
        ParameterError: it is empty, too long, not printable, or has a / + # or $.
    """
    if (
        not isinstance(name, str)
        or not name.isprintable()  # so that it can be encoded
        or not 0 < len(name.encode()) <= NAME_BYTES
        or set(name) & set("/+#$")
    ):
        raise ParameterError(
            f"{argument} must be 1 to {NAME_BYTES} bytes of printable text without / + # $, "
            f"got {name!r}"
        )


class Hellos(Message, frozen=True):
    """A client's keys for three brokers, each sealed for one of them.

    Attributes:
        messages: hellos for brokers 0, 1 and 2: `ccbps.matching.Publisher.hellos`.

    Example:
        >>> from ccbps.broker import Hellos
        >>> hellos = Hellos((bytes(128), bytes(96), bytes(96)))
        >>> Hellos.from_bytes(hellos.to_bytes()) == hellos
        True
    """

    front: ClassVar[bytes] = bytes([Kind.HELLOS, VERSION])
    what: ClassVar[str] = "hellos"
    messages: tuple[bytes, bytes, bytes]


class SealedGrants(Message, frozen=True):
    """Grants of an authority for clients of three brokers.

    Attributes:
        messages: sealed grants, shape (clients, bytes):
            `ccbps.matching.three_brokers.roles.ThreeBrokerAuthority.grant`.

    Example:
        >>> import numpy as np
        >>> from ccbps.broker import SealedGrants
        >>> grants = SealedGrants(np.zeros((2, 300), dtype=np.uint8))
        >>> SealedGrants.from_bytes(grants.to_bytes()).messages.shape
        (2, 300)
    """

    front: ClassVar[bytes] = bytes([Kind.GRANTS, VERSION])
    what: ClassVar[str] = "grants"
    messages: Bytes


class Subscription(Message, frozen=True):
    """An interest of a client.

    Attributes:
        name: the client's name for it.
        interests: interest messages, shape (rounds, interest_bytes). One row if the matcher has no
            rounds, no row if subscribers decide by themselves.
        token: token of the topic; None for all topics.
        publisher: the publisher with whom the subscriber shares a seed; None for all publishers.
        first_round: round of the first interest message. The others are for the rounds after it.
        route: bytes by which a network of brokers routes (`ccbps.overlay.EdgeBroker`), which all of
            them read; None outside of a network.
        permit: the authority's permit, at a broker that enforces a policy before matching.
        mask: masks of a content filter (`ccbps.filters.ContentFilter.interests`), at a broker that
            compares them; None elsewhere.

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
    route: bytes | None = None
    permit: Annotated[bytes, Meta(max_length=1024)] = b""
    mask: bytes | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("name", self.name)
        if self.publisher is not None:
            check_name("publisher", self.publisher)

    def concerns(self, publisher: str, publication: Publication) -> bool:
        """Tell whether a publication has this subscription's topic and publisher.

        A subscription without a token is for all topics, and so is a publication without one.
        """
        same_topic = None in (self.token, publication.token) or self.token == publication.token
        return same_topic and self.publisher in (None, publisher)


class Publication(Message, frozen=True):
    """An event and its payload.

    Attributes:
        number: the publisher's number for it, increasing, below 2^63. A number names one event
            only.
        event: event message for all subscriptions; None if each subscription has its own.
        payload: payload for those that match, encrypted by the publisher. None if the publisher
            seals it later, when it knows who matches (`MatchingBroker.deliver`).
        token: token of the topic; None for all topics.
        round: round of the event, if the matcher has rounds.
        events: event messages by "client/name", if each subscription has its own.
        wraps: wrapped keys of the payload by "client/name", 32 bytes each, for those that match.
        after: number of the publication that must be accepted before this one; None for none.
            Otherwise this one is refused. So a publisher need not wait for receipts, and its
            publications keep their order even if the broker refuses some for now.
        route: bytes by which a network of brokers routes it; see `Subscription`.
        mask: mask of a content filter (`ccbps.filters.ContentFilter.events`); see `Subscription`.

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
    after: Number | None = None
    route: bytes | None = None
    mask: bytes | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for argument, by_label in (("events", self.events), ("wraps", self.wraps)):
            for label in by_label:
                client, _, name = label.partition("/")
                check_name(f"the client in {argument}", client)
                check_name(f"the subscription in {argument}", name)

    def digest(self, message: bytes) -> bytes:
        """Return a digest of the publication without `after`, 16 bytes.

        Args:
            message: bytes of the publication.
        """
        if self.after is not None:
            message = structs.replace(self, after=None).to_bytes()
        return blake2b(message, digest_size=16).digest()


class Payloads(Message, frozen=True):
    """Payloads of a publication that came without one, sealed for clients that match.

    Attributes:
        number: number of the publication.
        messages: payloads by client; clients are those of `Receipt.clients`.
        last: True if clients that have no payload yet, and none here, get nothing.

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
    """A client's copy of a publication that matched.

    Attributes:
        sequence: number of the delivery, for `MatchingBroker.acknowledge`; it increases for each
            client.
        publisher: name of the publisher.
        number: number of the publication.
        names: names of the client's subscriptions that matched when the delivery was made. A kept
            publication has the name of the new subscription that caused its delivery. While the
            delivery waits, further subscriptions that match add no name and no second delivery.
        payload: encrypted payload.
        event: event message if subscribers decide by themselves; None otherwise.
        wrap: wrapped key of the payload, if the publisher sent one for the first of the names.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (self.publisher, *self.names):
            check_name("each name in a delivery", name)

    @property
    def size(self) -> int:
        """Bytes of names, payload, event and wrap."""
        names = sum(map(len, self.names))
        return names + len(self.payload) + len(self.event or b"") + len(self.wrap or b"")


class Receipt(Record, frozen=True):
    """The broker's answer to a publication.

    Attributes:
        number: number of the publication.
        again: True if it had been accepted before, so nothing was done now.
        clients: clients that match, if the publication came without a payload. Empty otherwise,
            since only a publisher that seals later needs them.

    Example:
        >>> from ccbps.broker import Receipt
        >>> Receipt(7).again
        False
    """

    number: Number
    again: bool = False
    clients: tuple[str, ...] = ()
