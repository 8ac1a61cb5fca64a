"""The group-program matchers through the same Spark functions: real quotes, stores, bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bokeh_sampledata import stocks
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, UInt
from ccbps import spark as cs
from ccbps.matching import FSGPMatch, Matcher, OFSGPMatch, PublicFunctionMatch, UGPMatch
from tests.support.spark_session import KEY, Pairs, answers, damaged, reasons, wishes

pytestmark = pytest.mark.spark

ISSUES = ["AAPL", "GOOG", "IBM"]
SCHEMA = Schema(issue=Category(ISSUES), close=UInt(4), move=UInt(2))  # eight bits
DEPTH_4 = [
    "issue = 'IBM' AND close < 5",
    "(issue = 'AAPL' OR close >= 12) AND NOT move = 2",
    "move > 1 OR issue IN ('GOOG', 'IBM')",
    "close BETWEEN 3 AND 11",
    "issue <> 'IBM' OR (close < 4 AND move <> 0)",
    "hamming(move, 2) <= 1 AND close <> 7",
]
OFSGP = OFSGPMatch(SCHEMA, 4)


def quotes(count: int) -> pa.Table:
    """Real quotes of three issues, quantised to the schema's eight bits."""
    issue, close, move = [], [], []
    for name in ISSUES:
        data = getattr(stocks, name)
        opened, closed = np.array(data["open"]), np.array(data["close"])
        chosen = np.linspace(0, len(closed) - 1, count // len(ISSUES)).astype(int)
        issue += [name] * len(chosen)
        close.append(np.clip(closed[chosen] / 50, 0, 15).astype(int))
        move.append(np.searchsorted([-0.01, 0, 0.01], (closed / opened - 1)[chosen]))
    table = pa.table({"issue": issue, "close": np.concatenate(close), "move": np.concatenate(move)})
    return table.append_column("round", pa.array(np.arange(table.num_rows)))


def messages(spark: SparkSession, table: pa.Table, matcher: Matcher, texts: list[str]) -> Any:
    """Both sides' DataFrames for every quote and predicate."""
    interests = wishes(spark, {f"s{i}": text for i, text in enumerate(texts)})
    events = spark.createDataFrame(table)
    addressed = interests.select("subscription").crossJoin(events)
    return (
        cs.encode_events(addressed, matcher, KEY),
        cs.encode_interests(interests.crossJoin(events.select("round")), matcher, KEY),
    )


def plain(schema: Schema, table: pa.Table, texts: list[str]) -> Pairs:
    """The answers of each subscription in each round."""
    return {
        (f"s{i}", number): answer
        for i, text in enumerate(texts)
        for number, answer in enumerate(schema.parse(text).evaluate(table).tolist())
    }


@pytest.mark.slow  # as examples/hidden_predicates.py, which runs by default
def test_any_depth_4_predicate_over_real_quotes(spark: SparkSession, tmp_path: Path) -> None:
    table = quotes(150)
    events, interests = messages(spark, table, OFSGP, DEPTH_4)
    wanted = plain(SCHEMA, table, DEPTH_4)
    assert {*wanted.values()} == {True, False}
    assert answers(cs.match(events, interests, OFSGP)) == wanted
    # The same through stores: the two sides' messages have different widths.
    cs.write_messages(events, tmp_path / "e", OFSGP, kind="event")
    cs.write_messages(interests, tmp_path / "i", OFSGP, kind="interest")
    stored = cs.match_messages(spark, tmp_path / "e", tmp_path / "i", OFSGP)
    assert answers(stored) == wanted


@pytest.mark.parametrize(
    ("matcher", "texts"),
    [
        (OFSGPMatch(SCHEMA, 3, group="S5"), ["issue = 'IBM' AND close < 8", "move = 3"]),
        (FSGPMatch(SCHEMA, 2), ["move = 1", "close >= 8 OR move > 1"]),
        (UGPMatch(Schema(move=UInt(2)), 0), ["move >= 2", "move < 2"]),
    ],
    ids=repr,
)
def test_each_matcher_equals_the_plaintext_filter(
    spark: SparkSession, matcher: Matcher, texts: list[str]
) -> None:
    table = quotes(45)
    kept = [*matcher.schema, "round"]
    events, interests = messages(spark, table.select(kept), matcher, texts)
    wanted = plain(matcher.schema, table, texts)
    assert answers(cs.match(events, interests, matcher)) == wanted


def test_a_public_circuit_takes_private_values_from_columns(spark: SparkSession) -> None:
    matcher = PublicFunctionMatch.hamming(4)
    x = np.arange(16)
    events = spark.createDataFrame(pa.table({"x": x, "round": x})).withColumn(
        "subscription", F.lit("s0")
    )
    interests = spark.createDataFrame(
        [("s0", n, 9, n % 5) for n in range(16)], "subscription string, round long, y int, far int"
    )
    encoded = cs.encode_interests(interests, matcher, KEY, constants={"t": "far"})
    assert set(encoded.columns) == {"subscription", "round", "interest_message"}
    found = answers(cs.match(cs.encode_events(events, matcher, KEY), encoded, matcher))
    wanted = {("s0", value): bin(value ^ 9).count("1") <= value % 5 for value in range(16)}
    assert found == wanted


def test_a_predicate_that_is_too_deep_names_its_row_and_both_depths(spark: SparkSession) -> None:
    text = "(close BETWEEN 3 AND 12 AND issue <> 'IBM') OR move = 2"
    _, interests = messages(spark, quotes(3), OFSGPMatch(SCHEMA, 1), [text])
    with pytest.raises(Exception, match=r"subscription='s0', round=\d: .*depth \d.*depth 1") as e:
        interests.collect()
    assert "BETWEEN" not in str(e.value)


def test_altered_messages_are_set_aside_and_leave_the_others(spark: SparkSession) -> None:
    table = quotes(30)
    events, interests = messages(spark, table, OFSGP, DEPTH_4[:1])
    head, body = (F.expr(f"substring(event_message, {part})") for part in ("1, 8", "9"))
    # No element has a first row of zeros; and one byte less is no message.
    changes = {
        "round = 4": F.concat(head, F.lit(bytearray(OFSGP.event_bytes - 8))),
        "round = 5": F.expr("substring(event_message, 1, 900)"),
        "round = 6": F.concat(F.lit(bytearray(8)), body),
    }
    altered = damaged(events, "event_message", changes)
    found = cs.match(altered, interests, OFSGP, on_error="reject").persist()
    aside = {("s0", number): None for number in (4, 5, 6)}
    assert answers(found) == plain(SCHEMA, table, DEPTH_4[:1]) | aside
    told = reasons(found, "round")
    assert told.keys() == {4, 5, 6}
    assert "not elements of the group" in told[4]
    assert "wrong number of bytes" in told[5]
    assert "not an event message" in told[6]
