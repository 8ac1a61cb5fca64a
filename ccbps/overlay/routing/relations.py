"""Relations among subscriptions, advertisements and events, as far as brokers can evaluate them.

A `Relation` reads their bytes, and answers four questions about the contents. The broker that asks
does not know whether it routes plaintext or ciphertexts:

=================  =============================================================================
relation           what brokers read
=================  =============================================================================
`PlainRelation`    boxes and records in plaintext, or a few leading bits of them
`MatcherRelation`  encrypted messages of a matcher whose broker finds out which interest covers
                   which (``Broker.covers``); without advertisements
=================  =============================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Reals
from ccbps.checks import Printable, instance, whole
from ccbps.errors import DecodeError, ParameterError
from ccbps.forms.words import by_attribute
from ccbps.matching import Broker
from ccbps.matching.contract.access import message_bytes
from ccbps.matching.contract.scheme import Side
from ccbps.matching.contract.table import Table
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.codes import unpack
from ccbps.wire import raise_for

Codes: TypeAlias = NDArray[np.int64]
Others: TypeAlias = Sequence[Any] | NDArray[Any]
MOST_BITS: Final = 62


class Relation(Printable, ABC):
    """A broker's knowledge of the content of messages.

    Arguments named `others` are results of `read_filter` for several filters, as the rows of one
    array or in a sequence. Answers about them have the shape (others,).

    Attributes:
        exact: True if `covers` finds all covers. Otherwise it may miss some, but is never wrongly
            True.
        advertising: True if the relation can answer `intersects`.
    """

    exact: ClassVar[bool] = False
    advertising: ClassVar[bool] = False

    @abstractmethod
    def read_filter(self, content: bytes) -> NDArray[Any]:
        """Read a subscription or an advertisement, as an array of one shape for all.

        Raises:
            DecodeError: the content is malformed.
        """

    @abstractmethod
    def read_event(self, content: bytes) -> Any:
        """Read an event; errors are those of `read_filter`."""

    @abstractmethod
    def covers(self, wide: Any, others: Others) -> Bools:
        """Tell which other filters match only events that this one matches, too."""

    def any_covers(self, wide: Others, others: Others) -> Bools:
        """Tell which other filters are covered by at least one of some filters."""
        covered = np.zeros(len(others), dtype=np.bool_)
        if len(others) < len(wide):
            for place, other in enumerate(others):
                covered[place] = self.covered(other, wide).any()
        else:
            for one in wide:
                covered |= self.covers(one, others)
        return covered

    @abstractmethod
    def covered(self, narrow: Any, others: Others) -> Bools:
        """Tell which other filters match all events that this one matches."""

    def prepared(self, others: NDArray[Any]) -> Any:
        """Return filters in the form in which `matches` is fastest for many events."""
        return others

    @abstractmethod
    def matches(self, event: Any, others: Any) -> Bools:
        """Tell which filters, prepared or not, match an event."""

    def intersects(self, one: Any, others: Others) -> Bools:
        """Tell which other filters match some event that this one matches.

        Raises:
            ParameterError: the relation is not `advertising`.
        """
        raise ParameterError(f"{type(self).__name__} routes without advertisements")

    def merged(self, filters: Others, slack: float) -> list[bytes]:
        """Return filters, as bytes, that together cover some others with little waste.

        Args:
            filters: filters, none of which covers another.
            slack: largest number of events that a filter of the result matches, but none of the
                filters merged into it.

        Raises:
            ParameterError: the relation cannot merge.
        """
        raise ParameterError(f"{type(self).__name__} does not merge filters: take slack=0")


class PlainRelation(Relation):
    """Boxes and records in plaintext, or the leading bits of their codes.

    With `bits`, a filter is widened to whole blocks of codes with the same leading bits, and an
    event shows these bits only. So events also reach edges without a match, and the edges match:
    by one-time messages or those of three brokers, for instance, which inner brokers pass on
    unread.

    Args:
        schema: attributes of at most 62 bits each.
        bits: number of leading bits that brokers see, by attribute; they see nothing of others.
            None for all bits of all attributes. With an empty mapping every event is flooded.

    Raises:
        ParameterError: an attribute has more than 62 bits, or fewer than `bits` says.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.overlay import PlainRelation
        >>> relation = PlainRelation(Schema(price=UInt(8), volume=UInt(8)), bits={"price": 2})
        >>> wide = relation.read_filter(relation.filter_bytes("price < 70 AND volume = 3"))
        >>> event = relation.read_event(relation.event_bytes({"price": 100, "volume": 9}))
        >>> relation.matches(event, [wide])     # 70 and 100 have the same two leading bits
        array([ True])
    """

    exact = True
    advertising = True

    def __init__(self, schema: Schema, bits: Mapping[str, int] | None = None) -> None:
        self.schema = instance("schema", schema, Schema)
        shown = schema.widths if bits is None else bits
        by_attribute(schema, "bits", shown, 'bits={"price": 4}')
        self.bits = {
            name: whole(f"bits[{name!r}]", shown[name], 0, min(width, MOST_BITS))
            for name, width in schema.widths.items()
            if name in shown
        }
        self._shifts = {name: schema.widths[name] - kept for name, kept in self.bits.items()}
        self._highest = np.array(
            [schema[name].size - 1 >> shift for name, shift in self._shifts.items()], dtype=np.int64
        )

    def __repr__(self) -> str:
        shown = ", ".join(f"{kept} bits of {name}" for name, kept in self.bits.items())
        return f"<PlainRelation by {shown or 'nothing'}>"

    def filter_bytes(self, text: str | Predicate) -> bytes:
        """Return the bytes of a filter: 16 for each attribute that brokers see.

        Raises:
            PredicateError: it does not parse, or is no box.
        """
        ranges = bound_predicate(self.schema, text).box().ranges
        empty = any(low > high for low, high in ranges.values())
        # An attribute without visible bits has a single code, and so no empty range.
        bounds = [
            (1, 0) if empty and most else tuple(code >> shift for code in ranges[name])
            for (name, shift), most in zip(self._shifts.items(), self._highest, strict=True)
        ]
        return np.array(bounds, dtype=">i8").reshape(-1, 2).T.tobytes()

    def event_bytes(self, record: Mapping[str, Any]) -> bytes:
        """Return the bytes of an event: 8 for each attribute that brokers see.

        Raises:
            EventError: it does not fit the schema.
        """
        events = self.schema.encode([dict(record)])
        codes = [unpack(events.codes[name])[0] >> shift for name, shift in self._shifts.items()]
        return np.array(codes, dtype=">i8").tobytes()

    def read_filter(self, content: bytes) -> Codes:
        return self._read(content, 2)

    def read_event(self, content: bytes) -> Codes:
        return np.asarray(self._read(content, 1)[0])

    def _read(self, content: bytes, rows: int) -> Codes:
        if len(content) != 8 * rows * len(self._shifts):
            raise DecodeError("not a filter or an event of this schema")
        codes = np.frombuffer(content, dtype=">i8").astype(np.int64).reshape(rows, -1)
        if ((codes < 0) | (codes > self._highest)).any():
            raise DecodeError("not a filter or an event of this schema")
        return codes

    def covers(self, wide: Codes, others: Others) -> Bools:
        rows = _stacked(others, wide)
        inside = (rows[:, 0] >= wide[0]) & (rows[:, 1] <= wide[1])
        return np.asarray(inside.all(axis=1) | _empty(rows))

    def covered(self, narrow: Codes, others: Others) -> Bools:
        rows = _stacked(others, narrow)
        inside = (rows[:, 0] <= narrow[0]) & (rows[:, 1] >= narrow[1])
        return np.asarray(inside.all(axis=1) | _empty(narrow[None])[0])

    def matches(self, event: Codes, others: Others) -> Bools:
        rows = _stacked(others, np.empty((2, len(event)), dtype=np.int64))
        return np.asarray(((rows[:, 0] <= event) & (event <= rows[:, 1])).all(axis=1))

    def intersects(self, one: Codes, others: Others) -> Bools:
        rows = _stacked(others, one)
        low, high = np.maximum(rows[:, 0], one[0]), np.minimum(rows[:, 1], one[1])
        return np.asarray((low <= high).all(axis=1))

    def merged(self, filters: Others, slack: float) -> list[bytes]:
        if len(filters) < 2:
            return [box.astype(">i8").tobytes() for box in filters]
        rows, spent = np.array(filters), np.zeros(len(filters))
        waste = np.stack([_waste(row, rows) for row in rows])
        np.fill_diagonal(waste, np.inf)
        kept = np.ones(len(rows), dtype=np.bool_)
        while True:
            # The pair whose hull matches the fewest events that none of its parts matches.
            left, right = divmod(int(waste.argmin()), len(rows))
            if waste[left, right] > slack:
                return [box.astype(">i8").tobytes() for box in rows[kept]]
            spent[left] = waste[left, right]
            rows[left, 0] = np.minimum(rows[left, 0], rows[right, 0])
            rows[left, 1] = np.maximum(rows[left, 1], rows[right, 1])
            kept[right] = False
            waste[right] = waste[:, right] = np.inf
            fresh = np.where(kept, _waste(rows[left], rows) + spent[left] + spent, np.inf)
            fresh[left] = np.inf
            waste[left] = waste[:, left] = fresh


class MatcherRelation(Relation):
    """Messages of a matcher whose broker can tell which interest covers which.

    Args:
        broker: broker of a reusable matcher, with the method `covers`.

    Raises:
        ParameterError: the matcher's brokers cannot tell.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = instance("broker", broker, Broker)
        matcher = broker.matcher
        if not matcher.covering:
            raise ParameterError(
                f"brokers of {type(matcher).__name__} cannot tell which interest covers which: "
                "route by PlainRelation(schema, bits=...) and match at the subscriber's broker, "
                "or take another matcher, such as PrefixMatch or KeywordDictionaryMatch"
            )

    def __repr__(self) -> str:
        return f"<MatcherRelation by {self._broker!r}>"

    def read_filter(self, content: bytes) -> Bytes:
        row = self._row(content, "interest")
        raise_for(self._broker.examine_interests(row[None]))
        return row

    def read_event(self, content: bytes) -> Bytes:
        row = self._row(content, "event")
        raise_for(self._broker.examine_events(row[None]))
        return row

    def _row(self, content: bytes, side: Side) -> Bytes:
        width = message_bytes(self._broker.matcher, side)
        if len(content) != width:
            raise DecodeError(f"a message of {width} bytes is expected, got {len(content)}")
        return np.frombuffer(content, dtype=np.uint8)

    def covers(self, wide: Bytes, others: Others) -> Bools:
        return np.asarray(self._broker.covers(wide[None], _stacked(others, wide))[0])

    def any_covers(self, wide: Others, others: Others) -> Bools:
        if not len(wide) or not len(others):
            return np.zeros(len(others), dtype=np.bool_)
        return np.asarray(self._broker.covers(np.asarray(wide), np.asarray(others)).any(axis=0))

    def covered(self, narrow: Bytes, others: Others) -> Bools:
        return np.asarray(self._broker.covers(_stacked(others, narrow), narrow[None])[:, 0])

    def prepared(self, others: NDArray[Any]) -> Any:
        return self._broker.prepare(others) if len(others) else others

    def matches(self, event: Bytes, others: Any) -> Bools:
        if not len(others):
            return np.zeros(0, dtype=np.bool_)
        filters = others if isinstance(others, Table) else np.asarray(others)
        return np.asarray(self._broker.match_all(event[None], filters)[0])


def _stacked(others: Others, like: NDArray[Any]) -> NDArray[Any]:
    """Return filters as the rows of one array."""
    return np.asarray(others) if len(others) else np.empty((0, *like.shape), dtype=like.dtype)


def _waste(box: Codes, others: Codes) -> Reals:
    """Return the number of events in the hull of a box and each other box that are in neither."""
    hull = np.stack([np.minimum(box[0], others[:, 0]), np.maximum(box[1], others[:, 1])], axis=1)
    both = np.stack([np.maximum(box[0], others[:, 0]), np.minimum(box[1], others[:, 1])], axis=1)
    return _volume(hull) - _volume(box[None]) - _volume(others) + _volume(both)


def _volume(boxes: Codes) -> Reals:
    """Return the numbers of events of boxes, shape (..., 2, attributes)."""
    widths = np.maximum(boxes[..., 1, :] - boxes[..., 0, :] + 1, 0)
    return np.asarray(widths.astype(np.float64).prod(axis=-1))


def _empty(rows: Codes) -> Bools:
    return np.asarray((rows[:, 0] > rows[:, 1]).any(axis=1))
