"""Every example runs as a program, in a process of its own; and what one of them looks through.

In the session that other tests have, and on less data, they run in `tests/spark/test_examples.py`.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ccbps.wire import Kind, round_kind

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Enough data for every picture.
ARGUMENTS = {
    "bootstrap_then_match.py": [],
    "broker_network.py": ["--events", "300"],
    "hospital.py": ["--events", "300"],
    "mqtt_prefilter.py": [],
    "p3s.py": [],
    "three_brokers.py": ["--events", "600", "--subscribers", "60"],
    "three_brokers_spark.py": ["--events", "600", "--subscribers", "30", "--output", "."],
    "whole_story.py": ["--quotes", "60"],
    "hidden_predicates.py": ["--events", "1500", "--subscribers", "24"],
    "share_through_networks.py": ["--samples", "50", "--held", "300000", "--output", "."],
    "flights_336k.py": ["--months", "1", "--subscribers", "4", "--output", "."],
    # Killed at each moment, and each kind of its workers once.
    "stream_quotes.py": ["--events", "150", "--files", "30", "--kills", "15"],
    "stock_quotes.py": ["--events", "2000", "--subscribers", "30", "--output", "."],
}
# For so little data, Java's second compiler and its parallel collector take longer than they save.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

Running = dict[str, tuple[Path, subprocess.Popen[bytes]]]


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """All examples that are asked for, at once: they mostly wait for Spark to start."""
    names = {item.name for item in request.session.items}
    out: Running = {}
    for path in EXAMPLES:
        if f"test_example_runs[{path.name}]" not in names:
            continue
        folder = tmp_path_factory.mktemp(path.stem)
        with (folder / "stdout").open("w") as stdout, (folder / "stderr").open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, str(path), *ARGUMENTS[path.name]],
                cwd=folder,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "JDK_JAVA_OPTIONS": QUICK_JAVA,
                },
                stdout=stdout,
                stderr=stderr,
            )
        out[path.name] = folder, process
    yield out
    for _, process in out.values():
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", [path.name for path in EXAMPLES])
def test_example_runs(name: str, running: Running) -> None:
    folder, process = running[name]
    # All run at once, beside other tests.
    code = process.wait(timeout=1200)
    stdout, stderr = ((folder / stream).read_text() for stream in ("stdout", "stderr"))
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    assert "differences                          0" in stdout
    if name == "bootstrap_then_match.py":
        counts = dict(re.findall(r"^(\S.*?)  +(\d+) +\d+ +\d+$", stdout, re.MULTILINE))
        assert [int(count) for count in counts.values()] == [606, 42, 18]
        assert "162 fragments do not give their secret back" in stdout
        assert stderr == ""
    if name == "broker_network.py":
        assert "broker b was killed" in stdout
        assert re.search(r"deliveries +(\d+)   meant: \1\nof them twice +0$", stdout, re.MULTILINE)
        for what in ("entries in tables", "quotes between brokers"):
            found = re.search(rf"{what} +([\d,]+)   flooding: ([\d,]+)", stdout)
            assert found is not None
            ours, flooding = (int(text.replace(",", "")) for text in found.groups())
            assert ours < flooding
        # Four subscribers of the second part, and quotes for most of them.
        rows = re.findall(r"(?:one-time|three brokers)  .* (\d+) +(\d+)$", stdout, re.MULTILINE)
        assert len(rows) == 4
        assert sum(int(got) for got, _ in rows) > 10
        assert stderr == ""
    if name == "hospital.py":
        assert "route of alerts    clinic-1 -> carrier-1 -> registry-1" in stdout
        assert "route of oncology  clinic-1 -> clinic-2 -> registry-2 -> registry-1" in stdout
        for reason in ("bob  refused, bob was revoked", "eva  refused, eva was revoked",
                       "rita refused, the owner's rule 'no minors' denies it"):  # fmt: skip
            assert re.search(rf"^ *[1-9]\d*  {reason}$", stdout, re.MULTILINE), reason
        seen = re.findall(r"^\S+-\d +(\d+) alerts, (\d+) readable", stdout, re.MULTILINE)
        assert [int(count) for count, _ in seen] == [300, 203, 300, 97, 97]
        assert {readable for _, readable in seen} == {"0"}
        assert stderr == ""
    if name == "p3s.py":
        assert "The authority saw 8 predicates and no event" in stdout
        assert "given to: 8 subscribers, all of them" in stdout
        assert "policy: desk=1 OR level[0]=1" in stdout
        assert re.search(r"in common: (\d+), .*\n +\1 in plaintext, \1 of them", stdout)
        assert stderr == ""
    if name == "share_through_networks.py":
        assert "235 networks, 400 secrets each" in stdout
        assert (folder / "networks.png").stat().st_size > 10_000
    if name == "stream_quotes.py":
        kills = dict(re.findall(r"^killed (.*?) +(\d+)$", stdout, re.MULTILINE))
        # On a busy machine the ledger's writer may be through before it is stopped, and the program
        # may fail by itself at the moment of a kill.
        assert kills.pop("of the ledger, its writer") in ("0", "1")
        assert len(kills) == 14 and [*kills.values()].count("1") >= 12
        assert "with one content each, but 0" in stdout
        assert "failed by itself and started again" in stdout
    if name == "stock_quotes.py":
        sizes = re.search(r"bytes written +([\d,]+) +announced: ([\d,]+)", stdout)
        assert sizes is not None
        wrote, said = (int(text.replace(",", "")) for text in sizes.groups())
        assert 0.8 < said / wrote < 1.25
        strategy = re.search(r"build-up +([\d,]+) +chosen: ([\d,]+) counted", stdout)
        assert strategy is not None
        assert strategy[1] == strategy[2]
        assert "| the subscriber read" in stdout
        assert (folder / "matches.png").stat().st_size > 10_000
        rate = r" +[\d,]+ \( *[\d.]+ s\)"
        for stage in ("encode events", "encode interests", "match"):
            assert re.search(rf"^{stage}{rate}{rate}$", stdout, re.MULTILINE), stage
        # Without a terminal there is no bar, and what Spark's workers print is in a file.
        assert stderr == ""
        assert "TransformWithState" in (folder / "clients.log").read_text()


@pytest.mark.spark
def test_stock_quotes_refuses_a_number_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(sys, "argv", ["stock_quotes.py"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("stock_quotes").parse(["--events", "-5"])
    assert ended.value.code == 2
    said = "stock_quotes.py: --events must be at least 2, got -5\n"
    assert capsys.readouterr() == ("", said)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_stock_quotes_ends_with_ctrl_c_in_one_line(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "stock_quotes.py"), "--output", str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        start_new_session=True,
        # A run in the background of a shell ignores the signal, and so would the program.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    logs = [tmp_path / "clients.log", tmp_path / "broker.log"]
    while not all(log.exists() and log.stat().st_size for log in logs):  # Java speaks
        assert process.poll() is None
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.communicate() == (None, "stopped\n")
    assert process.returncode == 1


@pytest.fixture
def quotes_example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example whose program is killed, as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("stream_quotes")


def write_message(path: Path, example: Any, content: int, column: str = "event_message") -> None:
    """A table with one message of a pair and round."""
    kind = Kind.EVENT if column == "event_message" else Kind.INTEREST
    width = example.MATCHER.event_bytes if kind == Kind.EVENT else example.MATCHER.interest_bytes
    message = bytes([round_kind(kind), content]) + bytes(width - 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"subscription": ["subscriber-0000"], "round": [7], column: [message]})
    pq.write_table(table, path, compression="none")


@pytest.mark.spark
@pytest.mark.parametrize("column", ["event_message", "interest_message"])
@pytest.mark.parametrize("name", ["messages/part-1.parquet", "messages/_temporary/0/part", "else"])
def test_stream_quotes_finds_two_contents_in_whatever_file(
    quotes_example: Any, tmp_path: Path, name: str, column: str
) -> None:
    write_message(tmp_path / "messages" / "part-0.parquet", quotes_example, 0, column)
    write_message(tmp_path / name, quotes_example, 1, column)
    assert quotes_example.contents(tmp_path) == (2, 1, 1, 0, 0)


@pytest.mark.spark
@pytest.mark.parametrize("content", [0, 1])
def test_stream_quotes_compares_messages_in_a_file_that_was_cut_off(
    quotes_example: Any, tmp_path: Path, content: int
) -> None:
    write_message(tmp_path / "part-0.parquet", quotes_example, 0)
    cut = tmp_path / "part-1.parquet"
    write_message(cut, quotes_example, content)
    cut.write_bytes(cut.read_bytes()[:-1])
    assert quotes_example.contents(tmp_path) == (2, 1, content, 0, 1)


@pytest.mark.spark
def test_stream_quotes_counts_files_that_a_kill_left_empty(
    quotes_example: Any, tmp_path: Path
) -> None:
    (tmp_path / "part-0.parquet").touch()
    assert quotes_example.contents(tmp_path) == (0, 0, 0, 1, 0)


def program(example: Any, folder: Path, code: str) -> Any:
    found = example.Program(folder, folder, "0" * 32, 1)
    found.call = [sys.executable, "-S", "-c", code]
    return found


@pytest.mark.spark
def test_stream_quotes_gives_up_on_a_program_that_gets_nowhere(
    quotes_example: Any, tmp_path: Path
) -> None:
    failing = program(quotes_example, tmp_path, "raise SystemExit('broken')")
    with pytest.raises(SystemExit, match=re.escape(str(tmp_path / "log"))):
        failing.finish()
    assert failing.failures == 3
    assert (tmp_path / "log").read_text() == "broken\n" * 4


@pytest.mark.spark
def test_stream_quotes_starts_a_program_again_as_long_as_it_gets_on(
    quotes_example: Any, tmp_path: Path
) -> None:
    commits = tmp_path / "checkpoint-messages" / "commits"
    commits.mkdir(parents=True)
    code = f"""
from pathlib import Path
found = len(list(Path({str(commits)!r}).iterdir()))
Path({str(commits)!r}, str(found)).touch()
if found < 6:
    raise SystemExit("connection lost")
Path({str(tmp_path)!r}, "through").touch()
"""
    failing = program(quotes_example, tmp_path, code)
    failing.finish()
    assert failing.failures == 6


@pytest.mark.spark
def test_stream_quotes_counts_no_failure_of_a_program_that_ends_as_it_is_looked_at(
    quotes_example: Any, tmp_path: Path
) -> None:
    class Ending:
        pid = 1 << 30  # of no process

        def poll(self) -> int:
            (tmp_path / "through").touch()
            return 0

    ending = program(quotes_example, tmp_path, "raise SystemExit('started again')")
    ending._process = Ending()
    ending.finish()
    assert ending.failures == 0


@pytest.mark.spark
def test_stream_quotes_lets_a_writer_go_that_it_did_not_catch(
    quotes_example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "ledger")) as ledger:
        ledger.execute("CREATE TABLE rounds (pair)")
    # It waits for the ledger's lock, writes nothing, and goes on.
    code = f"""
import pathlib, sqlite3, time
while not pathlib.Path({str(tmp_path)!r}, "locked").exists():
    time.sleep(0.01)
ledger = sqlite3.connect({str(tmp_path / "ledger")!r}, timeout=60, isolation_level=None)
ledger.execute("BEGIN IMMEDIATE")
ledger.execute("COMMIT")
ledger.close()
pathlib.Path({str(tmp_path)!r}, "through").touch()
"""
    writing = program(quotes_example, tmp_path, code)
    (tmp_path / "started").touch()
    gate = quotes_example.locked(writing)
    (tmp_path / "locked").touch()
    monkeypatch.setattr(quotes_example, "workers_of", lambda session: [session])
    assert quotes_example.kill_writer(writing, gate) == 0
    writing.finish()
    assert writing.failures == 0
