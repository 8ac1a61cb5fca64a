"""Broadcast encoding of a formula over digits: one event message for all interests of a round.

`ccbps.encodings.broadcast.window_slots` says which slots, pads and rows there are. Here are the two
encoders, the decoder and the simulator: AES for the pads, and straight-line programs for all the
rest (`ccbps.encodings.broadcast.window_programs`).

=================  ========================================================================
event message      the labels of the values of all digits used (`ccbps.encodings.labels`)
interest message   a nonce of 12 bytes; then slots and rows, a bit each, the first one lowest
=================  ========================================================================

Hazard: labels of a round serve one event. A second one under the same labels shows the broker
where both differ, and opens interests at both. Labels are for the broker alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Randomness, Words
from ccbps.encodings.broadcast.window_programs import broker_program, subscriber_program
from ccbps.encodings.broadcast.window_slots import WindowSlots
from ccbps.encodings.labels import NONCE_BYTES, Labels
from ccbps.encodings.rows import Draw, PairEncoding, used_bits
from ccbps.encodings.straight_line.planes import run_rows
from ccbps.encodings.straight_line.program import StraightLine
from ccbps.programs.formula import Formula

LAYOUT: Final = 2
"""Number of the rule by which messages follow from a formula; part of fingerprints."""
DECODE_ROWS: Final = 1 << 12
"""Largest number of pairs decoded together."""


class BroadcastEncoding(PairEncoding):
    """Encoders, decoder and simulator of one formula.

    Attributes:
        slots: slots and rows of interest messages.
        interest_bits: bits of the subscriber's input.
        randomness_bytes: bytes of the labels of a round.
        labels: labels of digits.
    """

    def __init__(self, formula: Formula, widths: Sequence[int], interest_bits: int) -> None:
        """Hand out slots and labels.

        Args:
            formula: formula over digits, by their number, and interest bits.
            widths: bits of each digit.
            interest_bits: bits of the subscriber's input.
        """
        self.slots = slots = WindowSlots(formula, widths)
        self.interest_bits = interest_bits
        self.labels = Labels([slots.widths[digit] for digit in slots.digits], slots.pad_bytes)
        self.event_bytes, self.randomness_bytes = self.labels.event_bytes, self.labels.round_bytes
        self._body_bytes = -(-slots.bits // 8)
        self.interest_bytes = NONCE_BYTES + self._body_bytes

    # -- the two programs -------------------------------------------------------------------------

    @cached_property
    def subscriber(self) -> StraightLine:
        """Program from free random bits, select bits, all pads and interest bits to a message."""
        return subscriber_program(self.slots, self.interest_bits)

    @cached_property
    def broker(self) -> StraightLine:
        """Program from a message's bits, select bits and pads that labels open to the answer."""
        return broker_program(self.slots)

    # -- messages ---------------------------------------------------------------------------------

    def encode_event(self, event: Bytes, random: Bytes, out: Bytes) -> None:
        """Write event messages.

        Args:
            event: values of all digits used, shape (count, digits), uint8.
            random: uniform bytes of the rounds' labels, shape (count, randomness_bytes).
            out: place of the messages, shape (count, event_bytes).
        """
        self.labels.choose(event, random, out)

    def encode_interest(
        self,
        interest: Words,
        draw: Draw,
        fresh: Randomness,
        out: Bytes,
        *,
        index: Index | None = None,
    ) -> None:
        """Write interest messages.

        Args:
            interest: packed interest bits, shape (distinct, words).
            draw: uniform bytes of the rounds' labels; see `ccbps.encodings.rows.Draw`.
            fresh: the subscriber's own randomness.
            out: place of the messages, shape (count, interest_bytes).
            index: row of `interest` for each message; None where there is one for all.
        """
        labels, free_bytes = self.labels, self.slots.free_bytes
        octets = np.ascontiguousarray(interest).view(np.uint8)[:, : -(-self.interest_bits // 8)]

        def fill(at: slice, free: Bytes, select: Bytes, pads: Bytes, own: Bytes) -> None:
            random = np.frombuffer(fresh(len(free) * (NONCE_BYTES + free_bytes)), dtype=np.uint8)
            random = random.reshape(len(free), -1)
            out[at, :NONCE_BYTES] = random[:, :NONCE_BYTES]
            free[:] = random[:, NONCE_BYTES:]
            every = labels.of(draw(at.start, at.stop))
            labels.write(every, random[:, :NONCE_BYTES], select, pads)
            own[:] = octets[0 if index is None else index[at]]

        pads = labels.pad_bytes * labels.count
        sizes = free_bytes, labels.select_bytes, pads, octets.shape[1]
        run_rows(self.subscriber, sizes, fill, out[:, NONCE_BYTES:])

    def _decode(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bools]:
        answers = np.empty(len(events), dtype=np.bool_)

        def fill(at: slice, body: Bytes, select: Bytes, pads: Bytes) -> None:
            body[:] = interests[at, NONCE_BYTES:]
            self.labels.open(events[at], interests[at, :NONCE_BYTES], select, pads)

        pads = self.labels.pad_bytes * len(self.slots.digits)
        sizes = self._body_bytes, self.labels.select_bytes, pads
        run_rows(self.broker, sizes, fill, answers, DECODE_ROWS)
        return answers, np.not_equal(interests[:, -1] & ~used_bits(self.slots.bits), 0)

    def simulate(self, answers: Bools, uniform: Bytes) -> tuple[Bytes, Bytes]:
        """Make pairs of messages from the answers alone (SIM).

        They are distributed as the real ones if AES-128 is a pseudorandom function.

        Args:
            answers: shape (batch,), bool.
            uniform: fresh uniform bytes, shape (batch, event_bytes + interest_bytes).
        """
        events = uniform[:, : self.event_bytes].copy()
        interests = uniform[:, self.event_bytes :].copy()
        interests[:, -1] &= used_bits(self.slots.bits)
        # Slot 0 is the root: the answer is that bit plus products that it is not in.
        wrong = self.decode(events, interests) != answers
        interests[:, NONCE_BYTES] ^= wrong.astype(np.uint8)
        return events, interests
