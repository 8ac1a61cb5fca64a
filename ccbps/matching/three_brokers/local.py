"""Three brokers in one process: for tests, notebooks and comparisons, where one machine has all."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.errors import DecodeError, NetworkError
from ccbps.keys.plain_key import PARTIES
from ccbps.keys.secret import Confined
from ccbps.matching.contract.access import require_width
from ccbps.matching.contract.matcher import Matcher
from ccbps.predicates import Predicate
from ccbps.shares.answers import add_pads
from ccbps.shares.clients import HEAD_BYTES, BrokerKey, SharedKeys, part_of, sealed_part
from ccbps.shares.party import Party
from ccbps.shares.ring import LocalLink, Ring, local_links
from ccbps.wire import Cause, raise_for

_REFUSED_GRANTS: Final = (
    "it is not the authority's, was altered, or is not newer than the client's last one"
)


class LocalBrokers(Confined):
    """Three brokers in threads of this process. Whoever can read the process reads everything.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import ThreeBrokerMatch
        >>> brokers = ThreeBrokerMatch.box(Schema(price=UInt(16))).local()
        >>> brokers.match_all({"price": [119, 120]}, ["price < 120", "price > 5"])
        array([[ True,  True],
               [False,  True]])

    Attributes:
        public: public keys of the brokers, for clients.
    """

    def __init__(self, matcher: Matcher) -> None:
        # Any: `ThreeBrokerMatch` imports this module.
        self._matcher: Any = matcher
        self._keys = [BrokerKey.generate() for _ in range(PARTIES)]
        self.public = tuple(key.public for key in self._keys)
        self._hellos: list[Sequence[bytes]] = []
        self._clients: list[dict[bytes, SharedKeys]] = [{} for _ in range(PARTIES)]
        self._authority: Sequence[bytes] | None = None
        self._grants: list[Bytes] = []

    def __repr__(self) -> str:
        return f"<LocalBrokers of {self._matcher!r}>"

    def greet(self, hellos: Sequence[bytes]) -> None:
        """Take a client's hellos, for brokers 0, 1 and 2.

        Raises:
            DecodeError: `hellos` are not for these brokers and their public parameters.
        """
        for party, (key, hello) in enumerate(zip(self._keys, hellos, strict=True)):
            keys = key.open(party, hello, self._matcher.digest)
            self._clients[party][keys.client] = keys
        self._hellos.append(hellos)

    def name_authority(self, hellos: Sequence[bytes]) -> None:
        """Name the client that gives grants, by its hellos for brokers 0, 1 and 2.

        Raises:
            DecodeError: `hellos` are not for these brokers and their public parameters.
        """
        for party, (key, hello) in enumerate(zip(self._keys, hellos, strict=True)):
            key.open(party, hello, self._matcher.digest)
        self._authority = hellos

    def grant(self, messages: Bytes) -> None:
        """Take grants of the authority, as `ThreeBrokerAuthority.grant` makes them.

        The brokers check them when they match, and refuse to match if they refuse one.
        """
        self._grants.append(messages)

    def match_all(
        self, events: Any, interests: Any, grant: str | Predicate | None = "TRUE"
    ) -> Bools:
        """Encode and match all events with all interests.

        Args:
            events: records, as `Publisher.encode` takes them.
            interests: predicates, as `Subscriber.encode` takes them.
            grant: events that an authority lets the subscriber see, where clients need grants.

        Returns:
            bool, shape (events, interests).
        """
        publisher = self._matcher.publisher(self.public)
        subscriber = self._matcher.subscriber(self.public)
        sent = publisher.encode(events), subscriber.encode(interests)
        hellos = [*self._hellos, publisher.hellos, subscriber.hellos]
        authority, grants = None, []
        if self._matcher.grants:
            giver = self._matcher.authority(self.public)
            authority, grants = giver.hellos, [giver.grant(grant, to=subscriber.client)]
        answers = self._worked(*sent, hellos, authority, grants)
        if self._matcher.reveal != "brokers":
            answers = [subscriber.open(*sent, answers, publisher.commitments(sent[0])).matched]
        matched: Bools = answers[0]
        return matched

    def match(self, events: Bytes, interests: Bytes) -> Bools:
        """Match messages row by row; this takes as long as `match_messages`.

        Raises:
            DecodeError: as `match_messages`, or there are not as many events as interests.
        """
        answers = self.match_messages(events, interests)
        if answers.shape[0] != answers.shape[1]:
            raise DecodeError(f"{len(events)} events do not pair with {len(interests)} interests")
        return answers.diagonal().copy()

    def match_messages(self, events: Bytes, interests: Bytes) -> Bools:
        """Match messages of clients that were greeted.

        Args:
            events: event messages, shape (events, event_bytes).
            interests: interest messages, shape (interests, interest_bytes).

        Returns:
            bool, shape (events, interests).

        Raises:
            DecodeError: some are no messages of such clients, their shares are malformed, or the
                brokers refuse a grant.
            ParameterError: clients need grants, and no authority is named.
        """
        require_width(self._matcher, events, "event")
        require_width(self._matcher, interests, "interest")
        answers = self._worked(events, interests, self._hellos, self._authority, self._grants)
        if self._matcher.reveal == "brokers":
            matched: Bools = answers[0]
            return matched
        heads = events[:, :HEAD_BYTES], interests[:, :HEAD_BYTES]
        total = np.zeros_like(answers[0].shares)
        for party, sealed in enumerate(answers):
            add_pads(party, self._clients[party], *heads, sealed.attempts, sealed.shares)
            total ^= sealed.shares
        return np.asarray(total.any(axis=2))

    def _worked(
        self,
        events: Bytes,
        interests: Bytes,
        hellos: Sequence[Sequence[bytes]],
        authority: Sequence[bytes] | None,
        grants: Sequence[Bytes],
    ) -> list[Any]:
        """Return the result of each of the three brokers for messages."""

        def serve(number: int, lower: LocalLink, upper: LocalLink) -> tuple[Any, Bools]:
            try:
                with Ring(number, lower, upper, self._matcher.digest) as ring:
                    named = None if authority is None else authority[number]
                    party = self._matcher.broker(number, self._keys[number], ring, authority=named)
                    for hello in hellos:
                        if hello[number] != named:
                            party.greet(hello[number])
                    for messages in grants:
                        if party.grant(sealed_part(number, messages, "grant")).any():
                            raise DecodeError("the brokers refuse a grant: " + _REFUSED_GRANTS)
                    return self._work(party, part_of(number, events), part_of(number, interests))
            finally:
                lower.close()
                upper.close()

        with ThreadPoolExecutor(PARTIES) as threads:
            links = enumerate(local_links())
            running = [threads.submit(serve, number, *pair) for number, pair in links]
            errors = [error for task in running if (error := task.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, NetworkError)):
            raise error
        answers, refused = zip(*(task.result() for task in running), strict=True)
        raise_for(refused[0].astype(np.uint8) * np.uint8(Cause.VALUE))
        return list(answers)

    def _work(self, party: Party, events: Bytes, interests: Bytes) -> tuple[Any, Bools]:
        lanes = party.subscribe(interests)
        if (lanes < 0).any():
            raise_for(party.examine("interest", interests))
            raise DecodeError("some interests are held differently by two brokers")
        if self._matcher.reveal == "brokers":
            return party.publish(events)
        return party.publish_for_subscribers(events)
