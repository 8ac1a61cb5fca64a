"""A share as it travels: which sharing it belongs to, its point, and its value.

==========  =====  ====================================================================
part        bytes  holds
==========  =====  ====================================================================
kind            1  `Kind.SHARE`
version         1  1; or 2 for shares with checks, see `ccbps.sharing.checked`
threshold       1  k, 1 .. 255
point           1  1 .. 255
name            8  of the sharing: uniform, the same in all shares of one secret
size            4  of the value, least byte first; in shares with checks only
value              as many bytes as the secret has, at least one
checks             the rest, at least one byte; in shares with checks only
==========  =====  ====================================================================

Hazard: nothing in a plain share tells whether it was altered; shares that do not fit together are
found where there are more than k, see `ccbps.sharing.Shamir.join`.
"""

from __future__ import annotations

import hmac
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, NoReturn, final

from ccbps.errors import DecodeError, ParameterError, SerializationError
from ccbps.wire import Kind

PLAIN: Final = 1
CHECKED: Final = 2
"""Versions: of a value alone, and of a value with checks behind it."""
NAME_BYTES: Final = 8
HEAD_BYTES: Final = 4 + NAME_BYTES
SIZE_BYTES: Final = 4
MOST_SHARES: Final = 255
"""As many as there are points, which are numbers of one byte, but not 0."""


@final
class Share:
    """One share of a secret. Its value is part of a secret: it does not print and is not pickled.

    What `from_bytes` returns has parts that are possible; joining looks at those of any other.

    Attributes:
        k: shares that give the secret back.
        point: where the polynomials were evaluated, 1 .. 255.
        name: of the sharing, the same in all shares of a secret, 8 bytes.
        value: the polynomials' values, as many bytes as the secret has.
        checks: of the other shares, and for them; empty in a plain share.

    Example:
        >>> from ccbps.sharing import Share, ss_split
        >>> share, *_ = ss_split(b"a secret", 2, 3)
        >>> share
        <Share 1 of a secret of 8 bytes, 2 needed>
        >>> Share.from_bytes(share.to_bytes()) == share
        True
    """

    __slots__ = ("checks", "k", "name", "point", "value")

    def __init__(self, k: int, point: int, name: bytes, value: bytes, checks: bytes = b"") -> None:
        self.k, self.point, self.name, self.value, self.checks = k, point, name, value, checks

    def to_bytes(self) -> bytes:
        """The share as a message, `HEAD_BYTES` longer than its value; with checks, as much longer
        as these are, and 4 bytes more.
        """
        version, size = PLAIN, b""
        if self.checks:
            version, size = CHECKED, len(self.value).to_bytes(SIZE_BYTES, "little")
        head = bytes([Kind.SHARE, version, self.k, self.point])
        return head + self.name + size + self.value + self.checks

    @classmethod
    def from_bytes(cls, message: bytes) -> Share:
        """Read a message.

        Raises:
            DecodeError: it is no share of these versions, or cut off.
        """
        message = bytes(message)
        if len(message) < HEAD_BYTES or message[0] != Kind.SHARE:
            raise DecodeError(f"not a share: {len(message)} bytes that do not begin as one does")
        version, k, point = message[1:4]
        if version not in (PLAIN, CHECKED) or k < 1 or point < 1:
            raise DecodeError(
                f"not a share of this version: version {version}, threshold {k}, point {point}"
            )
        name, rest = message[4:HEAD_BYTES], message[HEAD_BYTES:]
        size = len(rest)
        if version == CHECKED:
            size, rest = int.from_bytes(rest[:SIZE_BYTES], "little"), rest[SIZE_BYTES:]
        if not 0 < size <= len(rest) - (version == CHECKED):
            raise DecodeError(
                f"a share of {size} bytes{', and checks,' * (version == CHECKED)} was cut off: "
                f"{len(rest)} came"
            )
        return Share(k, point, name, rest[:size], rest[size:])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Share):
            return NotImplemented
        return (
            (self.k, self.point, self.name) == (other.k, other.point, other.name)
            and hmac.compare_digest(self.value, other.value)
            and hmac.compare_digest(self.checks, other.checks)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.point))

    def __repr__(self) -> str:
        return (
            f"<Share {self.point} of a secret of {len(self.value)} bytes, {self.k} needed"
            f"{', with checks' * bool(self.checks)}>"
        )

    def __reduce__(self) -> NoReturn:
        raise SerializationError(
            "a Share must not be pickled or copied, since it is part of a secret: send its "
            "to_bytes() on purpose"
        )


def check_threshold(k: int, n: int, most: int) -> None:
    """Raise ParameterError unless ``1 <= k <= n <= most``."""
    for name, value in (("k", k), ("n", n)):
        if type(value) is not int:
            raise ParameterError(f"{name} must be a whole number, got {value!r}")
    if not 1 <= k <= n <= most:
        raise ParameterError(
            f"k shares of n give a secret back, 1 <= k <= n <= {most}; got k={k}, n={n}"
        )


def as_secret(secret: bytes) -> bytes:
    """A secret of at least one byte.

    Raises:
        ParameterError: it is not.
    """
    if type(secret) is bytes and secret:
        return secret
    if not isinstance(secret, (bytes, bytearray, memoryview)):
        raise ParameterError(f"a secret is bytes, got {type(secret).__name__}")
    if not len(secret):
        raise ParameterError("a secret has at least one byte, got none")
    return bytes(secret)


def as_shares(shares: Iterable[Share]) -> list[Share]:
    """Shares as a list.

    Raises:
        ParameterError: something else is among them.
    """
    given = [*shares]
    for share in given:
        if type(share) is not Share:
            raise ParameterError(
                f"shares are Share objects, got {type(share).__name__}; Share.from_bytes reads "
                "messages"
            )
    return given


def fitting_shares(shares: Iterable[Share], k: int) -> tuple[list[int], list[bytes], int]:
    """Points, each once, and values of shares of one sharing; how many more may be altered.

    Of m shares, the same one twice counted once, (m - k) / 2 may have been altered in any part. So
    those that differ from most in name or size, and those of one point with different values, are
    left out; what is returned last is how many of (m - k) / 2 that leaves.

    Raises:
        DecodeError: fewer than k shares; or more than (m - k) / 2 do not fit.
    """
    given = as_shares(shares)
    found: dict[int, bytes] = {}
    for share in given:
        if (
            share.k != k
            or share.name != given[0].name
            or len(share.value) != len(given[0].value)
            or found.setdefault(share.point, share.value) != share.value
        ):
            return _most_fitting(given, k)
    if len(found) < k:
        raise DecodeError(f"{k} shares of a secret are needed, got {len(found)}")
    if not given[0].value:
        raise DecodeError("shares without a value: a secret has at least one byte")
    return [*found], [*found.values()], (len(found) - k) // 2


def _most_fitting(given: list[Share], k: int) -> tuple[list[int], list[bytes], int]:
    """As `fitting_shares`, where some do not fit."""
    # A dict, for its order.
    distinct = {(s.k, s.name, len(s.value), s.point, s.value): None for s in given}
    kinds = Counter(parts[:3] for parts in distinct)
    most = max(kinds, key=lambda kind: (kind[0] == k, kinds[kind]))
    values: dict[int, list[bytes]] = defaultdict(list)
    for *kind, point, value in distinct:
        if (*kind,) == most:
            values[point].append(value)
    # Of several values of one point, all but one at least were altered; none of them is used.
    altered = len(distinct) - len(values)
    spare = (len(distinct) - k) // 2 - altered
    if most[0] != k or spare < 0:
        raise DecodeError(
            f"{len(distinct)} different shares came, of which at most {len(values)} are of one "
            f"secret that {k} shares give back: too few; are they of different secrets?"
        )
    found = {point: several[0] for point, several in values.items() if len(several) == 1}
    return [*found], [*found.values()], spare
