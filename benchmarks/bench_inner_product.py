"""What does a pair of InnerProductMatch take, beside one product of as many pairings?

A pair is a product of n pairings. The broker's seconds of a pair, with messages that it has read,
stand over those of one multi-pairing of n pairs of points by the same library, on one core. The
goal is a ratio of at most 1.3. Beside that: each message's steps, and pairings a second, one by one
and n at a time.

    python benchmarks/bench_inner_product.py [--pairs 24] [--rounds 7] [--quick]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from report import Table, options
from timing import machine, one_core, repeated, seconds

from ccbps import Schema, UInt
from ccbps.algebra.pairing import pairing
from ccbps.matching import InnerProductMatch

GOAL = 1.3
"""Greatest ratio of a pair to one multi-pairing of n pairs."""
SUBSCRIPTIONS = 4
MATCHERS: dict[int, tuple[Schema, dict[str, Any], str]] = {
    4: (Schema(a=UInt(16), b=UInt(16)), {}, "a = 7 AND b = 9"),
    16: (Schema(a=UInt(16)), {"members": {"a": 14}}, "a IN (7, 9)"),
    68: (Schema(a=UInt(2), b=UInt(6)), {"domains": ["a", "b"]}, "a < 3 AND b BETWEEN 9 AND 40"),
}
"""By n: a schema, parameters and a subscription."""


def measure(n: int, pairs: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the row of each table for one length."""
    schema, parameters, text = MATCHERS[n]
    matcher, group = InnerProductMatch(schema, **parameters), pairing()
    assert matcher.size == n
    server = matcher.key_server()
    publisher = matcher.publisher(server.publisher_key())
    subscriber = matcher.subscriber(server.subscriber_key("alice"))
    broker = matcher.broker(server.broker_key())
    count, rng = max(1, pairs // SUBSCRIPTIONS), np.random.default_rng(n)
    records = {name: rng.integers(0, schema[name].size, count) for name in schema}
    batch, texts = schema.encode(records), [text] * SUBSCRIPTIONS
    events, table = publisher.encode(batch), broker.prepare(subscriber.encode(texts))
    drawn = group.exponents(2 * n)
    left = [group.power(group.g1, number) for number in drawn[:n]]
    right = [group.power(group.g2, number) for number in drawn[n:]]
    points = list(zip(left, right, strict=True))
    octets = [group.encode(point) for point in left]
    repeats = count * SUBSCRIPTIONS
    took = seconds(
        {
            "event": lambda: publisher.encode(batch),
            "interest": lambda: subscriber.encode(texts),
            "read": lambda: [group.decode_g1(point) for point in octets],
            "pair": lambda: broker.match_all(events, table),
            "product": repeated(lambda: group.cancels(points), repeats),
            "single": repeated(lambda: group.cancels(points[:1]), repeats),
        },
        rounds,
    )
    pair, product = took["pair"] / repeats, took["product"] / repeats
    steps = [took["event"] / count, took["interest"] / SUBSCRIPTIONS, took["read"], pair]
    sizes = [matcher.event_bytes, matcher.interest_bytes]
    ratios = [product * 1e3, pair / product, pair / product / GOAL]
    rates = [repeats / took["single"], n / product]
    return [*sizes, *(step * 1e3 for step in steps)], [*ratios, *rates]


def main() -> None:
    given = options(__doc__, pairs=24, rounds=7, quick="few pairs and rounds")
    if given.quick:
        given.pairs, given.rounds = SUBSCRIPTIONS, 1
    print(machine())
    print(f"pairings by {pairing().library}")
    rows = {n: measure(n, given.pairs, given.rounds) for n in MATCHERS}
    titles = {"event bytes": ",d", "interest bytes": ",d", "event": ".2f", "interest": ".2f"}
    more = {"broker, event": ".2f", "broker, pair": ".2f"}
    steps = Table("Messages of n points, milliseconds", {**titles, **more}, head="n", width=6)
    for n, (cells, _) in rows.items():
        steps.row(n, *cells)
    heads = {"product, ms": ".2f", "pair": ".2f", "of goal": ".2f", "one by one": ",.0f"}
    ratios = Table(
        "A pair over one product of n pairings, and pairings a second",
        {**heads, "n at a time": ",.0f"},
        head="n",
        width=6,
    )
    for n, (_, cells) in rows.items():
        ratios.row(n, *cells)


if __name__ == "__main__":
    one_core()
    main()
