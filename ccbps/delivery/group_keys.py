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
two keys are the same, and how long the name is. The sealed name is itself the request for the key:
only the broker can open it, and it needs no table to do so. An own key's name is a keyed hash.

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
import os
from typing import Final, NamedTuple, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV

from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.secret import SecretBytes

__all__ = [
    "ID_BYTES",
    "KEY_BYTES",
    "BrokerState",
    "NamedKey",
    "OwnKeys",
    "SubscriberKey",
    "derive",
    "group_key",
    "name_cipher",
    "open_name",
    "own_keys_of",
    "seal_name",
    "subscriber_key",
]

KEY_BYTES: Final = 32
ID_BYTES: Final = 16
"""The first bytes of a sealed name, which identify a key."""
EPOCH_BYTES: Final = 8
_VERSION: Final = b"ccbps group delivery 1"


class SubscriberKey(SecretBytes):
    """What a subscriber shares with the broker: its number, 4 bytes, and a key, 32 bytes.

    Example:
        >>> from ccbps.delivery import GroupSealer, Naive
        >>> GroupSealer(Naive(3)).join(2).number
        2
    """

    kind = "subscriber key"
    length = 4 + KEY_BYTES
    __slots__ = ()

    @property
    def number(self) -> int:
        """The subscriber's."""
        return int.from_bytes(self._secret[:4])

    def export_secret_key(self) -> bytes:
        """The key without the number, 32 bytes, secret."""
        return self._secret[4:]


class BrokerState(SecretBytes):
    """What a broker must not lose: its secret, 32 bytes; the epoch; the generation; of each
    subscriber, in which epoch it joined, 0 if it is not there; 8 bytes each.

    Example:
        >>> from ccbps.delivery import BrokerState, GroupSealer, Naive
        >>> sealer = GroupSealer(Naive(3))
        >>> key = sealer.join(2)
        >>> state = BrokerState(sealer.state.export_secret())     # read back after a crash
        >>> GroupSealer(Naive(3), state).state == sealer.state
        True
    """

    kind = "broker state"
    __slots__ = ()

    @classmethod
    def of(cls, secret: bytes, epoch: int, generation: int, joined: list[int]) -> Self:
        """From its parts."""
        numbers = epoch, generation, *joined
        return cls(secret + b"".join(number.to_bytes(EPOCH_BYTES) for number in numbers))

    @classmethod
    def new(cls, subscribers: int) -> Self:
        """Of a broker that nobody has joined."""
        return cls.of(os.urandom(KEY_BYTES), 0, 0, [0] * subscribers)

    def parts(self, subscribers: int) -> tuple[bytes, int, int, list[int]]:
        """The secret, the epoch, the generation and who joined when.

        Raises:
            ParameterError: the state is not one for so many subscribers.
        """
        secret, rest = self._secret[:KEY_BYTES], self._secret[KEY_BYTES:]
        step = EPOCH_BYTES
        numbers = [int.from_bytes(rest[at : at + step]) for at in range(0, len(rest), step)]
        if len(rest) != step * (subscribers + 2) or max(numbers[1:]) > numbers[0]:
            raise ParameterError(f"state is not that of a broker of {subscribers} subscribers")
        return secret, numbers[0], numbers[1], numbers[2:]


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


class OwnKeys(NamedTuple):
    """A subscriber's, in a generation.

    Attributes:
        name: on the wire, `ID_BYTES`.
        key: for wraps.
    """

    name: bytes
    key: bytes


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


def seal_name(cipher: AESSIV, since: int, name: bytes) -> bytes:
    """A name as it is sent."""
    return cipher.encrypt(since.to_bytes(EPOCH_BYTES) + name, None)


def open_name(cipher: AESSIV, sealed_name: bytes) -> tuple[int, bytes]:
    """Since which epoch the key is what it is, and the name.

    Raises:
        DecodeError: the broker did not make it.
    """
    try:
        opened = cipher.decrypt(sealed_name, None)
    except (InvalidTag, ValueError):
        raise DecodeError("not the name of a key of this broker") from None
    return int.from_bytes(opened[:EPOCH_BYTES]), opened[EPOCH_BYTES:]
