"""Pictures and tables of the documentation that the code draws and counts."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from ccbps import matching

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOTEBOOK = runpy.run_path(str(DOCS / "notebook.py"))
PICTURES = runpy.run_path(str(DOCS / "pictures.py"))["PICTURES"]
FIGURES = json.loads((DOCS / "reusable.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_what_the_library_computes(name: str) -> None:
    drawn = (DOCS / "images" / name).read_text(encoding="utf-8")
    assert drawn == PICTURES[name](), "run python docs/pictures.py"


TABLES = runpy.run_path(str(DOCS / "leakage_table.py"))


@pytest.mark.parametrize("name", ["leakage.md", "benchmarks.md"])
def test_tables_are_what_cards_and_figures_say(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == TABLES["pages"]()[name], "run python docs/leakage_table.py"


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
    assert counted_table(name, make) == make(), "run python docs/pictures.py"


def test_small_hidden_formulas_are_what_the_library_counts() -> None:
    written = counted_table("matchers/formula.md", COUNTED["hidden"]).splitlines()
    few = COUNTED["hidden"]([2, 3]).splitlines()
    assert len(few) == len(written) == 6
    for whole, start in zip(written, few, strict=True):
        assert whole.startswith(start), "run python docs/pictures.py"


def test_short_hamming_distances_are_what_the_library_counts() -> None:
    written = counted_table("matchers/formula.md", COUNTED["counting"]).splitlines()
    few = COUNTED["counting"]([(16, (1, 4, 8)), (24, (2,)), (32, (2,))]).splitlines()
    assert written[:6] == few[:6]  # with the head
    assert set(few) < set(written), "run python docs/pictures.py"


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


def test_every_peer_has_figures() -> None:
    names = " ".join(what for section in FIGURES["peers"] for what, _, _ in section["rows"])
    for peer in ("phe: add", "sf-heu: add", "yacryptopan", "numpy"):
        assert peer in names, f"install the bench extra and measure again: no {peer}"
    assert all(took > 0 for section in FIGURES["peers"] for _, took, _ in section["rows"])
    assert [row[0] for row in FIGURES["table 2"]] == [1, 5, 10, 15, 20]


def test_short_forms_and_links_of_the_leakage_table() -> None:
    assert TABLES["short"](("a: b", "c; d", "a; e")) == "a; c"
    assert TABLES["short"](("a: b", "c d: e"), words=2) == "a: b; c d"
    assert TABLES["short"](()) == "none known"
    assert TABLES["anchor"]("KeywordMatch, modp2048") == "keywordmatch-modp2048"
    page = (DOCS / "leakage.md").read_text(encoding="utf-8")
    headings = {TABLES["anchor"](line[3:]) for line in page.splitlines() if line[:3] == "## "}
    links = re.findall(r"^\| \[.*?\]\(#(.*?)\)", page, re.MULTILINE)
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


def test_the_notebook_is_that_of_its_page() -> None:
    written = NOTEBOOK["NOTEBOOK"].read_text("utf-8")
    assert written == NOTEBOOK["notebook"](NOTEBOOK["PAGE"].read_text("utf-8")), (
        "run python docs/notebook.py"
    )
    for page in set(re.findall(r"\]\(\.\./docs/([\w/]+\.md)", written)):
        assert (DOCS / page).exists(), page
