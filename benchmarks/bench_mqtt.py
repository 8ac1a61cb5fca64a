"""How fast is the broker behind a real MQTT server? Publications a second, and latency.

Subscribers, each a connection of its own, and one publisher are in this process, on loopback. One
event in ten is of a topic that somebody subscribed to. In one run: with tokens for topics and the
filter; and without, the topic being a part of TagMatch's predicates, so that every event meets
every subscription. Latency is from `publish` to the receipt, and to the delivery, one event at a
time. Limits beside it: the broker alone, in process, and the MQTT server alone (a message to
itself).

    python benchmarks/bench_mqtt.py [--quick] [--url mqtt://localhost:1883]

The servers are aMQTT in a process of its own, and mosquitto where it is installed; with --url any
other one that knows the users and lets them in without passwords.
"""

from __future__ import annotations

import multiprocessing
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import paho.mqtt.client as paho
from bench_flood import PROGRAMS, mosquitto
from paho.mqtt.enums import CallbackAPIVersion
from report import Table, options
from timing import machine, timed
from tqdm import tqdm
from workloads import roles_of

from ccbps import Category, Schema, UInt
from ccbps.broker import MatchingBroker, Publication, Quota, Subscription
from ccbps.filters import FilterKey, TopicTokens
from ccbps.matching import TagMatch
from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl
from ccbps.mqtt.claim import CLAIM

TOPICS = 100
WANTED = 10
"""Topics that somebody subscribed to."""
WINDOW = 200
"""Publications on their way at once."""
QUOTA = Quota(rate=1e9, burst=1e9, cost=1e9, patience=1e9)
SCHEMA = Schema(topic=Category([f"t{n}" for n in range(TOPICS)]), price=UInt(10))


class Parties:
    """Matcher with keys, and the messages of its clients."""

    def __init__(self, filtered: bool, subscribers: int) -> None:
        self.filtered, self.tokens = filtered, TopicTokens(FilterKey.generate())
        schema = Schema(price=UInt(10)) if filtered else SCHEMA
        self.matcher = TagMatch(schema)
        self.roles = roles_of(self.matcher)
        self.broker = MatchingBroker(self.roles.broker, quota=QUOTA)
        self.names = [f"s{n}" for n in range(subscribers)]

    def subscription(self, n: int) -> Subscription:
        topic, condition = f"t{n % WANTED}", f"price < {10 * (n + 1)}"
        if self.filtered:
            return Subscription(
                "mine", self.roles.subscriber.encode(condition), self.tokens.one(topic)
            )
        return Subscription(
            "mine", self.roles.subscriber.encode(f"topic = '{topic}' AND {condition}")
        )

    def publications(self, first: int, count: int) -> list[Publication]:
        rng = np.random.default_rng(first)
        topics = [f"t{n}" for n in rng.integers(0, TOPICS, count)]
        records = {"topic": topics, "price": rng.integers(0, 1024, count)}
        if self.filtered:
            del records["topic"]
        token = self.tokens.one if self.filtered else lambda _: None
        return [
            Publication(first + n, event.tobytes(), bytes(64), token(topics[n]))
            for n, event in enumerate(self.roles.publisher.encode(records))
        ]


def percentiles(seconds: Sequence[float]) -> list[float]:
    """Return milliseconds at 50, 95 and 99 %."""
    return [*np.percentile(np.array(seconds) * 1e3, [50, 95, 99])] if seconds else [np.nan] * 3


def measure(
    filtered: bool, url: str, passwords: dict[str, str], count: int, some: int
) -> list[float]:
    """Return events a second at the server and in process, and percentiles of latencies."""
    parties = Parties(filtered, len(passwords) - 2)
    delivered: dict[int, float] = {}
    lock, arrived = threading.Lock(), threading.Semaphore(0)
    with ExitStack() as stack:
        at = {name: MqttUrl(url, name, word) for name, word in passwords.items()}
        stack.enter_context(MqttService(parties.broker, at["broker"]))
        for n, name in enumerate(parties.names):
            client = stack.enter_context(MqttClient(at[name]))
            client.subscribe(parties.subscription(n))
            threading.Thread(
                target=receive, args=(client, delivered, lock, arrived), daemon=True
            ).start()
        feed = stack.enter_context(MqttClient(at["feed"]))
        receipts, sent = [], {}
        for one in parties.publications(0, some):
            sent[one.number] = time.perf_counter()
            receipts.append(timed(partial(feed.publish, one)))
        time.sleep(1.0)
        with lock:
            latencies = [delivered[n] - sent[n] for n in sent if n in delivered]
        publications = parties.publications(some, count)
        start = time.perf_counter()
        waiting: list[Any] = []
        for one in publications:
            waiting.append(feed.publish_later(one))
            if len(waiting) >= WINDOW:
                waiting.pop(0).result(60)
        for one in waiting:
            one.result(60)
        rate = count / (time.perf_counter() - start)
    alone = Parties(filtered, len(parties.names))
    for n, name in enumerate(alone.names):
        alone.broker.subscribe(name, alone.subscription(n))
    publications = alone.publications(0, count)
    start = time.perf_counter()
    for one in publications:
        alone.broker.publish("feed", one)
    limit = count / (time.perf_counter() - start)
    return [rate, limit, *percentiles(receipts), *percentiles(latencies)]


def receive(
    client: MqttClient, delivered: dict[int, float], lock: Any, arrived: threading.Semaphore
) -> None:
    while True:
        delivery = client.receive()
        with lock:
            delivered.setdefault(delivery.number, time.perf_counter())
        arrived.release()


def server_alone(url: MqttUrl, count: int) -> float:
    """Return messages a second from a client to itself, of as many bytes."""
    back = threading.Semaphore(0)
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="alone")
    client.username_pw_set(url.client, url.password)
    client.on_message = lambda *_: back.release()
    client.max_inflight_messages_set(WINDOW)
    client.connect(*url.address)
    client.loop_start()
    client.subscribe(CLAIM, 1)
    time.sleep(0.3)
    start = time.perf_counter()
    for n in range(count):
        client.publish(CLAIM, bytes(300), qos=1)
        if n >= WINDOW:
            back.acquire(timeout=10)
    for _ in range(min(count, WINDOW)):
        back.acquire(timeout=10)
    rate = count / (time.perf_counter() - start)
    client.disconnect()
    client.loop_stop()
    return rate


def serve(passwords: dict[str, str], told: Any) -> None:
    with LocalServer(passwords, rate=1e9) as server:
        told.put(server.url)
        threading.Event().wait()


@contextmanager
def server(passwords: dict[str, str]) -> Iterator[str]:
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    process = context.Process(target=serve, args=(passwords, told), daemon=True)
    process.start()
    try:
        yield told.get(timeout=60)
    finally:
        process.terminate()
        process.join()


def main() -> None:
    url = {"help": "URL of another MQTT server"}
    given = options(__doc__, quick="few subscribers and events", url=url, subscribers=100)
    subscribers = 10 if given.quick else given.subscribers
    count, some = (100, 50) if given.quick else (3000, 500)
    names = ["broker", "feed", *(f"s{n}" for n in range(subscribers))]
    passwords = {name: f"password of {name}" for name in names}
    print(f"{machine()}; {subscribers} subscribers")
    servers: dict[str, Any] = {"aMQTT": partial(server, passwords)}
    if shutil.which("mosquitto", path=PROGRAMS):
        servers["mosquitto"] = mosquitto
    if given.url:
        servers = {given.url: partial(nullcontext, given.url)}
    alone: dict[str, float] = {}
    heads = {"events/s": ",.0f", "in process": ",.0f"}
    heads |= {f"{what} {p} %": ".2f" for what in ("receipt", "delivery") for p in (50, 95, 99)}
    table = Table("Events a second, and milliseconds at percentiles", heads, width=32)
    runs = {"tokens and filter": True, "every event matched": False}
    for title, start in servers.items():
        with start() as url:
            alone[title] = server_alone(MqttUrl(url, "broker", passwords["broker"]), count)
            for name, filtered in tqdm(runs.items(), unit=" runs", leave=False):
                table.row(f"{title}, {name}", *measure(filtered, url, passwords, count, some))
    table = Table("A server alone, a client to itself", {"messages/s": ",.0f"})
    for title, rate in alone.items():
        table.row(title, rate)


if __name__ == "__main__":
    main()
