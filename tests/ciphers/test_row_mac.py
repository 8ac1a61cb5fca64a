"""Tags of rows: those of the formula, and no altered row or tag passes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.arrays import Bytes
from ccbps.ciphers import row_mac
from ccbps.ciphers.row_mac import EXACT_NUMBERS, LIMB, LIMBS, PRIME, RowMac
from ccbps.errors import KeyMismatchError, ParameterError, SerializationError
from tests.reference.row_mac import P, hash_numbers, row_hash, row_tag

KEY = bytes(range(32))
WIDTHS = st.sampled_from([0, 1, 2, 3, 15, 16, 17, 24, 100, 999])


def random_rows(count: int, width: int, seed: int = 1) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (count, width), dtype=np.uint8)


@given(st.binary(min_size=32, max_size=32), WIDTHS, st.integers(0, 5), st.sampled_from([8, 16]))
def test_tags_are_those_of_the_formula(key: bytes, width: int, count: int, tag_bytes: int) -> None:
    rows = random_rows(count, width, seed=key[0])
    tags = RowMac(key, tag_bytes=tag_bytes).tags(rows)
    assert tags.shape == (count, tag_bytes)
    assert tags.dtype == np.uint8
    assert [tag.tobytes() for tag in tags] == [row_tag(key, r.tobytes(), tag_bytes) for r in rows]


@pytest.mark.parametrize("numbers", [EXACT_NUMBERS, EXACT_NUMBERS + 1, 3 * EXACT_NUMBERS + 5])
@pytest.mark.parametrize("value", [0, 1, 255])
def test_long_rows_of_extreme_values_are_exact(numbers: int, value: int) -> None:
    rows = np.full((2, 2 * numbers), value, dtype=np.uint8)
    assert RowMac(KEY).tags(rows)[1].tobytes() == row_tag(KEY, rows[1].tobytes(), 16)


def test_sums_of_the_largest_products_are_exact() -> None:
    """Every limb and number at its greatest, as no key's are: the sum is just below 2^53."""
    limbs = np.full((2 * EXACT_NUMBERS, LIMBS), (1 << LIMB) - 1, dtype=np.float64)
    rows = np.full((3, 4 * EXACT_NUMBERS), 255, dtype=np.uint8)
    k = sum(((1 << LIMB) - 1) << LIMB * at for at in range(LIMBS))
    wanted = (k * 0xFFFF * 2 * EXACT_NUMBERS) % P
    for low, high in row_mac._hashes(rows, limbs).tolist():
        assert high << 64 | low == wanted


@given(
    st.lists(
        st.integers(0, 2**62) | st.sampled_from([0, 2**26 - 1, 2**26, 2**23 - 1, 2**23]),
        min_size=5,
        max_size=5,
    )
)
def test_sums_are_reduced(sums: list[int]) -> None:
    low, high = row_mac._reduced(np.array([sums], dtype=np.uint64))[0].tolist()
    assert high << 64 | low == sum(part << LIMB * at for at, part in enumerate(sums)) % P
    assert PRIME == P


@pytest.mark.parametrize("value", [P - 1, P, P + 1, 2 * P - 1, 2 * P, 2**130 - 1])
def test_multiples_of_p_are_zero(value: int) -> None:
    sums = [value >> LIMB * at & (1 << LIMB) - 1 for at in range(4)] + [value >> LIMB * 4]
    low, high = row_mac._reduced(np.array([sums], dtype=np.uint64))[0].tolist()
    assert high << 64 | low == value % P


def test_batches_of_more_than_one_block() -> None:
    for width in (3, 24, 1000):
        rows = random_rows(20_000, width)
        tags = RowMac(KEY).tags(rows)
        assert len({tag.tobytes() for tag in tags}) == len({row.tobytes() for row in rows})
        for at in (0, 1, 9_999, 19_999):
            assert tags[at].tobytes() == row_tag(KEY, rows[at].tobytes(), 16)


@given(WIDTHS.filter(bool), st.data())
def test_one_flipped_bit_of_row_or_tag_is_seen(width: int, data: st.DataObject) -> None:
    mac = RowMac(KEY, tag_bytes=data.draw(st.sampled_from([8, 16])))
    rows = random_rows(4, width)
    tags = mac.tags(rows).copy()
    assert mac.check(rows, tags).tolist() == [True] * 4
    hit, at = data.draw(st.sampled_from([rows, tags])), data.draw(st.integers(0, 3))
    column = data.draw(st.integers(0, hit.shape[1] - 1))
    hit[at, column] ^= 1 << data.draw(st.integers(0, 7))
    assert mac.check(rows, tags).tolist() == [row != at for row in range(4)]


def test_keys_widths_and_sizes_have_tags_of_their_own() -> None:
    rows = np.zeros((1, 4), dtype=np.uint8)
    tags = [
        RowMac(key).tags(rows[:, :width])[0].tobytes()
        for key in (KEY, bytes(32))
        for width in range(5)
    ]
    assert len(set(tags)) == 10  # zeros at the end count, too
    assert np.array_equal(RowMac(KEY, tag_bytes=8).tags(rows), RowMac(KEY).tags(rows)[:, :8])


def test_views_have_the_tags_of_their_bytes() -> None:
    rows = random_rows(50, 60)
    for view in (rows[::3, 5:29], rows[:, ::2], np.asfortranarray(rows)):
        assert np.array_equal(RowMac(KEY).tags(view), RowMac(KEY).tags(view.copy()))


def test_hashes_are_linear_and_spread() -> None:
    """What the bound stands on: the hash of a difference is the difference of hashes, not 0."""
    numbers, _ = hash_numbers(KEY, 6)
    a, b = b"\1\2\3\4\5\6", b"\1\2\3\4\5\7"
    assert (row_hash(numbers, b) - row_hash(numbers, a)) % P == 256 * numbers[2] % P
    assert len({*numbers}) == 3
    assert all(number > 2**100 for number in numbers)


def test_widths_beyond_those_kept_are_made_anew() -> None:
    mac = RowMac(KEY)
    first = mac.tags(random_rows(1, 1))
    for width in range(2, 80):
        mac.tags(random_rows(1, width))
    assert len(mac._widths) <= 64
    assert np.array_equal(mac.tags(random_rows(1, 1)), first)


@pytest.mark.parametrize("rows", [b"abc", np.zeros(3, np.uint8), np.zeros((2, 3), np.int64), None])
def test_rows_are_bytes(rows: Any) -> None:
    with pytest.raises(ParameterError, match="rows must be a uint8 array of shape"):
        RowMac(KEY).tags(rows)


@pytest.mark.parametrize(
    "tags", [np.zeros((2, 8), np.uint8), np.zeros((1, 16), np.uint8), np.zeros((2, 16)), None]
)
def test_tags_are_of_their_shape(tags: Any) -> None:
    with pytest.raises(ParameterError, match=r"tags must be a uint8 array of shape \(2, 16\)"):
        RowMac(KEY).check(np.zeros((2, 5), np.uint8), tags)


@pytest.mark.parametrize("key", [b"", bytes(31), "x" * 32, None])
def test_a_key_has_32_bytes(key: Any) -> None:
    with pytest.raises(KeyMismatchError, match="the key of tags has 32 bytes"):
        RowMac(key)


@pytest.mark.parametrize("size", [0, 4, 12, 17, None])
def test_tags_have_8_or_16_bytes(size: Any) -> None:
    with pytest.raises(ParameterError, match="tag_bytes must be 8 or 16"):
        RowMac(KEY, tag_bytes=size)


def test_it_does_not_print_or_pickle() -> None:
    assert repr(RowMac(KEY, tag_bytes=8)) == "<RowMac of 8 bytes>"
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SerializationError):
            escape(RowMac(KEY))
