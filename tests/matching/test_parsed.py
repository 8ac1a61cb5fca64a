"""Predicates are parsed once a process: what is kept, for whom, and how much of it."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from ccbps import Schema, SharedSeed, UInt
from ccbps.errors import PredicateError
from ccbps.matching import BranchingMatch
from ccbps.matching.broken import AdditiveMaskMatch
from ccbps.predicates import parsed as module
from ccbps.predicates.parsed import ParsedPredicates
from tests.support.refusals import refused

SCHEMA = Schema(a=UInt(8), b=UInt(6))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each text is read, in full or by the shape that it shares with an earlier one."""
    counts: Counter[str] = Counter()
    plain = ParsedPredicates._read

    def read(self: ParsedPredicates, schema: Schema, names: tuple[str, ...], text: str) -> object:
        counts[text] += 1
        return plain(self, schema, names, text)

    monkeypatch.setattr(ParsedPredicates, "_read", read)
    return counts


@pytest.fixture
def read_in_full(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each text goes through sqlglot."""
    counts: Counter[str] = Counter()
    plain = module.read_sql

    def read(schema: Schema, text: str) -> object:
        counts[text] += 1
        return plain(schema, text)

    monkeypatch.setattr(module, "read_sql", read)
    return counts


def test_roles_of_one_process_parse_a_text_once(parsed: Counter[str]) -> None:
    texts = [f"a < {200 + i} AND b >= 13" for i in range(20)]
    box, masks = BranchingMatch.box(SCHEMA), AdditiveMaskMatch(SCHEMA)
    server = masks.key_server()
    for batch in range(3):
        # A worker makes its roles anew for each batch.
        box.subscriber(SharedSeed.generate()).encode(texts, range(batch, batch + 20))
        masks.subscriber(server.subscriber_key("alice")).encode(texts)
    assert parsed == dict.fromkeys(texts, 1)


def test_another_schema_of_the_same_names_parses_anew(parsed: Counter[str]) -> None:
    kept, other = ParsedPredicates(100), Schema(a=UInt(4), b=UInt(6))
    assert kept.parse(SCHEMA, "a < 3").schema == SCHEMA
    assert kept.parse(other, "a < 3").schema == other
    assert kept.parse(Schema(a=UInt(4), b=UInt(6)), "a < 3").schema == other
    assert parsed["a < 3"] == 2
    assert len(kept) == 1


def test_the_oldest_texts_go_first_and_long_ones_are_not_kept(parsed: Counter[str]) -> None:
    kept = ParsedPredicates(20)
    for text in ("a < 1", "a < 2", "a < 3", "a < 4", "a < 1", "a < 5", "a < 1", "a < 2"):
        kept.parse(SCHEMA, text)
    assert parsed == {"a < 1": 1, "a < 2": 2, "a < 3": 1, "a < 4": 1, "a < 5": 1}
    long = "a < 1 AND b < 2 AND a < 3"
    for _ in range(2):
        kept.parse(SCHEMA, long)
    assert parsed[long] == 2
    assert len(kept) == 4


def test_what_is_refused_is_refused_again() -> None:
    kept = ParsedPredicates(100)
    for _ in range(2):
        refused(PredicateError, "closest is 'a'", kept.parse, SCHEMA, "aa < 3")
    assert len(kept) == 0


def test_threads_share_what_is_parsed() -> None:
    kept = ParsedPredicates(60)
    texts = [f"a < {i}" for i in range(30)] * 10
    with ThreadPoolExecutor(4) as pool:
        predicates = list(pool.map(lambda text: kept.parse(SCHEMA, text), texts))
    assert [predicate.text for predicate in predicates] == texts
    assert 0 < len(kept) <= 12


def test_form_and_box_are_found_once_and_nothing_is_shown() -> None:
    predicate = SCHEMA.parse("a BETWEEN 3 AND 77")
    assert predicate.true_form() is predicate.true_form()
    predicate.box().ranges["a"] = (0, 0)
    assert predicate.box().ranges == {"a": (3, 77), "b": (0, 63)}
    kept = ParsedPredicates(100)
    kept.parse(SCHEMA, "a = 77")
    assert "77" not in repr(kept)


def test_texts_of_one_shape_are_read_in_full_once(read_in_full: Counter[str]) -> None:
    kept = ParsedPredicates(10_000)
    texts = [f"a < {i} AND b IN (:x, {i % 7}, 5)" for i in range(100)]
    for text in texts:
        assert kept.parse(SCHEMA, text).expression == SCHEMA.parse(text).expression
    assert read_in_full == {texts[0]: 1}
    # Another schema of the same names, a literal in the structure, another kind of literal.
    other = Schema(a=UInt(4), b=UInt(6))
    kept.parse(other, "a < 1 AND b IN (:x, 1, 5)")
    kept.parse(SCHEMA, "at_least(1, a < 3, b < 4)")
    kept.parse(SCHEMA, "at_least(2, a < 3, b < 4)")
    refused(PredicateError, "numbers", kept.parse, SCHEMA, "a < '1' AND b IN (:x, 1, 5)")
    assert read_in_full.total() == 5


def test_shapes_are_bounded_as_texts_are(read_in_full: Counter[str]) -> None:
    kept = ParsedPredicates(12)
    for text in ("a < 1", "b < 1", "a > 1", "a < 2"):
        kept.parse(SCHEMA, text)
    assert read_in_full == {"a < 1": 1, "b < 1": 1, "a > 1": 1, "a < 2": 1}
