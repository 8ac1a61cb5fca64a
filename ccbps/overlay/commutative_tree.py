"""Multiple-layer commutative encryption on a tree of brokers, for any number of layers r >= 2.

Filters travel from subscribers up to the publisher's side, notifications down. Each node shares a
key with each of its ancestors 1 to r hops up, and so with its descendants 1 to r hops down. On each
hop a message has r layers: one for each pair of nodes r hops apart with the hop between them. A
broker

- removes the layer that it shares with the node r hops back on the message's way,
- compares the rest, r - 1 layers under keys that it lacks, with its table. A filter that is in the
  table is noted but not forwarded. A notification that is not in the table goes no further,
- adds the layer that it shares with the node r hops ahead, and forwards.

At the root and at the leaves there is no node r hops away. The publisher or the subscriber stands
for the missing nodes. These two must share a key if they are less than r hops from each other.

A notification has the layers of one way down. So a node sends a copy for each node r hops down from
which a matching filter came, and the publisher one for each way down of r hops.

Aggregation: filters are comparable once all layers of their subscribers are removed: at the broker
r hops up, and for filters of two branches, r hops above the broker where the branches meet. From
there on equal filters are forwarded once. So more layers make larger tables.

Equality of filters and notifications is visible at each broker. Nodes that together hold the keys
of all layers of a table can try words. If all are brokers, these are at least r nodes in a row. The
publisher stands for many nodes: together with the last broker it reads all filters, for any r. A
node that can send guesses needs no key: the publisher and any one broker find all filters, and so
do a subscriber and the broker r hops above it. More layers do not prevent that. A node checks
elements, not their senders.
Source: [SOM09]; [Survey] section 4.5, Table 4.2.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from ccbps.arrays import Randomness
from ccbps.checks import Printable, whole
from ccbps.ciphers.pohlig_hellman import LayerKey, PohligHellman
from ccbps.errors import KeyMismatchError, ParameterError

Trail = tuple[str, ...]
"""Names of the last nodes that a filter passed, up to r, the nearest last. It starts with the
subscriber if that is less than r hops away."""

PUBLISHER: Final = "publisher"


@dataclass(frozen=True, slots=True)
class FilterMessage:
    """Encrypted filter on its way up.

    Attributes:
        element: word under r layers.
        trail: last nodes that it passed, at most r hops back.
    """

    element: int
    trail: Trail


@dataclass(frozen=True, slots=True)
class NotificationMessage:
    """Encrypted notification on its way down.

    Attributes:
        element: word under r layers.
        to: name of the receiver.
    """

    element: int
    to: str


@dataclass(slots=True, repr=False)
class LayeredNode(Printable):
    """Publisher, broker or subscriber, with its keys and a broker's routing table.

    Attributes:
        name: name, unique in the tree.
        cipher: public cipher.
        ancestors: nodes 1 to r hops up, nearest first. The publisher stands for missing nodes.
        keys: key shared with each node 1 to r hops away, by the node's name.
        table: trails of each filter, by its element without the layer that is removed here.
    """

    name: str
    cipher: PohligHellman
    ancestors: tuple[str, ...]
    keys: dict[str, LayerKey] = field(default_factory=dict)
    table: dict[int, list[Trail]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<LayeredNode {self.name}: {len(self.keys)} keys, {len(self.table)} table entries>"

    def key(self, name: str) -> LayerKey:
        """Return the key that is shared with a node.

        Raises:
            KeyMismatchError: there is none.
        """
        if name not in self.keys:
            raise KeyMismatchError(
                f"node {self.name!r} shares no key with {name!r}: it has keys with nodes up to r "
                "hops up or down"
            )
        return self.keys[name]

    def _add(self, element: int, names: Sequence[str]) -> int:
        """Add the layers that are shared with some nodes."""
        (layered,) = self.cipher.add([element], *map(self.key, names))
        return int(layered)

    def _remove(self, element: int, names: Sequence[str]) -> int:
        """Remove the layers that are shared with some nodes."""
        (rest,) = self.cipher.remove([element], *map(self.key, names))
        return int(rest)

    # -- the four primitives ------------------------------------------------------------------

    def encrypt_filter(self, word: bytes) -> FilterMessage:
        """Encrypt a subscriber's filter for its parent."""
        return FilterMessage(self._add(self.cipher.encode(word), self.ancestors), (self.name,))

    def encrypt_notification(self, word: bytes, trail: Trail, layers: int) -> NotificationMessage:
        """Encrypt a publisher's notification for the subscribers that one trail reaches.

        Args:
            word: word that is compared with filters.
            trail: last nodes of the way up to the publisher, up to r, the nearest last.
            layers: number r of layers.
        """
        names = [trail[max(len(trail) - hops, 0)] for hops in range(1, layers + 1)]
        return NotificationMessage(self._add(self.cipher.encode(word), names), trail[-1])

    def secure_table_building(self, message: FilterMessage) -> FilterMessage | None:
        """Add a filter to the broker's table.

        Returns:
            the message for the parent, or None if an equal filter was sent before.

        Raises:
            ParameterError: the message has no trail or a longer one than r, or holds no element.
            KeyMismatchError: its trail names a node that shares no key with this one.
        """
        if not 0 < len(message.trail) <= len(self.ancestors):
            raise ParameterError(
                "a filter needs a trail: up to r nodes that it came through, got "
                f"{len(message.trail)}"
            )
        for name in message.trail:
            self.key(name)
        entry = self._remove(message.element, message.trail[:1])
        trails = self.table.setdefault(entry, [])
        first = not trails
        if message.trail not in trails:
            trails.append(message.trail)
        if not first:
            return None
        element = self._add(entry, self.ancestors[-1:])
        return FilterMessage(element, (*message.trail, self.name)[-len(self.ancestors) :])

    def secure_look_up(self, message: NotificationMessage) -> tuple[int, list[Trail]]:
        """Look up a notification, without the layer that is removed here, in the table.

        Returns:
            the element without this layer, and the trails of equal filters.
        """
        entry = self._remove(message.element, self.ancestors[-1:])
        return entry, self.table.get(entry, [])

    # -- what follows from them ---------------------------------------------------------------

    def forward(self, message: NotificationMessage) -> list[NotificationMessage]:
        """Return a broker's copies of a notification, one for each trail of an equal filter.

        Raises:
            ParameterError: the message holds no element.
        """
        entry, trails = self.secure_look_up(message)
        return [NotificationMessage(self._add(entry, trail[:1]), trail[-1]) for trail in trails]

    def reads(self, message: NotificationMessage, word: bytes) -> bool:
        """Tell whether a notification that reached this subscriber is about a word."""
        return self._remove(message.element, self.ancestors) == self.cipher.encode(word)


class LayeredTree(Printable):
    """Tree of brokers, with a publisher at the root and subscribers at any of the brokers.

    The tree is both the key server, which gives all nodes their keys, and the network, which
    carries their messages.

    Args:
        parents: next node on the way to the publisher of each broker, by the broker's name; the
            publisher's name is "publisher".
        subscribers: broker of each subscriber, by the subscriber's name.
        layers: number r of layers, 2 or more.
        cipher: cipher of the layers; over MODP_2048 by default.
        randomness: source of the keys.

    Attributes:
        nodes: all nodes by name: the publisher, the brokers and the subscribers.
        trails: last nodes, up to r, of the ways of subscribers to the publisher, each once.
        sent_up: number of filters from one node to another.
        sent_down: number of notifications from one node to another.

    Raises:
        ParameterError: an argument is out of range, two nodes have one name, or a way does not lead
            to the publisher.
    """

    def __init__(
        self,
        parents: Mapping[str, str],
        subscribers: Mapping[str, str],
        *,
        layers: int = 2,
        cipher: PohligHellman | None = None,
        randomness: Randomness = os.urandom,
    ) -> None:
        self.layers = whole("layers", layers, 2)
        self.cipher = cipher or PohligHellman()
        self.nodes: dict[str, LayeredNode] = {}
        self.sent_up: Counter[tuple[str, str]] = Counter()
        self.sent_down: Counter[tuple[str, str]] = Counter()
        self._filters: dict[str, set[bytes]] = {name: set() for name in subscribers}
        # The way of each node to the publisher, itself first.
        ways: dict[str, Trail] = {PUBLISHER: (PUBLISHER,)}
        for name in parents:
            ways[name] = _way(name, parents)
        for name, broker in subscribers.items():
            if name in ways or broker not in parents:
                raise ParameterError(
                    f"subscriber {name!r} needs a name of its own and one of the brokers "
                    f"{', '.join(parents)}"
                )
        ways |= {name: (name, *ways[broker]) for name, broker in subscribers.items()}
        for name, (_, *up) in ways.items():
            ancestors = tuple(up[min(hop, len(up) - 1)] for hop in range(layers)) if up else ()
            self.nodes[name] = LayeredNode(name, self.cipher, ancestors)
        for name, node in self.nodes.items():
            for ancestor in dict.fromkeys(node.ancestors):
                key = self.cipher.generate(randomness)
                node.keys[ancestor] = self.nodes[ancestor].keys[name] = key
        ends = (ways[name][:-1][-layers:] for name in subscribers)
        self.trails: tuple[Trail, ...] = tuple(dict.fromkeys(ends))

    @classmethod
    def chain(
        cls,
        brokers: int,
        subscribers: Mapping[str, int],
        *,
        layers: int = 2,
        cipher: PohligHellman | None = None,
        randomness: Randomness = os.urandom,
    ) -> Self:
        """Make a chain of brokers: "broker 1", the farthest from the publisher, "broker 2" and on.

        Args:
            brokers: number of brokers, 1 or more.
            subscribers: number of each subscriber's broker, by the subscriber's name.
            layers: number r of layers, 2 or more.
            cipher: cipher of the layers; over MODP_2048 by default.
            randomness: source of the keys.

        Raises:
            ParameterError: as for a tree.
        """
        names = [f"broker {number}" for number in range(1, whole("brokers", brokers, 1) + 1)]
        parents = dict(zip(names, [*names[1:], PUBLISHER], strict=True))
        homes = {name: f"broker {place}" for name, place in subscribers.items()}
        return cls(parents, homes, layers=layers, cipher=cipher, randomness=randomness)

    def __repr__(self) -> str:
        return f"<LayeredTree of {len(self.nodes)} nodes, {self.layers} layers>"

    def subscribe(self, subscriber: str, word: bytes) -> None:
        """Send a subscriber's filter up as far as it has to go.

        Raises:
            ParameterError: there is no such subscriber.
        """
        if subscriber not in self._filters:
            raise ParameterError(f"no subscriber is named {subscriber!r}")
        self._filters[subscriber].add(word)
        node = self.nodes[subscriber]
        message: FilterMessage | None = node.encrypt_filter(word)
        while message is not None and node.ancestors[0] != PUBLISHER:
            self.sent_up[node.name, node.ancestors[0]] += 1
            node = self.nodes[node.ancestors[0]]
            message = node.secure_table_building(message)

    def publish(self, word: bytes) -> set[str]:
        """Send a notification down; return the subscribers that got it and read it as theirs."""
        publisher = self.nodes[PUBLISHER]
        reached = set()
        waiting = [
            (PUBLISHER, publisher.encrypt_notification(word, trail, self.layers))
            for trail in self.trails
        ]
        while waiting:
            sender, message = waiting.pop()
            self.sent_down[sender, message.to] += 1
            node = self.nodes[message.to]
            if message.to in self._filters:
                if any(node.reads(message, own) for own in self._filters[message.to]):
                    reached.add(message.to)
            else:
                waiting += [(node.name, copy) for copy in node.forward(message)]
        return reached


def _way(name: str, parents: Mapping[str, str]) -> Trail:
    """Return the way of a broker to the publisher, itself first."""
    way = [name]
    while way[-1] != PUBLISHER:
        following = parents.get(way[-1], way[-1])
        if following in way:
            raise ParameterError(f"parents: the way of {name!r} does not lead to {PUBLISHER!r}")
        way.append(following)
    return tuple(way)
