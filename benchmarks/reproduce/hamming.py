"""Up to which n can a private Hamming match run under one second? [SSM] Tables 1 and 2, reproduced.

Publisher and subscriber have n bits each; they match where more than n/2 of them differ (the middle
line of the sorting network, which is among the deepest). Prints

- Table 1: the length of each protocol's program as a formula in n and depth d = c log2 n, and the
  length counted from programs that were really built;
- Table 2: n, depth, length of the OFSGP sequence and the broker's time, for Bose-Nelson's and
  Batcher's networks, and which n stay under one second beside the paper's n = 16.

Messages are really encoded, handed over as bytes and multiplied. Times are of one core; sequences
that would take longer than --limit seconds are extrapolated and marked so.

    python benchmarks/reproduce/hamming.py [--limit 5] [--plot hamming.png] [--quick]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import numpy as np
from report import Table, options, picture
from timing import machine, one_core, timed

from ccbps import Schema, SharedSeed, UInt
from ccbps.algebra import A5, S5
from ccbps.circuits.networks import hamming_circuit
from ccbps.circuits.rewriting import without_xor
from ccbps.circuits.universal import universal_circuit, universal_depth
from ccbps.matching import FSGPMatch, OFSGPMatch, PublicFunctionMatch
from ccbps.programs.barrington import preserving, preserving_length
from ccbps.programs.selector import barrington_selector, optimized_selector

SIZES = (2, 4, 8, 12, 16, 20, 24, 32)
NETWORKS = ("batcher", "bose-nelson")


@dataclass
class Protocol:
    """Line of Table 1: a length as a formula, and counted where programs were built."""

    name: str
    formula: str
    in_n_and_c: str
    counted: str


def protocols() -> list[Protocol]:
    """Return Table 1, for d = c log2 n: elements that the broker multiplies, less one.

    For UGP, instructions are counted. The first row is no protocol of the paper but its point of
    departure: a universal circuit in place of the predicate's. The paper says in words that a
    universal circuit for circuits of s gates and depth d has depth of order d log s, so that its
    program is longer than any power of n. The exponent here is that depth with constant 1 and
    s = n, the least number of gates of a circuit on n inputs. Nobody built it, and Valiant's own
    circuits [V76] have larger constants.
    """
    sizes = ((2, 1), (4, 2), (8, 3), (8, 4))
    longer = [f"({n}, {d}): {4 ** (d * (n.bit_length() - 1)):,}" for n, d in (*sizes[:3], (16, 4))]
    universal = Protocol(
        "universal circuit (Valiant)",
        "4^Omega(d log s)",
        "n^Omega(log n)",
        f"none built; with constant 1 and s = n, {'; '.join(longer)}",
    )
    counted = []
    for n, length in ((1, 1), (2, 1), (2, 4), (4, 4), (4, 16)):
        depth = universal_depth(n, length)
        outer = preserving_length(universal_circuit(n, length))
        assert outer <= 4**depth
        counted.append(f"({n}, {length}): {outer:,} <= 4^{depth}")
    text = "; ".join(counted)
    rows = [universal, Protocol("UGP", "4^depth(UGP)", "16 n^(16c+2) (1+log n)^2", text)]
    for kind, formula, power in (
        (FSGPMatch, "4 n^2 4^d", "4 n^(2c+2)"),
        (OFSGPMatch, "4 n 4^d", "4 n^(2c+1)"),
    ):
        counted = []
        for n, d in sizes:
            matcher = kind(Schema(x=UInt(n)), d)
            wanted = 4 * n * 4**d * (n if kind is FSGPMatch else 1)
            assert matcher.elements - 1 == wanted, (matcher, matcher.elements, wanted)
            counted.append(f"({n}, {d}): {matcher.elements - 1:,}")
        rows.append(Protocol(kind.__name__[:-5], formula, power, "; ".join(counted)))
    return rows


def table_1() -> None:
    """Print formulas, and counts of programs where they can be built."""
    print("Table 1: elements the broker multiplies, less one (UGP: instructions); d = c log2 n")
    print(f"{'protocol':<29}{'formula':<18}{'in n and c':<26}counted (n, d), UGP: (n, length)")
    for row in protocols():
        print(f"{row.name:<29}{row.formula:<18}{row.in_n_and_c:<26}{row.counted}")
    for n in (4, 8):
        sizes = [2 * s(n, A5).length for s in (barrington_selector, optimized_selector)]
        print(
            f"  a selector of {n} inputs: FSGP {sizes[0]} elements = 4 n^2, OFSGP {sizes[1]} = 4 n"
        )
    circuit = without_xor(hamming_circuit(4, 1, y=[0, 1, 1, 0]))
    built = preserving(circuit, S5).length
    assert built == preserving_length(circuit) <= 4**circuit.depth
    print(f"  Hamming n = 4: depth {circuit.depth}, program of {built} <= 4^{circuit.depth}\n")


@dataclass
class Row:
    """Line of Table 2."""

    network: str
    n: int
    depth: int
    elements: int
    seconds: float
    encode: float
    measured: bool


def measure(network: str, n: int, limit: float, rate: float) -> Row:
    """Encode, send and multiply, if that takes less than `limit` seconds at `rate` products/s."""
    rng = np.random.default_rng(n)
    y = rng.integers(0, 2, n)
    circuit = without_xor(hamming_circuit(n, n // 2, network=network, y=y.tolist()))
    depth, elements = circuit.depth, 4 * n * 4**circuit.depth
    if elements / rate > limit or 4**depth > 1 << 24:
        return Row(network, n, depth, elements, elements / rate, float("nan"), False)
    matcher = OFSGPMatch(Schema(x=UInt(n)), depth)
    assert matcher.elements == elements + 1
    seed = SharedSeed.generate()
    publisher, subscriber, broker = (
        matcher.publisher(seed),
        matcher.subscriber(seed),
        matcher.broker(),
    )
    took, encoding = [], 0.0
    for number, distance in enumerate((n // 2, n // 2 + 1, n, 0)):
        flips = np.zeros(n, dtype=np.int64)
        flips[rng.permutation(n)[:distance]] = 1
        x = int("".join(map(str, (y ^ flips).tolist())), 2)
        messages, answers = [], []

        def encode(x: int = x, number: int = number, messages: list = messages) -> None:
            messages.append(publisher.encode({"x": [x]}, [number]))
            messages.append(subscriber.encode(circuit, [number]))

        encoding = timed(encode)
        took.append(timed(lambda m=messages, a=answers: a.extend(broker.match(*m))))
        assert answers == [distance > n // 2], (network, n, distance)
    return Row(network, n, depth, elements, min(took), encoding, True)


def table_2(limit: float) -> list[Row]:
    """Print both networks in all sizes; the longest measured sequence gives the rate."""
    rows, rate = [], 5e8
    for network in NETWORKS:
        for n in SIZES:
            row = measure(network, n, limit, rate)
            if row.measured and row.elements > 1 << 20:
                rate = row.elements / row.seconds
            rows.append(row)
    rows.sort(key=lambda row: (row.network, row.n))
    heads = {"depth": "", "elements": ",", "broker, s": ".4g", "how": "", "both encode, s": ".4g"}
    title = "Table 2: Hamming match with OFSGP, group A5, one core"
    table = Table(title, heads, head="network, n", width=16, least=28)
    for row in rows:
        mark = "measured" if row.measured else "extrapolated"
        encode = row.encode if row.measured else None
        name = f"{row.network}, {row.n}"
        table.row(name, row.depth, row.elements, row.seconds, mark, encode)
    depths = [without_xor(hamming_circuit(n, n // 2, y=[0] * n)).depth for n in range(2, 33)]
    fitting = [n for n, d in enumerate(depths, 2) if 4 * n * 4**d / rate < 1]
    table = Table("Up to which n under 1 s, measured or extrapolated", {"n": "", "printed": ""})
    for network in NETWORKS:
        under = [row.n for row in rows if row.network == network and row.seconds < 1]
        table.row(network, max(under), 16)
    table.row("batcher, every n", fitting[-1], None)
    table = Table("Speed of the longest measured sequence", {"elements a second": ",.0f"})
    table.row("A5", rate)
    return rows


def public_circuit() -> None:
    """Print the same match with a public circuit and threshold, and private x and y."""
    heads = {"elements": ",", "broker, s": ".4g"}
    table = Table(
        "PublicFunctionMatch: only x and y are private", heads, head="n", width=4, least=12
    )
    seed = SharedSeed.generate()
    for n in (2, 4, 8, 12, 16, 18):
        matcher = PublicFunctionMatch.hamming(n, limit=n // 2)
        event = matcher.publisher(seed).encode({"x": [1]}, [0])
        interest = matcher.subscriber(seed).encode({"y": (1 << n) - 2}, [0])
        broker = matcher.broker()
        assert not broker.match(event, interest)[0]
        took = min(timed(lambda b=broker, e=event, i=interest: b.match(e, i)) for _ in range(4))
        table.row(n, matcher.elements, took)


def plot(rows: list[Row], path: Path) -> None:
    """Draw broker time over n for both networks."""
    with picture(path, (7, 4.2)) as (_, axes):
        for network in NETWORKS:
            mine = [row for row in rows if row.network == network]
            (line,) = axes.plot([r.n for r in mine], [r.seconds for r in mine], "--", alpha=0.5)
            done = [row for row in mine if row.measured]
            points = [r.n for r in done], [r.seconds for r in done]
            axes.plot(*points, "o", color=line.get_color(), label=network)
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.annotate("1 s", (2, 1.3), color="grey")
        axes.set(xscale="log", yscale="log", xlabel="bits n", ylabel="broker, seconds per match")
        axes.set_xticks(SIZES, [str(n) for n in SIZES])
        axes.minorticks_off()
        axes.set_title("Private Hamming match by OFSGP (dots measured, lines extrapolated)")
        axes.legend(title="sorting network")


def main() -> None:
    given = options(__doc__, limit=5.0, plot=Path, quick="limit of a tenth of a second")
    if given.quick:
        given.limit = 0.1
    print(machine())
    table_1()
    rows = table_2(given.limit)
    public_circuit()
    if given.plot:
        plot(rows, given.plot)


if __name__ == "__main__":
    one_core()
    main()
