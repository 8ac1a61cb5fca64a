"""Candidates of a plan: matchers of all schemes and plain alternatives, with their costs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

from ccbps.attacks.inference import Placing
from ccbps.errors import ParameterError, PredicateError
from ccbps.leakage import WithClient
from ccbps.matching.contract.estimate import (
    BATCH,
    Rates,
    RoleName,
    Seconds,
    cores_of,
    measured_rates,
    random_events,
    rounds_of,
    seconds_of,
    work_of,
)
from ccbps.matching.contract.matcher import Matcher, making
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.matching.contract.traffic import Traffic
from ccbps.matching.schemes import SCHEMES
from ccbps.planner.leaks import Leak, leaks_of
from ccbps.planner.plain import PLAIN, Plain
from ccbps.predicates import Predicate, Schema

SECURITY: Final = ("broken", "computational", "perfect")
"""Kinds of security, the weakest first."""
_NEEDS: Final = {
    (Keying.ROUNDS, Answers.PAIRS): "a seed for each pair of publisher and subscriber",
    (Keying.ROUNDS, Answers.ROUND): "one seed for the publisher and all its subscribers",
    (Keying.SERVER, Answers.ALL): "a key server",
    (Keying.BROKERS, Answers.TOGETHER): "three brokers, no two of which work together",
    (Keying.SESSION, Answers.SUBSCRIBER): "a request of each subscriber, which the publisher "
    "answers",
}


@dataclass(frozen=True)
class Load:
    """The load that a plan is for.

    Attributes:
        events: number of events.
        subscriptions: number of subscriptions that each event meets.
        events_per_second: rate of the events; None to count no cores.
        topics: number of a publisher's topics; None for as many as there are subscriptions, or
            values.
    """

    events: int
    subscriptions: int
    events_per_second: float | None = None
    topics: int | None = None


@dataclass(frozen=True, eq=False)
class Candidate:
    """A matcher or a plain alternative, with its bytes and seconds for a load.

    Attributes:
        way: the matcher, or the plain alternative.
        name: name that no other candidate of the plan has.
        load: load of the plan.
        rates: seconds of each role for a unit of its work; None if they were not measured.
        refused: reasons for refusing the candidate; empty if it is not refused.
        placing: numbers of events after which answers give bounds away, whatever the matcher; None
            where the broker learns no answers or reads the data, or the predicate has no bounds.
    """

    way: Matcher | Plain
    name: str
    load: Load
    rates: Rates | None = None
    refused: tuple[str, ...] = ()
    placing: Placing | None = None

    def __repr__(self) -> str:
        return f"<Candidate {self.name}>"

    @property
    def matcher(self) -> Matcher | None:
        """The matcher; None for a plain alternative."""
        return self.way if isinstance(self.way, Matcher) else None

    @cached_property
    def traffic(self) -> Traffic:
        """Bytes by link."""
        return self.traffic_for(self.load.subscriptions)

    def traffic_for(self, subscriptions: int) -> Traffic:
        """Return the bytes by link for another number of subscriptions."""
        events, topics = self.load.events, self.load.topics
        if isinstance(self.way, Plain):
            return self.way.traffic(events, subscriptions)
        return self.way.traffic(events, subscriptions, topics=topics)

    @property
    def total_bytes(self) -> int:
        """Bytes on all links."""
        return self.traffic.total

    @cached_property
    def leaks(self) -> frozenset[Leak]:
        """Facts that parties learn."""
        return self.way.leaks if isinstance(self.way, Plain) else leaks_of(self.way.leakage)

    @property
    def learned(self) -> tuple[str, ...]:
        """Facts that the broker learns, in the words of the leakage card."""
        return self.way.learns if isinstance(self.way, Plain) else self.way.leakage.learns

    @property
    def hazards(self) -> tuple[str, ...]:
        """Circumstances in which the broker learns more, in the words of the leakage card."""
        return () if isinstance(self.way, Plain) else self.way.leakage.hazards

    @property
    def with_client(self) -> WithClient:
        """Upper bound on what broker and one client learn together: a key of `WITH_CLIENT`."""
        return self.way.with_client if isinstance(self.way, Plain) else self.way.leakage.with_client

    @property
    def placing_seconds(self) -> float | None:
        """Seconds of `placing` at the plan's rate of events; None if there is none."""
        if self.placing is None or not self.load.events_per_second:
            return None
        return self.placing.events / self.load.events_per_second

    @property
    def security(self) -> str:
        """Security: "perfect", "computational" or "broken"."""
        return "computational" if isinstance(self.way, Plain) else self.way.leakage.security

    @property
    def brokers(self) -> int:
        """Number of brokers."""
        three = isinstance(self.way, Matcher) and self.way.keying is Keying.BROKERS
        return 3 if three else 1

    @property
    def rounds(self) -> int:
        """Rounds of shared randomness that are used up; 0 where messages are reusable."""
        if isinstance(self.way, Plain):
            return 0
        return rounds_of(self.way, self.load.events, self.load.subscriptions)

    @property
    def needs(self) -> str:
        """Keys that the parties need, and rounds."""
        if isinstance(self.way, Plain):
            return self.way.needs
        rounds = f"; {self.rounds:,} rounds" if self.rounds else ""
        return _NEEDS[self.way.keying, self.way.answers] + rounds

    @property
    def seconds(self) -> Seconds | None:
        """Seconds of a processor by role, for all events; None if they were not measured."""
        if self.rates is None:
            return None
        return seconds_of(self.rates, self.load.events, self.load.subscriptions)

    @property
    def cores(self) -> Seconds | None:
        """Cores by role at the plan's rate of events; None if there is none."""
        return self.cores_for(self.load.subscriptions)

    def cores_for(self, subscriptions: int) -> Seconds | None:
        """Return the cores by role for another number of subscriptions."""
        if self.rates is None or self.load.events_per_second is None:
            return None
        return cores_of(self.rates, self.load.events_per_second, subscriptions)

    def to_dict(self) -> dict[str, Any]:
        """Convert the candidate to plain data for JSON."""
        matcher = self.matcher
        return {
            "name": self.name,
            "matcher": None if matcher is None else type(matcher).__name__,
            "parameters": None if matcher is None else matcher.parameters(),
            "fingerprint": None if matcher is None else matcher.fingerprint,
            "event_bytes": self.way.event_bytes,
            "interest_bytes": self.way.interest_bytes,
            "bytes": {
                "total": self.traffic.total,
                "publisher_to_broker": self.traffic.publisher,
                "subscribers_to_broker": self.traffic.subscriber,
                "between_brokers": self.traffic.brokers,
                "broker_to_subscribers": self.traffic.deliveries,
            },
            "seconds": _by_role(self.seconds),
            "cores": _by_role(self.cores),
            "rounds": self.rounds,
            "needs": self.needs,
            "brokers": self.brokers,
            "security": self.security,
            "leaks": sorted(leak.name for leak in self.leaks),
            "learned": list(self.learned),
            "with_client": self.with_client,
            "hazards": list(self.hazards),
            "from_answers": None
            if self.placing is None
            else {**asdict(self.placing), "seconds": self.placing_seconds},
            "refused": list(self.refused),
        }


def _by_role(seconds: Seconds | None) -> dict[str, float] | None:
    if seconds is None:
        return None
    return {
        "publisher": seconds.publisher,
        "subscriber": seconds.subscriber,
        "broker": seconds.broker,
    }


@dataclass(frozen=True)
class Refusal:
    """A scheme or a plain alternative that does not take the predicate.

    Attributes:
        name: name of the scheme or alternative.
        reason: the reason, in words.
    """

    name: str
    reason: str


def ways(schema: Schema, predicate: Predicate) -> Iterator[Matcher | Plain | Refusal]:
    """Yield the variants of all schemes and the plain alternatives, or a refusal for each without.

    Hazard: as for `Scheme.propose`.
    """
    for scheme in SCHEMES:
        # All of them first: a matcher that the caller makes between two of them must warn.
        with making(again=True):
            try:
                variants = list(scheme.variants(schema, predicate))
                reason = "" if variants else _reason(scheme, schema, predicate)
            except ImportError as error:  # of an extra
                variants, reason = [], str(error)
        yield from variants
        if reason:
            yield Refusal(scheme.__name__, reason)
    for plain in PLAIN:
        if predicate.unbound_names:
            names = ", ".join(predicate.unbound_names)
            yield Refusal(plain.name, f"private constants ({names}) need values: call bind first")
            continue
        way = plain(schema, predicate)
        refusal = way.refusal()
        yield way if refusal is None else Refusal(plain.name, refusal)


def _reason(scheme: type[Matcher], schema: Schema, predicate: Predicate) -> str:
    """Return why a scheme proposes nothing for a predicate."""
    try:
        scheme(schema).prepare(predicate)
    except PredicateError as error:
        return error.summary.splitlines()[0]
    except (ParameterError, TypeError) as error:  # its constructor needs more than a schema
        if "pip install" in str(error):  # or an extra
            return str(error)
    operators = ", ".join(getattr(scheme, "operators", ()))
    hint = f"; operators: {operators}" if operators else ""
    return f"has no matcher of reasonable size for this predicate{hint}"


def names_of(found: Sequence[Matcher | Plain]) -> list[str]:
    """Return a unique name for each: parameters tell apart those of one repr."""
    shown = [way.name if isinstance(way, Plain) else repr(way).strip("<>") for way in found]
    alike: dict[str, list[int]] = {}
    for place, name in enumerate(shown):
        alike.setdefault(name, []).append(place)
    for places in alike.values():
        group = [way.parameters() for place in places if isinstance(way := found[place], Matcher)]
        for place, parameters in zip(places, group, strict=False):  # plain ones have other names
            shown[place] += "".join(f" {key}={_short(parameters[key])}" for key in _telling(group))
    return shown


def _telling(group: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return names of parameters that tell some matchers apart, none of them redundant."""
    keys = [key for key in group[0] if len({json.dumps(each[key]) for each in group}) > 1]
    for key in keys.copy():
        fewer = [other for other in keys if other != key]
        if len({json.dumps([each[other] for other in fewer]) for each in group}) == len(group):
            keys = fewer
    return keys


def _short(value: Any) -> str:
    """Return a parameter as JSON; a mapping of equal values as the value."""
    if isinstance(value, dict) and len({json.dumps(each) for each in value.values()}) == 1:
        value = next(iter(value.values()))
    return json.dumps(value)


def interest_of(matcher: Matcher, predicate: Predicate) -> Any:
    """Return the interest of a matcher that means a predicate with all its constants."""
    if matcher.private_names is None:
        return predicate
    values = predicate.bound_values
    return {name: values[name] for name in matcher.private_names}


def rates_of(way: Matcher | Plain, predicate: Predicate, load: Load) -> Rates:
    """Run all roles on a sample."""
    if isinstance(way, Matcher):
        interest = interest_of(way, predicate)
        return measured_rates(way, interest, load.subscriptions, load.topics or 1)

    def encodes(count: int) -> Any:
        batch = random_events(way.schema, count)
        return lambda: way.encode(batch)

    def matches(count: int) -> Any:
        sent = way.encode(random_events(way.schema, count))
        return lambda: way.answers(sent)

    party: RoleName = "subscriber" if way.traffic(1, 1).deliveries else "broker"
    encoding, matching = work_of(encodes, BATCH), work_of(matches, BATCH)
    return {
        ("publisher", "events"): encoding.call,
        ("publisher", "event"): encoding.unit,
        (party, "pairs"): matching.call,
        (party, "pair"): matching.unit,
    }
