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


def processes(session: int) -> dict[int, str]:
    """Processes of a session, and what each one is: "java", or else "driver", the first one, or
    "worker"."""
    out = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            number = int(path.parent.name)
            if int(path.read_text().rpartition(")")[2].split()[3]) == session:
                java = b"java" in (path.parent / "cmdline").read_bytes().split(b"\0")[0]
                out[number] = "java" if java else "driver" if number == session else "worker"
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
                where, rights, _, _, _, *names = line.split(maxsplit=5)
                start, end = (int(part, 16) for part in where.split("-"))
                if rights.startswith("r") and end < 1 << 47 and names[:1] != ["[vvar]"]:
                    # Of a library's pages that may not be written now, only what was written.
                    own = rights[1] != "w" and any(Path(name).is_file() for name in names)
                    for first, last in _touched(folder / "pagemap", start, end, own=own):
                        file.seek(first)
                        yield name, file.read(last - first)


def _touched(pagemap: Path, start: int, end: int, *, own: bool) -> Iterator[tuple[int, int]]:
    """Ranges of addresses with pages that are there, or swapped; at most 64 MiB each. With `own`,
    only pages that the process has instead of a file's."""
    size, most = mmap.PAGESIZE, (64 << 20) // mmap.PAGESIZE
    count = (end - start) // size
    with pagemap.open("rb", buffering=0) as file:
        file.seek(start // size * 8)
        flags = np.frombuffer(file.read(count * 8), np.uint64) >> np.uint64(61)
    pages = flags >> np.uint64(1) != 0
    if own:
        pages &= flags & np.uint64(1) == 0  # not of a file
    edges = np.flatnonzero(np.diff(pages, prepend=False, append=False))
    for first, last in edges.reshape(-1, 2).tolist():
        for at in range(first, last, most):
            yield start + at * size, start + min(last, at + most) * size
