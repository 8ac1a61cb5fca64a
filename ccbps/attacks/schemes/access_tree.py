"""Access trees: the tree of a comparison reveals its constant, and leaves reveal bits of events.

The tree is in the clear, with the position of the bit that each leaf tests. Each bit has two
tokens, and the broker sees which of them an event meets, but not which token stands for 0. The
shape of a comparison reveals that for its leaves, and one known event reveals it for all tokens.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.views import (
    View,
    codes_of,
    guess_best,
    make_broken,
    read_answers,
    read_hits,
    watch,
)
from ccbps.checks import whole
from ccbps.matching.broken.access_tree import POSITION_BYTES, AccessTreeMatch
from ccbps.matching.users.users import USER_BYTES
from ccbps.predicates import Schema, UInt

Range = tuple[int, int]
Shape = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
"""Positions of the leaves, and the steps of the tree."""
Origin = tuple[Range, tuple[int, ...]]
"""A range of codes, and the bits that the leaves of its tree test."""
Reading = tuple[list[int], list[Range]]
"""Codes of all events, and ranges of all subscriptions."""


def read_tree(matcher: AccessTreeMatch, interest: Bytes) -> Shape:
    """Return the public tree of one subscription's body."""
    end = len(interest) - 4 * matcher.leaves
    slots = interest[USER_BYTES:end].reshape(matcher.leaves, -1)
    used = slots[:, POSITION_BYTES:].any(axis=1)
    positions = np.ascontiguousarray(slots[used, :POSITION_BYTES]).view("<u2").reshape(-1)
    steps = interest[end:].reshape(-1, 2).tolist()
    return tuple(positions.tolist()), tuple((k, n) for k, n in steps if n)


def tabulate_shapes(matcher: AccessTreeMatch) -> dict[Shape, list[Origin]]:
    """Return the origins of each tree of a comparison or equality, for a schema of one attribute.

    Args:
        matcher: matcher; nothing but its public parameters is used.
    """
    (name,) = matcher.schema.names
    shapes: dict[Shape, list[Origin]] = {}
    codes = range(1 << matcher.schema[name].bits)
    for text in [f"{name} {sign} {code}" for sign in ("<", ">=", "=") for code in codes]:
        predicate = matcher.schema.parse(text)
        tree = matcher.prepare(predicate)
        shape = tuple(place for place, _ in tree.leaves), tuple(tree.steps)
        bits = tuple(word[-1] for _, word in tree.leaves)
        origin = predicate.box().ranges[name], bits
        if tree.leaves and origin not in shapes.setdefault(shape, []):
            shapes[shape].append(origin)
    return shapes


def _results(matcher: AccessTreeMatch, view: View) -> tuple[Any, list[tuple[int, int]], Bools]:
    """Return the broker's table, its tokens as (position, number), and which of them events meet.

    The results have the shape (tokens, events).
    """
    table = matcher.table(view.key, view.interests)
    tokens = [(at, k) for at, same in table.tokens.items() for k in range(len(same))]
    events = matcher.open_events(view.key, view.events)
    return table, tokens, matcher.leaf_results(events, table)


def read_by_shapes(
    matcher: AccessTreeMatch, view: View, shapes: dict[Shape, list[Origin]]
) -> list[Reading]:
    """Return every reading of all events and subscriptions that fits the broker's view.

    Bits that no leaf tests are taken for 0.

    Args:
        matcher: matcher of the messages, over one attribute.
        view: view of the broker.
        shapes: table of `tabulate_shapes`.
    """
    table, tokens, held = _results(matcher, view)
    leaves = [[tokens[number] for number in numbers] for _, numbers in table.trees]
    choices = [shapes[read_tree(matcher, interest)] for interest in view.interests]
    # A world fixes, for each position, the token of 0.
    worlds: list[tuple[dict[int, int], dict[int, Range]]] = [({}, {})]
    for row in sorted(range(len(choices)), key=lambda row: len(choices[row])):
        extended = []
        for zeros, ranges in worlds:
            for origin, bits in choices[row]:
                new = {at: k ^ bit for (at, k), bit in zip(leaves[row], bits, strict=True)}
                if all(zeros.get(at, zero) == zero for at, zero in new.items()):
                    extended.append((zeros | new, ranges | {row: origin}))
        worlds = extended
    readings = []
    for zeros, ranges in worlds:
        codes = np.zeros(len(view.events), dtype=np.int64)
        for (at, k), met in zip(tokens, held, strict=True):
            bits = met != (zeros[at] == k)  # the token of 0 that an event meets is a 0
            codes |= bits.astype(np.int64) << (matcher.schema.bits - 1 - at)
        readings.append((codes.tolist(), [ranges[row] for row in range(len(choices))]))
    return readings


def read_by_known_event(matcher: AccessTreeMatch, view: View, known: int) -> tuple[list[int], int]:
    """Read events, and the constant of an equality that none of them meets, from a known event.

    Args:
        matcher: matcher of the messages, over one attribute.
        view: view of the broker, with the equality as its only subscription.
        known: code of the first event.

    Returns:
        the codes of all events, and the constant of the equality.
    """
    _, tokens, held = _results(matcher, view)
    codes, constant = np.zeros(len(view.events), dtype=np.int64), 0
    for (at, _), met in zip(tokens, held, strict=True):
        shift = matcher.schema.bits - 1 - at
        bit = known >> shift & 1
        codes |= np.where(met == met[0], bit, 1 - bit) << shift
        constant |= (bit if met[0] else 1 - bit) << shift
    return codes.tolist(), constant


PRICES: Final = Schema(price=UInt(8))


@attack(
    title="The shapes of a dozen comparisons name all tokens of access trees",
    goal="confidentiality",
    adversary="a broker with its key and messages, which knows no value",
    defence="`FormulaMatch` or `TagMatch`; their brokers even make the best of all guesses",
    source="[IRC12]",
)
def read_access_trees(*, events: int = 400, comparisons: int = 12, seed: int = 12) -> Outcome:
    """Read prices of 8 bits from the public trees of comparisons and from what leaves hold.

    Two readings fit, each the mirror image of the other, and the right one counts: any known value
    tells it, and NULL among the codes leaves one only. Bits that no leaf asks for are taken for 0.
    The brokers of the other matchers see the same events and subscriptions. Their share is
    that of the best guess from what they see: the most frequent value of all events that look
    alike.

    Args:
        events: number of events, 100 to 4,000.
        comparisons: number of subscriptions `price < c` and `price >= c`.
        seed: seed of events and subscriptions; keys are drawn anew.

    Example:
        >>> from ccbps.attacks import read_access_trees
        >>> print(read_access_trees(events=100)["events read"].undefended)
        1.0
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    records = {"price": random.integers(0, 256, whole("events", events, 100, 4000))}
    count = whole("comparisons", comparisons, 1, 100)
    signs, limits = random.choice(["<", ">="], count), random.integers(2, 255, count)
    texts = [f"price {sign} {limit}" for sign, limit in zip(signs, limits, strict=True)]
    matcher = make_broken(AccessTreeMatch, PRICES, group="toy64")
    view, codes = watch(matcher, records, texts), codes_of(PRICES, records)[:, 0]
    shapes = tabulate_shapes(matcher)
    hits, answers = read_hits(PRICES, records, texts), read_answers(PRICES, records, texts)

    def read(first: int) -> tuple[float, float]:
        """Return the shares of events and of subscriptions that the first ones give."""
        seen = View(view.key, view.events, view.interests[:first])
        readings = read_by_shapes(matcher, seen, shapes)
        ranges = [PRICES.parse(text).box().ranges["price"] for text in texts[:first]]
        if len(readings) > 2:
            return 0.0, 0.0
        right = max(readings, key=lambda each: np.mean(np.array(each[0]) == codes))
        same = [a == b for a, b in zip(right[1], ranges, strict=True)]
        return float(np.mean(np.array(right[0]) == codes)), float(np.mean(same))

    counts = (*(each for each in (1, 2, 3, 4, 6, 8) if each < count), count)
    shares = [read(first) for first in counts]
    lines = {
        "without defence": tuple(share for share, _ in shares),
        "with TagMatch": tuple(
            float(guess_best(hits["price"][:, :first], codes).mean()) for first in counts
        ),
        "with FormulaMatch": tuple(
            float(guess_best(answers[:, :first], codes).mean()) for first in counts
        ),
    }
    plain, tagged, answered = (line[-1] for line in lines.values())
    return Outcome(
        (
            Figure("events read", "", plain, answered),
            Figure("events read, TagMatch as defence", "", plain, tagged),
            Figure("subscriptions read", "", shares[-1][1]),
        ),
        Curve("comparisons that the broker has", "events read (share)", counts, lines),
    )
