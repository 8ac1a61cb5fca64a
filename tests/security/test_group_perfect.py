"""Perfect security of group programs: the broker's view depends on the answer and nothing else.

Lemma 5 over all blinders; the smallest matchers' joint views over all of theirs. Larger ones by
*coupling*: whatever blinders R give a view of (x, p), other inputs with the same answer have one R'
that gives the same view, and R is found from R' again; so both views have one distribution. At
real size the statistics of samples, beside encoders broken on purpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from ccbps import Schema, SharedSeed, UInt
from ccbps.algebra import A5, S5, Group
from ccbps.circuits import Circuit, Gate, Op
from ccbps.matching import FSGPMatch, OFSGPMatch, PublicFunctionMatch, UGPMatch
from ccbps.matching.group.group_match import GroupMatch, sizes_of
from ccbps.wire import ROUND_HEADER_BYTES
from tests.reference import group_programs as twin
from tests.reference.permutation_groups import inverse
from tests.support import effort
from tests.support.circuit_strategies import all_rows
from tests.support.planted_encoding import PlantedEncoding, encoded, laid_out, positions, view
from tests.support.program_strategies import every_formula
from tests.support.statistics import FAMILY_ERROR, Counts, PValues, corrected

Bytes = NDArray[np.uint8]
Ranks = NDArray[np.uint8]

SEED = SharedSeed(bytes(range(32)))
GROUPS = {"A5": A5, "S5": S5}
every_group = pytest.mark.parametrize("name", GROUPS)

# -- Lemma 5, over all blinders -----------------------------------------------------------------


def drawn(name: str, count: int, seed: int) -> list[tuple[int, ...]]:
    members = twin.elements(name)
    return [members[i] for i in np.random.default_rng(seed).integers(0, len(members), count)]


@every_group
@pytest.mark.parametrize("length", [2, 3])
def test_lemma_5_every_sequence_of_the_product_comes_from_one_choice(
    name: str, length: int
) -> None:
    members = twin.elements(name)
    for seed in range(12 if length == 2 else 1):
        sequence = drawn(name, length, seed)
        wanted = twin.product(sequence)
        seen = Counter(
            tuple(twin.blinded(sequence, blinders))
            for blinders in product(members, repeat=length - 1)
        )
        assert len(seen) == len(members) ** (length - 1)
        assert set(seen.values()) == {1}
        assert all(twin.product(blinded) == wanted for blinded in seen)


@every_group
def test_lemma_5_blinders_between_two_sequences_are_found(name: str) -> None:
    for seed in range(20):
        first, blinders = drawn(name, 7, seed), drawn(name, 6, 100 + seed)
        second = drawn(name, 6, 200 + seed)
        second.append(twin.product([inverse(twin.product(second)), twin.product(first)]))
        seen = twin.blinded(first, blinders)
        assert twin.blinded(second, twin.blinders_between(second, seen)) == seen
        assert twin.blinders_between(first, seen) == blinders


# -- matchers of the smallest size --------------------------------------------------------------

BIT = Schema(x=UInt(1))
XOR = Circuit(2, (Gate(Op.XOR, 0, 1),), (2,))
AND = Circuit(2, (Gate(Op.AND, 0, 1),), (2,))
VALUES = [{"y": 0}, {"y": 1}]


class Small:
    """A matcher with planted blinders, all its events and some interests."""

    def __init__(self, matcher: GroupMatch, interests: list[Any]) -> None:
        self.matcher, self.group = matcher, matcher.group
        self.encoding = PlantedEncoding(matcher.group, matcher.length, segment=64)
        matcher.encoding = self.encoding
        matcher.sizes = sizes_of(self.encoding)
        self.inputs = list(product(range(2**matcher.schema.bits), interests))
        self.blinders = 2 * positions(self.encoding)

    def sequence(self, x: int, interest: Any) -> Ranks:
        """The elements before blinding, shape (1, 2 positions + 1)."""
        length = self.matcher.length
        bits = np.append(all_rows(self.matcher.schema.bits)[x], False)
        index = self.matcher._index(0, length)
        prepared = self.matcher.prepare(interest)
        interstitials = self.matcher._interstitials(prepared, 0, length + 1)
        return laid_out(self.encoding, bits[index][None], interstitials[None])

    def messages(self, x: int, interest: Any, blinders: Ranks) -> tuple[Bytes, Bytes]:
        """What the two roles send, without headers, for every row of blinders."""
        publisher, subscriber = self.matcher.publisher(SEED), self.matcher.subscriber(SEED)
        events, interests = [], []
        # Messages of several segments are encoded one by one.
        step = 1 if len(self.encoding.segments) > 1 else len(blinders)
        for start in range(0, len(blinders), step):
            rounds = range(len(blinders))[start : start + step]
            self.encoding.planted = blinders[start : start + step]
            events.append(publisher.encode({"x": [x] * len(rounds)}, rounds))
            interests.append(subscriber.encode(interest, rounds))
        sent, wanted = np.concatenate(events), np.concatenate(interests)
        return sent[:, ROUND_HEADER_BYTES:], wanted[:, ROUND_HEADER_BYTES:]

    def answer(self, x: int, interest: Any) -> bool:
        given = self.sequence(x, interest)
        whole = twin.product(self.group.one_line(rank) for rank in given[0].tolist())
        assert whole in (twin.ONE, twin.ALPHA)
        return whole == twin.ALPHA


def fixed(kind: type[FSGPMatch | OFSGPMatch], bits: int, depth: int) -> Callable[[str], Small]:
    formulas = every_formula(bits, depth)
    return lambda name: Small(kind(Schema(x=UInt(bits)), depth, group=name), formulas)


def public(circuit: Circuit) -> Callable[[str], Small]:
    return lambda name: Small(
        PublicFunctionMatch(BIT, circuit, Schema(y=UInt(1)), group=name), VALUES
    )


SMALLEST: dict[str, Callable[[str], Small]] = {
    "FSGP": fixed(FSGPMatch, 1, 0),
    "OFSGP": fixed(OFSGPMatch, 1, 0),
    "public XOR": public(XOR),
    "public AND": public(AND),
    "UGP": lambda name: Small(UGPMatch(BIT, 0, group=name), every_formula(1, 0)),
}
LARGER: dict[str, Callable[[str], Small]] = {
    "FSGP": fixed(FSGPMatch, 2, 1),
    "OFSGP": fixed(OFSGPMatch, 2, 1),
    "public Hamming distance": lambda name: Small(
        PublicFunctionMatch.hamming(3, limit=1, group=name), [{"y": y} for y in range(8)]
    ),
    "UGP": lambda name: Small(UGPMatch(Schema(x=UInt(2)), 0, group=name), every_formula(2, 0)),
}


# -- coupling -----------------------------------------------------------------------------------


def solved(group: Group, given: Ranks, seen: Ranks) -> Ranks:
    """The blinders with which `given` becomes each row of `seen`, from left to right."""
    multiply, inverses = group.multiplication, group.inverses
    out = np.empty((len(seen), seen.shape[1] - 1), dtype=np.uint8)
    last = np.zeros(len(seen), dtype=np.uint8)
    for j in range(seen.shape[1] - 1):
        last = multiply[inverses[given[0, j]], multiply[last, seen[:, j]]]
        out[:, j] = last
    return out


def assert_coupled(
    small: Small, first: tuple[int, Any], second: tuple[int, Any], seed: int
) -> None:
    """R of the first inputs and R' of the second give the same bytes, and determine each other."""
    rng = np.random.default_rng(seed)
    blinders = rng.integers(0, small.group.order, (3, small.blinders), dtype=np.uint8)
    sent = small.messages(*first, blinders)
    seen = view(small.encoding, *sent)
    others = solved(small.group, small.sequence(*second), seen)
    again = small.messages(*second, others)
    assert np.array_equal(again[0], sent[0])
    assert np.array_equal(again[1], sent[1])
    assert np.array_equal(
        solved(small.group, small.sequence(*first), view(small.encoding, *again)), blinders
    )


@every_group
@pytest.mark.parametrize("scheme", SMALLEST)
def test_views_of_any_two_inputs_with_one_answer_are_coupled(scheme: str, name: str) -> None:
    small = SMALLEST[scheme](name)
    answers = [small.answer(*one) for one in small.inputs]
    assert 1 < sum(answers) < len(answers) - 1 or scheme == "public AND"
    for i, j in product(range(len(answers)), repeat=2):
        if answers[i] == answers[j]:
            assert_coupled(small, small.inputs[i], small.inputs[j], i)


@pytest.mark.slow
@every_group
@pytest.mark.parametrize("scheme", LARGER)
def test_views_of_all_inputs_with_one_answer_are_coupled_with_the_first(
    scheme: str, name: str
) -> None:
    small = LARGER[scheme](name)
    first: dict[bool, tuple[int, Any]] = {}
    for number, one in enumerate(small.inputs):
        assert_coupled(small, first.setdefault(small.answer(*one), one), one, number)
    assert len(first) == 2
    assert len(small.encoding.segments) == (3 if scheme == "UGP" else 1)


@every_group
@pytest.mark.parametrize("scheme", ["OFSGP", "public XOR"])
def test_views_of_the_two_answers_have_nothing_in_common(scheme: str, name: str) -> None:
    small = SMALLEST[scheme](name)
    yes, no = (
        next(one for one in small.inputs if small.answer(*one) is answer)
        for answer in (True, False)
    )
    blinders = np.zeros((1, small.blinders), dtype=np.uint8)
    seen = view(small.encoding, *small.messages(*yes, blinders))
    others = solved(small.group, small.sequence(*no), seen)
    again = view(small.encoding, *small.messages(*no, others))
    # All but the last element can be the same; the product is not.
    assert np.array_equal(again[:, :-1], seen[:, :-1])
    assert again[0, -1] != seen[0, -1]


# -- all randomness, enumerated -----------------------------------------------------------------


def all_blinders(order: int, small: Small) -> Ranks:
    """R1 and R2 of one position, each pair once.

    Positions that fill up a word have R2 throughout: they show the identity, and nothing else.
    """
    pairs = np.stack(np.divmod(np.arange(order**2), order), axis=1).astype(np.uint8)
    return pairs[:, [0, *[1] * (small.blinders - 1)]]


def occurrences(small: Small, messages: tuple[Bytes, Bytes]) -> Counts:
    """How often each view occurs: three elements."""
    seen, order = view(small.encoding, *messages).astype(np.intp), small.group.order
    assert not seen[:, 2:-1].any()
    code = (seen[:, 0] * order + seen[:, 1]) * order + seen[:, -1]
    return np.bincount(code, minlength=order**3)


@every_group
def test_joint_view_over_all_randomness_is_the_simulators(name: str) -> None:
    small = SMALLEST["public XOR"](name)
    order = small.group.order
    blinders = all_blinders(order, small)
    assert small.matcher.length == 1
    views: dict[bool, Counts] = {}
    for x, interest in small.inputs:
        counts = occurrences(small, small.messages(x, interest, blinders))
        assert counts.max() == 1 and counts.sum() == order**2
        assert np.array_equal(counts, views.setdefault(x != interest["y"], counts))
    assert not (views[True] & views[False]).any()
    uniform = np.zeros_like(blinders)
    uniform[:, :2] = blinders[:, :2]
    small.encoding.planted = uniform
    for answer, counts in views.items():
        unused = np.zeros((order**2, 1, small.encoding.segment_randomness), dtype=np.uint8)
        messages = small.encoding.simulate(np.full(order**2, answer), unused)
        assert np.array_equal(occurrences(small, messages), counts)


@lru_cache
def table_of(name: str) -> Ranks:
    """Products by rank, from the tuples."""
    members = twin.elements(name)
    rank = {element: i for i, element in enumerate(members)}
    rows = [[rank[twin.product([p, q])] for q in members] for p in members]
    return np.array(rows, dtype=np.uint8)


def last_elements(table: Ranks, given: list[int]) -> Iterator[tuple[Counts, Counts]]:
    """All four blinders of five elements: the first four blinded ones, coded, and the last one."""
    order = len(table)
    inverses = np.argmin(table, axis=1).astype(np.uint8)  # p q = 1, rank 0
    every = np.arange(order, dtype=np.uint8)
    r3, r4 = every[:, None], every[None, :]
    s1, s2, s3, s4, s5 = given
    fourth = table[table[inverses[r3], s4], r4].astype(np.intp)
    fifth = np.broadcast_to(table[inverses[r4], s5], fourth.shape)
    for r1, r2 in product(range(order), repeat=2):
        first, second = int(table[s1, r1]), int(table[table[inverses[r1], s2], r2])
        third = table[table[inverses[r2], s3], r3].astype(np.intp)
        yield (((first * order + second) * order + third) * order + fourth), fifth


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        ("public AND", "A5"),
        ("OFSGP", "A5"),
        ("FSGP", "A5"),
        pytest.param("public AND", "S5", marks=pytest.mark.slow),
    ],
)
def test_joint_view_of_two_positions_over_all_randomness(scheme: str, name: str) -> None:
    small, table = SMALLEST[scheme](name), table_of(name)
    assert small.matcher.length == 2
    lasts: dict[bool, Ranks] = {}
    for x, interest in small.inputs:
        given = small.sequence(x, interest)[0]
        last = np.full(len(table) ** 4, 255, dtype=np.uint8)
        for codes, fifth in last_elements(table, [*given[:4].tolist(), int(given[-1])]):
            last[codes] = fifth
        # As many choices as first four elements, and none of those is left out: each occurs once.
        assert last.max() < len(table)
        assert np.array_equal(last, lasts.setdefault(small.answer(x, interest), last))
    assert (lasts[True] != lasts[False]).all()


# -- the real size, sampled ---------------------------------------------------------------------

SAMPLES = 3000 if effort.everything else 1200
SCHEMA = Schema(a=UInt(4), b=UInt(4))
EVENT = {"a": 9, "b": 3}
INTERESTS = {"point": "a = 9 AND b = 3", "all": "TRUE", "other": "a = 8 AND b = 3", "none": "FALSE"}
REST = [*INTERESTS][1:]
MATCHING = ("point", "all")


@lru_cache
def matcher_of(name: str) -> OFSGPMatch:
    return OFSGPMatch(SCHEMA, 3, group=name)


@lru_cache
def simulated(name: str, answer: bool) -> Ranks:
    encoding = matcher_of(name).encoding
    rng = np.random.default_rng([20_261_121, answer])
    shape = SAMPLES, len(encoding.segments), encoding.segment_randomness
    randomness = rng.integers(0, 256, shape, dtype=np.uint8)
    messages = encoding.simulate(np.full(SAMPLES, answer), randomness)
    return view(encoding, *messages)


def real(name: str, interest: str) -> Ranks:
    matcher = matcher_of(name)
    seed = SEED.pair(interest)
    events = matcher.publisher(seed).encode([EVENT] * SAMPLES, range(SAMPLES))
    interests = matcher.subscriber(seed).encode(INTERESTS[interest], range(SAMPLES))
    answers = matcher.broker().match(events, interests)
    assert answers.tolist() == [interest in MATCHING] * SAMPLES
    bodies = (messages[:, ROUND_HEADER_BYTES:] for messages in (events, interests))
    return view(matcher.encoding, *bodies)


def compared(first: Ranks, second: Ranks, cells: int) -> PValues:
    """p-values of "both samples have the same distribution", for each column of values."""
    columns = first.shape[1]

    def counted(values: Ranks) -> Counts:
        codes = values.astype(np.intp) + cells * np.arange(columns)
        return np.bincount(codes.reshape(-1), minlength=cells * columns).reshape(columns, cells)

    a, b = counted(first), counted(second)
    square = ((a - b) ** 2 / np.maximum(a + b, 1)).sum(axis=1)
    freedom = np.maximum((a + b > 0).sum(axis=1) - 1, 1)
    return np.asarray(stats.chi2.sf(square, freedom))


def elements(group: Group, first: Ranks, second: Ranks) -> PValues:
    """Each position of the sequence; the first, the last and the trailer among them."""
    return compared(first, second, group.order)


def neighbours(group: Group, first: Ranks, second: Ranks) -> PValues:
    """Two elements next to one another, each in one of ten classes."""
    width = group.order // 10
    a, b = (rows[:, :-1] // width * 10 + rows[:, 1:] // width for rows in (first, second))
    return compared(a, b, 100)


def products(group: Group, first: Ranks, second: Ranks) -> PValues:
    """Products of two neighbours, and of random stretches, but for the whole."""
    rng = np.random.default_rng(1)
    starts = rng.integers(0, first.shape[1] - 1, 40)
    lengths = rng.integers(3, 200, 40)

    def values(rows: Ranks) -> Ranks:
        out = [group.multiplication[rows[:, :-1], rows[:, 1:]]]
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            part = rows[:, start : min(start + length, rows.shape[1])]
            whole = np.zeros(len(rows), dtype=np.uint8)
            for column in part.T:
                whole = group.multiplication[whole, column]
            out.append(whole[:, None])
        return np.hstack(out)

    return compared(values(first), values(second), group.order)


Statistic = Callable[[Group, Ranks, Ranks], PValues]
STATISTICS: list[Statistic] = [elements, neighbours, products]


@every_group
@pytest.mark.parametrize(
    "interest", ["point", *(pytest.param(name, marks=pytest.mark.slow) for name in REST)]
)
def test_real_messages_look_like_simulated_ones(name: str, interest: str) -> None:
    group, other = GROUPS[name], simulated(name, interest in MATCHING)
    found = real(name, interest)
    assert found.shape == (SAMPLES, 2 * 4**3 * 16 + 1)
    for statistic in STATISTICS:
        assert corrected(statistic(group, found, other)) > FAMILY_ERROR


@every_group
@pytest.mark.parametrize("answer", [True, False])
def test_simulated_messages_have_the_given_answer(name: str, answer: bool) -> None:
    group, rows = GROUPS[name], simulated(name, answer)
    whole = np.zeros(SAMPLES, dtype=np.uint8)
    for column in rows.T:
        whole = group.multiplication[whole, column]
    assert set(whole.tolist()) == {group.alpha if answer else 0}


def one_round(blinders: Ranks) -> None:
    blinders[:] = blinders[0]


def without_odd(blinders: Ranks) -> None:
    blinders[:, ::2] = 0


def without_even(blinders: Ranks) -> None:
    blinders[:, 1::2] = 0


def twice_each(blinders: Ranks) -> None:
    blinders[:, 1::2] = blinders[:, ::2]


def without_the_last(blinders: Ranks) -> None:
    blinders[:, -1] = 0


def half_of_the_elements(blinders: Ranks) -> None:
    blinders //= 2


BROKEN: list[tuple[Callable[[Ranks], None], Statistic]] = [
    (one_round, elements),
    (one_round, neighbours),
    (without_odd, products),
    (without_even, products),
    (twice_each, elements),
    (without_the_last, elements),
    (half_of_the_elements, elements),
]


@every_group
@pytest.mark.parametrize(("spoil", "statistic"), BROKEN)
def test_statistics_tell_a_broken_encoder_from_the_simulator(
    name: str, spoil: Callable[[Ranks], None], statistic: Statistic
) -> None:
    matcher, rng = matcher_of(name), np.random.default_rng(3)
    encoding = PlantedEncoding(matcher.group, matcher.length)
    encoding.planted = rng.integers(
        0, matcher.group.order, (SAMPLES, 2 * positions(encoding)), dtype=np.uint8
    )
    spoil(encoding.planted)
    index = matcher._index(0, matcher.length)
    bits = all_rows(8)[9 * 16 + 3][index]
    prepared = matcher.prepare(INTERESTS["point"])
    ranks = matcher._interstitials(prepared, 0, matcher.length + 1)
    unused = np.zeros((SAMPLES, 1, 0), dtype=np.uint8)
    messages = encoded(encoding, np.tile(bits, (SAMPLES, 1)), np.tile(ranks, (SAMPLES, 1)), unused)
    found = view(encoding, *messages)
    assert corrected(statistic(matcher.group, found, simulated(name, True))) < 1e-30
