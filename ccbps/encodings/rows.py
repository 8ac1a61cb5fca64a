"""Rows of bytes as encodings take and give them: checks, copies, unused bits, parts of rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from ccbps.arrays import Bytes, Words
from ccbps.errors import ShapeError

__all__ = ["Draw", "copy_rows", "parts_of", "require_rows", "used_bits"]

Draw: TypeAlias = Callable[[int, int], Bytes]
"""``draw(start, stop)``: the shared randomness of pairs start .. stop - 1, asked for in order and
once; shape (stop - start, randomness_bytes), uint8, rows contiguous. May reuse one buffer."""


def require_rows(name: str, rows: Bytes, width: int) -> None:
    """Raise ShapeError unless these are rows of bytes that can be seen as words: contiguous."""
    if (
        rows.dtype != np.uint8
        or rows.ndim != 2
        or rows.shape[1] != width
        or (rows.size and rows.strides[1] != 1)
    ):
        raise ShapeError(
            f"{name} must be uint8 of shape (batch, {width}) with contiguous rows, "
            f"got {rows.dtype} {rows.shape}"
        )


def copy_rows(rows: Bytes, out: Bytes) -> None:
    """Copy rows whose bytes are contiguous: as one item each, which is faster than byte by byte."""
    if rows.shape[1]:
        kind = f"V{rows.shape[1]}"
        out.view(kind)[...] = rows.view(kind)


def used_bits(bits: int) -> np.uint8:
    """Which bits of the last byte a message of so many bits uses."""
    return np.uint8((1 << (bits - 1) % 8 + 1) - 1)


def parts_of(joined: Words, *sizes: int) -> list[Bytes]:
    """Bytes of input rows, part by part."""
    edges = np.cumsum([0, *sizes]).tolist()
    return [joined.view(np.uint8)[:, a:b] for a, b in pairwise(edges)]
