"""The common part of filters: their hash, their union's condition, and their bytes."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from hashlib import blake2b
from typing import ClassVar, Final, Self

from ccbps.arrays import Bools
from ccbps.checks import instance
from ccbps.errors import DecodeError, ParameterError, ShapeError
from ccbps.filters.hashing import Hashing, Murmur3
from ccbps.filters.keys import Keys

MAGIC: Final = b"ccbps filter\0\1"
CHECK_BYTES: Final = 8
_HEAD: Final = struct.Struct(f">{len(MAGIC)}sc8s5Q")


class Filter(ABC):
    """A set of keys that knows for sure which keys are absent.

    A filter as bytes has a head with its kind, its hash and five numbers, its content, and a check.

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
    def _state(self) -> tuple[tuple[int, ...], bytes]:
        """Return the five numbers and the content of the filter's bytes."""

    @classmethod
    @abstractmethod
    def _restored(cls, numbers: tuple[int, ...], content: bytes, hashing: Hashing) -> Self | None:
        """Return the filter of some numbers and content, or None if they contradict one another.

        Raises:
            ParameterError: a number is not possible.
        """

    def to_bytes(self) -> bytes:
        """Write the filter as bytes."""
        numbers, content = self._state()
        message = _HEAD.pack(MAGIC, self.kind, self.hashing.identity(), *numbers) + content
        return message + blake2b(message, digest_size=CHECK_BYTES).digest()

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
        message = bytes(message)
        body, check = message[:-CHECK_BYTES], message[-CHECK_BYTES:]
        if hashing is None:
            public, seed = message[len(MAGIC) + 1 :][:4], message[len(MAGIC) + 5 :][:4]
            if public != b"mmh3":
                raise DecodeError("not a filter, or one under a key: give hashing=SipHash(key)")
            hashing = Murmur3(int.from_bytes(seed))
        if len(body) < _HEAD.size or blake2b(body, digest_size=CHECK_BYTES).digest() != check:
            raise DecodeError("not a filter, or altered")
        magic, kind, identity, *numbers = _HEAD.unpack(body[: _HEAD.size])
        if magic != MAGIC or kind != cls.kind:
            raise DecodeError("a filter of another kind")
        if identity != hashing.identity():
            raise DecodeError(f"a filter with another hash or key than {hashing!r}")
        try:
            restored = cls._restored(tuple(numbers), body[_HEAD.size :], hashing)
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
