"""Policies of hops, connections, clearances, and a queue in which nobody starves."""

from __future__ import annotations

import heapq
import random
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.access import AgeingQueue, Clearance, Connections, Hop, HopPolicy, HopRule, Label
from ccbps.errors import DecodeError, ParameterError, RefusedError
from ccbps.records import read, write
from tests.support.altered import altered
from tests.support.effort import examples
from tests.support.refusals import refused

HOP = Hop("B4", "carrier", "out", "event", "vitals")
FIELDS = {
    "neighbour": ("B4", "B5"),
    "domain": ("carrier", "clinic"),
    "direction": ("out", "in"),
    "kind": ("event", "subscription"),
    "topic": ("vitals", "trial"),
}


# -- rules ---------------------------------------------------------------------------------------


def test_without_a_rule_nothing_passes() -> None:
    error = refused(
        RefusedError, "no rule allows an event on 'vitals'", HopPolicy().decide, HOP, Label()
    )
    assert error.reason == "hop"


@pytest.mark.parametrize("field", FIELDS)
def test_each_property_of_a_rule_counts(field: str) -> None:
    same, other = FIELDS[field]
    allow: Any = HopRule
    assert HopPolicy((allow("allow", **{field: same}),)).decide(HOP, Label()) == Label()
    policy = HopPolicy((allow("allow", **{field: other}),))
    refused(RefusedError, "no rule allows", policy.decide, HOP, Label())


RULES = st.builds(
    lambda action, **fields: HopRule(action, **fields),
    st.sampled_from(["allow", "deny"]),
    **{name: st.sampled_from([None, *values]) for name, values in FIELDS.items()},
)


@given(st.lists(RULES, max_size=6), st.tuples(*(st.sampled_from(v) for v in FIELDS.values())))
def test_the_first_rule_that_applies_decides(rules: list[HopRule], fields: Any) -> None:
    hop, policy = Hop(*fields), HopPolicy(tuple(rules))
    first = next(
        (
            rule.action
            for rule in rules
            if all(getattr(rule, name) in (None, getattr(hop, name)) for name in FIELDS)
        ),
        "deny",
    )
    if first == "allow":
        assert policy.decide(hop, Label({"a"})) == Label({"a"})
    else:
        refused(RefusedError, "", policy.decide, hop, Label({"a"}))
    assert HopPolicy.from_bytes(policy.to_bytes()) == policy


@given(
    st.frozensets(st.sampled_from("abc")),
    st.frozensets(st.sampled_from("abc")),
    st.frozensets(st.sampled_from("abc"), min_size=1),
    st.frozensets(st.sampled_from("abc")),
)
def test_a_transformation_raises_the_label_only(
    secrecy: frozenset[str], integrity: frozenset[str], add: frozenset[str], drop: frozenset[str]
) -> None:
    label = Label(secrecy, integrity)
    rule = HopRule("transform", add_secrecy=add, drop_integrity=drop)
    raised = HopPolicy((rule,)).decide(HOP, label)
    assert label.flows_to(raised)
    assert raised == Label(secrecy | add, integrity - drop)


@pytest.mark.parametrize(
    ("action", "answer", "passes"),
    [
        ("allow", True, True), ("allow", False, False), ("allow", None, False),
        ("deny", True, False), ("deny", False, True), ("deny", None, False),
    ],
)  # fmt: skip
def test_a_filter_on_content_that_cannot_be_read_refuses(
    action: Any, answer: bool | None, passes: bool
) -> None:
    rules = [HopRule(action, kind="event", where=b"filter")]
    policy = HopPolicy((*rules, HopRule("allow")) if action == "deny" else tuple(rules))

    def matches(where: bytes) -> bool | None:
        assert where == b"filter"
        return answer

    asked = [matches] if answer is not None else [matches, None]
    for question in asked:
        if passes:
            assert policy.decide(HOP, Label(), question) == Label()
        else:
            refused(RefusedError, "", policy.decide, HOP, Label(), question)


def test_rules_that_make_no_sense_are_refused() -> None:
    refused(ParameterError, "add_secrecy", HopRule, "transform")
    refused(ParameterError, "add_secrecy", HopRule, "allow", add_secrecy={"a"})
    refused(ParameterError, "where", HopRule, "deny", where=b"x")
    refused(ParameterError, "where", HopRule, "deny", kind="subscription", where=b"x")
    refused(ParameterError, "action", HopRule, "permit")


def test_malformed_policies_are_one_error() -> None:
    policy = HopPolicy((HopRule("deny", topic="trial"), HopRule("transform", drop_integrity={"a"})))
    connections = Connections((("a", "b"),))
    for message in (policy, connections):
        content = message.to_bytes()
        for other in altered(content):
            try:
                assert type(message).from_bytes(other).to_bytes() == other
            except DecodeError:
                continue


# -- connections and clearances ------------------------------------------------------------------


def test_a_refused_link_is_never_dialled() -> None:
    connections, dialled = Connections((("clinic", "carrier"), ("carrier", "registry"))), []
    names = ("clinic", "carrier", "registry", "stranger")
    for own in names:
        for other in names:

            def connect(pair: tuple[str, str] = (own, other)) -> bool:
                dialled.append(pair)
                return True

            if own == other or {own, other} in ({"clinic", "carrier"}, {"carrier", "registry"}):
                assert connections.dial(own, other, connect)
            else:
                error = refused(
                    RefusedError, "may not be linked", connections.dial, own, other, connect
                )
                assert error.reason == "link"
    assert len(dialled) == 8 and ("clinic", "registry") not in dialled


@given(st.integers(0, 5), st.integers(0, 5))
def test_levels_are_a_chain(privacy: int, level: int) -> None:
    assert Clearance(level).suffices(privacy) == (privacy <= level)
    assert read(Clearance, write(Clearance(level, 3)), refusal="") == Clearance(level, 3)
    refused(ParameterError, "priority", Clearance, 0, -1)


# -- queue ---------------------------------------------------------------------------------------


def waits(queue: Any, arrivals: list[tuple[float, int]], pause: float) -> list[tuple[float, int]]:
    """Serve arrivals (time, priority), one after each pause.

    Returns the wait of each, and the number of others in the queue or at its door when it came.
    """
    out, time, at = [], 0.0, 0
    while at < len(arrivals) or len(queue):
        if not len(queue):
            time = max(time, arrivals[at][0])
        while at < len(arrivals) and arrivals[at][0] <= time:
            came, priority = arrivals[at]
            crowd = sum(other == came for other, _ in arrivals[at + 1 :]) if not came else 0
            queue.push((came, len(queue) + crowd), priority, came)
            at += 1
        came, queued = queue.pop()
        out.append((time - came, queued))
        time += pause
    return out


class Strict:
    """A queue by priority without ageing."""

    def __init__(self) -> None:
        self.heap: list[Any] = []

    def __len__(self) -> int:
        return len(self.heap)

    def push(self, item: Any, priority: int, now: float) -> None:
        heapq.heappush(self.heap, (-priority, now, len(self.heap), item))

    def pop(self) -> Any:
        return heapq.heappop(self.heap)[-1]


def below_capacity(draw: random.Random, count: int, pause: float, levels: int) -> list[Any]:
    """Arrivals, a pause or more apart and mostly urgent, behind a crowd at time 0."""
    crowd = [(0.0, draw.randrange(levels)) for _ in range(draw.randrange(40))]
    times = accumulate(pause * draw.choice([1, 1, 1, 1.5]) for _ in range(count))
    return crowd + [(t, levels - 1 if draw.random() < 0.95 else 0) for t in times]


@given(st.integers(0, 1 << 32), st.integers(1, 12), st.sampled_from([0.05, 0.2, 1.0]))
@settings(max_examples=examples(200))
def test_nobody_starves(seed: int, levels: int, pause: float) -> None:
    arrivals = below_capacity(random.Random(seed), 300, pause, levels)
    queue: AgeingQueue[Any] = AgeingQueue(levels, 1000)
    for wait, queued in waits(queue, arrivals, pause):
        # `queued` leaves out the one that is being made.
        assert wait <= levels - 1 + (queued + 1 + 1) * pause + 1e-9


def test_without_ageing_somebody_starves() -> None:
    arrivals = [(0.0, 0)] * 3 + [(n * 0.1, 9) for n in range(2000)]
    arrivals.sort()
    aged = max(wait for wait, _ in waits(AgeingQueue(10, 3000), arrivals, 0.1))
    strict = max(wait for wait, _ in waits(Strict(), arrivals, 0.1))
    assert aged < 11 and strict > 150


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 3)), max_size=30))
def test_the_order_is_that_of_ranks_at_any_time(items: list[tuple[float, int]]) -> None:
    items.sort(key=lambda item: item[0])
    queue: AgeingQueue[int] = AgeingQueue(4, 30)
    for place, (came, priority) in enumerate(items):
        queue.push(place, priority, came)
    ranks = [items[place][1] + (9 - items[place][0]) for place in (queue.pop() for _ in items)]
    assert all(first >= second - 1e-9 for first, second in pairwise(ranks))


def test_items_of_one_priority_keep_their_order() -> None:
    queue: AgeingQueue[int] = AgeingQueue(2, 100)
    for number in range(100):
        queue.push(number, 1, number // 10)
    assert [queue.pop() for _ in range(100)] == [*range(100)]


def test_queues_are_bounded() -> None:
    queue: AgeingQueue[int] = AgeingQueue(2, 1)
    queue.push(1, 0, 0)
    assert refused(RefusedError, "1 deliveries wait", queue.push, 2, 1, 0).reason == "queue"
    refused(ParameterError, "priority", AgeingQueue(2, 1).push, 1, 2, 0)
    refused(ParameterError, "now", AgeingQueue(2, 1).push, 1, 0, float("nan"))
