"""Tags in universally re-encryptable onions: markers, factors, copies, and the proofs against them.

The attackers are two nodes of a path with an honest node between them. The first one changes what
leaves it, so that the second one knows the onion again. That links the ends of the path.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ccbps.algebra.prime_order import Element, prime_order_group
from ccbps.attacks.schemes.onion import (
    marked,
    multiplied,
    opened_by,
    signs_of,
    with_copies,
    with_sign,
)
from ccbps.ciphers.universal import Ciphertext, UniversalCipher
from ccbps.errors import DecodeError
from ccbps.overlay import Onion, OnionNode, Step, UniversalOnions
from tests.support.refusals import refused

GROUP = prime_order_group("toy64")
CIPHER = UniversalCipher(GROUP)
KEYS = {name: CIPHER.generate() for name in "abcd"}
NODES = {
    name: (public, CIPHER.proofs.prove(secret, UniversalOnions.context(name)))
    for name, (secret, public) in KEYS.items()
}
ONIONS = UniversalOnions(GROUP, NODES, most_hops=4, payload_bytes=40)
RUNS = 20
MARKER = GROUP.hash_to_group(b"a marker")
FACTOR = GROUP.hash_to_group(b"a factor")
NAMES = [GROUP.hash_to_group(b"ccbps onion name\0" + name.encode()) for name in NODES]
Attack = Callable[[Sequence[Ciphertext], Sequence[Ciphertext]], list[Ciphertext]]


def all_markers(peeled: Sequence[Ciphertext], made: Sequence[Ciphertext]) -> list[Ciphertext]:
    return [marked(CIPHER, block, MARKER) for block in made]


def all_factors(peeled: Sequence[Ciphertext], made: Sequence[Ciphertext]) -> list[Ciphertext]:
    return [multiplied(CIPHER, block, FACTOR) for block in made]


def copies(peeled: Sequence[Ciphertext], made: Sequence[Ciphertext]) -> list[Ciphertext]:
    return with_copies(CIPHER, peeled)


def raw_opened(name: str, blocks: Sequence[Ciphertext]) -> list[Element]:
    return opened_by(CIPHER, KEYS[name][0], blocks)


def honest(name: str, blocks: Sequence[Ciphertext]) -> list[Ciphertext]:
    """What an honest node without a verifier does with blocks that do not open."""
    peeled = CIPHER.peel(KEYS[name][0], blocks)
    return CIPHER.reencrypt([block for block in peeled if block[2] != GROUP.identity])


def after_first(attack: Attack) -> tuple[Onion, Step, Onion]:
    """An onion before the attacker, its honest step, and what the attacker sends."""
    onion = ONIONS.make("abcd", b"payload")
    step = OnionNode(ONIONS, "a", KEYS["a"][0]).handle(onion)
    assert step.onion is not None
    peeled = CIPHER.peel(KEYS["a"][0], onion.blocks)
    return onion, step, Onion(tuple(attack(peeled, step.onion.blocks)), step.onion.body)


def test_every_marker_comes_through_an_honest_node_without_a_verifier() -> None:
    known = 0
    for _ in range(RUNS):
        _, _, sent = after_first(all_markers)
        known += raw_opened("c", honest("b", sent.blocks)) == [MARKER, MARKER]
    assert known == RUNS
    # An onion that nobody marked holds no marker.
    _, step, _ = after_first(all_markers)
    assert step.onion is not None
    assert MARKER not in raw_opened("c", honest("b", step.onion.blocks))


def test_every_factor_comes_through_an_honest_node_without_a_verifier() -> None:
    """Names are known, so the name of d times the factor is known again."""
    tagged, known = GROUP.products(NAMES, [FACTOR] * len(NAMES)), 0
    for _ in range(RUNS):
        _, _, sent = after_first(all_factors)
        known += any(element in tagged for element in raw_opened("c", honest("b", sent.blocks)))
    assert known == RUNS


def test_some_copies_come_through_a_whole_node_without_a_verifier() -> None:
    """The honest node routes by its own name block; a copied one of the colluder is seen twice."""
    known = routed = 0
    for _ in range(6 * RUNS):  # two of five are routed
        _, _, sent = after_first(copies)
        try:
            step = OnionNode(ONIONS, "b", KEYS["b"][0]).handle(sent)
        except DecodeError:  # a block of the honest node itself was copied: it refuses
            continue
        routed += 1
        assert step.onion is not None
        opened = raw_opened("c", step.onion.blocks)
        known += len({GROUP.encode(element) for element in opened}) < len(opened)
    assert routed > 10
    assert known > 3


@pytest.mark.parametrize("attack", [all_markers, all_factors, copies])
def test_the_verifier_refuses_all_tags(attack: Attack) -> None:
    for _ in range(5):
        onion, step, sent = after_first(attack)
        assert ONIONS.verify("a", onion, step)
        assert not ONIONS.verify("a", onion, replace(step, onion=sent))


@pytest.mark.parametrize("attack", [all_markers, all_factors, copies])
def test_no_proof_that_the_attacker_can_make_holds_for_a_tag(attack: Attack) -> None:
    """It knows its secret, and proves what it sends as if it had followed the rules."""
    onion, step, sent = after_first(attack)
    passage = step.passage
    assert passage is not None
    peeled = CIPHER.peel(KEYS["a"][0], onion.blocks)
    pairs = [(1, 1)] * ONIONS.blocks
    forged = ONIONS.prove("a", KEYS["a"][0], onion, peeled, pairs, passage.order, sent, os.urandom)
    assert not ONIONS.verify("a", onion, replace(step, onion=sent, passage=forged))
    # Peeling with another secret, which leaves a factor, is no way either.
    peeled = [(GROUP.multiply(a, FACTOR), b, c, d) for a, b, c, d in peeled]
    forged = replace(passage, peeled=tuple(peeled))
    assert not ONIONS.verify("a", onion, replace(step, passage=forged))


def test_an_honest_node_refuses_to_route_what_lost_its_name() -> None:
    for attack in (all_markers, all_factors):
        _, _, sent = after_first(attack)
        node = OnionNode(ONIONS, "b", KEYS["b"][0])
        refused(DecodeError, "", node.handle, sent)


def test_a_sign_is_a_tag_for_everybody_and_is_refused_where_bytes_are_read() -> None:
    """Times -1, an element is none of the group: every node after it keeps the sign in that block.

    Who watches links sees it by the Legendre symbol, without any key.
    """
    for _ in range(RUNS):
        first = OnionNode(ONIONS, "a", KEYS["a"][0]).handle(ONIONS.make("abcd", b"hello")).onion
        assert first is not None
        blocks = [with_sign(CIPHER, block) for block in first.blocks]
        tagged = Onion(tuple(blocks), first.body)
        seed = raw_opened("b", blocks)
        peeled = CIPHER.peel(KEYS["b"][0], blocks)
        assert len(seed) == 2
        after = CIPHER.reencrypt([block for block in peeled if block[2] != GROUP.identity])
        assert signs_of(CIPHER, after) == [-1] * len(after)
        assert signs_of(CIPHER, first.blocks) == [1] * len(first.blocks)
        with pytest.raises(DecodeError):
            ONIONS.from_bytes(CIPHER.to_rows(tagged.blocks).tobytes() + tagged.body)
