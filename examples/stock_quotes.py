"""Real stock quotes, routed by a broker that cannot read them.

Twelve thousand daily quotes (bokeh-sampledata: AAPL, FB, GOOG, IBM, MSFT, 2000 to 2013) meet more
than a hundred private subscriptions such as ``issue = 'IBM' AND close < 95 AND volume > 8000000``.

1. The publisher encodes every quote for every subscription, and encrypts the full quote once.
2. The subscribers encode their predicates, ahead of time: messages do not depend on quotes.
3. The broker joins messages of one subscription and round and learns one bit per pair: match or
   not. It hands on the encrypted quote and its wrapped key where they match.
4. Subscribers open what they were sent.

The stages hand each other Parquet files and nothing else (0.4 GB with the arguments below; the
program says how many before it writes any). The broker's stage runs in a separate process, which is
given the folder of messages and no key. At the end every answer is compared with the plaintext
filter.

    python examples/stock_quotes.py --events 12154 --subscribers 120 --output output
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
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from bokeh_sampledata import stocks
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tqdm import tqdm

from ccbps import Category, Decimal, Schema, SeedRing, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.delivery import PayloadOpener
from ccbps.delivery.naive import HEAD_BYTES
from ccbps.errors import DecodeError
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
STAGES = ("events", "interests", "sealed", "matches", "delivered")
WRAPPED, SEALED = 90, 400  # bytes, about


def main(arguments: list[str] | None = None) -> int:
    """Run all stages; returns the number of answers that differ from the plaintext filter."""
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
    # Subscribers get their own pairs' seeds, from which no other seed can be derived.
    handle, path = tempfile.mkstemp()
    ring = cs.FileKey(path)
    spark = None
    try:
        with os.fdopen(handle, "w") as file:
            file.write(SeedRing.of(seed, subscriptions["subscription"].to_pylist()).to_text())
        print(f"{quotes.num_rows:,} quotes, {subscriptions.num_rows} private subscriptions")
        print(MATCHER.explain(), "\n")
        expected = announce(quotes.num_rows, subscriptions.num_rows, output)
        spark = session(options.master)
        times = {
            "encode events": publish(spark, quotes, subscriptions, output),
            "encode interests": subscribe(spark, quotes.num_rows, subscriptions, ring, output),
        }
        times["match and deliver"] = broker_process(output, options.master)
        opened = receive(spark, ring, output)
        differences, pairs, matches = audit(spark, quotes, subscriptions, output)
        report(times, pairs, matches, differences, (written(output), expected))
        show_both_views(spark, output, opened, subscriptions)
        show_stranger(spark, output, seed)
        path = plot(opened, full_months(quotes), output)
        print(f"\nMatches over time: {path}")
    finally:
        if spark is not None:
            spark.stop()
        os.environ.pop(MASTER.name, None)
        Path(ring.path).unlink()
    return differences


def publish(spark: SparkSession, quotes: pa.Table, subscriptions: pa.Table, output: Path) -> float:
    """Publisher: knows the quotes and the labels of the subscriptions, not their predicates."""
    events = spark.createDataFrame(quotes).withColumn("round", F.col("event"))
    labels = spread(spark.createDataFrame(subscriptions.select(["subscription"])))
    addressed = labels.crossJoin(F.broadcast(events.select("event", "round", *SCHEMA)))
    # The broker is to see which event a message is for, and nothing else of it.
    messages = cs.encode_events(addressed, MATCHER, MASTER, keep=["event"])
    messages = cs.wrap_keys(messages, MASTER)
    payload = F.to_json(F.struct(*[name for name in quotes.column_names if name != "event"]))
    sealed = cs.seal_payloads(events.select("event", payload.alias("payload")), MASTER)
    watch(spark, "publisher: seal quotes", lambda: write(sealed, output / "sealed"))
    return watch(spark, "publisher: encode events", lambda: write(messages, output / "events"))


def subscribe(
    spark: SparkSession, rounds: int, subscriptions: pa.Table, ring: cs.KeySource, output: Path
) -> float:
    """Subscribers: know their predicates, and how many rounds to provision; no quote."""
    numbers = spark.range(rounds).withColumnRenamed("id", "round")
    wanted = spread(spark.createDataFrame(subscriptions)).crossJoin(F.broadcast(numbers))
    messages = cs.encode_interests(wanted, MATCHER, ring)
    return watch(
        spark, "subscribers: encode predicates", lambda: write(messages, output / "interests")
    )


def broker_process(output: Path, master: str) -> float:
    """Run the broker's stage in a process without keys; returns its seconds of work."""
    environment = {k: v for k, v in os.environ.items() if k != MASTER.name}
    command = [sys.executable, __file__, "--stage", "broker"]
    command += ["--output", str(output), "--master", master]
    subprocess.run(command, env=environment, check=True)  # noqa: S603  (our own file)
    return float((output / "broker-seconds").read_text())


def broker(output: Path, master: str) -> None:
    """Broker: reads messages, ciphertexts and wrapped keys; has no key."""
    if MASTER.name in os.environ:
        raise SystemExit("the broker's process must not have the key")
    spark = session(master)
    events = spark.read.parquet(str(output / "events"))
    interests = spark.read.parquet(str(output / "interests"))
    matches = cs.match(events, interests, MATCHER)
    # Keys of pairs that do not match are handed to nobody, so they are not kept either.
    matches = matches.withColumn("wrapped_key", F.when(F.col("matched"), F.col("wrapped_key")))
    seconds = watch(spark, "broker: match", lambda: write(matches, output / "matches"))
    delivered = cs.deliver(
        spark.read.parquet(str(output / "matches")), spark.read.parquet(str(output / "sealed"))
    )
    seconds += watch(spark, "broker: deliver", lambda: write(delivered, output / "delivered"))
    (output / "broker-seconds").write_text(str(seconds))
    spark.stop()


def receive(spark: SparkSession, ring: cs.KeySource, output: Path) -> pa.Table:
    """Subscribers: open what the broker handed on."""
    delivered = spark.read.parquet(str(output / "delivered"))
    opened = cs.open_payloads(delivered, ring)
    columns = {"issue": "string", "day": "date", "close": "double", "volume": "long"}
    quote = F.from_json(
        F.col("payload").cast("string"), ", ".join(f"{k} {v}" for k, v in columns.items())
    )
    table: pa.Table = (
        opened.select("subscription", "event", quote.alias("q"))
        .select("subscription", "event", "q.*")
        .toArrow()
    )
    return table.sort_by([("subscription", "ascending"), ("event", "ascending")])


def audit(
    spark: SparkSession, quotes: pa.Table, subscriptions: pa.Table, output: Path
) -> tuple[int, int, int]:
    """Compare every answer with the plaintext filter: (differences, pairs, matches)."""
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
    return int((got != wanted).sum()), got.size, int(wanted.sum())


def announce(quotes: int, subscriptions: int, output: Path) -> int:
    """Say how many bytes the stages will write, and return them; stop if there is no space."""
    pairs = quotes * subscriptions
    # A pair: two messages, a wrapped key, ids and Parquet's lengths. A quote: padded and sealed.
    expected = pairs * (MATCHER.event_bytes + MATCHER.interest_bytes + WRAPPED) + quotes * SEALED
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
    """Bytes of all files that the stages handed each other."""
    return sum(p.stat().st_size for name in STAGES for p in (output / name).rglob("*.parquet"))


def report(
    times: dict[str, float], pairs: int, matches: int, differences: int, sizes: tuple[int, int]
) -> None:
    """The table of results."""
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
    """Rounds of one subscriber: what the broker saw, and beside it what the subscriber received."""
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
    sealed = spark.read.parquet(str(output / "sealed")).where(F.col("event").isin(chosen))
    payloads = {r["event"]: bytes(r["sealed"]) for r in sealed.collect()}
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
            handed = payloads[number][HEAD_BYTES:][:8].hex()
        answer = "match" if number in read else "no match"
        print(f"{number:>6}  {shown[0]:<18}{shown[1]:<18}{answer:<10}{handed:<18}| {quote}")


def show_stranger(spark: SparkSession, output: Path, seed: SharedSeed) -> None:
    """What a stranger's key makes of a delivery."""
    row = spark.read.parquet(str(output / "delivered")).first()
    if row is not None:
        stranger = PayloadOpener(seed.pair("somebody else"))
        wrapped = np.frombuffer(row["wrapped_key"], dtype=np.uint8)[None, :]
        try:
            stranger.open([bytes(row["sealed"])], wrapped, [row["round"]])
            print("\nSomebody else opened the payload: this must not happen")
        except DecodeError as error:
            print(f"\nSomebody else who tries to open a delivery gets: {error}")


def full_months(quotes: pa.Table) -> np.ndarray:
    """The months, as datetime64[M], of which the quotes hold all trading days."""
    days = quotes["day"].to_numpy().astype("datetime64[D]")
    first, last = days.min(), days.max()
    # The first trading day of a month is its fourth at the latest; the last month may go on.
    start = first.astype("datetime64[M]") + (first - first.astype("datetime64[M]") > 3)
    return np.arange(start, last.astype("datetime64[M]"))


def plot(opened: pa.Table, months: np.ndarray, output: Path) -> Path:
    """Matches per whole quarter, by issue; per whole month, where there is hardly a quarter."""
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
    """The first `count` quotes in order of time, prices rounded to the cent."""
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
    """Price alerts, bands, volume spikes and whole feeds, the same ones every time."""
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
    """A partition for every few subscriptions, so that all cores work and progress shows."""
    return df.repartition(16, "subscription")


def write(df: DataFrame, path: Path) -> None:
    df.write.mode("overwrite").option("compression", "none").parquet(str(path))


def watch(spark: SparkSession, label: str, action: Callable[[], None]) -> float:
    """Run a Spark action with a progress bar over its tasks; returns seconds."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:  # handed to the waiting thread
            failure.append(error)

    tracker = spark.sparkContext.statusTracker()
    started = time.perf_counter()
    worker = threading.Thread(target=run)
    worker.start()
    seen: dict[int, tuple[int, int]] = {}
    with tqdm(desc=f"{label:<32}", unit=" tasks", mininterval=1) as bar:
        while worker.is_alive():
            worker.join(0.2)
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    seen[stage] = (info.numCompletedTasks, info.numTasks)
            bar.total = sum(total for _, total in seen.values())
            bar.update(sum(done for done, _ in seen.values()) - bar.n)
        if not failure:
            bar.update(bar.total - bar.n)
    if failure:
        raise failure[0]
    return time.perf_counter() - started


def session(master: str) -> SparkSession:
    """A local session that keeps quiet and uses this interpreter for its workers."""
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
    parser.add_argument("--master", default="local[2]", help="Spark master (local[2])")
    options = parser.parse_args(arguments)
    if options.events < 1 or options.subscribers < 1:
        parser.error("--events and --subscribers must be at least 1")
    return options


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
