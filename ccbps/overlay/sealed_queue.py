"""The queue before a simulated enclave: fragments wait outside until it is worth while to enter.

Source: [Survey] section 8.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ccbps.overlay.sessions import read_sealed

__all__ = ["SealedQueue"]


class SealedQueue:
    """Sealed fragments that wait, outside, until there are enough of a secret to enter the enclave.

    Of a split, k fragments are enough. If some were altered they are not, and the enclave says so:
    then all that came are returned again with each one more, until `done`. Everything that the
    queue looks at is public.

    Attributes:
        most: secrets that wait, and names of those that are done, which are remembered; the oldest
            are forgotten.
    """

    def __init__(self, most: int = 1 << 16) -> None:
        """
        Args:
            most: see above.
        """
        self.most = most
        self._waiting: dict[bytes, dict[tuple[int, ...], bytes]] = {}
        self._done: dict[bytes, None] = {}

    def __repr__(self) -> str:
        return f"<SealedQueue: {len(self._waiting)} secrets wait>"

    def add(self, ciphertext: bytes) -> list[bytes] | None:
        """Take a fragment in; returns all of its secret's once there are enough.

        Raises:
            DecodeError: not a sealed fragment.
        """
        _, fragment = read_sealed(ciphertext)
        if fragment.name in self._done:
            return None
        came = self._waiting.setdefault(fragment.name, {})
        came.setdefault(fragment.path, ciphertext)
        _forget(self._waiting, self.most)
        if len(came) < fragment.k ** len(fragment.path) or not _enough(came, fragment.k):
            return None
        return [*came.values()]

    def done(self, ciphertext: bytes) -> None:
        """The secret of this fragment was regenerated: whatever comes of it later is left out.

        Raises:
            DecodeError: not a sealed fragment.
        """
        _, fragment = read_sealed(ciphertext)
        self._waiting.pop(fragment.name, None)
        self._done[fragment.name] = None
        _forget(self._done, self.most)


def _forget(entries: dict[bytes, Any], most: int) -> None:
    """Drop the oldest."""
    while len(entries) > most:
        del entries[next(iter(entries))]


def _enough(paths: Iterable[tuple[int, ...]], k: int) -> bool:
    """Whether fragments of these paths give the secret back."""
    level = {*paths}
    while level and any(level):
        children: dict[tuple[int, ...], int] = {}
        for path in level:
            children[path[:-1]] = children.get(path[:-1], 0) + 1
        level = {path for path, count in children.items() if count >= k}
    return bool(level)
