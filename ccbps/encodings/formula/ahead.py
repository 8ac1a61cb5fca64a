"""Event messages of a formula in two parts: one before there are events, and labels of the event.

From both the broker computes the event message of `ccbps.encodings.formula.encoding`, byte for
byte, and learns nothing that this does not say. `ccbps.encodings.formula.ahead_programs` says which
slots and rows there are.

=================  ======================================================================
labels             of the event's bits, those that the formula uses: `ccbps.encodings.labels`
message ahead      a nonce of 12 bytes; then slots and rows, a bit each, the first one lowest
=================  ======================================================================

Privacy. Select bits are uniform, a pad's bit that is opened is uniform, and a row is hidden by the
bit that is not. So labels, opened pads and rows are uniform and independent of the event message,
and slots are the message plus what these say: `AheadEncoding.simulate`. Pads are AES-128 under
labels, which is pseudorandom. Subscribers know the factors, and so may find the other pads of
messages that are for them; the nonce keeps those of other messages from them.

Hazard: labels of a round serve one event. A second one under the same labels opens the pads of both
values, and with them random bits of the pair.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.encodings.formula.ahead_programs import AheadSlots, finishing_program, preparing_program
from ccbps.encodings.formula.encoding import FormulaEncoding
from ccbps.encodings.labels import NONCE_BYTES, Labels
from ccbps.encodings.rows import Draw, parts_of, used_bits
from ccbps.encodings.straight_line.planes import planes
from ccbps.encodings.straight_line.program import StraightLine
from ccbps.errors import ShapeError

LAYOUT: Final = 1
"""Number of the rule by which messages follow from a formula; part of fingerprints."""
BLOCK_ROWS: Final = 1 << 11


class AheadEncoding:
    """Both of the publisher's encoders, and what the broker makes of their messages.

    Attributes:
        slots: what messages ahead hold.
        labels: what is done with labels.
        label_bytes: bytes of an event's labels.
        ahead_bytes: bytes of a message ahead.
        message_bytes: bytes of an event message.
        randomness_bytes: bytes of a pair's shared randomness of one round.
    """

    def __init__(self, encoding: FormulaEncoding) -> None:
        """
        Args:
            encoding: of the formula.
        """
        self.slots = slots = AheadSlots(encoding.slots)
        self.labels = Labels([1] * len(slots.bits), slots.pad_bytes)
        self.label_bytes = self.labels.event_bytes
        self._body_bytes = -(-slots.body_bits // 8)
        self.ahead_bytes = NONCE_BYTES + self._body_bytes
        self.message_bytes = encoding.event_bytes
        self.randomness_bytes = encoding.randomness_bytes

    @cached_property
    def publisher(self) -> StraightLine:
        """From the pair's randomness, select bits of value 0 and pads of all labels to a message
        ahead."""
        return preparing_program(self.slots)

    @cached_property
    def broker(self) -> StraightLine:
        """From a message ahead, select bits and pads of the labels opened to an event message."""
        return finishing_program(self.slots)

    def encode_event(self, event: Words, random: Bytes, out: Bytes) -> None:
        """Write labels of events.

        Args:
            event: packed event bits, shape (count, words).
            random: of the rounds' labels, shape (count, labels.round_bytes).
            out: shape (count, label_bytes).
        """
        octets = np.ascontiguousarray(event).view(np.uint8)
        bits = np.unpackbits(octets, axis=1, bitorder="little")[:, self.slots.bits]
        self.labels.choose(bits, random, out)

    def prepare(self, shared: Draw, rounds: Draw, fresh: Randomness, out: Bytes) -> None:
        """Write messages ahead.

        Args:
            shared: the pairs' shared randomness, shape (rows, randomness_bytes); see
                `ccbps.encodings.rows.Draw`.
            rounds: the uniform bytes of the rounds' labels, shape (rows, labels.round_bytes).
            fresh: the publisher's own randomness.
            out: shape (count, ahead_bytes).
        """
        count, program = len(out), self.publisher
        runner = planes(program, count)
        rows = min(runner.rows, BLOCK_ROWS)
        joined = np.zeros((rows, program.inputs), dtype=np.uint64)
        made = np.empty((rows, program.outputs), dtype=np.uint64)
        body = made.view(np.uint8)[:, : self._body_bytes]
        labels = self.labels
        random, select, pads = parts_of(
            joined, self.randomness_bytes, labels.select_bytes, labels.pad_bytes * labels.count
        )
        for start in range(0, count, rows):
            stop = min(start + rows, count)
            here = stop - start
            nonces = np.frombuffer(fresh(here * NONCE_BYTES), dtype=np.uint8)
            nonces = nonces.reshape(here, NONCE_BYTES)
            random[:here] = shared(start, stop)
            every = labels.of(rounds(start, stop))
            labels.write(every, nonces, select[:here], pads[:here])
            runner.run(joined[:here], made[:here])
            out[start:stop, :NONCE_BYTES] = nonces
            out[start:stop, NONCE_BYTES:] = body[:here]

    def complete(self, labels: Bytes, ahead: Bytes, out: Bytes) -> Bools:
        """Write event messages; returns where unused bits of a message ahead are not zero.

        Args:
            labels: of each row's event, shape (count, label_bytes).
            ahead: shape (count, ahead_bytes).
            out: shape (count, message_bytes).
        """
        for name, array, width in (
            ("labels", labels, self.label_bytes),
            ("ahead", ahead, self.ahead_bytes),
            ("out", out, self.message_bytes),
        ):
            if array.dtype != np.uint8 or array.shape != (len(out), width):
                raise ShapeError(
                    f"{name} must be uint8 of shape ({len(out)}, {width}), "
                    f"got {array.dtype} {array.shape}"
                )
        count, program = len(out), self.broker
        runner = planes(program, count)
        rows = min(runner.rows, BLOCK_ROWS)
        joined = np.zeros((rows, program.inputs), dtype=np.uint64)
        made = np.empty((rows, program.outputs), dtype=np.uint64)
        digits = len(self.slots.bits)
        body, select, pads = parts_of(
            joined, self._body_bytes, self.labels.select_bytes, self.labels.pad_bytes * digits
        )
        for start in range(0, count, rows):
            stop = min(start + rows, count)
            here, nonces = stop - start, ahead[start:stop, :NONCE_BYTES]
            body[:here] = ahead[start:stop, NONCE_BYTES:]
            self.labels.open(labels[start:stop], nonces, select[:here], pads[:here])
            runner.run(joined[:here], made[:here])
            out[start:stop] = made.view(np.uint8)[:here, : self.message_bytes]
        unused = ~used_bits(self.slots.body_bits)
        stray: Bools = np.not_equal(ahead[:, -1] & unused, 0)
        return stray

    def simulate(self, messages: Bytes, uniform: Bytes) -> tuple[Bytes, Bytes]:
        """SIM: labels and messages ahead from event messages alone; as real ones if AES is
        pseudorandom.

        Args:
            messages: event messages, shape (count, message_bytes).
            uniform: fresh uniform bytes, shape (count, label_bytes + ahead_bytes).
        """
        labels = uniform[:, : self.label_bytes].copy()
        ahead = uniform[:, self.label_bytes :].copy()
        ahead[:, -1] &= used_bits(self.slots.body_bits)
        made = np.empty_like(messages)
        self.complete(labels, ahead, made)
        # What is added to a slot comes out with the message.
        ahead[:, NONCE_BYTES : NONCE_BYTES + self.message_bytes] ^= made ^ messages
        return labels, ahead
