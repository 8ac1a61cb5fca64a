"""Routable and secret attributes: a weaker predicate loses no event and names no secret."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Schema, Timestamp, UInt
from ccbps.errors import DecodeError, EventError, ParameterError, UnsupportedPredicateError
from ccbps.predicates import Split, iter_leaves
from ccbps.predicates.split import code_bytes, from_code_bytes
from tests.support import strategies as drawn
from tests.support.effort import examples

THREE = Schema(x=UInt(2), y=UInt(2, nullable=True), z=UInt(2))
SPLIT = THREE.split(routable=["x", "y"])
SCHEMAS = drawn.schemas().filter(lambda schema: len(schema) > 1)


def split_of(data: st.DataObject, schema: Schema) -> Split:
    most = len(schema) - 1
    names = st.lists(st.sampled_from(schema.names), min_size=1, max_size=most, unique=True)
    return schema.split(routable=data.draw(names))


@given(st.data(), SCHEMAS)
@settings(max_examples=examples(400))
def test_a_weaker_predicate_holds_wherever_the_predicate_does(
    data: st.DataObject, schema: Schema
) -> None:
    split = split_of(data, schema)
    given_predicate = data.draw(drawn.predicates(schema))
    predicate = schema.parse(given_predicate.text).bind(**given_predicate.private)
    records = [drawn.record(row) for row in data.draw(drawn.rows(schema))]
    weak = split.weaken(predicate)
    assert weak.schema == split.routable
    routable, secret = split.divide(records)
    full = predicate.evaluate(records)
    assert not (full & ~weak.evaluate(routable)).any()
    assert (predicate.evaluate(split.join(routable, secret)) == full).all()
    for part in (routable, secret):
        read = from_code_bytes(part.schema, code_bytes(part))  # type: ignore[arg-type]
        assert all((read.codes[name] == part.codes[name]).all() for name in part.schema)


@given(st.data(), SCHEMAS)
@settings(max_examples=examples(200))
def test_a_predicate_of_routable_attributes_alone_stays_as_it_is(
    data: st.DataObject, schema: Schema
) -> None:
    split = split_of(data, schema)
    given_predicate = data.draw(drawn.predicates(split.routable))
    predicate = schema.parse(given_predicate.text).bind(**given_predicate.private)
    records = [drawn.record(row) for row in data.draw(drawn.rows(schema))]
    weak = split.weaken(predicate).evaluate(split.divide(records)[0])
    assert (weak == predicate.evaluate(records)).all()


@pytest.mark.parametrize(
    ("text", "weak"),
    [
        ("x < 2 AND z = 1", "`x` < 2"),
        ("x < 2 OR z = 1", "TRUE"),
        ("NOT (x < 2 OR z = 1)", "NOT (`x` < 2)"),
        ("NOT (x < 2 AND z = 1)", "TRUE"),
        ("NOT z = 1", "TRUE"),
        ("at_least(2, x = 1, y = 1, z = 1)", "(`x` = 1) OR (`y` = 1)"),
        ("NOT at_least(2, x = 1, y = 1, z = 1)", "NOT ((`x` = 1) AND (`y` = 1))"),
        ("(z = 1 AND FALSE) OR x IN (1, NULL)", "`x` IN (1, NULL)"),
        ("z = 1 AND NOT y IS NULL", "NOT (`y` IS NULL)"),
        ("z < 2 AND hamming(x, 3) < 2", "hamming(`x`, 3) <= 1"),
    ],
)
def test_conditions_on_secret_attributes_go(text: str, weak: str) -> None:
    assert SPLIT.weaken(text).text == weak.replace("`", '"')
    assert {leaf.attribute for leaf in iter_leaves(SPLIT.weaken(text).true_form())} <= {"x", "y"}


def test_private_constants_of_secret_attributes_do_not_reach_the_weaker_predicate() -> None:
    template = THREE.parse("x < :limit AND z = :secret")
    weak = SPLIT.weaken(template.bind(limit=2, secret=3))
    assert (weak.text, weak.bound_values) == ('"x" < :limit', {"limit": 2})
    with pytest.raises(UnsupportedPredicateError, match="call bind first"):
        SPLIT.weaken(template)


def test_times_are_written_exactly() -> None:
    schema = Schema(at=Timestamp("ns", "2000-01-01", "2001-01-01"), x=UInt(1))
    split = schema.split(routable=["at"])
    text = "at < TIMESTAMP '2000-06-01 12:00:00.123456789+02:00' AND x = 1"
    assert split.weaken(text).text == '"at" < ' + "TIMESTAMP '2000-06-01T10:00:00.123456789'"
    with pytest.raises(UnsupportedPredicateError, match="years 1 to 9999"):
        split.weaken("at < TIMESTAMP '9999-12-31 23:59:59-10:00'")


@pytest.mark.parametrize("names", [[], ["x", "y", "z"], ["w"], "x", ["x", "w"]])
def test_routable_attributes_are_some_and_not_all(names: Any) -> None:
    with pytest.raises(ParameterError, match="at least one and not all"):
        THREE.split(routable=names)


def test_attributes_may_have_the_names_of_words_of_sql() -> None:
    split = Schema(order=UInt(2), z=UInt(2)).split(routable=["order"])
    weak = split.weaken('"order" < 2 AND z = 1')
    assert weak.evaluate({"order": [1, 2]}).tolist() == [True, False]


def test_parts_that_do_not_fit_are_refused() -> None:
    routable, secret = SPLIT.divide([{"x": 1, "y": None, "z": 3}])
    with pytest.raises(EventError, match="takes events of"):
        SPLIT.join(secret, routable)
    with pytest.raises(EventError, match="need as many"):
        SPLIT.join(routable, secret.take([0, 0]))
    (row,) = code_bytes(routable)
    for altered in (row[1:], row + b"\0", b"\1" + row[1:], b"\xff" * len(row)):
        with pytest.raises(DecodeError, match="row 1"):
            from_code_bytes(SPLIT.routable, [row, altered])
