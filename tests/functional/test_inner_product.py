"""Function-private inner products: which products are 0 is seen, by both libraries alike."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest

from ccbps.algebra.pairing.groups import TransparentPairing
from ccbps.errors import DecodeError, ParameterError, ShapeError
from ccbps.functional import InnerProducts
from ccbps.functional.inner_product import Basis
from tests.support.refusals import refused

named = pytest.mark.parametrize("pairing", ["transparent", "bls12-381"])


def answers(products: InnerProducts, events: Any, interests: Any) -> Any:
    """Encrypt vectors, make tokens, and answer all pairs."""
    basis = products.basis(os.urandom(32))
    sent, asked = products.ciphertexts(basis, events), products.tokens(basis, interests)
    ciphertexts = [products.read_ciphertext(row.tobytes()) for row in sent]
    tokens = [products.read_token(row.tobytes()) for row in asked]
    rows, columns = np.indices((len(sent), len(asked))).reshape(2, -1)
    return products.orthogonal(ciphertexts, tokens, rows, columns).reshape(len(sent), len(asked))


@named
def test_products_that_are_zero_are_seen(pairing: str) -> None:
    products = InnerProducts(3, pairing=pairing)
    order = products.group.order
    events = [[1, 2, 3], [1, 0, 0], [order - 1, 1, 7]]
    interests = [[3, 0, -1], [0, 0, 0], [0, 0, 1], [order, order + 7, -1]]
    exact = np.array(events, dtype=object) @ np.array(interests, dtype=object).T % order == 0
    assert exact.any(axis=0).tolist() == [True, True, True, True]
    assert np.array_equal(answers(products, events, interests), exact)


@pytest.mark.parametrize("length", [1, 2, 9, 40])
def test_random_vectors(length: int) -> None:
    rng = np.random.default_rng(length)
    products = InnerProducts(length, pairing="transparent")
    events = rng.integers(-1, 2, (30, length)).astype(object)
    events[:, 0] = 1
    interests = rng.integers(-1, 2, (30, length)).astype(object)
    exact = events @ interests.T == 0
    assert np.array_equal(answers(products, events, interests), exact)
    assert exact.any()


def test_the_two_matrices_belong_together() -> None:
    group = TransparentPairing()
    unit = np.array([[int(i == j) for j in range(5)] for i in range(5)], dtype=object)
    basis = Basis(group, 5, bytes(range(32)))
    assert np.array_equal(basis.times(unit) @ basis.times_dual(unit).T % group.order, unit)
    again, other = Basis(group, 5, bytes(range(32))), Basis(group, 5, bytes(32))
    assert np.array_equal(again.times(unit), basis.times(unit))
    assert not np.array_equal(other.times(unit), basis.times(unit))
    assert repr(basis) == "<Basis of 5 rows>"


def test_messages_of_one_vector_are_all_different() -> None:
    products = InnerProducts(2, pairing="transparent")
    basis = products.basis(os.urandom(32))
    for sent in (products.ciphertexts(basis, [[1, 2]] * 8), products.tokens(basis, [[0, 0]] * 8)):
        points = sent.reshape(len(sent) * products.size, -1)
        assert len(np.unique(points, axis=0)) == len(points)
        assert sent.reshape(len(sent), products.size, -1).any(axis=2).all()


def test_threads_give_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransparentPairing, "parallel", True)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    events = [[1, value] for value in range(31)]
    interests = [[-value, 1] for value in range(29)]
    exact = np.arange(31)[:, None] == np.arange(29)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        seen = answers(InnerProducts(2, pairing="transparent"), events, interests)
    finally:
        sys.setswitchinterval(interval)
    assert np.array_equal(seen, exact)


def test_an_error_of_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, pairs: Any) -> bool:
        raise MemoryError

    monkeypatch.setattr(TransparentPairing, "parallel", True)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(TransparentPairing, "cancels", fails)
    products = InnerProducts(1, pairing="transparent")
    refused(MemoryError, "", answers, products, [[1]] * 5, [[0]] * 5)


@named
def test_bytes_that_are_no_message_are_refused(pairing: str) -> None:
    products = InnerProducts(1, pairing=pairing)
    basis = products.basis(os.urandom(32))
    sent = products.ciphertexts(basis, [[1]])[0].tobytes()
    asked = products.tokens(basis, [[1]])[0].tobytes()
    for read, good in ((products.read_ciphertext, sent), (products.read_token, asked)):
        read(good)
        for bad in (b"", good[:-1], good + b"\0", bytes(len(good)), b"\xff" * len(good)):
            refused(DecodeError, "", read, bad)
    refused(DecodeError, "", products.read_token, sent * 2)
    if pairing == "bls12-381":
        identity = b"\xc0" + bytes(47)
        refused(DecodeError, "", products.read_ciphertext, sent[:48] + identity)


def test_wrong_arguments_are_refused() -> None:
    products = InnerProducts(2, pairing="transparent")
    basis = products.basis(bytes(32))
    for wrong in ([1, 2], [[1]], [[1, 2, 3]], []):
        refused(ShapeError, "shape", products.tokens, basis, wrong)
    for wrong in ([[1.5, 2]], [["a", "b"]], np.ones((1, 2))):
        refused(ParameterError, "integers", products.tokens, basis, wrong)
    assert products.ciphertexts(basis, np.zeros((0, 2))).shape == (0, products.ciphertext_bytes)
    refused(ParameterError, "must not be 0", products.ciphertexts, basis, [[1, 0], [0, 0]])
    zero = [[products.group.order, 0]]
    refused(ParameterError, "must not be 0", products.ciphertexts, basis, zero)
    refused(ParameterError, "seed", products.basis, bytes(31))
    refused(ParameterError, "length", InnerProducts, 0)
    refused(ParameterError, "pairing", InnerProducts, 2, pairing="bn254")
    assert repr(products) == "<InnerProducts of length 2 in transparent>"


def test_points_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    products = InnerProducts(2)
    sent = products.ciphertexts(products.basis(bytes(32)), [[1, 2]])[0].tobytes()
    read: list[bytes] = []
    kind: Any = type(products.group)
    decode = kind.decode_g1
    monkeypatch.setattr(
        kind,
        "decode_g1",
        lambda self, data: read.append(data) or decode(self, data),
    )
    first = products.read_ciphertext(sent)
    assert products.read_ciphertext(sent) == first
    assert len(read) == products.size
