"""What does a garbled AND cost, beside its AES blocks, and when does garbling beat a formula?

One core. Garbling takes four AES blocks an AND, and evaluating two; half gates take half. The
limit, in the same run: the same blocks in calls of the same size, under keys that are set up. Then
bytes and times of whole matchers: `GarbledMatch` wins where a circuit shares what a formula
repeats.

    python benchmarks/bench_garbled.py [--batch 4096] [--quick]
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from report import Table, options
from timing import KERNELS, machine, one_core, seconds, with_kernels
from workloads import boxes, numbers, random_events

from ccbps import Schema, SharedSeed, UInt
from ccbps.circuits import Circuit, CircuitBuilder
from ccbps.circuits.counting import at_least
from ccbps.encodings.garbling.encoding import GarbledEncoding
from ccbps.errors import CcbpsError
from ccbps.forms.garbled import GarbledForm
from ccbps.matching import BranchingMatch, FormulaMatch, GarbledMatch, Matcher, ThresholdMatch

STOCK = (16, 16, 20)
DISTANCES = ((16, 3), (64, 12))
"""Bits of a value, and limits of Hamming distances."""


def layered(width: int, depth: int) -> tuple[Circuit, int]:
    """Build layers of gates with private negations; return them with their event's bits."""
    builder = CircuitBuilder()
    wires, turns = builder.inputs(width), builder.inputs(width * depth)
    for layer in range(depth):
        own = turns[width * layer : width * (layer + 1)]
        wires = [(wires[i] ^ own[i]) & wires[i - 1] ^ wires[i - 2] for i in range(width)]
    return builder.build(builder.all_of(wires)), width


def circuits() -> dict[str, tuple[Circuit, int]]:
    """Return circuits by name, each with the number of the event's bits."""
    schema = numbers(*STOCK)
    box = GarbledMatch.box(schema)
    marks = Schema(mark=UInt(64))
    form = GarbledForm(marks, marks.parse("hamming(mark, :m) <= 12").true_form(), 4096)
    return {
        "box of 16+16+20 bits": (box.circuit_of_bits, box.encoding.plan.event_bits),
        "hamming of 64 bits": (form.circuit, form.event_bits),
        "16 layers of 32 gates": layered(32, 16),
    }


def distance(bits: int, limit: int) -> GarbledMatch:
    """Return the matcher for a Hamming distance of several attributes of 64 bits together."""
    builder, count = CircuitBuilder(), bits // 64
    x, y = builder.inputs(bits), builder.inputs(bits)
    same = [~(a ^ b) for a, b in zip(x, y, strict=True)]
    circuit = builder.build(at_least(builder, bits - limit, same))
    schema = numbers(*[64] * count)
    private = Schema({f"mine{number}": UInt(64) for number in range(count)})
    return GarbledMatch.circuit(schema, circuit, private)


def blocks(calls: int, size: int) -> Callable[[], None]:
    """Return the raw cipher: so many calls of AES-128, of `size` blocks each."""
    data, out = bytes(16 * size), bytearray(16 * size + 16)
    contexts = [
        Cipher(algorithms.AES128(number.to_bytes(16, "little")), modes.ECB()).encryptor()
        for number in range(8)
    ]

    def run() -> None:
        for call in range(calls):
            contexts[call % 8].update_into(data, out)

    return run


def gates(batch: int, rounds: int) -> None:
    """Print nanoseconds an AND."""
    heads = {"ANDs": ",.0f", "garble": ".1f", "AES": ".1f", "ratio": ".1f"}
    heads |= {"evaluate": ".1f", "its AES": ".1f", "its ratio": ".1f"}
    table = Table("Nanoseconds an AND in a batch", heads, head="circuit", width=34)
    for name, (circuit, event_bits) in circuits().items():
        garbled = Garbled(circuit, event_bits, batch)
        ciphertexts = garbled.encoding.plan.ciphertexts
        for kernels in KERNELS:
            garbled.garble()
            took = seconds(
                {
                    "garble": with_kernels(kernels, garbled.garble),
                    "AES": blocks(ciphertexts, 2 * batch),
                    "evaluate": with_kernels(kernels, garbled.evaluate),
                    "its AES": blocks(ciphertexts, batch),
                },
                rounds,
            )
            cells = {step: 2e9 * time / batch / ciphertexts for step, time in took.items()}
            garble, raw, evaluate, its_raw = cells.values()
            ratios = garble / raw, evaluate / its_raw
            figures = garble, raw, ratios[0], evaluate, its_raw, ratios[1]
            table.row(name + kernels, ciphertexts / 2, *figures)


class Garbled:
    """A batch of garblings of one circuit.

    Args:
        circuit: the circuit.
        event_bits: number of the event's bits.
        batch: number of garblings.
    """

    def __init__(self, circuit: Circuit, event_bits: int, batch: int) -> None:
        rng = np.random.default_rng(0)
        self.encoding = GarbledEncoding(circuit, event_bits)
        size = batch, self.encoding.randomness_bytes
        self._randomness = rng.integers(0, 256, size, dtype=np.uint8)
        self._rounds = np.arange(batch, dtype=np.uint64)
        self._interest = _packed(rng.integers(0, 2, (1, circuit.inputs - event_bits)))
        self._tables = np.empty((batch, self.encoding.interest_bytes), dtype=np.uint8)
        event = _packed(rng.integers(0, 2, (batch, event_bits)))
        self._labels = self.encoding.encode_event(event, self._randomness)

    def garble(self) -> None:
        """Garble the circuit, with one interest folded in."""
        self.encoding.encode_interest(
            self._interest, self._randomness, self._tables, rounds=self._rounds
        )

    def evaluate(self) -> None:
        """Evaluate all garblings."""
        self.encoding.open(self._labels, self._tables)


def _packed(bits: Any) -> Any:
    """Return rows of bits as rows of words."""
    padded = np.zeros((len(bits), max(1, -(-bits.shape[1] // 64)) * 64), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def subjects(quick: bool) -> list[tuple[str, Matcher, Any]]:
    """Return matchers with their predicates in words, and interests."""
    schema = numbers(*STOCK)
    (box,) = boxes(schema, 1)
    several: list[tuple[str, Matcher, Any]] = [
        ("box of 16+16+20 bits", FormulaMatch.box(schema), box),
        ("box of 16+16+20 bits", GarbledMatch.box(schema), box),
    ]
    for bits, limit in DISTANCES:
        marks, mine = Schema(mark=UInt(bits)), (1 << bits) // 3
        name, text = f"hamming, {bits} bits", f"hamming(mark, :mine) <= {limit}"
        for make in (FormulaMatch, BranchingMatch, GarbledMatch):
            with suppress(CcbpsError):  # some would have too many gates
                several.append((name, make(marks, text), {"mine": mine}))
        bound = text.replace(":mine", str(mine))
        several.append((name, ThresholdMatch(marks), bound))
    if not quick:
        long = distance(1024, 200)
        several.append(("hamming, 1024 bits", long, dict.fromkeys(long.private_names or (), 1)))
    return several


def sides(batch: int, rounds: int, quick: bool) -> None:
    """Print bytes and microseconds a pair of whole matchers."""
    heads = {"event": ",.0f", "interest": ",.0f", "publisher": ".2f"}
    heads |= {"subscriber": ".2f", "broker": ".2f"}
    title = "Bytes, and microseconds a pair"
    table = Table(title, heads, head="predicate and matcher", width=40)
    for name, matcher, interest in subjects(quick):
        events, places = random_events(matcher.schema, batch), range(batch)
        seed, broker = SharedSeed.generate(), matcher.broker()
        sent = matcher.publisher(seed).encode(events, places)
        kept = matcher.subscriber(seed).encode(interest, places)
        wanted = matcher.meaning(interest, events)
        assert np.array_equal(broker.match(sent, kept), wanted), "answers differ"
        steps: dict[str, Callable[[], object]] = {
            "publisher": partial(_encode, matcher.publisher, events, batch),
            "subscriber": partial(_encode, matcher.subscriber, interest, batch),
            "broker": partial(broker.match, sent, kept),
        }
        took = seconds(steps, rounds)
        cells = [1e6 * took[step] / batch for step in steps]
        label = f"{name}, {type(matcher).__name__}"
        table.row(label, matcher.event_bytes, matcher.interest_bytes, *cells)


def _encode(make: Callable[..., Any], content: Any, batch: int) -> None:
    """Encode by a new role, which has used no round."""
    make(SharedSeed.generate()).encode(content, range(batch))


def main() -> None:
    given = options(__doc__, batch=4096, quick="few pairs and sizes")
    batch, rounds = (512, 2) if given.quick else (given.batch, 7)
    print(machine())
    gates(batch, rounds)
    sides(batch, rounds, given.quick)


if __name__ == "__main__":
    one_core()
    main()
