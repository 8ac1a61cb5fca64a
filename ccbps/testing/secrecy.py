"""Check what cards of one-time schemes promise: over all randomness, and at the size of messages.

A check that could not compare anything fails, and says what to do: no claim goes untested in
silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ccbps.matching import Keying, Matcher
from ccbps.testing.cases import OFFERS, SMALLEST, Case, Offer, cases
from ccbps.testing.samples import VIEWS, difference, drawn
from ccbps.testing.views import Exact, exact
from ccbps.testing.wiring import Inputs, Leak, Unproven

PROOFS: Final = 3, 12
"""Small matchers of a scheme whose randomness is enumerated, at most: by default, or thoroughly."""
MANY: Final = 256
"""Bits of randomness after which one matcher is enough, or two."""
LONGEST: Final = 4096, 8192
"""Bytes of an event of which samples are drawn, at most: of one matcher, or of all."""


@dataclass(frozen=True)
class Subject:
    """A scheme whose claims are checked.

    Attributes:
        scheme: the class.
        offers: what it is offered beside `OFFERS` and `SMALLEST`.
        thorough: whether all matchers are looked at, and more views.
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


def perfect(some: Sequence[Case]) -> list[Case]:
    """Return the cases whose cards say perfect, those of little randomness first."""
    claimed = [case for case in some if case.matcher.leakage.security == "perfect"]
    return sorted(claimed, key=lambda case: case.matcher.randomness_bytes)


def proofs(subject: Subject) -> dict[Matcher, Exact | str]:
    """Enumerate the randomness of a scheme's smallest matchers whose cards say perfect.

    Returns:
        what was compared of each matcher, or why it could not be.

    Raises:
        Leak: a view tells more than the answer.
    """
    out: dict[Matcher, Exact | str] = {}
    for case in subject.small():
        matcher, inputs = case.matcher, Inputs.of(case)
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
        "computational, or give the scheme rounds (ccbps.matching.contract.scheme.RoundScheme)"
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
    views = 4 * VIEWS if subject.thorough else VIEWS
    assert sum([compare_samples(Inputs.of(case), views) for case in chosen]), (
        f"no two inputs of {subject.name} had to look alike: add an Offer for which it has "
        "events with equal answers, or protect something in its card"
    )


def compare_samples(inputs: Inputs, views: int) -> int:
    """Compare samples of views that must be distributed alike.

    Args:
        inputs: of a matcher of any size.
        views: of each sample.

    Returns:
        how many comparisons were made.

    Raises:
        Leak: two samples are not of one distribution.
    """
    matcher, seed, compared = inputs.matcher, 0, 0
    firsts = []
    for pairs in inputs.groups():
        first, other = pairs[0], _unlike(inputs, pairs)
        seed += 2
        sample = drawn(matcher, *inputs.pick(first), seed, views)
        firsts.append((first, sample))
        if other == first:
            continue
        second = drawn(matcher, *inputs.pick(other), seed + 1, views)
        _refuse(inputs, "both messages", first, other, difference(sample, second))
        compared += 1
    # A message alone does not even depend on the answer.
    (first, sample), (other, second) = firsts[0], firsts[-1]
    for place, hidden in enumerate((inputs.events_hidden, inputs.interests_hidden)):
        if hidden and len(firsts) > 1:
            much = difference(sample[place : place + 1], second[place : place + 1])
            _refuse(inputs, f"{('event', 'interest')[place]} messages", first, other, much)
            compared += 1
    return compared


def _unlike(inputs: Inputs, pairs: list[tuple[int, int]]) -> tuple[int, int]:
    """Return a pair that differs from the first one in as much as possible."""
    record, interest = pairs[0]
    return max(
        pairs,
        key=lambda pair: (
            (inputs.records[pair[0]] != inputs.records[record]) + (pair[1] != interest)
        ),
    )


def _refuse(
    inputs: Inputs, messages: str, first: tuple[int, int], other: tuple[int, int], much: float
) -> None:
    if much > 1:
        raise Leak(
            f"{messages} of {inputs.matcher!r} tell apart {inputs.describe(first)} and "
            f"{inputs.describe(other)}: a parity of their bits differs {much:.1f} times as much "
            "as chance allows"
        )
