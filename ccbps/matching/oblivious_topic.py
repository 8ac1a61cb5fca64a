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

Messages start with a header of 16 bytes: kind (1), version (1), matcher (6), name (8).

=======  =====================================================================================
message  bytes
=======  =====================================================================================
request  header with a name drawn for the request; three elements
session  header with the request's name; the publisher's name (8); the slot's place (4); two
         elements for each topic of the publisher
event    header with the publisher's name; number (8); the sealed payload, if there are any; a
         slot of 16 or 32 bytes for each request that the publisher has answered
=======  =====================================================================================

Conventions: `ccbps.ciphers.slots` says what is in a slot. A topic is the values of all attributes
together, or of those named.

Hazards: the number of requests, topics and events and all sizes are public, and so are the events'
numbers. A subscriber tries a topic for each request that is answered: publishers limit them. A
publisher that loses its key must open new sessions; one that is restored from an old key must not
count through the same event numbers again (`ccbps.matching.oblivious_roles`). Not constant time.
Source: [DCSTW13]; [Survey] section 4.6. There, each message is encrypted anew for each subscriber.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.prime_order import PrimeOrderGroup, prime_order_group
from ccbps.ciphers.oblivious import EqCot
from ccbps.ciphers.slots import BLOCK, SLOT_KEY_BYTES, sealed_bytes
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError
from ccbps.leakage import LeakageCard
from ccbps.matching.oblivious_roles import (
    NAME_BYTES,
    NUMBERED,
    OPENED,
    ObliviousPublisher,
    ObliviousSubscriber,
    Opened,
    Randomness,
)
from ccbps.matching.parameters import Cost, PublicParameters, bound_predicate, fingerprint_of
from ccbps.matching.role_keys import KEY_ID_BYTES, Role, RoleKey
from ccbps.matching.topics import keyword_attributes, keyword_of
from ccbps.predicates import Predicate, Schema
from ccbps.wire import HEADER_BYTES, VERSION

__all__ = ["Layout", "ObliviousPublisher", "ObliviousSubscriber", "ObliviousTopicMatch", "Opened"]

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Layout:
    """What both roles know of messages: public."""

    schema: Schema
    attributes: tuple[str, ...]
    payload_bytes: int
    transfer: EqCot
    fingerprint: bytes

    @property
    def request_bytes(self) -> int:
        """Bytes of a request."""
        return HEADER_BYTES + self.transfer.request_bytes

    def session_bytes(self, topics: int) -> int:
        """Bytes of a session with a publisher of that many topics."""
        return OPENED + topics * self.transfer.response_bytes

    @property
    def fixed_bytes(self) -> int:
        """Bytes of an event in front of its slots."""
        return NUMBERED + (sealed_bytes(self.payload_bytes) if self.payload_bytes else 0)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot."""
        return 2 * BLOCK if self.payload_bytes else BLOCK

    def event_bytes(self, requests: int) -> int:
        """Bytes of an event of a publisher that has answered that many requests."""
        return self.fixed_bytes + requests * self.slot_bytes

    def topic(self, interest: Any) -> bytes:
        """The topic that a predicate names, as bytes."""
        codes = keyword_of(bound_predicate(self.schema, interest, "a topic"), self.attributes)
        return codes.astype("<u8").tobytes()

    def headers(self, kind: int, names: Bytes) -> Bytes:
        """Headers, one for each row of names."""
        head = np.zeros((len(names), HEADER_BYTES), dtype=np.uint8)
        head[:, :8] = np.frombuffer(bytes([kind, VERSION]) + self.fingerprint[:6], dtype=np.uint8)
        head[:, 8:] = names
        return head

    def context(self, publisher: Bytes, request: Bytes) -> bytes:
        """What a key is bound to."""
        return self.fingerprint + publisher.tobytes() + request.tobytes()

    def check(self, messages: Bytes, kind: int, fixed: int, step: int, name: str) -> int:
        """How many parts of `step` bytes follow the first `fixed` ones.

        Raises:
            DecodeError: these are no such messages of this matcher; names rows.
        """
        count = self.parts(messages, fixed, step, name)
        bad = tuple(np.flatnonzero(self.foreign(messages, kind)).tolist())
        if bad:
            cause = self.cause(name)
            raise DecodeError(f"row {bad[0]}: {cause}", rows=bad, causes=(cause,) * len(bad))
        return count

    def parts(self, messages: Bytes, fixed: int, step: int, name: str) -> int:
        """The same without a look at the headers."""
        if not isinstance(messages, np.ndarray) or messages.dtype != np.uint8 or messages.ndim != 2:
            raise DecodeError(
                f"{name}s must be a uint8 array of shape (batch, bytes), "
                f"got {type(messages).__name__}"
            )
        width = messages.shape[1]
        if width != fixed if not step else width < fixed or (width - fixed) % step:
            more = f" and a multiple of {step}" if step else ""
            raise DecodeError(f"{name}s have {fixed} bytes{more}, got {width}")
        return (width - fixed) // step if step else 0

    def foreign(self, messages: Bytes, kind: int) -> Bools:
        """Which messages are not of this kind, version and matcher, shape (batch,)."""
        wanted = self.headers(kind, np.zeros((1, NAME_BYTES), dtype=np.uint8))[0, :8]
        return np.asarray((messages[:, :8] != wanted).any(axis=1))

    def cause(self, name: str) -> str:
        """What is wrong with foreign messages."""
        return f"not a {name} of this version and matcher"

    def check_key(self, key: RoleKey, role: Role) -> None:
        """Refuse a key of another matcher or role."""
        if not isinstance(key, RoleKey):
            raise KeyMismatchError(f"a {role} needs a RoleKey, got {type(key).__name__}")
        if key.matcher != self.fingerprint:
            raise KeyMismatchError(
                "this key belongs to another matcher than this one over "
                f"{', '.join(self.attributes)}"
            )
        if key.role != role:
            raise KeyMismatchError(f"this is the key of a {key.role}, wanted a {role}'s")


class ObliviousTopicMatch(PublicParameters):
    """Public parameters: topics over a schema, a group, and the greatest payload.

    Example:
        >>> from ccbps import Category, Schema
        >>> from ccbps.matching import ObliviousTopicMatch
        >>> matcher = ObliviousTopicMatch(Schema(issue=Category(["AAPL", "IBM"])), payload_bytes=32)
        >>> alice = matcher.subscriber()
        >>> requests = alice.encode(["issue = 'IBM'"])        # for publishers, who answer once
        >>> len(requests)
        1

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
                "an event number is used for two events: save the publisher's key after it counted",
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
        if isinstance(topics, (str, Predicate)):
            raise ParameterError("topics must be a list of predicates, got a single one")
        names = [self._layout.topic(topic) for topic in topics]
        if not names or len(set(names)) < len(names):
            raise ParameterError("a publisher needs one topic or more, each once")
        # Their places tell nothing about the topics.
        draws = np.frombuffer(randomness(16 * len(names)), dtype=np.uint8).reshape(-1, 16)
        name = randomness(NAME_BYTES)
        data = {
            "name": name.hex(),
            "topics": [names[place].hex() for place in np.lexsort(draws.T)],
            "keys": [""] * len(names),
            "payload": randomness(SLOT_KEY_BYTES).hex(),
            "next": "0",
        }
        key = RoleKey.make(self.fingerprint, "publisher", name[:KEY_ID_BYTES], 0, data)
        return self.publisher_from(key, randomness=randomness)

    def publisher_from(
        self, key: RoleKey, *, randomness: Randomness = os.urandom
    ) -> ObliviousPublisher:
        """The publisher whose `key` this is, with its topics and sessions.

        Hazard: its counter goes on where it stood when the key was saved. If events were encoded
        by the counter since then, save the key again after them, or give `encode` numbers that
        were not used; smaller numbers than the counter's are refused.

        Raises:
            KeyMismatchError: it is the key of another matcher or role, or damaged.
        """
        return ObliviousPublisher(self._layout, key, randomness)

    def subscriber(self, *, randomness: Randomness = os.urandom) -> ObliviousSubscriber:
        """The role that wants events of some topics."""
        data: dict[str, list[Any]] = {"requests": [], "sessions": []}
        name = randomness(KEY_ID_BYTES)
        key = RoleKey.make(self.fingerprint, "subscriber", name, 0, data)
        return self.subscriber_from(key, randomness=randomness)

    def subscriber_from(
        self, key: RoleKey, *, randomness: Randomness = os.urandom
    ) -> ObliviousSubscriber:
        """The subscriber whose `key` this is, with its requests and the sessions it accepted.

        Raises:
            KeyMismatchError: it is the key of another matcher or role, or damaged.
        """
        return ObliviousSubscriber(self._layout, key, randomness)


def _rebuild(
    schema: Schema, attributes: Sequence[str], payload_bytes: int, group: str
) -> ObliviousTopicMatch:
    return ObliviousTopicMatch(schema, attributes, payload_bytes=payload_bytes, group=group)
