"""ASPE and residues: products and signs are those of the plaintexts; bad keys are refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.algebra.residues import PRIMES, Residues
from ccbps.ciphers.aspe import (
    ModularAspe,
    RealAspe,
    random_factors,
    suited,
    tolerance,
    update_queries,
    updated,
)
from ccbps.errors import ParameterError, ShapeError

RNG = np.random.default_rng(3)


def words(count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


# -- residues --------------------------------------------------------------------------------------


def test_the_primes_are_primes() -> None:
    for prime in PRIMES:
        assert prime < 1 << 23
        assert all(prime % factor for factor in range(2, 2897))


@given(st.integers(1, 6), st.data())
def test_residues_know_numbers_and_signs(count: int, data: st.DataObject) -> None:
    ring = Residues(count)
    edge = ring.modulus // 4
    numbers = st.integers(-edge, edge) | st.sampled_from([0, 1, -1, edge, -edge, edge // 9])
    values = np.array(data.draw(st.lists(numbers, min_size=1, max_size=8)), dtype=object)
    assert ring.integers(ring.of(values)).tolist() == values.tolist()

    # A sum of products whose parts are much larger than it is.
    left = RNG.integers(0, 1 << 60, (1, 255)).astype(object)
    right = RNG.integers(0, 1 << 60, (255, len(values))).astype(object)
    left = np.concatenate([left, [[1]]], axis=1)
    right = np.concatenate([right, [values - (left[:, :-1] @ right)[0]]])
    room = np.empty((count + 1, 1, len(values)))
    prepared = ring.prepared(ring.of(right))
    signs = np.sign(ring.signed_products(list(ring.of(left)), list(prepared), room))
    assert signs[0].tolist() == [(value > 0) - (value < 0) for value in values]
    assert np.array_equal(ring.integers(ring.unprepared(prepared)), ring.integers(ring.of(right)))


def test_residues_invert_and_refuse() -> None:
    ring = Residues(3)
    matrix = ring.of(RNG.integers(0, 1 << 60, (5, 5)))
    unit = ring.integers(ring.matmul(matrix, ring.inverse(matrix)))
    assert unit.tolist() == np.eye(5, dtype=int).tolist()
    matrix[1, 0] = matrix[1, 3]
    with pytest.raises(ParameterError, match="singular"):
        ring.inverse(matrix)
    with pytest.raises(ShapeError, match="n, n"):
        ring.inverse(matrix[:2])
    with pytest.raises(ShapeError, match="at most 256"):
        ring.matmul(np.zeros((3, 1, 257)), np.zeros((3, 257, 1)))
    with pytest.raises(ParameterError, match="1 to 6"):
        Residues(7)
    with pytest.raises(ParameterError, match="too large"):
        Residues.primes_for(1 << 140)


# -- real numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 8, 40])
def test_products_of_ciphertexts(d: int) -> None:
    key = RealAspe.generate(d, os.urandom)
    assert np.linalg.cond(key.matrix) < 4.0001
    points, queries = RNG.uniform(-1, 1, (50, d)), RNG.uniform(-1, 1, (60, d))
    rho = random_factors(words(60))
    assert rho.min() >= 2**-8 and rho.max() < 2**8
    products = key.encrypt_queries(queries, rho) @ key.encrypt_points(points).T
    true = rho[:, None] * (queries @ points.T - 0.5 * (points**2).sum(axis=1))
    lengths = np.sqrt((queries**2).sum(axis=1) + 1) * rho
    sizes = np.sqrt((points**2).sum(axis=1) + 0.25 * (points**2).sum(axis=1) ** 2)
    assert (abs(products - true) <= tolerance(d) * lengths[:, None] * sizes).all()
    assert np.allclose(key.decrypt_queries(key.encrypt_queries(queries, rho)), queries)


def test_thresholds_as_in_the_paper() -> None:
    # p - r and p + r for a threshold p of one attribute, compared with values: q > p, q = p, q < p.
    key = RealAspe.generate(1, os.urandom)
    p, q = RNG.integers(0, 50, 40), np.arange(50)
    r = RNG.uniform(0.5, 9, 40)
    first = key.encrypt_points((p - r)[:, None])
    second = key.encrypt_points((p + r)[:, None])
    queries = key.encrypt_queries(q[:, None].astype(float), random_factors(words(50)))
    answers = key.compare(first, second, queries)
    assert np.array_equal(answers, np.sign(q[:, None] - p))
    # The difference that `encrypt_differences` makes is that of such points.
    direct = key.encrypt_differences(np.ones((40, 1)), p.astype(float), 2 * r)
    assert np.allclose(direct, second - first)


def test_keys_are_changed_without_plaintext() -> None:
    old, new = RealAspe.generate(3, os.urandom), RealAspe.generate(3, os.urandom)
    points, rho = RNG.uniform(-1, 1, (9, 3)), random_factors(words(9))
    change = old.update_to(new)
    assert np.allclose(updated(old.encrypt_points(points), change), new.encrypt_points(points))
    queries = update_queries(old.encrypt_queries(points, rho), change)
    assert np.allclose(queries, new.encrypt_queries(points, rho))
    with pytest.raises(ParameterError, match="singular"):
        update_queries(queries, np.ones((4, 4)))
    with pytest.raises(ParameterError, match="same dimension"):
        old.update_to(RealAspe.generate(2, os.urandom))


REAL = RealAspe.generate(2, os.urandom)
RING = Residues(2)
MODULAR = ModularAspe.generate(RING, 2, os.urandom)
GOOD = np.ones((2, 1, 2))


def modular(rows: Any, *factors: Any) -> Any:
    return MODULAR.encrypt_queries(rows, np.array(factors))


FAULTS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: RealAspe(np.ones((3, 3))), ParameterError, "singular"),
    (lambda: RealAspe(np.diag([1, 1e-12])), ParameterError, "singular"),
    (lambda: RealAspe(np.full((2, 2), np.nan)), ParameterError, "NaN"),
    (lambda: RealAspe(np.ones((3, 2))), ShapeError, r"\(n, n\)"),
    (lambda: RealAspe.generate(0, os.urandom), ParameterError, "at least 1"),
    (lambda: REAL.encrypt_points(np.array([[0, np.nan]])), ParameterError, "points must be finite"),
    (lambda: REAL.encrypt_points(np.array([[1e200, 0]])), ParameterError, "points must be finite"),
    (lambda: REAL.encrypt_points(np.ones((2, 3))), ShapeError, r"\(count, 2\)"),
    (lambda: REAL.encrypt_queries(np.array([[np.inf, 0]]), np.ones(1)), ParameterError, "queries"),
    (lambda: REAL.encrypt_queries(np.ones((1, 2)), np.zeros(1)), ParameterError, "above 0"),
    (lambda: REAL.encrypt_queries(np.ones((1, 2)), np.ones(2)), ShapeError, "factors"),
    (lambda: REAL.encrypt_queries(np.ones((1, 2)), np.full(1, np.nan)), ParameterError, "above 0"),
    (
        lambda: REAL.encrypt_differences(np.ones((1, 2)), np.full(1, np.inf), np.ones(1)),
        ParameterError,
        "offsets must be finite",
    ),
    (
        lambda: REAL.encrypt_differences(np.ones((1, 2)), np.ones(2), np.ones(1)),
        ShapeError,
        "offsets",
    ),
    (lambda: ModularAspe(RING, np.ones((2, 3, 3))), ParameterError, "singular"),
    (lambda: ModularAspe.generate(RING, 0, os.urandom), ParameterError, "at least 1"),
    (lambda: modular(GOOD, 0), ParameterError, "factors"),
    (lambda: modular(GOOD, 1 << 31), ParameterError, "factors"),
    (lambda: modular(GOOD, 1, 1), ShapeError, "factors"),
    (lambda: modular(GOOD, 1.0), ShapeError, "factors"),
    (lambda: modular(np.ones((2, 1, 3)), 1), ShapeError, "rows must be a float64 array of shape"),
    (lambda: modular(GOOD * np.nan, 1), ParameterError, "NaN"),
    (
        lambda: MODULAR.update_to(ModularAspe.generate(RING, 1, os.urandom)),
        ParameterError,
        "same dimension",
    ),
    (lambda: suited(1 << 120), ParameterError, "too large"),
]


@pytest.mark.parametrize("call, kind, words", FAULTS)
def test_faults(call: Callable[[], object], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_keys_do_not_print() -> None:
    assert repr(REAL) == "<RealAspe of dimension 2>"
    assert repr(MODULAR) == "<ModularAspe of dimension 2>"


# -- integers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [1, 1000, 1 << 33, 1 << 68])
def test_exact_signs_up_to_the_bound(bound: int) -> None:
    ring, bits = suited(bound)
    assert bits >= 12 and (((1 << bits) - 1) ** 2) * bound < ring.modulus // 4
    key = ModularAspe.generate(ring, 1, os.urandom)
    factor = np.full(3, (1 << bits) - 1)
    q = np.array([[-bound], [0], [bound]], dtype=object)
    queries = key.encrypt_queries(ring.of(q), factor)
    ones = ring.of(np.ones((3, 1), dtype=object))
    offsets = ring.of(np.array([-1, 0, 1], dtype=object) * min(bound, 1))
    differences = key.encrypt_differences(ones, offsets, factor)
    wanted = [[int(v > c) - int(v < c) for c in (-1, 0, 1)] for v in (-bound, 0, bound)]
    assert key.signs(queries, differences).tolist() == wanted

    new = ModularAspe.generate(ring, 1, os.urandom)
    change = key.update_to(new)
    moved = ring.integers(ring.matmul(differences, change))
    direct = ring.integers(new.encrypt_differences(ones, offsets, factor))
    assert moved.tolist() == direct.tolist()
