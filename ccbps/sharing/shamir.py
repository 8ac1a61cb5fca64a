"""Shamir's secret sharing of bytes, over the field of 256 elements.

Each byte of a secret is the value at 0 of a polynomial of degree k - 1 whose other coefficients are
uniform. Share i has the values of all polynomials at point i. Any k shares reconstruct the secret,
by Lagrange's formula; k - 1 or fewer are uniform for every secret, unconditionally. (k = 1 hides
nothing: every share is the secret.)

Of m shares, up to (m - k) / 2 altered ones are found and left out (`ccbps.sharing.polynomials`).
With exactly k shares, an altered share silently gives a wrong secret: see
`ccbps.sharing.CheckedShamir`.

Points are public. Secrets and shares are only XORed and multiplied by public constants.
Hazard: short secrets and shares are Python's integers, which drop leading zeros, so running times
reveal roughly the number of leading zeros.
Sources: [S79]; [Survey] section 2.3.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from ccbps.algebra.gf256 import Points, WordRows, power
from ccbps.arrays import Bytes, Randomness, Words, slices
from ccbps.checks import Printable, array, whole
from ccbps.errors import DecodeError, ParameterError, ShapeError
from ccbps.sharing.polynomials import (
    BYTES,
    altered_places,
    byte_weights,
    integer_rows,
    misfit,
    too_many_altered,
)
from ccbps.sharing.share import (
    MOST_SHARES,
    NAME_BYTES,
    Share,
    as_secret,
    as_shares,
    check_threshold,
    fitting_shares,
)

BLOCK_BYTES: Final = 1 << 15
"""Bytes of one or more secrets that are processed together, to fit the cache."""
LONG: Final = 1 << 12
"""Bytes of all shares beyond which arrays are faster than integers."""


class Shamir(Printable):
    """Shamir's sharing of bytes: any k of n shares reconstruct a secret.

    Args:
        k: number of shares needed.
        n: number of shares, at points 1 .. n.

    Example:
        >>> from ccbps.sharing import Shamir
        >>> scheme = Shamir(3, 5)
        >>> shares = scheme.split(b"32 bytes of a seed for matching.")
        >>> scheme.join(shares[1:4])
        b'32 bytes of a seed for matching.'

    Raises:
        ParameterError: k and n do not satisfy ``1 <= k <= n <= 255``.
    """

    def __init__(self, k: int, n: int) -> None:
        self.k, self.n = check_threshold(k, n, MOST_SHARES)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.k}, {self.n})"

    def split(self, secret: bytes, *, randomness: Randomness = os.urandom) -> list[Share]:
        """Split a secret into n shares.

        Args:
            secret: bytes, at least one.
            randomness: source of uniform bytes: ``8 + (k - 1) * len(secret)``.

        Raises:
            ParameterError: the secret is not bytes, or empty.
        """
        secret, k, n = as_secret(secret), self.k, self.n
        size = len(secret)
        random = randomness(NAME_BYTES + (k - 1) * size)
        name = random[:NAME_BYTES]
        if size * n > LONG:
            rows = np.frombuffer(random, dtype=np.uint8)[NAME_BYTES:].reshape(k - 1, 1, size)
            shares = np.empty((n, 1, size), dtype=np.uint8)
            self._fill(np.frombuffer(secret, dtype=np.uint8)[None], rows, shares)
            values = [row.tobytes() for row in shares]
        else:
            values = _points(n, size).values(secret, random[NAME_BYTES:])
        return [Share(k, point, name, value) for point, value in enumerate(values, 1)]

    def join(self, shares: Iterable[Share]) -> bytes:
        """Recover a secret.

        Args:
            shares: at least k shares of one secret, in any order. Of m different shares, up to
                (m - k) / 2 may have been altered, in any part.

        Raises:
            DecodeError: there are fewer than k shares, they are of different secrets, or more were
                altered, as far as detectable. (With exactly k shares it is not.)
            ParameterError: an object is not a share.
        """
        k = self.k
        points, values, spare = fitting_shares(shares, k)
        size = len(values[0])
        rows = [int.from_bytes(value) for value in values]
        if len(points) > k:
            kept = _unaltered(points, values, rows, k, spare)
            points, rows = [points[place] for place in kept], [rows[place] for place in kept]
        plan = byte_weights((*points[:k],), 0)
        return integer_rows(size).combine(plan, rows[:k]).to_bytes(size)

    def split_rows(self, secrets: Bytes, *, randomness: Randomness = os.urandom) -> Bytes:
        """Split many secrets. Return the shares' values, shape (n, count, size).

        Args:
            secrets: uint8, shape (count, size).
            randomness: source of uniform bytes: k - 1 for each byte of the secrets.

        Raises:
            ShapeError: the secrets are not an array of such rows.
        """
        secrets = _rows("secrets", secrets, "count", "size")
        out = np.empty((self.n, *secrets.shape), dtype=np.uint8)
        count, size = secrets.shape
        step = max(1, BLOCK_BYTES // size)
        for at in slices(count, step):
            block = secrets[at]
            random = np.frombuffer(randomness((self.k - 1) * block.size), dtype=np.uint8)
            self._fill(block, random.reshape(self.k - 1, *block.shape), out[:, at])
        return out

    def join_rows(self, values: Bytes, points: Sequence[int]) -> Bytes:
        """Recover many secrets, shape (count, size).

        Args:
            values: uint8, shape (k or more, count, size): values of shares, by point.
            points: points of the shares, each once.

        Raises:
            ShapeError: the values are not an array of such rows, or not one for each point.
            ParameterError: a point is not 1 .. 255 or is repeated, or there are fewer than k.
            DecodeError: there are more than k shares, and they do not fit together. The message
                names the first such secret. `join` finds the altered shares.
        """
        values = _rows("values", values, "shares", "count", "size")
        k, points = self.k, [whole("a point", point, 1, MOST_SHARES) for point in points]
        if len(values) != len(points):
            raise ShapeError(f"values must have {len(points)} shares, as points, got {len(values)}")
        if len({*points}) != len(points):
            raise ParameterError(f"points must be different, got {points}")
        if len(points) < k:
            raise ParameterError(f"{k} shares are needed, got {len(points)}")
        _, count, size = values.shape
        out: Bytes = np.empty((count, size), dtype=np.uint8)
        first = (*points[:k],)
        plans = [(place, byte_weights(first, points[place])) for place in range(k, len(points))]
        step = max(1, BLOCK_BYTES // size)
        for at in slices(count, step):
            block = values[:, at]
            rows = _as_words(block)
            work, result = WordRows(rows.shape[1]), np.empty(rows.shape[1], dtype=np.uint64)
            for place, plan in plans:
                work.combine(plan, [*rows[:k]], result)
                if not np.array_equal(result, rows[place]):
                    differs = (_as_bytes(result, block.shape[1:]) != block[place]).any(axis=1)
                    raise DecodeError(
                        f"secret {at.start + int(np.argmax(differs))}: the share of point "
                        f"{points[place]} does not fit the first {k}; one of them was altered, and "
                        "join finds out which"
                    )
            work.combine(byte_weights(first, 0), [*rows[:k]], result)
            out[at] = _as_bytes(result, block.shape[1:])
        return out

    def _fill(self, secrets: Bytes, random: Bytes, out: Bytes) -> None:
        """Write shares (n, count, size) of secrets (count, size) and bytes (k - 1, count, size)."""
        values = np.empty((self.n, -(-secrets.size // 8)), dtype=np.uint64)
        values[:] = _as_words(secrets[None])
        work = WordRows(values.shape[1])
        for row, doubles in zip(_as_words(random), _doubles(self.k, self.n), strict=True):
            for bit, shares in enumerate(doubles):
                if bit:
                    work.double(row)
                for share in shares:
                    np.bitwise_xor(values[share], row, out=values[share])
        for words, rows in zip(values, out, strict=True):
            rows[:] = _as_bytes(words, secrets.shape)


def ss_split(secret: bytes, k: int, n: int) -> list[Share]:
    """Split a secret into n shares, of which any k reconstruct it: `ssSplit` of [Survey].

    Example:
        >>> from ccbps.sharing import ss_join, ss_split
        >>> shares = ss_split(b"seed", 2, 3)
        >>> ss_join(shares[1:]), ss_join([shares[2], shares[0]])
        (b'seed', b'seed')
    """
    return Shamir(k, n).split(secret)


def ss_join(shares: Iterable[Share]) -> bytes:
    """Recover a secret from k shares or more, as `Shamir.join`: `ssJoin` of [Survey].

    The shares contain k. If they disagree, the majority decides.

    Example:
        >>> from ccbps.sharing import ss_join, ss_split
        >>> ss_join(ss_split(b"seed", 3, 3))
        b'seed'
    """
    given = as_shares(shares)
    if not given:
        raise DecodeError("at least 1 share of a secret is needed, got none")
    k = Counter(share.k for share in given).most_common(1)[0][0]
    return Shamir(k, k).join(given)


def _unaltered(
    points: list[int], values: list[bytes], rows: list[int], k: int, most: int
) -> list[int]:
    """Find the places of the shares that were not altered.

    Raises:
        DecodeError: more than `most` were altered, as far as detectable.
    """
    altered: set[int] = set()
    kept = [*range(len(points))]
    # Every byte is a separate code word. A byte in which the kept shares do not fit shows that one
    # of them was altered, so each turn finds another.
    while True:
        byte = misfit([points[i] for i in kept], [rows[i] for i in kept], k, len(values[0]))
        if byte < 0:
            return kept
        altered |= altered_places(BYTES, points, [value[byte] for value in values], k)
        if len(altered) > most:
            raise too_many_altered(len(points), k)
        kept = [place for place in range(len(points)) if place not in altered]


_points = lru_cache(maxsize=64)(Points)


@lru_cache(maxsize=64)
def _doubles(k: int, n: int) -> list[list[list[int]]]:
    """Return the shares of each double of each coefficient but the constant."""
    powers = [[power(point, exponent) for point in range(1, n + 1)] for exponent in range(1, k)]
    return [
        [
            [share for share, factor in enumerate(factors) if factor >> bit & 1]
            for bit in range(max(factors).bit_length())
        ]
        for factors in powers
    ]


def _rows(name: str, rows: Bytes, *shape: str) -> Bytes:
    """Return an array of rows of at least 1 byte."""
    rows = array(name, rows, np.uint8, shape)
    if not rows.shape[-1]:
        raise ShapeError(f"{name} must have rows of at least 1 byte, got shape {rows.shape}")
    return rows


def _as_words(rows: Bytes) -> Words:
    """Copy each of (several, count, size) to words, padded with zeros: (several, words)."""
    size = rows[0].size if len(rows) else 0
    out = np.zeros((len(rows), -(-size // 8)), dtype=np.uint64)
    out.view(np.uint8)[:, :size] = rows.reshape(len(rows), size)
    return out


def _as_bytes(words: Words, shape: tuple[int, ...]) -> Bytes:
    size = int(np.prod(shape))
    return words.view(np.uint8)[:size].reshape(shape)
