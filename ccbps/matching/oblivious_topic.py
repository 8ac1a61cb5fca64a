"""ObliviousTopicMatch: everything goes to everybody; only matching subscribers can decrypt it.

Even the match bit is hidden from the broker, who relays and computes nothing. A subscriber posts a
request for each topic it wants; a publisher answers it once for each topic it has (eq-COT,
`ccbps.ciphers.oblivious`), after which both hold the same key if the topics are equal and unrelated
ones otherwise. An event then carries a slot for each request, and a slot is a few AES blocks.

    matcher = ObliviousTopicMatch(schema, ["issue"])
    subscriber = matcher.subscriber()
    publisher = matcher.publisher(["issue = 'IBM'", "issue = 'SAP'"])
    sessions = publisher.answer(subscriber.encode(["issue = 'IBM'"]))    # once
    subscriber.accept(sessions)
    subscriber.open(publisher.encode(records, payloads))                 # any number of times

Conventions: `ccbps.ciphers.slots` says what is in a slot, `ccbps.matching.oblivious_roles` how
messages are laid out. A topic is the values of all attributes together, or of those named.

Hazards: the number of requests, topics and events and all sizes are public. A subscriber tries a
topic for each request that is answered: publishers limit them. A publisher that forgets its keys
must open new sessions. Not constant time.
Source: [DCSTW13]; [Survey] section 4.6. There, each message is encrypted anew for each subscriber.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from ccbps.algebra.prime_order import PrimeOrderGroup, prime_order_group
from ccbps.ciphers.oblivious import EqCot
from ccbps.errors import ParameterError
from ccbps.leakage import LeakageCard
from ccbps.matching.oblivious_roles import (
    Layout,
    ObliviousPublisher,
    ObliviousSubscriber,
    Opened,
    Randomness,
)
from ccbps.matching.parameters import PublicParameters, fingerprint_of
from ccbps.matching.reusable import Cost
from ccbps.matching.topics import keyword_attributes
from ccbps.predicates import Schema

__all__ = ["ObliviousPublisher", "ObliviousSubscriber", "ObliviousTopicMatch", "Opened"]


class ObliviousTopicMatch(PublicParameters):
    """Public parameters: topics over a schema, a group, and the greatest payload.

    Attributes:
        schema: the events' attributes.
        attributes: those that make the topic.
        payload_bytes: longest payload of an event; all events have the same length.
        request_bytes: bytes of a request.
        fingerprint: 32 bytes that name these public parameters.
    """

    reusable: ClassVar[bool] = True
    rounds: ClassVar[bool] = False
    has_key_server: ClassVar[bool] = False
    covering: ClassVar[bool] = False
    operators: ClassVar[tuple[str, ...]] = ("=", "and")
    scheme: ClassVar[str] = "oblivious topic"

    def __init__(
        self,
        schema: Schema,
        attributes: Sequence[str] | None = None,
        *,
        payload_bytes: int = 0,
        group: str = "modp2048",
    ) -> None:
        """
        Args:
            schema: the events' attributes.
            attributes: those that make the topic; all by default.
            payload_bytes: longest payload; 0 for none, and events then tell only whether they
                match.
            group: a name that `ccbps.algebra.prime_order.prime_order_group` knows.

        Raises:
            ParameterError: an attribute is not in the schema or named twice; payload_bytes is
                negative; there is no such group, or its library is missing.
        """
        if isinstance(payload_bytes, bool) or not 0 <= payload_bytes < 1 << 31:
            raise ParameterError(f"payload_bytes must be in 0..2^31 - 1, got {payload_bytes}")
        self.schema, self.payload_bytes = schema, payload_bytes
        self.attributes = keyword_attributes(schema, attributes)
        self.group: PrimeOrderGroup = prime_order_group(group)
        described = {
            "scheme": f"{self.scheme} 1",
            "schema": schema.describe(),
            "attributes": list(self.attributes),
            "payload": payload_bytes,
            "group": group,
        }
        self.fingerprint = fingerprint_of(described)
        self._layout = Layout(
            schema, self.attributes, payload_bytes, EqCot(self.group), self.fingerprint
        )
        self.request_bytes = self._layout.request_bytes

    def __repr__(self) -> str:
        return f"<ObliviousTopicMatch over {', '.join(self.attributes)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.schema, self.attributes, self.payload_bytes, self.group.name)
        return _rebuild, parts

    @property
    def leakage(self) -> LeakageCard:
        """What the broker and other clients learn."""
        toy = ("the group is a toy: anybody takes logarithms in it",)
        return LeakageCard(
            scheme="ObliviousTopicMatch",
            adversary="the broker, who keeps all it relays, and clients other than those of the "
            "matching topic",
            hides=(
                "events, payloads and subscriptions",
                "whether an event matches a subscription",
                "which events, or which subscriptions, have equal topics",
            ),
            learns=(
                "how many requests, topics and events there are, from whom, when, of which size",
                "subscribers: which events are of their own topics, and nothing of the others",
                "publishers: how many requests there are",
            ),
            security="computational" if self.group.security else "broken",
            assumption=f"decisional Diffie-Hellman in {self.group.name}; AES-256, AES-128-GCM",
            reuse="reusable",
            hazards=(
                "a publisher answers as many requests as somebody has guesses",
                "subscribers of a topic pass on what they read",
                *(() if self.group.security else toy),
            ),
            attacks=(
                "guessing: a subscriber learns of one topic for each request that is answered",
                "behaviour: who reacts to an event has read it",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""
        blocks = 2 if self.payload_bytes else 1
        return (
            Cost("publisher", "interest", "exponentiation for each topic", 5),
            Cost("publisher", "pair", "AES block", blocks),
            Cost("subscriber", "interest", "exponentiation", 3),
            Cost("subscriber", "interest", "exponentiation for each topic", 1),
            Cost("subscriber", "pair", "AES block for each topic", 1),
        )

    def explain(self) -> str:
        """Bytes, operations and the leakage card, as text."""
        lines = [
            f"ObliviousTopicMatch over {', '.join(self.attributes)}",
            f"  operators:   {', '.join(self.operators)}",
            f"  messages:    {self.request_bytes:,} bytes a request, {self.session_bytes(1):,} "
            f"bytes a session of one topic, {self.event_bytes(1):,} bytes an event for one "
            "request; reusable",
        ]
        lines += [
            f"  {cost.role + ':':<13}{cost.count:,g} {cost.operation} per {cost.per}"
            for cost in self.costs
        ]
        return "\n".join([*lines, *("  " + line for line in str(self.leakage).splitlines())])

    def session_bytes(self, topics: int) -> int:
        """Bytes of a session message of a publisher with that many topics."""
        return self._layout.session_bytes(topics)

    def event_bytes(self, requests: int) -> int:
        """Bytes of an event of a publisher that has answered that many requests."""
        return self._layout.event_bytes(requests)

    def publisher(
        self, topics: Iterable[Any], *, randomness: Randomness = os.urandom
    ) -> ObliviousPublisher:
        """The role that has events of some topics.

        Args:
            topics: what subscriptions to them would say: SQL text or `Predicate`, each once.
            randomness: the operating system's, unless a test says otherwise.

        Raises:
            ParameterError: no topic, or one twice.
            PredicateError: a predicate does not name one topic.
        """
        return ObliviousPublisher(self._layout, topics, randomness)

    def subscriber(self, *, randomness: Randomness = os.urandom) -> ObliviousSubscriber:
        """The role that wants events of some topics."""
        return ObliviousSubscriber(self._layout, randomness)


def _rebuild(
    schema: Schema, attributes: Sequence[str], payload_bytes: int, group: str
) -> ObliviousTopicMatch:
    return ObliviousTopicMatch(schema, attributes, payload_bytes=payload_bytes, group=group)
