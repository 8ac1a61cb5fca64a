"""Groups of subscribers as rows of bits, and clusters of subscribers.

A group is a packed row. Subscriber i has bit i, counted from the low end of the first byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Reals
from ccbps.checks import array, choice
from ccbps.errors import ParameterError

MOST_CLUSTER: Final = 24
"""Largest number of subscribers of a cluster, whose subsets are numbered."""
Ordering: TypeAlias = Literal["index", "random", "similarity"]


def pack_groups(members: Bools) -> Bytes:
    """Pack groups into rows of bits.

    Args:
        members: True for each member of a group, shape (groups, subscribers).

    Returns:
        uint8, shape (groups, subscribers / 8, rounded up).

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import pack_groups
        >>> pack_groups(np.array([[True, False, True, True]]))
        array([[13]], dtype=uint8)
    """
    return np.packbits(members, axis=-1, bitorder="little")


def unpack_groups(groups: Bytes, subscribers: int) -> Bytes:
    """Unpack groups, shape (..., bytes), into bits, uint8 of shape (..., subscribers)."""
    return np.unpackbits(groups, axis=-1, count=subscribers, bitorder="little")


def members_of(group: Bytes, subscribers: int) -> list[int]:
    """List the members of one packed group in ascending order."""
    members: list[int] = np.flatnonzero(unpack_groups(group, subscribers)).tolist()
    return members


def group_sizes(groups: Bytes) -> Index:
    """Count the members of each packed group, shape (groups,)."""
    return np.asarray(np.bitwise_count(groups).sum(axis=-1, dtype=np.intp))


def check_groups(groups: Bytes, subscribers: int) -> None:
    """Check that groups are packed rows for a number of subscribers.

    Raises:
        ShapeError: they have another type or shape.
        ParameterError: a group has a member beyond the last subscriber.
    """
    width = -(-subscribers // 8)
    array("packed groups", groups, np.uint8, ("groups", width))
    if (groups[:, -1] > (255 >> (8 * width - subscribers))).any():
        raise ParameterError(f"groups have members beyond the {subscribers} subscribers")


class Clusters:
    """Disjoint clusters of subscribers. A group is one number in each cluster.

    Args:
        clusters: subscribers of each cluster, 1 to 24. Each subscriber 0 .. N - 1 is in one.

    Attributes:
        subscribers: number N of subscribers.
        sizes: number of subscribers of each cluster, shape (clusters,).

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import Clusters, pack_groups
        >>> group = pack_groups(np.array([[True, False, True, True]]))
        >>> Clusters([[0, 1], [2, 3]]).values(group)
        array([[1, 3]])

    Raises:
        ParameterError: a subscriber is not in exactly one cluster, or a cluster has no subscriber
            or more than 24.
    """

    def __init__(self, clusters: Sequence[Sequence[int]]) -> None:
        self.clusters = [[*cluster] for cluster in clusters]
        everybody = sorted(subscriber for cluster in self.clusters for subscriber in cluster)
        self.subscribers = len(everybody)
        if everybody != [*range(len(everybody))]:
            raise ParameterError("clusters must have each subscriber 0 .. N - 1 once")
        self.sizes = np.array([len(cluster) for cluster in self.clusters], dtype=np.intp)
        width = int(self.sizes.max(initial=1))
        if not self.sizes.all() or width > MOST_CLUSTER:
            raise ParameterError(f"each cluster must have 1 to {MOST_CLUSTER} subscribers")
        # Column N of the unpacked bits is zero. It fills up the clusters that are not full.
        self._columns = np.full((len(self.clusters), width), self.subscribers, dtype=np.intp)
        for row, cluster in zip(self._columns, self.clusters, strict=True):
            row[: len(cluster)] = cluster
        self._powers = np.float32(2) ** np.arange(width, dtype=np.float32)

    @classmethod
    def of_sizes(
        cls,
        sizes: Sequence[int],
        ordering: Ordering = "index",
        *,
        seed: int = 0,
        groups: Bytes | None = None,
    ) -> Clusters:
        """Form clusters of some sizes.

        Args:
            sizes: number of subscribers of each cluster.
            ordering: criterion of who shares a cluster: "index" for consecutive numbers, "random",
                or "similarity" for subscribers that are often in the same groups.
            seed: seed of the random ordering.
            groups: packed sample of the traffic, for "similarity" only.

        Example:
            >>> import numpy as np
            >>> from ccbps.delivery import Clusters, pack_groups
            >>> groups = pack_groups(np.array([[1, 0, 1, 0], [0, 1, 0, 1]], dtype=bool))
            >>> Clusters.of_sizes([2, 2], "similarity", groups=groups).clusters
            [[0, 2], [1, 3]]

        Raises:
            ParameterError: there is no such ordering, or groups are missing or not needed.
        """
        choice("ordering", ordering, get_args(Ordering))
        if (ordering == "similarity") != (groups is not None):
            raise ParameterError(
                "groups must be a sample of traffic for ordering='similarity', and for no other one"
            )
        order: Index = np.arange(sum(sizes))
        if ordering == "random":
            order = np.random.default_rng(seed).permutation(len(order))
        elif groups is not None:
            order = similar_order(groups, len(order))
        return cls([part.tolist() for part in np.split(order, np.cumsum(sizes)[:-1])])

    def values(self, groups: Bytes) -> Index:
        """Number each group in each cluster, shape (groups, clusters).

        Bit j of a number stands for the j-th subscriber of the cluster.

        Raises:
            ShapeError: the groups have another shape.
        """
        check_groups(groups, self.subscribers)
        bits = np.zeros((len(groups), self.subscribers + 1), dtype=np.float32)
        bits[:, :-1] = unpack_groups(groups, self.subscribers)
        # Whole numbers below 2^24 are exact.
        return (bits[:, self._columns] @ self._powers).astype(np.intp)


def similar_order(groups: Bytes, subscribers: int) -> Index:
    """Order the subscribers so that those with similar groups are neighbours.

    Subscriber 0 is first. Each of the others follows the one with which it is most often in the
    same groups (Jaccard's index).
    """
    check_groups(groups, subscribers)
    rows = unpack_groups(groups, subscribers).T.astype(np.float32)
    both = rows @ rows.T
    alone = np.diagonal(both)
    similarity: Reals = both / np.maximum(1, alone[:, None] + alone - both)
    order, left = [0], np.ones(subscribers, dtype=np.bool_)
    left[0] = False
    while len(order) < subscribers:
        order.append(int(np.where(left, similarity[order[-1]], -1.0).argmax()))
        left[order[-1]] = False
    return np.array(order, dtype=np.intp)


def even_sizes(subscribers: int, clusters: int) -> list[int]:
    """Return sizes of clusters that are as even as possible, the larger ones first."""
    size, larger = divmod(subscribers, clusters)
    return [size + 1] * larger + [size] * (clusters - larger)
