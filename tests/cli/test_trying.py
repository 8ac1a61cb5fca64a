"""``ccbps schema`` and ``ccbps try``: a CSV file of texts becomes a schema, and a match."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from ccbps import Schema
from ccbps.cli import trying
from ccbps.cli.program import main
from ccbps.predicates.written import schema_from_text

QUOTES = """day,issue,price,volume,note
2024-03-01,IBM,119.50,2500,
2024-03-01,AAPL,181.20,90000,a rumour
2024-03-04,IBM,121.00,900,
2024-03-05,IBM,118.75,4100,it's "big"
"""


@pytest.fixture
def quotes(tmp_path: Path) -> str:
    path = tmp_path / "quotes.csv"
    path.write_text(QUOTES)
    return str(path)


def test_a_schema_is_printed_as_other_commands_take_it(
    quotes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", quotes]) == 0
    report, _, pasted = capsys.readouterr().out.rpartition("\n\n")
    assert "volume: UInt(18), 18 bits" in report
    option, text = shlex.split(pasted)
    schema = schema_from_text(text)
    assert (option, [*schema]) == ("--schema", ["day", "issue", "price", "volume", "note"])
    assert schema["note"].nullable and not schema["price"].nullable


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        ("issue = 'IBM' AND price < 120", [0, 3]),
        ("price < 119 OR volume > 80000", [1, 3]),
        ("note IS NULL AND day >= '2024-03-02'", [2]),
    ],
)
def test_a_predicate_is_tried(
    predicate: str, rows: list[int], quotes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["try", quotes, predicate, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["matched"] == rows
    assert found["agrees_with_plaintext"] is True
    assert found["records"] == 4


def test_it_shows_what_the_broker_saw_and_the_next_command(
    quotes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "plan.png"
    schema = 'issue=Category(["AAPL", "IBM"]), volume=UInt(20)'
    call = ["try", quotes, "issue = 'AAPL'", "--schema", schema, "--plot", str(picture)]
    assert main(call) == 0
    printed = capsys.readouterr().out
    assert "broker      1 of 4 match" in printed
    assert "learns whether the event matches the predicate" in printed
    assert "plaintext   selects the same records" in printed
    assert "  2024-03-01, AAPL, 181.20, 90000, a rumour" in printed
    assert picture.stat().st_size > 5_000
    words = shlex.split(printed[printed.index("  ccbps plan") :].replace("\\\n", " "))
    assert words[:5] == ["ccbps", "plan", "issue = 'AAPL'", "--schema", schema]
    assert words[5:] == ["--events", "4", "--subscriptions", "100"]


@pytest.mark.parametrize("text", ["a", "it's", "it's $5", 'a "b"', 'it\'s "b"', "'!\\`"])
def test_what_is_quoted_is_read_back(text: str) -> None:
    assert shlex.split(trying._quoted(text)) == [text]


def test_no_match_and_no_records(
    quotes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["try", quotes, "price > 500"]) == 1
    assert "0 of 4 match" in capsys.readouterr().out
    empty = tmp_path / "empty.csv"
    empty.write_text("price,volume\n")
    assert main(["try", str(empty), "price > 500"]) == 2
    assert capsys.readouterr().err == f"ccbps: {empty} has no records\n"
    empty.write_text("price;volume\n1;2\n")
    assert main(["schema", str(empty)]) == 2
    assert "seems to have values with ';' between them" in capsys.readouterr().err


def test_a_schema_may_be_given(quotes: str, capsys: pytest.CaptureFixture[str]) -> None:
    schema = 'price=Decimal(0, 1000, "0.01")'
    assert main(["try", quotes, "price < 119", "--schema", schema, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"].startswith("price=Decimal(")
    assert Schema.suggest({"n": ["007", "12"]}).schema["n"].bits > 16  # a name, no number


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rows", "-1"], "--rows must be a whole number from 1"),
        (["--rows", "0"], "--rows must be a whole number from 1"),
        (["--rows", "99999999999999999999"], "--rows must be a whole number from 1"),
        (["--plot", "plan.xyz"], "--plot takes a file such as picture.png or picture.svg, got '"),
    ],
)
def test_bad_options_are_one_line(
    options: list[str], said: str, quotes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["try", quotes, "price < 119", *options]) == 2
    out, error = capsys.readouterr()
    assert out == "" and said in error and error.count("\n") == 1


def test_what_is_printed_does_not_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.csv"
    path.write_text("number,note\n1,\x1b[31mred\x07\n2,Größe\n")
    assert main(["try", str(path), "number < 9"]) == 0
    printed = capsys.readouterr().out
    assert "1, \\x1b[31mred\\x07" in printed and "2, Größe" in printed
    assert not {"\x1b", "\x07"} & {*printed}


def test_too_many_attributes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wide.csv"
    names = [f"c{place}" for place in range(200)]
    path.write_text(",".join(names) + "\n" + ",".join(["123456789"] * 200) + "\n")
    assert main(["try", str(path), "c1 < 100"]) == 2
    error = capsys.readouterr().err
    assert "over 200 attributes: pass a --schema" in error and error.count("\n") == 1
