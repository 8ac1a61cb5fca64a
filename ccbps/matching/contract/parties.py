"""All roles of a matcher in one process, wired together as its keying asks: to test and to time it.

Nothing here knows a scheme by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.keys.seeds import SharedSeed
from ccbps.matching.contract.key_server import KeyServer
from ccbps.matching.contract.scheme import Answers, Keying


class Party:
    """All roles of a matcher under one seed, server or session.

    Args:
        matcher: the matcher.
        interests: interests of the subscriber, where it agrees on them with the publisher.
        server: key server that gives the keys; a new one by default.

    Attributes:
        keys: seeds or keys by role.
    """

    publisher: Any
    subscriber: Any
    server: Any
    broker: Any

    def __init__(
        self, matcher: Any, interests: Sequence[Any] = (), server: KeyServer | None = None
    ) -> None:
        self.matcher, self.interests, self.next = matcher, list(interests), 0
        self.keys: dict[str, Any]
        if matcher.keying is Keying.SESSION:
            self.publisher = matcher.new_publisher(distinct(matcher, interests))
            self.subscriber = matcher.new_subscriber()
            self.publisher.admit(self.subscriber.identity)
            self.subscriber.trust(self.publisher.identity)
            requests = self.subscriber.encode(self.interests)
            self.subscriber.accept(self.publisher.answer(requests))
            self.keys = {"publisher": self.publisher.key, "subscriber": self.subscriber.key}
            return
        if matcher.keying is Keying.BROKERS:
            self.broker = matcher.local()
            self.publisher = matcher.publisher(self.broker.public)
            self.subscriber = matcher.subscriber(self.broker.public)
            for role in (self.publisher, self.subscriber):
                self.broker.greet(role.hellos)
            if matcher.grants:
                authority = matcher.authority(self.broker.public)
                self.broker.name_authority(authority.hellos)
                self.broker.grant(authority.grant("TRUE", to=self.subscriber.client))
            self.keys = {}
            return
        if matcher.keying is Keying.SERVER:
            self.server = server or matcher.key_server()
            self.keys = {
                "publisher": self.server.publisher_key(),
                "subscriber": self.server.subscriber_key("alice"),
                "broker": self.server.broker_key(),
            }
        else:
            self.keys = dict.fromkeys(("publisher", "subscriber"), SharedSeed.generate())
        self.publisher = matcher.publisher(self.keys["publisher"])
        self.subscriber = matcher.subscriber(self.keys["subscriber"])
        self.broker = matcher.broker(self.keys.get("broker"))

    def rounds(self, count: int) -> Any:
        """Return fresh rounds, or None where there are none."""
        if self.matcher.keying is not Keying.ROUNDS:
            return None
        self.next += count
        return range(self.next - count, self.next)

    def pairs(self, records: Sequence[Any], interests: Sequence[Any]) -> tuple[Bytes, Bytes]:
        """Return messages of every record with every interest, a pair a row."""
        rounds = self.rounds(len(records) * len(interests))
        events = [record for record in records for _ in interests]
        return (
            self.publisher.encode(events, rounds),
            self.subscriber.encode([*interests] * len(records), rounds),
        )

    def answers(self, records: Sequence[Any], interests: Sequence[Any]) -> Bools:
        """Return the scheme's answers, shape (records, interests)."""
        out: Bools
        if self.matcher.answers is Answers.SUBSCRIBER:
            assert list(interests) == self.interests
            out = self.subscriber.open(self.publisher.encode(list(records))).matched
        elif self.matcher.keying is Keying.SERVER:
            events = self.publisher.encode(list(records))
            out = self.broker.match_all(events, self.subscriber.encode(list(interests)))
        elif self.matcher.keying is Keying.BROKERS:
            events = self.publisher.encode(list(records))
            out = self.broker.match_messages(events, self.subscriber.encode(list(interests)))
        else:
            out = self.broker.match(*self.pairs(records, interests))
        return out.reshape(len(records), len(interests))

    def causes(self, events: Bytes, interests: Bytes) -> set[int]:
        """Return the causes for which the broker refuses messages, 0 for those that it takes."""
        causes = self.broker.examine_events(events), self.broker.examine_interests(interests)
        return set(np.concatenate(causes).tolist())


def distinct(matcher: Any, interests: Sequence[Any]) -> list[Any]:
    """Return the first of each set of interests that are prepared alike."""
    unlike: dict[Any, Any] = {}
    for interest in interests:
        unlike.setdefault(repr(matcher.prepare(interest)), interest)
    return list(unlike.values())
