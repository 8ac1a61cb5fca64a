"""A key in shares: split so that whoever joins it knows that it is the key, and not another.

What is split is the key's bytes and, behind them, the first 16 bytes of HKDF-SHA256(bytes, kind).
Fewer than k shares say nothing about either. Joined shares whose check is wrong are refused; so
more altered shares are survived than Shamir's sharing alone can tell: if k of those that came are
as they were made, some choice of k gives the key back. No other choice gives another one: whoever
altered k - 1 shares or fewer changed what is joined without knowing it, and fits the check with a
chance of 2^-128. (Whoever has k shares has the key, and can make shares of another.)

Sources: [S79]; RFC 5869 (HKDF).
"""

from __future__ import annotations

import contextlib
import hmac
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations, islice
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps.errors import DecodeError
from ccbps.keys.text_form import KINDS
from ccbps.sharing import Shamir, Share, ss_join
from ccbps.sharing.share import as_shares

CHECK_BYTES: Final = 16
TRIES: Final = 10_000
"""Choices of k shares that are tried at most; all of them, of 15 shares or fewer."""


def split_key(kind: str, secret: bytes, k: int, n: int) -> list[Share]:
    """The n shares of a key from its kind, one of `KINDS`, and its bytes.

    Raises:
        ParameterError: not ``1 <= k <= n <= 255``.
    """
    return Shamir(k, n).split(secret + _check(kind, secret))


def join_key(kind: str, shares: Iterable[Share]) -> bytes:
    """Bytes of the key that `split_key` split.

    Raises:
        DecodeError: no k of the shares, or none of the first `TRIES` choices, give a key of this
            kind.
        ParameterError: something else than shares is among them.
    """
    given = as_shares(shares)
    for chosen in islice(_choices(given), TRIES):
        with contextlib.suppress(DecodeError):
            joined = ss_join(chosen)
            secret, check = joined[:-CHECK_BYTES], joined[-CHECK_BYTES:]
            if hmac.compare_digest(check, _check(kind, secret)):
                return secret
    raise DecodeError(
        f"{len(given)} shares that do not give {KINDS[kind]} back: fewer than it needs were of one "
        "key and not altered, or they are of something else; get more shares"
    )


def _choices(shares: list[Share]) -> Iterator[Iterable[Share]]:
    """What to join: all of them, then k of those that seem to belong together."""
    if shares:
        yield shares
    alike: dict[tuple[int, bytes, int], list[Share]] = defaultdict(list)
    for share in dict.fromkeys(shares):
        alike[share.k, share.name, len(share.value)].append(share)
    for (k, _, _), same in sorted(alike.items(), key=lambda item: -len(item[1])):
        yield from combinations(same, k)


def _check(kind: str, secret: bytes) -> bytes:
    context = b"ccbps 1 shares\0" + kind.encode()
    return HKDF(SHA256(), CHECK_BYTES, salt=None, info=context).derive(secret)
