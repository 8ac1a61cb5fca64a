"""The roles of one-time matchers: two that encode with shared randomness, and one that matches.

A `Publisher` and a `Subscriber` hold shared randomness; a `Broker` holds public parameters only.
Rounds are claimed before anything is encoded, in memory or in a ledger on disk, and the broker
refuses what is not a message of its matcher.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccbps.arrays import Bytes
from ccbps.circuits import Circuit
from ccbps.dictionary import DictionaryColumn, dictionary_of_strings, pair_column
from ccbps.errors import CcbpsError, DecodeError, ParameterError, PredicateError, ShapeError
from ccbps.keys.ledger import DiskLedger
from ccbps.keys.pad import OneTimePad
from ccbps.keys.rounds import RoundLedger, as_rounds
from ccbps.keys.seeds import Pairs, RandomnessReader, RandomnessSource
from ccbps.predicates import Predicate
from ccbps.predicates.schema import Events
from ccbps.wire import raise_for

if TYPE_CHECKING:
    from ccbps.matching.matcher import Matcher

__all__ = ["Broker", "Interest", "Publisher", "Subscriber"]

Interest = str | Predicate | Circuit | Mapping[str, Any]
"""One subscription: a predicate, a circuit (where a matcher takes circuits), or values for a
matcher's private constants."""


CONTENT_BYTES: Final = 32
_ONE_MATCHER: Final = (
    "a ledger serves one pad, and a pad one matcher, as its bytes would be used twice: take "
    "another pad, and another ledger, for this matcher"
)


class _Encoder:
    """What publisher and subscriber have in common: a seed, and rounds that they never reuse."""

    _side: ClassVar[str]

    def __init__(
        self,
        matcher: Matcher,
        seed: RandomnessSource,
        ledger: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(seed, RandomnessSource):
            raise ParameterError(
                f"seed must be a SharedSeed, a SeedRing or a OneTimePad, got {type(seed).__name__}"
            )
        self.matcher = matcher
        self._seed = seed
        self._purpose = self._side.encode() + b" " + matcher.fingerprint
        self._disk = None if ledger is None else DiskLedger(ledger)
        self._owner = None
        if ledger is not None and isinstance(seed, OneTimePad):
            self._owner = DiskLedger(ledger, "one-time pad", _ONE_MATCHER)
        self._ledger = seed.ledger(self._side) if isinstance(seed, OneTimePad) else RoundLedger()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.matcher!r}>"

    def _claim(
        self,
        rounds: ArrayLike,
        count: int,
        pairs: Pairs | Sequence[str] | None,
        content: Callable[[], Bytes],
    ) -> RandomnessReader:
        """The reader of some rounds' randomness, which are used from now on.

        Args:
            content: what each row encodes, uint8, shape (count, a fixed width); for the disk.
        """
        numbers = as_rounds(rounds, count)
        column = pair_column(pairs, count)
        # A reader that cannot serve all rounds raises before any of them is claimed.
        reader = self.matcher._reader(self._seed, numbers, column)
        if not count:
            return reader
        if self._disk is None:
            self._ledger.claim(numbers, column)
            return reader
        # Roles over the same pad may not have a ledger on disk.
        if isinstance(self._seed, OneTimePad):
            self._ledger.check(numbers, inherited=True)
        if self._owner is not None and isinstance(self._seed, OneTimePad):
            # Rounds of two matchers are not the same bytes, so that their numbers say nothing.
            owner = self._seed.owner(self.matcher.fingerprint)
            self._owner.claim(np.zeros(1, dtype=np.uint64), owner)
            self._owner = None
        marks = self._seed.marks(self._purpose, numbers, column, content())
        self._disk.claim(numbers, marks, column)
        if isinstance(self._seed, OneTimePad) and not self._ledger.forked:
            self._ledger.claim(numbers)
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
    """Encodes events. Holds the seed; made by `Matcher.publisher`.

    Example:
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import BranchingMatch
        >>> matcher = BranchingMatch.box(Schema(price=UInt(16), volume=UInt(16)))
        >>> seed = SharedSeed.generate()
        >>> publisher = matcher.publisher(seed)
        >>> publisher.encode({"price": [119, 120], "volume": [5, 5]}, rounds=[0, 1]).shape
        (2, 276)
        >>> publisher.encode([{"price": 1, "volume": 1}], rounds=[1])
        Traceback (most recent call last):
            ...
        ccbps.errors.RandomnessReuseError: round 1 was already used by this role; ...
    """

    _side = "publisher"

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
            RandomnessReuseError: a round was used before, or twice here; nothing is encoded. With
                a ledger on disk a round may be used again for the same event.
            LedgerError: the ledger on disk cannot be used; nothing is encoded.
            PadExhaustedError: the one-time pad ends before a round; nothing is encoded.
        """
        batch = self.matcher.schema.encode(events)
        out = _output(out, (batch.count, self.matcher.event_bytes))
        reader = self._claim(rounds, batch.count, pairs, lambda: _event_content(batch))
        if batch.count:
            self.matcher._encode_events(batch, reader, out)
        return out

    def encode_chunks(self, event: Any, round: int, *, pair: str | None = None) -> Iterator[Bytes]:
        """One event's message in pieces, for messages larger than memory.

        Args:
            event: one record, a mapping; or what `encode` takes, with one row.
            round: its round, which counts as used as soon as this is called.
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
        labels = None if pair is None else [pair]
        reader = self._claim([round], 1, labels, lambda: _event_content(batch))
        return self.matcher._event_chunks(batch, reader)


class Subscriber(_Encoder):
    """Encodes predicates. Holds the seed; made by `Matcher.subscriber`.

    Example:
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import BranchingMatch
        >>> matcher = BranchingMatch.box(Schema(price=UInt(16), volume=UInt(16)))
        >>> seed = SharedSeed.generate()
        >>> subscriber = matcher.subscriber(seed)
        >>> subscriber.encode("price < 120", rounds=range(1000)).shape      # for events to come
        (1000, 276)
        >>> subscriber.encode(["price < 120", "volume > 5"], rounds=[1000, 1001]).shape
        (2, 276)
    """

    _side = "subscriber"

    def encode(
        self,
        interest: Interest | Sequence[Interest] | DictionaryColumn[Interest],
        rounds: ArrayLike,
        *,
        pairs: Pairs | Sequence[str] | None = None,
        out: Bytes | None = None,
    ) -> Bytes:
        """Messages for one subscription in many rounds, or for one subscription per round.

        Args:
            interest: a predicate as SQL text or `Predicate`, or (where the matcher has
                `private_names`) a mapping from private names to values; or a sequence (or
                `DictionaryColumn`) of them, one per round.
            rounds: round numbers. Messages do not depend on events: provision them ahead.
            pairs: a pair label for each round, when the seed is a master for many pairs.
            out: where to write, C-contiguous uint8 of the result's shape; made when None.

        Returns:
            uint8, shape (rounds, interest_bytes).

        Raises:
            PredicateError: a predicate does not parse, does not fit the schema, or is more than
                the matcher can encode.
            RandomnessReuseError: a round was used before, or twice here; nothing is encoded. With
                a ledger on disk a round may be used again for the same predicate.
            LedgerError: the ledger on disk cannot be used; nothing is encoded.
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
        reader = self._claim(rounds, count, pairs, lambda: self._content(prepared))
        if count:
            self.matcher._encode_interests(prepared, reader, out)
        return out

    def encode_chunks(
        self, interest: Interest, round: int, *, pair: str | None = None
    ) -> Iterator[Bytes]:
        """One interest's message in pieces; as `Publisher.encode_chunks`."""
        prepared = self.matcher._prepare(interest)
        column = DictionaryColumn([prepared], np.zeros(1, dtype=np.intp))
        labels = None if pair is None else [pair]
        reader = self._claim([round], 1, labels, lambda: self._content(column))
        return self.matcher._interest_chunks(prepared, reader)

    def _content(self, prepared: DictionaryColumn[Any]) -> Bytes:
        """32 bytes per row that tell what it encodes."""
        hashed = [
            blake2b(self.matcher._content(value), digest_size=CONTENT_BYTES).digest()
            for value in prepared.values
        ]
        table = np.frombuffer(b"".join(hashed), dtype=np.uint8).reshape(-1, CONTENT_BYTES)
        return table[prepared.index]

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


def _event_content(events: Events) -> Bytes:
    """The codes of each record, shape (events, 8 bytes per limb)."""
    codes = np.concatenate([events.codes[name] for name in events.schema])
    return np.ascontiguousarray(codes.T.astype(">u8")).view(np.uint8)


def _interest_column(interests: Iterable[Interest]) -> DictionaryColumn[Any]:
    """One interest per row; equal ones become one value, so that each is prepared once."""
    rows = list(interests)
    texts = [interest for interest in rows if isinstance(interest, str)]
    if len(texts) == len(rows):
        return dictionary_of_strings(texts)
    numbers: dict[Any, int] = {}
    index = [numbers.setdefault(_identity(row), len(numbers)) for row in rows]
    first = np.unique(index, return_index=True)[1]
    return DictionaryColumn([rows[i] for i in first], np.array(index, dtype=np.intp))


def _identity(interest: Any) -> Any:
    """Equal for interests that are the same; a predicate is the same only as itself."""
    if isinstance(interest, (str, Circuit)):
        return interest
    if isinstance(interest, Mapping):
        # Types too: True is no 1 to a schema. And folds: the hour that clocks repeat in autumn is
        # twice the same to ==.
        items = tuple(
            (name, type(value), value, getattr(value, "fold", 0))
            for name, value in interest.items()
        )
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
    """Matches messages. Holds public parameters only; made by `Matcher.broker`.

    Example:
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import BranchingMatch
        >>> matcher = BranchingMatch.box(Schema(price=UInt(16), volume=UInt(16)))
        >>> seed = SharedSeed.generate()
        >>> events = matcher.publisher(seed).encode([{"price": 119, "volume": 5}], rounds=[0])
        >>> interests = matcher.subscriber(seed).encode("price < 120", rounds=[0])
        >>> broker = matcher.broker()
        >>> broker.match(events, interests)
        array([ True])
        >>> answers, causes = broker.examine(events, events)      # refuses row by row
        >>> answers, causes.astype(bool)
        (array([False]), array([ True]))
    """

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
            events, interests: what `encode_chunks` gave, in order, as uint8 arrays of one
                dimension or as bytes; pieces may be cut elsewhere.

        Raises:
            DecodeError: the pieces are not two whole messages of one pair and round, in order, or
                something is not a piece of bytes.
        """
        return self.matcher._match_chunks(_pieces(events, "event"), _pieces(interests, "interest"))


def _pieces(pieces: Iterable[Any], name: str) -> Iterator[Bytes]:
    """Pieces of a message as arrays, and nothing cast: `match` would refuse it too."""
    for piece in pieces:
        array = piece
        if not isinstance(piece, np.ndarray):
            try:
                view = memoryview(piece)
            except TypeError:
                view = None
            if view is not None and view.itemsize == 1 and view.ndim == 1 and view.contiguous:
                array = np.frombuffer(view, dtype=np.uint8)
        if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 1:
            found = (
                f"{array.dtype} {array.shape}"
                if isinstance(array, np.ndarray)
                else type(piece).__name__
            )
            raise DecodeError(
                f"a piece of the {name} message must be bytes, or a uint8 array of one dimension, "
                f"got {found}"
            )
        yield array
