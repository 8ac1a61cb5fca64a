"""ObliviousTopicMatch: everything goes to everybody; only matching subscribers can decrypt it.

Even the match bit is hidden from the broker, which relays and computes nothing. A subscriber posts
a request for each topic it wants; a publisher answers it once for each topic it has (eq-COT,
`ccbps.ciphers.oblivious`), after which both hold the same key if the topics are equal and unrelated
ones otherwise. An event then carries a slot for each request, and a slot is a few AES blocks.

Example::

    matcher = ObliviousTopicMatch(schema, ["issue"])
    subscriber = matcher.new_subscriber()
    publisher = matcher.new_publisher(["issue = 'IBM'", "issue = 'SAP'"])
    publisher.admit(subscriber.identity)                                 # 32 public bytes that
    subscriber.trust(publisher.identity)                                 # no broker can change
    sessions = publisher.answer(subscriber.encode(["issue = 'IBM'"]))    # once
    subscriber.accept(sessions)
    subscriber.open(publisher.encode(records, payloads=payloads))        # any number of times

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

Conventions: `ccbps.ciphers.slots` describes a slot, `ccbps.matching.session.layout` the bytes that
are signed. A topic is the values of all attributes together, or of those named.

A role is its `key`, a secret, from which ``matcher.publisher(key)`` and ``matcher.subscriber(key)``
make it again. There is no key server, and no broker that matches.

Hazards: the number of requests, topics and events and all sizes are public, and so are the events'
numbers. Events are not signed. A subscriber tries a topic for each request that is answered:
publishers limit them. An identity that came through the broker may be the broker's. A publisher
that loses its key must open new sessions; one that is restored from an old key must not count
through the same event numbers again (`ccbps.matching.session.roles`). Not constant time.
Source: [DCSTW13]; [Survey] section 4.6. There, each message is encrypted anew for each subscriber,
and messages are not signed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from ccbps.algebra.prime_order import PrimeOrderGroup, prime_order_group
from ccbps.arrays import Randomness
from ccbps.checks import whole
from ccbps.ciphers.oblivious import EqCot
from ccbps.ciphers.slots import SLOT_KEY_BYTES
from ccbps.errors import CcbpsError, ParameterError
from ccbps.forms.topic import topic_attributes, topic_of
from ccbps.keys.plain_key import SigningKey
from ccbps.keys.role_key import RoleKey
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.key_server import KeyServer
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Cost, Operation, SessionScheme, Sizes
from ccbps.matching.contract.traffic import Traffic
from ccbps.matching.session.layout import WIRE_VERSION, Layout, role_key
from ccbps.matching.session.roles import ObliviousPublisher, ObliviousSubscriber
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.wire import KEY_HEADER_BYTES


class ObliviousTopicMatch(Matcher, SessionScheme):
    """Public parameters: topics over a schema, a group, and the greatest payload.

    Args:
        schema: the events' attributes.
        attributes: names of the topic's attributes; all by default.
        payload_bytes: longest payload; 0 for none, and events then tell only whether they match.
        group: a name that `ccbps.algebra.prime_order.prime_order_group` knows.

    Raises:
        ParameterError: an attribute is not in the schema or named twice; payload_bytes is
            negative; there is no such group, or its library is missing.

    Example:
        >>> from ccbps import Category, Schema
        >>> from ccbps.matching import ObliviousTopicMatch
        >>> matcher = ObliviousTopicMatch(Schema(issue=Category(["AAPL", "IBM"])), payload_bytes=32)
        >>> alice = matcher.new_subscriber()
        >>> publisher = matcher.new_publisher(["issue = 'IBM'", "issue = 'AAPL'"])
        >>> publisher.admit(alice.identity)                   # each other's, not by way of a broker
        >>> alice.trust(publisher.identity)
        >>> sessions = publisher.answer(alice.encode(["issue = 'IBM'"]))        # once
        >>> alice.accept(sessions)
        1
        >>> records = [{"issue": "IBM"}, {"issue": "AAPL"}]
        >>> alice.open(publisher.encode(records, payloads=[b"up", b"down"])).payloads
        [b'up', None]
        >>> matcher.event_bytes_for(requests=3) == matcher.event_bytes + 3 * 32
        True

    Attributes:
        attributes: names of the topic's attributes.
        payload_bytes: longest payload of an event; all events have the same length.
        group: group of prime order.
        event_bytes: bytes of an event before any request; see `event_bytes_for`.
        interest_bytes: bytes of a request.
    """

    name = "oblivious topic"
    version = WIRE_VERSION
    operators = ("=", "and")
    instead = "group='modp2048' or 'secp256k1'"

    def __init__(
        self,
        schema: Schema,
        attributes: Sequence[str] | None = None,
        *,
        payload_bytes: int = 0,
        group: str = "modp2048",
    ) -> None:
        payload_bytes = whole("payload_bytes", payload_bytes, 0, (1 << 31) - 1)
        self.schema, self.payload_bytes = schema, payload_bytes
        self.attributes = topic_attributes(schema, attributes)
        self.group: PrimeOrderGroup = prime_order_group(group)
        transfer = EqCot(self.group)
        layout = Layout(schema, self.attributes, payload_bytes, transfer, self.digest)
        self._layout = layout
        event, request = (
            size - KEY_HEADER_BYTES for size in (layout.fixed_bytes, layout.request_bytes)
        )
        self._set_up(schema, Sizes(event, request, event_per_request=layout.slot_bytes))

    def parameters(self) -> dict[str, Any]:
        return {
            "attributes": list(self.attributes),
            "payload_bytes": self.payload_bytes,
            "group": self.group.name,
        }

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[ObliviousTopicMatch]:
        """Yield a matcher on the attributes of one value, without payloads."""
        if predicate.schema != schema:
            return
        with suppress(CcbpsError):
            ranges = predicate.box().ranges
            topic = [name for name in schema if ranges[name][0] == ranges[name][1]]
            matcher = cls(schema, topic)
            matcher.prepare(predicate)
            yield matcher

    @property
    def leakage(self) -> LeakageCard:
        """Leakage card: the broker's view, and that of other clients."""
        toy = () if self.group.security else ("the group is a toy: anybody takes logarithms in it",)
        hidden = {Protects.EVENT, Protects.CONSTANTS, Protects.MATCH}
        hidden |= {Protects.EQUALITY_OF_EVENTS, Protects.EQUALITY_OF_INTERESTS}
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
            protects=frozenset() if toy else frozenset(hidden),
            learns=(
                "how many requests, topics and events there are, from whom, when, and of what size",
                "subscribers: which events are of their own topics, and nothing about the others",
                "publishers: how many requests each subscriber makes",
            ),
            security="broken" if toy else "computational",
            assumption=f"decisional Diffie-Hellman in {self.group.name}; AES-256, AES-128-GCM; "
            "Ed25519",
            reuse="reusable",
            hazards=(
                "a publisher answers any number of requests: a subscriber can try every topic; "
                "admit each subscriber with a limit of requests",
                "somebody could replace an identity on its way to the other party",
                "subscribers of a topic pass on what they read",
                "an event number is used for two events: save the publisher's key after each "
                "batch that its counter numbered",
            ),
            with_client="pairs",
            attacks=(
                *toy,
                "guessing: a subscriber learns about one topic per request that is answered",
                "behaviour: whoever reacts to an event, or complains about an altered one, has "
                "read it",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        blocks = 2 if self.payload_bytes else 1
        group, topic = self.group.name, "for each topic"
        return (
            Cost("publisher", "interest", Operation.EXPONENTIATION, 5, group, topic),
            Cost("publisher", "interest", Operation.SIGNATURE, 1),
            Cost("publisher", "pair", Operation.AES_BLOCK, blocks),
            Cost("subscriber", "interest", Operation.EXPONENTIATION, 3, group),
            Cost("subscriber", "interest", Operation.EXPONENTIATION, 1, group, topic),
            Cost("subscriber", "interest", Operation.SIGNATURE, 1),
            Cost("subscriber", "pair", Operation.AES_BLOCK, 1, note=topic),
        )

    def explain(self) -> str:
        sessions = (
            f"{self.session_bytes(1):,} bytes for one topic; an event grows by "
            f"{self.sizes.event_per_request} bytes for each request that was answered"
        )
        return self._explain([("topic", ", ".join(self.attributes)), ("sessions", sessions)])

    def traffic(self, events: int, subscriptions: int, *, topics: int | None = None) -> Traffic:
        """Return the bytes of each link: requests and answers, and each event to everybody.

        Args:
            events: number of events.
            subscriptions: number of requests, each of another subscriber.
            topics: number of the publisher's topics; by default, one for each subscription, or
                every topic that there is if these are fewer.
        """
        if topics is None:
            values = prod(self.schema[name].size for name in self.attributes)
            topics = max(1, min(subscriptions, values))
        answers = subscriptions * self.session_bytes(topics)
        sent = events * self.event_bytes_for(subscriptions)
        return Traffic(
            publisher=answers + sent,
            subscriber=subscriptions * self.interest_bytes,
            deliveries=answers + subscriptions * sent,
        )

    def session_bytes(self, topics: int) -> int:
        """Return the bytes of a session message of a publisher with that many topics."""
        return self._layout.session_bytes(topics)

    def event_bytes_for(self, requests: int) -> int:
        """Return the bytes of an event of a publisher that has answered that many requests."""
        return self._layout.event_bytes(requests)

    def prepare(self, interest: Any) -> bytes:
        codes = topic_of(bound_predicate(self.schema, interest, "a topic"), self.attributes)
        return codes.astype("<u8").tobytes()

    # -- roles ----------------------------------------------------------------------------------

    def new_publisher(
        self, topics: Iterable[Any], *, randomness: Randomness = os.urandom
    ) -> ObliviousPublisher:
        """Make the role that publishes events of some topics, with an identity of its own.

        Args:
            topics: predicates of subscriptions to them, each once: SQL text or `Predicate`.
            randomness: the operating system's, unless a test says otherwise.

        Raises:
            ParameterError: no topic, or one twice.
            PredicateError: a predicate does not name one topic.
        """
        if isinstance(topics, (str, Predicate)):
            raise ParameterError("topics must be a list of predicates, got a single one")
        names = [self.prepare(topic) for topic in topics]
        if not names or len(set(names)) < len(names):
            raise ParameterError("a publisher needs one topic or more, each once")
        # Their places tell nothing about the topics.
        draws = np.frombuffer(randomness(16 * len(names)), dtype=np.uint8).reshape(-1, 16)
        key = role_key(
            self._layout,
            "publisher",
            SigningKey.generate(randomness),
            subscribers=[],
            answered=[],
            topics=[names[place].hex() for place in np.lexsort(draws.T)],
            keys=[""] * len(names),
            payload=randomness(SLOT_KEY_BYTES).hex(),
            answers=randomness(SLOT_KEY_BYTES).hex(),
            next="0",
        )
        return self.publisher(key)

    def new_subscriber(self, *, randomness: Randomness = os.urandom) -> ObliviousSubscriber:
        """Make the role that asks for events of some topics, with an identity of its own."""
        signing = SigningKey.generate(randomness)
        empty: dict[str, list[Any]] = {"publishers": [], "requests": [], "sessions": []}
        key = role_key(self._layout, "subscriber", signing, **empty)
        return self.subscriber(key, randomness=randomness)

    def publisher(  # type: ignore[override]  # Roles of sessions encode in other ways.
        self,
        key: RoleKey,
        *,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> ObliviousPublisher:
        """Restore the publisher of a key: its identity, topics, subscribers and sessions.

        Args:
            key: a publisher's `ObliviousPublisher.key`.
            ledger: None. The role remembers the event numbers that it has used, and its key holds
                the next one.
            randomness: not used: answers and events follow from key and number.

        Hazard: its counter goes on where it stood when the key was saved. If events were encoded
        by the counter since then, save the key again after them, or give `encode` numbers that
        were not used; smaller numbers than the counter's are refused.

        Raises:
            KeyMismatchError: `key` is of another matcher or role, or damaged.
            ParameterError: there is a ledger.
        """
        self._refuse(ledger)
        return ObliviousPublisher(self, self._layout, key)

    def subscriber(  # type: ignore[override]
        self,
        key: RoleKey,
        *,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> ObliviousSubscriber:
        """Restore the subscriber of a key: its identity, publishers, requests and sessions.

        Args:
            key: a subscriber's `ObliviousSubscriber.key`.
            ledger: None.
            randomness: the operating system's, unless a test says otherwise.

        Raises:
            KeyMismatchError: `key` is of another matcher or role, or damaged.
            ParameterError: there is a ledger.
        """
        self._refuse(ledger)
        return ObliviousSubscriber(self, self._layout, key, randomness)

    def broker(self, key: RoleKey | None = None) -> Broker:
        """Refuse: nobody matches."""
        raise ParameterError(
            "ObliviousTopicMatch has no broker that matches: pass on every event to everybody; "
            "subscriber.open(events) finds out what is for it"
        )

    def key_server(
        self, key: RoleKey | None = None, *, randomness: Randomness = os.urandom
    ) -> KeyServer:
        """Refuse: every role makes its own key."""
        raise ParameterError(
            "ObliviousTopicMatch has no key server: new_publisher(topics) and new_subscriber() "
            "make roles, each with a key of its own"
        )

    def _refuse(self, ledger: object) -> None:
        if ledger is not None:
            raise ParameterError("ObliviousTopicMatch has no rounds, and so no ledger of them")
