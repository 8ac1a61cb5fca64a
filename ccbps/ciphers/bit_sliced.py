"""AES-128 of rows of blocks, each row under its own key, in NumPy alone and in constant time.

Bit p of byte i of 64 keys, or of 64 blocks, is one word: a plane. The steps of AES on a byte are
then a circuit on eight words, and no table is looked up. SubBytes is the circuit of Boyar and
Peralta with 115 gates; ShiftRows and MixColumns are moves and sums of planes. The four bytes of the
key schedule pass through SubBytes together with the state.

Conventions: planes are uint64, shape (8, 4, 4, blocks, words). The axes are the bit from the low
end, column and row of the state as FIPS 197 draws it, the block of the row, and words of 64 keys.
Sources: FIPS 197; [BP10] for the circuit.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ccbps.arrays import Bytes, Words, slices

LANES: Final = 1 << 13
"""Blocks treated together: enough to make up for the calls, few enough for the cache."""
ROUND_CONSTANTS: Final = (0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1B, 0x36)

S_BOX: Final = """
y14=x3^x5 y13=x0^x6 y9=x0^x3 y8=x0^x5 t0=x1^x2 y1=t0^x7 y4=y1^x3 y12=y13^y14 y2=y1^x0 y5=y1^x6
y3=y5^y8 t1=x4^y12 y15=t1^x5 y20=t1^x1 y6=y15^x7 y10=y15^t0 y11=y20^y9 y7=x7^y11 y17=y10^y11
y19=y10^y8 y16=t0^y11 y21=y13^y16 y18=x0^y16
t2=y12&y15 t3=y3&y6 t4=t3^t2 t5=y4&x7 t6=t5^t2 t7=y13&y16 t8=y5&y1 t9=t8^t7 t10=y2&y7 t11=t10^t7
t12=y9&y11 t13=y14&y17 t14=t13^t12 t15=y8&y10 t16=t15^t12 t17=t4^t14 t18=t6^t16 t19=t9^t14
t20=t11^t16 t21=t17^y20 t22=t18^y19 t23=t19^y21 t24=t20^y18
t25=t21^t22 t26=t21&t23 t27=t24^t26 t28=t25&t27 t29=t28^t22 t30=t23^t24 t31=t22^t26 t32=t31&t30
t33=t32^t24 t34=t23^t33 t35=t27^t33 t36=t24&t35 t37=t36^t34 t38=t27^t36 t39=t29&t38 t40=t25^t39
t41=t40^t37 t42=t29^t33 t43=t29^t40 t44=t33^t37 t45=t42^t41
z0=t44&y15 z1=t37&y6 z2=t33&x7 z3=t43&y16 z4=t40&y1 z5=t29&y7 z6=t42&y11 z7=t45&y17 z8=t41&y10
z9=t44&y12 z10=t37&y3 z11=t33&y4 z12=t43&y13 z13=t40&y5 z14=t29&y2 z15=t42&y9 z16=t45&y14
z17=t41&y8
t46=z15^z16 t47=z10^z11 t48=z5^z13 t49=z9^z10 t50=z2^z12 t51=z2^z5 t52=z7^z8 t53=z0^z3 t54=z6^z7
t55=z16^z17 t56=z12^t48 t57=t50^t53 t58=z4^t46 t59=z3^t54 t60=t46^t57 t61=z14^t57 t62=t52^t58
t63=t49^t58 t64=z4^t59 t65=t61^t62 t66=z1^t63
s0=t59^t63 s6=t56^t62 s7=t48^t60 t67=t64^t65 s3=t53^t66 s4=t51^t66 s5=t47^t65 s1=t64^s3 s2=t55^t67
"""
"""Gates from the input x to the S-box s, whose `NEGATED` bits are inverted; x0 and s0 are the high
bits."""
NEGATED: Final = (0, 1, 5, 6)


def _gates() -> tuple[list[tuple[Any, int, int, int]], int]:
    """Return the circuit's steps (operation, from, from, to), and the number of places they use.

    Places 0-7 are bits of the input, 8-15 of the output, the others are used again and again.
    """
    gates = []
    for text in S_BOX.split():
        name, formula = text.split("=")
        sign = "^" if "^" in formula else "&"
        gates.append((name, np.bitwise_xor if sign == "^" else np.bitwise_and, formula.split(sign)))
    last = {operand: at for at, (_, _, operands) in enumerate(gates) for operand in operands}
    places = {
        f"{side}{bit}": first + 7 - bit for side, first in (("x", 0), ("s", 8)) for bit in range(8)
    }
    steps, free, used = [], list[int](), 16
    for at, (name, operation, operands) in enumerate(gates):
        left, right = (places[operand] for operand in operands)
        free += [
            places[operand]
            for operand in {*operands}
            if last[operand] == at and places[operand] >= 16
        ]
        if name not in places:
            if not free:
                free.append(used)
                used += 1
            places[name] = free.pop()
        steps.append((operation, left, right, places[name]))
    return steps, used


_STEPS, _PLACES = _gates()


def encipher_rows(keys: Bytes, blocks: Bytes, out: Bytes) -> None:
    """Encipher rows as `ccbps.ciphers.many_keys.encipher_rows` does."""
    step = max(64, LANES // max(1, blocks.shape[1]) // 64 * 64)
    for at in slices(len(keys), step):
        state = _enciphered(_planes(keys[at, None]), _planes(blocks[at]))
        _write(state, out[at])


def _planes(rows: Bytes) -> Words:
    """Return the planes of rows of blocks, (rows, blocks, 16); zeros fill the last word."""
    count, blocks, _ = rows.shape
    words = -(-count // 64)
    lanes = np.zeros((16, blocks, 64 * words), dtype=np.uint8)
    lanes[:, :, :count] = rows.transpose(2, 1, 0)
    planes = np.empty((8, 16, blocks, 8 * words), dtype=np.uint8)
    for bit in range(8):
        planes[bit] = np.packbits(lanes & np.uint8(1 << bit), axis=2)
    return planes.view(np.uint64).reshape(8, 4, 4, blocks, words)


def _write(planes: Words, rows: Bytes) -> None:
    """Write planes into rows: the inverse of `_planes`."""
    count, blocks, _ = rows.shape
    bits = np.unpackbits(planes.view(np.uint8), axis=4).reshape(8, 16, blocks, -1)
    lanes = bits[7]
    for bit in range(6, -1, -1):
        lanes += lanes
        lanes |= bits[bit]
    rows[...] = lanes.transpose(2, 1, 0)[:count]


def _enciphered(key: Words, state: Words) -> Words:
    """Return the planes of the enciphered blocks. `key` is overwritten."""
    blocks, words = state.shape[3:]
    cells = 16 * blocks
    # One run of words for all that passes through SubBytes: the state, then four bytes of the key.
    room = np.empty((_PLACES, cells + 4, words), dtype=np.uint64)
    place = list(room)
    before = room[:8, :cells].reshape(state.shape)
    after = room[8:16, :cells].reshape(state.shape)
    rotated, word = room[:8, cells:], room[8:16, cells:]
    shifted, sums = np.empty_like(state), np.empty_like(state)
    np.bitwise_xor(state, key, out=before)
    for number, constant in enumerate(ROUND_CONSTANTS, 1):
        rotated[:, :3], rotated[:, 3] = key[:, 3, 1:, 0], key[:, 3, 0, 0]
        for operation, left, right, to in _STEPS:
            operation(place[left], place[right], place[to])
        for bit in NEGATED:
            np.invert(place[8 + bit], place[8 + bit])
        for bit in range(8):
            if constant >> bit & 1:
                np.invert(word[bit, 0], word[bit, 0])
        key[:, 0, :, 0] ^= word
        for column in range(1, 4):
            key[:, column] ^= key[:, column - 1]
        for row in range(4):
            shifted[:, : 4 - row, row] = after[:, row:, row]
            shifted[:, 4 - row :, row] = after[:, :row, row]
        if number == len(ROUND_CONSTANTS):
            break
        # Bytes a, b, c, d of a column become 2 (a + b) + b + c + d, and so on around it.
        np.bitwise_xor(shifted[:, :, :3], shifted[:, :, 1:], out=sums[:, :, :3])
        np.bitwise_xor(shifted[:, :, 3], shifted[:, :, 0], out=sums[:, :, 3])
        np.bitwise_xor(shifted[:, :, 1:], key[:, :, :3], out=before[:, :, :3])
        np.bitwise_xor(shifted[:, :, 0], key[:, :, 3], out=before[:, :, 3])
        before[:, :, :2] ^= sums[:, :, 2:]
        before[:, :, 2:] ^= sums[:, :, :2]
        before[1:] ^= sums[:-1]
        for bit in (0, 1, 3, 4):  # x^8 = x^4 + x^3 + x + 1
            before[bit] ^= sums[7]
    shifted ^= key
    return shifted
