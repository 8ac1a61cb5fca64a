"""The same pipeline and stores through Spark Connect, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_session import JAVA_OPTIONS, MODE

ROOT = Path(__file__).parents[2]
FILES = [
    "tests/spark/test_pipeline.py",
    "tests/spark/test_all_pairs.py",
    "tests/spark/test_sessions.py",
    "tests/spark/test_stores.py",
    "tests/spark/test_group_matchers.py",
    "tests/spark/test_groups.py",
    "tests/spark/test_prefilter.py",
    "tests/spark/test_addressing.py",
    "tests/spark/test_secrets.py",
    "tests/spark/test_watching.py",
    "tests/spark/test_broadcast.py",
    "tests/spark/test_store_answers.py",
    "tests/spark/test_suggest.py",
    "tests/spark/test_vocabulary.py",
    "tests/spark/test_share_stores.py",
]
# Whose slow tests, too, say something of Connect.
WHOLE = [
    "tests/spark/test_streams.py",
    "tests/spark/test_store_generations.py",
    "tests/spark/test_anonymity.py",
    "tests/spark/test_content_filter.py",
]
# Spark gives a worker of a stream ten seconds to start, which no setting changes; the tests that
# run beside this one may take them.
TOO_LATE = "Timed out while waiting for the Python worker to connect back"


def in_connect(files: list[str], marks: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "--disable-warnings", "-m", marks, *files],
        cwd=ROOT,
        env={
            **os.environ,
            "CCBPS_TEST_SPARK": "connect",
            # With this the server takes any free port, not 15002.
            "SPARK_TESTING": "1",
            # A server does not take Java's options from the session.
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
        },
        capture_output=True,
        text=True,
        timeout=1800,
    )


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.skipif(MODE == "connect", reason="this is the other process")
@pytest.mark.slow
@pytest.mark.timeout(3700)
@pytest.mark.parametrize(("files", "marks"), [(FILES, "not slow"), (WHOLE, "")])
def test_pipeline_stores_and_streams_work_under_spark_connect(files: list[str], marks: str) -> None:
    run = in_connect(files, marks)
    if TOO_LATE in run.stdout:
        run = in_connect(files, marks)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
