"""Ishai-Kushilevitz encoding of a mod-2 branching program, perfect, split between two parties.

The program's value is det(L) over GF(2), and L = L_event + L_interest. With shared randomness
R1 (unit upper-triangular), R2 (identity with a uniform last column) and Z (upper-triangular),

    event message    = R1 * L_event    * R2 + Z
    interest message = R1 * L_interest * R2 + Z

Their sum is R1 * L * R2: uniform among the matrices of that shape with the determinant of L, so the
two messages together depend on the answer and on nothing else (see `BranchingEncoding.simulate`).
The ones below the diagonal of L count towards the event's half and are not sent.

The decoder REC is the recurrence of the determinant of a matrix with ones below its diagonal, run
from the last column: z_s = 1, z_i = sum over c >= i of m[i, c] * z_{c+1}, answer z_0. One word for
64 of the z's still being summed is enough, so each column costs one AND and one XOR per word.

The inner loops are in `ccbps.encodings.branching.array_kernels`, for NumPy alone, and in
`ccbps.encodings.branching.compiled_kernels`, for Numba (extra ``compiled``): the same messages, bit
by bit.

Hazard: randomness must be uniform, shared by the two parties only, and used for one pair only.
Sources: Ishai and Kushilevitz, FOCS 2000 and ICALP 2002 (the encoding and its simulator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Words
from ccbps.compiled import rows_compiled
from ccbps.encodings.branching.array_kernels import ArrayDecoder, ArrayEncoder
from ccbps.encodings.branching.halves import Half
from ccbps.encodings.branching.tiles import Shape
from ccbps.encodings.branching.triangle import WORD, TriangleLayout
from ccbps.encodings.rows import Draw, require_heads, require_rows
from ccbps.errors import ShapeError
from ccbps.programs.branching import BranchingProgram, Label, sorted_edges

if TYPE_CHECKING:
    from ccbps.encodings.branching.compiled_kernels import CompiledDecoder, CompiledEncoder


COMPILED: Final = "encodings.branching.compiled_kernels"


class BranchingEncoding:
    """The two encoders, the decoder and the simulator for one branching program.

    Attributes:
        program: the public program.
        layout: where each bit of a message lies.
        message_bytes: bytes per side, s(s+1)/2 bits rounded up.
        randomness_bytes: bytes of shared randomness for one pair: Z, then R1 and R2, each in
            the layout of a message, in whole words.

    Inputs of the encoders are packed bits: bit i of a party's input is bit ``i % 64``, counted from
    the low end, of word ``i // 64``; shape (words, batch), uint64.
    """

    def __init__(self, program: BranchingProgram) -> None:
        self.program = program
        self.layout = TriangleLayout(program.size)
        self.message_bytes = self.layout.message_bytes
        self.randomness_bytes = 2 * 8 * self.layout.words
        edges = sorted_edges(program.edges)
        self._shape = Shape(self.layout)
        # A constant may belong to either half; the interest's is often one row for a whole batch.
        self._event = Half(
            program.size, [(u, v, Label(event=e.event)) for (u, v), e in edges], "event", True
        )
        self._interest = Half(
            program.size,
            [(u, v, Label(interest=e.interest, one=e.one)) for (u, v), e in edges],
            "interest",
            False,
        )

    @property
    def operations(self) -> dict[Literal["publisher", "subscriber", "broker"], int]:
        """64-bit word operations per pair, counted from the kernels' steps: {role: operations}.

        Loading and storing a word count as one operation each. A subscriber that encodes one
        predicate for many rounds saves the operations on its labels.
        """
        shape, size, words = self._shape, self.program.size, self._shape.column_words
        common = 4 * self.layout.words + 6 * len(self.layout.partial) + 5 * words + 4 * size

        def half(half: Half) -> int:
            runs = [
                (
                    2 * (min(stop, size) - start),
                    sum(max(0, stop - max(start, WORD * b)) for b in range(shape.blocks)),
                )
                for _, start, stop in half.runs
            ]
            return common + sum(masks + 2 * terms for masks, terms in runs) + 4 * len(half.moves)

        folded = sum(1 for piece in self.layout.partial if piece.offset)
        return {
            "publisher": half(self._event) + self.layout.words,
            "subscriber": half(self._interest),
            "broker": 2 * self.layout.words + 2 * (size - 1) + 2 * words + folded,
        }

    def encode_event(
        self,
        event: Words,
        randomness: Bytes | Draw,
        out: Bytes | None = None,
        *,
        index: NDArray[np.intp] | None = None,
    ) -> Bytes:
        """Event messages.

        Args:
            event: packed event bits, shape (words, batch), or (words, 1) for one event for all.
            randomness: shape (batch, randomness_bytes), uint8, rows contiguous; or a function
                that yields it a few hundred pairs at a time, so that it never leaves the cache.
            out: where to write, shape (batch, message_bytes), rows contiguous. Made when None
                (then `randomness` must be an array).
            index: column of `event` for each message, where few events serve many.

        Returns:
            shape (batch, message_bytes), uint8; unused bits of the last byte are 0.

        Raises:
            ShapeError: a shape does not fit.
        """
        return self._encode(self._event, event, randomness, out, index)

    def encode_interest(
        self,
        interest: Words,
        randomness: Bytes | Draw,
        out: Bytes | None = None,
        *,
        index: NDArray[np.intp] | None = None,
    ) -> Bytes:
        """Interest messages; as `encode_event`."""
        return self._encode(self._interest, interest, randomness, out, index)

    def decode(self, events: Bytes, interests: Bytes) -> NDArray[np.bool_]:
        """REC: the program's value for each pair of messages.

        Args:
            events: shape (batch, message_bytes), uint8.
            interests: likewise.

        Returns:
            shape (batch,), bool.
        """
        heads = np.empty((2, len(events), 0), dtype=np.uint8)
        return self.decode_with_heads(events, interests, heads)[0]

    def decode_with_heads(
        self, events: Bytes, interests: Bytes, heads: Bytes
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """As `decode`; also gathers, while the messages are in the cache, what a caller checks.

        Args:
            events: shape (batch, skip + message_bytes), uint8.
            interests: likewise.
            heads: shape (2, batch, skip), for the first `skip` bytes of event and interest
                messages.

        Returns:
            answers, shape (batch,), and where unused bits of a message are not zero.
        """
        width = heads.shape[2] + self.message_bytes
        for name, rows in (("events", events), ("interests", interests)):
            if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != width:
                raise ShapeError(
                    f"{name} must be uint8 of shape (batch, {width}), got {rows.dtype} {rows.shape}"
                )
        batch = len(events)
        if batch != len(interests):
            raise ShapeError(f"{batch} events do not pair with {len(interests)} interests")
        require_heads(heads, batch)
        events, interests = (
            rows if rows.strides[1] == 1 else np.ascontiguousarray(rows)
            for rows in (events, interests)
        )
        answers, stray = np.empty(batch, dtype=np.bool_), np.empty(batch, dtype=np.bool_)
        decoder = self._decoder(batch, width)
        for start in range(0, batch, decoder.rows):
            at = slice(start, start + decoder.rows)
            decoder.decode(events[at], interests[at], heads[:, at], answers[at], stray[at])
        return answers, stray

    def simulate(self, answers: NDArray[np.bool_], uniform: Bytes) -> tuple[Bytes, Bytes]:
        """SIM: a pair of messages made from the answer alone, distributed as the real ones.

        Args:
            answers: shape (batch,), bool.
            uniform: fresh uniform bytes, shape (batch, randomness_bytes).

        Returns:
            event messages and interest messages, each (batch, message_bytes).
        """
        if uniform.shape != (len(answers), self.randomness_bytes):
            raise ShapeError(
                f"uniform must have shape {(len(answers), self.randomness_bytes)}, "
                f"got {uniform.shape}"
            )
        events = uniform[:, : self.message_bytes].copy()
        total = uniform[:, -self.message_bytes :].copy()
        for part in (events, total):
            part[:, -1] &= self.layout.last_byte_mask
        # The edge source -> sink is one path on its own: flipping it flips the determinant.
        position = self.layout.bit_position(0, self.program.size - 1)
        wrong = self.decode(total, np.zeros_like(total)) != answers
        total[:, position // 8] ^= wrong.astype(np.uint8) << (position % 8)
        return events, events ^ total

    def _encoder(self, half: Half, batch: int) -> ArrayEncoder | CompiledEncoder:
        if rows_compiled(batch, self.layout.words, COMPILED):
            from ccbps.encodings.branching.compiled_kernels import compiled_encoder

            return compiled_encoder(self._shape, half)
        return ArrayEncoder(self._shape, half, batch)

    def _decoder(self, batch: int, width: int) -> ArrayDecoder | CompiledDecoder:
        if rows_compiled(batch, self.layout.words, COMPILED):
            from ccbps.encodings.branching.compiled_kernels import compiled_decoder

            return compiled_decoder(self._shape)
        return ArrayDecoder(self._shape, width, batch)

    def _encode(
        self,
        half: Half,
        inputs: Words,
        randomness: Bytes | Draw,
        out: Bytes | None,
        index: NDArray[np.intp] | None,
    ) -> Bytes:
        if isinstance(randomness, np.ndarray):
            rows = randomness
            require_rows("randomness", rows, self.randomness_bytes)
            if out is None:
                out = np.empty((len(rows), self.message_bytes), dtype=np.uint8)

            def draw(start: int, stop: int) -> Bytes:
                return rows[start:stop]

            source: Draw = draw
            batch = len(rows)
        elif out is None:
            raise ShapeError("out is needed when randomness is a function")
        else:
            source, batch = randomness, len(out)
        require_rows("out", out, self.message_bytes)
        if len(out) != batch:
            raise ShapeError(f"out has {len(out)} rows, randomness {batch}")
        columns = batch if index is None else len(index)
        if (
            inputs.dtype != np.uint64
            or inputs.ndim != 2
            or len(inputs) < half.input_words
            or columns != batch
            or (index is None and inputs.shape[1] not in (1, batch))
        ):
            raise ShapeError(
                f"{half.name} bits must be uint64 of shape ({half.input_words}, {batch} or 1), or "
                f"have an index of {batch} columns; got {inputs.dtype} {inputs.shape}"
            )
        if batch == 0:
            return out
        if index is not None and not 0 <= index.min() <= index.max() < inputs.shape[1]:
            raise ShapeError(f"index must lie within the {inputs.shape[1]} columns of bits")
        one_for_all = index is None and inputs.shape[1] == 1
        encoder = self._encoder(half, batch)
        known = half.labels(inputs) if one_for_all or index is not None else None
        for start in range(0, batch, encoder.rows):
            at = slice(start, min(start + encoder.rows, batch))
            if known is None:
                labels = half.labels(inputs[:, at])
            elif index is None:
                labels = known
            else:
                labels = np.take(known, index[at], axis=2)
            encoder.encode(source, at, labels, out[at])
        return out
