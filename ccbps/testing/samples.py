"""Compare samples of messages that must be distributed alike, at the size they really have.

Every statistic is a parity: the sum modulo 2 of some bits of a view, over many views. If two
samples have one distribution, a parity is odd about equally often in both. The parities are

- every bit, and every pair of bits of which both are chosen;
- every subset of the bits of a byte, of the event, of the interest, and of both messages' sum;
- random sets of bits, of three up to half of all;
- whatever a sample's first half says is constant: parities that all of its views have in common.

Chosen are all bits of short messages, and of long ones their ends and a random part.

By Hoeffding's inequality the chance that a given parity differs by more than z standard units is
below ``2 exp(-z * z / 2)``. The bound on z makes that chance, for all parities of a comparison
together, `FALSE_ALARM`. Seeds are fixed, so a comparison that passes once always passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes
from ccbps.keys.pad import OneTimePad
from ccbps.matching import Matcher

FALSE_ALARM: Final = 1e-9
"""Chance that a comparison refuses two samples of one distribution, at most."""
VIEWS: Final = 1024
"""Views of a sample; more of them find less."""
MARGIN: Final = 64
"""Views of half a sample beyond its bits, so that few sets of bits are constant by chance."""
ENDS: Final = 48
"""Bits at each end of a long message that are always looked at."""
SETS: Final = 256
"""Random sets of bits."""
SIZES: Final = (3, 4, 8, 32)
"""Bits in them; half of all is one more."""

Columns = NDArray[np.uint64]
"""Bits of a message, a row for each, with a bit for each view."""


def drawn(
    matcher: Matcher, record: Any, interest: Any, seed: int, views: int = VIEWS
) -> list[Bytes]:
    """Return messages of one event and one interest, over rounds of a pad with a fixed seed.

    Args:
        matcher: one with rounds.
        record: the event.
        interest: as the matcher takes it.
        seed: of the pad and of what the roles draw themselves.
        views: rounds, a multiple of 128.
    """
    rng = np.random.default_rng(seed)
    secret = rng.bytes(views * matcher.randomness_bytes)
    records = {name: [value] * views for name, value in record.items()}
    publisher = matcher.publisher(OneTimePad(secret), randomness=rng.bytes)
    subscriber = matcher.subscriber(OneTimePad(secret), randomness=rng.bytes)
    return [
        publisher.encode(records, range(views)),
        subscriber.encode(interest, rounds=range(views)),
    ]


def difference(first: list[Bytes], second: list[Bytes]) -> float:
    """Return by how much two samples differ: above 1, they are not of one distribution.

    Args:
        first: messages of one side or both, each of shape (views, bytes).
        second: likewise.
    """
    rng = np.random.default_rng(1)
    most = (len(first[0]) // 2 - MARGIN) // 2
    places = [_places(rows.shape[1], most, rng) for rows in first]
    worst, tests = 0.0, 0
    for some in _statistics(first, second, places):
        tests += some.size
        worst = max(worst, float(some.max(initial=0)))
    return worst / math.sqrt(2 * math.log(2 * tests / FALSE_ALARM))


def _places(width: int, most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the bits of a message that are looked at, in order."""
    if 8 * width <= most:
        return np.arange(8 * width)
    ends = np.r_[:ENDS, 8 * width - ENDS : 8 * width]
    middle = rng.choice(8 * width - 2 * ENDS, most - 2 * ENDS, replace=False) + ENDS
    return np.sort(np.r_[ends, middle])


def _statistics(
    first: list[Bytes], second: list[Bytes], places: list[NDArray[np.intp]]
) -> Iterator[NDArray[Any]]:
    """Yield absolute differences of parities, in standard units."""
    views = len(first[0])
    samples = [_columns(sample, places) for sample in (first, second)]
    yield _units(views, *map(_signs, samples))
    for bit in range(1, len(samples[0])):
        yield _units(views, *(_signs(some[:bit] ^ some[bit]) for some in samples))
    yield _units(views, *(_byte_parities(sample, places) for sample in (first, second)))
    sets = _random_sets(len(samples[0]))
    yield _units(views, *(_signs(_sums(some, sets)) for some in samples))
    half = views // 128
    for sample, other in (samples, samples[::-1]):
        sets = _constants(sample[:, :half])
        yield _units(views // 2, *(_signs(_sums(some[:, half:], sets)) for some in (sample, other)))


def _columns(sample: list[Bytes], places: list[NDArray[np.intp]]) -> Columns:
    """Return the chosen bits of all views."""
    bits = [
        rows[:, at // 8] >> (at % 8).astype(np.uint8) & 1
        for rows, at in zip(sample, places, strict=True)
    ]
    return np.packbits(np.hstack(bits).T, axis=1, bitorder="little").view("<u8")


def _signs(columns: Columns) -> NDArray[np.float64]:
    """Return means over all views, where a bit counts 1 if it is even and -1 if it is odd."""
    odd = np.bitwise_count(columns).sum(axis=1, dtype=np.int64)
    return np.asarray(1 - 2 * odd / (64 * columns.shape[1]))


def _sums(columns: Columns, sets: list[NDArray[np.intp]]) -> Columns:
    """Return sums modulo 2 of sets of bits."""
    out = np.zeros((len(sets), columns.shape[1]), dtype=np.uint64)
    for row, chosen in zip(out, sets, strict=True):
        row[:] = np.bitwise_xor.reduce(columns[chosen], axis=0)
    return out


def _units(views: int, first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Return differences of means of signs in standard units."""
    pooled = (first + second) / 2
    spread = np.sqrt(np.maximum(1 - pooled**2, 1 / views**2) * 2 / views)
    return np.asarray(np.abs(first - second) / spread)


def _byte_parities(sample: list[Bytes], places: list[NDArray[np.intp]]) -> NDArray[Any]:
    """Return means of the signs of all subsets of bits of bytes, shape (bytes, 256)."""
    columns = [rows[:, np.unique(at // 8)] for rows, at in zip(sample, places, strict=True)]
    if len(sample) == 2:
        both = np.unique(np.concatenate([at // 8 for at in places]))
        both = both[both < min(rows.shape[1] for rows in sample)]
        columns.append(sample[0][:, both] ^ sample[1][:, both])
    rows = np.hstack(columns)
    places_of = rows + 256 * np.arange(rows.shape[1])
    counts = np.bincount(places_of.reshape(-1), minlength=256 * rows.shape[1])
    # The Walsh-Hadamard transform.
    for bit in range(8):
        pairs = counts.reshape(-1, 2, 1 << bit)
        counts = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)
    return np.asarray(counts.reshape(-1, 256) / len(rows))


def _random_sets(bits: int) -> list[NDArray[np.intp]]:
    """Return random sets of bits."""
    rng = np.random.default_rng(2)
    sizes = [*(min(size, bits) for size in SIZES), bits // 2]
    return [rng.choice(bits, sizes[turn % len(sizes)], replace=False) for turn in range(SETS)]


def _constants(columns: Columns) -> list[NDArray[np.intp]]:
    """Return a basis of the sets of bits whose parity is the same in all views."""
    width, views = len(columns), 64 * columns.shape[1]
    bits = np.unpackbits(columns.view(np.uint8), axis=1, bitorder="little").T
    # The first view is added to all others: then a constant parity is an even one.
    octets = np.packbits(bits[1:] ^ bits[0], axis=1, bitorder="little")
    rows = np.zeros((views - 1, -(-width // 64) * 8), dtype=np.uint8)
    rows[:, : octets.shape[1]] = octets
    words, pivots = rows.view("<u8"), list[int]()
    for bit in range(width):
        rank = len(pivots)
        odd = (words[:, bit // 64] >> np.uint64(bit % 64) & np.uint64(1)).astype(np.bool_)
        place = rank + int(odd[rank:].argmax())
        if odd[place]:
            pivot = words[place].copy()
            words[place] = words[rank]
            words[rank] = pivot
            odd[place], odd[rank] = odd[rank], False
            words ^= np.where(odd[:, None], pivot, np.uint64(0))
            pivots.append(bit)
    reduced = np.unpackbits(rows, axis=1, bitorder="little")[: len(pivots), :width]
    free = np.setdiff1d(np.arange(width), pivots)
    return [np.append(np.array(pivots)[reduced[:, bit] == 1], bit).astype(np.intp) for bit in free]
