"""Many publications on their way at once: their order, a broker's patience, and its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ccbps.broker import MatchingBroker, Publication, Quota, Receipt
from ccbps.cli import pipeline
from ccbps.cli.inputs import NUMBERS
from ccbps.cli.publish import take_numbers
from ccbps.cli.record_writing import RecordWriter
from ccbps.cli.records import Table
from ccbps.errors import LedgerError, ParameterError, RefusedError
from ccbps.filters import FilterKey, MaskLayout
from ccbps.matching import from_json
from ccbps.mqtt import LocalServer, MqttClient
from tests.support.broker_world import count
from tests.support.command_line import Shell, at, served

ROWS = 120


def test_publications_keep_their_order_when_the_broker_asks_for_patience(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "FIRST_PAUSE", 0.01)
    shell.done(
        "ccbps explain --schema 'x=UInt(8)' --scheme BroadcastMatch.box --out m",
        "ccbps keygen seed --out feed.seed",
    )
    Path("x.csv").write_text("x\n" + "5\n" * ROWS)
    # A round that comes behind a later one would be a replay.
    calls, publish_all = list[int](), MatchingBroker.publish_all

    def refusing(broker: MatchingBroker, name: str, sent: Sequence[Any]) -> list[Any]:
        results: list[Any] = []
        for message in sent:
            calls.append(Publication.from_bytes(message).number)
            if calls[-1] % 10 == 3 and calls.count(calls[-1]) < 3:
                results.append(RefusedError("send later", reason="rate"))
            else:
                results += publish_all(broker, name, [message])
        return results

    monkeypatch.setattr(MatchingBroker, "publish_all", refusing)
    with served(from_json(Path("m").read_text())) as (url, _):
        shell.done(
            f"ccbps subscribe 'x < 10' --matcher m --key feed.seed {at(url, 'alice')} --count 0 "
            f"--ledger alice.rounds --publisher feed --rounds 0:{ROWS}"
        )
        output, errors = shell.run(
            f"ccbps publish x.csv --matcher m --key feed.seed {at(url, 'feed')} --state s "
            "--ledger feed.rounds --empty"
        )
        assert output == f"published {ROWS}\n"
        assert errors.count("waiting, as the broker asks") == 1
        assert ROWS < len(calls) < 4 * ROWS
        receive = f"ccbps subscribe {at(url, 'alice')} --count {ROWS} --wait 20"
        assert [delivery["number"] for delivery in shell.deliveries(receive)] == [*range(ROWS)]


@pytest.mark.slow
def test_publish_ends_when_it_waited_long_enough(shell: Shell) -> None:
    shell.done("ccbps explain --schema 'x=UInt(8)' --scheme TagMatch --out m")
    shell.make_role_keys(feed="publisher")
    Path("x.csv").write_text("x\n" + "5\n" * 9)
    publish = "ccbps publish x.csv --matcher m --key feed.key --state s --empty --timeout 1.5"
    with served(from_json(Path("m").read_text()), quota=Quota(rate=0.001, burst=3.0)) as (url, _):
        output, errors = shell.run(f"{publish} {at(url, 'feed')}", 2)
        assert output == "published 3; continue with --skip 3\n"
        assert "nothing was accepted for 1.5 s: more than 0.001 messages a second" in errors
    with LocalServer({"feed": "password of feed"}) as server:
        error = shell.refused(f"{publish} {at(server.url, 'feed')}")
        assert error == "no answer to publish in 1.5 s"
    assert "--timeout must be" in shell.refused(f"{publish} {at(server.url, 'feed')} --timeout -1")


def test_numbers_are_not_taken_beyond_their_end() -> None:
    last = NUMBERS - 1
    with pytest.raises(ParameterError, match=r"--first must be .* below 2\^63"):
        take_numbers("s", "feed", 2, last - 1)
    assert take_numbers("s", "feed", 2, last - 3) == range(last - 3, last - 1)
    assert take_numbers("s", "feed", 1) == range(last - 1, last)
    for _ in range(2):
        with pytest.raises(LedgerError, match="no numbers left for feed"):
            take_numbers("s", "feed", 1)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_record_s_topic_is_a_field(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    bar = list[int]()

    @contextmanager
    def counting(total: int | None, unit: str, *, shown: bool) -> Iterator[Callable[[int], object]]:
        assert (total, unit, shown) == (None, " records", True)
        yield bar.append

    monkeypatch.setattr("ccbps.cli.publish.progress", counting)
    shell.done("ccbps explain --schema 'x=UInt(8)' --scheme TagMatch --out m")
    shell.done("ccbps keygen filter --out topics.key")
    shell.make_role_keys(feed="publisher", alice="subscriber")
    columns = {"x": [1, 2, 3], "t": ["a", "b", "a"]}
    with RecordWriter(f"x.{form}", {"jsonl": "json"}.get(form, form)) as writer:
        writer.write(Table(range(3), 3, columns))
    with served(from_json(Path("m").read_text())) as (url, _):
        alice = f"ccbps subscribe {at(url, 'alice')} --filter topics.key --topic a --count"
        shell.done(f"{alice} 0 TRUE --matcher m --key alice.key")
        publish = f"ccbps publish x.{form} --matcher m --key feed.key {at(url, 'feed')} --state s"
        publish += " --plain --topic-field t --filter topics.key --on-error reject"
        assert "--first must be" in shell.refused(f"{publish} --first {NUMBERS}")
        assert shell.done(publish) == "published 3; rejected 0\n"
        assert bar == [1, 1, 1], "one step for each record that was accepted"
        received = shell.deliveries(f"ccbps subscribe {at(url, 'alice')} --count 2 --wait 20")
        assert [delivery["record"]["x"] for delivery in received] == [1, 3]


def test_masks_of_contents_go_along(shell: Shell) -> None:
    shell.done(
        "ccbps explain --schema 'x=UInt(8)' --scheme TagMatch --out m",
        "ccbps keygen filter --out contents.key",
    )
    # Under one key in two hundred, seven more pairs pass by chance.
    Path("contents.key").write_text(FilterKey(bytes(16)).to_text())
    shell.make_role_keys(feed="publisher", alice="subscriber")
    layout = shell.done("ccbps keygen masks --matcher m --filter contents.key").strip()
    broker = "ccbps broker --matcher m --key broker.key --local 0 --users users --masks"
    assert "name:bits:masks" in shell.refused(f"{broker} {layout}:4")
    Path("x.csv").write_text("x\n" + "".join(f"{x}\n" for x in range(0, 200, 5)))
    with served(from_json(Path("m").read_text()), masks=MaskLayout.from_text(layout)) as (url, own):
        alice = (
            f"ccbps subscribe 'x BETWEEN 17 AND 31' --matcher m --key alice.key {at(url, 'alice')}"
        )
        assert "needs one" in shell.refused(f"{alice} --count 0")
        shell.done(f"{alice} --contents contents.key --count 0")
        publish = f"ccbps publish x.csv --matcher m --key feed.key {at(url, 'feed')} --state s"
        shell.done(f"{publish} --plain --contents contents.key")
        received = shell.deliveries(f"ccbps subscribe {at(url, 'alice')} --count 3 --wait 20")
        assert [delivery["record"]["x"] for delivery in received] == [20, 25, 30]
        assert 3 <= count(own, "pairs_tested_total") < 10
    # One-time messages show none of this.
    shell.done("ccbps explain --schema 'x=UInt(8)' --scheme BroadcastMatch.box --out once")
    shell.done("ccbps keygen seed --out feed.seed")
    once = publish.replace(
        "--matcher m --key feed.key", "--matcher once --key feed.seed --ledger l"
    )
    refusal = shell.refused(f"{once} --plain --contents contents.key")
    assert "shows the broker what BroadcastMatch hides" in refusal


def test_reasons_of_a_run_that_failed_are_kept(shell: Shell) -> None:
    shell.done("ccbps explain --schema 'x=UInt(8)' --scheme TagMatch --out m")
    shell.make_role_keys(feed="publisher")
    publish = "ccbps publish x.csv --matcher m --key feed.key --state s --empty"
    with served(from_json(Path("m").read_text())) as (url, broker):
        publish += f" {at(url, 'feed')} --on-error reject --rejects r.jsonl"
        broker.take("feed")
        broker.revoke("feed")
        for bad, more in (("", ""), ("999\n", " and another --rejects FILE")):
            Path("x.csv").write_text(f"x\n{bad}5\n")
            output, _ = shell.run(publish, 2)
            assert output == f"published 0; continue with --skip 0{more}\n"
            assert Path("r.jsonl").exists() == bool(bad)


def test_bad_records_are_set_aside_and_the_others_published(shell: Shell) -> None:
    shell.done(
        "ccbps explain --schema 'x=UInt(8)' --scheme TagMatch --out m",
        "ccbps keygen filter --out topics.key",
    )
    shell.make_role_keys(feed="publisher", alice="subscriber")
    lines = ['{"x": 1, "t": "a"}', "no", '{"x": 2}', '{"x": 999, "t": "a"}', '{"x": 3, "t": "a"}']
    Path("x.jsonl").write_text("\n".join(lines))
    with served(from_json(Path("m").read_text())) as (url, _):
        alice = f"ccbps subscribe {at(url, 'alice')} --count"
        topic = "--topic a --filter topics.key"
        shell.done(f"{alice} 0 'x < 9' --matcher m --key alice.key {topic}")
        publish = f"ccbps publish x.jsonl --matcher m --key feed.key {at(url, 'feed')} --state s"
        publish += " --plain --topic-field t --filter topics.key"
        assert "x.jsonl, line 2: not a JSON object" in shell.run(publish, 2)[1]
        rejecting = f"{publish} --on-error reject --rejects r.jsonl --json"
        told = json.loads(shell.done(rejecting))
        assert told == {"published": 2, "rejected": 3, "skip": 5}
        rejected = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
        assert [each["record"] for each in rejected] == [1, 2, 3]
        assert "topic" in rejected[1]["reason"]
        assert "out of range" in rejected[2]["reason"]
        received = shell.deliveries(f"{alice} 2 --wait 20")
        assert [delivery["record"]["x"] for delivery in received] == [1, 3]
        # What was left out is not said again.
        again = f"{publish} --on-error reject --skip 4"
        assert shell.run(again) == ("published 1; rejected 0\n", "")


@pytest.mark.slow
def test_after_ctrl_c_nothing_is_missing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.done("ccbps explain --schema 'x=UInt(8)' --scheme TagMatch --out m")
    shell.make_role_keys(feed="publisher", alice="subscriber")
    Path("x.csv").write_text("x\n" + "".join(f"{number}\n" for number in range(ROWS)))
    send, calls = MqttClient.publish_later, list[int]()

    def interrupted(client: MqttClient, publication: Publication) -> Future[Receipt]:
        calls.append(publication.number)
        if len(calls) == 90:
            raise KeyboardInterrupt
        return send(client, publication)

    monkeypatch.setattr(MqttClient, "publish_later", interrupted)
    with served(from_json(Path("m").read_text())) as (url, _):
        alice = f"ccbps subscribe {at(url, 'alice')}"
        shell.done(f"{alice} TRUE --matcher m --key alice.key --count 0")
        publish = (
            f"ccbps publish x.csv --matcher m --key feed.key {at(url, 'feed')} --state s --plain"
        )
        output, _ = shell.run(publish, 130)
        done = int(output.rpartition(" ")[2])
        assert output == f"published {done}; continue with --skip {done}\n"
        assert 90 - pipeline.IN_FLIGHT <= done < 90
        assert f"published {ROWS - done}" in shell.done(f"{publish} --skip {done}")
        received = shell.deliveries(f"{alice} --wait 5")
        values = [delivery["record"]["x"] for delivery in received]
        assert {*values} == {*range(ROWS)}
        # Those on their way may come twice.
        assert len(values) <= ROWS + pipeline.IN_FLIGHT
