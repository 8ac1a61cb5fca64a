"""MQTT clients and a broker on two sides of a circuit, of which they know nothing."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl
from tests.support.broker_world import World, meant
from tests.support.mosquitto import MOSQUITTO, mosquitto
from tests.support.relay import relayed

RELAYS = Path(__file__).parents[2] / "benchmarks" / "circuit_relays.py"
USERS = {name: f"password of {name}" for name in ("broker", "alice", "feed")}


def owner_of(port: int) -> str:
    """The number of the socket with a local port of 127.0.0.1, as Linux names it."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == f"0100007F:{port:04X}" and fields[3] == "01":
            return f"socket:[{fields[9]}]"
    return ""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="no list of sockets here")
@pytest.mark.parametrize("kind", ["aMQTT", "mosquitto"])
def test_mqtt_clients_and_a_broker_that_know_nothing_of_circuits(kind: str, tmp_path: Path) -> None:
    """Three relay processes in front of the MQTT server: it sees the exit, and delivers alike."""
    if kind == "mosquitto" and MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    world, prices = World(), [n % 32 for n in range(100)]
    tunnelled = runpy.run_path(str(RELAYS))["tunnelled"]
    with LocalServer(USERS) if kind == "aMQTT" else mosquitto(tmp_path) as server:
        url = server if isinstance(server, str) else server.url
        direct = {name: MqttUrl(url, name, word) for name, word in USERS.items()}
        # The relay in front of the server shows which connections come from the exit.
        with (
            relayed(url.removeprefix("mqtt://")) as watch,
            tunnelled(watch.address) as (
                tunnel,
                pid,
            ),
        ):
            far = {name: MqttUrl(f"mqtt://{tunnel.address}", name, USERS[name]) for name in USERS}
            with (
                MqttService(world.broker(), direct["broker"]),
                MqttClient(far["alice"], timeout=60.0) as alice,
                MqttClient(far["feed"], timeout=60.0) as feed,
            ):
                alice.subscribe(world.wants("a", "price < 10"))
                for number, price in enumerate(prices):
                    feed.publish(world.event(number, price))
                due = [n for n, price in enumerate(prices) if meant("price < 10", price)]
                came = [alice.receive(60.0) for _ in due]
                assert [one.number for one in came] == due
                assert [one.payload for one in came] == [b"payload %d" % n for n in due]
                peers = [one.getpeername()[1] for one in watch._open[::2]]
                files = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
                assert len(peers) >= 2
                assert all(owner_of(port) in files for port in peers)
