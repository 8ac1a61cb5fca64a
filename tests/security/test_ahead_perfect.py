"""Deferred events: what the broker sees before and after depends on the answer and nothing else.

Small formulas, over *all* randomness: the publisher's program is run with every value of the pair's
random bits and mask, of select bits and of pads, as if these were true random bits. The view is all
that the broker has: select bits and pads that the labels open, slots, rows, and the interest
message. Before there are labels it is the messages of all pairs, which have nothing in common but
select bits. Next to it, programs without one of these bits, which the same comparison rejects.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import Schema, SharedSeed, UInt
from ccbps.encodings.formula.ahead import AheadEncoding
from ccbps.encodings.formula.encoding import FormulaEncoding
from ccbps.encodings.labels import NONCE_BYTES
from ccbps.encodings.straight_line.planes import planes
from ccbps.matching import FormulaMatch
from ccbps.matching.one_time.deferred import BODY
from ccbps.programs.branching import event_bit, interest_bit
from ccbps.programs.formula import And, Formula, Sum
from ccbps.wire import ROUND_HEADER_BYTES
from tests.support.formula_strategies import (
    comparison,
    interval,
    literal_tree,
    packed,
    random_formula,
)
from tests.support.program_strategies import bit_rows
from tests.support.program_values import evaluate

Bits = NDArray[np.bool_]
Counts = NDArray[np.int64]
MOST = 20
"""Bits of randomness that are enumerated."""


class Views:
    """The view's distribution over all randomness, for every pair of inputs."""

    def __init__(
        self, formula: Formula, event_bits: int, interest_bits: int, held: int = -1
    ) -> None:
        """
        Args:
            held: number of a bit of the randomness that is zero: a broken encoder.
        """
        self.formula, self.widths = formula, (event_bits, interest_bits)
        self.whole = FormulaEncoding(formula, event_bits, interest_bits)
        self.encoding = AheadEncoding(self.whole)
        slots = self.encoding.slots
        program = self.encoding.publisher
        # Places of the bits that are drawn in an input row, kind by kind.
        select = 8 * self.whole.randomness_bytes
        pads = select + 8 * slots.select_bytes
        width = 8 * slots.pad_bytes
        rows = [one for one in slots.coordinates if one.row >= 0]
        mask = 8 * slots.random_bytes
        self.kinds = {
            "random": list(range(self.whole.slots.random_bits)),
            "mask": list(range(mask, mask + slots.masked)),
            "select": list(range(select, select + len(slots.bits))),
            "pads": [pads + width * (2 * r.bit + v) + r.pad for r in rows for v in (0, 1)],
        }
        places = [place for kind in self.kinds.values() for place in kind]
        self.randomness = len(places)
        drawn = np.zeros((1 << len(places), 64 * program.inputs), np.bool_)
        drawn[:, places] = np.arange(len(drawn))[:, None] >> np.arange(len(places)) & 1 == 1
        if held >= 0:
            drawn[:, places[held]] = False
        self._drawn = drawn
        joined = packed(drawn)
        made = np.empty((len(drawn), program.outputs), np.uint64)
        runner = planes(program, len(drawn))
        for start in range(0, len(drawn), runner.rows):
            at = slice(start, start + runner.rows)
            runner.run(joined[at], made[at])
        written = np.unpackbits(made.view(np.uint8), axis=1, bitorder="little")
        self.written = written[:, : slots.body_bits].astype(np.bool_)
        self._interests = [self._interest(p) for p in bit_rows(interest_bits)]
        self._opened = [self._open(x) for x in bit_rows(event_bits)]

    def _interest(self, bits: NDArray[np.generic]) -> Bits:
        octets = np.packbits(self._drawn[:, : 8 * self.whole.randomness_bytes], axis=1,
                             bitorder="little")  # fmt: skip
        rows = self.whole.encode_interest(packed(bits[None]), octets)
        unpacked = np.unpackbits(rows, axis=1, bitorder="little")
        return unpacked[:, : self.whole.slots.bits[1]].astype(np.bool_)

    def _open(self, event: NDArray[np.generic]) -> Bits:
        """Select bits and pads that the labels of an event open."""
        slots, drawn = self.encoding.slots, self._drawn
        chosen = event[slots.bits].astype(np.bool_)
        found = [drawn[:, place] ^ bit
                 for place, bit in zip(self.kinds["select"], chosen, strict=True)]  # fmt: skip
        pads = self.kinds["pads"]
        rows = [one for one in slots.coordinates if one.row >= 0]
        found += [drawn[:, pads[2 * i + int(chosen[one.bit])]] for i, one in enumerate(rows)]
        return np.stack(found, axis=1) if found else np.zeros((len(drawn), 0), np.bool_)

    def counts(self, x: int, p: int) -> Counts:
        return counts_of(self._opened[x], self.written, self._interests[p])

    def telling_alone(self) -> set[str]:
        """What tells something before there is the other side.

        Messages of two pairs are independent of what they say exactly if one pair's are, for every
        value of the select bits.
        """
        found, selects = set(), self._drawn[:, self.kinds["select"]]
        for what, views in (
            ("labels", [counts_of(opened) for opened in self._opened]),
            ("ahead", [counts_of(selects, self.written, p) for p in self._interests]),
        ):
            if not all(np.array_equal(one, views[0]) for one in views):
                found.add(what)
        return found

    def answer(self, x: int, p: int) -> bool:
        event, interest = (bit_rows(w).astype(np.bool_)[i] for w, i in zip(
            self.widths, (x, p), strict=True))  # fmt: skip
        return bool(np.all(evaluate(self.formula, event[:, None], interest[:, None])))

    def differing(self, most: int = 1 << 30) -> list[tuple[int, int]]:
        """Inputs whose views are not distributed as those of the first inputs with that answer."""
        firsts: dict[bool, Counts] = {}
        found = []
        for x, p in np.ndindex(1 << self.widths[0], 1 << self.widths[1]):
            counts = self.counts(x, p)
            first = firsts.setdefault(self.answer(x, p), counts)
            if not np.array_equal(counts, first):
                found.append((x, p))
                if len(found) == most:
                    break
        return found


def counts_of(*parts: Bits) -> Counts:
    """Views that occur, and how often each does."""
    view = np.concatenate(parts, axis=1)
    assert view.shape[1] < 63
    numbers = view.astype(np.int64) @ (1 << np.arange(view.shape[1], dtype=np.int64))
    return np.stack(np.unique(numbers, return_counts=True))


def literal(event: int, interest: int) -> Formula:
    return event_bit(event) ^ interest_bit(interest)


SMALL: dict[str, tuple[Formula, int, int]] = {
    "and of literals": (And(literal(0, 0), literal(1, 1)), 2, 2),
    "literal": (literal(0, 0), 1, 1),
    "event bit": (event_bit(0), 1, 1),
    "literal and private bits": (Sum((literal(0, 0), And(interest_bit(1), interest_bit(2)))), 1, 3),
    "and of literals of one bit": (And(literal(0, 0), literal(0, 1)), 1, 2),
    "of event bits": (And(event_bit(0), event_bit(1)), 2, 1),
    "tied": (And(Sum((event_bit(0), event_bit(0), interest_bit(0))), interest_bit(1)), 1, 2),
    "literals of three bits": (Sum((literal(0, 0), event_bit(1), event_bit(2))), 3, 1),
    "comparison of 1 bit": (comparison(1, 0, 0), 1, 2),
    "comparison of 2 bits": (comparison(2, 0, 0), 2, 4),
    "interval of 1 bit": (interval(1, 0, 0), 1, 4),
    "hidden tree of 2 literals over 1 bit": (literal_tree(1, 1)[0], 1, 6),
}


LONG = ("hidden tree of 2 literals over 1 bit", "comparison of 2 bits")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in SMALL]
)
def test_what_the_broker_sees_depends_on_the_answer_only(name: str) -> None:
    views = Views(*SMALL[name])
    assert views.randomness <= MOST
    assert views.differing() == []
    assert views.telling_alone() == set()
    answers = {views.answer(x, p) for x, p in np.ndindex(*(1 << w for w in views.widths))}
    assert answers == {False, True}


def test_two_pairs_do_not_show_before_the_labels_whether_their_answers_are_equal() -> None:
    """The sum of both messages' roots, behind headers and nonce."""
    matcher = FormulaMatch(Schema(x=UInt(1)), "hamming(x, :a) <= 0")
    own, master, rounds = SharedSeed(bytes(32)), SharedSeed(bytes(range(32))), range(1000)
    deferred = matcher.deferred(own, master)
    first, equal, other = (
        deferred.prepare(rounds, pairs=[name] * 1000)[:, BODY + NONCE_BYTES]
        ^ matcher.subscriber(master.pair(name)).encode({"a": a}, rounds)[:, ROUND_HEADER_BYTES]
        for name, a in (("ann", 0), ("bob", 0), ("cyd", 1))
    )
    for shown in (first ^ equal, first ^ other):
        assert 400 < np.count_nonzero(shown & 1) < 600


def test_an_answer_that_no_event_changes_is_not_shown_before_there_is_one() -> None:
    views = Views(And(interest_bit(0), interest_bit(1)), 1, 2)
    assert (views.differing(), views.telling_alone()) == ([], set())


def test_what_the_broker_sees_of_random_formulas_depends_on_the_answer_only() -> None:
    found = with_rows = 0
    for seed in range(400):
        formula = random_formula(seed, 2, 2, 3)
        slots = AheadEncoding(FormulaEncoding(formula, 2, 2)).slots
        whole = FormulaEncoding(formula, 2, 2).slots
        bits = whole.random_bits + slots.masked + len(slots.bits) + 2 * slots.rows
        if found < 40 and 4 <= bits <= 14 and slots.bits:
            views = Views(formula, 2, 2)
            assert (views.differing(), views.telling_alone()) == ([], set())
            found, with_rows = found + 1, with_rows + bool(slots.rows)
    assert found == 40
    assert with_rows >= 10


@pytest.mark.parametrize(
    "name", ["and of literals", "of event bits", "comparison of 1 bit", "interval of 1 bit"]
)
def test_no_mask_and_no_select_bit_can_be_left_out(name: str) -> None:
    views = Views(*SMALL[name])
    chosen = views.kinds["random"] + views.kinds["mask"] + views.kinds["select"]
    assert chosen
    for number in range(len(chosen)):
        assert Views(*SMALL[name], held=number).differing(most=1)


@pytest.mark.parametrize("name", ["and of literals", "interval of 1 bit"])
def test_no_pad_can_be_left_out(name: str) -> None:
    views = Views(*SMALL[name])
    first = views.randomness - len(views.kinds["pads"])
    assert first < views.randomness
    for number in range(first, views.randomness):
        assert Views(*SMALL[name], held=number).differing(most=1)


def test_two_events_under_the_same_labels_open_what_factors_hide() -> None:
    """With both pads of a bit the broker reads a random bit of the pair off each row."""
    formula, event_bits, interest_bits = SMALL["and of literals"]
    views = Views(formula, event_bits, interest_bits)
    slots = views.encoding.slots
    rows = [one for one in slots.coordinates if one.row >= 0]
    assert rows
    for number, one in enumerate(rows):
        zero, other = (views._drawn[:, views.kinds["pads"][2 * number + v]] for v in (0, 1))
        read = views.written[:, slots.slots + one.row] ^ zero ^ other
        factor = np.zeros(len(read), np.bool_)
        for product in one.factor:
            factor ^= views._drawn[:, sorted(product)].all(axis=1)
        assert np.array_equal(read, factor)
        assert 0 < factor.mean() < 1
