"""Check keys of a case: who may hold which, what changes them, and that they do not show."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ccbps import SharedSeed
from ccbps.arrays import Bytes
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    KeyMismatchError,
    SerializationError,
)
from ccbps.matching import Keying, Matcher, RoleKey
from ccbps.matching.contract.access import header_bytes
from ccbps.testing.cases import Case, Party, brokered, check, tabled, updated
from ccbps.wire import Cause


@check
def messages_under_another_key_are_refused(case: Case) -> None:
    if not brokered(case):
        return
    other = Party(case.matcher)
    events, interests = case.party.pairs(case.records, case.interests)
    theirs, also = other.pairs(case.records, case.interests)
    for pair in ((theirs, interests), (events, also)):
        answers, causes = case.party.broker.examine(*pair)
        assert causes.all() and not answers.any()
    if tabled(case):
        with pytest.raises(DecodeError):
            case.party.broker.match_all(theirs, interests)
        with pytest.raises(DecodeError):
            case.party.broker.prepare(also)
        with pytest.raises(KeyMismatchError):
            case.party.broker.match_all(events, other.broker.prepare(also))


@check
def messages_of_another_epoch_are_refused(case: Case) -> None:
    if case.matcher.keying is not Keying.SERVER:
        return
    matcher, party = case.matcher, Party(case.matcher)
    events, interests = party.pairs(case.records, case.interests)
    old = party.broker.prepare(interests)
    token = party.server.rotate()
    assert party.server.epoch == 1
    fresh, stale = party.server.publisher_key(), party.keys[0]
    assert fresh.export_secret_data() != stale.export_secret_data()
    with pytest.raises(KeyMismatchError):
        matcher.broker(token)
    broker = matcher.broker(party.server.broker_key())
    assert set(broker.examine_events(events).tolist()) == {int(Cause.EPOCH)}
    assert set(broker.examine_interests(interests).tolist()) == {int(Cause.EPOCH)}
    with pytest.raises(KeyMismatchError):
        broker.match_all(events[:0], old)
    assert (token is not None) == updated(case)
    if token is None:
        return
    sent = matcher.publisher(fresh).encode(case.records)
    for before in (old, interests):
        moved = party.broker.update(before, token, broker)
        some = broker.match_all(sent, moved)[:, : len(case.interests)]
        assert some.tolist() == case.meaning.tolist()


@check
def keys_of_another_role_or_matcher_are_refused(case: Case) -> None:
    matcher = case.matcher
    if matcher.keying is Keying.ROUNDS:
        with pytest.raises(CcbpsError):
            matcher.publisher(b"0" * 32)  # type: ignore[arg-type]
        with pytest.raises(CcbpsError):
            matcher.key_server()
        return
    if matcher.keying is Keying.SERVER:
        server = case.party.server
        keys = {
            "publisher": server.publisher_key(),
            "subscriber": server.subscriber_key("bob"),
            "broker": server.broker_key(),
        }
    else:
        keys = {"publisher": case.party.publisher.key, "subscriber": case.party.subscriber.key}
    makers: dict[str, Callable[[Any], Any]] = {name: getattr(matcher, name) for name in keys}
    for name, key in keys.items():
        assert key.role == name
        for role, make in makers.items():
            if role != name:
                with pytest.raises(KeyMismatchError):
                    make(key)
        with pytest.raises(KeyMismatchError):
            makers[name](SharedSeed.generate())
        foreign = RoleKey.make(bytes(32), key.role, key.key_id, key.epoch, key.export_secret_data())
        with pytest.raises(KeyMismatchError):
            makers[name](foreign)


@check
def roles_go_on_from_saved_keys(case: Case) -> None:
    matcher, party = case.matcher, case.party
    if matcher.keying is Keying.ROUNDS:
        seed = SharedSeed.generate()
        again = SharedSeed.from_text(seed.to_text())
        count = len(case.records)
        events = matcher.publisher(seed).encode(case.records, range(count))
        interests = matcher.subscriber(again).encode([case.interests[0]] * count, range(count))
        assert matcher.broker().match(events, interests).tolist() == case.meaning[:, 0].tolist()
        return
    if matcher.keying is Keying.SERVER:
        server = matcher.key_server(RoleKey.from_text(party.server.key.to_text()))
        keys = [server.publisher_key(), server.subscriber_key("alice"), server.broker_key()]
        makers: tuple[Any, ...] = matcher.publisher, matcher.subscriber, matcher.broker
        publisher, subscriber, broker = (
            make(RoleKey.from_text(key.to_text())) for make, key in zip(makers, keys, strict=True)
        )
        # New publishers with old subscribers, and the other way round.
        mixed = [
            broker.match_all(
                publisher.encode(case.records), party.subscriber.encode(case.interests)
            ),
            broker.match_all(
                party.publisher.encode(case.records), subscriber.encode(case.interests)
            ),
        ]
        assert [found.tolist() for found in mixed] == [case.meaning.tolist()] * 2
        return
    publisher = matcher.publisher(RoleKey.from_text(party.publisher.key.to_text()))
    reader: Any = matcher.subscriber(RoleKey.from_text(party.subscriber.key.to_text()))
    opened = reader.open(publisher.encode(case.records))
    assert opened.matched.tolist() == case.meaning.tolist()


@check
def secrets_do_not_show(case: Case) -> None:
    matcher, party = case.matcher, case.party
    roles = [party.publisher, party.subscriber]
    keys = [*getattr(party, "keys", ())]
    if matcher.keying is Keying.SERVER:
        roles += [
            party.broker,
            party.server,
            party.broker.prepare(party.subscriber.encode(case.interests)),
        ]
        keys += [party.server.key, party.server.broker_key()]
    if matcher.keying is Keying.SESSION:
        keys += [party.publisher.key, party.subscriber.key]
    shown = " ".join(f"{one!r} {one}" for one in [*roles, *keys])
    for key in keys:
        raw = key.export_secret()
        found = re.findall(rb"[0-9a-f]{16,}", raw) or [raw.hex().encode()]
        assert not any(text.decode() in shown for text in found)
    for one in [*roles, *keys]:
        with pytest.raises(SerializationError):
            pickle.dumps(one)
        with pytest.raises(SerializationError):
            copy.deepcopy(one)


@check
def keys_hold_the_macs_of_their_side(case: Case) -> None:
    if case.matcher.keying is not Keying.SERVER:
        return
    server = case.party.server
    keys = server.publisher_key(), server.subscriber_key("alice"), server.broker_key()
    event, interest, both = (key.export_secret_data()["macs"] for key in keys)
    assert event.keys() == {"EVENT"} and interest.keys() == {"INTEREST"}
    assert both == event | interest
    assert event["EVENT"] != interest["INTEREST"]


@check
def a_change_of_key_changes_the_macs(case: Case) -> None:
    if case.matcher.keying is not Keying.SERVER:
        return
    party = Party(case.matcher)
    messages = party.pairs(case.records[:1], case.interests[:1])
    old = party.server.broker_key().export_secret_data()["macs"]
    party.server.rotate()
    keys = party.server.publisher_key(), party.server.subscriber_key("alice")
    fresh = (
        case.matcher.publisher(keys[0]).encode(case.records[:1]),
        case.matcher.subscriber(keys[1]).encode(case.interests[:1]),
    )
    key = party.server.broker_key()
    new = key.export_secret_data()["macs"]
    assert not set(old.values()) & set(new.values())
    broker = case.matcher.broker(key)
    for stale, genuine, examine in zip(
        messages, fresh, (broker.examine_events, broker.examine_interests), strict=True
    ):
        assert not examine(genuine).any()
        head = header_bytes(case.matcher)
        stale[:, :head] = genuine[:, :head]
        assert examine(stale).tolist() == [Cause.ALTERED]


@check
def what_the_scheme_refuses_the_broker_refuses(case: Case) -> None:
    """Of messages with genuine MACs."""
    if case.matcher.keying is not Keying.SERVER:
        return
    broker, count = case.party.broker, len(case.records) * len(case.interests)
    causes = np.resize(np.array([Cause.VALUE, Cause.NONE], dtype=np.uint8), count)
    seen: list[Any] = []

    def odd(self: Matcher, key: Any, side: str, bodies: Bytes) -> Bytes:
        seen.append((side, bodies.tolist()))
        return causes[: len(bodies)]

    events, interests = case.party.pairs(case.records, case.interests)
    start = header_bytes(case.matcher)
    bodies = {
        "event": events[:, start:][:, : case.matcher.sizes.event],
        "interest": interests[:, start:][:, : case.matcher.sizes.interest],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(case.matcher), "check", odd)
        assert broker.examine_events(events).tolist() == causes.tolist()
        assert broker.examine_interests(interests).tolist() == causes.tolist()
    assert seen == [(side, rows.tolist()) for side, rows in bodies.items()]


@check
def epochs_are_told_apart_in_both_bytes(case: Case) -> None:
    if case.matcher.keying is not Keying.SERVER:
        return
    matcher, party = case.matcher, Party(case.matcher)
    key = party.server.key
    brokers, sent = [], []
    for epoch in (0, 1, 256, 257):
        data = key.export_secret_data()
        server = matcher.key_server(RoleKey.make(key.matcher, "server", key.key_id, epoch, data))
        assert server.epoch == epoch
        publisher = matcher.publisher(server.publisher_key())
        subscriber = matcher.subscriber(server.subscriber_key("alice"))
        brokers.append(matcher.broker(server.broker_key()))
        sent.append((publisher.encode(case.records), subscriber.encode(case.interests)))
    for number, broker in enumerate(brokers):
        for other, (events, interests) in enumerate(sent):
            cause = Cause.NONE if other == number else Cause.EPOCH
            assert set(broker.examine_events(events).tolist()) == {int(cause)}
            assert set(broker.examine_interests(interests).tolist()) == {int(cause)}


@check
def a_brokers_key_makes_no_messages(case: Case) -> None:
    """Not even with the MAC keys, and as no server either, that are right."""
    if case.matcher.keying is not Keying.SERVER:
        return
    matcher, party = case.matcher, case.party
    if case.meaning.all() or not case.meaning.any():
        return  # any message has these answers
    keys: dict[str, Any] = {"publisher": party.keys[0], "subscriber": party.keys[1]}
    key = party.server.broker_key()
    held = key.export_secret_data()
    messages = {
        "publisher": party.publisher.encode(case.records),
        "subscriber": party.subscriber.encode(case.interests),
    }

    def forged(role: Any, data: Any) -> Bytes:
        made: Any = getattr(matcher, role)(
            RoleKey.make(matcher.fingerprint, role, key.key_id, key.epoch, data)
        )
        sent: Bytes = made.encode(case.records if role == "publisher" else case.interests)
        return sent

    def issued(role: Any) -> Any:
        master = {**held, "macs": party.server.key.export_secret_data()["macs"]}
        server = matcher.key_server(
            RoleKey.make(matcher.fingerprint, "server", key.key_id, key.epoch, master)
        )
        made = server.publisher_key() if role == "publisher" else server.subscriber_key("alice")
        return made.export_secret_data()

    for role in keys:
        macs = keys[role].export_secret_data()["macs"]
        materials: tuple[Callable[[Any], Any], ...] = (lambda role: held, issued)
        for material in materials:
            try:
                sent = forged(role, {**material(role), "macs": macs})
                pair = {**messages, role: sent}
                found = party.broker.match_all(pair["publisher"], pair["subscriber"])
            except (CcbpsError, LookupError, TypeError, ValueError, AttributeError):
                continue
            assert found.tolist() != case.meaning.tolist()


@check
def users_are_locked_out_and_let_in(case: Case) -> None:
    """Where the scheme has users."""
    if case.matcher.keying is not Keying.SERVER or not case.party.broker.users:
        return
    matcher, party = case.matcher, Party(case.matcher)
    server, broker, first = party.server, party.broker, party.server.broker_key()
    assert len(broker.users) == 2
    bob = matcher.subscriber(server.subscriber_key("bob"))
    second = server.broker_key()
    events = party.publisher.encode(case.records)
    mine, his = party.subscriber.encode(case.interests), bob.encode(case.interests)
    assert set(broker.examine_interests(his).tolist()) == {int(Cause.USER)}
    broker.admit(second)
    assert len(broker.users) == 3
    broker.admit(first)  # which is older
    assert len(broker.users) == 3
    names = [f"{who} {n}" for who in ("alice", "bob") for n in range(len(case.interests))]
    table = broker.prepare(np.concatenate([mine, his]), names)
    both = np.concatenate([case.meaning, case.meaning], axis=1)
    assert broker.match_all(events, table).tolist() == both.tolist()
    saved = table.to_bytes()

    broker.revoke(server.revoke("subscriber", "alice"))
    both[:, : len(case.interests)] = False

    def holds() -> None:
        assert broker.match_all(events, table).tolist() == both.tolist()
        assert set(broker.examine_interests(mine).tolist()) == {int(Cause.USER)}
        assert not broker.examine_interests(his).any()
        with pytest.raises(DecodeError):
            broker.prepare(mine)

    holds()
    assert len(broker.users) == 2
    for older in (first, second):
        broker.admit(older)  # Alice is in both.
        holds()
        assert len(broker.users) == 2
    carol = matcher.subscriber(server.subscriber_key("carol"))
    broker.admit(server.broker_key())
    holds()
    assert len(broker.users) == 3
    hers = broker.match_all(events, carol.encode(case.interests))
    assert hers.tolist() == case.meaning.tolist()
    with pytest.raises(CcbpsError):
        broker.load(saved)
    kept = broker.load(saved, drop_unserved=True)
    assert kept.ids == names[len(case.interests) :]
    assert broker.match_all(events, kept).tolist() == case.meaning.tolist()
    broker.revoke(server.revoke("publisher", "publisher"))
    assert set(broker.examine_events(events).tolist()) == {int(Cause.USER)}
