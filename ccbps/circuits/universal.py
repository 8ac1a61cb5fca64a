"""UGP's universal circuit: runs any group program over S5 of a given length on any n bits.

A program is l instructions (g_0, g_1, i): the permutation g_1 if bit x_i is set, g_0 if not. It
computes f when the product of what it chooses is alpha where f holds and 1 where it does not.

Convention: products run from left to right, first p, then q. Permutations of 1..5 are one-line
tuples, p[k - 1] the image of k; alpha = (1 2 3 4 5) is (2, 3, 4, 5, 1). As 25 bits a permutation is
its matrix, row after row, with a 1 in row k, column p(k). So matrix products run from left to
right, too. An index is binary, most significant bit first.

Output: entry (1, 2) of the product, that is, whether it takes 1 to 2. Alpha does and the identity
does not, so this one bit tells them apart.

================================  ==============================================  ==========
piece                             what it does                                    depth
================================  ==============================================  ==========
`select_block`, the bit           OR over i of [index = i] & x_i                  `mux_depth`
`select_block`, the permutation   (x_i & g_1) | (~x_i & g_0), entry by entry      2
`multiply_block`                  an entry is an OR of five ANDs                  1 + 3
product of l permutations         divide and conquer                              4 ceil(log2 l)
================================  ==============================================  ==========

with mux_depth = ceil(log2 n) + ceil(log2(1 + ceil(log2 n))). For a circuit of depth c log2 n the
program has length n**(2 c), and the universal circuit has depth

    (8 c + 1) log2 n + ceil(log2(1 + log2 n)) + 2

As a group program of its own it has 4 to that power, about 16 n**(16 c + 2) (1 + log2 n)**2,
elements. It is here for comparison: programs of fixed structure need 4 n**(2 c + 1).

Source: [SSM] section 4.1. The exponents are counted from the circuit built here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ccbps.circuits.blocks import select
from ccbps.circuits.builder import CircuitBuilder, Wire
from ccbps.circuits.circuit import Circuit
from ccbps.errors import ParameterError, ShapeError

POINTS = 5
ENTRIES = POINTS * POINTS
ALPHA = (2, 3, 4, 5, 1)
"""The 5-cycle (1 2 3 4 5), one-line."""


def _log2(number: int) -> int:
    """ceil(log2(number))"""
    return (number - 1).bit_length()


def _check(n: int, length: int = 1) -> None:
    for name, value in (("n", n), ("length", length)):
        if value < 1:
            raise ParameterError(f"{name} must be at least 1, got {value}")


def index_bits(n: int) -> int:
    """Bits of an index into n bits: ceil(log2 n), none for n = 1."""
    _check(n)
    return _log2(n)


def program_bits(g0: Sequence[int], g1: Sequence[int], index: int, *, n: int) -> NDArray[np.bool_]:
    """One instruction as the circuit's input bits: g0, g1, index; 50 + `index_bits` bits.

    Args:
        g0: one-line permutation of 1..5, for a 0.
        g1: likewise, for a 1.
        index: which of the n bits is looked at, from 0.
        n: number of bits.

    Raises:
        ParameterError: not permutations, or no such bit.
    """
    width = index_bits(n)
    for name, g in (("g0", g0), ("g1", g1)):
        if sorted(g) != list(range(1, POINTS + 1)):
            # Not the permutation itself: it is the subscription.
            raise ParameterError(f"{name} must be a permutation of 1..{POINTS}, one-line")
    if not 0 <= index < n:
        raise ParameterError(f"index must be within 0..{n - 1}")
    unit = np.eye(POINTS, dtype=np.bool_)
    matrices = [unit[np.array(g, dtype=np.intp) - 1].ravel() for g in (g0, g1)]
    digits = np.array([index >> (width - 1 - i) & 1 for i in range(width)], dtype=np.bool_)
    return np.concatenate([*matrices, digits])


def select_block(
    x: Sequence[Wire], index: Sequence[Wire], g0: Sequence[Wire], g1: Sequence[Wire]
) -> list[Wire]:
    """The 25 bits of the permutation that one instruction chooses.

    An index past the last bit, which only a malformed program has, chooses g0.

    Raises:
        ShapeError: the index does not have `index_bits` bits, or a permutation not 25.
    """
    wanted = index_bits(len(x))
    if (len(index), len(g0), len(g1)) != (wanted, ENTRIES, ENTRIES):
        raise ShapeError(
            f"an instruction has {wanted} index bits and twice {ENTRIES} others, "
            f"got {len(index)}, {len(g0)} and {len(g1)}"
        )
    bit = select(index, x) if index else x[0]
    return [(bit & one) | (~bit & zero) for zero, one in zip(g0, g1, strict=True)]


def multiply_block(p: Sequence[Wire], q: Sequence[Wire]) -> list[Wire]:
    """The 25 bits of first p, then q: an entry is an OR over the points between.

    Raises:
        ShapeError: not 25 bits each.
    """
    if len(p) != ENTRIES or len(q) != ENTRIES:
        raise ShapeError(f"a permutation has {ENTRIES} bits, got {len(p)} and {len(q)}")
    return [_entry(p, q, row, column) for row in range(POINTS) for column in range(POINTS)]


def _entry(p: Sequence[Wire], q: Sequence[Wire], row: int, column: int) -> Wire:
    return p[0].builder.any_of(
        p[row * POINTS + between] & q[between * POINTS + column] for between in range(POINTS)
    )


def universal_circuit(n: int, length: int) -> Circuit:
    """Whether the program's product on x takes 1 to 2: alpha rather than the identity.

    Inputs are x, n bits, and then `length` times the `program_bits` of an instruction.

    Raises:
        ParameterError: n or length is below 1.

    Cost: about length * (100 + 225 + n (1 + log2 n)) gates; depth `universal_depth`.
    """
    _check(n, length)
    builder = CircuitBuilder()
    x = builder.inputs(n)
    factors = []
    for _ in range(length):
        g0, g1 = builder.inputs(ENTRIES), builder.inputs(ENTRIES)
        factors.append(select_block(x, builder.inputs(index_bits(n)), g0, g1))
    while len(factors) > 1:
        pairs = zip(factors[::2], factors[1::2], strict=False)
        # Without a partner the last one waits for the next level.
        odd = factors[len(factors) - len(factors) % 2 :]
        factors = [*(multiply_block(p, q) for p, q in pairs), *odd]
    return builder.build(factors[0][1])


def mux_depth(n: int) -> int:
    """Depth of picking one of n bits: ceil(log2 n) + ceil(log2(1 + ceil(log2 n)))."""
    levels = index_bits(n)
    return levels + _log2(1 + levels)


def universal_depth(n: int, length: int) -> int:
    """Depth of `universal_circuit`: mux_depth(n) + 2 + 4 ceil(log2 length)."""
    _check(n, length)
    return mux_depth(n) + 2 + 4 * _log2(length)
