"""Common part of KP-ABE and CP-ABE: shares of a secret along a policy, masked by words.

The share q of a leaf with word w is masked as g1^q H(w)^x. The first leaves of all words have one
exponent x, their second leaves another, and so on; g2^x is given for each. Whoever has H(w)^r for
some words w, and g2^r, takes off the masks of these words in GT::

    e(product of masked shares, g2^r) / product over x of e(product of H(w)^r, g2^x)

is e(g1, g2)^(r secret). All factors have the weights of their shares. Source: [RW22] figure 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from ccbps.algebra.pairing import Point, Target
from ccbps.functional.scheme import Draw, Points, SchemaScheme
from ccbps.functional.trees import Tree


class TreeScheme(SchemaScheme):
    """A scheme over policies. Its master key is an exponent a, its public key e(g1, g2)^a."""

    def public_shape(self) -> tuple[int, int, int]:
        return 0, 0, 1

    def setup(self, draw: Draw) -> tuple[int, Points, Sequence[Target]]:
        group, (a,) = self.group, draw(1)
        return a, ((), ()), (group.target_power(group.product([(group.g1, group.g2)]), a),)

    def masked_shares(
        self, tree: Tree, secret: int, exponents: Sequence[int], draw: Draw
    ) -> Points:
        """Share a secret along a policy, and mask the share of each leaf.

        Args:
            tree: the policy.
            secret: the secret, modulo the order of the groups.
            exponents: exponents of the masks; there are `tree.repeats`.
            draw: source of exponents.

        Returns:
            masked share of each leaf, and g2 to the power of each exponent.
        """
        group = self.group
        shares = tree.share(secret, draw(tree.draws()), group.order)
        # All parts of an OR have one share, as many leaves of a comparison do.
        powers = {share: group.power(group.g1, share) for share in dict.fromkeys(shares)}
        ones = [
            group.multiply(powers[share], group.power(self.hashed(word), exponents[number]))
            for share, word, number in zip(shares, tree.words, tree.occurrences(), strict=True)
        ]
        return ones, [group.power(group.g2, exponent) for exponent in exponents]

    def products(
        self,
        tree: Tree,
        weights: Mapping[int, int],
        masked: Sequence[Point],
        word: Callable[[str], Point],
    ) -> tuple[Point, dict[int, Point]]:
        """Multiply the masked shares of some leaves, and the powers of their words, by weights.

        Args:
            tree: the policy.
            weights: weights of shares by leaf, from `Tree.weights`.
            masked: masked share of each leaf.
            word: function that returns the power H(w)^r of a word w.

        Returns:
            product of the shares, and product of the words by number of the exponent.
        """
        group, numbers = self.group, tree.occurrences()
        shares: list[Point] = []
        words: dict[int, list[Point]] = {}
        for leaf, weight in weights.items():
            share, power = masked[leaf], word(tree.words[leaf])
            if weight != 1:
                share, power = group.power(share, weight), group.power(power, weight)
            shares.append(share)
            words.setdefault(numbers[leaf], []).append(power)
        multiply = group.multiply
        return reduce(multiply, shares), {n: reduce(multiply, each) for n, each in words.items()}
