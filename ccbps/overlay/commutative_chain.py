"""Multiple-layer commutative encryption on a chain of brokers, for any number of layers r >= 2.

Filters travel from subscribers up to the publisher's side, notifications down. Each node shares a
key with each of its ancestors 1 to r hops up, and so with its descendants 1 to r hops down. On
the way between hops every message has r layers: one for each pair of nodes r hops apart that has
the hop in between. A broker

- takes the layer it shares with the node r hops back from where the message comes off,
- compares the rest, r - 1 layers of which it holds no key, with what it has: a filter that is
  there already is noted but not forwarded, a notification that is not there goes no further,
- adds the layer it shares with the node r hops ahead, and forwards.

At an end of the chain there is no node r hops away: the publisher or the subscriber stands for
the missing ones, and both have to share a key if they are less than r hops from each other.

Aggregation: filters are comparable once all layers of their subscribers are off. That is at the
broker r hops up; from there on equal filters of different subscribers are forwarded once.

Not protected: equality of filters and notifications at each broker. Those who together hold the
keys of all layers of a table try words: r nodes in a row, and no fewer if all are brokers. The
publisher stands for many nodes: it and the last broker read all filters, whatever r is. And anyone
who can send guesses needs no key: the publisher and any one broker find all filters, and so do a
subscriber and the broker r hops above it. More layers do nothing against that. A node checks
elements, not who sent them.
Source: [SOM09]; [Survey] section 4.5, Table 4.2.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ccbps.arrays import Randomness
from ccbps.ciphers.pohlig_hellman import LayerKey, PohligHellman
from ccbps.errors import KeyMismatchError, ParameterError

Trail = tuple[str, ...]
"""Names of the nodes a filter came through, up to r of them, the nearest last. It starts with the
subscriber where that is less than r hops away."""

PUBLISHER: Final = "publisher"


@dataclass(frozen=True, slots=True)
class FilterMessage:
    """An encrypted filter on its way up.

    Attributes:
        element: the word under r layers.
        trail: where it came from; names no node more than r hops back.
    """

    element: int
    trail: Trail


@dataclass(frozen=True, slots=True)
class NotificationMessage:
    """An encrypted notification on its way down.

    Attributes:
        element: the word under r layers.
        to: the node it is sent to.
    """

    element: int
    to: str


@dataclass(slots=True, repr=False)
class ChainNode:
    """A publisher, broker or subscriber: its keys, and a broker's routing table.

    Attributes:
        name: unique in the chain.
        cipher: public.
        ancestors: nodes 1 to r hops up, nearest first; the publisher stands for missing ones.
        keys: the key shared with each node 1 to r hops away, by its name.
        table: for each filter, without the layer that came off here, where it came from.
    """

    name: str
    cipher: PohligHellman
    ancestors: tuple[str, ...]
    keys: dict[str, LayerKey]
    table: dict[int, list[Trail]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<ChainNode {self.name}: {len(self.keys)} keys, {len(self.table)} table entries>"

    def key(self, name: str) -> LayerKey:
        """The key shared with a node.

        Raises:
            KeyMismatchError: there is none.
        """
        if name not in self.keys:
            raise KeyMismatchError(
                f"node {self.name!r} shares no key with {name!r}: it has keys with nodes up to r "
                "hops up or down"
            )
        return self.keys[name]

    # -- the four primitives ------------------------------------------------------------------

    def encrypt_filter(self, word: bytes) -> FilterMessage:
        """A subscriber's filter, for its parent."""
        keys = [self.key(name) for name in self.ancestors]
        (element,) = self.cipher.add([self.cipher.encode(word)], *keys)
        return FilterMessage(int(element), (self.name,))

    def encrypt_notification(self, word: bytes, trail: Trail, layers: int) -> NotificationMessage:
        """A publisher's notification for the subscribers that are reached by one trail.

        Args:
            word: what filters are compared with.
            trail: the last nodes of the way up to the publisher, up to r, the nearest last.
            layers: r.
        """
        names = [trail[max(len(trail) - hops, 0)] for hops in range(1, layers + 1)]
        keys = [self.key(name) for name in names]
        (element,) = self.cipher.add([self.cipher.encode(word)], *keys)
        return NotificationMessage(int(element), trail[-1])

    def secure_table_building(self, message: FilterMessage) -> FilterMessage | None:
        """Take a filter into the broker's table.

        Returns:
            What to send to the parent, or None if an equal filter was sent before.

        Raises:
            ParameterError: the message holds no element.
            KeyMismatchError: its trail starts with a node that shares no key with this one.
        """
        if not message.trail:
            raise ParameterError("a filter needs a trail: the nodes it came through")
        (entry,) = self.cipher.remove([message.element], self.key(message.trail[0]))
        known = self.table.setdefault(int(entry), [])
        first = not known
        if message.trail not in known:
            known.append(message.trail)
        if not first:
            return None
        (element,) = self.cipher.add([entry], self.key(self.ancestors[-1]))
        return FilterMessage(int(element), (*message.trail, self.name)[-len(self.ancestors) :])

    def secure_look_up(self, message: NotificationMessage) -> tuple[int, list[Trail]]:
        """A notification without the layer that comes off here, and the trails of equal filters."""
        (entry,) = self.cipher.remove([message.element], self.key(self.ancestors[-1]))
        return int(entry), self.table.get(int(entry), [])

    # -- what follows from them ---------------------------------------------------------------

    def forward(self, message: NotificationMessage) -> list[NotificationMessage]:
        """A broker's copies of a notification, one for each node r hops down that waits for it.

        Raises:
            ParameterError: the message holds no element.
        """
        entry, trails = self.secure_look_up(message)
        copies = []
        for trail in trails:
            (element,) = self.cipher.add([entry], self.key(trail[0]))
            copies.append(NotificationMessage(int(element), trail[-1]))
        return copies

    def reads(self, message: NotificationMessage, word: bytes) -> bool:
        """Whether a notification that reached this subscriber is about `word`."""
        keys = [self.key(name) for name in self.ancestors]
        (element,) = self.cipher.remove([message.element], *keys)
        return bool(element == self.cipher.encode(word))


class Chain:
    """A chain of brokers with one publisher at the top and subscribers at any of the brokers.

    It is the key server (gives all nodes their keys) and the network (carries their messages).

    Attributes:
        layers: r.
        nodes: all nodes by name: "publisher", "broker 1" (farthest from the publisher), ..., and
            the subscribers.
        sent_up: how many filters went from one node to another.
        sent_down: how many notifications did.
    """

    def __init__(
        self,
        brokers: int,
        subscribers: Mapping[str, int],
        *,
        layers: int = 2,
        cipher: PohligHellman | None = None,
        randomness: Randomness = os.urandom,
    ) -> None:
        """
        Args:
            brokers: how many, 1 or more.
            subscribers: for each name the number of the broker it is connected to.
            layers: r, 2 or more.
            cipher: over MODP_2048 by default.
            randomness: where keys are drawn from.

        Raises:
            ParameterError: an argument is outside these bounds.
        """
        if brokers < 1 or layers < 2:
            raise ParameterError(
                f"a chain needs 1 broker and 2 layers or more, got {brokers} and {layers}"
            )
        self.layers, self.cipher = layers, cipher or PohligHellman()
        self.nodes: dict[str, ChainNode] = {}
        self.sent_up: Counter[tuple[str, str]] = Counter()
        self.sent_down: Counter[tuple[str, str]] = Counter()
        self._filters: dict[str, set[bytes]] = {name: set() for name in subscribers}
        names = [f"broker {number}" for number in range(1, brokers + 1)]
        # Every node's way to the publisher, itself first.
        ways = {name: (*names[place:], PUBLISHER) for place, name in enumerate(names)}
        for name, place in subscribers.items():
            if name in ways or name == PUBLISHER or not 1 <= place <= brokers:
                raise ParameterError(
                    f"subscriber {name!r} needs a name of its own and a broker 1..{brokers}"
                )
        for name, place in subscribers.items():
            ways[name] = (name, *ways[names[place - 1]])
        ways[PUBLISHER] = (PUBLISHER,)
        for name, way in ways.items():
            up = way[1:]
            ancestors = tuple(up[min(hop, len(up) - 1)] for hop in range(layers)) if up else ()
            self.nodes[name] = ChainNode(name, self.cipher, ancestors, {})
        for name, node in self.nodes.items():
            for ancestor in dict.fromkeys(node.ancestors):
                key = self.cipher.generate(randomness)
                node.keys[ancestor] = self.nodes[ancestor].keys[name] = key
        self._trails = tuple(dict.fromkeys(ways[name][:-1][-layers:] for name in subscribers))

    def __repr__(self) -> str:
        return f"<Chain of {len(self.nodes)} nodes, {self.layers} layers>"

    def subscribe(self, subscriber: str, word: bytes) -> None:
        """Send a subscriber's filter up as far as it has to go.

        Raises:
            ParameterError: there is no such subscriber.
        """
        if subscriber not in self._filters:
            raise ParameterError(f"no subscriber is named {subscriber!r}")
        self._filters[subscriber].add(word)
        at = self.nodes[subscriber]
        message: FilterMessage | None = at.encrypt_filter(word)
        while message is not None and at.ancestors[0] != PUBLISHER:
            self.sent_up[at.name, at.ancestors[0]] += 1
            at = self.nodes[at.ancestors[0]]
            message = at.secure_table_building(message)

    def publish(self, word: bytes) -> set[str]:
        """Send a notification down; returns the subscribers that got it and read it as theirs."""
        publisher = self.nodes[PUBLISHER]
        reached = set()
        waiting = [
            (PUBLISHER, publisher.encrypt_notification(word, trail, self.layers))
            for trail in self._trails
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
