"""Delivery to groups, the broker's side: it encrypts payloads, and wraps keys as a plan says.

A payload is encrypted once, with AES-256-GCM, under a random key of its event. Each wrap of the
plan is one more encryption: AES-256-GCM over the event's key and the keys that travel with it. NIST
SP 800-38F allows that for wrapping keys, as an approved authenticated mode, beside AES-KW of RFC
3394. AES-KW needs no nonce, but takes three times as long and has no associated data, whereas each
wrap here is bound to event, epoch, group and the name of its key. `ccbps.delivery.group_protocol`
describes the nonces, and explains why no key need be stored.

*Leaving.* Nothing is sent. A key is used only for groups that contain all its members, which `seal`
checks for every wrap, whatever the strategy says. A group with a subscriber that has not joined is
refused. So no key of a leaver is used again (forward secrecy), even if several leavers pool theirs.

*Joining.* A subscriber number that is given out, for the first time or again, gets a new key. So
does every group, set and node that contains it: keys derive from the epoch of the latest join.
So a newcomer cannot read earlier events (backward secrecy). The strategy forgets keys that change,
so that new ones travel with events. The keys of a tree's nodes are requested.

*Crash.* `state` holds all that a broker must not lose. It changes with a join, a leave or a
renewal, and is saved before that takes effect. A broker restored from it has the same keys, and
answers requests for the keys of events that were sealed before the crash. `snapshot` records which
keys the receivers have. It is optional: without it keys travel once more.

*Several sealers* may share a state, in as many processes, if only one of them changes it. Each has
a strategy of its own.

*Trust.* The broker reads everything. A thief of its state reads all past events, too; to end that,
start anew with a new state. A member of a group can forge events to the group, because keys are
shared. GCM does not commit to its key, so a forger can also show two members two payloads in one
message. Signatures (`sign`) that receivers verify prevent both. But a signature names the sender of
an event, not its receivers: wraps are not signed. A member can forward a signed event to anybody
with whom it shares a key, and the event opens as if the sender had sent it there. An eavesdropper
sees sizes, event numbers, epochs, which wraps are under equal keys, and which events were signed
together; from messages of `for_subscriber` it sees who is in the same group. Of a key's name it
learns only the length, and so whether the key is a subscriber's, a whole group's or another.
"""

from __future__ import annotations

import hmac
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from msgspec.structs import replace

from ccbps.arrays import Bytes
from ccbps.checks import instance, octets, whole
from ccbps.ciphers.payloads import NONCE_BYTES, PAD_TO, seal
from ccbps.ciphers.signatures import sign_batch
from ccbps.delivery.group_protocol import (
    ID_BYTES,
    GroupMessage,
    KeyAnswer,
    KeyRequest,
    SealedEvent,
    bits_of,
    derive,
    group_key,
    key_id,
    own_keys_of,
)
from ccbps.delivery.groups import check_groups
from ccbps.delivery.plans import Plan, Strategy, member_mask, personal
from ccbps.errors import DecodeError, ParameterError, ShapeError
from ccbps.keys.delivery_keys import EPOCH_BYTES, KEY_BYTES, BrokerState, SubscriberKey
from ccbps.keys.plain_key import SigningKey
from ccbps.keys.secret import Confined

MOST_KEYS: Final = 1 << 16
MOST_SUBSCRIBERS: Final = 500_000
"""Largest number of subscribers whose group fits into the name of a key."""


class _NamedKey(NamedTuple):
    """Key of the broker.

    Attributes:
        cipher: AES-256-GCM with this key.
        sealed_name: name on the wire.
        mask: members, bit i for subscriber i.
        carried: content of a wrap that carries the key: its identifier and the key.
    """

    cipher: AESGCM
    sealed_name: bytes
    mask: int
    carried: bytes

    def __repr__(self) -> str:
        return f"<key {self.sealed_name.hex()[:16]}>"


class GroupSealer(Confined):
    """Sealer of events for groups of subscribers, which also answers their requests for keys.

    Args:
        strategy: planner with an empty cache. (Receivers would request the keys in its cache.)
        state: state of a broker that ended; None for a new broker, which nobody has joined.
        save: function that stores the state, and returns when it is durable. `join`, `leave` and
            `renew` call it before they take effect.
        capacity: largest number of keys that are cached, some 3 KB of memory each. Other keys are
            derived when they are needed.
        pad_to: number of bytes. Payloads are padded to a multiple of it.
        sign: key that signs events; None to sign none. Receivers verify by its `identity`.

    Attributes:
        encryptions: number of encryptions so far, of payloads, wraps and answers.
        epoch: number that grows with every join, leave and renewal.
        generation: epoch of the last renewal.

    Example:
        >>> from ccbps.delivery import GroupOpener, GroupSealer, SimpleCache, pack_groups
        >>> sealer = GroupSealer(SimpleCache(3, capacity=10))
        >>> openers = [GroupOpener(sealer.join(i), capacity=10) for i in range(3)]
        >>> import numpy as np
        >>> group = pack_groups(np.array([True, False, True]))
        >>> event = sealer.seal(b"IBM 119.50", 0, group)
        >>> openers[2].open(event.for_subscriber(2))
        b'IBM 119.50'
        >>> again = sealer.seal(b"IBM 121.00", 1, group)     # under the group's key: one wrap
        >>> len(again.message.wraps), openers[2].open(again.to_bytes())
        (1, b'IBM 121.00')

    Hazards: all plans of a strategy must go through one sealer. The state is secret, and an old
    state must not be restored: subscribers that have left since then would be back, and a
    newcomer would get a key that was given out before. Renew keys before one of them has been used
    2^32 times.

    Raises:
        ParameterError: the state is not one for the strategy's number of subscribers, that number
            is too large, or the capacity or pad_to is not at least 1.
    """

    def __init__(
        self,
        strategy: Strategy,
        state: BrokerState | None = None,
        *,
        save: Callable[[BrokerState], object] | None = None,
        capacity: int = MOST_KEYS,
        pad_to: int = PAD_TO,
        sign: SigningKey | None = None,
    ) -> None:
        self._signing = sign if sign is None else instance("sign", sign, SigningKey)
        self._capacity = whole("capacity", capacity, 1)
        self._pad_to = whole("pad_to", pad_to, 1)
        count = whole("strategy.subscribers", strategy.subscribers, 1, MOST_SUBSCRIBERS)
        self.strategy, self.encryptions, self._save = strategy, 0, save
        self._ready: OrderedDict[bytes, _NamedKey] = OrderedDict()
        self._take_over(BrokerState.new(count) if state is None else state)
        names = derive(self._secret, b"names, first") + derive(self._secret, b"names, second")
        self._names = AESSIV(names)

    def __repr__(self) -> str:
        return f"<GroupSealer, epoch {self.epoch}, {self.strategy!r}>"

    def _take_over(self, state: BrokerState) -> None:
        hint = "GroupSealer.state gives it"
        parts = instance("state", state, BrokerState, hint=hint).parts(self.strategy.subscribers)
        self._secret, self.epoch, self.generation, self._joined = parts
        # Bit i is set if subscriber i has joined.
        self._present = sum(1 << number for number, since in enumerate(self._joined) if since)
        self._ready.clear()

    # -- join and leave --------------------------------------------------------------------------

    @property
    def state(self) -> BrokerState:
        """State from which a broker is restored; secret."""
        return BrokerState.of(self._secret, self.epoch, self.generation, self._joined)

    def since(self, subscriber: int) -> int:
        """Return the epoch in which a subscriber joined; 0 if it has not joined.

        Raises:
            ParameterError: there is no such number.
        """
        return self._joined[whole("subscriber", subscriber, 0, self.strategy.subscribers - 1)]

    def join(self, subscriber: int) -> SubscriberKey:
        """Let a subscriber in, and return its key, which nobody else may get.

        Raises:
            ParameterError: there is no such number, or it is taken.
        """
        if self.since(subscriber):
            raise ParameterError(f"subscriber {subscriber} has joined already: it must leave first")
        self._set_since(subscriber, self.epoch + 1)
        return self._subscriber_key(subscriber)

    def leave(self, subscriber: int) -> None:
        """Remove a subscriber, which can open no event from now on.

        Raises:
            ParameterError: it has not joined.
        """
        if not self.since(subscriber):
            raise ParameterError(f"subscriber {subscriber} has not joined, so it cannot leave")
        self._set_since(subscriber, 0)

    def renew(self) -> None:
        """Give new keys to all groups, sets, nodes and, for wraps, subscribers.

        Subscribers keep the keys that they got when they joined, so nobody is shut out.
        """
        self._next_epoch(self.epoch + 1, self._joined)
        self._ready.clear()
        self.strategy.forget()

    def refresh(self, state: BrokerState) -> None:
        """Take over a state that another sealer or process changed.

        A join or leave takes effect once all sealers, and all servers of requests, know it.

        Raises:
            ParameterError: it is not a later state of this broker.
        """
        secret, epoch, _, _ = state.parts(self.strategy.subscribers)
        if secret != self._secret or epoch < self.epoch:
            raise ParameterError(
                f"state must be a later one of this broker, got {state!r} of epoch {epoch}, after "
                f"epoch {self.epoch}"
            )
        snapshot = self.snapshot()
        self._take_over(state)
        self.restore(snapshot)

    def _set_since(self, subscriber: int, since: int) -> None:
        joined = [*self._joined]
        joined[subscriber] = since
        self._next_epoch(self.generation, joined)
        self._present ^= 1 << subscriber
        for name in [name for name, key in self._ready.items() if key.mask >> subscriber & 1]:
            del self._ready[name]
        self.strategy.forget(subscriber)

    def _next_epoch(self, generation: int, joined: list[int]) -> None:
        """Save the state of the next epoch, and enter it then."""
        if self._save is not None:
            self._save(BrokerState.of(self._secret, self.epoch + 1, generation, joined))
        self.epoch, self.generation, self._joined = self.epoch + 1, generation, joined

    # -- memory of receivers' keys ---------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Save the strategy's memory of the keys that receivers have.

        A snapshot contains no key. It is as secret as the groups.
        """
        content = self.epoch.to_bytes(8) + self.generation.to_bytes(8) + self.strategy.snapshot()
        return self._tag(content) + content

    def restore(self, snapshot: bytes) -> None:
        """Continue from a snapshot. Keys that have changed since then are forgotten.

        Example:
            >>> import numpy as np
            >>> from ccbps.delivery import GroupSealer, SimpleCache, pack_groups
            >>> group = pack_groups(np.array([True, False, True]))
            >>> before = GroupSealer(SimpleCache(3, capacity=10))
            >>> keys = [before.join(i) for i in range(3)]
            >>> len(before.seal(b"IBM 119.50", 0, group).message.wraps)
            2
            >>> after = GroupSealer(SimpleCache(3, capacity=10), before.state)
            >>> after.restore(before.snapshot())
            >>> len(after.seal(b"IBM 121.00", 1, group).message.wraps)
            1

        Raises:
            DecodeError: it is another broker's, altered, or of a strategy with other parameters.
        """
        snapshot = octets("snapshot", snapshot)
        tag, content = snapshot[:ID_BYTES], snapshot[ID_BYTES:]
        if not hmac.compare_digest(tag, self._tag(content)):
            raise DecodeError("not a snapshot of a sealer of this broker, or altered")
        self.strategy.restore(content[16:])
        epoch, generation = int.from_bytes(content[:8]), int.from_bytes(content[8:16])
        if generation != self.generation or epoch > self.epoch:
            self.strategy.forget()
            return
        # The groups of subscribers that left since then, and are not back, cannot be requested.
        for subscriber in self._joined_after(epoch):
            self.strategy.forget(subscriber)

    def _tag(self, snapshot: bytes) -> bytes:
        """Compute the tag that shows that this broker made a snapshot, 16 bytes."""
        return derive(self._secret, b"snapshot", snapshot)[:ID_BYTES]

    def _joined_after(self, epoch: int) -> list[int]:
        return [number for number, since in enumerate(self._joined) if since > epoch]

    # -- events ----------------------------------------------------------------------------------

    def seal(
        self, payload: bytes, event: int, group: Bytes, *, as_of: int | None = None
    ) -> SealedEvent:
        """Encrypt a payload for a group.

        Args:
            payload: any bytes.
            event: number of the event, below 2^64. One number names one event, always: receivers
                refuse another event as a replay. The same event may be sealed again.
            group: packed group, shape (subscribers / 8, rounded up).
            as_of: epoch in which the group was computed. A number may have been given to another
                subscriber since then. With this epoch, subscribers that joined later are refused.

        Raises:
            ShapeError: the group has another shape.
            ParameterError: somebody in the group has not joined, or joined after `as_of`; or the
                plan does not reach exactly the group, or uses a key twice. Nothing is encrypted.
        """
        return self.seal_batch([payload], [event], group[None], as_of=as_of)[0]

    def seal_batch(
        self,
        payloads: Sequence[bytes],
        events: Sequence[int],
        groups: Bytes,
        *,
        as_of: int | None = None,
    ) -> list[SealedEvent]:
        """Encrypt payloads, each for a group, and sign all with one signature if there is a key.

        Args:
            payloads: any bytes.
            events: numbers of the events, as for `seal`.
            groups: packed groups, shape (payloads, subscribers / 8, rounded up).
            as_of: epoch in which the groups were computed, as for `seal`.

        Raises:
            ShapeError: there are not as many events and groups as payloads, or groups have another
                shape.
            ParameterError: as for `seal`. Nothing is encrypted, unless a plan is at fault.
        """
        check_groups(groups, self.strategy.subscribers)
        if not len(payloads) == len(events) == len(groups):
            raise ShapeError(
                f"payloads, events and groups must be as many, got {len(payloads)}, {len(events)} "
                f"and {len(groups)}"
            )
        numbers = [whole("event", event, 0, (1 << 64) - 1) for event in events]
        contents = [octets("payload", payload) for payload in payloads]
        masks = [int.from_bytes(group.tobytes(), "little") for group in groups]
        late = () if as_of is None else self._joined_after(as_of)
        for mask in masks:
            if absent := mask & ~self._present:
                raise ParameterError(f"subscriber {absent.bit_length() - 1} has not joined")
            for member in late:
                if mask >> member & 1:
                    raise ParameterError(
                        f"subscriber {member} joined after epoch {as_of}, which the group is of"
                    )
        sealed = [
            self._seal_plan(payload, number, group, mask, self.strategy.plan(group))
            for payload, number, group, mask in zip(contents, numbers, groups, masks, strict=True)
        ]
        if self._signing is None or not sealed:
            return [event for event, _ in sealed]
        proofs = sign_batch(self._signing, [to_sign for _, to_sign in sealed])
        return [
            SealedEvent(replace(event.message, proof=proof), event.masks)
            for (event, _), proof in zip(sealed, proofs, strict=True)
        ]

    def _seal_plan(
        self, payload: bytes, event: int, group: Bytes, group_mask: int, plan: Plan
    ) -> tuple[SealedEvent, bytes]:
        """Return a sealed event without a signature, and the bytes to sign, if it is signed."""
        # A keyed hash that binds the event's number to its group.
        commitment = derive(self._secret, b"group", event.to_bytes(8), group.tobytes())[:ID_BYTES]
        drawn = os.urandom(KEY_BYTES + NONCE_BYTES)
        event_key, nonce = drawn[:KEY_BYTES], drawn[KEY_BYTES:]
        message = GroupMessage(event, self.epoch, self.generation, nonce, commitment)
        head = message.head
        reached, keys, get_ready = 0, [], self._ready.get
        # By the keys that a wrap carries: its content, and the mask of those who must not read it.
        contents: dict[tuple[bytes, ...], tuple[bytes, int]] = {(): (event_key, ~group_mask)}
        for under, carries in plan:
            if carries not in contents:
                content, others = event_key, ~group_mask
                for name in carries:
                    key = get_ready(name) or self._make_ready(name)
                    content, others = content + key.carried, others | ~key.mask
                contents[carries] = content, others
            content, others = contents[carries]
            key = get_ready(under) or self._make_ready(under)
            if key.mask & others:
                raise ParameterError(f"a plan of {self.strategy!r} gives a key to others")
            reached |= key.mask
            keys.append((key, content))
        if reached != group_mask:
            raise ParameterError(f"a plan of {self.strategy!r} does not reach all of its group")
        # The wraps have one nonce, so their keys must differ.
        if len({key.sealed_name for key, _ in keys}) != len(keys):
            raise ParameterError(f"a plan of {self.strategy!r} uses a key twice")
        wraps = [
            (key.sealed_name, key.cipher.encrypt(nonce, content, head + key.sealed_name))
            for key, content in keys
        ]
        sealed = seal(payload, event_key, head, pad_to=self._pad_to)
        self.encryptions += len(wraps) + 1
        message = replace(message, payload=sealed, wraps=(*wraps,))
        # The bytes to sign take a hash of the payload.
        to_sign = message.to_sign(event_key) if self._signing else b""
        return SealedEvent(message, (*(key.mask for key, _ in keys),)), to_sign

    def _make_ready(self, name: bytes) -> _NamedKey:
        """Derive a key, and hold it ready.

        Raises:
            ParameterError: there is no such name, or one of its members has not joined.
        """
        mask = member_mask(name, self.strategy.subscribers)
        if mask & ~self._present:
            raise ParameterError("a plan uses a key of somebody who has not joined")
        last = mask.bit_length() - 1
        if name == personal(last):
            own = self._subscriber_key(last).export_secret_key()
            sealed_name, secret = own_keys_of(own, self.generation)
        else:
            since = max(self.generation, *(self._joined[member] for member in bits_of(mask)))
            secret = group_key(self._secret, since, name)
            hidden = self._names.encrypt(since.to_bytes(EPOCH_BYTES) + name, None)
            sealed_name = key_id(secret) + hidden
        key = _NamedKey(AESGCM(secret), sealed_name, mask, sealed_name[:ID_BYTES] + secret)
        if len(self._ready) >= self._capacity:
            self._ready.popitem(last=False)
        self._ready[name] = key
        return key

    def _subscriber_key(self, subscriber: int) -> SubscriberKey:
        """Derive the key that a subscriber has since it joined."""
        number, since = subscriber.to_bytes(4), self._joined[subscriber].to_bytes(EPOCH_BYTES)
        return SubscriberKey(number + derive(self._secret, b"subscriber", number, since))

    # -- requests --------------------------------------------------------------------------------

    def answer(self, request: bytes) -> bytes:
        """Return the key that a subscriber requests, encrypted for it.

        Raises:
            DecodeError: the request is malformed, forged, made by a subscriber that left, or for
                keys that the subscriber may not have.
        """
        asked = KeyRequest.from_bytes(request)
        subscriber = asked.subscriber
        own = b""
        if subscriber < len(self._joined) and self._joined[subscriber]:
            own = self._subscriber_key(subscriber).export_secret_key()
        if not own or not hmac.compare_digest(asked.tag_under(own), asked.tag):
            raise DecodeError("a request that no subscriber of this broker made, or altered")
        content = self._key_for(subscriber, asked.names)
        answer = KeyAnswer(os.urandom(NONCE_BYTES))
        self.encryptions += 1
        cipher = AESGCM(derive(own, b"answer"))
        sealed = cipher.encrypt(answer.nonce, content, answer.bound(asked.tag))
        return replace(answer, content=sealed).to_bytes()

    def _key_for(self, subscriber: int, sealed_names: Sequence[bytes]) -> bytes:
        """Return the identifier and the key of the first name that a subscriber is a member of.

        Raises:
            DecodeError: there is no such name.
        """
        for sealed_name in sealed_names:
            try:
                opened = self._names.decrypt(sealed_name[ID_BYTES:], None)
            except (InvalidTag, ValueError):
                continue  # not a name of this broker, in front of or behind the right one
            since, name = int.from_bytes(opened[:EPOCH_BYTES]), opened[EPOCH_BYTES:]
            # A key that is older than its member belonged to another one with the same number.
            if self._joined[subscriber] > since:
                continue
            if member_mask(name, self.strategy.subscribers) >> subscriber & 1:
                return sealed_name[:ID_BYTES] + group_key(self._secret, since, name)
        raise DecodeError("a request for keys of groups that the subscriber is not in")
