"""Subscriptions by number: their clients and names.

There may be millions, so their properties are in columns, not in objects.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Generic, TypeVar

import numpy as np

from ccbps.arrays import Index

T = TypeVar("T", np.uint32, np.int64)


class Column(Generic[T]):
    """An array of numbers that grows at its end."""

    def __init__(self, kind: type[T]) -> None:
        self._values: np.ndarray[Any, np.dtype[T]] = np.zeros(16, dtype=kind)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> int:
        return int(self._values[at])

    def __setitem__(self, at: int, value: int) -> None:
        if at >= len(self._values):
            more = np.zeros(max(at + 1, 2 * len(self._values)), dtype=self._values.dtype)
            more[: len(self._values)] = self._values
            self._values = more
        self._count = max(self._count, at + 1)
        self._values[at] = value

    def append(self, value: int) -> None:
        """Append a number."""
        self[self._count] = value

    def pop(self, at: int) -> int:
        """Put the last number in the place of another one, and return it."""
        self._count -= 1
        self._values[at] = self._values[self._count]
        return int(self._values[at])

    @property
    def values(self) -> np.ndarray[Any, np.dtype[T]]:
        """The numbers, shape (numbers,); a view."""
        return self._values[: self._count]


class Registry:
    """Clients and their subscriptions.

    Attributes:
        entries: number of the interest of each subscription, for its book.
        places: place of each subscription among those with the same interest.
        prints: 64 bits of each subscription that tell it from others.
        free: numbers that new subscriptions may have.
    """

    def __init__(self) -> None:
        # Clients by number; those that left keep theirs.
        self._clients: list[str] = []
        self._numbers: dict[str, int] = {}
        self._own: list[dict[str, int]] = []
        self._bytes: list[int] = []
        # Subscriptions by number.
        self._names: list[str] = []
        self._owners, self._alive = Column(np.uint32), Column(np.uint32)
        self._sizes, self.prints = Column(np.int64), Column(np.int64)
        self.entries, self.places = Column(np.int64), Column(np.uint32)
        self.free: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def subscribed(self) -> int:
        """Number of clients that have subscriptions."""
        return sum(map(bool, self._own))

    def stored(self, client: str) -> int:
        """Return the bytes of a client's subscriptions."""
        number = self._numbers.get(client)
        return 0 if number is None else self._bytes[number]

    def size(self, client: str, name: str) -> int:
        """Return the bytes of a subscription, 0 if there is none."""
        number = self.of(client).get(name)
        return 0 if number is None else self._sizes[number]

    def of(self, client: str) -> dict[str, int]:
        """Return the numbers of a client's subscriptions by name."""
        number = self._numbers.get(client)
        return {} if number is None else self._own[number]

    def new(self, client: str, name: str, size: int, print_: int) -> int:
        """Return a number for a subscription, which takes the place of the one with its name."""
        self.kill(client, name)
        owner = self._numbers.setdefault(client, len(self._clients))
        if owner == len(self._clients):
            self._clients.append(client)
            self._own.append({})
            self._bytes.append(0)
        if not self.free:
            self.free.append(len(self._names))
            self._names.append("")
        number = self.free.pop()
        self._names[number] = name = intern(name)
        self._owners[number], self._alive[number], self._sizes[number] = owner, 1, size
        self.prints[number] = print_
        self._bytes[owner] += size
        self._own[owner][name] = number
        self._count += 1
        return number

    def kill(self, client: str, name: str) -> int | None:
        """Take a name from its subscription, which no event matches from here on.

        Returns:
            number of the subscription; None if there is none.
        """
        number = self.of(client).pop(name, None)
        if number is not None:
            self._alive[number] = 0
            self._bytes[self._owners[number]] -= self._sizes[number]
            self._count -= 1
        return number

    def by_owner(self, numbers: Index) -> list[tuple[str, tuple[str, ...]]]:
        """Return the clients that have some subscriptions, each with their names."""
        numbers = np.unique(numbers)
        numbers = numbers[self._alive.values[numbers] == 1]
        owners = self._owners.values[numbers]
        order = np.argsort(owners, kind="stable")
        numbers, owners = numbers[order], owners[order]
        starts = np.flatnonzero(np.diff(owners, prepend=np.uint32(0xFFFFFFFF)))
        names = [self._names[number] for number in numbers.tolist()]
        bounds = [*starts.tolist(), len(names)]
        return [
            (self._clients[owner], tuple(names[start:stop]))
            for owner, start, stop in zip(owners[starts].tolist(), bounds, bounds[1:], strict=False)
        ]
