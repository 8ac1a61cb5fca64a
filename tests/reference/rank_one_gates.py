"""Slow twin of `ccbps.encodings.formula.encoding`: explicit matrices, one pair at a time.

What a formula f delivers is a matrix sigma (x) beta f of one bit for each slot of a matrix of
slots. A label's publisher adds sigma_b beta_v (sum of its event bits) to slot (b, v), and the
subscriber the same with interest bits and the constant. An AND of e and w opens a gate:

- new slots E_b, one for each row, and W_v, one for each column, with new masks rho_b and S_v;
- both know rho_b, S_v and rho_b S_v, and one of them adds these to E_b, W_v and slot (b, v);
- e delivers sigma (x) (1, S) e to E beside the slots, w delivers (1, rho) (x) beta w to W on top
  of the slots;
- the broker adds E_b W_v to slot (b, v), gates inside e and w first.

A chain delivers sigma (x) (beta eq + gamma g) where its maps together are z -> eq z + g: a gate
with the halves of the chain as parts, sigma (x) ((1, S) eq + (0, gamma) g) on the left and
(1, rho) (x) (beta eq + gamma g) on the right. The last map, z -> bit * slope + offset, has no eq;
it counts as two where the chain is halved, the left half being the smaller one.

Numbers. Slot 0 is the root. Gates are opened in the order of a depth-first walk, a gate before its
parts and the left part before the right one. A gate that is opened takes the next slots, E before
W, and the next masks, rho before S. Gates are closed after their parts. Where the publisher alone
adds to E_0, and e is a sum of labels, gates with the same sum of event bits have one slot E_0 and
one mask rho_0, those of the gate that was closed first; masks are then numbered without gaps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ccbps.programs.branching import Label
from ccbps.programs.formula import And, Chain, Formula, Sum

Vector = Sequence[int | None]
"""Coefficients; None where nothing is delivered."""
Matrix = list[list[int]]
"""Numbers of slots."""
Mask = Callable[[int, int], int]
"""From a mask's number, with gaps, and the bit that it hides, to the mask."""


@dataclass
class Gate:
    """slots[targets[b][v]] += slots[e[b]] * slots[w[v]]."""

    e: list[int]
    w: list[int]
    targets: Matrix
    rho: list[int]
    s: list[int]
    events: frozenset[int] | None
    """Event bits of the left part, if it has no gate."""


class RankOneTwin:
    """A formula's slots for one pair of inputs.

    Attributes:
        slots: number of slots, merged ones included.
        gates: gates in the order in which they are closed.
        publisher_adds, subscriber_adds: slots to which a party's inputs, or constants, are added.
            The root is both parties' in any case.
        same_slot: for each merged E_0, the E_0 of the other gate.
        random_bits: number of masks, each counted once.
        numbers: number of every mask of `gates`, without gaps.
    """

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        nothing: Mapping[int, int] = defaultdict(int)
        walk = _Walk(formula, nothing, nothing, lambda number, hidden: 0)
        self.slots, self.gates = len(walk.known), walk.gates
        self.publisher_adds = walk.publisher_adds | {0}
        self.subscriber_adds = walk.subscriber_adds | {0}
        self.same_slot: dict[int, int] = {}
        same_mask: dict[int, int] = {}
        firsts: dict[frozenset[int], Gate] = {}
        for gate in self.gates:
            if self._publisher_alone(gate.e[0]) and gate.events is not None:
                first = firsts.setdefault(gate.events, gate)
                if first is not gate:
                    self.same_slot[gate.e[0]], same_mask[gate.rho[0]] = first.e[0], first.rho[0]
        kept = [number for number in range(walk.masks) if number not in same_mask]
        self.random_bits = len(kept)
        numbers = {mask: number for number, mask in enumerate(kept)}
        self.numbers = [numbers[same_mask.get(mask, mask)] for mask in range(walk.masks)]

    def parts(
        self, event: Sequence[int], interest: Sequence[int], randomness: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """What the publisher and the subscriber add to each slot, before the mask.

        What both know is added by the publisher where he alone adds inputs.
        """
        walk = self._walk(event, interest, lambda number, hidden: randomness[self.numbers[number]])
        for slot, bit in enumerate(walk.known):
            mine = walk.publisher if self._publisher_alone(slot) else walk.subscriber
            mine[slot] ^= bit
        return walk.publisher, walk.subscriber

    def decoded(self, slots: Sequence[int]) -> list[int]:
        """What slots hold when the broker is done; slot 0 is the answer."""
        values = list(slots)
        for gate in self.gates:
            for e, row in zip(gate.e, gate.targets, strict=True):
                for w, target in zip(gate.w, row, strict=True):
                    values[target] ^= values[self.same_slot.get(e, e)] & values[w]
        return values

    def explain(
        self, event: Sequence[int], interest: Sequence[int], slots: Sequence[int]
    ) -> list[int]:
        """The only randomness with which these inputs could have made these slots.

        Decoded, E_b and W_v are masks plus bits that the walk knows when it meets them.
        """
        decoded = self.decoded(slots)
        masked: dict[int, int] = {}
        for gate in self.gates:
            for number, slot in zip(gate.rho + gate.s, gate.e + gate.w, strict=True):
                masked[number] = decoded[self.same_slot.get(slot, slot)]
        found = [0] * self.random_bits

        def mask(number: int, hidden: int) -> int:
            found[self.numbers[number]] = masked[number] ^ hidden
            return masked[number] ^ hidden

        self._walk(event, interest, mask)
        return found

    def _walk(self, event: Sequence[int], interest: Sequence[int], mask: Mask) -> _Walk:
        return _Walk(self.formula, dict(enumerate(event)), dict(enumerate(interest)), mask)

    def _publisher_alone(self, slot: int) -> bool:
        return slot in self.publisher_adds and slot not in self.subscriber_adds


class _Walk:
    """One walk through a formula. Lists have one entry for each slot."""

    def __init__(
        self,
        formula: Formula,
        event: Mapping[int, int],
        interest: Mapping[int, int],
        mask: Mask,
    ) -> None:
        self._event, self._interest, self._mask = event, interest, mask
        self.publisher, self.subscriber, self.known = [0], [0], [0]
        self.publisher_adds: set[int] = set()
        self.subscriber_adds: set[int] = set()
        self.gates: list[Gate] = []
        self.masks = 0
        self._deliver(formula, [1], [1], [[0]])

    def _deliver(self, formula: Formula, sigma: list[int], beta: list[int], t: Matrix) -> None:
        """sigma (x) beta times the formula to the slots t."""
        if isinstance(formula, Label):
            self._leaf(formula, sigma, beta, t)
        elif isinstance(formula, Sum):
            for part in formula.parts:
                self._deliver(part, sigma, beta, t)
        elif isinstance(formula, And):
            w = self._value(formula.right)
            hidden = self._value(formula.left), [b * w for b in beta]
            gate, rho, s = self._open(sigma, *hidden, t, _event_bits(formula.left))
            self._deliver(formula.left, sigma, [1, *s], _beside(gate.e, t))
            self._deliver(formula.right, [1, *rho], beta, [gate.w, *t])
            self.gates.append(gate)
        else:
            stop = len(formula.maps) + 1
            self._chain(formula, 0, stop, sigma, [None] * len(beta), beta, t)

    def _chain(
        self,
        chain: Chain,
        first: int,
        stop: int,
        sigma: list[int],
        beta: Vector,
        gamma: Vector,
        t: Matrix,
    ) -> None:
        """sigma (x) (beta eq + gamma g) of maps first .. stop - 1 to the slots t."""
        count, has_last = stop - first, stop > len(chain.maps)
        if count == 1 and has_last:
            known = [c for c in gamma if c is not None]
            assert len(known) == len(gamma)
            self._deliver(And(chain.bit, chain.slope), sigma, known, t)
            self._deliver(chain.offset, sigma, known, t)
        elif count == 1:
            factor, addend = chain.maps[first]
            self._leaf(factor, sigma, beta, t)
            self._leaf(addend, sigma, gamma, t)
        else:
            middle = first + (count + has_last) // 2
            eq, g = self._composed(chain, middle, stop)
            right = [(b or 0) * eq ^ (c or 0) * g for b, c in zip(beta, gamma, strict=True)]
            events = chain.maps[first][0].event if middle == first + 1 else None
            left, _ = self._composed(chain, first, middle)
            gate, rho, s = self._open(sigma, left, right, t, events)
            self._chain(chain, first, middle, sigma, [1, *s], [None, *gamma], _beside(gate.e, t))
            self._chain(chain, middle, stop, [1, *rho], beta, gamma, [gate.w, *t])
            self.gates.append(gate)

    def _open(
        self, sigma: list[int], e: int, w: list[int], t: Matrix, events: frozenset[int] | None
    ) -> tuple[Gate, list[int], list[int]]:
        """A gate with rho and S: E hides sigma e, W hides w."""
        first = len(self.known)
        for part in (self.publisher, self.subscriber, self.known):
            part += [0] * (len(sigma) + len(w))
        e_slots = list(range(first, first + len(sigma)))
        w_slots = list(range(first + len(sigma), len(self.known)))
        rho_numbers = list(range(self.masks, self.masks + len(sigma)))
        s_numbers = list(range(self.masks + len(sigma), self.masks + len(sigma) + len(w)))
        self.masks += len(sigma) + len(w)
        rho = [self._mask(n, bit * e) for n, bit in zip(rho_numbers, sigma, strict=True)]
        s = [self._mask(n, bit) for n, bit in zip(s_numbers, w, strict=True)]
        for slot, bit in zip(e_slots + w_slots, rho + s, strict=True):
            self.known[slot] ^= bit
        for b, row in enumerate(t):
            for v, slot in enumerate(row):
                self.known[slot] ^= rho[b] * s[v]
        return Gate(e_slots, w_slots, t, rho_numbers, s_numbers, events), rho, s

    def _leaf(self, label: Label, sigma: list[int], beta: Vector, t: Matrix) -> None:
        """sigma (x) beta times a label: each party adds what it knows."""
        publisher, subscriber = self._sides(label)
        for b, row in enumerate(t):
            for v, slot in enumerate(row):
                coefficient = beta[v]
                if coefficient is None:
                    continue
                self.publisher[slot] ^= sigma[b] * coefficient * publisher
                self.subscriber[slot] ^= sigma[b] * coefficient * subscriber
                if label.event:
                    self.publisher_adds.add(slot)
                if label.interest or label.one:
                    self.subscriber_adds.add(slot)

    def _sides(self, label: Label) -> tuple[int, int]:
        """The publisher's and the subscriber's part of a label; constants are the subscriber's."""
        return (
            sum(self._event[i] for i in label.event) % 2,
            (sum(self._interest[i] for i in label.interest) + label.one) % 2,
        )

    def _value(self, formula: Formula) -> int:
        if isinstance(formula, Label):
            return sum(self._sides(formula)) % 2
        if isinstance(formula, Sum):
            return sum(map(self._value, formula.parts)) % 2
        if isinstance(formula, And):
            return self._value(formula.left) * self._value(formula.right)
        return self._composed(formula, 0, len(formula.maps) + 1)[1]

    def _composed(self, chain: Chain, first: int, stop: int) -> tuple[int, int]:
        """eq and g of maps first .. stop - 1."""
        eq, g = 1, 0
        for factor, addend in chain.maps[first:stop]:
            g ^= eq * self._value(addend)
            eq *= self._value(factor)
        if stop > len(chain.maps):
            last = self._value(chain.bit) * self._value(chain.slope) ^ self._value(chain.offset)
            eq, g = 0, g ^ eq * last
        return eq, g


def _beside(slots: list[int], t: Matrix) -> Matrix:
    return [[slot, *row] for slot, row in zip(slots, t, strict=True)]


def _event_bits(formula: Formula) -> frozenset[int] | None:
    """Event bits of a sum of labels; None if there is a gate in it."""
    if isinstance(formula, Label):
        return formula.event
    if isinstance(formula, Sum):
        found: frozenset[int] = frozenset()
        for part in formula.parts:
            bits = _event_bits(part)
            if bits is None:
                return None
            found ^= bits
        return found
    return None
