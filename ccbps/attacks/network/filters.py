"""Filters as weapons: subscriptions that come and go, match everything, or cost most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ccbps.access.rates import Bucket
from ccbps.arrays import Bools, Bytes, Words
from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.attacks.network.routers import line_of_routers
from ccbps.broker.matching_broker import MatchingBroker
from ccbps.broker.messages import Publication as PublishedEvent
from ccbps.broker.messages import Subscription
from ccbps.broker.quotas import Quota
from ccbps.checks import number, whole
from ccbps.ciphers.word_prf import KEY_BYTES, NonceHash, to_blocks
from ccbps.errors import RefusedError
from ccbps.matching.contract.access import bodies_of
from ccbps.matching.words.words import NONCE_BYTES, KeywordFilterMatch, Table
from ccbps.overlay.routing.relations import PlainRelation
from ccbps.overlay.routing.router import Publication
from ccbps.predicates import Schema, UInt

SIZE: Final = 1 << 16
"""Number of distinct events."""
TOPICS: Final = 1000
"""Number of topics that are published."""
COST: Final = 0.5
"""Seconds of processor time that a client may use in a second."""


class CountedHash(NonceHash):
    """The function of trapdoors and nonces, with a count of its blocks.

    Attributes:
        blocks: number of AES blocks so far.
    """

    blocks = 0

    def all_pairs(self, keys: Words, nonces: Words) -> Words:
        self.blocks += len(keys) * len(nonces)
        return super().all_pairs(keys, nonces)

    def pairs(self, keys: Words, nonces: Words) -> Words:
        self.blocks += len(keys)
        return super().pairs(keys, nonces)


class CountedFilterMatch(KeywordFilterMatch):
    """A matcher whose broker counts its work.

    Attributes:
        blocks: number of AES blocks that brokers of this matcher took so far.
    """

    blocks = 0

    def match(self, key: Mapping[str, Any], events: Bytes, table: Table) -> Bools:
        hashed = CountedHash(bytes.fromhex(key["permutation"]))
        nonces, bits = to_blocks(events[:, :NONCE_BYTES].tobytes()), events[:, NONCE_BYTES:]
        answers = self.look_up(hashed, nonces, np.ascontiguousarray(bits), *table).answers()
        self.blocks += hashed.blocks
        return answers


@attack(
    title="One client withdraws and repeats a wide subscription",
    goal="availability",
    adversary="a client that may subscribe, at the broker of others whose filters its own covers",
    defence="its first broker takes few changes of subscriptions from each client (`Quota`), and "
    "holds each for some seconds: a subscription that is back by then was never away",
    taxonomy=Taxonomy("semantic", "client", "broker", "multi-hop", "soft", "proportional"),
)
def uncovering_churn(
    *,
    covered: int = 40,
    brokers: int = 8,
    withdrawals: int = 10,
    hold: float = 4.0,
    pause: float = 20.0,
    seconds: float = 40.0,
    seed: int = 1,
) -> Outcome:
    """Make a line of routers send the filters of others, again and again.

    A wide subscription covers those of other clients, which therefore stay at the first broker.
    When it is withdrawn, all of them travel to the end of the line. When it is repeated, all of
    them are withdrawn there. With the defence, the first broker takes a withdrawal every `pause`
    seconds from a client, and acts on it after `hold` seconds. The hold-down alone stops an
    adversary in haste only, and the quota alone still lets each withdrawal through. Both are for
    all changes: a client can also put a narrow filter in the place of the wide one.

    Args:
        covered: number of filters of others that the wide one covers.
        brokers: number of routers on the line, 2 or more.
        withdrawals: number of withdrawals of the adversary, each repeated half-way to the next.
        hold: seconds for which the broker holds a withdrawal, with the defence.
        pause: seconds between two withdrawals that it takes from a client, with the defence.
        seconds: length of the simulation.
        seed: seed of the filters.

    Example:
        >>> from ccbps.attacks import uncovering_churn
        >>> print(uncovering_churn(covered=40, brokers=8, withdrawals=4))
                                                   without defence  with defence  expected
        messages for one withdrawal                            287                     287
        messages for a narrow filter in its place              287                     287
        messages a second at the worst rate                   57.4          28.7      57.4
    """
    whole("covered", covered, 0, 1 << 10)
    whole("brokers", brokers, 2)
    whole("withdrawals", withdrawals, 1)
    number("hold", hold, 0)
    number("pause", pause, 1e-3)
    number("seconds", seconds, withdrawals * brokers * 0.01)
    relation = PlainRelation(Schema(x=UInt(16)))
    codes = np.random.default_rng(whole("seed", seed, 0)).choice(SIZE, covered + 1, replace=False)
    texts = ["TRUE", *(f"x = {code}" for code in codes)]
    wide, narrow, *others = map(relation.filter_bytes, texts)

    def simulate(
        cycles: float, hold: float = 0.0, pause: float = 0.0, instead: bytes | None = None
    ) -> int:
        """Return the messages of some cycles of withdrawal and repetition, or of half a cycle."""
        links, routers = line_of_routers(brokers, relation, lambda *_: None)
        for place, content in enumerate(others):
            routers[0].add("subscription", "others", place, content)
        routers[0].add("subscription", "adversary", 0, wide)
        links.run()
        before, changes, accepted = links.messages, 0, -np.inf

        def change(is_withdrawal: bool) -> None:
            nonlocal changes, accepted
            if not is_withdrawal:
                routers[0].add("subscription", "adversary", 0, wide)
            elif links.time < accepted + pause:
                return
            else:
                accepted, number = links.time, changes + 1
                links.after(hold, lambda: act(number))
            changes += 1

        def act(number: int) -> None:
            if number != changes:
                return
            if instead is None:
                routers[0].withdraw("subscription", "adversary", 0)
            else:
                routers[0].add("subscription", "adversary", 0, instead)

        for half in range(int(2 * cycles)):
            time = half * seconds / (2 * max(1, cycles))
            links.after(time, lambda half=half: change(not half % 2))  # type: ignore[misc]
        links.run()
        return links.messages - before

    counts = sorted({max(1, withdrawals * part // 10) for part in (1, 2, 4, 10)})
    lines = {
        name: tuple(simulate(count, *limits) / seconds for count in counts)
        for name, limits in {
            "without defence": (0.0, 0.0),
            "with a hold-down": (hold, 0.0),
            "with a quota": (0.0, pause),
            "with both": (hold, pause),
        }.items()
    }
    messages = (covered + 1) * (brokers - 1)
    return Outcome(
        (
            Figure("messages for one withdrawal", "", simulate(0.5), None, messages),
            Figure(
                "messages for a narrow filter in its place",
                "",
                simulate(0.5, instead=narrow),
                None,
                messages,
            ),
            Figure(
                "messages a second at the worst rate",
                "",
                max(lines["without defence"]),
                max(lines["with both"]),
                2 * messages * withdrawals / seconds,
            ),
        ),
        Curve(
            "withdrawals of the adversary (a second)",
            "messages between brokers (a second)",
            tuple(count / seconds for count in counts),
            lines,
        ),
    )


@attack(
    title="Clients subscribe to everything",
    goal="availability",
    adversary="clients that may subscribe, each at a broker of its own",
    defence="a price by the measured match rate: each client has a budget of deliveries at its "
    "first broker, which suspends the filters of a client without budget",
    source="[WCJ07]",
    taxonomy=Taxonomy("semantic", "client", "broker", "global", "persistent", "proportional"),
)
def wide_filters(
    *,
    width: float = 1.0,
    brokers: int = 8,
    share: float = 0.02,
    rate: float = 20.0,
    budget: float = 2.0,
    patience: float = 10.0,
    seconds: float = 30.0,
    seed: int = 1,
) -> Outcome:
    """Make events travel to every router of a line, and be delivered there.

    At each router an honest client has a narrow filter. A client of the adversary is at each router
    but the first, where the publisher is. With the defence, a client has a token bucket: it gets
    `budget` deliveries a second, and saves those of `patience` seconds at most. When its bucket is
    empty, its router withdraws its filters until the bucket is full again.

    Args:
        width: share of all events that the adversary's filters match, at least `share` times
            `brokers`.
        brokers: number of routers on the line, 2 or more.
        share: share of all events that an honest filter matches; no event matches two of these.
        rate: events a second.
        budget: deliveries a second that a client may have, with the defence.
        patience: seconds of its budget that a client saves up.
        seconds: length of the simulation.
        seed: seed of the events.

    Example:
        >>> from ccbps.attacks import wide_filters
        >>> outcome = wide_filters(brokers=4, seconds=20)
        >>> outcome["messages between brokers for an event"].undefended
        3.0
        >>> outcome["honest deliveries made"].defended
        1.0
    """
    whole("brokers", brokers, 2)
    number("share", share, 1 / SIZE, 1 / brokers)
    number("width", width, share * brokers, 1)
    number("rate", rate, 1e-9)
    number("budget", budget, 1e-9)
    number("patience", patience, 1 / budget)
    number("seconds", seconds, 1e-9)
    relation = PlainRelation(Schema(x=UInt(16)))
    narrow = int(share * SIZE)

    def simulate(width: float, defended: bool) -> tuple[float, float, float]:
        """Return messages for an event, deliveries to an adversary for it, and honest ones made."""
        random, got = np.random.default_rng(whole("seed", seed, 0)), Counter[str]()
        homes, buckets = dict[str, tuple[int, bytes]](), dict[str, Bucket]()

        def deliver(client: str, publication: Publication) -> None:
            got[client] += 1
            if not defended:
                return
            bucket = buckets[client]
            bucket.take(1)
            if bucket.level() < 1:
                # The router is in the middle of forwarding: it changes nothing before that is over.
                links.after(0, lambda: routers[homes[client][0]].disconnect(client))
                links.after(patience - bucket.level() / budget, lambda: subscribe(client))

        def subscribe(client: str) -> None:
            place, content = homes[client]
            routers[place].add("subscription", client, 0, content)

        links, routers = line_of_routers(brokers, relation, deliver)
        for place in range(brokers):
            first = place * narrow
            text = f"x BETWEEN {first} AND {first + narrow - 1}"
            homes[f"honest {place}"] = place, relation.filter_bytes(text)
            if place and width:
                text = f"x < {max(1, round(width * SIZE))}" if width < 1 else "TRUE"
                homes[f"adversary {place}"] = place, relation.filter_bytes(text)
        for client in homes:
            buckets[client] = Bucket(budget, budget * patience, lambda: links.time)
            subscribe(client)
        links.run()
        before, start = links.messages, links.time
        codes = random.integers(0, SIZE, random.poisson(rate * seconds))
        times = np.sort(random.uniform(start, start + seconds, len(codes)))
        for event, (time, code) in enumerate(zip(times.tolist(), codes.tolist(), strict=True)):
            links.run(time)
            routers[0].publish("feed", event, relation.event_bytes({"x": code}))
        links.run(links.time + 1)
        events, due = max(1, len(codes)), int(np.count_nonzero(codes < narrow * brokers))
        honest = sum(got[f"honest {place}"] for place in range(brokers))
        adversary = (got.total() - honest) / (brokers - 1) / events
        return (links.messages - before) / events, adversary, honest / max(1, due)

    widths = (0.0, *np.linspace(share * brokers, width, 4).tolist())
    runs = {defended: [simulate(each, defended) for each in widths] for defended in (False, True)}
    plain, safe = runs[False][-1], runs[True][-1]
    return Outcome(
        (
            Figure(
                "messages between brokers for an event",
                "",
                plain[0],
                safe[0],
                (brokers - 1) * width,
            ),
            Figure("events that a client of the adversary gets", "", plain[1], safe[1], width),
            Figure("honest deliveries made", "", plain[2], safe[2]),
        ),
        Curve(
            "share of events that the adversary's filters match",
            "messages between brokers for an event",
            widths,
            {
                "without defence": tuple(run[0] for run in runs[False]),
                "with a budget of deliveries": tuple(run[0] for run in runs[True]),
            },
        ),
    )


@attack(
    title="One client subscribes to conjunctions that fail late",
    goal="availability",
    adversary="a client that may subscribe, with a subscriber's key; it knows which words most "
    "events have",
    defence="a price for each filter, by what it costs a broker at worst, in place of a number of "
    "filters (`Matcher.costs` has the units)",
    taxonomy=Taxonomy("resource", "client", "broker", "single-hop", "persistent", "independent"),
)
def costly_filters(
    *,
    words: int = 8,
    usual: float = 0.97,
    filters: int = 25,
    honest: int = 4,
    budget: float = 500.0,
    events: int = 50,
    rate: float = 200.0,
    speed: float = 5e5,
    seed: int = 1,
) -> Outcome:
    """Make a broker of `KeywordFilterMatch` look up word after word, and match nothing.

    A broker looks further in a conjunction only as long as its words are there. Honest filters are
    of one word, which few events have, so they mostly end with the first bits of it. The adversary
    takes words that most events have, and one that none has. Trapdoors stand in the order of their
    bytes. So of the words that no event has, the adversary takes those whose trapdoors come last.

    A `MatchingBroker` charges the time of a match to the publisher. So the filters of others use up
    a publisher's `Quota` of processor time, here half of the time, and its events are refused.

    Without the defence each client may have `filters` filters. With it, a filter with n words costs
    its client n times the `hashes` of the matcher, and a client has a `budget`.

    Args:
        words: number of words of the adversary's filters, and of attributes, 1 or more.
        usual: share of events that have the usual value of an attribute, for all attributes but the
            first.
        filters: number of filters that each client asks for.
        honest: number of honest clients.
        budget: AES blocks for an event that a client may cost, with the defence.
        events: number of events whose cost is measured; three times as many go to the service.
        rate: events that an honest publisher publishes in a second.
        speed: AES blocks that the broker's processor takes in a second.
        seed: seed of keys, events and filters.

    Example:
        >>> from ccbps.attacks import costly_filters
        >>> outcome = costly_filters(words=4, filters=20, events=20)
        >>> outcome["AES blocks for a filter of the adversary"].undefended > 25
        True
        >>> outcome["AES blocks for a filter of honest clients"].undefended < 3
        True
    """
    whole("words", words, 1, 64)
    number("usual", usual, 0, 1)
    whole("filters", filters, 1, 1 << 10)
    whole("honest", honest, 1)
    number("budget", budget, 0)
    whole("events", events, 1)
    number("rate", rate, 1e-6)
    number("speed", speed, 1e-6)
    random = np.random.default_rng(whole("seed", seed, 0))
    common = [f"a{place}" for place in range(1, words)]
    kinds = {"topic": UInt(16), **dict.fromkeys(common, UInt(4))}
    matcher = CountedFilterMatch(Schema(kinds))
    server = matcher.key_server(randomness=random.bytes)
    broker = matcher.broker(server.broker_key())
    feed = matcher.publisher(server.publisher_key(), randomness=random.bytes)
    client = matcher.subscriber(server.subscriber_key("adversary"), randomness=random.bytes)
    rare = np.arange(TOPICS, TOPICS + 32 * filters)
    stream = feed.encode(
        {
            "topic": random.integers(0, TOPICS, 3 * events),
            **{name: random.binomial(1, 1 - usual, 3 * events) for name in common},
        }
    )
    sent = stream[:events]

    def measure(texts: list[str]) -> tuple[float, float]:
        """Return the AES blocks of filters for one event, and their price."""
        interests, before = client.encode(texts), matcher.blocks
        used = bodies_of(matcher, interests, "interest").reshape(-1, KEY_BYTES * matcher.hashes)
        broker.match_all(sent, interests)
        price = matcher.hashes * int(np.count_nonzero(used.any(axis=1)))
        return (matcher.blocks - before) / events, price

    def refused(texts: list[str]) -> float:
        """Return the share of events that a service refuses, with these filters beside others."""
        now, count = 0.0, 0
        service = MatchingBroker(
            broker,
            prefilter=None,
            quota=Quota(rate=1e9, burst=1e9, cost=COST, patience=COST / 100),
            clock=lambda: now,
            timer=lambda: matcher.blocks / speed,
        )
        owners = {"honest": [f"topic = {code}" for code in topics], "adversary": texts}
        service.subscribe_all(
            [
                (owner, Subscription(str(place), interest[None]))
                for owner, conditions in owners.items()
                for place, interest in enumerate(client.encode(conditions) if conditions else ())
            ]
        )
        for place, event in enumerate(stream):
            now = place / rate
            try:
                service.publish("feed", PublishedEvent(place, event.tobytes(), b"payload"))
            except RefusedError:
                count += 1
        return count / len(stream)

    # Trapdoors of words that no event has: those of least bytes come last.
    trapdoors = bodies_of(
        matcher, client.encode([f"topic = {code}" for code in rare.tolist()]), "interest"
    )
    names = [row[: KEY_BYTES * matcher.hashes].tobytes() for row in trapdoors]
    rare = rare[sorted(range(len(rare)), key=names.__getitem__)[:filters]]
    topics = random.integers(0, TOPICS, honest * filters).tolist()
    others, _ = measure([f"topic = {code}" for code in topics])
    costs, admitted = [], []
    for count in range(1, words + 1):
        terms = "".join(f" AND {name} = 0" for name in common[: count - 1])
        texts = [f"topic = {code}{terms}" for code in rare]
        cost, price = measure(texts)
        costs.append(cost)
        paid = texts[: int(budget * filters // price)]
        admitted.append(measure(paid)[0] if paid else 0.0)
    absent = next(cost.count for cost in matcher.costs if cost.per == "pair")
    chances = usual ** np.arange(words)
    expected = chances[-1] * absent
    expected += chances[:-1].sum() * (usual * matcher.hashes + (1 - usual) * absent)
    return Outcome(
        (
            Figure("AES blocks for an event", "", others + costs[-1], others + admitted[-1]),
            Figure(
                "AES blocks for a filter of the adversary",
                "",
                costs[-1] / filters,
                admitted[-1] / filters,
                float(expected),
            ),
            Figure(
                "AES blocks for a filter of honest clients",
                "",
                others / (honest * filters),
                None,
                absent + (matcher.hashes - absent) / TOPICS,
            ),
            Figure(
                "events that the quota of their publisher refuses",
                "",
                refused(texts),
                refused(paid),
                max(0.0, 1 - COST * speed / rate / (others + costs[-1])),
            ),
        ),
        Curve(
            "words of a filter of the adversary",
            "AES blocks for an event, for the adversary",
            tuple(map(float, range(1, words + 1))),
            {
                "without defence": tuple(costs),
                "with a price by cost": tuple(admitted),
            },
        ),
    )
