"""Answers of one of three brokers: its worker meets its twins, and matches together with them.

A worker has a part of the interests and all events, each sorted by the heads of their messages,
which are the same at all three brokers. The three take some rows at a time, and tell one another
the heads. Heads up to the smallest of the three last ones are all known by then, so messages that a
broker lacks, or refuses by itself, are found, and the other two refuse them. The remaining messages
are in the same order everywhere.

Workers may end at any time, and begin again by themselves: nobody counts attempts. Twins that meet
share no state from earlier attempts. They draw fresh masks, and begin with the first row. So it
does not matter which attempts meet, as long as they are of one job. No attempt succeeds before all
workers of all three operators have made all their rows: otherwise a worker whose last rows are lost
would find no twins any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ccbps.arrays import Bytes
from ccbps.arrow import binary_column, binary_rows
from ccbps.columnar.reasons import cause_texts, refuse
from ccbps.columnar.roles import for_subscribers
from ccbps.errors import DecodeError, PeerError
from ccbps.keys.sources import KeySource, operator_key
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Side
from ccbps.shares.answers import PAYLOAD_KEY_BYTES
from ccbps.shares.clients import HEAD_BYTES, part_bytes
from ccbps.shares.meeting import meeting
from ccbps.shares.operators import Operator, broker_key
from ccbps.shares.party import Party
from ccbps.shares.ring import Ring
from ccbps.shares.table import BATCH_EVENTS
from ccbps.wire import Cause

SIDES: Final[tuple[Side, Side]] = "interest", "event"
"""Sides by their numbers, in the order in which a worker needs their rows."""
CELLS: Final = 1 << 24
"""Bits of messages that are expanded at a time, or pairs that are matched, a byte each."""
MOST_ROWS: Final = 1 << 14
"""Rows that are agreed on at a time."""
ADVICE: Final = "match_shares sets such rows aside with on_error='reject'"
SEALED: Final = "attempt", "share"
"""Columns of an answer that no broker learns: name of the evaluation, and sealed share."""
SIDE: Final = "__ccbps_side"
MESSAGE: Final = "__ccbps_message"
"""Columns of the rows of a worker."""
_HEAD: Final = f"S{HEAD_BYTES}"


@dataclass(frozen=True, slots=True)
class ShareMatching:
    """Work of one operator's workers. Small and picklable, without a key.

    Attributes:
        matcher: the public parameters.
        key: source of the operator's key.
        party: number of the operator's broker.
        operators: public sides of operators 0, 1 and 2.
        hellos: hellos of all clients for this broker.
        subscription: name of the column of labels.
        kept: names of the events' columns that stay.
        on_error: "raise" to fail at the first message that is refused, "drop" to let such messages
            match nothing, "reject" to give each a row with the reason as well.
        workers: number of workers of each operator.
        job: name of the job, the same at all three operators.
        host: name or IP address at which workers listen.
        seconds: longest time to wait for twins, in seconds.
    """

    matcher: Matcher
    key: KeySource
    party: int
    operators: tuple[Operator, ...]
    hellos: tuple[bytes, ...]
    subscription: str
    kept: tuple[str, ...]
    on_error: str
    workers: int
    job: str
    host: str
    seconds: float

    def matches(
        self,
        worker: int,
        batches: Iterable[pa.RecordBatch],
        ready: Callable[[], object] = lambda: None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield a row for each event and interest that match: the label, and the kept columns.

        Where no broker learns the answers, yield one for each event and interest, with `SEALED`.

        Args:
            worker: number of this worker.
            batches: rows with the columns `SIDE`, `MESSAGE`, `subscription` and `kept`: a part of
                the interests, and then all events, each sorted by their messages.
            ready: function to call after the last row, which returns once the operator's other
                workers have come there, too.

        Raises:
            DecodeError: a message is refused, and `on_error` is "raise"; or a hello is malformed.
            NetworkError: the twins did not come, or a connection broke.
        """
        with self._met(worker) as (ring, broker):
            work = _Work(self, ring, broker, report_events=worker == 0)
            rows = _Rows(batches)
            yield from work.subscribe(rows.of_side(0))
            yield from work.publish(rows.of_side(1))
            ready()
            ring.exchange(b"", 0)

    @contextmanager
    def _met(self, worker: int) -> Iterator[tuple[Ring, Party]]:
        """Yield the connections of a worker, and its broker, which has all clients' keys."""
        agreed = b"ccbps on Spark" + self.matcher.digest + self.workers.to_bytes(8, "little")
        agreed += self.job.encode()
        key = operator_key(self.key)
        matcher: Any = self.matcher  # `Matcher` knows brokers that work alone
        with meeting(
            self.party,
            key,
            self.operators,
            sha256(agreed).digest(),
            worker=worker,
            host=self.host,
            seconds=self.seconds,
        ) as ring:
            broker: Party = matcher.broker(self.party, broker_key(key), ring)
            for hello in self.hellos:
                # Messages of a client whose hello is malformed are refused one by one.
                with nullcontext() if self.on_error == "raise" else suppress(DecodeError):
                    broker.greet(hello)
            yield ring, broker

    def width(self, side: Side) -> int:
        """Return the bytes of a message for this broker."""
        whole = self.matcher.event_bytes if side == "event" else self.matcher.interest_bytes
        return part_bytes(self.party, whole)


class _Rows:
    """Rows of a worker, read side by side."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._held: pa.RecordBatch | None = None

    def of_side(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a side, which are the next ones."""
        while (batch := self._held or next(self._batches, None)) is not None:
            count = int(np.count_nonzero(batch.column(SIDE).to_numpy() == number))
            self._held = batch.slice(count) if count < batch.num_rows else None
            if count:
                yield batch.slice(0, count)
            if self._held is not None:
                return


class _Work:
    """Work of one worker that has met its twins."""

    def __init__(
        self, matching: ShareMatching, ring: Ring, broker: Party, *, report_events: bool
    ) -> None:
        self._matching, self._ring, self._broker = matching, ring, broker
        self._report_events, self._sealed = report_events, for_subscribers(matching.matcher)
        self._labels: list[pa.Array] = []
        self._rejected: list[pa.RecordBatch] = []

    def subscribe(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add interests, and yield rows of those that are refused."""
        size = self._at_once("interest")
        for messages, rows in self._agreed("interest", batches, size):
            refused = self._broker.subscribe(messages) < 0
            self._refuse("interest", rows, refused.astype(np.uint8) * np.uint8(Cause.SHARES))
            labels = rows.column(self._matching.subscription)
            self._labels.append(labels.filter(pa.array(~refused)))
            yield from self._reported()
        yield from self._reported()

    def publish(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Match events, and yield rows of matches and of events that are refused."""
        labels = pa.concat_arrays([pa.array([], pa.string()), *self._labels])
        most = CELLS // max(1, len(labels))
        size = max(BATCH_EVENTS, min(self._at_once("event"), most))
        if self._sealed:
            size = max(1, min(size, most // PAYLOAD_KEY_BYTES))
        for messages, rows in self._agreed("event", batches, size):
            if self._sealed:
                yield from self._shared(labels, messages, rows)
                continue
            answers, refused = self._broker.publish(messages)
            self._refuse("event", rows, refused.astype(np.uint8) * np.uint8(Cause.SHARES))
            yield from self._reported()
            event, lane = np.nonzero(answers)
            if len(event):
                matched = rows.take(pa.array(event))
                yield self._result(labels.take(pa.array(lane)), matched, None)
        yield from self._reported()

    def _shared(
        self, labels: pa.Array, messages: Bytes, rows: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of events that are refused, and a sealed share of each other pair."""
        answers, refused = self._broker.publish_for_subscribers(messages)
        self._refuse("event", rows, refused.astype(np.uint8) * np.uint8(Cause.SHARES))
        yield from self._reported()
        good, count = np.flatnonzero(~refused), len(labels)
        if count and len(good):
            event, lane = np.repeat(good, count), np.tile(np.arange(count), len(good))
            shares = answers.shares[good].reshape(-1, PAYLOAD_KEY_BYTES)
            sealed = [binary_column(answers.attempts[event]), binary_column(shares)]
            pair = labels.take(pa.array(lane)), rows.take(pa.array(event))
            yield self._result(*pair, None, sealed)

    def _at_once(self, side: Side) -> int:
        """Return the number of messages to treat at a time, the same at all brokers."""
        matcher = self._matching.matcher
        bits = 8 * (matcher.event_bytes if side == "event" else matcher.interest_bytes)
        return max(1, min(MOST_ROWS, CELLS // bits))

    def _agreed(
        self, side: Side, batches: Iterable[pa.RecordBatch], size: int
    ) -> Iterator[tuple[Bytes, pa.RecordBatch]]:
        """Yield messages that all three brokers have and take, at most so many at a time."""
        source, ended = self._taken(side, batches), False
        nothing = np.empty((0, self._matching.width(side)), dtype=np.uint8)
        waiting: list[tuple[Bytes, pa.RecordBatch]] = []
        while True:
            while not ended and sum(len(messages) for messages, _ in waiting) < size:
                some = next(source, None)
                ended = some is None
                waiting += [] if some is None else [some]
            if len(waiting) > 1:
                own = np.concatenate([messages for messages, _ in waiting])
                waiting = [(own, pa.concat_batches([batch for _, batch in waiting]))]
            own, rows = waiting[0] if waiting else (nothing, None)
            whole = ended and len(own) <= size
            heads = _heads(own[:size, :HEAD_BYTES].tobytes())
            common, last, done = self._compared(heads, whole, size)
            stop = len(heads) if last is None else int(np.searchsorted(heads, last, "right"))
            if rows is not None:
                here = np.isin(heads[:stop], common)
                absent = np.where(here, np.uint8(Cause.NONE), np.uint8(Cause.ABSENT))
                self._refuse(side, rows.slice(0, stop), absent)
                waiting = [(own[stop:], rows.slice(stop))] if stop < len(own) else []
                if here.any():
                    yield own[:stop][here], rows.slice(0, stop).filter(pa.array(here))
            if done:
                return

    def _compared(
        self, heads: NDArray[np.bytes_], whole: bool, size: int
    ) -> tuple[NDArray[np.bytes_], Any, bool]:
        """Compare heads with those of the other two brokers.

        Args:
            heads: this broker's next heads, sorted.
            whole: True if these are the last ones.
            size: greatest number of heads.

        Returns:
            The heads that all three have; the head up to which this holds, or None for all of them;
            and True if nobody has more.
        """
        told = self._ring.exchange(bytes([whole]) + heads.tobytes(), 1 + size * HEAD_BYTES)
        lists, ends = [], []
        for content in told:
            if len(content) % HEAD_BYTES != 1 or content[0] > 1 or content == b"\0":
                raise PeerError("a neighbour's list of messages is none")
            lists.append(_heads(content[1:]))
            if not content[0]:
                ends.append(lists[-1][-1])
        common = np.intersect1d(np.intersect1d(lists[0], lists[1]), lists[2])
        return common, min(ends, default=None), not ends

    def _taken(
        self, side: Side, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[Bytes, pa.RecordBatch]]:
        """Yield the messages that this broker does not refuse by itself, in batches with some."""
        last = _heads(bytes(HEAD_BYTES))  # which no message has
        for batch in batches:
            messages, good = binary_rows(batch.column(MESSAGE), self._matching.width(side))
            causes = np.full(len(messages), _WIDTH[side], dtype=np.uint8)
            causes[good] = self._broker.examine(side, np.ascontiguousarray(messages[good]))
            heads = _heads(messages[:, :HEAD_BYTES].tobytes())
            again = np.append(last, heads[:-1]) == heads
            causes[again & (causes == Cause.NONE)] = Cause.REPEATED
            self._refuse(side, batch, causes)
            last, taken = heads[-1:], causes == Cause.NONE
            if taken.any():
                yield np.ascontiguousarray(messages[taken]), batch.filter(pa.array(taken))

    def _refuse(self, side: Side, rows: pa.RecordBatch, causes: Bytes) -> None:
        """Raise for the first message that is refused, or remember all that are."""
        matching = self._matching
        bad = causes != Cause.NONE
        if not bad.any():
            return
        names = (matching.subscription,) if side == "interest" else matching.kept
        if matching.on_error == "raise":
            refuse(causes, names, rows.select(list(names)).columns, ADVICE)
        if matching.on_error == "reject" and (side == "interest" or self._report_events):
            set_aside = rows.filter(pa.array(bad))
            labels = set_aside.column(matching.subscription)
            self._rejected.append(self._result(labels, set_aside, causes[bad]))

    def _reported(self) -> Iterator[pa.RecordBatch]:
        yield from self._rejected
        self._rejected = []

    def _result(
        self,
        labels: pa.Array,
        rows: pa.RecordBatch,
        causes: Bytes | None,
        sealed: Sequence[pa.Array] | None = None,
    ) -> pa.RecordBatch:
        """Make rows of the result."""
        matching = self._matching
        columns = [labels, *rows.select(list(matching.kept)).columns]
        names = [matching.subscription, *matching.kept]
        if self._sealed:
            columns += sealed or [pa.nulls(rows.num_rows, pa.binary())] * len(SEALED)
            names += SEALED
        if matching.on_error == "reject":
            none = np.zeros(rows.num_rows, dtype=np.uint8)
            columns.append(cause_texts(none if causes is None else causes))
            names.append("rejected")
        return pa.RecordBatch.from_arrays(columns, names=names)


_WIDTH: Final[dict[Side, Cause]] = {
    "event": Cause.EVENT_WIDTH,
    "interest": Cause.INTEREST_WIDTH,
}


def _heads(content: bytes) -> NDArray[np.bytes_]:
    """Return heads as values that sort like bytes; all have one length."""
    return np.frombuffer(content, dtype=_HEAD)
