"""Many Paillier ciphertexts with their key: sums, products with numbers, bytes.

Conventions: shape (count,); `+` and `*` go element by element with a number, a sequence of numbers
or another batch of the same key. Rows of bytes are big-endian, `PaillierPublicKey.width` wide.

Hazard: results are not blinded anew: whoever knows the arguments' ciphertexts sees how a result was
made. `PaillierEncryptor.refresh` helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.modular import integer, rows_from, rows_to
from ccbps.ciphers.paillier import PaillierEncryptor, PaillierPublicKey, PaillierSecretKey
from ccbps.ciphers.paillier_keys import whole
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError, ShapeError

__all__ = ["PaillierCiphertexts"]


class PaillierCiphertexts:
    """A batch of ciphertexts of one public key.

    Attributes:
        public: the key.
        values: the ciphertexts.
    """

    __slots__ = ("public", "values")

    def __init__(self, public: PaillierPublicKey, values: Iterable[int]) -> None:
        """
        Raises:
            DecodeError: some are not ciphertexts for this n; names the places.
        """
        self.public, self.values = public, [integer(value) for value in values]
        bad = public.check(self.values)
        if bad:
            raise DecodeError(f"value {bad[0]} is not a ciphertext of this n", rows=tuple(bad))

    @classmethod
    def _of(cls, public: PaillierPublicKey, values: list[int]) -> PaillierCiphertexts:
        batch = cls.__new__(cls)
        batch.public, batch.values = public, values
        return batch

    @classmethod
    def encrypt(cls, encryptor: PaillierEncryptor, values: Any) -> PaillierCiphertexts:
        """Ciphertexts of a sequence or one-dimensional array of integers."""
        return cls._of(encryptor.public, encryptor.encrypt_many(_numbers(values)))

    @classmethod
    def from_rows(cls, public: PaillierPublicKey, rows: NDArray[np.uint8]) -> PaillierCiphertexts:
        """What `rows` returned.

        Raises:
            ShapeError: not uint8 of shape (count, public.width).
            DecodeError: a row is not a ciphertext.
        """
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != public.width:
            raise ShapeError(
                f"rows must be uint8 of shape (count, {public.width}), "
                f"got {rows.dtype} {rows.shape}"
            )
        return cls(public, rows_from(rows))

    def rows(self) -> NDArray[np.uint8]:
        """Bytes, shape (count, public.width)."""
        return rows_to(self.values, self.public.width)

    def decrypt(self, secret: PaillierSecretKey, *, signed: bool = False) -> NDArray[np.object_]:
        """The messages as Python integers, dtype object, shape (count,).

        Raises:
            KeyMismatchError: the secret key is of another n.
        """
        if secret.public.n != self.public.n:
            raise KeyMismatchError("these ciphertexts are of another key")
        messages = secret.decrypt_many(self.values, signed=signed)
        return np.array([int(message) for message in messages], dtype=np.object_)

    def __repr__(self) -> str:
        return f"<{len(self)} ciphertexts of {self.public!r}>"

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)

    def sum(self) -> PaillierCiphertexts:
        """One ciphertext of the sum of all."""
        return self._of(self.public, [self.public.add_many(self.values)])

    def __add__(self, other: Any) -> PaillierCiphertexts:
        n2 = self.public.n2
        if isinstance(other, PaillierCiphertexts):
            if other.public.n != self.public.n:
                raise KeyMismatchError("ciphertexts of different keys cannot be added")
            terms = other.values
        else:
            terms = [self.public.plain(m) for m in self._each(other)]
        if len(terms) != len(self):
            raise ShapeError(f"{len(self)} ciphertexts and {len(terms)} cannot be added")
        values = [a * b % n2 for a, b in zip(self.values, terms, strict=True)]
        return self._of(self.public, values)

    __radd__ = __add__

    def __mul__(self, other: Any) -> PaillierCiphertexts:
        if isinstance(other, PaillierCiphertexts):
            raise ParameterError("a ciphertext can be multiplied by a number, not by a ciphertext")
        factors = self._each(other)
        if len(factors) != len(self):
            raise ShapeError(f"{len(self)} ciphertexts and {len(factors)} factors do not pair")
        multiply = self.public.multiply
        values = [multiply(a, k) for a, k in zip(self.values, factors, strict=True)]
        return self._of(self.public, values)

    __rmul__ = __mul__
    # NumPy would otherwise take a batch for a sequence and call the operators element by element.
    __array_ufunc__ = None

    def _each(self, other: Any) -> Sequence[int]:
        if np.ndim(other) == 0:
            return _numbers([other]) * len(self)
        return _numbers(other)


def _numbers(values: Any) -> list[int]:
    if np.ndim(values) != 1:
        raise ShapeError(f"values must be one-dimensional, got shape {np.shape(values)}")
    if isinstance(values, np.ndarray):
        values = values.tolist()
    return [whole(value, "a number") for value in values]
