"""A broker of an overlay: it routes events by covering subscriptions and advertisements.

The overlay is a tree whose links keep the order of messages. A broker has links to neighbours and
to clients, and keeps for each link L the subscriptions T[L] and advertisements A[L] that came over
it. To a neighbour N it sends the *maximal* ones of all that came over other links: those that no
other one covers. Of two equal ones, the one with the lesser name stays. Subscriptions go only where
an advertisement that intersects them came from.

What changes at N is sent before what it replaces is withdrawn (make before break), so that no event
gets lost between the two. An event goes once over each link where some subscription matches it.

Only the owner of a name may withdraw it: names hold the client's name, which the edge checks. An
event outside of its publisher's advertisements is refused at the edge.

When a link breaks, all that came over it is withdrawn. When it is there again, both ends send all
that the other should have. Events carry their publisher's name and a number; a broker that has seen
a number of a publisher drops it and all earlier ones, so nothing arrives twice.

Leak: a broker sees which subscriptions cover which, and which events match them.
Hazard: one client that withdraws a wide subscription makes brokers send all that it covered. Quotas
of withdrawals are the edge's business.
Source: [CRW01] (Siena) for covering and advertisements; SPECS 6.5 and C5, which correct it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta

from ccbps.checks import Printable, flag, number
from ccbps.errors import RefusedError
from ccbps.overlay.routing.relations import Relation
from ccbps.records import Message, Number
from ccbps.wire import Kind

VERSION: Final = 1
Owner = Annotated[str, Meta(max_length=256)]
Name = tuple[Owner, Number]
"""Name of a filter: its owner, and a number of the owner's."""
Subject: TypeAlias = Literal["subscription", "advertisement"]
MERGED: Final = "~"
"""Owner of merged subscriptions: no client has this name."""
KINDS: Final[tuple[Subject, Subject]] = ("advertisement", "subscription")


class Add(Message, frozen=True):
    """Message: a subscription or advertisement that the sender wants events for, or has.

    Attributes:
        kind: "subscription" or "advertisement".
        name: name of the filter.
        content: bytes of the filter.
    """

    front: ClassVar[bytes] = bytes([Kind.ROUTING, VERSION, 1])
    what: ClassVar[str] = "a filter for a broker"
    kind: Subject
    name: Name
    content: bytes


class Withdraw(Message, frozen=True):
    """Message: the end of a subscription or advertisement."""

    front: ClassVar[bytes] = bytes([Kind.ROUTING, VERSION, 2])
    what: ClassVar[str] = "a withdrawal for a broker"
    kind: Subject
    name: Name


class Publication(Message, frozen=True):
    """Message: an event.

    Attributes:
        publisher: name of the client.
        number: number of the event, which rises with each event of this publisher.
        content: bytes of the event.
        payload: bytes that brokers pass on.
    """

    front: ClassVar[bytes] = bytes([Kind.ROUTING, VERSION, 3])
    what: ClassVar[str] = "an event for a broker"
    publisher: Owner
    number: Number
    content: bytes
    payload: bytes = b""


RoutingMessage: TypeAlias = Add | Withdraw | Publication


@dataclass(frozen=True, slots=True)
class _Filter:
    """A filter in a table, as bytes and as the relation read it."""

    content: bytes
    parsed: Any = field(repr=False)


_Table: TypeAlias = dict[Name, _Filter]


class Router(Printable):
    """The routing code of a broker, without any connection.

    Args:
        relation: knowledge of the content of filters and events.
        send: function from a neighbour's name and a message, which sends it.
        deliver: function from a client's name and a publication, which delivers it.
        advertise: True if subscriptions go only where advertisements come from.
        slack: number of events. Subscriptions are merged into one, on their way to a neighbour,
            where it matches at most so many events that none of them matches. None merges nothing,
            and 0 only those that together are one filter.

    Attributes:
        tables: filters by kind and link.
        sent: filters that were sent, by kind and neighbour.
    """

    def __init__(
        self,
        relation: Relation,
        send: Callable[[str, RoutingMessage], None],
        deliver: Callable[[str, Publication], None],
        *,
        advertise: bool = True,
        slack: float | None = None,
    ) -> None:
        self.relation, self._send, self._deliver = relation, send, deliver
        self.slack = None if slack is None else number("slack", slack, 0)
        self.advertise = flag("advertise", advertise)
        self.tables: dict[Subject, dict[str, _Table]] = {kind: {} for kind in KINDS}
        self.sent: dict[Subject, dict[str, dict[Name, _Filter]]] = {kind: {} for kind in KINDS}
        self._seen: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Router: {len(self.sent['subscription'])} neighbours, {self.entries} entries>"

    @property
    def entries(self) -> int:
        """Number of subscriptions in all tables."""
        return sum(map(len, self.tables["subscription"].values()))

    # -- links ----------------------------------------------------------------------------------

    def connect(self, neighbour: str) -> None:
        """Take up a link to a neighbour, and send it what it should have.

        After a break without `disconnect`, what came over the link before stays.
        """
        for kind in KINDS:
            self.tables[kind].setdefault(neighbour, {})
            self.sent[kind][neighbour] = {}
        for kind in KINDS:
            self._sync(kind, neighbour)

    def disconnect(self, link: str) -> None:
        """Forget a neighbour or a client, and withdraw all that came over its link."""
        for kind in KINDS:
            self.sent[kind].pop(link, None)
        for kind in KINDS:
            for name in [*self.tables[kind].get(link, ())]:
                self._remove(kind, link, name)
            self.tables[kind].pop(link, None)

    def receive(self, neighbour: str, message: RoutingMessage) -> None:
        """Take a message from a neighbour; of a link that is not taken up it is dropped.

        Raises:
            DecodeError: the content is none that the relation reads.
        """
        if neighbour not in self.sent["subscription"]:
            return
        if isinstance(message, Publication):
            self._forward(neighbour, message)
        elif isinstance(message, Add):
            self._add(message.kind, neighbour, message.name, message.content)
        else:
            self._remove(message.kind, neighbour, message.name)

    # -- clients --------------------------------------------------------------------------------

    def add(self, kind: Subject, client: str, number: int, content: bytes) -> None:
        """Take a subscription or advertisement from a client, who was authenticated.

        Raises:
            DecodeError: the content is none.
        """
        self._add(kind, client, (client, number), content)

    def withdraw(self, kind: Subject, client: str, number: int) -> None:
        """End a client's subscription or advertisement; one that is not there is no error."""
        self._remove(kind, client, (client, number))

    def publish(self, client: str, number: int, content: bytes, payload: bytes = b"") -> None:
        """Take an event from a client, who was authenticated.

        Raises:
            RefusedError: it is outside of the client's advertisements.
            DecodeError: the content is none.
        """
        if self.advertise:
            event = self.relation.read_event(content)
            own = [held.parsed for held in self.tables["advertisement"].get(client, {}).values()]
            if not self.relation.matches(event, own).any():
                raise RefusedError(
                    f"an event of {client!r} is outside of its advertisements: advertise it first",
                    reason="order",
                )
        self._forward(client, Publication(client, number, content, payload))

    # -- events ---------------------------------------------------------------------------------

    def _forward(self, link: str, publication: Publication) -> None:
        """Send an event over all other links where a subscription matches it."""
        event = self.relation.read_event(publication.content)
        if publication.number <= self._seen.get(publication.publisher, -1):
            return
        self._seen[publication.publisher] = publication.number
        for other, table in self.tables["subscription"].items():
            if other == link or not table:
                continue
            if self.relation.matches(event, [held.parsed for held in table.values()]).any():
                act = self._send if other in self.sent["subscription"] else self._deliver
                act(other, publication)

    # -- filters --------------------------------------------------------------------------------

    def _add(self, kind: Subject, link: str, name: Name, content: bytes) -> None:
        parsed = self.relation.read_filter(content)
        table = self.tables[kind].setdefault(link, {})
        if name in table:
            if table[name].content == content:
                return
            self._remove(kind, link, name)
        table[name] = held = _Filter(content, parsed)
        for neighbour in self._others(link):
            if self._merges(kind):
                self._sync(kind, neighbour)
            elif kind == "advertisement" or self._is_wanted(neighbour, held):
                self._offer(kind, neighbour, name, held)
        if kind == "advertisement" and link in self.sent["subscription"]:
            self._sync("subscription", link)

    def _remove(self, kind: Subject, link: str, name: Name) -> None:
        held = self.tables[kind].get(link, {}).pop(name, None)
        if held is None:
            return
        for neighbour in self._others(link):
            if self._merges(kind):
                self._sync(kind, neighbour)
            elif name in self.sent[kind][neighbour]:
                self._replace(kind, neighbour, name, held)
        if kind == "advertisement" and link in self.sent["subscription"]:
            self._sync("subscription", link)

    def _others(self, link: str) -> list[str]:
        return [neighbour for neighbour in self.sent["subscription"] if neighbour != link]

    def _is_wanted(self, neighbour: str, held: _Filter) -> bool:
        """Tell whether an advertisement of a neighbour intersects a subscription."""
        if not self.advertise:
            return True
        known = [other.parsed for other in self.tables["advertisement"][neighbour].values()]
        return bool(self.relation.intersects(held.parsed, known).any())

    def _candidates(self, kind: Subject, neighbour: str) -> dict[Name, _Filter]:
        """Return the filters that a neighbour may have to know."""
        return {
            name: held
            for link, table in self.tables[kind].items()
            if link != neighbour
            for name, held in table.items()
            if kind == "advertisement" or self._is_wanted(neighbour, held)
        }

    def _offer(self, kind: Subject, neighbour: str, name: Name, held: _Filter) -> None:
        """Send one more filter, unless one that was sent is above it; withdraw those below it."""
        sent = self.sent[kind][neighbour]
        names, parsed = [*sent], [other.parsed for other in sent.values()]
        above = self.relation.covered(held.parsed, parsed).tolist()
        below = self.relation.covers(held.parsed, parsed).tolist()
        # Equal ones cover each other: the lesser name stays.
        if any(
            up and (not down or other < name)
            for other, up, down in zip(names, above, below, strict=True)
        ):
            return
        sent[name] = held
        self._send(neighbour, Add(kind, name, held.content))
        for other, down in zip(names, below, strict=True):
            if down:
                del sent[other]
                self._send(neighbour, Withdraw(kind, other))

    def _replace(self, kind: Subject, neighbour: str, name: Name, held: _Filter) -> None:
        """Send what only a withdrawn filter covered, then withdraw it."""
        sent, rest = self.sent[kind][neighbour], self._candidates(kind, neighbour)
        del sent[name]
        names, parsed = [*rest], [other.parsed for other in rest.values()]
        below = self.relation.covers(held.parsed, parsed).tolist()
        chosen = {other: rest[other] for other, down in zip(names, below, strict=True) if down}
        for other in self._maximal(chosen):
            if other not in sent:
                self._offer(kind, neighbour, other, chosen[other])
        self._send(neighbour, Withdraw(kind, name))

    def _sync(self, kind: Subject, neighbour: str) -> None:
        """Send a neighbour all that it should have and does not, then withdraw the rest."""
        candidates, sent = self._candidates(kind, neighbour), self.sent[kind][neighbour]
        wanted = {name: candidates[name] for name in self._maximal(candidates)}
        if self._merges(kind):
            wanted = self._merged(wanted)
        surplus = [name for name in sent if name not in wanted]
        for name, held in wanted.items():
            if name not in sent:
                sent[name] = held
                self._send(neighbour, Add(kind, name, held.content))
        for name in surplus:
            del sent[name]
            self._send(neighbour, Withdraw(kind, name))

    def _merges(self, kind: Subject) -> bool:
        return self.slack is not None and kind == "subscription"

    def _merged(self, filters: dict[Name, _Filter]) -> dict[Name, _Filter]:
        """Merge filters. What is merged is named by its content, so that a change is a new name."""
        names = {held.content: name for name, held in filters.items()}
        merged: dict[Name, _Filter] = {}
        parsed = [held.parsed for held in filters.values()]
        for content in self.relation.merged(parsed, self.slack or 0.0):
            digest = int.from_bytes(sha256(content).digest()[:7])
            merged[names.get(content, (MERGED, digest))] = _Filter(
                content, self.relation.read_filter(content)
            )
        return merged

    def _maximal(self, filters: dict[Name, _Filter]) -> dict[Name, None]:
        """Return the names of the filters that no other one covers."""
        names, parsed = [*filters], [held.parsed for held in filters.values()]
        dropped: set[Name] = set()
        for name, held in filters.items():
            if name in dropped:
                continue
            below = self.relation.covers(held.parsed, parsed).tolist()
            above = self.relation.covered(held.parsed, parsed).tolist()
            dropped |= {
                other
                for other, down, up in zip(names, below, above, strict=True)
                if down and other != name and (not up or name < other)
            }
        return {name: None for name in names if name not in dropped}
