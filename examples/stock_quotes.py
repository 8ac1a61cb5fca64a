"""Real stock quotes, routed by a broker that cannot read them.

Twelve thousand daily quotes (bokeh-sampledata: AAPL, FB, GOOG, IBM, MSFT, 2000 to 2013) meet more
than a hundred private subscriptions such as ``issue = 'IBM' AND close < 95 AND volume > 8000000``.

The broker runs in a process and a Spark session of its own, which is given folders of messages and
no key. Publisher and subscribers have keys and files of their own, but share a session here, since
another one takes seconds to start. All hand each other files and nothing else (0.3 GB with the
arguments below; the program says how many before it writes any).

1. The publisher encodes every quote for every subscription. A ledger allots the rounds.
2. The subscribers encode their predicates for all rounds, without having seen a quote.
3. The broker matches messages of one subscription and round, and learns one bit per pair: match or
   not. So it knows the group that a quote is for.
4. The publisher encrypts each quote once, and the quote's key for its group, in a stream that
   remembers which groups have a key already: most quotes take one encryption.
5. Subscribers open what they were sent.

The first twelfth of the quotes meets cold sessions: Java compiles, and Python's workers start. The
others meet warm ones, as in a service that runs for longer. Both times are printed. At the end
every answer and every delivery is compared with the plaintext filter.

    python examples/stock_quotes.py --events 12154 --subscribers 120 --strategy build-up
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import ExitStack, contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tqdm import tqdm

from ccbps import Category, Decimal, Schema, SeedRing, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.delivery import (
    BuildUpCache,
    ClusteredCache,
    ClusteredPopularCache,
    Clusters,
    GroupOpener,
    GroupSealer,
    KeyHierarchy,
    LearnedCache,
    Naive,
    SimpleCache,
    Strategy,
    SubscriberRing,
    pack_groups,
)
from ccbps.delivery.group_protocol import GroupMessage
from ccbps.errors import DecodeError, MissingKeyError
from ccbps.matching import FormulaMatch
from ccbps.store.folder import Folder
from ccbps.store.index import Index
from ccbps.wire import ROUND_HEADER_BYTES

ISSUES = ("AAPL", "FB", "GOOG", "IBM", "MSFT")
SCHEMA = Schema(
    issue=Category(ISSUES),
    close=Decimal(0, "1310.71", step="0.01"),
    volume=UInt(30),
)
MATCHER = FormulaMatch.box(SCHEMA)
# What the parties write: messages, the broker's answers, and what is delivered.
FILES = ("events", "interests", "matches", "groups", "delivered")
# Bytes of a pair's round and answer, of a delivery, and of what all files begin and end with; and
# the share of pairs that match: about.
PAIR, DELIVERY, EDGES, MATCHES = 15, 420, 20_000, 0.09
KEYS = 1000  # of groups, that the publisher remembers
STRATEGIES = ("naive", "tree", "clustered", "simple", "clustered-popular", "learned", "build-up")
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# Java's second compiler makes faster code, which pays in programs that run for minutes. In a short
# one it costs more than it saves. And messages look random, so nothing compresses them.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.shuffle.compress": "false",
}
BAR = "{desc:<40}{n_fmt:>3}/{total_fmt} steps, {elapsed}"
STEPS = 12  # that the progress bar counts
Times = dict[str, list[tuple[int, float]]]  # pairs and seconds of each stage: cold, and warm


def main(arguments: list[str] | None = None) -> int:
    """Run all parties, and return the number of answers that differ from the plaintext filter."""
    options = parse(arguments)
    if options.three_brokers:
        import three_brokers_spark  # which imports this module

        return three_brokers_spark.run(options)
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    for name in (*FILES, "checkpoint"):
        shutil.rmtree(output / name, ignore_errors=True)
    quotes, subscriptions = read_quotes(options.events), make_subscriptions(options.subscribers)
    names = subscriptions["subscription"].to_pylist()
    print(f"{quotes.num_rows:,} quotes, {len(names)} private subscriptions")
    print(MATCHER.explain(), "\n")
    expected = announce(quotes.num_rows, len(names), output)

    with ExitStack() as stack:
        (clients, one), (broker, other) = (
            stack.enter_context(process(output / f"{name}.log", options.master))
            for name in ("clients", "broker")
        )
        # Subscribers get their own pairs' seeds, from which no other seed can be derived, and a key
        # each for deliveries.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))  # which only we may read
        seed = SharedSeed.generate()
        master = key_file(folder / "master", seed)
        ring = key_file(folder / "seeds", SeedRing.of(seed, names))
        sealer = GroupSealer(Naive(len(names)))
        own = key_file(folder / "own", SubscriberRing.of([*map(sealer.join, range(len(names)))]))
        state = key_file(folder / "state", sealer.state)
        ledger = cs.EventLedger(folder / "ledger", rounds=quotes.num_rows)

        bar = stack.enter_context(tqdm(total=STEPS, disable=None, bar_format=BAR))
        wait(bar, "start Spark, twice", one, other)
        times: Times = {"encode events": [], "encode interests": [], "match": []}
        numbers: list[int] = []  # rounds of quotes
        # The first quotes come to cold sessions, and the others to warm ones.
        first = -(-quotes.num_rows // 12)
        for rounds in (range(first), range(first, quotes.num_rows)):
            some, pairs = quotes.slice(rounds.start, len(rounds)), len(rounds) * len(names)
            sent = clients.submit(publish, some, names, master, ledger, output)
            ((allotted, seconds),) = wait(bar, "publisher: encode events", sent)
            numbers += allotted
            times["encode events"].append((pairs, seconds))
            sent = clients.submit(subscribe, subscriptions, rounds, ring, output)
            (seconds,) = wait(bar, "subscribers: encode interests", sent)
            times["encode interests"].append((pairs, seconds))
            (seconds,) = wait(bar, "broker: match", broker.submit(match, output))
            pairs = rounds.stop * len(names)  # all messages that there are by now
            times["match"].append((pairs, seconds))

        # The broker says which subscribers each round is for, and the publisher seals for them.
        wait(bar, "broker: groups", broker.submit(group, output))
        quotes = quotes.append_column("round", pa.array(numbers))
        groups = read_groups(quotes, output, len(names))
        strategies = make_strategies(len(names), groups)
        sealed = clients.submit(deliver, quotes, strategies[options.strategy], state, output)
        received = clients.submit(receive, own, output)
        (seal_seconds,) = wait(bar, "publisher: seal for groups", sealed)
        ((opened, open_seconds),) = wait(bar, "subscribers: open", received)
        differences, pairs, matches = audit(quotes, subscriptions, opened, output)
        name, chosen = choose_rounds(quotes, names, opened)
        (seen,) = wait(bar, "broker: show messages", broker.submit(look, name, chosen, output))
        path = plot(opened, full_months(quotes), output)

    report(pairs, matches, differences, (written(output), expected))
    report_times(times)
    print(f"{'deliver':<24}{seal_seconds:>12.1f} s, and {open_seconds:.1f} s to open")
    report_encryptions(strategies, options.strategy, groups, pairs, output)
    show_both_views(name, chosen, seen, opened, subscriptions, output)
    show_stranger(sealer, output)
    print(f"\nMatches over time: {path}")
    return differences


@contextmanager
def process(log: Path, master: str) -> Iterator[tuple[futures.Executor, futures.Future[None]]]:
    """Start a process, which ends with the block, and in it a Spark session."""
    with futures.ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as executor:
        # Ctrl-C is for this process, which then ends the other one.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        start = executor.submit(begin, log, master)
        signal.signal(signal.SIGINT, handler)
        try:
            yield executor, start
        except BaseException as error:
            for child in active_children():  # what runs is not waited for
                child.terminate()
            error.add_note(f"what Spark printed is in {log}")
            raise


def begin(log: Path, master: str) -> None:
    """Start the session of a process. What Java and Spark's workers print goes to a file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    try:
        spark = session(master, SETTINGS)
    except Exception as error:  # not all errors of Spark can be pickled
        raise RuntimeError(f"Spark does not start: {error}") from None
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which Spark has changed


def here() -> SparkSession:
    """Return the session of this process."""
    return SparkSession.builder.getOrCreate()


def publish(
    quotes: pa.Table,
    names: list[str],
    master: cs.KeySource,
    ledger: cs.EventLedger,
    output: Path,
) -> tuple[list[int], float]:
    """Publish: the publisher knows the quotes and the subscriptions' labels, not predicates.

    Returns:
        The round of each quote, which a store does not tell, and the seconds of the step.
    """
    started = time.perf_counter()
    events = here().createDataFrame(quotes)
    # In one task and for one label, to allot rounds in order of time. Whenever the ledger sees an
    # event again, it gives the same round.
    numbered = cs.encode_events(
        events.coalesce(1), MATCHER, master, ledger=ledger, labels=names[:1], keep=["event"]
    )
    rounds = numbered.select("event", "round").toArrow().sort_by("event")["round"]
    # A store holds subscriptions, rounds and messages, and nothing else of a quote.
    events = here().createDataFrame(quotes.append_column("round", rounds))
    cs.write_events(events, output / "events", MATCHER, master, labels=names, mode="append")
    return rounds.to_pylist(), time.perf_counter() - started


def subscribe(subscriptions: pa.Table, rounds: range, ring: cs.KeySource, output: Path) -> float:
    """Subscribe: subscribers know their predicates and how many rounds there are, and no quote."""
    started = time.perf_counter()
    wanted, path = here().createDataFrame(subscriptions), output / "interests"
    cs.write_interests(wanted, path, MATCHER, ring, rounds=rounds, mode="append")
    return time.perf_counter() - started


def match(output: Path) -> float:
    """Match: the broker reads messages, has no key, and learns an answer for each pair."""
    started = time.perf_counter()
    answers = cs.match_messages(here(), output / "events", output / "interests", MATCHER)
    write(answers, output / "matches")
    return time.perf_counter() - started


def group(output: Path) -> None:
    """Name the subscribers of each round, for the publisher."""
    matched = here().read.parquet(str(output / "matches")).where("matched")
    number = F.split("subscription", "-")[1].cast("int")  # of the subscriber
    groups = matched.groupBy("round").agg(F.collect_list(number).alias("members"))
    write(groups.coalesce(1), output / "groups")


def read_groups(quotes: pa.Table, output: Path, subscribers: int) -> np.ndarray:
    """Return the group of each quote, packed, by the broker's answers."""
    rows = pq.read_table(output / "groups")
    bits = np.zeros((quotes.num_rows, subscribers), dtype=np.bool_)
    members = rows["members"].combine_chunks()
    event = np.argsort(quotes["round"])[rows["round"]]
    bits[np.repeat(event, np.diff(members.offsets)), members.flatten()] = True
    return pack_groups(bits)


def make_strategies(subscribers: int, groups: np.ndarray) -> dict[str, Strategy]:
    """Return all strategies with as many keys; clusters from the first sixth of the traffic."""
    sample = groups[: max(1, len(groups) // 6)]
    sizes = [8] * (subscribers // 8) + [subscribers % 8] * (subscribers % 8 > 0)
    clusters = Clusters.of_sizes(sizes, "similarity", groups=sample)
    return {
        "naive": Naive(subscribers),
        "tree": KeyHierarchy(subscribers),
        "clustered": ClusteredCache(clusters, KEYS // len(sizes)),
        "simple": SimpleCache(subscribers, KEYS),
        "clustered-popular": ClusteredPopularCache(clusters, KEYS // 2, KEYS // 2 // len(sizes)),
        "learned": LearnedCache.learn(sample, subscribers, KEYS),
        "build-up": BuildUpCache(subscribers, KEYS),
    }


def deliver(quotes: pa.Table, strategy: Strategy, state: cs.KeySource, output: Path) -> float:
    """Seal each quote for its group. The stream, when it goes on, remembers the groups' keys."""
    started, spark = time.perf_counter(), here()
    spark.conf.set(STATE_STORE, ROCKS)
    spark.conf.set("spark.sql.shuffle.partitions", "1")  # one sealer; its state is in one place
    payload = F.to_json(F.struct("issue", "day", "open", "high", "low", "close", "volume"))
    payloads = spark.createDataFrame(quotes).select("event", "round", payload.alias("payload"))
    groups = spark.readStream.schema("round long, members array<int>").parquet(
        str(output / "groups")
    )
    sealed = cs.seal_for_groups(groups.join(F.broadcast(payloads), "round"), strategy, state)
    query = (
        sealed.writeStream.format("parquet")
        .option("compression", "none")
        .option("path", str(output / "delivered"))
        .option("checkpointLocation", str(output / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - started


def receive(own: cs.KeySource, output: Path) -> tuple[pa.Table, float]:
    """Open the deliveries, and return them and the seconds that it took.

    Those of a subscriber are opened in order, so a key comes before the messages that need it. Who
    missed one may request it: examples/stream_quotes.py does.
    """
    started, spark = time.perf_counter(), here()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    delivered = spark.read.parquet(str(output / "delivered"))
    opened = cs.open_from_groups(delivered, own)
    quote = F.from_json(
        F.col("payload").cast("string"), "issue string, day date, close double, volume long"
    )
    name = F.format_string("subscriber-%04d", "subscriber").alias("subscription")
    table: pa.Table = (
        opened.select(name, "event", quote.alias("q"))
        .select("subscription", "event", "q.*")
        .toArrow()
    )
    table = table.sort_by([("subscription", "ascending"), ("event", "ascending")])
    return table, time.perf_counter() - started


def audit(
    quotes: pa.Table, subscriptions: pa.Table, opened: pa.Table, output: Path
) -> tuple[int, int, int]:
    """Compare answers and deliveries with the plaintext filter: (differences, pairs, matches)."""
    answers = pq.read_table(output / "matches")
    place = {name: i for i, name in enumerate(subscriptions["subscription"].to_pylist())}
    event = np.argsort(quotes["round"])
    got = np.full((len(place), quotes.num_rows), -1, dtype=np.int8)
    coded = answers["subscription"].combine_chunks().dictionary_encode()
    rows = np.array([place[name] for name in coded.dictionary.to_pylist()])[coded.indices]
    got[rows, event[answers["round"]]] = answers["matched"]
    events = SCHEMA.encode(quotes)
    wanted = np.stack(
        [SCHEMA.parse(text).evaluate(events) for text in subscriptions["predicate"].to_pylist()]
    )
    differences = int((got != wanted).sum()) + count_misdelivered(quotes, opened, wanted, place)
    return differences, got.size, int(wanted.sum())


def count_misdelivered(
    quotes: pa.Table, opened: pa.Table, wanted: np.ndarray, place: Mapping[str, int]
) -> int:
    """Count deliveries that are missing, or are not the quote that was sent, or come twice."""
    sent = quotes.take(opened["event"])
    same = np.ones(opened.num_rows, dtype=np.bool_)
    for name in ("issue", "day", "close", "volume"):
        same &= sent[name].cast(opened[name].type).to_numpy() == opened[name].to_numpy()
    received = np.zeros(wanted.shape, dtype=np.int64)
    owners = [place[name] for name in opened["subscription"].to_pylist()]
    np.add.at(received, (owners, opened["event"].to_numpy()), np.where(same, 1, 2))
    return int((received != wanted).sum())


def announce(quotes: int, subscriptions: int, output: Path) -> int:
    """Print and return the bytes that the stages will write; stop if there is no space."""
    pairs = quotes * subscriptions
    # A pair: two messages with their rounds, and an answer; a delivery, if it matches.
    pair = MATCHER.event_bytes + MATCHER.interest_bytes + PAIR + MATCHES * DELIVERY
    expected = round(pairs * pair) + EDGES
    free = shutil.disk_usage(output).free
    print(f"Will write about {expected / 1e6:,.0f} MB to {output.resolve()}: messages of")
    print(
        f"{pairs:,} pairs ({free / 1e9:,.0f} GB are free; --events and --subscribers change it).\n"
    )
    if expected > free:
        raise SystemExit(
            "not enough space; choose fewer events or subscribers, or another --output"
        )
    return expected


def written(output: Path) -> int:
    """Return the bytes of all files that the parties handed each other."""
    return sum(p.stat().st_size for name in FILES for p in (output / name).rglob("*part-*"))


def report(pairs: int, matches: int, differences: int, sizes: tuple[int, int]) -> None:
    """Print the table of results."""
    print(f"\n{'pairs tested':<24}{pairs:>14,}")
    print(f"{'matches':<24}{matches:>14,}")
    print(f"{'differences':<24}{differences:>14,}   against the plaintext filter")
    print(f"{'bytes per event':<24}{MATCHER.event_bytes:>14,}   per pair")
    print(f"{'bytes per interest':<24}{MATCHER.interest_bytes:>14,}   per pair")
    print(f"{'bytes written':<24}{sizes[0]:>14,}   announced: {sizes[1]:,}")


def report_times(times: Times) -> None:
    """Print pairs a second of cold sessions, and of warm ones."""
    print(f"\n{'pairs per second':<24}{'cold':>14}{'warm':>24}")
    for name, runs in times.items():
        rates = (f"{pairs / passed:>14,.0f} ({passed:4.1f} s)" for pairs, passed in runs)
        print(f"{name:<24}{' '.join(rates)}")


def report_encryptions(
    strategies: dict[str, Strategy],
    chosen: str,
    groups: np.ndarray,
    pairs: int,
    output: Path,
) -> None:
    """Print encryptions of quotes' keys: counted in messages, and by each strategy."""
    delivered = pq.read_table(output / "delivered", columns=["message"])
    # A wrap that several subscribers open is in the message of each.
    events = (GroupMessage.from_bytes(text) for text in delivered["message"].to_pylist())
    counted = len({(event.event, event.wraps[0][0]) for event in events})
    quotes = int(np.count_nonzero(groups.any(axis=1)))
    print(f"\n{quotes:,} quotes match somebody. How often are their keys encrypted?\n")
    print(f"{'before matching':<24}{pairs:>14,}   a key for each pair, handed over on a match")
    for name, strategy in strategies.items():
        strategy.forget()
        print(f"{name:<24}{strategy.count(groups).sum():>14,}", end="")
        print(f"   chosen: {counted:,} counted in the messages" if name == chosen else "")


def choose_rounds(
    quotes: pa.Table, names: list[str], opened: pa.Table
) -> tuple[str, dict[int, int]]:
    """Return a subscriber that received something, and some quotes by their rounds, to look at."""
    name = opened["subscription"][0].as_py() if opened.num_rows else names[0]
    mine = opened.filter(pa.compute.equal(opened["subscription"], name))["event"].to_pylist()
    others = sorted({*range(quotes.num_rows)} - {*mine})
    return name, {quotes["round"][i].as_py(): i for i in sorted(mine[:5] + others[:3])}


def look(name: str, chosen: Mapping[int, int], output: Path) -> dict[int, list[bytes]]:
    """Return the broker's messages of some rounds of a subscription, two of each.

    These are few, so they are looked up in the files. ``spark.read.format("ccbps")`` reads all.
    """
    seen: dict[int, list[bytes]] = {number: [] for number in chosen}
    for side in ("events", "interests"):
        index = Index.read(Folder.of(output / side, "path"))
        for run in np.flatnonzero(np.asarray(index.subscription) == name):
            part = index.files.reader(index.parts[index.part[run]])
            rows = np.arange(index.start[run], index.stop[run])
            rows = rows[np.isin(part.rounds[rows], [*chosen])]
            for number, message in zip(part.rounds[rows], part.gather(rows), strict=True):
                seen[number].append(message.tobytes())
    return seen


def show_both_views(
    name: str,
    chosen: Mapping[int, int],
    seen: dict[int, list[bytes]],
    opened: pa.Table,
    subscriptions: pa.Table,
    output: Path,
) -> None:
    """Print rounds of one subscriber: the broker's view beside the subscriber's."""
    place = subscriptions["subscription"].to_pylist().index(name)
    read = {row["event"]: row for row in opened.to_pylist() if row["subscription"] == name}
    rows = pq.read_table(output / "delivered", filters=[("subscriber", "=", place)]).to_pylist()
    payloads = {row["event"]: GroupMessage.from_bytes(row["message"]).payload for row in rows}
    print(f"\n{name} subscribed to: {subscriptions['predicate'][place]}")
    print(
        f"and received {len(read):,} quotes. What the broker saw (the first bytes after the header"
    )
    sizes = f"{MATCHER.event_bytes} and {MATCHER.interest_bytes} bytes"
    print(f"of messages of {sizes} and of sealed quotes), and what arrived:\n")
    print(f"{'round':>6}  {'event message':<18}{'interest message':<18}{'answer':<10}", end="")
    print(f"{'sealed quote':<18}| the subscriber read")
    for number, event in chosen.items():
        shown = [message[ROUND_HEADER_BYTES:][:8].hex() for message in seen[number]]
        quote, handed = "nothing", ""
        if event in read:
            row = read[event]
            quote = f"{row['day']}  {row['issue']:<5}{row['close']:>8.2f} {row['volume']:>12,}"
            handed = payloads[event][:8].hex()
        answer = "match" if event in read else "no match"
        print(f"{number:>6}  {shown[0]:<18}{shown[1]:<18}{answer:<10}{handed:<18}| {quote}")


def show_stranger(sealer: GroupSealer, output: Path) -> None:
    """Print the attempt of a newcomer, who holds a key as well, to open a delivery."""
    delivered = pq.read_table(output / "delivered").slice(0, 1).to_pylist()
    for row in delivered:
        sealer.leave(row["subscriber"])
        stranger = GroupOpener(sealer.join(row["subscriber"]), capacity=1)
        try:
            try:
                stranger.open(row["message"])
            except MissingKeyError as missing:
                sealer.answer(missing.request)
            print("\nSomebody else opened the payload: this must not happen")
        except DecodeError as error:
            print(f"\nSomebody who gets the same number later, and asks for keys, gets: {error}")


def key_file(path: Path, key: object) -> cs.FileKey:
    """Write the text of a key to a file that nobody else may read."""
    path.touch(mode=0o600)
    path.write_text(key.to_text())
    return cs.FileKey(path)


def full_months(quotes: pa.Table) -> np.ndarray:
    """Return the months, as datetime64[M], of which the quotes hold all trading days."""
    days = quotes["day"].to_numpy().astype("datetime64[D]")
    first, last = days.min(), days.max()
    # The first trading day of a month is its fourth at the latest; the last month may go on.
    start = first.astype("datetime64[M]") + (first - first.astype("datetime64[M]") > 3)
    return np.arange(start, last.astype("datetime64[M]"))


def plot(opened: pa.Table, months: np.ndarray, output: Path) -> Path:
    """Draw matches by issue per whole quarter, or per whole month if there is hardly a quarter."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    lead = -int(months[0].astype(int)) % 3 if len(months) else 0
    quarters = months[lead:][: (len(months) - lead) // 3 * 3 : 3]
    what, length, starts = ("quarter", 3, quarters) if len(quarters) > 1 else ("month", 1, months)
    figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
    days = opened["day"].to_numpy().astype("datetime64[M]")
    issues = opened["issue"].to_numpy()
    if len(starts):
        edges = np.append(starts.astype(int), starts[-1].astype(int) + length)
        counts = [np.histogram(days[issues == i].astype(int), edges)[0] for i in ISSUES]
        # A histogram's last bin has both its edges.
        late = [int(((issues == i) & (days.astype(int) == edges[-1])).sum()) for i in ISSUES]
        counts = [np.append(c[:-1], c[-1] - over) for c, over in zip(counts, late, strict=True)]
        axes.stackplot(starts.astype("datetime64[D]"), counts, labels=ISSUES)
        axes.legend(loc="upper left")
    axes.set_ylabel(f"deliveries per {what}, whole {what}s only")
    axes.set_title(f"{opened.num_rows:,} quotes delivered to the subscriptions they match")
    path = output / "matches.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def read_quotes(count: int) -> pa.Table:
    """Return the first `count` quotes in order of time, with prices rounded to the cent."""
    from bokeh_sampledata import stocks  # reads them all

    columns: dict[str, list[object]] = {name: [] for name in ("issue", "day", "volume")}
    prices: dict[str, list[float]] = {name: [] for name in ("open", "high", "low", "close")}
    for issue in ISSUES:
        data = getattr(stocks, issue)
        columns["issue"] += [issue] * len(data["date"])
        columns["day"] += data["date"]
        columns["volume"] += data["volume"]
        for name, values in prices.items():
            values += data[name]
    table = pa.table(
        {
            "issue": columns["issue"],
            "day": columns["day"],
            **{name: np.round(values, 2) for name, values in prices.items()},
            "volume": pa.array(columns["volume"], pa.int64()),
        }
    ).sort_by([("day", "ascending"), ("issue", "ascending")])
    table = table.slice(0, count)
    return table.append_column("event", pa.array(np.arange(table.num_rows)))


def make_subscriptions(count: int) -> pa.Table:
    """Make price alerts, bands, volume spikes and whole feeds, the same every time."""
    rng = random.Random(2000)
    usual = {"AAPL": 150, "FB": 28, "GOOG": 480, "IBM": 115, "MSFT": 30}
    predicates = []
    for i in range(count):
        issue = rng.choice(ISSUES)
        price = usual[issue] * rng.uniform(0.6, 1.5)
        volume = rng.choice([2, 5, 10, 20, 50, 100, 200]) * 1_000_000
        predicates.append(
            [
                f"issue = '{issue}' AND close < {price:.2f}",
                f"issue = '{issue}' AND close >= {price:.2f} AND volume > {volume}",
                f"close BETWEEN {price:.2f} AND {price * 1.1:.2f} AND volume >= {volume}",
                f"volume > {volume * 3}",
                f"issue LIKE '{issue[:1]}%' AND close > {price:.2f}",
                f"issue = '{issue}' AND close BETWEEN {price * 0.95:.2f} AND {price * 1.05:.2f}",
            ][i % 6]
        )
    names = [f"subscriber-{i:04d}" for i in range(count)]
    return pa.table({"subscription": names, "predicate": predicates})


def write(df: DataFrame, path: Path) -> None:
    df.write.mode("overwrite").option("compression", "none").parquet(str(path))


def wait(bar: Any, label: str, *asked: futures.Future) -> list[Any]:
    """Show running work and its time until all of it is done; return the results.

    The bar counts whole steps, and shows nothing where there is no terminal.
    """
    bar.set_description_str(label)
    left = {*asked}
    while left:
        done, left = futures.wait(left, timeout=0.5, return_when=futures.FIRST_COMPLETED)
        bar.update(len(done))
        bar.refresh()
    return [future.result() for future in asked]


def session(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start a local session that keeps quiet and uses this interpreter for its workers."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    builder = (
        SparkSession.builder.master(master)
        .appName("ccbps stock quotes")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "16")
        .config("spark.sql.execution.arrow.maxBytesPerBatch", "8m")
    )
    for name, value in (settings or {}).items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=12154, help="number of quotes (12154)")
    parser.add_argument("--subscribers", type=int, default=120, help="their number (120)")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder (output)")
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="build-up",
        help="how quotes' keys are encrypted for groups (build-up)",
    )
    parser.add_argument("--master", default="local[2]", help="Spark master (local[2])")
    parser.add_argument(
        "--three-brokers",
        action="store_true",
        help="run the job of three_brokers_spark.py, with the same quotes and subscriptions",
    )
    options = parser.parse_args(arguments)
    for name, least in (("events", 2), ("subscribers", 1)):
        if (number := getattr(options, name)) < least:
            parser.exit(2, f"{parser.prog}: --{name} must be at least {least}, got {number}\n")
    return options


if __name__ == "__main__":
    try:
        raise SystemExit(1 if main() else 0)
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
