"""How the benchmarks time: one core, several rounds in turn, the least time of each.

Machines differ and are shared, so what counts is the ratio of two figures from one run; the least
of several rounds, taken in turn, disturbs the ratio least.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = [
    "KERNELS",
    "key_stream",
    "machine",
    "one_core",
    "one_thread",
    "seconds",
    "timed",
    "with_kernels",
]


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
            took = timed(action)
            if turn:
                best[name] = min(best[name], took)
    return best


def timed(action: Callable[[], object]) -> float:
    """Seconds of an action that is done once."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def key_stream(batch: int, width: int) -> Callable[[], None]:
    """The raw cipher: AES-256-CTR over `batch` times `width` bytes, in cache-sized chunks."""
    zeros, out = np.zeros(1 << 18, dtype=np.uint8), np.empty((1 << 18) + 15, dtype=np.uint8)

    def run() -> None:
        cipher = Cipher(algorithms.AES256(bytes(32)), modes.CTR(bytes(16))).encryptor()
        left = batch * width
        while left > 0:
            cipher.update_into(memoryview(zeros)[: min(left, len(zeros))], out)
            left -= len(zeros)

    return run


KERNELS = ("", ", compiled") if importlib.util.find_spec("numba") else ("",)
"""NumPy's kernels, and Numba's."""


def with_kernels(kernels: str, action: Callable[[], object]) -> Callable[[], None]:
    """The action, run with these kernels."""

    def run() -> None:
        os.environ["CCBPS_COMPILED"] = "1" if kernels else "0"
        action()

    return run
