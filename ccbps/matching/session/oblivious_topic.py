"""ObliviousTopicMatch: everything goes to everybody; only matching subscribers can decrypt it.

Even the match bit is hidden from the broker, which relays and computes nothing. A subscriber posts
a request for each topic it wants; a publisher answers it once for each topic it has (eq-COT,
`ccbps.ciphers.oblivious`), after which both hold the same key if the topics are equal and unrelated
ones otherwise. An event then carries a slot for each request, and a slot is a few AES blocks.

    matcher = ObliviousTopicMatch(schema, ["issue"])
    subscriber = matcher.subscriber()
    publisher = matcher.publisher(["issue = 'IBM'", "issue = 'SAP'"])
    publisher.admit(subscriber.identity)                                 # 32 public bytes that
    subscriber.trust(publisher.identity)                                 # no broker can change
    sessions = publisher.answer(subscriber.encode(["issue = 'IBM'"]))    # once
    subscriber.accept(sessions)
    subscriber.open(publisher.encode(records, payloads))                 # any number of times

Requests and sessions are signed. A publisher answers subscribers that it admitted, a subscriber
takes sessions of publishers that it trusts, and neither changes its mind because of a message that
is altered, comes from somebody else, or is repeated.

Messages start with a header of 16 bytes: kind (1), version (1), matcher (6), name (8).

=======  =====================================================================================
message  bytes
=======  =====================================================================================
request  header with a name drawn for the request; the subscriber's name (8); three elements;
         the subscriber's signature (64)
session  header with the request's name; the publisher's name (8); the slot's place (4); two
         elements for each topic of the publisher; the publisher's signature (64)
event    header with the publisher's name; number (8); the sealed payload, if there are any; a
         slot of 16 or 32 bytes for each request that the publisher has answered
=======  =====================================================================================

Conventions: `ccbps.ciphers.slots` says what is in a slot, `ccbps.matching.session.layout` what is
signed. A topic is the values of all attributes together, or of those named.

Hazards: the number of requests, topics and events and all sizes are public, and so are the events'
numbers. Events are not signed. A subscriber tries a topic for each request that is answered:
publishers limit them. An identity that came by way of the broker may be the broker's. A publisher
that loses its key must open new sessions; one that is restored from an old key must not count
through the same event numbers again (`ccbps.matching.session.publisher`). Not constant time.
Source: [DCSTW13]; [Survey] section 4.6. There, each message is encrypted anew for each subscriber,
and messages are not signed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from ccbps.algebra.prime_order import PrimeOrderGroup, prime_order_group
from ccbps.arrays import Randomness
from ccbps.ciphers.oblivious import EqCot
from ccbps.ciphers.signatures import SigningKey, name_of
from ccbps.ciphers.slots import SLOT_KEY_BYTES
from ccbps.errors import ParameterError
from ccbps.inputs.topic import keyword_attributes
from ccbps.keys.role_key import KEY_ID_BYTES, RoleKey
from ccbps.leakage import LeakageCard
from ccbps.matching.parameters import Cost, PublicParameters, fingerprint_of
from ccbps.matching.session.layout import Layout
from ccbps.matching.session.publisher import ObliviousPublisher
from ccbps.matching.session.subscriber import ObliviousSubscriber, Opened
from ccbps.predicates import Predicate, Schema

__all__ = ["ObliviousPublisher", "ObliviousSubscriber", "ObliviousTopicMatch", "Opened"]


class ObliviousTopicMatch(PublicParameters):
    """Public parameters: topics over a schema, a group, and the greatest payload.

    Example:
        >>> from ccbps import Category, Schema
        >>> from ccbps.matching import ObliviousTopicMatch
        >>> matcher = ObliviousTopicMatch(Schema(issue=Category(["AAPL", "IBM"])), payload_bytes=32)
        >>> alice = matcher.subscriber()
        >>> publisher = matcher.publisher(["issue = 'IBM'", "issue = 'AAPL'"])
        >>> publisher.admit(alice.identity)                   # each other's, not by way of a broker
        >>> alice.trust(publisher.identity)
        >>> sessions = publisher.answer(alice.encode(["issue = 'IBM'"]))        # once
        >>> alice.accept(sessions)
        1
        >>> events = publisher.encode([{"issue": "IBM"}, {"issue": "AAPL"}], [b"up", b"down"])
        >>> alice.open(events).payloads
        [b'up', None]

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
            "scheme": f"{self.scheme} 2",
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
            answers=False,
            adversary="the broker, which keeps all it relays and alters what it likes, and "
            "clients other than those of the matching topic",
            hides=(
                "events, payloads and subscriptions",
                "whether an event matches a subscription",
                "which events, or which subscriptions, have equal topics",
            ),
            learns=(
                "how many requests, topics and events there are, from whom, when, and of what size",
                "subscribers: which events are of their own topics, and nothing about the others",
                "publishers: how many requests each subscriber makes",
            ),
            security="computational" if self.group.security else "broken",
            assumption=f"decisional Diffie-Hellman in {self.group.name}; AES-256, AES-128-GCM; "
            "Ed25519",
            reuse="reusable",
            hazards=(
                "a publisher answers as many requests as somebody has guesses: admit each "
                "subscriber with a number of requests",
                "an identity was handed over by somebody who could replace it with another",
                "subscribers of a topic pass on what they read",
                "an event number is used for two events: save the publisher's key after each "
                "batch that its counter numbered",
                *(() if self.group.security else toy),
            ),
            attacks=(
                "guessing: a subscriber learns about one topic per request that is answered",
                "behaviour: whoever reacts to an event, or complains about an altered one, has "
                "read it",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""
        blocks = 2 if self.payload_bytes else 1
        return (
            Cost("publisher", "interest", "exponentiation for each topic", 5),
            Cost("publisher", "interest", "signature made and checked", 1),
            Cost("publisher", "pair", "AES block", blocks),
            Cost("subscriber", "interest", "exponentiation", 3),
            Cost("subscriber", "interest", "exponentiation for each topic", 1),
            Cost("subscriber", "interest", "signature made and checked", 1),
            Cost("subscriber", "pair", "AES block for each topic", 1),
        )

    def explain(self) -> str:
        """Bytes, operations and the leakage card, as text."""
        lines = [
            f"ObliviousTopicMatch over {', '.join(self.attributes)}",
            f"  operators:   {', '.join(self.operators)}",
            f"  messages:    {self.request_bytes:,} bytes per request, {self.session_bytes(1):,} "
            f"bytes per session of one topic, {self.event_bytes(1):,} bytes per event for one "
            "request; reusable",
        ]
        lines += [
            f"  {cost.role + ':':<13}per {cost.per}: {cost.count:,g} x {cost.operation}"
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
        """The role that publishes events of some topics.

        Args:
            topics: what subscriptions to them would say: SQL text or `Predicate`, each once.
            randomness: the operating system's, unless a test says otherwise.

        Raises:
            ParameterError: no topic, or one twice.
            PredicateError: a predicate does not name one topic.
        """
        if isinstance(topics, (str, Predicate)):
            raise ParameterError("topics must be a list of predicates, got a single one")
        names = [self._layout.topic(topic) for topic in topics]
        if not names or len(set(names)) < len(names):
            raise ParameterError("a publisher needs one topic or more, each once")
        # Their places tell nothing about the topics.
        draws = np.frombuffer(randomness(16 * len(names)), dtype=np.uint8).reshape(-1, 16)
        signing = SigningKey.generate(randomness)
        data = {
            "signing": signing.export_secret().hex(),
            "subscribers": [],
            "answered": [],
            "topics": [names[place].hex() for place in np.lexsort(draws.T)],
            "keys": [""] * len(names),
            "payload": randomness(SLOT_KEY_BYTES).hex(),
            "answers": randomness(SLOT_KEY_BYTES).hex(),
            "next": "0",
        }
        name = name_of(signing.identity)[:KEY_ID_BYTES]
        return self.publisher_from(RoleKey.make(self.fingerprint, "publisher", name, 0, data))

    def publisher_from(self, key: RoleKey) -> ObliviousPublisher:
        """The publisher whose `key` this is: its identity, topics, subscribers and sessions.

        Hazard: its counter goes on where it stood when the key was saved. If events were encoded
        by the counter since then, save the key again after them, or give `encode` numbers that
        were not used; smaller numbers than the counter's are refused.

        Raises:
            KeyMismatchError: it is the key of another matcher or role, or damaged.
        """
        return ObliviousPublisher(self._layout, key)

    def subscriber(self, *, randomness: Randomness = os.urandom) -> ObliviousSubscriber:
        """The role that asks for events of some topics."""
        signing = SigningKey.generate(randomness)
        data = {
            "signing": signing.export_secret().hex(),
            "publishers": [],
            "requests": [],
            "sessions": [],
        }
        name = name_of(signing.identity)[:KEY_ID_BYTES]
        key = RoleKey.make(self.fingerprint, "subscriber", name, 0, data)
        return self.subscriber_from(key, randomness=randomness)

    def subscriber_from(
        self, key: RoleKey, *, randomness: Randomness = os.urandom
    ) -> ObliviousSubscriber:
        """The subscriber whose `key` this is: its identity, publishers, requests and sessions.

        Raises:
            KeyMismatchError: it is the key of another matcher or role, or damaged.
        """
        return ObliviousSubscriber(self._layout, key, randomness)


def _rebuild(
    schema: Schema, attributes: Sequence[str], payload_bytes: int, group: str
) -> ObliviousTopicMatch:
    return ObliviousTopicMatch(schema, attributes, payload_bytes=payload_bytes, group=group)
