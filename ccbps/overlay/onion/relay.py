"""A relay of circuits: it knows the link before it and the link after it, and nothing else.

The code does no input or output. `Relay.receive` takes the cells of all links, and a function sends
cells. A first cell for an identifier that is new on its link asks for a circuit; the digest in it
shows that its sender knew this relay's key. Cells that are malformed, belong to no circuit or were
changed are dropped and counted, and raise no error. Only the relay at the end of a circuit detects
a changed cell, and ends the circuit. CTR is malleable, so relays before it cannot.

The relay at the end serves the circuit in one of these ways, once:

- BEGIN: it hands the data to an exit, which may connect to a server.
- OFFER: it keeps the circuit under an address, a cookie of 16 bytes, which is a hash of a secret
  that the client shows. So others cannot take the address over when the circuit has ended.
- MEET: it joins the circuit to the one that was offered under a cookie. The offering client gets
  each visitor's number, 4 bytes, before its data, and answers by number.

A rendezvous reads the data that it passes on: encrypt them. It does not know either client. Without
credit from the receiver it passes on at most `WINDOW` cells from one client to another, and
`MOST_MET` from all visitors together, and closes the visitor's circuit if there are more. So
visitors do not fill the queues of links. Credit goes with the visitor's number between the
rendezvous and the offering client.

Hazard: a client may build circuits that pass the same relays many times. Each pass costs a relay as
much as a cell costs the client.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Protocol

from ccbps.arrays import Randomness
from ccbps.checks import Printable, flag, instance, whole
from ccbps.errors import CcbpsError, DecodeError
from ccbps.keys.secret import Confined
from ccbps.overlay.onion.cells import (
    ANSWER_BYTES,
    CELL_BYTES,
    CONTROL,
    DATA_BYTES,
    ID_BYTES,
    REQUEST_BYTES,
    Command,
    Layer,
    RelayKey,
    cell_of,
)

WINDOW: Final = 256
"""Cells of data of a circuit that are on their way in one direction."""
MOST_MET: Final = 16 * WINDOW
"""Cells of data of all visitors of an offered circuit that are on their way to its client."""
COOKIE_BYTES: Final = 16
VISITOR_BYTES: Final = 4
OFFERING: Final = "offering client"
VISITOR: Final = "visitor"


def cookie_of(secret: bytes) -> bytes:
    """Return the cookie, 16 bytes, under which the owner of a secret can be met."""
    return sha256(b"ccbps 1 rendezvous\0" + secret).digest()[:COOKIE_BYTES]


class End(Protocol):
    """The code that serves a circuit at its last relay."""

    def receive(self, data: bytes) -> None:
        """Take data of the client."""

    def credit(self, count: int, visitor: bytes) -> None:
        """Take note that the client has room for more cells, from a visitor of a rendezvous."""

    def close(self) -> None:
        """End, since the circuit has ended."""


class Stream(Printable):
    """The way back to the client, for the end of a circuit."""

    def __init__(self, relay: Relay, place: _Place) -> None:
        self._relay, self._place = relay, place

    def __repr__(self) -> str:
        return "<Stream>"

    def ready(self) -> None:
        """Tell the client that it may send."""
        self._relay._answer(self._place, Command.READY, b"")

    def send(self, data: bytes) -> None:
        """Send data, in as many cells as it takes."""
        for at in range(0, len(data), DATA_BYTES):
            self._relay._answer(self._place, Command.DATA, data[at : at + DATA_BYTES])

    def credit(self, count: int, visitor: bytes = b"") -> None:
        """Tell the client that there is room for more cells, to a visitor of a rendezvous."""
        self._relay._answer(self._place, Command.CREDIT, visitor + count.to_bytes(2, "big"))

    def close(self) -> None:
        """Close the circuit."""
        self._relay._close(self._place)


Exit = Callable[[bytes, Stream], End]
"""Function that takes a target, such as an address, and the way back. It returns the end, or raises
a `CcbpsError` to refuse the target. The end calls `Stream.ready`."""


@dataclass(slots=True, eq=False, repr=False)
class _Place(Printable):
    """A circuit at this relay."""

    layer: Layer
    before: tuple[str, bytes]
    after: tuple[str, bytes] | None = None
    waits: bool = False  # for the answer of the relay after it
    end: End | None = None


class Relay(Confined):
    """A relay.

    Args:
        key: static key.
        send: function that sends a cell over a link, by the link's name. A `CcbpsError` that it
            raises ends the circuit.
        leave: exit for circuits that end here; None to serve no targets.
        rendezvous: True to let circuits meet here.
        most_circuits: largest number of circuits at a time. Further requests are dropped.
        most_of_link: largest number of circuits that come over one link, so no client takes all.
        randomness: source of uniform bytes.

    Attributes:
        dropped: number of cells that were dropped, by cause: "malformed", "foreign", "changed",
            "full".

    Example:
        >>> from ccbps.overlay import Circuit, Links, Relay, RelayKey
        >>> links = Links([("alice", "entry"), ("entry", "exit")])
        >>> class Echo:
        ...     def __init__(self, target, stream):
        ...         self.stream = stream
        ...         stream.ready()
        ...     def receive(self, data):
        ...         self.stream.send(data.upper())
        ...     def credit(self, count, visitor): ...
        ...     def close(self): ...
        >>> keys, relays = {}, {}
        >>> for name in ("entry", "exit"):
        ...     keys[name] = RelayKey.generate()
        ...     send = lambda to, cell, name=name: links.send(name, to, cell)
        ...     relays[name] = Relay(keys[name], send, leave=Echo)
        ...     port = links.attach(name, relays[name])
        >>> heard = []
        >>> path = [(name, key.public) for name, key in keys.items()]
        >>> circuit = Circuit(path, lambda cell: links.send("alice", "entry", cell),
        ...                   lambda what, data: heard.append((what, data)))
        >>> class Client:
        ...     def receive(self, sender, cell):
        ...         circuit.receive(cell)
        >>> port, end = links.attach("alice", Client()), links.run()
        >>> circuit.begin(b"a server"); end = links.run()
        >>> circuit.send(b"hello"); end = links.run()
        >>> heard
        [('built', b''), ('ready', b''), ('data', b'HELLO')]
    """

    def __init__(
        self,
        key: RelayKey,
        send: Callable[[str, bytes], None],
        *,
        leave: Exit | None = None,
        rendezvous: bool = False,
        most_circuits: int = 1 << 16,
        most_of_link: int = 1 << 12,
        randomness: Randomness = os.urandom,
    ) -> None:
        self._key, self._send, self._leave = instance("key", key, RelayKey), send, leave
        self._rendezvous = flag("rendezvous", rendezvous)
        self._most, self._random = whole("most_circuits", most_circuits, 1), randomness
        self._places: dict[tuple[str, bytes], _Place] = {}
        self._offers: dict[bytes, _Offer] = {}
        self._most_of_link = whole("most_of_link", most_of_link, 1)
        self._by_link: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<Relay: {self.circuits} circuits>"

    @property
    def circuits(self) -> int:
        """Number of circuits."""
        return self._by_link.total()

    def receive(self, link: str, cell: bytes) -> None:
        """Take a cell. No content of it raises an error."""
        if not isinstance(cell, bytes) or len(cell) != CELL_BYTES:
            self.dropped["malformed"] += 1
            return
        circuit, body = cell[:ID_BYTES], cell[ID_BYTES:]
        if circuit == CONTROL:
            place = self._places.get((link, body[:ID_BYTES]))
            if place is None:
                self.dropped["foreign"] += 1
            else:
                self._close(place, told=(link, body[:ID_BYTES]))
            return
        place = self._places.get((link, circuit))
        if place is None:
            self._create(link, circuit, body)
        elif place.before == (link, circuit):
            self._forward(place, body)
        else:
            self._backward(place, body)

    def lose(self, link: str) -> None:
        """Close all circuits over a link that has ended."""
        for way, place in [*self._places.items()]:
            if way[0] == link:
                self._close(place, told=way)

    # -- cells on their way -------------------------------------------------------------------

    def _create(self, link: str, circuit: bytes, body: bytes) -> None:
        if self._by_link[link] >= self._most_of_link or self.circuits >= self._most:
            self.dropped["full"] += 1
            return
        try:
            answer, layer = self._key.accept(body[:REQUEST_BYTES], self._random)
        except DecodeError:
            self.dropped["foreign"] += 1
            return
        place = _Place(layer, (link, circuit))
        self._places[place.before] = place
        self._by_link[link] += 1
        self._pass_on(place, place.before, cell_of(circuit, answer, self._random))

    def _forward(self, place: _Place, body: bytes) -> None:
        body = place.layer.peel(body)
        content = place.layer.read(body)
        if content is not None:
            self._obey(place, *content)
        elif place.after is not None:
            self._pass_on(place, place.after, place.after[1] + body)
        else:
            self.dropped["changed"] += 1
            self._close(place)

    def _backward(self, place: _Place, body: bytes) -> None:
        if place.waits:
            place.waits = False
            self._answer(place, Command.EXTENDED, body[:ANSWER_BYTES])
        else:
            self._pass_on(place, place.before, place.before[1] + place.layer.wrap(body))

    def _answer(self, place: _Place, kind: Command, data: bytes) -> None:
        if place.before in self._places:
            body = place.layer.write(kind, data)
            self._pass_on(place, place.before, place.before[1] + body)

    def _pass_on(self, place: _Place, way: tuple[str, bytes], cell: bytes) -> None:
        try:
            self._send(way[0], cell)
        except CcbpsError:
            self._close(place, told=way)

    # -- requests of clients ------------------------------------------------------------------

    def _obey(self, place: _Place, kind: Command, data: bytes) -> None:
        try:
            if kind is Command.END or place.after is not None:  # an end is not in the middle
                self._close(place)
            elif place.end is None and kind is Command.EXTEND:
                self._extend(place, data)
            elif place.end is None:
                place.end = self._serve(place, kind, data)
                if place.before not in self._places:  # it was closed meanwhile
                    place.end.close()
            elif kind is Command.DATA:
                place.end.receive(data)
            elif kind is Command.CREDIT:
                place.end.credit(int.from_bytes(data[-2:], "big"), data[:-2])
            else:
                self._close(place)
        except CcbpsError:
            self._close(place)

    def _extend(self, place: _Place, data: bytes) -> None:
        name = data[REQUEST_BYTES:].decode("utf-8", "replace")
        circuit = self._random(ID_BYTES)
        while circuit == CONTROL or (name, circuit) in self._places:
            circuit = self._random(ID_BYTES)
        place.after, place.waits = (name, circuit), True
        self._places[place.after] = place
        self._pass_on(place, place.after, cell_of(circuit, data[:REQUEST_BYTES], self._random))

    def _serve(self, place: _Place, kind: Command, data: bytes) -> End:
        stream = Stream(self, place)
        if kind is Command.BEGIN and self._leave is not None:
            return self._leave(data, stream)
        if kind is Command.OFFER and self._rendezvous and cookie_of(data) not in self._offers:
            stream.ready()
            return _Offer(self._offers, cookie_of(data), stream)
        if kind is Command.MEET and self._rendezvous and data in self._offers:
            stream.ready()
            return _Visit(self._offers[data], stream)
        raise DecodeError("the request is not served here")

    def _close(self, place: _Place, told: tuple[str, bytes] | None = None) -> None:
        """Forget a circuit, and close it on those of its links that do not know."""
        if self._places.pop(place.before, None) is None:
            return
        link, _ = place.before
        self._by_link[link] -= 1
        if not self._by_link[link]:
            del self._by_link[link]
        ways = [place.before]
        if place.after is not None:
            self._places.pop(place.after, None)
            ways.append(place.after)
        for link, circuit in ways:
            if (link, circuit) != told:
                try:
                    self._send(link, cell_of(CONTROL, circuit, self._random))
                except CcbpsError:
                    continue  # that link has ended, too
        if place.end is not None:
            place.end.close()


@dataclass(slots=True)
class _Offer:
    """A circuit that visitors are joined to."""

    offers: dict[bytes, _Offer]
    cookie: bytes
    stream: Stream
    visits: dict[bytes, _Visit] = field(default_factory=dict)
    count: int = 0
    waiting: int = 0

    def __post_init__(self) -> None:
        self.offers[self.cookie] = self

    def receive(self, data: bytes) -> None:
        """Send data to the visitor whose number it begins with."""
        visit = self.visits.get(data[:VISITOR_BYTES])
        if visit is not None and visit.spend(VISITOR):
            visit.stream.send(data[VISITOR_BYTES:])
        elif visit is not None:
            visit.stream.close()

    def credit(self, count: int, visitor: bytes) -> None:
        """Pass credit on to a visitor."""
        self.waiting = max(self.waiting - count, 0)
        if (visit := self.visits.get(visitor)) is not None and visit.earn(OFFERING, count):
            visit.stream.credit(count)

    def close(self) -> None:
        """Close the circuits of all visitors."""
        self.offers.pop(self.cookie, None)
        for visit in [*self.visits.values()]:
            visit.stream.close()


class _Visit:
    """A circuit that is joined to an offered one."""

    def __init__(self, offer: _Offer, stream: Stream) -> None:
        self.offer, self.stream = offer, stream
        self.number = offer.count.to_bytes(VISITOR_BYTES, "big")
        self._room = {OFFERING: WINDOW, VISITOR: WINDOW}
        offer.count += 1
        offer.visits[self.number] = self

    def receive(self, data: bytes) -> None:
        """Send data to the offering client, behind the visitor's number."""
        if self.offer.waiting < MOST_MET and self.spend(OFFERING):
            self.offer.waiting += 1
            step = DATA_BYTES - VISITOR_BYTES
            for at in range(0, len(data), step):
                self.offer.stream.send(self.number + data[at : at + step])
        else:
            self.stream.close()

    def credit(self, count: int, visitor: bytes) -> None:
        """Pass credit on to the offering client."""
        if self.earn(VISITOR, count):
            self.offer.stream.credit(count, self.number)

    def close(self) -> None:
        """Leave."""
        self.offer.visits.pop(self.number, None)

    def spend(self, receiver: str) -> bool:
        """Take room for a cell to one of the two clients; tell whether there was any."""
        self._room[receiver] -= 1
        return self._room[receiver] >= 0

    def earn(self, receiver: str, count: int) -> bool:
        """Return room by a client's credit; tell whether that much can have been taken."""
        if not 0 < count <= WINDOW - self._room[receiver]:
            return False
        self._room[receiver] += count
        return True
