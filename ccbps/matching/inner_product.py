"""InnerProductMatch: reusable messages that show a broker match bits, by function-private products.

An event and a subscription become vectors (`ccbps.forms.vectors`) whose scalar product is 0 where
they match. The publisher encrypts the event's vector, the subscriber makes a token of the
subscription's (`ccbps.functional.inner_product`). A product of n pairings shows the broker whether
the scalar product is 0, and nothing else about it.

A subscription is one message, whatever its form: its coefficients encode sets, parts of an OR,
attributes without a limit, and "always" or "never". Ranges of large domains are refused: a message
for each prefix of a range would be another scheme, which shows which prefix matched.

Conventions: the body of an event is n compressed points of G1, an interest's is n of G2.

Hazard: all clients have one key, with which a broker reads all clients' messages.
Hazard: not constant time.
Source: [KLMMRW16] for the encryption, [KSW08] for predicates by scalar products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, Self, get_args

import numpy as np

from ccbps.algebra.pairing import Pairing
from ccbps.algebra.pairing import pairing as pairing_named
from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import CcbpsError, DecodeError, ParameterError
from ccbps.forms.vectors import Prepared, Vectors, parameters_for
from ccbps.functional.inner_product import SEED_BYTES, Basis, InnerProducts, Points
from ccbps.keys.role_key import hex_bytes
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.matcher import ANSWERS_ONLY
from ccbps.matching.contract.scheme import (
    Cost,
    Draw,
    Operation,
    Operator,
    Side,
    Sizes,
)
from ccbps.matching.reusable import ReusableMatcher, causes
from ccbps.matching.users.users import distinct_rows
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.bound import bound_predicate

TOGETHER: Final = 1 << 16
"""Pairs whose places are listed at a time."""
KEPT_BASES: Final = 4
"""Secret matrices that are kept, since making one takes as long as many messages."""


class InnerProductMatch(ReusableMatcher):
    """ORs of ANDs of sets of values; the broker learns match bits and nothing else.

    Args:
        schema: attributes of at most 254 bits.
        members: greatest number of values of a set, by attribute; 1 for those not named, and 0
            leaves an attribute out of the vectors.
        domains: attributes with few values, of which a subscription may ask for any set: ranges,
            ``<>``, ``IN``. Each value but one is a coordinate.
        alternatives: greatest number of ANDs that are joined by OR.
        pairing: "bls12-381", or "transparent" for tests, which hides nothing.

    Raises:
        ParameterError: a parameter is not possible, or vectors would have more than 511
            coordinates; or no library for the pairing is installed.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import InnerProductMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(16))
        >>> matcher = InnerProductMatch(schema, domains=["issue"], alternatives=2)
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> interests = subscriber.encode(["issue <> 'AAPL' OR price = 5", "price IN (120, 121)"])
        >>> broker.match_all(events, interests)
        array([[ True, False],
               [False,  True]])
        >>> matcher.size, matcher.event_bytes, matcher.interest_bytes
        (8, 408, 792)

    Attributes:
        size: n, number of coordinates of a padded vector, points of a message, pairings of a pair.
    """

    name = "inner product"
    operators: tuple[Operator, ...] = get_args(Operator)
    parts = ("seed",)
    instead = 'pairing="bls12-381"'

    def __init__(
        self,
        schema: Schema,
        *,
        members: Mapping[str, int] | None = None,
        domains: Sequence[str] = (),
        alternatives: int = 1,
        pairing: str = "bls12-381",
    ) -> None:
        groups = _pairing(pairing)
        given = {} if members is None else members
        self._vectors = Vectors(schema, groups.order, given, domains, alternatives)
        self._products = InnerProducts(len(self._vectors.monomials), pairing=pairing)
        self.size = self._products.size
        sizes = Sizes(self._products.ciphertext_bytes, self._products.token_bytes)
        self._set_up(schema, sizes)

    def parameters(self) -> dict[str, Any]:
        vectors = self._vectors
        return {
            "members": {name: count for name, count in vectors.members.items() if count != 1},
            "domains": list(vectors.domains),
            "alternatives": vectors.alternatives,
            "pairing": self._products.group.name,
        }

    def layout(self) -> Any:
        return [[list(part) for part in monomial] for monomial in self._vectors.monomials]

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        """Yield a matcher whose vectors hold all attributes, or else those of the predicate."""
        with suppress(CcbpsError):
            for options in parameters_for(schema, bound_predicate(schema, predicate)):
                with suppress(CcbpsError):
                    matcher = cls(schema, **options)
                    matcher.prepare(predicate)
                    yield matcher
                    return

    def explain(self) -> str:
        return self._explain([("vectors", f"{self.size - 1} coordinates and a pad")])

    @property
    def leakage(self) -> LeakageCard:
        groups, secure = self._products.group, self._products.group.security > 0
        protects = {Protects.CONSTANTS, Protects.ATTRIBUTES, Protects.FORMULA}
        model = ("transparent: every element of the groups shows its logarithm, and with it all",)
        return self._card(
            hides=(
                "every attribute of the event, beyond what the answers say about it",
                "the whole subscription: constants, which attributes it limits, its sets, how many "
                "parts an OR has and which of them holds, whether it holds always or never, beyond "
                "what the answers say",
                "how near a pair that does not match is to a match",
                "which events are equal and which subscriptions are, beyond what the answers say",
            ),
            protects=ANSWERS_ONLY.union(protects) if secure else frozenset(),
            learns=(
                "whether the event matches the predicate, for every event and every subscription "
                "of one epoch",
                "public parameters: the schema, members, domains, alternatives, and the length "
                f"n = {self.size} that follows from them",
                "which subscriptions belong together, where a subscriber sends several in place of "
                "an OR, and then which of them matched; messages name no sender, connections do",
            ),
            security="computational" if secure else "broken",
            assumption=f"{groups.name} as generic groups with a pairing, of about "
            f"{groups.security} bits; AES-256 for the key's matrix; the broker colludes with no "
            "client",
            hazards=(
                "the broker colludes with one client, a publisher or a subscriber, of the same "
                "epoch: all have one key, and no key reads one side only",
                "a key is given to anyone who may not make both events and subscriptions",
                "messages contain their first components, as in the published scheme",
            ),
            attacks=(
                *(() if secure else model),
                "broker and one client read events: values of domains at once, others of b bits "
                "in 2^(b/2) steps or from a dictionary; of 128 bits from a dictionary only",
                "broker and one client read subscriptions: the attributes that they limit and sets "
                "of domains at once, constants in 2^(b/2) steps for b bits of all of them",
                "anyone with a key, together with the broker, tries events and subscriptions of "
                "its own on the messages of others",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        n, power, of = self.size, Operation.EXPONENTIATION, self._products.group.name
        return (
            Cost("publisher", "event", Operation.MODULAR_PRODUCT, n * n, "255 bits"),
            Cost("publisher", "event", power, n, f"{of}, G1"),
            Cost("subscriber", "interest", Operation.MODULAR_PRODUCT, n * n, "255 bits"),
            Cost("subscriber", "interest", power, n, f"{of}, G2"),
            Cost("broker", "event", power, n, f"{of}, G1", "to check points"),
            Cost("broker", "interest", power, n, f"{of}, G2", "to check points"),
            Cost("broker", "pair", Operation.PAIRING, n, of),
        )

    # -- keys -------------------------------------------------------------------------------------

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        return {"seed": randomness(SEED_BYTES).hex()}

    def check_part(self, name: str, value: Any) -> None:
        hex_bytes(value, SEED_BYTES)

    def _basis(self, key: Mapping[str, Any]) -> Basis:
        return _kept_basis(self._products.group, self.size, key["seed"])

    # -- clients ----------------------------------------------------------------------------------

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        vectors, basis = self._vectors.of_events(events), self._basis(key)
        out[:] = self._products.ciphertexts(basis, vectors, draw.fresh)

    def prepare(self, interest: Any) -> Prepared:
        return self._vectors.prepare(bound_predicate(self.schema, interest))

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Prepared], draw: Draw, out: Bytes
    ) -> None:
        sent = [interests.values[number] for number in interests.index.tolist()]
        groups, basis = self._products.group, self._basis(key)
        vectors = self._vectors.of_predicates(
            sent, lambda count: groups.exponents(count, draw.fresh)
        )
        out[:] = self._products.tokens(basis, vectors, draw.fresh)

    # -- the broker -------------------------------------------------------------------------------

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        wrong = np.zeros(len(bodies), dtype=np.bool_)
        for row, body in enumerate(bodies):
            try:
                self._reader(side)(body.tobytes())
            except DecodeError:
                wrong[row] = True
        return causes(wrong)

    def _reader(self, side: Side) -> Callable[[bytes], Points]:
        return self._products.read_ciphertext if side == "event" else self._products.read_token

    def _read(self, side: Side, bodies: Bytes) -> list[Points]:
        return list(map(self._reader(side), (body.tobytes() for body in bodies)))

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> list[Points]:
        return self._read("interest", bodies)

    def open_events(self, key: Mapping[str, Any], bodies: Bytes) -> list[Points]:
        return self._read("event", bodies)

    def match(
        self, key: Mapping[str, Any], events: Sequence[Points], table: Sequence[Points]
    ) -> Bools:
        out = np.empty((len(events), len(table)), dtype=np.bool_)
        step = max(1, TOGETHER // len(table))
        for start in range(0, len(events), step):
            block = out[start : start + step]
            rows, columns = np.indices(block.shape).reshape(2, -1)
            answers = self._products.orthogonal(events[start:], table, rows, columns)
            block[:] = answers.reshape(block.shape)
        return out

    def match_rows(self, key: Mapping[str, Any], events: Bytes, interests: Bytes) -> Bools:
        opened, rows = distinct_rows([body.tobytes() for body in events])
        asked, columns = distinct_rows([body.tobytes() for body in interests])
        ciphertexts = list(map(self._reader("event"), opened))
        tokens = list(map(self._reader("interest"), asked))
        return self._products.orthogonal(ciphertexts, tokens, rows, columns)


def _pairing(name: str) -> Pairing:
    problem = ""
    try:
        return pairing_named(name)
    except ImportError as error:
        problem = str(error)
    raise ParameterError(problem)


@lru_cache(KEPT_BASES)
def _kept_basis(groups: Pairing, size: int, seed: str) -> Basis:
    return Basis(groups, size, bytes.fromhex(seed))
