"""Signals that end a command: Ctrl-C, and the signal of a service manager."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn

_ENDS: Final = signal.SIGINT, signal.SIGTERM


@contextmanager
def interrupted_by_termination() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM in the block, so that it cleans up as on Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def ended_by_signals() -> Iterator[Callable[[], None]]:
    """Yield a function that returns once Ctrl-C or SIGTERM has come, in the block or before.

    The signals do nothing else in the block, so they interrupt no step of a server's end.

    The system may give a signal to any thread, and wakes only that thread. The main thread runs
    Python's handlers, and would sleep on in a lock. So the thread that gets a signal writes to a
    socket, and the main thread reads from it.
    """
    heard, told = socket.socketpair()
    told.setblocking(False)

    def wait() -> None:
        while heard.recv(1)[0] not in _ENDS:
            pass  # a signal that is not ours

    handlers: dict[signal.Signals, Any] = {}
    with heard, told:
        # Before the handlers change, so that no signal is lost in between.
        wakeup = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        try:
            for number in _ENDS:
                handlers[number] = signal.signal(number, lambda number, frame: None)
            yield wait
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
