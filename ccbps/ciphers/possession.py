"""Proofs of possession: the owner of a public key knows the secret that belongs to it.

Where public keys are multiplied, one that was made last, from the others, can cancel them: with
y = g^x / (y_1 ... y_n) the product of all is g^x, and x alone opens a message that is encrypted for
all of them together. Nobody knows the logarithm of such a y, so nobody can prove to know it.

Schnorr's proof, with a hash in the verifier's place. For y = g^x and a k that is used once,

    e = H(group, y, g^k, context),   s = k + e x mod q;   the proof is (e, s),

and it holds if e = H(group, y, g^s / y^e, context).

Conventions: a context names the owner and the purpose of a proof, and the verifier knows it
beforehand: a proof that is copied holds for nobody else. A secret's k is hashed from the secret,
the statement and fresh random bytes, so random bytes that repeat do not give it away. Hashes are
SHAKE256.

Hazards: a proof says nothing about who sent it, and can be shown again: in the same context it is
worth the same. Not constant time.
Source: [S91]; [RY07] on the attack that it prevents.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from ccbps.algebra.prime_order import Element, PrimeOrderGroup
from ccbps.arrays import Bools, Randomness
from ccbps.errors import ParameterError

NONCE_BYTES: Final = 32


class PossessionProofs:
    """Proofs for public keys g^x of one group. It holds no secret.

    Attributes:
        group: group of the public keys.
        proof_bytes: bytes of a proof: two exponents, e and s, most significant byte first.
    """

    def __init__(self, group: PrimeOrderGroup) -> None:
        self.group = group
        self.proof_bytes = 2 * group.exponent_bytes

    def __repr__(self) -> str:
        return f"<PossessionProofs over {self.group.name}>"

    def prove(self, secret: int, context: bytes, randomness: Randomness = os.urandom) -> bytes:
        """Return a proof that its maker knows the secret x of the public key g^x."""
        group, width = self.group, self.group.exponent_bytes
        secret = int(secret % group.order)
        public = group.generator_power(secret)
        drawn = secret.to_bytes(width, "big") + randomness(NONCE_BYTES)
        nonce = group.hash_to_exponent(
            b"ccbps possession nonce\0" + drawn + group.encode(public) + context
        )
        challenge = self._challenge(public, group.generator_power(nonce), context)
        answer = (nonce + challenge * secret) % group.order
        return int(challenge).to_bytes(width, "big") + int(answer).to_bytes(width, "big")

    def hold(
        self, publics: Sequence[Element], proofs: Sequence[bytes], contexts: Sequence[bytes]
    ) -> Bools:
        """Mark the proofs that hold for their public keys and contexts, shape (publics,).

        None holds for a key that is not an element of the group, since it has no logarithm there.

        Raises:
            ParameterError: there is not one proof and one context for each public key.
        """
        if not len(publics) == len(proofs) == len(contexts):
            raise ParameterError(
                "each public key needs one proof and one context: got "
                f"{len(publics)} public keys, {len(proofs)} proofs, {len(contexts)} contexts"
            )
        group, width = self.group, self.group.exponent_bytes
        proofs = [p if isinstance(p, (bytes, bytearray, memoryview)) else b"" for p in proofs]
        elements = group.decode_many(group.encode_many(publics))
        formed = [
            len(proof) == self.proof_bytes and (element is not None or public == group.identity)
            for proof, element, public in zip(proofs, elements, publics, strict=True)
        ]
        challenges = [int.from_bytes(proof[:width], "big") for proof in proofs]
        answers = [int.from_bytes(proof[width:], "big") for proof in proofs]
        nonces = group.quotients(group.generator_powers(answers), group.powers(publics, challenges))
        held = [
            good and answer < group.order and challenge == self._challenge(public, nonce, context)
            for good, answer, challenge, public, nonce, context in zip(
                formed, answers, challenges, publics, nonces, contexts, strict=True
            )
        ]
        return np.array(held, dtype=np.bool_)

    def _challenge(self, public: Element, nonce: Element, context: bytes) -> int:
        group = self.group
        head = b"ccbps possession\0" + group.name.encode() + b"\0"
        return group.hash_to_exponent(head + group.encode(public) + group.encode(nonce) + context)
