"""What does matching a private formula cost? FormulaMatch and BroadcastMatch beside the others.

Units: nanoseconds a pair on one core, and bytes of message bodies. Limits, in the same run: XOR of
the same message bytes (the broker must read both), and the AES-256-CTR key stream of the bytes that
the encoders share. Half-gates are by their published size: 32 bytes an AND gate, and 16 for each
input bit of the event and of the interest. Every step runs with the kernels in NumPy and, where
Numba is installed, with the compiled ones (extra `compiled`).

    python benchmarks/bench_formula.py [--batch 100000] [--plot formula.png] [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from timing import KERNELS, key_stream, machine, one_core, seconds, with_kernels

from ccbps import BrokenSchemeWarning, Category, Schema, SharedSeed, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError
from ccbps.forms.circuit import predicate_circuit
from ccbps.matching import BranchingMatch, BroadcastMatch, FormulaMatch, OFSGPMatch, TagMatch
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Keying
from ccbps.predicates import Events

GOALS = {
    ("FormulaMatch", "broker", ""): 150,
    ("FormulaMatch", "broker", ", compiled"): 60,
    ("FormulaMatch", "publisher", ""): 400,
    ("FormulaMatch", "publisher", ", compiled"): 150,
    ("FormulaMatch", "subscriber", ""): 400,
    ("FormulaMatch", "subscriber", ", compiled"): 150,
    ("BroadcastMatch, 1 bit", "broker", ", compiled"): 1000,
    ("BroadcastMatch, 2 bits", "broker", ", compiled"): 1000,
}
"""Nanoseconds for the box of 16+16+20 bits."""


SINGLE = 200
"""Events that are encoded one by one to time a single one."""
MOST_BROADCAST_LEAVES = 8
"""Leaves of hidden formulas up to which BroadcastMatch's times are measured, too."""
ISSUE = Category(["AAPL", "GOOG", "IBM", "MSFT"])
FORMS: tuple[tuple[Schema, str, str, dict[str, Any]], ...] = (
    (
        Schema(issue=ISSUE, price=UInt(6)),
        "issue = 'IBM' AND price < 40",
        "issue = :issue AND price < :limit",
        {"issue": "IBM", "limit": 40},
    ),
    (
        Schema(issue=ISSUE, price=UInt(17), volume=UInt(32)),
        "issue = 'IBM' AND price < 12000 AND volume > 1000",
        "issue = :issue AND price < :limit AND volume > :least",
        {"issue": "IBM", "limit": 12000, "least": 1000},
    ),
)


def numbers(*widths: int) -> Schema:
    """Unsigned attributes of these widths."""
    return Schema(**{f"a{i}": UInt(k) for i, k in enumerate(widths)})


def random_events(schema: Schema, batch: int) -> Events:
    """Uniform events."""
    rng = np.random.default_rng(7)
    columns: dict[str, Any] = {}
    for name in schema:
        if schema[name] is ISSUE:
            columns[name] = [ISSUE.values[i] for i in rng.integers(0, len(ISSUE.values), batch)]
        else:
            columns[name] = rng.integers(0, 1 << min(63, schema[name].bits), batch, dtype=np.uint64)
    return schema.encode(columns)


def boxes(schema: Schema, count: int) -> list[str]:
    """Predicates that each constrain every attribute."""
    rng = np.random.default_rng(8)
    texts = []
    for _ in range(count):
        bounds = {
            n: sorted(rng.integers(0, 1 << min(62, schema[n].bits), 2).tolist()) for n in schema
        }
        texts.append(" AND ".join(f"{n} BETWEEN {a} AND {b}" for n, (a, b) in bounds.items()))
    return texts


def measure_pairs(
    matcher: Matcher, interests: list[Any], batch: int, rounds: int = 5
) -> dict[str, float]:
    """Nanoseconds of every step and limit of a one-time matcher, a pair, checked with plaintext."""
    events, seed, broker = random_events(matcher.schema, batch), SharedSeed.generate(), None
    broker = matcher.broker()
    places = np.arange(batch)
    column = DictionaryColumn(interests, (places % len(interests)).astype(np.intp))
    sent = matcher.publisher(seed).encode(events, places)
    wanted = matcher.subscriber(seed).encode(column, places)
    check(matcher, interests, events, column.index, broker.match(sent, wanted))
    width = min(sent.shape[1], wanted.shape[1])
    into = np.empty((batch, width), dtype=np.uint8)
    steps: dict[str, Callable[[], object]] = {
        "broker": lambda: broker.match(sent, wanted),
        "publisher": lambda: matcher.publisher(seed).encode(events, places, out=sent),
        "subscriber": lambda: matcher.subscriber(seed).encode(column, places, out=wanted),
    }
    limits: dict[str, Callable[[], object]] = {
        "xor": lambda: np.bitwise_xor(sent[:, :width], wanted[:, :width], out=into),
        "key stream": key_stream(batch, -(-matcher.randomness_bytes // 16) * 16),
    }
    return timed(steps, limits, batch, rounds)


def measure_broadcast(matcher: BroadcastMatch, texts: list[str], rounds: int) -> dict[str, float]:
    """As `measure_pairs`, of one event against all interests; the publisher's time is for all."""
    events, seed, broker = random_events(matcher.schema, 1), SharedSeed.generate(), matcher.broker()
    count = len(texts)
    pairs = [f"s{i}" for i in range(count)]
    parsed = DictionaryColumn([matcher.schema.parse(t) for t in texts], np.arange(count))
    wanted = matcher.subscriber(seed).encode(parsed, [0] * count, pairs=pairs)
    sent = matcher.publisher(seed).encode(events, [0])
    whole = events.schema.encode({n: np.repeat(events.codes[n][-1], count) for n in events.schema})
    check(matcher, texts, whole, np.arange(count), broker.match(sent, wanted))
    publisher = matcher.publisher(seed)
    turn = iter(range(1, 1 << 20))
    steps: dict[str, Callable[[], object]] = {
        "broker": lambda: broker.match(sent, wanted),
        "publisher": lambda: [publisher.encode(events, [next(turn)]) for _ in range(SINGLE)],
        "subscriber": lambda: matcher.subscriber(seed).encode(
            parsed, [0] * count, pairs=pairs, out=wanted
        ),
    }
    result = timed(steps, {}, count, rounds)
    return result | {n: s / SINGLE for n, s in result.items() if n.startswith("publisher")}


def measure_tags(schema: Schema, texts: list[str], count: int, rounds: int) -> dict[str, float]:
    """As `measure_pairs`, of `count` events with all interests, of TagMatch."""
    matcher = TagMatch(schema)
    server, events = matcher.key_server(), random_events(schema, count)
    publisher = matcher.publisher(server.publisher_key())
    subscriber = matcher.subscriber(server.subscriber_key("subscriber"))
    broker = matcher.broker(server.broker_key())
    wanted, sent = subscriber.encode(texts), publisher.encode(events)
    table = broker.prepare(wanted)
    found = broker.match_all(sent, table)
    for i, text in enumerate(texts):
        assert np.array_equal(found[:, i], schema.parse(text).evaluate(events))
    pairs = count * len(texts)
    steps: dict[str, Callable[[], object]] = {"broker": lambda: broker.match_all(sent, table)}
    result = timed(steps, {}, pairs, rounds)
    once = seconds(
        {
            "publisher": lambda: publisher.encode(events),
            "subscriber": lambda: subscriber.encode(texts),
        },
        rounds,
    )
    result["publisher"] = 1e9 * once["publisher"] / count
    result["subscriber"] = 1e9 * once["subscriber"] / len(texts)
    result |= {"event": matcher.sizes.event, "interest": matcher.sizes.interest}
    return result


def timed(
    steps: dict[str, Callable[[], object]],
    limits: dict[str, Callable[[], object]],
    batch: int,
    rounds: int,
) -> dict[str, float]:
    """Nanoseconds of one of `batch`, by step and kernels."""
    actions: dict[str, Callable[[], object]] = {
        step + kernels: with_kernels(kernels, action)
        for step, action in steps.items()
        for kernels in KERNELS
    }
    return {name: 1e9 * s / batch for name, s in seconds(limits | actions, rounds).items()}


def check(
    matcher: Matcher, interests: list[Any], events: Events, index: np.ndarray, found: np.ndarray
) -> None:
    """Stop if an answer is not that of the plaintext."""
    for i in range(min(20, len(interests))):
        rows = index == i
        wanted = matcher.meaning(interests[i], events)
        assert np.array_equal(found[rows], wanted[rows]), "encrypted and plaintext answers differ"


def half_gates(bits: int, intervals: int, attributes: int) -> int:
    """Bytes of a garbled circuit: an AND gate for each bit of each comparison, and the joins."""
    return 32 * (2 * bits + attributes - 1) + 16 * bits + 16 * 2 * bits * (intervals > 0)


def stock_box(batch: int, rounds: int) -> None:
    """The box of 16+16+20 bits, in all schemes."""
    schema = numbers(16, 16, 20)
    texts = boxes(schema, 100)
    many = boxes(schema, 10_000)
    print(f"\nBox of 16+16+20 bits, {batch:,} pairs; broadcast: 1 event, {len(many):,} interests")
    print(f"{'':<36}{'bytes':>12}{'broker':>9}{'publisher':>11}{'subscriber':>12}  ns a pair")
    results: list[tuple[str, dict[str, float], int, int]] = []
    for matcher in (FormulaMatch.box(schema), BranchingMatch.box(schema)):
        result = measure_pairs(matcher, texts, batch, rounds)
        sizes = matcher.sizes
        results.append((type(matcher).__name__, result, sizes.event, sizes.interest))
    for window in (1, 2):
        broadcast = BroadcastMatch.box(schema, window=window)
        result = measure_broadcast(broadcast, many, rounds)
        name = f"BroadcastMatch, {window} bit{'s' * (window > 1)}"
        results.append((name, result, broadcast.sizes.event, broadcast.sizes.interest))
    tags = measure_tags(schema, texts, 1000, rounds)
    results.append(("TagMatch (shows more)", tags, int(tags["event"]), int(tags["interest"])))
    for name, result, event, interest in results:
        for kernels in KERNELS[:1] if name == "BranchingMatch" else KERNELS:
            row = [result[step + kernels] for step in ("broker",)]
            row += [result.get(s + kernels, result[s]) for s in ("publisher", "subscriber")]
            print(
                f"{name + kernels:<36}{f'{event}+{interest}':>12}{row[0]:>9.0f}{row[1]:>11.1f}"
                f"{row[2]:>12.0f}"
            )
    print(f"{'half-gates, by their published size':<36}{half_gates(52, 3, 3):>12}")
    formula, branching = results[0][1], results[1][1]
    print(
        f"limits: XOR of the messages {formula['xor']:.0f} ns (BranchingMatch "
        f"{branching['xor']:.0f}), key stream {formula['key stream']:.0f} ns "
        f"({branching['key stream']:.0f})"
    )
    print("\nGoals for this box")
    for (name, step, kernels), goal in GOALS.items():
        found = {n: r for n, r, _, _ in results}[name].get(step + kernels)
        if found is not None:
            print(f"  {name} {step}{kernels}: {found:.0f} ns, goal {goal}")
    for name, result, _, _ in results[2:4]:
        for kernels in KERNELS:
            whole = result["publisher" + kernels] * len(many) / 1000
            print(f"  {name} publisher{kernels}: {whole:.0f} us for all subscriptions, goal 50")


Row = tuple[int, dict[str, tuple[int, int, dict[str, float]]]]


def growth(batch: int, rounds: int, sizes: Iterable[int]) -> list[Row]:
    """Boxes of 16-bit attributes."""
    print("\nBoxes of 16-bit attributes (fastest kernels), bytes of both bodies and ns a pair")
    print(f"{'bits':>5}  {'':<16}{'bytes':>15}{'broker':>9}{'publisher':>11}{'subscriber':>12}")
    rows: list[Row] = []
    for bits in sizes:
        schema = numbers(*[16] * (bits // 16))
        found: dict[str, tuple[int, int, dict[str, float]]] = {}
        for matcher in (
            FormulaMatch.box(schema),
            BroadcastMatch.box(schema),
            BranchingMatch.box(schema),
        ):
            count = max(1000, min(batch, 40_000_000 // matcher.event_bytes))
            result = measure_pairs(matcher, boxes(schema, 20), count, rounds)
            sizes_ = matcher.sizes
            found[type(matcher).__name__] = sizes_.event, sizes_.interest, result
            print_row(str(bits), type(matcher).__name__, *found[type(matcher).__name__])
        rows.append((bits, found))
    return rows


def comparisons(batch: int, rounds: int) -> None:
    """A single comparison with a private bound."""
    print("\nA lone comparison x < :c")
    print(f"{'bits':>5}  {'':<16}{'bytes':>15}{'broker':>9}{'publisher':>11}{'subscriber':>12}")
    for bits in (4, 8, 16, 32, 64):
        schema = numbers(bits)
        values = [{"c": int(c)} for c in np.linspace(0, (1 << min(bits, 62)) - 1, 9)]
        for make in (FormulaMatch, BranchingMatch):
            matcher = make(schema, "a0 < :c")
            result = measure_pairs(matcher, values, batch, rounds)
            sizes = matcher.sizes
            print_row(str(bits), make.__name__, sizes.event, sizes.interest, result)


def hidden(batch: int, rounds: int, most: int) -> None:
    """Formulas that are private."""
    print("\nHidden formulas: leaves and their kind")
    print(f"{'':>5}  {'':<27}{'bytes':>15}{'broker':>10}{'publisher':>11}{'subscriber':>12}")
    plain, wide = numbers(16, 16, 20), numbers(32)
    leaves = 4
    while leaves <= most:
        for schema, kind, text in (
            (wide, "literal", f"a0 >= {1 << 31}"),
            (plain, "compare", f"a0 >= {1 << 15}"),
            (plain, "interval", f"a0 >= {1 << 15}"),
            (plain, "box", f"a0 >= {1 << 15}"),
        ):
            for make in (FormulaMatch, BroadcastMatch):
                try:
                    matcher = make.hidden(schema, leaves=leaves, leaf=kind, max_gates=1 << 14)
                except ParameterError:
                    continue
                result: dict[str, float] = {}
                if make is FormulaMatch or leaves <= MOST_BROADCAST_LEAVES:
                    count = max(500, min(batch, 20_000_000 // (matcher.event_bytes + 100)))
                    result = measure_pairs(matcher, [text], count, rounds)
                print_row(str(leaves), f"{make.__name__} {kind}", *sizes_of(matcher), result)
        leaves *= 4


def forms(rounds: int) -> None:
    """What hiding the form of a predicate costs, for the same predicates."""
    for schema, text, form, values in FORMS:
        levels = predicate_circuit(schema.parse(text)).depth
        print(f"\n{text}: {schema.bits} bits, depth {levels}")
        print(f"{'':>5}  {'':<27}{'bytes':>15}{'broker':>10}{'publisher':>11}{'subscriber':>12}")
        matchers: list[tuple[str, Matcher, Any]] = [
            ("template", FormulaMatch(schema, form), values),
            ("box", FormulaMatch.box(schema), text),
            ("4 leaves", FormulaMatch.hidden(schema, leaves=4, leaf="compare"), text),
            ("template", BranchingMatch(schema, form), values),
            (f"depth {levels}", OFSGPMatch(schema, levels), text),
        ]
        for shape, matcher, interest in matchers:
            count = max(4, min(100_000, 40_000_000 // matcher.event_bytes // 16))
            result = measure_pairs(matcher, [interest], count, rounds)
            print_row("", f"{type(matcher).__name__}, {shape}", *sizes_of(matcher), result)


def sizes_of(matcher: Matcher) -> tuple[int, int]:
    """Bytes of both bodies."""
    assert matcher.keying is Keying.ROUNDS
    return matcher.sizes.event, matcher.sizes.interest


def print_row(left: str, name: str, event: int, interest: int, result: dict[str, float]) -> None:
    """One line: sizes, and times by the fastest kernels."""
    times = [
        result.get(s + KERNELS[-1], float("nan")) for s in ("broker", "publisher", "subscriber")
    ]
    wide = 27 if " " in name or len(name) > 16 else 16
    print(
        f"{left:>5}  {name:<{wide}}{f'{event:,}+{interest:,}':>15}{times[0]:>9.0f}"
        f"{times[1]:>11.0f}{times[2]:>12.0f}"
    )


def draw(rows: list[Row], path: Path) -> None:
    """Bytes and the broker's time by bits."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2))
    bits = [size for size, _ in rows]
    for name in rows[0][1]:
        found = [by[name] for _, by in rows]
        left.loglog(bits, [event + interest for event, interest, _ in found], "o-", label=name)
        right.loglog(bits, [r["broker" + KERNELS[-1]] for _, _, r in found], "o-", label=name)
    xor = [by["FormulaMatch"][2]["xor"] for _, by in rows]
    right.loglog(bits, xor, "k--", label="XOR of FormulaMatch's messages")
    for axis, title in ((left, "bytes of an event and an interest"), (right, "broker, ns a pair")):
        axis.set_xlabel("bits of the box")
        axis.set_title(title)
        axis.set_xticks(bits, [str(size) for size in bits])
        axis.set_xticks([], minor=True)
        axis.grid(True, alpha=0.3)
        axis.legend(loc="upper left", fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    print(f"drawn to {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plot", type=Path, help="also draw how the costs grow")
    parser.add_argument("--quick", action="store_true", help="smallest sizes only")
    options = parser.parse_args()
    print(machine())
    stock_box(options.batch, options.rounds)
    sizes = (16, 32) if options.quick else (16, 32, 64, 128, 256, 512)
    rows = growth(options.batch, min(3, options.rounds), sizes)
    comparisons(options.batch, min(3, options.rounds))
    hidden(options.batch, min(3, options.rounds), 4 if options.quick else 64)
    if not options.quick:
        forms(min(3, options.rounds))
    if options.plot:
        draw(rows, options.plot)


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore", BrokenSchemeWarning)
    one_core()
    main()
