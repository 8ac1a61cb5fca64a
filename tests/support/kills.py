"""Processes that are killed in the middle of their work."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType


def progress(folder: Path) -> int:
    """Return how far a program says that it is: the number in its file "published"."""
    with contextlib.suppress(FileNotFoundError):
        return int((folder / "published").read_text())
    return 0


STEPS = 40
"""After so many more steps a program goes slowly: this process may have to wait to kill it."""


def run_and_kill(program: ModuleType, folder: Path, until: int, linger: float) -> bool:
    """Run a program, kill it a moment after a step, and tell whether it was still running."""
    arguments = [str(program.__file__), str(folder), str(until + STEPS)]
    process = subprocess.Popen([sys.executable, *arguments])
    while process.poll() is None and progress(folder) < until:
        time.sleep(0.0005)
    time.sleep(linger)
    process.kill()
    status = process.wait()
    assert status in (0, -signal.SIGKILL)
    return status != 0
