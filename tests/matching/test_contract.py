"""A new scheme gets roles, key files, a row in the leakage table and conformance for free.

Its Spark functions are in `tests.spark.test_toy`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ccbps import Category, Schema, UInt
from ccbps.keys.sources import FileKey
from tests.support import toy_scheme
from tests.support.conformance import CHECKS, cases
from tests.support.toy_scheme import ToyMatch

SCHEMA = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))


def test_the_toy_scheme_is_short() -> None:
    text = Path(toy_scheme.__file__).read_text("utf-8").split("class ToyMatch")[1]
    assert len([line for line in text.splitlines() if line.strip()]) < 60


@pytest.mark.parametrize("name", [name for name in CHECKS if "catalogue" not in name])
def test_the_toy_scheme_conforms(name: str) -> None:
    made = cases(ToyMatch)
    assert made
    for case in made:
        CHECKS[name](case)


def test_the_toy_schemes_keys_go_through_files(tmp_path: Path) -> None:
    matcher = ToyMatch(SCHEMA)
    server = matcher.key_server()
    keys = {
        "publisher": server.publisher_key(),
        "subscriber": server.subscriber_key("alice"),
        "broker": server.broker_key(),
    }
    for role, key in keys.items():
        (tmp_path / role).write_text(key.to_text())
    publisher, subscriber, broker = (
        make(FileKey(tmp_path / role).load())
        for make, role in (
            (matcher.publisher, "publisher"),
            (matcher.subscriber, "subscriber"),
            (matcher.broker, "broker"),
        )
    )
    events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [3, 4]})
    interests = subscriber.encode(["issue = 'IBM' AND price = 3"])
    assert broker.match_all(events, interests).tolist() == [[True], [False]]


def test_the_toy_scheme_gets_its_row_and_card_in_the_leakage_table() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
    try:
        from leakage_table import card_of, row_of
    finally:
        sys.path.pop(0)
    matcher = ToyMatch(SCHEMA)
    assert row_of(matcher, None)[:2] == [
        "[ToyMatch](#toymatch): computational, reusable",
        "=, and",
    ]
    assert "- which messages are equal" in card_of(matcher)
