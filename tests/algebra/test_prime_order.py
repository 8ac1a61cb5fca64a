"""Groups of prime order: the laws, published parameters, an independent library, bad bytes."""

from __future__ import annotations

import pickle
import sys
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.algebra import prime_order
from ccbps.algebra.modular import is_prime, is_safe_prime, powmod
from ccbps.algebra.prime_order import GROUPS, ModpGroup, P, PrimeOrderGroup, Q, prime_order_group
from ccbps.errors import DecodeError, ParameterError

FAST = ["toy64", "secp256k1"]
MODP = ["toy64", "modp2048", "modp3072"]


def pi_times(power: int) -> int:
    """floor(2^power pi) by Machin's formula."""
    scale = 1 << (power + 64)

    def arctan_of_inverse(n: int) -> int:
        total, term, k = 0, scale // n, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term //= n * n
            k += 1
        return total

    return (16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)) >> 64


@pytest.mark.parametrize(("bits", "shift"), [(2048, 124_476), (3072, 1_690_314)])
def test_moduli_are_those_of_the_rfc(bits: int, shift: int) -> None:
    group = prime_order_group(f"modp{bits}")
    assert isinstance(group, ModpGroup)
    published = 2**bits - 2 ** (bits - 64) - 1 + 2**64 * (pi_times(bits - 130) + shift)
    assert group.modulus == published
    assert group.element_bytes == bits // 8


@pytest.mark.parametrize("name", ["toy64", pytest.param("modp2048", marks=pytest.mark.slow)])
def test_moduli_are_safe_primes_and_two_generates_the_squares(name: str) -> None:
    group = ModpGroup(name)
    assert is_safe_prime(group.modulus)
    assert group.modulus % 8 == 7
    assert group.modulus == 2 * group.order + 1
    assert powmod(2, group.order, group.modulus) == 1


def test_curve_constants() -> None:
    group = prime_order_group("secp256k1")
    assert is_prime(P) and is_prime(Q)
    x, y = group.generator
    assert (y * y - x**3 - 7) % P == 0
    # The first coordinates of 2G and 3G, as SEC 2's curve has them.
    assert group.generator_power(2)[0] == int(
        "c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5", 16
    )
    assert group.generator_power(3)[0] == int(
        "f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9", 16
    )
    assert group.generator_power(int(Q) - 1) == group.inverse(group.generator)


@given(st.integers(1, int(Q) - 1))
@settings(max_examples=20)
def test_powers_on_the_curve_are_those_of_openssl(k: int) -> None:
    group = prime_order_group("secp256k1")
    numbers = ec.derive_private_key(k, ec.SECP256K1()).public_key().public_numbers()
    assert group.generator_power(k) == (numbers.x, numbers.y)
    assert group.power(group.generator, k) == (numbers.x, numbers.y)


@pytest.mark.parametrize("name", FAST)
@given(data=st.data())
@settings(max_examples=40)
def test_laws(name: str, data: st.DataObject) -> None:
    group = prime_order_group(name)
    q = int(group.order)
    exponents = st.integers(0, 3) | st.integers(q - 3, q + 3) | st.integers(-q, 2 * q)
    a, b = data.draw(exponents), data.draw(exponents)
    left, right = group.generator_powers([a, b])
    assert group.multiply(left, right) == group.generator_power(a + b)
    assert group.quotients([left], [right])[0] == group.generator_power(a - b)
    assert group.power(left, b) == group.power(right, a) == group.generator_power(a * b)
    assert group.powers([left, right], 5) == group.generator_powers([5 * a, 5 * b])
    assert group.table(left).powers([b, 0]) == [group.power(left, b), group.identity]
    assert group.multiply(left, group.inverse(left)) == group.identity
    if a % q:
        assert group.decode(group.encode(left)) == left


@pytest.mark.parametrize("name", FAST)
def test_labels_of_quotients(name: str) -> None:
    group = prime_order_group(name)
    left = group.generator_powers([1, 2, 3, -2, 0, 7])
    right = group.generator_powers([2, 5, -2, 0])
    results = list(group.quotient_labels(left, group.divisors(right)))
    assert results == [group.labels(group.quotients(left, [b] * len(left))) for b in right]
    assert list(group.quotient_labels([], group.divisors(right))) == [[]] * 4
    assert list(group.quotient_labels(left, [])) == []
    many = group.generator_powers(range(10, 40))
    again = list(group.quotient_labels(many, group.divisors(right[:2])))
    assert again == [group.labels(group.quotients(many, [b] * 30)) for b in right[:2]]
    # Equal labels: the same element or its inverse.
    assert len(set(group.labels(many))) == 30


@pytest.mark.parametrize("name", MODP)
def test_bytes_that_are_no_squares(name: str) -> None:
    group = ModpGroup(name)
    p, width = int(group.modulus), group.element_bytes
    bad = [0, 1, p - 1, p, p + 4, p - 4, 2 ** (8 * width) - 1]  # -1 is no square
    rows = np.frombuffer(b"".join(value.to_bytes(width, "big") for value in [*bad, 4]), np.uint8)
    assert group.decode_many(rows.reshape(-1, width)) == [None] * len(bad) + [4]
    for data in (p.to_bytes(width, "big"), b"", bytes(width - 1)):
        with pytest.raises(DecodeError, match=f"expected {width} bytes of an element of {name}"):
            group.decode(data)


def test_bytes_that_are_no_points() -> None:
    group = prime_order_group("secp256k1")
    good = group.encode(group.generator)
    off = next(
        bytes([2]) + x.to_bytes(32, "big")
        for x in range(1, 50)
        if powmod(x**3 + 7, (P - 1) // 2, P) != 1
    )
    bad = [
        bytes(33),
        b"\x04" + good[1:],
        b"\x05" + good[1:],
        off,
        b"\x02" + int(P).to_bytes(32, "big"),
        b"\x02" + b"\xff" * 32,
        group.encode(group.identity),
    ]
    rows = np.frombuffer(b"".join([*bad, good]), np.uint8).reshape(-1, 33)
    assert group.decode_many(rows) == [None] * len(bad) + [group.generator]
    with pytest.raises(DecodeError, match="expected 33 bytes of an element of secp256k1"):
        group.decode(good[:-1])


@pytest.mark.parametrize("name", [*FAST, "modp2048"])
def test_hashes_are_elements_and_differ(name: str) -> None:
    group = prime_order_group(name)
    results = [group.hash_to_group(bytes([value])) for value in range(10)]
    assert len(set(results)) == 10
    assert group.hash_to_group(b"\x03") == results[3]
    assert [group.decode(group.encode(element)) for element in results] == results
    assert all(0 <= group.hash_to_exponent(bytes([v])) < group.order for v in range(10))


@pytest.mark.parametrize("name", FAST)
def test_random_exponents_spread_over_the_group(name: str) -> None:
    group = prime_order_group(name)
    drawn = group.random_exponents(2000)
    assert all(1 <= value < group.order for value in drawn)
    mean = Fraction(sum(int(value) for value in drawn), 2000 * int(group.order))
    assert abs(mean - Fraction(1, 2)) < Fraction(6, 150)  # six standard deviations
    assert (
        group.random_exponents(3, lambda n: b"\xff" * n)
        == [group.random_exponent(lambda n: b"\xff" * n)] * 3
    )


def test_names() -> None:
    for name in GROUPS:
        group = prime_order_group(name)
        assert group is prime_order_group(name)
        assert pickle.loads(pickle.dumps(group)) is group
        assert name in repr(group)
    assert len({hash(prime_order_group(name)) for name in GROUPS}) == len(GROUPS)
    with pytest.raises(ParameterError, match="group must be 'secp256k1', 'modp2048'"):
        prime_order_group("p256")
    with pytest.raises(ParameterError, match="name must be 'modp2048'"):
        ModpGroup("secp256k1")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    prime_order._group.cache_clear()
    monkeypatch.setitem(sys.modules, "coincurve", None)
    with pytest.raises(ImportError, match=r"needs coincurve: pip install 'ccbps\[groups\]'. Or "):
        prime_order_group("secp256k1")
    monkeypatch.undo()
    assert isinstance(prime_order_group("secp256k1"), PrimeOrderGroup)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["modp2048", "modp3072"])
def test_laws_at_full_size(name: str) -> None:
    group = prime_order_group(name)
    a, b = group.random_exponents(2)
    left, right = group.generator_powers([a, b])
    assert group.power(left, b) == group.power(right, a) == group.table(left).powers([b])[0]
    assert group.multiply(left, right) == group.generator_power(a + b)
    assert group.power(left, group.order) == group.identity
