"""How the benchmarks time: one core, several rounds in turn, the least time of each.

Machines differ and are shared, so what counts is the ratio of two figures from one run; the least
of several rounds, taken in turn, disturbs the ratio least.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping

__all__ = ["machine", "one_core", "one_thread", "seconds"]


def one_thread() -> None:
    """Keep this program's libraries on one thread. For main programs only.

    Libraries read how many threads to use when they are loaded, so the program starts once more.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    if any(os.environ.get(name) != "1" for name in names):
        os.environ.update(dict.fromkeys(names, "1"))
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def one_core() -> None:
    """Keep this program on one core, and its libraries on one thread. For main programs only."""
    one_thread()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def machine() -> str:
    """What this runs on, in a line."""
    return f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"


def seconds(actions: Mapping[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
    """Least seconds of each action over `rounds` rounds, after one round that does not count."""
    best = dict.fromkeys(actions, float("inf"))
    for turn in range(rounds + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            if turn:
                best[name] = min(best[name], time.perf_counter() - started)
    return best
