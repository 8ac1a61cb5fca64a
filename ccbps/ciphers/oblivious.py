"""eq-COT: a key reaches the receiver if its word equals the sender's, and nobody sees whether.

The receiver posts an encryption of its word; the sender, who cannot read it, turns it into an
encryption of k (x_receiver / x_sender)^r for a random r. That is k for equal words, and for others
an element that is uniform among those other than k, whatever the receiver posted. Neither side
learns the other's word; the sender does not learn whether they were equal.

Conventions: a group of prime order q with generator g; a word x is hashed into it. With the
receiver's secret z and h = g^z, and k, r, u, y fresh and uniform,

    request   h, c1 = g^y, c2 = h^y x_receiver
    response  d1 = c1^r g^u, d2 = (c2 / x_sender)^r h^u k
    key       k' = d2 / d1^z = k (x_receiver / x_sender)^r

Each request has a z of its own. k' is hashed to 32 bytes for a symmetric cipher: with that, one
transfer serves any number of messages (h-eq-COT).

Hazards: whoever makes many requests tries many words, one per request: the sender decides how many
it answers. The sender's privacy holds against any receiver, the receiver's word is hidden by
decisional Diffie-Hellman. Not constant time. Elements are checked when they are decoded: outside
the group of prime order, r would leak.
Source: [COR99]; [DCSTW13]; [Survey] section 4.6.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from ccbps.algebra.prime_order import PrimeOrderGroup
from ccbps.arrays import Randomness
from ccbps.errors import DecodeError, ParameterError

Rows = NDArray[np.uint8]
Element: TypeAlias = Any

AGREED_KEY_BYTES: Final = 32


class EqCot:
    """Equality-conditional oblivious transfer of fresh keys over one group. Holds no secret.

    Attributes:
        group: public.
        request_bytes: of one request, three elements.
        response_bytes: of one response, two elements.
    """

    def __init__(self, group: PrimeOrderGroup) -> None:
        self.group = group
        self.request_bytes = 3 * group.element_bytes
        self.response_bytes = 2 * group.element_bytes

    def __repr__(self) -> str:
        return f"<EqCot over {self.group.name}>"

    # -- receiver -----------------------------------------------------------------------------

    def request(
        self, words: Sequence[bytes], randomness: Randomness = os.urandom
    ) -> tuple[list[int], Rows]:
        """A request for each word.

        Returns:
            The receiver's secrets z, one each; and what to send, uint8 (len(words), request_bytes).
        """
        group, count = self.group, len(words)
        drawn = group.random_exponents(2 * count, randomness)
        secrets, masks = drawn[:count], drawn[count:]
        shared = [z * y % group.order for z, y in zip(secrets, masks, strict=True)]
        first = group.generator_powers([*secrets, *masks, *shared])
        hidden = group.products(first[2 * count :], [self._element(word) for word in words])
        return secrets, self._encode([first[:count], first[count : 2 * count], hidden], count)

    def finish(
        self, secrets: Sequence[int], responses: Rows, contexts: Sequence[bytes]
    ) -> list[bytes]:
        """The keys that came with responses: the sender's where the words are equal.

        Args:
            secrets: z of the request that each response is for.
            responses: uint8, shape (len(secrets), response_bytes).
            contexts: what the sender bound each key to.

        Raises:
            DecodeError: a response holds bytes that are not elements; names rows.
        """
        first, second = self._decode(responses, self.response_bytes, "response")
        masks = self.group.powers(first, [int(z) for z in secrets])
        return self._keys(self.group.quotients(second, masks), contexts)

    # -- sender -------------------------------------------------------------------------------

    def respond(
        self,
        requests: Rows,
        words: Sequence[bytes],
        contexts: Sequence[bytes],
        randomness: Randomness = os.urandom,
        *,
        of: Sequence[int] | None = None,
    ) -> tuple[list[bytes], Rows]:
        """A fresh key and the response that carries it, for each of the sender's words.

        Args:
            requests: uint8, shape (count, request_bytes).
            words: the sender's, one for each request, or as many as `of` has.
            contexts: public bytes that each key is bound to.
            randomness: called once, for all r, then all u, then all k.
            of: the row of the request that each word is for, where there are several words for one.

        Returns:
            The keys, and what to send, uint8 (len(words), response_bytes).

        Raises:
            DecodeError: a request holds bytes that are not elements, or the identity; names rows.
        """
        count = len(words)
        rows = self._decode(requests, self.request_bytes, "request")
        if of is not None:
            rows = [[column[row] for row in of] for column in rows]
        distinct = {word: self._element(word) for word in set(words)}
        own = [distinct[word] for word in words]
        drawn = self.group.random_exponents(3 * count, randomness)
        r, u, k = drawn[:count], drawn[count : 2 * count], drawn[2 * count :]
        keys = self.group.generator_powers(k)
        first, second = self.transform(rows, own, r, u, keys)
        return self._keys(keys, contexts), self._encode([first, second], count)

    def transform(
        self,
        requests: Sequence[Sequence[Element]],
        words: Sequence[Element],
        r: Sequence[int],
        u: Sequence[int],
        keys: Sequence[Element],
    ) -> tuple[list[Element], list[Element]]:
        """(d1, d2) of requests given as lists of h, c1, c2. The r must be fresh and not zero."""
        group = self.group
        h, c1, c2 = requests
        count = len(words)
        quotients = group.quotients(c2, words)
        powers = group.powers([*c1, *quotients, *h], [*r, *r, *u])
        first = group.products(powers[:count], group.generator_powers(u))
        second = group.products(powers[count : 2 * count], powers[2 * count :])
        return first, group.products(second, keys)

    # -- bytes --------------------------------------------------------------------------------

    def _element(self, word: bytes) -> Element:
        return self.group.hash_to_group(b"ccbps eq-COT\0" + word)

    def _keys(self, elements: Sequence[Element], contexts: Sequence[bytes]) -> list[bytes]:
        encoded = self.group.encode_many(elements)
        return [
            HKDF(SHA256(), AGREED_KEY_BYTES, None, b"ccbps eq-COT key\0" + context).derive(
                row.tobytes()
            )
            for row, context in zip(encoded, contexts, strict=True)
        ]

    def _encode(self, columns: Sequence[Sequence[Element]], count: int) -> Rows:
        return np.concatenate(
            [
                self.group.encode_many(column).reshape(count, self.group.element_bytes)
                for column in columns
            ],
            axis=1,
        )

    def _decode(self, rows: Rows, width: int, name: str) -> list[list[Element]]:
        """Columns of elements of messages."""
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != width:
            raise ParameterError(
                f"{name}s must be uint8 of shape (count, {width}), got {rows.dtype} {rows.shape}"
            )
        size = self.group.element_bytes
        columns = [
            self.group.decode_many(np.ascontiguousarray(rows[:, at : at + size]))
            for at in range(0, width, size)
        ]
        bad = tuple(row for row, line in enumerate(zip(*columns, strict=True)) if None in line)
        if bad:
            cause = f"the {name} holds bytes that are not an element of {self.group.name}"
            raise DecodeError(
                f"row {bad[0]}: {cause}, or the identity", rows=bad, causes=(cause,) * len(bad)
            )
        return columns
