"""The subscriber's side of delivery to groups: opens events, learns keys, and asks for lost ones.

A subscriber must keep its own key only. All others come with events, and are in a bounded cache; if
the key of a wrap is not there, `open` raises `MissingKeyError` with a request to the broker, and
its answer opens the event that waits.

A request is authentic (HMAC-SHA256 with the subscriber's own key), and has a counter that starts
from the clock, so that it grows, also over crashes. The broker answers if the subscriber is a
member of the group whose key it asks for. Who replays a request after the broker has crashed gets
an answer that only the subscriber can read.

Events that were opened are refused from then on, as long as the opener lives.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ccbps.ciphers.payloads import open_sealed
from ccbps.delivery.group_keys import ID_BYTES, KEY_BYTES, SubscriberKey, derive, own_keys_of
from ccbps.delivery.group_messages import (
    CARRIED_BYTES,
    TAG_BYTES,
    GroupMessage,
    KeyAnswer,
    KeyRequest,
    WrapBytes,
    carried_keys,
    wrap_nonce,
)
from ccbps.delivery.key_cache import Eviction, KeyCache
from ccbps.errors import DecodeError, MissingKeyError, ParameterError
from ccbps.keys.secret import Confined

__all__ = ["GroupOpener"]

MOST_OPENED: Final = 1 << 16
"""Events that are remembered one by one; those before the oldest of them are refused."""
MOST_WAITING: Final = 1 << 12
"""Events that wait for answers; if there are more, the oldest are opened again by the caller."""
_ALTERED: Final = "a message to a group was altered, or is of another key"


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
        ...     print(opener.accept(sealer.answer(missing.request)))
        b'IBM 119.50'
    """

    def __init__(
        self, key: SubscriberKey, *, capacity: int, eviction: Eviction = "frequency"
    ) -> None:
        """
        Args:
            key: from `GroupSealer.join`.
            capacity: keys of groups that are kept.
            eviction: "frequency" or "recency".
        """
        if not isinstance(key, SubscriberKey):
            raise ParameterError(f"key must be a SubscriberKey, got {type(key).__name__}")
        self.number, self._own = key.number, key.export_secret_key()
        self._cache = KeyCache(capacity, eviction)
        self._keys: dict[bytes, AESGCM] = {}
        self._run: tuple[bytes, bytes, AESGCM] | None = None
        self._opened: OrderedDict[tuple[bytes, int], None] = OrderedDict()
        self._forgotten: dict[bytes, int] = {}
        self._waiting: OrderedDict[int, tuple[bytes, GroupMessage]] = OrderedDict()
        self._counter = 0

    def __repr__(self) -> str:
        return f"<GroupOpener of subscriber {self.number}, {len(self._keys)} keys>"

    def open(self, message: bytes) -> bytes:
        """The payload of an event.

        Raises:
            MissingKeyError: it is under a key that this subscriber does not hold. Send its
                `request` to the broker and `accept` the answer; the event waits.
            DecodeError: malformed, altered, opened before, or not for this subscriber.
        """
        event = GroupMessage.from_bytes(message)
        self._refuse_again(event)
        own, own_cipher = self._own_keys(event.run)
        for wrap in event.wraps:
            if wrap[1] == own:
                return self._unwrap(event, wrap, own_cipher)
            name = wrap[1][:ID_BYTES]
            if self._cache.touch(name):
                return self._unwrap(event, wrap, self._keys[name])
        names = [name for _, name, _ in event.wraps if len(name) > ID_BYTES]
        if not names:
            raise DecodeError("a message to a group that this subscriber is not in")
        request = self._ask(event, (*names,))
        raise MissingKeyError(
            f"event {event.event} is under a key that subscriber {self.number} does not hold: send "
            "the request to the broker, and accept its answer",
            request=request,
        )

    def accept(self, answer: bytes) -> bytes:
        """Learn the key that was asked for; returns the payload of the event that waited for it.

        Raises:
            DecodeError: malformed, altered, or no answer to a request that waits; or the event
                itself was altered, or opened meanwhile.
        """
        came = KeyAnswer.from_bytes(answer)
        if came.counter not in self._waiting:
            raise DecodeError("not an answer to a request that waits: open the event again")
        tag, event = self._waiting[came.counter]
        try:
            content = AESGCM(derive(self._own, b"answer")).decrypt(
                came.nonce, came.content, came.head() + tag
            )
        except (InvalidTag, ValueError):
            raise DecodeError("an answer with a key was altered, or is another's") from None
        del self._waiting[came.counter]
        name, key = content[:ID_BYTES], content[ID_BYTES:]
        if len(key) != KEY_BYTES:
            raise DecodeError(_ALTERED)
        self._learn(name, key)
        self._refuse_again(event)
        for wrap in event.wraps:
            if wrap[1][:ID_BYTES] == name:
                return self._unwrap(event, wrap, AESGCM(key))
        raise DecodeError(_ALTERED)

    def _own_keys(self, run: bytes) -> tuple[bytes, AESGCM]:
        if self._run is None or self._run[0] != run:
            name, key = own_keys_of(self._own, run)
            self._run = run, name, AESGCM(key)
        return self._run[1:]

    def _unwrap(self, event: GroupMessage, wrap: WrapBytes, cipher: AESGCM) -> bytes:
        place, sealed_name, encrypted = wrap
        nonce = wrap_nonce(event.event, place)
        try:
            content = cipher.decrypt(nonce, encrypted, event.head + sealed_name)
        except (InvalidTag, ValueError):
            raise DecodeError(_ALTERED) from None
        if len(content) % CARRIED_BYTES != KEY_BYTES:
            raise DecodeError(_ALTERED)
        payload = open_sealed(event.payload, content[:KEY_BYTES], event.head)
        for name, key in carried_keys(content):
            self._learn(name, key)
        self._opened[event.run, event.event] = None
        if len(self._opened) > MOST_OPENED:
            (run, number), _ = self._opened.popitem(last=False)
            self._forgotten[run] = max(number, self._forgotten.get(run, -1))
        return payload

    def _refuse_again(self, event: GroupMessage) -> None:
        old = event.event <= self._forgotten.get(event.run, -1)
        if old or (event.run, event.event) in self._opened:
            raise DecodeError("a replay: this event was opened before, or is too old to tell")

    def _learn(self, name: bytes, key: bytes) -> None:
        if not self._cache.touch(name):
            evicted = self._cache.add(name)
            if evicted is not None:
                self._keys.pop(evicted, None)
        if name in self._cache:
            self._keys[name] = AESGCM(key)

    def _ask(self, event: GroupMessage, names: tuple[bytes, ...]) -> bytes:
        self._counter = max(self._counter + 1, time.time_ns())
        unsigned = KeyRequest(self.number, self._counter, event.run, names).unsigned()
        tag = derive(self._own, b"request", unsigned)[:TAG_BYTES]
        self._waiting[self._counter] = tag, event
        if len(self._waiting) > MOST_WAITING:
            self._waiting.popitem(last=False)
        return unsigned + tag
