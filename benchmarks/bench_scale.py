"""How far does it go, and what would a cluster take? 10^5 to 10^8 pairs on local[2], and local[1].

FormulaMatch, whose messages belong to pairs and rounds, is measured with up to ten million pairs in
Parquet: both sides are encoded, matched by a join, and written as stores. Spark's join alone is the
limit of the match. All sizes are written as stores in place, and matched from there, by parts of
ten million pairs. Where the disk has room (33 GB for 10^8), the stores of parts stay. Those of the
largest size, if it has ten million pairs or more, are matched by one job at the end, from memory:
three times for all answers and three times for the matches. Two reusable schemes match all events
with 1,000 interests. Of each: pairs a second, bytes that Spark shuffled, and the peak memory of the
driver, of Java and of all Python workers together.

Stores are measured beside the kernel that matches them, compiled and in NumPy, before and after
every run: the speed of shared machines changes. The kernel and every session of Spark run in
processes of their own; a session takes its sizes from the smallest to the largest. A fixed time and
a time for each pair are fitted to all sizes but the largest, and compared with the largest. The
model of a cluster follows.

    python benchmarks/bench_scale.py [--least 5] [--most 8] [--memory 1500m] [--quick]

With --most 8 it takes about ten minutes, with --most 6 two.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from mmap import ACCESS_READ, PAGESIZE, mmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from report import Table, options
from spark_session import EVENT_LOG, key_files, local_spark, task_ends
from timing import machine, one_thread, timed
from tqdm import tqdm
from workloads import SCHEMA

from ccbps import Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.compiled import loading_problem
from ccbps.matching import FormulaMatch, TagMatch
from ccbps.matching.broken import AspeMatch
from ccbps.matching.contract.matcher import Matcher

KEY = cs.EnvKey("CCBPS_BENCH_SEED")
BOX = FormulaMatch.box(SCHEMA)
# Of other widths: what a pair takes at the middle one is foretold from the others.
WIDTHS = {
    f"FormulaMatch, {52 + 26 * more} bits": FormulaMatch.box(
        Schema(a=UInt(16), b=UInt(16), c=UInt(20), **{f"d{i}": UInt(26) for i in range(more)})
    )
    for more in range(3)
}
WIDTH_PAIRS = 1_000_000
REUSABLE: dict[str, Matcher] = {
    "TagMatch": TagMatch(SCHEMA),
    "AspeMatch": AspeMatch(SCHEMA, exact=True),
}
PLAIN = "a >= id * 67 % 65536 AND c < 800000"  # what predicates mean
IN_NUMPY = "FormulaMatch, in NumPy"
PART = 10_000_000  # pairs at a time, and of tables at the most
ALONE = 1_000_000  # pairs on one core at the most
SUBSCRIPTIONS = 1000
WARM_UP = 3  # jobs over all parts
RUNS = 3
COMPILED = "ccbps.encodings.formula.compiled_rows"
TABLES = ("encode events", "encode interests", "join alone", "match", "write stores")
STORES = ("write events", "write interests", "match stores")
STEPS = (*TABLES, *STORES)
Point = tuple[str, int]
"""Scheme, and number of pairs."""
Parts = list[dict[str, float]]
"""Seconds of each step, part by part."""
AtOnce = dict[str, list[tuple[float, float, int]]]
"""Of one job over all parts, run by run: the kernel's pairs a second beside it, its seconds, and
bytes that came from the disk meanwhile."""


def main() -> None:
    given = options(
        __doc__,
        least=5,
        most=8,
        memory={"default": "1500m", "help": "memory of the driver's Java (default: 1500m)"},
        folder=Path,
        quick="10^5 pairs at the most",
        session={"help": argparse.SUPPRESS},
        kernel={"action": "store_true", "help": argparse.SUPPRESS},
    )
    if given.kernel:
        kernel_alone()
        return
    if given.session:
        master, points = json.loads(given.session)
        measure(master, points, given.memory, given.folder)
        return
    most = given.least if given.quick else given.most
    sizes = [10**power for power in range(given.least, most + 1)]
    if problem := loading_problem(lambda: importlib.import_module(COMPILED)):
        raise SystemExit(f"this compares compiled kernels: pip install 'ccbps[bench]' ({problem})")
    print(machine())
    wide = min(sizes[-1], WIDTH_PAIRS)
    plan = [
        (
            "local[2]",
            [("FormulaMatch", size) for size in sizes] + [(name, wide) for name in WIDTHS],
        ),
        ("local[1]", [("FormulaMatch", size) for size in sizes if size <= ALONE]),
        ("local[2]", [(IN_NUMPY, min(sizes[-1], 5 * PART))]),
        *(("local[2]", [(name, size) for size in sizes]) for name in REUSABLE),
    ]
    results = {}
    with tqdm(total=sum(len(points) for _, points in plan), desc="points", mininterval=1) as bar:
        for master, points in plan:
            for (scheme, size), value in zip(points, run(master, points, given, bar), strict=True):
                results[scheme, master, size] = value
    report_pairs({key: value for key, value in results.items() if key[0] == "FormulaMatch"})
    report_stores(results)
    report_widths({name: value for (name, *_), value in results.items() if name in WIDTHS}, wide)
    for name in REUSABLE:
        report_reusable(name, {key[2]: value for key, value in results.items() if key[0] == name})


# -- one session, in a process of its own ----------------------------------------------------------


def run(master: str, points: list[Point], given: Any, bar: tqdm) -> list[dict[str, Any]]:
    """Return seconds, bytes and memory of each point of a session."""
    in_numpy = points[0][0] == IN_NUMPY
    with tempfile.TemporaryDirectory(dir=given.folder) as folder, ExitStack() as stack:
        command = [sys.executable, __file__, "--memory", given.memory, "--folder", folder]
        command += ["--session", json.dumps([master, points])]
        answers = Path(folder, "answers")
        process = subprocess.Popen(
            command,
            env={**os.environ, "CCBPS_COMPILED": "0" if in_numpy else ""},
            start_new_session=True,
            stdout=stack.enter_context(answers.open("wb")),
            stderr=subprocess.DEVNULL,
        )
        peaks: list[dict[str, int]] = []
        peak = {"java": 0, "workers": 0, "driver": 0, "all": 0}
        while process.poll() is None:
            now = memory_of(process.pid)
            now["all"] = sum(now.values())
            peak = {name: max(peak[name], now[name]) for name in peak}
            while len(peaks) < min(len(points), answers.read_bytes().count(b"\n")):
                peaks.append(peak)
                peak = dict.fromkeys(peak, 0)
                bar.update()
            time.sleep(0.1)
        if process.returncode:
            raise SystemExit(f"the session {master} {points} failed")
        *results, bytes_of_points = map(json.loads, answers.read_bytes().splitlines())
        return [
            {**result, "peak": peak, "shuffled": moved}
            for result, peak, moved in zip(results, peaks, bytes_of_points, strict=True)
        ]


def memory_of(session: int) -> dict[str, int]:
    """Return the anonymous resident bytes of a session's processes, by kind.

    Mapped files, such as stores, are the system's cache, and are not counted. A child of Java is
    not counted until it runs another program, since its memory is Java's own.
    """
    out, java, children = {"java": 0, "workers": 0, "driver": 0}, set(), []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                number, parent = int(path.parent.name), int(fields[1])
                command = (path.parent / "cmdline").read_bytes()
                status = (path.parent / "status").read_text()
                size = int(status.partition("RssAnon:")[2].split()[0]) * 1024
                if command.split(b"\0")[0].endswith(b"/java"):
                    java.add(number)
                    children.append((parent, size))
                else:
                    out["driver" if number == session else "workers"] += size
        except (OSError, IndexError):  # it has ended
            continue
    out["java"] = sum(size for parent, size in children if parent not in java)
    return out


def measure(master: str, points: list[Point], memory: str, folder: Path) -> None:
    """Print the seconds of each step, a line for a point, and at last the bytes shuffled."""
    log = folder / "log"
    log.mkdir()
    os.environ[KEY.name] = SharedSeed.generate().to_text()
    settings = {
        "driver_memory": memory,
        **EVENT_LOG,
        "eventLog_dir": log.as_uri(),
        "local_dir": str(folder / "local"),
        "sql_execution_arrow_maxBytesPerBatch": "8m",
        "sql_shuffle_partitions": "16",
        # Rows live for a moment: this collector takes a quarter off a join of ten million.
        "driver_extraJavaOptions": "-XX:+UseParallelGC",
    }
    begun = []
    with local_spark(master, **settings) as spark:
        work = reusable if points[0][0] in REUSABLE else one_time
        # The first job of a session loads classes, and its workers import and compile.
        work(spark, points[0][0], 10_000, folder / "first")
        for number, (scheme, pairs) in enumerate(points):
            begun.append(time.time())
            last = pairs == max(size for name, size in points if name == scheme)
            parts, runs = work(spark, scheme, pairs, folder / f"point{number}", last)
            took = {step: sum(part[step] for part in parts) for step in parts[0]}
            print(json.dumps({"seconds": took, "parts": parts, "at once": runs}), flush=True)
    ends = [*begun[1:], time.time()]
    print(json.dumps([shuffled(log, *times) for times in zip(begun, ends, strict=True)]))


def sample(spark: SparkSession, rounds: int, subscriptions: int, first: int = 0) -> DataFrame:
    """Return records of all pairs, addressed."""
    labels = labelled(spark, subscriptions).repartition(8, "subscription")
    return labels.crossJoin(F.broadcast(events_of(spark, rounds, first)))


def events_of(spark: SparkSession, rounds: int, first: int) -> DataFrame:
    """Return records of some rounds."""
    return spark.range(first, first + rounds).selectExpr(
        "id AS round",
        "CAST(id * 40503 % 65536 AS int) AS a",
        "CAST(id * 30011 % 65536 AS int) AS b",
        "CAST(id * 700001 % 1048576 AS int) AS c",
        "CAST(id * 9973 % 67108864 AS int) AS d0",
        "CAST(id * 7919 % 67108864 AS int) AS d1",
    )


def labelled(spark: SparkSession, subscriptions: int) -> DataFrame:
    return spark.range(subscriptions).selectExpr("concat('s', id) AS subscription", "id")


def with_predicates(df: DataFrame) -> DataFrame:
    return df.withColumn(
        "predicate", F.concat(F.lit("a >= "), F.col("id") * 67 % 65536, F.lit(" AND c < 800000"))
    )


def one_time(
    spark: SparkSession, scheme: str, pairs: int, folder: Path, last: bool = False
) -> tuple[Parts, AtOnce]:
    """Measure each part; drop it at its end, except its stores if all are matched at once."""
    parts: Parts = []
    box = WIDTHS.get(scheme, BOX)
    stores: dict[str, list[Path]] = {"events": [], "interests": []}
    room = shutil.disk_usage(folder.parent).free
    keep = (
        last
        and pairs >= PART
        and scheme in ("FormulaMatch", IN_NUMPY)
        and spark.sparkContext.master == "local[2]"
        and room > 2 * pairs * (BOX.event_bytes + BOX.interest_bytes)
    )
    matches = 0
    subscriptions = min(SUBSCRIPTIONS, pairs // 100)
    rounds = pairs // subscriptions
    step = max(1, min(rounds, PART // subscriptions))
    for first in range(0, rounds, step):
        here = folder / "part"
        here_rounds = range(first, min(first + step, rounds))
        rows = sample(spark, len(here_rounds), subscriptions, first)
        expected = rows.where(PLAIN).count()
        took = {}
        if pairs <= PART and scheme != IN_NUMPY:
            took = tables(spark, rows, box, here, expected)
        for name, of in stores.items():
            of.append((folder if keep else here) / f"{name}-store-{first}")
        took["write events"] = timed(
            partial(
                cs.write_events,
                events_of(spark, len(here_rounds), first),
                stores["events"][-1],
                box,
                KEY,
                labels=[f"s{number}" for number in range(subscriptions)],
            )
        )
        took["write interests"] = timed(
            partial(
                cs.write_interests,
                with_predicates(labelled(spark, subscriptions)),
                stores["interests"][-1],
                box,
                KEY,
                rounds=here_rounds,
            )
        )
        newest = [of[-1:] for of in stores.values()]
        took["match stores"] = matched(partial(cs.match_messages, spark, *newest, box), expected)
        parts.append(took)
        matches += expected
        shutil.rmtree(here, ignore_errors=True)
    return parts, at_once(spark, stores, matches, scheme == IN_NUMPY) if keep else {}


def tables(
    spark: SparkSession, rows: DataFrame, box: FormulaMatch, folder: Path, expected: int
) -> dict[str, float]:
    """Return the seconds of each step with messages in tables."""
    took, read = {}, {}
    for name, df in {
        "events": cs.encode_events(rows, box, KEY),
        "interests": cs.encode_interests(with_predicates(rows), box, KEY),
    }.items():
        path = str(folder / name)
        took[f"encode {name}"] = timed(
            lambda df=df, path=path: df.write.option("compression", "none").parquet(path)
        )
        read[name] = spark.read.parquet(path)
    joined = read["events"].join(read["interests"], ["subscription", "round"])
    widths = joined.selectExpr("length(event_message) + length(interest_message) AS width")
    took["join alone"] = timed(widths.agg(F.sum("width")).collect)
    took["match"] = matched(partial(cs.match, *read.values(), box), expected)
    took["write stores"] = 0.0
    for name, df in read.items():
        moved = folder / f"{name}-written"
        took["write stores"] += timed(
            lambda df=df, name=name, moved=moved: cs.write_messages(
                df, moved, box, kind=name[:-1], partitions=8
            )
        )
        shutil.rmtree(moved)
    return took


def at_once(
    spark: SparkSession, stores: dict[str, list[Path]], expected: int, in_numpy: bool
) -> AtOnce:
    """Measure one job over all stores, from memory.

    The first jobs are not counted: they read the files, and Java compiles what it runs.
    """
    every = partial(cs.match_messages, spark, *stores.values(), BOX)
    runs: AtOnce = {}
    with ExitStack() as stack:
        kernel = stack.enter_context(kernel_beside(in_numpy))
        kernel()
        for _ in range(WARM_UP):
            matched(every, expected)
        stack.enter_context(in_memory([*stores["events"], *stores["interests"]]))
        before = kernel()
        for name, only in (("all answers", False), ("matches only", True)):
            runs[name] = []
            for _ in range(RUNS):
                at = read_from_disks()
                took = matched(partial(every, matches_only=only), expected)
                read, after = read_from_disks() - at, kernel()
                runs[name].append(((before + after) / 2, took, read))
                before = after
    return runs


@contextmanager
def in_memory(folders: list[Path]) -> Iterator[None]:
    """Keep files in the system's cache, as far as they fit.

    Some systems drop files that no process has mapped, although memory is free.
    """
    with ExitStack() as stack:
        for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
            file = stack.enter_context(path.open("rb"))
            if path.stat().st_size:
                held = stack.enter_context(mmap(file.fileno(), 0, access=ACCESS_READ))
                np.frombuffer(held, dtype=np.uint8)[::PAGESIZE].max()
        yield


def read_from_disks() -> int:
    """Return the bytes that the whole machine has read from its disks."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("pgpgin "))


def matched(decide: Callable[[], DataFrame], expected: int) -> float:
    """Return the seconds from planning until all matches are counted."""

    def count() -> None:
        if (matches := decide().where("matched").count()) != expected:
            raise SystemExit(f"wrong answers: {matches} matches, expected {expected}")

    return timed(count)


def reusable(
    spark: SparkSession, scheme: str, pairs: int, folder: Path, last: bool = False
) -> tuple[Parts, AtOnce]:
    """Measure all events with all interests."""
    folder.mkdir()
    matcher = REUSABLE[scheme]
    server = matcher.key_server()
    files = key_files(
        folder,
        publisher=server.publisher_key(),
        subscriber=server.subscriber_key("alice"),
        broker=server.broker_key(),
    )
    subscriptions = min(SUBSCRIPTIONS, pairs // 100)
    events = sample(spark, pairs // subscriptions, 1).repartition(8)
    wishes = with_predicates(sample(spark, 1, subscriptions))
    sides = {
        "events": cs.encode_events(events, matcher, files["publisher"], keep=["round"]),
        "interests": cs.encode_interests(wishes, matcher, files["subscriber"]),
    }
    took, counts = {}, []
    for name, df in sides.items():
        path = str(folder / name)
        took[f"encode {name}"] = timed(lambda df=df, path=path: df.write.parquet(path))
    read = [spark.read.parquet(str(folder / name)) for name in sides]
    decided = cs.match(*read, matcher, files["broker"])
    took["match"] = timed(lambda: counts.append(decided.count()))
    every = events.drop("subscription", "id").crossJoin(wishes.select("subscription", "id"))
    expected = every.where(PLAIN).count()
    if counts != [expected]:
        raise SystemExit(f"wrong answers: {counts}, expected {expected}")
    return [took], {}


def shuffled(log: Path, since: float, until: float) -> int:
    """Return the bytes that tasks wrote for others, of tasks launched in a span of time."""
    metrics = [
        end.get("Task Metrics") or {}
        for end in task_ends(log)
        if since <= end["Task Info"]["Launch Time"] / 1000 < until
    ]
    writes = [metric.get("Shuffle Write Metrics", {}) for metric in metrics]
    return sum(write.get("Shuffle Bytes Written", 0) for write in writes)


@contextmanager
def kernel_beside(in_numpy: bool) -> Iterator[Callable[[], float]]:
    """Measure pairs a second of the broker's kernel on one core, in a process of its own."""
    with subprocess.Popen(
        [sys.executable, __file__, "--kernel"],
        env={**os.environ, "CCBPS_COMPILED": "0" if in_numpy else "1"},
        start_new_session=True,  # its memory is not the point's
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise SystemExit("the kernel cannot be measured")

        def speed() -> float:
            time.sleep(1)  # until Spark is at rest
            print(file=process.stdin, flush=True)
            return float(process.stdout.readline())

        yield speed
        process.stdin.close()


def kernel_alone() -> None:
    """Print pairs a second for each line of input, the median of a second, in uncached arrays."""
    rng, count = np.random.default_rng(1), 1_000_000
    seed, rounds = SharedSeed.generate(), np.arange(count)
    records = pa.table({n: rng.integers(0, 1 << SCHEMA[n].bits, count) for n in SCHEMA})
    events = BOX.publisher(seed).encode(records, rounds)
    interests = BOX.subscriber(seed).encode(["a >= 77 AND c < 800000"] * count, rounds)
    broker = BOX.broker()
    broker.match(events, interests)
    for _ in sys.stdin:
        took = [timed(lambda: broker.match(events, interests))]
        while sum(took) < 1:
            took.append(timed(lambda: broker.match(events, interests)))
        print(count / np.median(took), flush=True)


# -- what they say --------------------------------------------------------------------------------


def fitted(sizes: list[int], times: list[float]) -> tuple[float, float]:
    """Return a fixed time and a time for each pair, both at least 0, nearest in ratio."""
    weights = 1 / np.array(times)
    system = np.stack([np.ones(len(sizes)), np.array(sizes, dtype=float)], axis=1)
    solution = np.linalg.lstsq(system * weights[:, None], np.ones(len(sizes)), rcond=None)[0]
    return max(0.0, float(solution[0])), max(0.0, float(solution[1]))


MEMORY = dict.fromkeys(("shuffled, GB", "peak, GiB", "Java", "driver", "workers"), ".2f")


def memory_of_point(value: dict[str, Any]) -> list[float]:
    """Return the figures of the columns `MEMORY`."""
    peaks = (value["peak"][name] / (1 << 30) for name in ("all", "java", "driver", "workers"))
    return [value["shuffled"] / 1e9, *peaks]


def report_pairs(results: dict[tuple[str, str, int], dict[str, Any]]) -> None:
    """Print the table of FormulaMatch, the fit, and the model of a cluster."""
    print(f"FormulaMatch: {BOX.event_bytes} + {BOX.interest_bytes} bytes")
    heads = {**dict.fromkeys(STEPS, ",.0f"), **MEMORY}
    table = Table("FormulaMatch, pairs a second", heads, head="pairs", width=24, least=12)
    for (_, master, size), value in results.items():
        took = value["seconds"]
        speeds = [size / took[step] if step in took else None for step in STEPS]
        table.row(f"{size:,} {master}", *speeds, *memory_of_point(value))
    both, alone = (
        {key[2]: value for key, value in results.items() if key[1] == master}
        for master in ("local[2]", "local[1]")
    )
    size = max(alone)
    print(f"\n{size:,} pairs")
    table = Table("Time on local[1] to that on local[2]", {"ratio": ".2f"})
    for step in STEPS:
        table.row(step, alone[size]["seconds"][step] / both[size]["seconds"][step])
    rates = fits("FormulaMatch", both, STEPS)
    width = BOX.event_bytes + BOX.interest_bytes
    print("\nFrom these rates, two cores as measured:")
    heads = {"pairs/s": ",.0f", "core hours": ".2f", "GB of messages": ".0f", "GB shuffled": ".0f"}
    table = Table("A cluster, for 10^9 pairs", heads, width=20)
    tables = largest(both, "match")
    each = both[tables]["shuffled"] / tables
    moved = {"encode events": 0, "encode interests": 0, "match": each / 3, "write stores": each / 3}
    for step in (one for one in STEPS if one != "join alone"):
        hours = 2 * rates[step] * 1e9 / 3600
        volume = width if step.startswith("match") else width / 2
        volume = width if step == "write stores" else volume  # the others write one side
        size = largest(both, step)
        speed = size / both[size]["seconds"][step]
        table.row(step, speed, hours, volume, moved.get(step, 0))
    print(
        "\nOther widths: messages and shuffles grow with it; time does where bytes are most of it."
    )


def report_stores(results: dict[tuple[str, str, int], dict[str, Any]]) -> None:
    """Print stores beside the kernel that matches them."""
    heads = {"stores, pairs/s": ",.0f", "kernel, pairs/s": ",.0f", "ratio": ".2f"}
    heads |= {"least ratio": ".2f", "greatest ratio": ".2f", "GB from disks": ".2f"}
    if not any(value["at once"] for value in results.values()):
        print(f"\nNo stores of {PART:,} pairs or more, or the disk has no room for them")
        return
    title = "Stores on two cores, to the kernel on one before and after, medians"
    table = Table(title, heads, head="pairs", width=40)
    for (scheme, _, size), value in results.items():
        if not value["at once"]:
            continue
        name = "in NumPy" if scheme == IN_NUMPY else "compiled"
        middle = np.median([one for runs in value["at once"].values() for one, *_ in runs])
        speed = size / value["seconds"]["match stores"]
        table.row(f"{size:,} {name}, by parts", speed, middle, speed / middle)
        for how, runs in value["at once"].items():
            kernel, took, read = np.array(runs).T
            ratios = size / took / kernel
            medians = [float(np.median(each)) for each in (size / took, kernel, ratios)]
            name_of_row = f"{size:,} {name}, {how}"
            table.row(name_of_row, *medians, ratios.min(), ratios.max(), read.sum() / 1e9)


def report_widths(results: dict[str, dict[str, Any]], pairs: int) -> None:
    """Print the time of a pair by the width of its messages, and its prediction by a line."""
    widths = np.array([box.event_bytes + box.interest_bytes for box in WIDTHS.values()])
    heads = {f"{width} bytes": ".2f" for width in widths}
    heads |= {"each 100 bytes": ".2f", "middle, foretold": ".2f", "ratio": ".2f"}
    table = Table(
        "Microseconds a pair on two cores, by the width of both messages", heads, width=20
    )
    for step in STEPS:
        took = np.array([value["seconds"][step] for value in results.values()]) / pairs * 1e6
        slope = (took[2] - took[0]) / (widths[2] - widths[0])
        guess = took[0] + slope * (widths[1] - widths[0])
        table.row(step, *took, 100 * slope, guess, guess / took[1])


def report_reusable(name: str, results: dict[int, dict[str, Any]]) -> None:
    matcher = REUSABLE[name]
    print(f"\n{name}: {matcher.event_bytes} + {matcher.interest_bytes} bytes")
    heads = {"match, pairs/s": ",.0f", "events/s, encoded": ",.0f", **MEMORY}
    table = Table(f"{name}, all pairs", heads, head="pairs", width=24, least=12)
    for size, value in results.items():
        events, took = size // min(SUBSCRIPTIONS, size // 100), value["seconds"]
        speeds = size / took["match"], events / took["encode events"]
        table.row(f"{size:,} local[2]", *speeds, *memory_of_point(value))
    fits(name, results, ("match",))


def fits(name: str, results: dict[int, dict[str, Any]], steps: tuple[str, ...]) -> dict[str, float]:
    """Print the fit of each step, and return the seconds of a pair.

    The largest size is left out of the fit and compared with it; its parts take a fixed time each.
    With two sizes, both are fitted.
    """
    rates = {}
    heads = {"fixed, s": ".2f", "a million pairs, s": ".2f", "predicted, s": ".1f"}
    heads |= {"measured, s": ".1f", "ratio": ".2f"}
    table = Table(f"{name}, the largest size by a fit to the smaller ones", heads, width=20)
    for step in steps:
        most = largest(results, step)
        sizes = [size for size in sorted(results) if size <= most]
        jobs, used = len(results[most]["parts"]), sizes[:-1] if len(sizes) > 2 else sizes
        times = {size: results[size]["seconds"][step] for size in sizes}
        fixed, rates[step] = fitted(used, [times[size] for size in used])
        guess = jobs * fixed + rates[step] * most
        table.row(step, fixed, rates[step] * 1e6, guess, times[most], guess / times[most])
    return rates


def largest(results: dict[int, dict[str, Any]], step: str) -> int:
    """Return the largest size at which a step was measured."""
    return max(size for size, value in results.items() if step in value["seconds"])


if __name__ == "__main__":
    one_thread()
    main()
