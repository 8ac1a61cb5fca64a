"""Sorting networks, counts of true wires, and thresholds on them.

A comparator (i, j), i < j, puts the smaller value on line i and the larger on line j. On bits it is
an AND and an OR, of depth 1. A network sorts upwards: of n sorted bits, line n - k (from 0) is 1
exactly when at least k bits are.

========  ======================  ======================
n         Batcher, size / depth   Bose-Nelson
========  ======================  ======================
2         1 / 1                   1 / 1
4         5 / 3                   5 / 3
8         19 / 6                  19 / 7
16        63 / 10                 65 / 15
32        191 / 15                211 / 31
========  ======================  ======================

For n = 2**t the depths are t (t + 1) / 2 and 2**t - 1. Outer lines have smaller depth: take the
cone of a line to get its depth.

`at_least` on n wires of depth 0 has at most the depth of a line of Batcher's network. For 2 of n
and for all but 1 it is ceil(log2 n) + ceil(log2 log2 n).

Erratum: [SSM] section 5 and appendix B call Bose-Nelson's networks the shallowest. They have few
comparators, but from n = 8 on Batcher's are shallower, and the cost of a group program is depth.

Source: [BN62]; [B68]; 0-1 principle: a network that sorts all rows of bits sorts everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ccbps.checks import choice, whole
from ccbps.circuits.blocks import add_parallel
from ccbps.circuits.circuit import Circuit, CircuitBuilder, Op, Wire
from ccbps.errors import ParameterError, ShapeError

NetworkName = Literal["batcher", "bose-nelson"]


@dataclass(frozen=True)
class SortingNetwork:
    """Comparators on n lines, in order. Those of `batcher` and `bose_nelson` sort.

    Attributes:
        lines: number of lines n, at least 1.
        comparators: pairs (i, j), 0 <= i < j < n.

    Raises:
        ParameterError: `lines` is below 1, or a comparator is not such a pair.
    """

    lines: int
    comparators: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        whole("lines", self.lines, 1)
        for i, j in self.comparators:
            if not 0 <= i < j < self.lines:
                raise ParameterError(
                    f"comparators must be pairs i < j within 0..{self.lines - 1}, got ({i}, {j})"
                )

    @property
    def size(self) -> int:
        """Number of comparators."""
        return len(self.comparators)

    @cached_property
    def layers(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Comparators by layer, each in the earliest layer that its lines allow."""
        busy = [0] * self.lines
        layers: list[list[tuple[int, int]]] = []
        for i, j in self.comparators:
            layer = max(busy[i], busy[j])
            busy[i] = busy[j] = layer + 1
            if layer == len(layers):
                layers.append([])
            layers[layer].append((i, j))
        return tuple(tuple(layer) for layer in layers)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.layers)

    def sort(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sort the last axis of an array, shape (..., n), upwards.

        Raises:
            ShapeError: the last axis is not n long.
        """
        out = np.array(values)
        if out.ndim == 0 or out.shape[-1] != self.lines:
            raise ShapeError(f"values must have shape (..., {self.lines}), got {out.shape}")
        for layer in self.layers:
            low, high = np.array(layer, dtype=np.intp).T
            smaller = np.minimum(out[..., low], out[..., high])
            out[..., high] = np.maximum(out[..., low], out[..., high])
            out[..., low] = smaller
        return out

    def on_wires(self, wires: Sequence[Wire]) -> list[Wire]:
        """Sort wires, one for each line.

        Raises:
            ShapeError: the number of wires is not that of the lines.
        """
        if len(wires) != self.lines:
            raise ShapeError(f"wires must be {self.lines}, one for each line, got {len(wires)}")
        lines = list(wires)
        for i, j in self.comparators:
            lines[i], lines[j] = lines[i] & lines[j], lines[i] | lines[j]
        return lines

    def circuit(self) -> Circuit:
        """Return a circuit from n bits to the same bits, sorted."""
        builder = CircuitBuilder()
        return builder.build(*self.on_wires(builder.inputs(self.lines)))


@lru_cache(maxsize=128)
def bose_nelson(n: int) -> SortingNetwork:
    """Return Bose and Nelson's network, which sorts both halves and then merges them.

    Cost: for n = 2**t, 3**t - 2**t comparators, depth 2**t - 1.
    Source: [BN62].
    """
    out: list[tuple[int, int]] = []

    def merge(i: int, x: int, j: int, y: int) -> None:
        """Merge x sorted lines from i with y sorted lines from j; x and y differ by at most 1."""
        if x == 1 and y == 1:
            out.append((i, j))
        elif x == 1 and y == 2:
            out.extend([(i, j + 1), (i, j)])
        elif x == 2 and y == 1:
            out.extend([(i, j), (i + 1, j)])
        else:
            a = x // 2
            b = y // 2 if x % 2 else -(-y // 2)
            merge(i, a, j, b)
            merge(i + a, x - a, j + b, y - b)
            merge(i + a, x - a, j, b)

    def sort(i: int, m: int) -> None:
        if m > 1:
            a = m // 2
            sort(i, a)
            sort(i + a, m - a)
            merge(i, a, i + a, m - a)

    sort(0, n)
    return SortingNetwork(n, tuple(out))


@lru_cache(maxsize=128)
def batcher(n: int) -> SortingNetwork:
    """Return Batcher's odd-even merge sort for any n, in its merge exchange form.

    Stage p makes every p-th line a sorted chain: it merges the chains of stage 2p two by two. It
    compares lines at distance p first. Then it compares lines at distances q - p, for q from the
    largest power of two down to 2p.

    Cost: for n = 2**t, (t * t - t + 4) * 2**(t - 2) - 1 comparators, depth t (t + 1) / 2; for other
    n at most the depth of the next power of two.
    Source: [B68]; Knuth, The Art of Computer Programming 3, 5.2.2 M.
    """
    out: list[tuple[int, int]] = []
    top = (1 << max(0, n - 1).bit_length()) // 2
    p = top
    while p:
        out.extend((i, i + p) for i in range(n - p) if not i & p)
        q = top
        while q > p:
            out.extend((i, i + q - p) for i in range(n - q + p) if i & p)
            q //= 2
        p //= 2
    return SortingNetwork(n, tuple(out))


NETWORKS: dict[NetworkName, Callable[[int], SortingNetwork]] = {
    "batcher": batcher,
    "bose-nelson": bose_nelson,
}


def hamming_circuit(
    n: int,
    threshold: int,
    *,
    network: NetworkName = "batcher",
    y: Sequence[int] | None = None,
    within: bool = False,
) -> Circuit:
    """Return a circuit that tells whether two n-bit strings differ in more than t bits.

    It sorts x ^ y and outputs one line.

    Args:
        n: length of a string in bits, at least 1.
        threshold: t, any integer. Outside 0..n-1 the circuit is constant.
        network: "batcher" or "bose-nelson".
        y: n bits to hard-code, which reduces the XOR to free NOTs. None makes y inputs n .. 2n-1,
            and the XOR takes two levels.
        within: True for "distance <= t" instead of "distance > t", in the same depth.

    Returns:
        A circuit with one output, and only the gates of its cone.

    Raises:
        ParameterError: n, network or y is not as above.

    Source: [SSM] section 5.
    """
    whole("n", n, 1)
    choice("network", network, NETWORKS)
    if y is not None and (len(y) != n or not all(bit in (0, 1) for bit in y)):
        # The message does not show the bits: they are the subscription.
        raise ParameterError(f"y must be {n} bits, each 0 or 1, or None; got {len(y)} values")
    builder = CircuitBuilder()
    x = builder.inputs(n)
    other: Sequence[Wire | bool]
    other = builder.inputs(n) if y is None else [bool(bit) for bit in y]
    if threshold < 0 or threshold >= n:
        out = builder.constant(threshold < 0)
    else:
        different = [a ^ b for a, b in zip(x, other, strict=True)]
        out = NETWORKS[network](n).on_wires(different)[n - 1 - threshold]
    return builder.build(~out if within else out)


# -- counts and thresholds -------------------------------------------------------------------------


def popcount(wires: Sequence[Wire]) -> list[Wire]:
    """Return the number of true wires among n >= 1, in n.bit_length() bits."""
    if not wires:
        raise ShapeError("wires must be at least 1, got 0")
    n = len(wires)
    if n == 1:
        return list(wires)
    # The last wire is the carry of the sum of the two halves of the others.
    *others, carry = wires
    half = len(others) // 2
    halves = [popcount(part) if part else [] for part in (others[:half], others[half:])]
    zero = carry.builder.constant(False)
    # The second half is never the smaller one.
    first, second = ([zero] * (len(halves[1]) - len(part)) + part for part in halves)
    return add_parallel(first, second, carry)[-n.bit_length() :]


def at_least(k: int, wires: Sequence[Wire], builder: CircuitBuilder | None = None) -> Wire:
    """Return whether at least k wires are true, by the shallower of two monotone circuits.

    The first is a line of Batcher's network. The second splits the wires: at least k of all are
    true if for some i at least i of the first half and k - i of the second are.

    Args:
        k: threshold; any integer.
        wires: wires to be counted; any number of them.
        builder: builder of the result, needed only if there are no wires.

    Raises:
        ParameterError: there are neither wires nor a builder.
    """
    if builder is None:
        if not wires:
            raise ParameterError("at_least of no wires needs a builder")
        builder = wires[0].builder
    n = len(wires)
    if k <= 0 or k > n:
        return builder.constant(k <= 0)
    # Deep wires come last, so that the wires of a half are of about equal depth.
    ordered = sorted(wires, key=lambda wire: wire.depth)
    split = _at_least_split(builder, k, ordered)
    if n < 3 or k in (1, n):
        return split
    line = batcher(n).on_wires(ordered)[n - k]
    return min(split, line, key=lambda wire: wire.depth)


def _at_least_split(builder: CircuitBuilder, k: int, wires: Sequence[Wire]) -> Wire:
    @cache
    def reach(count: int, i: int, j: int) -> Wire:
        if count <= 0 or count > j - i:
            return builder.constant(count <= 0)
        if count == 1:
            return builder.any_of(wires[i:j])
        if count == j - i:
            return builder.all_of(wires[i:j])
        if count in (2, j - i - 1):
            return _all_but_one(builder, wires[i:j], few=count == 2)
        m = (i + j) // 2
        return builder.any_of(
            reach(first, i, m) & reach(count - first, m, j)
            for first in range(max(0, count - (j - m)), min(count, m - i) + 1)
        )

    return reach(k, 0, len(wires))


def _all_but_one(builder: CircuitBuilder, wires: Sequence[Wire], *, few: bool) -> Wire:
    """Return whether at least 2 wires are true if `few`, else the dual: whether at most 1 is false.

    The numbers of two true wires differ in some bit: on each side of it a wire is true.
    """
    sides, both = (Op.OR, Op.AND) if few else (Op.AND, Op.OR)
    pairs = [
        builder.joined(
            both,
            [
                builder.joined(sides, [x for i, x in enumerate(wires) if (i >> bit & 1) == side])
                for side in (0, 1)
            ],
        )
        for bit in range((len(wires) - 1).bit_length())
    ]
    return builder.joined(sides, pairs)
