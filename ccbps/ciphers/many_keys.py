"""AES-128 of rows of blocks, each row under its own key: many blocks a key, or many keys.

There are three ways, with the same results. The fastest for the size and the machine is taken:

- a context of `cryptography` for every key. Making one takes as long as a thousand blocks;
- the processor's AES instructions, compiled by Numba (extra ``compiled``), on x86-64 only; checked
  against `cryptography` before they are used, see `ccbps.ciphers.compiled_kernels`;
- bit-sliced NumPy, about thirty times slower than these, but for one block a key some ten times
  faster than contexts: see `ccbps.ciphers.bit_sliced`.

Hazards: single blocks under one key show which of them are equal. This is a permutation to build
on, not a mode for messages. All three ways run in constant time, contexts where OpenSSL has
instructions or vectors for AES. Source: FIPS 197.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np

from ccbps import compiled, primitives
from ccbps.arrays import Bytes
from ccbps.checks import array
from ccbps.ciphers import bit_sliced
from ccbps.errors import ShapeError

BLOCK_BYTES: Final = 16
"""Bytes of a block, and of a key."""
LONG_ROW: Final = 1 << 12
"""Blocks under a key from which a context is as fast as compiled kernels."""
SHORT_ROW: Final = 6
"""Blocks under a key up to which NumPy is faster than a context."""
MANY_KEYS: Final = 1 << 9
"""Number of keys from which NumPy is faster: its calls take as long for few of them."""
LOADING_BLOCKS: Final = 1 << 21
"""Blocks in short rows after which a process loads the compiled kernels: by then NumPy has taken
about as long as loading takes (half a second)."""

_treated = [0]


def encipher_rows(keys: Bytes, blocks: Bytes, out: Bytes | None = None) -> Bytes:
    """Encipher each block under the key of its row with AES-128.

    Args:
        keys: AES keys, shape (rows, 16).
        blocks: blocks of each key, shape (rows, blocks, 16).
        out: array to write to, shape of `blocks`; may overlap with them. None makes one.

    Returns:
        `out`: out[i, j] is blocks[i, j] enciphered under keys[i].

    Raises:
        ShapeError: an array is not uint8 or not of its shape, or `out` is read-only.
        ParameterError: ``CCBPS_COMPILED`` is not 0, 1 or empty, or is 1 without Numba. (Without AES
            instructions, 1 changes nothing.)

    Example:
        >>> import numpy as np
        >>> from ccbps.ciphers.many_keys import encipher_rows
        >>> keys = np.arange(32, dtype=np.uint8).reshape(2, 16)
        >>> blocks = np.zeros((2, 3, 16), dtype=np.uint8)
        >>> encipher_rows(keys, blocks)[0, 0].tobytes().hex()
        'c6a13b37878f5b826f4f8162a1c8d879'
    """
    array("keys", keys, np.uint8, ("rows", BLOCK_BYTES))
    array("blocks", blocks, np.uint8, (len(keys), "blocks", BLOCK_BYTES))
    if out is None:
        out = np.empty(blocks.shape, dtype=np.uint8)
    array("out", out, np.uint8, blocks.shape)
    if not out.flags.writeable:
        raise ShapeError("out is read-only: hand over an array that can be written to")
    if out.size == 0:
        return out
    apart = not (np.may_share_memory(out, blocks) or np.may_share_memory(out, keys))
    room = out if apart and out.flags.c_contiguous else np.empty(out.shape, dtype=np.uint8)
    encipher = _fastest(*blocks.shape[:2])
    encipher(np.ascontiguousarray(keys), np.ascontiguousarray(blocks), room)
    if room is not out:
        out[...] = room
    return out


def _fastest(rows: int, width: int) -> Callable[[Bytes, Bytes, Bytes], None]:
    """Choose the function for this size. Each takes contiguous arrays that do not overlap."""
    if width >= LONG_ROW:
        return _by_contexts

    def worthwhile() -> bool:
        _treated[0] += rows * width
        return _treated[0] >= LOADING_BLOCKS or compiled.in_long_work()

    if compiled.use_compiled(worthwhile, _numba_problem) and _has_instructions():
        from ccbps.ciphers import compiled_kernels

        return compiled_kernels.encipher_rows
    if rows >= MANY_KEYS and width <= SHORT_ROW:
        return bit_sliced.encipher_rows
    return _by_contexts


@cache
def _numba_problem() -> str:
    """Load and check the compiled kernels. Return the reason for a failure, or ""."""

    def load() -> None:
        from ccbps.ciphers import compiled_kernels

        if compiled_kernels.has_instructions():
            compiled_kernels.check()

    return compiled.loading_problem(load)


@cache
def _has_instructions() -> bool:
    """Return whether the processor has AES instructions. Ask `_numba_problem` first."""
    from ccbps.ciphers import compiled_kernels

    return compiled_kernels.has_instructions()


def _by_contexts(keys: Bytes, blocks: Bytes, out: Bytes) -> None:
    """Encipher with one context of `cryptography` for every key."""
    read, write, key = blocks.reshape(-1).data, out.reshape(-1).data, keys.reshape(-1).data
    mode, step, end = primitives.ECB(), blocks[0].size, blocks.size - BLOCK_BYTES
    for row in range(len(keys)):
        cipher = primitives.AES128(key[BLOCK_BYTES * row : BLOCK_BYTES * (row + 1)])
        encryptor = primitives.Cipher(cipher, mode).encryptor()
        # `update_into` needs room for one more block than it writes: only the last row lacks it.
        at = slice(step * row, min(step * (row + 1), end))
        encryptor.update_into(read[at], write[at.start :])
    write[end:] = encryptor.update(read[end:])
