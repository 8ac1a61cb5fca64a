"""KP-ABE: keys carry policies, and messages are for attributes.

Master key a, public key Y = e(g1, g2)^a; H hashes words to G1::

    key of a tree:  R = g2^x;  for each leaf with word w and share q of a  D = g1^q H(w)^x
    message:        E = g2^s;  for each word w  E_w = H(w)^s
    GT:             Y^s = e(product of D, E) / e(product of E_w, R)

If a word stands at several leaves, their exponents differ: the second leaves of all words have
another x and R, the third ones another, and so on. All factors have the weights of their shares,
which are 1 for trees of AND and OR. So two pairings open a message whose policy uses no word twice.
[GPSW06], the first scheme of this kind, has an exponent and a pairing for each leaf.

The attributes stand in every message, for everybody to read. A key does not hide its policy.
Source: [RW22] figure 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from ccbps.algebra.pairing import Target
from ccbps.errors import DecodeError, KeyMismatchError
from ccbps.functional.scheme import Draw, Points, Shape
from ccbps.functional.tree_scheme import TreeScheme
from ccbps.functional.trees import Tree, policy_of, words_of

BESIDE_NAME: Final = 64
"""Letters of a word beside the name of its attribute, at most: epoch, and value or bit."""


class KpAbe(TreeScheme):
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

    def key_shape(self, holdings: Any) -> Shape:
        return len(holdings.words), holdings.repeats

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

    def make_key(self, master: Any, holdings: Any, draw: Draw) -> Points:
        return self.masked_shares(holdings, master, draw(holdings.repeats), draw)

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
            sent = points[0]
            shares, words = self.products(holdings, weights, key[0], lambda w: sent[places[w]])
            pairs = [(group.inverse(product), key[1][n]) for n, product in words.items()]
            return group.product([(shares, points[1][0]), *pairs])

        return [shared]
