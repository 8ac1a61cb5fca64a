"""The order of a sequence in the lanes of 64-bit words.

A sequence is cut into 64 contiguous chunks, one for each bit of a word. Each chunk is cut into V
contiguous pieces, one for each *column*. A piece has M elements, one for each *step*:

    position = (bit * V + column) * M + step.

So neighbours lie in neighbouring rows of words, and can be multiplied without reordering. V is the
largest power of two with M >= 64, at most 4096. With one column, word w holds positions w, W + w,
2W + w and so on, of 64 * W. Rounding up to M * V words adds at most 1/64.

Planes of a batch have the shape (M, batch, V).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Words
from ccbps.errors import ParameterError

LANES: Final = 64
PLANES: Final = 8
STEPS: Final = 64
"""Least number of steps of a sequence with two columns or more."""
COLUMNS: Final = 4096
"""Largest number of columns: a plane of one step is then long enough for cheap NumPy calls."""
CHUNK: Final = 1 << 17
"""Positions brought into lanes or out of them at a time."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Steps M and columns V of a sequence."""

    steps: int
    columns: int

    @property
    def words(self) -> int:
        """Number of words in a plane."""
        return self.steps * self.columns

    @classmethod
    def at_least(cls, words: int) -> Lanes:
        """Return the lanes of so many words or a few more."""
        columns = _columns(words)
        steps = -(-words // columns)
        # Rounding up may reach the next power of two: then there are more columns, as many words.
        more = _columns(steps * columns)
        return cls(steps * columns // more, more)

    @classmethod
    def exactly(cls, words: int) -> Lanes:
        """Return the lanes of so many words.

        Raises:
            ParameterError: no sequence has so many words.
        """
        lanes = cls.at_least(words) if words > 0 else None
        if lanes is None or lanes.words != words:
            raise ParameterError(f"no padded length of A5 has {words} words of 64 lanes")
        return lanes

    @classmethod
    def of(cls, length: int) -> Lanes:
        """Return the lanes of a padded length.

        Raises:
            ParameterError: the length is not padded.
        """
        if length < 1 or length % LANES:
            raise ParameterError(f"length must be padded, a multiple of {LANES}, got {length}")
        return cls.exactly(length // LANES)


def pack(values: NDArray[np.uint8], planes: Words, table: NDArray[np.uint8] | None = None) -> None:
    """Write bit i of each value, or of table[value], to plane i.

    Args:
        values: bytes, shape (batch, length). With one plane, any value but 0 counts as 1.
        planes: words to be written, shape (n, M, batch, V).
        table: codes of the values; None to pack the values themselves.
    """
    for part, target in _chunks(values, planes):
        bits = np.ascontiguousarray(part)
        if table is not None:
            bits = table.take(bits)
        for plane, row in enumerate(target):
            plane_bits = bits & np.uint8(1 << plane) if len(planes) > 1 else bits
            row[...] = np.packbits(plane_bits, axis=-1, bitorder="little").view("<u8")[..., 0]


def unpack(planes: NDArray[Any], table: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Undo `pack`: return table[bits of all planes], shape (batch, length)."""
    _, steps, batch, columns = planes.shape
    values = np.empty((batch, LANES * steps * columns), dtype=np.uint8)
    for part, source in _chunks(values, planes):
        octets = np.ascontiguousarray(source, dtype="<u8").view(np.uint8)
        bits = np.unpackbits(octets, bitorder="little").reshape(len(source), *part.shape)
        for plane in range(1, len(bits)):
            np.left_shift(bits[plane], np.uint8(plane), out=bits[plane])
            np.bitwise_or(bits[0], bits[plane], out=bits[0])
        part[...] = table.take(bits[0])
    return values


def scratch(rows: int, words: int) -> Words:
    """Allocate rows of words, an odd number of cache lines apart and aligned to cache lines.

    So equal places of different rows do not compete for the same few cache sets, and no vector
    crosses a cache line.
    """
    lines = -(-words // 8) | 1
    memory = np.empty(8 * (rows * lines + 1), dtype=np.uint64)
    start = -memory.ctypes.data % 64 // 8
    return memory[start : start + 8 * rows * lines].reshape(rows, -1)[:, :words]


def empty(form: Lanes, batch: int) -> Words:
    """Allocate a bulk of shape (8, M, batch, V)."""
    shape = (PLANES, form.steps, batch, form.columns)
    return scratch(PLANES, form.words * batch).reshape(shape)


def _columns(words: int) -> int:
    return 1 << min(COLUMNS.bit_length() - 1, max(1, words // STEPS).bit_length() - 1)


def _chunks(
    values: NDArray[np.uint8], planes: NDArray[Any]
) -> Iterator[tuple[NDArray[np.uint8], NDArray[Any]]]:
    """Yield pieces that fit the cache: values as (M, batch, V, 64), a view, and their planes."""
    _, steps, batch, columns = planes.shape
    lanes_last = values.reshape(batch, LANES, columns, steps).transpose(3, 0, 2, 1)
    wide = max(1, min(columns, CHUNK // (LANES * steps)))
    count = max(1, CHUNK // (LANES * steps * columns))
    for first in range(0, batch, count):
        rows = slice(first, first + count)
        for column in range(0, columns, wide):
            at = slice(column, column + wide)
            yield lanes_last[:, rows, at], planes[:, :, rows, at]
