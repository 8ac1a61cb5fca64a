"""Interests that a broker keeps in lanes, and the matching of events with all of them.

The three brokers put an interest in the same lane, as they add and remove the same interests in the
same order. A digest of the heads in a block's lanes reveals differences before anything is sent.
Lanes of removed interests are zero, and match nothing.

A block of lanes and a batch of events are a unit of work: sums of four rows serve all events of the
batch, and each step reads data that was just written. Small blocks, also of several tables, are
evaluated as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, slices
from ccbps.checks import whole
from ccbps.errors import ParameterError
from ccbps.shares.event_check import EventCheck
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
from ccbps.shares.ring import Exchange, Ring, Work

BLOCK_LANES: Final = 1 << 16
"""Lanes of a block."""
BATCH_EVENTS: Final = 16
"""Events of a unit of work, where there are many lanes."""
UNIT_PAIRS: Final = 1 << 16
"""Pairs of a unit of work, where there are few lanes."""
MOST_EVENTS: Final = 256
"""Largest number of events of a unit of work."""
_SMALL: Final = 64
"""Words of a block up to which it is copied, to be evaluated together with others."""


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
        """Make room for `lanes_` lanes or more: a table may have one interest, or a million."""
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

    Attributes:
        evaluation: evaluation of the public program.

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
        self.evaluation, self._rows, self._head_bytes = evaluation, rows, head_bytes
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

    @property
    def words(self) -> int:
        """Words of lanes of a block at the most."""
        return self._size // WORD


@dataclass(frozen=True)
class Batch:
    """Events that are matched with the interests of some tables.

    Attributes:
        heads: heads of the events' messages, shape (events, bytes).
        events: this broker's shares of the events with whole vectors, shape (events, bits).
        tables: the tables, the same ones in the same order at all three brokers.
        check: check of the events; None for events that were checked, or whose answers nobody
            learns.
        grants: grants of the interests' clients; None where clients need none. They are evaluated
            at the same time as the interests.
    """

    heads: Bytes
    events: tuple[Bytes, Bytes]
    tables: Sequence[ShareTable]
    check: EventCheck | None = None
    grants: ShareTable | None = None

    @property
    def lanes(self) -> int:
        """Lanes of all tables together."""
        return sum(table.used for table in self.tables)

    def match(self, ring: Ring, unit: int) -> tuple[Bools, int]:
        """Match the events with all interests, together with the other two brokers.

        Args:
            ring: connections to the others.
            unit: number of the first unit; greater than all that the ring has evaluated.

        Returns:
            answers, shape (events, lanes), with the tables side by side; and the number of the unit
            after the last one. Events that are refused match nothing.

        Raises:
            PeerError: the brokers hold other events or interests.
            NetworkError: a connection broke.
        """
        out = np.zeros((len(self.heads), self.lanes), dtype=np.bool_)
        work, places = self._work(unit)
        for rows, pieces, (words, _) in self._evaluated(ring, work, places):
            answers = unpacked(words, WORD * words.shape[1])
            for piece in pieces:
                live = piece.block.live[: piece.block.used]
                out[rows, piece.lanes] = answers[:, piece.places] & live
        return out, unit + len(work)

    def times_keys(self, ring: Ring, unit: int, keys: tuple[Bytes, Bytes]) -> tuple[Bytes, int]:
        """Multiply answers by keys of events, together with the other two brokers.

        Args:
            ring: connections to the others.
            unit: number of the first unit; greater than all that the ring has evaluated.
            keys: this broker's shares of a key of each event, shape (events, bytes).

        Returns:
            this broker's shares of the products, masked, shape (events, lanes, bytes), with the
            tables side by side and zeros for events that are refused; and the number of the unit
            after the last one.

        Raises:
            PeerError: the brokers hold other events or interests.
            NetworkError: a connection broke.
        """
        out = np.zeros((len(self.heads), self.lanes, keys[0].shape[1]), dtype=np.uint8)
        work, places = self._work(unit, keys)
        for rows, pieces, (words, _) in self._evaluated(ring, work, places):
            products = words.astype("<u8", copy=False).view(np.uint8)
            for piece in pieces:
                out[rows, piece.lanes] = products[:, piece.places]
        return out, unit + len(work)

    def _work(
        self, unit: int, keys: tuple[Bytes, Bytes] | None = None
    ) -> tuple[list[Work], list[_Place]]:
        """Return all units of work, and the places of those that match interests: the last ones.

        Interests wait for the check, and for grants. So both stand in front.
        """
        work: list[Work] = []
        if self.check is not None:
            # An empty table has no units of its own that would tell that another broker's is not.
            digests = b"".join(table.digest for table in self.tables)
            digest = sha256(digests + self.heads.tobytes()).digest()
            work.append(Work(unit, digest, self.check.begin))
        granted = None
        if self.grants is not None and self.lanes:
            granted = _Granted(Batch(self.heads, self.events, [self.grants]), unit + len(work))
            work += granted.work
        matching, places = self._units(unit + len(work), keys=keys, granted=granted)
        return work + matching, places

    def _units(
        self,
        unit: int,
        *,
        opened: bool = True,
        keys: tuple[Bytes, Bytes] | None = None,
        granted: _Granted | None = None,
    ) -> tuple[list[Work], list[_Place]]:
        """Return units of work, each for some events and blocks."""
        work: list[Work] = []
        places: list[_Place] = []
        groups = [*_groups(self.tables)]
        for rows in batches(len(self.heads), self.lanes):
            sent = sha256(self.heads[rows].tobytes()).digest()
            for pieces in groups:
                state = sha256(sent)
                for piece in pieces:
                    state.update(piece.lanes.start.to_bytes(8, "little") + piece.block.digest)
                begin = partial(self._begin, rows, pieces, opened, keys, granted)
                work.append(Work(unit + len(work), state.digest(), begin))
                places.append((rows, pieces))
        return work, places

    def _evaluated(
        self, ring: Ring, work: list[Work], places: list[_Place]
    ) -> Iterator[tuple[slice | Index, list[_Piece], Shares]]:
        """Yield the good events of each unit of work, its blocks, and what came of it."""
        # Nothing comes of the check, and of grants, which end in any order.
        results = (one for one in ring.evaluate_all(work) if one is not None)
        for (rows, pieces), shares in zip(places, results, strict=True):
            refused = None if self.check is None else self.check.refused
            good: slice | Index = rows
            if refused is not None and refused[rows].any():
                good = rows.start + np.flatnonzero(~refused[rows])
            yield good, pieces, shares

    def _begin(
        self,
        rows: slice,
        pieces: list[_Piece],
        opened: bool,
        keys: tuple[Bytes, Bytes] | None,
        granted: _Granted | None,
        masks: Masks,
    ) -> Steps:
        """Begin a unit of work."""
        events = self.events[0][rows], self.events[1][rows]
        return self.tables[0].evaluation.steps(
            events,
            _side_by_side([piece.block.words() for piece in pieces]),
            masks,
            opened=opened,
            granted=None if granted is None else partial(granted.of, rows, pieces),
            good=None if self.check is None else self.check.good(rows),
            keys=None if keys is None else (keys[0][rows], keys[1][rows]),
        )


class _Granted:
    """Results of all grants for a batch of events, which come while interests are evaluated.

    Attributes:
        work: units of work that evaluate the grants.

    Args:
        batch: the events, with the table of grants.
        unit: number of the first unit.
    """

    def __init__(self, batch: Batch, unit: int) -> None:
        self._shares = np.zeros((2, len(batch.heads), batch.lanes), dtype=np.uint8)
        work, places = batch._units(unit, opened=False)
        self.work = [
            one._replace(begin=partial(self._run, one.begin, *place))
            for one, place in zip(work, places, strict=True)
        ]
        self._left = len(work)

    def _run(
        self, begin: Callable[[Masks], Any], rows: slice, pieces: list[_Piece], masks: Masks
    ) -> Exchange[None]:
        """Evaluate a unit, and keep this broker's shares of the results, which nobody learns."""
        shares = yield from begin(masks)
        for words, bits in zip(shares, self._shares, strict=True):
            results = unpacked(words, WORD * words.shape[1])
            for piece in pieces:
                bits[rows, piece.lanes] = results[:, piece.places]
        self._left -= 1

    def of(self, rows: slice, pieces: list[_Piece]) -> Shares | None:
        """Return shares of the results for lanes of some blocks, or None until all are there.

        All, since the results of units must come in the same order at all three brokers.
        """
        if self._left:
            return None
        results = self._shares[0][rows], self._shares[1][rows]
        return _side_by_side([piece.block.granted(results) for piece in pieces])


def _side_by_side(parts: Sequence[Shares]) -> Shares:
    """Return shares of several blocks as those of one."""
    first, second = (
        shares[0] if len(shares) == 1 else np.concatenate(shares, axis=1)
        for shares in zip(*parts, strict=True)
    )
    return first, second


class _Piece(NamedTuple):
    """A block in a unit of work.

    Attributes:
        block: the block.
        lanes: its lanes among those of all tables.
        places: its lanes among those of the unit.
    """

    block: Block
    lanes: slice
    places: slice


_Place: TypeAlias = tuple[slice, list[_Piece]]
"""Events and blocks of a unit of work."""


def _groups(tables: Sequence[ShareTable]) -> Iterator[list[_Piece]]:
    """Yield blocks that are evaluated as one: a larger one, or small ones up to a block's size."""
    group: list[_Piece] = []
    lane = taken = widest = 0
    for table in tables:
        for block in table.blocks:
            words = -(-block.used // WORD)
            if group and (max(words, widest) > _SMALL or taken + words > table.words):
                yield group
                group, taken = [], 0
            lanes = slice(lane, lane + block.used)
            group.append(_Piece(block, lanes, slice(WORD * taken, WORD * taken + block.used)))
            lane, taken, widest = lanes.stop, taken + words, words
    if group:
        yield group


def batches(count: int, lanes: int) -> Iterator[slice]:
    """Yield the rows of batches of events.

    They have `BATCH_EVENTS` events, or more where there are few lanes: a unit waits for neighbours
    as often as it has layers, however small it is.
    """
    size = max(BATCH_EVENTS, min(MOST_EVENTS, UNIT_PAIRS // max(1, lanes)))
    return slices(count, size)
