"""Lying brokers: they drop deliveries or change answers, and canaries detect them."""

from __future__ import annotations

import warnings

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Reals
from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.checks import number, whole
from ccbps.delivery.canary import Canary, detection_chance
from ccbps.errors import BrokenSchemeWarning, ParameterError
from ccbps.keys.seeds import SharedSeed
from ccbps.matching.broken.additive_mask import AdditiveMaskMatch
from ccbps.matching.contract.access import MAC_BYTES
from ccbps.matching.one_time.formula import FormulaMatch
from ccbps.matching.three_brokers.matcher import ThreeBrokerMatch
from ccbps.predicates import Schema, UInt
from ccbps.wire import KEY_HEADER_BYTES

SCHEMA = Schema(price=UInt(16))
LIMIT = 1 << 12
INTEREST = f"price < {LIMIT}"
"""Subscription that a sixteenth of uniform prices match."""


def came_before(messages: Bytes) -> Bools:
    """Tell which messages are equal to an earlier one, shape (count,).

    Args:
        messages: messages of events, in order, shape (count, bytes).
    """
    _, first, same = np.unique(messages, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[same.reshape(-1)] < np.arange(len(messages)))


def one_time_answers(prices: Index, random: np.random.Generator) -> tuple[Bools, Bytes]:
    """Return the answers of `FormulaMatch`, and the messages of the events.

    Args:
        prices: price of each event.
        random: source of the seed.
    """
    matcher, rounds = FormulaMatch.box(SCHEMA), range(len(prices))
    seed = SharedSeed.generate(random.bytes)
    events = matcher.publisher(seed).encode({"price": prices}, rounds)
    interests = matcher.subscriber(seed).encode(INTEREST, rounds=rounds)
    return matcher.broker().match(events, interests), events


def reusable_answers(prices: Index) -> tuple[Bools, Bytes]:
    """Return the answers of `AdditiveMaskMatch`, and the bodies of the messages of events.

    Equal events have equal bodies.

    Args:
        prices: price of each event.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenSchemeWarning)
        matcher = AdditiveMaskMatch(SCHEMA)
    server = matcher.key_server()
    events = matcher.publisher(server.publisher_key()).encode({"price": prices})
    interests = matcher.subscriber(server.subscriber_key("subscriber")).encode(INTEREST)
    answers = matcher.broker(server.broker_key()).match_all(events, interests)[:, 0]
    return answers, events[:, KEY_HEADER_BYTES:-MAC_BYTES]


def three_broker_answers(prices: Index) -> Bools:
    """Return the answers of `ThreeBrokerMatch`.

    Args:
        prices: price of each event.
    """
    matcher = ThreeBrokerMatch.box(SCHEMA)
    brokers = matcher.local()
    publisher, subscriber = matcher.publisher(brokers.public), matcher.subscriber(brokers.public)
    for client in (publisher, subscriber):
        brokers.greet(client.hellos)
    return brokers.match_messages(publisher.encode({"price": prices}), subscriber.encode(INTEREST))[
        :, 0
    ]


@attack(
    title="A broker drops deliveries, or lies about answers",
    goal="integrity",
    adversary="the broker, which sees all messages and answers, and changes answers at will",
    defence="canaries (`Canary`), with a matcher whose messages do not show equal events",
    taxonomy=Taxonomy("semantic", "broker", "client", "single-hop", "stateless", "proportional"),
)
def lying_broker(
    *,
    canaries: float = 0.02,
    changed: float = 0.1,
    events: int = 500,
    runs: int = 4000,
    real_runs: int = 40,
    records: int = 10,
    seed: int = 1,
) -> Outcome:
    """Drop a share of the deliveries, or change a share of the answers, and hope not to be noticed.

    Publisher and subscriber share canaries, as many decoys, and a list of records for each. Without
    them nobody notices. With them the broker is found once it changes the answer to one of them.

    The broker's way out is to spare canaries. Where a matcher shows equal events, as
    `AdditiveMaskMatch` does, canaries from a short list come again and again. A broker that changes
    no answer to a message that came before is hardly ever found. What helps is `FormulaMatch`,
    whose messages show no repetition, or a long list of canaries.

    Args:
        canaries: share of the publications that are canaries.
        changed: share of the matches that the broker drops, or of the answers that it changes.
        events: number of publications.
        runs: number of runs with answers alone.
        real_runs: number of runs with each real matcher.
        records: number of records in each list.
        seed: seed of the simulation.

    Raises:
        ParameterError: an argument is out of bounds, or there are too many events in all.

    Example:
        >>> from ccbps.attacks import lying_broker
        >>> outcome = lying_broker(real_runs=4)
        >>> found = outcome["dropping broker found"]
        >>> found.undefended, abs(found.defended - 0.63) < 0.05
        (0.0, True)
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    number("changed", changed, 0, 1)
    count = whole("events", events, 10)
    total, batch = whole("runs", runs, 1) * count, whole("real_runs", real_runs, 1) * count
    for name, all_events, most in (("runs", total, 20_000_000), ("real_runs", batch, 200_000)):
        if all_events > most:
            raise ParameterError(f"{name} must have at most {most:,} events, got {all_events:,}")
    canary = Canary(SharedSeed.generate(random.bytes), share=canaries, decoys=canaries)

    def found(changes: Bools, marked: Bools) -> Reals:
        """Return the share of runs that found the broker after each event."""
        caught = (changes & marked).reshape(-1, count)
        return np.asarray(np.maximum.accumulate(caught, axis=1).mean(axis=0))

    def real(answers: Bools, changes: Bools) -> float:
        """Return the share of runs in which real answers, once changed, found the broker."""
        wrong = np.array(canary.wrong(answers ^ changes), dtype=np.int64)
        return len(np.unique(wrong // count)) / real_runs

    due = canary.due(range(total))
    drops = random.random(total) < changed
    places = [count * part // 10 - 1 for part in range(1, 11)]
    without, simulated = found(drops, np.zeros_like(due)), found(drops, due)

    numbers = np.arange(batch)

    def prices(size: int) -> Index:
        """Return the price of each event, with canaries from lists of so many records."""
        drawn = random.integers(0, 1 << 16, batch)
        for marked, low, high in (
            (canary.due(numbers), 0, LIMIT),
            (canary.decoys(numbers), LIMIT, 1 << 16),
        ):
            drawn[marked] = random.integers(low, high, size)[canary.pick(numbers[marked], size)]
        return drawn

    chosen = random.random(batch) < changed
    repeated = prices(whole("records", records, 1))
    answers, messages = one_time_answers(repeated, random)
    shown, bodies = reusable_answers(repeated)
    fresh, others = reusable_answers(prices(1 << 12))
    lied = detection_chance(2 * canaries, changed, count)
    return Outcome(
        (
            Figure("dropping broker found", "", float(without[-1]), float(simulated[-1])),
            Figure(
                "dropping broker found, by the formula",
                "",
                detection_chance(0, changed, count),
                detection_chance(canaries, changed, count),
            ),
            Figure(
                "dropping broker found, FormulaMatch",
                "",
                float(without[-1]),
                real(answers, answers & chosen),
            ),
            Figure(
                "changing broker found, FormulaMatch",
                "",
                float(without[-1]),
                real(answers, chosen),
            ),
            Figure(
                "changing broker found, ThreeBrokerMatch",
                "",
                float(without[-1]),
                real(three_broker_answers(repeated), chosen),
            ),
            Figure(
                "changing broker found, by the formula",
                "",
                detection_chance(0, changed, count),
                lied,
            ),
            Figure(
                "broker found that spares repetitions",
                "",
                real(shown, chosen & ~came_before(bodies)),
                real(answers, chosen & ~came_before(messages)),
            ),
            Figure(
                "broker found that spares repetitions, long lists",
                "",
                real(shown, chosen & ~came_before(bodies)),
                real(fresh, chosen & ~came_before(others)),
            ),
        ),
        Curve(
            "events",
            "broker found (share)",
            tuple(float(place + 1) for place in places),
            {
                "without canaries": tuple(without[places].tolist()),
                "with canaries": tuple(simulated[places].tolist()),
                "with canaries, by the formula": tuple(
                    detection_chance(canaries, changed, place + 1) for place in places
                ),
            },
        ),
    )
