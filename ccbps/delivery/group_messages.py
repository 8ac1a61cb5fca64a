"""The bytes of messages to groups, of requests for keys and of the answers. All numbers big-endian.

An event:

===========  =====  ====================================================================
part         bytes  holds
===========  =====  ====================================================================
kind             1  `Kind.GROUP_EVENT`
version          1  1
event            8  its number
epoch            8  of the broker
generation       8  of the broker's keys
nonce           12  random, of all wraps
group           16  keyed hash of the event's number and group: says nothing to others
length           4  of the payload
payload             encrypted under the event's key, with all fields up to group bound
wraps               each: lengths of name and content, 2 and 2; the sealed name; the content,
                    encrypted
===========  =====  ====================================================================

A wrap's content is the event's key, and of each key that it carries the first 16 bytes of the name
and the key. Bound are the fields up to group and the wrap's name.

A request is head (kind, version, the subscriber's number, 4), sealed names with their lengths, 2,
and a tag, 16. An answer is head (kind, version, nonce, 12) and, encrypted and bound to the head and
to the request's tag, the first 16 bytes of the key's name and the key.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from ccbps.ciphers.payloads import NONCE_BYTES
from ccbps.delivery.group_keys import ID_BYTES
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.delivery_keys import KEY_BYTES
from ccbps.wire import Kind

VERSION: Final = 1
TAG_BYTES: Final = 16
CARRIED_BYTES: Final = ID_BYTES + KEY_BYTES
_HEAD: Final = struct.Struct(f">BBQQQ{NONCE_BYTES}s{ID_BYTES}s")
_WRAP: Final = struct.Struct(">HH")
_REQUEST: Final = struct.Struct(">BBI")
_ANSWER: Final = struct.Struct(f">BB{NONCE_BYTES}s")


def event_head(event: int, epoch: int, generation: int, nonce: bytes, group: bytes) -> bytes:
    """The fields up to group."""
    return _HEAD.pack(Kind.GROUP_EVENT, VERSION, event, epoch, generation, nonce, group)


WrapBytes: TypeAlias = tuple[bytes, bytes]
"""A wrap as it is sent: the sealed name of the key that it is under; its content, encrypted."""


class GroupMessage(NamedTuple):
    """An event's message.

    Attributes:
        event: its number.
        generation: of the keys.
        nonce: of the wraps.
        head: the fields up to group.
        payload: encrypted.
        wraps: all of them, or those for one subscriber.
    """

    event: int
    generation: int
    nonce: bytes
    head: bytes
    payload: bytes
    wraps: tuple[WrapBytes, ...]

    def to_bytes(self) -> bytes:
        """As it is sent."""
        out = [self.head, len(self.payload).to_bytes(4), self.payload]
        for name, content in self.wraps:
            out += [_WRAP.pack(len(name), len(content)), name, content]
        return b"".join(out)

    @classmethod
    def from_bytes(cls, message: bytes) -> GroupMessage:
        """Raises DecodeError if it is not one."""
        reader = _Reader(message, "a message to a group")
        head = reader.take(_HEAD.size)
        kind, version, event, _, generation, nonce, _ = _HEAD.unpack(head)
        reader.check(kind, version, Kind.GROUP_EVENT)
        payload, wraps = reader.take(int.from_bytes(reader.take(4))), []
        while reader.left:
            name, content = _WRAP.unpack(reader.take(_WRAP.size))
            wraps.append((reader.take(name), reader.take(content)))
            if name < ID_BYTES:
                raise reader.error()
        return cls(event, generation, nonce, head, payload, (*wraps,))


@dataclass(frozen=True)
class SealedEvent:
    """An event, sealed for a group.

    Attributes:
        message: with all wraps.
        masks: of each wrap who can open it, bit i for subscriber i.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import GroupSealer, Naive, pack_groups
        >>> sealer = GroupSealer(Naive(3))
        >>> keys = [sealer.join(i) for i in range(3)]
        >>> event = sealer.seal(b"IBM 119.50", 0, pack_groups(np.array([True, False, True])))
        >>> len(event.to_bytes()), len(event.for_subscriber(2))     # two wraps, one wrap
        (466, 398)
    """

    message: GroupMessage
    masks: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """One message for all of the group."""
        return self.message.to_bytes()

    def for_subscriber(self, subscriber: int) -> bytes:
        """The message with the one wrap that this subscriber can open.

        Raises:
            ParameterError: it is not in the group.
        """
        place = self._places.get(subscriber)
        if place is None:
            raise ParameterError(f"subscriber {subscriber!r} is not in the group of this event")
        return self.message._replace(wraps=self.message.wraps[place : place + 1]).to_bytes()

    @cached_property
    def _places(self) -> dict[int, int]:
        places = {}
        for place, mask in enumerate(self.masks):
            while mask:
                low = mask & -mask
                places[low.bit_length() - 1] = place
                mask ^= low
        return places


class KeyRequest(NamedTuple):
    """A subscriber asks for the first of these keys that it may have.

    Attributes:
        subscriber: its number.
        names: sealed, of keys.
    """

    subscriber: int
    names: tuple[bytes, ...]

    def unsigned(self) -> bytes:
        """All but the tag."""
        front = Kind.KEY_REQUEST, VERSION, self.subscriber
        names = [len(name).to_bytes(2) + name for name in self.names]
        return _REQUEST.pack(*front) + b"".join(names)

    @classmethod
    def from_bytes(cls, request: bytes) -> KeyRequest:
        """Raises DecodeError if it is not one."""
        reader = _Reader(request, "a request for a key")
        kind, version, subscriber = _REQUEST.unpack(reader.take(_REQUEST.size))
        reader.check(kind, version, Kind.KEY_REQUEST)
        names = []
        while reader.left > TAG_BYTES:
            names.append(reader.take(int.from_bytes(reader.take(2))))
            if len(names[-1]) <= ID_BYTES:
                raise reader.error()
        reader.take(TAG_BYTES)
        return cls(subscriber, (*names,))


def request_from(request: bytes) -> int:
    """The subscriber that a request says it is from.

    Raises:
        DecodeError: it is not a request.
    """
    reader = _Reader(request, "a request for a key")
    kind, version, subscriber = _REQUEST.unpack(reader.take(_REQUEST.size))
    reader.check(kind, version, Kind.KEY_REQUEST)
    if reader.left < TAG_BYTES:
        raise reader.error()
    return int(subscriber)


class KeyAnswer(NamedTuple):
    """A key, encrypted.

    Attributes:
        nonce: random.
        content: name and key, encrypted.
    """

    nonce: bytes
    content: bytes = b""

    def head(self) -> bytes:
        """What the content is bound to, with the request's tag."""
        return _ANSWER.pack(Kind.KEY_ANSWER, VERSION, self.nonce)

    @classmethod
    def from_bytes(cls, answer: bytes) -> KeyAnswer:
        """Raises DecodeError if it is not one."""
        reader = _Reader(answer, "an answer with a key")
        kind, version, nonce = _ANSWER.unpack(reader.take(_ANSWER.size))
        reader.check(kind, version, Kind.KEY_ANSWER)
        return cls(nonce, reader.take(reader.left))


class _Reader:
    """Takes bytes from the front, and refuses if there are too few."""

    def __init__(self, message: bytes, what: str) -> None:
        if not isinstance(message, (bytes, bytearray, memoryview)):
            raise DecodeError(f"{what} must be bytes, got {type(message).__name__}")
        self._message, self._at, self._what = bytes(message), 0, what

    @property
    def left(self) -> int:
        return len(self._message) - self._at

    def take(self, count: int) -> bytes:
        if self.left < count:
            raise self.error()
        self._at += count
        return self._message[self._at - count : self._at]

    def check(self, kind: int, version: int, wanted: Kind) -> None:
        if (kind, version) != (wanted, VERSION):
            raise self.error()

    def error(self) -> DecodeError:
        return DecodeError(f"not {self._what} of this version, or cut off")


def carried_keys(content: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Names, 16 bytes each, and keys behind the event's key in a wrap's content."""
    found = content[KEY_BYTES:]
    return [
        (found[at : at + ID_BYTES], found[at + ID_BYTES : at + CARRIED_BYTES])
        for at in range(0, len(found), CARRIED_BYTES)
    ]
