"""The public side of all one-time matchers: schema, sizes, fingerprint, leakage card.

What differs between schemes is six methods of the matcher, whose names start with an underscore;
what must never differ is in the roles it makes (`ccbps.matching.roles`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Rounds
from ccbps.dictionary import DictionaryColumn
from ccbps.keys.seeds import Pairs, RandomnessReader, RandomnessSource
from ccbps.leakage import LeakageCard
from ccbps.matching.parameters import Cost, PublicParameters
from ccbps.matching.roles import Broker, Interest, Publisher, Subscriber
from ccbps.predicates import Schema
from ccbps.predicates.schema import Events
from ccbps.wire import HEADER_BYTES

__all__ = ["Matcher"]


class Matcher(PublicParameters, ABC):
    """Public parameters of a one-time matcher. Makes the three roles.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import BranchingMatch, Matcher
        >>> matcher = BranchingMatch.box(Schema(price=UInt(16)))
        >>> isinstance(matcher, Matcher), matcher.reusable
        (True, False)
        >>> matcher.event_bytes, matcher.interest_bytes, matcher.randomness_bytes
        (82, 82, 152)
        >>> matcher.leakage.security, matcher.leakage.reuse
        ('perfect', 'one-time')
        >>> print(matcher.explain())
        BranchingMatch over price (16 bits)
        ...

    Attributes:
        reusable: False, which tells one-time matchers from reusable ones.
        rounds: True. Messages belong to a round.
        has_key_server: False. The clients share a seed.
        covering: False. Interests are not compared with one another.
        operators: what predicates may use.
        schema: the events' attributes.
        private_names: names of the values an interest is a mapping of; None where an interest is a
            predicate (SQL text or `Predicate`).
        event_bytes: bytes of one event message, header included.
        interest_bytes: bytes of one interest message, header included.
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
        """Program size, bytes per side, predicted operations and the leakage card, as text."""

    def publisher(
        self, seed: RandomnessSource, *, ledger: str | os.PathLike[str] | None = None
    ) -> Publisher:
        """The role that encodes events.

        Args:
            seed: shared with the subscriber, or a master of many pairs.
            ledger: path of a file that remembers rounds across roles, processes and restarts
                (`ccbps.keys.ledger`), created if missing; None to remember them in memory, as long
                as the role lives.

        Raises:
            LedgerError: the file cannot be used.
        """
        return Publisher(self, seed, ledger)

    def subscriber(
        self, seed: RandomnessSource, *, ledger: str | os.PathLike[str] | None = None
    ) -> Subscriber:
        """The role that encodes predicates; `ledger` as for `publisher`."""
        return Subscriber(self, seed, ledger)

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
        """What `_encode_interests` needs to know of one subscription; raises if it is not one."""

    @abstractmethod
    def _content(self, prepared: Any) -> bytes:
        """Bytes that tell a prepared interest from all others: for a ledger of rounds."""

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
        """The answer for one event's and one interest's pieces, uint8 arrays of one dimension."""
        none = np.empty(0, dtype=np.uint8)
        ours, theirs = (np.concatenate([none, *pieces]) for pieces in (events, interests))
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
            hides=("every attribute of the event, beyond what the answer says about it", hidden),
            learns=(
                "whether the event matches the predicate",
                f"public parameters: {public}",
                "which messages belong to one pair and round",
                "over many pairs, which of them belong to one event or one subscription, as far "
                "as labels and rounds tell",
            ),
            security="perfect",
            assumption=(
                "each round's randomness is uniform, known only to the pair and used once; with "
                "SharedSeed instead of OneTimePad, it comes from AES-256-CTR and HKDF-SHA256"
            ),
            reuse="one-time",
            hazards=(
                "a round is used for two events or two predicates",
                "the broker colludes with one of the two clients",
            ),
        )

    def _explain(self, title: str, lines: Iterable[tuple[str, str]]) -> str:
        """`explain`'s text: title, the scheme's own lines, then what all matchers say."""
        common = (
            (
                "messages",
                f"{self.event_bytes:,} bytes per event, {self.interest_bytes:,} bytes per interest "
                f"({HEADER_BYTES} of them header)",
            ),
            (
                "randomness",
                f"{self.randomness_bytes:,} bytes per round "
                f"({-(-self.randomness_bytes // 16):,} AES blocks)",
            ),
        )
        rows = [f"  {name + ':':<13}{text}" for name, text in (*lines, *common)]
        card = ["  " + line for line in str(self.leakage).splitlines()]
        return "\n".join([title, *rows, *card])
