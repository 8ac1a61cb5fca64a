"""BroadcastMatch: any formula of comparisons; an event is encoded once for all subscriptions.

It is `FormulaMatch` with labels at the leaves. A publisher and all its subscribers share a seed.
Each round serves one event: its message is a label for each digit (window of a few bits) of the
event's values. Subscribers write their interests for rounds to come ahead. From the event message
and any interest of that round the broker computes whether they match, and learns nothing else.

Security: computational (AES-128 is a pseudorandom function; events that are chosen after seeing
interests need it to be an ideal cipher). Trust: as with any group key, each holder of the seed can
read every message of its rounds that they see, events and others' interests. So send messages to
the broker alone, over encrypted links. Sources and proof: `ccbps.encodings.broadcast.window_slots`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from msgspec.structs import replace

from ccbps.arrays import Bytes, Words, slices
from ccbps.checks import whole
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.broadcast.encoding import LAYOUT, BroadcastEncoding
from ccbps.encodings.labels import NONCE_BYTES
from ccbps.forms.formula import FormulaForm, HiddenForm
from ccbps.forms.leaves import WindowLeaves, digit_values
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.scheme import Answers, Cost, Draw, Operation
from ccbps.matching.one_time.formula_scheme import FormulaScheme
from ccbps.matching.templates import MAX_SIZE
from ccbps.predicates import Events, Predicate, Schema

if TYPE_CHECKING:
    from ccbps.predicates.hiding import LeafKind

WINDOW: Final = 2
MOST_WINDOW: Final = 4
ENCODE_ROWS: Final = 128
"""Events encoded at a time: their labels fit the cache."""


class BroadcastMatch(FormulaScheme):
    """Matcher of formulas of comparisons whose event messages serve all interests of a round.

    Example:
        One event message, any number of interests:

        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import BroadcastMatch
        >>> matcher = BroadcastMatch.box(Schema(price=UInt(16), volume=UInt(16)))
        >>> seed = SharedSeed.generate()                     # the publisher's and its subscribers'
        >>> subscriber = matcher.subscriber(seed)
        >>> texts = ["price < 120", "volume > 5", "price BETWEEN 100 AND 130"]
        >>> interests = subscriber.encode(texts, rounds=[0, 0, 0], pairs=["ann", "bob", "cy"])
        >>> event = matcher.publisher(seed).encode([{"price": 119, "volume": 5}], rounds=[0])
        >>> matcher.broker().match(event, interests)
        array([ True, False,  True])

    Attributes:
        template: the public predicate, or None.
        hidden_tree: levels and kind of leaves of a hidden formula, or None.
        window: bits of a digit.
        formula: the formula that all parties compute.
        encoding: the encoders and the decoder.
    """

    name = "broadcast"
    answers = Answers.ROUND
    _own_parameters = ("hidden", "window")
    _rule = LAYOUT

    def __init__(
        self,
        schema: Schema,
        template: str | Predicate | None = None,
        *,
        window: int = WINDOW,
        max_gates: int = MAX_SIZE,
    ) -> None:
        """Write the formula of a template.

        Args:
            schema: schema of the events.
            template: SQL, with ``:name`` wherever the subscriber has a private constant. Required:
                without one, take `BroadcastMatch.box` or `BroadcastMatch.hidden`.
            window: bits of a digit, 1 to 4. An event message takes 16 bytes for each digit. The
                window 1 makes the shortest interest messages.
            max_gates: largest number of AND gates of the formula.

        Raises:
            ParameterError: there is no template, it is for another schema or already bound, or a
                value is not possible.
            PredicateError: the template does not parse or does not fit the schema.
        """
        self._set_window(window)
        self._use_template(schema, template, max_gates)

    @classmethod
    def box(cls, schema: Schema, *, window: int = WINDOW, max_gates: int = MAX_SIZE) -> Self:
        """Make the matcher that hides which attributes a predicate constrains, and how.

        Example:
            >>> from ccbps import Schema, UInt
            >>> from ccbps.matching import BroadcastMatch
            >>> schema = Schema(price=UInt(16), volume=UInt(16))
            >>> wide, narrow = BroadcastMatch.box(schema), BroadcastMatch.box(schema, window=1)
            >>> wide.event_bytes < narrow.event_bytes, wide.interest_bytes > narrow.interest_bytes
            (True, True)

        Args:
            schema: schema of the events.
            window: bits of a digit, 1 to 4.
            max_gates: largest number of AND gates of the formula.

        Raises:
            ParameterError: a value is not possible.
        """
        matcher = cls.__new__(cls, schema)
        matcher._set_window(window)
        matcher._use_box(schema, max_gates)
        return matcher

    @classmethod
    def hidden(
        cls,
        schema: Schema,
        *,
        leaves: int | None = None,
        depth: int | None = None,
        leaf: LeafKind = "box",
        window: int = WINDOW,
        max_gates: int = MAX_SIZE,
    ) -> Self:
        """Make the matcher that hides the formula itself; as `FormulaMatch.hidden`.

        Example:
            >>> from ccbps import Schema, UInt
            >>> from ccbps.matching import BroadcastMatch
            >>> BroadcastMatch.hidden(Schema(price=UInt(16)), leaves=4, leaf="interval")
            <BroadcastMatch hidden formula of 4 interval leaves over price>
        """
        matcher = cls.__new__(cls, schema)
        matcher._set_window(window)
        matcher._use_hidden(schema, leaves, depth, leaf, max_gates)
        return matcher

    def _leaves(self, schema: Schema) -> WindowLeaves:
        return WindowLeaves(schema, self.window)

    def _set_window(self, window: int) -> None:
        self.window = whole("window", window, 1, MOST_WINDOW, unit="bits")

    def _use_form(self, schema: Schema, form: FormulaForm | HiddenForm) -> None:
        assert isinstance(form.leaves, WindowLeaves)
        widths = form.leaves.widths(len(form.public))
        encoding = BroadcastEncoding(form.formula, widths, form.private_bits)
        self._positions = form.leaves.positions(encoding.slots.digits)
        self._use(schema, form, encoding)

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "window": self.window}

    @classmethod
    def variants(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        """Yield the matchers of every window: longer ones shorten events and lengthen interests."""
        for matcher in super().variants(schema, predicate):
            yield from (matcher._with(window=window) for window in range(1, MOST_WINDOW + 1))

    @property
    def leakage(self) -> LeakageCard:
        card = super().leakage
        public = card.learns[1]
        return replace(
            card,
            hides=(
                "every attribute of the event, beyond what the answers say about it",
                card.hides[1],
            ),
            learns=(
                "whether the event matches each predicate of its round",
                public,
                "which messages belong to one round",
                "over many rounds, which interests belong to one subscription, as far as labels "
                "tell",
            ),
            security="computational",
            assumption=(
                "AES-128 is a pseudorandom function; an ideal cipher where events are chosen by "
                "somebody who has seen interests of their round"
            ),
            hazards=(
                "a round is used for two events",
                "the broker colludes with anyone who holds the seed: the publisher or any "
                "subscriber; together they read all events and interests of its rounds",
                "anyone who holds the seed sees messages on their way: it reads events, and "
                "interests of others, without the broker's help; messages are for the broker "
                "alone, so links are encrypted",
                "a subscriber who leaves keeps the seed: give the others a new one",
            ),
            with_client="others",
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        encoding, aes, word = self.encoding, Operation.AES_BLOCK, Operation.WORD
        labels, opened = encoding.randomness_bytes // 16, encoding.event_bytes // 16
        subscriber, broker = (
            -(-program.operations // 64) for program in (encoding.subscriber, encoding.broker)
        )
        blocks = encoding.labels.pad_blocks
        return (
            Cost("publisher", "event", aes, labels, note="key stream"),
            Cost("subscriber", "interest", aes, labels, note="key stream"),
            Cost("subscriber", "interest", aes, labels * blocks, note="a key each"),
            Cost("subscriber", "interest", word, subscriber),
            Cost("broker", "pair", aes, opened * blocks, note="a key for an event"),
            Cost("broker", "pair", word, broker),
        )

    def explain(self) -> str:
        slots = self.encoding.slots
        bits = (
            f"{slots.slots:,} slots and {slots.rows:,} rows of an interest, after a nonce of "
            f"{NONCE_BYTES} bytes"
        )
        return self._explain(
            [
                ("digits", f"{len(slots.digits)} of at most {self.window} bits, a label each"),
                ("bits", bits),
                ("products", f"{slots.products:,} at the broker"),
            ]
        )

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        digits = digit_values(events, self._form.public, self._positions)
        for at in slices(len(out), ENCODE_ROWS):
            self.encoding.encode_event(digits[at], draw.rows(at.start, at.stop), out[at])

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Words], draw: Draw, out: Bytes
    ) -> None:
        rows = np.concatenate(interests.values)
        index = None if len(rows) == 1 else interests.index
        self.encoding.encode_interest(rows, draw.rows, draw.fresh, out, index=index)
