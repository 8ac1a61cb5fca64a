"""Replicated shares of bits, and what three brokers compute on them.

A bit is the sum of three shares, x = x_0 + x_1 + x_2, and broker i holds x_i and x_{i+1} (numbers
modulo 3). Two brokers hold all three; one holds two uniform bits, independent of x. Sums are
computed share by share. Of a product, broker i computes::

    z_i = x_i (y_i + y_{i+1}) + x_{i+1} y_i

The three z_i add up to x y, and likewise for a sum of any number of products. Broker i adds a mask
and sends z_i to broker i - 1; then the brokers hold replicated shares of the sum. The masks
are F(k_i) + F(k_{i+1}), where k_i is known to brokers i and i - 1. The three add up to 0, and each
is uniform for a broker that lacks a key.

Bits of an interest lie in *lanes*: an array of shape (rows, words), where bit j of word w is of
interest 64 w + j.

Source: Araki, Furukawa, Lindell, Nof and Ohara, CCS 2016.

Hazards: two brokers that collude read everything. A mask that is used twice reveals the sum of two
values.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Bytes, Words
from ccbps.programs.layers import Gate, Layers

WORD: Final = 64
Shares: TypeAlias = tuple[Words, Words]
"""Shares i and i + 1 of broker i."""
Masks: TypeAlias = Callable[[tuple[int, ...]], Words]
"""Function that returns the next masks of a broker, in an array of a shape."""
Steps: TypeAlias = Generator[Words, Words, Shares]
"""Work of broker i: it yields words for broker i - 1, and is sent those of broker i + 1."""
_FEW: Final = 10
"""Number of events for which sums of four rows do not pay off."""
_GROUP: Final = 4
"""Rows of a table whose sums are all computed at once: 2^4 sums take fewer additions."""


def lanes(bits: Bytes) -> Words:
    """Return bits of interests in lanes, shape (rows, words).

    Args:
        bits: 0 and 1, shape (count, rows), uint8.
    """
    return packed(bits.T)


def packed(bits: Bytes) -> Words:
    """Return rows of bits, one for each lane, in words, shape (rows, words).

    Args:
        bits: 0 and 1, shape (rows, count), uint8.
    """
    octets = np.packbits(bits, axis=1, bitorder="little")
    out = np.zeros((len(bits), 8 * -(-bits.shape[1] // WORD)), dtype=np.uint8)
    out[:, : octets.shape[1]] = octets
    return out.view("<u8").astype(np.uint64, copy=False)


def unpacked(words: Words, count: int) -> Bools:
    """Return the first bits of lanes, shape (..., count)."""
    octets = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    return np.unpackbits(octets, axis=-1, bitorder="little", count=count).view(np.bool_)


def whole_vectors(bits: Bytes, digit_bits: Sequence[int], first: bool) -> Bytes:
    """Return a share of events with the last bit of each one-hot vector, uint8, (count, bits).

    Args:
        bits: share of the bits that are sent, 0 and 1, shape (count, bits).
        digit_bits: bits of each digit.
        first: True for share 0, to which the sum of a vector, 1, is added.
    """
    parts, start = [], 0
    for width in digit_bits:
        sent = bits[:, start : start + (1 << width) - 1]
        last = np.bitwise_xor.reduce(sent, axis=1, keepdims=True) ^ np.uint8(first)
        parts += [sent, last]
        start += (1 << width) - 1
    return np.concatenate([*parts, bits[:, start:]], axis=1)


class Evaluation:
    """Evaluation of a program by one broker, for events and a block of interests.

    Args:
        program: the layers.
        digit_bits: bits of each digit.
        tables: digit that each table is looked up with.
        table_rows: first row of each table, and the end of the last one, where single rows begin.
    """

    def __init__(
        self,
        program: Layers,
        digit_bits: Sequence[int],
        tables: Sequence[int],
        table_rows: Sequence[int],
    ) -> None:
        self._program, self._table_rows = program, list(table_rows)
        starts = np.cumsum([0, *(1 << width for width in digit_bits)]).tolist()
        self._vectors = [slice(starts[digit], starts[digit + 1]) for digit in tables]
        self._computed = starts[-1]

    def steps(
        self,
        events: tuple[Bytes, Bytes],
        interests: Shares,
        masks: Masks,
        *,
        opened: bool = True,
        good: Callable[[], Bools | None] | None = None,
        keys: tuple[Bytes, Bytes] | None = None,
        granted: Callable[[], Shares | None] | None = None,
    ) -> Steps:
        """Evaluate all events with all interests.

        Args:
            events: two shares of events with whole vectors, 0 and 1, shape (events, bits).
            interests: two shares of interests in lanes, shape (rows, words).
            masks: masks of this broker, which nobody uses again.
            opened: True to open the answers to all three brokers.
            good: function that marks the events that have answers, shape (events,), and returns
                None until all three brokers know them; None if all events have answers.
            keys: two shares of a key of each event, shape (events, a multiple of 8 bytes), for
                answers that no broker learns.
            granted: function that returns two shares of a bit of each event and lane, shape
                (events, words), and None until this broker has them. An answer is 1 only where this
                bit is, too. None for no such bits.

        Returns:
            (answers, answers), shape (good events, words), if opened; else two shares of them. With
            keys, (z, z) for this broker's z of answers times keys, shape (good events, lanes, words
            of a key): the sum of the three z is the key where the answer is 1, and 0 elsewhere.
        """
        x, y = events[0], events[0] ^ events[1]
        first, second = interests
        values: list[Shares] = []
        for bit in range(self._program.bits):
            pair = (-(part[:, self._computed + bit].astype(np.uint64)) for part in events)
            left, right = (part[:, None] for part in pair)
            values.append((left, right))
        for place in range(self._program.rows):
            number = self._table_rows[-1] + place
            values.append((first[number][None], second[number][None]))
        count, words = len(x), first.shape[1]
        for layer in self._program.layers:
            sums = np.zeros((len(layer), count, words), dtype=np.uint64)
            for gate, out in zip(layer, sums, strict=True):
                self._add(gate, values, (x, y), interests, out)
            sums ^= masks(sums.shape)
            others = yield sums
            values += zip(sums, others, strict=True)
        own, other = values[-1]
        if granted is not None:
            while (allowed := granted()) is None:
                yield np.zeros(0, dtype=np.uint64)  # its turn passes
            sums = _product((own, other), allowed)[None]
            sums ^= masks(sums.shape)
            others = yield sums
            own, other = sums[0], others[0]
        if good is not None:
            while (rows := good()) is None:
                yield np.zeros(0, dtype=np.uint64)  # its turn passes
            own, other = own[rows], other[rows]
            keys = None if keys is None else (keys[0][rows], keys[1][rows])
        if keys is not None:
            times_keys = _times_keys((own, other), keys)
            times_keys ^= masks(times_keys.shape)
            return times_keys, times_keys
        if not opened:
            return own, other
        third = yield other
        answers = own ^ other ^ third
        return answers, answers

    def _add(
        self,
        gate: Gate,
        values: Sequence[Shares],
        events: tuple[Bytes, Bytes],
        interests: Shares,
        out: Words,
    ) -> None:
        """Add this broker's part of a gate."""
        x, y = events
        for table in gate.tables:
            vector = self._vectors[table]
            rows = slice(self._table_rows[table], self._table_rows[table + 1])
            add_rows(interests[0][rows], y[:, vector], out)
            add_rows(interests[1][rows], x[:, vector], out)
        for left, right in gate.products:
            out ^= _product(values[left], values[right])
        for operand in gate.operands:
            out ^= values[operand][0]


def _product(left: Shares, right: Shares) -> Words:
    """Return this broker's part of a product."""
    (a, b), (c, d) = left, right
    out: Words = (a & (c ^ d)) ^ (b & c)
    return out


def _times_keys(answers: Shares, keys: tuple[Bytes, Bytes]) -> Words:
    """Return this broker's part of answers times keys, shape (events, lanes, words of a key).

    For each event it is one of four sums of its shares of the key, independent of the interest.
    """
    own, other = (unpacked(part, WORD * part.shape[1]).view(np.uint8) for part in answers)
    first, second = (
        np.ascontiguousarray(key).view("<u8").astype(np.uint64, copy=False) for key in keys
    )
    sums = np.stack([np.zeros_like(first), first ^ second, first, second], axis=1)
    out = np.empty((*own.shape, first.shape[1]), dtype=np.uint64)
    for event, chosen in enumerate(own | other << np.uint8(1)):
        np.take(sums[event], chosen, axis=0, out=out[event])
    return out


def add_rows(rows: Words, chosen: Bytes, out: Words) -> None:
    """Add chosen rows to sums.

    All sums of four rows are computed once, and each event takes one of them (Arlazarov et al.,
    1970). A few events add their rows directly.

    Args:
        rows: rows of a table, shape (rows, words).
        chosen: rows of each event, 0 and 1, shape (events, rows).
        out: sums, shape (events, words).
    """
    if len(chosen) < _FEW:
        for own, total in zip(chosen.view(np.bool_), out, strict=True):
            total ^= np.bitwise_xor.reduce(rows[own], axis=0)
        return
    for start in range(0, len(rows), _GROUP):
        part = rows[start : start + _GROUP]
        sums = np.zeros((1 << len(part), rows.shape[1]), dtype=np.uint64)
        for bit, added in enumerate(part):
            np.bitwise_xor(sums[: 1 << bit], added, out=sums[1 << bit : 2 << bit])
        weights = (1 << np.arange(len(part))).astype(np.uint8)
        out ^= sums.take(chosen[:, start : start + len(part)] @ weights, axis=0)
