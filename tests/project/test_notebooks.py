"""The pages of docs/learn and their notebooks print what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = runpy.run_path(str(ROOT / "docs" / "notebook.py"))
PAGES: list[Path] = NOTEBOOK["PAGES"]
QUICK = ("01_three_events", "05_three_brokers")
"""Pages that take less than a second."""


def test_every_page_has_its_notebook() -> None:
    assert [page.stem[:3] for page in PAGES] == [f"0{number}_" for number in range(1, 8)]
    written = {path.stem for path in NOTEBOOK["NOTEBOOKS"].glob("*.ipynb")}
    assert written == {page.stem for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_notebook_is_that_of_its_page(page: Path) -> None:
    path = NOTEBOOK["path_of"](page)
    written = path.read_text("utf-8")
    assert written == NOTEBOOK["notebook"](page.read_text("utf-8")), "run python docs/notebook.py"
    links = re.findall(r"\]\(([\w./]+\.(?:md|ipynb))", written)
    assert links
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem not in QUICK))
        for page in PAGES
        if page.stem != "03_spark"  # in tests/spark/test_examples.py, where there is a session
    ],
)
def test_page_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    plt.switch_backend("Agg")
    text = page.read_text("utf-8")
    cells = NOTEBOOK["run"](text, tmp_path)
    plt.close("all")
    assert len(cells) > 4
    for code, written, printed in cells:
        assert printed == written, code
    drawn = {path.name for path in tmp_path.rglob("*.png")}
    shown = {Path(path).name for _, path in NOTEBOOK["PICTURE"].findall(text)}
    assert drawn <= shown
