"""Shamir's secret sharing of bytes, over the field of 256 elements.

Each byte of a secret is the value at 0 of a polynomial of degree k - 1 whose other coefficients are
uniform; share i is the values at point i of all of them. Any k shares give the secret back, by
Lagrange's formula; k - 1 or fewer are uniform, whatever the secret is. That is a theorem and needs
no assumption. (k = 1 hides nothing: every share is the secret.)

With more than k shares, those that were altered are found and left out, up to half of what is more
than k (`ccbps.sharing.altered`); with exactly k, an altered share gives a wrong secret, and nothing
tells: see `ccbps.sharing.CheckedShamir`.

Points are public; secrets and shares meet nothing but XOR and products with public constants.
Hazard: short ones do so as Python's integers, which drop leading zeros, so times tell a little.
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
from ccbps.arrays import Bytes, Randomness, Words
from ccbps.errors import DecodeError, ParameterError, ShapeError
from ccbps.sharing.altered import ByteField, altered_places, too_many_altered
from ccbps.sharing.lagrange import integer_rows, misfit, weights
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
"""Bytes of a secret, or of as many secrets, that are treated together: for the cache."""
LONG: Final = 1 << 12
"""Bytes of all shares beyond which arrays are faster than integers."""


class Shamir:
    """Splits secrets into n shares, of which any k give them back.

    Attributes:
        k: shares needed.
        n: shares made, at points 1 .. n.

    Example:
        >>> from ccbps.sharing import Shamir
        >>> scheme = Shamir(3, 5)
        >>> shares = scheme.split(b"32 bytes of a seed for matching.")
        >>> scheme.join(shares[1:4])
        b'32 bytes of a seed for matching.'
    """

    def __init__(self, k: int, n: int) -> None:
        """
        Raises:
            ParameterError: not ``1 <= k <= n <= 255``.
        """
        check_threshold(k, n, MOST_SHARES)
        self.k, self.n = k, n

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.k}, {self.n})"

    def split(self, secret: bytes, *, randomness: Randomness = os.urandom) -> list[Share]:
        """The n shares of a secret.

        Args:
            secret: at least one byte.
            randomness: where uniform bytes come from: ``8 + (k - 1) * len(secret)`` of them.

        Raises:
            ParameterError: the secret is not bytes, or empty.
        """
        secret, k, n = as_secret(secret), self.k, self.n
        size = len(secret)
        random = randomness(NAME_BYTES + (k - 1) * size)
        name = random[:NAME_BYTES]
        if size * n > LONG:
            rows = np.frombuffer(random, dtype=np.uint8)[NAME_BYTES:].reshape(k - 1, 1, size)
            made = np.empty((n, 1, size), dtype=np.uint8)
            self._fill(np.frombuffer(secret, dtype=np.uint8)[None], rows, made)
            values = [row.tobytes() for row in made]
        else:
            values = _points(n, size).values(secret, random[NAME_BYTES:])
        return [Share(k, point, name, value) for point, value in enumerate(values, 1)]

    def join(self, shares: Iterable[Share]) -> bytes:
        """The secret.

        Args:
            shares: of one secret, at least k, in any order. If there are m different ones, up to
                (m - k) / 2 of them may have been altered, in any part.

        Raises:
            DecodeError: fewer than k shares, or shares of different secrets; or more were altered
                than can be told, as far as this can be noticed. (Of exactly k, nothing can be.)
            ParameterError: something else than shares is among them.
        """
        k = self.k
        points, values, spare = fitting_shares(shares, k)
        size = len(values[0])
        rows = [int.from_bytes(value) for value in values]
        if len(points) > k:
            kept = _unaltered(points, values, rows, k, spare)
            points, rows = [points[place] for place in kept], [rows[place] for place in kept]
        plan = weights((*points[:k],), 0)
        return integer_rows(size).combine(plan, rows[:k]).to_bytes(size)

    def split_rows(self, secrets: Bytes, *, randomness: Randomness = os.urandom) -> Bytes:
        """Values of the shares of many secrets, shape (n, count, size).

        Args:
            secrets: uint8, shape (count, size).
            randomness: where uniform bytes come from: k - 1 for each byte of the secrets.

        Raises:
            ShapeError: not an array of such rows.
        """
        _require(secrets, "secrets", 2)
        out = np.empty((self.n, *secrets.shape), dtype=np.uint8)
        count, size = secrets.shape
        step = max(1, BLOCK_BYTES // size)
        for start in range(0, count, step):
            block = secrets[start : start + step]
            random = np.frombuffer(randomness((self.k - 1) * block.size), dtype=np.uint8)
            shares = out[:, start : start + step]
            self._fill(block, random.reshape(self.k - 1, *block.shape), shares)
        return out

    def join_rows(self, values: Bytes, points: Sequence[int]) -> Bytes:
        """Many secrets, shape (count, size).

        Args:
            values: uint8, shape (k or more, count, size): of shares of the same points.
            points: of the shares, each once.

        Raises:
            ShapeError: not an array of such rows, or not one for each point.
            ParameterError: points are not numbers 1 .. 255, each once, or fewer than k.
            DecodeError: there are more than k shares, and they do not fit together; names the first
                secret. `join` finds out which were altered.
        """
        _require(values, "values", 3)
        k, points = self.k, [*points]
        if len(values) != len(points):
            raise ShapeError(f"{len(points)} points need as many shares, got {len(values)}")
        possible = all(isinstance(x, int | np.integer) and 1 <= x <= MOST_SHARES for x in points)
        if len({*points}) != len(points) or not possible:
            raise ParameterError(f"points must be numbers 1 .. 255, each once, got {points}")
        if len(points) < k:
            raise ParameterError(f"{k} shares are needed, got {len(points)}")
        _, count, size = values.shape
        out: Bytes = np.empty((count, size), dtype=np.uint8)
        known = (*(int(point) for point in points[:k]),)
        plans = [(place, weights(known, int(points[place]))) for place in range(k, len(points))]
        step = max(1, BLOCK_BYTES // size)
        for start in range(0, count, step):
            block = values[:, start : start + step]
            rows = _as_words(block)
            work, made = WordRows(rows.shape[1]), np.empty(rows.shape[1], dtype=np.uint64)
            for place, plan in plans:
                work.combine(plan, [*rows[:k]], made)
                if not np.array_equal(made, rows[place]):
                    differs = (_as_bytes(made, block.shape[1:]) != block[place]).any(axis=1)
                    raise DecodeError(
                        f"secret {start + int(np.argmax(differs))}: the share of point "
                        f"{points[place]} does not fit the first {k}; one of them was altered, and "
                        "join finds out which"
                    )
            work.combine(weights(known, 0), [*rows[:k]], made)
            out[start : start + step] = _as_bytes(made, block.shape[1:])
        return out

    def _fill(self, secrets: Bytes, random: Bytes, out: Bytes) -> None:
        """Write shares: (count, size), (k - 1, count, size) and (n, count, size)."""
        shape, first = secrets.shape, 0
        made = np.empty((self.n, -(-secrets.size // 8)), dtype=np.uint64)
        made[:] = _as_words(secrets[None])
        work, (counts, doubles) = WordRows(made.shape[1]), _doubles(self.k, self.n)
        for row, count in zip(_as_words(random), counts, strict=True):
            for bit in range(count):
                if bit:
                    work.double(row)
                for share in doubles[first + bit]:
                    np.bitwise_xor(made[share], row, out=made[share])
            first += count
        for words, rows in zip(made, out, strict=True):
            rows[:] = _as_bytes(words, shape)


def ss_split(secret: bytes, k: int, n: int) -> list[Share]:
    """`ssSplit` of [Survey]: the n shares of a secret, of which any k give it back.

    Example:
        >>> from ccbps.sharing import ss_join, ss_split
        >>> shares = ss_split(b"seed", 2, 3)
        >>> ss_join(shares[1:]), ss_join([shares[2], shares[0]])
        (b'seed', b'seed')
    """
    return Shamir(k, n).split(secret)


def ss_join(shares: Iterable[Share]) -> bytes:
    """`ssJoin` of [Survey]: the secret, from k shares or more; see `Shamir.join`.

    The shares say what k is; if they do not agree, most of them do.

    Example:
        >>> from ccbps.sharing import ss_join, ss_split
        >>> ss_join(ss_split(b"seed", 3, 3))
        b'seed'
    """
    given = as_shares(shares)
    if not given:
        raise DecodeError("no shares: a secret needs at least one")
    k = Counter(share.k for share in given).most_common(1)[0][0]
    return Shamir(k, k).join(given)


def _unaltered(
    points: list[int], values: list[bytes], rows: list[int], k: int, most: int
) -> list[int]:
    """Places of the shares that were not altered.

    Raises:
        DecodeError: more than `most` were, as far as this can be noticed.
    """
    wrong: set[int] = set()
    kept = [*range(len(points))]
    # Every byte is a code word of its own. One in which the kept shares do not fit has an altered
    # one among them, so each turn finds another.
    while True:
        byte = misfit([points[i] for i in kept], [rows[i] for i in kept], k, len(values[0]))
        if byte < 0:
            return kept
        wrong |= altered_places(ByteField(), points, [value[byte] for value in values], k)
        if len(wrong) > most:
            raise too_many_altered(len(points), k)
        kept = [place for place in range(len(points)) if place not in wrong]


@lru_cache(maxsize=64)
def _points(n: int, size: int) -> Points:
    """For shares that are not `LONG`."""
    return Points(n, size)


@lru_cache(maxsize=64)
def _doubles(k: int, n: int) -> tuple[list[int], list[list[int]]]:
    """How often each coefficient but the constant is doubled, plus one; the shares that need it
    then: a list for each double.
    """
    counts, needed = [], []
    for exponent in range(1, k):
        powers = [power(point, exponent) for point in range(1, n + 1)]
        counts.append(max(powers).bit_length())
        needed += [
            [share for share, factor in enumerate(powers) if factor >> bit & 1]
            for bit in range(counts[-1])
        ]
    return counts, needed


def _require(rows: Bytes, name: str, dimensions: int) -> None:
    wanted = "(count, size)" if dimensions == 2 else "(shares, count, size)"
    if not isinstance(rows, np.ndarray):
        got = type(rows).__name__
    elif rows.dtype != np.uint8 or rows.ndim != dimensions or not rows.shape[-1]:
        got = f"{rows.dtype} {rows.shape}"
    else:
        return
    raise ShapeError(f"{name} must be uint8 of shape {wanted}, size at least 1, got {got}")


def _as_words(rows: Bytes) -> Words:
    """Each of (several, count, size) as words, copied, with zeros behind: (several, words)."""
    size = rows[0].size if len(rows) else 0
    out = np.zeros((len(rows), -(-size // 8)), dtype=np.uint64)
    out.view(np.uint8)[:, :size] = rows.reshape(len(rows), size)
    return out


def _as_bytes(words: Words, shape: tuple[int, ...]) -> Bytes:
    size = int(np.prod(shape))
    return words.view(np.uint8)[:size].reshape(shape)
