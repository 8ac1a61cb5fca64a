"""The page on other systems says of each matcher what its card says."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from ccbps import BrokenSchemeWarning, Schema, UInt
from ccbps.matching import SCHEMES, KeywordDictionaryMatch, KeywordFilterMatch, broken

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "literature.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in re.findall(r"^\| \[.*$", PAGE.partition("\n### ")[0], re.M)
]
FLAT = " ".join(PAGE.split())
BROKEN, HERE = -2, -1
"""Columns of the table of confidential systems."""


def test_the_table_has_every_system_and_each_has_a_section() -> None:
    assert len(ROWS) == 14
    titles = re.findall(r"^### (.*)$", PAGE, re.M)
    names = [re.findall(r"^\[(.*?)\]", row[0])[0] for row in ROWS]
    assert titles[1 : 1 + len(names)] == names
    for name in names:
        section = PAGE.partition(f"### {name}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
        assert "Here:" in section, name
        assert "{ref}`" in section, name


def test_broken_matchers_and_no_others_are_called_broken() -> None:
    marked = {name: row[BROKEN] for row in ROWS for name in re.findall(r"`(\w+)", row[HERE])}
    kinds = {scheme.__name__ for scheme in SCHEMES}
    assert {*broken.__all__} <= marked.keys()
    for name in marked.keys() & kinds - {"KeywordFilterMatch", "KeywordDictionaryMatch"}:
        assert (marked[name] == "x") == (name in broken.__all__), name
        assert (f"`{name}`, `[broken]`" in FLAT) == (name in broken.__all__), name


@pytest.mark.parametrize("scheme", [KeywordFilterMatch, KeywordDictionaryMatch])
def test_words_are_broken_with_partitions_only(scheme: type) -> None:
    schema = Schema(price=UInt(8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenSchemeWarning)
        cut = scheme(schema, partitions={"price": (4, 2)})
    assert cut.leakage.security == "broken"
    assert scheme(schema, points={"price": [5]}).leakage.security != "broken"
