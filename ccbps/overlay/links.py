"""A simulated network of nodes and links, in which every message is counted.

A message takes a time on its link, which may be random. Messages of a link arrive in the order in
which they were sent (FIFO), unless reordering is on. Links lose messages at random. A node that has
crashed neither sends nor receives, and messages on their way to it or from it are lost.

The code of a node knows nothing of the simulation. It is any object with a method ``receive``, and
it sends by `Port.send`; over real connections, a port of another class has the same method.

Everything follows from the seed, so a run can be repeated.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import numpy as np

from ccbps.checks import Printable, flag, number, whole
from ccbps.errors import ParameterError

MOST_STEPS: Final = 10_000_000
"""Largest number of messages and timers in a call of `Links.run`: more count as an endless loop."""


class Node(Protocol):
    """Code of a node."""

    def receive(self, sender: str, message: Any) -> None:
        """Take a message from a neighbour."""


class Port(Printable):
    """A node's way out into the network.

    Attributes:
        name: name of the node.
    """

    def __init__(self, links: Links, name: str) -> None:
        self.name, self._links = name, links

    def __repr__(self) -> str:
        return f"<Port of {self.name}>"

    @property
    def neighbours(self) -> list[str]:
        """Nodes that this one has links to, in the order in which they were linked."""
        return self._links.neighbours(self.name)

    @property
    def time(self) -> float:
        """Time of the simulation."""
        return self._links.time

    def send(self, receiver: str, message: Any) -> None:
        """Send a message to a neighbour.

        Raises:
            ParameterError: there is no link.
        """
        self._links.send(self.name, receiver, message)

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Call an action after a time, unless the node has crashed since."""
        self._links.after(delay, action, self.name)


class Links(Printable):
    """A simulated network.

    Args:
        edges: pairs of nodes that are linked in both directions, such as the edges of a networkx
            graph.
        delay: time of a message on a link, or the bounds of a uniformly drawn one.
        loss: share of messages that are lost, 0 to 1.
        fifo: False to let messages of one link overtake one another.
        seed: seed of all random choices.

    Attributes:
        time: time of the simulation.
        sent: number of messages by sender and receiver; lost ones count.
        lost: number of messages that never arrived.

    Example:
        >>> from ccbps.overlay import Links
        >>> class Echo:
        ...     def receive(self, sender, message):
        ...         if message:
        ...             self.port.send(sender, message - 1)
        >>> links = Links([("a", "b")])
        >>> for name in "ab":
        ...     node = Echo()
        ...     node.port = links.attach(name, node)
        >>> links.send("a", "b", 3)
        >>> links.run()
        4.0
        >>> links.sent["a", "b"], links.sent["b", "a"]
        (2, 2)
    """

    def __init__(
        self,
        edges: Iterable[tuple[str, str]] = (),
        *,
        delay: float | tuple[float, float] = 1.0,
        loss: float = 0.0,
        fifo: bool = True,
        seed: int = 0,
    ) -> None:
        low, high = delay if isinstance(delay, tuple) else (delay, delay)
        low = number("delay", low, 0)
        self._delay = low, number("delay", high, low)
        self._loss, self._fifo = number("loss", loss, 0, 1), flag("fifo", fifo)
        self._random = np.random.default_rng(whole("seed", seed, 0))
        self._neighbours: dict[str, dict[str, object]] = {}
        self._nodes: dict[str, Node] = {}
        self._lives: Counter[str] = Counter()  # odd while a node has crashed
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._arrival: dict[tuple[str, str], float] = {}
        self._pushed = 0
        self.time = 0.0
        self.sent: Counter[tuple[str, str]] = Counter()
        self.lost = 0
        for left, right in edges:
            self.link(left, right)

    def __repr__(self) -> str:
        count = sum(map(len, self._neighbours.values())) // 2
        return f"<Links: {len(self._neighbours)} nodes, {count} links, time {self.time:g}>"

    @property
    def messages(self) -> int:
        """Number of messages that were sent."""
        return self.sent.total()

    # -- nodes and links ------------------------------------------------------------------------

    def attach(self, name: str, node: Node) -> Port:
        """Give a node its code; return its way out."""
        self._neighbours.setdefault(name, {})
        self._nodes[name] = node
        return Port(self, name)

    def link(self, left: str, right: str) -> None:
        """Link two nodes.

        Raises:
            ParameterError: they are one.
        """
        if left == right:
            raise ParameterError(f"a link has two ends, got {left!r} twice")
        for one, other in ((left, right), (right, left)):
            self._neighbours.setdefault(one, {}).setdefault(other, object())

    def unlink(self, left: str, right: str) -> None:
        """Remove a link. Messages on it are lost."""
        for one, other in ((left, right), (right, left)):
            self._neighbours.get(one, {}).pop(other, None)

    def neighbours(self, name: str) -> list[str]:
        """List the nodes that a node has links to."""
        return [*self._neighbours.get(name, ())]

    def crash(self, name: str) -> None:
        """Stop a node: messages on their way to or from it are lost, and its timers do not run."""
        self._lives[name] |= 1

    def restore(self, name: str) -> None:
        """Let a crashed node take part again, with the code that it has."""
        self._lives[name] += self._lives[name] & 1

    def is_up(self, name: str) -> bool:
        """Tell whether a node has not crashed."""
        return not self._lives[name] & 1

    # -- messages and time ----------------------------------------------------------------------

    def send(self, sender: str, receiver: str, message: Any) -> None:
        """Send a message on a link. A node that has crashed sends nothing.

        Raises:
            ParameterError: there is no link.
        """
        link = self._neighbours.get(sender, {}).get(receiver)
        if link is None:
            raise ParameterError(f"there is no link from {sender!r} to {receiver!r}")
        if not self.is_up(sender):
            return
        way, low_high = (sender, receiver), self._delay
        self.sent[way] += 1
        if self._loss and self._random.random() < self._loss:
            self.lost += 1
            return
        arrival = self.time + self._random.uniform(*low_high)
        if self._fifo:
            arrival = max(arrival, self._arrival.get(way, 0.0))
            self._arrival[way] = arrival
        lives = self._lives[sender], self._lives[receiver]

        def arrive() -> None:
            linked = self._neighbours[sender].get(receiver) is link  # not a later one
            if linked and lives == (self._lives[sender], self._lives[receiver]):
                self._nodes[receiver].receive(sender, message)
            else:
                self.lost += 1

        self._push(arrival, arrive)

    def after(self, delay: float, action: Callable[[], None], name: str | None = None) -> None:
        """Call an action after a time.

        Args:
            delay: delay, at least 0.
            action: function without arguments.
            name: node whose action it is. If the node crashes, the action is not called.
        """
        lives = self._lives[name] if name is not None else 0

        def act() -> None:
            if name is None or (self.is_up(name) and self._lives[name] == lives):
                action()

        self._push(self.time + number("delay", delay, 0), act)

    def _push(self, time: float, action: Callable[[], None]) -> None:
        self._pushed += 1  # breaks ties: first come, first served
        heapq.heappush(self._waiting, (time, self._pushed, action))

    def run(self, until: float = math.inf) -> float:
        """Let messages arrive and timers run, in order of time; return the time.

        Args:
            until: time after which nothing happens in this call.

        Raises:
            ParameterError: more than `MOST_STEPS` messages and timers ran.
        """
        for _ in range(MOST_STEPS):
            if not self._waiting or self._waiting[0][0] > until:
                break
            self.time, _, action = heapq.heappop(self._waiting)
            action()
        else:
            raise ParameterError(f"run has no end after {MOST_STEPS:,} steps: give it until=")
        if math.isfinite(until):
            self.time = max(self.time, until)
        return self.time
