"""BroadcastMatch: any formula of comparisons; an event is encoded once for all subscriptions.

As `FormulaMatch`, with labels at the leaves. A publisher and all its subscribers share a seed. Each
round serves one event: its message is a label for each digit (window of a few bits) of the event's
values. Subscribers write their interests for rounds to come ahead. From the event message and any
interest of that round the broker computes whether they match, and learns nothing else.

Security: computational (AES-128 is a pseudorandom function; events that are chosen after seeing
interests need it to be an ideal cipher). Trust: whoever holds the seed can read every message of
its rounds that he sees, events and others' interests: like any group key. So messages are for the
broker alone, over encrypted links. Sources and proof: `ccbps.encodings.broadcast.window_slots`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Words
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.broadcast.encoding import LAYOUT, BroadcastEncoding
from ccbps.encodings.labels import NONCE_BYTES
from ccbps.errors import ParameterError
from ccbps.forms.formula import FormulaForm
from ccbps.forms.hidden_formula import HiddenForm
from ccbps.forms.window_leaves import WindowLeaves, digit_values
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.scheme import Answers, Cost, Draw, Operation, Sizes
from ccbps.matching.one_time.formula_scheme import MAX_GATES, FormulaScheme
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.hiding import LeafKind
from ccbps.wire import padding_causes

WINDOW: Final = 2
MOST_WINDOW: Final = 4
ENCODE_ROWS: Final = 128
"""Events encoded at a time: their labels fit the cache."""


class BroadcastMatch(FormulaScheme):
    """The public side: schema, template, sizes. Makes the three roles.

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
        schema: the events' attributes.
        template: the public predicate, or None.
        hidden_tree: levels and kind of leaves of a hidden formula, or None.
        window: bits of a digit.
        formula: what all parties compute.
        encoding: the encoders and the decoder.
    """

    name = "broadcast"
    answers = Answers.ROUND
    own_options = ("window",)

    def __init__(
        self,
        schema: Schema,
        template: str | Predicate | None = None,
        *,
        window: int = WINDOW,
        max_gates: int = MAX_GATES,
    ) -> None:
        """
        Args:
            schema: the events' attributes.
            template: SQL, with ``:name`` wherever the subscriber has a private constant. Required:
                without one, take `BroadcastMatch.box` or `BroadcastMatch.hidden`.
            window: bits of a digit, 1 to 4. An event message takes 16 bytes for each digit. Of an
                interest message, 1 makes the shortest.
            max_gates: most AND gates of the formula.

        Raises:
            ParameterError: there is no template, it is for another schema or already bound, or a
                value is not possible.
            PredicateError: the template does not parse or does not fit the schema.
        """
        self.window = _window(window)
        self._use_template(schema, template, max_gates)

    @classmethod
    def box(
        cls, schema: Schema, *, window: int = WINDOW, max_gates: int = MAX_GATES
    ) -> BroadcastMatch:
        """The matcher that hides which attributes a predicate constrains, and how.

        Example:
            >>> from ccbps import Schema, UInt
            >>> from ccbps.matching import BroadcastMatch
            >>> schema = Schema(price=UInt(16), volume=UInt(16))
            >>> wide, narrow = BroadcastMatch.box(schema), BroadcastMatch.box(schema, window=1)
            >>> wide.event_bytes < narrow.event_bytes, wide.interest_bytes > narrow.interest_bytes
            (True, True)

        Args and errors: as for a template.
        """
        matcher = cls.__new__(cls, schema)
        matcher.window = _window(window)
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
        max_gates: int = MAX_GATES,
    ) -> BroadcastMatch:
        """The matcher that hides the formula itself; see `FormulaMatch.hidden`.

        Example:
            >>> from ccbps import Schema, UInt
            >>> from ccbps.matching import BroadcastMatch
            >>> BroadcastMatch.hidden(Schema(price=UInt(16)), leaves=4, leaf="interval")
            <BroadcastMatch hidden formula of 4 interval leaves over price>
        """
        matcher = cls.__new__(cls, schema)
        matcher.window = _window(window)
        matcher._use_hidden(schema, leaves, depth, leaf, max_gates)
        return matcher

    def _leaves(self, schema: Schema) -> WindowLeaves:
        return WindowLeaves(schema, self.window)

    def _use(self, schema: Schema, form: FormulaForm | HiddenForm) -> None:
        self._keep(form)
        assert isinstance(form.leaves, WindowLeaves)
        widths = form.leaves.widths(len(form.public))
        self.encoding = BroadcastEncoding(form.formula, widths, form.private_bits)
        self._positions = form.leaves.positions(self.encoding.slots.digits)
        encoding = self.encoding
        self._set_up(
            schema,
            Sizes(encoding.event_bytes, encoding.interest_bytes, encoding.randomness_bytes),
        )

    def _rule(self) -> int:
        return LAYOUT

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        public, hidden, protects = self._hidden_part()
        return LeakageCard(
            scheme=type(self).__name__,
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=("every attribute of the event, beyond what the answers say about it", hidden),
            protects=frozenset(
                {Protects.EVENT, Protects.EQUALITY_OF_EVENTS, Protects.EQUALITY_OF_INTERESTS}
            )
            | protects,
            learns=(
                "whether the event matches each predicate of its round",
                f"public parameters: {public}",
                "which messages belong to one round",
                "over many rounds, which interests belong to one subscription, as far as labels "
                "tell",
            ),
            security="computational",
            assumption=(
                "AES-128 is a pseudorandom function; an ideal cipher where events are chosen by "
                "somebody who has seen interests of their round"
            ),
            reuse="one-time",
            hazards=(
                "a round is used for two events",
                "the broker colludes with anyone who holds the seed: the publisher or any "
                "subscriber; together they read all events and interests of its rounds",
                "anyone who holds the seed sees messages on their way: it reads events, and "
                "interests of others, without the broker's help; messages are for the broker "
                "alone, so links are encrypted",
                "a subscriber who leaves keeps the seed: give the others a new one",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role; 64 rows share a word."""
        encoding = self.encoding
        labels, opened = encoding.randomness_bytes // 16, encoding.event_bytes // 16
        subscriber, broker = (
            -(-program.operations // 64) for program in (encoding.subscriber, encoding.broker)
        )
        blocks = encoding.labels.pad_blocks
        return (
            Cost("publisher", "event", Operation.AES_BLOCK, labels, note="key stream"),
            Cost("subscriber", "interest", Operation.AES_BLOCK, labels, note="key stream"),
            Cost("subscriber", "interest", Operation.AES_BLOCK, labels * blocks, note="a key each"),
            Cost("subscriber", "interest", Operation.WORD, subscriber),
            Cost("broker", "pair", Operation.AES_BLOCK, opened * blocks, note="a key for an event"),
            Cost("broker", "pair", Operation.WORD, broker),
        )

    def explain(self) -> str:
        """Gates, depth, digits, bits, predicted operations and the leakage card, as text."""
        slots = self.encoding.slots
        return self._explain_formula(
            [
                ("digits", f"{len(slots.digits)} of at most {self.window} bits, a label each"),
                (
                    "bits",
                    f"{slots.slots:,} slots and {slots.rows:,} rows of an interest, after a nonce "
                    f"of {NONCE_BYTES} bytes",
                ),
                ("products", f"{slots.products:,} at the broker"),
            ]
        )

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """See `Scheme.encode_events`."""
        encoding = self.encoding
        digits = digit_values(events, self._form.public, self._positions)
        for start in range(0, len(out), ENCODE_ROWS):
            stop = min(start + ENCODE_ROWS, len(out))
            random = draw.rows(start, stop)
            encoding.encode_event(digits[start:stop], random, out[start:stop])

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Words], draw: Draw, out: Bytes
    ) -> None:
        """See `Scheme.encode_interests`."""
        rows = np.concatenate(interests.values)
        index = None if len(rows) == 1 else interests.index
        self.encoding.encode_interest(rows, draw.rows, draw.fresh, out, index=index)

    def match_pairs(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        """See `PairScheme.match_pairs`."""
        answers, stray = self.encoding.examine(events, interests)
        return answers, padding_causes(stray)


def _window(window: int) -> int:
    if type(window) is not int or not 1 <= window <= MOST_WINDOW:
        raise ParameterError(
            f"window must be a whole number of 1 to {MOST_WINDOW} bits, got {window!r}"
        )
    return window
