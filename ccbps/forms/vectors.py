"""Events and predicates as vectors whose scalar product is 0 modulo a prime where they match.

Every attribute has *functions* of its code x:

- *powers*: x, x^2, .. x^m, for an attribute with m *members*. A set of at most m codes v is the
  polynomial prod (x - v), which is 0 on the set;
- *one for each code but the first*, for an attribute of a small *domain*: 1 where x is that code
  and 0 elsewhere. With the constant 1 they add up to any function of x, in particular to one that
  is 0 on any set of codes and random elsewhere.

An AND of sets is the sum of one such function for each attribute that it limits, each times a
random factor: an event outside of some set makes the sum 0 with probability 1 / prime only. An OR
of t ANDs is the product of their t sums. An event's vector holds all products of functions that
occur in such a product, *monomials*, among them 1; a predicate's vector holds their coefficients. A
predicate of fewer ANDs, sets or codes has other coefficients, and the same length. One that always
holds is the vector 0, and one that never holds a constant.

NULL is a code like any other, as in `ccbps.predicates.form`.

Source: [KSW08] for polynomials and products; functions of small domains are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.modular import integer
from ccbps.checks import Printable, instance, whole
from ccbps.errors import ParameterError, PredicateError, UnsupportedPredicateError
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.codes import Intervals, unpack

MAX_LENGTH: Final = 511
"""Greatest number of monomials."""
LARGE_DOMAINS: Final = (
    "for ranges of large domains take ThreeBrokerMatch, FormulaMatch with its one-time messages, "
    "or TagMatch, whose broker learns more"
)

Monomial: TypeAlias = tuple[tuple[int, int], ...]
"""(number of an attribute, exponent or code), ascending; nothing for the constant 1."""
Polynomial: TypeAlias = dict[Monomial, int]
"""Coefficients."""
Limit: TypeAlias = tuple[int, Intervals]
"""Number of an attribute, and the codes that are allowed: ranges of one code for powers."""
Prepared: TypeAlias = tuple[tuple[Limit, ...], ...]
"""An OR of ANDs."""
Draw: TypeAlias = Callable[[int], Sequence[int]]
"""``draw(n)`` gives n random numbers in 1 .. prime - 1."""


class Vectors(Printable):
    """A layout of vectors.

    Attributes:
        schema: the attributes.
        members: greatest number of codes of a set, for each attribute that has powers.
        domains: attributes that have a function for each code.
        alternatives: t, the greatest number of ANDs.
        monomials: the monomials, in the order of the vectors.

    Args:
        schema: the attributes.
        modulus: prime modulus of the numbers.
        members: numbers of members, 1 where an attribute is not named; 0 leaves an attribute out.
        domains: attributes of small domains.
        alternatives: t.

    Raises:
        ParameterError: a parameter is not possible, or there are more than `MAX_LENGTH` monomials.
    """

    def __init__(
        self,
        schema: Schema,
        modulus: int,
        members: Mapping[str, int],
        domains: Sequence[str],
        alternatives: int,
    ) -> None:
        self.alternatives = whole("alternatives", alternatives, 1, MAX_LENGTH)
        self.schema, self._modulus = schema, integer(modulus)
        self.domains = _named(schema, domains)
        hint = 'for example members={"issue": 3}'
        given = dict(instance("members", members, Mapping, hint=hint))
        if wrong := [name for name in given if name not in schema or name in self.domains]:
            raise ParameterError(
                "members must name attributes of the schema that are not in domains, got "
                f"{wrong[0]!r}"
            )
        self.members = {
            name: whole(f"members of {name!r}", given.get(name, 1), 0, MAX_LENGTH)
            for name in schema
            if name not in self.domains
        }
        for name, count in self.members.items():
            if count and schema[name].size > modulus:
                raise ParameterError(
                    f"attribute {name!r} has {schema[name].bits} bits, and at most "
                    f"{modulus.bit_length() - 1} are compared: leave it out with "
                    f"members={{{name!r}: 0}}, or make it a Keyword"
                )
        length = length_of(schema, self.members, self.domains, alternatives)
        if length > MAX_LENGTH:
            raise ParameterError(
                f"vectors would have {length:,} coordinates or more, and at most {MAX_LENGTH} "
                "are allowed: take fewer alternatives or members, smaller domains, or leave "
                f"attributes out with members={{name: 0}}; {LARGE_DOMAINS}"
            )
        self.monomials = self._enumerated()
        self._places = {monomial: place for place, monomial in enumerate(self.monomials)}

    def __repr__(self) -> str:
        return f"<Vectors of {len(self.monomials)} coordinates over {', '.join(self.schema)}>"

    def _functions(self, name: str) -> tuple[Sequence[int], int]:
        """Return the names of an attribute's functions, and how many of them one AND has."""
        if name in self.domains:
            return range(1, self.schema[name].size), self.schema[name].size
        most = self.members[name]
        return range(1, most * self.alternatives + 1), max(1, most)

    def _enumerated(self) -> list[Monomial]:
        out: list[tuple[Monomial, int]] = [((), self.alternatives)]
        for number, name in enumerate(self.schema):
            functions, at_once = self._functions(name)
            # A power of up to m comes of one AND, of up to 2 m of two, and so on.
            out += [
                ((*monomial, (number, function)), left - -(-function // at_once))
                for monomial, left in out
                for function in functions
                if -(-function // at_once) <= left
            ]
        return [monomial for monomial, _ in out]

    # -- predicates -------------------------------------------------------------------------------

    def prepare(self, predicate: Predicate) -> Prepared:
        """Write a predicate as an OR of ANDs of sets.

        Raises:
            UnsupportedPredicateError: it needs more alternatives, or an attribute more codes.
        """
        out: list[tuple[Limit, ...]] = []
        for sets in predicate.alternatives():
            # A set that is too large for one AND is several.
            parts = [self._parts(predicate, name, allowed) for name, allowed in sets.items()]
            count = len(out) + prod(len(part) for part in parts)
            if count > self.alternatives:
                raise _refusal(
                    predicate,
                    f"the predicate is an OR of more ANDs than alternatives={self.alternatives}",
                    "make it with more alternatives, or send several subscriptions",
                )
            out += product(*parts)
        return tuple(out)

    def _parts(self, predicate: Predicate, name: str, allowed: Intervals) -> list[Limit]:
        """Return the sets whose union is one set, each of which fits into an AND."""
        number = self.schema.names.index(name)
        if name in self.domains:
            return [(number, allowed)]
        most, count = self.members[name], sum(high - low + 1 for low, high in allowed)
        if not most:
            raise _refusal(
                predicate,
                "an attribute is left out of this matcher's vectors",
                "make it with members of 1 or more",
                repr(name),
            )
        if count > most * self.alternatives:
            small = self.schema[name].size <= MAX_LENGTH
            raise _refusal(
                predicate,
                "an attribute may have more values than this matcher takes",
                "make it with more members, or name the attribute in domains"
                if small
                else LARGE_DOMAINS,
                f"{name!r}: {count:,}, of which it takes {most}; it has {self.schema[name].size:,}",
            )
        codes = [code for low, high in allowed for code in range(low, high + 1)]
        return [
            (number, tuple((code, code) for code in codes[at : at + most]))
            for at in range(0, count, most)
        ]

    def of_predicates(self, prepared: Sequence[Prepared], draw: Draw) -> NDArray[Any]:
        """Return vectors of predicates, shape (count, coordinates), with fresh random factors."""
        out = np.zeros((len(prepared), len(self.monomials)), dtype=object)
        for row, alternatives in zip(out, prepared, strict=True):
            polynomial: Polynomial = {(): integer(1)}
            for sets in alternatives:
                polynomial = self._times(polynomial, self._sum(sets, draw))
            for monomial, coefficient in polynomial.items():
                row[self._places[monomial]] = coefficient
        return out

    def _sum(self, sets: Sequence[Limit], draw: Draw) -> Polynomial:
        """Return the linear form of an AND."""
        out: Polynomial = {(): integer(0)} if sets else {}
        for number, allowed in sets:
            if self.schema.names[number] in self.domains:
                first, *rest = self._indicator(number, allowed, draw)
                function = [first, *(value - first for value in rest)]
            else:
                (factor,) = draw(1)
                function = [integer(factor)]
                for code, _ in allowed:
                    function = [
                        (below - code * coefficient) % self._modulus
                        for below, coefficient in pairwise([0, *function, 0])
                    ]
            out[()] += function[0]
            out.update({((number, at),): value for at, value in enumerate(function) if at})
        return out

    def _indicator(self, number: int, allowed: Intervals, draw: Draw) -> list[int]:
        """Return a function that is 0 on a set of codes, and random elsewhere."""
        size = self.schema[self.schema.names[number]].size
        values = [integer(value) for value in draw(size)]
        for low, high in allowed:
            values[low : high + 1] = [integer(0)] * (high - low + 1)
        return values

    def _times(self, left: Polynomial, right: Polynomial) -> Polynomial:
        """Multiply a polynomial by a linear form."""
        out: Polynomial = {}
        for monomial, coefficient in left.items():
            for factor, other in right.items():
                merged = self._merged(monomial, factor)
                if merged is not None:
                    out[merged] = (out.get(merged, 0) + coefficient * other) % self._modulus
        return out

    def _merged(self, monomial: Monomial, factor: Monomial) -> Monomial | None:
        """Multiply a monomial by one function or by 1; None if that is 0."""
        if not factor:
            return monomial
        exponents, ((number, function),) = dict(monomial), factor
        if self.schema.names[number] in self.domains:
            # Functions of two codes of one attribute are never 1 together.
            if exponents.setdefault(number, function) != function:
                return None
        else:
            exponents[number] = exponents.get(number, 0) + function
        return tuple(sorted(exponents.items()))

    # -- events -----------------------------------------------------------------------------------

    def of_events(self, events: Events) -> NDArray[Any]:
        """Return vectors of events, shape (count, coordinates)."""
        columns: dict[tuple[int, int], NDArray[Any]] = {}
        codes: dict[int, NDArray[Any]] = {}
        for number, function in sorted({part for monomial in self.monomials for part in monomial}):
            if number not in codes:
                codes[number] = np.empty(events.count, dtype=object)
                values = unpack(events.codes[self.schema.names[number]])
                codes[number][:] = [integer(value) for value in values]
            if self.schema.names[number] in self.domains:
                column = np.where(codes[number] == function, integer(1), integer(0))
            else:
                before = columns[number, function - 1] if function > 1 else integer(1)
                column = before * codes[number] % self._modulus
            columns[number, function] = column
        out = np.empty((events.count, len(self.monomials)), dtype=object)
        for place, monomial in enumerate(self.monomials):
            value: Any = integer(1)
            for part in monomial:
                value = value * columns[part] % self._modulus
            out[:, place] = value
        return out


def length_of(
    schema: Schema, members: Mapping[str, int], domains: Collection[str], alternatives: int
) -> int:
    """Count monomials without making them; of too many, as far as that is clear."""
    # Number of monomials that take so many ANDs.
    counts = [1] + [0] * alternatives
    for name in schema:
        functions = schema[name].size - 1 if name in domains else members.get(name, 1)
        if not functions or sum(counts) > MAX_LENGTH:
            continue
        more = [0] * (alternatives - 1) if name in domains else [functions] * (alternatives - 1)
        own = [1, functions, *more]
        counts = [
            sum(counts[at] * own[total - at] for at in range(total + 1))
            for total in range(alternatives + 1)
        ]
    return sum(counts)


def parameters_for(schema: Schema, predicate: Predicate) -> Iterator[dict[str, Any]]:
    """Yield the parameters that a predicate needs: with all attributes, and with its own only.

    Raises:
        UnsupportedPredicateError: it has too many alternatives.
    """
    union = predicate.alternatives()
    alternatives = max(1, len(union))
    members, domains = dict.fromkeys(schema, 1), []
    for name in schema:
        sets = [sets[name] for sets in union if name in sets]
        members[name] = max([1, *(sum(h - low + 1 for low, h in codes) for codes in sets)])
        if schema[name].size - 1 <= members[name]:
            domains.append(name)
    named = {name for sets in union for name in sets}
    for keep in (frozenset(schema), frozenset(named)):
        chosen = {name: count if name in keep else 0 for name, count in members.items()}
        small = [name for name in domains if name in keep]
        for name in [name for name in schema if name in keep and name not in small]:
            # A function for each code, where that is shorter than powers.
            if length_of(schema, chosen, [*small, name], alternatives) < length_of(
                schema, chosen, small, alternatives
            ):
                small.append(name)
        yield {
            "members": {n: c for n, c in chosen.items() if n not in small and c != 1},
            "domains": [name for name in schema if name in small],
            "alternatives": alternatives,
        }


def _named(schema: Schema, domains: Any) -> tuple[str, ...]:
    names = [domains] if isinstance(domains, str) or not isinstance(domains, Sequence) else domains
    if any(name not in schema.names or names.count(name) > 1 for name in names):
        raise ParameterError(
            "domains must name attributes of the schema, each once, such as domains=['issue']; "
            f"got {domains!r:.80}"
        )
    return tuple(name for name in schema if name in names)


def _refusal(predicate: Predicate, reason: str, advice: str, name: str = "") -> PredicateError:
    """Return the error of a predicate that vectors cannot hold.

    Args:
        predicate: the predicate.
        reason: the reason, without names and values.
        advice: advice, likewise.
        name: more about the reason, with names and values.
    """
    summary = f"{reason}; {advice}"
    return UnsupportedPredicateError(
        f"{reason}{name and f' ({name})'}; {advice}", text=predicate.text, summary=summary
    )
