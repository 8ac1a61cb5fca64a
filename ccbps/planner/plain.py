"""Plain alternatives to matchers, which everybody should weigh before they take one.

- *Filter at the subscribers*: every event goes to every subscriber, encrypted under one key.
- *Topic keys*: a key for each value of the attributes that a predicate compares with ``=``. The
  publisher encrypts an event under the key of its topic, and puts a tag of the topic in front.
- *One trusted broker*: events and predicates as they are, over encrypted links.

This code serves only to count their bytes, time them and test their answers. For use, take any
library for encryption.
"""

from __future__ import annotations

import hmac
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ccbps.arrays import Bools, Bytes
from ccbps.errors import CcbpsError
from ccbps.forms.bits import event_bits
from ccbps.forms.topic import topic_codes, topic_of
from ccbps.leakage import WithClient
from ccbps.matching.contract.traffic import Traffic
from ccbps.planner.leaks import EVERYTHING, Leak
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.codes import pack

NONCE_BYTES: Final = 12
SEALED_BYTES: Final = NONCE_BYTES + 16
"""Bytes that encryption adds."""
TOPIC_BYTES: Final = 16


class Plain(ABC):
    """A plain alternative for one predicate.

    Args:
        schema: the events' attributes.
        predicate: the subscription, with values for all its constants.

    Attributes:
        name: name for people.
        leaks: facts that parties learn.
        with_client: upper bound on what broker and one client learn together, as on a leakage card.
        learns: facts that parties learn, in words.
        needs: keys that parties share.
        event_bytes: bytes of an event message.
        interest_bytes: bytes of a subscription's message; 0 for none.
    """

    name: ClassVar[str]
    leaks: ClassVar[frozenset[Leak]]
    with_client: ClassVar[WithClient] = "others"
    learns: ClassVar[tuple[str, ...]]
    needs: ClassVar[str]

    def __init__(self, schema: Schema, predicate: Predicate) -> None:
        self.schema, self.predicate = schema, predicate
        self._record = -(-schema.bits // 8)
        self.event_bytes, self.interest_bytes = self._record, 0

    def refusal(self) -> str | None:
        """Return why the alternative does not take the predicate, or None."""
        return None

    def traffic(self, events: int, subscriptions: int) -> Traffic:
        """Return the bytes of each link. Deliveries to those who match are not counted."""
        return Traffic(events * self.event_bytes, subscriptions * self.interest_bytes)

    @abstractmethod
    def encode(self, events: Events) -> Bytes:
        """Return event messages, shape (events, event_bytes)."""

    @abstractmethod
    def answers(self, messages: Bytes) -> Bools:
        """Return the events that match, as the broker or the subscriber finds out, (events,)."""

    def _packed(self, events: Events) -> Bytes:
        return np.packbits(event_bits(events), axis=1)

    def _matches(self, packed: Bytes) -> Bools:
        bits, codes, start = np.unpackbits(packed, axis=1), {}, 0
        for name, width in self.schema.widths.items():
            part, start = bits[:, start : start + width], start + width
            octets = np.packbits(np.pad(part, ((0, 0), (-width % 8, 0))), axis=1)
            numbers = [int.from_bytes(row.tobytes()) for row in octets]
            codes[name] = pack(numbers, self.schema[name].limbs)
        return self.predicate.evaluate(Events(self.schema, len(packed), codes))


class _Sealed(Plain):
    """A plain alternative whose events are encrypted."""

    def __init__(self, schema: Schema, predicate: Predicate) -> None:
        super().__init__(schema, predicate)
        self.event_bytes = self._record + SEALED_BYTES
        self._key = AESGCM(os.urandom(16))

    def _seal(self, packed: Bytes, keys: Sequence[AESGCM]) -> Bytes:
        rows = []
        for row, key in zip(packed, keys, strict=True):
            nonce = os.urandom(NONCE_BYTES)
            rows.append(nonce + key.encrypt(nonce, row.tobytes(), None))
        return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(packed), -1)

    def _open(self, messages: Bytes, key: AESGCM) -> Bytes:
        rows = [
            key.decrypt(row[:NONCE_BYTES].tobytes(), row[NONCE_BYTES:].tobytes(), None)
            for row in messages
        ]
        return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(messages), self._record)


class SubscribersFilter(_Sealed):
    """Every event goes to every subscriber, and each filters for itself."""

    name = "filter at the subscribers"
    leaks = frozenset({Leak("subscribers", "event"), Leak("subscribers", "equality_of_events")})
    learns = ("subscribers read every event", "the broker learns nothing but sizes and times")
    needs = "one key for the publisher and all subscribers"

    def traffic(self, events: int, subscriptions: int) -> Traffic:
        sent = events * self.event_bytes
        return Traffic(sent, 0, deliveries=sent * subscriptions)

    def encode(self, events: Events) -> Bytes:
        return self._seal(self._packed(events), [self._key] * events.count)

    def answers(self, messages: Bytes) -> Bools:
        return self._matches(self._open(messages, self._key))


class TopicKeys(_Sealed):
    """A key for each value, and a tag of it that the broker compares."""

    name = "topic keys"
    leaks = EVERYTHING - {Leak("broker", "data")}
    learns = (
        "the broker learns which events and which subscriptions are of one topic, and which "
        "topics are frequent; whoever knows how frequent values are knows the topics",
    )
    needs = "a key for each topic, for the publisher and those who may read it"

    def __init__(self, schema: Schema, predicate: Predicate) -> None:
        super().__init__(schema, predicate)
        self.event_bytes += TOPIC_BYTES
        self.interest_bytes = TOPIC_BYTES
        self._secret = os.urandom(16)
        self._attributes: list[str] = []

    def refusal(self) -> str | None:
        try:
            ranges = self.predicate.box().ranges
            self._attributes = [name for name in self.schema if ranges[name][0] == ranges[name][1]]
            if not self._attributes:
                return "takes equalities joined by AND, and nothing else"
            topic_of(self.predicate, self._attributes)
        except CcbpsError:
            return "takes equalities joined by AND, and nothing else"
        return None

    def encode(self, events: Events) -> Bytes:
        tags = [self._tag(row.tobytes()) for row in topic_codes(events, self._attributes)]
        keys = {tag: AESGCM(self._tag(b"key" + tag)) for tag in set(tags)}
        sealed = self._seal(self._packed(events), [keys[tag] for tag in tags])
        front = np.frombuffer(b"".join(tags), dtype=np.uint8).reshape(-1, TOPIC_BYTES)
        return np.concatenate([front, sealed], axis=1)

    def answers(self, messages: Bytes) -> Bools:
        topic = topic_of(self.predicate, self._attributes)
        tag = np.frombuffer(self._tag(topic.tobytes()), dtype=np.uint8)
        return np.asarray((messages[:, :TOPIC_BYTES] == tag).all(axis=1))

    def _tag(self, content: bytes) -> bytes:
        return hmac.digest(self._secret, content, "sha256")[:TOPIC_BYTES]


class TrustedBroker(Plain):
    """One broker that may read everything."""

    name = "one trusted broker"
    leaks = EVERYTHING
    learns = ("the broker reads every event and every subscription",)
    needs = "TLS between each client and the broker"

    def __init__(self, schema: Schema, predicate: Predicate) -> None:
        super().__init__(schema, predicate)
        self.interest_bytes = len(self.ask())

    def ask(self) -> bytes:
        """Return the subscription's message: its text, and values of private constants."""
        values = self.predicate.bound_values
        bound = json.dumps(values, default=str) if values else ""
        return (self.predicate.text + bound).encode()

    def encode(self, events: Events) -> Bytes:
        return self._packed(events)

    def answers(self, messages: Bytes) -> Bools:
        return self._matches(messages)


PLAIN: Final[tuple[type[Plain], ...]] = (SubscribersFilter, TopicKeys, TrustedBroker)
