"""Plans: costs and leaks of every matcher for a load, in the order in which to consider them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Final

from ccbps.attacks.inference import placing
from ccbps.checks import choice, instance, number, text, whole
from ccbps.errors import ParameterError
from ccbps.leakage import Protects
from ccbps.matching.contract.estimate import Rates
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.schemes import SCHEMES
from ccbps.planner.candidates import (
    SECURITY,
    Candidate,
    Load,
    Refusal,
    names_of,
    rates_of,
    ways,
)
from ccbps.planner.leaks import DATA, Leak, fronts, read_leaks
from ccbps.planner.tables import explanation, figure
from ccbps.planner.timings import Timings, rates_name
from ccbps.predicates import Predicate, Schema

TIMING: Final = 2.0
"""Seconds for measuring candidates that were not measured before."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Candidates for a predicate and a load; made by `ccbps.plan`.

    Attributes:
        predicate: the predicate.
        load: numbers of events and subscriptions.
        candidates: candidates that meet all conditions, ordered by leaks (strictly fewer first),
            then by bytes, then by seconds.
        refused: candidates that take the predicate, but break a condition of the plan.
        others: schemes and plain alternatives that do not take the predicate.
    """

    predicate: Predicate
    load: Load
    candidates: tuple[Candidate, ...]
    refused: tuple[Candidate, ...]
    others: tuple[Refusal, ...]

    def __repr__(self) -> str:
        return f"<Plan: {len(self.candidates)} candidates, {len(self.refused)} refused>"

    @property
    def matchers(self) -> tuple[Matcher, ...]:
        """Matchers of the candidates, in order."""
        return tuple(each.matcher for each in self.candidates if each.matcher is not None)

    def best(self, scheme: str | None = None) -> Matcher:
        """Return the first matcher, ready to use.

        Args:
            scheme: name of a class, such as "FormulaMatch", for the first one of that scheme.

        Raises:
            ParameterError: every matcher is refused; says why.
        """
        known = [kind.__name__ for kind in SCHEMES]
        if scheme is not None:
            choice("scheme", scheme, known)
        for matcher in self.matchers:
            if scheme in (None, type(matcher).__name__):
                return matcher
        reasons = {
            f"{type(each.matcher).__name__}: {each.refused[0]}"
            for each in self.refused
            if each.matcher is not None and scheme in (None, type(each.matcher).__name__)
        }
        reasons |= {
            f"{other.name}: {other.reason}"
            for other in self.others
            if scheme == other.name or (scheme is None and not reasons)
        }
        raise ParameterError(
            "no matcher meets all conditions: " + "; ".join(sorted(reasons)) + ". "
            "Let the plan show more (hide=, allow_leaks=), or give it more bytes or brokers"
        )

    def explain(self, *, every: bool = False) -> str:
        """Return the plan as a table.

        Args:
            every: True for all candidates; by default, only the first of those of one scheme that
                show the same.
        """
        return explanation(self.load, self.candidates, self.refused, self.others, every=every)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw bytes and, if the plan has a rate of events, cores over subscriptions.

        Args:
            path: file for the picture; None to draw it only.

        Returns:
            the figure of matplotlib, which the extra ``plot`` installs.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return figure(self.load, self.candidates, path)

    def to_dict(self) -> dict[str, Any]:
        """Convert the plan to plain data for JSON.

        It holds no private constants. Templates are public, with the constants in their text.
        """
        return {
            "events": self.load.events,
            "subscriptions": self.load.subscriptions,
            "events_per_second": self.load.events_per_second,
            "candidates": [each.to_dict() for each in self.candidates],
            "refused": [each.to_dict() for each in self.refused],
            "others": [{"name": each.name, "reason": each.reason} for each in self.others],
        }


def plan(
    schema: Schema,
    predicate: Predicate | str,
    *,
    events: int,
    subscriptions: int,
    events_per_second: float | None = None,
    topics: int | None = None,
    hide: Collection[str | Protects] = (),
    allow_leaks: Collection[str | Protects] | None = None,
    security: str = "computational",
    brokers: int = 1,
    budget_bytes: int | None = None,
    timing: float = TIMING,
    timings: str | os.PathLike[str] | None = None,
) -> Plan:
    """Compare all matchers, and plain alternatives, for a predicate and a load.

    Bytes are exact: those of the messages that roles encode. Seconds are measured on this machine,
    for some candidates in each call, and kept in the user's cache folder.

    Hazard: matchers are public, and the parameters of some depend on the predicate. Give a
    predicate of the form that you expect, with constants that may be public.

    Example:
        >>> import ccbps
        >>> from ccbps import Schema, UInt
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> plan = ccbps.plan(
        ...     schema, "price < 120 AND volume > 5", events=1000, subscriptions=20,
        ...     hide={"constants", "attributes"}, allow_leaks={"match", "formula"}, timing=0,
        ... )
        >>> plan.best()
        <FormulaMatch box over price, volume>
        >>> plan.candidates[0].total_bytes
        1920000

    Args:
        schema: the events' attributes.
        predicate: SQL text or a predicate. Give a template's private constants values by `bind` to
            measure seconds, and to consider matchers without a template.
        events: number of events.
        subscriptions: number of subscriptions that each event meets.
        events_per_second: rate of the events, for the cores that are needed.
        topics: number of topics of a publisher; by default as many as there are subscriptions, or
            values of a topic if these are fewer.
        hide: facts that the broker may not learn: "event", "constants", "attributes", "formula",
            "match", "equality_of_events", "equality_of_interests", as in
            `ccbps.leakage.Protects`; with "subscribers:" in front, facts that subscribers may not
            learn where an event does not match their interests.
        allow_leaks: facts that may be learned, and do not count in the order; all others must stay
            hidden from the broker and from subscribers. None to allow all facts but those of
            `hide`; then all of them count in the order.
        security: weakest security allowed: "perfect", "computational" or "broken".
        brokers: number of independent brokers, 1 or 3.
        budget_bytes: greatest number of bytes on all links; None for no limit.
        timing: seconds for measuring candidates; 0 to use earlier measurements only.
        timings: folder of the measured seconds; None for the user's cache folder.

    Raises:
        ParameterError: an argument is not possible, or the folder cannot be used.
        PredicateError: the predicate does not parse.
    """
    instance("schema", schema, Schema)
    if not isinstance(predicate, Predicate):
        predicate = schema.parse(text("predicate", predicate))
    if predicate.schema != schema:
        raise ParameterError("the predicate was parsed for another schema")
    load = Load(
        whole("events", events, 1),
        whole("subscriptions", subscriptions, 1),
        None if events_per_second is None else number("events_per_second", events_per_second, 0),
        None if topics is None else whole("topics", topics, 1),
    )
    conditions = _Conditions(
        read_leaks("hide", hide),
        None if allow_leaks is None else read_leaks("allow_leaks", allow_leaks),
        choice("security", security, SECURITY),
        choice("brokers", brokers, (1, 3)),
        None if budget_bytes is None else whole("budget_bytes", budget_bytes, 0),
    )
    number("timing", timing, 0)
    found = list(ways(schema, predicate))
    usable = [way for way in found if not isinstance(way, Refusal)]
    candidates = []
    from_answers = placing(predicate)
    for way, name in zip(usable, names_of(usable), strict=True):
        each = Candidate(way, name, load)
        if Leak("broker", "match") in each.leaks and Leak("broker", DATA) not in each.leaks:
            each = replace(each, placing=from_answers)
        candidates.append(conditions.judged(each))
    taken = conditions.ordered(each for each in candidates if not each.refused)
    if not predicate.unbound_names:
        taken = conditions.ordered(_timed(taken, predicate, timing, Timings(timings)))
    return Plan(
        predicate,
        load,
        tuple(taken),
        tuple(each for each in candidates if each.refused),
        tuple(way for way in found if isinstance(way, Refusal)),
    )


@dataclass(frozen=True)
class _Conditions:
    """Conditions of a plan, as `plan` takes them."""

    hide: frozenset[Leak]
    allowed: frozenset[Leak] | None
    security: str
    brokers: int
    budget: int | None

    def __post_init__(self) -> None:
        both = self.hide & (self.allowed or frozenset())
        if both:
            names = ", ".join(sorted(leak.name for leak in both))
            raise ParameterError(f"hide and allow_leaks both name {names}: leave one out")

    def judged(self, candidate: Candidate) -> Candidate:
        """Return the candidate with the reasons for refusing it."""
        reasons = []
        shown = candidate.leaks & self.hide
        if self.allowed is not None:
            shown |= candidate.leaks - self.allowed
        if shown:
            reasons.append("shows " + "; ".join(map(str, sorted(shown))))
        if SECURITY.index(candidate.security) < SECURITY.index(self.security):
            reasons.append(f"its security is {candidate.security}, not {self.security}")
        if candidate.brokers > self.brokers:
            reasons.append(f"needs {candidate.brokers} brokers that do not work together")
        if self.budget is not None and candidate.total_bytes > self.budget:
            reasons.append(f"takes {candidate.total_bytes:,} bytes, more than {self.budget:,}")
        return replace(candidate, refused=tuple(reasons))

    def ordered(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return candidates in order: leaks by inclusion, then bytes, then seconds."""
        allowed = self.allowed or frozenset()
        out: list[Candidate] = []
        for front in fronts([(each, each.leaks - allowed) for each in candidates]):
            out += sorted(front, key=_cost)
        return out


def _cost(candidate: Candidate) -> tuple[int, float]:
    seconds = candidate.seconds
    return candidate.total_bytes, float("inf") if seconds is None else seconds.total


def _timed(
    candidates: Sequence[Candidate], predicate: Predicate, budget: float, timings: Timings
) -> list[Candidate]:
    """Return candidates with their rates: known ones, and new ones while the budget lasts."""
    rates: dict[str, Rates] = {}
    missing: list[tuple[bool, int, Candidate]] = []
    seen = set()
    for each in candidates:
        known = timings.get(_rates_name(each))
        if known is not None:
            rates[each.name] = known
            continue
        kind = type(each.way), each.leaks
        # The first of each kind come first, since the table shows only these.
        missing.append((kind in seen, len(missing), each))
        seen.add(kind)
    end = perf_counter() + budget
    for _, _, each in sorted(missing, key=lambda entry: entry[:2]):
        if perf_counter() >= end:
            break
        measured = rates_of(each.way, predicate, each.load)
        timings.put(_rates_name(each), measured)
        rates[each.name] = measured
    timings.save()
    return [replace(each, rates=rates.get(each.name)) for each in candidates]


def _rates_name(candidate: Candidate) -> str:
    way = candidate.way
    plain = f"{candidate.name} of {way.event_bytes} bytes"
    name = way.fingerprint if isinstance(way, Matcher) else plain
    return rates_name(name, candidate.load.subscriptions, candidate.load.topics)
