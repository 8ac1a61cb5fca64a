"""What Spark's Python workers run."""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from ccbps.keys.secret import confined

P = ParamSpec("P")
R = TypeVar("R")

_settled: Final = [0]
"""How many modules were loaded when objects were last left out of collections."""


def on_worker(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function, or generator function, for Spark to call.

    It is `confined`, and the worker is ready sooner for its next task.

    PySpark collects garbage after every task, for which Python looks at all objects that there are:
    with NumPy, Arrow and Numba loaded, 0.05 to 0.1 s in which the worker takes no other task. What
    belongs to modules never goes, so it is left out once they are loaded.
    """
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def run_steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            result = yield from function(*args, **kwargs)
            _settle()
            return result

        return confined(run_steps)  # type: ignore[arg-type]

    @wraps(function)
    def run_once(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        _settle()
        return result

    return confined(run_once)


def _settle() -> None:
    """Leave present objects out of collections, if modules were loaded since the last time.

    Does so in a worker that has further tasks.

    Not after each task: what this one still holds is left out, too, and is kept, if it is a cycle.
    """
    # PySpark's daemon reads this, and collects if it is set.
    if os.environ.get("SPARK_REUSE_WORKER") and (modules := len(sys.modules)) > _settled[0]:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _settled[0] = modules
