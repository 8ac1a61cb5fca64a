"""Hypothesis strategies and fixed makers: branching programs, and inputs for them.

A random program of hundreds of nodes has far more edges than hypothesis wants to draw, so it is
made by NumPy from a drawn seed and a drawn size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps import programs
from ccbps.programs import BranchingProgram, Label

__all__ = [
    "bit_rows",
    "box_program",
    "event_bits",
    "input_bits",
    "input_words",
    "interest_bits",
    "random_program",
    "seeds",
]

Bits = NDArray[np.uint8]
Words = NDArray[np.uint64]

seeds = st.integers(0, 2**32 - 1)


def event_bits(first: int, count: int) -> list[Label]:
    """Labels of neighbouring event bits."""
    return [programs.event_bit(first + i) for i in range(count)]


def interest_bits(first: int, count: int) -> list[Label]:
    """Labels of neighbouring private bits."""
    return [programs.interest_bit(first + i) for i in range(count)]


def box_program(widths: Sequence[int]) -> BranchingProgram:
    """Intervals with private bounds, all of which must hold."""
    parts, event, interest = [], 0, 0
    for k in widths:
        low, high = interest_bits(interest, k), interest_bits(interest + k, k)
        parts.append(programs.interval(event_bits(event, k), low, high))
        event, interest = event + k, interest + 2 * k
    return programs.conjunction(parts)


def random_program(size: int, seed: int, inputs: int = 90) -> BranchingProgram:
    """Any DAG on `size` + 1 nodes, labels of any affine form.

    Most edges are near the diagonal or into the sink, like those of real programs. Half of the
    labels take the next input bit, so that neighbours can be treated together.
    """
    rng = np.random.default_rng(seed)
    edges: dict[tuple[int, int], Label] = {}
    near = [(u, u + 1 + int(rng.geometric(0.5)) - 1) for u in range(size) for _ in range(2)]
    exits = [(u, size) for u in range(size) if rng.random() < 0.5]
    far = [(int(u), int(v)) for u, v in rng.integers(0, size + 1, (size, 2)) if u < v]
    for u, v in [*near, *exits, *far]:
        if v > size:
            continue
        kind = rng.integers(6)
        chosen = rng.integers(0, inputs, 3).tolist()
        if kind < 3:
            label = Label(event=frozenset({u % inputs}), interest=frozenset({u % inputs}))
        elif kind == 3:
            label = Label(event=frozenset(chosen), one=bool(rng.integers(2)))
        elif kind == 4:
            label = Label(interest=frozenset(chosen), one=bool(rng.integers(2)))
        else:
            label = programs.ONE
        edges[u, v] = label
    return BranchingProgram(size, edges)


def bit_rows(width: int) -> Bits:
    """All 0/1 rows of a width, shape (2**width, width), counting up, most significant bit first."""
    numbers = np.arange(1 << width)[:, None]
    return (numbers >> np.arange(width)[::-1] & 1).astype(np.uint8)


def input_bits(program: BranchingProgram, batch: int, seed: int) -> tuple[Bits, Bits]:
    """Random 0/1 rows for both parties, at least one bit wide."""
    rng = np.random.default_rng(seed)
    widths = max(1, program.event_bits), max(1, program.interest_bits)
    event, interest = (rng.integers(0, 2, (batch, k), dtype=np.uint8) for k in widths)
    return event, interest


def input_words(bits: Bits) -> Words:
    """0/1 rows as the encoders take them: bit i at bit i % 64 of word i // 64, (words, batch)."""
    padded = np.zeros((len(bits), -(-bits.shape[1] // 64) * 64), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    packed = np.packbits(padded, axis=1, bitorder="little").view("<u8")
    return np.ascontiguousarray(packed.T.astype(np.uint64))
