"""Universally re-encryptable onions: paths, bodies, return onions, proofs and replays."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.algebra.prime_order import prime_order_group
from ccbps.ciphers.universal import UniversalCipher
from ccbps.errors import (
    DecodeError,
    KeyMismatchError,
    ParameterError,
    ReplayError,
    SerializationError,
)
from ccbps.overlay import Onion, OnionNode, Step, UniversalOnions
from tests.support.altered import altered
from tests.support.effort import examples
from tests.support.refusals import refused

GROUP = prime_order_group("toy64")
CIPHER = UniversalCipher(GROUP)
KEYS = {name: CIPHER.generate() for name in "abcdef"}
NODES = {
    name: (public, CIPHER.proofs.prove(secret, UniversalOnions.context(name)))
    for name, (secret, public) in KEYS.items()
}
ONIONS = UniversalOnions(GROUP, NODES, most_hops=5, payload_bytes=100)


def nodes() -> dict[str, OnionNode]:
    return {name: OnionNode(ONIONS, name, secret) for name, (secret, _) in KEYS.items()}


def travel(
    onion: Onion, first: str, at: dict[str, OnionNode]
) -> tuple[list[str], list[Onion], Any]:
    """Send an onion through its nodes; return their names, the onions and the payload."""
    name, way, onions = first, [first], [onion]
    while True:
        data = ONIONS.to_bytes(onion)
        assert len(data) == ONIONS.onion_bytes
        step = at[name].handle(ONIONS.from_bytes(data))
        if step.onion is None or step.after is None:
            return way, onions, step.payload
        assert ONIONS.verify(name, onion, step)
        name, onion = step.after, step.onion
        way.append(name)
        onions.append(onion)


@given(st.permutations("abcdef"), st.integers(1, 5), st.binary(max_size=100))
@settings(max_examples=15, deadline=None)
def test_onions_travel_their_path_and_nothing_of_them_is_on_two_links(
    names: list[str], hops: int, payload: bytes
) -> None:
    path = names[:hops]
    way, onions, came = travel(ONIONS.make(path, payload), path[0], nodes())
    assert (way, came) == (path, payload)
    elements = [element for onion in onions for block in onion.blocks for element in block]
    assert len({*elements}) == len(elements) == 4 * ONIONS.blocks * hops
    bodies = {onion.body[at : at + 16] for onion in onions for at in range(len(onion.body) - 15)}
    assert len(bodies) == hops * (ONIONS.body_bytes - 15)


def test_a_return_onion_brings_an_answer_to_whom_nobody_knows() -> None:
    at = nodes()
    given_out = at["f"].reply_onion(["a", "c"])
    data = ONIONS.return_to_bytes(given_out)
    given_out = ONIONS.return_from_bytes(data)
    for bad in (data[:-1], data + b"\0", data[:-1] + bytes([ONIONS.blocks]), bytes(len(data))):
        refused(DecodeError, "", ONIONS.return_from_bytes, bad)
    for payload in (b"hello", b""):
        way, _, came = travel(ONIONS.fill(given_out, payload), "a", at)
        assert (way, came) == (["a", "c", "f"], payload)
        at["a"]._seen.clear()  # as if its key were new
        at["c"]._seen.clear()
        given_out = at["f"].reply_onion(["a", "c"])
    # It is for one message: nodes know its seeds again.
    travel(ONIONS.fill(given_out, b"once"), "a", at)
    refused(ReplayError, "passed here before", at["a"].handle, ONIONS.fill(given_out, b"twice"))


def test_replays_are_refused_in_whatever_encryption() -> None:
    at, onion = nodes(), ONIONS.make("abc", b"hello")
    step = at["a"].handle(onion)
    refused(ReplayError, "passed here before", at["a"].handle, onion)
    again = Onion(tuple(CIPHER.reencrypt(onion.blocks))[::-1], os.urandom(len(onion.body)))
    refused(ReplayError, "passed here before", at["a"].handle, again)
    assert step.onion is not None
    at["b"].handle(step.onion)
    again = replace(step.onion, blocks=tuple(CIPHER.reencrypt(step.onion.blocks)))
    refused(ReplayError, "passed here before", at["b"].handle, again)


def test_what_was_changed_is_no_onion() -> None:
    at, onion = nodes(), ONIONS.make("abc", b"hello")
    data = ONIONS.to_bytes(onion)
    refused(DecodeError, "an onion has", ONIONS.from_bytes, data[:-1])
    refused(DecodeError, "", ONIONS.from_bytes, bytes(len(data)))
    refused(DecodeError, "", ONIONS.from_bytes, b"\xff" * len(data))
    refused(DecodeError, "not for this node", at["b"].handle, onion)
    refused(DecodeError, "other blocks", at["a"].handle, Onion(onion.blocks[:-1], onion.body))
    refused(DecodeError, "other blocks", at["a"].handle, Onion(onion.blocks, onion.body + b"."))
    for part in (2, 3):
        blocks = [[*block] for block in onion.blocks]
        blocks[1][part] = GROUP.identity
        still: Any = tuple(map(tuple, blocks))
        refused(DecodeError, "c or d is 1", at["a"].handle, Onion(still, onion.body))
    # A changed body arrives, and does not open.
    flipped = onion.body[:5] + bytes([onion.body[5] ^ 1]) + onion.body[6:]
    step = at["a"].handle(Onion(onion.blocks, flipped))
    assert step.onion is not None
    step = at["b"].handle(step.onion)
    assert step.onion is not None
    refused(DecodeError, "altered", at["c"].handle, step.onion)


def test_a_proof_holds_for_one_passage_only() -> None:
    onion = ONIONS.make("abc", b"hello")
    step = nodes()["a"].handle(onion)
    passage, after = step.passage, step.onion
    assert passage is not None
    assert after is not None
    assert ONIONS.verify("a", onion, step)
    other = ONIONS.make("abc", b"hello")
    other_step = nodes()["a"].handle(other)
    assert ONIONS.verify("a", other, other_step)
    swapped = [*passage.order]
    swapped[0], swapped[1] = swapped[1], swapped[0]
    changed_passages = [
        None,
        other_step.passage,
        replace(passage, challenge=passage.challenge + 1),
        replace(passage, peeling=passage.peeling + 1),
        replace(passage, peeled=passage.peeled[::-1]),
        replace(passage, peeled=passage.peeled[:-1]),
        replace(passage, order=tuple(swapped)),
        replace(passage, order=(0,) * ONIONS.blocks),
        replace(passage, encrypting=passage.encrypting[::-1]),
        replace(passage, encrypting=()),
        replace(passage, peeled=onion.blocks),
    ]
    changed: list[Step] = [replace(step, passage=one) for one in changed_passages]
    changed += [replace(step, onion=one) for one in (None, onion, other_step.onion)]
    changed += [replace(step, onion=Onion(after.blocks[::-1], after.body))]
    changed += [replace(step, onion=Onion(after.blocks, onion.body))]
    changed += [replace(step, after=name) for name in ("c", None)]
    block = after.blocks[0]
    for bad in (GROUP.identity, GROUP.modulus - block[0]):  # type: ignore[attr-defined]
        blocks = ((bad, *block[1:]), *after.blocks[1:])
        changed += [replace(step, onion=Onion(blocks, after.body))]
    assert [ONIONS.verify("a", onion, one) for one in changed] == [False] * len(changed)
    assert not ONIONS.verify("b", onion, step)
    assert not ONIONS.verify("nobody", onion, step)
    assert not ONIONS.verify("a", other, step)


def test_a_verifier_takes_whatever_a_node_makes_up() -> None:
    onion = ONIONS.make("abc", b"hello")
    step = nodes()["a"].handle(onion)
    passage, after = step.passage, step.onion
    assert passage is not None
    assert after is not None
    first = after.blocks[0]
    made_up: list[Any] = [0, -1, 1 << 200, "x", None, 1.5]
    blocks: list[Any] = [(bad, *first[1:]) for bad in made_up] + [first[:3], ()]
    steps = [replace(step, onion=Onion((block, *after.blocks[1:]), after.body)) for block in blocks]
    steps += [
        replace(step, passage=replace(passage, **{name: (value, *old[1:])}))
        for name in ("peeled", "encrypting", "order")
        for old in [getattr(passage, name)]
        for value in [*made_up[1:], old[0][:1] if name != "order" else -1]
    ]
    assert not any(ONIONS.verify("a", onion, one) for one in steps)


def test_an_onion_that_is_not_accepted_does_not_use_a_reply_up() -> None:
    at = nodes()
    onion = ONIONS.fill(at["f"].reply_onion([]), b"hello")
    spare = [place for place, block in enumerate(onion.blocks) if not opens(block)]
    blocks = [*onion.blocks]
    (seed,) = CIPHER.encrypt(KEYS["f"][1], [GROUP.generator_power(5)])
    blocks[spare[0]] = seed  # a second seed
    refused(DecodeError, "not for this node", at["f"].handle, Onion(tuple(blocks), onion.body))
    assert at["f"].handle(onion).payload == b"hello"


def opens(block: Any) -> bool:
    return bool(CIPHER.peel(KEYS["f"][0], [block])[0][2] == GROUP.identity)


def test_the_order_of_blocks_says_nothing() -> None:
    """Where the blocks of the second node are after the first one is uniform."""
    counts = np.zeros(ONIONS.blocks)
    for _ in range(300):
        step = nodes()["a"].handle(ONIONS.make("ab", b""))
        assert step.onion is not None
        peeled = CIPHER.peel(KEYS["b"][0], step.onion.blocks)
        (place,) = [n for n, block in enumerate(peeled) if block[2] == GROUP.identity]
        counts[place] += 1
    # Each of 10 places has 30 on average; one is outside once in a billion runs at most.
    assert counts.min() >= 4
    assert counts.max() <= 70


def test_a_passage_goes_to_the_verifier_as_bytes() -> None:
    onion = ONIONS.make("abc", b"hello")
    step = nodes()["a"].handle(onion)
    assert step.passage is not None
    data = ONIONS.passage_to_bytes(step.passage)
    assert len(data) == ONIONS.passage_bytes
    read = ONIONS.passage_from_bytes(data)
    assert read == step.passage and ONIONS.verify("a", onion, replace(step, passage=read))
    decoded = 0
    for place, wrong in enumerate(altered(data)):
        try:
            passage = ONIONS.passage_from_bytes(wrong)
        except DecodeError:
            continue
        decoded += 1
        assert ONIONS.passage_to_bytes(passage) == wrong
        assert place % 23 or not ONIONS.verify("a", onion, replace(step, passage=passage))
    assert decoded > 100


@given(st.binary(min_size=ONIONS.passage_bytes, max_size=ONIONS.passage_bytes), st.integers(0, 60))
@settings(max_examples=examples(200), deadline=None)
def test_what_is_no_passage_is_a_decode_error(noise: bytes, cut: int) -> None:
    for data in (noise, noise[cut + 1 :], bytes(len(noise)), b"\xff" * len(noise), b""):
        refused(DecodeError, "a passage", ONIONS.passage_from_bytes, data)


def test_arguments_and_secrets() -> None:
    for path in ("", "abcdef", "aa", "az"):
        refused(ParameterError, "", ONIONS.make, path, b"")
    refused(ParameterError, "at most 100 bytes", ONIONS.make, "ab", bytes(101))
    refused(KeyMismatchError, "not the secret of 'b'", OnionNode, ONIONS, "b", KEYS["a"][0])
    rogue = {**NODES, "b": (NODES["b"][0], NODES["a"][1])}
    refused(
        KeyMismatchError,
        "secret of 'b'",
        UniversalOnions,
        GROUP,
        rogue,
        most_hops=2,
        payload_bytes=9,
    )
    refused(SerializationError, "", pickle.dumps, nodes()["a"])


def test_other_groups() -> None:
    pytest.importorskip("coincurve")
    group = prime_order_group("secp256k1")
    cipher = UniversalCipher(group)
    keys = {name: cipher.generate() for name in "ab"}
    named = {
        name: (y, cipher.proofs.prove(x, UniversalOnions.context(name)))
        for name, (x, y) in keys.items()
    }
    onions = UniversalOnions(group, named, most_hops=2, payload_bytes=10)
    onion = onions.from_bytes(onions.to_bytes(onions.make("ab", b"hello")))
    step = OnionNode(onions, "a", keys["a"][0]).handle(onion)
    assert step.onion is not None
    assert onions.verify("a", onion, step)
    assert step.passage is not None
    read = onions.passage_from_bytes(onions.passage_to_bytes(step.passage))
    assert onions.verify("a", onion, replace(step, passage=read))
    assert OnionNode(onions, "b", keys["b"][0]).handle(step.onion).payload == b"hello"
