"""Binary fields: products against plain polynomials, laws, polynomials that have no divisor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.algebra.binary_field import BinaryField
from ccbps.errors import ParameterError
from tests.reference import binary_polynomials as polynomials

SIZES = [*range(1, 9), *range(16, 1025, 8)]


def modulus(field: BinaryField) -> int:
    return 1 << field.bits | 1 | sum(1 << exponent for exponent in field.exponents)


def limbs(field: BinaryField, values: list[int]) -> NDArray[np.uint64]:
    octets = b"".join(value.to_bytes(field.element_bytes, "little") for value in values)
    return field.load(np.frombuffer(octets, dtype=np.uint8).reshape(len(values), -1))


def numbers(field: BinaryField, elements: NDArray[np.uint64]) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in field.store(elements)]


@given(data=st.data(), bits=st.sampled_from(SIZES))
def test_products_are_those_of_polynomials(data: st.DataObject, bits: int) -> None:
    field = BinaryField(bits)
    elements = st.integers(0, (1 << bits) - 1)
    pairs = data.draw(st.lists(st.tuples(elements, elements), min_size=1, max_size=4))
    left, right = ([pair[side] for pair in pairs] for side in (0, 1))
    products = numbers(field, field.multiply(limbs(field, left), limbs(field, right)))
    for a, b, c in zip(left, right, products, strict=True):
        assert c == polynomials.remainder(polynomials.product(a, b), modulus(field))


@pytest.mark.parametrize("bits", range(1, 9))
def test_small_fields_are_fields(bits: int) -> None:
    field, size = BinaryField(bits), 1 << bits
    left, right = (side.ravel() for side in np.meshgrid(np.arange(size), np.arange(size)))
    table = np.array(
        numbers(field, field.multiply(limbs(field, left.tolist()), limbs(field, right.tolist())))
    ).reshape(size, size)
    assert (table == table.T).all()
    assert (table[1] == np.arange(size)).all()
    assert not table[0].any()
    # Each row but that of 0 has every element once.
    assert (np.sort(table[1:], axis=1) == np.arange(size)).all()


def test_published_product_of_the_field_of_aes() -> None:
    field = BinaryField(8)
    assert modulus(field) == 0x11B  # FIPS 197, section 4.2
    assert numbers(field, field.multiply(limbs(field, [0x57]), limbs(field, [0x83]))) == [0xC1]


def test_field_of_ghash() -> None:
    # NIST SP 800-38D has the same polynomial, with bits in the other order.
    assert modulus(BinaryField(128)) == 1 << 128 | 0b10000111


@pytest.mark.parametrize("bits", [n for n in SIZES if n <= 256 or n == 1024])
def test_polynomials_have_no_divisor(bits: int) -> None:
    assert polynomials.is_irreducible(modulus(BinaryField(bits)))


@pytest.mark.slow
@pytest.mark.parametrize("bits", [n for n in SIZES if n > 256])
def test_long_polynomials_have_no_divisor(bits: int) -> None:
    assert polynomials.is_irreducible(modulus(BinaryField(bits)))


def test_the_test_of_polynomials_finds_divisors() -> None:
    reducible = {polynomials.product(a, b) for a in range(2, 32) for b in range(2, 32)}
    for value in range(4, 32):
        assert polynomials.is_irreducible(value) is (value not in reducible)


@pytest.mark.parametrize("bits", [0, -8, 9, 12, 1032, 8.0, "8", None, True])
def test_other_sizes_are_refused(bits: object) -> None:
    with pytest.raises(ParameterError, match="bits must be"):
        BinaryField(bits)  # type: ignore[arg-type]
