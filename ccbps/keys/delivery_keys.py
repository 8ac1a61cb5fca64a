"""What the parties of delivery to groups must keep: a subscriber its key, a broker its state."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Final, Self

from ccbps.errors import CcbpsError, KeyMismatchError, ParameterError
from ccbps.keys.confine import confined
from ccbps.keys.secret import Confined, SecretBytes
from ccbps.keys.text_form import KINDS, damaged, other_kind, read_key, write_key

KEY_BYTES: Final = 32
EPOCH_BYTES: Final = 8
NUMBER_BYTES: Final = 4


class SubscriberKey(SecretBytes):
    """What a subscriber shares with the broker: its number, 4 bytes, and a key, 32 bytes.

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
    __slots__ = ()

    @property
    def number(self) -> int:
        """The subscriber's."""
        return int.from_bytes(self._secret[:NUMBER_BYTES])

    def export_secret_key(self) -> bytes:
        """The key without the number, 32 bytes, secret."""
        return self._secret[NUMBER_BYTES:]

    def to_text(self) -> str:
        """The secret in text form, for a key file or an environment variable."""
        return write_key("delivery-key", self._secret)

    @classmethod
    @confined
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote.

        Raises:
            KeyMismatchError: it is another text (which is not shown).
        """
        secret = _secret_of(text, "delivery-key")
        if len(secret) != cls.length:
            raise damaged("delivery-key")
        return cls(secret)


class SubscriberRing(Confined):
    """The keys of several subscribers, by their numbers, for a party that serves all of them.

    Example:
        >>> from ccbps.delivery import GroupSealer, Naive, SubscriberRing
        >>> sealer = GroupSealer(Naive(5))
        >>> ring = SubscriberRing.of(sealer.join(i) for i in (1, 4))
        >>> ring, ring.key(4).number
        (<SubscriberRing of 2 keys>, 4)
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: dict[int, SubscriberKey]) -> None:
        self._keys = keys

    @classmethod
    def of(cls, keys: Iterable[SubscriberKey]) -> Self:
        """A ring of these keys.

        Raises:
            ParameterError: there is none, one is no key, or two are of one subscriber.
        """
        found: dict[int, SubscriberKey] = {}
        for key in keys:
            if not isinstance(key, SubscriberKey):
                raise ParameterError(
                    f"keys must be SubscriberKeys, got one {type(key).__name__}; "
                    "GroupSealer.join gives them out"
                )
            if key.number in found:
                raise ParameterError(f"keys: two are of subscriber {key.number}")
            found[key.number] = key
        if not found:
            raise ParameterError("keys: a ring needs at least one")
        return cls(found)

    def key(self, number: int) -> SubscriberKey:
        """The key of a subscriber.

        Raises:
            KeyMismatchError: it is not here.
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

    def to_text(self) -> str:
        """The secrets in text form, for a key file or an environment variable."""
        return write_key(
            "delivery-ring", b"".join(key.export_secret() for key in self._keys.values())
        )

    @classmethod
    @confined
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote.

        Raises:
            KeyMismatchError: it is another text (which is not shown).
        """
        secret, step, ring = _secret_of(text, "delivery-ring"), SubscriberKey.length, None
        with contextlib.suppress(CcbpsError):
            starts = range(0, len(secret), step)
            ring = cls.of(SubscriberKey(secret[at : at + step]) for at in starts)
        if ring is None:
            raise damaged("delivery-ring")
        return ring


class BrokerState(SecretBytes):
    """What a broker must not lose: its secret, 32 bytes; the epoch; the generation; of each
    subscriber, in which epoch it joined, 0 if it is not there; 8 bytes each.

    Example:
        >>> from ccbps.delivery import BrokerState, GroupSealer, Naive
        >>> sealer = GroupSealer(Naive(3))
        >>> key = sealer.join(2)
        >>> state = BrokerState.from_text(sealer.state.to_text())     # read back after a crash
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

    @property
    def subscribers(self) -> int:
        """How many numbers there are, whether somebody has joined under them or not."""
        return len(self._secret[KEY_BYTES:]) // EPOCH_BYTES - 2

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

    def to_text(self) -> str:
        """The secret in text form, for a key file or an environment variable."""
        return write_key("delivery-state", self._secret)

    @classmethod
    @confined
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote.

        Raises:
            KeyMismatchError: it is another text (which is not shown).
        """
        state = cls(_secret_of(text, "delivery-state"))
        whole = False
        with contextlib.suppress(ParameterError):
            state.parts(state.subscribers)
            whole = state.subscribers > 0
        if not whole:
            raise damaged("delivery-state")
        return state


@confined
def _secret_of(text: str, wanted: str) -> bytes:
    kind, secret = read_key(text)
    if kind != wanted:
        raise other_kind(kind, KINDS[wanted])
    return secret
