"""Calls in forked processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable


def answer_of_child(function: Callable[[], object]) -> str:
    """Return the text of a call's result in a forked child, or that of its error."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def call() -> None:
        try:
            queue.put(str(function()))
        except Exception as error:
            queue.put(f"{type(error).__name__}: {error}")

    process = context.Process(target=call)
    process.start()
    answer = queue.get()
    process.join()
    return str(answer)
