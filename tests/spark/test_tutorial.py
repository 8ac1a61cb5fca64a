"""The notebook of the Spark tutorial: every cell runs, and prints what stands under it, always."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import ROOT

NOTEBOOK = ROOT / "examples" / "spark_tutorial.ipynb"


@pytest.mark.slow
@pytest.mark.spark
def test_the_notebook_prints_what_it_says_also_when_it_runs_again(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark  # the session that the first cell gets
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    world: dict[str, Any] = {}
    cells = [
        c for c in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if c["cell_type"] == "code"
    ]
    assert len(cells) > 7
    # The second time in the folder that the first one left, as in a notebook that goes on.
    for one in [*cells, *cells]:
        capsys.readouterr()
        exec("".join(one["source"]), world)
        said = ["".join(output["text"]) for output in one["outputs"]]
        assert capsys.readouterr().out == "".join(said), one["id"]
    assert (tmp_path / "tutorial" / "matches.png").stat().st_size > 5_000
