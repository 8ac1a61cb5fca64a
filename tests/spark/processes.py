"""Processes that a program has started, found by its session, and killed with it."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

__all__ = ["kill", "processes"]


def processes(session: int) -> dict[int, str]:
    """Processes of a session, and what each one is: "driver", the first one, "java" or "worker"."""
    out = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            number = int(path.parent.name)
            if int(path.read_text().rpartition(")")[2].split()[3]) == session:
                java = b"java" in (path.parent / "cmdline").read_bytes().split(b"\0")[0]
                out[number] = "driver" if number == session else "java" if java else "worker"
    return out


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the first process of a session, and all others."""
    for number in processes(process.pid):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.wait()
