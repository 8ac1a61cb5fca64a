"""AES-256 for rows of one or many keys: the key stream by round, and tags of rows.

Round r reads blocks r*n .. r*n + n - 1, where n is the number of 16-byte blocks that a round needs,
so any round can be reached directly. Consecutive rounds of one key cost one pass of the cipher.
For rows in no particular order the counters are written out and enciphered key by key.

Tags are CBC-MAC. Hazard: that is a pseudorandom function for rows of one length under a key only.

Sources: NIST SP 800-38A (CTR); Bellare, Kilian and Rogaway, JCSS 61(3), 2000 (CBC-MAC).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps import primitives
from ccbps.arrays import Bytes, Rounds

BLOCK: Final = 16
KEPT_CONTEXTS: Final = 1 << 12
"""Ciphers that one reader keeps ready: about 1 KiB each."""
SHORT_RUN: Final = 4
"""Runs of fewer consecutive rounds are enciphered together, block by block."""
_NOTHING: Final = memoryview(b""), np.empty(0, dtype=np.uint8)


class StreamKey:
    """A key of AES-256 in counter mode.

    To make a context takes longer than to encipher a short message, so closed contexts are kept.

    Hazard: a context has a place in the stream. It belongs to one reader until it is closed.

    Attributes:
        algorithm: the cipher and its key.
    """

    __slots__ = ("_closed", "algorithm")

    def __init__(self, key: bytes) -> None:
        self.algorithm = primitives.AES256(key)
        self._closed: list[primitives.CipherContext] = []

    def open(self, block: int) -> primitives.CipherContext:
        """Return a context that enciphers from a block of the stream on, for one reader."""
        counter = (block % (1 << 128)).to_bytes(BLOCK, "big")
        try:
            context = self._closed.pop()  # in one step: no other thread gets the same one
        except IndexError:
            return primitives.Cipher(self.algorithm, primitives.CTR(counter)).encryptor()
        context.reset_nonce(counter)
        return context

    def close(self, context: primitives.CipherContext) -> None:
        """Take a context back from its reader."""
        self._closed.append(context)


class KeyStream:
    """The key stream of a batch, handed out in order: rows start .. stop - 1, each once.

    Args:
        keys: the keys.
        index: place of each row's key, shape (batch,); None where there is one key.
        rounds: round numbers, shape (batch,).
        width: bytes per round.
    """

    def __init__(
        self,
        keys: list[StreamKey],
        index: NDArray[np.intp] | None,
        rounds: Rounds,
        width: int,
    ) -> None:
        self._keys, self._index = keys, index
        self._rounds, self._width = rounds, width
        self._blocks = -(-width // BLOCK)
        # A run is a stretch of rows with one key and consecutive rounds. These rows end one.
        self._breaks: NDArray[np.intp] | None = None
        if len(rounds) > 1:
            apart = rounds[1:] - rounds[:-1] != 1
            apart |= rounds[1:] == 0  # 2^64 - 1 to 0 is no step: counters do not wrap around
            if index is not None:
                apart |= index[1:] != index[:-1]
            self._breaks = np.flatnonzero(apart) + 1
        self._open: tuple[int, primitives.CipherContext] | None = None
        self._enciphers: dict[int, primitives.CipherContext] = {}
        self._zeros, self._buffer = _NOTHING

    def __call__(self, start: int, stop: int) -> Bytes:
        stride = self._blocks * BLOCK
        size = (stop - start) * stride
        if len(self._zeros) < size:
            self._zeros = memoryview(bytes(size))
            self._buffer = np.empty(size + BLOCK - 1, dtype=np.uint8)
        breaks: list[int] = []
        if self._breaks is not None:
            first, last = np.searchsorted(self._breaks, [start, stop])
            breaks = self._breaks[first:last].tolist()
            if breaks[:1] == [start]:
                self._open = None
                del breaks[0]
        if not breaks:
            self._run(start, stop, 0)
        elif len(breaks) >= (stop - start) // SHORT_RUN:
            self._scattered(start, stop)
        else:
            for low, high in pairwise([start, *breaks, stop]):
                if low > start:
                    self._open = None
                self._run(low, high, (low - start) * stride)
        return self._buffer[:size].reshape(stop - start, stride)[:, : self._width]

    def _run(self, low: int, high: int, offset: int) -> None:
        """Encipher rows of one key with consecutive rounds, from the cipher's place if it fits."""
        key = self._keys[0 if self._index is None else self._index[low]]
        if self._open is None or self._open[0] != low:
            context = key.open(int(self._rounds[low]) * self._blocks)
        else:
            context = self._open[1]
        size = (high - low) * self._blocks * BLOCK
        context.update_into(self._zeros[:size], self._buffer[offset:].data)
        self._open = high, context
        if high == len(self._rounds) and self._index is None:  # not one for each of many pairs
            self._open = None
            key.close(context)

    def _scattered(self, start: int, stop: int) -> None:
        """Write out the counter blocks of rows in any order and encipher them, key by key."""
        rounds = self._rounds[start:stop]
        index = np.zeros(len(rounds), np.intp) if self._index is None else self._index[start:stop]
        stride = self._blocks * BLOCK
        rows = self._buffer[: (stop - start) * stride].reshape(-1, stride)
        order = np.argsort(index, kind="stable")
        counters = _counter_blocks(rounds[order], self._blocks).view(np.uint8).reshape(-1, stride)
        stream = np.empty(len(order) * stride + BLOCK - 1, dtype=np.uint8)
        for low, high in _stretches(index[order]):
            context = self._encipher(int(index[order[low]]))
            context.update_into(counters[low:high].data, stream[low * stride :].data)
        rows[order] = stream[: len(order) * stride].reshape(-1, stride)
        self._open = None

    def _encipher(self, key: int) -> primitives.CipherContext:
        """Return AES of single blocks. It has no state, so a key that occurs again reuses it."""
        context = self._enciphers.get(key)
        if context is None:
            if len(self._enciphers) >= KEPT_CONTEXTS:
                self._enciphers.clear()
            context = primitives.Cipher(self._keys[key].algorithm, primitives.ECB()).encryptor()
            self._enciphers[key] = context
        return context


def row_tags(
    ciphers: list[primitives.AES256], index: NDArray[np.intp] | None, rows: Bytes
) -> Bytes:
    """Return the CBC-MAC of each row under its key, shape (batch, 16).

    Args:
        ciphers: AES keys.
        index: place of each row's key, shape (batch,); None where there is one key.
        rows: bytes, shape (batch, a multiple of 16); rows of one key always have that width.
    """
    owner = np.zeros(len(rows), dtype=np.intp) if index is None else index
    order = None if (owner[1:] >= owner[:-1]).all() else np.argsort(owner, kind="stable")
    if order is not None:
        owner, rows = owner[order], rows[order]
    contexts = [
        (low, high, primitives.Cipher(ciphers[owner[low]], primitives.ECB()).encryptor())
        for low, high in _stretches(owner)
    ]
    size, blocks = len(rows) * BLOCK, rows.reshape(len(rows), rows.shape[1] // BLOCK, BLOCK)
    state = np.ascontiguousarray(blocks[:, 0])
    rooms = [np.empty(size + BLOCK - 1, dtype=np.uint8) for _ in range(2)]
    for place in range(blocks.shape[1]):
        if place:
            state ^= blocks[:, place]
        room = rooms[place % 2]
        for low, high, context in contexts:
            context.update_into(state[low:high].data, room[low * BLOCK :].data)
        state = room[:size].reshape(-1, BLOCK)
    if order is None:
        return state
    tags = np.empty_like(state)
    tags[order] = state
    return tags


def _stretches(owner: NDArray[np.intp]) -> Iterable[tuple[int, int]]:
    """Return the stretches [low, high) of equal neighbours."""
    return pairwise([*np.flatnonzero(np.diff(owner, prepend=-1)).tolist(), len(owner)])


def _counter_blocks(rounds: Rounds, blocks: int) -> NDArray[np.uint64]:
    """Return the 128-bit big-endian numbers round * blocks + j, shape (batch, blocks, 2)."""
    half, low_half = np.uint64(32), np.uint64(0xFFFFFFFF)
    factor = np.uint64(blocks)
    carried = (rounds >> half) * factor + ((rounds & low_half) * factor >> half)
    low = (rounds * factor)[:, None] + np.arange(blocks, dtype=np.uint64)
    high = (carried >> half)[:, None] + (low < (rounds * factor)[:, None])
    return np.ascontiguousarray(np.stack([high, low], axis=-1).astype(">u8"))
