"""Answers for every event and every interest.

A broker, and interests as it keeps them, stay on a worker from batch to batch: by key and content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from ccbps.arrays import Bytes, Index
from ccbps.arrow import binary_rows, is_valid
from ccbps.columnar.reasons import cause_texts, refuse
from ccbps.columnar.roles import kept_role
from ccbps.keys.role_key import RoleKey
from ccbps.keys.sources import KeySource, role_key
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.table import Table
from ccbps.wire import Cause

MATCH_CELLS: Final = 1 << 24
"""Pairs of an event and an interest decided at a time: a byte each."""
BLOCK_ROWS: Final = 1 << 15
"""Of a block, at most: what two blocks hold is decided in one task, some seconds in fast schemes.
Fewer would make brokers prepare interests more often, once for each block of events."""


@lru_cache(maxsize=8)
def _table(matcher: Matcher, key: RoleKey, interests: bytes) -> tuple[Table, Bytes]:
    """Prepare interests as this worker's broker keeps them, and return the `Cause` of each.

    Those that it refuses are not in the table.
    """
    broker = kept_role(matcher, "broker", key)
    rows = np.frombuffer(interests, dtype=np.uint8).reshape(-1, matcher.interest_bytes)
    causes = broker.examine_interests(rows)
    return broker.prepare(rows[causes == Cause.NONE]), causes


@dataclass(frozen=True, slots=True)
class AllPairs:
    """What a broker does with batches of events. Small and picklable, without a key.

    Attributes:
        key: where the broker's key is.
        subscription: name of the result's column of labels.
        event: name of the column of event messages.
        kept: names of the events' columns that stay, all of a result but the label and the cause.
        on_error: "raise" fails at the first malformed message; "drop" lets such match nothing;
            "reject" also gives each a row, of NULLs but for what names it and the cause.
    """

    matcher: Matcher
    key: KeySource
    subscription: str
    event: str
    kept: tuple[str, ...]
    on_error: str

    def interests(self, labels: pa.Array, messages: pa.Array) -> tuple[pa.Array, bytes]:
        """Return labels and messages of those interests that have the right width.

        Raises:
            DecodeError: one has not, and `on_error` is "raise".
        """
        rows, good = binary_rows(messages, self.matcher.interest_bytes)
        if self.on_error == "raise":
            causes = np.where(good, np.uint8(Cause.NONE), np.uint8(Cause.INTEREST_WIDTH))
            refuse(causes, [self.subscription], [labels])
        return labels.filter(pa.array(good)), rows[good].tobytes()

    def rejected(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each malformed interest: label and cause.

        Args:
            batches: of interests: labels and messages, none NULL.
        """
        broker = kept_role(self.matcher, "broker", role_key(self.key))
        for batch in batches:
            labels, messages = batch.columns
            rows, good = binary_rows(messages, self.matcher.interest_bytes)
            causes = np.full(len(good), np.uint8(Cause.INTEREST_WIDTH))
            causes[good] = broker.examine_interests(np.ascontiguousarray(rows[good]))
            causes[causes == Cause.USER] = Cause.NONE
            bad = pa.array(causes != 0)
            yield pa.record_batch(
                [labels.cast(pa.string()).filter(bad), cause_texts(causes).filter(bad)],
                names=[self.subscription, "rejected"],
            )

    def matches(
        self,
        labels: pa.Array,
        content: bytes,
        batches: Iterable[pa.RecordBatch],
        *,
        report: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield a row for each event and interest that match: label, and the columns kept.

        Args:
            labels, content: from `interests`.
            batches: of events.
            report: with "reject", malformed events have their rows here; they must once.

        Raises:
            DecodeError: a message is malformed, and `on_error` is "raise". Interests of users who
                were revoked match nothing either way.
        """
        found = role_key(self.key)
        broker = kept_role(self.matcher, "broker", found)
        table, refused = _table(self.matcher, found, content)
        if self.on_error == "raise":
            causes = np.where(refused == Cause.USER, np.uint8(Cause.NONE), refused)
            refuse(causes, [self.subscription], [labels])
        served = labels.filter(pa.array(refused == Cause.NONE))
        rows_at_once = max(1, MATCH_CELLS // max(1, len(table)))
        for batch in (
            whole.slice(start, rows_at_once)
            for whole in batches
            for start in range(0, whole.num_rows, rows_at_once)
        ):
            messages = batch.column(batch.schema.get_field_index(self.event))
            others = [batch.column(batch.schema.get_field_index(name)) for name in self.kept]
            bodies, fits = binary_rows(messages, self.matcher.event_bytes)
            usable = np.flatnonzero(fits)
            answers, causes = broker.examine_all(np.ascontiguousarray(bodies[usable]), table)
            if report and self.on_error != "drop":
                every = np.where(is_valid(messages), np.uint8(Cause.EVENT_WIDTH), Cause.NONE)
                every[usable] = causes
                if self.on_error == "raise":
                    refuse(every, self.kept, others)
                bad = np.flatnonzero(every)
                if len(bad):
                    yield self._rows(pa.nulls(len(bad), pa.string()), others, bad, every[bad])
            row, which = np.nonzero(answers)
            matched = served.take(pa.array(which))
            yield self._rows(matched, others, usable[row], np.zeros(len(row), dtype=np.uint8))

    def _rows(
        self, labels: pa.Array, others: list[pa.Array], places: Index, causes: Bytes
    ) -> pa.RecordBatch:
        """Make rows of the result, with the events at these places."""
        columns = [labels, *(other.take(pa.array(places)) for other in others)]
        names = [self.subscription, *self.kept]
        if self.on_error == "reject":
            columns, names = [*columns, cause_texts(causes)], [*names, "rejected"]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def block_matches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Match rows that hold a block of events and one of interests; see `matches`.

        Malformed events are reported where a block of no interests meets them.
        """
        for batch in batches:
            for some_events, some_interests in zip(*batch.columns, strict=True):
                labels, messages, *_ = _unpacked(some_interests).columns
                found = self.interests(labels.cast(pa.string()), messages)
                report = self.on_error == "raise" or not len(labels)
                yield from self.matches(*found, [_unpacked(some_events)], report=report)


def blocks(
    batches: Iterable[pa.RecordBatch], size: int, topic: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Pack rows in blocks of at most `BLOCK_ROWS` and about `size` bytes, a batch of one row each.

    The column is `block`. With `topic`, rows of neighbours with the same value there are together,
    and the value is in a column before it.
    """
    for value, rows in _runs(batches, topic):
        at_once = max(1, min(BLOCK_ROWS, rows.num_rows * size // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, at_once):
            block = pa.array([_packed(rows.slice(start, at_once))])
            if topic is None:
                yield pa.record_batch({"block": block})
            else:
                yield pa.record_batch({"topic": value, "block": block})


def _runs(
    batches: Iterable[pa.RecordBatch], topic: str | None
) -> Iterator[tuple[pa.Array | None, pa.RecordBatch]]:
    """Yield batches; or neighbours that have the same topic, across batches, each as one."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if topic is None:
            yield None, batch
            continue
        if not batch.num_rows:
            continue
        column = batch.column(batch.schema.get_field_index(topic))
        codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy()
        starts = np.flatnonzero(np.diff(codes, prepend=-1)).tolist()
        for start, stop in pairwise([*starts, batch.num_rows]):
            value = column[start]
            if waiting and waiting[0].column(topic)[0] != value:
                yield waiting[0].column(topic)[:1], _together(waiting)
                waiting = []
            waiting.append(batch.slice(start, stop - start))
    if waiting:
        yield waiting[0].column(topic)[:1], _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    out: bytes = sink.getvalue().to_pybytes()
    return out


def _unpacked(block: pa.Scalar) -> pa.RecordBatch:
    with pa.ipc.open_stream(block.as_buffer()) as stream:
        return stream.read_next_batch()


NO_INTERESTS: Final = _packed(
    pa.record_batch({"label": pa.array([], pa.string()), "message": pa.array([], pa.binary())})
)
"""A block of interests with none in it."""
