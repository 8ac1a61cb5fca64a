"""Pairs of messages as encodings take and give them: shapes, copies, and unused bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Words
from ccbps.errors import ShapeError

Draw: TypeAlias = Callable[[int, int], Bytes]
"""``draw(start, stop)``: the shared randomness of pairs start .. stop - 1, asked for in order and
once; shape (stop - start, randomness_bytes), uint8, rows contiguous. May reuse one buffer."""

FEW_ROWS: Final = 64
"""Largest number of rows that are copied byte by byte."""


class PairEncoding:
    """Randomized encoding in two messages, one of each party.

    Attributes:
        event_bytes: bytes of an event message.
        interest_bytes: bytes of an interest message.
        randomness_bytes: bytes of shared randomness for one pair, or for one round if an event
            message serves many interests.
    """

    event_bytes: int
    interest_bytes: int
    randomness_bytes: int

    def decode(self, events: Bytes, interests: Bytes) -> Bools:
        """Compute the answer for each pair of messages (REC).

        Args:
            events: shape (batch, event_bytes), uint8.
            interests: shape (batch, interest_bytes), uint8.

        Returns:
            bool, shape (batch,).

        Raises:
            ShapeError: a shape does not fit.
        """
        heads = np.empty((2, len(events), 0), dtype=np.uint8)
        return self.decode_with_heads(events, interests, heads)[0]

    def decode_with_heads(
        self, events: Bytes, interests: Bytes, heads: Bytes
    ) -> tuple[Bools, Bools]:
        """Decode messages that follow headers, and copy the headers.

        Override this where a kernel does both in one pass over the memory, else `_decode`.

        Args:
            events: shape (batch, skip + event_bytes), uint8; copied if rows are not contiguous.
            interests: shape (batch, skip + interest_bytes), likewise.
            heads: place of the first `skip` bytes of event and interest messages, shape
                (2, batch, skip), C-contiguous.

        Returns:
            the answers, and True where a message has an unused bit set; each of shape (batch,).

        Raises:
            ShapeError: a shape does not fit.
        """
        events, interests = self.pair_rows(events, interests, heads)
        skip = heads.shape[2]
        heads[0], heads[1] = events[:, :skip], interests[:, :skip]
        return self._decode(events[:, skip:], interests[:, skip:])

    def _decode(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bools]:
        """Decode messages without headers; rows are contiguous, and need not follow one another."""
        raise NotImplementedError

    def pair_rows(self, events: Bytes, interests: Bytes, heads: Bytes) -> tuple[Bytes, Bytes]:
        """Return messages with contiguous rows; copy them if needed.

        Args:
            events: event messages, as in `decode_with_heads`.
            interests: interest messages, likewise.
            heads: place of the heads, likewise.

        Raises:
            ShapeError: a shape does not fit.
        """
        batch, skip = len(events), heads.shape[-1]
        if events.strides[-1:] != (1,):
            events = np.ascontiguousarray(events)
        if interests.strides[-1:] != (1,):
            interests = np.ascontiguousarray(interests)
        require_rows("events", events, skip + self.event_bytes)
        require_rows("interests", interests, skip + self.interest_bytes)
        if batch != len(interests):
            raise ShapeError(f"{batch} events do not pair with {len(interests)} interests")
        if heads.dtype != np.uint8 or heads.shape != (2, batch, skip):
            raise ShapeError(
                f"heads must be uint8 of shape (2, {batch}, skip), got {heads.dtype} {heads.shape}"
            )
        if not heads.flags.carray:
            raise ShapeError("heads must be C-contiguous and writeable")
        return events, interests


def require_rows(name: str, rows: Bytes, width: int, count: int | None = None) -> None:
    """Raise ShapeError unless rows of bytes are contiguous, so that they can be seen as words.

    Args:
        name: name of the rows, for the error.
        rows: the rows.
        width: bytes of a row.
        count: number of rows; None for any number.
    """
    if (
        rows.dtype != np.uint8
        or rows.ndim != 2
        or rows.shape[1] != width
        or (rows.size and rows.strides[1] != 1)
    ):
        raise ShapeError(
            f"{name} must be uint8 of shape (batch, {width}) with contiguous rows, "
            f"got {rows.dtype} {rows.shape}"
        )
    if count is not None and len(rows) != count:
        raise ShapeError(f"{name} must have {count} rows, got {len(rows)}")


def require_inputs(
    name: str, inputs: Words, words: int, batch: int, index: Index | None, *, exact: bool
) -> None:
    """Raise ShapeError unless packed bits of one party's inputs fit a batch of messages.

    Args:
        name: "event" or "interest", for the error.
        inputs: rows of packed bits: one for each message, one for all, or those that the index
            chooses from.
        words: words of a row.
        batch: number of messages.
        index: row of `inputs` for each message, or None.
        exact: True if a row must have no more words.
    """
    rows = inputs.shape[0] if index is None else len(index)
    if (
        inputs.dtype != np.uint64
        or inputs.ndim != 2
        or inputs.shape[1] < words
        or (exact and inputs.shape[1] > words)
        or (rows != batch and (index is not None or rows != 1))
    ):
        raise ShapeError(
            f"{name} bits must be uint64 of shape ({batch} or 1, {words}), or have an index of "
            f"{batch} rows; got {inputs.dtype} {inputs.shape}"
        )
    # A negative one is as good as a large one.
    if index is not None and batch and index.astype(np.uint64).max() >= len(inputs):
        raise ShapeError(f"index must lie within the {len(inputs)} rows of {name} bits")


def message_index(interests: int, batch: int, index: Index | None) -> Index:
    """Return the interest of each message.

    Args:
        interests: number of interests.
        batch: number of messages.
        index: interest of each message; None where there is one for each, or one for all.

    Raises:
        ShapeError: `index` does not fit.
    """
    count = interests if index is None else len(index)
    if count != batch and (index is not None or count != 1):
        raise ShapeError(f"{count} interests do not fit {batch} messages")
    if index is not None:
        return index
    return np.arange(batch) if interests == batch else np.zeros(batch, dtype=np.intp)


def draw_rows(
    randomness: Bytes | Draw, randomness_bytes: int, out: Bytes | None, width: int
) -> tuple[Draw, Bytes]:
    """Return randomness as a function, and the place of messages.

    Args:
        randomness: shape (batch, randomness_bytes), uint8; or the function.
        randomness_bytes: bytes of a row of randomness.
        out: shape (batch, width), uint8; made when None, for an array of randomness.
        width: bytes of a message.

    Returns:
        a function that checks the rows that it returns; and `out`.

    Raises:
        ShapeError: a shape does not fit.
    """
    if isinstance(randomness, np.ndarray):
        require_rows("randomness", randomness, randomness_bytes)
        if out is None:
            out = np.empty((len(randomness), width), dtype=np.uint8)
        if len(out) != len(randomness):
            raise ShapeError(f"out has {len(out)} rows, randomness {len(randomness)}")
    elif out is None:
        raise ShapeError("out is needed when randomness is a function")
    require_rows("out", out, width)

    def draw(start: int, stop: int) -> Bytes:
        rows = (
            randomness[start:stop]
            if isinstance(randomness, np.ndarray)
            else randomness(start, stop)
        )
        # One row for all would be one round for all.
        require_rows("randomness", rows, randomness_bytes, stop - start)
        return rows

    return draw, out


def copy_rows(rows: Bytes, out: Bytes) -> None:
    """Copy rows whose bytes are contiguous: as one item each where there are many, for speed."""
    if len(rows) > FEW_ROWS and rows.shape[1]:
        kind = f"V{rows.shape[1]}"
        rows, out = rows.view(kind), out.view(kind)
    out[...] = rows


def used_bits(bits: int) -> np.uint8:
    """Return the mask of the bits that a message of so many bits uses of its last byte."""
    return np.uint8((1 << (bits - 1) % 8 + 1) - 1)
