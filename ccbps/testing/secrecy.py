"""Check what cards of one-time schemes promise: over all randomness, and at the size of messages.

A check that could not compare anything fails, and says what to do: no claim goes untested in
silence.

At the size of real messages, samples that must be distributed alike are compared: of both messages,
of events without interests, and of interests before there is an event. Where one event serves all
interests of a round, a view has two of these. Every statistic
is a parity: the sum modulo 2 of some bits of a view, over many views. If two samples have one
distribution, a parity is odd about equally often in both. The parities are

- every bit, and every pair of bits of which both are chosen;
- every subset of the bits of a byte, of the event, of the interest, and of both messages' sum;
- random sets of bits, of three up to half of all;
- sets that a sample's first half says are constant: parities that all of its views share.

Chosen are all bits of short messages, and of long ones their ends and a random part.

By Hoeffding's inequality the chance that a given parity differs by more than z standard units is
below ``2 exp(-z * z / 2)``. The bound on z makes that chance, for all parities of a comparison
together, `FALSE_ALARM`. Seeds are fixed, so a comparison that passes once always passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Index, Words
from ccbps.keys.pad import OneTimePad
from ccbps.matching import Answers, Keying, Matcher
from ccbps.testing.cases import OFFERS, SMALLEST, Case, Offer, cases
from ccbps.testing.views import Exact, exact
from ccbps.testing.wiring import Inputs, Leak, Unproven, View

PROOFS: Final = 3, 12
"""Greatest number of small matchers of a scheme to enumerate: by default, or thoroughly."""
MANY: Final = 256
"""Bits of randomness after which one matcher is enough, or two."""
LONGEST: Final = 4096, 8192
"""Greatest number of bytes of an event in a sample: of one matcher, or of all."""
FALSE_ALARM: Final = 1e-9
"""Greatest chance that a comparison refuses two samples of one distribution."""
VIEWS: Final = 1024
"""Views of a sample; more of them find less."""
MARGIN: Final = 64
"""Views of half a sample beyond its bits, so that few sets of bits are constant by chance."""
ENDS: Final = 48
"""Bits at each end of a long message that are always looked at."""
SETS: Final = 256
"""Random sets of bits."""
SIZES: Final = (3, 4, 8, 32)
"""Numbers of bits in them; half of all bits is one more."""


@dataclass(frozen=True)
class Subject:
    """A scheme whose claims are checked.

    Attributes:
        scheme: the class.
        offers: offers to it beside `OFFERS` and `SMALLEST`.
        thorough: True for more matchers and more views.
    """

    scheme: type[Matcher]
    offers: tuple[Offer, ...] = ()
    thorough: bool = False

    @cached_property
    def cases(self) -> list[Case]:
        """The scheme's cases."""
        return cases(self.scheme, (*OFFERS, *self.offers))

    @property
    def name(self) -> str:
        """The class's name."""
        return self.scheme.__name__

    def small(self) -> Iterator[Case]:
        """Yield cases whose cards say perfect, smaller ones first."""
        for offer in (*SMALLEST, *self.offers):
            yield from perfect(cases(self.scheme, [offer]))
        yield from perfect(self.cases)


SchemeCheck = Callable[[Subject], None]
SCHEME_CHECKS: Final[dict[str, SchemeCheck]] = {}
"""Checks of a scheme by name."""


def scheme_check(function: SchemeCheck) -> SchemeCheck:
    """Register a check under its name, with spaces."""
    SCHEME_CHECKS[function.__name__.replace("_", " ")] = function
    return function


def perfect(among: Sequence[Case]) -> list[Case]:
    """Return the cases whose cards say perfect, those of little randomness first."""
    claimed = [case for case in among if case.matcher.leakage.security == "perfect"]
    return sorted(claimed, key=lambda case: case.matcher.randomness_bytes)


def proofs(subject: Subject) -> dict[Matcher, Exact | str]:
    """Enumerate the randomness of a scheme's smallest matchers whose cards say perfect.

    Returns:
        an account of the comparison for each matcher, or the reason why there is none.

    Raises:
        Leak: a view tells more than the answer.
    """
    out: dict[Matcher, Exact | str] = {}
    for case in subject.small():
        matcher, inputs = case.matcher, Inputs(case)
        proven = [result.bits for result in out.values() if isinstance(result, Exact)]
        many = sum(bits > MANY for bits in proven)
        if len(proven) >= PROOFS[subject.thorough] or many > subject.thorough:
            break
        if matcher in out:
            continue
        try:
            out[matcher] = inputs.vacuous() or exact(inputs)
        except Unproven as error:
            out[matcher] = str(error)
    return out


@scheme_check
def it_has_cases_with_answers_of_both_kinds(subject: Subject) -> None:
    """Check that a scheme proposes matchers, and that false positives are no part of answers."""
    assert subject.cases, (
        f"{subject.name} proposes no matcher for anything it is offered: add an Offer whose "
        "predicates it takes (ccbps.testing.cases.OFFERS, or offers=[...] of conformance_tests), "
        "or let propose take one that is there"
    )
    assert all(case.interests and case.records for case in subject.cases)
    meanings = [case.meaning for case in subject.cases]
    assert any(meaning.any() for meaning in meanings), "no event matches any interest"
    assert not all(meaning.all() for meaning in meanings), "all events match all interests"
    rates = [getattr(case.matcher, "false_positive_rate", 0.0) for case in subject.cases]
    assert max(rates) < 1e-9, "answers are not the meaning now and then: lower false_positives"


@scheme_check
def over_all_randomness_a_view_depends_on_the_answer_only(subject: Subject) -> None:
    """Check perfect security: equal answers, equal distributions; and each message alone."""
    if not perfect(subject.cases):
        return
    assert subject.scheme.keying is Keying.ROUNDS, (
        f"the card of {subject.name} says perfect, which only one-time messages can be: say "
        "computational, or give the scheme rounds (ccbps.matching.contract.scheme.PairScheme)"
    )
    tried = proofs(subject)
    assert any(isinstance(result, Exact) for result in tried.values()), (
        f"the card of {subject.name} says perfect, and no small matcher of it could be "
        "enumerated: let propose make one of a few bits of randomness for an Offer of "
        "ccbps.testing.cases.SMALLEST, or for one of your own (offers=[...] of conformance_tests). "
        + "; ".join(f"{matcher!r}: {why}" for matcher, why in tried.items())
    )


@scheme_check
def samples_of_views_depend_on_the_answer_only(subject: Subject) -> None:
    """Check that views of different inputs with one answer look alike, as far as cards promise."""
    if subject.scheme.keying is not Keying.ROUNDS:
        return
    every = sorted(subject.cases, key=lambda case: (case.matcher.event_bytes, len(case.interests)))
    short = [case for case in every if case.matcher.event_bytes <= LONGEST[subject.thorough]]
    chosen = short if subject.thorough else short[-1:] or every[:1]
    if subject.scheme.answers is Answers.ROUND:
        # Where little is computed, there is little that hides it.
        small = cases(subject.scheme, SMALLEST)
        small.sort(key=lambda case: sum(cost.count for cost in case.matcher.costs))
        chosen = [*chosen, *(small if subject.thorough else small[:1])]
    views = 4 * VIEWS if subject.thorough else VIEWS
    assert sum([compare_samples(Inputs(case), views) for case in chosen]), (
        f"no two inputs of {subject.name} had to look alike: add an Offer for which it has "
        "events with equal answers, or protect something in its card"
    )


def compare_samples(inputs: Inputs, views: int) -> int:
    """Compare samples of views that must be distributed alike.

    Args:
        inputs: inputs of a matcher of any size.
        views: number of views of each sample.

    Returns:
        the number of comparisons.

    Raises:
        Leak: two samples are not of one distribution.
    """
    interests = 2 if inputs.matcher.answers is Answers.ROUND else 1
    groups = [
        sorted(group, key=lambda view: len(set(view[1:]))) for group in inputs.groups(interests)
    ]
    firsts = [group[0] for group in groups]
    # Of each group's views, the one that differs from the first one in as much as possible.
    others = [max(group, key=partial(_unlike, inputs, group[0])) for group in groups]
    places = {view: 2 * n for n, view in enumerate(firsts)}
    places.update((view, 2 * n + 1) for n, view in enumerate(others) if view not in places)
    samples = {view: drawn(inputs, view, seed, views) for view, seed in places.items()}
    claims = [
        ("both messages" if interests == 1 else "an event and two interests", slice(None), pair)
        for pair in zip(firsts, others, strict=True)
    ]
    # Messages of one side do not even depend on the answer.
    if inputs.hidden["event"]:
        claims += [("event messages", slice(1), (firsts[0], other)) for other in firsts[1:]]
    if inputs.hidden["interest"]:
        name = "interest messages" if interests == 1 else "two interests of a round"
        claims += [(name, slice(1, None), (firsts[0], other)) for other in firsts[1:]]
    compared = 0
    for messages, at, (first, other) in claims:
        if first == other:
            continue
        compared += 1
        much = difference(samples[first][at], samples[other][at])
        if much > 1:
            raise Leak(
                f"{messages} of {inputs.matcher!r} tell apart {inputs.describe(first)} and "
                f"{inputs.describe(other)}: a parity of their bits differs {much:.1f} times as "
                "much as chance allows"
            )
    return compared


def _unlike(inputs: Inputs, first: View, other: View) -> int:
    """Count in how much two views differ."""
    records = inputs.sides["event"]
    differ = sum(one != two for one, two in zip(first[1:], other[1:], strict=True))
    return differ + len(set(other[1:])) + int(records[first[0]] != records[other[0]])


# -- samples --------------------------------------------------------------------------------------


def drawn(inputs: Inputs, view: View, seed: int, views: int = VIEWS) -> list[Bytes]:
    """Return messages of one event and its interests, over rounds of a pad with a fixed seed.

    Args:
        inputs: inputs of a matcher with rounds.
        view: places of the event and the interests.
        seed: seed of the pad and of the random bytes that the roles draw themselves.
        views: number of rounds, a multiple of 128.
    """
    matcher, rng = inputs.matcher, np.random.default_rng(seed)
    secret = rng.bytes(views * matcher.randomness_bytes)
    records = {name: [value] * views for name, value in inputs.sides["event"][view[0]].items()}
    publisher = matcher.publisher(OneTimePad(secret), randomness=rng.bytes)
    messages = [publisher.encode(records, range(views))]
    for place in view[1:]:
        subscriber = matcher.subscriber(OneTimePad(secret), randomness=rng.bytes)
        interest = inputs.sides["interest"][place]
        messages.append(subscriber.encode(interest, rounds=range(views)))
    return messages


def difference(first: list[Bytes], second: list[Bytes]) -> float:
    """Return how much two samples differ: above 1, they are not of one distribution.

    Args:
        first: messages of one side or both, or several interests; each of shape (views, bytes).
        second: messages of another sample, of the same shapes.
    """
    rng = np.random.default_rng(1)
    most = (len(first[0]) // 2 - MARGIN) // max(2, len(first))
    places = [_places(rows.shape[1], most, rng) for rows in first]
    worst, tests = 0.0, 0
    for some in _statistics(first, second, places):
        tests += some.size
        worst = max(worst, float(some.max(initial=0)))
    return worst / math.sqrt(2 * math.log(2 * tests / FALSE_ALARM))


def _places(width: int, most: int, rng: np.random.Generator) -> Index:
    """Return the bits of a message that are looked at, in order."""
    if 8 * width <= most:
        return np.arange(8 * width)
    ends = np.r_[:ENDS, 8 * width - ENDS : 8 * width]
    middle = rng.choice(8 * width - 2 * ENDS, most - 2 * ENDS, replace=False) + ENDS
    return np.sort(np.r_[ends, middle])


def _statistics(
    first: list[Bytes], second: list[Bytes], places: list[Index]
) -> Iterator[NDArray[Any]]:
    """Yield absolute differences of parities, in standard units."""
    views = len(first[0])
    samples = [_columns(sample, places) for sample in (first, second)]
    yield _units(views, *map(_signs, samples))
    for bit in range(1, len(samples[0])):
        yield _units(views, *(_signs(some[:bit] ^ some[bit]) for some in samples))
    yield _units(views, *(_byte_parities(sample, places) for sample in (first, second)))
    sets = _random_sets(len(samples[0]))
    yield _units(views, *(_signs(_sums(some, sets)) for some in samples))
    half = views // 128
    for sample, other in (samples, samples[::-1]):
        sets = _constants(sample[:, :half])
        yield _units(views // 2, *(_signs(_sums(some[:, half:], sets)) for some in (sample, other)))


def _columns(sample: list[Bytes], places: list[Index]) -> Words:
    """Return the chosen bits, a row of words for each, with a bit for each view."""
    bits = [
        rows[:, at // 8] >> (at % 8).astype(np.uint8) & 1
        for rows, at in zip(sample, places, strict=True)
    ]
    return np.packbits(np.hstack(bits).T, axis=1, bitorder="little").view("<u8")


def _signs(columns: Words) -> NDArray[np.float64]:
    """Return means over all views, where a bit counts 1 if it is even and -1 if it is odd."""
    odd = np.bitwise_count(columns).sum(axis=1, dtype=np.int64)
    return np.asarray(1 - 2 * odd / (64 * columns.shape[1]))


def _sums(columns: Words, sets: list[Index]) -> Words:
    """Return sums modulo 2 of sets of bits."""
    out = np.zeros((len(sets), columns.shape[1]), dtype=np.uint64)
    for row, chosen in zip(out, sets, strict=True):
        row[:] = np.bitwise_xor.reduce(columns[chosen], axis=0)
    return out


def _units(views: int, first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Return differences of means of signs in standard units."""
    pooled = (first + second) / 2
    spread = np.sqrt(np.maximum(1 - pooled**2, 1 / views**2) * 2 / views)
    return np.asarray(np.abs(first - second) / spread)


def _byte_parities(sample: list[Bytes], places: list[Index]) -> NDArray[Any]:
    """Return means of the signs of all subsets of bits of bytes, shape (bytes, 256)."""
    columns = [rows[:, np.unique(at // 8)] for rows, at in zip(sample, places, strict=True)]
    both = np.unique(np.concatenate([at // 8 for at in places]))
    both = both[both < min(rows.shape[1] for rows in sample)]
    for one, other in combinations(sample, 2):
        columns.append(one[:, both] ^ other[:, both])
    rows = np.hstack(columns)
    places_of = rows + 256 * np.arange(rows.shape[1])
    counts = np.bincount(places_of.reshape(-1), minlength=256 * rows.shape[1])
    # The Walsh-Hadamard transform.
    for bit in range(8):
        pairs = counts.reshape(-1, 2, 1 << bit)
        counts = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)
    return np.asarray(counts.reshape(-1, 256) / len(rows))


def _random_sets(bits: int) -> list[Index]:
    """Return random sets of bits."""
    rng = np.random.default_rng(2)
    sizes = [*(min(size, bits) for size in SIZES), bits // 2]
    return [rng.choice(bits, sizes[turn % len(sizes)], replace=False) for turn in range(SETS)]


def _constants(columns: Words) -> list[Index]:
    """Return a basis of the sets of bits whose parity is the same in all views."""
    width, views = len(columns), 64 * columns.shape[1]
    bits = np.unpackbits(columns.view(np.uint8), axis=1, bitorder="little").T
    # The first view is added to all others: then a constant parity is an even one.
    octets = np.packbits(bits[1:] ^ bits[0], axis=1, bitorder="little")
    rows = np.zeros((views - 1, -(-width // 64) * 8), dtype=np.uint8)
    rows[:, : octets.shape[1]] = octets
    words, pivots = rows.view("<u8"), list[int]()
    for bit in range(width):
        rank = len(pivots)
        odd = (words[:, bit // 64] >> np.uint64(bit % 64) & np.uint64(1)).astype(np.bool_)
        place = rank + int(odd[rank:].argmax())
        if odd[place]:
            pivot = words[place].copy()
            words[place] = words[rank]
            words[rank] = pivot
            odd[place], odd[rank] = odd[rank], False
            words ^= np.where(odd[:, None], pivot, np.uint64(0))
            pivots.append(bit)
    reduced = np.unpackbits(rows, axis=1, bitorder="little")[: len(pivots), :width]
    free = np.setdiff1d(np.arange(width), pivots)
    return [np.append(np.array(pivots)[reduced[:, bit] == 1], bit).astype(np.intp) for bit in free]
