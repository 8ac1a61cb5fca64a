"""Matchers from texts that anybody may have written, and what they must not cost."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import Decimal, Schema, SharedSeed, UInt
from ccbps.algebra import A5, S5
from ccbps.circuits import CircuitBuilder
from ccbps.circuits.universal import universal_circuit
from ccbps.errors import DecodeError, EventError, ParameterError
from ccbps.matching import (
    BranchingMatch,
    BroadcastMatch,
    FormulaMatch,
    FSGPMatch,
    KeywordFilterMatch,
    Matcher,
    OFSGPMatch,
    PublicFunctionMatch,
    TagMatch,
    UGPMatch,
    from_json,
    templates,
)
from ccbps.matching.broken import PaillierRangeMatch
from ccbps.matching.contract.matcher import MAX_TEXT, MAX_TEXT_BYTES
from ccbps.matching.contract.roles import interest_column
from ccbps.matching.group.universal import least_length
from ccbps.matching.templates import MAX_SIZE
from ccbps.programs.barrington import preserving_length
from ccbps.programs.selector import barrington_selector, optimized_selector
from tests.support.one_time import WIDE, cheap_refusal, text_of
from tests.support.refusals import refused

SMALL = Schema(x=UInt(4))


# -- branching programs -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "template", "nodes", "how"),
    [
        (WIDE, None, 10**9, "constructor with max_nodes=1000000000"),
        (WIDE, None, 128_001, "constructor with max_nodes=128001"),
        (SMALL, "hamming(x, :y) <= 2", 10**9, "constructor with max_nodes=1000000000"),
        (SMALL, None, MAX_SIZE + 1, "at most 4,096 nodes, got 4,097"),
    ],
)
def test_a_text_cannot_raise_the_limit_of_nodes(
    schema: Schema, template: str | None, nodes: int, how: str
) -> None:
    text = text_of(BranchingMatch.box(SMALL), schema, template=template, nodes=nodes)
    cheap_refusal(lambda: from_json(text), how)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scheme_version": 99}, "the BranchingMatch of the text is of version 99, and this ccbps "
         "reads 1: upgrade ccbps here"),
        ({"scheme_version": 0}, "upgrade ccbps where it was written, and write it again"),
        ({"scheme_version": "9" * 99}, "is of version '9999999999999999999, and"),
        ({"version": 2}, "this matcher is of version 2, and this ccbps reads 1: upgrade ccbps"),
    ],
)  # fmt: skip
def test_a_text_of_another_version_says_what_to_upgrade(
    change: dict[str, Any], message: str
) -> None:
    text = json.dumps({**json.loads(BranchingMatch.box(SMALL).to_json()), **change})
    for make in (from_json, BranchingMatch.from_json):
        refused(DecodeError, message, make, text)


def test_a_text_of_another_scheme_names_the_class_and_what_to_do() -> None:
    text = BranchingMatch.box(SMALL).to_json()
    message = r"describes the scheme 'branching', and TagMatch is 'tags': ccbps.matching.from_json"
    refused(DecodeError, message, TagMatch.from_json, text)
    strange = text.replace('"branching"', '"of tomorrow"')
    refused(DecodeError, 'no scheme here is called "of tomorrow": upgrade', from_json, strange)


# -- events and interests that are swapped ------------------------------------------------------


def test_swapped_events_and_interests_get_a_hint() -> None:
    """By their widths, or, where these are equal, by their kinds."""
    seed = SharedSeed.generate()
    swapped = "are of that width: are the two swapped|event and interest are swapped"
    for matcher in (BranchingMatch.box(SMALL), FormulaMatch.box(SMALL), BroadcastMatch.box(SMALL)):
        event = matcher.publisher(seed).encode([{"x": 1}], [0])
        interest = matcher.subscriber(seed).encode("x < 3", [0])
        refused(DecodeError, swapped, matcher.broker().match, interest, event)
    tag = TagMatch(SMALL)
    server = tag.key_server()
    events = tag.publisher(server.publisher_key()).encode([{"x": 1}])
    interests = tag.subscriber(server.subscriber_key("a")).encode(["x < 3"])
    broker = tag.broker(server.broker_key())
    for call in (broker.match, broker.match_all):
        refused(DecodeError, swapped, call, interests, events)
    refused(DecodeError, swapped, broker.prepare, events)


def test_a_publisher_that_gets_a_predicate_and_a_subscriber_that_gets_an_event_get_a_hint() -> None:
    matcher, seed = FormulaMatch.box(SMALL), SharedSeed.generate()
    message = "got str; a predicate is encoded by a subscriber"
    refused(EventError, message, matcher.publisher(seed).encode, "x < 3", [0])
    message = "got dict; an event is encoded by a publisher"
    refused(ParameterError, message, matcher.subscriber(seed).encode, {"x": 3}, [0])


def test_a_box_is_refused_before_it_is_built() -> None:
    cheap_refusal(
        lambda: BranchingMatch.box(WIDE), "would have 128,001 nodes.*max_nodes allows 4,096"
    )
    text = text_of(BranchingMatch.box(SMALL), WIDE, nodes=MAX_SIZE)
    cheap_refusal(lambda: from_json(text), "would have 128,001 nodes")


@given(widths=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_a_box_has_the_nodes_it_is_refused_by(widths: list[int]) -> None:
    schema = Schema({f"a{number}": UInt(bits) for number, bits in enumerate(widths)})
    nodes = 2 * sum(widths) + 1
    assert BranchingMatch.box(schema, max_nodes=nodes).program.size + 1 == nodes
    if nodes > 3:
        with pytest.raises(ParameterError, match=f"would have {nodes} nodes"):
            BranchingMatch.box(schema, max_nodes=nodes - 1)


def test_a_template_far_too_large_is_not_compiled_to_the_end() -> None:
    long = SMALL.parse("x < 3 OR " * 5000 + "x < 3")
    with pytest.raises(ParameterError, match=r"would have at least 8\d\d nodes"):
        BranchingMatch(SMALL, long, max_nodes=100)
    with pytest.raises(ParameterError, match="would have 13 nodes"):
        BranchingMatch(SMALL, "x < 3 OR x < 5 OR x < 7", max_nodes=11)


def test_a_text_cannot_have_a_template_of_any_length() -> None:
    text = text_of(BranchingMatch.box(SMALL), template="x < 3" + " " * (1 << 17), nodes=9)
    cheap_refusal(lambda: from_json(text), "predicate has at most 131,072 characters", DecodeError)


def test_a_large_matcher_that_somebody_made_is_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_SIZE == 4096  # here a lower limit, as a matcher of so many takes long to make
    monkeypatch.setattr(templates, "MAX_SIZE", 1000)
    schema = Schema({f"a{number}": UInt(32) for number in range(16)})
    matcher = BranchingMatch.box(schema, max_nodes=2000)
    assert matcher.program.size + 1 == 1025
    assert pickle.loads(pickle.dumps(matcher)) == matcher == copy.deepcopy(matcher)
    refused(ParameterError, "at most 1,000 nodes, got 1,025", from_json, matcher.to_json())


# -- group programs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matcher", "message"),
    [
        (FSGPMatch(SMALL, 1), "messages would have .* elements"),
        (OFSGPMatch(SMALL, 1), "a selector of 64,000 inputs is too long"),
        (UGPMatch(SMALL, 0), "instructions or more.*take OFSGPMatch"),
        (UGPMatch(SMALL, 1), "instructions or more.*take OFSGPMatch"),
    ],
)
def test_group_programs_over_wide_schemas_are_cheap_refusal(
    matcher: FSGPMatch | OFSGPMatch | UGPMatch, message: str
) -> None:
    depth = matcher.depth
    cheap_refusal(lambda: type(matcher)(WIDE, depth=depth), message)
    text = text_of(matcher, WIDE)
    cheap_refusal(lambda: from_json(text), message)


@pytest.mark.parametrize("group", [A5, S5], ids=lambda group: group.name)
@pytest.mark.parametrize("inputs", [1, 2, 3, 4, 5, 7, 8, 11, 16, 23])
def test_selectors_are_as_long_as_they_are_refused_by(inputs: int, group: Any) -> None:
    length = barrington_selector(inputs, group).length
    assert length >= 2 * inputs * inputs
    if inputs & (inputs - 1) == 0:
        assert length == 2 * inputs * inputs
    assert optimized_selector(inputs, group).length == 2 * inputs


def test_selectors_have_tables_within_bounds() -> None:
    cheap_refusal(lambda: barrington_selector(400, A5), "use optimized_selector")
    cheap_refusal(lambda: optimized_selector(6000, A5), "6,000 inputs is too long")


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 7, 8, 13])
def test_universal_programs_are_no_shorter_than_they_are_refused_by(bits: int, depth: int) -> None:
    needed = preserving_length(universal_circuit(bits, 4**depth))
    assert least_length(bits, depth) <= needed <= 20 * least_length(bits, depth) * bits


def test_numbers_of_instructions_in_a_text_are_bounded() -> None:
    text = text_of(OFSGPMatch(Schema(x=UInt(64)), 1), length=1 << 28)
    cheap_refusal(lambda: from_json(text), "messages would have .*elements|at most 67,108,864")
    text = text_of(OFSGPMatch(SMALL, 1), length=1 << 25)
    cheap_refusal(lambda: from_json(text), "at most 67,108,864 where a text says so")
    assert OFSGPMatch(SMALL, length=1 << 25).event_bytes > MAX_TEXT_BYTES  # the constructor may


def test_a_short_circuit_with_a_long_program_is_refused_before_it_is_built() -> None:
    builder = CircuitBuilder()
    x, y = builder.inputs(8), builder.inputs(8)
    wire = x[0] & x[1]
    for number in range(24):
        wire = wire ^ (x[number % 8] & x[(number + 1 + number // 8) % 8])
    made = PublicFunctionMatch.hamming(8, limit=1)
    circuit = builder.build(wire & ~y[0])
    assert preserving_length(circuit, range(8, 16)) > 1 << 34
    text = text_of(
        made, gates=[list(map(int, gate)) for gate in circuit.gates], outputs=list(circuit.outputs)
    )
    cheap_refusal(lambda: from_json(text), "elements, more than")


# -- all schemes --------------------------------------------------------------------------------


def test_messages_of_a_matcher_from_a_text_are_bounded() -> None:
    matcher = OFSGPMatch(SMALL, length=12_000_000)
    assert matcher.event_bytes > MAX_TEXT_BYTES
    with pytest.raises(ParameterError, match=r"at most 67,108,864 .*call the constructor"):
        from_json(matcher.to_json())
    assert pickle.loads(pickle.dumps(matcher)) == matcher


def test_so_are_those_that_no_scheme_bounds() -> None:
    matcher = KeywordFilterMatch(Schema(price=UInt(40)), partitions={"price": (1 << 30, 2)})
    assert matcher.interest_bytes > MAX_TEXT_BYTES
    text = matcher.to_json()
    cheap_refusal(lambda: from_json(text), "messages would have 171,798,692,024 bytes")


def test_texts_are_bounded_themselves() -> None:
    text = BranchingMatch.box(SMALL).to_json()
    assert from_json(text + " " * (MAX_TEXT - len(text))) == from_json(text)
    for make in (from_json, BranchingMatch.from_json):
        with pytest.raises(DecodeError, match="more than 16,777,216 characters"):
            make(text + " " * (MAX_TEXT + 1 - len(text)))


def test_the_abstract_matcher_says_who_reads_texts() -> None:
    with pytest.raises(ParameterError, match=r"Matcher is no scheme: ccbps.matching.from_json"):
        Matcher.from_json(BranchingMatch.box(SMALL).to_json())


def test_a_modulus_has_a_greatest_length() -> None:
    text = text_of(PaillierRangeMatch(SMALL, 256, toy=True), modulus_bits=16_400)
    cheap_refusal(lambda: from_json(text), "from 128 to 16,384, got 16400")
    assert PaillierRangeMatch(SMALL, 16_384).modulus_bits == 16_384


# -- columns of interests -----------------------------------------------------------------------

TEMPLATE = Schema(price=Decimal(0, 10, "0.01"), size=UInt(8)).parse(
    "price < :limit AND size = :size"
)


def test_equal_predicates_are_one_value() -> None:
    schema = TEMPLATE.schema
    parsed = [schema.parse(f"size < {number % 3}") for number in range(30)]
    bound = [TEMPLATE.bind(limit=number % 2, size=7) for number in range(30)]
    column = interest_column([*parsed, *bound])
    assert len(column.values) == 5
    for row, index in zip([*parsed, *bound], column.index.tolist(), strict=True):
        value = column.values[index]
        assert value.text == row.text
        assert value.true_form() == row.true_form()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (TEMPLATE.bind(limit=1, size=1), TEMPLATE.bind(limit=1, size=2)),
        (TEMPLATE, TEMPLATE.bind(limit=1, size=1)),
        (SMALL.parse("x < 3"), SMALL.parse("x < 4")),
        (SMALL.parse("x < 3"), Schema(x=UInt(5)).parse("x < 3")),
        (SMALL.parse("x < 3"), "x < 3"),
    ],
)
def test_other_predicates_are_other_values(first: Any, second: Any) -> None:
    assert len(interest_column([first, second, first, second]).values) == 2


def test_constants_without_a_hash_are_told_apart_by_their_predicates() -> None:
    class Odd(int):
        __hash__ = None  # type: ignore[assignment]

    values: Mapping[str, Any] = {"limit": 1, "size": Odd(3)}
    rows = [TEMPLATE.bind(**values), TEMPLATE.bind(**values)]
    assert len(interest_column([*rows, *rows]).values) == 2
