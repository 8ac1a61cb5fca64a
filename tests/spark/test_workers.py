"""Functions for Spark's workers: what is loaded is left out of later collections, once.

Exceptions of confined functions keep their lines, and hold no locals.
"""

from __future__ import annotations

import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ccbps import Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.keys.secret import confined
from ccbps.matching import FormulaMatch
from ccbps.spark.workers import on_worker

SETTLES = """
import gc, os, weakref
from ccbps.spark.workers import on_worker

class Cycle:
    def __init__(self):
        self.own = self

seen = []

def add(left, right):
    seen.append(weakref.ref(Cycle()))
    return left + right

def count(most):
    yield from range(most)
    return "all"

gc.disable()
before = gc.get_freeze_count()
assert on_worker(add)(1, right=2) == 3
assert gc.get_freeze_count() == before, "it is no worker that has further tasks"

os.environ["SPARK_REUSE_WORKER"] = "1"
assert on_worker(add)(1, right=2) == 3
first = gc.get_freeze_count()
assert first > before + 10_000, first
assert seen[0]() is seen[1]() is None, "garbage was kept"

assert on_worker(add)(1, 2) == 3
assert gc.get_freeze_count() <= first, "nothing was loaded since"
assert seen[2]() is not None
gc.collect()
assert seen[2]() is None

import wave
steps = on_worker(count)(3)
found = []
while True:
    try:
        found.append(next(steps))
    except StopIteration as end:
        assert end.value == "all"
        break
assert found == [0, 1, 2]
assert gc.get_freeze_count() > first, "a module was loaded since"
"""


def test_what_is_loaded_is_left_out_once() -> None:
    subprocess.run([sys.executable, "-c", SETTLES], check=True, timeout=120)


def test_all_that_spark_calls_is_for_workers() -> None:
    called = 0
    for path in sorted(Path(cs.__file__).parent.glob("*.py")):
        text = path.read_text()
        passed = set(re.findall(r"\.mapInArrow\((\w+)", text)) | {"handleInputRows", "read"}
        lines = text.splitlines()
        for number, line in enumerate(lines):
            if found := re.match(r" {4}def (\w+)\(", line):
                udf = lines[number - 2].strip().startswith("@F.arrow_udf(")
                if udf or found[1] in passed or "@F.arrow_udf(" in lines[number - 1]:
                    assert lines[number - 1].strip() == "@on_worker", f"{path.name}: {line}"
                    called += 1
    assert called >= 10


def test_workers_are_settled_by_what_ran_there(spark: SparkSession) -> None:
    box, seed = FormulaMatch.box(Schema(a=UInt(4))), SharedSeed.generate()
    rounds = np.arange(40)
    messages = {
        "event_message": box.publisher(seed).encode({"a": rounds % 16}, rounds),
        "interest_message": box.subscriber(seed).encode(["a >= 4"] * 40, rounds),
    }
    rows = [
        {"round": i, **{name: bytes(some[i]) for name, some in messages.items()}}
        for i in range(len(rounds))
    ]
    df = spark.createDataFrame(rows).repartition(4)

    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        for _ in batches:
            yield pa.record_batch({"count": [gc.get_freeze_count()]})

    matched = df.select(cs.match_udf(box)("event_message", "interest_message").alias("m"))
    assert matched.where("m").count() == int((rounds % 16 >= 4).sum())
    counts = df.select("round").mapInArrow(frozen, "count long").collect()
    assert max(row["count"] for row in counts) > 10_000


SECRET = "IBMSECRET"


def fail(value: str) -> None:
    twice = value * 2
    raise ValueError(f"{len(twice)} characters")


@confined
def call(value: str) -> None:
    kept = value
    try:
        fail(kept)
    except ValueError as error:
        raise KeyError("wrapped") from error


@confined
def step(value: str) -> Iterator[int]:
    kept = value
    yield 1
    fail(kept)


@on_worker
def call_on_worker(value: str) -> None:
    fail(value)


@on_worker
def step_on_worker(value: str) -> Iterator[int]:
    yield 1
    fail(value)


def run_steps(value: str) -> None:
    list(step(value))


def run_steps_on_worker(value: str) -> None:
    list(step_on_worker(value))


@pytest.mark.parametrize("function", [call, run_steps, call_on_worker, run_steps_on_worker])
def test_locals_are_gone_and_lines_are_not(function: Callable[[str], None]) -> None:
    def without_locals() -> str:
        try:
            function(SECRET)
        except (KeyError, ValueError) as error:
            shown = traceback.TracebackException.from_exception(error, capture_locals=True)
            return "".join(shown.format())
        raise AssertionError("nothing was raised")

    text = without_locals()
    assert "in fail" in text
    # The caller's own frames are not this package's.
    inner = re.split(r"ccbps/(?:keys|spark)/\w+\.py", text, maxsplit=1)[1]
    assert SECRET not in inner


def test_results_pass_through() -> None:
    assert list(confined(lambda: iter([1, 2]))()) == [1, 2]
    steps = confined(lambda n: n + 1)
    assert steps(4) == 5
    assert next(step("x")) == 1
    assert confined(fail).__name__ == "fail"
