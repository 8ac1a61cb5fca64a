"""One of three brokers by itself, for tests: an application that matches what clients wrote for it.

python share_program.py local[2,4] 1 /folder/with/the/operators/key /folder/of/its/data

With "slowly" as the last argument its workers take their time, say when they are in the midst of
it, and note digests of the masks that they draw.
"""

from __future__ import annotations

import os
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ccbps import Category, Schema, UInt
from ccbps import spark as cs
from ccbps.matching import ThreeBrokerMatch

SCHEMA = Schema(issue=Category(["AAPL", "IBM", "MSFT"]), price=UInt(10))
MATCHER = ThreeBrokerMatch.box(SCHEMA)
MIDST = 20
"""Number of a unit in the midst of a worker's work."""


class Watched:
    """Source of a key that watches the worker that loads it."""

    def __init__(self, key: Path, folder: Path) -> None:
        self.key, self.folder = key, folder

    def load(self) -> Any:
        from ccbps.shares import ring

        streams, evaluate = ring.MaskStreams, ring.Ring.evaluate

        def noted(*keys: bytes) -> Any:
            with (self.folder / "attempts").open("a") as file:
                file.write(sha256(b"".join(keys)).hexdigest() + "\n")
            return streams(*keys)

        def slowly(self_: Any, unit: int, *rest: Any) -> Any:
            time.sleep(0.01)
            begun = self.folder / "begun"
            if unit == MIDST and not begun.exists():
                draft = self.folder / f"begun-{os.getpid()}"
                draft.write_text(f"{os.getpid()}")
                draft.rename(begun)
            return evaluate(self_, unit, *rest)

        if not hasattr(ring, "watched"):
            ring.watched = True  # type: ignore[attr-defined]
            ring.MaskStreams = noted  # type: ignore[assignment,misc]
            ring.Ring.evaluate = slowly  # type: ignore[assignment,method-assign]
        return cs.FileKey(self.key).load()


def main(master: str, party: int, key: Path, data: Path, *, slowly: bool) -> None:
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "512m").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    operators = [
        cs.Operator.from_bytes((data / f"operator-{number}").read_bytes()) for number in range(3)
    ]
    matched = cs.match_shares(
        *(spark.read.parquet(str(data / name)) for name in ("events", "interests")),
        MATCHER,
        Watched(key, data) if slowly else cs.FileKey(key),
        party=party,
        operators=operators,
        hellos=[path.read_bytes() for path in sorted(data.glob("hello-*"))],
        partitions=2,
        seconds=120,
    )
    matched.write.parquet(str(data / "matched"))
    spark.stop()


if __name__ == "__main__":
    slow = sys.argv[5:] == ["slowly"]
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), slowly=slow)
