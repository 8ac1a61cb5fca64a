"""Uniform elements of A5 from uniform bytes, 64 at a time, exactly uniform.

The first row of a matrix, four bits, is drawn until it is not 0; 15 of 16 draws are kept. Of 64
lanes some lane nearly always has to be drawn again, so a second draw is part of the plan for every
word, and is used where it is needed. About two words in nine then still have a lane without a row:
they draw from the sequence's reserve until they have none. t, two bits, is taken as it comes. So
the 60 elements are equally likely in each lane.

The bytes of a sequence are planes of words, little-endian: first draws a0 a1 b0 b1, t0 t1, second
draws a0 a1 b0 b1, each (M, V); then the spare draws, four planes of `reserve` words. Spare draws
are used in the order of the words that need them, round by round, for 8192 words after the other.

Hazard: the time shows which draws were rejected, which tells nothing of those that were kept.
"""

from __future__ import annotations

from math import isqrt
from typing import Final

import numpy as np

from ccbps.algebra import sl24
from ccbps.algebra.group import require_rows
from ccbps.algebra.lanes import PLANES, Lanes, empty, scratch
from ccbps.algebra.rejection import Reserve
from ccbps.arrays import Bytes, Words

BLOCK: Final = 8192
"""Words of a sequence whose rejected draws are replaced together. It decides which spare draw goes
where, so both parties must use the same: a change of it is a change of the message format."""
DRAWN_PLANES: Final = 10
"""a0 a1 b0 b1 t0 t1, and a second draw of the first four for lanes where they were all 0."""


def uniform(randomness: Bytes) -> Words:
    """See `ccbps.algebra.group.Group.uniform`; shape (8, M, batch, V)."""
    form = _drawn_lanes(randomness.shape[-1])
    require_rows("randomness", randomness, random_bytes(form.words))
    words = randomness.view("<u8")
    batch, drawn = len(words), DRAWN_PLANES * form.words
    planes = words[:, :drawn].reshape(batch, DRAWN_PLANES, form.steps, form.columns)
    spares = words[:, drawn:].reshape(batch, 4, words.shape[1] // 4 - drawn // 4)
    out = empty(form, batch)
    steps = max(1, BLOCK // form.columns)
    count = max(1, BLOCK // (min(steps, form.steps) * form.columns))
    size = min(count, batch) * min(steps, form.steps) * form.columns
    work = scratch(DRAWN_PLANES + PLANES + sl24.COMPLETE_SCRATCH, size)
    for begin in range(0, batch, count):
        some = slice(begin, begin + count)
        spare = Reserve(spares[some])
        for step in range(0, form.steps, steps):
            at = slice(step, step + steps)
            block, target = planes[some, :, at].swapaxes(0, 1), out[:, at, some]
            size = block[0].size
            rows = work[:, :size]
            if batch == 1:  # in place: nothing to transpose
                draw, matrix = block.reshape(DRAWN_PLANES, size), target.reshape(PLANES, size)
                np.copyto(matrix[:4], draw[:4])
            else:
                draw, matrix = rows[:DRAWN_PLANES], rows[DRAWN_PLANES:][:PLANES]
                np.copyto(draw.reshape(block.shape), block)
                matrix[:4] = draw[:4]
            _redraw(matrix[:4], draw[6:], spare, size // block.shape[1], rows[-5:])
            sl24.complete([*matrix[:4], *draw[4:6]], list(matrix[4:]), list(rows[-5:]))
            if batch > 1:
                target[...] = matrix.reshape(PLANES, *block.shape[1:]).swapaxes(1, 2)
    return out


def random_bytes(words: int) -> int:
    """Bytes for a sequence of this many words: ten planes, and the spare draws."""
    return 8 * (DRAWN_PLANES * words + 4 * reserve(words))


def reserve(words: int) -> int:
    """Spare draws of 64 lanes: mean 0.2381 * words, standard deviation 0.47 sqrt(words)."""
    return 61 * words // 256 + 5 * isqrt(words) + 20


def _drawn_lanes(width: int) -> Lanes:
    """The lanes whose randomness has this many bytes; they grow with every word."""
    low, high = 1, max(1, width // (8 * DRAWN_PLANES))
    while low < high:
        middle = (low + high) // 2
        if random_bytes(middle) < width:
            low = middle + 1
        else:
            high = middle
    return Lanes.exactly(low)


def _redraw(first: Words, second: Words, spare: Reserve, words: int, work: Words) -> None:
    """Make the first row, four planes, nonzero in all lanes: from `second`, then from `spare`.

    `words`: of one sequence, in each plane.
    """
    zero, again = work[0], work[1:5]
    _nowhere(first, zero)
    np.bitwise_or(first, np.bitwise_and(second, zero, out=again), out=first)
    _nowhere(first, zero)
    places = np.flatnonzero(zero != 0)
    missing = zero.take(places)
    while len(places):
        drawn = spare.take(places, words) & missing
        for row, fresh in zip(first, drawn, strict=True):
            row[places] |= fresh
        missing &= _nowhere(drawn, np.empty_like(missing))
        left = np.flatnonzero(missing)
        places, missing = places[left], missing[left]


def _nowhere(planes: Words, out: Words) -> Words:
    """Lanes where all four planes are 0."""
    np.bitwise_or(planes[0], planes[1], out=out)
    np.bitwise_or(out, planes[2], out=out)
    np.bitwise_or(out, planes[3], out=out)
    return np.bitwise_not(out, out=out)
