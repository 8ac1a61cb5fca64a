"""Do plans tell the seconds? Predicted seconds of each scheme against those of a whole load.

A plan measures a sample for some hundredths of a second (`Matcher.estimate`). Here the same roles
encode and match a load in full, a subscription after the other, and the ratio of predicted to
measured seconds of a processor is printed by role, for the first matcher that each scheme proposes.
A load keeps the scheme busy for some tenths of a second. It is done three times, and the median of
each role counts. Tables that a publisher makes once for its key are part of neither plan nor load.
Ratios from 0.5 to 2 are the goal, for every role that takes a twentieth of the seconds or more.
Roles that take less than a millisecond have no ratio.

    python benchmarks/bench_planner.py [--quick]
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from report import Table, options
from timing import machine, one_thread
from tqdm import tqdm

from ccbps import Schema, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.matching import SCHEMES, Answers, Keying, Matcher
from ccbps.matching.contract.estimate import (
    Seconds,
    measured_rates,
    random_events,
    seconds_of,
)
from ccbps.matching.contract.matcher import making
from ccbps.matching.contract.parties import Party
from ccbps.predicates import Predicate

CASES = (
    (Schema(a=UInt(16), b=UInt(16), c=UInt(20)), "a = 5 AND b < 300 AND c > 1000"),
    (Schema(a=UInt(16)), "a = 5"),
)
EVENTS, SUBSCRIPTIONS = 64, 8
"""The smallest load; others have 2, 4, 8, ... times as many of both."""
MOST_PAIRS = 1 << 25
"""Pairs of the largest load."""
LEAST = 1e-3
"""Measured seconds up to which a role has no ratio."""
RUNS = 3
"""Runs of a load."""
SHARE = 0.05
"""Share of the measured seconds from which a role's ratio must be within a factor of 2."""
ROLES = ("publisher", "subscriber", "broker")


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
    # Tables that a role makes for its key are in no plan: they are made before.
    party.publisher.encode(batch)
    sent = publisher(party.publisher.encode, batch)
    interests = subscriber(party.subscriber.encode, column)
    if matcher.keying is Keying.BROKERS:
        broker(party.broker.match_messages, sent, interests)
        return Seconds(publisher.seconds, subscriber.seconds, broker.seconds / 3)
    broker(party.broker.match_all, sent, broker(party.broker.prepare, interests))
    return Seconds(publisher.seconds, subscriber.seconds, broker.seconds)


def load_of(matcher: Matcher, predicate: Predicate, least: float) -> tuple[int, int]:
    """Return events and subscriptions that keep all roles busy together for so many seconds."""
    rates, factor = measured_rates(matcher, predicate, 32 * SUBSCRIPTIONS), 1
    while True:
        events, count = factor * EVENTS, factor * SUBSCRIPTIONS
        if seconds_of(rates, events, count).total >= least or events * count >= MOST_PAIRS:
            return events, count
        factor *= 2


def measured_seconds(matcher: Matcher, predicate: Predicate, events: int, count: int) -> Seconds:
    """Return the seconds of the middle one of some runs, by role."""
    # What earlier schemes left in memory is not to be searched for garbage again and again.
    gc.collect()
    gc.freeze()
    runs = [whole(matcher, predicate, events, count) for _ in range(RUNS)]
    return Seconds(*(median(getattr(each, role) for each in runs) for role in ROLES))


def main() -> None:
    given = options(__doc__, quick="loads of a tenth of that size")
    print(machine())
    rows = []
    for matcher, predicate in tqdm([*matchers()], desc="matchers"):
        events, count = load_of(matcher, predicate, 0.03 if given.quick else 0.3)
        estimate = matcher.estimate(events=events, subscriptions=count, interest=predicate)
        predicted = estimate.seconds
        assert predicted is not None
        measured = measured_seconds(matcher, predicate, events, count)
        rows.append((repr(matcher).strip("<>"), events, count, predicted, measured))
    heads = {"events": ",", "subscriptions": ",", "measured s": ".3f"}
    heads |= dict.fromkeys(("publisher", "subscribers", "broker", "all"), ".2f")
    table = Table("Predicted seconds by measured ones", heads, head="matcher", width=50)
    totals, counted = [], []
    for name, events, count, predicted, measured in rows:
        ratios: list[float | None] = []
        for role in ROLES:
            spent = getattr(measured, role)
            ratio = getattr(predicted, role) / spent if spent > LEAST else None
            ratios.append(ratio)
            if ratio is not None and spent >= SHARE * measured.total:
                counted.append((ratio, f"{role}, {name}"))
        total = predicted.total / measured.total
        totals.append((total, name))
        table.row(name, events, count, measured.total, *ratios, total)
    heads = {"least": ".2f", "greatest": ".2f", "farthest from 1: its role and its matcher": ""}
    table = Table("Range of the ratios", heads, width=46)
    for name, ratios_of in (
        ("all roles together", totals),
        ("a role of a twentieth of the seconds or more", counted),
    ):
        worst = max(ratios_of, key=lambda entry: max(entry[0], 1 / entry[0]))
        table.row(name, min(ratios_of)[0], max(ratios_of)[0], worst[1])


if __name__ == "__main__":
    one_thread()
    main()
