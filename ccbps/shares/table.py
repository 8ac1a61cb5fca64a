"""Interests that a broker keeps in lanes, and the matching of events with all of them.

The three brokers put an interest in the same lane, as they add and remove the same interests in the
same order. A digest of the heads in a block's lanes shows where they did not, before anything is
sent. Lanes of removed interests are zero, and match nothing.

A block of lanes and a batch of events are a unit of work: sums of four rows serve all events of the
batch, and all that a step reads was just written.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes
from ccbps.checks import whole
from ccbps.errors import ParameterError
from ccbps.shares.replicated import WORD, Evaluation, Shares, lanes, unpacked
from ccbps.shares.ring import Ring

BLOCK_LANES: Final = 1 << 16
"""Lanes of a block."""
BATCH_EVENTS: Final = 16
"""Events of a unit of work."""


class Block:
    """Some lanes: two shares of their interests, and their heads.

    Args:
        rows: bits of an interest.
        size: number of lanes, a multiple of 64.
        head_bytes: bytes of an interest's head.
    """

    def __init__(self, rows: int, size: int, head_bytes: int) -> None:
        self.shares = np.zeros((2, rows, size // WORD), dtype=np.uint64)
        self.heads = np.zeros((size, head_bytes), dtype=np.uint8)
        self.live = np.zeros(size, dtype=np.bool_)
        self.used = 0
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """Digest of which interest is in which lane, 32 bytes."""
        if self._digest is None:
            state = sha256(np.packbits(self.live[: self.used]).tobytes())
            state.update(self.heads[: self.used][self.live[: self.used]].tobytes())
            self._digest = state.digest()
        return self._digest

    def append(self, heads: Bytes, shares: tuple[Bytes, Bytes]) -> None:
        """Put interests into the next lanes; there are enough."""
        start, stop = self.used, self.used + len(heads)
        before = start % WORD
        first, last = start // WORD, -(-stop // WORD)
        for share, held in zip(shares, self.shares, strict=True):
            padded = np.concatenate([np.zeros((before, share.shape[1]), np.uint8), share])
            held[:, first:last] |= lanes(padded)
        self.heads[start:stop], self.live[start:stop] = heads, True
        self.used, self._digest = stop, None

    def clear(self, lane: int) -> None:
        """Remove the interest of a lane."""
        keep = ~(np.uint64(1) << np.uint64(lane % WORD))
        self.shares[:, :, lane // WORD] &= keep
        self.live[lane], self._digest = False, None

    def words(self) -> Shares:
        """Return both shares of the lanes in use, shape (rows, words)."""
        stop = -(-self.used // WORD)
        return self.shares[0, :, :stop], self.shares[1, :, :stop]


class ShareTable:
    """Interests of one broker.

    Args:
        evaluation: evaluation of the public program.
        rows: bits of an interest.
        head_bytes: bytes of an interest's head.
        block_lanes: lanes of a block, a multiple of 64; the same at all three brokers.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        rows: int,
        head_bytes: int,
        block_lanes: int = BLOCK_LANES,
    ) -> None:
        self._evaluation, self._rows, self._head_bytes = evaluation, rows, head_bytes
        self._size = whole("block_lanes", block_lanes, WORD)
        if block_lanes % WORD:
            raise ParameterError(f"block_lanes must be a multiple of {WORD}, got {block_lanes}")
        self.blocks: list[Block] = []

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(block.live)) for block in self.blocks)

    def add(self, heads: Bytes, shares: tuple[Bytes, Bytes]) -> NDArray[np.int64]:
        """Add interests, and return their lanes, shape (count,).

        Args:
            heads: heads of their messages, shape (count, bytes).
            shares: this broker's shares, 0 and 1, each of shape (count, bits).
        """
        numbers, start = [], 0
        while start < len(heads):
            if not self.blocks or self.blocks[-1].used == self._size:
                self.blocks.append(Block(self._rows, self._size, self._head_bytes))
            block = self.blocks[-1]
            at = slice(start, start + self._size - block.used)
            first = (len(self.blocks) - 1) * self._size + block.used
            block.append(heads[at], (shares[0][at], shares[1][at]))
            numbers.append(np.arange(first, first + len(heads[at])))
            start = at.stop
        return np.concatenate(numbers) if numbers else np.zeros(0, dtype=np.int64)

    def remove(self, lane: int) -> None:
        """Remove the interest of a lane.

        Raises:
            ParameterError: there is none.
        """
        number, place = divmod(whole("lane", lane, 0), self._size)
        if number >= len(self.blocks) or not self.blocks[number].live[place]:
            raise ParameterError(f"there is no interest in lane {lane}")
        self.blocks[number].clear(place)

    def match(
        self, ring: Ring, unit: int, heads: Bytes, events: tuple[Bytes, Bytes]
    ) -> tuple[Bools, int]:
        """Match events with all interests, together with the other two brokers.

        Args:
            ring: connections to the others.
            unit: number of the first unit; greater than all that the ring has evaluated.
            heads: heads of the events' messages.
            events: this broker's shares of events with whole vectors, shape (events, bits).

        Returns:
            answers, shape (events, lanes); and the number of the unit after the last one.

        Raises:
            PeerError: the brokers hold other events or interests.
            NetworkError: a connection broke.
        """
        if not self.blocks or not len(heads):
            width = sum(block.used for block in self.blocks)
            return np.zeros((len(heads), width), dtype=np.bool_), unit
        parts = []
        for rows in batches(len(heads)):
            answers = []
            batch = events[0][rows], events[1][rows]
            sent = sha256(heads[rows].tobytes()).digest()
            for number, block in enumerate(self.blocks):
                place = number.to_bytes(8, "little") + block.digest
                steps = partial(self._evaluation.steps, batch, block.words())
                words, _ = ring.evaluate(unit, sha256(sent + place).digest(), steps)
                answers.append(unpacked(words, block.used) & block.live[: block.used])
                unit += 1
            parts.append(np.concatenate(answers, axis=1))
        return np.concatenate(parts), unit


def batches(count: int) -> Iterator[slice]:
    """Yield the rows of batches of `BATCH_EVENTS` events."""
    for start in range(0, count, BATCH_EVENTS):
        yield slice(start, start + BATCH_EVENTS)
