"""How far does one broker go? Memory, changes and publications from 1,000 to 1,000,000
subscriptions.

Subscriptions are to 10,000 different predicates of TagMatch, of clients with 100 each. In one run:
bytes of memory a subscription; microseconds to add one, alone and with others, and to remove one;
milliseconds to match an event (who matches), and to match and deliver it. Limits beside it: what it
costs to compare an event with all subscriptions in the clear, in NumPy, and to hold as many
(client, name) pairs in a dictionary. Then, with the most subscriptions, how long a publication
takes while another thread subscribes and unsubscribes as fast as it can.

The figures that others printed are theirs, on their machines, and ratios: with 500,000
subscriptions SBM-II matches 24 times faster than SCBR and 40 times faster than MP, and SBM-I, whose
tags show order, 3 to 4 orders of magnitude faster than both.

    python benchmarks/bench_broker.py [--quick] [--plot FILE]

Source: SBM, Cybersecurity 2023, https://doi.org/10.1186/s42400-023-00165-w (abstract).
"""

from __future__ import annotations

import argparse
import gc
import resource
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from timing import machine, one_core
from tqdm import tqdm

from ccbps import Category, Schema, UInt
from ccbps.arrays import Bytes
from ccbps.broker import MatchingBroker, Publication, Quota, Subscription
from ccbps.matching import TagMatch

DIFFERENT = 10_000
EACH = 100
"""Subscriptions of a client."""
GOAL = 10.0
PRINTED_AT = 500_000
"""Subscriptions where others printed figures."""
PRINTED = {"SBM-II : SCBR": 24.0, "SBM-II : MP": 40.0, "SBM-I : SCBR, MP": 10.0**3.5}
SCHEMA = Schema(issue=Category([f"S{n}" for n in range(100)]), price=UInt(10), volume=UInt(10))


def resident() -> int:
    """Bytes of this process in memory."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def predicates(count: int) -> list[str]:
    """Different ones, each for one of 100 issues."""
    rng = np.random.default_rng(1)
    found: dict[str, None] = {}
    while len(found) < count:
        issue, low, wide, volume = (int(n) for n in rng.integers(0, [100, 1000, 200, 1000]))
        text = f"issue = 'S{issue}' AND price BETWEEN {low} AND {low + wide} AND volume > {volume}"
        found[text] = None
    return [*found]


def subscriptions(interests: Bytes, count: int) -> list[tuple[str, Subscription]]:
    """Equal interests are one array, as equal messages from one connection would not be."""
    ones = [interests[n : n + 1] for n in range(len(interests))]
    order = np.random.default_rng(2).integers(0, len(ones), count).tolist()
    return [
        (f"client {n // EACH}", Subscription(f"s{n % EACH}", ones[at]))
        for n, at in enumerate(order)
    ]


def mean(actions: Sequence[float], unit: float) -> float:
    return float(np.median(actions)) * unit


def scan(size: int) -> float:
    """Milliseconds to compare an event with the bounds of so many subscriptions, in the clear."""
    rng = np.random.default_rng(4)
    issues, lows = rng.integers(0, 100, size), rng.integers(0, 1000, size)
    highs, volumes = lows + rng.integers(0, 200, size), rng.integers(0, 1000, size)
    times = []
    for issue, price, volume in rng.integers(0, [100, 1024, 1024], (5, 3)):
        start = time.perf_counter()
        inside = (issues == issue) & (lows <= price) & (price <= highs) & (volumes < volume)
        np.flatnonzero(inside)
        times.append(time.perf_counter() - start)
    return mean(times, 1e3)


def measure(size: int, events: Sequence[bytes], interests: Bytes, broker: MatchingBroker) -> dict:
    wanted = subscriptions(interests, size)
    gc.collect()
    before, start = resident(), time.perf_counter()
    broker.subscribe_all(wanted)
    entered = time.perf_counter() - start
    gc.collect()
    memory = resident() - before
    start = time.perf_counter()
    pairs = {(client, one.name): n for n, (client, one) in enumerate(wanted)}
    limit = time.perf_counter() - start
    del pairs
    add, remove, match, deliver = [], [], [], []
    for n, (_, one) in enumerate(wanted[: min(size, 300)]):
        new = Subscription("more", one.interests)
        start = time.perf_counter()
        broker.subscribe(f"late {n}", new)
        middle = time.perf_counter()
        broker.unsubscribe(f"late {n}", "more")
        add.append(middle - start)
        remove.append(time.perf_counter() - middle)
    found = 0
    for number, event in enumerate(events):
        publication = Publication(number, event, b"payload")
        start = time.perf_counter()
        moment = broker._subscriptions.begin("feed", publication)
        some = [(book, book.find(publication)) for book in moment.books]
        clients = broker._subscriptions.recipients(moment, "feed", publication, some)
        match.append(time.perf_counter() - start)
        broker._subscriptions.end(moment)
        found += sum(len(names) for _, names in clients)
        start = time.perf_counter()
        broker.publish("feed", publication)
        deliver.append(time.perf_counter() - start)
    return {
        "subscriptions": size,
        "bytes each": memory / size,
        "enter us": entered / size * 1e6,
        "dictionary us": limit / size * 1e6,
        "add us": mean(add, 1e6),
        "remove us": mean(remove, 1e6),
        "match ms": mean(match, 1e3),
        "in clear ms": scan(size),
        "with delivery ms": mean(deliver, 1e3),
        "matched": found / len(events),
    }


def churned(broker: MatchingBroker, events: Sequence[bytes], interests: Bytes, first: int) -> None:
    """Print percentiles of publications, quiet and while subscriptions change."""
    ended = threading.Event()
    changes = 0

    def churn() -> None:
        nonlocal changes
        while not ended.is_set():
            at = changes % len(interests)
            broker.subscribe("churn", Subscription("a", interests[at : at + 1]))
            broker.unsubscribe("churn", "a")
            changes += 2

    thread = threading.Thread(target=churn)
    for title in ("quiet", "with changes"):
        times = []
        if title != "quiet":
            thread.start()
        begun = time.perf_counter()
        for number in range(first, first + 300):
            event = events[number % len(events)]
            start = time.perf_counter()
            broker.publish("feed", Publication(number, event, b"payload"))
            times.append(time.perf_counter() - start)
        first += 300
        took = time.perf_counter() - begun
        found = "".join(f"{one * 1e3:8.2f}" for one in np.percentile(times, [50, 95, 99]))
        print(f"a publication, {title:<13} ms at 50, 95 and 99 %:{found}", end="")
        print(f"; {changes / took:,.0f} changes a second" if changes else "")
    ended.set()
    thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="up to 10,000 subscriptions")
    parser.add_argument("--plot", metavar="FILE", help="draw growth into a picture")
    arguments = parser.parse_args()
    one_core()
    sizes = [1000, 10_000] if arguments.quick else [1000, 10_000, 100_000, 500_000, 1_000_000]
    matcher = TagMatch(SCHEMA, topic=["issue"])
    server = matcher.key_server()
    alice = matcher.subscriber(server.subscriber_key("alice"))
    interests = alice.encode(predicates(1000 if arguments.quick else DIFFERENT))
    rng = np.random.default_rng(3)
    count = 20
    records = {
        "issue": [f"S{n}" for n in rng.integers(0, 100, count)],
        "price": rng.integers(0, 1024, count),
        "volume": rng.integers(0, 1024, count),
    }
    feed = matcher.publisher(server.publisher_key())
    events = [event.tobytes() for event in feed.encode(records)]
    print(f"{machine()}; {len(interests):,} different predicates; goal: an event in {GOAL} ms")
    rows = []
    for size in tqdm(sizes, unit=" sizes"):
        broker = MatchingBroker(
            matcher.broker(server.broker_key()), quota=Quota(rate=1e9, burst=1e9)
        )
        rows.append(measure(size, events, interests, broker))
    churned(broker, events, interests, count)
    names = [*rows[0]]
    print("  ".join(f"{name:>16}" for name in names))
    for row in rows:
        print("  ".join(f"{row[name]:>16,.{0 if row[name] >= 1000 else 2}f}" for name in names))
    if arguments.plot:
        plot(rows, arguments.plot)


def plot(rows: Sequence[dict], path: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    sizes = [row["subscriptions"] for row in rows]
    axes[0].loglog(sizes, [row["match ms"] for row in rows], "o-", label="who matches")
    axes[0].loglog(sizes, [row["with delivery ms"] for row in rows], "s--", label="and delivery")
    axes[0].loglog(
        sizes, [row["in clear ms"] for row in rows], ":", color="gray", label="all, in the clear"
    )
    axes[0].axhline(GOAL, color="gray", linewidth=0.8)
    axes[0].set(xlabel="subscriptions", ylabel="ms an event", title="An event")
    axes[0].legend(frameon=False)
    for name in ("enter us", "add us", "remove us"):
        axes[1].semilogx(
            sizes, [row[name] for row in rows], "o-", label=name.replace("us", "").strip()
        )
    axes[1].set(xlabel="subscriptions", ylabel="µs a subscription", title="Changes")
    axes[1].legend(frameon=False)
    (row,) = (row for row in rows if row["subscriptions"] == min(PRINTED_AT, max(sizes)))
    ours = {"ccbps : in the clear": row["in clear ms"] / row["match ms"]}
    both = {**PRINTED, **ours}
    colors = ["lightgray"] * len(PRINTED) + ["C0"] * len(ours)
    bars = axes[2].barh([*both], [*both.values()], color=colors)
    said = ["10³ to 10⁴" if value > 1000 else f"{value:.2g}" for value in both.values()]
    axes[2].bar_label(bars, said, padding=3)
    axes[2].set(xscale="log", xlim=(0.1, 2e5), xlabel="times faster")
    axes[2].axvline(1, color="gray", linewidth=0.8)
    axes[2].set_title(f"{row['subscriptions']:,} subscriptions (gray: printed)")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
