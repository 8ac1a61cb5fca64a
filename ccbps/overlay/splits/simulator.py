"""A network of brokers, simulated: who gets which messages when brokers fail, lie or tell.

Messages travel by events in time: every link takes one unit, and an enclave waits for fragments
that are late. Fragments are real ones, so that what curious brokers saw can be joined, or compared
as a distribution. What a link to or from an enclave carries is sealed: its host's view has numbers
and paths, and no values (`ccbps.overlay.enclave.enclave` has the real encryption, between real
processes).

Everything follows from the seed. So do the fragments' random bytes: secrets that are simulated are
not secret.

Source: [Survey] sections 8.1 (faults), 9.1 (messages are counted, for k = n).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.errors import ParameterError, ShapeError
from ccbps.overlay.splits.behaviour import HONEST, Behaviour, Outcome
from ccbps.overlay.splits.bundles import Bundle, Tally, recovered
from ccbps.overlay.splits.protocols import ISSPS, SSPS, Party
from ccbps.overlay.splits.splits import scheme_of
from ccbps.overlay.topology.topology import PUBLISHER, PhysicalBroker, Topology, check_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Node: TypeAlias = str | PhysicalBroker
LINK: Final = 1.0
"""Time that a message takes on a link."""


class Simulation:
    """One protocol on one network.

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
        """
        Args:
            topology: of logical brokers.
            protocol: how secrets travel.
            behaviours: of physical brokers that are not honest; an enclave's host is number 1.
            checked: give each split the checks of `CheckedShamir`, so that altered fragments are
                left out as if they had been dropped, while fewer than half of a split are. It
                takes some 25 us a fragment.
            patience: how long an enclave waits after the first fragment of any secret, in units of
                a link's time; then it joins what can be joined, once.
            seed: of all that is random.

        Raises:
            ParameterError: a broker with a behaviour is not on the route; or patience or seed is
                negative.
        """
        check_count(seed, "seed", least=0)
        if not patience >= 0:
            raise ParameterError(f"patience must be a time of at least 0, got {patience!r}")
        self.topology, self.protocol, self.checked = topology, protocol, checked
        self.behaviours, self.patience, self.seed = dict(behaviours or {}), patience, seed
        known = protocol.brokers(topology)
        for broker in self.behaviours:
            if not isinstance(broker, PhysicalBroker) or broker not in known:
                raise ParameterError(
                    f"behaviours has {broker!r}, which is not on the route: its brokers are "
                    f"{', '.join(map(str, known[:4]))}, ..."
                )
        self.scheme = scheme_of(protocol.k, protocol.n, checked=checked)

    def __repr__(self) -> str:
        return f"<Simulation of {self.protocol!r} on {self.topology!r}>"

    def share(self, secrets: Bytes) -> Outcome:
        """Share secrets with all subscribers.

        Args:
            secrets: uint8, shape (count, bytes).

        Raises:
            ShapeError: not an array of such rows.
        """
        if secrets.dtype != np.uint8 or secrets.ndim != 2 or not secrets.size:
            raise ShapeError(
                f"secrets must be uint8 of shape (count, bytes), got {secrets.dtype} "
                f"{secrets.shape}"
            )
        return _Run(self, Bundle.of(secrets)).run()

    def count(self, secrets: int = 1) -> Outcome:
        """As `share`, of any number of messages: they are counted, and hold nothing.

        Raises:
            ParameterError: some brokers are not honest; what they do needs fragments.
        """
        if any(behaviour != HONEST for behaviour in self.behaviours.values()):
            raise ParameterError("count is for honest brokers: use share where behaviours differ")
        if type(secrets) is not int or secrets < 1:
            raise ParameterError(f"secrets must be a whole number, at least 1, got {secrets!r}")
        return _Run(self, Tally(secrets, secrets)).run()

    def recovered(self, outcome: Outcome, colluders: Iterable[PhysicalBroker]) -> Bundle:
        """The secrets that curious brokers learn who put together what they saw.

        Raises:
            ParameterError: one of them was not curious.
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
    """The state of one run: what is on its way, and what waits at enclaves and subscribers."""

    def __init__(self, simulation: Simulation, start: Any) -> None:
        # `Any`: bundles or tallies, never both.
        self.simulation, self.start, self.outcome = simulation, start, Outcome()
        self.topology, self.protocol = simulation.topology, simulation.protocol
        self.arriving = self.protocol.arriving(self.topology)
        self.rng = np.random.default_rng(simulation.seed)
        self.events: list[tuple[float, int, Node]] = []
        self.inbox: dict[tuple[float, Node], list[Any]] = {}
        self.pushed = 0
        self.waiting: dict[str, list[Any]] = defaultdict(list)
        self.closed: set[str] = set()
        curious = (b for b, behaviour in simulation.behaviours.items() if behaviour.curious)
        self.views: dict[PhysicalBroker, list[Bundle]] = {broker: [] for broker in curious}

    def run(self) -> Outcome:
        """Until nothing is on its way any more."""
        time = last = 0.0
        self.send(time, PUBLISHER, Party.PUBLISHER, self.topology.root, self.start)
        while self.events:
            time, _, receiver = heapq.heappop(self.events)
            loads = self.inbox.pop((time, receiver))
            came = [load for load in loads if load is not None]
            self.receive(time, receiver, came, over=len(came) < len(loads))
            last = time if came else last
        found = Outcome(self.outcome.links, {}, {}, self.outcome.refused, self.views, last)
        for subscriber in self.topology.subscribers:
            self.finish(found, subscriber)
        return found

    def behaviour(self, node: Node) -> Behaviour:
        if isinstance(node, str):
            return HONEST
        return self.simulation.behaviours.get(node, HONEST)

    def receive(self, time: float, receiver: Node, loads: list[Any], *, over: bool) -> None:
        """Act on what arrives at one time; `over` is an enclave's patience."""
        behaviour = self.behaviour(receiver)
        if time >= behaviour.crash:
            return
        if isinstance(receiver, str):
            self.waiting[receiver] += loads
            return
        name = receiver.broker
        if self.protocol.party(name) is not Party.ENCLAVE:
            whole = loads[0].merged(loads)
            if behaviour.curious:
                self.views[receiver].append(whole)
            if behaviour.alter:
                changed = self.chosen(whole, behaviour.alter)
                change = self.rng.integers(1, 256, whole.value.shape, dtype=np.uint8)
                whole = whole.with_values(whole.value ^ change * changed[:, None])
            self.forward(time, receiver, Party.BROKER, whole)
            return
        if behaviour.curious:
            self.views[receiver] += [load.sealed() for load in loads]
        if loads and not self.waiting[name]:
            self.push(time + self.simulation.patience, receiver, None)
        self.waiting[name] += loads
        came = sum(one.count for one in self.waiting[name])
        if name not in self.closed and (over or came == self.expected(name)):
            self.closed.add(name)
            whole = self.joined(self.waiting[name])
            if whole.count:
                self.forward(time, receiver, Party.ENCLAVE, whole)

    def expected(self, name: str) -> int:
        return int(self.start.count) * self.arriving[name]

    def joined(self, loads: list[Any]) -> Any:
        if isinstance(self.start, Tally):
            return Tally(self.start.secrets, self.start.secrets)
        return recovered(loads, self.simulation.scheme)

    def forward(self, time: float, sender: PhysicalBroker, party: Party, load: Any) -> None:
        """Send to all next hops."""
        for child in self.topology.children[sender.broker]:
            self.send(time, sender, party, child, load)
        for client in self.topology.clients[sender.broker]:
            self.send(time, sender, party, client, load)

    def send(self, time: float, sender: Node, at: Party, to: str, load: Any) -> None:
        """Send to one logical broker or subscriber, with what this broker does to it."""
        client = to in self.topology.subscribers
        party = Party.SUBSCRIBER if client else self.protocol.party(to)
        parts = [load]
        if self.protocol.splits(at, party):
            parts = load.split(self.simulation.scheme, to, self.rng.bytes)
        for number, part in self.numbered(sender, parts):
            receiver: Node = to
            if party is Party.ENCLAVE:
                receiver = PhysicalBroker(to, 1)
            elif party is Party.BROKER:
                receiver = PhysicalBroker(to, number)
            self.send_one(time, sender, at, receiver, part)

    def numbered(self, sender: Node, parts: list[Any]) -> Iterator[tuple[int, Any]]:
        """What is sent, and to which physical brokers: what is not split keeps its number."""
        if len(parts) == 1 and isinstance(sender, PhysicalBroker):
            yield sender.number, parts[0]
            return
        for number in range(1, self.protocol.m + 1):
            for point in self.protocol.points(number):
                if point <= len(parts):
                    yield number, parts[point - 1]

    def send_one(self, time: float, sender: Node, at: Party, receiver: Node, load: Any) -> None:
        behaviour = self.behaviour(sender)
        if behaviour.drop:
            load = load.only(~self.chosen(load, behaviour.drop))
        if not load.count or time + behaviour.delay >= behaviour.crash:
            return
        self.outcome.links[str(sender), str(receiver)] += load.count
        if behaviour.alter and at is Party.ENCLAVE:
            changed = self.chosen(load, behaviour.alter)
            self.outcome.refused[str(receiver)] += int(changed.sum())
            load = load.only(~changed)
        if load.count:
            self.push(time + LINK + behaviour.delay, receiver, load)

    def chosen(self, load: Bundle, share: float) -> Bools:
        """So many of the fragments, at random."""
        return self.rng.random(load.count) < share

    def push(self, time: float, receiver: Node, load: Any) -> None:
        waiting = self.inbox.setdefault((time, receiver), [])
        if not waiting:
            # The number breaks ties, so that the order is the same in each run.
            self.pushed += 1
            heapq.heappush(self.events, (time, self.pushed, receiver))
        waiting.append(load)

    def finish(self, outcome: Outcome, subscriber: str) -> None:
        """Which secrets a subscriber has."""
        loads, count = self.waiting[subscriber], int(self.start.count)
        intact, wrong = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        if isinstance(self.start, Tally):
            intact[:] = sum(load.count for load in loads) == self.expected(subscriber)
        elif (whole := self.joined(loads)).count:
            right = (whole.value == self.start.value[whole.secret]).all(axis=1)
            intact[whole.secret], wrong[whole.secret] = right, ~right
        outcome.intact[subscriber], outcome.wrong[subscriber] = intact, wrong
