"""KP-ABE: keys carry policies, and messages are for attributes (Goyal, Pandey, Sahai, Waters).

Master key y, public key Y = e(g1, g2)^y. All hashes are to G1, so G1 and G2 have changed places
with the source::

    key of a tree:  for each leaf with share q of y  D = g1^q H(word)^x,  R = g2^x
    message:        E = g2^s;  for each word a  E_a = H(a)^s
    a leaf:         e(D, E) / e(E_a, R) = e(g1, g2)^(s q)
    GT:             Y^s = e(product of D, E) / product of e(E_a, R), to the powers of weights

So a message takes one pairing for each leaf that is used, and one more, with one last step.

The attributes stand in every message, for everybody to read. A key does not hide its policy.
Source: [GPSW06] appendix A.1, whose large universe of attributes is the hash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from ccbps.algebra.pairing import Target
from ccbps.errors import DecodeError, KeyMismatchError
from ccbps.functional.scheme import Draw, Points, SchemaScheme, Shape
from ccbps.functional.trees import Tree, policy_of, words_of

BESIDE_NAME: Final = 64
"""Letters of a word beside the name of its attribute, at most: epoch, and value or bit."""


class KpAbe(SchemaScheme):
    """Messages are encrypted to records, and keys are for policies (SQL text or predicates).

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.functional import Authority, KpAbe
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> authority = Authority.generate(KpAbe(schema))
        >>> sealed = authority.public.seal(b"200 shares", {"issue": "IBM", "price": 119})
        >>> authority.key("issue = 'IBM' AND price < 120").open(sealed)
        b'200 shares'
        >>> authority.key("issue = 'IBM' AND price > 120").open(sealed)
        Traceback (most recent call last):
            ...
        ccbps.errors.KeyMismatchError: the message does not satisfy the policy of the key
    """

    name: ClassVar[str] = "key-policy"
    holdings_type: ClassVar[Any] = Tree
    label_type: ClassVar[Any] = tuple[str, ...]

    def holdings(self, given: Any, epoch: int | None) -> Tree:
        return policy_of(self.schema, given, epoch)

    def target(self, given: Any, epoch: int | None) -> tuple[str, ...]:
        return words_of(self.schema, given, epoch)

    def public_shape(self) -> tuple[int, int, int]:
        return 0, 0, 1

    def key_shape(self, holdings: Any) -> Shape:
        return len(holdings.words), len(holdings.words)

    def message_shape(self, label: Any) -> Shape:
        widths = [self.schema[name].bits for name in self.schema]
        words = 1 + sum(1 + (bits if bits > 1 else 0) for bits in widths)
        if len(label) != words:
            raise DecodeError(
                f"a record of this schema has {words:,} words, and the message has {len(label):,}"
            )
        most = max(map(len, self.schema.names)) + BESIDE_NAME
        if max(map(len, label)) > most:
            raise DecodeError(f"a word of this schema has at most {most:,} letters")
        return words, 1

    def setup(self, draw: Draw) -> tuple[Any, Points, Sequence[Target]]:
        group, (y,) = self.group, draw(1)
        return y, ((), ()), (group.target_power(group.product([(group.g1, group.g2)]), y),)

    def make_key(self, master: Any, holdings: Any, draw: Draw) -> Points:
        group, leaves = self.group, len(holdings.words)
        random = draw(leaves + holdings.draws())
        shares = holdings.share(master, random[leaves:], group.order)
        ones = [
            group.multiply(group.power(group.g1, share), group.power(self.hashed(word), x))
            for word, share, x in zip(holdings.words, shares, random[:leaves], strict=True)
        ]
        return ones, [group.power(group.g2, x) for x in random[:leaves]]

    def encapsulate(
        self, public: Points, targets: Sequence[Target], target: Any, draw: Draw
    ) -> tuple[Points, Callable[[], Target]]:
        group, (s,) = self.group, draw(1)
        ones = [group.power(self.hashed(word), s) for word in target]
        points = ones, (group.power(group.g2, s),)
        return points, lambda: group.target_power(targets[0], s)

    def find(
        self, holdings: Any, key: Points, label: Any, points: Points
    ) -> Sequence[Callable[[], Target]]:
        group, places = self.group, {word: at for at, word in enumerate(label)}
        weights = holdings.weights(places, group.order)
        if weights is None:
            raise KeyMismatchError("the message does not satisfy the policy of the key")

        def shared() -> Target:
            pairs, total = [], None
            for leaf, weight in weights.items():
                own, sent = key[0][leaf], group.inverse(points[0][places[holdings.words[leaf]]])
                if weight != 1:
                    own, sent = group.power(own, weight), group.power(sent, weight)
                total = own if total is None else group.multiply(total, own)
                pairs.append((sent, key[1][leaf]))
            return group.product([*pairs, (total, points[1][0])])

        return [shared]
