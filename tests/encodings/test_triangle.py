"""The wire layout of a triangle: every entry has a bit of its own and no bit is wasted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.encodings import TriangleLayout
from ccbps.errors import ParameterError
from tests.reference.ishai_kushilevitz import positions
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
    taken = np.zeros((size, size), dtype=np.int64)
    wire = np.zeros(64 * layout.words, dtype=np.int64)
    for block, (word, column, count) in enumerate(layout.full):
        taken[64 * block : 64 * block + 64, column : column + count] += 1
        wire[64 * word : 64 * (word + count)] += 1
    for piece in layout.partial:
        taken[piece.first_row : piece.first_row + piece.length, piece.column] += 1
        start = 64 * piece.word + piece.offset
        wire[start : start + piece.length] += 1
        assert piece.offset + piece.length <= 64
    assert np.array_equal(taken, np.triu(np.ones_like(taken)))
    assert (wire[: layout.bits] == 1).all()
    assert not wire[layout.bits :].any()


@given(size=st.integers(1, 40) | st.sampled_from([63, 64, 65, 100]), seed=seeds)
def test_pack_and_unpack_are_inverse(size: int, seed: int) -> None:
    layout = TriangleLayout(size)
    rng = np.random.default_rng(seed)
    messages = rng.integers(0, 256, (3, layout.message_bytes), dtype=np.uint8)
    messages[:, -1] &= layout.last_byte_mask
    matrices = layout.unpack(messages)
    assert np.array_equal(matrices, np.triu(matrices))
    assert np.array_equal(layout.pack(matrices), messages)
    upper = np.triu(rng.integers(0, 2, (3, size, size), dtype=np.uint8))
    assert np.array_equal(layout.unpack(layout.pack(upper)), upper)


def test_pack_ignores_what_is_below_the_diagonal() -> None:
    layout = TriangleLayout(5)
    assert layout.pack(np.ones((1, 5, 5), np.uint8)).tolist() == [[0xFF, 0x7F]]


@pytest.mark.parametrize("size", [0, -1])
def test_layout_refuses_a_size_below_one(size: int) -> None:
    with pytest.raises(ParameterError, match="size must be at least 1"):
        TriangleLayout(size)


@pytest.mark.parametrize("size", [10, 64, 100, 130])
@pytest.mark.parametrize("below", [True, False], ids=["below the diagonal", "beyond the size"])
def test_bit_position_refuses_entries_outside_the_triangle(size: int, below: bool) -> None:
    row, column = (size, size - 1) if below else (0, size)
    with pytest.raises(ParameterError, match="is not in a triangle"):
        TriangleLayout(size).bit_position(row, column)
