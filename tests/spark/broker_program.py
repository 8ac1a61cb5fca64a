"""A broker by itself, for `test_secrets.py`: matches what others wrote, and waits to be looked at.

python broker_program.py /folder/with/the/brokers/key /folder/of/data
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from ccbps import spark as cs
from tests.spark.cluster_program import BOX, TAGS


def main(keys: Path, data: Path) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "512m").getOrCreate()
    sides = [spark.read.parquet(str(data / name)) for name in ("events", "interests")]
    found = cs.match(*sides, BOX).where("matched").count()
    sides = [spark.read.parquet(str(data / name)) for name in ("tagged", "asked")]
    found += cs.match(*sides, TAGS, cs.FileKey(keys / "tag-broker")).count()
    (data / "found").write_text(str(found))
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
