"""Check keys of roles, and everything that follows from a key server: epochs, users, tables."""

from __future__ import annotations

import copy
import pickle
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any, Final

import numpy as np
import pytest

from ccbps import SharedSeed
from ccbps.arrays import Bytes
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    KeyMismatchError,
    ParameterError,
    SerializationError,
    ShapeError,
)
from ccbps.matching import Matcher, RoleKey, Table
from ccbps.matching.contract import broker as broker_module
from ccbps.matching.contract.access import header_bytes
from ccbps.matching.contract.parties import Party
from ccbps.testing.cases import (
    Case,
    alone,
    brokered,
    check,
    keyed,
    one_time,
    refuses,
    updated,
)
from ccbps.wire import Cause

CONCURRENT: Final = 0.03
"""Seconds of matching, of each case, while another thread changes the table."""

# -- keys -----------------------------------------------------------------------------------------


@check(brokered, alone)
def messages_under_another_key_are_refused(case: Case) -> None:
    """Check messages of one side under another seed or server."""
    party, other = case.party, Party(case.matcher)
    events, interests = case.pairs()
    theirs, also = other.pairs(case.records, case.interests)
    for pair in ((theirs, interests), (events, also)):
        answers, causes = party.broker.examine(*pair)
        assert causes.all() and not answers.any()
    if keyed(case):
        refuses(DecodeError, party.broker.match_all, theirs, interests)
        refuses(DecodeError, party.broker.prepare, also)
        refuses(KeyMismatchError, party.broker.match_all, events, other.broker.prepare(also))


@check(keyed)
def messages_of_another_epoch_are_refused(case: Case) -> None:
    """Check messages and tables of the last epoch, and bring the interests to the next one."""
    matcher, party = case.matcher, Party(case.matcher)
    events, interests = party.pairs(case.records, case.interests)
    old = party.broker.prepare(interests)
    token = party.server.rotate()
    assert party.server.epoch == 1
    later = Party(matcher, server=party.server)
    fresh, stale = (each.keys["publisher"].export_secret_data() for each in (later, party))
    assert fresh != stale
    refuses(KeyMismatchError, matcher.broker, token)
    assert later.causes(events, interests) == {Cause.EPOCH}
    refuses(KeyMismatchError, later.broker.match_all, events[:0], old)
    assert (token is not None) == updated(case)
    if token is None:
        return
    sent = later.publisher.encode(case.records)
    for before in (old, interests):
        moved = party.broker.update(before, token, later.broker)
        answers = later.broker.match_all(sent, moved)[:, : len(case.interests)]
        assert answers.tolist() == case.meaning.tolist()


@check()
def keys_of_another_role_or_matcher_are_refused(case: Case) -> None:
    """Check that every role takes its own keys only."""
    matcher = case.matcher
    if one_time(case):
        refuses(CcbpsError, matcher.publisher, b"0" * 32)
        refuses(CcbpsError, matcher.key_server)
        return
    keys = case.party.keys
    makers: dict[str, Callable[[Any], Any]] = {role: getattr(matcher, role) for role in keys}
    for name, key in keys.items():
        assert key.role == name
        for role, make in makers.items():
            if role != name:
                refuses(KeyMismatchError, make, key)
        refuses(KeyMismatchError, makers[name], SharedSeed.generate())
        foreign = RoleKey.make(bytes(32), key.role, key.key_id, key.epoch, key.export_secret_data())
        refuses(KeyMismatchError, makers[name], foreign)


@check(alone)
def roles_go_on_from_saved_keys(case: Case) -> None:
    """Check that restored roles understand the roles that were saved."""
    matcher, party = case.matcher, case.party
    expected = case.meaning.tolist()
    if one_time(case):
        seed = party.keys["publisher"]
        again = SharedSeed.from_text(seed.to_text())
        count = len(case.records)
        events = matcher.publisher(seed).encode(case.records, range(count))
        interests = matcher.subscriber(again).encode([case.interests[0]] * count, range(count))
        assert party.broker.match(events, interests).tolist() == case.meaning[:, 0].tolist()
        return
    if keyed(case):
        server = matcher.key_server(RoleKey.from_text(party.server.key.to_text()))
        keys = Party(matcher, server=server).keys
    else:
        keys = {"publisher": party.publisher.key, "subscriber": party.subscriber.key}
    roles: dict[str, Any] = {
        role: getattr(matcher, role)(RoleKey.from_text(key.to_text())) for role, key in keys.items()
    }
    publisher, subscriber = roles["publisher"], roles["subscriber"]
    if not keyed(case):
        assert subscriber.open(publisher.encode(case.records)).matched.tolist() == expected
        return
    # New publishers with old subscribers, and the other way round.
    for feed, asker in ((publisher, party.subscriber), (party.publisher, subscriber)):
        answers = roles["broker"].match_all(feed.encode(case.records), asker.encode(case.interests))
        assert answers.tolist() == expected


@check()
def secrets_do_not_show(case: Case) -> None:
    """Check that roles, keys and tables neither print, pickle nor copy their secrets."""
    party = case.party
    roles, keys = [party.publisher, party.subscriber], [*party.keys.values()]
    if keyed(case):
        roles += [party.broker, party.server, party.broker.prepare(case.sides()[1])]
        keys.append(party.server.key)
    shown = " ".join(f"{holder!r} {holder}" for holder in [*roles, *keys])
    for key in keys:
        raw = key.export_secret()
        texts = re.findall(rb"[0-9a-f]{16,}", raw) or [raw.hex().encode()]
        assert not any(text.decode() in shown for text in texts)
    for holder in [*roles, *keys]:
        refuses(SerializationError, pickle.dumps, holder)
        refuses(SerializationError, copy.deepcopy, holder)


@check(keyed)
def keys_hold_the_macs_of_their_side(case: Case) -> None:
    """Check that only brokers hold the MAC keys of both sides, and need them."""
    keys = case.party.keys
    event, interest, both = (key.export_secret_data()["macs"] for key in keys.values())
    assert event.keys() == {"EVENT"} and interest.keys() == {"INTEREST"}
    assert both == event | interest
    assert event["EVENT"] != interest["INTEREST"]
    whole = keys["broker"]
    for macs in (event, interest):
        data = {**whole.export_secret_data(), "macs": macs}
        half = RoleKey.make(whole.matcher, "broker", whole.key_id, whole.epoch, data)
        refuses(KeyMismatchError, case.matcher.broker, half)


@check(keyed)
def a_change_of_key_changes_the_macs(case: Case) -> None:
    """Check that old messages under new headers are altered ones."""
    party = Party(case.matcher)
    content = case.records[:1], case.interests[:1]
    messages = party.pairs(*content)
    party.server.rotate()
    later = Party(case.matcher, server=party.server)
    old, new = (each.keys["broker"].export_secret_data()["macs"] for each in (party, later))
    assert not set(old.values()) & set(new.values())
    fresh, head = later.pairs(*content), header_bytes(case.matcher)
    assert later.causes(*fresh) == {Cause.NONE}
    for stale, genuine in zip(messages, fresh, strict=True):
        stale[:, :head] = genuine[:, :head]
    assert later.causes(*messages) == {Cause.ALTERED}


@check(keyed)
def what_the_scheme_refuses_the_broker_refuses(case: Case) -> None:
    """Check that the broker gives the scheme's causes for messages with genuine MACs."""
    broker, sizes = case.party.broker, case.matcher.sizes
    causes = np.resize(np.array([Cause.VALUE, Cause.NONE], dtype=np.uint8), case.meaning.size)
    seen: list[Any] = []

    def odd(self: Matcher, key: Any, side: str, bodies: Bytes) -> Bytes:
        seen.append((side, bodies.tolist()))
        return causes[: len(bodies)]

    events, interests = case.pairs()
    start = header_bytes(case.matcher)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(case.matcher), "check", odd)
        assert broker.examine_events(events).tolist() == causes.tolist()
        assert broker.examine_interests(interests).tolist() == causes.tolist()
    assert seen == [
        ("event", events[:, start : start + sizes.event].tolist()),
        ("interest", interests[:, start : start + sizes.interest].tolist()),
    ]


@check(keyed)
def epochs_are_told_apart_in_both_bytes(case: Case) -> None:
    """Check messages of epochs that differ in one byte of their number or in both."""
    key = case.party.server.key
    parties = []
    for epoch in (0, 1, 256, 257):
        master = RoleKey.make(key.matcher, "server", key.key_id, epoch, key.export_secret_data())
        server = case.matcher.key_server(master)
        assert server.epoch == epoch
        parties.append(Party(case.matcher, server=server))
    sent = [party.pairs(case.records, case.interests) for party in parties]
    for number, party in enumerate(parties):
        for other, messages in enumerate(sent):
            cause = Cause.NONE if other == number else Cause.EPOCH
            assert party.causes(*messages) == {cause}


@check(keyed)
def a_brokers_key_makes_no_messages(case: Case) -> None:
    """Check that a broker's key serves neither a client nor a server, even with MAC keys."""
    matcher, party = case.matcher, case.party
    if case.meaning.all() or not case.meaning.any():
        return  # Any message has these answers.
    key = party.keys["broker"]
    held = key.export_secret_data()
    messages = case.sides()

    def key_of(role: Any, data: Any) -> RoleKey:
        return RoleKey.make(matcher.digest, role, key.key_id, key.epoch, data)

    def issued(role: str) -> Any:
        macs = party.server.key.export_secret_data()["macs"]
        server = Party(matcher, server=matcher.key_server(key_of("server", {**held, "macs": macs})))
        return server.keys[role].export_secret_data()

    for side, (role, content) in enumerate(
        (("publisher", case.records), ("subscriber", case.interests))
    ):
        macs = party.keys[role].export_secret_data()["macs"]
        for material in (lambda role: held, issued):
            try:
                forger = getattr(matcher, role)(key_of(role, {**material(role), "macs": macs}))
                pair = [*messages]
                pair[side] = forger.encode(content)
                answers = party.broker.match_all(*pair)
            except (CcbpsError, LookupError, TypeError, ValueError, AttributeError):
                continue
            assert answers.tolist() != case.meaning.tolist()


@check(keyed)
def users_are_locked_out_and_let_in(case: Case) -> None:
    """Check revoked users and new ones, where the scheme has users."""
    if not case.party.broker.users:
        return
    matcher, party = case.matcher, Party(case.matcher)
    server, broker, first = party.server, party.broker, party.keys["broker"]
    assert len(broker.users) == 2
    bob = matcher.subscriber(server.subscriber_key("bob"))
    second = server.broker_key()
    events = party.publisher.encode(case.records)
    mine, his = (user.encode(case.interests) for user in (party.subscriber, bob))
    assert set(broker.examine_interests(his).tolist()) == {Cause.USER}
    for key in (second, first):  # The first is older.
        broker.admit(key)
        assert len(broker.users) == 3
    names = [f"{who} {n}" for who in ("alice", "bob") for n in range(len(case.interests))]
    table = broker.prepare(np.concatenate([mine, his]), names)
    both = np.concatenate([case.meaning, case.meaning], axis=1)
    assert broker.match_all(events, table).tolist() == both.tolist()
    saved = table.to_bytes()

    broker.revoke(server.revoke("subscriber", "alice"))
    both[:, : len(case.interests)] = False

    def holds(users: int) -> None:
        assert broker.match_all(events, table).tolist() == both.tolist()
        assert set(broker.examine_interests(mine).tolist()) == {Cause.USER}
        assert not broker.examine_interests(his).any()
        refuses(DecodeError, broker.prepare, mine)
        assert len(broker.users) == users

    holds(2)
    for older in (first, second):
        broker.admit(older)  # Alice is in both.
        holds(2)
    carol = matcher.subscriber(server.subscriber_key("carol"))
    broker.admit(server.broker_key())
    holds(3)
    hers = broker.match_all(events, carol.encode(case.interests))
    assert hers.tolist() == case.meaning.tolist()
    refuses(CcbpsError, broker.load, saved)
    kept = broker.load(saved, drop_unserved=True)
    assert kept.ids == names[len(case.interests) :]
    assert broker.match_all(events, kept).tolist() == case.meaning.tolist()
    broker.revoke(server.revoke("publisher", "publisher"))
    assert set(broker.examine_events(events).tolist()) == {Cause.USER}


# -- tables ---------------------------------------------------------------------------------------


@check(keyed)
def tables_grow_and_shrink(case: Case) -> None:
    """Check a table that is added to, removed from, merged, saved and loaded."""
    broker, names = case.party.broker, [f"i{n}" for n in range(len(case.interests))]
    events, interests = case.sides()

    def holds(table: Table, columns: Sequence[int]) -> None:
        assert [str(name) for name in table.ids] == [names[column] for column in columns]
        assert len(table) == len(columns)
        answers = broker.match_all(events, table)
        assert answers.tolist() == case.meaning[:, list(columns)].tolist()
        examined, causes = broker.examine_all(events, table)
        assert examined.tolist() == answers.tolist() and not causes.any()

    every = list(range(len(names)))
    table = broker.prepare(interests[:1], names[:1])
    for column in every[1:]:
        table.add(interests[column : column + 1], [names[column]])
    holds(table, every)
    assert len(table.parts) <= len(table).bit_length()
    holds(broker.load(table.to_bytes()), every)
    table.remove(names[:1])
    table.add(interests[:1], names[:1])
    holds(table, [*every[1:], 0])
    table = broker.prepare(interests, names)
    gone, kept = every[::2], every[1::2]
    table.remove([names[column] for column in gone])
    holds(table, kept)
    table.add(interests[gone], [names[column] for column in gone])
    holds(table, [*kept, *gone])
    other = broker.prepare(interests[:0])
    other.merge(table)
    holds(other, [*kept, *gone])
    refuses(ParameterError, other.merge, table)
    refuses(ParameterError, table.add, interests[:1], names[:1])
    refuses(ParameterError, table.remove, ["nobody"])
    holds(table, [*kept, *gone])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        table.save(path)
        table.remove(table.ids)
        holds(table, [])
        holds(broker.load(path), [*kept, *gone])
    saved = bytearray(other.to_bytes())
    for place in range(0, len(saved), max(1, len(saved) // 50)):
        bent = saved.copy()
        bent[place] ^= 4
        refuses((DecodeError, KeyMismatchError), broker.load, bytes(bent))
    cut = bytes(saved[:-33])
    refuses(DecodeError, broker.load, cut + sha256(cut).digest())
    refuses(KeyMismatchError, Party(case.matcher).broker.load, bytes(saved))


@check(keyed)
def covering_is_containment(case: Case) -> None:
    """Check that an interest that covers another has all of its matches."""
    broker, (_, interests) = case.party.broker, case.sides()
    if not case.matcher.covering:
        refuses(ParameterError, broker.covers, interests, interests)
        return
    covers = broker.covers(interests, broker.prepare(interests))
    assert covers.shape == (len(interests),) * 2 and covers.diagonal().all()
    for wide, narrow in np.argwhere(covers):
        assert not (case.meaning[:, narrow] & ~case.meaning[:, wide]).any()


@check(keyed)
def a_refused_event_has_no_answers(case: Case) -> None:
    """Check an altered event among others."""
    (events, interests), broker, expected = case.sides(), case.party.broker, case.meaning
    row = int(np.argmax(expected.sum(axis=1)))
    events[row, -1] ^= 1
    expected[row] = False
    for form in (interests, broker.prepare(interests)):
        answers, causes = broker.examine_all(events, form)
        assert answers.tolist() == expected.tolist()
        assert causes[row] == Cause.ALTERED and np.count_nonzero(causes) == 1


@check(keyed)
def tables_of_another_key_are_not_merged(case: Case) -> None:
    """Check tables of two servers and of two epochs."""
    other = Party(case.matcher)
    events, interests = case.sides()
    table = case.party.broker.prepare(interests, range(len(interests)))
    theirs = other.broker.prepare(other.subscriber.encode(case.interests[:1]), ["theirs"])
    other.server.rotate()
    next_epoch = Party(case.matcher, server=other.server)
    message = next_epoch.subscriber.encode(case.interests[:1])
    later = next_epoch.broker.prepare(message, ["later"])
    for mine, foreign in ((table, theirs), (table, later), (later, theirs), (theirs, later)):
        names = mine.ids
        refuses(KeyMismatchError, mine.merge, foreign)
        assert mine.ids == names
    assert case.party.broker.match_all(events, table).tolist() == case.meaning.tolist()


@check(keyed, updated)
def tokens_are_used_once_and_in_turn(case: Case) -> None:
    """Check that a token brings interests of its old epoch to its new one, and no others."""
    matcher, party = case.matcher, Party(case.matcher)
    names = [f"i{n}" for n in range(len(case.interests))]
    interests = party.subscriber.encode(case.interests)
    table = party.broker.prepare(interests, names)
    parties, tokens = [party], []
    for _ in range(2):
        tokens.append(party.server.rotate())
        parties.append(Party(matcher, server=party.server))
    brokers = [each.broker for each in parties]
    moved = brokers[0].update(table, tokens[0], brokers[1])
    messages = brokers[0].update(interests, tokens[0], brokers[1])
    assert moved.ids == table.ids == names
    stranger = Party(matcher)
    strange = stranger.server.rotate()
    unknown = Party(matcher, server=stranger.server).broker
    for content, token, old, new in (
        # Again, and too early, and to another epoch.
        (moved, tokens[0], brokers[0], brokers[1]),
        (moved, tokens[0], brokers[1], brokers[2]),
        (messages, tokens[0], brokers[0], brokers[1]),
        (messages, tokens[0], brokers[1], brokers[2]),
        (table, tokens[1], brokers[0], brokers[1]),
        (table, tokens[1], brokers[1], brokers[2]),
        (interests, tokens[1], brokers[1], brokers[2]),
        (table, tokens[0], brokers[0], brokers[2]),
        # By another server.
        (table, strange, brokers[0], brokers[1]),
        (interests, strange, brokers[0], brokers[1]),
        (table, tokens[0], brokers[0], unknown),
    ):
        refuses((KeyMismatchError, DecodeError), old.update, content, token, new)
    events = parties[2].publisher.encode(case.records)
    for before in (moved, messages):
        last = brokers[1].update(before, tokens[1], brokers[2])
        assert brokers[2].match_all(events, last).tolist() == case.meaning.tolist()


@check(keyed)
def numbers_of_interests_are_not_given_again(case: Case) -> None:
    """Check that a table does not give the number of a removed interest to another."""
    party = Party(case.matcher)
    message = party.subscriber.encode(case.interests[:1])
    table = party.broker.prepare(np.repeat(message, 3, axis=0))
    assert table.ids == [0, 1, 2]
    table.remove([2])
    if updated(case):
        token = party.server.rotate()
        later = Party(case.matcher, server=party.server)
        moved = party.broker.update(table, token, later.broker)
        moved.add(later.subscriber.encode(case.interests[:1]))
        assert sorted(moved.ids) == [0, 1, 3]
    table.add(message)
    assert sorted(table.ids) == [0, 1, 3]
    table.remove([3])
    again = party.broker.load(table.to_bytes())
    again.add(message)
    assert sorted(again.ids) == [0, 1, 4]


@check(keyed)
def many_events_are_matched_block_by_block(case: Case) -> None:
    """Check events that do not fit one block."""
    broker, (events, interests) = case.party.broker, case.sides()
    rows = [*range(len(events)), *range(len(events))[::-1]]
    expected = case.meaning[rows].tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_module, "MATCH_ROWS", 2)
        for form in (interests, broker.prepare(interests)):
            assert broker.match_all(events[rows], form).tolist() == expected
        answers, causes = broker.examine_all(events[rows], interests)
        assert answers.tolist() == expected and not causes.any()


@check(keyed)
def only_pairs_of_a_mask_are_tested(case: Case) -> None:
    """Check `match_all` behind a pre-filter: the same answers where it is true, none elsewhere."""
    broker, (events, interests) = case.party.broker, case.sides()
    for where in (case.meaning, ~case.meaning, np.indices(case.meaning.shape).sum(axis=0) % 2 == 0):
        expected = (case.meaning & where).tolist()
        assert broker.match_all(events, interests, where=where).tolist() == expected
    table = broker.prepare(interests)
    refuses(ParameterError, broker.match_all, events, table, where=case.meaning)
    refuses(ShapeError, broker.match_all, events, interests, where=case.meaning[:, 1:])


@check(keyed)
def a_table_is_as_it_was_when_adding_fails(case: Case) -> None:
    """Check a table whose content cannot be made, now and then."""
    kind: Any = type(case.matcher)
    broker, real, calls = case.party.broker, kind.table, [0]
    events, interests = case.sides()
    twice = np.concatenate([interests, interests])
    table = broker.prepare(interests[:1], ["kept"])
    # The first time is for the new interests, others are when parts are joined.
    for times in range(1, 5):

        def failing(self: Any, *arguments: Any, times: int = times) -> Any:
            calls[0] += 1
            if calls[0] == times:
                raise RuntimeError("no table today")
            return real(self, *arguments)

        for added in (twice, twice[:1]):
            calls[0], failed = 0, False
            names = [f"new {n}" for n in range(len(added))]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(kind, "table", failing)
                try:
                    table.add(added, names)
                except RuntimeError:
                    failed = True
            assert failed == (calls[0] >= times)
            if not failed:
                table.remove(names)
            assert table.ids == ["kept"] and len(table) == 1 and len(table.messages) == 1
            answers = broker.match_all(events, table)
            assert answers.tolist() == case.meaning[:, :1].tolist()
            table.add(added, names)
            assert table.ids == ["kept", *names]
            table.remove(names)


@check(keyed)
def a_table_may_change_while_it_is_matched(case: Case) -> None:
    """Check that answers are those of some moment while another thread changes the table."""
    (events, interests), count = case.sides(), len(case.interests)
    table = case.party.broker.prepare(interests, [f"stays {n}" for n in range(count)])
    both, problems, done = np.concatenate([case.meaning] * 2, axis=1), [], [False]
    expected = {count: case.meaning.tolist(), 2 * count: both.tolist()}
    comes = [f"comes {n}" for n in range(count)]

    def change() -> None:
        try:
            while not done[0]:
                table.add(interests, comes)
                time.sleep(0)
                table.remove(comes)
                time.sleep(0)
        except Exception as error:
            problems.append(error)

    interval, thread = sys.getswitchinterval(), Thread(target=change)
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        stop = time.monotonic() + CONCURRENT
        while time.monotonic() < stop and not problems:
            answers = case.party.broker.match_all(events, table)
            assert answers.shape[1] in expected
            assert answers.tolist() == expected[answers.shape[1]]
    finally:
        done[0] = True
        thread.join()
        sys.setswitchinterval(interval)
    assert not problems
