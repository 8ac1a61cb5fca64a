"""CP-ABE: the message carries a policy, and keys are for attributes (Bethencourt, Sahai, Waters).

Master key (b, a), public key h = g2^b and Y = e(g1, g2)^a. All hashes are to G1, so G1 and G2 have
changed places with the source::

    key of words:   D = g1^((a + r) / b);  for each word j  D_j = g1^r H(j)^(r_j),  R_j = g2^(r_j)
    message:        C = h^s;  for each leaf y with share q_y of s  C_y = g2^(q_y),  A_y = H(y)^(q_y)
    a leaf:         e(D_j, C_y) / e(A_y, R_j) = e(g1, g2)^(r q_y)
    GT:             Y^s = e(D, C) / product of leaves, to the powers of their weights

All pairings of a message share one last step, and weights are 1 for trees of AND and OR. Users who
put their keys together have different r, which do not cancel.

The policy stands in every message, for everybody to read.
Source: [BSW07] section 4.2, in the generic group model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ccbps.algebra.pairing import Target
from ccbps.errors import KeyMismatchError
from ccbps.functional.scheme import Draw, Points, SchemaScheme, Shape
from ccbps.functional.trees import Tree, policy_of, words_of


class CpAbe(SchemaScheme):
    """Messages are encrypted to policies (SQL text or predicates), and keys are for records.

    Example:
        >>> from ccbps import Bool, Category, Schema, UInt
        >>> from ccbps.functional import Authority, CpAbe
        >>> schema = Schema(doctor=Bool(), ward=Category(["A", "B"]), age=UInt(7))
        >>> authority = Authority.generate(CpAbe(schema))
        >>> sealed = authority.public.seal(b"119/80", "(doctor AND ward = 'A') OR age >= 65")
        >>> authority.key({"doctor": True, "ward": "A", "age": 40}).open(sealed)
        b'119/80'
        >>> authority.key({"doctor": True, "ward": "B", "age": 40}).open(sealed)
        Traceback (most recent call last):
            ...
        ccbps.errors.KeyMismatchError: the key does not satisfy the policy of the message
    """

    name: ClassVar[str] = "ciphertext-policy"
    holdings_type: ClassVar[Any] = tuple[str, ...]
    label_type: ClassVar[Any] = Tree

    def holdings(self, given: Any, epoch: int | None) -> tuple[str, ...]:
        return words_of(self.schema, given, epoch)

    def target(self, given: Any, epoch: int | None) -> Tree:
        return policy_of(self.schema, given, epoch)

    def public_shape(self) -> tuple[int, int, int]:
        return 0, 1, 1

    def key_shape(self, holdings: Any) -> Shape:
        return 1 + len(holdings), len(holdings)

    def message_shape(self, label: Any) -> Shape:
        return len(label.words), 1 + len(label.words)

    def setup(self, draw: Draw) -> tuple[Any, Points, Sequence[Target]]:
        group, (a, b) = self.group, draw(2)
        unit = group.product([(group.g1, group.g2)])
        return (a, b), ((), (group.power(group.g2, b),)), (group.target_power(unit, a),)

    def make_key(self, master: Any, holdings: Any, draw: Draw) -> Points:
        group, (a, b), (r, *each) = self.group, master, draw(1 + len(holdings))
        common = group.power(group.g1, r)
        first = group.power(group.g1, (a + r) * pow(b, -1, group.order))
        ones = [
            group.multiply(common, group.power(self.hashed(word), x))
            for word, x in zip(holdings, each, strict=True)
        ]
        return (first, *ones), [group.power(group.g2, x) for x in each]

    def encapsulate(
        self, public: Points, targets: Sequence[Target], target: Any, draw: Draw
    ) -> tuple[Points, Callable[[], Target]]:
        group, (s, *random) = self.group, draw(1 + target.draws())
        shares = target.share(s, random, group.order)
        ones = [
            group.power(self.hashed(word), share)
            for word, share in zip(target.words, shares, strict=True)
        ]
        # All parts of an OR have one share, as many leaves of a comparison do.
        powers = {share: group.power(group.g2, share) for share in dict.fromkeys(shares)}
        twos = [group.power(public[1][0], s), *(powers[share] for share in shares)]
        return (ones, twos), lambda: group.target_power(targets[0], s)

    def find(
        self, holdings: Any, key: Points, label: Any, points: Points
    ) -> Sequence[Callable[[], Target]]:
        group, places = self.group, {word: at for at, word in enumerate(holdings)}
        weights = label.weights(places, group.order)
        if weights is None:
            raise KeyMismatchError("the key does not satisfy the policy of the message")

        def shared() -> Target:
            pairs = [(key[0][0], points[1][0])]
            for leaf, weight in weights.items():
                word = places[label.words[leaf]]
                own, sent = group.inverse(key[0][1 + word]), points[0][leaf]
                if weight != 1:
                    own, sent = group.power(own, weight), group.power(sent, weight)
                pairs += [(own, points[1][1 + leaf]), (sent, key[1][word])]
            return group.product(pairs)

        return [shared]
