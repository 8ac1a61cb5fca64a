"""FSGPMatch and OFSGPMatch: any predicate of bounded depth, perfectly hidden, by group programs.

The subscriber's circuit becomes a group program, filled up to a public number of instructions: 4^d,
which is enough for any circuit of depth d, or another number. In place of each instruction stands a
selector, which takes the input that only the subscriber knows, or none. So the index sequence is
public and always the same, the publisher can write its elements without knowing the predicate, and
broker and publisher learn n and the number of instructions.

=============  =======================================  ====================
matcher        selector                                 elements in all
=============  =======================================  ====================
`FSGPMatch`    Barrington's transform of OR (x AND s)   4 n^2 4^d + 1
`OFSGPMatch`   four elements per bit                    4 n 4^d + 1
=============  =======================================  ====================

(n a power of two for the first.) Use `OFSGPMatch`; `FSGPMatch` is there for comparison. Where
the form may be public, `ccbps.matching.one_time.formula` takes far fewer bytes.

Security: perfect against the broker; broker and one client together learn the other's input.
Source: [SSM] sections 4.2-4.4, Theorems 24 and 25.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra import A5, Group
from ccbps.arrays import Bools, Index, Ranks
from ccbps.checks import whole
from ccbps.encodings.group import Segment
from ccbps.errors import ParameterError
from ccbps.forms.circuit import depth_within, predicate_circuit, program_within
from ccbps.leakage import Protects
from ccbps.matching.contract.scheme import Interest
from ccbps.matching.group.group_match import PROPOSED, GroupMatch, formula
from ccbps.predicates import Predicate, Schema
from ccbps.programs.barrington import MAX_LENGTH, preserving_length
from ccbps.programs.group import PreservingProgram
from ccbps.programs.selector import (
    Selector,
    barrington_selector,
    optimized_selector,
    seams,
    selected,
)


class _FixedStructureMatch(GroupMatch):
    """Base of the two: all but the selector.

    Attributes:
        instructions: L, number of instructions that every predicate's program is filled up to.
        depth: the greatest d with 4^d <= L: every predicate of that depth fits.
        selector: selector of one input, hidden from the broker.
    """

    _hides = frozenset({Protects.CONSTANTS, Protects.ATTRIBUTES, Protects.FORMULA})
    _widest: ClassVar[int]
    """Largest number of bits of a schema for a proposal: beyond, the selector's table is large."""
    _selector: ClassVar[staticmethod[[int, Group], Selector]]
    """Function from the number of inputs and the group to the selector over all inputs."""

    def __init__(
        self,
        schema: Schema,
        depth: int | None = None,
        *,
        length: int | None = None,
        group: str | Group = "A5",
    ) -> None:
        """Choose the number of instructions.

        Args:
            schema: schema of the events; n is its number of bits.
            depth: d, depth of the deepest circuit of a predicate; programs have 4^d instructions.
            length: L, number of instructions, instead of `depth`: for predicates that are deep but
                short. `ccbps.programs.barrington.preserving_length` counts those of a circuit.
            group: "A5" (bit-sliced, the faster) or "S5" (as in the paper).

        Raises:
            ParameterError: `depth` and `length` are both given or both missing, or out of range.
        """
        if (depth is None) == (length is None):
            raise ParameterError("give one of depth= and length=")
        if length is None:
            hint = "programs have 4^depth instructions"
            length = 4 ** whole("depth", depth, 0, depth_within(MAX_LENGTH), hint=hint)
        length = whole("length", length, 1, MAX_LENGTH)
        self.instructions, self.depth = length, depth_within(length)
        elements = self._affordable_group(group, length * self._least(schema.bits))
        self.selector = self._selector(schema.bits, elements)
        self._public = (
            f"the schema, the number of instructions ({length:,}: depth {self.depth}) and the "
            f"group {elements.name}"
        )
        self._hidden = (
            f"everything about the predicate, except that its program has at most {length:,} "
            f"instructions, as has that of any predicate of depth {self.depth}"
        )
        self._positions = self.selector.index
        self._compile(schema, group, length * self.selector.length)

    def parameters(self) -> dict[str, Any]:
        return {"length": self.instructions, "group": self.group.name}

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        """Yield a matcher of the predicate's own number of instructions, and one of its depth.

        The number follows the constants: take the depth, if they shall not be known. Predicates
        with private constants have none, and none has messages beyond
        `ccbps.matching.group.group_match.PROPOSED` elements.
        """
        if predicate.schema != schema or predicate.private_names or schema.bits > cls._widest:
            return
        shortest, depth = preserving_length(predicate_circuit(predicate)), 0
        while 4**depth < shortest:
            depth += 1
        for length in sorted({shortest, 4**depth}):
            if length * cls._selector(schema.bits, A5).length <= PROPOSED:
                yield cls(schema, length=length)

    @staticmethod
    @abstractmethod
    def _least(inputs: int) -> int:
        """Return a lower bound of the selector's length."""

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.instructions:,} instructions over "
            f"{', '.join(self.schema)}, {self.group.name}>"
        )

    def prepare(self, interest: Interest) -> PreservingProgram:
        """Return the filled-up program of a subscription: L instructions over the schema's bits.

        Args:
            interest: SQL text, a `Predicate`, or a `Circuit` over the schema's bits.

        Raises:
            PredicateError: the predicate does not parse, or needs more instructions.
            ParameterError: a circuit has another number of inputs, or not one output.
        """
        taken = formula(self.schema, interest)
        return program_within(self.schema, taken, self.instructions, self.group)

    def _index(self, start: int, stop: int) -> Index:
        index = self._positions
        return np.resize(np.roll(index, -(start % len(index))), stop - start)

    def _raw_event(self, bits: Bools, segment: Segment) -> NDArray[Any]:
        if segment.padded != segment.stop - segment.start:
            return super()._raw_event(bits, segment)
        # The index sequence repeats: so do the bits, and groups know how to use that.
        period = bits[:, self._index(segment.start, segment.start + self.selector.length)]
        masks = self.group.pack_periodic(period, segment.padded)
        return self.group.powers(masks, self.group.alpha)

    def _raw_interests(
        self, interests: Sequence[PreservingProgram], segment: Segment
    ) -> NDArray[Any]:
        m, blocks, group = self.selector.length, self.selector.blocks, self.group
        count = segment.stop - segment.start
        if (
            blocks is None
            or segment.start % m
            or segment.padded != count
            or not group.divides(m, count)
        ):
            return super()._raw_interests(interests, segment)
        # Between seams there are u and u^-1 only, of the chosen input or of another.
        low, high = segment.start // m, segment.stop // m
        choices = np.stack([program.index[low:high] for program in interests])
        one_hot = choices[..., None] == np.arange(m // 2, dtype=choices.dtype)
        # Each twice, behind a seam: at 1 and 2, 3 and 4, ...
        twice = np.multiply(one_hot, np.uint16(0x0101), dtype=np.uint16).view(np.bool_)
        chosen = np.zeros((len(interests), count), dtype=np.bool_)
        chosen[:, 1:] = twice.reshape(len(interests), count)[:, :-1]
        out = group.choose(chosen, *blocks)
        group.invert(out, 2)
        group.put(out, m, np.stack([seams(p, self.selector, low, high) for p in interests]))
        return out

    def _interstitials(self, interest: PreservingProgram, start: int, stop: int) -> Ranks:
        return selected(interest, self.selector, start, stop)


class FSGPMatch(_FixedStructureMatch):
    """Fixed-structure group programs with Barrington's selector: 4 n^2 4^d elements.

    Example:
        >>> from ccbps import Bool, Schema, SharedSeed, UInt
        >>> from ccbps.matching import FSGPMatch
        >>> matcher = FSGPMatch(Schema(a=UInt(2), b=Bool()), depth=2)
        >>> seed = SharedSeed.generate()
        >>> events = matcher.publisher(seed).encode({"a": [1, 3], "b": [True, True]}, rounds=[0, 1])
        >>> interests = matcher.subscriber(seed).encode("a < 2 AND b", rounds=[0, 1])
        >>> matcher.broker().match(events, interests)
        array([ True, False])
    """

    name = "FSGP"
    _widest = 128
    _selector = staticmethod(barrington_selector)

    @staticmethod
    def _least(inputs: int) -> int:
        return 2 * inputs * inputs


class OFSGPMatch(_FixedStructureMatch):
    """Fixed-structure group programs with the optimized selector: 4 n 4^d elements.

    Example:
        >>> from ccbps import Bool, Schema, SharedSeed, UInt
        >>> from ccbps.matching import OFSGPMatch
        >>> matcher = OFSGPMatch(Schema(a=UInt(2), b=Bool()), depth=2)
        >>> seed = SharedSeed.generate()
        >>> events = matcher.publisher(seed).encode({"a": [1, 3], "b": [True, True]}, rounds=[0, 1])
        >>> interests = matcher.subscriber(seed).encode("a < 2 AND b", rounds=[0, 1])
        >>> matcher.broker().match(events, interests)
        array([ True, False])
    """

    name = "OFSGP"
    _widest = 1024
    _selector = staticmethod(optimized_selector)

    @staticmethod
    def _least(inputs: int) -> int:
        return 2 * inputs
