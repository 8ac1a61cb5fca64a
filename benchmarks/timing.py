"""Measure time in the benchmarks: one core, several rounds in turn, the least time of each.

Machines differ and are shared, so compare the ratios of figures from one run. The least time of
several rounds, taken in turn, disturbs a ratio least.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = [
    "KERNELS",
    "key_stream",
    "machine",
    "one_core",
    "one_thread",
    "repeated",
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
    """Describe this machine in a line."""
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    return f"{versions}, {processor()}, {os.cpu_count()} cores"


def processor() -> str:
    """Return the processor's name, or that of its architecture if the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({platform.machine()})" if names else platform.machine()


def seconds(actions: Mapping[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
    """Return the least seconds of each action over some rounds, after one that does not count."""
    best = dict.fromkeys(actions, float("inf"))
    for turn in range(rounds + 1):
        for name, action in actions.items():
            took = timed(action)
            if turn:
                best[name] = min(best[name], took)
    return best


def timed(action: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of an action that is done once."""
    started = clock()
    action()
    return clock() - started


def repeated(action: Callable[[], object], count: int) -> Callable[[], None]:
    """Return an action that does another one several times."""

    def run() -> None:
        for _ in range(count):
            action()

    return run


def key_stream(batch: int, width: int) -> Callable[[], None]:
    """Return the raw cipher: AES-256-CTR over `batch` times `width` bytes, in small chunks."""
    zeros, out = np.zeros(1 << 18, dtype=np.uint8), np.empty((1 << 18) + 15, dtype=np.uint8)

    def run() -> None:
        cipher = Cipher(algorithms.AES256(bytes(32)), modes.CTR(bytes(16))).encryptor()
        left = batch * width
        while left > 0:
            cipher.update_into(memoryview(zeros)[: min(left, len(zeros))], out)
            left -= len(zeros)

    return run


KERNELS = ("", ", compiled") if importlib.util.find_spec("numba") else ("",)
"""Suffixes of the kernels that are measured: NumPy's, and Numba's if it is installed."""


def with_kernels(kernels: str, action: Callable[[], object]) -> Callable[[], None]:
    """Return an action that is run with some kernels, one of `KERNELS`."""

    def run() -> None:
        os.environ["CCBPS_COMPILED"] = "1" if kernels else "0"
        action()

    return run
