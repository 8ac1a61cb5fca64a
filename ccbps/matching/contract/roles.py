"""The publisher and the subscriber, the same for every scheme, and columns of interests.

A `Publisher` and a `Subscriber` hold a seed or a key; a `Broker` holds public parameters, or the
key that the scheme lets a broker have. Randomness is claimed before anything is encoded, and equal
interests are prepared once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike

from ccbps import primitives
from ccbps.arrays import Bytes, Randomness
from ccbps.circuits import Circuit
from ccbps.dictionary import DictionaryColumn, dictionary_of_strings
from ccbps.errors import CcbpsError, ParameterError, PredicateError, ShapeError
from ccbps.keys.secret import Confined
from ccbps.keys.used_rounds import as_rounds
from ccbps.matching.contract.access import (
    Labels,
    RoleName,
    SharesAccess,
    access,
)
from ccbps.matching.contract.scheme import Interest, Keying, PairScheme, Scheme
from ccbps.predicates import Events, Predicate
from ccbps.predicates.schema import told_apart

CONTENT_BYTES: Final = 32
_NO_ROWS: Final = DictionaryColumn[Any]([], np.zeros(0, dtype=np.intp))


class MatcherRole(Confined):
    """A role of a matcher, with its secrets."""

    _role: ClassVar[RoleName]

    def __init__(
        self,
        matcher: Scheme,
        key: Any,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> None:
        self.matcher = matcher
        self._access = access(matcher, self._role, key, ledger, randomness)

    @property
    def epoch(self) -> int:
        """Epoch of the key; 0 where there is none."""
        return self._access.epoch

    @property
    def hellos(self) -> tuple[bytes, bytes, bytes]:
        """Messages that give brokers 0, 1 and 2 this client's keys; send each once.

        Raises:
            ParameterError: the matcher does not have three brokers.
        """
        return self._shares.client.hellos

    @property
    def client(self) -> bytes:
        """Public name of this client of three brokers, 16 bytes, for an authority's grants.

        It follows from the client's key and the matcher.

        Raises:
            ParameterError: the matcher does not have three brokers.
        """
        return self._shares.client.keys.client

    def seal(self, messages: Bytes) -> Bytes:
        """Seal messages that pass through broker 0, which cannot read the other brokers' parts.

        Args:
            messages: messages that this role made, shape (count, bytes).

        Returns:
            uint8, shape (count, sealed bytes).

        Raises:
            ParameterError: the matcher does not have three brokers.
        """
        return self._shares.seal(messages)

    @property
    def _shares(self) -> SharesAccess:
        if not isinstance(self._access, SharesAccess):
            raise ParameterError(f"{type(self.matcher).__name__} has one broker, and no hellos")
        return self._access

    def __repr__(self) -> str:
        epoch = f", epoch {self.epoch}" if self.matcher.keying is Keying.SERVER else ""
        return f"<{type(self).__name__} of {self.matcher!r}{epoch}>"


class Publisher(MatcherRole):
    """Encodes events. Holds a seed or a key; made by `Matcher.publisher`.

    Example:
        One-time messages, each under its round:

        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import FormulaMatch, TagMatch
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> matcher = FormulaMatch.box(schema)
        >>> publisher = matcher.publisher(SharedSeed.generate())
        >>> publisher.encode({"price": [119, 120], "volume": [5, 5]}, rounds=[0, 1]).shape
        (2, 47)
        >>> publisher.encode([{"price": 1, "volume": 1}], rounds=[1])
        Traceback (most recent call last):
            ...
        ccbps.errors.RandomnessReuseError: round 1 was already used by this role; ...

        Reusable messages:

        >>> reusable = TagMatch(schema)
        >>> publisher = reusable.publisher(reusable.key_server().publisher_key())
        >>> len(publisher.encode({"price": [119, 120], "volume": [5, 5]}))
        2
    """

    _role = "publisher"

    def encode(
        self,
        events: Any,
        rounds: ArrayLike | None = None,
        *,
        pairs: Labels = None,
        out: Bytes | None = None,
    ) -> Bytes:
        """Encode events.

        Args:
            events: `Events`, or any records `Schema.encode` takes.
            rounds: a round for each event, where the matcher has rounds.
            pairs: a pair label for each event, where the seed is a master of many pairs.
            out: array to write to, C-contiguous uint8 of the result's shape; a new one by default.

        Returns:
            uint8, shape (events, event_bytes).

        Raises:
            EventError: a record does not fit the schema.
            ParameterError: rounds are missing, or given where there are none.
            RandomnessReuseError: a round was used before, or occurs twice in `rounds`; nothing is
                encoded. With a ledger on disk a round may be used again for the same event.
            LedgerError: the ledger on disk cannot be used; nothing is encoded.
            PadExhaustedError: the one-time pad ends before a round; nothing is encoded.
        """
        batch = self.matcher.schema.encode(events)
        used = None if rounds is None else as_rounds(rounds, batch.count)
        width, body = self._access.layout["event"]
        out = output(out, (batch.count, width))
        draw = self._access.open(used, batch.count, pairs, lambda: event_content(batch), out)
        if batch.count:
            self.matcher.encode_events(self._access.key, batch, draw, out[:, body])
            self._access.authenticate(out)
        return out


class Subscriber(MatcherRole):
    """Encodes predicates. Holds a seed or a key; made by `Matcher.subscriber`.

    Example:
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import FormulaMatch, TagMatch
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> matcher = FormulaMatch.box(schema)
        >>> subscriber = matcher.subscriber(SharedSeed.generate())
        >>> subscriber.encode("price < 120", rounds=range(1000)).shape      # for events to come
        (1000, 49)
        >>> subscriber.encode(["price < 120", "volume > 5"], rounds=[1000, 1001]).shape
        (2, 49)
        >>> reusable = TagMatch(schema)
        >>> subscriber = reusable.subscriber(reusable.key_server().subscriber_key("alice"))
        >>> len(subscriber.encode(["price < 120", "volume > 5"]))
        2
    """

    _role = "subscriber"
    _last: tuple[object, DictionaryColumn[Any]] = object(), _NO_ROWS

    def encode(
        self,
        interest: Interest | Sequence[Interest] | DictionaryColumn[Interest],
        rounds: ArrayLike | None = None,
        *,
        pairs: Labels = None,
        out: Bytes | None = None,
    ) -> Bytes:
        """Encode one subscription or several; or one in many rounds.

        Args:
            interest: a predicate as SQL text or `Predicate`, or (where the matcher has
                `private_names`) a mapping from private names to values; or a sequence or
                `DictionaryColumn` of these.
            rounds: a round for each interest, where the matcher has rounds; or any number of rounds
                for a single interest. Messages do not depend on events: encode them ahead.
            pairs: a pair label for each round, where the seed is a master of many pairs.
            out: array to write to, C-contiguous uint8 of the result's shape; a new one by default.

        Returns:
            uint8, shape (rounds or interests, interest_bytes).

        Raises:
            PredicateError: a predicate does not parse, does not fit the schema, or is not one that
                the matcher can encode; `row` is its place among several.
            ParameterError, RandomnessReuseError, LedgerError, PadExhaustedError: as
                `Publisher.encode`.
        """
        used = None if rounds is None else as_rounds(rounds, None)
        count = None if used is None else len(used)
        if is_one_interest(interest):
            prepared = self._repeated(interest, 1 if count is None else count)
        else:
            column = interest_column(interest)  # type: ignore[arg-type]
            if count is not None and len(column) != count:
                raise ParameterError(f"{len(column)} interests need as many rounds, got {count}")
            prepared = self._prepared(column)
        width, body = self._access.layout["interest"]
        messages = len(prepared)
        out = output(out, (messages, width))
        draw = self._access.open(used, messages, pairs, lambda: self._content(prepared), out)
        if messages:
            self.matcher.encode_interests(self._access.key, prepared, draw, out[:, body])
            self._access.authenticate(out)
        return out

    def _repeated(self, interest: Any, rows: int) -> DictionaryColumn[Any]:
        """Prepare one interest for some rows; keep it, as the next call may have it again."""
        kept, column = self._last
        if kept is not interest or len(column) != rows:
            values = column.values if kept is interest else [self.matcher.prepare(interest)]
            column = DictionaryColumn(values, np.zeros(rows, dtype=np.intp))
            # A mapping may be changed by then.
            if isinstance(interest, str | Predicate):
                self._last = interest, column
        return column

    def _content(self, prepared: DictionaryColumn[Any]) -> Bytes:
        """Return a hash of each row's interest, shape (rows, 32)."""
        assert isinstance(self.matcher, PairScheme)
        hashed = [
            primitives.blake2b(self.matcher.identify(value), digest_size=CONTENT_BYTES).digest()
            for value in prepared.values
        ]
        rows = np.frombuffer(b"".join(hashed), dtype=np.uint8).reshape(-1, CONTENT_BYTES)
        return rows[prepared.index]

    def _prepared(self, column: DictionaryColumn[Interest]) -> DictionaryColumn[Any]:
        """Prepare each value of a column; an error names the value's first row."""
        values = []
        for number, value in enumerate(column.values):
            try:
                values.append(self.matcher.prepare(value))
            except CcbpsError as error:
                row = int(np.flatnonzero(column.index == number)[0])
                error.add_note(f"interest of row {row}")
                if isinstance(error, PredicateError):
                    error.row = row
                raise
        return DictionaryColumn(values, column.index)


def output(out: Bytes | None, shape: tuple[int, int]) -> Bytes:
    """Return the array to write messages to: a new one, or the caller's if it fits.

    Raises:
        ShapeError: `out` does not fit.
    """
    if out is None:
        return np.empty(shape, dtype=np.uint8)
    if isinstance(out, np.ndarray):
        if out.dtype == np.uint8 and out.shape == shape and out.flags.carray:
            return out
        came = f"{out.dtype} {out.shape}"
    else:
        came = type(out).__name__
    raise ShapeError(
        f"out must be a writeable C-contiguous uint8 array of shape {shape}, got {came}"
    )


def event_content(events: Events) -> Bytes:
    """Return the codes of each record, shape (events, 8 bytes per limb)."""
    codes = np.concatenate([events.codes[name] for name in events.schema])
    return np.ascontiguousarray(codes.T.astype(">u8")).view(np.uint8)


def is_one_interest(interest: Any) -> bool:
    """Tell a single interest from several. Any other value counts as one, and is refused later."""
    return isinstance(interest, str | Predicate | Circuit | Mapping) or not isinstance(
        interest, DictionaryColumn | Iterable
    )


def interest_column(
    interests: Sequence[Interest] | DictionaryColumn[Interest],
) -> DictionaryColumn[Any]:
    """Return one interest per row; equal interests become one value, which is prepared once."""
    if isinstance(interests, DictionaryColumn):
        return interests.used()
    rows = list(interests)
    texts = [interest for interest in rows if isinstance(interest, str)]
    if len(texts) == len(rows):
        return dictionary_of_strings(texts)
    numbers: dict[Any, int] = {}
    index = [numbers.setdefault(_identity(row), len(numbers)) for row in rows]
    first = np.unique(index, return_index=True)[1]
    return DictionaryColumn([rows[i] for i in first], np.array(index, dtype=np.intp))


def _identity(interest: Any) -> Any:
    """Return a value that differs for different interests, and is equal for most equal ones."""
    if isinstance(interest, Predicate):
        return interest.identity()
    if isinstance(interest, str | Circuit):
        return interest
    constants = told_apart(interest) if isinstance(interest, Mapping) else None
    return id(interest) if constants is None else constants
