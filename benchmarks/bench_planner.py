"""Do plans tell the seconds? Predicted seconds of each scheme against those of a whole load.

A plan measures a sample for some hundredths of a second (`Matcher.estimate`). Here the same roles
encode and match a load in full, a subscription after the other, and the ratio of predicted to
measured seconds of a processor is printed by role, for the first matcher that each scheme proposes.
Ratios from 0.5 to 2 are the goal. Roles that take less than a millisecond have none.

    python benchmarks/bench_planner.py [--quick]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import numpy as np
from report import Table, options
from timing import machine, one_thread
from tqdm import tqdm

from ccbps import Schema, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.matching import SCHEMES, Answers, Keying, Matcher
from ccbps.matching.contract.estimate import Seconds, random_events
from ccbps.matching.contract.matcher import making
from ccbps.matching.contract.parties import Party
from ccbps.predicates import Predicate

CASES = (
    (Schema(a=UInt(16), b=UInt(16), c=UInt(20)), "a = 5 AND b < 300 AND c > 1000"),
    (Schema(a=UInt(16)), "a = 5"),
)
MOST, LEAST = 30.0, 1e-3
"""Predicted seconds from which a load is left out, and measured ones up to which a ratio is."""


class Clock:
    """Seconds of a processor that calls have taken."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        start = process_time()
        out = call(*arguments, **options)
        self.seconds += process_time() - start
        return out


def matchers() -> Iterator[tuple[Matcher, Predicate]]:
    for schema, text in CASES:
        predicate = schema.parse(text)
        for scheme in SCHEMES:
            with making(again=True):
                proposed = next(iter(scheme.propose(schema, predicate)), None)
            if proposed is not None:
                yield proposed, predicate


def whole(matcher: Any, predicate: Predicate, events: int, count: int) -> Seconds:
    """Return the seconds of a whole load."""
    publisher, subscriber, broker = Clock(), Clock(), Clock()
    batch = random_events(matcher.schema, events)
    if matcher.keying is Keying.SESSION:
        batch = random_events(matcher.schema, events, predicate)
        feed, readers = matcher.new_publisher([predicate]), []
        for _ in range(count):
            reader = matcher.new_subscriber()
            feed.admit(reader.identity)
            reader.trust(feed.identity)
            answers = publisher(feed.answer, subscriber(reader.encode, [predicate]))
            subscriber(reader.accept, answers)
            readers.append(reader)
        sent = publisher(feed.encode, batch)
        for reader in readers:
            subscriber(reader.open, sent)
        return Seconds(publisher.seconds, subscriber.seconds, 0.0)
    party = Party(matcher)
    if matcher.keying is Keying.ROUNDS:
        shared = matcher.answers is Answers.ROUND
        sent = publisher(party.publisher.encode, batch, range(events)) if shared else None
        asked = []
        for number in range(count):
            rounds = range(events) if shared else range(number * events, (number + 1) * events)
            pairs = [f"subscription {number}"] * events if shared else None
            interests = subscriber(party.subscriber.encode, predicate, rounds, pairs=pairs)
            if shared:
                asked.append(interests)
            else:
                sent = publisher(party.publisher.encode, batch, rounds)
                broker(party.broker.match, sent, interests)
        if shared:
            stacked = np.stack(asked, axis=1)
            for row in range(events):
                broker(party.broker.match, sent[row : row + 1], stacked[row])
        return Seconds(publisher.seconds, subscriber.seconds, broker.seconds)
    column = DictionaryColumn([predicate] * count, np.arange(count, dtype=np.intp))
    sent = publisher(party.publisher.encode, batch)
    interests = subscriber(party.subscriber.encode, column)
    if matcher.keying is Keying.BROKERS:
        broker(party.broker.match_messages, sent, interests)
        return Seconds(publisher.seconds, subscriber.seconds, broker.seconds / 3)
    broker(party.broker.match_all, sent, broker(party.broker.prepare, interests))
    return Seconds(publisher.seconds, subscriber.seconds, broker.seconds)


def main() -> None:
    given = options(__doc__, quick="a fifth of the subscriptions")
    events, count = 2000, 50 if given.quick else 250
    print(machine())
    print(f"{events:,} events, {count:,} subscriptions\n")
    rows = []
    for matcher, predicate in tqdm([*matchers()], desc="matchers"):
        estimate = matcher.estimate(events=events, subscriptions=count, interest=predicate)
        predicted = estimate.seconds
        if predicted is None or predicted.total > MOST:
            continue
        rows.append(
            (repr(matcher).strip("<>"), predicted, whole(matcher, predicate, events, count))
        )
    heads = {"measured s": ".3f", "publisher": ".2f", "subscribers": ".2f", "broker": ".2f"}
    table = Table(
        "Predicted seconds by measured ones", heads | {"all": ".2f"}, head="matcher", width=58
    )
    for name, predicted, measured in rows:
        parts = [
            getattr(predicted, role) / spent if spent > LEAST else None
            for role in ("publisher", "subscriber", "broker", "total")
            for spent in (getattr(measured, role),)
        ]
        table.row(name, measured.total, *parts)


if __name__ == "__main__":
    one_thread()
    main()
