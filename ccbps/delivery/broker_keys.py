"""Who has joined since when, and the keys that follow from it: the broker's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ccbps.delivery.group_keys import (
    ID_BYTES,
    NamedKey,
    derive,
    group_key,
    name_cipher,
    open_name,
    own_keys_of,
    seal_name,
    subscriber_key,
)
from ccbps.delivery.names import member_mask, personal
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.delivery_keys import BrokerState, SubscriberKey
from ccbps.keys.secret import Confined


class BrokerKeys(Confined):
    """Keys of subscribers and groups, a bounded number of them held ready.

    Attributes:
        subscribers: N.
        epoch: grows with every join, leave and renewal.
        generation: the epoch of the last renewal.
        present: who has joined, bit i for subscriber i.
        ready: keys by name.
    """

    def __init__(
        self,
        subscribers: int,
        state: BrokerState | None,
        save: Callable[[BrokerState], object] | None,
        capacity: int,
    ) -> None:
        """
        Args:
            subscribers: N.
            state: of a broker that ended; None for a new one.
            save: takes the state before a change takes effect.
            capacity: keys that are held ready.

        Raises:
            ParameterError: the state is not one for so many subscribers.
        """
        self.subscribers = subscribers
        state = BrokerState.new(subscribers) if state is None else state
        self._secret, self.epoch, self.generation, self._joined = state.parts(subscribers)
        self.present = _present(self._joined)
        self._save, self._capacity = save, capacity
        self._names = name_cipher(self._secret)
        self.ready: OrderedDict[bytes, NamedKey] = OrderedDict()

    def refresh(self, state: BrokerState) -> None:
        """Take over a later state of the same broker.

        Raises:
            ParameterError: it is another broker's, an earlier one, or not of so many subscribers.
        """
        secret, epoch, generation, joined = state.parts(self.subscribers)
        if secret != self._secret or epoch < self.epoch:
            raise ParameterError(
                f"state must be a later one of this broker, got {state!r} of epoch {epoch}, after "
                f"epoch {self.epoch}"
            )
        self.epoch, self.generation, self._joined = epoch, generation, joined
        self.present = _present(joined)
        self.ready.clear()

    def tag(self, snapshot: bytes) -> bytes:
        """Says that this broker made a snapshot, 16 bytes."""
        return derive(self._secret, b"snapshot", snapshot)[:ID_BYTES]

    def since(self, subscriber: int) -> int:
        """In which epoch a subscriber joined; 0 if it is not there."""
        return self._joined[subscriber]

    @property
    def state(self) -> BrokerState:
        """What to restore a broker from: secret."""
        return BrokerState.of(self._secret, self.epoch, self.generation, self._joined)

    def join(self, subscriber: int) -> SubscriberKey:
        """The key of a subscriber that is let in.

        Raises:
            ParameterError: there is no such number, or it is taken.
        """
        if self._there(subscriber):
            raise ParameterError(f"subscriber {subscriber} has joined already: it must leave first")
        self._change(subscriber, self.epoch + 1)
        return subscriber_key(self._secret, subscriber, self.epoch)

    def leave(self, subscriber: int) -> None:
        """Let a subscriber go.

        Raises:
            ParameterError: it is not there.
        """
        if not self._there(subscriber):
            raise ParameterError(f"subscriber {subscriber} has not joined, so it cannot leave")
        self._change(subscriber, 0)

    def renew(self) -> None:
        """New keys for all names."""
        self._save_first(self.epoch + 1, self._joined)
        self.epoch = self.generation = self.epoch + 1
        self.ready.clear()

    def joined_after(self, epoch: int) -> list[int]:
        """Subscribers that joined later."""
        return [one for one, since in enumerate(self._joined) if since > epoch]

    def _there(self, subscriber: int) -> int:
        last = self.subscribers - 1
        if type(subscriber) is not int or not 0 <= subscriber <= last:
            raise ParameterError(f"subscriber must be 0 .. {last}, got {subscriber!r}")
        return self._joined[subscriber]

    def _change(self, subscriber: int, since: int) -> None:
        joined = [*self._joined]
        joined[subscriber] = since
        self._save_first(self.generation, joined)
        self.epoch, self._joined = self.epoch + 1, joined
        self.present ^= 1 << subscriber
        for name in [name for name, key in self.ready.items() if key.mask >> subscriber & 1]:
            del self.ready[name]

    def _save_first(self, generation: int, joined: list[int]) -> None:
        if self._save is not None:
            self._save(BrokerState.of(self._secret, self.epoch + 1, generation, joined))

    def commitment(self, event: int, group: bytes) -> bytes:
        """A keyed hash that binds an event's number to its group, `ID_BYTES`."""
        return derive(self._secret, b"group", event.to_bytes(8), group)[:ID_BYTES]

    def make_ready(self, name: bytes) -> NamedKey:
        """Derive a key, and hold it ready.

        Raises:
            ParameterError: there is no such name, or somebody in it has not joined.
        """
        mask = member_mask(name, self.subscribers)
        if mask & ~self.present:
            raise ParameterError("a plan uses a key of somebody who has not joined")
        latest = max(self._joined[one] for one in _bits(mask))
        if name == personal(mask.bit_length() - 1):
            own = subscriber_key(self._secret, mask.bit_length() - 1, latest)
            sealed_name, secret = own_keys_of(own.export_secret_key(), self.generation)
        else:
            since = max(latest, self.generation)
            secret = group_key(self._secret, since, name)
            sealed_name = seal_name(self._names, since, name, secret)
        key = NamedKey(AESGCM(secret), sealed_name, mask, sealed_name[:ID_BYTES] + secret)
        if len(self.ready) >= self._capacity:
            self.ready.popitem(last=False)
        self.ready[name] = key
        return key

    def own_key(self, subscriber: int) -> bytes | None:
        """The key that a subscriber has since it joined; None if it is not there."""
        since = self._joined[subscriber] if subscriber < len(self._joined) else 0
        if not since:
            return None
        return subscriber_key(self._secret, subscriber, since).export_secret_key()

    def for_member(self, subscriber: int, sealed_names: Sequence[bytes]) -> bytes:
        """The first of these keys that a subscriber may have: the first bytes of its sealed name,
        and the key.

        Raises:
            DecodeError: there is none.
        """
        for sealed_name in sealed_names:
            try:
                since, name = open_name(self._names, sealed_name)
            except DecodeError:
                continue  # somebody else's, before or behind the right one
            # A key that is older than its member was another's, who had the same number.
            if (
                0 < self._joined[subscriber] <= since
                and member_mask(name, self.subscribers) >> subscriber & 1
            ):
                return sealed_name[:ID_BYTES] + group_key(self._secret, since, name)
        raise DecodeError("a request for keys of groups that the subscriber is not in")


def _present(joined: list[int]) -> int:
    return sum(1 << one for one, since in enumerate(joined) if since)


def _bits(mask: int) -> list[int]:
    """Places of the bits that are set."""
    text = bin(mask)[:1:-1]
    return [place for place, bit in enumerate(text) if bit == "1"]
