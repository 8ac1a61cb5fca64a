"""What breaks AspeMatch: whole numbers, known events, linear dependence; and what updates give.

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
from ccbps.ciphers.aspe import ModularAspe, RealAspe, random_factors
from ccbps.errors import ParameterError
from ccbps.matching.broken import AspeMatch
from tests.support.reusable_checks import BODY, users

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
        manager = self.matcher.subscriber(self.server.subscriber_key("security manager"))
        self.interests = manager.encode(TEXTS)
        self.events = self.send()

    def send(self) -> Array:
        records = dict(zip(SCHEMA, self.codes.T, strict=True))
        return self.matcher.publisher(self.server.publisher_key()).encode(records)

    def numbers(self, messages: Array) -> Array:
        return self.matcher._numbers.numbers_of(messages[:, BODY])

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
    plaintexts = rng.normal(size=(d + 1, d))
    lifted = np.column_stack([plaintexts, -0.5 * (plaintexts**2).sum(axis=1)])
    recovered = RealAspe(np.linalg.solve(lifted, key.encrypt_points(plaintexts)))
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
    plaintexts = rng.integers(-99, 99, (d + 1, d + 1))  # (w, -c), with factors 1
    ones = np.ones(d + 1, dtype=np.int64)
    seen = key.encrypt_differences(ring.of(plaintexts[:, :-1]), ring.of(-plaintexts[:, -1]), ones)
    recovered = ModularAspe(ring, ring.matmul(ring.inverse(ring.of(plaintexts)), seen))
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


def without_blinds(seen: Array, bounds: Array, ring: Residues) -> tuple[Array, Array]:
    """Events and bounds of d + 1 numbers with the products that the ciphertexts' have.

    The dimensions that make exact messages new each time do not count in products, so the table of
    products has rank d + 1, and is a product of two narrow tables.
    """
    queries, columns = (part.astype(float)[None] for part in (seen, bounds))
    products = ring.matmul(queries, columns.transpose(0, 2, 1))
    for chosen in combinations(range(2 * D), D + 1):
        try:
            middle = ring.inverse(products[:, : D + 1, chosen])
        except ParameterError:  # two bounds of one attribute too many
            continue
        right = ring.matmul(middle, products[:, : D + 1])
        return products[0][:, chosen] % ring.primes[0], right[0].T % ring.primes[0]
    raise AssertionError("no bounds span all dimensions")


@both
def test_d_plus_2_known_events_give_every_event_and_every_bound(exact: bool) -> None:
    view = View(exact, 60)
    plaintexts = D + 2
    doubled = np.column_stack([2 * view.codes, np.ones(60, dtype=np.int64)])
    seen, bounds = view.numbers(view.events)[:, 0], view.bounds
    n = D + 1
    if exact:
        # One prime is enough: values are smaller.
        ring, (prime, *_) = Residues(1), Residues(1).primes
        seen, bounds = without_blinds(seen[:, 0], bounds[:, 0], ring)
        rows = seen[:plaintexts].astype(np.int64).astype(object)
        system = equations(doubled[:plaintexts].astype(object), rows)
        solution = np.array(null_vector(system.tolist(), prime)[: n * n], dtype=float)
        key = ring.reduced(solution.reshape(1, n, n))
        inverse = ring.inverse(key)[0]
        plain = (inverse @ seen.T.astype(float)).T
        plain, turned = plain.astype(object) % prime, (bounds.astype(float) @ key[0]) % prime
        scale = [pow(int(row[-1]), -1, prime) for row in plain]
        events = np.array([r * s % prime for r, s in zip(plain[:, :-1], scale, strict=True)])
        bound_rows = turned.astype(np.int64).astype(object)
    else:
        system = equations(doubled[:plaintexts].astype(float), seen[:plaintexts])
        system[:, : n * n] /= 1 << 17  # all unknowns of about one size
        solution = np.linalg.svd(system)[2][-1][: n * n].reshape(n, n)
        plain = np.linalg.solve(solution, seen.T).T
        events = np.rint(plain[:, :-1] / plain[:, -1:])
        bound_rows = bounds @ solution
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


def planes(bounds: Array) -> list[tuple[Array, Array]]:
    """Of each attribute the places of its bounds, and the plane they span, shape (d + 1, 2)."""
    bounds = bounds / np.linalg.norm(bounds, axis=1)[:, None]
    left, solution = np.arange(len(bounds)), []
    while len(left) > 2:
        best = np.zeros(len(left), dtype=np.bool_)
        for other in left[1:]:
            _, sizes, basis = np.linalg.svd(bounds[[left[0], other]])
            inside = np.linalg.norm(bounds[left] @ basis[2:].T, axis=1) < 1e-9
            # Two of nearly one value span nothing; two of different attributes, few others.
            if sizes[1] > 1e-3 and inside.sum() > best.sum():
                best = inside
        members, left = left[best], left[~best]
        solution.append((members, np.linalg.svd(bounds[members])[2][:2].T))
    return solution


def test_linear_dependence_tells_which_bounds_are_of_one_attribute() -> None:
    view = View(False, 1)
    groups = {frozenset(members.tolist()) for members, _ in planes(view.bounds)}
    truth = np.argmax(abs(view.bounds @ view.key().inverse)[:, :-1], axis=1)
    assert groups == {frozenset(np.flatnonzero(truth == j).tolist()) for j in range(D)}


def bracket(a: Array, b: Array) -> Array:
    """Of points of a projective line: in a cross-ratio their scales cancel."""
    return np.asarray(a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0])


MOST_GAP = 48


def whole_numbers(events: Array, *others: Array) -> list[Array]:
    """Codes of one attribute's events, and of others' places, up to a shift and a reflection.

    Three neighbouring values are guessed, by their two distances; cross-ratios give all others.
    The guess is right where all of them are whole numbers.

    Args:
        events, others: points of a projective line, shape (count, 2).
    """
    angles = np.arctan2(events[:, 1], events[:, 0]) % np.pi
    order = np.argsort(angles)
    distinct = events[order[np.diff(angles[order], prepend=-1) > 1e-11]]
    near, far = (grid.reshape(-1) for grid in np.mgrid[1:MOST_GAP, 1:MOST_GAP].astype(float))
    least_first = np.argsort(near + far, kind="stable")  # multiples of a right guess are no news
    near, far = near[least_first], far[least_first]
    some = distinct[:: max(1, len(distinct) // 24)]

    def read(at: int, points: Array, near: Any, far: Any) -> Array:
        a, b, c = distinct[at], distinct[at + 1], distinct[at + 2]
        top, below = bracket(points, a) * bracket(b, c), bracket(points, c) * bracket(b, a)
        # z (z_b - z_c) / ((z - z_c) z_b) = top / below with z_a = 0
        return np.asarray(top * near * (near + far) / (top * near + below * far))

    for at in range(len(distinct) - 2):
        with np.errstate(divide="ignore", invalid="ignore"):
            z = read(at, some, near[:, None], far[:, None])
            good = np.flatnonzero((abs(z - np.rint(z)) < 0.02).all(axis=1))
        for guess in good:
            solution = read(at, events, near[guess], far[guess])
            different = len(np.unique(np.rint(solution))) == len(distinct)
            if different and (abs(solution - np.rint(solution)) < 0.1).all():
                return [read(at, points, near[guess], far[guess]) for points in (events, *others)]
    raise AssertionError("no three neighbours are as near as was guessed")


WIDTHS = (6, 10, 16)
TALLIES = Schema({f"a{bits}": UInt(bits) for bits in WIDTHS})


@pytest.mark.parametrize(("events", "subscriptions"), [(1_000, 30), (300, 2)])
def test_cross_ratios_of_whole_numbers_give_every_value_and_every_bound(
    events: int, subscriptions: int
) -> None:
    """From ciphertexts alone: every value and every bound of every attribute, and which ends are
    open."""
    rng = np.random.default_rng(11)
    codes = np.stack([rng.integers(0, 1 << bits, events) for bits in WIDTHS], axis=1)
    codes[0], codes[1] = 0, [(1 << bits) - 1 for bits in WIDTHS]  # the domain is filled
    drawn = [rng.integers(1, (1 << bits) - 1, (subscriptions, 2)) for bits in WIDTHS]
    limits = np.sort(drawn, axis=2)
    texts = [
        f"a6 >= {low[0]} AND a10 BETWEEN {low[1]} AND {high[1]} AND a16 <= {high[2]}"
        for low, high in limits.transpose(1, 2, 0)
    ]
    matcher = AspeMatch(TALLIES)
    _, _, publisher, manager = users(matcher, "security manager")
    messages = publisher.encode(dict(zip(TALLIES, codes.T, strict=True)))
    # From here on the attacker: it has messages and the schema.
    seen = matcher._numbers.numbers_of(messages[:, BODY])[:, 0]
    interests = matcher._numbers.numbers_of(manager.encode(texts)[:, BODY])
    bounds = interests[:, :-2].reshape(-1, interests.shape[2])
    read = {}
    for members, basis in planes(bounds):
        coefficients = bounds[members] @ basis
        zeros = np.stack([-coefficients[:, 1], coefficients[:, 0]], axis=1)
        low, high = interests[:, -2] @ basis, interests[:, -1] @ basis
        values, ends, low, high = whole_numbers(seen @ basis, zeros, low, high)
        direction = np.sign(np.median(high - low))  # a box's lower corner is sent first
        values, ends = direction * values, direction * ends
        first, size = values.min(), round(np.ptp(values)) + 1
        closed = abs(ends - first - size / 2) <= size  # open ends are drawn outside of the domain
        read[size] = np.rint(values - first), np.sort(ends[closed] - first)
    truth = [limits[0, :, :1] - 0.5, limits[1] + np.array([-0.5, 0.5]), limits[2, :, 1:] + 0.5]
    assert set(read) == {1 << bits for bits in WIDTHS}
    for bits, plain, expected in zip(WIDTHS, codes.T, truth, strict=True):
        values, ends = read[1 << bits]
        assert np.array_equal(values, plain)
        assert len(ends) == expected.size
        assert np.allclose(ends, np.sort(expected.reshape(-1)), atol=0.1)


def test_noise_below_half_a_step_would_not_stop_cross_ratios() -> None:
    """A variant that the library does not have: secret noise of up to a quarter of a step in every
    event (bounds take the other quarter), so that answers stay exact and no value is whole.

    Of all readings in which the least and the greatest event are at the domain's ends, the true one
    is that whose values crowd around whole numbers."""
    size, count = 64, 600
    rng = np.random.default_rng(12)
    codes = rng.integers(0, size, count)
    noisy = (codes + rng.uniform(-0.25, 0.25, count)) / size
    key = RealAspe.generate(1, rng.bytes)
    words = rng.integers(0, 2**64, count, dtype=np.uint64)
    events = key.encrypt_queries(noisy[:, None], random_factors(words))
    limits = (np.array([20, 41]) - 0.5 + rng.uniform(-0.25, 0.25, 2)) / size
    bounds = key.encrypt_differences(np.ones((2, 1)), limits, random_factors(words[:2]))
    # From here on the attacker. Angles have their only jump at infinity, outside of all values.
    products = events @ bounds.T
    angles = np.sort(np.arctan2(products[:, 0], products[:, 1]) % np.pi)
    jump = (np.argmax(np.diff(angles, append=angles[0] + np.pi)) + 1) % count
    turned = np.arctan2(products[:, 0], products[:, 1]) - angles[jump]
    line = np.tan(turned % np.pi - (angles[jump - 1] - angles[jump]) % np.pi / 2)
    unit = (line - line.min()) / np.ptp(line)
    best, solution = 0.0, np.zeros(count)
    for width in size - 1 + np.linspace(-0.5, 0.5, 5):
        for bend in np.exp(np.linspace(-4, 4, 32 * size)):
            values = width * unit / (unit + bend * (1 - unit))
            phase = np.exp(2j * np.pi * values).mean()
            if abs(phase) > best:
                best, solution = abs(phase), np.rint(values - np.angle(phase) / (2 * np.pi))
    assert any(np.array_equal(solution, plain) for plain in (codes, size - 1 - codes))


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
    solution = {tuple(column) for column in differences.T}
    assert solution == {tuple(column) for column in truth}


# -- key updates -----------------------------------------------------------------------------------


def test_an_update_and_an_old_key_give_the_new_key() -> None:
    view = View(False, 30)
    old = view.key().matrix  # as found by known plaintext
    token = view.server.rotate()
    update = view.matcher._numbers._matrix(token.export_secret_data()["change"])  # type: ignore[attr-defined]
    recovered = RealAspe(old @ update)
    seen = view.numbers(view.send())[:, 0]
    codes = recovered.decrypt_queries(seen) * 2**16 + (2**16 - 1) / 2
    assert np.array_equal(np.rint(codes), view.codes)
