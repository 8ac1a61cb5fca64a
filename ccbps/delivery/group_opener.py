"""The subscriber's side of delivery to groups: opens events, learns keys, and asks for lost ones.

A subscriber must keep its own key only. All others come with events, and are in a bounded cache; if
the key of a wrap is not there, `open` raises `MissingKeyError` with a request to the broker, and
its answer opens the event, also in another process. `snapshot` saves the cache, encrypted with the
subscriber's own key; without it, keys are asked for.

A request is authentic (HMAC-SHA256 with the subscriber's own key). The broker answers if the
subscriber is a member of the group whose key it asks for. Who replays a request gets an answer that
only the subscriber can read, and that tells it what it was told before.

Events that were opened are refused from then on, as long as the opener or its snapshots live.
"""

from __future__ import annotations

import os
from bisect import insort
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from ccbps.ciphers.payloads import NONCE_BYTES, as_bytes, open_sealed
from ccbps.delivery.group_keys import ID_BYTES, derive, key_id, own_keys_of
from ccbps.delivery.group_messages import (
    CARRIED_BYTES,
    TAG_BYTES,
    GroupMessage,
    KeyAnswer,
    KeyRequest,
    WrapBytes,
    carried_keys,
)
from ccbps.delivery.key_cache import Eviction, KeyCache
from ccbps.errors import DecodeError, MissingKeyError, ParameterError, ReplayError
from ccbps.keys.delivery_keys import KEY_BYTES, SubscriberKey
from ccbps.keys.secret import Confined
from ccbps.records import SecretRecord, read, write

_ALTERED: Final = "a message to a group was altered, or is of another key"


class _Snapshot(SecretRecord, frozen=True):
    """What an opener remembers."""

    cache: bytes
    keys: list[tuple[bytes, bytes]]
    too_old: int
    opened: list[int]


class GroupOpener(Confined):
    """Opens a subscriber's events.

    Attributes:
        number: the subscriber's.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import GroupOpener, GroupSealer, SimpleCache, pack_groups
        >>> from ccbps.errors import MissingKeyError
        >>> sealer = GroupSealer(SimpleCache(3, capacity=10))
        >>> keys = [sealer.join(i) for i in range(3)]
        >>> group = pack_groups(np.array([True, False, True]))
        >>> first, second = (sealer.seal(b"IBM 119.50", n, group) for n in range(2))
        >>> opener = GroupOpener(keys[2], capacity=10)     # missed the first, which brought the key
        >>> try:
        ...     opener.open(second.to_bytes())
        ... except MissingKeyError as missing:
        ...     print(opener.accept(sealer.answer(missing.request), second.to_bytes()))
        b'IBM 119.50'
    """

    def __init__(
        self,
        key: SubscriberKey,
        *,
        capacity: int,
        eviction: Eviction = "frequency",
        remember: int = 1 << 16,
    ) -> None:
        """
        Args:
            key: from `GroupSealer.join`.
            capacity: keys of groups that are kept.
            eviction: "frequency" or "recency".
            remember: opened events with the largest numbers, at least so many, are remembered one
                by one; those before them are refused.
        """
        if type(remember) is not int or remember < 1:
            raise ParameterError(f"remember must be a whole number, at least 1, got {remember!r}")
        if not isinstance(key, SubscriberKey):
            raise ParameterError(f"key must be a SubscriberKey, got {type(key).__name__}")
        self.number, self._own = key.number, key.export_secret_key()
        self._cache = KeyCache(capacity, eviction)
        self._keys: dict[bytes, bytes] = {}
        self._answers = AESGCM(derive(self._own, b"answer"))
        self._generation: tuple[int, bytes, AESGCM] | None = None
        self._opened: set[int] = set()
        self._in_order: list[int] = []
        self._too_old, self._remembered = -1, remember

    def __repr__(self) -> str:
        return f"<GroupOpener of subscriber {self.number}, {len(self._keys)} keys>"

    def open(self, message: bytes) -> bytes:
        """The payload of an event.

        Raises:
            MissingKeyError: it is under a key that this subscriber does not hold. Send its
                `request` to the broker, keep the message, and `accept` the answer.
            ReplayError: the event was opened before, or is too old to tell.
            DecodeError: malformed, altered, or certainly not for this subscriber. (Of a group that
                it is not in it asks for the key, which the broker refuses.)
        """
        event = GroupMessage.from_bytes(message)
        self._refuse_again(event)
        own, own_cipher = self._own_keys(event.generation)
        for wrap in event.wraps:
            if wrap[0] == own:
                return self._unwrap(event, wrap, own_cipher)
            name = wrap[0][:ID_BYTES]
            if self._cache.touch(name):
                return self._unwrap(event, wrap, AESGCM(self._keys[name]))
        names = _names(event)
        if not names:
            raise DecodeError("a message to a group that this subscriber is not in")
        request = self._request(names)
        raise MissingKeyError(
            f"event {event.event} is under a key that subscriber {self.number} does not hold: send "
            "the request to the broker, and accept its answer",
            request=request.to_bytes(),
        )

    def accept(self, answer: bytes, message: bytes) -> bytes:
        """Learn the key that was asked for, and open the event with it; returns its payload.

        Args:
            answer: the broker's, to a request that `open` made for this message.
            message: the event's.

        Raises:
            DecodeError: malformed, altered, no answer to a request for this message; or the event
                was opened before.
        """
        came, event = KeyAnswer.from_bytes(answer), GroupMessage.from_bytes(message)
        self._refuse_again(event)
        request = self._request(_names(event))
        try:
            content = self._answers.decrypt(came.nonce, came.content, came.bound(request.tag))
        except (InvalidTag, ValueError):
            raise DecodeError(
                "an answer with a key was altered, or is to another request: open the message again"
            ) from None
        name, key = content[:ID_BYTES], content[ID_BYTES:]
        if len(key) != KEY_BYTES or key_id(key) != name:
            raise DecodeError(_ALTERED)
        self._learn(name, key)
        for wrap in event.wraps:
            if wrap[0][:ID_BYTES] == name:
                return self._unwrap(event, wrap, AESGCM(key))
        raise DecodeError(_ALTERED)

    # -- what it remembers -----------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Keys in the cache, and numbers of opened events, encrypted with the subscriber's key."""
        keys = [(name, self._keys[name]) for name in self._cache.names()]
        content = write(_Snapshot(self._cache.snapshot(), keys, self._too_old, self._in_order))
        nonce = os.urandom(NONCE_BYTES)
        return nonce + AESGCM(derive(self._own, b"snapshot")).encrypt(nonce, content, None)

    def restore(self, snapshot: bytes) -> None:
        """Go on from a snapshot.

        Raises:
            DecodeError: altered, of another subscriber, or of an opener with a larger capacity or
                another eviction.
        """
        (snapshot,) = as_bytes("snapshot", [snapshot])
        nonce, content = snapshot[:NONCE_BYTES], snapshot[NONCE_BYTES:]
        try:
            content = AESGCM(derive(self._own, b"snapshot")).decrypt(nonce, content, None)
        except (InvalidTag, ValueError):
            raise DecodeError("a snapshot was altered, or is another subscriber's") from None
        found = read(_Snapshot, content, refusal="not a snapshot of this version")
        self._cache.restore(found.cache)
        self._keys, self._too_old, self._in_order = dict(found.keys), found.too_old, found.opened
        self._opened = set(self._in_order)

    def _own_keys(self, generation: int) -> tuple[bytes, AESGCM]:
        if self._generation is None or self._generation[0] != generation:
            name, key = own_keys_of(self._own, generation)
            self._generation = generation, name, AESGCM(key)
        return self._generation[1:]

    def _unwrap(self, event: GroupMessage, wrap: WrapBytes, cipher: AESGCM) -> bytes:
        sealed_name, encrypted = wrap
        try:
            content = cipher.decrypt(event.nonce, encrypted, event.head + sealed_name)
        except (InvalidTag, ValueError):
            raise DecodeError(_ALTERED) from None
        if len(content) % CARRIED_BYTES != KEY_BYTES:
            raise DecodeError(_ALTERED)
        payload = open_sealed(event.payload, content[:KEY_BYTES], event.head)
        learned = carried_keys(content)
        if any(key_id(key) != name for name, key in learned):
            raise DecodeError(_ALTERED)
        for name, key in learned:
            self._learn(name, key)
        self._remember(event.event)
        return payload

    def _remember(self, number: int) -> None:
        """That this event was opened. The largest numbers are remembered one by one; of smaller
        ones it cannot be told, so they are refused."""
        self._opened.add(number)
        if self._in_order and number < self._in_order[-1]:
            insort(self._in_order, number)
        else:
            self._in_order.append(number)
        if len(self._in_order) >= 2 * self._remembered:
            old = self._in_order[: -self._remembered]
            self._too_old = old[-1]
            self._opened.difference_update(old)
            del self._in_order[: len(old)]

    def _refuse_again(self, event: GroupMessage) -> None:
        if event.event <= self._too_old or event.event in self._opened:
            raise ReplayError(
                f"event {event.event} is refused as a replay: it was opened before, or is too old "
                f"to tell, as numbers up to {self._too_old} are"
            )

    def _learn(self, name: bytes, key: bytes) -> None:
        if not self._cache.touch(name):
            evicted = self._cache.add(name)
            if evicted is not None:
                self._keys.pop(evicted, None)
        if name in self._cache:
            self._keys[name] = key

    def _request(self, names: tuple[bytes, ...]) -> KeyRequest:
        """Return a signed request."""
        request = KeyRequest(self.number, names, bytes(TAG_BYTES))
        return replace(request, tag=derive(self._own, b"request", request.unsigned())[:TAG_BYTES])


def _names(event: GroupMessage) -> tuple[bytes, ...]:
    """Sealed names of keys that can be asked for."""
    return tuple(name for name, _ in event.wraps if len(name) > ID_BYTES)
