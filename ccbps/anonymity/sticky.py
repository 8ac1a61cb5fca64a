"""Sticky groups: cloaks that stay as they are while subscribers come and go.

If groups are made anew in each epoch, a broker that knows an event in which only one member of the
group is interested intersects the groups of the epochs. After t epochs it has on average
1 + (k - 1) ((k - 1) / (n - 1))^(t - 1) candidates of n: for k = 10 and n = 100 first 10, then 1.8,
then 1.1 (`expected_candidates`). So a group, once made, does not change:

- newcomers wait until they are enough for groups of their own, or take a free place of a group
  whose hull already contains their subscription;
- the place of a member who leaves stays, and a dummy receives its deliveries.

The broker knows places, which are numbers, and never the names behind them. It does not see whether
a place is taken.

Hazard: a group whose members leave one after the other hides the last of them among dummies. The
broker cannot tell these from members; other members can, if they know who left.
"""

from __future__ import annotations

from functools import cached_property
from itertools import count

from ccbps.anonymity.cloaks import cloak_boxes
from ccbps.anonymity.diversity import Diversity
from ccbps.anonymity.partition import Method
from ccbps.checks import Printable, Redacted, instance, text, whole
from ccbps.errors import ParameterError
from ccbps.predicates import Box, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.box_predicates import predicate_of


class Group(Redacted, frozen=True, eq=False, dict=True):
    """A group as the broker knows it.

    Attributes:
        number: number of the group.
        hull: box that the broker forwards.
        places: numbers of the places to which it forwards.
    """

    number: int
    hull: Box
    places: tuple[int, ...]

    def __repr__(self) -> str:
        return f"<Group {self.number} of {len(self.places)} places>"

    @cached_property
    def predicate(self) -> Predicate:
        """Subscription of the group, which any matcher for boxes can encode."""
        return predicate_of(self.hull)


class StickyCloaks(Printable):
    """The anonymizer's groups, over all epochs.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.anonymity import StickyCloaks
        >>> cloaks = StickyCloaks(Schema(price=UInt(8)), k=2)
        >>> cloaks.join("alice", "price < 20")
        >>> cloaks.join("bob", "price < 30")
        >>> cloaks.advance()
        (<Group 0 of 2 places>,)
        >>> before = cloaks.groups
        >>> cloaks.leave("alice")                       # a dummy takes her place
        >>> cloaks.advance()
        ()
        >>> cloaks.groups == before, cloaks.members(cloaks.groups[0])
        (True, ('bob',))

    Attributes:
        schema: attributes of events.
        k: least number of places of a group.
    """

    def __init__(
        self,
        schema: Schema,
        k: int,
        *,
        diversity: Diversity | None = None,
        method: Method | None = None,
    ) -> None:
        """Make an anonymizer without groups.

        Args:
            schema: attributes of events.
            k: least number of places of a group.
            diversity: rule on the subscriptions of a group; None for no rule.
            method: method of grouping, as for `cloak`.
        """
        self.schema, self.k = instance("schema", schema, Schema), whole("k", k, 1)
        self._options = diversity, method
        self._numbers, self._places = count(), count()
        self._groups: dict[int, Group] = {}
        self._waiting: dict[str, Box] = {}
        self._at: dict[str, tuple[int, int]] = {}
        self._names: dict[int, str] = {}

    def __repr__(self) -> str:
        return f"<StickyCloaks: {len(self._groups)} groups, {len(self._waiting)} waiting>"

    @property
    def groups(self) -> tuple[Group, ...]:
        """Groups that the broker has."""
        return tuple(self._groups.values())

    @property
    def waiting(self) -> tuple[str, ...]:
        """Names of subscribers who have no group yet."""
        return tuple(self._waiting)

    def members(self, group: Group) -> tuple[str, ...]:
        """Return the names behind the places of a group, without dummies."""
        return tuple(self._names[place] for place in group.places if place in self._names)

    def join(self, name: str, interest: str | Predicate) -> None:
        """Let a subscriber wait for a group, or take a free place that fits.

        Args:
            name: the subscriber.
            interest: SQL text or a predicate with all its constants; one box.

        Raises:
            ParameterError: the subscriber is there already, or the interest does not fit or never
                matches.
            UnsupportedPredicateError: the interest is not a box.
        """
        if text("name", name) in self._at or name in self._waiting:
            raise ParameterError(f"name {name!r} is there already: call leave first")
        box = bound_predicate(self.schema, interest).box()
        if any(high < low for low, high in box.ranges.values()):
            raise ParameterError("the interest never matches")
        for group in self._groups.values():
            free = [place for place in group.places if place not in self._names]
            if free and _holds(group.hull, box):
                self._take(name, group, free[0])
                return
        self._waiting[name] = box

    def leave(self, name: str) -> None:
        """Let a subscriber go. A dummy takes its place, and the broker sees nothing.

        Raises:
            ParameterError: there is no such subscriber.
        """
        if name in self._waiting:
            del self._waiting[name]
        elif name in self._at:
            del self._names[self._at.pop(name)[1]]
        else:
            raise ParameterError(f"name {name!r} is not a subscriber")

    def advance(self) -> tuple[Group, ...]:
        """Begin an epoch: group the subscribers who wait, if they are enough.

        Returns:
            the new groups. Groups without any member end: remove them at the broker.
        """
        for number in [n for n, group in self._groups.items() if not self.members(group)]:
            del self._groups[number]
        cloaks = cloak_boxes(self.schema, self._waiting.values(), self.k, *self._options)
        if cloaks is None:
            return ()
        names, new = [*self._waiting], []
        for at, hull in enumerate(cloaks.hulls):
            own = [names[row] for row in (cloaks.groups == at).nonzero()[0].tolist()]
            group = Group(next(self._numbers), hull, tuple(next(self._places) for _ in own))
            self._groups[group.number] = group
            for name, place in zip(own, group.places, strict=True):
                self._take(name, group, place)
            new.append(group)
        self._waiting.clear()
        return tuple(new)

    def _take(self, name: str, group: Group, place: int) -> None:
        self._at[name], self._names[place] = (group.number, place), name


def expected_candidates(subscribers: int, k: int, epochs: int) -> float:
    """Return the mean number of candidates left if groups are drawn anew in each epoch.

    Example:
        >>> from ccbps.anonymity import expected_candidates
        >>> [round(expected_candidates(100, 10, epochs), 1) for epochs in (1, 2, 3)]
        [10.0, 1.8, 1.1]

    Args:
        subscribers: number of subscribers n, at least k.
        k: number of members of a group.
        epochs: number of epochs, at least 1.
    """
    whole("subscribers", subscribers, max(2, whole("k", k, 1)))
    others = k - 1
    return 1 + others * (others / (subscribers - 1)) ** (whole("epochs", epochs, 1) - 1)


def _holds(outer: Box, inner: Box) -> bool:
    return all(
        outer.ranges[name][0] <= low and high <= outer.ranges[name][1]
        for name, (low, high) in inner.ranges.items()
    )
