"""UGP's universal circuit, which runs any group program over S5 of a given length on n bits.

A program is l instructions (g_0, g_1, i): the permutation g_1 if bit x_i is set, g_0 if not. It
computes f when the product of the chosen permutations is alpha where f holds and 1 elsewhere.

Convention: products run from left to right, first p, then q. Permutations of 1..5 are one-line
tuples: p[k - 1] is the image of k, and alpha = (1 2 3 4 5) is (2, 3, 4, 5, 1). As 25 bits a
permutation is its matrix, row after row, with a 1 in row k, column p(k). So matrix products run
from left to right, too. An index is binary, most significant bit first.

Output: entry (1, 2) of the product, which is 1 if the product takes 1 to 2. Alpha does and the
identity does not.

================================  ==============================================  ==========
piece                             computation                                     depth
================================  ==============================================  ==========
`select_block`, the bit           OR over i of [index = i] & x_i                  `mux_depth`
`select_block`, the permutation   (x_i & g_1) | (~x_i & g_0), entry by entry      2
`multiply_block`                  an entry is an OR of five ANDs                  1 + 3
product of l permutations         divide and conquer                              4 ceil(log2 l)
================================  ==============================================  ==========

with mux_depth = ceil(log2 n) + ceil(log2(1 + ceil(log2 n))). For a circuit of depth c log2 n the
program has length n**(2 c), and the universal circuit has depth::

    (8 c + 1) log2 n + ceil(log2(1 + log2 n)) + 2

Its own group program has 4 to that power, about 16 n**(16 c + 2) (1 + log2 n)**2, elements. It is
here for comparison: programs of fixed structure need 4 n**(2 c + 1).

Source: [SSM] section 4.1. The exponents are those of the circuit in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ccbps.checks import whole
from ccbps.circuits.blocks import select
from ccbps.circuits.circuit import Circuit, CircuitBuilder, Wire
from ccbps.errors import ParameterError, ShapeError

POINTS = 5
ENTRIES = POINTS * POINTS
ALPHA = (2, 3, 4, 5, 1)
"""The 5-cycle (1 2 3 4 5), one-line."""


def _log2(number: int) -> int:
    """Return ceil(log2(number))."""
    return (number - 1).bit_length()


def index_bits(n: int) -> int:
    """Return the bits of an index into n bits: ceil(log2 n), none for n = 1."""
    return _log2(whole("n", n, 1))


def program_bits(g0: Sequence[int], g1: Sequence[int], index: int, *, n: int) -> NDArray[np.bool_]:
    """Return an instruction as input bits of the circuit: g0, g1, index; 50 + `index_bits` bits.

    Args:
        g0: permutation for a 0, one-line on 1..5.
        g1: permutation for a 1, one-line on 1..5.
        index: place of the input bit, from 0.
        n: number of input bits.

    Raises:
        ParameterError: g0 or g1 is not a permutation, or index is not below n.
    """
    width = index_bits(n)
    for name, g in (("g0", g0), ("g1", g1)):
        if sorted(g) != list(range(1, POINTS + 1)):
            # The message does not show the permutation: it is the subscription.
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
    """Return the 25 bits of the permutation that an instruction chooses.

    An index past the last bit, which only a malformed program has, chooses g0.

    Raises:
        ShapeError: the index does not have `index_bits` bits, or a permutation does not have 25.
    """
    width = index_bits(len(x))
    if (len(index), len(g0), len(g1)) != (width, ENTRIES, ENTRIES):
        raise ShapeError(
            f"an instruction must have {width} index bits and twice {ENTRIES} others, "
            f"got {len(index)}, {len(g0)} and {len(g1)}"
        )
    bit = select(index, x) if index else x[0]
    return [(bit & one) | (~bit & zero) for zero, one in zip(g0, g1, strict=True)]


def multiply_block(p: Sequence[Wire], q: Sequence[Wire]) -> list[Wire]:
    """Multiply permutations, first p, then q: an entry is an OR over the points between.

    Raises:
        ShapeError: p or q does not have 25 bits.
    """
    if len(p) != ENTRIES or len(q) != ENTRIES:
        raise ShapeError(f"a permutation must have {ENTRIES} bits, got {len(p)} and {len(q)}")
    return [
        p[0].builder.any_of(
            p[row * POINTS + between] & q[between * POINTS + column] for between in range(POINTS)
        )
        for row, column in product(range(POINTS), repeat=2)
    ]


def universal_circuit(n: int, length: int) -> Circuit:
    """Return the circuit that tells whether a program's product on x takes 1 to 2.

    So it distinguishes alpha from the identity. Inputs are x, n bits, and then `length` times the
    `program_bits` of an instruction.

    Raises:
        ParameterError: n or length is below 1.

    Cost: about length * (100 + 225 + n (1 + log2 n)) gates; depth `universal_depth`.
    """
    builder = CircuitBuilder()
    x = builder.inputs(whole("n", n, 1))
    factors = []
    for _ in range(whole("length", length, 1)):
        g0, g1 = builder.inputs(ENTRIES), builder.inputs(ENTRIES)
        factors.append(select_block(x, builder.inputs(index_bits(n)), g0, g1))
    while len(factors) > 1:
        pairs = zip(factors[::2], factors[1::2], strict=False)
        # Without a partner, the last factor waits for the next level.
        odd = factors[len(factors) - len(factors) % 2 :]
        factors = [*(multiply_block(p, q) for p, q in pairs), *odd]
    return builder.build(factors[0][1])


def mux_depth(n: int) -> int:
    """Return the depth of selecting from n bits: ceil(log2 n) + ceil(log2(1 + ceil(log2 n)))."""
    levels = index_bits(n)
    return levels + _log2(1 + levels)


def universal_depth(n: int, length: int) -> int:
    """Return the depth of `universal_circuit`: mux_depth(n) + 2 + 4 ceil(log2 length)."""
    return mux_depth(n) + 2 + 4 * _log2(whole("length", length, 1))
