"""Both kernels of the encodings, NumPy's and Numba's, for tests that run on either."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["KERNELS", "both_kernels", "each_kernel", "wished"]

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
