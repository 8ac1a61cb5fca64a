"""The common part of filters: their hash, their union's condition, and their bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final, Self

from ccbps.arrays import Bools
from ccbps.checks import Printable, instance
from ccbps.errors import DecodeError, ParameterError, ShapeError
from ccbps.filters.hashing import Hashing, Keys, Murmur3
from ccbps.records import Number, Record, read, write

MAGIC: Final = b"ccbps filter\0\3"
CHECK_BYTES: Final = 8

Numbers = tuple[int, int, int, int, int | float]
"""Numbers that describe a filter beside its content."""


class _Form(Record, frozen=True):
    """A filter as bytes: the letter of its kind, its hash, its numbers and its content."""

    kind: bytes
    hashing: bytes
    numbers: tuple[Number, Number, Number, Number, Number | float]
    content: bytes


class Filter(Printable, ABC):
    """A set of keys with false positives but no false negatives.

    Attributes:
        hashing: hash of the keys.
        count: number of keys.
    """

    kind: ClassVar[bytes]
    """Letter of the kind of filter in its bytes."""

    def __init__(self, hashing: Hashing | None) -> None:
        self.hashing = Murmur3() if hashing is None else instance("hashing", hashing, Hashing)
        self.count = 0

    @abstractmethod
    def has_all(self, keys: Keys) -> Bools:
        """Return whether each key of a column may be present, shape (keys,). False is certain."""

    @abstractmethod
    def _parameters(self) -> tuple[object, ...]:
        """Return the parameters that filters must have in common for their union."""

    @abstractmethod
    def _state(self) -> tuple[Numbers, bytes]:
        """Return the five numbers and the content of the filter's bytes."""

    @classmethod
    @abstractmethod
    def _restored(cls, numbers: Numbers, content: bytes, hashing: Hashing) -> Self | None:
        """Return the filter of some numbers and content, or None if they contradict one another.

        Raises:
            ParameterError: a number is not possible.
        """

    def to_bytes(self) -> bytes:
        """Write the filter as bytes."""
        numbers, content = self._state()
        form = _Form(self.kind, self.hashing.identity(), numbers, content)
        return write(form, MAGIC, check=CHECK_BYTES)

    @classmethod
    def from_bytes(cls, message: bytes, hashing: Hashing | None = None) -> Self:
        """Read the bytes of `to_bytes`.

        Args:
            message: bytes of a filter of this class.
            hashing: hash of the filter; None for the `Murmur3` that the bytes name.

        Raises:
            DecodeError: the bytes are malformed, altered by accident, or of a filter of another
                kind, hash or key.
        """
        form = read(_Form, message, MAGIC, refusal="not a filter, or altered", check=CHECK_BYTES)
        if form.kind != cls.kind:
            raise DecodeError("a filter of another kind")
        if hashing is None:
            if form.hashing[:4] != b"mmh3":
                raise DecodeError("a filter under a key: give hashing=SipHash(key)")
            hashing = Murmur3(int.from_bytes(form.hashing[4:8]))
        if form.hashing != hashing.identity():
            raise DecodeError(f"a filter with another hash or key than {hashing!r}")
        try:
            restored = cls._restored(form.numbers, form.content, hashing)
        except ParameterError:
            restored = None
        if restored is None:
            raise DecodeError(f"parameters that no {cls.__name__} has")
        return restored

    def _require_alike(self, other: Self) -> None:
        if (
            type(other) is not type(self)
            or self._parameters() != other._parameters()
            or self.hashing.identity() != other.hashing.identity()
        ):
            raise ShapeError(
                "filters can be united if they have the same class, parameters, hash and key, got "
                f"{self!r} and {other!r}"
            )

    def __len__(self) -> int:
        return self.count
