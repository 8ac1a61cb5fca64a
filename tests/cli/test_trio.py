"""Three brokers as commands: operators' and clients' keys, the services, a round trip."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from ccbps.cli.program import main
from tests.support.three_brokers import free_ports

PEERS = "--peers zero.operator one.operator two.operator"
SCHEMA = '--schema \'issue=Category(["AAPL", "IBM"]), price=UInt(16)\''


def run(line: str) -> int:
    return main(shlex.split(line)[1:])


@contextmanager
def started(line: str, text: str | None = None) -> Iterator[Any]:
    command = [sys.executable, "-m", "ccbps", *shlex.split(line)[1:]]
    process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make all keys in a folder of their own, and return a free port."""
    monkeypatch.chdir(tmp_path)
    first = free_ports(7)
    for place, name in enumerate(("zero", "one", "two")):
        line = f"ccbps keygen operator --address 127.0.0.1:{first + 2 * place}"
        assert run(f"{line} --public {name}.operator --out {name}.key") == 0
    for name in ("alice", "feed"):
        line = f"ccbps keygen client --operators {PEERS.removeprefix('--peers ')}"
        assert run(f"{line} --out {name}.key") == 0
        assert run(f"ccbps keygen password --name {name} --users users --out {name}.password") == 0
    assert run("ccbps keygen seed --out payloads.seed") == 0
    assert run(f"ccbps explain {SCHEMA} --scheme ThreeBrokerMatch.box --out m") == 0
    return first + 6


@pytest.mark.slow
def test_three_brokers_serve_clients(keys: int) -> None:
    at = f"--matcher m --url mqtt://127.0.0.1:{keys}"
    alice = f"{at} --key alice.key --name alice --password-file alice.password"
    feed = f"{at} --key feed.key --name feed --password-file feed.password"
    serve = {
        n: f"ccbps trio serve --party {n} --key {name}.key {PEERS} --matcher m --file {name}.db"
        for n, name in enumerate(("zero", "one", "two"))
    }
    with ExitStack() as stack:
        zero = stack.enter_context(started(f"{serve[0]} --local {keys} --users users"))
        assert zero.stdout.readline() == "waiting for brokers 1 and 2\n"
        others = [stack.enter_context(started(serve[n])) for n in (1, 2)]
        assert zero.stdout.readline().startswith("MatchingBroker of <ThreeBrokerMatch box")
        for n, other in enumerate(others, 1):
            assert other.stdout.readline().startswith(f"broker {n} of <ThreeBrokerMatch box")
        wanted = "issue = 'IBM' AND price < 120"
        line = f'ccbps subscribe "{wanted}" {alice} --open payloads.seed --count 2 --wait 60'
        with started(line) as subscriber:
            assert subscriber.stderr.readline() == "ccbps: subscribed as subscription\n"
            others[0].kill()  # and it comes back, with its file
            others[0].wait()
            again = stack.enter_context(started(serve[1]))
            assert again.stdout.readline().startswith("broker 1 of")
            rows = [("IBM", 119), ("IBM", 121), ("AAPL", 1), ("IBM", 7)]
            records = "".join(json.dumps({"issue": i, "price": p}) + "\n" for i, p in rows)
            Path("records.jsonl").write_text(records)
            line = f"ccbps publish records.jsonl {feed} --seal payloads.seed --state s --timeout 60"
            with started(line) as publisher:
                assert publisher.communicate()[0] == "published 4\n"
            got = [json.loads(line) for line in subscriber.communicate()[0].splitlines()]
        assert [(one["number"], one["record"]["price"]) for one in got] == [(0, 119), (3, 7)]
        for process in (zero, again, others[1]):
            process.send_signal(signal.SIGTERM)
            assert process.communicate()[0].endswith("ended\n") and process.returncode == 0
    for name in ("zero", "one", "two"):
        assert Path(f"{name}.db").stat().st_mode & 0o77 == 0


@pytest.fixture
def authority(keys: int) -> int:
    """Make the files of an authority, and return a free port."""
    made = f"{SCHEMA} --scheme ThreeBrokerMatch.box --option grants=true --out g"
    assert run(f"ccbps explain {made}") == 0
    line = f"ccbps keygen client --operators {PEERS.removeprefix('--peers ')} --out authority.key"
    assert run(line) == 0
    word = "ccbps keygen password --name authority --users users --out authority.password"
    assert run(word) == 0
    public = "ccbps keygen public --matcher g"
    assert run(f"{public} --key authority.key --authority --out authority.public") == 0
    assert run(f"{public} --key alice.key --out alice.public") == 0
    return keys


@pytest.mark.slow
def test_an_authority_grants(authority: int) -> None:
    at = f"--matcher g --url mqtt://127.0.0.1:{authority}"

    def client(name: str) -> str:
        return f"{at} --key {name}.key --name {name} --password-file {name}.password"

    serve = {
        n: f"ccbps trio serve --party {n} --key {name}.key {PEERS} --matcher g --file {name}.db "
        "--authority authority.public"
        for n, name in enumerate(("zero", "one", "two"))
    }

    def grant(text: str) -> Any:
        return started(f"ccbps grant {text} --to alice.public {client('authority')} --json")

    with ExitStack() as stack:
        zero = stack.enter_context(started(f"{serve[0]} --local {authority} --users users"))
        for n in (1, 2):
            other = stack.enter_context(started(serve[n]))
            assert other.stdout.readline().startswith(f"broker {n} of")
        assert zero.stdout.readline() == "waiting for brokers 1 and 2\n"
        assert zero.stdout.readline().startswith("MatchingBroker of")
        line = f'ccbps subscribe "price < 1000" {client("alice")}'
        with started(line) as subscriber:
            assert "has no grant: the authority sends one first" in subscriber.communicate()[1]
            assert subscriber.returncode == 2
        numbers = []
        for text, prices in (('"price < 100"', (99, 100)), ("--nothing", (5,))):
            with grant(text) as giver:
                told = json.loads(giver.communicate()[0])
            numbers.append(told["number"])
            assert len(told["clients"]) == 1
            if text.startswith("-"):
                line = f"ccbps subscribe {client('alice')}"
            wait = 3 if text.startswith("-") else 60  # one comes, or none
            with started(f"{line} --count 1 --wait {wait}") as subscriber:
                if not text.startswith("-"):
                    assert subscriber.stderr.readline().startswith("ccbps: subscribed")
                records = "".join(json.dumps({"issue": "IBM", "price": p}) + "\n" for p in prices)
                Path("records.jsonl").write_text(records)
                with started(
                    f"ccbps publish records.jsonl {client('feed')} --empty --state s"
                ) as feed:
                    assert feed.communicate()[0] == f"published {len(prices)}\n"
                got = [
                    json.loads(one)["number"]
                    for one in subscriber.communicate()[0].split("\n")[:-1]
                ]
            assert got == ([0] if prices[0] == 99 else [])
        assert numbers[0] < numbers[1]
        with grant(f'"price < 7" --number {numbers[0]}') as giver:
            assert "comes after grant" in giver.communicate()[1] and giver.returncode == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("trio serve --party 1 --key one.key --matcher g", "know no authority"),
        (
            "trio serve --party 1 --key one.key --matcher m --authority authority.public",
            "demands no grants",
        ),
        (
            "trio serve --party 1 --key one.key --matcher g --authority alice.public",
            "not the public side of an authority",
        ),
        ("keygen public --key alice.key --matcher m --authority --out p", "demands no grants"),
        ("keygen public --key one.key --matcher g --out p", "ClientKey"),
        ("grant x --to authority.public --matcher g --key authority.key", "not the public side"),
        ("grant x --to other.public --matcher g --key authority.key", "another matcher"),
        ("grant x --to alice.public --matcher m --key authority.key", "demands no grants"),
        ("grant --to alice.public --matcher g --key authority.key", "required"),
        ("grant x --nothing --to alice.public --matcher g --key authority.key", "not allowed"),
    ],
)
def test_errors_about_grants_are_one_line(
    authority: int, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert run("ccbps keygen public --key alice.key --matcher m --out other.public") == 0
    capsys.readouterr()
    more = {"trio": PEERS, "grant": "--url mqtt://127.0.0.1:1 --name authority"}
    assert run(f"ccbps {line} {more.get(line.split()[0], '')}") == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1, error


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("trio serve --party 1 --key one.key --matcher pairs", "run ccbps broker"),
        ("trio serve --party 1 --key two.key --matcher m", "not that of the operator of broker 1"),
        ("trio serve --party 1 --key alice.key --matcher m", "OperatorKey"),
        ("trio serve --party 0 --key zero.key --matcher m", "--url or --local"),
        ("trio serve --party 1 --key one.key --matcher m --local 0", "for broker 0"),
        ("trio serve --party 1 --key one.key --matcher m --workers 0", "workers"),
        ("broker --matcher m --local 0 --users users", "run ccbps trio serve"),
        ("keygen client --operators one.operator one.operator users --out k", "operator"),
        ("keygen client --operators one.operator one.operator two.operator --out k", "different"),
        ("keygen operator --address nowhere --public p --out k", "host:port"),
        ("subscribe x --matcher m --key one.key --url mqtt://h --name a", "ClientKey"),
    ],
)
def test_errors_are_one_line(
    keys: int, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert run(f"ccbps explain {SCHEMA} --scheme FormulaMatch.box --out pairs") == 0
    capsys.readouterr()
    assert run(f"ccbps {line} {PEERS if line.startswith('trio') else ''}") == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1, error
