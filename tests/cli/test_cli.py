"""The command line: the story that help tells, with real processes, and what each command does."""

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
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ccbps import Category, Keyword, Schema, SharedSeed, UInt
from ccbps.broker import MatchingBroker, Quota, Subscription
from ccbps.broker.metrics import metrics_page
from ccbps.cli import main
from ccbps.cli.console import obey
from ccbps.cli.normal_text import normal_text
from ccbps.cli.payloads import open_payload, sealed_payloads
from ccbps.cli.program import COMMANDS
from ccbps.cli.publication_numbers import take_numbers
from ccbps.cli.schemas import read_schema
from ccbps.errors import DecodeError, LedgerError
from ccbps.keys import FileKey, RoleKey
from ccbps.matching import KeywordMatch, Matcher, TagMatch, from_json
from ccbps.matching.contract.scheme import Answers
from ccbps.mqtt import LocalServer, MqttService, MqttUrl
from tests.support import strategies

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {command.name: command.example.replace("\\\n", " ").splitlines() for command in COMMANDS}
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
    """What a line says that is in error: one line, beside those that warn of a weak scheme."""
    capsys.readouterr()
    assert run(line) == 2
    lines = capsys.readouterr().err.splitlines()
    (said,) = [line for line in lines if not line.startswith("ccbps: warning: ")]
    assert said.startswith("ccbps: ")
    return said.removeprefix("ccbps: ")


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
    # A shell lets what is in the background ignore Ctrl-C, and so would what that starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )
    signal.signal(signal.SIGINT, before)
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
        assert refused(subscribe_line.replace("1883", str(port)), capsys) == "alice was revoked"
        broker.send_signal(signal.SIGTERM)
        shown += "".join(broker.communicate())
        assert broker.returncode == 0
        assert shown.endswith("ended\n")
    assert len(secrets := secrets_in(folder)) > 15
    assert [secret for secret in secrets if secret in shown] == []
    assert "Traceback" not in shown


HEARS = """
import signal, threading, time
from ccbps.cli.signals import ended_by_signals

def tell():
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

with ended_by_signals() as ended:
    for _ in range(2):
        threading.Thread(target=tell).start()
        ended.wait()
    signal.raise_signal(signal.SIGINT)
    ended.wait()
print("ended")
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="of POSIX")
def test_a_signal_that_another_thread_gets_ends_a_server() -> None:
    call = [sys.executable, "-c", HEARS]
    heard = subprocess.run(call, capture_output=True, text=True, timeout=60)
    assert (heard.stdout, heard.stderr) == ("ended\n", "")


EARLY = """
import signal
from ccbps.cli.signals import ended_by_signals

install = signal.signal

def early(number, handler):
    before = install(number, handler)
    signal.raise_signal(number)
    return before

signal.signal = early
with ended_by_signals() as ended:
    signal.signal = install
    ended.wait()
print("ended")
"""


def test_a_signal_that_comes_while_it_is_being_listened_for_is_heard() -> None:
    heard = subprocess.run(
        [sys.executable, "-c", EARLY], capture_output=True, text=True, timeout=60
    )
    assert (heard.stdout, heard.stderr) == ("ended\n", "")


# -- explain and check-predicate -----------------------------------------------------------------


def test_explain_proposes_makes_and_reads_matchers(folder: Path, capsys: Shown) -> None:
    schema = shlex.quote(SCHEMA)
    listed = done(f"ccbps explain --schema {schema} --for \"issue = 'IBM' AND price < 9\"", capsys)
    assert listed.splitlines()[0].startswith("event bytes")
    # What is broken comes last.
    broken = ["broken" in line for line in listed.splitlines()[1:]]
    assert broken == sorted(broken)
    assert any(broken)
    option = "--option 'topic=[\"issue\"]'"
    told = done(f"ccbps explain --schema {schema} --scheme TagMatch {option} --out m", capsys)
    made = from_json((folder / "m").read_text())
    assert made == TagMatch(read_schema(SCHEMA), topic=["issue"])
    assert made.explain() in told
    assert done("ccbps explain --matcher m", capsys).strip() == made.explain().strip()
    hidden = done(
        f"ccbps explain --schema {schema} --scheme FormulaMatch --template 'price < :limit'", capsys
    )
    assert "FormulaMatch" in hidden
    assert "limit" in hidden


@given(strategies.schemas())
def test_schemas_are_read_as_python_shows_them(schema: Schema) -> None:
    for text in (repr(schema), repr(schema).removeprefix("Schema(")[:-1], schema.to_json()):
        assert read_schema(text) == schema


@given(st.data())
def test_normal_texts_mean_what_the_predicate_means(data: st.DataObject) -> None:
    schema = data.draw(strategies.schemas().filter(lambda s: not _has_words(s)))
    predicate = schema.parse(data.draw(strategies.predicates(schema, private=False)).text)
    events = schema.encode([strategies.record(row) for row in data.draw(strategies.rows(schema))])
    again = schema.parse(normal_text(predicate, 10**6))
    assert again.evaluate(events).tolist() == predicate.evaluate(events).tolist()


def _has_words(schema: Schema) -> bool:
    return any(isinstance(schema[name], Keyword) for name in schema)


def test_check_predicate_counts_what_matches(folder: Path, capsys: Shown) -> None:
    (folder / "quotes.csv").write_text("issue,price,note\nIBM,119,a\nIBM,121,b\nAAPL,3,c\n")
    rows = ['{"issue": "IBM", "price": 3}', "", '{"issue": "AAPL", "price": 4}']
    (folder / "quotes.json").write_text("\n".join(rows))
    schema, checked = f"--schema {shlex.quote(SCHEMA)}", "ccbps check-predicate"
    said = done(f"{checked} 'price < 120' {schema} --records quotes.csv", capsys)
    assert "means       price <= 119" in said
    assert "records     2 of 3 match" in said
    said = done(f"{checked} 'price < 4' {schema} --records quotes.json", capsys)
    assert "records     1 of 2 match" in said
    bound = f"{checked} 'price < :top' {schema} --value top=120 --records quotes.csv"
    assert "records     2 of 3 match" in done(bound, capsys)
    said = done(f"{checked} 'price < :top' {schema}", capsys)
    assert "template    private constants :top" in said
    (folder / "wanted").write_text("price < 10 AND price > 10")
    assert "no event at all" in done(f"{checked} @wanted {schema}", capsys)
    assert run(f"{checked} 'price <' {schema}") == 1
    assert "^" in capsys.readouterr().err


# -- keygen --------------------------------------------------------------------------------------


def test_keys_are_the_library_s_and_files_their_owner_s(folder: Path, capsys: Shown) -> None:
    done("ccbps keygen seed --out feed.seed", capsys)
    done("ccbps keygen pair --master feed.seed --label alice/cheap --out alice.seed", capsys)
    master = FileKey("feed.seed").load()
    assert isinstance(master, SharedSeed)
    assert FileKey("alice.seed").load() == master.pair("alice/cheap")
    done("ccbps keygen ledger --master feed.seed --out ledger.key", capsys)
    assert FileKey("ledger.key").load() == master.ledger_key()
    done("ccbps keygen filter --out topics.key", capsys)
    done("ccbps keygen password --name alice --users users --out alice.password", capsys)
    done("ccbps keygen password --name bob --users users --out bob.password", capsys)
    users = json.loads((folder / "users").read_text())
    assert users == {
        name: (folder / f"{name}.password").read_text().strip() for name in ("alice", "bob")
    }
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for line in ("seed --out feed.seed", "password --name carol --users users --out bob.password"):
        assert "is there already" in refused(f"ccbps keygen {line}", capsys)
    assert "alice has a password" in refused(
        "ccbps keygen password --name alice --users users --out new", capsys
    )
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    shown = done("ccbps keygen seed --print", capsys)
    assert SharedSeed.from_text(shown.strip())


def test_a_key_server_s_file_follows_what_it_gave_and_ended(folder: Path, capsys: Shown) -> None:
    matcher = KeywordMatch(Schema(word=Category(["a", "b"])), group="toy64")
    (folder / "m").write_text(matcher.to_json())
    done("ccbps keygen server --matcher m --out server.key", capsys)
    given = "--matcher m --server server.key"
    for role, name in (("publisher", "feed"), ("subscriber", "alice"), ("subscriber", "bob")):
        done(f"ccbps keygen {role} {given} --name {name} --out {name}.key", capsys)
    done(f"ccbps keygen broker {given} --out broker.key", capsys)
    roles = {
        name: RoleKey.from_text((folder / f"{name}.key").read_text().strip())
        for name in ("feed", "alice", "broker")
    }
    interests = matcher.subscriber(roles["alice"]).encode("word = 'a'")
    events = matcher.publisher(roles["feed"]).encode([{"word": "a"}, {"word": "b"}])
    answers = matcher.broker(roles["broker"]).match_all(events, interests)
    assert answers.tolist() == [[True], [False]]
    line = done(f"ccbps keygen revoke {given} --role subscriber --name alice", capsys).strip()
    broker = MatchingBroker(matcher.broker(roles["broker"]))
    assert obey(broker, line) == "alice is shut out"
    assert "revoked" in refused(f"ccbps keygen subscriber {given} --name alice --out again", capsys)
    assert not (folder / "again").exists()
    done(f"ccbps keygen rotate {given}", capsys)
    done(f"ccbps keygen broker {given} --out broker2.key", capsys)
    later = RoleKey.from_text((folder / "broker2.key").read_text().strip())
    with pytest.raises(DecodeError, match="another key epoch"):
        matcher.broker(later).match_all(events, interests)


# -- what is sent --------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=4), st.integers(0, 2**40))
def test_payloads_open_under_their_seed_and_number(payloads: list[bytes], first: int) -> None:
    seed = SharedSeed(bytes(32))
    numbers = range(first, first + len(payloads))
    for number, payload, sealed in zip(
        numbers, payloads, sealed_payloads(seed, payloads, numbers), strict=True
    ):
        assert open_payload(seed, sealed, number) == payload
        for key, other in ((SharedSeed(bytes([1] * 32)), number), (seed, number + 1)):
            with pytest.raises(DecodeError):
                open_payload(key, sealed, other)
        for cut in (b"", sealed[:20], sealed[:-1]):
            with pytest.raises(DecodeError):
                open_payload(seed, cut, number)


def test_numbers_are_taken_once_by_many_threads(folder: Path) -> None:
    taken: list[int] = []

    def take() -> None:
        for _ in range(5):
            taken.extend(take_numbers("state", "feed", 3))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [*range(60)]
    assert take_numbers("state", "other", 2) == range(2)
    assert take_numbers("state", "feed", 1, first=100) == range(100, 101)
    assert take_numbers("state", "feed", 1) == range(101, 102)
    (folder / "no state").write_text("text" * 1000)
    with pytest.raises(LedgerError, match="cannot be used"):
        take_numbers("no state", "feed", 1)


@contextmanager
def served(
    matcher: Matcher, key: Path | None, **options: Any
) -> Iterator[tuple[str, MatchingBroker]]:
    """A broker behind a server in this process."""
    names = ("alice", "bob", "feed", "broker")
    for name in names:
        Path(f"{name}.password").write_text(f"password of {name}\n")
    role = None if key is None else RoleKey.from_text(key.read_text().strip())
    made = matcher if matcher.answers is Answers.SUBSCRIBER else matcher.broker(role)
    with ExitStack() as stack:
        server = stack.enter_context(LocalServer({name: f"password of {name}" for name in names}))
        broker = MatchingBroker(made, **options)
        url = MqttUrl(server.url, "broker", "password of broker")
        stack.enter_context(MqttService(broker, url))
        yield server.url, broker


def at(url: str, name: str) -> str:
    return f"--url {url} --name {name} --password-file {name}.password"


@pytest.mark.parametrize("scheme", ["FormulaMatch.box", "BroadcastMatch.box"])
def test_one_time_matchers(folder: Path, capsys: Shown, scheme: str) -> None:
    done(f"ccbps explain --schema 'price=UInt(8)' --scheme {scheme} --out m", capsys)
    done("ccbps keygen seed --out feed.seed", capsys)
    (folder / "prices.csv").write_text("price\n5\n200\n7\n")
    matcher = from_json((folder / "m").read_text())
    one_for_all = scheme.startswith("Broadcast")
    own = "feed.seed"
    if not one_for_all:
        own = "alice.seed"
        done(f"ccbps keygen pair --master feed.seed --label alice/cheap --out {own}", capsys)
    with served(matcher, None) as (url, _):
        wanted = "ccbps subscribe 'price < 10' --as cheap --matcher m"
        wanted += f" --key {own} {at(url, 'alice')}"
        rounds = "--ledger alice.rounds --publisher feed --rounds 0:10 --count 0"
        assert "--ledger" in refused(f"{wanted} --publisher feed --rounds 0:10", capsys)
        assert "--rounds" in refused(f"{wanted} --ledger alice.rounds", capsys)
        assert "FIRST:COUNT" in refused(f"{wanted} {rounds.replace('0:10', '10')}", capsys)
        done(f"{wanted} {rounds}", capsys)
        assert "used" in refused(f"{wanted.replace('10', '11')} {rounds}", capsys)
        sent = f"ccbps publish prices.csv --matcher m --key feed.seed {at(url, 'feed')}"
        sent += " --state feed.state --ledger feed.rounds --plain"
        sent += "" if one_for_all else " --to alice/cheap"
        assert "published 3" in done(sent, capsys)
        got = done(f"ccbps subscribe {at(url, 'alice')} --count 2 --wait 20", capsys)
        assert [json.loads(line)["number"] for line in got.splitlines()] == [0, 2]
        assert json.loads(got.splitlines()[0])["record"] == {"price": 5}


def test_topics_skipped_records_payloads_and_patience(folder: Path, capsys: Shown) -> None:
    schema = shlex.quote(SCHEMA)
    done(f"ccbps explain --schema {schema} --scheme TagMatch --out m", capsys)
    done("ccbps keygen server --matcher m --out server.key", capsys)
    given = "--matcher m --server server.key"
    for role, name in (("publisher", "feed"), ("subscriber", "alice")):
        done(f"ccbps keygen {role} {given} --name {name} --out {name}.key", capsys)
    done(f"ccbps keygen broker {given} --out broker.key", capsys)
    done("ccbps keygen filter --out topics.key", capsys)
    done("ccbps keygen seed --out payloads.seed", capsys)
    rows = ["IBM,5,first", "AAPL,5,second", "IBM,6,third", "IBM,700,fourth"]
    (folder / "q.csv").write_text("\n".join(["issue,price,note", *rows]) + "\n")
    matcher = from_json((folder / "m").read_text())
    quota = Quota(rate=20.0, burst=3.0)
    with served(matcher, folder / "broker.key", quota=quota) as (url, broker):
        wanted = f"ccbps subscribe 'price < 10' --matcher m --key alice.key {at(url, 'alice')}"
        assert "--filter" in refused(f"{wanted} --topic IBM", capsys)
        done(f"{wanted} --topic IBM --filter topics.key --count 0", capsys)
        sent = f"ccbps publish q.csv --matcher m --key feed.key {at(url, 'feed')} --state s"
        topics = "--topic-field issue --filter topics.key"
        assert run(f"{sent} --seal payloads.seed {topics} --skip 1") == 0
        out, err = capsys.readouterr()
        assert "published 3" in out
        assert run(f"{sent} --empty {topics}") == 0
        waited = err + capsys.readouterr().err
        assert waited.count("waiting, for the broker says") >= 1
        receive = f"ccbps subscribe {at(url, 'alice')} --count 3 --wait 20"
        lines = done(f"{receive} --open payloads.seed", capsys)
        got = [json.loads(line) for line in lines.splitlines()]
        assert [one["number"] for one in got] == [1, 3, 5]
        # What a record has beside the schema's attributes is delivered, too.
        assert got[0]["record"] == {"issue": "IBM", "price": 6, "note": "third"}
        assert all(set(one) == {"publisher", "number", "subscriptions"} for one in got[1:])
        # A sealed payload without its seed is shown as it is; another seed is an error in a line.
        done(f"{sent} --seal payloads.seed {topics} --skip 2", capsys)
        done("ccbps keygen seed --out other.seed", capsys)
        lines = done(f"{receive.replace('--count 3', '--count 1')} --open other.seed", capsys)
        assert "error" in json.loads(lines)
        assert run(f"ccbps subscribe {at(url, 'alice')} --count 1 --wait 0.2") == 1
        done(f"ccbps subscribe {at(url, 'alice')} --count 0 --forget", capsys)
        assert broker.subscriptions("alice") == []
        (folder / "bad.json").write_text('{"issue": "IBM", "price": 1}\n{"issue": "IBM"}\n')
        bad = sent.replace("q.csv", "bad.json")
        assert run(f"{bad} --plain") == 2
        out, err = capsys.readouterr()
        assert "go on with --skip 0" in out
        assert "in the records from 0 on" in err
        assert "Traceback" not in err


# -- errors, each a line --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ccbps", "COMMAND"),
        ("ccbps nothing", "invalid choice"),
        ("ccbps explain --schema 'x=UIn(3)'", "there is no type UIn"),
        ("ccbps explain --schema '__import__(1)'", "schema must be such as"),
        ("ccbps explain --schema 'x=UInt(3)'", "--scheme NAME"),
        ("ccbps explain --schema 'x=UInt(3)' --scheme None", "there is no matcher None"),
        (
            "ccbps explain --schema 'x=UInt(3)' --scheme TagMatch --option a=1",
            "not take these",
        ),
        ("ccbps explain --schema 'x=UInt(3)' --scheme TagMatch --option a", "NAME=VALUE"),
        ("ccbps explain --matcher nothere", "nothere: No such file"),
        ("ccbps explain --matcher bytes", "not a text in UTF-8"),
        ("ccbps explain --matcher text", "not"),
        ("ccbps check-predicate 'x < 1' --schema 'x=UInt(3)' --records nothere", "No such file"),
        ("ccbps check-predicate 'x < 1' --schema 'x=UInt(3)' --records text", "line 1: not a JSON"),
        (
            "ccbps check-predicate 'x < 1' --schema 'x=UInt(9)' --records t.csv",
            "not as many values",
        ),
        ("ccbps keygen", "KIND"),
        ("ccbps keygen server --matcher m --out a --print", "not allowed with"),
        ("ccbps keygen server --matcher m --out no/folder", "No such file"),
        ("ccbps keygen broker --matcher m --server text --out a", "text"),
        ("ccbps keygen password --name 'a/b' --users u --out p", "name must be 1 to 256 bytes"),
        ("ccbps broker --matcher m --key text --local 0 --users u", "text"),
        ("ccbps broker --matcher m --local 0", "key"),
        ("ccbps publish --matcher m", "required"),
        ("ccbps subscribe 'x < 1' --url mqtt://127.0.0.1:1 --name a", "--matcher FILE and --key"),
        (
            "ccbps subscribe --url mqtt://127.0.0.1:1 --name a",
            "no connection to mqtt://127.0.0.1",
        ),
        ("ccbps subscribe --url http://127.0.0.1 --name a", "url must be"),
        (
            "ccbps subscribe --url mqtt://h --name a --password-file nothere",
            "No such file",
        ),
    ],
)
def test_errors_are_one_line(folder: Path, capsys: Shown, line: str, said: str) -> None:
    (folder / "text").write_text("no key")
    (folder / "t.csv").write_text("x,y\n1\n")
    (folder / "bytes").write_bytes(b"\xff\xfe\x00")
    (folder / "m").write_text(TagMatch(Schema(x=UInt(3))).to_json())
    names = {path.name for path in folder.iterdir()}
    assert said in refused(line, capsys)
    assert {path.name for path in folder.iterdir()} == names


def test_ctrl_c_and_a_closed_pipe_are_no_errors(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = f"{shlex.quote(sys.executable)} -m ccbps"
    shell = f"set -o pipefail; {command} explain --schema 'x=UInt(3)' --scheme TagMatch | true"
    closed = subprocess.run(["bash", "-c", shell], env=environment, capture_output=True, text=True)
    assert closed.returncode in (0, 141)
    assert closed.stderr == ""
    words = [sys.executable, "-m", "ccbps", "check-predicate", "x < 1", "--schema", "x=UInt(3)"]
    with started([*words, "--records", "-"]) as process:
        assert line_of(process.stdout).startswith("means")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


# -- the operator ----------------------------------------------------------------------------------


def test_orders_of_the_operator() -> None:
    matcher = TagMatch(Schema(price=UInt(8)))
    broker = MatchingBroker(matcher.broker(matcher.key_server().broker_key()))
    answers = {
        "revoke alice": "alice is shut out",
        "subscriptions alice": "alice has none",
        "admit alice": "alice is let in",
        "revoke 'alice": "error: No closing quotation",
        "revoke alice zz": "error: non-hexadecimal",
        "revoke alice 00": "error: the broker serves no user 00",
        "admit": "error: a line is one of",
    }
    for line, answer in answers.items():
        assert obey(broker, line).startswith(answer), line
    assert obey(broker, "metrics") == broker.metrics().rstrip()


def test_metrics_are_served_to_prometheus() -> None:
    matcher = TagMatch(Schema(price=UInt(8)))
    broker = MatchingBroker(matcher.broker(matcher.key_server().broker_key()))
    with metrics_page(broker, 0) as address:
        assert address.startswith("http://127.0.0.1:")
        kinds = {"Accept": "application/openmetrics-text; version=1.0.0"}
        with urllib.request.urlopen(urllib.request.Request(address, headers=kinds)) as answer:
            text = answer.read().decode()
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        found = {one.name for one in text_string_to_metric_families(text)}
        assert {"ccbps_publications", "ccbps_match_seconds", "ccbps_waiting"} <= found
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address)


def test_metrics_need_an_extra_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.openmetrics.exposition", None)
    monkeypatch.setitem(sys.modules, "prometheus_client.openmetrics", None)
    matcher = TagMatch(Schema(price=UInt(8)))
    broker = MatchingBroker(matcher.broker(matcher.key_server().broker_key()))
    wanted = r"a broker's metrics need prometheus-client: pip install 'ccbps\[metrics\]'"
    for use in (broker.metrics, lambda: [*broker.collect()], metrics_page(broker, 0).__enter__):
        with pytest.raises(ImportError, match=wanted):
            use()
    assert re.match(f"error: {wanted}", obey(broker, "metrics"))


def test_a_broker_is_a_collector_of_a_registry() -> None:
    matcher = TagMatch(Schema(price=UInt(8)))
    broker = MatchingBroker(matcher.broker(matcher.key_server().broker_key()))
    registry = CollectorRegistry()
    registry.register(broker)
    alice = matcher.subscriber(matcher.key_server().subscriber_key("alice"))
    with pytest.raises(DecodeError):
        broker.subscribe("alice", Subscription("a", alice.encode("price < 9")))
    assert registry.get_sample_value("ccbps_refused_total", {"reason": "DecodeError"}) == 1
    assert registry.get_sample_value("ccbps_match_seconds_bucket", {"le": "0.0001"}) == 0


# -- documentation -------------------------------------------------------------------------------


def test_the_page_shows_help_as_it_is() -> None:
    commands = runpy.run_path(str(ROOT / "docs" / "commands.py"))
    page = (ROOT / "docs" / "command_line.md").read_text("utf-8")
    assert commands["page"](page) == page, "run python docs/commands.py"
    with pytest.raises(ValueError, match="no place for the help of broker"):
        commands["page"](re.sub("<!-- ccbps broker --help -->", "", page))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one.name)
def test_help_teaches(command: Any, capsys: Shown) -> None:
    for words in ([command.name], *([command.name, kind.name] for kind in command.kinds)):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert "example:" in shown
        assert max(map(len, shown.splitlines())) <= 100
