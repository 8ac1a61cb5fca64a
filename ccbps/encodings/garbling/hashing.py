"""The hash of garbled circuits: AES-128 under public keys, many inputs a key.

For a label x, the tweak t of a pair, and the key k of a gate and a block of rounds::

    H(x, t) = AES_k(sigma(x) + t) + sigma(x) + t        sigma(L || R) = (L + R) || L

Sums are XORs, L and R the halves of 8 bytes. t is twice the number of the round, one more for the
gate's second operand, and added to the first half. 2^16 rounds are a block. So a key schedule
serves a whole batch, and a key no more than 2^18 hashes of a pair of parties in one epoch of its
seed. A single key for everything would save the schedules. But whoever enciphers 2^m blocks under a
key that h hashes were made with finds one of their inputs with a chance of about h 2^(m - 128).

Sources: Zahur, Rosulek and Evans, EUROCRYPT 2015; Guo, Katz, Wang and Yu, S&P 2020 (sigma); Guo,
Katz, Wang, Weng and Yu, CRYPTO 2020 (why keys change).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from hashlib import shake_256
from typing import TYPE_CHECKING, Final

import numpy as np

from ccbps import primitives
from ccbps.arrays import Index, Rounds, Words

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

BLOCK_BITS: Final = 16
"""Logarithm of the number of rounds under a key."""
HASHES_A_GATE: Final = 4
"""Hashes of one gate and round."""
SLACK: Final = 2
"""Words behind the last block of a place for ciphertexts: `cryptography` wants room for more."""
KEPT: Final = 1 << 14
"""Keys that a thread keeps of one circuit, about: some megabytes."""
_PREFIX: Final = b"ccbps garbled circuit keys 1"


def groups_of(rounds: Rounds) -> Iterator[tuple[int, slice | Index]]:
    """Yield the blocks of some rounds, of which there is at least one, and the rows of each."""
    blocks = rounds >> np.uint64(BLOCK_BITS)
    if (blocks == blocks[0]).all():
        yield int(blocks[0]), slice(0, len(rounds))
        return
    for block in np.unique(blocks):
        yield int(block), np.flatnonzero(blocks == block)


def tweaks(rounds: Rounds) -> Rounds:
    """Return the numbers added to the first halves of a gate's two operands, shape (2, rows)."""
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

    def encipher(self, first: int, block: int, blocks: Words, enciphered: Words) -> None:
        """Encipher blocks under the keys of gates.

        Args:
            first: number of the first gate.
            block: block of the rows' rounds.
            blocks: shape (gates, ..., 2), contiguous.
            enciphered: place for as many words in the same order, and `SLACK` more.
        """
        source, target = blocks.reshape(-1).view(np.uint8).data, enciphered.view(np.uint8).data
        contexts, step = self._contexts(block), 8 * blocks[0].size
        for gate, at in enumerate(range(0, step * len(blocks), step), first):
            contexts[gate].update_into(source[at : at + step], target[at:])

    def _contexts(self, block: int) -> list[CipherContext]:
        """Return a context of each gate, for this thread alone."""
        kept: dict[int, list[CipherContext]] | None = getattr(self._thread, "kept", None)
        if kept is None:
            kept = self._thread.kept = {}
        contexts = kept.pop(block, None)
        if contexts is None:
            while kept and (len(kept) + 1) * self._gates > KEPT:
                del kept[next(iter(kept))]
            mode = primitives.ECB()
            contexts = [
                primitives.Cipher(primitives.AES128(key), mode).encryptor()
                for key in self.keys(block)
            ]
        kept[block] = contexts  # the last one used stands last
        return contexts
