"""The same pipeline and stores through Spark Connect, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import MODE

ROOT = Path(__file__).parents[2]
FILES = [
    "tests/spark/test_pipeline.py",
    "tests/spark/test_stores.py",
    "tests/spark/test_group_matchers.py",
    "tests/spark/test_reusable.py",
]


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.skipif(MODE == "connect", reason="this is the other process")
def test_pipeline_and_stores_work_under_spark_connect() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *FILES],
        cwd=ROOT,
        env={**os.environ, "CCBPS_TEST_SPARK": "connect"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
