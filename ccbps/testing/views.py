"""Check over all randomness that a broker's view depends on the answer and on nothing else.

The view of a pair is its two messages. For every event and every interest of a small matcher, the
messages are functions of the bits of a one-time pad, and `exact` compares their distributions:

1. Flip each bit of the pad, and see which bits of which message change. Bits of the pad that
   change nothing are not enumerated. What is left falls into parts that have no bit in common,
   such as the tags of headers; parts are independent, so each is looked at alone.
2. Where each part has few bits, encode under all their values, and count how often each pair of
   messages occurs (`Method.ENUMERATED`).
3. Where a part has many bits, but each byte of a message depends on few of them, as blinded group
   elements do: learn what each of these small pieces of a message is for all values of its bits.
   The chance of a given view is then a product of indicators, summed over the randomness, which is
   eliminated one symbol after another. Views drawn under one pair of inputs must have the same
   chance under all others with that answer (`Method.COUPLED`).

Rejection sampling is recognized: a value of the randomness under which a message depends on bits
that are not enumerated is a draw that is rejected. Rejected values are left out, which leaves the
distribution of those that are kept; too many of them are an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes
from ccbps.testing.wiring import Cell, Inputs, Leak, Method, Numbers, Unproven, Wiring, wiring_of

SIDES: Final = ("event", "interest")
REJECTED: Final = 0.5
"""Most of a symbol's values that may be rejected draws."""
REPEATS: Final = 20
"""Further pads for each value where there are rejected draws."""
REPEATED_BITS: Final = 12
"""Bits of the randomness of one part that are enumerated so often."""
FEW_BITS: Final = 16
"""Bits of a cell that are taken as a number as they are."""
RARE: Final = 1 / 64
"""How often a piece of a message may depend on bits far away, as long carries do."""
SAMPLES: Final = 8
"""Views drawn for each claim where their chances are compared."""
LARGEST: Final = 1 << 18
"""Entries of a factor during elimination, for each sample."""


@dataclass(frozen=True)
class Exact:
    """What was compared.

    Attributes:
        method: by enumeration, or by chances of drawn views.
        bits: bits of the randomness that matter.
        pairs: of an event and an interest.
    """

    method: Method
    bits: int
    pairs: int


def exact(inputs: Inputs, seed: int = 0) -> Exact:
    """Compare the distributions of all views of equal answers over all randomness.

    Args:
        inputs: of a small matcher.
        seed: of bits that are held, and of drawn views.

    Raises:
        Leak: the distributions differ, a message alone tells of its input, or an answer is wrong.
        Unproven: the randomness cannot be enumerated.
    """
    rng = np.random.default_rng(seed)
    wiring = wiring_of(inputs, rng)
    tables = _Tables(inputs, wiring, rng)
    tables.check_answers()
    if wiring.method is Method.ENUMERATED:
        _compare_counts(inputs, wiring, tables)
    else:
        _compare_chances(inputs, wiring, tables, rng)
    return Exact(wiring.method, len(wiring.colours), inputs.meaning.size)


# -- messages under all values of these bits -------------------------------------------------------


class _Tables:
    """Each cell of each message under every value of the enumerated number.

    Attributes:
        values: of each symbol, its value in each row.
        accepted: of each symbol, which of its values are no rejected draws.
    """

    def __init__(self, inputs: Inputs, wiring: Wiring, rng: np.random.Generator) -> None:
        self._inputs, self._wiring = inputs, wiring
        size = 1 << wiring.width
        numbers = np.arange(size)
        self.values = [
            sum(
                ((numbers >> wiring.colours[bit] & 1) << place for place, bit in enumerate(symbol)),
                start=np.zeros(size, dtype=np.int64),
            )
            for symbol in wiring.symbols
        ]
        self._bodies: dict[tuple[str, int], list[Bytes]] = {
            (side, place): []
            for side, some in zip(SIDES, (inputs.records, inputs.interests), strict=True)
            for place in range(len(some))
        }
        self._encode(2, rng)
        unstable = [self._unstable(cell) for cell in wiring.cells]
        if wiring.method is Method.ENUMERATED and any(rows.any() for rows in unstable):
            # Each value stands for itself: that it is a rejected draw has to show in its own row.
            if wiring.width > REPEATED_BITS:
                raise Unproven(
                    "there are rejected draws, and too many bits of randomness to find them all; "
                    "propose a matcher with less randomness for smaller schemas"
                )
            self._encode(REPEATS, rng)
            unstable = [self._unstable(cell) for cell in wiring.cells]
        self.accepted = self._examined(unstable)
        self._codes: dict[tuple[int, int], Numbers] = {}

    def _encode(self, turns: int, rng: np.random.Generator) -> None:
        """Encode all inputs once more, with all values of the enumerated number."""
        for _ in range(turns):
            pads = self._drawn(rng)
            for (side, place), runs in self._bodies.items():
                runs.append(self._inputs.encode(side, place, pads))

    def _drawn(self, rng: np.random.Generator) -> Bytes:
        """Return pads with all values of the enumerated number; the other bits at random."""
        numbers, width = np.arange(1 << self._wiring.width), self._inputs.matcher.randomness_bytes
        pads = rng.integers(0, 256, (width, len(numbers)), dtype=np.uint8)
        for bit, colour in self._wiring.colours.items():
            pads[bit // 8] &= 255 ^ 1 << bit % 8
            pads[bit // 8] |= ((numbers >> colour & 1) << bit % 8).astype(np.uint8)
        return np.ascontiguousarray(pads.T)

    def _unstable(self, cell: Cell) -> Bools:
        """Return the rows in which a cell depends on bits that are not enumerated."""
        found = np.zeros(1 << self._wiring.width, dtype=np.bool_)
        for (side, _), runs in self._bodies.items():
            if side == cell.side:
                some = [_picked(messages, cell.bits) for messages in runs]
                for other in some[1:]:
                    found |= (other != some[0]).any(axis=1)
        return found

    def _examined(self, unstable: list[Bools]) -> list[Bools]:
        """Return which values are no rejected draws, by the rows in which cells are unstable."""
        wiring = self._wiring
        accepted: list[Bools] = []
        for number, (symbol, values) in enumerate(zip(wiring.symbols, self.values, strict=True)):
            size = 1 << len(symbol)
            good = np.ones(size, dtype=np.bool_)
            for cell, rows in zip(wiring.cells, unstable, strict=True):
                if number in cell.symbols:
                    share = np.bincount(values, rows, size) / np.bincount(values, minlength=size)
                    # In a part that is enumerated whole nothing else may change a message.
                    alone = len(cell.symbols) == 1
                    good &= share == 0 if alone else share < 0.5
            accepted.append(good)
            if not good.mean() >= 1 - REJECTED:
                raise Unproven(
                    f"{good.size - good.sum()} of {good.size} values of {len(symbol)} bits of the "
                    "randomness would be rejected draws: messages depend on more bits than could "
                    "be enumerated; propose a matcher with less randomness for smaller schemas"
                )
        for cell, rows in zip(wiring.cells, unstable, strict=True):
            kept = self.kept(cell.symbols, accepted)
            if rows[kept].any():
                raise Unproven(
                    f"bits of {cell.side}s depend on randomness that was not found to matter; "
                    "propose a matcher with less randomness for smaller schemas"
                )
        return accepted

    def kept(self, symbols: Iterable[int], accepted: Sequence[Bools] | None = None) -> Bools:
        """Return the rows in which no draw of some symbols is rejected."""
        chosen = self.accepted if accepted is None else accepted
        out = np.ones(1 << self._wiring.width, dtype=np.bool_)
        for symbol in symbols:
            out &= chosen[symbol][self.values[symbol]]
        return out

    def check_answers(self) -> None:
        """Raise `Leak` where the broker's answer is wrong under some randomness."""
        inputs, broker = self._inputs, self._inputs.matcher.broker()
        for (x, p), answer in np.ndenumerate(inputs.meaning):
            for events, interests in zip(
                self._bodies["event", x], self._bodies["interest", p], strict=True
            ):
                if (broker.match(events, interests) != answer).any():
                    raise Leak(f"some randomness gives a wrong answer to {inputs.describe((x, p))}")

    def codes(self, cell: int, place: int) -> Numbers:
        """Return a number for what a cell holds in each row, the same for the same bits."""
        if (cell, place) not in self._codes:
            this = self._wiring.cells[cell]
            places = [of for side, of in self._bodies if side == this.side]
            held = [_picked(self._bodies[this.side, of][0], this.bits) for of in places]
            if len(this.bits) <= FEW_BITS:
                numbers = np.array(held) @ (1 << np.arange(len(this.bits)))
            else:
                packed = np.packbits(np.concatenate(held), axis=1)
                numbers = np.unique(packed, axis=0, return_inverse=True)[1].reshape(len(places), -1)
            for of, row in zip(places, numbers, strict=True):
                self._codes[cell, of] = row
        return self._codes[cell, place]


def _picked(messages: Bytes, bits: Sequence[int]) -> Bytes:
    """Return some bits of messages, a byte each."""
    places = np.array(bits)
    return np.asarray(messages[:, places // 8] >> (places % 8).astype(np.uint8) & 1)


# -- distributions --------------------------------------------------------------------------------


def _claims(inputs: Inputs) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield what is looked at, and the inputs for which it must be distributed alike."""
    if inputs.events_hidden:
        yield "event", [(x, -1) for x in range(len(inputs.records))]
    if inputs.interests_hidden:
        yield "interest", [(-1, p) for p in range(len(inputs.interests))]
    for pairs in inputs.groups():
        yield "both", pairs


def _refuse(inputs: Inputs, what: str, first: tuple[int, int], other: tuple[int, int]) -> None:
    if what == "both":
        raise Leak(
            "over all randomness, the two messages tell apart inputs with the same answer: "
            f"{inputs.describe(first)}, and {inputs.describe(other)}"
        )
    inputs_of: Sequence[Any] = inputs.records if what == "event" else inputs.interests
    one, two = (repr(inputs_of[pair[0 if what == "event" else 1]]) for pair in (first, other))
    raise Leak(f"over all randomness, {what} messages alone tell apart {one} and {two}")


def _compare_counts(inputs: Inputs, wiring: Wiring, tables: _Tables) -> None:
    """Compare how often views occur, part by part, as parts are independent."""
    parts: dict[tuple[int, ...], list[int]] = {}
    for number, cell in enumerate(wiring.cells):
        parts.setdefault(cell.symbols, []).append(number)
    for symbols, cells in parts.items():
        # A part with fewer bits than the enumerated number has each of its values equally often.
        kept = tables.kept(symbols)
        for what, pairs in _claims(inputs):
            firsts = None
            for pair in pairs:
                view = np.zeros(np.count_nonzero(kept), dtype=np.int64)
                for number in cells:
                    side = wiring.cells[number].side
                    if what in ("both", side):
                        codes = tables.codes(number, pair[0 if side == "event" else 1])[kept]
                        view = view * (1 << 24) + codes
                counts = np.unique(view, return_counts=True)
                firsts = counts if firsts is None else firsts
                if not all(map(np.array_equal, counts, firsts)):
                    _refuse(inputs, what, pairs[0], pair)


def _compare_chances(
    inputs: Inputs, wiring: Wiring, tables: _Tables, rng: np.random.Generator
) -> None:
    """Draw views under the first inputs of each claim, and compare their chances under others."""
    shapes = [1 << len(symbol) for symbol in wiring.symbols]
    drawn = [rng.choice(np.flatnonzero(good), SAMPLES) for good in tables.accepted]

    def table(number: int, place: int) -> Numbers:
        """Codes of a cell by the values of its symbols, -1 where a draw is rejected."""
        symbols = wiring.cells[number].symbols
        kept, shape = tables.kept(symbols), [shapes[symbol] for symbol in symbols]
        index = np.zeros(np.count_nonzero(kept), dtype=np.int64)
        for symbol in symbols:
            index = index * shapes[symbol] + tables.values[symbol][kept]
        codes = tables.codes(number, place)[kept]
        usual = _most_frequent(index, codes, math.prod(shape))
        if np.mean(usual[index] != codes) > RARE:
            raise Unproven(
                "a piece of a message depends on more randomness than was found; propose a "
                "matcher with less randomness for smaller schemas"
            )
        return usual.reshape(shape)

    known: dict[tuple[int, int], Numbers] = {}

    def factors(what: str, pair: tuple[int, int]) -> Iterator[tuple[tuple[int, ...], Numbers]]:
        for number, cell in enumerate(wiring.cells):
            if what in ("both", cell.side):
                place = pair[0 if cell.side == "event" else 1]
                if (number, place) not in known:
                    known[number, place] = table(number, place)
                yield cell.symbols, known[number, place]

    for what, pairs in _claims(inputs):
        seen = [
            np.broadcast_to(codes[tuple(drawn[symbol] for symbol in symbols)], (SAMPLES,))
            for symbols, codes in factors(what, pairs[0])
        ]
        order = _order([symbols for symbols, _ in factors(what, pairs[0])], shapes)
        first = None
        for pair in pairs:
            some = [
                (symbols, (codes[None] == view.reshape(-1, *[1] * codes.ndim)).astype(np.float64))
                for (symbols, codes), view in zip(factors(what, pair), seen, strict=True)
            ]
            chances = _total(some, order)
            first = chances if first is None else first
            if not np.allclose(chances, first, rtol=1e-9, atol=1e-6):
                _refuse(inputs, what, pairs[0], pair)


def _most_frequent(index: Numbers, codes: Numbers, size: int) -> Numbers:
    """Return for each index the code that it has most often, -1 where it has none."""
    some = codes.max(initial=0) + 1
    pairs, times = np.unique(index * some + codes, return_counts=True)
    order = np.argsort(times, kind="stable")
    out = np.full(size, -1)
    out[pairs[order] // some] = pairs[order] % some
    return out


Factor = tuple[tuple[int, ...], NDArray[np.float64]]


def _order(cells: Iterable[tuple[int, ...]], sizes: Sequence[int]) -> list[int]:
    """Return symbols in an order in which their elimination costs little.

    Args:
        cells: symbols of each factor.
        sizes: how many values each symbol has.

    Raises:
        Unproven: there would be factors of more than `LARGEST` entries.
    """
    near: dict[int, set[int]] = {}
    for symbols in cells:
        for symbol in symbols:
            near.setdefault(symbol, set()).update(symbols)
    costs = {symbol: math.prod(sizes[one] for one in some) for symbol, some in near.items()}
    out = []
    while costs:
        symbol = min(costs, key=lambda one: (costs[one], one))
        if costs.pop(symbol) > LARGEST:
            raise Unproven(
                "pieces of messages depend on one another too much for their chances to be "
                "computed; propose a matcher with less randomness for smaller schemas"
            )
        out.append(symbol)
        others = near.pop(symbol) - {symbol}
        for other in others:
            near[other] = (near[other] | others) - {symbol}
            costs[other] = math.prod(sizes[one] for one in near[other])
    return out


def _total(factors: Iterable[Factor], order: Sequence[int]) -> NDArray[np.float64]:
    """Return the logarithm of a product of factors, summed over all values of all symbols.

    Args:
        factors: symbols, and an array with an axis for samples and one for each of them.
        order: in which symbols are eliminated.
    """
    place = {symbol: number for number, symbol in enumerate(order)}
    waiting: list[list[Factor]] = [[] for _ in [*order, None]]
    for symbols, array in factors:
        waiting[min((place[one] for one in symbols), default=-1)].append((symbols, array))
    total = np.zeros(SAMPLES)
    with np.errstate(divide="ignore"):
        for symbol, some in zip(order, waiting, strict=False):
            near = sorted({one for symbols, _ in some for one in symbols})
            kept = tuple(one for one in near if one != symbol)
            letters = {one: chr(ord("b") + number) for number, one in enumerate(near)}
            terms = ["a" + "".join(letters[one] for one in symbols) for symbols, _ in some]
            made = np.einsum(
                ",".join(terms) + "->a" + "".join(letters[one] for one in kept),
                *[array for _, array in some],
                optimize=len(some) > 2,
            )
            most = made.reshape(SAMPLES, -1).max(axis=1)
            total += np.log(most)
            made = made / np.where(most > 0, most, 1).reshape(-1, *[1] * len(kept))
            waiting[min((place[one] for one in kept), default=-1)].append((kept, made))
        for _, array in waiting[-1]:
            total += np.log(array.reshape(SAMPLES))
    return total
