"""Delivery to groups, the subscriber's side: it opens events, learns keys, and requests lost keys.

A subscriber must keep its own key only. All other keys come with events, and are in a bounded
cache. If the key of a wrap is not in the cache, `open` raises `MissingKeyError` with a request to
the broker. The broker's answer opens the event, also in another process. `snapshot` saves the
cache, encrypted with the subscriber's own key. Without a snapshot, keys are requested.

A request is authenticated (HMAC-SHA256 with the subscriber's own key). The broker answers if the
subscriber is a member of the group whose key it requests. A replayed request brings an answer that
only the subscriber can read, with a key that it was sent before.

Events that were opened are refused from then on, as long as the opener or its snapshots exist.
"""

from __future__ import annotations

import os
from bisect import insort
from typing import Annotated, Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Meta
from msgspec.structs import replace

from ccbps.checks import instance, octets, whole
from ccbps.ciphers.payloads import NONCE_BYTES, open_sealed
from ccbps.ciphers.signatures import check_identity, signed_in_batch
from ccbps.delivery.group_protocol import (
    CARRIED_BYTES,
    ID_BYTES,
    TAG_BYTES,
    GroupMessage,
    KeyAnswer,
    KeyRequest,
    WrapBytes,
    derive,
    key_id,
    own_keys_of,
)
from ccbps.delivery.key_cache import Eviction, KeyCache
from ccbps.errors import DecodeError, MissingKeyError, ReplayError
from ccbps.keys.delivery_keys import KEY_BYTES, SubscriberKey
from ccbps.keys.secret import Confined
from ccbps.records import SecretRecord, read, write

_ALTERED: Final = "a message to a group was altered, or is of another key"
_NOT_SIGNED: Final = (
    "a message to a group is not signed by the owner of the identity that the opener verifies"
)
_NO_ANSWER: Final = "an altered answer with a key, or to another request: open the message again"
_NO_SNAPSHOT: Final = "a snapshot was altered, or is another subscriber's"


_Name: TypeAlias = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Key: TypeAlias = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]


class _Snapshot(SecretRecord, frozen=True):
    """Memory of an opener."""

    cache: bytes
    keys: list[tuple[_Name, _Key]]
    too_old: int
    opened: list[int]


class GroupOpener(Confined):
    """Opener of a subscriber's events.

    Args:
        key: key from `GroupSealer.join`.
        capacity: largest number of keys of groups that are kept.
        eviction: "frequency" or "recency".
        remember: least number of opened events that are remembered one by one, those with the
            largest numbers. Events with smaller numbers are refused.
        verify: identity of the sender (`SigningKey.identity`). Events that it did not sign are
            refused. None to take events from any holder of a key of the group.

    Attributes:
        number: number of the subscriber.

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

    Raises:
        ParameterError: an argument is of another type, or out of range.
    """

    def __init__(
        self,
        key: SubscriberKey,
        *,
        capacity: int,
        eviction: Eviction = "frequency",
        remember: int = 1 << 16,
        verify: bytes | None = None,
    ) -> None:
        self._sender = None if verify is None else check_identity(verify)
        self._remembered = whole("remember", remember, 1)
        instance("key", key, SubscriberKey)
        self.number, self._own = key.number, key.export_secret_key()
        self._cache = KeyCache(capacity, eviction)
        self._keys: dict[bytes, bytes] = {}
        self._generation, self._own_name = -1, b""
        self._own_cipher: AESGCM | None = None
        self._opened: set[int] = set()
        self._in_order: list[int] = []
        self._too_old = -1

    def __repr__(self) -> str:
        return f"<GroupOpener of subscriber {self.number}, {len(self._keys)} keys>"

    def open(self, message: bytes) -> bytes:
        """Return the payload of an event.

        Raises:
            MissingKeyError: it is under a key that this subscriber does not hold. Send the error's
                `request` to the broker, keep the message, and `accept` the answer.
            ReplayError: the event was opened before, or is too old to tell.
            DecodeError: it is malformed, altered, not signed by the sender that this opener
                verifies, or certainly not for this subscriber. (For a group without the subscriber
                the opener may have to request the key, which the broker refuses.)
        """
        event = self._read(message)
        if self._own_cipher is None or event.generation != self._generation:
            self._own_name, key = own_keys_of(self._own, event.generation)
            self._generation, self._own_cipher = event.generation, AESGCM(key)
        for wrap in event.wraps:
            if wrap[0] == self._own_name:
                return self._unwrap(event, wrap, self._own_cipher)
            name = wrap[0][:ID_BYTES]
            if self._cache.touch(name):
                return self._unwrap(event, wrap, AESGCM(self._keys[name]))
        request = self._request(event)
        if not request.names:
            raise DecodeError("a message to a group that this subscriber is not in")
        raise MissingKeyError(
            f"event {event.event} is under a key that subscriber {self.number} does not hold: send "
            "the request to the broker, and accept its answer",
            request=request.to_bytes(),
        )

    def accept(self, answer: bytes, message: bytes) -> bytes:
        """Learn the key that was requested, and return the payload of the event.

        Args:
            answer: the broker's answer to a request that `open` made for this message.
            message: message of the event.

        Raises:
            ReplayError: the event was opened before, or is too old to tell.
            DecodeError: the answer or message is malformed or altered, or the answer is to a
                request for another message.
        """
        key_answer, event = KeyAnswer.from_bytes(answer), self._read(message)
        bound = key_answer.bound(self._request(event).tag)
        cipher = AESGCM(derive(self._own, b"answer"))
        content = _decrypt(cipher, key_answer.nonce, key_answer.content, bound, _NO_ANSWER)
        name, key = content[:ID_BYTES], content[ID_BYTES:]
        if len(key) != KEY_BYTES or key_id(key) != name:
            raise DecodeError(_ALTERED)
        self._learn(name, key)
        for wrap in event.wraps:
            if wrap[0][:ID_BYTES] == name:
                return self._unwrap(event, wrap, AESGCM(key))
        raise DecodeError(_ALTERED)

    # -- memory of keys and events ---------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Save the keys in the cache and the numbers of opened events.

        The snapshot is encrypted with the subscriber's key.
        """
        keys = [(name, self._keys[name]) for name in self._cache.names()]
        content = write(_Snapshot(self._cache.snapshot(), keys, self._too_old, self._in_order))
        nonce = os.urandom(NONCE_BYTES)
        return nonce + AESGCM(derive(self._own, b"snapshot")).encrypt(nonce, content, None)

    def restore(self, snapshot: bytes) -> None:
        """Continue from a snapshot.

        Raises:
            DecodeError: it is altered, of another subscriber, or of an opener with a larger
                capacity or another eviction.
        """
        snapshot = octets("snapshot", snapshot)
        nonce, content = snapshot[:NONCE_BYTES], snapshot[NONCE_BYTES:]
        cipher = AESGCM(derive(self._own, b"snapshot"))
        content = _decrypt(cipher, nonce, content, None, _NO_SNAPSHOT)
        memory = read(_Snapshot, content, refusal="not a snapshot of this version")
        cache, keys = KeyCache(self._cache.capacity, self._cache.eviction), dict(memory.keys)
        cache.restore(memory.cache)
        if {*cache.names()} != {*keys} or memory.opened != sorted({*memory.opened}):
            raise DecodeError(_NO_SNAPSHOT)
        self._cache = cache
        self._keys, self._too_old, self._in_order = keys, memory.too_old, memory.opened
        self._opened = set(self._in_order)

    def _read(self, message: bytes) -> GroupMessage:
        """Read a message, and refuse one that was opened before."""
        event = GroupMessage.from_bytes(message)
        if event.event <= self._too_old or event.event in self._opened:
            raise ReplayError(
                f"event {event.event} is refused as a replay: it was opened before, or is too old "
                f"to tell, as numbers up to {self._too_old} are"
            )
        return event

    def _unwrap(self, event: GroupMessage, wrap: WrapBytes, cipher: AESGCM) -> bytes:
        sealed_name, encrypted = wrap
        content = _decrypt(cipher, event.nonce, encrypted, event.head + sealed_name, _ALTERED)
        if len(content) % CARRIED_BYTES != KEY_BYTES:
            raise DecodeError(_ALTERED)
        event_key = content[:KEY_BYTES]
        if self._sender is not None and not (
            event.proof and signed_in_batch(self._sender, event.to_sign(event_key), event.proof)
        ):
            raise DecodeError(_NOT_SIGNED)
        payload = open_sealed(event.payload, event_key, event.head)
        carried = [
            (content[at : at + ID_BYTES], content[at + ID_BYTES : at + CARRIED_BYTES])
            for at in range(KEY_BYTES, len(content), CARRIED_BYTES)
        ]
        if any(key_id(key) != name for name, key in carried):
            raise DecodeError(_ALTERED)
        for name, key in carried:
            self._learn(name, key)
        self._remember(event.event)
        return payload

    def _remember(self, number: int) -> None:
        """Remember that an event was opened.

        The largest numbers are remembered one by one. Smaller numbers are refused, since it is no
        longer known whether they were opened.
        """
        self._opened.add(number)
        insort(self._in_order, number)
        if len(self._in_order) >= 2 * self._remembered:
            old = self._in_order[: -self._remembered]
            self._too_old = old[-1]
            self._opened.difference_update(old)
            del self._in_order[: len(old)]

    def _learn(self, name: bytes, key: bytes) -> None:
        if not self._cache.touch(name):
            evicted = self._cache.add(name)
            if evicted is not None:
                self._keys.pop(evicted, None)
        if name in self._cache:
            self._keys[name] = key

    def _request(self, event: GroupMessage) -> KeyRequest:
        """Return a request for the keys of a message, with its tag. Own keys are not requested."""
        names = tuple(name for name, _ in event.wraps if len(name) > ID_BYTES)
        request = KeyRequest(self.number, names, bytes(TAG_BYTES))
        return replace(request, tag=request.tag_under(self._own))


def _decrypt(
    cipher: AESGCM, nonce: bytes, content: bytes, bound: bytes | None, refusal: str
) -> bytes:
    try:
        return cipher.decrypt(nonce, content, bound)
    except (InvalidTag, ValueError):
        raise DecodeError(refusal) from None
