"""Ends that somebody asks for: Ctrl-C, and the signal that a service manager sends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

__all__ = ["ended_by_signals", "interrupted_by_termination"]


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


@contextmanager
def ended_by_signals() -> Iterator[threading.Event]:
    """An event that is set by Ctrl-C and SIGTERM, which do nothing else in the block.

    So a broker is never stopped halfway through what it does at its end.
    """
    ended = threading.Event()
    both = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(one, lambda number, frame: ended.set()) for one in both]
    try:
        yield ended
    finally:
        for one, handler in zip(both, before, strict=True):
            signal.signal(one, handler)
