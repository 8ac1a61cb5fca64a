"""Protocols by which a secret travels, SSPS, ISSPS and HyShare, and the messages that they take.

A publisher splits a secret into n fragments, of which k recover it. In SSPS each fragment takes a
path of its own. In ISSPS every broker splits each fragment again for the next logical broker, so
only k physical brokers of one logical broker learn something together. The price is n times as many
messages at each hop. HyShare replaces some logical brokers by enclaves. These join the fragments
and split the secret afresh, so the number of fragments falls to n again.

The replicas of an enclave draw the same coins for a secret. So their fragments are equal, and
receivers keep the first copy of each. A secret is lost at the enclave only if all replicas fail.

A fragment is split afresh for each of several next hops. If two of them got the same shares, k
brokers of both together would have k shares of one split.

Source: [YK16]; [Survey] sections 2.3 and 8.3 to 8.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from ccbps.checks import Printable, whole
from ccbps.errors import ParameterError
from ccbps.overlay.topology import PUBLISHER, PhysicalBroker, Topology


class Party(Enum):
    """Sender or receiver of fragments."""

    PUBLISHER = "publisher"
    BROKER = "broker"
    ENCLAVE = "enclave"
    SUBSCRIBER = "subscriber"


class _Protocol(Printable):
    """Protocol with its parameters k, n and m.

    Args:
        k: number of fragments of a split that recover it, at least 2.
        n: number of fragments of a split; k by default, as in the source's figures.
        m: number of physical brokers of a logical one, k to n; n by default. If it is less than n,
            some brokers receive several fragments of one split, so fewer than k of them may learn
            the secret.

    Raises:
        ParameterError: not ``2 <= k <= n <= 255``, or not ``k <= m <= n``.
    """

    enclaves: frozenset[str] = frozenset()
    _replicas: Mapping[str, int] = {}

    def __init__(self, k: int, n: int | None = None, *, m: int | None = None) -> None:
        self.k = whole("k", k, 2, 255, hint="a single fragment would be the secret")
        self.n = self.k if n is None else whole("n", n, k, 255)
        self.m = self.n if m is None else whole("m", m, k, self.n)

    def __repr__(self) -> str:
        m = "" if self.m == self.n else f", m={self.m}"
        return f"{type(self).__name__}({self.k}, {self.n}{m})"

    def party(self, name: str) -> Party:
        """Return the party at the place of a logical broker, or that of the publisher."""
        if name in self.enclaves:
            return Party.ENCLAVE
        return Party.PUBLISHER if name == PUBLISHER else Party.BROKER

    def replicas(self, name: str) -> int:
        """Return the number of replicas of an enclave, which send equal fragments; 1 for others."""
        return self._replicas.get(name, 1)

    def hosts(self, broker: str) -> list[PhysicalBroker]:
        """List the physical brokers of a logical one. An enclave has one for each replica."""
        m = self.replicas(broker) if broker in self.enclaves else self.m
        return [PhysicalBroker(broker, number) for number in range(1, m + 1)]

    def brokers(self, topology: Topology) -> list[PhysicalBroker]:
        """List all physical brokers of a topology's route, in its order."""
        self.check(topology)
        return [broker for name in topology.route for broker in self.hosts(name)]

    def receivers(self, topology: Topology, sender: str) -> dict[str, Party]:
        """Return the parties to which a broker of the route or the publisher sends, by name."""
        if sender == PUBLISHER:
            return {topology.root: self.party(topology.root)}
        brokers = {child: self.party(child) for child in topology.children[sender]}
        return brokers | dict.fromkeys(topology.clients[sender], Party.SUBSCRIBER)

    def splits(self, at: Party, to: Party) -> bool:
        """Tell whether a party splits each fragment, or the secret, for the next party."""
        raise NotImplementedError

    def check(self, topology: Topology) -> None:
        """Check that the topology has all brokers that the protocol names.

        Raises:
            ParameterError: a name is missing.
        """
        missing = sorted(self.enclaves - topology.links.keys())
        if missing:
            raise ParameterError(
                f"enclaves must be brokers of the topology, {missing[0]!r} is none"
            )

    def arriving(self, topology: Topology) -> dict[str, int]:
        """Count the fragments of a secret that arrive at each logical broker and subscriber.

        Copies from replicas, and for replicas, count once.

        Raises:
            ParameterError: an enclave is no broker of the topology.
        """
        self.check(topology)
        counts: dict[str, int] = {}
        for sender in (PUBLISHER, *topology.route):
            at = self.party(sender)
            fragments = counts[sender] if at is Party.BROKER else 1
            for name, to in self.receivers(topology, sender).items():
                counts[name] = fragments * (self.n if self.splits(at, to) else 1)
        return counts

    def messages(self, topology: Topology, secrets: int = 1) -> int:
        """Count the messages that bring secrets to all subscribers without faults."""
        counts = self.arriving(topology)
        if self._replicas:
            for name, sender in topology.senders.items():
                counts[name] *= self.replicas(name) * self.replicas(sender)
        return whole("secrets", secrets, 0) * sum(counts.values())


class SSPS(_Protocol):
    """Secret Share Propagation Scheme: n fragments on n parallel paths.

    On a line of h logical brokers it takes n (h + 1) messages. Any k brokers of different paths
    learn the secret, wherever they are.

    Args:
        k: number of fragments of a split that recover it, at least 2.
        n: number of fragments of a split; k by default.
        m: number of physical brokers of a logical one, k to n; n by default.

    Example:
        >>> from ccbps.overlay import SSPS, Topology
        >>> SSPS(3, 5).messages(Topology.line(4))
        25
    """

    def splits(self, at: Party, to: Party) -> bool:
        return at is Party.PUBLISHER


class ISSPS(_Protocol):
    """Iterative Secret Share Propagation Scheme: every broker splits each fragment again.

    On a line of h logical brokers it takes n + n^2 + ... + n^h + n^h messages. Any k brokers learn
    the secret only if they belong to one logical broker.

    Args:
        k: number of fragments of a split that recover it, at least 2.
        n: number of fragments of a split; k by default.
        m: number of physical brokers of a logical one, k to n; n by default.

    Attributes:
        direct: True if enclaves are sent the secret itself: see `HyShare`.

    Example:
        >>> from ccbps.overlay import ISSPS, Topology
        >>> ISSPS(3).messages(Topology.line(3)) == 2 * 3**3 + 3**2 + 3
        True
    """

    direct = False

    def splits(self, at: Party, to: Party) -> bool:
        return at is Party.PUBLISHER or to is Party.BROKER

    def hybrid(self, enclaves: Iterable[str]) -> HyShare:
        """Return HyShare with the same parameters and some enclaves."""
        return HyShare(self.k, self.n, enclaves=enclaves, m=self.m, direct=self.direct)


class HyShare(ISSPS):
    """ISSPS with enclaves in the place of some logical brokers.

    A broker splits its fragments for a broker, and forwards them to an enclave or a subscriber. An
    enclave joins them, and splits the secret afresh for every receiver. All figures of the source
    follow this rule.

    The source's text (section 8.4) asks for less: a secret that a publisher or an enclave sends to
    an enclave or a subscriber is encrypted, so it need not be split. That is `direct`.

    Args:
        k: number of fragments of a split that recover it, at least 2.
        n: number of fragments of a split; k by default.
        enclaves: names of the logical brokers that are enclaves.
        replicas: number of replicas of enclaves, by name; 1 if missing.
        m: number of physical brokers of a logical one, k to n; n by default.
        direct: True to send the secret itself, encrypted, from a publisher or enclave to an
            enclave, and from an enclave to a subscriber: one message, not n.

    Example:
        >>> from ccbps.overlay import HyShare, Topology
        >>> [HyShare(7, enclaves=[b]).messages(Topology.line(3)) for b in ("B1", "B2", "B3")]
        [112, 28, 112]
        >>> three = HyShare(7, enclaves=["B2"], replicas={"B2": 3})
        >>> three.messages(Topology.line(3))    # 2k + 2k for each replica
        56
    """

    def __init__(
        self,
        k: int,
        n: int | None = None,
        *,
        enclaves: Iterable[str],
        replicas: Mapping[str, int] | None = None,
        m: int | None = None,
        direct: bool = False,
    ) -> None:
        super().__init__(k, n, m=m)
        names: list[Any] = [*enclaves] if isinstance(enclaves, Iterable) else [None]
        if isinstance(enclaves, str) or not all(isinstance(name, str) for name in names):
            raise ParameterError(f"enclaves must be a list of names, got {enclaves!r}")
        self.enclaves, self.direct = frozenset(names), direct
        self._replicas = dict(replicas or {})
        for name, count in self._replicas.items():
            whole(f"replicas[{name!r}]", count, 1)
            if name not in self.enclaves:
                raise ParameterError(f"replicas must be of enclaves, and {name!r} is none: {names}")

    def __repr__(self) -> str:
        direct = ", direct=True" * self.direct
        replicas = f", replicas={self._replicas}" if self._replicas else ""
        return f"{super().__repr__()[:-1]}, enclaves={sorted(self.enclaves)}{replicas}{direct})"

    def splits(self, at: Party, to: Party) -> bool:
        if to is Party.BROKER:
            return True
        if at is Party.BROKER:
            return False
        return not self.direct or (at is Party.PUBLISHER and to is Party.SUBSCRIBER)
