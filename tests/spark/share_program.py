"""One of three brokers by itself, for tests: an application that matches what clients wrote for it.

python share_program.py local[2,4] 1 /folder/with/the/operators/key /folder/of/its/data

With "connect" for the master it is a client of Spark Connect, whose server it starts. With "slowly"
in the last argument its workers take their time, say when they begin and when they are in the midst
of it, and note digests of the masks that they draw. With "late" it waits until it may begin. With
"stores" it keeps messages in stores, which change from one match to the next.
"""

from __future__ import annotations

import os
import sys
import time
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from cluster_program import READABLE
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import spark as cs
from ccbps.matching import ThreeBrokerMatch

MIDST = 10
"""Number of a unit in the midst of a worker's work."""


class Watched:
    """Source of a key that watches the worker that loads it."""

    def __init__(self, key: Path, folder: Path) -> None:
        self.key, self.folder = key, folder

    def load(self) -> Any:
        from ccbps.shares import ring
        from ccbps.shares.replicated import Evaluation

        streams, steps, units = ring.MaskStreams, Evaluation.steps, count()

        def noted(*keys: bytes) -> Any:
            with (self.folder / "attempts").open("a") as file:
                file.write(sha256(b"".join(keys)).hexdigest() + "\n")
            return streams(*keys)

        def slowly(*arguments: Any, **options: Any) -> Any:
            time.sleep(0.2)
            begun = self.folder / "begun"
            if next(units) == MIDST and not begun.exists():
                draft = self.folder / f"begun-{os.getpid()}"
                draft.write_text(f"{os.getpid()}")
                draft.rename(begun)
                time.sleep(5)  # who is to kill it may look late, and there are few units more
            return (yield from steps(*arguments, **options))

        if not hasattr(ring, "watched"):
            ring.watched = True  # type: ignore[attr-defined]
            ring.MaskStreams = noted  # type: ignore[assignment,misc]
            Evaluation.steps = slowly  # type: ignore[method-assign]
        with (self.folder / "loads").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return cs.FileKey(self.key).load()


def main(master: str, party: int, key: Path, data: Path, ways: list[str]) -> None:
    start: Any = SparkSession.builder
    builder = start.remote("local[2]") if master == "connect" else start.master(master)
    (data / "log").mkdir()
    for name, value in {
        "ui.enabled": "false",
        "driver.memory": "512m",
        "driver.host": "127.0.0.1",
        "sql.shuffle.partitions": "2",
        "eventLog.enabled": "true",
        "eventLog.dir": (data / "log").as_uri(),
        "local.dir": str(data / "local"),
        **READABLE,
    }.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    operators = [
        cs.Operator.from_bytes((data / f"operator-{number}").read_bytes()) for number in range(3)
    ]
    matcher = ThreeBrokerMatch.from_json((data / "matcher").read_text())
    tables = [spark.read.parquet(str(data / name)) for name in ("events", "interests")]

    def match(events: Any, interests: Any, name: str) -> None:
        matched = cs.match_shares(
            events,
            interests,
            matcher,
            Watched(key, data) if "slowly" in ways else cs.FileKey(key),
            party=party,
            operators=operators,
            hellos=[path.read_bytes() for path in sorted(data.glob("hello-*"))],
            job=name,
            partitions=2,
            seconds=120,
        )
        matched.write.parquet(str(data / name))

    while "late" in ways and not (data / "go").exists():
        time.sleep(0.1)
    if "stores" in ways:
        match_stores(spark, matcher, party, data, *tables, match)
    else:
        match(*tables, "matched")
    spark.stop()


def match_stores(
    spark: SparkSession,
    matcher: ThreeBrokerMatch,
    party: int,
    data: Path,
    events: DataFrame,
    interests: DataFrame,
    match: Any,
) -> None:
    """Match stores three times, with interests that come and go; see `test_shares.py`."""
    sent, asked = data / "sent", data / "asked"
    number = F.expr("CAST(substring(subscription, 2) AS long)")
    numbered = interests.select("*", number.alias("number"), (number % 3 + 1).alias("until"))

    def write(events: DataFrame, interests: DataFrame, batch: int) -> None:
        options: Any = {"party": party, "mode": "append", "batch": ("daily", batch)}
        cs.write_messages(events, sent, matcher, kind="event", round="event", **options)
        cs.write_messages(interests, asked, matcher, kind="interest", round="until", **options)

    write(events.where("event < 400"), numbered.where("number < 30"), 0)
    match(sent, asked, "first")
    for _ in range(2):  # as after a failure
        write(events.where("event >= 400"), numbered.where("number >= 30"), 1)
    assert cs.drop_interests(asked, matcher, ["s4", "s10", "nobody"]) == 2
    assert cs.drop_rounds(asked, matcher, kind="interest", before=2) == 14
    cs.compact_messages(spark, asked, matcher, kind="interest")
    match(sent, asked, "second")
    match(events.where("event >= 400"), asked, "third")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
