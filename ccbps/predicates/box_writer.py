"""Box leaves: ranges on many attributes in one leaf, and as few leaves as are found.

All ranges of a conjunction are one leaf, and none where they can move into the alternatives of an
OR beside them.
"""

from __future__ import annotations

from ccbps.circuits import Wire
from ccbps.predicates.hidden import AnyLeaf, BoxLeaf
from ccbps.predicates.leaf_writers import Writer
from ccbps.predicates.normal import Conjunction, Part
from ccbps.predicates.products import common, complement


class Boxes(Writer):
    def constant(self, value: bool) -> BoxLeaf:
        return BoxLeaf(not value, {})

    def negated(self, leaf: AnyLeaf) -> BoxLeaf:
        assert isinstance(leaf, BoxLeaf)
        return BoxLeaf(not leaf.negated, leaf.ranges)

    def inside(self, attribute: str, low: int, high: int) -> list[Wire]:
        return [self._box({attribute: (low, high)})]

    def _box(self, ranges: dict[str, tuple[int, int]]) -> Wire:
        return self.leaf(frozenset(ranges.items()), BoxLeaf(False, ranges))

    def conjuncts(self, part: Conjunction) -> list[Wire]:
        ranges = self._hulls(part)
        wires: list[Wire] = []
        for name, allowed in part.sets.items():
            low, high = ranges.get(name, (0, self.schema[name].size - 1))
            gaps = common(complement(allowed, self.schema[name].size - 1), ((low, high),))
            wires.extend(~self._box({name: gap}) for gap in gaps)
        others = list(part.parts)
        if ranges:
            box = Conjunction({name: (pair,) for name, pair in ranges.items()}, (), negated=False)
            if not self._absorb(others, box):
                wires.append(self._box(ranges))
        return wires + [self.wire(other) for other in others]

    def _hulls(self, part: Conjunction) -> dict[str, tuple[int, int]]:
        """The ranges of a conjunction that limit anything, gaps left aside."""
        hulls = {name: (allowed[0][0], allowed[-1][1]) for name, allowed in part.sets.items()}
        return {n: pair for n, pair in hulls.items() if pair != (0, self.schema[n].size - 1)}

    def _absorb(self, parts: list[Part], box: Part) -> bool:
        """Move a box into one of the parts that it is joined with, if one takes it for nothing."""
        for place, part in enumerate(parts):
            made = self._absorbed(part, box)
            if made is not None:
                parts[place] = made
                return True
        return False

    def _absorbed(self, part: Part, box: Part) -> Part | None:
        """part AND box in no more leaves than `part`; None if this is not to be seen."""
        self.work.spend(8)
        if not isinstance(part, Conjunction):
            return None
        if not part.negated:
            if self._hulls(part):
                return self.normal.all_of([part, box])
            others = list(part.parts)
            if not self._absorb(others, box):
                return None
            sets = Conjunction(part.sets, (), negated=False)
            return self.normal.all_of([sets, *others])
        alternatives = list(map(self.normal.negation, part.parts))
        if part.sets:  # several of them would come apart: they are one leaf, negated
            ((name, allowed), *more) = part.sets.items()
            outside = complement(allowed, self.schema[name].size - 1)
            if more or len(outside) > 1:
                return None
            alternatives.append(self.normal.member(name, outside))
        made = [self._absorbed(one, box) for one in alternatives]
        taken = [one for one in made if one is not None]
        return self.normal.any_of(taken) if len(taken) == len(made) else None
