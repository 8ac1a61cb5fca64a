"""Barrington's transform: a circuit of depth d as an alpha-preserving program of length 4^d.

Each AND of two sub-programs is a commutator: f, h, f, h, aimed at alpha, beta, alpha^-1 and
beta^-1, multiply to alpha beta alpha^-1 beta^-1 where both hold, and to the identity elsewhere. A
conjugation, two elements at its ends, aims a program at another cycle. NOT takes such elements,
too. OR is an AND of negations, so neither costs length. XOR is two ANDs and an OR.

Other elements at the seams silence the same four blocks: aimed at alpha, alpha, alpha^-1, alpha^-1
they are the identity for all f and h. Only their owner sees these elements. So a gate of a
publisher's value and a value that the subscriber owns (`owned`) costs nothing: the subscriber
chooses between f and the identity. In particular x XOR y, with y owned by the subscriber, is a
single instruction. This is not in [SSM]. Lengths without `owned` are those of [SSM].

Source: [SSM] Theorems 8 and 18, Lemmas 26-32; Barrington 1989.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ccbps.algebra.group import Group
from ccbps.arrays import Index, Ranks
from ccbps.checks import whole
from ccbps.circuits.circuit import Circuit, Op
from ccbps.errors import ParameterError
from ccbps.programs.group import NONE, PreservingProgram

MAX_LENGTH: Final = 1 << 28
"""Largest number of instructions of a program. Longer ones would fill the memory."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Piece:
    """A sub-program aimed at alpha. Its outermost elements are separate: only they ever change.

    Attributes:
        index: index sequence.
        inner: interstitial elements without the first and the last.
        first: first interstitial element.
        last: last interstitial element.
        parts: the two sub-programs of the outermost four blocks; None for one or two instructions.
        negated: True for a single instruction that computes NOT x.
    """

    index: Index
    inner: Ranks
    first: int
    last: int
    parts: tuple[_Piece, _Piece] | None = None
    negated: bool = False


class _Cycles:
    """Elements at the seams, for one group."""

    def __init__(self, group: Group) -> None:
        multiply, inverse = group.multiplication, group.inverses
        self.group, self.alpha = group, group.alpha
        alpha_inverse = int(inverse[group.alpha])
        # A conjugate b of alpha with alpha * b conjugate to alpha.
        conjugates = multiply[inverse, multiply[group.alpha]]
        products = multiply[group.alpha, conjugates]
        self.partner = int(conjugates[np.isin(products, conjugates)][0])
        beta = group.beta
        self.both = self._seams(group.alpha, beta, alpha_inverse, int(inverse[beta]))
        self.nothing = self._seams(group.alpha, group.alpha, alpha_inverse, alpha_inverse)

    def product(self, *ranks: int) -> int:
        out = 0
        for rank in ranks:
            out = int(self.group.multiplication[out, rank])
        return out

    def inverse(self, rank: int) -> int:
        return int(self.group.inverses[rank])

    def aim(self, source: int, target: int) -> tuple[int, int]:
        """Return the elements in front and behind that turn `source` into `target`."""
        rho = self.group.conjugator(source, target)
        return self.inverse(rho), rho

    def _seams(self, *targets: int) -> tuple[int, ...]:
        """Return the elements in front of, between and behind four blocks, aimed at alpha."""
        ends = [self.aim(self.alpha, target) for target in targets]
        value = self.product(*targets)
        front, behind = (0, 0) if value == 0 else self.aim(value, self.alpha)
        return (
            self.product(front, ends[0][0]),
            *(self.product(ends[i][1], ends[i + 1][0]) for i in range(3)),
            self.product(ends[3][1], behind),
        )


@lru_cache(maxsize=8)
def _cycles(group: Group) -> _Cycles:
    return _Cycles(group)


def partner_of(group: Group) -> int:
    """Return a conjugate b of alpha whose product alpha * b is conjugate to alpha, too."""
    return _cycles(group).partner


def _instruction(index: int, dtype: type[np.signedinteger[Any]]) -> _Piece:
    return _Piece(np.array([index], dtype=dtype), np.empty(0, dtype=np.uint8), 0, 0)


def _pair(cycles: _Cycles, index: Index, value: bool) -> _Piece:
    """Return x AND `value` as alpha^x u alpha^x u^-1, since one instruction cannot be silenced.

    u alpha u^-1 is a partner of alpha (the product is aimed at alpha again), or alpha's inverse.
    """
    target = cycles.partner if value else cycles.inverse(cycles.alpha)
    _, rho = cycles.aim(cycles.alpha, target)
    front, behind = 0, 0
    if value:
        front, behind = cycles.aim(cycles.product(cycles.alpha, target), cycles.alpha)
    return _Piece(
        np.concatenate([index, index]),
        np.array([cycles.inverse(rho)], dtype=np.uint8),
        front,
        cycles.product(rho, behind),
    )


def _four(cycles: _Cycles, f: _Piece, h: _Piece, seams: tuple[int, ...]) -> _Piece:
    """Join the blocks f, h, f, h by elements at their seams; [SSM] Lemma 32 for `both`."""
    blocks = (f, h, f, h)
    inner = [f.inner]
    for left, right, seam in zip(blocks[:-1], blocks[1:], seams[1:-1], strict=True):
        joint = cycles.product(left.last, seam, right.first)
        inner += [np.array([joint], dtype=np.uint8), right.inner]
    return _Piece(
        np.concatenate([block.index for block in blocks]),
        np.concatenate(inner),
        cycles.product(seams[0], f.first),
        cycles.product(h.last, seams[-1]),
        (f, h),
    )


def _negated(cycles: _Cycles, piece: _Piece) -> _Piece:
    """Negate a piece: aim it at alpha^-1, then multiply by alpha ([SSM] Lemma 31)."""
    front, behind = cycles.aim(cycles.alpha, cycles.inverse(cycles.alpha))
    return replace(
        piece,
        first=cycles.product(front, piece.first),
        last=cycles.product(piece.last, behind, cycles.alpha),
        negated=not piece.negated,
    )


def _either(cycles: _Cycles, f: _Piece, h: _Piece) -> _Piece:
    """Return f OR h, by De Morgan."""
    both = _four(cycles, _negated(cycles, f), _negated(cycles, h), cycles.both)
    return _negated(cycles, both)


def _gated(cycles: _Cycles, piece: _Piece, value: bool) -> _Piece:
    """Return `piece` AND an owned value, in a structure that does not depend on the value."""
    if piece.parts is not None:
        return piece if value else _four(cycles, *piece.parts, cycles.nothing)
    if not value or len(piece.index) == 1:
        pair = _pair(cycles, piece.index[:1], value)
        return _negated(cycles, pair) if value and piece.negated else pair
    return piece


def preserving(
    circuit: Circuit, group: Group, owned: Mapping[int, bool] | None = None
) -> PreservingProgram:
    """Build the alpha-preserving program of a circuit, [SSM] Theorem 18.

    Args:
        circuit: circuit of one output. XOR gates become (a AND NOT b) OR (NOT a AND b).
        group: group of the elements.
        owned: values of the inputs that the program's owner has, by input. They do not appear in
            the index sequence, which is the same for all their values. Gates with such an input are
            free.

    Returns:
        A program over the circuit's inputs. Its length is `preserving_length`, at most 4^depth.

    Raises:
        ParameterError: the circuit does not have one output, `owned` names a wire that is not an
            input, or the program would be too long.
    """
    values = {wire: bool(value) for wire, value in (owned or {}).items()}
    length = preserving_length(circuit, values)
    if length > MAX_LENGTH:
        raise ParameterError(
            f"the program would have {length:,} instructions, more than {MAX_LENGTH:,}; "
            f"the circuit has depth {circuit.depth}: lower its depth"
        )
    circuit, cycles = circuit.cone(), _cycles(group)
    dtype = np.int16 if circuit.inputs < 1 << 15 else np.int32
    # Owned values are bools, all others are pieces.
    wires: list[bool | _Piece] = [
        values[i] if i in values else _instruction(i, dtype) for i in range(circuit.inputs)
    ]
    for op, a, b in circuit.gates:
        wires.append(_gate(cycles, op, *(wires[wire] for wire in (a, b)[: op.operands])))
    piece = wires[circuit.outputs[0]]
    if isinstance(piece, bool):
        constant = _instruction(NONE, dtype)
        piece = _negated(cycles, constant) if piece else constant
    ends = np.array([piece.first, piece.last], dtype=np.uint8)
    return PreservingProgram(group, np.concatenate([ends[:1], piece.inner, ends[1:]]), piece.index)


def _gate(cycles: _Cycles, op: Op, *operands: bool | _Piece) -> bool | _Piece:
    if op in (Op.FALSE, Op.TRUE):
        return op == Op.TRUE
    if op == Op.NOT:
        (f,) = operands
        return not f if isinstance(f, bool) else _negated(cycles, f)
    f, h = operands
    if isinstance(f, bool):
        f, h = h, f
    if isinstance(f, bool):
        assert isinstance(h, bool)
        return {Op.AND: f and h, Op.OR: f or h, Op.XOR: f != h}[op]
    if isinstance(h, bool):
        if op == Op.XOR:
            return _negated(cycles, f) if h else f
        if op == Op.AND:
            return _gated(cycles, f, h)
        return _negated(cycles, _gated(cycles, _negated(cycles, f), not h))
    if op == Op.AND:
        return _four(cycles, f, h, cycles.both)
    if op == Op.OR:
        return _either(cycles, f, h)
    only_f = _four(cycles, f, _negated(cycles, h), cycles.both)
    only_h = _four(cycles, _negated(cycles, f), h, cycles.both)
    return _either(cycles, only_f, only_h)


def preserving_length(circuit: Circuit, owned: Collection[int] = ()) -> int:
    """Return the length of `preserving`'s program without building it.

    Raises:
        ParameterError: the circuit does not have one output, or `owned` names a wire that is not an
            input.
    """
    if len(circuit.outputs) != 1:
        raise ParameterError(f"the circuit must have one output, got {len(circuit.outputs)}")
    for wire in owned:
        whole("an input in owned", wire, 0, circuit.inputs - 1)
    circuit = circuit.cone()
    lengths = [0 if i in owned else 1 for i in range(circuit.inputs)]  # 0: owned
    for op, a, b in circuit.gates:
        f, h = sorted(lengths[wire] if wire >= 0 else 0 for wire in (a, b))
        if f:
            lengths.append((4 if op == Op.XOR else 1) * 2 * (f + h))
        else:
            # A single instruction is doubled where it may have to be silenced.
            lengths.append(2 if h == 1 and op in (Op.AND, Op.OR) else h)
    return max(1, lengths[circuit.outputs[0]])


def fixed_structure(circuit: Circuit, length: int, group: Group) -> PreservingProgram:
    """Build the program of a circuit, padded to a length with instructions that take no input.

    Its index sequence, the input of each instruction, still depends on the circuit. With a selector
    in place of each instruction (`ccbps.programs.selector`) nothing does, and the padding, whose
    selectors select no input, looks like the rest.

    Args:
        circuit: circuit of one output.
        length: number of instructions L, at least `preserving_length` of the circuit. 4^d is enough
            for depth d.
        group: group of the elements.

    Raises:
        ParameterError: the program is longer than `length`.
    """
    needed = preserving_length(circuit)
    if needed > length:
        raise ParameterError(
            f"the circuit's program has {needed:,} instructions, more than length={length:,}"
        )
    program = preserving(circuit, group)
    index = np.full(length, NONE, dtype=program.index.dtype)
    index[:needed] = program.index
    interstitials = np.zeros(length + 1, dtype=np.uint8)
    interstitials[: needed + 1] = program.interstitials
    return PreservingProgram(group, interstitials, index)
