"""AES-128 of rows of blocks, each row under its own key: many blocks a key, or many keys.

There are three ways, of which the fastest for the size and the machine is taken. All have the same
bytes:

- a context of `cryptography` for every key. Making one takes as long as a thousand blocks;
- the processor's AES instructions, compiled by Numba (extra ``compiled``), on x86-64 only; checked
  against `cryptography` before they are used, see `ccbps.ciphers.compiled_kernels`;
- bit-sliced NumPy, about thirty times slower than these, but for one block a key some ten times
  faster than contexts: see `ccbps.ciphers.bit_sliced`.

Hazards: single blocks under one key show which of them are equal; it is a permutation to build on,
not a mode for messages. All three run in constant time, contexts where OpenSSL has instructions or
vectors for AES. Source: FIPS 197.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ccbps import compiled
from ccbps.arrays import Bytes
from ccbps.ciphers import bit_sliced
from ccbps.errors import ShapeError

BLOCK_BYTES: Final = 16
"""Bytes of a block, and of a key."""
LONG_ROW: Final = 1 << 12
"""Blocks under a key from which a context is as fast as compiled kernels."""
SHORT_ROW: Final = 6
"""Blocks under a key up to which NumPy is faster than a context."""
MANY_KEYS: Final = 1 << 9
"""Keys from which it is: NumPy's calls take as long for few of them."""
LOADING_BLOCKS: Final = 1 << 21
"""Blocks in short rows after which a process loads the compiled kernels: by then NumPy has taken
about as long as loading takes (half a second)."""

_treated = [0]


def encipher_rows(keys: Bytes, blocks: Bytes, out: Bytes | None = None) -> Bytes:
    """AES-128 of each block under the key of its row.

    Args:
        keys: shape (n, 16), uint8.
        blocks: shape (n, b, 16), uint8.
        out: where to write, uint8, shape of `blocks`; may overlap with them. Made when None.

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
    _require("keys", keys, (None, BLOCK_BYTES))
    _require("blocks", blocks, (len(keys), None, BLOCK_BYTES))
    if out is None:
        out = np.empty(blocks.shape, dtype=np.uint8)
    _require("out", out, blocks.shape)
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
    """The function for this size: each takes contiguous arrays that do not overlap."""
    if width >= LONG_ROW:
        return _by_contexts

    def worthwhile() -> bool:
        _treated[0] += rows * width
        return _treated[0] >= LOADING_BLOCKS

    if compiled.use_compiled(worthwhile, _numba_problem) and _has_instructions():
        from ccbps.ciphers import compiled_kernels

        return compiled_kernels.encipher_rows
    if rows >= MANY_KEYS and width <= SHORT_ROW:
        return bit_sliced.encipher_rows
    return _by_contexts


@cache
def _numba_problem() -> str:
    """Load and check the compiled kernels; returns why they cannot be used, if so."""

    def load() -> None:
        from ccbps.ciphers import compiled_kernels

        if compiled_kernels.has_instructions():
            compiled_kernels.check()

    return compiled.loading_problem(load)


@cache
def _has_instructions() -> bool:
    """To be asked after `_numba_problem`."""
    from ccbps.ciphers import compiled_kernels

    return compiled_kernels.has_instructions()


def _by_contexts(keys: Bytes, blocks: Bytes, out: Bytes) -> None:
    """One context of `cryptography` for every key."""
    read, write, key = blocks.reshape(-1).data, out.reshape(-1).data, keys.reshape(-1).data
    mode, step, end = modes.ECB(), blocks[0].size, blocks.size - BLOCK_BYTES  # noqa: S305
    for row in range(len(keys)):
        cipher = algorithms.AES128(key[BLOCK_BYTES * row : BLOCK_BYTES * (row + 1)])
        encryptor = Cipher(cipher, mode).encryptor()
        # It wants room for one more block than it writes: all have it but the very last.
        at = slice(step * row, min(step * (row + 1), end))
        encryptor.update_into(read[at], write[at.start :])
    write[end:] = encryptor.update(read[end:])


def _require(name: str, array: Bytes, shape: tuple[int | None, ...]) -> None:
    fits = (
        isinstance(array, np.ndarray)
        and array.dtype == np.uint8
        and array.ndim == len(shape)
        and all(wanted in (None, got) for wanted, got in zip(shape, array.shape, strict=True))
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        got = (
            f"{array.dtype} {array.shape}"
            if isinstance(array, np.ndarray)
            else type(array).__name__
        )
        raise ShapeError(f"{name} must be uint8 of shape ({wanted}), got {got}")
