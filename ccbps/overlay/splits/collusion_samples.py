"""How likely colluding brokers learn a secret, by samples: for rules that have no formula."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import sqrt
from typing import Final, NamedTuple

import numpy as np

from ccbps.errors import ParameterError
from ccbps.overlay.splits.collusion import Collusion, check_share
from ccbps.overlay.topology.topology import PhysicalBroker

BATCH: Final = 1 << 15
"""Random numbers drawn at a time: 256 KiB."""


class Estimate(NamedTuple):
    """A probability from random samples.

    Attributes:
        risk: the share of samples in which the secret was recovered.
        error: standard error, as if one more sample had come out either way: never 0.

    Example:
        >>> from ccbps.overlay import ISSPS, Collusion, Topology, estimate_risk
        >>> found = estimate_risk(Collusion(ISSPS(2), Topology.line(3)), 10_000, seed=1, share=0.5)
        >>> abs(found.risk - (1 - 0.75**3)) < 5 * found.error
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
) -> Estimate:
    """The probability that the secret is recovered if random machines collude.

    Where neither rule does, draw the sets and ask `Collusion.recovers_each`.

    Args:
        collusion: the protocol and the network.
        samples: how many.
        seed: the same one gives the same estimate.
        share: the probability that a machine colludes, independently of the others; or
        count: how many machines of the route do, any of them alike.
        machines: what each broker runs on; all on a machine collude if it does. A broker that is
            not in it has a machine of its own.

    Raises:
        ParameterError: not exactly one of share and count, or one is out of range; a broker is not
            of the network.

    Example:
        >>> from ccbps.overlay import ISSPS, Collusion, Topology, estimate_risk
        >>> line = Collusion(ISSPS(2), Topology.line(3))
        >>> racks = {broker: broker.number for broker in line.brokers}
        >>> estimate_risk(line, 1000, seed=1, count=2, machines=racks).risk
        1.0
    """
    if type(samples) is not int or samples < 1:
        raise ParameterError(f"samples must be a whole number, at least 1, got {samples!r}")
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
    carrier = [places.setdefault(label, len(places)) for label in labels]
    if share is not None:
        check_share(np.asarray(share, np.float64))
    elif type(count) is not int or not 0 <= count <= len(places):
        raise ParameterError(
            f"count must be a whole number of 0 to {len(places)}, the machines of the route, "
            f"got {count!r}"
        )
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
        hits += int(np.count_nonzero(collusion.recovers_each(colluding[:, carrier])))
    smoothed = (hits + 1) / (samples + 2)
    return Estimate(hits / samples, sqrt(smoothed * (1 - smoothed) / samples))
