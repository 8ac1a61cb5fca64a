"""What does a perfectly private match cost, beside the passes over memory and cipher it needs?

From wire bytes to answers, one core. Units: nanoseconds per pair, bytes. Limits, in the same run:
XOR of the same message bytes (the broker must read both), and the AES-256-CTR key stream of the
bytes the encoders use.

    python benchmarks/bench_branching.py [--batch 100000] [--plot growth.png]
"""

from __future__ import annotations

import argparse
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from timing import key_stream, machine, one_core, seconds

from ccbps import Schema, SharedSeed, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.matching import BranchingMatch
from ccbps.predicates import Events


def box(widths: list[int]) -> BranchingMatch:
    """A box matcher over unsigned attributes of these widths."""
    return BranchingMatch.box(Schema(**{f"a{i}": UInt(k) for i, k in enumerate(widths)}))


def sample(matcher: BranchingMatch, batch: int) -> tuple[Events, list[str]]:
    """Uniform events, and predicates that each constrain every attribute."""
    rng = np.random.default_rng(7)
    schema = matcher.schema
    events = schema.encode(
        {
            n: rng.integers(0, 1 << schema[n].bits, batch, dtype=np.uint64)
            if schema[n].bits < 64
            else rng.integers(0, 1 << 63, batch, dtype=np.uint64)
            for n in schema
        }
    )
    predicates = []
    for _ in range(100):
        bounds = {
            n: sorted(rng.integers(0, 1 << min(62, schema[n].bits), 2).tolist()) for n in schema
        }
        predicates.append(" AND ".join(f"{n} BETWEEN {a} AND {b}" for n, (a, b) in bounds.items()))
    return events, predicates


def measure(widths: list[int], batch: int, rounds: int = 7) -> dict[str, float]:
    """Nanoseconds per pair of every step and limit; sizes in bytes."""
    matcher = box(widths)
    events, predicates = sample(matcher, batch)
    seed, broker = SharedSeed.generate(), matcher.broker()
    numbers = np.arange(batch)
    # Parsing is done once per predicate, not once per pair: outside the clock.
    parsed = [matcher.schema.parse(text) for text in predicates]
    many = DictionaryColumn(parsed, (numbers % len(predicates)).astype(np.intp))
    event_messages = matcher.publisher(seed).encode(events, numbers)
    interest_messages = matcher.subscriber(seed).encode(many, numbers)
    answers = broker.match(event_messages, interest_messages)
    wanted = np.zeros(batch, dtype=bool)
    for i, text in enumerate(predicates):
        rows = numbers % len(predicates) == i
        wanted[rows] = matcher.schema.parse(text).evaluate(events)[rows]
    assert np.array_equal(answers, wanted), "encrypted and plaintext answers differ"
    both = np.empty_like(event_messages)
    steps: dict[str, Callable[[], object]] = {
        "broker": lambda: broker.match(event_messages, interest_messages),
        "publisher": lambda: matcher.publisher(seed).encode(events, numbers, out=both),
        "subscriber": lambda: matcher.subscriber(seed).encode(predicates[0], numbers, out=both),
        "subscriber, 100 predicates": lambda: matcher.subscriber(seed).encode(
            many, numbers, out=both
        ),
    }
    limits: dict[str, Callable[[], object]] = {
        "xor": lambda: np.bitwise_xor(event_messages, interest_messages),
        "xor into": lambda: np.bitwise_xor(event_messages, interest_messages, out=both),
        "key stream": key_stream(batch, -(-matcher.randomness_bytes // 16) * 16),
    }
    actions = limits | steps
    result = {name: 1e9 * s / batch for name, s in seconds(actions, rounds).items()}
    for name in ("broker", "publisher"):
        tracemalloc.start()
        actions[name]()
        result[f"{name} memory"] = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
    result |= {"nodes": matcher.program.size + 1, "bytes": matcher.event_bytes}
    result["randomness"] = matcher.randomness_bytes
    return result


def growing(bits: int, batch: int) -> int:
    """Pairs to measure a box of so many bits with: messages grow with the square of the bits."""
    return max(1000, min(batch, batch * 10_000 // bits**2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--plot", type=Path, help="also draw how the costs grow")
    options = parser.parse_args()
    print(machine())

    r = measure([16, 16, 20], options.batch)
    print(
        f"\nbox over 16+16+20 bits, {options.batch:,} pairs: {r['nodes']:.0f} nodes, "
        f"{r['bytes']:.0f} bytes per side, {r['randomness']:.0f} bytes of randomness per round"
    )
    print(f"{'':<38}{'ns per pair':>10}{'ratio':>8}  to")
    for limit, shown in (
        ("xor", "numpy.bitwise_xor(events, interests)"),
        ("xor into", "the same into an existing array"),
    ):
        print(
            f"{'broker':<38}{r['broker']:>10.0f}{r['broker'] / r[limit]:>8.2f}  "
            f"{shown}: {r[limit]:.0f} ns"
        )
    for step in ("publisher", "subscriber", "subscriber, 100 predicates"):
        print(
            f"{step:<38}{r[step]:>10.0f}{r[step] / r['key stream']:>8.2f}  "
            f"AES-256-CTR key stream: {r['key stream']:.0f} ns"
        )
    print(
        f"memory: 2 x {r['bytes']:.0f} bytes of messages per pair in flight; at the peak, in MB: "
        f"broker {r['broker memory']:.1f}, publisher {r['publisher memory']:.1f}"
    )

    print("\nHow it grows (boxes of 16-bit attributes; * into an existing array), ns per pair:")
    rows = [
        (bits, measure([16] * (bits // 16), growing(bits, options.batch), rounds=3))
        for bits in (16, 32, 64, 128, 256, 512)
    ]
    print(
        f"{'bits':>5}{'nodes':>7}{'bytes':>8}{'broker':>10}{'/ xor*':>7}"
        f"{'publisher':>11}{'/ aes':>7}{'subscriber':>12}{'/ aes':>7}"
    )
    for bits, r in rows:
        xor, aes = r["xor into"], r["key stream"]
        broker, publisher, subscriber = (r[step] for step in ("broker", "publisher", "subscriber"))
        print(
            f"{bits:>5}{r['nodes']:>7.0f}{r['bytes']:>8.0f}{broker:>10.0f}{broker / xor:>7.2f}"
            f"{publisher:>11.0f}{publisher / aes:>7.2f}"
            f"{subscriber:>12.0f}{subscriber / aes:>7.2f}"
        )
    if options.plot:
        draw(rows, options.plot)


COLOURS = {"broker": "tab:blue", "publisher": "tab:orange", "subscriber": "tab:green"}
LABELS = {"xor into": "limit: XOR of the messages", "key stream": "limit: AES key stream"}


def draw(rows: list[tuple[int, dict[str, float]]], path: Path) -> None:
    """Costs against box width, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    bits = [b for b, _ in rows]
    for name, marker in (("broker", "o"), ("publisher", "s"), ("subscriber", "^")):
        figures = [r[name] for _, r in rows]
        axes.loglog(bits, figures, marker=marker, color=COLOURS[name], linewidth=1.5, label=name)
    for name, of in (("xor into", "broker"), ("key stream", "publisher")):
        axes.loglog(bits, [r[name] for _, r in rows], ":", color=COLOURS[of], label=LABELS[name])
    axes.set_xlabel("bits in the box")
    axes.set_ylabel("ns per pair, one core")
    axes.set_xticks(bits, [str(b) for b in bits])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    one_core()
    main()
