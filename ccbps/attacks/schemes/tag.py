"""Attacks on `TagMatch`: the leak of constants by keys in common, and by keys that fit events.

The adversary is the broker. It has bodies of messages, as
`ccbps.matching.contract.access.bodies_of` cuts them out, the public parameters, and the key of the
public permutation. Keys that subscriptions have in common show which of their bounds begin with the
same bits. So bounds form a tree, but at each node the broker does not know which branch is 0 and
which is 1. `ccbps.matching.tag.tag_words` explains why. The attacks differ in the knowledge that
determines the branches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Numbers, Reals
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.views import hits_of, read_answers
from ccbps.checks import whole
from ccbps.ciphers.word_prf import KEY_BYTES
from ccbps.forms.prefixes import range_prefixes
from ccbps.matching.contract.access import bodies_of
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.roles import Subscriber
from ccbps.matching.tag.tag import TagMatch
from ccbps.matching.tag.tag_words import TagWords
from ccbps.predicates import Schema, UInt

Path: TypeAlias = tuple[int, ...]
"""Turns from the root of a tree to a node, each 0 or 1."""


# -- keys of subscriptions -------------------------------------------------------------------------


def keys_of(matcher: TagMatch, interests: Bytes, attribute: str) -> Numbers:
    """Number the keys that subscriptions have for an attribute, equal keys alike.

    Args:
        matcher: the matcher; its parameters are public.
        interests: bodies of subscriptions.
        attribute: name of an attribute that is no topic.

    Returns:
        numbers of keys, shape (subscriptions, keys).
    """
    words = TagWords(matcher.schema, matcher.topic)
    place = words.order.index(words.others.index(attribute))
    start = sum(words.sizes[:place])
    keys = np.ascontiguousarray(interests).view(f"V{KEY_BYTES}").reshape(len(interests), -1)
    keys = keys[:, start : start + words.sizes[place]]
    return np.unique(keys.reshape(-1), return_inverse=True)[1].reshape(keys.shape)


def keys_in_common(keys: Numbers) -> Numbers:
    """Count the keys that each two subscriptions have in common.

    Args:
        keys: keys by `keys_of`.
    """
    used = np.zeros((len(keys), keys.max() + 1), dtype=np.int64)
    np.put_along_axis(used, keys, 1, axis=1)
    return used @ used.T


def never_holding(keys: Sequence[Numbers]) -> Index:
    """Find the subscriptions that share no key with any other, as only contradictions do.

    Args:
        keys: keys of each attribute by `keys_of`.
    """
    alone = [(np.bincount(each.ravel())[each] == 1).all(axis=1) for each in keys]
    return np.flatnonzero(np.logical_and.reduce(alone))


def limits_from_shares(keys: Numbers, size: int) -> Reals:
    """Estimate c of each ``x < c`` by the share of subscriptions that have a key.

    A key that one in 2^n subscriptions has is taken for a prefix of n bits, and so for 2^-n of the
    domain. A key that a single subscription has is not counted. That works if subscriptions hold
    nothing but the prefixes of their intervals. `TagMatch` adds decoys, which prevent it.

    Args:
        keys: keys by `keys_of`.
        size: number of values of the domain.
    """
    counts = np.bincount(keys.ravel())
    rounded = 2.0 ** np.rint(np.log2(np.maximum(counts, 1) / len(keys)))
    return np.asarray(np.where(counts > 1, size * rounded, 0)[keys].sum(axis=1))


@dataclass
class BoundTree:
    """Tree of single bounds, from keys that only some subscriptions have in common.

    Attributes:
        keys: keys by `keys_of`, of subscriptions with one bound each, all upper or all lower ones.
        bits: number of bits of a bound.
        paths: path of each subscription, as far as it is not alone.
        nodes: path to the node that a key stands for, by the number of the key.
    """

    keys: Numbers
    bits: int
    paths: list[Path] = field(init=False)
    nodes: dict[int, Path] = field(init=False)

    def __post_init__(self) -> None:
        """Build the tree."""
        self.paths, self.nodes = [()] * len(self.keys), {}
        self._total = np.bincount(self.keys.ravel())
        self._split(np.arange(len(self.keys)), ())

    def _inside(self, rows: Index) -> Numbers:
        """Count the rows that have each key that is in no other row and stands for no node."""
        counts = np.bincount(self.keys[rows].ravel(), minlength=len(self._total))
        counts[counts != self._total] = 0
        counts[list(self.nodes)] = 0
        return counts

    def _split(self, rows: Index, path: Path) -> None:
        """Split the rows below a node by the key that most of them share."""
        if len(rows) < 2 or len(path) == self.bits:
            return
        key = int(self._inside(rows).argmax())
        has = (self.keys[rows] == key).any(axis=1)
        for turn, part in enumerate((rows[has], rows[~has])):
            if turn and len(part):
                counts = self._inside(part)
                key = int(counts.argmax())
                if counts[key] < len(part):
                    return
            if len(part):
                here = (*path, turn)
                self.nodes[key] = here
                for row in part:
                    self.paths[row] = here
                self._split(part, here)


# -- turns of the tree -----------------------------------------------------------------------------


def limits_from_turns(paths: Sequence[Path], ones: Mapping[Path, int], bits: int) -> Reals:
    """Estimate bounds by their paths, as far as the nodes on them are turned.

    Args:
        paths: paths of bounds.
        ones: turn to the side of 1, by the path to the node.
        bits: number of bits of a bound.
    """
    limits = []
    for path in paths:
        low, length = 0, 0
        while length < len(path) and path[:length] in ones:
            low = low << 1 | (path[length] == ones[path[:length]])
            length += 1
        limits.append((low + 0.5) * 2 ** (bits - length))
    return np.array(limits)


def turns_from_intervals(tree: BoundTree, intervals: Numbers) -> tuple[dict[Path, int], list[Path]]:
    """Turn the tree of upper bounds by intervals with two bounds.

    At the first bit in which the bounds of an interval differ, the upper one has the 1. The keys
    that an interval has in common with the tree begin as its upper bound does, one turn below that
    node.

    Args:
        tree: tree of upper bounds.
        intervals: keys of the intervals, numbered together with those of the tree.

    Returns:
        turns to the side of 1, and the paths of the intervals' upper bounds.
    """
    ones: dict[Path, int] = {}
    paths = []
    for row in intervals.tolist():
        known = sorted((tree.nodes[key] for key in row if key in tree.nodes), key=len)
        paths.append(known[-1] if known else ())
        if known and len(known[0]) > 1:
            side = known[0][:-1]
            ones[side[:-1]] = side[-1]
    return ones, paths


def turns_from_hits(tree: BoundTree, hits: Bools) -> dict[Path, int]:
    """Turn the tree of upper bounds by the keys that fit some event.

    A key that fits is no decoy. So it stands for a bound whose first bits end in 1.

    Args:
        tree: tree of upper bounds; with lower ones, all resulting bounds are reflected.
        hits: hits of the tree's keys by `hits_of`, shape (events, subscriptions, keys).
    """
    fitting = np.unique(tree.keys[hits.any(axis=0)]).tolist()
    paths = [tree.nodes[key] for key in fitting if key in tree.nodes]
    return {path[:-1]: path[-1] for path in paths}


def limits_from_prior(paths: Sequence[Path], prior: Reals, depth: int) -> Reals:
    """Estimate bounds of known distribution by the most likely way to turn the tree.

    Args:
        paths: paths of bounds.
        prior: probability of each bound, shape (2^bits,).
        depth: number of turns from the root that are considered.

    Returns:
        median of the part of the domain in which each bound lies.
    """
    size = len(prior)
    bits = size.bit_length() - 1
    counts: dict[Path, int] = {}
    for path in paths:
        for length in range(min(len(path), depth) + 1):
            counts[path[:length]] = counts.get(path[:length], 0) + 1
    sums = np.concatenate([[0.0], np.cumsum(prior)])
    best: dict[tuple[Path, Path], tuple[float, bool]] = {}

    def part(node: Path) -> tuple[int, int]:
        low = int("".join(map(str, node)) or "0", 2) << (bits - len(node))
        return low, low + (size >> len(node))

    def score(node: Path, at: Path) -> float:
        """Return the best log-likelihood of what lies below a node, if its bits are `at`."""
        if (node, at) not in best:
            low, high = part(at)
            alone = float(np.log(sums[high] - sums[low] + 1e-300))
            below = [counts.get((*node, turn), 0) for turn in (0, 1)]
            left, turn = counts.get(node, 0) - sum(below), False
            total = left * alone
            if len(node) < depth and any(below):
                straight, crossed = (
                    score((*node, 0), (*at, way)) + score((*node, 1), (*at, 1 - way))
                    for way in (0, 1)
                )
                total, turn = total + max(straight, crossed), crossed > straight
            best[node, at] = total, turn
        return best[node, at][0]

    score((), ())
    limits = []
    for path in paths:
        at: Path = ()
        for length in range(min(len(path), depth)):
            at = (*at, path[length] ^ best[path[:length], at][1])
        low, high = part(at)
        limits.append(np.searchsorted(sums, (sums[low] + sums[high]) / 2))
    return np.array(limits, dtype=float)


# -- hits ------------------------------------------------------------------------------------------


def widths_from_hits(hits: Bools, size: int) -> Reals:
    """Estimate the widths of intervals of uniform values by the frequencies with which keys fit.

    Args:
        hits: hits by `hits_of`.
        size: number of values of the domain.
    """
    counts = hits.sum(axis=0)
    shares = np.maximum(counts, 1) / len(hits)
    rounded = np.where(counts < 16, shares, 2.0 ** np.rint(np.log2(shares)))
    return np.asarray(np.where(counts > 0, size * rounded, 0).sum(axis=1))


def bounds_from_shares(shares: Sequence[Sequence[float]], chances: Reals) -> list[tuple[int, int]]:
    """Find both bounds of intervals of values whose distribution is known.

    Of all intervals with as many prefixes as there are keys that fit, it takes the one whose
    prefixes have the closest frequencies to those of the keys, by chi-squared.

    Args:
        shares: for each interval the shares of events that keys fit, those above 0, ascending.
        chances: probability of each value, shape (2^bits,).
    """
    size = len(chances)
    below = np.concatenate([[0], np.cumsum(chances)])
    covers: dict[int, list[tuple[int, int]]] = {}
    expected: dict[int, list[list[float]]] = {}
    for low in range(size):
        for high in range(low, size):
            cover = range_prefixes(low, high, size.bit_length() - 1)
            parts = [below[code + (size >> length)] - below[code] for code, length in cover]
            covers.setdefault(len(cover), []).append((low, high))
            expected.setdefault(len(cover), []).append(sorted(parts))
    arrays = {count: np.array(rows) for count, rows in expected.items()}
    bounds = []
    for mine in shares:
        if len(mine) not in arrays:  # no key fits, or too few events
            bounds.append((0, 0))
            continue
        theirs = arrays[len(mine)]
        apart = ((np.array(mine) - theirs) ** 2 / theirs).sum(axis=1)
        bounds.append(covers[len(mine)][int(apart.argmin())])
    return bounds


def values_by_trying(
    broker: Broker, client: Subscriber, events: Bytes, attribute: str, values: Sequence[int]
) -> Numbers:
    """Read events with a client's key: try ``x <= v`` for many v.

    Args:
        broker: the broker.
        client: the client that colludes with it.
        events: messages of events.
        attribute: name of the attribute.
        values: values to try, ascending.

    Returns:
        first of these values that each event does not exceed; -1 if nothing matches.
    """
    tried = client.encode([f"{attribute} <= {value}" for value in values])
    below = broker.match_all(events, tried)
    return np.where(below.any(axis=1), np.asarray(values)[below.argmax(axis=1)], -1)


# -- the catalogue ---------------------------------------------------------------------------------


def _bodies(
    matcher: TagMatch,
    records: Mapping[str, Any],
    texts: Mapping[int, Sequence[str]],
    random: np.random.Generator,
) -> tuple[str, Bytes, list[Bytes]]:
    """Return all that a broker has: its key, and bodies of events and of each group's interests."""
    server = matcher.key_server(randomness=random.bytes)
    events = matcher.publisher(server.publisher_key()).encode(records)
    interests = [
        matcher.subscriber(server.subscriber_key("client", group=group)).encode(list(some))
        for group, some in texts.items()
    ]
    return (
        server.broker_key().export_secret_data()["permutation"],
        bodies_of(matcher, events, "event"),
        [bodies_of(matcher, each, "interest") for each in interests],
    )


def _percent(limits: Reals, truth: Numbers, bits: int) -> float:
    """Return the median error of limits in per cent of the domain."""
    return float(100 * np.median(np.abs(limits - truth)) / 2**bits)


@attack(
    title="Intervals with two bounds give the constants of all others away",
    goal="confidentiality",
    adversary="the broker of `TagMatch`, with subscriptions alone",
    defence="a group of their own for intervals with two bounds: `TagMatch(..., groups=2)`",
)
def tag_limits_from_intervals(
    *, singles: int = 500, intervals: int = 300, bits: int = 12, seed: int = 1
) -> Outcome:
    """Read c of subscriptions ``x < c`` where some have two bounds.

    Nothing is known of bounds but that single ones are upper ones. At the first bit in which the
    bounds of an interval differ, the upper one has the 1, which turns a node of the tree of all
    bounds. In a group of their own, intervals have no key in common with the tree, so that only a
    guess is left: the middle of the domain. Their own bounds they show to one another, in that
    group, too.

    Args:
        singles: number of subscriptions with one bound, 2 or more.
        intervals: number of subscriptions with two bounds, 1 or more.
        bits: number of bits of a value, 4 to 20.
        seed: seed of the bounds.

    Example:
        >>> from ccbps.attacks import tag_limits_from_intervals
        >>> outcome = tag_limits_from_intervals(intervals=100)
        >>> error = outcome["median error of constants"]
        >>> error.undefended < 5 and error.defended > 20
        True
    """
    whole("singles", singles, 2)
    whole("intervals", intervals, 1)
    random = np.random.default_rng(whole("seed", seed, 0))
    size = 1 << whole("bits", bits, 4, 20)
    limits = random.integers(2, size, singles)
    pairs = np.sort(random.integers(1, size - 1, (intervals, 2)), axis=1)
    texts = [f"x < {limit}" for limit in limits]
    two = [f"x BETWEEN {low} AND {high}" for low, high in pairs]
    counts = sorted({round(intervals * part) for part in (0, 0.01, 0.03, 0.1, 0.3, 1)})
    errors: list[list[float]] = []
    for apart in (False, True):
        matcher = TagMatch(Schema(x=UInt(bits)), groups=1 + apart)
        groups = {0: texts, 1: two} if apart else {0: [*texts, *two]}
        keys = keys_of(matcher, np.concatenate(_bodies(matcher, {"x": []}, groups, random)[2]), "x")
        tree = BoundTree(keys[:singles], bits)
        errors.append([])
        for count in counts:
            ones, _ = turns_from_intervals(tree, keys[singles : singles + count])
            estimates = limits_from_turns(tree.paths, ones, bits)
            errors[-1].append(_percent(estimates, limits, bits))
    return Outcome(
        (
            Figure(
                "median error of constants", "% of the domain", errors[False][-1], errors[True][-1]
            ),
        ),
        Curve(
            "subscriptions with two bounds",
            "median error of constants (% of the domain)",
            tuple(counts),
            {
                "without defence": tuple(errors[False]),
                "with a group for intervals": tuple(errors[True]),
            },
        ),
    )


@attack(
    title="A few events give the constants of many subscriptions away",
    goal="confidentiality",
    adversary="the broker of `TagMatch`, with subscriptions and a few events, of unknown values",
    defence="many groups with few subscriptions each, and events that reach one of them: "
    "`TagMatch(..., groups=)`, `KeyServer.publisher_key(groups=)`",
)
def tag_limits_from_events(
    *, subscriptions: int = 300, events: int = 100, groups: int = 30, bits: int = 12, seed: int = 1
) -> Outcome:
    """Read c of subscriptions ``x < c`` by the keys that fit some event.

    Nothing is known of bounds but that they are upper ones, and nothing of values. A key that fits
    an event is no decoy, which turns a node of the tree of all bounds. With groups, each event
    reaches one group, and the broker has a small tree for each, with few events to turn it.

    Args:
        subscriptions: number of subscriptions, 2 for each group or more.
        events: number of events, 2 or more.
        groups: number of groups, with the defence.
        bits: number of bits of a value, 4 to 20.
        seed: seed of bounds and values.

    Example:
        >>> from ccbps.attacks import tag_limits_from_events
        >>> error = tag_limits_from_events(events=50)["median error of constants"]
        >>> error.undefended < 3 < error.defended
        True
    """
    whole("groups", groups, 2)
    whole("subscriptions", subscriptions, 2 * groups)
    whole("events", events, 2)
    random = np.random.default_rng(whole("seed", seed, 0))
    size = 1 << whole("bits", bits, 4, 20)
    limits = random.integers(2, size, subscriptions)
    values = (size * random.beta(2, 5, events)).astype(int)
    counts = sorted({max(1, round(events * part)) for part in (0.02, 0.05, 0.1, 0.2, 0.5, 1)})
    errors = []
    for number in (1, groups):
        matcher = TagMatch(Schema(x=UInt(bits)), groups=number)
        server = matcher.key_server(randomness=random.bytes)
        permutation = server.broker_key().export_secret_data()["permutation"]
        estimates = np.empty((len(counts), subscriptions))
        for group in range(number):
            rows, mine = slice(group, None, number), slice(group, None, number)
            key = server.subscriber_key("client", group=group)
            texts = [f"x < {limit}" for limit in limits[rows]]
            interests = bodies_of(matcher, matcher.subscriber(key).encode(texts), "interest")
            publisher = matcher.publisher(server.publisher_key(groups=[group]))
            sent = bodies_of(matcher, publisher.encode({"x": values[mine]}), "event")
            tree = BoundTree(keys_of(matcher, interests, "x"), bits)
            hits = hits_of(permutation, sent, interests)
            for place, count in enumerate(counts):
                seen = len(range(group, count, number))
                ones = turns_from_hits(tree, hits[:seen])
                estimates[place, rows] = limits_from_turns(tree.paths, ones, bits)
        errors.append([_percent(each, limits, bits) for each in estimates])
    return Outcome(
        (Figure("median error of constants", "% of the domain", errors[0][-1], errors[1][-1]),),
        Curve(
            "events",
            "median error of constants (% of the domain)",
            tuple(counts),
            {
                "without defence": tuple(errors[0]),
                f"with {groups} groups": tuple(errors[1]),
            },
            log="x",
        ),
    )


@attack(
    title="Counted hits give both bounds of intervals away",
    goal="confidentiality",
    adversary="the broker of `TagMatch`, which knows how values are distributed, but no event",
    defence="a matcher that shows the answers only, such as `FormulaMatch`",
)
def tag_bounds_from_hits(
    *, intervals: int = 40, events: int = 2000, bits: int = 6, seed: int = 1
) -> Outcome:
    """Read intervals by how often each of their keys fits.

    Values are uneven. The keys that fit are those of an interval's prefixes, and each fits as often
    as its prefix occurs. A broker of a one-time matcher can count as well, but answers only, and
    many intervals match about as often. Each subscription is looked at by itself: the answers of
    many together tell more, with any matcher that shows answers.

    Args:
        intervals: number of intervals, 1 or more.
        events: number of events, 10 or more.
        bits: number of bits of a value, 3 to 8.
        seed: seed of bounds and values.

    Example:
        >>> from ccbps.attacks import tag_bounds_from_hits
        >>> share = tag_bounds_from_hits()["intervals read exactly"]
        >>> share.undefended > 0.4 > 0.1 >= share.defended
        True
    """
    whole("intervals", intervals, 1)
    whole("events", events, 10)
    random = np.random.default_rng(whole("seed", seed, 0))
    size = 1 << whole("bits", bits, 3, 8)
    chances = np.exp(-np.arange(size) * 2.5 / size)
    chances /= chances.sum()
    pairs = np.sort(random.integers(0, size, (intervals, 2)), axis=1)
    truth = [tuple(pair) for pair in pairs.tolist()]
    texts = [f"x BETWEEN {low} AND {high}" for low, high in truth]
    values = random.choice(size, events, p=chances)
    tags = TagMatch(Schema(x=UInt(bits)))
    permutation, sent, (interests,) = _bodies(tags, {"x": values}, {0: texts}, random)
    hits = hits_of(permutation, sent, interests)

    answers = read_answers(tags.schema, {"x": values}, texts)[:, :, 0].T
    below = np.concatenate([[0], np.cumsum(chances)])
    every = [(low, high) for low in range(size) for high in range(low, size)]
    masses = np.array([below[high + 1] - below[low] for low, high in every])

    counts = sorted({round(events * part) for part in (0.1, 0.2, 0.5, 1)})
    read: list[list[float]] = [[], []]
    for count in counts:
        means = hits[:count].mean(axis=0)
        estimates = bounds_from_shares([sorted(row[row > 0].tolist()) for row in means], chances)
        read[0].append(np.mean([a == b for a, b in zip(estimates, truth, strict=True)]).item())
        shares = answers[:, :count].mean(axis=1)
        estimates = [every[int(np.abs(masses - share).argmin())] for share in shares]
        read[1].append(np.mean([a == b for a, b in zip(estimates, truth, strict=True)]).item())
    return Outcome(
        (Figure("intervals read exactly", "", read[0][-1], read[1][-1]),),
        Curve(
            "events",
            "intervals read exactly (share)",
            tuple(counts),
            {"without defence": tuple(read[0]), "with FormulaMatch": tuple(read[1])},
            log="x",
        ),
    )


@attack(
    title="The broker and one client read what the client's group gets",
    goal="confidentiality",
    adversary="the broker of `TagMatch` and any one client, who pool their keys",
    defence="groups, and events that reach few of them: `TagMatch(..., groups=)`, "
    "`KeyServer.publisher_key(groups=)`; against the broker and a client, a one-time matcher",
)
def tag_collusion(*, events: int = 240, groups: int = 8, bits: int = 8, seed: int = 1) -> Outcome:
    """Read events by trying all constants with a client's key.

    Without groups, all clients have one key, and any one of them gives all events away. With
    groups, each event reaches one, and the client's key reads those of its own group.

    Args:
        events: number of events, 1 or more.
        groups: number of groups, with the defence.
        bits: number of bits of a value, 1 to 12.
        seed: seed of the values.

    Example:
        >>> from ccbps.attacks import tag_collusion
        >>> print(tag_collusion(groups=4)["events read"])
        Figure(name='events read', unit='', undefended=1.0, defended=0.25, expected=1.0)
    """
    whole("events", events, 1)
    whole("groups", groups, 2)
    random = np.random.default_rng(whole("seed", seed, 0))
    values = random.integers(0, 1 << whole("bits", bits, 1, 12), events)
    counts = sorted({2**power for power in range(groups.bit_length())} | {groups})
    read = []
    for count in counts:
        matcher = TagMatch(Schema(x=UInt(bits)), groups=count)
        server = matcher.key_server()
        client = matcher.subscriber(server.subscriber_key("mallory", group=0))
        broker = matcher.broker(server.broker_key())
        right = 0
        for group in range(count):
            mine = values[group::count]
            publisher = matcher.publisher(server.publisher_key(groups=[group]))
            readings = values_by_trying(
                broker, client, publisher.encode({"x": mine}), "x", range(1 << bits)
            )
            right += int((readings == mine).sum())
        read.append(right / events)
    return Outcome(
        (Figure("events read", "", read[0], read[-1], 1.0),),
        Curve(
            "groups",
            "events read (share)",
            tuple(counts),
            {"without defence": (read[0],) * len(counts), "with groups": tuple(read)},
            log="x",
        ),
    )
