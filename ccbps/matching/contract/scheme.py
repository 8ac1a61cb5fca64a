"""What every matching scheme implements: its mathematics, its sizes, its costs and its card.

A scheme knows nothing of headers, key files, rounds, blocks, Arrow or Spark: these are the roles'
(`ccbps.matching.contract.roles`), which are the same for all. Two questions tell schemes apart:

- *keying*: where does the randomness come from that makes messages private? From a seed that a
  publisher and a subscriber share, used once for each pair (`Keying.ROUNDS`); from a key server,
  again and again (`Keying.SERVER`); or from an exchange between the two (`Keying.SESSION`).
- *answers*: who finds out what? The broker, for a pair of messages (`Answers.PAIRS`); the broker,
  for the event of a round and all interests of it (`Answers.ROUND`); the broker, for every event
  and every interest of a table (`Answers.ALL`); or the subscriber (`Answers.SUBSCRIBER`).

A scheme derives from one of `PairScheme`, `TableScheme` and `SessionScheme`; from `ServerScheme`
if it has a key server; and from `ccbps.matching.contract.matcher.Matcher`, which gives it roles,
text form, equality, pickling and an explanation. All arrays of bytes are bodies: messages without
what the roles put in front of them and behind.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
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
        """Return everything public but the schema, as JSON: what `from_parameters` takes."""

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> Self:
        """Make the scheme with these `parameters`, which are the constructor's unless overridden.

        Raises:
            ParameterError: they are not this scheme's.
        """
        return cls(schema, **parameters)

    def describe(self) -> dict[str, Any]:
        """Return all public parameters, as JSON: what the fingerprint is of."""
        return {
            "scheme": self.name,
            "version": self.version,
            "schema": self.schema.describe(),
            "parameters": self.parameters(),
            "layout": self.layout(),
        }

    def layout(self) -> Any:
        """Return what messages look like, as JSON.

        Only where it follows from the parameters by a computation that another version of this
        library may do differently.
        """
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
        """Yield matchers of this scheme that take a predicate, cheapest first; perhaps none.

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
        """Parse and check one subscription, as `encode_interests` takes it.

        The only truth about which interests the scheme takes.

        Raises:
            PredicateError: it cannot be used.
            ParameterError: it is not an interest at all.
        """

    def meaning(self, interest: Any, events: Events) -> Bools:
        """Compute in plaintext what the broker will answer, shape (events,).

        The meaning of the predicate, or of what a scheme widens it to; false positives that are
        left to chance do not count.
        """
        return bound_predicate(self.schema, interest).evaluate(events)

    # -- messages -------------------------------------------------------------------------------

    @abstractmethod
    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """Write bodies of events, uint8, shape (count, sizes.event). There is at least one event.

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
        """Write bodies of prepared interests, shape (rows, sizes.interest); as `encode_events`.

        Each distinct interest is in the column once.
        """

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        """Return the `ccbps.wire.Cause` of each body that is malformed by itself; 0 for others."""
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
        """Make a fresh master key."""

    @abstractmethod
    def issue(
        self,
        master: dict[str, Any],
        role: Role,
        name: str,
        randomness: Randomness,
    ) -> dict[str, Any]:
        """Make the key data of one party. A broker's never holds more than the broker may know.

        May change `master`, where the server remembers its clients. What `key_options` names comes
        as keywords.
        """

    def rotate(
        self, master: Mapping[str, Any], randomness: Randomness
    ) -> tuple[dict[str, Any], Any]:
        """Make the next epoch's master key, and what brings stored interests there.

        The latter is None if they must be encoded again.
        """
        return self.generate(randomness), None

    def update(self, change: Any, interests: Bytes) -> Bytes:
        """Turn bodies of interests into the next epoch's, by what `rotate` returned."""
        raise ParameterError(
            f"interests of {type(self).__name__} cannot be updated; encode them again"
        )

    def revoke(self, master: dict[str, Any], role: Role, name: str) -> bytes:
        """Take a user off the master's list; return the identifier that brokers are to forget."""
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
        """Return the users in a master's or a broker's key, where the scheme has any."""
        return ()


class PairScheme(Scheme):
    """A scheme whose broker answers for an event and an interest of one pair and round.

    Publisher and subscriber share a seed, each round of which is used once. Where `answers` is
    `Answers.ROUND`, randomness belongs to the round alone: its event serves all interests, and pair
    labels tell subscriptions apart.
    """

    keying = Keying.ROUNDS
    answers = Answers.PAIRS

    def describe(self) -> dict[str, Any]:
        """See `Scheme.describe`."""
        return {**super().describe(), "rounds": ROUND_VERSION}

    @abstractmethod
    def identify(self, prepared: Any) -> bytes:
        """Return bytes that tell a prepared interest from all others: for a ledger of rounds."""

    @abstractmethod
    def match_pairs(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        """Answer pairs of bodies.

        Args:
            events: bodies, uint8, shape (batch, sizes.event). The bytes of a row are contiguous;
                rows need not follow one another, since they are parts of whole messages.
            interests: bodies, uint8, shape (batch, sizes.interest), likewise.

        Returns:
            The answers, and the `ccbps.wire.Cause` of each malformed pair, 0 for the others; each
            of shape (batch,).
        """

    def match_behind(self, events: Bytes, interests: Bytes, heads: Bytes) -> tuple[Bools, Bytes]:
        """Answer pairs of bodies that stand behind other bytes, and copy these.

        Override this where a kernel does both in one pass over the memory. That makes
        FormulaMatch about 1.05 times as fast as two passes, and BranchingMatch without compiled
        kernels 1.15 times.

        Args:
            events: rows of uint8; each is some bytes and an event's body.
            interests: likewise.
            heads: shape (2, batch, bytes in front of a body); written here.

        Returns:
            What `match_pairs` returns.
        """
        start = heads.shape[2]
        heads[0], heads[1] = events[:, :start], interests[:, :start]
        return self.match_pairs(events[:, start:], interests[:, start:])

    def check_tags(
        self, events: Bytes, interests: Bytes, tags: Callable[[int, int], Bytes]
    ) -> Bytes:
        """Return the `ccbps.wire.Cause` of each pair whose bodies hold other tags than its own.

        Override this in a scheme whose bodies hold `Draw.tags`.

        Args:
            events: bodies, as in `match_pairs`.
            interests: bodies, likewise.
            tags: ``tags(start, stop)`` gives the tags of these pairs, as `Draw.tags` does.

        Returns:
            uint8, shape (batch,); 0 where nothing is wrong.
        """
        return np.zeros(len(events), dtype=np.uint8)


class TableScheme(Scheme):
    """A scheme whose broker answers for all events and all interests of a table."""

    answers = Answers.ALL

    @abstractmethod
    def table(self, key: Mapping[str, Any], bodies: Bytes) -> Any:
        """Prepare what the broker keeps of some interests, at least one, all well-formed."""

    def open_events(self, key: Mapping[str, Any], bodies: Bytes) -> Any:
        """Compute what the broker needs of some events once, whatever interests they meet.

        Here, the bodies. There is at least one event, and all are well-formed.
        """
        return bodies

    @abstractmethod
    def match(self, key: Mapping[str, Any], events: Any, table: Any) -> Bools:
        """Answer all pairs, shape (events, interests), from what `open_events` and `table` made."""

    def match_rows(self, key: Mapping[str, Any], events: Bytes, interests: Bytes) -> Bools:
        """Answer row i of one with row i of the other, shape (batch,); well-formed only."""
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
        """Tell which interests of table `wide` cover which of `narrow`, shape (wide, narrow).

        Every match of the narrow one is a match of the wide one. Only where `covering` is true.
        """
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
        """Refuse: events depend on what a publisher has agreed on."""
        raise ParameterError(_BY_ROLES.format(type(self).__name__))

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Any], draw: Draw, out: Bytes
    ) -> None:
        """Refuse: a request belongs to the subscriber that made it."""
        raise ParameterError(_BY_ROLES.format(type(self).__name__))


_BY_ROLES: Final = "messages of {} are made by its roles, which keep what they agreed on"


MATCH_ROWS: Final = 1 << 12
"""Events matched with all interests at a time."""
