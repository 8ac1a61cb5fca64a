"""Real stock quotes, matched by three brokers that learn nothing but who matched.

Twelve thousand daily quotes (bokeh-sampledata) meet private subscriptions such as
``issue = 'IBM' AND close < 95 AND volume > 8000000``. Quotes and subscriptions are encoded once.
Three brokers run in processes of their own, each with its key and its shares. They talk over TLS,
where each accepts only the certificates of the other two. Two of them together could read
everything, so three organisations would run them.

1. Clients agree on keys with each broker, by its public key. They have no key in common.
2. Subscribers share their predicates between the brokers, and the publisher its quotes.
3. The brokers match all quotes with all predicates, batch by batch.
4. Midway some subscriptions are removed, and others come.

At the end every answer is compared with the plaintext filter, and each broker's shares of a quote
are shown beside the quote.

    python examples/three_brokers.py --events 12154 --subscribers 1000
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from bokeh_sampledata import stocks
from tqdm import tqdm

from ccbps import Category, Decimal, Schema, UInt
from ccbps.matching import ThreeBrokerMatch
from ccbps.network import Certificate, Channel, Credentials, Identity, Server, connect
from ccbps.shares.clients import HEAD_BYTES, BrokerKey, part_of
from ccbps.shares.ring import Ring

ISSUES = ("AAPL", "FB", "GOOG", "IBM", "MSFT")
SCHEMA = Schema(
    issue=Category(ISSUES),
    close=Decimal(0, "1310.71", step="0.01"),
    volume=UInt(30),
)
MATCHER = ThreeBrokerMatch.box(SCHEMA)
BATCH = 2_000  # quotes of a message


def main(arguments: list[str] | None = None) -> int:
    """Run all parties, and return the number of answers that differ from the plaintext filter."""
    options = parse(arguments)
    records, predicates = read_quotes(options.events), make_predicates(options.subscribers)
    events, count = SCHEMA.encode(records), len(predicates)
    print(f"{events.count:,} quotes, {count:,} private subscriptions\n{MATCHER.explain()}\n")
    expected = np.stack([SCHEMA.parse(text).evaluate(events) for text in predicates], axis=1)
    with brokers() as (lines, public):
        publisher, subscriber = MATCHER.publisher(public), MATCHER.subscriber(public)
        for client in (publisher, subscriber):
            tell(lines, "greet", client.hellos)
        sent, wanted = publisher.encode(events), subscriber.encode(predicates)
        # The last tenth of the subscriptions comes midway, when the first tenth leaves.
        late = count - count // 10
        share(lines, "subscribe", wanted[:late])
        live = np.arange(count) < late
        differences, started = 0, time.perf_counter()
        bar = tqdm(total=events.count, unit=" quotes", disable=None)
        for start in range(0, events.count, BATCH):
            if start <= events.count // 2 < start + BATCH:
                share(lines, "subscribe", wanted[late:])
                tell(lines, "remove", [range(count // 10)] * 3)
                live = np.arange(count) >= count // 10
            rows = slice(start, start + BATCH)
            answers = share(lines, "publish", sent[rows])
            right = expected[rows] & live
            for got in answers:
                differences += int((got != right[:, : got.shape[1]]).sum())
            bar.update(len(sent[rows]))
        bar.close()
        took = time.perf_counter() - started
        views, traffic = tell(lines, "look", [0] * 3), tell(lines, "traffic", [0] * 3)
    pairs = events.count * count
    print(f"pairs matched           {pairs:>14,}")
    print(f"matches                 {int(expected.sum()):>14,}   of all pairs, if none had left")
    print(f"differences             {differences:>14,}   against the plaintext, at each broker")
    print(f"bytes per event         {MATCHER.event_bytes:>14,}   once, {HEAD_BYTES} of them head")
    print(f"bytes per subscription  {MATCHER.interest_bytes:>14,}   once")
    bits = 8 * np.mean(traffic) / pairs
    print(f"bits a pair             {bits:>14.1f}   sent by each broker to the next one")
    print(f"events a second         {events.count / took:>14,.0f}\n")
    print("The first quote, and the shares of its first digits at each broker:")
    print("  " + ", ".join(f"{name} {column[0]}" for name, column in records.items()))
    for number, view in enumerate(views):
        print(f"  broker {number}: {view[0]}, {view[1]}")
    return differences


# -- brokers --------------------------------------------------------------------------------------


@contextmanager
def brokers() -> Iterator[tuple[list[Connection], list[bytes]]]:
    """Start three brokers; yield a line to each, and their public keys."""
    context = multiprocessing.get_context("spawn")
    identities = [Identity.generate() for _ in range(3)]
    certificates = [identity.certificate().der for identity in identities]
    lines, processes = [], []
    for number in range(3):
        line, other = context.Pipe()
        secret = identities[number].export_secret()
        arguments = number, secret, certificates, other
        processes.append(context.Process(target=serve, args=arguments, daemon=True))
        processes[-1].start()
        lines.append(line)
    public, addresses = zip(*(line.recv() for line in lines), strict=True)
    for line in lines:
        line.send(addresses)
    try:
        yield lines, list(public)
    finally:
        for line in lines:
            line.send(None)
        for process in processes:
            process.join()


def serve(number: int, secret: bytes, certificates: list[bytes], line: Connection) -> None:
    """Be a broker: connect to the other two, and do what clients ask for."""
    identity, key = Identity(secret), BrokerKey.generate()
    lower, upper = (Certificate(certificates[(number + step) % 3]) for step in (-1, 1))
    arrived: queue.SimpleQueue[Channel] = queue.SimpleQueue()
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()

    def keep(channel: Channel) -> None:
        arrived.put(channel)
        ended.get()  # the channel closes when this function returns

    with Server(Credentials(identity, (upper,)), keep) as server:
        line.send((key.public, server.address))
        below = connect(line.recv()[number - 1], identity, lower)
        with Ring(number, below, arrived.get(), MATCHER.digest) as ring:
            broker = MATCHER.broker(number, key, ring)
            seen: Any = None
            while (request := line.recv()) is not None:
                order, content = request
                answer: Any = None
                if order == "greet":
                    broker.greet(content)
                elif order == "subscribe":
                    broker.subscribe(content)
                elif order == "remove":
                    broker.table.remove(np.array(content))
                elif order == "publish":
                    seen = content[:1] if seen is None else seen
                    answer, _ = broker.publish(content)
                elif order == "look":
                    answer = [share[0, :24].tolist() for share in broker.shares("event", seen)]
                    answer = ["".join(map(str, bits)) for bits in answer]
                elif order == "traffic":
                    answer = ring.sent_bytes
                line.send(answer)
        ended.put(None)


def tell(lines: list[Connection], order: str, contents: Any) -> list[Any]:
    """Give each broker an order with its content, and return their answers."""
    for line, content in zip(lines, contents, strict=True):
        line.send((order, content))
    return [line.recv() for line in lines]


def share(lines: list[Connection], order: str, messages: np.ndarray) -> list[Any]:
    """Send messages to the three brokers, each its part, and return their answers."""
    return tell(lines, order, [part_of(number, messages) for number in range(3)])


# -- clients --------------------------------------------------------------------------------------


def read_quotes(count: int) -> dict[str, Any]:
    """Return the first `count` quotes in order of time, as columns."""
    rows = [
        (data["date"][i], issue, round(data["close"][i], 2), data["volume"][i])
        for issue in ISSUES
        for data in (getattr(stocks, issue),)
        for i in range(len(data["date"]))
    ]
    chosen = sorted(rows)[:count]
    _, *columns = zip(*chosen, strict=True)
    names = "issue", "close", "volume"
    return {name: np.array(column) for name, column in zip(names, columns, strict=True)}


def make_predicates(count: int) -> list[str]:
    """Make price alerts, bands and volume spikes, the same every time."""
    rng = np.random.default_rng(2000)
    usual = {"AAPL": 150, "FB": 28, "GOOG": 480, "IBM": 115, "MSFT": 30}
    texts = []
    for number in range(count):
        issue = ISSUES[rng.integers(5)]
        price, volume = usual[issue] * rng.uniform(0.6, 1.5), int(rng.integers(2, 60)) * 1_000_000
        texts.append(
            [
                f"issue = '{issue}' AND close < {price:.2f}",
                f"issue = '{issue}' AND close >= {price:.2f} AND volume > {volume}",
                f"close BETWEEN {price:.2f} AND {price * 1.1:.2f} AND volume >= {volume}",
                f"volume > {volume * 3}",
            ][number % 4]
        )
    return texts


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=12_154, help="quotes (default: all)")
    parser.add_argument("--subscribers", type=int, default=1_000, help="(default: 1,000)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
