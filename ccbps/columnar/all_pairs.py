"""Answers to every event and every interest.

A worker keeps a broker from batch to batch, by its key, and prepared interests, by their content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccbps.arrays import Bools, Bytes, Index
from ccbps.arrow import binary_rows, is_valid
from ccbps.columnar.reasons import cause_texts, refuse
from ccbps.columnar.roles import kept_role
from ccbps.errors import DecodeError
from ccbps.filters.contents import HEAD_BYTES, may_match
from ccbps.keys.role_key import RoleKey
from ccbps.keys.sources import KeySource, role_key
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.table import Table
from ccbps.wire import Cause

MATCH_CELLS: Final = 1 << 24
"""Pairs of an event and an interest that are matched at a time, a byte each."""
BLOCK_ROWS: Final = 1 << 15
"""Most rows of a block. A task matches two blocks, in some seconds with fast schemes. With smaller
blocks, brokers would prepare interests more often, once for each block of events."""


@lru_cache(maxsize=8)
def _table(
    matcher: Matcher, key: RoleKey, interests: bytes, masked: bool
) -> tuple[Table | Bytes, Bytes]:
    """Prepare this worker's table of interests, and return it with the `Cause` of each interest.

    Refused interests are not in the table. With masks, the pairs to test are not known before, so
    the messages themselves stand in place of a table.
    """
    broker = kept_role(matcher, "broker", key)
    rows = np.frombuffer(interests, dtype=np.uint8).reshape(-1, matcher.interest_bytes)
    causes = broker.examine_interests(rows)
    served = rows[causes == Cause.NONE]
    return served if masked else broker.prepare(served), causes


@dataclass(frozen=True, slots=True)
class AllPairs:
    """Work of a broker on batches of events. Small and picklable, without a key.

    Attributes:
        matcher: the public parameters.
        key: source of the broker's key.
        subscription: name of the result's column of labels.
        event: name of the column of event messages.
        kept: names of the events' columns that stay. A result also has the label, and the reason
            with "reject".
        on_error: "raise" to fail at the first malformed message, "drop" to let malformed messages
            match nothing, "reject" to give each a row with the columns that name it and the reason
            as well.
        mask: name of the column of masks of a content pre-filter, of events and of interests; None
            if there is none.
    """

    matcher: Matcher
    key: KeySource
    subscription: str
    event: str
    kept: tuple[str, ...]
    on_error: str
    mask: str | None = None

    def interests(
        self, labels: pa.Array, messages: pa.Array, masks: pa.Array | None = None
    ) -> tuple[pa.Array, bytes, pa.Array | None]:
        """Return labels, messages and masks of the interests that have the right width.

        Args:
            labels: column of subscriptions' names.
            messages: binary column of interests.
            masks: binary column of their masks; None if there is none.

        Raises:
            DecodeError: an interest has another width, and `on_error` is "raise".
        """
        rows, good = binary_rows(messages, self.matcher.interest_bytes)
        if self.on_error == "raise":
            causes = np.where(good, np.uint8(Cause.NONE), np.uint8(Cause.INTEREST_WIDTH))
            refuse(causes, [self.subscription], [labels])
        some = pa.array(good)
        return labels.filter(some), rows[good].tobytes(), masks and masks.filter(some)

    def rejected(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each malformed interest: its label and the reason.

        Args:
            batches: batches of labels and messages of interests, none NULL.
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
        masks: pa.Array | None,
        batches: Iterable[pa.RecordBatch],
        *,
        report: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield a row for each event and interest that match: the label, and the kept columns.

        Interests of revoked users match nothing, whatever `on_error` is.

        Args:
            labels: labels that `interests` returned.
            content: messages that `interests` returned.
            masks: masks that `interests` returned.
            batches: batches of events.
            report: True to refuse malformed events or give them their rows; once is enough where
                events meet several blocks of interests.

        Raises:
            DecodeError: a message is malformed, and `on_error` is "raise".
        """
        key = role_key(self.key)
        broker = kept_role(self.matcher, "broker", key)
        table, refused = _table(self.matcher, key, content, masks is not None)
        if self.on_error == "raise":
            causes = np.where(refused == Cause.USER, np.uint8(Cause.NONE), refused)
            refuse(causes, [self.subscription], [labels])
        alive = pa.array(refused == Cause.NONE)
        served = labels.filter(alive)
        asked = None if masks is None else masks.filter(alive)
        rows_at_once = max(1, MATCH_CELLS // max(1, len(table)))
        parts = (
            batch.slice(start, rows_at_once)
            for batch in batches
            for start in range(0, batch.num_rows, rows_at_once)
        )
        for batch in parts:
            messages, others = batch.column(self.event), batch.select(self.kept).columns
            bodies, fits = binary_rows(messages, self.matcher.event_bytes)
            usable = np.flatnonzero(fits)
            where = None
            if asked is not None:
                where = passing(batch.column(self.mask).take(pa.array(usable)), asked)
            sent = np.ascontiguousarray(bodies[usable])
            answers, causes = broker.examine_all(sent, table, where)
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
        """Make rows of the result with the events at some places."""
        columns = [labels, *(other.take(pa.array(places)) for other in others)]
        names = [self.subscription, *self.kept]
        if self.on_error == "reject":
            columns, names = [*columns, cause_texts(causes)], [*names, "rejected"]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def block_matches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Match rows of two blocks, one of events and one of interests; see `matches`.

        With "reject", malformed events get their rows where they meet a block of no interests.
        """
        for batch in batches:
            for event_block, interest_block in zip(*batch.columns, strict=True):
                labels, messages, *others = _unpacked(interest_block).columns
                masks = others[0] if self.mask and others else None
                served = self.interests(labels.cast(pa.string()), messages, masks)
                report = self.on_error == "raise" or not len(labels)
                yield from self.matches(*served, [_unpacked(event_block)], report=report)


def passing(events: pa.Array, interests: pa.Array) -> Bools:
    """Tell which pairs pass a content pre-filter, shape (events, interests).

    A mask that is NULL, of another width than most, or of another filter says nothing about its
    row, so all pairs of this row pass.

    Args:
        events: binary column of masks of events.
        interests: binary column of masks of subscriptions.
    """
    own, fits = binary_rows(events, _usual_width(events))
    asked, good = binary_rows(interests, _usual_width(interests))
    out = np.ones((len(fits), len(good)), dtype=np.bool_)
    if min(own.shape[1], asked.shape[1]) < HEAD_BYTES:
        return out
    heads, counts = np.unique(asked[good, :HEAD_BYTES], axis=0, return_counts=True)
    for head in heads[counts == counts.max(initial=1)][:1]:
        fits = fits & (own[:, :HEAD_BYTES] == head).all(axis=1)
        good = good & (asked[:, :HEAD_BYTES] == head).all(axis=1)
        with suppress(DecodeError):  # masks that are not of whole words
            tested = may_match(np.ascontiguousarray(own[fits]), np.ascontiguousarray(asked[good]))
            out[np.ix_(fits, good)] = tested
    return out


def _usual_width(masks: pa.Array) -> int:
    widths = pc.mode(pc.binary_length(masks))
    return int(widths[0]["mode"].as_py()) if len(widths) else 0


def blocks(
    batches: Iterable[pa.RecordBatch], size: int, topic: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Pack rows in blocks, and yield each as a batch of one row with the column `block`.

    Args:
        batches: rows to pack.
        size: approximate bytes of a block, which has at most `BLOCK_ROWS` rows.
        topic: column whose value is the same for all rows of a block, which consists of
            neighbours; the value is in the column `topic`. None to pack all neighbours.
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
    """Yield batches or, with `topic`, neighbours of the same topic as one batch."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if topic is None:
            yield None, batch
            continue
        if not batch.num_rows:
            continue
        column = batch.column(topic)
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
"""Block of no interests."""
