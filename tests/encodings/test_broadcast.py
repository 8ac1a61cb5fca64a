"""The broadcast encoding: equal to its slow twin, for every batch, and as small as stated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from ccbps.encodings.broadcast.encoding import BroadcastEncoding
from ccbps.encodings.broadcast.window_slots import splitter
from ccbps.encodings.labels import LABEL_BYTES, NONCE_BYTES
from ccbps.programs.branching import ONE, ZERO, event_bit, interest_bit
from ccbps.programs.formula import And, Chain, Formula, Lookup, Sum
from tests.reference.broadcast_labels import BroadcastTwin, best_cut
from tests.support.digit_formulas import (
    Stream,
    box,
    box_bits,
    comparison,
    comparison_bits,
    cut,
    equality,
    equality_bits,
    fresh_bytes,
    interval,
    interval_bits,
    odd,
    packed,
    parity_tree,
    random_formula,
    table_bits,
    unpacked,
    windows,
)
from tests.support.effort import examples
from tests.support.formula_strategies import near_bounds
from tests.support.kernels import KERNELS, both_kernels, each_kernel, wished  # noqa: F401
from tests.support.program_strategies import seeds
from tests.support.program_values import evaluate
from tests.support.statistics import (
    BITS,
    EVENT,
    FAMILY_ERROR,
    MATCHING,
    RANGES,
    PValues,
    bit_statistics,
    broadcast_view,
    corrected,
)

Bits = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Digits = NDArray[np.uint8]
Index = NDArray[np.intp]

BATCHES = [0, 1, 63, 64, 65, 513, 4097]


# -- inputs and messages ------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A formula, its digits' widths, and its private bits."""

    formula: Formula
    widths: tuple[int, ...]
    interests: Bits
    """Rows to choose from: where tables are to sum to one, they do."""

    @property
    def encoding(self) -> BroadcastEncoding:
        return BroadcastEncoding(self.formula, self.widths, self.interests.shape[1])

    def drawn(self, batch: int, seed: int = 3) -> tuple[Digits, Bits]:
        """Values of all digits, shape (batch, digits), and private bits."""
        rng = np.random.default_rng(seed)
        event = [rng.integers(0, 1 << width, batch) for width in self.widths]
        chosen = rng.integers(0, len(self.interests), batch)
        values = np.array(event, np.uint8).reshape(len(self.widths), batch).T
        return values, self.interests[chosen]

    def value(self, event: Digits, interest: Bits) -> Bits:
        answers = evaluate(self.formula, event.T, interest.T)
        return np.broadcast_to(answers, len(event))


def with_bits(formula: Formula, widths: Sequence[int], interests: Sequence[Sequence[int]]) -> Case:
    return Case(formula, tuple(widths), np.array(interests, np.bool_))


def any_bits(formula: Formula, widths: Sequence[int], count: int) -> Case:
    """Tables sum to one whatever the private bits are, or need not."""
    rows = np.random.default_rng(count).integers(0, 2, (64, count)).astype(np.bool_)
    return Case(formula, tuple(widths), rows)


def random_case(seed: int, depth: int = 3) -> Case:
    rng = np.random.default_rng(seed)
    widths = rng.integers(1, 5, rng.integers(1, 5)).tolist()
    return any_bits(random_formula(seed, widths, depth=depth), widths, 5)


def box_case(attributes: Sequence[Sequence[int]]) -> Case:
    rng = np.random.default_rng(len(attributes))
    rows = []
    for _ in range(64):
        ranges = [rng.integers(0, 1 << sum(widths), 2) for widths in attributes]
        # Half of the bounds are wide, so that some of the boxes match.
        wide = [(0, (1 << sum(widths)) - 1) for widths in attributes]
        rows.append(box_bits(attributes, [
            (int(low), int(high)) if rng.random() < 0.5 else all_
            for (low, high), all_ in zip(ranges, wide, strict=True)
        ]))  # fmt: skip
    return with_bits(box(attributes), [w for widths in attributes for w in widths], rows)


def uniform(count: int, width: int, seed: int) -> Bytes:
    return np.random.default_rng([seed, width]).integers(0, 256, (count, width), dtype=np.uint8)


def event_messages(encoding: BroadcastEncoding, values: Digits, rounds: Bytes) -> Bytes:
    """From values of all digits of the formula, used or not."""
    out = np.empty((len(values), encoding.event_bytes), np.uint8)
    used = np.ascontiguousarray(values[:, encoding.slots.digits])
    encoding.encode_event(used, rounds, out)
    return out


def interest_messages(
    encoding: BroadcastEncoding, interest: Bits, rounds: Bytes, fresh: Bytes
) -> Bytes:
    out = np.empty((len(rounds), encoding.interest_bytes), np.uint8)
    every = np.arange(len(rounds))
    stream = Stream(fresh)
    encoding.encode_interest(
        packed(interest), lambda start, stop: rounds[start:stop], stream, out, index=every
    )
    assert not stream.rest
    return out


def pairs_of(case: Case, batch: int, seed: int = 3) -> tuple[Bytes, Bytes, Bits]:
    """Messages, each pair in a round of its own, and the formula's values."""
    encoding = case.encoding
    event, interest = case.drawn(batch, seed)
    rounds = uniform(batch, encoding.randomness_bytes, seed)
    fresh = uniform(batch, fresh_bytes(encoding), seed + 1)
    events = event_messages(encoding, event, rounds)
    return (
        events,
        interest_messages(encoding, interest, rounds, fresh),
        case.value(event, interest),
    )


# -- the twin -----------------------------------------------------------------------------------


def check_against_twin(case: Case, batch: int, seed: int) -> None:
    """Bit for bit; the twin answers real messages, and the real broker those of the twin."""
    encoding, twin = case.encoding, BroadcastTwin(case.formula, case.widths)
    slots = encoding.slots
    kinds = {
        (one.digit, one.slot): one.defines if one.kind == "programmed" else one.kind
        for one in slots.coordinates
    }
    assert kinds == twin.kinds
    assert (slots.slots, slots.rows, slots.digits) == (twin.slots, twin.rows, twin.digits)
    assert (slots.free, slots.pads) == (twin.free, twin.pads)
    event, interest = case.drawn(batch, seed)
    rounds = uniform(batch, encoding.randomness_bytes, seed)
    fresh = uniform(batch, fresh_bytes(encoding), seed + 1)
    events = event_messages(encoding, event, rounds)
    interests = interest_messages(encoding, interest, rounds, fresh)
    answers = encoding.decode(events, interests)
    assert np.array_equal(answers, case.value(event, interest))
    for row in range(batch):
        nonce = fresh[row, :NONCE_BYTES].tobytes()
        free = unpacked(fresh[row : row + 1, NONCE_BYTES:], len(twin.free))[0].astype(int)
        used = event[row, encoding.slots.digits].tolist()
        random = rounds[row].tobytes()
        mine = twin.interest(interest[row].astype(int).tolist(), random, nonce, free.tolist())
        assert twin.event(used, random) == events[row].tobytes()
        assert mine == interests[row].tobytes()
        assert twin.decode(events[row].tobytes(), interests[row].tobytes()) == answers[row]


@given(seed=seeds)
@settings(max_examples=examples(300))
@example(seed=5)  # no digits
def test_messages_of_any_formula_are_the_twins(seed: int) -> None:
    check_against_twin(random_case(seed), 2, seed)


PARITIES, PARITY_BITS = parity_tree(6, [2, 1])
NAMED = {
    "always": any_bits(ONE, [], 1),
    "never": any_bits(ZERO, [2], 1),
    "interest bit": any_bits(interest_bit(0), [1], 1),
    "of interest bits": any_bits(And(interest_bit(0), interest_bit(69)), [], 70),
    "literal": any_bits(odd(0, 1, 0), [1], 1),
    "sum of literals": any_bits(Sum((odd(0, 1, 0), odd(0, 1, 1), odd(1, 1, 2))), [1, 1], 3),
    "public bits": any_bits(And(Lookup(0, (ZERO, ONE), odd=True), odd(2, 1, 0)), [1, 2, 1], 1),
    "comparison": with_bits(
        comparison(windows(16, 1)), windows(16, 1),
        [comparison_bits(windows(16, 1), c) for c in range(0, 65_537, 4096)],
    ),
    "comparison, window 3": with_bits(
        comparison(windows(16, 3)), windows(16, 3),
        [comparison_bits(windows(16, 3), c) for c in range(0, 65_537, 4096)],
    ),
    "interval, window 2": with_bits(
        interval(windows(9, 2)), windows(9, 2),
        [interval_bits(windows(9, 2), low, low + 200) for low in range(300)],
    ),
    "equality, window 4": with_bits(
        equality([4, 4, 1]), [4, 4, 1],
        [equality_bits([4, 4, 1], c) for c in ([0, 0, 0], [15, 3, 1], [9, 9, 0])],
    ),
    "box": box_case([windows(bits, 2) for bits in (16, 16, 20)]),
    "box of single bits": box_case([windows(bits, 1) for bits in (16, 16, 20)]),
    "hidden": any_bits(PARITIES, [2, 1], PARITY_BITS),
}  # fmt: skip


def test_a_hidden_formula_has_pads_of_several_blocks() -> None:
    assert max(NAMED["hidden"].encoding.slots.pads.values()) > 256


@both_kernels
@pytest.mark.parametrize("name", NAMED)
def test_messages_of_named_formulas_are_the_twins(name: str) -> None:
    check_against_twin(NAMED[name], 2, 5)


@both_kernels
@pytest.mark.parametrize("name", NAMED)
def test_messages_simulated_for_named_formulas_decode_to_the_answer(name: str) -> None:
    check_simulated(NAMED[name])


@given(seed=seeds)
@settings(max_examples=examples(60))
def test_messages_simulated_for_any_formula_decode_to_the_answer(seed: int) -> None:
    check_simulated(random_case(seed), seed)


def check_simulated(case: Case, seed: int = 1) -> None:
    encoding = case.encoding
    answers = np.arange(70) % 3 == 0
    rows = uniform(len(answers), encoding.event_bytes + encoding.interest_bytes, seed)
    events, interests = encoding.simulate(answers, rows)
    found, stray = encoding.decode_with_heads(events, interests, np.empty((2, 70, 0), np.uint8))
    assert np.array_equal(found, answers)
    assert not stray.any()
    # All but one bit, and those that are not used, are the uniform ones.
    assert np.array_equal(events, rows[:, : encoding.event_bytes])
    bits = 8 * NONCE_BYTES + encoding.slots.bits
    changed = unpacked(interests ^ rows[:, encoding.event_bytes :], bits)
    changed[:, 8 * NONCE_BYTES] = False
    assert not changed.any()


# -- sizes --------------------------------------------------------------------------------------

SIZES = [
    ((16, 16, 20), 1, 832, 148),
    ((16, 16, 20), 2, 416, 173),
    ((16, 16, 20), 4, 208, 289),
    ((32,) * 4, 1, 2048, 505),
    ((32,) * 4, 2, 1024, 610),
    ((32,) * 4, 4, 512, 1101),
    ((16,) * 8, 1, 2048, 483),
    ((16,) * 8, 2, 1024, 572),
    ((16,) * 8, 4, 512, 994),
]


@pytest.mark.parametrize(("bits", "window", "event_bytes", "body_bytes"), SIZES)
def test_boxes_are_as_small_as_counted(
    bits: tuple[int, ...], window: int, event_bytes: int, body_bytes: int
) -> None:
    attributes = [windows(k, window) for k in bits]
    flat = [width for widths in attributes for width in widths]
    encoding = BroadcastEncoding(box(attributes), flat, 2 * sum(map(table_bits, attributes)))
    assert encoding.event_bytes == event_bytes
    assert encoding.interest_bytes == NONCE_BYTES + body_bytes
    assert encoding.randomness_bytes == LABEL_BYTES * sum(1 << width for width in flat)


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("last", [False, True])
def test_no_cut_of_a_scan_takes_fewer_slots_and_rows(width: int, last: bool) -> None:
    """Far shorter parts are not looked at."""
    left = splitter(width)
    for digits in range(2, 33):
        for n, v in ((1, 1), (1, 2), (2, 2), (5, 1)):
            wanted = best_cut(digits, n, v, last, width)[1]
            assert left(digits, n, v, last) == wanted


# -- both kernels, all batches ------------------------------------------------------------------


def check_batch(case: Case, batch: int, seed: int) -> None:
    found = []
    for kernel in KERNELS:
        with wished(kernel):
            events, interests, answers = pairs_of(case, batch, seed)
            assert np.array_equal(case.encoding.decode(events, interests), answers)
            found.append((events, interests))
    for events, interests in found:
        assert np.array_equal(events, found[0][0])
        assert np.array_equal(interests, found[0][1])


@given(seed=seeds, batch=st.sampled_from(BATCHES))
@settings(max_examples=examples(120))
def test_kernels_write_the_same_bytes_and_decode_to_the_value(seed: int, batch: int) -> None:
    check_batch(random_case(seed, depth=2), batch, seed)


@pytest.mark.parametrize("batch", BATCHES)
def test_kernels_agree_on_batches_of_a_box(batch: int) -> None:
    check_batch(NAMED["box"], batch, batch)


@pytest.mark.parametrize("batch", [2047, 2048, 2049, 8193, 12_289])
def test_kernels_agree_on_batches_of_several_blocks(batch: int) -> None:
    check_batch(any_bits(And(odd(0, 2, 0), odd(1, 1, 3)), [2, 1], 4), batch, batch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_boxes_equal_plaintext(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits, window, batch = rng.integers(1, 24, rng.integers(1, 5)).tolist(), seed % 4 + 1, 300
    attributes = [windows(k, window) for k in bits]
    flat = [width for widths in attributes for width in widths]
    codes, ranges, expected = near_bounds(rng, bits, batch)
    event = [[d for x, widths in zip(row, attributes, strict=True) for d in cut(x, widths)]
             for row in codes]  # fmt: skip
    case = with_bits(box(attributes), flat, [box_bits(attributes, row) for row in ranges])
    encoding = case.encoding
    rounds = uniform(batch, encoding.randomness_bytes, seed)
    events = event_messages(encoding, np.array(event, np.uint8), rounds)
    fresh = uniform(batch, fresh_bytes(encoding), seed + 1)
    interests = interest_messages(encoding, case.interests, rounds, fresh)
    assert np.array_equal(encoding.decode(events, interests), expected)


# -- one event for many interests ---------------------------------------------------------------


@pytest.fixture(scope="module")
def small_box() -> Case:
    case = box_case([[2, 2, 1], [1, 2, 1]])
    assert case.encoding.slots.bits % 8
    return case


RUNS = {
    "one event": [700],
    "long runs": [100, 1, 399, 200],
    "short runs": [3] * 200 + [50, 50],
    "just as long": [16] * 50,
    "all different": [1] * 700,
}


@both_kernels
@pytest.mark.parametrize("name", RUNS)
def test_runs_of_equal_events_decode_to_the_value(small_box: Case, name: str) -> None:
    encoding = small_box.encoding
    place = np.repeat(np.arange(len(RUNS[name])), RUNS[name])
    count = len(RUNS[name])
    event, _ = small_box.drawn(count, 1)
    _, interest = small_box.drawn(len(place), 2)
    rounds = uniform(count, encoding.randomness_bytes, 4)
    fresh = uniform(len(place), fresh_bytes(encoding), 5)
    events = event_messages(encoding, event, rounds)
    interests = interest_messages(encoding, interest, rounds[place], fresh)
    wanted = small_box.value(event[place], interest)
    assert set(wanted.tolist()) == {False, True}
    assert np.array_equal(encoding.decode(events[place], interests), wanted)
    one_by_one = [encoding.decode(events[place[i] :][:1], interests[i:][:1]) for i in range(40)]
    assert np.array_equal(np.concatenate(one_by_one), wanted[:40])
    # In any order.
    order = np.random.default_rng(6).permutation(len(place))
    shuffled = encoding.decode(events[place[order]], interests[order])
    assert np.array_equal(shuffled, wanted[order])
    if count == 1:
        spread = np.broadcast_to(events[0], (len(place), encoding.event_bytes))
        assert spread.strides[0] == 0
        assert np.array_equal(encoding.decode(spread, interests), wanted)


@both_kernels
@pytest.mark.parametrize("digit", [0, 3, -1])
def test_runs_whose_events_differ_in_one_label_decode_to_the_value(digit: int) -> None:
    """Not what labels are for; but the broker must not take one event for another."""
    case = any_bits(
        Sum((odd(0, 2, 0), odd(1, 1, 3), odd(2, 2, 4), odd(3, 2, 7), odd(4, 1, 10))),
        [2, 1, 2, 2, 1], 11,
    )  # fmt: skip
    encoding = case.encoding
    event, interest = np.zeros((400, 5), np.uint8), case.drawn(400)[1]
    event[100:250, digit] = 1
    rounds = np.repeat(uniform(1, encoding.randomness_bytes, 4), 400, axis=0)
    events = event_messages(encoding, event, rounds)
    fresh = uniform(400, fresh_bytes(encoding), 5)
    interests = interest_messages(encoding, interest, rounds, fresh)
    assert np.array_equal(encoding.decode(events, interests), case.value(event, interest))


@both_kernels
@pytest.mark.parametrize("batch", BATCHES)
def test_one_event_for_all_rows_equals_that_event_repeated(small_box: Case, batch: int) -> None:
    encoding = small_box.encoding
    event, _ = small_box.drawn(1, 5)
    _, interest = small_box.drawn(batch, 2)
    rounds = uniform(1, encoding.randomness_bytes, 4)
    events = event_messages(encoding, event, rounds)
    fresh = uniform(batch, fresh_bytes(encoding), 5)
    interests = interest_messages(encoding, interest, np.repeat(rounds, batch, axis=0), fresh)
    answers = encoding.decode(np.repeat(events, batch, axis=0), interests)
    assert np.array_equal(answers, small_box.value(np.repeat(event, batch, axis=0), interest))
    spread = np.broadcast_to(events[0], (batch, encoding.event_bytes))
    assert np.array_equal(encoding.decode(spread, interests), answers)


@pytest.mark.parametrize("leaf", [event_bit(0), Chain((), event_bit(0), ONE, ZERO)])
def test_leaves_over_bits_of_the_event_are_refused(leaf: Formula) -> None:
    with pytest.raises(TypeError, match="no leaf of this encoding"):
        BroadcastEncoding(And(leaf, interest_bit(0)), [1], 1)


# -- labels -------------------------------------------------------------------------------------


def test_labels_of_a_digit_have_distinct_select_bits(small_box: Case) -> None:
    encoding = small_box.encoding
    random = uniform(2000, encoding.randomness_bytes, 1)
    labels = encoding.labels.of(random)
    first, raw = 0, random.reshape(labels.shape)
    for digit in encoding.slots.digits:
        width = small_box.widths[digit]
        own = labels[:, first : first + (1 << width), 0]
        shift = own[:, :1] & (1 << width) - 1
        assert np.array_equal(own & (1 << width) - 1, shift ^ np.arange(1 << width, dtype=np.uint8))
        # Every shift occurs as often, and all other bits are the random ones.
        assert stats.chisquare(np.bincount(shift[:, 0], minlength=1 << width)).pvalue > 1e-4
        assert np.array_equal(own >> width, raw[:, first : first + (1 << width), 0] >> width)
        first += 1 << width
    assert first == labels.shape[1]
    assert np.array_equal(labels[:, :, 1:], raw[:, :, 1:])


def test_an_event_message_is_a_label_for_each_digit_used() -> None:
    case = NAMED["public bits"]
    encoding, batch = case.encoding, 200
    assert encoding.slots.digits == [0, 2]
    event, _ = case.drawn(batch)
    random = uniform(batch, encoding.randomness_bytes, 1)
    labels = encoding.labels.of(random)
    rows = np.arange(batch)
    wanted = np.hstack([labels[rows, event[:, 0]], labels[rows, 2 + event[:, 2]]])
    assert np.array_equal(event_messages(encoding, event, random), wanted)


def test_messages_of_one_value_in_different_rounds_are_unrelated(small_box: Case) -> None:
    encoding, rounds = small_box.encoding, 4000
    event = np.repeat(small_box.drawn(1)[0], rounds, axis=0)
    messages = event_messages(encoding, event, uniform(rounds, encoding.randomness_bytes, 8))
    bits = unpacked(messages, 8 * encoding.event_bytes)
    for ones in (bits.sum(axis=0), (bits[1:] ^ bits[:-1]).sum(axis=0)):
        square = (ones - rounds / 2) ** 2 / (rounds / 4)
        assert corrected(stats.chi2.sf(square, 1)) > FAMILY_ERROR


# -- real and simulated messages at the real size -----------------------------------------------

SAMPLES = 3000
SEED = 20_261_123

Spoil = Callable[[BroadcastEncoding, Bytes, Bytes], None]
"""Changes rows for labels, and for nonces and free masks, in place."""


@lru_cache
def market(window: int) -> tuple[BroadcastEncoding, list[list[int]]]:
    attributes = [windows(bits, window) for bits in BITS]
    flat = [width for widths in attributes for width in widths]
    bits = 2 * sum(map(table_bits, attributes))
    return BroadcastEncoding(box(attributes), flat, bits), attributes


@lru_cache
def simulated(window: int, answer: bool) -> tuple[Bits, Bits]:
    encoding, _ = market(window)
    rows = uniform(SAMPLES, encoding.event_bytes + encoding.interest_bytes, SEED + answer)
    seen = broadcast_view(encoding, *encoding.simulate(np.full(SAMPLES, answer), rows))
    assert (seen[1][0] == answer).all()
    return seen


def real(window: int, name: str, seed: int, spoil: Spoil | None = None) -> tuple[Bits, Bits]:
    encoding, attributes = market(window)
    rounds = uniform(SAMPLES, encoding.randomness_bytes, SEED + 100 + seed)
    fresh = uniform(SAMPLES, fresh_bytes(encoding), SEED + 200 + seed)
    if spoil is not None:
        spoil(encoding, rounds, fresh)
    digits = [d for x, widths in zip(EVENT, attributes, strict=True) for d in cut(x, widths)]
    events = event_messages(encoding, np.array([digits] * SAMPLES, np.uint8), rounds)
    out = np.empty((SAMPLES, encoding.interest_bytes), np.uint8)
    interest = packed(np.array([box_bits(attributes, RANGES[name])]))
    encoding.encode_interest(interest, lambda start, stop: rounds[start:stop], Stream(fresh), out)
    seen = broadcast_view(encoding, events, out)
    assert (seen[1][0] == MATCHING[name]).all()
    return seen


def statistics(first: tuple[Bits, Bits], second: tuple[Bits, Bits]) -> list[PValues]:
    return bit_statistics(np.vstack(first), np.vstack(second), 1000, SEED)


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("window", [1, 2])
def test_real_messages_look_like_simulated_ones(window: int, name: str) -> None:
    sent = real(window, name, list(RANGES).index(name))
    for p_values in statistics(sent, simulated(window, MATCHING[name])):
        assert corrected(p_values) > FAMILY_ERROR


def without_shifts(encoding: BroadcastEncoding, rounds: Bytes, fresh: Bytes) -> None:
    """The labels of a digit's value 0 have select bits 0."""
    starts = np.cumsum([0, *(1 << encoding.slots.widths[d] for d in encoding.slots.digits)])[:-1]
    rounds[:, LABEL_BYTES * starts] &= 0xF0


def without_masks(encoding: BroadcastEncoding, rounds: Bytes, fresh: Bytes) -> None:
    """Free masks are zero."""
    fresh[:, NONCE_BYTES:] = 0


def with_one_round_and_nonce(encoding: BroadcastEncoding, rounds: Bytes, fresh: Bytes) -> None:
    """So pads are always the same."""
    rounds[:] = rounds[:1]
    fresh[:, :NONCE_BYTES] = fresh[0, :NONCE_BYTES]


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("spoil", [without_shifts, without_masks, with_one_round_and_nonce])
def test_statistics_tell_a_broken_encoder_from_the_simulator(window: int, spoil: Spoil) -> None:
    found = statistics(real(window, "tight", 7, spoil), simulated(window, True))
    assert min(map(corrected, found)) < 1e-30
