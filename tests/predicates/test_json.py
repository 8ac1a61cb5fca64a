"""Schemas and templates as text: exact round trips, and one clear error for anything else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Bool, Category, Decimal, Int, Keyword, Predicate, Schema, Text, Timestamp, UInt
from ccbps.errors import DecodeError, ParameterError
from tests.support.effort import examples
from tests.support.strategies import predicates, schemas

SCHEMA = Schema(
    a=UInt(8),
    b=Int(64, nullable=True),
    c=Decimal("-0.10", "99.90", "0.1"),
    d=Category(["x", "Ä", "it's", '"', "\\", "\n\0", "", "\U0001f600"], nullable=True),
    e=Keyword(256),
    f=Text(1024),
    g=Timestamp("ns", "1969-12-31T23:59:59.999999999", "2038-01-19 03:14:07"),
    h=Bool(nullable=True),
    été=Timestamp("day", "0001-01-01", "9999-12-31"),
)
TEMPLATE = SCHEMA.parse("a < :limit AND d = 'it''s'")


@given(schemas())
@settings(max_examples=examples(200))
def test_schemas_round_trip(schema: Schema) -> None:
    text = schema.to_json()
    again = Schema.from_json(text)
    assert type(again) is Schema and again == schema and list(again) == list(schema)
    assert again.to_json() == text and repr(again) == repr(schema)
    assert again.describe() == schema.describe()


@given(schemas().flatmap(predicates))
@settings(max_examples=examples(200))
def test_templates_round_trip(drawn: Any) -> None:
    template = drawn.schema.parse(drawn.text)
    again = Predicate.from_json(template.to_json())
    assert (again.schema, again.text) == (template.schema, template.text)
    assert again.expression == template.expression
    assert again.private_names == again.unbound_names == template.private_names


def test_every_type_round_trips_with_odd_values() -> None:
    assert Schema.from_json(SCHEMA.to_json()) == SCHEMA
    assert SCHEMA.to_json().isascii()


@pytest.mark.parametrize("digits", ["1e99", "1." + "0" * 98 + "1", "-123456789.123456789123456789"])
def test_decimals_round_trip_exactly(digits: str) -> None:
    schema = Schema(a=Decimal(digits, digits, "1e-3" if "e" not in digits else "1e95"))
    again = Schema.from_json(schema.to_json())["a"]
    assert isinstance(again, Decimal) and again == schema["a"]
    assert again.low.compare_total(again.high) == 0


def test_a_schema_is_described_as_it_ever_was() -> None:
    """Fingerprints hang on it."""
    assert Schema(a=UInt(3), b=Decimal("0.10", 5, "0.1", nullable=True)).describe() == {
        "attributes": [
            {"name": "a", "type": "UInt", "bits": 3, "nullable": False},
            {
                "name": "b",
                "type": "Decimal",
                "low": "0.1",
                "high": "5",
                "step": "0.1",
                "nullable": True,
            },
        ]
    }


def changed(path: tuple[Any, ...], value: Any) -> str:
    """The JSON text of SCHEMA with one other changed; ... deletes it."""
    content = json.loads(SCHEMA.to_json())
    place = content
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    "text",
    [
        changed(("version",), 2),
        changed(("version",), True),
        changed(("version",), "1"),
        changed(("version",), 1.0),
        changed(("version",), ...),
        changed(("ccbps",), "predicate"),
        changed(("ccbps",), ...),
        changed(("more",), 1),
        changed(("attributes",), ...),
        changed(("attributes",), []),
        changed(("attributes",), {}),
        changed(("attributes", 0), "a"),
        changed(("attributes", 0, "name"), "b"),
        changed(("attributes", 0, "name"), 3),
        changed(("attributes", 0, "name"), "a b"),
        changed(("attributes", 0, "name"), "x" * 10**6 + " "),
        changed(("attributes", 0, "name"), ...),
        changed(("attributes", 0, "type"), "AttributeType"),
        changed(("attributes", 0, "type"), "_WholeNumber"),
        changed(("attributes", 0, "type"), "__import__"),
        changed(("attributes", 0, "type"), ["UInt"]),
        changed(("attributes", 0, "type"), ...),
        changed(("attributes", 0, "more"), 1),
        changed(("attributes", 0, "self"), 1),
        changed(("attributes", 0, "nullable"), 1),
        changed(("attributes", 0, "nullable"), ...),
        changed(("attributes", 0, "bits"), True),
        changed(("attributes", 0, "bits"), "8"),
        changed(("attributes", 0, "bits"), 65),
        changed(("attributes", 0, "bits"), 10**1000),
        changed(("attributes", 0, "bits"), None),
        changed(("attributes", 0, "bits"), ...),
        changed(("attributes", 2, "low"), "-0.10"),
        changed(("attributes", 2, "low"), 0),
        changed(("attributes", 2, "low"), "NaN"),
        changed(("attributes", 2, "low"), "1e999999999"),
        changed(("attributes", 2, "low"), "-1_0.1"),
        changed(("attributes", 2, "low"), "0." + "0" * 10**6 + "1"),
        changed(("attributes", 2, "step"), "0"),
        changed(("attributes", 3, "values"), ["b", "a"]),
        changed(("attributes", 3, "values"), ["a", "a"]),
        changed(("attributes", 3, "values"), ["\ud800"]),
        changed(("attributes", 3, "values"), "ab"),
        changed(("attributes", 3, "values"), {"a": 1}),
        changed(("attributes", 3, "values"), [["a"]]),
        changed(("attributes", 3, "values"), 5),
        changed(("attributes", 6, "unit"), "h"),
        changed(("attributes", 6, "unit"), ["s"]),
        changed(("attributes", 6, "start"), 5),
        changed(("attributes", 6, "start"), "2038-01-20"),
        changed(("attributes", 6, "start"), "1970-01-01T00:00:00+02:00"),
        changed(("attributes", 6, "end"), "2400-01-01"),
        SCHEMA.to_json().replace('"version": 1', '"version": 1, "version": 1'),
        SCHEMA.to_json().replace('"bits": 8', '"bits": 8, "bits": 8'),
        SCHEMA.to_json().replace('"bits": 8', '"bits": 8.0'),
        SCHEMA.to_json().replace('"bits": 8', '"bits": NaN'),
        SCHEMA.to_json().replace('"bits": 8', '"bits": ' + "9" * 10**5),
        SCHEMA.to_json()[:-1],
        SCHEMA.to_json() + "x",
        "",
        "null",
        "[]",
        "[" * 10**5,
        '{"a":' * 10**5,
        "schema",
        TEMPLATE.to_json(),
    ],
)
def test_anything_else_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        Schema.from_json(text)
    assert len(str(caught.value)) < 1000
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("other", [None, 5, b"{}", {"ccbps": "schema"}])
def test_only_text_is_read(other: Any) -> None:
    for read in (Schema.from_json, Predicate.from_json):
        with pytest.raises(DecodeError, match="string of JSON"):
            read(other)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", "a <"),
        ("text", "zzz < 3"),
        ("text", 5),
        ("text", "a < 1" + " OR a < 1" * 200_000),
        ("schema", None),
        ("schema", {"attributes": []}),
        ("schema", {**SCHEMA.describe(), "more": 1}),
        ("version", 2),
        ("ccbps", "schema"),
        ("constants", {"limit": 3}),
    ],
)
def test_any_other_template_is_a_decode_error(field: str, value: Any) -> None:
    content = json.loads(TEMPLATE.to_json())
    content[field] = copy.deepcopy(value)
    with pytest.raises(DecodeError):
        Predicate.from_json(json.dumps(content))


@given(st.data())
@settings(max_examples=examples(300))
def test_damaged_text_is_refused_or_another_schema(data: st.DataObject) -> None:
    text = SCHEMA.to_json()
    place = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:place] + data.draw(st.text(max_size=3)) + text[place + 1 :]
    try:
        again = Schema.from_json(damaged)
    except DecodeError:
        return
    assert json.loads(again.to_json()) == json.loads(damaged)


def test_values_of_private_constants_are_never_written() -> None:
    assert "4321" not in TEMPLATE.to_json()
    with pytest.raises(ParameterError, match="writes templates") as caught:
        TEMPLATE.bind(limit=4321).to_json()
    assert "4321" not in str(caught.value)
