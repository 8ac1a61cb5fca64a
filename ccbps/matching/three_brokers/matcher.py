"""ThreeBrokerMatch: encoded once, matched for ever, and no broker learns anything but the answers.

An event is encoded once for all subscriptions, and an interest once for all events, as with the
reusable schemes. Yet a broker learns no more than with the one-time ones. The price: three brokers,
no two of which work together. Each client shares its messages between them (`ccbps.shares`). For
each pair of an event and an interest a broker sends a few dozen bits to another one, in a few
messages, and all three learn the answer. Clients have no key in common with one another; they know
the three brokers' public keys.

There are three kinds of matchers, which differ in what everybody may see of a subscription: a box
(nothing but the schema), a template (its formula, but for private constants), and hidden formulas
(the number and kind of leaves).

Security: against any one broker that follows the protocol, alone or with any clients. Two brokers
together read everything. Source: [AFLNO16]; the layers are those of `ccbps.forms.digits`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ccbps.arrays import Bytes, Randomness
from ccbps.checks import whole
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.rows import used_bits
from ccbps.errors import ParameterError
from ccbps.forms.digits import MAX_WINDOW, DigitForm, FormulaDigits, HiddenDigits
from ccbps.keys.plain_key import ClientKey
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.matcher import ANSWERS_ONLY
from ccbps.matching.contract.roles import Publisher, Subscriber
from ccbps.matching.contract.scheme import Cost, Draw, Operation, SharesScheme, Side, Sizes
from ccbps.matching.templates import MAX_SIZE, HiddenMatcher
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
        size: number of gates: bits that each broker sends for a pair, but for the answer.
    """

    name = "three brokers"
    _own_parameters: ClassVar[tuple[str, ...]] = ("hidden", "digits")
    digits: Mapping[str, int]
    _form: FormulaDigits | HiddenDigits

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
        digits: int | Mapping[str, int] = DIGITS,
        max_gates: int = MAX_SIZE,
    ) -> Self:
        """Make the matcher that hides which attributes a predicate constrains, and how.

        Args:
            schema: schema of the events.
            digits: bits of a digit, as for a template.
            max_gates: largest number of gates.

        Raises:
            ParameterError: `digits` are not possible, or there would be more gates.
        """
        matcher = cls.__new__(cls, schema)
        windows, form = _windows(schema, digits), matcher._box_form(schema)
        digit_form = FormulaDigits(schema, windows, form, _most(max_gates))
        matcher._use_form(schema, digit_form, max_gates)
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

    def _use_form(self, schema: Schema, form: FormulaDigits | HiddenDigits, max_gates: int) -> None:
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
        return {**super().parameters(), "digits": dict(self.digits)}

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
                ("digits", f"{digits} bits"),
                (
                    "traffic",
                    f"{program.gates:,} bits a pair sent by each broker, and 1 to open the answer; "
                    f"{len(program.layers) + 1} messages one after the other",
                ),
            ]
        )

    # -- roles ------------------------------------------------------------------------------------

    def publisher(  # type: ignore[override]  # There are no ledgers, and keys are public.
        self,
        brokers: Sequence[bytes] | ClientKey,
        *,
        ledger: None = None,
        randomness: Randomness = os.urandom,
    ) -> Publisher:
        """Make the role that encodes events.

        Args:
            brokers: public keys of brokers 0, 1 and 2 (`BrokerKey.public`); or the client's key,
                which has them, where several processes encode for one client.
            ledger: always None, as there are no rounds.
            randomness: source of random bytes: the operating system, unless a test says otherwise.

        Raises:
            ParameterError: these are not three different public keys.
        """
        return Publisher(self, brokers, ledger, randomness)

    def subscriber(  # type: ignore[override]
        self,
        brokers: Sequence[bytes] | ClientKey,
        *,
        ledger: None = None,
        randomness: Randomness = os.urandom,
    ) -> Subscriber:
        """Make the role that encodes predicates; arguments as for `publisher`."""
        return Subscriber(self, brokers, ledger, randomness)

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

    def _interest_row(self, form: Form | HiddenTree) -> Bytes:
        rows: Bytes = self._form.interest_rows([form])  # type: ignore[list-item]
        return np.packbits(rows, axis=1, bitorder="little")

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        bits = np.packbits(self._form.event_rows(events), axis=1, bitorder="little")
        self._share(bits, self._form.event_bits, draw, out)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Bytes], draw: Draw, out: Bytes
    ) -> None:
        rows = np.concatenate(interests.values)[interests.index]
        self._share(rows, self._form.rows, draw, out)

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


def _most(max_gates: int) -> int:
    """Return the greatest number of tables for so many gates."""
    return MOST_TABLES * whole("max_gates", max_gates, 1)


def _check_gates(count: int, max_gates: int) -> None:
    if count > whole("max_gates", max_gates, 1):
        raise ParameterError(
            f"there would be at least {count:,} gates, and max_gates allows {max_gates:,}: use "
            "fewer or narrower conditions, or digits of more bits"
        )
