"""filter, encode and match over files, against the plaintext meaning; one reader, one writer."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccbps import Category, Schema, UInt
from ccbps.cli import encode, files, records
from ccbps.cli.command import Option
from ccbps.cli.program import COMMANDS
from ccbps.cli.progress import progress
from ccbps.cli.records import RecordWriter, Table, message_rows, read_records
from ccbps.cli.rejecting import usable
from ccbps.errors import EventError
from tests.support.command_line import Shell

SCHEMA = "--schema " + shlex.quote('issue=Category(["AAPL", "IBM"]), price=UInt(8, nullable=True)')
FORMATS = ("csv", "jsonl", "parquet")
PREDICATES = {
    "cheap": "price < 100",
    "ibm": "issue = 'IBM' AND price > 50",
    "none": "price IS NULL",
}


def rows(count: int) -> list[dict[str, Any]]:
    """Records, some with text that formats must quote, and one field outside the schema."""
    random = np.random.default_rng(count)
    notes = ["", "a,b", 'say "it"', "two\nlines", "é\u2028ü"]
    return [
        {
            "issue": ["AAPL", "IBM"][random.integers(2)],
            "price": None if random.integers(9) == 0 else int(random.integers(256)),
            "note": notes[random.integers(len(notes))],
        }
        for _ in range(count)
    ]


def meets(name: str, row: dict[str, Any]) -> bool:
    price = row["price"]
    if name == "none":
        return price is None
    if price is None:
        return False
    return price < 100 if name == "cheap" else row["issue"] == "IBM" and price > 50


def write(path: str, some: list[dict[str, Any]]) -> None:
    """Write records with the standard library and pyarrow alone."""
    if path.endswith("csv"):
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*some[0]])
            writer.writeheader()
            writer.writerows(some)
    elif path.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(some), path, row_group_size=7)
    else:
        text = "".join(json.dumps(row) + "\n\n" for row in some)
        Path(path).write_text(text, encoding="utf-8")


def read(path: str) -> list[dict[str, Any]]:
    """Read records with the standard library and pyarrow alone; a missing price is None."""
    if path.endswith("parquet"):
        return list(pq.read_table(path).to_pylist())
    text = Path(path).read_bytes().decode()
    if path.endswith("csv"):
        some: list[dict[str, Any]] = [*csv.DictReader(io.StringIO(text, newline=""))]
        for row in some:
            for name in {"price", "round", "event"} & {*row}:
                row[name] = int(row[name]) if row[name] else None
        return some
    return [json.loads(line) for line in text.split("\n") if line]


@pytest.fixture(params=["blocks of few records", "one block"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "one block":
        monkeypatch.setattr(records, "CHUNK", 61)
        monkeypatch.setattr(records, "ROWS", 3)
        monkeypatch.setattr(files, "PAIRS", 5)
        monkeypatch.setattr(encode, "MESSAGES", 4)


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.usefixtures("sizes")
def test_filter_keeps_what_meets_the_predicate(shell: Shell, source: str, target: str) -> None:
    some = rows(60)
    write(f"q.{source}", some)
    for name, predicate in PREDICATES.items():
        kept = [row for row in some if meets(name, row)]
        line = f"ccbps filter {shlex.quote(predicate)} q.{source} {SCHEMA} --out {name}.{target}"
        told = json.loads(shell.done(f"{line} --json"))
        assert told == {"records": 60, "matches": len(kept), "rejected": 0}
        assert read(f"{name}.{target}") == kept


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.usefixtures("sizes")
def test_files_of_messages_match_as_their_records_do(shell: Shell, form: str) -> None:
    some = rows(20)
    write(f"q.{form}", some)
    wanted = [{"subscription": name, "predicate": text} for name, text in PREDICATES.items()]
    write(f"w.{form}", wanted)
    shell.done(f"ccbps explain {SCHEMA} --scheme TagMatch --out m")
    shell.make_role_keys(feed="publisher", alice="subscriber")
    told = shell.done(
        f"ccbps encode events q.{form} --matcher m --key feed.key --out e.{form}",
        f"ccbps encode interests w.{form} --matcher m --key alice.key --out i.{form}",
        f"ccbps match e.{form} i.{form} --matcher m --key broker.key --out p.{form}",
    )
    assert "20 messages of events" in told
    pairs = {(row["event"], row["subscription"]) for row in read(f"p.{form}")}
    assert pairs == {
        (n, name) for n, row in enumerate(some) for name in PREDICATES if meets(name, row)
    }
    assert f"{len(pairs)} of 60 pairs match; 20 events, 3 interests" in told
    assert isinstance(read(f"e.{form}")[0]["message"], bytes if form == "parquet" else str)


@pytest.mark.usefixtures("sizes")
def test_rounds_of_subscriptions_match_pair_by_pair(shell: Shell) -> None:
    some = rows(10)
    write("q.csv", some)
    labels = {name: f"alice/{name}" for name in PREDICATES}
    shell.done(
        f"ccbps explain {SCHEMA} --scheme FormulaMatch.box --out m",
        "ccbps keygen seed --out feed.seed",
    )
    for name, label in labels.items():
        predicate = PREDICATES[name].replace("price IS NULL", "issue = 'AAPL' OR price < 0")
        seed = f"ccbps keygen pair --master feed.seed --label {label} --out {name}.seed"
        shell.done(seed)
        shell.done(
            f"ccbps encode interests --predicate {shlex.quote(predicate)} --as {label} --matcher m "
            f"--key {name}.seed --ledger {name}.rounds --rounds 3:7 --out {name}.jsonl"
        )
    to = " ".join(f"--to {label}" for label in labels.values())
    events = f"ccbps encode events q.csv --matcher m --key feed.seed --ledger feed.rounds {to}"
    shell.done(f"{events} --out e.jsonl")
    told = json.loads(
        shell.done(
            "ccbps match e.jsonl cheap.jsonl ibm.jsonl none.jsonl --matcher m --out p.csv --json"
        )
    )
    # Of the 10 rounds of events, 7 have interests.
    assert told == {"events": 30, "interests": 21, "pairs": 21, "matches": len(read("p.csv"))}
    assert {(row["subscription"], row["round"]) for row in read("p.csv")} == {
        (labels[name], n)
        for n, row in enumerate(some)
        for name in labels
        if n >= 3 and (row["issue"] == "AAPL" if name == "none" else meets(name, row))
    }
    # Again the same, and never another event in a round.
    shell.done(f"{events} --out again.jsonl")
    assert Path("again.jsonl").read_text() == Path("e.jsonl").read_text()
    write("q.csv", rows(11))
    assert "was used for something else" in shell.refused(f"{events} --out other.jsonl")
    assert not Path("other.jsonl").exists()


@pytest.mark.usefixtures("sizes")
def test_a_broadcast_s_event_meets_all_interests_of_its_round(shell: Shell) -> None:
    some = rows(12)
    write("q.parquet", some)
    write("w.csv", [{"subscription": f"s{bound}", "limit": bound} for bound in (30, 90, 200)])
    shell.done(
        f"ccbps explain {SCHEMA} --scheme BroadcastMatch --template 'price < :limit' --out m",
        "ccbps keygen seed --out feed.seed",
    )
    common = "--matcher m --key feed.seed --ledger"
    shell.done(
        f"ccbps encode events q.parquet {common} feed.rounds --first 3 --out e.parquet",
        f"ccbps encode interests w.csv {common} alice.rounds --rounds 0:10 --out i.csv",
    )
    events, interests = read("e.parquet"), read("i.csv")
    assert [row["round"] for row in events] == [*range(3, 15)]
    assert len(interests) == 30
    shell.done("ccbps match e.parquet i.csv --matcher m --out p.jsonl")
    assert sorted((row["subscription"], row["round"]) for row in read("p.jsonl")) == sorted(
        (f"s{bound}", n + 3)
        for bound in (30, 90, 200)
        for n, row in enumerate(some)
        if n < 7 and row["price"] is not None and row["price"] < bound
    )


def test_rejected_records_are_named_with_reasons(shell: Shell) -> None:
    lines = ['{"issue":"IBM","price":1}', "[1]", '{"issue":"SAP","price":1}', '{"issue":"IBM"}']
    lines += [
        '{"issue":"IBM","price":"no"}',
        '{"issue":"AAPL","price":256}',
        '{"issue":"IBM","price":2}',
    ]
    Path("q.jsonl").write_text("\n".join(lines))
    line = f"ccbps filter TRUE q.jsonl {SCHEMA} --out"
    assert shell.refused(f"{line} o.jsonl") == "q.jsonl, line 2: not a JSON object"
    assert not Path("o.jsonl").exists()
    told = json.loads(shell.done(f"{line} o.jsonl --on-error reject --rejects r.jsonl --json"))
    assert told == {"records": 2, "matches": 2, "rejected": 5}
    assert Path("o.jsonl").read_text().splitlines() == [lines[0], lines[-1]]
    reasons = {row["record"]: row["reason"] for row in read("r.jsonl")}
    assert [*reasons] == [1, 2, 3, 4, 5]
    for number, reason in zip(
        range(2, 6), ("not in the list", "missing", "number", "range"), strict=True
    ):
        assert reason in reasons[number]
    _, errors = shell.run(f"{line} p.jsonl --on-error reject")
    Path("q.csv").write_text("issue,price\nIBM, 10\nIBM,1_0\nIBM,\uff11\nIBM,\n", "utf-8")
    told = json.loads(
        shell.done(f"ccbps filter TRUE q.csv {SCHEMA} --on-error reject --json --out c")
    )
    assert told == {"records": 2, "matches": 2, "rejected": 2}
    assert errors.count("is rejected: ") == 5
    assert "--rejects FILE needs" in shell.refused(f"{line} n.jsonl --rejects r")
    texts = ("price < 1", "price <", None, "x = 1")
    write("w.jsonl", [{"subscription": "a", "predicate": text} for text in texts])
    shell.done(f"ccbps explain {SCHEMA} --scheme TagMatch --out m")
    shell.make_role_keys(alice="subscriber")
    interests = "ccbps encode interests w.jsonl --matcher m --key alice.key --out i.csv"
    assert "record 2: predicate must be a text" in shell.refused(interests)
    assert "1 messages of interests; rejected 3" in shell.done(f"{interests} --on-error reject")


def test_what_is_no_file_of_messages_is_one_line(shell: Shell) -> None:
    shell.done(f"ccbps explain {SCHEMA} --scheme TagMatch --out m")
    shell.make_role_keys(feed="publisher", alice="subscriber")
    write("q.csv", rows(3))
    shell.done(
        "ccbps encode events q.csv --matcher m --key feed.key --out e.csv",
        "ccbps encode interests --predicate TRUE --matcher m --key alice.key --out i.csv",
    )
    head, first, *rest = Path("e.csv").read_text().splitlines()
    digit = "0" if first[-1] != "0" else "1"
    for path, line in {
        "short.csv": first[:-2],
        "letters.csv": first[:-1] + "z",
        "blank.csv": first[:-2] + "  ",
        "altered.csv": first[:-1] + digit,
    }.items():
        Path(path).write_text("\n".join([head, line, *rest]))
    Path("n.csv").write_text("a\n1\n")
    Path("twice.csv").write_text("a,a\n1,2\n")
    Path("no.parquet").write_bytes(b"PAR1 no")
    Path("bytes.csv").write_bytes(b"a\n\xff\n")
    match, filtered = "match {} i.csv --matcher m --key broker.key", f"filter TRUE {{}} {SCHEMA}"
    for line, said in {
        match.format("short.csv"): "bytes in hexadecimal",
        match.format("letters.csv"): "not hexadecimal",
        match.format("blank.csv"): "not hexadecimal",
        match.format("altered.csv"): "row 0",
        match.format("i.csv"): "bytes in hexadecimal",
        match.format("n.csv"): "no field 'message'",
        "match e.csv i.csv e.csv --matcher m --key broker.key": "interests, row 0",
        match.format("e.csv").replace("broker.key", "feed.key"): "key of a publisher",
        filtered.format("n.csv"): "'issue'",
        filtered.format("twice.csv"): "twice",
        filtered.format("no.parquet"): "not a Parquet file",
        filtered.format("bytes.csv"): "not a text in UTF-8",
        filtered.format("q.csv") + " --out e.csv": "e.csv: File exists",
        "filter 'price < :a' q.csv " + SCHEMA: "--value NAME=VALUE",
        "encode events q.csv --matcher m --key feed.key --to a/b": "--to LABEL",
        "encode interests --predicate TRUE --matcher m --key alice.key --rounds 0:1": "--rounds",
        "encode interests q.csv --matcher m --key alice.key": "no field 'subscription'",
        "encode interests q.csv --matcher m --key server.key": "wanted a subscriber's",
    }.items():
        assert said in shell.refused(f"ccbps {line}"), line


def test_a_slow_pipe_is_read_record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    for form, head, line in (("json", b"", b'{"a": %d}\n'), ("csv", b"a\n", b"%d\n")):
        end, start = os.pipe()
        with os.fdopen(end, "rb") as source, os.fdopen(start, "wb", buffering=0) as sink:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(source))
            blocks = read_records("-", form, Schema(a=UInt(8)))
            sink.write(head)
            for number in range(3):
                sink.write(line % number)
                block = next(block for block in blocks if len(block))
                assert block.column("a") == [number]
                assert [*block.numbers] == [number]


def test_standard_output_has_records_and_nothing_else(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = rows(9)
    write("q.parquet", some)
    content = Path("q.parquet").read_bytes()
    out = io.TextIOWrapper(io.BytesIO())
    for form in ("csv", "json", "parquet"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        out = io.TextIOWrapper(io.BytesIO())
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            line = f"ccbps filter TRUE - --format parquet {SCHEMA} --out-format {form}"
            assert shell.run(line)[1] == "ccbps: 9 of 9 records match\n"
        path = f"o.{form}"
        Path(path).write_bytes(out.buffer.getvalue())  # type: ignore[attr-defined]
        assert read(path) == some


@given(
    st.lists(
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=2, max_size=2
        ),
        min_size=1,
        max_size=5,
    )
)
@example([["", "\r"], ["\r0", "\n"], ["\r\n", '"\r"']])
def test_any_texts_come_back_from_every_format(cells: list[list[str]]) -> None:
    columns = {"a": [row[0] for row in cells], "b": [row[1] for row in cells]}
    for form in FORMATS:
        path = Path(f"t.{form}")
        path.unlink(missing_ok=True)
        with RecordWriter(str(path), {"jsonl": "json"}.get(form, form)) as writer:
            writer.write(Table(range(len(cells)), len(cells), columns))
        back = [row for block in read_records(str(path), None) for row in block.rows()]
        assert [[row["a"], row["b"]] for row in back] == cells


PIECES = st.sampled_from(
    [
        b"a,b\n",
        b"1,x\n",
        b'"1\n',
        b'""",',
        b"\xff",
        b"\x00",
        b'{"a":1,"b":"x"}\n',
        b"[" * 2000,
        b'{"a":1e99999999999999999999,"b":"x"}\n',
        b'{"a":' + b"9" * 5000 + b"}\n",
        b"{}\r\n",
    ]
)


@given(st.lists(PIECES | st.binary(max_size=5), max_size=6).map(b"".join), st.sampled_from(FORMATS))
@example(b'{"a":1e99999999999999999999,"b":"x"}', "jsonl")
def test_any_bytes_are_records_or_one_error(content: bytes, form: str) -> None:
    Path("f").write_bytes(content)
    form, schema = {"jsonl": "json"}.get(form, form), Schema(a=UInt(8), b=Category(["x"]))
    rejected: list[int] = []
    with contextlib.suppress(EventError):
        for block in read_records("f", form, schema, lambda number, _: rejected.append(number)):
            events, left = usable(block, schema, lambda number, _: rejected.append(number))
            assert len(events) == len(left)
            assert not {*left.numbers} & {*rejected}
    if form != "parquet":
        with contextlib.suppress(EventError):
            for block in read_records("f", form, schema):
                usable(block, schema, None)


def test_long_messages_come_back_from_csv() -> None:
    messages = np.arange(60_000, dtype=np.uint32).view(np.uint8).reshape(1, -1)
    with RecordWriter("m.csv", "csv") as writer:
        writer.write(Table([0], 1, {"message": messages}))
    (block,) = read_records("m.csv", None)
    assert (message_rows(block.column("message"), messages.shape[1], "m") == messages).all()


def test_values_of_json_lines_are_written_as_they_are() -> None:
    lines = ['{"a": 1.10, "b": null}', '{"a": 123456789012345678901234567890, "b": {"c": [1]}}']
    Path("a.jsonl").write_text("\n".join(lines))
    blocks = [*read_records("a.jsonl", None)]
    assert [text for block in blocks for text in block.texts()] == lines
    with RecordWriter("a.csv", "csv") as writer:
        for block in blocks:
            writer.write(block)
    assert Path("a.csv").read_text() == (
        'a,b\n1.10,\n123456789012345678901234567890,"{""c"":[1]}"\n'
    )


def test_a_bar_is_for_those_who_look(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def shown(terminal: io.StringIO, total: int | None) -> str:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress(total, "B") as advance:
            advance(4)
            advance(6)
        return terminal.getvalue()

    assert "0.00/10.0" in shown(Terminal(), 10)
    assert shown(Terminal(), None) == shown(io.StringIO(), 10) == ""
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert shown(Terminal(), 10) == ""


def test_commands_that_print_an_answer_print_it_as_json() -> None:
    def has_json(options: tuple[Any, ...]) -> bool:
        return any(isinstance(one, Option) and one.name == "--json" for one in options)

    for command in COMMANDS:
        for one in command.kinds or (command,):
            # The lines of subscribe are JSON anyway.
            assert has_json(one.options) == (command.name != "subscribe"), one.name


def test_parquet_s_extra_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    write("q.csv", rows(3))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for line in (f"filter TRUE q.parquet {SCHEMA}", f"filter TRUE q.csv {SCHEMA} --out o.parquet"):
        error = shell.refused(f"ccbps {line}")
        assert error == "the format Parquet needs pyarrow: pip install 'ccbps[arrow]'"
    shell.done(f"ccbps filter TRUE q.csv {SCHEMA} --out o.csv")


def test_a_missing_value_among_values_of_a_wrong_type_is_kept(shell: Shell) -> None:
    for form in ("jsonl", "parquet"):
        write(f"q.{form}", [{"issue": "IBM", "price": price} for price in (None, True, False)])
        told = shell.done(
            f"ccbps filter TRUE q.{form} {SCHEMA} --out o.{form} --on-error reject --json"
        )
        assert json.loads(told) == {"records": 1, "matches": 1, "rejected": 2}
        assert read(f"o.{form}") == [{"issue": "IBM", "price": None}]
