"""How a secret travels: SSPS, ISSPS and HyShare, and how many messages each takes.

A publisher splits a secret into n fragments, of which k give it back. In SSPS each fragment takes a
path of its own. In ISSPS every broker splits each fragment again for the next logical broker, so
that only k physical brokers of one logical broker learn something together; the price is n times as
many messages at each hop. HyShare puts enclaves in the place of some logical brokers: they join the
fragments and split the secret afresh, so that the number falls to n again.

For each of several next hops a fragment is split afresh. Were the same shares sent to two of them,
k brokers of both together would have k shares of one split.

Source: [YK16]; [Survey] sections 2.3 and 8.3 to 8.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ccbps.errors import ParameterError
from ccbps.overlay.topology.topology import PhysicalBroker, Topology, check_count
from ccbps.sharing import Shamir


class Party(Enum):
    """Who sends or receives."""

    PUBLISHER = "publisher"
    BROKER = "broker"
    ENCLAVE = "enclave"
    SUBSCRIBER = "subscriber"


class _Protocol:
    """k, n and m, and what all three have in common."""

    def __init__(self, k: int, n: int | None = None, *, m: int | None = None) -> None:
        """
        Args:
            k: fragments of a split that give it back.
            n: fragments of a split; k by default, as in the source's figures.
            m: physical brokers of a logical one; n by default. With fewer, some receive several
                fragments of one split, so that fewer than k of them may learn it.

        Raises:
            ParameterError: not ``2 <= k <= n <= 255``, or not ``k <= m <= n``.
        """
        n = k if n is None else n
        Shamir(k, n)
        self.k, self.n, self.m = k, n, n if m is None else m
        if k < 2:
            raise ParameterError(f"k must be at least 2, got {k}: one fragment would be the secret")
        if type(self.m) is not int or not k <= self.m <= n:
            raise ParameterError(f"m must be a whole number of {k} to {n}, got {m!r}")

    def __repr__(self) -> str:
        m = "" if self.m == self.n else f", m={self.m}"
        return f"{type(self).__name__}({self.k}, {self.n}{m})"

    def party(self, broker: str) -> Party:
        """What stands at a logical broker's place."""
        return Party.BROKER

    def hosts(self, broker: str) -> list[PhysicalBroker]:
        """The physical brokers of a logical one; an enclave has one host."""
        m = 1 if self.party(broker) is Party.ENCLAVE else self.m
        return [PhysicalBroker(broker, number) for number in range(1, m + 1)]

    def brokers(self, topology: Topology) -> list[PhysicalBroker]:
        """All physical brokers of a topology's route, in its order."""
        self.check(topology)
        return [broker for name in topology.route for broker in self.hosts(name)]

    def points(self, number: int) -> range:
        """The points of each split that physical broker 1 .. m of a logical one is sent."""
        return range(number, self.n + 1, self.m)

    def splits(self, at: Party, to: Party) -> bool:
        """Whether each fragment (or the secret) is split on the way from one party to the next."""
        raise NotImplementedError

    def check(self, topology: Topology) -> None:
        """Raise ParameterError unless the topology has all brokers that the protocol names."""

    def arriving(self, topology: Topology) -> dict[str, int]:
        """Messages of one secret that arrive at each logical broker and subscriber of its route.

        Raises:
            ParameterError: enclaves has a name that the topology does not have.
        """
        self.check(topology)
        counts: dict[str, int] = {}

        def send(at: Party, fragments: int, name: str, to: Party) -> None:
            counts[name] = fragments * (self.n if self.splits(at, to) else 1)

        send(Party.PUBLISHER, 1, topology.root, self.party(topology.root))
        for broker in topology.route:
            party = self.party(broker)
            fragments = 1 if party is Party.ENCLAVE else counts[broker]
            for child in topology.children[broker]:
                send(party, fragments, child, self.party(child))
            for client in topology.clients[broker]:
                send(party, fragments, client, Party.SUBSCRIBER)
        return counts

    def messages(self, topology: Topology, secrets: int = 1) -> int:
        """Messages that sharing so many secrets with all subscribers takes, without faults."""
        check_count(secrets, "secrets", least=0)
        return secrets * sum(self.arriving(topology).values())


class SSPS(_Protocol):
    """Secret Share Propagation Scheme: n fragments on n parallel paths.

    On a line of h logical brokers n (h + 1) messages. k brokers of different paths learn the
    secret, wherever they are.

    Attributes:
        k: fragments of a split that give it back.
        n: fragments of a split.
        m: physical brokers of a logical one.

    Example:
        >>> from ccbps.overlay import SSPS, Topology
        >>> SSPS(3, 5).messages(Topology.line(4))
        25
    """

    def splits(self, at: Party, to: Party) -> bool:
        """See `ISSPS`."""
        return at is Party.PUBLISHER


class ISSPS(_Protocol):
    """Iterative Secret Share Propagation Scheme: every broker splits each fragment again.

    On a line of h logical brokers n + n^2 + ... + n^h + n^h messages. k brokers learn the secret
    only if they belong to one logical broker.

    Attributes:
        k: fragments of a split that give it back.
        n: fragments of a split.
        m: physical brokers of a logical one.

    Example:
        >>> from ccbps.overlay import ISSPS, Topology
        >>> ISSPS(3).messages(Topology.line(3)) == 2 * 3**3 + 3**2 + 3
        True
    """

    def splits(self, at: Party, to: Party) -> bool:
        """Whether each fragment (or the secret) is split on the way from one party to the next."""
        return at is Party.PUBLISHER or to is Party.BROKER


class HyShare(ISSPS):
    """ISSPS with enclaves in the place of some logical brokers.

    A broker splits for a broker, and forwards what it has to an enclave or a subscriber. An enclave
    joins, and splits afresh for everybody: the rule behind all figures of the source.

    The source's text (section 8.4) asks for less: nobody needs to split what only an enclave or a
    subscriber receives from a publisher or an enclave, since it is encrypted. That is `direct`.

    Attributes:
        k: fragments of a split that give it back.
        n: fragments of a split.
        m: physical brokers of a logical one.
        enclaves: names of the logical brokers that are enclaves.
        direct: whether the secret itself, encrypted, is sent from a publisher or enclave to an
            enclave, and from an enclave to a subscriber: one message, not n.

    Example:
        >>> from ccbps.overlay import HyShare, Topology
        >>> [HyShare(7, enclaves=[b]).messages(Topology.line(3)) for b in ("B1", "B2", "B3")]
        [112, 28, 112]
    """

    def __init__(
        self,
        k: int,
        n: int | None = None,
        *,
        enclaves: Iterable[str],
        m: int | None = None,
        direct: bool = False,
    ) -> None:
        """
        Args:
            k: as of `ISSPS`; and `n`, `m`.
            n: likewise.
            enclaves: names of logical brokers.
            m: likewise.
            direct: see above.
        """
        super().__init__(k, n, m=m)
        names = [*enclaves] if isinstance(enclaves, Iterable) else [None]
        if isinstance(enclaves, str) or not all(isinstance(name, str) for name in names):
            raise ParameterError(f"enclaves must be a list of names, got {enclaves!r}")
        self.enclaves, self.direct = frozenset(name for name in names if name), direct

    def __repr__(self) -> str:
        direct = ", direct=True" * self.direct
        return f"{super().__repr__()[:-1]}, enclaves={sorted(self.enclaves)}{direct})"

    def party(self, broker: str) -> Party:
        """What stands at a logical broker's place."""
        return Party.ENCLAVE if broker in self.enclaves else Party.BROKER

    def check(self, topology: Topology) -> None:
        """Raise ParameterError unless the topology has all brokers that the protocol names."""
        for name in sorted(self.enclaves):
            if name not in topology.links:
                raise ParameterError(f"enclaves must be brokers of the topology, {name!r} is none")

    def splits(self, at: Party, to: Party) -> bool:
        """Whether each fragment (or the secret) is split on the way from one party to the next."""
        if to is Party.BROKER:
            return True
        if at is Party.BROKER:
            return False
        return not self.direct or (at is Party.PUBLISHER and to is Party.SUBSCRIBER)
