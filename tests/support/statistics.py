"""Statistics that tell samples of messages apart, and the bits of messages that they look at.

A sample is an array of bits, shape (bits, rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ccbps.arrays import Bools, Bytes, Index
from ccbps.ciphers.many_keys import encipher_rows
from ccbps.encodings.broadcast.encoding import BroadcastEncoding
from ccbps.encodings.formula.gates import Gate
from ccbps.encodings.labels import LABEL_BYTES, NONCE_BYTES
from tests.support.formula_strategies import unpacked

Counts = NDArray[np.int64]
PValues = NDArray[np.float64]

FAMILY_ERROR = 1e-4
"""Chance that a sound encoder would have been refused with fixed seeds."""


BITS = (16, 16, 20)
"""Bits of the attributes of a box of real size."""
EVENT = (1200, 65_535, 0)
FULL = [(0, (1 << bits) - 1) for bits in BITS]
TIGHT = [(code, code) for code in EVENT]
RANGES = {
    "tight": TIGHT,
    "full": FULL,
    "empty": [(1, 0), *FULL[1:]],
    "beside": [*TIGHT[:2], (1, 1)],
}
"""Boxes around the event: one code, everything, nothing, one code beside it."""
MATCHING = {"tight": True, "full": True, "empty": False, "beside": False}


def two_sided(first: Counts, second: Counts, samples: int) -> PValues:
    """Compute p-values of "both samples have the same chance of a one", for each pair of counts."""
    chance = (first + second) / (2 * samples)
    spread = 2 * samples * chance * (1 - chance)
    square = np.zeros(len(first))
    np.divide((first - second) ** 2, spread, out=square, where=spread > 0)
    return np.asarray(stats.chi2.sf(square, 1))


def corrected(p_values: PValues) -> float:
    """Bound the chance that the least of so many p-values is so small (Bonferroni)."""
    return float(min(1.0, len(p_values) * p_values.min()))


def pairs_of_bits(count: int, others: int, seed: int | Sequence[int]) -> Index:
    """Choose pairs of bits: neighbours, and some others; shape (2, pairs)."""
    drawn = np.random.default_rng(seed).integers(0, count, (others, 2)).tolist()
    return np.array([*pairwise(range(count)), *drawn]).T


def bit_statistics(
    first: Bools, second: Bools, others: int, seed: int | Sequence[int]
) -> list[PValues]:
    """Compare bits, and products and sums of pairs of bits."""
    left, right = pairs_of_bits(len(first), others, seed)
    samples = first.shape[1]
    return [
        two_sided(first.sum(axis=1), second.sum(axis=1), samples),
        two_sided(*((s[left] & s[right]).sum(axis=1) for s in (first, second)), samples),
        two_sided(*((s[left] ^ s[right]).sum(axis=1) for s in (first, second)), samples),
    ]


def after_gates(slots: Bools, gates: Sequence[Gate]) -> Bools:
    """Return slots after the broker's work."""
    decoded = slots.copy()
    for gate in gates:
        products = decoded[list(gate.lefts), None] & decoded[None, list(gate.rights)]
        decoded[np.array(gate.targets)] ^= products
    return decoded


def broadcast_view(
    encoding: BroadcastEncoding, events: Bytes, interests: Bytes
) -> tuple[Bools, Bools]:
    """Return bits that a broker of a broadcast sees.

    Returns:
        bits of interest messages, select bits, and slots when pads are off; and these slots after
        the broker's work.
    """
    slots, count = encoding.slots, len(events)
    body = np.ascontiguousarray(unpacked(interests[:, NONCE_BYTES:], slots.bits).T)
    values, rows = body[: slots.slots].copy(), body[slots.slots :]
    labels = events.reshape(count, -1, LABEL_BYTES)
    selects = []
    for place, digit in enumerate(slots.digits):
        width, keys = slots.widths[digit], np.ascontiguousarray(labels[:, place])
        select = keys[:, 0] & (1 << width) - 1
        selects += [select >> i & 1 == 1 for i in range(width)]
        block = np.zeros((count, 1, 16), np.uint8)
        block[:, 0, :NONCE_BYTES], block[:, 0, NONCE_BYTES] = interests[:, :NONCE_BYTES], place
        assert slots.pads[digit] <= 128
        pads = unpacked(encipher_rows(keys, block)[:, 0], slots.pads[digit]).T
        for one in slots.coordinates:
            if one.digit != digit:
                continue
            if one.kind == "direct":
                values[one.slot] ^= (select == 1) & (len(one.lines) % 2 == 1)
                continue
            own = [np.zeros(count, np.bool_), *rows[one.rows[0] : sum(one.rows)]]
            if one.kind == "programmed":
                own.append(np.bitwise_xor.reduce(own))
            values[one.slot] ^= np.choose(select, own) ^ pads[one.pad]
    return np.vstack([body, selects, values]), after_gates(values, slots.gates)
