"""Slow twin of `ccbps.programs` and `ccbps.encodings.group`: group programs over plain tuples.

It follows [SSM] without tables: Definitions 4, 6 and 16, and the transforms of Theorems 8 and 18 as
the appendices A.1 and A.2 prove them (Lemmas 26-32). As there, XOR and constants are not gates.
Products run left to right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce

from ccbps.circuits import Circuit, Gate, Op
from tests.reference.permutation_groups import (
    Permutation,
    alternating,
    commutator,
    inverse,
    symmetric,
    times,
)

ONE: Permutation = (1, 2, 3, 4, 5)
ALPHA: Permutation = (2, 3, 4, 5, 1)
BETA: Permutation = (2, 4, 1, 5, 3)

Instruction = tuple[Permutation, Permutation, int]
"""Elements for a 0 and for a 1, and the input that chooses."""
Preserving = tuple[list[Permutation], list[int]]
"""Interstitial elements g0 ... gl and the index sequence i1 ... il."""


@lru_cache
def elements(name: str) -> list[Permutation]:
    """List the elements of "S5" or "A5", in order."""
    return {"S5": symmetric, "A5": alternating}[name]()


def product(permutations: Iterable[Permutation]) -> Permutation:
    return reduce(times, permutations, ONE)


@lru_cache
def conjugator(name: str, source: Permutation, target: Permutation) -> Permutation:
    """Find a rho of the group with rho^-1 source rho = target."""
    return next(r for r in elements(name) if product([inverse(r), source, r]) == target)


# -- Theorem 8: group programs, appendix A.1 ----------------------------------------------------


def program(circuit: Circuit, name: str) -> list[Instruction]:
    """Return a program that alpha-computes the circuit."""
    return _program(circuit, circuit.outputs[0], ALPHA, name)


def _program(circuit: Circuit, wire: int, target: Permutation, name: str) -> list[Instruction]:
    """Return a program of any wire, for any conjugate of alpha."""
    if wire < circuit.inputs:
        return [(ONE, target, wire)]
    op, a, b = circuit.gates[wire - circuit.inputs]
    if op == Op.NOT:
        *most, (zero, one, index) = _program(circuit, a, inverse(target), name)
        return [*most, (times(zero, target), times(one, target), index)]
    if op == Op.OR:
        return _program(*_de_morgan(circuit, a, b), target, name)
    assert op == Op.AND
    parts: list[Instruction] = []
    for operand, aim in ((a, ALPHA), (b, BETA), (a, inverse(ALPHA)), (b, inverse(BETA))):
        parts += _program(circuit, operand, aim, name)
    rho = conjugator(name, commutator(ALPHA, BETA), target)
    zero, one, index = parts[0]
    parts[0] = times(inverse(rho), zero), times(inverse(rho), one), index
    zero, one, index = parts[-1]
    parts[-1] = times(zero, rho), times(one, rho), index
    return parts


def _de_morgan(circuit: Circuit, a: int, b: int) -> tuple[Circuit, int]:
    """Add gates for a OR b as NOT (NOT a AND NOT b). Return the circuit and their wire."""
    n = circuit.wires
    more = (Gate(Op.NOT, a), Gate(Op.NOT, b), Gate(Op.AND, n, n + 1), Gate(Op.NOT, n + 2))
    return Circuit(circuit.inputs, (*circuit.gates, *more), circuit.outputs), n + 3


# -- Theorem 18: alpha-preserving programs, appendix A.2 ----------------------------------------


def preserving(circuit: Circuit, name: str) -> Preserving:
    """Return an alpha-preserving program that alpha-computes the circuit."""
    return _preserving(circuit, circuit.outputs[0], ALPHA, name)


def _preserving(circuit: Circuit, wire: int, target: Permutation, name: str) -> Preserving:
    if wire < circuit.inputs:
        rho = conjugator(name, ALPHA, target)
        return [inverse(rho), rho], [wire]
    op, a, b = circuit.gates[wire - circuit.inputs]
    if op == Op.NOT:
        inner, index = _preserving(circuit, a, inverse(target), name)
        return [*inner[:-1], times(inner[-1], target)], index
    if op == Op.OR:
        return _preserving(*_de_morgan(circuit, a, b), target, name)
    assert op == Op.AND
    out, indices = [ONE], []
    for operand, aim in ((a, ALPHA), (b, BETA), (a, inverse(ALPHA)), (b, inverse(BETA))):
        inner, index = _preserving(circuit, operand, aim, name)
        out = [*out[:-1], times(out[-1], inner[0]), *inner[1:]]
        indices += index
    rho = conjugator(name, commutator(ALPHA, BETA), target)
    out[0], out[-1] = times(inverse(rho), out[0]), times(out[-1], rho)
    return out, indices


# -- values, sequences, blinding ----------------------------------------------------------------


def value(instructions: Sequence[Instruction], bits: Sequence[bool]) -> Permutation:
    """Multiply the chosen elements (Definition 6)."""
    return product(one if bits[index] else zero for zero, one, index in instructions)


def sequence(program: Preserving, bits: Sequence[bool]) -> list[Permutation]:
    """Return g0, alpha^x[i1], g1, ..., gl (Definition 16). Index -1 is a bit that is 0."""
    interstitials, index = program
    out = [interstitials[0]]
    for i, g in zip(index, interstitials[1:], strict=True):
        out += [ALPHA if i >= 0 and bits[i] else ONE, g]
    return out


def blinded(given: Sequence[Permutation], blinders: Sequence[Permutation]) -> list[Permutation]:
    """Return s1 R1, R1^-1 s2 R2, ..., R(N-1)^-1 sN (Definition 4)."""
    fronts, behind = [ONE, *map(inverse, blinders)], [*blinders, ONE]
    return [product(parts) for parts in zip(fronts, given, behind, strict=True)]


def blinders_between(
    given: Sequence[Permutation], seen: Sequence[Permutation]
) -> list[Permutation]:
    """Return the only blinders that turn a sequence into another of its product (Lemma 5)."""
    assert product(given) == product(seen)
    out, last = [], ONE
    for s, v in zip(given[:-1], seen[:-1], strict=True):
        last = product([inverse(s), last, v])  # the solution R of last^-1 s R = v
        out.append(last)
    return out
