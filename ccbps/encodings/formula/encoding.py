"""Rank-one-gate encoding of a formula: perfect, one message each, split between two parties.

`ccbps.encodings.formula.rank_one` says which slots there are and who adds what. Here the two
encoders, the decoder and the simulator are straight-line programs over them, run for 64 pairs a
word.

Messages are bits in this order, the first one lowest in the first byte; unused bits are zero:

=================  =======================================================================
event message      slots of both, masked; slots that the publisher alone sends
interest message   slots of both, masked; tied slots; slots that the subscriber alone sends
=================  =======================================================================

Shared randomness of a pair is the gates' rho and S, then the mask, each in whole bytes.

Hazard: randomness must be uniform, shared by the two parties only, and used for one pair only.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Words
from ccbps.compiled import rows_compiled
from ccbps.encodings.formula.array_rows import ArrayDecoder, ArrayEncoder
from ccbps.encodings.formula.rank_one import RankOne
from ccbps.encodings.formula.slot_programs import (
    SIDES,
    DecoderInput,
    decoder_program,
    encoder_program,
)
from ccbps.encodings.rows import Decoding, Draw, require_heads, require_rows, used_bits
from ccbps.encodings.straight_line.program import WORD, StraightLine
from ccbps.errors import ParameterError, ShapeError
from ccbps.programs.formula import Formula

if TYPE_CHECKING:
    from ccbps.encodings.formula.compiled_rows import CompiledDecoder, CompiledEncoder

COMPILED: Final = "encodings.formula.compiled_rows"

LAYOUT: Final = 1
"""Number of the rule by which slots and their order follow from a formula; part of fingerprints."""


class FormulaEncoding:
    """The two encoders, the decoder and the simulator for one formula.

    Attributes:
        slots: what messages hold.
        event_bytes: bytes of an event message.
        interest_bytes: bytes of an interest message.
        randomness_bytes: bytes of shared randomness for one pair.

    Inputs of the encoders are rows of packed bits: bit i of a party's input is bit ``i % 64``,
    counted from the low end, of word ``i // 64``.
    """

    def __init__(self, formula: Formula, event_bits: int, interest_bits: int) -> None:
        """
        Args:
            formula: over event bits 0 .. event_bits - 1 and interest bits likewise.
            event_bits: bits of the publisher's input.
            interest_bits: bits of the subscriber's.

        Raises:
            ParameterError: the formula has other bits.
        """
        self.slots = slots = RankOne(formula)
        for side, name, count in (
            ("publisher", "event", event_bits),
            ("subscriber", "interest", interest_bits),
        ):
            columns = [column for term in slots.terms[side] for column in term.columns]
            labels = [label for column in columns for _, label in column]
            last = max((bit for x in labels for bit in x.event | x.interest), default=-1)
            if last >= count:
                raise ParameterError(
                    f"the formula uses {name} bit {last}: {name}_bits must be at least {last + 1}, "
                    f"got {count}"
                )
        self.event_bits, self.interest_bits = event_bits, interest_bits
        event, interest = slots.bits
        self.event_bytes, self.interest_bytes = _bytes(event), _bytes(interest)
        self._random_bytes = _bytes(slots.random_bits)
        self.randomness_bytes = self._random_bytes + _bytes(len(slots.both))

    # -- the three programs -----------------------------------------------------------------------

    @cached_property
    def publisher(self) -> StraightLine:
        """From random and event bits to the publisher's slots, not yet masked."""
        return encoder_program(self.slots, "publisher", self.event_bits)

    @cached_property
    def subscriber(self) -> StraightLine:
        """From random and interest bits to the subscriber's slots, not yet masked."""
        return encoder_program(self.slots, "subscriber", self.interest_bits)

    @cached_property
    def broker(self) -> StraightLine:
        """From the sum of both messages, then one's own slots, in whole words, to the answer."""
        return decoder_program(self.slots)

    # -- messages ---------------------------------------------------------------------------------

    def encode_event(
        self, event: Words, randomness: Bytes | Draw, out: Bytes | None = None
    ) -> Bytes:
        """Event messages.

        Args:
            event: packed event bits, shape (batch, words).
            randomness: shape (batch, randomness_bytes), uint8, rows contiguous; or a function that
                yields it a few hundred pairs at a time, so that it never leaves the cache.
            out: where to write, shape (batch, event_bytes), rows contiguous, one behind the other.
                Made when None (then `randomness` must be an array).

        Returns:
            shape (batch, event_bytes), uint8.

        Raises:
            ShapeError: a shape does not fit.
        """
        return self._encode(self.publisher, self.event_bits, event, None, randomness, out)

    def encode_interest(
        self,
        interest: Words,
        randomness: Bytes | Draw,
        out: Bytes | None = None,
        *,
        index: Index | None = None,
    ) -> Bytes:
        """Interest messages; as `encode_event`.

        Args:
            index: row of `interest` for each message, where few serve many; one row serves all.
        """
        return self._encode(self.subscriber, self.interest_bits, interest, index, randomness, out)

    def decode(self, events: Bytes, interests: Bytes) -> Bools:
        """REC: the formula's value for each pair of messages, shape (batch,).

        Args:
            events: shape (batch, event_bytes), uint8.
            interests: shape (batch, interest_bytes), uint8.
        """
        heads = np.empty((2, len(events), 0), dtype=np.uint8)
        return self.decode_with_heads(events, interests, heads)[0]

    def decode_with_heads(
        self, events: Bytes, interests: Bytes, heads: Bytes
    ) -> tuple[Bools, Bools]:
        """As `decode`; also gathers what a caller checks.

        Args:
            events: shape (batch, skip + event_bytes), uint8; copied if rows are not contiguous.
            interests: shape (batch, skip + interest_bytes), likewise.
            heads: shape (2, batch, skip), for the first `skip` bytes of event and interest
                messages.

        Returns:
            answers, shape (batch,), and where unused bits of a message are not zero.
        """
        skip, batch = heads.shape[2], len(events)
        events, interests = (
            rows if rows.strides[-1:] == (1,) else np.ascontiguousarray(rows)
            for rows in (events, interests)
        )
        require_rows("events", events, skip + self.event_bytes)
        require_rows("interests", interests, skip + self.interest_bytes)
        if batch != len(interests):
            raise ShapeError(f"{batch} events do not pair with {len(interests)} interests")
        require_heads(heads, batch)
        answers, stray = np.empty(batch, dtype=np.bool_), np.empty(batch, dtype=np.bool_)
        decoder = self._decoder(batch)
        for start in range(0, batch, decoder.rows):
            at = slice(start, start + decoder.rows)
            decoder.decode(events[at], interests[at], heads[:, at], answers[at], stray[at])
        return answers, stray

    def simulate(self, answers: Bools, uniform: Bytes) -> tuple[Bytes, Bytes]:
        """SIM: a pair of messages made from the answer alone, distributed as the real ones.

        Args:
            answers: shape (batch,), bool.
            uniform: fresh uniform bytes, shape (batch, event_bytes + interest_bytes).

        Returns:
            event messages (batch, event_bytes) and interest messages (batch, interest_bytes).
        """
        require_rows("uniform", uniform, self.event_bytes + self.interest_bytes)
        if len(uniform) != len(answers):
            raise ShapeError(f"{len(answers)} answers need as many rows, got {len(uniform)}")
        events = uniform[:, : self.event_bytes].copy()
        interests = uniform[:, self.event_bytes :].copy()
        for part, bits in zip((events, interests), self.slots.bits, strict=True):
            part[:, -1] &= used_bits(bits)
        wrong = (self.decode(events, interests) != answers).astype(np.uint8)
        # The answer is the root slot plus products that the root is not in. A slot that is tied to
        # the root must keep its value.
        root, order = self.slots.root, self.slots.order["subscriber"]
        flipped = [root, *(slot for slot, first in self.slots.ties if first == root)]
        for slot in flipped:
            place = order.index(slot)
            interests[:, place // 8] ^= wrong << np.uint8(place % 8)
        return events, interests

    def _encode(
        self,
        program: StraightLine,
        input_bits: int,
        inputs: Words,
        index: Index | None,
        randomness: Bytes | Draw,
        out: Bytes | None,
    ) -> Bytes:
        width = self.event_bytes if program is self.publisher else self.interest_bytes
        if isinstance(randomness, np.ndarray):
            rows = randomness
            require_rows("randomness", rows, self.randomness_bytes)
            if out is None:
                out = np.empty((len(rows), width), dtype=np.uint8)
            if len(out) != len(rows):
                raise ShapeError(f"out has {len(out)} rows, randomness {len(rows)}")

            def take(start: int, stop: int) -> Bytes:
                return rows[start:stop]

            draw: Draw = take

        elif out is None:
            raise ShapeError("out is needed when randomness is a function")
        else:
            draw = randomness
        require_rows("out", out, width)
        if not out.flags.writeable or (len(out) > 1 and out.strides[0] < width):
            raise ShapeError("out must be writeable, and its rows must follow one another")
        batch = len(out)
        words = max(1, -(-input_bits // WORD))
        columns = inputs.shape[0] if index is None else len(index)
        if inputs.dtype != np.uint64 or inputs.shape[1:] != (words,) or columns not in (1, batch):
            raise ShapeError(
                f"input bits must be uint64 of shape ({batch}, {words}), or have an index of "
                f"{batch} rows; got {inputs.dtype} {inputs.shape}"
            )
        known = np.ascontiguousarray(inputs)
        places = np.arange(batch) if index is None else np.ascontiguousarray(index, np.int64)
        if columns == 1:
            places = np.zeros(batch, dtype=np.int64) if index is None else places.repeat(batch)
        if batch and not 0 <= places.min() <= places.max() < len(known):
            raise ShapeError(f"index must lie within the {len(known)} rows of input bits")
        encoder = self._encoder(program, width, batch)
        for start in range(0, batch, encoder.rows):
            stop = min(start + encoder.rows, batch)
            random = draw(start, stop)
            require_rows("randomness", random, self.randomness_bytes)
            if len(random) != stop - start:  # one row for all would be one round for all
                raise ShapeError(
                    f"randomness must be of {stop - start} pairs, got {len(random)} rows"
                )
            encoder.encode(random, known, places[start:stop], out[start:stop])
        return out

    def _decoder(self, batch: int) -> ArrayDecoder | CompiledDecoder:
        given = DecoderInput.of(self.slots)
        own, widths = (
            (SIDES.index(given.apart), given.start),
            (self.event_bytes, self.interest_bytes),
        )
        unused = ~used_bits(self.slots.bits[0]), ~used_bits(self.slots.bits[1])
        of = Decoding(self.broker, given.words, own, widths, unused)
        if rows_compiled(batch, self.broker.inputs, COMPILED):
            from ccbps.encodings.formula.compiled_rows import CompiledDecoder

            return CompiledDecoder(of)
        return ArrayDecoder.held(of, batch)

    def _encoder(
        self, program: StraightLine, width: int, batch: int
    ) -> ArrayEncoder | CompiledEncoder:
        mask_bits = len(self.slots.both)
        if rows_compiled(batch, program.inputs + program.outputs, COMPILED):
            from ccbps.encodings.formula.compiled_rows import CompiledEncoder

            row_bytes = self.randomness_bytes
            return CompiledEncoder(program, self._random_bytes, mask_bits, row_bytes, width)
        return ArrayEncoder(program, self._random_bytes, mask_bits, batch)


def _bytes(bits: int) -> int:
    return -(-bits // 8)
