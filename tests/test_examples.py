"""Every example runs as a program, in a process of its own.

In the session that other tests have, and on less data, they run in `tests/spark/test_examples.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Enough data for every picture.
ARGUMENTS = {
    "bootstrap_then_match.py": [],
    "mqtt_prefilter.py": [],
    "whole_story.py": ["--quotes", "60"],
    "hidden_predicates.py": ["--events", "1500", "--subscribers", "24"],
    "share_through_networks.py": ["--samples", "50", "--held", "300000", "--output", "."],
    "flights_336k.py": ["--months", "1", "--subscribers", "4", "--output", "."],
    # Killed at each moment, and each kind of its workers once.
    "stream_quotes.py": ["--events", "150", "--files", "30", "--kills", "14"],
    "stock_quotes.py": ["--events", "2000", "--subscribers", "30", "--output", "."],
}
# For so little data, Java's second compiler and its parallel collector take longer than they save.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

Running = dict[str, tuple[Path, subprocess.Popen[bytes]]]


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """All examples that are asked for, at once: they mostly wait for Spark to start."""
    names = {item.name for item in request.session.items}
    out: Running = {}
    for path in EXAMPLES:
        if f"test_example_runs[{path.name}]" not in names:
            continue
        folder = tmp_path_factory.mktemp(path.stem)
        with (folder / "stdout").open("w") as stdout, (folder / "stderr").open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, str(path), *ARGUMENTS[path.name]],
                cwd=folder,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "JDK_JAVA_OPTIONS": QUICK_JAVA,
                },
                stdout=stdout,
                stderr=stderr,
            )
        out[path.name] = folder, process
    yield out
    for _, process in out.values():
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", [path.name for path in EXAMPLES])
def test_example_runs(name: str, running: Running) -> None:
    folder, process = running[name]
    code = process.wait(timeout=1200 if name == "stream_quotes.py" else 300)
    stdout, stderr = ((folder / stream).read_text() for stream in ("stdout", "stderr"))
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    assert "differences                          0" in stdout
    if name == "bootstrap_then_match.py":
        counts = dict(re.findall(r"^(\S.*?)  +(\d+) +\d+ +\d+$", stdout, re.MULTILINE))
        assert [int(count) for count in counts.values()] == [606, 42, 18]
        assert "162 fragments do not give their secret back" in stdout
        assert stderr == ""
    if name == "share_through_networks.py":
        assert "235 networks, 400 secrets each" in stdout
        assert (folder / "networks.png").stat().st_size > 10_000
    if name == "stream_quotes.py":
        kills = dict(re.findall(r"^killed (.*?) +(\d+)$", stdout, re.MULTILINE))
        # On a busy machine the ledger's writer may be through before it is stopped.
        assert kills.pop("of the ledger, its writer") in ("0", "1")
        assert [*kills.values()] == ["1"] * 13
        assert "with one content each, but 0" in stdout
    if name == "stock_quotes.py":
        sizes = re.search(r"bytes written +([\d,]+) +announced: ([\d,]+)", stdout)
        assert sizes is not None
        wrote, said = (int(text.replace(",", "")) for text in sizes.groups())
        assert 0.8 < said / wrote < 1.25
        strategy = re.search(r"build-up +([\d,]+) +chosen: ([\d,]+) counted", stdout)
        assert strategy is not None
        assert strategy[1] == strategy[2]
        assert "| the subscriber read" in stdout
        assert (folder / "matches.png").stat().st_size > 10_000
