"""A simulated deployment: answers to many events, and the adversaries who work on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log
from typing import Any, Final, Literal

import numpy as np

from ccbps.anonymity.cloaks import cloak, volume
from ccbps.arrays import Bools, Index, Reals
from ccbps.attacks.inference import bisect_bounds, event_bits, odds_inside, place_bounds
from ccbps.checks import choice, instance, whole
from ccbps.errors import ParameterError
from ccbps.matching.contract.estimate import random_events
from ccbps.predicates import AttributeType, Box, Events, Keyword, Predicate, Schema
from ccbps.predicates.bound import bound_predicate

Reveal = Literal["broker", "subscriber"]

TARGETS: Final = 100
"""Largest number of subscriptions that are attacked."""
TYPICAL: Final = 2048
"""Number of events that represent the distribution, for an adversary who knows it."""
STARTS: Final = 20
"""Number of events that an adversary tries, with dummies, to find one that matches."""
UNREAD: Final = 256
"""Number of unread events that an adversary places by answers alone."""
DOUBT: Final = 1e-3
"""Probability of a wrong answer to a chosen event that an adversary accepts, with dummies."""


@dataclass(frozen=True, eq=False)
class Deployment:
    """Answers of a deployment, and its adversaries; made by `deploy`.

    Attributes:
        schema: attributes of events.
        limited: attributes that subscriptions limit, each True if it has bounds to place.
        boxes: boxes of the subscriptions.
        served: boxes that the broker has for the subscriptions.
        sample: events, of which the last `TYPICAL` are not published.
        codes: codes of the limited attributes, shape (attributes, events).
        hits: number of messages that matched, shape (published events, subscriptions).
        typical: answers to the events that are not published.
        shares: share of all events that each subscription matches.
        sent: number of messages of a subscription for an event.
        deliveries: number of deliveries per delivery that was asked for.
        random: source of dummies.
    """

    schema: Schema
    limited: Mapping[str, bool]
    boxes: list[Box]
    served: list[Box]
    sample: Events
    codes: Reals
    hits: Index
    typical: Bools
    shares: Reals
    sent: int
    deliveries: float
    random: np.random.Generator

    @cached_property
    def targets(self) -> list[int]:
        """Subscriptions that are attacked, among those that have bounds."""
        bounded = [
            at
            for at, box in enumerate(self.boxes)
            if any(
                scored and any(_is_bound(self.schema[name], box.ranges[name]))
                for name, scored in self.limited.items()
            )
        ]
        return bounded[:: -(-len(bounded) // TARGETS)]

    @cached_property
    def rates(self) -> Reals:
        """Share of all messages that match each event, which the broker counts."""
        return np.asarray(self.hits.mean(axis=1) / self.sent)

    def nested(self) -> Bools:
        """Tell which subscriptions are proper parts of which others."""
        ends = np.array([[box.ranges[name] for name in self.limited] for box in self.boxes], object)
        low, high = ends.reshape(len(self.boxes), -1, 2).transpose(2, 0, 1)
        inside = (low[:, None] >= low) & (high[:, None] <= high)
        part = inside.astype(np.bool_).all(axis=2)
        return np.asarray(part & ~part.T)

    def _errors(self, target: int, bounds: Mapping[str, Iterable[float]]) -> list[float]:
        """Return the errors of the bounds that a subscription has."""
        out = []
        for name, scored in self.limited.items():
            kind, ends = self.schema[name], self.boxes[target].ranges[name]
            for own, guess, is_bound in zip(ends, bounds[name], _is_bound(kind, ends), strict=True):
                if scored and is_bound:
                    out.append(abs(own - guess) / kind.size)
        return out

    def bound_errors(self, count: int) -> Reals:
        """Place bounds after some events that an accomplice reads; return their errors."""
        sizes = np.array([float(min(self.schema[name].size, 1 << 64)) for name in self.limited])
        hits = self.hits[:count, self.targets]
        rates = self.rates[:count]
        points = self.codes[:, : len(hits)]
        placed = place_bounds(points, hits, sizes, sent=self.sent, rates=rates)
        rows = zip(self.targets, placed.tolist(), strict=True)
        return np.array(
            [
                e
                for at, row in rows
                for e in self._errors(at, dict(zip(self.limited, row, strict=True)))
            ]
        )

    def event_bits(self) -> dict[str, float]:
        """Return the remaining uncertainty on an unread event, in bits by attribute."""
        unread, typical, rates = self.hits[:UNREAD], self.typical, self.rates[:UNREAD]
        if not len(unread):
            unread, typical, rates = np.zeros((1, 0), dtype=np.int64), typical[:, :0], np.zeros(1)
        points = self.codes[:, -TYPICAL:]
        bits = event_bits(points, typical, unread, sent=self.sent, rates=rates)
        names = zip(self.limited, bits.tolist(), strict=True)
        return {name: left for name, left in names if self.limited[name]}

    def choose(self, rounds: float) -> tuple[float, float]:
        """Place bounds by chosen events; return their mean number, and the mean error."""
        names = [name for name, scored in self.limited.items() if scored]
        sizes = {name: self.schema[name].size for name in names}
        ends = np.array([[box.ranges[name] for name in names] for box in self.served], np.uint64)
        others = self.sent - 1
        errors: list[float] = []
        asked = 0
        for target in self.targets:
            spent = 0

            def matches(event: dict[str, int], target: int = target) -> bool | None:
                nonlocal spent
                point = np.array([event[name] for name in names], dtype=np.uint64)
                asked_for = ends if others else ends[target : target + 1]
                met = (asked_for[..., 0] <= point) & (point <= asked_for[..., 1])
                inside = np.asarray(met.all(axis=1))
                own, repeats = bool(inside[target if others else 0]), 1
                if others:
                    # Where dummies match often, only many answers leave little doubt.
                    noise = 1 - (1 - float(inside.mean())) ** others
                    repeats = ceil(log(DOUBT) / log(min(noise, 0.99))) if noise else 1
                for _ in range(repeats):
                    if spent >= rounds:
                        return None
                    spent += 1
                    drawn = inside[self.random.integers(0, len(inside), others)]
                    if not own and not drawn.any():
                        return False
                return True

            bounds: dict[str, tuple[float, float]] = {
                name: ((self.schema[name].size - 1) / 2,) * 2 for name in self.limited
            }
            if self.hits[:, target].any():
                odds = odds_inside(self.hits[:, target].astype(np.float64), self.sent, self.rates)
                for start in np.argsort(-odds)[:STARTS].tolist():
                    event = {name: int(self.sample.codes[name][0, start]) for name in names}
                    # Without dummies, the start is known to match.
                    if self.sent == 1 or matches(event):
                        bounds.update(bisect_bounds(matches, event, sizes))
                        break
            asked += spent
            errors += self._errors(target, bounds)
        return asked / len(self.targets), float(np.mean(errors))


def deploy(
    schema: Schema,
    predicates: Iterable[str | Predicate],
    events: Any,
    most: int,
    *,
    dummies: int = 0,
    k: int = 1,
    reveal: Reveal = "broker",
    seed: int = 0,
) -> Deployment:
    """Simulate the answers of a deployment.

    Args:
        schema: attributes of events.
        predicates: SQL texts or predicates with all their constants.
        events: typical records; None for uniform events.
        most: number of events that are published.
        dummies: dummies of a subscription for each event.
        k: least number of members of a cloak; 1 for no cloaks.
        reveal: party that learns the answers.
        seed: seed of the simulation.
    """
    instance("schema", schema, Schema)
    whole("most", most, 1)
    whole("dummies", dummies, 0)
    choice("reveal", reveal, ("broker", "subscriber"))
    texts = [bound_predicate(schema, each) for each in predicates]
    boxes = [each.box() for each in texts]
    limited = _limited(schema, boxes)
    random = np.random.default_rng([whole("seed", seed, 0), 2])
    if events is None:
        sample = random_events(schema, most + TYPICAL, seed=seed)
    else:
        given = schema.encode(events)
        if not len(given):
            raise ParameterError("events must hold at least one record")
        sample = given.take(random.integers(0, len(given), most + TYPICAL))
    own = np.stack([box.evaluate(sample) for box in boxes], axis=1)
    # The share of typical events, or of the domain, that each subscription matches.
    shares = np.array([volume(box) for box in boxes]) if events is None else own.mean(axis=0)
    served, hulls = own, boxes
    if whole("k", k, 1) > 1:
        cloaks = cloak(schema, texts, k, events=events)
        hulls = [cloaks.hulls[group] for group in cloaks.groups.tolist()]
        served = np.stack([box.evaluate(sample) for box in cloaks.hulls], axis=1)[:, cloaks.groups]
    hits = served[:most].astype(np.int64)
    for _ in range(dummies):
        drawn = random.integers(0, len(boxes), hits.shape)
        hits += np.take_along_axis(served[:most], drawn, axis=1)
    delivered = hits.size if reveal == "subscriber" else int((hits > 0).sum())
    return Deployment(
        schema,
        limited,
        boxes,
        hulls,
        sample,
        np.stack([_points(sample, name, ordered) for name, ordered in limited.items()]),
        hits[: 0 if reveal == "subscriber" else most],
        served[most:],
        shares,
        1 + dummies,
        delivered / max(1, int(own[:most].sum())),
        random,
    )


def _points(sample: Events, name: str, ordered: bool) -> Reals:
    """Return an attribute's codes as numbers; where they have no order, equal ones are equal."""
    codes = sample.codes[name]
    if ordered:
        return np.asarray(codes[0], dtype=np.float64)
    _, numbers = np.unique(codes, axis=1, return_inverse=True)
    return np.asarray(numbers, dtype=np.float64).reshape(-1)


def _limited(schema: Schema, boxes: list[Box]) -> dict[str, bool]:
    """Return the attributes that subscriptions limit, and whether they have bounds to place."""
    if not boxes:
        raise ParameterError("predicates must hold at least one subscription")
    for place, box in enumerate(boxes):
        if any(high < low for low, high in box.ranges.values()):
            raise ParameterError(f"subscription {place} never matches: leave it out")
    limited = {}
    for name in schema:
        kind, ranges = schema[name], [box.ranges[name] for box in boxes]
        if any(ends != (0, kind.size - 1) for ends in ranges):
            ordered = not isinstance(kind, Keyword) and kind.bits <= 64
            limited[name] = ordered and any(any(_is_bound(kind, ends)) for ends in ranges)
    if not any(limited.values()):
        raise ParameterError("no subscription has a bound of an attribute with at most 64 bits")
    return limited


def _is_bound(kind: AttributeType, ends: tuple[int, int]) -> tuple[bool, bool]:
    """Tell whether the ends of a range are within the domain, and so bounds."""
    return ends[0] > kind.lowest, ends[1] < kind.highest
