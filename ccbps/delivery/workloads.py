"""Groups as the source draws them: uniform, and with a popular set.

Source: [OP01] section 4.
"""

from __future__ import annotations

import numpy as np

from ccbps.arrays import Bytes
from ccbps.errors import ParameterError


def uniform_groups(events: int, subscribers: int, rng: np.random.Generator) -> Bytes:
    """Every subset of the subscribers with equal probability.

    Returns:
        packed groups, shape (events, subscribers / 8, rounded up).
    """
    width = -(-subscribers // 8)
    groups = rng.integers(0, 256, (events, width), dtype=np.uint8)
    groups[:, -1] &= np.uint8(255 >> (8 * width - subscribers))
    return groups


class PopularSet:
    """Some groups that come with probability p, each as often as the others; else uniform groups.

    Attributes:
        subscribers: N.
        share: p.
        groups: the popular set, packed, shape (S, subscribers / 8, rounded up).
    """

    def __init__(
        self, subscribers: int, groups: int, share: float, rng: np.random.Generator
    ) -> None:
        """
        Args:
            subscribers: N.
            groups: S; uniform ones.
            share: p.
            rng: draws the set.

        Raises:
            ParameterError: share is no probability, or there are no groups.
        """
        if not 0 <= share <= 1 or groups < 1:
            raise ParameterError(
                f"share must be a probability and groups at least 1, got {share!r} and {groups!r}"
            )
        self.subscribers, self.share = subscribers, share
        self.groups = uniform_groups(groups, subscribers, rng)

    def draw(self, events: int, rng: np.random.Generator) -> Bytes:
        """Groups of so many events, packed."""
        found = uniform_groups(events, self.subscribers, rng)
        rows = np.flatnonzero(rng.random(events) < self.share)
        found[rows] = self.groups[rng.integers(0, len(self.groups), len(rows))]
        return found
