"""ThreeBrokerMatch: encoded once, matched for ever, and no broker learns anything but the answers.

An event is encoded once for all subscriptions, and an interest once for all events, as with the
reusable schemes. Yet a broker learns no more than with the one-time ones. The price: three brokers,
no two of which work together. Each client shares its messages between them (`ccbps.shares`). For
each pair of an event and an interest a broker sends a few dozen bits to another one, in a few
messages, and all three learn the answer. Clients have no key in common with one another; they know
the three brokers' public keys.

There are three kinds of matchers, which differ in what everybody may see of a subscription: a box
(the schema, and how many intervals an attribute has), a template (its formula, but for private
constants), and hidden formulas (the number and kind of leaves).

Security: against any one broker that follows the protocol, alone or with any clients. Two brokers
together read everything. Source: [AFLNO16]; the layers are those of `ccbps.forms.digits`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from ccbps.arrays import Bytes, Randomness
from ccbps.checks import whole
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.rows import used_bits
from ccbps.errors import ParameterError
from ccbps.forms.digits import MAX_WINDOW, BoxDigits, DigitForm, FormulaDigits, HiddenDigits
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.matcher import ANSWERS_ONLY
from ccbps.matching.contract.roles import Publisher, Subscriber
from ccbps.matching.contract.scheme import Cost, Draw, Operation, SharesScheme, Side, Sizes
from ccbps.matching.templates import MAX_SIZE, MOST_PROPOSED, HiddenMatcher
from ccbps.matching.three_brokers.local import LocalBrokers
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.form import Form
from ccbps.predicates.hiding import HiddenTree, LeafKind
from ccbps.shares.clients import BrokerKey
from ccbps.shares.party import Party
from ccbps.shares.ring import Ring
from ccbps.wire import padding_causes

LAYOUT = 1
"""Number of the rule by which tables and gates follow from a form; part of fingerprints."""
MOST_TABLES = 4
"""Greatest number of tables for each gate that is allowed."""
DIGITS = 4
"""Bits of a digit by default: the fewest bytes and bits a pair together, and the fastest."""
PREPARED = 1 << 12
"""Interests whose tables are filled at a time."""


class ThreeBrokerMatch(HiddenMatcher, SharesScheme):
    """Public side: schema, template, digits, sizes. It makes the roles.

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
        size: number of gates: bits that each broker sends for a pair, but for the answer.
    """

    name = "three brokers"
    _own_parameters: ClassVar[tuple[str, ...]] = ("hidden", "digits", "intervals")
    digits: Mapping[str, int]
    intervals: Mapping[str, int] | None = None
    _form: FormulaDigits | BoxDigits | HiddenDigits

    def __init__(
        self,
        schema: Schema,
        template: str | Predicate | None = None,
        *,
        digits: int | Mapping[str, int] = DIGITS,
        max_gates: int = MAX_SIZE,
    ) -> None:
        """Write the layers of a template.

        Args:
            schema: schema of the events.
            template: SQL, with ``:name`` wherever the subscriber has a private constant. Required:
                without one, take `ThreeBrokerMatch.box` or `ThreeBrokerMatch.hidden`.
            digits: bits of a digit, for all attributes or by attribute. More bits make interests
                longer, and take fewer gates and layers.
            max_gates: largest number of gates.

        Raises:
            ParameterError: there is no template, it is for another schema or already bound,
                `digits` are not possible, or there would be more than `max_gates` gates.
            PredicateError: the template does not parse or does not fit the schema.
        """
        more = f"; for any formula, {type(self).__name__}.hidden(schema, ...)"
        form = self._template_form(schema, template, more)
        windows = _windows(schema, digits)
        self._use_form(schema, FormulaDigits(schema, windows, form, _most(max_gates)), max_gates)

    @classmethod
    def box(
        cls,
        schema: Schema,
        *,
        intervals: int | Mapping[str, int] = 1,
        digits: int | Mapping[str, int] = DIGITS,
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
            max_gates: largest number of gates.

        Raises:
            ParameterError: `intervals` or `digits` are not possible, or there would be more gates.
        """
        matcher = cls.__new__(cls, schema)
        windows, most = _windows(schema, digits), _most(max_gates)
        matcher.operators = ("=", "<", "interval", "prefix", "in", "and", "not")
        matcher.intervals = _intervals(schema, intervals, windows)
        form = BoxDigits(schema, windows, matcher.intervals, most)
        matcher._use_form(schema, form, max_gates)
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
        max_gates: int = MAX_SIZE,
    ) -> Self:
        """Make the matcher that hides the formula itself.

        Args:
            schema: schema of the events.
            leaves: leaves of the tree, a power of two. Give this or `depth`.
            depth: levels of nodes of the tree.
            leaf: kind of the leaves, as for `FormulaMatch.hidden`.
            digits: bits of a digit, as for a template.
            max_gates: largest number of gates.

        Raises:
            ParameterError: a value is not possible, or there would be more gates.
        """
        matcher = cls.__new__(cls, schema)
        levels, windows = matcher._use_tree(leaves, depth, leaf), _windows(schema, digits)
        # One leaf tells how many gates there would be, before they are made.
        one = HiddenDigits(schema, windows, 0, leaf, _most(max_gates))
        _check_gates(max(one.program.gates, len(one.tables) // MOST_TABLES) << levels, max_gates)
        matcher._use_form(schema, HiddenDigits(schema, windows, levels, leaf), max_gates)
        return matcher

    def _use_form(
        self, schema: Schema, form: FormulaDigits | BoxDigits | HiddenDigits, max_gates: int
    ) -> None:
        _check_gates(form.program.gates, max_gates)
        self._form, self.digits = form, form.windows
        sizes = Sizes(-(-form.event_bits // 8), -(-form.rows // 8))
        self._set_up(schema, sizes)

    # -- public parameters ------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of gates."""
        return self._form.program.gates

    @property
    def form(self) -> DigitForm:
        """Lookups and layers, for brokers."""
        return self._form

    def parameters(self) -> dict[str, Any]:
        intervals = None if self.intervals is None else dict(self.intervals)
        return {**super().parameters(), "digits": dict(self.digits), "intervals": intervals}

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

    def layout(self) -> Any:
        form = self._form
        layers = [[list(map(list, gate)) for gate in layer] for layer in form.program.layers]
        return [LAYOUT, form.digit_bits, form.tables, layers]

    @property
    def leakage(self) -> LeakageCard:
        public, hidden, protects = self._hidden_part()
        return self._card(
            adversary="one of the three brokers, which follows the protocol and keeps all it sees, "
            "also together with any clients",
            hides=("every attribute of the event, beyond what the answers say about it", hidden),
            protects=ANSWERS_ONLY.union(protects),
            learns=(
                "whether each event matches each subscription",
                f"public parameters: {public}",
                "how many events and subscriptions there are, when they arrive, and which client "
                "each is from",
            ),
            security="computational",
            assumption="no two brokers work together, and one of them with clients learns what "
            "these clients' answers say; AES-256, HKDF-SHA256 and X25519",
            hazards=(
                "two brokers together read everything",
                "a broker that does not follow the protocol may change answers",
            ),
            integrity="the brokers compare what two of them have in common, and refuse a message "
            "that was altered on its way to one of them; a broker that deviates may change answers",
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        sizes, form = self.sizes, self._form
        shares = [2 * -(-size // 16) for size in (sizes.event, sizes.interest)]
        return (
            Cost("publisher", "event", Operation.AES_BLOCK, shares[0]),
            Cost("subscriber", "interest", Operation.AES_BLOCK, shares[1]),
            Cost("broker", "pair", Operation.BIT, form.table_rows[-1], note="on average"),
            Cost("broker", "pair", Operation.AES_BLOCK, 2 * form.program.gates / 128),
        )

    def explain(self) -> str:
        program, widths = self._form.program, sorted(set(self.digits.values()))
        digits = " or ".join(map(str, widths))
        return self._explain(
            [
                ("shape", self._shape),
                *self._sets_shown(),
                ("digits", f"{digits} bits"),
                (
                    "traffic",
                    f"{program.gates:,} bits a pair sent by each broker, and 1 to open the answer; "
                    f"{len(program.layers) + 1} messages one after the other",
                ),
            ]
        )

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
        self, brokers: Sequence[bytes], *, randomness: Randomness = os.urandom
    ) -> Publisher:
        """Make the role that encodes events.

        Args:
            brokers: public keys of brokers 0, 1 and 2 (`BrokerKey.public`).
            randomness: source of random bytes: the operating system, unless a test says otherwise.

        Raises:
            ParameterError: these are not three different public keys.
        """
        return Publisher(self, brokers, None, randomness)

    def subscriber(  # type: ignore[override]
        self, brokers: Sequence[bytes], *, randomness: Randomness = os.urandom
    ) -> Subscriber:
        """Make the role that encodes predicates; arguments as for `publisher`."""
        return Subscriber(self, brokers, None, randomness)

    def broker(self, party: int, key: BrokerKey, ring: Ring) -> Party:  # type: ignore[override]
        """Make one of the three brokers.

        Args:
            party: its number: 0, 1 or 2.
            key: its key.
            ring: connections to the other two, made for the matcher's `digest`.
        """
        return Party(party, self._form, key, ring, self.digest)

    def local(self) -> LocalBrokers:
        """Make three brokers in this process, for tests and notebooks."""
        return LocalBrokers(self)

    # -- interests and messages -------------------------------------------------------------------

    def _box_row(self, predicate: Predicate) -> Any:
        assert isinstance(self._form, BoxDigits)
        return predicate.sets(self._form.intervals)

    def _interest_row(self, form: Form | HiddenTree) -> Any:
        """Return the form: tables are filled for many interests at a time."""
        return form

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        bits = np.packbits(self._form.event_rows(events), axis=1, bitorder="little")
        self._share(bits, self._form.event_bits, draw, out)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Any], draw: Draw, out: Bytes
    ) -> None:
        values, form = interests.values, self._form
        rows = np.empty((len(values), self.sizes.interest), dtype=np.uint8)
        for start in range(0, len(values), PREPARED):
            bits = form.interest_rows(values[start : start + PREPARED])
            rows[start : start + PREPARED] = np.packbits(bits, axis=1, bitorder="little")
        self._share(rows[interests.index], form.rows, draw, out)

    def _share(self, packed: Bytes, bits: int, draw: Draw, out: Bytes) -> None:
        np.bitwise_xor(packed, draw.rows(0, len(packed)), out=out)
        out[:, -1] &= used_bits(bits)

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        bits = self._form.event_bits if side == "event" else self._form.rows
        return padding_causes((bodies[:, -1] & ~used_bits(bits)) != 0)


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
