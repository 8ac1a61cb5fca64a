"""The encoding of formulas: equal to its slow twin, for every batch, and as small as stated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.encodings.formula import encoding as encoding_module
from ccbps.encodings.formula.encoding import FormulaEncoding
from ccbps.encodings.formula.rank_one import RankOne
from ccbps.errors import ParameterError, ShapeError
from ccbps.programs.branching import ONE, ZERO, Label, event_bit, interest_bit
from ccbps.programs.formula import (
    And,
    Chain,
    Formula,
    Sum,
    conjunction,
    disjunction,
    gates,
    negation,
    total,
)
from tests.reference.rank_one_gates import RankOneTwin
from tests.support.effort import examples
from tests.support.formula_strategies import (
    binary,
    bits_used,
    box,
    box_bits,
    comparison,
    comparison_bits,
    equality,
    equality_bits,
    interval,
    interval_bits,
    literal_tree,
    near_bounds,
    packed,
    random_formula,
    uniform,
    unpacked,
)
from tests.support.kernels import KERNELS, both_kernels, each_kernel, wished  # noqa: F401
from tests.support.program_strategies import seeds
from tests.support.program_values import evaluate

Bits = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

BATCHES = [0, 1, 63, 64, 65, 513, 4097]


def made(formula: Formula) -> FormulaEncoding:
    event, interest = bits_used(formula)
    return FormulaEncoding(formula, event, interest)


def inputs_of(encoding: FormulaEncoding, batch: int, seed: int = 3) -> tuple[Bits, Bits]:
    """0/1 rows for both parties."""
    rng = np.random.default_rng(seed)
    widths = encoding.event_bits, encoding.interest_bits
    event, interest = (rng.integers(0, 2, (batch, k)).astype(np.bool_) for k in widths)
    return event, interest


# -- formulas -----------------------------------------------------------------------------------

WIDTHS = [1, 2, 3, 4, 5]


@pytest.mark.parametrize("width", WIDTHS)
def test_chains_compare(width: int) -> None:
    codes = range(1 << width)
    event = np.array([binary(x, width) for x in codes], np.bool_).T

    def matching(formula: Formula, bits: list[int]) -> list[int]:
        interest = np.repeat(np.array([bits], np.bool_).T, len(codes), axis=1)
        return np.flatnonzero(evaluate(formula, event, interest)).tolist()

    for bound in range((1 << width) + 1):
        below = matching(comparison(width, 0, 0), comparison_bits(width, bound))
        assert below == [x for x in codes if x < bound]
    for low in codes:
        assert matching(equality(width, 0, 0), equality_bits(width, low)) == [low]
        for high in codes:
            within = matching(interval(width, 0, 0), interval_bits(width, low, high))
            assert within == [x for x in codes if low <= x <= high]


def gate_depths(formula: Formula, under: int = 0) -> list[int]:
    """For every gate how many others it is under."""
    if isinstance(formula, Label):
        return []
    if isinstance(formula, Sum):
        return [depth for part in formula.parts for depth in gate_depths(part, under)]
    if isinstance(formula, And):
        parts = gate_depths(formula.left, under + 1), gate_depths(formula.right, under + 1)
        return [under, *parts[0], *parts[1]]

    def halved(leaves: int, depth: int) -> list[int]:
        """Maps, the last of which counts as two, in halves."""
        if leaves == 1:
            return []
        small = leaves // 2
        return [depth, *halved(small, depth + 1), *halved(leaves - small, depth + 1)]

    return halved(len(formula.maps) + 2, under)


def own_slots(formula: Formula) -> int:
    return 1 + sum(len(gate.lefts) + len(gate.rights) for gate in RankOne(formula).gates)


@given(seed=seeds)
@settings(max_examples=examples(200))
def test_a_gate_under_d_others_has_two_plus_d_slots(seed: int) -> None:
    formula = random_formula(seed)
    depths = gate_depths(formula)
    assert own_slots(formula) == 1 + sum(2 + depth for depth in depths)
    assert gates(formula) == len(depths) == len(RankOne(formula).gates)
    slots = RankOne(formula)
    assert slots.products == sum(len(gate.lefts) * len(gate.rights) for gate in slots.gates)
    assert max(slots.bits) <= own_slots(formula)


@pytest.mark.parametrize(("event_bits", "interest_bits"), [(4, 3), (5, 2)])
def test_bits_that_no_input_has_are_refused(event_bits: int, interest_bits: int) -> None:
    formula = Sum((event_bit(4), interest_bit(2)))
    FormulaEncoding(formula, 5, 3)
    with pytest.raises(ParameterError, match="_bits must be at least"):
        FormulaEncoding(formula, event_bits, interest_bits)


def least_depths(weights: Sequence[int]) -> int:
    """The least sum of depths of all gates over all trees of parts with so many gates."""
    count = len(weights)
    best = {1 << i: 0 for i in range(count)}
    for chosen in range(1, 1 << count):
        if chosen in best:
            continue
        inside = sum(weights[i] for i in range(count) if chosen >> i & 1) + chosen.bit_count() - 1
        # Both parts' gates, all but the join itself, come under one gate more.
        splits = [part for part in range(1, chosen) if part & ~chosen == 0]
        best[chosen] = min(best[part] + best[chosen ^ part] for part in splits) + inside - 1
    return best[(1 << count) - 1]


@given(weights=st.lists(st.integers(0, 9), min_size=1, max_size=6))
@settings(max_examples=examples(150))
@example(weights=[1, 1, 2, 2])
@example(weights=[0, 0, 0, 0, 0, 9])
def test_conjunction_puts_gates_as_near_to_the_root_as_any_tree(weights: list[int]) -> None:
    parts: list[Formula] = [
        Chain(((event_bit(0), ONE),) * (weight - 1), event_bit(0), ONE, interest_bit(i))
        if weight
        else interest_bit(i)
        for i, weight in enumerate(weights)
    ]

    def depths(formula: Formula, under: int) -> int:
        if isinstance(formula, And):
            return under + depths(formula.left, under + 1) + depths(formula.right, under + 1)
        return under * gates(formula)

    assert depths(conjunction(parts), 0) == least_depths(weights)


def test_conjunctions_and_disjunctions_have_their_values() -> None:
    bits = np.array([binary(n, 4) for n in range(16)], np.bool_).T
    parts: list[Formula] = [event_bit(0), interest_bit(1), event_bit(2) ^ ONE, interest_bit(3)]
    values = [bits[0], bits[1], ~bits[2], bits[3]]
    for count in range(1, 5):
        every, some = (make(parts[:count]) for make in (conjunction, disjunction))
        assert np.array_equal(evaluate(every, bits, bits), np.all(values[:count], axis=0))
        assert np.array_equal(evaluate(some, bits, bits), np.any(values[:count], axis=0))
        not_every = evaluate(negation(every), bits, bits)
        assert np.array_equal(not_every, ~np.all(values[:count], axis=0))
    assert (conjunction([]), disjunction([])) == (ONE, ZERO)
    assert conjunction([*parts, ZERO]) == ZERO
    assert conjunction([ONE, event_bit(0), ONE]) == event_bit(0)
    apart = [And(event_bit(0), event_bit(1)), And(event_bit(0) ^ ONE, event_bit(2))]
    wanted = np.where(bits[0], bits[1], bits[2])
    assert np.array_equal(evaluate(disjunction(apart, disjoint=True), bits, bits), wanted)
    assert gates(disjunction(apart, disjoint=True)) == 2


@given(seed=seeds)
@settings(max_examples=examples(60))
def test_total_is_the_sum(seed: int) -> None:
    parts = [random_formula(seed + i, depth=2) for i in range(3)]
    rng = np.random.default_rng(seed)
    event, interest = (rng.integers(0, 2, (4, 30)).astype(np.bool_) for _ in range(2))
    values = [evaluate(part, event, interest) for part in parts]
    found = total([parts[0], Sum((parts[1], Sum((parts[2],))))])
    assert np.array_equal(evaluate(found, event, interest), values[0] ^ values[1] ^ values[2])


# -- the twin -----------------------------------------------------------------------------------


def check_against_twin(formula: Formula, batch: int, seed: int) -> None:
    encoding, twin = made(formula), RankOneTwin(formula)
    slots = encoding.slots
    # Who adds to which slot, and which slots there are.
    alone = twin.publisher_adds - twin.subscriber_adds
    tied = [slot for slot, _ in slots.ties]
    assert sorted(slots.both + tied) == sorted(twin.publisher_adds & twin.subscriber_adds)
    assert set(slots.lone["publisher"]) == alone - twin.same_slot.keys()
    everything = set(range(twin.slots)) - twin.same_slot.keys()
    assert set(slots.lone["subscriber"]) == everything - twin.publisher_adds
    assert slots.random_bits == twin.random_bits

    event, interest = inputs_of(encoding, batch, seed)
    randomness = uniform(encoding, batch, seed)
    events = encoding.encode_event(packed(event), randomness)
    interests = encoding.encode_interest(packed(interest), randomness)
    first = 8 * -(-slots.random_bits // 8)
    bits = unpacked(randomness, 8 * encoding.randomness_bytes).astype(int)
    answers = encoding.decode(events, interests)
    assert np.array_equal(answers, evaluate(formula, event.T, interest.T))
    for row in range(batch):
        masks, mask = bits[row, : slots.random_bits], bits[row, first : first + len(slots.both)]
        publisher, subscriber = twin.parts(
            event[row].tolist(), interest[row].tolist(), masks.tolist()
        )
        for slot, earlier in slots.ties:
            assert publisher[slot] == publisher[earlier]
        common = mask.tolist()
        sent = [publisher[slot] ^ bit for slot, bit in zip(slots.both, common, strict=True)]
        sent += [publisher[slot] for slot in slots.lone["publisher"]]
        assert np.array_equal(unpacked(events[row : row + 1], slots.bits[0])[0], sent)
        sent = [subscriber[slot] ^ bit for slot, bit in zip(slots.both, common, strict=True)]
        sent += [subscriber[slot] ^ subscriber[earlier] for slot, earlier in slots.ties]
        sent += [subscriber[slot] for slot in slots.lone["subscriber"]]
        assert np.array_equal(unpacked(interests[row : row + 1], slots.bits[1])[0], sent)
        whole = [one ^ other for one, other in zip(publisher, subscriber, strict=True)]
        assert twin.decoded(whole)[0] == answers[row]
        explained = twin.explain(event[row].tolist(), interest[row].tolist(), whole)
        assert np.array_equal(explained, masks)


@given(seed=seeds)
@settings(max_examples=examples(600))
def test_messages_of_any_formula_are_the_twins(seed: int) -> None:
    check_against_twin(random_formula(seed), 3, seed)


NAMED: dict[str, Formula] = {
    "always": ONE,
    "never": ZERO,
    "event bit": event_bit(0),
    "interest bit": interest_bit(0),
    "literal": event_bit(0) ^ interest_bit(0),
    "of event bits": And(event_bit(0), event_bit(1)),
    "of interest bits": And(interest_bit(0), And(interest_bit(1), interest_bit(2))),
    "of both": And(event_bit(0), interest_bit(0)),
    "of both, turned": And(interest_bit(0), event_bit(0)),
    "last map": comparison(1, 0, 0),
    "comparison": comparison(16, 0, 0),
    "interval": interval(9, 0, 0),
    "equality": equality(13, 0, 0),
    "box": box([16, 16, 20]),
    "hidden": literal_tree(3, 5)[0],
    "over many words": And(event_bit(200) ^ interest_bit(70), event_bit(64) ^ interest_bit(129)),
    "event bits that cancel": And(
        Sum((event_bit(0), event_bit(0), interest_bit(0))), interest_bit(1) ^ interest_bit(2)
    ),
    "with itself": Sum((event_bit(0), event_bit(0), And(event_bit(0), event_bit(0)))),
}


@both_kernels
@pytest.mark.parametrize("name", NAMED)
def test_messages_of_named_formulas_are_the_twins(name: str) -> None:
    check_against_twin(NAMED[name], 3, 5)


@pytest.mark.parametrize("name", NAMED)
def test_messages_simulated_for_named_formulas_decode_to_the_answer(name: str) -> None:
    encoding = made(NAMED[name])
    rng = np.random.default_rng(1)
    width = encoding.event_bytes + encoding.interest_bytes
    answers = np.arange(20) % 2 == 0
    messages = encoding.simulate(answers, rng.integers(0, 256, (20, width), dtype=np.uint8))
    assert np.array_equal(encoding.decode(*messages), answers)


def test_no_slot_is_tied_to_the_root() -> None:
    """The publisher adds the same to two slots here, nothing at all, and one is the root."""
    slots = RankOne(NAMED["event bits that cancel"])
    assert slots.root in slots.both
    assert slots.root not in {first for _, first in slots.ties}


# -- kernels and batches ------------------------------------------------------------------------


def check_batch(formula: Formula, batch: int, seed: int) -> None:
    encoding = made(formula)
    event, interest = inputs_of(encoding, batch, seed)
    randomness = uniform(encoding, batch, seed)
    answers = evaluate(formula, event.T, interest.T)
    found = []
    for kernel in KERNELS if find_spec("numba") else ["arrays"]:
        with wished(kernel):
            events = encoding.encode_event(packed(event), randomness)
            interests = encoding.encode_interest(packed(interest), randomness)
            assert np.array_equal(encoding.decode(events, interests), answers)
            found.append((events, interests))
    for events, interests in found:
        assert events.shape == (batch, encoding.event_bytes)
        assert interests.shape == (batch, encoding.interest_bytes)
        assert np.array_equal(events, found[0][0])
        assert np.array_equal(interests, found[0][1])


@given(seed=seeds, batch=st.sampled_from(BATCHES))
@settings(max_examples=examples(300), deadline=None)
def test_kernels_write_the_same_bytes_and_decode_to_the_value(seed: int, batch: int) -> None:
    check_batch(random_formula(seed), batch, seed)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["literal", "box", "hidden"])
def test_kernels_agree_on_batches(name: str, batch: int) -> None:
    check_batch(NAMED[name], batch, batch)


@pytest.mark.parametrize("batch", [8191, 8192, 8193, 20_000])
def test_kernels_agree_on_batches_of_several_blocks(batch: int) -> None:
    check_batch(interval(4, 0, 0), batch, batch)


@given(
    calls=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 63, 64, 65, 700])), max_size=8)
)
@settings(max_examples=examples(30), deadline=None)
def test_a_thread_s_decoder_serves_any_calls(calls: list[tuple[int, int]]) -> None:
    """It is kept for the next batch of the same formula, if that is about as large."""
    formulas = [NAMED["box"], NAMED["hidden"], interval(4, 0, 0)]
    encodings = [made(formula) for formula in formulas]

    def check(turn: int) -> None:
        for which, batch in calls:
            event, interest = inputs_of(encodings[which], batch, turn)
            randomness = uniform(encodings[which], batch, turn)
            events = encodings[which].encode_event(packed(event), randomness)
            interests = encodings[which].encode_interest(packed(interest), randomness)
            answers = evaluate(formulas[which], event.T, interest.T)
            assert np.array_equal(encodings[which].decode(events, interests), answers)

    with wished("arrays"), ThreadPoolExecutor(3) as threads:
        list(threads.map(check, range(3)))


@pytest.mark.parametrize("batch", [1, 2, 64, 65])
def test_a_thread_s_encoder_serves_any_calls_and_keeps_no_secret(batch: int) -> None:
    encoding = made(NAMED["box"])
    runs = []
    for turn in range(3):
        event = packed(inputs_of(encoding, batch, turn)[0])
        runs.append((event, uniform(encoding, batch, turn)))

    def encoded(turn: int) -> Bytes:
        return encoding.encode_event(*runs[turn])

    with wished("arrays"):
        alone = []
        for turn in range(3):  # a thread of its own has no encoder yet
            with ThreadPoolExecutor(1) as thread:
                alone.append(thread.submit(encoded, turn).result())
        for turn in (0, 1, 1, 2, 0):
            assert np.array_equal(encoded(turn), alone[turn])

        def nested(start: int, stop: int) -> Bytes:
            assert np.array_equal(encoded(1), alone[1])
            return runs[0][1][start:stop]

        out = np.empty_like(alone[0])
        assert np.array_equal(encoding.encode_event(runs[0][0], nested, out), alone[0])
        kept = vars(encoding_module._thread).get("encoder")
    assert (kept is None) == (batch > 64)
    if kept:
        registers = kept._planes._registers.copy()
        registers[encoding.publisher.one] = 0  # a constant of all messages
        for part in (registers, kept._joined, kept._messages, kept._masks):
            assert not part.any()


def test_blocks_leave_nothing_behind_for_the_next_one() -> None:
    encoding = made(NAMED["box"])
    assert encoding.event_bytes != encoding.interest_bytes  # of a longer message, more is left
    check_batch(NAMED["box"], 20_000, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_boxes_equal_plaintext(seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = rng.integers(1, 24, rng.integers(1, 6)).tolist()
    encoding, batch = made(box(widths)), 2000
    codes, ranges, expected = near_bounds(rng, widths, batch)
    event = [[bit for x, k in zip(row, widths, strict=True) for bit in binary(x, k)]
             for row in codes]  # fmt: skip
    interest = [box_bits(widths, row) for row in ranges]
    randomness = uniform(encoding, batch, seed)
    events = encoding.encode_event(packed(np.array(event)), randomness)
    interests = encoding.encode_interest(packed(np.array(interest)), randomness)
    assert np.array_equal(encoding.decode(events, interests), expected)


# -- bits that serve nothing ----------------------------------------------------------------------


@both_kernels
@given(seed=seeds)
@settings(max_examples=examples(40), deadline=None)
def test_unused_bits_are_zero_and_simulated_messages_decode_to_the_answer(seed: int) -> None:
    encoding, batch = made(random_formula(seed)), 9
    event, interest = (packed(bits) for bits in inputs_of(encoding, batch, seed))
    ones = np.full((batch, encoding.randomness_bytes), 0xFF, np.uint8)
    pairs = [
        (encoding.encode_event(event, rows), encoding.encode_interest(interest, rows))
        for rows in (ones, uniform(encoding, batch, seed))
    ]
    answers = np.random.default_rng(seed).integers(0, 2, batch).astype(np.bool_)
    everything = np.full((batch, encoding.event_bytes + encoding.interest_bytes), 0xFF, np.uint8)
    pairs.append(encoding.simulate(answers, everything))
    for events, interests in pairs:
        for rows, bits in zip((events, interests), encoding.slots.bits, strict=True):
            assert not np.unpackbits(rows, axis=1, bitorder="little")[:, bits:].any()
        heads = np.empty((2, batch, 0), np.uint8)
        assert not encoding.decode_with_heads(events, interests, heads)[1].any()
    assert np.array_equal(encoding.decode(*pairs[-1]), answers)


@both_kernels
@given(seed=seeds)
@settings(max_examples=examples(30), deadline=None)
def test_bits_that_serve_nothing_change_nothing(seed: int) -> None:
    encoding, batch = made(random_formula(seed)), 4
    randomness = uniform(encoding, batch, seed)
    gates_end, both = encoding.slots.random_bits, len(encoding.slots.both)
    mask = 8 * -(-gates_end // 8)
    other = randomness.copy()
    for bit in [*range(gates_end, mask), *range(mask + both, 8 * encoding.randomness_bytes)]:
        other[:, bit // 8] ^= np.uint8(1 << bit % 8)
    event, interest = (packed(bits) for bits in inputs_of(encoding, batch))
    for encode, inputs, count in (
        (encoding.encode_event, event, encoding.event_bits),
        (encoding.encode_interest, interest, encoding.interest_bits),
    ):
        longer = inputs.copy()
        if count % 64 or not count:
            longer[:, -1] |= ~np.uint64((1 << count % 64) - 1)
        assert np.array_equal(encode(inputs, randomness), encode(longer, other))


REFUSED: dict[str, tuple[Callable[[FormulaEncoding, Words, Bytes], object], str]] = {
    "inputs too wide": (
        lambda e, x, r: e.encode_event(np.hstack([x, x]), r), r"shape \(5 or 1, 1\)"
    ),
    "out upside down": (
        lambda e, x, r: e.encode_event(x, r, np.empty((5, e.event_bytes), np.uint8)[::-1]),
        "follow one another",
    ),
    "out of one row again and again": (
        lambda e, x, r: e.encode_event(
            x, r, np.ndarray((5, e.event_bytes), np.uint8, bytearray(99), strides=(0, 1))
        ), "follow one another",
    ),
    "out that is read-only": (
        lambda e, x, r: e.encode_event(
            x, r, np.frombuffer(bytes(5 * e.event_bytes), np.uint8).reshape(5, -1)
        ), "writeable",
    ),
    "messages exchanged": (
        lambda e, x, r: e.decode(np.zeros((5, e.interest_bytes), np.uint8),
                                 np.zeros((5, e.event_bytes), np.uint8)), "events must be"
    ),
}  # fmt: skip


@both_kernels
@pytest.mark.parametrize("name", REFUSED)
def test_inputs_and_places_that_do_not_fit_are_refused(name: str) -> None:
    encoding = made(box([6, 5]))
    call, said = REFUSED[name]
    with pytest.raises(ShapeError, match=said):
        call(encoding, np.zeros((5, 1), np.uint64), uniform(encoding, 5, 1))


# -- sizes --------------------------------------------------------------------------------------

COMPARISONS = {8: (29, 26), 16: (70, 66), 20: (94, 90), 32: (167, 162), 64: (392, 386)}
INTERVALS = {8: (49, 51), 16: (123, 131), 20: (167, 179), 32: (301, 323), 64: (719, 771)}


@pytest.mark.parametrize("width", COMPARISONS)
def test_bits_of_comparisons_and_intervals(width: int) -> None:
    assert RankOne(comparison(width, 0, 0)).bits == COMPARISONS[width]
    assert RankOne(interval(width, 0, 0)).bits == INTERVALS[width]


@pytest.mark.parametrize(
    ("widths", "bits", "products"),
    [
        ([16, 16, 20], (577, 606), 885),
        ([32] * 4, (1709, 1801), None),
        ([64] * 3, (2793, 2950), None),
        ([32] * 16, (8865, 9249), None),
    ],
)
def test_bits_of_boxes(widths: list[int], bits: tuple[int, int], products: int | None) -> None:
    slots = RankOne(box(widths))
    assert slots.bits == bits
    assert products in (None, slots.products)


def test_bytes_of_the_stock_box_and_of_wide_ones() -> None:
    stock, wide = made(box([16, 16, 20])), made(box([32] * 16))
    assert (stock.event_bytes, stock.interest_bytes) == (73, 76)
    # 638 masks of gates, 544 slots of both.
    assert stock.randomness_bytes == 80 + 68
    assert max(wide.event_bytes, wide.interest_bytes) < 1300


@pytest.mark.parametrize(("depth", "bits"), [(2, (169, 265)), (3, (441, 665)), (4, (1121, 1601))])
def test_bits_of_hidden_formulas_of_literals(depth: int, bits: tuple[int, int]) -> None:
    formula, interest_bits = literal_tree(depth, 32)
    assert RankOne(formula).bits == bits
    if depth == 4:
        encoding = FormulaEncoding(formula, 32, interest_bits)
        assert (encoding.event_bytes, encoding.interest_bytes) == (141, 201)


def equal_bits(width: int, interest: int) -> Formula:
    """[x = c] as AND of all bits, which needs one gate less than a chain."""
    return conjunction([event_bit(i) ^ interest_bit(interest + i) for i in range(width)])


@pytest.mark.parametrize(("width", "bits"), [(16, 65), (32, 161), (64, 385)])
def test_bits_of_equalities(width: int, bits: int) -> None:
    assert RankOne(equal_bits(width, 0)).bits == (bits, bits)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_bits_of_memberships(count: int) -> None:
    formula = total([equal_bits(16, 16 * i) for i in range(count)])
    assert RankOne(formula).bits == (48 * count + 17, 64 * count + 1)
    ranges = total([interval(16, 0, 64 * i) for i in range(count)])
    publisher, subscriber = RankOne(ranges).bits
    assert publisher <= 106 * count + 17
    assert subscriber <= 130 * count + 1


def test_gates_with_one_slot_have_parts_in_common() -> None:
    """Both gates with x_0 on the left have one E_0 and one rho_0: what the publisher adds with
    these is the same, too, and is sent once."""
    product = And(event_bit(0), And(event_bit(0) ^ interest_bit(0), event_bit(1)))
    slots = RankOne(Sum((product, And(product, interest_bit(1)))))
    assert slots.random_bits == 13
    assert slots.bits == (11, 10)


@pytest.mark.parametrize(("width", "bits"), [(16, 113), (32, 273), (64, 641)])
def test_bits_of_ternary_masks(width: int, bits: int) -> None:
    """1 + m (x + c) for every bit: x m + (1 + m c)."""
    parts = [Sum((And(event_bit(i), interest_bit(i)), interest_bit(width + i)))
             for i in range(width)]  # fmt: skip
    assert RankOne(conjunction(parts)).bits == (bits, bits)
