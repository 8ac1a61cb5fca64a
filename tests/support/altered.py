"""Bytes that were altered on their way."""

from __future__ import annotations

from collections.abc import Iterator


def altered(data: bytes) -> Iterator[bytes]:
    """Yield the bytes with one more, cut off at each place, and with each of them changed."""
    yield data + b"\0"
    for at in range(len(data)):
        yield data[:at]
        for bit in (1, 128):
            yield data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
