"""The formula encoding's passes over rows of bytes, in NumPy, a block at a time."""

from __future__ import annotations

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Words
from ccbps.encodings.bit_planes import ArrayPlanes
from ccbps.encodings.straight_line import StraightLine

__all__ = ["ArrayDecoder", "ArrayEncoder"]


class ArrayEncoder:
    """One party's encoder; see `ccbps.encodings.compiled_rows.CompiledEncoder`."""

    def __init__(
        self, program: StraightLine, random_bytes: int, mask_bits: int, batch: int
    ) -> None:
        self._planes = ArrayPlanes(program, batch)
        self.rows = self._planes.rows
        self._joined = np.zeros((self.rows, program.inputs), dtype=np.uint64)
        self._made = np.empty((self.rows, program.outputs), dtype=np.uint64)
        self._random_bytes = random_bytes
        self._whole, self._rest = divmod(mask_bits, 8)

    def encode(self, random: Bytes, inputs: Words, index: Index, out: Bytes) -> None:
        """Rows of randomness, and of input words by `index`, to messages."""
        count, drawn, whole = len(out), self._random_bytes, self._whole
        joined, made = self._joined[:count], self._made[:count]
        joined.view(np.uint8)[:, :drawn] = random[:, :drawn]
        np.take(inputs, index, axis=0, out=joined[:, -(-drawn // 8) :])
        self._planes.run(joined, made)
        mask, message = random[:, drawn:], made.view(np.uint8)[:, : out.shape[1]]
        np.bitwise_xor(message[:, :whole], mask[:, :whole], out=out[:, :whole])
        out[:, whole:] = message[:, whole:]
        if self._rest:
            out[:, whole] ^= mask[:, whole] & np.uint8((1 << self._rest) - 1)


class ArrayDecoder:
    """REC; see `ccbps.encodings.compiled_rows.CompiledDecoder`."""

    def __init__(
        self,
        program: StraightLine,
        shared: int,
        event_bytes: int,
        interest_bytes: int,
        batch: int,
    ) -> None:
        self._planes = ArrayPlanes(program, batch)
        self.rows = self._planes.rows
        self._joined = np.zeros((self.rows, program.inputs), dtype=np.uint64)
        self._shared = 8 * shared
        self._event, self._interest = event_bytes - self._shared, interest_bytes - self._shared

    def decode(self, events: Bytes, interests: Bytes, skip: int, out: Bools) -> None:
        """Answers of messages behind `skip` bytes."""
        joined = self._joined[: len(out)]
        bits, stop = joined.view(np.uint8), skip + self._shared
        second = self._shared + 8 * -(-self._event // 8)
        both = bits[:, : self._shared]
        np.bitwise_xor(events[:, skip:stop], interests[:, skip:stop], out=both)
        bits[:, self._shared : self._shared + self._event] = events[:, stop:]
        bits[:, second : second + self._interest] = interests[:, stop:]
        self._planes.run(joined, out)
