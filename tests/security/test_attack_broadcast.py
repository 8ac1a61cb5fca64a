"""Attacks on the broadcast encoding where labels or nonces serve for more than they may.

Each is shown to work on a 16+16+20 bit box, and not to work where the rule is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ccbps.encodings.broadcast.encoding import BroadcastEncoding
from ccbps.encodings.labels import LABEL_BYTES, NONCE_BYTES
from tests.support.digit_formulas import box, box_bits, cut, packed, unpacked, windows
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

    def rows(self, interest: Bytes) -> list[int]:
        slots = self.encoding.slots
        bits = unpacked(interest[:, NONCE_BYTES:], slots.bits)[0, slots.slots :]
        return [int(bit) for bit in bits]

    def answers(self, codes: Sequence[int], ranges: Sequence[tuple[int, int]]) -> bool:
        x, p = np.array([digits_of(codes)]).T, np.array([box_bits(BOX, ranges)], np.bool_).T
        return bool(evaluate(self.formula, x, p)[0])


def digits_of(codes: Sequence[int]) -> list[int]:
    return [digit for code, widths in zip(codes, BOX, strict=True) for digit in cut(code, widths)]


def test_one_nonce_for_two_interests_shows_all_bounds_of_one_to_the_other() -> None:
    """Pads are the same, so the sum of two rows is one of table entries, and bare where these have
    no masks: every digit of every bound is, at one slot. Who knows one interest reads the other."""
    market = Market(1)
    slots, round_ = market.encoding.slots, market.round()
    mine, nonce = [(5, 9), (4, 4), (3, 1000)], b"twelve bytes"
    first_sent, reused = market.interest(round_, mine, nonce), market.interest(round_, TEXT, nonce)
    fresh = market.interest(round_, TEXT)
    shifts = market.encoding.labels.of(round_)[0, :: 1 << 2, 0] & 3
    bare = [
        coordinate
        for coordinate in slots.coordinates
        if coordinate.kind == "plain" and len(coordinate.lines) == 1
    ]
    bare = [
        coordinate for coordinate in bare if [part[0] for part in slots.parts(coordinate)] == [()]
    ]
    # In the order of private bits, which is that of attributes, bounds and digits.
    bare.sort(key=lambda coordinate: min(slots.parts(coordinate)[0][1][0].interest))
    lasts = {sum(map(len, BOX[: i + 1])) - 1 for i in range(len(BOX))}
    my_bits = np.array(box_bits(BOX, mine))

    def bounds_read(interest: Bytes) -> list[list[int]]:
        """For each attribute both bounds, as far as rows can be explained."""
        both = [a ^ b for a, b in zip(market.rows(first_sent), market.rows(interest), strict=True)]
        digits = []
        for coordinate in bare:
            ((_, table, _),) = slots.parts(coordinate)
            mine_says = [my_bits[min(label.interest)] for label in table]
            shift, (start, count) = int(shifts[coordinate.digit]), coordinate.rows
            for guess in range(4):
                # The last digit's table says which values are less, others' which one is equal.
                says = [v < guess if coordinate.digit in lasts else v == guess for v in range(4)]
                lines = [int(a) ^ int(b) for a, b in zip(says, mine_says, strict=True)]
                differing = [lines[shift] ^ lines[q ^ shift] for q in range(1, 4)]
                if both[start : start + count] == differing:
                    digits.append(guess)
                    break
            else:
                digits.append(0)
        recovered = []
        for widths in BOX:
            k = len(widths)
            pair, digits = (digits[:k], digits[k : 2 * k]), digits[2 * k :]
            recovered.append([sum(d << 2 * i for i, d in enumerate(part[::-1])) for part in pair])
        return recovered

    # A bound above all codes is written as zero.
    bounds = [[(high + 1) % (1 << k), low] for (low, high), k in zip(TEXT, BITS, strict=True)]
    assert bounds_read(reused) == bounds
    assert bounds_read(fresh) != bounds


def test_two_events_under_one_round_show_where_they_differ_and_all_mixtures_of_both() -> None:
    market = Market(2)
    round_ = market.round()
    first, second = (1100, 40_000, 80), (1250, 7, 901_234)
    coordinate, other = market.event(round_, first), market.event(round_, second)
    # Without any interest: shifts cancel.
    low = np.array([(1 << width) - 1 for width in FLAT])
    shown = (coordinate ^ other)[0, ::LABEL_BYTES] & low
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
    shown = (coordinate ^ apart)[0, ::LABEL_BYTES] & low
    assert shown.tolist() != differing.tolist()
    assert not (coordinate == apart).reshape(-1, LABEL_BYTES).all(axis=1).any()


def test_who_can_make_labels_reads_every_event_message() -> None:
    market = Market(3)
    round_ = market.round()
    codes = (31_337, 4, 1_000_000)
    message = market.event(round_, codes).reshape(-1, LABEL_BYTES)

    def read(labels: Bytes) -> list[list[int]]:
        """For each digit the values whose labels are the event's."""
        first, recovered = 0, []
        for width, label in zip(FLAT, message, strict=True):
            my_bits = labels[first : first + (1 << width)]
            recovered.append(np.flatnonzero((my_bits == label).all(axis=1)).tolist())
            first += 1 << width
        return recovered

    assert read(market.encoding.labels.of(round_)[0]) == [[digit] for digit in digits_of(codes)]
    assert read(market.encoding.labels.of(market.round())[0]) == [[]] * len(FLAT)


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

        codes = range(1 << BITS[place])
        assert farthest(codes, within, inside[place], -1) == low
        assert farthest(codes, within, inside[place], 1) == high


def farthest(codes: range, within: Callable[[int], bool], inside: int, step: int) -> int:
    """The last code from `inside` on in one direction that is within, by halving."""
    far = codes[0] if step < 0 else codes[-1]
    near = inside
    if within(far):
        return far
    while abs(far - near) > 1:
        middle = (far + near) // 2
        near, far = (middle, far) if within(middle) else (near, middle)
    return near
