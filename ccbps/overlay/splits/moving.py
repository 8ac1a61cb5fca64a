"""Enclaves that follow the traffic, if that saves more messages than moving takes.

Brokers count the secrets of each route in windows of time. After each window, `fewest_messages`
finds the best places for the traffic of the last W windows. Enclaves move to some of these places
if that would have saved, in these windows, more messages than their attestation there takes: 2 each
and one for each link. No single one of the windows may have cost more messages. A move must pay off
after two windows in a row. So enclaves follow traffic that changes over more than W windows, and
stay if it changes faster.

Source: [Survey] chapter 10 (future work).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from ccbps.checks import Printable, whole
from ccbps.errors import ParameterError
from ccbps.overlay.splits.placement import fewest_messages
from ccbps.overlay.splits.protocols import ISSPS
from ccbps.overlay.topology import Topology

ATTESTATION: Final = 2
"""Messages of an attestation, beside one for each link of the new place."""


class MovingEnclaves(Printable):
    """Places of enclaves that follow the traffic.

    Args:
        routes: topologies, one for each publisher; brokers of one name are one broker.
        protocol: ISSPS, whose brokers the enclaves replace.
        enclaves: first places.
        windows: number W of latest windows in which a move must pay off.
        patience: number of windows in a row after which a move must pay off.

    Attributes:
        enclaves: present places.
        moves: number of moves so far.

    Example:
        >>> from ccbps.overlay import ISSPS, MovingEnclaves, Topology
        >>> places = MovingEnclaves([Topology.line(3)], ISSPS(3), ["B1"], windows=4)
        >>> [sorted(places.observe([100])) for _ in range(3)]
        [['B1'], ['B2'], ['B2']]

    Raises:
        ParameterError: there are no routes or no enclaves, or an enclave is on none of the routes.
    """

    def __init__(
        self,
        routes: Sequence[Topology],
        protocol: ISSPS,
        enclaves: Iterable[str],
        *,
        windows: int,
        patience: int = 2,
    ) -> None:
        self._routes, self._protocol = [*routes], protocol
        self._windows, self._patience = whole("windows", windows, 1), whole("patience", patience, 1)
        self.enclaves = frozenset(enclaves)
        self._links: dict[str, set[str]] = {}
        for route in self._routes:
            for broker, others in route.links.items():
                self._links.setdefault(broker, set()).update(others)
        if not self._routes or not self.enclaves or not self.enclaves <= self._links.keys():
            raise ParameterError("routes and enclaves: at least one, and enclaves on the routes")
        self._history: deque[list[int]] = deque(maxlen=self._windows)
        self._wanted: dict[tuple[str, str], int] = {}
        self.moves = 0

    def __repr__(self) -> str:
        return f"<MovingEnclaves: {', '.join(sorted(self.enclaves))}; {self.moves} moves>"

    def observe(self, secrets: Sequence[int]) -> frozenset[str]:
        """Take the secrets of one window, and return the places of the enclaves after it.

        Args:
            secrets: number of secrets of each route.

        Raises:
            ParameterError: there is not one number for each route.
        """
        if len(secrets) != len(self._routes):
            raise ParameterError(f"secrets must have {len(self._routes)} numbers: {len(secrets)}")
        self._history.append([whole("secrets", count, 0) for count in secrets])
        worth = self._worth()
        self._wanted = {move: self._wanted.get(move, 0) + 1 for move in worth}
        for (old, new), times in [*self._wanted.items()]:
            if times >= self._patience and old in self.enclaves and new not in self.enclaves:
                self.enclaves = self.enclaves - {old} | {new}
                self.moves += 1
        return self.enclaves

    def messages(self, secrets: Sequence[int], enclaves: Iterable[str] | None = None) -> int:
        """Count the messages of a window, with the present enclaves or others."""
        places = self.enclaves if enclaves is None else frozenset(enclaves)
        return sum(a * b for a, b in zip(secrets, self._each(places), strict=True))

    def _each(self, places: frozenset[str]) -> list[int]:
        """Count the messages of a secret on each route."""
        return [
            self._protocol.hybrid(places & route.links.keys()).messages(route)
            for route in self._routes
        ]

    def _worth(self) -> list[tuple[str, str]]:
        """Return the moves, old and new place, that pay together.

        Enclaves are exchanged one by one for the best ones, those first that save most. Of these
        exchanges as many are taken as save most beyond their attestations.
        """
        counts = [sum(each) for each in zip(*self._history, strict=True)]
        busy = [(route, float(n)) for route, n in zip(self._routes, counts, strict=True) if n]
        if not busy:
            return []
        best = frozenset(fewest_messages(busy, self._protocol, len(self.enclaves)))
        places, before, cost, most = self.enclaves, self._each(self.enclaves), 0, 0
        moves: list[tuple[str, str]] = []
        worth: list[tuple[str, str]] = []
        while best - places:
            pairs = [(old, new) for old in sorted(places - best) for new in sorted(best - places)]
            old, new = min(pairs, key=lambda p: self.messages(counts, places - {p[0]} | {p[1]}))
            moves.append((old, new))
            places = places - {old} | {new}
            less = [a - b for a, b in zip(before, self._each(places), strict=True)]
            saved = [sum(a * b for a, b in zip(row, less, strict=True)) for row in self._history]
            cost += len(self._history) * (ATTESTATION + len(self._links[new]))
            if min(saved) >= 0 and sum(saved) * self._windows - cost > most:
                worth, most = [*moves], sum(saved) * self._windows - cost
        return worth
