"""The attack at dawn: a broker that can read nothing notices more matches than usual.

Events of an *operation* match one subscription more often than usual. A broker can count
deliveries with any matcher. The defences make this number independent of events, or hide the
operation in its other variation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Final

import numpy as np

from ccbps.anonymity.cloaks import cloak
from ccbps.arrays import Bools, Index
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.checks import number, whole
from ccbps.delivery.canary import Canary
from ccbps.filters.contents import ContentFilter, may_match
from ccbps.keys.plain_key import FilterKey
from ccbps.keys.seeds import SharedSeed
from ccbps.matching.one_time.formula import FormulaMatch
from ccbps.predicates import Predicate, Schema, UInt

SCHEMA: Final = Schema(sector=UInt(8))
SECTORS: Final = 256
WIDTH: Final = 4
"""Number of sectors of a subscription."""
SUBSCRIBERS: Final = 40
MOST_EVENTS: Final = 500_000
"""Largest number of events in all windows."""
LENGTHS: Final = (1, 2, 4, 8, 16)
"""Lengths of operations in the curve, in windows."""


@dataclass(frozen=True)
class Windows:
    """Windows of time with events, half of them amid an operation.

    Attributes:
        sectors: sector of each event, shape (windows, events).
        operation: windows amid an operation of the subscriber, shape (windows,).
    """

    sectors: Index
    operation: Bools


def accuracy(counts: Index, operation: Bools, length: int = 1) -> float:
    """Return the share of right guesses whether an operation is under way.

    The broker knows the operations in the first half of the windows. It takes the threshold that is
    best there, and guesses in the second half, from the sum over some windows. Windows with and
    without an operation weigh the same.

    Args:
        counts: number that the broker sees in each window, shape (windows,).
        operation: windows amid an operation, half of either half.
        length: windows that an operation lasts.
    """
    half = len(counts) // 2

    def sums(part: slice, state: bool) -> Index:
        chosen = counts[part][operation[part] == state]
        return np.asarray(chosen[: len(chosen) // length * length].reshape(-1, length).sum(axis=1))

    def rate(part: slice, threshold: int) -> float:
        on, off = sums(part, True), sums(part, False)
        return float((on >= threshold).mean() + (off < threshold).mean()) / 2

    known, new = slice(0, half), slice(half, None)
    seen = np.concatenate([sums(known, True), sums(known, False)])
    best = max(np.unique(seen).tolist(), key=lambda threshold: rate(known, threshold))
    return rate(new, best)


def best_accuracy(events: int, quiet: float, busy: float) -> float:
    """Return the greatest share of right guesses from a number of matches, by the distributions.

    Args:
        events: number of events in a window.
        quiet: probability that an event matches without an operation.
        busy: the same amid an operation.
    """
    differences = [
        comb(events, k)
        * abs(busy**k * (1 - busy) ** (events - k) - quiet**k * (1 - quiet) ** (events - k))
        for k in range(events + 1)
    ]
    return 0.5 + sum(differences) / 4


def answers(
    sectors: Index, interests: str | Predicate | Sequence[str], random: np.random.Generator
) -> Bools:
    """Return the answers of `FormulaMatch`, of the shape of the sectors.

    Args:
        sectors: sector of each event.
        interests: subscription, or one for each event.
        random: source of the seed.
    """
    matcher, rounds = FormulaMatch.box(SCHEMA), range(sectors.size)
    seed = SharedSeed.generate(random.bytes)
    sent = matcher.publisher(seed).encode({"sector": sectors.reshape(-1)}, rounds)
    asked = matcher.subscriber(seed).encode(interests, rounds=rounds)
    return matcher.broker().match(sent, asked).reshape(sectors.shape)


def at_constant_rate(
    sectors: Index, wanted: Bools, slots: int, low: int, random: np.random.Generator
) -> tuple[Index, float]:
    """Publish the same number of matching events in each window, and of others.

    Matching events wait for one of the window's slots. Free slots, and the former places of
    matching events, carry dummies, matching or not.

    Args:
        sectors: sector of each event, shape (windows, events).
        wanted: events that match.
        slots: number of slots of a window.
        low: first sector of the subscription.
        random: source of dummies and of the order.

    Returns:
        sectors of published events, shape (windows, events + slots), and the number of windows that
        an event waits on average.
    """
    waiting: deque[tuple[int, int]] = deque()
    published, waits = [], []
    for window, (row, matching) in enumerate(zip(sectors, wanted, strict=True)):
        waiting.extend((window, sector) for sector in row[matching].tolist())
        taken = [waiting.popleft() for _ in range(min(slots, len(waiting)))]
        waits += [window - since for since, _ in taken]
        dummies = low + random.integers(0, WIDTH, slots - len(taken))
        # Past the last sector of the subscription, round to the one before its first.
        others = (low + random.integers(WIDTH, SECTORS, np.count_nonzero(matching))) % SECTORS
        own = np.array([sector for _, sector in taken], dtype=np.int64)
        published.append(np.concatenate([own, dummies, row[~matching], others]))
    return random.permuted(np.stack(published), axis=1), float(np.mean(waits))


def learned_counts(passed: Bools, masks: Index, windows: Windows) -> Index:
    """Count the events of each window whose masks were more frequent amid earlier operations.

    Args:
        passed: events that pass, shape (windows, events).
        masks: number of each event's mask among the distinct ones.
        windows: the windows, of whose first half the broker knows the operations.
    """
    half, size = len(passed) // 2, int(masks.max()) + 1
    known = passed & (np.arange(len(passed)) < half)[:, None]
    busy, quiet = (
        np.bincount(masks[known & (windows.operation == state)[:, None]], minlength=size)
        for state in (True, False)
    )
    return np.asarray((passed & (busy > 2 * quiet)[masks]).sum(axis=1))


@attack(
    title="A broker sees that something matches, and guesses that an operation is under way",
    goal="confidentiality",
    adversary="the broker, which counts deliveries and knows when earlier operations were",
    defence="events that match at a constant rate, with dummies (one-time matchers)",
)
def attack_at_dawn(
    *,
    events: int = 50,
    windows: int = 640,
    focus: float = 0.1,
    extra: int = 12,
    k: int = 5,
    seed: int = 1,
) -> Outcome:
    """Guess from the number of deliveries whether an operation is under way.

    Amid an operation, some events concern the subscriber's sectors; all others are uniform. Each
    defence adds deliveries that the subscriber throws away:

    - Canaries: further events that match, at random, in a fixed number of publications. Without
      it, the broker would subtract those that are more than usual.
    - Rounds that always match: the subscriber asks for all events in random rounds.
    - Masks: the broker forwards what passes a `ContentFilter`. It sees which masks are equal, so it
      learns which ones come amid operations, and counts these only.
    - Cloaks: it knows the hull of k subscriptions. If the others have operations too, each one in
      half of the windows, it sees that there are some, and hardly whose.
    - A constant rate: as many events match in each window. Publisher and subscriber have to agree
      on what matches, as for canaries.

    Only the constant rate hides operations. With canaries, rounds that always match and cloaks the
    broker has to watch longer. Masks hide nothing.

    Args:
        events: number of events in a window, at most 1,000.
        windows: number of windows, rounded down to a multiple of 64. The broker knows of the first
            half when operations were.
        focus: share of the events that concern the subscriber's sectors amid an operation.
        extra: number of events that match, on average, in a window that canaries, or rounds that
            always match, add; and of all that match in a window at a constant rate.
        k: least number of subscribers of a cloak; 2 k - 1 times `focus` is at most 1.
        seed: seed of the simulation.

    Example:
        >>> from ccbps.attacks import attack_at_dawn
        >>> outcome = attack_at_dawn(windows=128)
        >>> guesses = outcome["right guesses, constant rate"]
        >>> guesses.undefended > 0.8, guesses.defended
        (True, 0.5)
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    whole("k", k, 2, SUBSCRIBERS)
    number("focus", focus, 0, 1 / (2 * k - 1))
    whole("extra", extra, 1, whole("events", events, 1, 1000))
    size = whole("windows", windows, 64, max(64, MOST_EVENTS // events)) // 64 * 64
    lows = random.integers(0, SECTORS - WIDTH + 1, SUBSCRIBERS)
    interests = [f"sector BETWEEN {low} AND {low + WIDTH - 1}" for low in lows.tolist()]

    def draw(members: Sequence[int], events: int = events) -> Windows:
        """Draw windows in which these subscribers have operations; the first is the target."""
        halves = [random.permuted(np.arange(size // 2) % 2 == 0) for _ in range(2)]
        states = random.random((size, len(members))) < 0.5
        states[:, 0] = np.concatenate(halves)
        sectors = random.integers(0, SECTORS, (size, events))
        share = random.random((size, events))
        for place, member in enumerate(members):
            chosen = (share >= place * focus) & (share < (place + 1) * focus)
            chosen &= states[:, place, None]
            sectors[chosen] = lows[member] + random.integers(0, WIDTH, int(chosen.sum()))
        return Windows(sectors, states[:, 0])

    plain = draw([0])
    without = answers(plain.sectors, interests[0], random)

    # As many publications in each window: else the broker would count canaries by what is added.
    canary = Canary(SharedSeed.generate(random.bytes), share=extra / (events + extra))
    among = draw([0], events + extra)
    due = canary.due(range(among.sectors.size)).reshape(among.sectors.shape)
    among.sectors[due] = lows[0] + random.integers(0, WIDTH, np.count_nonzero(due))
    with_canaries = answers(among.sectors, interests[0], random).sum(axis=1)

    always = random.random(plain.sectors.size) < extra / events
    asked = [("TRUE" if every else interests[0]) for every in always.tolist()]
    with_rounds = answers(plain.sectors, asked, random).sum(axis=1)

    contents = ContentFilter(SCHEMA, FilterKey.generate(random.bytes), bits=64, hashes=1)
    sent = contents.events({"sector": plain.sectors.reshape(-1)})
    passed = may_match(sent, contents.interests(interests[:1])).reshape(plain.sectors.shape)
    masks = np.unique(sent, axis=0, return_inverse=True)[1].reshape(plain.sectors.shape)

    cloaks = cloak(SCHEMA, interests, k)
    group = cloaks.groups[0]
    others = [member for member in np.flatnonzero(cloaks.groups == group).tolist() if member]
    hull, together = cloaks.predicates[group], draw([0, *others])
    alone_hull, together_hull = (
        answers(each.sectors, hull, random).sum(axis=1) for each in (plain, together)
    )

    constant, wait = at_constant_rate(plain.sectors, without, extra, int(lows[0]), random)
    at_constant = answers(constant, interests[0], random).sum(axis=1)

    seen = {
        "canaries": (among, with_canaries),
        "rounds that always match": (plain, with_rounds),
        "masks": (plain, learned_counts(passed, masks, plain)),
        "cloaks, no other operation": (plain, alone_hull),
        "cloaks, other operations": (together, together_hull),
        "constant rate": (plain, at_constant),
    }
    delivered = {name: counts for name, (_, counts) in seen.items()}
    delivered["masks"] = passed.sum(axis=1)
    bare = without.sum(axis=1)

    def guesses(length: int, windows: Windows, counts: Index) -> float:
        return accuracy(counts, windows.operation, length)

    chance = WIDTH / SECTORS
    expected = best_accuracy(events, chance, focus + (1 - focus) * chance)
    return Outcome(
        (
            *(
                Figure(
                    f"right guesses, {name}",
                    "",
                    guesses(1, plain, bare),
                    guesses(1, *each),
                    expected,
                )
                for name, each in seen.items()
            ),
            *(
                Figure(
                    f"deliveries in a window, {name}",
                    "",
                    float(bare.mean()),
                    float(delivered[name].mean()),
                )
                for name in seen
            ),
            Figure("windows that an event waits, constant rate", "", 0.0, wait),
        ),
        Curve(
            "windows that an operation lasts",
            "right guesses (share)",
            tuple(map(float, LENGTHS)),
            {
                "without defence": tuple(guesses(length, plain, bare) for length in LENGTHS),
                **{
                    f"with {name}": tuple(guesses(length, *each) for length in LENGTHS)
                    for name, each in seen.items()
                },
            },
            log="x",
        ),
    )
