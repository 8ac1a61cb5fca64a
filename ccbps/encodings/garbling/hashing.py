"""The hash of garbled circuits: AES-128 under public keys, many inputs a key.

Of a label x, the tweak t of a pair, and the key k of a gate and a block of rounds::

    H(x, t) = AES_k(sigma(x) + t) + sigma(x) + t        sigma(L || R) = (L + R) || L

Sums are XORs, L and R the halves of 8 bytes. t is twice the number of the round, one more for the
gate's second operand, and added to the first half. 2^16 rounds are a block. So a key schedule
serves a whole batch, and a key no more than 2^18 hashes of a pair of parties. A single key for
everything would save the schedules; but whoever tries 2^m keys or inputs, against H hashes of one
key, succeeds with a chance of about H 2^(m - 128).

Sources: Zahur, Rosulek and Evans, EUROCRYPT 2015; Guo, Katz, Wang and Yu, S&P 2020 (sigma, and why
keys change).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from hashlib import shake_256
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ccbps import primitives
from ccbps.arrays import Rounds, Words

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

BLOCK_BITS: Final = 16
"""Logarithm of the number of rounds under a key."""
HASHES_A_GATE: Final = 4
"""Hashes of one gate and round."""
SLACK: Final = 2
"""Words behind the last block of a place for ciphertexts: `cryptography` wants room for more."""
KEPT: Final = 2
"""Blocks of rounds whose keys a thread keeps."""
_PREFIX: Final = b"ccbps garbled circuit keys 1"


class Span(NamedTuple):
    """Rows start .. stop - 1, whose rounds are of one block."""

    start: int
    stop: int
    block: int


def spans_of(rounds: Rounds) -> list[Span]:
    """Return the runs of rounds of one block."""
    blocks = rounds >> np.uint64(BLOCK_BITS)
    starts = np.flatnonzero(np.append(True, blocks[1:] != blocks[:-1])).tolist()
    stops = [*starts[1:], len(rounds)]
    return [Span(a, b, int(blocks[a])) for a, b in zip(starts, stops, strict=True)]


def tweaks(rounds: Rounds) -> Rounds:
    """Return what is added to the first halves of a gate's two operands, shape (2, rows)."""
    first = rounds << np.uint64(1)
    return np.stack([first, first | np.uint64(1)])


def spread(labels: Words, tweak: Rounds, out: Words, room: Words) -> None:
    """Write sigma(labels) plus the tweak.

    Args:
        labels: shape (..., rows, 2).
        tweak: shape (..., rows), as far as that of `labels` goes.
        out: place of the same shape as `labels`.
        room: array to work in, shape (..., rows).
    """
    np.bitwise_xor(labels[..., 1], tweak, out=room)
    np.bitwise_xor(labels[..., 0], room, out=out[..., 0])
    out[..., 1] = labels[..., 0]


class GateCiphers:
    """AES-128 under the public keys of gates.

    Args:
        name: bytes that tell these gates from those of other circuits.
        gates: number of keys of a block of rounds.
    """

    def __init__(self, name: bytes, gates: int) -> None:
        self._name, self._gates = name, gates
        self._thread = threading.local()

    def keys(self, block: int) -> list[bytes]:
        """Return the keys of all gates for a block of rounds."""
        text = _PREFIX + self._name + block.to_bytes(8, "little")
        keys = shake_256(text).digest(16 * self._gates)
        return [keys[at : at + 16] for at in range(0, len(keys), 16)]

    def encipher(self, first: int, spans: Sequence[Span], blocks: Words, enciphered: Words) -> None:
        """Encipher blocks under the keys of gates.

        Args:
            first: number of the first gate.
            spans: blocks of the rows' rounds.
            blocks: shape (gates, ..., rows, 2), contiguous.
            enciphered: place for as many words in the same order, and `SLACK` more.
        """
        rows = blocks.shape[-2]
        each = blocks[0].size // (2 * rows)
        source, target = blocks.reshape(-1).view(np.uint8).data, enciphered.view(np.uint8).data
        if len(spans) == 1:
            # All blocks of a gate stand together.
            contexts, step = self._contexts(spans[0].block), 16 * each * rows
            for gate, at in enumerate(range(0, step * len(blocks), step), first):
                contexts[gate].update_into(source[at : at + step], target[at:])
            return
        for start, stop, block in spans:
            contexts = self._contexts(block)
            room = np.empty(2 * (stop - start) + SLACK, dtype=np.uint64)
            written = room[:-SLACK].reshape(-1, 2)
            places = enciphered[:-SLACK].reshape(-1, rows, 2)
            parts = np.ascontiguousarray(blocks.reshape(-1, rows, 2)[:, start:stop])
            for number, part in enumerate(parts):
                context = contexts[first + number // each]
                context.update_into(part.view(np.uint8).reshape(-1).data, room.view(np.uint8).data)
                places[number, start:stop] = written

    def _contexts(self, block: int) -> list[CipherContext]:
        """Return a context of each gate, for this thread alone."""
        kept: dict[int, list[CipherContext]] | None = getattr(self._thread, "kept", None)
        if kept is None:
            kept = self._thread.kept = {}
        if block not in kept:
            if len(kept) >= KEPT:
                del kept[next(iter(kept))]
            mode = primitives.ECB()
            kept[block] = [
                primitives.Cipher(primitives.AES128(key), mode).encryptor()
                for key in self.keys(block)
            ]
        return kept[block]
