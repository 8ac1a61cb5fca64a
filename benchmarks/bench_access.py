"""What does access control cost? A decision, and publications with a policy and without, one core.

First microseconds of one decision in a warm broker: the right of a client to receive
(`Guard.right`), and the test of an event in the clear by a role's filter (`Policy.test`). Beside
them the limit: one reading of the clock, and two look-ups in dictionaries. Then publications a
second of a broker of TagMatch with 1,000 subscriptions of 100 clients, without a policy, and with
one before and after matching. All brokers have the same subscriptions, and each of five roles has a
filter. All events may be published, so deliveries differ only by events that receivers may not
have. Seconds are those of the processor, and a share is the median over all rounds.

    python benchmarks/bench_access.py [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from report import Table, options
from timing import machine, one_core, repeated, seconds, timed

from ccbps import Category, Schema, UInt
from ccbps.access import Authority, Grant, Guard, Policy, present_token
from ccbps.broker import (
    Enforcement,
    MatchingBroker,
    Publication,
    Quota,
    Subscription,
    enactment,
    permitted,
)
from ccbps.broker.enforcement import When
from ccbps.keys import SigningKey
from ccbps.matching import TagMatch

CLIENTS, EACH, TOGETHER, ROLES = 100, 10, 32, 5
SCHEMA = Schema(issue=Category([f"S{n}" for n in range(10)]), price=UInt(10), volume=UInt(10))
CASES: dict[str, When | None] = {
    "without a policy": None,
    "before matching": "before",
    "after matching": "after",
}
QUOTA = Quota(rate=1e9, burst=1e9, cost=1e9, patience=1e9)


def policy() -> Policy:
    """Return a policy with five roles of subscribers, a filter each, and one of publishers."""
    roles = {f"role {n}": [f"client {c}" for c in range(n, CLIENTS, ROLES)] for n in range(ROLES)}
    grants = [
        Grant(f"role {n}", ("subscribe", "receive"), f"price < {1000 - 10 * n}")
        for n in range(ROLES)
    ]
    feed = Grant("publisher", ("publish",), "volume < 1020")
    return Policy(SCHEMA, version=1, roles={**roles, "publisher": ["feed"]}, grants=[*grants, feed])


def wanted() -> list[tuple[str, str, str]]:
    """Return the client, name and predicate of each subscription."""
    rng = np.random.default_rng(1)
    out = []
    for n in range(CLIENTS * EACH):
        issue, low, volume = (int(one) for one in rng.integers(0, [10, 1000, 1000]))
        text = f"issue = 'S{issue}' AND price BETWEEN {low} AND {low + 150} AND volume > {volume}"
        out.append((f"client {n // EACH}", f"s{n % EACH}", text))
    return out


class Case:
    """One broker with its clients.

    Attributes:
        broker: the broker.
        guard: its guard, if it has a policy.
    """

    def __init__(self, when: When | None, matcher: TagMatch, keys: Any) -> None:
        authority = Authority(SigningKey.generate(), policy())
        encode = matcher.subscriber(keys.subscriber_key("authority")).encode
        self.guard = Guard(authority.identity)
        access = None if when is None else Enforcement(self.guard, when)
        self.broker = MatchingBroker(matcher.broker(keys.broker_key()), quota=QUOTA, access=access)
        self.numbers = count()
        if when is not None:
            self.broker.enact(enactment(authority, when, encode))
            for user in ("feed", *(f"client {n}" for n in range(CLIENTS))):
                key = SigningKey.generate()
                token = authority.issue(user, key.identity)
                shown = present_token(token, key, self.guard.session, user, 1)
                self.broker.present(user, shown)
        subscriptions, kept = wanted(), authority.policy
        texts: list[Any] = [text for *_, text in subscriptions]
        if when == "before":
            texts = [kept.narrow(kept.roles_of(client), text) for client, _, text in subscriptions]
        for (client, name, _), interest in zip(subscriptions, encode(texts), strict=True):
            one = Subscription(name, interest[None])
            if when == "before":
                one = permitted(authority, client, one, kept.roles_of(client), policy=kept)
            self.broker.subscribe(client, one)

    def publish(self, events: list[bytes], together: int) -> None:
        """Publish events, some of them together."""
        for start in range(0, len(events), together):
            some = [
                Publication(next(self.numbers), event, b"payload")
                for event in events[start : start + together]
            ]
            if together == 1:
                self.broker.publish("feed", some[0])
            else:
                self.broker.publish_all("feed", some)

    def empty(self) -> int:
        """Acknowledge all deliveries, and return their number."""
        deliveries = 0
        for n in range(CLIENTS):
            if waiting := self.broker.take(f"client {n}", 10_000):
                self.broker.acknowledge(f"client {n}", waiting[-1].sequence)
                deliveries += len(waiting)
        return deliveries


def decisions(guard: Guard, rounds: int, times: int) -> dict[str, float]:
    """Return microseconds of a decision, and of its limit."""
    kept, tokens = policy(), {"client 1": ("a", 1 << 40)}
    codes = SCHEMA.encode({"issue": ["S0"], "price": [5], "volume": [7]}).codes
    event = {name: int(code[-1, 0]) for name, code in codes.items()}
    test, rights = kept.test(("role 1",), "receive"), {(("role 1",), "receive"): 1}

    def limit() -> bool:
        ends = tokens["client 1"][1]
        return time.time() < ends and (("role 1",), "receive") in rights

    def both() -> bool:
        guard.right("client 1", "receive")
        return kept.test(("role 1",), "receive")(event)

    actions: dict[str, Callable[[], object]] = {
        "the right of a client": lambda: guard.right("client 1", "receive"),
        "a filter on an event in the clear": lambda: test(event),
        "both": both,
        "limit: the clock and two look-ups": limit,
    }
    took = seconds({name: repeated(do, times) for name, do in actions.items()}, rounds)
    return {name: 1e6 * second / times for name, second in took.items()}


def main() -> None:
    quick = options(__doc__, quick="one round, few events").quick
    print(machine())
    rounds, size = (1, 64) if quick else (25, 128)
    matcher = TagMatch(SCHEMA)
    keys = matcher.key_server()
    cases = {name: Case(when, matcher, keys) for name, when in CASES.items()}
    table = Table("A decision", {"microseconds": ".2f"}, width=40)
    found = decisions(cases["before matching"].guard, rounds, 1000 if quick else 20_000)
    for name, took in found.items():
        table.row(name, took)
    rng = np.random.default_rng(3)
    records = {
        "issue": [f"S{n}" for n in rng.integers(0, 10, size)],
        "price": rng.integers(0, 1024, size),
        "volume": rng.integers(0, 1020, size),
    }
    rows = matcher.publisher(keys.publisher_key()).encode(records)
    events = [row.tobytes() for row in rows]
    table = Table(
        "Publications a second",
        {
            "one at a time": ",.0f",
            f"{TOGETHER} together": ",.0f",
            "share": ".2f",
            "share together": ".2f",
            "deliveries each": ".1f",
        },
        width=20,
    )
    took = {(name, some): list[float]() for some in (1, TOGETHER) for name in cases}
    deliveries = dict.fromkeys(cases, 0)
    for _ in range(rounds + 1):
        for (name, some), all_rounds in took.items():
            publish = partial(cases[name].publish, events, some)
            all_rounds.append(timed(publish, time.process_time))
            deliveries[name] = cases[name].empty()
    first = next(iter(cases))
    for name in cases:
        least = [min(took[name, some][1:]) for some in (1, TOGETHER)]
        shares = [
            np.median(np.divide(took[first, some][1:], took[name, some][1:]))
            for some in (1, TOGETHER)
        ]
        table.row(name, *(size / one for one in least), *shares, deliveries[name] / size)


if __name__ == "__main__":
    one_core()
    main()
