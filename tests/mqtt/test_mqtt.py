"""The broker behind a real MQTT server: everything over TCP on this machine."""

from __future__ import annotations

import asyncio
import datetime
import io
import ipaddress
import math
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import paho.mqtt.client as paho
import pytest
from amqtt.adapters import ReaderAdapter
from amqtt.errors import ProtocolHandlerError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from paho.mqtt.enums import CallbackAPIVersion

from ccbps.broker import Delivery, MatchingBroker, Payloads, Publication, Quota, Receipt
from ccbps.delivery import GroupOpener, GroupSealer, SimpleCache, pack_groups
from ccbps.errors import CcbpsError, DecodeError, ParameterError, RefusedError, ReplayError
from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl, client, guests, service
from ccbps.mqtt.connection import Connection
from ccbps.mqtt.fair_queue import FairQueue, Request
from ccbps.mqtt.guests import Guests
from ccbps.mqtt.server import _PacedReader
from ccbps.mqtt.service import POSITION_BYTES, Answer, Outgoing, Position
from ccbps.records import write
from tests.support.broker_world import Clock, World, refused
from tests.support.mosquitto import MOSQUITTO, mosquitto

USERS = {name: f"password of {name}" for name in ("broker", "alice", "bob", "feed", "mallory")}
WAIT = 60.0
FORGED = bytes(8) + b"a"


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(USERS) as server:
        yield server


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def url(server: LocalServer | str, name: str, **options: Any) -> MqttUrl:
    return MqttUrl(server if isinstance(server, str) else server.url, name, USERS[name], **options)


def until(is_reached: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + WAIT
    while not is_reached():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def connected(
    server: LocalServer | str, broker: MatchingBroker, *names: str, **options: Any
) -> Iterator[Any]:
    """Clients at a broker behind the server."""
    with ExitStack() as stack:
        stack.enter_context(MqttService(broker, url(server, "broker", **options)))
        yield [stack.enter_context(MqttClient(url(server, name, **options))) for name in names]


@contextmanager
def strange_client(
    server: LocalServer, *, has_will: bool = False, **callbacks: Any
) -> Iterator[paho.Client]:
    """A client of the name mallory that keeps to no protocol."""
    mallory = paho.Client(CallbackAPIVersion.VERSION2, client_id="mallory")
    mallory.username_pw_set("mallory", USERS["mallory"])
    if has_will:
        mallory.will_set("ccbps/to/alice/unsubscribe", FORGED, qos=1)
    for name, callback in callbacks.items():
        setattr(mallory, name, callback)
    mallory.connect(*MqttUrl(server.url, "mallory").address)
    mallory.loop_start()
    try:
        yield mallory
    finally:
        mallory.disconnect()
        mallory.loop_stop()


def test_clients_get_what_matches_and_errors_come_back(server: LocalServer, world: World) -> None:
    broker = world.broker(quota=Quota(subscriptions=2))
    with connected(server, broker, "alice", "bob", "feed") as (alice, bob, feed):
        alice.subscribe(world.wants("cheap", "price < 10", "quotes"))
        bob.subscribe(world.wants("dear", "price > 5"))
        events = [world.event(n, price, "quotes") for n, price in enumerate([3, 7, 30])]
        for event in events:
            assert not feed.publish(event).again
        assert feed.publish(events[2]).again
        assert [alice.receive(WAIT).number for _ in range(2)] == [0, 1]
        found = [bob.receive(WAIT) for _ in range(2)]
        assert [(one.number, one.names, one.publisher) for one in found] == [
            (1, ("dear",), "feed"),
            (2, ("dear",), "feed"),
        ]
        with pytest.raises(ReplayError, match="something else"):
            feed.publish(world.event(2, 3))
        with pytest.raises(DecodeError, match="another master key"):
            alice.subscribe(World().wants("cheap", "price < 10"))
        alice.subscribe(world.wants("b", "price < 10"))
        with refused("subscriptions", "and may have 2 of"):
            alice.subscribe(world.wants("c", "price < 10"))
        alice.unsubscribe("b")
        with pytest.raises(ParameterError, match="no subscription 'b'"):
            alice.unsubscribe("b")
        broker.revoke("alice")
        with refused("revoked", "alice was revoked"):
            alice.subscribe(world.wants("c", "price < 10"))
        feed.publish(world.event(3, 7, "quotes"))
        assert bob.receive(WAIT).number == 3
        with pytest.raises(TimeoutError, match="nothing for bob"):
            bob.receive(0.2)
    # What was acknowledged is gone.
    assert broker.take("bob") == []


def test_payloads_are_sealed_for_those_who_match(server: LocalServer, world: World) -> None:
    sealer = GroupSealer(SimpleCache(2, capacity=9))
    openers = [GroupOpener(sealer.join(n), capacity=9) for n in range(2)]
    with connected(server, world.broker(), "alice", "bob", "feed") as (alice, bob, feed):
        alice.subscribe(world.wants("a", "price < 10"))
        bob.subscribe(world.wants("a", "price < 20"))
        clients = feed.publish(world.bare(0, 5)).clients
        assert clients == ("alice", "bob")
        sealed = sealer.seal(b"for both", 0, pack_groups(np.array([True, True])))
        messages = {name: sealed.for_subscriber(n) for n, name in enumerate(clients)}
        first, *others = messages
        feed.deliver(Payloads(0, {first: messages[first]}))
        feed.deliver(Payloads(0, {name: messages[name] for name in others}, last=True))
        feed.deliver(Payloads(0, messages))  # again, which does nothing
        got = [openers[n].open(one.receive(WAIT).payload) for n, one in enumerate((alice, bob))]
        assert got == [b"for both"] * 2


def test_a_broker_and_clients_that_restart_lose_nothing(
    server: LocalServer, world: World, tmp_path: Path
) -> None:
    path = tmp_path / "broker.db"
    broker = world.broker(path=path)
    with connected(server, broker, "bob", "feed") as (bob, feed):
        bob.subscribe(world.wants("all", "price < 31"))
        for number in range(5):
            feed.publish(world.event(number, 3))
        assert [bob.receive(WAIT).number for _ in range(2)] == [0, 1]
    broker.close()
    broker = world.broker(path=path)
    with MqttService(broker, url(server, "broker")):
        with MqttClient(url(server, "feed")) as feed:
            feed.publish(world.event(5, 3))
        with MqttClient(url(server, "bob")) as bob:
            assert [bob.receive(WAIT).number for _ in range(4)] == [2, 3, 4, 5]
    broker.close()


@pytest.mark.slow
def test_lost_messages_come_again(
    server: LocalServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of the broker's messages are lost on their way."""
    broker = world.broker()
    send, chance = Connection.send, Random(7)

    def losing(self: Connection, topic: str, content: bytes, **options: bool) -> None:
        if "/for/" not in topic or chance.random() > 1 / 3:
            send(self, topic, content, **options)

    monkeypatch.setattr(Connection, "send", losing)
    for name in ("PATIENCE", "WAIT_SECONDS"):
        monkeypatch.setattr(client, name, 0.1)
    monkeypatch.setattr(service, "REWIND_SECONDS", 0.05)
    with connected(server, broker, "alice", "feed") as (alice, feed):
        alice.subscribe(world.wants("a", "price < 10"))
        for number in range(12):
            feed.publish(world.event(number, 3))
        assert [alice.receive(WAIT).number for _ in range(12)] == [*range(12)]


def test_deliveries_come_without_being_asked_for(
    server: LocalServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 100 * WAIT)
    with connected(server, world.broker(), "alice", "feed") as (alice, feed):
        alice.subscribe(world.wants("a", "price < 10"))
        for number in range(5):
            feed.publish(world.event(number, 3))
            assert alice.receive(WAIT).number == number


def test_a_hello_that_crosses_the_one_before_is_answered(
    server: LocalServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes to the door alone: the server had not subscribed the service when it was sent."""
    position, clock = Position().to_bytes(), Clock()
    with MqttService(world.broker(), url(server, "broker")) as listening:
        listening._guests._clock = clock
        took: list[bytes] = []
        monkeypatch.setattr(
            listening._requests, "put", lambda request: took.append(request.content[:8])
        )
        listening._guests.let_in("alice")
        listening._guests.confirm("alice")
        listening._knocked("ccbps/to/alice/resume", bytes([1] * 8) + position)
        clock.now += guests.NEW_SECONDS
        # By now it comes by the service's own subscription as well.
        listening._knocked("ccbps/to/alice/resume", bytes([2] * 8) + position)
        assert took == [bytes([1] * 8)]


def test_requests_wait_for_a_broker_that_is_away(server: LocalServer, world: World) -> None:
    broker = world.broker()
    with MqttClient(url(server, "feed")) as feed:
        receipts = [feed.publish_later(world.event(n, 3)) for n in range(3)]
        with MqttService(broker, url(server, "broker")):
            assert [one.result(WAIT).number for one in receipts] == [0, 1, 2]
        receipt = feed.publish_later(world.event(3, 3))
        with MqttService(broker, url(server, "broker")):
            assert not receipt.result(WAIT).again


def test_the_server_lets_clients_speak_for_themselves_only(
    server: LocalServer, world: World
) -> None:
    with pytest.raises(OSError, match="refuses mallory"):
        MqttClient(MqttUrl(server.url, "mallory", "wrong")).start()
    broker = world.broker()
    with connected(server, broker, "alice", "feed") as (alice, feed):
        alice.subscribe(world.wants("a", "price < 10"))
        overheard: list[str] = []

        def overhear(_: object, __: object, message: Any) -> None:
            overheard.append(message.topic)

        with strange_client(server, on_message=overhear) as mallory:
            mallory.subscribe([("ccbps/for/alice/#", 1), ("ccbps/to/alice/#", 1), ("#", 1)])
            mallory.publish("ccbps/to/alice/unsubscribe", FORGED, qos=1)
            feed.publish(world.event(0, 3))
            assert alice.receive(WAIT).number == 0
            time.sleep(0.3)
        assert broker.subscriptions("alice") == ["a"]
        assert {*overheard} <= {"ccbps/up"}


def test_last_wills_are_not_let_in(server: LocalServer) -> None:
    """They would be published without a look at whose topic they are for."""
    turned_away = threading.Event()

    def connected(*arguments: Any) -> None:
        if arguments[3].is_failure:
            turned_away.set()

    with strange_client(server, has_will=True, on_connect=connected):
        assert turned_away.wait(WAIT)


def test_connections_cannot_be_guessed_and_a_client_may_have_two(
    server: LocalServer, world: World
) -> None:
    """Nobody takes a connection's place by its identifier; answers go to who asked."""
    broker = world.broker()
    with connected(server, broker, "alice", "alice", "feed") as (first, second, feed):
        assert first._connection._paho._client_id != second._connection._paho._client_id
        assert abs(next(first._numbers) - next(second._numbers)) > 1000
        first.subscribe(world.wants("a", "price < 10"))
        with pytest.raises(ParameterError, match="no subscription 'b'"):
            second.unsubscribe("b")
        second.subscribe(world.wants("b", "price < 5"))
        feed.publish(world.event(0, 3))
        assert first.receive(WAIT).names == ("a", "b")


def test_a_broker_that_forgot_everything_is_another_one(server: LocalServer, world: World) -> None:
    """Its sequence numbers begin anew, and clients that stay connected notice."""
    with MqttClient(url(server, "alice")) as alice, MqttClient(url(server, "feed")) as feed:
        for life, numbers in enumerate([range(5), range(5, 8), range(8, 20)]):
            broker = world.broker()
            with MqttService(broker, url(server, "broker")):
                alice.subscribe(world.wants("a", "price < 10"))
                for number in numbers:
                    feed.publish(world.event(number, 3))
                assert [alice.receive(WAIT).number for _ in numbers] == [*numbers], life
                alice.unsubscribe("a")
                until(lambda broker=broker: broker.take("alice") == [])


def test_requests_that_nobody_waits_for_are_not_sent_again(
    server: LocalServer, world: World
) -> None:
    broker = world.broker()
    with MqttClient(url(server, "alice")) as alice:
        alice._timeout = 0.3  # now that it is connected, which may take longer
        with pytest.raises(TimeoutError, match="no answer to subscribe"):
            alice.subscribe(world.wants("a", "price < 10"))
        assert not alice._waiting
        with MqttService(broker, url(server, "broker")):
            alice._timeout = WAIT
            alice.subscribe(world.wants("b", "price < 10"))
            assert broker.subscriptions("alice") == ["b"]


class Recorded:
    """Messages that a service or `Outgoing` would have sent, and topics that it listens to."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.listened: list[str] = []
        self.ignored: list[str] = []

    def listen(self, topic: str, then: Any) -> None:
        self.listened.append(topic)
        then()

    def ignore(self, topic: str) -> None:
        self.ignored.append(topic)

    def send(self, to: str, message: bytes, *, retain: bool = False, waits: bool = True) -> None:
        self.sent.append((to, message))

    @property
    def sequences(self) -> list[int]:
        return [Delivery.from_bytes(one[POSITION_BYTES:]).sequence for _, one in self.sent]


def test_deliveries_go_out_in_windows(world: World) -> None:
    broker, out, clock = world.broker(), Recorded(), Clock()
    broker.subscribe("alice", world.wants("a", "price < 10"))
    event = world.event(0, 3).event
    for number in range(3 * service.WINDOW):
        broker.publish(f"feed {number % 2}", Publication(number, event, b"payload"))
    stream = Outgoing(broker, "alice", out.send, clock)
    stream.push()
    stream.push()
    assert out.sequences == [*range(service.WINDOW)]
    stream.acknowledge(Position(broker.numbering, 9))
    assert out.sequences == [*range(service.WINDOW + 10)]
    # Acknowledgements of another broker's deliveries count for nothing.
    stream.acknowledge(Position(bytes(8), 200))
    assert len(broker.take("alice", 10**6)) == 3 * service.WINDOW - 10
    assert out.sequences[-1] == service.WINDOW + 9
    # To ask for the same again has a rate; to go on has none.
    out.sent.clear()
    stream.resume(Position(broker.numbering, 99))
    assert out.sequences == [*range(100, 100 + service.WINDOW)]
    for _ in range(50):
        with refused("rate", "sent again just now"):
            stream.resume(Position())
    assert len(out.sent) == service.WINDOW
    clock.now += service.REWIND_SECONDS
    stream.resume(Position(bytes(8), 10**6))  # of another broker
    # What was acknowledged is not there any more.
    assert out.sequences[service.WINDOW :] == [*range(10, 10 + service.WINDOW)]
    # A client may have more than this service has sent.
    out.sent.clear()
    stream.resume(Position(broker.numbering, 2 * service.WINDOW + 49))
    stream.acknowledge(Position(broker.numbering, 2 * service.WINDOW + 49))
    assert out.sequences == [*range(2 * service.WINDOW + 50, 3 * service.WINDOW)]
    stream.acknowledge(Position(broker.numbering, 3 * service.WINDOW - 1))
    broker.revoke("alice")
    with refused("revoked"):
        stream.push()


def test_deliveries_go_on_after_lost_acknowledgements(
    server: LocalServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service restarts while the application takes what the client holds."""
    monkeypatch.setattr(service, "WINDOW", 16)
    monkeypatch.setattr(client, "GOODBYE_SECONDS", 0.1)
    broker = world.broker()
    broker.subscribe("alice", world.wants("a", "price < 10"))
    for number in range(24):
        broker.publish("feed", world.event(number, 3))
    with MqttClient(url(server, "alice")) as alice:
        with MqttService(broker, url(server, "broker")):
            until(lambda: alice._deliveries.qsize() == 16)
        assert [alice.receive(WAIT).number for _ in range(16)] == [*range(16)]
        alice._acknowledge()  # which nobody hears
        with MqttService(broker, url(server, "broker")):
            assert [alice.receive(WAIT).number for _ in range(8)] == [*range(16, 24)]
            until(lambda: broker.take("alice") == [])
    assert alice._keeper is not None
    assert not alice._keeper.is_alive()


def test_acknowledgements_go_out_in_batches(
    server: LocalServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each delivery would look like a flood; only the last one matters to the service."""
    broker, out = world.broker(), Recorded()
    broker.subscribe("alice", world.wants("a", "price < 10"))
    alice = MqttClient(url(server, "alice"))
    monkeypatch.setattr(alice, "_connection", out)
    monkeypatch.setattr(alice, "_is_heard", True)
    for number in range(4 * client.BATCH):
        broker.publish("feed", world.event(number, 3))
    for delivery in broker.take("alice", 10**4):
        before = Position(broker.numbering, delivery.sequence - 1).to_bytes()
        alice._take_in(before + delivery.to_bytes())
        alice.receive(0.0)
    assert [topic for topic, _ in out.sent] == ["ccbps/to/alice/acknowledge"] * 4
    running = MqttService(broker, url(server, "broker"))
    running._guests.let_in("alice")
    for message in out.sent:
        running._arrived(*message)
    assert len(running._requests) == 1
    running._requests.close()
    running._work()
    assert broker.take("alice") == []


def test_requests_are_sent_again_each_by_itself(
    server: LocalServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits in `publish_later`, and waiting requests do not repeat one another."""
    monkeypatch.setattr(client, "PATIENCE", 0.1)
    send, sent = Connection.send, Counter[bytes]()

    def losing(self: Connection, topic: str, content: bytes, **options: bool) -> None:
        if topic == "ccbps/to/feed/publish":
            sent[content[:8]] += 1
            if sent[content[:8]] < 3:
                return
        send(self, topic, content, **options)

    monkeypatch.setattr(Connection, "send", losing)
    start = time.monotonic()
    with connected(server, world.broker(), "feed") as (feed,):
        later = [feed.publish_later(world.event(number, 3)) for number in range(20)]
        assert [one.result(WAIT).number for one in later] == [*range(20)]
    assert len(sent) == 20
    # Each after twice the time of the one before it, and once more for a hello's answer.
    assert max(sent.values()) <= 2 + math.log2(1 + (time.monotonic() - start) / 0.1)


def test_a_service_whose_connection_came_back_calls_its_clients(
    server: LocalServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they sent meanwhile is lost."""
    running, out = MqttService(world.broker(), url(server, "broker")), Recorded()
    monkeypatch.setattr(running, "_connection", out)
    monkeypatch.setattr(running._claim, "_send", out.send)
    running._came_up()
    assert out.sent == []
    monkeypatch.setattr(running, "_is_running", True)
    running._came_up()
    running._came_up()
    assert [topic for topic, _ in out.sent] == ["ccbps/claim", "ccbps/up"] * 2
    assert out.sent[1] != out.sent[3]


def test_hellos_of_one_client_leave_room_for_others(server: LocalServer, world: World) -> None:
    clock = Clock()
    running = MqttService(world.broker(), url(server, "broker"))
    running._guests._clock = clock
    running._connection.listen = lambda *_: None  # type: ignore[method-assign]
    before = running._hellos.level()
    for _ in range(5000):
        running._knocked("ccbps/to/mallory/resume", bytes(24))
    assert running._hellos.level() >= before - guests.HELLOS_BURST
    assert running._guests.greets("alice")
    clock.now += 1.0
    assert running._guests.greets("mallory")
    running._guests.shut_out("mallory")
    assert not running._guests.greets("mallory")


def test_a_request_is_turned_away_while_the_broker_writes(world: World) -> None:
    """The network's thread must not wait for a publication that goes to disk."""
    broker = world.broker()
    with broker._lock:
        thread = threading.Thread(target=broker.turn_away, args=("alice", 10), daemon=True)
        thread.start()
        thread.join(WAIT)
        assert not thread.is_alive()


def test_why_a_connection_fails_is_said(server: LocalServer) -> None:
    own = Connection(url(server, "alice"), ["ccbps/for/bob/answer"], lambda *_: None)
    with pytest.raises(OSError, match="refuses alice: it does not let this client read"):
        own.open(WAIT)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = MqttUrl(f"mqtt://127.0.0.1:{silent.getsockname()[1]}", "alice")
        with pytest.raises(OSError, match=r"does not answer alice in 0\.1 s"):
            Connection(at, ["ccbps/up"], lambda *_: None).open(0.1)


def test_windows_have_a_size(world: World) -> None:
    broker, out = world.broker(), Recorded()
    broker.subscribe("alice", world.wants("a", "price < 10"))
    event, large = world.event(0, 3).event, bytes(service.WINDOW_BYTES // 4)
    for number in range(10):
        broker.publish("feed", Publication(number, event, large))
    stream = Outgoing(broker, "alice", out.send)
    stream.push()
    assert out.sequences == [*range(4)]
    stream.acknowledge(Position(broker.numbering, 0))
    assert out.sequences == [*range(5)]


def test_requests_that_wait_are_bounded(
    server: LocalServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before they are read: of who was revoked, too large, and too many."""
    broker, out = world.broker(quota=Quota(message_bytes=1000)), Recorded()
    running = MqttService(broker, url(server, "broker"))
    for name in ("mallory", "alice", "bob"):
        running._guests.let_in(name)
    broker.revoke("mallory")
    monkeypatch.setattr(running, "_connection", out)
    monkeypatch.setattr("ccbps.mqtt.fair_queue.WAITING", 3)
    monkeypatch.setattr("ccbps.mqtt.fair_queue.WAITING_BYTES", 1500)
    wanted: list[tuple[str, str, bytes, str]] = [
        ("mallory", "deliver", b"number 1" + bytes(12), "revoked"),
        ("alice", "publish", b"number 2" + bytes(1001), "size"),
        ("alice", "publish", b"number 3" + bytes(592), ""),
        ("alice", "publish", b"number 4" + bytes(592), ""),
        ("alice", "publish", b"number 5" + bytes(592), "rate"),
        ("alice", "unsubscribe", b"number 6a", ""),
        ("alice", "unsubscribe", b"number 7b", "rate"),
        ("bob", "unsubscribe", b"number 8b", ""),
    ]
    for client_, verb, content, reason in wanted:
        out.sent.clear()
        running._arrived(f"ccbps/to/{client_}/{verb}", content)
        said = [(topic, Answer.from_bytes(one[8:]).reason) for topic, one in out.sent]
        assert said == ([(f"ccbps/for/{client_}/answer", reason)] if reason else [])
    running._arrived("ccbps/to/alice/nonsense", bytes(8))
    running._arrived("ccbps/to/nobody/publish", bytes(8))
    running._arrived("ccbps/else", bytes(8))
    assert len(running._requests) == 4
    running._requests.close()
    running._work()
    assert len(running._requests) == 0


def test_clients_have_their_turns_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = FairQueue()
    for client_, count in (("mallory", 100), ("alice", 2), ("bob", 1)):
        for number in range(count):
            waiting.put(Request(client_, "publish", bytes([number])))
    turns = [waiting.get() for _ in range(6)]
    assert [(one.client, one.content[0]) for one in turns if one is not None] == [
        ("mallory", 0),
        ("alice", 0),
        ("bob", 0),
        ("mallory", 1),
        ("alice", 1),
        ("mallory", 2),
    ]
    # All together have a share of the memory each.
    monkeypatch.setattr("ccbps.mqtt.fair_queue.TOTAL_BYTES", 200)
    waiting.put(Request("bob", "publish", bytes(50)))
    waiting.put(Request("bob", "publish", bytes(50)))
    with refused("rate", "too many requests wait"):
        waiting.put(Request("bob", "publish", bytes(1)))
    waiting.put(Request("bob", "push", b""), bounded=False)
    waiting.forget("mallory")
    waiting.forget("nobody")
    assert len(waiting) == 3
    waiting.close()
    waiting.put(Request("bob", "publish", b""))
    assert [one.verb for one in iter(waiting.get, None)] == ["publish", "publish", "push"]


@pytest.mark.parametrize("verb", ["publish", "resume", "acknowledge"])
def test_a_client_that_floods_is_not_listened_to_for_a_time(
    server: LocalServer, world: World, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """It gets some refusals and a notice. Then its requests cost nothing."""
    broker, out, clock = world.broker(), Recorded(), Clock()
    running = MqttService(broker, url(server, "broker"))
    running._guests = Guests(broker.quota, clock)
    monkeypatch.setattr(running, "_connection", out)
    greeting = "ccbps/to/mallory/resume", b"number 7" + Position().to_bytes()
    running._knocked(*greeting)
    assert out.listened == ["ccbps/to/mallory/+"]
    for _ in range(20_000):
        running._arrived(f"ccbps/to/mallory/{verb}", b"number 8flood")
    notices = [Answer.from_bytes(one[8:]) for _, one in out.sent if one[:8] == service.NOTICE]
    assert ["nothing is read for 30 s" in one.message for one in notices] == [True]
    assert len(out.sent) <= 1001
    assert len(running._requests) == 0
    assert out.ignored == ["ccbps/to/mallory/+"]
    sent = len(out.sent)
    for seconds, listened in ((0, 1), (guests.BLOCK_SECONDS - 1, 1), (1, 2)):
        clock.now += seconds
        running._knocked(*greeting)
        assert len(out.listened) == listened
    assert len(out.sent) == sent


def test_requests_of_who_floods_come_back_with_an_error(
    server: LocalServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them hangs, and the client is served when its time is over."""
    monkeypatch.setattr(guests, "REFUSALS_BURST", 20.0)
    monkeypatch.setattr(guests, "BLOCK_SECONDS", 0.2)
    monkeypatch.setattr(client, "PATIENCE", 0.1)
    broker = world.broker(quota=Quota(rate=10.0, burst=20.0))
    with connected(server, broker, "alice", "feed") as (alice, feed):
        alice.subscribe(world.wants("a", "price < 10"))
        errors = [feed.publish_later(world.event(n, 3)).exception(WAIT) for n in range(20)]
        assert errors == [None] * 20
        later = [feed.publish_later(world.event(20 + n, 3)) for n in range(60)]
        reasons = {getattr(one.exception(WAIT), "reason", None) for one in later}
        assert reasons <= {"rate", None}
        assert "rate" in reasons
        # On a slow machine, requests that were sent again still use up the rate for a while.
        receipt, end = None, time.monotonic() + WAIT
        while receipt is None:
            time.sleep(0.2)
            try:
                receipt = feed.publish(world.event(1000, 3))
            except RefusedError:
                assert time.monotonic() < end
        assert receipt.number == 1000


@pytest.mark.parametrize("content", [b"", b"short", bytes(8), bytes(9), bytes(8) + b"\x11\x01x"])
def test_malformed_requests_stop_nothing(server: LocalServer, world: World, content: bytes) -> None:
    broker = world.broker()
    with connected(server, broker, "alice", "feed") as (alice, feed):
        for verb in ("subscribe", "unsubscribe", "publish", "deliver", "acknowledge", "resume"):
            alice._connection.send(f"ccbps/to/alice/{verb}", content)
        alice.subscribe(world.wants("a", "price < 10"))
        feed.publish(world.event(0, 3))
        assert alice.receive(WAIT).number == 0


def certificate(folder: Path) -> tuple[Path, Path]:
    """One for 127.0.0.1 that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "server.pem", folder / "server.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


def test_tls(world: World, tmp_path: Path) -> None:
    made, key = certificate(tmp_path)
    with LocalServer(USERS, certificate=made, key=key) as server:
        assert server.url.startswith("mqtts://")
        with pytest.raises(OSError, match="certificate"):
            MqttClient(url(server, "alice")).start()
        with connected(server, world.broker(), "alice", "feed", ca=made) as (alice, feed):
            alice.subscribe(world.wants("a", "price < 10"))
            feed.publish(world.event(0, 3))
            assert alice.receive(WAIT).number == 0


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 20_000])
def test_a_local_server_reads_messages_at_a_rate(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its bytes it finds the messages, and counts those that are published."""

    class Bytes(ReaderAdapter):  # type: ignore[misc]
        def __init__(self, content: bytes) -> None:
            self.left = io.BytesIO(content)

        async def read(self, n: int = -1) -> bytes:
            return self.left.read(min(n, 7_000))

        def feed_eof(self) -> None:
            raise AssertionError

    sleep, own = asyncio.sleep, threading.get_ident()

    async def paused(seconds: float) -> None:
        if threading.get_ident() != own:  # a server of another test that has not ended yet
            await sleep(seconds)
            return
        pauses.append(seconds)
        clock.now += seconds

    async def read_all() -> None:
        reader = _PacedReader(Bytes(packets), 10.0)
        for _ in range(40):
            (kind,), length, shift, bits = await reader.read(1), 0, 0, 128
            while bits & 128:
                (bits,) = await reader.read(1)
                length, shift = length | (bits & 127) << shift, shift + 7
            while length:
                length -= len(await reader.read(length))
            assert kind in (0x32, 0x40)

    body = bytes([0x32]) * size  # which looks like first bytes
    length, rest = b"", size
    while rest > 127:
        length, rest = length + bytes([128 | rest & 127]), rest >> 7
    length += bytes([rest])
    packets = (bytes([0x32]) + length + body + bytes([0x40, 2, 0x30, 0x30])) * 20
    clock, pauses = Clock(), list[float]()
    monkeypatch.setattr("ccbps.mqtt.server.monotonic", clock)
    monkeypatch.setattr("ccbps.mqtt.server.BURST", 5.0)
    monkeypatch.setattr(asyncio, "sleep", paused)
    asyncio.run(read_all())
    assert sum(pauses) == pytest.approx(1.5)


def test_the_end_of_a_server_prints_nothing(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A task of aMQTT that is in the middle of a message turns its cancellation into an error."""
    tasks: list[asyncio.Task[None]] = []

    async def send() -> None:
        try:
            await asyncio.sleep(WAIT)
        except asyncio.CancelledError as error:
            raise ProtocolHandlerError("Packet handling was cancelled") from error

    with LocalServer(USERS) as server:
        server._loop.call_soon_threadsafe(lambda: tasks.append(server._loop.create_task(send())))
        while not tasks:
            time.sleep(0.01)
    assert tasks[0].done()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
    assert capfd.readouterr().err == ""


def test_misuse_is_refused() -> None:
    wrong: list[tuple[str, tuple[Any, ...]]] = [
        ("url must be", ("http://localhost", "alice")),
        ("url must be", ("mqtt://", "alice")),
        ("without a user or a password, got 'localhost'", ("mqtt://alice@localhost", "alice")),
        ("url must be", ("mqtt://localhost:99999", "alice")),
        ("url must be", ("mqtt://localhost:0", "alice")),
        ("url must be", ("mqtt://[::1", "alice")),
        ("url must be", ("localhost:1883", "alice")),
        ("client must be", ("mqtt://localhost", "a/b")),
        ("version must be", ("mqtt://localhost", "a", None, None, 4)),
    ]
    for said, arguments in wrong:
        with pytest.raises(ParameterError, match=said):
            MqttUrl(*arguments)
    for secret in ("mqtt://u:secret@h", "u:secret@h", "mqtt://:secret@", "mqtt://u:se@cret@h:x"):
        with pytest.raises(ParameterError, match="without a user or a password") as caught:
            MqttUrl(secret, "alice")
        assert "cret" not in str(caught.value)
    for size in (0, POSITION_BYTES - 1, POSITION_BYTES + 1):
        with pytest.raises(DecodeError, match="a position has 16 bytes"):
            Position.from_bytes(bytes(size))
    with pytest.raises(ParameterError, match="together"):
        LocalServer({}, key="file")
    assert "secret" not in repr(MqttUrl("mqtt://localhost", "a", "secret"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="cannot start"):
            LocalServer({}, port=taken.getsockname()[1]).start()


@pytest.mark.slow
@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
@pytest.mark.parametrize("version", [3, 5])
def test_mosquitto_serves_as_well(world: World, tmp_path: Path, version: int) -> None:
    broker = world.broker()
    with (
        mosquitto(tmp_path) as address,
        connected(address, broker, "alice", "feed", version=version) as (alice, feed),
    ):
        alice.subscribe(world.wants("a", "price < 10"))
        receipts = [feed.publish_later(world.event(n, n % 32)) for n in range(100)]
        assert [one.result(WAIT).number for one in receipts] == [*range(100)]
        wanted = [n for n in range(100) if n % 32 < 10]
        assert [alice.receive(WAIT).number for _ in wanted] == wanted


@pytest.mark.parametrize(
    ("verb", "answer", "error", "said"),
    [
        ("publish", b"", DecodeError, "not an answer of the broker"),
        ("publish", b"{}", DecodeError, "not an answer of the broker"),
        ("publish", write([[7, False, ["a"]], "", "", "", 0]), DecodeError, "not an answer"),
        ("publish", write([[-7, False, []], "", "", ""]), DecodeError, "not an answer"),
        ("publish", Answer().to_bytes(), DecodeError, "to another request"),
        ("subscribe", Answer(Receipt(7)).to_bytes(), DecodeError, "to another request"),
        ("publish", Answer(None, "ReplayError", "again").to_bytes(), ReplayError, "again"),
        ("publish", Answer(None, "RefusedError", "m", "size").to_bytes(), RefusedError, "m"),
        *(
            ("publish", Answer(None, name, "why").to_bytes(), CcbpsError, "why")
            for name in ("annotations", "BrokenSchemeWarning", "__all__", "no such", "é")
        ),
    ],
)
def test_whatever_a_broker_answers_is_a_receipt_or_an_error(
    verb: str, answer: bytes, error: type[CcbpsError], said: str
) -> None:
    with pytest.raises(error, match=said):
        Answer.from_bytes(answer).result(verb)
    assert Answer.from_bytes(Answer(Receipt(7)).to_bytes()).result("publish") == Receipt(7)
    assert Answer.from_bytes(Answer().to_bytes()).result("subscribe") is None
