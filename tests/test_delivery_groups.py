"""Delivery to groups: who opens what, over joins, leaves, crashes and attacks on the bytes."""

from __future__ import annotations

import copy
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.arrays import Bytes, Index
from ccbps.ciphers import payloads
from ccbps.delivery import (
    BrokerState,
    GroupOpener,
    GroupSealer,
    SealedEvent,
    SubscriberKey,
    broker_keys,
    group_opener,
    group_sealer,
)
from ccbps.delivery.clustered import ClusteredCache, ClusteredPopularCache
from ccbps.delivery.group_keys import member_mask, own_keys_of
from ccbps.delivery.group_messages import GroupMessage, wrap_nonce
from ccbps.delivery.groups import Clusters, even_sizes, pack_groups
from ccbps.delivery.hierarchy import KeyHierarchy
from ccbps.delivery.learned import LearnedCache
from ccbps.delivery.plans import Plan, Strategy, Wrap, personal
from ccbps.delivery.whole_groups import BuildUpCache, Naive, SimpleCache
from ccbps.errors import (
    DecodeError,
    MissingKeyError,
    ParameterError,
    RandomnessReuseError,
    SerializationError,
    ShapeError,
)
from ccbps.wire import Kind

N = 6
PAYLOAD = b"IBM 119.50"


def strategies(subscribers: int = N) -> dict[str, Strategy]:
    clusters = Clusters.of_sizes(even_sizes(subscribers, 2), "random", seed=2)
    sample = np.random.default_rng(3).integers(0, 2, (60, subscribers)).astype(np.bool_)
    return {
        "naive": Naive(subscribers),
        "simple": SimpleCache(subscribers, 4),
        "build-up": BuildUpCache(subscribers, 4),
        "clustered": ClusteredCache(clusters, 3),
        "clustered-popular": ClusteredPopularCache(clusters, 2, 3),
        "hierarchy": KeyHierarchy(subscribers),
        "learned": LearnedCache.learn(pack_groups(np.tile(sample, (3, 1))), subscribers, 12),
        "nothing cached": ClusteredPopularCache(clusters, 0, 0),
    }


NAMES = [*strategies()]


def group_of(*members: int) -> Bytes:
    bits = np.zeros(N, dtype=np.bool_)
    bits[[*members]] = True
    return pack_groups(bits)


def broker(name: str = "simple", capacity: int = 100) -> tuple[GroupSealer, list[GroupOpener]]:
    """A broker that everybody has joined."""
    sealer = GroupSealer(strategies()[name], pad_to=16)
    return sealer, [GroupOpener(sealer.join(i), capacity=capacity) for i in range(N)]


def opened(opener: GroupOpener, message: bytes, sealer: GroupSealer) -> bytes:
    """With a request where one is needed."""
    try:
        return opener.open(message)
    except MissingKeyError as missing:
        return opener.accept(sealer.answer(missing.request))


# -- who opens what -----------------------------------------------------------------------------


@dataclass
class Person:
    """Somebody who once had a subscriber's number, and forgets nothing."""

    key: SubscriberKey
    opener: GroupOpener

    def ciphers(self, run: bytes) -> list[AESGCM]:
        """All keys that it ever had."""
        own = own_keys_of(self.key.export_secret_key(), run)
        return [*self.opener._keys.values(), AESGCM(own.key)]


@dataclass
class World:
    """A broker, everybody who ever joined, and every event with those who were in its group."""

    sealer: GroupSealer
    people: list[Person] = field(default_factory=list)
    now: dict[int, Person] = field(default_factory=dict)
    events: list[tuple[SealedEvent, bytes, list[Person]]] = field(default_factory=list)

    def join(self, number: int) -> None:
        key = self.sealer.join(number)
        person = Person(key, GroupOpener(key, capacity=10_000))
        self.people.append(person)
        self.now[number] = person

    def leave(self, number: int) -> None:
        self.sealer.leave(number)
        del self.now[number]

    def seal(self, members: list[int], whole: bool) -> None:
        """Seal for those of them who are there, and let everybody try to open it."""
        members = [one for one in members if one in self.now]
        payload = b"event %d" % len(self.events)
        event = self.sealer.seal(payload, len(self.events), group_of(*members))
        inside = [self.now[one] for one in members]
        self.events.append((event, payload, inside))
        for number, person in zip(members, inside, strict=True):
            message = event.to_bytes() if whole else event.for_subscriber(number)
            assert opened(person.opener, message, self.sealer) == payload
        for person in self.people:
            if person not in inside:
                with pytest.raises(DecodeError):
                    opened(person.opener, event.to_bytes(), self.sealer)


def unwrapped(event: SealedEvent, ciphers: list[AESGCM]) -> int:
    """How many wraps these keys open."""
    found, message = 0, event.message
    for place, name, content in message.wraps:
        for cipher in ciphers:
            try:
                cipher.decrypt(wrap_nonce(message.event, place), content, message.head + name)
                found += 1
            except InvalidTag:
                pass
    return found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.integers(0, N - 1)),
        st.tuples(st.just("seal"), st.sets(st.integers(0, N - 1)), st.booleans()),
        st.tuples(st.just("seal"), st.sampled_from([{0, 1, 2, 3, 4, 5}, {0, 1}, {1, 2, 3}])),
    ),
    max_size=14,
)


@pytest.mark.parametrize("name", NAMES)
@given(steps=STEPS)
@settings(max_examples=examples(60), deadline=None)
def test_members_open_and_all_others_together_do_not(name: str, steps: list[tuple]) -> None:
    """Others: who is there, who left before, and who came later, also under the same number, with
    all keys that they ever had."""
    world = World(GroupSealer(strategies()[name], pad_to=16))
    for number in range(N):
        world.join(number)
    for what, which, *whole in steps:
        if what == "seal":
            world.seal(sorted(which), whole == [True])
        elif which in world.now:
            world.leave(which)
        else:
            world.join(which)
    for event, _, inside in world.events:
        run = event.message.run
        pool = [c for one in world.people if one not in inside for c in one.ciphers(run)]
        assert unwrapped(event, pool) == 0
        for person in inside:
            assert unwrapped(event, person.ciphers(run)) == 1


@pytest.mark.parametrize("name", NAMES)
def test_nobody_who_had_the_number_before_or_gets_it_later_opens(name: str) -> None:
    """The same group again and again: its key is cached when its member leaves."""
    world = World(GroupSealer(strategies()[name], pad_to=16))
    for number in range(N):
        world.join(number)
    for _ in range(3):
        world.seal([0, 1, 2, 3], True)
        world.seal([0, 1, 2, 3], False)
        world.leave(1)
        world.seal([0, 2, 3], True)
        world.join(1)
    later = world.now[1]
    missed = [event for event, _, inside in world.events if later not in inside]
    assert len(missed) == len(world.events) == 9
    for event in missed:
        with pytest.raises(DecodeError):
            opened(later.opener, event.to_bytes(), world.sealer)
        # Not by a request for exactly the keys of that message either.
        names = tuple(name for _, name, _ in event.message.wraps)
        with pytest.raises(DecodeError):
            world.sealer.answer(later.opener._ask(event.message, names))


@pytest.mark.parametrize("name", NAMES)
def test_a_subscriber_that_keeps_no_key_opens_everything(name: str) -> None:
    sealer, openers = broker(name, capacity=0)
    for number in range(40):
        event = sealer.seal(PAYLOAD, number, group_of(0, 1, 2 + number % 3))
        for one in (0, 1, 2 + number % 3):
            assert opened(openers[one], event.for_subscriber(one), sealer) == PAYLOAD
        assert not openers[0]._keys


def test_an_evicted_key_is_asked_for_and_kept() -> None:
    sealer, openers = broker()
    alice = GroupOpener(SubscriberKey(key_bytes(openers[0])), capacity=1)
    for number, members in enumerate([(0, 1), (0, 2)]):
        alice.open(sealer.seal(PAYLOAD, number, group_of(*members)).for_subscriber(0))
    assert len(alice._keys) == 1
    again = [sealer.seal(PAYLOAD, n, group_of(0, 1)).for_subscriber(0) for n in (2, 3)]
    with pytest.raises(MissingKeyError, match=r"event 2 .* subscriber 0 does not hold") as missing:
        alice.open(again[0])
    assert alice.accept(sealer.answer(missing.value.request)) == PAYLOAD
    assert alice.open(again[1]) == PAYLOAD


def key_bytes(opener: GroupOpener) -> bytes:
    return opener.number.to_bytes(4) + opener._own


# -- encryptions --------------------------------------------------------------------------------


class Counting:
    """AES-GCM that counts, and remembers keys and nonces."""

    used: ClassVar[list[tuple[bytes, bytes]]] = []

    def __init__(self, key: bytes) -> None:
        self._key, self._cipher = key, AESGCM(key)

    def encrypt(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        self.used.append((self._key, nonce))
        return self._cipher.encrypt(nonce, data, bound)

    def decrypt(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        return self._cipher.decrypt(nonce, data, bound)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[bytes, bytes]]]:
    for module in (broker_keys, group_sealer, payloads):
        monkeypatch.setattr(module, "AESGCM", Counting)
    Counting.used.clear()
    yield Counting.used
    Counting.used.clear()


def random_groups(seed: int, events: int) -> Bytes:
    rng = np.random.default_rng(seed)
    popular = rng.integers(0, 2, (4, N)).astype(np.bool_)
    some = rng.integers(0, 2, (events, N)).astype(np.bool_)
    return pack_groups(
        np.where(rng.random((events, 1)) < 0.6, popular[rng.integers(0, 4, events)], some)
    )


@pytest.mark.parametrize("name", NAMES)
def test_encryptions_are_those_of_the_plan_and_one(
    name: str, used: list[tuple[bytes, bytes]]
) -> None:
    sealer, _ = broker(name)
    groups = random_groups(5, 200)
    wanted = strategies()[name].count(groups) + 1
    real = []
    for number, group in enumerate(groups):
        before = len(used), sealer.encryptions
        sealer.seal(PAYLOAD, number, group)
        real.append(len(used) - before[0])
        assert sealer.encryptions - before[1] == real[-1]
    assert real == wanted.tolist()
    assert len({*real}) > 1


@pytest.mark.parametrize("name", NAMES)
def test_no_nonce_twice_under_a_key_also_after_a_crash(
    name: str, used: list[tuple[bytes, bytes]]
) -> None:
    """The broker that is restored knows nothing of events, and takes the same numbers again."""
    sealer, _ = broker(name)
    groups = random_groups(6, 60)
    for life in range(3):
        for number, group in enumerate(groups):
            sealer.seal(PAYLOAD, number, group)
        if life == 1:
            sealer.leave(2)
            sealer.join(2)
        sealer = GroupSealer(strategies()[name], sealer.state, pad_to=16)
    wraps = [(key, nonce) for key, nonce in used if nonce != payloads.ONE_PAYLOAD]
    assert len({*used}) == len(used)
    assert len(wraps) > len({nonce for _, nonce in wraps}) > 1


def test_an_event_number_is_used_once() -> None:
    sealer, _ = broker()
    sealer.seal(PAYLOAD, 5, group_of(0))
    for number in (5, 4, 0):
        with pytest.raises(RandomnessReuseError, match=f"event {number} is not larger than 5"):
            sealer.seal(PAYLOAD, number, group_of(0))
    for wrong in (-1, 1 << 64, True, 6.0):
        with pytest.raises(ParameterError, match="event must be"):
            sealer.seal(PAYLOAD, wrong, group_of(0))  # type: ignore[arg-type]
    sealer.seal(PAYLOAD, (1 << 64) - 1, group_of(0))


def test_a_forked_process_cannot_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    sealer, _ = broker()
    monkeypatch.setattr(group_sealer, "this_process", lambda: (1, 1))
    with pytest.raises(RandomnessReuseError, match="forked"):
        sealer.seal(PAYLOAD, 0, group_of(0))


@pytest.mark.parametrize("name", NAMES)
def test_few_keys_held_ready_change_nothing(name: str) -> None:
    """Keys that were evicted are derived again, and are the same."""
    states, messages = BrokerState.new(N), []
    few = GroupSealer(strategies()[name], states, capacity=1, pad_to=16)
    openers = [GroupOpener(few.join(i), capacity=100) for i in range(N)]
    for number, group in enumerate(random_groups(7, 80)):
        event = few.seal(PAYLOAD, number, group)
        bits = np.unpackbits(group, count=N, bitorder="little")
        for one in np.flatnonzero(bits).tolist():
            message = event.for_subscriber(one)
            if name == "hierarchy":
                messages.append(opened(openers[one], message, few))
            else:
                messages.append(openers[one].open(message))  # needs no request
    assert {*messages} == {PAYLOAD}
    assert len(few._keys.ready) == 1


# -- crashes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_crashes_of_broker_and_subscribers_lose_no_event(name: str) -> None:
    """Messages arrive late: after the broker was killed, and with their receivers' caches lost."""
    saved: list[bytes] = []
    sealer = GroupSealer(
        strategies()[name], save=lambda state: saved.append(state.export_secret()), pad_to=16
    )
    keys = [sealer.join(i) for i in range(N)]
    groups = random_groups(8, 30)
    kept: dict[int, list[tuple[bytes, bytes]]] = {i: [] for i in range(N)}

    def send(start: int) -> None:
        for number, group in enumerate(groups, start):
            event = sealer.seal(b"event %d" % number, number, group)
            for one in np.flatnonzero(np.unpackbits(group, bitorder="little")).tolist():
                kept[one].append((event.for_subscriber(one), b"event %d" % number))

    send(0)
    del sealer
    sealer = GroupSealer(strategies()[name], BrokerState(saved[-1]), pad_to=16)
    send(len(groups))
    requests = 0
    for one, messages in kept.items():
        opener = GroupOpener(SubscriberKey(keys[one].export_secret()), capacity=2)
        assert len(messages) > 5
        for message, payload in messages:
            before = sealer.encryptions
            assert opened(opener, message, sealer) == payload
            requests += sealer.encryptions - before
    assert requests > 0 or name in ("naive", "nothing cached")


def test_events_that_wait_are_opened_by_answers_in_any_order() -> None:
    sealer, openers = broker("hierarchy")
    messages = [sealer.seal(b"%d" % n, n, group_of(0, 1, 2, 3)).to_bytes() for n in range(5)]
    requests = []
    for message in messages:
        with pytest.raises(MissingKeyError) as missing:
            openers[0].open(message)
        requests.append(missing.value.request)
    answers = [sealer.answer(request) for request in requests]
    assert [openers[0].accept(a) for a in answers[::-1]] == [b"4", b"3", b"2", b"1", b"0"]


def test_a_lost_answer_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    sealer, openers = broker("hierarchy")
    monkeypatch.setattr(group_opener, "MOST_WAITING", 2)
    messages = [sealer.seal(b"%d" % n, n, group_of(0, 1)).to_bytes() for n in range(3)]
    requests = []
    for message in messages:
        with pytest.raises(MissingKeyError) as missing:
            openers[0].open(message)
        requests.append(missing.value.request)
    assert len(openers[0]._waiting) == 2
    with pytest.raises(DecodeError, match="open the event again"):
        openers[0].accept(sealer.answer(requests[0]))
    assert openers[0].accept(sealer.answer(requests[2])) == b"2"
    assert [openers[0].open(message) for message in messages[:2]] == [b"0", b"1"]
    with pytest.raises(DecodeError, match="replay"):
        openers[0].accept(openers_answer(sealer, openers[0], messages[2]))


def openers_answer(sealer: GroupSealer, opener: GroupOpener, message: bytes) -> bytes:
    """The answer to a request for an event that was opened meanwhile."""
    event = GroupMessage.from_bytes(message)
    return sealer.answer(opener._ask(event, tuple(name for _, name, _ in event.wraps)))


def test_the_state_is_safe_before_it_takes_effect() -> None:
    fails = False

    def save(state: BrokerState) -> None:
        if fails:
            raise OSError("disk full")

    sealer = GroupSealer(Naive(N), save=save)
    sealer.join(0)
    before, fails = sealer.state, True
    for change in (lambda: sealer.join(1), lambda: sealer.leave(0)):
        with pytest.raises(OSError, match="disk full"):
            change()
        assert sealer.state == before
    sealer.seal(PAYLOAD, 0, group_of(0))
    with pytest.raises(ParameterError, match="subscriber 1 has not joined"):
        sealer.seal(PAYLOAD, 1, group_of(1))


# -- attacks on the bytes -----------------------------------------------------------------------


def refused(opener: GroupOpener, message: bytes, sealer: GroupSealer) -> None:
    with pytest.raises(DecodeError):
        opened(opener, message, sealer)


@pytest.mark.parametrize("cached", [False, True])
def test_altered_events_are_refused(cached: bool) -> None:
    sealer, openers = broker()
    first, second = (sealer.seal(PAYLOAD, n, group_of(0, 1)).for_subscriber(0) for n in range(2))
    if cached:
        openers[0].open(first)
    message = second if cached else first
    for at in range(len(message)):
        for bit in (1, 128):
            bent = bytearray(message)
            bent[at] ^= bit
            refused(openers[0], bytes(bent), sealer)
    for size in range(len(message)):
        refused(openers[0], message[:size], sealer)
    refused(openers[0], message + b"\0", sealer)
    with pytest.raises(DecodeError, match="must be bytes"):
        openers[0].open("text")  # type: ignore[arg-type]
    assert openers[0].open(message) == PAYLOAD


def test_altered_requests_and_answers_are_refused() -> None:
    sealer, openers = broker("hierarchy")
    message = sealer.seal(PAYLOAD, 0, group_of(0, 1)).to_bytes()
    with pytest.raises(MissingKeyError) as missing:
        openers[0].open(message)
    request = missing.value.request

    def bent(data: bytes) -> Iterator[bytes]:
        for at in range(len(data)):
            yield data[:at]
            for bit in (1, 128):
                yield data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]

    for wrong in bent(request):
        with pytest.raises(DecodeError):
            sealer.answer(wrong)
    answer = sealer.answer(request)
    for wrong in bent(answer):
        with pytest.raises(DecodeError):
            openers[0].accept(wrong)
    assert (request[0], answer[0], message[0]) == (
        Kind.KEY_REQUEST,
        Kind.KEY_ANSWER,
        Kind.GROUP_EVENT,
    )
    assert openers[0].accept(answer) == PAYLOAD


@given(
    st.binary(max_size=200), st.sampled_from([Kind.GROUP_EVENT, Kind.KEY_REQUEST, Kind.KEY_ANSWER])
)
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_are_refused(tail: bytes, kind: Kind) -> None:
    for data in (tail, bytes([kind, 1]) + tail):
        refused(OPENERS[0], data, SEALER)
        with pytest.raises(DecodeError):
            SEALER.answer(data)
        with pytest.raises(DecodeError):
            OPENERS[0].accept(data)


SEALER, OPENERS = broker()


def test_replays_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sealer, openers = broker("hierarchy")
    messages = [sealer.seal(b"%d" % n, n, group_of(0, 1)).to_bytes() for n in range(6)]
    with pytest.raises(MissingKeyError) as missing:
        openers[0].open(messages[0])
    answer = sealer.answer(missing.value.request)
    with pytest.raises(DecodeError, match="replay"):
        sealer.answer(missing.value.request)
    assert openers[0].accept(answer) == b"0"
    with pytest.raises(DecodeError, match="waits"):
        openers[0].accept(answer)
    monkeypatch.setattr(group_opener, "MOST_OPENED", 2)
    for message in (messages[2], messages[1], messages[4], messages[5]):  # one may overtake another
        openers[0].open(message)
    for number in (0, 1, 2, 4, 5):
        with pytest.raises(DecodeError, match="replay"):
            openers[0].open(messages[number])
    assert openers[0].open(messages[3]) == b"3"


def test_a_request_before_a_newer_one_is_refused() -> None:
    sealer, openers = broker("hierarchy")
    requests = []
    for number in range(2):
        with pytest.raises(MissingKeyError) as missing:
            openers[0].open(sealer.seal(PAYLOAD, number, group_of(0, 1)).to_bytes())
        requests.append(missing.value.request)
    sealer.answer(requests[1])
    with pytest.raises(DecodeError, match="ask again"):
        sealer.answer(requests[0])


def test_parts_of_different_events_do_not_fit() -> None:
    sealer, openers = broker()
    openers[0].open(sealer.seal(PAYLOAD, 0, group_of(0, 1)).for_subscriber(0))
    one, two = (sealer.seal(b"%d" % n, n, group_of(0, 1)).message for n in (1, 2))
    sealer.leave(5)
    later = sealer.seal(b"3", 3, group_of(0, 1)).message
    for a, b in ((one, two), (two, one), (one, later)):
        for mixed in (
            a._replace(wraps=b.wraps),
            a._replace(payload=b.payload),
            a._replace(head=b.head),
            a._replace(payload=b.payload, wraps=b.wraps),
        ):
            refused(openers[0], mixed.to_bytes(), sealer)
    # The epoch alone: bytes 10 to 17 of the head.
    head = one.head[:10] + later.head[10:18] + one.head[18:]
    assert head != one.head
    refused(openers[0], one._replace(head=head).to_bytes(), sealer)
    assert openers[0].open(later.to_bytes()) == b"3"


def test_subscribers_cannot_ask_for_one_another() -> None:
    sealer, openers = broker("hierarchy")
    message = sealer.seal(PAYLOAD, 0, group_of(0, 1)).to_bytes()
    with pytest.raises(MissingKeyError) as missing:
        openers[5].open(message)
    with pytest.raises(DecodeError, match="not in"):
        sealer.answer(missing.value.request)
    with pytest.raises(MissingKeyError) as other:
        openers[0].open(message)
    stolen = other.value.request[:2] + (5).to_bytes(4) + other.value.request[6:]
    with pytest.raises(DecodeError, match="no subscriber"):
        sealer.answer(stolen)
    with pytest.raises(MissingKeyError):
        openers[1].open(message)
    with pytest.raises(DecodeError):
        openers[1].accept(sealer.answer(other.value.request))
    unknown = GroupOpener(SubscriberKey((77).to_bytes(4) + bytes(32)), capacity=1)
    refused(unknown, message, sealer)


def test_another_broker_knows_none_of_it() -> None:
    (sealer, openers), (other, _) = broker("hierarchy"), broker("hierarchy")
    message = sealer.seal(PAYLOAD, 0, group_of(0, 1))
    refused(openers[0], message.to_bytes(), other)
    assert opened(openers[0], message.to_bytes(), sealer) == PAYLOAD


def test_names_are_hidden_and_new_in_every_run() -> None:
    sealer, _ = broker()
    group = group_of(0, 1)
    first, again = (sealer.seal(PAYLOAD, n, group).message for n in (0, 1))
    third = sealer.seal(PAYLOAD, 2, group).message
    restored = GroupSealer(SimpleCache(N, 4), sealer.state)
    personal_names = {name for _, name, _ in first.wraps}
    assert [len(name) for name in personal_names] == [16, 16]
    assert again.wraps[0][1] == third.wraps[0][1]
    assert again.head[34:] != third.head[34:]  # the hash of the group
    assert personal_names.isdisjoint(
        name for _, name, _ in restored.seal(PAYLOAD, 0, group).message.wraps
    )


# -- what a sealer refuses ----------------------------------------------------------------------


class Wrong(Strategy):
    """Any plan."""

    made: Plan

    def _plan(self, group: Bytes) -> Plan:
        return self.made

    def _count(self, groups: Bytes) -> Index:
        raise NotImplementedError


BOTH = b"g" + group_of(0, 1).tobytes()


@pytest.mark.parametrize(
    ("wraps", "said"),
    [
        ([Wrap(personal(0))], "does not reach all"),
        ([Wrap(personal(0)), Wrap(personal(2))], "to others"),
        ([Wrap(b"g" + group_of(0, 1, 2).tobytes())], "to others"),
        ([Wrap(b"h\x02" + bytes(4))], "to others"),
        ([Wrap(BOTH, (b"g" + group_of(0, 2).tobytes(),))], "to others"),
        ([Wrap(BOTH, (BOTH, personal(0)))], "to others"),
        ([Wrap(BOTH), Wrap(personal(5))], "not joined"),
        ([Wrap(b"z")], "no keys of the name 7a"),
        ([Wrap(b"c" + bytes(8))], "no keys of the name"),
    ],
)
def test_a_plan_that_reaches_others_is_refused(wraps: list[Wrap], said: str) -> None:
    strategy = Wrong(N)
    sealer = GroupSealer(strategy)
    for one in range(5):
        sealer.join(one)
    strategy.made = Plan((*wraps,), {})
    with pytest.raises(ParameterError, match=said):
        sealer.seal(PAYLOAD, 0, group_of(0, 1))
    strategy.made = Plan((Wrap(BOTH),), {})
    assert len(sealer.seal(PAYLOAD, 1, group_of(0, 1)).message.wraps) == 1


@pytest.mark.parametrize("name", NAMES)
def test_names_say_whose_keys_they_are(name: str) -> None:
    strategy = strategies()[name]
    for group in random_groups(9, 60):
        plan = strategy.plan(group)
        for fresh, members in plan.fresh.items():
            assert member_mask(strategy, fresh) == sum(1 << one for one in members)
        masks = [member_mask(strategy, wrap.under) for wrap in plan.wraps]
        assert sum(masks) == int.from_bytes(group.tobytes(), "little")


def test_misuse_is_refused() -> None:
    sealer, openers = broker()
    event = sealer.seal(PAYLOAD, 0, group_of(0))
    with pytest.raises(ParameterError, match="not in the group"):
        event.for_subscriber(1)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: sealer.join(0), "has joined already"),
        (lambda: sealer.join(N), "0 .. 5, got 6"),
        (lambda: sealer.leave(-1), "got -1"),
        (lambda: (sealer.leave(3), sealer.leave(3)), "has not joined"),
        (lambda: sealer.seal("text", 1, group_of(0)), "payload must be bytes"),  # type: ignore[arg-type]
        (lambda: GroupSealer(Naive(N), capacity=0), "capacity"),
        (lambda: GroupSealer(Naive(N), pad_to=0), "pad_to"),
        (lambda: GroupSealer(Naive(N + 1), sealer.state), "broker of 7 subscribers"),
        (lambda: GroupOpener(b"key", capacity=1), "SubscriberKey"),  # type: ignore[arg-type]
    ]
    for call, said in calls:
        with pytest.raises(ParameterError, match=said):
            call()
    with pytest.raises(ShapeError):
        sealer.seal(PAYLOAD, 1, np.zeros(2, dtype=np.uint8))
    with pytest.raises(ParameterError, match="beyond"):
        sealer.seal(PAYLOAD, 1, np.array([128], dtype=np.uint8))
    empty = sealer.seal(PAYLOAD, 1, group_of())
    assert empty.message.wraps == ()
    refused(openers[0], empty.to_bytes(), sealer)


def test_secrets_do_not_print_or_pickle() -> None:
    sealer, openers = broker()
    sealer.seal(PAYLOAD, 0, group_of(0, 1))
    secrets = [sealer.state.export_secret()[:32], openers[0]._own]
    for thing in (sealer, sealer.state, openers[0], SubscriberKey(key_bytes(openers[0]))):
        shown = repr(thing).encode()
        assert not any(secret in shown or secret.hex().encode() in shown for secret in secrets)
        for take in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(SerializationError):
                take(thing)


def test_clocks_that_go_back_do_not_stop_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    sealer, openers = broker("hierarchy")
    clock = count(1000, -1)
    monkeypatch.setattr(group_opener.time, "time_ns", lambda: next(clock))
    for number, members in enumerate([(0, 1), (0, 1, 2, 3)]):
        message = sealer.seal(PAYLOAD, number, group_of(*members)).to_bytes()
        with pytest.raises(MissingKeyError) as missing:
            openers[0].open(message)
        assert openers[0].accept(sealer.answer(missing.value.request)) == PAYLOAD


# -- what joins and leaves cost, and a process that is killed ------------------------------------


def test_leaving_costs_nothing_and_joining_an_answer_for_each_member_and_key() -> None:
    sealer, openers = broker()
    numbers = count()

    def answers(*members: int) -> int:
        """Answers that members need for an event, beside its wraps and payload."""
        before, event = sealer.encryptions, sealer.seal(PAYLOAD, next(numbers), group_of(*members))
        for one in members:
            assert opened(openers[one], event.for_subscriber(one), sealer) == PAYLOAD
        return sealer.encryptions - before - len(event.message.wraps) - 1

    assert [answers(0, 1, 2), answers(0, 2), answers(0, 1, 2), answers(0, 2)] == [0, 0, 0, 0]
    sealer.leave(1)
    assert answers(0, 2) == 0
    openers[1] = GroupOpener(sealer.join(1), capacity=10)
    assert [answers(0, 1, 2), answers(0, 1, 2), answers(0, 2)] == [3, 0, 0]


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from ccbps.delivery import GroupSealer
from ccbps.delivery.groups import pack_groups
from ccbps.delivery.whole_groups import SimpleCache
folder = Path(sys.argv[1])
save = lambda state: (folder / "state").write_bytes(state.export_secret())
sealer = GroupSealer(SimpleCache(3, 4), save=save)
for i in range(3):
    (folder / f"key{i}").write_bytes(sealer.join(i).export_secret())
group = pack_groups(np.array([True, True, False]))
for number in range(5):
    event = sealer.seal(b"event %d" % number, number, group)
    (folder / f"message{number}").write_bytes(event.for_subscriber(1))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_broker_sealed_is_opened_with_the_help_of_the_next(tmp_path: Path) -> None:
    """The subscriber comes up late: the message that carried the group's key is lost, too."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    sealer = GroupSealer(SimpleCache(3, 4), BrokerState((tmp_path / "state").read_bytes()))
    opener = GroupOpener(SubscriberKey((tmp_path / "key1").read_bytes()), capacity=4)
    for number in range(1, 5):
        message = (tmp_path / f"message{number}").read_bytes()
        assert opened(opener, message, sealer) == b"event %d" % number
    assert sealer.encryptions == 1  # one answer
