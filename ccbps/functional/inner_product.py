"""Function-private inner products: whoever holds no key sees which products are 0, and no more.

With a secret invertible matrix B of n rows and B* = (B^-1)^T, vectors modulo r become points::

    ciphertext of y:  g1^(b (y, 0) B*),  b drawn for each ciphertext
    token of x:       g2^(a (x, s) B),   a and s drawn for each token

The product of the pairings of their components is ``e(g1, g2)^(a b <x, y>)``: it is 1 exactly where
``<x, y> = 0 mod r``, and otherwise a random element. Ciphertexts are in G1, which is the group with
short elements and fast powers, since there are more of them.

The *pad* is the last coordinate: 0 in every ciphertext, random in every token. Without it, the
token of the vector 0 would be identity elements, which anyone can see.

[KLMMRW16] also gives out g1^b and g2^(a det B), with B* = det(B) (B^-1)^T. With them, anyone can
search for small values of <x, y>. Nothing here gives them out, and no method could use them.

B is L U, with a random lower and a random upper triangle. Such products are all invertible matrices
but a fraction of n / r, equally likely. So a vector times B* needs no inverse, and a key is a
seed of 32 bytes. B and B* follow from each other: there is no key that only makes tokens.

Security: simulation in the generic group model, as [KLMMRW16] proves. The test
`tests/security/test_attack_inner_product.py` looks for all linear relations between the values that
an observer can compute: points, and their pairings.

Hazard: not constant time. A seed and the points together give all vectors of few possible values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from numbers import Integral
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps import primitives
from ccbps.algebra.modular import integer, inverse_many
from ccbps.algebra.pairing import Pairing, Point
from ccbps.algebra.pairing import pairing as pairing_named
from ccbps.arrays import Bools, Bytes, Index, Randomness
from ccbps.checks import Printable, octets, whole
from ccbps.errors import DecodeError, ParameterError, ShapeError

SEED_BYTES: Final = 32
REMEMBERED: Final = 1 << 14
"""Number of points of each group that are kept once read: messages are examined, then opened."""
PAIRS: Final = 64
"""Pairs that a thread answers at a time."""
WORTHWHILE: Final = 16
"""Pairings from which threads share the work."""

Points = tuple[Point, ...]
"""A ciphertext or a token as the matching side holds it."""
Rows = NDArray[Any]
"""Vectors modulo r, of Python's or GMP's integers, shape (count, length)."""


class Basis(Printable):
    """The secret matrix B = L U of `InnerProducts`.

    Args:
        group: the pairing.
        size: n.
        seed: 32 secret bytes.
    """

    __slots__ = ("_inverses", "_order", "_triangles")

    def __init__(self, group: Pairing, size: int, seed: bytes) -> None:
        cipher = primitives.Cipher(primitives.AES256(seed), primitives.CTR(bytes(16)))
        stream = cipher.encryptor()
        drawn = group.exponents(size * size, lambda count: stream.update(bytes(count)))
        self._order = integer(group.order)
        # L below the diagonal, with ones on it; U from the diagonal up.
        self._triangles = _vectors(drawn).reshape(size, size)
        self._inverses = inverse_many(self._triangles.diagonal().tolist(), self._order)

    def __repr__(self) -> str:
        return f"<Basis of {len(self._triangles)} rows>"

    def times(self, vectors: Rows) -> Rows:
        """Return rows times B."""
        rows, order = self._triangles, self._order
        out = vectors.copy()
        for j in range(len(rows) - 1):  # times L
            out[:, j] = (out[:, j] + out[:, j + 1 :] @ rows[j + 1 :, j]) % order
        for j in range(len(rows) - 1, -1, -1):  # times U
            out[:, j] = out[:, : j + 1] @ rows[: j + 1, j] % order
        return out

    def times_dual(self, vectors: Rows) -> Rows:
        """Return rows times B*."""
        rows, order = self._triangles, self._order
        out = vectors.copy()
        for i in range(1, len(rows)):  # solve for L
            out[:, i] = (out[:, i] - out[:, :i] @ rows[i, :i]) % order
        for i in range(len(rows) - 1, -1, -1):  # solve for U
            if i < len(rows) - 1:
                out[:, i] -= out[:, i + 1 :] @ rows[i, i + 1 :]
            out[:, i] = out[:, i] * self._inverses[i] % order
        return out


class InnerProducts(Printable):
    """The public side of function-private inner products of one length.

    Example:
        >>> import os
        >>> from ccbps.functional import InnerProducts
        >>> products = InnerProducts(2, pairing="transparent")      # "bls12-381" in earnest
        >>> basis = products.basis(os.urandom(32))
        >>> asked = products.tokens(basis, [[1, -7]])
        >>> sent = products.ciphertexts(basis, [[7, 1], [8, 1]])
        >>> tokens = [products.read_token(row.tobytes()) for row in asked]
        >>> ciphertexts = [products.read_ciphertext(row.tobytes()) for row in sent]
        >>> products.orthogonal(ciphertexts, tokens, [0, 1], [0, 0])
        array([ True, False])

    Attributes:
        group: the pairing.
        length: coordinates of a vector.
        size: n, coordinates with the pad: pairings of a test.
        ciphertext_bytes: bytes of a ciphertext.
        token_bytes: bytes of a token.

    Args:
        length: coordinates of a vector, at least 1.
        pairing: name of a pairing, see `ccbps.algebra.pairing`.
    """

    def __init__(self, length: int, *, pairing: str = "bls12-381") -> None:
        self.group, self.length = pairing_named(pairing), whole("length", length, 1)
        self.size = self.length + 1
        self.ciphertext_bytes = self.size * self.group.g1_bytes
        self.token_bytes = self.size * self.group.g2_bytes

    def __repr__(self) -> str:
        return f"<InnerProducts of length {self.length} in {self.group.name}>"

    def basis(self, seed: bytes) -> Basis:
        """Return the secret matrix of a seed, which is 32 secret bytes."""
        return Basis(self.group, self.size, octets("seed", seed, SEED_BYTES))

    def ciphertexts(self, basis: Basis, vectors: Any, randomness: Randomness = os.urandom) -> Bytes:
        """Encrypt vectors.

        Args:
            basis: the secret matrix.
            vectors: integers, shape (count, length); none is 0.
            randomness: source of random bytes.

        Returns:
            bytes, shape (count, ciphertext_bytes).

        Raises:
            ShapeError: vectors have another length.
            ParameterError: a vector is not of integers, or is 0, which its ciphertext would show.
        """
        padded = self._padded(vectors)
        if len(padded) and not (padded != 0).any(axis=1).all():
            raise ParameterError("a vector to encrypt must not be 0: add a coordinate that is 1")
        factors = self._drawn(len(padded), randomness)
        return self._raised(self.group.g1, self.group.g1_bytes, basis.times_dual(padded), factors)

    def tokens(self, basis: Basis, vectors: Any, randomness: Randomness = os.urandom) -> Bytes:
        """Make tokens of vectors. Arguments are those of `ciphertexts`, but a vector may be 0.

        Returns:
            bytes, shape (count, token_bytes).
        """
        padded = self._padded(vectors)
        padded[:, -1] = self._drawn(len(padded), randomness)
        factors = self._drawn(len(padded), randomness)
        return self._raised(self.group.g2, self.group.g2_bytes, basis.times(padded), factors)

    def read_ciphertext(self, data: bytes) -> Points:
        """Read a ciphertext and check its points.

        Raises:
            DecodeError: the length is wrong, or an encoding is not of a point.
        """
        return self._read(_g1, data, self.group.g1_bytes)

    def read_token(self, data: bytes) -> Points:
        """Read a token and check its points.

        Raises:
            DecodeError: the length is wrong, or an encoding is not of a point.
        """
        return self._read(_g2, data, self.group.g2_bytes)

    def orthogonal(
        self,
        ciphertexts: Sequence[Points],
        tokens: Sequence[Points],
        rows: Index | Sequence[int],
        columns: Index | Sequence[int],
    ) -> Bools:
        """Return whether the inner product of each pair of vectors is 0.

        Threads share the work where there is enough of it and the library lets them.

        Args:
            ciphertexts: ciphertexts that were read.
            tokens: tokens that were read.
            rows: place of each pair's ciphertext.
            columns: place of each pair's token.
        """
        places = np.asarray(rows, dtype=np.intp), np.asarray(columns, dtype=np.intp)
        count = len(places[0])
        out, cancels = np.zeros(count, dtype=np.bool_), self.group.cancels

        def answer(start: int) -> None:
            pairs = (part[start : start + step].tolist() for part in places)
            for at, (row, column) in enumerate(zip(*pairs, strict=True), start):
                out[at] = cancels(list(zip(ciphertexts[row], tokens[column], strict=True)))

        workers = min(os.cpu_count() or 1, count) if self.group.parallel else 1
        if workers < 2 or count * self.size < WORTHWHILE:
            step = max(1, count)
            answer(0)
            return out
        step = min(PAIRS, -(-count // workers))
        with ThreadPoolExecutor(workers, thread_name_prefix="ccbps pairings") as threads:
            # A few steps at a time, so that whoever interrupts this does not wait for all of them.
            for first in range(0, count, step * workers):
                last = min(count, first + step * workers)
                list(threads.map(answer, range(first, last, step)))
        return out

    # -- inside -----------------------------------------------------------------------------------

    def _padded(self, vectors: Any) -> Rows:
        """Return vectors modulo r, with a pad of 0."""
        given = np.asarray(vectors, dtype=object)
        if given.ndim != 2 or given.shape[1] != self.length:
            raise ShapeError(f"vectors must have the shape (count, {self.length})")
        if not all(issubclass(kind, Integral) for kind in {*map(type, given.ravel().tolist())}):
            raise ParameterError("vectors must be integers")
        out = np.full((len(given), self.size), integer(0), dtype=object)
        out[:, :-1] = given % integer(self.group.order)
        return out

    def _drawn(self, count: int, randomness: Randomness) -> Rows:
        return _vectors(self.group.exponents(count, randomness))

    def _raised(self, base: Point, width: int, exponents: Rows, factors: Rows) -> Bytes:
        """Return the bytes of base^(factor * exponent), a row for each vector."""
        scaled = exponents * factors[:, None] % integer(self.group.order)
        power, encode = self.group.power, self.group.encode
        data = b"".join(encode(power(base, exponent)) for exponent in scaled.ravel().tolist())
        return np.frombuffer(data, dtype=np.uint8).reshape(len(scaled), self.size * width)

    def _read(self, read: Callable[[Pairing, bytes], Point], data: bytes, width: int) -> Points:
        if len(data) != self.size * width:
            raise DecodeError(f"expected {self.size * width} bytes of points, got {len(data)}")
        parts = (data[at : at + width] for at in range(0, len(data), width))
        return tuple(read(self.group, part) for part in parts)


@lru_cache(REMEMBERED)
def _g1(group: Pairing, data: bytes) -> Point:
    return group.decode_g1(data)


@lru_cache(REMEMBERED)
def _g2(group: Pairing, data: bytes) -> Point:
    return group.decode_g2(data)


def _vectors(numbers: Sequence[int]) -> Rows:
    """Return integers that compute fast, as an array."""
    out = np.empty(len(numbers), dtype=object)
    out[:] = [integer(number) for number in numbers]
    return out
