"""The interface all reusable matchers share: no rounds, a key server, all pairs of a batch.

A one-time matcher (`ccbps.matching.matcher`) costs a message for every pair; a reusable one
encrypts each event and each subscription once, and leaks something in return: read its card. The
verbs are the same. What differs is stated as data on the matcher: `reusable`, `rounds`,
`has_key_server`, `covering`, `operators`.

    matcher = AdditiveMaskMatch(schema)
    server = matcher.key_server()                              # holds the master key
    publisher = matcher.publisher(server.publisher_key())
    subscriber = matcher.subscriber(server.subscriber_key("alice"))
    broker = matcher.broker(server.broker_key())
    events, interests = publisher.encode(records), subscriber.encode(["price < 3", "price = 9"])
    broker.match_all(events, interests)                        # bool (events, interests)

What differs between schemes is the methods of `ReusableMatcher` whose names start with an
underscore; rows of bytes go in and out of them without headers.

A matcher whose card says "broken" warns when it is made, and its repr says it, too.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, SupportsIndex

import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.errors import BrokenSchemeWarning, ParameterError
from ccbps.keys.role_key import KEY_ID_BYTES, Role, RoleKey
from ccbps.keys.secret import Confined
from ccbps.leakage import LeakageCard
from ccbps.matching.parameters import (
    Cost,
    PublicParameters,
    bound_predicate,
    check_key,
    fingerprint_of,
)
from ccbps.matching.reusable_roles import ReusableBroker, ReusablePublisher, ReusableSubscriber
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.schema import Events
from ccbps.wire import HEADER_BYTES

__all__ = ["KeyServer", "ReusableMatcher"]


_again: ContextVar[bool] = ContextVar("_again", default=False)
"""Whether a matcher is made again that somebody was already told is broken."""


class ReusableMatcher(PublicParameters, ABC):
    """Public parameters of a reusable matcher. Makes the key server and the three roles.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import ReusableMatcher, TagMatch
        >>> matcher = TagMatch(Schema(price=UInt(8)))
        >>> isinstance(matcher, ReusableMatcher), matcher.reusable
        (True, True)
        >>> print(matcher.explain())
        TagMatch over price (8 bits)
        ...

    Attributes:
        schema: the events' attributes.
        operators: what predicates may use: of "=", "<", "interval", "prefix", "and", "or",
            "at_least", "in".
        instead: what to take in its place where it is broken.
        covering: whether the broker can tell that one interest covers another.
        event_bytes: bytes of one event message, header included.
        interest_bytes: bytes of one interest message, header included.
        fingerprint: 32 bytes that name these public parameters.
    """

    reusable: ClassVar[bool] = True
    rounds: ClassVar[bool] = False
    has_key_server: ClassVar[bool] = True
    covering: ClassVar[bool] = False
    operators: ClassVar[tuple[str, ...]] = ()
    instead: ClassVar[str] = (
        "TagMatch, which shows less, or a one-time matcher, such as BranchingMatch, which shows "
        "the answer only"
    )
    scheme: ClassVar[str]
    version: ClassVar[int] = 1
    """Of the scheme's messages and keys; others are refused as another matcher's."""

    schema: Schema
    event_bytes: int
    interest_bytes: int

    def _set_up(
        self, schema: Schema, event_body: int, interest_body: int, parameters: Mapping[str, Any]
    ) -> None:
        """To be called at the end of the constructor, once the card can be made, with the bytes of
        the bodies and all other public parameters (JSON)."""
        self.schema = schema
        self.event_bytes = HEADER_BYTES + event_body
        self.interest_bytes = HEADER_BYTES + interest_body
        scheme = f"{self.scheme} {self.version}"
        described = {"scheme": scheme, "schema": schema.describe(), **parameters}
        self.fingerprint = fingerprint_of(described)
        card = self.leakage
        if card.security == "broken" and not _again.get():
            warnings.warn(
                f"{card.scheme} is broken: its broker can read the data. Known attack: "
                f"{card.attacks[0]}. Take {self.instead}. All attacks: print(matcher.leakage)",
                BrokenSchemeWarning,
                stacklevel=3,
            )

    def __repr__(self) -> str:
        broken = " [broken]" if self.leakage.security == "broken" else ""
        return f"<{type(self).__name__}{broken} over {', '.join(self.schema)}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """As the scheme's `__reduce__` says, without another warning in every process and batch."""
        made = self.__reduce__()
        assert isinstance(made, tuple)
        return _made_again, made[:2], *made[2:]

    @property
    @abstractmethod
    def leakage(self) -> LeakageCard:
        """What the broker learns, and the known attacks."""

    @property
    @abstractmethod
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role, as data."""

    def explain(self) -> str:
        """Bytes per side, operations and the leakage card, as text."""
        lines = [
            f"{type(self).__name__} over {', '.join(self.schema)} ({self.schema.bits} bits)",
            f"  operators:   {', '.join(self.operators)}",
            f"  messages:    {self.event_bytes:,} bytes per event, {self.interest_bytes:,} bytes "
            f"per interest ({HEADER_BYTES} of them header); reusable"
            + (", covering" if self.covering else ""),
        ]
        lines += [
            f"  {cost.role + ':':<13}per {cost.per}: {cost.count:,g} x {cost.operation}"
            for cost in self.costs
        ]
        return "\n".join([*lines, *("  " + line for line in str(self.leakage).splitlines())])

    def key_server(self, key: RoleKey | None = None) -> KeyServer:
        """A key server with a fresh master key, or with the one that `KeyServer.key` gave out."""
        return KeyServer(self, key)

    def publisher(self, key: RoleKey, *, randomness: Randomness = os.urandom) -> ReusablePublisher:
        """The role that encrypts events."""
        return ReusablePublisher(self, key, "publisher", randomness)

    def subscriber(
        self, key: RoleKey, *, randomness: Randomness = os.urandom
    ) -> ReusableSubscriber:
        """The role that encrypts predicates."""
        return ReusableSubscriber(self, key, "subscriber", randomness)

    def broker(self, key: RoleKey) -> ReusableBroker:
        """The role that matches. Its key holds what the scheme gives the broker, often nothing."""
        return ReusableBroker(self, key, "broker", os.urandom)

    # -- what schemes implement ---------------------------------------------------------------

    @abstractmethod
    def _generate(self, randomness: Randomness) -> dict[str, Any]:
        """A fresh master key, as JSON data."""

    @abstractmethod
    def _issue(
        self, master: Mapping[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        """The key data of one party. A broker's never hold more than the broker may know.

        For schemes in which the server keeps something for each user: change `master["users"]`.
        """

    @abstractmethod
    def _encode_events(
        self, key: Mapping[str, Any], events: Events, out: Bytes, randomness: Randomness
    ) -> None:
        """Write bodies, shape (count, event body)."""

    @abstractmethod
    def _prepare(self, interest: Any) -> Any:
        """One subscription, parsed and checked; raises PredicateError where it cannot be used."""

    @abstractmethod
    def _encode_interests(
        self,
        key: Mapping[str, Any],
        interests: Sequence[Any],
        out: Bytes,
        randomness: Randomness,
    ) -> None:
        """Write bodies of prepared interests, shape (len(interests), interest body)."""

    def _check_events(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        """`Cause` of each event body that is malformed; 0 for the others."""
        return np.zeros(len(bodies), dtype=np.uint8)

    def _check_interests(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        """`Cause` of each interest body that is malformed; 0 for the others."""
        return np.zeros(len(bodies), dtype=np.uint8)

    @abstractmethod
    def _table(self, key: Mapping[str, Any], bodies: Bytes) -> Any:
        """What the broker keeps of interests, computed once (well-formed bodies only)."""

    @abstractmethod
    def _match_all(self, key: Mapping[str, Any], events: Bytes, table: Any) -> Bools:
        """Answers for all pairs, shape (events, interests); well-formed bodies only."""

    def _covers(self, key: Mapping[str, Any], wide: Any, narrow: Any) -> Bools:
        """Which interests of table `wide` cover which of `narrow`: every match of the one is one
        of the other; shape (wide, narrow)."""
        raise ParameterError(f"{type(self).__name__} does not support covering")

    def _predicate(self, interest: Any) -> Predicate:
        """SQL text or a `Predicate` of this schema, with all its constants."""
        return bound_predicate(self.schema, interest)


def _made_again(make: Callable[..., ReusableMatcher], arguments: tuple[Any, ...]) -> Any:
    """What was pickled or copied."""
    token = _again.set(True)
    try:
        return make(*arguments)
    finally:
        _again.reset(token)


class KeyServer(Confined):
    """Holds the master key and gives each party what it may know.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import TagMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = TagMatch(schema, topic=["issue"])
        >>> server = matcher.key_server()
        >>> master = server.key.to_text()                    # keep it where nobody else may read it
        >>> from ccbps.matching import RoleKey
        >>> again = matcher.key_server(RoleKey.from_text(master))
        >>> again.publisher_key() == server.publisher_key()
        True

    Attributes:
        epoch: that of the keys that are given out now.
    """

    def __init__(self, matcher: ReusableMatcher, key: RoleKey | None = None) -> None:
        self.matcher = matcher
        if key is None:
            data = matcher._generate(os.urandom)
            key = RoleKey.make(matcher.fingerprint, "server", os.urandom(KEY_ID_BYTES), 0, data)
        check_key(matcher, key, "server")
        self._id, self.epoch, self._master = key.key_id, key.epoch, key.export_secret_data()

    def __repr__(self) -> str:
        return f"<KeyServer of {self.matcher!r}, epoch {self.epoch}>"

    @property
    def key(self) -> RoleKey:
        """The master key, to save it. Whoever has it can read everything."""
        return self._key("server", self._master)

    def publisher_key(self, name: str = "publisher") -> RoleKey:
        """The key of a publisher."""
        return self._issued("publisher", name)

    def subscriber_key(self, name: str) -> RoleKey:
        """The key of a subscriber."""
        return self._issued("subscriber", name)

    def broker_key(self) -> RoleKey:
        """The key of a broker: public parameters, or what the scheme lets it hold for users."""
        return self._issued("broker", "broker")

    def _issued(self, role: Role, name: str) -> RoleKey:
        return self._key(role, self.matcher._issue(self._master, role, name, os.urandom))

    def _key(self, role: Role, data: Mapping[str, Any]) -> RoleKey:
        return RoleKey.make(self.matcher.fingerprint, role, self._id, self.epoch, data)
