"""Broadcast encoding of a formula over digits: one event message for all interests of a round.

`ccbps.encodings.broadcast.window_slots` says which slots, pads and rows there are. Here are the two
encoders, the decoder and the simulator: AES for the pads, and straight-line programs for all the
rest.

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
from ccbps.encodings.broadcast.window_programs import Frame, broker_program, subscriber_program
from ccbps.encodings.broadcast.window_slots import WindowSlots
from ccbps.encodings.labels import NONCE_BYTES, Labels
from ccbps.encodings.rows import Draw, parts_of, used_bits
from ccbps.encodings.straight_line.planes import planes
from ccbps.encodings.straight_line.program import StraightLine
from ccbps.errors import ShapeError
from ccbps.programs.formula import Formula

LAYOUT: Final = 1
"""Number of the rule by which messages follow from a formula; part of fingerprints."""


class BroadcastEncoding:
    """The two encoders, the decoder and the simulator for one formula.

    Attributes:
        slots: what interest messages hold.
        event_bytes: bytes of an event message.
        interest_bytes: bytes of an interest message.
        randomness_bytes: bytes of labels of a round.
        labels: what is done with labels.
    """

    def __init__(self, formula: Formula, widths: Sequence[int], interest_bits: int) -> None:
        """
        Args:
            formula: over digits, by their number, and interest bits.
            widths: bits of each digit.
            interest_bits: bits of the subscriber's input.
        """
        self.slots = slots = WindowSlots(formula, widths)
        self.interest_bits = interest_bits
        used = [slots.widths[d] for d in slots.digits]
        self._frame = Frame.of(slots, interest_bits)
        self.labels = Labels(used, self._frame.pad)
        self.event_bytes, self.randomness_bytes = self.labels.event_bytes, self.labels.round_bytes
        self._body_bytes = -(-slots.bits // 8)
        self.interest_bytes = NONCE_BYTES + self._body_bytes

    # -- the two programs -------------------------------------------------------------------------

    @cached_property
    def subscriber(self) -> StraightLine:
        """From free random bits, select bits, pads of all labels and interest bits to a message."""
        return subscriber_program(self.slots, self._frame)

    @cached_property
    def broker(self) -> StraightLine:
        """From a message's bits, select bits and pads of the labels opened to the answer."""
        return broker_program(self.slots, self._frame)

    # -- messages ---------------------------------------------------------------------------------

    def encode_event(self, event: Bytes, random: Bytes, out: Bytes) -> None:
        """Write event messages.

        Args:
            event: values of all digits used, shape (count, digits), uint8.
            random: of the rounds' labels, shape (count, randomness_bytes).
            out: shape (count, event_bytes).
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
            draw: the rounds' uniform bytes for labels; see `ccbps.encodings.rows.Draw`.
            fresh: the subscriber's own randomness.
            out: shape (count, interest_bytes).
            index: row of `interest` for each message; None where there is one for all.
        """
        count, program = len(out), self.subscriber
        runner = planes(program, count)
        rows = min(runner.rows, 1 << 11)
        joined = np.zeros((rows, program.inputs), dtype=np.uint64)
        made = np.empty((rows, program.outputs), dtype=np.uint64)
        message = made.view(np.uint8)[:, : self._body_bytes]
        known = np.ascontiguousarray(interest).view(np.uint8)[:, : -(-self.interest_bits // 8)]
        free, select, pads, own = parts_of(
            joined,
            self._frame.free,
            self._frame.select,
            self._frame.pad * self.labels.count,
            known.shape[1],
        )
        if index is None:
            own[:] = known[0]
        for start in range(0, count, rows):
            stop = min(start + rows, count)
            here = stop - start
            random = np.frombuffer(
                fresh(here * (NONCE_BYTES + self._frame.free)), dtype=np.uint8
            ).reshape(here, -1)
            nonces = random[:, :NONCE_BYTES]
            free[:here] = random[:, NONCE_BYTES:]
            labels = self.labels.of(draw(start, stop))
            self.labels.write(labels, nonces, select[:here], pads[:here])
            if index is not None:
                own[:here] = known[index[start:stop]]
            runner.run(joined[:here], made[:here])
            out[start:stop, :NONCE_BYTES] = nonces
            out[start:stop, NONCE_BYTES:] = message[:here]

    def decode(self, events: Bytes, interests: Bytes) -> Bools:
        """REC: the formula's value for each pair of messages, shape (batch,).

        Args:
            events: shape (batch, event_bytes), uint8.
            interests: shape (batch, interest_bytes), uint8.
        """
        return self.examine(events, interests)[0]

    def examine(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bools]:
        """Decode pairs of messages, and find those with unused bits that are not zero.

        Args:
            events: shape (batch, event_bytes), uint8; rows may be parts of longer ones.
            interests: shape (batch, interest_bytes), likewise.

        Returns:
            The answers, and whether an unused bit of an interest is set; each of shape (batch,).

        Raises:
            ShapeError: a shape does not fit.
        """
        batch = len(events)
        for name, rows, width in (
            ("events", events, self.event_bytes),
            ("interests", interests, self.interest_bytes),
        ):
            if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != width:
                raise ShapeError(
                    f"{name} must be uint8 of shape (batch, {width}), got {rows.dtype} {rows.shape}"
                )
        if batch != len(interests):
            raise ShapeError(f"{batch} events do not pair with {len(interests)} interests")
        answers, stray = np.empty(batch, dtype=np.bool_), np.empty(batch, dtype=np.bool_)
        program = self.broker
        runner = planes(program, batch)
        size = min(runner.rows, 1 << 12)
        joined = np.zeros((size, program.inputs), dtype=np.uint64)
        digits = len(self.slots.digits)
        body, select, pads = parts_of(
            joined, self._body_bytes, self._frame.select, self._frame.pad * digits
        )
        unused = ~used_bits(self.slots.bits)
        for start in range(0, batch, size):
            ours, theirs = events[start : start + size], interests[start : start + size]
            here = len(ours)
            body[:here] = theirs[:, NONCE_BYTES:]
            self.labels.open(ours, theirs[:, :NONCE_BYTES], select[:here], pads[:here])
            runner.run(joined[:here], answers[start : start + here])
            np.not_equal(theirs[:, -1] & unused, 0, out=stray[start : start + here])
        return answers, stray

    def simulate(self, answers: Bools, uniform: Bytes) -> tuple[Bytes, Bytes]:
        """SIM: a pair of messages from the answer alone; as real ones if AES is pseudorandom.

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
