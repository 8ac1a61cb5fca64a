"""Shares that check one another: joining them shows which were altered.

Share j gets a one-time key for each other share i, and share i the tag of its contents under that
key (Poly1305, unconditionally secure for one message per key). A key of an unaltered share accepts
an altered share by chance only: for a value of L bytes, with probability at most
8 ceil((L + 10) / 16) / 2^106 for each tag and try. A share is accepted if more than half of the
received shares, itself included, accept it. If fewer than half of the received shares were altered,
even by a single adversary, all unaltered shares are accepted and no altered value is. This holds
even for k received shares, where Reed-Solomon decoding finds nothing. (A share of which only the
keys were altered still has its value and its tags, and is accepted.)

k - 1 shares still reveal nothing of the secret, unconditionally: their keys are random, and their
tags are of their own values, under random keys of the others.

Feldman's commitments [F87], which anybody can verify, reveal g^secret. They hide a secret only
computationally (discrete logarithms), and do not hide a short secret. They take an exponentiation
for each coefficient and each share.

A share of L bytes takes 4 + 48 (n - 1) more bytes.
Sources: [RB89]; RFC 8439 and [B05] for Poly1305.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from typing import Final

from cryptography.hazmat.primitives.poly1305 import Poly1305

from ccbps.arrays import Randomness
from ccbps.checks import Printable
from ccbps.errors import DecodeError
from ccbps.sharing.polynomials import misfit
from ccbps.sharing.shamir import Shamir
from ccbps.sharing.share import Share, as_shares, fitting_shares

KEY_BYTES: Final = 32
TAG_BYTES: Final = 16


class CheckedShamir(Printable):
    """Shamir's sharing with a tag of each share under a key in each other share.

    Args:
        k: number of shares needed.
        n: number of shares, at points 1 .. n. Joining needs it, too.
        strict: True to accept a share only if more than n / 2 shares do, instead of more than half
            of the received ones. Use it to join before all shares had time to arrive: the first few
            may all be altered.

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
        ccbps.errors.DecodeError: altered shares: of points 2; 3 others are needed, got 2

    Raises:
        ParameterError: k and n do not satisfy ``1 <= k <= n <= 255``.
    """

    def __init__(self, k: int, n: int, *, strict: bool = False) -> None:
        self._plain = Shamir(k, n)
        self.k, self.n, self.strict = self._plain.k, self._plain.n, strict

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.k}, {self.n})"

    def split(self, secret: bytes, *, randomness: Randomness = os.urandom) -> list[Share]:
        """Split a secret into n shares with checks.

        Args:
            secret: bytes, at least one.
            randomness: source of uniform bytes: those of `Shamir.split`, then
                ``32 * n * (n - 1)``.

        Raises:
            ParameterError: the secret is not bytes, or empty.
        """
        shares, n = self._plain.split(secret, randomness=randomness), self.n
        width = (n - 1) * KEY_BYTES
        random = randomness(n * width)
        keys = [random[at : at + width] for at in range(0, n * width, width)] if width else [b""]
        for share, share_keys in zip(shares, keys, strict=True):
            content = _content(share)
            share.checks = share_keys + b"".join(
                Poly1305.generate_tag(_key(keys[judge - 1], judge, share.point), content)
                for judge in range(1, n + 1)
                if judge != share.point
            )
        return shares

    def join(self, shares: Iterable[Share]) -> bytes:
        """Recover a secret from shares that were not altered.

        Args:
            shares: shares of one secret in any order: at least k unaltered ones, and fewer altered
                ones.

        Raises:
            DecodeError: fewer than k unaltered shares are left (the message names the points of the
                altered ones), half or more were altered, as far as detectable, or the shares are of
                different secrets or of another scheme.
            ParameterError: an object is not a share.
        """
        accepted, altered = self._judged(shares)
        count = len({share.point for share in accepted})
        if altered and count < self.k:
            points = ", ".join(map(str, sorted({share.point for share in altered})))
            raise DecodeError(
                f"altered shares: of points {points}; {self.k} others are needed, got {count}"
            )
        # Nothing is corrected here: accepted shares that do not fit were forged by a majority.
        points_kept, values, _ = fitting_shares(accepted, self.k)
        rows, size = [int.from_bytes(value) for value in values], len(values[0])
        if len(rows) < count or misfit(points_kept, rows, self.k, size) >= 0:
            raise _too_many_altered(len(accepted) + len(altered))
        return self._plain.join(accepted)

    def altered(self, shares: Iterable[Share]) -> list[int]:
        """List the points of the altered shares, which half or more of all shares do not accept.

        Raises:
            DecodeError: there are no shares, none is accepted, or they are of another scheme.
            ParameterError: an object is not a share.
        """
        return sorted({share.point for share in self._judged(shares)[1]})

    def _judged(self, shares: Iterable[Share]) -> tuple[list[Share], list[Share]]:
        """Separate the different shares that more than half of them accept from the others."""
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
                f"has {len(odd.checks)} and the threshold {odd.k}; join shares with the k and n "
                "they were split with"
            )
        votes = {
            share: sum(judge is share or _accepts(judge, share, self.n) for judge in usable)
            for share in usable
        }
        voters = max(len(given), self.n) if self.strict else len(given)
        accepted = [share for share, count in votes.items() if 2 * count > voters]
        if not accepted:
            raise _too_many_altered(len(given))
        return accepted, [share for share in given if share not in accepted]


def _accepts(judge: Share, share: Share, n: int) -> bool:
    """Return whether the key that a share has for another accepts that share."""
    if judge.point == share.point:
        return False
    start = (n - 1) * KEY_BYTES + _place(judge.point, share.point) * TAG_BYTES
    expected = Poly1305.generate_tag(_key(judge.checks, judge.point, share.point), _content(share))
    return hmac.compare_digest(expected, share.checks[start : start + TAG_BYTES])


def _key(keys: bytes, judge: int, point: int) -> bytes:
    """Select the key for the share of a point from the keys of share `judge`."""
    at = _place(point, judge) * KEY_BYTES
    return keys[at : at + KEY_BYTES]


def _place(point: int, owner: int) -> int:
    """Return the place of a point among all points but the owner's."""
    return point - 1 - (point > owner)


def _content(share: Share) -> bytes:
    return bytes([share.k, share.point]) + share.name + share.value


def _too_many_altered(count: int) -> DecodeError:
    return DecodeError(
        f"of {count} shares half or more were altered, or they are of different secrets: it is "
        "unknown which ones; get more shares"
    )
