"""Bounded caches of keys by name, which evict the least frequently or the least recently used."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal, TypeAlias

from ccbps.errors import DecodeError, ParameterError
from ccbps.records import Number, Record, read, write

Eviction: TypeAlias = Literal["frequency", "recency"]
NO_SNAPSHOT: Final = "not a snapshot of a strategy, or cut off"


class _Snapshot(Record, frozen=True):
    """Names in the order in which they would be evicted, and how often they were used."""

    eviction: Eviction
    names: list[tuple[bytes, Number]]


class KeyCache:
    """Names of keys, at most so many; `touch` and `add` take constant time.

    By frequency the least used is evicted, among equals the one that was used longest ago.

    Attributes:
        capacity: names, at most.
        eviction: "frequency" or "recency".

    Example:
        >>> from ccbps.delivery import KeyCache
        >>> cache = KeyCache(2)
        >>> [cache.add(name) for name in (b"a", b"b")], cache.touch(b"a")
        ([None, None], True)
        >>> cache.add(b"c"), cache.touch(b"b")
        (b'b', False)
    """

    def __init__(self, capacity: int, eviction: Eviction = "frequency") -> None:
        """
        Raises:
            ParameterError: capacity is not a number of at least 0, or there is no such eviction.
        """
        if type(capacity) is not int or capacity < 0:
            raise ParameterError(f"capacity must be a whole number, at least 0, got {capacity!r}")
        if eviction not in ("frequency", "recency"):
            raise ParameterError(f"eviction must be 'frequency' or 'recency', got {eviction!r}")
        self.capacity, self.eviction = capacity, eviction
        self._counts: dict[bytes, int] = {}
        # Names of each count, the one that was used longest ago first. By recency all count 0.
        self._by_count: dict[int, OrderedDict[bytes, None]] = {}
        self._least = 0

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, name: bytes) -> bool:
        return name in self._counts

    def touch(self, name: bytes) -> bool:
        """Whether it is there; then it has been used once more."""
        count = self._counts.get(name)
        if count is None:
            return False
        if self.eviction == "recency":
            self._by_count[count].move_to_end(name)
            return True
        names = self._by_count[count]
        del names[name]
        if not names:
            del self._by_count[count]
            if self._least == count:
                self._least = count + 1
        self._put(name, count + 1)
        return True

    def add(self, name: bytes) -> bytes | None:
        """Add a name that is not there; returns the one that was evicted for it, if any.

        A cache of capacity 0 evicts the name itself.
        """
        if not self.capacity:
            return name
        evicted = None
        if len(self._counts) >= self.capacity:
            names = self._by_count[self._least]
            evicted, _ = names.popitem(last=False)
            del self._counts[evicted]
            if not names:
                del self._by_count[self._least]
        self._put(name, 0)
        self._least = 0
        return evicted

    def remove(self, name: bytes) -> None:
        """Forget a name, if it is there."""
        count = self._counts.pop(name, None)
        if count is None:
            return
        names = self._by_count[count]
        del names[name]
        if not names:
            del self._by_count[count]
            if self._least == count:
                self._least = min(self._by_count, default=0)

    def forget(self, subscriber: int | None) -> list[bytes]:
        """Remove the names of whole groups that a subscriber is in, or all; returns them."""
        found = [*self._counts]
        if subscriber is not None:
            byte, bit = 1 + subscriber // 8, 1 << subscriber % 8
            found = [name for name in found if name[byte] & bit]
        for name in found:
            self.remove(name)
        return found

    def snapshot(self) -> bytes:
        """All names, in the order in which they would be evicted, and how often they were used."""
        counts = sorted(self._by_count)
        names = [(name, count) for count in counts for name in self._by_count[count]]
        return write(_Snapshot(self.eviction, names))

    def restore(self, snapshot: bytes) -> None:
        """Hold what a snapshot says, and nothing else.

        Raises:
            DecodeError: malformed, of more names than fit, or of another eviction.
        """
        found = read(_Snapshot, snapshot, refusal=NO_SNAPSHOT)
        counts = dict(found.names)
        if (
            found.eviction != self.eviction
            or len(counts) < len(found.names)
            or len(counts) > self.capacity
        ):
            raise DecodeError(NO_SNAPSHOT)
        self._counts, self._by_count = {}, {}
        for name, count in counts.items():
            self._put(name, count)
        self._least = min(self._by_count, default=0)

    def __repr__(self) -> str:
        return f"<KeyCache of {self.capacity}, by {self.eviction}>"

    def names(self) -> list[bytes]:
        """All names, in no order."""
        return [*self._counts]

    def _put(self, name: bytes, count: int) -> None:
        self._counts[name] = count
        self._by_count.setdefault(count, OrderedDict())[name] = None
