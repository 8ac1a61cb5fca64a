"""Real stock quotes, routed by a broker that cannot read them.

Twelve thousand daily quotes (bokeh-sampledata: AAPL, FB, GOOG, IBM, MSFT, 2000 to 2013) meet more
than a hundred private subscriptions such as ``issue = 'IBM' AND close < 95 AND volume > 8000000``.

1. The publisher encodes every quote for every subscription.
2. The subscribers encode their predicates, ahead of time: messages do not depend on quotes.
3. The broker joins messages of one subscription and round and learns one bit per pair: match or
   not. So it knows the group that a quote is for.
4. The publisher encrypts each quote once, and the quote's key for its group, in a stream that
   remembers which groups have a key already: most quotes take one encryption.
5. Subscribers open what they were sent.

The stages hand each other Parquet files and nothing else (0.3 GB with the arguments below; the
program says how many before it writes any). The broker's stage runs in a separate process, which is
given the folder of messages and no key. At the end every answer and every delivery is compared with
the plaintext filter.

    python examples/stock_quotes.py --events 12154 --subscribers 120 --strategy build-up
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from bokeh_sampledata import stocks
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

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
from ccbps.wire import ROUND_HEADER_BYTES

ISSUES = ("AAPL", "FB", "GOOG", "IBM", "MSFT")
SCHEMA = Schema(
    issue=Category(ISSUES),
    close=Decimal(0, "1310.71", step="0.01"),
    volume=UInt(30),
)
MATCHER = FormulaMatch.box(SCHEMA)
MASTER = cs.EnvKey("CCBPS_EXAMPLE_SEED")  # the publisher's
STAGES = ("events", "interests", "matches", "groups", "checkpoint", "delivered")
# Bytes of a pair's ids, of a delivery and of Parquet's files, and pairs that match: about.
IDS, DELIVERY, FILES, MATCHES = 15, 420, 40_000, 0.09
KEYS = 1000  # of groups, that the publisher remembers
STRATEGIES = ("naive", "tree", "clustered", "simple", "clustered-popular", "learned", "build-up")
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main(arguments: list[str] | None = None) -> int:
    """Run all stages, and return the number of answers that differ from the plaintext filter."""
    options = parse(arguments)
    output: Path = options.output
    if options.stage == "broker":
        broker(output, options.master)
        return 0
    output.mkdir(parents=True, exist_ok=True)
    for name in STAGES:
        shutil.rmtree(output / name, ignore_errors=True)
    quotes, subscriptions = read_quotes(options.events), make_subscriptions(options.subscribers)
    seed = SharedSeed.generate()
    os.environ[MASTER.name] = seed.to_text()
    folder = Path(tempfile.mkdtemp())  # which only we may read
    spark = None
    try:
        # Subscribers get their own pairs' seeds, from which no other seed can be derived, and a key
        # each for deliveries.
        names = subscriptions["subscription"].to_pylist()
        ring = key_file(folder / "seeds", SeedRing.of(seed, names))
        sealer = GroupSealer(Naive(len(names)))
        own = key_file(folder / "own", SubscriberRing.of([*map(sealer.join, range(len(names)))]))
        state = key_file(folder / "state", sealer.state)
        print(f"{quotes.num_rows:,} quotes, {subscriptions.num_rows} private subscriptions")
        print(MATCHER.explain(), "\n")
        expected = announce(quotes.num_rows, subscriptions.num_rows, output)
        spark = session(options.master)
        times = {
            "encode events": publish(spark, quotes, subscriptions, output),
            "encode interests": subscribe(spark, quotes.num_rows, subscriptions, ring, output),
        }
        times["match"] = broker_process(output, options.master)
        groups = read_groups(spark, output, quotes.num_rows, len(names))
        strategies = make_strategies(len(names), groups)
        strategy = strategies[options.strategy]
        times["deliver"] = deliver(spark, quotes, strategy, state, output)
        opened = receive(spark, own, state, output)
        differences, pairs, matches = audit(spark, quotes, subscriptions, opened, output)
        report(times, pairs, matches, differences, (written(output), expected))
        report_encryptions(spark, strategies, options.strategy, groups, pairs, output)
        show_both_views(spark, output, opened, subscriptions)
        show_stranger(spark, output, sealer)
        path = plot(opened, full_months(quotes), output)
        print(f"\nMatches over time: {path}")
    finally:
        if spark is not None:
            spark.stop()
        os.environ.pop(MASTER.name, None)
        shutil.rmtree(folder)
    return differences


def publish(spark: SparkSession, quotes: pa.Table, subscriptions: pa.Table, output: Path) -> float:
    """Publish: the publisher knows the quotes and the subscriptions' labels, not predicates."""
    events = spark.createDataFrame(quotes).withColumn("round", F.col("event"))
    labels = spread(spark.createDataFrame(subscriptions.select(["subscription"])))
    addressed = labels.crossJoin(F.broadcast(events.select("event", "round", *SCHEMA)))
    # The broker is to see which event a message is for, and nothing else of it.
    messages = cs.encode_events(addressed, MATCHER, MASTER, keep=["event"])
    return watch(spark, "publisher: encode events", lambda: write(messages, output / "events"))


def subscribe(
    spark: SparkSession, rounds: int, subscriptions: pa.Table, ring: cs.KeySource, output: Path
) -> float:
    """Subscribe: subscribers know their predicates and the number of rounds, and no quote."""
    wanted = spread(spark.createDataFrame(subscriptions))
    messages = cs.encode_interests(wanted, MATCHER, ring, rounds=range(rounds))
    return watch(
        spark, "subscribers: encode predicates", lambda: write(messages, output / "interests")
    )


def broker_process(output: Path, master: str) -> float:
    """Run the broker's stage in a process without keys, and return its seconds of work."""
    environment = {k: v for k, v in os.environ.items() if k != MASTER.name}
    command = [sys.executable, __file__, "--stage", "broker"]
    command += ["--output", str(output), "--master", master]
    subprocess.run(command, env=environment, check=True)  # noqa: S603  (our own file)
    return float((output / "broker-seconds").read_text())


def broker(output: Path, master: str) -> None:
    """Match: the broker reads messages, has no key, and names the subscribers of each quote."""
    if MASTER.name in os.environ:
        raise SystemExit("the broker's process must not have the key")
    spark = session(master)
    events = spark.read.parquet(str(output / "events"))
    interests = spark.read.parquet(str(output / "interests"))
    matches = cs.match(events, interests, MATCHER)
    seconds = watch(spark, "broker: match", lambda: write(matches, output / "matches"))
    matched = spark.read.parquet(str(output / "matches")).where("matched")
    number = F.split("subscription", "-")[1].cast("int")  # of the subscriber
    groups = matched.groupBy("event").agg(F.collect_list(number).alias("members"))
    groups = groups.repartitionByRange(6, "event")
    seconds += watch(spark, "broker: groups", lambda: write(groups, output / "groups"))
    (output / "broker-seconds").write_text(str(seconds))
    spark.stop()


def read_groups(spark: SparkSession, output: Path, quotes: int, subscribers: int) -> np.ndarray:
    """Return the group of each quote, packed, by the broker's answers."""
    rows = spark.read.parquet(str(output / "groups")).toArrow()
    bits = np.zeros((quotes, subscribers), dtype=np.bool_)
    members = rows["members"].combine_chunks()
    events = np.repeat(rows["event"].to_numpy(), np.diff(members.offsets.to_numpy()))
    bits[events, members.flatten().to_numpy()] = True
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


def deliver(
    spark: SparkSession, quotes: pa.Table, strategy: Strategy, state: cs.KeySource, output: Path
) -> float:
    """Seal each quote for its group; the cache of keys lasts over micro-batches."""
    spark.conf.set(STATE_STORE, ROCKS)
    spark.conf.set("spark.sql.shuffle.partitions", "1")  # one sealer; its state is in one place
    payload = F.to_json(F.struct(*[name for name in quotes.column_names if name != "event"]))
    payloads = spark.createDataFrame(quotes).select("event", payload.alias("payload"))
    groups = (
        spark.readStream.schema("event long, members array<int>")
        .option("maxFilesPerTrigger", 3)
        .parquet(str(output / "groups"))
    )
    sealed = cs.seal_for_groups(groups.join(F.broadcast(payloads), "event"), strategy, state)

    def run() -> None:
        query = (
            sealed.writeStream.format("parquet")
            .option("compression", "none")
            .option("path", str(output / "delivered"))
            .option("checkpointLocation", str(output / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return watch(spark, "publisher: seal for groups", run)


def receive(spark: SparkSession, own: cs.KeySource, state: cs.KeySource, output: Path) -> pa.Table:
    """Open the deliveries of the broker, and request missing keys."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    delivered = spark.read.parquet(str(output / "delivered"))
    opened = open_all(delivered, own, state)
    columns = {"issue": "string", "day": "date", "close": "double", "volume": "long"}
    quote = F.from_json(
        F.col("payload").cast("string"), ", ".join(f"{k} {v}" for k, v in columns.items())
    )
    name = F.format_string("subscriber-%04d", "subscriber").alias("subscription")
    table: pa.Table = (
        opened.select(name, "event", quote.alias("q"))
        .select("subscription", "event", "q.*")
        .toArrow()
    )
    return table.sort_by([("subscription", "ascending"), ("event", "ascending")])


def open_all(delivered: DataFrame, own: cs.KeySource, state: cs.KeySource) -> DataFrame:
    """Return every delivery, opened at once or when its requested key has come."""
    return open_late(cs.open_from_groups(delivered, own).persist(), delivered, own, state)


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
    spark: SparkSession, quotes: pa.Table, subscriptions: pa.Table, opened: pa.Table, output: Path
) -> tuple[int, int, int]:
    """Compare answers and deliveries with the plaintext filter: (differences, pairs, matches)."""
    columns = ["subscription", "round", "matched"]
    answers = spark.read.parquet(str(output / "matches")).select(columns).toArrow()
    place = {name: i for i, name in enumerate(subscriptions["subscription"].to_pylist())}
    got = np.full((len(place), quotes.num_rows), -1, dtype=np.int8)
    coded = answers["subscription"].combine_chunks().dictionary_encode()
    rows = np.array([place[name] for name in coded.dictionary.to_pylist()])[coded.indices]
    got[rows, answers["round"].to_numpy()] = answers["matched"].to_numpy()
    events = SCHEMA.encode(quotes)
    wanted = np.stack(
        [SCHEMA.parse(text).evaluate(events) for text in subscriptions["predicate"].to_pylist()]
    )
    # An opened quote must be the one that was sent, to whom it matches, once.
    sent = quotes.take(opened["event"])
    same = np.ones(opened.num_rows, dtype=np.bool_)
    for name in ("issue", "day", "close", "volume"):
        same &= sent[name].cast(opened[name].type).to_numpy() == opened[name].to_numpy()
    received = np.zeros(wanted.shape, dtype=np.int64)
    owners = [place[name] for name in opened["subscription"].to_pylist()]
    np.add.at(received, (owners, opened["event"].to_numpy()), np.where(same, 1, 2))
    differences = int((got != wanted).sum()) + int((received != wanted).sum())
    return differences, got.size, int(wanted.sum())


def announce(quotes: int, subscriptions: int, output: Path) -> int:
    """Print and return the bytes that the stages will write; stop if there is no space."""
    pairs = quotes * subscriptions
    # A pair: two messages, ids and Parquet's lengths; a delivery, if it matches.
    pair = MATCHER.event_bytes + MATCHER.interest_bytes + IDS + MATCHES * DELIVERY
    expected = round(pairs * pair) + FILES
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
    """Return the bytes of all files that the stages handed each other."""
    return sum(p.stat().st_size for name in STAGES for p in (output / name).rglob("*.parquet"))


def report_encryptions(
    spark: SparkSession,
    strategies: dict[str, Strategy],
    chosen: str,
    groups: np.ndarray,
    pairs: int,
    output: Path,
) -> None:
    """Print encryptions of quotes' keys: counted in messages, and by each strategy."""
    delivered = spark.read.parquet(str(output / "delivered")).select("message").toArrow()
    # A wrap that several subscribers open is in the message of each.
    events = (GroupMessage.from_bytes(text.as_py()) for text in delivered["message"])
    counted = len({(event.event, event.wraps[0][0]) for event in events})
    quotes = int(np.count_nonzero(groups.any(axis=1)))
    print(f"\n{quotes:,} quotes match somebody. How often are their keys encrypted?\n")
    print(f"{'before matching':<24}{pairs:>14,}   a key for each pair, handed over on a match")
    for name, strategy in strategies.items():
        strategy.forget()
        print(f"{name:<24}{strategy.count(groups).sum():>14,}", end="")
        print(f"   chosen: {counted:,} counted in the messages" if name == chosen else "")


def report(
    times: dict[str, float], pairs: int, matches: int, differences: int, sizes: tuple[int, int]
) -> None:
    """Print the table of results."""
    print(f"\n{'pairs tested':<24}{pairs:>14,}")
    print(f"{'matches':<24}{matches:>14,}")
    print(f"{'differences':<24}{differences:>14,}   against the plaintext filter")
    print(f"{'bytes per event':<24}{MATCHER.event_bytes:>14,}   per pair")
    print(f"{'bytes per interest':<24}{MATCHER.interest_bytes:>14,}   per pair")
    print(f"{'bytes written':<24}{sizes[0]:>14,}   announced: {sizes[1]:,}")
    for name, seconds in times.items():
        print(f"{name:<24}{pairs / seconds:>14,.0f}   pairs per second ({seconds:.1f} s)")


def show_both_views(
    spark: SparkSession, output: Path, opened: pa.Table, subscriptions: pa.Table
) -> None:
    """Print rounds of one subscriber: the broker's view beside the subscriber's."""
    received = opened.to_pylist()
    name = received[0]["subscription"] if received else subscriptions["subscription"][0].as_py()
    read = {row["event"]: row for row in received if row["subscription"] == name}
    place = subscriptions["subscription"].to_pylist().index(name)
    print(f"\n{name} subscribed to: {subscriptions['predicate'][place]}")

    def rows(folder: str) -> DataFrame:
        return spark.read.parquet(str(output / folder)).where(F.col("subscription") == name)

    matches = rows("matches").select("round", "matched").orderBy("round").limit(2000).collect()
    chosen = [r["round"] for r in matches if r["matched"]][:5]
    chosen += [r["round"] for r in matches if not r["matched"]][:3]
    seen = {
        kind: {
            r["round"]: bytes(r[f"{kind}_message"])
            for r in rows(f"{kind}s").where(F.col("round").isin(chosen)).collect()
        }
        for kind in ("event", "interest")
    }
    delivered = spark.read.parquet(str(output / "delivered"))
    delivered = delivered.where(F.col("event").isin(chosen) & (F.col("subscriber") == place))
    payloads = {r["event"]: bytes(r["message"]) for r in delivered.collect()}
    print(
        f"and received {len(read):,} quotes. What the broker saw (the first bytes after the header"
    )
    sizes = f"{MATCHER.event_bytes} and {MATCHER.interest_bytes} bytes"
    print(f"of messages of {sizes} and of sealed quotes), and what arrived:\n")
    print(f"{'round':>6}  {'event message':<18}{'interest message':<18}{'answer':<10}", end="")
    print(f"{'sealed quote':<18}| the subscriber read")
    for number in sorted(chosen):
        both = [seen[kind][number] for kind in ("event", "interest")]
        shown = [message[ROUND_HEADER_BYTES:][:8].hex() for message in both]
        quote, handed = "nothing", ""
        if number in read:
            row = read[number]
            quote = f"{row['day']}  {row['issue']:<5}{row['close']:>8.2f} {row['volume']:>12,}"
            handed = GroupMessage.from_bytes(payloads[number]).payload[:8].hex()
        answer = "match" if number in read else "no match"
        print(f"{number:>6}  {shown[0]:<18}{shown[1]:<18}{answer:<10}{handed:<18}| {quote}")


def show_stranger(spark: SparkSession, output: Path, sealer: GroupSealer) -> None:
    """Print what a newcomer, who holds a key as well, can make of a delivery."""
    row = spark.read.parquet(str(output / "delivered")).first()
    if row is not None:
        sealer.leave(row["subscriber"])
        stranger = GroupOpener(sealer.join(row["subscriber"]), capacity=1)
        try:
            try:
                stranger.open(bytes(row["message"]))
            except MissingKeyError as missing:
                sealer.answer(missing.request)
            print("\nSomebody else opened the payload: this must not happen")
        except DecodeError as error:
            print(f"\nSomebody who gets the same number later, and asks for keys, gets: {error}")


def key_file(path: Path, key: object) -> cs.FileKey:
    """Write the text of a key to a file."""
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


def spread(df: DataFrame) -> DataFrame:
    """Partition by a few subscriptions, so that all cores work and progress shows."""
    return df.repartition(16, "subscription")


def write(df: DataFrame, path: Path) -> None:
    df.write.mode("overwrite").option("compression", "none").parquet(str(path))


def watch(spark: SparkSession, label: str, action: Callable[[], None]) -> float:
    """Run a Spark action with a progress bar over its tasks, and return its seconds."""
    started = time.perf_counter()
    with cs.progress(spark, f"{label:<32}"):
        action()
    return time.perf_counter() - started


def session(master: str) -> SparkSession:
    """Start a local session that keeps quiet and uses this interpreter for its workers."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = (
        SparkSession.builder.master(master)
        .appName("ccbps stock quotes")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "16")
        .config("spark.sql.execution.arrow.maxBytesPerBatch", "8m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=12154, help="number of quotes (12154)")
    parser.add_argument("--subscribers", type=int, default=120, help="their number (120)")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder (output)")
    parser.add_argument(
        "--stage", choices=["all", "broker"], default="all", help="what to run (all)"
    )
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="build-up",
        help="how quotes' keys are encrypted for groups (build-up)",
    )
    parser.add_argument("--master", default="local[2]", help="Spark master (local[2])")
    options = parser.parse_args(arguments)
    if options.events < 1 or options.subscribers < 1:
        parser.error("--events and --subscribers must be at least 1")
    return options


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
