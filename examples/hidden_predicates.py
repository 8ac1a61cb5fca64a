"""Real quotes against predicates of any shape, none of which the broker can tell from another.

Daily quotes (bokeh-sampledata) are quantised to eight bits: the issue, the price as one of eight
levels and the day's move as one of four. Subscribers write any SQL whose circuit has depth 4 at
most: ORs across attributes, NOT, IN, comparisons. OFSGPMatch hides all of it: two messages of 3
kilobytes meet at the broker, and their product in a group of 60 elements is alpha or the identity.

The messages travel through Spark; every answer is compared with the plaintext filter.

    python examples/hidden_predicates.py --events 1500 --subscribers 24
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time

import numpy as np
import pyarrow as pa
from bokeh_sampledata import stocks
from pyspark.sql import SparkSession

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.errors import UnsupportedPredicateError
from ccbps.matching import OFSGPMatch

ISSUES = ("AAPL", "FB", "GOOG", "IBM", "MSFT")
LEVELS = (15, 25, 40, 80, 120, 200, 400)  # dollars between the eight price levels
SCHEMA = Schema(issue=Category(ISSUES), level=UInt(3), move=UInt(2))
MATCHER = OFSGPMatch(SCHEMA, depth=4)
MASTER = cs.EnvKey("CCBPS_EXAMPLE_SEED")


def main(arguments: list[str] | None = None) -> int:
    """Encode, match and compare; return the number of answers that differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1500)
    parser.add_argument("--subscribers", type=int, default=24)
    parser.add_argument("--master", default="local[2]", help="Spark master")
    options = parser.parse_args(arguments)
    os.environ.setdefault(MASTER.name, SharedSeed.generate().to_text())
    print(MATCHER.explain(), "\n")

    quotes = read_quotes(options.events)
    texts = make_predicates(options.subscribers)
    names = [f"subscriber-{i:02d}" for i in range(len(texts))]
    spark = session(options.master)
    events = spark.createDataFrame(quotes)
    interests = spark.createDataFrame(pa.table({"subscription": names, "predicate": texts}))
    pairs = interests.select("subscription").crossJoin(events).repartition(4, "subscription")
    rounds = interests.crossJoin(events.select("round")).repartition(4, "subscription")

    started = time.perf_counter()
    matched = cs.match(
        cs.encode_events(pairs, MATCHER, MASTER),
        cs.encode_interests(rounds, MATCHER, MASTER),
        MATCHER,
    )
    found = matched.where("matched").select("subscription", "round").toArrow()
    took = time.perf_counter() - started
    spark.stop()

    answers = np.zeros((len(texts), quotes.num_rows), dtype=np.bool_)
    place = {name: i for i, name in enumerate(names)}
    rows = [place[name] for name in found["subscription"].to_pylist()]
    answers[rows, found["round"].to_numpy()] = True
    plain = np.array([SCHEMA.parse(text).evaluate(quotes) for text in texts])
    differences = int((answers != plain).sum())

    width = max(map(len, texts))
    print(f"{'predicate (the broker does not see it)':<{width}}  matches")
    for text, row in zip(texts, answers, strict=True):
        print(f"{text:<{width}}  {row.sum():>7,}")
    print(f"\npairs tested                         {answers.size:,}")
    print(f"matches                              {int(answers.sum()):,}")
    print(f"differences                          {differences}")
    print(f"bytes per side                       {MATCHER.event_bytes:,}")
    print(f"seconds, encode and match in Spark   {took:.1f}")
    return differences


def read_quotes(count: int) -> pa.Table:
    """Return `count` quotes, evenly spread over the years, quantised to the schema's eight bits."""
    issue, level, move = [], [], []
    for name in ISSUES:
        data = getattr(stocks, name)
        opened, closed = np.array(data["open"]), np.array(data["close"])
        issue += [name] * len(closed)
        level.append(np.searchsorted(LEVELS, closed))
        move.append(np.searchsorted([-0.01, 0.0, 0.01], closed / opened - 1))
    table = pa.table({"issue": issue, "level": np.concatenate(level), "move": np.concatenate(move)})
    chosen = np.linspace(0, table.num_rows - 1, min(count, table.num_rows)).astype(np.int64)
    return table.take(chosen).append_column("round", pa.array(np.arange(len(chosen))))


def make_predicates(count: int) -> list[str]:
    """Make random SQL of depth 4 at most, the same every time."""
    rng = random.Random(4)

    def leaf() -> str:
        return rng.choice(
            [
                f"issue = '{rng.choice(ISSUES)}'",
                f"issue IN ('{rng.choice(ISSUES)}', '{rng.choice(ISSUES)}')",
                f"level {rng.choice(['<', '>=', '<>'])} {rng.randrange(1, 8)}",
                f"move {rng.choice(['=', '>', '<='])} {rng.randrange(3)}",
            ]
        )

    def tree(size: int) -> str:
        if size == 1:
            return leaf()
        left = rng.randrange(1, size)
        text = f"({tree(left)} {rng.choice(['AND', 'OR'])} {tree(size - left)})"
        return f"NOT {text}" if rng.random() < 0.25 else text

    found: list[str] = []
    while len(found) < count:
        text = tree(rng.randrange(2, 5))
        try:
            MATCHER.prepare(text)
        except UnsupportedPredicateError:
            continue  # deeper than 4
        if text not in found:
            found.append(text)
    return found


def session(master: str) -> SparkSession:
    """Start a local session that keeps quiet and uses this interpreter for its workers."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = (
        SparkSession.builder.master(master)
        .appName("ccbps hidden predicates")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.execution.arrow.maxBytesPerBatch", "8m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
