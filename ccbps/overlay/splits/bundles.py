"""Many fragments of many secrets at once: what one party of a simulation sends to another.

A `Bundle` has a row for each fragment. A `Tally` only counts them, for networks that have too many.

Fragments are joined split by split. Splits for different logical brokers are different ones, so a
bundle says for which brokers its fragments were split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Self

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Numbers, Randomness
from ccbps.errors import DecodeError
from ccbps.overlay.splits.splits import Scheme, join_values, split_value
from ccbps.sharing import Shamir


class Tally:
    """So many fragments of so many secrets, all of them.

    Attributes:
        secrets: how many.
        count: fragments.
        route: what fragments were split for, the first one first.
    """

    def __init__(self, secrets: int, count: int, route: tuple[str, ...] = ()) -> None:
        self.secrets, self.count, self.route = secrets, count, route

    def split(self, scheme: Scheme, to: str, randomness: Randomness) -> list[Tally]:
        """Each split for a logical broker; one tally for each point."""
        return [Tally(self.secrets, self.count, (*self.route, to)) for _ in range(scheme.n)]

    @staticmethod
    def merged(loads: Sequence[Tally]) -> Tally:
        """All of one route together."""
        return Tally(loads[0].secrets, sum(load.count for load in loads), loads[0].route)


class Bundle:
    """Fragments, one a row; the values are parts of secrets and do not print.

    Attributes:
        secret: the secret's number, shape (rows,).
        path: the point of each split, the first one first, uint8, shape (rows, splits).
        value: uint8, shape (rows, bytes); sealed values have none that can be read.
        route: the logical brokers that fragments were split for, one for each split.
    """

    def __init__(self, secret: Index, path: Bytes, value: Bytes, route: tuple[str, ...]) -> None:
        self.secret, self.path, self.value, self.route = secret, path, value, route

    @classmethod
    def of(cls, secrets: Bytes) -> Self:
        """Secrets that are not yet split, shape (count, bytes)."""
        count = len(secrets)
        return cls(np.arange(count), np.empty((count, 0), dtype=np.uint8), secrets, ())

    def __repr__(self) -> str:
        return f"<Bundle of {self.count} fragments after {len(self.route)} splits>"

    @property
    def count(self) -> int:
        """Fragments."""
        return len(self.secret)

    def only(self, rows: Bools | Index) -> Bundle:
        """Some of the rows."""
        return Bundle(self.secret[rows], self.path[rows], self.value[rows], self.route)

    def with_values(self, value: Bytes) -> Bundle:
        """The same fragments with other values."""
        return Bundle(self.secret, self.path, value, self.route)

    def sealed(self) -> Bundle:
        """What those see of it who cannot decrypt it: numbers and paths."""
        return self.with_values(np.empty((self.count, 0), dtype=np.uint8))

    def split(self, scheme: Scheme, to: str, randomness: Randomness) -> list[Bundle]:
        """Each fragment split for a logical broker; one bundle for each point."""
        if isinstance(scheme, Shamir):
            values = scheme.split_rows(np.ascontiguousarray(self.value), randomness=randomness)
        else:
            rows = [split_value(scheme, row.tobytes(), randomness) for row in self.value]
            joined = np.frombuffer(b"".join(map(b"".join, rows)), dtype=np.uint8)
            values = joined.reshape(self.count, scheme.n, -1).transpose(1, 0, 2)
        route = (*self.route, to)
        return [
            Bundle(self.secret, self._path_with(point), value, route)
            for point, value in enumerate(values, 1)
        ]

    @staticmethod
    def merged(loads: Sequence[Bundle]) -> Bundle:
        """All of one route together."""
        if len(loads) == 1:
            return loads[0]
        return Bundle(
            np.concatenate([load.secret for load in loads]),
            np.concatenate([load.path for load in loads]),
            np.concatenate([load.value for load in loads]),
            loads[0].route,
        )

    def _path_with(self, point: int) -> Bytes:
        last = np.full((self.count, 1), point, dtype=np.uint8)
        return np.concatenate([self.path, last], axis=1)


def recovered(bundles: Iterable[Bundle], scheme: Scheme) -> Bundle:
    """All secrets that some fragments give back, of whatever splits these are: a bundle after no
    split, a row for each secret.

    A split of which too few fragments are there, or of which more were altered than can be told,
    gives nothing; nor do sealed fragments.
    """
    known: dict[tuple[str, ...], list[Bundle]] = defaultdict(list)
    for bundle in bundles:
        if bundle.value.shape[1]:
            known[bundle.route].append(bundle)
    for depth in range(max(map(len, known), default=0), 0, -1):
        for route in [route for route in known if len(route) == depth]:
            joined = _join_last_split(_distinct(known.pop(route)), scheme)
            if joined.count:
                known[route[:-1]].append(joined)
    return _distinct(known[()]) if known[()] else Bundle.of(np.empty((0, 0), dtype=np.uint8))


def _distinct(bundles: Sequence[Bundle]) -> Bundle:
    """All of one route, sorted by secret and path, each fragment once: the first that came."""
    rows = Bundle.merged(bundles)
    rows = rows.only(np.lexsort((*rows.path.T[::-1], rows.secret)))
    new = np.ones(rows.count, dtype=np.bool_)
    new[1:] = rows.secret[1:] != rows.secret[:-1]
    new[1:] |= (rows.path[1:] != rows.path[:-1]).any(axis=1)
    return rows if new.all() else rows.only(new)


def _join_last_split(rows: Bundle, scheme: Scheme) -> Bundle:
    """Sorted fragments, joined to those that were split last."""
    parent = rows.path[:, :-1]
    first = np.ones(rows.count, dtype=np.bool_)
    first[1:] = (rows.secret[1:] != rows.secret[:-1]) | (parent[1:] != parent[:-1]).any(axis=1)
    starts = np.flatnonzero(first)
    sizes = np.diff([*starts.tolist(), rows.count])
    places: list[Index] = []
    values: list[Bytes] = []
    for size in np.unique(sizes[sizes >= scheme.k]).tolist():
        groups = starts[sizes == size][:, None] + np.arange(size)
        patterns, which = np.unique(rows.path[groups, -1], axis=0, return_inverse=True)
        for number, points in enumerate(patterns.tolist()):
            of_pattern = groups[which.reshape(-1) == number]
            done, made = _join_groups(rows.value[of_pattern.T], points, scheme)
            places.append(of_pattern[done, 0])
            values.append(made)
    at = np.concatenate(places) if places else starts[:0]
    made = np.concatenate(values) if places else rows.value[:0]
    return Bundle(rows.secret[at], parent[at], made, rows.route[:-1])


def _join_groups(values: Bytes, points: list[int], scheme: Scheme) -> tuple[Numbers, Bytes]:
    """Values (points, groups, bytes) of the same points: which groups could be joined, and to
    what."""
    groups = np.arange(values.shape[1], dtype=np.int64)
    if isinstance(scheme, Shamir):
        # If a fragment was altered, groups are joined one by one.
        with suppress(DecodeError):
            return groups, scheme.join_rows(np.ascontiguousarray(values), points)
    done, made = [], []
    for group in groups.tolist():
        rows = {point: row.tobytes() for point, row in zip(points, values[:, group], strict=True)}
        with suppress(DecodeError):
            made.append(join_values(scheme, rows))
            done.append(group)
    size = len(made[0]) if made else 0
    joined = np.frombuffer(b"".join(made), dtype=np.uint8).reshape(len(made), size)
    return np.array(done, dtype=np.int64), joined
