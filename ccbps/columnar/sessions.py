"""Events of schemes with sessions: which a publisher can send, and what a subscriber reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ccbps.arrow import binary_rows
from ccbps.columnar.reasons import SET_ASIDE, Reasons, no_reasons, refuse_rows
from ccbps.columnar.roles import kept_role
from ccbps.errors import DecodeError
from ccbps.keys.sources import KeySource, role_key
from ccbps.matching.contract.matcher import Matcher
from ccbps.predicates import Events

# Roles of sessions have methods that others have not, hence Any.


def payload_bytes(matcher: Matcher) -> int:
    """Return the longest payload that goes inside an event; 0 where none does."""
    found: int = getattr(matcher, "payload_bytes", 0)
    return found


def event_width(matcher: Matcher, publisher: Any) -> int:
    """Return the bytes of the messages that a publisher makes now."""
    answered: int = publisher.requests
    return matcher.event_bytes + answered * matcher.sizes.event_per_request


def examine_sent(
    matcher: Matcher, publisher: Any, events: Events, payloads: Sequence[pa.Array]
) -> Reasons:
    """Return why a publisher cannot send events with their payloads (one column, or none)."""
    reasons = no_reasons(events.count)
    most = payload_bytes(matcher)
    for column in payloads:
        long = pc.greater(pc.binary_length(column), most).to_numpy(zero_copy_only=False)
        reasons[long] = f"the payload is longer than payload_bytes={most}"
    reasons[~publisher.serves(events)] = "none of the publisher's topics"
    return reasons


@dataclass(frozen=True, slots=True)
class Opening:
    """What a subscriber does with batches of events. Small and picklable, without a key.

    Attributes:
        key: where the subscriber's key is.
        event: name of the column of messages, which may be of different widths.
        kept: names of the columns that stay.
        names: of all columns of the result: `kept`, the interest, the payload if there is one, and
            with "reject" the cause.
        on_error: "raise" fails at the first malformed message; "drop" lets such match nothing;
            "reject" also gives each a row, with the cause and without an interest.
    """

    matcher: Matcher
    key: KeySource
    event: str
    kept: tuple[str, ...]
    names: tuple[str, ...]
    on_error: str

    def matches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each event and interest that match.

        Raises:
            DecodeError: a message is malformed, and `on_error` is "raise"; names its row by the
                columns kept.
        """
        reject = self.on_error == "reject"
        subscriber = kept_role(self.matcher, "subscriber", role_key(self.key))
        for batch in batches:
            messages = batch.column(batch.schema.get_field_index(self.event))
            others = [batch.column(batch.schema.get_field_index(name)) for name in self.kept]
            row, which, payloads, problems = _examine(subscriber, messages)
            if self.on_error == "raise":
                refuse_rows(problems, self.kept, others, SET_ASIDE)
            # Rows that are rejected come last, and have neither an interest nor a payload.
            bad = np.array(sorted(problems) if reject else [], dtype=np.intp)
            place = pa.array(np.append(row, bad))
            nothing = pa.nulls(len(bad), pa.int64())
            interest = pa.concat_arrays([pa.array(which, pa.int64()), nothing])
            columns = [*(other.take(place) for other in others), interest]
            if len(self.names) - reject > len(columns):
                columns.append(payloads.take(place))
            if reject:
                whys = [None] * len(row) + [problems[at] for at in bad.tolist()]
                columns.append(pa.array(whys, pa.string()))
            yield pa.RecordBatch.from_arrays(columns, names=list(self.names))


def _examine(
    subscriber: Any, messages: pa.Array
) -> tuple[NDArray[np.intp], NDArray[np.intp], pa.Array, dict[int, str]]:
    """Return row and interest of each match; payloads and what is wrong, by row."""
    widths = pc.binary_length(messages).fill_null(-1).to_numpy(zero_copy_only=False)
    payloads: list[bytes | None] = [None] * len(messages)
    problems: dict[int, str] = {}
    matches = np.empty((2, 0), dtype=np.intp)
    for width in np.unique(widths[widths >= 0]).tolist():
        rows = np.flatnonzero(widths == width)
        bodies, _ = binary_rows(messages.filter(pa.array(widths == width)), width)
        try:
            read, causes = subscriber.examine(bodies)
        except DecodeError as error:
            problems |= dict.fromkeys(rows.tolist(), str(error))
            continue
        problems |= {int(rows[at]): cause for at, cause in causes.items()}
        found, which = np.nonzero(read.matched)
        matches = np.concatenate([matches, [rows[found], which]], axis=1)
        for at in np.unique(found).tolist():
            payloads[rows[at]] = read.payloads[at]
    return matches[0], matches[1], pa.array(payloads, pa.binary()), problems
