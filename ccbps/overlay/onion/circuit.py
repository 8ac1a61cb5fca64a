"""A client's circuit through relays, each of which knows its neighbours only.

A circuit is built relay by relay, like a telescope: the client agrees on keys with the first relay,
then through it with the second. That takes k (k + 1) messages for k relays, where an onion with all
requests would take 2k. But each relay answers with a fresh key, so a later theft of its static key
opens no old cells. Nor need a relay remember requests to refuse repeated ones: a repeated request
gives a circuit to which only the first sender's keys would fit.

The code does no input or output: `Circuit.receive` takes cells of the link to the first relay, and
functions take the cells and data that leave. A circuit serves one connection, or one address of a
rendezvous.

Leak: an adversary that watches both ends of a circuit, or owns its first and last relay, links them
by times and volumes. With m of N relays, it owns both in a share m (m - 1) / (N (N - 1)) of
circuits of distinct relays. Cells hide contents and routes only; nothing hides the use of circuits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from ccbps.arrays import Randomness
from ccbps.checks import octets, whole
from ccbps.errors import DecodeError, NetworkError, ParameterError
from ccbps.keys.secret import Confined
from ccbps.overlay.onion.cells import (
    ANSWER_BYTES,
    CELL_BYTES,
    CONTROL,
    DATA_BYTES,
    ID_BYTES,
    KEY_BYTES,
    REQUEST_BYTES,
    Command,
    Layer,
    Request,
    cell_of,
    shuffled,
)
from ccbps.overlay.onion.relay import COOKIE_BYTES, VISITOR_BYTES, cookie_of

T = TypeVar("T")
NAME_BYTES: Final = DATA_BYTES - REQUEST_BYTES
"""Largest number of bytes of a relay's name."""


def draw_path(relays: Sequence[T], hops: int, randomness: Randomness = os.urandom) -> list[T]:
    """Draw distinct relays for a circuit, in order, each path as likely as any other.

    Raises:
        ParameterError: there are fewer relays than hops.
    """
    hops = whole("hops", hops, 1, len(relays), hint="a path has distinct relays")
    return shuffled(relays, randomness, hops)


class Circuit(Confined):
    """A client's side of a circuit. It begins to build the circuit at once.

    Args:
        path: name and public key of each relay. Each name is that of a link of the previous relay.
        send: function that sends a cell to the first relay.
        notify: function that takes the name of an event, and data: "built", "ready" (the last relay
            serves the request), "data", "credit" (2 bytes, a number of cells; at a rendezvous a
            visitor's number before them) and, once, "closed".
        circuit: identifier on the first link, 4 bytes other than 0, unique on that link; None to
            draw one.
        randomness: source of uniform bytes.

    Attributes:
        id: identifier on the first link.
        state: "building", "built" or "closed".
        changed: number of cells with a wrong digest. The first one closes the circuit.

    Raises:
        ParameterError: the path is empty, has a relay twice, or a name is too long.
        KeyMismatchError: a public key is invalid.
    """

    def __init__(
        self,
        path: Sequence[tuple[str, bytes]],
        send: Callable[[bytes], None],
        notify: Callable[[str, bytes], None],
        *,
        circuit: bytes | None = None,
        randomness: Randomness = os.urandom,
    ) -> None:
        names = [name.encode() for name, _ in path]
        if not names or len({*names}) < len(names):
            raise ParameterError("path must have one relay or more, each once")
        if max(map(len, names)) > NAME_BYTES:
            raise ParameterError(f"the names of a path have at most {NAME_BYTES} bytes")
        self._names, self._random = names, randomness
        self._send, self._notify = send, notify
        self._requests = [Request(octets("path", key, KEY_BYTES), randomness) for _, key in path]
        self._layers: list[Layer] = []
        self.id = _fresh_id(randomness) if circuit is None else octets("circuit", circuit, ID_BYTES)
        self.state, self.changed = "building", 0
        send(cell_of(self.id, self._requests[0].content, randomness))

    def __repr__(self) -> str:
        return f"<Circuit of {len(self._names)} relays, {self.state}>"

    def receive(self, cell: bytes) -> None:
        """Take a cell of the first link. Cells of other circuits are ignored."""
        if self.state == "closed" or not isinstance(cell, bytes) or len(cell) != CELL_BYTES:
            return
        if cell[:ID_BYTES] == CONTROL and cell[ID_BYTES : 2 * ID_BYTES] == self.id:
            self._end()
        elif cell[:ID_BYTES] == self.id:
            self._read(cell[ID_BYTES:])

    def begin(self, target: bytes) -> None:
        """Ask the last relay to reach a target."""
        self._write(Command.BEGIN, target)

    def offer(self, secret: bytes) -> bytes:
        """Ask the last relay to be a rendezvous; return the cookie, by which others find it.

        Args:
            secret: 16 random bytes or more, which determine the cookie.
        """
        if len(octets("secret", secret)) < COOKIE_BYTES:
            raise ParameterError(f"secret must be {COOKIE_BYTES} random bytes or more")
        self._write(Command.OFFER, secret)
        return cookie_of(secret)

    def meet(self, cookie: bytes) -> None:
        """Ask the last relay to join this circuit to the one that is offered under a cookie."""
        self._write(Command.MEET, octets("cookie", cookie, COOKIE_BYTES))

    def send(self, data: bytes) -> None:
        """Send data, in as many cells as it takes."""
        for at in range(0, len(data), DATA_BYTES):
            self._write(Command.DATA, data[at : at + DATA_BYTES])

    def answer(self, visitor: bytes, data: bytes) -> None:
        """Send data to a visitor, by the number that its own data begins with."""
        step = DATA_BYTES - VISITOR_BYTES
        for at in range(0, len(data), step):
            self._write(Command.DATA, visitor + data[at : at + step])

    def credit(self, count: int, visitor: bytes = b"") -> None:
        """Tell the end that there is room for more cells, from a visitor of a rendezvous."""
        number = whole("count", count, 1, 0xFFFF).to_bytes(2, "big")
        self._write(Command.CREDIT, visitor + number)

    def close(self) -> None:
        """Close the circuit."""
        if self.state != "closed":
            with suppress(NetworkError):  # the link has ended, too
                self._send(cell_of(CONTROL, self.id, self._random))
            self._end()

    # -- cells --------------------------------------------------------------------------------

    def _write(self, kind: Command, data: bytes) -> None:
        """Send a cell to the last relay that has a layer."""
        if self.state == "closed" or (self.state == "building" and kind is not Command.EXTEND):
            raise NetworkError(f"the circuit is {self.state}: wait until it is built, or build one")
        if len(data) > DATA_BYTES:
            raise ParameterError(f"a cell has at most {DATA_BYTES} bytes, got {len(data)}")
        body = self._layers[-1].write(kind, data)
        for layer in reversed(self._layers[:-1]):
            body = layer.wrap(body)
        self._send(self.id + body)

    def _read(self, body: bytes) -> None:
        if not self._layers:
            self._add(body[:ANSWER_BYTES])
            return
        for layer in self._layers:
            body = layer.peel(body)
            content = layer.read(body)
            if content is not None:
                if layer is self._layers[-1]:
                    self._take(*content)
                    return
                break  # relays on the way never send cells
        self.changed += 1
        self.close()

    def _take(self, kind: Command, data: bytes) -> None:
        if kind is Command.EXTENDED and self.state == "building":
            self._add(data)
        elif kind in _EVENTS and self.state == "built":
            self._notify(_EVENTS[kind], data)
        else:
            self.close()

    def _add(self, answer: bytes) -> None:
        """Finish the exchange with the next relay, and begin the one after."""
        try:
            self._layers.append(self._requests[len(self._layers)].finish(answer))
        except DecodeError:
            self.changed += 1
            self.close()
            return
        done = len(self._layers)
        if done < len(self._names):
            self._write(Command.EXTEND, self._requests[done].content + self._names[done])
        else:
            self._requests.clear()
            self.state = "built"
            self._notify("built", b"")

    def _end(self) -> None:
        self.state = "closed"
        self._requests.clear()
        self._layers.clear()
        self._notify("closed", b"")


_EVENTS: Final = {Command.READY: "ready", Command.DATA: "data", Command.CREDIT: "credit"}


def _fresh_id(randomness: Randomness) -> bytes:
    circuit = CONTROL
    while circuit == CONTROL:
        circuit = randomness(ID_BYTES)
    return circuit
