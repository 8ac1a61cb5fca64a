"""The straight-line programs of the formula encoding: both parties' slots, and the answer.

Input rows are words. An encoder's begin with the random bits, and its input bits follow. The
decoder's begin with the sum of both messages, as if they were of one length. After the slots of
both parties, a message holds slots of its own party, which the sum has mixed. The own slots of the
party that has fewer follow once more, and the program separates the two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ccbps.encodings.formula.gates import GATE_ONE, Coefficient
from ccbps.encodings.formula.rank_one import RankOne, Side
from ccbps.encodings.rows import used_bits
from ccbps.encodings.straight_line.program import WORD, StraightLine, StraightLineBuilder
from ccbps.programs.branching import Label


class Decoding(NamedTuple):
    """The decoder's program, and the layout of its input and of the messages.

    Attributes:
        program: from words of the sum of both messages, then of one side's own slots, to a bit.
        words: words of the sum.
        side: side whose own slots follow, 0 for the event's.
        start: byte of its message from which they are copied.
        widths: bytes of an event message and of an interest message.
        unused: masks of the bits of their last bytes that are zero.
    """

    program: StraightLine
    words: int
    side: int
    start: int
    widths: tuple[int, int]
    unused: tuple[np.uint8, np.uint8]

    @classmethod
    def of(cls, slots: RankOne) -> Decoding:
        """Write the decoder's program for some slots."""
        bits, shared = slots.bits, len(slots.both)
        words, start, side = -(-max(bits) // WORD), shared // 8, int(bits[1] < bits[0])
        own = bits[side] - 8 * start if bits[side] > shared else 0
        builder = StraightLineBuilder(WORD * words + own)
        orders = slots.order["publisher"], slots.order["subscriber"]
        order, other = orders[side], orders[1 - side]
        place = {slot: bit for bit, slot in enumerate(other)}
        for bit, slot in enumerate(order[shared:], shared):
            place[slot] = WORD * words + bit - 8 * start
            if bit < len(other):
                builder.add(bit, place[slot])
        for slot, first in slots.ties:
            builder.add(place[slot], place[first])
        slots.add_products(builder, place)
        program = builder.build(place[slots.root])
        widths = -(-bits[0] // 8), -(-bits[1] // 8)
        return cls(program, words, side, start, widths, (~used_bits(bits[0]), ~used_bits(bits[1])))


def encoder_program(slots: RankOne, side: Side, input_bits: int) -> StraightLine:
    """Write the program from random bits and a party's input bits to its slots, not yet masked."""
    start = WORD * -(-slots.random_bits // WORD)
    builder = StraightLineBuilder(start + max(1, input_bits))
    order = slots.order[side]
    words = -(-len(order) // WORD)
    sums: dict[frozenset[int], int] = {}
    products: list[tuple[int, int, int | None]] = []

    def value(label: Label) -> int:
        """Return the register of a sum of this party's bits."""
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
    needed = set(sent) if side == "publisher" else set(sent) | {first for _, first in slots.ties}
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
