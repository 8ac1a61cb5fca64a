"""Shares that are checked by one another: whoever joins them learns which were altered.

Whoever splits a secret gives share j a one-time key for each other share i, and share i the tag of
its contents under that key (Poly1305, unconditionally secure for one message a key). A share that
was altered after that has no tag that a key of an unaltered share accepts, but for chance: of a
value of L bytes, at most 8 ceil((L + 10) / 16) / 2^106 for each tag and try. So a share is taken
if more than half of the shares that came accept it, itself among them. As long as fewer than half
of the shares that came were altered, even all by one adversary, all others are taken, and no
altered value is; of k shares that came, too, where Reed-Solomon decoding finds nothing. (A share of
which only keys were altered still has its value and its tags, and is taken.)

What k - 1 shares say of the secret stays nothing, without any assumption: the keys that they hold
are random, and their tags are of their own values, under random keys of the others.

Why not Feldman's commitments [F87], which anybody can verify: they show g^secret, so they hide a
secret only from those who cannot compute logarithms, and a short secret from nobody; and they take
a power for each coefficient and each share.

A share of L bytes takes 4 + 48 (n - 1) more.
Sources: [RB89]; RFC 8439 and [B05] for Poly1305.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from typing import Final

from cryptography.hazmat.primitives.poly1305 import Poly1305

from ccbps.arrays import Randomness
from ccbps.errors import DecodeError
from ccbps.sharing.lagrange import misfit
from ccbps.sharing.shamir import Shamir
from ccbps.sharing.share import Share, as_shares, fitting_shares

KEY_BYTES: Final = 32
TAG_BYTES: Final = 16


class CheckedShamir:
    """Shamir's sharing with a tag of each share under a key in each other one.

    Attributes:
        k: shares needed.
        n: shares made, at points 1 .. n. Whoever joins them must know it.
        strict: whether more than n / 2 shares must accept each one.

    Example:
        >>> from ccbps.sharing import CheckedShamir
        >>> scheme = CheckedShamir(3, 3)
        >>> shares = scheme.split(b"32 bytes of a seed for matching.")
        >>> shares[1].value = bytes(32)
        >>> scheme.altered(shares)
        [2]
        >>> scheme.join(shares)
        Traceback (most recent call last):
            ...
        ccbps.errors.DecodeError: altered shares: of points 2; 3 others are needed, and 2 came
    """

    def __init__(self, k: int, n: int, *, strict: bool = False) -> None:
        """
        Args:
            k: shares needed.
            n: shares made.
            strict: a share is taken only if more than n / 2 shares accept it, and not more than
                half of those that came. For joining before all had time to come: then the first
                few may be just those that were altered.

        Raises:
            ParameterError: not ``1 <= k <= n <= 255``.
        """
        self._plain = Shamir(k, n)
        self.k, self.n, self.strict = k, n, strict

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.k}, {self.n})"

    def split(self, secret: bytes, *, randomness: Randomness = os.urandom) -> list[Share]:
        """The n shares of a secret, with checks.

        Args:
            secret: at least one byte.
            randomness: where uniform bytes come from: those of `Shamir.split`, then
                ``32 * n * (n - 1)``.

        Raises:
            ParameterError: the secret is not bytes, or empty.
        """
        shares, n = self._plain.split(secret, randomness=randomness), self.n
        width = (n - 1) * KEY_BYTES
        random = randomness(n * width)
        keys = [random[at : at + width] for at in range(0, n * width, width)] if width else [b""]
        for share, own in zip(shares, keys, strict=True):
            content = _content(share)
            share.checks = own + b"".join(
                Poly1305.generate_tag(_key(keys[judge - 1], judge, share.point), content)
                for judge in range(1, n + 1)
                if judge != share.point
            )
        return shares

    def join(self, shares: Iterable[Share]) -> bytes:
        """The secret, from shares that were not altered.

        Args:
            shares: of one secret, in any order: k or more that were not altered, and fewer that
                were.

        Raises:
            DecodeError: fewer than k are left without those that were altered, whose points it
                names; or as many were altered as not, as far as this can be noticed; or the shares
                are of different secrets or of another scheme.
            ParameterError: something else than shares is among them.
        """
        taken, wrong = self._taken(shares)
        values = {share.point: share.value for share in taken}
        if wrong and len(values) < self.k:
            points = ", ".join(str(point) for point in sorted({share.point for share in wrong}))
            raise DecodeError(
                f"altered shares: of points {points}; {self.k} others are needed, and "
                f"{len(values)} came"
            )
        # Nothing is corrected here: what most accept and does not fit was forged by most.
        points_taken, values_taken, _ = fitting_shares(taken, self.k)
        rows, size = [int.from_bytes(value) for value in values_taken], len(values_taken[0])
        if len(rows) < len(values) or misfit(points_taken, rows, self.k, size) >= 0:
            raise _too_many_altered(len(taken) + len(wrong))
        return self._plain.join(taken)

    def altered(self, shares: Iterable[Share]) -> list[int]:
        """Points of the shares that were altered: half or more of all do not accept them.

        Raises:
            DecodeError: no shares, or none of them is accepted; or the shares are of another
                scheme.
            ParameterError: something else than shares is among them.
        """
        _, wrong = self._taken(shares)
        return sorted({share.point for share in wrong})

    def _taken(self, shares: Iterable[Share]) -> tuple[list[Share], list[Share]]:
        """Different shares, those that more than half of them accept and the others."""
        given, width = [*dict.fromkeys(as_shares(shares))], (self.n - 1) * (KEY_BYTES + TAG_BYTES)
        if not given:
            raise DecodeError(f"{self.k} shares of a secret are needed, got none")
        usable = [
            share
            for share in given
            if share.k == self.k and 1 <= share.point <= self.n and len(share.checks) == width
        ]
        if 2 * len(usable) <= len(given):
            odd = next(share for share in given if share not in usable)
            raise DecodeError(
                f"not shares of {self!r}, which have {width} bytes of checks: share {odd.point} "
                f"has {len(odd.checks)}, and says that {odd.k} are needed; join them with the k "
                "and n they were split with"
            )
        votes = {
            share: sum(judge is share or _accepts(judge, share, self.n) for judge in usable)
            for share in usable
        }
        enough = max(len(given), self.n) if self.strict else len(given)
        taken = [share for share, accepted in votes.items() if 2 * accepted > enough]
        if not taken:
            raise _too_many_altered(len(given))
        return taken, [share for share in given if share not in taken]


def _accepts(judge: Share, share: Share, n: int) -> bool:
    """Does the key that one share has for another accept it?"""
    if judge.point == share.point:
        return False
    start = (n - 1) * KEY_BYTES + _place(judge.point, share.point) * TAG_BYTES
    expected = Poly1305.generate_tag(_key(judge.checks, judge.point, share.point), _content(share))
    return hmac.compare_digest(expected, share.checks[start : start + TAG_BYTES])


def _key(keys: bytes, judge: int, point: int) -> bytes:
    """Of the keys that share `judge` has, the one for the share of a point."""
    at = _place(point, judge) * KEY_BYTES
    return keys[at : at + KEY_BYTES]


def _place(point: int, owner: int) -> int:
    """Where a point stands among all others than the owner's."""
    return point - 1 - (point > owner)


def _content(share: Share) -> bytes:
    return bytes([share.k, share.point]) + share.name + share.value


def _too_many_altered(count: int) -> DecodeError:
    return DecodeError(
        f"of {count} shares half or more were altered, or they are of different secrets: which "
        "ones cannot be told; get more shares"
    )
