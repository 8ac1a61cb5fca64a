"""Reusable matchers through Spark: all pairs of events and subscriptions, keys by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, SharedSeed, UInt, matching
from ccbps import spark as cs
from ccbps.errors import DecodeError, ParameterError
from ccbps.matching import AdditiveMaskMatch, BranchingMatch, ObliviousTopicMatch
from ccbps.matching.reusable import ReusableMatcher
from ccbps.spark import reusable

pytestmark = pytest.mark.spark

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM"]), price=UInt(12))
MATCHER = AdditiveMaskMatch(SCHEMA)
PREDICATES = ["issue = 'IBM'", "price < 1000 AND issue = 'AAPL'", "price BETWEEN 5 AND 3000"]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, cs.KeySource]:
    """The three parties' keys, in files that the workers can read."""
    server, folder = MATCHER.key_server(), tmp_path_factory.mktemp("keys")
    found: dict[str, cs.KeySource] = {}
    for name, key in (
        ("publisher", server.publisher_key()),
        ("subscriber", server.subscriber_key("alice")),
        ("broker", server.broker_key()),
    ):
        (folder / name).write_text(key.to_text())
        found[name] = cs.FileKey(str(folder / name))
    return found


def table(count: int) -> pa.Table:
    rng = np.random.default_rng(2)
    return pa.table(
        {
            "event": np.arange(count),
            "issue": rng.choice(["AAPL", "GOOG", "IBM"], count).tolist(),
            "price": rng.integers(0, 4096, count),
        }
    )


@pytest.fixture(scope="module")
def sides(spark: SparkSession, keys: dict[str, cs.KeySource]) -> tuple[DataFrame, DataFrame]:
    rows = [(f"s{i}", text) for i, text in enumerate([*PREDICATES, None])]
    interests = spark.createDataFrame(rows, "subscription string, predicate string")
    events = spark.createDataFrame(table(200))
    return (
        cs.encrypt_events(events, MATCHER, keys["publisher"], keep=["event"]),
        cs.encrypt_interests(interests, MATCHER, keys["subscriber"]),
    )


def test_all_pairs_equal_the_plaintext_filter(
    sides: tuple[DataFrame, DataFrame], keys: dict[str, cs.KeySource]
) -> None:
    events, interests = sides
    assert events.columns == ["event", "event_message"]
    assert interests.columns == ["subscription", "interest_message"]
    found = cs.match_all(events, interests, MATCHER, keys["broker"])
    assert found.columns == ["subscription", "event"]
    got = {(r["subscription"], r["event"]) for r in found.collect()}
    wanted = {
        (f"s{i}", int(n))
        for i, text in enumerate(PREDICATES)
        for n in np.flatnonzero(SCHEMA.parse(text).evaluate(table(200)))
    }
    assert got == wanted


def test_all_pairs_of_interests_too_many_for_a_plan_are_found_in_blocks(
    sides: tuple[DataFrame, DataFrame],
    keys: dict[str, cs.KeySource],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, interests = sides
    whole = cs.match_all(events, interests, MATCHER, keys["broker"]).collect()
    monkeypatch.setattr(reusable, "PLAN_BYTES", 2 * MATCHER.interest_bytes)
    monkeypatch.setattr(reusable, "BLOCK_BYTES", 700)
    collected: list[object] = []
    monkeypatch.setattr(type(interests), "toArrow", lambda df: collected.append(df))
    found = cs.match_all(events, interests, MATCHER, keys["broker"])
    assert not collected
    assert found.columns == ["subscription", "event"]
    assert sorted(found.collect()) == sorted(whole)
    short = F.when(F.col("subscription") == "s1", F.lit(b"x")).otherwise(F.col("interest_message"))
    bad = interests.withColumn("interest_message", short)
    with pytest.raises(Exception, match="subscription='s1': the interest message has the wrong"):
        cs.match_all(events, bad, MATCHER, keys["broker"]).collect()
    kept = cs.match_all(events, bad, MATCHER, keys["broker"], on_error="drop").collect()
    assert sorted(kept) == sorted(row for row in whole if row["subscription"] != "s1")


def test_rows_that_cannot_be_encrypted_are_set_aside_or_named(
    spark: SparkSession, keys: dict[str, cs.KeySource]
) -> None:
    bad = table(6).set_column(2, "price", pa.array([1, 31415, 2, 3, -1, 4]))
    frame = spark.createDataFrame(bad).coalesce(1)
    rows = cs.encrypt_events(
        frame, MATCHER, keys["publisher"], keep=["event"], on_error="reject"
    ).collect()
    assert [row["event"] for row in rows if row["rejected"]] == [1, 4]
    assert [row["event"] for row in rows if row["event_message"] is None] == [1, 4]
    assert "attribute 'price': " in rows[1]["rejected"] and "31415" not in rows[1]["rejected"]
    texts = [*PREDICATES, "pryce < 31415", None, "issue = 'IBM'"]
    wanted = spark.createDataFrame(
        [(f"s{i}", text, "x") for i, text in enumerate(texts)],
        "subscription string, predicate string, owner string",
    ).coalesce(1)
    encrypted = cs.encrypt_interests(
        wanted, MATCHER, keys["subscriber"], keep=["owner"], on_error="reject"
    )
    assert encrypted.columns == ["subscription", "owner", "interest_message", "rejected"]
    found = {row["subscription"]: row for row in encrypted.collect()}
    assert [name for name, row in found.items() if row["interest_message"] is None] == ["s3", "s4"]
    assert [name for name, row in found.items() if row["rejected"]] == ["s3"]
    assert "31415" not in found["s3"]["rejected"] and "pryce" not in found["s3"]["rejected"]
    with pytest.raises(Exception, match="subscription='s3': unknown attribute"):
        cs.encrypt_interests(wanted, MATCHER, keys["subscriber"]).collect()
    # What is left matches as if nothing had been wrong.
    events = cs.encrypt_events(frame, MATCHER, keys["publisher"], keep=["event"], on_error="reject")
    pairs = cs.match_all(
        events.where("rejected IS NULL").drop("rejected"),
        encrypted.where("rejected IS NULL"),
        MATCHER,
        keys["broker"],
    ).collect()
    good = bad.take([0, 2, 3, 5])
    assert {(row["subscription"], row["event"]) for row in pairs} == {
        (f"s{i}", good["event"][int(n)].as_py())
        for i, text in enumerate(texts)
        if i not in (3, 4)
        for n in np.flatnonzero(SCHEMA.parse(str(text)).evaluate(good))
    }


@pytest.mark.parametrize(
    "matcher",
    [
        matching.TagMatch(SCHEMA, topic=["issue"]),
        matching.PrefixMatch(SCHEMA),
        matching.AspeMatch(SCHEMA, exact=True),
        matching.PaillierRangeMatch(SCHEMA, modulus_bits=256, toy=True),
        matching.AccessTreeMatch(SCHEMA, group="toy64"),
        matching.KeywordMatch(SCHEMA, group="toy64"),
        matching.CommutativeMatch(SCHEMA, group="secp256k1"),
        matching.KeywordFilterMatch(SCHEMA, false_positives=1e-9),
        matching.KeywordDictionaryMatch(SCHEMA),
        matching.MaskedTopicMatch(SCHEMA),
    ],
    ids=lambda matcher: type(matcher).__name__,
)
def test_each_matcher_equals_the_plaintext_filter(
    spark: SparkSession, tmp_path: Path, matcher: ReusableMatcher
) -> None:
    server = matcher.key_server()
    names = ("publisher", "subscriber", "broker")
    issued = server.publisher_key(), server.subscriber_key("alice"), server.broker_key()
    for name, key in zip(names, issued, strict=True):
        (tmp_path / name).write_text(key.to_text())
    publisher, subscriber, broker = (cs.FileKey(str(tmp_path / name)) for name in names)
    records = pa.table({"event": [0, 1, 2], "issue": ["IBM", "IBM", "GOOG"], "price": [7, 9, 7]})
    texts = ["issue = 'IBM' AND price = 7", "issue = 'GOOG' AND price = 7"]
    interests = spark.createDataFrame(
        [(f"s{i}", text) for i, text in enumerate(texts)], "subscription string, predicate string"
    )
    found = cs.match_all(
        cs.encrypt_events(spark.createDataFrame(records), matcher, publisher, keep=["event"]),
        cs.encrypt_interests(interests, matcher, subscriber),
        matcher,
        broker,
    )
    got = sorted((r["subscription"], r["event"]) for r in found.collect())
    assert got == [("s0", 0), ("s1", 2)]


def test_equal_predicates_are_encrypted_anew_and_revoked_users_match_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    matcher = matching.KeywordMatch(SCHEMA, group="toy64", trapdoors="events")
    server, frames = matcher.key_server(), []
    keys = {"publisher": server.publisher_key()}
    keys |= {name: server.subscriber_key(name) for name in ("alice", "bob")}
    server.revoke("subscriber", "bob")
    keys["broker"] = server.broker_key()
    for name, key in keys.items():
        (tmp_path / name).write_text(key.to_text())
    file = {name: cs.FileKey(str(tmp_path / name)) for name in keys}
    text = "issue = 'IBM' AND price = 7"
    for name in ("alice", "bob"):
        rows = [(f"{name}{i}", text) for i in range(2)]
        wanted = spark.createDataFrame(rows, "subscription string, predicate string").coalesce(1)
        frames.append(cs.encrypt_interests(wanted, matcher, file[name]))
    interests = spark.createDataFrame(frames[0].union(frames[1]).toArrow())
    assert interests.select("interest_message").distinct().count() == 4
    records = pa.table({"event": [0], "issue": ["IBM"], "price": [7]})
    plain = spark.createDataFrame(records)
    events = cs.encrypt_events(plain, matcher, file["publisher"], keep=["event"])
    found = cs.match_all(events, interests, matcher, file["broker"]).collect()
    assert sorted(row["subscription"] for row in found) == ["alice0", "alice1"]


def test_malformed_events_fail_the_job_or_match_nothing(
    sides: tuple[DataFrame, DataFrame], keys: dict[str, cs.KeySource]
) -> None:
    events, interests = sides
    bad = events.withColumn(
        "event_message",
        F.when(F.col("event") == 7, F.lit(b"short"))
        .when(F.col("event") == 8, F.lit(bytearray(MATCHER.event_bytes)))
        .when(F.col("event") == 9, F.lit(None))
        .otherwise(F.col("event_message")),
    )
    with pytest.raises(Exception, match=r"event=7: the event message has the wrong number"):
        cs.match_all(bad, interests, MATCHER, keys["broker"]).collect()
    kept = cs.match_all(bad, interests, MATCHER, keys["broker"], on_error="drop").collect()
    whole = cs.match_all(events, interests, MATCHER, keys["broker"]).collect()
    assert set(kept) == {row for row in whole if row["event"] not in (7, 8, 9)}


def test_malformed_interests_fail_the_job_by_name_or_match_nothing(
    sides: tuple[DataFrame, DataFrame], keys: dict[str, cs.KeySource]
) -> None:
    events, interests = sides
    for body, problem in (
        (b"short", "the interest message has the wrong number of bytes"),
        (bytes(MATCHER.interest_bytes), "are not an interest message"),
    ):
        bad = interests.withColumn(
            "interest_message",
            F.when(F.col("subscription") == "s1", F.lit(body)).otherwise(F.col("interest_message")),
        )
        with pytest.raises(Exception, match=f"subscription='s1': .*{problem}.*on_error='drop'"):
            cs.match_all(events, bad, MATCHER, keys["broker"]).collect()
        kept = cs.match_all(events, bad, MATCHER, keys["broker"], on_error="drop").collect()
        whole = cs.match_all(events, interests, MATCHER, keys["broker"]).collect()
        assert sorted(kept) == sorted(row for row in whole if row["subscription"] != "s1")


def test_each_kind_of_matcher_names_its_own_functions(
    sides: tuple[DataFrame, DataFrame], keys: dict[str, cs.KeySource]
) -> None:
    events, interests = sides
    key, box = keys["publisher"], BranchingMatch.box(SCHEMA)
    oblivious = ObliviousTopicMatch(SCHEMA, ["issue"], group="toy64")
    calls: list[tuple[str, Callable[[Any], object]]] = [
        ("encrypt_events", lambda matcher: cs.encode_events(events, matcher, key)),
        ("encrypt_events", lambda matcher: cs.encode_interests(interests, matcher, key)),
        ("match_all", lambda matcher: cs.match(events, interests, matcher)),
        ("match_all", lambda matcher: cs.match_column("a", "b", matcher)),
        ("match_all", lambda matcher: cs.publish_events(events, matcher, key)),
        ("match_all", lambda matcher: cs.open_events(events, matcher, key)),
    ]
    for names, call in calls:
        with pytest.raises(ParameterError, match=f"for AdditiveMaskMatch there are .*{names}"):
            call(MATCHER)
        with pytest.raises(ParameterError, match="matcher must be a matcher, got str"):
            call("box")
    with pytest.raises(ParameterError, match="for BranchingMatch there are encode_events"):
        cs.match_all(events, interests, box, key)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="for ObliviousTopicMatch there are publish_events"):
        cs.encrypt_events(events, oblivious, key)  # type: ignore[arg-type]


def test_many_interests_are_matched_a_few_events_at_a_time(
    sides: tuple[DataFrame, DataFrame],
    keys: dict[str, cs.KeySource],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, interests = sides
    whole = cs.match_all(events, interests, MATCHER, keys["broker"]).collect()
    # Three cells are one event at a time; the workers import the module anew, so the function is
    # called here, as a worker calls it.
    monkeypatch.setattr(reusable, "MATCH_CELLS", 3)
    captured: list[Callable[..., Any]] = []
    seen = lambda _, function, __: captured.append(function)  # noqa: E731
    monkeypatch.setattr(type(events), "mapInArrow", seen)
    cs.match_all(events, interests, MATCHER, keys["broker"])
    batches = list(captured[0](iter(events.toArrow().to_batches())))
    assert len(batches) == 200
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert sorted(found) == sorted(map(tuple, whole))


def test_keys_of_another_kind_role_or_master_are_refused(
    sides: tuple[DataFrame, DataFrame], keys: dict[str, cs.KeySource], tmp_path: Path
) -> None:
    events, interests = sides
    (tmp_path / "seed").write_text(SharedSeed.generate().to_text())
    (tmp_path / "other").write_text(MATCHER.key_server().broker_key().to_text())
    for name, problem in (
        ("seed", "a reusable matcher needs a RoleKey"),
        ("other", "made under another master key"),
    ):
        key = cs.FileKey(str(tmp_path / name))
        with pytest.raises(Exception, match=problem):
            cs.match_all(events, interests, MATCHER, key).collect()
    with pytest.raises(Exception, match="the key of a publisher, wanted a broker's"):
        cs.match_all(events, interests, MATCHER, keys["publisher"]).collect()


def test_columns_that_do_not_fit_are_refused(
    sides: tuple[DataFrame, DataFrame], keys: dict[str, cs.KeySource]
) -> None:
    events, interests = sides
    key = keys["broker"]
    with pytest.raises(ParameterError, match="on_error must be"):
        cs.match_all(events, interests, MATCHER, key, on_error="x")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="'subscription' is in both"):
        cs.match_all(events.withColumn("subscription", F.lit("a")), interests, MATCHER, key)
    with pytest.raises(ParameterError, match="'event_message' is missing"):
        cs.match_all(events.drop("event_message"), interests, MATCHER, key)
    short = interests.withColumn("interest_message", F.lit(b"x"))
    with pytest.raises(DecodeError, match="subscription='s0': the interest message has the wrong"):
        cs.match_all(events, short, MATCHER, key)


def test_no_key_enters_a_plan(
    sides: tuple[DataFrame, DataFrame],
    keys: dict[str, cs.KeySource],
    capsys: pytest.CaptureFixture[str],
) -> None:
    events, interests = sides
    cs.match_all(events, interests, MATCHER, keys["broker"]).explain(extended=True)
    plan = capsys.readouterr().out
    for key in keys.values():
        assert isinstance(key, cs.FileKey)
        secret = Path(key.path).read_text()
        assert secret not in plan
        assert secret.partition(":")[2][:40] not in plan
