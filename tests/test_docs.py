"""Pictures and tables of the documentation that the code draws and counts."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
PICTURES = runpy.run_path(str(DOCS / "pictures.py"))["pictures"]()


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_what_the_library_computes(name: str) -> None:
    drawn = (DOCS / "images" / name).read_text(encoding="utf-8")
    assert drawn == PICTURES[name], "run python docs/pictures.py"


def test_leakage_table_is_what_the_cards_say() -> None:
    page = runpy.run_path(str(DOCS / "leakage_table.py"))["page"]()
    written = (DOCS / "leakage.md").read_text(encoding="utf-8")
    assert written == page, "run python docs/leakage_table.py"
