"""The encoding of branching programs equals its formula, for every size and batch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.encodings import BranchingEncoding
from ccbps.programs.branching import ONE, BranchingProgram
from tests.reference import ishai_kushilevitz as twin
from tests.support.effort import examples
from tests.support.formula_strategies import packed
from tests.support.program_strategies import (
    box_program,
    input_bits,
    random_program,
    seeds,
)
from tests.support.program_values import value_of

Bytes = NDArray[np.uint8]


# A word more or less in a column, and sizes where the layout splits a column's rows.
BORDERS = [1, 2, 30, 32, 39, 63, 64, 65, 127, 128, 129, 191, 192, 193, 300]
BATCHES = [0, 1, 255, 256, 257, 263, 2056, 2057, 5000, 8200, 8201, 17_000]


def uniform(encoding: BranchingEncoding, batch: int, seed: int) -> Bytes:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (batch, encoding.randomness_bytes), dtype=np.uint8)


def check_against_formula(program: BranchingProgram, batch: int, seed: int) -> None:
    encoding = BranchingEncoding(program)
    event, interest = input_bits(program, batch, seed)
    randomness = uniform(encoding, batch, seed)
    events = encoding.encode_event(packed(event), randomness)
    interests = encoding.encode_interest(packed(interest), randomness)
    assert np.array_equal(events, twin.encode_event(program, event, randomness))
    assert np.array_equal(interests, twin.encode_interest(program, interest, randomness))
    assert np.array_equal(encoding.decode(events, interests), value_of(program, event, interest))


# -- the formula --------------------------------------------------------------------------------


@given(size=st.integers(1, 140) | st.sampled_from(BORDERS), made=seeds, seed=seeds)
@settings(max_examples=20)
def test_encoding_of_any_program_is_the_formula(size: int, made: int, seed: int) -> None:
    check_against_formula(random_program(size, made), 7, seed)


@pytest.mark.slow
@pytest.mark.parametrize("size", [*range(1, 130), *range(130, 301, 3), 447, 448, 449, 600])
def test_encoding_of_any_size_is_the_formula(size: int) -> None:
    for made in (size, size + 1000):
        check_against_formula(random_program(size, made), 5, size)


@pytest.mark.parametrize(
    ("size", "inputs"),
    [(size, inputs) for n, size in enumerate(BORDERS) for inputs in ([3, 200], [64])[n % 2]],
)
def test_encoding_at_word_borders_is_the_formula(size: int, inputs: int) -> None:
    check_against_formula(random_program(size, 7 * size, inputs), 3, size)


@pytest.mark.parametrize(
    "size",
    [size if size < 150 else pytest.param(size, marks=pytest.mark.slow) for size in BORDERS],
)
def test_encoding_of_a_dense_program_is_the_formula(size: int) -> None:
    source = random_program(max(size, 12), size)
    label = next(iter(source.edges.values()))
    edges = {(u, v): label ^ ONE for u in range(size) for v in range(u + 1, size + 1)}
    check_against_formula(BranchingProgram(size, edges), 2, size)


@pytest.mark.parametrize("size", BORDERS)
def test_encoding_of_a_program_without_edges_is_the_formula(size: int) -> None:
    check_against_formula(BranchingProgram(size, {}), 2, size)


@given(widths=st.lists(st.integers(1, 24), min_size=1, max_size=5), seed=seeds)
@settings(max_examples=examples(30))
@example(widths=[16, 16, 20], seed=0)
@example(widths=[64, 65, 7], seed=0)
def test_encoding_of_a_box_is_the_formula(widths: list[int], seed: int) -> None:
    check_against_formula(box_program(widths), 5, seed)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("size", [1, 9])
def test_encoding_of_any_batch_is_the_formula(size: int, batch: int) -> None:
    check_against_formula(random_program(size, 5), batch, batch)


def test_encoding_of_a_row_does_not_depend_on_its_batch() -> None:
    program = box_program([16, 16, 20])
    encoding, batch = BranchingEncoding(program), 8300
    event, interest = (packed(bits) for bits in input_bits(program, batch, 1))
    randomness = uniform(encoding, batch, 2)
    events = encoding.encode_event(event, randomness)
    interests = encoding.encode_interest(interest, randomness)
    answers = encoding.decode(events, interests)
    for row in (0, 255, 256, 2055, 2056, 4111, 8199, 8200, 8299):
        at = slice(row, row + 1)
        assert np.array_equal(encoding.encode_event(event[at], randomness[at]), events[at])
        assert np.array_equal(encoding.encode_interest(interest[at], randomness[at]), interests[at])
        assert encoding.decode(events[at], interests[at]) == answers[at]


@given(size=st.integers(1, 70), seed=seeds)
@settings(max_examples=examples(30))
def test_encoding_ignores_bits_that_serve_nothing(size: int, seed: int) -> None:
    program = random_program(size, seed)
    encoding = BranchingEncoding(program)
    event, interest = (packed(bits) for bits in input_bits(program, 6, seed))
    randomness = uniform(encoding, 6, seed)
    other = randomness.copy()
    half = encoding.randomness_bytes // 2
    corner = encoding.layout.bit_position(size - 1, size - 1)
    unused = [*range(encoding.layout.bits, 8 * half)]
    for bit in [*unused, *(8 * half + bit for bit in [*unused, corner])]:
        other[:, bit // 8] ^= np.uint8(1 << bit % 8)
    for encode, inputs in (
        (encoding.encode_event, event),
        (encoding.encode_interest, interest),
    ):
        assert np.array_equal(encode(inputs, randomness), encode(inputs, other))


@given(size=st.integers(1, 70), seed=seeds)
@settings(max_examples=examples(30))
def test_messages_have_no_bit_set_after_the_triangle(size: int, seed: int) -> None:
    program = random_program(size, seed)
    encoding = BranchingEncoding(program)
    event, interest = (packed(bits) for bits in input_bits(program, 6, seed))
    ones = np.full((6, encoding.randomness_bytes), 0xFF, np.uint8)
    padding = ~encoding.layout.last_byte_mask & 0xFF
    for randomness in (ones, uniform(encoding, 6, seed)):
        simulated = encoding.simulate(np.zeros(6, np.bool_), randomness)
        real = encoding.encode_event(event, randomness)
        for message in (real, encoding.encode_interest(interest, randomness), *simulated):
            assert message.shape == (6, encoding.message_bytes)
            assert not (message[:, -1] & padding).any()


def test_encoding_takes_more_input_words_than_it_needs() -> None:
    program = box_program([7, 5])
    encoding = BranchingEncoding(program)
    event, randomness = packed(input_bits(program, 5, 3)[0]), uniform(encoding, 5, 4)
    longer = np.hstack([event, ~event])
    expected = encoding.encode_event(event, randomness)
    assert np.array_equal(encoding.encode_event(longer, randomness), expected)


@given(size=st.integers(1, 140), seed=seeds)
@settings(max_examples=examples(40))
def test_simulated_messages_decode_to_the_answer(size: int, seed: int) -> None:
    encoding = BranchingEncoding(random_program(size, seed))
    answers = np.random.default_rng(seed).integers(0, 2, 9).astype(np.bool_)
    events, interests = encoding.simulate(answers, uniform(encoding, 9, seed))
    assert np.array_equal(encoding.decode(events, interests), answers)


# -- costs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [lambda k: box_program([k]), lambda k: random_program(k, 1)])
def test_operations_are_positive_and_grow_with_the_program(
    build: Callable[[int], BranchingProgram],
) -> None:
    counts = [BranchingEncoding(build(k)).operations for k in (2, 4, 8, 16, 32, 64, 128)]
    assert all(set(count) == {"publisher", "subscriber", "broker"} for count in counts)
    assert all(count[role] > 0 for count in counts for role in count)
    for less, more in pairwise(counts):
        assert all(less[role] < more[role] for role in less)
