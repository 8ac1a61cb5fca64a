"""Slow twin of `ccbps.encodings.branching.encoding`: R1 * L * R2 + Z with plain matrices mod 2.

The bytes of a round's randomness become matrices as follows, for a program of size s whose layout
has `words` 64-bit words:

- bytes 0 .. 8 * words - 1 are Z: entry (i, c), i <= c, has the place that it has in a message;
- the next 8 * words bytes have the same layout. Their matrix is R. Column c + 1 of R1 is column c
  of R on top of a one on the diagonal (c < s - 1), and R2 is the identity with its last column
  replaced by the last column of R and a one at its end.

Bits that no entry uses, and entry (s - 1, s - 1) of R, do not matter.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ccbps.encodings import TriangleLayout
from ccbps.programs.branching import BranchingProgram, Label

Bytes = NDArray[np.uint8]
Bits = NDArray[np.uint8]


@lru_cache(maxsize=64)
def positions(size: int) -> NDArray[np.intp]:
    """Return the bit number in a message of every entry (i, c), i <= c; -1 below the diagonal."""
    layout = TriangleLayout(size)
    out = np.full((size, size), -1, dtype=np.intp)
    for column in range(size):
        for row in range(column + 1):
            out[row, column] = layout.bit_position(row, column)
    return out


def triangle_bits(size: int, rows: Bytes) -> Bits:
    """Convert messages to 0/1 matrices with zeros below the diagonal, shape (batch, s, s)."""
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    where = positions(size)
    return np.where(where >= 0, bits[:, where], np.uint8(0))


def _wire(matrices: Bits) -> Bytes:
    """Convert the triangles of 0/1 matrices to messages."""
    size = matrices.shape[-1]
    message_bits = 8 * -(-size * (size + 1) // 16)
    bits = np.zeros((len(matrices), message_bits), dtype=np.uint8)
    upper = np.triu_indices(size)
    bits[:, positions(size)[upper]] = matrices[:, *upper]
    return np.packbits(bits, axis=1, bitorder="little")


def factors(size: int, randomness: Bytes) -> tuple[Bits, Bits, Bits]:
    """Return Z, R1 and R2, each of shape (batch, s, s)."""
    half = randomness.shape[1] // 2
    z = triangle_bits(size, randomness[:, :half])
    r = triangle_bits(size, randomness[:, half:])
    identity = np.broadcast_to(np.eye(size, dtype=np.uint8), r.shape)
    r1, r2 = identity.copy(), identity.copy()
    r1[:, :, 1:] |= r[:, :, :-1]
    r2[:, :-1, -1] = r[:, :-1, -1]
    return z, r1, r2


def _product(left: Bits, right: Bits) -> Bits:
    # Sums of at most s ones are exact in floating point.
    return (left.astype(np.float32) @ right.astype(np.float32) % 2).astype(np.uint8)


def _half(program: BranchingProgram, labels: dict[tuple[int, int], Label], bits: Bits) -> Bits:
    out = np.zeros((len(bits), program.size, program.size), dtype=np.uint8)
    for (u, v), label in labels.items():
        for bit in label.event | label.interest:
            out[:, u, v - 1] ^= bits[:, bit]
        out[:, u, v - 1] ^= np.uint8(label.one)
    return out


def encode_event(program: BranchingProgram, event: Bits, randomness: Bytes) -> Bytes:
    """Return R1 * L_event * R2 + Z. This half has the ones below the diagonal of L."""
    labels = {edge: Label(event=label.event) for edge, label in program.edges.items()}
    matrix = _half(program, labels, event)
    below = np.arange(1, program.size)
    matrix[:, below, below - 1] = 1
    z, r1, r2 = factors(program.size, randomness)
    return _wire(_product(_product(r1, matrix), r2) ^ z)


def encode_interest(program: BranchingProgram, interest: Bits, randomness: Bytes) -> Bytes:
    """Return R1 * L_interest * R2 + Z. This half has the constants of labels."""
    labels = {
        edge: Label(interest=label.interest, one=label.one) for edge, label in program.edges.items()
    }
    z, r1, r2 = factors(program.size, randomness)
    return _wire(_product(_product(r1, _half(program, labels, interest)), r2) ^ z)
