"""The broker's side of delivery to groups: payloads encrypted, keys wrapped as a plan says.

A payload is encrypted once, with AES-256-GCM, under a random key of its event. Each wrap of the
plan is one more encryption: AES-256-GCM over the event's key and the keys that travel with it,
which NIST SP 800-38F allows for wrapping keys, as an approved authenticated mode, beside AES-KW of
RFC 3394. AES-KW needs no nonce; it also binds nothing, takes three times as long here, and each
wrap is bound to event, epoch, group and the name of its key. For nonces, and for why no key
need be stored, see `ccbps.delivery.group_keys`.

*Leaving.* Nothing is sent. A key is used for events of groups that all its members are in, which
`seal` checks for every wrap, whatever the strategy says, and a group with somebody who is not there
is refused. So no key that a leaver had is used again (forward secrecy), also if several leavers
pool theirs.

*Joining.* A subscriber number that is given out, also again, has a new key of its own, and so has
every group, set and node that it is in: they follow from the epoch of the latest join. So a
newcomer cannot read earlier events (backward secrecy). The strategy forgets keys that change, so
that new ones travel with events; nodes of a tree are asked for.

*Crash.* `state` holds all that a broker must not lose; it changes with a join, a leave or a
renewal, and is saved before that takes effect. A broker restored from it has the same keys, and
answers requests for those of events that were sealed before the crash. `snapshot` holds what would
be good to have: which keys the receivers have. Without it keys are carried once more.

*Several sealers* may share a state, in as many processes, if one of them alone changes it. Each has
a strategy of its own.

*Trust.* The broker reads everything. Whoever steals its state reads all events of the past, too;
to end that, start anew with a new state. Who holds a group's key can forge events to the group:
keys are shared, and GCM does not commit to its key, so a forger can also show two members two
payloads in one message. Who listens sees sizes, event numbers, epochs, and which wraps are under
equal keys; from `for_subscriber` on the way to each, who is in the same group. It learns of a key's
name only the length, so whether it is one subscriber's, a whole group's or another.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from ccbps.arrays import Bytes
from ccbps.ciphers.payloads import NONCE_BYTES, PAD_TO, as_bytes, seal
from ccbps.delivery.broker_keys import BrokerKeys
from ccbps.delivery.group_keys import ID_BYTES, derive
from ccbps.delivery.group_messages import (
    TAG_BYTES,
    GroupMessage,
    KeyAnswer,
    KeyRequest,
    SealedEvent,
)
from ccbps.delivery.groups import require_groups
from ccbps.delivery.plans import Plan, Strategy
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.delivery_keys import KEY_BYTES, BrokerState, SubscriberKey
from ccbps.keys.secret import Confined

MOST_KEYS: Final = 1 << 16
MOST_SUBSCRIBERS: Final = 500_000


class GroupSealer(Confined):
    """Seals events for groups of subscribers, and answers their requests for keys.

    Attributes:
        strategy: which plans.
        encryptions: done so far: payloads, wraps and answers.

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

    Hazards: a strategy's plans must all go through one sealer. A state that a sealer was given to
    save is secret, and an old one must not be restored: who left since then would be back, and
    whoever joins would get a key that was given out. Renew keys before one of them was used 2^32
    times.
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
            save: takes the state, and returns when it is safe; called by `join`, `leave` and
                `renew` before they take effect.
            capacity: keys that are held ready, some 3 KB of memory each; any other one is derived
                when it is needed.
            pad_to: payloads are padded to a multiple of so many bytes.

        Raises:
            ParameterError: the state is not one for so many subscribers, or capacity or pad_to is
                not a number of at least 1.
        """
        for name, number in (("capacity", capacity), ("pad_to", pad_to)):
            if type(number) is not int or number < 1:
                raise ParameterError(f"{name} must be a whole number, at least 1, got {number!r}")
        if strategy.subscribers > MOST_SUBSCRIBERS:
            raise ParameterError(
                f"strategy must be for at most {MOST_SUBSCRIBERS} subscribers, whose group fits "
                f"into a name, got {strategy.subscribers}"
            )
        self._keys = BrokerKeys(strategy.subscribers, state, save, capacity)
        self.strategy, self.encryptions, self._pad_to = strategy, 0, pad_to

    def __repr__(self) -> str:
        return f"<GroupSealer, epoch {self._keys.epoch}, {self.strategy!r}>"

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
        key = self._keys.join(subscriber)
        self.strategy.forget(subscriber)
        return key

    def leave(self, subscriber: int) -> None:
        """Let a subscriber go; it can open no event from now on.

        Raises:
            ParameterError: it is not there.
        """
        self._keys.leave(subscriber)
        self.strategy.forget(subscriber)

    def renew(self) -> None:
        """Give new keys to all groups, sets, nodes and, for wraps, subscribers.

        Nobody who is there is shut out: subscribers' own keys go on.
        """
        self._keys.renew()
        self.strategy.forget()

    def refresh(self, state: BrokerState) -> None:
        """Take over a state that another sealer or process changed. A join or leave takes effect
        once all sealers, and all who answer requests, know it.

        Raises:
            ParameterError: it is not a later state of this broker.
        """
        snapshot = self.snapshot()
        self._keys.refresh(state)
        self.restore(snapshot)

    def since(self, subscriber: int) -> int:
        """The epoch in which a subscriber joined; 0 if it is not there."""
        return self._keys.since(subscriber)

    # -- what it remembers -----------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Which keys the receivers have, as far as the strategy remembers: no key, but secret like
        the groups."""
        since = self._keys.epoch.to_bytes(8) + self._keys.generation.to_bytes(8)
        snapshot = since + self.strategy.snapshot()
        return self._keys.tag(snapshot) + snapshot

    def restore(self, snapshot: bytes) -> None:
        """Go on from a snapshot. Keys that changed since are forgotten.

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
            DecodeError: another broker's, altered, or of a strategy with other parameters.
        """
        (snapshot,) = as_bytes("snapshot", [snapshot])
        keys, tag, found = self._keys, snapshot[:ID_BYTES], snapshot[ID_BYTES:]
        if not hmac.compare_digest(tag, keys.tag(found)):
            raise DecodeError("not a snapshot of a sealer of this broker, or altered")
        self.strategy.restore(found[16:])
        epoch, generation = int.from_bytes(found[:8]), int.from_bytes(found[8:16])
        if generation != keys.generation or epoch > keys.epoch:
            self.strategy.forget()
            return
        # Groups of who left since, and is not back, cannot be asked for.
        for one in keys.joined_after(epoch):
            self.strategy.forget(one)

    # -- events ----------------------------------------------------------------------------------

    def seal(
        self, payload: bytes, event: int, group: Bytes, *, as_of: int | None = None
    ) -> SealedEvent:
        """Encrypt a payload for a group.

        Args:
            payload: any bytes.
            event: its number, below 2^64. One number names one event, always: receivers refuse
                another one as a replay. The same event may be sealed again.
            group: packed, shape (subscribers / 8, rounded up).
            as_of: the epoch in which the group was found. A number may have been given to somebody
                else since: whoever joined later is refused then.

        Raises:
            ShapeError: the group has another shape.
            ParameterError: somebody in the group has not joined, or joined after `as_of`; or the
                plan does not reach exactly the group, or uses a key twice. Nothing is encrypted.
        """
        require_groups(group[None], self.strategy.subscribers)
        event = int(event) if isinstance(event, np.integer) else event
        if type(event) is not int or not 0 <= event < 1 << 64:
            raise ParameterError(f"event must be a whole number, 0 .. 2^64 - 1, got {event!r}")
        (payload,) = as_bytes("payload", [payload])
        mask = int.from_bytes(group.tobytes(), "little")
        if absent := mask & ~self._keys.present:
            raise ParameterError(f"subscriber {absent.bit_length() - 1} has not joined")
        if as_of is not None and (later := mask & self._joined_after(as_of)):
            raise ParameterError(
                f"subscriber {later.bit_length() - 1} joined after epoch {as_of}, of the group"
            )
        return self._seal_plan(payload, event, group, mask, self.strategy.plan(group))

    def _joined_after(self, epoch: int) -> int:
        return sum(1 << one for one in self._keys.joined_after(epoch))

    def _seal_plan(
        self, payload: bytes, event: int, group: Bytes, group_mask: int, plan: Plan
    ) -> SealedEvent:
        keys = self._keys
        commitment = keys.commitment(event, group.tobytes())
        drawn = os.urandom(KEY_BYTES + NONCE_BYTES)
        event_key, nonce = drawn[:KEY_BYTES], drawn[KEY_BYTES:]
        message = GroupMessage(event, keys.epoch, keys.generation, nonce, commitment)
        head = message.head
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
        # The wraps have one nonce, so their keys must differ.
        if len({name for _, name, _, _ in used}) != len(used):
            raise ParameterError(f"a plan of {self.strategy!r} uses a key twice")
        wraps = [
            (name, cipher.encrypt(nonce, content, head + name)) for cipher, name, content, _ in used
        ]
        sealed = seal(payload, event_key, head, pad_to=self._pad_to)
        self.encryptions += len(wraps) + 1
        message = replace(message, payload=sealed, wraps=(*wraps,))
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
                or for keys that it may not have.
        """
        asked = KeyRequest.from_bytes(request)
        own = self._keys.own_key(asked.subscriber)
        if own is None or not hmac.compare_digest(
            derive(own, b"request", asked.unsigned())[:TAG_BYTES], asked.tag
        ):
            raise DecodeError("a request that no subscriber of this broker made, or altered")
        content = self._keys.for_member(asked.subscriber, asked.names)
        answer = KeyAnswer(os.urandom(NONCE_BYTES))
        self.encryptions += 1
        cipher = AESGCM(derive(own, b"answer"))
        sealed = cipher.encrypt(answer.nonce, content, answer.bound(asked.tag))
        return replace(answer, content=sealed).to_bytes()
