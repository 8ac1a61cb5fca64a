"""eq-COT: the receiver gets a key if its word equals the sender's, and the sender cannot tell.

The receiver posts an encryption of its word. The sender, who cannot read it, turns it into an
encryption of k (x_receiver / x_sender)^r for a random r. That is k for equal words, and for others
an element that is uniform among those other than k, whatever the receiver posted. Neither side
learns the other's word; the sender does not learn whether they were equal.

Conventions: a group of prime order q with generator g; a word x is hashed into it. With the
receiver's secret z and h = g^z, and k, r, u, y fresh and uniform::

    request   h, c1 = g^y, c2 = h^y x_receiver
    response  d1 = c1^r g^u, d2 = (c2 / x_sender)^r h^u k
    key       k' = d2 / d1^z = k (x_receiver / x_sender)^r

Each request has a z of its own. k' is hashed to 32 bytes for a symmetric cipher: with that, one
transfer serves any number of messages (h-eq-COT).

Hazards: many requests try many words, one per request: the sender decides how many it answers. The
sender's privacy holds against any receiver, the receiver's word is hidden by decisional
Diffie-Hellman. Not constant time. Elements are checked when they are decoded: outside the group of
prime order, r would leak.
Source: [COR99]; [DCSTW13]; [Survey] section 4.6.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps.algebra.prime_order import Element, PrimeOrderGroup
from ccbps.arrays import Bytes, Randomness
from ccbps.checks import Printable, array
from ccbps.wire import Cause, raise_for

AGREED_KEY_BYTES: Final = 32


def decode_columns(
    group: PrimeOrderGroup, name: str, rows: Bytes, count: int
) -> list[list[Element]]:
    """Decode rows of `count` elements each; return a list for each column.

    Raises:
        ShapeError: the rows have another width; the error calls them `name`.
        DecodeError: rows hold bytes that are not elements, or the identity; the error names them.
    """
    size = group.element_bytes
    array(name, rows, np.uint8, ("count", count * size))
    columns = [
        group.decode_many(np.ascontiguousarray(rows[:, at : at + size]))
        for at in range(0, count * size, size)
    ]
    bad = np.array([None in row for row in zip(*columns, strict=True)], dtype=np.bool_)
    raise_for(bad * np.uint8(Cause.ELEMENT))
    return columns


class EqCot(Printable):
    """Equality-conditional oblivious transfer of fresh keys over one group. It holds no secret.

    Attributes:
        group: group of the elements.
        request_bytes: bytes of one request, three elements.
        response_bytes: bytes of one response, two elements.
    """

    def __init__(self, group: PrimeOrderGroup) -> None:
        self.group = group
        self.request_bytes = 3 * group.element_bytes
        self.response_bytes = 2 * group.element_bytes

    def __repr__(self) -> str:
        return f"<EqCot over {self.group.name}>"

    def request(
        self, words: Sequence[bytes], randomness: Randomness = os.urandom
    ) -> tuple[list[int], Bytes]:
        """Make the receiver's request for each word.

        Returns:
            The receiver's secrets z, one each, and the requests, shape (len(words), request_bytes).
        """
        group, count = self.group, len(words)
        drawn = group.random_exponents(2 * count, randomness)
        secrets, masks = drawn[:count], drawn[count:]
        shared = [z * y % group.order for z, y in zip(secrets, masks, strict=True)]
        first = group.generator_powers([*secrets, *masks, *shared])
        hidden = group.products(first[2 * count :], [self._element(word) for word in words])
        return secrets, self._encode(first[:count], first[count : 2 * count], hidden)

    def finish(
        self, secrets: Sequence[int], responses: Bytes, contexts: Sequence[bytes]
    ) -> list[bytes]:
        """Return the keys that came with responses: the sender's where the words are equal.

        Args:
            secrets: z of the request that each response is for.
            responses: responses, shape (len(secrets), response_bytes).
            contexts: bytes that the sender bound each key to.

        Raises:
            ShapeError: responses have another width.
            DecodeError: a response holds bytes that are not elements; names rows.
        """
        first, second = decode_columns(self.group, "responses", responses, 2)
        masks = self.group.powers(first, [int(z) for z in secrets])
        return self._keys(self.group.quotients(second, masks), contexts)

    def respond(
        self,
        requests: Bytes,
        words: Sequence[bytes],
        contexts: Sequence[bytes],
        randomness: Randomness = os.urandom,
        *,
        of: Sequence[int] | None = None,
    ) -> tuple[list[bytes], Bytes]:
        """Make a fresh key and the response that carries it, for each of the sender's words.

        Args:
            requests: requests, shape (count, request_bytes).
            words: the sender's words, one for each request, or as many as `of` has.
            contexts: public bytes that each key is bound to.
            randomness: source of random bytes, called once, for all r, then all u, then all k.
            of: row of the request of each word, where there are several words for one.

        Returns:
            The keys, and the responses, shape (len(words), response_bytes).

        Raises:
            ShapeError: requests have another width.
            DecodeError: a request holds bytes that are not elements, or the identity; names rows.
        """
        count = len(words)
        columns = decode_columns(self.group, "requests", requests, 3)
        if of is not None:
            columns = [[column[row] for row in of] for column in columns]
        distinct = {word: self._element(word) for word in set(words)}
        own = [distinct[word] for word in words]
        drawn = self.group.random_exponents(3 * count, randomness)
        r, u, k = drawn[:count], drawn[count : 2 * count], drawn[2 * count :]
        keys = self.group.generator_powers(k)
        first, second = self.transform(columns, own, r, u, keys)
        return self._keys(keys, contexts), self._encode(first, second)

    def transform(
        self,
        requests: Sequence[Sequence[Element]],
        words: Sequence[Element],
        r: Sequence[int],
        u: Sequence[int],
        keys: Sequence[Element],
    ) -> tuple[list[Element], list[Element]]:
        """Compute (d1, d2) of requests given as lists of h, c1, c2.

        Args:
            requests: lists of h, c1 and c2.
            words: elements of the sender's words.
            r: exponents r, fresh and not zero.
            u: fresh exponents u.
            keys: elements k.
        """
        group = self.group
        h, c1, c2 = requests
        count = len(words)
        quotients = group.quotients(c2, words)
        powers = group.powers([*c1, *quotients, *h], [*r, *r, *u])
        first = group.products(powers[:count], group.generator_powers(u))
        second = group.products(powers[count : 2 * count], powers[2 * count :])
        return first, group.products(second, keys)

    def _element(self, word: bytes) -> Element:
        return self.group.hash_to_group(b"ccbps eq-COT\0" + word)

    def _keys(self, elements: Sequence[Element], contexts: Sequence[bytes]) -> list[bytes]:
        prefix = b"ccbps eq-COT key\0"
        return [
            HKDF(SHA256(), AGREED_KEY_BYTES, None, prefix + context).derive(row.tobytes())
            for row, context in zip(self.group.encode_many(elements), contexts, strict=True)
        ]

    def _encode(self, *columns: Sequence[Element]) -> Bytes:
        return np.concatenate([self.group.encode_many(column) for column in columns], axis=1)
