"""From no common secret to confidential matching, through brokers that nobody trusts.

A publisher and a subscriber have never met. Between them are five hops, each of three brokers;
every broker is a process of its own, and messages travel over TLS (`ccbps.network`).

1. The publisher draws a seed and splits it into three fragments, all of which are needed, one for
   each broker of the first hop. ISSPS: each broker splits its fragment again, for the next hop.
2. HyShare: at one or two hops stands a simulated enclave. It alone joins the fragments and splits
   the seed afresh, so that their number falls to three again; its host sees ciphertexts. (It is
   simulated, and protects against nobody who owns the machine.)
3. Both ends make a `SharedSeed` of the seed, and a broker matches messages that it cannot read.

k = n = 3: the source's formulas are for k = n, two brokers of a hop learn nothing together, and a
broker that fails loses the secret. Links are secure channels, as in the source: each party accepts
only certificates that it was given before. Messages to and from enclaves are encrypted once more.

    python examples/bootstrap_then_match.py
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing import connection
from multiprocessing.queues import Queue
from threading import Lock
from typing import Any, Final, TypeAlias

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps.errors import DecodeError
from ccbps.keys.plain_key import SigningKey
from ccbps.matching import FormulaMatch
from ccbps.network import Certificate, Channel, Credentials, Identity, Server, connect
from ccbps.overlay.enclave.attestation import ENCLAVE, Member, Policy, measure
from ccbps.overlay.enclave.enclave import SealedQueue, SimulatedEnclave, SimulatedPlatform
from ccbps.overlay.enclave.sessions import SealedFragment, Session
from ccbps.overlay.splits.fragments import Agreed, Fragment, join_fragments
from ccbps.records import read, write
from ccbps.wire import Kind

HOPS, K = 5, 3
MOST: Final = 1 << 20  # bytes of a message
REFUSAL: Final = "not a request and its content"
SECONDS: Final = 30.0  # after which everybody gives up
LAYOUTS: Final = {  # at which hops there is an enclave, in place of three brokers
    "ISSPS": (),
    "HyShare, an enclave at hop 3": (3,),
    "HyShare, enclaves at hops 2 and 4": (2, 4),
}
MATCHER = FormulaMatch.box(Schema(issue=Category(["AAPL", "IBM", "MSFT"]), price=UInt(9)))
QUOTES = [("IBM", 119), ("IBM", 121), ("MSFT", 90), ("IBM", 42)]
EVENTS = [{"issue": issue, "price": price} for issue, price in QUOTES]
INTEREST = "issue = 'IBM' AND price < 120"

Place = tuple[str, str]  # address, and certificate in hexadecimal digits
Brokers = dict[str, tuple[Place, bytes]]  # where it listens, and its identity to enclaves
Places = dict[str, Place]
Ready: TypeAlias = "Queue[tuple[str, Place, bytes]]"  # of those that have started
Seen = dict[str, dict[str, list[bytes]]]  # in a layout, by a broker
Seeds = dict[str, tuple[bytes, bytes]]  # in a layout: the publisher's, the subscriber's


def main() -> int:
    """Run all layouts, and return the number of wrong counts, seeds and answers."""
    print(f"{HOPS} hops of {K} brokers, each a process; all {K} fragments of a split are needed\n")
    platform = SigningKey.generate()
    own = Identity.generate()
    with broker_processes(platform, own.certificate()) as brokers:
        differences, seeds, seen = bootstrap(brokers, platform.identity, own)
    look_over_shoulders(seen)
    differences += match(seeds)
    print(f"\ndifferences                          {differences}")
    return differences


def bootstrap(brokers: Brokers, platform: bytes, own: Identity) -> tuple[int, Seeds, Seen]:
    """Share a seed in every layout; return differences, both ends' seeds, and all views."""
    pins = [certificate for (_, certificate), _ in brokers.values()]
    links = {name: reach(place, own) for name, (place, _) in brokers.items()}
    for link in links.values():
        ask(link, b"pin", json.dumps(pins).encode())
    print(f"{'messages':<36}{'sent':>8}{'formula':>10}{'most at a broker':>19}")
    differences, seeds, seen = 0, {}, {}
    for layout, enclaves in LAYOUTS.items():
        seed, end = os.urandom(32), Subscriber(splits_before(HOPS + 1, enclaves))
        with Server(Credentials(own, pinned(pins)), end.handle) as server:
            place = server.address, own.certificate().der.hex()
            # One after the other: enclaves first, since their neighbours attest them.
            for name, plan in make_plans(enclaves, brokers, platform, place).items():
                ask(links[name], b"configure", json.dumps(plan).encode())
            for name, part in zip(of_hop(1), Fragment.of(seed, K).split(K), strict=True):
                links[name].send(write((b"fragment", part.to_bytes())))
            seeds[layout] = seed, end.secret.result(SECONDS)
            seen[layout] = {
                name: read(list[bytes], ask(links[name], b"seen"), refusal=REFUSAL)
                for name in links
            }
        received = [len(messages) for messages in seen[layout].values()]
        count = sum(received) + len(end.came)
        print(f"{layout:<36}{count:>8}{formula(enclaves):>10}{max(received):>19}")
        differences += (count != formula(enclaves)) + (len({*seeds[layout]}) != 1)
    return differences, seeds, seen


def formula(enclaves: tuple[int, ...]) -> int:
    """Return the messages by the source's rule; without enclaves k + k^2 + ... + k^h + k^h."""
    # With f fragments a broker sends f k to brokers, f to others; an enclave sends k.
    total = fragments = K
    for hop in range(1, HOPS + 1):
        if hop in enclaves:
            fragments = K
        elif hop < HOPS and hop + 1 not in enclaves:
            fragments *= K
        total += fragments
    return total


def look_over_shoulders(seen: Seen) -> None:
    """Show the view of a curious broker, and let two brokers try to join their fragments."""
    print("\nbroker 3.1, which is curious or hosts an enclave, saw")
    for layout, logs in seen.items():
        kind = "sealed" if logs["3.1"][0][0] == Kind.SEALED_FRAGMENT else "plain"
        print(f"  {layout:<36}{len(logs['3.1'])} {kind:<7} ...{logs['3.1'][0][-12:].hex()}")
    logs = seen["ISSPS"]
    known = [Fragment.from_bytes(m) for name in of_hop(HOPS)[1:] for m in logs[name]]
    agreed = Agreed(K, K, splits=HOPS)
    print(f"\n{K - 1} of the {K} brokers of hop {HOPS} collude:")
    try:
        join_fragments(known, agreed)
        raise SystemExit("this must not happen: too few fragments were joined")
    except DecodeError as refused:
        print(f"  {refused}")


def match(seeds: Seeds) -> int:
    """Match, by a broker with no seed; return the number of answers that differ from plaintext."""
    print(f"\n{INTEREST}, of " + ", ".join(f"{issue} {price}" for issue, price in QUOTES))
    rounds, differences = [*range(len(EVENTS))], 0
    for layout, (publishers, subscribers) in seeds.items():
        events = MATCHER.publisher(SharedSeed(publishers)).encode(EVENTS, rounds=rounds)
        interests = MATCHER.subscriber(SharedSeed(subscribers)).encode(INTEREST, rounds=rounds)
        found = MATCHER.broker().match(events, interests)
        print(f"  {layout:<36}{[*map(bool, found)]}")
        differences += int((found != MATCHER.schema.parse(INTEREST).evaluate(EVENTS)).sum())
    return differences


def of_hop(hop: int) -> list[str]:
    return [f"{hop}.{number}" for number in range(1, K + 1)]


def splits_before(hop: int, enclaves: tuple[int, ...]) -> int:
    """Return how often fragments were split that come to a hop which does not split them."""
    return hop - 1 - max((enclave for enclave in enclaves if enclave < hop), default=0)


def make_plans(
    enclaves: tuple[int, ...], brokers: Brokers, platform: bytes, end: Place
) -> dict[str, dict[str, Any]]:
    """Return the public plan of each broker; brokers with an enclave first."""
    names = {hop: f"enclave {hop}" for hop in enclaves}
    hosts = {f"{hop}.1": name for hop, name in names.items()}
    members = {name: identity for name, (_, identity) in brokers.items()}
    places = {name: place for name, (place, _) in brokers.items()} | {"subscriber": end}
    places |= {name: places[host] for host, name in hosts.items()}
    members |= dict.fromkeys(names.values(), ENCLAVE)
    routes = {name: tuple(of_hop(hop + 1)) for hop, name in names.items()}
    sources = {name: tuple(of_hop(hop - 1)) for hop, name in names.items()}
    splits = {name: splits_before(hop, enclaves) for hop, name in names.items()}
    agreed = Policy(platform, measure(), K, K, members, routes, sources, splits)
    policy = agreed.to_bytes().hex()
    plans: dict[str, dict[str, Any]] = {}
    for broker in sorted(brokers, key=lambda name: name not in hosts):
        hop = int(broker.split(".")[0])
        near = [names[other] for other in (hop - 1, hop + 1) if other in names]
        following = [names[hop + 1]] if hop + 1 in names else of_hop(hop + 1)
        following = following if hop < HOPS else ["subscriber"]
        plans[broker] = {"policy": policy, "enclave": hosts.get(broker, "")}
        plans[broker]["attest"] = {name: places[name] for name in near}
        plans[broker]["next"] = {name: places[name] for name in following}
    return plans


@contextmanager
def broker_processes(platform: SigningKey, owner: Certificate) -> Iterator[Brokers]:
    """Start all brokers; yield their addresses and identities."""
    # One clean process imports the package, and brokers are forked from it: they share no secret.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["ccbps.matching", "ccbps.network", "ccbps.overlay.enclave.enclave"]
    )
    ready: Ready = context.Queue()
    # The platform's key stands for one in a processor; only machines with an enclave have it.
    chips = {f"{hop}.1" for enclaves in LAYOUTS.values() for hop in enclaves}
    processes = []
    try:
        for name in [name for hop in range(1, HOPS + 1) for name in of_hop(hop)]:
            arguments = name, platform.export_secret() if name in chips else b"", owner, ready
            processes.append(context.Process(target=run_broker, args=arguments, daemon=True))
            processes[-1].start()
        started = [ready.get(timeout=SECONDS) for _ in processes]
        yield {name: (place, identity) for name, place, identity in started}
    finally:
        for process in processes:
            process.terminate()
            process.join()


def pinned(pins: list[str]) -> tuple[Certificate, ...]:
    return tuple(Certificate(bytes.fromhex(digits)) for digits in pins)


def reach(place: Place, own: Identity) -> Channel:
    """Connect to a party, in the name of a party that it has pinned."""
    return connect(place[0], own, *pinned([place[1]]), seconds=SECONDS)


def ask(link: Channel, request: bytes, content: bytes = b"") -> bytes:
    """Send a request and wait for its answer."""
    link.send(write((request, content)))
    return bytes(link.receive(MOST))


def run_broker(name: str, platform: bytes, owner: Certificate, ready: Ready) -> None:
    with suppress(KeyboardInterrupt):
        Broker(name, platform, owner).serve(ready)


class Broker:
    """Broker that splits each fragment again or, with an enclave, hands ciphertexts in and out."""

    enclave: SimulatedEnclave | None = None

    def __init__(self, name: str, platform: bytes, owner: Certificate) -> None:
        self.name, self.key, self.own = name, SigningKey.generate(), Identity.generate()
        self.platform = SimulatedPlatform(SigningKey(platform)) if platform else None
        self.peers, self.lock, self.next = (owner,), Lock(), list[Channel]()

    def serve(self, ready: Ready) -> None:
        """Work until the process that started this one ends, or time is up."""
        parent = multiprocessing.parent_process()
        assert parent is not None
        # Peers are looked up for each connection.
        with Server(lambda _: Credentials(self.own, self.peers), self.handle) as server:
            place = server.address, self.own.certificate().der.hex()
            ready.put((self.name, place, self.key.identity))
            connection.wait([parent.sentinel], 2 * SECONDS)

    def handle(self, link: Channel) -> None:
        """Answer the messages of one connection."""
        while True:
            request, content = read(tuple[bytes, bytes], link.receive(MOST), refusal=REFUSAL)
            with self.lock:
                if request == b"fragment":
                    self.forward(content)
                    continue
                answer = write(self.seen) if request == b"seen" else b""
                if request == b"pin":
                    self.peers += pinned(json.loads(content))
                elif request == b"configure":
                    self.configure(**json.loads(content))
                elif request == b"attest" and self.enclave:
                    answer = self.enclave.attest(content)
                elif request == b"open" and self.enclave:
                    self.enclave.open(content)
            link.send(answer)

    def configure(self, policy: str, enclave: str, attest: Places, next: Places) -> None:
        """Connect to the next hop, and attest the enclaves next to this broker."""
        if self.enclave:
            self.enclave.close()
        self.seen: list[bytes] = []
        agreed, self.sessions = Policy.from_bytes(bytes.fromhex(policy)), {}
        self.queue = SealedQueue(agreed.agreed(enclave)) if enclave else None
        self.enclave = self.platform.launch(enclave, agreed) if enclave and self.platform else None
        self.to_enclave: Session | None = None
        for other, place in attest.items():
            with reach(place, self.own) as link:
                member = Member(self.name, self.key, agreed)
                quote = ask(link, b"attest", member.challenge(other))
                session, opening = member.accept(other, quote)
                ask(link, b"open", opening)
            self.sessions[session.name] = session
            self.to_enclave = session if other in next else self.to_enclave
        for link in self.next:
            link.close()
        self.next = [reach(place, self.own) for place in next.values()]

    def forward(self, message: bytes) -> None:
        """Handle one fragment."""
        self.seen.append(message)
        if self.enclave and self.queue:
            enough, out = self.queue.add(message), []
            if enough:
                out = self.enclave.regenerate(enough)
                self.queue.done(message)
        else:
            if message[0] == Kind.SEALED_FRAGMENT:
                session = SealedFragment.from_bytes(message).session
                fragment = self.sessions[session].open(message)
            else:
                fragment = Fragment.from_bytes(message)
            parts = fragment.split(K) if len(self.next) == K else [fragment]
            seal = self.to_enclave.seal if self.to_enclave else Fragment.to_bytes
            out = [seal(part) for part in parts]
        for link, part in zip(self.next if out else [], out, strict=True):
            link.send(write((b"fragment", part)))


class Subscriber:
    """Subscriber that waits for all fragments, and joins them."""

    def __init__(self, splits: int) -> None:
        self.agreed, self.came = Agreed(K, K, splits), list[Fragment]()
        self.secret, self.lock = Future[bytes](), Lock()

    def handle(self, link: Channel) -> None:
        while True:
            _, message = read(tuple[bytes, bytes], link.receive(MOST), refusal=REFUSAL)
            with self.lock:
                self.came.append(Fragment.from_bytes(message))
                if len(self.came) == K**self.agreed.splits:
                    self.secret.set_result(join_fragments(self.came, self.agreed))


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
