"""What a publisher writes ahead, bit by bit, and the two straight-line programs for it.

The publisher's part of a slot t is const_t + sum over event bits i of x_i a_(t,i), where const and
a are sums of products of common random bits (`ccbps.encodings.formula.rank_one`). Each event bit at
each slot is a *coordinate*. There are two kinds:

- *direct*, where a = 1: the select bit s_i of the value 0 is in the slot, and the broker adds the
  select bit of the label, s_i + x_i;
- others: a label of bit i opens one bit of a pad, p_0 or p_1. With the row D = p_0 + p_1 + a, the
  slot has p_0 + s_i D, which is what the value with select 0 opens plus what it adds. The broker
  adds the bit that is opened, and the row if the select bit is 1.

Input rows of bits, in whole bytes each:

==========  ===========================================================================
publisher   shared randomness of the pair: random bits, mask; select bits of value 0 of each
            event bit used; pads of all labels
broker      bits of the message: slots, rows; select bits of the event's labels; their pads
==========  ===========================================================================
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TypeAlias

from ccbps.encodings.formula.gates import GATE_ONE
from ccbps.encodings.formula.rank_one import RankOne
from ccbps.encodings.straight_line.program import WORD, StraightLine, StraightLineBuilder

Monomials: TypeAlias = frozenset[frozenset[int]]
"""A sum of products of common random bits."""
ALWAYS: Monomials = frozenset({frozenset()})


@dataclass(frozen=True, slots=True)
class Coordinate:
    """An event bit at a slot.

    Attributes:
        bit: place of the event bit among those used.
        slot: place of the slot in the message.
        factor: what the event bit is multiplied with.
        row: number of its row; -1 if it is direct.
        pad: number of its bit in the pads of the event bit; -1 if it is direct.
    """

    bit: int
    slot: int
    factor: Monomials
    row: int
    pad: int


class AheadSlots:
    """Slots and rows of a message that is written ahead.

    Attributes:
        slots: number of slots: those of an event message, in its order.
        rows: number of rows, which follow.
        bits: numbers of the event bits used, ascending.
        constants: for each slot what it holds whatever the event is.
        masked: slots, the first ones, that have a bit of the pair's mask.
        coordinates: by event bit, then by slot.
        pad_bytes: bytes of a pad, a multiple of 4.
        random_bytes: bytes of the pair's random bits, in front of the mask.
        mask_bytes: bytes of the mask.
    """

    def __init__(self, slots: RankOne) -> None:
        order = slots.order["publisher"]
        place = {slot: i for i, slot in enumerate(order)}
        found: dict[tuple[int | None, int], Monomials] = defaultdict(frozenset)
        for term in slots.terms["publisher"]:
            for c, targets in zip(term.rows, term.targets, strict=True):
                for slot, column in zip(targets, term.columns, strict=True):
                    # What is tied to an earlier slot, or is the same as one, is not sent.
                    for d, label in column if slot in place else ():
                        product = frozenset(f for f in (c, d) if f is not None and f != GATE_ONE)
                        bits: list[int | None] = [*label.event, *([None] if label.one else [])]
                        for bit in bits:
                            found[bit, place[slot]] ^= {product}
        self.slots = len(order)
        self.masked = len(slots.both)
        self.constants = [found[None, slot] for slot in range(self.slots)]
        used = {(b, slot): sum_ for (b, slot), sum_ in found.items() if b is not None and sum_}
        self.bits = sorted({bit for bit, _ in used})
        self.coordinates: list[Coordinate] = []
        self.rows = 0
        pads = dict.fromkeys(self.bits, 0)
        number = {bit: i for i, bit in enumerate(self.bits)}
        for bit, slot in sorted(used):
            factor = used[bit, slot]
            row = pad = -1
            if factor != ALWAYS:
                row, pad = self.rows, pads[bit]
                self.rows += 1
                pads[bit] += 1
            self.coordinates.append(Coordinate(number[bit], slot, factor, row, pad))
        # A pad takes words of 32 bits, which are moved faster than bytes.
        self.pad_bytes = 4 * -(-max(pads.values(), default=0) // 32)
        self.random_bytes, self.mask_bytes = -(-slots.random_bits // 8), -(-self.masked // 8)

    @property
    def select_bytes(self) -> int:
        """Bytes of a select bit for each event bit used."""
        return -(-len(self.bits) // 8)

    @property
    def body_bits(self) -> int:
        """Slots and rows."""
        return self.slots + self.rows


def preparing_program(slots: AheadSlots) -> StraightLine:
    """The publisher's program, which writes slots and rows."""
    mask = 8 * slots.random_bytes
    select = mask + 8 * slots.mask_bytes
    pads = select + 8 * slots.select_bytes
    pad = 8 * slots.pad_bytes
    builder = StraightLineBuilder(-(-(pads + 2 * pad * len(slots.bits)) // WORD))
    words = -(-slots.body_bits // WORD)
    output = builder.new(WORD * words)

    def add(target: int, monomials: Monomials) -> None:
        for product in sorted(map(sorted, monomials)):
            left, *right = product or [builder.one]
            builder.add(target, left, right[0] if right else None)

    for slot, constant in enumerate(slots.constants):
        if slot < slots.masked:
            builder.add(output + slot, mask + slot)
        add(output + slot, constant)
    for one in slots.coordinates:
        target, chosen = output + one.slot, select + one.bit
        if one.row < 0:
            builder.add(target, chosen)
            continue
        row, first = output + slots.slots + one.row, pads + 2 * pad * one.bit + one.pad
        builder.add(row, first)
        builder.add(row, first + pad)
        add(row, one.factor)
        builder.add(target, first)
        builder.add(target, chosen, row)
    return builder.build(output, words)


def finishing_program(slots: AheadSlots) -> StraightLine:
    """The broker's program, which makes the event message."""
    select = 8 * -(-slots.body_bits // 8)
    pads = select + 8 * slots.select_bytes
    pad = 8 * slots.pad_bytes
    builder = StraightLineBuilder(-(-(pads + pad * len(slots.bits)) // WORD))
    words = -(-slots.slots // WORD)
    output = builder.new(WORD * words)
    for slot in range(slots.slots):
        builder.add(output + slot, slot)
    for one in slots.coordinates:
        target, chosen = output + one.slot, select + one.bit
        if one.row < 0:
            builder.add(target, chosen)
            continue
        builder.add(target, pads + pad * one.bit + one.pad)
        builder.add(target, chosen, slots.slots + one.row)
    return builder.build(output, words)
