"""Check over all randomness that a broker's view depends on the answer and on nothing else.

The view of a pair is its two messages. For every event and every interest of a small matcher, the
messages are functions of the bits of a one-time pad. `exact` compares their distributions:

1. Flip each bit of the pad, under many pads, and see which bits of which message change. Bits of
   the pad that change nothing are not enumerated. The others fall into parts that have no bit in
   common, such as the tags of headers. Parts are independent, so each is looked at alone.
2. Where each part has few bits, encode under all their values, and count how often each pair of
   messages occurs (`Method.ENUMERATED`).
3. Where a part has many bits, but each byte of a message depends on few of them, as blinded group
   elements do: tabulate each of these small pieces of a message for all values of its bits.
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
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Numbers
from ccbps.matching.contract.access import bodies_of
from ccbps.matching.contract.scheme import PairScheme
from ccbps.testing.wiring import Inputs, Leak, Method, Unproven, View, Wiring, wiring_of

REJECTED: Final = 0.5
"""Greatest share of a symbol's values that may be rejected draws."""
REPEATS: Final = 20
"""Further pads for each value where there are rejected draws."""
REPEATED_BITS: Final = 13
"""Bits of the randomness of one part that are enumerated so often."""
FEW_BITS: Final = 16
"""Bits of a cell that are taken as a number as they are."""
RARE: Final = 1 / 64
"""Greatest share of pieces of a message that may depend on bits far away, as long carries do."""
SAMPLES: Final = 8
"""Views drawn for each claim where their chances are compared."""
LARGEST: Final = 1 << 18
"""Entries of a factor during elimination, for each sample."""
_SMALLER: Final = "propose a matcher with less randomness for smaller schemas"
Factor = tuple[tuple[int, ...], NDArray[np.float64]]
"""Symbols, and an array with an axis for samples and one for each of them."""


@dataclass(frozen=True)
class Exact:
    """An account of a comparison.

    Attributes:
        method: enumeration, or chances of drawn views.
        bits: number of bits of the randomness that matter.
        pairs: number of pairs of an event and an interest.
    """

    method: Method
    bits: int
    pairs: int


def exact(inputs: Inputs, seed: int = 0) -> Exact:
    """Compare the distributions of all views of equal answers over all randomness.

    Args:
        inputs: inputs of a small matcher.
        seed: seed of bits that are held, and of drawn views.

    Raises:
        Leak: the distributions differ, a message alone tells of its input, or an answer is wrong.
        Unproven: the randomness cannot be enumerated.
    """
    rng = np.random.default_rng(seed)
    wiring = wiring_of(inputs, rng)
    tables = _Tables(inputs, wiring, rng)
    tables.check_answers()
    compare = _compare_counts if wiring.method is Method.ENUMERATED else _compare_chances
    compare(inputs, wiring, tables, rng)
    return Exact(wiring.method, len(wiring.colours), inputs.meaning.size)


# -- messages under all values of these bits -------------------------------------------------------


class _Tables:
    """Each cell of each message under every value of the enumerated number.

    Attributes:
        values: value of each symbol in each row.
        accepted: for each symbol, True for the values that are no rejected draws.
        numbered: function of a cell's number: a number for the bits of the cell under each input
            of its side, in each row, and the same under random pads; equal bits, equal numbers.
        drawn: value of each symbol in these random pads.
    """

    def __init__(self, inputs: Inputs, wiring: Wiring, rng: np.random.Generator) -> None:
        self._inputs, self._wiring = inputs, wiring
        self._numbers = np.arange(1 << wiring.width)
        self.values = [
            sum(
                (self._bit(bit).astype(np.int64) << place for place, bit in enumerate(symbol)),
                start=np.zeros(len(self._numbers), dtype=np.int64),
            )
            for symbol in wiring.symbols
        ]
        self._bodies: dict[tuple[str, int], list[Bytes]] = {
            (side, place): []
            for side, contents in inputs.sides.items()
            for place in range(len(contents))
        }
        unstable = self._unstable(2, rng)
        if wiring.method is Method.ENUMERATED and any(rows.any() for rows in unstable):
            # Each value stands for itself: that it is a rejected draw has to show in its own row.
            if wiring.width > REPEATED_BITS:
                raise Unproven(
                    "there are rejected draws, and too many bits of randomness to find them all; "
                    + _SMALLER
                )
            unstable = self._unstable(REPEATS, rng)
        self.accepted: list[Bools] = []
        self._examine(unstable)
        self._draw_again(rng)
        self.numbered = cache(self._numbered)

    def _bit(self, bit: int) -> Numbers:
        """Return the value of a bit of the pad in each row."""
        return self._numbers >> self._wiring.colours[bit] & 1

    def _unstable(self, turns: int, rng: np.random.Generator) -> list[Bools]:
        """Encode all inputs some times more; return the rows in which messages differ, by cell.

        The rows are all values of the enumerated number. The other bits of pads are random, and
        messages that differ depend on these.
        """
        shape = self._inputs.matcher.randomness_bytes, len(self._numbers)
        for _ in range(turns):
            pads = rng.integers(0, 256, shape, dtype=np.uint8)
            for bit in self._wiring.colours:
                pads[bit // 8] &= 255 ^ 1 << bit % 8
                pads[bit // 8] |= (self._bit(bit) << bit % 8).astype(np.uint8)
            self._encode(np.ascontiguousarray(pads.T), self._bodies)
        unstable = []
        for cell in self._wiring.cells:
            differ = np.zeros(len(self._numbers), dtype=np.bool_)
            for (side, _), runs in self._bodies.items():
                if side == cell.side:
                    first = _picked(runs[0], cell.bits)
                    for messages in runs[1:]:
                        differ |= (_picked(messages, cell.bits) != first).any(axis=1)
            unstable.append(differ)
        return unstable

    def _encode(self, pads: Bytes, bodies: dict[tuple[str, int], list[Bytes]]) -> None:
        """Append the messages of all inputs under these pads."""
        for (side, place), runs in bodies.items():
            runs.append(self._inputs.encode(side, place, pads))

    def _draw_again(self, rng: np.random.Generator) -> None:
        """Encode all inputs under random pads.

        In the rows of the enumerated number, bits with one colour are equal: a cell that depends
        on one of them seems to depend on another.
        """
        shape = len(self._numbers), self._inputs.matcher.randomness_bytes
        pads = rng.integers(0, 256, shape, dtype=np.uint8)
        self._again: dict[tuple[str, int], list[Bytes]] = {key: [] for key in self._bodies}
        self._encode(pads, self._again)
        self.drawn = [
            _picked(pads, symbol).astype(np.int64) @ (1 << np.arange(len(symbol)))
            for symbol in self._wiring.symbols
        ]

    def _examine(self, unstable: list[Bools]) -> None:
        """Find the values that are no rejected draws, by the rows in which cells are unstable."""
        wiring = self._wiring
        for number, (symbol, values) in enumerate(zip(wiring.symbols, self.values, strict=True)):
            size = 1 << len(symbol)
            good = np.ones(size, dtype=np.bool_)
            for cell, rows in zip(wiring.cells, unstable, strict=True):
                if number in cell.symbols:
                    share = np.bincount(values, rows, size) / np.bincount(values, minlength=size)
                    # In a part that is enumerated whole nothing else may change a message.
                    alone = len(cell.symbols) == 1
                    good &= share == 0 if alone else share < 0.5
            self.accepted.append(good)
            if not good.mean() >= 1 - REJECTED:
                raise Unproven(
                    f"{good.size - good.sum()} of {good.size} values of {len(symbol)} bits of the "
                    "randomness would be rejected draws: messages depend on more bits than could "
                    f"be enumerated; {_SMALLER}"
                )
        for cell, rows in zip(wiring.cells, unstable, strict=True):
            if rows[self.kept(cell.symbols)].any():
                raise Unproven(
                    f"bits of {cell.side}s depend on randomness that was not found to matter; "
                    + _SMALLER
                )

    def kept(self, symbols: Iterable[int]) -> Bools:
        """Return the rows in which no draw of some symbols is rejected."""
        out = np.ones(len(self._numbers), dtype=np.bool_)
        for symbol in symbols:
            out &= self.accepted[symbol][self.values[symbol]]
        return out

    def check_answers(self) -> None:
        """Raise `Leak` where the broker's answer is wrong under some randomness."""
        inputs, matcher = self._inputs, self._inputs.matcher
        assert isinstance(matcher, PairScheme)
        for (x, p), answer in np.ndenumerate(inputs.meaning):
            sides = self._bodies["event", x], self._bodies["interest", p]
            for events, interests in zip(*sides, strict=True):
                # Not by a broker: tags repeat among enumerated rows, as they must not in messages.
                answers, causes = matcher.match_pairs(
                    bodies_of(matcher, events, "event"), bodies_of(matcher, interests, "interest")
                )
                if causes.any() or (answers != answer).any():
                    raise Leak(f"some randomness gives a wrong answer to {inputs.describe((x, p))}")

    def _numbered(self, number: int) -> tuple[Numbers, Numbers]:
        cell = self._wiring.cells[number]
        held = np.array(
            [
                [_picked(runs[0], cell.bits) for runs in (self._bodies[key], self._again[key])]
                for key in self._bodies
                if key[0] == cell.side
            ]
        )
        if len(cell.bits) <= FEW_BITS:
            codes = held @ (1 << np.arange(len(cell.bits)))
        else:
            packed = np.packbits(held.reshape(-1, len(cell.bits)), axis=1)
            codes = np.unique(packed, axis=0, return_inverse=True)[1].reshape(held.shape[:3])
        return codes[:, 0], codes[:, 1]


def _picked(messages: Bytes, bits: Sequence[int]) -> Bytes:
    """Return some bits of messages, a byte each."""
    places = np.array(bits)
    return np.asarray(messages[:, places // 8] >> (places % 8).astype(np.uint8) & 1)


# -- distributions --------------------------------------------------------------------------------


def _claims(inputs: Inputs) -> Iterator[tuple[tuple[str, ...], list[View]]]:
    """Yield sides of messages, and the inputs for which these must be distributed alike."""
    if inputs.hidden["event"]:
        yield ("event",), [(x, -1) for x in range(len(inputs.sides["event"]))]
    if inputs.hidden["interest"]:
        yield ("interest",), [(-1, p) for p in range(len(inputs.sides["interest"]))]
    for pairs in inputs.groups():
        yield ("event", "interest"), pairs


def _refuse(inputs: Inputs, sides: tuple[str, ...], first: View, other: View) -> None:
    """Raise a `Leak` that names the inputs."""
    if len(sides) == 2:
        raise Leak(
            "over all randomness, the two messages tell apart inputs with the same answer: "
            f"{inputs.describe(first)}, and {inputs.describe(other)}"
        )
    contents = [repr(inputs.sides[sides[0]][max(pair)]) for pair in (first, other)]
    raise Leak(
        f"over all randomness, {sides[0]} messages alone tell apart {' and '.join(contents)}"
    )


def _compare_counts(
    inputs: Inputs, wiring: Wiring, tables: _Tables, rng: np.random.Generator
) -> None:
    """Compare how often views occur, part by part, as parts are independent."""
    parts: dict[tuple[int, ...], list[int]] = {}
    for number, cell in enumerate(wiring.cells):
        parts.setdefault(cell.symbols, []).append(number)
    for symbols, cells in parts.items():
        # A part with fewer bits than the enumerated number has each of its values equally often.
        kept = tables.kept(symbols)
        for sides, pairs in _claims(inputs):
            firsts = None
            for pair in pairs:
                view = np.zeros(np.count_nonzero(kept), dtype=np.int64)
                for number in cells:
                    cell = wiring.cells[number]
                    if cell.side in sides:
                        codes, _ = tables.numbered(number)
                        view = view * (1 << 24) + codes[cell.place(pair)][kept]
                counts = np.unique(view, return_counts=True)
                firsts = counts if firsts is None else firsts
                if not all(map(np.array_equal, counts, firsts)):
                    _refuse(inputs, sides, pairs[0], pair)


def _compare_chances(
    inputs: Inputs, wiring: Wiring, tables: _Tables, rng: np.random.Generator
) -> None:
    """Draw views under the first inputs of each claim, and compare their chances under others."""
    sizes = [1 << len(symbol) for symbol in wiring.symbols]
    drawn = [rng.choice(np.flatnonzero(good), SAMPLES) for good in tables.accepted]

    @cache
    def table(number: int, place: int) -> Numbers:
        """Return the codes of a cell by the values of its symbols, -1 where a draw is rejected."""
        symbols = wiring.cells[number].symbols
        codes, again = (codes[place] for codes in tables.numbered(number))
        index, kept = _indexed(tables.values, tables.accepted, symbols, sizes)
        usual = _most_frequent(index, codes[kept], math.prod(sizes[symbol] for symbol in symbols))
        drawn, valid = _indexed(tables.drawn, tables.accepted, symbols, sizes)
        rare = np.mean(usual[index] != codes[kept]), np.mean(usual[drawn] != again[valid])
        if max(rare) > RARE:
            raise Unproven(
                f"a piece of a message depends on more randomness than was found; {_SMALLER}"
            )
        return usual.reshape([sizes[symbol] for symbol in symbols])

    for sides, pairs in _claims(inputs):
        cells = [(n, cell) for n, cell in enumerate(wiring.cells) if cell.side in sides]
        views = []
        for number, cell in cells:
            codes = table(number, cell.place(pairs[0]))
            view = codes[tuple(drawn[symbol] for symbol in cell.symbols)]
            views.append(np.broadcast_to(view, (SAMPLES,)))
        order = _order([cell.symbols for _, cell in cells], sizes)
        first = None
        for pair in pairs:
            factors = []
            for (number, cell), view in zip(cells, views, strict=True):
                codes = table(number, cell.place(pair))
                same = codes == view.reshape(-1, *[1] * codes.ndim)
                factors.append((cell.symbols, same.astype(np.float64)))
            chances = _total(factors, order)
            first = chances if first is None else first
            if not np.allclose(chances, first, rtol=1e-9, atol=1e-6):
                _refuse(inputs, sides, pairs[0], pair)


def _indexed(
    values: Sequence[Numbers],
    accepted: Sequence[Bools],
    symbols: Sequence[int],
    sizes: Sequence[int],
) -> tuple[Numbers, Bools]:
    """Return the values of some symbols as one number in the kept rows, and which rows are kept."""
    kept = np.ones(len(values[0]) if values else 1, dtype=np.bool_)
    index = np.zeros(len(kept), dtype=np.int64)
    for symbol in symbols:
        kept &= accepted[symbol][values[symbol]]
        index = index * sizes[symbol] + values[symbol]
    return index[kept], kept


def _most_frequent(index: Numbers, codes: Numbers, size: int) -> Numbers:
    """Return for each index the code that it has most often, -1 where it has none."""
    count = codes.max(initial=0) + 1
    pairs, times = np.unique(index * count + codes, return_counts=True)
    order = np.argsort(times, kind="stable")
    out = np.full(size, -1)
    out[pairs[order] // count] = pairs[order] % count
    return out


def _order(cells: Iterable[tuple[int, ...]], sizes: Sequence[int]) -> list[int]:
    """Return symbols in an order in which their elimination costs little.

    Args:
        cells: symbols of each factor.
        sizes: number of values of each symbol.

    Raises:
        Unproven: there would be factors of more than `LARGEST` entries.
    """
    near: dict[int, set[int]] = {}
    for symbols in cells:
        for symbol in symbols:
            near.setdefault(symbol, set()).update(symbols)
    costs = {symbol: math.prod(sizes[other] for other in others) for symbol, others in near.items()}
    out = []
    while costs:
        symbol = min(costs, key=lambda symbol: (costs[symbol], symbol))
        if costs.pop(symbol) > LARGEST:
            raise Unproven(
                "pieces of messages depend on one another too much for their chances to be "
                f"computed; {_SMALLER}"
            )
        out.append(symbol)
        others = near.pop(symbol) - {symbol}
        for other in others:
            near[other] = (near[other] | others) - {symbol}
            costs[other] = math.prod(sizes[symbol] for symbol in near[other])
    return out


def _total(factors: Iterable[Factor], order: Sequence[int]) -> NDArray[np.float64]:
    """Return the logarithm of a product of factors, summed over all values of all symbols.

    Args:
        factors: the factors.
        order: symbols in the order of their elimination.
    """
    place = {symbol: number for number, symbol in enumerate(order)}
    waiting: list[list[Factor]] = [[] for _ in [*order, None]]

    def wait(symbols: tuple[int, ...], array: NDArray[np.float64]) -> None:
        waiting[min((place[symbol] for symbol in symbols), default=-1)].append((symbols, array))

    for factor in factors:
        wait(*factor)
    total = np.zeros(SAMPLES)
    with np.errstate(divide="ignore"):
        for symbol, ready in zip(order, waiting, strict=False):
            near = sorted({other for symbols, _ in ready for other in symbols})
            kept = tuple(other for other in near if other != symbol)
            # Axis 0 is for the samples, axis n + 1 for symbol n of those that meet.
            axis = {other: number + 1 for number, other in enumerate(near)}
            terms: list[Any] = []
            for symbols, array in ready:
                terms += [array, [0, *(axis[other] for other in symbols)]]
            product = np.einsum(
                *terms, [0, *(axis[other] for other in kept)], optimize=len(ready) > 2
            )
            most = product.reshape(SAMPLES, -1).max(axis=1)
            total += np.log(most)
            wait(kept, product / np.where(most > 0, most, 1).reshape(-1, *[1] * len(kept)))
        for _, array in waiting[-1]:
            total += np.log(array.reshape(SAMPLES))
    return total
