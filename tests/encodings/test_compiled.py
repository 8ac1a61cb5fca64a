"""Which kernels do the work, and why compiled ones may not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ccbps.compiled import rows_compiled
from ccbps.errors import ParameterError


def run(code: str, **environment: str) -> str:
    """What a fresh process prints."""
    kept = {k: v for k, v in os.environ.items() if k != "CCBPS_COMPILED"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


LONG_WORK = """
import sys
from ccbps.compiled import COMPILED_BATCH, LOADING_WORDS, rows_compiled
KERNELS = "encodings.straight_line.compiled_planes"
messages = LOADING_WORDS // 200
for batch in (messages, COMPILED_BATCH - 1):
    assert not rows_compiled(batch, 100, KERNELS) and "numba" not in sys.modules
assert rows_compiled(messages, 100, KERNELS)
assert rows_compiled(COMPILED_BATCH, 100, KERNELS)
assert not rows_compiled(COMPILED_BATCH - 1, 100, KERNELS)
"""


def test_long_work_loads_the_compiled_kernels() -> None:
    pytest.importorskip("numba")
    run(LONG_WORK)


def test_a_wish_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCBPS_COMPILED", "yes")
    with pytest.raises(ParameterError, match="CCBPS_COMPILED must be 0, 1 or empty, got 'yes'"):
        rows_compiled(1, 1, "encodings.straight_line.compiled_planes")


WITHOUT_NUMBA = """
import os, sys, warnings
import numpy as np
from ccbps.compiled import rows_compiled
KERNELS = "encodings.straight_line.compiled_planes"
from ccbps.errors import ParameterError
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    assert not rows_compiled(10**6, 100, KERNELS) and not rows_compiled(10**6, 100, KERNELS)
print(*[warning.message for warning in seen])
os.environ["CCBPS_COMPILED"] = "1"
try:
    rows_compiled(10**6, 100, KERNELS)
except ParameterError as error:
    print(error)
"""


@pytest.mark.parametrize("broken", ["ModuleNotFoundError", "ImportError", "OSError", "KeyError"])
def test_without_numba_or_with_a_broken_one_arrays_do_the_work(broken: str, tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text(f"raise {broken}('no such thing')\n")
    shown, refused = run(WITHOUT_NUMBA, PYTHONPATH=str(tmp_path)).splitlines()
    assert ("NumPy does the work" in shown) == (broken != "ModuleNotFoundError")
    assert "no such thing" in refused and "pip install 'ccbps[compiled]'" in refused


def test_numba_that_must_not_compile_is_not_used() -> None:
    pytest.importorskip("numba")
    shown, refused = run(WITHOUT_NUMBA, NUMBA_DISABLE_JIT="1").splitlines()
    assert "NUMBA_DISABLE_JIT is set" in shown and "NUMBA_DISABLE_JIT is set" in refused


def test_compiled_kernels_need_no_folder_that_can_be_written(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    from numba import types

    from ccbps.compiled import compile_kernel

    # A function without a file has nowhere to be kept, as in a read-only installation.
    names = {"compile": compile_kernel, "types": types}
    exec("def nothing(a): pass", names)
    names["compile"](names["types"].void(names["types"].int64))(names["nothing"])(1)
