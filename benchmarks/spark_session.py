"""The Spark session of the benchmarks, and data from its event log."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from timing import machine

from ccbps import spark as cs

__all__ = ["EVENT_LOG", "key_files", "local_spark", "measured_spark", "task_ends"]

EVENT_LOG = {"eventLog_enabled": "true", "eventLog_compress": "false"}
"""Settings of a session that writes an event log to `eventLog_dir`."""


@contextmanager
def local_spark(master: str = "local[2]", **settings: str) -> Iterator[SparkSession]:
    """Yield a quiet session, and stop it at the end.

    Args:
        master: Spark's master.
        settings: further settings, without the prefix "spark." and with _ in place of the dot.
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


@contextmanager
def measured_spark(**settings: str) -> Iterator[tuple[SparkSession, Path]]:
    """Yield a session and a temporary folder, once the machine is printed."""
    with local_spark(**settings) as spark, tempfile.TemporaryDirectory() as folder:
        print(machine())
        yield spark, Path(folder)


def key_files(folder: Path, **keys: Any) -> dict[str, cs.FileKey]:
    """Write keys to files, and return the sources by name."""
    for name, key in keys.items():
        (folder / name).write_text(key.to_text())
    return {name: cs.FileKey(folder / name) for name in keys}


def task_ends(log: Path) -> Iterator[dict[str, Any]]:
    """Yield what Spark's event log tells of the end of each task."""
    for path in log.rglob("*"):
        for line in path.open() if path.is_file() else ():
            if '"SparkListenerTaskEnd"' in line:
                yield json.loads(line)
