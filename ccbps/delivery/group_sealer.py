"""The broker's side of delivery to groups: payloads encrypted, keys wrapped as a plan says.

A payload is encrypted once, with AES-256-GCM, under a random key of its event. Each wrap of the
plan is one more encryption: AES-256-GCM over the event's key and the keys that travel with it,
which NIST SP 800-38F allows for wrapping keys, as an approved authenticated mode, beside AES-KW of
RFC 3394. AES-KW needs no nonce; it also binds nothing, takes three times as long here, and each
wrap is bound to event, epoch, run, group and the name of its key. For nonces, and for why no key
need be stored, see `ccbps.delivery.group_keys`.

*Leaving.* Nothing is sent and no key is changed. A key is used for events of groups that all its
members are in, which `seal` checks for every wrap, whatever the strategy says, and a group with
somebody who is not there is refused. So no key that a leaver had is used again (forward secrecy),
also if several leavers pool theirs.

*Joining.* A subscriber number that is given out, also again, has a new key of its own, and so has
every group, part and node that it is in: they are derived from the epoch of the latest join. So a
newcomer cannot read earlier events (backward secrecy). Members of such a group ask for its new key
when it is first used. That costs a request, and an encryption for its answer, per member and key;
a subscriber is in half of uniform groups.

*Crash.* `state` holds all that a broker must not lose; it changes when somebody joins or leaves,
and is saved before that takes effect. A broker restored from it answers requests for keys of
events that were sealed before the crash.

*Trust.* The broker reads everything. Whoever steals its state reads all events of the past, too;
to end that, start anew with a new state. Who holds a group's key can forge events to the group:
keys are shared. Who listens sees sizes, event numbers, when epochs and runs begin, and which wraps
are under equal keys; from `for_subscriber` on the way to each, who is in the same group. It learns
of a key's name only the length, so whether it is one subscriber's, a whole group's or another.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ccbps.arrays import Bytes
from ccbps.ciphers.payloads import NONCE_BYTES, PAD_TO, as_bytes, seal
from ccbps.delivery.broker_keys import BrokerKeys
from ccbps.delivery.group_keys import KEY_BYTES, BrokerState, SubscriberKey, derive
from ccbps.delivery.group_messages import (
    TAG_BYTES,
    GroupMessage,
    KeyAnswer,
    KeyRequest,
    SealedEvent,
    event_head,
)
from ccbps.delivery.groups import require_groups
from ccbps.delivery.plans import Plan, Strategy
from ccbps.errors import DecodeError, ParameterError, RandomnessReuseError
from ccbps.keys.rounds import this_process
from ccbps.keys.secret import Confined

__all__ = ["GroupSealer"]

MOST_KEYS: Final = 1 << 17


class GroupSealer(Confined):
    """Seals events for groups of subscribers, and answers their requests for keys.

    Attributes:
        strategy: which plans.
        encryptions: done so far: payloads, wraps and answers.
        run: public name of this sealer.

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

    Hazards: a strategy's plans must all go through one sealer. What a sealer was given to save is
    secret, and an old one must not be restored: who left since then would be back.
    """

    def __init__(
        self,
        strategy: Strategy,
        state: BrokerState | None = None,
        *,
        save: Callable[[BrokerState], object] | None = None,
        capacity: int = MOST_KEYS,
        pad_to: int = PAD_TO,
    ) -> None:
        """
        Args:
            strategy: plans; with nothing in its cache, or its receivers will ask for what is.
            state: of a broker that ended; None for a new one, whom nobody has joined.
            save: takes the state, and returns when it is safe; called by `join` and `leave` before
                they take effect.
            capacity: keys that are held ready; any other one is derived when it is needed.
            pad_to: payloads are padded to a multiple of so many bytes.

        Raises:
            ParameterError: the state is not one for so many subscribers, or capacity or pad_to is
                not a number of at least 1.
        """
        for name, number in (("capacity", capacity), ("pad_to", pad_to)):
            if type(number) is not int or number < 1:
                raise ParameterError(f"{name} must be a whole number, at least 1, got {number!r}")
        self._keys = BrokerKeys(strategy, state, save, capacity)
        self.strategy, self.encryptions, self.run = strategy, 0, self._keys.run
        self._pad_to, self._last, self._process = pad_to, -1, this_process()
        self._counters: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<GroupSealer, run {self.run.hex()[:8]}, {self.strategy!r}>"

    @property
    def state(self) -> BrokerState:
        """What to restore a broker from: secret."""
        return self._keys.state

    # -- join and leave --------------------------------------------------------------------------

    def join(self, subscriber: int) -> SubscriberKey:
        """Let a subscriber in; returns its key, to be brought to it, and to nobody else.

        Raises:
            ParameterError: there is no such number, or it is taken.
        """
        return self._keys.join(subscriber)

    def leave(self, subscriber: int) -> None:
        """Let a subscriber go; it can open no event from now on.

        Raises:
            ParameterError: it is not there.
        """
        self._keys.leave(subscriber)
        self._counters.pop(subscriber, None)

    # -- events ----------------------------------------------------------------------------------

    def seal(self, payload: bytes, event: int, group: Bytes) -> SealedEvent:
        """Encrypt a payload for a group.

        Args:
            payload: any bytes.
            event: its number, larger than all before, below 2^64.
            group: packed, shape (subscribers / 8, rounded up).

        Raises:
            ShapeError: the group has another shape.
            ParameterError: somebody in the group has not joined; or the plan does not reach exactly
                the group. Nothing is encrypted.
            RandomnessReuseError: the number is not larger than all before, or this process is a
                fork of the sealer's.
        """
        require_groups(group[None], self.strategy.subscribers)
        (payload,) = as_bytes("payload", [payload])
        mask = int.from_bytes(group.tobytes(), "little")
        if absent := mask & ~self._keys.present:
            raise ParameterError(f"subscriber {absent.bit_length() - 1} has not joined")
        return self._seal_plan(payload, event, group, mask, self._plan(event, group))

    def _plan(self, event: int, group: Bytes) -> Plan:
        if this_process() != self._process:
            raise RandomnessReuseError(
                "this process was forked: make a new sealer from the state, and a new strategy"
            )
        if type(event) is not int or not 0 <= event < 1 << 64:
            raise ParameterError(f"event must be a whole number, 0 .. 2^64 - 1, got {event!r}")
        if event <= self._last:
            raise RandomnessReuseError(
                f"event {event} is not larger than {self._last}, the last: take the next number"
            )
        plan = self.strategy.plan(group)
        self._last = event
        return plan

    def _seal_plan(
        self, payload: bytes, event: int, group: Bytes, group_mask: int, plan: Plan
    ) -> SealedEvent:
        keys = self._keys
        commitment = keys.commitment(event, group.tobytes())
        head = event_head(event, keys.epoch, self.run, commitment)
        event_key = os.urandom(KEY_BYTES)
        covered, used, ready = 0, [], keys.ready.get
        contents: dict[tuple[bytes, ...], tuple[bytes, int]] = {(): (event_key, ~group_mask)}
        for under, carries in plan.wraps:
            if carries not in contents:
                contents[carries] = self._content(event_key, ~group_mask, carries)
            content, others = contents[carries]
            cipher, name, mask, _ = ready(under) or keys.make_ready(under)
            if mask & others:
                raise ParameterError(f"a plan of {self.strategy!r} gives a key to others")
            covered |= mask
            used.append((cipher, name, content, mask))
        if covered != group_mask:
            raise ParameterError(f"a plan of {self.strategy!r} does not reach all of its group")
        number = event.to_bytes(8)
        wraps = [
            (place, name, cipher.encrypt(number + place.to_bytes(4), content, head + name))
            for place, (cipher, name, content, _) in enumerate(used)
        ]
        sealed = seal(payload, event_key, head, pad_to=self._pad_to)
        self.encryptions += len(wraps) + 1
        message = GroupMessage(event, self.run, head, sealed, (*wraps,))
        return SealedEvent(message, (*(mask for _, _, _, mask in used),))

    def _content(
        self, event_key: bytes, others: int, carries: tuple[bytes, ...]
    ) -> tuple[bytes, int]:
        """What wraps with these keys hold, and who must not read all of it."""
        for name in carries:
            key = self._keys.ready.get(name) or self._keys.make_ready(name)
            event_key, others = event_key + key.carried, others | ~key.mask
        return event_key, others

    # -- requests --------------------------------------------------------------------------------

    def answer(self, request: bytes) -> bytes:
        """The key that a subscriber asks for, encrypted for it.

        Raises:
            DecodeError: the request is malformed, not made by this subscriber or by one that left,
                not newer than its last one, or for keys that it may not have.
        """
        asked = KeyRequest.from_bytes(request)
        own = self._keys.own_key(asked.subscriber)
        tag = derive(own or b"", b"request", asked.unsigned())[:TAG_BYTES]
        if own is None or not hmac.compare_digest(tag, asked.tag):
            raise DecodeError("a request that no subscriber of this broker made, or altered")
        if asked.counter <= self._counters.get(asked.subscriber, -1):
            raise DecodeError("a replay: this request, or a newer one, was answered; ask again")
        self._counters[asked.subscriber] = asked.counter
        content = self._keys.for_member(asked.subscriber, asked.run, asked.names)
        head = KeyAnswer(asked.counter, os.urandom(NONCE_BYTES))
        self.encryptions += 1
        bound = head.head() + tag
        return head.head() + AESGCM(derive(own, b"answer")).encrypt(head.nonce, content, bound)
