"""A private weighted threshold, perfect: the Legendre symbol of a number shows its sign.

The publisher has bits x_i, the subscriber whole weights w_i and a limit t. They match where
``v = 2 (sum of w_i x_i - t) + 1`` is positive. v is odd and ``|v| <= 2 W + 1``, where W bounds the
sum of the ``|w_i|``. The prime p is such that the Legendre symbol of each such v is its sign.

Publisher and subscriber share uniform bits b_i, and modulo p uniform a_i and z and r other than 0.
With ``R = r^2``, ``e_i = x_i XOR b_i`` and ``s_i = 1 - 2 b_i``::

    event:     the bits e_i, and  c = z - sum of e_i a_i
    interest:  D_i = 2 R s_i w_i + a_i  for each i,  and  d = R (1 - 2 t) + 2 R sum of b_i w_i - z

Since ``w_i x_i = s_i w_i e_i + b_i w_i``, the broker computes ``sum of e_i D_i + c + d = R v``,
whose Legendre symbol is that of v. R v is uniform among the numbers of this symbol, e and D are
uniform, and so is c, as nobody else knows z. So the messages depend on the answer and on nothing
else (`simulate`). A subscriber sends n + 1 numbers, a publisher n bits and one number.

Primes below 2^50 take NumPy's integers, longer ones GMP.

Sources: Feige, Kilian and Naor, STOC 1994, and [SSM] section 5 (thresholds by quadratic residues).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import numpy as np

from ccbps.algebra import modular
from ccbps.algebra.sign_primes import sign_prime
from ccbps.algebra.small_prime import MOST_BITS, SmallPrime
from ccbps.arrays import Bools, Bytes, Index, Numbers, Words, slices
from ccbps.checks import array, whole
from ccbps.encodings.rows import (
    Draw,
    PairEncoding,
    draw_rows,
    message_index,
    used_bits,
)
from ccbps.errors import SamplingError

BLOCK: Final = 1 << 14
"""Numbers that are encoded together."""
DECODED: Final = 1 << 16
"""Numbers that are decoded together: more, since each takes little work."""
FAILURE: Final = 2.0**-64
"""Greatest chance that a round's words do not give its numbers."""
SPARE_BYTES: Final = 10
"""Bytes by which the bytes of a long number's randomness exceed the number: one of 1,026 numbers is
missed with a chance below `FAILURE`."""


class ThresholdEncoding(PairEncoding):
    """Encoders, decoder and simulator for a number of bits and a bound of weights.

    Attributes:
        bits: number n of an event's bits.
        total: bound W of the sum of absolute weights.
        prime: the prime p.
        number_bytes: bytes of a number modulo p.
    """

    def __init__(self, bits: int, total: int) -> None:
        self.bits, self.total = whole("bits", bits, 1), whole("total", total, 1)
        self.prime = sign_prime(total)
        self.number_bytes = -(-self.prime.bit_length() // 8)
        self._small = SmallPrime(self.prime) if self.prime < 1 << MOST_BITS else None
        self._bit_bytes = -(-bits // 8)
        self.event_bytes = self._bit_bytes + self.number_bytes
        self.interest_bytes = (bits + 1) * self.number_bytes
        if self._small:
            # With so short a word all randomness of the smallest prime can be enumerated.
            self._in_word = max(k for k in range(1, 20) if self.prime**k < 1 << MOST_BITS)
            self._word_bits = 12 if self.prime ** (bits + 2) < 1 << 12 else 64
            self._words = -(-(bits + 2) // self._in_word)
            wasted = (1 << self._word_bits) % self._multiple / (1 << self._word_bits)
            words = self._words + _reserve(self._words, wasted, 1 / self.prime)
            drawn = -(-self._word_bits // 8) * words
        else:
            drawn = (bits + 2) * (self.number_bytes + SPARE_BYTES)
        self.randomness_bytes = 8 * -(-bits // 64) + drawn

    def encode_event(
        self, values: Bytes, randomness: Bytes | Draw, out: Bytes | None = None
    ) -> Bytes:
        """Encode event messages.

        Args:
            values: the events' bits, 0 or 1, shape (batch, bits) or (1, bits), uint8.
            randomness: shape (batch, randomness_bytes), uint8, rows contiguous; or a function.
            out: place of the messages, shape (batch, event_bytes); made for an array of randomness.

        Raises:
            ShapeError: a shape does not fit.
            SamplingError: a round's random bytes do not give numbers; send nothing of it.
        """
        draw, out = draw_rows(randomness, self.randomness_bytes, out, self.event_bytes)
        array("values", values, np.uint8, (1 if len(values) == 1 else len(out), self.bits))
        for at in self._blocks(len(out)):
            turns, drawn = self._drawn(draw(at.start, at.stop))
            sent = (values if len(values) == 1 else values[at]) ^ turns
            out[at, : self._bit_bytes] = np.packbits(sent, axis=1, bitorder="little")
            if self._small:
                masks = (drawn[:, 2:] * sent).sum(axis=1)
                corrections = self._small.unsigned(drawn[:, 1] - masks)
                self._store(corrections[:, None], out[at, self._bit_bytes :])
                continue
            sums = [
                (row[1] - sum(row[2 + i] for i in np.flatnonzero(bits).tolist())) % self.prime
                for row, bits in zip(drawn, sent, strict=True)
            ]
            out[at, self._bit_bytes :] = modular.rows_to(sums, self.number_bytes)
        return out

    def encode_interest(
        self,
        weights: Numbers,
        limits: Numbers,
        randomness: Bytes | Draw,
        out: Bytes | None = None,
        *,
        index: Index | None = None,
    ) -> Bytes:
        """Encode interest messages.

        Args:
            weights: weights of each interest, int64, shape (interests, bits).
            limits: limit t of each interest, int64, shape (interests,).
            randomness: as for events.
            out: as for events, of interest_bytes.
            index: interest of each message; None where there is one for each, or one for all.

        Raises:
            ShapeError: a shape does not fit.
            SamplingError: as for events.
        """
        draw, out = draw_rows(randomness, self.randomness_bytes, out, self.interest_bytes)
        index = message_index(len(weights), len(out), index)
        for at in self._blocks(len(out)):
            turns, drawn = self._drawn(draw(at.start, at.stop))
            own, limit = weights[index[at]], limits[index[at]]
            constant = 1 - 2 * limit + 2 * (own * turns).sum(axis=1)
            signed = 2 * own * (1 - 2 * turns.astype(np.int64))
            if self._small:
                squares = self._small.product(drawn[:, 0], drawn[:, 0])[:, None]
                numbers = np.empty((len(own), self.bits + 1), dtype=np.int64)
                numbers[:, :-1] = self._small.product(squares, signed)
                numbers[:, -1] = self._small.product(squares[:, 0], constant)
                numbers[:, -1] -= drawn[:, 1]
                numbers[:, :-1] += drawn[:, 2:]
                self._store(self._small.unsigned(numbers), out[at])
                continue
            for number, row in enumerate(drawn):
                square = row[0] * row[0] % self.prime
                factors = [*signed[number].tolist(), int(constant[number])]
                masks = [*row[2:], -row[1]]
                own_numbers = [
                    (square * factor + mask) % self.prime
                    for factor, mask in zip(factors, masks, strict=True)
                ]
                octets = modular.rows_to(own_numbers, self.number_bytes)
                out[at.start + number] = octets.reshape(-1)
        return out

    def _decode(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bools]:
        split = self._bit_bytes
        answers = np.empty(len(events), dtype=np.bool_)
        stray = events[:, split - 1] & ~used_bits(self.bits) != 0
        for at in self._blocks(len(events), DECODED):
            bits = np.unpackbits(events[at, :split], axis=1, bitorder="little")
            chosen = np.ones((len(bits), self.bits + 1), dtype=np.uint8)
            chosen[:, :-1] = bits[:, : self.bits]
            if self._small:
                values = self._loaded(interests[at], self.bits + 1)
                corrections = self._loaded(events[at, split:], 1)[:, 0]
                wide = (values.max(axis=1) >= self.prime) | (corrections >= self.prime)
                sums = np.einsum("rn,rn->r", values, chosen) + corrections
                answers[at] = self._small.symbols(self._small.reduced(sums)) == 1
            else:
                numbers = interests[at].reshape(len(bits), -1, self.number_bytes)
                long_sums, wide = self._long_sums(numbers, chosen, events[at, split:])
                answers[at] = [modular.jacobi(value, self.prime) == 1 for value in long_sums]
            stray[at] |= wide
        return answers, stray

    def simulate(self, answers: Bools, uniform: Bytes) -> tuple[Bytes, Bytes]:
        """Make a pair of messages from the answer alone, distributed as the real ones (SIM).

        Args:
            answers: shape (batch,), bool.
            uniform: fresh uniform bytes, shape (batch, randomness_bytes).

        Returns:
            event messages and interest messages.

        Raises:
            SamplingError: a row does not give numbers.
        """
        array("uniform", uniform, np.uint8, (len(answers), self.randomness_bytes))
        sent, drawn = self._drawn(uniform)
        rows = []
        for bits, numbers, answer in zip(sent, drawn, answers.tolist(), strict=True):
            root, correction, *masks = map(int, numbers)
            target = root * root * (1 if answer else -1)  # -1 is no square, since p = 3 modulo 4
            chosen = sum(mask for mask, bit in zip(masks, bits.tolist(), strict=True) if bit)
            rows.append([*masks, target - chosen - correction, correction])
        size = self.number_bytes
        octets = b"".join(
            (value % self.prime).to_bytes(size, self._order) for row in rows for value in row
        )
        numbers = np.frombuffer(octets, dtype=np.uint8).reshape(len(answers), -1)
        bits = np.packbits(sent, axis=1, bitorder="little")
        return np.concatenate([bits, numbers[:, -size:]], axis=1), numbers[:, :-size].copy()

    @property
    def _order(self) -> Literal["little", "big"]:
        return "little" if self._small else "big"

    def _blocks(self, batch: int, numbers: int = BLOCK) -> Iterator[slice]:
        return slices(batch, numbers // (self.bits + 2))

    def _drawn(self, rows: Bytes) -> tuple[Bytes, Any]:
        """Return the bits b, shape (rows, bits), and the numbers r, z and a of each row."""
        start = 8 * -(-self.bits // 64)
        turns = np.unpackbits(rows[:, :start], axis=1, bitorder="little")[:, : self.bits]
        if self._small:
            return turns, self._short_numbers(rows[:, start:], self._small)
        size = self.number_bytes + SPARE_BYTES
        most = (1 << 8 * size) // self.prime * self.prime
        numbers = []
        for row in rows[:, start:]:
            drawn = modular.rows_from(row.reshape(-1, size))
            if max(drawn) >= most or not drawn[0] % self.prime:
                raise _no_numbers()
            numbers.append([number % self.prime for number in drawn])
        return turns, numbers

    @property
    def _multiple(self) -> int:
        """Number of values of the numbers in a word."""
        return int(self.prime ** min(self._in_word, self.bits + 2))

    def _short_numbers(self, rows: Bytes, field: SmallPrime) -> Numbers:
        bits, multiple, p = self._word_bits, np.uint64(self._multiple), np.uint64(self.prime)
        words = np.ascontiguousarray(rows).view(f"<u{-(-bits // 8)}").astype(np.uint64)
        words &= np.uint64((1 << bits) - 1)
        usable = words < np.uint64((1 << bits) // self._multiple * self._multiple)
        words -= words // multiple * multiple
        chosen, spare = words[:, : self._words], words[:, self._words :]
        usable[:, 0] &= chosen[:, 0] % p != 0  # r
        for row in np.flatnonzero(~usable[:, : self._words].all(axis=1)).tolist():
            others = iter(spare[row, usable[row, self._words :]].tolist())
            for place in np.flatnonzero(~usable[row, : self._words]).tolist():
                for word in others:
                    if place or word % self.prime:
                        chosen[row, place] = word
                        break
                else:
                    raise _no_numbers()
        if self._in_word > 1:
            digits = np.empty((*chosen.shape, self._in_word), dtype=np.uint64)
            for place in range(self._in_word):
                chosen, digits[..., place] = np.divmod(chosen, p)
            chosen = digits.reshape(len(rows), -1)[:, : self.bits + 2]
        return field.reduced(chosen)

    def _long_sums(
        self, numbers: Bytes, chosen: Bytes, corrections: Bytes
    ) -> tuple[list[int], Bools]:
        """Return the sums of chosen numbers and a correction, and the rows with one not below p."""
        totals, wide = [], np.zeros(len(numbers), dtype=np.bool_)
        largest = np.frombuffer(modular.to_bytes(self.prime, self.number_bytes), dtype=np.uint8)
        for row, own in enumerate(numbers):
            octets = np.concatenate([own, corrections[row : row + 1]])
            wide[row] = _not_below(octets, largest)
            columns = octets[np.append(chosen[row], 1).astype(np.bool_)].sum(axis=0, dtype=np.int64)
            totals.append(_from_columns(columns) % self.prime)
        return totals, wide

    def _loaded(self, rows: Bytes, count: int) -> Words:
        """Return rows of numbers, little-endian, as words, shape (rows, count)."""
        width, size = rows.shape[1], self.number_bytes
        room = np.zeros(len(rows) * width + 8, dtype=np.uint8)
        room[:-8].reshape(rows.shape)[...] = rows
        # Words of 8 bytes that overlap: three times as fast as copies of so few bytes.
        words = np.ndarray((len(rows), count), "<u8", room, strides=(width, size))
        return words & np.uint64((1 << 8 * size) - 1)

    def _store(self, numbers: Words, out: Bytes) -> None:
        """Write rows of numbers, shape (rows, count)."""
        octets = numbers.astype("<u8", copy=False)[..., None].view(np.uint8)
        places = out.reshape(*numbers.shape, self.number_bytes)
        for place in range(self.number_bytes):
            places[..., place] = octets[..., place]


def _reserve(count: int, wasted: float, zero: float) -> int:
    """Return a number of further words, so that they are too few with a chance below `FAILURE`.

    Args:
        count: number of words that are needed.
        wasted: chance that a word cannot be used.
        zero: chance that a word gives 0, which one of them, r, must not be.
    """
    # Each further word is missed if there is one more word that is wasted, or a 0 in place of r.
    reserve, chance = 0, count * wasted + zero
    while chance > FAILURE:
        reserve += 1
        chance *= (count + reserve) / (reserve + 1) * wasted + wasted + zero
    return reserve


def _not_below(numbers: Bytes, bound: Bytes) -> bool:
    """Tell whether any number of bytes, big-endian, is not below a bound."""
    apart = numbers != bound
    first = apart.argmax(axis=1)
    rows = np.arange(len(numbers))
    return not (apart.any(axis=1) & (numbers[rows, first] < bound[first])).all()


def _from_columns(columns: Numbers) -> int:
    """Return the number whose bytes, big-endian, are sums of bytes below 2^48."""
    total = 0
    for part in range(6):
        total += modular.from_bytes((columns >> 8 * part & 255).astype(np.uint8).tobytes()) << (
            8 * part
        )
    return total


def _no_numbers() -> SamplingError:
    return SamplingError(
        "the random bytes of a round do not give its numbers, which happens with a chance of "
        "2^-64: send nothing of this round, and use another one"
    )
