"""Hidden trees: true of the same events as the predicate's code form, and as deep as said."""

from __future__ import annotations

import random
from functools import cache
from itertools import combinations_with_replacement, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ccbps.circuits import CircuitBuilder
from ccbps.errors import ParameterError
from ccbps.forms.bits import event_bits
from ccbps.forms.circuit import predicate_circuit
from ccbps.predicates import (
    Category,
    Events,
    Form,
    HammingWithin,
    InRange,
    Schema,
    Text,
    UInt,
    iter_leaves,
)
from ccbps.predicates.box import NormalForm, NotABox, union_of
from ccbps.predicates.codes import limbs_for, pack
from ccbps.predicates.form import NEVER
from ccbps.predicates.hiding import (
    MAX_DEPTH,
    AnyLeaf,
    DoesNotFit,
    HiddenTree,
    LeafKind,
    LiteralLeaf,
    RangeLeaf,
    TreeNode,
    block,
    hide,
)
from tests.support.effort import examples
from tests.support.strategies import predicates, schemas, small_types

KINDS: tuple[LeafKind, ...] = ("literal", "compare", "interval", "box")

STOCK = Schema(price=UInt(16), volume=UInt(16), issue=UInt(20), flags=UInt(64))


def events_of(schema: Schema, rows: list[tuple[int, ...]]) -> Events:
    """Events of these codes."""
    columns = zip(*rows, strict=True)
    codes = {
        name: pack(column, limbs_for(schema[name].bits))
        for name, column in zip(schema, columns, strict=True)
    }
    return Events(schema, len(rows), codes)


def telling_events(schema: Schema, form: Form, seed: int) -> Events:
    """Events with codes at the edges of ranges, and others."""
    draw = random.Random(seed)
    edges = {name: {0, 1, schema[name].size - 1} for name in schema}
    for leaf in iter_leaves(form):
        if isinstance(leaf, InRange):
            assert leaf.low is not None and leaf.high is not None
            near = [leaf.low - 1, leaf.low, leaf.high, leaf.high + 1]
        else:
            assert leaf.value is not None
            flips = draw.sample(range(64), min(64, leaf.limit + 1))
            near = [leaf.value, leaf.value ^ sum(1 << place for place in flips)]
        edges[leaf.attribute].update(near)
    choices = [
        [code for code in sorted(codes) if 0 <= code < schema[name].size]
        + [draw.randrange(schema[name].size) for _ in range(3)]
        for name, codes in edges.items()
    ]
    return events_of(schema, [tuple(map(draw.choice, choices)) for _ in range(200)])


def all_events(schema: Schema) -> Events:
    """Every combination of codes."""
    return events_of(schema, list(product(*(range(schema[name].size) for name in schema))))


def needed(schema: Schema, predicate: str | Form, kind: LeafKind) -> int | None:
    """The least depth that `hide` takes."""
    form = schema.parse(predicate).true_form() if isinstance(predicate, str) else predicate
    try:
        hide(schema, form, 0, kind)
    except DoesNotFit as problem:
        return problem.needed_depth
    return 0


def constant(leaf: AnyLeaf) -> bool:
    """Whether a leaf says nothing of events."""
    return leaf.bit is None if isinstance(leaf, LiteralLeaf) else not leaf.ranges


def fits(leaf: AnyLeaf, kind: LeafKind) -> bool:
    """Whether a leaf is of a kind."""
    if isinstance(leaf, LiteralLeaf) or kind == "literal":
        return isinstance(leaf, LiteralLeaf) and kind == "literal"
    compared = all(low == 0 or block(low, high) is not None for low, high in leaf.ranges.values())
    return kind == "box" or (len(leaf.ranges) <= 1 and (kind == "interval" or compared))


def hidden(schema: Schema, form: Form, depth: int, kind: LeafKind, events: Events) -> HiddenTree:
    """Return the form's tree, which is true of the same events."""
    tree = hide(schema, form, depth, kind)
    assert_array_equal(tree.evaluate(events), form.evaluate(events))
    return tree


# -- truth --------------------------------------------------------------------------------------


def check(schema: Schema, form: Form, depth: int, kind: LeafKind, events: Events) -> None:
    """The tree is right, or there is one of the depth that the error says and none before."""
    enough = needed(schema, form, kind)
    if enough is None:
        assert kind != "literal"
        assert any(isinstance(leaf, HammingWithin) for leaf in iter_leaves(form))
        return
    if depth < enough:
        with pytest.raises(DoesNotFit) as problem:
            hide(schema, form, depth, kind)
        assert problem.value.needed_depth == enough
        assert problem.value.needed_leaves == 2**enough
        if enough > 11:
            return
        depth = enough
    tree = hidden(schema, form, depth, kind, events)
    assert tree.depth == depth
    assert all(fits(leaf, kind) for leaf in tree.leaves)


@settings(max_examples=examples(150))
@given(data=st.data())
def test_trees_are_true_where_the_form_is(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    drawn = data.draw(predicates(schema, private=False))
    form = schema.parse(drawn.text).true_form()
    depth = data.draw(st.integers(0, 6))
    events = telling_events(schema, form, data.draw(st.integers(0, 99)))
    for kind in KINDS:
        check(schema, form, depth, kind, events)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(150))
@given(data=st.data())
def test_trees_are_true_where_the_form_is_on_every_event(
    kind: LeafKind, data: st.DataObject
) -> None:
    schema = data.draw(schemas(small_types()))
    drawn = data.draw(predicates(schema, private=False))
    form = schema.parse(drawn.text).true_form()
    check(schema, form, data.draw(st.integers(0, 4)), kind, all_events(schema))


ONE_ATTRIBUTE = [
    *(UInt(bits) for bits in range(1, 4)),
    pytest.param(UInt(4), marks=pytest.mark.slow),
    UInt(3, nullable=True),
    *(Category([str(number) for number in range(count)]) for count in (1, 3, 5, 6, 11)),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_", ONE_ATTRIBUTE, ids=repr)
def test_every_range_of_a_small_attribute(kind: LeafKind, type_: Any) -> None:
    schema = Schema(x=type_)
    events = all_events(schema)
    size = type_.size
    # Bounds outside the codes and empty ranges come from constants outside the domain.
    for low, high, negated in product(range(size + 1), range(-1, size + 1), (False, True)):
        if high < low - 1:
            continue
        form = InRange("x", low, high, equal=False, negated=negated)
        depth = needed(schema, form, kind)
        assert depth is not None
        tree = hidden(schema, form, depth, kind, events)
        inside = [code for code in range(size) if low <= code <= high]
        if kind == "compare":
            length = len(inside)
            block = length & (length - 1) == 0 and low % max(1, length) == 0
            assert depth == int(not (block or low == 0 or high >= size - 1))
        elif kind != "literal":
            assert depth == 0
        if len(inside) in (0, size):
            assert depth == 0
            assert constant(tree.leaves[0])


def least_depths(bits: int) -> dict[int, int]:
    """The least depth of every function of so many bits; functions as truth tables."""
    points = range(1 << bits)
    full = (1 << (1 << bits)) - 1
    inputs = [sum(1 << point for point in points if point >> bit & 1) for bit in range(bits)]
    depths = {table: 0 for bits in (0, *inputs) for table in (bits, full ^ bits)}
    depth = 0
    while len(depths) <= full:
        depth += 1
        for a, b in product(list(depths), repeat=2):
            depths.setdefault(a & b, depth)
            depths.setdefault(a | b, depth)
    return depths


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_ranges_of_few_bits_have_the_least_depth_there_is(bits: int) -> None:
    schema = Schema(x=UInt(bits))
    depths = least_depths(bits)
    for low, high in product(range(1 << bits), repeat=2):
        if low <= high:
            table = sum(1 << code for code in range(low, high + 1))
            form = InRange("x", low, high, equal=False, negated=False)
            assert needed(schema, form, "literal") == depths[table]


@pytest.mark.parametrize(("bits", "more"), [(2, 0), (3, 1)])
def test_sets_of_few_codes_have_about_the_least_depth(bits: int, more: int) -> None:
    schema = Schema(x=UInt(bits))
    events = all_events(schema)
    for table, least in least_depths(bits).items():
        codes = [str(code) for code in range(1 << bits) if table >> code & 1]
        form = schema.parse(f"x IN ({', '.join(codes)})" if codes else "FALSE").true_form()
        depth = needed(schema, form, "literal")
        assert depth is not None
        assert least <= depth <= least + more
        hidden(schema, form, depth, "literal", events)


@pytest.mark.parametrize("size", range(1, 9))
def test_every_set_of_codes_of_a_small_attribute(size: int) -> None:
    names = [str(number) for number in range(size)]
    schema = Schema(x=Category(names))
    events = all_events(schema)
    for table in range(1, 1 << size):
        chosen = [f"'{name}'" for place, name in enumerate(names) if table >> place & 1]
        form = schema.parse(f"x IN ({', '.join(chosen)})").true_form()
        hidden(schema, form, 6, "literal", events)


@settings(max_examples=examples(100))
@given(data=st.data())
def test_literals_are_no_deeper_than_the_circuit(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    predicate = schema.parse(data.draw(predicates(schema, private=False)).text)
    depth = needed(schema, predicate.true_form(), "literal")
    assert depth is not None
    assert depth <= predicate_circuit(predicate).depth


# -- depths -------------------------------------------------------------------------------------

SIXTEEN = " OR ".join(f"price = {7 * number + 1}" for number in range(16))
ALTERNATIVES = "(price BETWEEN 3 AND 9 AND volume > 5 OR issue = 8 AND price > 77) AND flags < 3"


@pytest.mark.parametrize(
    ("text", "kind", "depth"),
    [
        ("price = 5", "literal", 4),
        ("flags = 5", "literal", 6),
        ("price < 32768", "literal", 0),
        ("hamming(price, 3) <= 0", "literal", 4),
        (SIXTEEN, "compare", 4),
        (SIXTEEN, "interval", 4),
        (SIXTEEN, "box", 4),
        ("NOT (" + SIXTEEN + ")", "compare", 4),
        ("price IN (4, 5, 6, 7)", "compare", 0),
        ("price IN (4, 5, 6)", "compare", 1),
        ("price IN (4, 5, 6, 9)", "interval", 1),
        ("price NOT IN (5, 9)", "compare", 1),
        ("price < 100 AND price <> 5", "compare", 1),
        ("price > 5 AND price < 9", "interval", 0),
        ("price < 5 OR price > 9", "interval", 0),
        ("price < 5 OR price > 9", "compare", 1),
        ("price < 5 OR NOT (price > 3 AND price > 4)", "compare", 0),
        ("price < 5 AND volume < 5 AND issue > 3 AND flags > 2", "compare", 2),
        ("at_least(2, price < 5, price < 9)", "compare", 0),
        ("at_least(2, price < 5, volume < 5, issue < 5)", "compare", 3),
        ("at_least(2, price < 5, volume < 5, issue < 5)", "box", 2),
        ("at_least(1, price < 5, volume < 5)", "interval", 1),
        ("price < 5 AND volume > 3 AND issue BETWEEN 4 AND 9 AND flags = 3", "box", 0),
        ("price < 5 OR volume > 3", "box", 0),
        ("price <> 5 AND volume <> 6 AND issue < 3", "box", 2),
        (ALTERNATIVES, "box", 1),
        (ALTERNATIVES, "interval", 3),
        ("(price = 5 OR volume = 7) AND issue < 3 AND flags < 4", "box", 1),
        ("TRUE", "box", 0),
        ("price > 70000", "literal", 0),
    ],
)
def test_known_depths(text: str, kind: LeafKind, depth: int) -> None:
    assert needed(STOCK, text, kind) == depth


def test_a_conjunction_over_ten_attributes_is_one_box() -> None:
    schema = Schema({f"a{number}": UInt(16) for number in range(10)})
    text = " AND ".join(f"a{n} BETWEEN {n + 3} AND {n + 9} AND a{n} <> {n + 3}" for n in range(10))
    form = schema.parse(text).true_form()
    (leaf,) = hidden(schema, form, 0, "box", telling_events(schema, form, 0)).leaves
    assert isinstance(leaf, RangeLeaf)
    assert dict(leaf.ranges) == {f"a{n}": (n + 4, n + 9) for n in range(10)}


def test_codes_that_do_not_occur_are_free() -> None:
    schema = Schema(x=Category(["a", "b", "c"]))
    assert needed(schema, "x = 'c'", "literal") == 0  # the first of two bits
    assert needed(schema, "x = 'b'", "literal") == 0  # the second
    assert needed(schema, "x = 'a'", "literal") == 1


def test_conjunctions_open_to_each_other() -> None:
    # Sixty literals: six levels, though twenty alone take five and three of those seven.
    schema = Schema(a=UInt(20), b=UInt(20), c=UInt(20))
    assert needed(schema, "a = 5", "literal") == 5
    assert needed(schema, "a = 5 AND b = 6 AND c = 7", "literal") == 6


@pytest.mark.parametrize("kind", KINDS)
def test_deep_formulas_become_products(kind: LeafKind) -> None:
    schema = Schema({f"x{number}": UInt(1) for number in range(13)})
    text = "x0 = 1"
    for number in range(1, 13):
        text = f"({text} {'OR' if number % 2 else 'AND'} x{number} = 1)"
    depth = needed(schema, text, kind)
    assert depth is not None
    assert depth <= 6
    hidden(schema, schema.parse(text).true_form(), depth, kind, all_events(schema))


@pytest.mark.parametrize("first", ["a{n} < 5 AND b{n} > 3", "a{n} < 5"])
def test_a_box_moves_into_alternatives(first: str) -> None:
    # Sixteen boxes are a tree of depth 4, and one leaf more would make it 5. As a union they would
    # be 2^8 products and, with the ninth pair, more than are tried.
    schema = Schema({f"{name}{n}": UInt(8) for n in range(9) for name in "ab"} | {"c": UInt(8)})
    pairs = [f"({first} OR a{{n}} > 9 AND b{{n}} < 7)".format(n=n) for n in range(9)]
    text = " AND ".join(pairs[:8])
    assert needed(schema, text, "box") == needed(schema, f"{text} AND c < 9", "box") == 4
    assert needed(schema, " AND ".join(pairs), "box") == 5
    form = schema.parse(f"{text} AND c < 9").true_form()
    hidden(schema, form, 4, "box", telling_events(schema, form, 1))


def test_a_box_stays_where_an_alternative_has_none() -> None:
    # Eight leaves, four, two and the box; the gaps of `a` and `b` do not take the box.
    schema = Schema({name: UInt(8) for name in "abcdex"})
    text = (
        "((a NOT IN (100, 200) AND b NOT IN (100, 200)) OR (a < 3 AND b NOT IN (10, 20, 30)))"
        " AND ((c <> 5 AND d <> 9) OR (c < 3 AND d <> 4)) AND e NOT IN (5, 9)"
    )
    assert needed(schema, text, "box") == needed(schema, f"{text} AND x < 9", "box") == 4


@pytest.mark.parametrize("kind", KINDS)
def test_spare_leaves_are_constants(kind: LeafKind) -> None:
    schema = Schema(x=UInt(4), y=UInt(8))
    form = schema.parse("x < 8").true_form()
    for depth in range(5):
        tree = hidden(schema, form, depth, kind, all_events(schema))
        assert len(tree.leaves) == 2**depth
        assert len(tree.nodes) == 2**depth - 1
        assert sum(not constant(leaf) for leaf in tree.leaves) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["TRUE", "FALSE", "x < 0", "x >= 0", "x < 3 AND x > 5"])
def test_constants_need_no_leaf(kind: LeafKind, text: str) -> None:
    schema = Schema(x=UInt(4))
    form = schema.parse(text).true_form()
    for depth in (0, 2):
        assert all(map(constant, hidden(schema, form, depth, kind, all_events(schema)).leaves))


# -- hostile predicates -------------------------------------------------------------------------


def gates_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one with every gate that is asked for."""
    gates: list[int] = []
    gate = CircuitBuilder.gate

    def counted(self: CircuitBuilder, *arguments: Any) -> Any:
        gates.append(1)
        return gate(self, *arguments)

    monkeypatch.setattr(CircuitBuilder, "gate", counted)
    return gates


@cache
def form_of(text: str) -> Form:
    """Of a long text, which is read once for all kinds of leaves."""
    return STOCK.parse(text).true_form()


def conditions(count: int, operator: str = ">") -> list[str]:
    return [f"{STOCK.names[n % 4]} {operator} {7 * n}" for n in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        f"at_least(150, {', '.join(conditions(300))})",
        f"price IN ({', '.join(str(2 * n) for n in range(19_000))})",
        " AND ".join(f"at_least(9, {', '.join(conditions(64))})" for _ in range(20)),
    ],
    ids=["at_least", "IN", "many at_least"],
)
def test_what_is_too_large_is_refused_at_once(
    kind: LeafKind, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = form_of(text)
    gates = gates_made(monkeypatch)
    with pytest.raises(DoesNotFit, match="too large") as problem:
        hide(STOCK, form, MAX_DEPTH, kind)
    assert problem.value.needed_depth is problem.value.needed_leaves is None
    assert not gates


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        f"at_least(30, {', '.join(conditions(60))})",
        f"flags IN ({', '.join(str(123456789 * n) for n in range(4000))})",
        " AND ".join(f"({' OR '.join(conditions(count, '='))})" for count in range(20, 50)),
        " OR ".join(f"hamming(flags, {n}) < 20" for n in range(100)),
        " OR ".join(f"hamming(flags, {n}) < 2" for n in range(100)),
        " OR ".join(f"flags BETWEEN {n << 32} AND {(n << 32) + 12345}" for n in range(500)),
    ],
    ids=["at_least", "IN", "clauses", "balls", "small balls", "ranges"],
)
def test_the_work_is_bounded(kind: LeafKind, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form = form_of(text)
    gates = gates_made(monkeypatch)
    with pytest.raises(DoesNotFit):
        hide(STOCK, form, 3, kind)
    assert len(gates) < 400_000


def test_pairs_of_products_are_counted_before_they_are_joined() -> None:
    form = form_of("(price < 3 OR volume < 3) AND (price > 5 OR volume > 5)")
    part = NormalForm(STOCK, spell_out=False).of(form)
    assert len(union_of(STOCK, part, most_pairs=4)) == 2
    with pytest.raises(NotABox, match="too many alternatives"):
        union_of(STOCK, part, most_pairs=3)


# -- trees --------------------------------------------------------------------------------------


def test_nodes_are_all_that_they_can_be() -> None:
    schema = Schema(x=UInt(2))
    events = all_events(schema)
    a, b = event_bits(events).T
    for either, negated, not_a, not_b in product((False, True), repeat=4):
        leaves = (LiteralLeaf(not_a, 0), LiteralLeaf(not_b, 1))
        tree = HiddenTree(1, (TreeNode(either, negated),), leaves)
        joined = (a ^ not_a) | (b ^ not_b) if either else (a ^ not_a) & (b ^ not_b)
        assert_array_equal(tree.evaluate(events), joined ^ negated)


def test_nodes_stand_in_heap_order() -> None:
    schema = Schema(x=UInt(4))
    events = all_events(schema)
    a, b, c, d = event_bits(events).T
    leaves = tuple(LiteralLeaf(False, bit) for bit in range(4))
    nodes = (TreeNode(False, False), TreeNode(True, True), TreeNode(True, False))
    tree = HiddenTree(2, nodes, leaves)
    assert_array_equal(tree.evaluate(events), ~(a | b) & (c | d))


def test_bits_are_numbered_as_events_are() -> None:
    schema = Schema(flag=UInt(1), note=Text(12), price=UInt(16))
    draw = random.Random(5)
    rows = [tuple(draw.randrange(schema[name].size) for name in schema) for _ in range(50)]
    events = events_of(schema, rows)
    bits = event_bits(events)
    for bit in range(schema.bits):
        assert_array_equal(LiteralLeaf(False, bit).evaluate(events), bits[:, bit])
        assert_array_equal(LiteralLeaf(True, bit).evaluate(events), ~bits[:, bit])
    with pytest.raises(ParameterError, match="beyond"):
        LiteralLeaf(False, schema.bits).evaluate(events)


def test_leaves_are_true_of_their_codes() -> None:
    schema = Schema(x=UInt(3), y=UInt(2))
    events = all_events(schema)
    x, y = (events.codes[name][0] for name in schema)
    cases: list[tuple[AnyLeaf, Any]] = [
        (RangeLeaf(False, {"x": (1, 4), "y": (2, 3)}), (x >= 1) & (x <= 4) & (y >= 2)),
        (RangeLeaf(False, {}), np.ones(len(events), dtype=bool)),
        (RangeLeaf(True, {}), np.zeros(len(events), dtype=bool)),
        (RangeLeaf(False, {"x": (2, 5)}), (x >= 2) & (x <= 5)),
        (RangeLeaf(True, {"y": (0, 0)}), y != 0),
        (LiteralLeaf(True, None), np.ones(len(events), dtype=bool)),
        (LiteralLeaf(False, None), np.zeros(len(events), dtype=bool)),
    ]
    for leaf, truth in cases:
        assert_array_equal(leaf.evaluate(events), truth)


def test_blocks_are_the_ranges_of_one_prefix() -> None:
    prefixes = {
        (start << free, (start + 1 << free) - 1): free
        for free in range(5)
        for start in range(1 << 4 - free)
    }
    for low, high in combinations_with_replacement(range(16), 2):
        assert block(low, high) == prefixes.get((low, high))


def test_reprs_show_nothing_of_the_subscription() -> None:
    for kind in KINDS:
        form = STOCK.parse("price BETWEEN 4321 AND 5432 AND NOT volume = 4711").true_form()
        tree = hide(STOCK, form, 7, kind)
        assert repr(tree) == "<HiddenTree: depth 7>"
        assert {type(leaf).__repr__ for leaf in tree.leaves} == {object.__repr__}
        assert {type(node).__repr__ for node in tree.nodes} == {object.__repr__}
        with pytest.raises(DoesNotFit) as problem:
            hide(STOCK, STOCK.parse(SIXTEEN).true_form(), 1, kind)
        assert str(problem.value) == f"needs depth {problem.value.needed_depth}"


LEAF = LiteralLeaf(False, 0)


@pytest.mark.parametrize(
    ("depth", "nodes", "leaves", "message"),
    [
        (-1, 0, [LEAF], "leaves must be 2"),
        (1, 1, [LEAF], "leaves must be 2"),
        (1, 0, [LEAF, LEAF], "nodes must be"),
        (1, 1, [LEAF, RangeLeaf(False, {})], "one kind"),
    ],
)
def test_a_tree_has_all_its_nodes_and_leaves_of_one_kind(
    depth: int, nodes: int, leaves: list[AnyLeaf], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        HiddenTree(depth, (TreeNode(False, False),) * nodes, tuple(leaves))


def test_arguments_are_checked() -> None:
    wrong: Any = "circle"
    with pytest.raises(ParameterError, match="'interval' or 'box', got 'circle'"):
        hide(STOCK, NEVER, 1, wrong)
    for depth in (-1, MAX_DEPTH + 1):
        with pytest.raises(ParameterError, match=f"depth .* from 0 to {MAX_DEPTH}, got {depth}"):
            hide(STOCK, NEVER, depth, "box")
    for text in ("price < :limit", "hamming(price, :limit) < 3"):
        for kind in KINDS:
            with pytest.raises(ParameterError, match="not bound"):
                hide(STOCK, STOCK.parse(text).true_form(), 1, kind)


def test_depths_grow_with_conditions() -> None:
    counts = [needed(STOCK, " AND ".join(conditions(4)[:n]), "interval") for n in (1, 2, 3, 4)]
    assert counts == [0, 1, 2, 2]
    depths = [needed(STOCK, f"price IN ({', '.join(map(str, range(0, 2 * n, 2)))})", "box")
              for n in range(1, 40)]  # fmt: skip
    fitting = [depth for depth in depths if depth is not None]
    assert all(0 <= after - before <= 1 for before, after in pairwise(fitting))
    assert fitting == [(n - 1).bit_length() for n in range(1, 40)]
