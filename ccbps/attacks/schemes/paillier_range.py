"""Modified Paillier: quotients of messages are differences of values, times one secret factor.

An event carries T E'(r_p m + r_q), a bound 1/T E'(-r_p s), with 0 <= r_q < r_p. In the quotient of
two events, or of two bounds, T is gone, and the broker's mu reads the exponent. So no attack here
gets harder with a longer modulus.

Messages are integers modulo n^2 of one attribute. `NabeelComparer` is made from the broker's key.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, Final

import numpy as np

from ccbps.algebra.modular import integer, inverse, powmod, rows_from
from ccbps.arrays import Bytes, Numbers
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
from ccbps.ciphers.nabeel import NabeelComparer
from ccbps.errors import ParameterError
from ccbps.matching.broken.paillier import PaillierRangeMatch
from ccbps.predicates import Schema, UInt


def comparer_of(view: View) -> NabeelComparer:
    """Return the broker's comparer, from its key."""
    return NabeelComparer(integer(view.key["n"]), integer(view.key["mu"]))


def read_column(bodies: Bytes, place: int, modulus_bits: int) -> list[int]:
    """Return the messages of one attribute: value after value, or low and high + 1 of each range.

    Args:
        bodies: bodies of events, or of subscriptions.
        place: number of the attribute among values, or among bounds.
        modulus_bits: bits of n.
    """
    width = modulus_bits // 4
    return list(rows_from(bodies[:, place * width : (place + 1) * width]))


def divide(comparer: NabeelComparer, messages: Sequence[int], by: int) -> list[int]:
    """Read the quotients of messages and another one of the same kind.

    Returns:
        of events, r_p (a - b) with an error below r_p; of bounds, r_p (b - a) exactly.
    """
    return comparer.offsets(messages, inverse(by, comparer.n2))


def find_factor(comparer: NabeelComparer, bounds: Sequence[int]) -> int:
    """Return r_p, a secret of the clients: the common divisor of all differences of bounds.

    Three or more different bounds give it, unless their differences have a factor in common.
    """
    return gcd(*map(int, divide(comparer, bounds, bounds[0])))


def read_nearly(
    comparer: NabeelComparer, values: Sequence[int], factor: int, known: int
) -> list[int]:
    """Read events to within 1, from the value of the first one and r_p."""
    scaled = divide(comparer, values, values[0])
    return [known + int((2 * each + factor) // (2 * factor)) for each in scaled]


def read_exactly(
    comparer: NabeelComparer, values: Sequence[int], bounds: Sequence[int], known: int
) -> tuple[list[int], list[int]]:
    """Read all events and bounds from the value of the first event.

    Args:
        comparer: comparer of the broker.
        values: messages of events.
        bounds: messages of three bounds or more.
        known: value of the first event.

    Returns:
        the values and the bounds.
    """
    factor = find_factor(comparer, bounds)
    # With the known event, d is r_p (known - s) + r_q, and r_q is below r_p.
    read = [int(known - comparer.difference(values[0], s) // factor) for s in bounds]
    return _read_values(comparer, values, bounds[0], read[0], factor), read


def read_open_ends(
    comparer: NabeelComparer, values: Sequence[int], bounds: Sequence[int], size: int
) -> tuple[list[int], list[int]]:
    """Read all events and bounds without known values, if ranges are open at both ends.

    `x < c` begins at 0, `x > d` goes on to the end, and a free attribute has both bounds. So the
    spread of all bounds is the domain.

    Args:
        comparer: comparer of the broker.
        values: messages of events.
        bounds: messages of bounds.
        size: number of values of the domain.

    Returns:
        the values and the bounds.

    Raises:
        ParameterError: no two bounds are at the ends of the domain.
    """
    scaled = [-each for each in divide(comparer, bounds, bounds[0])]
    lowest = min(scaled)
    factor, rest = divmod(max(scaled) - lowest, size)
    if rest or not factor or any((each - lowest) % factor for each in scaled):
        raise ParameterError("the bounds do not reach both ends of the domain")
    low = bounds[scaled.index(lowest)]
    read = [int((each - lowest) // factor) for each in scaled]
    return _read_values(comparer, values, low, 0, factor), read


def _read_values(
    comparer: NabeelComparer, values: Sequence[int], bound: int, known: int, factor: int
) -> list[int]:
    return [int(known + comparer.difference(value, bound) // factor) for value in values]


def read_filled_domain(comparer: NabeelComparer, values: Sequence[int], size: int) -> Numbers:
    """Read events alone to within 1, if they fill a domain of `size` values.

    Their spread is the domain's, which gives r_p. Values whose r_q is near to 0 or to r_p may be
    off by one.
    """
    # Integers: with a long modulus they are beyond doubles.
    scaled = divide(comparer, values, values[0])
    low, spread = min(scaled), max(1, max(scaled) - min(scaled))
    read = [min(int((each - low) * size // spread), size - 1) for each in scaled]
    return np.array(read, dtype=np.int64)


def factor_modulus(n: int, order: int) -> set[int]:
    """Return the primes of n from a multiple of the group's exponent, by square roots of 1.

    Args:
        n: product of two primes.
        order: a multiple of p - 1 and q - 1; 1 / mu modulo n, where g_p is n + 1.

    Raises:
        ParameterError: it is no such multiple.

    Example:
        >>> from ccbps.attacks.schemes.paillier_range import factor_modulus
        >>> sorted(factor_modulus(11 * 23, 10 * 22))
        [11, 23]
    """
    odd = order
    while odd and odd % 2 == 0:
        odd //= 2
    for base in range(2, 200):
        root, exponent = powmod(base, odd, n), odd
        while root not in (1, n - 1) and exponent < order:
            square, exponent = root * root % n, 2 * exponent
            if square == 1:
                p = gcd(int(root) - 1, n)
                return {p, n // p}
            root = square
    raise ParameterError("no power of a small base is a root of 1")


LEVELS: Final = Schema(level=UInt(8))


@attack(
    title="Quotients of Paillier messages are differences of values",
    goal="confidentiality",
    adversary="a broker with its key and messages; events alone, or with a few subscriptions",
    defence="`TagMatch` or `FormulaMatch`; their brokers even make the best of all guesses",
    source="[NSB12]",
)
def divide_paillier(
    *, events: int = 2000, subscriptions: int = 10, modulus_bits: int = 512, seed: int = 3
) -> Outcome:
    """Read uniform values of 8 bits from events alone, and exactly from one-sided conditions.

    Half of the subscriptions are `level < c`, half are `level > d`. The brokers of the other
    matchers see the same events and subscriptions. Their share is that of the best guess from what
    they see: the most frequent value of all events that look alike. The modulus is a toy for speed;
    with a longer one the figures are the same.

    Args:
        events: greatest number of events, 100 or more.
        subscriptions: number of subscriptions, 2 or more.
        modulus_bits: bits of the modulus, a multiple of 16, at most 4,096.
        seed: seed of events, subscriptions and keys.

    Example:
        >>> from ccbps.attacks import divide_paillier
        >>> outcome = divide_paillier(events=500)
        >>> outcome["values read, with subscriptions"].undefended
        1.0
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    size = LEVELS["level"].size
    records: dict[str, Any] = {
        "level": random.integers(0, size, whole("events", events, 100, 20_000))
    }
    whole("modulus_bits", modulus_bits, 64, 4096)
    limits = random.integers(1, size - 1, whole("subscriptions", subscriptions, 2, 100))
    signs = ["<" if place % 2 else ">" for place in range(subscriptions)]
    texts = [f"level {sign} {limit}" for sign, limit in zip(signs, limits, strict=True)]
    matcher = make_broken(PaillierRangeMatch, LEVELS, modulus_bits=modulus_bits, toy=True)
    view = watch(matcher, records, texts, randomness=random.bytes)
    codes = codes_of(LEVELS, records)[:, 0]
    comparer, values = comparer_of(view), read_column(view.events, 0, modulus_bits)
    bounds = [bound for at in (0, 1) for bound in read_column(view.interests, at, modulus_bits)]
    exact, read = read_open_ends(comparer, values, bounds, size)
    ranges = [LEVELS.parse(text).box().ranges["level"] for text in texts]
    truth = [low for low, _ in ranges] + [high + 1 for _, high in ranges]

    counts = (*(each for each in (20, 50, 100, 200, 500, 1000) if each < events), events)
    alone = [read_filled_domain(comparer, values[:count], size) for count in counts]
    tagged, answered = (
        guess_best(shown, codes)
        for shown in (
            read_hits(LEVELS, records, texts)["level"],
            read_answers(LEVELS, records, texts),
        )
    )
    share = float(np.mean(exact == codes))
    near = [float(np.mean(abs(each - codes[: len(each)]) <= 1)) for each in alone]
    return Outcome(
        (
            Figure("values read, with subscriptions", "", share, float(tagged.mean()), 1),
            Figure("values read, FormulaMatch as defence", "", share, float(answered.mean()), 1),
            Figure("bounds read", "", float(np.mean(np.array(read) == truth)), expected=1),
            Figure("values read, events alone", "", float(np.mean(alone[-1] == codes))),
            Figure("values within 1, events alone", "", near[-1]),
        ),
        Curve(
            "events that the broker has",
            "values read (share)",
            counts,
            {
                "without defence, events alone, exactly": tuple(
                    float(np.mean(each == codes[: len(each)])) for each in alone
                ),
                "without defence, events alone, within 1": tuple(near),
                "with TagMatch, exactly": tuple(float(tagged[:each].mean()) for each in counts),
                "with FormulaMatch, exactly": tuple(
                    float(answered[:each].mean()) for each in counts
                ),
            },
            "x",
        ),
    )
