"""Predicates beside Spark's own answers: the same text selects the same rows, or is refused."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pytest

from ccbps import Bool, Category, Decimal, Int, Schema, Text, Timestamp
from ccbps import spark as cs
from ccbps.errors import ParameterError
from ccbps.matching import FormulaMatch
from tests.support.spark_session import KEY, changed

pytestmark = pytest.mark.spark

SCHEMA = Schema(
    n=Int(5, nullable=True),
    price=Decimal(-3, 3, "0.01", nullable=True),
    text=Text(8, nullable=True),
    issue=Category(["IBM", 'a"b', "it's"], nullable=True),
    flag=Bool(nullable=True),
    day=Timestamp("day", "2024-01-01", "2024-12-31", nullable=True),
    at=Timestamp("s", "2024-01-01", "2024-12-31", nullable=True),
    d=Decimal(-1, 2, "0.01", nullable=True),
    clock=Timestamp("s", "2024-01-01", "2024-12-31", nullable=True),
)
COLUMNS = (
    "id long, n int, price decimal(6,2), text string, issue string, flag boolean, day date, "
    "at timestamp, d double, clock timestamp_ntz"
)


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    """Rows of values near those in the predicates, with NULLs in all columns."""
    values: list[list[Any]] = [
        [-16, -1, 0, 2, 3, 4, 15, None],
        [decimal.Decimal(cents).scaleb(-2) for cents in (-300, -1, 0, 9, 10, 11, 50, 51)] + [None],
        ["", "a", "a%", "a_", "IBM", None],
        ["IBM", 'a"b', "it's", None],
        [True, False, None],
        [datetime.date(2024, 1, 1) + datetime.timedelta(days=day) for day in range(5)] + [None],
        [datetime.datetime(2024, 1, 3, hour) for hour in (0, 1, 12, 23)] + [None],
        [-0.5, 0.0, 0.1, 0.25, 1.0, None],
        [datetime.datetime(2024, 1, day, 12, 30) for day in (2, 3, 4)] + [None],
    ]
    rows = [
        (i, *(column[i * (k + 1) % len(column)] for k, column in enumerate(values)))
        for i in range(360)
    ]
    with changed(spark, {"spark.sql.session.timeZone": "UTC"}):
        yield spark.createDataFrame(rows, COLUMNS)


# One query for each list: a column for each predicate.
def check(frame: Any, texts: list[str], **options: Any) -> None:
    marked = frame.selectExpr("*", *[f"({text}) AS p{i}" for i, text in enumerate(texts)])
    table = marked.orderBy("id").toArrow()
    events = SCHEMA.encode(table)
    for i, text in enumerate(texts):
        expected = table[f"p{i}"].fill_null(False).to_numpy()
        predicate = SCHEMA.parse(text, **options)
        assert np.array_equal(predicate.evaluate(events), expected), text
        assert np.array_equal(predicate.true_form().evaluate(events), expected), text


@pytest.mark.slow
def test_numbers_with_suffixes_mean_what_spark_means(frame: Any) -> None:
    numbers = ["3L", "3s", "-1Y", "0.5BD", "-1BD", "1e1BD", "3D", "0.1D", "-0.01d", ".5D", "0.5F"]
    numbers += ["3.5D", "0.105D", "1e300D", "2.F", "-16S"]
    check(
        frame,
        [
            f"{name} {operator} {number}"
            for name in ("n", "price", "d")
            for number in numbers
            for operator in ("<", "<=", "=")
        ]
        + ["n IN (3L, 4S)", "price NOT IN (0.1D, 0.5BD)", "n BETWEEN -1Y AND 3L", "n <=> 3L"],
    )


@pytest.mark.slow
def test_truth_of_conditions_is_what_spark_takes_it_for(frame: Any) -> None:
    conditions = [
        "flag",
        "(n > 2)",
        "(NOT flag)",
        "(n IN (3, NULL))",
        "(n BETWEEN NULL AND 2)",
        "(n > 2 AND NOT flag)",
        "(n > 2 OR price < 0.1)",
        "(n <=> 3)",
        "(isnull(n))",
        "(text LIKE 'a%')",
        "(n = NULL)",
        "((n > 2) IS TRUE)",
    ]
    forms = [
        f"{condition} IS {word}"
        for condition in conditions
        for word in ("TRUE", "NOT TRUE", "FALSE", "NOT FALSE")
    ]
    unknown = ["(n > 2)", "(NOT (n IN (3, 4)))", "flag", "(text LIKE 'a%')", "(NOT flag)"]
    forms += [
        f"{condition} IS {word}"
        for condition in unknown
        for word in ("NULL", "NOT NULL", "UNKNOWN")
    ]
    forms += ["isnull(n > 2)", "isnotnull(n BETWEEN 1 AND 3)", "isnull(flag)"]
    check(frame, forms + [f"NOT ({form}) OR n = 3" for form in forms])


@pytest.mark.slow
def test_dates_and_times_mean_what_spark_means(frame: Any) -> None:
    constants = [
        "'2024-01-03'",
        "'2024-01-03 00:00:00'",
        "'2024-01-03T00:00:00Z'",
        "DATE '2024-01-03'",
        "DATE '2024-01-03 12:00:00'",
        "DATE '2024-01-03 00:30:00+02:00'",
        "CAST('2024-01-03 12:00:00' AS DATE)",
        "DATE('2024-01-03')",
        "to_date('2024-01-03')",
        "date('2024-01-03 23:00:00-05:00')",
        "TIMESTAMP '2024-01-03 12:00:00'",
        "TIMESTAMP '2024-01-03 00:30:00+02:00'",
        "timestamp('2024-01-03 12:00:00')",
        "TIMESTAMP_NTZ '2024-01-03 12:30:00'",
        "TIMESTAMP_NTZ '2024-01-03 12:30:00-05:00'",
        "CAST('2024-01-03 12:30:00+02:00' AS TIMESTAMP_NTZ)",
        "TIMESTAMP_LTZ '2024-01-03 12:30:00+02:00'",
    ]
    forms = [
        f"{name} {operator} {constant}"
        for name in ("day", "at", "clock")
        for constant in constants
        for operator in ("=", "<", "<=", ">", ">=", "<=>")
    ]
    names = ("day", "at", "clock")
    forms += [f"{name} IN ({constant})" for name in names for constant in constants]
    forms += [
        f"{name} BETWEEN DATE '2024-01-02' AND {constant}"
        for name in ("day", "at", "clock")
        for constant in constants
    ]
    check(frame, [*forms, "at < '2024-01-03 12:00:00'", "at = '2024-01-03 14:00:00+02:00'"])


@pytest.mark.slow
def test_strings_mean_what_spark_means(frame: Any) -> None:
    check(
        frame,
        [
            "issue = 'it''s'",
            "text = 'a%'",
            "text = 'a\\%'",
            "text = 'a\\_'",
            "text LIKE 'a%'",
            "issue = 'a\"b'",
            "issue = 'IBM' /* \"x\" */",
        ],
    )
    check(
        frame,
        [
            'issue = "IBM"',
            'issue = "it\'s"',
            'issue IN ("a""b", \'IBM\')',
            'text = "flag"',
            '`text` LIKE "a%" OR `n` = 3',
            "issue = \"IBM\" AND text = 'IBM'",
        ],
        double_quoted_strings=True,
    )


@pytest.mark.slow
def test_interests_may_have_strings_in_double_quotes(spark: Any) -> None:
    schema = Schema(issue=Category(["IBM", "it's"]))
    matcher = FormulaMatch.box(schema)
    rows = [("s", 0, 'issue = "IBM"'), ("s", 1, 'issue = "it\'s"'), ("s", 2, "issue = 'IBM'")]
    wanted = spark.createDataFrame(rows, "subscription string, round long, predicate string")
    events = wanted.selectExpr("subscription", "round", "'IBM' AS issue")
    sent = cs.encode_events(events, matcher, KEY)
    found = cs.match(
        sent, cs.encode_interests(wanted, matcher, KEY, double_quoted_strings=True), matcher
    )
    assert [row.matched for row in found.orderBy("round").collect()] == [True, False, True]
    refused = cs.encode_interests(wanted, matcher, KEY, on_error="reject").orderBy("round")
    reasons = [row.rejected for row in refused.collect()]
    assert "double_quoted_strings=True" in reasons[0]
    assert "IBM" not in reasons[0] and reasons[2] is None


def test_matchers_of_private_constants_take_no_quotes(spark: Any) -> None:
    matcher = FormulaMatch(Schema(n=Int(5)), "n < :limit")
    wanted = spark.createDataFrame([("s", 0, 3)], "subscription string, round long, limit int")
    with pytest.raises(ParameterError, match="double_quoted_strings= does not apply to Formula"):
        cs.encode_interests(wanted, matcher, KEY, double_quoted_strings=True)
