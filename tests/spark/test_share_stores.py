"""Stores of one of three brokers: what they take, what they refuse, and what is left of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ccbps import Schema, UInt
from ccbps import spark as cs
from ccbps.errors import ParameterError
from ccbps.keys import ClientKey, OperatorKey
from ccbps.matching import ThreeBrokerMatch
from ccbps.shares.clients import HEAD_BYTES, part_of
from ccbps.spark.shares import _tables
from tests.support.spark_session import reasons

pytestmark = pytest.mark.spark

SCHEMA = Schema(a=UInt(4))
MATCHER = ThreeBrokerMatch.box(SCHEMA)
KEYS = [OperatorKey.generate() for _ in range(3)]
OPERATORS = [cs.Operator.of(key, f"127.0.0.1:{7400 + n}") for n, key in enumerate(KEYS)]
CLIENT = ClientKey.generate([operator.public for operator in OPERATORS])
EVENTS = MATCHER.publisher(CLIENT).encode([{"a": n} for n in range(8)])
INTERESTS = MATCHER.subscriber(CLIENT).encode([f"a < {n}" for n in range(8)])
LABELS = [f"s{n}" for n in range(8)]
Rows = dict[Any, bytes]


def events(party: int, numbers: range) -> Rows:
    return {n: bytes(m) for n, m in enumerate(part_of(party, EVENTS)) if n in numbers}


def interests(party: int, numbers: range) -> Rows:
    rows = enumerate(part_of(party, INTERESTS))
    return {LABELS[n]: bytes(m) for n, m in rows if n in numbers}


def frame(spark: SparkSession, rows: Rows, party: int) -> DataFrame:
    name = "event long" if int in map(type, rows) else "subscription string"
    return spark.createDataFrame([*rows.items()], f"{name}, broker_{party} binary").coalesce(1)


def write(spark: SparkSession, rows: Rows, path: Path, party: int, **options: Any) -> None:
    side: dict[str, Any] = {"kind": "interest"}
    if int in map(type, rows):
        side = {"kind": "event", "round": "event"}
    df = frame(spark, rows, party)
    cs.write_messages(df, path, MATCHER, party=party, mode="append", **side, **options)


def held(sent: Any, asked: Any, party: int) -> tuple[Rows, Rows]:
    """What `match_shares` reads of both sides."""
    name = f"broker_{party}"
    tables = _tables(sent, asked, MATCHER, party, "subscription", name)
    first, second = ([*map(tuple, df.collect())] for df in tables)
    assert len(dict(first)) == len(first)
    assert len(dict(second)) == len(second)
    return dict(first), dict(second)


@pytest.mark.slow
def test_a_store_has_a_brokers_messages_until_they_are_dropped(
    spark: SparkSession, tmp_path: Path
) -> None:
    for party in (0, 1):
        sent, asked = tmp_path / f"sent-{party}", tmp_path / f"asked-{party}"
        write(spark, events(party, range(5)), sent, party)
        write(spark, interests(party, range(6)), asked, party)
        # With what a source sends again.
        write(spark, events(party, range(3, 8)), sent, party)
        write(spark, interests(party, range(5, 8)), asked, party)
        assert held(sent, asked, party) == (
            events(party, range(8)),
            interests(party, range(8)),
        )
        # Interests without an end stay.
        assert cs.drop_rounds(sent, MATCHER, kind="event", before=4) == 4
        assert cs.drop_rounds(asked, MATCHER, kind="interest", before=1 << 62) == 0
        assert cs.drop_interests(asked, MATCHER, ["s0", "s1", "s6", "s7", "s8"]) == 4
        cs.compact_messages(spark, asked, MATCHER, kind="interest")
        left = events(party, range(4, 8)), interests(party, range(2, 6))
        assert held(sent, asked, party) == left
    assert part_of(0, EVENTS).shape[1] == HEAD_BYTES

    # A new batch of events meets interests of several stores.
    write(spark, interests(1, range(2)), tmp_path / "more", 1)
    batch = frame(spark, events(1, range(3)), 1)
    found = held(batch, [asked, tmp_path / "more"], 1)
    assert found == (events(1, range(3)), interests(1, range(6)))

    # A subscription has one interest at a time.
    other = {"s3": INTERESTS[7].tobytes()}
    with pytest.raises(ParameterError, match=r"'s3', .*and this is another one; drop_interests"):
        write(spark, other, asked, 1)
    assert cs.drop_interests(asked, MATCHER, ["s3"]) == 1
    write(spark, other, asked, 1)
    assert held(sent, asked, 1)[1] == {**left[1], **other}
    write(spark, interests(1, range(3, 4)), tmp_path / "again", 1)
    with pytest.raises(
        ParameterError, match=r"'s3', .* has a message in two stores; drop_interest"
    ):
        held(sent, [asked, tmp_path / "again"], 1)

    cs.register_source(spark)
    names = [spark.read.format("ccbps").load(str(path)).columns for path in (sent, asked)]
    assert names == [["round", "broker_1"], ["subscription", "round", "broker_1"]]


def test_stores_of_another_broker_side_or_matcher_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    sent, asked = tmp_path / "sent", tmp_path / "asked"
    write(spark, events(1, range(8)), sent, 1)
    write(spark, interests(1, range(8)), asked, 1)

    def match(*sides: Any, matcher: Any = MATCHER, party: int = 1) -> DataFrame:
        return cs.match_shares(
            *sides,
            matcher,
            cs.FileKey("/nowhere"),
            party=party,
            operators=OPERATORS,
            hellos=[],
            job="test",
            partitions=1,
        )

    assert match(sent, str(asked)).columns == ["subscription", "round"]
    assert match(frame(spark, events(1, range(2)), 1), [asked]).columns == ["subscription", "event"]
    with pytest.raises(ParameterError, match=r"events='.*sent' holds messages for broker 1, not 2"):
        match(sent, asked, party=2)
    with pytest.raises(ParameterError, match="asked' holds interest messages, not event messages"):
        match(asked, asked)
    with pytest.raises(ParameterError, match="sent' holds messages of another matcher"):
        match(sent, asked, matcher=ThreeBrokerMatch.box(Schema(a=UInt(5))))
    with pytest.raises(ParameterError, match="interests names the same store twice"):
        match(sent, [asked, asked])
    with pytest.raises(ParameterError, match="sent' holds messages for broker 1, not 2"):
        write(spark, events(2, range(8)), sent, 2)
    with pytest.raises(ParameterError, match=f"the message has {HEAD_BYTES} bytes; messages of"):
        write(spark, events(0, range(8)), tmp_path / "none", 1, message="broker_1")


def test_dropped_interests_are_not_read_and_damage_is_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    batch, asked = frame(spark, events(1, range(3)), 1), tmp_path / "asked"
    write(spark, interests(1, range(8)), asked, 1)
    assert cs.drop_interests(asked, MATCHER, ["s0", "s1"]) == 2
    assert held(batch, asked, 1) == (events(1, range(3)), interests(1, range(2, 8)))
    (part,) = asked.glob("part-*")
    content = bytearray(part.read_bytes())
    content[content.index(INTERESTS[4].tobytes()) + 60] ^= 1
    part.write_bytes(content)
    with pytest.raises(Exception, match=f"{part.name}.* damaged"):
        held(batch, asked, 1)


def test_rows_that_are_no_messages_of_a_broker_are_told(spark: SparkSession) -> None:
    rows: Rows = {
        **interests(1, range(2)),
        "s2": EVENTS[0].tobytes(),
        "s3": INTERESTS[3][:-1].tobytes(),
    }
    told = cs.check_messages(frame(spark, rows, 1), MATCHER, kind="interest", party=1)
    assert {*reasons(told, "subscription")} == {"s2", "s3"}
