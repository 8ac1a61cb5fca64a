"""Events that no publisher sent, or sent once: a broker on the way repeats and invents them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import numpy as np
from msgspec import structs

from ccbps.access.domains import DomainManager, DomainMap, KeyRing, SealedMessage
from ccbps.access.hops import Clearance, Connections, HopPolicy, HopRule
from ccbps.access.labels import Body, Party, Stamp, Subject
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.checks import whole
from ccbps.keys.plain_key import ExchangeKey, SigningKey
from ccbps.keys.seeds import EpochSeed
from ccbps.overlay.guarded import GuardedBroker, GuardedMessage
from ccbps.overlay.links import Links, Port
from ccbps.overlay.routing.relations import PlainRelation
from ccbps.overlay.routing.router import Publication, Router
from ccbps.overlay.seen_numbers import WINDOW
from ccbps.predicates import Schema, UInt

RELATION: Final = PlainRelation(Schema(price=UInt(8)))
TOPIC: Final = "prices"
PARTIES: Final = ("adversary", "client", "edge", "feed")

Deliver = Callable[[str, Publication], None]


def routing_edge(deliver: Deliver) -> Router:
    """Make a router that has a client, and the adversary as its neighbour."""
    edge = Router(RELATION, lambda *_: None, deliver, advertise=False)
    edge.connect("adversary")
    edge.add("subscription", "client", 0, RELATION.filter_bytes("TRUE"))
    return edge


def guarded_edge(
    keys: Mapping[str, SigningKey], deliver: Deliver, verify: Literal["every hop", "border"]
) -> tuple[GuardedBroker, Callable[[Stamp, Body], bytes]]:
    """Make a guarded broker that has a client, and the adversary as its neighbour.

    Both brokers are in one domain, so the adversary has the key of its topics.

    Args:
        keys: keys of the parties.
        deliver: function from a client's name and a publication, which delivers it.
        verify: whether the broker examines signatures at "every hop" or a domain's "border".

    Returns:
        the broker, and a function that seals messages as every broker of the domain can.
    """
    exchange = ExchangeKey.generate()
    signing = SigningKey.generate()
    manager = DomainManager("domain", EpochSeed.generate(), signing, exchange.public)
    managers = {"domain": manager.identity}
    ring, grant = KeyRing("domain", exchange, managers), manager.found(TOPIC)
    ring.take(grant)
    brokers, links = {"adversary": "domain", "edge": "domain"}, Links([("adversary", "edge")])
    domains = DomainMap(brokers, [("adversary", "edge")], Connections(()), managers=managers)
    topic = domains.take(manager.notice(TOPIC))
    key = ring.key(topic, topic.epoch)
    assert key is not None
    edge = GuardedBroker(
        Port(links, "edge"),
        domains,
        ring,
        keys["edge"],
        {name: Party(each.identity) for name, each in keys.items()},
        {"client": Clearance(0)}.get,
        RELATION,
        HopPolicy((HopRule("allow"),)),
        deliver,
        advertise=False,
        verify=verify,
    )
    edge.refresh(TOPIC)
    edge.add(*stamped(keys["client"], "client", "subscription", 0, RELATION.filter_bytes("TRUE")))
    return edge, lambda stamp, body: SealedMessage.seal(stamp, body, topic.epoch, key).to_bytes()


def stamped(
    key: SigningKey, owner: str, kind: Subject, number: int, content: bytes
) -> tuple[Stamp, Body]:
    """Sign a message under the name of its owner, with whatever key."""
    body = Body.of(content)
    return Stamp.sign(key, kind, owner, number, TOPIC, body), body


@attack(
    title="A broker repeats events, and makes some up",
    goal="integrity",
    adversary="a broker next to that of a client, of the same domain: it has the key of the topic, "
    "and not the publisher's signing key",
    defence="the publisher's signature over number and content, examined at every hop, and then "
    "numbers that count once (`GuardedBroker`)",
)
def replay(*, copies: int = 3, events: int = 25, seed: int = 1) -> Outcome:
    """Send every event again, under new numbers, and beside invented events.

    For each true event, the adversary sends `copies` copies of it, as many with a number of its
    own, and as many invented events. A broker without any defence would deliver all of them. A
    `Router` looks at numbers, and delivers what has a new one. One number that is far ahead then
    makes it drop the true events that follow, as too old. A `GuardedBroker` first examines the
    signature, so it learns numbers from the publisher only. If it examines signatures at the border
    of its domain only, it believes the adversary, which is inside.

    Args:
        copies: number of false events of each kind for a true one.
        events: number of true events.
        seed: seed of the events.

    Example:
        >>> from ccbps.attacks import replay
        >>> print(replay(copies=2, events=10))
                                              without defence  with defence  expected
        false events taken for a true one                   6             0         6
        false events taken, by numbers alone                4
        true events taken                                   1             1
        true events taken, by numbers alone               0.1
    """
    whole("copies", copies, 0, 1 << 10)
    whole("events", events, 1, 1 << 12)
    random = np.random.default_rng(whole("seed", seed, 0))
    keys = {name: SigningKey(random.bytes(SigningKey.length)) for name in PARTIES}

    def simulate(copies: int) -> dict[str, tuple[float, float]]:
        """Return false and true events that are taken, for each true one."""
        taken = {name: [0, 0] for name in ("all", "numbers", "border", "every hop")}
        is_true = 1

        def counting(name: str) -> Deliver:
            def deliver(client: str, publication: Publication) -> None:
                taken[name][is_true] += 1

            return deliver

        router = routing_edge(counting("numbers"))
        guarded = [
            guarded_edge(keys, counting("border"), "border"),
            guarded_edge(keys, counting("every hop"), "every hop"),
        ]
        for event in range(events):
            true, invented = (
                RELATION.event_bytes({"price": int(price)}) for price in random.integers(0, 256, 2)
            )
            sent = [stamped(keys["feed"], "feed", "event", event, true)] * (1 + copies)
            for copy in range(copies):
                # Numbers far ahead, which no true event has had.
                ahead = WINDOW * (1 + event * copies + copy)
                sent.append((structs.replace(sent[0][0], number=ahead), sent[0][1]))
                sent.append(stamped(keys["adversary"], "feed", "event", ahead + 1, invented))
            for place, (stamp, body) in enumerate(sent):
                is_true = int(not place)
                taken["all"][is_true] += 1
                router.receive("adversary", Publication("feed", stamp.number, body.content))
                for edge, seal in guarded:
                    message = Publication("feed", stamp.number, seal(stamp, body))
                    edge.receive("adversary", GuardedMessage(TOPIC, message))
        return {name: (false / events, true / events) for name, (false, true) in taken.items()}

    places = sorted({0, 1, 2, copies})
    runs = [simulate(each) for each in places]
    last = runs[places.index(copies)]
    (false, true), by_numbers, signed = last["all"], last["numbers"], last["every hop"]
    return Outcome(
        (
            Figure("false events taken for a true one", "", false, signed[0], 3 * copies),
            Figure("false events taken, by numbers alone", "", by_numbers[0]),
            Figure("true events taken", "", true, signed[1]),
            Figure("true events taken, by numbers alone", "", by_numbers[1]),
        ),
        Curve(
            "false events of each kind for a true one",
            "false events taken for a true one",
            tuple(map(float, places)),
            {
                "without defence": tuple(run["all"][0] for run in runs),
                "with numbers alone": tuple(run["numbers"][0] for run in runs),
                "with signatures at borders": tuple(run["border"][0] for run in runs),
                "with signatures at every hop": tuple(run["every hop"][0] for run in runs),
            },
        ),
    )
