"""Universal re-encryption: only owners read, nobody links, onions come apart in any order.

Proofs of possession hold for their key, group and context, and say nothing about the secret.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ccbps.algebra.prime_order import ModpGroup, prime_order_group
from ccbps.ciphers.universal import PossessionProofs, UniversalCipher
from ccbps.errors import DecodeError, ParameterError

GROUP = prime_order_group("toy64")
TOY, PROOFS = UniversalCipher(GROUP), PossessionProofs(GROUP)
MESSAGES = [TOY.group.hash_to_group(bytes([i])) for i in range(5)]


def joint(keys: Sequence[tuple[int, Any]]) -> Any:
    """The joint key of nodes that prove they have theirs."""
    names = [b"node %d" % place for place in range(len(keys))]
    proofs = [TOY.proofs.prove(key[0], name) for key, name in zip(keys, names, strict=True)]
    return TOY.joint([public for _, public in keys], proofs, names)


@pytest.mark.parametrize("name", ["toy64", "secp256k1"])
def test_owners_read_what_was_encrypted_again_and_others_do_not(name: str) -> None:
    if name == "secp256k1":
        pytest.importorskip("coincurve")
    cipher = UniversalCipher(prime_order_group(name))
    messages = [cipher.group.hash_to_group(bytes([i])) for i in range(3)]
    (alice, public), (bob, _) = cipher.generate(), cipher.generate()
    texts = cipher.encrypt(public, messages)
    for _ in range(3):
        again = cipher.from_rows(cipher.to_rows(cipher.reencrypt(texts)))
        # Nothing of the old ciphertext is in the new one.
        for old, new in zip(texts, again, strict=True):
            assert not set(old) & set(new)
        texts = again
        assert cipher.decrypt(alice, texts) == messages
        assert cipher.decrypt(bob, texts) == [None] * 3
    assert "x" not in repr(cipher).replace("secp256k1", "")


def test_an_onion_comes_apart_in_any_order_and_only_at_its_end() -> None:
    keys = [TOY.generate() for _ in range(3)]
    public = joint(keys)
    sent = TOY.encrypt(public, MESSAGES)
    for path in permutations(secret for secret, _ in keys):
        texts = sent
        for secret in path[:-1]:
            assert TOY.decrypt(secret, texts) == [None] * 5
            texts = TOY.reencrypt(TOY.peel(secret, texts))
        assert TOY.decrypt(path[-1], texts) == MESSAGES


def test_keys_that_make_no_onion_are_refused() -> None:
    (secret, public), other = TOY.generate(), TOY.generate()
    inverse = -secret, TOY.group.inverse(public)
    for keys in ([], [(secret, public), inverse], [other, (0, TOY.group.identity)]):
        with pytest.raises(ParameterError, match="neither they nor their product may be"):
            joint(keys)
    with pytest.raises(ParameterError, match="each public key once"):
        joint([other, (secret, public), other])
    proof = TOY.proofs.prove(secret, b"a")
    for proofs, contexts in (([], [b"a"]), ([proof] * 2, [b"a"]), ([proof], [])):
        with pytest.raises(ParameterError, match="needs one proof and one context: got 1 public"):
            TOY.joint([public], proofs, contexts)


def test_ciphertexts_that_could_be_marked_are_refused() -> None:
    """With c = d = 1 re-encryption changes nothing: a tag that survives all hops."""
    _, public = TOY.generate()
    text = TOY.encrypt(public, MESSAGES[:1])[0]
    identity = TOY.group.identity
    for marked in ((*text[:2], identity, identity), (*text[:3], identity)):
        with pytest.raises(ParameterError, match="ciphertext 1 would stay as it is"):
            TOY.reencrypt([text, marked])
        with pytest.raises(DecodeError, match="not elements"):
            TOY.from_rows(TOY.to_rows([text, marked]))
    rows = TOY.to_rows([text]).copy()
    rows[0, :8] = 0
    with pytest.raises(DecodeError, match="row 0: a message holds bytes") as caught:
        TOY.from_rows(rows)
    assert caught.value.rows == (0,)
    with pytest.raises(DecodeError, match="has 32 bytes, got"):
        TOY.from_rows(np.zeros((1, 31), dtype=np.uint8))


# -- proofs of possession ------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, int(GROUP.order) - 1), st.binary(max_size=9)), max_size=4))
@settings(max_examples=40, deadline=None)
def test_proofs_hold_for_their_own_key_and_context(owners: list[tuple[int, bytes]]) -> None:
    publics = GROUP.generator_powers([secret for secret, _ in owners])
    contexts = [context for _, context in owners]
    proofs = [PROOFS.prove(secret, context) for secret, context in owners]
    assert all(len(proof) == PROOFS.proof_bytes for proof in proofs)
    assert PROOFS.hold(publics, proofs, contexts).tolist() == [True] * len(owners)
    assert not PROOFS.hold(publics, proofs, [context + b"\0" for context in contexts]).any()
    others = [GROUP.multiply(public, GROUP.generator) for public in publics]
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
    secret = GROUP.random_exponent()
    public, proof = GROUP.generator_power(secret), PROOFS.prove(secret, b"a")
    number = int.from_bytes(proof, "big")
    size = 8 * PROOFS.proof_bytes
    altered = [(number ^ 1 << bit).to_bytes(PROOFS.proof_bytes, "big") for bit in range(size)]
    width = GROUP.exponent_bytes
    answer = int.from_bytes(proof[width:], "big") + int(GROUP.order)
    assert answer < 1 << 8 * width  # g^s is the same for s + q.
    altered += [proof[:width] + answer.to_bytes(width, "big")]
    altered += [proof[:-1], proof + b"\0", b"", bytes(len(proof))]
    count = len(altered)
    assert not PROOFS.hold([public] * count, altered, [b"a"] * count).any()
    with pytest.raises(ParameterError, match="got 1 public keys, 1 proofs, 2 contexts"):
        PROOFS.hold([public], [proof], [b"a", b"b"])


def test_no_proof_holds_for_what_is_no_element() -> None:
    # -y has no logarithm: a proof made with that of y would hold for every even challenge.
    secret, width = GROUP.random_exponent(), GROUP.exponent_bytes
    outside = int(ModpGroup("toy64").modulus - GROUP.generator_power(secret))
    forged = []
    for _ in range(20):
        nonce = GROUP.random_exponent()
        challenge = PROOFS._challenge(outside, GROUP.generator_power(nonce), b"a")
        answer = (nonce + challenge * secret) % GROUP.order
        forged.append(int(challenge).to_bytes(width, "big") + int(answer).to_bytes(width, "big"))
    assert not PROOFS.hold([outside] * 20, forged, [b"a"] * 20).any()


@pytest.mark.parametrize("wrong", [None, 5, "text", [1, 2]])
def test_a_proof_that_is_no_bytes_does_not_hold(wrong: Any) -> None:
    secret = GROUP.random_exponent()
    publics = [GROUP.generator_power(secret)] * 2
    held = PROOFS.hold(publics, [wrong, PROOFS.prove(secret, b"a")], [b"a"] * 2)
    assert held.tolist() == [False, True]


def test_bytes_that_repeat_do_not_give_the_secret_away() -> None:
    """Two answers of one k would: s - s' = (e - e') x."""
    secret, order = GROUP.random_exponent(), int(GROUP.order)
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
        assert stats.chisquare([buckets[value] for value in range(16)]).pvalue > 1e-9
