"""Universal re-encryption: anybody can make a ciphertext look new, without knowing its receiver.

It is ElGamal with a second ciphertext, of 1, that serves as a stock of randomness. With y = g^x and
random k0, k1, a ciphertext of m is (a, b, c, d) = (m y^k0, g^k0, y^k1, g^k1). Re-encryption with
random r0, r1 gives (a c^r0, b d^r0, c^r1, d^r1). The owner of x knows its own ciphertexts by
c / d^x = 1, and m is a / b^x.

With y the product of the keys of several nodes, each takes its part away (`peel`), and the last one
is left with m: an onion that is made new at every hop.

**Proofs of possession.** Each node proves that it knows its secret. Without proofs, a key that was
made last, from the others, could cancel them: with y = g^x / (y_1 ... y_n) the product of all is
g^x, and x alone opens a message that is encrypted for all of them together. Nobody knows the
logarithm of such a y, so nobody can prove to know it. The proof is Schnorr's, with a hash in the
verifier's place. For y = g^x and a k that is used once::

    e = H(group, y, g^k, context),   s = k + e x mod q;   the proof is (e, s),

and it holds if e = H(group, y, g^s / y^e, context). A context names the owner and the purpose of a
proof, and the verifier knows it beforehand: a proof that is copied holds for nobody else. A
secret's k is hashed from the secret, the statement and fresh random bytes, so random bytes that
repeat do not give it away. Hashes are SHAKE256.

Conventions: messages are elements of a group of prime order; send the hash of a random one as a
key.

Hazards: a proof says nothing about its sender, and can be shown again: in the same context it is
worth the same. Ciphertexts are malleable, by design: no integrity. A ciphertext with d = 1 would
stay recognizable through all re-encryptions, so the identity is refused in c and d, when rows are
decoded and when ciphertexts are re-encrypted. Colluding ends of a path see who talks to whom. A
product of public keys that was not made by `joint` may be anybody's. Not constant time.
Source: [GJJS04]; [Survey] section 4.2 and chapter 6, both without proofs; [S91] for the proofs,
[RY07] on the attack that they prevent.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from ccbps.algebra.prime_order import Element, PrimeOrderGroup
from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.checks import Printable
from ccbps.ciphers.oblivious import decode_columns
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError

NONCE_BYTES: Final = 32

Ciphertext: TypeAlias = tuple[Element, Element, Element, Element]


class PossessionProofs(Printable):
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


class UniversalCipher(Printable):
    """Universal re-encryption over one group. It holds no secret.

    Attributes:
        group: group of the elements.
        ciphertext_bytes: bytes of a ciphertext, four elements.
        proofs: proofs that nodes know their secrets.
    """

    def __init__(self, group: PrimeOrderGroup) -> None:
        self.group = group
        self.ciphertext_bytes = 4 * group.element_bytes
        self.proofs = PossessionProofs(group)

    def __repr__(self) -> str:
        return f"<UniversalCipher over {self.group.name}>"

    def generate(self, randomness: Randomness = os.urandom) -> tuple[int, Element]:
        """Draw a secret x; return it with the public g^x."""
        secret = self.group.random_exponent(randomness)
        return int(secret), self.group.generator_power(secret)

    def joint(
        self, publics: Sequence[Element], proofs: Sequence[bytes], contexts: Sequence[bytes]
    ) -> Element:
        """Return the public key of an onion for all of these nodes, in any order.

        Args:
            publics: keys of the nodes, each once.
            proofs: proofs `proofs.prove(secret, context)`, one of each node.
            contexts: owner and purpose of each key, such as network and name of the node, as the
                caller knows them (not as they came with the proof).

        Raises:
            ParameterError: there is not one proof and one context for each key; no key is given, or
                one twice; or a key, or the product of all, is the identity.
            KeyMismatchError: a proof does not hold for its key and context; names positions.
        """
        held = self.proofs.hold(publics, proofs, contexts)
        if not held.all():
            bad = ", ".join(map(str, np.flatnonzero(~held)))
            raise KeyMismatchError(
                "no proof, of this context, that somebody knows the secret of public keys "
                f"{bad}: such a key could open alone a message for all; leave these nodes out"
            )
        if len({self.group.encode(public) for public in publics}) < len(publics):
            raise ParameterError("an onion needs each public key once, got one twice")
        product = self.group.identity
        for public in publics:
            product = self.group.multiply(product, public)
        if self.group.identity in (product, *publics):
            raise ParameterError(
                "an onion needs one public key or more, and neither they nor their product may be "
                "the identity"
            )
        return product

    def encrypt(
        self, public: Element, messages: Sequence[Element], randomness: Randomness = os.urandom
    ) -> list[Ciphertext]:
        """Return ciphertexts of elements."""
        group, count = self.group, len(messages)
        draws = group.random_exponents(2 * count, randomness)
        bases = group.generator_powers(draws)
        masks = group.table(public).powers(draws)
        hidden = group.products(messages, masks[:count])
        return list(zip(hidden, bases[:count], masks[count:], bases[count:], strict=True))

    def reencrypt(
        self, ciphertexts: Sequence[Ciphertext], randomness: Randomness = os.urandom
    ) -> list[Ciphertext]:
        """Return the same messages under fresh randomness, without a key.

        Raises:
            ParameterError: a ciphertext has the identity in c or d; names its position.
        """
        group, count = self.group, len(ciphertexts)
        for row, (_, _, c, d) in enumerate(ciphertexts):
            if group.identity in (c, d):
                raise ParameterError(
                    f"ciphertext {row} would stay as it is: its c or d is the identity"
                )
        draws = group.random_exponents(2 * count, randomness)
        fresh = draws[:count] * 2 + draws[count:] * 2
        c, d = [text[2] for text in ciphertexts], [text[3] for text in ciphertexts]
        powers = group.powers([*c, *d, *c, *d], fresh)
        a = group.products([text[0] for text in ciphertexts], powers[:count])
        b = group.products([text[1] for text in ciphertexts], powers[count : 2 * count])
        return list(zip(a, b, powers[2 * count : 3 * count], powers[3 * count :], strict=True))

    def peel(self, secret: int, ciphertexts: Sequence[Ciphertext]) -> list[Ciphertext]:
        """Return ciphertexts without one node's part of a joint key."""
        group, count = self.group, len(ciphertexts)
        masks = group.powers([t[1] for t in ciphertexts] + [t[3] for t in ciphertexts], secret)
        bare = group.quotients([t[0] for t in ciphertexts] + [t[2] for t in ciphertexts], masks)
        return [
            (a, text[1], c, text[3])
            for a, c, text in zip(bare[:count], bare[count:], ciphertexts, strict=True)
        ]

    def decrypt(self, secret: int, ciphertexts: Sequence[Ciphertext]) -> list[Element | None]:
        """Return the message of each ciphertext for this secret, and None for the others."""
        identity = self.group.identity
        return [a if c == identity else None for a, _, c, _ in self.peel(secret, ciphertexts)]

    def to_rows(self, ciphertexts: Sequence[Ciphertext]) -> Bytes:
        """Return ciphertexts as bytes, shape (count, ciphertext_bytes)."""
        elements = [element for text in ciphertexts for element in text]
        return self.group.encode_many(elements).reshape(len(ciphertexts), self.ciphertext_bytes)

    def from_rows(self, rows: Bytes) -> list[Ciphertext]:
        """Read the ciphertexts that `to_rows` wrote.

        Raises:
            DecodeError: rows have another width, or hold bytes that are not elements, or the
                identity.
        """
        if rows.shape[1:] != (self.ciphertext_bytes,):
            raise DecodeError(f"a ciphertext has {self.ciphertext_bytes} bytes, got {rows.shape}")
        return list(zip(*decode_columns(self.group, "ciphertexts", rows, 4), strict=True))
