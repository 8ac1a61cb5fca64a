"""Policies as trees of thresholds over attributes, and secrets that are shared along them.

A *word* says that something holds, such as "ward = A" or "bit 3 of age is 1". A tree is monotone:
whoever has more words satisfies no less. Its steps are in postfix order: (0, 1) is the next leaf,
and (k, n) with n > 1 joins the last n results to "at least k of them".

`Tree.share` gives each leaf a share of a secret, from the root down: all parts of an OR get the
secret itself, parts of an AND get numbers whose sum is the secret, and parts of "k of n" get values
of a polynomial of degree k - 1 (Shamir). `Tree.weights` finds the fewest leaves with given words
that satisfy the tree. Their shares, multiplied by weights, add up to the secret. All weights are 1
for trees of AND and OR.

Sources: [S79]; [BSW07] section 4.2, which takes polynomials for AND, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.forms.bit_tree import FALSE, TRUE, Literal, Threshold, bit_tree
from ccbps.forms.bits import event_bits
from ccbps.functional.scheme import record_of
from ccbps.predicates import Events, Form, InRange, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.codes import unpack
from ccbps.records import Record
from ccbps.sharing.polynomials import lagrange, prime_field

MOST_LEAVES: Final = 1 << 14
MOST_DEPTH: Final = 1 << 9
"""Gates above a leaf at most."""
MOST_COUNTED: Final = 1 << 9
"""Parts of a node that is neither AND nor OR, whose sharing takes their number squared."""
ANYBODY: Final = "*"
"""The word that everybody has. No name of an attribute starts with ``*``."""
_LEAF: Final = (0, 1)


class Tree(Record, frozen=True):
    """A policy: words at the leaves, and the steps that join them.

    Attributes:
        words: word of each leaf, left to right.
        steps: the tree in postfix order, (0, 1) or (k, n).
    """

    words: tuple[str, ...]
    steps: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        """Check that the steps are one tree over all words.

        Raises:
            ParameterError: they are not, or they exceed `MOST_LEAVES`, `MOST_DEPTH` or
                `MOST_COUNTED`.
        """
        super().__post_init__()
        heights: list[int] = []  # gates above the leaves of each result
        leaves, sound = 0, True
        for least, parts in self.steps:
            if (least, parts) == _LEAF:
                heights.append(0)
                leaves += 1
                continue
            counted = 1 < least < parts
            sound &= 1 <= least <= parts <= len(heights) and parts > 1
            sound &= not counted or parts <= MOST_COUNTED
            if not sound:
                break
            heights[-parts:] = [max(heights[-parts:]) + 1]
        sound &= len(heights) == 1 and leaves == len(self.words) <= MOST_LEAVES
        if not sound or heights[0] > MOST_DEPTH:
            raise ParameterError(
                f"words and steps must be a tree of at most {MOST_LEAVES} leaves and {MOST_DEPTH} "
                f"gates above one another, with at most {MOST_COUNTED} parts in a gate that is "
                "neither AND nor OR"
            )

    @classmethod
    def leaf(cls, word: str) -> Tree:
        """Return the tree that asks for one word."""
        return cls((word,), (_LEAF,))

    @classmethod
    def join(cls, least: int, parts: Sequence[Tree]) -> Tree:
        """Return the tree "at least `least` of these parts"; a single part stays as it is."""
        if len(parts) == 1:
            return parts[0]
        words = tuple(word for part in parts for word in part.words)
        steps = tuple(step for part in parts for step in part.steps)
        return cls(words, (*steps, (least, len(parts))))

    @property
    def text(self) -> str:
        """Text of the tree, such as ``doctor=1 AND (ward=0 OR age[0]=1)``."""
        parts: list[str] = []
        words = iter(self.words)
        for at, (least, count) in enumerate(self.steps):
            if count == 1:
                parts.append(next(words))
                continue
            joined, last = parts[-count:], at == len(self.steps) - 1
            del parts[-count:]
            if least in (1, count):
                text = (" OR " if least == 1 else " AND ").join(joined)
                parts.append(text if last else f"({text})")
            else:
                parts.append(f"at_least({least}, {', '.join(joined)})")
        return parts[0]

    def occurrences(self) -> list[int]:
        """Return, for each leaf, the number of leaves before it that have its word."""
        seen, out = Counter[str](), []
        for word in self.words:
            out.append(seen[word])
            seen[word] += 1
        return out

    @property
    def repeats(self) -> int:
        """Greatest number of leaves that have the same word."""
        return max(Counter(self.words).values())

    def draws(self) -> int:
        """Return the number of random numbers that `share` takes."""
        return sum(least - 1 for least, parts in self.steps if parts > 1)

    def share(self, secret: int, random: Sequence[int], order: int) -> list[int]:
        """Share a secret modulo a prime; return the share of each leaf, left to right.

        Args:
            secret: a number modulo `order`.
            random: `draws()` uniform numbers modulo `order`.
            order: the prime.
        """
        pending, numbers, shares = [secret], iter(random), []
        for least, parts in reversed(self.steps):  # a node before its parts, the last part first
            value = pending.pop()
            if parts == 1:
                shares.append(value)
            elif least == 1:
                pending += [value] * parts
            elif least == parts:
                drawn = [next(numbers) for _ in range(parts - 1)]
                pending += [(value - sum(drawn)) % order, *drawn]
            else:
                terms = [value, *(next(numbers) for _ in range(least - 1))]
                pending += [_value(terms, point, order) for point in range(1, parts + 1)]
        return shares[::-1]

    def weights(self, words: Collection[str], order: int) -> dict[int, int] | None:
        """Find the fewest leaves that satisfy the tree, and the weights of their shares.

        Returns:
            weight by number of the leaf; None if the words do not satisfy the tree.
        """
        costs: list[int | None] = []  # of each node: leaves that it takes
        chosen: list[list[tuple[int, int]]] = []  # of each node: points and numbers of parts
        pending: list[int] = []
        leaves = iter(self.words)
        for node, (least, parts) in enumerate(self.steps):
            if parts == 1:
                costs.append(1 if next(leaves) in words else None)
                chosen.append([])
            else:
                own = list(enumerate(pending[-parts:], 1))
                del pending[-parts:]
                held = [(cost, *part) for part in own if (cost := costs[part[1]]) is not None]
                held = sorted(held)[:least]
                costs.append(sum(cost for cost, *_ in held) if len(held) == least else None)
                chosen.append(sorted((point, part) for _, point, part in held))
            pending.append(node)
        return None if costs[-1] is None else self._factors(chosen, order)

    def _factors(self, chosen: list[list[tuple[int, int]]], order: int) -> dict[int, int]:
        """Return the weights of the leaves below the chosen parts, from the root down."""
        factors, out, leaf = {len(self.steps) - 1: 1}, {}, len(self.words)
        for node in range(len(self.steps) - 1, -1, -1):
            least, parts = self.steps[node]
            leaf -= parts == 1
            factor = factors.pop(node, None)
            if factor is None:
                continue
            if parts == 1:
                out[leaf] = factor
                continue
            points, own = zip(*chosen[node], strict=True)
            plain = least in (1, parts)
            terms = [1] * least if plain else lagrange(prime_field(order), [*points], 0)
            for part, term in zip(own, terms, strict=True):
                factors[part] = int(factor * term % order)
        return dict(reversed(out.items()))


def _value(terms: Sequence[int], point: int, order: int) -> int:
    """Return the value of a polynomial; the constant term comes first."""
    total = 0
    for term in reversed(terms):
        total = (total * point + term) % order
    return total


def epoch_words(words: Sequence[str], epoch: int | None) -> tuple[str, ...]:
    """Return the words of an epoch; they differ from those of other epochs and of none."""
    return tuple(words if epoch is None else (f"*{epoch}:{word}" for word in words))


def epoch_tree(tree: Tree, epoch: int | None) -> Tree:
    """Return a tree whose leaves have the words of an epoch."""
    return Tree(epoch_words(tree.words, epoch), tree.steps)


# -- words of records, and trees of predicates -----------------------------------------------------


def words_of(schema: Schema, given: Any, epoch: int | None) -> tuple[str, ...]:
    """Return the words of a record in an epoch; errors are those of `record_of`."""
    (words,) = record_words(record_of(schema, given))
    return epoch_words(words, epoch)


def policy_of(schema: Schema, given: Any, epoch: int | None) -> Tree:
    """Return the tree of a policy in an epoch.

    Raises:
        ParameterError: the policy is neither SQL text nor a predicate of this schema.
        PredicateError: it does not parse, no record satisfies it, or the tree is too large.
    """
    return epoch_tree(predicate_tree(schema, bound_predicate(schema, given, "a policy")), epoch)


def record_words(events: Events) -> Iterator[tuple[str, ...]]:
    """Yield the words of each record: `ANYBODY`, and for each attribute its value and its bits.

    Since a bit has a word for 0 and one for 1, comparisons and negations are trees without
    negation. Source: [BSW07] section 4.3.
    """
    schema, bits = events.schema, event_bits(events).astype(int).tolist()
    codes = {name: unpack(events.codes[name]) for name in schema}
    for row, held in enumerate(bits):
        words = [ANYBODY]
        for name, first in schema.first_bits.items():
            words.append(_value_word(name, codes[name][row]))
            width = schema[name].bits
            if width > 1:
                words += [_bit_word(name, at, held[first + at]) for at in range(width)]
        yield tuple(words)


def predicate_tree(schema: Schema, predicate: Predicate) -> Tree:
    """Write a bound predicate as a tree that a record's words satisfy iff the predicate holds.

    Raises:
        UnsupportedPredicateError: no record satisfies the predicate, or the tree is too large.
    """
    try:
        tree = _tree(schema, predicate.true_form())
    except ParameterError as error:
        raise UnsupportedPredicateError(str(error), text=predicate.text) from None
    if tree is None:
        raise UnsupportedPredicateError(
            "no record satisfies the policy, so nobody could open what is sealed under it",
            text=predicate.text,
        )
    return tree


def _tree(schema: Schema, form: Form) -> Tree | None:
    """Return the tree of a form; None for one that never holds."""
    if isinstance(form, InRange) and not form.negated and form.bounds[0] == form.bounds[1]:
        # One word instead of all bits of the value.
        return Tree.leaf(_value_word(form.attribute, form.bounds[0]))
    if not form.children:
        return _from_bits(schema, bit_tree(schema, form))
    parts = [_tree(schema, part) for part in form.children]
    least = getattr(form, "k", len(parts) if type(form).__name__ == "AllOf" else 1)
    return _at_least(least, parts)


def _from_bits(schema: Schema, node: object) -> Tree | None:
    if node is TRUE or node is FALSE:
        return Tree.leaf(ANYBODY) if node is TRUE else None
    if isinstance(node, Literal):
        if schema[node.attribute].bits == 1:
            return Tree.leaf(_value_word(node.attribute, node.value))
        return Tree.leaf(_bit_word(node.attribute, node.position, node.value))
    assert isinstance(node, Threshold)
    return _at_least(node.least, [_from_bits(schema, part) for part in node.parts])


def _at_least(least: int, parts: Sequence[Tree | None]) -> Tree | None:
    """Join trees, some of which may always or never hold."""
    always = sum(part is not None and part.words == (ANYBODY,) for part in parts)
    rest = [part for part in parts if part is not None and part.words != (ANYBODY,)]
    if least <= always:
        return Tree.leaf(ANYBODY)
    return Tree.join(least - always, rest) if least - always <= len(rest) else None


def _value_word(name: str, code: int) -> str:
    return f"{name}={code}"


def _bit_word(name: str, at: int, value: int) -> str:
    return f"{name}[{at}]={value}"
