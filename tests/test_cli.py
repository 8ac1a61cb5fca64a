"""The command line: every command, what it refuses, what it shows, and the story that help tells."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import Category, Decimal, Keyword, Schema, SharedSeed, Text, UInt
from ccbps.broker import MatchingBroker, Quota
from ccbps.cli import main
from ccbps.cli.console import obey
from ccbps.cli.metrics_page import metrics_page
from ccbps.cli.normal_text import normal_text
from ccbps.cli.payloads import open_payload, sealed_payloads
from ccbps.cli.program import COMMANDS
from ccbps.cli.publication_numbers import take_numbers
from ccbps.cli.schemas import read_schema
from ccbps.errors import CcbpsError, DecodeError, LedgerError, ParameterError
from ccbps.filters import FilterKey
from ccbps.keys import FileKey, RoleKey
from ccbps.keys.delivery_keys import BrokerState
from ccbps.matching import KeywordMatch, TagMatch, from_json
from ccbps.mqtt import LocalServer, MqttService, MqttUrl
from tests import strategies
from tests.effort import examples

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = {
    command.name: command.example.replace("\\\n", " ").splitlines() for command in COMMANDS
}
SCHEMA = 'issue=Category(["AAPL", "IBM"]), price=UInt(16)'

Shown = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands run where files may lie around."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(line: str) -> int:
    """A line of an example, in this process."""
    name, *arguments = shlex.split(line)
    assert name == "ccbps"
    return main(arguments)


def done(line: str, capsys: Shown) -> str:
    """What a line that succeeds prints."""
    capsys.readouterr()
    assert run(line) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(line: str, capsys: Shown) -> str:
    """What a line says that is in error: one line."""
    capsys.readouterr()
    assert run(line) == 2
    out, err = capsys.readouterr()
    assert out == "" or out.startswith("published ")
    assert err.startswith("ccbps: ")
    assert err.count("\n") == 1
    return err.removeprefix("ccbps: ").strip()


def secrets_in(folder: Path) -> set[str]:
    """Every secret that is in a file, and what it is made of."""
    found: set[str] = set()
    for path in folder.iterdir():
        if path.suffix in (".key", ".seed"):
            text = path.read_text().strip()
            found |= {text, text.partition(":")[2], text.partition(":")[2][:24]}
        elif path.suffix == ".password":
            found.add(path.read_text().strip())
    return found


# -- the story that help tells -------------------------------------------------------------------


def processes(line: str, port: int) -> list[str]:
    """The arguments of a real process for a line of an example, at a port that is free."""
    line = line.replace(":1883", f":{port}").replace("--local 1883", f"--local {port}")
    return [sys.executable, "-m", "ccbps", *shlex.split(line.replace(" --metrics 9100", ""))[1:]]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(stream: Any) -> str:
    """The next line; a test that waits for one that never comes is ended from outside."""
    return str(stream.readline())


def test_the_story_of_help_with_real_processes(
    folder: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, shown = free_port(), ""
    for name in ("explain", "check-predicate", "keygen"):
        for line in EXAMPLES[name]:
            if line.startswith("echo "):
                text, line = line.split(" | ")
                monkeypatch.setattr(sys, "stdin", io.StringIO(shlex.split(text)[1]))
            shown += done(line, capsys)
    assert "TagMatch over issue, price (17 bits)" in shown
    assert "means       issue = 'IBM' AND price <= 119" in shown
    assert "records     1 of 1 match" in shown

    # Everything that the others make is theirs alone; the matcher is public.
    private = {path.name for path in folder.iterdir() if not path.stat().st_mode & 0o077}
    assert {path.name for path in folder.iterdir()} - private == {"quotes.matcher"}

    (broker_line,), (subscribe_line,) = EXAMPLES["broker"], EXAMPLES["subscribe"]
    echoed, publish_line = EXAMPLES["publish"][0].split(" | ")
    record = shlex.split(echoed)[1] + "\n"
    with started(processes(broker_line, port)) as broker:
        shown += line_of(broker.stdout)
        assert "0 subscriptions" in shown
        with started(processes(subscribe_line, port)) as subscriber:
            shown += line_of(subscriber.stderr)
            with started(processes(publish_line, port)) as publisher:
                shown += "".join(publisher.communicate(record * 2))
                assert publisher.returncode == 0
            got = [line_of(subscriber.stdout) for _ in range(2)]
            subscriber.send_signal(signal.SIGINT)
            shown += "".join(subscriber.communicate())
            assert subscriber.returncode == 0
        broker.kill()  # nothing that was told is lost
        broker.wait()
    assert [json.loads(line) for line in got] == [
        {
            "publisher": "feed",
            "number": number,
            "subscriptions": ["subscription"],
            "record": json.loads(record),
        }
        for number in range(2)
    ]

    with started(processes(broker_line, port)) as broker:
        shown += line_of(broker.stdout)
        assert "1 subscriptions" in shown
        assert broker.stdin is not None
        # Numbers go on, and what matched waits.
        monkeypatch.setattr(sys, "stdin", io.StringIO(record))
        shown += done(publish_line.replace("1883", str(port)), capsys)
        go_on = subscribe_line.replace("1883", str(port)).replace(
            "\"issue = 'IBM' AND price < 120\"", "--count 1 --wait 20"
        )
        number = json.loads(done(go_on, capsys))["number"]
        assert number == 2
        for line in ("revoke alice", "revoke 'no one/'", "hello"):
            broker.stdin.write(f"{line}\n")
            broker.stdin.flush()
            shown += line_of(broker.stdout)
        assert "alice is shut out" in shown
        assert "error: client must be" in shown
        assert "error: a line is one of: revoke" in shown
        assert (
            refused(subscribe_line.replace("1883", str(port)), capsys) == "alice was revoked"
        )
        broker.send_signal(signal.SIGTERM)
        shown += "".join(broker.communicate())
        assert broker.returncode == 0
        assert shown.endswith("ended\n")
    assert len(secrets := secrets_in(folder)) > 15
    assert [secret for secret in secrets if secret in shown] == []
    assert "Traceback" not in shown
