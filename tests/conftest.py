"""Hypothesis profiles, and a guard: no import and no test changes the process all tests share.

HYPOTHESIS_PROFILE chooses dev, ci or thorough; without it, CI decides.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Kernels start slowly (a program, its layout, its tiles), so no example has a deadline.
settings.register_profile("dev", deadline=None)
# Derandomised, CI sees the same examples every time: more of them would find nothing new.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def process_state() -> dict[str, Any]:
    """What tests share and must leave alone: processors, environment, threads."""
    numba = sys.modules.get("numba")
    return {
        "processors": os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
        "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
        # Daemons and executors' workers are libraries' own, PySpark's for instance.
        "threads": {
            t.ident
            for t in threading.enumerate()
            if not t.daemon and not t.name.startswith("ThreadPoolExecutor")
        },
        "threads of compiled kernels": numba.get_num_threads() if numba else None,
    }


def changes(before: dict[str, Any], seconds: float = 1) -> list[str]:
    """What is different now; threads have some time to end."""
    deadline = time.monotonic() + seconds
    while True:
        now = process_state()
        if before["threads of compiled kernels"] is None:  # Numba came in between
            now["threads of compiled kernels"] = None
        # Names only: values of the environment may be keys.
        names = [what for what in before if before[what] != now[what]]
        if "threads" not in names or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    if "environment" in names:
        ours, theirs = before["environment"], now["environment"]
        names[names.index("environment")] = "environment: " + ", ".join(
            sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k))
        )
    return names


AT_START = process_state()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's tests come first: they take longest, and files are run side by side."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def pytest_collection_finish() -> None:
    """Importing the tests, and what they import, leaves the process as it was."""
    if found := changes(AT_START):
        raise pytest.UsageError(f"an import changed the process ({'; '.join(found)})")


@pytest.fixture(scope="session", autouse=True)
def session_leaves_the_process_alone() -> Iterator[None]:
    """Fixtures that live long put back what they changed."""
    yield
    assert not (found := changes(AT_START, seconds=10)), f"left changed: {'; '.join(found)}"


@pytest.fixture(autouse=True)
def test_leaves_the_process_alone() -> Iterator[None]:
    before = process_state()
    yield
    assert not (found := changes(before)), f"left changed: {'; '.join(found)}"
