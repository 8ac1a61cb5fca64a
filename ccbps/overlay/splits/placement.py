"""Placement of HyShare's enclaves, where they save most messages.

Messages grow with the number of consecutive brokers that split, so an enclave saves most where it
breaks the longest chains that most secrets take. The source names three ways: breadth-first from
the root of a tree, against the longest unbroken chain, and where there is most traffic.

For one route, dynamic programming finds the best places exactly. Messages after an enclave depend
only on the brokers between it and the next enclaves, and a route is a tree. So the messages of a
subtree depend on its shape, the number of its enclaves, and the number of consecutive brokers
before it that split. Subtrees of one shape are planned once: in a tree of constant fan-out, one for
each level. Every part of a line has a shape of its own: 400 brokers and 200 enclaves take some 3 s
and 0.8 GB.

*Erratum*, [Survey] section 8.5: if the first of three brokers is an enclave, its longest chain
(LIBIB) is said to be two hops, and with the second one, zero. Between two brokers that split there
is one hop, and around the second one there is none.

Source: [Survey] section 8.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Index
from ccbps.checks import number, whole
from ccbps.errors import ParameterError
from ccbps.overlay.splits.protocols import ISSPS, HyShare
from ccbps.overlay.topology import Topology

Traffic: TypeAlias = Sequence[tuple[Topology, float]]
Costs: TypeAlias = NDArray[Any]
"""Messages with at most 0, 1, ... enclaves: int64, or Python's integers for larger numbers."""

MOST_SETS: Final = 20_000
"""Largest number of sets of brokers that are tried one by one, for topologies with common
brokers."""


def breadth_first(topology: Topology, count: int) -> list[str]:
    """Return the first brokers of the route, from the root on: the source's choice for trees.

    Args:
        topology: network.
        count: number of enclaves; all brokers of the route if there are fewer.

    Example:
        >>> from ccbps.overlay import Topology, breadth_first
        >>> breadth_first(Topology.tree(3, 2), 2)
        ['B1', 'B2']
    """
    return topology.route[: whole("count", count, 0)]


def most_enclaves(brokers: int, enclaves: int, others: int) -> int:
    """Return the largest number of enclaves that keeps a ratio of enclaves to other brokers.

    Args:
        brokers: number of logical brokers.
        enclaves: first number of the ratio.
        others: second number of the ratio.

    Raises:
        ParameterError: a number is negative, or the ratio is 0 to 0.

    Example:
        One to five: the first one comes with the sixth broker.

        >>> from ccbps.overlay import most_enclaves
        >>> [most_enclaves(brokers, 1, 5) for brokers in (5, 6, 11, 12)]
        [0, 1, 1, 2]
    """
    for name, value in (("brokers", brokers), ("enclaves", enclaves), ("others", others)):
        whole(name, value, 0)
    if not enclaves and not others:
        raise ParameterError("enclaves and others are 0 to 0, which is no ratio")
    return brokers * enclaves // (enclaves + others)


def longest_chain(topology: Topology, enclaves: Iterable[str]) -> int:
    """Count the hops of the longest unbroken chain of brokers that split (LIBIB).

    Raises:
        ParameterError: an enclave is no broker of the topology.

    Example:
        >>> from ccbps.overlay import Topology, longest_chain
        >>> line = Topology.line(3)
        >>> [longest_chain(line, enclaves) for enclaves in ([], ["B1"], ["B2"])]
        [2, 1, 0]
    """
    protocol = ISSPS(2).hybrid(enclaves)
    protocol.check(topology)
    in_a_row = {topology.root: int(topology.root not in protocol.enclaves)}
    for broker in topology.route:
        for child in topology.children[broker]:
            in_a_row[child] = 0 if child in protocol.enclaves else in_a_row[broker] + 1
    return max(0, max(in_a_row.values()) - 1)


def shortest_chains(topology: Topology, protocol: ISSPS, count: int) -> list[str]:
    """Place enclaves with the least `longest_chain`, and among those with the fewest messages.

    The result is exact, for any topology.

    Args:
        topology: network.
        protocol: ISSPS, or HyShare without enclaves.
        count: largest number of enclaves.

    Returns:
        names of logical brokers, breadth-first.

    Raises:
        ParameterError: the count is negative, or the protocol is SSPS, or has enclaves.

    Example:
        >>> from ccbps.overlay import ISSPS, Topology, shortest_chains
        >>> shortest_chains(Topology.line(8), ISSPS(3), 2)
        ['B3', 'B6']
    """
    _check(protocol, count)
    # Brokers in a row: 0 need not be tried, and all are enough.
    low, high = 0, len(topology.route)
    while high - low > 1:
        middle = (low + high) // 2
        enough = _RoutePlanner(topology, protocol, count, middle).possible
        low, high = (low, middle) if enough else (middle, high)
    return _RoutePlanner(topology, protocol, count, high).best()


def fewest_messages(
    topology: Topology | Traffic,
    protocol: ISSPS,
    count: int,
    *,
    rates: Mapping[str, float] | None = None,
) -> list[str]:
    """Place enclaves with the fewest messages.

    The result is exact for one topology of any size, and for several if there are at most 20,000
    sets to choose from. Otherwise a local search starts from the best places of each topology, and
    from brokers that are added greedily. Then each broker is exchanged for another one as long as
    that saves more.

    Args:
        topology: network; or several pairs of a network and a weight, such as one for each
            publisher and the secrets that it shares in an hour. They share brokers by their names.
        protocol: ISSPS, or HyShare without enclaves.
        count: largest number of enclaves.
        rates: secrets of each subscriber in an hour, if each subscriber gets secrets of its own,
            for one topology. By default a secret is for all subscribers.

    Returns:
        names of logical brokers, breadth-first.

    Raises:
        ParameterError: there is no topology; or a weight is not a positive number; or a rate is
            missing or negative; or rates are given for several topologies; or the protocol is SSPS,
            or has enclaves.

    Example:
        >>> from ccbps.overlay import ISSPS, Topology, fewest_messages
        >>> fewest_messages(Topology.line(10), ISSPS(3), 1)
        ['B6']
        >>> there = Topology.line(3)
        >>> back = Topology([("B4", "B3"), ("B3", "B2")], "B4", {"S2": "B2"})
        >>> fewest_messages([(there, 1), (back, 5)], ISSPS(3), 1)
        ['B3']
        >>> tree = Topology.tree(4, 2)
        >>> rates = dict.fromkeys(tree.subscribers, 1) | {"S8": 100}
        >>> fewest_messages(tree, ISSPS(3), 1, rates=rates)
        ['B3']
    """
    _check(protocol, count)
    if isinstance(topology, Topology):
        if rates is not None:
            for subscriber in topology.subscribers:
                number(f"rates[{subscriber!r}]", rates.get(subscriber), 0)
        return _RoutePlanner(topology, protocol, count, len(topology.route), rates).best()
    traffic = [*topology]
    if not traffic or not all(0 < weight < math.inf for _, weight in traffic):
        raise ParameterError("topology must be a Topology, or pairs of one and a positive weight")
    if rates is not None:
        raise ParameterError("rates are for one topology: give several their weights")
    brokers = [*dict.fromkeys(name for network, _ in traffic for name in network.route)]
    count = min(count, len(brokers))

    def cost(enclaves: Iterable[str]) -> Fraction:
        chosen, total = {*enclaves}, Fraction()
        for network, weight in traffic:
            hybrid = protocol.hybrid(chosen & {*network.route})
            # Fractions, since messages may be too many for floats.
            total += Fraction(weight) * hybrid.messages(network)
        return total

    if comb(len(brokers), count) <= MOST_SETS:
        return [*min(combinations(brokers, count), key=cost)]
    starts = [fewest_messages(network, protocol, count) for network, _ in traffic]
    ends = [_exchanged(brokers, start, count, cost) for start in ([], *starts)]
    best = min(ends, key=cost)
    return [name for name in brokers if name in best]


def _exchanged(
    brokers: Sequence[str], start: Sequence[str], count: int, cost: Callable[[list[str]], Fraction]
) -> list[str]:
    """Take brokers one by one where they save most, then exchange them while that saves more."""
    chosen = [*start]
    while len(chosen) < count:
        others = [name for name in brokers if name not in chosen]
        chosen.append(min(others, key=lambda name: cost([*chosen, name])))
    best, better = cost(chosen), True
    while better:
        better = False
        for place in range(count):
            for name in brokers:
                other = [*chosen[:place], name, *chosen[place + 1 :]]
                if name not in chosen and (changed := cost(other)) < best:
                    chosen, best, better = other, changed, True
    return chosen


def _check(protocol: ISSPS, count: int) -> None:
    whole("count", count, 0)
    placed = isinstance(protocol, HyShare) and bool(protocol.enclaves)
    if not isinstance(protocol, ISSPS) or placed:
        raise ParameterError(
            f"protocol must be ISSPS, or HyShare without enclaves, got {protocol!r}: enclaves are "
            "the result"
        )


class _Plan(NamedTuple):
    """Plan of a subtree, for each largest number of enclaves.

    Attributes:
        costs: messages that arrive at its brokers and subscribers.
        enclave: 1 if the root of the subtree is an enclave.
        shares: enclaves of each child but the first, for either kind of root.
    """

    costs: Costs
    enclave: Index
    shares: tuple[list[Index], list[Index]]


class _RoutePlanner:
    """Planner of a route, for each number of enclaves up to a limit.

    There is also a limit of brokers in a row that split.

    Args:
        topology: network.
        protocol: ISSPS, or HyShare without enclaves.
        count: largest number of enclaves.
        most: largest number of brokers in a row that split.
        rates: secrets of each subscriber, if each has its own; None if all have the same secrets.
    """

    def __init__(
        self,
        topology: Topology,
        protocol: ISSPS,
        count: int,
        most: int,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        self.topology, self.n, self.most = topology, protocol.n, most
        # Messages of a secret from an enclave to an enclave or subscriber.
        self.whole = 1 if protocol.direct else protocol.n
        self.count = min(count, len(topology.route))
        # Rates as whole numbers in the same proportions.
        exact = {name: Fraction(rate) for name, rate in (rates or {}).items()}
        common = math.lcm(*(rate.denominator for rate in exact.values()))
        secrets = {name: int(rate * common) for name, rate in exact.items()}
        worst = ISSPS(protocol.k, protocol.n).messages(topology)
        worst *= max(1, sum(secrets.values()))
        self.dtype: Any = np.int64 if worst < 1 << 60 else object
        self.never = 1 << 60 if worst < 1 << 60 else 2 * worst
        # A shape is known by its number. Its key has the shapes of its root's children, and the
        # secrets of its root's subscribers.
        shapes: dict[tuple[tuple[int, ...], int], int] = {}
        self.shape: dict[str, int] = {}
        self.size: dict[int, int] = {}
        self.load: dict[int, int] = {}  # secrets that come to the root of a subtree
        for broker in reversed(topology.route):
            below = (*(self.shape[child] for child in topology.children[broker]),)
            clients = topology.clients[broker]
            own = len(clients) if rates is None else sum(secrets[name] for name in clients)
            self.shape[broker] = shape = shapes.setdefault((below, own), len(shapes))
            self.size[shape] = 1 + sum(self.size[child] for child in below)
            loads = sum(self.load[child] for child in below)
            self.load[shape] = 1 if rates is None else own + loads
        self.keys = [*shapes]
        level, deepest = {topology.root: 0}, [0] * len(shapes)
        for broker in topology.route:
            level |= dict.fromkeys(topology.children[broker], level[broker] + 1)
            shape = self.shape[broker]
            deepest[shape] = max(deepest[shape], level[broker])
        self.plans: dict[tuple[int, int], _Plan] = {}
        for shape in range(len(shapes)):  # children come before their parents
            for row in range(min(most, deepest[shape]) + 1):
                self.plans[shape, row] = self._plan(shape, row)

    @property
    def possible(self) -> bool:
        """True if there is any placement within the limit."""
        return bool(self.plans[self.shape[self.topology.root], 0].costs[-1] < self.never)

    def best(self) -> list[str]:
        """List the best enclaves, breadth-first."""
        chosen = set()
        waiting = [(self.topology.root, 0, self.count)]
        while waiting:
            broker, row, count = waiting.pop()
            plan = self.plans[self.shape[broker], row]
            count = min(count, len(plan.costs) - 1)
            enclave = int(plan.enclave[count])
            if enclave:
                chosen.add(broker)
            left, below = count - enclave, 0 if enclave else row + 1
            children = self.topology.children[broker]
            for child, share in zip(children[:0:-1], plan.shares[enclave][::-1], strict=True):
                given = int(share[min(left, len(share) - 1)])
                waiting.append((child, below, given))
                left -= given
            if children:
                waiting.append((children[0], below, left))
        return [broker for broker in self.topology.route if broker in chosen]

    def _plan(self, shape: int, row: int) -> _Plan:
        """Plan a shape behind a number of brokers in a row that split."""
        (children, clients), load = self.keys[shape], self.load[shape]
        size = min(self.count, self.size[shape]) + 1
        costs = np.full((2, size), self.never, dtype=self.dtype)
        shares: list[list[Index]] = [[np.zeros(1, dtype=np.intp)] * (len(children) - 1)] * 2
        if row < self.most:
            below, shares[0] = self._joined(children, row + 1)
            costs[0] = self._add(below, self.n ** (row + 1) * (load + clients), size)
        if size > 1:
            arriving = self.n**row if row else self.whole
            below, shares[1] = self._joined(children, 0)
            costs[1, 1:] = self._add(below, arriving * load + self.whole * clients, size - 1)
        enclave = (costs[1] < costs[0]).astype(np.intp)
        return _Plan(costs.min(axis=0), enclave, (shares[0], shares[1]))

    def _add(self, below: Costs, more: int, size: int) -> Costs:
        """Add the messages of a parent to those of its children, for each number of enclaves.

        More enclaves than brokers save nothing.
        """
        full = np.concatenate([below, np.full(max(0, size - len(below)), below[-1], self.dtype)])
        return np.asarray(np.minimum(full[:size] + more, self.never))

    def _joined(self, children: tuple[int, ...], row: int) -> tuple[Costs, list[Index]]:
        """Join the plans of several subtrees.

        Returns:
            messages of all of them, and the enclaves of each but the first.
        """
        total: Costs = np.zeros(1, dtype=self.dtype)
        shares: list[Index] = []
        for place, child in enumerate(children):
            costs = self.plans[child, row].costs
            if not place:
                total = costs
                continue
            length = min(self.count + 1, len(total) + len(costs) - 1)
            joined = np.full(length, self.never, dtype=self.dtype)
            share = np.zeros(length, dtype=np.intp)
            for given, cost in enumerate(costs.tolist()):
                part = total[: length - given] + cost
                here = joined[given : given + len(part)]
                better = part < here
                here[better] = part[better]
                share[given : given + len(part)][better] = given
            total = np.minimum(joined, self.never)
            shares.append(share)
        return total, shares
