"""Policies of hops: what a broker sends to and takes from each neighbour, and in which order.

A `HopPolicy` is a list of rules. The first rule that applies decides whether a message passes over
a hop, is refused, or passes with a stricter label. Where no rule applies, the message is refused.
Both ends of a hop examine it, each by its own policy: the sender on the way out, the receiver on
the way in. A broker that sends what it should not is thus stopped by the next honest one.

A rule may hold a filter on the content of events. A broker that cannot read the content cannot
evaluate it. To such a broker a rule that denies always applies, and a rule that allows never does.

`Connections` bound the network itself: pairs of domains whose brokers may be linked. A link that no
pair allows is never dialled, and messages that arrive over it are not read.

Subscribers have a `Clearance`: a privacy level and a priority. Both come from a trusted service and
never from a message. An event is delivered to a subscriber if its privacy level is at most the
subscriber's. The priority only orders deliveries. An `AgeingQueue` raises each delivery by one step
a second, so low priorities wait and do not starve. Let there be L priorities, from 0 to L - 1, mu
deliveries a second, and at most mu t + 1 arrivals in any t seconds. Then a delivery that finds q
others, waiting or being made, waits at most L - 1 + (q + 1)/mu seconds.

Leak: rules name neighbours, domains and topics in the clear, to whoever may read the policy. An
observer of deliveries learns their order, and so which of two subscribers has the higher priority.
Hazards: a rule that transforms raises the label only, as the owner's signature binds the content. A
broker can hold a message back, or send it late: policies say what may pass, not what must.
Sources: [Survey] section 5.2.1 (Tian et al., Interaction Control).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Annotated, ClassVar, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import Meta

from ccbps.access.labels import VERSION, Label, Name, Subject, Tags, WithSets
from ccbps.checks import Printable, number, whole
from ccbps.errors import ParameterError, RefusedError
from ccbps.records import Message, Number, Record
from ccbps.wire import Kind

T = TypeVar("T")
Direction: TypeAlias = Literal["in", "out"]
MOST_RULES: Final = 4096
MOST_PRIORITIES: Final = 1 << 16


class Hop(NamedTuple):
    """A message's passage over one hop.

    Attributes:
        neighbour: broker at the other end.
        domain: domain of that broker.
        direction: "out" at the sender, "in" at the receiver.
        kind: "advertisement", "subscription" or "event".
        topic: topic of the message.
    """

    neighbour: str
    domain: str
    direction: Direction
    kind: Subject
    topic: str


class HopRule(WithSets, frozen=True):
    """A rule of a hop policy. It applies to hops that have all the properties that it names.

    Attributes:
        action: "allow", "deny", or "transform", which allows the message with a raised label.
        neighbour: broker at the other end; None for any.
        domain: domain of that broker; None for any.
        direction: "in" or "out"; None for both.
        kind: kind of the message; None for any.
        topic: topic; None for any.
        where: filter on the content, as bytes of the overlay's relation, for rules on events; None
            for any content.
        add_secrecy: secrecy tags that "transform" adds.
        drop_integrity: integrity tags that "transform" drops.
    """

    _sets: ClassVar[tuple[str, ...]] = ("add_secrecy", "drop_integrity")
    action: Literal["allow", "deny", "transform"]
    neighbour: Name | None = None
    domain: Name | None = None
    direction: Direction | None = None
    kind: Subject | None = None
    topic: Name | None = None
    where: bytes | None = None
    add_secrecy: Tags = frozenset()
    drop_integrity: Tags = frozenset()

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.action == "transform") != bool(self.add_secrecy or self.drop_integrity):
            raise ParameterError(
                "add_secrecy and drop_integrity go with action 'transform', and with no other"
            )
        if self.where is not None and self.kind != "event":
            raise ParameterError(
                "where is for rules of kind 'event': name the topic to refuse subscriptions"
            )

    def _applies(self, hop: Hop, matches: Callable[[bytes], bool | None]) -> bool:
        named = self.neighbour, self.domain, self.direction, self.kind, self.topic
        if any(own not in (None, other) for own, other in zip(named, hop, strict=True)):
            return False
        if self.where is None:
            return True
        matched = matches(self.where)
        return self.action == "deny" if matched is None else matched


class HopPolicy(Message, frozen=True):
    """The rules of a broker, in their order. Without rules, nothing passes.

    Attributes:
        rules: rules; the first that applies decides.

    Example:
        >>> from ccbps.access import Hop, HopPolicy, HopRule, Label
        >>> policy = HopPolicy((
        ...     HopRule("deny", domain="carrier", topic="oncology"),
        ...     HopRule("transform", direction="in", domain="carrier", drop_integrity={"checked"}),
        ...     HopRule("allow"),
        ... ))
        >>> hop = Hop("B4", "carrier", "in", "event", "vitals")
        >>> policy.decide(hop, Label(set(), {"checked", "signed"}))
        <Label: secrecy nothing; integrity signed>
        >>> policy.decide(hop._replace(topic="oncology"), Label())
        Traceback (most recent call last):
            ...
        ccbps.errors.RefusedError: rule 1 denies an event on 'oncology' in, neighbour 'B4' of \
'carrier'
    """

    front: ClassVar[bytes] = bytes([Kind.DOMAIN, VERSION]) + b"H"
    what: ClassVar[str] = "a hop policy"
    rules: Annotated[tuple[HopRule, ...], Meta(max_length=MOST_RULES)] = ()

    def decide(
        self, hop: Hop, label: Label, matches: Callable[[bytes], bool | None] | None = None
    ) -> Label:
        """Return the label with which a message passes.

        Args:
            hop: the hop.
            label: label of the message.
            matches: function that tells whether a rule's filter matches the content; it returns
                None, or is None itself, where the content cannot be read.

        Raises:
            RefusedError: a rule denies the message, or none allows it.
        """
        reason = "no rule allows"
        for place, rule in enumerate(self.rules, 1):
            if rule._applies(hop, matches or _unreadable):
                if rule.action == "allow":
                    return label
                if rule.action == "transform":
                    return Label(
                        label.secrecy | rule.add_secrecy, label.integrity - rule.drop_integrity
                    )
                reason = f"rule {place} denies"
                break
        article = "a" if hop.kind == "subscription" else "an"
        raise RefusedError(
            f"{reason} {article} {hop.kind} on {hop.topic!r} {hop.direction}, neighbour "
            f"{hop.neighbour!r} of {hop.domain!r}",
            reason="hop",
        )


def _unreadable(where: bytes) -> bool | None:
    return None


class Connections(Message, frozen=True):
    """Pairs of domains whose brokers may be linked. Brokers of one domain always may.

    Attributes:
        pairs: pairs of domains, in either order.

    Example:
        >>> from ccbps.access import Connections
        >>> connections = Connections((("clinic", "carrier"), ("carrier", "registry")))
        >>> connections.allow("carrier", "clinic"), connections.allow("clinic", "registry")
        (True, False)
    """

    front: ClassVar[bytes] = bytes([Kind.DOMAIN, VERSION]) + b"C"
    what: ClassVar[str] = "a list of allowed connections"
    pairs: tuple[tuple[Name, Name], ...] = ()

    def allow(self, one: str, other: str) -> bool:
        """Tell whether brokers of two domains may be linked."""
        return one == other or (one, other) in self.pairs or (other, one) in self.pairs

    def dial(self, own: str, other: str, connect: Callable[[], T]) -> T:
        """Connect a broker of one's own domain with one of another, if that is allowed.

        Args:
            own: domain of the broker that dials.
            other: domain of the broker that is dialled.
            connect: function that makes the connection; it is not called for a refused one.

        Raises:
            RefusedError: the two domains may not be linked.
        """
        if not self.allow(own, other):
            raise RefusedError(
                f"brokers of {own!r} and {other!r} may not be linked: allow the pair first",
                reason="link",
            )
        return connect()


class Clearance(Record, frozen=True):
    """A subscriber's privacy level and priority, as a trusted service knows them.

    Attributes:
        level: privacy level.
        priority: rank among deliveries; higher ones come first.

    Example:
        >>> from ccbps.access import Clearance
        >>> Clearance(level=2).suffices(2), Clearance(level=2).suffices(3)
        (True, False)
    """

    level: Number = 0
    priority: Annotated[int, Meta(ge=0, lt=MOST_PRIORITIES)] = 0

    def suffices(self, privacy: int) -> bool:
        """Tell whether events of a privacy level may be delivered to this subscriber."""
        return privacy <= self.level


class AgeingQueue(Printable, Generic[T]):
    """A priority queue in which the rank of each item rises by one step a second.

    At time t, an item of priority p that arrived at time a has rank p + (t - a). All ranks rise
    alike, so the item with the least a - p is always first. Among equals the earlier one is first,
    and items of one priority keep their order.

    Args:
        priorities: number of priorities, from 0 to one less.
        most: largest number of items; further ones are refused.

    Example:
        >>> from ccbps.access import AgeingQueue
        >>> queue = AgeingQueue(priorities=10, most=100)
        >>> queue.push("low", 0, now=0.0)
        >>> queue.push("high", 5, now=4.0)
        >>> queue.push("late", 5, now=6.0)
        >>> [queue.pop() for _ in range(3)]
        ['high', 'low', 'late']
    """

    def __init__(self, priorities: int, most: int) -> None:
        self.priorities = whole("priorities", priorities, 1, MOST_PRIORITIES)
        self.most = whole("most", most, 1)
        self._heap: list[tuple[float, int, T]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._heap)

    def __repr__(self) -> str:
        return f"<AgeingQueue: {len(self)} of {self.most:,} items>"

    def push(self, item: T, priority: int, now: float) -> None:
        """Add an item.

        Args:
            item: the item.
            priority: its priority.
            now: time in seconds, of a clock that never goes back.

        Raises:
            RefusedError: the queue is full.
        """
        whole("priority", priority, 0, self.priorities - 1)
        if len(self) >= self.most:
            raise RefusedError(f"{self.most:,} deliveries wait: send later", reason="queue")
        self._pushed += 1
        heapq.heappush(self._heap, (number("now", now) - priority, self._pushed, item))

    def pop(self) -> T:
        """Remove and return the first item.

        Raises:
            IndexError: there is none.
        """
        return heapq.heappop(self._heap)[2]
