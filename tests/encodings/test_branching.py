"""The encoding of branching programs equals its formula, for every size and batch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.encodings import BranchingEncoding
from ccbps.errors import ShapeError
from ccbps.programs.branching import ONE, BranchingProgram
from tests.reference import ishai_kushilevitz as twin
from tests.support.effort import examples
from tests.support.kernels import Recorder
from tests.support.program_strategies import (
    Words,
    box_program,
    input_bits,
    input_words,
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
    events = encoding.encode_event(input_words(event), randomness)
    interests = encoding.encode_interest(input_words(interest), randomness)
    assert np.array_equal(events, twin.encode_event(program, event, randomness))
    assert np.array_equal(interests, twin.encode_interest(program, interest, randomness))
    assert np.array_equal(encoding.decode(events, interests), value_of(program, event, interest))


# -- the formula --------------------------------------------------------------------------------


@given(size=st.integers(1, 140) | st.sampled_from(BORDERS), made=seeds, seed=seeds)
@settings(max_examples=20)
def test_encoding_of_any_program_is_the_formula(size: int, made: int, seed: int) -> None:
    check_against_formula(random_program(size, made), 7, seed)


@pytest.mark.slow
@pytest.mark.parametrize("size", [*range(1, 301), 447, 448, 449, 600])
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
    event, interest = (input_words(bits) for bits in input_bits(program, batch, 1))
    randomness = uniform(encoding, batch, 2)
    events = encoding.encode_event(event, randomness)
    interests = encoding.encode_interest(interest, randomness)
    answers = encoding.decode(events, interests)
    for row in (0, 255, 256, 2055, 2056, 4111, 8199, 8200, 8299):
        at = slice(row, row + 1)
        assert np.array_equal(encoding.encode_event(event[:, at], randomness[at]), events[at])
        assert np.array_equal(
            encoding.encode_interest(interest[:, at], randomness[at]), interests[at]
        )
        assert encoding.decode(events[at], interests[at]) == answers[at]


@given(size=st.integers(1, 70), seed=seeds)
@settings(max_examples=examples(30))
def test_encoding_ignores_bits_that_serve_nothing(size: int, seed: int) -> None:
    program = random_program(size, seed)
    encoding = BranchingEncoding(program)
    event, interest = (input_words(bits) for bits in input_bits(program, 6, seed))
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
    event, interest = (input_words(bits) for bits in input_bits(program, 6, seed))
    ones = np.full((6, encoding.randomness_bytes), 0xFF, np.uint8)
    padding = ~encoding.layout.last_byte_mask & 0xFF
    for randomness in (ones, uniform(encoding, 6, seed)):
        simulated = encoding.simulate(np.zeros(6, np.bool_), randomness)
        real = encoding.encode_event(event, randomness)
        for message in (real, encoding.encode_interest(interest, randomness), *simulated):
            assert message.shape == (6, encoding.message_bytes)
            assert not (message[:, -1] & padding).any()


# -- how inputs, randomness and output are passed -----------------------------------------------


@pytest.fixture(scope="module")
def box() -> BranchingEncoding:
    return BranchingEncoding(box_program([7, 5]))


def inputs_of(encoding: BranchingEncoding, batch: int) -> tuple[Words, Words]:
    event, interest = (input_words(bits) for bits in input_bits(encoding.program, batch, 3))
    return event, interest


def messages_of(encoding: BranchingEncoding, batch: int) -> tuple[Bytes, Bytes]:
    randomness = uniform(encoding, batch, 7)
    event, interest = inputs_of(encoding, batch)
    return encoding.encode_event(event, randomness), encoding.encode_interest(interest, randomness)


@pytest.mark.parametrize("batch", [0, 1, 300, 5000])
def test_encoding_of_one_input_for_all_rows_equals_that_input_repeated(
    box: BranchingEncoding, batch: int
) -> None:
    event, interest = inputs_of(box, 1)
    randomness = uniform(box, batch, 4)
    for encode, one in ((box.encode_event, event), (box.encode_interest, interest)):
        repeated = np.repeat(one, batch, axis=1)
        assert np.array_equal(encode(one, randomness), encode(repeated, randomness))


@given(known=st.integers(1, 6), batch=st.sampled_from([0, 1, 2, 5, 2056, 2057, 5000]), seed=seeds)
@settings(max_examples=examples(40))
@example(known=3, batch=1, seed=0)
@example(known=1, batch=1, seed=0)
def test_encoding_of_few_inputs_by_index_equals_those_inputs(
    box: BranchingEncoding, known: int, batch: int, seed: int
) -> None:
    event, interest = inputs_of(box, known)
    randomness = uniform(box, batch, 4)
    index = np.random.default_rng(seed).integers(0, known, batch).astype(np.intp)
    for encode, few in ((box.encode_event, event), (box.encode_interest, interest)):
        found = encode(few, randomness, index=index)
        assert np.array_equal(found, encode(few[:, index], randomness))


@pytest.mark.parametrize("length", [0, 1, 4, 6])
def test_encode_refuses_an_index_of_another_length(box: BranchingEncoding, length: int) -> None:
    event, _ = inputs_of(box, 3)
    with pytest.raises(ShapeError, match="index of 5"):
        box.encode_event(event, uniform(box, 5, 4), index=np.zeros(length, np.intp))


def test_encoding_takes_more_input_words_than_it_needs(box: BranchingEncoding) -> None:
    event, _ = inputs_of(box, 5)
    randomness = uniform(box, 5, 4)
    longer = np.concatenate([event, ~event])
    assert np.array_equal(box.encode_event(longer, randomness), box.encode_event(event, randomness))


@pytest.mark.parametrize("batch", [0, 1, 263, 5000])
def test_encoding_draws_each_row_once_and_in_order(box: BranchingEncoding, batch: int) -> None:
    event, interest = inputs_of(box, batch)
    randomness = uniform(box, batch, 5)
    for encode, inputs in ((box.encode_event, event), (box.encode_interest, interest)):
        draw = Recorder(randomness)
        out = np.empty((batch, box.message_bytes), np.uint8)
        assert encode(inputs, draw, out) is out
        assert draw.asked == list(range(batch))
        assert np.array_equal(out, encode(inputs, randomness))


def test_rows_may_start_anywhere_and_be_read_only(box: BranchingEncoding) -> None:
    event, interest = inputs_of(box, 300)
    randomness, wide = uniform(box, 300, 5), np.zeros((3, 600, 21 + box.message_bytes), np.uint8)
    rows = wide[:, ::2, 5 : 5 + box.message_bytes]
    shared = np.zeros((300, 8 + box.randomness_bytes), np.uint8)
    shared[:, 8:] = randomness
    shared.setflags(write=False)
    box.encode_event(event, shared[:, 8:], rows[0])
    box.encode_interest(interest, shared[:, 8:], rows[1])
    assert np.array_equal(rows[0], box.encode_event(event, randomness))
    assert np.array_equal(rows[1], box.encode_interest(interest, randomness))
    wide.setflags(write=False)
    answers = box.decode(rows[0].copy(), rows[1].copy())
    assert np.array_equal(box.decode(rows[0], rows[1]), answers)
    assert np.array_equal(box.decode(rows[0][::-1], rows[1][::-1]), answers[::-1])


def test_encoding_writes_between_other_bytes(box: BranchingEncoding) -> None:
    event, _ = inputs_of(box, 300)
    randomness = uniform(box, 300, 5)
    out = np.full((300, 16 + box.message_bytes + 3), 0x77, np.uint8)
    box.encode_event(event, randomness, out[:, 16:-3])
    assert np.array_equal(out[:, 16:-3], box.encode_event(event, randomness))
    assert (out[:, :16] == 0x77).all()
    assert (out[:, -3:] == 0x77).all()


@pytest.mark.parametrize("skip", [1, 8, 16, 23])
def test_decode_with_heads_skips_headers(box: BranchingEncoding, skip: int) -> None:
    rng = np.random.default_rng(6)
    bodies = messages_of(box, 400)
    headers = rng.integers(0, 256, (2, 400, skip), dtype=np.uint8)
    messages = [np.hstack([head, body]) for head, body in zip(headers, bodies, strict=True)]
    answers = box.decode(*bodies)
    assert 0 < answers.sum() < 400
    heads = np.zeros_like(headers)
    assert np.array_equal(box.decode_with_heads(*messages, heads)[0], answers)
    assert np.array_equal(heads, headers)


def test_decode_takes_rows_that_are_not_contiguous(box: BranchingEncoding) -> None:
    events, interests = messages_of(box, 40)
    answers = box.decode(events, interests)
    spread = np.asfortranarray(events), np.repeat(interests, 2, axis=0)[::2]
    assert np.array_equal(box.decode(*spread), answers)


def test_decode_leaves_messages_as_they_are(box: BranchingEncoding) -> None:
    events, interests = messages_of(box, 40)
    before = events.copy(), interests.copy()
    box.decode(events, interests)
    assert np.array_equal(events, before[0])
    assert np.array_equal(interests, before[1])


def test_encoding_leaves_randomness_and_inputs_as_they_are(box: BranchingEncoding) -> None:
    event, _ = inputs_of(box, 40)
    randomness = uniform(box, 40, 7)
    before = event.copy(), randomness.copy()
    box.encode_event(event, randomness)
    assert np.array_equal(event, before[0])
    assert np.array_equal(randomness, before[1])


@given(size=st.integers(1, 140), seed=seeds)
@settings(max_examples=examples(40))
def test_simulated_messages_decode_to_the_answer(size: int, seed: int) -> None:
    encoding = BranchingEncoding(random_program(size, seed))
    answers = np.random.default_rng(seed).integers(0, 2, 9).astype(np.bool_)
    events, interests = encoding.simulate(answers, uniform(encoding, 9, seed))
    assert np.array_equal(encoding.decode(events, interests), answers)


# -- refusals -----------------------------------------------------------------------------------


def words(*shape: int) -> Words:
    return np.zeros(shape, np.uint64)


def octets(*shape: int) -> Bytes:
    return np.zeros(shape, np.uint8)


R = BranchingEncoding(box_program([7, 5])).randomness_bytes
M = BranchingEncoding(box_program([7, 5])).message_bytes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((words(1, 4), octets(4, R - 1)), rf"randomness must be uint8 of shape \(batch, {R}\)"),
        ((words(1, 4), octets(4, R).astype(np.int8)), "randomness must be uint8"),
        ((words(1, 4), octets(R)), "randomness must be uint8 of shape"),
        ((words(1, 4), lambda start, stop: octets(stop - start, R)), "out is needed"),
        ((words(1, 4), octets(4, R), octets(3, M)), "out has 3 rows, randomness 4"),
        ((words(1, 3), octets(4, R)), "event bits must be uint64 of shape"),
        ((words(0, 4), octets(4, R)), "event bits must be uint64 of shape"),
        ((words(4), octets(4, R)), "event bits must be uint64 of shape"),
    ],
)
def test_encode_refuses_shapes_that_do_not_fit(
    box: BranchingEncoding, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        box.encode_event(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((words(1, 4).astype(np.int64), octets(4, R)), id="signed inputs"),
        pytest.param((words(1, 4), octets(4, R), octets(4, M + 1)), id="wide out"),
        pytest.param((words(1, 4), octets(R, 4).T), id="randomness by columns"),
    ],
)
def test_encode_refuses_arrays_it_cannot_read(
    box: BranchingEncoding, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(ShapeError):
        box.encode_event(*arguments)


@pytest.mark.parametrize(
    ("events", "interests", "message"),
    [
        (octets(4, M - 1), octets(4, M), f"events must be uint8 of shape .batch, {M}."),
        (octets(4, M), octets(4, M + 1), "interests must be uint8"),
        (octets(4, M).astype(np.uint16), octets(4, M), "events must be uint8"),
        (octets(M), octets(4, M), "events must be uint8"),
        (octets(4, M), octets(3, M), "4 events do not pair with 3 interests"),
    ],
)
def test_decode_refuses_shapes_that_do_not_fit(
    box: BranchingEncoding, events: Bytes, interests: Bytes, message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        box.decode(events, interests)


@pytest.mark.parametrize("uniform_bytes", [octets(3, R), octets(4, R - 1)])
def test_simulate_refuses_shapes_that_do_not_fit(
    box: BranchingEncoding, uniform_bytes: Bytes
) -> None:
    with pytest.raises(ShapeError, match="uniform must have shape"):
        box.simulate(np.zeros(4, np.bool_), uniform_bytes)


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
