"""Real stock quotes as a stream, whose program is killed again and again, and nothing is lost.

Quotes come in files, one after the other. Five streaming queries run in one program:

1. The publisher encodes every quote for every subscription. Nothing numbers quotes by hand: a
   ledger allots a round to each, and allots it again, the same one, when a quote comes again.
2. The broker matches messages with those of the subscribers, which are there ahead of time, and
   has no key.
3. The publisher seals each quote for the subscribers that match, by the broker's answers. Spark's
   state remembers the groups that have a key already: names of keys, and no key.
4. Subscribers open their deliveries, a repeated quote once. Spark's state holds the keys that they
   know, encrypted under their own, and the quotes that they have opened.
5. The broker also keeps all messages in a store, which grows with each micro-batch.

The program is killed (SIGKILL, its Python workers included) when a file of a chosen kind appears
or changes: before a micro-batch is written, while it is, when it has been, while it is committed,
while rounds are allotted, while the store grows. Then it is started again, until all quotes are
through. If it fails by itself, it is started again, too, as by any supervisor. Sometimes one Python
worker alone is killed, any one or the one that allots rounds. At the end the deliveries, the quotes
that subscribers opened and the store's answers are compared with the plaintext filter. All messages
that were ever written are searched for a pair and round with two contents, including messages of
killed programs, of parts that no store names, and of files that were cut off.

    python examples/stream_quotes.py --events 600 --subscribers 12 --kills 4
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from stock_quotes import (
    MATCHER,
    ROCKS,
    SCHEMA,
    STATE_STORE,
    key_file,
    make_subscriptions,
)
from stock_quotes import read_quotes as all_quotes
from stock_quotes import session as quiet_session
from tqdm import tqdm

from ccbps import SeedRing, SharedSeed
from ccbps import spark as cs
from ccbps.delivery import BuildUpCache, GroupSealer, Naive, SubscriberRing
from ccbps.wire import Kind, round_kind

# A program that is killed while it writes the first line of a checkpoint leaves a draft there, and
# Spark takes a checkpoint with a draft and no line for somebody else's, unless this is false.
DRAFTS_ALLOWED = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
PARENT = os.getppid()  # who starts it again
IDLE = 1.0  # seconds between two looks for new files
SLICE = 0.0003  # seconds that the ledger's writer runs between two looks: less than a transaction
START = 90.0  # seconds that a program may take until something happens
PATIENCE = 3  # how often in a row it is started again without having got anywhere
# When it is killed: as soon as a file appears whose path matches, within so many milliseconds.
MOMENTS = {
    "before it is written": ("checkpoint-*/offsets/*", 0),
    "while it is written": ("messages/part-*", 5),
    "when it is written": ("matches/part-*", 60),
    "while it is sealed": ("delivered/part-*", 5),
    "while it is opened": ("opened/part-*", 5),
    "while it is committed": ("*/_spark_metadata/*", 0),
    "when it is committed": ("checkpoint-*/commits/*", 0),
    "while rounds are allotted": ("ledger-journal", 3),
    "while it is stored": ("stored/part-*", 5),
    "when it is stored": ("stored/index-*", 2),
    "when it starts": ("started", 4000),
}
# Of these two the program goes on, and Spark tries the task again.
WORKER, WRITER = "of Python, one worker", "of the ledger, its writer"
# Of these two, what is left of it ends by itself.
DRIVER, JAVA = "of the driver, its Python", "of the driver, its Java"


def main(arguments: list[str] | None = None) -> int:
    """Run everything, and return the number of wrong, missing or repeated deliveries."""
    options = parse(arguments)
    output: Path = options.output
    if options.secrets is not None:
        stream(output, options.secrets, options.ledger, options.subscribers)
        return 0
    shutil.rmtree(output, ignore_errors=True)
    (output / "quotes").mkdir(parents=True)
    quotes, subscriptions = quotes_of(options.events), make_subscriptions(options.subscribers)
    secrets = Path(tempfile.mkdtemp())  # which only we may read
    try:
        own = make_keys(secrets, subscriptions)
        spark = quiet_session("local[2]")
        pq.write_table(quotes, output / "table.parquet")
        provide(spark, options.events, subscriptions, secrets, output)
        spark.stop()
        # Made once, here: a program that starts again must not make another where this one is lost.
        ledger = cs.EventLedger(output / "ledger").identity()
        print(f"{quotes.num_rows:,} quotes in {options.files} files, ", end="")
        print(f"{subscriptions.num_rows} subscriptions")
        program = Program(output, secrets, ledger, options.subscribers)
        kills = run_and_kill(quotes, program, options)
        spark = quiet_session("local[2]")
        differences = audit(spark, quotes, subscriptions, own, options)
        spark.stop()
    finally:
        shutil.rmtree(secrets)
    for moment, count in kills.items():
        print(f"killed {moment:<27}{count:>11}")
    print(f"{'failed by itself and started again':<34}{program.failures:>11}")
    print(
        f"{'differences':<24}{differences:>14,}   against the plaintext filter, each delivery once"
    )
    return differences


def make_keys(secrets: Path, subscriptions: pa.Table) -> cs.FileKey:
    """Write the keys of all parties; return the paths of the subscribers', for deliveries."""
    seed, names = SharedSeed.generate(), subscriptions["subscription"].to_pylist()
    key_file(secrets / "publisher", seed)
    key_file(secrets / "subscribers", SeedRing.of(seed, names))
    sealer = GroupSealer(Naive(len(names)))
    ring = SubscriberRing.of([sealer.join(number) for number in range(len(names))])
    key_file(secrets / "sealer", sealer.state)
    return key_file(secrets / "own", ring)


def provide(
    spark: SparkSession, rounds: int, subscriptions: pa.Table, secrets: Path, output: Path
) -> None:
    """Write the subscribers' messages, for as many rounds as there will be quotes."""
    wanted, ring = spark.createDataFrame(subscriptions), cs.FileKey(secrets / "subscribers")
    interests = cs.encode_interests(wanted, MATCHER, ring, rounds=range(rounds))
    interests.write.option("compression", "none").parquet(str(output / "interests"))
    written = spark.read.parquet(str(output / "interests"))
    cs.write_messages(written, output / "stored-interests", MATCHER, kind="interest")


def stream(output: Path, secrets: Path, identity: str, subscribers: int) -> None:
    """Run the program that is killed: five queries, until all files are through."""
    spark = quiet_session("local[2, 4]")  # a task may fail three times
    spark.conf.set(STATE_STORE, ROCKS)
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.conf.set(DRAFTS_ALLOWED, "false")
    labels = [f"subscriber-{number:04d}" for number in range(subscribers)]
    quotes = spark.readStream.schema(spark.read.parquet(str(output / "table.parquet")).schema)
    ledger = cs.EventLedger(output / "ledger", rounds=1_000_000, identity=identity)
    messages = cs.encode_events(
        quotes.option("maxFilesPerTrigger", 2).parquet(str(output / "quotes")),
        MATCHER,
        cs.FileKey(secrets / "publisher"),
        ledger=ledger,
        labels=labels,
        keep=["event"],
    )
    publisher = start(messages, output, "messages")
    interests = spark.read.parquet(str(output / "interests"))
    messages = read_stream(spark, output, "messages", publisher)
    matches = cs.match(messages, interests, MATCHER)
    broker = start(matches.where("matched").drop("matched"), output, "matches")
    number = F.split("subscription", "-")[1].cast("int")
    table = spark.read.parquet(str(output / "table.parquet"))
    known = table.select("event", payload_of().alias("payload"))
    groups = read_stream(spark, output, "matches", broker).select("event", number.alias("members"))
    sealed = cs.seal_for_groups(
        groups.join(known, "event"), BuildUpCache(subscribers, 1000), cs.FileKey(secrets / "sealer")
    )
    sealer = start(sealed, output, "delivered")
    delivered = read_stream(spark, output, "delivered", sealer)
    opened = cs.open_from_groups(delivered, cs.FileKey(secrets / "own"))
    subscriber = start(opened, output, "opened")
    queries = [publisher, broker, sealer, subscriber]
    # The broker also keeps the messages; a quote that came twice has the same ones, kept once.
    queries.append(keep(messages.dropDuplicates(["subscription", "round"]), output))
    (output / "started").touch()
    while not (output / "all-sent").exists():
        check(queries)
        time.sleep(IDLE / 4)
    for query in queries:  # each one after the one before it
        query.processAllAvailable()
        query.stop()
    (output / "through").touch()
    spark.stop()


def payload_of() -> Column:
    """Return the part of a quote that is delivered."""
    return F.to_json(F.struct("issue", "day", "close", "volume"))


def start(df: DataFrame, output: Path, name: str) -> StreamingQuery:
    """Write a stream to files; the sink's log names the valid ones.

    They are not compressed, so that messages can be found in files that a kill cuts off.
    """
    return (
        df.writeStream.format("parquet")
        .queryName(name)
        .option("compression", "none")
        .option("path", str(output / name))
        .option("checkpointLocation", str(output / f"checkpoint-{name}"))
        .trigger(processingTime=f"{IDLE} seconds")
        .start()
    )


def keep(messages: DataFrame, output: Path) -> StreamingQuery:
    """Write a stream to a store, each batch once."""

    def write(df: DataFrame, number: int) -> None:
        cs.write_messages(
            df,
            output / "stored",
            MATCHER,
            kind="event",
            mode="append",
            batch=("messages", number),
            partitions=1,
        )

    return (
        messages.writeStream.foreachBatch(write)
        .queryName("stored")
        .option("checkpointLocation", str(output / "checkpoint-stored"))
        .trigger(processingTime=f"{IDLE} seconds")
        .start()
    )


def read_stream(spark: SparkSession, output: Path, name: str, query: StreamingQuery) -> DataFrame:
    """Read the files of another query; Spark needs the first ones to read its log."""
    while not (output / name / "_spark_metadata").exists():
        check([query])
        time.sleep(0.05)
    schema = {
        "messages": "event long, subscription string, round long, event_message binary",
        "matches": "event long, subscription string, round long",
        "delivered": "event long, subscriber long, message binary",
    }
    return spark.readStream.schema(schema[name]).parquet(str(output / name))


def check(queries: list[StreamingQuery]) -> None:
    """Raise the error of a query, and end the program if the one that started it has ended."""
    if os.getppid() != PARENT:
        raise SystemExit("nobody is there to start it again")
    for query in queries:
        failure = query.exception()
        if failure is not None:
            raise failure


class Program:
    """Program that is killed, in a session of its own, so that all its processes can be found.

    Attributes:
        output: folder of the output.
        failures: number of times that it failed by itself and was started again.
        begin: time of its last start.
    """

    def __init__(self, output: Path, secrets: Path, ledger: str, subscribers: int) -> None:
        self.output, self.failures, self.begin = output, 0, 0.0
        self.call = [sys.executable, __file__, "--output", str(output), "--secrets", str(secrets)]
        self.call += ["--ledger", ledger, "--subscribers", str(subscribers)]
        self._process: subprocess.Popen[bytes] | None = None
        self._in_a_row = 0
        self._committed: set[tuple[Path, int]] = set()

    def run(self) -> int:
        """Start it unless it runs, and return its session."""
        if self._process is not None and self._process.poll() is not None:
            self._has_failed()
        if self._process is None:
            self.begin = time.monotonic()
            with (self.output / "log").open("ab") as log:
                self._process = subprocess.Popen(  # noqa: S603  (our own file)
                    self.call, start_new_session=True, stdout=log, stderr=log
                )
        return self._process.pid

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self, numbers: Iterable[int]) -> bool:
        """Kill some of its processes, and wait for the end; return False if it had failed."""
        if not self.runs():
            return False
        signal_all(numbers, signal.SIGKILL)
        self._wait()
        return True

    def finish(self) -> None:
        """Wait until all files are through."""
        while True:
            runs = self.runs()
            # Asked in this order, as it may be through and end between both questions.
            through = (self.output / "through").exists()
            if through and not runs:
                return
            if not runs:
                self.run()
            time.sleep(IDLE / 4)

    def _has_failed(self) -> None:
        """Count a failure, and give up after several in vain."""
        if self._process is None:
            return
        signal_all(running(self._process.pid), signal.SIGKILL)  # what is left of it
        self._wait()
        committed = times(self.output, "checkpoint-*/commits/*")
        self._in_a_row = 0 if committed != self._committed else self._in_a_row
        self._committed = committed
        if self._in_a_row == PATIENCE:
            raise SystemExit(
                f"the program failed by itself, was started again {PATIENCE} times and got "
                f"nowhere: see {self.output / 'log'}"
            )
        self._in_a_row += 1
        self.failures += 1

    def _wait(self) -> None:
        """Wait until none of its processes is left."""
        until = time.monotonic() + START
        while self._process is not None:
            if self._process.poll() is not None and not running(self._process.pid):
                self._process = None
            elif time.monotonic() > until:
                raise SystemExit("what is left of a killed program goes on")
            else:
                time.sleep(0.01)
        (self.output / "started").unlink(missing_ok=True)


def run_and_kill(quotes: pa.Table, program: Program, options: argparse.Namespace) -> dict[str, int]:
    """Send the files of quotes and kill the program several times; return when and how often."""
    rng, files = random.Random(options.seed), list(range(options.files))
    kinds, output = [*MOMENTS, WORKER, WRITER, DRIVER, JAVA], program.output
    kills = dict.fromkeys(kinds, 0)
    moments = [kinds[turn % len(kinds)] for turn in range(options.kills)]
    rng.shuffle(moments)
    at_once = options.files // (options.kills + 1)
    for moment in tqdm(moments, desc="killed and started again", mininterval=1):
        if moment == "when it starts" and program.runs():
            program.kill(running(program.run()))
        program.run()
        pattern, delay = MOMENTS.get(moment, MOMENTS["while it is written"])
        some, files = files[:at_once], files[at_once:]
        known = times(output, pattern)
        gate = locked(program) if moment == WRITER else None
        for number in some:
            send(quotes, number, options)
        if gate is not None:
            kills[moment] += kill_writer(program, gate)
            continue
        hit = wait_for_new(pattern, known, program)
        time.sleep(rng.uniform(0, delay / 1000))
        session = program.run()
        if moment == WORKER:
            kills[moment] += hit and kill_worker(session)
            continue
        found = set(running(session))
        if moment in (DRIVER, JAVA):
            java = {number for number in found if b"java" in command(number).partition(b"\0")[0]}
            found = java if moment == JAVA else {session}
        kills[moment] += program.kill(found) and hit
    program.run()
    for number in files:
        send(quotes, number, options)
    (output / "all-sent").touch()
    program.finish()
    return kills


def send(quotes: pa.Table, number: int, options: argparse.Namespace) -> None:
    """Add a file of quotes, whole at once; each third also repeats quotes."""
    rows = np.arange(number, quotes.num_rows, options.files)
    if number % 3 == 2:
        rows = np.append(rows, rows[:2] - 1)
    draft = options.output / f"draft-{number}"
    pq.write_table(quotes.take(rows), draft)
    draft.rename(options.output / "quotes" / f"{number:04d}.parquet")


def times(output: Path, pattern: str) -> set[tuple[Path, int]]:
    """Return files whose paths match, with the times of their changes."""
    found = set()
    for path in output.glob(pattern):
        with suppress(FileNotFoundError):  # it was a draft
            found.add((path, path.stat().st_mtime_ns))
    return found


def wait_for_new(pattern: str, known: set[tuple[Path, int]], program: Program) -> bool:
    """Wait for some time until a matching file is made or changed; tell whether one was."""
    begin = time.monotonic()
    while time.monotonic() < max(begin, program.begin) + START:
        program.run()
        if times(program.output, pattern) - known:
            return True
        time.sleep(0.002)
    return False


def running(session: int) -> dict[int, int]:
    """Return the processes of a program, with Java and Python workers, and their parents."""
    found: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, _, of, *_ = path.read_text().rpartition(")")[2].split()
            if int(of) == session and state not in "ZX":  # else it has ended
                found[int(path.parent.name)] = int(parent)
        except OSError:  # it has ended
            continue
    return found


def signal_all(numbers: Iterable[int], what: signal.Signals) -> None:
    for number in numbers:
        with suppress(ProcessLookupError):  # it has ended
            os.kill(number, what)


def kill_worker(session: int) -> int:
    """Kill one of a program's Python workers, and return the number killed: 0 or 1."""
    found = workers_of(session)[:1]
    signal_all(found, signal.SIGKILL)
    return len(found)


def locked(program: Program) -> sqlite3.Connection:
    """Lock the ledger's file: until it is closed, a worker that wants to write must wait."""
    wait_for_new("started", set(), program)
    gate = sqlite3.connect(program.output / "ledger", timeout=START, isolation_level=None)
    gate.execute("BEGIN IMMEDIATE")
    return gate


def kill_writer(program: Program, gate: sqlite3.Connection) -> int:
    """Kill the worker that allots rounds amid its transaction; return the number killed: 0 or 1.

    It is found as it waits at the gate, stopped, and let through a slice of time after the other.
    """
    until, session, ledger = time.monotonic() + START, program.run(), program.output / "ledger"
    waiting: list[int] = []
    while not waiting and program.runs() and time.monotonic() < until:
        time.sleep(0.01)
        waiting = [n for n in workers_of(session) if ledger.resolve() in files_of(n)]
    stop(waiting)
    gate.close()
    journal = ledger.with_name("ledger-journal")
    killed = 0
    while waiting and not killed and time.monotonic() < until:
        signal_all(waiting, signal.SIGCONT)
        time.sleep(SLICE)
        stop(waiting)
        if journal.exists() and journal.stat().st_size:  # somebody has begun to write
            writing = [number for number in waiting if number == writer_of(ledger)]
            signal_all(writing, signal.SIGKILL)
            killed = len(writing)
        through = [n for n in waiting if ledger.resolve() not in files_of(n)]
        signal_all(through, signal.SIGCONT)
        waiting = [n for n in waiting if n not in through]
    signal_all(waiting, signal.SIGCONT)
    return killed


def stop(numbers: list[int]) -> None:
    """Stop processes, and wait until they stand still."""
    signal_all(numbers, signal.SIGSTOP)
    for number in numbers:
        with suppress(OSError):  # it has ended
            status = Path(f"/proc/{number}/stat")
            while status.read_text().rpartition(") ")[2][0] not in "TZX":
                time.sleep(0.0001)


def writer_of(path: Path) -> int | None:
    """Return the process that has a write lock on a file."""
    with suppress(FileNotFoundError):
        wanted = path.stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            if "->" in line:  # it waits
                continue
            _, kind, _, access, number, where, *_ = line.split()
            if (kind, access, int(where.split(":")[2])) == ("POSIX", "WRITE", wanted):
                return int(number)
    return None


def workers_of(session: int) -> list[int]:
    """Return a program's Python workers: the children of Spark's daemon."""
    found = running(session)
    return [
        number
        for number, parent in found.items()
        if parent in found and all(b"daemon" in command(one) for one in (number, parent))
    ]


def files_of(number: int) -> set[Path]:
    """Return the open files of a process."""
    found = set()
    with suppress(OSError):  # it has ended
        for link in Path(f"/proc/{number}/fd").iterdir():
            found.add(link.readlink())
    return found


def command(number: int) -> bytes:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def open_late(
    first: DataFrame, delivered: DataFrame, own: cs.KeySource, state: cs.KeySource
) -> DataFrame:
    """Return the deliveries opened at first, and those whose key had to be requested."""
    opened = first.where("request IS NULL").drop("request")
    missing = first.where("request IS NOT NULL").drop("payload")
    if missing.isEmpty():
        return opened
    answered = cs.answer_key_requests(missing.join(delivered, ["event", "subscriber"]), state)
    return opened.unionByName(cs.open_from_groups(answered, own, answer="answer").drop("request"))


def audit(
    spark: SparkSession,
    quotes: pa.Table,
    subscriptions: pa.Table,
    own: cs.FileKey,
    options: argparse.Namespace,
) -> int:
    """Count deliveries that differ from the plaintext filter, and rounds with two contents."""
    output: Path = options.output
    delivered = spark.read.parquet(str(output / "delivered"))
    sealed = np.zeros((subscriptions.num_rows, quotes.num_rows), dtype=np.int64)
    for row in delivered.groupBy("event", "subscriber").count().collect():
        sealed[row["subscriber"], row["event"]] = row["count"]
    opened = open_late(
        spark.read.parquet(str(output / "opened")),
        delivered,
        own,
        cs.FileKey(Path(own.path).with_name("sealer")),
    )
    rows = opened.select("event", "subscriber", F.col("payload").cast("string"))
    table = spark.read.parquet(str(output / "table.parquet"))
    known = table.select("event", payload_of().alias("wanted"))
    same = rows.join(known, "event").withColumn("same", F.col("payload") == F.col("wanted"))
    received = np.zeros_like(sealed)
    for row in same.collect():
        received[row["subscriber"], row["event"]] += 1 if row["same"] else 1000
    events = SCHEMA.encode(quotes)
    wanted = np.stack(
        [SCHEMA.parse(text).evaluate(events) for text in subscriptions["predicate"].to_pylist()]
    )
    # A quote that came twice is sealed twice, unless one micro-batch has both; and opened once.
    twice = np.zeros_like(wanted)
    for number in range(2, options.files, 3):
        twice[:, np.arange(number, quotes.num_rows, options.files)[:2] - 1] = True
    other = (sealed != wanted) & ~(wanted & twice & (sealed == 2))
    stored = wrongly_stored(spark, wanted, output)
    found = contents(output)
    messages = spark.read.parquet(str(output / "messages"))
    uncounted = found.again - (messages.count() - messages.distinct().count())
    print(f"{'messages ever written':<31}{found.written:>7,}   ", end="")
    print(f"with one content each, but {found.clashes}")
    print(f"{'in files that do not count':<31}{uncounted:>7,}   once more, of killed attempts")
    print(f"{'files that were cut off':<31}{found.empty + found.partial:>7,}   ", end="")
    print(f"empty and not read {found.empty}; read as far as they go {found.partial}")
    print(f"{'deliveries':<31}{int(sealed.sum()):>7,}   ", end="")
    print(f"each once, or up to twice if the quote came twice, but {int(other.sum())}")
    print(f"{'opened by subscribers':<31}{int(received.sum()):>7,}   wanted {int(wanted.sum()):,}")
    print(f"{'answers from the store':<31}{wanted.size:>7,}   wrong or missing {stored:,}")
    differences = int(other.sum()) + int((received != wanted).sum())
    return differences + found.clashes + stored


def wrongly_stored(spark: SparkSession, wanted: NDArray[np.bool_], output: Path) -> int:
    """Count the store's wrong or missing answers, of all quotes with all subscriptions."""
    decided = cs.match_messages(spark, output / "stored", output / "stored-interests", MATCHER)
    messages = spark.read.parquet(str(output / "messages"))
    events = messages.select("event", "subscription", "round").distinct()
    answers = np.full(wanted.shape, -1)
    for row in decided.join(events, ["subscription", "round"]).collect():
        answers[int(row["subscription"].split("-")[1]), row["event"]] = row["matched"]
    return int((answers != wanted).sum())


class Contents(NamedTuple):
    """Contents of all files that were ever written, also by programs that were killed.

    Attributes:
        written: number of messages.
        again: number of messages that had been written before, to a table or to a store: for
            repeated quotes, and by attempts that were killed.
        clashes: number of messages with another content of their pair and round.
        empty: number of files that were cut off before they held anything.
        partial: number of files that were cut off later.
    """

    written: int
    again: int
    clashes: int
    empty: int
    partial: int


def contents(output: Path) -> Contents:
    """Examine all files in a folder and below, whatever their names are."""
    seen: dict[tuple[str, str, int], bytes] = {}
    cut: list[Path] = []
    parts: list[Path] = []
    written, clashes, empty = 0, 0, 0
    for path in (path for path in output.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            kind = file.read(4)
        if kind == b"ARRO":
            parts.append(path)
        elif kind == b"PAR1":
            try:
                table = pq.ParquetFile(path).read()
            except (pa.ArrowInvalid, OSError):
                cut.append(path)
                continue
            for column in {"event_message", "interest_message"} & {*table.column_names}:
                for row in table.select(["subscription", "round", column]).to_pylist():
                    written += 1
                    place = column, row["subscription"], row["round"]
                    clashes += seen.setdefault(place, row[column]) != row[column]
        else:
            empty += not kind and path.suffix in (".parquet", ".arrow")
    again = written - len(seen)
    # What a killed program has put in a store belongs to no subscription: only an index says which.
    known = {(number, message) for (_, _, number), message in seen.items()}
    stored: set[tuple[int, bytes]] = set()
    partial = len(cut)
    for path in parts:
        rows, whole = stored_in(path)
        written += len(rows)
        clashes += sum(row not in known for row in rows)
        again += len(rows) - len({*rows} - stored)
        stored.update(rows)
        partial += not whole
    # Where a table was cut off there is no round. But each message is in a table that was not.
    whole_messages = {*seen.values()}
    for path in cut:
        found = messages_in(path.read_bytes())
        written += len(found)
        again += len(found)
        clashes += sum(message not in whole_messages for message in found)
    return Contents(written, again, clashes, empty, partial)


def stored_in(path: Path) -> tuple[list[tuple[int, bytes]], bool]:
    """Return rows of a part of a store, which no index may name, and whether it is whole."""
    rows: list[tuple[int, bytes]] = []
    with path.open("rb") as file:
        file.seek(8)  # of a file, what follows its first bytes is a stream
        try:
            for batch in pa.ipc.open_stream(file):
                if "message" not in batch.schema.names:  # it is an index
                    return rows, True
                rows += zip(batch["round"].to_pylist(), batch["message"].to_pylist(), strict=True)
        except (pa.ArrowInvalid, OSError):
            return rows, False
    return rows, True


def messages_in(content: bytes) -> list[bytes]:
    """Yield whole messages of a Parquet file that was cut off; each follows its length."""
    found = []
    for kind, width in (
        (Kind.EVENT, MATCHER.event_bytes),
        (Kind.INTEREST, MATCHER.interest_bytes),
    ):
        mark = width.to_bytes(4, "little") + bytes([round_kind(kind)])
        for place in re.finditer(re.escape(mark), content):
            message = content[place.start() + 4 : place.start() + 4 + width]
            found += [message] * (len(message) == width)
    return found


def quotes_of(count: int) -> pa.Table:
    """Return a number of quotes, spread over the years."""
    table = all_quotes(12154)
    chosen = table.take(np.linspace(0, table.num_rows - 1, count).astype(np.int64))
    return chosen.set_column(
        chosen.column_names.index("event"), "event", pa.array(np.arange(count))
    )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=600, help="number of quotes (600)")
    parser.add_argument("--subscribers", type=int, default=12, help="their number (12)")
    parser.add_argument("--files", type=int, default=12, help="that they come in (12)")
    parser.add_argument("--kills", type=int, default=4, help="how often it is killed (4)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills (1)")
    parser.add_argument("--output", type=Path, default=Path("stream-output"), help="folder")
    parser.add_argument("--secrets", type=Path, help="run the streams, with keys from this folder")
    parser.add_argument("--ledger", help="identity of the ledger that --secrets goes with")
    options = parser.parse_args(arguments)
    if not 0 <= options.kills < options.files <= options.events or options.subscribers < 1:
        parser.error(
            "--subscribers must be at least 1, --files more than --kills, and --events more"
        )
    return options


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
