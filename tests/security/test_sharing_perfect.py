"""Secrecy of shares: what k - 1 of them say does not depend on the secret.

Small cases over *all* randomness: every set of k - 1 shares is exactly uniform, for every secret,
and every set of k determines the secret. Beside each stands a scheme that is broken on purpose,
which the same test rejects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from ccbps.arrays import Bytes
from ccbps.sharing import CheckedShamir, PrimeShamir, Shamir, Share
from ccbps.sharing import checked as checked_module
from tests.reference import shamir as twin

View = tuple[object, ...]
Views = dict[int, list[View]]
"""Of each secret, all shares, point 1 first, for every value of the randomness."""

THRESHOLDS = [(k, n) for n in (1, 2, 3, 4) for k in range(1, min(n, 3) + 1)]


def told(views: Views, seen: int, values: int) -> list[tuple[int, ...]]:
    """Sets of so many shares whose distribution is not uniform and the same for all secrets."""
    n = len(next(iter(views.values()))[0])
    found = []
    for places in combinations(range(n), seen):
        for several in views.values():
            counts = Counter(tuple(shares[place] for place in places) for shares in several)
            if set(counts.values()) != {len(several) // values**seen}:
                found.append(places)
                break
    return found


def undetermined(views: Views, seen: int) -> list[tuple[int, ...]]:
    """Sets of so many shares that two secrets have."""
    n = len(next(iter(views.values()))[0])
    found = []
    for places in combinations(range(n), seen):
        owners: dict[View, int] = {}
        if any(
            owners.setdefault(tuple(shares[place] for place in places), secret) != secret
            for secret, several in views.items()
            for shares in several
        ):
            found.append(places)
    return found


# -- modulo a prime -----------------------------------------------------------------------------


def prime_views(
    scheme: PrimeShamir, coefficients: Callable[[int], Sequence[tuple[int, ...]]] | None = None
) -> Views:
    """Every secret, with all coefficients, or with those that a broken scheme would draw."""
    p, size = scheme.p, 1 + 16
    draws = coefficients or (lambda count: [*product(range(p), repeat=count)])

    def shares(secret: int, drawn: tuple[int, ...]) -> View:
        random = b"".join(number.to_bytes(size) for number in drawn)
        made = scheme.split(secret, randomness=lambda wanted: random[:wanted])
        return tuple(made[x] for x in range(1, scheme.n + 1))

    return {secret: [shares(secret, d) for d in draws(scheme.k - 1)] for secret in range(p)}


@pytest.mark.parametrize(
    ("k", "n", "p"), [(k, n, p) for p in (3, 5, 7) for k, n in THRESHOLDS if n < p]
)
def test_modulo_a_prime_fewer_than_k_shares_say_nothing(k: int, n: int, p: int) -> None:
    views = prime_views(PrimeShamir(k, n, p))
    for seen in range(k):
        assert told(views, seen, p) == []
    assert undetermined(views, k) == []
    assert len(undetermined(views, k - 1)) == len([*combinations(range(n), k - 1)])


def test_a_highest_coefficient_that_is_never_0_is_noticed() -> None:
    """A polynomial of degree exactly k - 1, as is sometimes drawn: two shares exclude secrets."""
    drawn = [pair for pair in product(range(5), repeat=2) if pair[0]]
    broken = prime_views(PrimeShamir(3, 4, 5), lambda count: drawn)
    assert len(told(broken, 2, 5)) == 6


def test_one_coefficient_for_all_is_noticed() -> None:
    drawn = [(number, number) for number in range(5)]
    broken = prime_views(PrimeShamir(3, 4, 5), lambda count: drawn)
    assert told(broken, 2, 5)


def test_a_share_at_0_is_noticed() -> None:
    views = prime_views(PrimeShamir(2, 3, 5))
    broken = {s: [(s, *shares[1:]) for shares in several] for s, several in views.items()}
    assert told(broken, 1, 5) == [(0,)]


def test_a_point_used_twice_is_noticed() -> None:
    views = prime_views(PrimeShamir(2, 3, 5))
    broken = {s: [(*a[:2], a[0]) for a in several] for s, several in views.items()}
    assert undetermined(broken, 2) == [(0, 2)]


# -- bytes --------------------------------------------------------------------------------------


def byte_shares(scheme: Shamir, secret: int, coefficients: Bytes) -> Bytes:
    """Shares of one byte for many coefficients (k - 1, count): shape (n, count)."""
    count = coefficients.shape[1]
    rows = np.full((1, count), secret, dtype=np.uint8)
    made = scheme.split_rows(rows, randomness=lambda wanted: coefficients.tobytes())
    return made[:, 0]


def bytes_told(
    split: Callable[[int, Bytes], Bytes], coefficients: Bytes, secrets: Sequence[int], seen: int
) -> list[tuple[int, ...]]:
    """Sets of so many points whose shares of a byte are not uniform for each secret."""
    made = [split(secret, coefficients).astype(np.int64) for secret in secrets]
    found = []
    for places in combinations(range(len(made[0])), seen):
        for shares in made:
            joint = sum(shares[place] << 8 * i for i, place in enumerate(places))
            counts = np.bincount(joint, minlength=256**seen)
            if (counts != coefficients.shape[1] // 256**seen).any():
                found.append(places)
                break
    return found


@lru_cache
def all_coefficients(count: int) -> Bytes:
    numbers = np.arange(256**count)
    return np.array([numbers >> 8 * i & 255 for i in range(count)], dtype=np.uint8)


def test_of_2_shares_of_a_byte_one_says_nothing_and_two_all() -> None:
    scheme, drawn = Shamir(2, 5), all_coefficients(1)
    split = partial(byte_shares, scheme)
    assert bytes_told(split, drawn, range(256), 1) == []
    everything = np.array([split(secret, drawn) for secret in range(256)])
    for one, other in combinations(range(5), 2):
        pairs = everything[:, one].astype(int) << 8 | everything[:, other]
        assert len(np.unique(pairs)) == 256 * 256


def test_single_splits_of_a_byte_are_the_same_shares() -> None:
    """All 256 bytes as one secret, every coefficient in turn."""
    scheme, secret = Shamir(2, 3), bytes(range(256))
    batch = np.array([byte_shares(scheme, byte, all_coefficients(1)) for byte in secret])
    for coefficient in range(256):
        random = bytes(8) + bytes([coefficient]) * 256
        made = scheme.split(secret, randomness=lambda wanted, random=random: random)
        assert [[*share.value] for share in made] == batch[:, :, coefficient].T.tolist()


def test_of_3_shares_of_a_byte_two_say_nothing() -> None:
    scheme, drawn = Shamir(3, 5), all_coefficients(2)
    split = partial(byte_shares, scheme)
    secrets = [0, 1, 0x53, 0xFF]
    assert bytes_told(split, drawn, secrets, 1) == []
    assert bytes_told(split, drawn, secrets, 2) == []


def test_the_same_of_points_far_out() -> None:
    scheme, drawn = Shamir(3, 255), all_coefficients(2)

    def split(secret: int, coefficients: Bytes) -> Bytes:
        return byte_shares(scheme, secret, coefficients)[[0, 127, 254]]

    assert bytes_told(split, drawn, [0xA5], 2) == []


@pytest.mark.parametrize(
    "drawn",
    [
        all_coefficients(2)[:, all_coefficients(2)[1] != 0],
        np.vstack([all_coefficients(1), all_coefficients(1)]).repeat(256, axis=1),
        all_coefficients(2) & 0x7F,
    ],
    ids=["never 0", "the same twice", "a bit left out"],
)
def test_broken_randomness_of_bytes_is_noticed(drawn: Bytes) -> None:
    scheme = Shamir(3, 4)
    split = partial(byte_shares, scheme)
    assert bytes_told(split, drawn, [0, 0x53], 2)


# -- shares with checks -------------------------------------------------------------------------


def holders(shares: Sequence[Share], seen: Sequence[int]) -> bytes:
    """All bytes that the holders of some shares have."""
    return b"".join(shares[place].to_bytes() for place in seen)


def views_of_secrets(k: int, n: int, secrets: Sequence[bytes], seen: tuple[int, ...]) -> set[bytes]:
    """What holders of k - 1 shares have of each secret, under randomness that gives them the same
    values, and the same keys.

    For each secret there is exactly one choice of coefficients for that, so randomness of one
    secret is paired with randomness of another, one to one. If the views are the same, they are
    distributed alike.
    """
    size, keys = len(secrets[0]), np.random.default_rng(0).bytes(n * (n - 1) * 32)
    points = [0, *(place + 1 for place in seen)]
    values = [bytes([x]) * size for x in points[1:]]
    views = set()
    for secret in secrets:
        coefficients = interpolated(points, [secret, *values])[1:]
        parts = {8 + (k - 1) * size: bytes(8) + b"".join(coefficients), len(keys): keys}
        made = CheckedShamir(k, n).split(secret, randomness=parts.__getitem__)
        assert [made[place].value for place in seen] == values
        views.add(holders(made, seen))
    return views


SECRETS = [bytes(32), b"\xff" * 32, bytes(range(32))]
CHECKED = [(k, n, seen) for k, n in ((2, 3), (3, 5)) for seen in combinations(range(n), k - 1)]


@pytest.mark.parametrize(("k", "n", "seen"), CHECKED)
def test_all_that_holders_of_checked_shares_have_is_the_same(
    k: int, n: int, seen: tuple[int, ...]
) -> None:
    assert len(views_of_secrets(k, n, SECRETS, seen)) == 1


def test_tags_of_the_secret_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the tags are of another share's value, as a mix-up of points would make them."""
    plain, content = checked_module.Poly1305.generate_tag, checked_module._content
    last: list[bytes] = [b""]

    class Mixed:
        @staticmethod
        def generate_tag(key: bytes, tagged: bytes) -> bytes:
            return plain(key, last[0])

    def first_seen(share: Share) -> bytes:
        last[0] = last[0] or content(share)
        return last[0]

    monkeypatch.setattr(checked_module, "Poly1305", Mixed)
    monkeypatch.setattr(checked_module, "_content", first_seen)
    views = set()
    for secret in SECRETS:
        last[0] = b""
        views |= views_of_secrets(2, 3, [secret], (2,))
    assert len(views) == 3


def interpolated(points: Sequence[int], values: Sequence[bytes]) -> list[bytes]:
    """Coefficients, the constant first, of the polynomials with these values: by elimination."""
    rows = [[*(twin.byte_value([0] * j + [1], x) for j in range(len(points)))] for x in points]
    right = [[*value] for value in values]
    for column in range(len(points)):
        pivot = next(r for r in range(column, len(rows)) if rows[r][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        right[column], right[pivot] = right[pivot], right[column]
        scale = twin.inverse(rows[column][column])
        rows[column] = [twin.product(scale, a) for a in rows[column]]
        right[column] = [twin.product(scale, a) for a in right[column]]
        for other in range(len(rows)):
            if other != column and rows[other][column]:
                factor = rows[other][column]
                for side in (rows, right):
                    side[other] = [
                        a ^ twin.product(factor, b)
                        for a, b in zip(side[other], side[column], strict=True)
                    ]
    return [bytes(row) for row in right]


def p_values(secret: bytes, samples: int, seen: Sequence[int], rng: np.random.Generator) -> float:
    """The least p-value of all bytes of a view, each against uniform ones, times their number."""
    scheme = CheckedShamir(2, 3)
    made = [scheme.split(secret, randomness=rng.bytes) for _ in range(samples)]
    parts = [b"".join(s[place].value + s[place].checks for place in seen) for s in made]
    rows = np.array([np.frombuffer(part, dtype=np.uint8) for part in parts])
    counts = np.array([np.bincount(column >> 4, minlength=16) for column in rows.T])
    expected = samples / 16
    statistic = ((counts - expected) ** 2 / expected).sum(axis=1)
    return float(stats.chi2.sf(statistic, 15).min() * len(counts))


@pytest.mark.parametrize("secret", [bytes(4), b"\xff" * 4, b"seed"])
def test_bytes_of_a_checked_share_are_uniform(secret: bytes) -> None:
    rng = np.random.default_rng(7)
    assert p_values(secret, 1500, [1], rng) > 1e-3


def test_tags_under_a_fixed_key_are_not_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: every tag is under one key, as if keys were not drawn anew."""
    plain = checked_module.Poly1305.generate_tag

    class Fixed:
        @staticmethod
        def generate_tag(key: bytes, content: bytes) -> bytes:
            return plain(bytes(32), content)

    monkeypatch.setattr(checked_module, "Poly1305", Fixed)
    assert p_values(b"seed", 1500, [1], np.random.default_rng(7)) < 1e-9
