"""Slow twin of `ccbps.encodings.garbling`: half gates as published, on integers, pair by pair.

A label is an integer of two halves, L the lower one and R the upper one; its select bit is the
lowest bit of R. Labels of 0 are kept, W, and W + Delta is the label of 1. A turned operand has the
turned label of 0, and so has a turned output. The hash is a parameter: H(gate, operand, label).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES128
from cryptography.hazmat.primitives.ciphers.modes import ECB

from ccbps.encodings.garbling.encoding import GarbledEncoding
from ccbps.encodings.garbling.plan import GarblingPlan

Hash = Callable[[int, int, int], int]
HALF = 64


@dataclass(frozen=True)
class HalfGates:
    """Gates on labels of 2 * half bits."""

    half: int
    hash: Hash

    def select(self, label: int) -> int:
        return label >> self.half & 1

    def gate(self, number: int, a: int, b: int, delta: int) -> tuple[int, int, int]:
        """Garble a AND b: both ciphertexts, and the output's label of 0."""
        p_a, p_b = self.select(a), self.select(b)
        first, second = self.hash(number, 0, a), self.hash(number, 0, a ^ delta)
        t_g = first ^ second ^ p_b * delta
        w_g = first ^ p_a * t_g
        first, second = self.hash(number, 1, b), self.hash(number, 1, b ^ delta)
        t_e = first ^ second ^ a
        w_e = first ^ p_b * (t_e ^ a)
        return t_g, t_e, w_g ^ w_e

    def half_gate(self, number: int, a: int, known: int, delta: int) -> tuple[int, int]:
        """Garble a AND a known bit: the ciphertext, and the output's label of 0."""
        first, second = self.hash(number, 0, a), self.hash(number, 0, a ^ delta)
        t_g = first ^ second ^ known * delta
        return t_g, first ^ self.select(a) * t_g

    def open(self, number: int, labels: Sequence[int], ciphertexts: Sequence[int]) -> int:
        """Evaluate a gate, or a half gate, on one label of each operand."""
        out = 0
        for operand, (label, ciphertext) in enumerate(zip(labels, ciphertexts, strict=True)):
            added = ciphertext ^ (labels[0] if operand else 0)
            out ^= self.hash(number, operand, label) ^ self.select(label) * added
        return out


def aes_hash(keys: Sequence[bytes], round_number: int) -> Hash:
    """Return the hash of a round: AES under the gate's key."""

    def hashed(gate: int, operand: int, label: int) -> int:
        mask = (1 << HALF) - 1
        left, right = label & mask, label >> HALF
        tweak = (2 * round_number + operand) & mask
        spread = (left ^ right ^ tweak) | left << HALF
        encryptor = Cipher(AES128(keys[gate]), ECB()).encryptor()
        return int.from_bytes(encryptor.update(spread.to_bytes(16, "little")), "little") ^ spread

    return hashed


def messages(
    encoding: GarbledEncoding,
    event: Sequence[bool],
    interest: Sequence[bool],
    randomness: bytes,
    round_number: int,
) -> tuple[bytes, bytes]:
    """Return both messages of a pair."""
    plan = encoding.plan
    numbers = [
        int.from_bytes(randomness[at : at + 16], "little") for at in range(0, len(randomness), 16)
    ]
    delta, labels = numbers[0] | 1 << HALF, numbers[1:]
    sent = [x ^ int(event[bit]) * delta for x, bit in zip(labels, plan.used, strict=True)]
    gates = HalfGates(HALF, aes_hash(encoding.ciphers.keys(round_number >> 16), round_number))
    ciphertexts, turns = garbled(plan, gates, labels, interest, delta)
    octets = bytearray(-(-len(turns) // 8))
    for place, turn in enumerate(turns):
        octets[place // 8] |= turn << place % 8
    tail = round_number.to_bytes(8, "little") + bytes(octets)
    as_bytes = [b"".join(x.to_bytes(16, "little") for x in some) for some in (sent, ciphertexts)]
    return as_bytes[0], as_bytes[1] + tail


def garbled(
    plan: GarblingPlan,
    gates: HalfGates,
    inputs: Sequence[int],
    interest: Sequence[bool],
    delta: int,
) -> tuple[list[int], list[int]]:
    """Garble a circuit: its ciphertexts, and the select bits of the outputs' labels of 0."""
    known = plan.known.evaluate([interest])[0].astype(int).tolist()
    labels = dict(enumerate(inputs))
    ciphertexts: list[int] = []
    for layer in plan.layers:
        each = len(layer.operands) // layer.size
        made = []
        for place in range(layer.size):
            at = slice(each * place, each * (place + 1))
            turns = [known[x] for x in layer.turns[at]]
            operands = [
                labels[x] ^ turn * delta
                for x, turn in zip(layer.operands[at].tolist(), turns, strict=True)
            ]
            if layer.kind == "xor":
                made.append(labels[layer.operands[at][0]] ^ labels[layer.operands[at][1]])
            elif layer.kind == "gate":
                *pair, out = gates.gate(layer.gate + place, *operands, delta)
                ciphertexts += pair
                made.append(out)
            else:
                bit = known[layer.known[place]]
                one, out = gates.half_gate(layer.gate + place, operands[0], bit, delta)
                ciphertexts.append(one)
                made.append(out)
        labels |= {layer.first + place: label for place, label in enumerate(made)}
    selects = [
        known[turn] ^ (gates.select(labels[label]) if label >= 0 else 0)
        for label, turn in plan.outputs
    ]
    return ciphertexts, selects


def opened(
    plan: GarblingPlan, gates: HalfGates, held: Sequence[int], ciphertexts: Sequence[int]
) -> list[int]:
    """Evaluate a garbled circuit: the outputs' labels, 0 where there is none."""
    labels = dict(enumerate(held))
    for layer in plan.layers:
        each = len(layer.operands) // layer.size
        made = []
        for place in range(layer.size):
            operands = [
                labels[x] for x in layer.operands[each * place : each * (place + 1)].tolist()
            ]
            if layer.kind == "xor":
                made.append(operands[0] ^ operands[1])
                continue
            first = layer.start + each * place
            made.append(gates.open(layer.gate + place, operands, ciphertexts[first : first + each]))
        labels |= {layer.first + place: label for place, label in enumerate(made)}
    return [labels[label] if label >= 0 else 0 for label, _ in plan.outputs]
