"""Events of schemes with sessions: reasons not to send them, and answers of a subscriber."""

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

# Roles of sessions have methods that other roles lack, hence Any.


def payload_bytes(matcher: Matcher) -> int:
    """Return the most bytes of a payload inside an event; 0 if events hold none."""
    return int(getattr(matcher, "payload_bytes", 0))


def examine_sent(
    matcher: Matcher, publisher: Any, events: Events, payloads: Sequence[pa.Array]
) -> Reasons:
    """Return the reasons why a publisher cannot send events.

    Args:
        matcher: the public parameters.
        publisher: role of the publisher.
        events: the events.
        payloads: the column of payloads, or no column.
    """
    reasons, most = no_reasons(events.count), payload_bytes(matcher)
    for column in payloads:
        long = pc.greater(pc.binary_length(column), most).to_numpy(zero_copy_only=False)
        reasons[long] = f"the payload is longer than payload_bytes={most}"
    reasons[~publisher.serves(events)] = "none of the publisher's topics"
    return reasons


@dataclass(frozen=True, slots=True)
class Opening:
    """Work of a subscriber on batches of events. Small and picklable, without a key.

    Attributes:
        matcher: the public parameters.
        key: source of the subscriber's key.
        event: name of the column of messages, whose widths may differ.
        kept: names of the columns that stay.
        names: names of the result's columns: `kept`, the interest, the payload if there is one, and
            the reason with "reject".
        on_error: "raise" to fail at the first malformed message, "drop" to let malformed messages
            match nothing, "reject" to give each a row with the reason and no interest as well.
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
                kept columns.
        """
        reject = self.on_error == "reject"
        subscriber = kept_role(self.matcher, "subscriber", role_key(self.key))
        for batch in batches:
            messages, others = batch.column(self.event), batch.select(self.kept).columns
            row, which, payloads, problems = _examine(subscriber, messages)
            if self.on_error == "raise":
                refuse_rows(problems, self.kept, others, SET_ASIDE)
            # Rejected rows come last, and have neither an interest nor a payload.
            bad = np.array(sorted(problems) if reject else [], dtype=np.intp)
            place = pa.array(np.append(row, bad))
            nothing = pa.nulls(len(bad), pa.int64())
            interest = pa.concat_arrays([pa.array(which, pa.int64()), nothing])
            columns = [*(other.take(place) for other in others), interest]
            if len(self.names) - reject > len(columns):
                columns.append(payloads.take(place))
            if reject:
                reasons = [None] * len(row) + [problems[at] for at in bad.tolist()]
                columns.append(pa.array(reasons, pa.string()))
            yield pa.RecordBatch.from_arrays(columns, names=list(self.names))


def _examine(
    subscriber: Any, messages: pa.Array
) -> tuple[NDArray[np.intp], NDArray[np.intp], pa.Array, dict[int, str]]:
    """Return the rows and interests of matches; and payloads and problems by row."""
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
        row, interest = np.nonzero(read.matched)
        matches = np.concatenate([matches, [rows[row], interest]], axis=1)
        for at in np.unique(row).tolist():
            payloads[rows[at]] = read.payloads[at]
    return matches[0], matches[1], pa.array(payloads, pa.binary()), problems
