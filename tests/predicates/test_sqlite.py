"""Differential test: SQLite's WHERE keeps the rows that every reading of a predicate keeps."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.errors import UnsupportedPredicateError
from ccbps.predicates import Predicate, Schema, UInt
from tests.support.effort import examples
from tests.support.strategies import Drawn, predicates, record, rows, schemas, stored


def selected_by_sqlite(schema: Schema, batch: list[dict[str, Any]], where: str) -> list[int]:
    """Row numbers that SQLite selects. Columns have no affinity, so nothing is converted."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("PRAGMA case_sensitive_like = ON")
        connection.create_function("hamming", 2, lambda a, b: (a ^ b).bit_count())
        connection.execute(f"CREATE TABLE events (id, {', '.join(schema.names)})")
        connection.executemany(
            f"INSERT INTO events VALUES ({', '.join('?' * (1 + len(schema)))})",
            [
                (number, *(stored(schema[name], row[name]) for name in schema))
                for number, row in enumerate(batch)
            ],
        )
        selected = connection.execute(f"SELECT id FROM events WHERE {where} ORDER BY id")
        return [number for (number,) in selected]
    finally:
        connection.close()


@st.composite
def cases(draw: st.DrawFn) -> tuple[Drawn, list[dict[str, Any]]]:
    schema = draw(schemas())
    return draw(predicates(schema)), draw(rows(schema))


def check(predicate: Predicate, batch: list[dict[str, Any]], expected: list[int]) -> None:
    """Every reading of a predicate selects the expected rows."""
    events = predicate.schema.encode([record(row) for row in batch])
    readings = [predicate.evaluate(events), predicate.true_form().evaluate(events)]
    with contextlib.suppress(UnsupportedPredicateError):
        readings.append(predicate.box().evaluate(events))
    for reading in readings:
        assert np.flatnonzero(reading).tolist() == expected


@given(case=cases())
@settings(max_examples=examples(600))
def test_every_reading_selects_what_sqlite_selects(
    case: tuple[Drawn, list[dict[str, Any]]],
) -> None:
    drawn, batch = case
    expected = selected_by_sqlite(drawn.schema, batch, drawn.where)
    check(drawn.schema.parse(drawn.text).bind(**drawn.private), batch, expected)


@given(case=cases(), form=st.sampled_from(["TRUE", "NOT TRUE", "FALSE", "NOT FALSE"]))
@settings(max_examples=examples(300))
def test_is_true_selects_what_sqlite_selects(
    case: tuple[Drawn, list[dict[str, Any]]], form: str
) -> None:
    drawn, batch = case
    expected = selected_by_sqlite(drawn.schema, batch, f"NOT (({drawn.where}) IS {form})")
    predicate = drawn.schema.parse(f"NOT (({drawn.text}) IS {form})").bind(**drawn.private)
    check(predicate, batch, expected)


PRICES = Schema(price=UInt(3, nullable=True))
BATCH: list[dict[str, Any]] = [{"price": value} for value in (None, *range(8))]


@pytest.mark.parametrize(
    "where",
    [
        "price BETWEEN NULL AND 3",
        "price NOT BETWEEN NULL AND 3",
        "price NOT BETWEEN 3 AND NULL",
        "price IN (1, NULL)",
        "price NOT IN (1, NULL)",
        "NOT (price IN (1, NULL) AND price < 2)",
        "price = NULL OR price <> NULL",
        "NOT price > 3",
        "NULL AND price = 1",
        "NOT (NULL AND price = 1)",
        "price IS NULL OR price >= 0",
        "price < 1e3 AND price > -1.5",
        "price < 2.5 AND price != 1.5",
        "price = 2.0",
        "(price > 3) IS NULL",
        "NOT ((NOT price BETWEEN 2 AND 3) IS NOT NULL)",
    ],
)
def test_null_and_fractions_mean_what_sqlite_means(where: str) -> None:
    check(PRICES.parse(where), BATCH, selected_by_sqlite(PRICES, BATCH, where))


@pytest.mark.parametrize(
    "where",
    [
        "price <=> 3",
        "3 <=> price",
        "NOT price <=> 3",
        "price <=> NULL",
        "NOT (price <=> NULL)",
        "price <=> 3 OR price < 2",
        "isnull(price)",
        "NOT isnull(price) AND price > 3",
        "IsNotNull(price) OR price = 1",
        "`price` = 3 OR `price` IS NULL",
        "price IS DISTINCT FROM 3",
        "price IS NOT DISTINCT FROM NULL",
    ],
)
def test_sparks_sql_means_what_it_means_there(where: str) -> None:
    """SQLite writes it in another way."""
    other = re.sub(r"(?i)isnull\((\w+)\)", r"(\1 IS NULL)", where.replace("<=>", "IS"))
    other = re.sub(r"(?i)isnotnull\((\w+)\)", r"(\1 IS NOT NULL)", other)
    other = re.sub(r"IS (NOT )?DISTINCT FROM", lambda m: "IS" if m[1] else "IS NOT", other)
    check(PRICES.parse(where), BATCH, selected_by_sqlite(PRICES, BATCH, other))
