"""GarbledMatch against the plaintext meaning: boxes, templates, circuits; sizes and refusals."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import OneTimePad, Schema, SharedSeed, UInt
from ccbps.circuits import Circuit, CircuitBuilder, bristol
from ccbps.circuits.blocks import add, less_than
from ccbps.circuits.counting import at_least, count_ands, count_ones
from ccbps.errors import DecodeError, ParameterError, PredicateError
from ccbps.leakage import Protects
from ccbps.matching import FormulaMatch, GarbledMatch
from ccbps.matching.contract.access import bodies_of
from ccbps.wire import ROUND_HEADER_BYTES
from tests.support.circuit_strategies import all_rows, circuits
from tests.support.effort import examples
from tests.support.one_time import (
    BITS,
    CONSTRUCTS,
    SEED,
    answered,
    quotes,
    some_schema,
    some_template,
    some_text,
    text_of,
    uniform,
)

STOCKS = Schema(price=UInt(16), volume=UInt(16), area=UInt(20))


def drawn(schema: Schema, rng: np.random.Generator, count: int) -> Any:
    return schema.encode({name: uniform(schema[name], rng, count) for name in schema})


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(200))
def test_boxes_answer_as_in_plaintext(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = some_schema(rng)
    matcher, events = GarbledMatch.box(schema), drawn(schema, rng, 12)
    texts = []
    while len(texts) < 12:
        text = some_text(schema, rng, box=True)
        try:
            matcher.prepare(text)
        except PredicateError:
            continue
        texts.append(text)
    expected = [schema.parse(text).evaluate(events)[row] for row, text in enumerate(texts)]
    assert answered(matcher, events, texts).tolist() == expected


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(200))
def test_templates_answer_as_in_plaintext(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = some_schema(rng)
    text, values = some_template(schema, rng, others=3)
    template = schema.parse(text)
    matcher, events = GarbledMatch(schema, text), drawn(schema, rng, 8)
    interests = [values[row % len(values)] for row in range(8)]
    expected = [template.bind(**own).evaluate(events)[row] for row, own in enumerate(interests)]
    assert answered(matcher, events, interests).tolist() == expected


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_every_construct_answers_as_in_plaintext(name: str) -> None:
    text, values = CONSTRUCTS[name]
    matcher, rng = GarbledMatch(BITS, text), np.random.default_rng(4)
    events = BITS.encode({attribute: rng.integers(0, 16, 200) for attribute in BITS})
    expected = BITS.parse(text).bind(**values).evaluate(events)
    assert np.array_equal(answered(matcher, events, [values] * 200), expected)


def test_the_box_of_16_16_and_20_bits() -> None:
    """Two ciphertexts a gate, one a half gate: six less than an AND of six comparisons takes."""
    matcher = GarbledMatch.box(STOCKS)
    plan = matcher.encoding.plan
    # Two comparisons an attribute, of which the first step is half a gate; their sum is free.
    assert (plan.gates, plan.half_gates) == (15 + 15 + 15 + 15 + 19 + 19 + 2, 6)
    assert (matcher.sizes.event, matcher.sizes.interest) == (832, 206 * 16 + 9)
    assert matcher.sizes.interest < 3392
    ends = [(0, 65535), (5, 5), (65535, 65535), (0, 0), (1, 65534), (7, 6)]
    events = {"price": [0, 5, 65535, 1, 65535, 7], "volume": [9] * 6, "area": [2**20 - 1] * 6}
    texts = [f"price BETWEEN {low} AND {high} AND area > 5" for low, high in ends]
    assert answered(matcher, events, texts).tolist() == [True, True, True, False, False, False]


@pytest.mark.parametrize(
    ("text", "gates", "half"),
    [
        ("price < :p", 15, 1),
        ("price = :p AND price > 5", 15 + 1 + 0, 1),
        ("price BETWEEN :a AND :b", 30, 2),
        ("hamming(price, :p) <= 3", 15 + 4, 0),
        ("at_least(2, price < :p, volume < :q, area < :r)", 15 + 15 + 19 + 1, 3),
        ("price > 7 OR volume < 8", 0, 0),
        ("area < 5 OR area < :q", 20, 1),
    ],
)
def test_templates_take_few_ands(text: str, gates: int, half: int) -> None:
    plan = GarbledMatch(STOCKS, text).encoding.plan
    assert (plan.gates, plan.half_gates) == (gates, half)


def test_counting_takes_as_many_ands_as_it_says() -> None:
    for count in range(1, 10):
        builder = CircuitBuilder()
        wires = builder.inputs(count)
        digits = builder.build(*count_ones(builder, wires))
        rows = all_rows(count)
        values = digits.evaluate(rows) @ (1 << np.arange(len(digits.outputs)))
        assert np.array_equal(values, rows.sum(axis=1))
        assert ands(digits) == count_ands(count)
        for limit in range(-1, count + 2):
            reached = builder.build(at_least(builder, limit, wires)).evaluate(rows)[:, 0]
            assert np.array_equal(reached, rows.sum(axis=1) >= limit)


def ands(circuit: Circuit) -> int:
    return sum(gate.op.name in ("AND", "OR") for gate in circuit.gates)


def test_hamming_of_64_bits_costs_less_than_a_formula() -> None:
    """256 bits an AND of the circuit, against about 2 bits and the depth an AND of the formula."""
    schema, text = Schema(x=UInt(64)), "hamming(x, :y) <= 20"
    garbled = GarbledMatch(schema, text)
    with pytest.raises(ParameterError, match="more than the 4,096 AND gates"):
        FormulaMatch(schema, text)
    assert garbled.size == 63 + 4
    # A box is the other way round.
    both = [scheme.box(STOCKS).interest_bytes for scheme in (GarbledMatch, FormulaMatch)]
    assert both[0] > 30 * both[1]


def test_garbling_is_smaller_where_256_bits_an_and_are_less_than_the_formulas_bits() -> None:
    """The crossing of both schemes, for distances from a quarter of all bits."""
    smaller = []
    for bits in (8, 16, 24, 28):
        schema, text = Schema(x=UInt(bits)), f"hamming(x, :y) <= {bits // 4}"
        garbled, formula = GarbledMatch(schema, text), FormulaMatch(schema, text)
        counted = 2 * 128 * garbled.encoding.plan.gates
        assert abs(counted // 8 - garbled.sizes.interest) < 32
        smaller.append(counted < 8 * formula.sizes.interest)
        sizes = [m.event_bytes + m.interest_bytes for m in (garbled, formula)]
        assert smaller[-1] == (sizes[0] < sizes[1])
    assert smaller == [False, False, True, True]


# -- circuits --------------------------------------------------------------------------------------


@given(data=st.data(), circuit=circuits(max_inputs=7, max_gates=25, min_outputs=1))
@settings(max_examples=examples(150))
def test_circuits_answer_as_in_plaintext(data: st.DataObject, circuit: Circuit) -> None:
    circuit = circuit.cone([0])
    if circuit.inputs < 2:
        circuit = Circuit(2, (), (0,))
    cut = data.draw(st.integers(1, circuit.inputs - 1))
    schema, private = Schema(x=UInt(cut)), Schema(y=UInt(circuit.inputs - cut))
    matcher = GarbledMatch.circuit(schema, circuit, private)
    xs, ys = np.divmod(np.arange(1 << circuit.inputs), 1 << private.bits)
    found = answered(matcher, {"x": xs}, [{"y": int(y)} for y in ys])
    assert np.array_equal(found, circuit.evaluate(all_rows(circuit.inputs))[:, 0])
    again = GarbledMatch.from_json(matcher.to_json())
    assert again == matcher and pickle.loads(pickle.dumps(matcher)) == matcher
    assert again.encoding.interest_bytes == matcher.encoding.interest_bytes


def test_a_bristol_file_with_inputs_of_both_parties() -> None:
    """x + y < z, with z private: numbers in the file have their least significant bit first."""
    builder = CircuitBuilder()
    x, y, z = (builder.inputs(width) for width in (12, 12, 13))
    circuit = builder.build(less_than(add(x, y), z))
    text = bristol.dumps(bristol.BristolCircuit.from_blocks(circuit, (12, 12, 13), (1,)))
    schema, private = Schema(x=UInt(12), y=UInt(12)), Schema(z=UInt(13))
    matcher = GarbledMatch.circuit(schema, bristol.loads(text), private)
    rng = np.random.default_rng(2)
    events = {"x": rng.integers(0, 4096, 300), "y": rng.integers(0, 4096, 300)}
    limits = rng.integers(0, 8192, 300)
    expected = events["x"] + events["y"] < limits
    assert answered(matcher, events, [{"z": int(limit)} for limit in limits]).tolist() == (
        expected.tolist()
    )
    assert matcher.meaning({"z": 3000}, schema.encode(events)).tolist() == (
        (events["x"] + events["y"] < 3000).tolist()
    )
    assert "circuit with private z" in repr(matcher)
    assert matcher.leakage.protects >= {Protects.CONSTANTS}
    assert Protects.FORMULA not in matcher.leakage.protects


def test_other_circuits_and_interests_are_refused() -> None:
    builder = CircuitBuilder()
    x, y = builder.inputs(2)
    schema, private = Schema(x=UInt(1)), Schema(y=UInt(1))
    both, product = builder.build(x & y, x | y), builder.build(x & y)
    for make, problem in (
        (lambda: GarbledMatch.circuit(schema, both, private), "one output, got 2"),
        (lambda: GarbledMatch.circuit(schema, product, Schema(y=UInt(2))), r"1 \+ 2 = 3 inputs"),
        (lambda: GarbledMatch(schema), "GarbledMatch.circuit"),
        (lambda: GarbledMatch(STOCKS, "price < :p", max_gates=9), "9 AND gates that max_gates"),
        (lambda: GarbledMatch.box(STOCKS, max_gates=50), "the 50 AND gates"),
        (
            lambda: GarbledMatch.circuit(schema, builder.build((x ^ y) & x), private, max_gates=0),
            "max_gates must be",
        ),
    ):
        with pytest.raises(ParameterError, match=problem):
            make()
    matcher = GarbledMatch.circuit(schema, product, private)
    with pytest.raises(ParameterError, match="mapping with the values of y"):
        matcher.prepare("x = 1")
    with pytest.raises(PredicateError, match="private value of 'y'"):
        matcher.prepare({"y": 2})
    for fields in ({"gates": [[9, 0, 1]]}, {"inputs": "2"}, {"outputs": [7]}):
        with pytest.raises((ParameterError, DecodeError)):
            GarbledMatch.from_json(text_of(matcher, **fields))


# -- messages --------------------------------------------------------------------------------------


def test_interests_carry_their_rounds_and_one_bit() -> None:
    matcher = GarbledMatch.box(Schema(x=UInt(4)))
    rounds = [0, 5, 2**40, 2**64 - 1]
    wanted = matcher.subscriber(SEED).encode("x < 9", rounds=rounds)
    tail = bodies_of(matcher, wanted, "interest")[:, -9:]
    assert tail[:, :8].copy().view("<u8")[:, 0].tolist() == rounds
    assert (tail[:, 8] <= 1).all()
    sent = matcher.publisher(SEED).encode({"x": [3, 9, 8, 15]}, rounds=rounds)
    assert matcher.broker().match(sent, wanted).tolist() == [True, False, True, False]
    altered = wanted.copy()
    altered[2, -1] |= 4
    with pytest.raises(DecodeError, match="row 2: unused bits"):
        matcher.broker().match(sent, altered)
    assert ROUND_HEADER_BYTES + matcher.sizes.interest == matcher.interest_bytes


def test_a_pad_and_batches_of_pairs() -> None:
    matcher = GarbledMatch.box(Schema(x=UInt(3)))
    pad = OneTimePad(np.random.default_rng(0).bytes(64 * matcher.randomness_bytes))
    events, rounds = {"x": [*range(8)] * 8}, range(64)
    texts = [f"x > {limit}" for limit in range(8) for _ in range(8)]
    sent = matcher.publisher(pad).encode(events, rounds)
    wanted = matcher.subscriber(pad).encode(texts, rounds)
    order = np.random.default_rng(1).permutation(64)
    found = matcher.broker().match(sent[order], wanted[order])
    expected = np.array([x > limit for limit in range(8) for x in range(8)])
    assert np.array_equal(found, expected[order])


def test_the_card_says_what_is_public() -> None:
    box = GarbledMatch.box(STOCKS).leakage
    assert box.security == "computational" and "about 110 bits" in box.assumption
    assert "epochs" in box.assumption  # rounds start afresh, and with them keys and tweaks
    assert Protects.ATTRIBUTES in box.protects
    template = GarbledMatch(STOCKS, "price < :p").leakage
    assert Protects.ATTRIBUTES not in template.protects
    assert any("number of the round" in text for text in template.learns)
    text = GarbledMatch(STOCKS, "price < :p").explain()
    assert "15 gates of two ciphertexts, 1 of one" in text and "62 x AES block" in text


def test_interests_do_not_depend_on_private_constants_in_size_or_form() -> None:
    matcher = GarbledMatch(quotes(1, 0).schema, "price < :p AND issue = :i")
    seed = SharedSeed.generate()
    rows = matcher.subscriber(seed).encode(
        [{"p": p, "i": i} for p in (0, 5, 10**6) for i in ("IBM", "none")], rounds=range(6)
    )
    assert len({row.tobytes() for row in rows}) == 6
    assert rows.shape == (6, matcher.interest_bytes)
