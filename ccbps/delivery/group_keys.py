"""Keys of groups: derived from one secret, so that nobody has to store them.

An epoch is a number that grows with every join, leave and renewal; a generation is the epoch of the
last renewal, 0 before. The key of a name (a group, a small set, a node of a tree) is

    K = HKDF-Expand(S, "group key" | since | name),

S the broker's secret, and *since* the generation, or the latest epoch in which a member of that
name joined if that is later. A subscriber has a key P, which it got when it joined, and of each
generation one that follows from it:

    HKDF-Expand(P, "own key" | generation),   P = HKDF-Expand(S, "subscriber" | number | joined).

So a key that was evicted is derived again, and is the same: in another process, after a crash, and
under another strategy, since a name says itself whose key it is. On the wire names are hidden. A
name is encrypted, together with *since*, by AES-SIV, which is deterministic: who listens sees that
two keys are the same, and how long the name is. In front stands an identifier that is a hash of the
key. So nobody can pass another key off as the one that an identifier names, and a wrap opens with
one key only. The sealed name is itself the request for the key: only the broker can open it, and it
needs no table to do so. An own key's name is a keyed hash.

*Nonces.* AES-GCM must never see a nonce twice under one key. Each event has a nonce of 12 random
bytes, and uses each key at most once. So nothing has to be saved or counted, an event may be sealed
again after a failure, and several processes may share one state. After 2^32 events under one key
two nonces are equal with probability 2^-33 (the bound of NIST SP 800-38D); renewal gives all names
new keys, and should come before.

The keys that travel with events could as well be random. Then each would have to be stored as long
as any message under it may be asked for; and whoever steals S reads everything in both cases, since
S opens what carries them.

Sources: [RFC5869] (HKDF), RFC 5297 (AES-SIV).
"""

from __future__ import annotations

import hmac
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV

from ccbps.errors import DecodeError
from ccbps.keys.delivery_keys import EPOCH_BYTES, SubscriberKey

ID_BYTES: Final = 16
"""The first bytes of a sealed name, which identify a key: a hash of it."""
_VERSION: Final = b"ccbps group delivery 1"


class NamedKey(NamedTuple):
    """A key of the broker's.

    Attributes:
        cipher: AES-256-GCM with it.
        sealed_name: its name on the wire.
        mask: its members, bit i for subscriber i.
        carried: what travels where it is carried: the first bytes of its sealed name, and it.
    """

    cipher: AESGCM
    sealed_name: bytes
    mask: int
    carried: bytes

    def __repr__(self) -> str:
        return f"<NamedKey {self.sealed_name.hex()[:16]}>"


class OwnKeys(NamedTuple):
    """A subscriber's, in a generation.

    Attributes:
        name: on the wire, `ID_BYTES`.
        key: for wraps.
    """

    name: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"<OwnKeys {self.name.hex()}>"


def derive(secret: bytes, label: bytes, *parts: bytes) -> bytes:
    """32 bytes: a block of HKDF-Expand with SHA-256. All parts but the last have fixed lengths."""
    info = b"\0".join((_VERSION, label, b"".join(parts)))
    return hmac.digest(secret, info + b"\x01", "sha256")


def subscriber_key(secret: bytes, number: int, since: int) -> SubscriberKey:
    """The key of a subscriber that joined in epoch `since`."""
    four = number.to_bytes(4)
    return SubscriberKey(four + derive(secret, b"subscriber", four, since.to_bytes(EPOCH_BYTES)))


def own_keys_of(key: bytes, generation: int) -> OwnKeys:
    """A subscriber's name and key in a generation, which both sides derive."""
    bound = generation.to_bytes(EPOCH_BYTES)
    return OwnKeys(derive(key, b"own name", bound)[:ID_BYTES], derive(key, b"own key", bound))


def group_key(secret: bytes, since: int, name: bytes) -> bytes:
    """The key that a name has since an epoch."""
    return derive(secret, b"group key", since.to_bytes(EPOCH_BYTES), name)


def name_cipher(secret: bytes) -> AESSIV:
    """The cipher for names."""
    return AESSIV(derive(secret, b"names, first") + derive(secret, b"names, second"))


def key_id(key: bytes) -> bytes:
    """What identifies a key to those who hold it, `ID_BYTES`."""
    return derive(key, b"key id")[:ID_BYTES]


def seal_name(cipher: AESSIV, since: int, name: bytes, key: bytes) -> bytes:
    """The name of a key as it is sent."""
    return key_id(key) + cipher.encrypt(since.to_bytes(EPOCH_BYTES) + name, None)


def open_name(cipher: AESSIV, sealed_name: bytes) -> tuple[int, bytes]:
    """Since which epoch the key is what it is, and the name.

    Raises:
        DecodeError: the broker did not make it.
    """
    try:
        opened = cipher.decrypt(sealed_name[ID_BYTES:], None)
    except (InvalidTag, ValueError):
        raise DecodeError("not the name of a key of this broker") from None
    return int.from_bytes(opened[:EPOCH_BYTES]), opened[EPOCH_BYTES:]
