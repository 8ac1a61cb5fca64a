"""The servers of P3S, without their connections: token authority, dissemination server, repository.

None of them can match. The authority makes keys and sees predicates, but no events. The
dissemination server gives every announcement to every subscriber. The repository gives items to
whoever knows their GUIDs.

A server answers requests as bytes (`Role.answer`), from clients that a connection has
authenticated. All methods may be called from several threads.

Hazards: the authority can read everything. The repository sees which client fetches which item. So
it learns which subscribers match the same events, even if they cannot open the payload. It also
reads the policies.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from itertools import islice
from typing import Any, ClassVar, Final, TypeAlias

from ccbps.checks import instance, number, text, whole
from ccbps.delivery.policies import PolicyPayload
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    KeyMismatchError,
    ParameterError,
    RefusedError,
    ReplayError,
    UnknownItemError,
    UnsupportedPredicateError,
)
from ccbps.functional import Authority, CpAbe, HiddenVectors, PublicKey
from ccbps.keys.secret import Confined, confined
from ccbps.p3s.messages import (
    ANNOUNCED_BYTES,
    BESIDE,
    ITEM_BYTES,
    LISTEN_BYTES,
    MOST_ITEM_BYTES,
    PREDICATE_BYTES,
    Reply,
    Request,
)

Log: TypeAlias = Callable[[str, Request], None]
"""Function that is called with the client's fingerprint and each request of it."""
TOKEN_POINTS: Final = 1 << 14
"""Largest number of points of a token."""
_BESIDE_POINTS: Final = 1 << 10
"""Largest number of bytes of an announcement beside its points."""


class Role(Confined):
    """Base of the servers.

    Attributes:
        title: name of the server in errors.
        content_bytes: largest number of bytes of a request's content.

    Args:
        log: function that sees all requests, to audit or to study what a server learns.
    """

    title: ClassVar[str]
    content_bytes: int

    def __init__(self, log: Log | None) -> None:
        self._log, self._lock = log, threading.Lock()
        self._verbs: dict[str, Callable[[str, Request], Reply]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @property
    def request_bytes(self) -> int:
        """Largest number of bytes of a request."""
        return self.content_bytes + BESIDE

    @confined
    def answer(self, client: str, content: bytes) -> bytes:
        """Answer a request; a request that is refused gets the error as its reply.

        Args:
            client: fingerprint of the client's certificate.
            content: bytes of a `Request`; any content is allowed.
        """
        try:
            request = Request.from_bytes(content)
            if request.verb not in self._verbs:
                raise DecodeError(f"{self.title} has no answer to {request.verb!r}")
            if self._log is not None:
                self._log(client, request)
            reply = self._verbs[request.verb](client, request)
        except CcbpsError as error:
            reply = Reply.refusing(error)
        return reply.to_bytes()


class TokenAuthority(Role):
    """The authority: it makes tokens for predicates, and keys for payloads.

    Args:
        metadata: master key of `HiddenVectors` for the metadata of events.
        access: master key of `CpAbe` for the attributes of subscribers.
        members: attributes of each subscriber, by the fingerprint of its certificate.
        epoch: epoch of the keys for payloads; None for keys without epochs.
        token_points: largest number of points of a token. Each takes an exponentiation.
        log: function that sees all requests, as for `Role`: clients and their predicates.

    Raises:
        ParameterError: a master key is of another scheme.
    """

    title = "the authority"
    content_bytes = PREDICATE_BYTES

    def __init__(
        self,
        metadata: Authority,
        access: Authority,
        members: Mapping[str, Mapping[str, Any]],
        *,
        epoch: int | None = None,
        token_points: int = TOKEN_POINTS,
        log: Log | None = None,
    ) -> None:
        super().__init__(log)
        self._token_points = whole("token_points", token_points, 1, TOKEN_POINTS)
        for name, key, kind in (
            ("metadata", metadata, HiddenVectors),
            ("access", access, CpAbe),
        ):
            instance(f"{name}.scheme", instance(name, key, Authority).scheme, kind)
        self._metadata, self._access, self._members = metadata, access, {**members}
        self._epoch = epoch
        self._verbs = {"public": self._public, "token": self._token, "access": self._key}

    def _public(self, client: str, request: Request) -> Reply:
        return Reply((self._metadata.public.to_bytes(), self._access.public.to_bytes()))

    def _token(self, client: str, request: Request) -> Reply:
        self._attributes(client)
        _require_size("a predicate", request.content, self.content_bytes)
        try:
            text_given = request.content.decode()
        except UnicodeDecodeError:
            raise DecodeError("a predicate is text in UTF-8") from None
        scheme = self._metadata.scheme
        assert scheme.schema is not None
        predicate = scheme.schema.parse(text_given)
        points = sum(scheme.key_shape(scheme.holdings(predicate, None)))
        if points > self._token_points:
            raise UnsupportedPredicateError(
                f"a token of this predicate has {points:,} points, and at most "
                f"{self._token_points:,} are made: take fewer values, or ranges whose bounds are "
                "multiples of powers of 2"
            )
        return Reply((self._metadata.key(predicate).to_text().encode(),))

    def _key(self, client: str, request: Request) -> Reply:
        key = self._access.key(self._attributes(client), epoch=self._epoch)
        return Reply((key.to_text().encode(),))

    def _attributes(self, client: str) -> Mapping[str, Any]:
        if client not in self._members:
            raise KeyMismatchError("this certificate is no subscriber's: the authority admits them")
        return self._members[client]


class DisseminationServer(Role):
    """The server that gives every announcement to every subscriber.

    Args:
        metadata: public key of the metadata, by which announcements are checked.
        publishers: fingerprints of those who may announce.
        keep: number of latest announcements that are kept for slow subscribers.
        wait_seconds: seconds that a subscriber waits if there is no announcement.
        log: function that sees all requests, as for `Role`.
    """

    title = "the dissemination server"

    def __init__(
        self,
        metadata: PublicKey,
        publishers: Collection[str],
        *,
        keep: int = 1 << 16,
        wait_seconds: float = 1.0,
        log: Log | None = None,
    ) -> None:
        super().__init__(log)
        self._metadata = instance("metadata", metadata, PublicKey)
        instance("metadata.scheme", metadata.scheme, HiddenVectors)
        self._publishers = _fingerprints(publishers)
        group, (ones, twos) = metadata.scheme.group, metadata.scheme.message_shape(None)
        points = ones * group.g1_bytes + twos * group.g2_bytes
        self.content_bytes = min(points + _BESIDE_POINTS, ANNOUNCED_BYTES)
        self._keep, self._wait = whole("keep", keep, 1), number("wait_seconds", wait_seconds, 0)
        self._kept: deque[bytes] = deque()
        self._hashes: set[bytes] = set()
        self._end, self._more = 0, threading.Condition(self._lock)
        self._verbs = {"announce": self._announce, "listen": self._listen}

    def _announce(self, client: str, request: Request) -> Reply:
        _require_publisher(client, self._publishers)
        content = request.content
        _require_size("an announcement", content, self.content_bytes)
        self._metadata.read(content)
        hashed = sha256(content).digest()
        with self._more:
            if hashed in self._hashes:
                raise ReplayError("this announcement was made before")
            self._kept.append(content)
            self._hashes.add(hashed)
            self._end += 1
            while len(self._kept) > self._keep:
                self._hashes.remove(sha256(self._kept.popleft()).digest())
            self._more.notify_all()
        return Reply()

    def _listen(self, client: str, request: Request) -> Reply:
        if request.content not in (b"", self._metadata.name):
            raise KeyMismatchError(
                f"announcements are of authority {self._metadata.fingerprint}, and the tokens of "
                "another: take tokens of that one"
            )
        with self._more:
            self._more.wait_for(lambda: self._end > request.number, self._wait)
            oldest = self._end - len(self._kept)
            first = min(max(request.number, oldest), self._end)
            contents: list[bytes] = []
            room = LISTEN_BYTES
            for content in islice(self._kept, first - oldest, None):
                room -= len(content)
                if contents and room < 0:
                    break
                contents.append(content)
        return Reply(tuple(contents), first)


class Repository(Role):
    """The store of items: it gives an item to whoever knows its GUID, until its time is over.

    Args:
        access: public key of the payloads, by which items are checked.
        publishers: fingerprints of those who may store.
        most_seconds: longest time in seconds that an item is kept. After an item's end, its GUID
            cannot be used again for the same time.
        most_bytes: largest number of bytes of all items.
        item_bytes: largest number of bytes of an item.
        clock: function that returns seconds.
        log: function that sees all requests, as for `Role`.
    """

    title = "the repository"

    def __init__(
        self,
        access: PublicKey,
        publishers: Collection[str],
        *,
        most_seconds: int = 86_400,
        most_bytes: int = 1 << 30,
        item_bytes: int = ITEM_BYTES,
        clock: Callable[[], float] = time.monotonic,
        log: Log | None = None,
    ) -> None:
        super().__init__(log)
        self._access = instance("access", access, PublicKey)
        instance("access.scheme", access.scheme, CpAbe)
        self._publishers = _fingerprints(publishers)
        self._seconds = whole("most_seconds", most_seconds, 1)
        self._most = whole("most_bytes", most_bytes, 1)
        self.content_bytes = whole("item_bytes", item_bytes, 1, MOST_ITEM_BYTES)
        self._clock = clock
        # None for an item whose time is over.
        self._items: dict[bytes, bytes | None] = {}
        self._ends: list[tuple[float, bytes]] = []
        self._bytes = 0
        self._verbs = {"store": self._store, "fetch": self._fetch}

    def __len__(self) -> int:
        """Return the number of items."""
        with self._lock:
            self._expire()
            return sum(item is not None for item in self._items.values())

    def _store(self, client: str, request: Request) -> Reply:
        assert request.guid is not None
        _require_publisher(client, self._publishers)
        content = request.content
        _require_size("an item", content, self.content_bytes)
        whole("seconds", request.number, 1, self._seconds)
        self._access.read(PolicyPayload.from_bytes(content).capsule)
        with self._lock:
            self._expire()
            if request.guid in self._items:
                raise ReplayError("this GUID was used before: draw another one")
            if self._bytes + len(content) > self._most:
                raise RefusedError("the repository is full: store later", reason="queue")
            self._items[request.guid] = content
            self._bytes += len(content)
            heapq.heappush(self._ends, (self._clock() + request.number, request.guid))
        return Reply()

    def _fetch(self, client: str, request: Request) -> Reply:
        assert request.guid is not None
        with self._lock:
            self._expire()
            content = self._items.get(request.guid)
        if content is None:
            raise UnknownItemError(
                "the repository has no item of this GUID: it was never stored, or its time is over"
            )
        return Reply((content,))

    def _expire(self) -> None:
        """Delete the items whose time is over, and later their GUIDs."""
        now = self._clock()
        while self._ends and self._ends[0][0] <= now:
            end, guid = heapq.heappop(self._ends)
            content = self._items.pop(guid)
            if content is not None:
                self._bytes -= len(content)
                self._items[guid] = None
                heapq.heappush(self._ends, (end + self._seconds, guid))


def _fingerprints(publishers: Collection[str]) -> frozenset[str]:
    """Return fingerprints; a single text, whose letters would be taken for them, is refused."""
    if isinstance(publishers, str):
        raise ParameterError("publishers must be a list of fingerprints, got str: take [it]")
    return frozenset(text("a publisher's fingerprint", publisher) for publisher in publishers)


def _require_publisher(client: str, publishers: Collection[str]) -> None:
    if client not in publishers:
        raise KeyMismatchError(
            "this certificate is no publisher's: the server's operator admits them"
        )


def _require_size(name: str, content: bytes, most: int) -> None:
    if len(content) > most:
        raise ParameterError(f"{name} has at most {most:,} bytes, got {len(content):,}")
