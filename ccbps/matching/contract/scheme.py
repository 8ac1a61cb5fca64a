"""The contract that every matching scheme implements: its mathematics, sizes, costs and card.

A scheme knows nothing of headers, key files, rounds, blocks, Arrow or Spark. These belong to the
roles (`ccbps.matching.contract.roles`), which are the same for all. Two questions tell schemes
apart:

- *keying*: which secret makes messages private? A seed that publisher and subscriber share, each
  round of which is used once (`Keying.ROUNDS`); keys from a key server, used again and again
  (`Keying.SERVER`); keys that publisher and subscriber exchange (`Keying.SESSION`); or keys that
  each client agrees on with three brokers (`Keying.BROKERS`).
- *answers*: who learns which answers? The broker, for one pair of messages (`Answers.PAIRS`), for
  the event and all interests of a round (`Answers.ROUND`), or for every event and every interest
  of a table (`Answers.ALL`); three brokers together (`Answers.TOGETHER`); or the subscriber
  (`Answers.SUBSCRIBER`).

A scheme derives from one of `PairScheme`, `TableScheme`, `SharesScheme` and `SessionScheme`; from
`ServerScheme` if it has a key server; and from `ccbps.matching.contract.matcher.Matcher`, which
gives it roles, text form, equality, pickling and an explanation. All arrays of bytes are bodies:
messages without the header and the MAC, which the roles add.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from msgspec import Struct

from ccbps import primitives
from ccbps.arrays import Bools, Bytes, Randomness, Rounds
from ccbps.checks import Printable, Redacted
from ccbps.circuits import Circuit
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import CcbpsError, ParameterError
from ccbps.keys.role_key import Role
from ccbps.leakage import LeakageCard
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.wire import ROUND_VERSION

MATCH_ROWS: Final = 1 << 12
"""Number of events matched with all interests at a time."""
_BY_ROLES: Final = "messages of {} are made by its roles, which keep what they agreed on"

Interest = str | Predicate | Circuit | Mapping[str, Any]
"""One subscription: a predicate, a circuit (where a matcher takes circuits), or values for a
matcher's private constants."""
Operator = Literal["=", "<", "interval", "prefix", "in", "and", "or", "not", "at_least", "hamming"]
Side = Literal["event", "interest"]


class Keying(Enum):
    """Sources of a scheme's randomness.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import Keying, TagMatch
        >>> TagMatch(Schema(price=UInt(8))).keying is Keying.SERVER
        True
    """

    ROUNDS = "rounds"
    """A seed that publisher and subscriber share; each round of it is used once."""
    SERVER = "server"
    """A key server; messages are made once and used again and again."""
    SESSION = "session"
    """Messages between publisher and subscriber, before there are events."""
    BROKERS = "brokers"
    """Public keys of three brokers; messages are made once and used again and again."""


REUSABLE: Final = (Keying.SERVER, Keying.BROKERS)
"""Keyings whose messages are made with a key alone, without rounds or numbers."""


class Answers(Enum):
    """Parties that learn the answers, with the messages that these are about.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import Answers, FormulaMatch
        >>> FormulaMatch.box(Schema(price=UInt(8))).answers is Answers.PAIRS
        True
    """

    PAIRS = "pairs"
    """The broker, for an event and an interest that were made for each other."""
    ROUND = "round"
    """The broker, for the event of a round and every interest of it: one event serves all."""
    ALL = "all"
    """The broker, for every event and every interest."""
    TOGETHER = "together"
    """Three brokers together, for every event and every interest; or, with their help and by the
    matcher's choice, the subscriber."""
    SUBSCRIBER = "subscriber"
    """The subscriber, for its own interests."""


class Operation(Enum):
    """Units in which a scheme's cost is counted.

    Example:
        >>> from ccbps.matching import Operation
        >>> Operation.AES_BLOCK.value
        'AES block'
    """

    WORD = "64-bit word operation"
    BIT = "bit operation"
    COMPARISON = "comparison"
    MULTIPLICATION = "64-bit multiplication"
    AES_BLOCK = "AES block"
    HASH_BLOCK = "SHA-256 block"
    GROUP_PRODUCT = "product in a small group"
    MODULAR_PRODUCT = "modular product"
    LEGENDRE_SYMBOL = "Legendre symbol"
    EXPONENTIATION = "exponentiation"
    FIXED_BASE = "exponentiation of a fixed base"
    PAIRING = "pairing of a product"
    SIGNATURE = "signature made and checked"


class Cost(Struct, frozen=True):
    """One line of a scheme's cost: operations that can be counted, and priced on a machine.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import Operation, TagMatch
        >>> for cost in TagMatch(Schema(price=UInt(8))).costs:
        ...     if cost.role == "broker" and cost.operation is Operation.AES_BLOCK:
        ...         print(f"per {cost.per}: {cost}")
        per pair: ...

    Attributes:
        role: the party that pays: "publisher", "subscriber" or "broker".
        per: the unit of work: "event", "interest" or "pair".
        operation: the operation that is counted.
        count: number of operations for each unit.
        of: the group, modulus or exponent, where the operation depends on it: "modp2048",
            "4096 bits".
        note: a qualification: "at most", "for each topic".
    """

    role: Literal["publisher", "subscriber", "broker"]
    per: Literal["event", "interest", "pair"]
    operation: Operation
    count: float
    of: str = ""
    note: str = ""

    def __str__(self) -> str:
        of, note = f" ({self.of})" if self.of else "", f", {self.note}" if self.note else ""
        return f"{self.count:,.15g} x {self.operation.value}{of}{note}"


class Sizes(Struct, frozen=True):
    """Sizes of bodies and of shared randomness, in bytes.

    Attributes:
        event: bytes of an event's body.
        interest: bytes of an interest's body.
        randomness: bytes shared in one piece of one round; 0 where nothing is shared.
        pieces: number of pieces of a message, each with randomness of its own.
        event_per_request: bytes by which an event grows for every request that was answered, in
            schemes with sessions.
    """

    event: int
    interest: int
    randomness: int = 0
    pieces: int = 1
    event_per_request: int = 0


def _not_shared(start: int, stop: int, piece: int = 0) -> Bytes:
    raise ParameterError("a scheme with a key server shares no randomness of rounds")


def _no_rounds(start: int, stop: int) -> Rounds:
    raise ParameterError("messages of this scheme have no rounds")


class Draw(Redacted, frozen=True):
    """Randomness for one call of an encoder.

    Attributes:
        fresh: ``fresh(n)`` gives n uniform bytes that nobody else has.
        shared: ``shared(start, stop, piece)`` gives rows of `Sizes.randomness` uniform bytes that
            publisher and subscriber have in common, for one piece of messages start .. stop - 1.
            Ask for each of them once, and for a message's first piece first.
        tags: ``tags(start, stop)`` gives 7 public bytes of each of these messages, the same on both
            sides. Ask for them after the first piece.
        rounds: ``rounds(start, stop)`` gives the numbers of these messages' rounds. They are the
            same on both sides, and public only if a scheme sends them.
        payload_keys: ``payload_keys(start, stop)`` gives 16 secret bytes of each of these events,
            by which a subscriber opens its payload; for schemes with three brokers.
    """

    fresh: Randomness
    shared: Callable[[int, int, int], Bytes] = _not_shared
    tags: Callable[[int, int], Bytes] = _not_shared
    rounds: Callable[[int, int], Rounds] = _no_rounds
    payload_keys: Callable[[int, int], Bytes] = _not_shared

    def rows(self, start: int, stop: int) -> Bytes:
        """Return the shared randomness of messages start .. stop - 1 that have one piece."""
        return self.shared(start, stop, 0)


class Scheme(Printable, ABC):
    """The public side of a scheme, with the methods of all schemes.

    Attributes:
        name: short name in fingerprints and texts; never changed.
        version: version of the scheme's messages; messages of other versions are refused.
        keying: source of the randomness.
        answers: party that learns the answers.
        covering: True if the broker can tell that one interest covers another.
        operators: operators that predicates may use.
        instead: advice in the warning of a broken scheme.
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
        """Return everything public but the schema, as JSON, for `from_parameters`."""

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> Self:
        """Make the scheme with these `parameters`, which are the constructor's unless overridden.

        Raises:
            ParameterError: the parameters are not this scheme's.
        """
        return cls(schema, **parameters)

    def describe(self) -> dict[str, Any]:
        """Return all public parameters, as JSON; the fingerprint is their hash."""
        return {
            "scheme": self.name,
            "version": self.version,
            "schema": self.schema.describe(),
            "parameters": self.parameters(),
            "layout": self.layout(),
        }

    def layout(self) -> Any:
        """Return the layout of messages, as JSON.

        Override this where the layout follows from the parameters by a computation that another
        version of this library may do differently.
        """
        return None

    @property
    def fingerprint(self) -> str:
        """Name of the public parameters, 64 hexadecimal digits: `digest` as text."""
        return self.digest.hex()

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the public parameters, 32 bytes, which names them in messages and keys."""
        return primitives.sha256(json.dumps(self.describe(), sort_keys=True).encode()).digest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scheme):
            return NotImplemented
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    @abstractmethod
    def leakage(self) -> LeakageCard:
        """Leakage card: the broker's view, and the known attacks."""

    @property
    @abstractmethod
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        """Yield matchers of this scheme that take a predicate, cheapest first; perhaps none.

        Hazard: a matcher is public. Its sizes, topics or points may follow from the predicate and
        its constants: the length of a program, the attributes that have one value. Ask for a
        predicate that may be known, such as one of the same form with other constants.

        Args:
            schema: the events' attributes.
            predicate: a predicate. A template with private constants finds the schemes that have
                public templates; for the others, give it values: only its form should matter.
        """
        try:
            matcher = cls(schema)
            matcher.prepare(predicate)
        except CcbpsError:
            return
        yield matcher

    @classmethod
    def variants(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        """Yield the matchers of this scheme that a planner compares.

        By default, those of `propose`. Override this where other parameters may cost less or show
        less. The hazard of `propose` is the same.
        """
        yield from cls.propose(schema, predicate)

    # -- interests ------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, interest: Any) -> Any:
        """Parse and check one subscription, for `encode_interests`.

        A scheme takes exactly the interests that this method takes.

        Raises:
            PredicateError: the interest cannot be used.
            ParameterError: `interest` is no interest at all.
        """

    def meaning(self, interest: Any, events: Events) -> Bools:
        """Return in plaintext the answers that the broker will give, shape (events,).

        They are the predicate's, or those of a wider interest that the scheme makes of it. False
        positives that are left to chance do not count.
        """
        return bound_predicate(self.schema, interest).evaluate(events)

    # -- messages -------------------------------------------------------------------------------

    @abstractmethod
    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """Write bodies of events, uint8, shape (count, sizes.event). There is at least one event.

        Args:
            key: the publisher's key data from `ServerScheme.issue`; empty for rounds.
            events: events, encoded by the schema.
            draw: the only source of randomness.
            out: array to write to. Each row is contiguous; rows need not follow one another.
        """

    @abstractmethod
    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Any], draw: Draw, out: Bytes
    ) -> None:
        """Write bodies of prepared interests, shape (rows, sizes.interest), as `encode_events`.

        The column holds each distinct interest once.
        """

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        """Return the `ccbps.wire.Cause` of each body that is malformed by itself; 0 for others."""
        return np.zeros(len(bodies), dtype=np.uint8)


class ServerScheme(Scheme):
    """A scheme whose keys come from a key server. Key data is JSON.

    Attributes:
        key_options: names of the options of a key beside its name, by role.
    """

    keying = Keying.SERVER
    key_options: ClassVar[Mapping[Role, tuple[str, ...]]] = {}

    @abstractmethod
    def generate(self, randomness: Randomness) -> dict[str, Any]:
        """Make a fresh master key."""

    @abstractmethod
    def issue(
        self, master: dict[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        """Make the key data of one party. A broker's never holds more than the broker may know.

        It may change `master`, where the server remembers its clients. Options that `key_options`
        names come as keywords.
        """

    def check_key_data(self, role: Role, data: Mapping[str, Any]) -> None:
        """Check the key data of one role, or the master key's, which anybody may have altered.

        All other methods must accept data that pass this check.

        Raises:
            LookupError, TypeError, ValueError: it is not what `generate` or `issue` gives. The
                caller raises an error of its own, which shows nothing of the key.
        """

    def check_change(self, change: Any) -> None:
        """Check a change that `rotate` gave, as `check_key_data` checks keys."""

    def rotate(
        self, master: Mapping[str, Any], randomness: Randomness
    ) -> tuple[dict[str, Any], Any]:
        """Make the next epoch's master key, and the change that updates stored interests to it.

        The change is None if interests must be encoded again.
        """
        return self.generate(randomness), None

    def update(self, change: Any, interests: Bytes) -> Bytes:
        """Turn bodies of interests into the next epoch's, by the change from `rotate`."""
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
        """Add a newer key's users, except forgotten ones, to a broker's key of the same epoch."""
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
        return {**super().describe(), "rounds": ROUND_VERSION}

    @abstractmethod
    def identify(self, prepared: Any) -> bytes:
        """Return bytes that tell a prepared interest from all others, for a ledger of rounds."""

    @abstractmethod
    def match_pairs(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        """Answer pairs of bodies.

        Args:
            events: bodies, uint8, shape (batch, sizes.event). The bytes of a row are contiguous;
                rows need not follow one another, since they are parts of whole messages.
            interests: bodies, uint8, shape (batch, sizes.interest), as for events.

        Returns:
            The answers, and the `ccbps.wire.Cause` of each malformed pair, 0 for the others; each
            of shape (batch,).
        """

    def match_behind(self, events: Bytes, interests: Bytes, heads: Bytes) -> tuple[Bools, Bytes]:
        """Answer pairs of bodies that follow other bytes, and copy these other bytes.

        Override this where a kernel does both in one pass over the memory. That makes
        FormulaMatch about 1.05 times as fast as two passes, and BranchingMatch 1.15 times.

        Args:
            events: rows of uint8; each is some bytes and an event's body.
            interests: rows of uint8; each is as many bytes and an interest's body.
            heads: array to write to, shape (2, batch, bytes in front of a body).

        Returns:
            As `match_pairs`.
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
            interests: bodies, as in `match_pairs`.
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
        """Return the broker's form of some interests, at least one, all well-formed."""

    def open_events(self, key: Mapping[str, Any], bodies: Bytes) -> Any:
        """Return the broker's form of some events, computed once for all interests they meet.

        By default, the bodies. There is at least one event, and all are well-formed.
        """
        return bodies

    @abstractmethod
    def match(self, key: Mapping[str, Any], events: Any, table: Any) -> Bools:
        """Answer all pairs of the forms of `open_events` and `table`, shape (events, interests)."""

    def match_rows(self, key: Mapping[str, Any], events: Bytes, interests: Bytes) -> Bools:
        """Answer events[i] with interests[i], shape (batch,); all bodies are well-formed."""
        bodies = np.ascontiguousarray(interests)
        # Rows as single items: `unique` compares them at once, and along an axis byte by byte.
        items = bodies.view(f"V{bodies.shape[1]}").reshape(-1)
        _, first, index = np.unique(items, return_index=True, return_inverse=True)
        distinct, index = bodies[first], index.reshape(-1)
        out = np.zeros(len(events), dtype=np.bool_)
        if len(events) and (events == events[0]).all():
            # One event: all interests are prepared together.
            opened = self.open_events(key, events[:1])
            parts = (
                self.table(key, distinct[start : start + MATCH_ROWS])
                for start in range(0, len(distinct), MATCH_ROWS)
            )
            return np.concatenate([self.match(key, opened, part)[0] for part in parts])[index]
        order = np.argsort(index, kind="stable")
        edges = np.flatnonzero(np.diff(index[order], prepend=-1)).tolist()
        for number, (low, high) in enumerate(zip(edges, [*edges[1:], len(order)], strict=True)):
            rows = order[low:high]
            table = self.table(key, distinct[number : number + 1])
            for start in range(0, len(rows), MATCH_ROWS):
                batch = rows[start : start + MATCH_ROWS]
                opened = self.open_events(key, events[batch])
                out[batch] = self.match(key, opened, table)[:, 0]
        return out

    def covers(self, key: Mapping[str, Any], wide: Any, narrow: Any) -> Bools:
        """Return the pairs in which a wide interest covers a narrow one, shape (wide, narrow).

        To cover is to match every event that the narrow interest matches. Called only where
        `covering` is true.
        """
        raise ParameterError(f"{type(self).__name__} does not support covering")


class SharesScheme(Scheme):
    """A scheme whose messages are secret-shared between three brokers, which answer together.

    `Draw.shared` gives the mask of a body: the sum of its first two shares.
    """

    keying = Keying.BROKERS
    answers = Answers.TOGETHER


class SessionScheme(Scheme):
    """A scheme whose publishers and subscribers agree on keys before there are events.

    The subscriber decides, and the broker relays. The roles make messages of their own
    (`ccbps.matching.session`): requests, answers to requests, events. `sizes.event` is the size of
    an event before any request, and `sizes.interest` that of a request.
    """

    keying = Keying.SESSION
    answers = Answers.SUBSCRIBER

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """Refuse: events depend on a publisher's agreements."""
        raise ParameterError(_BY_ROLES.format(type(self).__name__))

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Any], draw: Draw, out: Bytes
    ) -> None:
        """Refuse: a request belongs to the subscriber that made it."""
        raise ParameterError(_BY_ROLES.format(type(self).__name__))
