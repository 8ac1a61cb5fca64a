"""Wire layout of an upper-triangular bit matrix: s(s+1)/2 bits, no waste, made for word operations.

An s x s matrix M over GF(2) has its triangle (entries (i, c) with i <= c) sent as little-endian
64-bit words. Column c is cut into *pieces*, one for every block of 64 rows it reaches: rows
64b .. min(c, 64b + 63) for block b. Two rules fix where the pieces lie.

- A piece of 64 rows is a whole word. These words come first: block 0's in column order, then
  block 1's, and so on.
- Shorter pieces are folded: each word is filled with the longest piece that still fits, then the
  next longest, until nothing fits; what gap is left takes the first rows of one more piece, the
  rest of which is packed later. So 63 rows share a word with 1, 62 with 2, and every word but the
  last is full. The last word is cut to the bytes it needs.

In a column, bit (i mod 64) of a word is row i, after a shift by the piece's offset. Bits of other
pieces may lie above a piece: a reader that goes from the last column to the first never looks at
rows above the current column, so it need not mask them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ccbps.errors import ParameterError

WORD = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``first_row .. first_row + length - 1`` of a column, at bit ``offset`` of a word."""

    column: int
    first_row: int
    length: int
    word: int
    offset: int


class TriangleLayout:
    """Where every bit of an s x s triangle lies on the wire.

    Attributes:
        size: s, rows and columns of the matrix.
        bits: s(s+1)/2.
        message_bytes: ``bits`` rounded up to whole bytes.
        words: ``bits`` rounded up to whole 64-bit words.
        full: for each block b, ``(first word, first column, count)`` of its whole pieces.
        partial: the folded pieces, ordered by word and then offset.
        last_byte_mask: bits of the last byte that are in use.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ParameterError(f"size must be at least 1, got {size}")
        self.size = size
        self.bits = size * (size + 1) // 2
        self.message_bytes = -(-self.bits // 8)
        self.words = -(-self.bits // WORD)
        self.blocks = -(-size // WORD)
        self.last_byte_mask = 0xFF >> (-self.bits % 8)

        full: list[tuple[int, int, int]] = []
        waiting: list[tuple[int, int, int]] = []  # (length, column, first row)
        word = 0
        for block in range(self.blocks):
            top = WORD * block
            first = top + WORD - 1
            count = max(0, size - first)
            full.append((word, first, count))
            word += count
            waiting += [(c - top + 1, c, top) for c in range(top, min(first, size))]
        self.full = tuple(full)
        self.partial = _fold(waiting, word)

    def bit_position(self, row: int, column: int) -> int:
        """Bit number of an entry on the wire: in byte ``// 8``, bit ``% 8`` from the low end."""
        if not 0 <= row <= column < self.size:
            raise ParameterError(f"({row}, {column}) is not in a triangle of size {self.size}")
        block = row // WORD
        word, first, count = self.full[block]
        if column >= first and count:
            return (word + column - first) * WORD + row % WORD
        piece = next(
            p for p in self.partial if p.column == column and 0 <= row - p.first_row < p.length
        )
        return piece.word * WORD + piece.offset + row - piece.first_row

    def pack(self, matrices: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Pack 0/1 matrices, shape (batch, s, s), to messages, shape (batch, message_bytes).

        For tests and pictures; the encoders write this layout directly.
        """
        out = np.zeros((len(matrices), self.message_bytes * 8), dtype=np.uint8)
        for column in range(self.size):
            for row in range(column + 1):
                out[:, self.bit_position(row, column)] = matrices[:, row, column]
        return np.packbits(out, axis=1, bitorder="little")

    def unpack(self, messages: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Inverse of `pack`: 0/1 matrices with zeros below the diagonal, shape (batch, s, s)."""
        bits = np.unpackbits(messages, axis=1, bitorder="little")
        out = np.zeros((len(messages), self.size, self.size), dtype=np.uint8)
        for column in range(self.size):
            for row in range(column + 1):
                out[:, row, column] = bits[:, self.bit_position(row, column)]
        return out


def _fold(waiting: list[tuple[int, int, int]], word: int) -> tuple[Piece, ...]:
    """Pack pieces of less than a word into words from number `word` on, leaving no gap."""
    by_length: dict[int, list[tuple[int, int]]] = {}
    for length, column, row in waiting:
        by_length.setdefault(length, []).append((column, row))
    for group in by_length.values():
        group.sort(reverse=True)  # pop() takes the first column first

    pieces: list[Piece] = []
    gap = WORD
    while by_length:
        fitting = [length for length in by_length if length <= gap]
        length = max(fitting) if fitting else min(by_length)
        column, row = by_length[length].pop()
        if not by_length[length]:
            del by_length[length]
        taken = min(length, gap)
        pieces.append(Piece(column, row, taken, word, WORD - gap))
        if taken < length:
            by_length.setdefault(length - taken, []).append((column, row + taken))
        gap -= taken
        if gap == 0:
            word, gap = word + 1, WORD
    return tuple(pieces)
