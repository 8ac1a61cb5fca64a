"""Masked topics: equal topics have equal tokens, identified by frequencies or one known event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.oblivious_topic import read_slots
from ccbps.attacks.schemes.views import BODY, guess_by_frequency, watch
from ccbps.checks import number, whole
from ccbps.matching.contract.roles import Publisher
from ccbps.matching.words.topics import MaskedTopicMatch
from ccbps.predicates import Category, Schema


def name_by_event(bodies: Bytes, known: Bytes) -> Bools:
    """Mark the messages that have the topic of a known event."""
    return np.asarray((bodies == known).all(axis=1))


def try_topics(
    client: Publisher, topics: Sequence[Mapping[str, Any]], bodies: Bytes
) -> list[Mapping[str, Any] | None]:
    """Read the topics of messages with a client's key, by a dictionary of topics.

    Args:
        client: publisher that colludes with the broker.
        topics: topics to try.
        bodies: bodies of events or subscriptions.
    """
    tried = client.encode(topics)[:, BODY]
    book = {row.tobytes(): topic for row, topic in zip(tried, topics, strict=True)}
    return [book.get(row.tobytes()) for row in bodies]


REQUESTS: Final = 3
"""Topics that the subscriber of the defence asks for."""


@attack(
    title="Popular topics are named by how often their tokens occur",
    goal="confidentiality",
    adversary="a broker with messages, without a key, that knows how often topics occur",
    defence="`ObliviousTopicMatch`, whose events show no equality",
)
def rank_topics(
    *, topics: int = 100, events: int = 3000, exponent: float = 1.0, seed: int = 9
) -> Outcome:
    """Name the topics of events by the ranks of their tokens, for Zipf frequencies.

    A token that occurs once is taken for the most popular topic.

    Args:
        topics: number of topics, 4 or more.
        events: number of events, 10 or more.
        exponent: exponent of the frequencies; 0 for equally frequent topics.
        seed: seed of the events; keys are drawn anew.

    Example:
        >>> from ccbps.attacks import rank_topics
        >>> figure = rank_topics(events=1000)["events named"]
        >>> figure.undefended > 2 * figure.defended
        True
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    names = [f"t{place:04}" for place in range(whole("topics", topics, 4, 1000))]
    weights = np.arange(1, topics + 1) ** -number("exponent", exponent, 0)
    chosen = random.choice(topics, whole("events", events, 10, 30_000), p=weights / weights.sum())
    values = [names[place] for place in chosen]
    matcher = MaskedTopicMatch(Schema(topic=Category(names)))
    masked = [row.tobytes() for row in watch(matcher, {"topic": values}, []).events]
    oblivious = read_slots(values, names, names[:REQUESTS])

    def name(tokens: list[bytes], count: int) -> float:
        guesses = guess_by_frequency(tokens[:count], names)
        right = [guess == value for guess, value in zip(guesses, values[:count], strict=True)]
        return float(np.mean(right))

    counts = (*(each for each in (10, 30, 100, 300, 1000, 10_000) if each < events), events)
    lines = {
        "without defence": tuple(name(masked, count) for count in counts),
        "with ObliviousTopicMatch": tuple(name(oblivious, count) for count in counts),
    }
    plain, hidden = (line[-1] for line in lines.values())
    popular = float(weights[0] / weights.sum())
    return Outcome(
        (
            Figure("events named", "", plain, hidden),
            Figure(
                "events named by a guess without tokens",
                "",
                float(np.mean(chosen == 0)),
                None,
                popular,
            ),
        ),
        Curve("events that the broker has", "events named (share)", counts, lines, "x"),
    )
