"""What a broker gets out of masked values. It has no key.

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
from ccbps.arrays import Bytes, Words
from ccbps.matching.broken import AdditiveMaskMatch
from tests.support.reusable_checks import BODY, sent

QUOTES = Schema(issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(16), volume=UInt(32))
TEXTS = [
    "issue = 'IBM' AND price BETWEEN 11000 AND 12500",
    "volume > 3000000000",
    "price < 7 AND issue = 'GOOG'",
]


def words(messages: Bytes) -> Words:
    return messages[:, BODY].copy().view("<u8").astype(np.uint64)


def quotes(count: int) -> Any:
    rng = np.random.default_rng(8)
    return QUOTES.encode(
        {
            "issue": [["AAPL", "GOOG", "IBM", "MSFT"][i] for i in rng.integers(0, 4, count)],
            "price": rng.integers(0, 2**16, count),
            "volume": rng.integers(0, 2**32, count),
        }
    )


def codes(events: Any) -> Words:
    return np.stack([events.codes[name][0] for name in QUOTES], axis=1)


def bounds() -> Words:
    boxes = [QUOTES.parse(text).box().ranges for text in TEXTS]
    return np.array([list(box.values()) for box in boxes], dtype=np.uint64)


def test_one_known_record_gives_every_value_and_every_bound() -> None:
    matcher = AdditiveMaskMatch(QUOTES)
    records = quotes(3000)
    events, interests = sent(matcher, records, TEXTS)
    seen = words(events)
    masks = seen[17] - codes(records)[17]  # known plaintext: record 17
    np.testing.assert_array_equal(seen - masks, codes(records))
    recovered = words(interests).reshape(len(TEXTS), -1, 2) - masks[:, None]
    np.testing.assert_array_equal(recovered, bounds())


def masks_of_full_ranges(interests: Bytes) -> dict[int, int]:
    """Masks of the attributes that some subscription leaves free, by the widths of ranges."""
    ranges = words(interests).reshape(len(interests), -1, 2)
    sizes = np.array([QUOTES[name].size for name in QUOTES], dtype=np.uint64)
    full = ranges[:, :, 1] - ranges[:, :, 0] == sizes - np.uint64(1)
    rows, attributes = np.nonzero(full)
    return {int(a): int(ranges[row, a, 0]) for row, a in zip(rows, attributes, strict=True)}


def test_free_attributes_give_their_masks_without_any_known_value() -> None:
    matcher = AdditiveMaskMatch(QUOTES)
    records = quotes(3000)
    events, interests = sent(matcher, records, TEXTS)
    masks = masks_of_full_ranges(interests)
    assert sorted(masks) == [0, 1, 2]  # each of the three texts leaves another attribute free
    masks_in_order = np.array([masks[a] for a in range(3)], dtype=np.uint64)
    np.testing.assert_array_equal(words(events) - masks_in_order, codes(records))


def test_least_bound_is_the_mask_as_soon_as_a_range_is_open_below() -> None:
    matcher = AdditiveMaskMatch(Schema(price=UInt(16)))
    server = matcher.key_server()
    texts = ["price > 60000", "price BETWEEN 3 AND 9", "price < 812"]
    _, interests = sent(matcher, [], texts, server)
    assert (
        int(words(interests)[:, 0].min()) == server.publisher_key().export_secret_data()["masks"][0]
    )


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
    matcher = AdditiveMaskMatch(schema)
    events, _ = sent(matcher, records, [])
    seen, full = words(events), []
    for name, column in zip(schema, seen.T, strict=True):
        missing = schema[name].size - 1 - int(np.ptp(column))  # places where the mask may be
        guess, plain = column - column.min(), records.codes[name][0]
        if not missing:
            full.append(name)
            np.testing.assert_array_equal(guess, plain)
        else:  # 3,000 prices nearly reach the ends of the domain
            assert missing < 100 and (plain - guess <= missing).all()
    assert full == ["halted", "issue", "level"]


def test_a_known_distribution_gives_the_mask_without_a_known_value() -> None:
    """3,000 prices around 12,000, in a domain of 65,536 of which they fill little, and no range."""
    prices = np.random.default_rng(12).normal(12_000, 600, 3_000).astype(int)
    matcher = AdditiveMaskMatch(Schema(price=UInt(16)))
    events, _ = sent(matcher, {"price": prices}, [])
    seen = words(events)[:, 0]
    middle = seen.min() + np.uint64(np.median(seen - seen.min()))
    recovered = 12_000 + (seen - middle).astype(np.int64)
    assert np.abs(recovered - prices).max() <= 65


def test_null_is_the_mask_as_soon_as_it_occurs() -> None:
    """Events alone, nothing known: a value that occurs again and again, far below all others, is
    NULL, which has code 0."""
    rng = np.random.default_rng(14)
    prices = rng.normal(12_000, 600, 2_000).astype(int)
    records = {"price": [None if rng.random() < 0.05 else int(price) for price in prices]}
    schema = Schema(price=UInt(16, nullable=True))
    matcher = AdditiveMaskMatch(schema)
    events, _ = sent(matcher, records, [])
    seen = words(events)[:, 0]
    values, counts = np.unique(seen, return_counts=True)
    gaps = np.diff(values.astype(np.int64))
    assert counts[0] == counts.max() and gaps[0] == gaps.max()  # how NULL is recognized
    assert np.array_equal(seen - values[0], schema.encode(records).codes["price"][0])


def keys_that_exclude(bits: int, keys: int) -> int:
    """Count keys under which one message shows that no value is in some part of the domain.

    The values are few, in the middle of the domain.
    """
    middle = 1 << bits - 1
    matcher = AdditiveMaskMatch(Schema(serial=UInt(bits)))
    excluding = 0
    for _ in range(keys):
        events, _ = sent(matcher, {"serial": [middle, middle + 100]}, [])
        message = int(words(events)[0, 0])
        low, high = max(0, message - (1 << 62) + 1), min((1 << bits) - 1, message)
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
