"""Find which bits of a one-time pad matter to which bits of the two messages of a small matcher.

Each bit of the pad is flipped, under many pads, to see which bits of the messages change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import combinations_with_replacement, count, product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps import OneTimePad
from ccbps.arrays import Bools, Bytes, Numbers
from ccbps.leakage import Protects
from ccbps.testing.cases import Case

MOST_BITS: Final = 16
"""Greatest number of bits of the randomness of one part that are enumerated."""
MOST_BYTES: Final = 4096
"""Greatest number of bytes of randomness of a matcher."""
BASES: Final = 16
"""Least number of pads in which bits are flipped."""
FLIPS: Final = 1 << 13
"""Flips of small pads: the number of pads is chosen so that there are about as many."""
WIDE: Final = 64
"""Bytes of a pad from which on bytes that matter are looked for before bits are."""
FREQUENT: Final = 0.2
"""Least share of flips of a bit that change a message, if the bit is no spare draw."""
LINKED: Final = 0.07
"""Least share of flips that change one bit of a message, if that depends on the flipped bit."""
View = tuple[int, ...]
"""Places of an event and of one interest of its round, or of several."""


class Method(Enum):
    """Ways to compare views."""

    ENUMERATED = "all randomness enumerated"
    COUPLED = "chances of drawn views compared"


class Leak(AssertionError):
    """A view that tells more than the answer, or an answer that is wrong."""


class Unproven(AssertionError):
    """Randomness that is too much, or too entangled, to be enumerated."""


class Inputs:
    """The events and interests of a case, all pairs of which are compared.

    Attributes:
        matcher: a matcher with rounds.
        sides: events, and interests as the matcher takes them, by side.
        meaning: answers in plaintext, shape (events, interests).
        hidden: by side, whether its card says that views depend on it by the answer only.
    """

    def __init__(self, case: Case) -> None:
        self.matcher, self.meaning = case.matcher, case.meaning
        self.sides: dict[str, Sequence[Any]] = {"event": case.records, "interest": case.interests}
        protects = case.matcher.leakage.protects
        self.hidden = {
            "event": {Protects.EVENT, Protects.EQUALITY_OF_EVENTS} <= protects,
            "interest": {Protects.CONSTANTS, Protects.EQUALITY_OF_INTERESTS} <= protects,
        }

    def groups(self, interests: int = 1) -> list[list[View]]:
        """Return the groups of views that must be distributed alike.

        Args:
            interests: number of interests of a view.
        """
        alike: dict[tuple[Any, ...], list[View]] = {}
        events, kinds = self.meaning.shape
        every = combinations_with_replacement(range(kinds), interests)
        for x, chosen in product(range(events), every):
            shown = -1 if self.hidden["event"] else x, *(() if self.hidden["interest"] else chosen)
            answers = tuple(self.meaning[x, list(chosen)].tolist())
            alike.setdefault((answers, shown), []).append((x, *chosen))
        return list(alike.values())

    def vacuous(self) -> str:
        """Return the reason why a comparison says nothing; no text if it says something."""
        answers = self.meaning
        if answers.all() or not answers.any():
            return "all of its answers are the same"
        if not any(len({view[0] for view in views}) > 1 for views in self.groups()):
            return "no two events have the same answer"
        if self.hidden["interest"] and len(np.unique(answers, axis=1).T) < 2:
            return "all of its interests mean the same"
        return ""

    def encode(self, side: str, place: int, pads: Bytes) -> Bytes:
        """Return messages of one input under each pad.

        Args:
            side: "event" or "interest".
            place: place of the record or interest.
            pads: one-time pads, shape (batch, randomness_bytes).
        """
        pad, rounds, content = OneTimePad(pads.tobytes()), range(len(pads)), self.sides[side][place]
        if side == "event":
            record = {name: [value] * len(pads) for name, value in content.items()}
            return self.matcher.publisher(pad, randomness=_no_coins).encode(record, rounds)
        return self.matcher.subscriber(pad, randomness=_no_coins).encode(content, rounds)

    def describe(self, view: View) -> str:
        """Return the inputs of a view in words."""
        event, *interests = view
        texts = [repr(self.sides["interest"][place]) for place in interests]
        return (
            f"event {dict(self.sides['event'][event])} with interest{'s' * (len(texts) > 1)} "
            f"{' and '.join(texts)}"
        )


def _no_coins(length: int) -> bytes:
    raise Unproven(
        "an encoder draws randomness that the parties do not share, which is not enumerated: take "
        "all randomness of a perfect scheme from draw.shared"
    )


@dataclass(frozen=True)
class Cell:
    """Bits of one message that depend on the same few symbols.

    Attributes:
        side: "event" or "interest".
        bits: places of the bits in the message.
        symbols: numbers of the symbols.
    """

    side: str
    bits: tuple[int, ...]
    symbols: tuple[int, ...]

    def place(self, view: View) -> int:
        """Return the place of the input whose message the bits are of."""
        return view[self.side == "interest"]


@dataclass(frozen=True)
class Wiring:
    """Parts of the randomness, and the bits of messages that depend on them.

    Attributes:
        method: the method that the parts allow.
        symbols: bits of the pad that are looked at together.
        cells: all bits of the messages.
        colours: for each bit of the pad that matters, the bit of the enumerated number that it
            takes: bits that meet in a cell have different ones.
    """

    method: Method
    symbols: tuple[tuple[int, ...], ...]
    cells: tuple[Cell, ...]
    colours: Mapping[int, int]

    @property
    def width(self) -> int:
        """Number of bits of the enumerated number."""
        return max(self.colours.values(), default=-1) + 1


def wiring_of(inputs: Inputs, rng: np.random.Generator) -> Wiring:
    """Return how the messages of some inputs depend on the pad.

    Raises:
        Unproven: a piece of a message depends on more than `MOST_BITS` bits.
    """
    width = inputs.matcher.randomness_bytes
    if width > MOST_BYTES:
        raise Unproven(
            f"a round takes {width:,} bytes of randomness, and at most {MOST_BYTES:,} are looked at"
        )
    bits = _live_bits(inputs, rng) if width > WIDE else np.arange(8 * width)
    bases = max(BASES, FLIPS // len(bits))
    changed, links = _influences(inputs, bits, bases, rng)
    live = changed > 0
    if (changed[live] >= FREQUENT * bases).all():
        whole = _wiring_of_parts(inputs, bits[live], links[live] > 0)
        if whole is not None:
            return whole
    # Some bits are spare draws: these are told from others in more bases.
    bits, bases = bits[changed >= FREQUENT / 2 * bases], 4 * BASES
    changed, links = _influences(inputs, bits, bases, rng)
    frequent = changed >= FREQUENT * bases
    bits, linked = bits[frequent], links[frequent] >= LINKED * bases
    return _wiring_of_parts(inputs, bits, linked) or _wiring_of_cells(inputs, bits, linked)


def _live_bits(inputs: Inputs, rng: np.random.Generator) -> Numbers:
    """Return the bits of those bytes that change a message by some flip."""
    width = inputs.matcher.randomness_bytes
    changed = np.zeros(width, dtype=np.bool_)
    places = np.arange(width)
    for turn in range(BASES):
        base = rng.integers(0, 256, width, dtype=np.uint8)
        flips = rng.integers(1, 256, width, dtype=np.uint8)
        changed |= _differences(inputs, turn, base, places, flips).any(axis=1)
    return (8 * np.flatnonzero(changed)[:, None] + np.arange(8)).reshape(-1)


def _differences(inputs: Inputs, turn: int, base: Bytes, places: Numbers, flips: Bytes) -> Bytes:
    """Return the changes of both messages by each flip of a byte of a pad, shape (flips, bytes)."""
    pads = np.repeat(base[None], len(places) + 1, axis=0)
    pads[np.arange(len(places)), places] ^= flips
    events, interests = inputs.sides.values()
    messages = np.hstack(
        [
            inputs.encode("event", turn % len(events), pads),
            inputs.encode("interest", turn // 2 % len(interests), pads),
        ]
    )
    return np.asarray(messages[:-1] ^ messages[-1])


def _influences(
    inputs: Inputs, bits: Numbers, bases: int, rng: np.random.Generator
) -> tuple[Numbers, Numbers]:
    """Return how often flipping each bit changes anything, and each bit of the messages."""
    matcher = inputs.matcher
    changed = np.zeros(len(bits), dtype=np.int64)
    links = np.zeros((len(bits), 8 * (matcher.event_bytes + matcher.interest_bytes)), np.int32)
    masks = (1 << bits % 8).astype(np.uint8)
    for turn in range(bases):
        base = rng.integers(0, 256, matcher.randomness_bytes, dtype=np.uint8)
        differ = _differences(inputs, turn, base, bits // 8, masks)
        changed += differ.any(axis=1)
        links += np.unpackbits(differ, axis=1, bitorder="little")
    return changed, links.astype(np.int64)


def _connected(links: Bools) -> list[NDArray[np.intp]]:
    """Return sets of rows that share no column."""
    owner = np.full(links.shape[1], -1)
    parts: dict[int, list[int]] = {}
    for row, columns in enumerate(links):
        touched = {int(part) for part in owner[columns] if part >= 0}
        parts[row] = [row, *(other for part in touched for other in parts.pop(part))]
        owner[columns | np.isin(owner, list(touched))] = row
    return [np.array(sorted(part)) for part in parts.values()]


def _wiring_of_parts(inputs: Inputs, bits: Numbers, linked: Bools) -> Wiring | None:
    """Return the parts of bits that meet in no bit of a message, if each has few bits."""
    split, parts = 8 * inputs.matcher.event_bytes, _connected(linked)
    if any(len(part) > MOST_BITS for part in parts):
        return None
    symbols = tuple(tuple(bits[part].tolist()) for part in parts)
    touched = [np.any(linked[part], axis=0) for part in parts]
    rest = ~np.any([np.zeros(linked.shape[1], dtype=np.bool_), *touched], axis=0)
    cells = [
        Cell(side, tuple(np.flatnonzero(some).tolist()), numbers)
        for numbers, columns in [*(((n,), some) for n, some in enumerate(touched)), ((), rest)]
        for side, some in (("event", columns[:split]), ("interest", columns[split:]))
        if some.any()
    ]
    colours = {bit: place for symbol in symbols for place, bit in enumerate(symbol)}
    return Wiring(Method.ENUMERATED, symbols, tuple(cells), colours)


def _wiring_of_cells(inputs: Inputs, bits: Numbers, linked: Bools) -> Wiring:
    """Return symbols and cells of messages whose bits depend on few bits of the pad each."""
    split = 8 * inputs.matcher.event_bytes
    depends = {
        (side, place): frozenset(np.flatnonzero(column).tolist())
        for side, some in (("event", linked[:, :split]), ("interest", linked[:, split:]))
        for place, column in enumerate(some.T)
    }
    # Of all that depends on the same bits, what depends on more of them tells symbols apart.
    largest: list[frozenset[int]] = []
    for some in sorted(set(depends.values()), key=len, reverse=True):
        if not any(some <= other for other in largest):
            largest.append(some)
    alike: dict[tuple[int, ...], list[int]] = {}
    for bit in range(len(bits)):
        places = tuple(number for number, some in enumerate(largest) if bit in some)
        alike.setdefault(places, []).append(bit)
    members = list(alike.values())
    symbol_of = {bit: number for number, some in enumerate(members) for bit in some}
    cells: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for (side, place), some in depends.items():
        symbols = tuple(sorted({symbol_of[bit] for bit in some}))
        cells.setdefault((side, symbols), []).append(place)
    meet = [frozenset(bit for number in symbols for bit in members[number]) for _, symbols in cells]
    colours = _coloured(len(bits), meet)
    return Wiring(
        Method.COUPLED,
        tuple(tuple(bits[some].tolist()) for some in members),
        tuple(Cell(side, tuple(places), symbols) for (side, symbols), places in cells.items()),
        {int(bits[bit]): colour for bit, colour in colours.items()},
    )


def _coloured(bits: int, cells: Sequence[frozenset[int]]) -> dict[int, int]:
    """Return few colours of bits such that those of one cell differ.

    Raises:
        Unproven: more than `MOST_BITS` would be needed.
    """
    near: list[set[int]] = [set() for _ in range(bits)]
    for cell in cells:
        for bit in cell:
            near[bit] |= cell - {bit}
    colours: dict[int, int] = {}
    taken: list[set[int]] = [set() for _ in range(bits)]
    # First the bits whose neighbours have most colours: then few are needed along a chain.
    left = [(0, -len(some), bit) for bit, some in enumerate(near)]
    heapify(left)
    while left:
        bit = heappop(left)[2]
        if bit in colours:
            continue
        colours[bit] = next(colour for colour in count() if colour not in taken[bit])
        if colours[bit] >= MOST_BITS:
            raise Unproven(
                f"a piece of a message depends on more than {MOST_BITS} bits of the randomness; "
                "propose a matcher with less for smaller schemas"
            )
        for other in near[bit] - colours.keys():
            taken[other].add(colours[bit])
            heappush(left, (-len(taken[other]), -len(near[other]), other))
    return colours
