"""Benchmarks pin themselves to a core as programs only; whoever imports one keeps what it had."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
FILES = sorted(p.relative_to(BENCHMARKS) for p in BENCHMARKS.rglob("*.py"))
IMPORT = """
import os, sys, importlib
sys.path.insert(0, sys.argv[1])
cores = getattr(os, "sched_getaffinity", id)(0)
before = dict(os.environ), cores
importlib.import_module(sys.argv[2])
assert before == (dict(os.environ), getattr(os, "sched_getaffinity", id)(0))
"""
PIN = """
import os, sys
sys.path.insert(0, sys.argv[1])
import timing
if __name__ == "__main__":
    timing.one_core()
    print(os.environ["OMP_NUM_THREADS"], len(os.sched_getaffinity(0)), *sys.argv[2:])
"""


@pytest.mark.parametrize("path", FILES, ids=str)
def test_importing_a_benchmark_changes_nothing(path: Path) -> None:
    name = ".".join(path.with_suffix("").parts)
    command = [sys.executable, "-c", IMPORT, str(BENCHMARKS), name]
    subprocess.run(command, check=True, timeout=120)


@pytest.mark.skipif(not hasattr(__import__("os"), "sched_setaffinity"), reason="no affinity here")
def test_one_core_starts_the_program_again_with_its_arguments(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PIN)
    command = [sys.executable, str(program), str(BENCHMARKS), "--limit", "a b"]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert run.stdout.split() == ["1", "1", "--limit", "a", "b"]
