"""Bytes of several parts in one, for snapshots of caches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ccbps.errors import DecodeError

NO_SNAPSHOT: Final = "not a snapshot of a strategy, or cut off"


def joined(parts: Iterable[bytes]) -> bytes:
    """Each part behind its length, 8 bytes."""
    return b"".join([len(part).to_bytes(8) + part for part in parts])


def split(together: bytes, count: int | None = None) -> list[bytes]:
    """The parts.

    Args:
        count: of the parts, if it is known.

    Raises:
        DecodeError: cut off, or another number of parts.
    """
    parts, at = [], 0
    while at < len(together):
        end = at + 8 + int.from_bytes(together[at : at + 8])
        if end > len(together) or end < at + 8:
            raise DecodeError(NO_SNAPSHOT)
        parts.append(together[at + 8 : end])
        at = end
    if count not in (None, len(parts)):
        raise DecodeError(NO_SNAPSHOT)
    return parts
