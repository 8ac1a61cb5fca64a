"""Messages to groups, requests for keys and the answers: records behind kind and version.

A wrap is the sealed name of the key that it is under, and its content, encrypted: the event's key,
and of each key that it carries the first 16 bytes of the name and the key. Bound are the fields up
to `group` and the wrap's name; to the payload, those fields.

A request has a tag of all its other fields. The content of an answer, the first 16 bytes of the
key's name and the key, is bound to the answer's nonce and to the request's tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta
from msgspec.structs import replace

from ccbps.ciphers.payloads import NONCE_BYTES
from ccbps.delivery.group_keys import ID_BYTES
from ccbps.errors import ParameterError
from ccbps.keys.delivery_keys import KEY_BYTES
from ccbps.records import Message, Number, write
from ccbps.wire import Kind

VERSION: Final = 2
TAG_BYTES: Final = 16
CARRIED_BYTES: Final = ID_BYTES + KEY_BYTES

Nonce = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Tag = Annotated[bytes, Meta(min_length=TAG_BYTES, max_length=TAG_BYTES)]
Name = Annotated[bytes, Meta(min_length=ID_BYTES)]
WrapBytes: TypeAlias = tuple[Name, bytes]
"""A wrap as it is sent: the sealed name of the key that it is under; its content, encrypted."""


class GroupMessage(Message, frozen=True):
    """An event's message.

    Attributes:
        event: its number.
        epoch: of the broker.
        generation: of the keys.
        nonce: of the wraps, random.
        group: keyed hash of the event's number and group: says nothing to others.
        payload: encrypted under the event's key.
        wraps: all of them, or those for one subscriber.
    """

    front: ClassVar[bytes] = bytes([Kind.GROUP_EVENT, VERSION])
    what: ClassVar[str] = "a message to a group"
    event: Annotated[int, Meta(ge=0)]
    epoch: Number
    generation: Number
    nonce: Nonce
    group: Tag
    payload: bytes = b""
    wraps: tuple[WrapBytes, ...] = ()

    @property
    def head(self) -> bytes:
        """What payload and wraps are bound to: the fields up to `group`."""
        return write((self.event, self.epoch, self.generation, self.nonce, self.group), self.front)


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
        (452, 383)
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
        return replace(self.message, wraps=self.message.wraps[place : place + 1]).to_bytes()

    @cached_property
    def _places(self) -> dict[int, int]:
        places = {}
        for place, mask in enumerate(self.masks):
            while mask:
                low = mask & -mask
                places[low.bit_length() - 1] = place
                mask ^= low
        return places


class KeyRequest(Message, frozen=True):
    """A subscriber asks for the first of these keys that it may have.

    Attributes:
        subscriber: its number.
        names: sealed, of keys.
        tag: of the rest, under the subscriber's key.
    """

    front: ClassVar[bytes] = bytes([Kind.KEY_REQUEST, VERSION])
    what: ClassVar[str] = "a request for a key"
    subscriber: Number
    names: tuple[Name, ...]
    tag: Tag

    def unsigned(self) -> bytes:
        """Return what the tag is of."""
        return write((self.subscriber, self.names), self.front)


class KeyAnswer(Message, frozen=True):
    """A key, encrypted.

    Attributes:
        nonce: random.
        content: name and key, encrypted.
    """

    front: ClassVar[bytes] = bytes([Kind.KEY_ANSWER, VERSION])
    what: ClassVar[str] = "an answer with a key"
    nonce: Nonce
    content: bytes = b""

    def bound(self, tag: bytes) -> bytes:
        """Return what the content is bound to, with the tag of the request."""
        return self.front + self.nonce + tag


def carried_keys(content: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Names, 16 bytes each, and keys behind the event's key in a wrap's content."""
    found = content[KEY_BYTES:]
    return [
        (found[at : at + ID_BYTES], found[at + ID_BYTES : at + CARRIED_BYTES])
        for at in range(0, len(found), CARRIED_BYTES)
    ]
