"""Secrets of delivery to groups: a subscriber's key, rings of such keys, a broker's state."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated, Final, Self

from msgspec import Meta

from ccbps.checks import instance, whole
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.plain_key import PlainKey
from ccbps.keys.secret import Confined, confined
from ccbps.keys.text_form import TextKey
from ccbps.records import Number, SecretRecord, read, write

KEY_BYTES: Final = 32
EPOCH_BYTES: Final = 8
NUMBER_BYTES: Final = 4


class SubscriberKey(PlainKey):
    """A secret that a subscriber shares with the broker: its number, 4 bytes, and 32 random bytes.

    Example:
        >>> from ccbps.delivery import GroupSealer, Naive, SubscriberKey
        >>> key = GroupSealer(Naive(3)).join(2)
        >>> key.number
        2
        >>> SubscriberKey.from_text(key.to_text()) == key
        True
    """

    kind = "subscriber key"
    length = NUMBER_BYTES + KEY_BYTES
    text_kind = "delivery-key"
    __slots__ = ()

    @property
    def number(self) -> int:
        """Number of the subscriber."""
        return int.from_bytes(self._secret[:NUMBER_BYTES])

    def export_secret_key(self) -> bytes:
        """Return the secret key without the number, 32 bytes."""
        return self._secret[NUMBER_BYTES:]


class SubscriberRing(Confined, TextKey):
    """The keys of several subscribers, by number, for a party that serves all of them.

    Example:
        >>> from ccbps.delivery import GroupSealer, Naive, SubscriberRing
        >>> sealer = GroupSealer(Naive(5))
        >>> ring = SubscriberRing.of(sealer.join(i) for i in (1, 4))
        >>> ring, ring.key(4).number
        (<SubscriberRing of 2 keys>, 4)
    """

    text_kind = "delivery-ring"
    __slots__ = ("_keys",)

    def __init__(self, keys: dict[int, SubscriberKey]) -> None:
        self._keys = keys

    @classmethod
    def of(cls, keys: Iterable[SubscriberKey]) -> Self:
        """Make a ring of keys.

        Raises:
            ParameterError: there is no key, one is no `SubscriberKey`, or two are of one
                subscriber.
        """
        by_number: dict[int, SubscriberKey] = {}
        for key in keys:
            instance("keys", key, SubscriberKey, hint="GroupSealer.join gives them out")
            if key.number in by_number:
                raise ParameterError(f"keys: two are of subscriber {key.number}")
            by_number[key.number] = key
        if not by_number:
            raise ParameterError("keys: a ring needs at least one")
        return cls(by_number)

    def key(self, number: int) -> SubscriberKey:
        """Return the key of a subscriber.

        Raises:
            KeyMismatchError: the ring does not have it.
        """
        if number not in self._keys:
            raise KeyMismatchError(
                f"no key of subscriber {number} among the {len(self._keys)} of this ring"
            )
        return self._keys[number]

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<SubscriberRing of {len(self)} keys>"

    def _to_bytes(self) -> bytes:
        return write([key.export_secret() for key in self._keys.values()])

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        keys = read(list[bytes], secret, refusal="not a ring of subscribers' keys")
        return cls.of(map(SubscriberKey, keys))


class _State(SecretRecord, frozen=True):
    """The fields of a `BrokerState`."""

    secret: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    epoch: Number
    generation: Number
    joined: Annotated[list[Number], Meta(min_length=1)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.generation, *self.joined) > self.epoch:
            raise ParameterError("epochs of a broker's state come after its own")


class BrokerState(PlainKey):
    """The state of a broker that delivers to groups, which it must not lose.

    It consists of a secret of 32 bytes, the epoch, the generation, and for each subscriber the
    epoch in which it joined, 0 if it is not a member.

    Example:
        >>> from ccbps.delivery import BrokerState, GroupSealer, Naive
        >>> sealer = GroupSealer(Naive(3))
        >>> key = sealer.join(2)
        >>> state = BrokerState.from_text(sealer.state.to_text())     # read back after a crash
        >>> GroupSealer(Naive(3), state).state == sealer.state
        True
    """

    kind = "broker state"
    text_kind = "delivery-state"
    __slots__ = ()

    @confined
    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self._fields()  # refuses other bytes

    @classmethod
    def of(cls, secret: bytes, epoch: int, generation: int, joined: list[int]) -> Self:
        """Return a state from its parts."""
        return cls(write(_State(secret, epoch, generation, joined)))

    @classmethod
    def new(cls, subscribers: int) -> Self:
        """Return the state of a broker that nobody has joined."""
        return cls.of(os.urandom(KEY_BYTES), 0, 0, [0] * whole("subscribers", subscribers, 1))

    @property
    def subscribers(self) -> int:
        """Number of subscribers that may join."""
        return len(self._fields().joined)

    def parts(self, subscribers: int) -> tuple[bytes, int, int, list[int]]:
        """Return the secret, the epoch, the generation and the epochs in which subscribers joined.

        Raises:
            ParameterError: the state is of another number of subscribers.
        """
        state = self._fields()
        if len(state.joined) != subscribers:
            raise ParameterError(f"state is not that of a broker of {subscribers} subscribers")
        return state.secret, state.epoch, state.generation, state.joined

    def _fields(self) -> _State:
        refusal = KeyMismatchError("not a broker's state (BrokerState.to_text() writes it)")
        return read(_State, self._secret, refusal=refusal)
