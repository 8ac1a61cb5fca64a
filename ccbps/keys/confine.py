"""Functions whose exceptions show no locals.

Many loggers print the locals of every frame of a traceback, as Spark does with
``spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled``. Frames of this package may hold the
text of a key, values of events and private constants; they are emptied before an exception leaves.
What the caller's own frames hold is still printed.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def confined(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, or generator function; exceptions keep their lines and lose locals."""
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def run_steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            steps = function(*args, **kwargs)
            del args, kwargs
            try:
                return (yield from steps)
            except BaseException as error:
                _forget(error)
                raise

        return run_steps  # type: ignore[return-value]

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            _forget(error)
            raise

    return run


def _forget(error: BaseException) -> None:
    """Empty the frames that an exception, and those it came from, went through."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            traceback.clear_frames(found.__traceback__)
            waiting += [found.__cause__, found.__context__, *getattr(found, "exceptions", ())]
