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

from ccbps.arrays import Bools, Bytes, Index
from ccbps.checks import whole
from ccbps.errors import ParameterError
from ccbps.shares.replicated import (
    WORD,
    Evaluation,
    Masks,
    Shares,
    Steps,
    lanes,
    packed,
    unpacked,
)
from ccbps.shares.ring import Ring, Work

BLOCK_LANES: Final = 1 << 16
"""Lanes of a block."""
BATCH_EVENTS: Final = 16
"""Events of a unit of work, where there are many lanes."""
UNIT_PAIRS: Final = 1 << 16
"""Pairs of a unit of work, where there are few lanes."""
MOST_EVENTS: Final = 256
"""Most events of a unit of work."""


class Block:
    """Some lanes: two shares of their interests, their heads, and lanes of their grants.

    Args:
        rows: bits of an interest.
        size: number of lanes, a multiple of 64.
        head_bytes: bytes of an interest's head.
    """

    def __init__(self, rows: int, size: int, head_bytes: int) -> None:
        self._size = size
        self.shares = np.zeros((2, rows, 0), dtype=np.uint64)
        self.heads = np.zeros((0, head_bytes), dtype=np.uint8)
        self.live = np.zeros(0, dtype=np.bool_)
        self.grants = np.zeros(0, dtype=np.int32)
        self.used = 0
        self._digest: bytes | None = None

    def _grow(self, lanes_: int) -> None:
        """Make room for so many lanes, or more: a table may have one interest, or a million."""
        have = len(self.live)
        if lanes_ > have:
            more = min(self._size, max(2 * have, -(-lanes_ // WORD) * WORD)) - have
            self.shares = np.concatenate(
                [self.shares, np.zeros((*self.shares.shape[:2], more // WORD), np.uint64)], axis=2
            )
            head_bytes = self.heads.shape[1]
            self.heads = np.concatenate([self.heads, np.zeros((more, head_bytes), np.uint8)])
            self.live = np.concatenate([self.live, np.zeros(more, np.bool_)])
            self.grants = np.concatenate([self.grants, np.zeros(more, np.int32)])

    @property
    def digest(self) -> bytes:
        """Digest of which interest is in which lane, 32 bytes."""
        if self._digest is None:
            state = sha256(np.packbits(self.live[: self.used]).tobytes())
            state.update(self.heads[: self.used][self.live[: self.used]].tobytes())
            self._digest = state.digest()
        return self._digest

    def fill(self) -> None:
        """Count all lanes as used, as a block follows."""
        self._grow(self._size)
        self.used, self._digest = self._size, None

    def put(
        self, places: Index, heads: Bytes, shares: tuple[Bytes, Bytes], grants: Index | None
    ) -> None:
        """Put interests into lanes, in place of what is there."""
        start, stop = int(places.min()) // WORD * WORD, int(places.max()) + 1
        self._grow(stop)
        words = slice(start // WORD, -(-stop // WORD))
        bits = np.zeros((stop - start, shares[0].shape[1]), dtype=np.uint8)
        bits[places - start] = 1
        keep = ~lanes(bits[:, :1])
        for share, held in zip(shares, self.shares, strict=True):
            bits[places - start] = share
            held[:, words] &= keep
            held[:, words] |= lanes(bits)
        self.heads[places], self.live[places] = heads, True
        self.grants[places] = 0 if grants is None else grants
        self.used, self._digest = max(self.used, stop), None

    def clear(self, places: Index) -> None:
        """Remove the interests of lanes. Lanes without one stay as they are."""
        places = places[places < len(self.live)]
        if not len(places):
            return
        start, stop = int(places.min()) // WORD * WORD, int(places.max()) + 1
        gone = np.zeros((stop - start, 1), dtype=np.uint8)
        gone[places - start] = 1
        self.shares[:, :, start // WORD : -(-stop // WORD)] &= ~lanes(gone)
        self.live[places], self._digest = False, None

    def granted(self, results: tuple[Bytes, Bytes]) -> Shares:
        """Return shares of the results of the grant of each lane in use, shape (events, words).

        Args:
            results: two shares of the results of all grants, 0 and 1, shape (events, grants).
        """
        own = self.grants[: self.used]
        first, second = (packed(np.take(share, own, axis=1)) for share in results)
        return first, second

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

    @property
    def digest(self) -> bytes:
        """Digest of which interest is in which lane, 32 bytes."""
        return sha256(b"".join(block.digest for block in self.blocks)).digest()

    @property
    def used(self) -> int:
        """Number of the lane after the last one that was ever used."""
        return (len(self.blocks) - 1) * self._size + self.blocks[-1].used if self.blocks else 0

    def add(self, heads: Bytes, shares: tuple[Bytes, Bytes]) -> Index:
        """Add interests in lanes that were never used, and return these, shape (count,).

        Args:
            heads: heads of their messages, shape (count, bytes).
            shares: this broker's shares, 0 and 1, each of shape (count, bits).
        """
        chosen = self.used + np.arange(len(heads))
        self.put(chosen, heads, shares)
        return chosen

    def put(
        self,
        chosen: Index,
        heads: Bytes,
        shares: tuple[Bytes, Bytes],
        grants: Index | None = None,
    ) -> None:
        """Put interests into lanes, in place of what is there.

        Args:
            chosen: lane of each interest, shape (count,); all different.
            heads: heads of their messages, shape (count, bytes).
            shares: this broker's shares, 0 and 1, each of shape (count, bits).
            grants: lane of each interest's grant in the table of grants; None where there are none.
        """
        numbers, places = np.divmod(chosen, self._size)
        while len(numbers) and len(self.blocks) <= numbers.max():
            if self.blocks:
                self.blocks[-1].fill()
            self.blocks.append(Block(self._rows, self._size, self._head_bytes))
        for number in np.unique(numbers):
            at = np.flatnonzero(numbers == number)
            own = None if grants is None else grants[at]
            self.blocks[number].put(places[at], heads[at], (shares[0][at], shares[1][at]), own)

    def remove(self, chosen: Index) -> None:
        """Remove the interests of lanes, shape (count,). Lanes without one stay as they are."""
        numbers, places = np.divmod(chosen, self._size)
        for number in np.unique(numbers):
            if 0 <= number < len(self.blocks):
                self.blocks[number].clear(places[numbers == number])

    @property
    def heads(self) -> Bytes:
        """Heads of the interests in all lanes that were ever used, shape (lanes, head_bytes)."""
        none = np.zeros((0, self._head_bytes), dtype=np.uint8)
        return np.concatenate([none, *(block.heads[: block.used] for block in self.blocks)])

    @property
    def live(self) -> Bools:
        """Lanes that have an interest, of all that were ever used, shape (lanes,)."""
        none = np.zeros(0, dtype=np.bool_)
        return np.concatenate([none, *(block.live[: block.used] for block in self.blocks)])

    def match(
        self,
        ring: Ring,
        unit: int,
        heads: Bytes,
        events: tuple[Bytes, Bytes],
        granted: tuple[Bytes, Bytes] | None = None,
    ) -> tuple[Bools, int]:
        """Match events with all interests, together with the other two brokers.

        Args:
            ring: connections to the others.
            unit: number of the first unit; greater than all that the ring has evaluated.
            heads: heads of the events' messages.
            events: this broker's shares of events with whole vectors, shape (events, bits).
            granted: this broker's shares of the results of grants, from `evaluate`.

        Returns:
            answers, shape (events, lanes); and the number of the unit after the last one.

        Raises:
            PeerError: the brokers hold other events or interests.
            NetworkError: a connection broke.
        """
        out = np.zeros((len(heads), self.used), dtype=np.bool_)
        places, work = self._work(unit, heads, events, granted=granted)
        for (rows, at, block), (words, _) in zip(places, ring.evaluate_all(work), strict=True):
            answers = unpacked(words, block.used)
            np.logical_and(answers, block.live[: block.used], out=out[rows, at])
        return out, unit + len(work)

    def evaluate(
        self, ring: Ring, unit: int, heads: Bytes, events: tuple[Bytes, Bytes]
    ) -> tuple[tuple[Bytes, Bytes], int]:
        """Match events with all interests, together with the other two, and learn no answers.

        Args:
            ring: connections to the others.
            unit: number of the first unit; greater than all that the ring has evaluated.
            heads: heads of the events' messages.
            events: this broker's shares of events with whole vectors, shape (events, bits).

        Returns:
            this broker's shares of the answers, 0 and 1, each of shape (events, lanes); and the
            number of the unit after the last one.

        Raises:
            PeerError: the brokers hold other events or interests.
            NetworkError: a connection broke.
        """
        out = np.zeros((2, len(heads), self.used), dtype=np.uint8)
        places, work = self._work(unit, heads, events, opened=False)
        for (rows, at, block), shares in zip(places, ring.evaluate_all(work), strict=True):
            for words, bits in zip(shares, out, strict=True):
                bits[rows, at] = unpacked(words, block.used)
        return (out[0], out[1]), unit + len(work)

    def times_keys(
        self,
        ring: Ring,
        unit: int,
        heads: Bytes,
        events: tuple[Bytes, Bytes],
        keys: tuple[Bytes, Bytes],
        granted: tuple[Bytes, Bytes] | None = None,
    ) -> tuple[Bytes, int]:
        """Multiply answers by keys of events, together with the other two brokers.

        Args:
            ring: connections to the others.
            unit: number of the first unit; greater than all that the ring has evaluated.
            heads: heads of the events' messages.
            events: this broker's shares of events with whole vectors, shape (events, bits).
            keys: this broker's shares of a key of each event, shape (events, bytes).
            granted: this broker's shares of the results of grants, from `evaluate`.

        Returns:
            this broker's shares of the products, masked, shape (events, lanes, bytes); and the
            number of the unit after the last one.

        Raises:
            PeerError: the brokers hold other events or interests.
            NetworkError: a connection broke.
        """
        out = np.zeros((len(heads), self.used, keys[0].shape[1]), dtype=np.uint8)
        places, work = self._work(unit, heads, events, keys=keys, granted=granted)
        for (rows, at, block), (words, _) in zip(places, ring.evaluate_all(work), strict=True):
            out[rows, at] = words.astype("<u8", copy=False)[:, : block.used].view(np.uint8)
        return out, unit + len(work)

    def _work(
        self,
        unit: int,
        heads: Bytes,
        events: tuple[Bytes, Bytes],
        *,
        opened: bool = True,
        keys: tuple[Bytes, Bytes] | None = None,
        granted: tuple[Bytes, Bytes] | None = None,
    ) -> tuple[list[tuple[slice, slice, Block]], list[Work]]:
        """Return the rows, lanes and block of each unit of work, and the units."""
        places: list[tuple[slice, slice, Block]] = []
        work: list[Work] = []
        for rows in batches(len(heads), self.used):
            sent = sha256(heads[rows].tobytes()).digest()
            batch, start = (events[0][rows], events[1][rows]), 0
            some, allowed = _rows_of(keys, rows), _rows_of(granted, rows)
            for number, block in enumerate(self.blocks):
                digest = sha256(sent + number.to_bytes(8, "little") + block.digest).digest()
                steps = partial(self._steps, block, batch, some, allowed, opened)
                places.append((rows, slice(start, start + block.used), block))
                work.append(Work(unit + len(work), digest, steps))
                start += block.used
        return places, work

    def _steps(
        self,
        block: Block,
        events: tuple[Bytes, Bytes],
        keys: tuple[Bytes, Bytes] | None,
        results: tuple[Bytes, Bytes] | None,
        opened: bool,
        masks: Masks,
    ) -> Steps:
        """Begin the evaluation of a unit, and look up the grants of its lanes then only."""
        granted = None if results is None else block.granted(results)
        return self._evaluation.steps(
            events, block.words(), masks, opened=opened, keys=keys, granted=granted
        )


def _rows_of(shares: tuple[Bytes, Bytes] | None, rows: slice) -> tuple[Bytes, Bytes] | None:
    return None if shares is None else (shares[0][rows], shares[1][rows])


def batches(count: int, lanes: int) -> Iterator[slice]:
    """Yield the rows of batches of events.

    They have `BATCH_EVENTS` events, or more where there are few lanes: a unit waits for neighbours
    as often as it has layers, however small it is.
    """
    size = max(BATCH_EVENTS, min(MOST_EVENTS, UNIT_PAIRS // max(1, lanes)))
    for start in range(0, count, size):
        yield slice(start, start + size)
