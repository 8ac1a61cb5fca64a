"""Proofs of possession hold for their key, group and context, and say nothing about the secret."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ccbps.algebra.modp import ModpGroup
from ccbps.algebra.named_groups import prime_order_group
from ccbps.ciphers.universal import PossessionProofs
from ccbps.errors import ParameterError

TOY = prime_order_group("toy64")
PROOFS = PossessionProofs(TOY)


@given(st.lists(st.tuples(st.integers(1, int(TOY.order) - 1), st.binary(max_size=9)), max_size=4))
@settings(max_examples=40, deadline=None)
def test_proofs_hold_for_their_own_key_and_context(owners: list[tuple[int, bytes]]) -> None:
    publics = TOY.generator_powers([secret for secret, _ in owners])
    contexts = [context for _, context in owners]
    proofs = [PROOFS.prove(secret, context) for secret, context in owners]
    assert all(len(proof) == PROOFS.proof_bytes for proof in proofs)
    assert PROOFS.hold(publics, proofs, contexts).tolist() == [True] * len(owners)
    assert not PROOFS.hold(publics, proofs, [context + b"\0" for context in contexts]).any()
    others = [TOY.multiply(public, TOY.generator) for public in publics]
    assert not PROOFS.hold(others, proofs, contexts).any()


@pytest.mark.parametrize("name", ["secp256k1", "modp2048"])
def test_in_the_groups_of_full_size(name: str) -> None:
    if name == "secp256k1":
        pytest.importorskip("coincurve")
    group = prime_order_group(name)
    proofs = PossessionProofs(group)
    secret = group.random_exponent()
    public = group.generator_power(secret)
    proof = proofs.prove(secret, b"node")
    held = proofs.hold([public] * 2, [proof, proof[:-1] + bytes([proof[-1] ^ 1])], [b"node"] * 2)
    assert held.tolist() == [True, False]
    assert str(int(secret)) not in repr(proofs)


def test_no_bit_of_a_proof_can_be_changed_and_no_number_has_two_forms() -> None:
    secret = TOY.random_exponent()
    public, proof = TOY.generator_power(secret), PROOFS.prove(secret, b"a")
    number = int.from_bytes(proof, "big")
    size = 8 * PROOFS.proof_bytes
    altered = [(number ^ 1 << bit).to_bytes(PROOFS.proof_bytes, "big") for bit in range(size)]
    width = TOY.exponent_bytes
    answer = int.from_bytes(proof[width:], "big") + int(TOY.order)
    assert answer < 1 << 8 * width  # g^s is the same for s + q.
    altered += [proof[:width] + answer.to_bytes(width, "big")]
    altered += [proof[:-1], proof + b"\0", b"", bytes(len(proof))]
    count = len(altered)
    assert not PROOFS.hold([public] * count, altered, [b"a"] * count).any()
    with pytest.raises(ParameterError, match="got 1 public keys, 1 proofs, 2 contexts"):
        PROOFS.hold([public], [proof], [b"a", b"b"])


def test_no_proof_holds_for_what_is_no_element() -> None:
    # -y has no logarithm: a proof made with that of y would hold for every even challenge.
    secret, width = TOY.random_exponent(), TOY.exponent_bytes
    outside = int(ModpGroup("toy64").modulus - TOY.generator_power(secret))
    forged = []
    for _ in range(20):
        nonce = TOY.random_exponent()
        challenge = PROOFS._challenge(outside, TOY.generator_power(nonce), b"a")
        answer = (nonce + challenge * secret) % TOY.order
        forged.append(int(challenge).to_bytes(width, "big") + int(answer).to_bytes(width, "big"))
    assert not PROOFS.hold([outside] * 20, forged, [b"a"] * 20).any()


@pytest.mark.parametrize("wrong", [None, 5, "text", [1, 2]])
def test_a_proof_that_is_no_bytes_does_not_hold(wrong: Any) -> None:
    secret = TOY.random_exponent()
    publics = [TOY.generator_power(secret)] * 2
    held = PROOFS.hold(publics, [wrong, PROOFS.prove(secret, b"a")], [b"a"] * 2)
    assert held.tolist() == [False, True]


def test_bytes_that_repeat_do_not_give_the_secret_away() -> None:
    """Two answers of one k would: s - s' = (e - e') x."""
    secret, order = TOY.random_exponent(), int(TOY.order)
    two = [PROOFS.prove(secret, context, bytes) for context in (b"a", b"b")]
    (e, s), (f, t) = [(int.from_bytes(p[:8], "big"), int.from_bytes(p[8:], "big")) for p in two]
    assert e != f
    assert (s - t) * pow(e - f, -1, order) % order != secret
    assert PROOFS.prove(secret, b"a", bytes) == two[0]
    assert PROOFS.prove(secret, b"a") != two[0]


def test_answers_of_one_secret_are_uniform() -> None:
    proofs = [PROOFS.prove(5, b"a") for _ in range(2000)]
    for at in (0, 8):
        # The order is just below 2^63.
        buckets = Counter(proof[at] >> 3 for proof in proofs)
        assert stats.chisquare([buckets[value] for value in range(16)]).pvalue > 1e-6
