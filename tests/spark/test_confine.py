"""Exceptions of confined functions keep their lines, and hold no locals."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator

import pytest

from ccbps.keys.secret import confined
from ccbps.spark.workers import on_worker

SECRET = "IBMSECRET"


def fail(value: str) -> None:
    twice = value * 2
    raise ValueError(f"{len(twice)} characters")


@confined
def call(value: str) -> None:
    kept = value
    try:
        fail(kept)
    except ValueError as error:
        raise KeyError("wrapped") from error


@confined
def step(value: str) -> Iterator[int]:
    kept = value
    yield 1
    fail(kept)


@on_worker
def call_on_worker(value: str) -> None:
    fail(value)


@on_worker
def step_on_worker(value: str) -> Iterator[int]:
    yield 1
    fail(value)


def run_steps(value: str) -> None:
    list(step(value))


def run_steps_on_worker(value: str) -> None:
    list(step_on_worker(value))


@pytest.mark.parametrize("function", [call, run_steps, call_on_worker, run_steps_on_worker])
def test_locals_are_gone_and_lines_are_not(function: Callable[[str], None]) -> None:
    def without_locals() -> str:
        try:
            function(SECRET)
        except (KeyError, ValueError) as error:
            shown = traceback.TracebackException.from_exception(error, capture_locals=True)
            return "".join(shown.format())
        raise AssertionError("nothing was raised")

    text = without_locals()
    assert "in fail" in text
    # The caller's own frames are not this package's.
    inner = re.split(r"ccbps/(?:keys|spark)/\w+\.py", text, maxsplit=1)[1]
    assert SECRET not in inner


def test_results_pass_through() -> None:
    assert list(confined(lambda: iter([1, 2]))()) == [1, 2]
    steps = confined(lambda n: n + 1)
    assert steps(4) == 5
    assert next(step("x")) == 1
    assert confined(fail).__name__ == "fail"
