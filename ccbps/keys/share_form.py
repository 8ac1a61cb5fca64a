"""A key in shares, split so that another key cannot come back by accident or alteration.

The secret that is split consists of the key's bytes and the first 16 bytes of HKDF-SHA256(bytes,
kind). Fewer than k shares say nothing about either. Joined shares whose check is wrong are refused.
So a key is recovered despite more altered shares than Shamir's scheme alone could correct: if k of
the shares are genuine, some choice of k gives the key back. No other choice gives another key: an
attacker who altered k - 1 shares or fewer does not know the joined bytes, and fits the check with a
chance of 2^-128. (The owner of k shares has the key, and can make shares of another key.)

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
    """Return the n shares of a key from its kind, one of `KINDS`, and its bytes.

    Raises:
        ParameterError: not ``1 <= k <= n <= 255``.
    """
    return Shamir(k, n).split(secret + _check(kind, secret))


def join_key(kind: str, shares: Iterable[Share]) -> bytes:
    """Return the bytes of the key that `split_key` split.

    Raises:
        DecodeError: no k of the shares, or none of the first `TRIES` choices, give a key of this
            kind.
        ParameterError: one of `shares` is not a share.
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
    """Yield the choices to join: all shares, then k that seem to belong together."""
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
