"""PaillierRangeMatch: boxes by blinded Paillier comparisons (Nabeel, Shang and Bertino).

An event carries E_p of the code of every attribute, an interest E_s of low and of high + 1 for
every attribute; an attribute left open has its full range. The broker multiplies a value
with a bound, applies L, and sees from the sign which is greater.

All pairs: d(m, s) = r_p (m - s) + r_q is a sum of two differences against one reference bound,
d(m, s0) + d(s0, s). So the broker reads one number for each value and one for each bound,
sorts the bounds' and looks the values up; pairs compare small ranks in NumPy. The answers are those
of one modular product for every comparison (`ccbps.ciphers.nabeel.NabeelComparer.at_least`).

Conventions: integers are big-endian in 2 modulus_bits / 8 bytes; interests hold low, high of the
first attribute, then of the next.
Hazard: that the broker can do this is the scheme's weakness. It reads differences of codes, not
only their order: one known value or bound gives all values to within 1. A research artefact.
Source: [NSB12]; [Survey] section 4.2.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.modular import integer, inverse, rows_from, rows_to
from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.checks import fields, flag, instance, whole
from ccbps.ciphers.nabeel import NabeelComparer, NabeelEncoder, NabeelParameters, factor_bits
from ccbps.errors import ParameterError
from ccbps.keys.role_key import Role, hex_number
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.scheme import Cost, Draw, Operation, Side, Sizes
from ccbps.matching.reusable import BOXES, ReusableMatcher, causes
from ccbps.predicates import Events, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.codes import unpack

Bounds = tuple[tuple[int, int], ...]
"""The least code inside and the least one above, for every attribute of an interest."""

MIN_BITS, MAX_BITS = 2048, 16_384
TOY_BITS = 128


@dataclass(frozen=True, slots=True, repr=False)
class _Column:
    """One attribute of a table: bounds by their place among all distinct ones, ascending."""

    reference: int
    places: list[int]
    low: NDArray[np.int32]
    high: NDArray[np.int32]


class PaillierRangeMatch(ReusableMatcher):
    """Conjunctions of intervals by modified Paillier. Shows order and approximate differences.

    Args:
        schema: attributes with at least 67 bits less than the modulus.
        modulus_bits: bits of n = p q, a multiple of 16; at least 2048, at most 16,384.
        toy: True to allow a modulus from 128 bits on, which can be factored; for tests.

    Raises:
        ParameterError: the modulus is too long, or too short for security or for an attribute.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching.broken import PaillierRangeMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = PaillierRangeMatch(schema, 256, toy=True)     # 2,048 bits or more in earnest
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> interests = subscriber.encode(["price < 120", "issue = 'AAPL' AND price > 100"])
        >>> broker.match_all(events, interests)
        array([[ True, False],
               [False,  True]])
    """

    name = "Paillier range"
    operators = BOXES
    covering = False

    def __init__(self, schema: Schema, modulus_bits: int = MIN_BITS, toy: bool = False) -> None:
        least, hint = TOY_BITS if flag("toy", toy) else MIN_BITS, "toy=True takes less"
        modulus_bits = whole("modulus_bits", modulus_bits, least, MAX_BITS, hint=hint)
        if modulus_bits % 16:
            raise ParameterError(f"modulus_bits must be a multiple of 16, got {modulus_bits}")
        for name in schema:
            try:
                factor_bits(modulus_bits, schema[name].bits)
            except ParameterError as error:
                raise ParameterError(f"attribute {name!r}: {error}") from None
        self.modulus_bits, self.toy = modulus_bits, modulus_bits < MIN_BITS
        self._width = modulus_bits // 4
        size = self._width * len(schema)
        self._set_up(schema, Sizes(size, 2 * size))

    def parameters(self) -> dict[str, Any]:
        return {"modulus_bits": self.modulus_bits, "toy": self.toy}

    @property
    def leakage(self) -> LeakageCard:
        return self._card(
            hides=(
                "where in its domain an attribute's values lie, as long as they fill a small "
                "part of it, none is NULL, no subscription is open at an end, and neither a "
                "value nor a bound nor their distribution is known",
            ),
            learns=(
                "every match, and the answer of each comparison: of the value with the low "
                "bound, and with the high one",
                "from two events, without any subscription, the difference of an attribute's "
                "values times a secret r_p, with an error of less than r_p",
                "from two bounds of an attribute, their exact difference times r_p; r_p is the "
                "greatest common divisor of such numbers",
                "hence the order, equality and differences of all bounds; the order of values, "
                "and their differences to within 1",
                "the values themselves, where the events fill an attribute's domain: nearly all "
                "of Bool and Category exactly, those of UInt(8) to within 1",
                "which attributes a subscription constrains",
            ),
            security="broken",
            assumption="whatever the modulus, events alone give away their differences",
            hazards=(
                "the modulus is a toy, which anyone can factor",
                "the broker colludes with one client: together they have r_p and all blindings",
                "the domain of an attribute is known: the bounds of an unconstrained attribute are "
                "its two ends, and x < c begins at the lower one",
                "g_p is n + 1 and not random: mu then gives the factors of n",
            ),
            attacks=(
                "events alone: once their values span the domain, their spread gives r_p, and "
                "all values to within 1",
                "two events: their quotient shows the scaled difference of their values",
                "two subscriptions: their quotient shows r_p times the exact difference",
                "three or more bounds: a greatest common divisor shows r_p",
                "one known value: every other value of the attribute to within 1",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role. No exponentiations: E'(1) = 1 + kappa n has short powers."""
        n, product = len(self.schema), Operation.MODULAR_PRODUCT
        of = f"{2 * self.modulus_bits} bits"
        return (
            Cost("publisher", "event", product, n, of),
            Cost("subscriber", "interest", product, 2 * n, of),
            Cost("broker", "event", product, n, of),
            Cost("broker", "interest", product, 2 * n, of),
            Cost("broker", "pair", Operation.COMPARISON, 2 * n),
        )

    # -- keys -------------------------------------------------------------------------------------

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        server = NabeelParameters.generate(self.modulus_bits, toy=self.toy, randomness=randomness)
        attributes = []
        for name in self.schema:
            factor = server.factor(self.schema[name].bits, randomness)
            attributes.append({"t": _text(server.blinding(randomness)), "r": _text(factor)})
        p, q = server.primes()
        numbers = {"p": p, "q": q, "n": server.n, "kappa": server.kappa}
        texts = {name: _text(number) for name, number in numbers.items()}
        return {**texts, "attributes": attributes}

    def issue(
        self, master: dict[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        n, kappa = integer(master["n"]), integer(master["kappa"])
        attributes = []
        for secret in master["attributes"]:
            blinding = integer(secret["t"])
            if role == "broker":
                # Every value is congruent to this modulo n: whoever sees one knows it.
                attributes.append({"t": _text(blinding % n)})
                continue
            if role == "subscriber":
                blinding = inverse(blinding, n * n)
            attributes.append({"t": _text(blinding), "r": secret["r"]})
        scalar = {"mu": _text(inverse(kappa, n))} if role == "broker" else {"kappa": _text(kappa)}
        return {"n": _text(n), **scalar, "attributes": attributes}

    def check_key_data(self, role: Role, data: Mapping[str, Any]) -> None:
        scalar = "mu" if role == "broker" else "kappa"
        primes = ("p", "q") if role == "server" else ()
        fields("key data", data, ("n", scalar, "attributes", *primes))
        n = hex_number(data["n"], 1 << (self.modulus_bits - 1), (1 << self.modulus_bits) - 1)
        numbers = [hex_number(data[scalar], 1, n - 1)]
        if role == "server":
            p, q = (hex_number(data[name], 2, n) for name in primes)
            whole("n", p * q, n, n)
        for name, part in zip(
            self.schema, instance("parts", data["attributes"], list), strict=True
        ):
            fields("a part", part, ("t",) if role == "broker" else ("t", "r"))
            numbers.append(hex_number(part["t"], 1, (n if role == "broker" else n * n) - 1))
            if role != "broker":
                bits = factor_bits(self.modulus_bits, self.schema[name].bits)
                hex_number(part["r"], 1 << (bits - 1), (1 << bits) - 1)
        for number in numbers:
            inverse(number, n)

    def _encoders(self, key: Mapping[str, Any]) -> list[NabeelEncoder]:
        n, kappa = integer(key["n"]), integer(key["kappa"])
        return [
            NabeelEncoder(n, kappa, integer(part["t"]), integer(part["r"]), self.schema[name].bits)
            for name, part in zip(self.schema, key["attributes"], strict=True)
        ]

    # -- clients ----------------------------------------------------------------------------------

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        for column, (name, encoder) in enumerate(
            zip(self.schema, self._encoders(key), strict=True)
        ):
            sent = encoder.values(unpack(events.codes[name]), draw.fresh)
            out[:, self._at(column)] = rows_to(sent, self._width)

    def prepare(self, interest: Any) -> Bounds:
        box = bound_predicate(self.schema, interest).box()
        # An empty range is (1, 0): at least 1 and below 1.
        return tuple((low, high + 1) for low, high in box.ranges.values())

    def _distinct(self, key: Mapping[str, Any], interests: Sequence[Bounds]) -> Bytes:
        columns = []
        for column, encoder in enumerate(self._encoders(key)):
            for end in (0, 1):
                sent = encoder.bounds([bounds[column][end] for bounds in interests])
                columns.append(rows_to(sent, self._width))
        return np.hstack(columns)

    # -- broker -----------------------------------------------------------------------------------

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        # All values of an attribute are congruent modulo n: others were never encoded.
        n = integer(key["n"])
        residues = [integer(part["t"]) for part in key["attributes"]]
        if side == "interest":
            residues = [inverse(blinding, n) for blinding in residues for _ in "lh"]
        wrong, n2 = np.zeros(len(bodies), dtype=np.bool_), n * n
        for column, residue in enumerate(residues):
            values = rows_from(bodies[:, self._at(column)])
            wrong |= [value >= n2 or value % n != residue for value in values]
        return causes(wrong)

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> list[_Column]:
        comparer = NabeelComparer(integer(key["n"]), integer(key["mu"]))
        columns = []
        for column in range(len(self.schema)):
            low, high = (rows_from(bodies[:, self._at(2 * column + end)]) for end in (0, 1))
            back = inverse(low[0], comparer.n2)
            # d(m, s) >= 0 exactly if d(m, s0) >= -d(s0, s), and s / s0 reads as d(s0, s).
            places = [-offset for offset in comparer.offsets(low + high, back)]
            distinct = sorted(set(places))
            rank = {place: number for number, place in enumerate(distinct)}
            ranks = np.array([rank[place] for place in places], dtype=np.int32)
            columns.append(_Column(low[0], distinct, ranks[: len(low)], ranks[len(low) :]))
        return columns

    def match(self, key: Mapping[str, Any], events: Bytes, table: list[_Column]) -> Bools:
        comparer = NabeelComparer(integer(key["n"]), integer(key["mu"]))
        out = np.ones((len(events), len(table[0].low)), dtype=np.bool_)
        for number, column in enumerate(table):
            values = rows_from(events[:, self._at(number)])
            places = comparer.offsets(values, column.reference)
            ranks = [bisect_right(column.places, place) for place in places]
            reached = np.array(ranks, dtype=np.int32)[:, None]  # Bounds that are at most the value.
            out &= column.low < reached
            out &= column.high >= reached
        return out

    def _at(self, number: int) -> slice:
        return slice(number * self._width, (number + 1) * self._width)


def _text(value: int) -> str:
    return f"{int(value):x}"
