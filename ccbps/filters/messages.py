"""Filters as bytes: a record behind what says that it is one, with a check."""

from __future__ import annotations

from typing import Final

from ccbps.errors import DecodeError
from ccbps.filters.hashing import Hashing, Murmur3
from ccbps.records import Number, Record, read, write

MAGIC: Final = b"ccbps filter\0\2"
CHECK_BYTES: Final = 8


class _Filter(Record, frozen=True):
    """A filter of a kind, one letter, with its hash and numbers that describe it."""

    kind: bytes
    hashing: bytes
    numbers: tuple[Number, Number, Number, Number, Number | float]
    content: bytes


Numbers = tuple[int, int, int, int, int | float]


def to_wire(kind: bytes, hashing: Hashing, numbers: Numbers, content: bytes) -> bytes:
    """Return the bytes of a filter."""
    record = _Filter(kind, hashing.identity(), numbers, content)
    return write(record, MAGIC, check=CHECK_BYTES)


def from_wire(
    kind: bytes, hashing: Hashing | None, message: bytes
) -> tuple[Hashing, Numbers, bytes]:
    """Return the hash, the numbers and the content.

    Args:
        kind: that the filter must have.
        hashing: that it must have; None for one that all know, which the filter says.
        message: from `to_wire`.

    Raises:
        DecodeError: malformed, altered by accident, or a filter of another kind or hash; or it has
            a key, and no hash is given.
    """
    record = read(_Filter, message, MAGIC, refusal="not a filter, or altered", check=CHECK_BYTES)
    if record.kind != kind:
        raise DecodeError("a filter of another kind")
    if hashing is None:
        if record.hashing[:4] != b"mmh3":
            raise DecodeError("a filter under a key: give hashing=SipHash(key)")
        hashing = Murmur3(int.from_bytes(record.hashing[4:8]))
    if record.hashing != hashing.identity():
        raise DecodeError(f"a filter with another hash or key than {hashing!r}")
    return hashing, record.numbers, record.content
