"""ASPE modulo a number: the same products as `ccbps.ciphers.aspe`, exact, for bounded integers.

The key M is uniform among the invertible matrices modulo P, a product of primes below 2^23
(`ccbps.algebra.residues`). A difference r (w, -c) M and a query rho (q, 1) M^-T have the product
v = r rho (w . q - c) mod P. Its sign is that of w . q - c as long as ``|v| < P / 4``::

    2 * factor_bits + bits of the greatest |w . q - c|  <=  bits of P - 3

where r and rho are in [1, 2^factor_bits). `suited` chooses P, and as many bits as then fit. The
caller keeps the bound on w . q - c; factors outside are refused.

Conventions: as in `ccbps.ciphers.aspe`, with residues in place of numbers: arrays of shape
(primes, count, d + 1), whole numbers in float64.
Hazard: v is an integer, so greatest common divisors over several messages give r and rho, and with
them w . q - c itself: differences, not signs. r and rho have few bits; whoever needs ciphertexts
that do not repeat adds dimensions that are random on one side and 0 on the other. Known queries
give M as over the reals. Not constant time.
Sources: [WCKM09], [CGB10], [OFMR15]; the bound is our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.residues import Residues
from ccbps.arrays import Reals
from ccbps.errors import ParameterError, ShapeError
from ccbps.keys.secret import Confined

LEAST_FACTOR_BITS: Final = 12
MOST_FACTOR_BITS: Final = 31


def suited(bound: int) -> tuple[Residues, int]:
    """Modulus and bits of factors for integers w . q - c of absolute value at most `bound`.

    Returns:
        as few primes as leave 12 bits to a factor, and the bits that they leave (at most 31).

    Raises:
        ParameterError: the bound is too large (about 112 bits are not).
    """
    ring = Residues(Residues.primes_for(bound << 2 * LEAST_FACTOR_BITS))
    bits = ((ring.modulus // 4) // bound).bit_length() - 1
    return ring, min(bits // 2, MOST_FACTOR_BITS)


class ModularAspe(Confined):
    """A key. Its repr shows the dimension only.

    Attributes:
        ring: arithmetic modulo P.
        dimension: d, integers of a point.
        matrix: M, shape (primes, d + 1, d + 1). Secret.
        inverse: its inverse, likewise.
    """

    __slots__ = ("dimension", "inverse", "matrix", "ring")

    def __init__(self, ring: Residues, matrix: Reals, inverse: Reals | None = None) -> None:
        """
        Args:
            ring: the modulus.
            matrix: residues, shape (primes, n, n), n at least 2.
            inverse: its inverse, if it is known; not checked again.

        Raises:
            ShapeError: not of this shape.
            ParameterError: singular.
        """
        self.ring = ring
        self.inverse = ring.inverse(matrix) if inverse is None else inverse
        self.matrix, self.dimension = matrix, matrix.shape[-1] - 1

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of dimension {self.dimension}>"

    @classmethod
    def generate(cls, ring: Residues, dimension: int, randomness: Callable[[int], bytes]) -> Self:
        """A uniform invertible matrix; singular ones (about one in 2^20) are drawn again."""
        if dimension < 1:
            raise ParameterError(f"dimension must be at least 1, got {dimension}")
        n = dimension + 1
        while True:
            # 64 bits modulo a prime of 23: nearer to uniform than 2^-41.
            words = np.frombuffer(randomness(8 * len(ring) * n * n), dtype="<u8")
            matrix = np.empty((len(ring), n, n))
            for part, prime, row in zip(
                matrix, ring.primes, words.reshape(len(ring), n, n), strict=True
            ):
                part[...] = row % np.uint64(prime)
            try:
                return cls(ring, ring.reduced(matrix))
            except ParameterError:
                continue

    def encrypt_differences(self, normals: Reals, offsets: Reals, factors: NDArray[Any]) -> Reals:
        """r (w, -c) M.

        Args:
            normals: residues of w, shape (primes, count, d).
            offsets: residues of c, shape (primes, count).
            factors: r, positive integers, shape (count,).
        """
        rows = np.concatenate([normals, -offsets[..., None]], axis=2)
        return self.ring.matmul(self._scaled(rows, factors), self.matrix)

    def encrypt_queries(self, queries: Reals, factors: NDArray[Any]) -> Reals:
        """rho (q, 1) M^-T.

        Args:
            queries: residues of q, shape (primes, count, d).
            factors: rho, positive integers, shape (count,).
        """
        rows = np.concatenate([queries, np.ones((*queries.shape[:2], 1))], axis=2)
        return self.ring.matmul(self._scaled(rows, factors), self.inverse.transpose(0, 2, 1))

    def signs(self, queries: Reals, differences: Reals) -> NDArray[np.int8]:
        """Signs of w . q - c, shape (queries, differences): -1, 0 or 1, never wrong."""
        right = self.ring.prepared(differences.transpose(0, 2, 1))
        room = np.empty((len(self.ring) + 1, queries.shape[1], differences.shape[1]))
        products = self.ring.signed_products(list(queries), list(right), room)
        return np.sign(products).astype(np.int8)

    def update_to(self, new: ModularAspe) -> Reals:
        """U = M_old^-1 M_new: `ring.matmul(points, U)` are points under the new key."""
        if new.dimension != self.dimension or len(new.ring) != len(self.ring):
            raise ParameterError("keys of the same dimension and modulus are needed")
        return self.ring.matmul(self.inverse, new.matrix)

    def _scaled(self, rows: Reals, factors: NDArray[Any]) -> Reals:
        if rows.shape[0] != len(self.ring) or rows.shape[2] != self.dimension + 1:
            raise ShapeError(
                f"rows must have shape ({len(self.ring)}, count, {self.dimension}) as residues, "
                f"got {(*rows.shape[:2], rows.shape[2] - 1)}"
            )
        if factors.shape != rows.shape[1:2] or not np.issubdtype(factors.dtype, np.integer):
            raise ShapeError(
                f"factors must be integers of shape {rows.shape[1:2]}, got {factors.shape}"
            )
        if len(factors) and not 0 < factors.min() <= factors.max() < 1 << MOST_FACTOR_BITS:
            raise ParameterError(f"factors must be 1 to 2^{MOST_FACTOR_BITS} - 1")
        if not np.isfinite(rows).all():
            raise ParameterError("residues must be finite: there is NaN or infinity")
        return self.ring.times(rows, self.ring.of(factors)[:, :, None])
