"""Equality with one of some private values: a product and a sum in a field, perfect, two messages.

Publisher and subscriber share, for each slot j, a uniform r_j other than 0 and a uniform s_j. For
a value x the publisher sends ``r_j x + s_j`` for every slot, and the subscriber sends
``r_j y_j + s_j`` for its values y_j, turned round by a shared number of places. The broker looks
for a slot with equal messages.

Where the y_j differ, at most one slot is equal. All others differ by r_j (x + y_j), which is
uniform among the elements other than 0, whatever x and y_j are. The place of the equal slot is
uniform, too, so the two messages depend on the answer and on nothing else (`simulate`). Unused
slots take values that no event has. They need not differ from one another.

With r_j = 0 all values would be equal. A multiplier is the first element other than 0 of some
uniform ones, 64 bits or more in all. With a chance of at most 2^-64 a slot they are all 0, and the
round is refused, on both sides and whatever the values are.

Sources: Feige, Kilian and Naor, STOC 1994 (equality in one message of each party); Kilian.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Final

import numpy as np

from ccbps.algebra.binary_field import BinaryField
from ccbps.arrays import Bools, Bytes, Index, Words, slices
from ccbps.checks import array, whole
from ccbps.encodings.rows import Draw, PairEncoding, draw_rows, message_index
from ccbps.errors import ParameterError, SamplingError

BLOCK: Final = 1 << 11
"""Slots treated together, so that a product's parts fit the cache."""
MULTIPLIER_BITS: Final = 64
"""Bits, at least, from which a multiplier comes: they are all 0 with a chance of 2^-64."""
TURN_BYTES: Final = 8
"""Bytes from which the place of the first value comes; none where there is one slot."""


class EqualityEncoding(PairEncoding):
    """Encoders, decoder and simulator for one field and number of slots.

    Attributes:
        field: the field; its elements are the values.
        slots: number of values of an interest, a power of two.
        candidates: number of uniform elements from which a multiplier comes.
    """

    def __init__(self, bits: int, slots: int) -> None:
        self.field, self.slots = BinaryField(bits), whole("slots", slots, 1)
        if slots & (slots - 1):
            raise ParameterError(f"slots must be a power of two, got {slots}")
        size = self.field.element_bytes
        self.candidates = -(-MULTIPLIER_BITS // bits)
        self._turn = TURN_BYTES if slots > 1 else 0
        self.event_bytes = self.interest_bytes = slots * size
        self.randomness_bytes = self._turn + slots * (self.candidates + 1) * size

    def encode_event(
        self, values: Words, randomness: Bytes | Draw, out: Bytes | None = None
    ) -> Bytes:
        """Encode event messages.

        Args:
            values: the events' values, shape (limbs, batch), or (limbs, 1) for one for all.
            randomness: shape (batch, randomness_bytes), uint8, rows contiguous; or a function.
            out: place of the messages, shape (batch, event_bytes); made for an array of randomness.

        Raises:
            ShapeError: a shape does not fit.
            SamplingError: a round gives no multiplier; no message may be sent.
        """
        draw, out = draw_rows(randomness, self.randomness_bytes, out, self.event_bytes)
        for at in self._blocks(len(out)):
            here = values if values.shape[1] == 1 else values[:, at]
            shape = len(values), at.stop - at.start, self.slots
            each = np.broadcast_to(here[:, :, None], shape)
            self._write(each, self._parts(draw(at.start, at.stop)), out[at])
        return out

    def encode_interest(
        self,
        values: Words,
        randomness: Bytes | Draw,
        out: Bytes | None = None,
        *,
        index: Index | None = None,
    ) -> Bytes:
        """Encode interest messages.

        Args:
            values: values of each interest, shape (limbs, interests, slots).
            randomness: as for events.
            out: as for events, of interest_bytes.
            index: interest of each message; None where there is one for each, or one for all.

        Raises:
            ShapeError: a shape does not fit.
            SamplingError: as for events.
        """
        draw, out = draw_rows(randomness, self.randomness_bytes, out, self.interest_bytes)
        index = message_index(values.shape[1], len(out), index)
        for at in self._blocks(len(out)):
            here = values[:, index[at]]
            parts = self._parts(draw(at.start, at.stop))
            if self.slots > 1:
                here = np.take_along_axis(here, self._places(parts[0])[None], axis=2)
            self._write(here, parts, out[at])
        return out

    def _decode(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bools]:
        batch, size = len(events), self.field.element_bytes
        answers, stray = np.empty(batch, dtype=np.bool_), np.zeros(batch, dtype=np.bool_)
        unit, most = gcd(size, 8), (1 << self.field.bits) - 1  # of an element in a byte
        for at in self._blocks(batch):
            apart = events[at] ^ interests[at]
            words = apart.view(f"u{unit}").reshape(-1, self.slots, size // unit)
            some = words[:, :, 0].copy()
            for place in range(1, size // unit):
                some |= words[:, :, place]
            answers[at] = (some == 0).any(axis=1)
            if self.field.bits < 8:
                stray[at] = ((events[at] | interests[at]) > most).any(axis=1)
        return answers, stray

    def simulate(self, answers: Bools, uniform: Bytes) -> tuple[Bytes, Bytes]:
        """Make a pair of messages from the answer alone, distributed as the real ones (SIM).

        Args:
            answers: shape (batch,), bool.
            uniform: fresh uniform bytes, shape (batch, randomness_bytes).

        Returns:
            event messages and interest messages, each (batch, slots * element_bytes).

        Raises:
            SamplingError: a row gives no multiplier.
        """
        array("uniform", uniform, np.uint8, (len(answers), self.randomness_bytes))
        turn, apart, events = self._parts(uniform)
        batch, shape = len(answers), (self.field.limbs, len(answers), self.slots)
        apart = apart.reshape(shape).copy()
        equal = self._places(turn)[:, 0] if self.slots > 1 else np.zeros(batch, dtype=np.intp)
        rows = np.flatnonzero(answers)
        apart[:, rows, equal[rows]] = 0
        sides = events, events ^ apart.reshape(events.shape)
        first, second = (self.field.store(side).reshape(batch, -1) for side in sides)
        return first, second

    def _blocks(self, batch: int) -> Iterator[slice]:
        return slices(batch, BLOCK // self.slots)

    def _parts(self, rows: Bytes) -> tuple[Bytes, Words, Words]:
        """Return the bytes of the turn, the multipliers and the sums, (limbs, rows * slots)."""
        size = self.field.element_bytes
        parts = rows[:, self._turn :].reshape(-1, self.candidates + 1, size)
        multipliers = self.field.load(parts[:, 0])
        for number in range(1, self.candidates):
            none = ~multipliers.any(axis=0)
            multipliers |= self.field.load(parts[:, number]) * none.astype(np.uint64)
        if not multipliers.any(axis=0).all():
            raise SamplingError(
                "the random bytes of a round give no multiplier other than 0, which happens with a "
                "chance of 2^-64: send nothing of this round, and use another one"
            )
        return rows[:, : self._turn], multipliers, self.field.load(parts[:, -1])

    def _places(self, turn: Bytes) -> Index:
        """Return the value of each slot, shape (rows, slots)."""
        first = np.ascontiguousarray(turn).view("<u8") % np.uint64(self.slots)
        places = first.astype(np.intp) + np.arange(self.slots, dtype=np.intp)
        return places & (self.slots - 1)

    def _write(self, values: Words, parts: tuple[Bytes, Words, Words], out: Bytes) -> None:
        """Write the messages of values, shape (limbs, rows, slots)."""
        _, multipliers, sums = parts
        flat = np.ascontiguousarray(values).reshape(len(values), -1)
        elements = self.field.multiply(multipliers, flat)
        elements ^= sums
        out[...] = self.field.store(elements).reshape(out.shape)
