"""Answers of three brokers that learn none of them, opened in Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ccbps import Schema, UInt
from ccbps import spark as cs
from ccbps.keys import ClientKey
from ccbps.matching import ThreeBrokerMatch
from ccbps.shares.clients import HEAD_BYTES
from tests.support.spark_session import reasons, rows_by, save

pytestmark = pytest.mark.spark

SCHEMA = Schema(a=UInt(4))
MATCHER = ThreeBrokerMatch.box(SCHEMA, reveal="subscriber")
PREDICATES = [(f"s{n}", f"a < {3 * n}") for n in range(4)]


@pytest.mark.slow
def test_a_subscriber_opens_the_rows_of_three_operators(
    spark: SparkSession, tmp_path: Path
) -> None:
    brokers = MATCHER.local()
    keys = [ClientKey.generate(brokers.public) for _ in range(2)]
    roles = MATCHER.publisher(keys[0]), MATCHER.subscriber(keys[1])
    sources = [save(tmp_path / f"client-{n}", key) for n, key in enumerate(keys)]
    quotes = spark.range(0, 6, 1, 1).selectExpr("id AS event", "CAST(2 * id AS int) AS a")
    wanted = spark.createDataFrame(PREDICATES, "subscription string, predicate string").coalesce(1)
    events = cs.encode_events(quotes, MATCHER, sources[0], keep=["event"]).toArrow()
    interests = cs.encode_interests(wanted, MATCHER, sources[1]).toArrow()
    assert events.column_names == ["event", "broker_0", "broker_1", "broker_2", "commitment"]

    sent, asked = (
        np.frombuffer(b"".join(table["broker_1"].to_pylist()), np.uint8).reshape(len(table), -1)
        for table in (events, interests)
    )
    assert events["broker_0"].to_pylist() == [m[:HEAD_BYTES].tobytes() for m in sent]
    promised = roles[0].commitments(sent)
    assert events["commitment"].to_pylist() == [each.tobytes() for each in promised]
    sealed = brokers._worked(sent, asked, [role.hellos for role in roles])
    answers = []
    for part in sealed:
        rows = [
            (f"s{i}", n, part.attempts[n].tobytes(), part.shares[n, i].tobytes())
            for n in range(len(sent))
            for i in range(len(asked))
        ]
        kinds = "subscription string, event long, attempt binary, share binary"
        answers.append(spark.createDataFrame(rows, kinds).coalesce(1))

    frames = [spark.createDataFrame(table) for table in (events, interests)]
    sides: Any = frames[0].select("event", "broker_0", "commitment"), frames[1], MATCHER
    opened = cs.open_shares(answers, *sides, sources[1])
    assert opened.columns == ["subscription", "event", "payload_key"]
    expected = {(f"s{i}", n) for i in range(4) for n in range(6) if 2 * n < 3 * i}
    found = rows_by(opened, "subscription", "event")
    assert {*found} == expected
    real = roles[0].payload_keys(sent)
    assert all(row["payload_key"] == real[n].tobytes() for (_, n), row in found.items())

    # Of some rows of one operator: lost, of another attempt, or altered.
    spoiled = (
        answers[2]
        .where("NOT (subscription = 's1' AND event = 0)")
        .withColumn("attempt", F.expr("IF(event = 1, binary('sixteen bytes!!!'), attempt)"))
        .withColumn("share", F.expr("IF(event = 2, binary('sixteen bytes!!!'), share)"))
    )
    parts = [*answers[:2], spoiled]
    kept = cs.open_shares(parts, *sides, sources[1], on_error="reject")
    assert kept.columns == ["subscription", "event", "payload_key", "rejected"]
    told = reasons(kept.dropDuplicates(["subscription", "event"]), "subscription", "event")
    bad = {("s1", 0), *((f"s{i}", n) for i in range(4) for n in (1, 2))}
    assert {*told} == bad
    good = kept.where("rejected IS NULL")
    assert {*rows_by(good, "subscription", "event")} == expected - bad
    with pytest.raises(Exception, match=r"subscription='s\d', event=\d: the "):
        cs.open_shares(parts, *sides, sources[1]).collect()
    assert pa.types.is_binary(opened.toArrow()["payload_key"].type)
