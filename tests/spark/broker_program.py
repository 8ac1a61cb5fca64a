"""A broker by itself, for tests: matches what others wrote, and waits to be looked at.

python broker_program.py local[2] /folder/with/the/brokers/key /folder/of/data

With "connect" for the master it is a client of Spark Connect, whose server it starts.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cluster_program import BOX, TAGS
from pyspark.sql import SparkSession

from ccbps import spark as cs


def main(master: str, keys: Path, data: Path) -> None:
    start = SparkSession.builder
    builder = start.remote("local[2]") if master == "connect" else start.master(master)
    builder = builder.config("spark.ui.enabled", "false")
    for name in ("driver", "executor"):
        builder = builder.config(f"spark.{name}.memory", "512m")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    sides = [spark.read.parquet(str(data / name)) for name in ("events", "interests")]
    found = cs.match(*sides, BOX).where("matched").count()
    sides = [spark.read.parquet(str(data / name)) for name in ("tagged", "asked")]
    key = cs.FileKey(keys / "tag-broker")
    found += cs.match(*sides, TAGS, key).count()
    held = key.load()  # here, too: whoever looks into this process should find it
    (data / "broker-draft").write_text(str(found))
    (data / "broker-draft").rename(data / "broker-found")  # whole when it is there
    while held is not None:
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
