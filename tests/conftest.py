"""Hypothesis profiles, and a guard: no import and no test changes the process all tests share.

HYPOTHESIS_PROFILE chooses dev, ci or thorough; without it, CI decides. Of dev and ci, a run without
slow tests takes a twelfth of the examples.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import effort

# Plans keep no timings: nothing is written to the user's folder, or read from it.
os.environ.setdefault("CCBPS_CACHE", os.devnull)


def pytest_configure(config: pytest.Config) -> None:
    """Profiles, with as many examples as the run has time for."""
    effort.everything = config.getoption("markexpr") != "not slow"
    # Collections by the default thresholds take a tenth of the time.
    gc.set_threshold(20_000, 20, 50)
    # Kernels start slowly (a program, its layout, its tiles), so no example has a deadline.
    settings.register_profile("dev", deadline=None, max_examples=effort.examples(100))
    # Derandomised, CI sees the same examples every time: more of them would find nothing new.
    settings.register_profile(
        "ci",
        deadline=None,
        derandomize=True,
        max_examples=effort.examples(60),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile("thorough", deadline=None, max_examples=1000, print_blob=True)
    chosen = os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
    settings.load_profile(chosen)


def process_state() -> dict[str, Any]:
    """What tests share and must leave alone: processors, environment, threads."""
    numba = sys.modules.get("numba")
    # Raw: to decode each variable, before and after each test, takes seconds of a whole run.
    environment: dict[Any, Any] = {**os.environ._data}  # type: ignore[attr-defined]
    environment.pop(os.environ.encodekey("PYTEST_CURRENT_TEST"), None)
    return {
        "processors": os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
        "environment": environment,
        # Daemons and executors' workers are libraries' own, PySpark's for instance.
        "threads": {
            t.ident
            for t in threading.enumerate()
            if not t.daemon and not t.name.startswith("ThreadPoolExecutor")
        },
        "threads of compiled kernels": numba.get_num_threads() if numba else None,
    }


def changes(before: dict[str, Any], seconds: float = 60) -> list[str]:
    """What is different now; threads have some time to end."""
    deadline = time.monotonic() + seconds
    while True:
        now = process_state()
        if before["threads of compiled kernels"] is None:  # Numba came in between
            now["threads of compiled kernels"] = None
        now["threads"] |= before["threads"]  # one of an earlier test may end during this one
        # Names only: values of the environment may be keys.
        names = [what for what in before if before[what] != now[what]]
        if "threads" not in names or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    if "environment" in names:
        ours, theirs = before["environment"], now["environment"]
        names[names.index("environment")] = "environment: " + ", ".join(
            sorted(
                os.fsdecode(name)
                for name in ours.keys() | theirs.keys()
                if ours.get(name) != theirs.get(name)
            )
        )
    return names


AT_START = process_state()


APART = ("/test_connect.py", "/test_cluster.py", "/test_poison.py")


def scope(nodeid: str) -> str:
    """What of the tests stays together in one process: a file, or all that share a Spark session.

    Spark Connect and a cluster have processes of their own anyway, and a million bad rows take
    longer than a second session.
    """
    path = nodeid.partition("::")[0]
    shared = path.startswith("tests/spark/") and not path.endswith(APART)
    return "tests/spark" if shared else path


SECONDS = {
    "tests/spark": 215,
    "tests/spark/test_connect.py": 60,
    "tests/spark/test_cluster.py": 60,
    "tests/spark/test_poison.py": 60,
    "tests/project/test_examples.py": 60,
    "tests/matching/test_conformance.py": 52,
    "tests/planner/test_plan.py": 40,
    "tests/project/test_package.py": 25,
    "tests/project/test_docstrings.py": 20,
    "tests/matching/test_templates.py": 16,
    "tests/forms/test_hidden_trees.py": 12,
    "tests/rounds/test_event_ledger.py": 12,
    "tests/matching/test_conformance_bites.py": 11,
    "tests/matching/test_group.py": 10,
    "tests/network/test_network.py": 10,
    "tests/security/test_group_perfect.py": 9,
    "tests/security/test_formula_perfect.py": 9,
    "tests/project/test_docs.py": 9,
    "tests/security/test_branching_perfect.py": 8,
    "tests/cli/test_cli.py": 8,
    "tests/matching/test_new_scheme.py": 7,
    "tests/matching/test_hidden.py": 7,
    "tests/overlay/test_collusion.py": 7,
    "tests/matching/test_formula.py": 7,
    "tests/filters/test_filters.py": 6,
    "tests/broker/test_model.py": 6,
    "tests/encodings/test_branching.py": 6,
    "tests/encodings/test_broadcast.py": 6,
    "tests/mqtt/test_mqtt.py": 6,
}
"""What the longest scopes take, about."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long scopes come first, so that at the end no process works while others have nothing."""
    items.sort(key=lambda item: -SECONDS.get(scope(item.nodeid), 0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``: as that, but all tests of Spark count as one file."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByScope(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    return ByScope(config, log)


def pytest_collection_finish() -> None:
    """Importing the tests, and what they import, leaves the process as it was."""
    if found := changes(AT_START):
        raise pytest.UsageError(f"an import changed the process ({'; '.join(found)})")
    gc.collect()
    gc.freeze()  # ten thousand tests and all imports, which live as long as the process


@pytest.fixture(scope="session", autouse=True)
def session_leaves_the_process_alone() -> Iterator[None]:
    """Fixtures that live long put back what they changed."""
    yield
    assert not (found := changes(AT_START)), f"left changed: {'; '.join(found)}"


@pytest.fixture(autouse=True)
def test_leaves_the_process_alone() -> Iterator[None]:
    before = process_state()
    yield
    assert not (found := changes(before)), f"left changed: {'; '.join(found)}"
