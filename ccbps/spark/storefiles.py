"""Files of a message store: written once, then mapped into memory and read without a copy.

A store is a folder on a file system that driver and workers see under one path:

=================  =================================================================================
file               holds
=================  =================================================================================
``part-*.arrow``   Arrow IPC, uncompressed: `round` int64 and `message`, fixed-size binary; sorted
                   by subscription and round; batches of `batch_rows` rows, but for the last
``index.arrow``    Arrow IPC, one row a run (the rows of one subscription, all in one part): `part`,
                   `subscription`, `start`, `stop`, `first_round`, `last_round`; in the schema's
                   metadata the side, the matcher's fingerprint, the message width and `batch_rows`
=================  =================================================================================

The index is written last and is the commit: a part that it does not name is not in the store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ccbps.errors import CcbpsError, DecodeError, ParameterError
from ccbps.matching import Matcher
from ccbps.spark.arrow import binary_rows, integers, is_valid
from ccbps.spark.folder import Folder
from ccbps.spark.frames import row_name

__all__ = [
    "RUNS",
    "Index",
    "PartReader",
    "PartWriter",
    "Refused",
    "StoreKind",
    "is_part",
    "message_width",
]

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
StoreKind = Literal["event", "interest"]

INDEX: Final = "index.arrow"
FORMAT: Final = "ccbps messages 1"
# Of a batch in a part: what a writer holds in memory, and what a reader does that cannot map.
BATCH_BYTES: Final = 32 << 20


RUNS: Final = pa.schema(
    [
        ("part", pa.string()),
        ("subscription", pa.string()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("first_round", pa.int64()),
        ("last_round", pa.int64()),
    ]
)
"""Runs as `PartWriter` lists them; the index has few parts, so it codes them as a dictionary."""
_INDEX: Final = RUNS.set(0, pa.field("part", pa.dictionary(pa.int32(), pa.string())))


class Refused(CcbpsError):
    """Rows that do not go into a store; a writer's own, never raised to callers."""


@dataclass(frozen=True)
class Index:
    """What a store holds: for each run its part, subscription, rows and rounds.

    `start`, `stop`, `first` and `last` have shape (runs,); a subscription has one run.
    """

    folder: Folder
    width: int
    batch_rows: int
    parts: list[str]
    part: NDArray[np.int32]
    subscription: pa.Array
    start: Numbers
    stop: Numbers
    first: Numbers
    last: Numbers

    @classmethod
    def write(
        cls, folder: Folder, matcher: Matcher, kind: StoreKind, width: int, runs: pa.Table
    ) -> None:
        """Commit a store whose parts are written. `runs`: the columns of `index.arrow`."""
        about = {
            "kind": kind,
            "format": FORMAT,
            "matcher": matcher.fingerprint.hex(),
            "width": width,
            "batch_rows": batch_rows(width),
        }
        encoded = runs["part"].combine_chunks().dictionary_encode()
        table = runs.set_column(runs.column_names.index("part"), "part", encoded)
        table = table.replace_schema_metadata({"ccbps": json.dumps(about)})
        name = f"{INDEX}.{uuid4().hex}"
        with folder.create(name) as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        folder.rename(name, INDEX)

    @classmethod
    def read(cls, folder: Folder, matcher: Matcher, kind: StoreKind) -> Index:
        """The index of a store for `matcher`, of one side's messages.

        Raises:
            ParameterError: there is no store, or one for another matcher or side.
            DecodeError: the index is damaged, or of another format.
        """
        named = f"{kind}s={folder.path!r}"
        if INDEX not in folder.names():
            raise ParameterError(
                f"{named}: no message store is there, or one that was never finished (no {INDEX}); "
                "write_messages makes one"
            )
        try:
            with pa.ipc.open_file(folder.open(INDEX)) as reader:
                table = reader.read_all().combine_chunks()
            about = json.loads((table.schema.metadata or {})[b"ccbps"])
            if about["format"] == FORMAT:
                part, subscription, *numbers = _checked(table, about)
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise DecodeError(f"{named}: {INDEX} is damaged: {error!r}; write it again") from error
        if about["format"] != FORMAT:
            raise DecodeError(f"{named} has format {about['format']!r}; this reads {FORMAT!r}")
        if about["matcher"] != matcher.fingerprint.hex():
            raise ParameterError(
                f"{named} holds messages of another matcher (fingerprint "
                f"{about['matcher'][:12]}..., wanted {matcher.fingerprint.hex()[:12]}...): schema "
                "and template must be the same"
            )
        if about["kind"] != kind:
            raise ParameterError(f"{named} holds {about['kind']} messages, not {kind} messages")
        return cls(
            folder,
            about["width"],
            about["batch_rows"],
            part.dictionary.to_pylist(),
            part.indices.to_numpy(),
            subscription,
            *(column.to_numpy() for column in numbers),
        )


def _checked(table: pa.Table, about: Mapping[str, Any]) -> list[pa.Array]:
    """Columns of an index whose runs lie one after the other in their parts and leave no row out.

    Raises:
        KeyError, TypeError, ValueError, pa.ArrowException: it is none.
    """
    table = table.select(RUNS.names).cast(_INDEX)
    table.validate(full=True)
    if any(column.null_count for column in table.columns):
        raise ValueError("a value is missing")
    if about["kind"] not in ("event", "interest") or not isinstance(about["matcher"], str):
        raise ValueError("it does not say whose messages these are")
    width = about["width"]
    if type(width) is not int or width < 1 or about["batch_rows"] != batch_rows(width):
        raise ValueError("width and rows of a batch do not go together")
    columns = [_whole(column) for column in table.columns]
    part, subscription = columns[:2]
    if not all(map(is_part, part.dictionary.to_pylist())):
        raise ValueError("it names files that are no parts of a store")
    if pc.count_distinct(subscription).as_py() < len(subscription):
        raise ValueError("a subscription has two runs")
    start, stop, first, last = (column.to_numpy() for column in columns[2:])
    order = np.lexsort((start, part.indices.to_numpy()))
    same = np.diff(part.indices.to_numpy()[order]) == 0
    expected = np.zeros(len(order), dtype=np.int64)
    expected[1:] = np.where(same, stop[order][:-1], 0)
    if (start[order] != expected).any() or (stop <= start).any():
        raise ValueError("runs do not follow one another")
    if (first < 0).any() or (last - first < stop - start - 1).any():
        raise ValueError("a run has fewer rounds than rows")
    return columns


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def message_width(matcher: Matcher, kind: StoreKind) -> int:
    """Bytes of one message of a side."""
    return matcher.event_bytes if kind == "event" else matcher.interest_bytes


def is_part(name: str) -> bool:
    """Is a file of that name a part of a store?"""
    return re.fullmatch(r"part-[0-9a-f]{32}\.arrow", name) is not None


def batch_rows(width: int) -> int:
    """Rows of a batch in a part whose messages have `width` bytes."""
    return max(1, BATCH_BYTES // width)


class PartWriter:
    """Writes one part from rows that come sorted by subscription and round, and lists its runs."""

    def __init__(self, folder: Folder, width: int) -> None:
        self.name = f"part-{uuid4().hex}.arrow"
        self._folder, self.width = folder, width
        self._schema = pa.schema([("round", pa.int64()), ("message", pa.binary(width))])
        self._file: pa.NativeFile | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._waiting_rows = 0
        # Of each run: its label and first row and round, and the last round of the run before it.
        self._labels: list[pa.Array] = []
        self._starts: list[Numbers] = []
        self._firsts: list[Numbers] = []
        self._lasts: list[Numbers] = []
        self._previous: tuple[str | None, int] = (None, 0)

    def append(self, subscriptions: pa.Array, rounds: pa.Array, messages: pa.Array) -> None:
        """Add a batch.

        Raises:
            Refused: a row has a NULL, a negative round or a message of another width, or a
                (subscription, round) comes twice.
        """
        count = len(rounds)
        if not count:
            return
        names, columns = ("subscription", "round"), (subscriptions, rounds)
        valid = is_valid(subscriptions, rounds, messages)
        if not valid.all():
            row = int(np.flatnonzero(~valid)[0])
            empty = next(
                name
                for name, c in zip((*names, "message"), (*columns, messages), strict=True)
                if not c[row].is_valid
            )
            raise Refused(
                f"{row_name(names, columns, row)}: the {empty} is NULL; leave such rows out"
            )
        rows, good = binary_rows(messages, self.width)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise Refused(
                f"{row_name(names, columns, row)}: the message has "
                f"{len(messages[row].as_py())} bytes; messages of this matcher have {self.width}"
            )
        number = integers(rounds)
        if number.min() < 0:
            row = int(np.argmin(number))
            raise Refused(f"{row_name(names, columns, row)}: the round is negative")
        label, last = self._previous
        new = np.ones(count, dtype=np.bool_)
        new[0] = subscriptions[0].as_py() != label
        new[1:] = pc.not_equal(subscriptions[1:], subscriptions[:-1]).to_numpy(zero_copy_only=False)
        before = np.concatenate([[last], number[:-1]])
        twice = np.flatnonzero(~new & (number == before))
        if len(twice):
            where = row_name(names, columns, int(twice[0]))
            raise Refused(f"{where} occurs twice; a pair and round has one message")
        starts = np.flatnonzero(new)
        self._labels.append(subscriptions.take(pa.array(starts)))
        self._starts.append(starts + self._rows)
        self._firsts.append(number[starts])
        self._lasts.append(before[starts])
        self._previous = subscriptions[-1].as_py(), int(number[-1])
        self._rows += count
        message = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(self.width), count, [None, pa.py_buffer(rows)]
        )
        self._waiting.append(pa.record_batch([pa.array(number), message], schema=self._schema))
        self._waiting_rows += count
        if self._waiting_rows >= batch_rows(self.width):
            self._write(self._waiting_rows // batch_rows(self.width) * batch_rows(self.width))

    def finish(self) -> dict[str, pa.Array]:
        """End the file. Returns the columns of its runs for `index.arrow`; no file if no rows."""
        if not self._rows:
            return {}
        self._write(self._waiting_rows)
        self._close()
        starts = np.concatenate(self._starts)
        return {
            "part": pa.array([self.name]).take(pa.array(np.zeros(len(starts), dtype=np.int32))),
            "subscription": pa.concat_arrays(self._labels),
            "start": pa.array(starts),
            "stop": pa.array(np.append(starts[1:], self._rows)),
            "first_round": pa.array(np.concatenate(self._firsts)),
            "last_round": pa.array(
                np.append(np.concatenate(self._lasts)[1:], np.int64(self._previous[1]))
            ),
        }

    def abandon(self) -> None:
        """Remove what was written."""
        if self._file is not None:
            self._close()
            self._folder.remove(self.name)

    def _write(self, rows: int) -> None:
        if self._file is None:
            self._file = self._folder.create(self.name)
            self._writer = pa.ipc.new_file(self._file, self._schema)
        table = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
        self._writer.write_table(table.slice(0, rows), max_chunksize=batch_rows(self.width))
        self._waiting = table.slice(rows).to_batches()
        self._waiting_rows -= rows

    def _close(self) -> None:
        if self._file is not None:
            self._writer.close()
            self._file.close()


class PartReader:
    """Reads messages and rounds of one part."""

    def __init__(self, folder: Folder, name: str, width: int, batch_rows: int) -> None:
        self._batch_rows = batch_rows
        self._folder, self._name, self.width = folder, name, width
        self._reader = self._open()
        self._held: tuple[int, Bytes] = (-1, np.empty((0, width), dtype=np.uint8))

    def _open(self, **options: Any) -> pa.ipc.RecordBatchFileReader:
        try:
            return pa.ipc.open_file(
                self._folder.open(self._name), options=pa.ipc.IpcReadOptions(**options)
            )
        except (pa.ArrowInvalid, OSError) as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, what: str) -> DecodeError:
        return DecodeError(
            f"{self._folder.path}/{self._name}: a file of this message store is missing, cut off "
            f"or damaged ({what}); write the store again"
        )

    @cached_property
    def rounds(self) -> Numbers:
        """Rounds of all rows."""
        try:
            column = self._open(included_fields=[0]).read_all()["round"]
        except (pa.ArrowInvalid, OSError) as error:
            raise self._damaged(str(error)) from error
        out: Numbers = column.to_numpy()
        return out

    def view(self, start: int, most: int) -> Bytes:
        """Messages from row `start` on, at least one and at most `most`, without a copy."""
        batch, row = divmod(start, self._batch_rows)
        stop = min(row + most, self._batch_rows)
        return self._batch(batch, stop)[row:stop]

    def gather(self, rows: Numbers) -> Bytes:
        """Messages of any `rows`, at least one, shape (rows, width): copied, unless neighbours."""
        batches, places = np.divmod(rows, self._batch_rows)
        numbers = np.unique(batches).tolist()
        if len(numbers) == 1:
            batch = self._batch(numbers[0], int(places.max()) + 1)
            if (np.diff(places) == 1).all():
                return batch[places[0] : places[-1] + 1]
            return np.take(batch, places, axis=0)
        out = np.empty((len(rows), self.width), dtype=np.uint8)
        for number in numbers:
            at = np.flatnonzero(batches == number)
            out[at] = self._batch(number, int(places[at].max()) + 1)[places[at]]
        return out

    def _batch(self, number: int, least: int) -> Bytes:
        """Messages of a batch, which must have `least` rows."""
        held, view = self._held
        if held != number:
            try:
                column = self._reader.get_batch(number).column(1)
            except (pa.ArrowInvalid, OSError, IndexError, ValueError) as error:
                raise self._damaged(str(error)) from error
            if column.type != pa.binary(self.width):
                raise self._damaged(f"messages are {column.type}")
            view = np.frombuffer(column.buffers()[1], dtype=np.uint8)
            view = view[: len(column) * self.width].reshape(-1, self.width)
            self._held = number, view
        if len(view) < least:
            raise self._damaged(f"{len(view)} rows, wanted {least} or more")
        return view
