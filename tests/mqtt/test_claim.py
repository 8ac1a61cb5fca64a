"""One service at a server: claims with a lease, on a server that a test makes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import pytest

from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl, claim
from ccbps.mqtt.claim import CLAIM, Claim
from tests.support.broker_world import RoundWorld, World, refused

USERS = {name: f"password of {name}" for name in ("broker", "alice", "feed")}
WAIT = 60.0


class Retained:
    """A server with one topic, whose messages arrive at once."""

    def __init__(self) -> None:
        self.kept = b""
        self.readers: list[Callable[[bytes], None]] = []

    def send(self, topic: str, content: bytes, *, retain: bool = False, waits: bool = True) -> None:
        assert topic == CLAIM
        self.kept = content if retain else self.kept
        for read in [*self.readers]:
            read(content)

    def claim(self, numbering: bytes, on_lost: Callable[[], object] = lambda: None) -> Claim:
        made = Claim(self.send, numbering, on_lost)
        self.readers.append(made.arrived)
        if self.kept:
            made.arrived(self.kept)
        return made


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "LEASE_SECONDS", 0.3)


@pytest.fixture
def _long_leases(monkeypatch: pytest.MonkeyPatch, short_leases: None) -> None:
    """For tests in which a claim is renewed in time: ten times a second, also when it is late."""
    monkeypatch.setattr(claim, "LEASE_SECONDS", WAIT)
    monkeypatch.setattr(claim, "RENEWALS", 10 * WAIT)


@pytest.mark.usefixtures("_long_leases")
def test_a_second_service_with_another_file_does_not_start() -> None:
    """Both would answer, and clients would get each delivery twice."""
    world = World()
    with LocalServer(USERS) as server:
        at = {name: MqttUrl(server.url, name, password) for name, password in USERS.items()}
        with (
            MqttService(world.broker(), at["broker"]),
            MqttClient(at["alice"]) as alice,
            MqttClient(at["feed"]) as feed,
        ):
            alice.subscribe(world.wants("a", "price < 10"))
            with refused("claimed", "another service answers at this MQTT server"):
                MqttService(world.broker(), at["broker"]).start()
            for number in range(10):
                feed.publish(world.event(number, 3))
            assert [alice.receive(WAIT).number for _ in range(10)] == [*range(10)]
            with pytest.raises(TimeoutError):
                alice.receive(0.3)
        with MqttService(world.broker(), at["broker"]):
            pass  # the first one has ended


@pytest.mark.usefixtures("_long_leases")
def test_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    server, lost = Retained(), threading.Event()
    first = server.claim(b"numbers1", lost.set)
    first.acquire()
    with refused("claimed"):
        server.claim(b"numbers2").acquire()
    assert not lost.is_set()
    # It dies, and its lease ends; or it starts again with its file.
    first._ended.set()
    first._renewer.join()
    server.readers.clear()
    start = time.monotonic()
    again = server.claim(b"numbers1")
    again.acquire()
    assert time.monotonic() - start < WAIT / 2
    server.readers.clear()
    again._ended.set()
    again._renewer.join()
    kept = server.kept
    monkeypatch.setattr(claim, "LEASE_SECONDS", 0.3)
    other = server.claim(b"numbers2")
    other.acquire()
    assert server.kept not in (kept, b"")
    # What is no claim is ignored, a released one is gone.
    other.arrived(b"of a later version")
    other.release()
    assert server.kept == b""
    other.release()


def test_after_a_failure_of_the_network_one_service_goes_on() -> None:
    """No renewal waits for the connection, or goes out before the claim was read."""
    server, waiting = Retained(), list[tuple[bytes, bool]]()
    is_up, lost, others = True, threading.Event(), list[str]()

    def send(topic: str, content: bytes, *, retain: bool = False, waits: bool = True) -> None:
        if is_up:
            server.send(topic, content, retain=retain)
        elif waits:
            waiting.append((content, retain))

    first = Claim(send, b"numbers1", lost.set)
    server.readers.append(first.arrived)
    first.acquire()
    is_up = False
    server.readers.clear()
    other = server.claim(b"numbers2", lambda: others.append("lost"))
    other.acquire()
    assert waiting == []
    first.ask()  # as when its connection comes back
    is_up = True
    time.sleep(0.25)
    assert not others
    first.arrived(server.kept)
    assert lost.is_set()
    for content, retain in waiting:
        server.send(CLAIM, content, retain=retain)
    assert not others
    other.release()


def test_a_claim_that_is_not_held_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "WAIT_SECONDS", 0.05)
    server = Retained()
    monkeypatch.setattr(server, "readers", [])
    deaf = Claim(server.send, b"numbers1", lambda: None)
    server.readers.append(lambda content: deaf.arrived(content) if content[-1] == 0 else None)
    with pytest.raises(OSError, match="does not let the service read"):
        deaf.acquire()
    # Two that start at once: the later claim holds.
    server = Retained()
    first = server.claim(b"numbers1")
    taken = b"identity" + b"numbers2" + (1).to_bytes(8)
    server.readers.append(lambda content: first.arrived(taken) if content[-1] == 1 else None)
    with refused("claimed"):
        first.acquire()


def test_a_service_whose_claim_was_taken_ends() -> None:
    world, lost = World(), threading.Event()
    with LocalServer(USERS) as server:
        at = {name: MqttUrl(server.url, name, password) for name, password in USERS.items()}
        with MqttService(world.broker(), at["broker"], on_lost=lost.set) as service:
            taken = b"identity" + b"numbers9" + (1).to_bytes(8)
            service._connection.send(CLAIM, taken, retain=True)
            assert lost.wait(WAIT)
            service._worker.join(WAIT)
            assert not service._worker.is_alive()


def test_a_client_that_waits_is_told_that_it_was_revoked() -> None:
    """It need not ask, and does not wait for ever."""
    world = World()
    broker = world.broker()
    with LocalServer(USERS) as server:
        at = {name: MqttUrl(server.url, name, password) for name, password in USERS.items()}
        with MqttService(broker, at["broker"]), MqttClient(at["alice"]) as alice:
            alice.subscribe(world.wants("a", "price < 10"))
            threading.Timer(0.2, broker.revoke, ["alice"]).start()
            with refused("revoked", "alice was revoked"):
                alice.receive(WAIT)
            with refused("revoked"):
                alice.subscribe(world.wants("b", "price < 10"))
        # Away when it happened, it is told when it comes.
        with MqttService(broker, at["broker"]), MqttClient(at["alice"]) as alice:
            with refused("revoked"):
                alice.receive(WAIT)
            broker.admit("alice")
            alice.subscribe(world.wants("b", "price < 10"))


def test_a_client_is_warned_before_its_rounds_are_used_up() -> None:
    world, warnings = RoundWorld(), queue.SimpleQueue[str]()
    with LocalServer(USERS) as server:
        at = {name: MqttUrl(server.url, name, password) for name, password in USERS.items()}
        with (
            MqttService(world.broker(), at["broker"]),
            MqttClient(at["feed"]) as feed,
            MqttClient(at["alice"], on_warning=warnings.put) as alice,
        ):
            alice.subscribe(world.wants("alice/a", "price < 10"))
            for number in range(4):
                feed.publish(world.event(number, number, 20))
            assert "for rounds of feed up to 4 only: the next round is 4" in warnings.get(
                timeout=WAIT
            )
            feed.publish(world.event(4, 4, 20))
            assert "for no more rounds of feed" in warnings.get(timeout=WAIT)
            assert warnings.empty()
