"""Garlic: bulbs of one size, mixing, and how many senders a watcher of all links has left."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from ccbps.errors import ParameterError
from ccbps.overlay import Garlic, GarlicRelay, Links, RelayKey
from tests.support.refusals import refused

STAGES = ["abc", "def", "ghi"]
KEYS = {name: RelayKey.generate() for name in "abcdefghi"}
PUBLICS = {name: key.public for name, key in KEYS.items()}
SENDERS = 48


def garlic_of(cloves: int) -> Garlic:
    return Garlic(PUBLICS, cloves=cloves, hops=3, content_bytes=40)


class Watched:
    """Relays in three stages, and a watcher of all links who knows the rules.

    For each bulb the watcher has a probability of each sender. Bulbs that a relay sends have the
    mean of those that came in: the watcher cannot tell which clove left in which bulb.
    """

    def __init__(self, cloves: int, bulbs: int = 4) -> None:
        self.garlic = garlic_of(cloves)
        self.sizes: set[int] = set()
        self.heard: list[tuple[str, bytes]] = []
        self.entropies: list[float] = []
        self.bulbs = 0
        self.came: dict[str, list[Any]] = {name: [] for name in KEYS}
        self.guess: dict[bytes, Any] = {}
        self.relays = {
            name: GarlicRelay(
                self.garlic,
                key,
                partial(self.send, name),
                partial(self.deliver, name),
                lambda delay, action: action(),
                bulbs=bulbs,
            )
            for name, key in KEYS.items()
        }

    def mixed(self, name: str) -> Any:
        return np.mean(self.came[name], axis=0)

    def send(self, name: str, receiver: str, bulb: bytes) -> None:
        self.guess[bulb] = self.mixed(name)
        self.waiting.append((receiver, bulb))

    def deliver(self, name: str, topic: str, content: bytes) -> None:
        p = self.mixed(name)
        self.entropies.append(float(-(p[p > 0] * np.log2(p[p > 0])).sum()))
        self.heard.append((topic, content))

    def arrive(self, receiver: str, bulb: bytes, act: Callable[[], None]) -> None:
        """Let a relay act on a bulb; what it then sent was made of all that came before."""
        self.sizes.add(len(bulb))
        self.bulbs += 1
        self.came[receiver].append(self.guess[bulb])
        before = self.relays[receiver]._came
        act()
        if self.relays[receiver]._came <= before:
            self.came[receiver].clear()

    def run(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.waiting: list[tuple[str, bytes]] = []
        for sender in range(SENDERS):
            path = [stage[rng.integers(3)] for stage in STAGES]
            clove = self.garlic.clove(path, "topic", b"%d" % sender)
            bulb = self.garlic.bulb(path[0], [clove])
            self.guess[bulb] = np.eye(SENDERS)[sender]
            self.waiting.append((path[0], bulb))
        for stage in STAGES:
            waiting, self.waiting = self.waiting, []
            for receiver, bulb in waiting:
                act = partial(self.relays[receiver].receive, bulb)
                self.arrive(receiver, bulb, act)
            for name in stage:  # what is left when the time is up
                if self.came[name]:
                    self.relays[name].flush()
                    self.came[name].clear()


def test_larger_bulbs_leave_a_watcher_of_all_links_more_senders() -> None:
    """Entropy of the sender of a clove at the exit, in bits, of at most log2 48 = 5.6."""
    entropies, counts = {}, {}
    for cloves in (1, 2, 4):
        bits, bulbs = [], 0
        for seed in range(8):  # the order in which bulbs leave is left to chance
            watched = Watched(cloves)
            watched.run(seed)
            assert sorted(watched.heard) == sorted(("topic", b"%d" % n) for n in range(SENDERS))
            assert watched.sizes == {watched.garlic.bulb_bytes}
            bits += watched.entropies
            bulbs += watched.bulbs
        entropies[cloves], counts[cloves] = float(np.mean(bits)), bulbs
    assert entropies[1] + 0.1 < entropies[2]
    assert entropies[2] + 0.1 < entropies[4] < np.log2(SENDERS)
    # A relay that sends each bulb at once hides nobody.
    watched = Watched(1, bulbs=1)
    watched.run(0)
    assert max(watched.entropies) == 0
    # Fewer bulbs travel, but each is larger.
    assert counts[4] < counts[2] < counts[1]


def test_bulbs_over_links_keep_their_delays_and_share_no_block() -> None:
    garlic, heard = Garlic(PUBLICS, cloves=2, hops=2, content_bytes=40), []
    links = Links([("alice", "a"), ("a", "d"), ("a", "e")])
    seen: list[bytes] = []

    class Node:
        def __init__(self, name: str) -> None:
            self.port = links.attach(name, self)
            self.relay = GarlicRelay(
                garlic, KEYS[name], self.send, self.deliver, self.port.after, bulbs=1
            )

        def send(self, to: str, bulb: bytes) -> None:
            seen.append(bulb)
            self.port.send(to, bulb)

        def deliver(self, topic: str, content: bytes) -> None:
            heard.append((topic, content, self.port.time))

        def receive(self, sender: str, bulb: bytes) -> None:
            self.relay.receive(bulb)

    at = {name: Node(name) for name in "ade"}
    cloves = [
        garlic.clove("ad", "now", b"same"),
        garlic.clove("ae", "later", b"same", delays=[10, 0]),
    ]
    seen.append(garlic.bulb("a", cloves))
    links.attach("alice", at["a"])  # nothing is ever sent to alice
    links.send("alice", "a", seen[0])
    links.run()
    assert heard == [("now", b"same", 2.0)]
    at["a"].relay.flush()
    links.run()
    assert heard[1] == ("later", b"same", 12.0)
    # Each link has its bulb, all of one size, with no 16 bytes in common.
    assert len(seen) == 3
    places = {bulb[at : at + 16] for bulb in seen for at in range(len(bulb) - 15)}
    assert len(places) == 3 * (garlic.bulb_bytes - 15)
    assert at["d"].relay.dropped == at["e"].relay.dropped == {"dummy": 1}


def test_what_is_malformed_is_dropped_and_counted() -> None:
    garlic, heard = garlic_of(2), []
    relay = GarlicRelay(
        garlic,
        KEYS["a"],
        lambda *_: None,
        lambda *said: heard.append(said),
        lambda *_: None,
        bulbs=9,
    )
    good = garlic.bulb("a", [garlic.clove("adg", "topic", b"content")])
    bad: list[Any] = [b"", good[:-1], None, os.urandom(len(good)), bytes(len(good))]
    bad += [garlic.bulb("b", []), good[:-1] + bytes([good[-1] ^ 1])]
    for bulb in bad:
        relay.receive(bulb)
    assert relay.dropped == {"bulb": len(bad)}
    # Cloves for others are dummies here. A clove with one layer ends here.
    relay.receive(garlic.bulb("a", [garlic.clove("bdg", "topic", b""), os.urandom(100)]))
    assert relay.dropped["dummy"] == 2
    short = Garlic(PUBLICS, cloves=2, hops=1, content_bytes=40).clove("a", "topic", b"short")
    relay.receive(garlic.bulb("a", [short]))
    relay.flush()
    assert heard == [("topic", b"short")]


def test_nothing_is_opened_twice() -> None:
    """A bulb that is sent again, and a clove in another bulb, go nowhere."""
    garlic, heard = Garlic(PUBLICS, cloves=2, hops=1, content_bytes=40), []
    relay = GarlicRelay(
        garlic, KEYS["a"], print, lambda *said: heard.append(said), lambda *_: None, bulbs=1
    )
    clove = garlic.clove("a", "topic", b"content")
    bulb = garlic.bulb("a", [clove])
    for again in (bulb, bulb, garlic.bulb("a", [clove, clove])):
        relay.receive(again)
    assert heard == [("topic", b"content")]
    assert relay.dropped == {"bulb": 1, "dummy": 3}


def test_a_clove_costs_a_relay_one_power_whatever_its_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of dummies too, which anybody can send."""
    garlic, powers = Garlic(PUBLICS, cloves=4, hops=9, content_bytes=40), []
    relay = GarlicRelay(garlic, KEYS["a"], print, print, lambda *_: None, bulbs=9)
    bulb = garlic.bulb("a", [])
    agree = RelayKey.agree

    def counted(key: RelayKey, public: bytes) -> bytes:
        powers.append(public)
        return agree(key, public)

    monkeypatch.setattr(RelayKey, "agree", counted)
    relay.receive(bulb)
    assert (len(powers), relay.dropped) == (1 + 4, {"dummy": 4})


def test_a_relay_keeps_a_bounded_number_of_cloves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those with a delay, which any client can ask for."""
    monkeypatch.setattr("ccbps.overlay.onion.garlic.MOST_KEPT", 3)
    garlic = Garlic(PUBLICS, cloves=2, hops=1, content_bytes=40)
    links, heard = Links([("a", "b")]), list[tuple[str, bytes]]()
    relay = GarlicRelay(
        garlic, KEYS["a"], print, lambda *said: heard.append(said), links.after, bulbs=99
    )
    for delay in (9, 0):
        cloves = [garlic.clove("a", "topic", b"content", [delay]) for _ in range(2)]
        relay.receive(garlic.bulb("a", cloves))
    assert relay.dropped == {"full": 1}
    links.run()
    relay.flush()
    assert len(heard) == 3


@pytest.mark.parametrize(
    ("path", "topic", "content", "delays"),
    [
        ("ad", "topic", b"", []),
        ("add", "topic", b"", []),
        ("adz", "topic", b"", []),
        ("adg", "t" * 49, b"", []),
        ("adg", "", b"", []),
        ("adg", "topic", bytes(41), []),
        ("adg", "topic", b"", [1]),
        ("adg", "topic", b"", [1, 2, -1]),
    ],
)
def test_arguments(path: str, topic: str, content: bytes, delays: list[int]) -> None:
    refused(ParameterError, "", garlic_of(1).clove, path, topic, content, delays)
    refused(ParameterError, "at most 1 cloves", garlic_of(1).bulb, "a", [b"", b""])
