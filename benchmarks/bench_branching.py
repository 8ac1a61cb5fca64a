"""What does a perfectly private match cost, beside the passes over memory and cipher it needs?

From wire bytes to answers, one core. Units: nanoseconds per pair, bytes. Limits, in the same run:
XOR of the same message bytes (the broker must read both), and the AES-256-CTR key stream of the
bytes the encoders use.

    python benchmarks/bench_branching.py [--batch 100000] [--plot growth.png] [--quick]
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from report import Table, options, picture
from timing import key_stream, machine, one_core, seconds
from workloads import boxes, numbers, random_events

from ccbps import SharedSeed
from ccbps.dictionary import DictionaryColumn
from ccbps.matching import BranchingMatch


def measure(widths: list[int], batch: int, rounds: int = 5) -> dict[str, float]:
    """Return nanoseconds a pair of every step and limit, and sizes in bytes."""
    schema = numbers(*widths)
    matcher, predicates = BranchingMatch.box(schema), boxes(schema, 100)
    events = random_events(schema, batch)
    seed, broker = SharedSeed.generate(), matcher.broker()
    places = np.arange(batch)
    # Parsing is done once per predicate, not once per pair: outside the clock.
    parsed = [matcher.schema.parse(text) for text in predicates]
    many = DictionaryColumn(parsed, (places % len(predicates)).astype(np.intp))
    event_messages = matcher.publisher(seed).encode(events, places)
    interest_messages = matcher.subscriber(seed).encode(many, places)
    answers = broker.match(event_messages, interest_messages)
    wanted = np.zeros(batch, dtype=bool)
    for i, text in enumerate(predicates):
        rows = places % len(predicates) == i
        wanted[rows] = matcher.schema.parse(text).evaluate(events)[rows]
    assert np.array_equal(answers, wanted), "encrypted and plaintext answers differ"
    both = np.empty_like(event_messages)
    steps: dict[str, Callable[[], object]] = {
        "broker": lambda: broker.match(event_messages, interest_messages),
        "publisher": lambda: matcher.publisher(seed).encode(events, places, out=both),
        "subscriber": lambda: matcher.subscriber(seed).encode(predicates[0], places, out=both),
        "subscriber, 100 predicates": lambda: matcher.subscriber(seed).encode(
            many, places, out=both
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
    """Return the number of pairs for a box: messages grow with the square of its bits."""
    return max(1000, min(batch, batch * 10_000 // bits**2))


def main() -> None:
    given = options(__doc__, batch=100_000, plot=Path, quick="few pairs and sizes")
    batch = 2_000 if given.quick else given.batch
    print(machine())
    r = measure([16, 16, 20], batch)
    print(f"{batch:,} pairs")
    table = Table("Box of 16+16+20 bits", {"size": ",.0f"}, width=36)
    table.row("nodes", r["nodes"])
    table.row("bytes per side", r["bytes"])
    table.row("bytes of randomness per round", r["randomness"])
    heads = {"ns per pair": ".0f", "ratio": ".2f", "limit": ".0f"}
    table = Table("Box of 16+16+20 bits, times and limits", heads, width=36)
    table.row("broker, to numpy.bitwise_xor", r["broker"], r["broker"] / r["xor"], r["xor"])
    into = r["xor into"]
    table.row("broker, to the same in place", r["broker"], r["broker"] / into, into)
    aes = r["key stream"]
    for step in ("publisher", "subscriber", "subscriber, 100 predicates"):
        table.row(f"{step}, to AES", r[step], r[step] / aes, aes)
    table = Table("Box of 16+16+20 bits, memory at the peak", {"MB": ".1f"}, width=36)
    for step in ("broker", "publisher"):
        table.row(step, r[f"{step} memory"])

    heads = {"nodes": ",.0f", "bytes": ",.0f", "broker": ",.0f", "broker : XOR": ".1f"}
    for step in ("publisher", "subscriber"):
        heads |= {step: ",.0f", f"{step} : AES": ".1f"}
    title = "Boxes of 16-bit attributes, nanoseconds per pair"
    table, rows = Table(title, heads, head="bits", width=5), []
    for bits in (16, 32) if given.quick else (16, 32, 64, 128, 256, 512):
        r = measure([16] * (bits // 16), growing(bits, batch), rounds=3)
        rows.append((bits, r))
        cells = [r["nodes"], r["bytes"], r["broker"], r["broker"] / r["xor into"]]
        for step in ("publisher", "subscriber"):
            cells += [r[step], r[step] / r["key stream"]]
        table.row(bits, *cells)
    if given.plot:
        draw(rows, given.plot)


COLOURS = {"broker": "tab:blue", "publisher": "tab:orange", "subscriber": "tab:green"}
LABELS = {"xor into": "limit: XOR of the messages", "key stream": "limit: AES key stream"}


def draw(rows: list[tuple[int, dict[str, float]]], path: Path) -> None:
    """Draw costs by the width of the box, on logarithmic axes."""
    bits = [b for b, _ in rows]
    with picture(path, (7, 4.5)) as (_, axes):
        for name, marker in (("broker", "o"), ("publisher", "s"), ("subscriber", "^")):
            costs = [r[name] for _, r in rows]
            axes.loglog(bits, costs, marker=marker, color=COLOURS[name], lw=1.5, label=name)
        for name, of in (("xor into", "broker"), ("key stream", "publisher")):
            limits = [r[name] for _, r in rows]
            axes.loglog(bits, limits, ":", color=COLOURS[of], label=LABELS[name])
        axes.set(xlabel="bits in the box", ylabel="ns per pair, one core")
        axes.set_xticks(bits, [str(b) for b in bits])
        axes.set_xticks([], minor=True)
        axes.legend(fontsize=8)


if __name__ == "__main__":
    one_core()
    main()
