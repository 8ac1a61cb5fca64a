"""The formula encoding's passes over rows of bytes, in NumPy, a block at a time."""

from __future__ import annotations

import threading
from typing import Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Words
from ccbps.encodings.rows import Decoding, copy_rows, used_bits
from ccbps.encodings.straight_line.array_planes import ArrayPlanes, plane_words
from ccbps.encodings.straight_line.program import WORD, StraightLine

_thread: Final = threading.local()


class ArrayEncoder:
    """One party's encoder; see `ccbps.encodings.formula.compiled_rows.CompiledEncoder`."""

    def __init__(
        self, program: StraightLine, random_bytes: int, mask_bits: int, batch: int
    ) -> None:
        self._planes = ArrayPlanes(program, batch)
        self.rows = self._planes.rows
        self._joined = np.zeros((self.rows, program.inputs), dtype=np.uint64)
        self._made = np.empty((self.rows, program.outputs), dtype=np.uint64)
        self._masks = np.zeros_like(self._made)
        self._random_bytes, self._mask_bits = random_bytes, mask_bits

    def encode(self, random: Bytes, inputs: Words, index: Index, out: Bytes) -> None:
        """Rows of randomness, and of input words by `index`, to messages."""
        count, drawn, masked = len(out), self._random_bytes, -(-self._mask_bits // 8)
        joined, made, masks = self._joined[:count], self._made[:count], self._masks[:count]
        copy_rows(random[:, :drawn], joined.view(np.uint8)[:, :drawn])
        np.take(inputs, index, axis=0, out=joined[:, -(-drawn // 8) :])
        self._planes.run(self._joined, made)
        if masked:
            mask = masks.view(np.uint8)[:, :masked]
            copy_rows(random[:, drawn : drawn + masked], mask)
            mask[:, -1] &= used_bits(self._mask_bits)
            np.bitwise_xor(made, masks, out=made)
        copy_rows(made.view(np.uint8)[:, : out.shape[1]], out)


class ArrayDecoder:
    """REC; see `ccbps.encodings.formula.compiled_rows.CompiledDecoder`."""

    @classmethod
    def held(cls, of: Decoding, batch: int) -> ArrayDecoder:
        """The decoder of this program that the thread used last, if it suits the batch, or another.

        To ask the system for its few megabytes anew, page by page, takes a third of the time of a
        batch of 10,000. Nothing secret is kept: the broker has the messages.
        """
        found: ArrayDecoder | None = getattr(_thread, "decoder", None)
        rows = WORD * plane_words(of.program, batch)
        if found is None or found._program is not of.program or found.rows != rows:
            found = _thread.decoder = cls(of, batch)
        return found

    def __init__(self, of: Decoding, batch: int) -> None:
        program, words, own, self._widths, self._unused = of
        self._program, self._planes = program, ArrayPlanes(program, batch)
        self.rows = self._planes.rows
        self._joined = np.zeros((self.rows, program.inputs), dtype=np.uint64)
        self._other = np.zeros_like(self._joined)
        self._sum, (self._apart, self._start) = 8 * words, own

    def decode(
        self, events: Bytes, interests: Bytes, heads: Bytes, answers: Bools, stray: Bools
    ) -> None:
        """Answers of messages behind their heads; gathers these, and finds stray bits."""
        skip = heads.shape[2]
        joined, other = self._joined[: len(answers)], self._other[: len(answers)]
        bits = joined.view(np.uint8)
        if joined.shape[1] > self._sum // 8:
            own = (events, interests)[self._apart][:, skip + self._start :]
            copy_rows(own, bits[:, self._sum : self._sum + own.shape[1]])
        # Copied, to be added as whole words: most messages begin anywhere. The longer one writes
        # over all that is left of earlier rows.
        sides = (events, interests) if self._widths[0] > self._widths[1] else (interests, events)
        for rows, into in zip(sides, (bits, other.view(np.uint8)), strict=True):
            copy_rows(rows[:, skip:], into[:, : rows.shape[1] - skip])
        np.bitwise_xor(joined, other, out=joined)
        self._planes.run(self._joined, answers)
        # All that is read of a message is read while it is in the cache.
        for rows, into in zip((events, interests), heads, strict=True):
            copy_rows(rows[:, :skip], into)
        last = (events[:, -1] & self._unused[0]) | (interests[:, -1] & self._unused[1])
        np.not_equal(last, 0, out=stray)
