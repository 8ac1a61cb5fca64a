"""A new scheme gets roles, key files, a row in the leakage table and conformance for free.

Its Spark functions are in `tests.spark.test_toy`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps.keys.sources import FileKey
from ccbps.matching import BranchingMatch, BroadcastMatch, FormulaMatch
from ccbps.matching.contract.access import header_bytes
from ccbps.matching.contract.scheme import PairScheme
from ccbps.testing import conformance_tests
from tests.support import toy_scheme
from tests.support.toy_scheme import ToyMatch

SCHEMA = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))


def test_the_toy_scheme_is_short() -> None:
    text = Path(toy_scheme.__file__).read_text("utf-8").split("class ToyMatch")[1]
    assert len([line for line in text.splitlines() if line.strip()]) < 60


TestToyMatch = conformance_tests(ToyMatch)


@pytest.mark.parametrize("kind", [FormulaMatch, BranchingMatch, BroadcastMatch])
@pytest.mark.parametrize("front", [0, 1, 8, 23])
def test_the_fast_path_past_headers_answers_as_match_pairs(
    kind: type[FormulaMatch | BranchingMatch | BroadcastMatch], front: int
) -> None:
    matcher, seed, rounds = kind.box(SCHEMA), SharedSeed.generate(), range(300)
    prices = {"issue": ["IBM"] * 300, "price": [number % 256 for number in rounds]}
    events = matcher.publisher(seed).encode(prices, rounds=rounds)
    interests = matcher.subscriber(seed).encode("price < 100", rounds=rounds)
    events[7] ^= 0xFF
    interests[8] ^= 0xFF
    bodies = [messages[:, header_bytes(matcher) :] for messages in (events, interests)]
    headers = np.random.default_rng(3).integers(0, 256, (2, 300, front), dtype=np.uint8)
    whole = [np.hstack(pair) for pair in zip(headers, bodies, strict=True)]
    wanted = matcher.match_pairs(*(np.ascontiguousarray(rows) for rows in bodies))
    assert 0 < wanted[0].sum() < 300
    heads = np.zeros_like(headers)
    for found in (
        matcher.match_pairs(*bodies),
        matcher.match_behind(whole[0], whole[1], heads),
        PairScheme.match_behind(matcher, whole[0], whole[1], np.zeros_like(headers)),
    ):
        assert np.array_equal(found[0], wanted[0])
        assert np.array_equal(found[1], wanted[1])
    assert np.array_equal(heads, headers)


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
    assert row_of(matcher, None)[:2] == ["[ToyMatch](#toymatch): computational, reusable", "=, and"]
    assert "- which messages are equal" in card_of(matcher)
