"""A client that floods the server holds nobody up: over mosquitto and aMQTT, with real messages."""

from __future__ import annotations

import runpy
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl
from ccbps.mqtt.connection import Connection
from tests.support.broker_world import World
from tests.support.mosquitto import MOSQUITTO, mosquitto

FLOOD = Path(__file__).parents[2] / "benchmarks" / "mqtt_flood.py"
flooding = runpy.run_path(str(FLOOD))["flooding"]
USERS = {name: f"password of {name}" for name in ("broker", "alice", "bob", "feed", "mallory")}
RATE = 5000
COUNT = 200


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "qos"), [("publish", 0), ("publish", 1), ("resume", 1)])
@pytest.mark.parametrize("kind", ["aMQTT", "mosquitto"])
def test_a_flooding_client_holds_nobody_up(
    kind: str, verb: str, qos: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "mosquitto" and MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    world, take_in, answer = World(), MqttService._arrived, MqttService._answer
    send, hellos = Connection.send, 0
    started, floods = time.monotonic(), 0
    # Messages of the flood that the service takes in while a publication waits for its answer.
    before, meanwhile = dict[bytes, int](), list[int]()

    def counted(self: MqttService, topic: str, content: bytes) -> None:
        nonlocal floods
        floods += topic.startswith("ccbps/to/mallory/")
        if topic == "ccbps/to/feed/publish":
            before.setdefault(content[:8], floods)
        take_in(self, topic, content)

    def answered(self: MqttService, client: str, verb: str, content: bytes, *rest: Any) -> None:
        if client == "feed" and verb == "publish":
            meanwhile.append(floods - before[content[:8]])
        answer(self, client, verb, content, *rest)

    def sent(self: Connection, topic: str, content: bytes, **options: bool) -> None:
        nonlocal hellos
        hellos += topic == "ccbps/to/bob/resume"
        send(self, topic, content, **options)

    monkeypatch.setattr(MqttService, "_arrived", counted)
    monkeypatch.setattr(MqttService, "_answer", answered)
    monkeypatch.setattr(Connection, "send", sent)
    with ExitStack() as stack:
        server = LocalServer(USERS) if kind == "aMQTT" else None
        if server is None:
            url = stack.enter_context(mosquitto(tmp_path))
        else:
            url = stack.enter_context(server).url
        at = {name: MqttUrl(url, name, password) for name, password in USERS.items()}
        stack.enter_context(MqttService(world.broker(), at["broker"]))
        alice = stack.enter_context(MqttClient(at["alice"], timeout=60.0))
        feed = stack.enter_context(MqttClient(at["feed"], timeout=60.0))
        alice.subscribe(world.wants("a", "price < 10"))
        topic = f"ccbps/to/mallory/{verb}"
        flood = {"qos": qos, "rate": RATE, "seconds": 600}
        flooder = stack.enter_context(flooding(url, "mallory", USERS["mallory"], topic, **flood))
        started = time.monotonic()
        time.sleep(1.0)
        # A client that comes during the flood is served.
        bob = stack.enter_context(MqttClient(at["bob"], timeout=60.0))
        bob.subscribe(world.wants("b", "price < 10"))
        for number in range(COUNT):
            feed.publish(world.event(number, 3))  # raises TimeoutError
            time.sleep(0.01)
        assert [alice.receive(60.0).number for _ in range(COUNT)] == [*range(COUNT)]
        assert [bob.receive(60.0).number for _ in range(COUNT)] == [*range(COUNT)]
        seconds = time.monotonic() - started
        assert flooder.poll() is None
    assert 0 < floods < RATE * seconds / 2
    assert statistics.median(meanwhile) <= 5
    assert hellos <= 4
