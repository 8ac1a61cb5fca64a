"""Answers add up: the speed at which match bits alone reveal the bounds of subscriptions.

`answers` simulates the answers of any matcher, which equal those of plaintext evaluation. The
adversaries of `ccbps.attacks.inference` work on more and more of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, Final

import numpy as np

from ccbps.anonymity.cloaks import volume
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.deployment import Deployment, Reveal, deploy
from ccbps.attacks.inference import (
    contained,
    corrected,
    placing_error,
)
from ccbps.checks import Printable, number, whole
from ccbps.predicates import Decimal, Predicate, Schema

STEPS: Final = 12
"""Number of points in time at which adversaries are evaluated."""


@dataclass(frozen=True)
class AnswersReport(Printable):
    """Knowledge of the broker from answers alone; made by `answers`.

    Errors of bounds are means over all bounds, as shares of their attributes' domains.

    Attributes:
        subscriptions: number of subscriptions.
        bounds: number of bounds that were attacked.
        nested: number of pairs of subscriptions of which one is a part of the other.
        accuracy: largest error of a bound that counts as placed, as a share of its domain.
        events_per_second: rate of events; None if unknown.
        counts: numbers of events after which the adversaries were evaluated.
        ordered: share of nested pairs that answers alone put in order, after each count.
        misordered: share of wrong pairs among those that seem nested, after each count.
        width_errors: mean error of a subscription's share of events, after each count, for an
            adversary who knows how events are distributed.
        bound_errors: mean error of a bound, after each count, for an adversary with an accomplice
            who reads events.
        placed: share of the bounds that this adversary places, after each count.
        event_bits: remaining uncertainty on an event that nobody reads, in bits by attribute, once
            bounds are known.
        events: number of events after which half of the bounds are placed, with an accomplice; None
            if the simulation was too short.
        chosen: mean number of chosen events per subscription, until the adversary ends.
        chosen_error: mean error of a bound after the chosen events.
        messages: number of messages of a subscription for an event, including dummies.
        deliveries: number of deliveries per delivery that was asked for.
    """

    subscriptions: int
    bounds: int
    nested: int
    accuracy: float
    events_per_second: float | None
    counts: tuple[int, ...]
    ordered: tuple[float, ...]
    misordered: tuple[float, ...]
    width_errors: tuple[float, ...]
    bound_errors: tuple[float, ...]
    placed: tuple[float, ...]
    event_bits: Mapping[str, float]
    events: float | None
    chosen: float
    chosen_error: float
    messages: int
    deliveries: float

    @property
    def seconds(self) -> float | None:
        """Seconds after which half of the bounds are placed; None if unknown."""
        if self.events is None or not self.events_per_second:
            return None
        return self.events / self.events_per_second

    @property
    def curve(self) -> Curve:
        """Mean error of a bound over the number of events."""
        lines = {"bounds": self.bound_errors, "widths": self.width_errors}
        return Curve("events", "mean error (share of the domain)", self.counts, lines, "xy")

    def __repr__(self) -> str:
        return f"<AnswersReport: {self.subscriptions} subscriptions, {self.bounds} bounds>"

    def __str__(self) -> str:
        lines = [
            f"{self.subscriptions:,} subscriptions, {self.bounds:,} bounds, "
            f"{self.nested:,} nested pairs",
            "",
            "   events  pairs in order  wrong pairs  error of a width  error of a bound  placed",
        ]
        columns = self.ordered, self.misordered, self.width_errors, self.bound_errors, self.placed
        for count, *shares in zip(self.counts, *columns, strict=True):
            lines.append(
                f"{count:9,}  {shares[0]:14.1%}  {shares[1]:11.1%}  {shares[2]:16.2%}  "
                f"{shares[3]:16.2%}  {shares[4]:6.1%}"
            )
        placed = "not in this simulation"
        if self.events is not None:
            placed = f"after {self.events:,.0f} events"
            placed += "" if self.seconds is None else f" ({self.seconds:,.3g} s)"
        left = ", ".join(f"{bits:.1f} of {name}" for name, bits in self.event_bits.items())
        lines += [
            "",
            f"half of the bounds within {self.accuracy:.2%} of their domain: {placed}",
            f"chosen events: {self.chosen:,.0f} for a subscription; its bounds are then off by "
            f"{self.chosen_error:.2%}",
            f"bits left of an event that nobody reads: {left}",
            f"price: {self.messages} messages for an event and a subscription, "
            f"{self.deliveries:.3g} deliveries for one",
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain data for JSON. It holds no constants of subscriptions."""
        return {**asdict(self), "event_bits": dict(self.event_bits), "seconds": self.seconds}

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the errors over the number of events.

        Args:
            path: file for the picture; None to draw it only.

        Returns:
            the figure of matplotlib, which the extra ``plot`` installs.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return Outcome((), self.curve, "answers-add-up").plot(path)


def answers(
    schema: Schema,
    predicates: Iterable[str | Predicate],
    *,
    events: Any = None,
    most: int = 4000,
    accuracy: float = 0.01,
    events_per_second: float | None = None,
    dummies: int = 0,
    k: int = 1,
    rounds: int | None = None,
    reveal: Reveal = "broker",
    seed: int = 0,
) -> AnswersReport:
    """Estimate the speed at which answers alone reveal subscriptions and events.

    It takes a deployment's own schema and subscriptions, and simulates a broker's conclusions from
    match bits, for any matcher: the subscriptions that are parts of others; the width of each, if
    the broker knows the distribution of events; its bounds, with an accomplice who reads events, or
    with events of the broker's choice; and the events, once bounds are known. Each of these is an
    attack on simulated answers.

    Hazard: subscriptions are secrets of subscribers. Run this where they may be read, or on similar
    ones.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.attacks import answers
        >>> schema = Schema(price=UInt(16))
        >>> texts = [f"price BETWEEN {p} AND {p + 9000}" for p in range(100, 50000, 2000)]
        >>> report = answers(schema, texts, events_per_second=20)
        >>> report.events < 100, report.seconds < 5         # bounds within 1 % of the domain
        (True, True)
        >>> report.chosen < 32, report.chosen_error
        (True, 0.0)
        >>> answers(schema, texts, reveal="subscriber").events is None
        True

    Args:
        schema: attributes of events.
        predicates: SQL texts or predicates with all their constants. Each is one box.
        events: typical records, from which events are drawn; None for uniform events.
        most: number of events, at least 12.
        accuracy: largest error of a bound that counts as placed, as a share of its domain.
        events_per_second: rate of events, by which times are computed.
        dummies: number of predicates of other subscriptions that a subscriber sends along with its
            own for each event. They are drawn anew each time, so they take a one-time matcher, and
            the broker must not see which message is the subscriber's own.
        k: least number of members of a cloak; 1 for no cloaks.
        rounds: number of answers that a subscription gives before it ends; None for no limit. The
            broker must not see which subscription follows it.
        reveal: party that learns the answers: "broker", or "subscriber" for a matcher whose broker
            learns none.
        seed: seed of the simulation.

    Raises:
        ParameterError: an argument is not possible; or a predicate never matches, or none has a
            bound.
        UnsupportedPredicateError: a predicate is not a box.
        EventError: the events do not fit the schema.
    """
    number("accuracy", accuracy, 0, 1)
    whole("most", most, STEPS)
    if events_per_second is not None:
        events_per_second = number("events_per_second", events_per_second, 0)
    deployment = deploy(
        schema, predicates, events, most, dummies=dummies, k=k, reveal=reveal, seed=seed
    )
    limit = most if rounds is None else whole("rounds", rounds, 1)
    counts = tuple(sorted({round(at) for at in np.geomspace(4, most, STEPS)}))
    truth, sent = deployment.nested(), deployment.sent
    ordered, misordered, widths, errors = [], [], [], []
    for count in counts:
        seen = deployment.hits[: min(count, limit)]
        pairs = contained(seen, sent)
        ordered.append(float((pairs & truth).sum() / max(1, truth.sum())))
        misordered.append(float((pairs & ~truth).sum() / max(1, pairs.sum())))
        guess = corrected(seen, sent).mean(axis=0) if len(seen) else 0.5
        widths.append(float(np.abs(guess - deployment.shares).mean()))
        errors.append(deployment.bound_errors(min(count, limit)))
    placed = np.stack(errors) <= accuracy
    # The first count from which on a bound stays placed.
    first = (~placed * np.arange(1, len(counts) + 1)[:, None]).max(axis=0)
    needed = float(np.median(np.append(counts, inf)[first]))
    chosen, chosen_error = deployment.choose(inf if rounds is None else limit)
    return AnswersReport(
        subscriptions=len(deployment.boxes),
        bounds=placed.shape[1],
        nested=int(truth.sum()),
        accuracy=accuracy,
        events_per_second=events_per_second,
        counts=counts,
        ordered=tuple(ordered),
        misordered=tuple(misordered),
        width_errors=tuple(widths),
        bound_errors=tuple(float(row.mean()) for row in errors),
        placed=tuple(placed.mean(axis=1).tolist()),
        event_bits=deployment.event_bits(),
        events=None if needed == inf else needed,
        chosen=chosen,
        chosen_error=chosen_error,
        messages=sent,
        deliveries=deployment.deliveries,
    )


@attack(
    title="The broker adds answers up, with an accomplice who reads events",
    goal="confidentiality",
    adversary="the broker, which sees who matched what; it knows how events are distributed, or an "
    "accomplice tells it the events",
    defence="cloaks (`ccbps.anonymity.cloak`); matchers that tell the broker no answers "
    '(`ThreeBrokerMatch` with `reveal="subscriber"`, `ObliviousTopicMatch`)',
    source="[RCT13]",
)
def answers_add_up(
    *,
    subscriptions: int = 40,
    values: int = 1000,
    k: int = 5,
    dummies: int = 2,
    most: int = 2000,
    seed: int = 1,
) -> Outcome:
    """Place random ranges by answers to more and more uniform events.

    The attack is the same with any matcher that tells the broker the answers. It is carried out
    without a defence, with cloaks, with dummies that are drawn anew for each event, and without
    answers.

    Args:
        subscriptions: number of subscriptions, each a random range.
        values: number of values of the attribute.
        k: number of members of a cloak, with the defence.
        dummies: dummies of a subscription for an event, in one line of the curve.
        most: number of events.
        seed: seed of the simulation.

    Example:
        >>> from ccbps.attacks import answers_add_up
        >>> outcome = answers_add_up(most=500)
        >>> outcome["error of a bound"].undefended < 0.3       # % of the domain
        True
        >>> outcome["error of a bound"].defended > 5
        True
    """
    schema, texts = random_ranges(subscriptions, values, seed)
    plain = answers(schema, texts, most=most, seed=seed)
    cloaked = answers(schema, texts, most=most, seed=seed, k=k)
    noisy = answers(schema, texts, most=most, seed=seed, dummies=dummies)
    silent = answers(schema, texts, most=most, seed=seed, reveal="subscriber")
    shares = np.array([volume(schema.parse(text).box()) for text in texts])
    # Mean deviation of a share that is counted in so many events.
    spread = float(np.sqrt(2 * shares * (1 - shares) / (np.pi * most)).mean())
    bits = plain.event_bits["value"], cloaked.event_bits["value"]
    figures = (
        Figure(
            "error of a bound",
            "% of the domain",
            100 * plain.bound_errors[-1],
            100 * cloaked.bound_errors[-1],
            100 * placing_error(values, most) / values,
        ),
        Figure(
            "error of a width",
            "% of the domain",
            100 * plain.width_errors[-1],
            100 * cloaked.width_errors[-1],
            100 * spread,
        ),
        Figure("bounds within 1 % of the domain", "", plain.placed[-1], cloaked.placed[-1]),
        Figure("nested pairs in order", "", plain.ordered[-1], cloaked.ordered[-1]),
        Figure("bits left of an event", "", *bits),
    )
    lines = {
        "without defence": plain.bound_errors,
        f"with {dummies} dummies": noisy.bound_errors,
        f"with cloaks of {k}": cloaked.bound_errors,
        "with no answers": silent.bound_errors,
    }
    label = "mean error of a bound (share of the domain)"
    return Outcome(figures, Curve("events", label, plain.counts, lines, "xy"))


@attack(
    title="The broker has events of its choice published",
    goal="confidentiality",
    adversary="the broker, which sees who matched what, and whose accomplice can publish events",
    defence="subscriptions that end after some rounds, and cloaks; dummies only make it longer",
)
def chosen_events(
    *,
    subscriptions: int = 40,
    values: int = 65536,
    rounds: int = 16,
    dummies: int = 2,
    k: int = 5,
    seed: int = 1,
) -> Outcome:
    """Find the bounds of random ranges by bisection, from an event that matches.

    Args:
        subscriptions: number of subscriptions, each a random range.
        values: number of values of the attribute.
        rounds: answers that a subscription gives, with the defence.
        dummies: dummies of a subscription for an event, in one line of the curve.
        k: number of members of a cloak, in another line.
        seed: seed of the simulation.

    Example:
        >>> from ccbps.attacks import chosen_events
        >>> outcome = chosen_events()
        >>> outcome["error of a bound"].undefended
        0.0
        >>> outcome["events for a subscription"].undefended <= 32       # two bounds of 16 bits
        True
    """
    schema, texts = random_ranges(subscriptions, values, seed)
    limits = tuple(sorted({2, 4, 8, whole("rounds", rounds, 1), 24, 32, 48, 64, 96, 128}))

    def errors(deployment: Deployment) -> tuple[float, ...]:
        return tuple(deployment.choose(limit)[1] for limit in limits)

    # Of 128 events, the adversary takes one that matches.
    plain = deploy(schema, texts, None, 128, seed=seed)
    noisy = deploy(schema, texts, None, 128, seed=seed, dummies=dummies)
    cloaked = deploy(schema, texts, None, 128, seed=seed, k=k)
    (count, error), (few, left) = plain.choose(inf), plain.choose(rounds)
    figures = (
        Figure("events for a subscription", "", count, few),
        Figure("error of a bound", "% of the domain", 100 * error, 100 * left),
    )
    lines = {
        "without defence": errors(plain),
        f"with {dummies} dummies": errors(noisy),
        f"with cloaks of {k}": errors(cloaked),
    }
    label = "mean error of a bound (share of the domain)"
    return Outcome(figures, Curve("answers of a subscription", label, limits, lines, "x"))


def random_ranges(subscriptions: int, values: int, seed: int) -> tuple[Schema, list[str]]:
    """Make a schema of one attribute, `value`, and subscriptions to random ranges of it.

    A range is as wide as 5 % to 50 % of the domain.
    """
    whole("values", values, 2, 1 << 32)
    whole("subscriptions", subscriptions, 1)
    # Events are drawn with the seed itself, and have nothing to do with these.
    random = np.random.default_rng([whole("seed", seed, 0), 1])
    widths = random.integers(values // 20, values // 2, subscriptions, endpoint=True)
    lows = random.integers(0, values - widths)
    schema = Schema(value=Decimal(0, values - 1, 1))
    pairs = zip(lows.tolist(), (lows + widths).tolist(), strict=True)
    return schema, [f"value BETWEEN {low} AND {high}" for low, high in pairs]
