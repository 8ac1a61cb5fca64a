"""Gates of garbled circuits around their AES blocks, compiled by Numba (extra ``compiled``).

The results are those of `ccbps.encodings.garbling.encoding` in NumPy, in one pass over the memory
where NumPy takes a dozen.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from ccbps.arrays import Index, Rounds, Words
from ccbps.compiled import compile_kernel

_LABELS = types.Array(types.uint64, 3, "C")
_PLACES = types.Array(types.int64, 1, "C", readonly=True)
_ROWS = types.Array(types.uint64, 2, "C", readonly=True)
_BITS = types.Array(types.uint64, 2, "C")
_FLAT = types.Array(types.uint64, 1, "C")
_NUMBER = types.int64
_TABLES = types.Array(types.uint64, 4, "C")


@numba.njit(inline="always")
def _sources(labels, operands, tweak, delta, each, garbling, out):  # type: ignore[no-untyped-def]
    rows = labels.shape[1]
    place = 0
    for number in range(len(operands)):
        label, own = labels[operands[number]], tweak[number % each]
        for row in range(rows):
            left, right = label[row, 0], label[row, 1]
            out[place + 2 * row] = left ^ right ^ own[row]
            out[place + 2 * row + 1] = left
        if garbling:
            other = place + 2 * rows
            for word in range(rows):
                out[other + 2 * word] = out[place + 2 * word] ^ delta[word, 0]
                out[other + 2 * word + 1] = out[place + 2 * word + 1] ^ delta[word, 1]
            place = other
        place += 2 * rows


@compile_kernel(types.void(_LABELS, _PLACES, _ROWS, _ROWS, _NUMBER, _FLAT))
def garbling_sources(
    labels: Words, operands: Index, tweak: Rounds, delta: Words, each: int, out: Words
) -> None:
    """Write sigma(Z) + t and sigma(Z + Delta) + t of all operands.

    Args:
        labels: labels with select bit 0, shape (places, rows, 2).
        operands: places of the operands.
        tweak: shape (2, rows).
        delta: sigma(Delta), shape (rows, 2).
        each: operands of a gate.
        out: place for the blocks, of one axis.
    """
    _sources(labels, operands, tweak, delta, each, True, out)


@compile_kernel(types.void(_LABELS, _PLACES, _ROWS, _NUMBER, _FLAT))
def evaluating_sources(
    labels: Words, operands: Index, tweak: Rounds, each: int, out: Words
) -> None:
    """Write sigma(label) + t of all operands; arguments as for `garbling_sources`."""
    _sources(labels, operands, tweak, tweak, each, False, out)


@compile_kernel(
    types.void(
        _LABELS, _BITS, _PLACES, _ROWS, _ROWS, _NUMBER, _FLAT, _FLAT, _ROWS, _ROWS, _NUMBER,
        _TABLES,
    )
)  # fmt: skip
def garble(
    labels: Words,
    bits: Words,
    operands: Index,
    turns: Words,
    known: Words,
    each: int,
    sources: Words,
    enciphered: Words,
    delta: Words,
    spread: Words,
    first: int,
    tables: Words,
) -> None:
    """Write ciphertexts, and the labels and bits that gates make.

    Args:
        labels: labels with select bit 0, shape (places, rows, 2).
        bits: the bits that they stand for, as masks, shape (places, rows).
        operands: places of the operands.
        turns: masks that are added to them, shape (operands, rows or 1).
        known: masks of the known bits of half gates, shape (gates, rows or 1).
        each: operands of a gate.
        sources: the blocks of `garbling_sources`.
        enciphered: the same, enciphered.
        delta: Delta, shape (rows, 2).
        spread: sigma(Delta), likewise.
        first: place of the first output.
        tables: place of ciphertexts, shape (gates, each, rows, 2).
    """
    rows = labels.shape[1]
    step = np.int64(4 * rows)
    one = np.uint64(1)
    wide = 1 if turns.shape[1] > 1 else 0
    for gate in range(len(operands) // each):
        a = operands[gate * each]
        base = gate * each * step
        left, left_bits = labels[a], bits[a]
        out, out_bits = labels[first + gate], bits[first + gate]
        if each == 2:
            right_bits = bits[operands[gate * 2 + 1]]
            for row in range(rows):
                at = base + 2 * row
                p = left_bits[row] ^ turns[gate * 2, row * wide]
                q = right_bits[row] ^ turns[gate * 2 + 1, row * wide]
                low, high = np.uint64(0), np.uint64(0)
                for half in range(2):
                    here = at + half * step
                    mask = p if half else q
                    first_0, first_1 = enciphered[here], enciphered[here + 1]
                    low ^= first_0 ^ sources[here]
                    high ^= first_1 ^ sources[here + 1]
                    there = here + 2 * rows
                    t_0 = first_0 ^ enciphered[there] ^ spread[row, 0] ^ (mask & delta[row, 0])
                    t_1 = first_1 ^ enciphered[there + 1] ^ spread[row, 1] ^ (mask & delta[row, 1])
                    if half:
                        t_0 ^= left[row, 0]
                        t_1 ^= left[row, 1]
                    tables[gate, half, row, 0] = t_0
                    tables[gate, half, row, 1] = t_1
                select = np.uint64(0) - (high & one)
                bit = (p & q) ^ select
                out[row, 0] = low ^ (select & delta[row, 0])
                out[row, 1] = high ^ (select & delta[row, 1])
                out_bits[row] = bit
        else:
            for row in range(rows):
                at = base + 2 * row
                p = left_bits[row] ^ turns[gate, row * wide]
                q = known[gate, row * wide]
                there = at + 2 * rows
                tables[gate, 0, row, 0] = (
                    enciphered[at] ^ enciphered[there] ^ spread[row, 0] ^ (q & delta[row, 0])
                )
                tables[gate, 0, row, 1] = (
                    enciphered[at + 1] ^ enciphered[there + 1] ^ spread[row, 1]
                    ^ (q & delta[row, 1])
                )  # fmt: skip
                low, high = enciphered[at] ^ sources[at], enciphered[at + 1] ^ sources[at + 1]
                select = np.uint64(0) - (high & one)
                bit = (p & q) ^ select
                out[row, 0] = low ^ (select & delta[row, 0])
                out[row, 1] = high ^ (select & delta[row, 1])
                out_bits[row] = bit


@compile_kernel(types.void(_LABELS, _PLACES, _NUMBER, _FLAT, _FLAT, _NUMBER, _TABLES))
def evaluate(
    labels: Words,
    operands: Index,
    each: int,
    sources: Words,
    enciphered: Words,
    first: int,
    tables: Words,
) -> None:
    """Write the labels that gates give; arguments as for `garble`."""
    rows = labels.shape[1]
    step = np.int64(2 * rows)
    one = np.uint64(1)
    for gate in range(len(operands) // each):
        left, out = labels[operands[gate * each]], labels[first + gate]
        base = gate * each * step
        if each == 2:
            right = labels[operands[gate * 2 + 1]]
            for row in range(rows):
                at = base + 2 * row
                other = at + step
                a_0, a_1 = left[row, 0], left[row, 1]
                first_mask = np.uint64(0) - (a_1 & one)
                second_mask = np.uint64(0) - (right[row, 1] & one)
                low = enciphered[at] ^ sources[at] ^ enciphered[other] ^ sources[other]
                high = (
                    enciphered[at + 1] ^ sources[at + 1]
                    ^ enciphered[other + 1] ^ sources[other + 1]
                )  # fmt: skip
                low ^= first_mask & tables[gate, 0, row, 0]
                high ^= first_mask & tables[gate, 0, row, 1]
                out[row, 0] = low ^ (second_mask & (tables[gate, 1, row, 0] ^ a_0))
                out[row, 1] = high ^ (second_mask & (tables[gate, 1, row, 1] ^ a_1))
        else:
            for row in range(rows):
                at = base + 2 * row
                mask = np.uint64(0) - (left[row, 1] & one)
                out[row, 0] = enciphered[at] ^ sources[at] ^ (mask & tables[gate, 0, row, 0])
                out[row, 1] = (
                    enciphered[at + 1] ^ sources[at + 1] ^ (mask & tables[gate, 0, row, 1])
                )


@compile_kernel(types.void(_BITS, _PLACES, _NUMBER))
def sums(rows: Words, operands: Index, first: int) -> None:
    """Write labels, or bits, that are sums of two.

    Args:
        rows: words of each label, shape (places, words).
        operands: places of the operands, two of each sum together.
        first: place of the first sum.
    """
    for place in range(len(operands) // 2):
        left, right = rows[operands[2 * place]], rows[operands[2 * place + 1]]
        out = rows[first + place]
        for word in range(rows.shape[1]):
            out[word] = left[word] ^ right[word]
