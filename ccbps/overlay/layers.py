"""A logical layer: nodes act in turn, which hides the sender of a message among them.

Links of the layer point from node to node, without cycles. A node whose links all point to it is a
*sink*: it acts. It sends one cell to all neighbours, a message or a dummy, and all its links turn
round. So it acts again only after all its neighbours did. Every message reaches every node. A
receiver sees the last hop only: the sender may be any node from which the layer leads to that hop.

A node has a value modulo 3. The link of i and j points from i to j iff ``val_i = val_j + 1``, or
the values are equal and ``id_j < id_i``. To act is to add 1 to the value. This is a link reversal
with counters, taken modulo 3: it is right because counters of neighbours differ by at most 1. Nodes
use the last values that they heard. Two neighbours act in turn, each after it heard the other. So
on each link there is at most one cell, and links need not keep an order.

A node joins at neighbours that are all linked to one another, with values v only, or v and v + 1.
It takes v + 1 and an identifier above all others, so all its links point away from it, and no cycle
can close. The neighbours do not act between telling their values to the newcomer and hearing its
value. Joining n such neighbours keeps the layer connected if any n - 1 nodes fail.

A node that lies about its value, or acts before its turn, is detected at its next cell: its
neighbours forget it, as if it had crashed.

A node with nothing to send sends a dummy, as silence would reveal that. Leak: neighbours can tell
dummies from messages. A member that knows when everybody acts, and hears a message from one
neighbour first, can rule out about half of all senders, and several members together most of them.
Further messages of one sender reveal little: the order of acts does not change
(tests/overlay/test_layer_members.py).
Hazards: contents reach everybody. Encrypt them, and send cells over encrypted links. The layer
carries one message per act; a node that sends one in each act leaves no room for others.
Erratum: the printed algorithms choose other values at joins and do not add 1; most runs close a
cycle or stop (tests/overlay/test_layers.py).
Sources: [Survey] algorithms 4 and 5, after Datta, Gradinariu, Raynal and Simon, IPDPS 2003,
with corrections.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ccbps.arrays import Randomness
from ccbps.checks import Printable, octets, whole
from ccbps.errors import ParameterError, RefusedError

ID_BYTES: Final = 16
MOST_WAITING: Final = 1 << 12
"""Largest number of messages that wait at a node. It drops further messages of others, and refuses
its own."""
MOST_KNOWN: Final = 1 << 16
"""Number of messages that a node remembers. An older one that is repeated would count as new."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The message of a node that acts, or a dummy.

    Attributes:
        value: new value of the node, modulo 3.
        id: 16 random bytes that name the message; empty for a dummy, which neighbours drop.
        content: bytes, of one length for all cells.
    """

    value: int
    id: bytes
    content: bytes


class CellPort(Protocol):
    """A node's way out: `ccbps.overlay.links.Port`, or connections."""

    def send(self, receiver: str, message: Cell) -> None:
        """Send a cell to a neighbour."""


class LayerNode(Printable):
    """A node of a layer.

    Args:
        number: identifier, above those of all earlier nodes.
        value: value at the start, modulo 3 (`joining_value`).
        views: values of the neighbours at the start, by name; None for a neighbour that is joining.
        numbers: identifiers of the neighbours, by name.
        cell_bytes: length of contents.
        deliver: function that takes the content of each message that is new here.
        randomness: source of uniform bytes.

    Attributes:
        acts: number of times that the node acted.
        dropped: number of messages that found no room, and of neighbours that broke the rules, by
            "full" or "forgotten".
    """

    def __init__(
        self,
        number: int,
        value: int,
        views: Mapping[str, int | None],
        numbers: Mapping[str, int],
        *,
        cell_bytes: int,
        deliver: Callable[[bytes], None],
        randomness: Randomness = os.urandom,
    ) -> None:
        self.number, self.value = whole("number", number, 0), whole("value", value, 0, 2)
        self.views, self.numbers = dict(views), dict(numbers)
        self.cell_bytes = whole("cell_bytes", cell_bytes, 1)
        self._deliver, self._randomness = deliver, randomness
        self._queue: deque[tuple[bytes, bytes]] = deque()
        self._known: dict[bytes, None] = {}  # the oldest first
        self.port: CellPort | None = None
        self.acts, self.dropped = 0, Counter[str]()

    def __repr__(self) -> str:
        return f"<LayerNode {self.number}: value {self.value}, {self.acts} acts>"

    def say(self, content: bytes) -> None:
        """Put a message of the node's own into its queue; it goes out when the node acts.

        Args:
            content: encrypted bytes, exactly as long as a cell's content.

        Raises:
            RefusedError: too many messages wait.
        """
        content = octets("content", content, self.cell_bytes)
        if len(self._queue) >= MOST_WAITING:
            raise RefusedError("too many messages wait at this node", reason="queue")
        self._take(self._randomness(ID_BYTES), content)

    def receive(self, sender: str, cell: Cell) -> None:
        """Take a cell from a neighbour: deliver and queue what is new, and act if possible.

        A neighbour whose cell is malformed, or that acted before its turn, is forgotten.
        """
        if sender not in self.views:
            return
        view = self.views[sender]
        sizes = len(cell.id), len(cell.content)
        if (
            view is None
            or cell.value != (view + 1) % 3
            or self._points_here(sender)
            or sizes not in ((0, self.cell_bytes), (ID_BYTES, self.cell_bytes))
        ):
            self.dropped["forgotten"] += 1
            self.drop_neighbour(sender)
        else:
            self.views[sender] = cell.value
            if cell.id and cell.id not in self._known:
                self._take(cell.id, cell.content)
                self._deliver(cell.content)
        self.act()

    def act(self) -> bool:
        """Send a cell if all links point to this node; tell whether it did."""
        if not self.views or not all(map(self._points_here, self.views)):
            return False
        self.value = (self.value + 1) % 3
        self.acts += 1
        dummy = b"", bytes(self.cell_bytes)
        name, content = self._queue.popleft() if self._queue else dummy
        assert self.port is not None
        for neighbour in self.views:
            self.port.send(neighbour, Cell(self.value, name, content))
        return True

    def add_neighbour(self, name: str, number: int, value: int | None = None) -> None:
        """Take a node that joins as a neighbour.

        Call this twice: before this node's own value is told to the newcomer, and with the
        newcomer's value once that is known. In between, this node does not act.
        """
        self.views[name], self.numbers[name] = value, number

    def drop_neighbour(self, name: str) -> None:
        """Forget a neighbour that crashed; then act if all other links point here."""
        self.views.pop(name, None)
        self.numbers.pop(name, None)

    def _points_here(self, name: str) -> bool:
        """Tell whether a neighbour's link points to this node, by the last value heard."""
        value = self.views[name]
        return value == (self.value + 1) % 3 or (
            value == self.value and self.number < self.numbers[name]
        )

    def _take(self, name: bytes, content: bytes) -> None:
        self._known[name] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        if len(self._queue) < MOST_WAITING:
            self._queue.append((name, content))
        else:
            self.dropped["full"] += 1


def joining_value(values: Iterable[int]) -> int:
    """Return the value of a node that joins, from those of neighbours that are mutually linked.

    Raises:
        ParameterError: there are three values, which neighbours never have at one time, or none.
    """
    distinct = sorted(set(values))
    if len(distinct) == 1:
        return (distinct[0] + 1) % 3
    if len(distinct) == 2:
        low, high = distinct if distinct != [0, 2] else (2, 0)
        assert high == (low + 1) % 3
        return high
    raise ParameterError(f"neighbours must have one value or two, got {distinct}: take others")
