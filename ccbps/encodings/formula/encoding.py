"""Rank-one-gate encoding of a formula: perfect, one message each, split between two parties.

`ccbps.encodings.formula.rank_one` defines the slots and each party's part of them. Here the two
encoders, the decoder and the simulator are straight-line programs over slots
(`ccbps.encodings.formula.slot_programs`), run for 64 pairs a word.

Messages are bits in this order, the first one lowest in the first byte; unused bits are zero:

=================  =======================================================================
event message      slots of both, masked; slots that the publisher alone sends
interest message   slots of both, masked; tied slots; slots that the subscriber alone sends
=================  =======================================================================

Shared randomness of a pair is the gates' rho and S, then the mask, each in whole bytes.

Hazard: randomness must be uniform, shared by the two parties only, and used for one pair only.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Words, slices
from ccbps.compiled import rows_compiled
from ccbps.encodings.formula.rank_one import SIDES, RankOne, Side
from ccbps.encodings.formula.slot_programs import Decoding, encoder_program
from ccbps.encodings.rows import (
    Draw,
    PairEncoding,
    copy_rows,
    draw_rows,
    require_inputs,
    require_rows,
    used_bits,
)
from ccbps.encodings.straight_line.planes import LanePlanes, array_planes, kernel_rows
from ccbps.encodings.straight_line.program import WORD, StraightLine
from ccbps.errors import ParameterError, ShapeError
from ccbps.programs.formula import Formula

if TYPE_CHECKING:
    from ccbps.encodings.formula.compiled_rows import CompiledDecoder, CompiledEncoder

COMPILED: Final = "encodings.formula.compiled_rows"

LAYOUT: Final = 1
"""Number of the rule by which slots and their order follow from a formula; part of fingerprints."""


class FormulaEncoding(PairEncoding):
    """Encoders, decoder and simulator of one formula.

    Attributes:
        slots: slots of the messages.
        event_bits: bits of the publisher's input.
        interest_bits: bits of the subscriber's input.
        randomness_bytes: bytes of shared randomness for one pair.

    Inputs of the encoders are rows of packed bits: bit i of a party's input is bit ``i % 64``,
    counted from the low end, of word ``i // 64``.
    """

    def __init__(self, formula: Formula, event_bits: int, interest_bits: int) -> None:
        """Hand out slots.

        Args:
            formula: formula over event bits 0 .. event_bits - 1 and interest bits likewise.
            event_bits: bits of the publisher's input.
            interest_bits: bits of the subscriber's input.

        Raises:
            ParameterError: the formula has other bits.
        """
        self.slots = slots = RankOne(formula)
        counts = event_bits, interest_bits
        for side, name, count in zip(SIDES, ("event", "interest"), counts, strict=True):
            columns = [column for term in slots.terms[side] for column in term.columns]
            labels = [label for column in columns for _, label in column]
            last = max((bit for x in labels for bit in x.event | x.interest), default=-1)
            if last >= count:
                raise ParameterError(
                    f"the formula uses {name} bit {last}: {name}_bits must be at least {last + 1}, "
                    f"got {count}"
                )
        self.event_bits, self.interest_bits = event_bits, interest_bits
        self.event_bytes, self.interest_bytes = (-(-bits // 8) for bits in slots.bits)
        self._random_bytes = -(-slots.random_bits // 8)
        self.randomness_bytes = self._random_bytes + -(-len(slots.both) // 8)

    # -- the three programs -----------------------------------------------------------------------

    @cached_property
    def publisher(self) -> StraightLine:
        """Program from random and event bits to the publisher's slots, not yet masked."""
        return encoder_program(self.slots, "publisher", self.event_bits)

    @cached_property
    def subscriber(self) -> StraightLine:
        """Program from random and interest bits to the subscriber's slots, not yet masked."""
        return encoder_program(self.slots, "subscriber", self.interest_bits)

    @property
    def broker(self) -> StraightLine:
        """Program from the sum of both messages, then one side's own slots, to the answer."""
        return self._decoding.program

    @property
    def operations(self) -> dict[Literal["publisher", "subscriber", "broker"], int]:
        """Number of 64-bit word operations for a pair, by role; 64 pairs share a word."""
        return {
            "publisher": -(-self.publisher.operations // 64),
            "subscriber": -(-self.subscriber.operations // 64),
            "broker": -(-self.broker.operations // 64),
        }

    @cached_property
    def _decoding(self) -> Decoding:
        return Decoding.of(self.slots)

    # -- messages ---------------------------------------------------------------------------------

    def encode_event(
        self, event: Words, randomness: Bytes | Draw, out: Bytes | None = None
    ) -> Bytes:
        """Encode event messages.

        Args:
            event: packed event bits, shape (batch, words); or (1, words) for one event for all.
            randomness: shape (batch, randomness_bytes), uint8, rows contiguous; or a function that
                yields it a few hundred pairs at a time, so that it never leaves the cache.
            out: place of the messages, shape (batch, event_bytes), rows contiguous, one behind the
                other. Made when None (then `randomness` must be an array).

        Returns:
            uint8, shape (batch, event_bytes).

        Raises:
            ShapeError: a shape does not fit.
        """
        return self._encode("publisher", event, None, randomness, out)

    def encode_interest(
        self,
        interest: Words,
        randomness: Bytes | Draw,
        out: Bytes | None = None,
        *,
        index: Index | None = None,
    ) -> Bytes:
        """Encode interest messages, as `encode_event` does.

        Args:
            interest: packed interest bits, shape (rows, words).
            randomness: as for events.
            out: as for events.
            index: row of `interest` for each message, where few interests serve many messages.
        """
        return self._encode("subscriber", interest, index, randomness, out)

    def decode_with_heads(
        self, events: Bytes, interests: Bytes, heads: Bytes
    ) -> tuple[Bools, Bools]:
        events, interests = self.pair_rows(events, interests, heads)
        answers: Bools = np.empty(len(events), dtype=np.bool_)
        stray = np.empty_like(answers)
        decoder = self._decoder(len(events))
        for at in slices(len(events), decoder.rows):
            decoder.decode(events[at], interests[at], heads[:, at], answers[at], stray[at])
        return answers, stray

    def simulate(self, answers: Bools, uniform: Bytes) -> tuple[Bytes, Bytes]:
        """Make pairs of messages from the answers alone, distributed as the real ones (SIM).

        Args:
            answers: shape (batch,), bool.
            uniform: fresh uniform bytes, shape (batch, event_bytes + interest_bytes).

        Returns:
            event messages (batch, event_bytes) and interest messages (batch, interest_bytes).
        """
        require_rows("uniform", uniform, self.event_bytes + self.interest_bytes, len(answers))
        events = uniform[:, : self.event_bytes].copy()
        interests = uniform[:, self.event_bytes :].copy()
        for part, bits in zip((events, interests), self.slots.bits, strict=True):
            part[:, -1] &= used_bits(bits)
        wrong = (self.decode(events, interests) != answers).astype(np.uint8)
        # The answer is the root slot plus products that the root is not in.
        place = self.slots.order["subscriber"].index(self.slots.root)
        interests[:, place // 8] ^= wrong << np.uint8(place % 8)
        return events, interests

    def _encode(
        self,
        side: Side,
        inputs: Words,
        index: Index | None,
        randomness: Bytes | Draw,
        out: Bytes | None,
    ) -> Bytes:
        name, program, input_bits, width = (
            ("event", self.publisher, self.event_bits, self.event_bytes)
            if side == "publisher"
            else ("interest", self.subscriber, self.interest_bits, self.interest_bytes)
        )
        draw, out = draw_rows(randomness, self.randomness_bytes, out, width)
        if not out.flags.writeable or (len(out) > 1 and out.strides[0] < width):
            raise ShapeError("out must be writeable, and its rows must follow one another")
        batch = len(out)
        require_inputs(name, inputs, max(1, -(-input_bits // WORD)), batch, index, exact=True)
        inputs = np.ascontiguousarray(inputs)
        if index is not None:
            places = np.ascontiguousarray(index, np.int64)
        else:
            places = np.arange(batch) if len(inputs) == batch else np.zeros(batch, dtype=np.int64)
        encoder = self._encoder(program, width, batch)
        for at in slices(batch, encoder.rows):
            encoder.encode(draw(at.start, at.stop), inputs, places[at], out[at])
        if isinstance(encoder, ArrayEncoder):
            encoder.keep()
        return out

    def _decoder(self, batch: int) -> ArrayDecoder | CompiledDecoder:
        if rows_compiled(batch, self.broker.inputs, COMPILED):
            from ccbps.encodings.formula.compiled_rows import CompiledDecoder

            return CompiledDecoder(self._decoding)
        return ArrayDecoder.held(self._decoding, batch)

    def _encoder(
        self, program: StraightLine, width: int, batch: int
    ) -> ArrayEncoder | CompiledEncoder:
        mask_bits = len(self.slots.both)
        if rows_compiled(batch, program.inputs + program.outputs, COMPILED):
            from ccbps.encodings.formula.compiled_rows import CompiledEncoder

            row_bytes = self.randomness_bytes
            return CompiledEncoder(program, self._random_bytes, mask_bits, row_bytes, width)
        return ArrayEncoder.kept(program, self._random_bytes, mask_bits, batch)


# -- passes over rows of bytes in NumPy -----------------------------------------------------------

_thread: Final = threading.local()


class ArrayEncoder:
    """Encoder of one party; see `ccbps.encodings.formula.compiled_rows.CompiledEncoder`."""

    @classmethod
    def kept(
        cls, program: StraightLine, random_bytes: int, mask_bits: int, batch: int
    ) -> ArrayEncoder:
        """Return the encoder that the thread kept, if it suits the batch, or another.

        It is the caller's until the next `keep`: the source of randomness may encode, too.
        """
        encoder: ArrayEncoder | None = vars(_thread).pop("encoder", None)
        if (
            encoder is None
            or encoder._program is not program
            or encoder.rows != kernel_rows(program, batch)
        ):
            encoder = cls(program, random_bytes, mask_bits, batch)
        return encoder

    def __init__(
        self, program: StraightLine, random_bytes: int, mask_bits: int, batch: int
    ) -> None:
        self._program, self._planes = program, array_planes(program, batch)
        self.rows = rows = self._planes.rows
        drawn, sent = rows * program.inputs, rows * program.outputs
        self._words = words = np.zeros(drawn + 2 * sent, dtype=np.uint64)
        self._joined = words[:drawn].reshape(rows, program.inputs)
        self._messages, self._masks = words[drawn:].reshape(2, rows, program.outputs)
        self._random_bytes, self._masked = random_bytes, -(-mask_bits // 8)
        self._drawn = self._joined.view(np.uint8)[:, :random_bytes]
        self._inputs = self._joined[:, -(-random_bytes // 8) :]
        self._mask = self._masks.view(np.uint8)[:, : self._masked]
        self._last = used_bits(mask_bits) if mask_bits % 8 else None
        self._octets = self._messages.view(np.uint8)

    def keep(self) -> None:
        """Wipe out all that is secret, and let the thread's next batch have the encoder.

        An encoder of more than a few rows is not kept: to wipe it costs as much as to make it.
        """
        if isinstance(self._planes, LanePlanes):
            self._planes.clear()
            self._words.fill(0)
            _thread.encoder = self

    def encode(self, random: Bytes, inputs: Words, index: Index, out: Bytes) -> None:
        """Write messages of rows of randomness, and of rows of inputs by `index`."""
        count, drawn = len(out), self._random_bytes
        copy_rows(random[:, :drawn], self._drawn[:count])
        if count == 1:
            self._inputs[0] = inputs[index.item(0)]
        else:
            inputs.take(index, axis=0, out=self._inputs[:count], mode="clip")  # without a buffer
        self._planes.run(self._joined, self._messages[:count])
        if self._masked:
            copy_rows(random[:, drawn : drawn + self._masked], self._mask[:count])
            if self._last is not None:
                self._mask[:, -1] &= self._last
            np.bitwise_xor(self._messages, self._masks, out=self._messages)
        copy_rows(self._octets[:count, : out.shape[1]], out)


class ArrayDecoder:
    """Decoder (REC); see `ccbps.encodings.formula.compiled_rows.CompiledDecoder`."""

    @classmethod
    def held(cls, decoding: Decoding, batch: int) -> ArrayDecoder:
        """Return the decoder that the thread used last, if it suits the batch, or another.

        To ask the system for its few megabytes anew, page by page, takes a third of the time of a
        batch of 10,000. Nothing secret is kept: the broker has the messages.
        """
        decoder: ArrayDecoder | None = getattr(_thread, "decoder", None)
        rows, program = kernel_rows(decoding.program, batch), decoding.program
        if decoder is None or decoder._decoding.program is not program or decoder.rows != rows:
            decoder = _thread.decoder = cls(decoding, batch)
        return decoder

    def __init__(self, decoding: Decoding, batch: int) -> None:
        self._decoding, self._planes = decoding, array_planes(decoding.program, batch)
        self.rows = self._planes.rows
        self._joined = np.zeros((self.rows, decoding.program.inputs), dtype=np.uint64)
        self._other = np.zeros_like(self._joined)
        octets, first, widths = self._joined.view(np.uint8), 8 * decoding.words, decoding.widths
        self._longer, self._own = octets[:, : max(widths)], octets[:, first:]
        self._shorter = self._other.view(np.uint8)[:, : min(widths)]

    def decode(
        self, events: Bytes, interests: Bytes, heads: Bytes, answers: Bools, stray: Bools
    ) -> None:
        """Answer messages behind their heads; copy these, and find stray bits."""
        _, _, side, start, widths, unused = self._decoding
        count, skip = len(answers), heads.shape[2]
        joined = self._joined[:count]
        if self._own.shape[1]:
            own = (events, interests)[side][:, skip + start :]
            copy_rows(own, self._own[:count, : own.shape[1]])
        # Copied, to be added as whole words: most messages begin anywhere. The longer one writes
        # over all that is left of earlier rows.
        longer, shorter = (events, interests) if widths[0] > widths[1] else (interests, events)
        copy_rows(longer[:, skip:], self._longer[:count])
        copy_rows(shorter[:, skip:], self._shorter[:count])
        np.bitwise_xor(joined, self._other[:count], out=joined)
        self._planes.run(self._joined, answers)
        # All that is read of a message is read while it is in the cache.
        copy_rows(events[:, :skip], heads[0])
        copy_rows(interests[:, :skip], heads[1])
        if count == 1:
            stray[0] = events.item(-1) & int(unused[0]) | interests.item(-1) & int(unused[1])
            return
        last = (events[:, -1] & unused[0]) | (interests[:, -1] & unused[1])
        np.not_equal(last, 0, out=stray)
