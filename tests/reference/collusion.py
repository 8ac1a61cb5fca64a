"""The knowledge of colluders, from the messages: every fragment, its maker and its receivers.

Nothing here imports the package, and no rule about k brokers of one place is used. The knowledge of
colluders is closed under three facts: they know the fragments that they receive; the maker of a
split knows its children; k children of a split give all children and the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Broker: TypeAlias = tuple[str, int]
Fragment: TypeAlias = tuple[object, ...]
"""The secret is (). A child consists of its parent, the split's label, and its point."""
SECRET: Fragment = ()


@dataclass
class Messages:
    """All fragments of one secret.

    Attributes:
        k: number of children of a split that give its parent.
        sent: fragments sent to each physical broker. Those to an enclave are encrypted and left
            out.
        made: fragments made by each physical broker. The host of an enclave cannot read those that
            the enclave makes.
        splits: children of each split, by parent and label.
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
        """Return all fragments that the colluders have or can compute."""
        fragments: set[Fragment] = set()
        for broker in colluders:
            fragments |= self.sent.get(broker, set()) | self.made.get(broker, set())
        while True:
            more = {
                fragment
                for (parent, _), children in self.splits.items()
                if sum(child in fragments for child in children) >= self.k
                for fragment in [parent, *children]
            }
            if more <= fragments:
                return fragments
            fragments |= more


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
        children: next logical brokers of each logical broker.
        root: first logical broker.
        k: number of shares needed.
        n: number of shares of a split.
        m: number of physical brokers of a logical broker.
        again: True if brokers split each fragment again (ISSPS), False if they pass it on (SSPS).
        enclaves: logical brokers that are enclaves.
        fresh: True if each next broker gets a separate split, False if all get the same shares.
    """
    messages = Messages(k)

    def arrive(name: str, fragments: Sequence[Fragment], point_of: Mapping[Fragment, int]) -> None:
        """Deliver fragments to the brokers of their last points, and send them on from there."""
        if name in enclaves:
            # An enclave joins the secret and makes new splits.
            for child in children[name]:
                give(child, SECRET, name)
            return
        holders = {part: (name, (point_of[part] - 1) % m + 1) for part in fragments}
        for part, holder in holders.items():
            messages.sent.setdefault(holder, set()).add(part)
        for child in children[name]:
            if child in enclaves or not again:
                arrive(child, fragments, point_of)
                continue
            label = f"for {child}" if fresh else "for all"
            points: dict[Fragment, int] = {}
            for parent in fragments:
                parts = messages.split(parent, label, n)
                messages.made.setdefault(holders[parent], set()).update(parts)
                points |= {part: point for point, part in enumerate(parts, 1)}
            arrive(child, [*points], points)

    def give(name: str, secret: Fragment, maker: str) -> None:
        parts = messages.split(secret, f"by {maker} for {name}", n)
        arrive(name, parts, {part: point for point, part in enumerate(parts, 1)})

    give(root, SECRET, "publisher")
    return messages


def pool(
    values: Mapping[tuple[int, ...], bytes], join: Callable[[Mapping[int, bytes]], bytes | None]
) -> bytes | None:
    """Recover the secret from values of fragments of one line, of all depths.

    Args:
        values: values by the points of their paths.
        join: function from children by point to the value of their parent, or to None if they are
            too few.
    """
    joined = dict(values)
    for depth in range(max(map(len, joined), default=0), 0, -1):
        splits: dict[tuple[int, ...], dict[int, bytes]] = {}
        for path, value in joined.items():
            if len(path) == depth:
                splits.setdefault(path[:-1], {})[path[-1]] = value
        for path, children in splits.items():
            value_of_parent = join(children)
            if value_of_parent is not None:
                assert joined.setdefault(path, value_of_parent) == value_of_parent
    return joined.get(())
