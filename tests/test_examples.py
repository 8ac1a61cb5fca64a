"""Every example runs, on little data, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALL = {
    "hidden_predicates.py": ["--events", "150", "--subscribers", "8"],
    "stock_quotes.py": ["--events", "300", "--subscribers", "12", "--output", "{output}"],
}


@pytest.mark.spark
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    arguments = [a.format(output=tmp_path) for a in SMALL[path.name]]
    run = subprocess.run(
        [sys.executable, str(path), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert "differences                          0" in run.stdout
    if "--output" in arguments:
        assert (tmp_path / "matches.png").stat().st_size > 10_000
