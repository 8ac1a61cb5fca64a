"""Modified Paillier: E' by its definition, exact comparisons up to the conditions, refusals."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.algebra.modular import inverse, lcm, powmod
from ccbps.ciphers.nabeel import NabeelComparer, NabeelEncoder, NabeelParameters, factor_bits
from ccbps.ciphers.paillier import PaillierSecretKey
from ccbps.errors import ParameterError

TOY = 256
BITS = 20


@cache
def server() -> NabeelParameters:
    return NabeelParameters.generate(TOY, toy=True)


@cache
def parties(factor: int | None = None) -> tuple[NabeelEncoder, NabeelEncoder, NabeelComparer, int]:
    made = server()
    t, r = made.blinding(), factor or made.factor(BITS)
    publisher = NabeelEncoder(made.n, made.kappa, t, r, BITS)
    subscriber = NabeelEncoder(made.n, made.kappa, inverse(t, made.n2), r, BITS)
    return publisher, subscriber, NabeelComparer(made.n, made.mu), int(r)


def encoded(made: NabeelParameters, m: int) -> int:
    """E'(m), from its definition: E(m)^lambda."""
    p, q = made.primes()
    cipher = powmod(made._g, m, made.n2) * made._secret.blinding() % made.n2
    return powmod(cipher, lcm(p - 1, q - 1), made.n2)


@given(st.integers(0, 2**BITS))
def test_shortcut_is_the_definition(m: int) -> None:
    """E'(m) = E(m)^lambda = (1 + kappa n)^m, deterministic, and mu reads it."""
    made = server()
    by_definition = encoded(made, m)
    assert by_definition == encoded(made, m) == powmod(1 + made.kappa * made.n, m, made.n2)
    assert NabeelComparer(made.n, made.mu).reads(by_definition) == m


@given(st.integers(0, 2**BITS), st.integers(0, 2**BITS))
def test_messages_are_the_papers_formulas(m: int, s: int) -> None:
    """With r_q = 0 from the randomness, E_p and E_s are products of powers of E'(m), E'(-s)."""
    made = server()
    publisher, subscriber, _, r = parties()
    t = publisher._blinding
    wanted = t * powmod(encoded(made, m), r, made.n2) % made.n2
    assert publisher.values([m], lambda count: bytes(count)) == [wanted]
    wanted = inverse(t, made.n2) * powmod(inverse(encoded(made, s), made.n2), r, made.n2)
    assert subscriber.bounds([s]) == [wanted % made.n2]


bounds = st.integers(0, 2**BITS) | st.sampled_from([0, 1, 2**BITS - 1, 2**BITS])


@given(m=bounds, s=bounds, data=st.data())
def test_comparison_is_exact(m: int, s: int, data: Any) -> None:
    publisher, subscriber, broker, r = parties()
    shift = data.draw(st.integers(-1, 1))
    for bound in {s, max(0, min(2**BITS, m + shift))}:
        (value,), (other,) = publisher.values([m]), subscriber.bounds([bound])
        assert broker.at_least(value, other) == (m >= bound)
        assert 0 <= broker.difference(value, other) - r * (m - bound) < r
        assert broker.offsets([value], other) == [broker.difference(value, other)]


def test_exactness_conditions_are_enforced_and_tight() -> None:
    made = server()
    n, t = int(made.n), made.blinding()
    greatest = ((n - 1) // 2 + 1) // (2**BITS + 1)  # r 2^l + r - 1 <= (n - 1) / 2
    with pytest.raises(ParameterError, match="must stay below n / 2"):
        NabeelEncoder(n, made.kappa, t, greatest + 1, BITS)
    for factor in (0, -1):
        with pytest.raises(ParameterError, match="r_p be positive"):
            NabeelEncoder(n, made.kappa, t, factor, BITS)
    publisher, subscriber, broker, _ = parties(greatest)
    top = 2**BITS
    assert broker.at_least(publisher.values([top])[0], subscriber.bounds([0])[0])
    assert not broker.at_least(publisher.values([0])[0], subscriber.bounds([top])[0])
    for _ in range(20):
        factor = made.factor(BITS)
        assert 2 * (factor * 2**BITS + factor) < n
        assert factor.bit_length() == factor_bits(TOY, BITS) == TOY - BITS - 3
    with pytest.raises(ParameterError, match="need a modulus of at least 257 bits, got 256"):
        factor_bits(TOY, 190)


def test_what_is_out_of_range_is_refused_and_not_shown() -> None:
    publisher, subscriber, broker, r = parties()
    for value in (-1, 2**BITS + 1):
        calls: list[Any] = [publisher.values, subscriber.bounds]
        for call in calls:
            with pytest.raises(ParameterError, match=r"must be in 0\.\.2\^20") as refusal:
                call([value])
            assert str(value) not in str(refusal.value).replace("0..2^20", "")
    (value,) = publisher.values([1])
    with pytest.raises(ParameterError, match="of different keys"):
        broker.difference(value, value)
    for shown in map(repr, (publisher, broker, server())):
        assert "256 bits" in shown and str(r) not in shown


def test_unsafe_generators_are_refused() -> None:
    secret = PaillierSecretKey.generate(TOY, toy=True)
    n, n2 = secret.public.n, secret.public.n2
    for g in (n + 1, 1 + 5 * n, n - 1, n2 - 1):
        with pytest.raises(ParameterError, match="must not be 1"):
            NabeelParameters(secret, g)
    for g in (0, n, n2 + 2, secret.primes()[0]):
        with pytest.raises(ParameterError, match="no factor in common"):
            NabeelParameters(secret, g)
    with pytest.raises(ParameterError, match="order of g_p"):
        NabeelParameters(secret, powmod(2, n, n2))


@pytest.mark.parametrize("bits", [128, TOY])
def test_generators_whose_mu_gives_lambda_are_refused(bits: int) -> None:
    """(1 + n)^a b^n has kappa = a lambda: with a = x / y, lambda is y / x kappa."""
    secret = PaillierSecretKey.generate(bits, toy=True)
    n, n2, (p, q) = secret.public.n, secret.public.n2, secret.primes()
    order = lcm(p - 1, q - 1)
    for x, y in ((1, 1), (-1, 1), (2, 1), (1, 2), (-3, 7), (10**9, 10**9 - 1)):
        a = x * inverse(y, n) % n
        g = (1 + a * n) * powmod(5, n, n2) % n2
        kappa = (powmod(g, order, n2) - 1) // n
        assert y * inverse(x, n) * kappa % n == order  # by who has mu and guesses x and y
        with pytest.raises(ParameterError, match="1 / mu would give away lambda"):
            NabeelParameters(secret, g)
    for _ in range(10):
        NabeelParameters.generate(bits, toy=True)  # a random a is none of these
