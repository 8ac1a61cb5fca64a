"""Figures of the benchmarks: what programs print, the file that has it, and pages that read it."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS, BENCHMARKS = ROOT / "docs", ROOT / "benchmarks"
MEASURED = runpy.run_path(str(DOCS / "measured.py"))
PAGES = sorted(DOCS.rglob("*.md"))
RECORDED = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from report import Table
table = Table("Messages", {"size": ",", "ns": ".2f", "how": ""}, head="side")
table.row("event", np.int64(73), np.float64(136.04999), "measured")
table.row("interest", 76, float("nan"))
"""
CLAIMS = [
    # A page, its words, and a ratio of figures that is above 1 if they are true.
    (
        "getting_started.md",
        "with compiled code. This is faster than NumPy",
        "bench_formula / Box of 16+16+20 bits / FormulaMatch / broker ÷ "
        "FormulaMatch, compiled / broker",
    ),
    (
        "getting_started.md",
        "with compiled code. This is faster than NumPy",
        "bench_formula / Box of 16+16+20 bits / BroadcastMatch, 1 bit / broker ÷ "
        "BroadcastMatch, 1 bit, compiled / broker",
    ),
    (
        "benchmarks.md",
        "In this library, single keys are looked up faster in a cuckoo filter",
        "prefilter / Table 1, times of the Bloom filter to those of this filter / "
        "cuckoo 100,000 x 4 / searching: one by one ÷ Bloom 10 % / searching: one by one",
    ),
    (
        "benchmarks.md",
        "In columns it is the other way round.",
        "prefilter / Table 1, times of the Bloom filter to those of this filter / Bloom 10 % / "
        "searching: a column ÷ cuckoo 100,000 x 4 / searching: a column",
    ),
    (
        "key_caching.md",
        "no other strategy needs fewer encryptions in either column of the table",
        "key_caching / Table 1, large set: encryptions of an event / clustered-popular / "
        "popular: simulated ÷ learned / popular: simulated",
    ),
    (
        "key_caching.md",
        "no other strategy needs fewer encryptions in either column of the table",
        "key_caching / Table 1, large set: encryptions of an event / clustered-popular / "
        "uniform: simulated ÷ learned / uniform: simulated",
    ),
    (
        "benchmarks.md",
        "[Message stores](spark.md#message-stores) are matched faster than tables",
        "bench_spark / Message stores, pairs a second / Spark match of stores / FormulaMatch ÷ "
        "bench_spark / Messages as tables, pairs a second / Spark join and match / FormulaMatch",
    ),
    (
        "broker.md",
        "With all 1,000,000 subscriptions one by one, NumPy takes longer than the broker",
        "bench_broker / Subscriptions and events / 1,000,000 / all in clear ms ÷ match ms",
    ),
    (
        "matchers/paillier_range.md",
        "it encrypts faster than the package `phe`",
        "bench_reusable / Paillier, 2048 bits / phe: encrypt / microseconds ÷ "
        "encrypt, from cold / microseconds",
    ),
    (
        "functional.md",
        "A pair of a product of many pairings costs less than a single pairing",
        "bench_functional / Operations, milliseconds / single pairing / both ÷ "
        "product of 21 pairings, a pair / both",
    ),
    (
        "filters.md",
        "answer all pairs together, in less time than masks take",
        "bench_contents / Encrypted tests / TagMatch / masked, s ÷ all, s",
    ),
]


@pytest.fixture(scope="module")
def program() -> Any:
    """benchmarks/figures.py, which imports its neighbours."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield runpy.run_path(str(BENCHMARKS / "figures.py"))
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_pages_name_figures_that_the_file_has(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len([*MEASURED["uses"](text)]) == len(re.findall(r"\{(?:figures?|machine)\}", text))


def test_the_file_has_the_benchmarks_that_pages_show_and_no_others(program: Any) -> None:
    assert len(program["SHOWN"]) > 10
    assert program["SHOWN"] == program["PROGRAMS"].keys() == MEASURED["load"]().keys()


@pytest.mark.parametrize(("page", "words", "name"), CLAIMS)
def test_what_pages_say_in_words_holds_for_the_figures(page: str, words: str, name: str) -> None:
    text = " ".join((DOCS / page).read_text("utf-8").split())
    assert text.count(words) == 1, f"{page} does not say {words!r}"
    assert MEASURED["value_of"](name) > 1, f"{page} says {words!r}: write this anew"


def test_readme_has_the_figures_of_the_file(program: Any) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert program["readme"](text) == text
    wrong = text.replace("1/40 of the bytes", "1/41 of\nthe bytes")
    assert program["readme"](wrong).replace("of\nthe bytes", "of the bytes") == text


def test_the_file_is_as_the_program_writes_it(program: Any) -> None:
    text = (DOCS / "figures.json").read_text("utf-8")
    entries = json.loads(text)
    assert program["text_of"](entries) == text
    assert program["text_of"](dict(reversed(entries.items()))) == text
    for name, entry in entries.items():
        assert entry["command"] == f"python {program['PROGRAMS'][name].relative_to(ROOT)}"
        assert entry["machine"]
        for table in entry["tables"].values():
            assert {len(cells) for cells in table["rows"].values()} == {len(table["columns"])}


def test_tables_record_what_they_print(tmp_path: Path, program: Any) -> None:
    record = tmp_path / "rows"
    command = [sys.executable, "-c", RECORDED, str(BENCHMARKS)]
    run = subprocess.run(
        command, check=True, capture_output=True, text=True, env={"CCBPS_FIGURES": str(record)}
    )
    assert run.stdout.split()[:5] == ["Messages", "side", "size", "ns", "how"]
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    tables = program["collected"](lines)
    rows = {"event": [73, 136.0, "measured"], "interest": [76, None, None]}
    assert tables == {"Messages": {"columns": ["size", "ns", "how"], "rows": rows}}
    with pytest.raises(ValueError, match=r"Messages.*'event'"):
        program["collected"]([*lines, lines[0]])
    kept, other = {"tables": tables}, {"tables": program["collected"](lines[:1])}
    assert program["differences"](kept, other) == []
    assert program["differences"](kept, other, whole=True) == [
        "Messages: no row 'interest' was printed"
    ]
    assert program["differences"](other, kept) == ["Messages: the file has no row 'interest'"]
    assert program["differences"](None, kept) == ["the file has no table 'Messages'"]


PROGRAM = """
import sys
sys.path.insert(0, {0!r})
from report import Table, options
options("A program.", quick="few")
Table("Times", {{"ns": ".1f"}}).row("one", {1})
"""


def test_a_run_writes_new_figures_and_keeps_those_of_programs_that_fail(
    tmp_path: Path, program: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    names, module = ("a", "b", "c"), program["main"].__globals__
    figures, readme = tmp_path / "figures.json", tmp_path / "README.md"
    for name, value in (
        ("BENCHMARKS", tmp_path / "benchmarks"),
        ("FIGURES", figures),
        ("README", readme),
        ("PROGRAMS", {name: tmp_path / "benchmarks" / f"{name}.py" for name in names}),
    ):
        monkeypatch.setitem(module, name, value)
    (tmp_path / "benchmarks").mkdir()
    for name, value in zip(names, ("1.23456", "1 / 0", "2.5"), strict=True):
        module["PROGRAMS"][name].write_text(PROGRAM.format(str(BENCHMARKS), value))
    readme.write_text((ROOT / "README.md").read_text("utf-8"), "utf-8")
    rows = {"Times": {"columns": ["ns"], "rows": {"one": [7.0]}}}
    old = {
        name: {"command": "old", "machine": "old", "tables": rows} for name in reversed(names[1:])
    }
    figures.write_text(json.dumps(old))
    for arguments in (["--quick", "--only", "a"], ["--only", "b", "a"]):
        monkeypatch.setattr(sys, "argv", ["figures.py", *arguments])
        with pytest.raises(SystemExit):
            program["main"]()
        if "--quick" in arguments:
            assert json.loads(figures.read_text()) == old
    out = capfd.readouterr().out
    assert "a: the file has no table 'Times'" in out
    assert "failed, old figures kept: b" in out
    new = json.loads(figures.read_text())
    assert [*new] == [*names]
    assert new["a"]["command"] == "python benchmarks/a.py"
    assert new["a"]["tables"]["Times"]["rows"] == {"one": [1.235]}
    assert new["a"]["seconds"] < 60
    assert "==> a: failed" not in out
    assert "==> b: failed" in out
    assert re.search(r"==> a: \d+ s; \d+ s in all", out)
    assert (new["b"], new["c"]) == (old["b"], old["c"])

    # A run that prints what the file has ends well; one that lacks a row keeps it, and says so.
    monkeypatch.setattr(sys, "argv", ["figures.py", "--only", "a"])
    program["main"]()
    new["a"]["tables"]["Times"]["rows"]["peer"] = [9.0]
    figures.write_text(json.dumps(new))
    capfd.readouterr()
    with pytest.raises(SystemExit):
        program["main"]()
    assert "==> differs: a: Times: no row 'peer' was printed" in capfd.readouterr().out
    again = json.loads(figures.read_text())
    new["a"]["seconds"] = again["a"]["seconds"]
    assert again == new


def test_a_run_keeps_rows_that_it_lacks(program: Any) -> None:
    """A peer that is not installed must not take its figures from the pages."""

    def entry(command: str, **tables: Any) -> Any:
        return {"command": command, "machine": command, "tables": tables}

    old = entry(
        "old",
        Times={"columns": ["ns", "us"], "rows": {"peer": [7.0, 8.0], "ours": [5.0, 6.0]}},
        Peers={"columns": ["ns"], "rows": {"peer": [9.0]}},
    )
    new = entry(
        "new", Times={"columns": ["ms", "ns"], "rows": {"ours": [1.0, 2.0], "more": [3, 4]}}
    )
    merged = program["merged"](old, new)
    assert merged == entry(
        "new",
        Times={
            "columns": ["ms", "ns"],
            "rows": {"peer": [None, 7.0], "ours": [1.0, 2.0], "more": [3, 4]},
        },
        Peers=old["tables"]["Peers"],
    )
    assert program["merged"](None, new) == new
    assert program["differences"](old, new, whole=True) == [
        "no table 'Peers' was printed",
        "Times: columns ['ns', 'us'] or ['ms', 'ns']",
        "Times: the file has no row 'more'",
        "Times: no row 'peer' was printed",
    ]


def test_figures_are_shown_with_the_digits_that_count() -> None:
    shown = MEASURED["shown"]
    assert [shown(value) for value in (73, 12_345, 0.0123456, 28.0, 43_012_345.0, None, "a")] == [
        "73", "12,345", "0.0123", "28.0", "43,000,000", "", "a"
    ]  # fmt: skip
    assert shown(43_012_345.0, "2") == "43,000,000"
    assert shown(189.0, "*0.001 2") == "0.19"
    assert shown(0.957, ".0%") == "96%"
    assert shown(1.474, ".1f") == "1.5"
    assert shown(0.0, "2") == "0.0"


@pytest.mark.parametrize(
    "name",
    [
        "bench_formula",
        "no_program / a / b / c",
        "bench_formula / no table / FormulaMatch / broker",
        "bench_formula / Box of 16+16+20 bits / no row / broker",
        "bench_formula / Box of 16+16+20 bits / FormulaMatch / no column",
        "bench_formula / Box of 16+16+20 bits / FormulaMatch / broker ÷ a / b / c / d / e",
        "bench_formula / Box of 16+16+20 bits / half-gates / broker",  # has no figure
    ],
)
def test_an_unknown_name_is_an_error(name: str) -> None:
    with pytest.raises(MEASURED["UnknownFigureError"]):
        MEASURED["figure"](name)


PAGE = """# A page

It takes
{{figure}}`bench_formula / Box of 16+16+20 bits / {0} / broker ÷ FormulaMatch / broker | .1f`.

```{{figures}} bench_formula / Box of 16+16+20 bits
:head: matcher
:columns: broker -> ns | .0f; publisher ÷ broker -> ratio | .1f

FormulaMatch -> `FormulaMatch`, $x y$
{0}
```

On {{machine}}`bench_formula`.
"""


@pytest.mark.slow
def test_a_page_shows_figures_and_an_unknown_name_fails_the_build(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(DOCS)!r})\n"
        "extensions = ['figures', 'myst_parser']\nmyst_enable_extensions = ['dollarmath']\n"
    )
    command = [sys.executable, "-m", "sphinx", "-W", "-E", "-q", "-b", "text"]
    for row, fails in (("NoMatch", True), ("BranchingMatch", False)):
        (tmp_path / "index.md").write_text(PAGE.format(row), "utf-8")
        run = subprocess.run(
            [*command, str(tmp_path), str(tmp_path / "out")],
            check=False,
            capture_output=True,
            text=True,
        )
        assert bool(run.returncode) == fails, run.stderr
        assert ("no row 'NoMatch'" in run.stderr) == fails
    text = " ".join((tmp_path / "out" / "index.txt").read_text("utf-8").split())
    entry = MEASURED["load"]()["bench_formula"]
    assert f"On {entry['machine']}" in text
    assert entry["command"] in text
    expected = MEASURED["figure"](
        "bench_formula / Box of 16+16+20 bits / BranchingMatch / broker ÷ FormulaMatch / broker"
        " | .1f"
    )
    assert f"It takes {expected}." in text
    assert re.search(r"BranchingMatch *\| *[\d,]+ *\| *\d+\.\d", text)


SLOW = {"bench_filters", "bench_flood", "bench_mqtt", "key_caching"}
SLOW |= {f"bench_{name}" for name in ("addressing", "scale", "stores")}
SLOW |= {"bench_spark", "bench_spark_prefilter"}
"""Programs that take a minute or more; `python benchmarks/figures.py --quick` compares all."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in MEASURED["load"]() if n not in SLOW])
def test_a_quick_run_prints_the_tables_of_the_file(name: str, program: Any) -> None:
    entry = program["run"](name, quick=True)
    assert entry is not None
    assert program["differences"](program["load"]().get(name), entry) == []
