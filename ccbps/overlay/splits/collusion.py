"""Sets of colluding brokers that learn a secret under SSPS, ISSPS and HyShare, and their risk.

Colluding brokers follow the protocol, and pool the fragments that they receive. Of every split that
its logical broker is sent, physical broker i of m receives the points i, i + m, i + 2m and so on.

- In ISSPS the colluders learn the secret if and only if those of *some* logical broker have k
  points together. Then they know k children of each fragment of the previous logical broker, and
  so all these fragments, and finally the secret. Otherwise they learn nothing from any split.
- HyShare is the same without its enclaves: the host of an enclave sees ciphertexts. An enclave
  splits afresh, so fragments from before it and from after it do not combine.
- In SSPS a fragment stays on brokers of one number. So the colluders learn the secret if their
  numbers, in any logical brokers, hold k points.

*Errata*, [Survey] section 8.2:

- Theorem 1: k - 1 colluding brokers learn nothing. This is true for m = n only. With fewer, a
  broker holds several points, and the k - 1 brokers with the most points have k or more: for
  k = 2, n = 4, m = 2 any single broker is enough.
- Its proof: a broker receives at most k fragments. For m = n it receives n^(j - 1) at hop j, but
  of every split only one, which is what the proof needs.
- Theorem 2: one broker in each logical broker that does not collude keeps the secret. This is
  true for k = n only (so m = n); otherwise n - k + 1 of m = n are needed.
- The best case, (k - 1) / k of all brokers: it is (k - 1) / m for m = n. SSPS has the same: the
  brokers of k - 1 numbers everywhere. ISSPS betters neither the best nor the worst case. More
  sets learn nothing.

Source: [YK16]; [Survey] sections 2.3 and 8.2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from math import comb, sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ccbps.arrays import Bools, Index, Reals
from ccbps.checks import Printable, array, whole
from ccbps.errors import ParameterError
from ccbps.overlay.splits.protocols import ISSPS, SSPS, Party
from ccbps.overlay.topology import PhysicalBroker, Topology

BATCH: Final = 1 << 15
"""Number of random numbers that are drawn at a time: 256 KiB."""


class Collusion(Printable):
    """Sets of brokers on the route of a secret, some of which recover it.

    Args:
        protocol: protocol by which the secret travels.
        topology: network, to all of whose subscribers the secret is sent.

    Attributes:
        brokers: physical brokers of the route, in its order. The host of an enclave is one of them.

    Example:
        >>> from ccbps.overlay import ISSPS, SSPS, Collusion, PhysicalBroker, Topology
        >>> line = Topology.line(2)
        >>> two = [PhysicalBroker("B1", 1), PhysicalBroker("B2", 2)]
        >>> Collusion(SSPS(2), line).recovers(two), Collusion(ISSPS(2), line).recovers(two)
        (True, False)
        >>> Collusion(SSPS(2), line).tolerated(), Collusion(ISSPS(2), line).tolerated()
        ([1, 4, 2, 0, 0], [1, 4, 4, 0, 0])

    Raises:
        ParameterError: an enclave is no broker of the topology.
    """

    def __init__(self, protocol: SSPS | ISSPS, topology: Topology) -> None:
        self.protocol, self.topology = protocol, topology
        self.brokers = protocol.brokers(topology)
        self._columns = {broker: column for column, broker in enumerate(self.brokers)}
        plain = [b for b in self.brokers if protocol.party(b.broker) is not Party.ENCLAVE]
        columns = np.array([self._columns[broker] for broker in plain], np.intp)
        self._plain: Index = columns.reshape(-1, protocol.m)
        self._enclaves = len(self.brokers) - self._plain.size
        hops = len(self._plain)
        # If brokers split for brokers, every logical broker may recover the secret on its own.
        # Otherwise they all do together, as one with `_copies` brokers of each number.
        self._split = protocol.splits(Party.BROKER, Party.BROKER)
        self._groups, self._copies = (hops, 1) if self._split else (1, hops)
        # Points of each split that physical brokers 1 .. m receive.
        points = np.arange(protocol.n) % protocol.m
        self._points = np.bincount(points).astype(np.float32)
        self._light = self._count_light()

    def __repr__(self) -> str:
        return f"Collusion({self.protocol!r}, {self.topology!r})"

    def _count_light(self) -> list[int]:
        """Count the sets of s = 0 .. m numbers that hold fewer than k points together.

        Some numbers, `more` of them, hold one point more than the rest.
        """
        k, m = self.protocol.k, self.protocol.m
        points, more = divmod(self.protocol.n, m)
        return [
            sum(
                comb(more, a) * comb(m - more, s - a)
                for a in range(min(s, more) + 1)
                if points * s + a < k
            )
            for s in range(m + 1)
        ]

    def check(self, broker: PhysicalBroker, argument: str) -> None:
        """Check that an argument is a physical broker of the network, on the route or off it.

        Raises:
            ParameterError: it is not. The message names the argument.
        """
        hosts: list[PhysicalBroker] = []
        if isinstance(broker, PhysicalBroker) and broker.broker in self.topology.links:
            hosts = self.protocol.hosts(broker.broker)
        if broker not in hosts:
            raise ParameterError(
                f"{argument} must be PhysicalBroker(name, number) of the network, numbers from 1 "
                f"to {len(hosts) or self.protocol.m}, got {broker!r}"
            )

    def recovers(self, colluders: Iterable[PhysicalBroker]) -> bool:
        """Tell whether some brokers learn the secret together.

        Args:
            colluders: physical brokers of the network. Those off the route receive nothing.

        Raises:
            ParameterError: a colluder is no broker of the network.

        Example:
            >>> from ccbps.overlay import HyShare, Collusion, PhysicalBroker, Topology
            >>> line = Collusion(HyShare(2, enclaves=["B2"]), Topology.line(3))
            >>> colluders = [("B1", 1), ("B3", 2), ("B2", 1)]
            >>> line.recovers([PhysicalBroker(*broker) for broker in colluders])
            False
            >>> line.recovers([PhysicalBroker("B1", 1), PhysicalBroker("B1", 2)])
            True
        """
        chosen = np.zeros((1, len(self.brokers)), np.bool_)
        for broker in colluders:
            self.check(broker, "colluders")
            if broker in self._columns:
                chosen[0, self._columns[broker]] = True
        return bool(self.recovers_each(chosen)[0])

    def recovers_each(self, chosen: Bools) -> Bools:
        """Tell for each of many sets of brokers whether it learns the secret.

        Args:
            chosen: True for the members of each set, shape (sets, brokers), columns as in
                `brokers`.

        Returns:
            True for each set that learns it, shape (sets,).

        Raises:
            ShapeError: the sets have another shape or type.

        Example:
            >>> import numpy as np
            >>> from ccbps.overlay import ISSPS, Collusion, Topology
            >>> Collusion(ISSPS(2), Topology.line(1)).recovers_each(
            ...     np.array([[True, False], [True, True]])
            ... )
            array([False,  True])
        """
        array("chosen", chosen, np.bool_, ("sets", len(self.brokers)))
        sets = chosen[:, self._plain]
        if not self._split:
            sets = np.asarray(sets.any(axis=1, keepdims=True))
        # Whole numbers of at most 255, exact as floats, which multiply faster than integers.
        points = np.asarray(sets.astype(np.float32) @ self._points)
        return np.asarray((points >= self.protocol.k).any(axis=1))

    def tolerated(self) -> list[int]:
        """Count the sets of each size, 0 to all brokers, that do *not* recover the secret.

        The counts are the coefficients of a polynomial, (sum over s of light_s ((1 + x)^c -
        1)^s)^g (1 + x)^e: a number is touched as soon as one of its c brokers colludes, g groups
        are independent, and e enclaves do not matter. light_s is the number of sets of s numbers
        that hold fewer than k points. In ISSPS c is 1 and g is the number of hops, in SSPS the
        other way round. The value at a large enough power of 256 has the coefficients as its
        digits. Its size grows with the square of the number of brokers: half a megabyte for 2,000.

        Example:
            >>> from ccbps.overlay import ISSPS, Collusion, Topology
            >>> Collusion(ISSPS(2, 3), Topology.line(1)).tolerated()
            [1, 3, 0, 0]
        """
        size = len(self.brokers)
        width = size // 8 + 1  # bytes of a digit: no coefficient is above 2^size - 1
        x = 1 << 8 * width
        touched = (1 + x) ** self._copies - 1
        value = 0
        for light in reversed(self._light):
            value = value * touched + light
        value = value**self._groups * (1 + x) ** self._enclaves
        digits = value.to_bytes(width * (size + 1), "little")
        return [
            int.from_bytes(digits[i : i + width], "little") for i in range(0, len(digits), width)
        ]

    @property
    def fewest(self) -> int | None:
        """Size of the smallest set that recovers the secret, the worst case; None if none does.

        Example:
            >>> from ccbps.overlay import ISSPS, Collusion, Topology
            >>> [Collusion(ISSPS(2, 4, m=m), Topology.line(3)).fewest for m in (4, 3, 2)]
            [2, 1, 1]
        """
        if not self._plain.size:
            return None
        return next(s for s, light in enumerate(self._light) if light < comb(self.protocol.m, s))

    @property
    def most(self) -> int:
        """Size of the largest set that does not recover the secret, the best case.

        Example:
            >>> from ccbps.overlay import ISSPS, SSPS, Collusion, Topology
            >>> [Collusion(each(3, 5), Topology.line(4)).most for each in (SSPS, ISSPS)]
            [8, 8]
        """
        numbers = max(s for s, light in enumerate(self._light) if light)
        return numbers * self._groups * self._copies + self._enclaves

    def risk(self, share: ArrayLike) -> Reals:
        """Return the probability that the secret is recovered, for independent colluders.

        It is computed from sums of positive terms, so its relative error is 1e-12 even for small
        values, down to 1e-200.

        Args:
            share: probability of each broker to collude, any shape.

        Returns:
            probabilities, the same shape.

        Raises:
            ParameterError: a share is not within 0 to 1.

        Example:
            >>> from ccbps.overlay import ISSPS, SSPS, Collusion, Topology
            >>> line = Topology.line(5)
            >>> Collusion(SSPS(3), line).risk([0.01, 0.1]).round(6)
            array([0.000118, 0.068674])
            >>> Collusion(ISSPS(3), line).risk([0.01, 0.1]).round(6)
            array([5.00e-06, 4.99e-03])
        """
        x = np.asarray(share, np.float64)
        _check_share(x)
        if not self._plain.size:
            return np.zeros_like(x)
        with np.errstate(divide="ignore"):  # the logarithm of 0
            untouched = (1 - x) ** self._copies
            touched = -np.expm1(self._copies * np.log1p(-x))
            m, group = self.protocol.m, np.zeros_like(x)
            for s, light in enumerate(self._light):
                group += float(comb(m, s) - light) * touched**s * untouched ** (m - s)
            return np.asarray(-np.expm1(self._groups * np.log1p(-np.minimum(group, 1))))


class RiskEstimate(NamedTuple):
    """Estimate of a probability from random samples.

    Attributes:
        risk: share of the samples in which the secret was recovered.
        error: standard error, computed with one more sample of either result, so never 0.

    Example:
        >>> from ccbps.overlay import ISSPS, Collusion, Topology, estimate_risk
        >>> case = Collusion(ISSPS(2), Topology.line(3))
        >>> estimate = estimate_risk(case, 10_000, seed=1, share=0.5)
        >>> abs(estimate.risk - (1 - 0.75**3)) < 5 * estimate.error
        True
    """

    risk: float
    error: float


def estimate_risk(
    collusion: Collusion,
    samples: int,
    *,
    seed: int,
    share: float | None = None,
    count: int | None = None,
    machines: Mapping[PhysicalBroker, Hashable] | None = None,
) -> RiskEstimate:
    """Estimate the probability that the secret is recovered if random machines collude.

    For another distribution, draw the sets yourself and call `Collusion.recovers_each`.

    Args:
        collusion: protocol and network.
        samples: number of samples.
        seed: seed of the samples. The same seed gives the same estimate.
        share: probability of each machine to collude, independently of the others.
        count: number of machines of the route that collude, instead of a share. All sets of that
            size have the same probability.
        machines: machine of each broker. All brokers of a machine collude together. A broker
            without an entry has a machine of its own.

    Raises:
        ParameterError: not exactly one of share and count is given, or one is out of range, or a
            broker is not of the network.

    Example:
        >>> from ccbps.overlay import ISSPS, Collusion, Topology, estimate_risk
        >>> line = Collusion(ISSPS(2), Topology.line(3))
        >>> racks = {broker: broker.number for broker in line.brokers}
        >>> estimate_risk(line, 1000, seed=1, count=2, machines=racks).risk
        1.0
    """
    samples = whole("samples", samples, 1)
    if (share is None) == (count is None):
        raise ParameterError("either share or count must be given, and not both")
    machines = {} if machines is None else machines
    for broker in machines:
        collusion.check(broker, "machines")
    places: dict[Hashable, int] = {}
    # A machine's label may be equal to a broker, which is a tuple.
    labels = [
        (True, machines[broker]) if broker in machines else (False, broker)
        for broker in collusion.brokers
    ]
    machine = [places.setdefault(label, len(places)) for label in labels]
    if share is None:
        count = whole("count", count, 0, len(places), hint="the route has so many machines")
    else:
        _check_share(np.asarray(share, np.float64))
    rng, hits = np.random.default_rng(seed), 0
    batch = max(1, BATCH // len(places))
    for start in range(0, samples, batch):
        drawn = rng.random((min(batch, samples - start), len(places)))
        if share is not None:
            colluding = drawn < share
        else:
            colluding = np.zeros(drawn.shape, np.bool_)
            lowest = np.argsort(drawn, axis=1)[:, :count]
            np.put_along_axis(colluding, lowest, True, axis=1)
        hits += int(np.count_nonzero(collusion.recovers_each(colluding[:, machine])))
    smoothed = (hits + 1) / (samples + 2)
    return RiskEstimate(hits / samples, sqrt(smoothed * (1 - smoothed) / samples))


def _check_share(share: Reals) -> None:
    if not np.all((share >= 0) & (share <= 1)):
        raise ParameterError("share must be probabilities, from 0 to 1; in per cent, divide by 100")
