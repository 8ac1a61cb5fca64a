"""Delivery to groups in DataFrames: batch, streams, failures, and what Spark's files hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ccbps import SharedSeed
from ccbps import spark as cs
from ccbps.delivery import (
    BuildUpCache,
    ClusteredPopularCache,
    Clusters,
    GroupSealer,
    KeyHierarchy,
    Naive,
    SimpleCache,
    Strategy,
    SubscriberKey,
    SubscriberRing,
    pack_groups,
)
from ccbps.delivery.group_protocol import GroupMessage
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    KeyMismatchError,
    ParameterError,
    RandomnessReuseError,
)
from ccbps.keys import SigningKey
from ccbps.spark.group_state import Opening, Sealing
from ccbps.spark.groups import _PROVIDER, _ROCKS
from tests.spark.key_search import found_in, needles, pieces, secrets_of, unzipped
from tests.support.spark_session import MODE, changed, contents, drained, stored

pytestmark = pytest.mark.spark

N = 7
CLUSTERS = Clusters([[0, 1, 2, 3], [4, 5, 6]])
STRATEGIES: dict[str, Strategy] = {
    "naive": Naive(N),
    "simple": SimpleCache(N, 20),
    "build-up": BuildUpCache(N, 20),
    "clustered-popular": ClusteredPopularCache(CLUSTERS, 5, 10),
    "hierarchy": KeyHierarchy(N),
}
POPULAR = [[0, 1, 2], [3, 4, 5, 6], [0, 6], [2], []]


class Parties:
    """A broker's state and its subscribers' keys, in files."""

    def __init__(self, folder: Path) -> None:
        self.paths = folder / "broker", folder / "subscribers"
        self.sealer = GroupSealer(Naive(N), save=None)
        self.keys = [self.sealer.join(i) for i in range(N)]
        self.save()

    def save(self) -> None:
        for path, text in zip(
            self.paths,
            (self.sealer.state.to_text(), SubscriberRing.of(self.keys).to_text()),
            strict=True,
        ):
            new = path.with_suffix(".new")
            new.write_text(text)
            new.replace(path)

    @property
    def broker(self) -> cs.FileKey:
        return cs.FileKey(self.paths[0])

    @property
    def subscribers(self) -> cs.FileKey:
        return cs.FileKey(self.paths[1])

    def seal(self, df: DataFrame, **options: Any) -> DataFrame:
        return cs.seal_for_groups(df, SimpleCache(N, 20), self.broker, **options)

    def open(self, df: DataFrame, **options: Any) -> DataFrame:
        return cs.open_from_groups(df, self.subscribers, **options)

    def secrets(self, groups: dict[int, list[int]] | None = None) -> list[bytes]:
        """Of all, as they may stand in files; with the keys of these groups."""
        some = [group for group in (groups or {}).values() if group]
        keys = [self.sealer.state, *self.keys]
        return needles(pieces(secret for key in keys for secret in secrets_of(key, some)))


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return Parties(tmp_path)


@pytest.fixture
def rocks(spark: SparkSession) -> Iterator[None]:
    with changed(spark, {_PROVIDER: _ROCKS}):
        yield


def handled(processor: Sealing | Opening, key: int | None, rows: list[Row]) -> list[Row]:
    """What a processor makes of rows, without Spark and without a state from before."""
    state = Mock(exists=lambda: False)
    processor.init(Mock(getValueState=lambda name, schema: state))
    return list(processor.handleInputRows((key,), iter(rows), None))


Groups = dict[int, list[int]]


def groups_of(first: int, events: int, seed: int = 1) -> Groups:
    rng = np.random.default_rng(seed)
    return {
        first + n: POPULAR[rng.integers(len(POPULAR))]
        if rng.random() < 0.7
        else np.flatnonzero(rng.random(N) < 0.5).tolist()
        for n in range(events)
    }


def frame(spark: SparkSession, groups: Groups) -> DataFrame:
    rows = [(event, members, b"event %d" % event) for event, members in groups.items()]
    return spark.createDataFrame(rows, "event long, members array<int>, payload binary")


def wanted(groups: Groups) -> set[tuple[int, int, bytes]]:
    return {(event, one, b"event %d" % event) for event, ones in groups.items() for one in ones}


def read(opened: DataFrame) -> list[tuple[int, int, bytes]]:
    rows = opened.where("payload IS NOT NULL").collect()
    return [(row.event, row.subscriber, bytes(row.payload)) for row in rows]


def test_events_open_in_whatever_order_they_were_sealed(
    spark: SparkSession, parties: Parties
) -> None:
    """The key of a group comes with the event that was sealed first, not with the first event."""
    group = pack_groups(np.isin(range(N), [0, 1, 2]))
    sealer = GroupSealer(SimpleCache(N, 20), parties.sealer.state)
    sealed = {n: sealer.seal(b"event %d" % n, n, group) for n in [*range(20, 40), *range(20)]}
    rows = [(n, one, m.for_subscriber(one)) for n, m in sealed.items() for one in range(3)]
    df = spark.createDataFrame(rows, "event long, subscriber long, message binary")
    opened = parties.open(df)
    assert set(read(opened)) == wanted({n: [0, 1, 2] for n in range(40)})
    # One that waited too long would be refused as too old: it asks for its key in time.
    few = parties.open(df, remember=5).collect()
    assert len(few) == 120
    assert {row.event for row in few if row.request is not None} == {*range(16)}


@pytest.mark.slow
def test_rows_of_one_member_each_are_groups(spark: SparkSession, parties: Parties) -> None:
    groups = groups_of(0, 40)
    rows = [(n, one, b"event %d" % n) for n, members in groups.items() for one in members]
    df = spark.createDataFrame(rows, "event long, member int, payload binary")
    sealed = parties.seal(df.repartition(3), members="member").persist()
    opened = parties.open(sealed)
    assert set(read(opened)) == wanted(groups)
    texts = {row.event: bytes(row.message) for row in sealed.collect()}
    # As few encryptions as with arrays: a wrap for a group that has been before, not for each one.
    whole = parties.seal(frame(spark, groups))
    assert len(texts) == whole.select("event").distinct().count()
    assert sum(map(len, texts.values())) == sum(
        {row.event: len(row.message) for row in whole.collect()}.values()
    )
    bad = df.limit(1).selectExpr("event", "CAST(NULL AS int) AS member", "payload")
    refused = parties.seal(bad, members="member", on_error="reject")
    assert ["members must be" in row.rejected for row in refused.collect()] == [True]
    again = [(900, 0, b"x"), (900, 0, b"x"), (900, 1, b"x"), (None, 2, b"y"), (None, 2, b"y")]
    told = parties.seal(
        spark.createDataFrame(again, df.schema),
        members="member",
        on_error="reject",
    ).collect()
    aside = [(row.event, row.subscriber) for row in told if row.rejected and row.event]
    assert aside == [(900, 0)] * 2
    assert [(row.event, row.subscriber) for row in told if row.message] == [(900, 1)]
    with pytest.raises(RandomnessReuseError, match=r"member \d occurs 2 times"):
        parties.seal(df.union(df), members="member")


@pytest.mark.parametrize(
    "name",
    [
        # Strategies themselves are tested without Spark.
        pytest.param(name, marks=[] if name in ("simple", "hierarchy") else pytest.mark.slow)
        for name in STRATEGIES
    ],
)
def test_members_open_what_was_sealed_for_them(
    spark: SparkSession, parties: Parties, name: str, tmp_path: Path
) -> None:
    groups = groups_of(0, 60)
    sealed = cs.seal_for_groups(
        frame(spark, groups), STRATEGIES[name], parties.broker, lanes=2, pad_to=16
    )
    assert sealed.columns == ["event", "subscriber", "message"]
    sealed = stored(sealed, tmp_path / "sealed")  # messages are made once
    opened = parties.open(sealed, capacity=2).localCheckpoint()
    found = read(opened)
    missing = opened.where("request IS NOT NULL").drop("payload")
    assert (missing.count() > 0) == (name != "naive")
    assert len(found) + missing.count() == sealed.count()
    answered = cs.answer_key_requests(missing.join(sealed, ["event", "subscriber"]), parties.broker)
    late = parties.open(answered, answer="answer", capacity=2)
    found += read(late)
    assert len(found) == len({*found})
    assert {*found} == wanted(groups)


def test_equal_groups_take_one_wrap_whatever_their_lane(
    spark: SparkSession, parties: Parties
) -> None:
    groups = {n: POPULAR[n % 3] for n in range(30)}
    for lanes in (1, 3):
        sealed = parties.seal(frame(spark, groups), lanes=lanes, pad_to=16)
        sizes = [len(row.message) for row in sealed.select("message").collect()]
        # Messages that carry a group's key are longer: one for each member of the three groups.
        assert len({*sizes}) == 2
        assert sizes.count(max(sizes)) == sum(map(len, POPULAR[:3]))


def stream(
    spark: SparkSession, parties: Parties, folder: Path, strategy: Strategy, fail_at: int = -1
) -> None:
    """Seal all files that are there and were not sealed yet; each batch is a folder of its own."""
    source = (
        spark.readStream.schema("event long, members array<int>, payload binary")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "events"))
    )
    sealed = cs.seal_for_groups(source, strategy, parties.broker, pad_to=16)

    def keep(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(folder / "sealed" / f"batch={number}"))
        if number == fail_at:
            raise OSError("after the write, before the commit")

    drained(sealed, folder, keep)


def add(spark: SparkSession, folder: Path, groups: Groups) -> None:
    frame(spark, groups).coalesce(1).write.mode("append").parquet(str(folder / "events"))


@pytest.mark.slow
@pytest.mark.skipif(MODE == "connect", reason="foreachBatch there runs in another process")
@pytest.mark.usefixtures("rocks")
def test_streams_remember_keys_and_lose_nothing_when_they_fail(
    spark: SparkSession, parties: Parties, tmp_path: Path, seed: SharedSeed
) -> None:
    """The cache outlives batches, a failure and a restart; who leaves and joins is known from the
    next batch on; and no key is in any file."""
    everything: Groups = {}

    def send(groups: Groups, fail: bool = False) -> list[int]:
        """Sizes of the messages."""
        add(spark, tmp_path, groups)
        number = len([*(tmp_path / "sealed").glob("*")])
        if fail:
            with pytest.raises(Exception, match="before the commit"):
                stream(spark, parties, tmp_path, SimpleCache(N, 20), fail_at=number)
        stream(spark, parties, tmp_path, SimpleCache(N, 20))
        everything.update(groups)
        batch = spark.read.parquet(str(tmp_path / "sealed" / f"batch={number}"))
        return [len(row.message) for row in batch.collect()]

    first = send({0: [0, 1, 2], 1: [0, 1, 2]})
    short, long = min(first), max(first)
    assert sorted(first) == [short] * 3 + [long] * 3
    assert send({2: [0, 1, 2]}) == [short] * 3
    assert send({3: [0, 1, 2], 4: [1, 3]}, fail=True).count(long) == 2
    assert send({5: [1, 3]}) == [short] * 2
    # Number 1 goes, and somebody else gets it: the groups' keys are new ones.
    old = parties.keys[1]
    parties.sealer.leave(1)
    parties.keys[1] = parties.sealer.join(1)
    parties.save()
    later = {6: [1, 3], 7: [0, 2]}
    assert send(later).count(long) == 4

    # Copies of events are dropped.
    sealed = spark.read.parquet(str(tmp_path / "sealed")).drop("batch")
    sealed = sealed.union(sealed.where("event < 3")).localCheckpoint()
    after = sealed.where(F.col("event").isin([*later]))
    assert {*read(parties.open(after))} == wanted(later)
    before = sealed.where(~F.col("event").isin([*later]))
    parties.keys[1] = old
    parties.save()
    found = read(parties.open(before))
    assert {*found} == wanted({n: g for n, g in everything.items() if n not in later})
    left = [*unzipped(contents(tmp_path))]
    assert any("checkpoint" in path.parts and path.suffix == ".zip" for path, _ in left)
    assert {*found_in(left, parties.secrets(everything))} == {*parties.paths}
    # That the search reads the state: what a cache says of itself stands there.
    found = [path for path, content in left if b"frequency" in content]
    assert found
    assert all("state" in path.parts for path in found)


@pytest.mark.slow
@pytest.mark.skipif(MODE == "connect", reason="one kind of session is enough")
@pytest.mark.usefixtures("rocks")
def test_subscribers_remember_keys_between_batches(
    spark: SparkSession, parties: Parties, tmp_path: Path
) -> None:
    groups = {n: [0, 1, 2] for n in range(2)}
    sealed = parties.seal(frame(spark, groups), pad_to=16)
    rows = {event: [r for r in sealed.collect() if r.event == event] for event in groups}
    schema = sealed.schema

    def receive(batch: DataFrame) -> None:
        batch.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        source = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
        drained(parties.open(source), tmp_path)

    for event in groups:
        receive(spark.createDataFrame(rows[event], schema))
    assert {*read(spark.read.parquet(str(tmp_path / "out")))} == wanted(groups)
    # Somebody else gets number 1, whose cache is in the state.
    before, old = parties.secrets(groups), parties.keys[1]
    parties.sealer.leave(1)
    parties.keys[1] = new = parties.sealer.join(1)
    parties.save()
    later = {7: [0, 1]}
    receive(parties.seal(frame(spark, later)))
    found = {*read(spark.read.parquet(str(tmp_path / "out")))}
    assert found == wanted(groups) | wanted(later)
    parties.keys[1] = old
    parties.save()
    # Without the first event, which brought the key, they would have to ask.
    late = parties.open(spark.createDataFrame(rows[1], schema))
    assert late.where("request IS NOT NULL").count() == 3
    left = [*unzipped(contents(tmp_path / "checkpoint"))]
    kept = [content for path, content in left if "state" in path.parts]
    assert any(b"snapshot" in content for content in kept), "the state can be read"
    parties.keys[1] = new
    assert found_in(left, [*before, *parties.secrets(groups | later)]) == []


def test_a_number_that_changed_hands(spark: SparkSession, parties: Parties) -> None:
    """A group that was found before is not the newcomer's."""
    epoch = max(parties.sealer.since(one) for one in range(N))
    parties.sealer.leave(1)
    parties.keys[1] = parties.sealer.join(1)
    parties.save()
    df = frame(spark, {0: [0, 1], 1: [1]}).withColumn("epoch", F.lit(epoch))
    sealed = parties.seal(df, as_of="epoch", on_error="reject").collect()
    found = {(row.event, row.subscriber): row.rejected for row in sealed}
    assert {one for one, reason in found.items() if reason is None} == {(0, 0)}
    assert {one for one, reason in found.items() if reason} == {(0, 1), (1, 1)}
    # To the epoch.
    since, sealing = parties.sealer.since(1), Sealing(Naive(N), parties.broker, 16, True, False)
    rows = [Row(event=n, members=[1], payload=b"", as_of=since - 1 + n) for n in range(2)]
    assert [row.rejected is None for row in handled(sealing, 0, rows)] == [False, True]


def test_events_are_signed_together_and_verified(
    spark: SparkSession, parties: Parties, tmp_path: Path
) -> None:
    key = SigningKey.generate()
    (tmp_path / "signing").write_text(key.to_text())
    groups = groups_of(0, 12)
    sealed = parties.seal(frame(spark, groups), sign=cs.FileKey(tmp_path / "signing")).persist()
    opened = parties.open(sealed, verify=key.identity)
    assert {(row.event, row.subscriber, row.payload) for row in opened.collect()} == wanted(groups)
    proofs = [GroupMessage.from_bytes(bytes(row.message)).proof for row in sealed.collect()]
    assert all(proofs) and len({proof.signature for proof in proofs if proof}) == 1
    with pytest.raises(ParameterError, match="identity must be 32 bytes"):
        parties.open(sealed, verify=b"short")
    sealed.unpersist()


def test_events_of_another_sender_are_set_aside(parties: Parties) -> None:
    (message, *_) = handled(
        Sealing(Naive(N), parties.broker, 16, False, False),
        0,
        [Row(event=0, members=[0], payload=b"forged", as_of=None)],
    )
    row = Row(event=0, subscriber=0, message=message.message, answer=None)
    identity = SigningKey.generate().identity
    (aside,) = handled(Opening(parties.subscribers, 9, 9, True, identity), 0, [row])
    assert aside.payload is None and "not signed by the owner of the identity" in aside.rejected


def test_rows_that_cannot_be_used_are_set_aside(spark: SparkSession, parties: Parties) -> None:
    parties.sealer.leave(5)
    parties.save()
    rows = [
        (0, [0, 1], b"good"),
        (None, [0, 1], b"no event"),
        (1, None, b"no members"),
        (2, [0, 1], None),
        (3, [0, 5], b"somebody left"),
        (4, [0, N], b"nobody"),
        (5, [0, None], b"who"),
        (6, [1, 1], b"twice"),
        (7, [], b"for nobody"),
        (-8, [1], b"negative"),
    ]
    df = spark.createDataFrame(rows, "event long, members array<long>, payload binary")
    sealed = parties.seal(df, on_error="reject")
    found = sealed.collect()
    reasons = {row.event: row.rejected for row in found if row.rejected and not row.subscriber}
    assert {k: v.split(":")[0] for k, v in reasons.items()} == {
        None: "event, members or payload is NULL",
        1: "event, members or payload is NULL",
        2: "event, members or payload is NULL",
        4: "members must be numbers 0 .. 6, got 7",
        5: "members must be numbers 0 .. 6, got None",
        -8: "event must be a whole number, at least 0, got -8",
    }
    good = [row for row in found if not row.rejected]
    assert [(row.event, row.subscriber) for row in good] == [(0, 0), (0, 1), (3, 0), (6, 1)]
    # One who left does not keep the others from their event.
    left = [(row.event, row.subscriber) for row in found if row.rejected and row.subscriber]
    assert left == [(3, 5)]
    sealing = Sealing(SimpleCache(N, 4), parties.broker, pad_to=16, reject=False, pairs=False)
    nobody = Row(event=4, members=[0, N], payload=b"nobody", as_of=None)
    with pytest.raises(ParameterError, match=r"event 4: members must be numbers 0 \.\. 6, got 7"):
        handled(sealing, 0, [nobody])

    messages = [(row.event, row.subscriber, bytes(row.message)) for row in good]
    event, one, message = messages[0]
    bad = [
        (event, one, message[:-2] + bytes([message[-2] ^ 1]) + message[-1:]),
        (event, one, message),
        (event, one, message),  # again
        (event, one, None),
        (event, None, message),
        (event, 1, message),  # another's
    ]
    altered = spark.createDataFrame(bad, "event long, subscriber long, message binary").coalesce(1)
    opened = parties.open(altered, on_error="reject")
    outcome = [(row.subscriber, row.payload, row.rejected) for row in opened.collect()]
    assert sorted(str(reason).split(":")[0] for _, _, reason in outcome) == [
        "None",
        "a message to a group that this subscriber is not in",
        "a message to a group was altered, or is of another key",
        "event 0 is refused as a replay",
        "message is NULL",
        "subscriber is NULL",
    ]
    assert [bytes(p) for _, p, _ in outcome if p] == [b"good"]
    opening = Opening(parties.subscribers, capacity=9, remember=9, reject=False)
    forged = Row(event=event, subscriber=one, message=bad[0][2], answer=None)
    with pytest.raises(DecodeError, match=r"event 0, subscriber 0: a message to a group was alter"):
        handled(opening, one, [forged])

    requests = spark.createDataFrame([(b"junk",), (None,)], "request binary")
    answers = cs.answer_key_requests(requests, parties.broker, on_error="reject").collect()
    assert [(row.answer, row.rejected is None) for row in answers] == [(None, False), (None, True)]
    with pytest.raises(Exception, match="not a request for a key"):
        cs.answer_key_requests(requests, parties.broker).collect()


def test_a_repeated_event_number_of_a_batch_is_set_aside(
    spark: SparkSession, parties: Parties
) -> None:
    rows = [(0, [0, 1], b"one"), (0, [2], b"another"), (1, [3], b"good"), (None, [4], b"none")]
    df = spark.createDataFrame(rows, "event long, members array<long>, payload binary")
    sealed = parties.seal(df, on_error="reject")
    assert sealed.columns == ["event", "subscriber", "message", "rejected"]
    found = sealed.collect()
    assert [(row.event, row.subscriber) for row in found if row.message] == [(1, 3)]
    reasons = [(row.event, row.subscriber, row.rejected) for row in found if row.rejected]
    assert sorted(reasons, key=str) == [
        (0, None, "the number occurs more than once"),
        (0, None, "the number occurs more than once"),
        (None, None, "event, members or payload is NULL"),
    ]


def test_arguments_are_checked(spark: SparkSession, parties: Parties, seed: SharedSeed) -> None:
    df, simple = frame(spark, {0: [0]}), SimpleCache(N, 4)
    for arguments, said in (
        ({"strategy": "simple"}, "strategy must be a Strategy, got str"),
        ({"state": seed}, "key must be a KeySource"),
        ({"lanes": 0}, "lanes must be a whole number, at least 1, got 0"),
        ({"pad_to": 0}, "pad_to"),
        ({"on_error": "drop"}, "on_error"),
        ({"members": "group"}, "column 'group' is missing"),
        ({"members": "payload"}, "must be an array of whole numbers, or one, got binary"),
        ({"event": "payload"}, "whole number"),
    ):
        with pytest.raises(ParameterError, match=said):
            cs.seal_for_groups(df, **{"strategy": simple, "state": parties.broker} | arguments)
    with pytest.raises(RandomnessReuseError, match="event 0 occurs 2 times"):
        cs.seal_for_groups(df.union(df), simple, parties.broker)


def test_keys_that_do_not_fit_are_refused(spark: SparkSession, parties: Parties) -> None:
    for state, said in (
        (parties.subscribers, "holds a SubscriberRing; this needs the text of a GroupSealer"),
        (parties.broker, "strategy is for 8 subscribers, state for 7"),
    ):
        with pytest.raises(CcbpsError, match=said):
            handled(Sealing(Naive(N + 1), state, 16, False, False), 0, [])
    sealing = Sealing(SimpleCache(N, 4), parties.broker, 16, False, False)
    (sealed,) = handled(sealing, 0, [Row(event=0, members=[0], payload=b"event 0", as_of=None)])
    message = Row(event=0, subscriber=0, message=sealed.message, answer=None)
    with pytest.raises(
        CcbpsError, match="holds a BrokerState; this needs the text of a Subscriber"
    ):
        handled(Opening(parties.broker, 9, 9, False), 0, [message])
    parties.paths[1].write_text(SubscriberRing.of([parties.keys[3]]).to_text())
    with pytest.raises(DecodeError, match="no key of subscriber 0 among the 1 of this ring"):
        handled(Opening(parties.subscribers, 9, 9, False), 0, [message])
    (row,) = handled(Opening(parties.subscribers, 9, 9, True), 0, [message])
    assert "no key of subscriber 0" in row.rejected
    parties.paths[1].write_text(parties.keys[0].to_text())
    (row,) = handled(Opening(parties.subscribers, 9, 9, False), 0, [message])
    assert (row.payload, row.request) == (b"event 0", None)


def test_a_stream_without_rocks_is_refused(spark: SparkSession, parties: Parties) -> None:
    rates = spark.readStream.format("rate").load()
    source = rates.selectExpr("value AS event", "array(0) AS members", "'x' AS payload")
    with (
        changed(spark, {_PROVIDER: _ROCKS.replace("RocksDB", "HDFSBacked")}),
        pytest.raises(ParameterError, match=r"needs RocksDB: spark.conf.set"),
    ):
        parties.seal(source)


def test_key_texts_of_other_kinds_are_refused(parties: Parties) -> None:
    state, ring = parties.sealer.state.to_text(), SubscriberRing.of(parties.keys).to_text()
    with pytest.raises(KeyMismatchError, match="this is a broker's state for delivery"):
        SubscriberKey.from_text(state)
    with pytest.raises(KeyMismatchError, match="damaged"):
        SubscriberRing.from_text(ring[:-1] + ("1" if ring[-1] == "0" else "0"))
