"""Event messages of a `FormulaMatch` in two parts: messages ahead, and labels of events.

A publisher writes a message ahead for each subscription and round, before there are events. An
event is then encoded once, whatever the number of subscriptions: as labels, from a seed that the
publisher alone has. With the labels the broker completes each message ahead to the event message of
its pair and round, and matches it as usual. Nothing changes for subscribers.

==============  ===========================================================================
labels          header of 8 bytes (`ccbps.wire`); 16 bytes for each event bit that is used
message ahead   header of 8 bytes; the event message's header, 8 bytes; then as in
                `ccbps.encodings.formula.ahead`
==============  ===========================================================================

Both headers have a tag of the publisher's own seed and round. The digest in them is derived
from the matcher's.

Security: computational (AES-128 is a pseudorandom function; events that are chosen by somebody who
has seen messages ahead need it to be an ideal cipher).

Hazards: labels of a round serve one event. Anybody else who has the publisher's own seed can read
all labels that they see, and can forge labels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike

from ccbps.arrays import Bytes, Randomness, Rounds, Words, slices
from ccbps.checks import array, instance
from ccbps.encodings.formula.ahead import LAYOUT, AheadEncoding
from ccbps.errors import DecodeError, ParameterError, ShapeError
from ccbps.keys.randomness import Pairs, RandomnessReader, RandomnessSource
from ccbps.keys.secret import Confined
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.used_rounds import RoundLedger, as_rounds
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.access import RoundAccess
from ccbps.matching.contract.roles import event_content, output
from ccbps.matching.contract.scheme import Scheme
from ccbps.predicates import Events
from ccbps.rounds.disk_ledger import DiskLedger
from ccbps.wire import (
    ROUND_HEADER_BYTES,
    TAG_BYTES,
    Kind,
    check_round_headers,
    padding_causes,
    raise_for,
    write_round_headers,
)

BODY: Final = 2 * ROUND_HEADER_BYTES
"""First byte of the body of a message ahead."""
ENCODE_ROWS: Final = 512
"""Events encoded at a time: their labels fit the cache."""
_ONE_EVENT: Final = "the labels of a round serve one event: encode under a fresh round"


class DeferredPublisher(Confined):
    """Publisher of messages ahead, and of labels of events. `FormulaMatch.deferred` makes it.

    Example:
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import FormulaMatch
        >>> matcher = FormulaMatch.box(Schema(price=UInt(16), volume=UInt(16)))
        >>> own = SharedSeed.generate()                           # nobody else's
        >>> master = SharedSeed.generate()                        # of pairs with subscribers
        >>> deferred = matcher.deferred(own, master)
        >>> ahead = deferred.prepare([0, 0], pairs=["ann", "bob"])          # before the event
        >>> labels = deferred.encode([{"price": 119, "volume": 5}], rounds=[0])
        >>> ann, bob = (matcher.subscriber(master.pair(name)) for name in ("ann", "bob"))
        >>> broker, events = matcher.broker(), matcher.complete(labels, ahead)
        >>> broker.match(events[:1], ann.encode("price < 120", rounds=[0]))
        array([ True])
        >>> broker.match(events[1:], bob.encode("volume > 5", rounds=[0]))
        array([False])

    Attributes:
        matcher: the matcher whose event messages are made.
        label_bytes: bytes of the labels of one event, header included.
        ahead_bytes: bytes of one message ahead, headers included.
    """

    def __init__(
        self,
        matcher: Scheme,
        encoding: AheadEncoding,
        event_rows: Callable[[Events], Words],
        own_seed: SharedSeed,
        pair_seed: RandomnessSource,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> None:
        """Take seeds and ledgers, as `FormulaMatch.deferred` says.

        Args:
            matcher: the matcher whose event messages are made.
            encoding: encoding of its event messages in two parts.
            event_rows: function from events to their packed bits, as the encoding takes them.
            own_seed: a seed that nobody else has.
            pair_seed: seed of one pair, or master of many pairs.
            ledger: path of a file that remembers the rounds of both seeds.
            randomness: source of randomness.
        """
        instance("own_seed", own_seed, SharedSeed, hint="SharedSeed.generate() makes one")
        if own_seed == pair_seed:
            raise ParameterError(
                "own_seed must be the publisher's alone, and pair_seed is not: "
                "SharedSeed.generate() makes another one"
            )
        self.matcher = matcher
        self.label_bytes = ROUND_HEADER_BYTES + encoding.label_bytes
        self.ahead_bytes = BODY + encoding.ahead_bytes
        self._encoding, self._event_rows = encoding, event_rows
        self._own, self._fresh = own_seed, randomness
        self._digest = _digest(matcher)
        self._pairs = RoundAccess(matcher, "publisher", pair_seed, ledger, randomness)
        self._disk = None if ledger is None else DiskLedger(ledger)
        self._used = RoundLedger(rule=_ONE_EVENT)

    def __repr__(self) -> str:
        return f"<DeferredPublisher of {self.matcher!r}>"

    @property
    def leakage(self) -> LeakageCard:
        """Card of a broker that has messages ahead, labels and interests."""
        card = self.matcher.leakage
        answer, public, *_ = card.learns
        return replace(
            card,
            scheme=f"{card.scheme}, deferred events",
            learns=(
                answer,
                public,
                "which messages belong to one pair and round",
                "which messages ahead belong to one event, even before there is the event",
                "over many rounds, which messages belong to one subscription, as far as labels of "
                "pairs and rounds tell",
            ),
            security="computational",
            assumption=(
                "AES-128 is a pseudorandom function; an ideal cipher where events are chosen by "
                "somebody who has seen messages ahead of their round; seeds as for "
                f"{card.scheme}"
            ),
            hazards=(
                "a round of the publisher's own is used for two events, or a pair's round for two "
                "events or two predicates",
                "the broker colludes with the publisher: they read all interests",
                "the broker colludes with a subscriber: they read the events of that subscriber's "
                "rounds; no other events, and no other subscriber's interests",
                "a subscriber sees labels, and the messages ahead of its own rounds: it reads "
                "those events without the broker's help",
                "any other party has the publisher's own seed: it reads all labels that it sees",
            ),
        )

    def prepare(
        self,
        rounds: ArrayLike,
        *,
        event_rounds: ArrayLike | None = None,
        pairs: Pairs | Sequence[str] | None = None,
        out: Bytes | None = None,
    ) -> Bytes:
        """Encode messages ahead, each for one subscription and one event to come.

        Args:
            rounds: rounds of the pairs, under which subscribers encode their interests.
            event_rounds: rounds of the events, as `encode` is given them; None if they are
                `rounds`. Any number of messages may be for one event.
            pairs: a pair label for each round, when the seed is a master for many pairs.
            out: place of the messages, C-contiguous uint8 of the result's shape; made when None.

        Returns:
            uint8, shape (rounds, ahead_bytes).

        Raises:
            ParameterError: rounds are not numbers, or not as many; labels do not fit the seed.
            RandomnessReuseError: a pair's round was used before, here or by its publisher; nothing
                is written. With a ledger on disk a round may be used again for the same round of
                an event.
            LedgerError: the ledger on disk cannot be used; nothing is written.
            PadExhaustedError: the one-time pad ends before a round; nothing is written.
        """
        numbers = as_rounds(rounds, None)
        if event_rounds is None:
            own = numbers
        else:
            own = as_rounds(event_rounds, len(numbers), "event_rounds")
        out = output(out, (len(numbers), self.ahead_bytes))
        reader = self._reader(own)
        # The headers of event messages go to where their messages would begin.
        messages = out[:, ROUND_HEADER_BYTES:]
        draw = self._pairs.open(numbers, len(own), pairs, lambda: self._names(own), messages)

        size = self._encoding.labels.round_bytes

        def labels(start: int, stop: int) -> Bytes:
            rows = reader(start, stop)
            write_round_headers(out[start:stop], Kind.AHEAD, self._digest, rows[:, size:])
            return rows[:, :size]

        self._encoding.prepare(draw.rows, labels, draw.fresh, out[:, BODY:])
        return out

    def encode(self, events: Any, rounds: ArrayLike, *, out: Bytes | None = None) -> Bytes:
        """Encode labels of events, for all messages ahead of their rounds.

        Args:
            events: `Events`, or any records `Schema.encode` takes.
            rounds: a round of the publisher's own for each event.
            out: place of the labels, C-contiguous uint8 of the result's shape; made when None.

        Returns:
            uint8, shape (events, label_bytes). They are for the broker alone.

        Raises:
            EventError: a record does not fit the schema.
            ParameterError: rounds are not numbers, or not as many as events.
            RandomnessReuseError: a round was used before, or twice here; nothing is encoded. With
                a ledger on disk a round may be used again for the same event.
            LedgerError: the ledger on disk cannot be used; nothing is encoded.
        """
        batch = self.matcher.schema.encode(events)
        out = output(out, (batch.count, self.label_bytes))
        numbers = as_rounds(rounds, batch.count)
        reader = self._reader(numbers)
        if self._disk is None:
            self._used.claim(numbers)
        elif batch.count:
            purpose, content = b"labels " + self._digest, event_content(batch)
            self._disk.claim(numbers, self._own.marks(purpose, numbers, None, content))
        bits, size = self._event_rows(batch), self._encoding.labels.round_bytes
        for at in slices(batch.count, ENCODE_ROWS):
            rows, messages = reader(at.start, at.stop), out[at]
            write_round_headers(messages, Kind.LABELS, self._digest, rows[:, size:])
            self._encoding.encode_event(bits[at], rows[:, :size], messages[:, ROUND_HEADER_BYTES:])
        return out

    def _names(self, rounds: Rounds) -> Bytes:
        """Return names of the publisher's own rounds, as long as the name of an event."""
        schema = self.matcher.schema
        width = 8 * sum(schema[name].limbs for name in schema)
        return self._own.reader(b"names " + self._digest, width, rounds, None)(0, len(rounds))

    def _reader(self, rounds: Rounds) -> RandomnessReader:
        """Return a reader of the publisher's own seed: bytes for labels, then a tag."""
        width = self._encoding.labels.round_bytes + TAG_BYTES
        return self._own.reader(self._digest, width, rounds, None)


def completed(matcher: Scheme, encoding: AheadEncoding, labels: Bytes, ahead: Bytes) -> Bytes:
    """Complete event messages, as `ccbps.matching.FormulaMatch.complete` says."""
    try:
        label_bytes = ROUND_HEADER_BYTES + encoding.label_bytes
        labels = array("labels", labels, np.uint8, ("batch", label_bytes))
        ahead = array("messages ahead", ahead, np.uint8, ("batch", BODY + encoding.ahead_bytes))
    except ShapeError as error:
        raise DecodeError(str(error)) from None
    if len(labels) == 1:
        labels = np.broadcast_to(labels, (len(ahead), labels.shape[1]))
    if len(labels) != len(ahead):
        raise DecodeError(f"labels of {len(labels)} events do not fit {len(ahead)} messages ahead")
    first, second = (np.ascontiguousarray(rows[:, :ROUND_HEADER_BYTES]) for rows in (labels, ahead))
    kinds = Kind.LABELS, Kind.AHEAD
    raise_for(check_round_headers(first, second, _digest(matcher), kinds))
    out = np.empty((len(ahead), ROUND_HEADER_BYTES + encoding.message_bytes), dtype=np.uint8)
    out[:, :ROUND_HEADER_BYTES] = ahead[:, ROUND_HEADER_BYTES:BODY]
    stray = encoding.complete(
        labels[:, ROUND_HEADER_BYTES:], ahead[:, BODY:], out[:, ROUND_HEADER_BYTES:]
    )
    raise_for(padding_causes(stray))
    return out


def _digest(matcher: Scheme) -> bytes:
    """Return 32 bytes that name the labels of a matcher."""
    return sha256(b"ccbps deferred %d\0" % LAYOUT + matcher.digest).digest()
