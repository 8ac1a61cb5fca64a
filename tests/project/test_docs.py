"""Pictures and tables of the documentation that the code draws and counts."""

from __future__ import annotations

import functools
import os
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ccbps import matching
from ccbps.algebra import S5

DOCS = Path(__file__).resolve().parents[2] / "docs"
DRAWN = runpy.run_path(str(DOCS / "pictures.py"))
LAYERS = runpy.run_path(str(DOCS / "layers.py"))
PICTURES = DRAWN["PICTURES"]
DRAW = dict(PICTURES)


SVG = "{http://www.w3.org/2000/svg}"


@functools.cache
def drawn(name: str) -> str:
    """Draw a picture, once."""
    text: str = DRAW[name]()
    return text


def texts(name: str) -> list[str]:
    """What is written in a picture, piece by piece."""
    whole = ElementTree.fromstring(drawn(name))
    assert whole.tag == f"{SVG}svg"
    assert whole.find(f"{SVG}title") is not None, "a picture says what it shows"
    return ["".join(part.itertext()) for part in whole.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n == "layers.svg" else ()) for n in PICTURES],
)
def test_picture_is_well_formed_and_the_same_every_time(name: str) -> None:
    assert texts(name)
    assert DRAW[name]() == drawn(name)


def test_pictures_are_those_that_pages_show() -> None:
    shown = {
        found
        for page in DOCS.rglob("*.md")
        for found in re.findall(r"\]\((?:\.\./)?images/([^)]+)\)", page.read_text("utf-8"))
    }
    assert set(PICTURES) <= shown
    assert [name for name in shown - set(PICTURES) if not (DOCS / "images" / name).exists()] == []


def test_pictures_are_written_where_they_are_missing_or_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PICTURES:
        monkeypatch.setitem(PICTURES, name, functools.partial(drawn, name))
    DRAWN["write"](tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(PICTURES)
    old, other = tmp_path / "parties.svg", tmp_path / "choosing.svg"
    os.utime(old, ns=(0, 0))
    other.write_text("another")
    DRAWN["write"](tmp_path)
    # Sphinx copies and reads what is new, so what is right is left alone.
    assert old.stat().st_mtime_ns == 0
    assert other.read_text("utf-8") == drawn("choosing.svg")


def test_pictures_of_group_programs_show_what_the_library_computes() -> None:
    program = DRAWN["example_program"]()
    alpha, one = (DRAWN["cycles"](program.group, rank) for rank in (program.group.alpha, 0))
    bits = DRAWN["inputs"](3)
    values = [alpha if (x1 and x2) or not x3 else one for x1, x2, x3 in bits]
    shown = texts("group_program.svg")
    assert [shown[shown.index(" ".join(map(str, x.astype(int)))) + 1] for x in bits] == values
    # Blinding changes every element, and no product.
    rows = [(elements, product) for _, elements, product in DRAWN["blinded_rows"]()]
    for plain, *blinded in (rows[:3], rows[3:]):
        for elements, product in blinded:
            assert product == plain[1]
            assert elements != plain[0]
    for elements, product in rows:
        assert functools.reduce(lambda a, b: int(S5.multiplication[a, b]), elements) == product
    assert {rows[0][1], rows[3][1]} == {S5.alpha, 0}


def test_architecture_shows_every_room() -> None:
    rooms = {name for floor in LAYERS["floors"]() for name in floor}
    there = {
        path.stem
        for path in (DOCS.parent / "ccbps").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert rooms == there - {"__init__", "__main__"}
    assert rooms <= set(texts("layers.svg"))
    page = (DOCS / "architecture.md").read_text("utf-8")
    table = page.partition("\n| --- | --- |\n")[2].partition("\n\n")[0]
    firsts = [row.split("|")[1] for row in table.splitlines()]
    assert {name for cell in firsts for name in re.findall(r"`(\w+)`", cell)} == rooms


TABLES = runpy.run_path(str(DOCS / "leakage_table.py"))
FIGURES = TABLES["load_figures"]()
LEAKAGE = TABLES["leakage"](FIGURES)


@pytest.mark.parametrize("name", TABLES["matchers"]())
def test_page_of_leakage_has_the_card_and_the_figures_of_every_matcher(name: str) -> None:
    matcher = TABLES["matchers"]()[name]
    card = matcher.leakage
    (section,) = re.findall(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", LEAKAGE, re.M | re.DOTALL)
    points = (*card.learns, *card.hides, *card.hazards, *card.attacks)
    assert re.findall(r"^- (.*)$", section, re.MULTILINE) == list(points)
    assert f"Integrity: {card.integrity}." in section
    (row, *_) = re.findall(rf"^\| \[{re.escape(name)}\]\(.*$", LEAKAGE, re.MULTILINE)
    assert f"{card.security}, {card.reuse}" in row
    measured = [row for row in FIGURES["rows"] if row["matcher"] == name]
    assert [f" {figures['event bytes']:,} + " in row for figures in measured] == [True] * len(
        measured
    )


COUNTED = runpy.run_path(str(DOCS / "formula_table.py"))


def counted_table(name: str, make: Callable[[], str]) -> str:
    """A table as a page has it."""
    text = (DOCS / name).read_text(encoding="utf-8")
    before, table, after = COUNTED["around"](text, make)
    assert before + table + after == text
    return str(table)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        pytest.param(
            name,
            make,
            id=f"{name}-{make.__name__}",
            # The smaller formulas of these are counted below.
            marks=[pytest.mark.slow] * (make.__name__ in ("counting", "hidden")),
        )
        for name, makers in COUNTED["BLOCKS"].items()
        for make in makers
    ],
)
def test_sizes_of_formulas_are_what_the_library_counts(name: str, make: Callable[[], str]) -> None:
    assert counted_table(name, make) == make(), "run python docs/formula_table.py"


def test_small_hidden_formulas_are_what_the_library_counts() -> None:
    written = counted_table("matchers/formula.md", COUNTED["hidden"]).splitlines()
    few = COUNTED["hidden"]([2, 3]).splitlines()
    assert len(few) == len(written) == 6
    for whole, start in zip(written, few, strict=True):
        assert whole.startswith(start), "run python docs/formula_table.py"


def test_short_hamming_distances_are_what_the_library_counts() -> None:
    written = counted_table("matchers/formula.md", COUNTED["counting"]).splitlines()
    few = COUNTED["counting"]([(16, (1, 4, 8)), (24, (2,)), (32, (2,))]).splitlines()
    assert written[:6] == few[:6]  # with the head
    assert set(few) < set(written), "run python docs/formula_table.py"


@pytest.mark.parametrize("bits", range(1, 6))
def test_no_determinant_is_shorter_for_a_small_comparison(bits: int) -> None:
    # Why there is one encoding for comparisons of all sizes: docs/rank_one_gates.md.
    schema, text = COUNTED["comparison"](bits)
    ours, theirs = matching.FormulaMatch(schema, text), matching.BranchingMatch(schema, text)
    # A polynomial of degree k + 1 is no smaller determinant.
    assert theirs.program.size == bits + 1
    assert max(ours.encoding.slots.bits) < COUNTED["determinant"](theirs)
    longest = max(ours.encoding.event_bytes, ours.encoding.interest_bytes)
    assert longest <= theirs.encoding.message_bytes


def test_other_constructions_by_their_formulas() -> None:
    # Over one bit there are three intervals, and one that is empty.
    assert [COUNTED["gess"](depth) for depth in (1, 2, 6, 10)] == [4, 14, 1_394, 117_074]
    assert [COUNTED["labels"](depth) for depth in (6, 10)] == [928, 34_304]
    assert COUNTED["bound"]([1]) == (1, 2.0)
    events, interests = COUNTED["bound"]([16, 16, 20])
    assert (events, int(interests)) == (52, 101)


def test_every_matcher_of_the_workload_has_figures() -> None:
    rows = {row["matcher"]: row for row in FIGURES["rows"]}
    matchers = TABLES["samples"]()
    assert list(rows) == list(matchers)
    for name, matcher in matchers.items():
        row = rows[name]
        assert row["event bytes"] == matcher.event_bytes, name
        assert row["interest bytes"] == matcher.interest_bytes, name
        tables = matcher.answers is matching.Answers.ALL
        costs = {"event", "interest", "pair"} | ({"prepare", "once"} if tables else set())
        assert costs == row.keys() & {"event", "interest", "prepare", "once", "pair"}, name
        # What a pair takes is a difference of two times: not positive where it drowns in noise.
        assert all(row[what] > 0 for what in costs), name
        assert row["different"] < 1e-3, name


def test_short_forms_and_links_of_the_leakage_table() -> None:
    assert TABLES["short"](("a: b", "c; d", "a; e")) == "a; c"
    assert TABLES["short"](("a: b", "c d: e"), words=2) == "a: b; c d"
    assert TABLES["short"](()) == "none known"
    assert TABLES["anchor"]("KeywordMatch, modp2048") == "keywordmatch-modp2048"
    headings = {TABLES["anchor"](line[3:]) for line in LEAKAGE.splitlines() if line[:3] == "## "}
    links = re.findall(r"^\| \[.*?\]\(#(.*?)\)", LEAKAGE, re.MULTILINE)
    assert links
    assert set(links) == headings


def test_choosing_names_every_matcher_and_the_broken_ones_last() -> None:
    kinds = {scheme.__name__ for scheme in matching.SCHEMES}
    choices = runpy.run_path(str(DOCS / "diagrams.py"))["CHOICES"]
    named = [
        {name.partition(".")[0] for _, names in lines for name in names.split(", ")} - {"template"}
        for _, lines, _ in choices
    ]
    assert set().union(*named) == kinds
    assert sum(map(len, named)) == len(kinds)
    cards = {name.partition(",")[0]: m.leakage for name, m in TABLES["samples"]().items()}
    assert named[-1] == {name for name, card in cards.items() if card.security == "broken"}
    page = (DOCS / "choosing.md").read_text(encoding="utf-8")
    assert all(f"`{name}" in page for name in kinds)


def test_pages_name_tests_that_exist() -> None:
    files = [*(DOCS.parent / "tests").rglob("test_*.py")]
    there = {path.name for path in files}
    for path in files:
        there |= set(re.findall(r"def (test_\w+)", path.read_text("utf-8")))
    named = {
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"\btest_\w+(?:\.py)?", page.read_text("utf-8"))
    }
    assert len(named) > 100
    assert sorted(named - there) == []
