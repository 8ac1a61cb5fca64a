"""One-time matchers as planners and strangers see them: proposals, meanings, parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps.circuits import Circuit, Gate, Op
from ccbps.errors import DecodeError, ParameterError, UnsupportedPredicateError
from ccbps.forms.circuit import predicate_circuit
from ccbps.leakage import Protects
from ccbps.matching import (
    SCHEMES,
    BranchingMatch,
    FormulaMatch,
    FSGPMatch,
    Matcher,
    OFSGPMatch,
    PublicFunctionMatch,
    ThreeBrokerMatch,
    UGPMatch,
)
from ccbps.matching.group.group_match import PROPOSED
from ccbps.programs.barrington import preserving_length
from tests.support.circuit_strategies import all_rows
from tests.support.one_time import answered
from tests.support.program_strategies import shallow_circuits

SMALL = Schema(issue=Category(["IBM", "SAP"]), price=UInt(3))
WIDE = Schema(a=UInt(16), b=UInt(16), c=UInt(20))
TWO = Schema(x=UInt(4), z=UInt(3))


def proposed(kind: type[Matcher], schema: Schema, text: str) -> list[Any]:
    return list(kind.propose(schema, schema.parse(text)))


# -- one interest after another ------------------------------------------------------------------


def test_an_interest_that_comes_again_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = FormulaMatch.box(SMALL)
    prepared: list[Any] = []
    prepare = FormulaMatch.prepare
    monkeypatch.setattr(
        FormulaMatch, "prepare", lambda self, x: (prepared.append(x), prepare(self, x))[1]
    )
    seed = SharedSeed.generate()
    subscriber, publisher = matcher.subscriber(seed), matcher.publisher(seed)
    low, high = SMALL.parse("price < 4"), SMALL.parse("price >= 4")
    events = [{"issue": "IBM", "price": 2}]
    for number, predicate in enumerate((low, low, high, high, low)):
        interests = subscriber.encode(predicate, [number])
        answers = matcher.broker().match(publisher.encode(events, [number]), interests)
        assert answers.tolist() == [predicate is low]
    assert prepared == [low, high, low]


def test_values_that_were_changed_are_another_interest() -> None:
    matcher, seed = FormulaMatch(SMALL, "price < :limit"), SharedSeed.generate()
    subscriber, publisher = matcher.subscriber(seed), matcher.publisher(seed)
    values = {"limit": 4}
    for number, limit in enumerate((4, 2, 3, 0)):
        values["limit"] = limit
        interests = subscriber.encode(values, [number])
        events = publisher.encode([{"issue": "IBM", "price": 2}], [number])
        assert matcher.broker().match(events, interests).tolist() == [limit > 2]


# -- proposals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FSGPMatch, OFSGPMatch])
@pytest.mark.parametrize("text", ["price < 5", "issue = 'SAP' OR NOT price = 3", "price >= 0"])
def test_fixed_structures_are_proposed_by_the_predicates_own_size(kind: Any, text: str) -> None:
    needed = preserving_length(predicate_circuit(SMALL.parse(text)))
    lengths = [matcher.instructions for matcher in proposed(kind, SMALL, text)]
    # The cheapest first, then one for every predicate as deep.
    assert lengths[0] == needed and lengths == sorted(set(lengths))
    assert lengths[-1] // 4 < needed <= lengths[-1] == 4 ** kind(SMALL, length=lengths[-1]).depth
    if needed > 1:
        with pytest.raises(UnsupportedPredicateError):
            kind(SMALL, length=needed - 1).prepare(text)


def test_what_would_be_huge_is_not_proposed() -> None:
    text = "a < 5000 AND b > 3 AND c BETWEEN 3 AND 800"
    assert proposed(FSGPMatch, WIDE, text) == proposed(UGPMatch, WIDE, text) == []
    found = proposed(OFSGPMatch, WIDE, text)
    assert found and all(matcher.length <= PROPOSED for matcher in found)
    # One more would be: the next power of four.
    assert 4 * found[-1].length > PROPOSED
    wide = Schema(**{f"a{i}": UInt(64) for i in range(17)})
    for kind in (FSGPMatch, OFSGPMatch, UGPMatch):
        assert proposed(kind, wide, "a0 > 9223372036854775807") == []


@pytest.mark.parametrize("kind", [FSGPMatch, OFSGPMatch, UGPMatch])
def test_templates_and_other_schemas_have_no_circuit(kind: Any) -> None:
    assert proposed(kind, SMALL, "price < :p") == []
    assert list(kind.propose(WIDE, SMALL.parse("price < 3"))) == []
    # With values, too: these are private, and the length of a program would show them.
    one = Schema(x=UInt(1))
    assert list(kind.propose(one, one.parse("x = :p").bind(p=1))) == []
    assert list(kind.propose(one, one.parse("x = 1")))


def test_universal_circuits_are_proposed_for_depth_0_and_1() -> None:
    one = Schema(x=UInt(1))
    assert [matcher.depth for matcher in proposed(UGPMatch, one, "x = 1")] == [0, 1]
    two = Schema(x=UInt(2))
    assert [matcher.depth for matcher in proposed(UGPMatch, two, "x = 3")] == [1]
    assert proposed(UGPMatch, SMALL, "issue = 'SAP' AND price = 3") == []


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("hamming(x, :y) <= 1", "x", lambda d: d <= 1),
        ("hamming(x, :y) < 4", "x", lambda d: d < 4),
        ("hamming(x, :y) <= 9", "x", lambda d: d <= 9),
        ("hamming(x, :y) < 1", "x", lambda d: d < 1),
        ("NOT hamming(x, :y) <= 2", "x", lambda d: d > 2),
        ("hamming(z, :y) <= 1", "z", lambda d: d <= 1),
    ],
)
def test_hamming_templates_are_public_functions(text: str, name: str, expected: Any) -> None:
    (matcher,) = proposed(PublicFunctionMatch, TWO, text)
    assert matcher.private_names == ("y",) and matcher.schema == TWO
    bits = TWO[name].bits
    assert matcher.private["y"] == TWO[name]
    xs = np.arange(16)
    events = {"x": xs, "z": xs % 8}
    for y in range(2**bits):
        own = xs if name == "x" else xs % 8
        wanted = [bool(expected(int(d))) for d in np.bitwise_count(own ^ y)]
        assert answered(matcher, events, {"y": y}).tolist() == wanted
        assert matcher.meaning({"y": y}, TWO.encode(events)).tolist() == wanted


@pytest.mark.parametrize(
    "text",
    [
        "x < :y",
        "hamming(x, 3) <= 1",
        "hamming(x, :y) <= 1 AND z < 3",
        "at_least(1, hamming(x, :y) <= 1, hamming(z, :y) <= 1)",
        "hamming(x, :y) < 0",
    ],
)
def test_no_other_template_is_a_public_function(text: str) -> None:
    assert proposed(PublicFunctionMatch, TWO, text) == []


def test_hamming_distances_of_many_bits_are_not_proposed() -> None:
    schema = Schema(x=UInt(32))
    (near,) = proposed(PublicFunctionMatch, schema, "hamming(x, :y) <= 1")
    assert near.length <= PROPOSED
    assert proposed(PublicFunctionMatch, schema, "hamming(x, :y) <= 16") == []
    other = SMALL.parse("price = 3")
    assert list(PublicFunctionMatch.propose(schema, other)) == []


@pytest.mark.parametrize("kind", [FormulaMatch, BranchingMatch])
def test_boxes_and_templates_are_proposed_for_what_they_take(kind: Any) -> None:
    (box,) = proposed(kind, SMALL, "price < 3 AND issue = 'SAP'")
    assert box == kind.box(SMALL)
    (matcher,) = proposed(kind, SMALL, "price < :p OR issue = 'SAP'")
    assert matcher == kind(SMALL, "price < :p OR issue = 'SAP'")


def test_what_is_no_box_is_proposed_a_hidden_formula_or_nothing() -> None:
    text = "price < 3 OR issue = 'SAP'"
    assert proposed(BranchingMatch, SMALL, text) == []
    assert proposed(FormulaMatch, SMALL, text) == [FormulaMatch.hidden(SMALL, leaves=2)]


def test_the_ones_to_start_with_are_proposed_first() -> None:
    for text in ("price < 3 AND issue = 'SAP'", "price < :p OR issue = 'SAP'"):
        kinds = [scheme for scheme in SCHEMES if proposed(scheme, SMALL, text)]
        assert kinds[:2] == [ThreeBrokerMatch, FormulaMatch]


# -- meanings -------------------------------------------------------------------------------------


@given(circuit=shallow_circuits(max_depth=3, max_inputs=5), data=st.data())
@settings(max_examples=40)
def test_meaning_of_a_public_function_is_its_circuits_value(
    circuit: Circuit, data: st.DataObject
) -> None:
    # One more input, so that neither party has none.
    n = circuit.inputs + 1
    gates = tuple(
        gate._replace(a=gate.a + (gate.a >= circuit.inputs), b=gate.b + (gate.b >= circuit.inputs))
        for gate in circuit.gates
    )
    outputs = tuple(wire + (wire >= circuit.inputs) for wire in circuit.outputs)
    wider = Circuit(n, gates, outputs)
    bits = data.draw(st.integers(1, n - 1))
    matcher = PublicFunctionMatch(Schema(x=UInt(bits)), wider, Schema(y=UInt(n - bits)))
    events = matcher.schema.encode({"x": np.arange(2**bits)})
    found = [matcher.meaning({"y": y}, events) for y in range(2 ** (n - bits))]
    expected = wider.evaluate(all_rows(n))[:, 0].reshape(2**bits, -1)
    assert np.array_equal(np.array(found).T, expected)


@pytest.mark.parametrize("kind", [FSGPMatch, OFSGPMatch])
def test_meaning_of_a_circuit_is_its_value(kind: Any) -> None:
    schema = Schema(x=UInt(2))
    circuit = Circuit(2, (Gate(Op.AND, 0, 1),), (2,))
    matcher, events = kind(schema, 1), schema.encode({"x": range(4)})
    assert matcher.meaning(circuit, events).tolist() == [False, False, False, True]
    assert matcher.meaning("x < 1", events).tolist() == [True, False, False, False]
    assert answered(matcher, events, circuit).tolist() == [False, False, False, True]


def test_meaning_of_a_template_is_that_of_its_values() -> None:
    matcher = BranchingMatch(SMALL, "price < :p")
    events = SMALL.encode({"issue": ["SAP"] * 8, "price": range(8)})
    assert matcher.meaning({"p": 3}, events).tolist() == [True] * 3 + [False] * 5


# -- parameters -----------------------------------------------------------------------------------

HAMMING = PublicFunctionMatch.hamming(3, limit=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gates", {}),
        ("gates", [5]),
        ("gates", [[3, 0]]),
        ("gates", [[3, 0, 1, 2]]),
        ("gates", [[9, 0, 1]]),
        ("gates", [[3, 0, 99]]),
        ("gates", [[3.0, 0, 1]]),
        ("gates", [[True, -1, -1]]),
        ("gates", [["3", 0, 1]]),
        ("outputs", 6),
        ("outputs", []),
        ("outputs", [10**6]),
        ("outputs", ["6"]),
        ("inputs", 5),
        ("inputs", -1),
        ("inputs", "6"),
        ("inputs", 6.0),
        ("inputs", None),
        ("private", {}),
        ("private", "y"),
        ("group", "S4"),
        ("group", None),
    ],
)
def test_bent_circuits_are_refused(name: str, value: Any) -> None:
    parameters = HAMMING.parameters()
    assert PublicFunctionMatch.from_parameters(HAMMING.schema, parameters) == HAMMING
    with pytest.raises((ParameterError, DecodeError)):
        PublicFunctionMatch.from_parameters(HAMMING.schema, {**parameters, name: value})


@pytest.mark.parametrize(
    "matcher",
    [HAMMING, FormulaMatch.box(SMALL), BranchingMatch.box(SMALL)],
    ids=["public function", "formula", "branching"],
)
def test_parameters_are_all_there_and_no_more(matcher: Any) -> None:
    parameters = matcher.parameters()
    for name in parameters:
        less = {key: value for key, value in parameters.items() if key != name}
        with pytest.raises(ParameterError, match="the parameters are not those of a"):
            type(matcher).from_parameters(matcher.schema, less)
    with pytest.raises(ParameterError, match="the parameters are not those of a"):
        type(matcher).from_parameters(matcher.schema, {**parameters, "more": 1})


def test_the_layout_names_the_index_sequence() -> None:
    # Same length, same sizes: what tells them apart is which bit each element takes.
    schema, private = Schema(x=UInt(2)), Schema(y=UInt(1))
    made = [
        PublicFunctionMatch(schema, Circuit(3, (Gate(Op.AND, wire, 2),), (3,)), private)
        for wire in (0, 1)
    ]
    layouts = [matcher.layout() for matcher in made]
    assert layouts[0][:-1] == layouts[1][:-1] and layouts[0][-1] != layouts[1][-1]


def test_what_is_protected_is_what_the_card_says() -> None:
    everything = {
        Protects.EVENT, Protects.CONSTANTS, Protects.ATTRIBUTES, Protects.FORMULA,
        Protects.EQUALITY_OF_EVENTS, Protects.EQUALITY_OF_INTERESTS,
    }  # fmt: skip
    for matcher in (FSGPMatch(SMALL, 1), OFSGPMatch(SMALL, 1), UGPMatch(Schema(x=UInt(1)), 0)):
        assert matcher.leakage.protects == everything
    assert HAMMING.leakage.protects == everything - {Protects.ATTRIBUTES, Protects.FORMULA}
    box, template = BranchingMatch.box(SMALL), BranchingMatch(SMALL, "price < :p")
    assert box.leakage.protects == everything - {Protects.FORMULA}
    assert template.leakage.protects == everything - {Protects.ATTRIBUTES, Protects.FORMULA}


def test_costs_of_long_programs_are_written_in_full() -> None:
    matcher = OFSGPMatch(Schema(x=UInt(20)), 8)
    assert 2 * matcher.length == 5_242_880
    assert "broker:      per pair: 5,242,880 x product in a small group (A5)" in matcher.explain()
