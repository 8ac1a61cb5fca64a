"""Which colluding brokers learn a secret under SSPS, ISSPS and HyShare, and how likely it is.

Colluding brokers follow the protocol, and put together what they receive. Of every split that its
logical broker is sent, physical broker i of m receives the points i, i + m, i + 2m and so on.

- In ISSPS the colluders learn the secret if and only if those of *some* logical broker have k
  points together. Then they know k children of each fragment of the logical broker before it, so
  all these fragments, and at last the secret. Otherwise no split tells them anything.
- HyShare is the same without its enclaves: whoever runs one sees ciphertexts. An enclave splits
  afresh, so what is known before it and after it does not add up.
- In SSPS a fragment stays on brokers of one number. So it counts which numbers colluders have, in
  whichever logical brokers, and these must hold k points.

*Errata*, [Survey] section 8.2:

- Theorem 1: k - 1 colluding brokers learn nothing. True for m = n only. With fewer a broker holds
  several points, and the k - 1 with the most of them have k or more: for k = 2, n = 4, m = 2 any
  one broker is enough.
- Its proof: a broker receives at most k fragments. For m = n it receives n^(j - 1) at hop j; but
  of every split only one, which is what the proof needs.
- Theorem 2: one broker in each logical broker that does not collude keeps the secret. True for
  k = n only (so m = n); otherwise n - k + 1 of m = n are needed.
- The best case, (k - 1) / k of all brokers: it is (k - 1) / m for m = n. SSPS has the same: the
  brokers of k - 1 numbers everywhere. ISSPS betters neither the best nor the worst case. There are
  more sets that learn nothing.

Source: [YK16]; [Survey] sections 2.3 and 8.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from ccbps.arrays import Bools, Index, Reals
from ccbps.errors import ParameterError
from ccbps.overlay.splits.protocols import ISSPS, SSPS, Party
from ccbps.overlay.topology.topology import PhysicalBroker, Topology


class Collusion:
    """Sets of brokers on the route of one secret, and which of them recover it.

    Attributes:
        protocol: how the secret travels.
        topology: where.
        brokers: the physical brokers of the route, in its order; an enclave's host is one of them.

    Example:
        >>> from ccbps.overlay import ISSPS, SSPS, Collusion, PhysicalBroker, Topology
        >>> line = Topology.line(2)
        >>> two = [PhysicalBroker("B1", 1), PhysicalBroker("B2", 2)]
        >>> Collusion(SSPS(2), line).recovers(two), Collusion(ISSPS(2), line).recovers(two)
        (True, False)
        >>> Collusion(SSPS(2), line).tolerated(), Collusion(ISSPS(2), line).tolerated()
        ([1, 4, 2, 0, 0], [1, 4, 4, 0, 0])
    """

    def __init__(self, protocol: SSPS | ISSPS, topology: Topology) -> None:
        """
        Args:
            protocol: k, n, m and enclaves.
            topology: all its subscribers are sent the secret.

        Raises:
            ParameterError: an enclave is no broker of the topology.
        """
        self.protocol, self.topology = protocol, topology
        m = protocol.m
        self.brokers = protocol.brokers(topology)
        self._columns = {broker: column for column, broker in enumerate(self.brokers)}
        plain = [broker for broker in self.brokers if not self._is_enclave(broker.broker)]
        self._plain: Index = np.array([self._columns[one] for one in plain], np.intp).reshape(-1, m)
        self._enclaves = len(self.brokers) - self._plain.size
        hops = len(self._plain)
        # Whether brokers split for brokers. If so, every logical broker may recover the secret on
        # its own; otherwise they all do together, as one with `_copies` brokers of each number.
        self._split = protocol.splits(Party.BROKER, Party.BROKER)
        self._groups, self._copies = (hops, 1) if self._split else (1, hops)
        self._points = np.array([len(protocol.points(i + 1)) for i in range(m)], np.float32)
        self._light = self._count_light()

    def __repr__(self) -> str:
        return f"Collusion({self.protocol!r}, {self.topology!r})"

    def _is_enclave(self, name: str) -> bool:
        return self.protocol.party(name) is Party.ENCLAVE

    def _count_light(self) -> list[int]:
        """How many sets of s = 0 .. m numbers hold fewer than k points together.

        `more` of the numbers hold one point more than the rest.
        """
        k, m = self.protocol.k, self.protocol.m
        each, more = divmod(self.protocol.n, m)
        return [
            sum(
                comb(more, a) * comb(m - more, s - a)
                for a in range(min(s, more) + 1)
                if each * s + a < k
            )
            for s in range(m + 1)
        ]

    def check(self, broker: PhysicalBroker, argument: str) -> None:
        """Refuse what is no physical broker of the network, on the route or off it.

        Raises:
            ParameterError: that is so; names the argument.
        """
        known: list[PhysicalBroker] = []
        if isinstance(broker, PhysicalBroker) and broker.broker in self.topology.links:
            known = self.protocol.hosts(broker.broker)
        if broker not in known:
            raise ParameterError(
                f"{argument} must be PhysicalBroker(name, number) of the network, numbers from 1 "
                f"to {len(known) or self.protocol.m}, got {broker!r}"
            )

    def recovers(self, colluders: Iterable[PhysicalBroker]) -> bool:
        """Whether these brokers together learn the secret.

        Args:
            colluders: physical brokers of the network; those off the route receive nothing.

        Raises:
            ParameterError: one is not of the network.

        Example:
            >>> from ccbps.overlay import HyShare, Collusion, PhysicalBroker, Topology
            >>> line = Collusion(HyShare(2, enclaves=["B2"]), Topology.line(3))
            >>> one, two, host = ("B1", 1), ("B3", 2), ("B2", 1)
            >>> line.recovers([PhysicalBroker(*each) for each in (one, two, host)])
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
        """Whether each of many sets of brokers learns the secret.

        Args:
            chosen: (sets, brokers), columns as in `brokers`.

        Returns:
            (sets,).

        Raises:
            ParameterError: of another shape or type.

        Example:
            >>> import numpy as np
            >>> from ccbps.overlay import ISSPS, Collusion, Topology
            >>> Collusion(ISSPS(2), Topology.line(1)).recovers_each(
            ...     np.array([[True, False], [True, True]])
            ... )
            array([False,  True])
        """
        if chosen.dtype != np.bool_ or chosen.ndim != 2 or chosen.shape[1] != len(self.brokers):
            raise ParameterError(
                f"chosen must be bools of shape (sets, {len(self.brokers)}), "
                f"got {chosen.dtype} of shape {chosen.shape}"
            )
        sets = chosen[:, self._plain]
        if not self._split:
            sets = np.asarray(sets.any(axis=1, keepdims=True))
        # Whole numbers of at most 255, exact as floats, which multiply faster than integers.
        points = np.asarray(sets.astype(np.float32) @ self._points)
        return np.asarray((points >= self.protocol.k).any(axis=1))

    def tolerated(self) -> list[int]:
        """How many sets of each size, 0 to all brokers, do *not* recover the secret.

        The coefficients of a polynomial, (sum over s of light_s ((1 + x)^c - 1)^s)^g (1 + x)^e: a
        number is touched as soon as one of its c brokers colludes, g groups are independent, and e
        enclaves do not matter. light_s counts the sets of s numbers that hold fewer than k points.
        In ISSPS c is 1 and g the hops, in SSPS the other way round. The value at one power of 256
        that is great enough has the coefficients as its digits. Its size grows with the square of
        the brokers: half a megabyte for 2,000.

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
        """Brokers of the smallest set that recovers the secret, the worst case; None if none does.

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
        """Brokers of the greatest set that does not recover the secret, the best case.

        Example:
            >>> from ccbps.overlay import ISSPS, SSPS, Collusion, Topology
            >>> [Collusion(each(3, 5), Topology.line(4)).most for each in (SSPS, ISSPS)]
            [8, 8]
        """
        numbers = max(s for s, light in enumerate(self._light) if light)
        return numbers * self._groups * self._copies + self._enclaves

    def risk(self, share: ArrayLike) -> Reals:
        """The probability that the secret is recovered if each broker colludes independently.

        Sums of positive terms, so that small values are as exact as large ones: to 1e-12 of
        themselves, down to 1e-200.

        Args:
            share: the probability that a broker does; any shape.

        Returns:
            As `share`.

        Raises:
            ParameterError: not all of it is within 0 to 1.

        Example:
            >>> from ccbps.overlay import ISSPS, SSPS, Collusion, Topology
            >>> line = Topology.line(5)
            >>> Collusion(SSPS(3), line).risk([0.01, 0.1]).round(6)
            array([0.000118, 0.068674])
            >>> Collusion(ISSPS(3), line).risk([0.01, 0.1]).round(6)
            array([5.00e-06, 4.99e-03])
        """
        x = np.asarray(share, np.float64)
        check_share(x)
        if not self._plain.size:
            return np.zeros_like(x)
        with np.errstate(divide="ignore"):  # the logarithm of 0
            untouched = (1 - x) ** self._copies
            touched = -np.expm1(self._copies * np.log1p(-x))
            m, each = self.protocol.m, np.zeros_like(x)
            for s, light in enumerate(self._light):
                each += float(comb(m, s) - light) * touched**s * untouched ** (m - s)
            return np.asarray(-np.expm1(self._groups * np.log1p(-np.minimum(each, 1))))


def check_share(share: Reals) -> None:
    """Refuse what is no probability.

    Raises:
        ParameterError: not all are within 0 to 1.
    """
    if not np.all((share >= 0) & (share <= 1)):
        raise ParameterError("share must be probabilities, from 0 to 1; in per cent, divide by 100")
