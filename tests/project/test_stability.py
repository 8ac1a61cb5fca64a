"""The page on stability: its versions are those of the code."""

from __future__ import annotations

from pathlib import Path

from ccbps import wire
from ccbps.broker import messages, store
from ccbps.delivery import group_protocol, naive, policies
from ccbps.functional import keys as functional
from ccbps.keys import text_form
from ccbps.matching.session import layout
from ccbps.overlay.routing import router
from ccbps.store import index

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stability.md"
VERSIONS = {
    "messages of one-time matchers": str(wire.ROUND_VERSION),
    "messages with a key server": str(wire.VERSION),
    "sessions of `ObliviousTopicMatch`": str(layout.WIRE_VERSION),
    "payloads, group delivery": f"{naive.VERSION}, {group_protocol.VERSION}",
    "messages to and from `MatchingBroker`": str(messages.VERSION),
    "functional encryption, routing, labels, P3S": str(functional.VERSION),
    "keys as text": str(text_form.VERSION),
    "the broker's file": str(store._VERSION),
    "message stores": index.FORMAT.split()[-1],
}


def test_the_versions_on_the_page_are_those_of_the_code() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith("| ") and line.count("|") == 4
    ]
    told = {row[0]: row[2] for row in rows}
    assert {name: told.get(name) for name in VERSIONS} == VERSIONS
    assert functional.VERSION == router.VERSION == policies.VERSION
    assert index.FORMAT in PAGE.read_text("utf-8")
    assert f"`ccbps-<kind>-{text_form.VERSION}:`" in PAGE.read_text("utf-8")
