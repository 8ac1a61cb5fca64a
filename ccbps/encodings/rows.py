"""Rows of bytes as encodings take and give them: checks, copies, unused bits, parts of rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from ccbps.arrays import Bytes, Words
from ccbps.encodings.straight_line.program import StraightLine
from ccbps.errors import ShapeError


class Decoding(NamedTuple):
    """What a formula's decoder is made for.

    Attributes:
        program: from words of both messages, added, then one's own slots, to a bit.
        words: of the sum.
        own: whose own slots follow (0 for the event's), and from which byte of its message on.
        widths: bytes of an event message and of an interest message.
        unused: bits of their last bytes that are zero.
    """

    program: StraightLine
    words: int
    own: tuple[int, int]
    widths: tuple[int, int]
    unused: tuple[np.uint8, np.uint8]


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


def draw_rows(
    randomness: Bytes | Draw, randomness_bytes: int, out: Bytes | None, width: int
) -> tuple[Draw, Bytes]:
    """Return randomness as a function, and where to write messages of so many bytes.

    Args:
        randomness: shape (batch, randomness_bytes), uint8; or the function.
        randomness_bytes: bytes of a row of randomness.
        out: shape (batch, width), uint8; made when None, for an array of randomness.
        width: bytes of a message.

    Raises:
        ShapeError: a shape does not fit.
    """
    draw: Draw
    if isinstance(randomness, np.ndarray):
        rows = randomness
        require_rows("randomness", rows, randomness_bytes)
        if out is None:
            out = np.empty((len(rows), width), dtype=np.uint8)
        if len(out) != len(rows):
            raise ShapeError(f"out has {len(out)} rows, randomness {len(rows)}")

        def take(start: int, stop: int) -> Bytes:
            return rows[start:stop]

        draw = take
    elif out is None:
        raise ShapeError("out is needed when randomness is a function")
    else:
        draw = randomness
    require_rows("out", out, width)
    return draw, out


def pair_rows(
    events: Bytes, interests: Bytes, heads: Bytes, widths: tuple[int, int]
) -> tuple[Bytes, Bytes]:
    """Return messages with contiguous rows; copy them if needed.

    Args:
        events: shape (batch, skip + bytes of an event), uint8.
        interests: shape (batch, skip + bytes of an interest), uint8.
        heads: room for the first bytes of both, shape (2, batch, skip).
        widths: bytes of an event and of an interest, without the first `skip`.

    Raises:
        ShapeError: a shape does not fit.
    """
    batch = len(events)
    events, interests = (
        rows if rows.strides[-1:] == (1,) else np.ascontiguousarray(rows)
        for rows in (events, interests)
    )
    require_rows("events", events, heads.shape[-1] + widths[0])
    require_rows("interests", interests, heads.shape[-1] + widths[1])
    if batch != len(interests):
        raise ShapeError(f"{batch} events do not pair with {len(interests)} interests")
    if heads.dtype != np.uint8 or heads.ndim != 3 or heads.shape[:2] != (2, batch):
        raise ShapeError(
            f"heads must be uint8 of shape (2, {batch}, skip), got {heads.dtype} {heads.shape}"
        )
    if not (heads.flags.c_contiguous and heads.flags.writeable):
        raise ShapeError("heads must be C-contiguous and writeable")
    return events, interests


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
