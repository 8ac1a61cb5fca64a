"""Answers as a worker packs them for Spark come out as they went in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ccbps.arrays import Bools, Bytes
from ccbps.errors import DecodeError
from ccbps.matching import Broker
from ccbps.spark.store_matching import ANSWERS, BITS, answers_of, unfolded
from ccbps.spark.stores import as_spark
from ccbps.store.plan import Block, Work
from ccbps.wire import Cause
from tests.support import effort
from tests.support.spark_session import MODE

pytestmark = pytest.mark.spark

CAUSES = [Cause.NONE, Cause.PAIRING, Cause.PADDING]
Rows = set[tuple[str, int, bool | None, str | None]]


class Told:
    """A broker that answers what it is told: rows are places in these arrays."""

    def __init__(self, answers: Bools, causes: Bytes) -> None:
        self.answers, self.causes = answers, causes

    def examine(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        at = events.view(np.int64)[:, 0]
        return self.answers[at], self.causes[at]


def some_work(
    rng: np.random.Generator, name: str, counts: list[int], share: float, bad: float, dense: bool
) -> tuple[Work, Broker, Rows]:
    """A piece of work, its broker, and the rows that are to come out."""
    total, labels = sum(counts), [f"{name}.{run}" for run in range(len(counts))]
    firsts = rng.integers(0, 1 << 40, len(counts))
    firsts[-1] = (1 << 63) - max(1, counts[-1])  # up to the last round there is
    rounds = np.concatenate([f + np.arange(n) for f, n in zip(firsts, counts, strict=True)])
    if not dense:
        # Near each other, or farther than the steps of one row reach.
        apart = rng.choice([1, 1 << 28, 1 << 48])
        rounds = np.concatenate(
            [apart * np.sort(rng.choice(10 * n, n, replace=False)) for n in counts if n] or [rounds]
        )
    assert rounds.min(initial=0) == 0
    causes = np.where(rng.random(total) < bad, rng.choice(CAUSES[1:], total), 0).astype(np.uint8)
    answers = (rng.random(total) < share) & (causes == 0)
    runs = pa.record_batch(
        {
            "subscription": labels,
            "first": pa.array(firsts, pa.int64(), mask=np.full(len(counts), not dense)),
        }
    )
    blocks: Iterator[Block] = (
        (slice(at, at + 1000), rows, rows)
        for at in range(0, total, 1000)
        for rows in [np.arange(at, min(at + 1000, total)).reshape(-1, 1).view(np.uint8)]
    )
    work = Work(runs, np.array(counts), None if dense else rounds, blocks)
    expected: Rows = {
        (label, number, None, Cause(cause).text) if cause else (label, number, answer, None)
        for label, number, answer, cause in zip(
            np.repeat(labels, counts).tolist(),
            rounds.tolist(),
            answers.tolist(),
            causes.tolist(),
            strict=True,
        )
    }
    return work, cast(Broker, Told(answers, causes)), expected


def test_all_answers_come_out(spark: SparkSession) -> None:
    rng = np.random.default_rng(5)
    batches: list[pa.RecordBatch] = []
    wanted: list[Rows] = [set(), set()]
    shapes = [
        [1],
        [64, 1, 0, 63],
        [0, 0, 7],
        [BITS + 1],
        [BITS + 65, 1],
        [3 * BITS, 0, BITS, 64 * 40],
        [2] * 300,
    ]
    each = 20 if effort.everything else 6
    for number in range(len(shapes) * each):
        dense = number % 3 != 0
        share, bad = rng.choice([0, 0.01, 0.4, 0.6, 0.99, 1]), rng.choice([0, 0.001, 0.7, 1])
        shape = shapes[number // each]
        for only in (False, True):
            state = rng.bit_generator.state
            name = f"{number}{'only' * only}"
            work, broker, expected = some_work(rng, name, shape, share, bad, dense)
            rng.bit_generator.state = state
            batches.append(answers_of(work, broker, reject=True, matches_only=only))
            wanted[only] |= {row for row in expected if row[2] is not False or not only}
    packed = pa.Table.from_batches(batches).combine_chunks()  # Spark 4.3 loses rows of others
    assert packed["bits"].null_count < len(packed) > packed["steps"].null_count > 0
    assert {True, False} <= set(packed.filter(packed["bits"].is_valid())["matched"].to_pylist())
    df = unfolded(spark.createDataFrame(packed), reject=True)
    assert df.columns == ["subscription", "round", "matched", "rejected"]
    found = [tuple(row) for row in df.collect()]
    assert len(found) == len(set(found)) and set(found) == wanted[0] | wanted[1]
    assert df.where("matched").count() == sum(row[2] is True for row in wanted[0] | wanted[1])


@pytest.mark.skipif(MODE == "connect", reason="it reads Spark's plan")
def test_a_filter_of_answers_is_asked_before_lists_are_unfolded(spark: SparkSession) -> None:
    """Else what does not match would be unfolded, only to be dropped."""
    work, broker, _ = some_work(np.random.default_rng(1), "s", [5000], 0.4, 0.0, True)
    packed = pa.Table.from_batches([answers_of(work, broker, reject=False)])
    answered = spark.createDataFrame(packed).mapInArrow(lambda rows: rows, as_spark(ANSWERS))
    df = unfolded(answered, reject=False).where("matched")
    assert df.columns == ["subscription", "round", "matched"]
    plan = cast(Any, df)._jdf.queryExecution().optimizedPlan().toString()
    below = plan[plan.index("Generate") :]
    assert "matched" in below[below.index("Filter") :].splitlines()[0]


def test_a_malformed_message_stops_it_unless_rejected() -> None:
    work, broker, _ = some_work(np.random.default_rng(1), "s", [50], 0.4, 0.3, True)
    with pytest.raises(DecodeError, match=r"s\.0.*round"):
        answers_of(work, broker, reject=False)
