"""The command line: the story that help tells, with real processes, and what each command does."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import shlex
import signal
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ccbps import Category, Keyword, Schema, SharedSeed, UInt
from ccbps.broker import MatchingBroker, Quota, Subscription
from ccbps.broker.metrics import metrics_page
from ccbps.cli import main
from ccbps.cli.client import open_payload, seal_payloads
from ccbps.cli.command import Command
from ccbps.cli.inputs import read_schema
from ccbps.cli.normal_text import normal_text
from ccbps.cli.program import COMMANDS
from ccbps.cli.publish import take_numbers
from ccbps.cli.servers import listen, obey
from ccbps.errors import DecodeError, LedgerError
from ccbps.keys import FileKey
from ccbps.keys.plain_key import FilterKey
from ccbps.matching import FormulaMatch, KeywordMatch, Matcher, TagMatch, from_json
from tests.support import effort, strategies
from tests.support.command_line import SERVER, Shell, at, key_of, served
from tests.support.three_brokers import free_ports

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
EXAMPLES = {command.name: command.example.replace("\\\n", " ").splitlines() for command in COMMANDS}
SCHEMA = 'issue=Category(["AAPL", "IBM"]), price=UInt(16)'
SCHEMA_OPTION = f"--schema {shlex.quote(SCHEMA)}"


def files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path().iterdir()}


def broker_of(matcher: Matcher) -> MatchingBroker:
    return MatchingBroker(matcher.broker(matcher.key_server().broker_key()))


def secrets_in_files() -> set[str]:
    """Return every secret in a file, and its parts."""
    kinds = (".key", ".seed", ".password")
    texts = [path.read_text().strip() for path in Path().iterdir() if path.suffix in kinds]
    digits = [text.partition(":")[2] for text in texts if ":" in text]
    return {*texts, *digits, *(text[:24] for text in digits)}


# -- the story that help tells -------------------------------------------------------------------


def process_of(line: str, port: int) -> list[str]:
    """Return the command of a real process for a line of an example, at a free port."""
    line = line.replace(":1883", f":{port}").replace("--local 1883", f"--local {port}")
    return [sys.executable, "-m", "ccbps", *shlex.split(line.replace(" --metrics 9100", ""))[1:]]


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    # A shell lets processes in the background ignore Ctrl-C, and their children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, env=ENVIRONMENT
    )
    signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def standard_input(text: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8")


def line_of(stream: Any) -> str:
    """Return the next line. A timeout of pytest ends a test whose line never comes."""
    return str(stream.readline())


def test_the_story_of_help_with_real_processes(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, shown = free_ports(1), ""
    for name in ("plan", "explain", "check-predicate", "filter", "keygen", "encode", "match"):
        for line in EXAMPLES[name]:
            if line.startswith("printf "):
                subprocess.run(["bash", "-c", line], check=True)
                continue
            if line.startswith("echo "):
                text, line = line.split(" | ")
                monkeypatch.setattr(sys, "stdin", standard_input(shlex.split(text)[1]))
            if name == "plan" and not effort.everything:
                line += " --timing 0"  # matchers are timed by the tests of the planner
            shown += shell.done(line)
    assert "TagMatch over issue, price (17 bits)" in shown
    assert "means       issue = 'IBM' AND price <= 119" in shown
    assert "records     1 of 1 match" in shown
    assert shown.endswith("event,subscription\n0,cheap\n")

    # All other files are their owner's alone; the matcher is public.
    public = {"quotes.matcher", "quotes.csv", "events.csv", "interests.csv"}
    assert {p.name for p in Path().iterdir() if p.stat().st_mode & 0o077} == public

    (broker_line,), (subscribe_line,) = EXAMPLES["broker"], EXAMPLES["subscribe"]
    echoed, publish_line = EXAMPLES["publish"][0].split(" | ")
    record = shlex.split(echoed)[1] + "\n"
    with started(process_of(broker_line, port)) as broker:
        shown += line_of(broker.stdout)
        assert "0 subscriptions" in shown
        with started(process_of(subscribe_line, port)) as subscriber:
            shown += line_of(subscriber.stderr)
            with started(process_of(publish_line, port)) as publisher:
                shown += "".join(publisher.communicate(record * 2))
                assert publisher.returncode == 0
            received = [line_of(subscriber.stdout) for _ in range(2)]
            subscriber.send_signal(signal.SIGINT)
            shown += "".join(subscriber.communicate())
            assert subscriber.returncode == 0
        broker.kill()  # nothing that was acknowledged is lost
        broker.wait()
    delivery = {"publisher": "feed", "subscriptions": ["subscription"]}
    delivery |= {"record": json.loads(record)}
    assert [json.loads(line) for line in received] == [delivery | {"number": n} for n in range(2)]

    publish_line = publish_line.replace("1883", str(port))
    subscribe_line = subscribe_line.replace("1883", str(port))
    with started(process_of(broker_line, port)) as broker:
        shown += line_of(broker.stdout)
        assert "1 subscriptions" in shown
        assert broker.stdin is not None
        # Numbers continue, and deliveries wait.
        monkeypatch.setattr(sys, "stdin", standard_input(record))
        shown += shell.done(publish_line)
        predicate = "\"issue = 'IBM' AND price < 120\""
        receive_line = subscribe_line.replace(predicate, "--count 1 --wait 20")
        assert shell.deliveries(receive_line)[0]["number"] == 2
        for line in ("revoke alice", "revoke 'no one/'", "hello"):
            broker.stdin.write(f"{line}\n")
            broker.stdin.flush()
            shown += line_of(broker.stdout)
        assert "alice is shut out" in shown
        assert "error: client must be" in shown
        assert "error: a line is one of: revoke" in shown
        assert shell.refused(subscribe_line) == "alice was revoked"
        broker.send_signal(signal.SIGTERM)
        shown += "".join(broker.communicate())
        assert broker.returncode == 0
        assert shown.endswith("ended\n")
    assert len(secrets := secrets_in_files()) > 15
    assert [secret for secret in secrets if secret in shown] == []
    assert "Traceback" not in shown


ANOTHER_THREAD = """
import signal, threading, time
from ccbps.cli.signals import ended_by_signals

def tell():
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

with ended_by_signals() as wait:
    for _ in range(2):
        threading.Thread(target=tell).start()
        wait()
    signal.raise_signal(signal.SIGINT)
    wait()
print("ended")
"""

EARLY = """
import signal
from ccbps.cli.signals import ended_by_signals

install = signal.signal

def early(number, handler):
    before = install(number, handler)
    signal.raise_signal(number)
    return before

signal.signal = early
with ended_by_signals() as wait:
    signal.signal = install
    wait()
print("ended")
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="of POSIX")
@pytest.mark.parametrize("program", [ANOTHER_THREAD, EARLY], ids=["another thread", "early"])
def test_a_signal_ends_a_server_whenever_and_wherever_it_comes(program: str) -> None:
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("ended\n", "")


# -- explain and check-predicate -----------------------------------------------------------------


def test_explain_makes_and_reads_matchers(shell: Shell) -> None:
    explain = f"ccbps explain {SCHEMA_OPTION}"
    assert "ccbps plan" in shell.refused(explain)
    broken = "--scheme AspeMatch --out aspe"
    assert "--broken" in shell.refused(f"{explain} {broken}")
    assert "AspeMatch" in shell.done(f"{explain} {broken} --broken")
    printed = shell.done(f"{explain} --scheme TagMatch --option 'topic=[\"issue\"]' --out m")
    matcher = from_json(Path("m").read_text())
    assert matcher == TagMatch(read_schema(SCHEMA), topic=["issue"])
    assert matcher.explain() in printed
    assert shell.done("ccbps explain --matcher m").strip() == matcher.explain().strip()
    hidden = shell.done(f"{explain} --scheme FormulaMatch --template 'price < :limit'")
    assert "FormulaMatch" in hidden
    assert "limit" in hidden


def test_plan_lists_candidates_and_writes_one(shell: Shell) -> None:
    plan = (
        f"ccbps plan \"issue = 'IBM' AND price < :limit\" --value limit=9 {SCHEMA_OPTION} "
        "--events 1000 --subscriptions 20 --timing 0"
    )
    text = shell.done(f"{plan} --hide constants --scheme BroadcastMatch --out m")
    assert "1,000 events x 20 subscriptions" in text
    assert "TagMatch" in text.partition("\nrefused\n")[2]
    assert "from answers: with an accomplice who reads events, each bound to 1% of its" in text
    matcher = from_json(Path("m").read_text())
    assert type(matcher).__name__ == "BroadcastMatch"
    assert f"{matcher!r} written to m" in text
    content = json.loads(shell.done(f"{plan} --json --allow-leak match --allow-leak formula"))
    assert content["subscriptions"] == 20
    first = content["candidates"][0]
    assert first["bytes"]["total"] == sum(first["bytes"].values()) - first["bytes"]["total"]
    assert {*first["leaks"]} <= {"match", "formula"}
    known = first["from_answers"]
    assert (known["events"], known["least"], known["seconds"]) == (50, True, None)
    shell.run(f"{plan} --budget-bytes 1", 1)
    assert "hide must be names among event" in shell.refused(f"{plan} --hide price")


@given(strategies.schemas())
def test_schemas_are_read_as_python_shows_them(schema: Schema) -> None:
    for text in (repr(schema), repr(schema).removeprefix("Schema(")[:-1], schema.to_json()):
        assert read_schema(text) == schema


@given(st.data())
def test_normal_texts_mean_what_the_predicate_means(data: st.DataObject) -> None:
    schema = data.draw(
        strategies.schemas().filter(lambda s: not any(isinstance(s[name], Keyword) for name in s))
    )
    predicate = schema.parse(data.draw(strategies.predicates(schema, private=False)).text)
    events = schema.encode([strategies.record(row) for row in data.draw(strategies.rows(schema))])
    again = schema.parse(normal_text(predicate, 10**6))
    assert again.evaluate(events).tolist() == predicate.evaluate(events).tolist()


def test_the_normal_text_of_a_distance_that_is_denied_is_read_again() -> None:
    schema = Schema(price=UInt(2), volume=UInt(2))
    predicate = schema.parse("NOT (hamming(volume, 0) <= 1 AND price < 1)")
    text = normal_text(predicate, 10**6)
    assert "NOT hamming(volume, 0) <= 1" in text
    events = schema.encode({"price": [*range(4)] * 4, "volume": np.repeat(range(4), 4)})
    assert schema.parse(text).evaluate(events).tolist() == predicate.evaluate(events).tolist()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("'price < 120' --records quotes.csv", "means       price <= 119"),
        ("'price < 120' --records quotes.csv", "records     2 of 3 match"),
        ("'price < 4' --records quotes.json", "records     1 of 2 match"),
        ("'price < :top' --value top=120 --records quotes.csv", "records     2 of 3 match"),
        ("'price < :top'", "template    private constants :top"),
        ("@file", "no event at all"),
    ],
)
def test_check_predicate_counts_what_matches(shell: Shell, arguments: str, line: str) -> None:
    Path("quotes.csv").write_text("issue,price,note\nIBM,119,a\nIBM,121,b\nAAPL,3,c\n")
    Path("quotes.json").write_text('{"issue": "IBM", "price": 3}\n\n{"issue": "AAPL", "price": 4}')
    Path("file").write_text("price < 10 AND price > 10")
    assert line in shell.done(f"ccbps check-predicate {arguments} {SCHEMA_OPTION}")


def test_check_predicate_marks_the_place_of_an_error(shell: Shell) -> None:
    assert "^" in shell.run(f"ccbps check-predicate 'price <' {SCHEMA_OPTION}", 1)[1]


# -- keygen --------------------------------------------------------------------------------------


def test_keys_are_the_library_s_and_files_their_owner_s(shell: Shell) -> None:
    shell.done(
        "ccbps keygen seed --out feed.seed",
        "ccbps keygen pair --master feed.seed --label alice/cheap --out alice.seed",
        "ccbps keygen ledger --master feed.seed --out ledger.key",
        "ccbps keygen filter --out topics.key",
        "ccbps keygen password --name alice --users users --out alice.password",
        "ccbps keygen password --name bob --users users --out bob.password",
    )
    master = FileKey("feed.seed").load()
    assert isinstance(master, SharedSeed)
    assert FileKey("alice.seed").load() == master.pair("alice/cheap")
    assert FileKey("ledger.key").load() == master.ledger_key()
    assert isinstance(FileKey("topics.key").load(), FilterKey)
    assert json.loads(Path("users").read_text()) == {
        name: Path(f"{name}.password").read_text().strip() for name in ("alice", "bob")
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in Path().iterdir()} == {0o600}
    before = files()
    for line, problem in (
        ("seed --out feed.seed", "exists already"),
        ("password --name carol --users users --out bob.password", "exists already"),
        ("password --name alice --users users --out new", "alice has a password"),
    ):
        assert problem in shell.refused(f"ccbps keygen {line}")
    assert files() == before
    assert SharedSeed.from_text(shell.done("ccbps keygen seed --print").strip())
    printed = json.loads(shell.done("ccbps keygen seed --print --json"))
    assert SharedSeed.from_text(printed["key"])


def test_a_key_server_s_file_follows_what_it_gave_and_ended(shell: Shell) -> None:
    matcher = KeywordMatch(Schema(word=Category(["a", "b"])), group="toy64")
    Path("m").write_text(matcher.to_json())
    shell.make_role_keys(feed="publisher", alice="subscriber", bob="subscriber")
    interests = matcher.subscriber(key_of("alice")).encode("word = 'a'")
    events = matcher.publisher(key_of("feed")).encode([{"word": "a"}, {"word": "b"}])
    answers = matcher.broker(key_of("broker")).match_all(events, interests)
    assert answers.tolist() == [[True], [False]]
    order = shell.done(f"ccbps keygen revoke {SERVER} --role subscriber --name alice").strip()
    assert obey(MatchingBroker(matcher.broker(key_of("broker"))), order) == "alice is shut out"
    again = f"ccbps keygen subscriber {SERVER} --name alice --out again"
    assert "revoked" in shell.refused(again)
    assert not Path("again").exists()
    shell.done(f"ccbps keygen rotate {SERVER}", f"ccbps keygen broker {SERVER} --out later.key")
    with pytest.raises(DecodeError, match="another key epoch"):
        matcher.broker(key_of("later")).match_all(events, interests)


# -- what is sent --------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=4), st.integers(0, 2**40))
def test_payloads_open_under_their_seed_and_number(payloads: list[bytes], first: int) -> None:
    seed = SharedSeed(bytes(32))
    numbers = range(first, first + len(payloads))
    for number, payload, sealed in zip(
        numbers, payloads, seal_payloads(seed, payloads, numbers), strict=True
    ):
        assert open_payload(seed, sealed, number) == payload
        for key, other in ((SharedSeed(bytes([1] * 32)), number), (seed, number + 1)):
            with pytest.raises(DecodeError):
                open_payload(key, sealed, other)
        for cut in (b"", sealed[:20], sealed[:-1]):
            with pytest.raises(DecodeError):
                open_payload(seed, cut, number)


def test_numbers_are_taken_once_by_many_threads() -> None:
    def take(_: int) -> range:
        return take_numbers("state", "feed", 3)

    with ThreadPoolExecutor(4) as threads:
        assert sorted(chain(*threads.map(take, range(20)))) == [*range(60)]
    assert take_numbers("state", "other", 2) == range(2)
    assert take_numbers("state", "feed", 1, first=100) == range(100, 101)
    assert take_numbers("state", "feed", 1) == range(101, 102)
    Path("no state").write_text("text" * 1000)
    with pytest.raises(LedgerError, match="cannot be used"):
        take_numbers("no state", "feed", 1)


@pytest.mark.parametrize("scheme", ["FormulaMatch.box", "BroadcastMatch.box"])
def test_one_time_matchers(shell: Shell, scheme: str) -> None:
    shell.done(
        f"ccbps explain --schema 'price=UInt(8)' --scheme {scheme} --out m",
        "ccbps keygen seed --out feed.seed",
        "ccbps keygen pair --master feed.seed --label alice/cheap --out alice.seed",
    )
    Path("prices.csv").write_text("price\n5\n200\n7\n")
    seed, to = {
        "FormulaMatch.box": ("alice.seed", "--to alice/cheap"),
        "BroadcastMatch.box": ("feed.seed", ""),
    }[scheme]
    with served(from_json(Path("m").read_text())) as (url, _):
        subscribe = f"ccbps subscribe 'price < 10' --as cheap --matcher m --key {seed}"
        subscribe += f" {at(url, 'alice')}"
        rounds = "--ledger alice.rounds --mark alice.mark --publisher feed --rounds 0:10 --count 0"
        assert "--ledger" in shell.refused(f"{subscribe} --publisher feed --rounds 0:10")
        assert "--ledger FILE" in shell.refused(f"{subscribe} --mark alice.mark --rounds 0:10")
        assert "--rounds" in shell.refused(f"{subscribe} --ledger alice.rounds --mark alice.mark")
        for wrong in ("10", "0:0", "0:-1", "0:" + "9" * 5000):
            assert "FIRST:COUNT" in shell.refused(f"{subscribe} {rounds.replace('0:10', wrong)}")
        shell.done(f"{subscribe} {rounds}")
        assert "used" in shell.refused(f"{subscribe.replace('10', '11')} {rounds}")
        Path("alice.rounds").rename("alice.newest")
        assert "is missing, so nothing" in shell.refused(f"{subscribe} {rounds}")
        Path("alice.newest").rename("alice.rounds")
        publish = f"ccbps publish prices.csv --matcher m --key feed.seed {at(url, 'feed')}"
        publish += f" --state feed.state --ledger feed.rounds --plain {to}"
        assert "published 3" in shell.done(publish)
        received = shell.deliveries(f"ccbps subscribe {at(url, 'alice')} --count 2 --wait 20")
        assert [delivery["number"] for delivery in received] == [0, 2]
        assert received[0]["record"] == {"price": 5}
        # Rounds that come to their end are no silence.
        Path("prices.csv").write_text("price\n" + "200\n" * 6)
        assert "published 6" in shell.done(publish)
        _, errors = shell.run(f"ccbps subscribe {at(url, 'alice')} --count 1 --wait 0.5", 1)
        assert (
            "warning: subscription cheap has messages for rounds of feed up to 9 only: " in errors
        )


def test_a_second_broker_at_a_server_does_not_start(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccbps.mqtt.claim.LEASE_SECONDS", 3)
    shell.done("ccbps explain --schema 'price=UInt(8)' --scheme TagMatch --out m")
    shell.make_role_keys()
    with served(from_json(Path("m").read_text())) as (url, _):
        line = "ccbps broker --matcher m --key broker.key --password-file broker.password"
        assert "another service answers" in shell.refused(f"{line} --url {url}")


def test_topics_skipped_records_payloads_and_patience(shell: Shell) -> None:
    shell.done(f"ccbps explain {SCHEMA_OPTION} --scheme TagMatch --out m")
    shell.make_role_keys(feed="publisher", alice="subscriber")
    shell.done(
        "ccbps keygen filter --out topics.key",
        "ccbps keygen seed --out payloads.seed",
        "ccbps keygen seed --out other.seed",
    )
    rows = ["issue,price,note", "IBM,5,first", "AAPL,5,second", "IBM,6,third", "IBM,700,fourth"]
    Path("q.csv").write_text("\n".join(rows) + "\n")
    Path("bad.json").write_text('{"issue": "IBM", "price": 1}\n{"issue": "IBM"}\n')
    matcher, quota = from_json(Path("m").read_text()), Quota(rate=2.0, burst=3.0)
    with served(matcher, quota=quota) as (url, broker):
        client = f"ccbps subscribe {at(url, 'alice')}"
        subscribe = f"{client} 'price < 10' --matcher m --key alice.key"
        assert "--filter" in shell.refused(f"{subscribe} --topic IBM")
        shell.done(f"{subscribe} --topic IBM --filter topics.key --count 0")
        publish = f"ccbps publish q.csv --matcher m --key feed.key {at(url, 'feed')} --state s"
        topics = "--topic-field issue --filter topics.key"
        output, errors = shell.run(f"{publish} --seal payloads.seed {topics} --skip 1")
        assert "published 3" in output
        errors += shell.run(f"{publish} --empty {topics}")[1]
        assert errors.count("waiting, as the broker asks") >= 1
        received = shell.deliveries(f"{client} --count 3 --wait 20 --open payloads.seed")
        assert [delivery["number"] for delivery in received] == [1, 3, 5]
        # Fields of a record outside the schema are delivered, too.
        assert received[0]["record"] == {"issue": "IBM", "price": 6, "note": "third"}
        keys = {"publisher", "number", "subscriptions"}
        assert all(set(delivery) == keys for delivery in received[1:])
        # Another seed is an error in a line.
        shell.done(f"{publish} --seal payloads.seed {topics} --skip 2")
        (delivery,) = shell.deliveries(f"{client} --count 1 --wait 20 --open other.seed")
        assert "error" in delivery
        shell.run(f"{client} --count 1 --wait 0.2", 1)
        shell.done(f"{client} --count 0 --forget")
        assert broker.subscriptions("alice") == []
        output, errors = shell.run(f"{publish.replace('q.csv', 'bad.json')} --plain", 2)
        assert "continue with --skip 0" in output
        assert "record 1: attribute 'price': it is missing" in errors
        assert "Traceback" not in errors


# -- errors, each a line --------------------------------------------------------------------------


CHECK = "check-predicate 'x < 1' --schema 'x=UInt(3)'"
CLIENT = "subscribe --url mqtt://127.0.0.1:1 --name a"
EXPLAIN = "explain --schema 'x=UInt(3)'"
PLAN = "plan 'x < 1' --schema 'x=UInt(3)' --timing 0 --subscriptions 2"
PUBLISH = "publish --matcher pairs --key seed --url mqtt://h --name a --state s --plain"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "COMMAND"),
        ("nothing", "invalid choice"),
        ("explain --schema 'x=UIn(3)'", "there is no type UIn"),
        ("explain --schema '__import__(1)'", "schema must be such as"),
        ("explain --schema 'UInt(3)'", "an attribute has no name"),
        ("explain --schema 'x=UInt(**3)'", "a name is missing"),
        (EXPLAIN, "--scheme NAME"),
        (f"{PLAN} --events 0", "events must be"),
        (f"{PLAN} --events 2 --allow-leak a", "allow_leaks must be names"),
        (f"{PLAN} --events 2 --out a --scheme None", "scheme must be"),
        (f"{PLAN} --events 2 --out a --scheme UGPMatch --budget-bytes 1", "UGPMatch: "),
        (f"{EXPLAIN} --scheme None", "there is no matcher None"),
        (f"{EXPLAIN} --scheme TagMatch.box", "there is no matcher TagMatch.box"),
        (f"{EXPLAIN} --scheme TagMatch --option a=1", "not take these"),
        (f"{EXPLAIN} --scheme TagMatch --option a", "NAME=VALUE"),
        (f"{EXPLAIN} --scheme TagMatch --option a=1 --option a=2", "each name once"),
        ("explain --matcher nothere", "nothere: No such file"),
        ("explain --matcher bytes", "not a text in UTF-8"),
        ("explain --matcher text", "not"),
        (f"{CHECK} --records nothere", "No such file"),
        (f"{CHECK} --records text", "line 1: not a JSON"),
        (f"{CHECK} --records t.csv", "not as many values"),
        (f"{CHECK} --records bytes", "bytes is not a text in UTF-8"),
        ("keygen", "KIND"),
        ("keygen server --matcher m --out a --print", "not allowed with"),
        ("keygen server --matcher m --out no/folder", "No such file"),
        ("keygen broker --matcher m --server text --out a", "text"),
        ("keygen password --name 'a/b' --users u --out p", "name must be 1 to 256 bytes"),
        ("keygen password --name a --users text --out p", "text is not a JSON object of passwords"),
        ("broker --matcher m --key text --local 0 --users u", "text"),
        ("broker --matcher m --local 0", "key"),
        ("broker --matcher m --local 0 --quota rat=1", "--quota must be 'rate', 'burst'"),
        ("broker --matcher pairs --local 0", "--local needs --users"),
        ("subscribe --url mqtt://u:secret@h --name a", "without a user or a password, got 'h'"),
        ("broker --matcher pairs --url mqtt://h --users users", "--users is for --local"),
        ("broker --matcher pairs --local 0 --users users", "users must not have 'broker'"),
        ("publish --matcher m", "required"),
        (f"{PUBLISH} --ledger l", "--to client/name"),
        (f"{PUBLISH} --to a/b", "uses each round once: --ledger FILE"),
        (f"{CLIENT} 'x < 1'", "--matcher FILE and --key"),
        (f"{CLIENT} --count -1", "--count must be a whole number, at least 0"),
        (CLIENT, "no connection to mqtt://127.0.0.1"),
        ("subscribe --url http://127.0.0.1 --name a", "url must be"),
        ("subscribe --url mqtt://h --name a --password-file nothere", "No such file"),
        (
            "subscribe --url mqtt://h --name a --password-file empty",
            "no password in its first line",
        ),
    ],
)
def test_errors_are_one_line(shell: Shell, line: str, said: str) -> None:
    Path("text").write_text("no key")
    Path("t.csv").write_text("x,y\n1\n")
    Path("empty").write_text("\n")
    Path("bytes").write_bytes(b"\xff\xfe\x00")
    Path("m").write_text(TagMatch(Schema(x=UInt(3))).to_json())
    Path("pairs").write_text(FormulaMatch.box(Schema(x=UInt(3))).to_json())
    Path("seed").write_text(SharedSeed(bytes(32)).to_text())
    Path("users").write_text('{"broker": "word"}')
    before = files()
    assert said in shell.refused(f"ccbps {line}")
    assert files() == before


def test_ctrl_c_and_a_closed_pipe_are_no_errors() -> None:
    command = f"{shlex.quote(sys.executable)} -m ccbps"
    shell = f"set -o pipefail; {command} explain --schema 'x=UInt(3)' --scheme TagMatch | true"
    closed = subprocess.run(["bash", "-c", shell], env=ENVIRONMENT, capture_output=True, text=True)
    assert closed.returncode in (0, 141)
    assert closed.stderr == ""
    words = [sys.executable, "-m", "ccbps", "check-predicate", "x < 1", "--schema", "x=UInt(3)"]
    with started([*words, "--records", "-"]) as process:
        assert line_of(process.stdout).startswith("means")
        for _ in range(3):  # Python loses one that comes while it ends a callback
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
                break
        assert process.returncode == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


# -- the operator ----------------------------------------------------------------------------------


def test_orders_of_the_operator() -> None:
    broker = broker_of(TagMatch(Schema(price=UInt(8))))
    broker.take("alice")
    answers = {
        "revoke alcie": "error: no client alcie was ever here: nobody is shut out",
        "revoke alice": "alice is shut out",
        "subscriptions alice": "alice has none",
        "admit alice": "alice is let in",
        "revoke 'alice": "error: No closing quotation",
        "revoke alice zz": "error: non-hexadecimal",
        "revoke alice 00": "error: the broker serves no user 00",
        "revoke alice 00 11": "error: a line is one of",
        "admit": "error: a line is one of",
        "bar mallory": "mallory is shut out",
    }
    for line, answer in answers.items():
        assert obey(broker, line).startswith(answer), line
    assert obey(broker, "metrics") == broker.metrics().rstrip()


def test_answers_to_orders_are_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = broker_of(TagMatch(Schema(price=UInt(8))))
    broker.take("alice")
    end, start = os.pipe()
    with os.fdopen(start, "w") as orders:
        orders.write("revoke alice\nbar\n")
    with os.fdopen(end) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        listen(broker, Namespace(json=True))
        for thread in threading.enumerate():
            if thread.name == "console":
                thread.join(20)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"order": "revoke alice", "answer": "alice is shut out"}
    assert second["order"] == "bar"
    assert second["error"].startswith("a line is one of")


def test_metrics_are_served_to_prometheus() -> None:
    broker = broker_of(TagMatch(Schema(price=UInt(8))))
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
    broker = broker_of(TagMatch(Schema(price=UInt(8))))
    wanted = r"MatchingBroker.metrics needs prometheus_client\S*: pip install 'ccbps\[metrics\]'"
    for use in (broker.metrics, lambda: [*broker.collect()], metrics_page(broker, 0).__enter__):
        with pytest.raises(ImportError, match=wanted):
            use()
    assert re.match(f"error: {wanted}", obey(broker, "metrics"))


def test_a_broker_is_a_collector_of_a_registry() -> None:
    matcher = TagMatch(Schema(price=UInt(8)))
    broker = broker_of(matcher)
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
    table = page.partition("| command | task |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert listed == [command.name for command in COMMANDS]
    with pytest.raises(ValueError, match="no place for the help of broker"):
        commands["page"](re.sub("<!-- ccbps broker --help -->", "", page))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_teaches(command: Command, shell: Shell) -> None:
    for words in ([command.name], *([command.name, kind.name] for kind in command.kinds)):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--help"])
        assert ended.value.code == 0
        shown = shell.capsys.readouterr().out
        assert f"ccbps {' '.join(words)}" in shown.rpartition("example:")[2]
        assert max(map(len, shown.splitlines())) <= 100
