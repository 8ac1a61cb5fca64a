"""Check tables of a case: what a broker keeps, changes, saves and brings to a new key."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any, Final

import numpy as np
import pytest

from ccbps.errors import (
    DecodeError,
    KeyMismatchError,
    ParameterError,
)
from ccbps.matching import Table
from ccbps.matching.contract import broker as broker_module
from ccbps.testing.cases import Case, Party, check, tabled, updated
from ccbps.wire import Cause

CONCURRENT: Final = 0.03
"""Seconds of matching, of each case, while another thread changes the table."""


@check
def tables_grow_and_shrink(case: Case) -> None:
    if not tabled(case):
        return
    party, names = case.party, [f"i{n}" for n in range(len(case.interests))]
    events, meaning = party.publisher.encode(case.records), case.meaning
    interests = party.subscriber.encode(case.interests)

    def holds(table: Table, columns: Sequence[int]) -> None:
        assert [str(one) for one in table.ids] == [names[column] for column in columns]
        assert len(table) == len(columns)
        found = party.broker.match_all(events, table)
        assert found.tolist() == meaning[:, list(columns)].tolist()
        some, causes = party.broker.examine_all(events, table)
        assert some.tolist() == found.tolist() and not causes.any()

    every = list(range(len(names)))
    table = party.broker.prepare(interests[:1], names[:1])
    for column in every[1:]:
        table.add(interests[column : column + 1], [names[column]])
    holds(table, every)
    holds(party.broker.load(table.to_bytes()), every)
    gone = every[::2]
    table.remove([names[column] for column in gone])
    kept = [column for column in every if column not in gone]
    holds(table, kept)
    table.add(interests[gone], [names[column] for column in gone])
    holds(table, [*kept, *gone])
    other = party.broker.prepare(interests[:0])
    other.merge(table)
    holds(other, [*kept, *gone])
    with pytest.raises(ParameterError):
        other.merge(table)
    with pytest.raises(ParameterError):
        table.add(interests[:1], names[:1])
    with pytest.raises(ParameterError):
        table.remove(["nobody"])
    holds(table, [*kept, *gone])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        table.save(path)
        table.remove(table.ids)
        holds(table, [])
        holds(party.broker.load(path), [*kept, *gone])
    saved = bytearray(other.to_bytes())
    for place in range(0, len(saved), max(1, len(saved) // 50)):
        bent = saved.copy()
        bent[place] ^= 4
        with pytest.raises((DecodeError, KeyMismatchError)):
            party.broker.load(bytes(bent))
    with pytest.raises(KeyMismatchError):
        Party(case.matcher).broker.load(bytes(saved))


@check
def covering_is_containment(case: Case) -> None:
    if not tabled(case):
        return
    party = case.party
    interests = party.subscriber.encode(case.interests)
    if not case.matcher.covering:
        with pytest.raises(ParameterError):
            party.broker.covers(interests, interests)
        return
    covers = party.broker.covers(interests, party.broker.prepare(interests))
    assert covers.shape == (len(interests),) * 2 and covers.diagonal().all()
    for wide, narrow in np.argwhere(covers):
        assert not (case.meaning[:, narrow] & ~case.meaning[:, wide]).any()


@check
def a_refused_event_has_no_answers(case: Case) -> None:
    if not tabled(case):
        return
    events = case.party.publisher.encode(case.records)
    interests = case.party.subscriber.encode(case.interests)
    row = int(np.argmax(case.meaning.sum(axis=1)))
    events[row, -1] ^= 1
    wanted = case.meaning
    wanted[row] = False
    for some in (interests, case.party.broker.prepare(interests)):
        answers, causes = case.party.broker.examine_all(events, some)
        assert answers.tolist() == wanted.tolist()
        assert causes[row] == Cause.ALTERED and np.count_nonzero(causes) == 1


@check
def tables_of_another_key_are_not_merged(case: Case) -> None:
    if not tabled(case):
        return
    party, other = case.party, Party(case.matcher)
    table = party.broker.prepare(
        party.subscriber.encode(case.interests), range(len(case.interests))
    )
    theirs = other.broker.prepare(other.subscriber.encode(case.interests[:1]), ["theirs"])
    other.server.rotate()
    subscriber = case.matcher.subscriber(other.server.subscriber_key("alice"))
    broker = case.matcher.broker(other.server.broker_key())
    later = broker.prepare(subscriber.encode(case.interests[:1]), ["later"])
    for one, foreign in ((table, theirs), (table, later), (later, theirs), (theirs, later)):
        names = one.ids
        with pytest.raises(KeyMismatchError):
            one.merge(foreign)
        assert one.ids == names
    events = party.publisher.encode(case.records)
    assert party.broker.match_all(events, table).tolist() == case.meaning.tolist()


@check
def tokens_are_used_once_and_in_turn(case: Case) -> None:
    """A token brings interests of its old epoch to its new one, and no others anywhere."""
    if not tabled(case) or not updated(case):
        return
    matcher, party = case.matcher, Party(case.matcher)
    names = [f"i{n}" for n in range(len(case.interests))]
    interests = party.subscriber.encode(case.interests)
    table = party.broker.prepare(interests, names)
    brokers, tokens = [party.broker], []
    for _ in range(2):
        tokens.append(party.server.rotate())
        brokers.append(matcher.broker(party.server.broker_key()))
    moved = brokers[0].update(table, tokens[0], brokers[1])
    messages = brokers[0].update(interests, tokens[0], brokers[1])
    assert moved.ids == table.ids == names
    stranger = Party(matcher)
    strange = stranger.server.rotate()
    unknown = matcher.broker(stranger.server.broker_key())
    for what, token, old, new in (
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
        with pytest.raises((KeyMismatchError, DecodeError)):
            old.update(what, token, new)
    events = matcher.publisher(party.server.publisher_key()).encode(case.records)
    for before in (moved, messages):
        last = brokers[1].update(before, tokens[1], brokers[2])
        assert brokers[2].match_all(events, last).tolist() == case.meaning.tolist()


@check
def numbers_of_interests_are_not_given_again(case: Case) -> None:
    if not tabled(case):
        return
    party = case.party
    one = party.subscriber.encode(case.interests[:1])
    table = party.broker.prepare(np.repeat(one, 3, axis=0))
    assert table.ids == [0, 1, 2]
    table.remove([2])
    table.add(one)
    assert sorted(table.ids) == [0, 1, 3]
    table.remove([3])
    again = party.broker.load(table.to_bytes())
    again.add(one)
    assert sorted(again.ids) == [0, 1, 4]
    if not updated(case):
        return
    party = Party(case.matcher)
    one = party.subscriber.encode(case.interests[:1])
    table = party.broker.prepare(np.repeat(one, 3, axis=0))
    table.remove([2])
    token = party.server.rotate()
    new = case.matcher.broker(party.server.broker_key())
    later = case.matcher.subscriber(party.server.subscriber_key("alice"))
    moved = party.broker.update(table, token, new)
    moved.add(later.encode(case.interests[:1]))
    assert sorted(moved.ids) == [0, 1, 3]


@check
def many_events_are_matched_block_by_block(case: Case) -> None:
    if not tabled(case):
        return
    rows = list(range(len(case.records))) + list(range(len(case.records)))[::-1]
    events = case.party.publisher.encode([case.records[row] for row in rows])
    interests = case.party.subscriber.encode(case.interests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_module, "MATCH_ROWS", 2)
        for some in (interests, case.party.broker.prepare(interests)):
            found = case.party.broker.match_all(events, some)
            assert found.tolist() == case.meaning[rows].tolist()
        answers, causes = case.party.broker.examine_all(events, interests)
        assert answers.tolist() == case.meaning[rows].tolist() and not causes.any()


@check
def a_table_is_as_it_was_when_adding_fails(case: Case) -> None:
    if not tabled(case):
        return
    kind: Any = type(case.matcher)
    party, real = case.party, kind.table
    interests = party.subscriber.encode(case.interests)
    events, meaning = party.publisher.encode(case.records), case.meaning
    kept, some = interests[:1], np.concatenate([interests, interests])
    table = party.broker.prepare(kept, ["kept"])
    # The first time is for the new interests, others are when parts are joined.
    for times in range(1, 5):
        calls = [0]

        def failing(
            self: Any, *arguments: Any, times: int = times, calls: list[int] = calls
        ) -> Any:
            calls[0] += 1
            if calls[0] == times:
                raise RuntimeError("no table today")
            return real(self, *arguments)

        for add in (some, some[:1]):
            calls[0] = 0
            names = [f"new {n}" for n in range(len(add))]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(kind, "table", failing)
                try:
                    table.add(add, names)
                except RuntimeError:
                    assert calls[0] >= times
                else:
                    assert calls[0] < times
            if len(table) > 1:
                table.remove(names)  # It was not called that often.
                assert calls[0] < times
            assert table.ids == ["kept"] and len(table) == 1 and len(table.messages) == 1
            found = party.broker.match_all(events, table)
            assert found.tolist() == meaning[:, :1].tolist()
            table.add(add, names)
            assert table.ids == ["kept", *names]
            table.remove(names)


@check
def a_table_may_change_while_it_is_matched(case: Case) -> None:
    """In another thread: answers are those of some moment."""
    if not tabled(case):
        return
    party, count = case.party, len(case.interests)
    events = party.publisher.encode(case.records)
    interests = party.subscriber.encode(case.interests)
    table = party.broker.prepare(interests, [f"stays {n}" for n in range(count)])
    both, problems, done = np.concatenate([case.meaning] * 2, axis=1), [], [False]
    wanted = {count: case.meaning.tolist(), 2 * count: both.tolist()}
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
            found = party.broker.match_all(events, table)
            assert found.shape[1] in wanted
            assert found.tolist() == wanted[found.shape[1]]
    finally:
        done[0] = True
        thread.join()
        sys.setswitchinterval(interval)
    assert not problems
