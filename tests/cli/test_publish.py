"""Many publications on their way at once: their order, a broker's patience, and its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccbps.broker import MatchingBroker, Publication, Quota, Receipt
from ccbps.cli import pipeline
from ccbps.matching import from_json
from ccbps.mqtt import LocalServer
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
    # Refused again and again: a round that comes behind a later one would be a replay.
    quota, calls = Quota(rate=60.0, burst=80.0), list[int]()
    publish = MatchingBroker.publish

    def counted(broker: MatchingBroker, name: str, sent: Publication | bytes) -> Receipt:
        calls.append(0)
        return publish(broker, name, sent)

    monkeypatch.setattr(MatchingBroker, "publish", counted)
    with served(from_json(Path("m").read_text()), quota=quota) as (url, _):
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
        assert len(calls) > ROWS
        receive = f"ccbps subscribe {at(url, 'alice')} --count {ROWS} --wait 20"
        assert [delivery["number"] for delivery in shell.deliveries(receive)] == [*range(ROWS)]


def test_publish_ends_when_it_waited_long_enough(shell: Shell) -> None:
    shell.done("ccbps explain --schema 'x=UInt(8)' --scheme TagMatch --out m")
    shell.make_role_keys(feed="publisher")
    Path("x.csv").write_text("x\n" + "5\n" * 9)
    publish = "ccbps publish x.csv --matcher m --key feed.key --state s --empty --timeout 0.3"
    with served(from_json(Path("m").read_text()), quota=Quota(rate=0.001, burst=3.0)) as (url, _):
        output, errors = shell.run(f"{publish} {at(url, 'feed')}", 2)
        assert output == "published 3; continue with --skip 3\n"
        assert "nothing was accepted for 0.3 s: more than 0.001 messages a second" in errors
    with LocalServer({"feed": "password of feed"}) as server:
        error = shell.refused(f"{publish} {at(server.url, 'feed')}")
        assert error == "no answer to publish in 0.3 s"
    assert "--timeout must be" in shell.refused(f"{publish} {at(server.url, 'feed')} --timeout -1")
