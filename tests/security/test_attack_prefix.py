"""What a broker gets out of PrefixMatch's messages, by `ccbps.attacks.schemes.prefix`.

- From m known values: every other value's longest prefix in common with one of them, and the bit
  after it. Of 5,000 prices around 12,000 (16 bits): one known price leaves the median of the others
  512 codes to be, 16 leave 64, 64 leave 16, and 512 leave 2 and read 36 per cent exactly.
- From one subscription x < c: c itself. From 300 of them: nine in ten events to 1 per cent of the
  domain, with no value known.
- From one interval: the digits of both bounds below their first difference, up to a reflection.
  From 100 intervals, no value known: 97 of 100 events to 1 per cent of the domain, up to one
  reflection of all.
- From frequencies that are known from elsewhere: the most frequent values, and from a smooth
  distribution of 5,000 prices the median of them to 128 codes, with no subscription at all.

None of the figures depends on the keys: which prefixes are shared is the same under all of them.
"""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import Category, Decimal, Schema, UInt
from ccbps.attacks.schemes import prefix
from ccbps.attacks.schemes.views import View, name_by_frequency, watch
from ccbps.matching.broken import PrefixMatch

Ints = NDArray[np.int64]

BITS = 16
PRICES = Schema(price=UInt(BITS))


def seen_by(values: Any, texts: Any = (), schema: Schema = PRICES) -> tuple[Ints, View]:
    """Ciphertexts of events, and the broker's view of all messages."""
    view = watch(PrefixMatch(schema), {"price": values}, list(texts))
    return prefix.read_values(view.events, BITS), view


def known(values: Ints, seen: Ints) -> tuple[Ints, Ints, Ints]:
    return values, seen, np.full(len(values), BITS)


def band(count: int, seed: int) -> Ints:
    """Prices around 12,000, with a standard deviation of 5 per cent."""
    rng = np.random.default_rng(seed)
    return np.clip(rng.normal(12_000, 600, count).round(), 0, 2**BITS - 1).astype(np.int64)


# -- known plaintext ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "exact", "median"),
    [(1, 0.0005, 512), (16, 0.015, 64), (64, 0.06, 16), (512, 0.36, 2)],
)
def test_known_values_give_the_prefixes_of_all_others(
    count: int, exact: float, median: int
) -> None:
    values = band(5000, seed=1)
    seen, _ = seen_by(values)
    low, high = prefix.extend_known(known(values[:count], seen[:count]), seen[count:], BITS)
    assert (low <= values[count:]).all() and (values[count:] <= high).all()
    width = high - low + 1
    assert np.mean(width == 1) >= exact
    assert np.median(width) <= median


def test_neighbours_of_known_values_are_read_in_full() -> None:
    values = np.array([40_000, 40_001, 40_002, 40_003, 40_007, 8])
    seen, _ = seen_by(values)
    low, high = prefix.extend_known(known(values[:1], seen[:1]), seen, BITS)
    assert (high - low + 1).tolist() == [1, 1, 2, 2, 4, 2**15]
    assert (low <= values).all() and (values <= high).all()


def test_uniform_values_lose_the_logarithm_of_the_known_ones() -> None:
    values = np.random.default_rng(2).integers(0, 2**BITS, 4000)
    seen, _ = seen_by(values)
    for count in (1, 16, 256):
        low, high = prefix.extend_known(known(values[:count], seen[:count]), seen[count:], BITS)
        bits = BITS - np.log2(high - low + 1)
        assert np.log2(count) + 1 < bits.mean() < np.log2(count) + 2


# -- ranges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 1000, 11_999, 32_768, 65_535])
def test_one_sided_ranges_are_read_from_the_lengths_of_their_prefixes(limit: int) -> None:
    _, view = seen_by([], [f"price < {limit}", f"price >= {limit}"])
    below, above = (prefix.read_limit(inner, BITS) for inner in view.interests)
    assert below == limit
    assert 2**BITS - above == limit


def test_one_sided_ranges_read_events_without_a_known_value() -> None:
    rng = np.random.default_rng(4)
    values = rng.integers(0, 2**BITS, 2000)
    limits = rng.integers(1, 2**BITS, 300)
    seen, view = seen_by(values, [f"price < {limit}" for limit in limits])
    low, high = prefix.extend_known(prefix.read_one_sided(view.interests, BITS), seen, BITS)
    assert (low <= values).all() and (values <= high).all()
    assert np.mean(high - low + 1 <= 2**BITS / 100) > 0.9


@pytest.mark.parametrize(
    ("low", "high"),
    [(3, 40_007), (20_001, 65_000), (32_767, 33_000), (11_000, 12_500), (40_007, 65_000), (6, 9)],
)
def test_intervals_give_the_digits_after_the_first_difference(low: int, high: int) -> None:
    _, view = seen_by([], [f"price BETWEEN {low} AND {high}"])
    half, readings = prefix.read_interval(view.interests[0], BITS)
    assert (low % half, high % half) in readings


def test_intervals_alone_place_events_up_to_one_reflection() -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(0, 2**BITS, 2000)
    limits = np.sort(rng.integers(0, 2**BITS, (100, 2)), axis=1)
    texts = [f"price BETWEEN {low} AND {high}" for low, high in limits]
    seen, view = seen_by(values, texts)
    low, width = prefix.place_events(seen, prefix.join_turns(view.interests, BITS), BITS)
    if not ((low <= values) & (values < low + width)).all():
        low = 2**BITS - low - width  # the other reading
    assert ((low <= values) & (values < low + width)).all()
    assert np.mean(abs(low + width / 2 - values) <= 2**BITS / 100) > 0.97


# -- frequency ----------------------------------------------------------------------------------


def test_a_known_distribution_places_events_without_a_subscription() -> None:
    values = band(5000, seed=7)

    def below(edge: int) -> float:
        """Chance of a price below an edge, which is what the attacker knows."""
        return erf((edge - 0.5 - 12_000) / (600 * np.sqrt(2))) / 2

    low, width = prefix.place_by_distribution(seen_by(values)[0], below, BITS)
    assert np.mean((low <= values) & (values < low + width)) > 0.9
    assert np.median(width) <= 128


def test_a_domain_that_is_no_power_of_two_shows_first_bits_of_events_alone() -> None:
    """Of 49,152 values none begins with 11: 100 events say which half goes on in one way only."""
    schema = Schema(price=Decimal(0, 49_151, 1))
    prices = np.random.default_rng(8).integers(0, 49_152, 100)
    seen, _ = seen_by(prices, schema=schema)
    ways = [set(((seen >> 14) & 1)[seen >> 15 == half].tolist()) for half in (0, 1)]
    assert sorted(map(len, ways)) == [1, 2]
    upper = int(len(ways[1]) == 1)
    assert np.array_equal(seen >> 15 == upper, prices >= 32_768)


def test_frequent_values_are_recognized() -> None:
    names = [f"v{number:03}" for number in range(200)]
    weights = 1 / np.arange(1, 201)
    chosen = np.random.default_rng(6).choice(200, 20_000, p=weights / weights.sum())
    schema = Schema(topic=Category(names))
    view = watch(PrefixMatch(schema), {"topic": [names[i] for i in chosen]}, [])
    tokens = view.events[:, 0].tolist()
    guesses = name_by_frequency(tokens, range(8))
    right = [guesses.get(token) == topic for token, topic in zip(tokens, chosen, strict=True)]
    assert np.mean(right) > 0.4  # 8 of 200 values, and nearly half of the events
