"""AES-128 of rows of blocks, each row under its own key, by the processor's AES instructions.

Numba (extra ``compiled``) compiles them for x86-64. Keys are expanded while their blocks are
enciphered, so round keys never leave the registers. Several keys or blocks go side by side to hide
the latency of an instruction. No table is looked up and there is no branch on a secret.

AESENCLAST expands keys, too: of a word four times over, ShiftRows changes nothing, and SubWord and
the sum with a constant are left. That is several times faster than AESKEYGENASSIST.

The first call compiles (about a second). Numba keeps the result for the next process on a processor
of the same name with the same features.
Sources: FIPS 197; [G10] for the instructions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from llvmlite import binding, ir
from numba import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from ccbps.arrays import Bytes
from ccbps.compiled import compile_kernel

ROUND_CONSTANTS: Final = (0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1B, 0x36)
_BYTES: Final = ir.VectorType(ir.IntType(8), 16)
_WORDS: Final = ir.VectorType(ir.IntType(32), 4)
_BLOCK: Final = ir.VectorType(ir.IntType(64), 2)


def has_instructions() -> bool:
    """Return whether this processor has AES instructions and Numba compiles for them.

    If not, nothing else here may be called: LLVM would end the process.
    """
    if not binding.get_default_triple().startswith("x86_64"):
        return False
    # Numba's own list, too: NUMBA_CPU_NAME and NUMBA_CPU_FEATURES may leave instructions out.
    compiled_for = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    return binding.get_host_cpu_features().get("aes", False) and "+aes" in compiled_for


class _Writer:
    """A writer of instructions on blocks into a function that Numba compiles."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def place(self, base: Any, block: Any) -> Any:
        """Return the address of a block, counted from the start of an array."""
        address = self.builder.gep(base, [self.builder.shl(block, ir.Constant(block.type, 4))])
        return self.builder.bitcast(address, _BLOCK.as_pointer())

    def shuffled(self, block: Any, kind: ir.VectorType, order: list[int]) -> Any:
        """Select parts of a block, or of zero from the next number on, in the given order."""
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order)
        cut, zero = self.builder.bitcast(block, kind), ir.Constant(kind, None)
        return self.builder.bitcast(self.builder.shuffle_vector(cut, zero, mask), _BLOCK)

    def round(self, name: str, state: Any, key: Any) -> Any:
        """Write one AES instruction."""
        kind = ir.FunctionType(_BLOCK, [_BLOCK, _BLOCK])
        name = f"llvm.x86.aesni.{name}"
        module = self.builder.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, [state, key])

    def next_key(self, key: Any, constant: int) -> Any:
        """Return the round key after this one."""
        xor = self.builder.xor
        rotated = self.shuffled(key, _BYTES, [13, 14, 15, 12] * 4)
        constants = self.builder.bitcast(ir.Constant(_WORDS, [constant] * 4), _BLOCK)
        word = self.round("aesenclast", rotated, constants)
        key = xor(key, self.shuffled(key, _WORDS, [4, 0, 1, 2]))
        key = xor(key, self.shuffled(key, _WORDS, [4, 4, 0, 1]))
        return xor(key, word)


def _straight_line(keys: int, blocks: int) -> Any:
    """Define an instruction for some keys and some blocks under each.

    It takes three arrays, the row of the first key, the first block of a row and the number of
    blocks of a row.
    """
    of_key = [key for key in range(keys) for _ in range(blocks)]

    @intrinsic
    def encipher(typing_context, key_rows, block_rows, out_rows, row, first, width):  # type: ignore[no-untyped-def]
        def write(context, builder, signature, values):  # type: ignore[no-untyped-def]
            key_base, block_base, out_base = (
                context.make_array(kind)(context, builder, value).data
                for kind, value in zip(signature.args[:3], values[:3], strict=True)
            )
            _, _, _, row, first, width = values
            writer = _Writer(builder)
            rows = [builder.add(row, ir.Constant(row.type, offset)) for offset in range(keys)]
            places = [
                builder.add(
                    builder.add(builder.mul(at_row, width), first), ir.Constant(row.type, block)
                )
                for at_row in rows
                for block in range(blocks)
            ]
            key = [builder.load(writer.place(key_base, at_row), align=1) for at_row in rows]
            state = [
                builder.xor(builder.load(writer.place(block_base, at), align=1), key[at_key])
                for at_key, at in zip(of_key, places, strict=True)
            ]
            for done, constant in enumerate(ROUND_CONSTANTS, 1):
                name = "aesenc" if done < len(ROUND_CONSTANTS) else "aesenclast"
                key = [writer.next_key(last_key, constant) for last_key in key]
                state = [
                    writer.round(name, block, key[at])
                    for at, block in zip(of_key, state, strict=True)
                ]
            for at, block in zip(places, state, strict=True):
                builder.store(block, writer.place(out_base, at), align=1)
            return context.get_dummy_value()

        numbers = (types.int64,) * 3
        return types.void(key_rows, block_rows, out_rows, *numbers), write

    return encipher


_one_key_eight_blocks = _straight_line(1, 8)
_four_keys_two_blocks = _straight_line(4, 2)
_four_keys_one_block = _straight_line(4, 1)
_one_key_one_block = _straight_line(1, 1)


def _rows(keys, blocks, out, rows, width):  # type: ignore[no-untyped-def]
    eights, pairs, fours = width // 8 * 8, width // 2 * 2, rows // 4 * 4
    for row in range(rows):
        for first in range(0, eights, 8):
            _one_key_eight_blocks(keys, blocks, out, row, first, width)
    for row in range(0, fours, 4):
        for first in range(eights, pairs, 2):
            _four_keys_two_blocks(keys, blocks, out, row, first, width)
        if pairs < width:
            _four_keys_one_block(keys, blocks, out, row, pairs, width)
    for row in range(fours, rows):
        for first in range(eights, width):
            _one_key_one_block(keys, blocks, out, row, first, width)


_READ: Final = types.Array(types.uint8, 1, "C", readonly=True)
_SIGNATURE: Final = types.void(
    _READ, _READ, types.Array(types.uint8, 1, "C"), types.int64, types.int64
)


@cache
def _kernel() -> Callable[..., None]:
    """Compile `_rows`."""
    return compile_kernel(_SIGNATURE)(_rows)


def encipher_rows(keys: Bytes, blocks: Bytes, out: Bytes) -> None:
    """Encipher as `ccbps.ciphers.many_keys.encipher_rows` does, in contiguous separate arrays."""
    rows, width, _ = blocks.shape
    _kernel()(keys.reshape(-1), blocks.reshape(-1), out.reshape(-1), rows, width)


def check() -> None:
    """Compare with `cryptography` under random keys.

    Raises:
        RuntimeError: they differ.
    """
    rows, width = 7, 11  # every one of the straight lines
    keys = np.frombuffer(os.urandom(rows * 16), dtype=np.uint8).reshape(rows, 16)
    blocks = np.frombuffer(os.urandom(rows * width * 16), dtype=np.uint8).reshape(rows, width, 16)
    out = np.zeros_like(blocks)
    encipher_rows(keys, blocks, out)
    for key, row, enciphered in zip(keys, blocks, out, strict=True):
        encryptor = Cipher(algorithms.AES(key.tobytes()), modes.ECB()).encryptor()  # noqa: S305
        if encryptor.update(row.tobytes()) != enciphered.tobytes():
            raise RuntimeError("compiled AES differs from that of `cryptography`")
