"""The straight-line programs of the formula encoding: both parties' slots, and the answer.

Input rows are words. An encoder's begin with the random bits, and its input bits follow. The
decoder's begin with the sum of both messages, as if they were of one length. Behind the slots of
both parties a message holds some of its own, which the sum has mixed: those of the party that has
fewer come once more, and the program takes the two apart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ccbps.encodings.formula.gates import GATE_ONE, Coefficient
from ccbps.encodings.formula.rank_one import RankOne, Side
from ccbps.encodings.straight_line.program import WORD, StraightLine, StraightLineBuilder
from ccbps.programs.branching import Label

SIDES: Final[tuple[Side, Side]] = ("publisher", "subscriber")


class DecoderInput(NamedTuple):
    """What the decoder's input rows hold.

    Attributes:
        words: of the sum of both messages.
        apart: the party whose own slots follow.
        start: byte of its message from which they are copied.
        own: words that they take.
    """

    words: int
    apart: Side
    start: int
    own: int

    @classmethod
    def of(cls, slots: RankOne) -> DecoderInput:
        """For these slots."""
        bits = dict(zip(SIDES, slots.bits, strict=True))
        apart = min(SIDES, key=bits.__getitem__)
        start = len(slots.both) // 8
        own = bits[apart] - 8 * start if bits[apart] > len(slots.both) else 0
        return cls(-(-max(slots.bits) // WORD), apart, start, -(-own // WORD))


def encoder_program(slots: RankOne, side: Side, input_bits: int) -> StraightLine:
    """From words of random bits and words of a party's input bits to its slots, not yet masked."""
    start = WORD * -(-slots.random_bits // WORD)
    builder = StraightLineBuilder(start // WORD + max(1, -(-input_bits // WORD)))
    order = slots.order[side]
    words = -(-len(order) // WORD)
    sums: dict[frozenset[int], int] = {}
    products: list[tuple[int, int, int | None]] = []

    def value(label: Label) -> int:
        """The register of a sum of this party's bits."""
        bits = label.event | label.interest
        if not label.one and len(bits) == 1:
            return start + next(iter(bits))
        if label.one and not bits:
            return builder.one
        key = bits | ({-1} if label.one else set())
        if key not in sums:
            sums[key] = builder.new()
            for bit in key:
                builder.add(sums[key], builder.one if bit < 0 else start + bit)
        return sums[key]

    def factor(c: Coefficient) -> int | None:
        assert c is not None
        return None if c == GATE_ONE else c

    sent = {slot: i for i, slot in enumerate(order)}
    needed = set(sent) if side == "publisher" else set(sent) | {f for _, f in slots.ties}
    for term in slots.terms[side]:
        for v, column in enumerate(term.columns):
            if not column or not any(row[v] in needed for row in term.targets):
                continue
            if len(column) == 1 and column[0][0] == GATE_ONE:
                register = value(column[0][1])
            else:
                register = builder.new()
                for c, label in column:
                    builder.add(register, value(label), factor(c))
            for c, row in zip(term.rows, term.targets, strict=True):
                if row[v] in needed:
                    products.append((row[v], register, factor(c)))
    output = builder.new(WORD * words)
    for slot, register, c in products:
        builder.add(output + sent[slot], register, c)
    if side == "subscriber":
        for slot, first in slots.ties:
            builder.add(output + sent[slot], output + sent[first])
    return builder.build(output, words)


def decoder_program(slots: RankOne) -> StraightLine:
    """From words of both messages, as `DecoderInput` says, to the answer."""
    given, shared = DecoderInput.of(slots), len(slots.both)
    builder = StraightLineBuilder(given.words + given.own)
    place = {slot: bit for bit, slot in enumerate(slots.both)}
    other: Side = "subscriber" if given.apart == "publisher" else "publisher"
    for bit, slot in enumerate(slots.order[other][shared:], shared):
        place[slot] = bit
    for bit, slot in enumerate(slots.order[given.apart][shared:], shared):
        register = WORD * given.words + bit - 8 * given.start
        if bit < len(slots.order[other]):
            builder.add(bit, register)
        if slot in place:
            builder.add(place[slot], register)
        else:
            place[slot] = register
    for slot, first in slots.ties:
        builder.add(place[slot], place[first])
    for gate in slots.gates:
        for left, row in zip(gate.lefts, gate.targets, strict=True):
            for right, target in zip(gate.rights, row, strict=True):
                builder.add(place[target], place[left], place[right])
    return builder.build(place[slots.root], 0)
