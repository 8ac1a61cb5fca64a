"""Numbers of `ccbps.matching.broken.aspe`: codes in, bytes out, products of all pairs.

Codes and bounds come as *doubled* integers: code q as 2q, a bound between two codes as an odd
number, so that no event lies on a bound. `RealNumbers` scales every attribute to about [-1/2, 1/2];
`Moduli` takes the integers as they are.

Bodies: an event is one query ciphertext; an interest is 2d differences of points and then two
query ciphertexts, its corners. A ciphertext has n numbers: d + 1 of float64, or d + 3 uint32
residues for every prime (little-endian, prime by prime).

The modulus is chosen by the greatest attribute: bounds and corners of an attribute with N values
are, doubled, at most 8 N apart, so products are below 8 N 2^(2 * factor_bits) <= P / 4, and their
signs are never wrong (`ccbps.ciphers.aspe`). Factors of some 12 bits would repeat after a
hundred messages. So there are two more dimensions: an event is uniform modulo P in the first and 0
in the second, a bound the other way round. Products stay the same, and one value has as many
ciphertexts as the modulus.

Hazard: not constant time. The two dimensions hide nothing: they do not enter products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.residues import MAX_INNER
from ccbps.arrays import Bools, Bytes, Index, Randomness, Reals, Words
from ccbps.checks import whole
from ccbps.ciphers.aspe import (
    ModularAspe,
    RealAspe,
    random_factors,
    suited,
    tolerance,
    update_queries,
    updated,
)
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.role_key import hex_bytes

UPDATES: Final = 64
"""Key updates that a stored interest of real numbers survives; its tolerance is chosen for them."""
FARTHEST: Final = 8
"""Bounds and corners are at most this many times an attribute's size apart, doubled."""
BLINDS: Final = 2
"""Dimensions of exact numbers beside the attributes' own."""
ROWS: Final = 64
COLUMNS: Final = 512
"""Events and interests whose products are formed at a time: 256 kB, for the processor's cache."""


def _blocks(rows: int, columns: int) -> list[tuple[slice, slice]]:
    """Return all pairs, ROWS events and COLUMNS interests at a time."""
    return [
        (slice(row, row + ROWS), slice(column, column + COLUMNS))
        for column in range(0, columns, COLUMNS)
        for row in range(0, rows, ROWS)
    ]


class AspeNumbers(ABC):
    """A kind of number, with all that the matcher computes in it.

    Attributes:
        shape: shape of a ciphertext: (n,), or (primes, n).
        dtype: type of its numbers in messages.
        sizes: number of codes of each attribute.
        words: number of random words that a ciphertext takes.
        primes: the primes of residues; none for real numbers.
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
        """Return ciphertexts as in messages, one row each."""
        rows = np.ascontiguousarray(ciphertexts, dtype=self.dtype)
        return rows.view(np.uint8).reshape(len(rows), -1)

    def numbers_of(self, bodies: Bytes) -> NDArray[Any]:
        """Return the ciphertexts of bodies, shape (count, ciphertexts, *shape)."""
        numbers = np.ascontiguousarray(bodies).view(self.dtype)
        return numbers.reshape(len(bodies), -1, *self.shape)

    @abstractmethod
    def _key(self, key: Mapping[str, Any]) -> Any:
        """Return the cipher of a key's JSON data."""

    @abstractmethod
    def _matrix(self, text: str) -> Reals:
        """Return a matrix from `_text`."""

    def check_matrix(self, text: Any) -> None:
        """Check the text of a matrix; raise a LookupError, TypeError or ValueError."""
        self._matrix(text)

    @abstractmethod
    def _text(self, matrix: Reals) -> str:
        """Return a matrix of a key or an update as text."""

    @abstractmethod
    def _new_key(self, randomness: Randomness) -> Any:
        """Draw a cipher with a key of its own."""

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        """Return a key, as JSON data."""
        key = self._new_key(randomness)
        return {"matrix": self._text(key.matrix), "inverse": self._text(key.inverse)}

    def update(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
        """Return the text by which a broker goes from one key to another."""
        return self._text(self._key(old).update_to(self._key(new)))

    @abstractmethod
    def moved(self, update: str, bodies: Bytes) -> Bytes:
        """Return the bodies of interests under the next key."""

    @abstractmethod
    def _event_places(self, codes: Sequence[Words]) -> Reals:
        """Return the coordinates of events, from the codes of each attribute."""

    @abstractmethod
    def _places(self, doubled: NDArray[Any]) -> Reals:
        """Return the coordinates of doubled integers, shape (rows, d)."""

    def _scaled(self, doubled: NDArray[Any]) -> NDArray[Any]:
        """Return doubled integers, shape (..., d), on the scale of the numbers."""
        return doubled

    @abstractmethod
    def _queries(self, key: Mapping[str, Any], places: Reals, words: Words) -> NDArray[Any]:
        """Return query ciphertexts of coordinates, a row each."""

    @abstractmethod
    def _differences(
        self, key: Mapping[str, Any], normals: Reals, offsets: NDArray[Any], words: Words
    ) -> NDArray[Any]:
        """Return ciphertexts of differences, a row each, by normals (rows, d) and offsets."""

    def encrypt_events(self, key: Mapping[str, Any], codes: Sequence[Words], words: Words) -> Bytes:
        """Return bodies of events; `words` are random, shape (events, self.words)."""
        return self.bytes_of(self._queries(key, self._event_places(codes), words))

    def encrypt_bounds(
        self, key: Mapping[str, Any], bounds: NDArray[Any], order: Index, words: Words
    ) -> Bytes:
        """Return differences for bounds, as bytes, shape (interests, bytes).

        Args:
            key: the key's data.
            bounds: doubled, shape (interests, 2, d): lower ones, then upper ones.
            order: place of each bound among the differences, shape (interests, 2d).
            words: random words, shape (interests, 2d, self.words).
        """
        scaled = self._scaled(bounds)
        signed = np.stack([scaled[:, 0], -scaled[:, 1]], axis=1).reshape(order.shape)
        offsets = np.take_along_axis(signed, order, axis=1).reshape(-1)
        unit = np.eye(len(self.sizes))
        normals = np.concatenate([unit, -unit])[order.reshape(-1)]
        rows = self._differences(key, normals, offsets, words.reshape(-1, self.words))
        return self.bytes_of(rows).reshape(len(bounds), -1)

    def encrypt_corners(self, key: Mapping[str, Any], corners: NDArray[Any], words: Words) -> Bytes:
        """Return query ciphertexts of corners, as bytes, shape (interests, bytes).

        Args:
            key: the key's data.
            corners: doubled, shape (interests, 2, d).
            words: random words, shape (interests, 2, self.words).
        """
        places = self._places(corners.reshape(-1, len(self.sizes)))
        rows = self._queries(key, places, words.reshape(-1, self.words))
        return self.bytes_of(rows).reshape(len(corners), -1)

    @abstractmethod
    def valid(self, bodies: Bytes) -> Bools:
        """Return the bodies that hold only numbers that occur."""

    @abstractmethod
    def queries(self, ciphertexts: NDArray[Any]) -> Reals:
        """Return query ciphertexts as `inside` takes them."""

    @abstractmethod
    def differences(self, ciphertexts: NDArray[Any]) -> Reals:
        """Return differences, shape (interests, 2d, *shape), as `inside` takes them."""

    @abstractmethod
    def inside(self, queries: Reals, differences: Reals) -> Bools:
        """Return the pairs of a query and an interest whose products are all positive."""


class RealNumbers(AspeNumbers):
    """Numbers of float64.

    Args:
        names: names of the attributes.
        sizes: number of codes of each attribute.

    Raises:
        ParameterError: an attribute has more codes than the tolerance allows.
    """

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
        numbers = np.frombuffer(hex_bytes(text), dtype=self.dtype)
        n = self.shape[0]
        if numbers.size != n * n or not np.isfinite(numbers).all():
            raise KeyMismatchError(f"the key holds no finite matrix of {n} rows")
        return numbers.reshape(n, n)

    def _text(self, matrix: Reals) -> str:
        return matrix.astype(self.dtype).tobytes().hex()

    def _new_key(self, randomness: Randomness) -> RealAspe:
        return RealAspe.generate(len(self.sizes), randomness)

    def moved(self, update: str, bodies: Bytes) -> Bytes:
        matrix, numbers = self._matrix(update), self.numbers_of(bodies)
        parts = [updated(numbers[:, :-2], matrix), update_queries(numbers[:, -2:], matrix)]
        return self.bytes_of(np.concatenate(parts, axis=1))

    def _event_places(self, codes: Sequence[Words]) -> Reals:
        places = np.empty((len(codes[0]), len(self.sizes)))
        for column, code, half, unit in zip(places.T, codes, self._half, self._unit, strict=True):
            np.multiply(code, 2 * unit, out=column)
            column -= float(half) * unit
        return places

    def _places(self, doubled: NDArray[Any]) -> Reals:
        return self._scaled(doubled)

    def _scaled(self, doubled: NDArray[Any]) -> Reals:
        return np.asarray((doubled - self._half).astype(np.float64) * self._unit)

    def _queries(self, key: Mapping[str, Any], places: Reals, words: Words) -> Reals:
        return self._key(key).encrypt_queries(places, random_factors(words[:, 0]))

    def _differences(
        self, key: Mapping[str, Any], normals: Reals, offsets: Reals, words: Words
    ) -> Reals:
        return self._key(key).encrypt_differences(normals, offsets, random_factors(words[:, 0]))

    def valid(self, bodies: Bytes) -> Bools:
        numbers = np.abs(self.numbers_of(bodies))
        return np.asarray((numbers <= self._limit).all(axis=(1, 2)))  # False for NaN.

    def queries(self, ciphertexts: NDArray[Any]) -> Reals:
        return np.ascontiguousarray(ciphertexts, dtype=np.float64)

    def differences(self, ciphertexts: NDArray[Any]) -> Reals:
        return np.ascontiguousarray(ciphertexts.transpose(1, 2, 0), dtype=np.float64)

    def inside(self, queries: Reals, differences: Reals) -> Bools:
        out = np.empty((len(queries), differences.shape[2]), dtype=np.bool_)
        # Room for the products of one bound; it stays in the cache from block to block.
        room, truth = np.empty(ROWS * COLUMNS), np.empty(ROWS * COLUMNS, dtype=np.bool_)
        for rows, columns in _blocks(*out.shape):
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


class Moduli(AspeNumbers):
    """Residues of integers modulo a product of primes.

    Args:
        sizes: number of codes of each attribute.

    Raises:
        ParameterError: there are too many attributes.
    """

    dtype = "<u4"

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        whole("the number of attributes", len(sizes), 1, MAX_INNER - BLINDS - 1)
        self.ring, self.factor_bits = suited(FARTHEST * max(sizes))
        self.shape = (len(self.ring), len(sizes) + BLINDS + 1)
        self.words = 1 + len(self.ring)
        self.primes = tuple(self.ring.primes)
        self._primes = np.array(self.primes, dtype=np.float64)[:, None]

    def _key(self, key: Mapping[str, Any]) -> ModularAspe:
        return ModularAspe(self.ring, self._matrix(key["matrix"]), self._matrix(key["inverse"]))

    def _matrix(self, text: str) -> Reals:
        numbers = np.frombuffer(hex_bytes(text), dtype=self.dtype).astype(np.float64)
        k, n = self.shape
        if numbers.size != k * n * n or (numbers.reshape(k, -1) >= self._primes).any():
            raise KeyMismatchError(f"the key holds no matrix of {n} rows modulo {k} primes")
        return self.ring.reduced(numbers.reshape(k, n, n))

    def _text(self, matrix: Reals) -> str:
        return self._unsigned(matrix.reshape(len(matrix), -1)).tobytes().hex()

    def _unsigned(self, residues: Reals) -> NDArray[Any]:
        """Return residues from 0 to p - 1; the primes are the last axis but one."""
        return np.mod(residues, self._primes).astype(self.dtype)

    def _new_key(self, randomness: Randomness) -> ModularAspe:
        return ModularAspe.generate(self.ring, len(self.sizes) + BLINDS, randomness)

    def moved(self, update: str, bodies: Bytes) -> Bytes:
        matrix, numbers = self._matrix(update), self.numbers_of(bodies)
        # Corners are queries: they take the inverse of the transpose.
        turned = self.ring.inverse(matrix).transpose(0, 2, 1)
        parts = []
        for part, factor in ((numbers[:, :-2], matrix), (numbers[:, -2:], turned)):
            rows = self.queries(part.reshape(-1, *self.shape))
            fresh = self._unsigned(self.ring.matmul(rows, factor).transpose(1, 0, 2))
            parts.append(fresh.reshape(part.shape))
        return self.bytes_of(np.concatenate(parts, axis=1))

    def _event_places(self, codes: Sequence[Words]) -> Reals:
        places = self.ring.of(np.stack(codes, axis=1))
        places *= 2
        return self.ring.reduced(places)

    def _places(self, doubled: NDArray[Any]) -> Reals:
        return self.ring.of(doubled)

    def _encrypted(
        self, encrypt: Any, numbers: Reals, place: int, words: Words, *offsets: Reals
    ) -> NDArray[Any]:
        """Return ciphertexts of residues (primes, rows, d), uniform in one extra dimension.

        Args:
            encrypt: method of the key.
            numbers: residues without the extra dimensions.
            place: the uniform one of these, 0 or 1; the other is 0.
            words: random words, shape (rows, self.words).
            offsets: residues of offsets, for differences.
        """
        d = len(self.sizes)
        blinded = np.zeros((*numbers.shape[:2], d + BLINDS))
        blinded[..., :d] = numbers
        blind = words[:, 1:] % self._primes[:, 0].astype(np.uint64)
        blinded[..., d + place] = blind.T
        most = (1 << self.factor_bits) - 1
        factors = (words[:, 0] % np.uint64(most)).astype(np.int64) + 1
        rows = encrypt(self.ring.reduced(blinded), *offsets, factors)
        return self._unsigned(rows.transpose(1, 0, 2))

    def _queries(self, key: Mapping[str, Any], places: Reals, words: Words) -> NDArray[Any]:
        return self._encrypted(self._key(key).encrypt_queries, places, 0, words)

    def _differences(
        self, key: Mapping[str, Any], normals: Reals, offsets: NDArray[Any], words: Words
    ) -> NDArray[Any]:
        numbers = np.broadcast_to(normals, (len(self.ring), *normals.shape))
        encrypt = self._key(key).encrypt_differences
        return self._encrypted(encrypt, numbers, 1, words, self.ring.of(offsets))

    def valid(self, bodies: Bytes) -> Bools:
        return np.asarray((self.numbers_of(bodies) < self._primes).all(axis=(1, 2, 3)))

    def queries(self, ciphertexts: NDArray[Any]) -> Reals:
        numbers = ciphertexts.astype(np.float64).transpose(1, 0, 2)
        return self.ring.reduced(np.ascontiguousarray(numbers))

    def differences(self, ciphertexts: NDArray[Any]) -> Reals:
        numbers = np.ascontiguousarray(ciphertexts.transpose(1, 2, 3, 0), dtype=np.float64)
        for bound in numbers:
            self.ring.reduced(bound)
            bound[...] = self.ring.prepared(bound)
        return numbers

    def inside(self, queries: Reals, differences: Reals) -> Bools:
        out = np.ones((queries.shape[1], differences.shape[3]), dtype=np.bool_)
        room = np.empty((len(self.ring) + 1) * ROWS * COLUMNS)
        for rows, columns in _blocks(*out.shape):
            result = out[rows, columns]
            size = (len(self.ring) + 1) * result.size
            space = room[:size].reshape(-1, *result.shape)
            left = list(queries[:, rows])
            for bound in differences:
                right = list(bound[:, :, columns])
                result &= self.ring.signed_products(left, right, space) > 0
        return out
