"""Attacks on functional encryption by users who pool their keys, and by observers.

In generic groups, whatever a party can find out is a linear relation between what it has: points,
their pairings and published elements of GT. In the transparent model, where elements are their
logarithms, all such relations are found.

1. Users whose keys do not fit, and observers, cannot compute a message's element of GT, also not
   together, from several messages, or with keys of other epochs. One user whose key fits can.
2. Messages of hidden vectors for two records show the same relations, if the patterns of all keys
   that anybody has give the same answers on both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ccbps import Schema, UInt
from ccbps.algebra.pairing.groups import TransparentPairing
from ccbps.functional import CpAbe, FunctionalScheme, HiddenVectors, Ibe, KpAbe
from ccbps.functional.keys import coins
from ccbps.functional.trees import Tree, epoch_tree, epoch_words

ORDER = (1 << 31) - 1
"""A prime whose products fit into 64 bits."""
SCHEMA = Schema(x=UInt(2))
A, B, C = map(Tree.leaf, "abc")
BOTH, TWO, NESTED = (
    Tree.join(2, [A, B]),
    Tree.join(2, [A, B, C]),
    Tree.join(2, [A, Tree.join(1, [B, C])]),
)


class _Drawn(TransparentPairing):
    """Transparent groups of small order, with random hashes."""

    def __init__(self) -> None:
        super().__init__()
        self.order = ORDER

    def _hash_to_g1(self, message: bytes, domain: bytes) -> Any:
        return 1, self.exponents(1)[0]


def rank(given: Any) -> int:
    """Return the rank of a matrix modulo `ORDER`."""
    rows, found = np.array(given, dtype=np.int64) % ORDER, 0
    for column in range(rows.shape[1]):
        pivots = np.flatnonzero(rows[found:, column]) + found
        if not len(pivots):
            continue
        rows[[found, pivots[0]]] = rows[[pivots[0], found]]
        rows[found] = rows[found] * pow(int(rows[found, column]), -1, ORDER) % ORDER
        below = rows[found + 1 :]
        below -= below[:, column : column + 1] * rows[found] % ORDER
        below %= ORDER
        found += 1
    return found


def view(
    scheme: FunctionalScheme, keys: Sequence[Any], targets: Sequence[Any]
) -> tuple[list[int], list[int]]:
    """Return the logarithms in GT of what a party can compute, and of the messages' elements.

    Args:
        scheme: the scheme.
        keys: what the party's keys are for.
        targets: targets of the messages.
    """
    scheme.group = group = _Drawn()
    draw = coins(group, os.urandom(32), b"")
    master, public, published = scheme.setup(draw)
    messages = [scheme.encapsulate(public, published, target, draw) for target in targets]
    words = {word for some in (*keys, *targets) for word in _words(some)}
    parts = [
        ([group.g1, *map(scheme.hashed, words)], [group.g2]),
        public,
        *(scheme.make_key(master, _held(scheme, key), draw) for key in keys),
        *(points for points, _ in messages),
    ]
    ones, twos = ([point[1] for part in parts for point in part[side]] for side in (0, 1))
    products = [left * right % ORDER for left in ones for right in twos]
    return [*products, *(target[1] for target in published)], [
        element()[1] for _, element in messages
    ]


def _held(scheme: FunctionalScheme, key: Any) -> Any:
    return (key,) if isinstance(scheme, HiddenVectors) else key


def _words(some: Any) -> Sequence[str]:
    if isinstance(some, Tree):
        return some.words
    return [some] if isinstance(some, str) else [word for word in some if isinstance(word, str)]


def views(make: Callable[[], tuple[list[int], list[int]]]) -> tuple[Any, Any]:
    """Return what a party can compute with fresh keys, often, and the elements of GT."""
    rows, shared = [], []
    while not rows or len(rows) < len(rows[0]) + 5:
        row, elements = make()
        rows.append(row)
        shared.append(elements)
    return np.array(rows), np.array(shared)


def tree_in(epoch: int, tree: Tree) -> Tree:
    return epoch_tree(tree, epoch)


def words_in(epoch: int, *words: str) -> tuple[str, ...]:
    return epoch_words(words, epoch)


@pytest.mark.parametrize(
    ("kind", "keys", "targets", "opens"),
    [
        (CpAbe, [], [BOTH], False),
        (CpAbe, [("a", "b")], [BOTH], True),
        (CpAbe, [("a",), ("b",)], [BOTH], False),
        (CpAbe, [("a",), ("b",), ("a", "c")], [BOTH], False),
        (CpAbe, [("a",), ("b",), ("c",)], [TWO], False),
        (CpAbe, [("a",), ("b", "c")], [NESTED], False),
        (CpAbe, [("a", "c")], [NESTED], True),
        (CpAbe, [("a",), ("b",)], [BOTH, A, BOTH], False),
        (CpAbe, [words_in(6, "a", "b"), words_in(8, "a", "b")], [tree_in(7, BOTH)], False),
        (CpAbe, [words_in(7, "a"), words_in(8, "a", "b"), ("a", "b")], [tree_in(7, BOTH)], False),
        (CpAbe, [words_in(7, "a", "b")], [BOTH], False),
        (KpAbe, [], [("a", "b")], False),
        (KpAbe, [BOTH], [("a", "b")], True),
        (KpAbe, [BOTH, BOTH], [("a",), ("b",)], False),
        (KpAbe, [Tree.join(2, [A, C]), Tree.join(2, [B, C])], [("a", "b")], False),
        (KpAbe, [TWO, TWO, BOTH], [("a",)], False),
        (KpAbe, [BOTH, A], [("b",), ("a",)], False),
        (KpAbe, [tree_in(6, A), tree_in(8, A), A], [words_in(7, "a")], False),
        (KpAbe, [tree_in(7, A)], [("a",)], False),
        (Ibe, ["7:bob"], ["7:bob"], True),
        (Ibe, ["7:ann", ":bob", "8:bob"], ["7:bob", "7:ann"], False),
        (HiddenVectors, [], [(0, 1, 1)], False),
        (HiddenVectors, [((0, 0), (2, 1))], [(0, 1, 1)], True),
        (HiddenVectors, [((0, 1), (2, 1)), ((0, 0), (1, 0), (2, 1))], [(0, 1, 1)], False),
        (HiddenVectors, [((0, 1), (1, 1)), ((0, 0), (1, 0)), ((0, 1), (1, 0))], [(0, 1, 1)], False),
        (HiddenVectors, [((0, 0), (2, 1))], [(1, 1, 1), (0, 1, 1)], False),
    ],
)
def test_only_a_key_that_fits_computes_the_element(
    kind: type[FunctionalScheme], keys: list[Any], targets: list[Any], opens: bool
) -> None:
    scheme = kind.made_from(None if kind is Ibe else SCHEMA, "transparent")
    rows, shared = views(lambda: view(scheme, keys, targets))
    assert (rank(rows) == rank(np.hstack((rows, shared[:, :1])))) == opens


@pytest.mark.parametrize(
    ("patterns", "records", "others", "same"),
    [
        ([], [(0, 0, 1)], [(1, 1, 1)], True),
        ([], [(0, 1, 1), (0, 1, 1)], [(0, 1, 1), (1, 1, 1)], True),
        ([((0, 1), (2, 1))], [(1, 0, 1)], [(1, 1, 1)], True),
        ([((0, 1), (2, 1))], [(1, 0, 1)], [(0, 0, 1)], False),
        ([((0, 1), (1, 1), (2, 1))], [(0, 0, 1)], [(1, 0, 1)], True),
        ([((0, 1), (1, 1), (2, 1)), ((0, 0), (1, 1), (2, 1))], [(0, 0, 1)], [(1, 0, 1)], True),
        ([((0, 1), (2, 1)), ((0, 1), (2, 1))], [(1, 0, 1)] * 2, [(1, 0, 1), (1, 1, 1)], True),
        ([((0, 1), (2, 1)), ((0, 1), (1, 1), (2, 1))], [(0, 0, 1)], [(0, 1, 1)], True),
        ([((2, 1),)], [(0, 0, 1)], [(1, 1, 1)], True),
    ],
)
def test_hidden_vectors_show_what_each_pattern_answers(
    patterns: list[Any], records: list[Any], others: list[Any], same: bool
) -> None:
    scheme = HiddenVectors(SCHEMA, pairing="transparent")
    # With the elements of GT, since the masks of seeds show whether a guess of them is right.
    made = (views(lambda t=t: view(scheme, patterns, t)) for t in (records, others))
    one, two = map(np.hstack, made)
    assert (rank(one) == rank(two) == rank(np.vstack((one, two)))) == same
