"""Subscriptions by number: whose they are, and what they are called.

There may be millions, so what each has is in columns, not in objects.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Generic, TypeVar

import numpy as np

from ccbps.arrays import Index

T = TypeVar("T", np.uint32, np.int64)


class Column(Generic[T]):
    """Numbers in a row that grows at its end."""

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
        """Put a number behind the last one."""
        self[self._count] = value

    def pop(self, at: int) -> int:
        """Take out a number, whose place the last one takes; returns that one."""
        self._count -= 1
        self._values[at] = self._values[self._count]
        return int(self._values[at])

    @property
    def values(self) -> np.ndarray[Any, np.dtype[T]]:
        """All of them; a view."""
        return self._values[: self._count]


class Registry:
    """Who has which subscriptions.

    Attributes:
        clients: names of clients by number; those who left keep theirs.
        names: of subscriptions by number.
        entries: of subscriptions by number, for their books: which interest they share.
        places: among those that share it.
        prints: of subscriptions by number, 64 bits that tell them from one another.
    """

    def __init__(self) -> None:
        self.clients: list[str] = []
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._own: list[dict[str, int]] = []
        self._bytes: list[int] = []
        self._owners, self._alive = Column(np.uint32), Column(np.uint32)
        self._sizes, self.prints = Column(np.int64), Column(np.int64)
        self.entries, self.places = Column(np.int64), Column(np.uint32)
        self._free: list[int] = []
        self._made = self._gone = 0

    def __len__(self) -> int:
        return self._made - self._gone

    @property
    def subscribed(self) -> int:
        """Clients that have subscriptions."""
        return sum(map(bool, self._own))

    def number(self, client: str) -> int:
        """Of a client, which gets one if it has none."""
        found = self._numbers.get(client)
        if found is None:
            found = self._numbers[client] = len(self.clients)
            self.clients.append(client)
            self._own.append({})
            self._bytes.append(0)
        return found

    def stored(self, client: str) -> int:
        """Bytes of a client's subscriptions."""
        found = self._numbers.get(client)
        return 0 if found is None else self._bytes[found]

    def size(self, client: str, name: str) -> int:
        """Bytes of a subscription; 0 if there is none."""
        number = self.of(client).get(name)
        return 0 if number is None else self._sizes[number]

    def of(self, client: str) -> dict[str, int]:
        """The numbers of a client's subscriptions, by name."""
        found = self._numbers.get(client)
        return {} if found is None else self._own[found]

    def new(self, client: str, name: str, size: int, print_: int) -> int:
        """A number for a subscription, in place of the one that has the name."""
        self._made += 1
        self.kill(client, name)
        owner, name = self.number(client), intern(name)
        if self._free:
            number = self._free.pop()
            self.names[number] = name
        else:
            number = len(self.names)
            self.names.append(name)
        self._owners[number], self._alive[number], self._sizes[number] = owner, 1, size
        self.prints[number] = print_
        self._bytes[owner] += size
        self._own[owner][name] = number
        return number

    def kill(self, client: str, name: str) -> int | None:
        """Take a name from a subscription, which is in no answer from here on; returns its number,
        None if there is none."""
        number = self.of(client).pop(name, None)
        if number is not None:
            self._alive[number] = 0
            self._bytes[self._owners[number]] -= self._sizes[number]
            self._gone += 1
        return number

    def free(self, number: int) -> None:
        """Give a number free that is in no book any more."""
        self._free.append(number)

    def by_owner(self, numbers: Index) -> list[tuple[str, tuple[str, ...]]]:
        """Clients whose subscriptions these are, each with their names."""
        numbers = np.unique(numbers)
        numbers = numbers[self._alive.values[numbers] == 1]
        if not len(numbers):
            return []
        owners = self._owners.values[numbers]
        order = np.argsort(owners, kind="stable")
        numbers, owners = numbers[order], owners[order]
        starts = np.flatnonzero(np.diff(owners, prepend=np.uint32(0xFFFFFFFF)))
        names = [self.names[number] for number in numbers.tolist()]
        ends = [*starts[1:].tolist(), len(names)]
        return [
            (self.clients[owner], tuple(names[start:end]))
            for owner, start, end in zip(
                owners[starts].tolist(), starts.tolist(), ends, strict=True
            )
        ]
