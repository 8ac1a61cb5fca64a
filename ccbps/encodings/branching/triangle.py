"""Wire layout of an upper-triangular bit matrix: s(s+1)/2 bits, no waste, made for word operations.

An s x s matrix over GF(2) has its triangle (entries (i, c) with i <= c) sent as little-endian
64-bit words. Column c is cut into *pieces*, one for every block of 64 rows that it reaches.

- A piece of 64 rows is a whole word. These words come first: block 0's in column order, then
  block 1's, and so on.
- Shorter pieces follow as one string of bits. A piece of n rows and one of 64 - n rows of the same
  block fill a word together, and come first. Pieces without such a partner come last, and are cut
  where a word ends. The last word is cut to the bytes it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ccbps.arrays import Words
from ccbps.checks import whole
from ccbps.errors import ParameterError

WORD: Final = 64
SHIFTS: Final = tuple(np.uint64(i) for i in range(WORD))


class TriangleLayout:
    """Place every bit of an s x s triangle on the wire.

    Attributes:
        size: s, rows and columns of the matrix.
        bits: s(s+1)/2.
        message_bytes: `bits` rounded up to whole bytes.
        words: `bits` rounded up to whole 64-bit words.
        pieces: for each column, the (word, first bit, end) of each of its pieces, from row 0 down;
            an end past 64 is in the next word.
        last_byte_mask: bits of the last byte that are in use.
    """

    def __init__(self, size: int) -> None:
        self.size = size = whole("size", size, 1)
        self.bits = size * (size + 1) // 2
        self.message_bytes = -(-self.bits // 8)
        self.words = -(-self.bits // WORD)
        self.last_byte_mask = 0xFF >> (-self.bits % 8)
        self.pieces: list[list[tuple[int, int, int]]] = [[] for _ in range(size)]
        position = 0
        for top in range(0, size, WORD):
            for column in range(top + WORD - 1, size):
                self.pieces[column].append((position // WORD, 0, WORD))
                position += WORD

        def order(column: int) -> tuple[bool, int, int, int]:
            rows = (column + 1) % WORD
            partner = column + WORD - 2 * rows
            return partner >= size, min(rows, WORD - rows), column // WORD, rows

        for column in sorted(range(size), key=order):
            if rows := (column + 1) % WORD:
                word, first = divmod(position, WORD)
                self.pieces[column].append((word, first, first + rows))
                position += rows

    def bit_position(self, row: int, column: int) -> int:
        """Return the bit number of an entry: in byte ``// 8``, bit ``% 8`` from the low end."""
        if not 0 <= row <= column < self.size:
            raise ParameterError(f"({row}, {column}) is not in a triangle of size {self.size}")
        word, first, _ = self.pieces[column][row // WORD]
        return WORD * word + first + row % WORD

    def read(
        self,
        words: Words | Sequence[Words],
        column: int,
        block: int,
        out: Words,
        *,
        exact: bool = True,
    ) -> Words:
        """Return the rows of a piece, the first one lowest, in `out` or as they lie in `words`.

        Args:
            words: words of messages, an array for each word.
            column: the piece's column.
            block: the piece's number within the column.
            out: place of the rows, unless the piece is a whole word.
            exact: True to clear the bits above the piece's rows.
        """
        word, first, end = self.pieces[column][block]
        rows = np.right_shift(words[word], SHIFTS[first], out) if first else words[word]
        if end > WORD:
            rows |= words[word + 1] << SHIFTS[WORD - first]
        if exact and end != WORD:
            rows = np.bitwise_and(rows, np.uint64((1 << (end - first)) - 1), out)
        return rows

    def add(self, words: Words, column: int, block: int, rows: Words) -> None:
        """Add rows to a piece, modulo 2.

        Args:
            words: words of messages, shape (words, batch); changed in place.
            column: the piece's column.
            block: the piece's number within the column.
            rows: rows to add, the first one lowest, zero above the piece's rows; overwritten.
        """
        word, first, end = self.pieces[column][block]
        if end > WORD:
            words[word + 1] ^= rows >> SHIFTS[WORD - first]
        if first:
            np.left_shift(rows, SHIFTS[first], rows)
        np.bitwise_xor(words[word], rows, words[word])
