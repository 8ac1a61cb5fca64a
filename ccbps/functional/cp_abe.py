"""CP-ABE: the message carries a policy, and keys are for attributes.

Master key a, public key Y = e(g1, g2)^a; H hashes words to G1::

    key of words:   D = g1^(a + r),  R = g2^r;  for each word w  D_w = H(w)^r
    message:        S = g2^s;  for each leaf with word w and share q of s  C = g1^q H(w)^s
    GT:             Y^s = e(D * product of D_w, S) / e(product of C, R)

If a word stands at several leaves, its first leaf is as above. The second leaves of all words have
another exponent x, the third ones another, and so on: C = g1^q H(w)^x, beside T = g2^x. D_w is then
paired with T. All factors have the weights of their shares, which are 1 for trees of AND and OR.

So two pairings open a message whose policy uses no word twice. [BSW07], the first scheme of this
kind, takes two for each leaf. This one is [RW22] with two changes: shares are exponents of g1, not
of a further hash, and first leaves have the exponent s, not a number of their own. That saves a
pairing and an element of G2. It needs a pairing without maps between G1 and G2, since g1^r or g1^s
would open every message.

Why only fitting users compute Y^s, in the generic group model: an exponent in GT is a sum of
products, one factor from G1 (1, h, a + r, h r, q + h x) and one from G2 (1, r, x; s is one of the
x). H(w) is g1^h. Suppose that such a sum is a s.

1. Only (a + r) s has a s. So the sum has (a + r) s of some user, and its r s has to cancel.
2. Only (q + h x) r has r s, in shares. Other random numbers of the shares have to cancel, so the
   shares that are taken add up to s. Each leaves h x r, of this leaf, user and message only.
3. Only (h r) x cancels h x r, and the user has h r for words of the key only.

So the shares of leaves with words of this one user's key add up to s: the user needs no other one.
Leaves of one word must differ in x: otherwise a quotient of their C shows a difference of shares
without a key for the word.

The policy stands in every message, for everybody to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ccbps.algebra.pairing import Target
from ccbps.errors import KeyMismatchError
from ccbps.functional.scheme import Draw, Points, Shape
from ccbps.functional.tree_scheme import TreeScheme
from ccbps.functional.trees import Tree, policy_of, words_of


class CpAbe(TreeScheme):
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

    def key_shape(self, holdings: Any) -> Shape:
        return 1 + len(holdings), 1

    def message_shape(self, label: Any) -> Shape:
        return len(label.words), label.repeats

    def make_key(self, master: Any, holdings: Any, draw: Draw) -> Points:
        group, (r,) = self.group, draw(1)
        words = [group.power(self.hashed(word), r) for word in holdings]
        return (group.power(group.g1, master + r), *words), (group.power(group.g2, r),)

    def encapsulate(
        self, public: Points, targets: Sequence[Target], target: Any, draw: Draw
    ) -> tuple[Points, Callable[[], Target]]:
        exponents = draw(target.repeats)
        s = exponents[0]
        points = self.masked_shares(target, s, exponents, draw)
        return points, lambda: self.group.target_power(targets[0], s)

    def find(
        self, holdings: Any, key: Points, label: Any, points: Points
    ) -> Sequence[Callable[[], Target]]:
        group, (first, *own) = self.group, key[0]
        places = {word: at for at, word in enumerate(holdings)}
        weights = label.weights(places, group.order)
        if weights is None:
            raise KeyMismatchError("the key does not satisfy the policy of the message")

        def shared() -> Target:
            shares, words = self.products(label, weights, points[0], lambda w: own[places[w]])
            words[0] = group.multiply(first, words[0]) if 0 in words else first
            pairs = [(product, points[1][number]) for number, product in words.items()]
            return group.product([*pairs, (group.inverse(shares), key[1][0])])

        return [shared]
