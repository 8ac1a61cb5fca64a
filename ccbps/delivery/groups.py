"""Groups of subscribers as rows of bits, and clusters of subscribers.

A group is a packed row: bit i, counted from the low end of the first byte, is subscriber i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Reals
from ccbps.errors import ParameterError, ShapeError

MOST_CLUSTER: Final = 24
"""Subscribers of a cluster, whose subsets are numbered."""
Choice: TypeAlias = Literal["index", "random", "similarity"]


def pack_groups(members: Bools) -> Bytes:
    """Groups as packed rows.

    Args:
        members: shape (groups, subscribers).

    Returns:
        uint8, shape (groups, subscribers / 8, rounded up).

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import pack_groups
        >>> pack_groups(np.array([[True, False, True, True]]))
        array([[13]], dtype=uint8)
    """
    return np.packbits(members, axis=-1, bitorder="little")


def members(group: Bytes, subscribers: int) -> list[int]:
    """The subscribers of one packed group, ascending."""
    found: list[int] = np.flatnonzero(
        np.unpackbits(group, count=subscribers, bitorder="little")
    ).tolist()
    return found


def group_sizes(groups: Bytes) -> Index:
    """How many subscribers each packed group has, shape (groups,)."""
    return np.asarray(np.bitwise_count(groups).sum(axis=-1, dtype=np.intp))


def require_groups(groups: Bytes, subscribers: int) -> None:
    """Raise ShapeError unless these are packed rows for so many subscribers."""
    width = -(-subscribers // 8)
    if groups.dtype != np.uint8 or groups.ndim != 2 or groups.shape[1] != width:
        raise ShapeError(
            f"groups must be packed, uint8 of shape (count, {width}) for {subscribers} "
            f"subscribers, got {groups.dtype} {groups.shape}"
        )
    spare = 8 * width - subscribers
    if spare and (groups[:, -1] >> np.uint8(8 - spare)).any():
        raise ParameterError(f"groups have members beyond the {subscribers} subscribers")


class Clusters:
    """Subscribers in disjoint clusters; a group is one number in each.

    Attributes:
        subscribers: how many.
        clusters: the subscribers of each cluster, at most 24.
        sizes: of the clusters, shape (clusters,).

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import Clusters, pack_groups
        >>> group = pack_groups(np.array([[True, False, True, True]]))
        >>> Clusters([[0, 1], [2, 3]]).values(group)
        array([[1, 3]])
    """

    def __init__(self, clusters: Sequence[Sequence[int]]) -> None:
        """
        Args:
            clusters: of subscribers 0 .. N - 1, each in one of them.

        Raises:
            ParameterError: they are not, or a cluster has no subscriber or more than 24.
        """
        self.clusters = [[*cluster] for cluster in clusters]
        everybody = sorted(one for cluster in self.clusters for one in cluster)
        self.subscribers = len(everybody)
        if everybody != [*range(len(everybody))]:
            raise ParameterError("clusters must have each subscriber 0 .. N - 1 once")
        if not all(1 <= len(cluster) <= MOST_CLUSTER for cluster in self.clusters):
            raise ParameterError(f"each cluster must have 1 to {MOST_CLUSTER} subscribers")
        self.sizes = np.array([len(cluster) for cluster in self.clusters], dtype=np.intp)
        width = int(self.sizes.max(initial=1))
        # Column N of the unpacked bits is zero: what clusters that are not full have in its place.
        self._columns = np.full((len(self.clusters), width), self.subscribers, dtype=np.intp)
        for row, cluster in zip(self._columns, self.clusters, strict=True):
            row[: len(cluster)] = cluster
        self._powers = np.float32(2) ** np.arange(width, dtype=np.float32)

    @classmethod
    def of_sizes(
        cls,
        sizes: Sequence[int],
        choice: Choice = "index",
        *,
        seed: int = 0,
        groups: Bytes | None = None,
    ) -> Clusters:
        """Clusters of these sizes.

        Args:
            sizes: of the clusters.
            choice: "index", neighbours together; "random"; or "similarity", those together that are
                often in the same groups.
            seed: of what is random.
            groups: for "similarity": a sample of traffic, packed.

        Example:
            >>> import numpy as np
            >>> from ccbps.delivery import Clusters, pack_groups
            >>> groups = pack_groups(np.array([[1, 0, 1, 0], [0, 1, 0, 1]], dtype=bool))
            >>> Clusters.of_sizes([2, 2], "similarity", groups=groups).clusters
            [[0, 2], [1, 3]]

        Raises:
            ParameterError: there is no such choice, or groups are given for another one or missing.
        """
        if choice not in ("index", "random", "similarity"):
            raise ParameterError(
                f"choice must be 'index', 'random' or 'similarity', got {choice!r}"
            )
        if (choice == "similarity") != (groups is not None):
            raise ParameterError(
                "groups must be a sample of traffic for choice='similarity', and for no other one"
            )
        order: Index = np.arange(sum(sizes))
        if choice == "random":
            order = np.random.default_rng(seed).permutation(len(order))
        elif groups is not None:
            order = similar_order(groups, len(order))
        return cls([part.tolist() for part in np.split(order, np.cumsum(sizes)[:-1])])

    def values(self, groups: Bytes) -> Index:
        """The number of each group in each cluster, shape (groups, clusters): bit j is the
        cluster's j-th subscriber."""
        require_groups(groups, self.subscribers)
        bits = np.zeros((len(groups), self.subscribers + 1), dtype=np.float32)
        bits[:, :-1] = np.unpackbits(groups, axis=1, count=self.subscribers, bitorder="little")
        # Whole numbers below 2^24 are exact.
        return (bits[:, self._columns] @ self._powers).astype(np.intp)


def similar_order(groups: Bytes, subscribers: int) -> Index:
    """All subscribers in a row, from the first one on, each followed by the one of the rest that is
    most often in the same groups (Jaccard's index)."""
    require_groups(groups, subscribers)
    bits = np.unpackbits(groups, axis=1, count=subscribers, bitorder="little")
    rows = bits.T.astype(np.float32)
    both = rows @ rows.T
    alone = np.diagonal(both)
    similar: Reals = both / np.maximum(1, alone[:, None] + alone - both)
    order, left = [0], np.ones(subscribers, dtype=np.bool_)
    left[0] = False
    while len(order) < subscribers:
        near = np.where(left, similar[order[-1]], -1.0)
        order.append(int(near.argmax()))
        left[order[-1]] = False
    return np.array(order, dtype=np.intp)


def even_sizes(subscribers: int, clusters: int) -> list[int]:
    """Sizes of clusters that are as even as possible, larger ones first."""
    each, more = divmod(subscribers, clusters)
    return [each + 1] * more + [each] * (clusters - more)
