"""ThreeBrokerMatch: encoded once, matched for ever, and no broker learns anything but the answers.

An event is encoded once for all subscriptions, and an interest once for all events, as with the
reusable schemes. Yet a broker learns no more than with the one-time ones. The price: three brokers,
no two of which work together. Each client shares its messages between them (`ccbps.shares`). For
each pair of an event and an interest a broker sends a few dozen bits to another one, in a few
messages, and all three learn the answer (or, by choice, the subscriber alone does). Clients have no
key in common with one another; they know the three brokers' public keys.

There are three kinds of matchers, which differ in the public part of a subscription: a box (the
schema, and how many intervals an attribute has), a template (its formula, but for private
constants), and hidden formulas (the number and kind of leaves).

Security: against any one broker that follows the protocol, alone or with any clients. Two brokers
together read everything. Source: [AFLNO16]; the layers are those of `ccbps.forms.digits`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any, ClassVar, Final, Literal, Self, get_args

import numpy as np

from ccbps.arrays import Bytes, Randomness
from ccbps.checks import choice, flag, whole
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.rows import used_bits
from ccbps.errors import CcbpsError, ParameterError
from ccbps.forms.digits import MAX_WINDOW, BoxDigits, DigitForm, FormulaDigits, HiddenDigits
from ccbps.keys.plain_key import PARTIES, ClientKey
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.matcher import ANSWERS_ONLY
from ccbps.matching.contract.scheme import (
    Cost,
    Draw,
    Operation,
    SharesScheme,
    Side,
    Sizes,
)
from ccbps.matching.contract.traffic import Traffic
from ccbps.matching.templates import MAX_SIZE, MOST_PROPOSED, HiddenMatcher
from ccbps.matching.three_brokers.card import FOR_BROKERS, FOR_SUBSCRIBERS, GRANTS
from ccbps.matching.three_brokers.local import LocalBrokers
from ccbps.matching.three_brokers.roles import (
    ThreeBrokerAuthority,
    ThreeBrokerPublisher,
    ThreeBrokerSubscriber,
)
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.codes import Intervals
from ccbps.predicates.form import Form
from ccbps.predicates.hiding import HiddenTree, LeafKind
from ccbps.shares.answers import ATTEMPT_BYTES, COMMITMENT_BYTES, PAD_BLOCKS, PAYLOAD_KEY_BYTES
from ccbps.shares.clients import GRANT_HEAD_BYTES, HEAD_BYTES, BrokerKey, sealed_bytes
from ccbps.shares.event_check import CHECK_MESSAGES
from ccbps.shares.party import Party
from ccbps.shares.replicated import WORD
from ccbps.shares.ring import Ring
from ccbps.wire import padding_causes

Reveal = Literal["brokers", "subscriber"]
REVEALED: Final = {
    "brokers": "the three brokers learn the answers",
    "subscriber": "no broker learns the answers",
}
LAYOUT = 1
"""Number of the rule by which tables and gates follow from a form; part of fingerprints."""
MOST_TABLES = 4
"""Greatest number of tables for each gate that is allowed."""
DIGITS = 4
"""Bits of a digit by default: the fewest bytes and bits a pair together, and the fastest."""
COMPARED_DIGITS: Final = (2, 3, 4, 5, 6)
"""Bits of a digit that a planner compares."""
COMPARED_BYTES: Final = 32
"""Bytes that a broker sends to another one to compare their parts of an event."""
PREPARED = 1 << 12
"""Interests whose tables are filled at a time."""


class ThreeBrokerMatch(HiddenMatcher, SharesScheme):
    """Reusable matcher of boxes, templates and hidden formulas, for three brokers.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import ThreeBrokerMatch
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> matcher = ThreeBrokerMatch.box(schema)
        >>> brokers = matcher.local()                 # three brokers in this process
        >>> publisher = matcher.publisher(brokers.public)
        >>> subscriber = matcher.subscriber(brokers.public)
        >>> brokers.greet(publisher.hellos)
        >>> brokers.greet(subscriber.hellos)
        >>> events = publisher.encode({"price": [119, 120], "volume": [5, 5]})
        >>> interests = subscriber.encode(["price < 120", "volume > 5", "price >= 100"])
        >>> brokers.match_messages(events, interests)
        array([[ True, False,  True],
               [False, False,  True]])

    Attributes:
        template: the public predicate, or None.
        hidden_tree: levels and kind of leaves of a hidden formula, or None.
        digits: bits of a digit, by attribute.
        intervals: intervals of an attribute, for a box; or None.
        reveal: parties that learn the answers: "brokers" or "subscriber".
        grants: True if clients need grants of an authority.
        size: number of gates: bits that each broker sends for a pair, but for the answer.
    """

    name = "three brokers"
    _own_parameters: ClassVar[tuple[str, ...]] = (
        "hidden",
        "digits",
        "intervals",
        "reveal",
        "grants",
    )
    digits: Mapping[str, int]
    intervals: Mapping[str, int] | None = None
    reveal: Reveal
    grants: bool
    _form: FormulaDigits | BoxDigits | HiddenDigits
    _grant_form: BoxDigits | None

    def __init__(
        self,
        schema: Schema,
        template: str | Predicate | None = None,
        *,
        digits: int | Mapping[str, int] = DIGITS,
        reveal: Reveal = "brokers",
        grants: bool = False,
        max_gates: int = MAX_SIZE,
    ) -> None:
        """Write the layers of a template.

        Args:
            schema: schema of the events.
            template: SQL, with ``:name`` wherever the subscriber has a private constant. Required:
                without one, take `ThreeBrokerMatch.box` or `ThreeBrokerMatch.hidden`.
            digits: bits of a digit, for all attributes or by attribute. More bits make interests
                longer, and take fewer gates and layers.
            reveal: parties that learn the answers: "brokers", or "subscriber" for nobody else, at
                16 bytes a pair from each broker to the subscriber.
            grants: True if each client needs a grant: an authority limits the events that the
                client may see, unknown to the brokers. A grant is a box, with one interval for an
                attribute, or with as many as the matcher's boxes have.
            max_gates: largest number of gates.

        Raises:
            ParameterError: there is no template, it is for another schema or already bound,
                `digits` or `reveal` are not possible, or there would be more gates.
            PredicateError: the template does not parse or does not fit the schema.
        """
        more = f"; for any formula, {type(self).__name__}.hidden(schema, ...)"
        form = self._template_form(schema, template, more)
        windows = _windows(schema, digits)
        digits_form = FormulaDigits(schema, windows, form, _most(max_gates))
        self._use_form(schema, digits_form, reveal, grants, max_gates)

    @classmethod
    def box(
        cls,
        schema: Schema,
        *,
        intervals: int | Mapping[str, int] = 1,
        digits: int | Mapping[str, int] = DIGITS,
        reveal: Reveal = "brokers",
        grants: bool = False,
        max_gates: int = MAX_SIZE,
    ) -> Self:
        """Make the matcher that hides which attributes a predicate constrains, and how.

        An attribute lies in one of its intervals, or outside all of them. An attribute whose codes
        are one digit takes any set of values, whatever `intervals` says.

        Args:
            schema: schema of the events.
            intervals: greatest number of intervals of an attribute: for all, or by attribute, and
                then 1 for the others. Each takes ``4 m - 4`` gates more for a code of m digits.
            digits: bits of a digit, as for a template.
            reveal: parties that learn the answers, as for a template.
            grants: True if each client needs a grant, as for a template.
            max_gates: largest number of gates.

        Raises:
            ParameterError: a value is not possible, or there would be more gates.
        """
        matcher = cls.__new__(cls, schema)
        windows, most = _windows(schema, digits), _most(max_gates)
        matcher.operators = ("=", "<", "interval", "prefix", "in", "and", "not")
        matcher.intervals = _intervals(schema, intervals, windows)
        form = BoxDigits(schema, windows, matcher.intervals, most)
        matcher._use_form(schema, form, reveal, grants, max_gates)
        return matcher

    @classmethod
    def hidden(
        cls,
        schema: Schema,
        *,
        leaves: int | None = None,
        depth: int | None = None,
        leaf: LeafKind = "box",
        digits: int | Mapping[str, int] = DIGITS,
        reveal: Reveal = "brokers",
        grants: bool = False,
        max_gates: int = MAX_SIZE,
    ) -> Self:
        """Make the matcher that hides the formula itself.

        Args:
            schema: schema of the events.
            leaves: leaves of the tree, a power of two. Give this or `depth`.
            depth: levels of nodes of the tree.
            leaf: kind of the leaves, as for `FormulaMatch.hidden`.
            digits: bits of a digit, as for a template.
            reveal: parties that learn the answers, as for a template.
            grants: True if each client needs a grant, as for a template.
            max_gates: largest number of gates.

        Raises:
            ParameterError: a value is not possible, or there would be more gates.
        """
        matcher = cls.__new__(cls, schema)
        levels, windows = matcher._use_tree(leaves, depth, leaf), _windows(schema, digits)
        # One leaf tells how many gates there would be, before they are made.
        one = HiddenDigits(schema, windows, 0, leaf, _most(max_gates))
        _check_gates(max(one.program.gates, len(one.tables) // MOST_TABLES) << levels, max_gates)
        form = HiddenDigits(schema, windows, levels, leaf)
        matcher._use_form(schema, form, reveal, grants, max_gates)
        return matcher

    def _use_form(
        self,
        schema: Schema,
        form: FormulaDigits | BoxDigits | HiddenDigits,
        reveal: Reveal,
        grants: bool,
        max_gates: int,
    ) -> None:
        self.grants, self._grant_form = flag("grants", grants), None
        _check_gates(form.program.gates + self.grants, max_gates)
        self._form, self.digits = form, form.windows
        self.reveal = choice("reveal", reveal, get_args(Reveal))
        if self.grants:
            ones, most = dict.fromkeys(schema, 1), _most(max_gates)
            boxes = form if isinstance(form, BoxDigits) else None
            boxes = boxes or BoxDigits(schema, self.digits, ones, most)
            _check_gates(boxes.program.gates, max_gates)
            self._grant_form = boxes
        sizes = Sizes(-(-self._bits("event") // 8), -(-self._bits("interest") // 8))
        self._set_up(schema, sizes)

    def _bits(self, side: Side) -> int:
        """Return the bits of a body; those of an event have a payload key for its subscribers."""
        if side == "interest":
            return self._form.rows
        return self._form.event_bits + 8 * PAYLOAD_KEY_BYTES * self._for_subscribers

    @property
    def _for_subscribers(self) -> bool:
        return self.reveal == "subscriber"

    # -- public parameters ------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of gates."""
        return self._form.program.gates + self.grants

    @property
    def form(self) -> DigitForm:
        """Lookups and layers, for brokers."""
        return self._form

    @property
    def grant_form(self) -> BoxDigits | None:
        """Lookups and layers of grants; None if clients need none."""
        return self._grant_form

    def parameters(self) -> dict[str, Any]:
        intervals = None if self.intervals is None else dict(self.intervals)
        own = {"digits": dict(self.digits), "intervals": intervals, "reveal": self.reveal}
        return {**super().parameters(), **own, "grants": self.grants}

    @classmethod
    def _again(cls, schema: Schema, template: Any, options: dict[str, Any]) -> Self:
        if options["intervals"] is None:
            # A box without intervals has the default, and its parameters are others then.
            del options["intervals"]
        return super()._again(schema, template, options)

    @classmethod
    def _candidates(cls, schema: Schema, predicate: Predicate) -> list[Callable[[], Self]]:
        box, *others = super()._candidates(schema, predicate)
        if predicate.private_names:
            return [box, *others]
        # Hazard: as for leaves, everybody sees the number.
        return [box, partial(cls.box, schema, intervals=MOST_PROPOSED), *others]

    @classmethod
    def variants(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        """Yield the matchers of several digits, with answers for the brokers or the subscriber.

        Longer digits take longer messages, and fewer bits between the brokers.
        """
        for matcher in super().variants(schema, predicate):
            for digits, reveal in product(COMPARED_DIGITS, get_args(Reveal)):
                with suppress(CcbpsError):
                    same = dict.fromkeys(schema, digits)
                    changed = matcher._with(digits=same, reveal=reveal)
                    if matcher.template is None:
                        changed.prepare(predicate)
                    yield changed

    def traffic(self, events: int, subscriptions: int, *, topics: int | None = None) -> Traffic:
        """Return the bytes of each link, without hellos, grants, and comparisons of batches.

        Comparisons are 64 bytes and two bits an event. Brokers 1 and 2 get messages, and broker 0
        the heads. Lanes are filled up to whole words.
        """
        pairs, words = events * subscriptions, -(-subscriptions // WORD)
        publisher = events * (2 * self.event_bytes + HEAD_BYTES)
        subscriber = subscriptions * (2 * self.interest_bytes + HEAD_BYTES)
        opened = not self._for_subscribers
        sums = words * (WORD // 8) * (self.size + opened)
        brokers = PARTIES * events * (sums + COMPARED_BYTES)
        if opened:
            return Traffic(publisher, subscriber, brokers)
        # Each subscription gets a commitment, and an attempt and a share from each broker.
        answer = COMMITMENT_BYTES + PARTIES * (ATTEMPT_BYTES + PAYLOAD_KEY_BYTES)
        publisher += events * COMMITMENT_BYTES
        return Traffic(publisher, subscriber, brokers, pairs * answer)

    def layout(self) -> Any:
        forms = self._form, *([] if self._grant_form is None else [self._grant_form])
        parts = [
            [
                form.tables,
                [[list(map(list, gate)) for gate in layer] for layer in form.program.layers],
            ]
            for form in forms
        ]
        return [LAYOUT, self._form.digit_bits, *parts]

    @property
    def leakage(self) -> LeakageCard:
        public, hidden, protects = self._hidden_part()
        if self.intervals is not None:
            public += ", and the greatest number of intervals of an attribute in a predicate"
        fields = dict(FOR_SUBSCRIBERS if self._for_subscribers else FOR_BROKERS)
        if self.grants:
            for name, texts in GRANTS.items():
                fields[name] = (*fields[name], *texts)
        protected = ANSWERS_ONLY.union(protects, fields.pop("protects"))
        return self._card(
            adversary="one of the three brokers, which follows the protocol and keeps all it sees, "
            "also together with any clients",
            hides=(fields.pop("event"), hidden, *fields.pop("hides")),
            protects=protected,
            learns=(
                *fields.pop("learns"),
                f"public parameters: {public}",
                "how many events and subscriptions there are, when they arrive, and which client "
                "each is from",
            ),
            security="computational",
            assumption="no two brokers work together; one broker with clients learns only what "
            f"these clients' answers say; AES-256, HKDF-SHA256, {fields.pop('assumption')}X25519",
            hazards=("two brokers work together: they read everything", *fields.pop("hazards")),
            integrity="the brokers compare shares that two of them have, and refuse a message "
            f"that was altered on its way to one of them; {fields.pop('integrity')}",
            with_client="nothing",
            **fields,
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        sizes, form = self.sizes, self._form
        shares = [2 * -(-size // 16) for size in (sizes.event, sizes.interest)]
        key = -(-HEAD_BYTES // 16) if self._for_subscribers else 0
        costs: tuple[Cost, ...] = (
            Cost("publisher", "event", Operation.AES_BLOCK, shares[0] + key),
            Cost("subscriber", "interest", Operation.AES_BLOCK, shares[1]),
            Cost("broker", "pair", Operation.BIT, form.table_rows[-1], note="on average"),
            Cost("broker", "pair", Operation.AES_BLOCK, 2 * self.size / 128),
        )
        if self._grant_form is not None:
            each, form = "for each client with a grant", self._grant_form
            blocks = 2 * form.program.gates / 128
            costs += (
                Cost("broker", "event", Operation.BIT, form.table_rows[-1], note=each),
                Cost("broker", "event", Operation.AES_BLOCK, blocks, note=each),
            )
        if not self._for_subscribers:
            return costs
        return (
            *costs,
            Cost(
                "broker",
                "pair",
                Operation.AES_BLOCK,
                2 + PAD_BLOCKS,
                note="key",
            ),
            Cost("subscriber", "pair", Operation.AES_BLOCK, PARTIES * PAD_BLOCKS),
        )

    def explain(self) -> str:
        program, widths = self._form.program, sorted(set(self.digits.values()))
        digits, layers = " or ".join(map(str, widths)), len(program.layers)
        if self._grant_form is not None:
            layers = max(layers, len(self._grant_form.program.layers))
        last = "1 to open the answer"
        if self._for_subscribers:
            last = f"{PAYLOAD_KEY_BYTES} bytes to the subscriber"
        # No answer is opened before events are checked.
        messages = max(layers + self.grants, CHECK_MESSAGES) + 1
        return self._explain(
            [
                ("shape", self._shape),
                *self._sets_shown(),
                ("digits", f"{digits} bits"),
                ("reveal", REVEALED[self.reveal]),
                (
                    "traffic",
                    f"{self.size:,} bits a pair sent by each broker, and {last}; "
                    f"{messages} messages one after the other",
                ),
                *self._grants_shown(),
            ]
        )

    def _grants_shown(self) -> list[tuple[str, str]]:
        """Return the line of `explain` on grants."""
        if self._grant_form is None:
            return []
        program = self._grant_form.program
        size = sealed_bytes(GRANT_HEAD_BYTES + -(-self._grant_form.rows // 8), "grant")
        return [
            (
                "grants",
                f"of {size:,} bytes, for each client; {program.gates:,} bits an event and client "
                "sent by each broker, in the same messages",
            )
        ]

    def _sets_shown(self) -> list[tuple[str, str]]:
        """Return the line of `explain` on the sets that attributes of a box take."""
        if not isinstance(self._form, BoxDigits):
            return []
        free = [name for name in self.schema if self.schema[name].bits <= self.digits[name]]
        counts = {name: str(count) for name, count in (self.intervals or {}).items()}
        counts |= dict.fromkeys(free, "any set of values")
        return [("intervals", ", ".join(f"{name}: {count}" for name, count in counts.items()))]

    # -- roles ------------------------------------------------------------------------------------

    def publisher(  # type: ignore[override]  # There are no ledgers, and keys are public.
        self,
        brokers: Sequence[bytes] | ClientKey,
        *,
        ledger: None = None,
        randomness: Randomness = os.urandom,
    ) -> ThreeBrokerPublisher:
        """Make the role that encodes events.

        Args:
            brokers: public keys of brokers 0, 1 and 2 (`BrokerKey.public`); or the client's key,
                which has them, where several processes encode for one client.
            ledger: always None, as there are no rounds.
            randomness: source of random bytes: the operating system, unless a test says otherwise.

        Raises:
            ParameterError: these are not three different public keys.
        """
        return ThreeBrokerPublisher(self, brokers, ledger, randomness)

    def subscriber(  # type: ignore[override]
        self,
        brokers: Sequence[bytes] | ClientKey,
        *,
        ledger: None = None,
        randomness: Randomness = os.urandom,
    ) -> ThreeBrokerSubscriber:
        """Make the role that encodes predicates; arguments as for `publisher`."""
        return ThreeBrokerSubscriber(self, brokers, ledger, randomness)

    def authority(
        self, brokers: Sequence[bytes] | ClientKey, *, randomness: Randomness = os.urandom
    ) -> ThreeBrokerAuthority:
        """Make the role that gives grants; arguments as for `publisher`.

        Raises:
            ParameterError: clients need no grants.
        """
        if not self.grants:
            raise ParameterError("this matcher demands no grants: make it with grants=True")
        return ThreeBrokerAuthority(self, brokers, None, randomness)

    def broker(  # type: ignore[override]
        self, party: int, key: BrokerKey, ring: Ring, *, authority: bytes | None = None
    ) -> Party:
        """Make one of the three brokers.

        Args:
            party: number of the broker: 0, 1 or 2.
            key: key of the broker.
            ring: connections to the other two, made for the matcher's `digest`.
            authority: hello of the authority for this broker, by which the broker knows it, where
                clients need grants.

        Raises:
            ParameterError: there is no authority and clients need grants, or the other way round.
            DecodeError: `authority` is no hello for this broker.
        """
        return Party(
            party,
            self._form,
            key,
            ring,
            self.digest,
            for_subscribers=self._for_subscribers,
            grant_form=self._grant_form,
            authority=authority,
        )

    def local(self) -> LocalBrokers:
        """Make all three brokers in this process, for tests and notebooks."""
        return LocalBrokers(self)

    # -- interests, grants and messages -----------------------------------------------------------

    def grant_row(self, predicate: str | Predicate | None) -> Bytes:
        """Return the private bits of a grant, packed, shape (1, bytes).

        Args:
            predicate: a predicate that a box takes; None for no events.

        Raises:
            PredicateError: the predicate cannot be used.
        """
        form = self._grant_form
        assert form is not None
        sets: Mapping[str, Intervals] = dict.fromkeys(self.schema, ())
        if predicate is not None:
            sets = bound_predicate(self.schema, predicate, "a grant").sets(form.intervals)
        return np.packbits(form.interest_rows([sets]), axis=1, bitorder="little")

    def _box_row(self, predicate: Predicate) -> Any:
        assert isinstance(self._form, BoxDigits)
        return predicate.sets(self._form.intervals)

    def _interest_row(self, form: Form | HiddenTree) -> Any:
        """Return the form: tables are filled for many interests at a time."""
        return form

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        bits = self._form.event_rows(events)
        if self._for_subscribers:
            keys = np.unpackbits(draw.payload_keys(0, len(bits)), axis=1, bitorder="little")
            bits = np.concatenate([bits, keys], axis=1)
        self._share(np.packbits(bits, axis=1, bitorder="little"), self._bits("event"), draw, out)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Any], draw: Draw, out: Bytes
    ) -> None:
        values, form = interests.values, self._form
        rows = np.empty((len(values), self.sizes.interest), dtype=np.uint8)
        for start in range(0, len(values), PREPARED):
            bits = form.interest_rows(values[start : start + PREPARED])
            rows[start : start + PREPARED] = np.packbits(bits, axis=1, bitorder="little")
        self._share(rows[interests.index], self._bits("interest"), draw, out)

    def _share(self, packed: Bytes, bits: int, draw: Draw, out: Bytes) -> None:
        np.bitwise_xor(packed, draw.rows(0, len(packed)), out=out)
        if bits:  # a template may ask for nothing
            out[:, -1] &= used_bits(bits)

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        return padding_causes((bodies[:, -1] & ~used_bits(self._bits(side))) != 0)


def _windows(schema: Schema, digits: int | Mapping[str, int]) -> dict[str, int]:
    """Return the bits of a digit by attribute."""
    if isinstance(digits, Mapping):
        if digits.keys() != set(schema):
            raise ParameterError(
                f"digits must name the attributes {', '.join(schema)}, got {', '.join(digits)}"
            )
        return {name: whole(f"digits[{name!r}]", digits[name], 1, MAX_WINDOW) for name in schema}
    return dict.fromkeys(schema, whole("digits", digits, 1, MAX_WINDOW))


def _intervals(
    schema: Schema, intervals: int | Mapping[str, int], windows: Mapping[str, int]
) -> dict[str, int]:
    """Return the intervals of an attribute by attribute; 1 where codes are one digit."""
    given = intervals if isinstance(intervals, Mapping) else dict.fromkeys(schema, intervals)
    if others := given.keys() - set(schema):
        raise ParameterError(
            f"intervals names {', '.join(sorted(others))}, and the attributes are "
            f"{', '.join(schema)}"
        )
    label = "intervals[{!r}]" if isinstance(intervals, Mapping) else "intervals"
    counts = {name: whole(label.format(name), given[name], 1) for name in given}
    one_digit = {name for name in schema if schema[name].bits <= windows[name]}
    return {name: 1 if name in one_digit else counts.get(name, 1) for name in schema}


def _most(max_gates: int) -> int:
    """Return the greatest number of tables for so many gates."""
    return MOST_TABLES * whole("max_gates", max_gates, 1)


def _check_gates(count: int, max_gates: int) -> None:
    if count > whole("max_gates", max_gates, 1):
        raise ParameterError(
            f"there would be at least {count:,} gates, and max_gates allows {max_gates:,}: use "
            "fewer or narrower conditions, or digits of more bits"
        )
