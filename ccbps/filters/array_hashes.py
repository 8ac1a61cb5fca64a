"""The filters' hashes in NumPy: all keys of a column go through their blocks together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ccbps.arrays import Index, Words
from ccbps.filters.keys import KeyBytes

C1: Final = np.uint64(0x87C37B91114253D5)
C2: Final = np.uint64(0x4CF5AD432745937F)
AT_ONCE: Final = 1 << 12
"""Keys whose words fit into the cache."""


def parts(keys: KeyBytes) -> Iterator[tuple[slice, KeyBytes]]:
    """Keys in parts, each with its place."""
    for start in range(0, len(keys), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        yield some, KeyBytes(keys.data, keys.offsets[start : start + AT_ONCE + 1])


def _blocks(keys: KeyBytes, width: int) -> Iterator[tuple[Index, Index]]:
    """For each block of `width` bytes: keys that have it whole, and where it lies."""
    starts, lengths = keys.offsets[:-1], np.diff(keys.offsets)
    order = np.argsort(-lengths, kind="stable")
    whole = lengths[order] // width
    for block in range(int(whole[0]) if len(order) else 0):
        rows = order[: np.searchsorted(-whole, -block, side="left")]
        yield rows, starts[rows] + block * width


def _words(keys: KeyBytes) -> Words:
    """The word that begins at each byte."""
    return np.ndarray((len(keys.data) - 7,), dtype="<u8", buffer=keys.data, strides=(1,))


def _rotate(words: Words, by: int) -> Words:
    return words << np.uint64(by) | words >> np.uint64(64 - by)


def _low(words: Words, count: Index) -> Words:
    """The first bytes of words, 0 to 8 of each."""
    # A shift by 64 is not defined, so by 32 twice.
    half = np.clip(count, 0, 8).astype(np.uint64) * np.uint64(4)
    return words & ~(~np.uint64(0) << half << half)


def murmur_arrays(keys: KeyBytes, first: Words, second: Words) -> None:
    """MurmurHash3, x64, 128 bits; `first` and `second` hold the seed."""
    words, lengths = _words(keys), np.diff(keys.offsets)
    for rows, places in _blocks(keys, 16):
        h1, h2 = first[rows], second[rows]
        h1 ^= _rotate(words[places] * C1, 31) * C2
        h1 = (_rotate(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 ^= _rotate(words[places + 8] * C2, 33) * C1
        h2 = (_rotate(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
        first[rows], second[rows] = h1, h2
    left = lengths % 16
    tails = keys.offsets[:-1] + lengths - left
    second ^= _rotate(_low(words[tails + 8], left - 8) * C2, 33) * C1
    first ^= _rotate(_low(words[tails], left) * C1, 31) * C2
    for half in (first, second):
        half ^= lengths.astype(np.uint64)
    first += second
    second += first
    for half in (first, second):
        half ^= half >> np.uint64(33)
        half *= np.uint64(0xFF51AFD7ED558CCD)
        half ^= half >> np.uint64(33)
        half *= np.uint64(0xC4CEB9FE1A85EC53)
        half ^= half >> np.uint64(33)
    first += second
    second += first


def siphash_arrays(keys: KeyBytes, start: Words, first: Words, second: Words) -> None:
    """SipHash-2-4 with 128 bits of output from a key\'s first state."""
    words, lengths = _words(keys), np.diff(keys.offsets)
    state = np.repeat(start[:, None], len(keys), axis=1)
    for rows, places in _blocks(keys, 8):
        v, word = [*state[:, rows]], words[places]
        v[3] = v[3] ^ word
        _array_rounds(v, 2)
        v[0] = v[0] ^ word
        state[:, rows] = v
    left = lengths % 8
    last = _low(words[keys.offsets[:-1] + lengths - left], left)
    last |= lengths.astype(np.uint64) << np.uint64(56)
    v = [*state]
    v[3] = v[3] ^ last
    _array_rounds(v, 2)
    v[0] = v[0] ^ last
    v[2] = v[2] ^ np.uint64(0xEE)
    _array_rounds(v, 4)
    first[:] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] = v[1] ^ np.uint64(0xDD)
    _array_rounds(v, 4)
    second[:] = v[0] ^ v[1] ^ v[2] ^ v[3]


def _array_rounds(v: list[Words], count: int) -> None:
    for _ in range(count):
        v[0] = v[0] + v[1]
        v[2] = v[2] + v[3]
        v[1] = _rotate(v[1], 13) ^ v[0]
        v[3] = _rotate(v[3], 16) ^ v[2]
        v[0] = _rotate(v[0], 32)
        v[2] = v[2] + v[1]
        v[0] = v[0] + v[3]
        v[1] = _rotate(v[1], 17) ^ v[2]
        v[3] = _rotate(v[3], 21) ^ v[0]
        v[2] = _rotate(v[2], 32)
