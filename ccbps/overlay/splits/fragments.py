"""Fragments of a secret on their way through brokers: shares, and shares of shares.

A publisher splits a secret. In ISSPS every broker splits each fragment again, as if it were the
secret. So a fragment has a path: the point of each split that it went through, the first one first.
Fragments are joined from the last split to the first.

Everything but the value is public. Fragments that were split for different next hops may have the
same path, and do not belong together: join only the fragments of one receiver.

The value of a fragment has as many bytes as the secret. With checks it has 8 + 48 (n - 1) more for
each split: it consists of its share's name, value and checks, one behind the other, so it can be
split again like any other value.
Sources: [YK16] for SSPS and ISSPS; [Survey] section 2.3.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Self, TypeAlias

from msgspec import Meta
from msgspec.structs import replace

from ccbps.arrays import Randomness
from ccbps.errors import DecodeError, ParameterError
from ccbps.records import Message, SecretRecord
from ccbps.sharing import CheckedShamir, Shamir, Share
from ccbps.sharing.checked import KEY_BYTES, TAG_BYTES
from ccbps.sharing.share import NAME_BYTES, as_secret, check_threshold
from ccbps.wire import Kind

Scheme: TypeAlias = Shamir | CheckedShamir
Point: TypeAlias = Annotated[int, Meta(ge=1, le=255)]
CHECK_BYTES: Final = KEY_BYTES + TAG_BYTES
"""Bytes that a share carries for each other share to check it and be checked by it."""


def scheme_of(k: int, n: int, *, checked: bool) -> Scheme:
    """Return the scheme that splits values.

    Raises:
        ParameterError: not ``1 <= k <= n <= 255``.
    """
    # Strict: of fragments that are joined as soon as enough came, the first may be altered ones.
    return CheckedShamir(k, n, strict=True) if checked else Shamir(k, n)


def split_value(scheme: Scheme, value: bytes, randomness: Randomness) -> list[bytes]:
    """Split a value into n values of fragments, with points 1 .. n."""
    return [
        share.value if isinstance(scheme, Shamir) else share.name + share.value + share.checks
        for share in scheme.split(value, randomness=randomness)
    ]


def join_values(scheme: Scheme, values: Mapping[int, bytes]) -> bytes:
    """Join the values of fragments, given by their points.

    Raises:
        DecodeError: there are too few, or more were altered than can be corrected.
    """
    name, start, size = bytes(NAME_BYTES), 0, 0
    if isinstance(scheme, CheckedShamir):
        start, size = NAME_BYTES, CHECK_BYTES * (scheme.n - 1)
    shares = []
    for point, value in values.items():
        end = len(value) - size
        if end <= start:
            raise DecodeError(f"a fragment of {len(value)} bytes is too short to have checks")
        shares.append(Share(scheme.k, point, value[:start] or name, value[start:end], value[end:]))
    return scheme.join(shares)


class Fragment(SecretRecord, Message, frozen=True):
    """Fragment of a secret. Its value is secret, so it neither prints nor pickles.

    With checks, joining the fragments of a split leaves out those that were altered, even by
    brokers that work together, if they are fewer than half of all n: `ccbps.sharing.CheckedShamir`.

    Attributes:
        name: name of the secret, 8 bytes.
        k: number of fragments of each split that are needed, 1 to 255.
        path: point of each split, 1 to 255, the first one first; () for the secret itself.
        value: as many bytes as the secret has, or more with checks.
        checked: number n of fragments of every split, if they carry checks of one another; else 0.

    Example:
        >>> from msgspec.structs import replace
        >>> from ccbps.overlay import Agreed, Fragment, join_fragments
        >>> first, second, third = Fragment.of(b"a seed", 2, checked=3).split(3)
        >>> altered = replace(second, value=bytes(len(second.value)))
        >>> join_fragments([first, altered, third], Agreed(k=2, n=3, splits=1, checked=True))
        b'a seed'
    """

    front: ClassVar[bytes] = bytes([Kind.FRAGMENT, 2])
    what: ClassVar[str] = "a fragment"
    name: Annotated[bytes, Meta(min_length=NAME_BYTES, max_length=NAME_BYTES)]
    k: Point
    path: tuple[Point, ...]
    value: Annotated[bytes, Meta(min_length=1)]
    checked: Annotated[int, Meta(ge=0, le=255)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold(self.k, self.checked or 255, 255)

    @classmethod
    def of(
        cls, secret: bytes, k: int, *, checked: int = 0, randomness: Randomness = os.urandom
    ) -> Self:
        """Return a secret that is not yet split, with a fresh name.

        Args:
            secret: bytes, at least one.
            k: number of fragments of each split that are needed.
            checked: number n of fragments of all its splits, if they get checks; 0 for no checks.
            randomness: source of the name.

        Raises:
            ParameterError: the secret is empty, or not ``1 <= k <= 255``, or k is more than n.
        """
        return cls(randomness(NAME_BYTES), k, (), as_secret(secret), checked)

    def split(self, n: int, *, randomness: Randomness = os.urandom) -> list[Fragment]:
        """Split the fragment into n, with points 1 .. n at the end of their paths.

        Raises:
            ParameterError: not ``1 <= k <= n <= 255``, or its checks are for another n.
        """
        if self.checked not in (0, n):
            raise ParameterError(f"n must be {self.checked}, as the secret's checks say, got {n}")
        scheme = scheme_of(self.k, n, checked=bool(self.checked))
        return [
            replace(self, path=(*self.path, point), value=value)
            for point, value in enumerate(split_value(scheme, self.value, randomness), 1)
        ]


@dataclass(frozen=True, slots=True)
class Agreed:
    """Parameters that all parties agreed on, and that a receiver demands of every fragment.

    Attributes:
        k: number of fragments of each split that are needed.
        n: number of fragments of each split.
        splits: number of splits that a fragment went through before it arrives here.
        checked: True if fragments carry checks of one another.
    """

    k: int
    n: int
    splits: int
    checked: bool = False

    def misfit(self, fragment: Fragment, number: int | None = None) -> str | None:
        """Explain why a fragment is not as agreed; return None if it is.

        Args:
            fragment: fragment that arrived.
            number: number of its sender among the n brokers of the previous hop; None if unknown.
                It is compared with the point, so no broker can send fragments of another one's.
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
    """Recover a secret from its fragments.

    A split of which too few fragments came, or too many were altered, counts as lost. So k of every
    split that is needed must be there, from the last split to the first. Fragments are left out if
    they are not as agreed, if their name or length differs from that of most, or if another one has
    the same path. Without checks, an altered fragment among exactly k silently gives a wrong
    secret.

    Hazard: accept from each broker only fragments of that broker's own point (`Agreed.misfit`).
    Otherwise one broker can send fragments in the names of all others.

    Args:
        fragments: fragments of one secret, in any order.
        agreed: parameters of the fragments.

    Raises:
        DecodeError: too few came, or too many were altered.

    Example:
        >>> from ccbps.overlay import Agreed, Fragment, join_fragments
        >>> join_fragments(Fragment.of(b"a seed", 2).split(3)[1:], Agreed(k=2, n=3, splits=1))
        b'a seed'
    """
    fitting = {fragment for fragment in fragments if agreed.misfit(fragment) is None}
    usual = Counter((fragment.name, len(fragment.value)) for fragment in fitting).most_common(1)
    values: dict[tuple[int, ...], set[bytes]] = defaultdict(set)
    for fragment in fitting:
        if (fragment.name, len(fragment.value)) == usual[0][0]:
            values[fragment.path].add(fragment.value)
    level = {path: several.pop() for path, several in values.items() if len(several) == 1}
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
            f"{len(fitting)} fragments do not give their secret back: of some split fewer than "
            f"{agreed.k} came, or more were altered than can be told; get more fragments"
        )
    return level[()]
