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
checked         1  fragments of each split, if they carry checks of one another; otherwise 0
length          1  of the path; 0 is the secret itself
name            8  of the secret: uniform, the same in all its fragments
path               a byte for each split, 1 .. 255
value              as many bytes as the secret has; with checks 8 + 48 (n - 1) more for each split
==========  =====  ====================================================================

Everything but the value is public. Fragments that were split for different next hops may have one
path, and do not belong together: join what one receiver has.
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
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.secret import Confined
from ccbps.overlay.splits.splits import Scheme, join_values, scheme_of, split_value
from ccbps.sharing import Shamir
from ccbps.wire import Kind

VERSION: Final = 1
NAME_BYTES: Final = 8
HEAD_BYTES: Final = 5 + NAME_BYTES


@dataclass(frozen=True, slots=True)
class Fragment(Confined):
    """A fragment. Its value is part of a secret and does not print.

    With checks, whoever joins the fragments of a split leaves out those that were altered, also by
    brokers that work together, if they are fewer than half of all n: `ccbps.sharing.CheckedShamir`.

    Attributes:
        name: of the secret, 8 bytes.
        k: fragments of each split that are needed.
        path: the point of each split, the first one first; () for the secret itself.
        value: as many bytes as the secret has, or more with checks.
        checked: n of every split, if its fragments carry checks of one another; 0 if they do not.

    Example:
        >>> from dataclasses import replace
        >>> from ccbps.overlay import Agreed, Fragment, join_fragments
        >>> first, second, third = Fragment.of(b"a seed", 2, checked=3).split(3)
        >>> altered = replace(second, value=bytes(len(second.value)))
        >>> join_fragments([first, altered, third], Agreed(k=2, n=3, splits=1, checked=True))
        b'a seed'
    """

    name: bytes
    k: int
    path: tuple[int, ...]
    value: bytes = field(repr=False)
    checked: int = 0

    @classmethod
    def of(
        cls, secret: bytes, k: int, *, checked: int = 0, randomness: Randomness = os.urandom
    ) -> Self:
        """A secret, not yet split, under a fresh name.

        Args:
            secret: at least one byte.
            k: fragments of each split that are needed.
            checked: n of all its splits, whose fragments get checks; 0 for none.
            randomness: of its name.

        Raises:
            ParameterError: the secret is empty, or not ``1 <= k <= 255``, or k is more than n.
        """
        Shamir(k, checked or 255)
        if not secret:
            raise ParameterError("secret must have at least one byte")
        return cls(randomness(NAME_BYTES), k, (), secret, checked)

    def split(self, n: int, *, randomness: Randomness = os.urandom) -> list[Fragment]:
        """Its n fragments, points 1 .. n at the end of their paths.

        Raises:
            ParameterError: not ``1 <= k <= n <= 255``, or its checks are for another n.
        """
        if self.checked not in (0, n):
            raise ParameterError(f"n must be {self.checked}, as the secret's checks say, got {n}")
        values = split_value(self._scheme(n), self.value, randomness)
        return [
            replace(self, path=(*self.path, point), value=value)
            for point, value in enumerate(values, 1)
        ]

    def _scheme(self, n: int) -> Scheme:
        return scheme_of(self.k, n, checked=bool(self.checked))

    def to_bytes(self) -> bytes:
        """The fragment as a message."""
        head = bytes([Kind.FRAGMENT, VERSION, self.k, self.checked, len(self.path)])
        return head + self.name + bytes(self.path) + self.value

    @classmethod
    def from_bytes(cls, message: bytes) -> Self:
        """Read a message.

        Raises:
            DecodeError: it is no fragment of this version, or cut off.
        """
        message = bytes(message)
        if len(message) < HEAD_BYTES or message[:2] != bytes([Kind.FRAGMENT, VERSION]):
            raise DecodeError(
                f"not a fragment of this version: {len(message)} bytes that do not begin as one"
            )
        k, checked, length = message[2:5]
        path, value = message[HEAD_BYTES:][:length], message[HEAD_BYTES + length :]
        if not value or not k or 0 in path or 0 < checked < k:
            raise DecodeError(
                f"a fragment that was cut off or damaged: threshold {k}, checks for {checked}, "
                f"path {[*path]}, {len(value)} bytes of value"
            )
        return cls(message[5:HEAD_BYTES], k, tuple(path), value, checked)


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all parties agreed on, and a receiver expects of fragments whoever sends them.

    Attributes:
        k: fragments of each split that are needed.
        n: fragments of each split.
        splits: how often a fragment was split before it comes here.
        checked: whether fragments carry checks of one another.
    """

    k: int
    n: int
    splits: int
    checked: bool = False

    def misfit(self, fragment: Fragment, number: int | None = None) -> str | None:
        """Why a fragment is none of these; None if it is.

        Args:
            fragment: that came.
            number: which of the n brokers of the hop before sent it: a broker has no fragments but
                those of its own point, and could replace the others'.
        """
        checked = self.n if self.checked else 0
        if (fragment.k, fragment.checked) != (self.k, checked):
            return (
                f"threshold {fragment.k} and checks for {fragment.checked}, and {self.k} and "
                f"{checked} are agreed"
            )
        if len(fragment.path) != self.splits or max(fragment.path, default=1) > self.n:
            return f"path {[*fragment.path]}, and {self.splits} splits into {self.n} are agreed"
        if number is not None and fragment.path and fragment.path[-1] != number:
            return f"broker {number} sent a fragment of point {fragment.path[-1]}"
        return None


def join_fragments(fragments: Iterable[Fragment], agreed: Agreed) -> bytes:
    """The secret of which these are fragments.

    Splits of which too few fragments came, or too many were altered, count as lost; so what is
    needed is k of every split that is needed, from the last to the first. Left out are fragments
    that are not as agreed, those of another name or length than most have, and those of which two
    different ones came for one path. Without checks, an altered one among exactly k gives a wrong
    secret, and nothing tells.

    Hazard: give it what came from each broker under that broker's own point only
    (`Agreed.misfit`); otherwise one broker can send fragments in all others' names.

    Args:
        fragments: of one secret, in any order.
        agreed: what they must be.

    Raises:
        DecodeError: too few came, or too many were altered.

    Example:
        >>> from ccbps.overlay import Agreed, Fragment, join_fragments
        >>> join_fragments(Fragment.of(b"a seed", 2).split(3)[1:], Agreed(k=2, n=3, splits=1))
        b'a seed'
    """
    given = {*(one for one in fragments if agreed.misfit(one) is None)}
    usual = Counter((one.name, len(one.value)) for one in given).most_common(1)
    values: dict[tuple[int, ...], set[bytes]] = defaultdict(set)
    for one in given:
        if (one.name, len(one.value)) == usual[0][0]:
            values[one.path].add(one.value)
    level = {path: came.pop() for path, came in values.items() if len(came) == 1}
    scheme = scheme_of(agreed.k, agreed.n, checked=agreed.checked)
    for _ in range(agreed.splits):
        splits: dict[tuple[int, ...], dict[int, bytes]] = defaultdict(dict)
        for path, value in level.items():
            splits[path[:-1]][path[-1]] = value
        level = {}
        for path, parts in splits.items():
            with suppress(DecodeError):
                level[path] = join_values(scheme, parts)
    if not level:
        raise DecodeError(
            f"{len(given)} fragments do not give their secret back: of some split fewer than "
            f"{agreed.k} came, or more were altered than can be told; get more fragments"
        )
    return level[()]
