"""Stores whose messages are made in place: answers, several tasks, and what is refused.

That messages are the roles' own is tested without Spark, in `tests/columnar/test_generation.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ccbps import spark as cs
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.matching import BroadcastMatch, FormulaMatch
from ccbps.matching.broken import AdditiveMaskMatch
from tests.support.spark_session import KEY, MODE, answers, wishes
from tests.support.stored_pairs import BOX, SCHEMA, predicate, record, wanted

pytestmark = pytest.mark.spark

LABELS = [f"s{number}" for number in range(5)]
ROUNDS = [*range(40), 70_000, 2**40]


def quotes(spark: SparkSession, rounds: list[int]) -> Any:
    """Events whose content is the same for all subscriptions."""
    rows = [(n, record("s0", n)["a"], record("s0", n)["b"], "private") for n in reversed(rounds)]
    return spark.createDataFrame(rows, "round long, a int, b int, note string")


def asked(spark: SparkSession) -> Any:
    return wishes(spark, {label: predicate(label) for label in LABELS})


@pytest.mark.parametrize("partitions", [None, 3])
def test_answers_equal_the_plaintext(
    spark: SparkSession, tmp_path: Path, partitions: int | None
) -> None:
    paths = tmp_path / "events", tmp_path / "interests"
    cs.write_events(quotes(spark, ROUNDS), paths[0], BOX, KEY, labels=LABELS, partitions=partitions)
    cs.write_interests(asked(spark), paths[1], BOX, KEY, rounds=range(3, 30), partitions=partitions)
    parts = len([*paths[0].glob("part-*")])
    assert parts == (partitions or 2)
    found = answers(cs.match_messages(spark, *paths, BOX, verify=True))
    events = SCHEMA.encode([record("s0", n) for n in range(3, 30)])
    assert found == {
        (label, n): bool(answer)
        for label in LABELS
        for n, answer in zip(
            range(3, 30), SCHEMA.parse(predicate(label)).evaluate(events), strict=True
        )
    }
    assert {*found.values()} == {True, False}
    assert wanted({"s0": [3]}, {"s0": [3]}) == {("s0", 3): found["s0", 3]}


@pytest.mark.slow
def test_generations_are_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    """And the messages are those of the encoders, or a store would refuse them."""
    path, news = tmp_path / "events", quotes(spark, [1, 2, 3])
    cs.write_events(news, path, BOX, KEY, labels=LABELS)
    cs.write_events(
        news, path, BOX, KEY, labels=[*LABELS, "s5"], mode="append", batch=("quotes", 0)
    )
    crossed = news.crossJoin(asked(spark).select("subscription"))
    encoded = cs.encode_events(crossed, BOX, KEY)
    cs.write_messages(encoded, path, BOX, kind="event", mode="append")
    assert len([*path.glob("part-*")]) == 3
    other = news.withColumn("a", 255 - F.col("a"))
    with pytest.raises(RandomnessReuseError, match="has a message already, and this is another"):
        cs.write_events(other, path, BOX, KEY, labels=LABELS, mode="append")


def test_what_does_not_fit_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    news, path, wants = quotes(spark, [1]), tmp_path / "store", asked(spark)
    timed = news.withColumn("round", F.unix_micros(F.current_timestamp()))
    named = wants.withColumn("subscription", F.uuid())
    broadcast, template = BroadcastMatch.box(SCHEMA), FormulaMatch(SCHEMA, "a < :limit")
    some = range(4)
    for problem, call in {
        "labels must name": lambda: cs.write_events(news, path, BOX, KEY, labels=[]),
        "round='a' is also an attribute": lambda: cs.write_events(
            news, path, BOX, KEY, labels=LABELS, round="a"
        ),
        "comes from current_timestamp": lambda: cs.write_events(
            timed, path, BOX, KEY, labels=LABELS
        ),
        "serves all subscriptions": lambda: cs.write_events(
            news, path, broadcast, KEY, labels=LABELS
        ),
        "pairs and rounds, which": lambda: cs.write_events(
            news, path, AdditiveMaskMatch(SCHEMA), KEY, labels=LABELS
        ),
        "rounds must be a range": lambda: cs.write_interests(
            wants,
            path,
            BOX,
            KEY,
            rounds=[1, 2],  # type: ignore[arg-type]
        ),
        "comes from uuid": lambda: cs.write_interests(named, path, BOX, KEY, rounds=some),
        "'limit' is missing": lambda: cs.write_interests(wants, path, template, KEY, rounds=some),
        "is also a column to be": lambda: cs.write_interests(
            wants, path, BOX, KEY, rounds=some, subscription="predicate"
        ),
    }.items():
        with pytest.raises(ParameterError, match=problem):
            call()
    twice = wants.union(wants)
    with pytest.raises(Exception, match=r"subscription='s\d' occurs more than once"):
        cs.write_interests(twice, path, BOX, KEY, rounds=some, partitions=1)
    assert not path.exists() or not [*path.iterdir()]


def test_columns_may_have_any_names(spark: SparkSession, tmp_path: Path) -> None:
    paths = tmp_path / "events", tmp_path / "interests"
    news = quotes(spark, [3, 4]).withColumnRenamed("round", "no. `1`")
    wants = asked(spark).withColumnRenamed("subscription", "a.`b`")
    wants = wants.withColumnRenamed("predicate", "it's `so`")
    cs.write_events(news, paths[0], BOX, KEY, labels=LABELS, round="no. `1`")
    cs.write_interests(
        wants, paths[1], BOX, KEY, rounds=range(3, 5), subscription="a.`b`", predicate="it's `so`"
    )
    found = answers(cs.match_messages(spark, *paths, BOX))
    assert found == wanted({label: [3, 4] for label in LABELS}, {label: [3, 4] for label in LABELS})


@pytest.mark.skipif(MODE == "connect", reason="there a plan is sent as a whole")
def test_a_plan_takes_few_calls_of_java(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a fraction of a millisecond, and a function of columns takes ten."""
    from py4j.clientserver import ClientServerConnection
    from py4j.protocol import CALL_COMMAND_NAME

    news, wants, calls = quotes(spark, [1]), asked(spark), [0]
    send = ClientServerConnection.send_command

    def counted(self: Any, command: str) -> Any:
        calls[0] += command.startswith(CALL_COMMAND_NAME)  # not: an object is not needed any more
        return send(self, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    cs.write_events(news, tmp_path / "events", BOX, KEY, labels=LABELS)
    events, calls[0] = calls[0], 0
    cs.write_interests(wants, tmp_path / "interests", BOX, KEY, rounds=range(2))
    assert max(events, calls[0]) < 120, (events, calls[0])
