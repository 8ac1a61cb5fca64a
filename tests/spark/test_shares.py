"""Three brokers as three applications of Spark: encoded here, matched there, also amid failures."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from ccbps import spark as cs
from ccbps.keys import ClientKey, OperatorKey
from ccbps.matching import ThreeBrokerMatch
from ccbps.shares.clients import HEAD_BYTES
from tests.spark.cluster_program import SCHEMA, THREE
from tests.spark.processes import kill, processes
from tests.support.spark_session import JAVA_OPTIONS, MODE, ROOT, contents, save, stored
from tests.support.three_brokers import free_ports

pytestmark = pytest.mark.spark

PROGRAM = ROOT / "tests" / "spark" / "share_program.py"
PREDICATES = {
    f"s{n}": f"price < {n * 97 % 1024 + 1} AND issue = '{['AAPL', 'IBM', 'MSFT'][n % 3]}'"
    for n in range(40)
}


QUOTES = (
    "id AS event",
    "element_at(array('AAPL', 'IBM', 'MSFT'), CAST(id % 3 + 1 AS int)) AS issue",
    "CAST(id * 37 % 1024 AS int) AS price",
)


def meant(count: int) -> set[tuple[str, int]]:
    """Subscriptions and events that match, of so many events."""
    number = np.arange(count)
    issues = np.array(["AAPL", "IBM", "MSFT"])[number % 3]
    sent = SCHEMA.encode({"issue": issues, "price": number * 37 % 1024})
    return {
        (label, event)
        for label, text in PREDICATES.items()
        for event in np.flatnonzero(SCHEMA.parse(text).evaluate(sent)).tolist()
    }


def encoded(
    spark: SparkSession,
    folder: Path,
    public: Sequence[bytes],
    count: int,
    matcher: ThreeBrokerMatch = THREE,
) -> tuple[DataFrame, DataFrame, list[tuple[bytes, ...]]]:
    """Events and interests of two clients, and the clients' hellos by broker."""
    publisher, subscriber = (ClientKey.generate(public) for _ in range(2))
    wanted = spark.createDataFrame([*PREDICATES.items()], "subscription string, predicate string")
    events = cs.encode_events(
        spark.range(0, count, 1, 2).selectExpr(*QUOTES),
        matcher,
        save(folder / "publisher", publisher),
        keep=["event"],
    )
    interests = cs.encode_interests(wanted, matcher, save(folder / "subscriber", subscriber))
    roles = matcher.publisher(publisher), matcher.subscriber(subscriber)
    return events, interests, [*zip(*(role.hellos for role in roles), strict=True)]


class Clients:
    """Three operators, and what clients encode for them in a session."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        count: int,
        matcher: ThreeBrokerMatch = THREE,
    ) -> None:
        self.folder, self.expected, self.matcher = folder, meant(count), matcher
        keys, port = [OperatorKey.generate() for _ in range(3)], free_ports(6)
        self.operators = [
            cs.Operator.of(key, f"127.0.0.1:{port + 2 * party}") for party, key in enumerate(keys)
        ]
        self.sources = [save(folder / f"operator-{n}", key) for n, key in enumerate(keys)]
        public = [operator.public for operator in self.operators]
        events, interests, self.hellos = encoded(spark, folder, public, count, matcher)
        self.events = stored(events, folder / "all-events")
        self.interests = stored(interests, folder / "all-interests")

    def hand_out(self, party: int) -> Path:
        """Write all that an operator gets to a folder."""
        folder = self.folder / f"{party}"
        folder.mkdir()
        for name, df in (("events", self.events), ("interests", self.interests)):
            df.select(df.columns[0], f"broker_{party}").write.parquet(str(folder / name))
        (folder / "matcher").write_text(self.matcher.to_json())
        for number, operator in enumerate(self.operators):
            (folder / f"operator-{number}").write_bytes(operator.to_bytes())
        for number, hello in enumerate(self.hellos[party]):
            (folder / f"hello-{number}").write_bytes(hello)
        return folder


def test_encoders_give_a_column_for_each_broker(spark: SparkSession, tmp_path: Path) -> None:
    brokers = THREE.local()
    *sides, hellos = encoded(spark, tmp_path, brokers.public, 30)
    for hello in zip(*hellos, strict=True):
        brokers.greet(hello)
    messages, names = [], []
    for df, width in zip(sides, (THREE.event_bytes, THREE.interest_bytes), strict=True):
        assert df.columns[1:] == ["broker_0", "broker_1", "broker_2"]
        names.append(df.columns[0])
        rows = df.toArrow()
        assert rows["broker_1"] == rows["broker_2"]
        whole = b"".join(rows["broker_1"].to_pylist())
        messages.append(np.frombuffer(whole, np.uint8).reshape(-1, width))
        heads = [message[:HEAD_BYTES] for message in rows["broker_2"].to_pylist()]
        assert rows["broker_0"].to_pylist() == heads
        assert len(set(heads)) == len(heads)
        names.append(rows[df.columns[0]].to_pylist())
    assert names[::2] == ["event", "subscription"]
    found = {
        (names[3][interest], names[1][event])
        for event, interest in zip(*np.nonzero(brokers.match_messages(*messages)), strict=True)
    }
    assert found == meant(30)


@contextmanager
def applications(
    clients: Clients,
    *options: str,
    masters: Sequence[str] = ("local[2,4]",) * 3,
    late: int | None = None,
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three applications, which end with the block."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": JAVA_OPTIONS}
    with ExitStack() as stack:
        running = []
        for party in range(3):
            data, key = clients.hand_out(party), clients.sources[party].path
            log = stack.enter_context((clients.folder / f"{party}.log").open("wb"))
            command = [sys.executable, PROGRAM, masters[party], f"{party}", key, data, *options]
            command += ["late"] * (party == late)
            process = subprocess.Popen(
                [*map(str, command)],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(kill, process)
            running.append(process)
        yield running


def check(
    clients: Clients,
    running: list[subprocess.Popen[bytes]],
    expected: Mapping[str, set[tuple[str, int]]] | None = None,
) -> None:
    """All applications end, with all matches and no others, and no key in what they leave."""
    expected = {"matched": clients.expected} if expected is None else expected
    keys = [source.load().export_secret() for source in clients.sources]
    needles = [form for key in keys for form in (key, key.hex().encode(), base64.b64encode(key))]
    for party, process in enumerate(running):
        log, data = clients.folder / f"{party}.log", clients.folder / f"{party}"
        assert process.wait(480) == 0, log.read_text()[-3000:]
        for name, pairs in expected.items():
            rows = pq.read_table(data / name)
            assert rows.column_names[0] == "subscription"
            found = [*zip(*(column.to_pylist() for column in rows.columns), strict=True)]
            assert len(found) == len(pairs)
            assert {*found} == pairs
        left = [log.read_bytes(), *(content for _, content in contents(data))]
        assert any(b"SparkListenerJobStart" in content for content in left)
        assert not any(needle in content for content in left for needle in needles)


@pytest.mark.slow
@pytest.mark.skipif(MODE != "classic", reason="it has sessions of its own")
def test_three_applications_match(spark: SparkSession, tmp_path: Path) -> None:
    clients = Clients(spark, tmp_path, 600)
    with applications(clients, masters=["local[2,4]", "local[2]", "connect"]) as running:
        check(clients, running)


@pytest.mark.slow
@pytest.mark.skipif(MODE != "classic", reason="it has sessions of its own")
def test_three_applications_make_answers_for_the_subscriber_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    matcher = ThreeBrokerMatch.box(SCHEMA, reveal="subscriber")
    clients = Clients(spark, tmp_path, 90, matcher)
    with applications(clients) as running:
        check(clients, running, {})
    rows = [spark.read.parquet(str(tmp_path / f"{party}" / "matched")) for party in range(3)]
    assert [df.count() for df in rows] == [90 * len(PREDICATES)] * 3
    key = cs.FileKey(tmp_path / "subscriber")
    opened = cs.open_shares(rows, clients.events, clients.interests, matcher, key).toArrow()
    found = [*zip(*(opened[name].to_pylist() for name in opened.column_names[:2]), strict=True)]
    assert len(found) == len(clients.expected)
    assert {*found} == clients.expected


@pytest.mark.slow
@pytest.mark.skipif(MODE != "classic", reason="it has sessions of its own")
def test_three_applications_match_their_stores(spark: SparkSession, tmp_path: Path) -> None:
    clients = Clients(spark, tmp_path, 600)
    # Interests below 30 come first; each third one ends before the second match, and two more go.
    left = {f"s{n}" for n in range(40) if n % 3 and n not in (4, 10)}
    later = {pair for pair in clients.expected if pair[0] in left}
    expected = {
        "first": {(s, n) for s, n in clients.expected if int(s[1:]) < 30 and n < 400},
        "second": later,
        "third": {pair for pair in later if pair[1] >= 400},
    }
    assert all(expected.values())
    with applications(clients, "stores", masters=["local[2,4]", "local[2]", "connect"]) as running:
        check(clients, running, expected)


@pytest.mark.slow
@pytest.mark.skipif(MODE != "classic", reason="it has sessions of its own")
def test_a_stage_whose_worker_was_killed_is_repeated(spark: SparkSession, tmp_path: Path) -> None:
    clients = Clients(spark, tmp_path, 6000)
    victim = 1
    with applications(clients, "slowly") as running:
        begun = clients.folder / f"{victim}" / "begun"
        until = time.monotonic() + 240
        while not begun.exists():
            assert time.monotonic() < until
            assert running[victim].poll() is None
            time.sleep(0.05)
        number = int(begun.read_text())
        assert processes(running[victim].pid)[number] == "worker"
        os.kill(number, 9)
        check(clients, running)
    attempts = [
        (clients.folder / f"{party}" / "attempts").read_text().split() for party in range(3)
    ]
    # Each of two tasks at each operator ran again, and drew other masks.
    for own in attempts:
        assert len(own) >= 4
        assert len({*own}) == len(own)


@pytest.mark.slow
@pytest.mark.skipif(MODE != "classic", reason="it has sessions of its own")
def test_a_stage_repeated_at_one_operator_meets_the_first_stages_of_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    clients = Clients(spark, tmp_path, 600)
    victim, late = 1, 2

    def loads(party: int) -> list[str]:
        path = clients.folder / f"{party}" / "loads"
        return path.read_text().split() if path.exists() else []

    def wait_for(count: int) -> None:
        until = time.monotonic() + 240
        while len(loads(0)) < 2 or len(loads(victim)) < count:
            assert time.monotonic() < until
            assert running[victim].poll() is None
            time.sleep(0.05)

    with applications(clients, "slowly", late=late) as running:
        wait_for(2)
        os.kill(int(loads(victim)[0]), 9)
        wait_for(4)
        (clients.folder / f"{late}" / "go").touch()
        check(clients, running)
    assert [len(loads(party)) for party in range(3)] == [2, 4, 2]
