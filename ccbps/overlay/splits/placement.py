"""Where enclaves save most messages: HyShare's placement.

Messages grow with the number of brokers in a row that split, so an enclave is worth most where it
breaks the longest rows that most secrets take. The source names three ways: breadth-first from the
root of a tree, against the longest unbroken chain, and where there is most traffic.

For one route the best places are found exactly: `ccbps.overlay.splits.route_planner`.

*Erratum*, [Survey] section 8.5: with the first of three brokers an enclave, its longest chain
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
from typing import Final, TypeAlias

from ccbps.errors import ParameterError
from ccbps.overlay.splits.protocols import ISSPS, HyShare
from ccbps.overlay.splits.route_planner import RoutePlanner
from ccbps.overlay.topology.topology import Topology, check_count

Traffic: TypeAlias = Sequence[tuple[Topology, float]]

MOST_SETS: Final = 20_000
"""Sets of brokers that are tried one by one, where several topologies share brokers."""


def breadth_first(topology: Topology, count: int) -> list[str]:
    """The first brokers of the route, from the root on: the source's choice for trees.

    Args:
        topology: where.
        count: of enclaves; all brokers of the route if there are fewer.

    Example:
        >>> from ccbps.overlay import Topology, breadth_first
        >>> breadth_first(Topology.tree(3, 2), 2)
        ['B1', 'B2']
    """
    check_count(count, "count", least=0)
    return topology.route[:count]


def most_enclaves(brokers: int, enclaves: int, others: int) -> int:
    """How many of some logical brokers may be enclaves, if there are at most so many enclaves to so
    many other brokers.

    Example:
        One to five: the first one comes with the sixth broker.

        >>> from ccbps.overlay import most_enclaves
        >>> [most_enclaves(brokers, 1, 5) for brokers in (5, 6, 11, 12)]
        [0, 1, 1, 2]
    """
    for name, value in (("brokers", brokers), ("enclaves", enclaves), ("others", others)):
        check_count(value, name, least=0)
    if not enclaves and not others:
        raise ParameterError("enclaves and others are 0 to 0, which is no ratio")
    return brokers * enclaves // (enclaves + others)


def longest_chain(topology: Topology, enclaves: Iterable[str]) -> int:
    """Hops of the longest unbroken chain of brokers that split, from each to the next (LIBIB).

    Example:
        >>> from ccbps.overlay import Topology, longest_chain
        >>> line = Topology.line(3)
        >>> [longest_chain(line, enclaves) for enclaves in ([], ["B1"], ["B2"])]
        [2, 1, 0]
    """
    protocol = HyShare(2, enclaves=enclaves)
    protocol.check(topology)
    brokers = {topology.root: 0 if topology.root in protocol.enclaves else 1}
    for broker in topology.route:
        for child in topology.children[broker]:
            brokers[child] = 0 if child in protocol.enclaves else brokers[broker] + 1
    return max(0, max(brokers.values()) - 1)


def shortest_chains(topology: Topology, protocol: ISSPS, count: int) -> list[str]:
    """At most so many enclaves with the least `longest_chain`, and with that, fewest messages.

    Exact, for any topology.

    Args:
        topology: where.
        protocol: n, and whether `HyShare.direct`.
        count: of enclaves.

    Returns:
        names of logical brokers, breadth-first.

    Example:
        >>> from ccbps.overlay import ISSPS, Topology, shortest_chains
        >>> shortest_chains(Topology.line(8), ISSPS(3), 2)
        ['B3', 'B6']
    """
    _check(protocol, count)
    low, high = 0, len(topology.route)  # brokers in a row: none need not be tried, all are enough
    while high - low > 1:
        middle = (low + high) // 2
        enough = RoutePlanner(topology, protocol, count, middle).possible
        low, high = (low, middle) if enough else (middle, high)
    return RoutePlanner(topology, protocol, count, high).best()


def fewest_messages(
    topology: Topology | Traffic,
    protocol: ISSPS,
    count: int,
    *,
    rates: Mapping[str, float] | None = None,
) -> list[str]:
    """At most so many enclaves with the fewest messages.

    Exact for one topology of any size, and for several where there are at most 20,000 sets to
    choose from. Otherwise a search: from the best places of each one, and from brokers that are
    taken one by one where they save most, each is exchanged as long as that saves more.

    Args:
        topology: where; or several (topology, weight), such as one for each publisher and the
            secrets an hour that it shares; they share brokers by their names.
        protocol: n, and whether `HyShare.direct`.
        count: of enclaves.
        rates: of one topology, if each subscriber gets secrets of its own: how many an hour, for
            each subscriber. By default a secret is for all of them.

    Returns:
        names of logical brokers, breadth-first.

    Raises:
        ParameterError: there is no topology; or a weight is not a positive number, a rate not one
            of at least 0, or missing; or rates are given for several topologies; or the protocol is
            SSPS, or has enclaves.

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
        _check_rates(rates, topology)
        return RoutePlanner(topology, protocol, count, len(topology.route), rates).best()
    traffic = [*topology]
    if not traffic or not all(0 < weight < math.inf for _, weight in traffic):
        raise ParameterError("topology must be a Topology, or pairs of one and a positive weight")
    if rates is not None:
        raise ParameterError("rates are for one topology: give several their weights")
    brokers = [*dict.fromkeys(name for one, _ in traffic for name in one.route)]
    count = min(count, len(brokers))

    # Fractions, since messages may be too many for floats.
    weighted = [(one, Fraction(weight)) for one, weight in traffic]

    def cost(enclaves: Iterable[str]) -> Fraction:
        chosen = {*enclaves}
        return sum(
            (w * _with(protocol, chosen & {*one.route}).messages(one) for one, w in weighted),
            Fraction(),
        )

    if comb(len(brokers), count) <= MOST_SETS:
        return [*min(combinations(brokers, count), key=cost)]
    starts = [fewest_messages(one, protocol, count) for one, _ in traffic]
    found = [_exchanged(brokers, start, count, cost) for start in ([], *starts)]
    return [name for name in brokers if name in min(found, key=cost)]


def _exchanged(
    brokers: Sequence[str], start: Sequence[str], count: int, cost: Callable[[list[str]], Fraction]
) -> list[str]:
    """Brokers taken one by one where they save most, then exchanged while that saves more."""
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
    check_count(count, "count", least=0)
    placed = isinstance(protocol, HyShare) and bool(protocol.enclaves)
    if not isinstance(protocol, ISSPS) or placed:
        raise ParameterError(
            f"protocol must be ISSPS, or HyShare without enclaves, got {protocol!r}: enclaves are "
            "what is looked for"
        )


def _check_rates(rates: Mapping[str, float] | None, topology: Topology) -> None:
    if rates is None:
        return
    for subscriber in topology.subscribers:
        if subscriber not in rates or not 0 <= rates[subscriber] < math.inf:
            raise ParameterError(
                f"rates must have a number of at least 0 for each subscriber, and has "
                f"{rates.get(subscriber)!r} for {subscriber!r}"
            )


def _with(protocol: ISSPS, enclaves: Iterable[str]) -> HyShare:
    direct = isinstance(protocol, HyShare) and protocol.direct
    return HyShare(protocol.k, protocol.n, enclaves=enclaves, m=protocol.m, direct=direct)
