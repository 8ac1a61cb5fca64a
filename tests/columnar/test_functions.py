"""Encoders as functions of columns: every kind of matcher, and columns that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps.columnar.functions import event_column, interest_column
from ccbps.columnar.pairs import examine_rows
from ccbps.errors import EventError, ParameterError, PredicateError, RandomnessReuseError
from ccbps.keys.sources import FileKey
from ccbps.matching import BroadcastMatch, FormulaMatch, ObliviousTopicMatch, TagMatch
from ccbps.matching.contract.matcher import Matcher

SCHEMA = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8, nullable=True))
BOX = FormulaMatch.box(SCHEMA)
TEXT = "issue = 'IBM' AND price < 120"
LABELS = pa.array(["alice", "alice", None, "bob"])
ROUNDS = pa.array([0, 1, 2, 3])
RECORDS = pa.array(
    [
        {"price": 119, "note": "x", "issue": "IBM"},
        {"price": 121, "note": "x", "issue": "IBM"},
        {"price": 1, "note": "x", "issue": "IBM"},
        None,
    ]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


def save(path: Path, key: Any) -> FileKey:
    path.write_text(key.to_text())
    return FileKey(path)


@pytest.fixture(scope="module")
def seeds(folder: Path) -> FileKey:
    return save(folder / "seeds", SharedSeed.generate())


def decided(matcher: Matcher, events: pa.Array, interests: pa.Array, key: Any = None) -> list[Any]:
    answers, valid, causes = examine_rows(matcher, key, events, interests)
    assert not causes.any()
    return [bool(a) if v else None for a, v in zip(answers, valid, strict=True)]


def events_of(matcher: Matcher, key: FileKey, *columns: Any, reject: bool = False) -> pa.Array:
    return event_column(matcher, key, columns, reject=reject)


def interests_of(matcher: Matcher, key: FileKey, *columns: Any, reject: bool = False) -> pa.Array:
    return interest_column(matcher, key, columns, double_quoted_strings=False, reject=reject)


def test_rounds_private_constants_and_broadcasts(seeds: FileKey) -> None:
    events = events_of(BOX, seeds, LABELS, ROUNDS, RECORDS)
    interests = interests_of(BOX, seeds, LABELS, ROUNDS, pa.array([TEXT] * 4))
    assert decided(BOX, events, interests) == [True, False, None, None]

    template = FormulaMatch(SCHEMA, "price < :limit AND issue = :name")
    values = pa.array([{"name": "IBM", "other": 1, "limit": 120}] * 4)
    events = events_of(template, seeds, LABELS, ROUNDS, RECORDS)
    interests = interests_of(template, seeds, LABELS, ROUNDS, values)
    assert decided(template, events, interests) == [True, False, None, None]

    broadcast = BroadcastMatch.box(SCHEMA)
    events = events_of(broadcast, seeds, ROUNDS, RECORDS)
    interests = interests_of(broadcast, seeds, LABELS, ROUNDS, pa.array([TEXT] * 4))
    assert decided(broadcast, events, interests) == [True, False, None, None]


def test_keys_of_a_server(folder: Path) -> None:
    tags = TagMatch(SCHEMA, topic=["issue"])
    server = tags.key_server()
    sender, receiver, broker = (
        save(folder / name, key)
        for name, key in {
            "publisher": server.publisher_key(),
            "subscriber": server.subscriber_key("alice"),
            "broker": server.broker_key(),
        }.items()
    )
    events = events_of(tags, sender, RECORDS)
    interests = interests_of(tags, receiver, pa.array([TEXT, TEXT, None, TEXT]))
    assert decided(tags, events, interests, broker) == [True, False, None, None]


def test_sessions_take_numbers_and_payloads(folder: Path) -> None:
    topics = ObliviousTopicMatch(SCHEMA, ["issue"], payload_bytes=8, group="toy64")
    publisher = topics.new_publisher(["issue = 'IBM'"])
    key = save(folder / "topics", publisher.key)
    payload = pa.array([b"up", b"down", None, b"up"])
    made = events_of(topics, key, ROUNDS, RECORDS, payload)
    assert [message is None for message in made.to_pylist()] == [False, False, True, True]
    with pytest.raises(ParameterError, match="takes the columns number, record, payload; got 2"):
        events_of(topics, key, ROUNDS, RECORDS)


def test_rows_that_cannot_be_encoded_are_named_or_set_aside(seeds: FileKey) -> None:
    bad = pa.array([{"issue": "IBM", "price": price} for price in (1, 300, 2, None)])
    with pytest.raises(EventError, match=r"subscription='alice', round=1: .*price"):
        events_of(BOX, seeds, LABELS, ROUNDS, bad)
    made = events_of(BOX, seeds, LABELS, ROUNDS, bad, reject=True).to_pylist()
    assert [row["message"] is None for row in made] == [False, True, True, False]
    assert "price" in made[1]["rejected"] and "300" not in made[1]["rejected"]
    assert made[2]["rejected"] == "column 'subscription' is NULL"
    texts = pa.array([TEXT, "cost < 3", TEXT, TEXT])
    with pytest.raises(PredicateError, match="subscription='alice', round=1: "):
        interests_of(BOX, seeds, LABELS, ROUNDS, texts)
    tags = TagMatch(SCHEMA, topic=["issue"])
    key = save(Path(seeds.path).parent / "asks", tags.key_server().subscriber_key("alice"))
    with pytest.raises(PredicateError, match="row 1 of the batch: "):
        interests_of(tags, key, texts)
    with pytest.raises(RandomnessReuseError):
        events_of(BOX, seeds, LABELS, pa.array([7, 7, 1, 2]), RECORDS)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ([LABELS, ROUNDS], "takes the columns subscription, round, record; got 2"),
        ([ROUNDS, LABELS, RECORDS], "subscription must be a string, got int64; cast it"),
        ([LABELS, LABELS, RECORDS], "round must be a whole number, got string"),
        ([LABELS, ROUNDS, LABELS], "a struct with the fields issue, price, .* it has string"),
        (
            [LABELS, ROUNDS, pa.array([{"issue": "IBM", "cost": 3}] * 4)],
            "'price' is not there once: it has (issue, cost|cost, issue)",
        ),
        (
            [
                LABELS,
                ROUNDS,
                pa.array(
                    [{"issue": "IBM", "price": 3.0}] * 4,
                    pa.struct([("issue", pa.string()), ("price", pa.float32())]),
                ),
            ],
            "'price' is FLOAT",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    seeds: FileKey, columns: list[pa.Array], problem: str
) -> None:
    with pytest.raises(ParameterError, match=problem):
        events_of(BOX, seeds, *columns)
