"""Eight brokers carry real stock quotes to those who want them, and one of them is killed midway.

Every broker is a process of its own. They form a tree, and talk over TLS, in which each accepts
only the certificates of its neighbours. Four of them are edges, with an MQTT server each:

    north ─ a ─ b ─ c ─ east
            │       │
          south     d ─ west

1. Quotes are matched with conditions on encrypted messages (TagMatch), at the subscriber's edge.
   Brokers between the edges read the issue of a quote and five leading bits of its price. They
   route by these, and pass on only the subscriptions that no other one covers. Midway broker b,
   which every path from one side to the other goes through, is killed, and started again.
2. The same brokers carry quotes that are matched with one-time messages (FormulaMatch) at one edge,
   and by three brokers that learn nothing but who matched (ThreeBrokerMatch) at another one.

At the end every delivery is compared with the plaintext. `whole_story.py` shows how parties get
keys; here the program hands them out.

    python examples/broker_network.py --events 1000
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any, Final

import numpy as np
from tqdm import tqdm

from ccbps import Category, Decimal, Schema, SharedSeed, UInt
from ccbps.broker import Hellos, Publication, Subscription
from ccbps.keys import ClientKey, OperatorKey, RoleKey
from ccbps.matching import FormulaMatch, TagMatch, ThreeBrokerMatch
from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl
from ccbps.network import Certificate, Identity
from ccbps.overlay import EdgeBroker, PlainRelation, ServedRouter
from ccbps.shares.operators import Operator
from ccbps.trio import Follower, Leader, Trio

SECONDS: Final = 60.0
QUIET_SECONDS: Final = 1.5
"""Time without a delivery after which a client that was told to end does so."""
TREE = [
    ("north", "a"),
    ("south", "a"),
    ("a", "b"),
    ("b", "c"),
    ("c", "east"),
    ("c", "d"),
    ("d", "west"),
]
INNER = ("a", "b", "c", "d")
KILLED = "b"
TAGS, ONE_TIME, THREE = SCHEMES = ("tags", "one-time", "three brokers")
EDGES = {"north": TAGS, "east": TAGS, "south": ONE_TIME, "west": THREE}
"""Schemes of the edges' brokers. Publications of other schemes do not come there."""
ISSUES = ("AAPL", "FB", "GOOG", "IBM", "MSFT")
PRIVATE: dict[str, Any] = {
    "issue": Category(ISSUES),
    "close": Decimal(0, "1310.71", step="0.01"),
    "volume": UInt(30),
}
SCHEMA = Schema(**PRIVATE)
MATCHERS: dict[str, Any] = {
    TAGS: TagMatch(SCHEMA),
    ONE_TIME: FormulaMatch.box(SCHEMA),
    THREE: ThreeBrokerMatch.box(SCHEMA),
}
# What brokers between the edges read of a quote, and of a condition.
ROUTED = Schema(scheme=Category(SCHEMES), **PRIVATE)
BITS = {"scheme": 2, "issue": 3, "close": 5}
PUBLISHERS = {  # at which edge, and which issues
    "nyse": ("south", ("IBM",)),
    "nasdaq": ("west", ("AAPL", "FB", "GOOG", "MSFT")),
    "exchange": ("north", ISSUES),
}
SECOND_PART = {  # conditions of the second part's subscribers
    "olga": ("south", "issue = 'IBM' AND close < 110"),
    "otto": ("south", "close BETWEEN 40 AND 160 AND volume > 20000000"),
    "tara": ("west", "issue = 'IBM' AND close > 100"),
    "theo": ("west", "volume > 30000000"),
}
Queue = Any


class Noting(PlainRelation):
    """The brokers' knowledge of routes, which notes down what a broker reads of quotes."""

    def __init__(self) -> None:
        super().__init__(ROUTED, BITS)
        self.read: Counter[bytes] = Counter()

    def read_event(self, content: bytes) -> Any:
        codes = super().read_event(content)
        self.read[content] += 1
        return codes


RELATION = Noting()


def route(scheme: str, condition: str) -> bytes:
    """Return what brokers read of a condition."""
    return RELATION.filter_bytes(f"scheme = '{scheme}' AND {condition}")


def main(arguments: list[str] | None = None) -> int:
    """Run both parts, and return the number of deliveries that differ from the plaintext."""
    options = parse(arguments)
    quotes, conditions = read_quotes(options.events), make_conditions(options.subscriptions)
    with processes() as start:
        story = Story(quotes, conditions, start)
        differences = story.first_part() + story.second_part()
        story.end()
    print(f"\nseconds{time.perf_counter() - story.began:31.0f}")
    print(f"differences                          {differences}")
    return differences


class Story:
    """Director that starts the parties, kills a broker, and compares deliveries."""

    def __init__(
        self, quotes: list[dict[str, Any]], conditions: dict[str, list[str]], start: Any
    ) -> None:
        self.quotes, self.conditions, self.start = quotes, conditions, start
        self.began = time.perf_counter()
        self.ends: dict[str, Any] = {}  # events that tell clients to end
        self.news, self.lines = CONTEXT.Queue(), dict[str, Any]()
        self.running: dict[str, Any] = {}
        names = [*EDGES, *INNER]
        identities = {name: Identity.generate() for name in names}
        self.secrets = {name: one.export_secret() for name, one in identities.items()}
        self.pins = {name: one.certificate() for name, one in identities.items()}
        *ports, trio_port = free_ports(len(names) + 6)[: len(names) + 1]
        self.ports = dict(zip(names, ports, strict=True))
        clients = [*PUBLISHERS, *SECOND_PART, *conditions]
        self.passwords = {one: secrets.token_hex(8) for one in ("broker", *clients)}
        self.keys = MATCHERS[TAGS].key_server()
        self.trio_keys = [OperatorKey.generate() for _ in range(3)]
        self.operators = [
            Operator.of(key, f"127.0.0.1:{trio_port + 2 * party}")  # and a worker's port
            for party, key in enumerate(self.trio_keys)
        ]
        for name in names:
            self.start_broker(name)
        self.urls = {name: self.lines[name].recv() for name in names}
        links = ", ".join(f"{one}-{other}" for one, other in TREE)
        self.say(f"8 brokers are there: {links}")

    def start_broker(self, name: str) -> None:
        """Start a broker's process."""
        near = {b if a == name else a for a, b in TREE if name in (a, b)}
        places = {one: (f"127.0.0.1:{self.ports[one]}", self.pins[one].der) for one in near}
        network = self.secrets[name], places, self.ports[name]
        # A pipe of its own: who dies with a queue in hand blocks all others.
        self.lines[name], line = CONTEXT.Pipe()
        scheme = EDGES.get(name)
        if scheme is None:
            self.running[name] = self.start(run_inner, network, line)
            return
        key: Any = None
        if scheme == TAGS:
            key = self.keys.broker_key().to_text()
        elif scheme == THREE:
            public = [operator.to_bytes() for operator in self.operators]
            key, *others = [(one.export_secret(), public) for one in self.trio_keys]
            for party, other in enumerate(others, 1):
                self.start(run_follower, party, other)
        arguments = name, network, self.passwords, scheme, key, line
        self.running[name] = self.start(run_edge, *arguments)

    def first_part(self) -> int:
        """Match encrypted messages at two edges, and kill a broker between them."""
        print(f"\n1. {len(self.quotes):,} quotes, matched on encrypted messages at north and east")
        homes = self.subscribe_all()
        entries = self.still()
        count = sum(map(len, self.conditions.values()))
        self.say(
            f"{count} subscriptions of {len(homes)} clients make {entries} entries in all tables"
        )
        key = self.keys.publisher_key().to_text()
        bar = tqdm(total=len(self.quotes), unit=" quotes", disable=None)
        for name in ("nyse", "nasdaq"):
            place = MqttUrl(self.urls[PUBLISHERS[name][0]], name, self.passwords[name])
            self.start(run_publisher, name, place, key, self.quotes, self.news)
        done = {"nyse": 0, "nasdaq": 0}
        hops, steps = 0, [("kill", len(self.quotes) // 3), ("start", len(self.quotes) // 2)]
        while sum(done.values()) < len(self.quotes):
            name, number = self.wait("published")
            bar.update(number - done[name])
            done[name] = number
            if steps and sum(done.values()) >= steps[0][1]:
                act, _ = steps.pop(0)
                if act == "kill":
                    hops += self.ask(KILLED, "counts")[1]  # which it takes along
                    os.kill(self.running[KILLED].pid, signal.SIGKILL)
                    self.running[KILLED].join()
                    self.say(f"quote {sum(done.values())}: broker {KILLED} was killed", bar)
                else:
                    self.start_broker(KILLED)
                    self.lines[KILLED].recv()
                    self.say(f"quote {sum(done.values())}: it was started again", bar)
        bar.close()
        for name in ("nyse", "nasdaq"):
            self.ask(PUBLISHERS[name][0], "arrived")
        self.say("all quotes have arrived")
        got = self.end_clients(homes)
        differences = twice = deliveries = wanted = 0
        for client, conditions in self.conditions.items():
            meant = Counter(np.flatnonzero(self.evaluate(conditions)).tolist())
            deliveries, wanted = deliveries + got[client].total(), wanted + meant.total()
            differences += sum(((meant - got[client]) + (got[client] - meant)).values())
            twice += sum(count - 1 for count in got[client].values())
        counts = {name: self.ask(name, "counts") for name in self.running}
        hops += sum(count for _, count, *_ in counts.values())
        flooded = len(self.quotes) * len(TREE)
        print(f"\n{'deliveries':<37}{deliveries:,}   meant: {wanted:,}")
        print(f"{'of them twice':<37}{twice}")
        print(f"{'entries in tables':<37}{entries:,}   flooding: {count * len(counts):,}")
        print(f"{'quotes between brokers':<37}{hops:,}   flooding: {flooded:,}")
        self.show(TAGS, "c", counts)
        return differences

    def second_part(self) -> int:
        """Match one-time messages at one edge, and with three brokers at another one."""
        places = np.unique(np.linspace(0, len(self.quotes) - 1, 50).astype(int)).tolist()
        quotes = [self.quotes[place] for place in places]
        print(f"\n2. {len(quotes)} quotes, matched at two more edges, which learn nothing else")
        seed = SharedSeed.generate()
        public = [operator.public for operator in self.operators]
        key = ClientKey.generate(public).to_text()
        urls = {
            name: MqttUrl(self.urls[edge], name, self.passwords[name])
            for name, (edge, _) in SECOND_PART.items()
        }
        for name, (edge, condition) in SECOND_PART.items():
            secret = seed.pair(f"{name}/mine").to_text() if edge == "south" else public
            self.ends[name] = CONTEXT.Event()
            arguments = name, urls[name], EDGES[edge], condition, secret, len(quotes)
            self.start(run_subscriber, *arguments, self.news, self.ends[name])
        for name in SECOND_PART:
            self.wait(f"{name} subscribed")
        self.still()
        at = {
            edge: MqttUrl(self.urls[edge], "exchange", self.passwords["exchange"]) for edge in EDGES
        }
        self.start(run_exchange, at, seed.to_text(), key, quotes, self.news)
        self.wait("the exchange published")
        self.ask("north", "arrived")
        for edge in {edge for edge, _ in SECOND_PART.values()}:
            self.ask(edge, "arrived")
            self.ask(edge, "drained")
        differences = 0
        print(f"\n{'':<6}{'matched by':<15}{'condition':<52}{'got':>4}{'meant':>7}")
        for name, (edge, condition) in SECOND_PART.items():
            self.ends[name].set()
            got = self.wait(f"{name} got")
            meant = np.flatnonzero(SCHEMA.parse(condition).evaluate(quotes)).tolist()
            differences += got != meant
            row = f"{name:<6}{EDGES[edge]:<15}{condition:<52}"
            print(f"{row}{len(got):>4}{len(meant):>7}")
        counts = {name: self.ask(name, "counts") for name in INNER}
        self.show(ONE_TIME, "a", counts)
        self.show(THREE, "d", counts)
        return differences

    def say(self, text: str, bar: Any = None) -> None:
        """Print an event with its time."""
        (bar.write if bar else print)(f"{time.perf_counter() - self.began:6.1f} s  {text}")

    # -- helpers ----------------------------------------------------------------------------------

    def subscribe_all(self) -> dict[str, str]:
        """Start the clients of the first part, and return their edges."""
        homes = {client: ("north", "east")[n % 2] for n, client in enumerate(self.conditions)}
        for edge in ("north", "east"):
            jobs = {
                client: (
                    MqttUrl(self.urls[edge], client, self.passwords[client]),
                    self.keys.subscriber_key(client).to_text(),
                    self.conditions[client],
                )
                for client, home in homes.items()
                if home == edge
            }
            self.ends[edge] = CONTEXT.Event()
            self.start(run_clients, edge, jobs, self.news, self.ends[edge])
        for edge in ("north", "east"):
            self.wait(f"clients of {edge} subscribed")
        return homes

    def end_clients(self, homes: dict[str, str]) -> dict[str, Counter[int]]:
        """Return the numbers of the quotes that each client got."""
        for edge in {*homes.values()}:
            self.ask(edge, "drained")  # each client has acknowledged all that waited for it
            self.ends[edge].set()
        found: dict[str, Counter[int]] = {}
        for edge in {*homes.values()}:
            found |= self.wait(f"clients of {edge} got")
        return found

    def evaluate(self, conditions: list[str]) -> Any:
        """Return the quotes that match some of a client's conditions, as booleans."""
        return np.any([SCHEMA.parse(one).evaluate(self.quotes) for one in conditions], axis=0)

    def still(self) -> int:
        """Wait until all brokers know the subscriptions; return the entries in their tables."""
        before = None
        while True:
            now = [self.ask(name, "counts") for name in self.running]
            entries = [one[0] for one in now]
            if entries == before and all(ready for *_, ready, _ in now):
                return sum(entries)
            before = entries
            time.sleep(0.2)

    def show(self, scheme: str, broker: str, counts: dict[str, Any]) -> None:
        """Print what a broker between the edges read of quotes of a scheme."""
        code = RELATION.event_bytes({"scheme": scheme, **self.quotes[0]})[:8]
        read = [np.frombuffer(one, ">i8").tolist() for one in counts[broker][3] if one[:8] == code]
        some = sorted((issue, block) for _, issue, block in read)
        width = 1 << ROUTED.widths["close"] - BITS["close"]
        issue, block = some[0]
        low, high = block * width / 100, ((block + 1) * width - 1) / 100
        print(
            f"broker {broker} read {len(some)} different things of quotes, one of them: "
            f"{scheme}, {ISSUES[issue]}, {low:.2f} to {high:.2f}"
        )

    def ask(self, name: str, question: str) -> Any:
        """Ask a broker for something."""
        self.lines[name].send(question)
        return self.lines[name].recv()

    def wait(self, event: str) -> Any:
        """Wait for a party's news."""
        kept: list[tuple[str, Any]] = []
        while True:
            said, content = self.news.get(timeout=SECONDS)
            if said == event:
                for other in kept:
                    self.news.put(other)
                return content
            kept.append((said, content))

    def end(self) -> None:
        """End the brokers."""
        for name, process in self.running.items():
            self.lines[name].send("end")
            process.join()


# -- the parties, each a process -----------------------------------------------------------------


def run_inner(network: Any, line: Connection) -> None:
    """Run a broker between the edges: it has no key, and no client."""
    identity, places, port = on_network(network)
    with ServedRouter(RELATION, identity, places, port=port) as router:
        line.send(None)
        obey(router, line)


def run_edge(
    name: str,
    network: Any,
    passwords: dict[str, str],
    scheme: str,
    key: Any,
    line: Connection,
) -> None:
    """Run an edge: an MQTT server, and a broker that matches with its scheme."""
    # aMQTT warns of messages that clients which have just left had not confirmed.
    logging.getLogger("amqtt").setLevel(logging.ERROR)
    identity, places, port = on_network(network)
    matcher = MATCHERS[scheme]
    advertisements = {
        publisher: [
            route(one, f"issue = '{issue}'")
            for one in ((TAGS,) if publisher != "exchange" else (ONE_TIME, THREE))
            for issue in issues
        ]
        for publisher, (edge, issues) in PUBLISHERS.items()
        if edge == name
    }
    with ExitStack() as stack:
        if scheme == TAGS:
            broker = matcher.broker(RoleKey.from_text(key))
        elif scheme == ONE_TIME:
            broker = matcher.broker()
        else:
            own, trio = in_trio(key)
            broker = stack.enter_context(Leader(trio, own, matcher))
        edge = EdgeBroker(
            broker, RELATION, identity, places, advertisements=advertisements, port=port
        )
        stack.callback(edge.close)
        edge.router.wait_ready(SECONDS)
        server = stack.enter_context(LocalServer(passwords, rate=5000))
        service = MqttService(edge, MqttUrl(server.url, "broker", passwords["broker"]))
        stack.enter_context(service)
        line.send(server.url)
        obey(edge.router, line, lambda: not any(edge.take(one, 1) for one in passwords))


def run_follower(party: int, key: tuple[bytes, list[bytes]]) -> None:
    """Run broker 1 or 2 of the three that match together."""
    own, trio = in_trio(key)
    with Follower(party, trio, own, MATCHERS[THREE]):
        threading.Event().wait()


def in_trio(key: tuple[bytes, list[bytes]]) -> tuple[OperatorKey, Trio]:
    """Return the key of one of three brokers, and the public keys of all three."""
    a, b, c = map(Operator.from_bytes, key[1])
    return OperatorKey(key[0]), Trio((a, b, c))


def on_network(network: Any) -> tuple[Identity, dict[str, Any], int]:
    """Return identity, neighbours and port of a broker."""
    secret, places, port = network
    pinned = {one: (address, Certificate(der)) for one, (address, der) in places.items()}
    return Identity(secret), pinned, port


def obey(
    router: ServedRouter, line: Connection, is_drained: Callable[[], bool] = lambda: True
) -> None:
    """Answer the director's questions until the end."""
    while (question := line.recv()) != "end":
        if question == "arrived":
            line.send(router.wait_arrived(SECONDS))
            continue
        if question == "drained":
            until = time.monotonic() + SECONDS
            while not is_drained() and time.monotonic() < until:
                time.sleep(0.05)
            line.send(None)
            continue
        ready = router.wait_ready(SECONDS)
        with router.lock:
            line.send((router.router.router.entries, router.hops, ready, [*RELATION.read]))


def run_clients(edge: str, jobs: dict[str, Any], news: Queue, end: Event) -> None:
    """Subscribe as several clients of an edge, and receive until told to end."""
    got: dict[str, Counter[int]] = {client: Counter() for client in jobs}

    def receive(name: str, client: MqttClient) -> None:
        while True:
            try:
                got[name][client.receive(QUIET_SECONDS).number] += 1
            except TimeoutError:
                if end.is_set():
                    return

    with ExitStack() as stack:
        threads = []
        for name, (url, key, conditions) in jobs.items():
            client = stack.enter_context(MqttClient(url))
            subscriber = MATCHERS[TAGS].subscriber(RoleKey.from_text(key))
            for number, condition in enumerate(conditions):
                interests = subscriber.encode(condition)
                where = route(TAGS, condition)
                client.subscribe(Subscription(f"condition {number}", interests, route=where))
            threads.append(threading.Thread(target=receive, args=(name, client)))
        news.put((f"clients of {edge} subscribed", None))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    news.put((f"clients of {edge} got", got))


def run_publisher(
    name: str, url: MqttUrl, key: str, quotes: list[dict[str, Any]], news: Queue
) -> None:
    """Publish the quotes of an exchange's issues, encrypted, some of them at a time."""
    publisher = MATCHERS[TAGS].publisher(RoleKey.from_text(key))
    numbers = [n for n, quote in enumerate(quotes) if quote["issue"] in PUBLISHERS[name][1]]
    rows = publisher.encode([quotes[n] for n in numbers])
    with MqttClient(url) as client:
        for start in range(0, len(numbers), 20):
            answers = []
            for n, row in zip(numbers[start:][:20], rows[start:][:20], strict=True):
                where = RELATION.event_bytes({"scheme": TAGS, **quotes[n]})
                event = Publication(n, row.tobytes(), b"sealed", route=where)
                answers.append(client.publish_later(event))
            for answer in answers:
                answer.result(SECONDS)
            news.put(("published", (name, start + len(answers))))


def run_subscriber(
    name: str,
    url: MqttUrl,
    scheme: str,
    condition: str,
    secret: Any,
    count: int,
    news: Queue,
    end: Event,
) -> None:
    """Subscribe with one-time messages or those of three brokers, and receive."""
    where = route(scheme, condition)
    with MqttClient(url) as client:
        if scheme == ONE_TIME:
            subscriber = MATCHERS[ONE_TIME].subscriber(SharedSeed.from_text(secret))
            interests = subscriber.encode(condition, range(2 * count))
            client.subscribe(Subscription("mine", interests, None, "exchange", 0, where))
        else:
            role = MATCHERS[THREE].subscriber(ClientKey.generate(secret))
            client.greet(Hellos(role.hellos))
            client.subscribe(Subscription("mine", role.seal(role.encode(condition)), route=where))
        news.put((f"{name} subscribed", None))
        got = []
        while True:
            try:
                got.append(client.receive(QUIET_SECONDS).number // 2)
            except TimeoutError:
                if end.is_set():
                    break
    news.put((f"{name} got", got))


def run_exchange(
    urls: dict[str, MqttUrl], seed: str, key: str, quotes: list[dict[str, Any]], news: Queue
) -> None:
    """Publish each quote twice at north: for one-time messages, and for three brokers."""
    one_time = MATCHERS[ONE_TIME].publisher(SharedSeed.from_text(seed))
    three = MATCHERS[THREE].publisher(ClientKey.from_text(key))
    with MqttClient(urls["west"]) as client:
        client.greet(Hellos(three.hellos))  # the three brokers are there
    labels = [f"{name}/mine" for name, (edge, _) in SECOND_PART.items() if edge == "south"]
    sealed = three.seal(three.encode(quotes))
    with MqttClient(urls["north"]) as client:
        for n, quote in enumerate(quotes):
            rows = one_time.encode([quote] * len(labels), [n] * len(labels), pairs=labels)
            events = {label: row.tobytes() for label, row in zip(labels, rows, strict=True)}
            where = [RELATION.event_bytes({"scheme": one, **quote}) for one in (ONE_TIME, THREE)]
            client.publish(Publication(2 * n, None, b"sealed", None, n, events, route=where[0]))
            event = sealed[n].tobytes()
            client.publish(Publication(2 * n + 1, event, b"sealed", route=where[1]))
    news.put(("the exchange published", None))


# One clean process imports the package, and parties are forked from it: they share no secret.
CONTEXT = multiprocessing.get_context("forkserver")


@contextmanager
def processes() -> Iterator[Any]:
    """Start processes, and end them all."""
    kinds = (EdgeBroker, LocalServer, MqttClient, Leader, Follower, *map(type, MATCHERS.values()))
    CONTEXT.set_forkserver_preload([kind.__module__ for kind in kinds])
    running = []

    def start(target: Any, *arguments: Any) -> Any:
        running.append(CONTEXT.Process(target=target, args=arguments))
        running[-1].start()
        return running[-1]

    try:
        yield start
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.join()


def free_ports(count: int) -> list[int]:
    """Return ports that follow one another, and that nobody uses now."""
    while True:
        first = secrets.choice(range(20_000, 30_000))  # below those that connections get
        with ExitStack() as taken:
            try:
                for port in range(first, first + count):
                    taken.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return [*range(first, first + count)]


# -- data -----------------------------------------------------------------------------------------


def read_quotes(count: int) -> list[dict[str, Any]]:
    """Return quotes of all five issues in turn, spread over their days."""
    from bokeh_sampledata import stocks  # reads them all

    quotes = []
    for n in range(count):
        issue = ISSUES[n % len(ISSUES)]
        days = getattr(stocks, issue)
        at = n * (len(days["close"]) - 1) // count
        close, volume = round(float(days["close"][at]), 2), int(days["volume"][at])
        quotes.append({"issue": issue, "close": close, "volume": volume})
    return quotes


def make_conditions(count: int) -> dict[str, list[str]]:
    """Make price alerts, bands and volume spikes, five for each client, alike in each run."""
    rng = np.random.default_rng(2000)
    usual = {"AAPL": 150, "FB": 28, "GOOG": 480, "IBM": 115, "MSFT": 30}
    conditions: dict[str, list[str]] = {}
    for number in range(count):
        issue = ISSUES[rng.integers(5)]
        price, volume = usual[issue] * rng.uniform(0.6, 1.5), int(rng.integers(2, 60)) * 1_000_000
        conditions.setdefault(f"client {number // 5}", []).append(
            [
                f"issue = '{issue}' AND close < {price:.2f}",
                f"issue = '{issue}' AND close >= {price:.2f} AND volume > {volume}",
                f"issue = '{issue}' AND close BETWEEN {price:.2f} AND {price * 1.1:.2f}",
            ][number % 3]
        )
    return conditions


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000, help="quotes (default: 1,000)")
    parser.add_argument("--subscriptions", type=int, default=60, help="(default: 60)")
    options = parser.parse_args(arguments)
    for name, least in (("events", 10), ("subscriptions", 1)):
        if (number := getattr(options, name)) < least:
            parser.exit(2, f"{parser.prog}: --{name} must be at least {least}, got {number}\n")
    return options


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
