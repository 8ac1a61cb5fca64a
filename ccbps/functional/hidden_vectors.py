"""PBE: messages are for records, which they hide; keys are for policies (hidden vectors).

A record is a vector of bits, followed by a 1. A pattern fixes some of these bits, always the last
one; a policy is a list of patterns, at least one of which has to fit. The master key holds y, and
for each place i exponents t, v (for a 1) and u, m (for a 0). The public key holds
Y = e(g1, g2)^y, and for each place T = g1^t, V = g1^v, U = g1^u and M = g1^m::

    message:   for each place, with random s_i:  a 1 gives T^(s - s_i), V^(s_i);
                                                 a 0 gives U^(s - s_i), M^(s_i)
    pattern:   random a_i with the sum y;  a 1 gives g2^(a_i / t), g2^(a_i / v), a 0 with u and m
    GT:        Y^s = product of e(first, first) e(second, second) over the places that are fixed

A pattern without a fixed place would open nothing; so the last bit is always fixed. A range takes a
pattern for each prefix of its cover, and a box one for each combination of prefixes.

Hazards: *a key does not hide its policy*: e(T, first) = e(V, second) tells that a place is fixed to
1. So keys are for subscribers, never for a broker. Whoever holds a key learns which of its patterns
fits, and nothing else about the record. Messages are not checked by making them again, since the
opener does not know the record: altered ones do not open, but security is that of chosen
plaintexts. There are no epochs: take an attribute of the schema for them.
Source: [IP08], whose vectors have no such last place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import combinations
from typing import Any, ClassVar, Final

from ccbps.algebra.pairing import Point, Target
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.forms.bit_tree import FALSE, TRUE, BitNode, Literal, Threshold, bit_tree
from ccbps.forms.bits import event_bits
from ccbps.functional.scheme import Draw, Points, SchemaScheme, Shape, record_of
from ccbps.predicates import Form, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.form import AllOf, AnyOf

MOST_PATTERNS: Final = 1 << 10
"""Greatest number of patterns of a key."""
MOST_JOINS: Final = 1 << 16
"""Greatest number of pairs of conjunctions that are joined for a key."""

Pattern = tuple[tuple[int, int], ...]
"""Fixed places and their bits, in ascending order."""


class HiddenVectors(SchemaScheme):
    """Messages are encrypted to records and hide them; keys are for policies.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.functional import Authority, HiddenVectors
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> authority = Authority.generate(HiddenVectors(schema))
        >>> sealed = authority.public.seal(b"200 shares", {"issue": "IBM", "price": 119})
        >>> authority.key("issue = 'IBM' AND price < 120").open(sealed)
        b'200 shares'
        >>> authority.key("price > 120").open(sealed)
        Traceback (most recent call last):
            ...
        ccbps.errors.DecodeError: not a message for this key, or one that was altered
    """

    name: ClassVar[str] = "hidden vectors"
    checked: ClassVar[bool] = False
    holdings_type: ClassVar[Any] = tuple[tuple[tuple[int, int], ...], ...]
    label_type: ClassVar[Any] = type(None)

    def __init__(self, schema: Schema, *, pairing: str = "bls12-381") -> None:
        super().__init__(schema, pairing=pairing)
        self.places = schema.bits + 1

    def holdings(self, given: Any, epoch: int | None) -> tuple[Pattern, ...]:
        _no_epoch(epoch)
        return patterns(self.schema, bound_predicate(self.schema, given, "a policy"))

    def target(self, given: Any, epoch: int | None) -> tuple[int, ...]:
        _no_epoch(epoch)
        (bits,) = event_bits(record_of(self.schema, given)).astype(int).tolist()
        return (*bits, 1)

    def label(self, target: Any) -> None:
        return None

    def public_shape(self) -> tuple[int, int, int]:
        return 4 * self.places, 0, 1

    def key_shape(self, holdings: Any) -> Shape:
        if any(not 0 <= place < self.places for pattern in holdings for place, _ in pattern):
            raise ParameterError("a pattern fixes a place that the schema does not have")
        return 0, 2 * sum(map(len, holdings))

    def message_shape(self, label: Any) -> Shape:
        return 2 * self.places, 0

    def setup(self, draw: Draw) -> tuple[Any, Points, Sequence[Target]]:
        group, (y, *secrets) = self.group, draw(1 + 4 * self.places)
        points = [group.power(group.g1, secret) for secret in secrets]
        unit = group.product([(group.g1, group.g2)])
        return (y, secrets), (points, ()), (group.target_power(unit, y),)

    def make_key(self, master: Any, holdings: Any, draw: Draw) -> Points:
        group, (y, secrets) = self.group, master
        order, points = group.order, []
        inverse = cache(lambda at: pow(secrets[at], -1, order))
        for pattern in holdings:
            shares = draw(len(pattern) - 1)
            shares.append((y - sum(shares)) % order)
            for (place, bit), share in zip(pattern, shares, strict=True):
                at = 4 * place + (0 if bit else 2)
                points += [group.power(group.g2, share * inverse(part)) for part in (at, at + 1)]
        return (), points

    def encapsulate(
        self, public: Points, targets: Sequence[Target], target: Any, draw: Draw
    ) -> tuple[Points, Callable[[], Target]]:
        group, (s, *each) = self.group, draw(1 + self.places)
        points = []
        for place, (bit, x) in enumerate(zip(target, each, strict=True)):
            first, second = public[0][4 * place + (0 if bit else 2) :][:2]
            points += [group.power(first, s - x), group.power(second, x)]
        return (points, ()), lambda: group.target_power(targets[0], s)

    def find(
        self, holdings: Any, key: Points, label: Any, points: Points
    ) -> Sequence[Callable[[], Target]]:
        sent, start, ways = points[0], 0, []
        for pattern in holdings:
            places = [2 * place + part for place, _ in pattern for part in (0, 1)]
            own = key[1][start : start + len(places)]
            start += len(places)
            ways.append(partial(self._product, sent, places, own))
        return ways

    def _product(
        self, sent: Sequence[Point], places: Sequence[int], own: Sequence[Point]
    ) -> Target:
        pairs = zip((sent[at] for at in places), own, strict=True)
        return self.group.product([*pairs])


def _no_epoch(epoch: int | None) -> None:
    if epoch is not None:
        raise ParameterError("HiddenVectors has no epochs: make the epoch an attribute")


def patterns(schema: Schema, predicate: Predicate) -> tuple[Pattern, ...]:
    """Return patterns of a predicate: it holds for the records that fit at least one of them.

    Raises:
        UnsupportedPredicateError: no record satisfies the predicate, or it takes more than
            `MOST_PATTERNS`.
    """
    last, cubes = {schema.bits: 1}, _Cubes(schema, predicate.text).of_form(predicate.true_form())
    if not cubes:
        raise UnsupportedPredicateError("no record satisfies the policy", text=predicate.text)
    return tuple(dict.fromkeys(tuple(sorted({**cube, **last}.items())) for cube in cubes))


class _Cubes:
    """Conjunctions of bits: their OR is a predicate.

    Args:
        schema: schema of the predicate.
        text: text of the predicate, for errors.
    """

    def __init__(self, schema: Schema, text: str) -> None:
        self._schema, self._first = schema, schema.first_bits
        self._text, self._tries = text, 0

    def of_form(self, form: Form) -> list[dict[int, int]]:
        """Return the conjunctions of a form, as bits by place; TRUE is an empty conjunction.

        Trees of the parts of an AND or an OR are made one by one: a list of thousands of values is
        refused at the first part that exceeds a limit.
        """
        if isinstance(form, AllOf):
            joined = self._joined(self.of_form(part) for part in form.children)
            self._count(len(joined), MOST_PATTERNS)
            return joined
        if isinstance(form, AnyOf):
            out: list[dict[int, int]] = []
            for part in form.children:
                out += self.of_form(part)
                self._count(len(out), MOST_PATTERNS)
            return [{}] if {} in out else out
        tree = bit_tree(self._schema, form)
        if tree is TRUE or tree is FALSE:
            return [{}] if tree is TRUE else []
        return self.of(tree)

    def of(self, node: BitNode) -> list[dict[int, int]]:
        """Return the conjunctions of a node, as bits by place."""
        if isinstance(node, Literal):
            return [{self._first[node.attribute] + node.position: node.value}]
        assert isinstance(node, Threshold)
        parts = [self.of(part) for part in node.parts]
        out = [cube for chosen in combinations(parts, node.least) for cube in self._joined(chosen)]
        self._count(len(out), MOST_PATTERNS)
        return out

    def _joined(self, parts: Iterable[list[dict[int, int]]]) -> list[dict[int, int]]:
        """Join each conjunction of one part with each of the next, unless they contradict."""
        joined: list[dict[int, int]] = [{}]
        for part in parts:
            self._tries += len(joined) * len(part)
            self._count(self._tries, MOST_JOINS)
            joined = [
                {**left, **right}
                for left in joined
                for right in part
                if all(left.get(place, bit) == bit for place, bit in right.items())
            ]
        return joined

    def _count(self, number: int, most: int) -> None:
        if number > most:
            raise UnsupportedPredicateError(
                f"the policy takes more than {MOST_PATTERNS} patterns of bits: take narrower "
                "ranges, or KpAbe, whose messages show records",
                text=self._text,
            )
