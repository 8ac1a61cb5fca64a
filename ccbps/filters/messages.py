"""Filters as bytes: a head that says what they are, their content, and a check."""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final

from ccbps.errors import DecodeError
from ccbps.filters.hashing import Hashing, Murmur3

MAGIC: Final = b"ccbps filter\0\1"
CHECK_BYTES: Final = 8
_HEAD: Final = struct.Struct(f">{len(MAGIC)}sc8s5Q")


def to_wire(kind: bytes, hashing: Hashing, numbers: tuple[int, ...], content: bytes) -> bytes:
    """A filter of a kind, one letter, with up to five numbers that describe it."""
    padded = (*numbers, *[0] * (5 - len(numbers)))
    message = _HEAD.pack(MAGIC, kind, hashing.identity(), *padded) + content
    return message + blake2b(message, digest_size=CHECK_BYTES).digest()


def hashing_of(message: bytes, hashing: Hashing | None) -> Hashing:
    """The hash that a filter is read with: the given one, or what the filter says that all know.

    Raises:
        DecodeError: it has a key, which must be given.
    """
    if hashing is not None:
        return hashing
    identity = bytes(message[len(MAGIC) + 1 : len(MAGIC) + 9])
    if identity[:4] != b"mmh3":
        raise DecodeError("not a filter, or one under a key: give hashing=SipHash(key)")
    return Murmur3(int.from_bytes(identity[4:]))


def from_wire(kind: bytes, hashing: Hashing, message: bytes) -> tuple[tuple[int, ...], bytes]:
    """The numbers and the content.

    Raises:
        DecodeError: malformed, altered by accident, or a filter of another kind or hash.
    """
    message = bytes(message)
    body, check = message[:-CHECK_BYTES], message[-CHECK_BYTES:]
    if len(body) < _HEAD.size or blake2b(body, digest_size=CHECK_BYTES).digest() != check:
        raise DecodeError("not a filter, or altered")
    magic, found, identity, *numbers = _HEAD.unpack(body[: _HEAD.size])
    if magic != MAGIC or found != kind:
        raise DecodeError("a filter of another kind")
    if identity != hashing.identity():
        raise DecodeError(f"a filter with another hash or key than {hashing!r}")
    return tuple(numbers), body[_HEAD.size :]
