"""AES-128 as a Boolean circuit, from FIPS 197 and the S-box of `ccbps.ciphers.bit_sliced`."""

from __future__ import annotations

from ccbps.ciphers.bit_sliced import NEGATED, ROUND_CONSTANTS, S_BOX
from ccbps.circuits import Circuit, CircuitBuilder, Wire
from ccbps.circuits.bristol import BristolCircuit

Byte = list[Wire]

# FIPS 197, appendices B and C.1: key, block, enciphered block.
VECTORS = [
    (
        0x2B7E151628AED2A6ABF7158809CF4F3C,
        0x3243F6A8885A308D313198A2E0370734,
        0x3925841D02DC09FBDC118597196A0B32,
    ),
    (
        0x000102030405060708090A0B0C0D0E0F,
        0x00112233445566778899AABBCCDDEEFF,
        0x69C4E0D86A7B0430D8CDB78070B4C55A,
    ),
]


def aes_128() -> BristolCircuit:
    """The circuit from a key and a block, as in published files: 6,400 ANDs."""
    builder = CircuitBuilder()
    key = [builder.inputs(8) for _ in range(16)]
    state = _sums([builder.inputs(8) for _ in range(16)], key)
    for number, constant in enumerate(ROUND_CONSTANTS, 1):
        key = _next_key(key, constant)
        state = [_s_box(byte) for byte in state]
        state = [state[(place + 4 * (place % 4)) % 16] for place in range(16)]
        if number < len(ROUND_CONSTANTS):
            state = _mixed(state)
        state = _sums(state, key)
    circuit: Circuit = builder.build(*(bit for byte in state for bit in byte))
    return BristolCircuit.from_blocks(circuit, (128, 128), (128,))


def _sums(left: list[Byte], right: list[Byte]) -> list[Byte]:
    return [[a ^ b for a, b in zip(x, y, strict=True)] for x, y in zip(left, right, strict=True)]


def _s_box(byte: Byte) -> Byte:
    wires = {f"x{bit}": wire for bit, wire in enumerate(byte)}
    for text in S_BOX.split():
        name, formula = text.split("=")
        sign = "^" if "^" in formula else "&"
        left, right = (wires[operand] for operand in formula.split(sign))
        wires[name] = left ^ right if sign == "^" else left & right
    # Bits are negated by their place from the low end, and numbered from the high end.
    return [
        ~wires[f"s{7 - bit}"] if bit in NEGATED else wires[f"s{7 - bit}"]
        for bit in range(7, -1, -1)
    ]


def _next_key(key: list[Byte], constant: int) -> list[Byte]:
    turned = [_s_box(byte) for byte in (*key[13:], key[12])]
    turned[0] = [bit ^ bool(constant >> 7 - place & 1) for place, bit in enumerate(turned[0])]
    out: list[Byte] = []
    for column in range(4):
        turned = _sums(key[4 * column : 4 * column + 4], turned)
        out += turned
    return out


def _mixed(state: list[Byte]) -> list[Byte]:
    out: list[Byte] = []
    for column in range(0, 16, 4):
        a = state[column : column + 4]
        for row in range(4):
            double, triple = _doubled(a[row]), a[(row + 1) % 4]
            parts = [double, _doubled(triple), triple, a[(row + 2) % 4], a[(row + 3) % 4]]
            total = parts[0]
            for part in parts[1:]:
                total = _sums([total], [part])[0]
            out.append(total)
    return out


def _doubled(byte: Byte) -> Byte:
    high, *rest = byte
    return [bit ^ high if place in (3, 4, 6) else bit for place, bit in enumerate([*rest, high])]
