"""Oblivious topics: a subscriber with many requests, and a relay that stands in for others.

The broker of `ObliviousTopicMatch` sees only noise, so these attacks are by its clients. A
subscriber reads the topics that it has requests for. A relay that passes identities on can give its
own instead; if identities come by another channel, its requests are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bytes
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.views import make_broken
from ccbps.checks import whole
from ccbps.ciphers.payloads import open_sealed
from ccbps.ciphers.signatures import SIGNATURE_BYTES
from ccbps.ciphers.slots import SlotKey
from ccbps.errors import DecodeError
from ccbps.matching.session.layout import NUMBERED, OPENED, SIGNED
from ccbps.matching.session.oblivious_topic import ObliviousTopicMatch
from ccbps.matching.session.roles import ObliviousPublisher, ObliviousSubscriber
from ccbps.predicates import Category, Schema
from ccbps.wire import KEY_HEADER_BYTES

GROUP: Final = "toy64"
"""Group of the attacks: none of them takes a logarithm."""


def make_oblivious(names: Sequence[Any], payload_bytes: int = 0) -> ObliviousTopicMatch:
    """Make a matcher of events with one attribute, `topic`, in a toy group."""
    schema = Schema(topic=Category(list(names)))
    return make_broken(ObliviousTopicMatch, schema, payload_bytes=payload_bytes, group=GROUP)


def open_session(
    matcher: ObliviousTopicMatch,
    topics: Sequence[str],
    asked: Sequence[str],
    requests: int | None = None,
) -> tuple[ObliviousPublisher, ObliviousSubscriber]:
    """Make a publisher and a subscriber, which asks for topics as often as it is answered.

    Args:
        matcher: matcher of both.
        topics: topics of the publisher, as texts.
        asked: topics that the subscriber asks for.
        requests: number of requests that the publisher answers; None for any number.
    """
    publisher, subscriber = matcher.new_publisher(topics), matcher.new_subscriber()
    publisher.admit(subscriber.identity, requests)
    subscriber.trust(publisher.identity)
    for request in subscriber.encode(list(asked)):
        with suppress(DecodeError):
            subscriber.accept(publisher.answer(request[None]))
    return publisher, subscriber


def read_slots(topics: Sequence[Any], names: Sequence[Any], asked: Sequence[Any]) -> list[bytes]:
    """Return a broker's view of events: the slots of one subscriber, joined for each event.

    Args:
        topics: topic of each event.
        names: all topics.
        asked: topics that the subscriber has asked for.
    """
    matcher = make_oblivious(names)
    texts = [f"topic = '{name}'" for name in names]
    publisher, _ = open_session(matcher, texts, [f"topic = '{name}'" for name in asked])
    events = publisher.encode({"topic": list(topics)})
    return [row.tobytes() for row in events[:, matcher.event_bytes :]]


class Relay:
    """A relay with elements of its own, which it puts into the requests of others.

    Args:
        matcher: matcher of the roles, with payloads.
        topic: topic that the relay asks for.
    """

    def __init__(self, matcher: ObliviousTopicMatch, topic: str) -> None:
        self._layout = matcher._layout
        self._transfer = self._layout.transfer
        self._secrets, self._own = self._transfer.request([matcher.prepare(topic)])

    def forge(self, request: Bytes) -> Bytes:
        """Return a subscriber's request with the relay's elements in it."""
        forged = request.copy()
        forged[:, SIGNED:-SIGNATURE_BYTES] = self._own
        return forged

    def read(
        self, forged: Bytes, session: Bytes, event: Bytes, publisher: bytes, topics: int
    ) -> bytes | None:
        """Return the payload that an event has for the maker of a forged request, if any.

        Args:
            forged: forged request, one row.
            session: answer of the publisher, one row.
            event: an event of the publisher, one row, whose last slot is that of the request.
            publisher: identity of the publisher.
            topics: number of its topics.
        """
        context = self._layout.context(publisher, self._layout.digest(forged[0]))
        parts = session[0, OPENED:-SIGNATURE_BYTES].reshape(topics, -1)
        number = event[:, KEY_HEADER_BYTES:NUMBERED].copy().view("<u8")[:, 0]
        slot = event[:, -self._layout.slot_bytes :]
        keys = self._transfer.finish(self._secrets * topics, parts, [context] * topics)
        for key in map(SlotKey, keys):
            if key.recognizes(number, slot).all():
                opened = key.payload_keys(number, slot)[0].tobytes()
                sealed = event[0, NUMBERED : self._layout.fixed_bytes].tobytes()
                return open_sealed(sealed, opened, event[0, :NUMBERED].tobytes())
        return None


@attack(
    title="A subscriber asks for every topic that it can think of",
    goal="confidentiality",
    adversary="a subscriber that the publisher admits",
    defence="`ObliviousPublisher.admit` with a number of requests",
    source="[DCSTW13]",
)
def guess_topics(*, topics: int = 12, events: int = 300, limit: int = 3, seed: int = 3) -> Outcome:
    """Read the topics of events by a request for each topic.

    With the defence, the publisher answers `limit` requests and refuses the others.

    Args:
        topics: number of topics, equally frequent.
        events: number of events.
        limit: number of requests that the subscriber is admitted with.
        seed: seed of the events.

    Example:
        >>> from ccbps.attacks import guess_topics
        >>> print(guess_topics(topics=4, limit=1)["topics of events read"].undefended)
        1.0
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    names = [f"topic {number}" for number in range(whole("topics", topics, 1, 50))]
    matcher = make_oblivious(names)
    texts = [f"topic = '{name}'" for name in names]
    chosen = random.integers(0, topics, whole("events", events, 1, 3000))
    whole("limit", limit, 0)

    def read(asked: int, requests: int | None) -> float:
        publisher, subscriber = open_session(matcher, texts, texts[:asked], requests)
        if not min(asked, asked if requests is None else requests):
            return 0.0
        matched = subscriber.open(publisher.encode({"topic": [names[at] for at in chosen]})).matched
        return float(np.mean(matched.any(axis=1) & (matched.argmax(axis=1) == chosen)))

    counts = tuple(range(topics + 1))
    free = [read(asked, None) for asked in counts]
    limited = [read(asked, limit) for asked in counts]
    return Outcome(
        (Figure("topics of events read", "", free[-1], limited[-1], 1.0),),
        Curve(
            "topics that the subscriber asks for",
            "events whose topic it reads (share)",
            counts,
            {"without defence": tuple(free), "with a limit on requests": tuple(limited)},
        ),
    )


@attack(
    title="A relay gives its own identity in place of a subscriber's",
    goal="confidentiality",
    adversary="a relay of all messages, with and without identities among them",
    defence="identities by a way that the relay cannot change; signatures bind requests to them",
)
def replace_requests(*, subscribers: int = 6, seed: int = 1) -> Outcome:
    """Put elements of a relay into the requests of subscribers.

    Without the defence, identities pass the relay, which gives the publisher one of its own for
    each subscriber, and signs what it forges. With the defence, the publisher knows the identities
    of the subscribers, and the relay sends forged requests under their signatures and its own.

    Args:
        subscribers: number of subscribers, each with a topic of its own.
        seed: seed of the payloads; keys are drawn anew.

    Example:
        >>> from ccbps.attacks import replace_requests
        >>> figure = replace_requests(subscribers=2)["payloads read"]
        >>> figure.undefended, figure.defended
        (1.0, 0.0)
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    names = [f"topic {number}" for number in range(whole("subscribers", subscribers, 1, 50))]
    texts = [f"topic = '{name}'" for name in names]
    matcher = make_oblivious(names, payload_bytes=16)

    def read(known: bool, place: int) -> bool:
        """Return whether the relay reads the payload for a subscriber."""
        publisher, alice, own = (
            matcher.new_publisher(texts),
            *(matcher.new_subscriber() for _ in range(2)),
        )
        publisher.admit(alice.identity if known else own.identity)
        relay, request = Relay(matcher, texts[place]), alice.encode(texts[place])
        own_request = own.encode(texts[place])
        forged = relay.forge(request)
        attempts = [forged]
        # Under its own name, and under the name of the subscriber, signed by the relay.
        for template in (own_request, forged):
            attempt = relay.forge(template)
            covered = matcher._layout.request(attempt[0])
            attempt[0, -SIGNATURE_BYTES:] = list(own._signing.sign(covered))
            attempts.append(attempt)
        payload = random.bytes(16)
        for attempt in attempts:
            with suppress(DecodeError):
                session = publisher.answer(attempt)
                event = publisher.encode({"topic": [names[place]]}, payloads=[payload])
                if relay.read(attempt, session, event, publisher.identity, len(texts)) == payload:
                    return True
        return False

    stolen = [read(False, place) for place in range(subscribers)]
    kept = [read(True, place) for place in range(subscribers)]
    counts = tuple(range(subscribers + 1))
    return Outcome(
        (Figure("payloads read", "", float(np.mean(stolen)), float(np.mean(kept)), 1.0),),
        Curve(
            "subscribers that the relay attacks",
            "payloads that it reads (share)",
            counts,
            {
                "without defence": tuple(sum(stolen[:count]) / subscribers for count in counts),
                "with identities by another way": tuple(
                    sum(kept[:count]) / subscribers for count in counts
                ),
            },
        ),
    )
