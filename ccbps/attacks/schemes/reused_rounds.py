"""Reused rounds: the leak to a broker if a publisher starts again at round 0.

The adversary is the broker of a one-time matcher, with the messages that were sent before and after
a restart. The tag of a round is in the header of its messages, so reused rounds are visible.

Under the randomness R1, R2, Z of one round, two events of `BranchingMatch` have the messages
R1 L(x) R2 + Z and R1 L(x') R2 + Z. Their difference R1 (L(x) - L(x')) R2 is zero where the events
are equal. The matchers of `ccbps.attacks.schemes.broadcast` and `ccbps.attacks.schemes.garbled`
leak far more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ccbps.arrays import Bools, Bytes, Numbers
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.checks import whole
from ccbps.errors import RandomnessReuseError
from ccbps.keys.randomness import RandomnessSource
from ccbps.keys.seeds import SharedSeed
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.one_time.branching import BranchingMatch
from ccbps.predicates import Schema, UInt
from ccbps.wire import ROUND_HEADER_BYTES


def of_same_round(message: Bytes, messages: Bytes) -> Bools:
    """Tell which messages have the round of a message.

    Args:
        message: message of an event, shape (bytes,); or one for each row of `messages`.
        messages: messages of events.
    """
    header = slice(ROUND_HEADER_BYTES)
    return np.asarray((message[..., header] == messages[:, header]).all(axis=1))


def equal_events(before: Bytes, after: Bytes) -> Bools:
    """Tell row by row whether two messages of one round hold the same event.

    Args:
        before: messages of events.
        after: messages of the same rounds.
    """
    return np.asarray((before == after).all(axis=1))


def bounds_from_answers(values: Numbers, answers: Bools, size: int) -> tuple[float, float]:
    """Estimate the bounds of an interval from answers for known values.

    A bound is taken to be in the middle between the last value outside and the first one inside. If
    no value is inside, the bounds that random intervals have on average are returned.

    Args:
        values: values, ascending.
        answers: answer for each value.
        size: number of values of the domain.
    """
    if not answers.any():
        return size / 3, 2 * size / 3
    inside, outside = values[answers], values[~answers]
    below, above = outside[outside < inside[0]], outside[outside > inside[-1]]
    first = below[-1] + 1 if len(below) else 0
    last = above[0] - 1 if len(above) else size - 1
    return (first + inside[0]) / 2, (last + inside[-1]) / 2


def sent_after_restarts(
    matcher: Matcher,
    secret: RandomnessSource,
    days: Sequence[Mapping[str, Any]],
    rounds: Sequence[int],
    ledger: str | os.PathLike[str] | None = None,
) -> list[Bytes]:
    """Return the messages of a publisher that starts again each day.

    It uses the same rounds again, unless a ledger refuses them. Then it uses the following ones.

    Args:
        matcher: a one-time matcher.
        secret: seed or pad of the publisher.
        days: records of each day, one for each round.
        rounds: rounds of a day.
        ledger: file of a ledger; None for a publisher without one.
    """
    sent = []
    for day, records in enumerate(days):
        publisher = matcher.publisher(secret, ledger=ledger)
        try:
            sent.append(publisher.encode(records, rounds))
        except RandomnessReuseError:
            step = day * (max(rounds) + 1)
            sent.append(publisher.encode(records, [number + step for number in rounds]))
    return sent


@attack(
    title="A publisher that starts again at round 0 shows which events are equal",
    goal="confidentiality",
    adversary="the broker of `BranchingMatch`, with all messages, and nothing known",
    defence="a ledger on disk: `Matcher.publisher(seed, ledger=path)`",
)
def reused_rounds(*, events: int = 400, restarts: int = 8, bits: int = 3, seed: int = 1) -> Outcome:
    """Compare events whose rounds were used before.

    With a ledger, rounds that were used are refused, and the publisher goes on with others. Then no
    two messages are of one round, and there is nothing to compare.

    Args:
        events: number of events between two starts, 1 or more.
        restarts: number of restarts, 1 or more.
        bits: number of bits of an event, 1 to 8; values are uniform.
        seed: seed of the events.

    Example:
        >>> from ccbps.attacks import reused_rounds
        >>> outcome = reused_rounds(restarts=2)
        >>> print(outcome["events compared rightly with an earlier one"].undefended)
        1.0
        >>> print(outcome["events known to equal an earlier one"].defended)
        0.0
    """
    whole("events", events, 1)
    whole("restarts", restarts, 1)
    random = np.random.default_rng(whole("seed", seed, 0))
    matcher = BranchingMatch.box(Schema(x=UInt(whole("bits", bits, 1, 8))))
    values = random.integers(0, 1 << bits, (restarts + 1, events))
    days = [{"x": day} for day in values]

    def compared(ledger: Path | None) -> tuple[float, list[float]]:
        """Return the share of right comparisons, and each day's share of events equal to others."""
        sent = sent_after_restarts(matcher, SharedSeed.generate(), days, range(events), ledger)
        right, shares = 0, [0.0]
        for day in range(1, len(sent)):
            known = np.zeros(events, dtype=np.bool_)
            for earlier in range(day):
                same = of_same_round(sent[earlier], sent[day])
                equal = equal_events(sent[earlier], sent[day])
                right += int((same & (equal == (values[earlier] == values[day]))).sum())
                known |= equal
            shares.append(float(known.mean()))
        return right / (events * restarts * (restarts + 1) / 2), shares

    right, without = compared(None)
    with TemporaryDirectory() as folder:
        safe_right, ledger = compared(Path(folder) / "rounds")
    expected = 1 - (1 - 2.0**-bits) ** restarts
    return Outcome(
        (
            Figure("events compared rightly with an earlier one", "", right, safe_right, 1.0),
            Figure("events known to equal an earlier one", "", without[-1], ledger[-1], expected),
        ),
        Curve(
            "restarts",
            "events known to equal an earlier one (share)",
            tuple(range(restarts + 1)),
            {"without defence": tuple(without), "with a ledger": tuple(ledger)},
        ),
    )
