"""The choice between compiled kernels (extra ``compiled``) and NumPy; compilation and loading.

The environment variable ``CCBPS_COMPILED`` decides: ``0`` for never, ``1`` for always and at once.
Otherwise kernels are used where they can be loaded and the work is large enough.

Kernels are separate modules that need Numba. Importing one compiles it (some seconds). Numba keeps
the result for the next process in a writable folder (``__pycache__``, the user's cache or
``NUMBA_CACHE_DIR``).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, Final

from ccbps.errors import ParameterError

COMPILED_BATCH: Final = 1024
"""Smallest number of rows of a batch for compiled kernels, once they are loaded."""
LOADING_WORDS: Final = 1 << 24
"""Number of words of rows after which a process loads kernels: by then NumPy has taken about as
long as loading takes (half a second, and 130 MB of memory)."""

_treated = [0]
_long_work = [0]


@contextmanager
def as_in_long_work() -> Iterator[None]:
    """Choose kernels in this block as in a process that has worked for long, to measure them."""
    _long_work[0] += 1
    try:
        yield
    finally:
        _long_work[0] -= 1


def in_long_work() -> bool:
    """Tell whether small amounts of work count as part of large ones."""
    return _long_work[0] > 0


def use_compiled(worthwhile: Callable[[], bool], problem: Callable[[], str]) -> bool:
    """Return whether compiled kernels treat a batch.

    Args:
        worthwhile: function that tells whether the batch, with those before it, is large enough.
        problem: function that loads the kernels and returns the reason for a failure, or "".

    Raises:
        ParameterError: ``CCBPS_COMPILED`` is not 0, 1 or empty, or it is 1 and there are no
            compiled kernels.
    """
    wish = os.environ.get("CCBPS_COMPILED", "")
    if wish not in ("", "0", "1"):
        raise ParameterError(f"CCBPS_COMPILED must be 0, 1 or empty, got {wish!r}")
    if wish != "1":
        return wish == "" and worthwhile() and not problem()
    if reason := problem():
        raise ParameterError(
            f"CCBPS_COMPILED is 1, but compiled kernels cannot be loaded ({reason}): "
            "pip install 'ccbps[compiled]', or unset CCBPS_COMPILED"
        )
    return True


def loading_problem(load: Callable[[], object]) -> str:
    """Load kernels. Return the reason for a failure, or "".

    A failure is a warning, too, unless Numba is missing.
    """
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
    """Return whether compiled kernels treat a batch of rows of 64-bit words.

    They do if Numba is installed, the process has treated `LOADING_WORDS`, and the batch has
    `COMPILED_BATCH` rows or more. ``CCBPS_COMPILED`` overrides this.

    Args:
        batch: number of rows.
        words: number of words of a row.
        module: name of the kernels' module, below `ccbps`.

    Raises:
        ParameterError: ``CCBPS_COMPILED`` is wrong, or 1 without compiled kernels.
    """
    if batch < COMPILED_BATCH and "CCBPS_COMPILED" not in os.environ:  # without a call, for speed
        _treated[0] += batch * words
        return False

    def worthwhile() -> bool:
        if f"ccbps.{module}" not in sys.modules:
            _treated[0] += batch * words
            if _treated[0] < LOADING_WORDS and not in_long_work():
                return False
        return batch >= COMPILED_BATCH

    return use_compiled(worthwhile, lambda: _word_kernels(module))


@cache
def _word_kernels(module: str) -> str:
    """Load kernels that treat rows as words. Return the reason for a failure, or ""."""
    # A compiled loop reads words in the machine's order. In messages they are little-endian.
    if sys.byteorder != "little":
        return "this is a big-endian machine"
    return loading_problem(lambda: import_module(f"ccbps.{module}"))


def compile_kernel(signature: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Compile a function for a signature at once, or load the result of an earlier process."""
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
