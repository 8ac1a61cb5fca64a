"""Three brokers as services match right, whatever happens to them meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from ccbps import Schema, UInt
from ccbps.errors import ParameterError
from ccbps.matching import ThreeBrokerMatch
from tests.support.trios import Parts, running

SCHEMA = Schema(price=UInt(8), volume=UInt(6))
MATCHER = ThreeBrokerMatch.box(SCHEMA)


def test_a_trio_matches() -> None:
    texts = [f"price > {n} AND volume < {60 - n % 40}" for n in range(150)]
    predicates = [SCHEMA.parse(text) for text in texts]
    rng = np.random.default_rng(5)
    events = SCHEMA.encode({"price": rng.integers(0, 256, 40), "volume": rng.integers(0, 64, 40)})
    expected = np.stack([predicate.evaluate(events) for predicate in predicates], axis=1)
    with running(MATCHER, workers=2) as (parts, leader):
        feed, ann = MATCHER.publisher(parts.public), MATCHER.subscriber(parts.public)
        leader.greet("feed", feed.hellos)
        leader.greet("ann", ann.hellos)
        wanted, news = ann.seal(ann.encode(predicates)), feed.seal(feed.encode(events))
        leader.check("interest", wanted, "ann")
        leader.check("event", news, "feed")
        leader.verify(wanted)
        table, lanes = leader.new_table(), np.arange(150)
        leader.put(table, lanes, wanted)
        assert np.array_equal(leader.match([table], news)[0][0][:, :150], expected)
        leader.remove(table, lanes[::3])
        expected[:, ::3] = False
        assert np.array_equal(leader.match([table], news)[0][0][:, :150], expected)
        assert np.array_equal(leader.match_once(wanted[1:2], news), expected[:, 1:2])


def test_brokers_that_do_not_learn_answers_cannot_deliver() -> None:
    parts, matcher = Parts(), ThreeBrokerMatch.box(SCHEMA, reveal="subscriber")
    for start in (parts.leader, lambda one: parts.follower(1, one)):
        with pytest.raises(ParameterError, match="deliver by the answers"):
            start(matcher)


def test_services_take_no_grants() -> None:
    parts, matcher = Parts(), ThreeBrokerMatch.box(SCHEMA, grants=True)
    for start in (parts.leader, lambda one: parts.follower(1, one)):
        with pytest.raises(ParameterError, match="services take no grants of an authority"):
            start(matcher)
