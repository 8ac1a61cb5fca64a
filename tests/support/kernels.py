"""Both kernels of the encodings, NumPy's and Numba's, for tests that run on either; and how rows
are asked of a caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from ccbps.arrays import Bytes

__all__ = ["KERNELS", "Recorder", "both_kernels", "each_kernel", "wished"]

KERNELS = {"arrays": "0", "compiled": "1"}


@contextmanager
def wished(kernel: str) -> Iterator[None]:
    """One of the two kernels does all the work."""
    if kernel == "compiled":
        pytest.importorskip("numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CCBPS_COMPILED", KERNELS[kernel])
        yield


@pytest.fixture(name="kernel", scope="module", params=list(KERNELS))
def each_kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both kernels, one after the other."""
    with wished(request.param):
        yield


both_kernels = pytest.mark.usefixtures("kernel")


class Recorder:
    """Yields an array's rows through one buffer, and keeps what it was asked for."""

    def __init__(self, rows: Bytes) -> None:
        self._rows = rows
        self._buffer = np.zeros_like(rows)
        self.asked: list[int] = []

    def __call__(self, start: int, stop: int) -> Bytes:
        self.asked += range(start, stop)
        self._buffer[:] = 0xAA  # what was handed out before is gone
        self._buffer[: stop - start] = self._rows[start:stop]
        return self._buffer[: stop - start]
