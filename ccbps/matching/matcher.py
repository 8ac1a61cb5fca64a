"""The interface all one-time matchers share: a public side, and the three roles it makes.

A `Matcher` is public: schema, sizes, fingerprint, leakage card. Its `Publisher` and `Subscriber`
hold shared randomness and encode; its `Broker` holds public parameters only and matches. What
differs between schemes is five methods of the matcher, whose names start with an underscore; what
must never differ is here: rounds are claimed before anything is encoded, every message has a
header, and the broker refuses what is not a message of its matcher.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccbps.circuits import Circuit
from ccbps.dictionary import DictionaryColumn, dictionary_of_strings, pair_column
from ccbps.errors import CcbpsError, DecodeError, ParameterError, PredicateError, ShapeError
from ccbps.leakage import LeakageCard
from ccbps.matching.parameters import Cost, PublicParameters
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.schema import Events
from ccbps.randomness import Pairs, RandomnessReader, RandomnessSource
from ccbps.rounds import RoundLedger, as_rounds
from ccbps.wire import HEADER_BYTES, raise_for

__all__ = ["Broker", "Interest", "Matcher", "Publisher", "Subscriber"]

Bytes = NDArray[np.uint8]
Rounds = NDArray[np.uint64]
Interest = str | Predicate | Circuit | Mapping[str, Any]
"""One subscription: a predicate, a circuit (where a matcher takes circuits), or values for a
matcher's private constants."""


class Matcher(PublicParameters, ABC):
    """Public parameters of a one-time matcher. Makes the three roles.

    Attributes:
        reusable, rounds, has_key_server, covering: False, True, False, False: what tells one-time
            matchers from reusable ones (`ccbps.matching.reusable`).
        operators: what predicates may use.
        schema: the events' attributes.
        private_names: names of the values an interest is a mapping of; None where an interest is a
            predicate (SQL text or `Predicate`).
        event_bytes, interest_bytes: bytes of one message, header included.
        randomness_bytes: bytes of shared randomness one round uses.
        fingerprint: 32 bytes that name these public parameters.
    """

    reusable: ClassVar[bool] = False
    rounds: ClassVar[bool] = True
    has_key_server: ClassVar[bool] = False
    covering: ClassVar[bool] = False
    operators: tuple[str, ...] = (
        "=", "<", "interval", "prefix", "in", "and", "or", "not", "at_least", "hamming",
    )  # fmt: skip

    schema: Schema
    private_names: tuple[str, ...] | None
    event_bytes: int
    interest_bytes: int
    randomness_bytes: int

    @property
    @abstractmethod
    def leakage(self) -> LeakageCard:
        """What the broker learns."""

    @property
    @abstractmethod
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role for a pair, as data."""

    @abstractmethod
    def explain(self) -> str:
        """Program size, bytes a side, predicted operations and the leakage card, as text."""

    def publisher(self, seed: RandomnessSource) -> Publisher:
        """The role that encodes events."""
        return Publisher(self, seed)

    def subscriber(self, seed: RandomnessSource) -> Subscriber:
        """The role that encodes predicates."""
        return Subscriber(self, seed)

    def broker(self) -> Broker:
        """The role that matches. It holds nothing secret."""
        return Broker(self)

    def _reader(
        self, source: RandomnessSource, rounds: Rounds, pairs: Pairs | None
    ) -> RandomnessReader:
        """The randomness of a batch of rounds, as `_encode_events` and its like read it."""
        return source.reader(self.fingerprint, self.randomness_bytes, rounds, pairs)

    @abstractmethod
    def _prepare(self, interest: Interest) -> Any:
        """What `_encode_interests` needs to know of one subscription; raises where it is none."""

    @abstractmethod
    def _encode_events(self, events: Events, reader: RandomnessReader, out: Bytes) -> None:
        """Write messages, shape (batch, event_bytes)."""

    @abstractmethod
    def _encode_interests(
        self, interests: DictionaryColumn[Any], reader: RandomnessReader, out: Bytes
    ) -> None:
        """Write messages, shape (batch, interest_bytes), for a column of prepared interests."""

    @abstractmethod
    def _examine(self, events: Bytes, interests: Bytes) -> tuple[NDArray[np.bool_], Bytes]:
        """Answers and `ccbps.wire.Cause`s of pairs of messages of the right widths."""

    def _event_chunks(self, event: Events, reader: RandomnessReader) -> Iterator[Bytes]:
        """One event's message in pieces; all at once unless a scheme's messages may be huge."""
        out = np.empty((1, self.event_bytes), dtype=np.uint8)
        self._encode_events(event, reader, out)
        yield out[0]

    def _interest_chunks(self, interest: Any, reader: RandomnessReader) -> Iterator[Bytes]:
        """One interest's message in pieces."""
        out = np.empty((1, self.interest_bytes), dtype=np.uint8)
        column = DictionaryColumn([interest], np.zeros(1, dtype=np.intp))
        self._encode_interests(column, reader, out)
        yield out[0]

    def _match_chunks(self, events: Iterable[Bytes], interests: Iterable[Bytes]) -> bool:
        """The answer for one event's and one interest's pieces."""
        ours, theirs = (
            np.frombuffer(b"".join(map(bytes, pieces)), dtype=np.uint8)
            for pieces in (events, interests)
        )
        return bool(self.broker().match(ours[None], theirs[None])[0])

    def _perfect(self, public: str, hidden: str) -> LeakageCard:
        """The card of a matcher whose broker learns the answers and nothing else.

        Args:
            public: the public parameters, in words.
            hidden: what is hidden of a subscription, in words.
        """
        return LeakageCard(
            scheme=type(self).__name__,
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=("every attribute of the event", hidden),
            learns=(
                "whether the event matches the predicate",
                f"public parameters: {public}",
                "which messages belong to one pair and round",
                "over many pairs, which are of one event or one subscription, as far as "
                "labels and rounds tell",
            ),
            security="perfect",
            assumption=(
                "each round's randomness is uniform, known to the pair only and used once; "
                "with SharedSeed instead of OneTimePad, AES-256-CTR and HKDF-SHA256 stand for it"
            ),
            reuse="one-time",
            hazards=(
                "a round used for two events or two predicates",
                "the broker and one of the two clients work together",
            ),
        )

    def _explain(self, title: str, lines: Iterable[tuple[str, str]]) -> str:
        """`explain`'s text: title, the scheme's own lines, then what all matchers say."""
        common = (
            (
                "messages",
                f"{self.event_bytes:,} bytes an event, {self.interest_bytes:,} bytes an interest "
                f"({HEADER_BYTES} of them header)",
            ),
            (
                "randomness",
                f"{self.randomness_bytes:,} bytes a round "
                f"({-(-self.randomness_bytes // 16):,} AES blocks)",
            ),
        )
        rows = [f"  {name + ':':<13}{text}" for name, text in (*lines, *common)]
        card = ["  " + line for line in str(self.leakage).splitlines()]
        return "\n".join([title, *rows, *card])


class _Encoder:
    """What publisher and subscriber have in common: a seed, and rounds that they never reuse."""

    def __init__(self, matcher: Matcher, seed: RandomnessSource) -> None:
        if not isinstance(seed, RandomnessSource):
            raise ParameterError(
                f"seed must be a SharedSeed, a SeedRing or a OneTimePad, got {type(seed).__name__}"
            )
        self.matcher = matcher
        self._seed = seed
        self._ledger = RoundLedger()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.matcher!r}>"

    def _claim(
        self, rounds: ArrayLike, count: int, pairs: Pairs | Sequence[str] | None
    ) -> RandomnessReader:
        """The reader of some rounds' randomness, which are used from now on."""
        numbers = as_rounds(rounds, count)
        column = pair_column(pairs, count)
        # A reader that cannot serve all rounds raises before any of them is claimed.
        reader = self.matcher._reader(self._seed, numbers, column)
        self._ledger.claim(numbers, column)
        return reader


def _output(out: Bytes | None, shape: tuple[int, int]) -> Bytes:
    if out is None:
        return np.empty(shape, dtype=np.uint8)
    if (
        not isinstance(out, np.ndarray)
        or out.shape != shape
        or out.dtype != np.uint8
        or not out.flags.c_contiguous
        or not out.flags.writeable
    ):
        found = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise ShapeError(
            f"out must be a writeable C-contiguous uint8 array of shape {shape}, got {found}"
        )
    return out


class Publisher(_Encoder):
    """Encodes events. Holds the seed; made by `Matcher.publisher`."""

    def encode(
        self,
        events: Any,
        rounds: ArrayLike,
        *,
        pairs: Pairs | Sequence[str] | None = None,
        out: Bytes | None = None,
    ) -> Bytes:
        """Messages for events, each under its own round.

        Args:
            events: `Events`, or any records `Schema.encode` takes.
            rounds: a round for each event.
            pairs: a pair label for each event, when the seed is a master for many pairs.
            out: where to write, C-contiguous uint8 of the result's shape; made when None.

        Returns:
            uint8, shape (events, event_bytes).

        Raises:
            EventError: a record does not fit the schema.
            RandomnessReuseError: a round was used before, or twice here; nothing is encoded.
            PadExhaustedError: the one-time pad ends before a round; nothing is encoded.
        """
        batch = self.matcher.schema.encode(events)
        out = _output(out, (batch.count, self.matcher.event_bytes))
        reader = self._claim(rounds, batch.count, pairs)
        if batch.count:
            self.matcher._encode_events(batch, reader, out)
        return out

    def encode_chunks(self, event: Any, round: int, *, pair: str | None = None) -> Iterator[Bytes]:
        """One event's message in pieces, for messages larger than memory.

        Args:
            event: one record, a mapping; or what `encode` takes, with one row.
            round: its round, used as soon as this is called.
            pair: a pair label, when the seed is a master for many pairs.

        Returns:
            an iterator of uint8 arrays; one after the other they are `encode`'s message.
        """
        schema = self.matcher.schema
        if isinstance(event, Mapping) and all(_is_scalar(event.get(name)) for name in schema):
            event = [event]
        batch = self.matcher.schema.encode(event)
        if batch.count != 1:
            raise ParameterError(f"encode_chunks takes one event, got {batch.count}")
        reader = self._claim([round], 1, None if pair is None else [pair])
        return self.matcher._event_chunks(batch, reader)


class Subscriber(_Encoder):
    """Encodes predicates. Holds the seed; made by `Matcher.subscriber`."""

    def encode(
        self,
        interest: Interest | Sequence[Interest] | DictionaryColumn[Interest],
        rounds: ArrayLike,
        *,
        pairs: Pairs | Sequence[str] | None = None,
        out: Bytes | None = None,
    ) -> Bytes:
        """Messages for one subscription in many rounds, or for a subscription a round.

        Args:
            interest: a predicate as SQL text or `Predicate`, or (where the matcher has
                `private_names`) a mapping from private names to values; or a sequence (or
                `DictionaryColumn`) of them, one a round.
            rounds: round numbers. Messages do not depend on events: provision them ahead.
            pairs: a pair label for each round, when the seed is a master for many pairs.
            out: where to write, C-contiguous uint8 of the result's shape; made when None.

        Returns:
            uint8, shape (rounds, interest_bytes).

        Raises:
            PredicateError: a predicate does not parse, does not fit the schema, or is more than
                the matcher can encode.
            RandomnessReuseError: a round was used before, or twice here; nothing is encoded.
            PadExhaustedError: the one-time pad ends before a round; nothing is encoded.
        """
        count = len(as_rounds(rounds, None))
        prepare = self.matcher._prepare
        if isinstance(interest, (str, Predicate, Circuit, Mapping)):
            prepared = DictionaryColumn([prepare(interest)], np.zeros(count, dtype=np.intp))
        else:
            if not isinstance(interest, (DictionaryColumn, Iterable)):
                prepare(interest)  # says what an interest is
            column = (
                interest if isinstance(interest, DictionaryColumn) else _interest_column(interest)
            )
            if len(column) != count:
                raise ParameterError(f"{len(column)} interests need as many rounds, got {count}")
            prepared = self._prepare_column(column.used())
        out = _output(out, (count, self.matcher.interest_bytes))
        reader = self._claim(rounds, count, pairs)
        if count:
            self.matcher._encode_interests(prepared, reader, out)
        return out

    def encode_chunks(
        self, interest: Interest, round: int, *, pair: str | None = None
    ) -> Iterator[Bytes]:
        """One interest's message in pieces; as `Publisher.encode_chunks`."""
        prepared = self.matcher._prepare(interest)
        reader = self._claim([round], 1, None if pair is None else [pair])
        return self.matcher._interest_chunks(prepared, reader)

    def _prepare_column(self, column: DictionaryColumn[Interest]) -> DictionaryColumn[Any]:
        values = []
        for number, value in enumerate(column.values):
            try:
                values.append(self.matcher._prepare(value))
            except CcbpsError as error:
                row = int(np.flatnonzero(column.index == number)[0])
                error.add_note(f"interest of row {row}")
                if isinstance(error, PredicateError):
                    error.row = row
                raise
        return DictionaryColumn(values, column.index)


def _interest_column(interests: Iterable[Interest]) -> DictionaryColumn[Any]:
    """One interest a row; equal ones become one value, so that each is prepared once."""
    rows = list(interests)
    texts = [interest for interest in rows if isinstance(interest, str)]
    if len(texts) == len(rows):
        return dictionary_of_strings(texts)
    numbers: dict[Any, int] = {}
    index = [numbers.setdefault(_identity(row), len(numbers)) for row in rows]
    first = np.unique(index, return_index=True)[1]
    return DictionaryColumn([rows[i] for i in first], np.array(index, dtype=np.intp))


def _identity(interest: Any) -> Any:
    """Equal for interests that are the same; a predicate is the same as itself only."""
    if isinstance(interest, (str, Circuit)):
        return interest
    if isinstance(interest, Mapping):
        # Types too: True is no 1 to a schema.
        items = tuple((name, type(value), value) for name, value in interest.items())
        try:
            hash(items)
        except TypeError:
            return id(interest)
        return items
    return id(interest)


def _is_scalar(value: Any) -> bool:
    """A value of one record, and no column."""
    return isinstance(value, (str, bytes)) or not hasattr(value, "__len__")


_SIDES: Final = (("events", "event_bytes"), ("interests", "interest_bytes"))


class Broker:
    """Matches messages. Holds public parameters only; made by `Matcher.broker`."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher

    def __repr__(self) -> str:
        return f"<Broker of {self.matcher!r}>"

    def match(self, events: Bytes, interests: Bytes) -> NDArray[np.bool_]:
        """Which pairs of messages match; row i of one belongs to row i of the other.

        Args:
            events: uint8, shape (batch, event_bytes).
            interests: uint8, shape (batch, interest_bytes).

        Returns:
            bool, shape (batch,).

        Raises:
            DecodeError: some bytes are not messages of this matcher, or two are of different
                pairs or rounds; names the rows.
        """
        answers, causes = self.examine(events, interests)
        raise_for(causes)
        return answers

    def examine(self, events: Bytes, interests: Bytes) -> tuple[NDArray[np.bool_], Bytes]:
        """As `match`, but refuses rows one by one.

        Returns:
            answers, shape (batch,), False where refused; and the `ccbps.wire.Cause` of each row.
        """
        for (name, attribute), rows in zip(_SIDES, (events, interests), strict=True):
            array, width = np.asarray(rows), getattr(self.matcher, attribute)
            if array is not rows or array.dtype != np.uint8 or array.shape[1:] != (width,):
                raise DecodeError(
                    f"{name} must be uint8 messages of {width} bytes, an array of shape "
                    f"(batch, {width}); got {type(rows).__name__} of {array.dtype} {array.shape}"
                )
        if len(events) != len(interests):
            raise DecodeError(f"{len(events)} events do not pair with {len(interests)} interests")
        answers, causes = self.matcher._examine(events, interests)
        answers[causes != 0] = False
        return answers, causes

    def match_chunks(self, events: Iterable[Bytes], interests: Iterable[Bytes]) -> bool:
        """The answer for one event and one interest whose messages come in pieces.

        Args:
            events, interests: what `encode_chunks` gave, in order; pieces may be cut elsewhere.

        Raises:
            DecodeError: the pieces are not two whole messages of one pair and round.
        """
        return self.matcher._match_chunks(events, interests)
