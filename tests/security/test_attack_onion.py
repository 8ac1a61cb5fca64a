"""Onions for several nodes: a key that is made of those of the others opens them alone.

The attacker is a node that publishes its key last, y = g^x / (product of the others). Multiplied
without a proof, the joint key is g^x. It cannot prove that it knows the logarithm of y, with
whatever it has: its own secret, the proofs of others, or a proof whose challenge it chose itself.
"""

from __future__ import annotations

import pytest

from ccbps.algebra.prime_order import prime_order_group
from ccbps.attacks.schemes.onion import rogue_key
from ccbps.ciphers.universal import UniversalCipher
from ccbps.errors import KeyMismatchError
from tests.support.refusals import refused

CIPHER = UniversalCipher(prime_order_group("toy64"))
GROUP, PROOFS = CIPHER.group, CIPHER.proofs
NAMES = [b"onions 1, node %d" % place for place in range(3)]
MESSAGES = [GROUP.hash_to_group(bytes([place])) for place in range(4)]
(ALICE, ALICES), (BOB, BOBS) = CIPHER.generate(), CIPHER.generate()
HONEST = [PROOFS.prove(secret, name) for secret, name in zip((ALICE, BOB), NAMES, strict=False)]
X, ROGUE = rogue_key(CIPHER, [ALICES, BOBS])


def test_a_product_of_keys_without_proofs_is_the_last_ones_own() -> None:
    product = GROUP.multiply(GROUP.multiply(ALICES, BOBS), ROGUE)
    assert CIPHER.decrypt(X, CIPHER.encrypt(product, MESSAGES)) == MESSAGES


def forged(challenge: int, answer: int) -> bytes:
    width = GROUP.exponent_bytes
    return int(challenge).to_bytes(width, "big") + int(answer).to_bytes(width, "big")


def test_a_rogue_key_is_refused_with_any_proof_its_maker_has() -> None:
    draws = GROUP.random_exponents(4)
    # s and e first: the g^k for which it would hold is known, and hashes to another e.
    (nonce,) = GROUP.quotients([GROUP.generator_power(draws[0])], [GROUP.power(ROGUE, draws[1])])
    hashed = PROOFS._challenge(ROGUE, nonce, NAMES[2])
    attempts = {
        "its own secret": PROOFS.prove(X, NAMES[2]),
        "alice's proof": HONEST[0],
        "bob's proof, for this context": PROOFS.prove(BOB, NAMES[2]),
        "all proofs multiplied": forged(
            int.from_bytes(PROOFS.prove(X, NAMES[2])[:8], "big"),
            sum(int.from_bytes(proof[8:], "big") for proof in HONEST) % GROUP.order,
        ),
        "a challenge it chose": forged(draws[1], draws[0]),
        "what that hashes to": forged(hashed, draws[0]),
        "any numbers": forged(draws[2], draws[3]),
        "nothing": b"",
    }
    for attempt, proof in attempts.items():
        with pytest.raises(KeyMismatchError, match="secret of public keys 2: such a key") as caught:
            CIPHER.joint([ALICES, BOBS, ROGUE], [*HONEST, proof], NAMES)
        assert str(int(X)) not in str(caught.value), attempt


def test_proofs_of_others_and_of_other_contexts_are_refused() -> None:
    """A copied key takes nothing away, but its maker could not open anything; nor is it let in."""
    mallory, public = CIPHER.generate()
    proof_of_mallory = PROOFS.prove(mallory, NAMES[2])
    keys = [ALICES, BOBS, public]
    for proofs, names, bad in (
        ([HONEST[0], HONEST[1], HONEST[0]], NAMES, "2"),
        ([HONEST[1], HONEST[0], proof_of_mallory], NAMES, "0, 1"),
        ([*HONEST, proof_of_mallory], [*NAMES[:2], b"onions 2, node 2"], "2"),
        ([*HONEST, proof_of_mallory], NAMES[::-1], "0, 2"),
    ):
        refused(KeyMismatchError, f"public keys {bad}: such", CIPHER.joint, keys, proofs, names)
    copied = [*HONEST, HONEST[0]]
    with pytest.raises(KeyMismatchError, match="public keys 2: such"):
        CIPHER.joint([ALICES, BOBS, ALICES], copied, NAMES)
    # The honest ones make an onion that needs all three.
    sent = CIPHER.encrypt(CIPHER.joint(keys, [*HONEST, proof_of_mallory], NAMES), MESSAGES)
    for secret in (ALICE, BOB, mallory, X):
        assert CIPHER.decrypt(secret, sent) == [None] * 4
    for secret in (ALICE, BOB):
        sent = CIPHER.reencrypt(CIPHER.peel(secret, sent))
    assert CIPHER.decrypt(mallory, sent) == MESSAGES
