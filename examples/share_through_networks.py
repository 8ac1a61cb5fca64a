"""How many messages does a secret take through brokers, and what if brokers fail or collude?

A sweep in Spark: every row of a DataFrame is one simulated network, with real fragments of 400
secrets where these are not too many, and counted messages elsewhere.

1. Lines of 1 to 10 hops and trees of fan-out 1 to 10, for k of 3 to 7: SSPS, ISSPS, and HyShare
   with one enclave or two. Counts are compared with the formulas.
2. Monte Carlo: five hops, each broker failing or colluding with some probability. The secrets that
   subscribers received, and those that colluders joined, are compared with exact probabilities.

    python examples/share_through_networks.py --samples 300 --output output
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from stock_quotes import session
from tqdm import tqdm

from ccbps import spark as cs
from ccbps.overlay import ISSPS, SSPS, Collusion, Topology

mpl.use("Agg")
from matplotlib import pyplot as plt

SECRETS, HOPS, K, N = 400, 5, 3, 5
ENCLAVES = {"HyShare, 1 enclave": 1, "HyShare, 2 enclaves": 2}
PROTOCOLS = ["SSPS", "ISSPS", *ENCLAVES]
SHARES = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5]
ROW = (
    "label string, topology string, hops long, fanout long, protocol string, k long, n long, "
    "enclaves array<string>, secrets long, most_held long"
)
Row = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run both sweeps, and return the number of wrong results."""
    options = parse(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    spark = session(options.master)
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # as many tasks as were asked for
    try:
        lines, trees = [*line_rows(options.held)], [*tree_rows(options.held)]
        counted = run(spark, spark.createDataFrame(lines + trees, ROW), "messages")
        sampled = run(spark, monte_carlo(spark, options.samples), "faults and colluders")
    finally:
        spark.stop()
    wrong = show_counts(counted)
    wrong += show_risks(sampled, options.samples)
    plot(counted, sampled, options.output / "networks.png")
    print(f"\nplots                                {options.output / 'networks.png'}")
    print(f"differences                          {wrong}")
    return wrong


def line_rows(held: int) -> Iterator[Row]:
    for protocol, hops, k in itertools.product(PROTOCOLS, range(1, 11), range(3, 8)):
        if ENCLAVES.get(protocol, 0) <= hops:
            yield row(protocol, "line", hops, 1, k, enclaves_of_line(protocol, hops), held)


def tree_rows(held: int) -> Iterator[Row]:
    """Return trees of five levels, with enclaves from the root on, as the source advises."""
    for protocol, fanout in itertools.product(PROTOCOLS, range(1, 11)):
        enclaves = [f"B{i}" for i in range(1, ENCLAVES.get(protocol, 0) + 1)]
        yield row(protocol, "tree", HOPS, fanout, K, enclaves, held)


def enclaves_of_line(protocol: str, hops: int) -> list[str]:
    """Place enclaves as evenly as possible."""
    count = ENCLAVES.get(protocol, 0)
    return [f"B{(hops + 1) * i // (count + 1) or 1}" for i in range(1, count + 1)]


def row(
    label: str, topology: str, hops: int, fanout: int, k: int, enclaves: list[str], held: int
) -> Row:
    protocol = label.partition(",")[0]
    return {
        "label": label,
        "topology": topology,
        "hops": hops,
        "fanout": fanout,
        "protocol": protocol,
        "k": k,
        "n": k,
        "enclaves": enclaves,
        "secrets": SECRETS,
        "most_held": held,
    }


def monte_carlo(spark: SparkSession, samples: int) -> DataFrame:
    """Return networks with brokers that fail or collude with some probability; a seed for each."""
    cases = itertools.product(("SSPS", "ISSPS"), (True, False), SHARES)
    kinds = [
        (protocol, share if fails else 0.0, 0.0 if fails else share, number * samples)
        for number, (protocol, fails, share) in enumerate(cases)
    ]
    networks = spark.createDataFrame(
        kinds, "protocol string, failing double, colluding double, first long"
    ).select(
        "*",
        F.lit("line").alias("topology"),
        F.lit(HOPS).alias("hops"),
        F.lit(K).alias("k"),
        F.lit(N).alias("n"),
    )
    seeds = spark.range(samples)
    return networks.crossJoin(seeds).withColumn("seed", F.col("first") + F.col("id"))


def run(spark: SparkSession, trials: DataFrame, label: str) -> list[Row]:
    """Simulate all rows, and show progress."""
    parts = 16 * spark.sparkContext.defaultParallelism
    found = cs.simulate(trials.repartition(parts)).toLocalIterator(prefetchPartitions=True)
    total = trials.count()
    return [r.asDict() for r in tqdm(found, desc=f"{label:<24}", total=total, unit=" networks")]


def show_counts(rows: list[Row]) -> int:
    """Print tables of messages; return the number of counts that differ from the formula's."""
    held = sum(r["messages"] for r in rows if r["held"])
    print(f"\n{len(rows)} networks, {SECRETS} secrets each; {held:,} messages held fragments,")
    print(f"in {sum(r['held'] for r in rows)} networks; in the others they were counted")
    for topology, along, title in (
        ("line", "hops", f"Messages of {SECRETS} secrets on a line, k = n = {K}, by hops"),
        ("tree", "fanout", f"On trees of {HOPS} levels, k = n = {K}, by fan-out"),
    ):
        print(f"\n{title}\n{'':<8}" + "".join(f"{label:>22}" for label in PROTOCOLS))
        for size in range(1, 11):
            cells = {
                r["label"]: f"{r['messages']:,}{' ' if r['held'] else '*'}"
                for r in rows
                if r["topology"] == topology and r[along] == size and r["k"] == K
            }
            print(f"{size:<8}" + "".join(f"{cells.get(label, '- '):>22}" for label in PROTOCOLS))
    print("* counted")
    return sum(r["messages"] != r["formula"] or r["delivered"] != 1.0 for r in rows)


def show_risks(rows: list[Row], samples: int) -> int:
    """Print tables of probabilities; return the number of those that chance does not explain."""
    print(f"\n{HOPS} hops, k = {K} of n = {N}, {samples} samples for each number: sampled (exact)")
    print(
        f"{'probability':<13}{'delivered, if brokers fail':^40}{'learnt, if brokers collude':^40}"
    )
    print(f"{'':<13}" + f"{'SSPS':^20}{'ISSPS':^20}" * 2)
    wrong = 0
    for share in SHARES:
        cells = []
        for result, given in (("delivered", "failing"), ("recovered", "colluding")):
            other = "colluding" if given == "failing" else "failing"
            for protocol in ("SSPS", "ISSPS"):
                right = exact(protocol, result, share)
                values = [
                    r[result]
                    for r in rows
                    if r["protocol"] == protocol and r[given] == share and r[other] == 0.0
                ]
                mean = sum(values) / len(values)
                noise = math.sqrt(right * (1 - right) / len(values))
                wrong += abs(mean - right) > 5 * noise + 1e-9
                cells.append(f"{f'{mean:.3f} ({right:.3f})':^20}")
        print(f"{share:<13}" + "".join(cells))
    return wrong


def exact(protocol: str, result: str, share: float) -> float:
    """Return the probability that a secret arrives, or is learnt."""
    line = Topology.line(HOPS)
    made = SSPS(K, N) if protocol == "SSPS" else ISSPS(K, N)
    if result == "recovered":
        return float(Collusion(made, line).risk(share))
    # Brokers that work are to a subscriber what colluders are not to it: k of n are enough, on
    # whole paths (SSPS) or at each hop (ISSPS).
    works = (1 - share) ** (HOPS if protocol == "SSPS" else 1)
    enough = sum(
        math.comb(N, count) * works**count * (1 - works) ** (N - count) for count in range(K, N + 1)
    )
    return enough if protocol == "SSPS" else enough**HOPS


def plot(counted: list[Row], sampled: list[Row], file: Path) -> None:
    figure, (lines, trees, risks) = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    for axes, topology, along, title in (
        (lines, "line", "hops", "line"),
        (trees, "tree", "fanout", f"tree of {HOPS} levels"),
    ):
        for label in PROTOCOLS:
            cells = sorted(
                (r[along], r["messages"])
                for r in counted
                if (r["topology"], r["label"], r["k"]) == (topology, label, K)
            )
            axes.plot(*zip(*cells, strict=True), marker="o", markersize=3, label=label)
        axes.set(yscale="log", xlabel=along, title=f"{title}, k = n = {K}")
        axes.grid(alpha=0.3)
    lines.set_ylabel(f"messages of {SECRETS} secrets")
    lines.legend(frameon=False)
    for place, protocol in enumerate(("SSPS", "ISSPS")):
        for result, given, style in (
            ("delivered", "failing", "-"),
            ("recovered", "colluding", "--"),
        ):
            exactly = [exact(protocol, result, share) for share in SHARES]
            what = "arrives, if brokers fail" if style == "-" else "is learnt, if brokers collude"
            risks.plot(SHARES, exactly, style, color=f"C{place}", label=f"{protocol}: {what}")
            means = [
                [r[result] for r in sampled if (r["protocol"], r[given]) == (protocol, share)]
                for share in SHARES[1:]
            ]
            risks.plot(SHARES[1:], [sum(m) / len(m) for m in means], "o", color=f"C{place}", ms=4)
    risks.set(
        xlabel="probability of each broker",
        ylabel="probability that a secret",
        title=f"{HOPS} hops, k = {K} of n = {N}: exact, and sampled (dots)",
    )
    risks.grid(alpha=0.3)
    risks.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    figure.savefig(file, dpi=110)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=300, help="networks for each probability")
    parser.add_argument(
        "--held", type=int, default=10_000_000, help="messages of a network that hold fragments"
    )
    parser.add_argument("--master", default="local[*]", help="of Spark")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder of the plots")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
