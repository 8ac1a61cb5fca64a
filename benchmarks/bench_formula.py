"""What does matching a private formula cost? FormulaMatch and BroadcastMatch beside the others.

Units: nanoseconds a pair on one core, and bytes of message bodies. Limits, in the same run: XOR of
the same message bytes (the broker must read both), and the AES-256-CTR key stream of the bytes that
the encoders share. Half-gates are by their published size: 32 bytes an AND gate, and 16 for each
input bit of the event and of the interest. The box of 52 bits runs with the kernels in NumPy and,
where Numba is installed, with the compiled ones (extra `compiled`); all else with the fastest ones.
Batches of one pair, of 64 and of more show what a call costs.

    python benchmarks/bench_formula.py [--batch 100000] [--plot formula.png] [--quick]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count as counting
from pathlib import Path
from typing import Any

import numpy as np
from report import Table, options, picture
from timing import KERNELS, key_stream, machine, one_core, repeated, seconds, with_kernels
from workloads import boxes, numbers, random_events, roles_of

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


EVENT_GOAL = 50
"""Microseconds of a BroadcastMatch publisher for an event."""
BATCHES = (1, 64, 100_000, 1_000_000)
FEW = 1024
"""Messages of a batch from which on the compiled kernels are used."""
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


def measure_pairs(
    matcher: Matcher,
    interests: list[Any],
    batch: int,
    rounds: int = 5,
    kernels: Sequence[str] = KERNELS[-1:],
) -> dict[str, float]:
    """Return nanoseconds a pair of every step and limit of a one-time matcher."""
    events, seed = random_events(matcher.schema, batch), SharedSeed.generate()
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
    return timed(steps, limits, batch, rounds, kernels)


def measure_broadcast(matcher: BroadcastMatch, texts: list[str], rounds: int) -> dict[str, float]:
    """Return nanoseconds a pair of one event with all interests.

    The publisher's are those of an event, for all interests.
    """
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
    same = matcher.schema.parse(texts[0])
    steps: dict[str, Callable[[], object]] = {
        "broker": lambda: broker.match(sent, wanted),
        "publisher": repeated(lambda: publisher.encode(events, [next(turn)]), SINGLE),
        "subscriber": lambda: matcher.subscriber(seed).encode(
            parsed, [0] * count, pairs=pairs, out=wanted
        ),
        "same": lambda: matcher.subscriber(seed).encode(same, range(count)),
    }
    result = timed(steps, {}, count, rounds)
    return result | {n: s / SINGLE for n, s in result.items() if n.startswith("publisher")}


def measure_tags(schema: Schema, texts: list[str], count: int, rounds: int) -> dict[str, float]:
    """Return nanoseconds a pair of `count` events with all interests, with TagMatch."""
    matcher, events = TagMatch(schema), random_events(schema, count)
    publisher, subscriber, broker = roles_of(matcher)
    wanted, sent = subscriber.encode(texts), publisher.encode(events)
    table = broker.prepare(wanted)
    found = broker.match_all(sent, table)
    for i, text in enumerate(texts):
        assert np.array_equal(found[:, i], schema.parse(text).evaluate(events))
    pairs = count * len(texts)
    steps: dict[str, Callable[[], object]] = {"broker": lambda: broker.match_all(sent, table)}
    encoders: dict[str, Callable[[], object]] = {
        "publisher": lambda: publisher.encode(events),
        "subscriber": lambda: subscriber.encode(texts),
    }
    once = seconds(encoders, rounds)
    return timed(steps, {}, pairs, rounds) | {
        "publisher": 1e9 * once["publisher"] / count,
        "subscriber": 1e9 * once["subscriber"] / len(texts),
        **sized(matcher.sizes.event, matcher.sizes.interest),
    }


def timed(
    steps: dict[str, Callable[[], object]],
    limits: dict[str, Callable[[], object]],
    batch: int,
    rounds: int,
    kernels: Sequence[str] = KERNELS,
) -> dict[str, float]:
    """Return nanoseconds of one of `batch`, by step and kernels."""
    actions: dict[str, Callable[[], object]] = {
        step + kernel: with_kernels(kernel, action)
        for step, action in steps.items()
        for kernel in kernels
    }
    return {name: 1e9 * s / batch for name, s in seconds(limits | actions, rounds).items()}


def check(
    matcher: Matcher, interests: list[Any], events: Events, index: np.ndarray, found: np.ndarray
) -> None:
    """Check answers with the plaintext."""
    for i in range(min(20, len(interests))):
        rows = index == i
        wanted = matcher.meaning(interests[i], events)
        assert np.array_equal(found[rows], wanted[rows]), "encrypted and plaintext answers differ"


def half_gates(bits: int, intervals: int, attributes: int) -> int:
    """Return the bytes of a garbled circuit: an AND gate for each compared bit, and joins."""
    return 32 * (2 * bits + attributes - 1) + 16 * bits + 16 * 2 * bits * (intervals > 0)


def stock_box(batch: int, rounds: int, most: int) -> None:
    """Print the box of 16+16+20 bits, in all schemes."""
    schema = numbers(16, 16, 20)
    texts = boxes(schema, 100)
    many = boxes(schema, most)
    print(f"\n{batch:,} pairs; broadcast: 1 event, {len(many):,} interests")
    table = costs_table(BOX)
    results: dict[str, dict[str, float]] = {}
    for matcher in (FormulaMatch.box(schema), BranchingMatch.box(schema)):
        result = measure_pairs(matcher, texts, batch, rounds, KERNELS)
        results[type(matcher).__name__] = result | sized(*sizes_of(matcher))
    for window in (1, 2):
        broadcast = BroadcastMatch.box(schema, window=window)
        result = measure_broadcast(broadcast, many, rounds)
        name = f"BroadcastMatch, {window} bit{'s' * (window > 1)}"
        results[name] = result | sized(*sizes_of(broadcast))
    results["TagMatch"] = measure_tags(schema, texts, 1000, rounds)
    for name, result in results.items():
        for kernels in KERNELS[:1] if name == "BranchingMatch" else KERNELS:
            steps = (result.get(s + kernels, result.get(s)) for s in STEPS)
            table.row(name + kernels, *(result[what] for what in SIZES), *steps)
    table.row("half-gates", None, None, half_gates(52, 3, 3))
    for name in ("FormulaMatch", "BranchingMatch"):
        xor, stream = (results[name][limit] for limit in ("xor", "key stream"))
        table.row(f"{name}, limit", None, None, None, xor, stream, stream)
    table = Table("Goals for this box", {"ns a pair": ".0f", "goal": ".0f"}, width=40)
    for (name, step, kernels), goal in GOALS.items():
        if (found := results[name].get(step + kernels)) is not None:
            table.row(f"{name} {step}{kernels}", found, goal)
    heads = {"publisher, an event": ".0f", "goal": ".0f", "subscriber, one predicate": ".1f"}
    table = Table("BroadcastMatch, microseconds of a message", heads, width=36)
    for name in ("BroadcastMatch, 1 bit", "BroadcastMatch, 2 bits"):
        for kernels in KERNELS:
            whole = results[name]["publisher" + kernels] * len(many) / 1000
            table.row(name + kernels, whole, EVENT_GOAL, results[name]["same" + kernels] / 1000)


def fresh_rounds(batch: int) -> Iterator[np.ndarray]:
    """Yield the rounds of one batch after another, made ahead so that a batch of one is timed."""
    many = max(1, (1 << 16) // batch)
    for start in counting():
        yield from np.arange(start * many * batch, (start + 1) * many * batch).reshape(many, batch)


def batches(sizes: Iterable[int], rounds: int) -> None:
    """Print what a pair costs in a batch of one, and in larger ones; with few pairs, in NumPy."""
    schema = numbers(16, 16, 20)
    matcher, text = FormulaMatch.box(schema), boxes(schema, 1)[0]
    heads = dict.fromkeys(("publisher", "subscriber", "broker"), ".3f")
    table = Table("FormulaMatch, microseconds a pair by the size of a batch", heads, head="pairs")
    for batch in sizes:
        seed, rounds_of = SharedSeed.generate(), fresh_rounds(batch)
        publisher, subscriber = matcher.publisher(seed), matcher.subscriber(seed)
        broker, events = matcher.broker(), random_events(schema, batch)
        wanted, places = schema.parse(text), partial(next, rounds_of)
        both = publisher.encode(events, places()), subscriber.encode(wanted, np.arange(batch))
        again = max(1, SINGLE * 64 // max(64, batch))
        actions: dict[str, Callable[[], object]] = {
            "publisher": lambda p=publisher, e=events, r=places: p.encode(e, r()),
            "subscriber": lambda s=subscriber, w=wanted, r=places: s.encode(w, r()),
            "broker": lambda broker=broker, both=both: broker.match(*both),
        }
        kernels = KERNELS[-1] if batch >= FEW else ""
        # A few milliseconds are soon over: among more of them, some are undisturbed.
        turns = rounds if batch >= FEW else 8 * rounds
        took = seconds(
            {n: with_kernels(kernels, repeated(do, again)) for n, do in actions.items()}, turns
        )
        table.row(f"{batch:,}", *(1e6 * took[name] / again / batch for name in actions))


def ahead(batch: int, rounds: int) -> None:
    """Print what messages ahead of events cost, beside ordinary event messages."""
    schema = numbers(16, 16, 20)
    matcher, places = FormulaMatch.box(schema), np.arange(batch)
    own, master = SharedSeed.generate(), SharedSeed.generate()
    events, pair = random_events(schema, batch), ["s"] * batch
    deferred = matcher.deferred(own, master)
    early = deferred.prepare(places, pairs=pair)
    labels = deferred.encode(events, places)
    names = [f"s{n}" for n in range(batch)]
    same = matcher.deferred(own, master).prepare(np.zeros(batch, dtype=np.int64), pairs=names)
    label = np.repeat(labels[:1], batch, axis=0)
    ordinary = matcher.publisher(master).encode(events, places, pairs=pair)
    assert np.array_equal(matcher.complete(labels, early), ordinary)
    actions: dict[str, Callable[[], object]] = {
        "an ordinary event message": lambda: matcher.publisher(master).encode(
            events, places, pairs=pair
        ),
        "a message ahead": lambda: matcher.deferred(own, master).prepare(places, pairs=pair),
        "the labels of an event": lambda: matcher.deferred(own, master).encode(events, places),
        "completion, many messages for one event": lambda: matcher.complete(label, same),
        "completion, an event for each message": lambda: matcher.complete(labels, early),
    }
    kernels = KERNELS[-1]
    took = seconds({name: with_kernels(kernels, do) for name, do in actions.items()}, rounds)
    title = "FormulaMatch ahead of events, microseconds, fastest kernels"
    table = Table(title, {"microseconds": ".2f", "times ordinary": ".1f"}, width=40)
    for name, second in took.items():
        table.row(name, 1e6 * second / batch, second / took["an ordinary event message"])


Row = tuple[int, dict[str, tuple[int, int, dict[str, float]]]]


def growth(batch: int, rounds: int, sizes: Iterable[int]) -> list[Row]:
    """Print boxes of 16-bit attributes."""
    table = costs_table("Boxes of 16-bit attributes, fastest kernels", "bits")
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
            name = type(matcher).__name__
            found[name] = *sizes_of(matcher), result
            table.row(f"{bits} {name}", *costs(matcher, result))
        rows.append((bits, found))
    return rows


def comparisons(batch: int, rounds: int) -> None:
    """Print a single comparison with a private bound."""
    table = costs_table("A lone comparison x < :c", "bits")
    for bits in (4, 8, 16, 32, 64):
        schema = numbers(bits)
        values = [{"c": int(c)} for c in np.linspace(0, (1 << min(bits, 62)) - 1, 9)]
        for make in (FormulaMatch, BranchingMatch):
            matcher = make(schema, "a0 < :c")
            result = measure_pairs(matcher, values, batch, rounds)
            table.row(f"{bits} {make.__name__}", *costs(matcher, result))


def hidden(batch: int, rounds: int, most: int) -> None:
    """Print formulas that are private."""
    table = costs_table("Hidden formulas: leaves and their kind", "leaves")
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
                table.row(f"{leaves} {make.__name__} {kind}", *costs(matcher, result))
        leaves *= 4


def forms(rounds: int) -> None:
    """Print the costs of the same predicates, with the form hidden and public."""
    for schema, text, form, values in FORMS:
        levels = predicate_circuit(schema.parse(text)).depth
        print(f"\n{text}")
        table = costs_table(f"Forms of a predicate of {schema.bits} bits, depth {levels}")
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
            table.row(f"{type(matcher).__name__}, {shape}", *costs(matcher, result))


def sizes_of(matcher: Matcher) -> tuple[int, int]:
    """Return the bytes of both bodies."""
    assert matcher.keying is Keying.ROUNDS
    return matcher.sizes.event, matcher.sizes.interest


BOX = "Box of 16+16+20 bits"
SIZES = ("event bytes", "interest bytes", "both bytes")
STEPS = ("broker", "publisher", "subscriber")


def sized(event: int, interest: int) -> dict[str, float]:
    """Return the figures of the columns `SIZES`."""
    return dict(zip(SIZES, (event, interest, event + interest), strict=True))


def costs_table(title: str, head: str = "") -> Table:
    """Return a table of the bytes of bodies, and of nanoseconds a pair."""
    heads = dict.fromkeys(SIZES, ",") | dict.fromkeys(STEPS, ",.1f")
    return Table(title, heads, head=head, width=33, least=14)


def costs(matcher: Matcher, result: dict[str, float]) -> list[Any]:
    """Return the figures of a row of `costs_table`, with the fastest kernels."""
    sizes = sized(*sizes_of(matcher)).values()
    return [*sizes, *(result.get(step + KERNELS[-1]) for step in STEPS)]


def draw(rows: list[Row], path: Path) -> None:
    """Draw bytes and the broker's time by bits."""
    bits = [size for size, _ in rows]
    with picture(path, (10, 4.2), 2) as (_, (left, right)):
        for name in rows[0][1]:
            found = [by[name] for _, by in rows]
            left.loglog(bits, [event + interest for event, interest, _ in found], "o-", label=name)
            right.loglog(bits, [r["broker" + KERNELS[-1]] for _, _, r in found], "o-", label=name)
        xor = [by["FormulaMatch"][2]["xor"] for _, by in rows]
        right.loglog(bits, xor, "k--", label="XOR of FormulaMatch's messages")
        titles = {left: "bytes of an event and an interest", right: "broker, ns a pair"}
        for axis, title in titles.items():
            axis.set(xlabel="bits of the box", title=title)
            axis.set_xticks(bits, [str(size) for size in bits])
            axis.set_xticks([], minor=True)
            axis.grid(True, alpha=0.3)
            axis.legend(loc="upper left", fontsize="small")


def main() -> None:
    few_pairs = "few pairs, smallest sizes only"
    given = options(__doc__, batch=100_000, rounds=5, plot=Path, quick=few_pairs)
    print(machine())
    few = 1 if given.quick else min(3, given.rounds)
    batch = 2_000 if given.quick else given.batch
    stock_box(batch, few if given.quick else given.rounds, 200 if given.quick else 10_000)
    ahead(min(batch, 20_000), few)
    batches(BATCHES[:2] if given.quick else BATCHES, few)
    sizes = (16, 32) if given.quick else (16, 32, 64, 128, 256, 512)
    rows = growth(batch, few, sizes)
    comparisons(batch, few)
    hidden(batch, few, 4 if given.quick else 64)
    forms(few)
    if given.plot:
        draw(rows, given.plot)


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore", BrokenSchemeWarning)
    one_core()
    main()
