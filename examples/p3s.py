"""Real stock quotes through P3S: subscribers match by themselves, and no server can.

Daily quotes (bokeh-sampledata) go to subscribers with predicates such as ``issue = 'IBM' AND price
BETWEEN 8 AND 11``. Each quote has a policy, too, such as ``desk = 'risk' OR level >= 4``, and a
subscriber reads the quotes that match its predicate and whose policy it satisfies. Processes of
their own talk over TLS, where each accepts only the certificates of its peers:

1. The token authority makes tokens for predicates, and keys for the attributes of subscribers.
2. Publishers store sealed quotes at the repository, and announce each at the dissemination server.
3. The dissemination server sends all announcements to all subscribers, who try their tokens.
4. A subscriber whose token opens an announcement fetches the quote from the repository.

At the end every delivery is compared with the plaintext, and each server shows what it saw. The
repository's list of fetches alone gives the pairs of subscribers that matched the same quotes.

    python examples/p3s.py --events 500 --subscribers 50
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import combinations
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np
from bokeh_sampledata import stocks

from ccbps import Category, Schema, UInt
from ccbps.delivery.policies import PolicyPayload
from ccbps.functional import Authority, CpAbe, HiddenVectors, PublicKey
from ccbps.network import Certificate, Credentials, Identity
from ccbps.p3s import (
    DisseminationServer,
    Line,
    Publisher,
    Repository,
    Subscriber,
    TokenAuthority,
    serve,
)
from ccbps.p3s.messages import Request

ISSUES: Final = ("AAPL", "FB", "GOOG", "IBM", "MSFT")
# Prices in steps of $50. Each bit of the metadata takes two points in every announcement.
METADATA: Final = Schema(issue=Category(ISSUES), price=UInt(4))
ATTRIBUTES: Final = Schema(desk=Category(["bonds", "risk", "shares"]), level=UInt(3))
POLICIES: Final = (
    "desk = 'shares'",
    "desk = 'risk' OR level >= 4",
    "desk IN ('risk', 'shares') AND level >= 2",
    "level >= 1",
)
SERVERS: Final = ("authority", "dissemination", "repository")
PUBLISHERS: Final = 2
BATCH: Final = 16  # quotes that are published together

Peers = dict[str, bytes]
"""Certificates by name."""


def main(arguments: list[str] | None = None) -> int:
    """Run all parties, and return the number of deliveries that differ from the plaintext."""
    options = parse(arguments)
    records, payloads = read_quotes(options.events)
    members = make_members(options.subscribers)
    publishers = [f"publisher-{number}" for number in range(PUBLISHERS)]
    identities = {name: Identity.generate() for name in (*SERVERS, *publishers, *members)}
    peers = {name: identity.certificate().der for name, identity in identities.items()}
    secrets = {name: identity.export_secret() for name, identity in identities.items()}
    attributes = {name: held for name, (_, held) in members.items()}
    print(f"{len(records):,} quotes, {len(members):,} subscribers, {PUBLISHERS} publishers\n")

    started, addresses = time.perf_counter(), {}
    with ExitStack() as stack:

        def start(target: Callable[..., None], *given: Any) -> Connection:
            return stack.enter_context(process(target, *given))

        servers = {}
        for name in SERVERS:
            given = secrets[name], peers, dict(addresses), attributes, options.pairing
            servers[name] = start(be_server, name, *given)
            addresses[name] = servers[name].recv()
        groups = [
            dict([*members.items()][at :: options.processes]) for at in range(options.processes)
        ]
        readers = [
            start(be_subscribers, group, {name: secrets[name] for name in group}, peers, addresses)
            for group in groups
        ]
        for reader in readers:
            reader.recv()  # all have their keys
            reader.send(len(records))
        ready = time.perf_counter()
        writers = []
        for at, name in enumerate(publishers):
            rows = range(at, len(records), PUBLISHERS)
            given = [(row, records[row], payloads[row]) for row in rows]
            writers.append(start(be_publisher, name, secrets[name], peers, addresses, given))
        for writer in writers:
            writer.recv()
        delivered = {name: got for reader in readers for name, got in reader.recv().items()}
        ended = time.perf_counter()
        views = {}
        for name, line in servers.items():
            line.send(None)
            views[name] = line.recv()

    expected, matching = in_plaintext(records, payloads, members)
    differences = sum(len(expected[name] ^ delivered[name]) for name in members)
    opened, matched = (sum(map(len, rows.values())) for rows in (expected, matching))
    print(f"matches                 {matched:>14,}   by predicates")
    print(f"payloads opened         {opened:>14,}   their policies hold, too")
    print(f"differences             {differences:>14,}   against the plaintext")
    print(f"seconds                 {ended - ready:>14.1f}   and {ready - started:.1f} to start\n")
    show(views, peers, matching)
    return differences


def show(views: dict[str, Any], peers: Peers, matching: dict[str, set[bytes]]) -> None:
    """Print the view of each server."""
    names = {Certificate(der).fingerprint: name for name, der in peers.items()}
    asked = views["authority"]
    print(f"The authority saw {len(asked)} predicates and no event:")
    for client, predicate in asked[:3]:
        print(f"  {names[client]}: {predicate}")

    sizes, seconds, given = views["dissemination"]
    print(f"\nThe dissemination server saw {len(sizes)} announcements in {seconds:.1f} s:")
    print(f"  bytes of each: {', '.join(f'{size:,}' for size in sorted({*sizes}))}")
    print(f"  given to: {given} subscribers, all of them")

    stored, fetches = views["repository"]
    print(f"\nThe repository saw {len(stored)} items:")
    print(f"  bytes of each: {', '.join(f'{n:,}' for n in sorted({n for n, _ in stored}))}")
    for policy in sorted({policy for _, policy in stored}):
        print(f"  policy: {policy}")
    together = co_matches(fetches)
    most = max(together.values(), key=len, default=set())
    print(f"  fetches: {len(fetches)}; the quote that most fetched: {len(most)} subscribers,")
    print(f"    {', '.join(sorted(names[client] for client in most)[:6])} ...")
    learned = {
        frozenset(names[c] for c in pair) for group in together.values() for pair in pairs(group)
    }
    holders: dict[bytes, set[str]] = defaultdict(set)
    for name, rows in matching.items():
        for row in rows:
            holders[row].add(name)
    true = {frozenset(pair) for group in holders.values() for pair in pairs(group)}
    print(f"  pairs of subscribers with a match in common: {len(learned)}, from fetches alone;")
    print(f"    {len(true)} in plaintext, {len(learned & true)} of them the same")


def co_matches(fetches: list[tuple[str, bytes]]) -> dict[bytes, set[str]]:
    """Return the clients that fetched each item: this is what the repository learns of matches."""
    out: dict[bytes, set[str]] = defaultdict(set)
    for client, guid in fetches:
        out[guid].add(client)
    return out


def pairs(group: set[str]) -> Iterator[tuple[str, str]]:
    """Return all pairs of a set."""
    return combinations(sorted(group), 2)


def in_plaintext(
    records: list[dict[str, Any]], payloads: list[bytes], members: dict[str, Any]
) -> tuple[dict[str, set[bytes]], dict[str, set[bytes]]]:
    """Return the payloads that each subscriber should open, and those whose metadata matches."""
    events, opened, matching = METADATA.encode(records), {}, {}
    for name, (predicate, held) in members.items():
        holds = [
            ATTRIBUTES.parse(policy).evaluate(ATTRIBUTES.encode([held]))[0] for policy in POLICIES
        ]
        rows = np.flatnonzero(METADATA.parse(predicate).evaluate(events))
        matching[name] = {payloads[row] for row in rows}
        opened[name] = {payloads[row] for row in rows if holds[row % len(POLICIES)]}
    return opened, matching


# -- processes ------------------------------------------------------------------------------------


@contextmanager
def process(target: Callable[..., None], *given: Any) -> Iterator[Connection]:
    """Start a process; yield a line to it, and wait for its end."""
    context = multiprocessing.get_context("spawn")
    line, other = context.Pipe()
    started = context.Process(target=target, args=(*given, other), daemon=True)
    started.start()
    other.close()
    try:
        yield line
    finally:
        started.join(10)


def be_server(
    name: str,
    secret: bytes,
    peers: Peers,
    addresses: dict[str, str],
    members: dict[str, Any],
    pairing: str,
    line: Connection,
) -> None:
    """Be one of the servers until told to end; then tell what it saw."""
    identity, certificates = Identity(secret), {n: Certificate(der) for n, der in peers.items()}
    prints = {n: certificate.fingerprint for n, certificate in certificates.items()}
    publishers = [prints[n] for n in peers if n.startswith("publisher")]
    seen: list[tuple[float, str, Request]] = []

    def log(client: str, request: Request) -> None:
        seen.append((time.monotonic(), client, request))

    role: Any
    if name == "authority":
        metadata = Authority.generate(HiddenVectors(METADATA, pairing=pairing))
        access = Authority.generate(CpAbe(ATTRIBUTES, pairing=pairing))
        by_print = {prints[n]: attributes for n, attributes in members.items()}
        role = TokenAuthority(metadata, access, by_print, log=log)
    else:
        with Line(addresses["authority"], identity, certificates["authority"]) as authority:
            keys = [PublicKey.from_bytes(key) for key in authority(Request("public")).contents]
        if name == "dissemination":
            role = DisseminationServer(keys[0], publishers, log=log)
        else:
            role = Repository(keys[1], publishers, log=log)
    others = tuple(certificate for n, certificate in certificates.items() if n != name)
    with serve(role, Credentials(identity, others)) as server:
        line.send(server.address)
        line.recv()
    if name == "authority":
        line.send([(who, r.content.decode()) for _, who, r in seen if r.verb == "token"])
    elif name == "dissemination":
        took = [(at, len(r.content)) for at, _, r in seen if r.verb == "announce"]
        given = len({who for _, who, r in seen if r.verb == "listen"})
        line.send(([size for _, size in took], took[-1][0] - took[0][0], given))
    else:
        stored = [
            (len(r.content), keys[1].read(PolicyPayload.from_bytes(r.content).capsule).text)
            for _, _, r in seen
            if r.verb == "store"
        ]
        line.send((stored, [(who, r.guid) for _, who, r in seen if r.verb == "fetch"]))


def ways(secret: bytes, peers: Peers, addresses: dict[str, str], stack: ExitStack) -> list[Line]:
    """Connect a client to the three servers, and return the connections."""
    return [
        stack.enter_context(Line(addresses[name], Identity(secret), Certificate(peers[name])))
        for name in SERVERS
    ]


def be_publisher(
    name: str,
    secret: bytes,
    peers: Peers,
    addresses: dict[str, str],
    quotes: list[tuple[int, dict[str, Any], bytes]],
    line: Connection,
) -> None:
    """Publish quotes, batch by batch; those of a batch have one policy."""
    with ExitStack() as stack:
        publisher = Publisher.enrol(*ways(secret, peers, addresses, stack))
        for kind, policy in enumerate(POLICIES):
            mine = [quote for quote in quotes if quote[0] % len(POLICIES) == kind]
            for start in range(0, len(mine), BATCH):
                _, records, payloads = zip(*mine[start : start + BATCH], strict=True)
                publisher.publish(records, payloads, policy)
    line.send(name)


def be_subscribers(
    members: dict[str, tuple[str, dict[str, Any]]],
    secrets: dict[str, bytes],
    peers: Peers,
    addresses: dict[str, str],
    line: Connection,
) -> None:
    """Be several subscribers, each with its own keys and connections; tell what they read."""
    with ExitStack() as stack:
        subscribers = {
            name: Subscriber.enrol([predicate], *ways(secrets[name], peers, addresses, stack))
            for name, (predicate, _) in members.items()
        }
        line.send("ready")
        events = line.recv()

        def read(subscriber: Subscriber) -> set[bytes]:
            opened = set()
            while subscriber.position < events:
                opened |= {
                    delivery.payload for delivery in subscriber.receive() if delivery.payload
                }
            return opened

        with ThreadPoolExecutor(max(1, len(members))) as pool:
            line.send(dict(zip(members, pool.map(read, subscribers.values()), strict=True)))


# -- data -----------------------------------------------------------------------------------------


def read_quotes(count: int) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Return quotes that are spread over all years: their metadata, and their payloads."""
    rows = sorted(
        (data["date"][i], issue, data["close"][i], data["volume"][i])
        for issue in ISSUES
        for data in (getattr(stocks, issue),)
        for i in range(len(data["date"]))
    )
    chosen = [rows[int(at)] for at in np.linspace(0, len(rows) - 1, count)]
    records = [
        {"issue": issue, "price": min(int(close // 50), 15)} for _, issue, close, _ in chosen
    ]
    texts = [
        f"{at}: {day} {issue} closed at {close:.2f}, volume {volume}"
        for at, (day, issue, close, volume) in enumerate(chosen)
    ]
    return records, [text.encode() for text in texts]


def make_members(count: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return subscribers by name: predicates, and attributes; the same every time."""
    rng = np.random.default_rng(2012)
    desks, usual = ["bonds", "risk", "shares"], {"AAPL": 2, "FB": 0, "GOOG": 8, "IBM": 2, "MSFT": 0}
    members = {}
    for number in range(count):
        issue = ISSUES[rng.integers(len(ISSUES))]
        low = usual[issue] + 2 * int(rng.integers(2))
        predicate = [
            f"issue = '{issue}' AND price BETWEEN {low} AND {low + 1}",
            f"issue = '{issue}'",
            f"price >= {8 if number % 8 else 12}",
            f"issue = '{issue}' AND price < {low + 2}",
        ][number % 4]
        held = {"desk": desks[rng.integers(3)], "level": int(rng.integers(8))}
        members[f"subscriber-{number:02}"] = predicate, held
    return members


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=60, help="quotes (default: 60)")
    parser.add_argument("--subscribers", type=int, default=8, help="(default: 8)")
    parser.add_argument(
        "--processes", type=int, default=2, help="processes of subscribers (default: 2)"
    )
    parser.add_argument(
        "--pairing",
        default="bls12-381",
        choices=["bls12-381", "transparent"],
        help="transparent is not secret, and fast (default: bls12-381)",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
