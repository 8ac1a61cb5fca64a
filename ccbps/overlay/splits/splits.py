"""One split of a value into fragments, and back: with or without checks of one another.

A fragment of a split with checks is its share's name, value and checks, one behind the other, so
that it can be split again like any other value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from ccbps.arrays import Randomness
from ccbps.errors import DecodeError
from ccbps.sharing import CheckedShamir, Shamir, Share

Scheme: TypeAlias = Shamir | CheckedShamir
NAME_BYTES: Final = 8
CHECK_BYTES: Final = 48
"""Of a checked share for each other one."""


def scheme_of(k: int, n: int, *, checked: bool) -> Scheme:
    """How values are split.

    Raises:
        ParameterError: not ``1 <= k <= n <= 255``.
    """
    # Strict: who joins as soon as enough came may have met those first that were altered.
    return CheckedShamir(k, n, strict=True) if checked else Shamir(k, n)


def split_value(scheme: Scheme, value: bytes, randomness: Randomness) -> list[bytes]:
    """The values of its n fragments, points 1 .. n."""
    shares = scheme.split(value, randomness=randomness)
    if isinstance(scheme, Shamir):
        return [share.value for share in shares]
    return [share.name + share.value + share.checks for share in shares]


def join_values(scheme: Scheme, values: Mapping[int, bytes]) -> bytes:
    """What was split, from fragments' values by their points.

    Raises:
        DecodeError: too few came, or more were altered than can be told.
    """
    return scheme.join([_share(scheme, point, value) for point, value in values.items()])


def _share(scheme: Scheme, point: int, value: bytes) -> Share:
    if isinstance(scheme, Shamir):
        return Share(scheme.k, point, bytes(NAME_BYTES), value)
    end = len(value) - CHECK_BYTES * (scheme.n - 1)
    if end <= NAME_BYTES:
        raise DecodeError(f"a fragment of {len(value)} bytes is too short to have checks")
    return Share(scheme.k, point, value[:NAME_BYTES], value[NAME_BYTES:end], value[end:])
