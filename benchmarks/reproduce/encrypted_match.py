"""How long does a broker match one event with 1 to 20 subscriptions? [N1] Table 2, column 2.

The experiment: subscriptions of one topic each wait, an event of another topic arrives, and no
filter spares the broker the encrypted comparison with all of them. Prints, for each group, the
milliseconds of

- *as they come*: subscriptions are read, checked and turned into the common form together with the
  event, every time;
- *prepared*: the subscriptions were turned into the common form when they arrived, so that a pair
  takes one product and one hash (`KeywordMatch`'s `prepare`).

Messages are fresh in every round: the broker has seen none of them before. Times are of one core.
`prefilter.py` has the other columns, other matchers, and the source's own way for each pair.

    python benchmarks/reproduce/encrypted_match.py [--groups NAME..] [--rounds 5] [--quick]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import numpy as np
from report import Table, options
from timing import machine, one_core, timed

from ccbps import Schema, SharedSeed, UInt
from ccbps.algebra.prime_order import prime_order_group
from ccbps.ciphers.proxy_search import ProxySearch
from ccbps.matching import FormulaMatch, KeywordMatch, MaskedTopicMatch, TagMatch

COUNTS = (1, 5, 10, 15, 20)
PRINTED = {1: 1.567, 5: 7.294, 10: 23.685, 15: 34.918, 20: 57.497}
"""Milliseconds of [N1] Table 2, column 2: Charm on an unnamed machine."""
SCHEMA = Schema(topic=UInt(32))
OTHER = 1 << 31
"""The first of the topics that nobody wants."""


class Way(NamedTuple):
    """Way of a broker to match events with subscriptions, the i-th of which is to topic i.

    Attributes:
        prepare: function of a number of subscriptions and of events, whose result the broker has
            before the events.
        events: function that makes fresh messages of events with some topics.
        match: function that returns the answers, shape (events, subscriptions).
    """

    prepare: Callable[[int, int], Any]
    events: Callable[[Sequence[int], int], Any]
    match: Callable[[Any, Any], np.ndarray]


def as_printed(group: str) -> Way:
    """Return Re-enc and Search of [N1] section 3 for each pair: two exponentiations.

    The elements of subscriptions are read when they arrive.
    """
    scheme = ProxySearch(prime_order_group(group))
    master = scheme.init()
    publisher, half = scheme.key_gen(master)
    users = [scheme.key_gen(master) for _ in range(max(COUNTS))]

    def prepare(count: int, events: int) -> list[tuple[int, np.ndarray]]:
        found = [
            (x2, scheme.encrypt(user, [b"%d" % topic]))
            for topic, (user, x2) in enumerate(users[:count])
        ]
        assert all(scheme.well_formed(row).all() for _, row in found)
        return found

    def events(topics: Sequence[int], count: int) -> np.ndarray:
        return scheme.trapdoors(publisher, [b"%d" % topic for topic in topics])

    def match(event: np.ndarray, interests: list[tuple[int, np.ndarray]]) -> np.ndarray:
        return np.stack(
            [
                scheme.search(scheme.re_encrypt(x2, row), scheme.tokens(half, event))[:, 0]
                for x2, row in interests
            ],
            axis=1,
        )

    return Way(prepare, events, match)


def reusable(matcher: KeywordMatch | TagMatch | MaskedTopicMatch, prepared: bool = True) -> Way:
    """Return a way with reusable messages; each subscription is of a different user."""
    server = matcher.key_server()
    publisher = matcher.publisher(server.publisher_key())
    users = [
        matcher.subscriber(server.subscriber_key(str(number))) for number in range(max(COUNTS))
    ]
    broker = matcher.broker(server.broker_key())

    def prepare(count: int, events: int) -> Any:
        wanted = [user.encode(f"topic = {topic}") for topic, user in enumerate(users[:count])]
        interests = np.concatenate(wanted)
        return broker.prepare(interests) if prepared else interests

    def events(topics: Sequence[int], count: int) -> np.ndarray:
        return publisher.encode({"topic": list(topics)})

    return Way(prepare, events, broker.match_all)


def one_time(matcher: FormulaMatch) -> Way:
    """Return a way with two messages for each pair, in a round of its own."""
    seed, broker = SharedSeed.generate(), matcher.broker()

    def prepare(count: int, events: int) -> np.ndarray:
        wanted = [f"topic = {topic}" for topic in range(count)] * events
        return matcher.subscriber(seed).encode(wanted, range(count * events))

    def events(topics: Sequence[int], count: int) -> np.ndarray:
        sent = {"topic": np.repeat(np.array(topics), count)}
        return matcher.publisher(seed).encode(sent, range(count * len(topics)))

    def match(events: np.ndarray, interests: np.ndarray) -> np.ndarray:
        return broker.match(events, interests)

    return Way(prepare, events, match)


def encrypted_match(
    group: str = "secp256k1",
    counts: Sequence[int] = COUNTS,
    trapdoors: Literal["interests", "events"] = "interests",
    rounds: int = 5,
) -> dict[int, tuple[float, float]]:
    """Return the least milliseconds (as they come, prepared) by the number of interests."""
    matcher = KeywordMatch(SCHEMA, group=group, trapdoors=trapdoors)
    both = [reusable(matcher, prepared) for prepared in (False, True)]
    best = {count: (float("inf"), float("inf")) for count in counts}
    for turn in range(rounds + 1):  # the first does not count
        for count in counts:
            took = []
            for way in both:
                event, table = way.events([OTHER], count), way.prepare(count, 1)
                took.append(1e3 * timed(partial(way.match, event, table)))
            if turn:
                best[count] = min(best[count][0], took[0]), min(best[count][1], took[1])
    return best


def parts(group: str = "secp256k1", count: int = 200) -> dict[str, float]:
    """Return microseconds to turn a message into the common form, and of one of `count`^2 pairs."""
    scheme = ProxySearch(prime_order_group(group))
    user, half = scheme.key_gen(scheme.init())
    words = [b"%d" % number for number in range(count)]
    sent, wanted = scheme.encrypt(user, words), scheme.trapdoors(user, words)
    form, tokens = scheme.re_encrypt(half, sent), scheme.tokens(half, wanted)
    took = {
        "encrypt": timed(lambda: scheme.encrypt(user, words)) / count,
        "common form": timed(lambda: ProxySearch(scheme.group).re_encrypt(half, sent)) / count,
        "pair": min(timed(lambda: scheme.search(form, tokens)) for _ in range(3)) / count**2,
    }
    return {step: 1e6 * seconds for step, seconds in took.items()}


def main() -> None:
    """Print the table."""
    groups = {"nargs": "+", "default": ["secp256k1", "modp2048"]}
    given = options(__doc__, groups=groups, rounds=5, quick="one round")
    if given.quick:
        given.rounds = 1
    print(f"{machine()}; milliseconds")
    measured = {group: encrypted_match(group, rounds=given.rounds) for group in given.groups}
    ways = [f"{group}, {way}" for group in measured for way in ("as they come", "prepared")]
    heads = dict.fromkeys(("[N1]", *ways), ".3f")
    table = Table("One event, milliseconds", heads, head="subscriptions", width=14)
    for count in COUNTS:
        table.row(count, PRINTED[count], *chain(*(rows[count] for rows in measured.values())))
    heads = dict.fromkeys(("encrypt", "common form", "pair"), ",.2f")
    table = Table("Steps, microseconds", heads)
    for group in measured:
        table.row(group, *parts(group, 200 if group == "secp256k1" else 40).values())


if __name__ == "__main__":
    one_core()
    main()
