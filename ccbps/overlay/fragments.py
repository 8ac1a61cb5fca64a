"""Fragments of a secret on their way through brokers: shares, and shares of shares.

A publisher splits a secret; in ISSPS every broker splits each fragment again, as if it were the
secret. So a fragment has a path, the point of each split it went through, the first one first; and
whoever has enough of them joins them from the last split to the first.

==========  =====  ====================================================================
part        bytes  holds
==========  =====  ====================================================================
kind            1  `Kind.FRAGMENT`
version         1  1
threshold       1  k: fragments of each split that are needed
length          1  of the path; 0 is the secret itself
name            8  of the secret: uniform, the same in all its fragments
path               a byte for each split, 1 .. 255
value              as many bytes as the secret has
==========  =====  ====================================================================

Everything but the value is public.
Sources: [YK16] for SSPS and ISSPS; [Survey] section 2.3.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Self

from ccbps.arrays import Randomness
from ccbps.errors import DecodeError
from ccbps.keys.secret import Confined
from ccbps.sharing import Shamir, Share
from ccbps.wire import Kind

__all__ = ["Fragment", "join_fragments"]

VERSION: Final = 1
NAME_BYTES: Final = 8
HEAD_BYTES: Final = 4 + NAME_BYTES


@dataclass(frozen=True, slots=True)
class Fragment(Confined):
    """A fragment. Its value is part of a secret and does not print.

    Attributes:
        name: of the secret, 8 bytes.
        k: fragments of each split that are needed.
        path: the point of each split, the first one first; () for the secret itself.
        value: as many bytes as the secret has.
    """

    name: bytes
    k: int
    path: tuple[int, ...]
    value: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: bytes, k: int, *, randomness: Randomness = os.urandom) -> Self:
        """A secret, not yet split, under a fresh name."""
        return cls(randomness(NAME_BYTES), k, (), secret)

    def split(self, n: int, *, randomness: Randomness = os.urandom) -> list[Fragment]:
        """Its n fragments, points 1 .. n at the end of their paths."""
        shares = Shamir(self.k, n).split(self.value, randomness=randomness)
        return [replace(self, path=(*self.path, s.point), value=s.value) for s in shares]

    def to_bytes(self) -> bytes:
        """The fragment as a message."""
        head = bytes([Kind.FRAGMENT, VERSION, self.k, len(self.path)])
        return head + self.name + bytes(self.path) + self.value

    @classmethod
    def from_bytes(cls, message: bytes) -> Self:
        """Read a message.

        Raises:
            DecodeError: it is no fragment of this version, or cut off.
        """
        if len(message) < HEAD_BYTES or message[:2] != bytes([Kind.FRAGMENT, VERSION]):
            raise DecodeError(
                f"not a fragment of this version: {len(message)} bytes that do not begin as one"
            )
        k, length = message[2], message[3]
        path, value = message[HEAD_BYTES:][:length], message[HEAD_BYTES + length :]
        if not value or not k or 0 in path:
            raise DecodeError(
                f"a fragment that was cut off or damaged: threshold {k}, path {[*path]}, "
                f"{len(value)} bytes of value"
            )
        return cls(message[4:HEAD_BYTES], k, tuple(path), value)


def join_fragments(fragments: Iterable[Fragment]) -> bytes:
    """The secret of which these are fragments.

    Splits of which too few fragments came, or too many were altered, count as lost; so what is
    needed is k of every split that is needed, from the last to the first. Fragments of another
    name, threshold, number of splits or length than most have are left out.

    Raises:
        DecodeError: too few came, or too many were altered.
    """
    given = [*fragments]
    if not given:
        raise DecodeError("no fragments: a secret needs at least one")
    usual = Counter(map(_kind, given)).most_common(1)[0][0]
    given = [one for one in given if _kind(one) == usual]
    first, level = given[0], {one.path: one.value for one in given}
    scheme = Shamir(first.k, first.k)
    for _ in first.path:
        splits: dict[tuple[int, ...], list[Share]] = defaultdict(list)
        for path, value in level.items():
            splits[path[:-1]].append(Share(first.k, path[-1], first.name, value))
        level = {}
        for path, shares in splits.items():
            with suppress(DecodeError):
                level[path] = scheme.join(shares)
    if not level:
        raise DecodeError(
            f"{len(given)} fragments do not give their secret back: of some split fewer than "
            f"{first.k} came, or more were altered than can be told; get more fragments"
        )
    return level[()]


def _kind(fragment: Fragment) -> tuple[bytes, int, int, int]:
    return fragment.name, fragment.k, len(fragment.path), len(fragment.value)
