"""Delivery to groups: who opens what, over joins, leaves, crashes and attacks on the bytes."""

from __future__ import annotations

import copy
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ccbps.arrays import Bytes, Index
from ccbps.ciphers import payloads
from ccbps.ciphers.signatures import sign_batch
from ccbps.delivery import (
    BrokerState,
    GroupOpener,
    GroupSealer,
    Strategy,
    SubscriberKey,
    SubscriberRing,
    Wrap,
    group_sealer,
)
from ccbps.delivery.group_protocol import GroupMessage, KeyRequest, own_keys_of
from ccbps.delivery.groups import members_of, pack_groups
from ccbps.delivery.plans import Plan, group_name, member_mask, node_name, personal, set_name
from ccbps.delivery.strategies import Naive, SimpleCache
from ccbps.errors import (
    DecodeError,
    MissingKeyError,
    ParameterError,
    ReplayError,
    SerializationError,
    ShapeError,
)
from ccbps.keys.plain_key import SigningKey
from ccbps.wire import Kind
from tests.support.altered import altered
from tests.support.delivery_strategies import NAMES, popular, strategy_of
from tests.support.effort import examples
from tests.support.salamander import two_openings

N = 6
PAYLOAD = b"IBM 119.50"


def group_of(*members: int) -> Bytes:
    bits = np.zeros(N, dtype=np.bool_)
    bits[[*members]] = True
    return pack_groups(bits)


def sealer_of(name: str, state: BrokerState | None = None, **options: Any) -> GroupSealer:
    return GroupSealer(strategy_of(name, N), state, pad_to=16, **options)


def broker(name: str = "simple", capacity: int = 100) -> tuple[GroupSealer, list[GroupOpener]]:
    """Return a broker that everybody has joined, and the openers of its subscribers."""
    sealer = sealer_of(name)
    return sealer, [GroupOpener(sealer.join(i), capacity=capacity) for i in range(N)]


def again(opener: GroupOpener, capacity: int = 100, **options: Any) -> GroupOpener:
    """Return an opener of the same subscriber that remembers nothing."""
    key = SubscriberKey(opener.number.to_bytes(4) + opener._own)
    return GroupOpener(key, capacity=capacity, **options)


def messages_of(sealer: GroupSealer, count: int, *members: int) -> list[bytes]:
    """Seal events b"0", b"1" and so on for one group."""
    group = group_of(*members)
    return [sealer.seal(b"%d" % number, number, group).to_bytes() for number in range(count)]


def request_of(opener: GroupOpener, message: bytes) -> bytes:
    """Return the request for the key of a message."""
    with pytest.raises(MissingKeyError) as missing:
        opener.open(message)
    return missing.value.request


def opened(opener: GroupOpener, message: bytes, sealer: GroupSealer) -> bytes:
    """Open a message, with a request where one is needed."""
    try:
        return opener.open(message)
    except MissingKeyError as missing:
        return opener.accept(sealer.answer(missing.request), message)


def refused(opener: GroupOpener, message: bytes, sealer: GroupSealer) -> None:
    with pytest.raises(DecodeError):
        opened(opener, message, sealer)


# -- who opens what -----------------------------------------------------------------------------


class World:
    """A broker, everybody who ever joined, and every event with those who were in its group.

    The people forget no key. Several may have had one subscriber's number.
    """

    def __init__(self, name: str) -> None:
        self.sealer, self.people = sealer_of(name), list[GroupOpener]()
        self.now: dict[int, GroupOpener] = {}
        self.events: list[tuple[GroupMessage, list[GroupOpener]]] = []
        for number in range(N):
            self.join(number)

    def join(self, number: int) -> None:
        self.now[number] = GroupOpener(self.sealer.join(number), capacity=10_000)
        self.people.append(self.now[number])

    def leave(self, number: int) -> None:
        self.sealer.leave(number)
        del self.now[number]

    def seal(self, members: list[int], whole: bool) -> None:
        """Seal for the members who are there, and let everybody try to open it."""
        members = [member for member in members if member in self.now]
        payload = b"event %d" % len(self.events)
        event = self.sealer.seal(payload, len(self.events), group_of(*members))
        inside = [self.now[member] for member in members]
        self.events.append((event.message, inside))
        for person in inside:
            message = event.to_bytes() if whole else event.for_subscriber(person.number)
            assert whole or len(GroupMessage.from_bytes(message).wraps) == 1
            assert opened(person, message, self.sealer) == payload
        for person in self.people:
            if person not in inside:
                refused(person, event.to_bytes(), self.sealer)


def unwrapped(message: GroupMessage, *openers: GroupOpener) -> int:
    """Count the wraps that these openers open with all keys that they ever had."""
    count = 0
    for opener in openers:
        own = own_keys_of(opener._own, message.generation)
        for key in [*opener._keys.values(), own.key]:
            for name, content in message.wraps:
                with suppress(InvalidTag):
                    AESGCM(key).decrypt(message.nonce, content, message.head + name)
                    count += 1
    return count


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.integers(0, N - 1)),
        st.tuples(st.sampled_from(["renew", "crash", "go on"]), st.none()),
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
    all keys that they ever had; also where the broker crashed, and remembers its strategy or not.
    """
    world = World(name)
    for what, which, *whole in steps:
        if what == "seal":
            world.seal(sorted(which), whole == [True])
        elif what == "renew":
            world.sealer.renew()
        elif which is None:
            old = world.sealer
            world.sealer = sealer_of(name, old.state)
            if what == "go on":
                world.sealer.restore(old.snapshot())
        elif which in world.now:
            world.leave(which)
        else:
            world.join(which)
    for message, inside in world.events:
        assert unwrapped(message, *(one for one in world.people if one not in inside)) == 0
        for person in inside:
            assert unwrapped(message, person) == 1


@pytest.mark.parametrize("name", NAMES)
def test_nobody_who_had_the_number_before_or_gets_it_later_opens(name: str) -> None:
    """The same group again and again: its key is cached when its member leaves."""
    world = World(name)
    for _ in range(3):
        world.seal([0, 1, 2, 3], True)
        world.seal([0, 1, 2, 3], False)
        world.leave(1)
        world.seal([0, 2, 3], True)
        world.join(1)
    later = world.now[1]
    missed = [message for message, inside in world.events if later not in inside]
    assert len(missed) == len(world.events) == 9
    for message in missed:
        refused(later, message.to_bytes(), world.sealer)
        # Not by a request for exactly the keys of that message either.
        request = KeyRequest(later.number, tuple(name for name, _ in message.wraps), bytes(16))
        with pytest.raises(DecodeError):
            world.sealer.answer(replace(request, tag=request.tag_under(later._own)).to_bytes())


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
    alice = again(openers[0], capacity=1)
    for number, members in enumerate([(0, 1), (0, 2)]):
        alice.open(sealer.seal(PAYLOAD, number, group_of(*members)).for_subscriber(0))
    assert len(alice._keys) == 1
    first, second = (sealer.seal(PAYLOAD, n, group_of(0, 1)).for_subscriber(0) for n in (2, 3))
    with pytest.raises(MissingKeyError, match=r"event 2 .* subscriber 0 does not hold"):
        alice.open(first)
    assert opened(alice, first, sealer) == PAYLOAD
    assert alice.open(second) == PAYLOAD


# -- encryptions --------------------------------------------------------------------------------


Used: TypeAlias = list[tuple[bytes, bytes]]


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Used:
    """Return the keys and nonces of all encryptions so far."""
    calls: Used = []

    class Counting:
        def __init__(self, key: bytes) -> None:
            self.key, self.cipher = key, AESGCM(key)
            self.decrypt = self.cipher.decrypt

        def encrypt(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
            calls.append((self.key, nonce))
            return self.cipher.encrypt(nonce, data, bound)

    for module in (group_sealer, payloads):
        monkeypatch.setattr(module, "AESGCM", Counting)
    return calls


def random_groups(seed: int, events: int) -> Bytes:
    return popular(seed, events, N, 0.6, 4)


@pytest.mark.parametrize("name", NAMES)
def test_encryptions_are_those_of_the_plan_and_one(name: str, used: Used) -> None:
    sealer, _ = broker(name)
    groups = random_groups(5, 200)
    wanted = strategy_of(name, N).count(groups) + 1
    real = []
    for number, group in enumerate(groups):
        before = len(used), sealer.encryptions
        sealer.seal(PAYLOAD, number, group)
        real.append(len(used) - before[0])
        assert sealer.encryptions - before[1] == real[-1]
    assert real == wanted.tolist()
    assert len({*real}) > 1


@pytest.mark.parametrize("name", NAMES)
def test_no_nonce_twice_under_a_key_also_after_a_crash(name: str, used: Used) -> None:
    """The broker that is restored has the same keys, and seals the same events again."""
    sealer, _ = broker(name)
    groups = random_groups(6, 60)
    for life in range(3):
        for number, group in enumerate(groups):
            sealer.seal(PAYLOAD, number, group)
        if life == 1:
            sealer.leave(2)
            sealer.join(2)
        sealer = sealer_of(name, sealer.state)
    wraps = [(key, nonce) for key, nonce in used if nonce != payloads.ONE_PAYLOAD]
    assert len({*used}) == len(used)
    assert len(wraps) > len({nonce for _, nonce in wraps}) > 1
    assert len({key for key, _ in wraps}) < 200


def test_two_wraps_under_one_key_are_refused() -> None:
    """They would have one nonce."""
    strategy = Wrong(N)
    sealer = GroupSealer(strategy)
    sealer.join(0)
    strategy.made = Wrap(personal(0)), Wrap(personal(0))
    with pytest.raises(ParameterError, match="uses a key twice"):
        sealer.seal(PAYLOAD, 0, group_of(0))


def test_an_event_is_opened_once_however_often_it_is_sealed() -> None:
    sealer, openers = broker()
    first, again = (sealer.seal(PAYLOAD, 5, group_of(0)).to_bytes() for _ in range(2))
    assert first != again
    assert openers[0].open(again) == PAYLOAD
    for message in (first, again):
        with pytest.raises(DecodeError, match="replay"):
            openers[0].open(message)
    for wrong in (-1, 1 << 64, True, 6.0):
        with pytest.raises(ParameterError, match="event must be"):
            sealer.seal(PAYLOAD, wrong, group_of(0))  # type: ignore[arg-type]
    sealer.seal(PAYLOAD, (1 << 64) - 1, group_of(0))


@pytest.mark.parametrize("name", NAMES)
def test_few_keys_held_ready_change_nothing(name: str) -> None:
    """Keys that were evicted are derived again, and are the same."""
    messages, few = [], sealer_of(name, capacity=1)
    openers = [GroupOpener(few.join(i), capacity=100) for i in range(N)]
    for number, group in enumerate(random_groups(7, 80)):
        event = few.seal(PAYLOAD, number, group)
        for one in members_of(group, N):
            message, requests = event.for_subscriber(one), few.encryptions
            messages.append(opened(openers[one], message, few))
            assert few.encryptions == requests or name == "hierarchy"
    assert {*messages} == {PAYLOAD}
    assert len(few._ready) == 1


# -- crashes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_crashes_of_broker_and_subscribers_lose_no_event(name: str) -> None:
    """Messages arrive late: after the broker was killed, with their receivers' caches lost, and the
    last ones first."""
    saved: list[bytes] = []
    sealer = sealer_of(name, save=lambda state: saved.append(state.export_secret()))
    keys = [sealer.join(i) for i in range(N)]
    groups = random_groups(8, 30)
    kept: dict[int, list[tuple[bytes, bytes]]] = {i: [] for i in range(N)}

    def send(start: int) -> None:
        for number, group in enumerate(groups, start):
            event = sealer.seal(b"event %d" % number, number, group)
            for one in members_of(group, N):
                kept[one].append((event.for_subscriber(one), b"event %d" % number))

    send(0)
    del sealer
    sealer = sealer_of(name, BrokerState(saved[-1]))
    send(len(groups))
    requests = 0
    for one, messages in kept.items():
        opener = GroupOpener(SubscriberKey(keys[one].export_secret()), capacity=2)
        assert len(messages) > 5
        for message, payload in messages[::-1]:
            before = sealer.encryptions
            assert opened(opener, message, sealer) == payload
            requests += sealer.encryptions - before
    assert requests > 0 or name in ("naive", "nothing cached")


def test_events_that_wait_are_opened_by_answers_in_any_order() -> None:
    sealer, openers = broker("hierarchy")
    messages = messages_of(sealer, 5, 0, 1, 2, 3)
    answers = [sealer.answer(request_of(openers[0], message)) for message in messages]
    last = [openers[0].accept(a, m) for a, m in zip(answers[::-1], messages[::-1], strict=True)]
    assert last == [b"4", b"3", b"2", b"1", b"0"]


def test_what_is_too_old_to_tell_is_refused_after_a_restart_too() -> None:
    sealer, openers = broker()
    messages = messages_of(sealer, 8, 0)
    alice, after = (again(openers[0], remember=2) for _ in range(2))
    for number in (1, 3, 5, 7):
        alice.open(messages[number])
    after.restore(alice.snapshot())
    for number in (0, 1, 2, 3, 5, 7):
        with pytest.raises(ReplayError, match=f"event {number} is refused as a replay"):
            after.open(messages[number])
    assert [after.open(messages[number]) for number in (4, 6)] == [b"4", b"6"]


def test_a_member_cannot_replace_the_keys_of_other_groups() -> None:
    """Mallory, of one group, makes an event that carries a key of hers under the name of another
    group's; also after she left."""
    sealer, openers = broker()
    mallory, victim = 0, 1
    for number, members in enumerate([(mallory, victim), (victim, 2)]):
        message = sealer.seal(PAYLOAD, number, group_of(*members)).to_bytes()
        assert [openers[member].open(message) for member in members] == [PAYLOAD, PAYLOAD]
    shared = sealer._ready[group_name(group_of(mallory, victim))]
    target = sealer._ready[group_name(group_of(victim, 2))].sealed_name[:16]
    sealer.leave(mallory)
    for carried in (target + bytes(range(32)), b""):
        bare = GroupMessage(50, 6, 0, bytes(12), bytes(16))
        head, name = bare.head, shared.sealed_name
        wrap = name, shared.cipher.encrypt(bytes(12), bytes(32) + carried, head + name)
        payload = payloads.seal(b"forged", bytes(32), head, pad_to=16)
        forged = replace(bare, payload=payload, wraps=(wrap,)).to_bytes()
        if carried:
            with pytest.raises(DecodeError, match="altered"):
                openers[victim].open(forged)
        else:  # to a group with a key of hers she can forge
            assert openers[victim].open(forged) == b"forged"
    later = sealer.seal(PAYLOAD, 2, group_of(victim, 2)).to_bytes()
    assert [openers[number].open(later) for number in (victim, 2)] == [PAYLOAD, PAYLOAD]


# -- signed events -------------------------------------------------------------------------------

SENDER = SigningKey(bytes(range(32)))


def signed_broker() -> tuple[GroupSealer, list[GroupOpener]]:
    """Return a broker whose events are signed, and openers that verify them."""
    sealer = sealer_of("simple", sign=SENDER)
    keys = [sealer.join(number) for number in range(N)]
    return sealer, [GroupOpener(key, capacity=100, verify=SENDER.identity) for key in keys]


def forgery(sealer: GroupSealer, opener: GroupOpener, message: GroupMessage) -> bytes:
    """Return a member's event to another one, in a real event's place and with its signature."""
    shared = sealer._ready[group_name(group_of(0, 1))]
    event_key, nonce = bytes(32), message.nonce
    payload = payloads.seal(b"forged", event_key, message.head, pad_to=16)
    sealed = AESGCM(shared.carried[-32:]).encrypt(
        nonce, event_key, message.head + shared.sealed_name
    )
    return replace(message, payload=payload, wraps=((shared.sealed_name, sealed),)).to_bytes()


def test_a_member_cannot_forge_signed_events() -> None:
    sealer, openers = signed_broker()
    first, second = (sealer.seal(PAYLOAD, n, group_of(0, 1)).message for n in range(2))
    assert openers[1].open(first.to_bytes()) == PAYLOAD
    forged = forgery(sealer, openers[1], second)
    assert (
        again(openers[1]).accept(sealer.answer(request_of(again(openers[1]), forged)), forged)
        == b"forged"
    )  # by an opener that does not verify
    for wrong in (forged, replace(second, proof=None).to_bytes()):
        with pytest.raises(DecodeError, match="not signed by the owner of the identity"):
            openers[1].open(wrong)
    other = replace(second, proof=first.proof).to_bytes()
    with pytest.raises(DecodeError, match="not signed"):
        openers[1].open(other)
    # A forgery changes nothing: neither is its number remembered.
    assert openers[1].open(second.to_bytes()) == PAYLOAD


def test_a_member_can_hand_on_a_signed_event_to_whom_it_was_not_sent() -> None:
    """A signature says who made an event, and not for whom."""
    sealer, openers = signed_broker()
    for member in (1, 2):  # a group of 1 and 2, so that they share a key
        opened(openers[member], sealer.seal(b"ours", 0, group_of(1, 2)).to_bytes(), sealer)
    event = sealer.seal(PAYLOAD, 1, group_of(0, 1)).message
    own = own_keys_of(openers[1]._own, 0)
    sealed = dict(event.wraps).get(own.name)
    assert sealed is not None
    event_key = AESGCM(own.key).decrypt(event.nonce, sealed, event.head + own.name)[:32]
    shared = sealer._ready[group_name(group_of(1, 2))]
    name, key = shared.sealed_name, shared.carried[-32:]
    wrap = AESGCM(key).encrypt(event.nonce, event_key, event.head + name)
    assert openers[2].open(replace(event, wraps=((name, wrap),)).to_bytes()) == PAYLOAD


def test_a_signed_event_has_one_content() -> None:
    """Two members get one ciphertext and different keys, which open it to different contents."""
    sealer, openers = signed_broker()
    message = sealer.seal(PAYLOAD, 0, group_of(0, 1)).message
    first = bytes(range(32))
    payload, second = two_openings(first, payloads.ONE_PAYLOAD, message.head)
    wraps = []
    for opener, event_key in zip(openers[:2], (first, second), strict=True):
        own = own_keys_of(opener._own, 0)
        bound = message.head + own.name
        wraps.append((own.name, AESGCM(own.key).encrypt(message.nonce, event_key, bound)))
    unsigned = replace(message, payload=payload, wraps=tuple(wraps))
    contents = [again(opener).open(unsigned.to_bytes()) for opener in openers[:2]]
    assert contents[0] != contents[1]
    # The sender itself, if it is a cheat, signs for one of the two keys.
    (proof,) = sign_batch(SENDER, [unsigned.to_sign(first)])
    signed = replace(unsigned, proof=proof).to_bytes()
    assert openers[0].open(signed) == contents[0]
    with pytest.raises(DecodeError, match="not signed"):
        openers[1].open(signed)


@pytest.mark.parametrize("size", [1, 2, 5, 16])
def test_one_signature_serves_a_batch(size: int) -> None:
    sealer, openers = signed_broker()
    contents = [b"%d" % number for number in range(size)]
    groups = np.repeat(group_of(0, 1)[None], size, axis=0)
    sealed = sealer.seal_batch(contents, range(size), groups)
    proofs = [event.message.proof for event in sealed]
    assert len({proof.signature for proof in proofs if proof}) == 1
    assert [opened(openers[0], event.to_bytes(), sealer) for event in sealed] == contents
    # In another order, and by the messages for one subscriber.
    for event, content in reversed([*zip(sealed, contents, strict=True)]):
        assert opened(openers[1], event.for_subscriber(1), sealer) == content
    for at in range(1, size):
        swapped = replace(sealed[at].message, proof=proofs[at - 1]).to_bytes()
        fresh = again(openers[0], verify=SENDER.identity)
        with pytest.raises(DecodeError, match="not signed"):
            opened(fresh, swapped, sealer)


def test_batches_are_refused_before_anything_is_planned() -> None:
    sealer, openers = signed_broker()
    sealer.leave(5)
    groups = np.stack([group_of(0, 1), group_of(0, 5)])
    with pytest.raises(ParameterError, match="subscriber 5 has not joined"):
        sealer.seal_batch([PAYLOAD, PAYLOAD], [0, 1], groups)
    assert not sealer._ready and sealer.encryptions == 0
    with pytest.raises(ShapeError, match="got 1, 2 and 2"):
        sealer.seal_batch([PAYLOAD], [0, 1], groups)
    assert sealer.seal_batch([], [], groups[:0]) == []
    with pytest.raises(ParameterError, match="sign must be a SigningKey"):
        GroupSealer(Naive(N), sign=SENDER.identity)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="identity must be 32 bytes"):
        again(openers[0], verify=b"short")


def test_altered_signed_events_are_refused() -> None:
    sealer, openers = signed_broker()
    groups = np.repeat(group_of(0)[None], 3, axis=0)
    message = sealer.seal_batch([PAYLOAD] * 3, range(3), groups)[2].to_bytes()
    for wrong in altered(message):
        refused(openers[0], wrong, sealer)
    assert opened(openers[0], message, sealer) == PAYLOAD


# -- states, requests, snapshots -----------------------------------------------------------------


def test_sealers_take_over_what_another_one_changed() -> None:
    first, openers = broker()
    second = sealer_of("simple", first.state)
    group = group_of(0, 1)
    for number in range(2):
        second.seal(PAYLOAD, number, group)
    first.leave(1)
    newcomer = GroupOpener(first.join(1), capacity=9)
    second.refresh(first.state)
    event = second.seal(PAYLOAD, 2, group).message
    assert len(event.wraps) == 2  # with a new key
    assert newcomer.open(event.to_bytes()) == PAYLOAD
    refused(openers[1], event.to_bytes(), first)
    old, other = first.state, GroupSealer(Naive(N)).state
    first.leave(3)
    for wrong in (old, other):
        with pytest.raises(ParameterError, match="must be a later one of this broker"):
            first.refresh(wrong)


def test_a_group_is_of_those_who_were_there_when_it_was_found() -> None:
    sealer, _ = broker()
    epoch = max(sealer.since(one) for one in range(N))
    sealer.leave(1)
    sealer.join(1)
    with pytest.raises(ParameterError, match=f"subscriber 1 joined after epoch {epoch}"):
        sealer.seal(PAYLOAD, 0, group_of(0, 1), as_of=epoch)
    assert len(sealer.seal(PAYLOAD, 0, group_of(0, 2), as_of=epoch).message.wraps) == 2
    assert len(sealer.seal(PAYLOAD, 1, group_of(0, 1), as_of=sealer.since(1)).message.wraps) == 2


def test_requests_are_answered_behind_names_that_are_not_the_brokers() -> None:
    sealer, openers = broker("hierarchy")
    event = sealer.seal(PAYLOAD, 0, group_of(0, 1)).message
    mixed = replace(event, wraps=((bytes(60), bytes(48)), *event.wraps)).to_bytes()
    answer = sealer.answer(request_of(openers[0], mixed))
    assert openers[0].accept(answer, mixed) == PAYLOAD


def test_answers_are_accepted_in_another_process_and_for_their_message_only() -> None:
    sealer, openers = broker("hierarchy")
    groups = (group_of(0, 1), group_of(0, 1), group_of(0, 1, 2, 3))
    messages = [sealer.seal(b"%d" % n, n, group).to_bytes() for n, group in enumerate(groups)]
    answer = sealer.answer(request_of(openers[0], messages[0]))
    elsewhere = again(openers[0])
    with pytest.raises(DecodeError, match="another request"):
        elsewhere.accept(answer, messages[2])
    # The second event is under the same key.
    assert [elsewhere.accept(answer, message) for message in messages[:2]] == [b"0", b"1"]
    with pytest.raises(DecodeError, match="replay"):
        elsewhere.accept(answer, messages[0])
    request_of(elsewhere, messages[2])


def test_the_state_is_safe_before_it_takes_effect() -> None:
    fails = False

    def save(state: BrokerState) -> None:
        if fails:
            raise OSError("disk full")

    sealer = GroupSealer(Naive(N), save=save)
    sealer.join(0)
    before, fails = sealer.state, True
    for change in (lambda: sealer.join(1), lambda: sealer.leave(0), sealer.renew):
        with pytest.raises(OSError, match="disk full"):
            change()
        assert sealer.state == before
    sealer.seal(PAYLOAD, 0, group_of(0))
    with pytest.raises(ParameterError, match="subscriber 1 has not joined"):
        sealer.seal(PAYLOAD, 1, group_of(1))


# -- attacks on the bytes -----------------------------------------------------------------------


@pytest.mark.parametrize("cached", [False, True])
def test_altered_events_are_refused(cached: bool) -> None:
    sealer, openers = broker()
    first, second = (sealer.seal(PAYLOAD, n, group_of(0, 1)).for_subscriber(0) for n in range(2))
    if cached:
        openers[0].open(first)
    message = second if cached else first
    for wrong in altered(message):
        refused(openers[0], wrong, sealer)
    with pytest.raises(DecodeError, match="not a message to a group"):
        openers[0].open("text")  # type: ignore[arg-type]
    assert openers[0].open(message) == PAYLOAD


def test_altered_requests_and_answers_are_refused() -> None:
    sealer, openers = broker("hierarchy")
    message = sealer.seal(PAYLOAD, 0, group_of(0, 1)).to_bytes()
    request = request_of(openers[0], message)
    for wrong in altered(request):
        with pytest.raises(DecodeError):
            sealer.answer(wrong)
    answer = sealer.answer(request)
    for wrong in altered(answer):
        with pytest.raises(DecodeError):
            openers[0].accept(wrong, message)
    kinds = [Kind.KEY_REQUEST, Kind.KEY_ANSWER, Kind.GROUP_EVENT]
    assert [request[0], answer[0], message[0]] == kinds
    assert openers[0].accept(answer, message) == PAYLOAD


@given(
    st.binary(max_size=200), st.sampled_from([Kind.GROUP_EVENT, Kind.KEY_REQUEST, Kind.KEY_ANSWER])
)
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_are_refused(tail: bytes, kind: Kind) -> None:
    for data in (tail, bytes([kind, 2]) + tail):
        refused(OPENERS[0], data, SEALER)
        with pytest.raises(DecodeError):
            SEALER.answer(data)
        for answer, message in ((data, MESSAGE), (MESSAGE, data)):
            with pytest.raises(DecodeError):
                OPENERS[0].accept(answer, message)
        with pytest.raises(DecodeError):
            OPENERS[0].restore(data)
        with pytest.raises(DecodeError):
            SEALER.restore(data)


SEALER, OPENERS = broker()
MESSAGE = SEALER.seal(PAYLOAD, 0, group_of(0, 1)).to_bytes()


def test_replays_are_refused() -> None:
    sealer, openers = broker("hierarchy")
    alice, messages = again(openers[0], remember=2), messages_of(sealer, 6, 0, 1)
    request = request_of(alice, messages[0])
    answer = sealer.answer(request)
    assert alice.accept(answer, messages[0]) == b"0"
    # A request that is sent again, by whomever, brings the same key to the same subscriber.
    for second in (answer, sealer.answer(request)):
        with pytest.raises(DecodeError, match="replay"):
            alice.accept(second, messages[0])
    for message in (messages[2], messages[1], messages[4], messages[5]):  # one may overtake another
        alice.open(message)
    for number in (0, 1, 2, 4, 5):
        with pytest.raises(DecodeError, match="replay"):
            alice.open(messages[number])
    # The largest numbers are remembered one by one; what is too old to tell is refused.
    assert (alice._too_old, alice._in_order) == (1, [2, 4, 5])
    assert alice.open(messages[3]) == b"3"


def test_parts_of_different_events_do_not_fit() -> None:
    sealer, openers = broker()
    openers[0].open(sealer.seal(PAYLOAD, 0, group_of(0, 1)).for_subscriber(0))
    one, two = (sealer.seal(b"%d" % n, n, group_of(0, 1)).message for n in (1, 2))
    sealer.leave(5)
    later = sealer.seal(b"3", 3, group_of(0, 1)).message
    for a, b in ((one, two), (two, one), (one, later)):
        for mixed in (
            replace(a, wraps=b.wraps),
            replace(a, payload=b.payload),
            replace(b, payload=a.payload, wraps=a.wraps),
            replace(a, payload=b.payload, wraps=b.wraps),
        ):
            refused(openers[0], mixed.to_bytes(), sealer)
    # Each of the fields that are bound, alone.
    for name in ("event", "epoch", "generation", "nonce", "group"):
        mixed = replace(one, **{name: getattr(later, name)})
        if mixed != one:
            refused(openers[0], mixed.to_bytes(), sealer)
    assert later.epoch != one.epoch
    assert openers[0].open(later.to_bytes()) == b"3"


def test_subscribers_cannot_ask_for_one_another() -> None:
    sealer, openers = broker("hierarchy")
    message = sealer.seal(PAYLOAD, 0, group_of(0, 1)).to_bytes()
    with pytest.raises(DecodeError, match="not in"):
        sealer.answer(request_of(openers[5], message))
    request = request_of(openers[0], message)
    stolen = replace(KeyRequest.from_bytes(request), subscriber=5).to_bytes()
    with pytest.raises(DecodeError, match="no subscriber"):
        sealer.answer(stolen)
    request_of(openers[1], message)
    with pytest.raises(DecodeError):
        openers[1].accept(sealer.answer(request), message)
    unknown = GroupOpener(SubscriberKey((77).to_bytes(4) + bytes(32)), capacity=1)
    refused(unknown, message, sealer)


def test_another_broker_knows_none_of_it() -> None:
    (sealer, openers), (other, _) = broker("hierarchy"), broker("hierarchy")
    message = sealer.seal(PAYLOAD, 0, group_of(0, 1))
    refused(openers[0], message.to_bytes(), other)
    assert opened(openers[0], message.to_bytes(), sealer) == PAYLOAD


def test_names_are_hidden_and_new_after_a_renewal() -> None:
    sealer, openers = broker()
    group = group_of(0, 1)
    first, second, third = (sealer.seal(PAYLOAD, n, group).message for n in range(3))
    personal_names = {name for name, _ in first.wraps}
    assert [len(name) for name in personal_names] == [16, 16]
    assert second.wraps[0][0] == third.wraps[0][0]
    assert second.group != third.group
    both = [sealer.seal(PAYLOAD, 9, group_of(*members)).message for members in ((0, 1), (0, 2))]
    assert both[0].group != both[1].group
    restored = GroupSealer(SimpleCache(N, 4), sealer.state)
    same = restored.seal(PAYLOAD, 3, group).message
    assert personal_names == {name for name, _ in same.wraps}
    restored.renew()
    other = [restored.seal(PAYLOAD, n, group).message for n in (4, 5)]
    # Who kept the old own keys has no use of them.
    old, new = (own_keys_of(openers[0]._own, message.generation) for message in (first, other[0]))
    assert old.key != new.key
    fresh = again(openers[0])
    assert unwrapped(other[0], fresh) == 1
    name, content = other[0].wraps[0]
    with pytest.raises(InvalidTag):
        AESGCM(old.key).decrypt(other[0].nonce, content, other[0].head + name)
    seen = {name for message in (first, second) for name, _ in message.wraps}
    assert seen.isdisjoint(name for message in other for name, _ in message.wraps)
    # New keys came with the event; nobody asks.
    assert [openers[0].open(message.to_bytes()) for message in other] == [PAYLOAD, PAYLOAD]


@pytest.mark.parametrize("name", NAMES)
def test_a_sealer_goes_on_from_a_snapshot(name: str) -> None:
    """It plans as if nothing had happened, but for what changed since."""
    sealer, _ = broker(name)
    groups = random_groups(11, 120)
    for number, group in enumerate(groups[:60]):
        sealer.seal(PAYLOAD, number, group)
    snapshot = sealer.snapshot()
    after = sealer_of(name, sealer.state)
    after.restore(snapshot)
    for number, group in enumerate(groups[60:], 60):
        one, other = (each.seal(PAYLOAD, number, group).message for each in (sealer, after))
        assert [name for name, _ in one.wraps] == [name for name, _ in other.wraps]
    # Somebody left and somebody came meanwhile: their old keys are planned with no more.
    sealer.leave(0)
    sealer.leave(1)
    sealer.join(1)
    restored = sealer_of(name, sealer.state)
    restored.restore(snapshot)
    for strategy in (sealer.strategy, restored.strategy):
        carried: set[bytes] = set()
        for group in groups & 0xFE:
            plan = strategy.plan(group)
            for wrap in plan:
                own_or_node = wrap.under[:1] in b"ph"
                assert own_or_node or wrap.under in carried or not member_mask(wrap.under, N) & 2
            carried.update(name for wrap in plan for name in wrap.carries)
    with pytest.raises(DecodeError, match="not a snapshot of"):
        GroupSealer(Naive(2 * N)).restore(snapshot)


@pytest.mark.parametrize("name", NAMES)
def test_an_opener_goes_on_from_a_snapshot(name: str) -> None:
    sealer, openers = broker(name)
    groups = random_groups(12, 80) | 1
    messages = [sealer.seal(PAYLOAD, n, g).for_subscriber(0) for n, g in enumerate(groups)]
    for message in messages[:40]:
        opened(openers[0], message, sealer)
    snapshot = openers[0].snapshot()
    after = again(openers[0])
    after.restore(snapshot)
    assert not any(key in snapshot for key in after._keys.values())
    with pytest.raises(DecodeError, match="not a snapshot"):
        again(openers[0], eviction="recency").restore(snapshot)
    for message in messages[:40]:
        with pytest.raises(DecodeError, match="replay"):
            after.open(message)
    needed = []
    for opener in (openers[0], after):
        before = sealer.encryptions
        for message in messages[40:]:
            assert opened(opener, message, sealer) == PAYLOAD
        needed.append(sealer.encryptions - before)
    assert needed[0] == needed[1]
    for wrong in islice(altered(snapshot), 0, None, 97):
        with pytest.raises(DecodeError, match="altered"):
            after.restore(wrong)
    with pytest.raises(DecodeError, match="another subscriber"):
        openers[1].restore(snapshot)


# -- what a sealer refuses ----------------------------------------------------------------------


class Wrong(Strategy):
    """Any plan."""

    made: Plan

    def _plan(self, group: Bytes) -> Plan:
        return self.made

    def _count(self, groups: Bytes) -> Index:
        raise NotImplementedError


BOTH = group_name(group_of(0, 1))


@pytest.mark.parametrize(
    ("wraps", "said"),
    [
        ([Wrap(personal(0))], "does not reach all"),
        ([Wrap(personal(0)), Wrap(personal(2))], "to others"),
        ([Wrap(group_name(group_of(0, 1, 2)))], "to others"),
        ([Wrap(set_name([0, 1, 2], 3))], "to others"),
        ([Wrap(node_name(2, 0))], "to others"),
        ([Wrap(BOTH, (group_name(group_of(0, 2)),))], "to others"),
        ([Wrap(BOTH, (BOTH, personal(0)))], "to others"),
        ([Wrap(BOTH), Wrap(personal(5))], "not joined"),
        ([Wrap(b"z")], "no key of 6 subscribers has the name 7a"),
        ([Wrap(b"s")], "no key of"),
        ([Wrap(group_name(group_of()))], "no key of"),
        ([Wrap(personal(N))], "no key of"),
        ([Wrap(node_name(3, 1))], "no key of"),
        ([Wrap(node_name(200, 0))], "no key of"),
    ],
)
def test_a_plan_that_reaches_others_is_refused(wraps: list[Wrap], said: str) -> None:
    strategy = Wrong(N)
    sealer = GroupSealer(strategy)
    for one in range(5):
        sealer.join(one)
    strategy.made = (*wraps,)
    with pytest.raises(ParameterError, match=said):
        sealer.seal(PAYLOAD, 0, group_of(0, 1))
    strategy.made = (Wrap(BOTH),)
    assert len(sealer.seal(PAYLOAD, 1, group_of(0, 1)).message.wraps) == 1


@pytest.mark.parametrize("name", NAMES)
def test_names_say_whose_keys_they_are(name: str) -> None:
    strategy = strategy_of(name, N)
    for group in random_groups(9, 60):
        masks = [member_mask(wrap.under, N) for wrap in strategy.plan(group)]
        assert sum(masks) == int.from_bytes(group.tobytes(), "little")


def test_misuse_is_refused() -> None:
    sealer, openers = broker()
    event = sealer.seal(PAYLOAD, 0, group_of(0))
    with pytest.raises(ParameterError, match="not in the group"):
        event.for_subscriber(1)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: sealer.join(0), "has joined already"),
        (lambda: sealer.join(N), "from 0 to 5, got 6"),
        (lambda: sealer.leave(-1), "got -1"),
        (lambda: (sealer.leave(3), sealer.leave(3)), "has not joined"),
        (lambda: sealer.seal("text", 1, group_of(0)), "payload must be bytes"),  # type: ignore[arg-type]
        (lambda: sealer.seal(PAYLOAD, 1.0, group_of(0)), "event must be a whole number"),  # type: ignore[arg-type]
        (lambda: sealer.seal(PAYLOAD, -1, group_of(0)), "event must be a whole number"),
        (lambda: sealer.restore("text"), "snapshot must be bytes"),  # type: ignore[arg-type]
        (lambda: openers[0].restore(None), "snapshot must be bytes"),  # type: ignore[arg-type]
        (lambda: GroupSealer(Naive(N), capacity=0), "capacity"),
        (lambda: GroupSealer(Naive(N), pad_to=0), "pad_to"),
        (lambda: GroupSealer(Naive(N + 1), sealer.state), "broker of 7 subscribers"),
        (lambda: GroupOpener(SubscriberKey(bytes(36)), capacity=1, remember=0), "remember"),
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
    own, ready = own_keys_of(openers[0]._own, 0), sealer._ready
    raw = [own.key, *(key.carried[-32:] for key in ready.values())]
    assert not any(repr(part)[2:-1] in repr((own, ready)) for part in raw)
    for thing in (sealer, sealer.state, openers[0], SubscriberKey(bytes(4) + openers[0]._own)):
        shown = repr(thing).encode()
        assert not any(secret in shown or secret.hex().encode() in shown for secret in secrets)
        for take in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(SerializationError):
                take(thing)


# -- what joins and leaves cost, and a process that is killed ------------------------------------


def test_keys_that_change_travel_with_events() -> None:
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
    assert [answers(0, 1, 2), answers(0, 1, 2), answers(0, 2)] == [0, 0, 0]


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from ccbps.delivery import GroupSealer
from ccbps.delivery.groups import pack_groups
from ccbps.delivery.strategies import SimpleCache
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


def test_a_ring_has_one_key_for_each_subscriber() -> None:
    sealer = GroupSealer(Naive(2))
    key, other = sealer.join(0), sealer.join(1)
    assert SubscriberRing.of([key, other]).key(1) is other
    for keys in ([key, key], [key, SubscriberKey.from_text(key.to_text())]):
        with pytest.raises(ParameterError, match="two are of subscriber 0"):
            SubscriberRing.of(keys)
