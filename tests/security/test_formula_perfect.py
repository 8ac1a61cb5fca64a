"""Perfect security of formulas: the broker's view depends on the answer and on nothing else.

Small formulas: over *all* randomness, and compared with the simulator over all of its. A 16+16+20
bit box and a hidden formula of 16 leaves: every simulated view is what any inputs with that answer
send under some randomness, and statistics of samples with fixed seeds, next to encoders that are
broken on purpose, which the same statistics reject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps.encodings.formula.encoding import FormulaEncoding
from ccbps.programs.branching import event_bit, interest_bit
from ccbps.programs.formula import And, Formula, Sum
from tests.reference.rank_one_gates import RankOneTwin
from tests.support.effort import examples
from tests.support.formula_strategies import (
    binary,
    box,
    box_bits,
    comparison,
    comparison_bits,
    interval,
    interval_bits,
    literal_tree,
    packed,
    random_formula,
    unpacked,
)
from tests.support.program_strategies import bit_rows
from tests.support.program_values import evaluate
from tests.support.statistics import (
    BITS,
    EVENT,
    FAMILY_ERROR,
    MATCHING,
    RANGES,
    Counts,
    PValues,
    after_gates,
    corrected,
    pairs_of_bits,
    two_sided,
)

Bits = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

# -- all randomness, enumerated -----------------------------------------------------------------


@dataclass(frozen=True)
class Inputs:
    """A formula, and bits of events and of interests, all pairs of which are looked at."""

    formula: Formula
    events: Bits
    interests: Bits

    @property
    def encoding(self) -> FormulaEncoding:
        return FormulaEncoding(self.formula, self.events.shape[1], self.interests.shape[1])

    def answers(self) -> Bits:
        """Shape (events, interests)."""
        rows = [evaluate(self.formula, x[:, None], self.interests.T) for x in self.events]
        return np.array([np.broadcast_to(row, len(self.interests)) for row in rows])


def every(formula: Formula, event_bits: int, interest_bits: int) -> Inputs:
    """All bits, of honest parties or not."""
    rows = bit_rows(event_bits).astype(np.bool_), bit_rows(interest_bits).astype(np.bool_)
    return Inputs(formula, *rows)


def some(formula: Formula, event_bits: int, interest_bits: int, events: int, interests: int,
         seed: int = 0) -> Inputs:  # fmt: skip
    """A few of them."""
    rng = np.random.default_rng(seed)
    x, p = (
        rng.permutation(1 << width)[:count, None] >> np.arange(width) & 1 == 1
        for width, count in ((event_bits, events), (interest_bits, interests))
    )
    return Inputs(formula, x, p)


def honest(formula: Formula, event_bits: int, interests: list[list[int]]) -> Inputs:
    """Every event, and the interest bits that stand for a bound."""
    return Inputs(formula, bit_rows(event_bits).astype(np.bool_), np.array(interests, np.bool_))


def all_intervals(width: int) -> list[list[int]]:
    """All bounds; empty intervals too, which are normalised."""
    codes = range(1 << width)
    return [interval_bits(width, low, high) for low in codes for high in codes]


def numbers(rows: Bytes) -> Counts:
    """Rows of a few bytes as integers."""
    return rows.astype(np.int64) @ (1 << 8 * np.arange(rows.shape[1], dtype=np.int64))


def rows_with(bits: list[int], width: int, rest: Bytes) -> Bytes:
    """Rows of `width` bytes: all values of the chosen bits, the others as in a row `rest`."""
    rows = np.repeat(rest[None, :width], 1 << len(bits), axis=0)
    counter = np.arange(1 << len(bits))
    for place, bit in enumerate(bits):
        rows[:, bit // 8] &= np.uint8(0xFF ^ 1 << bit % 8)
        rows[:, bit // 8] |= ((counter >> place & 1) << bit % 8).astype(np.uint8)
    return rows


def randomness_bits(encoding: FormulaEncoding) -> tuple[list[int], list[int]]:
    """Which bits of a row of randomness are masks of gates, and which the mask of messages."""
    gates, both = encoding.slots.random_bits, len(encoding.slots.both)
    first = 8 * -(-gates // 8)
    return list(range(gates)), list(range(first, first + both))


class Views:
    """The view's distribution over all randomness, for every pair of inputs.

    With `masked`, the view is the pair of messages, and their mask is enumerated, too. Without, the
    mask is zero and the view is what the pair tells: slots of both parties added, and those that
    one party sends. That is enough. A message's slot of both is the party's part plus a bit of the
    mask, which is uniform and used nowhere else. So given the sums, one party's masked parts are
    uniform bits, and the other's are these plus the sums: the pair is a function of the view
    and of uniform bits that are independent of all inputs.
    """

    def __init__(self, inputs: Inputs, *, masked: bool, held: tuple[int, ...] = ()) -> None:
        """
        Args:
            held: bits of the randomness that are not drawn, but zero: a broken encoder.
        """
        self.inputs, self.encoding = inputs, inputs.encoding
        slots = self.encoding.slots
        gates, mask = randomness_bits(self.encoding)
        free = [bit for bit in (gates + mask if masked else gates) if bit not in held]
        rest = np.random.default_rng(0).integers(0, 256, self.encoding.randomness_bytes, np.uint8)
        for bit in (*mask, *held):
            rest[bit // 8] &= np.uint8(0xFF ^ 1 << bit % 8)
        randomness = rows_with(free, self.encoding.randomness_bytes, rest)
        self.randomness = len(free)
        self.bits = sum(slots.bits) if masked else sum(slots.bits) - len(slots.both)
        self._masked = masked
        encode_event, encode_interest = self.encoding.encode_event, self.encoding.encode_interest
        self._events = [encode_event(packed(x[None]), randomness) for x in inputs.events]
        self._interests = [encode_interest(packed(p[None]), randomness) for p in inputs.interests]
        self._of_event, self._of_interest = (
            [numbers(rows) for rows in messages] for messages in (self._events, self._interests)
        )

    def counts(self, x: int, p: int) -> Counts:
        """How often each view occurs, shape (2 ** bits,)."""
        event, interest = self._of_event[x], self._of_interest[p]
        if self._masked:
            view = event | interest << self.encoding.slots.bits[0]
        else:
            # Zero padding: the publisher's own slots above those of both, then the subscriber's.
            both, publisher = len(self.encoding.slots.both), self.encoding.slots.bits[0]
            low = (1 << both) - 1
            view = event ^ interest & low | interest >> both << publisher
        return np.bincount(view, minlength=1 << self.bits)

    def telling_alone(self) -> set[str]:
        """Which side's message tells something without the other's.

        Slots of both are not looked at where the mask is zero: with it they are uniform bits.
        """
        shift = 0 if self._masked else len(self.encoding.slots.both)
        found = set()
        for side, contents in (("event", self._of_event), ("interest", self._of_interest)):
            counts = [np.bincount(some >> shift, minlength=1 << self.bits) for some in contents]
            if not all(np.array_equal(one, counts[0]) for one in counts):
                found.add(side)
        return found

    def decoded(self, x: int, p: int) -> Bits:
        return self.encoding.decode(self._events[x], self._interests[p])

    def pairs(self) -> Iterator[tuple[int, int, bool]]:
        answers = self.inputs.answers()
        for x, p in np.ndindex(*answers.shape):
            yield x, p, bool(answers[x, p])


def differing(views: Views) -> list[tuple[int, int]]:
    """Inputs whose views are not distributed as those of the first inputs with that answer."""
    firsts: dict[bool, Counts] = {}
    found = []
    for x, p, answer in views.pairs():
        counts = views.counts(x, p)
        if not np.array_equal(counts, firsts.setdefault(answer, counts)):
            found.append((x, p))
    return found


def check_perfect(inputs: Inputs, *, masked: bool = False) -> None:
    views = Views(inputs, masked=masked)
    firsts: dict[bool, Counts] = {}
    for x, p, answer in views.pairs():
        assert (views.decoded(x, p) == answer).all()
        firsts.setdefault(answer, views.counts(x, p))
    assert differing(views) == []
    assert views.telling_alone() == set()
    # There are twice as many views as values of the randomness: each is one answer's, and occurs
    # once.
    assert views.bits == views.randomness + 1
    for counts in firsts.values():
        assert counts.max() == 1
    if len(firsts) == 2:
        assert (firsts[True] != firsts[False]).all()


def literals(depth: int, width: int) -> tuple[Formula, int, int]:
    formula, interest_bits = literal_tree(depth, width)
    return formula, width, interest_bits


SMALL = {
    "comparison of 1 bit": every(comparison(1, 0, 0), 1, 2),
    "comparison of 2 bits": every(comparison(2, 0, 0), 2, 4),
    "comparison of 3 bits": every(comparison(3, 0, 0), 3, 6),
    "interval of 1 bit": every(interval(1, 0, 0), 1, 4),
    "interval of 2 bits": every(interval(2, 0, 0), 2, 8),
    "box of 1+1 bits": every(box([1, 1]), 2, 8),
    "hidden tree of 2 literals over 1 bit": every(*literals(1, 1)),
    "hidden tree of 2 literals over 2 bits": every(*literals(1, 2)),
}
LARGE = {
    "box of 2+1 bits": (box([2, 1]), 3, 12),
    "hidden tree of 2 literals over 3 bits": literals(1, 3),
    "hidden tree of 4 literals over 1 bit": literals(2, 1),
}


@pytest.mark.parametrize("name", SMALL)
def test_what_messages_tell_depends_on_the_answer_only(name: str) -> None:
    check_perfect(SMALL[name])


@pytest.mark.parametrize("name", LARGE)
def test_what_larger_messages_tell_depends_on_the_answer_only(name: str) -> None:
    inputs = some(*LARGE[name], events=2, interests=3)
    assert len(set(inputs.answers().ravel().tolist())) == 2
    check_perfect(inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("seed", range(1, 6))
def test_what_larger_messages_tell_for_more_inputs(name: str, seed: int) -> None:
    check_perfect(some(*LARGE[name], events=4, interests=12, seed=seed))


PAIRS = {
    "comparison of 1 bit": SMALL["comparison of 1 bit"],
    "comparison of 2 bits": SMALL["comparison of 2 bits"],
    "comparison of 3 bits": honest(
        comparison(3, 0, 0), 3, [comparison_bits(3, c) for c in range(9)]
    ),
    "interval of 1 bit": SMALL["interval of 1 bit"],
    "interval of 2 bits": honest(interval(2, 0, 0), 2, all_intervals(2)),
    "box of 1+1 bits": honest(
        box([1, 1]), 2, [a + b for a in all_intervals(1) for b in all_intervals(1)]
    ),
    "hidden tree of 2 literals over 1 bit": SMALL["hidden tree of 2 literals over 1 bit"],
    "of event bits only": every(And(event_bit(0), event_bit(1)), 2, 1),
    "of interest bits only": every(And(interest_bit(0), interest_bit(1)), 1, 2),
    "event bits that cancel": every(
        And(Sum((event_bit(0), event_bit(0), interest_bit(0))), interest_bit(1)), 1, 2
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_pair_of_messages_depends_on_the_answer_only(name: str) -> None:
    check_perfect(PAIRS[name], masked=True)


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_messages_are_distributed_as_the_simulator_says(name: str) -> None:
    views = Views(PAIRS[name], masked=True)
    encoding, seen = views.encoding, set()
    widths, start = encoding.slots.bits, 8 * encoding.event_bytes
    used = [*range(widths[0]), *range(start, start + widths[1])]
    rest = np.full(encoding.event_bytes + encoding.interest_bytes, 0xFF, np.uint8)
    uniform = rows_with(used, len(rest), rest)
    for x, p, answer in views.pairs():
        if answer not in seen:
            seen.add(answer)
            messages = encoding.simulate(np.full(len(uniform), answer), uniform)
            event, interest = map(numbers, messages)
            simulated = np.bincount(event | interest << widths[0], minlength=1 << views.bits)
            # SIM takes one bit more than there is randomness: twice as many cases.
            assert np.array_equal(simulated, 2 * views.counts(x, p))
    assert seen == {False, True}


def small_formulas(count: int, first: int) -> list[int]:
    """Seeds of random formulas with some randomness, little enough to enumerate."""
    found = []
    for seed in range(first, first + 100 * count):
        slots = FormulaEncoding(random_formula(seed, 3, 3, 3), 3, 3).slots
        if 3 <= slots.random_bits <= 12 and len(found) < count:
            found.append(seed)
    return found


def seeds_tried() -> list[int]:
    return small_formulas(max(30, examples(120)), 0)  # in fewer not everything occurs


def test_what_messages_of_random_formulas_tell_depends_on_the_answer_only() -> None:
    occurred = dict.fromkeys(["publisher alone", "subscriber alone", "tied", "merged"], 0)
    for seed in seeds_tried():
        inputs = every(random_formula(seed, 3, 3, 3), 3, 3)
        slots = inputs.encoding.slots
        check_perfect(inputs)
        occurred["publisher alone"] += bool(slots.lone["publisher"])
        occurred["subscriber alone"] += bool(slots.lone["subscriber"])
        occurred["tied"] += bool(slots.ties)
        # Each gate has slots of its own, but for those merged.
        own = 1 + sum(len(gate.lefts) + len(gate.rights) for gate in slots.gates)
        sent = len(slots.both) + len(slots.ties) + sum(map(len, slots.lone.values()))
        occurred["merged"] += sent < own
    assert min(occurred.values()) >= 4, occurred


# -- encoders that are broken on purpose --------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["comparison of 2 bits", "interval of 1 bit", "hidden tree of 2 literals over 1 bit"]
)
def test_no_bit_of_the_randomness_can_be_left_out(name: str) -> None:
    inputs = PAIRS[name]
    gates, mask = randomness_bits(inputs.encoding)
    for bit in gates + mask:
        assert differing(Views(inputs, masked=True, held=(bit,)))


def test_an_interval_that_is_not_normalised_matches_between_its_bounds() -> None:
    """[x < high + 1] + [x < low] is 1 for high < x < low: such bounds must not be encoded."""
    width, low, high = 4, 9, 4
    formula, codes = interval(width, 0, 0), range(1 << width)
    raw = comparison_bits(width, high + 1) + comparison_bits(width, low)
    event = np.array([binary(x, width) for x in codes], np.bool_)
    encoding = FormulaEncoding(formula, width, 4 * width)
    randomness = np.random.default_rng(1).integers(
        0, 256, (len(codes), encoding.randomness_bytes), dtype=np.uint8
    )
    events = encoding.encode_event(packed(event), randomness)

    def matching(bits: list[int]) -> list[int]:
        messages = encoding.encode_interest(packed(np.array([bits])), randomness)
        return np.flatnonzero(encoding.decode(events, messages)).tolist()

    assert matching(raw) == [5, 6, 7, 8]
    assert matching(interval_bits(width, low, high)) == []
    assert matching(interval_bits(width, high, low)) == [*range(high, low + 1)]


def test_two_events_under_one_randomness_show_where_they_differ() -> None:
    """The broker adds both event messages: the mask cancels, and bits that the publisher adds
    unmasked show. So he reads x XOR x', without any interest, and both if he knows one."""
    widths = [16, 16, 20]
    encoding = FormulaEncoding(box(widths), 52, 208)
    rng = np.random.default_rng(3)
    row = rng.integers(0, 256, (1, encoding.randomness_bytes), dtype=np.uint8)
    first, second = rng.integers(0, 2, (2, 1, 52))
    reused = [encoding.encode_event(packed(x), row) for x in (first, second)]
    # Public: where each event bit is added with coefficient one, and no other is at all.
    units = np.vstack([np.zeros((1, 52), np.int64), np.eye(52, dtype=np.int64)])
    nothing = np.zeros((53, encoding.randomness_bytes), np.uint8)
    added = unpacked(encoding.encode_event(packed(units), nothing), encoding.slots.bits[0])[1:]
    places = [np.flatnonzero(bit & (added.sum(axis=0) == 1))[0] for bit in added]
    seen = unpacked(reused[0] ^ reused[1], encoding.slots.bits[0])[0, places]
    assert np.array_equal(seen, (first ^ second)[0])
    # Under randomness of its own, the second event shows nothing of the kind.
    fresh = rng.integers(0, 256, (1, encoding.randomness_bytes), dtype=np.uint8)
    other = encoding.encode_event(packed(second), fresh)
    seen = unpacked(reused[0] ^ other, encoding.slots.bits[0])[0, places]
    assert not np.array_equal(seen, (first ^ second)[0])


# -- the real size ------------------------------------------------------------------------------


@lru_cache
def box_encoding() -> tuple[FormulaEncoding, RankOneTwin]:
    formula = box(BITS)
    return FormulaEncoding(formula, sum(BITS), 4 * sum(BITS)), RankOneTwin(formula)


def event_row() -> NDArray[np.int64]:
    return np.array([bit for x, k in zip(EVENT, BITS, strict=True) for bit in binary(x, k)])


def explained(
    encoding: FormulaEncoding, twin: RankOneTwin, x: list[int], p: list[int], messages: list[Bytes]
) -> Bytes:
    """The randomness under which inputs have these messages, one pair of rows."""
    slots = encoding.slots
    event, interest = (
        unpacked(rows, width)[0].astype(int).tolist()
        for rows, width in zip(messages, slots.bits, strict=True)
    )
    shared = len(slots.both)
    values = [0] * twin.slots
    for slot, one, other in zip(slots.both, event, interest, strict=False):
        values[slot] = one ^ other
    for slot, bit in zip(slots.lone["publisher"], event[shared:], strict=True):
        values[slot] = bit
    alone = [*(slot for slot, _ in slots.ties), *slots.lone["subscriber"]]
    for slot, bit in zip(alone, interest[shared:], strict=True):
        values[slot] = bit
    for slot, first in slots.ties:
        values[slot] ^= values[first]
    masks = twin.explain(x, p, values)
    added = twin.parts(x, p, masks)[0]
    common = [bit ^ added[slot] for slot, bit in zip(slots.both, event, strict=False)]
    gates, mask = randomness_bits(encoding)
    bits = np.zeros(8 * encoding.randomness_bytes, np.uint8)
    bits[gates], bits[mask] = masks, common
    return np.packbits(bits, bitorder="little")[None]


def check_explained(
    encoding: FormulaEncoding, twin: RankOneTwin, inputs: list[tuple[list[int], list[int]]]
) -> None:
    """What SIM makes of an answer is what each of these inputs send under some randomness.

    As there are half as many values of the randomness as pairs of messages, and this holds for any
    pair, each pair occurs under exactly one of them.
    """
    slots = encoding.slots
    assert sum(slots.bits) == slots.random_bits + len(slots.both) + 1
    rng = np.random.default_rng(7)
    for x, p in inputs:
        bits = np.array([x], np.bool_), np.array([p], np.bool_)
        width = encoding.event_bytes + encoding.interest_bytes
        formula_says = evaluate(twin.formula, bits[0].T, bits[1].T)
        uniform = rng.integers(0, 256, (1, width), dtype=np.uint8)
        messages = list(encoding.simulate(formula_says, uniform))
        randomness = explained(encoding, twin, x, p, messages)
        assert np.array_equal(encoding.encode_event(packed(bits[0]), randomness), messages[0])
        assert np.array_equal(encoding.encode_interest(packed(bits[1]), randomness), messages[1])


def test_any_simulated_pair_of_a_box_is_what_any_inputs_with_that_answer_send() -> None:
    x = event_row().tolist()
    inputs = [(x, box_bits(BITS, ranges)) for ranges in RANGES.values()]
    check_explained(*box_encoding(), 3 * inputs)


def test_any_simulated_pair_of_a_hidden_formula_is_what_any_inputs_with_that_answer_send() -> None:
    formula, event_bits, interest_bits = literals(4, 32)
    rng = np.random.default_rng(2)
    inputs = [
        (rng.integers(0, 2, event_bits).tolist(), rng.integers(0, 2, interest_bits).tolist())
        for _ in range(4)
    ]
    encoding = FormulaEncoding(formula, event_bits, interest_bits)
    check_explained(encoding, RankOneTwin(formula), inputs)


SAMPLES = 6_000
SEED = 20_261_122

Spoil = Callable[[Bits], None]
"""Sets bits of rows of randomness in place."""


def uniform_rows(seed: int, width: int) -> Bytes:
    return np.random.default_rng([SEED, seed]).integers(0, 256, (SAMPLES, width), dtype=np.uint8)


def looked_at(events: Bytes, interests: Bytes) -> Bits:
    """Bits of both messages, of slots, and of slots after the broker's work, shape (bits, rows)."""
    encoding, twin = box_encoding()
    slots = encoding.slots
    event, interest = (
        np.ascontiguousarray(unpacked(rows, width).T)
        for rows, width in zip((events, interests), slots.bits, strict=True)
    )
    shared, values = len(slots.both), np.zeros((twin.slots, len(events)), np.bool_)
    values[slots.both] = event[:shared] ^ interest[:shared]
    values[slots.lone["publisher"]] = event[shared:]
    values[[*(slot for slot, _ in slots.ties), *slots.lone["subscriber"]]] = interest[shared:]
    for slot, first in slots.ties:
        values[slot] ^= values[first]
    return np.vstack([event, interest, values, after_gates(values, slots.gates)])


@lru_cache
def simulated(answer: bool) -> Bits:
    encoding, _ = box_encoding()
    rows = uniform_rows(100 + answer, encoding.event_bytes + encoding.interest_bytes)
    return looked_at(*encoding.simulate(np.full(SAMPLES, answer), rows))


def real(name: str, seed: int, spoil: Spoil | None = None) -> Bits:
    encoding, _ = box_encoding()
    randomness = uniform_rows(seed, encoding.randomness_bytes)
    if spoil is not None:
        bits = np.unpackbits(randomness, axis=1, bitorder="little").astype(np.bool_)
        spoil(bits)
        randomness = np.packbits(bits, axis=1, bitorder="little")
    interest = packed(np.array([box_bits(BITS, RANGES[name])]))
    return looked_at(
        encoding.encode_event(packed(event_row()[None]), randomness),
        encoding.encode_interest(interest, randomness),
    )


def single_bits(first: Bits, second: Bits) -> PValues:
    return two_sided(first.sum(axis=1), second.sum(axis=1), SAMPLES)


def gate_products(rows: Bits) -> Counts:
    """How often the products that the broker computes are one, before and after his work."""
    encoding, twin = box_encoding()
    start = sum(encoding.slots.bits)
    out = []
    for values in (rows[start : start + twin.slots], rows[start + twin.slots :]):
        for gate in encoding.slots.gates:
            products = values[list(gate.lefts), None] & values[None, list(gate.rights)]
            out.append(products.sum(axis=2).ravel())
    return np.concatenate(out)


def products(first: Bits, second: Bits) -> PValues:
    return two_sided(gate_products(first), gate_products(second), SAMPLES)


def parities(first: Bits, second: Bits) -> PValues:
    """Sums of pairs of bits: neighbours, which are in one gate, and any."""
    left, right = pairs_of_bits(len(first), 1000, [SEED, 1])
    return two_sided(*((rows[left] ^ rows[right]).sum(axis=1) for rows in (first, second)), SAMPLES)


STATISTICS = [single_bits, products, parities]


@pytest.mark.parametrize("name", RANGES)
def test_real_messages_look_like_simulated_ones(name: str) -> None:
    sent, made = real(name, list(RANGES).index(name)), simulated(MATCHING[name])
    for statistic in STATISTICS:
        assert corrected(statistic(sent, made)) > FAMILY_ERROR


def without_mask(bits: Bits) -> None:
    bits[:, randomness_bits(box_encoding()[0])[1]] = False


def without_rho(bits: Bits) -> None:
    """The last gate's rho_0 is left out."""
    twin = box_encoding()[1]
    bits[:, twin.numbers[twin.gates[-1].rho[0]]] = False


def without_s(bits: Bits) -> None:
    """One column of a gate inside has no mask S."""
    twin = box_encoding()[1]
    bits[:, twin.numbers[twin.gates[0].s[0]]] = False


def with_one_s_for_two(bits: Bits) -> None:
    """Two columns of a gate have the same mask S, which shows wherever the right part is 0."""
    twin = box_encoding()[1]
    for gate in twin.gates:
        bits[:, twin.numbers[gate.s[-1]]] = bits[:, twin.numbers[gate.s[0]]]


SPOILED: list[tuple[Spoil, Callable[[Bits, Bits], PValues]]] = [
    (without_mask, single_bits),
    (without_rho, single_bits),
    (without_rho, products),
    (without_s, single_bits),
    (without_s, products),
    (with_one_s_for_two, parities),
]


@pytest.mark.parametrize(("spoil", "statistic"), SPOILED)
@pytest.mark.parametrize("name", ["tight", "empty"])
def test_statistics_tell_a_broken_encoder_from_the_simulator(
    name: str, spoil: Spoil, statistic: Callable[[Bits, Bits], PValues]
) -> None:
    assert corrected(statistic(real(name, 7, spoil), simulated(MATCHING[name]))) < 1e-30
