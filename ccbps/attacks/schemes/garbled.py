"""Attacks on `GarbledMatch` if a round serves two events, or two subscriptions.

Labels of a wire differ by Delta, the same for all wires of a round. So two events of one round show
Delta wherever a bit differs, and with it both labels of every wire. The broker then evaluates the
circuit on all inputs.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.reused_rounds import (
    bounds_from_answers,
    of_same_round,
    sent_after_restarts,
)
from ccbps.checks import whole
from ccbps.encodings.labels import LABEL_BYTES
from ccbps.keys.seeds import SharedSeed
from ccbps.matching.contract.access import bodies_of
from ccbps.matching.one_time.garbled import GarbledMatch
from ccbps.predicates import Schema, UInt


def delta_of(event: Bytes, other: Bytes) -> tuple[Index, list[Bytes]]:
    """Compare the labels of two events.

    Args:
        event: body of an event, shape (bytes,).
        other: body of another event.

    Returns:
        wires whose labels differ, and the distinct differences: Delta alone, if the events are of
        one round.
    """
    apart = (event ^ other).reshape(-1, LABEL_BYTES)
    places = np.flatnonzero(apart.any(axis=1))
    return places, list(np.unique(apart[places], axis=0))


def delta_of_interests(interest: Bytes, other: Bytes) -> list[Bytes]:
    """Compare the ciphertexts of two subscriptions.

    Args:
        interest: body of a subscription, shape (bytes,).
        other: body of another subscription.

    Returns:
        the distinct differences of ciphertexts: Delta alone, if the subscriptions are of one round.
    """
    end = len(interest) // LABEL_BYTES * LABEL_BYTES
    apart = (interest ^ other)[:end].reshape(-1, LABEL_BYTES)
    return list(np.unique(apart[apart.any(axis=1)], axis=0))


def answers_to_changes(matcher: GarbledMatch, event: Bytes, delta: Bytes, interest: Bytes) -> Bools:
    """Evaluate a subscription on an event that is changed in all ways.

    Args:
        matcher: the matcher, of one attribute.
        event: message of an event, shape (bytes,).
        delta: Delta of its round.
        interest: message of a subscription of the round, shape (bytes,).

    Returns:
        the answer for each sum of the event's value and a number, shape (values,).
    """
    forged = np.repeat(event[None], 1 << matcher.sizes.event // LABEL_BYTES, axis=0)
    labels = bodies_of(matcher, forged, "event").reshape(len(forged), -1, LABEL_BYTES)
    bits = np.arange(labels.shape[1])[::-1]
    changed = np.arange(len(forged))[:, None] >> bits & 1
    bodies_of(matcher, forged, "event")[:] = (
        labels ^ changed[:, :, None].astype(np.uint8) * delta
    ).reshape(len(forged), -1)
    return matcher.broker().match(forged, np.repeat(interest[None], len(forged), axis=0))


@attack(
    title="Two events of one round open a garbled circuit",
    goal="confidentiality",
    adversary="the broker of `GarbledMatch`, which knows one event of each round",
    defence="a ledger on disk: `Matcher.publisher(seed, ledger=path)`",
)
def garbled_reused_round(
    *, events: int = 4, rounds: int = 40, bits: int = 6, seed: int = 1
) -> Outcome:
    """Read the bounds of subscriptions whose rounds serve several events.

    Two different events of a round show Delta, with which the broker changes the known event into
    all others. So the second event gives everything away, unlike with `BroadcastMatch`, where
    further events add labels. With a ledger, each event has a round of its own.

    Args:
        events: number of events of each round, 1 or more.
        rounds: number of rounds, each with one subscription.
        bits: number of bits of a value, 2 to 8.
        seed: seed of events and subscriptions.

    Example:
        >>> from ccbps.attacks import garbled_reused_round
        >>> error = garbled_reused_round(rounds=20)["mean error of bounds"]
        >>> error.undefended < 1 and error.defended > 8
        True
    """
    whole("events", events, 1)
    whole("rounds", rounds, 1)
    random = np.random.default_rng(whole("seed", seed, 0))
    size = 1 << whole("bits", bits, 2, 8)
    matcher, secret = GarbledMatch.box(Schema(x=UInt(bits))), SharedSeed.generate()
    bounds = np.sort(random.integers(0, size, (rounds, 2)), axis=1)
    values = random.integers(0, size, (events, rounds))
    texts = [f"x BETWEEN {low} AND {high}" for low, high in bounds]
    interests = matcher.subscriber(secret).encode(texts, range(rounds))
    days = [{"x": day} for day in values]
    every = np.arange(size)

    def errors(ledger: Path | None) -> list[float]:
        sent = sent_after_restarts(matcher, secret, days, range(rounds), ledger)
        errors = np.empty((events, rounds))
        for number in range(rounds):
            first = sent[0][number]
            own = matcher.broker().match(first[None], interests[number : number + 1])
            mine = every[values[0, number], None]
            estimate = bounds_from_answers(mine, own, size)
            for count, day in enumerate(sent):
                if of_same_round(first, day[number : number + 1])[0]:
                    pair = bodies_of(matcher, np.stack([first, day[number]]), "event")
                    _, deltas = delta_of(*pair)
                    for delta in deltas:
                        answers = answers_to_changes(matcher, first, delta, interests[number])
                        estimate = bounds_from_answers(every, answers[every ^ mine], size)
                errors[count, number] = np.abs(np.array(estimate) - bounds[number]).mean()
        return [float(100 * each.mean() / size) for each in errors]

    without = errors(None)
    with TemporaryDirectory() as folder:
        defended = errors(Path(folder) / "rounds")
    return Outcome(
        (Figure("mean error of bounds", "% of the domain", without[-1], defended[-1]),),
        Curve(
            "events of a round",
            "mean error of bounds (% of the domain)",
            tuple(range(1, events + 1)),
            {"without defence": tuple(without), "with a ledger": tuple(defended)},
        ),
    )
