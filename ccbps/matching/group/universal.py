"""UGPMatch: a universal circuit, evaluated as a group program, with the predicate as its input.

The subscriber turns the predicate into a group program over S5 (Barrington's transform), writes
that as bits (each element 5 x 5 one-hot bits, each index in binary) and feeds them to a public
circuit, which selects and multiplies, and so computes the program's value. That circuit is matched
like any public function: Barrington's transform again, then blinding. The broker learns n and the
length of the inner program.

Not practical: for inner programs of 1, 4, 16 instructions the outer one has up to 4^depth of the
universal circuit, which is 4^12 and more for 4 (`universal_depth`). It is here for comparison:
[SSM] starts from it. Here each element of the subscriber stands beside one of the
publisher's, the identity where the program asks for a bit of hers, so that the broker sees only the
public sequence.

Security: perfect against the broker; broker and one client together learn the other's input.
Source: [SSM] section 4.1, Theorem 20.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Self

import numpy as np

from ccbps.algebra import S5, Group
from ccbps.checks import whole
from ccbps.circuits.universal import program_bits, universal_circuit
from ccbps.errors import ParameterError
from ccbps.forms.circuit import predicate_circuit, program_within
from ccbps.leakage import Protects
from ccbps.matching.contract.scheme import Interest
from ccbps.matching.group.group_match import PROPOSED, GroupMatch, formula
from ccbps.predicates import Predicate, Schema
from ccbps.programs.barrington import MAX_LENGTH, preserving, preserving_length
from ccbps.programs.group import NONE, PreservingProgram

WIDEST: Final = 256
"""Largest number of bits of a schema for a proposal."""


class UGPMatch(GroupMatch):
    """Universal circuit over the predicate's group program.

    Example:
        >>> from ccbps import Bool, Schema, SharedSeed, UInt
        >>> from ccbps.matching import UGPMatch
        >>> matcher = UGPMatch(Schema(a=Bool(), b=Bool()), depth=1)
        >>> seed = SharedSeed.generate()
        >>> records = {"a": [True, False], "b": [True, True]}
        >>> events = matcher.publisher(seed).encode(records, rounds=[0, 1])
        >>> interests = matcher.subscriber(seed).encode("a AND b", rounds=[0, 1])
        >>> matcher.broker().match(events, interests)
        array([ True, False])

    Attributes:
        depth: AND/OR levels that every predicate is padded to; its program has 4^depth
            instructions.
        circuit: the universal circuit, over the event's bits and the program's.
    """

    name = "UGP"
    _hides = frozenset({Protects.CONSTANTS, Protects.ATTRIBUTES, Protects.FORMULA})

    def __init__(self, schema: Schema, depth: int, *, group: str | Group = "A5") -> None:
        """Build the universal circuit and its program.

        Args:
            schema: schema of the events.
            depth: depth of the deepest predicate, 0 or 1.
            group: group of the outer program, "A5" or "S5"; the inner one is always over S5.

        Raises:
            ParameterError: the depth is not 0 or 1, or the outer program would be too long.
        """
        hint = "a universal circuit for more fits nowhere"
        self.depth = whole("depth", depth, 0, 1, hint=hint)
        least = least_length(schema.bits, depth)
        if least > MAX_LENGTH:
            raise ParameterError(
                f"the program would have {least:,} instructions or more, and at most "
                f"{MAX_LENGTH:,}: take OFSGPMatch, which hides as much"
            )
        elements = self._affordable_group(group, least)
        self.circuit = universal_circuit(schema.bits, 4**depth)
        self._affordable_group(elements, preserving_length(self.circuit))
        self._outer = preserving(self.circuit, elements)
        self._private = self._outer.index >= schema.bits
        self._positions = np.where(self._private, np.int32(NONE), self._outer.index)
        self._public = (
            f"the schema, the length {4**depth} of the predicate's program and the group "
            f"{elements.name}"
        )
        self._hidden = (
            "everything about the predicate, except that its program has at most "
            f"{4**depth} instructions"
        )
        self._compile(schema, group, self._outer.length)

    def parameters(self) -> dict[str, Any]:
        return {"depth": self.depth, "group": self.group.name}

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        if predicate.schema != schema or predicate.private_names or schema.bits > WIDEST:
            return
        needed = preserving_length(predicate_circuit(predicate))
        for depth in (0, 1):
            circuit = universal_circuit(schema.bits, 4**depth)
            if needed <= 4**depth and preserving_length(circuit) <= PROPOSED:
                yield cls(schema, depth)

    def __repr__(self) -> str:
        return f"<UGPMatch of depth {self.depth} over {', '.join(self.schema)}, {self.group.name}>"

    def prepare(self, interest: Interest) -> PreservingProgram:
        """Return the outer program with the inner one's bits in it."""
        predicate = formula(self.schema, interest)
        program = program_within(self.schema, predicate, 4**self.depth, S5).group_program()
        # An instruction without an input is the same for both values of any.
        ones = np.where(program.index == NONE, program.zero, program.one)
        index = np.maximum(program.index, 0).tolist()
        bits = np.concatenate(
            [
                program_bits(S5.one_line(int(g0)), S5.one_line(int(g1)), i, n=self.schema.bits)
                for g0, g1, i in zip(program.zero, ones, index, strict=True)
            ]
        )
        outer, group = self._outer, self.group
        # Where the outer program asks for a bit of the inner program, alpha^bit is hers.
        own = np.where(self._private, outer.index - self.schema.bits, 0)
        power = np.where(self._private & bits[own], np.uint8(group.alpha), np.uint8(0))
        interstitials = outer.interstitials.copy()
        interstitials[1:] = group.multiplication[power, interstitials[1:]]
        return PreservingProgram(group, interstitials, self._positions)


def least_length(bits: int, depth: int) -> int:
    """Return a lower bound of the outer program's length, without the circuit.

    Joining n parts of l instructions takes at least l n^2, however they are paired. So choosing
    one of n bits takes 4 n^2 (parts: the bit AND the digits of its index), an entry of what an
    instruction chooses 8 (4 n^2 + 1), and one of a product of two matrices 25 * 4 times as many.
    """
    choice = 4 * bits * bits if bits > 1 else 1
    entries: int = 100 ** (2 * depth)
    return entries * 8 * (choice + 1)
