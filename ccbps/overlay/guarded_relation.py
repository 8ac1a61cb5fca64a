"""A guarded broker's view of sealed messages: it reads those that its domain has the key for.

Covering. A filter hides another one only if it may go wherever the other one may: its label flows
to the other's, and its epoch is no earlier. With access control before matching, both must also
have the same owner (`ccbps.overlay.rights`). Brokers of other domains than members pass all filters
on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccbps.access.domains import DomainMap, KeyRing, SealedMessage, Topic
from ccbps.access.labels import Body, Stamp
from ccbps.arrays import Bools
from ccbps.checks import instance
from ccbps.errors import DecodeError
from ccbps.overlay.rights import Rights
from ccbps.overlay.routing.relations import Others, Relation


@dataclass(frozen=True, slots=True)
class Reading:
    """A sealed message, as far as a broker can read it.

    Attributes:
        content: bytes of the message.
        sealed: the message.
        body: content; None if the broker has no key for it.
        parsed: content as the inner relation read it; None without a body.
    """

    content: bytes = field(repr=False)
    sealed: SealedMessage = field(repr=False)
    body: Body | None = field(repr=False)
    parsed: Any = field(repr=False)

    @property
    def stamp(self) -> Stamp:
        """Stamp of the message."""
        return self.sealed.stamp


class GuardedRelation(Relation):
    """A broker's view of the sealed messages of a topic. A row of a filter holds its `Reading`.

    Args:
        inner: relation of the contents.
        ring: keys of the broker's domain.
        domains: map with the topic.
        topic: name of the topic.
        rights: rights of owners; None for no access control.
    """

    advertising = True

    def __init__(
        self,
        inner: Relation,
        ring: KeyRing,
        domains: DomainMap,
        topic: str,
        rights: Rights | None = None,
    ) -> None:
        self.inner = instance("inner", inner, Relation)
        self._ring, self._domains, self._topic, self._rights = ring, domains, topic, rights
        self._narrows = rights is not None and rights.when == "before"
        self._last: Reading | None = None

    def __repr__(self) -> str:
        return f"<GuardedRelation of {self._topic!r} over {self.inner!r}>"

    @property
    def topic(self) -> Topic:
        """Topic, by its manager's last notice."""
        return self._domains.topic(self._topic)

    def read(self, content: bytes) -> Reading:
        """Read a message of any kind, and open it if the broker has the key.

        Raises:
            DecodeError: it is no message of this topic, or was altered.
        """
        if self._last is None or self._last.content != content:
            sealed = SealedMessage.from_bytes(content)
            if sealed.stamp.topic != self._topic:
                raise DecodeError("a message of another topic")
            body = parsed = None
            if (key := self._ring.key(self.topic, sealed.epoch)) is not None:
                body = sealed.open(key)
                is_event = sealed.stamp.kind == "event"
                parse = self.inner.read_event if is_event else self.inner.read_filter
                parsed = parse(body.content)
            self._last = Reading(content, sealed, body, parsed)
        return self._last

    def read_filter(self, content: bytes) -> NDArray[Any]:
        reading = self.read(content)
        if reading.stamp.kind == "event":
            raise DecodeError("an event in place of a filter")
        row = np.empty((), dtype=np.object_)
        row[()] = reading
        return row

    def read_event(self, content: bytes) -> Reading:
        reading = self.read(content)
        if reading.stamp.kind != "event":
            raise DecodeError("a filter in place of an event")
        return reading

    def covers(self, wide: Any, others: Others) -> Bools:
        return self._compared(self.inner.covers, wide, others, self._goes_with)

    def covered(self, narrow: Any, others: Others) -> Bools:
        return self._compared(
            self.inner.covered, narrow, others, lambda own, other: self._goes_with(other, own)
        )

    def matches(self, event: Reading, others: Any) -> Bools:
        oldest, readings = self.topic.oldest, _readings(others)
        live = np.array([other.sealed.epoch >= oldest for other in readings], dtype=np.bool_)
        answers = live & self._asked(self.inner.matches, event, readings, unreadable=True)
        if self._rights is None or not self._narrows:
            return answers
        places = [
            place
            for place in np.flatnonzero(answers).tolist()
            if readings[place].stamp.kind == "subscription"
        ]
        owners = [readings[place].stamp.owner for place in places]
        answers[places] = self._rights.may_receive(event.stamp, event.parsed, owners)
        return answers

    def intersects(self, one: Any, others: Others) -> Bools:
        readings = _readings(others)
        return self._asked(self.inner.intersects, _reading(one), readings, unreadable=True)

    def _goes_with(self, wide: Reading, narrow: Reading) -> bool:
        """Tell whether a filter may go wherever, and lasts as long as, another one."""
        return (
            wide.stamp.label.flows_to(narrow.stamp.label)
            and wide.sealed.epoch >= narrow.sealed.epoch
            and not (self._narrows and wide.stamp.owner != narrow.stamp.owner)
        )

    def _compared(
        self,
        ask: Callable[[Any, Sequence[Any]], Bools],
        one: Any,
        others: Others,
        goes_with: Callable[[Reading, Reading], bool],
    ) -> Bools:
        """Tell which filters cover or are covered; sealed ones only if they are the same bytes."""
        own, readings = _reading(one), _readings(others)
        answers = self._asked(ask, own, readings, unreadable=False)
        allowed = np.array([goes_with(own, other) for other in readings], dtype=np.bool_)
        same = np.array([other.content == own.content for other in readings], dtype=np.bool_)
        return answers & allowed | same

    def _asked(
        self,
        ask: Callable[[Any, Sequence[Any]], Bools],
        own: Reading,
        others: Sequence[Reading],
        *,
        unreadable: bool,
    ) -> Bools:
        """Ask the inner relation where both sides can be read; give one answer for all others."""
        answers = np.full(len(others), unreadable, dtype=np.bool_)
        places = [] if own.body is None else [n for n, o in enumerate(others) if o.body is not None]
        if places:
            answers[places] = ask(own.parsed, [others[place].parsed for place in places])
        return answers


def _reading(row: Any) -> Reading:
    reading: Reading = row.item() if isinstance(row, np.ndarray) else row
    return reading


def _readings(rows: Others) -> list[Reading]:
    return [_reading(row) for row in rows]
