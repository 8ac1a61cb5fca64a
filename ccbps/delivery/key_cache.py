"""Bounded caches of the names of keys, which evict the least frequently or least recently used."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal, TypeAlias, get_args

from ccbps.checks import Printable, choice, whole
from ccbps.errors import DecodeError
from ccbps.records import Number, Record, read, write

Eviction: TypeAlias = Literal["frequency", "recency"]
_NO_SNAPSHOT: Final = "not a snapshot of a cache, or cut off"


class _Snapshot(Record, frozen=True):
    """Names in the order in which they would be evicted, each with its number of uses."""

    eviction: Eviction
    names: list[tuple[bytes, Number]]


class KeyCache(Printable):
    """Bounded cache of names of keys. `touch` and `add` take constant time.

    Args:
        capacity: largest number of names.
        eviction: "frequency" or "recency". Frequency evicts the least used name, among equals the
            one that was used longest ago.

    Example:
        >>> from ccbps.delivery import KeyCache
        >>> cache = KeyCache(2)
        >>> [cache.add(name) for name in (b"a", b"b")], cache.touch(b"a")
        ([None, None], True)
        >>> cache.add(b"c"), cache.touch(b"b")
        (b'b', False)

    Raises:
        ParameterError: the capacity is negative, or there is no such eviction.
    """

    def __init__(self, capacity: int, eviction: Eviction = "frequency") -> None:
        self.capacity = whole("capacity", capacity, 0)
        self.eviction = choice("eviction", eviction, get_args(Eviction))
        self._counts: dict[bytes, int] = {}
        # Names by their number of uses, the one that was used longest ago first. By recency all
        # numbers are 0.
        self._by_count: dict[int, OrderedDict[bytes, None]] = {}
        self._least = 0  # no name has a smaller number of uses

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, name: bytes) -> bool:
        return name in self._counts

    def __repr__(self) -> str:
        return f"<KeyCache of {self.capacity}, by {self.eviction}>"

    def names(self) -> list[bytes]:
        """List all names, in no order."""
        return [*self._counts]

    def touch(self, name: bytes) -> bool:
        """Count a use of a name, and tell whether the name is in the cache."""
        count = self._counts.get(name)
        if count is None:
            return False
        if self.eviction == "recency":
            self._by_count[count].move_to_end(name)
        else:
            self.remove(name)
            self._put(name, count + 1)
        return True

    def add(self, name: bytes) -> bytes | None:
        """Add a name that is not in the cache, and return the name that was evicted for it, if any.

        A cache of capacity 0 evicts the name itself.
        """
        if not self.capacity:
            return name
        evicted = None
        if len(self) >= self.capacity:
            # The last name was added with 0 uses, so there are no more steps than uses.
            while self._least not in self._by_count:
                self._least += 1
            evicted = next(iter(self._by_count[self._least]))
            self.remove(evicted)
        self._put(name, 0)
        self._least = 0
        return evicted

    def remove(self, name: bytes) -> None:
        """Remove a name, if it is in the cache."""
        count = self._counts.pop(name, None)
        if count is not None:
            names = self._by_count[count]
            del names[name]
            if not names:
                del self._by_count[count]

    def forget(self, subscriber: int | None) -> list[bytes]:
        """Remove the names of whole groups with a subscriber, or all names, and return them."""
        names = self.names()
        if subscriber is not None:
            byte, bit = 1 + subscriber // 8, 1 << subscriber % 8
            names = [name for name in names if name[byte] & bit]
        for name in names:
            self.remove(name)
        return names

    def snapshot(self) -> bytes:
        """Save all names, in the order of their eviction, with their numbers of uses."""
        counts = sorted(self._by_count)
        names = [(name, count) for count in counts for name in self._by_count[count]]
        return write(_Snapshot(self.eviction, names))

    def restore(self, snapshot: bytes) -> None:
        """Hold the names of a snapshot, and no others.

        Raises:
            DecodeError: it is malformed, has more names than fit, or is of another eviction.
        """
        saved = read(_Snapshot, snapshot, refusal=_NO_SNAPSHOT)
        counts = dict(saved.names)
        fits = len(counts) == len(saved.names) <= self.capacity
        if not fits or saved.eviction != self.eviction:
            raise DecodeError(_NO_SNAPSHOT)
        self._counts, self._by_count = {}, {}
        for name, count in counts.items():
            self._put(name, count)
        self._least = min(self._by_count, default=0)

    def _put(self, name: bytes, count: int) -> None:
        self._counts[name] = count
        self._by_count.setdefault(count, OrderedDict())[name] = None
