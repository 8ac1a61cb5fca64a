"""Frames: how processes tell messages apart on a pipe or a socket, which carry nothing but bytes.

A frame is four bytes of length, little-endian, and as many bytes. What is in a frame, and has parts
of different lengths, is a list of a record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from ccbps.errors import DecodeError
from ccbps.records import read, write

LENGTH_BYTES: Final = 4
MOST_BYTES: Final = 1 << 24
"""Of a frame: a length that was made up must not make the reader take all memory."""


class Reader(Protocol):
    """What frames are read from: a pipe, or a socket's file."""

    def read(self, size: int, /) -> bytes | None: ...


class Writer(Protocol):
    """What frames are written to."""

    def write(self, data: bytes, /) -> int | None: ...

    def flush(self) -> None: ...


def write_frame(to: Writer, message: bytes) -> None:
    """Write one frame, and send it on its way."""
    to.write(len(message).to_bytes(LENGTH_BYTES, "little") + message)
    to.flush()


def read_frame(source: Reader) -> bytes | None:
    """The next frame's message; None if there are no more.

    Raises:
        DecodeError: the frame was cut off, or is too long.
    """
    head = source.read(LENGTH_BYTES)
    if not head:
        return None
    size = int.from_bytes(head, "little")
    if len(head) < LENGTH_BYTES or size > MOST_BYTES:
        raise DecodeError(f"a frame has a length of 4 bytes, at most {MOST_BYTES}")
    message = source.read(size) or b""
    if len(message) < size:
        raise DecodeError(f"a frame of {size} bytes was cut off at {len(message)}")
    return message


def pack(parts: Iterable[bytes]) -> bytes:
    """Return parts of any lengths as one message."""
    return write([*parts])


def unpack(message: bytes, count: int | None = None) -> list[bytes]:
    """Return the parts.

    Args:
        message: from `pack`.
        count: how many parts there must be, if that is known.

    Raises:
        DecodeError: it is no such message, or has another number of parts.
    """
    parts = read(list[bytes], message, refusal="not a message of parts, or cut off")
    if count not in (None, len(parts)):
        raise DecodeError(f"a message of {count} parts was expected, got {len(parts)}")
    return parts
