"""Attacks on `BroadcastMatch` if labels or nonces are reused.

A round has a label for each digit of an event and each value of the digit. Its lowest bits, the
select bits, are the value plus a shift that the broker does not know. So the labels of two events
of one round show the sum of their digits, and open a subscription at both, and at all mixtures of
both. Whoever can make the labels of a round reads all its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ccbps.arrays import Bools, Bytes, Numbers
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.reused_rounds import (
    bounds_from_answers,
    of_same_round,
    sent_after_restarts,
)
from ccbps.checks import whole
from ccbps.encodings.broadcast.encoding import BroadcastEncoding
from ccbps.encodings.labels import LABEL_BYTES, NONCE_BYTES
from ccbps.keys.seeds import SharedSeed
from ccbps.matching.contract.access import bodies_of
from ccbps.matching.one_time.broadcast import BroadcastMatch
from ccbps.predicates import Schema, UInt


def digits_apart(event: Bytes, other: Bytes, widths: Sequence[int]) -> Numbers:
    """Return the sums of the digits of two events of one round, 0 where they are equal.

    Args:
        event: body of an event, shape (bytes,).
        other: body of another event of the round.
        widths: bits of each digit.
    """
    low = (1 << np.array(widths)) - 1
    return np.asarray((event ^ other)[::LABEL_BYTES] & low)


def digits_from_labels(event: Bytes, labels: Bytes, widths: Sequence[int]) -> list[list[int]]:
    """Read the digits of an event with all labels of its round, as every client can make them.

    Args:
        event: body of an event, shape (bytes,).
        labels: labels of the round, shape (labels, 16).
        widths: bits of each digit.

    Returns:
        for each digit the values whose labels are the event's: none if the round differs.
    """
    first, digits = 0, []
    for width, label in zip(widths, event.reshape(-1, LABEL_BYTES), strict=True):
        mine = labels[first : first + (1 << width)]
        digits.append(np.flatnonzero((mine == label).all(axis=1)).tolist())
        first += 1 << width
    return digits


def last_within(within: Callable[[int], bool], inside: int, end: int) -> int:
    """Find a bound of an interval with few questions, which a maker of labels can ask.

    Args:
        within: function that takes a value and returns the answer of a subscription.
        inside: a value in the interval.
        end: first or last value of the domain.

    Returns:
        the last value from `inside` towards `end` that is in the interval.
    """
    if within(end):
        return end
    near, far = inside, end
    while abs(far - near) > 1:
        middle = (far + near) // 2
        near, far = (middle, far) if within(middle) else (near, middle)
    return near


def bounds_from_nonce(
    encoding: BroadcastEncoding,
    widths: Sequence[Sequence[int]],
    labels: Bytes,
    mine: Bools,
    known: Bytes,
    other: Bytes,
) -> list[tuple[int, int]]:
    """Read an interest of a box with the nonce and the round of a known interest.

    Both have the same pads. So the sum of two rows is a sum of table entries, and unmasked where
    these have no masks. One slot of every digit of every bound has none.

    Args:
        encoding: the encoding; its slots are public.
        widths: for each attribute the bits of its digits.
        labels: labels of the round, shape (labels, 16), as every client can make them.
        mine: bits of the known interest.
        known: body of the known interest, shape (bytes,).
        other: body of the interest to read.

    Returns:
        for each attribute the upper bound plus 1, and the lower bound. An upper bound above all
        codes is 0, as in the interest; digits that cannot be explained are 0.
    """
    slots = encoding.slots
    both = np.unpackbits((known ^ other)[NONCE_BYTES:], bitorder="little")[: slots.bits]
    rows = both[slots.slots :].tolist()
    shifts = labels[:: 1 << 2, 0] & 3
    single = [each for each in slots.coordinates if each.kind == "plain" and len(each.lines) == 1]
    bare = [each for each in single if [part[0] for part in slots.parts(each)] == [()]]
    # In the order of private bits, which is that of attributes, bounds and digits.
    bare.sort(key=lambda each: min(slots.parts(each)[0][1][0].interest))
    lasts = {sum(map(len, widths[: place + 1])) - 1 for place in range(len(widths))}
    digits = []
    for coordinate in bare:
        ((_, table, _),) = slots.parts(coordinate)
        own = [int(mine[min(label.interest)]) for label in table]
        shift, (start, count) = int(shifts[coordinate.digit]), coordinate.rows

        for guess in range(4):
            # The last digit's table says which values are less, others' which one is equal.
            says = [v < guess if coordinate.digit in lasts else v == guess for v in range(4)]
            lines = [int(a) ^ b for a, b in zip(says, own, strict=True)]
            if rows[start : start + count] == [lines[shift] ^ lines[q ^ shift] for q in (1, 2, 3)]:
                digits.append(guess)
                break
        else:
            digits.append(0)
    bounds = []
    for some in widths:
        k = len(some)
        pair, digits = (digits[:k], digits[k : 2 * k]), digits[2 * k :]
        high, low = (sum(d << 2 * i for i, d in enumerate(part[::-1])) for part in pair)
        bounds.append((high, low))
    return bounds


def labels_of_round(events: Bytes, value: int, widths: Sequence[int]) -> list[dict[int, Bytes]]:
    """Collect labels of a round by the digits that they stand for, from one known event.

    Args:
        events: bodies of events of one round, the known one first.
        value: value of the known event, of one attribute.
        widths: bits of each digit.

    Returns:
        for each digit the labels, by value.
    """
    digits, rest = [], value
    for width in reversed(widths):
        digits.append(rest & (1 << width) - 1)
        rest >>= width
    known = np.array(digits[::-1])
    labels: list[dict[int, Bytes]] = [{} for _ in widths]
    for body in events:
        values = (known ^ digits_apart(events[0], body, widths)).tolist()
        for some, digit, label in zip(labels, values, body.reshape(-1, LABEL_BYTES), strict=True):
            some[digit] = label
    return labels


def events_from_labels(
    labels: Sequence[Mapping[int, Bytes]], widths: Sequence[int]
) -> tuple[Numbers, Bytes]:
    """Return all events whose labels are known: their values, ascending, and their bodies.

    Args:
        labels: for each digit the labels, by value.
        widths: bits of each digit.
    """
    values, bodies = np.zeros(1, dtype=np.int64), np.zeros((1, 0), dtype=np.uint8)
    for some, width in zip(labels, widths, strict=True):
        digits = sorted(some)
        ends = np.stack([some[digit] for digit in digits])
        values = (values[:, None] << width | np.array(digits)).reshape(-1)
        count = len(bodies)
        bodies = np.hstack([np.repeat(bodies, len(digits), axis=0), np.tile(ends, (count, 1))])
    return values, bodies


@attack(
    title="Events of one round let the broker ask a subscription about their mixtures",
    goal="confidentiality",
    adversary="the broker of `BroadcastMatch`, which knows one event of each round",
    defence="a ledger on disk: `Matcher.publisher(seed, ledger=path)`",
)
def broadcast_reused_round(
    *, events: int = 16, rounds: int = 40, bits: int = 8, seed: int = 1
) -> Outcome:
    """Read the bounds of subscriptions whose rounds serve several events.

    A publisher starts again and again at the same round. The labels of all its events open the
    round's subscription, in any mixture: the more events there are, the more labels the broker has.
    Its one known event tells which label stands for which digit. With a ledger, each event has a
    round of its own, and the broker has the answer for the known event only.

    Args:
        events: number of events of each round, 1 or more.
        rounds: number of rounds, each with one subscription.
        bits: number of bits of a value, 2 to 10.
        seed: seed of events and subscriptions.

    Example:
        >>> from ccbps.attacks import broadcast_reused_round
        >>> error = broadcast_reused_round(rounds=20)["median error of bounds"]
        >>> error.undefended < 1 and error.defended > 8
        True
    """
    whole("events", events, 1)
    whole("rounds", rounds, 1)
    random = np.random.default_rng(whole("seed", seed, 0))
    size = 1 << whole("bits", bits, 2, 10)
    matcher = BroadcastMatch.box(Schema(x=UInt(bits)), window=2)
    widths = [min(2, bits - at) for at in range(0, bits, 2)]
    secret = SharedSeed.generate()
    bounds = np.sort(random.integers(0, size, (rounds, 2)), axis=1)
    values = random.integers(0, size, (events, rounds))
    texts = [f"x BETWEEN {low} AND {high}" for low, high in bounds]
    interests = matcher.subscriber(secret).encode(texts, range(rounds))
    asked = bodies_of(matcher, interests, "interest")
    days = [{"x": day} for day in values]
    counts = sorted({min(events, 2**power) for power in range(events.bit_length() + 1)})

    def errors(ledger: Path | None) -> list[float]:
        sent = sent_after_restarts(matcher, secret, days, range(rounds), ledger)
        errors = np.empty((len(counts), rounds, 2))
        for number in range(rounds):
            messages = np.stack([day[number] for day in sent])
            for place, count in enumerate(counts):
                same = messages[:count][of_same_round(messages[0], messages[:count])]
                bodies = bodies_of(matcher, same, "event")
                labels = labels_of_round(bodies, int(values[0, number]), widths)
                forged, events_of_them = events_from_labels(labels, widths)
                pairs = np.repeat(asked[number : number + 1], len(forged), axis=0)
                answers = matcher.encoding.decode(events_of_them, pairs)
                estimate = bounds_from_answers(forged, answers, size)
                errors[place, number] = np.abs(np.array(estimate) - bounds[number])
        return [float(100 * np.median(each) / size) for each in errors]

    without = errors(None)
    with TemporaryDirectory() as folder:
        defended = errors(Path(folder) / "rounds")
    return Outcome(
        (Figure("median error of bounds", "% of the domain", without[-1], defended[-1]),),
        Curve(
            "events of a round",
            "median error of bounds (% of the domain)",
            tuple(counts),
            {"without defence": tuple(without), "with a ledger": tuple(defended)},
            log="x",
        ),
    )
