"""Processes that a program has started, found by its session: looked into, and killed with it."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

__all__ = ["kill", "memory", "processes"]


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


def memory(session: int) -> Iterator[tuple[str, bytes]]:
    """What all processes of a session have written to their memory; they are stopped for it."""
    for number in processes(session):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGSTOP)
    for number, name in processes(session).items():
        folder = Path(f"/proc/{number}")
        try:
            file = (folder / "mem").open("rb", buffering=0)
        except ProcessLookupError:  # it has ended; its parent is stopped
            continue
        with file:
            for line in (folder / "maps").read_text().splitlines():
                where, rights, *_ = line.split()
                start, end = (int(part, 16) for part in where.split("-"))
                if rights.startswith("rw") and end < 1 << 47:
                    for first, last in _touched(folder / "pagemap", start, end):
                        file.seek(first)
                        yield name, file.read(last - first)


def _touched(pagemap: Path, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges of addresses with pages that are there, or swapped; at most 64 MiB each."""
    size, most = mmap.PAGESIZE, (64 << 20) // mmap.PAGESIZE
    count = (end - start) // size
    with pagemap.open("rb", buffering=0) as file:
        file.seek(start // size * 8)
        pages = np.frombuffer(file.read(count * 8), np.uint64) >> np.uint64(62) != 0
    edges = np.flatnonzero(np.diff(pages, prepend=False, append=False))
    for first, last in edges.reshape(-1, 2).tolist():
        for at in range(first, last, most):
            yield start + at * size, start + min(last, at + most) * size
