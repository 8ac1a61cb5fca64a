"""Exact numbers for `ccbps.matching.broken.aspe`: integers modulo a product of primes.

The modulus is chosen by the greatest attribute: bounds and corners of an attribute with N values
are, doubled, at most 8 N apart, so products are below 8 N 2^(2 * factor_bits) <= P / 4, and their
signs are never wrong (`ccbps.ciphers.aspe_modular`).

Factors of some 12 bits would repeat after a hundred messages. So there are two more dimensions: an
event is uniform modulo P in the first and 0 in the second, a bound the other way round. Products
stay what they are, and one value has as many ciphertexts as the modulus.

Hazard: not constant time. The two dimensions hide nothing: they do not enter products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.residues import MAX_INNER
from ccbps.arrays import Bools, Bytes, Index, Numbers, Randomness, Reals, Words
from ccbps.ciphers.aspe_modular import ModularAspe, suited
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.matching.broken.aspe_reals import COLUMNS, ROWS, AspeNumbers, blocks

FARTHEST: Final = 8
"""Bounds and corners are at most this many times an attribute's size apart, doubled."""
BLINDS: Final = 2
"""Dimensions beside the attributes' own."""


class Moduli(AspeNumbers):
    """Residues of integers modulo a product of primes."""

    dtype = "<u4"

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        most = MAX_INNER - BLINDS - 1
        if len(sizes) > most:
            raise ParameterError(f"at most {most} attributes, got {len(sizes)}")
        self.ring, self.factor_bits = suited(FARTHEST * max(sizes))
        self.shape = (len(self.ring), len(sizes) + BLINDS + 1)
        self.words = 1 + len(self.ring)
        self.primes = tuple(self.ring.primes)
        self._primes = np.array(self.primes, dtype=np.float64)[:, None]

    def _key(self, key: Mapping[str, Any]) -> ModularAspe:
        return ModularAspe(self.ring, self._matrix(key["matrix"]), self._matrix(key["inverse"]))

    def _matrix(self, text: str) -> Reals:
        numbers = np.frombuffer(bytes.fromhex(text), dtype="<u4").astype(np.float64)
        k, n = self.shape
        if numbers.size != k * n * n or (numbers.reshape(k, -1) >= self._primes).any():
            raise KeyMismatchError(f"the key holds no matrix of {n} rows modulo {k} primes")
        return self.ring.reduced(numbers.reshape(k, n, n))

    def _text(self, matrix: Reals) -> str:
        return self._words(matrix.reshape(*self.shape[:1], -1)).tobytes().hex()

    def _words(self, residues: Reals) -> NDArray[Any]:
        """As on the wire: residues 0 to p - 1; the primes are the last axis but one."""
        return np.mod(residues, self._primes).astype("<u4")

    def _factors(self, words: Words) -> Numbers:
        most = (1 << self.factor_bits) - 1
        return (words[:, 0] % np.uint64(most)).astype(np.int64) + 1

    def _blinded(self, numbers: Reals, words: Words, place: int) -> Reals:
        """Residues with the two extra dimensions: uniform in one (0 or 1), 0 in the other."""
        out = np.zeros((*numbers.shape[:2], len(self.sizes) + BLINDS))
        out[..., : len(self.sizes)] = numbers
        blind = words[:, 1:] % self._primes[:, 0].astype(np.uint64)
        out[..., len(self.sizes) + place] = blind.T
        return self.ring.reduced(out)

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        key = ModularAspe.generate(self.ring, len(self.sizes) + BLINDS, randomness)
        return {"matrix": self._text(key.matrix), "inverse": self._text(key.inverse)}

    def update(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
        return self._text(self._key(old).update_to(self._key(new)))

    def _encrypted(self, key: Mapping[str, Any], places: Reals, words: Words) -> NDArray[Any]:
        words = words.reshape(-1, self.words)
        places = self._blinded(places, words, 0)
        rows = self._key(key).encrypt_queries(places, self._factors(words))
        return self._words(rows.transpose(1, 0, 2))

    def encrypt_events(self, key: Mapping[str, Any], codes: Sequence[Words], words: Words) -> Bytes:
        places = self.ring.of(np.stack(codes, axis=1))
        places *= 2
        return self.bytes_of(self._encrypted(key, self.ring.reduced(places), words))

    def encrypt_bounds(
        self, key: Mapping[str, Any], bounds: NDArray[Any], order: Index, words: Words
    ) -> Bytes:
        signed = np.stack([bounds[:, 0], -bounds[:, 1]], axis=1).reshape(order.shape)
        offsets = self.ring.of(np.take_along_axis(signed, order, axis=1).reshape(-1))
        normals = self.patterns().astype(np.float64)[order.reshape(-1)]
        normals = np.broadcast_to(normals, (len(self.ring), *normals.shape))
        words = words.reshape(-1, self.words)
        normals = self._blinded(normals, words, 1)
        rows = self._key(key).encrypt_differences(normals, offsets, self._factors(words))
        return self.bytes_of(self._words(rows.transpose(1, 0, 2))).reshape(len(bounds), -1)

    def encrypt_corners(self, key: Mapping[str, Any], corners: Any, words: Words) -> Bytes:
        places = self.ring.of(corners.reshape(-1, len(self.sizes)))
        return self.bytes_of(self._encrypted(key, places, words)).reshape(len(corners), -1)

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

    def bodies(self, differences: Reals, corners: Reals) -> Bytes:
        bounds = self.ring.unprepared(differences.transpose(1, 3, 0, 2))  # (primes, interests, ...)
        ends = corners.reshape(len(self.ring), -1, 2, self.shape[1])
        both = np.concatenate([bounds, ends], axis=2).transpose(1, 2, 0, 3)
        return self.bytes_of(self._words(both))

    def inside(self, queries: Reals, differences: Reals) -> Bools:
        out = np.ones((queries.shape[1], differences.shape[3]), dtype=np.bool_)
        room = np.empty((len(self.ring) + 1) * ROWS * COLUMNS)
        for rows, columns in blocks(*out.shape):
            result = out[rows, columns]
            size = (len(self.ring) + 1) * result.size
            space = room[:size].reshape(-1, *result.shape)
            left = list(queries[:, rows])
            for bound in differences:
                right = list(bound[:, :, columns])
                result &= self.ring.signed_products(left, right, space) > 0
        return out

    def moved(self, update: str, differences: Reals, corners: Reals) -> tuple[Reals, Reals]:
        matrix = self._matrix(update)
        turned = matrix.transpose(0, 2, 1)
        moved = np.stack([self.ring.matmul(turned, bound) for bound in differences])
        # Corners are queries: they take the inverse of what points take.
        return moved, self.ring.matmul(corners, self.ring.inverse(matrix).transpose(0, 2, 1))
