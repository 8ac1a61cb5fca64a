"""Event messages of a formula in two parts: a message ahead of the event, and labels of the event.

From both the broker computes the event message of `ccbps.encodings.formula.encoding`, byte for
byte, and learns nothing else.

=================  ======================================================================
labels             of the event's bits, those that the formula uses: `ccbps.encodings.labels`
message ahead      a nonce of 12 bytes; then slots and rows, a bit each, the first one lowest
=================  ======================================================================

The publisher's part of a slot t is const_t + sum over event bits i of x_i a_(t,i), where const and
a are sums of products of common random bits (`ccbps.encodings.formula.rank_one`). Each event bit at
each slot is a *coordinate*. There are two kinds:

- *direct*, where a = 1: the select bit s_i of the value 0 is in the slot, and the broker adds the
  select bit of the label, s_i + x_i;
- others: a label of bit i opens one bit of a pad, p_0 or p_1. With the row D = p_0 + p_1 + a, the
  slot has p_0 + s_i D: the bit that the value with select 0 opens, plus the part that it adds. The
  broker adds the bit that is opened, and the row if the select bit is 1.

Privacy. Select bits are uniform, a pad's bit that is opened is uniform, and a row is hidden by the
bit that is not. So labels, opened pads and rows are uniform and independent of the event message,
and slots are the message plus what these say: `AheadEncoding.simulate`. Before there are labels the
broker has the sums of both messages' slots, without what labels add. All of these are uniform: the
root has a pad, and every other slot has a random bit of the pair. A select bit would not suffice:
all messages for one event share it.

Pads are AES-128 under labels, which is pseudorandom. Subscribers know the factors, and so may
compute the other pads of their own messages; the nonce hides those of other messages from them.

Hazard: labels of a round serve one event. A second one under the same labels opens the pads of both
values, and with them random bits of the pair.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.checks import array
from ccbps.encodings.formula.encoding import FormulaEncoding
from ccbps.encodings.formula.gates import GATE_ONE
from ccbps.encodings.formula.rank_one import RankOne
from ccbps.encodings.labels import NONCE_BYTES, Labels
from ccbps.encodings.rows import Draw, used_bits
from ccbps.encodings.straight_line.planes import run_rows
from ccbps.encodings.straight_line.program import WORD, StraightLine, StraightLineBuilder

LAYOUT: Final = 2
"""Number of the rule by which messages follow from a formula; part of fingerprints."""

Monomials: TypeAlias = frozenset[frozenset[int]]
"""Sum of products of common random bits."""
ALWAYS: Final[Monomials] = frozenset({frozenset()})


@dataclass(frozen=True, slots=True)
class Coordinate:
    """An event bit at a slot.

    Attributes:
        bit: place of the event bit among those used.
        slot: place of the slot in the message.
        factor: factor of the event bit.
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
        constants: part of each slot that does not depend on the event.
        masked: number of slots, the first ones, that have a bit of the pair's mask.
        coordinates: coordinates by event bit, then by slot.
        pad_bytes: bytes of a pad, a multiple of 4.
        random_bytes: bytes of the pair's random bits, in front of the mask.
        mask_bytes: bytes of the mask.
        select_bytes: bytes of a select bit for each event bit used.
        body_bits: number of slots and rows.
    """

    def __init__(self, slots: RankOne) -> None:
        order = slots.order["publisher"]
        place = {slot: i for i, slot in enumerate(order)}
        factors: dict[tuple[int | None, int], Monomials] = defaultdict(frozenset)
        for term in slots.terms["publisher"]:
            for c, targets in zip(term.rows, term.targets, strict=True):
                for slot, column in zip(targets, term.columns, strict=True):
                    # A slot that is tied to an earlier one, or the same as one, is not sent.
                    for d, label in column if slot in place else ():
                        product = frozenset(f for f in (c, d) if f is not None and f != GATE_ONE)
                        for bit in (*label.event, *([None] if label.one else [])):
                            factors[bit, place[slot]] ^= {product}
        self.slots = len(order)
        self.masked = len(slots.both)
        self.constants = [factors[None, slot] for slot in range(self.slots)]
        used = {(b, slot): sum_ for (b, slot), sum_ in factors.items() if b is not None and sum_}
        direct = {key for key, factor in used.items() if factor == ALWAYS}
        root = place[slots.root]
        at_root = sorted(key for key in used if key[1] == root)
        if direct.issuperset(at_root):
            # A bit that is not used, if need be.
            masking = at_root[0] if at_root else (0, root)
            used.setdefault(masking, frozenset())
            direct.discard(masking)
        self.bits = sorted({bit for bit, _ in used})
        self.coordinates: list[Coordinate] = []
        self.rows = 0
        pads = dict.fromkeys(self.bits, 0)
        number = {bit: i for i, bit in enumerate(self.bits)}
        for bit, slot in sorted(used):
            row = pad = -1
            if (bit, slot) not in direct:
                row, pad = self.rows, pads[bit]
                self.rows += 1
                pads[bit] += 1
            self.coordinates.append(Coordinate(number[bit], slot, used[bit, slot], row, pad))
        # A pad takes words of 32 bits, which are moved faster than bytes.
        self.pad_bytes = 4 * -(-max(pads.values(), default=0) // 32)
        self.random_bytes, self.mask_bytes = -(-slots.random_bits // 8), -(-self.masked // 8)
        self.select_bytes = -(-len(self.bits) // 8)
        self.body_bits = self.slots + self.rows


class AheadEncoding:
    """Both of the publisher's encoders, and the broker's completion of their messages.

    Attributes:
        slots: slots and rows of messages ahead.
        labels: labels of event bits.
        label_bytes: bytes of an event's labels.
        ahead_bytes: bytes of a message ahead.
        message_bytes: bytes of an event message.
        randomness_bytes: bytes of a pair's shared randomness of one round.
    """

    def __init__(self, encoding: FormulaEncoding) -> None:
        self.slots = slots = AheadSlots(encoding.slots)
        self.labels = Labels([1] * len(slots.bits), slots.pad_bytes)
        self.label_bytes = self.labels.event_bytes
        self._body_bytes = -(-slots.body_bits // 8)
        self.ahead_bytes = NONCE_BYTES + self._body_bytes
        self.message_bytes = encoding.event_bytes
        self.randomness_bytes = encoding.randomness_bytes

    @cached_property
    def publisher(self) -> StraightLine:
        """Program that writes slots and rows.

        Its input rows have, in whole bytes each: shared randomness of the pair, random bits and
        mask; select bits of value 0 of each event bit used; pads of all labels.
        """
        slots = self.slots
        mask = 8 * slots.random_bytes
        select = mask + 8 * slots.mask_bytes
        pads = select + 8 * slots.select_bytes
        pad = 8 * slots.pad_bytes
        builder = StraightLineBuilder(pads + 2 * pad * len(slots.bits))
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
        for coordinate in slots.coordinates:
            target, chosen = output + coordinate.slot, select + coordinate.bit
            if coordinate.row < 0:
                builder.add(target, chosen)
                continue
            row = output + slots.slots + coordinate.row
            first = pads + 2 * pad * coordinate.bit + coordinate.pad
            builder.add(row, first)
            builder.add(row, first + pad)
            add(row, coordinate.factor)
            builder.add(target, first)
            builder.add(target, chosen, row)
        return builder.build(output, words)

    @cached_property
    def broker(self) -> StraightLine:
        """Program that writes the event message.

        Its input rows have, in whole bytes each: slots and rows; select bits of the event's labels;
        their pads.
        """
        slots = self.slots
        select = 8 * self._body_bytes
        pads = select + 8 * slots.select_bytes
        pad = 8 * slots.pad_bytes
        builder = StraightLineBuilder(pads + pad * len(slots.bits))
        words = -(-slots.slots // WORD)
        output = builder.new(WORD * words)
        for slot in range(slots.slots):
            builder.add(output + slot, slot)
        for coordinate in slots.coordinates:
            target, chosen = output + coordinate.slot, select + coordinate.bit
            if coordinate.row < 0:
                builder.add(target, chosen)
            else:
                builder.add(target, pads + pad * coordinate.bit + coordinate.pad)
                builder.add(target, chosen, slots.slots + coordinate.row)
        return builder.build(output, words)

    def encode_event(self, event: Words, random: Bytes, out: Bytes) -> None:
        """Write labels of events.

        Args:
            event: packed event bits, shape (count, words).
            random: uniform bytes of the rounds' labels, shape (count, labels.round_bytes).
            out: place of the labels, shape (count, label_bytes).
        """
        octets = np.ascontiguousarray(event).view(np.uint8)
        bits = np.unpackbits(octets, axis=1, bitorder="little")[:, self.slots.bits]
        self.labels.choose(bits, random, out)

    def prepare(self, shared: Draw, rounds: Draw, fresh: Randomness, out: Bytes) -> None:
        """Write messages ahead.

        Args:
            shared: the pairs' shared randomness, shape (rows, randomness_bytes); see
                `ccbps.encodings.rows.Draw`.
            rounds: uniform bytes of the rounds' labels, shape (rows, labels.round_bytes).
            fresh: the publisher's own randomness.
            out: place of the messages, shape (count, ahead_bytes).
        """
        labels = self.labels

        def fill(at: slice, random: Bytes, select: Bytes, pads: Bytes) -> None:
            nonces = np.frombuffer(fresh(len(random) * NONCE_BYTES), dtype=np.uint8)
            out[at, :NONCE_BYTES] = nonces.reshape(-1, NONCE_BYTES)
            random[:] = shared(at.start, at.stop)
            every = labels.of(rounds(at.start, at.stop))
            labels.write(every, out[at, :NONCE_BYTES], select, pads)

        sizes = self.randomness_bytes, labels.select_bytes, labels.pad_bytes * labels.count
        run_rows(self.publisher, sizes, fill, out[:, NONCE_BYTES:])

    def complete(self, labels: Bytes, ahead: Bytes, out: Bytes) -> Bools:
        """Write event messages.

        Args:
            labels: labels of each row's event, shape (count, label_bytes).
            ahead: messages ahead, shape (count, ahead_bytes).
            out: place of the event messages, shape (count, message_bytes).

        Returns:
            True where a message ahead has an unused bit set, bool, shape (count,).

        Raises:
            ShapeError: a shape does not fit.
        """
        array("labels", labels, np.uint8, (len(out), self.label_bytes))
        array("ahead", ahead, np.uint8, (len(out), self.ahead_bytes))
        array("out", out, np.uint8, (len(out), self.message_bytes))

        def fill(at: slice, body: Bytes, select: Bytes, pads: Bytes) -> None:
            body[:] = ahead[at, NONCE_BYTES:]
            self.labels.open(labels[at], ahead[at, :NONCE_BYTES], select, pads)

        pads = self.labels.pad_bytes * len(self.slots.bits)
        run_rows(self.broker, (self._body_bytes, self.labels.select_bytes, pads), fill, out)
        stray: Bools = np.not_equal(ahead[:, -1] & ~used_bits(self.slots.body_bits), 0)
        return stray

    def simulate(self, messages: Bytes, uniform: Bytes) -> tuple[Bytes, Bytes]:
        """Make labels and messages ahead from event messages alone (SIM).

        They are distributed as the real ones if AES-128 is a pseudorandom function.

        Args:
            messages: event messages, shape (count, message_bytes).
            uniform: fresh uniform bytes, shape (count, label_bytes + ahead_bytes).
        """
        labels = uniform[:, : self.label_bytes].copy()
        ahead = uniform[:, self.label_bytes :].copy()
        ahead[:, -1] &= used_bits(self.slots.body_bits)
        completed = np.empty_like(messages)
        self.complete(labels, ahead, completed)
        # A bit that is added to a slot comes out with the message.
        ahead[:, NONCE_BYTES : NONCE_BYTES + self.message_bytes] ^= completed ^ messages
        return labels, ahead
