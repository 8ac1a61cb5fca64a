"""Inference from answers: the leak of match bits alone, for any matcher.

These adversaries read no message. They see which subscriptions matched which events. Some also know
the distribution of values, some have an accomplice who reads events, and some have events of their
choice published. A subscriber may send several messages for each event, its own and dummies; then
the adversary sees how many of them matched.

Arrays have events on their first axis and subscriptions on the second, as in `match_all`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import asinh, exp, expm1, inf, prod
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Index, Reals
from ccbps.checks import instance, number
from ccbps.errors import UnsupportedPredicateError
from ccbps.predicates import InRange, Keyword, Predicate, iter_leaves

CERTAIN: Final = 50.0
"""Logarithm of odds that stands for certainty."""
PASSES: Final = 4
"""Number of passes of an adversary over all attributes when there are dummies."""

TINY: Final = 1e-18
"""Share of events below which they never match."""

Matches = Callable[[dict[str, int]], bool | None]


# -- answers alone ---------------------------------------------------------------------------------


def corrected(hits: Index | Bools, sent: int = 1) -> Reals:
    """Estimate answers from numbers of messages that matched, shape (events, subscriptions).

    Dummies are drawn from all subscriptions, so they match an event as often as messages do on
    average. Without dummies the result equals the answers.

    Args:
        hits: number of messages that matched.
        sent: messages of a subscription for an event, one of which is its own.
    """
    counts = np.asarray(hits, dtype=np.float64)
    if sent == 1:
        return counts
    return np.asarray(counts - (sent - 1) / sent * counts.mean(axis=1, keepdims=True))


def contained(hits: Index | Bools, sent: int = 1) -> Bools:
    """Tell which subscriptions seem to be a part of which others, by answers alone.

    A subscription is a part of another one if it matched no event without the other one, and the
    other one matched an event without it. With dummies, "no event" is a share of events that is
    zero within two standard errors.

    Example:
        >>> import numpy as np
        >>> from ccbps.attacks import contained
        >>> answers = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 1]])
        >>> contained(answers).astype(int)                # the first is a part of the second
        array([[0, 1, 0],
               [0, 0, 0],
               [0, 0, 0]])

    Args:
        hits: number of messages that matched, shape (events, subscriptions).
        sent: messages of a subscription for an event, one of which is its own.

    Returns:
        shape (subscriptions, subscriptions); the entry (i, j) is for i in j.
    """
    inside = corrected(hits, sent)
    count = max(1, len(inside))
    seen = inside.sum(axis=0) / count
    alone = seen[:, None] - inside.T @ inside / count
    # Half an event, so that rounding makes no difference.
    error = np.full(alone.shape, 0.5 / count)
    if sent > 1:
        # `corrected` subtracts the same estimate from both, which makes them move together.
        rates, dummies = hits.mean(axis=1) / sent, sent - 1
        variance = dummies * (rates * (1 - rates)).sum() / count
        alone -= variance * dummies * (dummies + 2) / sent**2 / len(alone)
        error += 2 * np.sqrt((inside**2).T @ ((1 - inside) ** 2)) / count
    out = (alone <= error) & np.transpose(alone > error) & (seen > np.diag(error))[:, None]
    np.fill_diagonal(out, val=False)
    return np.asarray(out)


# -- an accomplice reads events --------------------------------------------------------------------


def place_bounds(
    points: Reals, hits: Index | Bools, sizes: Reals, *, sent: int = 1, rates: Reals | None = None
) -> Reals:
    """Estimate the bounds of boxes from events that somebody reads, and from answers to them.

    The bound is estimated as the middle of the gap between the events inside and the nearest event
    outside. With dummies, answers are odds, and the adversary takes the most likely box.

    Example:
        >>> import numpy as np
        >>> from ccbps.attacks import place_bounds
        >>> prices = np.array([[3., 10., 12., 20., 31.]])
        >>> answers = np.array([[0], [1], [1], [1], [0]])
        >>> place_bounds(prices, answers, np.array([64.]))
        array([[[ 7., 25.]]])

    Args:
        points: codes of the events, shape (attributes, events).
        hits: number of messages that matched, shape (events, subscriptions).
        sizes: number of values of each attribute.
        sent: messages of a subscription for an event, one of which is its own.
        rates: share of all messages that match each event, shape (events,); None without dummies.

    Returns:
        least and greatest value, shape (subscriptions, attributes, 2). Those of a subscription that
        has not matched are the middle of the domain.
    """
    order = np.argsort(points, axis=1, kind="stable")
    ranked = np.take_along_axis(points, order, axis=1)
    out = np.empty((hits.shape[1], len(points), 2))
    out[:] = (sizes[:, None] - 1) / 2
    noise = np.zeros(len(hits)) if rates is None else rates
    for subscription, counts in enumerate(np.asarray(hits, dtype=np.float64).T):
        odds = odds_inside(counts, sent, noise)
        if sent == 1:
            if not counts.any():
                continue
            own = points[:, counts > 0]
            region = np.stack([own.min(axis=1), own.max(axis=1)], axis=1)
        else:
            # Inside, messages match more often than dummies do: find roughly where.
            region = np.stack([np.zeros(len(points)), sizes - 1], axis=1)
            more = counts - (sent - 1) * noise
            more -= more.mean() if len(more) else 0
            rough = [_run(ranked[a], more[order[a]]) for a in range(len(points))]
            region = np.array(
                [old if new is None else new[1:3] for old, new in zip(region, rough, strict=True)]
            )
        for _ in range(1 if sent == 1 else PASSES):
            inside = (points >= region[:, :1]) & (points <= region[:, 1:])
            missed = (~inside).sum(axis=0)
            for attribute, size in enumerate(sizes):
                others = missed - ~inside[attribute] == 0
                rows = order[attribute][others[order[attribute]]]
                run = _run(points[attribute, rows], odds[rows])
                if run is None:
                    continue
                below, low, high, above = run
                region[attribute] = low, high
                above = size if above == inf else above
                out[subscription, attribute] = (below + 1 + low) / 2, (high + above - 1) / 2
    return out


def odds_inside(counts: Reals, sent: int, rates: Any) -> Reals:
    """Return the logarithm of the odds that events are inside, from numbers of matching messages.

    Args:
        counts: number of messages that matched, shape (events, ...).
        sent: messages of a subscription for an event, one of which is its own.
        rates: share of dummies that match, for each of the counts or of a shape that fits.
    """
    with np.errstate(divide="ignore"):
        odds = np.log(counts) - np.log(sent - counts)
    noise = np.clip(rates, 1e-6, 1 - 1e-6) if sent > 1 else 0.5
    return np.asarray(np.clip(odds + np.log1p(-noise) - np.log(noise), -CERTAIN, CERTAIN))


def _run(values: Reals, weights: Reals) -> tuple[float, float, float, float] | None:
    """Return the run of values with the greatest sum of weights, and the values beside it.

    Args:
        values: values, ascending.
        weights: weight of each.

    Returns:
        value below, least, greatest, value above; -1 and infinity where there is none. None if no
        run has a sum above 0.
    """
    if not len(values):
        return None
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    sums = np.concatenate([[0.0], np.cumsum(np.add.reduceat(weights, starts))])
    gains = sums[1:] - np.minimum.accumulate(sums[:-1])
    last = int(gains.argmax())
    if gains[last] <= 0:
        return None
    first = int(sums[: last + 1].argmin())
    distinct = values[starts]
    below = float(distinct[first - 1]) if first else -1.0
    above = float(distinct[last + 1]) if last + 1 < len(distinct) else inf
    return below, float(distinct[first]), float(distinct[last]), above


def event_bits(
    points: Reals, inside: Bools, hits: Index | Bools, *, sent: int = 1, rates: Reals | None = None
) -> Reals:
    """Measure the precision with which answers place events, once bounds are known.

    Args:
        points: codes of typical events, shape (attributes, typical events).
        inside: answers to typical events, shape (typical events, subscriptions).
        hits: number of messages that matched events which nobody reads, shape (events,
            subscriptions).
        sent: messages of a subscription for an event, one of which is its own.
        rates: share of all messages that match each event, shape (events,); None without dummies.

    Returns:
        bits of the width of the range that holds an event's value with a probability of 95 %, for
        each attribute, as a mean over the events.
    """
    noise = np.zeros(len(hits)) if rates is None else rates
    odds = odds_inside(hits.astype(np.float64), sent, noise[:, None])
    likelihood = odds @ inside.T.astype(np.float64)
    likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    ranked = -np.sort(-likelihood, axis=1)
    needed = (np.cumsum(ranked, axis=1) < 0.95 * ranked.sum(axis=1, keepdims=True)).sum(axis=1)
    kept = likelihood >= ranked[np.arange(len(ranked)), needed][:, None] * (1 - 1e-9)
    widths = [
        np.where(kept, row, -inf).max(axis=1) - np.where(kept, row, inf).min(axis=1) + 1
        for row in points
    ]
    return np.asarray(np.log2(widths).mean(axis=1))


# -- events of the adversary's choice --------------------------------------------------------------


def bisect_bounds(
    matches: Matches, inside: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Find the bounds of a box by events of the adversary's choice.

    Example:
        >>> from ccbps.attacks import bisect_bounds
        >>> bisect_bounds(lambda event: 30 <= event["price"] <= 99, {"price": 40}, {"price": 256})
        {'price': (30, 99)}

    Args:
        matches: function that has an event published and returns whether the subscription matched
            it; None if there are no more answers.
        inside: event that matches.
        sizes: number of values of each attribute.

    Returns:
        least and greatest value of each attribute; if answers ended, the middle of the values that
        are left.
    """
    bounds = {}
    for name, value in inside.items():
        ends = []
        for outside in (-1, sizes[name]):
            good, bad = value, outside
            while abs(good - bad) > 1:
                middle = (good + bad) // 2
                answer = matches({**inside, name: middle})
                if answer is None:
                    good = middle
                    break
                if answer:
                    good = middle
                else:
                    bad = middle
            ends.append(good)
        bounds[name] = (ends[0], ends[1])
    return bounds


# -- formulas --------------------------------------------------------------------------------------


def placing_error(size: float, events: float, share: float = 1.0) -> float:
    """Return the mean error of a bound after some uniform events that the adversary reads.

    On either side of a bound the distance of the nearest event is geometrically distributed, and
    the guess is the middle.

    Example:
        >>> from ccbps.attacks import placing_error
        >>> round(placing_error(1000, 500), 2)            # of 1,000 values
        0.96

    Args:
        size: number of values of the attribute.
        events: number of events.
        share: share of the events for which all other conditions hold.

    Returns:
        mean error in values, for a bound far from the ends of the domain.
    """
    seen = number("events", events, 0) * number("share", share, 0, 1) / number("size", size, 1)
    return exp(-seen) / -expm1(-2 * seen) if seen else size / 4


def events_to_place(size: float, accuracy: float, share: float = 1.0) -> float:
    """Return the number of uniform events after which a bound is known, on average.

    Example:
        >>> from ccbps.attacks import events_to_place
        >>> round(events_to_place(65536, 0.01))
        50
        >>> round(events_to_place(65536, 0.01, share=0.1))
        500

    Args:
        size: number of values of the attribute.
        accuracy: mean error, as a share of the domain.
        share: share of the events for which all other conditions hold.
    """
    number("accuracy", accuracy, 1e-9, 0.25)
    if not number("share", share, 0, 1):
        return inf
    return number("size", size, 1) / share * asinh(1 / (2 * accuracy * size))


@dataclass(frozen=True, slots=True)
class Placing:
    """Numbers of events after which answers reveal the bounds of one predicate.

    Attributes:
        accuracy: error of a bound, as a share of its attribute's domain.
        events: number of uniform events, read by an accomplice, after which each bound is placed
            with this mean error; rounded to two digits.
        least: True if `events` counts only events for which all other conditions hold, so more are
            needed.
        chosen: largest number of events of the adversary's choice until each bound is known
            exactly.
    """

    accuracy: float
    events: float
    least: bool
    chosen: int


def placing(predicate: Predicate, accuracy: float = 0.01) -> Placing | None:
    """Estimate the speed at which answers reveal the bounds of a predicate, without a simulation.

    Numbers depend on the predicate's form and, without private constants, on the widths of its
    ranges. With private constants, bound or not, they depend on the form alone.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.attacks import placing
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> placing(schema.parse("price < 120 AND volume >= 32768"))
        Placing(accuracy=0.01, events=27000.0, least=False, chosen=64)
        >>> placing(schema.parse("price < :limit AND volume >= 32768"))
        Placing(accuracy=0.01, events=50.0, least=True, chosen=64)

    Args:
        predicate: the predicate.
        accuracy: error of a bound, as a share of its attribute's domain.

    Returns:
        None if the predicate has no bounds, or compares words, or is no OR of ANDs of a few ranges.

    Raises:
        ParameterError: an argument is not possible.
    """
    number("accuracy", accuracy, 1e-9, 0.25)
    schema = instance("predicate", predicate, Predicate).schema
    least = bool(predicate.private_names)
    # Of each range, the attribute, the share of the other conditions, and that of all together.
    ranges: list[tuple[str, float, float]] = []
    if least:
        leaves = iter_leaves(predicate.true_form())
        ranges = [(leaf.attribute, 1.0, 1.0) for leaf in leaves if isinstance(leaf, InRange)]
    else:
        try:
            products = predicate.alternatives()
        except UnsupportedPredicateError:
            return None
        for product in products:
            shares = {
                name: sum(high - low + 1 for low, high in sets) / schema[name].size
                for name, sets in product.items()
            }
            for name, sets in product.items():
                others = prod(share for other, share in shares.items() if other != name)
                parts = [(high - low + 1) / schema[name].size for low, high in sets]
                ranges += [(name, others, others * part) for part in parts]
    if not ranges or any(isinstance(schema[name], Keyword) for name, _, _ in ranges):
        return None
    # An event must match first. Above 64 bits, the number of values makes no difference.
    slowest = max(
        max(
            events_to_place(min(schema[name].size, 1 << 64), accuracy, others), 1 / max(share, TINY)
        )
        for name, others, share in ranges
    )
    chosen = sum(2 * (schema[name].size - 1).bit_length() for name, _, _ in ranges)
    return (
        None if slowest >= 1 / TINY else Placing(accuracy, float(f"{slowest:.1e}"), least, chosen)
    )
