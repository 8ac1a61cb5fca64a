"""What a broker gets out of masked values, by `ccbps.attacks.schemes.additive_mask`.

- One known value gives the mask of its attribute, and the mask gives every value and every bound
  of it.
- Nothing known: a range as wide as the domain starts at the mask; so does x < c.
- Events alone: if values fill the domain, the least of them is the mask.
- Events alone, of a domain that is wide beside the masks: one message bounds all values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccbps import Bool, Category, Schema, UInt
from ccbps.arrays import Words
from ccbps.attacks.schemes import additive_mask
from ccbps.attacks.schemes.views import codes_of, watch
from ccbps.matching.broken import AdditiveMaskMatch
from ccbps.matching.reusable import words_of

QUOTES = Schema(issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(16), volume=UInt(32))
TEXTS = [
    "issue = 'IBM' AND price BETWEEN 11000 AND 12500",
    "volume > 3000000000",
    "price < 7 AND issue = 'GOOG'",
]


def quotes(count: int) -> Any:
    rng = np.random.default_rng(8)
    return QUOTES.encode(
        {
            "issue": [["AAPL", "GOOG", "IBM", "MSFT"][i] for i in rng.integers(0, 4, count)],
            "price": rng.integers(0, 2**16, count),
            "volume": rng.integers(0, 2**32, count),
        }
    )


def bounds() -> Words:
    boxes = [QUOTES.parse(text).box().ranges for text in TEXTS]
    return np.array([list(box.values()) for box in boxes], dtype=np.uint64)


def test_one_known_record_gives_every_value_and_every_bound() -> None:
    records = quotes(3000)
    view, codes = watch(AdditiveMaskMatch(QUOTES), records, TEXTS), codes_of(QUOTES, records)
    seen = words_of(view.events)
    masks = seen[17] - codes[17].astype(np.uint64)  # known plaintext: record 17
    np.testing.assert_array_equal(seen - masks, codes)
    recovered = additive_mask.read_ranges(view.interests) - masks[:, None]
    np.testing.assert_array_equal(recovered, bounds())


def test_free_attributes_give_their_masks_without_any_known_value() -> None:
    records = quotes(3000)
    view = watch(AdditiveMaskMatch(QUOTES), records, TEXTS)
    sizes = np.array([QUOTES[name].size for name in QUOTES], dtype=np.uint64)
    masks = additive_mask.unmask_free_attributes(view.interests, sizes)
    assert sorted(masks) == [0, 1, 2]  # each of the three texts leaves another attribute free
    masks_in_order = np.array([masks[a] for a in range(3)], dtype=np.uint64)
    np.testing.assert_array_equal(words_of(view.events) - masks_in_order, codes_of(QUOTES, records))


def test_least_bound_is_the_mask_as_soon_as_a_range_is_open_below() -> None:
    matcher = AdditiveMaskMatch(Schema(price=UInt(16)))
    server = matcher.key_server()
    texts = ["price > 60000", "price BETWEEN 3 AND 9", "price < 812"]
    (mask,) = additive_mask.unmask_open_ranges(watch(matcher, [], texts, server).interests)
    assert int(mask) == server.publisher_key().export_secret_data()["masks"][0]


def test_events_alone_are_read_where_they_fill_the_domain() -> None:
    schema = Schema(
        halted=Bool(), issue=Category(["AAPL", "GOOG", "IBM"]), level=UInt(8), price=UInt(16)
    )
    rng = np.random.default_rng(11)
    records = schema.encode(
        {
            "halted": rng.random(3000) < 0.1,
            "issue": [["AAPL", "GOOG", "IBM"][i] for i in rng.integers(0, 3, 3000)],
            "level": rng.integers(0, 256, 3000),
            "price": rng.integers(0, 2**16, 3000),
        }
    )
    seen, full = words_of(watch(AdditiveMaskMatch(schema), records, []).events), []
    for name, column in zip(schema, seen.T, strict=True):
        guess, slack = additive_mask.unmask_domain(column, schema[name].size)
        plain = records.codes[name][0]
        if not slack:
            full.append(name)
            np.testing.assert_array_equal(guess, plain)
        else:  # 3,000 prices nearly reach the ends of the domain
            assert slack < 100 and (plain - guess <= slack).all()
    assert full == ["halted", "issue", "level"]


def test_a_known_distribution_gives_the_mask_without_a_known_value() -> None:
    """3,000 prices around 12,000, in a domain of 65,536 of which they fill little, and no range."""
    prices = np.random.default_rng(12).normal(12_000, 600, 3_000).astype(int)
    view = watch(AdditiveMaskMatch(Schema(price=UInt(16))), {"price": prices}, [])
    recovered = additive_mask.unmask_median(words_of(view.events)[:, 0], 12_000)
    assert np.abs(recovered - prices).max() <= 65


def test_null_is_the_mask_as_soon_as_it_occurs() -> None:
    """Events alone, nothing known: a value that occurs again and again, far below all others, is
    NULL, which has code 0."""
    rng = np.random.default_rng(14)
    prices = rng.normal(12_000, 600, 2_000).astype(int)
    records = {"price": [None if rng.random() < 0.05 else int(price) for price in prices]}
    schema = Schema(price=UInt(16, nullable=True))
    seen = words_of(watch(AdditiveMaskMatch(schema), records, []).events)[:, 0]
    read = additive_mask.unmask_null(seen)
    assert read is not None
    assert np.array_equal(read, schema.encode(records).codes["price"][0])
    assert additive_mask.unmask_null(seen[seen > seen.min()]) is None


def keys_that_exclude(bits: int, keys: int) -> int:
    """Count keys under which one message shows that no value is in some part of the domain.

    The values are few, in the middle of the domain.
    """
    middle = 1 << bits - 1
    matcher = AdditiveMaskMatch(Schema(serial=UInt(bits)))
    # Under one key in a million, even a narrow domain shows something.
    excluding, draw = 0, np.random.default_rng(bits).bytes
    for _ in range(keys):
        view = watch(matcher, {"serial": [middle, middle + 100]}, [], randomness=draw)
        low, high = additive_mask.bound_by_mask(int(words_of(view.events)[0, 0]), bits)
        assert low <= middle <= high
        excluding += (low, high) != (0, (1 << bits) - 1)
    return excluding


def test_a_message_of_a_wide_domain_bounds_its_value() -> None:
    """Half of the keys where the domain is half of the masks, and the card says so."""
    assert 60 < keys_that_exclude(61, 200) < 140
    assert keys_that_exclude(42, 200) == 0
    wide = Schema(price=UInt(42), serial=UInt(61))
    (told,) = (line for line in AdditiveMaskMatch(wide).leakage.learns if "wide" in line)
    assert told.startswith("of serial, ") and told.endswith("under one key in 2")
    assert not any("wide" in line for line in AdditiveMaskMatch(QUOTES).leakage.learns)
    assert all("at most 42 bits" in line for line in AdditiveMaskMatch(wide).leakage.hides)
