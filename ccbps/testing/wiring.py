"""Find which bits of a one-time pad matter to which bits of the two messages of a small matcher.

Each bit of the pad is flipped, under many pads, to see which bits of the messages change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps import OneTimePad
from ccbps.arrays import Bools, Bytes
from ccbps.leakage import Protects
from ccbps.matching import Matcher
from ccbps.testing.cases import Case

Numbers = NDArray[np.int64]

MOST_BITS: Final = 16
"""Bits of the randomness of one part that are enumerated."""
MOST_BYTES: Final = 4096
"""Bytes of randomness that are looked at."""
BASES: Final = 16
"""Pads in which bits are flipped, at least."""
FLIPS: Final = 1 << 13
"""Flips of small pads: so many bases that there are about as many."""
WIDE: Final = 64
"""Bytes of a pad from which on bytes that matter are looked for before bits are."""
FREQUENT: Final = 0.2
"""How often flipping a bit changes a message, at least, if it is no spare draw."""
LINKED: Final = 0.07
"""How often it changes one bit of a message, at least, if that depends on it."""


class Method(Enum):
    """How views were compared."""

    ENUMERATED = "all randomness enumerated"
    COUPLED = "chances of drawn views compared"


class Leak(AssertionError):
    """A view that tells more than the answer, or an answer that is wrong."""


class Unproven(AssertionError):
    """Randomness that is too much, or too entangled, to be enumerated."""


@dataclass(frozen=True)
class Inputs:
    """A matcher, and the events and interests all pairs of which are compared.

    Attributes:
        matcher: one with rounds.
        records: events.
        interests: as the matcher takes them.
        events_hidden: whether views must not depend on the event but by the answer.
        interests_hidden: whether they must not depend on the interest.
    """

    matcher: Matcher
    records: Sequence[Mapping[str, Any]]
    interests: Sequence[Any]
    events_hidden: bool = True
    interests_hidden: bool = True

    @classmethod
    def of(cls, case: Case) -> Inputs:
        """Return the inputs of a case, with what its matcher's card says is hidden."""
        protects = case.matcher.leakage.protects
        return cls(
            case.matcher,
            case.records,
            case.interests,
            {Protects.EVENT, Protects.EQUALITY_OF_EVENTS} <= protects,
            {Protects.CONSTANTS, Protects.EQUALITY_OF_INTERESTS} <= protects,
        )

    @cached_property
    def meaning(self) -> Bools:
        """Answers in plaintext, shape (records, interests)."""
        events = self.matcher.schema.encode(list(self.records))
        columns = [self.matcher.meaning(interest, events) for interest in self.interests]
        return np.array(columns, dtype=np.bool_).reshape(len(columns), len(self.records)).T

    def groups(self) -> Iterator[list[tuple[int, int]]]:
        """Pairs of an event and an interest whose views must be distributed alike."""
        alike: dict[tuple[bool, int, int], list[tuple[int, int]]] = {}
        for (x, p), answer in np.ndenumerate(self.meaning):
            shown = -1 if self.events_hidden else x, -1 if self.interests_hidden else p
            alike.setdefault((bool(answer), *shown), []).append((x, p))
        yield from alike.values()

    def vacuous(self) -> str:
        """Return what is missing for a comparison to say something; nothing if it does."""
        answers = self.meaning
        if answers.all() or not answers.any():
            return "all of its answers are the same"
        if not any(len({x for x, _ in pairs}) > 1 for pairs in self.groups()):
            return "no two events have the same answer"
        if self.interests_hidden and len(np.unique(answers, axis=1).T) < 2:
            return "all of its interests mean the same"
        return ""

    def encode(self, side: str, place: int, pads: Bytes) -> Bytes:
        """Return messages of one input under each pad.

        Args:
            side: "event" or "interest".
            place: of the record or interest.
            pads: shape (batch, randomness_bytes).
        """
        pad, rounds = OneTimePad(pads.tobytes()), range(len(pads))
        if side == "event":
            record = {name: [value] * len(pads) for name, value in self.records[place].items()}
            return self.matcher.publisher(pad, randomness=_no_coins).encode(record, rounds)
        subscriber = self.matcher.subscriber(pad, randomness=_no_coins)
        return subscriber.encode(self.interests[place], rounds)

    def pick(self, pair: tuple[int, int]) -> tuple[Mapping[str, Any], Any]:
        """Return an event and an interest by their places."""
        return self.records[pair[0]], self.interests[pair[1]]

    def describe(self, pair: tuple[int, int]) -> str:
        """Return the two inputs in words."""
        return f"event {dict(self.records[pair[0]])} with interest {self.interests[pair[1]]!r}"


def _no_coins(length: int) -> bytes:
    raise Unproven(
        "an encoder draws randomness that the parties do not share, which is not enumerated: take "
        "all randomness of a perfect scheme from draw.shared"
    )


# -- which bits of the pad matter to which bits of the messages -----------------------------------


@dataclass(frozen=True)
class Cell:
    """Bits of one message that depend on the same few symbols.

    Attributes:
        side: "event" or "interest".
        bits: of the message.
        symbols: on which they depend.
    """

    side: str
    bits: tuple[int, ...]
    symbols: tuple[int, ...]


@dataclass(frozen=True)
class Wiring:
    """Parts of the randomness, and what of messages depends on them.

    Attributes:
        method: what the parts allow.
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
        """Bits of the enumerated number."""
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
    bits = np.arange(8 * width)
    if width > WIDE:
        bits = _live_bits(inputs, rng)
    changed, links, bases = _influences(inputs, bits, max(BASES, FLIPS // len(bits)), rng)
    live, frequent = changed > 0, changed >= FREQUENT * bases
    whole = None
    if frequent[live].all():
        whole = _wiring_of_parts(inputs, bits[live], links[live] > 0)
    if whole is not None:
        return whole
    # Some bits are spare draws: these are told from others in more bases.
    bits = bits[changed >= FREQUENT / 2 * bases]
    changed, links, bases = _influences(inputs, bits, 4 * BASES, rng)
    frequent = changed >= FREQUENT * bases
    bits, linked = bits[frequent], links[frequent] >= LINKED * bases
    return _wiring_of_parts(inputs, bits, linked) or _wiring_of_cells(inputs, bits, linked)


def _live_bits(inputs: Inputs, rng: np.random.Generator) -> Numbers:
    """Return the bits of bytes of which some flips change a message."""
    width = inputs.matcher.randomness_bytes
    found = np.zeros(width, dtype=np.bool_)
    for turn in range(BASES):
        base = rng.integers(0, 256, width, dtype=np.uint8)
        pads = np.repeat(base[None], width + 1, axis=0)
        pads[np.arange(width), np.arange(width)] ^= rng.integers(1, 256, width, dtype=np.uint8)
        for messages in _both(inputs, turn, pads):
            found |= (messages[:-1] != messages[-1]).any(axis=1)
    return (8 * np.flatnonzero(found)[:, None] + np.arange(8)).reshape(-1)


def _both(inputs: Inputs, turn: int, pads: Bytes) -> Iterator[Bytes]:
    """Return the messages of the inputs whose turn it is."""
    yield inputs.encode("event", turn % len(inputs.records), pads)
    yield inputs.encode("interest", turn // 2 % len(inputs.interests), pads)


def _influences(
    inputs: Inputs, bits: Numbers, bases: int, rng: np.random.Generator
) -> tuple[Numbers, Numbers, int]:
    """Return how often flipping each bit changes anything, and each bit of the messages."""
    matcher, width = inputs.matcher, inputs.matcher.randomness_bytes
    changed = np.zeros(len(bits), dtype=np.int64)
    links = np.zeros((len(bits), 8 * (matcher.event_bytes + matcher.interest_bytes)), np.int32)
    rows, masks = np.arange(len(bits)), (1 << bits % 8).astype(np.uint8)
    for turn in range(bases):
        base = rng.integers(0, 256, width, dtype=np.uint8)
        pads = np.repeat(base[None], len(bits) + 1, axis=0)
        pads[rows, bits // 8] ^= masks
        messages = np.hstack(list(_both(inputs, turn, pads)))
        differ = messages[:-1] ^ messages[-1]
        changed += differ.any(axis=1)
        links += np.unpackbits(differ, axis=1, bitorder="little")
    return changed, links.astype(np.int64), bases


def _connected(links: Bools) -> list[NDArray[np.intp]]:
    """Return sets of rows that share no column."""
    owner = np.full(links.shape[1], -1)
    parts: dict[int, list[int]] = {}
    for row, columns in enumerate(links):
        touched = {int(one) for one in owner[columns] if one >= 0}
        parts[row] = [row, *(other for one in touched for other in parts.pop(one))]
        merged = columns.copy()
        for one in touched:
            merged |= owner == one
        owner[merged] = row
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
        for numbers, which in [*(((n,), of) for n, of in enumerate(touched)), ((), rest)]
        for side, some in (("event", which[:split]), ("interest", which[split:]))
        if some.any()
    ]
    colours = {bit: place for symbol in symbols for place, bit in enumerate(symbol)}
    return Wiring(Method.ENUMERATED, symbols, tuple(cells), colours)


def _wiring_of_cells(inputs: Inputs, bits: Numbers, linked: Bools) -> Wiring:
    """Return symbols and cells of messages whose bits depend on few bits of the pad each."""
    split = 8 * inputs.matcher.event_bytes
    sides = (("event", linked[:, :split]), ("interest", linked[:, split:]))
    depends = {
        (side, place): frozenset(np.flatnonzero(column).tolist())
        for side, some in sides
        for place, column in enumerate(some.T)
    }
    # Of all that depends on the same bits, what depends on more of them tells symbols apart.
    largest: list[frozenset[int]] = []
    for some in sorted(set(depends.values()), key=len, reverse=True):
        if not any(some <= other for other in largest):
            largest.append(some)
    alike: dict[tuple[int, ...], list[int]] = {}
    for bit in range(len(bits)):
        where = tuple(number for number, some in enumerate(largest) if bit in some)
        alike.setdefault(where, []).append(bit)
    symbol_of = {bit: number for number, some in enumerate(alike.values()) for bit in some}
    cells: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for (side, place), some in depends.items():
        symbols = tuple(sorted({symbol_of[bit] for bit in some}))
        cells.setdefault((side, symbols), []).append(place)
    members = list(alike.values())
    meet = [frozenset(bit for one in symbols for bit in members[one]) for _, symbols in cells]
    colours = _coloured(len(bits), meet)
    return Wiring(
        Method.COUPLED,
        tuple(tuple(int(bits[bit]) for bit in some) for some in members),
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
