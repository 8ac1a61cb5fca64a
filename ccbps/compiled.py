"""Whether compiled kernels (extra ``compiled``) do the work, and how they are compiled and loaded.

The environment variable ``CCBPS_COMPILED`` decides: ``0`` never, ``1`` always and at once; else
they do where they can be loaded and the work is worth it.

Kernels are modules of their own that need Numba. Importing one compiles it (some seconds); Numba
keeps the result for the next process where it can write it (``__pycache__``, the user's cache or
``NUMBA_CACHE_DIR``).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

from ccbps.errors import ParameterError

COMPILED_BATCH: Final = 1024
"""Rows from which a batch is treated by compiled kernels, once they are loaded."""
LOADING_WORDS: Final = 1 << 24
"""Words of rows after which a process loads them: by then NumPy has taken about as long as loading
takes (half a second, and 130 MB of memory)."""

_treated = [0]


def use_compiled(worthwhile: Callable[[], bool], problem: Callable[[], str]) -> bool:
    """Do compiled kernels treat this batch?

    Args:
        worthwhile: is the batch, or what came before it, large enough?
        problem: loads the kernels; returns why there are none, if so.

    Raises:
        ParameterError: ``CCBPS_COMPILED`` is not 0, 1 or empty, or it is 1 and there are no
            compiled kernels.
    """
    wish = os.environ.get("CCBPS_COMPILED", "")
    if wish not in ("", "0", "1"):
        raise ParameterError(f"CCBPS_COMPILED must be 0, 1 or empty, got {wish!r}")
    if wish == "1":
        found = problem()
        if found:
            raise ParameterError(
                f"CCBPS_COMPILED is 1, but compiled kernels cannot be loaded ({found}): "
                "pip install 'ccbps[compiled]', or unset CCBPS_COMPILED"
            )
        return True
    return wish == "" and worthwhile() and not problem()


def loading_problem(load: Callable[[], object]) -> str:
    """Load kernels; returns why they cannot be loaded, if so. Warns, unless Numba is missing."""
    try:
        load()
    except ModuleNotFoundError as error:
        return str(error)
    except Exception as error:  # one that does not go with this NumPy, Python or machine
        warnings.warn(
            f"compiled kernels cannot be loaded, NumPy does the work: {error!r}",
            RuntimeWarning,
            stacklevel=3,
        )
        return repr(error)
    return ""


def rows_compiled(batch: int, words: int, module: str) -> bool:
    """Do compiled kernels treat this batch of so many rows of so many 64-bit words?

    They do where Numba is installed, once the process has treated `LOADING_WORDS`, in batches of
    `COMPILED_BATCH` rows or more; or as ``CCBPS_COMPILED`` says.

    Args:
        module: where they are, below `ccbps`.

    Raises:
        ParameterError: as `use_compiled`.
    """

    def worthwhile() -> bool:
        if f"ccbps.{module}" not in sys.modules:
            _treated[0] += batch * words
            if _treated[0] < LOADING_WORDS:
                return False
        return batch >= COMPILED_BATCH

    return use_compiled(worthwhile, lambda: _word_kernels(module))


@cache
def _word_kernels(module: str) -> str:
    """Load kernels that treat rows as words; returns why they cannot be loaded, if so."""
    # A compiled loop reads words as the machine does; on the wire they are little-endian.
    if sys.byteorder != "little":
        return "this is a big-endian machine"
    return loading_problem(lambda: import_module(f"ccbps.{module}"))


def compile_kernel(signature: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Compile a function for one signature, now, or take what an earlier process compiled."""
    import numba

    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise ImportError("NUMBA_DISABLE_JIT is set: loops would run in Python")

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        try:
            compiled: Callable[..., None] = numba.njit(signature, cache=True, nogil=True)(function)
        except Exception:  # no folder to keep it in, a full disk, a damaged cache: compile afresh
            compiled = numba.njit(signature, nogil=True)(function)
        return compiled

    return decorate
