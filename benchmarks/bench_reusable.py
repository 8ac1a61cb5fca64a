"""What do the reusable matchers cost, beside what a user would take today? Microseconds, one core.

First every matcher over the same workload: encryption of an event and of an interest, what the
broker computes once for an interest, and a pair. Then, each in one run, the primitives beside
their peers (PyPI packages of the `bench` extra; a missing one is skipped with a word), and the
experiment of [N1] Table 2: one event against 1, 5, 10, 15 and 20 subscriptions, without filters.

    python benchmarks/bench_reusable.py [--json docs/reusable.json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timing import machine, one_core, seconds

one_core()

import numpy as np

from ccbps import Category, Schema, SharedSeed, UInt, matching
from ccbps.matching import Matcher
from ccbps.matching.reusable import ReusableMatcher

ISSUES = ["AAPL", "FB", "GOOG", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(ISSUES), price=UInt(12), day=UInt(8))
TOPIC = Schema(issue=Category(ISSUES), day=UInt(8))


def boxes(count: int) -> list[str]:
    """Conjunctions of an equality and two intervals."""
    rng = np.random.default_rng(1)
    return [
        f"issue = '{rng.choice(ISSUES)}' AND price < {rng.integers(100, 4096)} AND day >= {d}"
        for d in rng.integers(0, 256, count)
    ]


def topics(count: int) -> list[str]:
    """An equality on every attribute."""
    rng = np.random.default_rng(2)
    return [f"issue = '{rng.choice(ISSUES)}' AND day = {d}" for d in rng.integers(0, 256, count)]


@dataclass
class Case:
    """A matcher, how many events and interests it is measured with, and what they are."""

    make: Callable[[], ReusableMatcher]
    events: int
    interests: int
    predicates: Callable[[int], list[str]] = boxes


CASES: dict[str, Case] = {
    "MaskedTopicMatch": Case(lambda: matching.MaskedTopicMatch(TOPIC), 5000, 500, topics),
    "AdditiveMaskMatch": Case(lambda: matching.AdditiveMaskMatch(SCHEMA), 5000, 500),
}


ONE_TIME: dict[str, Callable[[], Matcher]] = {
    "BranchingMatch.box": lambda: matching.BranchingMatch.box(SCHEMA),
    "OFSGPMatch": lambda: matching.OFSGPMatch(SCHEMA, 4),
}
"""One-time matchers for comparison: an event and an interest message for every pair."""


def records(schema: Schema, count: int) -> dict[str, Any]:
    """Random events as columns."""
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {}
    for name in schema:
        if name == "issue":
            columns[name] = rng.choice(ISSUES, count).tolist()
        else:
            columns[name] = rng.integers(0, 1 << schema[name].bits, count)
    return columns


def measure(name: str, case: Case) -> dict[str, Any]:
    """One row: bytes, and microseconds for an event, an interest and a pair."""
    matcher = case.make()
    server = matcher.key_server()
    publisher = matcher.publisher(server.publisher_key())
    subscriber = matcher.subscriber(server.subscriber_key("alice"))
    broker = matcher.broker(server.broker_key())
    events = matcher.schema.encode(records(matcher.schema, case.events))
    texts = case.predicates(case.interests)
    parsed = [matcher.schema.parse(text) for text in texts]
    sent, kept = publisher.encode(events), subscriber.encode(parsed)
    table = broker.prepare(kept)
    answers = broker.match_all(sent, table)
    wanted = np.array([predicate.evaluate(events) for predicate in parsed]).T
    wrong = int((answers != wanted).sum())
    took = seconds(
        {
            "event": lambda: publisher.encode(events),
            "interest": lambda: subscriber.encode(parsed),
            "prepare": lambda: broker.prepare(kept),
            "pair": lambda: broker.match_all(sent, table),
        },
        rounds=3,
    )
    return {
        "matcher": name,
        "event bytes": matcher.event_bytes,
        "interest bytes": matcher.interest_bytes,
        "event": took["event"] / case.events * 1e6,
        "interest": took["interest"] / case.interests * 1e6,
        "prepare": took["prepare"] / case.interests * 1e6,
        "pair": took["pair"] / (case.events * case.interests) * 1e6,
        "different": wrong / answers.size,
    }


def measure_one_time(name: str, matcher: Matcher, count: int = 20_000) -> dict[str, Any]:
    """As `measure`; all figures are for a pair, since messages are."""
    if matcher.event_bytes > 1000:
        count = 2000
    seed = SharedSeed.generate()
    events = matcher.schema.encode(records(matcher.schema, count))
    predicate = matcher.schema.parse("price < 2048")
    rounds = np.arange(count)
    sent = matcher.publisher(seed).encode(events, rounds)
    kept = matcher.subscriber(seed).encode(predicate, rounds)
    broker = matcher.broker()
    wrong = int((broker.match(sent, kept) != predicate.evaluate(events)).sum())
    took = seconds(
        {
            "event": lambda: matcher.publisher(seed).encode(events, rounds),
            "interest": lambda: matcher.subscriber(seed).encode(predicate, rounds),
            "pair": lambda: broker.match(sent, kept),
        },
        rounds=3,
    )
    return {
        "matcher": name,
        "event bytes": matcher.event_bytes,
        "interest bytes": matcher.interest_bytes,
        **{what: spent / count * 1e6 for what, spent in took.items()},
        "prepare": 0.0,
        "different": wrong / count,
    }


def workload() -> list[dict[str, Any]]:
    """All matchers over the same kind of workload."""
    print(f"{'':<25}{'bytes':>14}{'us an':>12}{'us an':>12}{'us once an':>12}{'us a':>11}")
    print(
        f"{'matcher':<25}{'event':>7}{'inter.':>7}{'event':>12}{'interest':>12}"
        f"{'interest':>12}{'pair':>11}  differs"
    )
    rows = []
    for name in (*CASES, *ONE_TIME):
        one_time = name in ONE_TIME
        row = measure_one_time(name, ONE_TIME[name]()) if one_time else measure(name, CASES[name])
        rows.append(row)
        print(
            f"{name:<25}{row['event bytes']:>7}{row['interest bytes']:>7}{row['event']:>12.2f}"
            f"{row['interest']:>12.2f}{row['prepare']:>12.2f}{row['pair']:>11.4f}"
            f"{row['different']:>9.2%}"
        )
    return rows


def samples() -> dict[str, Matcher | ReusableMatcher]:
    """The matchers that are measured, by name."""
    made: dict[str, Matcher | ReusableMatcher] = {n: case.make() for n, case in CASES.items()}
    return made | {name: make() for name, make in ONE_TIME.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="where to write the figures, for the documentation")
    options = parser.parse_args()
    print(machine())
    rows = workload()
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
