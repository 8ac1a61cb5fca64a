"""A broker of an overlay: it routes events by covering subscriptions and advertisements.

The overlay is a tree whose links keep the order of messages. A broker has links to neighbours and
to clients, and keeps for each link L the subscriptions T[L] and advertisements A[L] that came over
it. To a neighbour N it sends the *maximal* filters of all other links, those that no other filter
covers. Of two equal filters, the one with the lesser name stays. Subscriptions go only where an
advertisement that intersects them came from.

New filters are sent to N before the filters that they replace are withdrawn (make before break), so
no event gets lost in between. An event goes once over each link where some subscription matches it.

Only the owner of a name may withdraw it: names hold the client's name, which the edge checks. An
event outside of its publisher's advertisements is refused at the edge. A client that moves may have
one name at two brokers for a while; if its contents differ there, one of them travels under a hash.

When a link breaks, all filters that came over it are withdrawn. When it is there again, both ends
send all filters that the other should have. Events carry their publisher's name and a number; a
broker drops a number that it has seen, or that is far below the latest one, so nothing arrives
twice.

If a relation does not find all covers, brokers send more filters, but lose no event.

Leak: a broker sees which subscriptions cover which, and which events match them. It keeps some 600
bytes for each publisher that it has heard of.
Hazard: a client that withdraws a wide subscription makes brokers send all those that it covered.
The edge must limit withdrawals.
Source: [CRW01] (Siena) for covering and advertisements, with corrections.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from ccbps.arrays import Bools
from ccbps.checks import Printable, choice, flag, number, whole
from ccbps.errors import ParameterError, RefusedError
from ccbps.overlay.routing.relations import Relation
from ccbps.overlay.seen_numbers import WINDOW, SeenNumbers
from ccbps.records import Message, Number
from ccbps.wire import Kind

K = TypeVar("K", bound=Hashable)

VERSION: Final = 1
Owner = Annotated[str, Meta(max_length=256)]
Name = tuple[Owner, Number]
"""Name of a filter: its owner, and a number of the owner's."""
Subject: TypeAlias = Literal["subscription", "advertisement"]
MERGED: Final = "~"
"""First character of the owner of a filter that has no owner, such as a merged one. No client's
name begins with it."""
KINDS: Final[tuple[Subject, Subject]] = ("advertisement", "subscription")


class Add(Message, frozen=True):
    """Message: a subscription of the sender for events, or its advertisement of events.

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
        number: number of the event, 0 or more, unique for this publisher.
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


class _Filters(dict[K, bytes]):
    """The contents of filters by key, and their forms in the relation as rows of one array.

    Attributes:
        keys_of_rows: key of each row.
    """

    def __init__(self) -> None:
        super().__init__()
        self.keys_of_rows: list[K] = []
        self._places: dict[K, int] = {}
        self._space: NDArray[Any] = np.empty(0)

    @property
    def rows(self) -> NDArray[Any]:
        """Rows that the relation read, one for each filter; valid until the next change."""
        return self._space[: len(self)]

    def row(self, key: K) -> NDArray[Any]:
        """Return the row that the relation read of one filter."""
        return np.array(self._space[self._places[key]])

    def places(self, keys: Iterable[K]) -> NDArray[np.intp]:
        """Return the rows of some filters."""
        return np.array([self._places[key] for key in keys], dtype=np.intp)

    def put(self, key: K, content: bytes, parsed: NDArray[Any]) -> None:
        """Add a filter, or give it another content."""
        place = self._places.setdefault(key, len(self))
        if place == len(self):
            self.keys_of_rows.append(key)
            if not place:
                self._space = np.empty((8, *parsed.shape), dtype=parsed.dtype)
            elif place == len(self._space):
                self._space = np.concatenate([self._space, self._space])
        self[key], self._space[place] = content, parsed

    def drop(self, key: K) -> None:
        """Remove a filter; the last row takes its place."""
        del self[key]
        place, last = self._places.pop(key), self.keys_of_rows.pop()
        if last != key:
            self.keys_of_rows[place], self._places[last] = last, place
            self._space[place] = self._space[len(self)]


class Router(Printable):
    """The routing code of a broker, without any connection.

    Args:
        relation: knowledge of the content of filters and events.
        send: function that sends a neighbour, by name, a message.
        deliver: function that delivers to a client, by name, a publication.
        advertise: True if subscriptions go only where advertisements come from.
        slack: number of events. On their way to a neighbour, subscriptions are merged into one that
            matches at most this many events beyond theirs. None merges nothing, and 0 only
            subscriptions whose union is one filter.

    Raises:
        ParameterError: the relation cannot do what `advertise` or `slack` asks for.

    Attributes:
        tables: contents of the filters by kind, link and name.
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
        if self.advertise and not relation.advertising:
            raise ParameterError(
                f"{type(relation).__name__} routes without advertisements: take advertise=False"
            )
        if self.slack is not None:
            relation.merged(np.empty(0), self.slack)  # refused, unless it can merge
        self.tables: dict[Subject, dict[str, dict[Name, bytes]]] = {kind: {} for kind in KINDS}
        self.sent: dict[Subject, dict[str, _Filters[Name]]] = {kind: {} for kind in KINDS}
        self._all: dict[Subject, _Filters[tuple[str, Name]]] = {kind: _Filters() for kind in KINDS}
        self._prepared: Any = None  # all subscriptions; None after a change
        self._seen: dict[str, SeenNumbers] = {}

    def __repr__(self) -> str:
        return f"<Router: {len(self.sent['subscription'])} neighbours, {self.entries} entries>"

    @property
    def entries(self) -> int:
        """Number of subscriptions in all tables."""
        return len(self._all["subscription"])

    # -- links ----------------------------------------------------------------------------------

    def connect(self, neighbour: str) -> None:
        """Take up a new link to a neighbour, and send all filters that it should have.

        Raises:
            ParameterError: a client has that name.
        """
        if neighbour in self.sent["subscription"]:
            self.disconnect(neighbour)
        if any(neighbour in self.tables[kind] for kind in KINDS):
            raise ParameterError(f"a client has the name {neighbour!r}: name links otherwise")
        for kind in KINDS:
            self.tables[kind][neighbour], self.sent[kind][neighbour] = {}, _Filters()
        for kind in KINDS:
            self._sync(kind, neighbour)

    def resume(self, neighbour: str) -> None:
        """Send a neighbour all filters that it should have, after a break without `disconnect`.

        Filters that came over the link before stay.
        """
        for kind in KINDS:
            self.sent[kind][neighbour] = _Filters()
        for kind in KINDS:
            self._sync(kind, neighbour)

    def disconnect(self, link: str) -> None:
        """Forget a neighbour or a client, and withdraw all filters of its link."""
        for kind in KINDS:
            self.sent[kind].pop(link, None)
        for kind in KINDS:
            names = self.tables[kind].pop(link, {})
            for name in names:
                self._all[kind].drop((link, name))
            self._prepared = None
            for neighbour in self.sent[kind] if names else ():
                self._sync(kind, neighbour)

    def receive(self, neighbour: str, message: RoutingMessage) -> None:
        """Take a message from a neighbour, or drop it if the link was not taken up.

        Raises:
            DecodeError: the relation cannot read the content.
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

        One with the number of an earlier one replaces it.

        Raises:
            DecodeError: the content is none.
            ParameterError: no client may have that name, or there is no such kind.
        """
        choice("kind", kind, KINDS)
        self._add(kind, self._checked(client), (client, whole("number", number, 0)), content)

    def withdraw(self, kind: Subject, client: str, number: int) -> None:
        """End a client's subscription or advertisement; a missing one is no error.

        Raises:
            ParameterError: no client may have that name.
        """
        self._remove(kind, self._checked(client), (client, number))

    def publish(self, client: str, number: int, content: bytes, payload: bytes = b"") -> None:
        """Take an event from a client, who was authenticated.

        Raises:
            RefusedError: it is outside of the client's advertisements, or another event had its
                number or one far above.
            DecodeError: the content is none.
            ParameterError: no client may have that name.
        """
        seen = self._seen.get(self._checked(client), SeenNumbers())
        if not seen.is_new(whole("number", number, 0)):
            raise RefusedError(
                f"an event of {client!r} had the number {number} or one {WINDOW} above, so brokers "
                "would drop this one",
                reason="order",
            )
        if self.advertise:
            event = self.relation.read_event(content)
            if not self.relation.matches(event, self._rows("advertisement", client)).any():
                raise RefusedError(
                    f"an event of {client!r} is outside of its advertisements: advertise it first",
                    reason="order",
                )
        self._forward(client, Publication(client, number, content, payload))

    def _checked(self, client: str) -> str:
        """Refuse a client with the name of a neighbour, or a name reserved for non-clients."""
        if client in self.sent["subscription"] or client.startswith(MERGED):
            raise ParameterError(
                f"client must not begin with {MERGED!r} or have a neighbour's name, got {client!r}"
            )
        return client

    # -- events ---------------------------------------------------------------------------------

    def _forward(self, link: str, publication: Publication) -> None:
        """Send an event over all other links where a subscription matches it."""
        event = self.relation.read_event(publication.content)
        if not self._seen.setdefault(publication.publisher, SeenNumbers()).take(publication.number):
            return
        filters = self._all["subscription"]
        if self._prepared is None:
            self._prepared = self.relation.prepared(filters.rows)
        hits = np.flatnonzero(self.relation.matches(event, self._prepared)).tolist()
        for other in dict.fromkeys(filters.keys_of_rows[hit][0] for hit in hits):
            if other != link:
                act = self._send if other in self.sent["subscription"] else self._deliver
                act(other, publication)

    # -- filters --------------------------------------------------------------------------------

    def _add(self, kind: Subject, link: str, name: Name, content: bytes) -> None:
        parsed = self.relation.read_filter(content)
        table = self.tables[kind].setdefault(link, {})
        if table.get(name) == content:
            return
        again = self._holds(kind, name)
        table[name] = content
        self._all[kind].put((link, name), content, parsed)
        self._prepared = None
        for neighbour in self._others(link):
            if again:
                self._sync(kind, neighbour)
            elif kind == "advertisement" or self._wanted(neighbour, parsed[None]).any():
                if not self._merges(kind):
                    self._offer(kind, neighbour, name, content, parsed)
                elif not self.relation.covered(parsed, self.sent[kind][neighbour].rows).any():
                    self._sync(kind, neighbour)
        if kind == "advertisement" and link in self.sent["subscription"]:
            self._sync("subscription", link)

    def _remove(self, kind: Subject, link: str, name: Name) -> None:
        if self.tables[kind].get(link, {}).pop(name, None) is None:
            return
        if not self.tables[kind][link] and link not in self.sent[kind]:
            del self.tables[kind][link]
        self._all[kind].drop((link, name))
        self._prepared = None
        anew = self._merges(kind) or self._holds(kind, name)
        for neighbour in self._others(link):
            if anew:
                self._sync(kind, neighbour)
            elif name in (sent := self.sent[kind][neighbour]):
                within = sent.row(name) if self.relation.exact else None
                self._replace(kind, neighbour, [name], self._candidates(kind, neighbour, within))
        if kind == "advertisement" and link in self.sent["subscription"]:
            self._sync("subscription", link)

    def _others(self, link: str) -> list[str]:
        return [neighbour for neighbour in self.sent["subscription"] if neighbour != link]

    def _holds(self, kind: Subject, name: Name) -> bool:
        """Tell whether a filter of this name is in a table, of whatever link and content."""
        return any(name in self.tables[kind].get(at, ()) for at in (name[0], *self.sent[kind]))

    def _rows(self, kind: Subject, link: str) -> NDArray[Any]:
        """Return the rows that the relation read of the filters of a link."""
        filters = self._all[kind]
        return filters.rows[
            filters.places((link, name) for name in self.tables[kind].get(link, ()))
        ]

    def _wanted(self, neighbour: str, rows: NDArray[Any]) -> Bools:
        """Tell which subscriptions an advertisement of a neighbour intersects."""
        if not self.advertise:
            return np.ones(len(rows), dtype=np.bool_)
        wanted, known = np.zeros(len(rows), dtype=np.bool_), self._rows("advertisement", neighbour)
        if len(rows) < len(known):
            for place, row in enumerate(rows):
                wanted[place] = self.relation.intersects(row, known).any()
        else:
            for row in known:
                wanted |= self.relation.intersects(row, rows)
        return wanted

    def _candidates(
        self, kind: Subject, neighbour: str, within: NDArray[Any] | None = None
    ) -> _Filters[Name]:
        """Return the filters that a neighbour may have to know; those that one covers, or all."""
        filters = self._all[kind]
        kept: Bools = np.ones(len(filters), dtype=np.bool_)
        if within is not None:
            kept &= self.relation.covers(within, filters.rows)
        kept[filters.places((neighbour, name) for name in self.tables[kind][neighbour])] = False
        if kind == "subscription":
            kept &= self._wanted(neighbour, filters.rows)
        candidates = _Filters[Name]()
        for place in np.flatnonzero(kept).tolist():
            key = filters.keys_of_rows[place]
            name, content = key[1], filters[key]
            if candidates.get(name, content) != content:
                name = _hashed(content)
            candidates.put(name, content, filters.rows[place])
        return candidates

    def _offer(
        self, kind: Subject, neighbour: str, name: Name, content: bytes, parsed: NDArray[Any]
    ) -> None:
        """Send one more filter, unless one that was sent is above it; withdraw those below it."""
        sent = self.sent[kind][neighbour]
        below = self.relation.covers(parsed, sent.rows)
        # Equal ones cover each other: the lesser name stays.
        for place in np.flatnonzero(self.relation.covered(parsed, sent.rows)):
            if not below[place] or sent.keys_of_rows[place] < name:
                return
        surplus = [sent.keys_of_rows[place] for place in np.flatnonzero(below)]
        self._change(kind, neighbour, [(name, content, parsed)], surplus)

    def _replace(
        self, kind: Subject, neighbour: str, stale: list[Name], rest: _Filters[Name]
    ) -> None:
        """Send the rest, as far as it takes; then withdraw what is stale, and not sent again."""
        sent = self.sent[kind][neighbour]
        for name in stale:
            sent.drop(name)
        covered = self.relation.any_covers(sent.rows, rest.rows)
        for place in np.flatnonzero(covered).tolist()[::-1]:
            rest.drop(rest.keys_of_rows[place])
        # A stale name with a new content comes last: it no longer covers the same filters.
        for name in sorted(self._maximal(rest), key=stale.__contains__):
            if name not in sent:
                self._offer(kind, neighbour, name, rest[name], rest.row(name))
        for name in stale:
            if name not in sent:
                self._send(neighbour, Withdraw(kind, name))

    def _sync(self, kind: Subject, neighbour: str) -> None:
        """Send a neighbour all filters that it lacks, then withdraw superfluous ones."""
        wanted, sent = self._candidates(kind, neighbour), self.sent[kind][neighbour]
        if not self._merges(kind):
            stale = [name for name in sent if wanted.get(name) != sent[name]]
            self._replace(kind, neighbour, stale, wanted)
            return
        kept = set(self._maximal(wanted))
        for name in [name for name in wanted if name not in kept]:
            wanted.drop(name)
        wanted = self._merged(wanted)
        surplus = [name for name in sent if name not in wanted]
        fresh = [name for name in wanted if sent.get(name) != wanted[name]]
        fresh.sort(key=sent.__contains__)
        added = [(name, wanted[name], wanted.row(name)) for name in fresh]
        self._change(kind, neighbour, added, surplus)

    def _change(
        self,
        kind: Subject,
        neighbour: str,
        added: list[tuple[Name, bytes, NDArray[Any]]],
        surplus: list[Name],
    ) -> None:
        """Send filters, then withdraw others."""
        sent = self.sent[kind][neighbour]
        for name, content, parsed in added:
            sent.put(name, content, parsed)
            self._send(neighbour, Add(kind, name, content))
        for name in surplus:
            sent.drop(name)
            self._send(neighbour, Withdraw(kind, name))

    def _merges(self, kind: Subject) -> bool:
        return self.slack is not None and kind == "subscription"

    def _merged(self, filters: _Filters[Name]) -> _Filters[Name]:
        """Merge filters. A merged filter is named by its content, so a change is a new name."""
        names = {content: name for name, content in filters.items()}
        merged = _Filters[Name]()
        for content in self.relation.merged(filters.rows, self.slack or 0.0):
            name = names.get(content) or _hashed(content)
            merged.put(name, content, self.relation.read_filter(content))
        return merged

    def _maximal(self, filters: _Filters[Name]) -> list[Name]:
        """Return the names of the filters that no other one covers."""
        names, rows = filters.keys_of_rows, filters.rows
        kept = np.ones(len(names), dtype=np.bool_)
        for place, row in enumerate(rows):
            if kept[place]:
                below = self.relation.covers(row, rows) & kept
                above = self.relation.covered(row, rows)
                for other in np.flatnonzero(below):
                    if other != place and (not above[other] or names[place] < names[other]):
                        kept[other] = False
        return [names[place] for place in np.flatnonzero(kept)]


def _hashed(content: bytes) -> Name:
    """Return the name of a filter by a hash of its content."""
    return MERGED + sha256(content).hexdigest(), 0
