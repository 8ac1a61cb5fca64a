"""Check rounds of a case: each is used once, by one pair."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps import SeedRing, SharedSeed
from ccbps.errors import (
    CcbpsError,
    ParameterError,
    RandomnessReuseError,
)
from ccbps.matching import Keying
from ccbps.matching.contract.kinds import Answers
from ccbps.testing.cases import Case, Party, check, unlike_interests
from ccbps.wire import Cause


@check
def messages_of_another_round_are_refused(case: Case) -> None:
    if case.matcher.keying is not Keying.ROUNDS:
        return
    events, interests = case.party.pairs(case.records, case.interests)
    answers, causes = case.party.broker.examine(events, np.roll(interests, 1, axis=0))
    assert not answers.any()
    assert set(causes.tolist()) == {int(Cause.PAIRING)}


@check
def rounds_are_used_once(case: Case) -> None:
    if case.matcher.keying is not Keying.ROUNDS:
        return
    record, interest = case.records[:1], case.interests[:1]
    party = Party(case.matcher)
    for role, what in ((party.publisher, record), (party.subscriber, interest)):
        role.encode(what, [7])
        with pytest.raises(RandomnessReuseError):
            role.encode(what, [7])
        with pytest.raises(RandomnessReuseError):
            role.encode([*what, *what], [8, 8])
        with pytest.raises(ParameterError):
            role.encode(what)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        seed = SharedSeed.generate()
        others = [one for one in case.records if one != record[0]]
        unlike = [two for one, two in unlike_interests(case) if one == interest[0]]
        # After a restart: the same again is the same message, anything else is refused.
        for make, what, other in (
            (case.matcher.publisher, record, others[:1]),
            (case.matcher.subscriber, interest, unlike[:1]),
        ):
            first = make(seed, ledger=path).encode(what, [3])
            again = make(seed, ledger=path).encode(what, [3])
            if case.matcher.answers is Answers.ROUND and what is interest:
                # Interests of one round carry what makes them differ, so this is one more of them.
                assert again.tolist() != first.tolist()
                event = case.matcher.publisher(seed).encode(record, [3])
                found = case.matcher.broker().match(event, np.concatenate([first, again]))
                assert found.tolist() == [bool(case.meaning[0, 0])] * 2
            else:
                assert again.tolist() == first.tolist()
            if other:
                with pytest.raises(RandomnessReuseError):
                    make(seed, ledger=path).encode(other, [3])


@check
def reusable_messages_take_no_rounds(case: Case) -> None:
    if case.matcher.keying is not Keying.SERVER:
        return
    with pytest.raises(ParameterError, match="round"):
        case.party.publisher.encode(case.records, range(len(case.records)))
    with pytest.raises(ParameterError, match="round"):
        case.matcher.publisher(case.party.keys[0], ledger="nowhere")


@check
def interests_are_told_apart(case: Case) -> None:
    matcher: Any = case.matcher
    if matcher.keying is not Keying.ROUNDS:
        return
    for interest in case.interests:
        name = matcher.identify(matcher.prepare(interest))
        assert type(name) is bytes
        assert matcher.identify(matcher.prepare(interest)) == name
    for one, two in unlike_interests(case):
        assert matcher.identify(matcher.prepare(one)) != matcher.identify(matcher.prepare(two))


@check
def pairs_have_seeds_of_their_own(case: Case) -> None:
    matcher = case.matcher
    if matcher.keying is not Keying.ROUNDS:
        with pytest.raises((ParameterError, TypeError)):
            case.party.publisher.encode(case.records[:1], pairs=["alice"])
        return
    if case.matcher.answers is Answers.ROUND:
        return  # See the next check.
    master, broker = SharedSeed.generate(), matcher.broker()
    labels, rounds = ["alice", "bob"], [5, 5]
    records, interests = [case.records[0]] * 2, [case.interests[0]] * 2
    wanted = [bool(case.meaning[0, 0])] * 2
    events = matcher.publisher(master).encode(records, rounds, pairs=labels)
    for seed in (master, SeedRing.of(master, labels)):
        same = matcher.subscriber(seed).encode(interests, rounds, pairs=labels)
        assert broker.match(events, same).tolist() == wanted
    swapped = matcher.subscriber(master).encode(interests, rounds, pairs=labels[::-1])
    unlabelled = matcher.subscriber(master).encode(interests[:1], rounds[:1])
    for sent, with_them in ((events, swapped), (events[:1], unlabelled), (events[1:], unlabelled)):
        answers, causes = broker.examine(sent, with_them)
        assert not answers.any()
        assert set(causes.tolist()) == {int(Cause.PAIRING)}
    # A subscriber that has the seed of its pair, and no other.
    for row, label in enumerate(labels):
        alone = matcher.subscriber(master.pair(label)).encode(interests[:1], rounds[:1])
        assert broker.match(events[row : row + 1], alone).tolist() == wanted[:1]


@check
def an_event_of_a_broadcast_serves_all_labels(case: Case) -> None:
    if case.matcher.answers is not Answers.ROUND:
        return
    matcher, master = case.matcher, SharedSeed.generate()
    broker, publisher = matcher.broker(), matcher.publisher(master)
    labels, wanted = ["alice", "bob"], [bool(case.meaning[0, 0])] * 2
    interests = [case.interests[0]] * 2
    with pytest.raises(ParameterError, match="pairs"):
        publisher.encode(case.records[:1], [5], pairs=labels[:1])
    event = publisher.encode(case.records[:1], [5])  # Nothing was claimed before.
    with pytest.raises(RandomnessReuseError):
        publisher.encode(case.records[:1], [5])
    subscriber = matcher.subscriber(master)
    same = subscriber.encode(interests, [5, 5], pairs=labels)
    assert broker.match(event, same).tolist() == wanted
    assert broker.match(np.repeat(event, 2, axis=0), same).tolist() == wanted
    for label in labels:
        with pytest.raises(RandomnessReuseError):
            subscriber.encode(case.interests[-1:], [5], pairs=[label])
    with pytest.raises(RandomnessReuseError):
        subscriber.encode(interests, [6, 6], pairs=["alice", "alice"])
    # Other labels, none, and other subscribers under the same seed meet the same event.
    more = [
        subscriber.encode(interests[:1], [5], pairs=["carol"]),
        subscriber.encode(interests[:1], [5]),
        matcher.subscriber(master).encode(interests[:1], [5], pairs=["alice"]),
    ]
    assert broker.match(event, np.concatenate(more)).tolist() == wanted[:1] * 3
    assert len({row.tobytes() for row in np.concatenate([same, *more])}) == 5
    # Another round, another seed, and the seed of a pair do not.
    for seed, number in ((master, 6), (SharedSeed.generate(), 5), (master.pair("alice"), 5)):
        other = matcher.subscriber(seed).encode(interests[:1], [number])
        answers, causes = broker.examine(event, other)
        assert not answers.any() and causes.tolist() == [Cause.PAIRING]
    with pytest.raises((CcbpsError, TypeError)):
        broker.match(np.repeat(event, 3, axis=0), same)
