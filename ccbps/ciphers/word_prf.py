"""Two pseudorandom functions for schemes of words, both in batches: F(k, word) and F(y, nonce).

- `WordKeys` turns words into keys: AES-128 in CBC-MAC over 16-byte blocks. Callers make sure that
  no word's blocks are the beginning of another word's (a first block that names the word's kind
  and length does).
- `NonceHash` is F(y, N) for millions of keys y, each used with millions of nonces N. A key
  schedule for each y would cost a thousand times as much as a block, so y is no AES key:
  F(y, N) = P(y XOR N) XOR y XOR N, where P is AES-128 under one key that is not secret. This is
  the cipher of Even and Mansour with one key, its output masked with the public N.

Conventions: 128-bit values are two uint64, shape (..., 2), in the machine's little-endian order.

Assumption: P behaves as a random public permutation. An attacker who sees D values of F then takes
about 2^128 / D steps to find a key: 2^88 steps for 2^40 values. P's key is drawn with the master
key, so nothing can be computed beforehand.

Hazard: the owner of y can tell all its values, by design. AES runs in constant time where the
processor has instructions for it.
Sources: [EM97], [DKS12] for one key; [GKWY20] on fixed-key AES.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ccbps.arrays import Bools, Index, Words
from ccbps.keys.secret import Confined

KEY_BYTES: Final = 16
_NONE: Final = np.empty(0, dtype=np.intp)
_CHUNK: Final = 1 << 14
"""Blocks enciphered at a time: input and output stay in the second-level cache."""


def to_blocks(data: bytes) -> Words:
    """Return bytes as blocks, shape (len(data) / 16, 2)."""
    return np.frombuffer(data, dtype="<u8").reshape(-1, 2)


class _Blocks:
    """AES-128 on arrays of blocks."""

    def __init__(self, key: bytes) -> None:
        # Single blocks on purpose: a permutation of 128 bits, not a mode for messages.
        self._cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def _encipher(self, blocks: Words, out: Words | None = None) -> Words:
        """Encipher contiguous blocks, shape (n, 2).

        Args:
            blocks: the blocks.
            out: words for the result, at least 2 n + 2 of them; None for new ones.
        """
        if out is None:
            out = np.empty(2 * len(blocks) + 2, dtype="<u8")
        self._cipher.update_into(blocks.data.cast("B") if len(blocks) else b"", out.data.cast("B"))
        return out[: 2 * len(blocks)].reshape(-1, 2)


class WordKeys(Confined, _Blocks):
    """F(k, word) for words of one or more blocks, under a secret key of 16 bytes."""

    def extend(self, states: Words, blocks: Words) -> Words:
        """Return AES(state XOR block) for the next block of words, all broadcast; shape (..., 2).

        Args:
            states: results for the blocks before; zero for a first block.
            blocks: next blocks.
        """
        return self.extend_halves(states, blocks[..., 0], blocks[..., 1])

    def extend_halves(self, states: Words, first: Words, second: Words) -> Words:
        """Return AES(state XOR block) for blocks whose halves are given apart, as `extend` does.

        Args:
            states: results for the blocks before, shape (..., 2).
            first: first halves of the next blocks, shape (...).
            second: second halves.
        """
        shape = np.broadcast_shapes(states.shape[:-1], first.shape, second.shape)
        mixed = np.empty((*shape, 2), dtype=np.uint64)
        # Half by half: an inner loop over two halves is five times slower.
        np.bitwise_xor(states[..., 0], first, out=mixed[..., 0])
        np.bitwise_xor(states[..., 1], second, out=mixed[..., 1])
        return self._encipher(mixed.reshape(-1, 2)).reshape(mixed.shape)


class NonceHash(_Blocks):
    """F(y, nonce), 64 bits of it, under a permutation whose key of 16 bytes is not secret."""

    def all_pairs(self, keys: Words, nonces: Words) -> Words:
        """Return F of all keys (k, 2) with all nonces (n, 2), shape (n, k)."""
        out = np.empty((len(nonces), len(keys)), dtype=np.uint64)
        first, second = np.ascontiguousarray(keys.T)
        step = max(1, _CHUNK // max(1, len(keys)))
        for start in range(0, len(nonces), step):
            rows = nonces[start : start + step]
            mixed = np.empty((len(rows), len(keys), 2), dtype=np.uint64)
            # Half by half: an inner loop over two halves is five times slower.
            np.bitwise_xor(rows[:, :1], first, out=mixed[:, :, 0])
            np.bitwise_xor(rows[:, 1:], second, out=mixed[:, :, 1])
            self._hash(mixed.reshape(-1, 2), out[start : start + step].reshape(-1))
        return out

    def likely(self, keys: Words, nonces: Words, table: Bools) -> tuple[Index, Index, Words]:
        """Return the pairs of all keys with all nonces whose F has low bits that a table marks.

        Args:
            keys: keys, shape (k, 2), contiguous.
            nonces: nonces, shape (n, 2), contiguous; as few as fit into the cache with a key.
            table: flags by the low bits of F, shape (n, 2^bits), contiguous.

        Returns:
            nonce and key of each of these pairs, by number, and its F.
        """
        rows, size = table.shape
        width = max(1, min(len(keys), _CHUNK // max(1, rows)))
        # Made once: the system clears large new arrays, which takes more time than all the rest.
        all_mixed = np.empty(2 * rows * width, dtype=np.uint64)
        enciphered = np.empty(2 * rows * width + 2, dtype=np.uint64)
        all_values, all_slots = np.empty((2, rows * width), dtype=np.uint64)
        flags = np.empty(rows * width, dtype=np.bool_)
        masks = np.tile(nonces, width)
        starts, mask = np.arange(rows, dtype=np.uint64)[:, None] * np.uint64(size), size - 1
        parts = []
        for start in range(0, len(keys), width):
            part = keys[start : start + width]
            pairs = rows * len(part)
            mixed = all_mixed[: 2 * pairs].reshape(-1, 2)
            words = 2 * len(part)
            np.bitwise_xor(part.reshape(-1), masks[:, :words], out=mixed.reshape(rows, words))
            output = self._encipher(mixed, enciphered)
            values = np.bitwise_xor(output[:, 0], mixed[:, 0], out=all_values[:pairs])
            slots = np.bitwise_and(values, np.uint64(mask), out=all_slots[:pairs])
            if rows > 1:
                by_row = slots.reshape(rows, len(part))
                by_row += starts
            # No slot is outside, so clipping changes nothing; it lets NumPy write to flags.
            table.take(slots.view(np.int64), out=flags[:pairs], mode="clip")
            places = np.flatnonzero(flags[:pairs])
            row, key = np.divmod(places, len(part))
            parts.append((row, key + start, values.take(places)))
        if not parts:
            return _NONE, _NONE, _NONE.astype(np.uint64)
        row, key, values = (np.concatenate(column) for column in zip(*parts, strict=True))
        return row, key, values

    def pairs(self, keys: Words, nonces: Words) -> Words:
        """Return F of keys with nonces, both broadcast to (..., 2); shape (...)."""
        mixed = np.bitwise_xor(keys, nonces, dtype=np.uint64)
        out = np.empty(mixed.shape[:-1], dtype=np.uint64)
        self._hash(mixed.reshape(-1, 2), out.reshape(-1))
        return out

    def _hash(self, mixed: Words, out: Words) -> None:
        for start in range(0, len(mixed), _CHUNK):
            part = mixed[start : start + _CHUNK]
            np.bitwise_xor(
                self._encipher(part)[:, 0], part[:, 0], out=out[start : start + len(part)]
            )
