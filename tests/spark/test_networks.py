"""Simulated networks in DataFrames: a trial for each row, the same as without Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ccbps import spark as cs
from ccbps.errors import ParameterError
from ccbps.overlay import Trial

pytestmark = pytest.mark.spark


def test_each_row_is_a_trial(spark: SparkSession) -> None:
    rows = [
        ("first", "line", 3, "ISSPS", 3, None, None, 400, None, None),
        ("second", "tree", 2, "HyShare", 2, 3, ["B1"], 5, 2, 3),
        ("third", "line", 2, "SSPS", 2, 4, [], None, None, None),
    ]
    trials = spark.createDataFrame(
        rows,
        "label string, topology string, hops int, protocol string, k int, n int, "
        "enclaves array<string>, secrets long, fanout int, replicas int",
    )
    found = {row["label"]: row for row in cs.simulate(trials).collect()}
    assert list(found) == ["first", "second", "third"]
    wanted = {
        "first": Trial(topology="line", hops=3, protocol="ISSPS", k=3, secrets=400),
        "second": Trial(
            topology="tree",
            hops=2,
            protocol="HyShare",
            k=2,
            n=3,
            enclaves=["B1"],
            secrets=5,
            fanout=2,
            replicas=3,
        ),
        "third": Trial(topology="line", hops=2, protocol="SSPS", k=2, n=4),
    }
    for label, trial in wanted.items():
        result, row = trial.run(), found[label]
        assert (row["messages"], row["formula"]) == (result.messages, result.formula)
        assert (row["held"], row["delivered"], row["recovered"]) == (True, 1.0, 0.0)
    assert found["first"]["n"] is None and found["second"]["enclaves"] == ["B1"]


def test_seeds_are_samples(spark: SparkSession) -> None:
    trials = spark.range(40).select(
        F.lit("line").alias("topology"),
        F.lit(2).alias("hops"),
        F.lit("ISSPS").alias("protocol"),
        F.lit(2).alias("k"),
        F.lit(0.5).alias("colluding"),
        F.col("id").alias("seed"),
    )
    found = {row["seed"]: row["recovered"] for row in cs.simulate(trials.repartition(2)).collect()}
    assert found == {
        seed: Trial(topology="line", hops=2, protocol="ISSPS", k=2, colluding=0.5, seed=seed)
        .run()
        .recovered
        for seed in range(40)
    }
    assert {*found.values()} == {0.0, 1.0}


@pytest.mark.slow
def test_columns_are_checked(spark: SparkSession) -> None:
    trials = spark.createDataFrame(
        [("line", 3, "SSPS")], "topology string, hops int, protocol string"
    )
    with pytest.raises(ParameterError, match="trials must have a column 'k'"):
        cs.simulate(trials)
    with pytest.raises(ParameterError, match="trials has a column 'held', which is a result's"):
        cs.simulate(trials.withColumn("k", F.lit(2)).withColumn("held", F.lit(True)))
    whole = trials.withColumn("k", F.lit(2))
    for name, value, type_ in (
        ("hops", 3.7, "bigint, got double"),
        ("seed", "abc", "bigint, got string"),
        ("failing", "10%", "double, got string"),
        ("enclaves", "B1", "array<string>, got string"),
    ):
        with pytest.raises(ParameterError, match=f"column {name!r} must be {type_}: cast it"):
            cs.simulate(whole.withColumn(name, F.lit(value)))
    with pytest.raises(ParameterError, match="trials has a column 'messages'"):
        cs.simulate(whole.withColumn("Messages", F.lit(1)))
    kept = cs.simulate(whole.withColumn("why", F.lit("kept")).withColumn("failing", F.lit(0)))
    assert kept.first()["why"] == "kept"
    for column, said in (
        (whole.withColumn("hops", F.lit(None).cast("int")), "column 'hops' is NULL"),
        (whole.withColumn("enclaves", F.array(F.lit(None).cast("string"))), "has a NULL"),
        (
            whole.withColumn("protocol", F.lit("ISSPS")).withColumn("hops", F.lit(70)),
            "messages are too many for a LONG",
        ),
    ):
        with pytest.raises(Exception, match=said):
            cs.simulate(column).collect()
    wrong = cs.simulate(trials.withColumn("k", F.lit(1)))
    with pytest.raises(Exception, match="k must be a whole number from 2"):
        wrong.collect()
