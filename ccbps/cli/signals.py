"""Ends that somebody asks for: Ctrl-C, and the signal that a service manager sends."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn

_ENDS: Final = signal.SIGINT, signal.SIGTERM


@contextmanager
def interrupted_by_termination() -> Iterator[None]:
    """SIGTERM is as Ctrl-C in the block: KeyboardInterrupt, so that all is put in order."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Ending:
    """An end that a signal asks for, and the main thread waits for.

    The system may give a signal to any thread, and only wakes that one; the main thread, which runs
    Python's handlers, would sleep on in a lock. So whichever thread it is writes to a socket, and
    the main thread reads it.
    """

    def __init__(self) -> None:
        self._heard, self._told = socket.socketpair()
        self._told.setblocking(False)

    def wait(self) -> None:
        """Return when a signal has come, also one from before."""
        while self._heard.recv(1)[0] not in _ENDS:
            pass  # somebody else's


@contextmanager
def ended_by_signals() -> Iterator[Ending]:
    """Waits for Ctrl-C and SIGTERM, which do nothing else in the block.

    So a broker is never stopped halfway through what it does at its end.
    """
    ending = Ending()
    before: dict[signal.Signals, Any] = {}
    with ending._heard, ending._told:
        # First, so that there is no moment in which a signal is neither heard nor does what it did.
        told = signal.set_wakeup_fd(ending._told.fileno(), warn_on_full_buffer=False)
        try:
            for one in _ENDS:
                before[one] = signal.signal(one, lambda number, frame: None)
            yield ending
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
            signal.set_wakeup_fd(told)
