"""How long do honest clients wait while another client floods the MQTT server?

A publisher sends an event every 10 ms, and a subscriber gets all of them. Meanwhile another client,
in a process of its own, sends 5,000 small messages a second: publications that are none, or first
requests, of either quality of service. Milliseconds from `publish` to the receipt: quiet, during
the flood from its first second on, and afterwards; how many publications timed out; how many of the
flood's messages a second reached the service; and the processor time of this process.

    python benchmarks/bench_flood.py [--quick] [--rate 5000]

aMQTT runs in this process, as LocalServer does; mosquitto is left out where it is not installed.
"""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from mqtt_flood import flooding
from report import Table, options
from timing import machine
from workloads import roles_of

from ccbps import Schema, UInt
from ccbps.broker import MatchingBroker, Publication, Subscription
from ccbps.matching import TagMatch
from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl

USERS = {name: f"password of {name}" for name in ("broker", "alice", "feed", "mallory")}
PAUSE = 0.01
PROGRAMS = "/usr/sbin:/usr/bin"
"""Where mosquitto is looked for."""
ACL = Path(__file__).parents[1] / "examples" / "deployment" / "acl"
FLOODS = {"publish, QoS 0": ("publish", 0), "publish, QoS 1": ("publish", 1)}
FLOODS |= {"resume, QoS 1": ("resume", 1)}


@contextmanager
def mosquitto() -> Iterator[str]:
    """Run mosquitto without passwords, and give its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        acl, config = Path(folder, "acl"), Path(folder, "mosquitto.conf")
        acl.write_bytes(ACL.read_bytes())
        acl.chmod(0o600)
        config.write_text(
            f"user {getpass.getuser()}\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
            f"acl_file {acl}\nset_tcp_nodelay true\n"
        )
        program = shutil.which("mosquitto", path=PROGRAMS)
        process = subprocess.Popen([str(program), "-c", str(config)], stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            yield f"mqtt://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


@contextmanager
def amqtt() -> Iterator[str]:
    with LocalServer(USERS) as server:
        yield server.url


class Feed:
    """A publisher that counts what times out."""

    def __init__(self, client: MqttClient, matcher: TagMatch, publisher: object) -> None:
        self.client, self.number, self.lost = client, 0, 0
        self.event = publisher.encode({"price": [5]})[0].tobytes()  # type: ignore[attr-defined]

    def receipts(self, seconds: float) -> list[float]:
        """Publish for some seconds, and return milliseconds to the receipts."""
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            publication = Publication(self.number, self.event, b"payload")
            self.number += 1
            start = time.perf_counter()
            try:
                self.client.publish(publication)
                times.append(1e3 * (time.perf_counter() - start))
            except TimeoutError:
                self.lost += 1
            time.sleep(PAUSE)
        return times


def measure(url: str, verb: str, qos: int, rate: int, seconds: float) -> list[float]:
    matcher = TagMatch(Schema(price=UInt(8)))
    roles = roles_of(matcher)
    flood = 0
    with ExitStack() as stack:
        at = {name: MqttUrl(url, name, word) for name, word in USERS.items()}
        service = MqttService(MatchingBroker(roles.broker), at["broker"])
        for connection in (service._connection, service._door):

            def count(topic: str, content: bytes, take_in=connection._on_message) -> None:
                nonlocal flood
                flood += topic.startswith("ccbps/to/mallory/")
                take_in(topic, content)

            connection._on_message = count
        stack.enter_context(service)
        alice = stack.enter_context(MqttClient(at["alice"], timeout=10.0))
        feed = Feed(
            stack.enter_context(MqttClient(at["feed"], timeout=10.0)), matcher, roles.publisher
        )
        alice.subscribe(Subscription("a", roles.subscriber.encode("price < 9")))
        quiet = feed.receipts(seconds / 2)
        topic = f"ccbps/to/mallory/{verb}"
        with flooding(
            url, "mallory", USERS["mallory"], topic, qos=qos, rate=rate, seconds=2 * seconds
        ):
            time.sleep(0.5)
            begun, used = time.monotonic(), time.process_time()
            during = feed.receipts(seconds)
            took, used = time.monotonic() - begun, time.process_time() - used
        after = feed.receipts(seconds / 2)
        received = sum(1 for _ in range(feed.number - feed.lost) if alice.receive(10.0))
        assert received == feed.number - feed.lost
    median = [float(np.median(times or [np.nan])) for times in (quiet, during, after)]
    high = float(np.percentile(during or [np.nan], 99))
    return [*median, median[1] / median[0], high, feed.lost, flood / took, 100 * used / took]


def main() -> None:
    given = options(__doc__, quick="for 2 seconds", rate=5000)
    print(f"{machine()}; {given.rate:,} messages a second")
    heads = {"quiet": ".2f", "flood": ".2f", "after": ".2f", "flood : quiet": ".2f"}
    heads |= {"flood 99 %": ".1f", "timed out": ".0f", "reached/s": ",.0f", "CPU %": ".0f"}
    servers = {"aMQTT": amqtt}
    if shutil.which("mosquitto", path=PROGRAMS):
        servers["mosquitto"] = mosquitto
    table = Table("Milliseconds to the receipt, median", heads)
    for name, server in servers.items():
        for flood, (verb, qos) in FLOODS.items():
            with server() as url:
                seconds = 2.0 if given.quick else 5.0
                table.row(f"{name}, {flood}", *measure(url, verb, qos, given.rate, seconds))


if __name__ == "__main__":
    main()
