"""Benchmarks pin themselves to a core as programs only; whoever imports one keeps what it had."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FILES = sorted(p.relative_to(BENCHMARKS) for p in BENCHMARKS.rglob("*.py"))
IMPORT = """
import os, sys, importlib
sys.path.insert(0, sys.argv[1])
cores = getattr(os, "sched_getaffinity", id)(0)
before = dict(os.environ), cores
for name in sys.argv[2:]:
    importlib.import_module(name)
    assert before == (dict(os.environ), getattr(os, "sched_getaffinity", id)(0)), name
"""
PIN = """
import os, sys
sys.path.insert(0, sys.argv[1])
import timing
if __name__ == "__main__":
    timing.one_core()
    print(os.environ["OMP_NUM_THREADS"], len(os.sched_getaffinity(0)), *sys.argv[2:])
"""


def test_importing_a_benchmark_changes_nothing() -> None:
    names = [".".join(path.with_suffix("").parts) for path in FILES]
    assert len(names) > 20
    command = [sys.executable, "-c", IMPORT, str(BENCHMARKS), *names]
    subprocess.run(command, check=True, timeout=600)


@pytest.mark.skipif(not hasattr(__import__("os"), "sched_setaffinity"), reason="no affinity here")
def test_one_core_starts_the_program_again_with_its_arguments(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PIN)
    command = [sys.executable, str(program), str(BENCHMARKS), "--limit", "a b"]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    assert run.stdout.split() == ["1", "1", "--limit", "a", "b"]


@pytest.mark.slow
def test_prefilter_prints_both_tables_and_draws_them(tmp_path: Path) -> None:
    program = BENCHMARKS / "reproduce" / "prefilter.py"
    command = [sys.executable, str(program), "--quick", "--plot", str(tmp_path)]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    lines = run.stdout.splitlines()
    for start in ("Table 1: ", "Table 2, as printed", "Table 2, KeywordMatch, prepared"):
        assert any(line.startswith(start) for line in lines), start
    # What is printed in the source stands in both tables, too.
    assert any(line.split()[:4] == ["cuckoo", "50,000", "x", "8"] for line in lines)
    assert sum("57.497" in line for line in lines) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["prefilter_1.png", "prefilter_2.png"]


@pytest.mark.slow
def test_our_filters_answer_alike_in_every_process() -> None:
    """Also falsely, and whatever seed Python's own hash has; a peer that takes it does not."""
    alike = runpy.run_path(str(BENCHMARKS / "filter_peers.py"))["portable"]()
    ours = [title for title in alike if "ours" in title]
    assert len(ours) == 8
    assert all(alike[title] for title in ours)
    assert not alike.get("Bloom: rbloom", False)


def test_imports_are_measured_with_compiled_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them an import takes a multiple of what users see."""
    (tmp_path / "slow_module.py").write_text("")
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    measure = runpy.run_path(str(BENCHMARKS / "bench_import.py"))["measure"]
    statement = "import os, slow_module; assert os.path.exists(slow_module.__cached__)"
    monkeypatch.setitem(measure.__globals__, "STATEMENTS", {"a module": statement})
    assert 0 < measure(1)["a module"] < 60
    assert not (tmp_path / "__pycache__").exists()
