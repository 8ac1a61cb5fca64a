"""Message stores as a data source: ``spark.read.format("ccbps")``, and streams of generations.

Use it for jobs that need the messages themselves. To match stores, `match_messages` is faster,
since it does not move messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from ccbps.arrow import binary_column
from ccbps.checks import choice
from ccbps.errors import DecodeError, ParameterError
from ccbps.spark.encoding import broker_columns
from ccbps.spark.stores import as_spark, pieces_of
from ccbps.spark.workers import on_worker
from ccbps.store.files import PartFile, PartFiles, PartReader
from ccbps.store.folder import Folder
from ccbps.store.index import Index
from ccbps.store.plan import runs_of, spans, stream
from ccbps.store.versions import current

_TASK_BYTES: Final = 64 << 20
"""Approximate size of the messages that a task reads (bytes)."""
_BATCH_BYTES: Final = 2 << 20
"""Approximate size of the messages in an Arrow batch (bytes)."""


def register_source(spark: SparkSession) -> None:
    """Register the format "ccbps" of message stores in a session, for batches and streams.

    Example:
        .. code-block:: python

            cs.register_source(spark)
            kept = spark.read.format("ccbps").load("/data/events")
            # subscription, round, event_message
            fresh = spark.readStream.format("ccbps").load("/data/events")

    The options are ``path``, of one store, and ``verify``: "true" compares all checksums. A table
    has the columns `subscription` (which events for all subscriptions do not have), `round`, and
    `event_message` or `interest_message`; with three brokers `broker_0`, `broker_1` or `broker_2`.

    A stream begins with the store as it is, and goes on with the generations that are appended. Its
    offsets are versions of that store. It fails if generations that it has read are compacted with
    others that it has not, or if another store replaces its own. So compact only generations that
    have been read. A stream does not see messages that `drop_rounds` dropped before it read them.
    """
    spark.dataSource.register(MessageSource)


class MessageSource(DataSource):  # type: ignore[misc]
    """A message store as a table."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        if "path" not in options or not {name.lower() for name in options} <= {"path", "verify"}:
            raise ParameterError(
                f"format 'ccbps' takes a path, of one store, and verify; got {', '.join(options)}"
            )
        verify = str(options.get("verify", "false")).lower()
        self._verify = choice("verify", verify, ("true", "false")) == "true"
        self._folder = Folder.of(options["path"], "path")

    @classmethod
    def name(cls) -> str:
        return "ccbps"

    def schema(self) -> str:
        about = Index.read(self._folder).about
        label = "" if about.rounds else "subscription string, "
        name = f"{about.kind}_message" if about.party is None else broker_columns()[about.party]
        return f"{label}round long, {name} binary"

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(self._folder, self._verify, schema.names)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        return _StreamReader(self._folder, self._verify, schema.names)


@dataclass
class _Piece(InputPartition):  # type: ignore[misc]
    """Runs of one part, for a task.

    Attributes:
        part: name of the part.
        file: file of the part.
        width: length of a message (bytes).
        batch_rows: number of rows in a batch of the file.
        runs: an Arrow IPC stream with the columns `subscription`, `start` and `stop`.
    """

    part: str
    file: PartFile
    width: int
    batch_rows: int
    runs: bytes


class _Rows:
    """Base of both readers, which reads pieces."""

    def __init__(self, folder: Folder, verify: bool, names: Sequence[str]) -> None:
        self._folder, self._verify, self._names = folder, verify, list(names)
        self._latest: dict[str, Any] = {"version": -1}

    @on_worker
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a piece.

        Raises:
            DecodeError: a file is missing or damaged.
        """
        if not isinstance(partition, _Piece):  # Spark asks for one where there is none
            return
        width, name = partition.width, partition.part
        files = PartFiles(width, partition.batch_rows, {name: partition.file})
        reader = files.reader(name, verify=self._verify)
        for columns in _columns(reader, partition.runs):
            own = columns[-len(self._names) :]
            yield pa.RecordBatch.from_arrays(own, names=self._names)


def stored_rows(spark: SparkSession, index: Index, message: str) -> DataFrame:
    """Return the rows of stores, whose files workers read. All checksums are compared.

    Args:
        spark: the session.
        index: index of the stores.
        message: name of the column of messages.

    Returns:
        The columns `subscription` (NULL for events of all subscriptions), `round` and `message`.
    """
    names = {"part": pa.string(), "runs": pa.binary()}
    rows = [{name: getattr(piece, name) for name in names} for piece in _pieces(index)]
    schema = pa.schema(
        [("subscription", pa.string()), ("round", pa.int64()), (message, pa.binary())]
    )
    files = index.files

    @on_worker
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.to_pylist():
                reader = files.reader(piece["part"], verify=True)
                for columns in _columns(reader, piece["runs"]):
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    pieces = pieces_of(spark, pa.Table.from_pylist(rows, pa.schema([*names.items()])))
    return pieces.mapInArrow(read, as_spark(schema))


def _columns(reader: PartReader, runs: bytes) -> Iterator[list[pa.Array]]:
    """Yield subscriptions, rounds and messages of runs of one part.

    Args:
        reader: reader of the part.
        runs: an Arrow IPC stream with the columns `subscription`, `start` and `stop`.
    """
    named = runs_of(runs)
    run, rows = spans(named["start"].to_numpy(), named["stop"].to_numpy())
    rounds = reader.rounds
    step = max(1, _BATCH_BYTES // reader.width)
    for at in range(0, len(rows), step):
        some = rows[at : at + step]
        labels = named["subscription"].take(pa.array(run[at : at + step]))
        yield [labels, pa.array(rounds[some]), binary_column(reader.gather(some))]


# No filter is pushed down: Spark 4.3 keeps the filters of one query for the next ones on the same
# DataFrame that have none to push, so rows would be missing.
class _Reader(_Rows, DataSourceReader):  # type: ignore[misc]
    def partitions(self) -> list[_Piece]:
        return _pieces(Index.read(self._folder))


class _StreamReader(_Rows, DataSourceStreamReader):  # type: ignore[misc]
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"version": 0}

    def latestOffset(  # noqa: N802
        self, start: Any = None, limit: Any = None
    ) -> dict[str, Any]:
        if current(self._folder)[0] != self._latest["version"]:
            index = Index.read(self._folder)
            self._refuse_other(index, start or {})
            self._latest = {"version": index.version, "store": index.about.store}
        return self._latest

    def _refuse_other(self, index: Index, *offsets: dict[str, Any]) -> None:
        """Refuse offsets of another store than the one that is there."""
        for offset in offsets:
            store = offset.get("store") or index.about.store
            if store != index.about.store or offset.get("version", 0) > index.version:
                raise DecodeError(
                    f"path={self._folder.path!r}: this stream has read version "
                    f"{offset['version']} of another store than the one that is there now, so it "
                    "cannot go on. Begin with a new checkpoint"
                )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[_Piece]:
        low, high = start["version"], end["version"]
        index = Index.read(self._folder)
        self._refuse_other(index, start, end)
        if low == high:
            return []
        new = np.zeros(len(index.parts), dtype=np.bool_)
        for number, name in enumerate(index.parts):
            first, last = index.files.parts[name].added
            new[number] = low < first <= high
            if first <= low < last or first <= high < last:
                raise DecodeError(
                    f"path={self._folder.path!r}: generations {first} to {last} were compacted "
                    f"into one; this stream is at {low}, and reads up to {high}, so it cannot tell "
                    "which messages are new. Compact generations that all streams have read, or "
                    "start it anew"
                )
        return _pieces(index.keeping(new[index.part]))


def _pieces(index: Index) -> list[_Piece]:
    """Split the runs of an index, part by part, in pieces of about `_TASK_BYTES`."""
    width = index.about.width
    most = max(1, _TASK_BYTES // width)
    order = np.lexsort((index.start, index.part))
    cuts = -(-(index.stop - index.start)[order] // most)
    place, cut = spans(np.zeros_like(cuts), cuts)
    run = order[place]
    start = index.start[run] + cut * most
    stop = np.minimum(start + most, index.stop[run])
    part, rows = index.part[run], stop - start
    filled = (np.cumsum(rows) - rows) // most
    new = (np.diff(part, prepend=-1) != 0) | (np.diff(filled, prepend=-1) != 0)
    edges = [*np.flatnonzero(new).tolist(), len(run)]
    table = pa.table(
        {"subscription": index.subscription.take(pa.array(run)), "start": start, "stop": stop}
    )
    pieces, files = [], index.files
    for first, last in pairwise(edges):
        name, runs = index.parts[part[first]], stream(table.slice(first, last - first))
        pieces.append(_Piece(name, files.parts[name], width, files.batch_rows, runs))
    return pieces
