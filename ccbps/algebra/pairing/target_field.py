"""The field of GT in plain integers, where a library has neither powers in GT nor its bytes.

The field is ``Fp2[w] / (w^6 - (1 + u))`` with ``Fp2 = Fp[u] / (u^2 + 1)``. An element is a list of
its 6 coefficients, pairs of integers modulo p, from w^0 to w^5. Encoded, it is 12 numbers of 48
bytes, least significant byte first: w^0, w^2, w^4, w^1, w^3, w^5, each as the parts of 1 and u.

Hazard: not constant time.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from ccbps.algebra.modular import integer

P: Final = integer(
    "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab"
)
"""The prime of BLS12-381's field."""
FIELD_BYTES: Final = 48
TARGET_BYTES: Final = 12 * FIELD_BYTES
_ENCODED: Final = (0, 2, 4, 1, 3, 5)
_WINDOW: Final = 4

TargetNumber: TypeAlias = tuple[tuple[int, int], ...]
ONE: Final[TargetNumber] = ((integer(1), integer(0)), *((integer(0), integer(0)),) * 5)


def multiply(left: TargetNumber, right: TargetNumber) -> TargetNumber:
    """Return a product."""
    real, imaginary = [integer(0)] * 11, [integer(0)] * 11
    for i, (a, b) in enumerate(left):
        for j, (c, d) in enumerate(right, i):
            real[j] += a * c - b * d
            imaginary[j] += a * d + b * c
    for j in range(6, 11):  # w^6 = 1 + u
        real[j - 6] += real[j] - imaginary[j]
        imaginary[j - 6] += real[j] + imaginary[j]
    return tuple((real[j] % P, imaginary[j] % P) for j in range(6))


def power(base: TargetNumber, exponent: int) -> TargetNumber:
    """Return a power of an element of GT; the exponent is 0 or more."""
    table = [ONE]
    for _ in range((1 << _WINDOW) - 1):
        table.append(multiply(table[-1], base))
    out = ONE
    for place in reversed(range(0, exponent.bit_length(), _WINDOW)):
        for _ in range(_WINDOW if out != ONE else 0):
            out = multiply(out, out)
        digit = exponent >> place & (1 << _WINDOW) - 1
        out = multiply(out, table[digit]) if digit else out
    return out


def encode(value: TargetNumber) -> bytes:
    """Return the bytes of an element."""
    parts = (int(part) for place in _ENCODED for part in value[place])
    return b"".join(part.to_bytes(FIELD_BYTES, "little") for part in parts)


def decode(data: bytes) -> TargetNumber | None:
    """Return the element that `encode` wrote, None for other bytes."""
    if len(data) != TARGET_BYTES:
        return None
    parts = [
        integer(int.from_bytes(data[at : at + FIELD_BYTES], "little"))
        for at in range(0, TARGET_BYTES, FIELD_BYTES)
    ]
    if max(parts) >= P:
        return None
    pairs = dict(zip(_ENCODED, zip(parts[::2], parts[1::2], strict=True), strict=True))
    return tuple(pairs[place] for place in range(6))
