"""Brokers with queues, on a simulated network, in which load causes delay and loss.

A broker serves one message at a time. Service times are exponential, so a broker under Poisson load
is an M/M/1 queue: at arrival rate r and service rate m the mean delay is 1 / (m - r).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ccbps.arrays import Reals
from ccbps.checks import Printable
from ccbps.overlay.links import Links, Port


@dataclass(frozen=True, slots=True)
class Packet:
    """A message of a simulation.

    Attributes:
        sender: client that sent it.
        born: time when it was sent, in seconds.
        subject: topic, on which routes may depend.
    """

    sender: str
    born: float
    subject: str = ""


Route = Callable[[Packet], Sequence[str]]
Admit = Callable[[Packet, float], bool]


class QueueBroker(Printable):
    """A broker that serves packets one after the other.

    Args:
        rate: mean number of packets that it serves per second.
        route: function that takes a packet and returns the neighbours that get it.
        room: largest number of packets that wait; further ones are lost.
        admit: function that takes a packet and the time, and returns whether the broker takes it;
            refusals cost no service.
        random: source of service times.

    Attributes:
        port: way out into the network.
        arrived: number of packets that arrived.
        refused: number of packets that `admit` refused.
        lost: number of packets for which there was no room.
    """

    port: Port

    def __init__(
        self,
        rate: float,
        route: Route,
        random: np.random.Generator,
        *,
        room: float = float("inf"),
        admit: Admit | None = None,
    ) -> None:
        self.rate, self.route, self.room, self.admit = rate, route, room, admit
        self._random, self._free, self._waiting = random, 0.0, 0
        self.arrived = self.refused = self.lost = 0

    def __repr__(self) -> str:
        return f"<QueueBroker: {self.rate:g} a second, {self._waiting} wait>"

    def receive(self, sender: str, message: Packet) -> None:
        """Take a packet in, and pass it on once it was served."""
        now = self.port.time
        self.arrived += 1
        if self.admit is not None and not self.admit(message, now):
            self.refused += 1
            return
        if self._waiting >= self.room:
            self.lost += 1
            return
        self._waiting += 1
        self._free = max(self._free, now) + self._random.exponential(1 / self.rate)

        def served() -> None:
            self._waiting -= 1
            for neighbour in self.route(message):
                if neighbour != sender:
                    self.port.send(neighbour, message)

        self.port.after(self._free - now, served)


class Sink(Printable):
    """A client that receives packets.

    Attributes:
        delays: seconds that each packet was under way, by its sender.
    """

    port: Port

    def __init__(self) -> None:
        self.delays: dict[str, list[float]] = {}

    def __repr__(self) -> str:
        return f"<Sink: {sum(map(len, self.delays.values()))} packets>"

    def receive(self, sender: str, message: Packet) -> None:
        """Note the delay of a packet."""
        self.delays.setdefault(message.sender, []).append(self.port.time - message.born)


def attach(links: Links, name: str, node: QueueBroker | Sink) -> None:
    """Give a node of the network its code."""
    node.port = links.attach(name, node)


def send_at_random(
    links: Links,
    client: str,
    broker: str,
    rate: float,
    until: float,
    random: np.random.Generator,
    subject: str = "",
) -> int:
    """Let a client send packets as a Poisson process; return their number.

    Args:
        links: the network.
        client: name of the client.
        broker: name of its broker.
        rate: packets in a second, on average.
        until: time of the last packet, in seconds.
        random: source of the times.
        subject: subject of the packets.
    """
    links.link(client, broker)
    count = int(random.poisson(rate * until))
    for time in np.sort(random.uniform(0, until, count)).tolist():
        packet = Packet(client, time, subject)
        links.after(time - links.time, lambda packet=packet: links.send(client, broker, packet))  # type: ignore[misc]
    return count


def serve(arrivals: Reals, rate: float, random: np.random.Generator) -> Reals:
    """Return the times at which a broker with room for all packets has served them.

    It is the same queue as a `QueueBroker`, for all packets at once.

    Args:
        arrivals: times of arrival, ascending, in seconds.
        rate: packets that the broker serves in a second, on average.
        random: source of service times.
    """
    work = np.cumsum(random.exponential(1 / rate, len(arrivals)))
    # Service of a packet starts when it has arrived and the previous one is done.
    waits = np.maximum.accumulate(arrivals - np.concatenate([[0.0], work[:-1]]))
    return np.asarray(work + waits)
