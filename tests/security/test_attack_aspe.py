"""What breaks AspeMatch: a few known events, linear dependence, divisors; and what updates give.

The broker's view in these attacks is what it has: messages, and updates where it says so. The
truth, to compare with, comes from the plaintexts and, to name attributes, from the master key.
"""

from __future__ import annotations

import os
from itertools import combinations
from math import gcd
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import Schema, UInt
from ccbps.algebra.residues import Residues
from ccbps.ciphers.aspe import RealAspe, random_factors
from ccbps.ciphers.aspe_modular import ModularAspe
from ccbps.matching import AspeMatch
from ccbps.wire import HEADER_BYTES

Array = NDArray[Any]

SCHEMA = Schema(price=UInt(16), volume=UInt(16), age=UInt(16))
D = len(SCHEMA)
WANTED = [(100, 900, 4000, 4001, 7, 30000), (1, 60000, 17, 40, 9000, 9500), (5, 6, 7, 80, 9, 9999)]
TEXTS = [
    f"price BETWEEN {a} AND {b} AND volume BETWEEN {c} AND {d} AND age BETWEEN {e} AND {f}"
    for a, b, c, d, e, f in WANTED
]
both = pytest.mark.parametrize("exact", [False, True], ids=["real", "exact"])


class View:
    """A key server, clients and what the broker sees of them."""

    def __init__(self, exact: bool, events: int) -> None:
        rng = np.random.default_rng(5)
        self.codes = rng.integers(0, 1 << 16, (events, D))
        self.matcher = AspeMatch(SCHEMA, exact=exact)
        self.server = self.matcher.key_server()
        self.interests = self.server.encode(TEXTS)
        self.events = self.send()

    def send(self) -> Array:
        records = dict(zip(SCHEMA, self.codes.T, strict=True))
        return self.matcher.publisher(self.server.publisher_key()).encode(records)

    def numbers(self, messages: Array) -> Array:
        return self.matcher._numbers.numbers_of(messages[:, HEADER_BYTES:])

    @property
    def bounds(self) -> Array:
        """Ciphertexts of all bounds, shape (interests * 2d, *ciphertext)."""
        numbers = self.numbers(self.interests)[:, :-2]
        return numbers.reshape(-1, *numbers.shape[2:])

    def key(self) -> Any:
        return self.matcher._numbers._key(self.server._master)  # type: ignore[attr-defined]


# -- known plaintext, the cipher -------------------------------------------------------------------


def test_real_cipher_d_plus_1_known_points_give_the_key() -> None:
    d = 5
    rng = np.random.default_rng(1)
    key = RealAspe.generate(d, os.urandom)
    known = rng.normal(size=(d + 1, d))
    lifted = np.column_stack([known, -0.5 * (known**2).sum(axis=1)])
    recovered = RealAspe(np.linalg.solve(lifted, key.encrypt_points(known)))
    assert np.allclose(recovered.matrix, key.matrix)

    secret = rng.normal(size=(50, d))
    points = key.encrypt_points(secret) @ recovered.inverse
    assert np.allclose(points[:, :-1], secret)
    words = rng.integers(0, 2**64, 50, dtype=np.uint64)
    queries = key.encrypt_queries(secret, random_factors(words))
    assert np.allclose(recovered.decrypt_queries(queries), secret)


def test_modular_cipher_d_plus_1_known_differences_give_the_key() -> None:
    d, ring = 3, Residues(2)
    key = ModularAspe.generate(ring, d, os.urandom)
    rng = np.random.default_rng(1)
    known = rng.integers(-99, 99, (d + 1, d + 1))  # (w, -c), with factors 1
    ones = np.ones(d + 1, dtype=np.int64)
    seen = key.encrypt_differences(ring.of(known[:, :-1]), ring.of(-known[:, -1]), ones)
    recovered = ModularAspe(ring, ring.matmul(ring.inverse(ring.of(known)), seen))
    assert np.array_equal(ring.integers(recovered.matrix), ring.integers(key.matrix))


# -- known plaintext, the matcher: factors are unknown ---------------------------------------------


def null_vector(rows: list[list[int]], prime: int) -> list[int]:
    """The vector that a matrix of nullity 1 takes to 0, modulo a prime."""
    rows, pivots = [list(row) for row in rows], []
    for column in range(len(rows[0])):
        done = len(pivots)
        pivot = next((r for r in range(done, len(rows)) if rows[r][column] % prime), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        scale = pow(rows[done][column], -1, prime)
        rows[done] = [value * scale % prime for value in rows[done]]
        for r, row in enumerate(rows):
            if r != done and row[column] % prime:
                by = row[column]
                rows[r] = [(x - by * y) % prime for x, y in zip(row, rows[done], strict=True)]
        pivots.append(column)
    (free,) = set(range(len(rows[0]))) - set(pivots)
    out = [0] * len(rows[0])
    out[free] = 1
    for row, column in zip(rows, pivots, strict=False):
        out[column] = -row[free] % prime
    return out


def equations(plain: Array, seen: Array) -> Array:
    """Of A (q, 1) = factor * Q for known q and Q: unknown are A, row by row, and the factors."""
    m, n = seen.shape
    system = np.zeros((m * n, n * n + m), dtype=seen.dtype)
    for i in range(m):
        for row in range(n):
            system[i * n + row, row * n : (row + 1) * n] = plain[i]
            system[i * n + row, n * n + i] = -seen[i, row]
    return system


@both
def test_d_plus_2_known_events_give_every_event_and_every_bound(exact: bool) -> None:
    view = View(exact, 60)
    known = D + 2
    doubled = np.column_stack([2 * view.codes, np.ones(60, dtype=np.int64)])
    seen, bounds = view.numbers(view.events)[:, 0], view.bounds
    n = D + 1
    if exact:
        # One prime is enough: values are smaller.
        (prime, *_), seen, bounds = Residues(1).primes, seen[:, 0], bounds[:, 0]
        system = equations(doubled[:known].astype(object), seen[:known].astype(object))
        found = np.array(null_vector(system.tolist(), prime)[: n * n], dtype=float)
        ring = Residues(1)
        key = ring.reduced(found.reshape(1, n, n))
        inverse = ring.inverse(key)[0]
        plain = (inverse @ seen.T.astype(float)).T
        plain, turned = plain.astype(object) % prime, (bounds.astype(float) @ key[0]) % prime
        scale = [pow(int(row[-1]), -1, prime) for row in plain]
        events = np.array([r * s % prime for r, s in zip(plain[:, :-1], scale, strict=True)])
        bound_rows = turned.astype(np.int64).astype(object)
    else:
        system = equations(doubled[:known].astype(float), seen[:known])
        system[:, : n * n] /= 1 << 17  # all unknowns of about one size
        found = np.linalg.svd(system)[2][-1][: n * n].reshape(n, n)
        plain = np.linalg.solve(found, seen.T).T
        events = np.rint(plain[:, :-1] / plain[:, -1:])
        bound_rows = bounds @ found
        prime = 0
    assert np.array_equal((np.array(events) // 2).astype(int), view.codes)

    recovered = set()
    for row in bound_rows:
        place = int(np.argmax([bool(v) for v in row[:-1]]) if exact else np.argmax(abs(row[:-1])))
        if exact:
            assert sum(bool(v) for v in row[:-1]) == 1
            value = -row[-1] * pow(int(row[place]), -1, prime) % prime
            value = value - prime if value > prime // 2 else value
        else:
            value = round(-row[-1] / row[place])
        recovered.add((place, int(value)))
    for limits in WANTED:
        for place, (low, high) in enumerate(zip(limits[::2], limits[1::2], strict=True)):
            assert {(place, 2 * low - 1), (place, 2 * high + 1)} <= recovered
    assert len(recovered) == 2 * D * len(WANTED)


# -- no plaintext at all ---------------------------------------------------------------------------


def test_linear_dependence_tells_which_bounds_are_of_one_attribute() -> None:
    view = View(False, 1)
    bounds = view.bounds / np.linalg.norm(view.bounds, axis=1)[:, None]
    count = len(bounds)
    groups = []
    for i, j in combinations(range(count), 2):
        plane = np.linalg.svd(bounds[[i, j]])[2][2:]
        members = frozenset(np.flatnonzero(np.linalg.norm(bounds @ plane.T, axis=1) < 1e-9))
        if len(members) > 2:  # three bounds in a plane: one attribute
            groups.append(members)
    truth = np.argmax(abs(view.bounds @ view.key().inverse)[:, :-1], axis=1)
    assert set(groups) == {frozenset(np.flatnonzero(truth == j)) for j in range(D)}


def test_products_tell_cross_ratios_and_with_them_order() -> None:
    view = View(False, 40)
    products = view.numbers(view.events)[:, 0] @ view.bounds.T
    rows = view.bounds @ view.key().inverse
    place = np.argmax(abs(rows[:, :-1]), axis=1)
    value = np.rint((-rows[:, -1] / rows[np.arange(len(rows)), place]) * 2**17) + 2**16 - 1
    first, second = np.flatnonzero(place == 0)[:2]
    q, p1, p2 = 2 * view.codes[:, 0], value[first], value[second]
    # Neither factors nor the key are in these: they cancel.
    seen = products[:, first] / products[:, second]
    seen /= seen[0]
    true = ((q - p1) / (q - p2)) / ((q[0] - p1) / (q[0] - p2))
    assert np.allclose(seen, true, rtol=1e-6)


def test_divisors_of_exact_products_tell_differences() -> None:
    view = View(True, 60)
    ring = view.matcher._numbers.ring  # type: ignore[attr-defined]
    queries = np.stack([view.numbers(view.events)[:, 0, i] for i in range(len(ring))])
    bounds = np.stack([view.bounds[:, i] for i in range(len(ring))])
    products = ring.integers(
        ring.matmul(
            ring.reduced(queries.astype(float)),
            ring.reduced(bounds.astype(float)).transpose(0, 2, 1),
        )
    )
    rho = np.array([gcd(*row) for row in products], dtype=object)
    r = np.array([gcd(*column) for column in products.T], dtype=object)
    differences = products // (rho[:, None] * r)  # +-(2q - bound), or a small part of it
    assert not (products % (rho[:, None] * r)).any()

    truth = [
        sign * (2 * view.codes[:, j] - bound)
        for limits in WANTED
        for j in range(D)
        for sign, bound in ((1, 2 * limits[2 * j] - 1), (-1, 2 * limits[2 * j + 1] + 1))
    ]
    found = {tuple(column) for column in differences.T}
    assert found == {tuple(column) for column in truth}


# -- key updates -----------------------------------------------------------------------------------


def test_an_update_and_an_old_key_give_the_new_key() -> None:
    view = View(False, 30)
    old = view.key().matrix  # as found by known plaintext
    token = view.server.rotate()
    update = view.matcher._numbers._matrix(token.export_secret_data()["update"])  # type: ignore[attr-defined]
    recovered = RealAspe(old @ update)
    seen = view.numbers(view.send())[:, 0]
    codes = recovered.decrypt_queries(seen) * 2**16 + (2**16 - 1) / 2
    assert np.array_equal(np.rint(codes), view.codes)
