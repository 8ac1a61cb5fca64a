"""The filters' passes over columns, compiled by Numba (extra ``compiled``).

Each key is hashed in place, in words of 8 bytes, and looked up one by one. The results equal those
of NumPy's passes bit for bit, except for the fingerprints that a cuckoo filter moves.
"""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ccbps.arrays import Bools, Bytes, Numbers, Words
from ccbps.compiled import compile_kernel

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_BYTES_OUT = types.Array(types.uint8, 1, "C")
_PLACES = types.Array(types.int64, 1, "C", readonly=True)
_WORDS = types.Array(types.uint64, 1, "C", readonly=True)
_WORDS_OUT = types.Array(types.uint64, 1, "C")
_FLAGS = types.Array(types.boolean, 1, "C")


@intrinsic
def _get(typing_context, octets, place):  # type: ignore[no-untyped-def]
    """Read eight bytes of an array as a word, at any place."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        at = builder.gep(array.data, [arguments[1]])
        word = builder.load(builder.bitcast(at, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(octets, types.int64), generate


@numba.njit(inline="always")
def _rotate(word, by):  # type: ignore[no-untyped-def]
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@numba.njit(inline="always")
def _low(word, count):  # type: ignore[no-untyped-def]
    """Return the first 0 to 8 bytes of a word."""
    if count <= 0:
        return np.uint64(0)
    if count >= 8:
        return word
    return word & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))


@numba.njit(inline="always")
def _mixed(h):  # type: ignore[no-untyped-def]
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))


@compile_kernel(types.void(_BYTES, _PLACES, _WORDS_OUT, _WORDS_OUT))
def murmur(data: Bytes, offsets: Numbers, first: Words, second: Words) -> None:
    """Compute MurmurHash3, x64, 128 bits. At first `first` and `second` hold the seed."""
    c1, c2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
    for row in range(len(first)):
        at, end = offsets[row], offsets[row + 1]
        length = np.uint64(end - at)
        h1, h2 = first[row], second[row]
        while at + 16 <= end:
            h1 ^= _rotate(_get(data, at) * c1, 31) * c2  # type: ignore[call-arg]
            h1 = (_rotate(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
            h2 ^= _rotate(_get(data, at + 8) * c2, 33) * c1
            h2 = (_rotate(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
            at += 16
        h2 ^= _rotate(_low(_get(data, at + 8), end - at - 8) * c2, 33) * c1  # type: ignore[call-arg]
        h1 ^= _rotate(_low(_get(data, at), end - at) * c1, 31) * c2
        h1 ^= length
        h2 ^= length
        h1 += h2
        h2 += h1
        h1, h2 = _mixed(h1), _mixed(h2)
        h1 += h2
        first[row], second[row] = h1, h2 + h1


@numba.njit(inline="always")
def _round(a, b, c, d):  # type: ignore[no-untyped-def]
    a += b
    c += d
    b = _rotate(b, 13) ^ a
    d = _rotate(d, 16) ^ c
    a = _rotate(a, 32)
    c += b
    a += d
    b = _rotate(b, 17) ^ c
    d = _rotate(d, 21) ^ a
    return a, b, _rotate(c, 32), d


@compile_kernel(types.void(_BYTES, _PLACES, _WORDS, _WORDS_OUT, _WORDS_OUT))
def siphash(data: Bytes, offsets: Numbers, start: Words, first: Words, second: Words) -> None:
    """Compute SipHash-2-4 with 128 bits of output from the first state of a secret key."""
    for row in range(len(first)):
        at, end = offsets[row], offsets[row + 1]
        length = np.uint64(end - at)
        a, b, c, d = start[0], start[1], start[2], start[3]
        last = False
        while not last:
            last = at + 8 > end
            word: np.uint64 = _get(data, at)  # type: ignore[call-arg]
            if last:
                word = _low(word, end - at) | (length << np.uint64(56))
            d ^= word
            a, b, c, d = _round(a, b, c, d)
            a, b, c, d = _round(a, b, c, d)
            a ^= word
            at += 8
        c ^= np.uint64(0xEE)
        for _ in range(4):
            a, b, c, d = _round(a, b, c, d)
        first[row] = a ^ b ^ c ^ d
        b ^= np.uint64(0xDD)
        for _ in range(4):
            a, b, c, d = _round(a, b, c, d)
        second[row] = a ^ b ^ c ^ d


@numba.njit(inline="always")
def _place(word, size):  # type: ignore[no-untyped-def]
    """Return a place below `size` from the upper half of a word."""
    return ((word >> np.uint64(32)) * size) >> np.uint64(32)


@compile_kernel(types.void(_BYTES_OUT, types.uint64, types.int64, _WORDS, _WORDS))
def bloom_add(bits: Bytes, size: int, hashes: int, first: Words, second: Words) -> None:
    """Set the bits of keys."""
    unit = np.uint64(0xFFFFFFFFFFFFFFFF) // size
    for row in range(len(first)):
        word, step = first[row], second[row]
        for number in range(1, hashes + 1):
            place = _place(word, size)
            bits[place >> np.uint64(3)] |= np.uint8(1) << np.uint8(place & np.uint64(7))
            word += step
            step += np.uint64(number) * unit


@compile_kernel(types.void(_BYTES, types.uint64, types.int64, _WORDS, _WORDS, _FLAGS))
def bloom_has(
    bits: Bytes, size: int, hashes: int, first: Words, second: Words, present: Bools
) -> None:
    """Write to `present` whether all bits of each key are set."""
    unit = np.uint64(0xFFFFFFFFFFFFFFFF) // size
    for row in range(len(first)):
        word, step = first[row], second[row]
        present[row] = True
        for number in range(1, hashes + 1):
            place = _place(word, size)
            bit = bits[place >> np.uint64(3)] >> np.uint8(place & np.uint64(7)) & np.uint8(1)
            if not bit:
                present[row] = False
                break
            word += step
            step += np.uint64(number) * unit


_MARKS = (types.uint8, types.uint16, types.uint32)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def _tables(*others, out: bool):  # type: ignore[no-untyped-def]
    """Return signatures for tables of all widths."""
    return [
        types.void(
            types.Array(mark, 2, "C", readonly=not out),
            types.Array(mark, 1, "C", readonly=True),
            _PLACES,
            *others,
        )
        for mark in _MARKS
    ]


@numba.njit(inline="always")
def _other(mark, place, buckets):  # type: ignore[no-untyped-def]
    """Return the other bucket of a fingerprint."""
    other = np.int64(_place(np.uint64(mark) * _FACTOR, np.uint64(buckets))) - place
    return other + buckets if other < 0 else other


@compile_kernel(_tables(_FLAGS, out=False))
def cuckoo_has(table: Words, marks: Words, places: Numbers, present: Bools) -> None:
    """Write to `present` whether each fingerprint is in one of its buckets."""
    buckets, slots = table.shape
    for row in range(len(marks)):
        mark, place = marks[row], places[row]
        other, equal = _other(mark, place, buckets), False
        for slot in range(slots):
            equal |= (table[place, slot] == mark) | (table[other, slot] == mark)
        present[row] = equal


@numba.njit(inline="always")
def _slot_of(table, place, mark):  # type: ignore[no-untyped-def]
    for slot in range(table.shape[1]):
        if table[place, slot] == mark:
            return slot
    return -1


@compile_kernel(
    _tables(
        types.Array(types.uint64, 1, "C"), types.int64, types.Array(types.int64, 1, "C"), out=True
    )
)
def cuckoo_add(
    table: Words, marks: Words, places: Numbers, draws: Words, most: int, done: Numbers
) -> None:
    """Add fingerprints until one has no room. `done` counts those with room."""
    buckets, slots = table.shape
    state = draws[0]
    for row in range(len(marks)):
        mark, place = marks[row], places[row]
        slot = _slot_of(table, place, 0)
        if slot < 0:
            place = _other(mark, place, buckets)
            slot = _slot_of(table, place, 0)
        kicks = 0
        while slot < 0 and kicks < most:
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            victim = np.int64(_place(state, np.uint64(slots)))
            table[place, victim], mark = mark, table[place, victim]
            place = _other(mark, place, buckets)
            slot = _slot_of(table, place, 0)
            kicks += 1
        if slot < 0:
            break
        table[place, slot] = mark
        done[0] += 1
    draws[0] = state


@compile_kernel(_tables(types.Array(types.int64, 1, "C"), out=True))
def cuckoo_remove(table: Words, marks: Words, places: Numbers, done: Numbers) -> None:
    """Remove a copy of each fingerprint until one is absent. `done` counts the removed ones."""
    buckets = table.shape[0]
    for row in range(len(marks)):
        mark, place = marks[row], places[row]
        slot = _slot_of(table, place, mark)
        if slot < 0:
            place = _other(mark, place, buckets)
            slot = _slot_of(table, place, mark)
        if slot < 0:
            break
        table[place, slot] = 0
        done[0] += 1
