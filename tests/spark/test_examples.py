"""Examples and the notebook on Spark, on little data, in the session that the tests share.

As programs, each in a process of its own, they run in `tests/project/test_examples.py`.
"""

from __future__ import annotations

import importlib.util
import re
import runpy
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from pyspark.sql import SparkSession

from ccbps import SharedSeed
from tests.support.spark_session import KEY, ROOT, changed

pytestmark = pytest.mark.spark

# By their shortest path, which still delivers something.
ARGUMENTS = {
    "hidden_predicates.py": ["--events", "50", "--subscribers", "4"],
    "stock_quotes.py": ["--events", "100", "--subscribers", "6"],
}


class Here(Executor):
    """An executor of one thread, the caller's."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


@contextmanager
def in_this_process(log: Path, master: str) -> Iterator[tuple[Here, Future[None]]]:
    """Stand for the example's `process`, whose session is there already."""
    here = Here()
    yield here, here.submit(lambda: None)


# The second one also runs as a program.
@pytest.mark.parametrize(
    "name", ["hidden_predicates.py", pytest.param("stock_quotes.py", marks=pytest.mark.slow)]
)
def test_example_runs(
    name: str,
    spark: SparkSession,
    seed: SharedSeed,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = ROOT / "examples" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    # Workers know one key already, and the session goes on.
    monkeypatch.setattr(example, "session", lambda master: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    monkeypatch.setattr(example, "MASTER", KEY, raising=False)
    monkeypatch.setenv(KEY.name, seed.to_text())
    monkeypatch.setattr(SharedSeed, "generate", lambda: seed)

    names = ("spark.sql.shuffle.partitions", "spark.sql.streaming.stateStore.providerClass")
    settings = {setting: spark.conf.get(setting) for setting in names}
    arguments = ARGUMENTS[name]
    if hasattr(example, "process"):
        monkeypatch.setattr(example, "process", in_this_process)
        arguments = [*arguments, "--output", str(tmp_path)]
    with changed(spark, settings):
        differences = example.main(arguments)
    assert differences == 0
    stdout = capsys.readouterr().out
    assert "differences                          0" in stdout
    if hasattr(example, "process"):
        sizes = re.search(r"bytes written +([\d,]+) +announced: ([\d,]+)", stdout)
        assert sizes is not None
        wrote, said = (int(text.replace(",", "")) for text in sizes.groups())
        assert 0.8 < said / wrote < 1.25
        # As many encryptions are in the messages as the strategy plans.
        strategy = re.search(r"build-up +([\d,]+) +chosen: ([\d,]+) counted", stdout)
        assert strategy is not None
        assert strategy[1] == strategy[2]
        assert "| the subscriber read" in stdout
        assert "must not happen" not in stdout
        assert (tmp_path / "matches.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_notebook_prints_what_it_says_also_when_it_runs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert spark  # the session that the first cell gets
    plt.switch_backend("Agg")
    page = (ROOT / "docs" / "learn" / "03_spark.md").read_text("utf-8")
    # The second time in the folder that the first one left, as in a notebook that goes on.
    cells = runpy.run_path(str(ROOT / "docs" / "notebook.py"))["run"](page, tmp_path, times=2)
    assert len(cells) > 14
    for code, written, printed in cells:
        assert printed == written, code
    assert (tmp_path / "tutorial" / "deliveries.png").stat().st_size > 5_000
