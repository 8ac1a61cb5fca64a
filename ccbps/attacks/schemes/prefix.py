"""Encrypted prefixes: ciphertexts share as many first bits as values do.

A prefix-preserving cipher decides for each prefix of a value whether the next bit is flipped. A
known value reveals these decisions for its own prefixes, and so the first bits of all values that
begin like it. Subscriptions reveal the decisions as well: the prefixes of `x < c` have the lengths
given by the ones of c, and the prefixes of an interval turn outward at both of its ends.

Ciphertexts and prefixes are those of one attribute of at most 56 bits, left-aligned in their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Numbers, Reals
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.views import guess_by_hits, make_broken, read_answers, read_hits, watch
from ccbps.checks import whole
from ccbps.matching.broken.prefix import UNUSED, PrefixMatch
from ccbps.predicates import Schema, UInt

Node = tuple[int, int]
"""A prefix of ciphertexts, as (length, bits)."""

CLEAR: Final = 4.0
"""Difference of two log-likelihoods that decides a turn."""


def read_values(bodies: Bytes, bits: int) -> Numbers:
    """Return the ciphertexts in the bodies of events of one attribute of `bits` bits."""
    width = -(-bits // 8)
    places = 1 << 8 * np.arange(width - 1, -1, -1, dtype=np.int64)
    return np.asarray((bodies[..., :width].astype(np.int64) @ places) >> 8 * width - bits)


def read_slots(interest: Bytes, bits: int) -> tuple[Numbers, Numbers]:
    """Return the prefixes of a subscription to one attribute: ciphertexts and lengths."""
    slots = interest.reshape(-1, -(-bits // 8) + 1)
    slots = slots[slots[:, -1] != UNUSED]
    return read_values(slots[:, :-1], bits), slots[:, -1].astype(np.int64)


def count_shared(a: Numbers, b: Numbers, bits: int) -> Numbers:
    """Count the first bits that all pairs have in common, shape (len(a), len(b))."""
    different = (a[:, None] ^ b).astype(np.float64)
    return bits - np.frexp(different)[1].astype(np.int64)


def extend_known(
    known: tuple[Numbers, Numbers, Numbers], targets: Numbers, bits: int
) -> tuple[Numbers, Numbers]:
    """Bound the values of ciphertexts by the bits that they share with known prefixes.

    Args:
        known: prefixes in the clear, their ciphertexts, and their lengths in bits.
        targets: ciphertexts of unknown values.
        bits: width of the attribute, bits.

    Returns:
        least and greatest value that each ciphertext can have.

    Example:
        >>> import numpy as np
        >>> from ccbps.attacks.schemes.prefix import extend_known
        >>> known = np.array([0b1011]), np.array([0b0010]), np.array([4])
        >>> low, high = extend_known(known, np.array([0b0010, 0b0001]), 4)
        >>> low.tolist(), high.tolist()     # 1011 itself, and a value that begins with 100
        ([11, 8], [11, 9])
    """
    plain, ciphertexts, lengths = known
    common = np.minimum(count_shared(targets, ciphertexts, bits), lengths)
    best = common.argmax(axis=1)
    length = common[np.arange(len(targets)), best]
    # The common bits are those of the known value; if it goes on, the next bit is the other one.
    more = length < lengths[best]
    flip = np.where(more, 1 << np.maximum(bits - 1 - length, 0), 0)
    free = bits - length - more
    low = (plain[best] ^ flip) >> free << free
    return low, low + (1 << free) - 1


def read_limit(interest: Bytes, bits: int) -> int:
    """Return the number of values in a subscription's range, which is the c of `x < c`."""
    return int((1 << bits - read_slots(interest, bits)[1]).sum())


def read_one_sided(interests: Bytes, bits: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return prefixes that subscriptions `x < c` reveal, in the form for `extend_known`."""
    parts = []
    for interest in interests:
        ciphertexts, lengths = read_slots(interest, bits)
        limit = int((1 << bits - lengths).sum())
        # Where the limit has a 1, the prefix has a 0.
        plain = limit >> bits - lengths << bits - lengths ^ 1 << bits - lengths
        parts.append(np.stack([plain, ciphertexts, lengths]))
    plain, ciphertexts, lengths = np.concatenate(parts, axis=1)
    return plain, ciphertexts, lengths


def read_interval(interest: Bytes, bits: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the bounds of an interval after the first bit in which they differ.

    Returns:
        a power of two, and both readings of the bounds modulo it; one is the other's reflection.
    """
    ciphertexts, lengths = read_slots(interest, bits)
    fork = int(count_shared(ciphertexts[:1], ciphertexts, bits).min())
    side = ciphertexts >> (bits - 1 - fork) & 1
    inner, other = (int((1 << bits - lengths[side == bit]).sum()) for bit in (0, 1))
    half = 1 << (bits - 1 - fork)
    return half, [(half - inner, other - 1), (half - other, inner - 1)]


def read_turns(interest: Bytes, bits: int) -> list[tuple[Node, bool]]:
    """Return the nodes whose children an interval shows, and whether the children are exchanged.

    If the upper half of the interval is the one with the 0, all results are inverted.
    """
    ciphertexts, lengths = read_slots(interest, bits)
    inside = {
        (size, head >> bits - size)
        for head, size in zip(ciphertexts.tolist(), lengths.tolist(), strict=True)
    }
    if len(inside) < 2:
        return []
    fork = int(count_shared(ciphertexts[:1], ciphertexts, bits).min())
    turns = [((fork, int(ciphertexts[0]) >> bits - fork), False)]
    for half in (0, 1):
        deepest, head = max((size, at) for size, at in inside if at >> size - 1 - fork & 1 == half)
        # The way to the code before the interval, or after it: that end's neighbour.
        for size in range(fork + 2, deepest + 1):
            node = head >> deepest - size
            if size == deepest:
                node ^= 1
            # Beside it is a part of the interval where it turns outward, a 0 in the lower half.
            plain = half if (size, node ^ 1) in inside else 1 - half
            turns.append(((size - 1, node >> 1), (node & 1) != plain))
    return turns


def join_turns(interests: Bytes, bits: int) -> dict[Node, bool]:
    """Return whether children are exchanged, for all nodes that intervals join to the root.

    All results may be inverted, which is the reflection of the domain.
    """
    group: dict[Node, tuple[int, bool]] = {}
    for number, interest in enumerate(interests):
        for node, turn in read_turns(interest, bits):
            if node in group and group[node][0] != number:
                old, opposite = group[node][0], group[node][1] ^ turn
                for other, (name, opposed) in group.items():
                    if name == old:
                        group[other] = number, opposed ^ opposite
            group[node] = number, turn
    if (0, 0) not in group:
        return {}
    return {node: turn for node, (name, turn) in group.items() if name == group[0, 0][0]}


def place_events(
    ciphertexts: Numbers, turns: dict[Node, bool], bits: int
) -> tuple[Numbers, Numbers]:
    """Return the least value and the number of values that each ciphertext can stand for."""
    low, width = np.zeros(len(ciphertexts), dtype=np.int64), np.full(len(ciphertexts), 1 << bits)
    for row, seen in enumerate(ciphertexts.tolist()):
        for size in range(bits):
            node = size, seen >> bits - size
            if node not in turns:
                break
            width[row] //= 2
            low[row] += width[row] * ((seen >> bits - 1 - size & 1) ^ turns[node])
    return low, width


def place_by_distribution(
    ciphertexts: Numbers, below: Callable[[int], float], bits: int, leaf: int = 64
) -> tuple[Numbers, Numbers]:
    """Place events from ciphertexts and the distribution of values, without subscriptions.

    Each way of exchanging children has a likelihood, given the counts of events. Likelihoods are
    computed from the leaves to the root; then choices are made from the root on, while the odds are
    clear.

    Args:
        ciphertexts: ciphertexts of the events.
        below: chance that a value is below a number.
        bits: width of the attribute, bits.
        leaf: number of values, a power of two, that are not distinguished.

    Returns:
        the least value and the number of values that each ciphertext can stand for.
    """
    chance = np.array([below(edge) for edge in range(0, (1 << bits) + 1, leaf)])
    count = np.searchsorted(np.sort(ciphertexts), np.arange(0, (1 << bits) + 1, leaf))

    @cache
    def likely(head: int, first: int, width: int) -> float:
        """Return the log-likelihood of a range of ciphertexts, if it is that of `first`."""
        events = int(count[head + width] - count[head])
        share = float(chance[first + width] - chance[first])
        if not events or share < 1e-9:
            return 0.0 if not events else -np.inf
        if width == 1:
            return events * float(np.log(share))
        return float(np.logaddexp(*ways(head, first, width)))

    def ways(head: int, first: int, width: int) -> tuple[float, float]:
        half = width // 2
        same = likely(head, first, half) + likely(head + half, first + half, half)
        return same, likely(head, first + half, half) + likely(head + half, first, half)

    low, width = np.zeros(len(ciphertexts), dtype=np.int64), np.full(len(ciphertexts), 1 << bits)
    waiting = [(0, 0, (1 << bits) // leaf)]
    while waiting:
        head, first, size = waiting.pop()
        rows = (head * leaf <= ciphertexts) & (ciphertexts < (head + size) * leaf)
        low[rows], width[rows] = first * leaf, size * leaf
        if size == 1 or not rows.any():
            continue
        same, exchanged = ways(head, first, size)
        if abs(same - exchanged) > CLEAR:
            half, turn = size // 2, exchanged > same
            waiting.append((head, first + half * turn, half))
            waiting.append((head + half, first + half * (not turn), half))
    return low, width


# -- attacks --------------------------------------------------------------------------------------

BITS: Final = 16
PRICES: Final = Schema(price=UInt(BITS))


def _share_near(guesses: Reals, values: Numbers) -> float:
    """Return the share of guesses that are within 1 % of the domain."""
    return float(np.mean(abs(guesses - values) <= (1 << BITS) / 100))


@attack(
    title="Intervals over encrypted prefixes place all events",
    goal="confidentiality",
    adversary="a broker with messages, without a key or a known value",
    defence="`TagMatch` or `FormulaMatch`; their brokers are even given one event in ten",
)
def read_prefixes(*, events: int = 300, intervals: int = 100, seed: int = 5) -> Outcome:
    """Place events of 16 bits from the prefixes of `BETWEEN` conditions, up to one reflection.

    An event is placed where the middle of what is left is within 1 % of the domain from its value.
    Of the two reflections, the right one counts: any known value or `x < c` tells it. The brokers
    of the other matchers take the mean of the known events that look most like an event. For
    `TagMatch`, the better of two guesses counts: from hits, and from the answers that hits give.

    Args:
        events: number of events, 10 or more.
        intervals: number of subscriptions, 2 or more.
        seed: seed of events and subscriptions; keys are drawn anew.

    Example:
        >>> from ccbps.attacks import read_prefixes
        >>> outcome = read_prefixes(events=100)
        >>> outcome["events placed"].undefended > 0.9
        True
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    values = random.integers(0, 1 << BITS, whole("events", events, 10, 3000))
    limits = np.sort(
        random.integers(0, 1 << BITS, (whole("intervals", intervals, 2, 1000), 2)), axis=1
    )
    texts = [f"price BETWEEN {low} AND {high}" for low, high in limits]
    view = watch(make_broken(PrefixMatch, PRICES), {"price": values}, texts)
    seen, known = read_values(view.events, BITS), max(1, events // 10)
    hits = read_hits(PRICES, {"price": values}, texts)["price"]
    held = np.asarray(hits.any(axis=2, keepdims=True))
    answers = read_answers(PRICES, {"price": values}, texts)

    def place(count: int) -> float:
        low, width = place_events(seen, join_turns(view.interests[:count], BITS), BITS)
        middles = low + (width - 1) / 2
        return max(_share_near(each, values) for each in (middles, (1 << BITS) - 1 - middles))

    def guess(count: int, shown: Bools) -> float:
        guesses = guess_by_hits(shown[:, :count], values[:known])
        return _share_near(guesses, values[known:])

    counts = tuple(sorted({each for each in (2, 5, 10, 20, 50) if each < intervals} | {intervals}))
    lines = {
        "without defence": tuple(place(count) for count in counts),
        "with TagMatch": tuple(max(guess(count, hits), guess(count, held)) for count in counts),
        "with FormulaMatch": tuple(guess(count, answers) for count in counts),
    }
    plain, tagged, answered = (line[-1] for line in lines.values())
    return Outcome(
        (
            Figure("events placed", "", plain, tagged),
            Figure("events placed, FormulaMatch as defence", "", plain, answered),
        ),
        Curve(
            "intervals that the broker has",
            "events placed within 1 % of the domain (share)",
            counts,
            lines,
            "x",
        ),
    )


@attack(
    title="Known values give the first bits of all others",
    goal="confidentiality",
    adversary="a broker with messages that knows some events, and no key",
    defence="`TagMatch`, with the same known events",
    source="[BAO05]",
)
def extend_prefixes(
    *, events: int = 1000, subscriptions: int = 20, known: int = 64, seed: int = 2
) -> Outcome:
    """Read first bits of uniform values of 16 bits from m known ones.

    A value shows the longest prefix that it has in common with a known one, and one bit more. The
    broker of `TagMatch` has `subscriptions` conditions `price < c`. An event counts as placed where
    its value is within 1 % of the domain from the guess.

    Args:
        events: number of events, more than `known`.
        subscriptions: number of subscriptions.
        known: greatest number m of known events.
        seed: seed of events and subscriptions; keys are drawn anew.

    Example:
        >>> from ccbps.attacks import extend_prefixes
        >>> bits = extend_prefixes(known=16)["bits read of a value"]
        >>> abs(bits.undefended - bits.expected) < 0.3
        True
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    whole("events", events, whole("known", known, 1) + 1, 10_000)
    values = random.integers(0, 1 << BITS, events)
    limits = random.integers(1, 1 << BITS, whole("subscriptions", subscriptions, 1, 200))
    texts = [f"price < {limit}" for limit in limits]
    view = watch(make_broken(PrefixMatch, PRICES), {"price": values}, [])
    seen, hits = read_values(view.events, BITS), read_hits(PRICES, {"price": values}, texts)
    counts = tuple(sorted({each for each in (1, 4, 16, 64, 256) if each < known} | {known}))

    def extend(first: int, count: int) -> tuple[float, float]:
        """Return the bits read of a value, and the share placed, from known events in a row."""
        order = np.roll(np.arange(events), -first)
        some, others = order[:count], order[count:]
        plain = values[some], seen[some], np.full(count, BITS)
        low, high = extend_known(plain, seen[others], BITS)
        bits = BITS - float(np.log2(high - low + 1).mean())
        return bits, _share_near((low + high) / 2, values[others])

    placed = [extend(0, count)[1] for count in counts]
    guesses = [guess_by_hits(hits["price"], values[:count]) for count in counts]
    guessed = [
        _share_near(each, values[count:]) for each, count in zip(guesses, counts, strict=True)
    ]
    # The known events are others each time, as a set of a few may happen to be alike.
    bits = [extend(first, known)[0] for first in range(0, events, max(known, events // 20))]
    # One bit, and one for each length of which some known value has all bits in common.
    lengths = np.arange(1, BITS)
    expected = 1 + float((1 - (1 - 2.0**-lengths) ** known).sum())
    return Outcome(
        (
            Figure("bits read of a value", "", float(np.mean(bits)), expected=expected),
            Figure("events placed", "", placed[-1], guessed[-1]),
        ),
        Curve(
            "known events",
            "events placed within 1 % of the domain (share)",
            counts,
            {"without defence": tuple(placed), "with TagMatch": tuple(guessed)},
            "x",
        ),
    )
