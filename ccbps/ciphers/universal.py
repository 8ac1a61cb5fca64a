"""Universal re-encryption: anybody can make a ciphertext look new, without knowing whom it is for.

ElGamal with a second ciphertext, of 1, that serves as a stock of randomness. With y = g^x and
random k0, k1 a ciphertext of m is (a, b, c, d) = (m y^k0, g^k0, y^k1, g^k1); re-encryption with
random r0, r1 is (a c^r0, b d^r0, c^r1, d^r1). The owner of x knows its own by c / d^x = 1, and m is
a / b^x.

With y the product of the keys of several nodes, each takes its part away (`peel`), and the last one
is left with m: an onion that is made new at every hop. Each node proves that it knows its secret
(`ccbps.ciphers.possession`): with g^x over the product of the others in place of its own key, a
node could open alone what is meant for all.

Conventions: messages are elements of a group of prime order; send the hash of a random one as a
key.

Hazards: malleable, by design: no integrity. A ciphertext with d = 1 would stay recognizable through
all re-encryptions, so the identity is refused in c and d, in what is decoded and in what is
re-encrypted. Colluding ends of a path see who talks to whom. A product of public keys that was not
made by `joint` may be anybody's. Not constant time.
Source: [GJJS04]; [Survey] section 4.2 and chapter 6, both without proofs; [RY07] on these.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.prime_order import PrimeOrderGroup
from ccbps.arrays import Randomness
from ccbps.ciphers.possession import PossessionProofs
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError

Rows = NDArray[np.uint8]
Element: TypeAlias = Any
Ciphertext: TypeAlias = tuple[Element, Element, Element, Element]


class UniversalCipher:
    """Universal re-encryption over one group. Holds no secret.

    Attributes:
        group: public.
        ciphertext_bytes: four elements.
        proofs: that nodes know their secrets.
    """

    def __init__(self, group: PrimeOrderGroup) -> None:
        self.group = group
        self.ciphertext_bytes = 4 * group.element_bytes
        self.proofs = PossessionProofs(group)

    def __repr__(self) -> str:
        return f"<UniversalCipher over {self.group.name}>"

    def generate(self, randomness: Randomness = os.urandom) -> tuple[int, Element]:
        """A secret x and the public g^x."""
        secret = self.group.random_exponent(randomness)
        return int(secret), self.group.generator_power(secret)

    def joint(
        self, publics: Sequence[Element], proofs: Sequence[bytes], contexts: Sequence[bytes]
    ) -> Element:
        """The public key of an onion for all of these nodes, in any order.

        Args:
            publics: the nodes' keys, each once.
            proofs: `proofs.prove(secret, context)` of each node.
            contexts: whose key it is and what for, such as network and name of the node: not what
                came with the proof, but what the caller knows.

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
                f"{bad}: such a key could open alone what is for all; leave these nodes out"
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
        """Ciphertexts of elements."""
        group, count = self.group, len(messages)
        draws = group.random_exponents(2 * count, randomness)
        bases = group.generator_powers(draws)
        masks = group.table(public).powers(draws)
        hidden = group.products(messages, masks[:count])
        return list(zip(hidden, bases[:count], masks[count:], bases[count:], strict=True))

    def reencrypt(
        self, ciphertexts: Sequence[Ciphertext], randomness: Randomness = os.urandom
    ) -> list[Ciphertext]:
        """The same messages under fresh randomness; needs no key.

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
        """Ciphertexts without one node's part of a joint key."""
        group, count = self.group, len(ciphertexts)
        masks = group.powers([t[1] for t in ciphertexts] + [t[3] for t in ciphertexts], secret)
        bare = group.quotients([t[0] for t in ciphertexts] + [t[2] for t in ciphertexts], masks)
        return [
            (a, text[1], c, text[3])
            for a, c, text in zip(bare[:count], bare[count:], ciphertexts, strict=True)
        ]

    def decrypt(self, secret: int, ciphertexts: Sequence[Ciphertext]) -> list[Element | None]:
        """The message of each ciphertext that is for this secret, None for the others."""
        identity = self.group.identity
        return [a if c == identity else None for a, _, c, _ in self.peel(secret, ciphertexts)]

    def to_rows(self, ciphertexts: Sequence[Ciphertext]) -> Rows:
        """Ciphertexts as bytes, shape (count, ciphertext_bytes)."""
        elements = [element for text in ciphertexts for element in text]
        return self.group.encode_many(elements).reshape(len(ciphertexts), self.ciphertext_bytes)

    def from_rows(self, rows: Rows) -> list[Ciphertext]:
        """What `to_rows` wrote.

        Raises:
            DecodeError: the wrong width, bytes that are not elements, or the identity.
        """
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != self.ciphertext_bytes:
            raise DecodeError(
                f"ciphertexts must be uint8 of shape (count, {self.ciphertext_bytes}), "
                f"got {rows.dtype} {rows.shape}"
            )
        size = self.group.element_bytes
        flat = self.group.decode_many(np.ascontiguousarray(rows).reshape(-1, size))
        texts = [tuple(flat[at : at + 4]) for at in range(0, len(flat), 4)]
        bad = tuple(row for row, text in enumerate(texts) if None in text)
        if bad:
            cause = f"the ciphertext holds bytes that are not an element of {self.group.name}"
            raise DecodeError(f"row {bad[0]}: {cause}", rows=bad, causes=(cause,) * len(bad))
        return texts  # type: ignore[return-value]
