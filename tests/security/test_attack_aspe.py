"""What breaks AspeMatch: whole numbers, known events, linear dependence; and what updates give.

The adversaries are those of `ccbps.attacks.schemes.aspe`. The truth, to compare with, comes from
the plaintexts and, to name attributes, from the master key.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import Schema, UInt
from ccbps.algebra.residues import Residues
from ccbps.attacks.schemes import aspe
from ccbps.attacks.schemes.views import watch
from ccbps.ciphers.aspe import ModularAspe, RealAspe, random_factors
from ccbps.errors import ParameterError
from ccbps.matching.broken import AspeMatch

Array = NDArray[Any]

SCHEMA = Schema(price=UInt(16), volume=UInt(16), age=UInt(16))
D = len(SCHEMA)
WANTED = [(100, 900, 4000, 4001, 7, 30000), (1, 60000, 17, 40, 9000, 9500), (5, 6, 7, 80, 9, 9999)]
TEXTS = [
    f"price BETWEEN {a} AND {b} AND volume BETWEEN {c} AND {d} AND age BETWEEN {e} AND {f}"
    for a, b, c, d, e, f in WANTED
]
both = pytest.mark.parametrize("exact", [False, True], ids=["real", "exact"])


class World:
    """A key server, and what the broker sees of its clients."""

    def __init__(self, exact: bool, events: int) -> None:
        self.codes = np.random.default_rng(5).integers(0, 1 << 16, (events, D))
        self.matcher = AspeMatch(SCHEMA, exact=exact)
        # Seeded: how exactly real numbers are read depends on keys and factors.
        self.draw = np.random.default_rng(6).bytes
        self.server = self.matcher.key_server(randomness=self.draw)
        self.view = self.watch()

    def watch(self) -> Any:
        records = dict(zip(SCHEMA, self.codes.T, strict=True))
        return watch(self.matcher, records, TEXTS, self.server, self.draw)

    def key(self) -> Any:
        return self.matcher._numbers._key(self.server._master)  # type: ignore[attr-defined]


# -- known plaintext, the cipher -------------------------------------------------------------------


def test_real_cipher_d_plus_1_known_points_give_the_key() -> None:
    d = 5
    rng = np.random.default_rng(1)
    key = RealAspe.generate(d, os.urandom)
    plaintexts = rng.normal(size=(d + 1, d))
    recovered = aspe.solve_real_key(plaintexts, key.encrypt_points(plaintexts))
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
    recovered = aspe.solve_modular_key(ring, plaintexts, seen)
    assert np.array_equal(ring.integers(recovered.matrix), ring.integers(key.matrix))


# -- known plaintext, the matcher: factors are unknown ---------------------------------------------


@both
def test_d_plus_2_known_events_give_every_event_and_every_bound(exact: bool) -> None:
    world = World(exact, 60)
    events, recovered = aspe.solve_events(world.matcher, world.view, world.codes[: D + 2])
    assert np.array_equal(events, world.codes)
    for limits in WANTED:
        for place, (low, high) in enumerate(zip(limits[::2], limits[1::2], strict=True)):
            assert {(place, 2 * low - 1), (place, 2 * high + 1)} <= recovered
    assert len(recovered) == 2 * D * len(WANTED)
    with pytest.raises(ParameterError, match="more than one key"):
        aspe.solve_events(world.matcher, world.view, world.codes[: D + 1])


# -- no plaintext at all ---------------------------------------------------------------------------


def test_linear_dependence_tells_which_bounds_are_of_one_attribute() -> None:
    world = World(False, 1)
    bounds = aspe.read_bounds(world.matcher, world.view.interests)
    groups = {frozenset(members.tolist()) for members, _ in aspe.group_bounds(bounds)}
    truth = np.argmax(abs(bounds @ world.key().inverse)[:, :-1], axis=1)
    assert groups == {frozenset(np.flatnonzero(truth == j).tolist()) for j in range(D)}


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
    records = dict(zip(TALLIES, codes.T, strict=True))
    view = watch(matcher, records, texts, randomness=rng.bytes)
    readings = aspe.read_by_cross_ratios(matcher, view)
    read = {round(values.max()) + 1: (values, ends) for values, ends in readings}
    truth = [limits[0, :, :1] - 0.5, limits[1] + np.array([-0.5, 0.5]), limits[2, :, 1:] + 0.5]
    assert set(read) == {1 << bits for bits in WIDTHS}
    for bits, plain, expected in zip(WIDTHS, codes.T, truth, strict=True):
        values, ends = read[1 << bits]
        assert np.array_equal(values, plain)
        assert len(ends) == expected.size
        assert np.allclose(ends, np.sort(expected.reshape(-1)), atol=0.1)


def test_noise_below_half_a_step_would_not_stop_cross_ratios() -> None:
    """A variant that the library does not have: secret noise of up to a quarter of a step in every
    event (bounds take the other quarter), so that answers stay exact and no value is whole."""
    size, count = 64, 600
    rng = np.random.default_rng(12)
    codes = rng.integers(0, size, count)
    noisy = (codes + rng.uniform(-0.25, 0.25, count)) / size
    key = RealAspe.generate(1, rng.bytes)
    words = rng.integers(0, 2**64, count, dtype=np.uint64)
    events = key.encrypt_queries(noisy[:, None], random_factors(words))
    limits = (np.array([20, 41]) - 0.5 + rng.uniform(-0.25, 0.25, 2)) / size
    bounds = key.encrypt_differences(np.ones((2, 1)), limits, random_factors(words[:2]))
    solution = aspe.read_noisy_values(events @ bounds.T, size)
    assert any(np.array_equal(solution, plain) for plain in (codes, size - 1 - codes))


def test_divisors_of_exact_products_tell_differences() -> None:
    world = World(True, 60)
    differences = aspe.divide_factors(world.matcher, world.view)
    truth = [
        sign * (2 * world.codes[:, j] - bound)
        for limits in WANTED
        for j in range(D)
        for sign, bound in ((1, 2 * limits[2 * j] - 1), (-1, 2 * limits[2 * j + 1] + 1))
    ]
    solution = {tuple(column) for column in differences.T}
    assert solution == {tuple(column) for column in truth}


# -- key updates -----------------------------------------------------------------------------------


def test_an_update_and_an_old_key_give_the_new_key() -> None:
    world = World(False, 30)
    old = world.key().matrix  # as found by known plaintext
    token = world.server.rotate()
    update = world.matcher._numbers._matrix(token.export_secret_data()["change"])  # type: ignore[attr-defined]
    recovered = RealAspe(old @ update)
    seen = aspe.read_ciphertexts(world.matcher, world.watch().events)[:, 0]
    codes = recovered.decrypt_queries(seen) * 2**16 + (2**16 - 1) / 2
    assert np.array_equal(np.rint(codes), world.codes)
