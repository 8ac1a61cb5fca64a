"""Circuits through relays over simulated links: what links show, and what changed cells do."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.errors import (
    KeyMismatchError,
    NetworkError,
    ParameterError,
    RefusedError,
    SerializationError,
)
from ccbps.overlay import Circuit, Links, Relay, RelayKey, cookie_of, draw_path
from ccbps.overlay.onion.cells import CELL_BYTES, DATA_BYTES, Command
from ccbps.overlay.onion.relay import WINDOW
from tests.support.effort import examples
from tests.support.refusals import refused

Change = Callable[[str, str, bytes], list[bytes]]
NAMES = ["a", "b", "c", "d", "e"]
KEYS = {name: RelayKey.generate() for name in NAMES}


class Echo:
    """End of a circuit that sends back what it gets."""

    def __init__(self, target: bytes, stream: Any) -> None:
        if target == b"nowhere":
            raise RefusedError("not here", reason="revoked")
        self.stream, self.got, self.closed, self.credits = stream, b"", False, 0
        stream.ready()

    def receive(self, data: bytes) -> None:
        self.got += data
        self.stream.send(data)

    def credit(self, count: int, visitor: bytes) -> None:
        self.credits += count

    def close(self) -> None:
        self.closed = True


class World:
    """Relays that are all linked to one another, and clients at the first one.

    Args:
        change: gives the cells that arrive in place of one, by sender and receiver.
    """

    def __init__(self, change: Change | None = None) -> None:
        pairs = [(x, y) for x in NAMES for y in NAMES if x < y]
        self.links, self.change = Links(pairs, delay=(0.1, 3), seed=3), change
        self.seen: dict[tuple[str, str], list[bytes]] = {}
        self.ends: list[Echo] = []
        self.relays: dict[str, Relay] = {}
        for name in NAMES:
            relay = Relay(KEYS[name], self.way_from(name), leave=self.leave, rendezvous=True)
            self.relays[name] = relay
            self.links.attach(name, relay)

    def leave(self, target: bytes, stream: Any) -> Echo:
        self.ends.append(Echo(target, stream))
        return self.ends[-1]

    def way_from(self, sender: str) -> Callable[[str, bytes], None]:
        def send(receiver: str, cell: bytes) -> None:
            for part in self.change(sender, receiver, cell) if self.change else [cell]:
                self.links.send(sender, receiver, part)
                self.seen.setdefault((sender, receiver), []).append(part)

        return send

    def client(self, name: str, path: str) -> tuple[Circuit, list[tuple[str, bytes]]]:
        """A client with a circuit that is built, and what it hears of it."""
        heard: list[tuple[str, bytes]] = []
        self.links.link(name, path[0])
        hops = [(hop, KEYS[hop].public) for hop in path]
        way = self.way_from(name)
        circuit = Circuit(hops, lambda cell: way(path[0], cell), lambda *said: heard.append(said))

        class Node:
            def receive(self, sender: str, message: bytes) -> None:
                circuit.receive(message)

        self.links.attach(name, Node())
        self.links.run()
        return circuit, heard


def data_of(heard: list[tuple[str, bytes]]) -> bytes:
    return b"".join(data for event, data in heard if event == "data")


@pytest.mark.parametrize("path", ["a", "abc", "bdace"])
def test_data_goes_there_and_back_and_links_have_no_block_in_common(path: str) -> None:
    world, content = World(), os.urandom(2000)
    circuit, heard = world.client("alice", path)
    circuit.begin(b"target")
    circuit.send(content)
    circuit.send(content)  # twice: equal plaintexts show nowhere
    circuit.credit(7)
    world.links.run()
    assert (heard[0], heard[1], data_of(heard)) == (("built", b""), ("ready", b""), 2 * content)
    assert (world.ends[0].got, world.ends[0].credits) == (2 * content, 7)
    k = len(path)
    assert len(world.seen["alice", path[0]]) == k + 1 + 10 + 1
    circuit.close()
    world.links.run()
    assert heard[-1] == ("closed", b"")
    assert world.ends[0].closed
    assert [relay.circuits for relay in world.relays.values()] == [0] * 5
    assert all(not relay.dropped for relay in world.relays.values())
    # Every cell has one size, and identifiers are those of one link only.
    assert len(world.seen) == 2 * k
    cells = [(way, cell) for way, cells in world.seen.items() for cell in cells]
    assert {len(cell) for _, cell in cells} == {CELL_BYTES}
    ids = {frozenset(way): cell[:4] for way, cell in cells if any(cell[:4])}
    assert len({*ids.values()}) == k
    # No 16 bytes of a cell, at whatever place, are in another cell of any link.
    places: dict[bytes, int] = {}
    for number, (_, cell) in enumerate(cells):
        for at in range(4, CELL_BYTES - 15):
            assert places.setdefault(cell[at : at + 16], number) == number
    # Telescoping: k (k + 1) messages build the circuit.
    assert sum(len(cells) for cells in world.seen.values()) == k * (k + 1) + k * (12 + 11) + k


@pytest.mark.parametrize(
    "where", [("alice", "a"), ("a", "b"), ("b", "c"), ("c", "b"), ("a", "alice")]
)
def test_a_tag_by_xor_is_refused_at_the_end_and_closes_the_circuit(where: tuple[str, str]) -> None:
    """CTR lets a tag through every relay on the way; the digest stops it at the end."""
    armed = []

    def change(sender: str, receiver: str, cell: bytes) -> list[bytes]:
        if armed and (sender, receiver) == where and any(cell[:4]):
            armed.clear()
            return [cell[:300] + bytes([cell[300] ^ 1]) + cell[301:]]
        return [cell]

    world = World(change)
    circuit, heard = world.client("alice", "abc")
    circuit.begin(b"target")
    circuit.send(b"first")
    world.links.run()
    armed.append(True)
    circuit.send(b"second")
    circuit.send(b"third")
    world.links.run()
    forward = where in (("alice", "a"), ("a", "b"), ("b", "c"))
    assert not armed
    assert world.ends[0].got == (b"first" if forward else b"firstsecondthird")
    assert data_of(heard) == b"first"
    assert heard[-1] == ("closed", b"")
    assert world.ends[0].closed
    assert (world.relays["c"].dropped["changed"], circuit.changed) == (forward, not forward)
    assert sum(relay.circuits for relay in world.relays.values()) == 0
    refused(NetworkError, "the circuit is closed", circuit.send, b"more")


@pytest.mark.parametrize("where", [("alice", "a"), ("b", "c")])
@pytest.mark.parametrize("attack", ["replay", "drop", "swap"])
def test_replays_and_gaps_are_refused(where: tuple[str, str], attack: str) -> None:
    armed: list[bytes] = []

    def change(sender: str, receiver: str, cell: bytes) -> list[bytes]:
        if (sender, receiver) != where or not armed or not any(cell[:4]):
            return [cell]
        if attack == "replay":
            armed.clear()
            return [cell, cell]
        if attack == "drop":
            armed.clear()
            return []
        armed.append(cell)
        if len(armed) < 3:
            return []
        swapped = [armed[2], armed[1]]
        armed.clear()
        return swapped

    world = World(change)
    circuit, heard = world.client("alice", "abc")
    circuit.begin(b"target")
    world.links.run()
    armed.append(b"")
    for part in (b"one ", b"two ", b"three "):
        circuit.send(part)
    world.links.run()
    assert world.ends[0].got == (b"one " if attack == "replay" else b"")
    assert heard[-1] == ("closed", b"")
    assert world.relays["c"].dropped["changed"] == 1


def test_foreign_and_malformed_cells_are_dropped_and_counted() -> None:
    world = World()
    circuit, heard = world.client("alice", "ab")
    first, relay = world.seen["alice", "a"][0], world.relays["a"]
    others = request_for("b")
    cells: list[Any] = [b"", first[:-1], first + b"\0", "text", None, bytearray(first)]
    for cell in cells:
        relay.receive("mallory", cell)
    low_order = b"\1\2\3\4" + bytes(CELL_BYTES - 4)
    for cell in (os.urandom(CELL_BYTES), low_order, bytes(CELL_BYTES), others):
        relay.receive("mallory", cell)
    # A cell that closes the circuit of another link is foreign.
    relay.receive("mallory", bytes(4) + circuit.id + bytes(CELL_BYTES - 8))
    assert relay.dropped == {"malformed": 6, "foreign": 5}
    assert relay.circuits == 1
    # A request that is repeated gives a circuit to which nobody has the keys.
    world.links.link("mallory", "a")
    world.links.attach("mallory", Echo.__new__(Echo))
    relay.receive("mallory", first)
    assert relay.circuits == 2
    relay.receive("mallory", world.seen["alice", "a"][1])
    assert relay.dropped["changed"] == 1
    circuit.begin(b"target")
    circuit.send(b"still here")
    # The mallory node never ran: its cells are not of interest.
    world.links.unlink("mallory", "a")
    world.links.run()
    assert data_of(heard) == b"still here"


def request_for(name: str) -> bytes:
    """A first cell for another relay."""
    cells: list[bytes] = []
    Circuit([(name, KEYS[name].public)], cells.append, lambda *_: None)
    return cells[0]


def test_a_relay_without_the_key_is_noticed() -> None:
    """A relay in the middle cannot stand for the next one."""
    world = World()
    heard: list[tuple[str, bytes]] = []
    sent: list[bytes] = []
    path = [("a", KEYS["a"].public), ("b", RelayKey.generate().public)]
    circuit = Circuit(path, sent.append, lambda *said: heard.append(said))

    class Node:
        def receive(self, sender: str, message: bytes) -> None:
            circuit.receive(message)

    world.links.link("alice", "a")
    world.links.attach("alice", Node())
    while sent:
        world.links.send("alice", "a", sent.pop(0))
        world.links.run()
    assert (circuit.state, heard) == ("building", [])
    assert world.relays["b"].dropped == {"foreign": 1}
    # An answer from anybody but the owner of the key closes the circuit.
    circuit.close()
    circuit = Circuit(path[:1], sent.append, lambda *said: heard.append(said))
    circuit.receive(circuit.id + os.urandom(CELL_BYTES - 4))
    assert (circuit.state, circuit.changed) == ("closed", 1)


def test_what_is_not_served_closes_the_circuit() -> None:
    world = World()
    world.relays["c"] = Relay(KEYS["c"], world.way_from("c"))
    world.links.attach("c", world.relays["c"])
    for name, path, ask in (
        ("u", "abc", lambda one: one.begin(b"target")),
        ("v", "abd", lambda one: one.begin(b"nowhere")),
        ("w", "abc", lambda one: one.offer(bytes(16))),
        ("x", "abd", lambda one: one.meet(bytes(16))),
        ("y", "abd", lambda one: one.send(b"before anything was asked for")),
    ):
        circuit, heard = world.client(name, path)
        ask(circuit)
        world.links.run()
        assert heard == [("built", b""), ("closed", b"")], name
    # A relay that nobody reaches, and a limit.
    heard = []
    world.links.unlink("a", "e")
    circuit, heard = world.client("z", "ae")
    assert heard == [("closed", b"")]
    small = Relay(KEYS["a"], lambda *_: None, most_circuits=1)
    for _ in range(2):
        small.receive("alice", request_for("a"))
    assert (small.circuits, small.dropped) == (1, {"full": 1})
    # One client does not take the circuits of all.
    small = Relay(KEYS["a"], lambda *_: None, most_of_link=2)
    for link in ("alice", "alice", "alice", "bob"):
        small.receive(link, request_for("a"))
    assert (small.circuits, small.dropped) == (3, {"full": 1})
    small.lose("alice")
    assert small.circuits == 1


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_nothing_that_a_client_asks_for_raises(draw: st.DataObject) -> None:
    """Any kinds of cells, with right digests, to any relay of the circuit."""
    world = World()
    circuit, _ = world.client("alice", "abc")
    layers, secrets = [*circuit._layers], [bytes(16), cookie_of(bytes(16))]
    for _ in range(draw.draw(st.integers(1, 6))):
        kind = draw.draw(st.sampled_from(Command))
        data = draw.draw(st.binary(max_size=60) | st.sampled_from(secrets))
        if circuit.state == "built":
            del circuit._layers[draw.draw(st.integers(1, 3)) :]
            circuit._write(kind, data)
            circuit._layers[:] = layers
        world.links.run()
    circuit.close()
    world.links.run()
    # Requests to go on to relays that there are not are closed; nothing else is left.
    assert sum(relay.circuits for relay in world.relays.values()) == 0
    assert all(end.closed for end in world.ends)


def test_a_link_that_ends_closes_its_circuits_on_both_sides() -> None:
    world = World()
    circuit, heard = world.client("alice", "abc")
    circuit.begin(b"target")
    world.links.run()
    world.links.unlink("a", "b")
    world.relays["a"].lose("b")
    world.relays["b"].lose("a")
    world.links.run()
    assert heard[-1] == ("closed", b"")
    assert world.ends[0].closed
    assert sum(relay.circuits for relay in world.relays.values()) == 0


def test_circuits_meet_at_a_rendezvous_and_neither_end_shows() -> None:
    world, secret = World(), os.urandom(16)
    alice, heard = world.client("alice", "abc")
    cookie = alice.offer(secret)
    world.links.run()
    assert heard[-1] == ("ready", b"")
    visitors = []
    for name, path in (("bob", "dec"), ("carol", "bac")):
        circuit, said = world.client(name, path)
        circuit.meet(cookie)
        circuit.send(name.encode() * 200)
        visitors.append((circuit, said))
    world.links.run()
    texts: dict[bytes, bytes] = {}
    for event, data in heard[2:]:
        assert event == "data"
        texts[data[:4]] = texts.get(data[:4], b"") + data[4:]
    assert sorted(texts.values()) == [b"bob" * 200, b"carol" * 200]
    for number, text in texts.items():
        alice.answer(number, b"hello " + text[:3])
    alice.answer(b"none", b"goes nowhere")
    world.links.run()
    assert [data_of(said) for _, said in visitors] == [b"hello bob", b"hello car"]
    # The rendezvous has links with relays only.
    assert {way[0] for way in world.seen if way[1] == "c"} == {"a", "b", "e"}
    # Nobody else takes the address: not while it is offered, nor with the cookie alone.
    thief, said = world.client("mallory", "bc")
    thief.offer(secret)
    world.links.run()
    assert said[-1] == ("closed", b"")
    thief, said = world.client("trudy", "bc")
    assert thief.offer(cookie) == cookie_of(cookie) != cookie
    visitors[0][0].close()
    alice.close()
    world.links.run()
    assert visitors[1][1][-1] == ("closed", b"")
    refused(ParameterError, "16 random bytes or more", alice.offer, b"short")


@pytest.mark.parametrize("credits", [False, True])
def test_a_rendezvous_passes_no_more_on_than_there_is_room_for(credits: bool) -> None:
    """A visitor that sends more than the offering client takes is closed, and no other one."""
    world, cells = World(), 2 * WINDOW + 40
    alice, heard = world.client("alice", "bc")
    cookie = alice.offer(os.urandom(16))
    (flood, said), (calm, other) = (world.client(name, "dc") for name in ("flood", "calm"))
    for circuit in (flood, calm):
        circuit.meet(cookie)
    calm.send(b"hello")
    world.links.run()
    calm_number = heard[-1][1][:4]
    for number in range(cells):
        flood.send(b"x")
        if credits and number % 100 == 99:
            world.links.run()
            (visitor,) = {data[:4] for _, data in heard[2:]} - {calm_number}
            alice.credit(100, visitor)
            world.links.run()
            assert said[-1] == ("credit", (100).to_bytes(2, "big"))
        if flood.state == "closed":
            break
    world.links.run()
    came = sum(data[4:] == b"x" for event, data in heard if event == "data")
    assert came == (cells if credits else WINDOW)
    assert (said[-1][0] == "closed") is not credits
    # The same in the other direction. A visitor's credit comes with its number.
    calm.send(b"again")
    calm.credit(7)  # nothing was sent to it, so nothing can be credited
    world.links.run()
    assert heard[-1] == ("data", calm_number + b"again")
    for _ in range(WINDOW):
        alice.answer(calm_number, b"y")
    world.links.run()
    if credits:
        calm.credit(WINDOW)
        world.links.run()
        assert heard[-1] == ("credit", calm_number + WINDOW.to_bytes(2, "big"))
    alice.answer(calm_number, b"z")
    world.links.run()
    assert data_of(other) == b"y" * WINDOW + b"z" * credits
    assert (other[-1][0] == "closed") is not credits
    assert alice.state == "built"


def test_many_visitors_do_not_fill_the_links_of_a_rendezvous(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ccbps.overlay.onion.relay.MOST_MET", 30)
    world = World()
    alice, heard = world.client("alice", "bc")
    cookie = alice.offer(os.urandom(16))
    visitors = [world.client(f"v{number}", "dc") for number in range(4)]
    for circuit, _ in visitors:
        circuit.meet(cookie)
        for _ in range(10):
            circuit.send(b"x")
        world.links.run()
    assert len(data_of(heard)) == 30 * 5
    assert [said[-1][0] for _, said in visitors] == ["ready"] * 3 + ["closed"]
    alice.credit(10, data_of(heard)[:4])
    world.links.run()
    visitors[0][0].send(b"y")
    world.links.run()
    assert heard[-1][1][4:] == b"y"


@pytest.mark.parametrize("path", ["ab", "abc", "bdace"])
def test_each_relay_can_count_those_after_it(path: str) -> None:
    """By the cells that build a circuit, before any data (docs/onions.md)."""
    world = World()
    world.client("alice", path)
    links = [*zip(["alice", *path], path, strict=False)]
    assert [len(world.seen[link]) for link in links] == [*range(len(path), 0, -1)]


def test_ends_that_collude_link_a_share_of_circuits() -> None:
    """The source's (m / N)^2 = .0625 is for circuits that may have a relay twice."""
    rng = np.random.default_rng(1)
    relays, runs = range(20), 20_000
    linked = 0
    for _ in range(runs):
        path = draw_path(relays, 3, rng.bytes)
        assert len({*path}) == 3
        linked += path[0] < 5 and path[-1] < 5
    assert linked / runs == pytest.approx(5 * 4 / (20 * 19), abs=0.006)
    assert linked / runs < 0.0625
    refused(ParameterError, "hops must be", draw_path, relays, 21)


def test_arguments_and_secrets() -> None:
    key = RelayKey.generate()
    public = key.public
    for path, error in (
        ([], ParameterError),
        ([("a", public), ("a", public)], ParameterError),
        ([("a" * DATA_BYTES, public)], ParameterError),
        ([("a", public[:-1])], ParameterError),
        ([("a", bytes(32))], KeyMismatchError),
    ):
        refused(error, "", Circuit, path, lambda _: None, lambda *_: None)
    circuit = Circuit([("a", public)], lambda _: None, lambda *_: None)
    refused(NetworkError, "the circuit is building", circuit.send, b"early")
    for thing in (key, circuit, Relay(key, lambda *_: None)):
        refused(SerializationError, "", pickle.dumps, thing)
        assert key.export_secret().hex() not in repr(thing)
