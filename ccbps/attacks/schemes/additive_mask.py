"""Additive masks: one number hides all values of an attribute, and any one value reveals it.

A message is v + k, so differences and the order of all values and bounds are in the clear. The
functions of this module find k from a range, the ends of a domain, NULL or a distribution.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ccbps.arrays import Bytes, Numbers, Words
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.views import (
    codes_of,
    guess_best,
    make_broken,
    read_answers,
    read_hits,
    watch,
)
from ccbps.checks import whole
from ccbps.matching.broken.additive_mask import MASK_BITS, AdditiveMaskMatch
from ccbps.matching.reusable import words_of
from ccbps.predicates import Schema, UInt


def read_ranges(interests: Bytes) -> Words:
    """Return the masked bounds of subscriptions, shape (subscriptions, attributes, 2)."""
    return words_of(interests).reshape(len(interests), -1, 2)


def unmask_free_attributes(interests: Bytes, sizes: Words) -> dict[int, int]:
    """Return the masks of attributes that some subscription leaves free.

    A range as wide as the domain starts at the mask.

    Args:
        interests: bodies of subscriptions.
        sizes: number of values of each attribute.
    """
    ranges = read_ranges(interests)
    full = ranges[:, :, 1] - ranges[:, :, 0] == sizes - np.uint64(1)
    rows, attributes = np.nonzero(full)
    return {int(a): int(ranges[row, a, 0]) for row, a in zip(rows, attributes, strict=True)}


def unmask_open_ranges(interests: Bytes) -> Words:
    """Return the least bound of each attribute: its mask, once a range is open below."""
    return np.asarray(read_ranges(interests)[:, :, 0].min(axis=0))


def unmask_domain(column: Words, size: int) -> tuple[Words, int]:
    """Read values from events alone, if they reach both ends of their domain.

    Args:
        column: masked values of one attribute.
        size: number of values of the domain.

    Returns:
        the values if the least one is 0, and the largest possible error: 0 if they fill the domain.

    Example:
        >>> import numpy as np
        >>> from ccbps.attacks.schemes.additive_mask import unmask_domain
        >>> values, slack = unmask_domain(np.array([1007, 1000, 1015, 1003], dtype=np.uint64), 16)
        >>> values.tolist(), slack
        ([7, 0, 15, 3], 0)
    """
    return column - column.min(), size - 1 - int(np.ptp(column))


def unmask_null(column: Words) -> Words | None:
    """Read values from events alone, if NULL occurs often and far below all values.

    Returns:
        the codes of all events, of which NULL is 0; None if the least value is not the most
        frequent one, or not the farthest from its neighbour.
    """
    values, counts = np.unique(column, return_counts=True)
    gaps = np.diff(values.astype(np.int64))
    if len(gaps) and counts[0] == counts.max() and gaps[0] == gaps.max():
        return np.asarray(column - values[0])
    return None


def unmask_median(column: Words, median: int) -> Numbers:
    """Read values from events alone, if their median is known."""
    above = (column - column.min()).astype(np.int64)
    return np.asarray(median + above - int(np.median(above)))


def bound_by_mask(message: int, bits: int) -> tuple[int, int]:
    """Return the least and greatest value that a message can have, as masks have 62 bits.

    Args:
        message: masked value.
        bits: width of the domain, bits.
    """
    return max(0, message - (1 << MASK_BITS) + 1), min((1 << bits) - 1, message)


LEVELS: Final = Schema(level=UInt(8))


@attack(
    title="The ends of a domain, or one known event, remove an additive mask",
    goal="confidentiality",
    adversary="a broker with messages, without a key; with and without one known event",
    defence="`TagMatch` or `FormulaMatch`; their brokers even make the best of all guesses",
)
def unmask_values(
    *, events: int = 1000, subscriptions: int = 10, runs: int = 100, seed: int = 8
) -> Outcome:
    """Read uniform values of 8 bits from masked events.

    Events alone are read as soon as 0 and 255 have occurred. The brokers of the other matchers see
    the same events and `subscriptions` conditions `level < c`. Their share is that of the best
    guess from what they see: the most frequent value of all events that look alike.

    Args:
        events: greatest number of events, 100 to 10,000.
        subscriptions: number of subscriptions.
        runs: number of keys and draws of events.
        seed: seed of events and subscriptions; keys are drawn anew.

    Example:
        >>> from ccbps.attacks import unmask_values
        >>> outcome = unmask_values(runs=10)
        >>> outcome["values read, one known event"].undefended
        1.0
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    whole("events", events, 100, 10_000)
    size, matcher = LEVELS["level"].size, make_broken(AdditiveMaskMatch, LEVELS)
    counts = tuple(sorted({each for each in (100, 200, 400, 700, 2000) if each < events}))
    counts = (*counts, events)
    alone, known = np.zeros((runs, len(counts))), np.zeros((runs, len(counts)))
    for run in range(whole("runs", runs, 1, 1000)):
        records = {"level": random.integers(0, size, events)}
        codes = codes_of(LEVELS, records)[:, 0]
        column = words_of(watch(matcher, records, []).events)[:, 0]
        for place, count in enumerate(counts):
            values, slack = unmask_domain(column[:count], size)
            alone[run, place] = 0 if slack else np.mean(values == codes[:count])
            mask = column[0] - np.uint64(codes[0])
            known[run, place] = np.mean(column[1:count] - mask == codes[1:count])
    limits = random.integers(1, size, whole("subscriptions", subscriptions, 1, 100))
    texts = [f"level < {limit}" for limit in limits]
    tagged, answered = (
        guess_best(shown, codes)
        for shown in (
            read_hits(LEVELS, records, texts)["level"],
            read_answers(LEVELS, records, texts),
        )
    )
    share = 1 / size
    expected = 1 - 2 * (1 - share) ** events + (1 - 2 * share) ** events
    return Outcome(
        (
            Figure("values read", "", float(alone[:, -1].mean()), float(tagged.mean()), expected),
            Figure(
                "values read, one known event",
                "",
                float(known[:, -1].mean()),
                float(tagged.mean()),
                1,
            ),
            Figure(
                "values read, FormulaMatch as defence",
                "",
                float(alone[:, -1].mean()),
                float(answered.mean()),
            ),
        ),
        Curve(
            "events that the broker has",
            "values read exactly (share)",
            counts,
            {
                "without defence": tuple(alone.mean(axis=0).tolist()),
                "without defence, one known event": tuple(known.mean(axis=0).tolist()),
                "with TagMatch": tuple(float(tagged[:count].mean()) for count in counts),
                "with FormulaMatch": tuple(float(answered[:count].mean()) for count in counts),
            },
        ),
    )
