"""Batches that workers share: threads where they help, and processes where the work takes long.

A batch starts in this process, in threads if the pairing's library lets them run at the same time.
After `HERE_SECONDS`, the rows left go to processes if they are at least as many as those done:
processes run at the same time with every library. They are started for the batch and end with it.
Each gets the key once, as bytes over the pipe of its start: key objects refuse to be pickled. No
lock of this process is inherited.

Daemonic processes of `multiprocessing` may not start others, so they work on all rows themselves.
Processes load the main module of the program again, as `multiprocessing` does it. So a program must
not do its work when it is merely imported: it starts under ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.connection import wait
from typing import Any, Final, TypeVar

from ccbps.errors import NetworkError

HERE_SECONDS: Final = 0.5
"""Seconds after which processes are worth their start."""
CHUNK: Final = 16
"""Rows that a process takes at a time, at most."""

Row = TypeVar("Row")
Result = TypeVar("Result")


def share(
    rows: Sequence[Row],
    action: Callable[[Row], Result],
    *,
    workers: int,
    parallel: bool,
    remade: Callable[[bytes], Callable[[Row], Result]],
    key: Callable[[], bytes],
) -> list[Result]:
    """Return the result of an action for each row.

    Args:
        rows: the rows, which can be pickled.
        action: the action. It raises no error that depends on a row.
        workers: number of rows that are worked on at the same time.
        parallel: whether threads run at the same time.
        remade: function, by its name in a module, that makes the action anew in a process.
        key: function that returns the argument of `remade`, the bytes of a key.

    Raises:
        NetworkError: a process ended before its work was done.
    """
    if workers == 1:
        return [action(row) for row in rows]
    done: list[Result] = []
    started = time.monotonic()
    childless = multiprocessing.current_process().daemon
    with ThreadPoolExecutor(workers if parallel else 1) as threads:
        while (left := len(rows) - len(done)) and (
            childless or time.monotonic() - started < HERE_SECONDS or left < len(done)
        ):
            done += threads.map(action, rows[len(done) :][: 2 * workers])
    return [*done, *_in_processes(rows[len(done) :], workers, remade, key)] if left else done


def _in_processes(
    rows: Sequence[Row],
    workers: int,
    remade: Callable[[bytes], Callable[[Row], Result]],
    key: Callable[[], bytes],
) -> Iterable[Result]:
    size = max(1, min(CHUNK, len(rows) // (2 * workers)))
    with ProcessPoolExecutor(
        min(workers, -(-len(rows) // size)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(remade, key()),
    ) as processes:
        try:
            return list(processes.map(_act, rows, chunksize=size))
        except BrokenProcessPool:
            raise NetworkError(
                "a worker process ended before its work was done: take workers=1, or start the "
                "program under if __name__ == '__main__', since workers load its main module"
            ) from None
        finally:
            processes.shutdown(cancel_futures=True)


# -- within a process ------------------------------------------------------------------------------

_made: list[Callable[[Any], Any]] = []
"""The action of this process."""


def _start(remade: Callable[[bytes], Callable[[Any], Any]], key: bytes) -> None:
    """Make the action, and let this process end with the one that started it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=partial(_end_with, parent.sentinel), daemon=True).start()
    _made.append(remade(key))


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _act(row: Any) -> Any:
    return _made[0](row)
