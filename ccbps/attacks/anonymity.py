"""Attacks on the anonymity of groups and classes of k.

Cloaks hide a subscriber among the members of a group, releases hide a record among the records of a
class (`ccbps.anonymity`). The adversaries use only data that they may read: they are a broker with
an accomplice, and receivers of releases.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccbps.anonymity.cloaks import cloak_boxes
from ccbps.anonymity.diversity import Distinct, Diversity, Entropy, numbered
from ccbps.anonymity.releases import Anonymizer, Release
from ccbps.anonymity.sticky import StickyCloaks, expected_candidates
from ccbps.arrays import Index, Reals
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.inference import place_bounds, placing_error
from ccbps.checks import number, whole
from ccbps.errors import ParameterError
from ccbps.predicates import Box, Category, Decimal, Schema
from ccbps.predicates.box_predicates import predicate_of


@attack(
    title="The broker intersects the groups of several epochs",
    goal="confidentiality",
    adversary="the broker, which sees the members of each group, and an accomplice who publishes "
    "events that only one subscriber asks for",
    defence="groups that stay, whose leavers are replaced by dummies (`StickyCloaks`)",
    source="[RCT13]",
)
def fresh_cloaks(
    *, subscribers: int = 100, k: int = 10, epochs: int = 4, runs: int = 20, seed: int = 1
) -> Outcome:
    """Look for one subscriber among those who are in its group in every epoch.

    In each epoch all other subscribers ask for something else. Without the defence the anonymizer
    makes new groups (`cloak`); with it, groups stay.

    Args:
        subscribers: number of subscribers, at least k.
        k: least number of members of a group.
        epochs: number of epochs.
        runs: number of simulations.
        seed: seed of the simulations.

    Example:
        >>> from ccbps.attacks import fresh_cloaks
        >>> outcome = fresh_cloaks(runs=10)
        >>> outcome["candidates after 4 epochs"].undefended < 1.3
        True
        >>> outcome["candidates after 4 epochs"].defended >= 10
        True
    """
    whole("subscribers", subscribers, whole("k", k, 1))
    whole("epochs", epochs, 1)
    schema, random = _line(1000), np.random.default_rng(whole("seed", seed, 0))
    left = np.zeros((2, whole("runs", runs, 1), epochs))
    for run in range(runs):
        sticky, groups = StickyCloaks(schema, k), []
        boxes = _boxes(schema, _ranges(random, subscribers, 1000))
        everybody, places = set(range(subscribers)), set[int]()
        for epoch in range(epochs):
            if epoch:
                boxes[1:] = _boxes(schema, _ranges(random, subscribers - 1, 1000))
            cloaks = cloak_boxes(schema, boxes, k)
            if cloaks is not None:
                everybody &= {*np.flatnonzero(cloaks.groups == cloaks.groups[0]).tolist()}
            left[0, run, epoch] = len(everybody)
            for member, box in enumerate(boxes):
                if epoch and member:
                    sticky.leave(str(member))
                if member or not epoch:
                    sticky.join(str(member), predicate_of(box))
            sticky.advance()
            groups = [group for group in sticky.groups if "0" in sticky.members(group)]
            now = {place for group in groups for place in group.places}
            places = places & now if epoch else now
            left[1, run, epoch] = len(places)
    fresh, stayed = left.mean(axis=1).tolist()
    expected = [expected_candidates(subscribers, k, epoch) for epoch in range(1, epochs + 1)]
    figures = [
        Figure(f"candidates after {epoch + 1} epochs", "", fresh[epoch], stayed[epoch], by_formula)
        for epoch, by_formula in enumerate(expected)
    ]
    lines = {"without defence": tuple(fresh), "with groups that stay": tuple(stayed)}
    at = tuple(range(1, epochs + 1))
    return Outcome(tuple(figures), Curve("epochs", "candidates", at, lines, "y"))


@attack(
    title="An accomplice reads events, and the broker finds bounds",
    goal="confidentiality",
    adversary="the broker, which sees to whom each event goes, and an accomplice who tells it the "
    "values of the events",
    defence="cloaks (`cloak`): bounds that are found are those of a group",
    source="[RCT13]",
)
def cloaked_bounds(
    *,
    subscriptions: int = 40,
    values: int = 1000,
    events: int = 500,
    k: int = 5,
    runs: int = 60,
    seed: int = 1,
) -> Outcome:
    """Find both bounds of a subscription in the middle of all subscriptions.

    Subscriptions are ranges between two random values. Groups are neighbours by the lower bound, k
    in each; and those that `cloak` makes. A bound is guessed to be that of the group; or, as the
    groups are neighbours, the lower one to be between that of the group and that of the next group,
    and the upper one between this guess and that of the group. The latter is better for large k.

    Args:
        subscriptions: number of subscriptions.
        values: number of values of the attribute.
        events: number of events, of uniform values.
        k: number of members of a group, with the defence.
        runs: number of simulations.
        seed: seed of the simulations.

    Example:
        >>> from ccbps.attacks import cloaked_bounds
        >>> error = cloaked_bounds()["error of both bounds"]
        >>> error.undefended < 5 and error.defended > 150           # of 1,000 values
        True
    """
    whole("values", values, 2, 1 << 32)
    sizes = sorted({1, 2, 3, 5, 7, 10, whole("k", k, 1)})
    whole("subscriptions", subscriptions, max(sizes))
    schema, random = _line(values), np.random.default_rng(whole("seed", seed, 0))
    errors = np.full((3, len(sizes), whole("runs", runs, 1)), np.nan)
    for run in range(runs):
        ranges = _ranges(random, subscriptions, values)
        ranges = ranges[np.lexsort(ranges.T[::-1])]
        points = random.integers(0, values, (1, whole("events", events, 1)))
        for at, size in enumerate(sizes):
            middle = subscriptions // 2
            target = middle - middle % size + int(random.integers(size))
            neighbours = np.arange(subscriptions) // size
            cloaks = cloak_boxes(schema, _boxes(schema, ranges), size)
            cheapest = neighbours if cloaks is None else cloaks.groups
            for way, groups in enumerate((neighbours, cheapest)):
                own, following = (groups == groups[target] + step for step in (0, 1))
                members = [ranges[own], ranges[following if following.any() else own]]
                low, high = np.array([(each[:, 0].min(), each[:, 1].max()) for each in members]).T
                values_read = points.T
                hits = (values_read >= low) & (values_read <= high)
                if not hits[:, 0].any():
                    continue
                placed = place_bounds(points.astype(np.float64), hits, np.array([float(values)]))
                guess = placed[0, 0]
                errors[way, at, run] = np.abs(guess - ranges[target]).sum()
                if way == 0:
                    if size > 1:
                        least = (guess[0] + min(placed[1, 0, 0], guess[1])) / 2
                        guess = np.array([least, (least + guess[1]) / 2])
                    errors[2, at, run] = np.abs(guess - ranges[target]).sum()
    lower, least_cost, within = np.nanmean(errors, axis=2).tolist()
    at, expected = sizes.index(k), 2 * placing_error(values, events)
    figures = (
        Figure("error of both bounds", "", lower[0], lower[at], expected),
        Figure(
            "error of both bounds, cheapest groups", "", least_cost[0], least_cost[at], expected
        ),
        Figure("error of both bounds, guessed within", "", within[0], within[at], expected),
    )
    lines = {
        "without defence": (lower[0],) * len(sizes),
        "with groups by lower bound": tuple(lower),
        "with cheapest groups": tuple(least_cost),
        "with groups, guessed within": tuple(within),
    }
    label = f"error of both bounds (of {values:,} values)"
    return Outcome(figures, Curve("members of a group", label, tuple(sizes), lines, "y"))


@attack(
    title="Receivers of two versions of a release pool them",
    goal="confidentiality",
    adversary="two receivers, each with a version of the same records for another k; they know "
    "which records are the same, by their payloads",
    defence="versions that are derived from one another (`Release.versions`)",
    source="[ZSSC15]",
)
def colluding_versions(
    *, records: int = 300, k: int = 3, coarser: int = 5, runs: int = 10, seed: int = 1
) -> Outcome:
    """Intersect the classes of two versions.

    Without the defence the versions are made independently. With it, the coarser one is made of
    whole classes of the finer one.

    Args:
        records: number of records, with one attribute that identifies.
        k: least number of records of a class of the finer version.
        coarser: least number of records of a class of the other version.
        runs: number of simulations.
        seed: seed of the simulations.

    Example:
        >>> from ccbps.attacks import colluding_versions
        >>> fewest = colluding_versions()["fewest records left"]
        >>> fewest.undefended, fewest.defended
        (1.0, 3.0)
    """
    whole("coarser", coarser, whole("k", k, 1))
    whole("records", records, 2 * coarser)
    random = np.random.default_rng(whole("seed", seed, 0))
    schema = _line(1000)
    others = sorted({coarser, *(whole("k", k, 1) + step for step in (1, 2, 3, 5, 7, 9))})
    left = np.zeros((2, 3, len(others), whole("runs", runs, 1)))
    for run in range(runs):
        values = {"value": random.integers(0, 1000, records)}
        fine = Anonymizer(schema, k).release(values)
        for at, other in enumerate(others):
            versions = Anonymizer(schema, other).release(values), fine.derive(other)
            for way, version in enumerate(versions):
                remaining = records_left([fine, version])
                below = float((remaining < k).mean())
                left[way, :, at, run] = remaining.min(), remaining.mean(), below
    least, mean, share = left.mean(axis=3).transpose(1, 2, 0)[:, others.index(coarser)].tolist()
    figures = (
        Figure("fewest records left", "", *least),
        Figure("mean number of records left", "", *mean),
        Figure("records with fewer than k left", "", *share),
    )
    lines = {
        "without defence": tuple(left[0, 0].mean(axis=1).tolist()),
        "with derived versions": tuple(left[1, 0].mean(axis=1).tolist()),
    }
    label = "fewest records left"
    return Outcome(figures, Curve("k of the coarser version", label, tuple(others), lines))


@attack(
    title="A class whose records all have one sensitive value gives it away",
    goal="confidentiality",
    adversary="a receiver of a release, who knows of a person what identifies it, and that its "
    "record is in the release",
    defence="a rule on diversity (`Distinct`, `Entropy`, `Recursive`)",
    source="[MKGV07]",
)
def homogeneous_classes(
    *, records: int = 2000, k: int = 5, often: float = 0.7, seed: int = 1
) -> Outcome:
    """Look at the sensitive values in the class of each record.

    Sensitive values have nothing to do with what identifies. One of four values is frequent.

    Args:
        records: number of records.
        k: least number of records of a class.
        often: share of records with the most frequent value, at most 0.99; the others are equally
            rare.
        seed: seed of the records.

    Example:
        >>> from ccbps.attacks import homogeneous_classes
        >>> certain = homogeneous_classes()["records whose value is certain"]
        >>> certain.undefended > 0.1, certain.defended
        (True, 0.0)
    """
    sizes = sorted({2, 3, 4, 8, 12, 20, whole("k", k, 2)})
    whole("records", records, 2 * max(sizes))
    random = np.random.default_rng(whole("seed", seed, 0))
    names = ["none", "cold", "flu", "gout"]
    schema = Schema(value=Decimal(0, 9999, 1), illness=Category(names))
    number("often", often, 0, 0.99)  # else no class is diverse
    chances = [often, *[(1 - often) / 3] * 3]
    values = {
        "value": random.integers(0, 10000, records),
        "illness": random.choice(names, records, p=chances).tolist(),
    }

    def released(size: int, rule: Diversity | None) -> Release:
        return Anonymizer(schema, size, sensitive=["illness"], diversity=rule).release(values)

    def sure(release: Release) -> float:
        return float((certainty(release) == 1).mean())

    plain, defended = released(k, None), released(k, Distinct(2))
    figures = (
        Figure(
            "records whose value is certain",
            "",
            sure(plain),
            sure(defended),
            sum(chance**k for chance in chances),
        ),
        Figure(
            "mean certainty", "", float(certainty(plain).mean()), float(certainty(defended).mean())
        ),
        Figure("loss", "", plain.report.loss, defended.report.loss),
    )
    rules = {
        "without defence": None,
        "with Distinct(2)": Distinct(2),
        "with Entropy(2)": Entropy(2),
    }
    lines = {
        name: tuple(sure(released(size, rule)) for size in sizes) for name, rule in rules.items()
    }
    label = "records whose value is certain (share)"
    return Outcome(figures, Curve("k", label, tuple(sizes), lines))


def records_left(releases: Sequence[Release]) -> Index:
    """Count the records that receivers of all releases cannot tell from each record.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.anonymity import Anonymizer
        >>> from ccbps.attacks import records_left
        >>> schema, values = Schema(age=UInt(7)), {"age": [20, 21, 40, 42, 60, 66]}
        >>> pairs, triples = (Anonymizer(schema, k).release(values) for k in (2, 3))
        >>> records_left([pairs, pairs.derive(3)])
        array([2, 2, 2, 2, 2, 2])
        >>> records_left([pairs, triples])
        array([2, 2, 1, 1, 2, 2])

    Args:
        releases: releases of the same records, with their rows.

    Returns:
        number for each record that is in all releases.

    Raises:
        ParameterError: there is no release.
    """
    if not releases:
        raise ParameterError("releases must hold at least one release")
    classes = np.full((len(releases), releases[0].records), -1)
    for at, release in enumerate(releases):
        classes[at, release.rows] = release.classes
    together = classes[:, (classes >= 0).all(axis=0)]
    _, groups, counts = np.unique(together, axis=1, return_inverse=True, return_counts=True)
    return np.asarray(counts[groups.reshape(-1)])


def certainty(release: Release) -> Reals:
    """Return the share of the most frequent sensitive value in each record's class.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.anonymity import Anonymizer
        >>> from ccbps.attacks import certainty
        >>> anonymizer = Anonymizer(Schema(age=UInt(7), ill=UInt(1)), 2, sensitive=["ill"])
        >>> certainty(anonymizer.release({"age": [20, 21, 40, 42], "ill": [1, 1, 0, 1]}))
        array([1. , 1. , 0.5, 0.5])

    Args:
        release: the release, with its classes.
    """
    codes = [release.events.codes[name] for name in release.anonymizer.sensitive]
    values = numbered(np.concatenate(codes))
    counts = np.zeros((int(release.classes.max(initial=-1)) + 1, int(values.max(initial=-1)) + 1))
    np.add.at(counts, (release.classes, values), 1)
    shares = counts.max(axis=1, initial=0) / np.maximum(1, counts.sum(axis=1))
    return np.asarray(shares[release.classes])


def _line(values: int) -> Schema:
    return Schema(value=Decimal(0, values - 1, 1))


def _ranges(random: np.random.Generator, count: int, values: int) -> Index:
    """Return ranges between two random values, shape (ranges, 2)."""
    return np.sort(random.integers(0, values, (count, 2)), axis=1)


def _boxes(schema: Schema, ranges: Index) -> list[Box]:
    return [Box(schema, {"value": (low, high)}) for low, high in ranges.tolist()]
