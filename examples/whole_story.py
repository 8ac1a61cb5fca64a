"""The whole story on real quotes: from no common secret to payloads that only those who match read.

Every party is a process of its own on this machine. They talk over TLS, in which each accepts only
certificates that it was given before (`ccbps.network`), and over MQTT.

1. The publisher splits each subscriber's seed into fragments, which travel through two hops of
   three brokers that nobody trusts (ISSPS); the subscriber joins them.
2. Subscribers send encrypted conditions over MQTT to one of two desks, brokers that match: one with
   FormulaMatch, one with BroadcastMatch. Topics are tokens; what nobody subscribed to is stopped by
   a filter.
3. The publisher sends each quote to both desks, encrypted. A desk tells the publisher who matches,
   and learns nothing else of the quote. The publisher seals it for them with cached group keys.
4. Midway one desk is killed and started again, and one subscriber is revoked.

At the end every delivery is compared with the plaintext, and the view of each party is searched for
data that it should not have.

    python examples/whole_story.py --quotes 200
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import secrets
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from bokeh_sampledata import stocks
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ccbps import Category, Decimal, Schema, SharedSeed, UInt
from ccbps.broker import MatchingBroker, Payloads, Publication, Subscription
from ccbps.delivery import BuildUpCache, GroupOpener, GroupSealer, SubscriberKey, pack_groups
from ccbps.errors import DecodeError, RefusedError
from ccbps.filters import FilterKey, TopicTokens
from ccbps.matching import Answers, BroadcastMatch, FormulaMatch, Matcher, from_json
from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl
from ccbps.network import Certificate, Credentials, Identity, Server, connect
from ccbps.overlay.splits.fragments import Agreed, Fragment, join_fragments

K, HOPS = 3, 2
SECONDS: Final = 60.0
ISSUES = ["AAPL", "FB", "GOOG", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(ISSUES), close=Decimal("0", "655.35", "0.01"), volume=UInt(32))
DESKS: dict[str, Matcher] = {
    "formula": FormulaMatch.box(SCHEMA),
    "broadcast": BroadcastMatch.box(SCHEMA),
}
SUBSCRIBERS = {  # at which desk, on which topic, and the condition
    "alice": ("formula", "quotes/IBM", "close > 120"),
    "bob": ("formula", "quotes/IBM", "close BETWEEN 80 AND 130"),
    "carol": ("broadcast", "quotes/AAPL", "close < 100 AND volume > 9000000"),
    "dave": ("broadcast", "quotes/IBM", "volume > 6000000"),
    "erin": ("formula", "quotes/GOOG", "close > 150"),
}
LEAVER = "bob"
Queue = Any


def main() -> int:
    """Run it, and return the number of misplaced deliveries and secrets."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quotes", type=int, default=200, help="how many (default 200)")
    quotes = real_quotes(parser.parse_args().quotes)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ccbps-story-") as name, processes() as start:
        differences = Story(quotes, Path(name), start).run()
    print(f"\nseconds{time.perf_counter() - started:31.0f}")
    print(f"differences                          {differences}")
    return differences


def real_quotes(count: int) -> list[dict[str, Any]]:
    """Return quotes of all five issues, spread over their days, in turn."""
    found = []
    for n in range(count):
        issue = ISSUES[n % len(ISSUES)]
        days = getattr(stocks, issue)
        at = n * (len(days["close"]) - 1) // count
        close, volume = round(float(days["close"][at]), 2), int(days["volume"][at])
        found.append({"issue": issue, "close": min(close, 655.0), "volume": volume})
    return found


class Story:
    """Director that starts the parties, intervenes midway, and examines the results."""

    def __init__(self, quotes: list[dict[str, Any]], folder: Path, start: Any) -> None:
        self.quotes, self.folder, self.start = quotes, folder, start
        self.kill_at, self.revoke_at = len(quotes) // 3, len(quotes) // 2
        self.news, self.orders = CONTEXT.Queue(), CONTEXT.Queue()
        names = ["broker", "publisher", *SUBSCRIBERS]
        self.passwords = {one: secrets.token_hex(8) for one in names}
        hops = [f"hop {hop}.{n}" for hop in range(1, HOPS + 1) for n in range(1, K + 1)]
        identities = {name: Identity.generate() for name in ["publisher", *SUBSCRIBERS, *hops]}
        self.keys = {name: identity.export_secret() for name, identity in identities.items()}
        self.pins = {name: identity.certificate() for name, identity in identities.items()}
        self.got: dict[str, list[int]] = {}

    def run(self) -> int:
        """Run the whole story, and return the number of differences."""
        self.start(run_servers, self.passwords, self.news)
        self.urls = dict(zip(DESKS, self.wait("servers"), strict=True))
        desks = {name: self.start_desk(name) for name in DESKS}
        ends = {one: CONTEXT.Queue() for one in SUBSCRIBERS}
        for one in SUBSCRIBERS:
            url = self.urls[SUBSCRIBERS[one][0]]
            links = Links(self.keys[one], self.pins, {})
            arguments = one, url, self.passwords[one], len(self.quotes), links
            self.start(run_subscriber, *arguments, self.news, ends[one])
        addresses = {name: self.wait(f"address of {name}") for name in SUBSCRIBERS}
        for hop in range(HOPS, 0, -1):
            here = [f"hop {hop}.{n}" for n in range(1, K + 1)]
            following = [name for name in addresses if name.startswith(f"hop {hop + 1}.")]
            for name in here:
                links = Links(self.keys[name], self.pins, dict(addresses))
                self.start(run_hop, name, following, links, self.folder, self.news)
            addresses |= {name: self.wait(f"address of {name}") for name in here}
        links = Links(self.keys["publisher"], self.pins, addresses)
        stops = self.kill_at, self.revoke_at
        arguments = self.quotes, self.urls, self.passwords["publisher"], links, stops
        self.start(run_publisher, *arguments, self.folder, self.news, self.orders)
        for name in SUBSCRIBERS:
            self.wait(f"subscribed {name}")
        self.say(f"{len(SUBSCRIBERS)} subscribers have a seed, and sent encrypted conditions")
        self.orders.put("go")
        self.wait(f"at {self.kill_at}")
        os.kill(desks["formula"][0].pid, signal.SIGKILL)
        desks["formula"] = self.start_desk("formula")
        self.say(f"quote {self.kill_at}: the desk with FormulaMatch was killed, and started again")
        self.wait(f"at {self.revoke_at}")
        desks[SUBSCRIBERS[LEAVER][0]][1].put(f"revoke {LEAVER}")
        self.wait(f"revoked {LEAVER}")
        self.orders.put("go")
        self.say(f"quote {self.revoke_at}: {LEAVER} was revoked")
        encryptions, sealed_for = self.wait("published")
        for name in SUBSCRIBERS:
            ends[name].put("end")
            self.got[name] = self.wait(f"got {name}")
        counts = {}
        for name, (_, control) in desks.items():
            control.put("end")
            counts[name] = self.wait(f"counts of {name}")
        return self.compare(encryptions, sealed_for) + self.look(counts)

    def start_desk(self, name: str) -> Any:
        """Start a desk's process with a queue of orders."""
        control = CONTEXT.Queue()
        text, path = DESKS[name].to_json(), self.folder / f"desk {name}"
        arguments = name, text, self.urls[name], self.passwords["broker"], path
        process = self.start(run_desk, *arguments, self.news, control)
        self.wait(f"desk {name}")
        return process, control

    def wait(self, what: str) -> Any:
        """Wait for a party's news."""
        kept = []
        while True:
            said, content = self.news.get(timeout=SECONDS)
            if said == what:
                for other in kept:
                    self.news.put(other)
                return content
            kept.append((said, content))

    def say(self, text: str) -> None:
        print(f"  {text}")

    def compare(self, encryptions: int, sealed_for: int) -> int:
        """Compare deliveries with the plaintext."""
        print(f"\n{'':<9}{'topic':<14}{'condition':<36}{'at':<11}{'got':>5}{'meant':>7}")
        differences = 0
        for name, (desk, topic, condition) in SUBSCRIBERS.items():
            found = SCHEMA.parse(condition).evaluate(self.quotes)
            last = self.revoke_at if name == LEAVER else len(self.quotes)
            meant = [
                n for n in range(last) if found[n] and topic == f"quotes/{self.quotes[n]['issue']}"
            ]
            differences += self.got[name] != meant
            row = f"{name:<9}{topic:<14}{condition:<36}{desk:<11}"
            print(f"{row}{len(self.got[name]):>5}{len(meant):>7}")
        print(f"{sealed_for} deliveries took {encryptions} encryptions of quotes' keys")
        return differences

    def look(self, counts: dict[str, dict[str, int]]) -> int:
        """Search each party's view for data that its card says it does not learn."""
        hidden = json.loads((self.folder / "hidden.json").read_text())
        needles = [bytes.fromhex(text) for text in hidden]
        needles += [text.encode() for text in hidden]
        differences = 0
        print("\nwho learned what, by what it received:")
        for name, matcher in DESKS.items():
            seen = (self.folder / f"desk {name}.log").read_bytes()
            kept = (self.folder / f"desk {name}").read_bytes()
            found = sum(one in seen or one in kept for one in needles)
            # That the search would find them: names of clients stand there.
            differences += found + (b"publisher" not in seen) + (b"publisher" not in kept)
            card, count = matcher.leakage, counts[name]
            print(
                f"  desk {name:<10} {len(seen) >> 10} KiB; tested {count['pairs_tested']} pairs, "
                f"stopped {count['prefiltered']} quotes by their topic"
            )
            print(f"    by its card ({card.security}): {'; '.join(card.learns)}")
            print(f"    and: which tokens are equal; who gets what. Secrets found: {found}")
        for hop in range(1, HOPS + 1):
            logs = [self.folder / f"hop {hop}.{n}.log" for n in range(1, K + 1)]
            contents = [log.read_text().split() for log in logs]
            found = sum(one in " ".join(lines).encode() for lines in contents for one in needles)
            some = [Fragment.from_bytes(bytes.fromhex(one)) for one in contents[0] + contents[1]]
            try:
                join_fragments(some[:K] + some[-K:], Agreed(K, K, splits=hop))
                found += 1
            except DecodeError:
                pass
            differences += found
            sizes = ", ".join(str(len(lines)) for lines in contents)
            print(
                f"  brokers of hop {hop} {sizes} fragments; two of them together learn no seed. "
                f"Secrets found: {found}"
            )
        print("  the MQTT server: who talks to which desk, when, and how much")
        print("  the publisher: who matches, since it seals for them")
        print("  each subscriber: quotes that match its condition, and nothing of others")
        return differences


# -- the parties, each a process -----------------------------------------------------------------


def run_servers(passwords: dict[str, str], news: Queue) -> None:
    """Run an MQTT server for each desk."""
    servers = [LocalServer(passwords) for _ in DESKS]
    for server in servers:
        server.start()
    news.put(("servers", [server.url for server in servers]))
    signal.pause()


class Watched(MqttService):
    """Desk that records all messages that it receives."""

    log: Path

    def _do(self, client: str, verb: str, message: bytes) -> dict[str, Any]:
        with self.log.open("ab") as log:
            log.write(f"{client} {verb} ".encode() + message)
        return super()._do(client, verb, message)


def run_desk(
    name: str, text: str, url: str, password: str, path: Path, news: Queue, control: Queue
) -> None:
    """Run a broker that matches: it has public parameters, and no key."""
    broker = MatchingBroker(from_json(text).broker(), path=path)
    service = Watched(broker, MqttUrl(url, "broker", password))
    service.log = path.with_name(f"{path.name}.log")
    with service:
        news.put((f"desk {name}", None))
        while (order := control.get()) != "end":
            client = order.removeprefix("revoke ")
            broker.revoke(client)
            news.put((f"revoked {client}", None))
        counted = [line.split() for line in broker.metrics().splitlines() if "_total " in line]
        counts = {key[len("ccbps_") : -len("_total")]: int(float(value)) for key, value in counted}
    broker.close()
    news.put((f"counts of {name}", counts))


@dataclass(frozen=True)
class Links:
    """Means of a party to talk to others: each message goes over a connection of its own.

    Attributes:
        key: secret of its own identity.
        pins: certificates of all parties.
        addresses: addresses of the parties that listen by now.
    """

    key: bytes = field(repr=False)
    pins: dict[str, Certificate]
    addresses: dict[str, str]

    def send(self, name: str, addressee: bytes, content: bytes) -> None:
        """Send a message to a party."""
        identity, pin = Identity(self.key), self.pins[name]
        with connect(self.addresses[name], identity, pin, seconds=SECONDS) as channel:
            channel.send(addressee + b"\n", content)

    @contextmanager
    def listening(self, name: str, news: Queue) -> Iterator[Iterator[list[bytes]]]:
        """Tell the address of this party, and yield addressees and contents of messages."""
        came: queue.Queue[list[bytes]] = queue.Queue()
        credentials = Credentials(Identity(self.key), (*self.pins.values(),))
        with Server(
            credentials, lambda peer: came.put(bytes(peer.receive(1 << 20)).split(b"\n", 1))
        ) as server:
            news.put((f"address of {name}", server.address))
            yield iter(came.get, None)


def run_hop(name: str, following: list[str], links: Links, folder: Path, news: Queue) -> None:
    """Run a broker of a hop: split fragments for the next hop; the last hop passes them on."""
    with links.listening(name, news) as messages, (folder / f"{name}.log").open("w") as log:
        for addressee, content in messages:
            if addressee.startswith(b"sealed "):
                links.send(addressee[len(b"sealed ") :].decode(), addressee, content)
                continue
            log.write(content.hex() + "\n")
            log.flush()
            if not following:
                links.send(addressee.decode(), addressee, content)
                continue
            parts = Fragment.from_bytes(content).split(K)
            for other, part in zip(following, parts, strict=True):
                links.send(other, addressee, part.to_bytes())


def run_subscriber(
    name: str, url: str, password: str, count: int, links: Links, news: Queue, control: Queue
) -> None:
    """Join a seed, subscribe, and open deliveries until told to end."""
    desk, topic, condition = SUBSCRIBERS[name]
    fragments, sealed = [], b""
    with links.listening(name, news) as messages:
        while len(fragments) < K**HOPS or not sealed:
            addressee, content = next(messages)
            if addressee.startswith(b"sealed "):
                sealed = content
            else:
                fragments.append(Fragment.from_bytes(content))
    secret = join_fragments(fragments, Agreed(K, K, splits=HOPS))
    rest = json.loads(AESGCM(secret).decrypt(sealed[:12], sealed[12:], None))
    tokens = TopicTokens(FilterKey.from_text(rest["filter"]))
    opener = GroupOpener(SubscriberKey.from_text(rest["delivery"]), capacity=100)
    matcher, rounds = DESKS[desk], range(count)
    if matcher.answers is Answers.ROUND:  # one event is for all of them, so they share a seed
        subscriber = matcher.subscriber(SharedSeed.from_text(rest["broadcast"]))
        interests = subscriber.encode(condition, rounds, pairs=[f"{name}/mine"] * count)
    else:
        interests = matcher.subscriber(SharedSeed(secret)).encode(condition, rounds)
    got = []
    with MqttClient(MqttUrl(url, name, password)) as client:
        client.subscribe(Subscription("mine", interests, tokens.one(topic), "publisher", 0))
        news.put((f"subscribed {name}", None))
        ended = False
        while True:
            try:
                delivery = client.receive(0.5)
            except TimeoutError:
                if ended:
                    break
                ended = not control.empty()
                continue
            except RefusedError:  # revoked: nothing comes any more
                break
            quote = json.loads(opener.open(delivery.payload))
            got.append(quote["number"])
    news.put((f"got {name}", got))


def run_publisher(
    quotes: list[dict[str, Any]],
    urls: dict[str, str],
    password: str,
    links: Links,
    stops: tuple[int, int],
    folder: Path,
    news: Queue,
    orders: Queue,
) -> None:
    """Share seeds, publish every quote at both desks, and seal it for those who match."""
    master, broadcast, key = SharedSeed.generate(), SharedSeed.generate(), FilterKey.generate()
    tokens, numbers = TopicTokens(key), {name: n for n, name in enumerate(SUBSCRIBERS)}
    sealer = GroupSealer(BuildUpCache(len(numbers), capacity=100))
    hidden = [broadcast.export_secret(), key.export_secret(), sealer.state.export_secret()[:32]]
    for name in SUBSCRIBERS:
        secret = master.pair(f"{name}/mine").export_secret()
        own = sealer.join(numbers[name])
        hidden += [secret, own.export_secret()[4:]]
        for n, part in enumerate(Fragment.of(secret, K).split(K), start=1):
            links.send(f"hop 1.{n}", name.encode(), part.to_bytes())
        rest = {"filter": key.to_text(), "delivery": own.to_text()}
        rest["broadcast"] = broadcast.to_text()
        nonce = secrets.token_bytes(12)
        sealed = nonce + AESGCM(secret).encrypt(nonce, json.dumps(rest).encode(), None)
        links.send("hop 1.1", f"sealed {name}".encode(), sealed)
    texts = [topic for _, topic, _ in SUBSCRIBERS.values()]
    texts += [condition for _, _, condition in SUBSCRIBERS.values()] + ["close", "issue"]
    hidden += [text.encode() for text in texts]
    (folder / "hidden.json").write_text(json.dumps([one.hex() for one in hidden]))
    orders.get(timeout=SECONDS)
    labels = [f"{name}/mine" for name, (desk, *_) in SUBSCRIBERS.items() if desk == "formula"]
    feeds = {"formula": DESKS["formula"].publisher(master)}
    feeds["broadcast"] = DESKS["broadcast"].publisher(broadcast)
    deliveries = wanted = 0
    desks = {name: MqttClient(MqttUrl(url, "publisher", password)) for name, url in urls.items()}
    for client in desks.values():
        client.start()
    for n, quote in enumerate(quotes):
        if n in stops:
            news.put((f"at {n}", None))
        if n == stops[1]:
            orders.get(timeout=SECONDS)
            sealer.leave(numbers[LEAVER])
        token = tokens.one(f"quotes/{quote['issue']}")
        rows = feeds["formula"].encode([quote] * len(labels), [n] * len(labels), pairs=labels)
        events = {label: row.tobytes() for label, row in zip(labels, rows, strict=True)}
        event = feeds["broadcast"].encode([quote], [n])[0].tobytes()
        sent = {
            "formula": Publication(n, None, None, token, n, events),
            "broadcast": Publication(n, event, None, token, n),
        }
        matched = {name: desks[name].publish(one).clients for name, one in sent.items()}
        group = [numbers[one] for clients in matched.values() for one in clients]
        members = pack_groups(np.isin(range(len(numbers)), group))
        payload = json.dumps({"number": n, **quote}).encode()
        sealed = sealer.seal(payload, n, members) if group else None
        wanted += bool(group)
        for name, clients in matched.items():
            if sealed is not None and clients:
                messages = {one: sealed.for_subscriber(numbers[one]) for one in clients}
                desks[name].deliver(Payloads(n, messages))
                deliveries += len(clients)
    for client in desks.values():
        client.stop()
    # One of each quote's encryptions is that of the quote itself.
    news.put(("published", (sealer.encryptions - wanted, deliveries)))


# One clean process imports the package, and parties are forked from it: they share no secret.
CONTEXT = multiprocessing.get_context("forkserver")


@contextmanager
def processes() -> Iterator[Any]:
    """Start processes, and end them all."""
    CONTEXT.set_forkserver_preload(
        ["ccbps.mqtt", "ccbps.matching", "ccbps.network", "ccbps.overlay.splits.fragments"]
    )
    running = []

    def start(target: Any, *arguments: Any) -> Any:
        running.append(CONTEXT.Process(target=target, args=arguments, daemon=True))
        running[-1].start()
        return running[-1]

    try:
        yield start
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.join()


if __name__ == "__main__":
    raise SystemExit(main())
