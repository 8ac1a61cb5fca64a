"""A client that floods the server holds nobody up: over mosquitto and aMQTT, with real messages."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl
from tests.support.broker_world import World
from tests.support.mosquitto import MOSQUITTO, mosquitto

FLOOD = Path(__file__).parents[2] / "benchmarks" / "mqtt_flood.py"
USERS = {name: f"password of {name}" for name in ("broker", "alice", "feed", "mallory")}
RATE = 5000
COUNT = 200


@contextmanager
def flooding(url: str, verb: str, qos: int) -> Iterator[None]:
    host, port = url.rpartition("/")[2].split(":")
    topic = f"ccbps/to/mallory/{verb}"
    arguments = [host, port, "mallory", USERS["mallory"], topic, str(qos), str(RATE), "60"]
    process = subprocess.Popen([sys.executable, str(FLOOD), *arguments])
    try:
        yield
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "qos"), [("publish", 0), ("publish", 1), ("resume", 1)])
@pytest.mark.parametrize("kind", ["aMQTT", "mosquitto"])
def test_a_flooding_client_holds_nobody_up(
    kind: str, verb: str, qos: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "mosquitto" and MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    world, take_in = World(), MqttService._arrived
    started, floods = time.monotonic(), 0

    def counted(self: MqttService, topic: str, content: bytes) -> None:
        nonlocal floods
        floods += topic.startswith("ccbps/to/mallory/")
        take_in(self, topic, content)

    monkeypatch.setattr(MqttService, "_arrived", counted)
    with ExitStack() as stack:
        server = LocalServer(USERS) if kind == "aMQTT" else None
        if server is None:
            url = stack.enter_context(mosquitto(tmp_path))
        else:
            url = stack.enter_context(server).url
        at = {name: MqttUrl(url, name, password) for name, password in USERS.items()}
        stack.enter_context(MqttService(world.broker(), at["broker"]))
        alice = stack.enter_context(MqttClient(at["alice"], timeout=10.0))
        feed = stack.enter_context(MqttClient(at["feed"], timeout=10.0))
        alice.subscribe(world.wants("a", "price < 10"))
        stack.enter_context(flooding(url, verb, qos))
        started = time.monotonic()
        time.sleep(1.0)
        for number in range(COUNT):
            feed.publish(world.event(number, 3))  # raises TimeoutError
            time.sleep(0.01)
        assert [alice.receive(10.0).number for _ in range(COUNT)] == [*range(COUNT)]
        seconds = time.monotonic() - started
    assert 0 < floods < RATE * seconds / 2
