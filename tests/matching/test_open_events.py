"""What a broker computes of an event whatever interests it meets, it computes once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Schema, UInt
from ccbps.ciphers.pohlig_hellman import PohligHellman
from ccbps.ciphers.proxy_search import ProxySearch
from ccbps.matching import CommutativeMatch, KeywordMatch, Matcher
from ccbps.matching.broken import AccessTreeMatch
from tests.support.reusable_checks import BODY, plain, roles

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM"]), price=UInt(4))
RECORDS = [
    {"issue": issue, "price": price} for issue in ("AAPL", "GOOG", "IBM") for price in (3, 9)
]
TOPICS = ["issue = 'IBM'", "issue = 'AAPL'", "issue = 'GOOG'"]
EQUALITIES = ["price = 3", "issue = 'IBM' AND price = 9", "issue = 'GOOG'"]

# For each scheme, the operation that is most of its work, and which argument has the rows.
SCHEMES: dict[str, tuple[Matcher, list[str], Any, str, int]] = {
    "layers": (
        CommutativeMatch(SCHEMA, ["issue"], group="toy64"), TOPICS, PohligHellman, "remove", 0,
    ),
    "keywords": (KeywordMatch(SCHEMA, group="toy64"), EQUALITIES, ProxySearch, "re_encrypt", 1),
    "keywords of events": (
        KeywordMatch(SCHEMA, group="toy64", trapdoors="events"),
        EQUALITIES, ProxySearch, "tokens", 1,
    ),
    "trees": (AccessTreeMatch(SCHEMA, group="toy64"), EQUALITIES, ProxySearch, "re_encrypt", 1),
}  # fmt: skip
every_scheme = pytest.mark.parametrize(
    ("matcher", "asked", "owner", "name", "place"), SCHEMES.values(), ids=SCHEMES
)


def counting(function: Callable[..., Any], place: int, counted: list[int]) -> Callable[..., Any]:
    def counted_call(self: Any, *arguments: Any) -> Any:
        counted.append(len(arguments[place]))
        return function(self, *arguments)

    return counted_call


@every_scheme
@pytest.mark.parametrize("block", [4096, 4])
def test_parts_of_a_table_share_it(
    matcher: Matcher,
    asked: list[str],
    owner: type,
    name: str,
    place: int,
    block: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [*asked, *asked, asked[0]]
    publisher, subscriber, broker = roles(matcher)
    events, interests = publisher.encode(RECORDS), subscriber.encode(texts)
    single, several = broker.prepare(interests), broker.prepare(interests[:4])
    several.add(interests[4:6])
    several.add(interests[6:])
    assert (len(single.parts), len(several.parts)) == (1, 3)

    counted: list[int] = []
    monkeypatch.setattr(owner, name, counting(getattr(owner, name), place, counted))
    monkeypatch.setattr("ccbps.matching.contract.broker.MATCH_ROWS", block)
    expected = plain(SCHEMA, RECORDS, texts)
    assert np.array_equal(broker.match_all(events, single), expected)
    once = sum(counted)
    counted.clear()
    assert np.array_equal(broker.match_all(events, several), expected)
    assert sum(counted) == once > 0


@pytest.mark.parametrize("side", ["interests", "events"])
def test_attributes_that_no_interest_names_are_not_touched(
    side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = KeywordMatch(SCHEMA, group="toy64", trapdoors=side)
    publisher, subscriber, broker = roles(matcher)
    events, table = publisher.encode(RECORDS), broker.prepare(subscriber.encode("issue = 'IBM'"))
    counted: list[int] = []
    name = "re_encrypt" if side == "interests" else "tokens"
    monkeypatch.setattr(ProxySearch, name, counting(getattr(ProxySearch, name), 1, counted))
    opened = matcher.open_events(broker._access.key, events[:, BODY])
    assert counted == []
    broker.match_all(events, table)
    matcher.match(broker._access.key, opened, table.parts[0].content)
    assert counted == [len(RECORDS)] * 2


def test_pairs_open_each_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = KeywordMatch(SCHEMA, group="toy64")
    publisher, subscriber, broker = roles(matcher)
    interests = subscriber.encode(["price = 3", "price = 9"])[[0, 1, 0, 1, 0, 0]]
    events = publisher.encode(RECORDS)
    counted: list[int] = []
    monkeypatch.setattr(ProxySearch, "re_encrypt", counting(ProxySearch.re_encrypt, 1, counted))
    assert broker.match(events, interests).tolist() == [True, True, True, True, True, False]
    assert sum(counted) == len(RECORDS)
