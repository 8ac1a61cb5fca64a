"""What does a popular topic cost? All pairs by topic in Spark: even topics, and a hot one.

TagMatch, each event with the interests of its topic. Either topics are even, or half of the events
and half of the interests have one of them, which is a quarter of all pairs in one place. Seconds on
local[1] and on local[2]: twice as fast is the limit, and a hot topic that one task decides is not
faster on two cores. Beside them stands the longest task's share of all tasks' time: no number of
cores gets below it.

    python benchmarks/bench_topics.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from report import Table, options
from spark_session import EVENT_LOG, key_files, local_spark, task_ends
from timing import machine, one_thread, timed
from tqdm import tqdm

from ccbps import Schema, UInt
from ccbps import spark as cs
from ccbps.matching import TagMatch

SCHEMA = Schema(a=UInt(16), b=UInt(16))
MATCHER = TagMatch(SCHEMA)
TOPICS, REPEATS = 64, 2
SHAPES = {"even": "id % {0}", "hot": "CASE WHEN id % 2 = 0 THEN 0 ELSE id % {0} END"}


def main() -> None:
    hidden = {"nargs": 2, "help": argparse.SUPPRESS}
    given = options(__doc__, quick="a tenth of the events and interests", session=hidden)
    if given.session:
        master, folder = given.session
        print(json.dumps(session(master, Path(folder))))
        return
    scale = 10 if given.quick else 1
    events, interests = 6_000 // scale, 60_000 // scale
    print(machine())
    print(f"{events:,} events, {interests:,} interests, {TOPICS} topics, ", end="")
    print(f"{MATCHER.event_bytes} + {MATCHER.interest_bytes} bytes\n")
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), events, interests)
        masters = tqdm(("local[1]", "local[2]"), desc="sessions", mininterval=1)
        found = {master: run(master, folder) for master in masters}
    heads = {"pairs": ",", "local[1]": ".1f", "local[2]": ".1f", "ratio": ".2f"}
    heads |= {"ns a pair": ".1f", "longest task": ".0%"}
    table = Table("Seconds on one core and on two", heads, head="topics", width=8, least=14)
    for shape in SHAPES:
        one, two = (shapes[shape] for shapes in found.values())
        ratio, each = one["seconds"] / two["seconds"], two["seconds"] / two["pairs"] * 1e9
        table.row(shape, two["pairs"], one["seconds"], two["seconds"], ratio, each, two["longest"])


def prepare(folder: Path, events: int, interests: int) -> None:
    """Write keys, and messages of both sides with topics of both shapes."""
    server = MATCHER.key_server()
    files = key_files(
        folder,
        publisher=server.publisher_key(),
        subscriber=server.subscriber_key("alice"),
        broker=server.broker_key(),
    )
    with local_spark() as spark:
        shapes = [F.expr(text.format(TOPICS)).alias(shape) for shape, text in SHAPES.items()]
        records = spark.range(0, events, 1, 8).select(
            "id", *shapes, F.expr("id * 40503 % 65536 AS a"), F.expr("id * 30011 % 65536 AS b")
        )
        sent = cs.encode_events(records, MATCHER, files["publisher"], keep=["id", *SHAPES])
        sent.write.parquet(str(folder / "events"))
        wishes = spark.range(0, interests, 1, 8).selectExpr(
            "concat('s', id) AS subscription",
            "concat('a < ', id * 77 % 600, ' AND b < 30000') AS predicate",
            *[f"{text.format(TOPICS)} AS {shape}" for shape, text in SHAPES.items()],
        )
        kept = cs.encode_interests(wishes, MATCHER, files["subscriber"], keep=[*SHAPES])
        kept.write.parquet(str(folder / "interests"))


def run(master: str, folder: str) -> dict[str, dict[str, Any]]:
    """Measure all shapes in a process of their own."""
    command = [sys.executable, __file__, "--session", master, folder]
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    found: dict[str, dict[str, Any]] = json.loads(shown.stdout.splitlines()[-1])
    return found


def session(master: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Measure all shapes in a session."""
    log = folder / f"log-{master}"
    log.mkdir()
    shapes: dict[str, dict[str, Any]] = {}
    begun: list[float] = []
    with local_spark(master, eventLog_dir=log.as_uri(), **EVENT_LOG) as spark:
        for shape in SHAPES:
            begun.append(1000 * time.time())
            times = [timed(matched(spark, shape, folder).count) for _ in range(1 + REPEATS)]
            shapes[shape] = {"seconds": min(times[1:]), "pairs": pairs(spark, shape, folder)}
    infos = [end["Task Info"] for end in task_ends(log)]
    for shape, since, until in zip(SHAPES, begun, [*begun[1:], math.inf], strict=True):
        launched = (info for info in infos if since <= info["Launch Time"] < until)
        tasks = [info["Finish Time"] - info["Launch Time"] for info in launched]  # milliseconds
        shapes[shape]["longest"] = max(tasks) * (1 + REPEATS) / sum(tasks)
    return shapes


def pairs(spark: SparkSession, shape: str, folder: Path) -> int:
    """Return the number of pairs of a shape."""
    sizes = [
        spark.read.parquet(str(folder / side)).groupBy(shape).agg(F.count("*").alias(side))
        for side in ("events", "interests")
    ]
    product = F.sum(F.expr("events * interests"))
    count: int = sizes[0].join(sizes[1], shape).agg(product).collect()[0][0]
    return count


def matched(spark: SparkSession, shape: str, folder: Path) -> DataFrame:
    events, interests = (
        spark.read.parquet(str(folder / side)).withColumn("topic", F.col(shape)).drop(*SHAPES)
        for side in ("events", "interests")
    )
    return cs.match_all_pairs(
        events, interests, MATCHER, cs.FileKey(folder / "broker"), topic="topic"
    )


if __name__ == "__main__":
    one_thread()
    main()
