"""Keys and messages of delivery to groups, common to both sides.

*Keys* are derived from one secret, so nobody has to store them. An epoch is a number that grows
with every join, leave and renewal. A generation is the epoch of the last renewal, 0 before. The key
of a name (a group, a small set, a node of a tree) is::

    K = HKDF-Expand(S, "group key" | since | name).

S is the broker's secret. *Since* is the generation, or the latest epoch in which a member of that
name joined, if that is later. A subscriber has a key P, which it got when it joined. In each
generation its own key follows from it::

    HKDF-Expand(P, "own key" | generation),   P = HKDF-Expand(S, "subscriber" | number | joined).

So a key that was evicted is derived again, and is the same: in another process, after a crash, and
under another strategy, since a name contains its members.

*Names* are hidden on the wire. A name is encrypted, together with *since*, by AES-SIV, which is
deterministic: an eavesdropper sees whether two keys are equal, and the length of the name. In front
stands an identifier, a hash of the key. So no other key passes for the key of an identifier, and a
wrap opens with one key only. A subscriber requests the key by its sealed name: only the broker can
open it, and it needs no table to do so. The name of an own key is a keyed hash.

*Nonces.* AES-GCM must never see a nonce twice under one key. Each event has a nonce of 12 random
bytes, and uses each key at most once. So nothing has to be saved or counted, an event may be sealed
again after a failure, and several processes may share one state. After 2^32 events under one key
two nonces are equal with probability 2^-33 (the bound of NIST SP 800-38D). Renew keys before that:
renewal gives all names new keys.

The keys that travel with events could as well be random. Then each would have to be stored as long
as subscribers may request it. A thief of S reads everything in both cases, since S opens the wraps
that carry them.

*Signatures.* A sender may sign events one by one, or in batches with one signature. It signs the
fields up to `group`, the encrypted payload, and a hash of the event's key. GCM does not commit to
its key, but this hash does: no second key can open the payload to another content. Wraps are not
signed, since each receiver may get its own only. A wrap that was altered gives the right key or
none.

*Messages* are records behind kind and version. A wrap is the sealed name of a key, and content that
is encrypted under this key: the event's key, and for each key that it carries the first 16 bytes of
the sealed name and the key. It is bound to the fields up to `group` and to its name. The payload is
bound to those fields. A request has a tag of all its other fields. The content of an answer, the
first 16 bytes of the key's sealed name and the key, is bound to the answer's nonce and to the
request's tag.

Sources: [RFC5869] (HKDF), RFC 5297 (AES-SIV).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Annotated, ClassVar, Final, NamedTuple, TypeAlias

from msgspec import Meta
from msgspec.structs import replace

from ccbps.ciphers.payloads import NONCE_BYTES
from ccbps.ciphers.signatures import BatchProof
from ccbps.errors import ParameterError
from ccbps.keys.delivery_keys import EPOCH_BYTES, KEY_BYTES
from ccbps.records import Message, Number, write
from ccbps.wire import Kind

VERSION: Final = 3
ID_BYTES: Final = 16
"""Length of the identifier in front of a sealed name: a hash of the key."""
TAG_BYTES: Final = 16
CARRIED_BYTES: Final = ID_BYTES + KEY_BYTES
_LABEL: Final = b"ccbps group delivery 1"

Nonce = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Tag = Annotated[bytes, Meta(min_length=TAG_BYTES, max_length=TAG_BYTES)]
Name = Annotated[bytes, Meta(min_length=ID_BYTES)]
WrapBytes: TypeAlias = tuple[Name, bytes]
"""Wrap as it is sent: sealed name of the key that encrypts, and encrypted content."""


class OwnKeys(NamedTuple):
    """Key of a subscriber in a generation.

    Attributes:
        name: name on the wire, `ID_BYTES`.
        key: key for wraps.
    """

    name: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"<OwnKeys {self.name.hex()}>"


def derive(secret: bytes, label: bytes, *parts: bytes) -> bytes:
    """Derive 32 bytes: a block of HKDF-Expand with SHA-256.

    All parts but the last have fixed lengths.
    """
    info = b"\0".join((_LABEL, label, b"".join(parts)))
    return hmac.digest(secret, info + b"\x01", "sha256")


def own_keys_of(key: bytes, generation: int) -> OwnKeys:
    """Derive the name and the key of a subscriber in a generation, which both sides know."""
    bound = generation.to_bytes(EPOCH_BYTES)
    return OwnKeys(derive(key, b"own name", bound)[:ID_BYTES], derive(key, b"own key", bound))


def group_key(secret: bytes, since: int, name: bytes) -> bytes:
    """Derive the key of a name from an epoch (`since`) on."""
    return derive(secret, b"group key", since.to_bytes(EPOCH_BYTES), name)


def key_id(key: bytes) -> bytes:
    """Derive the identifier of a key, `ID_BYTES`."""
    return derive(key, b"key id")[:ID_BYTES]


class GroupMessage(Message, frozen=True):
    """Message of an event.

    Attributes:
        event: number of the event.
        epoch: epoch of the broker.
        generation: generation of the keys.
        nonce: random nonce of the wraps.
        group: keyed hash of the event's number and group, which tells others nothing.
        payload: payload, encrypted under the event's key.
        wraps: all wraps, or those for one subscriber.
        proof: the sender's signature; None for events that are not signed.
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
    proof: BatchProof | None = None

    @property
    def head(self) -> bytes:
        """Bytes that payload and wraps are bound to: the fields up to `group`."""
        return write((self.event, self.epoch, self.generation, self.nonce, self.group), self.front)

    def to_sign(self, event_key: bytes) -> bytes:
        """Return the bytes that the sender signs, given the key of the payload."""
        fixed = derive(event_key, b"event key") + sha256(self.payload).digest()
        return _LABEL + b"\0signed event\0" + fixed + self.head


@dataclass(frozen=True)
class SealedEvent:
    """Event that is sealed for a group.

    Attributes:
        message: message with all wraps.
        masks: members that can open each wrap, bit i for subscriber i.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import GroupSealer, Naive, pack_groups
        >>> sealer = GroupSealer(Naive(3))
        >>> keys = [sealer.join(i) for i in range(3)]
        >>> event = sealer.seal(b"IBM 119.50", 0, pack_groups(np.array([True, False, True])))
        >>> len(event.to_bytes()), len(event.for_subscriber(2))     # two wraps, one wrap
        (453, 384)
    """

    message: GroupMessage
    masks: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """Return one message for the whole group."""
        return self.message.to_bytes()

    def for_subscriber(self, subscriber: int) -> bytes:
        """Return the message with the one wrap that a subscriber can open.

        Raises:
            ParameterError: the subscriber is not in the group.
        """
        place = self._places.get(subscriber)
        if place is None:
            raise ParameterError(f"subscriber {subscriber!r} is not in the group of this event")
        return replace(self.message, wraps=self.message.wraps[place : place + 1]).to_bytes()

    @cached_property
    def _places(self) -> dict[int, int]:
        """Places of the members' wraps."""
        return {member: place for place, mask in enumerate(self.masks) for member in bits_of(mask)}


class KeyRequest(Message, frozen=True):
    """Request of a subscriber for the first of some keys that it is entitled to.

    Attributes:
        subscriber: number of the subscriber.
        names: sealed names of keys.
        tag: HMAC-SHA256 of the other fields under the subscriber's key.
    """

    front: ClassVar[bytes] = bytes([Kind.KEY_REQUEST, VERSION])
    what: ClassVar[str] = "a request for a key"
    subscriber: Number
    names: tuple[Name, ...]
    tag: Tag

    def tag_under(self, key: bytes) -> bytes:
        """Compute the tag of the other fields."""
        content = write((self.subscriber, self.names), self.front)
        return derive(key, b"request", content)[:TAG_BYTES]


class KeyAnswer(Message, frozen=True):
    """Answer with a key.

    Attributes:
        nonce: random nonce.
        content: identifier and key, encrypted.
    """

    front: ClassVar[bytes] = bytes([Kind.KEY_ANSWER, VERSION])
    what: ClassVar[str] = "an answer with a key"
    nonce: Nonce
    content: bytes = b""

    def bound(self, tag: bytes) -> bytes:
        """Return the bytes that the content is bound to, given the tag of the request."""
        return self.front + self.nonce + tag


def bits_of(mask: int) -> list[int]:
    """List the places of the bits that are set."""
    return [place for place, bit in enumerate(bin(mask)[:1:-1]) if bit == "1"]
