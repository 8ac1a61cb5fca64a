"""Attacks on functional encryption by users who pool their keys, and by observers.

In generic groups, whatever a party can find out is a linear relation between what it has: points,
their pairings and published elements of GT. In the transparent model, where elements are their
logarithms, all such relations are found.

1. Users whose keys do not fit, and observers, cannot compute a message's element of GT, also not
   together, from several messages, or with keys of other epochs. One user whose key fits can. For
   KP- and CP-ABE that holds whatever the policies, with words at several leaves, too.
2. Messages of hidden vectors for two records show the same relations, if the patterns of all keys
   that anybody has give the same answers on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ccbps import Schema, UInt
from ccbps.attacks.schemes.functional import ORDER, view_of
from ccbps.attacks.schemes.relations import observed, rank_modulo
from ccbps.functional import CpAbe, FunctionalScheme, HiddenVectors, Ibe, KpAbe
from ccbps.functional.trees import Tree, epoch_tree, epoch_words
from tests.support import effort

SCHEMA = Schema(x=UInt(2))
A, B, C = map(Tree.leaf, "abc")
BOTH, TWO, NESTED = (
    Tree.join(2, [A, B]),
    Tree.join(2, [A, B, C]),
    Tree.join(2, [A, Tree.join(1, [B, C])]),
)


def views(scheme: FunctionalScheme, keys: Sequence[Any], targets: Sequence[Any]) -> tuple[Any, Any]:
    """Return what a party can compute with fresh keys, often, and the elements of GT."""

    def view() -> list[int]:
        computed, elements = view_of(scheme, keys, targets)
        return [*computed, *elements]

    rows = observed(view, ORDER)
    return rows[:, : -len(targets)], rows[:, -len(targets) :]


def tree_in(epoch: int, tree: Tree) -> Tree:
    return epoch_tree(tree, epoch)


def computes(rows: Any, element: Any) -> bool:
    """Return whether a column is a linear combination of those that a party computes."""
    return rank_modulo(rows, ORDER) == rank_modulo(np.hstack((rows, element)), ORDER)


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
    rows, shared = views(scheme, keys, targets)
    assert computes(rows, shared[:, :1]) == opens


def trees() -> Any:
    """Make small policies, with words at several leaves."""
    leaf = st.sampled_from([A, B, C])
    gates = {"min_size": 2, "max_size": 3}
    return st.recursive(
        leaf,
        lambda parts: st.lists(parts, **gates).flatmap(
            lambda some: st.integers(1, len(some)).map(lambda least: Tree.join(least, some))
        ),
        max_leaves=5,
    )


records = st.sets(st.sampled_from("abc"), min_size=1).map(lambda words: tuple(sorted(words)))


@settings(max_examples=effort.examples(120))
@given(policies=st.lists(trees(), min_size=1, max_size=2), users=st.lists(records, max_size=2))
@example(policies=[Tree.join(2, [A, A, B])], users=[("b",)])  # two leaves of a word that users lack
def test_users_together_read_what_one_of_them_may(
    policies: list[Tree], users: list[tuple[str, ...]]
) -> None:
    scheme = CpAbe(SCHEMA, pairing="transparent")
    rows, shared = views(scheme, users, policies)
    may = [policies[0].weights(words, ORDER) is not None for words in users]
    assert computes(rows, shared[:, :1]) == any(may)


@settings(max_examples=effort.examples(120))
@given(policies=st.lists(trees(), max_size=2), sent=st.lists(records, min_size=1, max_size=2))
@example(policies=[Tree.join(2, [A, A, B])], sent=[("b",)])
def test_policies_together_read_what_one_of_them_may(
    policies: list[Tree], sent: list[tuple[str, ...]]
) -> None:
    scheme = KpAbe(SCHEMA, pairing="transparent")
    rows, shared = views(scheme, policies, sent)
    may = [policy.weights(sent[0], ORDER) is not None for policy in policies]
    assert computes(rows, shared[:, :1]) == any(may)


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
    one, two = (np.hstack(views(scheme, patterns, each)) for each in (records, others))
    ranks = [rank_modulo(rows, ORDER) for rows in (one, two, np.vstack((one, two)))]
    assert (ranks[0] == ranks[1] == ranks[2]) == same
