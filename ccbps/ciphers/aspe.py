"""ASPE over the reals: ciphertexts whose scalar products are those of the plaintexts.

With an invertible key M of d + 1 rows and columns, a point p and a query q of d numbers become::

    point:  (p, -|p|^2 / 2) M        query:  rho (q, 1) M^-T,  rho > 0 drawn for each query

so that point . query = ``rho (p . q - |p|^2 / 2)``: of two points the one with the greater product
is nearer to q. Two points that are mirror images in a hyperplane w . x = c differ by a multiple of
(w, -c), and the sign of the product of that difference and a query says on which side q lies. A
multiple r > 0 is drawn for each difference.

Conventions: ciphertexts are rows, float64, shape (count, d + 1). Everything is finite.
Tolerance: keys are orthogonal * diagonal * orthogonal, singular values in [1/2, 2). A product's
error is at most `tolerance` times the lengths of both plaintext rows (w, -c) and (q, 1), factors
r and rho included; it grows with every key update a ciphertext went through.
Hazard: linear. d + 1 known points give M, and with it every point and query; so do d + 2 queries
with unknown rho. Ratios of products are those of the plaintexts, whatever the factors: where
numbers are whole, or near to it, that gives their differences with nothing known. Whoever encrypts
can decrypt. Not constant time.
Hazard: BLAS threads. These products are small: on shared cores several threads are slower, up to
90 times in one measurement. Set OPENBLAS_NUM_THREADS=1 (or your library's equivalent) where it
runs.
Sources: [WCKM09] for the cipher, [CGB10] for points and thresholds, [OFMR15] for key updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Reals, Words
from ccbps.errors import ParameterError, ShapeError
from ccbps.keys.secret import Confined

MAX_CONDITION: Final = 2.0**10
"""Matrices beyond this condition number are refused: products would lose too many digits."""
ROWS: Final = 1 << 12
EXPONENTS: Final = 16


def tolerance(dimension: int, updates: int = 0) -> float:
    """Greatest error of a product, relative to the lengths of both plaintext rows.

    For keys of `RealAspe.generate`: 32 (updates + 1) n^1.5 2^-53 with n = dimension + 1, from the
    usual bounds of a matrix product, for encrypting both sides and multiplying them.
    """
    return float(32 * (updates + 1) * (dimension + 1) ** 1.5 * 2.0**-53)


def random_factors(words: Words) -> Reals:
    """Factors rho or r in [2^-8, 2^8), one for each random word: an exponent and 52 bits."""
    bits = words >> np.uint64(12)
    bits |= (words & np.uint64(EXPONENTS - 1)) + np.uint64(1023 - EXPONENTS // 2) << np.uint64(52)
    return bits.view(np.float64)


class RealAspe(Confined):
    """A key. Its repr shows the dimension only.

    Attributes:
        dimension: d, numbers of a point.
        matrix: M, shape (d + 1, d + 1). Secret.
        inverse: its inverse. As secret: either gives the other.
    """

    __slots__ = ("dimension", "inverse", "matrix")

    def __init__(self, matrix: Reals, inverse: Reals | None = None) -> None:
        """
        Args:
            matrix: square, at least 2 rows, condition number at most 2^10.
            inverse: its inverse, if it is known; not checked again.

        Raises:
            ShapeError, ParameterError: not such a matrix.
        """
        matrix = np.ascontiguousarray(matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
            raise ShapeError(f"a key is a square matrix of at least 2 rows, got {matrix.shape}")
        if not np.isfinite(matrix).all():
            raise ParameterError("a key matrix must be finite: it holds NaN or infinity")
        if inverse is None:
            if not np.linalg.cond(matrix) <= MAX_CONDITION:
                raise ParameterError(
                    "the key matrix is singular, or its condition number is above "
                    f"{MAX_CONDITION:g}; use RealAspe.generate"
                )
            inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        self.dimension = len(matrix) - 1
        self.matrix, self.inverse = matrix, np.ascontiguousarray(inverse, dtype=np.float64)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of dimension {self.dimension}>"

    @classmethod
    def generate(cls, dimension: int, randomness: Callable[[int], bytes]) -> Self:
        """A random key: orthogonal * diagonal * orthogonal, condition number below 4."""
        n = dimension + 1
        if dimension < 1:
            raise ParameterError(f"dimension must be at least 1, got {dimension}")
        words = np.frombuffer(randomness(8 * n * (2 * n + 1)), dtype="<u8")
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53  # in [0, 1)
        left, _ = np.linalg.qr(uniform[: n * n].reshape(n, n) - 0.5)
        right, _ = np.linalg.qr(uniform[n * n : 2 * n * n].reshape(n, n) - 0.5)
        sizes = np.exp2(2 * uniform[2 * n * n :] - 1)
        return cls((left * sizes) @ right, (right.T / sizes) @ left.T)

    def encrypt_points(self, points: Reals) -> Reals:
        """``(p, -|p|^2 / 2) M`` for every row of `points`, shape (count, d)."""
        self._check(points, "points")

        def fill(rows: Reals, at: slice) -> None:
            rows[:-1] = points[at].T
            np.einsum("ij,ij->j", rows[:-1], rows[:-1], out=rows[-1])
            rows[-1] *= -0.5

        return self._encrypted(fill, len(points), self.matrix, "points")

    def encrypt_differences(self, normals: Reals, offsets: Reals, factors: Reals) -> Reals:
        """r (w, -c) M: differences of two points that are mirror images in w . x = c.

        Args:
            normals: w, shape (count, d).
            offsets: c, shape (count,).
            factors: r > 0, shape (count,).
        """
        self._check(normals, "normals")
        self._check_column(offsets, len(normals), "offsets")
        self._check_factors(factors, len(normals))

        def fill(rows: Reals, at: slice) -> None:
            np.multiply(normals[at].T, factors[at], out=rows[:-1])
            np.multiply(offsets[at], -factors[at], out=rows[-1])

        return self._encrypted(fill, len(normals), self.matrix, "normals and offsets")

    def encrypt_queries(self, queries: Reals, factors: Reals) -> Reals:
        """rho (q, 1) M^-T.

        Args:
            queries: shape (count, d).
            factors: rho > 0, shape (count,).
        """
        self._check(queries, "queries")
        self._check_factors(factors, len(queries))

        def fill(rows: Reals, at: slice) -> None:
            np.multiply(queries[at].T, factors[at], out=rows[:-1])
            rows[-1] = factors[at]

        return self._encrypted(fill, len(queries), self.inverse.T, "queries")

    def decrypt_queries(self, ciphertexts: Reals) -> Reals:
        """Queries of ciphertexts, shape (count, d); rho cancels."""
        rows = ciphertexts @ self.matrix.T
        return np.asarray(rows[:, :-1] / rows[:, -1:])

    def compare(self, first: Reals, second: Reals, queries: Reals) -> NDArray[np.int8]:
        """Which of two points is nearer to a query: 1 the second, -1 the first, 0 neither.

        Args:
            first: ciphertexts of points, shape (points, d + 1).
            second: likewise.
            queries: ciphertexts of queries, shape (queries, d + 1).

        Returns:
            int8, shape (queries, points). 0 within the tolerance.
        """
        products = queries @ (second - first).T
        size = np.linalg.norm(first, axis=1) + np.linalg.norm(second, axis=1)
        # Ciphertexts are at most a factor of 2 shorter than the rows that they come from.
        near = 4 * tolerance(self.dimension) * np.linalg.norm(queries, axis=1)[:, None] * size
        return np.where(np.abs(products) <= near, 0, np.sign(products)).astype(np.int8)

    def update_to(self, new: RealAspe) -> Reals:
        """U = M_old^-1 M_new, with which a broker brings ciphertexts to the new key.

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
        """Rows, filled in as columns, times a matrix; so many at a time that they stay in cache."""
        out, matrix = np.empty((count, self.dimension + 1)), np.ascontiguousarray(matrix)
        room = np.empty((self.dimension + 1, min(ROWS, count)))
        for start in range(0, count, ROWS):
            at = slice(start, min(start + ROWS, count))
            rows = room[:, : at.stop - start]
            with np.errstate(invalid="ignore", over="ignore"):
                fill(rows, at)
            # The sum of all squares is finite only if every number is, and below 2^511.
            if not np.isfinite(np.vdot(rows, rows)):
                raise ParameterError(
                    f"{name} must be finite numbers: there is NaN, infinity or a huge number"
                )
            np.matmul(rows.T, matrix, out=out[at])
        return out

    def _check(self, rows: Reals, name: str) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.dimension:
            raise ShapeError(f"{name} must have shape (count, {self.dimension}), got {rows.shape}")

    @staticmethod
    def _check_column(values: Reals, count: int, name: str) -> None:
        if values.shape != (count,):
            raise ShapeError(f"{name} must have shape ({count},), got {values.shape}")

    @classmethod
    def _check_factors(cls, factors: Reals, count: int) -> None:
        cls._check_column(factors, count, "factors")
        if count and not factors.min() > 0:
            raise ParameterError("factors must be above 0: they would turn or hide the answer")


def updated(points: Reals, update: Reals) -> Reals:
    """Ciphertexts of points, or of differences of points, under the new key."""
    return points @ update


def update_queries(queries: Reals, update: Reals) -> Reals:
    """Ciphertexts of queries under the new key.

    Raises:
        ParameterError: the update is singular.
    """
    if not np.linalg.cond(update) <= MAX_CONDITION:
        raise ParameterError("the update is singular: it was not made of two keys")
    return queries @ np.linalg.inv(update).T
