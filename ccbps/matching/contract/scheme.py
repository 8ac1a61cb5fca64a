"""What every matching scheme implements: its mathematics, its sizes, its costs and its card.

A scheme knows nothing of headers, key files, rounds, blocks, Arrow or Spark: these are the roles'
(`ccbps.matching.contract.roles`), which are the same for all. Two questions tell schemes apart:

- *keying*: where does the randomness come from that makes messages private? From a seed that a
  publisher and a subscriber share, used once for each pair (`Keying.ROUNDS`); from a key server,
  again and again (`Keying.SERVER`); or from an exchange between the two (`Keying.SESSION`).
- *answers*: who finds out what? The broker, for a pair of messages (`Answers.PAIRS`); the broker,
  for every event and every interest of a table (`Answers.ALL`); or the subscriber
  (`Answers.SUBSCRIBER`).

A scheme derives from one of `PairScheme`, `TableScheme` and `SessionScheme`; from `ServerScheme`
if it has a key server, from `RoundScheme` if it has rounds; and from
`ccbps.matching.contract.matcher.Matcher`, which gives it roles, text form, equality, pickling and
an explanation. All arrays of bytes are bodies: messages without what the roles put in front of them
and behind.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar, Final, Self

import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import CcbpsError, ParameterError
from ccbps.keys.role_key import Role
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.bodies import Draw, Sizes
from ccbps.matching.contract.costs import Cost
from ccbps.matching.contract.interests import bound_predicate
from ccbps.matching.contract.kinds import Answers, Keying, Operator, Side
from ccbps.predicates import Events, Predicate, Schema
from ccbps.wire import ROUND_VERSION


class Scheme(ABC):
    """The public side of a scheme, and what all schemes do.

    Attributes:
        name: in fingerprints and texts; of one word or a few, never changed.
        version: of the scheme's messages; others are refused as another matcher's.
        keying: where the randomness comes from.
        answers: who learns what matches.
        covering: whether the broker can tell that one interest covers another.
        operators: what predicates may use.
        instead: what to take in its place where it is broken.
        schema: the events' attributes.
        private_names: names of the values that an interest is a mapping of; None where an interest
            is a predicate (SQL text or `Predicate`).
        sizes: bytes of bodies and of shared randomness.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    keying: ClassVar[Keying]
    answers: ClassVar[Answers]
    covering: ClassVar[bool] = False
    operators: tuple[Operator, ...]
    instead: ClassVar[str] = (
        "TagMatch, which shows less, or a one-time matcher, such as FormulaMatch, which shows "
        "the answer only"
    )

    schema: Schema
    private_names: tuple[str, ...] | None = None
    sizes: Sizes

    def __new__(cls, schema: Schema, *arguments: Any, **options: Any) -> Self:
        # Here, so that every scheme's constructor may use the schema from its first line on.
        if not isinstance(schema, Schema):
            raise ParameterError(
                f"schema must be a ccbps.Schema, got {type(schema).__name__}; make one with "
                "Schema(price=UInt(16), ...)"
            )
        return super().__new__(cls)

    # -- public parameters ----------------------------------------------------------------------

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Everything public but the schema, as JSON: what `from_parameters` takes."""

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> Self:
        """The scheme with these `parameters`, which are the constructor's unless overridden.

        Raises:
            ParameterError: they are not this scheme's.
        """
        return cls(schema, **parameters)

    def describe(self) -> dict[str, Any]:
        """All public parameters, as JSON: what the fingerprint is of."""
        return {
            "scheme": self.name,
            "version": self.version,
            "schema": self.schema.describe(),
            "parameters": self.parameters(),
            "layout": self.layout(),
        }

    def layout(self) -> Any:
        """What messages look like, as JSON, where it follows from the parameters by a computation
        that another version of this library may do differently."""
        return None

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that name the public parameters."""
        return sha256(json.dumps(self.describe(), sort_keys=True).encode()).digest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scheme):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    @abstractmethod
    def leakage(self) -> LeakageCard:
        """What the broker learns, what it does not, and the known attacks."""

    @property
    @abstractmethod
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""

    @classmethod
    def propose(cls, schema: Schema, wanted: Predicate) -> Iterator[Self]:
        """Matchers of this scheme that take a predicate, cheapest first; none if there are none.

        Hazard: a matcher is public, and its sizes, topics or points may follow from `wanted`, its
        constants too: how long a program is, which attributes have one value. Ask for a predicate
        that may be known, such as one of the same form with other constants.

        Args:
            schema: the events' attributes.
            wanted: a predicate. A template with private constants finds the schemes that have
                public templates; for the others, give it values: only its form should matter.
        """
        try:
            made = cls(schema)
            made.prepare(wanted)
        except CcbpsError:
            return
        yield made

    # -- interests ------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, interest: Any) -> Any:
        """One subscription, parsed and checked, as `encode_interests` takes it.

        The only truth about which interests the scheme takes.

        Raises:
            PredicateError: it cannot be used.
            ParameterError: it is not an interest at all.
        """

    def meaning(self, interest: Any, events: Events) -> Bools:
        """What the broker will answer, computed in plaintext, shape (events,).

        The meaning of the predicate, or of what a scheme widens it to; false positives that are
        left to chance do not count.
        """
        return bound_predicate(self.schema, interest).evaluate(events)

    # -- messages -------------------------------------------------------------------------------

    @abstractmethod
    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """Write bodies, uint8, shape (count, sizes.event). There is at least one event.

        Args:
            key: the publisher's key data from `ServerScheme.issue`; empty for rounds.
            events: encoded by the schema.
            draw: the only source of randomness.
            out: rows are contiguous, one row after another need not be.
        """

    @abstractmethod
    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Any], draw: Draw, out: Bytes
    ) -> None:
        """Write bodies, shape (rows, sizes.interest), of prepared interests, each distinct one once
        in the column. As `encode_events`."""

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        """`ccbps.wire.Cause` of each body that is malformed by itself; 0 for the others."""
        return np.zeros(len(bodies), dtype=np.uint8)


class ServerScheme(Scheme):
    """A scheme whose keys come from a key server. Key data is JSON.

    Attributes:
        key_options: by role, what may be said of a key beside its name.
    """

    keying = Keying.SERVER
    key_options: ClassVar[Mapping[Role, tuple[str, ...]]] = {}

    @abstractmethod
    def generate(self, randomness: Randomness) -> dict[str, Any]:
        """A fresh master key."""

    @abstractmethod
    def issue(
        self,
        master: dict[str, Any],
        role: Role,
        name: str,
        randomness: Randomness,
    ) -> dict[str, Any]:
        """The key data of one party. A broker's never holds more than the broker may know.

        May change `master`, where the server remembers its clients. What `key_options` names comes
        as keywords.
        """

    def rotate(
        self, master: Mapping[str, Any], randomness: Randomness
    ) -> tuple[dict[str, Any], Any]:
        """The next epoch's master key; and what brings stored interests there, None if they must
        be encoded again."""
        return self.generate(randomness), None

    def update(self, change: Any, interests: Bytes) -> Bytes:
        """Bodies of interests as the next epoch's, by what `rotate` returned."""
        raise ParameterError(
            f"interests of {type(self).__name__} cannot be updated; encode them again"
        )

    def revoke(self, master: dict[str, Any], role: Role, name: str) -> bytes:
        """Take a user off the master's list; the identifier that brokers are to forget."""
        raise ParameterError(
            f"{type(self).__name__} cannot lock out one user; call rotate() and give keys to all "
            "others"
        )

    def forget(self, key: dict[str, Any], user: bytes) -> None:
        """Take a user off a broker's key."""
        raise ParameterError(f"{type(self).__name__} has no users of their own")

    def admit(self, key: dict[str, Any], newer: Mapping[str, Any]) -> None:
        """Take into a broker's key what a newer one of the same epoch has; not forgotten users."""
        key.update(newer)

    def users(self, key: Mapping[str, Any]) -> tuple[str, ...]:
        """Users in a master's or a broker's key, where the scheme has any."""
        return ()


class RoundScheme(Scheme):
    """A scheme whose publisher and subscriber share a seed, each round of which is used once.

    Attributes:
        broadcast: one event serves all interests of its round: randomness belongs to the round
            alone, and pair labels tell subscriptions apart.
    """

    keying = Keying.ROUNDS
    broadcast: ClassVar[bool] = False

    def describe(self) -> dict[str, Any]:
        """See `Scheme.describe`."""
        return {**super().describe(), "rounds": ROUND_VERSION}

    @abstractmethod
    def identify(self, prepared: Any) -> bytes:
        """Bytes that tell a prepared interest from all others: for a ledger of rounds."""


def is_broadcast(scheme: Scheme) -> bool:
    """Whether one event of the scheme serves all interests of its round."""
    return isinstance(scheme, RoundScheme) and scheme.broadcast


class PairScheme(RoundScheme):
    """A scheme whose broker answers for an event and an interest of one pair and round."""

    answers = Answers.PAIRS

    @abstractmethod
    def match_pairs(
        self, events: Bytes, interests: Bytes, skip: int, heads: Bytes
    ) -> tuple[Bools, Bytes]:
        """Answers of pairs, and the `ccbps.wire.Cause` of each malformed one; shape (batch,).

        Args:
            events, interests: whole messages, whose bodies begin after `skip` bytes.
            heads: shape (2, batch, skip), where the first `skip` bytes of events and interests are
                to be copied: best while they are in the cache anyway.
        """


class TableScheme(Scheme):
    """A scheme whose broker answers for all events and all interests of a table."""

    answers = Answers.ALL

    @abstractmethod
    def table(self, key: Mapping[str, Any], bodies: Bytes) -> Any:
        """What the broker keeps of some interests, at least one, all well-formed."""

    def open_events(self, key: Mapping[str, Any], bodies: Bytes) -> Any:
        """What the broker computes of some events once, whatever interests they meet; here, the
        bodies. At least one, all well-formed."""
        return bodies

    @abstractmethod
    def match(self, key: Mapping[str, Any], events: Any, table: Any) -> Bools:
        """Answers for all pairs, shape (events, interests), of what `open_events` and `table`
        returned."""

    def match_rows(self, key: Mapping[str, Any], events: Bytes, interests: Bytes) -> Bools:
        """Answers for row i of one and row i of the other, shape (batch,); well-formed only."""
        distinct, index = np.unique(interests, axis=0, return_inverse=True)
        out = np.zeros(len(events), dtype=np.bool_)
        order = np.argsort(index.reshape(-1), kind="stable")
        edges = np.flatnonzero(np.diff(index.reshape(-1)[order], prepend=-1)).tolist()
        for number, (low, high) in enumerate(zip(edges, [*edges[1:], len(order)], strict=True)):
            rows = order[low:high]
            table = self.table(key, distinct[number : number + 1])
            for start in range(0, len(rows), MATCH_ROWS):
                some = rows[start : start + MATCH_ROWS]
                opened = self.open_events(key, events[some])
                out[some] = self.match(key, opened, table)[:, 0]
        return out

    def covers(self, key: Mapping[str, Any], wide: Any, narrow: Any) -> Bools:
        """Which interests of table `wide` cover which of `narrow`: every match of the one is one
        of the other; shape (wide, narrow). Only where `covering` is true."""
        raise ParameterError(f"{type(self).__name__} does not support covering")


class SessionScheme(Scheme):
    """A scheme whose publishers and subscribers talk first; its roles keep what they agreed on.

    Its subscriber decides, and the broker relays. What goes to and fro is the roles' own
    (`ccbps.matching.session`): requests, answers to them, events. `sizes` are those of an event
    before anybody has asked, and of a request.
    """

    keying = Keying.SESSION
    answers = Answers.SUBSCRIBER

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """Refuses: events depend on what a publisher has agreed on."""
        raise ParameterError(_BY_ROLES.format(type(self).__name__))

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Any], draw: Draw, out: Bytes
    ) -> None:
        """Refuses: a request belongs to the subscriber that made it."""
        raise ParameterError(_BY_ROLES.format(type(self).__name__))


_BY_ROLES: Final = "messages of {} are made by its roles, which keep what they agreed on"


MATCH_ROWS: Final = 1 << 12
"""Events matched with all interests at a time."""
