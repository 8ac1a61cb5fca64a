"""Guarded brokers on a line of eight, in three domains, or on other links."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from ccbps import EpochSeed, Schema, UInt
from ccbps.access import (
    Body,
    Clearance,
    Connections,
    DomainManager,
    DomainMap,
    HopPolicy,
    HopRule,
    KeyRing,
    Label,
    Party,
    Stamp,
)
from ccbps.access.domains import KeyGrant
from ccbps.keys import ExchangeKey, SigningKey
from ccbps.overlay import GuardedBroker, GuardedMessage, Links, PlainRelation, Publication

RELATION = PlainRelation(Schema(x=UInt(6)))
LINE = {f"B{n}": "clinic" if n < 4 else "carrier" if n < 6 else "registry" for n in range(1, 9)}
PAIRS = (("clinic", "carrier"), ("carrier", "registry"))
ALL = Label({"patient", "trial"})
KEYS = {name: SigningKey.generate() for name in [*LINE, *(f"c{n}" for n in range(1, 9)), "eve"]}
"""Keys of brokers, of a client c<n> at each broker B<n>, and of one more."""
OPEN = HopPolicy((HopRule("allow"),))


class World:
    """Brokers on a line, or with other links, a topic of "clinic" with member "registry"."""

    def __init__(
        self,
        domains: dict[str, str] = LINE,
        links: Any = None,
        *,
        policies: dict[str, HopPolicy] | None = None,
        labels: dict[str, Label] | None = None,
        forbidden: Any = (),
        outer: Label | None = None,
        pairs: Any = PAIRS,
        rate: float | None = None,
        verify: Any = "every hop",
    ) -> None:
        names = [*domains]
        self.parties = {
            name: Party(key.identity, (labels or {}).get(name, ALL if name in domains else Label()))
            for name, key in KEYS.items()
        }
        self.clearances = {name: Clearance(5) for name in self.parties}
        keys = {name: ExchangeKey.generate() for name in {*domains.values()}}
        seed, signing = EpochSeed.generate(), SigningKey.generate()
        self.manager = DomainManager("clinic", seed, signing, keys["clinic"].public)
        managers = {"clinic": self.manager.identity}
        self.map = DomainMap(
            domains, links or pairwise(names), Connections(pairs), managers=managers
        )
        self.links = Links(self.map.links)
        self.rings = {name: KeyRing(name, key, managers) for name, key in keys.items()}
        self.sent: list[tuple[str, str, GuardedMessage]] = []
        self.got: Counter[tuple[str, int, bytes]] = Counter()
        self.order: list[str] = []
        self.number = 0
        self.brokers: dict[str, GuardedBroker] = {}
        for name in names:
            self.start(name, (policies or {}).get(name, OPEN), rate=rate, verify=verify)
        for topic in ("vitals", "trial"):
            grants = [self.manager.found(topic, forbidden=forbidden, outer=outer)]
            if "registry" in keys and "registry" not in forbidden:
                grants.append(self.manager.admit(topic, "registry", keys["registry"].public))
            self.tell(topic, grants)

    def start(self, name: str, policy: HopPolicy, **options: Any) -> None:
        world = self

        class Node:
            def receive(self, sender: str, message: Any) -> None:
                world.sent.append((sender, name, message))
                world.brokers[name].receive(sender, message)

        def deliver(client: str, publication: Publication) -> None:
            self.got[client, publication.number, publication.payload] += 1
            self.order.append(client)

        self.brokers[name] = GuardedBroker(
            self.links.attach(name, Node()), self.map, self.rings[self.map.domain(name)],
            KEYS[name], self.parties, self.clearances.get, RELATION, policy, deliver, **options,
        )  # fmt: skip

    def tell(self, topic: str, grants: list[bytes]) -> list[tuple[str, str, int]]:
        """Hand grants and the manager's notice to everybody."""
        for grant in grants:
            self.rings[KeyGrant.from_bytes(grant).recipient].take(grant)
        self.map.take(self.manager.notice(topic))
        ended = [end for broker in self.brokers.values() for end in broker.refresh(topic)]
        self.links.run()
        return ended  # type: ignore[return-value]

    def home(self, client: str) -> GuardedBroker:
        return self.brokers[f"B{client[1:]}"]

    def stamped(
        self, kind: Any, client: str, content: bytes, label: Label | None = None, **fields: Any
    ) -> tuple[Stamp, Body]:
        self.number += 1
        topic = fields.pop("topic", "vitals")
        body = Body.of(content, b"payload" * (kind == "event"))
        key = KEYS[client]
        return Stamp.sign(key, kind, client, self.number, topic, body, label, **fields), body

    def add(self, kind: Any, client: str, text: str, label: Label | None = None, **f: Any) -> int:
        self.home(client).add(*self.stamped(kind, client, RELATION.filter_bytes(text), label, **f))
        self.links.run()
        return self.number

    def subscribe(self, client: str, text: str = "TRUE", *labels: Label, **fields: Any) -> int:
        return self.add("subscription", client, text, *labels, **fields)

    def advertise(self, client: str, text: str = "TRUE", **fields: Any) -> int:
        return self.add("advertisement", client, text, **fields)

    def publish(self, client: str, x: int, label: Label | None = None, **fields: Any) -> set[str]:
        """Publish an event; return the clients that got it."""
        content = RELATION.event_bytes({"x": x})
        self.got.clear()
        self.home(client).publish(*self.stamped("event", client, content, label, **fields))
        self.links.run()
        assert all(count == 1 and n == self.number for (_, n, _), count in self.got.items())
        assert {payload for _, _, payload in self.got} <= {b"payload"}
        return {name for name, _, _ in self.got}

    def last(self, sender: str, receiver: str, kind: type = Publication) -> GuardedMessage:
        """The last message of a class that one broker got from another."""
        return next(
            message
            for by, to, message in reversed(self.sent)
            if (by, to) == (sender, receiver) and isinstance(message.message, kind)
        )

    def dropped(self) -> dict[str, Counter[str]]:
        return {name: broker.dropped for name, broker in self.brokers.items() if broker.dropped}
