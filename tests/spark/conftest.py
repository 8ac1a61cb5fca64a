"""One Spark session for the whole run: classic, or Connect when CCBPS_TEST_SPARK=connect.

A process holds one kind of session, so `test_connect.py` runs these tests again in another.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ccbps import SharedSeed
from tests.spark.cluster_program import READABLE
from tests.support.spark_session import JAVA_OPTIONS, KEY, MODE, ROOT, Places


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
