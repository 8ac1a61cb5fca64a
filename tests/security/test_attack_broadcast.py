"""Attacks on the broadcast encoding where labels or nonces serve for more than they may.

Each is shown to work on a 16+16+20 bit box, and not to work where the rule is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ccbps.attacks.schemes.broadcast import (
    bounds_from_nonce,
    digits_apart,
    digits_from_labels,
    last_within,
)
from ccbps.encodings.broadcast.encoding import BroadcastEncoding
from ccbps.encodings.labels import LABEL_BYTES
from tests.support.digit_formulas import box, box_bits, cut, packed, windows
from tests.support.program_values import evaluate

Bytes = NDArray[np.uint8]

BITS = (16, 16, 20)
BOX = [windows(bits, 2) for bits in BITS]
FLAT = [width for widths in BOX for width in widths]
TEXT = [(1000, 1203), (0, 65_535), (77, 901_234)]
"""A subscriber's bounds."""


class Market:
    """Real messages of a 16+16+20 bit box: labels of one round, and nonces that can be chosen."""

    def __init__(self, seed: int) -> None:
        self.formula = box(BOX)
        self.interest_bits = len(box_bits(BOX, TEXT))
        self.encoding = BroadcastEncoding(self.formula, FLAT, self.interest_bits)
        self._rng = np.random.default_rng(seed)

    def round(self) -> Bytes:
        """Uniform bytes for the labels of a round."""
        return self._rng.integers(0, 256, (1, self.encoding.randomness_bytes), dtype=np.uint8)

    def event(self, round_: Bytes, codes: Sequence[int]) -> Bytes:
        out = np.empty((1, self.encoding.event_bytes), np.uint8)
        self.encoding.encode_event(np.array([digits_of(codes)], np.uint8), round_, out)
        return out

    def interest(
        self, round_: Bytes, ranges: Sequence[tuple[int, int]], nonce: bytes | None = None
    ) -> Bytes:
        def fresh(count: int) -> bytes:
            drawn = self._rng.bytes(count)
            return drawn if nonce is None else nonce + drawn[len(nonce) :]

        out = np.empty((1, self.encoding.interest_bytes), np.uint8)
        interest = packed(np.array([box_bits(BOX, ranges)]))
        self.encoding.encode_interest(interest, lambda start, stop: round_, fresh, out)
        return out

    def answers(self, codes: Sequence[int], ranges: Sequence[tuple[int, int]]) -> bool:
        x, p = np.array([digits_of(codes)]).T, np.array([box_bits(BOX, ranges)], np.bool_).T
        return bool(evaluate(self.formula, x, p)[0])


def digits_of(codes: Sequence[int]) -> list[int]:
    return [digit for code, widths in zip(codes, BOX, strict=True) for digit in cut(code, widths)]


def test_one_nonce_for_two_interests_shows_all_bounds_of_one_to_the_other() -> None:
    """Pads are the same, so the sum of two rows is one of table entries, and bare where these have
    no masks: every digit of every bound is, at one slot. Who knows one interest reads the other."""
    market = Market(1)
    round_ = market.round()
    mine, nonce = [(5, 9), (4, 4), (3, 1000)], b"twelve bytes"
    known, reused = market.interest(round_, mine, nonce), market.interest(round_, TEXT, nonce)
    fresh = market.interest(round_, TEXT)
    labels, bits = market.encoding.labels.of(round_)[0], np.array(box_bits(BOX, mine), np.bool_)

    def bounds_read(interest: Bytes) -> list[tuple[int, int]]:
        return bounds_from_nonce(market.encoding, BOX, labels, bits, known[0], interest[0])

    # A bound above all codes is written as zero.
    bounds = [((high + 1) % (1 << k), low) for (low, high), k in zip(TEXT, BITS, strict=True)]
    assert bounds_read(reused) == bounds
    assert bounds_read(fresh) != bounds


def test_two_events_under_one_round_show_where_they_differ_and_all_mixtures_of_both() -> None:
    market = Market(2)
    round_ = market.round()
    first, second = (1100, 40_000, 80), (1250, 7, 901_234)
    coordinate, other = market.event(round_, first), market.event(round_, second)
    # Without any interest: shifts cancel.
    shown = digits_apart(coordinate[0], other[0], FLAT)
    differing = np.array(digits_of(first)) ^ np.array(digits_of(second))
    assert shown.tolist() == differing.tolist()
    assert (coordinate == other).reshape(-1, LABEL_BYTES).all(axis=1).tolist() == (
        differing == 0
    ).tolist()
    # With an interest: answers for each attribute of one event or of the other.
    interest = market.interest(round_, TEXT)
    edges = LABEL_BYTES * np.cumsum([0, *map(len, BOX)])
    recovered = set()
    for chosen in product((0, 1), repeat=len(BITS)):
        mixed = np.hstack([
            (coordinate, other)[which][:, edges[i] : edges[i + 1]] for i, which in enumerate(chosen)
        ])  # fmt: skip
        codes = [(first, second)[which][i] for i, which in enumerate(chosen)]
        assert market.encoding.decode(mixed, interest)[0] == market.answers(codes, TEXT)
        if market.answers(codes, TEXT):
            recovered.add(chosen)
    # So the broker knows that of the second event the first attribute alone is out of bounds.
    assert recovered == {(0, *rest) for rest in product((0, 1), repeat=2)}
    # Under a round of its own, the second event's labels open nothing of this interest.
    apart = market.event(market.round(), second)
    shown = digits_apart(coordinate[0], apart[0], FLAT)
    assert shown.tolist() != differing.tolist()
    assert not (coordinate == apart).reshape(-1, LABEL_BYTES).all(axis=1).any()


def test_who_can_make_labels_reads_every_event_message() -> None:
    market = Market(3)
    round_ = market.round()
    codes = (31_337, 4, 1_000_000)
    message = market.event(round_, codes)[0]
    labels, others = (market.encoding.labels.of(each)[0] for each in (round_, market.round()))
    assert digits_from_labels(message, labels, FLAT) == [[digit] for digit in digits_of(codes)]
    assert digits_from_labels(message, others, FLAT) == [[]] * len(FLAT)


def test_who_can_make_labels_reads_the_interests_of_the_round() -> None:
    """With the broker's copy of an interest message: he asks it for any event."""
    market = Market(4)
    round_ = market.round()
    interest = market.interest(round_, TEXT)
    inside = [1100, 40_000, 80]
    for place, (low, high) in enumerate(TEXT):

        def within(code: int, place: int = place) -> bool:
            codes = [*inside[:place], code, *inside[place + 1 :]]
            return bool(market.encoding.decode(market.event(round_, codes), interest)[0])

        assert last_within(within, inside[place], 0) == low
        assert last_within(within, inside[place], (1 << BITS[place]) - 1) == high
