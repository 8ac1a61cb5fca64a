"""The best places of enclaves on one route, by dynamic programming.

Messages after an enclave depend only on what stands between it and the next ones, and a route is a
tree. So a subtree's messages depend on its shape, on how many enclaves it has, and on how many
brokers in a row have split before it. Subtrees of one shape are planned once: of a tree with the
same fan-out everywhere, one for each level. Of a line every part has a shape of its own: 400
brokers and 200 enclaves take some 3 s and 0.8 GB.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Index
from ccbps.overlay.splits.protocols import ISSPS, HyShare
from ccbps.overlay.topology.topology import Topology

Costs: TypeAlias = NDArray[Any]
"""Messages with at most 0, 1, ... enclaves: int64, or Python's integers for larger numbers."""


class _Plan(NamedTuple):
    """Of a subtree, for each number of enclaves at most: messages, and how to get there.

    Attributes:
        costs: messages that arrive at its brokers and subscribers.
        enclave: whether its root is one.
        shares: of both kinds of root, of each child but the first, how many enclaves it has.
    """

    costs: Costs
    enclave: Index
    shares: tuple[list[Index], list[Index]]


class RoutePlanner:
    """Plans all numbers of enclaves up to one, with so many brokers in a row that split."""

    def __init__(
        self,
        topology: Topology,
        protocol: ISSPS,
        count: int,
        most: int,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """
        Args:
            topology: where.
            protocol: n, and whether direct.
            count: of enclaves, at most.
            most: brokers in a row that split, at most.
            rates: secrets of each subscriber, if each has its own; None if all have the same one.
        """
        self.topology, self.n, self.most = topology, protocol.n, most
        self.whole = 1 if isinstance(protocol, HyShare) and protocol.direct else protocol.n
        self.count = min(count, len(topology.route))
        worst = ISSPS(protocol.k, protocol.n).messages(topology)
        whole = _whole_numbers(rates or {})
        worst *= max(1, sum(whole.values()))
        self.dtype: Any = np.int64 if worst < 1 << 60 else object
        self.never = 1 << 60 if worst < 1 << 60 else 2 * worst
        self.shapes: dict[tuple[tuple[int, ...], int], int] = {}
        self.shape: dict[str, int] = {}
        self.size: dict[int, int] = {}
        self.load: dict[int, int] = {}  # secrets that come to a subtree's root
        for broker in reversed(topology.route):
            below = (*(self.shape[child] for child in topology.children[broker]),)
            clients = topology.clients[broker]
            own = sum(whole[s] for s in clients) if rates is not None else len(clients)
            self.shape[broker] = number = self.shapes.setdefault((below, own), len(self.shapes))
            self.size[number] = 1 + sum(self.size[child] for child in below)
            loads = sum(self.load[child] for child in below)
            self.load[number] = 1 if rates is None else own + loads
        self.keys = {number: key for key, number in self.shapes.items()}
        level, deepest = {topology.root: 0}, dict.fromkeys(self.size, 0)
        for broker in topology.route:
            level |= dict.fromkeys(topology.children[broker], level[broker] + 1)
            number = self.shape[broker]
            deepest[number] = max(deepest[number], level[broker])
        self.plans: dict[tuple[int, int], _Plan] = {}
        for number in range(len(self.shapes)):  # children come before their parents
            for row in range(min(most, deepest[number]) + 1):
                self.plans[number, row] = self._plan(number, row)

    @property
    def possible(self) -> bool:
        """Whether there is any such placement."""
        return bool(self.plans[self.shape[self.topology.root], 0].costs[-1] < self.never)

    def best(self) -> list[str]:
        """The enclaves, breadth-first."""
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

    def _plan(self, number: int, row: int) -> _Plan:
        """Of a shape behind so many brokers in a row that split."""
        (children, clients), load = self.keys[number], self.load[number]
        size = min(self.count, self.size[number]) + 1
        costs = np.full((2, size), self.never, dtype=self.dtype)
        shares: list[list[Index]] = [[np.zeros(1, dtype=np.intp)] * (len(children) - 1)] * 2
        if row < self.most:
            arriving = self.n ** (row + 1)
            below, shares[0] = self._joined(children, row + 1)
            costs[0] = self._add(below, arriving * (load + clients), size)
        if size > 1:
            arriving = self.n**row if row else self.whole
            below, shares[1] = self._joined(children, 0)
            costs[1, 1:] = self._add(below, arriving * load + self.whole * clients, size - 1)
        enclave = (costs[1] < costs[0]).astype(np.intp)
        return _Plan(costs.min(axis=0), enclave, (shares[0], shares[1]))

    def _add(self, below: Costs, more: int, size: int) -> Costs:
        """Messages of children with those of their parent; more enclaves than there are brokers do
        no good."""
        full = np.concatenate([below, np.full(max(0, size - len(below)), below[-1], self.dtype)])
        return np.asarray(np.minimum(full[:size] + more, self.never))

    def _joined(self, children: tuple[int, ...], row: int) -> tuple[Costs, list[Index]]:
        """Of several subtrees together; and how many enclaves each but the first one has."""
        total: Costs = np.zeros(1, dtype=self.dtype)
        shares: list[Index] = []
        for place, child in enumerate(children):
            costs = self.plans[child, row].costs
            if not place:
                total = costs
                continue
            length = min(self.count + 1, len(total) + len(costs) - 1)
            found = np.full(length, self.never, dtype=self.dtype)
            share = np.zeros(length, dtype=np.intp)
            for given, cost in enumerate(costs.tolist()):
                part = total[: length - given] + cost
                here = found[given : given + len(part)]
                better = part < here
                here[better] = part[better]
                share[given : given + len(part)][better] = given
            total = np.minimum(found, self.never)
            shares.append(share)
        return total, shares


def _whole_numbers(rates: Mapping[str, float]) -> dict[str, int]:
    """Rates as whole numbers in the same proportions."""
    exact = {name: Fraction(rate) for name, rate in rates.items()}
    common = math.lcm(*(rate.denominator for rate in exact.values()))
    return {name: int(rate * common) for name, rate in exact.items()}
