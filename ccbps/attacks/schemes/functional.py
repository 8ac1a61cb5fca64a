"""Attacks on functional encryption by users who pool their keys, and by observers.

In the transparent pairing, where elements are their logarithms, `view_of` returns all elements that
a party can compute from its keys and messages, and `ccbps.attacks.schemes.relations` tests whether
a message's element of GT is a linear combination of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np

from ccbps.algebra.pairing import Point
from ccbps.algebra.pairing.groups import TransparentPairing
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.relations import pairings
from ccbps.checks import whole
from ccbps.errors import KeyMismatchError
from ccbps.functional import CpAbe, FunctionalScheme, HiddenVectors
from ccbps.functional.keys import coins
from ccbps.functional.scheme import Points
from ccbps.functional.trees import Tree
from ccbps.predicates import Bool, Schema

ORDER: Final = (1 << 31) - 1
"""Order of the groups of a search: a prime whose products fit into 64 bits."""


class SearchGroups(TransparentPairing):
    """Transparent groups of small order, with random hashes."""

    def __init__(self) -> None:
        super().__init__()
        self.order = ORDER

    def _hash_to_g1(self, message: bytes, domain: bytes) -> Any:
        return 1, self.exponents(1)[0]


def view_of(
    scheme: FunctionalScheme, keys: Sequence[Any], targets: Sequence[Any]
) -> tuple[list[int], list[int]]:
    """Return logarithms in GT of the elements that a party can compute, and of the messages'.

    Args:
        scheme: the scheme; it gets fresh groups.
        keys: holdings of the party's keys.
        targets: targets of the messages.
    """
    scheme.group = group = SearchGroups()
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
    computed = [*pairings(ones, twos, ORDER), *(target[1] for target in published)]
    return computed, [element()[1] for _, element in messages]


def _held(scheme: FunctionalScheme, key: Any) -> Any:
    return (key,) if isinstance(scheme, HiddenVectors) else key


def _words(some: Any) -> Sequence[str]:
    if isinstance(some, Tree):
        return some.words
    return [some] if isinstance(some, str) else [word for word in some if isinstance(word, str)]


def pooled(keys: Sequence[tuple[Sequence[str], Points]]) -> tuple[list[str], Points]:
    """Combine keys of `CpAbe`: the first part of the first key, and the parts of all words.

    Args:
        keys: words and points of each key.
    """
    words: list[str] = []
    ones: list[Point] = [keys[0][1][0][0]]
    for own, (points, _) in keys:
        words += own
        ones += points[1:]
    return words, (ones, keys[0][1][1])


@attack(
    title="Users pool their keys to open what none of them may open",
    goal="confidentiality",
    adversary="users of `CpAbe` with one attribute each, who pool their keys",
    defence="fresh randomness in each key, as `Authority.key` draws it; an authority whose "
    "randomness repeats, as after a restart from a snapshot, gives keys that fit together",
    source="[BSW07]",
)
def functional_pooled_keys(*, users: int = 6, attributes: int = 6, seed: int = 1) -> Outcome:
    """Open messages for two attributes with the keys of users who have one each.

    There is a message for each two attributes. The users put the parts of their keys together.
    Keys are bound to their users by a random number. If the authority draws the same one for all of
    them, the parts fit, as if they were of one key.

    Args:
        users: number of users who pool their keys, from 2 to `attributes`.
        attributes: number of attributes, 2 to 12.
        seed: seed of the order of users.

    Example:
        >>> from ccbps.attacks import functional_pooled_keys
        >>> print(functional_pooled_keys(users=4, attributes=4)["messages opened"])
        Figure(name='messages opened', unit='', undefended=1.0, defended=0.0, expected=1.0)
    """
    whole("attributes", attributes, 2, 12)
    whole("users", users, 2, attributes)
    order = np.random.default_rng(whole("seed", seed, 0)).permutation(attributes).tolist()
    scheme = CpAbe(Schema(x=Bool()), pairing="transparent")
    group, names = scheme.group, [f"attribute {number}" for number in order]
    master, public, published = scheme.setup(coins(group, os.urandom(32), b""))
    leaves = [Tree.leaf(name) for name in sorted(names)]
    targets = [Tree.join(2, list(pair)) for pair in combinations(leaves, 2)]
    draw = coins(group, os.urandom(32), b"")
    messages = [scheme.encapsulate(public, published, target, draw) for target in targets]

    def opened(keys: Sequence[tuple[Sequence[str], Points]]) -> float:
        """Return the share of messages whose element of GT the users find."""
        words, points = pooled(keys)
        right = 0
        for target, (sent, element) in zip(targets, messages, strict=True):
            try:
                (find,) = scheme.find(tuple(words), points, target, sent)
            except KeyMismatchError:  # they lack an attribute
                continue
            right += group.encode_target(find()) == group.encode_target(element())
        return right / len(targets)

    counts = tuple(range(1, users + 1))
    lines = []
    for repeated in (True, False):
        seeds = [os.urandom(32)] * users if repeated else [os.urandom(32) for _ in range(users)]
        keys = [
            ((name,), scheme.make_key(master, (name,), coins(group, each, b"")))
            for name, each in zip(names, seeds, strict=False)
        ]
        lines.append(tuple(opened(keys[:count]) for count in counts))
    expected = users * (users - 1) / (attributes * (attributes - 1))
    return Outcome(
        (Figure("messages opened", "", lines[0][-1], lines[1][-1], expected),),
        Curve(
            "users who pool their keys",
            "messages opened (share)",
            counts,
            {"without defence": lines[0], "with fresh randomness": lines[1]},
        ),
    )
