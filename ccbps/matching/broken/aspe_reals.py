"""Real numbers for `ccbps.matching.broken.aspe`: codes in, bytes out, products of all pairs.

Codes and bounds come as *doubled* integers: code q as 2q, a bound between two codes as an odd
number, so that no event lies on a bound. `RealNumbers` scales every attribute to about [-1/2, 1/2];
`ccbps.matching.broken.aspe_moduli` takes the integers as they are.

Bodies: an event is one query ciphertext; an interest is 2d differences of points and then two
query ciphertexts, its corners. A ciphertext has n numbers: d + 1 of float64, or d + 3 uint32
residues for every prime (little-endian, prime by prime).

Hazard: not constant time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Index, Numbers, Randomness, Reals, Words
from ccbps.ciphers.aspe import RealAspe, random_factors, tolerance, update_queries, updated
from ccbps.errors import KeyMismatchError, ParameterError

UPDATES: Final = 64
"""Key updates that a stored interest of real numbers survives; its tolerance is chosen for them."""
ROWS: Final = 64
COLUMNS: Final = 512
"""Events and interests whose products are formed at a time: 256 kB, for the processor's cache."""


class AspeNumbers(ABC):
    """What the matcher needs of a kind of number.

    Attributes:
        shape: of a ciphertext: (n,), or (primes, n).
        dtype: of its numbers on the wire.
        sizes: number of codes of each attribute.
        words: random words that a ciphertext takes.
        primes: of which there are residues; none for real numbers.
    """

    words = 1
    primes: tuple[int, ...] = ()
    dtype: ClassVar[str]
    shape: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def width(self) -> int:
        """Bytes of a ciphertext."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    def bytes_of(self, ciphertexts: NDArray[Any]) -> Bytes:
        """As on the wire, one row each."""
        return (
            np.ascontiguousarray(ciphertexts, dtype=self.dtype)
            .view(np.uint8)
            .reshape(len(ciphertexts), -1)
        )

    def numbers_of(self, bodies: Bytes) -> NDArray[Any]:
        """Ciphertexts of bodies: shape (count, ciphertexts, *shape)."""
        numbers = np.ascontiguousarray(bodies).view(self.dtype)
        return numbers.reshape(len(bodies), -1, *self.shape)

    @abstractmethod
    def bodies(self, differences: Any, corners: Any) -> Bytes:
        """Bodies of stored interests; the inverse of `differences` and `queries`."""

    @abstractmethod
    def generate(self, randomness: Randomness) -> dict[str, Any]:
        """A key, as JSON data."""

    @abstractmethod
    def update(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
        """What the broker needs to go from one key to another, as text."""

    @abstractmethod
    def encrypt_events(self, key: Mapping[str, Any], codes: Sequence[Words], words: Words) -> Bytes:
        """Bodies of events; `words` are random, shape (events, self.words)."""

    @abstractmethod
    def encrypt_bounds(
        self, key: Mapping[str, Any], bounds: NDArray[Any], order: Index, words: Words
    ) -> Bytes:
        """Differences for bounds, shape (interests, 2, d): above the first, below the second.

        `order`, shape (interests, 2d), says where each goes; `words` are random, shape
        (interests, 2d, self.words).
        """

    @abstractmethod
    def encrypt_corners(self, key: Mapping[str, Any], corners: Any, words: Words) -> Bytes:
        """Query ciphertexts of corners, shape (interests, 2, d); `words` has (interests, 2,
        self.words)."""

    @abstractmethod
    def valid(self, bodies: Bytes) -> Bools:
        """Which bodies hold only numbers that occur."""

    @abstractmethod
    def queries(self, ciphertexts: NDArray[Any]) -> Any:
        """Query ciphertexts as `inside` takes them."""

    @abstractmethod
    def differences(self, ciphertexts: NDArray[Any]) -> Any:
        """Differences, shape (interests, 2d, *shape), as `inside` takes them."""

    @abstractmethod
    def inside(self, queries: Any, differences: Any) -> Bools:
        """Which queries have a positive product with all differences of an interest."""

    @abstractmethod
    def moved(self, update: str, differences: Any, corners: Any) -> tuple[Any, Any]:
        """Differences and corners of stored interests, brought to the next key."""

    def patterns(self) -> Numbers:
        """Normals of the bounds, shape (2d, d): +e_j for lower ones, -e_j for upper ones."""
        unit = np.eye(len(self.sizes), dtype=np.int64)
        return np.concatenate([unit, -unit])


def blocks(rows: int, columns: int) -> list[tuple[slice, slice]]:
    """All pairs, ROWS events and COLUMNS interests at a time."""
    return [
        (slice(row, row + ROWS), slice(column, column + COLUMNS))
        for column in range(0, columns, COLUMNS)
        for row in range(0, rows, ROWS)
    ]


class RealNumbers(AspeNumbers):
    """float64."""

    dtype = "<f8"

    def __init__(self, names: Sequence[str], sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        d = len(sizes)
        self.shape = (d + 1,)
        self._half = np.array([size - 1 for size in sizes], dtype=object)
        self._unit = np.array([0.5 / size for size in sizes])
        # Lengths of the rows (e_j, -bound) and (corner, 1); factors cancel.
        error = tolerance(d, UPDATES) * sqrt(1 + 2.5**2) * sqrt(1 + 1.5**2 * d)
        for name, size in zip(names, sizes, strict=True):
            if not 0.5 / size > error:
                raise ParameterError(
                    f"attribute {name!r} must have at most {int(0.5 / error):,} values for real "
                    f"numbers, got {size:,}; use exact=True"
                )
        # Ciphertexts are at most twice as long as such rows, with factors below 2^8.
        self._limit = 2.0**9 * sqrt(1 + 9 * d)

    def _key(self, key: Mapping[str, Any]) -> RealAspe:
        return RealAspe(self._matrix(key["matrix"]), self._matrix(key["inverse"]))

    def _matrix(self, text: str) -> Reals:
        numbers = np.frombuffer(bytes.fromhex(text), dtype="<f8")
        n = self.shape[0]
        if numbers.size != n * n or not np.isfinite(numbers).all():
            raise KeyMismatchError(f"the key holds no finite matrix of {n} rows")
        return numbers.reshape(n, n)

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        key = RealAspe.generate(len(self.sizes), randomness)
        return {
            "matrix": key.matrix.astype("<f8").tobytes().hex(),
            "inverse": key.inverse.astype("<f8").tobytes().hex(),
        }

    def update(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
        return self._key(old).update_to(self._key(new)).astype("<f8").tobytes().hex()

    def encrypt_events(self, key: Mapping[str, Any], codes: Sequence[Words], words: Words) -> Bytes:
        places = np.empty((len(words), len(self.sizes)))
        for column, code, half, unit in zip(places.T, codes, self._half, self._unit, strict=True):
            np.multiply(code, 2 * unit, out=column)
            column -= float(half) * unit
        return self.bytes_of(self._key(key).encrypt_queries(places, random_factors(words[:, 0])))

    def _placed(self, doubled: Any) -> Reals:
        return np.asarray((doubled - self._half).astype(np.float64) * self._unit)

    def encrypt_bounds(
        self, key: Mapping[str, Any], bounds: NDArray[Any], order: Index, words: Words
    ) -> Bytes:
        placed = self._placed(bounds)
        placed[:, 1] *= -1
        offsets = np.take_along_axis(placed.reshape(order.shape), order, axis=1).reshape(-1)
        normals = self.patterns().astype(np.float64)[order.reshape(-1)]
        factors = random_factors(words.reshape(-1))
        rows = self._key(key).encrypt_differences(normals, offsets, factors)
        return self.bytes_of(rows).reshape(len(bounds), -1)

    def encrypt_corners(self, key: Mapping[str, Any], corners: Any, words: Words) -> Bytes:
        places = self._placed(corners).reshape(-1, len(self.sizes))
        rows = self._key(key).encrypt_queries(places, random_factors(words.reshape(-1)))
        return self.bytes_of(rows).reshape(len(corners), -1)

    def valid(self, bodies: Bytes) -> Bools:
        numbers = np.abs(self.numbers_of(bodies))
        return np.asarray((numbers <= self._limit).all(axis=(1, 2)))  # false for NaN

    def queries(self, ciphertexts: NDArray[Any]) -> Reals:
        return np.ascontiguousarray(ciphertexts, dtype=np.float64)

    def differences(self, ciphertexts: NDArray[Any]) -> Reals:
        return np.ascontiguousarray(ciphertexts.transpose(1, 2, 0), dtype=np.float64)

    def bodies(self, differences: Reals, corners: Reals) -> Bytes:
        parts = [differences.transpose(2, 0, 1), corners.reshape(-1, 2, *self.shape)]
        return self.bytes_of(np.concatenate(parts, axis=1))

    def inside(self, queries: Reals, differences: Reals) -> Bools:
        out = np.empty((len(queries), differences.shape[2]), dtype=np.bool_)
        # Room for the products of one bound; it stays in the cache from block to block.
        room, truth = np.empty(ROWS * COLUMNS), np.empty(ROWS * COLUMNS, dtype=np.bool_)
        for rows, columns in blocks(*out.shape):
            result = out[rows, columns]
            products = room[: result.size].reshape(result.shape)
            positive = truth[: result.size].reshape(result.shape)
            for number, bound in enumerate(differences):
                np.matmul(queries[rows], bound[:, columns], out=products)
                if number:
                    np.greater(products, 0, out=positive)
                    result &= positive
                else:
                    np.greater(products, 0, out=result)
        return out

    def moved(self, update: str, differences: Reals, corners: Reals) -> tuple[Reals, Reals]:
        matrix = self._matrix(update)
        return updated(differences.transpose(0, 2, 1), matrix).transpose(0, 2, 1).copy(), (
            update_queries(corners, matrix)
        )
