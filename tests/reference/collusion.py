"""Who learns a secret, from the messages themselves: every fragment, who makes it and who gets it.

Nothing here imports the package, and no rule about k brokers of one place is used. What colluders
know is closed under three facts: they know what they are sent; whoever splits a fragment knows its
children; k children of one split give all of it, and the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Broker: TypeAlias = tuple[str, int]
Fragment: TypeAlias = tuple[object, ...]
"""The secret is (); a child is its parent, the split's label, and its point."""
SECRET: Fragment = ()


@dataclass
class Messages:
    """All fragments of one secret.

    Attributes:
        k: children of a split that give it back.
        sent: to each physical broker; what an enclave is sent is encrypted, and not here.
        made: by each physical broker; an enclave makes fragments, too, and its host reads none.
        splits: the children of each split, by parent and label.
    """

    k: int
    sent: dict[Broker, set[Fragment]] = field(default_factory=dict)
    made: dict[Broker, set[Fragment]] = field(default_factory=dict)
    splits: dict[tuple[Fragment, str], list[Fragment]] = field(default_factory=dict)

    def split(self, parent: Fragment, label: str, n: int) -> list[Fragment]:
        return self.splits.setdefault(
            (parent, label), [(parent, label, point) for point in range(1, n + 1)]
        )

    def known(self, colluders: Collection[Broker]) -> set[Fragment]:
        """All fragments that the colluders have or can compute."""
        known: set[Fragment] = set()
        for one in colluders:
            known |= self.sent.get(one, set()) | self.made.get(one, set())
        while True:
            more = {
                fragment
                for (parent, _), children in self.splits.items()
                if sum(child in known for child in children) >= self.k
                for fragment in [parent, *children]
            }
            if more <= known:
                return known
            known |= more


def send(
    children: Mapping[str, Sequence[str]],
    root: str,
    k: int,
    n: int,
    m: int,
    *,
    again: bool,
    enclaves: Collection[str] = (),
    fresh: bool = True,
) -> Messages:
    """Send a secret down a tree of logical brokers.

    Args:
        children: the logical brokers after each one.
        root: the first one.
        k: as in (k, n) sharing; and `n`.
        n: likewise.
        m: physical brokers of a logical one.
        again: whether brokers split each fragment again (ISSPS); otherwise they pass it on (SSPS).
        enclaves: logical brokers that are enclaves.
        fresh: whether each next hop gets a split of its own; otherwise all get the same shares.
    """
    messages = Messages(k)

    def arrive(name: str, fragments: Sequence[Fragment], point_of: Mapping[Fragment, int]) -> None:
        """Each fragment at the broker that its last split's point says, and on from there."""
        if name in enclaves:
            # Joins the secret, whatever it was sent; its splits are its own.
            for child in children[name]:
                give(child, SECRET, name)
            return
        holders = {one: (name, (point_of[one] - 1) % m + 1) for one in fragments}
        for one, holder in holders.items():
            messages.sent.setdefault(holder, set()).add(one)
        for child in children[name]:
            if child in enclaves or not again:
                arrive(child, fragments, point_of)
                continue
            label = f"for {child}" if fresh else "for all"
            parts = {one: messages.split(one, label, n) for one in fragments}
            for one, its in parts.items():
                messages.made.setdefault(holders[one], set()).update(its)
            arrive(
                child,
                [part for its in parts.values() for part in its],
                {part: point for its in parts.values() for point, part in enumerate(its, 1)},
            )

    def give(name: str, secret: Fragment, maker: str) -> None:
        its = messages.split(secret, f"by {maker} for {name}", n)
        arrive(name, its, {part: point for point, part in enumerate(its, 1)})

    give(root, SECRET, "publisher")
    return messages


def pool(
    values: Mapping[tuple[int, ...], bytes], join: Callable[[Mapping[int, bytes]], bytes | None]
) -> bytes | None:
    """The secret from values of fragments on one line, of all depths, by the points of their paths.

    Args:
        values: whatever somebody has.
        join: the value of a parent from its children by point, or None if they are too few.
    """
    known = dict(values)
    for depth in range(max(map(len, known), default=0), 0, -1):
        splits: dict[tuple[int, ...], dict[int, bytes]] = {}
        for path, value in known.items():
            if len(path) == depth:
                splits.setdefault(path[:-1], {})[path[-1]] = value
        for path, children in splits.items():
            value_of_parent = join(children)
            if value_of_parent is not None:
                assert known.setdefault(path, value_of_parent) == value_of_parent
    return known.get(())
