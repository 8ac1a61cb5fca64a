"""What does a pre-filter of contents save on stock quotes? Encrypted tests, and seconds of a match.

Subscriptions are to one issue in a band of prices, every other one above a volume. In one run:
encrypted tests of all pairs and of those that pass, and seconds of the broker without and with
masks, those for comparing masks included. A matcher with slow tests gets fewer pairs. Then a
running broker with subscriptions to two equalities: milliseconds of a publication without and with
masks.

    python benchmarks/bench_contents.py [--quick]
"""

from __future__ import annotations

import warnings
from time import perf_counter
from typing import Any

import numpy as np
from report import Table, options
from timing import one_core, timed
from workloads import roles_of

from ccbps import Category, Decimal, Schema, UInt
from ccbps.broker import MatchingBroker, Publication, Quota, Subscription
from ccbps.errors import BrokenSchemeWarning
from ccbps.filters import ContentFilter, FilterKey, may_match
from ccbps.matching import InnerProductMatch, KeywordMatch, TagMatch
from ccbps.matching.broken import AspeMatch
from ccbps.predicates import Events

QUOTA = Quota(rate=1e9, burst=1e9, cost=1e9, patience=1e9, subscriptions=1 << 20)
USUAL = {"AAPL": 150, "FB": 28, "GOOG": 480, "IBM": 115, "MSFT": 30}
SCHEMA = Schema(issue=Category([*USUAL]), close=Decimal(0, "1310.71", step="0.01"), volume=UInt(30))


def quotes() -> Events:
    from bokeh_sampledata import stocks  # reads them all

    data = [getattr(stocks, name) for name in USUAL]
    return SCHEMA.encode(
        {
            "issue": [n for n, own in zip(USUAL, data, strict=True) for _ in own["date"]],
            "close": np.round(np.concatenate([own["close"] for own in data]), 2),
            "volume": np.concatenate([own["volume"] for own in data]),
        }
    )


def bands(count: int) -> list[str]:
    rng = np.random.default_rng(2000)
    texts = []
    for number in range(count):
        issue = [*USUAL][int(rng.integers(0, len(USUAL)))]
        price = USUAL[issue] * float(rng.uniform(0.6, 1.5))
        texts.append(
            f"issue = '{issue}' AND close BETWEEN {0.95 * price:.2f} AND {1.05 * price:.2f}"
        )
        if number % 2:
            texts[-1] += f" AND volume > {int(rng.choice([2, 5, 10, 20, 50]))}000000"
    return texts


def compare(table: Table, matcher: Any, events: Any, texts: list[str]) -> None:
    roles = roles_of(matcher)
    contents = ContentFilter(matcher.schema, FilterKey.generate())
    sent, asked = roles.publisher.encode(events), roles.subscriber.encode(texts)
    own, wanted = contents.events(events), contents.interests(texts)
    passing = may_match(own, wanted)

    def filtered() -> None:
        roles.broker.match_all(sent, asked, where=may_match(own, wanted))

    every = timed(lambda: roles.broker.match_all(sent, asked))
    some = timed(filtered)
    table.row(
        type(matcher).__name__,
        passing.size,
        int(passing.sum()),
        passing.size / max(1, int(passing.sum())),
        every,
        some,
        every / some,
    )


def serve(table: Table, matcher: Any, interests: int, count: int) -> None:
    """Publish events one by one at a broker without masks, and at one with masks."""
    rng, schema = np.random.default_rng(3), matcher.schema
    contents, server = ContentFilter(schema, FilterKey.generate()), matcher.key_server()
    pairs = rng.permutation(32 * 32)[:interests].tolist()
    texts = [f"issue = 'issue {n // 32}' AND grade = {n % 32}" for n in pairs]
    records = {
        "issue": [f"issue {n}" for n in rng.integers(0, 32, count)],
        "grade": rng.integers(0, 32, count),
    }
    feed = matcher.publisher(server.publisher_key("feed"))
    alice = matcher.subscriber(server.subscriber_key("alice"))
    sent, asked = feed.encode(records), alice.encode(texts)
    own, wanted = contents.events(records), contents.interests(texts)
    took, found = [], []
    for layout in (None, contents.layout):
        broker = MatchingBroker(matcher.broker(server.broker_key()), masks=layout, quota=QUOTA)
        subscriptions = [
            ("alice", Subscription(f"s{n}", asked[n : n + 1], mask=layout and wanted[n].tobytes()))
            for n in range(interests)
        ]
        broker.subscribe_all(subscriptions)
        publications = [
            Publication(n, sent[n].tobytes(), b"", mask=layout and own[n].tobytes())
            for n in range(count)
        ]
        start = perf_counter()
        for publication in publications:
            broker.publish("feed", publication)
        took.append((perf_counter() - start) / count)
        found.append([(one.number, one.names) for one in broker.take("alice", count)])
    if found[0] != found[1]:
        raise ValueError("masks changed deliveries")
    all_ms, masked_ms = (1e3 * seconds for seconds in took)
    table.row(
        type(matcher).__name__,
        interests,
        float(may_match(own, wanted).sum() / count),
        all_ms,
        masked_ms,
        all_ms / masked_ms,
    )


def main() -> None:
    given = options(__doc__, quick="few events")
    warnings.simplefilter("ignore", BrokenSchemeWarning)
    every = quotes()
    count = 200 if given.quick else 5000
    events = every.take(np.random.default_rng(1).permutation(len(every))[:count])
    texts = bands(20 if given.quick else 200)
    columns = {"pairs": ",", "tested": ",", "times fewer": ".1f", "all, s": ".3f"}
    columns |= {"masked, s": ".3f", "times faster": ".2f"}
    table = Table("Encrypted tests", columns)
    compare(table, TagMatch(SCHEMA), events, texts)
    compare(table, AspeMatch(SCHEMA), events, texts)
    # A test is two pairings or more: few pairs, of two attributes with 32 values each.
    small = Schema(issue=Category([f"issue {n}" for n in range(32)]), grade=UInt(5))
    rng, count = np.random.default_rng(2), 10 if given.quick else 60
    records = {
        "issue": [f"issue {n}" for n in rng.integers(0, 32, count)],
        "grade": rng.integers(0, 32, count),
    }
    equal = [f"issue = 'issue {a}' AND grade = {b}" for a, b in rng.integers(0, 32, (20, 2))]
    equal[0] = f"issue = '{records['issue'][0]}' AND grade = {records['grade'][0]}"
    compare(table, InnerProductMatch(small), small.encode(records), equal)
    columns = {"interests": ",", "tested": ".1f", "all, ms": ".3f", "masked, ms": ".3f"}
    table = Table("A publication at a running broker", {**columns, "times faster": ".2f"})
    less = 10 if given.quick else 1
    serve(table, TagMatch(small), 1000 // less, 200 // less)
    serve(table, KeywordMatch(small), 1000 // less, 200 // less)
    serve(table, InnerProductMatch(small), 100 // less, 20 // less)


if __name__ == "__main__":
    one_core()
    main()
