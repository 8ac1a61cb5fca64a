"""Searchable encryption with many users by ElGamal proxy encryption: SDE.

Every user encrypts keywords and makes trapdoors under a key of its own. A server that holds the
other half of that user's key turns both into a form under one common key that nobody holds, and
finds the trapdoors that match a ciphertext. Deleting the half at the server revokes the user;
nothing is encrypted again.

In a group of prime order q with generator g, a master key (x, s), h = g^x and a pseudorandom
function f (HMAC-SHA256 and SHAKE256, reduced modulo q), with sigma = f_s(keyword):

- key_gen: x1 uniform, x2 = x - x1. The user holds (x1, s), the server x2.
- encrypt: c1* = g^(r + sigma), c2* = (c1*)^x1, c3* = H(h^r), for a fresh r.
- trapdoors: t1 = g^(sigma - r), t2 = h^r t1^x1, for a fresh r.
- re_encrypt: c1 = (c1*)^x2 c2* = h^(r + sigma), c2 = c3*.
- tokens: T = t1^x2 t2 = g^(x sigma).
- search: H(c1 / T) = c2. Wrong with probability about 2^-128.

The signs are as printed in [N1]: with t1 = g^(r + sigma) nothing would cancel.

H is SHA-256 of an element's label, cut to 16 bytes. A user knows all its exponents, so its powers
are of the fixed bases g and h. A search costs a product and a hash; the server's powers are taken
once for a ciphertext and once for a trapdoor.

Hazard: T depends on the keyword alone, so the server sees which trapdoors, of any users, are for
equal keywords. The server and one user together have x1 + x2 = x and s: they read everything by
a dictionary. A user alone can make a ciphertext or trapdoor of any keyword.
Source: [DRD08] section 4; [N1] section 3.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Any, Final

import numpy as np

from ccbps.algebra.prime_order import PowerTable, PrimeOrderGroup
from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.checks import Printable
from ccbps.keys.secret import Confined

DIGEST_BYTES: Final = 16
KEY_BYTES: Final = 32
DECODED: Final = 1 << 14
"""Number of elements that are kept from a check to the use, without those of the last batch."""
SEARCH_BATCH: Final = 1 << 12
"""Labels hashed and compared at a time."""


@dataclass(frozen=True, slots=True, repr=False)
class MasterKey(Confined):
    """A master key (x, s). Its owner reads and forges everything."""

    x: int
    s: bytes


@dataclass(frozen=True, slots=True, repr=False)
class UserKey(Confined):
    """A user's key (x1, s), and the public h, encoded."""

    x1: int
    s: bytes
    h: bytes


@dataclass(frozen=True, slots=True, repr=False)
class SearchForm:
    """The ciphertexts as the server keeps them.

    Attributes:
        c1: group elements.
        c2: digests, shape (len(c1), 16).
    """

    c1: list[Any]
    c2: Bytes


@dataclass(frozen=True, slots=True, repr=False)
class SearchTokens:
    """The tokens as the server keeps them: prepared as divisors."""

    divisors: Sequence[Any]

    def __len__(self) -> int:
        return len(self.divisors)


@lru_cache(maxsize=4)
def _table(group: PrimeOrderGroup, h: bytes) -> PowerTable:
    return group.table(group.decode(h))


def _digests(labels: Sequence[bytes]) -> Bytes:
    joined = b"".join([sha256(label).digest() for label in labels])
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, 32)[:, :DIGEST_BYTES]


class ProxySearch(Printable):
    """The algorithms of the scheme over one group.

    Attributes:
        group: group of the elements.
        ciphertext_bytes: bytes of a ciphertext.
        trapdoor_bytes: bytes of a trapdoor.
    """

    def __init__(self, group: PrimeOrderGroup) -> None:
        self.group = group
        self._decoded: dict[bytes, Any] = {}
        self.ciphertext_bytes = 2 * group.element_bytes + DIGEST_BYTES
        self.trapdoor_bytes = 2 * group.element_bytes

    def __repr__(self) -> str:
        return f"<ProxySearch over {self.group.name}>"

    def init(self, randomness: Randomness = os.urandom) -> MasterKey:
        """Draw a master key."""
        return MasterKey(self.group.random_exponent(randomness), randomness(KEY_BYTES))

    def key_gen(
        self, master: MasterKey, randomness: Randomness = os.urandom
    ) -> tuple[UserKey, int]:
        """Draw a user's key; return it with x2, the other half, for the server."""
        x2 = self.group.random_exponent(randomness)
        return self.user_key(master, x2), x2

    def user_key(self, master: MasterKey, x2: int) -> UserKey:
        """Return the key of the user whose other half is x2."""
        h = self.group.encode(self.group.generator_power(master.x))
        return UserKey((master.x - x2) % self.group.order, master.s, h)

    def sigmas(self, s: bytes, keywords: Sequence[bytes]) -> list[int]:
        """Compute f_s of each keyword, once for equal keywords."""
        distinct = list(dict.fromkeys(keywords))
        digests = [hmac.digest(s, word, "sha256") for word in distinct]
        sigmas = dict(zip(distinct, self.group.hash_to_exponents(digests), strict=True))
        return [sigmas[word] for word in keywords]

    def encrypt(
        self, user: UserKey, keywords: Sequence[bytes], randomness: Randomness = os.urandom
    ) -> Bytes:
        """Return ciphertexts c* = (c1*, c2*, c3*), shape (len(keywords), ciphertext_bytes)."""
        group = self.group
        masks, first, second = self._blinded(user, keywords, 1, randomness)
        elements = [group.encode_many(first), group.encode_many(second)]
        return np.concatenate([*elements, _digests(group.labels(masks))], axis=1)

    def trapdoors(
        self, user: UserKey, keywords: Sequence[bytes], randomness: Randomness = os.urandom
    ) -> Bytes:
        """Return trapdoors (t1, t2), shape (len(keywords), trapdoor_bytes)."""
        group = self.group
        masks, first, second = self._blinded(user, keywords, -1, randomness)
        second = group.products(masks, second)
        return np.concatenate([group.encode_many(first), group.encode_many(second)], axis=1)

    def _blinded(
        self, user: UserKey, keywords: Sequence[bytes], sign: int, randomness: Randomness
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Draw an r for each keyword; return h^r, g^k and g^(k x1) for k = sigma + sign r."""
        group, q = self.group, self.group.order
        blinds = group.random_exponents(len(keywords), randomness)
        sigmas = self.sigmas(user.s, keywords)
        exponents = [(sigma + sign * r) % q for r, sigma in zip(blinds, sigmas, strict=True)]
        return (
            _table(group, user.h).powers(blinds),
            group.generator_powers(exponents),
            group.generator_powers([k * user.x1 % q for k in exponents]),
        )

    def well_formed(self, rows: Bytes) -> Bools:
        """Mark the rows of ciphertexts or trapdoors that hold two elements of the group."""
        width = self.group.element_bytes
        good = np.ones(len(rows), dtype=np.bool_)
        for start in (0, width):
            decoded = self._decode(rows[:, start : start + width])
            good &= np.array([element is not None for element in decoded], dtype=np.bool_)
        return good

    def re_encrypt(self, x2: int | Sequence[int], ciphertexts: Bytes) -> SearchForm:
        """Bring well-formed ciphertexts under the common key.

        Args:
            x2: other half of the users' keys, one for each row or one for all.
            ciphertexts: ciphertexts, shape (rows, ciphertext_bytes).
        """
        digests = np.array(ciphertexts[:, 2 * self.group.element_bytes :])
        return SearchForm(self.tokens(x2, ciphertexts), digests)

    def tokens(self, x2: int | Sequence[int], trapdoors: Bytes) -> list[Any]:
        """Return t1^x2 t2 of each row (t1, t2): of a well-formed trapdoor, this is the token T.

        Args:
            x2: other half of the users' keys, one for each row or one for all.
            trapdoors: trapdoors, shape (rows, trapdoor_bytes).
        """
        group, width = self.group, self.group.element_bytes
        first = self._decode(trapdoors[:, :width])
        second = self._decode(trapdoors[:, width : 2 * width])
        return group.products(group.powers(first, x2), second)

    def prepared(self, tokens: Sequence[Any]) -> SearchTokens:
        """Prepare tokens for many searches."""
        return SearchTokens(self.group.divisors(tokens))

    def search(self, ciphertexts: SearchForm, tokens: Sequence[Any] | SearchTokens) -> Bools:
        """Mark the tokens that belong to each ciphertext, shape (tokens, ciphertexts)."""
        if not isinstance(tokens, SearchTokens):
            tokens = self.prepared(tokens)
        count = len(ciphertexts.c1)
        if not count or not len(tokens):
            return np.zeros((len(tokens), count), dtype=np.bool_)
        quotients = self.group.quotient_labels(ciphertexts.c1, tokens.divisors)
        right = np.ascontiguousarray(ciphertexts.c2).view("<u8")
        parts = []
        while rows := list(islice(quotients, max(1, SEARCH_BATCH // count))):
            digests = np.ascontiguousarray(_digests([label for row in rows for label in row]))
            words = digests.view("<u8").reshape(len(rows), count, 2)
            parts.append((words == right).all(axis=2))
        return np.concatenate(parts)

    def _decode(self, rows: Bytes) -> list[Any | None]:
        """Decode elements as the group does; those just checked are not decoded again."""
        data, width = np.ascontiguousarray(rows).tobytes(), rows.shape[1]
        texts = [data[at : at + width] for at in range(0, len(data), width)]
        recent = self._decoded if len(self._decoded) <= DECODED else {}
        self._decoded = recent
        fresh = [place for place, text in enumerate(texts) if text not in recent]
        if fresh:
            decoded = self.group.decode_many(rows[fresh])
            recent.update(zip([texts[place] for place in fresh], decoded, strict=True))
        return [recent[text] for text in texts]
