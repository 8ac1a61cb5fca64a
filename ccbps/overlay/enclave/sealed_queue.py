"""The queue before a simulated enclave: fragments wait outside until it is worth while to enter.

Source: [Survey] section 8.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ccbps.errors import DecodeError
from ccbps.overlay.enclave.sessions import read_sealed
from ccbps.overlay.splits.fragments import Agreed

PER_PATH: Final = 4
"""Ciphertexts of one path that wait, at most: others than the first may be the good one."""


class SealedQueue:
    """Sealed fragments that wait, outside, until there are enough of a secret to enter the enclave.

    Of a split k fragments are enough, or with checks more than half of n. If some were altered they
    are not, and the enclave says so: then all that came are returned again with each one more,
    until `done`. Everything that the queue looks at is public, and nothing of it is authenticated:
    what the enclave refuses has to be taken out by `drop`.

    Attributes:
        agreed: what fragments must be.
        most: secrets that wait, and names of those that are done, which are remembered; the oldest
            are forgotten.
    """

    def __init__(self, agreed: Agreed, most: int = 1 << 16) -> None:
        """
        Args:
            agreed: `Policy.agreed` of the enclave.
            most: see above.
        """
        self.agreed, self.most = agreed, most
        self._waiting: dict[bytes, dict[tuple[int, ...], list[bytes]]] = {}
        self._done: dict[bytes, None] = {}

    def __repr__(self) -> str:
        return f"<SealedQueue: {len(self._waiting)} secrets wait>"

    def add(self, ciphertext: bytes, number: int | None = None) -> list[bytes] | None:
        """Take a fragment in; returns all of its secret's once there are enough.

        Args:
            ciphertext: as it came.
            number: which of the n brokers of the hop before sent it, as its link tells.

        Raises:
            DecodeError: not a sealed fragment, or not what is agreed.
        """
        _, fragment = read_sealed(ciphertext)
        misfit = self.agreed.misfit(fragment, number)
        if misfit:
            raise DecodeError(f"a sealed fragment that is not as agreed: {misfit}")
        if fragment.name in self._done:
            return None
        came = self._waiting.setdefault(fragment.name, {})
        several = came.setdefault(fragment.path, [])
        if ciphertext not in several and len(several) < PER_PATH:
            several.append(ciphertext)
        _forget(self._waiting, self.most)
        if not self._enough(came):
            return None
        return [one for several in came.values() for one in several]

    def drop(self, ciphertexts: Iterable[bytes]) -> None:
        """Take out what the enclave refused."""
        for ciphertext in ciphertexts:
            _, fragment = read_sealed(ciphertext)
            came = self._waiting.get(fragment.name, {})
            several = came.get(fragment.path, [])
            if ciphertext in several:
                several.remove(ciphertext)
            if not several:
                came.pop(fragment.path, None)

    def done(self, ciphertext: bytes) -> None:
        """The secret of this fragment was regenerated: whatever comes of it later is left out.

        Raises:
            DecodeError: not a sealed fragment.
        """
        _, fragment = read_sealed(ciphertext)
        self._waiting.pop(fragment.name, None)
        self._done[fragment.name] = None
        _forget(self._done, self.most)

    def _enough(self, paths: Iterable[tuple[int, ...]]) -> bool:
        """Whether fragments of these paths give the secret back."""
        k, n = self.agreed.k, self.agreed.n
        needed = max(k, n // 2 + 1) if self.agreed.checked else k
        level = {*paths}
        if len(level) < needed**self.agreed.splits:
            return False
        for _ in range(self.agreed.splits):
            children: dict[tuple[int, ...], int] = {}
            for path in level:
                children[path[:-1]] = children.get(path[:-1], 0) + 1
            level = {path for path, count in children.items() if count >= needed}
        return bool(level)


def _forget(entries: dict[bytes, Any], most: int) -> None:
    """Drop the oldest."""
    while len(entries) > most:
        del entries[next(iter(entries))]
