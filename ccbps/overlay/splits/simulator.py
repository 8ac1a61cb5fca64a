"""Simulated networks of brokers that fail, lie or collude, with every message that is sent.

Messages are events in time. Every link takes one unit, and an enclave waits for late fragments.
Fragments are real, so the views of curious brokers can be joined, or compared as distributions.
Messages to and from an enclave are sealed: the view of its host has numbers and paths, and no
values. (`ccbps.overlay.enclave.enclave` has the real encryption, between real processes.)
Replicas of an enclave join and split on their own, with common coins, and receivers keep the first
copy of each fragment.

Everything derives from the seed, even the random bytes of fragments. So simulated secrets are not
secret.

Source: [Survey] sections 8.1 (brokers that are honest but curious, that collude, and that drop and
alter messages) and 9.1 (messages are counted, for k = n).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.checks import Printable, array, number, whole
from ccbps.errors import ParameterError, ShapeError
from ccbps.overlay.splits.bundles import Bundle, Tally, recovered
from ccbps.overlay.splits.fragments import scheme_of
from ccbps.overlay.splits.protocols import ISSPS, SSPS, Party
from ccbps.overlay.topology import PUBLISHER, PhysicalBroker, Topology

Node: TypeAlias = str | PhysicalBroker
LINK: Final = 1.0
"""Time that a message takes on a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Behaviour of a physical broker, honest and not curious by default.

    Attributes:
        curious: True if it keeps the fragments that it sees. Colluders pool these.
        drop: share of its fragments that it does not send on, 0 to 1.
        alter: share of its fragments whose bytes it changes, before it splits them or sends them
            on. The host of an enclave changes ciphertexts, which their receivers refuse.
        delay: delay of its messages, in units of a link's time.
        crash: time from which on it does nothing.

    Example:
        >>> from ccbps.overlay import Behaviour
        >>> Behaviour(drop=1.5)
        Traceback (most recent call last):
            ...
        ccbps.errors.ParameterError: drop must be a finite number from 0 to 1, got 1.5
    """

    curious: bool = False
    drop: float = 0.0
    alter: float = 0.0
    delay: float = 0.0
    crash: float = math.inf

    def __post_init__(self) -> None:
        number("drop", self.drop, 0, 1)
        number("alter", self.alter, 0, 1)
        number("delay", self.delay, 0, endless=True)
        number("crash", self.crash, 0, endless=True)


HONEST: Final = Behaviour()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a simulation.

    Attributes:
        links: number of messages from one party to another, by both names.
        intact: True for each secret that a subscriber has, by subscriber, shape (secrets,).
        wrong: True for each secret of which a subscriber has an undetected wrong value, by
            subscriber.
        refused: number of messages that an enclave's host altered and the receiver refused, by
            receiver.
        views: fragments that each curious broker saw.
        time: time at which the last message arrived.
    """

    links: Counter[tuple[str, str]] = field(default_factory=Counter)
    intact: dict[str, Bools] = field(default_factory=dict)
    wrong: dict[str, Bools] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    views: dict[Node, list[Bundle]] = field(default_factory=dict)
    time: float = 0.0

    @property
    def messages(self) -> int:
        """Number of messages that were sent."""
        return self.links.total()

    @property
    def received(self) -> Counter[str]:
        """Number of messages to each party."""
        counts: Counter[str] = Counter()
        for (_, receiver), count in self.links.items():
            counts[receiver] += count
        return counts


class Simulation(Printable):
    """Simulation of one protocol on one network.

    Args:
        topology: network of logical brokers.
        protocol: protocol by which secrets travel.
        behaviours: behaviours of physical brokers that are not honest. The hosts of an enclave's
            replicas are numbers 1, 2 and so on.
        checked: True to give each split the checks of `CheckedShamir`. Then altered fragments are
            left out as if they had been dropped, if they are fewer than half of a split. It takes
            some 25 us a fragment.
        patience: time that an enclave waits after the first fragment of any secret, in units of a
            link's time. Then it joins the fragments that arrived, once.
        seed: seed of all random choices.

    Example:
        A line of two hops, in which one broker of each hop is broken:

        >>> import numpy as np
        >>> from ccbps.overlay import ISSPS, Behaviour, PhysicalBroker, Simulation, Topology
        >>> faults = {
        ...     PhysicalBroker("B1", 2): Behaviour(crash=0),
        ...     PhysicalBroker("B2", 1): Behaviour(drop=1),
        ... }
        >>> simulation = Simulation(Topology.line(2), ISSPS(2, 3), behaviours=faults)
        >>> secrets = np.random.default_rng(1).integers(0, 256, (400, 32), dtype=np.uint8)
        >>> outcome = simulation.share(secrets)
        >>> outcome.messages, outcome.intact["S1"].all()
        (5200, np.True_)

    Raises:
        ParameterError: a broker with a behaviour is not on the route, or patience or seed is
            negative.
    """

    def __init__(
        self,
        topology: Topology,
        protocol: SSPS | ISSPS,
        *,
        behaviours: Mapping[PhysicalBroker, Behaviour] | None = None,
        checked: bool = False,
        patience: float = 8.0,
        seed: int = 0,
    ) -> None:
        self.seed = whole("seed", seed, 0)
        self.patience = number("patience", patience, 0, endless=True)
        self.topology, self.protocol = topology, protocol
        self.behaviours: dict[Node, Behaviour] = {}
        brokers = protocol.brokers(topology)
        for broker, behaviour in (behaviours or {}).items():
            if not isinstance(broker, PhysicalBroker) or broker not in brokers:
                raise ParameterError(
                    f"behaviours has {broker!r}, which is not on the route: its brokers are "
                    f"{', '.join(map(str, brokers[:4]))}, ..."
                )
            self.behaviours[broker] = behaviour
        self.scheme = scheme_of(protocol.k, protocol.n, checked=checked)

    def __repr__(self) -> str:
        return f"<Simulation of {self.protocol!r} on {self.topology!r}>"

    def share(self, secrets: Bytes) -> Outcome:
        """Share secrets with all subscribers.

        Args:
            secrets: uint8, shape (count, bytes).

        Raises:
            ShapeError: the secrets are not an array of such rows.
        """
        array("secrets", secrets, np.uint8, ("count", "bytes"))
        if not secrets.size:
            raise ShapeError(f"secrets must have at least 1 byte, got shape {secrets.shape}")
        return _Run(self, Bundle.of(secrets)).run()

    def count(self, secrets: int = 1) -> Outcome:
        """Count the messages of a number of secrets, as `share` sends them, but without content.

        Raises:
            ParameterError: a broker is not honest. Its behaviour needs fragments.
        """
        if any(behaviour != HONEST for behaviour in self.behaviours.values()):
            raise ParameterError("count is for honest brokers: use share where behaviours differ")
        secrets = whole("secrets", secrets, 1)
        return _Run(self, Tally(secrets, secrets)).run()

    def recovered(self, outcome: Outcome, colluders: Iterable[PhysicalBroker]) -> Bundle:
        """Recover the secrets that curious brokers learn together from what they saw.

        Raises:
            ParameterError: a broker was not curious.
        """
        views: list[Bundle] = []
        for broker in colluders:
            if broker not in outcome.views:
                raise ParameterError(
                    f"{broker} kept nothing that it saw: give it Behaviour(curious=True)"
                )
            views += outcome.views[broker]
        return recovered(views, self.scheme)


class _Run:
    """State of a run: messages on their way, and fragments at enclaves and subscribers."""

    def __init__(self, simulation: Simulation, start: Any) -> None:
        # `Any`: bundles or tallies, never both.
        self.simulation, self.start = simulation, start
        self.topology, self.protocol = simulation.topology, simulation.protocol
        self.behaviours = simulation.behaviours
        curious = [node for node, behaviour in self.behaviours.items() if behaviour.curious]
        self.outcome = Outcome(views={node: [] for node in curious})
        self.arriving = self.protocol.arriving(self.topology)
        self.rng = np.random.default_rng(simulation.seed)
        self.events: list[tuple[float, int, Node]] = []
        self.inbox: dict[tuple[float, Node], list[Any]] = {}
        self.pushed = 0
        self.waiting: dict[Node, list[Any]] = defaultdict(list)
        self.closed: set[Node] = set()

    def run(self) -> Outcome:
        """Run until no message is on its way."""
        last = 0.0
        self.send(0.0, PUBLISHER, self.start)
        while self.events:
            time, _, receiver = heapq.heappop(self.events)
            loads = self.inbox.pop((time, receiver))
            arrived = [load for load in loads if load is not None]
            self.receive(time, receiver, arrived, over=len(arrived) < len(loads))
            last = time if arrived else last
        for subscriber in self.topology.subscribers:
            self.finish(subscriber)
        return replace(self.outcome, time=last)

    def receive(self, time: float, receiver: Node, loads: list[Any], *, over: bool) -> None:
        """Handle the loads that arrive at one time, or on the end of an enclave's patience."""
        behaviour = self.behaviours.get(receiver, HONEST)
        if time >= behaviour.crash:
            return
        name = _name(receiver)
        enclave = self.protocol.party(name) is Party.ENCLAVE
        if behaviour.curious:
            # An enclave's host sees numbers and paths without decryption, and no values.
            self.outcome.views[receiver] += (
                [load.with_values(load.value[:, :0]) for load in loads] if enclave else loads
            )
        if enclave and loads and not self.waiting[receiver]:
            self.push(time + self.simulation.patience, receiver, None)
        copies = self.protocol.replicas(self.topology.senders[name])
        if copies > 1 and loads:
            loads = loads[0].first_copies(loads, self.waiting[receiver], copies)
        if copies > 1 or enclave or receiver == name:
            self.waiting[receiver] += loads
        if enclave:
            waiting = self.waiting[receiver]
            complete = sum(load.count for load in waiting) == self.expected(name)
            if receiver not in self.closed and (over or complete):
                self.closed.add(receiver)
                self.send(time, receiver, self.joined(waiting))
        elif receiver != name and loads:
            load = loads[0].merged(loads)
            if behaviour.alter:
                chosen = self.chosen(load, behaviour.alter)
                change = self.rng.integers(1, 256, load.value.shape, dtype=np.uint8)
                load = load.with_values(load.value ^ change * chosen[:, None])
            self.send(time, receiver, load)

    def expected(self, name: str) -> int:
        """Return the number of fragments that a party receives if there are no faults."""
        return int(self.start.count) * self.arriving[name]

    def joined(self, loads: list[Any]) -> Any:
        """Join the fragments of some loads to secrets."""
        if isinstance(self.start, Tally):
            return Tally(self.start.secrets, self.start.secrets)
        return recovered(loads, self.simulation.scheme)

    def send(self, time: float, sender: Node, load: Any) -> None:
        """Send a load to all next hops, split where the protocol says so."""
        if not load.count:
            return
        at = self.protocol.party(_name(sender))
        for name, to in self.protocol.receivers(self.topology, _name(sender)).items():
            split, parts = self.protocol.splits(at, to), [load]
            if split:
                parts = load.split(self.simulation.scheme, name, *self.coins(name))
            for place, part in enumerate(parts):
                receivers: list[Node] = [name]
                if to is Party.ENCLAVE:
                    receivers = [*self.protocol.hosts(name)]
                elif to is Party.BROKER:
                    number = place % self.protocol.m + 1
                    if not split and isinstance(sender, PhysicalBroker):
                        number = sender.number  # a path of SSPS
                    receivers = [PhysicalBroker(name, number)]
                for receiver in receivers:
                    self.deliver(time, sender, receiver, part)

    def coins(self, name: str) -> tuple[Randomness, int | None]:
        """Return the source of a split for a receiver, and the secrets that have places in it.

        Replicas of an enclave draw the same coins for a secret, even if one of them lost others.
        """
        if self.protocol.replicas(self.topology.senders[name]) == 1:
            return self.rng.bytes, None
        place = [*self.topology.senders].index(name)
        common = np.random.default_rng([self.simulation.seed, place])
        return common.bytes, int(self.start.count)

    def deliver(self, time: float, sender: Node, receiver: Node, load: Any) -> None:
        """Send a load to one physical broker or subscriber."""
        behaviour = self.behaviours.get(sender, HONEST)
        if behaviour.drop:
            load = load.only(~self.chosen(load, behaviour.drop))
        if not load.count or time + behaviour.delay >= behaviour.crash:
            return
        self.outcome.links[str(sender), str(receiver)] += load.count
        if behaviour.alter and self.protocol.party(_name(sender)) is Party.ENCLAVE:
            chosen = self.chosen(load, behaviour.alter)
            self.outcome.refused[str(receiver)] += int(chosen.sum())
            load = load.only(~chosen)
        if load.count:
            self.push(time + LINK + behaviour.delay, receiver, load)

    def chosen(self, load: Bundle, share: float) -> Bools:
        """Choose a share of the fragments at random."""
        return self.rng.random(load.count) < share

    def push(self, time: float, receiver: Node, load: Any) -> None:
        """Let a load arrive at a time; None is the end of an enclave's patience."""
        waiting = self.inbox.setdefault((time, receiver), [])
        if not waiting:
            # The number breaks ties, so that the order is the same in each run.
            self.pushed += 1
            heapq.heappush(self.events, (time, self.pushed, receiver))
        waiting.append(load)

    def finish(self, subscriber: str) -> None:
        """Compare the secrets that a subscriber has with those that were sent."""
        loads, count = self.waiting[subscriber], int(self.start.count)
        intact, wrong = np.zeros((2, count), dtype=np.bool_)
        if isinstance(self.start, Tally):
            intact[:] = sum(load.count for load in loads) == self.expected(subscriber)
        elif (secrets := self.joined(loads)).count:
            right = (secrets.value == self.start.value[secrets.secret]).all(axis=1)
            intact[secrets.secret], wrong[secrets.secret] = right, ~right
        self.outcome.intact[subscriber], self.outcome.wrong[subscriber] = intact, wrong


def _name(node: Node) -> str:
    """Return the name of a client or logical broker."""
    return node if isinstance(node, str) else node.broker
