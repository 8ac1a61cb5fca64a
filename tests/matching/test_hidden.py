"""Hidden formulas, of FormulaMatch and of BroadcastMatch: answers, sizes, what does not fit."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Keyword, Schema, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.leakage import Protects
from ccbps.matching import BroadcastMatch, FormulaMatch, from_json
from ccbps.predicates.hiding import DoesNotFit, hide
from ccbps.programs.formula import gates
from tests.support.effort import examples
from tests.support.one_time import SEED, answered
from tests.support.strategies import predicates, record, rows, schemas

SCHEMA = Schema(price=UInt(16), volume=UInt(16), issue=Keyword(20))
SMALL = Schema(a=UInt(5), b=UInt(3), c=UInt(4))
KINDS = ["literal", "compare", "interval", "box"]
MAKERS = {
    "formula": FormulaMatch.hidden,
    "broadcast, 1 bit": partial(BroadcastMatch.hidden, window=1),
    "broadcast, 2 bits": partial(BroadcastMatch.hidden, window=2),
    "broadcast, 3 bits": partial(BroadcastMatch.hidden, window=3),
    "broadcast, 4 bits": partial(BroadcastMatch.hidden, window=4),
}
SLOW = ("broadcast, 1 bit", "broadcast, 3 bits", "broadcast, 4 bits")
"""Makers whose tests of many answers are slow: these have the most rows."""
each_maker = pytest.mark.parametrize(
    "maker", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in MAKERS]
)


@each_maker
@given(schema=schemas(max_attributes=2), data=st.data())
@settings(max_examples=examples(45))
def test_any_predicate_that_fits_answers_as_plaintext(
    maker: str, schema: Schema, data: st.DataObject
) -> None:
    drawn = data.draw(predicates(schema))
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    kind = data.draw(st.sampled_from(KINDS))
    try:
        matcher = MAKERS[maker](schema, depth=2, leaf=kind, max_gates=1 << 12)
    except ParameterError:
        return  # 64 bits of a literal in many leaves
    try:
        hide(schema, predicate.true_form(), 2, kind)
    except DoesNotFit:
        with pytest.raises(UnsupportedPredicateError, match="does not fit a hidden formula"):
            matcher.prepare(predicate)
    else:
        expected = predicate.evaluate(events).tolist()
        assert answered(matcher, events, predicate).tolist() == expected


TEXTS = [
    "a < 7 AND b BETWEEN 2 AND 5 OR c = 3",
    "a IN (1, 5, 9) OR NOT c > 4",
    "a >= 30",
    "b = 0 AND a < 20 AND c <> 7",
    "at_least(2, a < 10, b > 3, c = 5)",
    "a BETWEEN 9 AND 4 OR c = 1",
    "a BETWEEN 9 AND 4",
    "NOT (a < 3 AND b < 3)",
    "a <> 31",
]


@pytest.mark.parametrize("kind", KINDS)
@each_maker
@pytest.mark.parametrize("pairs", [3_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_many_pairs_answer_as_plaintext(pairs: int, maker: str, kind: str) -> None:
    matcher = MAKERS[maker](SMALL, leaves=32 if kind == "literal" else 8, leaf=kind)
    taken = []
    for text in TEXTS:
        try:
            matcher.prepare(text)
        except UnsupportedPredicateError:
            continue
        taken.append(text)
    assert len(taken) >= 6, "most of them are to fit"
    rng = np.random.default_rng(pairs)
    events = SMALL.encode({n: rng.integers(0, SMALL[n].size, pairs) for n in SMALL})
    which = rng.integers(0, len(taken), pairs).astype(np.intp)
    found = answered(matcher, events, DictionaryColumn(taken, which))
    for i, text in enumerate(taken):
        assert np.array_equal(found[which == i], SMALL.parse(text).evaluate(events)[which == i])


def test_sizes_are_those_of_the_counted_formula() -> None:
    wide = Schema(x=UInt(32))
    literals = FormulaMatch.hidden(wide, leaves=16, leaf="literal")
    assert literals.encoding.slots.bits == (1_121, 1_601)  # OFSGP: 32,768 elements of a group
    assert (literals.sizes.event, literals.sizes.interest) == (141, 201)
    compare = FormulaMatch.hidden(SCHEMA, leaves=8, leaf="compare")
    assert compare.encoding.slots.bits == (2_721, 2_989)
    assert gates(compare.formula) == 8 * 52 + 7
    for leaves, size in ((1, 94), (4, 617), (8, 1_494)):
        broadcast = BroadcastMatch.hidden(SCHEMA, leaves=leaves, leaf="interval", window=1)
        assert broadcast.sizes.interest == 12 + size


@pytest.mark.parametrize("maker", MAKERS)
def test_messages_have_one_length_whatever_the_formula(maker: str) -> None:
    matcher = MAKERS[maker](SMALL, leaves=4, leaf="interval")
    texts = ["a < 7", "a < 7 OR b = 3 OR c = 1", "NOT a < 7", "b BETWEEN 5 AND 2", "a >= 0"]
    sent = matcher.subscriber(SEED).encode(texts, rounds=range(len(texts)))
    assert sent.shape == (len(texts), matcher.interest_bytes)
    assert len({matcher.prepare(text).tobytes() for text in texts}) == len(texts)


def test_what_does_not_fit_says_what_it_needs_and_what_to_take() -> None:
    matcher = FormulaMatch.hidden(SCHEMA, leaves=4, leaf="interval")
    text = "price IN (1, 5, 9, 13, 19)"
    with pytest.raises(UnsupportedPredicateError) as refused:
        matcher.subscriber(SEED).encode(text, rounds=[0])
    message = str(refused.value)
    for part in (
        "depth 2, 4 interval leaves",
        "needs depth 3, 8 leaves",
        "BranchingMatch",
        "bytes",
    ):
        assert part in message
    # The short form, which may be logged, says nothing of the predicate.
    wide = "price IN (1, 5, 9, 13, 19, 40, 60, 77, 99, 123, 140) OR price BETWEEN 200 AND 300"
    with pytest.raises(UnsupportedPredicateError) as wider:
        matcher.prepare(wide)
    assert str(wider.value) != message
    assert wider.value.summary == refused.value.summary
    deeper = FormulaMatch.hidden(SCHEMA, depth=3, leaf="interval")
    deeper.prepare(text)
    with pytest.raises(UnsupportedPredicateError, match="too large to say"):
        matcher.prepare(f"price IN ({', '.join(map(str, range(0, 60_000, 4)))})")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "needs leaves="),
        ({"leaves": 3}, "power of two"),
        ({"leaves": 0}, "take a power of two"),
        ({"leaves": True}, "power of two"),
        ({"depth": -1}, "from 0 to 16"),
        ({"depth": 17}, "from 0 to 16"),
        ({"depth": 1.0}, "from 0 to 16"),
        ({"leaves": 4, "depth": 3}, "has 8 leaves, not 4"),
        ({"leaves": 4, "leaf": "tree"}, "leaf must be 'literal'"),
        ({"leaves": 4, "max_gates": 100}, "would have"),
        ({"depth": 16, "leaf": "box"}, "AND gates"),
    ],
)
@pytest.mark.parametrize("scheme", [FormulaMatch, BroadcastMatch])
def test_impossible_trees_are_refused(scheme: Any, arguments: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        scheme.hidden(SCHEMA, **arguments)


def test_digits_of_hidden_literals_count_as_gates() -> None:
    with pytest.raises(ParameterError, match="digits and AND gates"):
        BroadcastMatch.hidden(Schema(a=UInt(64)), depth=12, leaf="literal")
    large = BroadcastMatch.hidden(Schema(a=UInt(64)), depth=3, leaf="literal", max_gates=263)
    assert gates(large.formula) == 7
    with pytest.raises(ParameterError, match="263"):
        BroadcastMatch.hidden(Schema(a=UInt(64)), depth=3, leaf="literal", max_gates=262)
    many = Schema({f"a{number}": UInt(64) for number in range(130)})
    somebodys = BroadcastMatch.hidden(many, depth=0, leaf="literal", max_gates=5000)
    assert pickle.loads(pickle.dumps(somebodys)) == somebodys
    with pytest.raises(ParameterError, match="digits and AND gates"):
        BroadcastMatch.from_json(somebodys.to_json())


@pytest.mark.parametrize("scheme", [FormulaMatch, BroadcastMatch])
def test_text_form_equality_and_card(scheme: Any) -> None:
    matcher = scheme.hidden(SMALL, leaves=4, leaf="compare")
    for same in (
        from_json(matcher.to_json()),
        pickle.loads(pickle.dumps(matcher)),
        scheme.hidden(SMALL, depth=2, leaf="compare"),
    ):
        assert same == matcher and same.hidden_tree == (2, "compare")
    others = [
        scheme.hidden(SMALL, leaves=4, leaf="interval"),
        scheme.hidden(SMALL, leaves=8, leaf="compare"),
        scheme.box(SMALL),
        scheme(SMALL, "a < :p"),
    ]
    assert len({matcher.fingerprint, *(other.fingerprint for other in others)}) == 5
    assert Protects.FORMULA in matcher.leakage.protects
    assert all(Protects.FORMULA not in other.leakage.protects for other in others[2:])
    assert "hidden formula of 4 compare leaves" in repr(matcher)
    assert "hidden formula of 4 compare leaves" in matcher.explain()


def test_what_is_no_box_is_proposed_a_hidden_formula() -> None:
    wanted = SMALL.parse("a < 7 AND b = 2 OR c = 3")
    found = list(FormulaMatch.propose(SMALL, wanted))
    assert [m.hidden_tree for m in found] == [(1, "box")]
    assert found[0].prepare(wanted) is not None
    box = SMALL.parse("a < 7")
    assert [m.hidden_tree for m in FormulaMatch.propose(SMALL, box)] == [None]
    # A planner compares the box with the smallest tree, too.
    assert [m.hidden_tree for m in FormulaMatch.variants(SMALL, box)] == [None, (0, "box")]
