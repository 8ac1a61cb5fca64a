"""Perfect security: the broker's joint view depends on the answer and on nothing else.

Small programs: over *all* randomness, and compared with the simulator over all of its. A 16+16+20
bit box: statistics of samples with fixed seeds, at a significance corrected for their number, next
to encoders that are broken on purpose, which the same statistics reject.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from ccbps.encodings import BranchingEncoding
from ccbps.programs import branching as programs
from ccbps.programs.branching import BranchingProgram
from tests.reference.ishai_kushilevitz import positions
from tests.support import effort
from tests.support.formula_strategies import binary, packed
from tests.support.program_strategies import (
    bit_rows,
    box_program,
    event_bits,
    interest_bits,
)
from tests.support.program_values import value_of
from tests.support.statistics import (
    BITS,
    EVENT,
    FAMILY_ERROR,
    MATCHING,
    RANGES,
    Counts,
    PValues,
    corrected,
    two_sided,
)

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

# -- all randomness, enumerated -----------------------------------------------------------------


def equalities(*widths: int) -> BranchingProgram:
    starts = np.cumsum([0, *widths]).tolist()
    return programs.conjunction(
        [
            programs.equality(event_bits(i, k), interest_bits(i, k))
            for i, k in zip(starts, widths, strict=False)
        ]
    )


def comparison(k: int) -> BranchingProgram:
    """A comparison that a private bit may turn around."""
    return programs.less_than(event_bits(0, k), interest_bits(0, k), programs.interest_bit(k))


# With the size s of each: its randomness has s(s+1)/2 bits of Z, s(s-1)/2 of R1 and s-1 of R2.
SMALL: dict[str, tuple[BranchingProgram, int]] = {
    "1-bit equality": (equalities(1), 1),
    "1-bit interval": (box_program([1]), 2),
    "1-bit comparison": (comparison(1), 2),
    "AND of two 1-bit equalities": (equalities(1, 1), 2),
    "2-bit comparison": (comparison(2), 3),
    "Hamming distance of 2 bits": (
        programs.hamming_within(event_bits(0, 2), interest_bits(0, 2), 0), 3
    ),
    "AND of two 1-bit intervals": (box_program([1, 1]), 4),
    "2-bit interval": (box_program([2]), 4),
}  # fmt: skip


small_programs = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "AND of two 1-bit intervals"))
        for name in SMALL
    ],
)


def rows_with(bits: Sequence[int], width: int) -> Bytes:
    """Rows of `width` bytes: all values of the chosen bits, the others at random."""
    rng = np.random.default_rng(0)
    rows = np.unpackbits(
        rng.integers(0, 256, (1 << len(bits), width), dtype=np.uint8), axis=1, bitorder="little"
    )
    rows[:, bits] = bit_rows(len(bits))
    return np.packbits(rows, axis=1, bitorder="little")


def all_randomness(encoding: BranchingEncoding) -> Bytes:
    """Z, R1 and R2, each possible value once; bits that serve nothing at random."""
    size, half = encoding.program.size, 4 * encoding.randomness_bytes
    triangle = positions(size)[np.triu_indices(size)].tolist()
    corner = int(positions(size)[-1, -1])  # the one at the end of R2's last column
    used = [*triangle, *(half + bit for bit in triangle if bit != corner)]
    assert len(used) == size * (size + 1) // 2 + size * (size - 1) // 2 + size - 1
    return rows_with(used, encoding.randomness_bytes)


def all_uniform(encoding: BranchingEncoding) -> Bytes:
    """What SIM reads: a triangle from the first bytes and one from the last, each value once."""
    bits, start = encoding.layout.bits, 8 * (encoding.randomness_bytes - encoding.message_bytes)
    return rows_with([*range(bits), *range(start, start + bits)], encoding.randomness_bytes)


def numbers(messages: Bytes) -> Counts:
    """Messages of a few bytes as integers."""
    return messages.astype(np.int64) @ (1 << 8 * np.arange(messages.shape[1]))


def occurrences(encoding: BranchingEncoding, events: Counts, interests: Counts) -> Counts:
    """How often each pair of messages occurs, shape (2 ** (bits of both),)."""
    bits = encoding.layout.bits
    return np.bincount(events | interests << bits, minlength=1 << 2 * bits)


@dataclass(frozen=True)
class Views:
    """The joint view's distributions over all randomness, for all inputs with one answer."""

    inputs: int
    first: Counts
    differing: list[tuple[int, int]]
    """Event and interest where it is not as for the first of them."""


@lru_cache
def real_views(name: str) -> dict[bool, Views]:
    program, _ = SMALL[name]
    encoding = BranchingEncoding(program)
    randomness = all_randomness(encoding)
    event, interest = bit_rows(program.event_bits), bit_rows(program.interest_bits)
    events, interests = (
        [numbers(encode(word[None], randomness)) for word in packed(rows)]
        for encode, rows in (
            (encoding.encode_event, event),
            (encoding.encode_interest, interest),
        )
    )
    views: dict[bool, Views] = {}
    for x in range(len(event)):
        answers = value_of(program, np.repeat(event[x : x + 1], len(interest), axis=0), interest)
        for p, answer in enumerate(answers.tolist()):
            counts = occurrences(encoding, events[x], interests[p])
            known = views.setdefault(answer, Views(0, counts, []))
            views[answer] = replace(known, inputs=known.inputs + 1)
            if not np.array_equal(counts, known.first):
                known.differing.append((x, p))
    return views


@small_programs
def test_joint_view_is_the_same_for_all_inputs_with_one_answer(name: str) -> None:
    program, size = SMALL[name]
    views = real_views(name)
    assert program.size == size
    for answer in (True, False):
        assert views[answer].inputs > 1
        assert views[answer].differing == []


@small_programs
def test_joint_views_of_the_two_answers_have_nothing_in_common(name: str) -> None:
    views = real_views(name)
    assert not ((views[True].first > 0) & (views[False].first > 0)).any()


@small_programs
@pytest.mark.parametrize("answer", [True, False])
def test_joint_view_is_distributed_as_the_simulator_says(name: str, answer: bool) -> None:
    encoding = BranchingEncoding(SMALL[name][0])
    uniform = all_uniform(encoding)
    messages = encoding.simulate(np.full(len(uniform), answer), uniform)
    simulated = occurrences(encoding, *map(numbers, messages))
    # SIM takes one bit more than there is in Z, R1 and R2: twice as many cases.
    assert np.array_equal(simulated, 2 * real_views(name)[answer].first)


# -- the real size, sampled ---------------------------------------------------------------------

BOX = box_program(BITS)
ENCODING = BranchingEncoding(BOX)
SAMPLES = 12_000 if effort.everything else 4_000
SEED = 20_261_121

Randomness = Callable[[Bytes], None]
"""Spoils rows of randomness in place."""


def uniform_rows(seed: int) -> Bytes:
    rng = np.random.default_rng([SEED, seed])
    return rng.integers(0, 256, (SAMPLES, ENCODING.randomness_bytes), dtype=np.uint8)


def with_sum(events: Bytes, interests: Bytes) -> Bytes:
    """Both messages and their sum side by side: what a broker can look at bit by bit."""
    return np.hstack([events, interests, events ^ interests])


@lru_cache
def simulated(answer: bool) -> Bytes:
    return with_sum(*ENCODING.simulate(np.full(SAMPLES, answer), uniform_rows(100 + answer)))


def real(name: str, seed: int, spoil: Randomness | None = None) -> Bytes:
    x = [bit for code, k in zip(EVENT, BITS, strict=True) for bit in binary(code, k)]
    p = [bit for codes, k in zip(RANGES[name], BITS, strict=True)
         for code in codes for bit in binary(code, k)]  # fmt: skip
    randomness = uniform_rows(seed)
    if spoil is not None:
        spoil(randomness)
    event, interest = (packed(np.array([row])) for row in (x, p))
    return with_sum(
        ENCODING.encode_event(event, randomness), ENCODING.encode_interest(interest, randomness)
    )


def bit_marginals(first: Bytes, second: Bytes) -> PValues:
    """How often each bit of both messages and of their sum is one."""

    def ones(rows: Bytes) -> Counts:
        return np.concatenate(
            [np.unpackbits(rows[:, i : i + 64], axis=1).sum(axis=0, dtype=np.int64)
             for i in range(0, rows.shape[1], 64)]
        )  # fmt: skip

    return two_sided(ones(first), ones(second), SAMPLES)


def in_words(rows: Bytes) -> Words:
    """Rows eight bytes at a time, with zeros at the end."""
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8))).view(np.uint64)


def parities(first: Bytes, second: Bytes) -> PValues:
    """Parities of random sets of bits: anywhere in both messages, or in their sum."""
    rng = np.random.default_rng([SEED, 1])
    width = 8 * ENCODING.message_bytes
    spans = [(0, 2 * width), (2 * width, 3 * width)]
    sizes = [2] * 50 + [3] * 40 + [16] * 10 + [width // 2] * 6
    chosen = [rng.choice(np.arange(*span), size) for span in spans for size in sizes]
    masks = np.zeros((len(chosen), 3 * width), np.uint8)
    for mask, bits in zip(masks, chosen, strict=True):
        mask[bits] = 1
    packed = in_words(np.packbits(masks, axis=1))

    def ones(rows: Bytes) -> Counts:
        words, out = in_words(rows), []
        for mask in packed:
            used = np.flatnonzero(mask)
            folded = np.bitwise_xor.reduce(words[:, used] & mask[used], axis=1)
            out.append(np.count_nonzero(np.bitwise_count(folded) & 1))
        return np.array(out)

    return two_sided(ones(first), ones(second), SAMPLES)


def byte_pairs(first: Bytes, second: Bytes) -> PValues:
    """Joint values of the upper halves of two bytes, 256 cells, for random pairs of bytes."""
    rng = np.random.default_rng([SEED, 2])
    pairs = [rng.choice(first.shape[1], 2, replace=False) for _ in range(400)]

    def table(rows: Bytes, i: int, j: int) -> Counts:
        return np.bincount((rows[:, i] & 0xF0) | rows[:, j] >> 4, minlength=256)

    out = []
    for i, j in pairs:
        a, b = table(first, i, j), table(second, i, j)
        seen = a + b > 0
        square = ((a - b)[seen] ** 2 / (a + b)[seen]).sum()
        out.append(stats.chi2.sf(square, max(1, seen.sum() - 1)))
    return np.array(out)


STATISTICS = [bit_marginals, parities, byte_pairs]


@pytest.mark.parametrize("name", RANGES)
def test_real_messages_look_like_simulated_ones(name: str) -> None:
    found = real(name, list(RANGES).index(name))
    for statistic in STATISTICS:
        p_value = corrected(statistic(found, simulated(MATCHING[name])))
        assert p_value > FAMILY_ERROR, statistic.__name__


HALF = ENCODING.randomness_bytes // 2
LAST_COLUMN = positions(BOX.size)[:, -1]


def without_r2(rows: Bytes) -> None:
    for bit in LAST_COLUMN:
        rows[:, HALF + bit // 8] &= ~np.uint8(1 << bit % 8)


def without_r1(rows: Bytes) -> None:
    kept = np.zeros(HALF, np.uint8)
    for bit in LAST_COLUMN:
        kept[bit // 8] |= np.uint8(1 << bit % 8)
    rows[:, HALF:] &= kept


def without_z(rows: Bytes) -> None:
    rows[:, :HALF] = 0


def with_one_r(rows: Bytes) -> None:
    rows[:, HALF:] = rows[0, HALF:]


def with_one_round(rows: Bytes) -> None:
    rows[:] = rows[0]


SPOILED: list[tuple[Randomness, list[Callable[[Bytes, Bytes], PValues]]]] = [
    (without_r1, [bit_marginals]),
    (without_r2, [bit_marginals]),
    (without_z, [bit_marginals]),
    (with_one_r, [byte_pairs, parities]),
    (with_one_round, [bit_marginals, byte_pairs, parities]),
]


@pytest.mark.parametrize(("spoil", "statistics"), SPOILED)
@pytest.mark.parametrize("name", ["tight", pytest.param("empty", marks=pytest.mark.slow)])
def test_statistics_tell_a_broken_encoder_from_the_simulator(
    name: str, spoil: Randomness, statistics: list[Callable[[Bytes, Bytes], PValues]]
) -> None:
    found = real(name, 7, spoil)
    for statistic in statistics:
        p_value = corrected(statistic(found, simulated(MATCHING[name])))
        assert p_value < 1e-30, statistic.__name__
