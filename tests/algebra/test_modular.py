"""Arithmetic modulo n against Python's own, and what it refuses."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.algebra import modular as m
from ccbps.errors import ParameterError

moduli = st.integers(1, 2**200)
exponents = st.integers(0, 2**100 - 1)


@given(st.integers(-(2**100), 2**200), exponents, moduli)
def test_powers_are_those_of_python(base: int, exponent: int, modulus: int) -> None:
    expected = pow(base, exponent, modulus)
    assert m.powmod(base, exponent, modulus) == expected
    assert m.powmod_many([base, base + 1], exponent, modulus)[0] == expected
    assert m.powmod_secret(base, exponent, modulus | 1) == pow(base, exponent, modulus | 1)


@given(st.integers(0, 2**100), moduli, st.data())
def test_fixed_base_powers_are_those_of_python(base: int, modulus: int, data: Any) -> None:
    window, bits = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 40))
    exponent = data.draw(st.integers(0, 2**bits - 1))
    table = m.FixedBase(base, modulus, bits, window)
    expected = [exponent, 0, 2**bits - 1]
    assert table.powers(expected) == [pow(base, e, modulus) for e in expected]
    for wrong in (-1, 2**bits):
        with pytest.raises(ParameterError, match=r"the exponent must be in 0\.\.2\^"):
            table.power(wrong)


@given(st.lists(st.integers(-(2**80), 2**80)), moduli)
def test_product_is_that_of_python(values: list[int], modulus: int) -> None:
    expected = 1
    for value in values:
        expected = expected * value % modulus
    assert m.product(iter(values), modulus) == expected % modulus


@given(st.lists(st.integers(1, 2**80)))
def test_inverses(values: list[int]) -> None:
    prime = 2**89 - 1
    expected = [pow(v, -1, prime) for v in values]
    assert m.inverse_many(values, prime) == expected == [m.inverse(v, prime) for v in values]
    assert [m.powmod(v, -1, prime) for v in values] == expected


def test_what_has_no_inverse_is_refused_and_not_shown() -> None:
    refusals: list[Any] = [
        lambda: m.inverse(12345, 15),
        lambda: m.powmod(12345, -1, 15),
        lambda: m.inverse_many([2, 12345], 15),
    ]
    for call in refusals:
        with pytest.raises(ParameterError, match="not invertible") as refusal:
            call()
        assert "12345" not in str(refusal.value) and refusal.value.__context__ is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: m.powmod(2, 3, 0), "the modulus must be positive"),
        (lambda: m.powmod_secret(2, 3, 10), "needs an odd modulus"),
        (lambda: m.powmod_secret(2, -3, 11), "an exponent of 0 or more"),
        (lambda: m.powmod_many([2], -3, 11), "an exponent of 0 or more"),
        (lambda: m.FixedBase(2, 11, 0), "bits must be a whole number, at least 1"),
        (lambda: m.FixedBase(2, 11, 8, 17), "window must be a whole number from 1 to 16"),
        (lambda: m.random_below(0), "must be positive"),
        (lambda: m.random_unit(1), "at least 2"),
        (lambda: m.random_prime(1), "bits must be a whole number, at least 2"),
        (lambda: m.to_bytes(256, 1), "does not fit 1 unsigned bytes"),
        (lambda: m.rows_to([1, -1], 1), "does not fit 1 unsigned bytes"),
    ],
)
def test_bad_arguments_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()


def test_draws_are_uniform_and_come_from_the_given_bytes() -> None:
    counts = np.bincount([int(m.random_below(5)) for _ in range(5000)], minlength=5)
    assert len(counts) == 5 and ((counts - 1000) ** 2 / 1000).sum() < 40
    assert {int(m.random_unit(12)) for _ in range(200)} == {1, 5, 7, 11}
    assert m.random_below(1) == 0
    assert m.random_below(2**16, lambda n: b"\x12\x34"[:n]) == 0x1234


def test_primes() -> None:
    sieve = [n for n in range(500) if n > 1 and all(n % d for d in range(2, n))]
    assert [n for n in range(-3, 500) if m.is_prime(n)] == sieve
    assert [n for n in sieve if m.is_safe_prime(n)] == [
        n for n in sieve if (n - 1) // 2 in sieve and n > 4
    ]
    for bits in (2, 3, 5, 16, 128):
        p = m.random_prime(bits, os.urandom)
        assert m.is_prime(p) and p.bit_length() == bits
    assert (m.random_prime(64) * m.random_prime(64)).bit_length() == 128


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_bytes_and_back(values: list[int]) -> None:
    rows = m.rows_to(values, 9)
    assert rows.shape == (len(values), 9) and m.rows_from(rows) == values
    assert all(m.from_bytes(m.to_bytes(v, 8)) == v for v in values)
    assert m.integer("ff") == 255 and m.gcd(12, 18) == 6 and m.lcm(12, 18) == 36
