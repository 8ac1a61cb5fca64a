"""Forgeries: a bogus broker alters events that it passes on, and forges others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal, Protocol

from msgspec import structs

from ccbps.access.domains import DomainManager, DomainMap, KeyRing, SealedMessage
from ccbps.access.hops import Clearance, Connections, HopPolicy, HopRule
from ccbps.access.labels import Body, Label, Party, Stamp, Subject
from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.checks import Printable, whole
from ccbps.keys.plain_key import ExchangeKey, SigningKey
from ccbps.keys.seeds import EpochSeed
from ccbps.overlay.guarded import GuardedBroker, GuardedMessage
from ccbps.overlay.links import Links
from ccbps.overlay.routing.relations import PlainRelation
from ccbps.overlay.routing.router import Add, Publication, Router, RoutingMessage
from ccbps.predicates import Schema, UInt

RELATION: Final = PlainRelation(Schema(x=UInt(6)))
BROKERS: Final = ("first", "bogus", "next", "last")
"""Brokers on a line. The publisher is at the first, the subscriber at the last."""
TOPICS: Final = ("topic", "other topic")
MADE_UP: Final = "copies what proves the publisher"
"""Forgery that makes an event up and uses one new number."""


def alterations(
    message: GuardedMessage, broker: str, key: SigningKey, *, topic: str, other: str, number: int
) -> dict[str, GuardedMessage]:
    """Return altered versions of an event at a bogus broker, by the names of the forgeries.

    Args:
        message: the event as the broker got it.
        broker: name of the broker.
        key: key of the broker.
        topic: another topic.
        other: another publisher.
        number: number that the publisher has not used.
    """
    publication = message.message
    assert isinstance(publication, Publication)
    sealed = SealedMessage.from_bytes(publication.content)
    stamp, change = sealed.stamp, structs.replace
    own = Stamp.sign(key, "event", broker, number, message.topic, Body.of(b"made up"))

    def outside(**fields: Any) -> GuardedMessage:
        return replace(message, message=change(publication, **fields))

    def inside(
        stamp: Stamp = stamp, outer: dict[str, Any] | None = None, **fields: Any
    ) -> GuardedMessage:
        content = change(sealed, stamp=stamp, **fields).to_bytes()
        return outside(content=content, **(outer or {}))

    return {
        "strips the label": inside(change(stamp, origin=Label())),
        "declassifies without the right": inside(stamp.relabel(broker, key, Label())),
        "lowers the privacy level": inside(change(stamp, privacy=0)),
        "sends it again under a new number": inside(
            change(stamp, number=number), {"number": number}
        ),
        "takes another number outside": outside(number=number),
        "takes another publisher outside": outside(publisher=other),
        "adds a payload": outside(payload=b"advert"),
        "says another epoch": inside(epoch=sealed.epoch + 1),
        "moves it to another topic": inside(change(stamp, topic=topic)),
        "puts an own stamp on it": inside(own, {"publisher": broker, "number": number}),
        "alters the content": inside(sealed=sealed.sealed[:-1] + bytes([sealed.sealed[-1] ^ 1])),
    }


def member_forgeries(
    message: GuardedMessage, key: SigningKey, topic_key: bytes, number: int
) -> dict[str, GuardedMessage]:
    """Return events that a broker makes up in the publisher's name, with the key of the topic.

    Args:
        message: an event of the publisher.
        key: key of the broker.
        topic_key: key of the topic, which brokers of member domains have.
        number: number that the publisher has not used.
    """
    publication = message.message
    assert isinstance(publication, Publication)
    sealed = SealedMessage.from_bytes(publication.content)
    stamp, body = sealed.stamp, Body.of(RELATION.event_bytes({"x": 2}), b"made up")
    copied = structs.replace(stamp, number=number, commitment=body.commitment)
    signed = Stamp.sign(key, "event", stamp.owner, number + 1, stamp.topic, body, stamp.origin)
    bare = structs.replace(copied, number=number + 2, origin=Label())

    def sent(stamp: Stamp) -> GuardedMessage:
        content = SealedMessage.seal(stamp, body, sealed.epoch, topic_key).to_bytes()
        return replace(message, message=Publication(stamp.owner, stamp.number, content))

    return {
        "signs itself": sent(signed),
        "copies the signature, without the label": sent(bare),
        MADE_UP: sent(copied),
    }


class Line(Protocol):
    """Brokers on a line, one of them bogus, with a publisher before it and a subscriber behind it.

    Attributes:
        delivered: number of deliveries.
    """

    delivered: int

    def event(self, number: int) -> Any:
        """Let the publisher publish; return what the bogus broker got."""

    def forgeries(self, message: Any, number: int) -> dict[str, Any]:
        """Return all forgeries, with numbers from `number` on."""

    def send(self, message: Any) -> bool:
        """Let the bogus broker send a message, and tell whether the subscriber gets it."""


class GuardedLine(Printable):
    """Guarded brokers on a line, all of one domain, and a topic that they may read.

    Args:
        verify: "every hop", or "border" for brokers that trust those of their domain.

    Attributes:
        links: simulated links.
        brokers: brokers by name.
        keys: keys of brokers and clients.
        held: events that the bogus broker got and withholds.
        delivered: number of deliveries.
    """

    def __init__(self, verify: Literal["every hop", "border"]) -> None:
        self.keys = {name: SigningKey.generate() for name in (*BROKERS, "publisher", "subscriber")}
        label = Label({"patient"})
        parties = {name: Party(key.identity, label) for name, key in self.keys.items()}
        exchange, signing = ExchangeKey.generate(), SigningKey.generate()
        manager = DomainManager("home", EpochSeed.generate(), signing, exchange.public)
        managers = {"home": manager.identity}
        domains = dict.fromkeys(BROKERS, "home")
        self.map = DomainMap(domains, pairwise(BROKERS), Connections(()), managers=managers)
        self.ring = KeyRing("home", exchange, managers)
        self.links = Links(self.map.links)
        self.held: list[GuardedMessage] = []
        self.delivered = 0
        self.brokers: dict[str, GuardedBroker] = {}
        for name in BROKERS:
            self.brokers[name] = GuardedBroker(
                self.links.attach(name, _Node(self, name)),
                self.map,
                self.ring,
                self.keys[name],
                parties,
                dict.fromkeys(parties, Clearance(5)).get,
                RELATION,
                HopPolicy((HopRule("allow"),)),
                self._count,
                verify=verify,
            )
        for topic in TOPICS:
            self.ring.take(manager.found(topic))
            self.map.take(manager.notice(topic))
            for broker in self.brokers.values():
                broker.refresh(topic)
            self.links.run()
        self.speak("advertisement", "publisher", RELATION.filter_bytes("TRUE"))
        self.speak("subscription", "subscriber", RELATION.filter_bytes("TRUE"))

    def __repr__(self) -> str:
        return f"<GuardedLine: {self.delivered} deliveries>"

    def _count(self, client: str, publication: Publication) -> None:
        self.delivered += 1

    def speak(self, kind: Subject, client: str, content: bytes, number: int = 1) -> None:
        """Let a client advertise, subscribe or publish."""
        home, body = self.brokers["first" if client == "publisher" else "last"], Body.of(content)
        label, privacy = Label({"patient"}), 5 if kind == "event" else 0
        stamp = Stamp.sign(
            self.keys[client], kind, client, number, TOPICS[0], body, label, privacy=privacy
        )
        if kind == "event":
            home.publish(stamp, body)
        else:
            home.add(stamp, body)
        self.links.run()

    def event(self, number: int) -> GuardedMessage:
        """Let the publisher publish; return what the bogus broker got."""
        self.speak("event", "publisher", RELATION.event_bytes({"x": 1}), number)
        return self.held[-1]

    def forgeries(self, message: GuardedMessage, number: int) -> dict[str, GuardedMessage]:
        """Return all forgeries, with numbers from `number` on."""
        key, topic = self.keys["bogus"], self.map.topic(TOPICS[0])
        topic_key = self.ring.key(topic, topic.epoch)
        assert topic_key is not None
        altered = alterations(
            message, "bogus", key, topic=TOPICS[1], other="subscriber", number=number
        )
        return altered | member_forgeries(message, key, topic_key, number)

    def send(self, message: GuardedMessage) -> bool:
        """Let the bogus broker send a message, and tell whether the subscriber gets it."""
        before = self.delivered
        self.brokers["next"].receive("bogus", message)
        self.links.run()
        return self.delivered > before


class PlainLine(Printable):
    """Routers on a line that trust one another, behind a bogus broker.

    Attributes:
        delivered: number of deliveries.
    """

    def __init__(self) -> None:
        self.delivered = 0
        self.routers: dict[str, Router] = {}
        for name, neighbours in (("next", ("bogus", "last")), ("last", ("next",))):
            self.routers[name] = Router(RELATION, partial(self._pass, name), self._count)
            for neighbour in neighbours:
                self.routers[name].connect(neighbour)
        everything = RELATION.filter_bytes("TRUE")
        self.send(Add("advertisement", ("publisher", 1), everything))
        self.routers["last"].add("subscription", "subscriber", 1, everything)

    def __repr__(self) -> str:
        return f"<PlainLine: {self.delivered} deliveries>"

    def _pass(self, sender: str, receiver: str, message: RoutingMessage) -> None:
        if receiver in self.routers:
            self.routers[receiver].receive(sender, message)

    def _count(self, client: str, publication: Publication) -> None:
        self.delivered += 1

    def event(self, number: int) -> Publication:
        """Return an event of the publisher as the bogus broker got it."""
        return Publication("publisher", number, RELATION.event_bytes({"x": 1}), b"payload")

    def forgeries(self, message: Publication, number: int) -> dict[str, Publication]:
        """Return all forgeries, with numbers from `number` on."""
        change, content = structs.replace, RELATION.event_bytes({"x": 2})
        return {
            "sends it again under a new number": change(message, number=number + 1),
            "takes another publisher": change(message, publisher="subscriber"),
            "adds a payload": change(message, payload=b"advert", number=number + 2),
            "makes up another publisher": Publication("nobody", number, content),
            MADE_UP: change(message, content=content, number=number),
        }

    def send(self, message: RoutingMessage) -> bool:
        """Let the bogus broker send a message, and tell whether the subscriber gets it."""
        before = self.delivered
        self.routers["next"].receive("bogus", message)
        return self.delivered > before


class _Node(Printable):
    """Connections of a broker. The bogus one keeps events to itself."""

    def __init__(self, line: GuardedLine, name: str) -> None:
        self.line, self.name = line, name

    def __repr__(self) -> str:
        return f"<_Node {self.name}>"

    def receive(self, sender: str, message: Any) -> None:
        """Hand a message to the broker."""
        if self.name == "bogus" and isinstance(message.message, Publication):
            self.line.held.append(message)
        else:
            self.line.brokers[self.name].receive(sender, message)


def delivered_forgeries(line: Line) -> float:
    """Return the share of forgeries that the subscriber gets.

    Args:
        line: brokers behind the bogus one.
    """
    each = [line.send(one) for one in line.forgeries(line.event(1), 2).values()]
    return sum(each) / len(each)


@attack(
    title="A broker alters events that it passes on, and makes others up",
    goal="integrity",
    adversary="a broker on the path of events, which has the key of the topic",
    defence="signed events, examined at every hop (`GuardedBroker`)",
    source="[Survey]",
    taxonomy=Taxonomy("semantic", "broker", "client", "multi-hop", "stateless", "proportional"),
)
def forged_events(*, most: int = 8) -> Outcome:
    """Send forged events in the name of a publisher along a line of brokers.

    Without the defence, routers believe what a neighbour sends. With it, brokers examine the
    signature of the publisher, its label, its number and the topic. If brokers believe those of
    their own domain instead, a bogus member forges what it likes.

    A forged event also takes a number away from the publisher: the genuine event with this number
    is then dropped as a repetition.

    Args:
        most: largest number of forgeries for each genuine event, of the curve, 1 to 100.

    Example:
        >>> from ccbps.attacks import forged_events
        >>> outcome = forged_events()
        >>> forged = outcome["forgeries delivered"]
        >>> forged.undefended, forged.defended
        (1.0, 0.0)
    """
    counts = range(whole("most", most, 1, 100) + 1)

    def kept_out(line: Line) -> float:
        """Return 1.0 if forgeries with the number of the next event keep that event out."""
        for forged in line.forgeries(line.event(1), 2).values():
            line.send(forged)
        return float(not line.send(line.event(2)))

    def genuine(line: Line) -> tuple[float, ...]:
        """Return the share of deliveries that are genuine, for each number of forgeries."""
        shares, number = [], 1
        for count in counts:
            event, before = line.event(number), line.delivered
            for place in range(count):
                line.send(line.forgeries(event, number + 1 + place)[MADE_UP])
            number += count + 1
            arrived = line.send(event)
            shares.append(arrived / max(1, line.delivered - before))
        return tuple(shares)

    plain = delivered_forgeries(PlainLine())
    lines: dict[str, Callable[[], Line]] = {
        "without defence": PlainLine,
        "with signatures at borders": partial(GuardedLine, "border"),
        "with signatures at every hop": partial(GuardedLine, "every hop"),
    }
    believed, examined = (delivered_forgeries(GuardedLine(v)) for v in ("border", "every hop"))
    return Outcome(
        (
            Figure("forgeries delivered", "", plain, examined),
            Figure("forgeries delivered, the own domain believed", "", plain, believed),
            Figure(
                "genuine event kept out",
                "",
                kept_out(PlainLine()),
                kept_out(GuardedLine("every hop")),
            ),
        ),
        Curve(
            "forgeries for each genuine event",
            "deliveries that are genuine (share)",
            tuple(map(float, counts)),
            {name: genuine(line()) for name, line in lines.items()},
        ),
    )
