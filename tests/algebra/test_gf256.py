"""The field of 256 elements: its tables, and rows of bytes, against a slow twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.algebra import gf256
from ccbps.errors import ParameterError
from tests.reference import shamir as twin

BYTES = range(256)
byte = st.integers(0, 255)


def test_all_products_are_the_twins() -> None:
    for a in BYTES:
        assert [gf256.multiply(a, b) for b in BYTES] == [twin.product(a, b) for b in BYTES]


def test_published_products() -> None:
    # FIPS 197, sections 4.2 and 4.2.1.
    assert gf256.multiply(0x57, 0x83) == 0xC1
    assert [gf256.multiply(0x57, x) for x in (0x02, 0x04, 0x08, 0x10, 0x13)] == [
        0xAE, 0x47, 0x8E, 0x07, 0xFE,
    ]  # fmt: skip
    # FIPS 197, section 5.1.1: the S-box of {53} is {ed}; its inverse is {ca}.
    assert gf256.inverse(0x53) == 0xCA


def test_every_number_but_0_has_its_inverse() -> None:
    assert sorted(gf256.inverse(a) for a in BYTES[1:]) == [*BYTES[1:]]
    assert all(gf256.multiply(a, gf256.inverse(a)) == 1 for a in BYTES[1:])
    with pytest.raises(ParameterError, match="0 has no inverse"):
        gf256.inverse(0)


@given(byte, byte, byte)
def test_field_axioms(a: int, b: int, c: int) -> None:
    times = gf256.multiply
    assert times(a, b) == times(b, a)
    assert times(a, times(b, c)) == times(times(a, b), c)
    assert times(a, b ^ c) == times(a, b) ^ times(a, c)
    assert times(a, 1) == a
    assert times(a, 0) == 0


@given(byte, st.integers(0, 600))
def test_powers_are_repeated_products(base: int, exponent: int) -> None:
    expected = 1
    for _ in range(exponent):
        expected = twin.product(expected, base)
    assert gf256.power(base, exponent) == expected


rows_and_constants = st.integers(1, 19).flatmap(
    lambda size: st.lists(
        st.tuples(st.binary(min_size=size, max_size=size), byte), min_size=1, max_size=6
    )
)


@given(rows_and_constants)
def test_linear_combinations_of_rows(terms: list[tuple[bytes, int]]) -> None:
    rows, constants = zip(*terms, strict=True)
    size = len(rows[0])
    expected = bytearray(size)
    for row, constant in terms:
        for place, value in enumerate(row):
            expected[place] ^= twin.product(value, constant)
    plan = gf256.plan_of(constants)
    combine = gf256.IntegerRows(size).combine
    assert combine(plan, [int.from_bytes(row) for row in rows]).to_bytes(size) == bytes(expected)
    words = np.zeros((len(rows), 3), dtype=np.uint64)
    words.view(np.uint8)[:, :size] = [[*row] for row in rows]
    out = np.full(3, 2**64 - 1, dtype=np.uint64)
    gf256.WordRows(3).combine(plan, [*words], out)
    assert out.view(np.uint8)[:size].tobytes() == bytes(expected)


@given(st.integers(1, 255), st.integers(1, 3), st.integers(0, 4))
def test_values_at_all_points(n: int, size: int, degree: int) -> None:
    drawn = np.random.default_rng(n).integers(0, 256, (degree + 1, size), dtype=np.uint8)
    constant, *others = (row.tobytes() for row in drawn)
    values = gf256.Points(n, size).values(constant, b"".join(others))
    assert len(values) == n
    for x in {1, 2, n // 2 + 1, n}:
        if x <= n:
            expected = [twin.byte_value([row[i] for row in drawn.tolist()], x) for i in range(size)]
            assert [*values[x - 1]] == expected
