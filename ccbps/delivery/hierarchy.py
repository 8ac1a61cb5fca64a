"""A binary tree of keys: a group is covered by the fewest subtrees that have nobody else in them.

Every subscriber has the keys on its way to the root. Nothing is learned from traffic, and nothing
is made for an event; there are 2N - 1 keys in all.

Sources: Wong, Gouda and Lam, SIGCOMM 1998, and Wallner, Harder and Agee, RFC 2627, for the tree;
[OP01] sections 3 and 5 for covering a group; [NNL01] as the complete subtree method.
"""

from __future__ import annotations

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.delivery.names import node_name
from ccbps.delivery.plans import Plan, Strategy, Wrap


class KeyHierarchy(Strategy):
    """A binary tree over the subscribers by number.

    Attributes:
        subscribers: N.
        levels: of the tree; subscribers are leaves of a full one, whose other leaves are empty.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import KeyHierarchy, pack_groups
        >>> group = np.array([[1, 1, 1, 1, 0, 1, 0, 0]], dtype=bool)
        >>> KeyHierarchy(8).count(pack_groups(group))       # the left half, and number 5
        array([2])
    """

    def __init__(self, subscribers: int) -> None:
        """
        Args:
            subscribers: N.
        """
        super().__init__(subscribers)
        self.levels = (subscribers - 1).bit_length()

    def _plan(self, group: Bytes) -> Plan:
        wraps = []
        for level, nodes in enumerate(self._cover(group[None])):
            for node in np.flatnonzero(nodes[0]).tolist():
                first = node << level
                if level and first + 1 < self.subscribers:
                    wraps.append(Wrap(node_name(level, node)))
                else:  # the one subscriber below
                    wraps += self._each([first])
        return Plan((*wraps,), {})

    def _count(self, groups: Bytes) -> Index:
        counts = np.zeros(len(groups), dtype=np.intp)
        for start in range(0, len(groups), 1 << 10):
            block = slice(start, start + (1 << 10))
            for nodes in self._cover(groups[block]):
                counts[block] += nodes.sum(axis=1)
        return counts

    def _cover(self, groups: Bytes) -> list[Bools]:
        """Of each level, leaves first, which nodes are taken, shape (groups, nodes)."""
        full: Bools = np.zeros((len(groups), 1 << self.levels), dtype=np.bool_)
        full[:, : self.subscribers] = np.unpackbits(
            groups, axis=1, count=self.subscribers, bitorder="little"
        )
        empty: Bools = np.zeros(full.shape[1], dtype=np.bool_)
        empty[self.subscribers :] = True
        taken = []
        for _ in range(self.levels):
            # A leaf where nobody is may be under a key; a subtree of such leaves is no part of it.
            pairs = (full | empty).reshape(len(groups), -1, 2)
            nobody: Bools = np.asarray(empty.reshape(-1, 2).all(axis=1))
            above: Bools = np.asarray(pairs.all(axis=2) & ~nobody)
            taken.append(full & ~np.repeat(above, 2, axis=1))
            full, empty = above, nobody
        taken.append(full)
        return taken
