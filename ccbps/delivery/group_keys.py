"""Keys of groups: derived from one secret, so that nobody has to store them.

A run is one life of a broker, and has a random name of 16 bytes. An epoch is a number that grows
with every join and leave. The key of a name (a group, a part of one, a node of a tree) in a run is

    K = HKDF-Expand(S, "group key" | run | since | name),

S the broker's secret, and *since* the latest epoch in which a member of that name joined. Of a
subscriber's own key P, which it got when it joined, each run has a key of its own, too,

    HKDF-Expand(P, "own key" | run),   P = HKDF-Expand(S, "subscriber" | number | since).

So a key that was evicted is derived again, and is the same; strategy and sealer cannot disagree on
which keys there are. On the wire names are hidden. A group's name is encrypted, together with
*since*, by AES-SIV, which is deterministic: who listens sees that two keys are the same, and how
long the name is. The sealed name is itself the request for the key: only the broker can open it,
and it needs no table to do so. An own key's name is a keyed hash.

*Nonces.* AES-GCM must never see a nonce twice under one key. A nonce is the event's number and the
wrap's place in the event. A sealer takes ascending event numbers only; another sealer, also one
that is restored after a crash, has another run, and so has other keys. Nothing has to be saved for
an event.

The fresh keys of a plan could as well be random. Then each would have to be stored as long as any
message under it may be asked for; and whoever steals S reads everything in both cases, since S
opens what carries them.

Sources: [RFC5869] (HKDF), RFC 5297 (AES-SIV).
"""

from __future__ import annotations

import hmac
import os
from typing import Final, NamedTuple, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV

from ccbps.delivery.plans import Strategy
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.secret import SecretBytes

__all__ = [
    "ID_BYTES",
    "KEY_BYTES",
    "RUN_BYTES",
    "BrokerState",
    "NamedKey",
    "OwnKeys",
    "SubscriberKey",
    "derive",
    "group_key",
    "member_mask",
    "name_cipher",
    "open_name",
    "own_keys_of",
    "subscriber_key",
]

KEY_BYTES: Final = 32
RUN_BYTES: Final = 16
ID_BYTES: Final = 16
"""The first bytes of a sealed name, which identify a key."""
SINCE_BYTES: Final = 8
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
    """What a broker must not lose: its secret, 32 bytes; the epoch; of each subscriber, in which
    epoch it joined, 0 if it is not there; 8 bytes each.

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
    def of(cls, secret: bytes, epoch: int, joined: list[int]) -> Self:
        """From its parts."""
        return cls(secret + b"".join(number.to_bytes(8) for number in (epoch, *joined)))

    @classmethod
    def new(cls, subscribers: int) -> Self:
        """Of a broker that nobody has joined."""
        return cls.of(os.urandom(KEY_BYTES), 0, [0] * subscribers)

    def parts(self, subscribers: int) -> tuple[bytes, int, list[int]]:
        """The secret, the epoch and who joined when.

        Raises:
            ParameterError: the state is not one for so many subscribers.
        """
        secret, rest = self._secret[:KEY_BYTES], self._secret[KEY_BYTES:]
        numbers = [int.from_bytes(rest[at : at + 8]) for at in range(0, len(rest), 8)]
        if len(rest) != 8 * (subscribers + 1) or max(numbers[1:]) > numbers[0]:
            raise ParameterError(f"state is not that of a broker of {subscribers} subscribers")
        return secret, numbers[0], numbers[1:]


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
    """A subscriber's, in a run.

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
    return SubscriberKey(four + derive(secret, b"subscriber", four, since.to_bytes(SINCE_BYTES)))


def own_keys_of(key: bytes, run: bytes) -> OwnKeys:
    """A subscriber's name and key in a run, which both sides derive."""
    return OwnKeys(derive(key, b"own name", run)[:ID_BYTES], derive(key, b"own key", run))


def group_key(secret: bytes, run: bytes, since: int, name: bytes) -> bytes:
    """The key of a name whose last member joined in epoch `since`."""
    return derive(secret, b"group key", run, since.to_bytes(SINCE_BYTES), name)


def name_cipher(secret: bytes) -> AESSIV:
    """The cipher for names; bound to a run, they open with their `since` in front."""
    return AESSIV(derive(secret, b"names, first") + derive(secret, b"names, second"))


def open_name(cipher: AESSIV, run: bytes, sealed_name: bytes) -> tuple[int, bytes]:
    """`since` and the name.

    Raises:
        DecodeError: the broker did not make it for this run.
    """
    try:
        opened = cipher.decrypt(sealed_name, [run])
    except (InvalidTag, ValueError):
        raise DecodeError("not the name of a key of this broker and run") from None
    return int.from_bytes(opened[:SINCE_BYTES]), opened[SINCE_BYTES:]


def member_mask(strategy: Strategy, name: bytes) -> int:
    """Whose key it is, bit i for subscriber i.

    Raises:
        ParameterError: the strategy has no such names.
    """
    kind, rest = name[:1], name[1:]
    if kind == b"p" and len(rest) == 4:
        mask = 1 << int.from_bytes(rest)
    elif kind == b"g" and len(rest) == -(-strategy.subscribers // 8):
        mask = int.from_bytes(rest, "little")
    elif kind == b"h" and len(rest) == 5:
        level, node = rest[0], int.from_bytes(rest[1:])
        mask = ((1 << (1 << level)) - 1 << (node << level)) & (1 << strategy.subscribers) - 1
    elif kind == b"c" and len(rest) == 8 and (clusters := _clusters(strategy)) is not None:
        cluster, value = int.from_bytes(rest[:4]), int.from_bytes(rest[4:])
        mask = sum(1 << one for j, one in enumerate(clusters[cluster]) if value >> j & 1)
    else:
        raise ParameterError(f"{strategy!r} has no keys of the name {name.hex()}")
    return mask


def _clusters(strategy: Strategy) -> list[list[int]] | None:
    parts = getattr(strategy, "parts", strategy)
    clusters = getattr(parts, "clusters", None)
    return None if clusters is None else clusters.clusters
