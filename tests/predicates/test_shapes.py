"""Texts of one shape: exactly what reading each in full gives, errors included."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from ccbps import Category, Decimal, Keyword, Schema, Text, Timestamp, UInt
from ccbps.errors import PredicateError
from ccbps.predicates import Predicate
from ccbps.predicates.parsed import ParsedPredicates, Shape, split
from ccbps.predicates.sql import read_sql
from tests.support.effort import examples
from tests.support.strategies import Const, Drawn, Node, constants, domain, predicates, schemas

SCHEMA = Schema(
    price=UInt(8),
    limit=Decimal(0, 100, "0.01", nullable=True),
    issue=Category(["GOOG", "IBM", "it's"]),
    note=Text(8),
    word=Keyword(64),
    day=Timestamp("day", "2020-01-01", "2029-12-31"),
    at=Timestamp("us", "2020-01-01", "2029-12-31"),
)


def dumped(node: Any) -> Any:
    """A tree with the types of all constants and all places, which == leaves out."""
    if isinstance(node, Struct):
        return type(node).__name__, [dumped(part) for part in structs.astuple(node)]
    return [dumped(part) for part in node] if isinstance(node, tuple) else (type(node), repr(node))


def outcome(parser: Any, *arguments: Any) -> Any:
    """The predicate or the error, all of it."""
    try:
        predicate: Predicate = parser(*arguments)
    except PredicateError as error:
        return type(error), str(error), error.reason, error.summary, error.text, error.position
    return dumped(predicate.expression), predicate.text, predicate.private_names


def check(schema: Schema, *texts: str) -> None:
    kept = ParsedPredicates(1 << 16)
    for text in texts:
        assert outcome(kept.parse, schema, text) == outcome(schema.parse, text)


def redrawn(draw: st.DrawFn, schema: Schema, node: Node) -> Node:
    """The node with other constants of the same kinds."""
    others = []
    for constant in node.constants:
        value = constant.value
        if value is not None and constant.name is None:
            kind = schema[node.attribute]
            value = draw(domain(kind) if node.kind == "hamming" else constants(kind))
            if node.kind == "like" and constant.value.endswith("%"):
                value += "%"
        others.append(Const(value, constant.name))
    parts = tuple(redrawn(draw, schema, part) for part in node.parts)
    return dataclasses.replace(node, constants=tuple(others), parts=parts)


@st.composite
def twins(draw: st.DrawFn) -> tuple[Schema, str, str]:
    """A schema and two predicates that differ in constants."""
    schema = draw(schemas())
    drawn = draw(predicates(schema))
    return schema, drawn.text, Drawn(schema, redrawn(draw, schema, drawn.node)).text


@given(twins())
@settings(max_examples=examples(300))
def test_twins_are_read_as_each_alone(drawn: tuple[Schema, str, str]) -> None:
    schema, first, second = drawn
    check(schema, first, second, first)
    check(schema, second, first)


HOSTILE = [
    "--", "/*", "*/", "'", "''", '"', "\\", "é", "\u2028", "\x00", "\n", "N'", "x'1f'", "b'01'",
    "E'\\n'", "1", "-", "+", ".", "1.", ".5", "1e5", "1E-3", "0x1F", "1_000", "12ab", "::date",
    ":", ":x", "?", "$1", "$$", "@", "{{", "{%", "#", ";", "%", "'a' 'b'", " ESCAPE '!'", " AND ",
    "NOT ", "(", ")", ",", "DATE", "date '2024-01-01'", "INTERVAL '1' day", "NULL", "TRUE", "=",
    "<", ">", "!", "|", "CAST(", "\u0661", "\uff11",
]  # fmt: skip


@given(twins(), st.lists(st.tuples(st.sampled_from(HOSTILE), st.floats(0, 1)), max_size=3))
@settings(max_examples=examples(500))
def test_hostile_texts_are_read_as_each_alone(
    drawn: tuple[Schema, str, str], planted: list[tuple[str, float]]
) -> None:
    schema, *texts = drawn
    for fragment, where in planted:
        places = [round(where * len(text)) for text in texts]
        texts = [
            text[:place] + fragment + text[place:]
            for text, place in zip(texts, places, strict=True)
        ]
    check(schema, *texts)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("price < 3", "price < 12345678901234567890"),
        ("price < 3", "price < 1.50"),
        ("price < 3", "price < 1e2"),
        ("price < 3", "price < 1e-99999"),
        ("price < 3", "price < 1e99999999999999999999"),
        ("price > -0", "price > -5"),
        ("price > - 5", "price > - 7.25"),
        ("price > (-(0))", "price > (-(1))"),
        ("price BETWEEN 3 AND -4", "price BETWEEN 300 AND -4"),
        ("price IN (1, NULL, 3, -4)", "price IN (100, NULL, 0, -0)"),
        ("price IN (1, 2)", "price IN (1, 2, 3)"),
        ("3 < price AND price = 3", "44 < price AND price = 1"),
        ("at_least(1, price = 1, price = 2)", "at_least(2, price = 1, price = 2)"),
        ("at_least(1, price = 1, price = 2)", "at_least(3, price = 1, price = 2)"),
        ("hamming(price, 3) <= 1", "hamming(price, 3) <= 2"),
        ("hamming(price, 3) <= 1", "hamming(price, 300) <= 1"),
        ("1 >= hamming(price, 1)", "1 >= hamming(price, 2)"),
        ("issue = 'IBM'", "issue = 'it''s'"),
        ("issue = 'IBM'", "issue = ''"),
        ("issue = ", "issue = ''"),
        ("issue = 'IBM'", "issue = 3"),
        ("issue = 'IBM'", "issue = '-- no comment' -- a comment"),
        ("issue = 'IBM'", "issue = 'it\\'s'"),
        ("note = 'a'", "note = 'a\\x'"),
        ("note = 'a'", "note = 'a\\%'"),
        ("price = 3L", "price = 4L"),
        ("price = 3", "price = 3Y"),
        ("limit > -1", "limit > -0.1F"),
        ("(price > 3) IS TRUE", "(price > 44) IS TRUE"),
        ("(price IN (3, NULL)) IS FALSE", "(price IN (44, NULL)) IS FALSE"),
        ("(price > 3) IS NULL", "(price > 44) IS NULL"),
        ("day > '2024-01-01'", "day > '2024-01-01 12:00'"),
        ("at > '2024-01-01'", "at > '2024-01-01 12:00'"),
        ("day > to_date('2024-01-01')", "day > to_date('2024-02-01 12:00')"),
        ("issue = 'IBM'", "issue = 'I\nBM'"),
        ("issue = 'IBM'", "issue = '\ud800'"),
        ("issue = 'IBM'", "issue = '\U0001f600' AND price = 3"),
        ("issue = 'IBM' AND price = 3", "issue = '\U0001f600' AND price = 'x'"),
        ("note LIKE 'a%'", "note LIKE 'a_%'"),
        ("note LIKE 'a%'", "note LIKE 'a'"),
        ("note LIKE 'a%' ESCAPE '!'", "note LIKE 'b%' ESCAPE '?'"),
        ("day > '2024-01-01'", "day > '2024-02-30'"),
        ("day > DATE '2024-01-01'", "day > DATE '2024-01-01 12:00'"),
        ("at > TIMESTAMP '2024-01-01'", "at > TIMESTAMP '2024-01-01 12:00:00+02:00'"),
        ("at > TIMESTAMP '2024-01-01'", "at > TIMESTAMP 'soon'"),
        ("at > CAST('2024-01-01' AS DATE)", "at > CAST('2024-01-01 13:00' AS DATE)"),
        ("at > DATE'2024-01-01'", "at > DATE'2024-01-02'"),
        ("day > 2024-01-01", "day > 2024-01-02"),
        ('"price" = 3', '"price" = 4'),
        ('"pri\'ce" = 3 AND note = \'"\'', '"pri\'ce" = 4 AND note = \'"\''),
        ("price = 3 /* 'a' */", "price = 3 /* 'b' */"),
        ("price = 3 -- 1", "price = 3 -- 2"),
        ("price = 3--1", "price = 3--2"),
        ("limit < .5", "limit < .7"),
        ("limit < 5.", "limit < 7."),
        ("limit < 0.5", "limit < 0.70000000000000000000000000000000000001"),
        ("price = 0x1F", "price = 0x2F"),
        ("price = 3 AND prise = 4", "price = 4 AND prise = 5"),
        ("TRUE AND price = 1", "TRUE AND price = 2"),
        ("price = :x AND price < 1", "price = :x AND price < 22"),
        ("price < 1 AND price = :x", "price < 22 AND price = :x"),
    ],
)  # fmt: skip
def test_pairs_are_read_as_each_alone(first: str, second: str) -> None:
    check(SCHEMA, first, second, first)
    check(SCHEMA, second, first, second)


@pytest.mark.parametrize(
    "text",
    [
        "price < 3 AND issue = 'IBM' AND note LIKE 'a%' AND limit IS NULL",
        "at_least(1, NOT price BETWEEN 1 AND 2, price IN (1, -2, NULL), hamming(price, 1) <= 2)",
        "(price > 3) IS NOT FALSE AND day = to_date('2024-01-01') AND price BETWEEN 1 AND 2",
        "day > DATE '2024-01-01' OR (\"at\" <= '2024-01-01 12:00' AND 3.5 > limit AND word = :w)",
    ],
)
def test_plain_texts_are_filled(text: str) -> None:
    expression, readings = read_sql(SCHEMA, text)
    shape = Shape(SCHEMA, text, expression, readings)
    filled = shape.fill(split(text)[1])
    assert shape.usable and filled is not None
    assert dumped(filled) == dumped(expression)


@pytest.mark.parametrize(
    "text",
    ["price < 3 -- x", "price < 3 /* x */", "price < 3;", "limit < .5", "at > DATE'2024-01-01'"],
)
def test_unusual_texts_are_no_shape(text: str) -> None:
    assert not Shape(SCHEMA, text, *read_sql(SCHEMA, text)).usable


@given(st.text(st.sampled_from("'\"a1.e-+ \\\n(,é:"), max_size=30))
def test_pieces_are_the_text(text: str) -> None:
    between, literals = split(text)
    *between_literals, kinds = between
    assert len(kinds) == len(literals) == len(between_literals) - 1
    whole = between_literals[0]
    for literal, after in zip(literals, between_literals[1:], strict=True):
        whole += literal + after
    assert whole == text


@pytest.mark.parametrize("part", ["'", "a", "1", "1.", "''x", "'a\\", "e1", '"', "-", ":a"])
def test_long_texts_are_split_to_their_end(part: str) -> None:
    # In time linear in the text: with squares of it, this would not end.
    text = part * 100_000
    Shape(SCHEMA, text + ";", *read_sql(SCHEMA, "price = 1"))
    between, literals = split(text + ";")
    *between_literals, kinds = between
    assert len(kinds) == len(literals) == len(between_literals) - 1
