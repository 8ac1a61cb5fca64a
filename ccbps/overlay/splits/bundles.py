"""Many fragments of many secrets at once, as one party of a simulation sends them to another.

A `Bundle` has a row for each fragment. A `Tally` only counts fragments, for networks with too many.

Fragments are joined split by split. Splits for different logical brokers are different splits, so a
bundle names the brokers for which its fragments were split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Self

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Randomness
from ccbps.checks import Printable
from ccbps.errors import DecodeError
from ccbps.overlay.splits.fragments import Scheme, join_values, split_value
from ccbps.sharing import Shamir


class Tally:
    """Number of fragments of a number of secrets.

    Args:
        secrets: number of secrets.
        count: number of fragments of all of them.
        route: logical brokers for which the fragments were split, the first one first.
    """

    def __init__(self, secrets: int, count: int, route: tuple[str, ...] = ()) -> None:
        self.secrets, self.count, self.route = secrets, count, route

    def split(
        self, scheme: Scheme, to: str, randomness: Randomness, of: int | None = None
    ) -> list[Tally]:
        """Split each fragment for a logical broker; return a tally for each point."""
        return [Tally(self.secrets, self.count, (*self.route, to)) for _ in range(scheme.n)]

    @staticmethod
    def merged(loads: Sequence[Tally]) -> Tally:
        """Merge tallies of one route."""
        return Tally(loads[0].secrets, sum(load.count for load in loads), loads[0].route)

    @staticmethod
    def first_copies(loads: Sequence[Tally], seen: Sequence[Tally], replicas: int) -> list[Tally]:
        """Keep the tallies of the first replica, if none was seen."""
        return [] if seen else [*loads[: len(loads) // replicas]]


class Bundle(Printable):
    """Fragments, one in each row. The values are parts of secrets and do not print.

    Args:
        secret: number of the secret, shape (rows,).
        path: point of each split, the first one first, uint8, shape (rows, splits).
        value: uint8, shape (rows, bytes); no bytes if the values are sealed.
        route: logical brokers for which the fragments were split, one for each split.

    Attributes:
        count: number of fragments.
    """

    def __init__(self, secret: Index, path: Bytes, value: Bytes, route: tuple[str, ...]) -> None:
        self.secret, self.path, self.value, self.route = secret, path, value, route
        self.count = len(secret)

    @classmethod
    def of(cls, secrets: Bytes) -> Self:
        """Return secrets that are not yet split, shape (count, bytes)."""
        count = len(secrets)
        return cls(np.arange(count), np.empty((count, 0), dtype=np.uint8), secrets, ())

    def __repr__(self) -> str:
        return f"<Bundle of {self.count} fragments after {len(self.route)} splits>"

    def only(self, rows: Bools | Index) -> Bundle:
        """Select some rows."""
        return Bundle(self.secret[rows], self.path[rows], self.value[rows], self.route)

    def with_values(self, value: Bytes) -> Bundle:
        """Return the same fragments with other values."""
        return Bundle(self.secret, self.path, value, self.route)

    def split(
        self, scheme: Scheme, to: str, randomness: Randomness, of: int | None = None
    ) -> list[Bundle]:
        """Split each fragment for a logical broker; return a bundle for each point.

        Args:
            scheme: scheme of the split.
            to: name of the logical broker.
            randomness: source of uniform bytes.
            of: number of all secrets, for unsplit secrets of which some may be missing. Then each
                secret gets the coins of its number, independent of the others here.
        """
        if of is not None:
            every = np.zeros((of, self.value.shape[1]), dtype=np.uint8)
            every[self.secret] = self.value
            parts = Bundle.of(every).split(scheme, to, randomness)
            return [part.only(self.secret) for part in parts]
        if isinstance(scheme, Shamir):
            values = scheme.split_rows(np.ascontiguousarray(self.value), randomness=randomness)
        else:
            rows = [split_value(scheme, row.tobytes(), randomness) for row in self.value]
            joined = np.frombuffer(b"".join(map(b"".join, rows)), dtype=np.uint8)
            values = joined.reshape(self.count, scheme.n, -1).transpose(1, 0, 2)
        bundles = []
        for point, value in enumerate(values, 1):
            path = np.pad(self.path, ((0, 0), (0, 1)), constant_values=point)
            bundles.append(Bundle(self.secret, path, value, (*self.route, to)))
        return bundles

    @staticmethod
    def merged(loads: Sequence[Bundle]) -> Bundle:
        """Merge bundles of one route."""
        if len(loads) == 1:
            return loads[0]
        return Bundle(
            np.concatenate([load.secret for load in loads]),
            np.concatenate([load.path for load in loads]),
            np.concatenate([load.value for load in loads]),
            loads[0].route,
        )

    @staticmethod
    def first_copies(
        loads: Sequence[Bundle], seen: Sequence[Bundle], replicas: int
    ) -> list[Bundle]:
        """Keep the first fragment of each path, if none was seen."""
        rows = Bundle.merged([*seen, *loads])
        first = _first_rows(rows)
        new = rows.only(np.sort(first[first >= sum(bundle.count for bundle in seen)]))
        return [new] if new.count else []


def recovered(bundles: Iterable[Bundle], scheme: Scheme) -> Bundle:
    """Recover all secrets that some fragments give, of any splits.

    A split with too few fragments, or with more altered ones than can be corrected, gives nothing.
    Nor do sealed fragments.

    Returns:
        a bundle after no split, a row for each secret.
    """
    by_route: dict[tuple[str, ...], list[Bundle]] = defaultdict(list)
    for bundle in bundles:
        if bundle.value.shape[1]:
            by_route[bundle.route].append(bundle)
    for depth in range(max(map(len, by_route), default=0), 0, -1):
        for route in [route for route in by_route if len(route) == depth]:
            joined = _join_last_split(_distinct(by_route.pop(route)), scheme)
            if joined.count:
                by_route[route[:-1]].append(joined)
    secrets = by_route[()]
    return _distinct(secrets) if secrets else Bundle.of(np.empty((0, 0), dtype=np.uint8))


def _distinct(bundles: Sequence[Bundle]) -> Bundle:
    """Merge bundles of one route, sorted by secret and path; keep the first fragment of a path."""
    rows = Bundle.merged(bundles)
    return rows.only(_first_rows(rows))


def _first_rows(rows: Bundle) -> Index:
    """Return the places of the first fragments of all paths, sorted by secret and path."""
    order = np.lexsort((*rows.path.T[::-1], rows.secret))
    return order[_starts(rows.secret[order], rows.path[order])]


def _starts(secret: Index, path: Bytes) -> Bools:
    """Mark the sorted rows whose secret or path is not that of the row before."""
    new = np.ones(len(secret), dtype=np.bool_)
    new[1:] = (secret[1:] != secret[:-1]) | (path[1:] != path[:-1]).any(axis=1)
    return new


def _join_last_split(rows: Bundle, scheme: Scheme) -> Bundle:
    """Join sorted fragments to the fragments that were split last."""
    parent = rows.path[:, :-1]
    starts = np.flatnonzero(_starts(rows.secret, parent))
    sizes = np.diff([*starts.tolist(), rows.count])
    places, values = [starts[:0]], []
    for size in np.unique(sizes[sizes >= scheme.k]).tolist():
        groups = starts[sizes == size][:, None] + np.arange(size)
        patterns, which = np.unique(rows.path[groups, -1], axis=0, return_inverse=True)
        for number, points in enumerate(patterns.tolist()):
            of_pattern = groups[which.reshape(-1) == number]
            joined, value = _join_groups(rows.value[of_pattern.T], points, scheme)
            places.append(of_pattern[joined, 0])
            values.append(value)
    at = np.concatenate(places)
    value = np.concatenate(values) if values else rows.value[:0]
    return Bundle(rows.secret[at], parent[at], value, rows.route[:-1])


def _join_groups(values: Bytes, points: list[int], scheme: Scheme) -> tuple[Index, Bytes]:
    """Join groups of fragments that have the same points.

    Args:
        values: values of the fragments, shape (points, groups, bytes).
        points: points of the fragments of each group.
        scheme: scheme of the split.

    Returns:
        numbers of the groups that could be joined, and the joined values.
    """
    groups = np.arange(values.shape[1])
    if isinstance(scheme, Shamir):
        # If a fragment was altered, groups are joined one by one.
        with suppress(DecodeError):
            return groups, scheme.join_rows(np.ascontiguousarray(values), points)
    places, joined = [], []
    for group in groups.tolist():
        parts = {point: row.tobytes() for point, row in zip(points, values[:, group], strict=True)}
        with suppress(DecodeError):
            joined.append(join_values(scheme, parts))
            places.append(group)
    size = len(joined[0]) if joined else 0
    rows = np.frombuffer(b"".join(joined), dtype=np.uint8).reshape(len(joined), size)
    return np.array(places, dtype=np.intp), rows
