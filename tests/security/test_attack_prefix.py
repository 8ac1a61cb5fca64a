"""What a broker gets out of PrefixMatch's messages. It has no key, and no row here uses one.

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

from collections import Counter
from functools import cache
from math import erf

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import Category, Decimal, Schema, UInt
from ccbps.matching.broken import PrefixMatch
from ccbps.matching.broken.prefix import UNUSED
from tests.support.reusable_checks import BODY, sent

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

BITS = 16
PRICES = Schema(price=UInt(BITS))


def ciphertexts(events: Bytes) -> Ints:
    return events[:, BODY].copy().view(">u2")[:, 0].astype(np.int64)


def prefixes(interest: Bytes) -> tuple[Ints, Ints]:
    """Ciphertexts and lengths of a message's prefixes."""
    slots = interest[BODY].reshape(-1, 3).astype(np.int64)
    slots = slots[slots[:, 2] != UNUSED]
    return slots[:, 0] << 8 | slots[:, 1], slots[:, 2]


def shared(a: Ints, b: Ints) -> Ints:
    """Leading bits in common, at most BITS, for all pairs; shape (len(a), len(b))."""
    different = (a[:, None] ^ b).astype(np.float64)
    return BITS - np.frexp(different)[1].astype(np.int64)


def bounds_from(
    plaintexts: Ints, known_ciphertexts: Ints, lengths: Ints, targets: Ints
) -> tuple[Ints, Ints]:
    """Lower and upper bounds of the values behind ciphertexts.

    Args:
        plaintexts: prefixes of known values.
        known_ciphertexts: prefixes of their ciphertexts.
        lengths: their lengths, bits.
        targets: ciphertexts of unknown values.
    """
    common = np.minimum(shared(targets, known_ciphertexts), lengths)
    best = common.argmax(axis=1)
    length = common[np.arange(len(targets)), best]
    value = plaintexts[best]
    # The common bits are those of the known value; if it goes on, the next bit is the other one.
    more = length < lengths[best]
    flip = np.where(more, 1 << np.maximum(BITS - 1 - length, 0), 0)
    free = BITS - length - more
    low = (value ^ flip) >> free << free
    return low, low + (1 << free) - 1


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
    events, _ = sent(PrefixMatch(PRICES), {"price": values}, [])
    seen = ciphertexts(events)
    whole = np.full(count, BITS)
    low, high = bounds_from(values[:count], seen[:count], whole, seen[count:])
    assert (low <= values[count:]).all() and (values[count:] <= high).all()
    width = high - low + 1
    assert np.mean(width == 1) >= exact
    assert np.median(width) <= median


def test_neighbours_of_known_values_are_read_in_full() -> None:
    values = np.array([40_000, 40_001, 40_002, 40_003, 40_007, 8])
    events, _ = sent(PrefixMatch(PRICES), {"price": values}, [])
    seen = ciphertexts(events)
    low, high = bounds_from(values[:1], seen[:1], np.array([BITS]), seen)
    assert (high - low + 1).tolist() == [1, 1, 2, 2, 4, 2**15]
    assert (low <= values).all() and (values <= high).all()


def test_uniform_values_lose_the_logarithm_of_the_known_ones() -> None:
    values = np.random.default_rng(2).integers(0, 2**BITS, 4000)
    events, _ = sent(PrefixMatch(PRICES), {"price": values}, [])
    seen = ciphertexts(events)
    for count in (1, 16, 256):
        whole = np.full(count, BITS)
        low, high = bounds_from(values[:count], seen[:count], whole, seen[count:])
        bits = BITS - np.log2(high - low + 1)
        assert np.log2(count) + 1 < bits.mean() < np.log2(count) + 2


# -- ranges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 1000, 11_999, 32_768, 65_535])
def test_one_sided_ranges_are_read_from_the_lengths_of_their_prefixes(limit: int) -> None:
    _, interests = sent(PrefixMatch(PRICES), [], [f"price < {limit}", f"price >= {limit}"])
    below, above = (int((1 << BITS - prefixes(inner)[1]).sum()) for inner in interests)
    assert below == limit
    assert 2**BITS - above == limit


def test_one_sided_ranges_read_events_without_a_known_value() -> None:
    rng = np.random.default_rng(4)
    values = rng.integers(0, 2**BITS, 2000)
    limits = rng.integers(1, 2**BITS, 300)
    events, interests = sent(
        PrefixMatch(PRICES), {"price": values}, [f"price < {limit}" for limit in limits]
    )
    plaintexts, heads, lengths = [], [], []
    for interest in interests:
        ciphertext, length = prefixes(interest)
        limit = int((1 << BITS - length).sum())
        for place in np.sort(length):  # where the limit has a 1, the prefix has a 0
            head = limit >> BITS - place << BITS - place
            plaintexts.append(head ^ 1 << BITS - place)
        heads += ciphertext[np.argsort(length)].tolist()
        lengths += np.sort(length).tolist()
    plain, cipher, whole = (np.array(part) for part in (plaintexts, heads, lengths))
    low, high = bounds_from(plain, cipher, whole, ciphertexts(events))
    assert (low <= values).all() and (values <= high).all()
    assert np.mean(high - low + 1 <= 2**BITS / 100) > 0.9


@pytest.mark.parametrize(
    ("low", "high"),
    [(3, 40_007), (20_001, 65_000), (32_767, 33_000), (11_000, 12_500), (40_007, 65_000), (6, 9)],
)
def test_intervals_give_the_digits_after_the_first_difference(low: int, high: int) -> None:
    _, interests = sent(PrefixMatch(PRICES), [], [f"price BETWEEN {low} AND {high}"])
    ciphertext, length = prefixes(interests[0])
    fork = int(shared(ciphertext[:1], ciphertext).min())
    side = ciphertext >> (BITS - 1 - fork) & 1
    inner, other = (int((1 << BITS - length[side == bit]).sum()) for bit in (0, 1))
    half = 1 << (BITS - 1 - fork)
    readings = [(half - inner, other - 1), (half - other, inner - 1)]
    assert (low % half, high % half) in readings


def turns(interest: Bytes) -> list[tuple[int, int, bool]]:
    """Nodes whose children an interval shows, as (length, prefix, whether they changed places).

    If the other half of the interval is the lower one, all of them are the opposite.
    """
    ciphertext, length = prefixes(interest)
    inside = {(size, head >> BITS - size) for head, size in zip(ciphertext, length, strict=True)}
    if len(inside) < 2:
        return []
    fork = int(shared(ciphertext[:1], ciphertext).min())
    targets = [(fork, int(ciphertext[0]) >> BITS - fork, False)]
    for half in (0, 1):
        ends = [(size, head) for size, head in inside if head >> size - 1 - fork & 1 == half]
        deepest, head = max(ends)
        # The way to the code before the interval, or after it: that end's neighbour.
        for size in range(fork + 2, deepest + 1):
            node = head >> deepest - size
            if size == deepest:
                node ^= 1
            # Beside it is a part of the interval where it turns outward, a 0 in the lower half.
            plain = half if (size, node ^ 1) in inside else 1 - half
            targets.append((size - 1, node >> 1, (node & 1) != plain))
    return targets


def joined(interests: Bytes) -> dict[tuple[int, int], bool]:
    """Whether children changed places, for all nodes that intervals join to the root."""
    group: dict[tuple[int, int], tuple[int, bool]] = {}
    for number, interest in enumerate(interests):
        seen = [((size, int(node)), turn) for size, node, turn in turns(interest)]
        for node, turn in seen:
            if node in group and group[node][0] != number:
                old, opposite = group[node][0], group[node][1] ^ turn
                for other, (name, their) in group.items():
                    if name == old:
                        group[other] = number, their ^ opposite
            group[node] = number, turn
    return {node: turn for node, (name, turn) in group.items() if name == group[0, 0][0]}


def test_intervals_alone_place_events_up_to_one_reflection() -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(0, 2**BITS, 2000)
    limits = np.sort(rng.integers(0, 2**BITS, (100, 2)), axis=1)
    texts = [f"price BETWEEN {low} AND {high}" for low, high in limits]
    events, interests = sent(PrefixMatch(PRICES), {"price": values}, texts)
    plaintexts = joined(interests)
    low, width = np.zeros(len(events), dtype=np.int64), np.full(len(events), 2**BITS)
    for row, seen in enumerate(ciphertexts(events).tolist()):
        for size in range(BITS):
            node = size, seen >> BITS - size
            if node not in plaintexts:
                break
            width[row] //= 2
            low[row] += width[row] * ((seen >> BITS - 1 - size & 1) ^ plaintexts[node])
    if not ((low <= values) & (values < low + width)).all():
        low = 2**BITS - low - width  # the other reading
    assert ((low <= values) & (values < low + width)).all()
    assert np.mean(abs(low + width / 2 - values) <= 2**BITS / 100) > 0.97


# -- frequency ----------------------------------------------------------------------------------


def test_a_known_distribution_places_events_without_a_subscription() -> None:
    """Each way of exchanging children makes some counts of events likely and others not: weighed
    from the leaves to the root, and then read from the root on, while the odds are clear."""
    values, leaf = band(5000, seed=7), 64
    events, _ = sent(PrefixMatch(PRICES), {"price": values}, [])
    seen = ciphertexts(events)
    # What the attacker knows of prices.
    scaled = (np.arange(2**BITS + 1) - 0.5 - 12_000) / (600 * np.sqrt(2))
    below = np.array([erf(edge) for edge in scaled]) / 2
    count = np.searchsorted(np.sort(seen), np.arange(2**BITS + 1))

    @cache
    def likely(head: int, first: int, width: int) -> float:
        """Log of the likelihood of what is below a ciphertext range, if it is that of `first`."""
        events = int(count[head + width] - count[head])
        chance = float(below[first + width] - below[first])
        if not events or chance < 1e-9:
            return 0.0 if not events else -np.inf
        if width == leaf:
            return events * float(np.log(chance))
        return float(np.logaddexp(*ways(head, first, width)))

    def ways(head: int, first: int, width: int) -> tuple[float, float]:
        half = width // 2
        same = likely(head, first, half) + likely(head + half, first + half, half)
        return same, likely(head, first + half, half) + likely(head + half, first, half)

    low, width = np.zeros(len(seen), dtype=np.int64), np.full(len(seen), 2**BITS)
    waiting = [(0, 0, 2**BITS)]
    while waiting:
        head, first, size = waiting.pop()
        rows = (head <= seen) & (seen < head + size)
        low[rows], width[rows] = first, size
        if size == leaf or not rows.any():
            continue
        same, exchanged = ways(head, first, size)
        if abs(same - exchanged) > 4:
            half, turn = size // 2, exchanged > same
            waiting.append((head, first + half * turn, half))
            waiting.append((head + half, first + half * (not turn), half))
    assert np.mean((low <= values) & (values < low + width)) > 0.9
    assert np.median(width) <= 128


def test_a_domain_that_is_no_power_of_two_shows_first_bits_of_events_alone() -> None:
    """Of 49,152 values none begins with 11: 100 events say which half goes on in one way only."""
    schema = Schema(price=Decimal(0, 49_151, 1))
    prices = np.random.default_rng(8).integers(0, 49_152, 100)
    seen = ciphertexts(sent(PrefixMatch(schema), {"price": prices}, [])[0])
    ways = [set(((seen >> 14) & 1)[seen >> 15 == half].tolist()) for half in (0, 1)]
    assert sorted(map(len, ways)) == [1, 2]
    upper = int(len(ways[1]) == 1)
    assert np.array_equal(seen >> 15 == upper, prices >= 32_768)


def test_frequent_values_are_recognized() -> None:
    names = [f"v{number:03}" for number in range(200)]
    weights = 1 / np.arange(1, 201)
    chosen = np.random.default_rng(6).choice(200, 20_000, p=weights / weights.sum())
    schema = Schema(topic=Category(names))
    events, _ = sent(PrefixMatch(schema), {"topic": [names[i] for i in chosen]}, [])
    tokens = events[:, BODY][:, 0].tolist()
    ranked = Counter(tokens).most_common(8)
    guesses = {token: rank for rank, (token, _) in enumerate(ranked)}
    right = [guesses.get(token) == topic for token, topic in zip(tokens, chosen, strict=True)]
    assert np.mean(right) > 0.4  # 8 of 200 values, and nearly half of the events
