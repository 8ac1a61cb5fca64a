"""Publishers and subscribers of P3S.

A publisher seals a payload for a policy, stores it in the repository, and announces its GUID under
the event's metadata. A subscriber tries its tokens on every announcement. If one of them opens it,
the event matches, and the subscriber fetches the payload by the GUID.
"""

from __future__ import annotations

import hmac
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from ccbps.checks import instance, text, whole
from ccbps.ciphers.payloads import PAD_TO, as_bytes
from ccbps.delivery.policies import PolicyOpener, PolicySealer
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError, UnknownItemError
from ccbps.functional import CpAbe, HiddenVectors, PublicKey, UserKey
from ccbps.keys.secret import Confined, confined
from ccbps.p3s.messages import GUID_BYTES, TICKET_BYTES, Ask, Request

REMEMBERED: Final = 1 << 16
"""Number of latest tickets that a subscriber remembers."""


class Publisher(Confined):
    """Publisher of events: metadata for matching, payloads for subscribers that a policy admits.

    Args:
        metadata: public key of `HiddenVectors`.
        access: public key of `CpAbe`.
        dissemination: way to the dissemination server.
        repository: way to the repository.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.functional import Authority, CpAbe, HiddenVectors
        >>> from ccbps.p3s import DisseminationServer, Publisher, Repository, Subscriber
        >>> from ccbps.p3s import TokenAuthority, local
        >>> metadata = Authority.generate(HiddenVectors(Schema(price=UInt(4))))
        >>> access = Authority.generate(CpAbe(Schema(desk=Category(["bonds", "shares"]))))
        >>> authority = TokenAuthority(metadata, access, {"alice": {"desk": "shares"}})
        >>> ds = DisseminationServer(metadata.public, ["feed"], wait_seconds=0)
        >>> rs = Repository(access.public, ["feed"])

        >>> ways = [local(server, "alice") for server in (authority, ds, rs)]
        >>> alice = Subscriber.enrol(["price < 12"], *ways)
        >>> feed = Publisher.enrol(*(local(server, "feed") for server in (authority, ds, rs)))
        >>> quotes = [{"price": 9}, {"price": 13}]
        >>> guids = feed.publish(quotes, [b"9.10", b"13.50"], "desk = 'shares'")
        >>> [(delivery.number, delivery.payload) for delivery in alice.receive()]
        [(0, b'9.10')]

    Hazard: events are not signed. Their origin rests on the certificates that the two servers
    demand of publishers.
    """

    def __init__(
        self, metadata: PublicKey, access: PublicKey, dissemination: Ask, repository: Ask
    ) -> None:
        for name, key, kind in (("metadata", metadata, HiddenVectors), ("access", access, CpAbe)):
            instance(f"{name}.scheme", instance(name, key, PublicKey).scheme, kind)
        self._metadata, self._sealer = metadata, PolicySealer(access)
        self._dissemination, self._repository = dissemination, repository

    @classmethod
    def enrol(cls, authority: Ask, dissemination: Ask, repository: Ask) -> Publisher:
        """Return a publisher with the public keys of the authority."""
        keys = authority(Request("public")).contents
        if len(keys) != 2:
            raise DecodeError("the authority must give two public keys")
        metadata, access = (PublicKey.from_bytes(key) for key in keys)
        return cls(metadata, access, dissemination, repository)

    @confined
    def publish(
        self,
        records: Sequence[Mapping[str, Any]],
        payloads: Sequence[bytes],
        policy: Any,
        *,
        seconds: int = 3600,
        epoch: int | None = None,
        pad_to: int = PAD_TO,
        workers: int = 1,
    ) -> list[bytes]:
        """Publish events under one policy.

        Args:
            records: metadata of each event.
            payloads: payload of each event.
            policy: policy over the attributes of subscribers, for everybody to read.
            seconds: seconds for which the repository keeps the payloads.
            epoch: epoch whose keys open the payloads; None for keys without epochs.
            pad_to: number of bytes. Payloads are padded to a multiple of it; 1 shows their lengths.
            workers: number of announcements that are made at the same time, as in
                `ccbps.functional.PublicKey.seal_many`.

        Returns:
            GUIDs of the events.

        Raises:
            ParameterError: an argument does not fit. Nothing is published.
            PredicateError: the policy does not parse, or nobody can satisfy it. Nothing is
                published.
            EventError: a record does not fit the schema. Nothing is published.
            RefusedError: the repository is full. Events before this one are published.
            NetworkError: a server cannot be reached. Events before this one are published, this
                one may be.
        """
        payloads, whole_seconds = as_bytes("payloads", payloads), whole("seconds", seconds, 1)
        if len(records) != len(payloads):
            raise ParameterError(
                f"records and payloads must be as many, got {len(records)} and {len(payloads)}"
            )
        items = self._sealer.seal(payloads, policy, epoch=epoch, pad_to=pad_to)
        guids = [os.urandom(GUID_BYTES) for _ in items]
        tickets = [guid + sha256(item).digest() for guid, item in zip(guids, items, strict=True)]
        announcements = self._metadata.seal_many(tickets, records, pad_to=1, workers=workers)
        for guid, item, announcement in zip(guids, items, announcements, strict=True):
            self._repository(Request("store", item, guid, whole_seconds))
            self._dissemination(Request("announce", announcement))
        return guids


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event that matched.

    Attributes:
        number: number of its announcement.
        payload: payload; None if it could not be opened.
        cause: cause of the failure, such as a policy that the subscriber does not satisfy; empty
            if it was opened.
    """

    number: int
    payload: bytes | None
    cause: str = ""


class Subscriber(Confined):
    """Subscriber that finds the events that match, and opens their payloads.

    Args:
        tokens: keys of `HiddenVectors` for the predicates; an event matches if one of them fits.
        access: key of `CpAbe`.
        dissemination: way to the dissemination server.
        repository: way to the repository.
        start: number of the first announcement to try.
        workers: number of announcements that are tried at the same time, as in
            `ccbps.functional.UserKey.examine`.

    Attributes:
        position: number of the next announcement to try.
        missed: number of announcements that the server no longer had.

    Hazard: a token does not hide its predicate, so it must not leave the subscriber.
    """

    def __init__(
        self,
        tokens: Sequence[UserKey],
        access: UserKey,
        dissemination: Ask,
        repository: Ask,
        *,
        start: int = 0,
        workers: int = 1,
    ) -> None:
        for name, key, kind in (
            *((f"tokens[{at}]", token, HiddenVectors) for at, token in enumerate(tokens)),
            ("access", access, CpAbe),
        ):
            instance(f"{name}.public.scheme", instance(name, key, UserKey).public.scheme, kind)
        self._tokens, self._opener = [*tokens], PolicyOpener(access)
        names = {token.public.name for token in tokens}
        if len(names) != 1:
            raise ParameterError(
                f"tokens must be keys of one authority, at least one, got {len(names)} authorities"
            )
        (self._authority,) = names
        self._dissemination, self._repository = dissemination, repository
        self._workers = whole("workers", workers, 1)
        self._opened: OrderedDict[bytes, None] = OrderedDict()
        self.position, self.missed = whole("start", start, 0), 0

    @classmethod
    @confined
    def enrol(
        cls,
        predicates: Sequence[str],
        authority: Ask,
        dissemination: Ask,
        repository: Ask,
        **options: Any,
    ) -> Subscriber:
        """Return a subscriber with keys that the authority makes for it.

        Args:
            predicates: predicates over the metadata. The authority sees them.
            authority: way to the authority, which knows the subscriber's attributes.
            dissemination: way to the dissemination server.
            repository: way to the repository.
            options: further arguments of the constructor.

        Raises:
            ParameterError: predicates are no texts, or none.
            PredicateError: a predicate does not parse, or no event satisfies it.
            KeyMismatchError: the authority does not know this subscriber.
        """
        if isinstance(predicates, str):
            raise ParameterError("predicates must be a list of texts, got str: take [it]")
        texts = [text(f"predicates[{at}]", each) for at, each in enumerate(predicates)]
        asked = [Request("token", each.encode()) for each in texts]
        *tokens, access = (_key(authority, request) for request in (*asked, Request("access")))
        return cls(tokens, access, dissemination, repository, **options)

    @confined
    def receive(self) -> Iterator[Delivery]:
        """Yield the events that match among the next announcements.

        If there are no announcements it waits for as long as the server does. It ends with the
        announcements of one reply: call it again. After an error, or if not all deliveries were
        taken, the next call goes on where this one ended.

        Raises:
            NetworkError: a server cannot be reached.
            KeyMismatchError: the tokens are not of the authority of the announcements.
            DecodeError: a server does not follow the protocol.
        """
        reply = self._dissemination(Request("listen", self._authority, number=self.position))
        if reply.number < self.position:
            raise DecodeError(
                f"the dissemination server is at announcement {reply.number}, and was at "
                f"{self.position}: make a subscriber that starts anew"
            )
        self.missed += reply.number - self.position
        self.position = reply.number
        for ticket in self._tickets(reply.contents):
            delivery = self._fetched(ticket) if ticket is not None else None
            self.position += 1
            if delivery is not None:
                yield delivery

    def _tickets(self, announcements: Sequence[bytes]) -> list[bytes | None]:
        """Return the ticket in each announcement, None for one that does not match."""
        tickets: list[bytes | None] = [None] * len(announcements)
        for token in self._tokens:
            left = [row for row, ticket in enumerate(tickets) if ticket is None]
            opened, _ = token.examine([announcements[row] for row in left], workers=self._workers)
            for row, ticket in zip(left, opened, strict=True):
                tickets[row] = ticket
        return tickets

    def _fetched(self, ticket: bytes) -> Delivery | None:
        """Fetch and open the item of a ticket; return None for one that came before."""
        if len(ticket) != TICKET_BYTES:
            return Delivery(self.position, None, "the announcement does not hold a ticket")
        guid, hashed = ticket[:GUID_BYTES], ticket[GUID_BYTES:]
        if ticket in self._opened:
            return None
        try:
            contents = self._repository(Request("fetch", guid=guid)).contents
        except UnknownItemError as error:
            return Delivery(self.position, None, str(error))
        if len(contents) != 1 or not hmac.compare_digest(sha256(contents[0]).digest(), hashed):
            return Delivery(
                self.position, None, "the repository gave another item than was announced"
            )
        self._opened[ticket] = None
        if len(self._opened) > REMEMBERED:
            self._opened.popitem(last=False)
        payloads, causes = self._opener.examine(contents)
        return Delivery(self.position, payloads[0], causes.get(0, ""))


def _key(authority: Ask, request: Request) -> UserKey:
    contents = authority(request).contents
    try:
        return UserKey.from_text(*(content.decode("ascii") for content in contents))
    except (TypeError, UnicodeDecodeError, KeyMismatchError):
        raise DecodeError("the authority must give a key") from None
