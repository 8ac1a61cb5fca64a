"""Chains of delegation against a link-by-link oracle, and negotiations."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ccbps import Schema, UInt
from ccbps.access import Delegation, Grant, Link, Negotiation, Offer, Policy
from ccbps.access.delegation import _signed
from ccbps.errors import CcbpsError, DecodeError, ParameterError, PredicateError, RefusedError
from ccbps.keys import SigningKey
from tests.support.effort import examples

SCHEMA = Schema(x=UInt(4))
VALUES = np.arange(16)
KEYS = [SigningKey(bytes([place + 1]) * 32) for place in range(6)]
OWNER = KEYS[0]


@dataclass
class Step:
    """Link as the oracle sees it: numbers in place of hashes and signatures."""

    low: int
    high: int
    depth: int
    signer: int
    holder: int
    parent: int
    revoked: bool

    @property
    def scope(self) -> str:
        return f"x BETWEEN {self.low} AND {self.high}"


def steps_of(draw: random.Random) -> list[Step]:
    """Draw a chain that is right, and perhaps spoil something in it."""
    count = draw.randrange(1, 5)
    steps, low, high, depth, holder = list[Step](), 0, 15, draw.randrange(count - 1, 6), 0
    for place in range(count):
        low = draw.randrange(low, high + 1)
        high = draw.randrange(low, high + 1) if place else 15
        steps.append(Step(low, high, depth - place, holder, place + 1, place - 1, False))
        holder = place + 1
    if draw.random() < 0.6:
        place = draw.randrange(count)
        step = steps[place]
        spoiled = [
            {"low": max(0, step.low - draw.randrange(4))},
            {"high": min(15, step.high + draw.randrange(4))},
            {"depth": min(9, step.depth + draw.randrange(3))},
            {"signer": draw.randrange(6)},
            {"parent": draw.randrange(-1, place)} if place else {},
            {"revoked": True},
        ]
        steps[place] = replace(step, **draw.choice(spoiled))
    return steps


def chain_of(steps: list[Step]) -> tuple[Delegation, set[bytes]]:
    """Sign a chain as the steps say, whatever is wrong with it."""
    first = Delegation.grant(SCHEMA, OWNER, OWNER.identity, "TRUE").links[0]
    links = list[Link]()
    for step in steps:
        parent = bytes(32) if step.parent < 0 else Delegation(SCHEMA, links).numbers[step.parent]
        link = Link(first.schema, parent, KEYS[step.holder].identity, step.scope, step.depth)
        signature = KEYS[step.signer].sign(_signed(link))
        links.append(structs.replace(link, signature=signature))
    chain = Delegation(SCHEMA, links)
    return chain, {chain.numbers[place] for place, step in enumerate(steps) if step.revoked}


def oracle(steps: list[Step], value: int) -> bool:
    """Decide one value, link by link."""
    for place, step in enumerate(steps):
        before = steps[place - 1] if place else None
        if step.revoked or step.signer != (before.holder if before else 0):
            return False
        if step.parent != place - 1:
            return False
        if before is not None:
            inside = all(before.low <= one <= before.high for one in range(step.low, step.high + 1))
            if not inside or step.depth >= before.depth:
                return False
    return steps[-1].low <= value <= steps[-1].high


def decide(chains: int, seed: int) -> tuple[int, int]:
    draw, allowed, pairs = random.Random(seed), 0, 0
    for _ in range(chains):
        steps = steps_of(draw)
        chain, revoked = chain_of(steps)
        try:
            scope = chain.verify(OWNER.identity, revoked=revoked)
            found = scope.evaluate({"x": VALUES}).tolist()
        except RefusedError:
            found = [False] * len(VALUES)
        assert found == [oracle(steps, value) for value in VALUES.tolist()], steps
        allowed += sum(found)
        pairs += len(VALUES)
    return allowed, pairs


def test_chains_decide_as_link_by_link() -> None:
    allowed, pairs = decide(250, seed=1)
    assert 0 < allowed < pairs


@pytest.mark.slow
def test_62400_decisions_are_those_of_the_oracle() -> None:
    allowed, pairs = decide(3900, seed=2)
    assert pairs == 62_400
    assert pairs // 10 < allowed < pairs // 2


def test_holders_pass_on_no_more_than_they_have() -> None:
    chain = Delegation.grant(SCHEMA, OWNER, KEYS[1].identity, "x < 9", depth=1)
    with pytest.raises(ParameterError, match="last link names"):
        chain.delegate(KEYS[2], KEYS[3].identity, "x < 3")
    with pytest.raises(ParameterError, match="imply"):
        chain.delegate(KEYS[1], KEYS[2].identity, "x < 10")
    with pytest.raises(ParameterError, match="depth"):
        chain.delegate(KEYS[1], KEYS[2].identity, "x < 3", depth=1)
    with pytest.raises(PredicateError):
        chain.delegate(KEYS[1], KEYS[2].identity, "y < 3")
    last = chain.delegate(KEYS[1], KEYS[2].identity, "x < 3")
    assert last.holder() == KEYS[2].identity
    with pytest.raises(ParameterError, match="depth is 0"):
        last.delegate(KEYS[2], KEYS[3].identity, "x < 2")
    read = Delegation.from_bytes(SCHEMA, last.to_bytes())
    assert read.verify(OWNER.identity).text == "x < 3"
    with pytest.raises(RefusedError, match="another schema"):
        Delegation.from_bytes(Schema(x=UInt(5)), last.to_bytes()).verify(OWNER.identity)
    with pytest.raises(RefusedError, match=r"link 0 .* not signed"):
        last.verify(KEYS[1].identity)
    with pytest.raises(RefusedError, match="link 1 of the delegation was revoked"):
        last.verify(OWNER.identity, revoked={last.numbers[1]})


@given(st.integers(0, 10**4), st.integers(1, 255))
@settings(max_examples=examples(60))
def test_altered_chains_are_refused(place: int, change: int) -> None:
    chain = Delegation.grant(SCHEMA, OWNER, KEYS[1].identity, "x < 9", depth=1)
    message = bytearray(chain.delegate(KEYS[1], KEYS[2].identity, "x < 3").to_bytes())
    message[place % len(message)] ^= change
    with pytest.raises((DecodeError, RefusedError)):
        Delegation.from_bytes(SCHEMA, bytes(message)).verify(OWNER.identity)


# -- negotiations --------------------------------------------------------------------------------


def talk() -> Negotiation:
    return Negotiation(SCHEMA, OWNER.identity, KEYS[1].identity)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 15), st.none() | st.floats(1, 9))),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=examples(50))
def test_what_is_in_force_is_the_conjunction_of_the_last_offers(
    offers: list[tuple[bool, int, float | None]], owner_signs: bool, manager_signs: bool
) -> None:
    here, there, last = talk(), talk(), dict[str, tuple[int, float | None]]()
    for is_owner, value, rate in offers:
        side, key = ("owner", OWNER) if is_owner else ("manager", KEYS[1])
        text = f"x >= {value}" if is_owner else f"x < {value} -- manager"
        here.offer(key, side, ("r", side), ("receive",), text, rate=rate)  # type: ignore[arg-type]
        there.take(here.newest())
        last[side] = (value, rate)
    if len(last) < 2:
        with pytest.raises(ParameterError, match="no offer yet"):
            here.accept(OWNER, "owner")
        return
    if owner_signs:
        there.accept(OWNER, "owner")
    if manager_signs:
        there.accept(KEYS[1], "manager")
    assert there.in_force == (owner_signs and manager_signs)
    grants = there.grants()
    assert bool(grants) == there.in_force
    for grant in grants:
        found = SCHEMA.parse(grant.filter).evaluate({"x": VALUES})
        assert (found == ((last["owner"][0] <= VALUES) & (last["manager"][0] > VALUES))).all()
        rates = [rate for _, rate in last.values() if rate is not None]
        assert (grant.role, grant.rate) == ("r", min(rates, default=None))


def test_only_the_two_sides_speak_and_nothing_old_is_repeated() -> None:
    here = talk()
    here.offer(OWNER, "owner", ("r",), ("receive",), "x > 3")
    first = here.newest()
    with pytest.raises(RefusedError, match="not signed by the manager"):
        here.offer(OWNER, "manager", ("r",), ("receive",), "x > 3")
    here.offer(KEYS[1], "manager", ("r",), ("receive", "publish"), "x < 9", rate=3.0)
    with pytest.raises(RefusedError, match="newest"):
        here.take(first)
    signature = OWNER.sign(here._pair())
    here.accepted("owner", signature)
    here.accept(KEYS[1], "manager")
    assert here.grants() == [Grant("r", ("receive",), "(x > 3) AND (x < 9)", 3.0)]
    policy = Policy(SCHEMA, version=4, roles={"r": ["ann"]}, grants=[])
    enacted = here.enacted(policy)
    assert (enacted.version, enacted.grants) == (5, tuple(here.grants()))
    # Either side withdraws: its signature and offer do not come back.
    earlier = tuple(here.grants())
    here.withdraw("owner")
    assert here.grants() == []
    assert here.enacted(enacted, earlier).grants == ()
    with pytest.raises(ParameterError, match="owner has made no offer"):
        here.accepted("owner", signature)
    here.offer(OWNER, "owner", ("r",), ("receive",), "x > 4")
    with pytest.raises(RefusedError, match="did not sign"):
        here.accepted("owner", signature)
    with pytest.raises(ParameterError, match="different keys"):
        Negotiation(SCHEMA, OWNER.identity, OWNER.identity)


@given(st.integers(0, 400), st.integers(1, 255))
@settings(max_examples=examples(40))
def test_altered_offers_are_refused(place: int, change: int) -> None:
    here, there = talk(), talk()
    here.offer(OWNER, "owner", ("r",), ("receive",), "x > 3")
    assert Offer.from_bytes(here.newest()).digest
    message = bytearray(here.newest())
    message[place % len(message)] ^= change
    with pytest.raises(CcbpsError):
        there.take(bytes(message))
