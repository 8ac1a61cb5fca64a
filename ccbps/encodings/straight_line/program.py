"""Straight-line programs over GF(2) for 64 rows a word: ``r[target] ^= r[left] & r[right]``.

Both encoders and the decoder of the formula encodings are such programs, and nothing else: their
operations depend on public plans only, never on a bit of a row. A program's input is a row of bits
(one row of bytes for each pair), transposed so that a register holds one bit of 64 rows in each of
its words. Its output is rows of bits again, or the one bit that is the answer.

`ccbps.encodings.straight_line.planes` runs them in NumPy,
`ccbps.encodings.straight_line.compiled_planes` with Numba.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Registers: TypeAlias = NDArray[np.intp]
"""Numbers of registers."""

WORD: Final = 64
LEVEL_STEPS: Final = 512
"""Steps of a level."""
MOST_RANKS: Final = 8
"""Largest number of steps of a level with the same target: NumPy adds each rank by one call."""
FEW_STEPS: Final = 3
"""Largest number of steps with the same target whose few lanes are added by rank."""


class Level(NamedTuple):
    """Steps that can be run at once: none reads a register that another one writes.

    Steps are sorted by rank, then target: rank j holds each target's j-th step, and targets with
    more steps come first, so that the steps of a rank are added to the first ones of rank 0.

    Attributes:
        targets: registers written, each once.
        lefts: first operands, all ranks one after the other.
        rights: second operands, likewise.
        ranks: number of steps of each rank; the first is the number of targets.
    """

    targets: Registers
    lefts: Registers
    rights: Registers
    ranks: list[int]

    @classmethod
    def of(cls, steps: Registers) -> Level:
        """Arrange steps (target, left, right), shape (steps, 3)."""
        targets, counts = np.unique(steps[:, 0], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        place = np.empty(len(targets), dtype=np.intp)
        place[order] = np.arange(len(targets))
        places = place[np.searchsorted(targets, steps[:, 0])]
        by_target = np.argsort(places, kind="stable")
        starts = np.cumsum(counts[order]) - counts[order]
        rank = np.empty(len(steps), dtype=np.intp)
        rank[by_target] = np.arange(len(steps)) - np.repeat(starts, counts[order])
        sequence = np.lexsort((places, rank))
        ranks = np.bincount(rank).tolist()
        return cls(targets[order], steps[sequence, 1], steps[sequence, 2], ranks)


class LaneLevel(NamedTuple):
    """Steps that can be run at once. Nothing is written twice: a target gets a new place.

    The products of all steps lie together: first those of targets with few steps, by rank, then
    those of the other targets, whose sums follow. The products of a rank are added to the first
    ones of rank 0, which become their targets' values.

    Attributes:
        operands: places of all first operands, then of all second ones.
        products: places of the products.
        ranks: places of the products of each rank but the first, and those that they are added to.
        summed: places of the products of targets with many steps.
        starts: place of each sum's first product among them.
        sums: places of the sums.
    """

    operands: Registers
    products: slice
    ranks: list[tuple[slice, slice]]
    summed: slice
    starts: Registers
    sums: slice


class Lanes(NamedTuple):
    """A program in which no register is written twice.

    Attributes:
        levels: steps by level.
        registers: number of places: those of the input's bits, of ones, of zeros, of the levels.
        outputs: places of the output's bits.
    """

    levels: list[LaneLevel]
    registers: int
    outputs: Registers


class StraightLine:
    """A program, its registers and its input and output.

    Attributes:
        inputs: words of an input row; register i starts as bit i of the row, counted from the low
            end of its first word.
        one: the register that is all ones.
        registers: number of registers; those that are neither input nor `one` start as zero.
        output: first register of the output; bit j of an output row is register output + j.
        outputs: words of an output row; 0 if the answer is the one register `output`.
        steps: (target, left, right) in order, shape (steps, 3).
    """

    def __init__(
        self,
        inputs: int,
        registers: int,
        output: int,
        outputs: int,
        steps: list[tuple[int, int, int]],
    ) -> None:
        self.inputs, self.one, self.registers = inputs, WORD * inputs, registers
        self.output, self.outputs = output, outputs
        self.steps = np.array(steps, dtype=np.intp).reshape(-1, 3)

    @property
    def operations(self) -> int:
        """Word operations for 64 rows: two for a step, and a transposition's for input and output.

        A transposition of 64 words takes 6 stages of 32 exchanges, each of 6 operations.
        """
        return 2 * len(self.steps) + 6 * 32 * 6 * (self.inputs + self.outputs)

    @property
    def levels(self) -> list[Level]:
        """Steps by level: each after the levels that write its operands."""
        return self._leveled[0]

    @property
    def array_registers(self) -> int:
        """Number of registers that `levels` need."""
        return self._leveled[1]

    @cached_property
    def lanes(self) -> Lanes:
        """The program with a new place for whatever a step writes."""
        zeros, numbers, levels = self.one + 1, self._numbers, []
        places = np.minimum(np.arange(self.registers), zeros)
        first = zeros + 1
        for number in range(numbers.max(initial=-1) + 1):
            steps = self.steps[numbers == number]
            # A target's value before the level is one more product.
            held = np.unique(steps[:, 0])
            held = held[places[held] != zeros]
            kept = np.stack([held, held, np.full(len(held), self.one)], axis=1)
            steps = np.concatenate([kept, steps])
            steps = steps[np.argsort(steps[:, 0], kind="stable")]
            steps[:, 1:] = places[steps[:, 1:]]
            _, owner, counts = np.unique(steps[:, 0], return_inverse=True, return_counts=True)
            # A copy of one register needs no place of its own.
            copied = (counts[owner] == 1) & (steps[:, 1:] == self.one).any(axis=1)
            targets, lefts, rights = steps[copied].T
            places[targets] = lefts + rights - self.one
            steps, counts = steps[~copied], counts[owner][~copied]
            few, many = Level.of(steps[counts <= FEW_STEPS]), steps[counts > FEW_STEPS]
            targets, summed = np.unique(many[:, 0], return_counts=True)
            edges = (first + np.cumsum([0, *few.ranks])).tolist()
            ranks = [
                (slice(edge, edge + size), slice(first, first + size))
                for edge, size in zip(edges[1:], few.ranks[1:], strict=False)
            ]
            stop = first + len(steps)
            starts, sums = np.cumsum(summed) - summed, slice(stop, stop + len(summed))
            levels.append(
                LaneLevel(
                    np.concatenate([few.lefts, many[:, 1], few.rights, many[:, 2]]),
                    slice(first, stop),
                    ranks,
                    slice(edges[-1], stop),
                    starts,
                    sums,
                )
            )
            places[few.targets] = np.arange(first, first + len(few.targets))
            places[targets] = np.arange(stop, sums.stop)
            first = sums.stop
        return Lanes(levels, first, places[self.output :][: WORD * self.outputs or 1])

    @cached_property
    def most_products(self) -> int:
        """Largest number of steps of a level."""
        return max((len(level.lefts) for level in self.levels), default=1)

    @cached_property
    def places(self) -> Registers:
        """Place of each register in NumPy's planes.

        Bit b of word w of the input, or of the output, is at b * words + w: words of one bit lie
        together.
        """
        places = np.arange(self.array_registers)
        for start, words in ((0, self.inputs), (self.output, self.outputs)):
            word, bit = np.divmod(np.arange(WORD * words), WORD)
            places[start : start + WORD * words] = start + bit * words + word
        return places

    @cached_property
    def placed_levels(self) -> list[Level]:
        """The levels with `places` in place of registers."""
        places = self.places
        return [
            Level(places[targets], places[lefts], places[rights], ranks)
            for targets, lefts, rights, ranks in self.levels
        ]

    @cached_property
    def _numbers(self) -> Registers:
        """Level of each step: the next after those that write its operands or read its target."""
        written = [-1] * self.registers
        read = [-1] * self.registers
        numbers = []
        for target, left, right in self.steps.tolist():
            number = max(written[left], written[right], read[target]) + 1
            numbers.append(number)
            written[target] = max(written[target], number)
            read[left], read[right] = max(read[left], number), max(read[right], number)
        return np.array(numbers, dtype=np.intp)

    @cached_property
    def _leveled(self) -> tuple[list[Level], int]:
        level_of, registers = self._numbers, self.registers
        levels: list[Level] = []
        for number in range(level_of.max(initial=-1) + 1):
            steps = self.steps[level_of == number]
            while len(steps):
                steps = steps[np.argsort(steps[:, 0], kind="stable")]
                sums, steps = self._spread(steps, registers)
                registers += len(steps)
                levels += _cut(sums)
        return levels, registers

    def _spread(self, steps: Registers, first: int) -> tuple[Registers, Registers]:
        """Give each target of sorted steps at most `MOST_RANKS` steps.

        Returns:
            the steps, some of them with new targets from register `first` on; and the steps that
            add these registers, one for each.
        """
        _, starts, counts = np.unique(steps[:, 0], return_index=True, return_counts=True)
        part = (np.arange(len(steps)) - np.repeat(starts, counts)) // MOST_RANKS
        over = part > 0
        if not over.any():
            return steps, steps[:0]
        pairs = np.stack([steps[over, 0], part[over]], axis=1)
        parts, inverse = np.unique(pairs, axis=0, return_inverse=True)
        spread = steps.copy()
        spread[over, 0] = first + inverse.reshape(-1)
        sources = np.arange(first, first + len(parts))
        more = np.stack([parts[:, 0], sources, np.full(len(parts), self.one)], axis=1)
        return spread[np.argsort(spread[:, 0], kind="stable")], more


def _cut(steps: Registers) -> list[Level]:
    """Cut sorted steps between targets, in levels that are short enough for the cache."""
    edges = [*np.flatnonzero(np.diff(steps[:, 0], prepend=-1)).tolist(), len(steps)]
    cuts = [0]
    for edge, after in pairwise(edges):
        if after - cuts[-1] > LEVEL_STEPS and edge > cuts[-1]:
            cuts.append(edge)
    return [Level.of(part) for part in np.split(steps, cuts[1:])]


class StraightLineBuilder:
    """Steps of a program to be. Registers 0 .. 64 * inputs - 1 are the input's bits."""

    def __init__(self, input_bits: int) -> None:
        self.inputs = -(-input_bits // WORD)
        self.one = WORD * self.inputs
        self._registers = self.one + 1
        self._steps: list[tuple[int, int, int]] = []

    def new(self, count: int = 1) -> int:
        """Return the first of some new registers, which are zero."""
        first = self._registers
        self._registers += count
        return first

    def add(self, target: int, left: int, right: int | None = None) -> None:
        """Append target ^= left & right; or target ^= left."""
        self._steps.append((target, left, self.one if right is None else right))

    def build(self, output: int, outputs: int = 0) -> StraightLine:
        """Return the program with these first register and words of output."""
        return StraightLine(self.inputs, self._registers, output, outputs, self._steps)
