"""The Spark session of the benchmarks: local[2] unless told otherwise, quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

__all__ = ["local_spark"]


@contextmanager
def local_spark(master: str = "local[2]", **settings: str) -> Iterator[SparkSession]:
    """A session, stopped at the end.

    Args:
        master: of Spark.
        settings: more of them, without the prefix "spark." and with _ in place of the dot.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master)
    for name, value in {
        "ui.enabled": "false",
        "ui.showConsoleProgress": "false",
        "driver.memory": "4g",
        "driver.host": "127.0.0.1",
        "sql.shuffle.partitions": "8",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()
