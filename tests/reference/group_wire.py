"""Slow twin of drawing elements from random bytes, and of their form on the wire, for S5 and A5.

S5: an element is one byte, its rank. A draw is one byte, too. Draws from 240 up are rejected, and
the others count mod 120.

A5: an element is a 2x2 matrix over GF(4) of determinant 1, as it permutes the five lines through 0.
64 matrices make a word of each bit-plane a0 a1 b0 b1 t0 t1: the first row (a, b), and t. The second
row is the sum of t (a, b) and (0, 1/a), or (1/b, 0) where a is 0. These planes are drawn.
"""

from __future__ import annotations

from functools import cache
from math import isqrt

from tests.reference.group_programs import elements
from tests.reference.permutation_groups import Permutation, gf4_times

ALL = (1 << 64) - 1


def padded(name: str, length: int) -> int:
    """Return the positions of a sequence. In A5 they fill at most 128 words, in one column."""
    if name == "S5":
        return length
    assert length <= 64 * 127
    return -(-length // 64) * 64


def random_bytes(name: str, length: int) -> int:
    if name == "S5":
        return length + length // 15 + 3 * isqrt(length) + 22
    words = length // 64
    return 8 * (10 * words + 4 * (61 * words // 256 + 5 * isqrt(words) + 20))


def draw(name: str, data: bytes, length: int) -> list[Permutation]:
    """Draw elements of a padded length from `random_bytes` bytes."""
    assert len(data) == random_bytes(name, length)
    return _draw_s5(data, length) if name == "S5" else _draw_a5(data, length)


def rank(name: str, element: Permutation) -> int:
    """Return the place among the group's elements in the order of their tuples."""
    return elements(name).index(element)


def write(name: str, sequence: list[Permutation]) -> bytes:
    """Write a sequence of a padded length as in a message."""
    if name == "S5":
        return bytes(rank("S5", p) for p in sequence)
    words = len(sequence) // 64
    planes = [[0] * words for _ in range(6)]
    for lane, step, p in _lanes(sequence):
        (a, b), (c, d) = _matrix(p)
        t = next(t for t in range(4) if _second_row(a, b, t) == (c, d))
        for plane, bit in enumerate(_bits(a, b, t)):
            planes[plane][step] |= bit << lane
    return b"".join(word.to_bytes(8, "little") for plane in planes for word in plane)


def _draw_s5(data: bytes, length: int) -> list[Permutation]:
    draws, spare = list(data[:length]), iter(data[length:])
    while rejected := [i for i, draw in enumerate(draws) if draw >= 240]:
        for i in rejected:
            draws[i] = next(spare)
    return [elements("S5")[draw % 120] for draw in draws]


def _draw_a5(data: bytes, length: int) -> list[Permutation]:
    words = length // 64
    planes = wire_planes(data, words)
    out = []
    for position in range(length):
        lane, step = divmod(position, words)
        a, b, t = (_lane(planes[i : i + 2], step, lane) for i in (0, 2, 4))
        out.append(_permutation((a, b), _second_row(a, b, t)))
    return out


def wire_planes(randomness: bytes, words: int, block: int = 8192) -> list[list[int]]:
    """Draw a0 a1 b0 b1 t0 t1, each a list of `words` words."""
    numbers = [
        int.from_bytes(randomness[i : i + 8], "little") for i in range(0, len(randomness), 8)
    ]
    planes = [numbers[i * words : (i + 1) * words] for i in range(10)]
    spare = numbers[10 * words :]
    budget, used = len(spare) // 4, 0
    for start in range(0, words, block):
        waiting = range(start, min(start + block, words))
        draws = {word: [planes[6 + plane][word] for plane in range(4)] for word in waiting}
        while draws:
            for word, draw in draws.items():
                nothing = ALL & ~(
                    planes[0][word] | planes[1][word] | planes[2][word] | planes[3][word]
                )
                for plane in range(4):
                    planes[plane][word] |= draw[plane] & nothing
            again = [
                word
                for word in draws
                if planes[0][word] | planes[1][word] | planes[2][word] | planes[3][word] != ALL
            ]
            draws = {}
            for word in again:
                assert used < budget
                draws[word] = [spare[plane * budget + used] for plane in range(4)]
                used += 1
    return planes[:6]


def _lane(planes: list[list[int]], step: int, lane: int) -> int:
    return sum((plane[step] >> lane & 1) << i for i, plane in enumerate(planes))


def _lanes(sequence: list[Permutation]) -> list[tuple[int, int, Permutation]]:
    """List lane, step and element: a lane holds a stretch of the sequence."""
    words = len(sequence) // 64
    return [(*divmod(position, words), p) for position, p in enumerate(sequence)]


def _bits(*values: int) -> list[int]:
    return [value >> i & 1 for value in values for i in (0, 1)]


# -- GF(4): bit i is w^i ------------------------------------------------------------------------

LINES = [(1, 0), (1, 1), (1, 2), (1, 3), (0, 1)]


def _inverse(x: int) -> int:
    return next(y for y in range(4) if gf4_times(x, y) == 1)


def _second_row(a: int, b: int, t: int) -> tuple[int, int]:
    c, d = gf4_times(t, a), gf4_times(t, b)
    return (c, d ^ _inverse(a)) if a else (c ^ _inverse(b), d)


@cache
def _permutation(first: tuple[int, int], second: tuple[int, int]) -> Permutation:
    """Return the permutation of the lines by a matrix, which acts on row vectors."""
    out = []
    for x, y in LINES:
        u, v = (gf4_times(x, first[i]) ^ gf4_times(y, second[i]) for i in (0, 1))
        multiples = [(gf4_times(s, u), gf4_times(s, v)) for s in (1, 2, 3)]
        out.append(next(i for i, line in enumerate(LINES, 1) if line in multiples))
    return tuple(out)


@cache
def _matrix(p: Permutation) -> tuple[tuple[int, int], tuple[int, int]]:
    rows = [(a, b) for a in range(4) for b in range(4) if (a, b) != (0, 0)]
    return next(
        (row, second)
        for row in rows
        for second in (_second_row(*row, t) for t in range(4))
        if _permutation(row, second) == p
    )
