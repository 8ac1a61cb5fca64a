"""FSGPMatch, OFSGPMatch, PublicFunctionMatch, UGPMatch: encrypted answers are plaintext answers, in
whole or in pieces, and whatever does not fit is refused.
"""

from __future__ import annotations

import copy
import json
import pickle
import runpy
import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ccbps.matching.group.group_match as group_match
from ccbps import Bool, Category, OneTimePad, Schema, UInt
from ccbps.algebra import S5
from ccbps.circuits import Circuit, CircuitBuilder, Gate, Op, bristol
from ccbps.circuits.networks import NETWORKS
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    EventError,
    ParameterError,
    PredicateTypeError,
    UnknownAttributeError,
    UnsupportedPredicateError,
)
from ccbps.forms.bits import event_bits
from ccbps.forms.circuit import predicate_circuit
from ccbps.matching import (
    FSGPMatch,
    OFSGPMatch,
    PublicFunctionMatch,
    UGPMatch,
)
from ccbps.matching.group.group_match import GroupMatch
from ccbps.programs.barrington import preserving_length
from ccbps.wire import ROUND_HEADER_BYTES, TAG_BYTES, Cause
from tests.support.circuit_strategies import all_rows
from tests.support.effort import examples
from tests.support.one_time import SEED, answered, in_two_processes
from tests.support.program_strategies import every_formula, seeds, shallow_circuits
from tests.support.round_subjects import (  # noqa: F401
    Subject,
    group_subjects,
    made_subject,
    several_segments,
)
from tests.support.strategies import predicates, record, rows, schemas, small_types

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]

FIXED: list[type[FSGPMatch | OFSGPMatch]] = [FSGPMatch, OFSGPMatch]
fixed_structure = pytest.mark.parametrize("kind", FIXED, ids=["FSGP", "OFSGP"])
every_group = pytest.mark.parametrize("group", ["A5", "S5"])


def matched(matcher: GroupMatch, events: Any, interests: Any) -> list[bool]:
    answers: list[bool] = answered(matcher, events, interests).tolist()
    return answers


# -- every small circuit ------------------------------------------------------------------------


def expected_of(formulas: list[Circuit]) -> list[bool]:
    """Values on all inputs, one formula after the other."""
    table = all_rows(formulas[0].inputs)
    return [bool(value) for formula in formulas for value in formula.evaluate(table)[:, 0]]


@fixed_structure
@every_group
@pytest.mark.parametrize(
    ("inputs", "step"), [(1, 1), (2, 1), (3, 29), pytest.param(3, 1, marks=pytest.mark.slow)]
)
def test_every_formula_of_depth_2_is_matched_on_all_inputs(
    kind: type[FSGPMatch | OFSGPMatch], group: str, inputs: int, step: int
) -> None:
    # Of those of three inputs every 29th; all with the slow tests.
    formulas = every_formula(inputs, 2)
    assert inputs < 3 or len(formulas) == 8 + 72 + 6408
    formulas = formulas[::step]
    count = 2**inputs
    matcher = kind(Schema(x=UInt(inputs)), 2, group=group)
    events = {"x": np.tile(np.arange(count), len(formulas))}
    column = DictionaryColumn(formulas, np.repeat(np.arange(len(formulas)), count))
    found = matched(matcher, events, column)
    assert found == expected_of(formulas)


def assert_public_formulas(formulas: list[Circuit], bits: int, group: str) -> None:
    """The first `bits` inputs the publisher's, the others the subscriber's."""
    inputs = formulas[0].inputs
    schema, private = Schema(x=UInt(bits)), Schema(y=UInt(inputs - bits))
    xs, ys = np.divmod(np.arange(2**inputs), 2 ** (inputs - bits))
    for formula in formulas:
        matcher = PublicFunctionMatch(schema, formula, private, group=group)
        found = matched(matcher, {"x": xs}, [{"y": int(y)} for y in ys])
        assert found == expected_of([formula])


@every_group
@pytest.mark.parametrize("bits", [1, 2])
@pytest.mark.parametrize("part", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_formulas_of_private_values_are_matched_on_all_inputs(
    part: bool, group: str, bits: int
) -> None:
    # A part of the formulas of two inputs and of those of three, another one in each run.
    small, large = every_formula(2, 2), every_formula(3, 2)
    if part:
        small, large = small[group == "A5" :: 11], large[bits + 2 * (group == "A5") :: 151]
    if bits == 1:
        assert_public_formulas(small, 1, group)
    assert_public_formulas(large, bits, group)


@given(
    circuit=shallow_circuits(max_depth=3, max_inputs=4),
    more=st.integers(0, 1),
    kind=st.sampled_from(FIXED),
    group=st.sampled_from(["A5", "S5"]),
)
@settings(max_examples=examples(60))
def test_any_circuit_is_matched_on_all_inputs(
    circuit: Circuit, more: int, kind: type[FSGPMatch | OFSGPMatch], group: str
) -> None:
    matcher = kind(Schema(x=UInt(circuit.inputs)), circuit.depth + more, group=group)
    events = {"x": np.arange(2**circuit.inputs)}
    assert matched(matcher, events, circuit) == expected_of([circuit])


# -- predicates ---------------------------------------------------------------------------------


@given(
    schema=schemas(small_types(), max_attributes=3),
    kind=st.sampled_from(FIXED),
    group=st.sampled_from(["A5", "S5"]),
    data=st.data(),
)
@settings(max_examples=examples(80))
def test_answers_are_the_plaintext_meaning(
    schema: Schema, kind: type[FSGPMatch | OFSGPMatch], group: str, data: st.DataObject
) -> None:
    drawn = data.draw(predicates(schema))
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    events = schema.encode([record(row) for row in data.draw(rows(schema, max_size=5))])
    matcher = kind(schema, 3, group=group)
    circuit = predicate_circuit(predicate)
    if preserving_length(circuit) > 4**3:
        depth = circuit.depth
        with pytest.raises(UnsupportedPredicateError, match=f"depth {depth} and .* any of depth 3"):
            matcher.subscriber(SEED).encode(predicate, [0])
    else:
        expected = predicate.evaluate(events).tolist()
        assert matched(matcher, events, predicate) == expected


QUOTES = Schema(issue=Category(["IBM", "SAP"], nullable=True), price=UInt(3), hot=Bool())
TEXTS = ["issue = 'SAP' AND price < 5", "hot OR issue IS NULL", "price BETWEEN 2 AND 3"]
RECORDS: list[dict[str, Any]] = [
    {"issue": issue, "price": price, "hot": hot}
    for issue, price, hot in product(["IBM", "SAP", None], range(8), [False, True])
]


def answers_of(text: str) -> list[bool]:
    answers: list[bool] = QUOTES.parse(text).evaluate(QUOTES.encode(RECORDS)).tolist()
    return answers


@fixed_structure
@pytest.mark.parametrize("text", TEXTS)
def test_interest_may_be_text_a_predicate_or_a_circuit(
    kind: type[FSGPMatch | OFSGPMatch], text: str
) -> None:
    matcher, predicate = kind(QUOTES, 3), QUOTES.parse(text)
    assert set(answers_of(text)) == {True, False}
    for interest in (text, predicate, predicate_circuit(predicate)):
        assert matched(matcher, RECORDS, interest) == answers_of(text)


@every_group
def test_different_interests_in_one_batch_are_those_one_by_one(group: str) -> None:
    matcher = OFSGPMatch(QUOTES, 3, group=group)
    which = np.random.default_rng(1).integers(0, 3, 50)
    together = matcher.subscriber(SEED).encode(DictionaryColumn(TEXTS, which), range(50))
    alone = matcher.subscriber(SEED)
    for number, choice in enumerate(which.tolist()):
        assert np.array_equal(alone.encode(TEXTS[choice], [number])[0], together[number])


@every_group
def test_batch_cut_into_blocks_is_the_same_batch(
    monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    matcher = OFSGPMatch(QUOTES, 2, group=group)
    column = DictionaryColumn(["hot", "issue IS NULL"], np.arange(48) // 5 % 2)

    def exchange() -> tuple[bytes, bytes, list[bool]]:
        sent = matcher.publisher(SEED).encode(RECORDS, range(48))
        wanted = matcher.subscriber(SEED).encode(column, range(48))
        return sent.tobytes(), wanted.tobytes(), matcher.broker().match(sent, wanted).tolist()

    whole = exchange()
    monkeypatch.setattr(group_match, "BLOCK_POSITIONS", 7 * matcher.group.padded(matcher.length))
    assert exchange() == whole
    assert True in whole[2] and False in whole[2]


# -- public functions ---------------------------------------------------------------------------

HAMMING = PublicFunctionMatch.hamming(4, limit=1)
BIT = Schema(x=UInt(1))


SIX = [pytest.param(6, 7, {"network": n}, marks=pytest.mark.slow) for n in (None, *NETWORKS)]
SMALL = [(bits, 1, {"group": group}) for bits in range(1, 6) for group in ("A5", "S5")]


@pytest.mark.parametrize(("bits", "step", "options"), [*SMALL, *SIX])
def test_hamming_with_a_public_limit_counts_differing_bits(
    bits: int, step: int, options: dict[str, Any]
) -> None:
    xs, ys = np.divmod(np.arange(4**bits)[::step], 2**bits)
    interests = DictionaryColumn([{"y": y} for y in range(2**bits)], ys)
    for limit in range(-1, bits + 1):
        matcher = PublicFunctionMatch.hamming(bits, limit=limit, **options)
        expected = (np.bitwise_count(xs ^ ys) <= limit).tolist()
        assert matched(matcher, {"x": xs}, interests) == expected


@pytest.mark.parametrize(
    ("bits", "network"), [*product([1, 2, 3, 4], [None, *NETWORKS]), (5, None), (6, None)]
)
def test_hamming_with_a_private_limit_counts_differing_bits(bits: int, network: Any) -> None:
    # All triples of x, y and the limit t, or some of them for wider x.
    step = {4: 5, 5: 2001, 6: 8001}.get(bits, 1)
    limits = range(2 ** bits.bit_length())
    triples = list(product(range(2**bits), range(2**bits), limits))[step // 2 :: step]
    assert len({t for _, _, t in triples}) >= min(4, len(limits))
    matcher = PublicFunctionMatch.hamming(bits, network=network)
    answers = matched(
        matcher, {"x": [x for x, _, _ in triples]}, [{"y": y, "t": t} for _, y, t in triples]
    )
    assert answers == [(x ^ y).bit_count() <= t for x, y, t in triples]
    assert len({*answers}) == 2


def test_hamming_takes_4_to_the_depth_of_the_network() -> None:
    # x ^ y is one instruction: a batcher network of 4 lines has depth 3, its lines 2 or 3.
    hamming = partial(PublicFunctionMatch.hamming, network="batcher")
    assert hamming(2, limit=0).length == 4
    assert hamming(4, limit=0).length == 16
    assert hamming(4, limit=1).length == 64


@pytest.mark.parametrize("limit", [None, 0, 1, 2])
def test_hamming_takes_no_more_than_any_network(limit: int | None) -> None:
    lengths = [
        PublicFunctionMatch.hamming(4, limit=limit, network=network).length for network in NETWORKS
    ]
    assert PublicFunctionMatch.hamming(4, limit=limit).length <= min(lengths)


@given(circuit=shallow_circuits(max_depth=3, max_inputs=4), data=st.data())
@settings(max_examples=examples(60))
def test_private_values_may_be_any_of_the_inputs(circuit: Circuit, data: st.DataObject) -> None:
    builder = CircuitBuilder()
    n = circuit.inputs
    # One more input for each party, so that neither has none.
    bits = data.draw(st.integers(1, n + 1))
    wires = builder.inputs(n + 2)
    used = [*wires[:bits], *wires[bits + 1 :]][:n]
    shifted = builder.build(*builder.embed(circuit, used))
    schema, private = Schema(x=UInt(bits)), Schema(y=UInt(n + 2 - bits))
    matcher = PublicFunctionMatch(schema, shifted, private)
    xs, ys = np.divmod(np.arange(2 ** (n + 2)), 2 ** (n + 2 - bits))
    found = matched(matcher, {"x": xs}, [{"y": int(y)} for y in ys])
    assert found == expected_of([shifted])


BRISTOL = Path(__file__).parents[1] / "vectors" / "circuits"
THREE = Schema(x=UInt(3)), Schema(y=UInt(3))


@every_group
@pytest.mark.parametrize("case", json.loads((BRISTOL / "bristol.json").read_text())["cases"])
def test_bristol_file_is_matched_as_it_computes_on_numbers(
    group: str, case: dict[str, Any]
) -> None:
    file = bristol.load(BRISTOL / case["file"])
    matcher = PublicFunctionMatch(THREE[0], file, THREE[1], group=group)
    xs, ys = np.divmod(np.arange(64), 8)
    found = matched(matcher, {"x": xs}, [{"y": int(y)} for y in ys])
    assert found == [bool(out) for out in case["out"]]
    # Everybody who has the circuit, from whatever source, has the same matcher.
    same = PublicFunctionMatch(THREE[0], file.most_significant_first(), THREE[1], group=group)
    assert same.fingerprint == pickle.loads(pickle.dumps(matcher)).fingerprint
    assert same.fingerprint == matcher.fingerprint
    # The file's own order is another function, of the same widths: 1 < 4 is false in it.
    wrong = PublicFunctionMatch(THREE[0], file.circuit, THREE[1], group=group)
    assert case["out"][1 * 8 + 4] == 1 and matched(wrong, {"x": [1]}, {"y": 4}) == [False]


def test_bristol_values_are_the_attributes() -> None:
    file = bristol.load(BRISTOL / "less_than_3bit.txt")
    for schema, private in (
        (Schema(x=UInt(2)), Schema(y=UInt(4))),
        (Schema(a=UInt(1), b=UInt(2)), Schema(y=UInt(3))),
        (Schema(x=UInt(3)), Schema(y=UInt(2), z=UInt(1))),
        (Schema(x=UInt(3)), Schema(y=UInt(4))),
    ):
        with pytest.raises(ParameterError, match="values must be the attributes") as caught:
            PublicFunctionMatch(schema, file, private)
        assert "the file's have 3, 3 bits" in str(caught.value)
        assert all(repr(name) in str(caught.value) for name in (*schema, *private))
    # The old format has two operands always: one of no bits is none.
    one = bristol.loads("1 3\n2 0 1\n\n2 1 0 1 2 AND\n")
    with pytest.raises(ParameterError, match="private 'y' 1; the file's have 2 bits"):
        PublicFunctionMatch(Schema(x=UInt(1)), one, Schema(y=UInt(1)))
    with pytest.raises(ParameterError, match=r"got BristolCircuit; pass its most_significant"):
        OFSGPMatch(Schema(x=UInt(6)), 2).subscriber(SEED).encode(file, [0])  # type: ignore[arg-type]


def test_private_values_are_encoded_as_their_attributes() -> None:
    # Is the event's issue the private one, or missing at both?
    schema = Schema(issue=Category(["IBM", "SAP"], nullable=True))
    private = Schema(issue=Category(["IBM", "SAP"], nullable=True))
    builder = CircuitBuilder()
    x, y = builder.inputs(2), builder.inputs(2)
    same = builder.all_of(~(a ^ b) for a, b in zip(x, y, strict=True))
    matcher = PublicFunctionMatch(schema, builder.build(same), private)
    assert matcher.private_names == ("issue",)
    values = [{"issue": value} for value in ("IBM", "SAP", None)]
    pairs = list(product(values, values))
    found = matched(matcher, [x for x, _ in pairs], [y for _, y in pairs])
    assert found == [x == y for x, y in pairs]


# -- the universal circuit ----------------------------------------------------------------------


@every_group
@pytest.mark.parametrize(
    ("inputs", "depth"),
    [(1, 0), (2, 0), (3, 0), (1, 1), pytest.param(2, 1, marks=pytest.mark.slow)],
)
def test_universal_circuit_runs_every_formula(inputs: int, depth: int, group: str) -> None:
    formulas = every_formula(inputs, depth)
    matcher = UGPMatch(Schema(x=UInt(inputs)), depth, group=group)
    for start in range(0, len(formulas), 8):
        some = formulas[start : start + 8]
        events = {"x": np.tile(np.arange(2**inputs), len(some))}
        column = DictionaryColumn(some, np.repeat(np.arange(len(some)), 2**inputs))
        assert matched(matcher, events, column) == expected_of(some)


def test_universal_circuit_takes_predicates() -> None:
    schema = Schema(hot=Bool(nullable=True))
    matcher = UGPMatch(schema, 1)
    for text in ("hot", "hot IS NULL", "NOT hot"):
        events = [{"hot": value} for value in (True, False, None)]
        expected = schema.parse(text).evaluate(schema.encode(events)).tolist()
        assert matched(matcher, events, text) == expected


@every_group
def test_elements_of_the_universal_program_are_the_publishers_for_event_bits_only(
    group: str,
) -> None:
    matcher = UGPMatch(Schema(x=UInt(2)), 0, group=group)
    index = matcher._index(0, matcher.length)
    assert set(index.tolist()) == {-1, 0, 1}
    for formula in every_formula(2, 0):
        matcher.prepare(formula)
        assert np.array_equal(matcher._index(0, matcher.length), index)


@pytest.mark.parametrize("depth", [-1, 2, 0.5, 1.0, True, "1", None])
def test_universal_circuit_has_depth_0_or_1(depth: Any) -> None:
    with pytest.raises(ParameterError, match="depth must be a whole number from 0 to 1, got"):
        UGPMatch(BIT, depth)


def test_universal_circuit_refuses_what_does_not_fit() -> None:
    subscriber = UGPMatch(Schema(x=UInt(2)), 0).subscriber(SEED)
    with pytest.raises(UnsupportedPredicateError, match=r"depth 1 and .* any of depth 0"):
        subscriber.encode("x = 3", [0])
    with pytest.raises(ParameterError, match=r"must have 2 inputs, .* got 1"):
        subscriber.encode(Circuit(1, (), (0,)), [0])
    with pytest.raises(ParameterError, match=r"an interest is a predicate .* or a Circuit"):
        subscriber.encode({"x": 3}, [0])
    with pytest.raises(ParameterError, match="take OFSGPMatch, which hides as much"):
        UGPMatch(Schema(x=UInt(40)), 1)


@every_group
@pytest.mark.parametrize("cut", [False, True], ids=["one segment", "several segments"])
def test_message_uses_every_byte_of_its_round_and_no_other(
    monkeypatch: pytest.MonkeyPatch, group: str, cut: bool
) -> None:
    if cut:
        several_segments(monkeypatch)
    matcher = OFSGPMatch(Schema(x=UInt(5)), 2, group=group)
    size = matcher.randomness_bytes
    secret = np.random.default_rng(9).integers(0, 256, 3 * size, np.uint8)

    def message(pad: Bytes) -> Bytes:
        return matcher.subscriber(OneTimePad(pad.tobytes())).encode("x > 3", [1])

    first = message(secret)
    secret[:size], secret[2 * size :] = 1, 2
    assert np.array_equal(first, message(secret))
    parts = len(matcher.encoding.segments)
    last = size // parts - 1
    for number in range(parts):  # other elements, and another tag, of which only the first counts
        for offset in (0, last - TAG_BYTES, last):
            changed = secret.copy()
            changed[size + number * (size // parts) + offset] ^= 1
            spare = offset == last - TAG_BYTES or (number and offset == last)
            assert spare or not np.array_equal(first, message(changed))


# -- pieces -------------------------------------------------------------------------------------


@pytest.fixture(params=["A5", "S5"])
def cut_matcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OFSGPMatch:
    """Return a matcher whose messages have three segments."""
    several_segments(monkeypatch)
    matcher = OFSGPMatch(Schema(x=UInt(5)), 2, group=request.param)
    assert len(matcher.encoding.segments) == 3
    return matcher


def sides_of(matcher: OFSGPMatch, count: int = 1) -> tuple[Bytes, Bytes]:
    """Return event and interest messages of `count` rounds, all of them matches."""
    events = matcher.publisher(SEED).encode({"x": [4] * count}, range(count))
    return events, matcher.subscriber(SEED).encode("x > 3", range(count))


def cut_anywhere(message: Bytes, rng: np.random.Generator) -> list[Bytes]:
    edges = [0, *sorted(rng.integers(0, len(message) + 1, 6).tolist()), len(message)]
    return [message[a:b] for a, b in pairwise(edges)]


@group_subjects
def test_pieces_are_the_message_and_may_be_cut_anywhere(subject: Subject) -> None:
    matcher, xs = subject.matcher, list(range(8))
    rng = np.random.default_rng(10)
    events = matcher.publisher(SEED).encode({"x": xs}, range(8))
    interests = matcher.subscriber(SEED).encode(subject.interest, range(8))
    publisher, subscriber = matcher.publisher(SEED), matcher.subscriber(SEED)
    for x in xs:
        sent = list(publisher.encode_chunks([{"x": x}], x))
        wanted = list(subscriber.encode_chunks(subject.interest, x))
        assert len(sent) == subject.parts and len(wanted) == len(sent) + 1
        assert np.array_equal(np.concatenate(sent), events[x])
        assert np.array_equal(np.concatenate(wanted), interests[x])
        for pieces in (
            (iter(sent), iter(wanted)),
            (cut_anywhere(events[x], rng), cut_anywhere(interests[x], rng)),
            ([events[x]], [piece.tobytes() for piece in wanted]),
            (events[x].reshape(-1, 1), interests[x].reshape(-1, 1)),
        ):
            assert matcher.broker().match_chunks(*pieces) is subject.answer(x)
    answers = matcher.broker().match(events, interests)
    assert answers.tolist() == [subject.answer(x) for x in xs]


@every_group
def test_pieces_of_a_labelled_pair_are_its_message(group: str) -> None:
    matcher = OFSGPMatch(QUOTES, 1, group=group)
    pieces = matcher.subscriber(SEED).encode_chunks("hot", 4, pair="alice")
    whole = matcher.subscriber(SEED.pair("alice")).encode("hot", [4])
    assert np.array_equal(np.concatenate([*pieces]), whole[0])


@pytest.mark.parametrize("side", ["event", "interest"])
def test_pieces_that_are_no_whole_message_are_refused(cut_matcher: OFSGPMatch, side: str) -> None:
    (event,), (interest,) = sides_of(cut_matcher)
    message = event if side == "event" else interest

    def answer(*pieces: Bytes) -> bool:
        sides = (pieces, [interest]) if side == "event" else ([event], pieces)
        return cut_matcher.broker().match_chunks(*sides)

    empty = message[:0]
    assert answer(message) is answer(empty, message, empty, empty) is True
    for missing in (1, 8, 30, len(event) - 20, len(event) - 8, len(event)):
        with pytest.raises(DecodeError, match=f"the {side} message ends too early"):
            answer(message[:-missing])
    for more in ([np.zeros(1, np.uint8)], [empty, event]):
        with pytest.raises(DecodeError, match=f"the {side} message goes on after its end"):
            answer(message, *more)
    with pytest.raises(DecodeError, match=f"the {side} message goes on after its end"):
        answer(np.append(message, message[:1]))


def test_pieces_are_refused_for_the_cause_of_the_message(cut_matcher: OFSGPMatch) -> None:
    matcher = cut_matcher
    (events,), (interests,) = sides_of(matcher)
    spoiled = [(7, 1, Cause.PAIRING), (1, 128, Cause.PAIRING), (0, 3, Cause.EVENT_KIND)]
    for place, flip, cause in spoiled:
        other = events.copy()
        other[place] ^= flip
        with pytest.raises(DecodeError, match=cause.text):
            matcher.broker().match_chunks([other], [interests])
    for place, cause in ((-8, Cause.PRODUCT), (-7, Cause.SEGMENT), (-1, Cause.SEGMENT)):
        other = interests.copy()
        other[place] ^= 128
        with pytest.raises(DecodeError, match=cause.text):
            matcher.broker().match_chunks([events], [other])
    for segment in matcher.encoding.segments:
        other = events.copy()
        other[ROUND_HEADER_BYTES:][segment.place] = 255 if matcher.group is S5 else 0
        with pytest.raises(DecodeError, match=Cause.ELEMENT.text):
            matcher.broker().match_chunks([other], [interests])


def test_segments_of_another_round_or_place_are_refused_in_every_row(
    cut_matcher: OFSGPMatch,
) -> None:
    matcher = cut_matcher
    events, interests = sides_of(matcher, 200)
    assert matcher.broker().match(events, interests).all()
    start = ROUND_HEADER_BYTES
    parts = [slice(start + s.tag.start, start + s.place.stop) for s in matcher.encoding.segments]
    parts.append(slice(-8, None))
    # The same part of the next round on both sides: headers agree, tags agree side with side, and
    # the product is any element, in 1 of 30 rows one that is an answer.
    for part in parts[1:]:
        mixed = [events.copy(), interests.copy()]
        for message in mixed if part.start != -8 else mixed[1:]:
            message[:, part] = np.roll(message[:, part], 1, axis=0)
        causes = matcher.broker().examine(*mixed)[1]
        assert set(causes.tolist()) == {Cause.SEGMENT}
    # The same part of both sides exchanged.
    for part in parts[1:3]:
        mixed = [events.copy(), interests.copy()]
        mixed[0][:, part], mixed[1][:, part] = interests[:, part], events[:, part]
        assert set(matcher.broker().examine(*mixed)[1].tolist()) == {Cause.SEGMENT}
    # Two parts of one message exchanged, on both sides.
    mixed = [events.copy(), interests.copy()]
    width = min(part.stop - part.start for part in parts[1:3])
    first, second = (slice(part.start, part.start + width) for part in parts[1:3])
    for message, source in zip(mixed, (events, interests), strict=True):
        message[:, first], message[:, second] = source[:, second], source[:, first]
    assert set(matcher.broker().examine(*mixed)[1].tolist()) == {Cause.SEGMENT}


@every_group
def test_pieces_mixed_missing_repeated_or_out_of_order_are_refused(
    monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    several_segments(monkeypatch)
    matcher = OFSGPMatch(Schema(x=UInt(6)), 2, group=group)
    publisher, subscriber = matcher.publisher(SEED), matcher.subscriber(SEED)
    sent = [[*publisher.encode_chunks({"x": 4}, r)] for r in (0, 1)]
    wanted = [[*subscriber.encode_chunks("x > 3", r)] for r in (0, 1)]
    parts = len(sent[0])
    assert parts == 3 and len({len(piece) for piece in sent[0][1:]}) == 1

    def whole(number: int) -> list[tuple[int, int]]:
        """Round and part of each piece; the interest's end is part `parts`."""
        return [(number, part) for part in range(parts + 1)]

    def orders() -> Iterable[list[tuple[int, int]]]:
        for rounds in product((0, 1), repeat=parts + 1):
            yield list(zip(rounds, range(parts + 1), strict=True))
        yield from (list(order) for order in permutations(whole(0)))
        for part, more in product(range(parts + 1), whole(0)):
            before, after = whole(0)[:part], whole(0)[part + 1 :]
            yield [*before, more, (0, part), *after]
            yield [*before, more, *after]
            yield before + after

    right = [(whole(number)[:parts], whole(number)) for number in (0, 1)]
    answered = 0
    for order in orders():
        # Both sides alike, and one side only.
        for ours, theirs in ((order, order), (order, whole(0)), (whole(0), order)):
            ours = [piece for piece in ours if piece[1] < parts]
            events = [sent[number][part] for number, part in ours]
            interests = [wanted[number][part] for number, part in theirs]
            if (ours, theirs) in right:
                assert matcher.broker().match_chunks(events, interests) is True
                answered += 1
                continue
            with pytest.raises(DecodeError):
                matcher.broker().match_chunks(events, interests)
    assert answered > 6


def test_pieces_are_bytes_and_nothing_is_cast() -> None:
    matcher = OFSGPMatch(QUOTES, 1)
    event = matcher.publisher(SEED).encode(RECORDS[:1], [0])[0]
    interest = matcher.subscriber(SEED).encode("hot", [0])[0]
    answer = matcher.broker().match_chunks([event], [interest])
    for same in (event.tobytes(), bytearray(event), memoryview(event.tobytes()), event.data):
        assert matcher.broker().match_chunks([same], [interest]) is answer  # type: ignore[list-item]
    wrong: list[Any] = [
        event.astype(np.int64), event.astype(np.float64), event.view(np.int8), event[None],
        event.view(np.bool_), event[:8].view(np.uint64), event.tolist(), 5, "text", None,
        memoryview(event[:8].tobytes()).cast("I"), np.float64(1),
    ]  # fmt: skip
    for piece in wrong:
        for pieces in ([piece], [event[:0], piece, event]):
            with pytest.raises(DecodeError, match="a piece of the event message must be bytes"):
                matcher.broker().match_chunks(pieces, [interest])
        with pytest.raises(DecodeError, match="a piece of the interest message must be bytes"):
            matcher.broker().match_chunks([event], [piece])


def test_pieces_take_one_event() -> None:
    matcher = OFSGPMatch(QUOTES, 1)
    publisher = matcher.publisher(SEED)
    for events in (RECORDS[:2], []):
        with pytest.raises(ParameterError, match=f"takes one event, got {len(events)}"):
            publisher.encode_chunks(events, 0)
    # Neither used the round.
    assert [*publisher.encode_chunks(RECORDS[:1], 0)]
    columns = {name: [value] for name, value in RECORDS[1].items()}
    same: list[Any] = [columns, RECORDS[1], RECORDS[1:2]]
    pieces = [[*matcher.publisher(SEED).encode_chunks(event, 1)] for event in same]
    assert len({piece.tobytes() for (piece,) in pieces}) == 1


def test_refused_event_uses_up_no_round() -> None:
    publisher = OFSGPMatch(QUOTES, 1).publisher(SEED)
    bad = {"issue": None, "price": 8, "hot": True}
    for encode in (publisher.encode, lambda rows, rounds: publisher.encode_chunks(rows, *rounds)):
        with pytest.raises(EventError, match="out of range"):
            encode([bad], [7])
    assert len(publisher.encode(RECORDS[:1], [7])) == 1


# -- altered messages ---------------------------------------------------------------------------

COUNT = 20
TWO = Circuit(5, (Gate(Op.AND, 3, 4),), (5,))


def exchanged(group: str) -> tuple[OFSGPMatch, Bytes, Bytes]:
    """A matcher and messages of `COUNT` rounds, all of them matches."""
    matcher = OFSGPMatch(Schema(x=UInt(5)), 1, group=group)
    events = matcher.publisher(SEED).encode({"x": [3] * COUNT}, range(COUNT))
    return matcher, events, matcher.subscriber(SEED).encode(TWO, range(COUNT))


def test_every_other_element_of_s5_is_another_product() -> None:
    matcher, *sides = exchanged("S5")
    for number, side in enumerate(sides):
        for place in (ROUND_HEADER_BYTES, ROUND_HEADER_BYTES + 17, side.shape[1] - 8):
            messages = [np.repeat(one[:1], 256, axis=0) for one in sides]
            messages[number][:, place] = np.arange(256)
            answers, causes = matcher.broker().examine(*messages)
            # One element gives alpha, one the identity; the bytes from 120 up are none.
            assert answers.sum() == 1
            assert (causes == Cause.NONE).sum() == 2
            last = place == side.shape[1] - 8 and number == 1
            assert (causes == (Cause.PRODUCT if last else Cause.ELEMENT)).sum() >= 136
            assert answers[side[0, place]]


@given(seed=seeds, group=st.sampled_from(["A5", "S5"]))
@settings(max_examples=15)
def test_no_flipped_bit_keeps_the_answer(seed: int, group: str) -> None:
    rng = np.random.default_rng(seed)
    for number in (0, 1):
        matcher, *sides = exchanged(group)
        messages = sides[number]
        for row in range(COUNT):
            place = int(rng.integers(0, messages.shape[1] if row % 4 else ROUND_HEADER_BYTES))
            messages[row, place] ^= np.uint8(1 << rng.integers(8))
        answers, causes = matcher.broker().examine(*sides)
        assert not (answers & (causes == 0)).any()
        headers = {Cause.EVENT_KIND, Cause.INTEREST_KIND, Cause.PAIRING}
        allowed = headers | {Cause.NONE, Cause.ELEMENT, Cause.PRODUCT, Cause.SEGMENT}
        assert set(causes.tolist()) <= allowed


def test_messages_of_the_other_group_are_refused() -> None:
    # 48 elements: 48 bytes in S5, and in A5 64 times six bits.
    schema = Schema(x=UInt(24))
    a5, s5 = OFSGPMatch(schema, 0), OFSGPMatch(schema, 0, group="S5")
    assert a5.event_bytes == s5.event_bytes and a5.fingerprint != s5.fingerprint
    events = {m: m.publisher(SEED).encode({"x": [1]}, [0]) for m in (a5, s5)}
    interests = {m: m.subscriber(SEED).encode("x >= 0", [0]) for m in (a5, s5)}
    for mine, other in ((a5, s5), (s5, a5)):
        assert mine.broker().match(events[mine], interests[mine]).all()
        for ours, theirs in ((other, mine), (mine, other), (other, other)):
            with pytest.raises(DecodeError, match=r"row 0: .*made for another matcher"):
                mine.broker().match(events[ours], interests[theirs])
        with pytest.raises(DecodeError, match="made for another matcher"):
            mine.broker().match_chunks(events[other], interests[other])


# -- arguments that do not fit ------------------------------------------------------------------


@fixed_structure
def test_predicate_that_is_too_deep_names_both_depths(
    kind: type[FSGPMatch | OFSGPMatch],
) -> None:
    text = "price = 3 AND hot AND issue = 'SAP'"
    depth = predicate_circuit(QUOTES.parse(text)).depth
    assert depth == 3
    with pytest.raises(
        UnsupportedPredicateError, match=r"depth 3 and .* any of depth 2: use a matcher of"
    ) as refusal:
        kind(QUOTES, 2).subscriber(SEED).encode(text, [0])
    assert refusal.value.text == text
    assert len(kind(QUOTES, 3).subscriber(SEED).encode(text, [0])) == 1
    with pytest.raises(UnsupportedPredicateError) as refusal:
        kind(QUOTES, 2).subscriber(SEED).encode(["hot", "hot", text], range(3))
    assert refusal.value.row == 2


@fixed_structure
def test_circuit_that_is_too_deep_is_balanced_first(kind: type[FSGPMatch | OFSGPMatch]) -> None:
    gates = (Gate(Op.AND, 0, 1), Gate(Op.AND, 4, 2), Gate(Op.AND, 5, 3))
    chain = Circuit(4, gates, (6,))
    assert chain.depth == 3
    matcher = kind(Schema(x=UInt(4)), 2)
    assert matched(matcher, {"x": [15, 14, 7]}, chain) == [True, False, False]
    with pytest.raises(UnsupportedPredicateError, match=r"depth 2 and .* any of depth 1"):
        kind(Schema(x=UInt(4)), 1).subscriber(SEED).encode(chain, [0])


@fixed_structure
@pytest.mark.parametrize(
    ("interest", "error", "message"),
    [
        (Circuit(2, (), (0,)), ParameterError, "must have 6 inputs, one for each bit .* got 2"),
        (Circuit(9, (), (0,)), ParameterError, "must have 6 inputs, one for each bit .* got 9"),
        (Circuit(6, (), (0, 1)), ParameterError, "must have one output, got 2"),
        (Circuit(6, (), ()), ParameterError, "must have one output, got 0"),
        ({"price": 3}, ParameterError, "an interest is a predicate .* or a Circuit, got dict"),
        (5, ParameterError, "an interest is a predicate .* or a Circuit, got int"),
        (None, ParameterError, "an interest is a predicate .* or a Circuit, got NoneType"),
        ([5], ParameterError, "an interest is a predicate .* or a Circuit, got int"),
        ("prise < 3", UnknownAttributeError, r"unknown attribute 'prise'.*closest is 'price'"),
        ("price < 'IBM'", PredicateTypeError, r"attribute 'price'"),
        ("price < :p", UnsupportedPredicateError, r"constants \(p\) need values; call bind first"),
        (Schema(price=UInt(4)).parse("price < 3"), ParameterError, "parsed for another schema"),
    ],
)  # fmt: skip
def test_interests_that_do_not_fit_are_refused(
    kind: type[FSGPMatch | OFSGPMatch], interest: Any, error: type[CcbpsError], message: str
) -> None:
    assert QUOTES.bits == 6
    with pytest.raises(error, match=message):
        kind(QUOTES, 3).subscriber(SEED).encode(interest, [0])


@fixed_structure
@pytest.mark.parametrize(
    ("depth", "group", "message"),
    [
        (-1, "A5", "depth must be a whole number from 0 to 14, got -1"),
        (1.0, "A5", "depth must be a whole number from 0 to 14, got 1.0"),
        (True, "A5", "depth must be a whole number from 0 to 14, got True"),
        ("2", "A5", "depth must be a whole number from 0 to 14, got '2'"),
        (15, "A5", "depth must be a whole number from 0 to 14, got 15"),
        (None, "A5", "give one of depth= and length="),
        (1, "A6", "group must be 'A5' or 'S5', got 'A6'"),
        (1, "a5", "group must be 'A5' or 'S5', got 'a5'"),
        (1, None, "group must be 'A5' or 'S5', got None"),
    ],
)
def test_parameters_out_of_range_are_refused(
    kind: type[FSGPMatch | OFSGPMatch], depth: Any, group: Any, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        kind(QUOTES, depth, group=group)


@fixed_structure
def test_length_may_be_given_instead_of_a_depth(kind: type[FSGPMatch | OFSGPMatch]) -> None:
    text = "price = 3 AND hot AND issue = 'SAP'"
    length = preserving_length(predicate_circuit(QUOTES.parse(text)))
    assert 4**2 < length < 4**3
    matcher = kind(QUOTES, length=length)
    assert matcher.length == length * matcher.selector.length
    assert matched(matcher, RECORDS, text) == answers_of(text)
    with pytest.raises(UnsupportedPredicateError, match=f"program {length} instructions"):
        kind(QUOTES, length=length - 1).subscriber(SEED).encode(text, [0])
    assert kind(QUOTES, length=16) == kind(QUOTES, 2) != kind(QUOTES, length=17)
    with pytest.raises(ParameterError, match="give one of depth= and length="):
        kind(QUOTES, 2, length=16)
    wrong: list[Any] = [0, -1, 1.0, True, "4", 2**28 + 1]
    for value in wrong:
        with pytest.raises(ParameterError, match=r"length must be a whole number from 1 to"):
            kind(QUOTES, length=value)


def test_public_circuit_must_be_one_of_both_schemas_bits() -> None:
    schema, private = Schema(x=UInt(2)), Schema(y=UInt(1))
    for inputs in (2, 4):
        with pytest.raises(ParameterError, match=rf"2 \+ 1 = 3 inputs, .* got {inputs}"):
            PublicFunctionMatch(schema, Circuit(inputs, (), (0,)), private)
    with pytest.raises(ParameterError, match="must have one output, got 2"):
        PublicFunctionMatch(schema, Circuit(3, (), (0, 1)), private)
    with pytest.raises(ParameterError, match="group must be 'A5' or 'S5', got 'S4'"):
        PublicFunctionMatch(schema, Circuit(3, (), (0,)), private, group="S4")
    deep = Circuit(
        3, tuple(Gate(Op.AND, 2 + i if i else 0, 2 + i if i else 0) for i in range(15)), (17,)
    )
    with pytest.raises(ParameterError, match="lower its depth"):
        PublicFunctionMatch(schema, deep, private)


@pytest.mark.parametrize(
    ("interest", "error", "message"),
    [
        ({"y": 12_345, "t": 1}, PredicateTypeError, "private value of 'y'"),
        ({"y": -1, "t": 1}, PredicateTypeError, "private value of 'y'"),
        ({"y": 1, "t": None}, PredicateTypeError, "private value of 't'"),
        ({"y": 1, "t": 12_345.5}, PredicateTypeError, "private value of 't'"),
        ({"y": "12345", "t": 1}, PredicateTypeError, "private value of 'y'"),
        ({"y": [12_345], "t": 1}, PredicateTypeError, "private value of 'y'"),
        ({"y": 12_345}, ParameterError, "lacks t; private values: y, t"),
        ({}, ParameterError, "lacks y, t; private values: y, t"),
        ({"y": 1, "t": 1, "z": 12_345}, ParameterError, "has no z; private values: y, t"),
        ({"y": 1, "t": 1, 5: 12_345}, ParameterError, "has no 5; private values: y, t"),
        ({"y": 1, "T": 12_345}, ParameterError, "lacks t; private values: y, t"),
        ("y = 12345", ParameterError, "a mapping with the values of y, t, got str"),
        (Schema(y=UInt(4)).parse("y = 3"), ParameterError, "got Predicate"),
        (Circuit(4, (), (0,)), ParameterError, "got Circuit"),
        (12_345, ParameterError, "a mapping with the values of y, t, got int"),
        ([12_345], ParameterError, "a mapping with the values of y, t, got int"),
        ([{"y": 1, "t": 1}, {"y": 12_345, "t": 1}], PredicateTypeError, "private value of 'y'"),
    ],
)  # fmt: skip
def test_private_values_must_fit_and_stay_unseen(
    interest: Any, error: type[CcbpsError], message: str
) -> None:
    matcher = PublicFunctionMatch.hamming(4)
    subscriber = matcher.subscriber(SEED)
    rounds = range(len(interest)) if isinstance(interest, list) else [0]
    with pytest.raises(error, match=message) as refusal:
        subscriber.encode(interest, rounds)
    shown = [str(refusal.value), repr(refusal.value), *getattr(refusal.value, "__notes__", [])]
    assert not any("12345" in text or "12_345" in text for text in shown)
    assert refusal.value.__cause__ is None and refusal.value.__context__ is None
    assert len(subscriber.encode({"y": 1, "t": 2}, [0])) == 1


@pytest.mark.parametrize(
    ("bits", "options", "message"),
    [
        (0, {}, "bits must be a whole number, at least 1, got 0"),
        (4, {"limit": 1.5}, "limit must be a whole number, got 1.5"),
        (
            4,
            {"network": "bubble"},
            "network must be 'batcher', 'bose-nelson' or None, got 'bubble'",
        ),
    ],
)
def test_hamming_parameters_that_do_not_fit_are_refused(
    bits: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        PublicFunctionMatch.hamming(bits, **options)


# -- public parameters, secrets, texts ----------------------------------------------------------

MATCHERS: dict[str, Callable[[], GroupMatch]] = {
    "FSGP": lambda: FSGPMatch(QUOTES, 2),
    "FSGP over S5": lambda: FSGPMatch(QUOTES, 2, group="S5"),
    "OFSGP": lambda: OFSGPMatch(QUOTES, 2),
    "OFSGP over S5": lambda: OFSGPMatch(QUOTES, 2, group="S5"),
    "Hamming": lambda: PublicFunctionMatch.hamming(4, limit=1),
    "Hamming over S5": lambda: PublicFunctionMatch.hamming(4, group="S5"),
    "UGP": lambda: UGPMatch(Schema(x=UInt(3)), 0),
    "UGP over S5": lambda: UGPMatch(Schema(x=UInt(3)), 0, group="S5"),
}
every_matcher = pytest.mark.parametrize("name", MATCHERS)


def exchange_of(matcher: GroupMatch) -> tuple[Any, Any]:
    """16 events, and an interest that some of them meet."""
    if isinstance(matcher, PublicFunctionMatch):
        values = {"y": 5, "t": 1}
        return {"x": range(16)}, {name: values[name] for name in matcher.private}
    if isinstance(matcher, UGPMatch):
        return {"x": [*range(8)] * 2}, "x < 4"
    return RECORDS[:16], "price BETWEEN 2 AND 3"


@every_matcher
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_matcher_that_was_pickled_or_copied_is_the_same(
    name: str, duplicate: Callable[[GroupMatch], GroupMatch]
) -> None:
    matcher = MATCHERS[name]()
    twin = duplicate(matcher)
    assert type(twin) is type(matcher) and twin.group is matcher.group
    assert twin == matcher and hash(twin) == hash(matcher)
    assert twin.fingerprint == matcher.fingerprint
    events, interest = exchange_of(matcher)
    sent = matcher.publisher(SEED).encode(events, range(16))
    wanted = twin.subscriber(SEED).encode(interest, range(16))
    answers = pickle.loads(pickle.dumps(twin)).broker().match(sent, wanted)
    assert 0 < answers.sum() < 16
    assert np.array_equal(matcher.broker().match(sent, wanted), answers)


def test_fingerprint_does_not_depend_on_the_process() -> None:
    printed = in_two_processes(
        "from ccbps import Schema, UInt; from ccbps.matching import *; "
        "s = Schema(a=UInt(5), b=UInt(7)); print(OFSGPMatch(s, 2).fingerprint, "
        "FSGPMatch(s, 1, group='S5').fingerprint, "
        "PublicFunctionMatch.hamming(5).fingerprint)"
    )
    assert len(printed) == 3


def test_fingerprint_differs_when_anything_public_does() -> None:
    other = Schema(issue=Category(["IBM", "SAP"], nullable=True), price=UInt(3), hat=Bool())
    matchers: list[GroupMatch] = [
        kind(schema, depth, group=group)
        for kind, schema, depth, group in product(FIXED, [QUOTES, other], [0, 1], ["A5", "S5"])
    ]
    matchers += [UGPMatch(BIT, depth, group=group) for depth in (0, 1) for group in ("A5", "S5")]
    schema, private = Schema(x=UInt(2)), Schema(y=UInt(1))
    gates = [(Gate(op, 0, 2),) for op in (Op.AND, Op.OR, Op.XOR)]
    matchers += [PublicFunctionMatch(schema, Circuit(3, g, (3,)), private) for g in gates]
    matchers += [
        PublicFunctionMatch(schema, Circuit(3, gates[0], (3,)), private, group="S5"),
        PublicFunctionMatch(schema, Circuit(3, gates[0], (3,)), Schema(z=UInt(1))),
        PublicFunctionMatch(schema, Circuit(3, gates[0], (3,)), Schema(y=Bool())),
        PublicFunctionMatch(Schema(z=UInt(2)), Circuit(3, gates[0], (3,)), private),
        PublicFunctionMatch(schema, Circuit(3, gates[0], (1,)), private),
    ]
    assert len({m.digest[:6] for m in matchers}) == len(set(matchers)) == len(matchers)


def test_gates_that_no_output_needs_do_not_count() -> None:
    schema, private = Schema(x=UInt(2)), Schema(y=UInt(1))
    more = Circuit(3, (Gate(Op.OR, 0, 1), Gate(Op.AND, 0, 2)), (4,))
    less = Circuit(3, (Gate(Op.AND, 0, 2),), (3,))
    assert PublicFunctionMatch(schema, more, private) == PublicFunctionMatch(schema, less, private)


@every_matcher
def test_sizes_follow_from_the_program(name: str) -> None:
    matcher = MATCHERS[name]()
    group, padded = matcher.group, matcher.group.padded(matcher.length)
    assert matcher.elements == 2 * matcher.length + 1
    width = padded if group is S5 else padded * 6 // 8
    assert matcher.event_bytes == ROUND_HEADER_BYTES + width
    assert matcher.interest_bytes == ROUND_HEADER_BYTES + width + 8
    assert matcher.randomness_bytes == 2 * group.random_bytes(padded) + TAG_BYTES
    events, interest = exchange_of(matcher)
    assert matcher.publisher(SEED).encode(events, range(16)).shape == (16, matcher.event_bytes)
    assert matcher.subscriber(SEED).encode(interest, [0]).shape == (1, matcher.interest_bytes)


def test_table_1_has_a_row_for_each_protocol() -> None:
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "reproduce" / "hamming.py"
    before = list(sys.path)
    try:
        rows = runpy.run_path(str(script))["protocols"]()
    finally:
        sys.path[:] = before
    assert [row.name for row in rows] == ["universal circuit (Valiant)", "UGP", "FSGP", "OFSGP"]
    assert [row.in_n_and_c for row in rows[2:]] == ["4 n^(2c+2)", "4 n^(2c+1)"]
    # n^(2c log n) is 4^(d log n) for d = c log n: 4^9 for n = 8 and c = 1.
    assert "(8, 3): 262,144" in rows[0].counted and 8 ** (2 * 3) == 4**9 == 262_144
    assert "(8, 3): 16,384" in rows[2].counted and "(8, 3): 2,048" in rows[3].counted


@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_theorems_24_and_25_lengths_by_counting(depth: int, bits: int) -> None:
    schema = Schema(x=UInt(bits))
    optimized, barrington = OFSGPMatch(schema, depth), FSGPMatch(schema, depth)
    assert optimized.elements == 4 * bits * 4**depth + 1
    assert barrington.elements == 4 * bits**2 * 4**depth + 1
    for matcher in (optimized, barrington):
        assert len(matcher._index(0, matcher.length)) == matcher.length
        interest = matcher.prepare("x = 0" if bits == 1 or depth == 3 else "TRUE")
        interstitials = matcher._interstitials(interest, 0, matcher.length + 1)
        assert len(interstitials) == matcher.length + 1


@every_matcher
def test_matcher_shows_its_sizes_and_no_constant(name: str) -> None:
    matcher = MATCHERS[name]()
    _, interest = exchange_of(matcher)
    text = matcher.explain()
    length = matcher.length
    for part in (
        type(matcher).__name__,
        f"{matcher.group.name}, {matcher.group.order} elements",
        f"{2 * length + 1:,} elements: {length:,} of the publisher, {length + 1:,} of the",
        "segments",
        f"{matcher.event_bytes:,} bytes per event, {matcher.interest_bytes:,} bytes per interest",
        f"{matcher.randomness_bytes:,} bytes per round",
        *(
            f"{role}:{' ' * (12 - len(role))}per pair: {2 * length:,} x product in a small group"
            for role in ("publisher", "subscriber", "broker")
        ),
    ):
        assert part in text
    assert all(line in text for line in str(matcher.leakage).splitlines())
    shown = repr(matcher)
    assert type(matcher).__name__ in shown and matcher.group.name in shown
    assert all(attribute in shown for attribute in matcher.schema)
    prepared = repr(matcher.prepare(interest))
    assert "array" not in prepared and "[" not in prepared and "BETWEEN" not in prepared
    assert matcher != shown


@every_matcher
def test_leakage_card_is_json_and_names_what_is_public(name: str) -> None:
    matcher = MATCHERS[name]()
    card = json.loads(json.dumps(matcher.leakage.to_dict()))
    assert card["scheme"] == type(matcher).__name__
    assert (card["security"], card["reuse"]) == ("perfect", "one-time")
    public = " ".join(card["learns"])
    if isinstance(matcher, PublicFunctionMatch):
        assert "the circuit" in public and f"{matcher.circuit.size} gates" in public
        assert all(value in " ".join(card["hides"]) for value in matcher.private)
    elif isinstance(matcher, UGPMatch):
        assert "length 1 of the predicate's program" in public and "group" in public
    else:
        assert "depth 2" in public and "group" in public


# -- what is public, whatever the interest ------------------------------------------------------


@fixed_structure
def test_index_sequence_does_not_depend_on_the_interest(
    kind: type[FSGPMatch | OFSGPMatch],
) -> None:
    matcher = kind(QUOTES, 2)
    index = matcher._index(0, matcher.length)
    assert np.array_equal(index, np.tile(matcher.selector.index, 16))
    for text in ("hot", "issue IS NULL", "TRUE"):
        matcher.prepare(text)
        assert np.array_equal(matcher._index(0, matcher.length), index)
    for start, stop in ((0, 1), (5, 5), (7, 33), (matcher.length - 1, matcher.length)):
        assert np.array_equal(matcher._index(start, stop), index[start:stop])


def test_raw_event_of_a_whole_segment_is_that_of_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    several_segments(monkeypatch)
    bits = np.hstack([all_rows(5), np.zeros((32, 1), np.bool_)])
    for kind, group in product(FIXED, ("A5", "S5")):
        matcher = kind(Schema(x=UInt(5)), 2, group=group)
        for segment in matcher.encoding.segments:
            raw = matcher.group.to_ranks(matcher._raw_event(bits, segment))
            index = matcher._index(segment.start, segment.stop)
            ranks = np.where(bits[:, index], matcher.group.alpha, 0)
            assert np.array_equal(raw[:, : len(index)], ranks)
            assert not raw[:, len(index) :].any()


def test_event_bits_are_the_circuits_inputs() -> None:
    events = QUOTES.encode(RECORDS)
    bits = event_bits(events)
    for wire in range(QUOTES.bits):
        found = matched(OFSGPMatch(QUOTES, 0), events, Circuit(6, (), (wire,)))
        assert found == bits[:, wire].tolist()
