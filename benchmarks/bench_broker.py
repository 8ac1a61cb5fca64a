"""How far does one broker go? Memory, changes and publications of 10^3 to 10^6 subscriptions.

Subscriptions have 10,000 different predicates of TagMatch, and each client has 100 of them; in one
more row all of 50,000 subscriptions are different. In one run: bytes of memory a subscription;
microseconds to add one, alone and with others, and to remove one; milliseconds to find the clients
that match an event, and to match and deliver it. Limits: a comparison of an event in the clear, in
NumPy, with the different predicates only, as in the broker, and with all subscriptions; and as many
(client, name) pairs in a dictionary. Then, with the most subscriptions, the time of a publication
while another thread subscribes and unsubscribes as fast as it can.

Others printed ratios, measured on their machines: with 500,000 subscriptions SBM-II matches 24
times faster than SCBR and 40 times faster than MP. SBM-I, whose tags show order, is 3 to 4 orders
of magnitude faster than both.

    python benchmarks/bench_broker.py [--quick] [--plot FILE]

Source: SBM, Cybersecurity 2023, https://doi.org/10.1186/s42400-023-00165-w (abstract).
"""

from __future__ import annotations

import gc
import resource
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from report import Table, options, picture
from timing import machine, one_core, timed
from tqdm import tqdm
from workloads import roles_of

from ccbps import Category, Schema, UInt
from ccbps.arrays import Bytes
from ccbps.broker import MatchingBroker, Publication, Quota, Subscription
from ccbps.broker.subscriptions import Coming
from ccbps.matching import TagMatch

DIFFERENT = 10_000
ALL_DIFFERENT = 50_000
EACH = 100
"""Subscriptions of a client."""
GOAL = 10.0
TRIES = 3
"""Times that an event is matched; the least time counts, as other programs may interrupt it."""
PRINTED_AT = 500_000
"""Subscriptions where others printed figures."""
PRINTED = {"SBM-II : SCBR": 24.0, "SBM-II : MP": 40.0, "SBM-I : SCBR, MP": 10.0**3.5}
SCHEMA = Schema(issue=Category([f"S{n}" for n in range(100)]), price=UInt(10), volume=UInt(10))


def resident() -> int:
    """Return the bytes of this process in memory."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def predicates(count: int) -> list[str]:
    """Return different predicates, each for one of 100 issues."""
    rng = np.random.default_rng(1)
    texts: dict[str, None] = {}
    while len(texts) < count:
        issue, low, wide, volume = (int(n) for n in rng.integers(0, [100, 1000, 200, 1000]))
        text = f"issue = 'S{issue}' AND price BETWEEN {low} AND {low + wide} AND volume > {volume}"
        texts[text] = None
    return [*texts]


def subscriptions(interests: Bytes, count: int) -> list[tuple[str, Subscription]]:
    """Return subscriptions by client. Equal interests share an array; if as many are wanted as
    there are, each comes once."""
    ones = [interests[n : n + 1] for n in range(len(interests))]
    rng = np.random.default_rng(2)
    order = rng.permutation(count) if count == len(ones) else rng.integers(0, len(ones), count)
    return [
        (f"client {n // EACH}", Subscription(f"s{n % EACH}", ones[at]))
        for n, at in enumerate(order.tolist())
    ]


def scan(size: int) -> float:
    """Return milliseconds to compare an event with subscriptions in the clear."""
    rng = np.random.default_rng(4)
    issues, lows = rng.integers(0, 100, size), rng.integers(0, 1000, size)
    highs, volumes = lows + rng.integers(0, 200, size), rng.integers(0, 1000, size)

    def compare(issue: int, price: int, volume: int) -> None:
        inside = (issues == issue) & (lows <= price) & (price <= highs) & (volumes < volume)
        np.flatnonzero(inside)

    events = rng.integers(0, [100, 1024, 1024], (5, 3))
    return 1e3 * float(np.median([timed(partial(compare, *event)) for event in events]))


def measure(size: int, events: Sequence[bytes], interests: Bytes, broker: MatchingBroker) -> dict:
    wanted = subscriptions(interests, size)
    different = len({id(one.interests) for _, one in wanted})
    gc.collect()
    before = resident()
    entered = timed(partial(broker.subscribe_all, wanted))
    gc.collect()
    memory = resident() - before
    limit = timed(lambda: {(client, one.name): n for n, (client, one) in enumerate(wanted)})
    add, remove, match, deliver = [], [], [], []
    for n, (_, one) in enumerate(wanted[: min(size, 300)]):
        new = Subscription("more", one.interests)
        add.append(timed(partial(broker.subscribe, f"late {n}", new)))
        remove.append(timed(partial(broker.unsubscribe, f"late {n}", "more")))
    found = number = 0
    for event in events:
        tries = []
        for _ in range(TRIES):
            publication = Publication(number, event, b"payload")
            start = time.perf_counter()
            moment = broker._subscriptions.begin("feed", publication)
            coming = Coming(0, publication, b"", moment)
            broker._subscriptions.find("feed", [coming], False)
            clients = broker._subscriptions.recipients(coming)
            matched = time.perf_counter() - start
            broker._subscriptions.end(moment)
            tries.append((matched, timed(partial(broker.publish, "feed", publication))))
            number += 1
        found += sum(len(names) for _, names in clients)
        match.append(min(matched for matched, _ in tries))
        deliver.append(min(delivered for _, delivered in tries))
    return {
        "subscriptions": size,
        "different": different,
        "bytes each": memory / size,
        "enter us": entered / size * 1e6,
        "dictionary us": limit / size * 1e6,
        "add us": 1e6 * float(np.median(add)),
        "remove us": 1e6 * float(np.median(remove)),
        "match ms": 1e3 * float(np.median(match)),
        "in clear ms": scan(different),
        "all in clear ms": scan(size),
        "with delivery ms": 1e3 * float(np.median(deliver)),
        "matched": found / len(events),
    }


def churned(broker: MatchingBroker, events: Sequence[bytes], interests: Bytes, first: int) -> None:
    """Print percentiles of publications, quiet and while subscriptions change."""
    heads = {f"ms at {percent} %": ".2f" for percent in (50, 95, 99)} | {"changes/s": ",.0f"}
    table = Table("A publication to the most subscriptions", heads)
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
            publication = Publication(number, event, b"payload")
            times.append(timed(partial(broker.publish, "feed", publication)))
        first += 300
        took = time.perf_counter() - begun
        table.row(title, *(1e3 * np.percentile(times, [50, 95, 99])), changes / took or None)
    ended.set()
    thread.join()


def main() -> None:
    given = options(__doc__, quick="up to 10,000 subscriptions", plot=Path)
    one_core()
    sizes = [1000, 10_000] if given.quick else [1000, 10_000, 100_000, 500_000, 1_000_000]
    matcher = TagMatch(SCHEMA, topic=["issue"])
    roles = roles_of(matcher)
    interests = roles.subscriber.encode(predicates(1000 if given.quick else DIFFERENT))
    rng = np.random.default_rng(3)
    count = 20
    records = {
        "issue": [f"S{n}" for n in rng.integers(0, 100, count)],
        "price": rng.integers(0, 1024, count),
        "volume": rng.integers(0, 1024, count),
    }
    events = [event.tobytes() for event in roles.publisher.encode(records)]
    print(f"{machine()}; {len(interests):,} different predicates; goal: an event in {GOAL} ms")
    rows = []
    for size in tqdm(sizes, unit=" sizes"):
        broker = MatchingBroker(roles.broker, quota=Quota(rate=1e9, burst=1e9))
        rows.append(measure(size, events, interests, broker))
    churned(broker, events, interests, TRIES * count)
    size = 2000 if given.quick else ALL_DIFFERENT
    interests = roles.subscriber.encode(predicates(size))
    broker = MatchingBroker(roles.broker, quota=Quota(rate=1e9, burst=1e9))
    all_different = measure(size, events, interests, broker)
    heads = {name: ",.0f" if name == "different" else ",.2f" for name in [*rows[0]][1:]}
    table = Table("Subscriptions and events", heads, head="subscriptions", width=24)
    for row in rows:
        table.row(f"{row['subscriptions']:,}", *[*row.values()][1:])
    table.row("all different", *[*all_different.values()][1:])
    if given.plot:
        plot(rows, given.plot)


def plot(rows: Sequence[dict], path: Path) -> None:
    sizes = [row["subscriptions"] for row in rows]
    with picture(path, (12, 3.6), 3) as (_, axes):
        for name, style, label in (
            ("match ms", "o-", "who matches"),
            ("with delivery ms", "s--", "and delivery"),
            ("all in clear ms", ":", "all, in the clear"),
            ("in clear ms", "-.", "different ones, in the clear"),
        ):
            axes[0].loglog(sizes, [row[name] for row in rows], style, label=label)
        axes[0].axhline(GOAL, color="gray", linewidth=0.8)
        axes[0].set(xlabel="subscriptions", ylabel="ms an event", title="An event")
        axes[0].legend(frameon=False)
        for name in ("enter us", "add us", "remove us"):
            label = name.removesuffix(" us")
            axes[1].semilogx(sizes, [row[name] for row in rows], "o-", label=label)
        axes[1].set(xlabel="subscriptions", ylabel="µs a subscription", title="Changes")
        axes[1].legend(frameon=False)
        (row,) = (row for row in rows if row["subscriptions"] == min(PRINTED_AT, max(sizes)))
        both = {**PRINTED, "ccbps : all in the clear": row["all in clear ms"] / row["match ms"]}
        colors = ["lightgray"] * len(PRINTED) + ["C0"]
        bars = axes[2].barh([*both], [*both.values()], color=colors)
        texts = ["10³ to 10⁴" if value > 1000 else f"{value:.2g}" for value in both.values()]
        axes[2].bar_label(bars, texts, padding=3)
        axes[2].set(xscale="log", xlim=(0.1, 2e5), xlabel="times faster")
        axes[2].axvline(1, color="gray", linewidth=0.8)
        axes[2].set_title(f"{row['subscriptions']:,} subscriptions (gray: printed)")


if __name__ == "__main__":
    main()
