"""ASPE: ciphertexts whose scalar products are those of the plaintexts, over reals or residues.

With an invertible key M of d + 1 rows and columns, a point p and a query q of d numbers become::

    point:  (p, -|p|^2 / 2) M        query:  rho (q, 1) M^-T,  rho > 0 drawn for each query

so that point . query = ``rho (p . q - |p|^2 / 2)``: of two points, the one with the greater product
is nearer to q. Two points that are mirror images in a hyperplane w . x = c differ by a multiple of
(w, -c), and the sign of the product of that difference and a query says on which side q lies. A
multiple r > 0 is drawn for each difference.

**Real numbers** (`RealAspe`). Ciphertexts are rows, float64, shape (count, d + 1). Everything is
finite. Keys are orthogonal * diagonal * orthogonal, singular values in [1/2, 2). A product's error
is at most `tolerance` times the lengths of both plaintext rows (w, -c) and (q, 1), factors r and
rho included. It grows with every key update that a ciphertext went through.

**Integers** (`ModularAspe`): the same products, exact, for bounded integers. M is uniform among the
invertible matrices modulo P, a product of primes below 2^23 (`ccbps.algebra.residues`). A
difference r (w, -c) M and a query rho (q, 1) M^-T have the product v = r rho (w . q - c) mod P. Its
sign is that of w . q - c as long as ``|v| < P / 4``::

    2 * factor_bits + bits of the greatest |w . q - c|  <=  bits of P - 3

where r and rho are in [1, 2^factor_bits). `suited` chooses P, and as many bits as then fit. The
caller keeps the bound on w . q - c; factors outside are refused. Arrays have the shape (primes,
count, d + 1) and hold whole numbers in float64.

Hazard: linear. d + 1 known points give M, and with it every point and query; so do d + 2 queries
with unknown rho. Ratios of products are those of the plaintexts, whatever the factors: where
numbers are whole, or near to it, that gives their differences with nothing known. Modulo P, v is an
integer, so greatest common divisors over several messages give r and rho, and with them w . q - c
itself. r and rho have few bits; a caller who needs ciphertexts that do not repeat adds dimensions
that are random on one side and 0 on the other. A key that encrypts also decrypts. Not constant
time.
Hazard: BLAS threads. These products are small: on shared cores several threads are slower, up to
90 times in one measurement. Set OPENBLAS_NUM_THREADS=1 (or your library's equivalent) where it
runs.
Sources: [WCKM09] for the cipher, [CGB10] for points and thresholds, [OFMR15] for key updates; the
bound of the integers is our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.residues import Residues
from ccbps.arrays import Randomness, Reals, Words, slices
from ccbps.checks import array, whole
from ccbps.errors import ParameterError, ShapeError
from ccbps.keys.secret import Confined

MAX_CONDITION: Final = 2.0**10
"""Greatest condition number of a matrix. Products under others would lose too many digits."""
ROWS: Final = 1 << 12
EXPONENTS: Final = 16
LEAST_FACTOR_BITS: Final = 12
MOST_FACTOR_BITS: Final = 31


class _Aspe(Confined):
    """Base of the keys. The repr shows the dimension only."""

    __slots__ = ("dimension", "inverse", "matrix")

    dimension: int
    matrix: Reals
    inverse: Reals

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of dimension {self.dimension}>"


def tolerance(dimension: int, updates: int = 0) -> float:
    """Return the greatest error of a product, relative to the lengths of both plaintext rows.

    For keys of `RealAspe.generate` it is 32 (updates + 1) n^1.5 2^-53 with n = dimension + 1, from
    the usual bounds of a matrix product, for encrypting both sides and multiplying them.
    """
    return float(32 * (updates + 1) * (dimension + 1) ** 1.5 * 2.0**-53)


def random_factors(words: Words) -> Reals:
    """Turn each random word into a factor rho or r in [2^-8, 2^8): an exponent and 52 bits."""
    bits = words >> np.uint64(12)
    bits |= (words & np.uint64(EXPONENTS - 1)) + np.uint64(1023 - EXPONENTS // 2) << np.uint64(52)
    return bits.view(np.float64)


class RealAspe(_Aspe):
    """A key over the real numbers.

    Attributes:
        dimension: number of coordinates of a point, d.
        matrix: M, shape (d + 1, d + 1). Secret.
        inverse: inverse of M. As secret: either gives the other.

    Args:
        matrix: square matrix of at least 2 rows, with a condition number of at most 2^10.
        inverse: its inverse, if it is known; it is not checked again.

    Raises:
        ShapeError: the matrix is not square.
        ParameterError: it is too small, not finite, or singular.
    """

    __slots__ = ()

    def __init__(self, matrix: Reals, inverse: Reals | None = None) -> None:
        matrix = _reals("matrix", np.ascontiguousarray(matrix), ("n", "n"))
        if not np.isfinite(matrix).all():
            raise ParameterError("a key matrix must be finite: it holds NaN or infinity")
        self.dimension = whole("dimension", len(matrix) - 1, 1)
        if inverse is None:
            if not np.linalg.cond(matrix) <= MAX_CONDITION:
                raise ParameterError(
                    "the key matrix is singular, or its condition number is above "
                    f"{MAX_CONDITION:g}; use RealAspe.generate"
                )
            inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        self.matrix, self.inverse = matrix, np.ascontiguousarray(inverse, dtype=np.float64)

    @classmethod
    def generate(cls, dimension: int, randomness: Randomness) -> Self:
        """Draw a key: orthogonal * diagonal * orthogonal, condition number below 4."""
        n = whole("dimension", dimension, 1) + 1
        words = np.frombuffer(randomness(8 * n * (2 * n + 1)), dtype="<u8")
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53  # in [0, 1)
        left, _ = np.linalg.qr(uniform[: n * n].reshape(n, n) - 0.5)
        right, _ = np.linalg.qr(uniform[n * n : 2 * n * n].reshape(n, n) - 0.5)
        sizes = np.exp2(2 * uniform[2 * n * n :] - 1)
        return cls((left * sizes) @ right, (right.T / sizes) @ left.T)

    def encrypt_points(self, points: Reals) -> Reals:
        """Return ``(p, -|p|^2 / 2) M`` for each row p of `points`, shape (count, d)."""
        points = _reals("points", points, ("count", self.dimension))

        def fill(rows: Reals, at: slice) -> None:
            rows[:-1] = points[at].T
            np.einsum("ij,ij->j", rows[:-1], rows[:-1], out=rows[-1])
            rows[-1] *= -0.5

        return self._encrypted(fill, len(points), self.matrix, "points")

    def encrypt_differences(self, normals: Reals, offsets: Reals, factors: Reals) -> Reals:
        """Return r (w, -c) M: differences of two points that are mirror images in w . x = c.

        Args:
            normals: w, shape (count, d).
            offsets: c, shape (count,).
            factors: r > 0, shape (count,).
        """
        normals = _reals("normals", normals, ("count", self.dimension))
        offsets = _reals("offsets", offsets, normals.shape[:1])
        factors = _factors(factors, len(normals))

        def fill(rows: Reals, at: slice) -> None:
            np.multiply(normals[at].T, factors[at], out=rows[:-1])
            np.multiply(offsets[at], -factors[at], out=rows[-1])

        return self._encrypted(fill, len(normals), self.matrix, "normals and offsets")

    def encrypt_queries(self, queries: Reals, factors: Reals) -> Reals:
        """Return rho (q, 1) M^-T.

        Args:
            queries: q, shape (count, d).
            factors: rho > 0, shape (count,).
        """
        queries = _reals("queries", queries, ("count", self.dimension))
        factors = _factors(factors, len(queries))

        def fill(rows: Reals, at: slice) -> None:
            np.multiply(queries[at].T, factors[at], out=rows[:-1])
            rows[-1] = factors[at]

        return self._encrypted(fill, len(queries), self.inverse.T, "queries")

    def decrypt_queries(self, ciphertexts: Reals) -> Reals:
        """Return the queries of ciphertexts, shape (count, d); rho cancels."""
        rows = ciphertexts @ self.matrix.T
        return np.asarray(rows[:, :-1] / rows[:, -1:])

    def compare(self, first: Reals, second: Reals, queries: Reals) -> NDArray[np.int8]:
        """Tell which of two points is nearer to a query: 1 the second, -1 the first, 0 neither.

        Args:
            first: ciphertexts of points, shape (points, d + 1).
            second: ciphertexts of other points, of the same shape.
            queries: ciphertexts of queries, shape (queries, d + 1).

        Returns:
            The answers, shape (queries, points), 0 within the tolerance.
        """
        products = queries @ (second - first).T
        size = np.linalg.norm(first, axis=1) + np.linalg.norm(second, axis=1)
        # Ciphertexts are at most a factor of 2 shorter than the rows that they come from.
        near = 4 * tolerance(self.dimension) * np.linalg.norm(queries, axis=1)[:, None] * size
        return np.where(np.abs(products) <= near, 0, np.sign(products)).astype(np.int8)

    def update_to(self, new: RealAspe) -> Reals:
        """Return U = M_old^-1 M_new, with which a broker brings ciphertexts to the new key.

        It is the transpose of [OFMR15]'s M_new^T M_old^-T, as ciphertexts are rows here.
        """
        if new.dimension != self.dimension:
            raise ParameterError(
                f"keys of the same dimension are needed: {self.dimension}, got {new.dimension}"
            )
        return self.inverse @ new.matrix

    def _encrypted(
        self, fill: Callable[[Reals, slice], None], count: int, matrix: Reals, name: str
    ) -> Reals:
        """Multiply rows, filled in as columns, by a matrix; as many at a time as fit the cache."""
        out, matrix = np.empty((count, self.dimension + 1)), np.ascontiguousarray(matrix)
        room = np.empty((self.dimension + 1, min(ROWS, count)))
        for at in slices(count, ROWS):
            rows = room[:, : at.stop - at.start]
            with np.errstate(invalid="ignore", over="ignore"):
                fill(rows, at)
            # The sum of all squares is finite only if every number is, and below 2^511.
            if not np.isfinite(np.vdot(rows, rows)):
                raise ParameterError(
                    f"{name} must be finite numbers: there is NaN, infinity or a huge number"
                )
            np.matmul(rows.T, matrix, out=out[at])
        return out


def _reals(name: str, values: Reals, shape: tuple[int | str, ...]) -> Reals:
    return array(name, np.asarray(values, dtype=np.float64), np.float64, shape)


def _factors(factors: Reals, count: int) -> Reals:
    factors = _reals("factors", factors, (count,))
    if count and not factors.min() > 0:
        raise ParameterError("factors must be above 0: they would turn or hide the answer")
    return factors


def updated(points: Reals, update: Reals) -> Reals:
    """Return ciphertexts of points, or of differences of points, under the new key."""
    return points @ update


def update_queries(queries: Reals, update: Reals) -> Reals:
    """Return ciphertexts of queries under the new key.

    Raises:
        ParameterError: the update is singular.
    """
    if not np.linalg.cond(update) <= MAX_CONDITION:
        raise ParameterError("the update is singular: it was not made of two keys")
    return queries @ np.linalg.inv(update).T


def suited(bound: int) -> tuple[Residues, int]:
    """Choose a modulus and the bits of factors for integers w . q - c up to `bound` in size.

    Returns:
        As few primes as leave 12 bits to a factor, and the bits that they leave (at most 31).

    Raises:
        ParameterError: the bound is too large (about 112 bits are not).
    """
    ring = Residues(Residues.primes_for(bound << 2 * LEAST_FACTOR_BITS))
    bits = ((ring.modulus // 4) // bound).bit_length() - 1
    return ring, min(bits // 2, MOST_FACTOR_BITS)


class ModularAspe(_Aspe):
    """A key over the residues modulo P.

    Attributes:
        ring: arithmetic modulo P.
        dimension: number of coordinates of a point, d.
        matrix: M, shape (primes, d + 1, d + 1). Secret.
        inverse: inverse of M, of the same shape. Secret.

    Args:
        ring: arithmetic modulo P.
        matrix: residues, shape (primes, n, n), n at least 2.
        inverse: its inverse, if it is known; it is not checked again.

    Raises:
        ShapeError: the matrix has another shape.
        ParameterError: it is singular.
    """

    __slots__ = ("ring",)

    def __init__(self, ring: Residues, matrix: Reals, inverse: Reals | None = None) -> None:
        self.ring = ring
        self.inverse = ring.inverse(matrix) if inverse is None else inverse
        self.matrix, self.dimension = matrix, matrix.shape[-1] - 1

    @classmethod
    def generate(cls, ring: Residues, dimension: int, randomness: Randomness) -> Self:
        """Draw a uniform invertible matrix; singular ones (about one in 2^20) are drawn again."""
        n = whole("dimension", dimension, 1) + 1
        primes = np.array(ring.primes, dtype=np.uint64)[:, None, None]
        while True:
            # 64 bits modulo a prime of 23: nearer to uniform than 2^-41.
            words = np.frombuffer(randomness(8 * len(ring) * n * n), dtype="<u8")
            matrix = (words.reshape(len(ring), n, n) % primes).astype(np.float64)
            try:
                return cls(ring, ring.reduced(matrix))
            except ParameterError:
                continue

    def encrypt_differences(self, normals: Reals, offsets: Reals, factors: NDArray[Any]) -> Reals:
        """Return r (w, -c) M.

        Args:
            normals: residues of w, shape (primes, count, d).
            offsets: residues of c, shape (primes, count).
            factors: r, positive integers, shape (count,).
        """
        rows = np.concatenate([normals, -offsets[..., None]], axis=2)
        return self.ring.matmul(self._scaled(rows, factors), self.matrix)

    def encrypt_queries(self, queries: Reals, factors: NDArray[Any]) -> Reals:
        """Return rho (q, 1) M^-T.

        Args:
            queries: residues of q, shape (primes, count, d).
            factors: rho, positive integers, shape (count,).
        """
        rows = np.concatenate([queries, np.ones((*queries.shape[:2], 1))], axis=2)
        return self.ring.matmul(self._scaled(rows, factors), self.inverse.transpose(0, 2, 1))

    def signs(self, queries: Reals, differences: Reals) -> NDArray[np.int8]:
        """Return the signs of w . q - c, shape (queries, differences): -1, 0 or 1, never wrong."""
        right = self.ring.prepared(differences.transpose(0, 2, 1))
        room = np.empty((len(self.ring) + 1, queries.shape[1], differences.shape[1]))
        products = self.ring.signed_products(list(queries), list(right), room)
        return np.sign(products).astype(np.int8)

    def update_to(self, new: ModularAspe) -> Reals:
        """Return U = M_old^-1 M_new: `ring.matmul(points, U)` are points under the new key."""
        if new.dimension != self.dimension or len(new.ring) != len(self.ring):
            raise ParameterError("keys of the same dimension and modulus are needed")
        return self.ring.matmul(self.inverse, new.matrix)

    def _scaled(self, rows: Reals, factors: NDArray[Any]) -> Reals:
        array("rows", rows, np.float64, (len(self.ring), "count", self.dimension + 1))
        if factors.shape != rows.shape[1:2] or not np.issubdtype(factors.dtype, np.integer):
            raise ShapeError(
                f"factors must be integers of shape {rows.shape[1:2]}, got {factors.shape}"
            )
        if len(factors) and not 0 < factors.min() <= factors.max() < 1 << MOST_FACTOR_BITS:
            raise ParameterError(f"factors must be 1 to 2^{MOST_FACTOR_BITS} - 1")
        if not np.isfinite(rows).all():
            raise ParameterError("residues must be finite: there is NaN or infinity")
        return self.ring.times(rows, self.ring.of(factors)[:, :, None])
