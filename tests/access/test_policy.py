"""Policies: one filter decides, denials override, and reviewers see what changes."""

from __future__ import annotations

import contextlib
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Schema, UInt
from ccbps.access import Grant, Policy, Rule
from ccbps.access.policy import ACTIONS, Action, code_test
from ccbps.errors import DecodeError, ParameterError, PredicateError, UnsupportedPredicateError
from tests.support import strategies as drawn
from tests.support.effort import examples

SCHEMA = Schema(x=UInt(2), y=UInt(2, nullable=True))
RECORDS = [{"x": x, "y": y} for x, y in product(range(4), [None, 0, 1, 2, 3])]
EVENTS = SCHEMA.encode(RECORDS)
ROLES = ("r", "s")
USERS = {"ann": ("r",), "bob": ("s",), "cem": ("r", "s"), "eve": ()}


@st.composite
def texts(draw: st.DrawFn) -> str:
    given_predicate = draw(drawn.predicates(SCHEMA).filter(lambda one: not one.private))
    return given_predicate.text


@st.composite
def policies(draw: st.DrawFn, version: int = 1) -> Policy:
    actions = st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=4, unique=True).map(tuple)
    grants = st.builds(Grant, st.sampled_from(ROLES), actions, texts())
    several = st.lists(st.sampled_from(ROLES), max_size=2, unique=True).map(tuple)
    by = st.sampled_from(["owner", "manager"])
    rules = st.lists(st.tuples(by, texts(), actions, several), max_size=2)
    return Policy(
        SCHEMA,
        version=version,
        roles={role: [user for user, has in USERS.items() if role in has] for role in ROLES},
        grants=draw(st.lists(grants, max_size=4)),
        rules=[Rule(f"rule {place}", *rest) for place, rest in enumerate(draw(rules))],
        revoked=draw(st.sets(st.sampled_from([*USERS]), max_size=1)),
    )


def true_set(text: str) -> set[int]:
    return {*np.flatnonzero(SCHEMA.parse(text).evaluate(EVENTS)).tolist()}


def false_set(text: str) -> set[int]:
    return true_set(f"NOT ({text}\n)")


def oracle(policy: Policy, user: str, action: Action) -> set[int]:
    """Return the events that some grant allows and no rule denies, clause by clause."""
    roles = {role for role in USERS[user] if user not in policy.revoked}
    allowed = set[int]()
    for grant in policy.grants:
        if grant.role in roles and action in grant.actions:
            allowed |= true_set(grant.filter)
    for rule in policy.rules:
        if action in rule.actions and (not rule.roles or {*rule.roles} & roles):
            allowed &= false_set(rule.deny)  # what is unknown is denied
    return allowed


@given(policies(), texts())
@settings(max_examples=examples(120))
def test_all_four_actions_are_decided_as_clause_by_clause(policy: Policy, asked: str) -> None:
    for user, action in product(USERS, ACTIONS):
        allowed = oracle(policy, user, action)
        found = {*np.flatnonzero(policy.allows(user, action, EVENTS)).tolist()}
        assert found == allowed
        if action in ("publish", "receive"):
            test = policy.test(policy.roles_of(user), action)
            for place, record in enumerate(RECORDS[::3]):
                decision = policy.decide(user, action, record)
                assert decision.allowed == (3 * place in allowed), decision
                codes = {name: int(EVENTS.codes[name][-1, 3 * place]) for name in SCHEMA}
                assert test(codes) == decision.allowed
        else:
            # A user without a grant may not even subscribe to nothing.
            has_grant = policy.filter(policy.roles_of(user), action) is not None
            expected = has_grant and true_set(asked) <= allowed
            assert policy.decide(user, action, asked).allowed == expected


@given(texts(), texts())
@settings(max_examples=examples(300))
def test_implication_is_exact(narrow: str, wide: str) -> None:
    first, second = SCHEMA.parse(narrow), SCHEMA.parse(wide)
    assert first.implies(second) == (true_set(narrow) <= true_set(wide))


@given(policies(), texts())
@settings(max_examples=examples(100))
def test_a_narrowed_subscription_matches_what_checked_deliveries_are(
    policy: Policy, asked: str
) -> None:
    for user in USERS:
        narrowed = policy.narrow(policy.roles_of(user), asked)
        may = policy.filter(policy.roles_of(user), "subscribe") is not None
        expected = true_set(asked) if may else set()
        for action in ("subscribe", "receive"):
            expected &= {*np.flatnonzero(policy.allows(user, action, EVENTS)).tolist()}
        assert (set() if narrowed is None else true_set(narrowed.text)) == expected
        parts = policy.narrow_parts(policy.roles_of(user), asked)
        assert set[int]().union(*(true_set(part.text) for part in parts)) == expected
        assert all(true_set(part.text) for part in parts)


def test_a_narrowed_subscription_keeps_its_private_constants() -> None:
    policy = Policy(
        SCHEMA,
        version=1,
        roles={"r": ["ann"]},
        grants=[Grant("r", ("subscribe",), "x > 0"), Grant("r", ("receive",), "x > 0")],
    )
    asked = SCHEMA.parse("y = :value").bind(value=2)
    narrowed = policy.narrow(("r",), asked)
    assert narrowed is not None
    assert narrowed.text == "(y = :value) AND (x > 0)"  # both filters are the same
    assert "2" not in repr(narrowed)
    assert narrowed.evaluate([{"x": 1, "y": 2}, {"x": 0, "y": 2}]).tolist() == [True, False]


@pytest.mark.parametrize("comment", ["--", "-- ) AND (x = 0", "/* ) */", "--\n"])
def test_no_text_ends_a_filter_early(comment: str) -> None:
    policy = Policy(
        SCHEMA,
        version=1,
        roles={"r": ["ann"]},
        grants=[Grant("r", ("subscribe", "receive"), f"x = 1 {comment}")],
        rules=[Rule("no zero", "owner", f"y = 0 {comment}")],
    )
    assert oracle(policy, "ann", "receive") == {
        *np.flatnonzero(policy.allows("ann", "receive", EVENTS)).tolist()
    }
    narrowed = policy.narrow(("r",), f"y > 1 {comment}")
    assert narrowed is not None
    assert true_set(narrowed.text) == true_set("x = 1 AND y > 1")
    for text in ("TRUE) OR (TRUE", "TRUE) --", "TRUE /*", ""):
        with pytest.raises((PredicateError, ParameterError)):
            policy.narrow(("r",), text)
        with pytest.raises((PredicateError, ParameterError)):
            Grant("r", ("receive",), text) and Policy(
                SCHEMA, version=1, roles={"r": []}, grants=[Grant("r", ("receive",), text)]
            )


@given(policies(), policies(2))
@settings(max_examples=examples(60))
def test_changes_name_the_roles_whose_events_change(older: Policy, newer: Policy) -> None:
    changes = {(one.role, one.action): one.kind for one in older.changes(newer)}
    for role, action in product(ROLES, ACTIONS):
        before, after = older.filter((role,), action), newer.filter((role,), action)
        kind = changes.get((role, action))
        if before is None or after is None:
            assert kind == (None if before is after else "new" if before is None else "gone")
            continue
        left, right = true_set(before.text), true_set(after.text)
        expected = (
            None
            if left == right
            else "wider"
            if left < right
            else "narrower"
            if right < left
            else "different"
        )
        assert kind == expected


@given(policies())
@settings(max_examples=examples(60))
def test_bytes_come_back(policy: Policy) -> None:
    message = policy.to_bytes()
    read = Policy.from_bytes(message)
    assert read == policy
    assert hash(read) == hash(policy)
    assert read.to_bytes() == message


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(1, 255))
def test_malformed_bytes_are_one_error(noise: bytes, place: int, change: int) -> None:
    message = bytearray(
        Policy(SCHEMA, version=1, roles={"r": ["ann"]}, grants=[Grant("r", ACTIONS)]).to_bytes()
    )
    for bad in (noise, message[: place % len(message)]):
        with pytest.raises(DecodeError):
            Policy.from_bytes(bytes(bad))
    message[place % len(message)] ^= change
    with contextlib.suppress(DecodeError):
        Policy.from_bytes(bytes(message))


TOML = """
version = 7
schema = 'x=UInt(2), y=UInt(2, nullable=True)'
revoked = ["old"]
[roles]
r = ["ann", "cem"]
empty = []
s = ["bob"]
[[grants]]
role = "r"
actions = ["publish", "receive"]
filter = "x < 3"
rate = 10
burst = 30
[[grants]]
role = "r"
actions = ["receive"]
filter = "x = 1"
rate = 20.0
[[grants]]
role = "s"
actions = ["receive"]
filter = "x > 1 AND x < 2"
[[rules]]
name = "none"
by = "manager"
deny = "x < 0"
[[rules]]
name = "all"
by = "owner"
deny = "x < 3"
roles = ["r"]
actions = ["publish"]
"""


def test_a_file_is_read_and_reviewed() -> None:
    policy = Policy.from_toml(TOML)
    assert policy.version == 7
    assert policy.roles_of("cem") == ("r",)
    assert policy.rate(("r",), "publish") == (10.0, 30.0)
    assert policy.rate(("r",), "receive") == (20.0, 30.0)
    assert policy.rate(("s",), "receive") is None
    assert policy.problems() == [
        "role empty: no users",
        "role empty: no grants",
        "grant 1 of r: grant 0 covers it",
        "grant 2 of s: no event matches x > 1 AND x < 2",
        "rule 'none': it denies nothing",
        "role r: rules leave nothing to publish",
        "role s: rules leave nothing to receive",
        "user old: revoked, and of no role",
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("version = 7", "version = -7", "version"),
        ("version = 7", "version = ", "no TOML"),
        ("rate = 10", "rate = 0", r"grants\[0\]\.rate"),
        ('by = "manager"', 'by = "king"', "rules"),
        ('role = "s"', 'role = "t"', "grant 2 names the role 't'"),
        ('roles = ["r"]', 'roles = ["t"]', "rule 'all' names the role 't'"),
        ('name = "all"', 'name = "none"', "same name"),
        ('actions = ["receive"]', "actions = []", "actions"),
        ('actions = ["receive"]', 'acts = ["receive"]', "acts|actions"),
        ("x=UInt(2)", "x=open(3)", "there is no type open"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(old: str, new: str, problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        Policy.from_toml(TOML.replace(old, new))


def test_reasons_name_the_grant_or_the_rule() -> None:
    policy = Policy(
        SCHEMA,
        version=3,
        roles={"r": ["ann", "old"], "s": ["bob"]},
        grants=[
            Grant("r", ("publish", "subscribe", "receive"), "x < 2"),
            Grant("r", ("receive", "subscribe"), "x = 2"),
        ],
        rules=[Rule("no y", "manager", "y > 1")],
        revoked=["old"],
    )
    cases: list[tuple[str, Action, object, str]] = [
        ("ann", "receive", {"x": 2, "y": 0}, "grant 1 of r allows it: x = 2"),
        ("ann", "publish", {"x": 2, "y": 0}, "no grant of r covers this event"),
        ("ann", "receive", {"x": 1, "y": 3}, "the manager's rule 'no y' denies it"),
        ("ann", "receive", {"x": 1, "y": None}, "the manager's rule 'no y' denies it"),
        ("ann", "receive", {"x": 3, "y": 3}, "no grant of r covers this event"),
        ("ann", "advertise", "x = 1", "no grant lets r advertise"),
        ("ann", "subscribe", "x = 1 AND y = 0", "grant 0 of r allows it: x < 2"),
        ("ann", "subscribe", "x < 3 AND y = 0", "the grants of r together cover it"),
        ("ann", "subscribe", "x = 1", "the manager's rule 'no y' denies events that it matches"),
        (
            "ann",
            "subscribe",
            "y = 0",
            "the subscription matches events that no grant of r covers",
        ),
        ("bob", "receive", {"x": 1, "y": 0}, "no grant lets s receive"),
        ("old", "receive", {"x": 1, "y": 0}, "old was revoked"),
        ("eve", "receive", {"x": 1, "y": 0}, "eve has no role"),
    ]
    for user, action, content, reason in cases:
        decision = policy.decide(user, action, content)
        assert (decision.reason, decision.version) == (reason, 3)
        assert decision.allowed == ("allows it" in reason or "cover it" in reason)


def test_other_schemas_and_work_without_end_are_refused() -> None:
    wide = Schema(**{f"a{place}": UInt(8) for place in range(20)})
    text = " AND ".join(f"(a{place} < 3 OR a{place + 1} > 4)" for place in range(0, 20, 2))
    with pytest.raises(ParameterError, match="same schema"):
        wide.parse("a0 = 1").implies(SCHEMA.parse("x = 1"))
    with pytest.raises(UnsupportedPredicateError, match="alternatives"):
        wide.parse("a0 = 1").implies(wide.parse(text))
    policy = Policy(SCHEMA, version=1, roles={}, grants=[])
    with pytest.raises(ParameterError, match="same schema"):
        policy.changes(Policy(wide, version=2, roles={}, grants=[]))
    assert code_test(SCHEMA.parse("TRUE"))({"x": 0, "y": 0})
