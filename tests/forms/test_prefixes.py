"""Ranges as prefixes: exact and minimal for all ranges of up to 7 bits, and the worst case."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.errors import ParameterError
from ccbps.forms.prefixes import Prefix, most_prefixes, range_prefixes


def codes_of(prefix: Prefix, bits: int) -> range:
    value, length = prefix
    return range(value, value + 2 ** (bits - length))


def algorithm_1(a: str, b: str) -> list[str]:
    """[Survey] Algorithm 1 as printed, on strings of digits; without the star."""
    differing = next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x < y), None)
    if differing is None:
        return [a]
    head, tail_a, tail_b = a[:differing], a[differing + 1 :], b[differing + 1 :]
    if "1" not in tail_a and "0" not in tail_b:
        return [head]
    left = algorithm_1(tail_a, "1" * len(tail_a))
    right = algorithm_1("0" * len(tail_b), tail_b)
    return [head + "0" + p for p in left] + [head + "1" + p for p in right]


@cache
def fewest(low: int, high: int, bits: int) -> int:
    """By dynamic programming over where the first block ends; knows nothing of how to choose."""
    if low > high:
        return 0
    ends = [low + 2**free for free in range(bits + 1) if low % 2**free == 0]
    return 1 + min(fewest(end, high, bits) for end in ends if end <= high + 1)


@pytest.mark.parametrize("bits", range(1, 8))
def test_every_range_is_covered_exactly_by_the_fewest_prefixes(bits: int) -> None:
    for low in range(2**bits):
        for high in range(low, 2**bits):
            prefixes = range_prefixes(low, high, bits)
            covered = [code for prefix in prefixes for code in codes_of(prefix, bits)]
            assert covered == list(range(low, high + 1))
            assert len(prefixes) == fewest(low, high, bits)
            texts = [f"{value:0{bits}b}"[:length] for value, length in prefixes]
            assert texts == algorithm_1(f"{low:0{bits}b}", f"{high:0{bits}b}")


@pytest.mark.parametrize("bits", range(1, 8))
def test_worst_case_is_all_but_both_ends(bits: int) -> None:
    counts = {
        (low, high): len(range_prefixes(low, high, bits))
        for low in range(2**bits)
        for high in range(low, 2**bits)
    }
    assert max(counts.values()) == most_prefixes(bits)
    if bits >= 2:
        assert counts[1, 2**bits - 2] == 2 * (bits - 1)
    assert counts[1, 2**bits - 1] == bits  # the source has 2(n - 1) here
    if bits >= 4:
        worst = [bounds for bounds, count in counts.items() if count == 2 * (bits - 1)]
        assert worst == [(1, 2**bits - 2)]


def test_example_of_the_survey() -> None:
    prefixes = range_prefixes(0b00100000, 0b01101111, 8)
    assert prefixes == [(0b00100000, 3), (0b01000000, 3), (0b01100000, 4)]


@given(bits=st.integers(1, 128), data=st.data())
def test_wide_ranges_are_covered_exactly(bits: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, 2**bits - 1))
    high = data.draw(st.integers(low, 2**bits - 1))
    prefixes = range_prefixes(low, high, bits)
    assert len(prefixes) <= most_prefixes(bits)
    at = low
    for value, length in prefixes:
        assert value == at and value % 2 ** (bits - length) == 0
        at += 2 ** (bits - length)
    assert at == high + 1


def test_empty_range_and_whole_range() -> None:
    assert range_prefixes(1, 0, 8) == []
    assert range_prefixes(0, 255, 8) == [(0, 0)]


@pytest.mark.parametrize(("low", "high"), [(-1, 3), (0, 256)])
def test_bounds_outside_the_width_are_refused(low: int, high: int) -> None:
    with pytest.raises(ParameterError, match="8 bits"):
        range_prefixes(low, high, 8)
