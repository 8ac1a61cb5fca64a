"""A share as a message: the sharing it belongs to, its point, and its value.

==========  =====  ====================================================================
part        bytes  content
==========  =====  ====================================================================
kind            1  `Kind.SHARE`
version         1  1; or 2 for shares with checks, see `ccbps.sharing.checked`
threshold       1  k, 1 .. 255
point           1  1 .. 255
name            8  name of the sharing: uniform, the same in all shares of one secret
size            4  length of the value, least byte first; in shares with checks only
value              as many bytes as the secret has, at least one
checks             the rest, at least one byte; in shares with checks only
==========  =====  ====================================================================

Hazard: a plain share does not show whether it was altered. Inconsistent shares are detected if
there are more than k, see `ccbps.sharing.Shamir.join`.
"""

from __future__ import annotations

import hmac
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, NoReturn, final

from ccbps.checks import Printable, instance, octets, whole
from ccbps.errors import DecodeError, ParameterError, SerializationError
from ccbps.wire import Kind

PLAIN: Final = 1
CHECKED: Final = 2
"""Versions of shares: `PLAIN` for a value alone, `CHECKED` for a value followed by checks."""
NAME_BYTES: Final = 8
HEAD_BYTES: Final = 4 + NAME_BYTES
SIZE_BYTES: Final = 4
MOST_SHARES: Final = 255
"""Largest number of shares: their points are numbers of one byte other than 0."""


@final
class Share(Printable):
    """A share of a secret. Its value is secret: it does not print and is not pickled.

    `from_bytes` returns only valid parts. Joining checks the parts of any other share.

    Attributes:
        k: number of shares that reconstruct the secret.
        point: point where the polynomials were evaluated, 1 .. 255.
        name: name of the sharing, the same in all shares of a secret, 8 bytes.
        value: values of the polynomials, as many bytes as the secret has.
        checks: keys for the other shares and tags under theirs; empty in a plain share.

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
        """Write the share as a message, `HEAD_BYTES` longer than its value.

        A message with checks is longer by these and 4 bytes.
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
            DecodeError: the message is not a share of these versions, or truncated.
        """
        message = bytes(message)
        if len(message) < HEAD_BYTES or message[0] != Kind.SHARE:
            raise DecodeError(f"not a share: {len(message)} bytes without the head of a share")
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
                f"a share of {size} bytes{', and checks,' * (version == CHECKED)} was truncated to "
                f"{len(rest)} bytes"
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


def check_threshold(k: int, n: int, most: int) -> tuple[int, int]:
    """Return k and n if ``1 <= k <= n <= most``.

    Raises:
        ParameterError: k or n is not such a number.
    """
    n = whole("n", n, 1, most, unit="shares")
    return whole("k", k, 1, n, unit="shares", hint="k of n shares reconstruct a secret"), n


def as_secret(secret: bytes) -> bytes:
    """Return a secret of at least one byte.

    Raises:
        ParameterError: the secret is not bytes, or empty.
    """
    secret = octets("a secret", secret)
    if not secret:
        raise ParameterError("a secret must have at least 1 byte, got none")
    return secret


def as_shares(shares: Iterable[Share]) -> list[Share]:
    """Return shares as a list.

    Raises:
        ParameterError: an object is not a share.
    """
    hint = "Share.from_bytes reads messages"
    return [instance("a share", share, Share, hint=hint) for share in shares]


def fitting_shares(shares: Iterable[Share], k: int) -> tuple[list[int], list[bytes], int]:
    """Return the points, each once, and the values of shares of one sharing.

    Of m different shares, (m - k) / 2 may have been altered in any part. So shares that differ from
    most in name or size, and shares of one point with different values, are left out. The third
    result is the number of shares left that may still be altered, of the (m - k) / 2.

    Raises:
        DecodeError: there are fewer than k shares, or more than (m - k) / 2 do not fit.
    """
    given = as_shares(shares)
    values: dict[int, bytes] = {}
    for share in given:
        if (
            share.k != k
            or share.name != given[0].name
            or len(share.value) != len(given[0].value)
            or values.setdefault(share.point, share.value) != share.value
        ):
            return _majority(given, k)
    if len(values) < k:
        raise DecodeError(f"{k} shares of a secret are needed, got {len(values)}")
    if not given[0].value:
        raise DecodeError("shares must have values of at least 1 byte, got none")
    return [*values], [*values.values()], (len(values) - k) // 2


def _majority(given: list[Share], k: int) -> tuple[list[int], list[bytes], int]:
    """Return the result of `fitting_shares` if some shares do not fit."""
    # This is a dict because it keeps the order.
    distinct = {(s.k, s.name, len(s.value), s.point, s.value): None for s in given}
    kinds = Counter(parts[:3] for parts in distinct)
    most = max(kinds, key=lambda kind: (kind[0] == k, kinds[kind]))
    values: dict[int, list[bytes]] = defaultdict(list)
    for *kind, point, value in distinct:
        if (*kind,) == most:
            values[point].append(value)
    # Of several values of one point, at least all but one were altered. None of them is used.
    altered = len(distinct) - len(values)
    spare = (len(distinct) - k) // 2 - altered
    if most[0] != k or spare < 0:
        raise DecodeError(
            f"of {len(distinct)} different shares at most {len(values)} are of one secret that {k} "
            "shares reconstruct: too few; are they of different secrets?"
        )
    single = {point: several[0] for point, several in values.items() if len(several) == 1}
    return [*single], [*single.values()], spare
