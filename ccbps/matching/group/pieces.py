"""Messages in pieces, for matchers whose messages may be larger than memory.

A message of several segments can be made, sent and matched piece by piece (`encode_chunks`,
`match_chunks`); one after the other, the pieces are the message that `encode` makes. Only matchers
by group programs have messages that long.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ccbps.arrays import Bytes, Randomness
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.randomness import RandomnessSource
from ccbps.keys.role_key import RoleKey
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.roles import Publisher, Subscriber, event_content
from ccbps.matching.contract.scheme import Draw, Interest, PairScheme
from ccbps.predicates import Events
from ccbps.wire import (
    ROUND_HEADER_BYTES,
    Cause,
    Kind,
    check_round_headers,
    raise_for,
    round_tags,
)


class PieceMatcher(Matcher, PairScheme):
    """A matcher whose roles can do with messages in pieces."""

    @abstractmethod
    def event_pieces(self, event: Events, draw: Draw) -> Iterator[Bytes]:
        """The body of one event in pieces, uint8, of one dimension."""

    @abstractmethod
    def interest_pieces(self, prepared: Any, draw: Draw) -> Iterator[Bytes]:
        """The body of one prepared interest in pieces, uint8, of one dimension."""

    @abstractmethod
    def match_pieces(
        self, event: PieceReader, interest: PieceReader, tag: Bytes
    ) -> tuple[bool, Cause]:
        """The answer for two bodies, or why they are refused.

        Args:
            tag: of their round, shape (1, TAG_BYTES).

        Raises:
            DecodeError: a body ends too early, or goes on.
        """

    def publisher(
        self,
        key: RandomnessSource | RoleKey,
        *,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> PiecePublisher:
        """See `Matcher.publisher`."""
        return PiecePublisher(self, key, ledger, randomness)

    def subscriber(
        self,
        key: RandomnessSource | RoleKey,
        *,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> PieceSubscriber:
        """See `Matcher.subscriber`."""
        return PieceSubscriber(self, key, ledger, randomness)

    def broker(self, key: RoleKey | None = None) -> PieceBroker:
        """See `Matcher.broker`."""
        return PieceBroker(self, key)


class PiecePublisher(Publisher):
    """Encodes events, also in pieces.

    Example:
        >>> import numpy as np
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import OFSGPMatch
        >>> matcher, seed = OFSGPMatch(Schema(a=UInt(2)), depth=1), SharedSeed.generate()
        >>> whole = matcher.publisher(seed).encode([{"a": 3}], rounds=[0])
        >>> pieces = matcher.publisher(seed).encode_chunks({"a": 3}, round=0)
        >>> np.array_equal(np.concatenate(list(pieces)), whole[0])
        True
    """

    matcher: PieceMatcher

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
        batch = schema.encode(event)
        if batch.count != 1:
            raise ParameterError(f"encode_chunks takes one event, got {batch.count}")
        head = np.empty((1, ROUND_HEADER_BYTES), dtype=np.uint8)
        labels = None if pair is None else [pair]
        draw = self._access.open([round], 1, labels, lambda: event_content(batch), head)
        return _behind(head, self.matcher.event_pieces(batch, draw))


class PieceSubscriber(Subscriber):
    """Encodes predicates, also in pieces.

    Example:
        >>> import numpy as np
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import OFSGPMatch
        >>> matcher, seed = OFSGPMatch(Schema(a=UInt(2)), depth=1), SharedSeed.generate()
        >>> whole = matcher.subscriber(seed).encode("a > 1", rounds=[0])
        >>> pieces = matcher.subscriber(seed).encode_chunks("a > 1", round=0)
        >>> np.array_equal(np.concatenate(list(pieces)), whole[0])
        True
    """

    matcher: PieceMatcher

    def encode_chunks(
        self, interest: Interest, round: int, *, pair: str | None = None
    ) -> Iterator[Bytes]:
        """One interest's message in pieces; as `PiecePublisher.encode_chunks`."""
        prepared = self.matcher.prepare(interest)
        column = DictionaryColumn([prepared], np.zeros(1, dtype=np.intp))
        head = np.empty((1, ROUND_HEADER_BYTES), dtype=np.uint8)
        labels = None if pair is None else [pair]
        draw = self._access.open([round], 1, labels, lambda: self._content(column), head)
        return _behind(head, self.matcher.interest_pieces(prepared, draw))


class PieceBroker(Broker):
    """Matches messages, also in pieces.

    Example:
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import OFSGPMatch
        >>> matcher, seed = OFSGPMatch(Schema(a=UInt(2)), depth=1), SharedSeed.generate()
        >>> event = matcher.publisher(seed).encode_chunks({"a": 3}, round=0)
        >>> interest = matcher.subscriber(seed).encode_chunks("a > 1", round=0)
        >>> matcher.broker().match_chunks(event, interest)
        True
    """

    matcher: PieceMatcher

    def match_chunks(self, events: Iterable[Bytes], interests: Iterable[Bytes]) -> bool:
        """The answer for one event and one interest whose messages come in pieces.

        Args:
            events, interests: what `encode_chunks` gave, in order, as uint8 arrays of one
                dimension or as bytes; pieces may be cut elsewhere.

        Raises:
            DecodeError: the pieces are not two whole messages of one pair and round, in order, or
                something is not a piece of bytes.
        """
        ours, theirs = PieceReader(events, "event"), PieceReader(interests, "interest")
        head, name = ours.take(ROUND_HEADER_BYTES), self.matcher.fingerprint
        raise_for(check_round_headers(head, theirs.take(ROUND_HEADER_BYTES), name))
        tag = round_tags(head, Kind.EVENT, name)
        answer, cause = self.matcher.match_pieces(ours, theirs, tag)
        raise_for(np.array([cause], dtype=np.uint8))
        return answer


class PieceReader:
    """A message that arrives in pieces, read in pieces of other sizes."""

    def __init__(self, pieces: Iterable[Bytes], name: str) -> None:
        self._pieces, self._name = _checked(pieces, name), name
        self._rest = np.empty(0, dtype=np.uint8)

    def take(self, count: int) -> Bytes:
        """The next `count` bytes, shape (1, count).

        Raises:
            DecodeError: there are fewer, or a piece is none.
        """
        parts, have = [self._rest], len(self._rest)
        while have < count:
            piece = next(self._pieces, None)
            if piece is None:
                raise DecodeError(f"the {self._name} message ends too early")
            parts.append(piece)
            have += len(piece)
        whole = np.concatenate(parts) if len(parts) > 1 else parts[0]
        self._rest = whole[count:]
        return np.ascontiguousarray(whole[:count])[None]

    def end(self) -> None:
        """Raise DecodeError if there is more."""
        if len(self._rest) or any(len(piece) for piece in self._pieces):
            raise DecodeError(f"the {self._name} message goes on after its end")


def _behind(head: Bytes, pieces: Iterator[Bytes]) -> Iterator[Bytes]:
    """Pieces of a message: the first one has the header, which is written when it is made."""
    first = next(pieces)
    yield np.concatenate([head[0], first])
    # Nothing is held while the next piece is made.
    del first
    yield from pieces


def _checked(pieces: Iterable[Any], name: str) -> Iterator[Bytes]:
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


def _is_scalar(value: Any) -> bool:
    """A value of one record, and no column."""
    return isinstance(value, (str, bytes)) or not hasattr(value, "__len__")
