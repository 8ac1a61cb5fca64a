"""Broadcast encoding with true random bits in place of pads: the view depends on answers only.

Over *all* randomness: free masks, select bits, and the pads of all labels. The broker's view is the
select bits and pads that the event's labels open, and the slots and rows of one interest, or of
several under the same labels. Before there is an event it is the interests alone. Then faults,
planted: each is found.

Real messages rest on AES as a pseudorandom function, which is not looked at here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps.encodings.broadcast.window_programs import broker_program, subscriber_program
from ccbps.encodings.broadcast.window_slots import WindowSlots
from ccbps.encodings.straight_line.planes import planes
from ccbps.encodings.straight_line.program import StraightLine
from ccbps.programs.branching import interest_bit
from ccbps.programs.formula import And, Formula, Sum, conjunction
from tests.support.digit_formulas import (
    comparison,
    comparison_bits,
    equality,
    equality_bits,
    interval,
    interval_bits,
    odd,
    parity_tree,
    random_formula,
    table_bits,
)
from tests.support.effort import examples
from tests.support.program_strategies import bit_rows
from tests.support.program_values import evaluate

Bits = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Counts = NDArray[np.int64]
Numbers = NDArray[np.int64]
Event = tuple[int, ...]
Interest = tuple[int, ...]

MOST_BITS = 20
"""Random bits that are enumerated."""


# -- all randomness, enumerated -----------------------------------------------------------------


@dataclass(frozen=True)
class Inputs:
    """A formula, and events and interests, all pairs of which are looked at.

    Attributes:
        events: a value for every digit.
        interests: private bits, for which every table that is to sum to one does so.
    """

    formula: Formula
    widths: tuple[int, ...]
    events: tuple[Event, ...]
    interests: tuple[Interest, ...]

    def answer(self, event: Event, interest: Interest) -> bool:
        x, p = np.array([event]).T, np.array([interest], np.bool_).T
        return bool(evaluate(self.formula, x.reshape(len(self.widths), 1), p)[0])

    def some(self, events: int, interests: int, seed: int = 0) -> Inputs:
        """A few of them."""
        rng = np.random.default_rng(seed)
        x, p = (
            tuple(rows[i] for i in rng.permutation(len(rows))[:count].tolist())
            for rows, count in ((self.events, events), (self.interests, interests))
        )
        return Inputs(self.formula, self.widths, x, p)


def inputs(formula: Formula, widths: Sequence[int], interests: Sequence[Sequence[int]]) -> Inputs:
    """With all events."""
    events = tuple(product(*(range(1 << width) for width in widths)))
    return Inputs(formula, tuple(widths), events, tuple(map(tuple, interests)))


def every(formula: Formula, widths: Sequence[int], interest_bits: int) -> Inputs:
    """With all private bits, too: for tables that sum to one by themselves, or need not."""
    return inputs(formula, widths, bit_rows(interest_bits).astype(int).tolist())


Spoil = Callable[[WindowSlots], None]


class Views:
    """The view's distribution over all randomness, for every pair of inputs.

    The randomness is a number: select bits lowest, then free masks, then pads, one label after the
    other. So is a view: slots and rows lowest, then opened pads, then select bits.

    Attributes:
        drawn: bits of the randomness.
        bits: bits of a view.
        selects: how many of these are select bits.
        free: how many are free masks.
    """

    def __init__(
        self, inputs: Inputs, *, spoil: Spoil | None = None, held: Sequence[int] = ()
    ) -> None:
        """
        Args:
            spoil: changes slots before programs are made of them: a fault.
            held: bits of the randomness that are zero instead of random: a fault.
        """
        self.inputs = inputs
        self.slots = slots = WindowSlots(inputs.formula, inputs.widths)
        if spoil is not None:
            spoil(slots)
        self._subscriber = subscriber_program(slots, len(inputs.interests[0]))
        self._broker = broker_program(slots)
        self._widths = [slots.widths[digit] for digit in slots.digits]
        self._pads = [slots.pads[digit] for digit in slots.digits]
        self.selects, self._opened = sum(self._widths), sum(self._pads)
        self.bits = slots.bits + self._opened + self.selects
        self.free = len(slots.free)
        labels = [n for n, w in zip(self._pads, self._widths, strict=True) for _ in range(1 << w)]
        self._label_starts = np.cumsum([self.selects + self.free, *labels]).tolist()
        self.drawn = self._label_starts[-1]
        assert self.drawn <= MOST_BITS
        self._numbers = np.arange(1 << self.drawn)
        for bit in held:
            self._numbers = self._numbers[self._numbers >> bit & 1 == 0]
        self._rows = self._input_rows(labels)
        self._messages: dict[Interest, tuple[NDArray[np.uint64], Numbers]] = {}

    def _input_rows(self, labels: list[int]) -> NDArray[np.uint64]:
        """The subscriber's program's input, but for interest bits; its layout says where."""
        free, select = 0, 8 * self.slots.free_bytes
        pads = select + 8 * self.slots.select_bytes
        places = [select + i for i in range(self.selects)]
        places += [free + i for i in range(self.free)]
        for label, count in enumerate(labels):
            places += [pads + 8 * self.slots.pad_bytes * label + i for i in range(count)]
        self._interest_at = pads + 8 * self.slots.pad_bytes * len(labels)
        rows = np.zeros((len(self._numbers), self._subscriber.inputs), np.uint64)
        for bit, place in enumerate(places):
            column = rows[:, place // 64]
            column |= (self._numbers >> bit & 1).astype(np.uint64) << np.uint64(place % 64)
        return rows

    def _message(self, interest: Interest) -> tuple[NDArray[np.uint64], Numbers]:
        """Slots and rows under all randomness: as the program writes them, and as numbers."""
        if interest not in self._messages:
            rows = self._rows.copy()
            for i, bit in enumerate(interest):
                place = self._interest_at + i
                rows[:, place // 64] |= np.uint64(bit << place % 64)
            made = run(self._subscriber, rows)
            assert self.slots.bits < 63
            self._messages[interest] = made, made[:, 0].astype(np.int64)
        return self._messages[interest]

    def _opens(self, event: Event) -> tuple[Numbers, list[Numbers]]:
        """Select bits of the event's labels as one number, and their pads, for all randomness."""
        value = at = 0
        for digit, width in zip(self.slots.digits, self._widths, strict=True):
            value |= event[digit] << at
            at += width
        selects = self._numbers & ((1 << self.selects) - 1) ^ value
        pads, label = [], 0
        for digit, width, count in zip(self.slots.digits, self._widths, self._pads, strict=True):
            start = self._label_starts[label + event[digit]]
            pads.append(self._numbers >> start & ((1 << count) - 1))
            label += 1 << width
        return selects, pads

    def views(self, event: Event, interest: Interest) -> Numbers:
        """The view for each number of the randomness."""
        selects, pads = self._opens(event)
        view, at = self.messages(interest), self.slots.bits
        for part, count in zip([*pads, selects], [*self._pads, self.selects], strict=True):
            view = view | part << at
            at += count
        return view

    def events(self, event: Event) -> Numbers:
        """What the event alone shows for each number of the randomness."""
        selects, pads = self._opens(event)
        view, at = selects, self.selects
        for part, count in zip(pads, self._pads, strict=True):
            view, at = view | part << at, at + count
        return view

    def messages(self, interest: Interest) -> Numbers:
        """The interest alone for each number of the randomness."""
        return self._message(interest)[1]

    def interests(self, interest: Interest) -> Numbers:
        """The interest alone for each number of the randomness, select bits lowest.

        Interests of a round have nothing but select bits in common. So they are independent of one
        another, and of what they say, exactly if each is so for every value of the select bits.
        """
        shared = self._numbers & ((1 << self.selects) - 1)
        return self.messages(interest) << self.selects | shared

    def answers(self, event: Event, interest: Interest) -> Bits:
        """What the broker's program says for each number of the randomness."""
        selects, pads = self._opens(event)
        slots, message = self.slots, -(-self.slots.bits // 8)
        rows = np.zeros((len(self._numbers), 8 * self._broker.inputs), np.uint8)
        rows[:, :message] = self._message(interest)[0].view(np.uint8)[:, :message]
        wanted = selects.astype("<i8").view(np.uint8).reshape(len(rows), 8)
        rows[:, message : message + slots.select_bytes] = wanted[:, : slots.select_bytes]
        at = message + slots.select_bytes
        for part in pads:
            wanted = part.astype("<i8").view(np.uint8).reshape(len(rows), 8)
            held = min(8, slots.pad_bytes)
            rows[:, at : at + held] = wanted[:, :held]
            at += slots.pad_bytes
        return run(self._broker, rows.view(np.uint64))

    def pairs(self) -> Iterator[tuple[Event, Interest, bool]]:
        for event, interest in product(self.inputs.events, self.inputs.interests):
            yield event, interest, self.inputs.answer(event, interest)


def run(program: StraightLine, rows: NDArray[np.uint64]) -> NDArray[Any]:
    """A program's output for all rows."""
    runner = planes(program, len(rows))
    out: NDArray[Any]
    if program.outputs:
        out = np.empty((len(rows), program.outputs), np.uint64)
    else:
        out = np.empty(len(rows), np.bool_)
    for start in range(0, len(rows), runner.rows):
        block = slice(start, start + runner.rows)
        runner.run(rows[block], out[block])
    return out


def faults(views: Views) -> set[str]:
    """What is wrong, if anything."""
    firsts: dict[bool, Counts] = {}
    found = set()
    for event, interest, answer in views.pairs():
        if not (views.answers(event, interest) == answer).all():
            found.add("wrong answer")
        counts = np.bincount(views.views(event, interest), minlength=1 << views.bits)
        if not np.array_equal(counts, firsts.setdefault(answer, counts)):
            found.add("view depends on more than the answer")
    if len(firsts) == 2 and (firsts[True] * firsts[False]).any():
        found.add("same view for both answers")
    return found


def faults_of_one_side(views: Views) -> set[str]:
    """What is wrong with events without interests, and with interests before there is an event."""
    found = set()
    for side, alone, contents in (
        ("event", views.events, views.inputs.events),
        ("interest", views.interests, views.inputs.interests),
    ):
        counts = [np.bincount(alone(content), minlength=1 << views.bits) for content in contents]
        if not all(np.array_equal(one, counts[0]) for one in counts):
            found.add(f"the {side} alone tells")
    return found


def check_perfect(inputs: Inputs) -> None:
    views = Views(inputs)
    assert faults(views) == set()
    assert faults_of_one_side(views) == set()
    # There are twice as many views as values of the randomness: each is one answer's, and occurs
    # under one value of the randomness.
    assert views.bits == views.drawn + 1
    event, interest, _ = next(views.pairs())
    assert np.bincount(views.views(event, interest)).max() == 1


def bounds(widths: Sequence[int]) -> list[list[int]]:
    """Every x < c."""
    return [comparison_bits(widths, c) for c in range((1 << sum(widths)) + 1)]


def intervals(widths: Sequence[int]) -> list[list[int]]:
    """All bounds; empty intervals too, which are normalised."""
    codes = range(1 << sum(widths))
    return [interval_bits(widths, low, high) for low in codes for high in codes]


def less(*widths: int) -> Inputs:
    return inputs(comparison(widths), widths, bounds(widths))


def within(*widths: int) -> Inputs:
    return inputs(interval(widths), widths, intervals(widths))


def both_less(first: Sequence[int], second: Sequence[int]) -> Inputs:
    parts = comparison(first), comparison(second, len(first), table_bits(first))
    bits = [one + other for one in bounds(first) for other in bounds(second)]
    return inputs(And(*parts), [*first, *second], bits)


def equal(*widths: int) -> Inputs:
    wanted = product(*(range(1 << width) for width in widths))
    return inputs(equality(widths), widths, [equality_bits(widths, c) for c in wanted])


def hidden(*widths: int) -> Inputs:
    formula, interest_bits = parity_tree(1, widths)
    return every(formula, widths, interest_bits)


TWICE = [
    And(odd(0, 1, 0), odd(0, 1, 1)),
    And(And(odd(0, 1, 0), odd(1, 1, 1)), odd(0, 1, 2)),
    And(And(odd(0, 1, 0), odd(0, 1, 1)), And(odd(0, 1, 1), odd(0, 1, 2))),
    And(Sum((odd(0, 1, 0), odd(0, 1, 1), And(odd(0, 1, 2), odd(0, 1, 0)))), odd(0, 1, 1)),
]
"""The same digit in several leaves, and at one slot several times."""
MIXED = And(And(interest_bit(0), odd(0, 1, 1)), Sum((interest_bit(2), odd(0, 1, 1))))

SMALL = {
    "x < c of 1 bit": less(1),
    "x < c of 2 bits": less(1, 1),
    "x < c of 2 bits, window 2": less(2),
    "x < c of 3 bits, window 2": less(2, 1),
    "interval of 1 bit": within(1),
    "interval of 2 bits, window 2": within(2),
    "two comparisons of 1 bit": both_less([1], [1]),
    "equality of 2 bits": equal(1, 1),
    "equality of 3 bits": equal(1, 1, 1),
    "equality of 3 bits, window 2": equal(2, 1),
    "hidden tree over 1 bit": hidden(1),
    "hidden tree over 2 bits": hidden(1, 1),
    "a digit in two leaves": every(TWICE[0], (1,), 2),
    "a digit in leaves on both sides": every(TWICE[1], (1, 1), 3),
    "a digit in four leaves": every(TWICE[2], (1,), 3),
    "a digit in sums of leaves": every(TWICE[3], (1,), 3),
    "a digit of 2 bits in two leaves": every(And(odd(0, 2, 0), odd(0, 2, 2)), (2,), 5),
    "private bits only": every(
        conjunction([interest_bit(0), interest_bit(1), interest_bit(2)]), (2, 1), 3
    ),
    "private bits and a digit": every(MIXED, (1,), 3),
    "a digit of 1 bit": every(odd(0, 1, 0), (1,), 2),
    "a sum of digits of 1 bit": every(Sum((odd(0, 1, 0), odd(1, 1, 1))), (1, 1), 3),
    "a digit, and private bits": every(
        Sum((odd(0, 1, 0), And(interest_bit(1), interest_bit(2)))), (1,), 3
    ),
}
LARGE = {
    "x < c of 3 bits": less(1, 1, 1),
    "x < c of 3 bits, window 2, the short one first": less(1, 2),
    "interval of 2 bits": within(1, 1),
    "two comparisons of 2 and 1 bits, window 2": both_less([2], [1]),
    "equality of 4 bits, window 2": equal(2, 2),
    "hidden tree over 2 bits, window 2": hidden(2),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_view_depends_on_the_answer_only(name: str) -> None:
    check_perfect(SMALL[name] if len(SMALL[name].interests) <= 64 else SMALL[name].some(4, 40))


@pytest.mark.parametrize("name", LARGE)
def test_larger_views_depend_on_the_answer_only(name: str) -> None:
    check_perfect(some_of(name, 0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("name", LARGE)
def test_larger_views_for_more_inputs(name: str, seed: int) -> None:
    check_perfect(some_of(name, seed, 4))


def some_of(name: str, seed: int, times: int = 1) -> Inputs:
    """Some inputs, of both answers."""
    for more in range(100):
        found = LARGE[name].some(2 * times, 4 * times, 100 * seed + more)
        answers = {found.answer(x, p) for x, p in product(found.events, found.interests)}
        if len(answers) == 2:
            return found
    raise AssertionError(name)


def random_inputs(count: int) -> Iterator[tuple[Inputs, WindowSlots]]:
    """Random formulas with some randomness, little enough to enumerate; a few interests each."""
    for seed in range(100 * count):
        widths = [(1,), (1, 1), (2,), (1, 2)][seed % 4]
        formula = random_formula(seed, widths, interest_bits=4)
        slots = WindowSlots(formula, widths)
        pads = sum(bits << slots.widths[digit] for digit, bits in slots.pads.items())
        drawn = len(slots.free) + pads + sum(slots.widths[digit] for digit in slots.digits)
        if slots.randoms >= 2 and slots.digits and drawn <= 14:
            yield every(formula, widths, 4).some(4, 6, seed), slots
            count -= 1
            if not count:
                return


def test_views_of_random_formulas_depend_on_the_answer_only() -> None:
    occurred = dict.fromkeys(["direct", "programmed", "plain", "several tables at a slot"], 0)
    for inputs, slots in random_inputs(examples(150)):
        check_perfect(inputs)
        for one in slots.coordinates:
            occurred[one.kind] += 1
            occurred["several tables at a slot"] += len(one.lines) > 1
    assert min(occurred.values()) >= 10, occurred


# -- several interests under one set of labels --------------------------------------------------


def joint_views(
    views: Sequence[Views],
    event: Event | None,
    interests: Sequence[Interest],
    *,
    same_pads: bool = False,
) -> Numbers:
    """What one event and several interests show, for all randomness, sorted.

    Select bits are common; free masks and pads are each interest's own.

    Args:
        event: None before there is one.
        same_pads: pads are common, too: a fault.
    """
    joint: Numbers = np.zeros((1, 1), np.int64)
    for one, interest in zip(views, interests, strict=True):
        # By pads, free masks and select bits.
        shown: Numbers = one.messages(interest) if event is None else one.views(event, interest)
        shown = shown.reshape(-1, 1 << one.free, 1 << one.selects)
        if same_pads:
            shown = shown.transpose(1, 0, 2).reshape(1 << one.free, -1)
        else:
            shown = shown.reshape(-1, 1 << one.selects)
        joint = (joint[:, None] << one.bits | shown[None]).reshape(-1, shown.shape[1])
    return np.sort(joint, axis=None)


def joint_faults(subscriptions: Sequence[Inputs], *, same_pads: bool = False) -> set[str]:
    """What is wrong, if anything. All are over the same digits."""
    views = [Views(one) for one in subscriptions]
    assert len({one.slots.digits == views[0].slots.digits for one in views}) == 1
    firsts: dict[tuple[bool, ...], Numbers] = {}
    before: list[Numbers] = []
    found = set()
    for interests in product(*(one.interests for one in subscriptions)):
        before.append(joint_views(views, None, interests, same_pads=same_pads))
        if not np.array_equal(before[-1], before[0]):
            found.add("interests show something before there is an event")
        for event in subscriptions[0].events:
            pairs = zip(subscriptions, interests, strict=True)
            answers = tuple(one.answer(event, interest) for one, interest in pairs)
            shown = joint_views(views, event, interests, same_pads=same_pads)
            if not np.array_equal(shown, firsts.setdefault(answers, shown)):
                found.add("view depends on more than the answers")
    shown = np.concatenate([np.unique(first) for first in firsts.values()])
    if len(np.unique(shown)) < len(shown):
        found.add("same view for different answers")
    return found


TOGETHER: dict[str, list[Inputs]] = {
    "twice x < c of 1 bit": [less(1), less(1)],
    "three times x < c of 1 bit": [less(1), less(1), less(1)],
    "twice x < c of 2 bits": [less(1, 1).some(4, 5), less(1, 1).some(4, 5)],
    "twice x < c of 2 bits, window 2": [less(2), less(2)],
    "equality and x < c of 2 bits, window 2": [equal(2), less(2)],
    "equality and comparisons of 1+1 bits": [
        equal(1, 1).some(3, 3),
        both_less([1], [1]).some(3, 4),
    ],
    "interval and a hidden tree of 1 bit": [within(1), hidden(1).some(2, 12)],
    "twice a digit of 1 bit": [every(odd(0, 1, 0), (1,), 2)] * 2,
    "three times a sum of digits of 1 bit": [
        every(Sum((odd(0, 1, 0), odd(1, 1, 0))), (1, 1), 1),
    ]
    * 3,
    "twice a private bit, and a digit that is not used": [every(interest_bit(0), (1,), 1)] * 2,
    "a digit in two leaves, twice": [every(TWICE[0], (1,), 2), every(TWICE[3], (1,), 3)],
}


@pytest.mark.parametrize("name", TOGETHER)
def test_interests_under_the_same_labels_show_their_answers_only(name: str) -> None:
    subscriptions = [
        Inputs(one.formula, one.widths, TOGETHER[name][0].events, one.interests)
        for one in TOGETHER[name]
    ]
    assert joint_faults(subscriptions) == set()


# -- planted faults -----------------------------------------------------------------------------


FAULTY = [
    "x < c of 2 bits",
    "equality of 2 bits",
    "a digit in two leaves",
    "hidden tree over 1 bit",
]


@pytest.mark.parametrize("name", [*FAULTY, "x < c of 2 bits, window 2"])
def test_no_bit_of_the_randomness_can_be_left_out(name: str) -> None:
    for bit in range(Views(SMALL[name]).drawn):
        assert faults(Views(SMALL[name], held=[bit])) == {"view depends on more than the answer"}


@pytest.mark.parametrize("name", [*FAULTY, "x < c of 2 bits, window 2"])
def test_select_bits_must_be_shifted(name: str) -> None:
    held = range(Views(SMALL[name]).selects)
    assert "view depends on more than the answer" in faults(Views(SMALL[name], held=held))


def free_instead_of_programmed(slots: WindowSlots) -> None:
    """A mask that should make all lines sum to zero is any bit; the last row is not sent."""
    one = slots.order.pop()
    slots.free = sorted([*slots.free, one.defines])


def test_a_programmed_mask_must_fit_the_pads() -> None:
    for name in ("x < c of 2 bits", "equality of 3 bits, window 2", "a digit in two leaves"):
        assert "wrong answer" in faults(Views(SMALL[name], spoil=free_instead_of_programmed))


def one_pad_for_two_slots(slots: WindowSlots) -> None:
    masked = [one for one in slots.coordinates if one.kind != "direct"]
    first, second = [one for one in masked if one.digit == masked[-1].digit][-2:]
    second.pad = first.pad


def test_a_pad_must_not_serve_two_slots() -> None:
    for name in ("x < c of 2 bits", "two comparisons of 1 bit", "hidden tree over 1 bit"):
        found = faults(Views(SMALL[name], spoil=one_pad_for_two_slots))
        assert found == {"view depends on more than the answer"}


def test_pads_must_not_serve_two_interests() -> None:
    for name in ("twice x < c of 1 bit", "twice x < c of 2 bits, window 2"):
        assert joint_faults(TOGETHER[name], same_pads=True)
