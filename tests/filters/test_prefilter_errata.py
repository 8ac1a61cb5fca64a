"""Errata of [N1], the report on pre-filtering, beyond those of the filters themselves."""

from __future__ import annotations

import runpy
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps.errors import FilterFullError
from ccbps.filters import CuckooFilter, Murmur3, bloom_size
from ccbps.filters.cuckoo import cuckoo_rate

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "reproduce" / "prefilter.py"
GEOMETRIES = {(100_000, 4): 26.43, (50_000, 8): 13.15, (25_000, 16): 6.68}
"""Buckets, slots, and the MiB of Table 1."""


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    """Run the benchmark's program. Return its names, with the report's figures."""
    before = list(sys.path)
    try:
        return runpy.run_path(str(PROGRAM))
    finally:
        sys.path[:] = before


def test_memory_printed_for_cuckoo_filters_is_that_of_buckets_and_not_of_fingerprints() -> None:
    sizes = {len(CuckooFilter(*shape).to_bytes()) for shape in GEOMETRIES}
    assert max(sizes) - min(sizes) < 8  # the numbers in front of the buckets
    assert sizes.pop() / 2**20 == pytest.approx(0.763, abs=0.001)
    for (buckets, _), printed in GEOMETRIES.items():
        assert printed * 2**20 / buckets == pytest.approx(278, rel=0.01)


def test_at_equal_rates_a_bloom_filter_takes_as_much_as_a_cuckoo_filter_or_more() -> None:
    """Table 1 has the Bloom filter at 10 %, and the others at the rates of 2-byte fingerprints."""
    for (_, slots), size in zip(GEOMETRIES, (0.89, 0.83, 0.76), strict=True):
        rate = cuckoo_rate(slots, 2, 1.0)
        assert 0.1 / rate > 200
        assert bloom_size(400_000, rate) / 8 / 2**20 == pytest.approx(size, abs=0.005)


@pytest.mark.parametrize(("buckets", "slots"), GEOMETRIES)
def test_filters_of_table_1_do_not_take_400000_keys(buckets: int, slots: int) -> None:
    keys = np.arange(400_000, dtype="<u8").view(np.uint8).reshape(-1, 8)
    held = CuckooFilter(buckets, slots)
    with pytest.raises(FilterFullError):
        held.add_all(keys)
    held.add_all(keys[:380_000])
    assert held.load == 0.95


@pytest.mark.slow
def test_100_buckets_of_8_seldom_take_800_keys() -> None:
    loads = []
    for seed in range(20):
        held = CuckooFilter(100, 8, hashing=Murmur3(seed))
        with suppress(FilterFullError):
            for number in range(800):
                held.add(f"topic/{number}")
        loads.append(held.load)
    assert min(loads) > 0.95
    assert sum(load == 1 for load in loads) < 10


def test_keys_with_one_fingerprint_and_first_bucket_have_one_other_bucket() -> None:
    """Figure 2 (c) gives such a key another bucket than that of A."""
    held = CuckooFilter(5, 2, 1)
    others: dict[tuple[int, int], set[int]] = {}
    keys = 5_000
    for number in range(keys):
        mark, place = held._one(f"topic/{number}")
        others.setdefault((mark, place), set()).add(held._other(mark, place))
    assert len(others) < keys / 3
    assert all(len(places) == 1 for places in others.values())


def test_a_key_whose_buckets_are_one_fits_in_half_as_often() -> None:
    held = CuckooFilter(100, 8)
    alike = next(
        key
        for key in map("topic/{}".format, range(10_000))
        if held._other(*held._one(key)) == held._one(key)[1]
    )
    for _ in range(8):
        held.add(alike)
    with pytest.raises(FilterFullError):
        held.add(alike)
    two = CuckooFilter(100, 8)
    two.add_all(["topic/0"] * 16)
    assert len(two) == 16


def test_prefilter_columns_of_table_2_are_no_cost_of_filters(program: dict[str, Any]) -> None:
    """By Table 1, adding a key and a look-up take a fraction of them."""
    both = {
        name: sum(printed[1:]) / program["ITEMS"] * 1e3
        for name, (_, printed) in program["TABLE_1"].items()
    }
    assert both["Bloom 10 %"] == pytest.approx(0.020, abs=0.001)
    assert max(both.values()) == both["Bloom 10 %"]
    for bloom, _, cuckoo, _ in program["TABLE_2"].values():
        assert bloom > 12 * both["Bloom 10 %"]
        assert cuckoo > 10 * max(t for name, t in both.items() if "cuckoo" in name)


def test_matching_columns_of_table_2_differ_by_what_no_filter_explains(
    program: dict[str, Any],
) -> None:
    rows = program["PRINTED"]
    ratios = [after / row[0] for row in rows.values() for after in (row[2], row[4])]
    assert min(ratios) == pytest.approx(0.79, abs=0.005)
    assert max(ratios) == pytest.approx(1.36, abs=0.005)
    assert sum(ratio < 1 for ratio in ratios) == 6
    # The time of a pair does not depend on the other comparisons.
    each = [row[0] / count for count, row in rows.items()]
    assert max(each) / min(each) == pytest.approx(1.97, abs=0.01)
