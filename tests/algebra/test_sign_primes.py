"""Primes whose Legendre symbol is the sign; arithmetic modulo primes below 2^50."""

from __future__ import annotations

import gmpy2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.algebra.sign_primes import MOST_TOTAL, odd_primes, sign_prime
from ccbps.algebra.small_prime import MOST_BITS, SmallPrime
from ccbps.errors import ParameterError

SMALL = [11, 1811, 66491, 2269739, 42143219, 1418543411, 51637156931, sign_prime(80)]
TOTALS = [2, 8, 16, 24, 32, 48, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512]
LONG = [640, 768, 896, 1024]


def check_signs(total: int) -> None:
    p, most = sign_prime(total), 2 * total + 1
    assert gmpy2.is_prime(p, 40)
    assert p % 4 == 3
    assert p > most
    # The symbol is a product of those of the odd primes that divide v, and of (-1 | p).
    assert all(gmpy2.jacobi(q, p) == 1 for q in odd_primes(most))
    assert gmpy2.jacobi(-1, p) == -1
    for v in (1, 3, most - 2, most, -1, -3, -most):
        assert gmpy2.jacobi(v, p) == (1 if v > 0 else -1)


@pytest.mark.parametrize("total", TOTALS)
def test_symbols_are_signs(total: int) -> None:
    check_signs(total)


@pytest.mark.slow
@pytest.mark.parametrize("total", LONG)
def test_symbols_of_long_primes_are_signs(total: int) -> None:
    check_signs(total)


@pytest.mark.parametrize(
    ("total", "prime"), [(8, 1811), (16, 66491), (24, 2269739), (32, 42143219), (64, 51637156931)]
)
def test_published_primes(total: int, prime: int) -> None:
    assert sign_prime(total) == prime


@pytest.mark.parametrize("total", [2, 8, 16])
def test_there_is_no_smaller_prime(total: int) -> None:
    most = 2 * total + 1
    for p in range(most + 1, sign_prime(total)):
        fits = p % 4 == 3 and gmpy2.is_prime(p)
        assert not (fits and all(gmpy2.jacobi(q, p) == 1 for q in odd_primes(most)))


def test_bounds_between_those_of_the_table_take_the_next_prime() -> None:
    assert sign_prime(1) == sign_prime(2) == 11
    assert sign_prime(9) == sign_prime(16)
    with pytest.raises(ParameterError, match=r"up to 1,024, got 1,025"):
        sign_prime(MOST_TOTAL + 1)


@given(data=st.data(), p=st.sampled_from([*SMALL, (1 << MOST_BITS) - 27]))
def test_products_and_symbols(data: st.DataObject, p: int) -> None:
    assert gmpy2.is_prime(p)
    field, half = SmallPrime(p), p // 2
    values = st.sampled_from([-half, -1, 0, 1, half]) | st.integers(-half, half)
    pairs = data.draw(st.lists(st.tuples(values, values), min_size=1, max_size=8))
    left, right = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    products = field.product(left, right)
    assert (np.abs(products) < 0.6 * p).all()
    exact = [int(a) * int(b) % p for a, b in pairs]
    assert field.unsigned(products).tolist() == exact
    # Products are factors, too.
    assert field.unsigned(field.product(products, products)).tolist() == [x * x % p for x in exact]
    assert field.symbols(left).tolist() == [gmpy2.legendre(a, p) for a, _ in pairs]


@pytest.mark.parametrize("p", SMALL)
def test_reduction(p: int) -> None:
    words = np.array([0, 1, p - 1, p, p + 1, 2**64 - 1], dtype=np.uint64)
    reduced = SmallPrime(p).reduced(words)
    assert (np.abs(reduced) <= p // 2).all()
    assert SmallPrime(p).unsigned(reduced).tolist() == [int(word) % p for word in words]
