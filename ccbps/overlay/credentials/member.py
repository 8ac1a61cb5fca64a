"""A member of an overlay without brokers: it holds a credential, and forwards what it can open.

Members form a tree: the credential of a parent covers those of its children, and the root has the
credential of everything. An event goes from the root to the children of each member that opens it.
So it reaches all members whose credential is a prefix of its leaf, and those that cannot open it
are at most one hop away from one that can. A child that *shows* its credential to its parent gets
only events that it can open.

A newcomer walks: it asks a member by a request that does not show its credential
(`ccbps.overlay.credentials.tree`). A member that opens it answers with a proof and the names of its
children, another one with the name of its parent. So the newcomer goes up until a member opens its
request, then down from child to child, and connects to the last one. It is given the requests of
the other children of its parent, and takes over those whose requests it opens: their owners check
its proof, connect to it, and only then leave their former parent.

Each member that is asked learns one bit: whether its credential covers the newcomer's. A parent
learns the same bit about a child, and the child's credential only if the child shows it. A request
serves only the newcomer whose name is sealed in it, so connections must authenticate names.

A member that joins again might end up below one of its own descendants. So before it connects, it
asks its way up to the root from the member that it chose. It chooses another one if it meets itself
or another member that is looking for a parent.

*Splits*: a newcomer may split its credential into parts, each with a member of its own
(`split_credential`), and show parents the parts. The requests of a split have a common tag, sealed
inside. A parent that has a child with this tag answers "taken", and the walk goes on. So each
parent knows one part. There is no defence against parents that give false answers.

When a member leaves, its children join again, starting at its parent. The leaving member forwards
events to them until they have joined.

Every event holds the publisher's certificate and signature inside, and members drop events that
were forged, not advertised, or seen before.

Leak: neighbours know each other's names. A member that opens an event reads its whole leaf. A
member that opens the requests of several parts of a split sees that they belong together.
Anybody can make a request for any credential, as that takes public keys only. So strangers can
join, though they cannot open events, and can find out a member's credential by trying nodes.
Hazard: the crash of a member is not detected. An overlay holds for one epoch; for the next one,
members are made anew and join again.
Source: [TKR14]; the walk of requests is corrected.
"""

from __future__ import annotations

import hmac
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ccbps.checks import Printable, flag, instance, whole
from ccbps.errors import DecodeError, ParameterError
from ccbps.forms.decomposition import Node, covers
from ccbps.overlay.credentials.tree import (
    NO_TAG,
    Credential,
    CredentialEvent,
    CredentialTree,
    request_proof,
)
from ccbps.overlay.seen_numbers import WINDOW, SeenNumbers

MOST_ASKED: Final = 1 << 12
"""Largest number of members that one walk asks, since members may name others without end."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Message of a newcomer: its request."""

    request: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """Message to a newcomer.

    Attributes:
        proof: proof that the request was opened, or None.
        taken: True if there is a child of the same split.
        parent: name of the parent; None at the root.
        children: names of children; none unless the request was opened.
        settled: True unless the sender has no parent yet, or looks for another one.
    """

    proof: bytes | None
    taken: bool
    parent: str | None
    children: tuple[str, ...]
    settled: bool = True


@dataclass(frozen=True, slots=True)
class Attach:
    """Message of a newcomer, or of a child that is taken over: it wants to be a child.

    Attributes:
        request: its request.
        shown: node of its credential; None if the newcomer does not show it.
    """

    request: bytes
    shown: Node | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Attached:
    """Message to a new child: the names and requests of the other children."""

    others: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Declined:
    """Message to a newcomer that cannot be a child."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Message to a child of another member: the sender opened its request, and is closer."""

    proof: bytes


@dataclass(frozen=True, slots=True)
class Moved:
    """Message to a parent: the sender is no child any more."""


@dataclass(frozen=True, slots=True)
class Left:
    """Message to a child of a member that leaves: the name of that member's parent."""

    parent: str


@dataclass(frozen=True, slots=True)
class Published:
    """Message with a new event, on its way up to the root."""

    event: bytes


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Message with an event, on its way down."""

    event: bytes


MemberMessage: TypeAlias = (
    Ask | Answer | Attach | Attached | Declined | Adopt | Moved | Left | Published | Forwarded
)


@dataclass(frozen=True, slots=True)
class _Child:
    """A child: its request, its tag, and its credential's node if it shows it."""

    request: bytes
    tag: bytes
    shown: Node | None = field(repr=False)


@dataclass(slots=True)
class _Walk:
    """A walk to a parent.

    Attributes:
        asked: member whose answer is awaited.
        above: parent of each member that has answered, None for the root; this member's own name
            for one that may come to be below it.
        seen: members that were asked.
        opened: members that opened the request; True for those where the split has a child.
        next: members to ask next.
        later: members to ask unless one that opened the request is free.
        nearer: True if none but members below the first one will do.
        climbing: True if the member that was asked is above one that opened the request.
    """

    asked: str = ""
    above: dict[str, str | None] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    opened: dict[str, bool] = field(default_factory=dict)
    next: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    nearer: bool = False
    climbing: bool = False


class Member(Printable):
    """A member of the overlay, without any connection.

    Args:
        name: name of the member for its neighbours.
        tree: public part of the credentials.
        credential: credential of the member; a person with several has a member for each.
        send: function that takes a neighbour's name and a message, and sends it.
        connect: function that takes a name, and connects to that member. Names come from other
            members, so it should connect to known members or places only.
        deliver: function that takes an event that the member opened.
        root: True for the root, whose credential is that of everything.
        show: True to show the credential to the parent.
        tag: `split_tag` of the pseudonym of a split, common to the members of all its parts.
        tags: set of the tags of all children, shared by several members of one person.
        most_children: largest number of children. Further newcomers are declined, and look
            elsewhere.

    Raises:
        ParameterError: an argument does not fit.

    Attributes:
        name: as given.
        parent: name of the parent; None before the member has joined, and for the root.
        children: names of the children.
        joined: True for the root, and once the member has a parent.
        dropped: numbers of events dropped: "refused" or "repeated".

    Example:
        >>> from ccbps.functional import Authority, Ibe
        >>> from ccbps.keys import SigningKey
        >>> from ccbps.overlay import CredentialTree, Links, Member
        >>> authority, issuer = Authority.generate(Ibe()), SigningKey.generate()
        >>> tree = CredentialTree("quotes", 4, authority.public, issuer.identity)
        >>> links, members, got = Links(), {}, []
        >>> for name, node in {"root": "", "alice": "01", "bob": "0"}.items():
        ...     (credential,) = tree.issue(authority, [node], epoch=7)
        ...     class Entry:
        ...         def receive(self, sender, message, name=name):
        ...             members[name].receive(sender, message)
        ...     members[name] = Member(
        ...         name, tree, credential, links.attach(name, Entry()).send,
        ...         lambda other, name=name: links.link(name, other),
        ...         lambda event, name=name: got.append((name, event.payload)),
        ...         root=name == "root",
        ...     )
        ...     if name != "root":
        ...         members[name].join("root")
        ...         end = links.run()
        >>> members["alice"].parent              # taken over by bob, whose credential covers hers
        'bob'
        >>> exchange = SigningKey.generate()
        >>> certificate = tree.certify(issuer, exchange.identity, ["0"], epoch=7)
        >>> event = tree.seal_event(b"IBM", "0111", exchange, certificate, number=1)
        >>> members["root"].publish(event)
        >>> end = links.run()
        >>> got
        [('root', b'IBM'), ('bob', b'IBM'), ('alice', b'IBM')]
    """

    def __init__(
        self,
        name: str,
        tree: CredentialTree,
        credential: Credential,
        send: Callable[[str, MemberMessage], None],
        connect: Callable[[str], None],
        deliver: Callable[[CredentialEvent], None],
        *,
        root: bool = False,
        show: bool = False,
        tag: bytes = NO_TAG,
        tags: Counter[bytes] | None = None,
        most_children: int = 1 << 10,
    ) -> None:
        self.name, self.tree = name, instance("tree", tree, CredentialTree)
        self._credential = instance("credential", credential, Credential)
        self._send, self._connect, self._deliver = send, connect, deliver
        self._root = flag("root", root)
        if root and credential.node:
            raise ParameterError("the root must have the credential of everything, the node ''")
        self._most = whole("most_children", most_children, 1)
        self._shown = credential.node if flag("show", show) else None
        self._tag, self._tags = tag, Counter[bytes]() if tags is None else tags
        self._request, self._nonce = tree.seal_request(credential, name, tag=tag)
        self._children: dict[str, _Child] = {}
        self._walk: _Walk | None = None
        self._chosen: str | None = None
        self._former: str | None = None  # parent before, while there is none
        self._leaves = False
        self._seen: dict[bytes, SeenNumbers] = {}
        self._upward: deque[bytes] = deque(maxlen=WINDOW)  # while there is no parent
        self.parent: str | None = None
        self.dropped: Counter[str] = Counter()
        self._handlers: dict[type[Any], Callable[[str, Any], None]] = {
            Ask: self._ask,
            Answer: self._answer,
            Attach: self._attach,
            Attached: self._attached,
            Declined: self._declined,
            Adopt: self._adopt,
            Moved: lambda sender, _: self._forget(sender),
            Left: self._left,
            Published: lambda _, message: self.publish(message.event),
            Forwarded: lambda _, message: self._forward(message.event),
        }

    def __repr__(self) -> str:
        return f"<Member {self.name}: {len(self._children)} children>"

    @property
    def children(self) -> list[str]:
        """Names of the children."""
        return [*self._children]

    @property
    def joined(self) -> bool:
        """True for the root, and once the member has a parent."""
        return self._root or self.parent is not None

    # -- the member -----------------------------------------------------------------------------

    def join(self, start: str) -> None:
        """Walk to a parent.

        Args:
            start: name of any member that has joined.

        Raises:
            ParameterError: the member is the root.
        """
        if self._root:
            raise ParameterError("the root does not join: the others join it")
        former, self._leaves = self.parent or self._former, False
        self._walk = _Walk(next=[start], later=[former] if former else [])
        self._step()

    def leave(self) -> None:
        """Leave the overlay; the children join again, and get events from here until they have.

        Raises:
            ParameterError: the member has no parent.
        """
        if self.parent is None:
            raise ParameterError("only a member with a parent leaves")
        self._leaves, self._walk, self._chosen = True, None, None
        for child in self._children:
            self._send(child, Left(self.parent))
        self._part()

    def _part(self) -> None:
        """Leave the parent, if this member leaves and has no children any more."""
        if self._leaves and not self._children and self.parent is not None:
            self._send(self.parent, Moved())
            self._former, self.parent = self.parent, None

    def publish(self, event: bytes) -> None:
        """Send an event of `CredentialTree.seal_event` to the root, and from there to members.

        While the member has no parent, up to `WINDOW` events wait for the next one.
        """
        if self._root:
            self._forward(event)
        elif self.parent is None:
            self._upward.append(event)
        else:
            self._send(self.parent, Published(event))

    def receive(self, sender: str, message: MemberMessage) -> None:
        """Take a message from a neighbour.

        Raises:
            DecodeError: a request is malformed.
        """
        handler = self._handlers.get(type(message))
        if handler is None:
            raise DecodeError(f"a {type(message).__name__} is no message of a member")
        handler(sender, message)

    # -- newcomers ------------------------------------------------------------------------------

    def _ask(self, sender: str, message: Ask) -> None:
        opened = self.tree.open_request(message.request, self._credential, sender)
        serves = self.joined and not self._leaves
        settled = serves and self._walk is None and self._chosen is None
        if opened is None or not serves:
            # Without a parent, a member shows the way to its former one.
            self._send(sender, Answer(None, False, self.parent or self._former, (), settled))
            return
        nonce, tag = opened
        children = tuple(name for name in self._children if name != sender)
        proof = request_proof(nonce, self.name)
        self._send(sender, Answer(proof, self._is_taken(tag), self.parent, children, settled))

    def _is_taken(self, tag: bytes) -> bool:
        return tag != NO_TAG and (self._tags[tag] > 0 or tag == self._tag)

    def _attach(self, sender: str, message: Attach) -> None:
        opened = self.tree.open_request(message.request, self._credential, sender)
        above = sender in (self.parent, self._chosen)
        serves = self.joined and not self._leaves
        full = sender not in self._children and len(self._children) >= self._most
        if opened is None or self._is_taken(opened[1]) or above or full or not serves:
            self._send(sender, Declined())
            return
        others = tuple(
            (name, child.request) for name, child in self._children.items() if name != sender
        )
        self._forget(sender)  # its earlier request
        self._tags[opened[1]] += 1
        self._children[sender] = _Child(message.request, opened[1], message.shown)
        self._send(sender, Attached(others))

    def _forget(self, name: str) -> None:
        child = self._children.pop(name, None)
        if child is not None:
            self._tags[child.tag] -= 1
            self._part()

    # -- the walk -------------------------------------------------------------------------------

    def _step(self) -> None:
        """Ask the next member, or connect to the last one that opened the request."""
        walk = self._walk
        assert walk is not None
        free = [name for name, taken in walk.opened.items() if not taken]
        for names in (walk.next, [] if free or walk.nearer else walk.later):
            while names:
                if self._inquire(walk, names.pop()):
                    return
        if not free:
            self._walk = None  # every member that may be a parent has a part of the same split
            return
        name, top, way = free[-1], free[-1], {free[-1]}
        while (above := walk.above.get(top, top)) is not None and above not in way:
            way.add(top := above)
        if above is None:
            self._chosen = name
            self._send(name, Attach(self._request, self._shown))
        elif not self._inquire(walk, top, climbing=True):
            walk.opened[name] = True  # it is below this member
            self._step()

    def _inquire(self, walk: _Walk, name: str, *, climbing: bool = False) -> bool:
        """Ask a member, unless it was asked before; tell whether it is asked now."""
        if name in walk.seen or name == self.name or len(walk.seen) >= MOST_ASKED:
            return False
        walk.seen.add(name)
        walk.asked, walk.climbing = name, climbing
        self._connect(name)
        self._send(name, Ask(self._request))
        return True

    def _answer(self, sender: str, message: Answer) -> None:
        walk = self._walk
        if walk is None or sender != walk.asked:
            return
        walk.asked = ""
        # A member that looks for a parent may get one below this member.
        walk.above[sender] = message.parent if message.settled else self.name
        # Nearer members last, since they are taken from the end.
        walk.later[:0] = [] if message.parent is None else [message.parent]
        proof = request_proof(self._nonce, sender)
        if message.proof is not None and hmac.compare_digest(message.proof, proof):
            nearer = [*reversed(message.children)]
            if walk.climbing:
                walk.opened, walk.later = {sender: message.taken} | walk.opened, nearer + walk.later
            else:
                walk.opened[sender] = message.taken
                walk.later, walk.next = walk.later + walk.next, nearer
        self._step()

    def _declined(self, sender: str, message: Declined) -> None:
        if sender != self._chosen:
            return
        self._chosen = None
        if self._walk is not None and not self._walk.asked:
            self._walk.opened[sender] = True
            self._step()

    def _attached(self, sender: str, message: Attached) -> None:
        if sender != self._chosen:
            if sender != self.parent:
                self._send(sender, Moved())
            return
        before, self.parent, self._chosen, self._walk = self.parent, sender, None, None
        if before is not None and before != sender:
            self._send(before, Moved())
        while self._upward:
            self._send(sender, Published(self._upward.popleft()))
        for name, request in message.others:
            opened = self.tree.open_request(request, self._credential, name)
            if opened is not None and name not in self._children:
                self._connect(name)
                self._send(name, Adopt(request_proof(opened[0], self.name)))

    def _adopt(self, sender: str, message: Adopt) -> None:
        proof = request_proof(self._nonce, sender)
        busy = self._walk is not None or self._chosen is not None or sender in self._children
        if not (busy or self._leaves) and self.parent and hmac.compare_digest(message.proof, proof):
            self._walk = _Walk(next=[sender], nearer=True)
            self._step()

    def _left(self, sender: str, message: Left) -> None:
        if sender == self.parent and not self._leaves:
            self.join(message.parent)

    # -- events ---------------------------------------------------------------------------------

    def _forward(self, message: bytes) -> None:
        """Deliver an event, and send it to children."""
        try:
            event = self.tree.open_event(message, self._credential)
        except DecodeError:
            self.dropped["refused"] += 1
            return
        if not self._seen.setdefault(event.publisher, SeenNumbers()).take(event.number):
            self.dropped["repeated"] += 1
            return
        self._deliver(event)
        for name, child in [*self._children.items()]:
            if child.shown is None or covers(child.shown, event.leaf):
                self._send(name, Forwarded(message))
