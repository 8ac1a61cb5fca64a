"""Estimates of a matcher: bytes by counting, and seconds by running all of its roles on a sample.

Bytes are exact. Seconds are those that a sample takes on this machine: random events, and one
subscription again and again. They are seconds of a processor, as the operating system counts them
for this process, so that other processes matter little. The sample grows until it takes some
milliseconds, and far longer than one row does. So the fixed time of a call, which counts once for
each batch, is told apart from the time of each row. For each size, the median of its runs counts.
Counting `Cost` operations and pricing them does not suffice: most of a batch's time goes to memory
and to calls of NumPy.

Events meet interests in batches of `BATCH` here. A role that encodes a message at a time takes
longer. Work that a role does once for a key is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import process_time
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from ccbps.compiled import as_in_long_work
from ccbps.dictionary import DictionaryColumn
from ccbps.matching.contract.parties import Party
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.matching.contract.traffic import Traffic
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.codes import pack

RoleName = Literal["publisher", "subscriber", "broker"]
Unit = Literal["event", "interest", "pair", "events", "interests", "pairs"]
"""A unit of work; the plural is a call for a batch of them."""
Rates = Mapping[tuple[RoleName, Unit], float]
"""Seconds of a role for each unit of its work."""

ENOUGH: Final = 0.004
"""Seconds of a sample that is large enough."""
RISE: Final = 8
"""Ratio of the time of a sample that is large enough to that of a single row."""
HEAVY: Final = 0.2
"""Seconds of a sample from which it is large enough, and is run twice only."""
BATCH: Final = 1 << 13
"""Number of rows of a batch, and the greatest of a sample."""
TABLE: Final = 1 << 10
"""Greatest number of interests that the events of a sample meet."""
LANES: Final = 1 << 8
"""Greatest number of interests that three brokers hold in a sample."""
PREPARING: Final = 0.1
"""Seconds, about, to encode the interests that the events of a sample meet. With few interests, a
small error in the time of an event becomes a large one in that of a pair."""
RUNS: Final = 3
"""Runs of a sample, of which the middle one counts."""
REQUESTS: Final = 4
"""Requests of a sample, where there are sessions."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds, or processor cores, of each role.

    Example:
        >>> from ccbps.matching import Seconds
        >>> Seconds(publisher=2.0, subscriber=1.0, broker=0.5).total
        3.5

    Attributes:
        publisher: seconds of the publisher.
        subscriber: seconds of all subscribers together.
        broker: seconds of the broker, or of each one of several.
    """

    publisher: float
    subscriber: float
    broker: float

    @property
    def total(self) -> float:
        """Sum over the roles."""
        return self.publisher + self.subscriber + self.broker


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes and seconds of a matcher, for a number of events and subscriptions.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import Estimate, TagMatch
        >>> estimate = TagMatch(Schema(price=UInt(8))).estimate(
        ...     events=1000, subscriptions=10, interest="price < 5"
        ... )
        >>> isinstance(estimate, Estimate), estimate.rounds, estimate.seconds.total > 0
        (True, 0, True)

    Attributes:
        traffic: bytes by link.
        seconds: seconds of a processor by role; None if no interest was given to try.
        rounds: rounds that are used up; 0 where messages are reusable.
    """

    traffic: Traffic
    seconds: Seconds | None
    rounds: int


def rounds_of(matcher: Any, events: int, subscriptions: int) -> int:
    """Return the rounds that are used up, 0 where messages are reusable."""
    if matcher.keying is not Keying.ROUNDS:
        return 0
    return events if matcher.answers is Answers.ROUND else events * subscriptions


def seconds_of(rates: Rates, events: int, subscriptions: int) -> Seconds:
    """Return the seconds of all work."""
    # A part of a batch counts as a part, as events of a stream do.
    batches = max(1.0, events / BATCH)
    counts: dict[str, float] = {
        "interest": subscriptions,
        "interests": max(1.0, subscriptions / BATCH),
    }
    return _summed(rates, counts | _repeated(events, batches, subscriptions))


def cores_of(rates: Rates, events_per_second: float, subscriptions: int) -> Seconds:
    """Return the cores that are busy while events come; work that is done once does not count."""
    return _summed(rates, _repeated(events_per_second, events_per_second / BATCH, subscriptions))


def _repeated(events: float, batches: float, subscriptions: int) -> dict[str, float]:
    """Return the counts of the work that events cause, by unit of work."""
    return {
        "event": events,
        "events": batches,
        "pair": events * subscriptions,
        "pairs": batches * subscriptions,
    }


def _summed(rates: Rates, counts: Mapping[str, float]) -> Seconds:
    sums = dict.fromkeys(("publisher", "subscriber", "broker"), 0.0)
    for (role, unit), seconds in rates.items():
        sums[role] += seconds * counts.get(unit, 0)
    return Seconds(**sums)


def measured_rates(matcher: Any, interest: Any, subscriptions: int, topics: int = 1) -> Rates:
    """Run all roles of a matcher on a sample.

    Args:
        matcher: the matcher.
        interest: an interest that it takes.
        subscriptions: number of subscriptions that each event meets.
        topics: number of a publisher's topics, where the matcher has sessions.
    """
    with as_in_long_work():
        if matcher.keying is Keying.SESSION:
            return _session_rates(matcher, interest, topics)
        party, sample = Party(matcher), _Sample(matcher.schema, interest)
        measure = _round_rates if matcher.keying is Keying.ROUNDS else _reusable_rates
        return measure(matcher, party, sample, subscriptions)


def random_events(
    schema: Schema, count: int, inside: Predicate | None = None, *, seed: int | None = None
) -> Events:
    """Return events of random values, or of the least values that a box allows.

    Args:
        schema: attributes of the events.
        count: number of events.
        inside: predicate whose box has the least values; None for random values.
        seed: seed of the values; None for the number of events.
    """
    rng, codes = np.random.default_rng(count if seed is None else seed), {}
    ranges = None if inside is None else inside.box().ranges
    for name in schema:
        kind = schema[name]
        if ranges is not None:
            drawn = pack([ranges[name][0]], kind.limbs)
            codes[name] = np.repeat(drawn, count, axis=1)
        elif kind.bits < 64:
            codes[name] = rng.integers(0, kind.size, count, dtype=np.uint64)[None]
        else:
            octets = -(-kind.bits // 8)
            few = [int.from_bytes(rng.bytes(octets)) % kind.size for _ in range(min(count, 64))]
            codes[name] = pack((few * -(-count // 64))[:count], kind.limbs)
    return Events(schema, count, codes)


class _Sample:
    """Events and interests of a sample."""

    def __init__(self, schema: Schema, interest: Any) -> None:
        self._schema, self._interest = schema, interest

    def events(self, count: int) -> Events:
        return random_events(self._schema, count)

    def again(self, count: int) -> DictionaryColumn[Any]:
        """Return one subscription in many rounds."""
        return DictionaryColumn([self._interest], np.zeros(count, dtype=np.intp))

    def different(self, count: int) -> DictionaryColumn[Any]:
        """Return subscriptions that are prepared and encoded each by itself."""
        return DictionaryColumn([self._interest] * count, np.arange(count, dtype=np.intp))


def _clocked(call: Callable[[], object]) -> float:
    start = process_time()
    call()
    return process_time() - start


class Work(NamedTuple):
    """Seconds of work.

    Attributes:
        call: seconds of a call, however many units it has.
        unit: seconds of each unit.
    """

    call: float
    unit: float


def work_of(prepare: Callable[[int], Callable[[], object]], most: int) -> Work:
    """Measure work on samples of one unit and of many.

    Args:
        prepare: ``prepare(n)`` prepares n units, and returns the call to time.
        most: greatest number of units.
    """
    least = taken = _middle(prepare, 1)
    count = 1
    while count < most and taken < HEAVY and taken < max(ENOUGH, RISE * least):
        count = min(most, count * (16 if taken < ENOUGH / 32 else 4))
        taken = _middle(prepare, count)
    if count == 1:
        return Work(0.0, least)
    unit = max(0.0, taken - least) / (count - 1)
    return Work(max(0.0, least - unit), unit)


def _middle(prepare: Callable[[int], Callable[[], object]], count: int) -> float:
    """Return the seconds of the middle one of some runs; of two, those of the faster one."""
    # Never of one: compiling, and whatever else is done once, is no part of the work.
    runs = [_clocked(prepare(count)) for _ in range(2)]
    if min(runs) < HEAVY:
        runs += [_clocked(prepare(count)) for _ in range(RUNS - 2)]
    return sorted(runs)[(len(runs) - 1) // 2]


def _round_rates(matcher: Any, party: Party, sample: _Sample, subscriptions: int) -> Rates:
    """Return the rates of a matcher whose broker answers pairs, or all interests of a round."""
    shared = matcher.answers is Answers.ROUND
    group = min(subscriptions, TABLE) if shared else 1
    labels = [f"subscription {number}" for number in range(group)]

    def events(count: int) -> Callable[[], object]:
        batch, rounds = sample.events(count), party.rounds(count)
        return lambda: party.publisher.encode(batch, rounds)

    def interests(count: int) -> Callable[[], object]:
        column, rounds = sample.again(count), party.rounds(count)
        return lambda: party.subscriber.encode(column, rounds)

    def matches(count: int) -> Callable[[], object]:
        rounds = party.rounds(count)
        sent = party.publisher.encode(sample.events(count), rounds)
        column, pairs = sample.again(count * group), labels * count if group > 1 else None
        repeated = [number for number in rounds for _ in range(group)]
        asked = party.subscriber.encode(column, repeated, pairs=pairs)
        if not shared:
            return lambda: party.broker.match(sent, asked)

        def each() -> None:
            for row in range(count):
                party.broker.match(sent[row : row + 1], asked[row * group : (row + 1) * group])

        return each

    publisher, subscriber = work_of(events, BATCH), work_of(interests, BATCH)
    broker = work_of(matches, -(-BATCH // group))
    rates: dict[tuple[RoleName, Unit], float] = {
        ("subscriber", "pairs"): subscriber.call,
        ("subscriber", "pair"): subscriber.unit,
    }
    if shared:  # a call for each event
        return rates | {
            ("publisher", "events"): publisher.call,
            ("publisher", "event"): publisher.unit,
            ("broker", "pair"): broker.unit / group,
        }
    return rates | {
        ("publisher", "pairs"): publisher.call,
        ("publisher", "pair"): publisher.unit,
        ("broker", "pairs"): broker.call,
        ("broker", "pair"): broker.unit,
    }


def _reusable_rates(matcher: Any, party: Party, sample: _Sample, subscriptions: int) -> Rates:
    """Return the rates of a matcher whose messages meet all messages of the other side."""
    together = matcher.keying is Keying.BROKERS
    brokers = 3 if together else 1

    def events(count: int) -> Callable[[], object]:
        batch = sample.events(count)
        return lambda: party.publisher.encode(batch)

    def interests(count: int) -> Callable[[], object]:
        column = sample.different(count)
        return lambda: party.subscriber.encode(column)

    publisher, subscriber = work_of(events, BATCH), work_of(interests, TABLE)
    rates: dict[tuple[RoleName, Unit], float] = {
        ("publisher", "events"): publisher.call,
        ("publisher", "event"): publisher.unit,
        ("subscriber", "interests"): subscriber.call,
        ("subscriber", "interest"): subscriber.unit,
    }
    most = min(subscriptions, LANES if together else TABLE)
    # At least two, where there are two: the time of a pair is the difference to that of one.
    large = max(min(2, most), min(most, int(PREPARING / max(subscriber.unit, 1e-9))))
    kept = {size: party.subscriber.encode(sample.different(size)) for size in {large, 1}}

    def meets(table: Any, match: Callable[..., object]) -> Callable[[int], Callable[[], object]]:
        def prepare(count: int) -> Callable[[], object]:
            sent = party.publisher.encode(sample.events(count))
            return lambda: match(sent, table)

        return prepare

    if together:
        broker = work_of(meets(kept[large], party.broker.match_messages), BATCH)
        # Connections, and the interests, are the same for any number of events.
        return rates | {
            ("broker", "interest"): broker.call / (large * brokers),
            ("broker", "pair"): broker.unit / (large * brokers),
        }

    def prepares(count: int) -> Callable[[], object]:
        table = kept[large][:count]
        return lambda: party.broker.prepare(table)

    prepared, work = work_of(prepares, large), {}
    for size, sent in kept.items():
        each = meets(party.broker.prepare(sent), party.broker.match_all)
        work[size] = work_of(each, BATCH)
    pair = max(0.0, work[large].unit - work[1].unit) / (large - 1) if large > 1 else 0.0
    return rates | {
        ("broker", "interests"): prepared.call,
        ("broker", "interest"): prepared.unit,
        ("broker", "events"): work[large].call,
        ("broker", "event"): max(0.0, work[large].unit - large * pair),
        ("broker", "pair"): pair,
    }


def _session_rates(matcher: Any, interest: Predicate, topics: int) -> Rates:
    """Return the rates of a matcher whose parties talk first."""
    publisher, subscriber = matcher.new_publisher([interest]), matcher.new_subscriber()
    publisher.admit(subscriber.identity)
    subscriber.trust(publisher.identity)
    asking = work_of(lambda count: lambda: subscriber.encode([interest] * count), REQUESTS)
    requests = subscriber.encode([interest] * REQUESTS)
    start = process_time()
    sessions = publisher.answer(requests)
    answering = process_time() - start
    accepting = _clocked(lambda: subscriber.accept(sessions))
    sent = [publisher.encode(random_events(matcher.schema, BATCH // 16, interest))]

    def events(count: int) -> Callable[[], object]:
        batch = random_events(matcher.schema, count, interest)
        return lambda: publisher.encode(batch)

    def opens(count: int) -> Callable[[], object]:
        batch = sent[0][:count]
        return lambda: subscriber.open(batch)

    encoding, opening = work_of(events, BATCH // 16), work_of(opens, BATCH // 16)
    return {
        ("publisher", "interest"): answering / REQUESTS * topics,
        ("publisher", "events"): encoding.call,
        ("publisher", "pair"): encoding.unit / REQUESTS,
        ("subscriber", "interest"): sum(asking) + accepting / REQUESTS * topics,
        ("subscriber", "pairs"): opening.call,
        ("subscriber", "pair"): opening.unit / REQUESTS,
    }
