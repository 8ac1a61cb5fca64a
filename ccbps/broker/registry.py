"""Subscriptions by number: their clients and names.

There may be millions, so their properties are in columns, not in objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from sys import intern
from typing import Final

import numpy as np

from ccbps.arrays import Index

NUMBERS: Final = "I"
"""Type of subscriptions' numbers in arrays, 32 bits."""
_LONG: Final = "q"


class Registry:
    """Clients and their subscriptions.

    Attributes:
        entries: number of each subscription's interest in its book.
        places: place of each subscription among those with the same interest.
        prints: fingerprint of each subscription, 64 bits.
        free: numbers that new subscriptions may have.
    """

    def __init__(self) -> None:
        # Clients by number; clients that left keep their numbers.
        self._clients: list[str] = []
        self._numbers: dict[str, int] = {}
        self._own: list[dict[str, int]] = []
        self._bytes: list[int] = []
        # Subscriptions by number.
        self._names: list[str] = []
        self._owners, self._alive = array(NUMBERS), bytearray()
        self._sizes, self.prints = array(_LONG), array(_LONG)
        self.entries, self.places = array(_LONG), array(NUMBERS)
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

    def all(self) -> Iterator[tuple[str, str]]:
        """Yield the client and the name of each subscription."""
        for client, own in zip(self._clients, self._own, strict=True):
            for name in own:
                yield client, name

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
            self._alive.append(0)
            for column in (self._owners, self._sizes, self.prints, self.entries, self.places):
                column.append(0)
        number = self.free.pop()
        self._names[number] = name = intern(name)
        self._owners[number], self._alive[number], self._sizes[number] = owner, 1, size
        self.prints[number] = print_
        self._bytes[owner] += size
        self._own[owner][name] = number
        self._count += 1
        return number

    def kill(self, client: str, name: str) -> int | None:
        """Remove a subscription's name, so no event matches the subscription from here on.

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
        numbers = numbers[np.frombuffer(self._alive, np.uint8)[numbers] == 1]
        owners = np.frombuffer(self._owners, np.uint32)[numbers]
        order = np.argsort(owners, kind="stable")
        numbers, owners = numbers[order], owners[order]
        starts = np.flatnonzero(np.diff(owners, prepend=np.uint32(0xFFFFFFFF)))
        names = [self._names[number] for number in numbers.tolist()]
        bounds = [*starts.tolist(), len(names)]
        return [
            (self._clients[owner], tuple(names[start:stop]))
            for owner, start, stop in zip(owners[starts].tolist(), bounds, bounds[1:], strict=False)
        ]
