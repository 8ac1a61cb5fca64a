"""The wire layout of a triangle: every entry has a bit of its own and no bit is wasted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.encodings import TriangleLayout
from ccbps.errors import ParameterError
from tests.reference.ishai_kushilevitz import positions, triangle_bits
from tests.support.program_strategies import seeds

SIZES = [*range(1, 141), 191, 192, 193, 256, 300]
LARGE = [449, 512, 600]


def check_bijection(size: int) -> None:
    layout = TriangleLayout(size)
    upper = np.triu_indices(size)
    assert np.array_equal(np.sort(positions(size)[upper]), np.arange(layout.bits))


@pytest.mark.parametrize("size", SIZES)
def test_layout_gives_every_entry_one_bit_without_gaps(size: int) -> None:
    check_bijection(size)


@pytest.mark.slow
@pytest.mark.parametrize("size", LARGE)
def test_large_layout_gives_every_entry_one_bit_without_gaps(size: int) -> None:
    check_bijection(size)


@pytest.mark.parametrize("size", [*SIZES, *LARGE])
def test_layout_message_is_the_triangle_rounded_up_to_bytes(size: int) -> None:
    layout = TriangleLayout(size)
    bits = size * (size + 1) // 2
    assert layout.bits == bits
    assert layout.message_bytes == (bits + 7) // 8
    assert layout.words == (bits + 63) // 64
    used_in_last_byte = bits - 8 * (layout.message_bytes - 1)
    assert layout.last_byte_mask == 2**used_in_last_byte - 1


@pytest.mark.parametrize("size", [*SIZES, *LARGE])
def test_layout_pieces_are_the_triangle(size: int) -> None:
    layout = TriangleLayout(size)
    wire = np.zeros(64 * layout.words, dtype=np.int64)
    for column, pieces in enumerate(layout.pieces):
        lengths = [end - first for _, first, end in pieces]
        assert lengths == [min(64, column + 1 - top) for top in range(0, column + 1, 64)]
        for word, first, end in pieces:
            assert 0 <= first < 64
            wire[64 * word + first : 64 * word + end] += 1
    assert (wire[: layout.bits] == 1).all()
    assert not wire[layout.bits :].any()


@pytest.mark.parametrize("size", [*SIZES, *LARGE])
def test_only_pieces_without_a_partner_are_cut(size: int) -> None:
    layout = TriangleLayout(size)
    for column, pieces in enumerate(layout.pieces):
        *whole, (_, first, end) = pieces
        assert all((first, end) == (0, 64) for _, first, end in whole)
        rows = end - first
        if column + 64 - 2 * rows < size:  # the column with 64 - rows rows in this block
            assert end <= 64


@given(size=st.integers(1, 40) | st.sampled_from([63, 64, 65, 100, 130]), seed=seeds)
def test_pieces_are_read_and_added_where_their_bits_lie(size: int, seed: int) -> None:
    layout = TriangleLayout(size)
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**64, (layout.words, 3), dtype=np.uint64)
    matrices = triangle_bits(size, np.ascontiguousarray(words.T).view(np.uint8))
    copied, before = np.zeros_like(words), words.copy()
    for column, pieces in enumerate(layout.pieces):
        for block, (_, first, end) in enumerate(pieces):
            rows = layout.read(words, column, block, np.empty(3, np.uint64))
            known = matrices[:, 64 * block : 64 * block + end - first, column]
            assert rows.tolist() == [int("".join(map(str, row[::-1])), 2) for row in known]
            loose = layout.read(words, column, block, np.empty(3, np.uint64), exact=False)
            used = np.uint64((1 << (end - first)) - 1)
            assert np.array_equal(loose & used, rows)
            layout.add(copied, column, block, rows.copy())
    used = np.uint64((1 << (layout.bits - 1) % 64 + 1) - 1)
    assert np.array_equal(copied[:-1], words[:-1])
    assert np.array_equal(copied[-1], words[-1] & used)
    assert np.array_equal(words, before)


@pytest.mark.parametrize("size", [0, -1])
def test_layout_refuses_a_size_below_one(size: int) -> None:
    with pytest.raises(ParameterError, match="size must be a whole number, at least 1"):
        TriangleLayout(size)


@pytest.mark.parametrize("size", [10, 64, 100, 130])
@pytest.mark.parametrize("below", [True, False], ids=["below the diagonal", "beyond the size"])
def test_bit_position_refuses_entries_outside_the_triangle(size: int, below: bool) -> None:
    row, column = (size, size - 1) if below else (0, size)
    with pytest.raises(ParameterError, match="is not in a triangle"):
        TriangleLayout(size).bit_position(row, column)
