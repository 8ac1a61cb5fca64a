"""A one-time truth table: any private function of a few bits, perfect, in two messages.

Publisher and subscriber share a uniform number rho of n bits and 2^n uniform bits m_j. The
subscriber sends ``T_j = f(j + rho) + m_j`` for every j, the publisher ``u = x + rho`` and m_u; sums
are XORs. The broker learns ``T_u + m_u = f(x)``. All other bits of T are masked by bits that nobody
sends, and u is uniform. So the messages depend on the answer and on nothing else (`simulate`).

A long table is masked in pieces, so that a publisher makes the randomness of two pieces at most.

Source: Ishai, Kushilevitz, Meldgaard, Orlandi and Paskin-Cherniavsky, TCC 2013 (one-time truth
tables).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Numbers, Words, slices
from ccbps.checks import array, whole
from ccbps.encodings.rows import PairEncoding, used_bits

MOST_BITS: Final = 20
"""Largest number of bits of an event: a table of 128 KiB."""
PIECE: Final = 1 << 12
"""Largest number of bytes of a table with randomness of their own."""
TURN_BYTES: Final = 3
"""Bytes of rho in front of each piece's mask. The first piece's count."""
BLOCK_BYTES: Final = 1 << 18
"""Bytes of tables treated together."""
BLOCK_EVENTS: Final = 1 << 9
"""Events treated together."""

Pieces: TypeAlias = Callable[[int, int, int], Bytes]
"""``pieces(start, stop, piece)``: shared randomness of one piece of these messages, uint8, shape
(stop - start, randomness_bytes). Each is asked for once, and a message's first piece first."""


_KEPT: Final = tuple(
    np.uint64(sum(1 << bit for bit in range(64) if not bit >> place & 1)) for place in range(6)
)
"""Bits of a word whose number has 0 at each place."""


class TruthTableEncoding(PairEncoding):
    """Encoders, decoder and simulator for functions of so many bits.

    A table has bit j in byte j // 8, counted from the low end.

    Attributes:
        bits: number n of bits of an event.
        pieces: number of pieces of a table.
        randomness_bytes: bytes of shared randomness of a piece.
    """

    def __init__(self, bits: int) -> None:
        self.bits = whole("bits", bits, 1, MOST_BITS)
        self.interest_bytes = max(1, (1 << bits) // 8)
        self.event_bytes = bits // 8 + 1
        self._piece = min(self.interest_bytes, PIECE)
        self.pieces = self.interest_bytes // self._piece
        self.randomness_bytes = TURN_BYTES + self._piece

    def encode_event(self, values: Numbers, pieces: Pieces, out: Bytes) -> Bytes:
        """Encode event messages.

        Args:
            values: the events as numbers of n bits, int64, shape (batch,).
            pieces: shared randomness.
            out: place of the messages, shape (batch, event_bytes).
        """
        for at in slices(len(values), BLOCK_EVENTS):
            first = pieces(at.start, at.stop, 0)
            sent = values[at] ^ self._turns(first)
            piece, place = np.divmod(sent >> 3, self._piece)
            octets = first[np.arange(len(sent)), TURN_BYTES + place]
            for row in np.flatnonzero(piece).tolist():
                mask = pieces(at.start + row, at.start + row + 1, int(piece[row]))
                octets[row] = mask[0, TURN_BYTES + place[row]]
            sent |= (octets.astype(np.int64) >> (sent & 7) & 1) << self.bits
            out[at] = _octets(sent, self.event_bytes)
        return out

    def encode_interest(self, tables: Bytes, index: Index, pieces: Pieces, out: Bytes) -> Bytes:
        """Encode interest messages.

        Args:
            tables: truth tables, shape (interests, interest_bytes), uint8.
            index: table of each message.
            pieces: shared randomness.
            out: place of the messages, shape (batch, interest_bytes).
        """
        words = np.zeros((len(tables), -(-self.interest_bytes // 8) * 8), dtype=np.uint8)
        words[:, : self.interest_bytes] = tables
        flat, count = words.view("<u8").reshape(-1), words.shape[1] // 8
        size, each = self._piece, count // self.pieces  # bytes and words of a piece
        for at in slices(len(index), BLOCK_BYTES // self.interest_bytes):
            first = index[at, None] * count
            turns = np.empty((0, 1), dtype=np.int64)
            for piece in range(self.pieces):
                mask = pieces(at.start, at.stop, piece)
                if not piece:
                    turns = self._turns(mask)[:, None]
                places = np.arange(piece * each, (piece + 1) * each) ^ (turns >> 6)
                part = flat.take(first + places)
                self._turn_words(part, turns)
                octets = part.view(np.uint8)[:, :size]
                columns = slice(piece * size, (piece + 1) * size)
                np.bitwise_xor(octets, mask[:, TURN_BYTES:], out=out[at, columns])
        if self.bits < 3:
            out &= used_bits(1 << self.bits)
        return out

    def _turn_words(self, words: Words, turns: Numbers) -> None:
        """Move bit j of each word to place j XOR the lowest bits of its row's turn."""
        room = np.empty_like(words)
        for place in range(min(self.bits, 6)):
            shift = np.uint64(1 << place)
            chosen = np.where(turns >> place & 1, _KEPT[place], np.uint64(0))
            np.right_shift(words, shift, out=room)
            room ^= words
            room &= chosen
            words ^= room
            room <<= shift
            words ^= room

    def _decode(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bools]:
        sent = _numbers(events)
        places = sent & (1 << self.bits) - 1
        octets = interests[np.arange(len(sent)), places >> 3].astype(np.int64)
        answers = (octets >> (places & 7) ^ sent >> self.bits) & 1 != 0
        stray = sent >> (self.bits + 1) != 0
        if self.bits < 3:
            stray |= interests[:, -1] > used_bits(1 << self.bits)
        return answers, stray

    def simulate(self, answers: Bools, uniform: Bytes) -> tuple[Bytes, Bytes]:
        """Make a pair of messages from the answer alone, distributed as the real ones (SIM).

        Args:
            answers: shape (batch,), bool.
            uniform: fresh uniform bytes, shape (batch, event_bytes + interest_bytes).

        Returns:
            event messages and interest messages.
        """
        array("uniform", uniform, np.uint8, (len(answers), self.event_bytes + self.interest_bytes))
        sent = _numbers(uniform[:, : self.event_bytes]) & (2 << self.bits) - 1
        table = uniform[:, self.event_bytes :].copy()
        if self.bits < 3:
            table &= used_bits(1 << self.bits)
        events = _octets(sent, self.event_bytes)
        wrong = (self.decode(events, table) != answers).astype(np.uint8)
        places = sent & (1 << self.bits) - 1
        table[np.arange(len(sent)), places >> 3] ^= wrong << (places & 7).astype(np.uint8)
        return events, table

    def _turns(self, rows: Bytes) -> Numbers:
        """Return rho of each row of a first piece."""
        return _numbers(rows[:, :TURN_BYTES]) & (1 << self.bits) - 1


def _numbers(octets: Bytes) -> Numbers:
    """Return numbers of at most 7 bytes, little-endian."""
    out = np.zeros(len(octets), dtype=np.int64)
    for place in range(octets.shape[1]):
        out |= octets[:, place].astype(np.int64) << 8 * place
    return out


def _octets(numbers: Numbers, size: int) -> Bytes:
    """Return the bytes of numbers, little-endian."""
    return numbers.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :size]
