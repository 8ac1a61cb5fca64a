"""FSGPMatch and OFSGPMatch: any predicate of bounded depth, perfectly hidden, by group programs.

The subscriber's circuit is padded to a public depth d and becomes a group program of 4^d
instructions; in place of each instruction stands a selector, which takes the input that only the
subscriber knows. So the index sequence is public and always the same, the publisher can write his
elements without knowing the predicate, and broker and publisher learn n and d of it.

=============  =======================================  ====================
matcher        selector                                 elements in all
=============  =======================================  ====================
`FSGPMatch`    Barrington's transform of OR (x AND s)   4 n^2 4^d + 1
`OFSGPMatch`   four elements a bit                      4 n 4^d + 1
=============  =======================================  ====================

(n a power of two for the first.) Use `OFSGPMatch`; `FSGPMatch` is there to be compared with. Where
a conjunction of ranges will do, `ccbps.matching.branching` takes far fewer bytes.

Security: perfect against the broker; broker and one client together learn the other's input.
Source: [SSM] sections 4.2-4.4, Theorems 24 and 25.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra import Group
from ccbps.encodings.group import Segment
from ccbps.errors import ParameterError
from ccbps.matching.group import GroupMatch, circuit_within
from ccbps.matching.matcher import Interest
from ccbps.predicates import Schema
from ccbps.programs.barrington import MAX_LENGTH, fixed_structure
from ccbps.programs.group import PreservingProgram
from ccbps.programs.selector import (
    Selector,
    barrington_selector,
    optimized_selector,
    selected,
)

__all__ = ["FSGPMatch", "OFSGPMatch"]

Ranks = NDArray[np.uint8]
Index = NDArray[np.int32]
Bools = NDArray[np.bool_]


class _FixedStructureMatch(GroupMatch):
    """What the two have in common: all but the selector.

    Attributes:
        depth: d, AND/OR levels that every predicate is padded to.
        selector: takes one input, hidden from the broker.
    """

    def __init__(self, schema: Schema, depth: int, *, group: str | Group = "A5") -> None:
        """
        Args:
            schema: the events' attributes; n is its number of bits.
            depth: d, the deepest circuit a predicate may have.
            group: "A5" (bit-sliced, the faster) or "S5" (as in the paper).

        Raises:
            ParameterError: the depth is negative, or 4^d is too long.
        """
        if type(depth) is not int or depth < 0:
            raise ParameterError(f"depth must be a whole number of at least 0, got {depth!r}")
        if 4**depth > MAX_LENGTH:
            raise ParameterError(
                f"depth {depth} means 4^{depth} = {4**depth:,} instructions, more than "
                f"{MAX_LENGTH:,}; lower it"
            )
        self.depth = depth
        self.selector = self._selector(schema.bits, self._group_of(group))
        self._set_up(schema, group, 4**depth * self.selector.length, {"depth": depth})

    @staticmethod
    @abstractmethod
    def _selector(inputs: int, group: Group) -> Selector:
        """The selector over all inputs."""

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of depth {self.depth} over {', '.join(self.schema)}, "
            f"{self.group.name}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.schema, self.depth, self.group.name)

    @property
    def _public(self) -> str:
        return f"the schema, the depth {self.depth} and the group {self.group.name}"

    @property
    def _hidden(self) -> str:
        return f"everything of the predicate but that its depth is at most {self.depth}"

    def program(self, interest: Interest) -> PreservingProgram:
        """The padded program of a subscription: 4^d instructions over the schema's bits.

        Args:
            interest: SQL text, a `Predicate`, or a `Circuit` over the schema's bits.

        Raises:
            PredicateError: the predicate does not parse, or is deeper than d.
            ParameterError: a circuit has another number of inputs, or not one output.
        """
        circuit = circuit_within(self.schema, interest, self.depth)
        return fixed_structure(circuit, self.depth, self.group)

    def _prepare(self, interest: Interest) -> PreservingProgram:
        return self.program(interest)

    def _index(self, start: int, stop: int) -> Index:
        index = self.selector.index
        return np.resize(np.roll(index, -(start % len(index))), stop - start)

    def _raw_event(self, bits: Bools, segment: Segment) -> NDArray[Any]:
        if segment.padded != segment.stop - segment.start:
            return super()._raw_event(bits, segment)
        # The index sequence repeats: so do the bits, and groups know how to use that.
        period = bits[:, self._index(segment.start, segment.start + self.selector.length)]
        masks = self.group.pack_periodic(period, segment.padded)
        return self.group.powers(masks, self.group.alpha)

    def _interstitials(self, interest: PreservingProgram, start: int, stop: int) -> Ranks:
        return selected(interest, self.selector, start, stop)


class FSGPMatch(_FixedStructureMatch):
    """Fixed-structure group programs with Barrington's selector: 4 n^2 4^d elements."""

    scheme = "FSGP"

    @staticmethod
    def _selector(inputs: int, group: Group) -> Selector:
        return barrington_selector(inputs, group)


class OFSGPMatch(_FixedStructureMatch):
    """Fixed-structure group programs with the optimized selector: 4 n 4^d elements."""

    scheme = "OFSGP"

    @staticmethod
    def _selector(inputs: int, group: Group) -> Selector:
        return optimized_selector(inputs, group)


@lru_cache(maxsize=64)
def _rebuild(
    kind: type[_FixedStructureMatch], schema: Schema, depth: int, group: str
) -> _FixedStructureMatch:
    return kind(schema, depth, group=group)
