"""Scans: from delays alone, clients find brokers of an overlay, and the clients behind them.

A client can overload a broker that it does not see. The delay of probes that cross this broker then
grows and grows, that of other probes does not. Source: [ABCDFQ14].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Index, Reals
from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.checks import number, whole

Observe: TypeAlias = Callable[[Reals, Bools], Reals]
"""Function that lets each flood publish at a rate, shape (floods,), one flood after the other, and
returns the delays of probes between some pairs meanwhile. The pairs are given by a mask of shape
(floods, pairs). The delays have a row for each True of it, and the probes in order of time."""

STEP: Final = 1.6
"""Factor between successive rates that a scan tries first."""
HALVINGS: Final = 6
"""Number of times that a scan halves the last step."""
LEAST: Final = 25.0
"""Rate at which a scan begins, in events a second."""
LIMITS: Final = (0.5, 0.9, 1.25, 1.5, 2.0, 3.0, 5.0)
"""Rate limits of the curve, as parts of the least spare capacity of a broker."""


@dataclass(frozen=True)
class Scan:
    """Result of a scan.

    Attributes:
        rates: rate of each flood that overloaded a broker; infinity if none did, shape (floods,).
        marks: pairs of attackers whose probes each flood delayed, shape (floods, pairs).
    """

    rates: Reals
    marks: Bools

    def brokers(self, limit: float = np.inf) -> Bools:
        """Return the brokers that the attackers distinguish: the pairs connected through each.

        Args:
            limit: rate above which the attackers cannot publish.
        """
        return np.unique(self.marks[self.rates <= min(limit, np.finfo(float).max)], axis=0)


def scan(observe: Observe, floods: Bools, most: float, threshold: float) -> Scan:
    """Find brokers from the delays of probes.

    The rate of a flood is raised until the delays of its own probes grow: the median of the later
    half of the probes exceeds that of the earlier half by a threshold, and by the median in a quiet
    network. Then the rate is bisected, and all pairs send probes. A pair is marked if its delays
    grow more than half as much as those of the flood. Floods with equal marks meet at one broker.

    Args:
        observe: function that floods and probes the network.
        floods: pairs of attackers that publish in each flood, shape (floods, pairs).
        most: rate that an attacker cannot exceed, in events a second.
        threshold: least significant growth of delays, in seconds.
    """
    every, idle = np.ones_like(floods), np.zeros(len(floods))
    quiet = np.median(observe(idle, every), axis=1).reshape(floods.shape)

    limit = np.maximum(quiet, threshold)

    def growth(rates: Reals, probed: Bools) -> Reals:
        delays = observe(rates, probed)
        half = delays.shape[1] // 2
        grown = np.full(floods.shape, -np.inf)
        grown[probed] = np.median(delays[:, half:], axis=1) - np.median(delays[:, :half], axis=1)
        return grown

    high = np.full(len(floods), np.inf)
    for rate in LEAST * STEP ** np.arange(1 + int(np.log(most / LEAST) / np.log(STEP))):
        waiting = np.isinf(high)
        if not waiting.any():
            break
        probed = floods & waiting[:, None]
        high[(growth(idle + rate, probed) > limit).any(axis=1)] = rate
    reached = np.isfinite(high)
    low = high / STEP
    for _ in range(HALVINGS):
        middle = np.where(reached, (low + high) / 2, 0.0)
        over = (growth(middle, floods & reached[:, None]) > limit).any(axis=1)
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    grown = growth(np.where(reached, high, 0.0), every)
    largest = np.where(floods, grown, -np.inf).max(axis=1, keepdims=True)
    return Scan(high, grown > largest / 2)


@dataclass(frozen=True)
class Tree:
    """A tree of brokers with attackers at all leaves.

    Attributes:
        parents: parent of each broker but the first, shape (brokers - 1,).
        leaves: brokers with an attacker.
        pairs: pairs of attackers, by the places of their brokers in `leaves`, shape (pairs, 2).
        on: brokers on the path of each pair, shape (pairs, brokers).
        spare: events a second that each broker can serve beside those of honest clients.
        service: events a second that each broker can serve.
        link: delay of the links on the path of each pair, in seconds.
        distances: number of links between brokers, shape (brokers, brokers).
    """

    parents: Index
    leaves: Index
    pairs: Index
    on: Bools
    spare: Reals
    service: Reals
    link: Reals
    distances: Index

    @classmethod
    def draw(cls, brokers: int, load: float, random: np.random.Generator) -> Tree:
        """Draw a tree whose brokers serve 500 to 1,500 events a second.

        Args:
            brokers: number of brokers; each one but the first has an earlier one as its parent.
            load: mean share of its capacity that honest clients take from a broker.
            random: source of the tree.
        """
        parents = np.array([random.integers(place) for place in range(1, brokers)], dtype=np.int64)
        up = np.eye(brokers, dtype=np.bool_)
        for place, parent in enumerate(parents.tolist(), 1):
            up[place] |= up[parent]
        # The root has one link only where all other brokers hang from one.
        ends = np.bincount(parents, minlength=brokers) + (np.arange(brokers) > 0) == 1
        leaves = np.flatnonzero(ends)
        pairs = np.array([*combinations(range(len(leaves)), 2)])
        start, end = up[leaves[pairs[:, 0]]], up[leaves[pairs[:, 1]]]
        depths = up.sum(axis=1)
        meeting = np.where(start & end, depths, 0).argmax(axis=1)
        on = start ^ end
        on[np.arange(len(pairs)), meeting] = True
        service = random.uniform(500, 1500, brokers)
        spare = service * (1 - random.uniform(0, 2 * load, brokers))
        link = np.where(on, random.uniform(0.001, 0.005, brokers), 0).sum(axis=1)
        common = up.astype(np.int64) @ up.T
        distances = depths[:, None] + depths - 2 * common
        return cls(parents, leaves, pairs, on, spare, service, link, distances)

    def floods(self, *, together: bool) -> tuple[Bools, Index]:
        """Return the floods that attackers can make, and the broker to which each one goes.

        Args:
            together: whether all attackers publish to one of them, instead of one attacker.
        """
        if together:
            places = np.arange(len(self.leaves))
            return (self.pairs[None] == places[:, None, None]).any(axis=2), self.leaves
        return np.eye(len(self.pairs), dtype=np.bool_), self.leaves[self.pairs[:, 1]]

    def loads(self, rates: Reals, floods: Bools, ends: Index) -> Reals:
        """Return the events a second that arrive at each broker, shape (floods, brokers).

        An overloaded broker passes on the same share of all that arrives.

        Args:
            rates: rate of each flood, for each of its pairs.
            floods: pairs of each flood.
            ends: broker to which each flood goes.
        """
        passed = floods * rates[:, None]
        loads = np.zeros((len(floods), len(self.service)))
        rows, honest = np.arange(len(floods)), self.service - self.spare
        for brokers in np.argsort(-self.distances[ends], axis=1).T:
            passed_through = self.on.T[brokers] * passed
            total = passed_through.sum(axis=1) + honest[brokers]
            loads[rows, brokers] = total
            kept = self.service[brokers] / np.maximum(total, self.service[brokers])
            passed -= passed_through * (1 - kept)[:, None]
        return loads

    def observer(
        self,
        floods: Bools,
        ends: Index,
        *,
        probes: int,
        window: float,
        jitter: float = 0.0,
        delay: float = 0.0,
        random: np.random.Generator | None = None,
    ) -> Observe:
        """Return the attackers' view of `floods`; by formulas without `random`.

        A broker of rate m and load r delays an event by 1 / (m - r) on average. The delay is
        exponential, and within a window of t seconds a broker near its capacity reaches no more
        than the square root of t / m. Above its capacity it falls behind by r / m - 1 seconds a
        second.

        Args:
            floods: pairs of each flood.
            ends: broker to which each flood goes.
            probes: number of probes of each pair.
            window: seconds in which they are sent.
            jitter: mean jitter of a link, in seconds.
            delay: largest random delay that each broker adds, in seconds.
            random: source of the noise.
        """
        times = (np.arange(probes) + 0.5) * window / probes

        def observe(rates: Reals, probed: Bools) -> Reals:
            loads = self.loads(rates, floods, ends)
            slowest = np.sqrt(self.service / window)
            flood, pair = np.nonzero(probed)
            on = self.on[pair]
            mean = on / np.maximum(self.service - loads, slowest)[flood]
            behind = (on * np.maximum(loads / self.service - 1, 0)[flood]).sum(axis=1)
            delays = self.link[pair][:, None] + behind[:, None] * times
            if random is None:
                return np.asarray(delays + mean.sum(axis=1)[:, None])
            shape = len(flood), probes, on.shape[1]
            drawn = random.standard_exponential(shape, dtype=np.float32)
            delays += np.einsum("fpb,fb->fp", drawn, mean)
            delays += jitter * random.standard_gamma(on.sum(axis=1)[:, None], shape[:2])
            if delay:
                drawn = random.random(shape, dtype=np.float32)
                delays += delay * np.einsum("fpb,fb->fp", drawn, on)
            return np.asarray(delays)

        return observe

    def connected(self) -> Bools:
        """Return the pairs that each broker connects, without repetition, shape (brokers, pairs).

        Brokers that connect the same pairs cannot be told apart.
        """
        return np.unique(self.on.T[self.on.any(axis=0)], axis=0)

    def slowest(self) -> Bools:
        """Return the pairs that each broker connects which has the least to spare for some pair."""
        spare = np.where(self.on, self.spare, np.inf).argmin(axis=1)
        return np.unique(self.on.T[spare], axis=0)


@attack(
    title="Clients find the brokers of an overlay that they cannot see",
    goal="confidentiality",
    adversary="clients at all leaves, which may publish to one another and time their events",
    defence="rates of clients (`Policy`) so low that all clients together overload no broker",
    source="[ABCDFQ14]",
    taxonomy=Taxonomy("semantic", "client", "broker", "global", "stateless", "independent"),
)
def overlay_scan(
    *,
    brokers: int = 12,
    trees: int = 40,
    load: float = 0.25,
    probes: int = 30,
    window: float = 30.0,
    threshold: float = 0.8,
    most: float = 3000.0,
    limit: float = 0.9,
    delay: float = 0.5,
    capacity: float = 4.0,
    seed: int = 1,
) -> Outcome:
    """Place brokers of random trees by overloading them and timing probes.

    A broker is placed if the attackers know exactly which of their pairs it connects. A wrong one
    is a set of pairs that no broker connects. In a quiet network there is no noise and no other
    load. Elsewhere honest clients load the brokers, links have unequal delays and jitter, and the
    delay of each probe at a broker is exponential.

    The defence is a rate limit of each client below what the slowest broker has to spare. It stops
    attackers that flood in pairs. It does not stop all attackers together, who publish to one of
    them at once, unless it is divided by their number. Random delays do not help: the delays of a
    flood grow beyond them. Spare capacity helps as the limit does.

    Args:
        brokers: number of brokers of a tree, 4 to 24.
        trees: number of trees, at most 400.
        load: mean share of its capacity that honest clients take from a broker.
        probes: number of probes of each pair and flood, 2 to 300.
        window: seconds in which they are sent.
        threshold: least growth of delays that the attackers notice, in seconds.
        most: rate that no attacker can exceed, in events a second.
        limit: rate limit with the defence, as a part of the least spare capacity of a broker.
        delay: largest random delay of a broker, with that defence, in seconds.
        capacity: factor of all capacities, with that defence.
        seed: seed of the trees and the noise.

    Example:
        >>> from ccbps.attacks import overlay_scan
        >>> outcome = overlay_scan(trees=5)
        >>> outcome["wrong brokers in a quiet network"].undefended
        0.0
        >>> outcome["brokers placed beside load and noise"].undefended > 2
        True
        >>> outcome["brokers placed beside load and noise"].defended
        0.0
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    whole("brokers", brokers, 4, 24)
    number("load", load, 0, 0.5)
    number("most", most, LEAST)
    timing = {
        "probes": whole("probes", probes, 2, 300),
        "window": number("window", window, 1e-3),
        "jitter": 0.002,
    }

    def scanned(
        tree: Tree, *, together: bool = False, threshold: float = threshold, **options: Any
    ) -> Scan:
        floods, ends = tree.floods(together=together)
        observe = tree.observer(floods, ends, **{**timing, "random": random, **options})
        return scan(observe, floods, most, number("threshold", threshold, 0))

    def judge(tree: Tree, marks: Bools) -> tuple[int, int]:
        """Return how many brokers are placed, and how many are wrong."""
        real = {row.tobytes() for row in tree.connected()}
        placed = sum(row.tobytes() in real for row in marks)
        return placed, len(marks) - placed

    quiet: list[Tree] = []
    loaded: list[Tree] = []
    for _ in range(whole("trees", trees, 1, 400)):
        quiet.append(Tree.draw(brokers, 0.0, random))
        loaded.append(Tree.draw(brokers, load, random))
    added = number("capacity", capacity, 1) - 1
    roomy = [
        replace(
            tree,
            service=capacity * tree.service,
            spare=tree.spare + added * tree.service,
        )
        for tree in loaded
    ]
    scans = {
        "quiet": [(tree, scanned(tree, threshold=0, random=None)) for tree in quiet],
        "pairs": [(tree, scanned(tree)) for tree in loaded],
        "together": [(tree, scanned(tree, together=True)) for tree in loaded],
        "delays": [(tree, scanned(tree, delay=number("delay", delay, 0))) for tree in loaded],
        "roomy": [(tree, scanned(tree)) for tree in roomy],
    }

    def mean(name: str, part: float = np.inf) -> tuple[float, float]:
        """Return the mean numbers of placed and of wrong brokers under a limit."""
        each = [judge(tree, one.brokers(part * tree.spare.min())) for tree, one in scans[name]]
        return float(np.mean([placed for placed, _ in each])), float(np.mean([w for _, w in each]))

    def figures(name: str, where: str, trees: Sequence[Tree] = ()) -> Iterator[Figure]:
        (placed, wrong), (still, wrong_still) = mean(name), mean(name, limit)
        expected = float(np.mean([len(tree.slowest()) for tree in trees])) if trees else None
        yield Figure(f"brokers placed {where}", "", placed, still, expected)
        yield Figure(f"wrong brokers {where}", "", wrong, wrong_still, 0.0 if trees else None)

    placed = mean("pairs")[0]
    divided = np.mean(
        [
            judge(tree, one.brokers(limit * tree.spare.min() / len(tree.leaves)))[0]
            for tree, one in scans["together"]
        ]
    )
    return Outcome(
        (
            *figures("quiet", "in a quiet network", quiet),
            *figures("pairs", "beside load and noise"),
            *figures("together", "by all attackers together"),
            Figure(
                "brokers placed by all under a divided limit",
                "",
                mean("together")[0],
                float(divided),
            ),
            Figure("brokers placed despite random delays", "", placed, mean("delays")[0]),
            Figure("brokers placed despite spare capacity", "", placed, mean("roomy")[0]),
        ),
        Curve(
            "rate limit of a client (part of the least spare capacity)",
            "brokers placed",
            LIMITS,
            {
                name: tuple(mean(key, part)[0] for part in LIMITS)
                for name, key in (
                    ("pairs in a quiet network", "quiet"),
                    ("pairs beside load and noise", "pairs"),
                    ("all attackers together", "together"),
                )
            },
        ),
    )
