"""One Spark session for the whole run: classic, or Connect when CCBPS_TEST_SPARK=connect.

A process holds one kind of session, so `test_connect.py` runs these tests again in another.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ccbps import SharedSeed
from ccbps.spark import EnvKey
from tests.spark.cluster_program import READABLE

MODE = os.environ.get("CCBPS_TEST_SPARK", "classic")
KEY = EnvKey("CCBPS_TEST_SEED")
# For so little data, Java's second compiler and its parallel collector take longer than they save.
# Without that compiler the code cache is small: Spark fills it, and then compiles again and again.
# Where memory runs out, Spark may wait for ever for a thread that has died.
JAVA_OPTIONS = (
    "-XX:+ExitOnOutOfMemoryError -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=256m"
)
ROOT = Path(__file__).parents[2]


def contents(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    """All files of folders, from which a program may remove some at any time."""
    for folder in folders:
        for path in filter(Path.is_file, folder.rglob("*")):
            with contextlib.suppress(FileNotFoundError):
                yield path, path.read_bytes()


@dataclass(frozen=True)
class Places:
    """Folders Spark writes to of its own accord."""

    event_log: Path
    local: Path

    def contents(self) -> Iterator[tuple[Path, bytes]]:
        """What stands in them now; Spark may remove a file at any time."""
        return contents(self.event_log, self.local)


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    root = tmp_path_factory.mktemp("spark")
    out = Places(root / "events", root / "local")
    for path in (out.event_log, out.local):
        path.mkdir()
    return out


@pytest.fixture(scope="session")
def environment() -> Iterator[pytest.MonkeyPatch]:
    """What long-lived fixtures put into the environment, until the session ends."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="session")
def seed(environment: pytest.MonkeyPatch) -> SharedSeed:
    """The master seed; workers find it under `KEY`."""
    out = SharedSeed.generate()
    environment.setenv(KEY.name, out.to_text())
    return out


@pytest.fixture(scope="session")
def spark(
    seed: SharedSeed, places: Places, environment: pytest.MonkeyPatch
) -> Iterator[SparkSession]:
    if "PYSPARK_PYTHON" not in os.environ:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
    environment.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    before = set(os.environ)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.python.daemon.module": "tests.spark.preloaded_daemon",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(places.local),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": places.event_log.as_uri(),
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        **{f"spark.{name}": value for name, value in READABLE.items()},
    }
    builder = SparkSession.builder.appName("ccbps tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    if MODE == "connect":
        session = builder.remote("local[2]").getOrCreate()
    else:
        session = builder.master("local[2]").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    for name in os.environ.keys() - before:  # PySpark's own, SPARK_BUFFER_SIZE for one
        del os.environ[name]
