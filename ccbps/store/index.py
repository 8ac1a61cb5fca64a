"""The index of a message store: what is in it.

A store is a folder on a file system that driver and workers see under one path:

===================================  ===============================================================
file                                 holds
===================================  ===============================================================
``part-<version>-<run>-<id>.arrow``  messages (`ccbps.store.files`)
``index-<version>.arrow``            Arrow IPC, one row per run (rows of one subscription that one
                                     part holds one after the other, and several where rounds have
                                     gaps; of a broadcast's events the subscription is NULL):
                                     `part`,
                                     `subscription`, `start`, `stop`, `first_round`, `last_round`;
                                     in the schema's metadata the side, the matcher's fingerprint,
                                     the message width, `batch_rows`, the least round that may
                                     come, the last batch of each stream, and of each part its
                                     rows, its checksums and the versions that brought them; then
                                     the SHA-256 of all bytes before it
===================================  ===============================================================

The index of the highest version is the store: a part or run that it does not name is not in the
store. `ccbps.store.commit` says who may write the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Meta
from numpy.typing import NDArray

from ccbps.arrays import Numbers
from ccbps.errors import DecodeError, ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers
from ccbps.records import Number, Record, read, write
from ccbps.store.files import CHECKSUM_BYTES, RUNS, PartFile, PartFiles, batch_rows
from ccbps.store.folder import Folder
from ccbps.store.versions import WriterRun, current, is_old, is_part

StoreKind = Literal["event", "interest"]

FORMAT: Final = "ccbps messages 4"
_SHA256_BYTES: Final = 32
_READS: Final = 50
# The index has few parts, so it codes them as a dictionary.
_COLUMNS: Final = RUNS.set(0, pa.field("part", pa.dictionary(pa.int32(), pa.string())))


def message_width(matcher: Matcher, kind: StoreKind) -> int:
    """Bytes of one message of a side."""
    return matcher.event_bytes if kind == "event" else matcher.interest_bytes


def serves_all(matcher: Matcher, kind: StoreKind) -> bool:
    """Are these messages that serve all subscriptions of their round?"""
    return kind == "event" and matcher.answers is Answers.ROUND


class About(NamedTuple):
    """Whose messages a store holds.

    `kind`: whose side. `rounds`: they serve all subscriptions of their round, and name none.
    `matcher`: its fingerprint, in hex. `width`: of a message, bytes. `floor`: rounds below it were
    dropped, and none may come any more. `batches`: of each stream that appends, the number of its
    last batch. `runs`: those that committed last, by which each knows whether it has. `void`: what
    was begun below that version, and is not in the store yet, is being removed. `store`: the run
    that made the store, which tells it from another one in its place.
    """

    kind: StoreKind
    rounds: bool
    matcher: str
    width: Annotated[int, Meta(ge=1)]
    floor: Number
    batches: Mapping[str, Number]
    runs: tuple[str, ...] = ()
    void: Number = 0
    store: str = ""

    @classmethod
    def of(cls, matcher: Matcher, kind: StoreKind) -> About:
        """Of a store that is empty."""
        rounds, width = serves_all(matcher, kind), message_width(matcher, kind)
        return cls(kind, rounds, matcher.fingerprint.hex(), width, 0, {})


class _Metadata(Record, frozen=True):
    """What stands in the metadata of an index's schema.

    `parts`: of each its rows, its checksums and the versions that brought them.
    """

    about: About
    batch_rows: Number
    parts: dict[str, tuple[Number, bytes, int, int]]


@dataclass(frozen=True)
class Index:
    """What a store holds, or several together: for each run its part, subscription, rows, rounds.

    `start`, `stop`, `first` and `last` have shape (runs,). Of a broadcast's events, subscriptions
    are NULL.

    Attributes:
        version: of the store; 0 where it is not written yet.
        parts: names, which `part` numbers.
    """

    about: About
    version: int
    files: PartFiles
    parts: list[str]
    part: NDArray[np.int32]
    subscription: pa.Array
    start: Numbers
    stop: Numbers
    first: Numbers
    last: Numbers

    @classmethod
    def of(
        cls, folder: Folder, about: About, runs: pa.Table, checksums: Mapping[str, bytes]
    ) -> Index:
        """Of parts that were just written.

        Args:
            runs: as `PartWriter` lists them.
            checksums: of each part's batches.

        Raises:
            ParameterError: rows of one round, which has no subscription, are in two runs.
        """
        if about.rounds and _overlap(runs):
            raise ParameterError(f"path={folder.path!r}: nothing was written: a round has two runs")
        part, subscription, *numbers = map(_whole, runs.cast(RUNS).columns)
        coded = part.dictionary_encode()
        rows = np.zeros(len(coded.dictionary), dtype=np.int64)
        np.maximum.at(rows, coded.indices.to_numpy(), numbers[1].to_numpy())
        names = coded.dictionary.to_pylist()
        parts = {
            name: PartFile(folder, count, checksums[name], (0, 0))
            for name, count in zip(names, rows.tolist(), strict=True)
        }
        files = PartFiles(about.width, batch_rows(about.width), parts)
        columns = (column.to_numpy() for column in numbers)
        return cls(about, 0, files, names, coded.indices.to_numpy(), subscription, *columns)

    @classmethod
    def together(cls, several: Sequence[Index]) -> Index:
        """All runs of indexes of the same side and matcher, those of the first one first."""
        first = several[0]
        if len(several) == 1:
            return first
        before = np.cumsum([0, *(len(one.parts) for one in several[:-1])])
        part = [one.part + np.int32(n) for one, n in zip(several, before, strict=True)]
        numbers = (
            np.concatenate([getattr(one, name) for one in several])
            for name in ("start", "stop", "first", "last")
        )
        parts = {name: found for one in several for name, found in one.files.parts.items()}
        return cls(
            first.about,
            first.version,
            PartFiles(first.files.width, first.files.batch_rows, parts),
            [name for one in several for name in one.parts],
            np.concatenate(part),
            pa.concat_arrays([one.subscription for one in several]),
            *numbers,
        )

    def keeping(self, runs: NDArray[np.bool_]) -> Index:
        """Some runs, and the parts that have any of them."""
        used = np.unique(self.part[runs])
        names = [self.parts[number] for number in used.tolist()]
        files = PartFiles(
            self.files.width, self.files.batch_rows, {n: self.files.parts[n] for n in names}
        )
        return Index(
            self.about,
            self.version,
            files,
            names,
            np.searchsorted(used, self.part[runs]).astype(np.int32),
            self.subscription.filter(pa.array(runs)),
            *(array[runs] for array in (self.start, self.stop, self.first, self.last)),
        )

    def labelled(self) -> Index:
        """The same; events of a broadcast as those of one subscription."""
        if not self.about.rounds:
            return self
        return replace(self, subscription=pa.repeat("", len(self.part)))

    def to_bytes(self) -> bytes:
        """The file's content."""
        parts = {
            name: (part.rows, part.checksums, *part.added)
            for name, part in self.files.parts.items()
        }
        told = write(_Metadata(self.about, self.files.batch_rows, parts))
        names = pa.DictionaryArray.from_arrays(self.part, pa.array(self.parts, pa.string()))
        numbers = (self.start, self.stop, self.first, self.last)
        table = pa.table([names, self.subscription, *numbers], schema=_COLUMNS)
        table = table.replace_schema_metadata({"format": FORMAT, "ccbps": told})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        content: bytes = sink.getvalue().to_pybytes()
        return content + sha256(content).digest()

    @classmethod
    def read(
        cls, folder: Folder, matcher: Matcher | None = None, kind: StoreKind | None = None
    ) -> Index:
        """The index of a store: of messages for `matcher`, of one side, where they are given.

        Raises:
            ParameterError: there is no store, or one for another matcher or side.
            DecodeError: the index is damaged, or of another format.
        """
        named = f"{kind}s={folder.path!r}" if kind else f"path={folder.path!r}"
        version, content = _read(folder, named)
        name = WriterRun(version).index
        try:
            found = _opened(folder, version, content)
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise DecodeError(f"{named}: {name} is damaged: {error!r}; write it again") from error
        if isinstance(found, str):
            raise DecodeError(f"{named} has format {found!r}; this reads {FORMAT!r}")
        if matcher is not None and found.about.matcher != matcher.fingerprint.hex():
            raise ParameterError(
                f"{named} holds messages of another matcher (fingerprint "
                f"{found.about.matcher[:12]}..., wanted {matcher.fingerprint.hex()[:12]}...): "
                "schema and template must be the same"
            )
        if kind is not None and found.about.kind != kind:
            raise ParameterError(f"{named} holds {found.about.kind} messages, not {kind} messages")
        if matcher is not None and found.about.rounds != serves_all(matcher, found.about.kind):
            raise DecodeError(f"{named}: {name} is damaged: it is not of this matcher's format")
        return found


def _read(folder: Folder, named: str) -> tuple[int, bytes]:
    """Version and bytes of the last index."""
    problem: OSError | None = None
    for _ in range(_READS):
        version, names = current(folder)
        if not version:
            if any(map(is_old, names)):
                raise DecodeError(f"{named} has an older format; write it again")
            raise ParameterError(
                f"{named}: no message store is there, or one that was never finished (no index); "
                "write_messages makes one"
            )
        try:
            with folder.open(WriterRun(version).index) as file:
                return version, file.read()
        except OSError as error:  # replaced since the folder was listed, or damaged
            problem = error
    raise DecodeError(
        f"{named}: {WriterRun(version).index} cannot be read: {problem}; write it again"
    )


def _opened(folder: Folder, version: int, content: bytes) -> Index | str:
    """What the bytes of an index say; or their format, if it is another.

    Raises:
        KeyError, TypeError, ValueError, pa.ArrowException: they are not an index, or damaged.
    """
    body, digest = content[:-_SHA256_BYTES], content[-_SHA256_BYTES:]
    if sha256(body).digest() != digest:
        raise ValueError("its checksum is another")
    with pa.ipc.open_file(pa.py_buffer(body)) as reader:
        table = reader.read_all().combine_chunks()
    metadata = table.schema.metadata or {}
    if metadata[b"format"] != FORMAT.encode():
        return str(metadata[b"format"], errors="replace")
    told = read(_Metadata, metadata[b"ccbps"], refusal=ValueError("its metadata are malformed"))
    about = told.about
    if told.batch_rows != batch_rows(about.width):
        raise ValueError("width and rows of a batch do not go together")
    parts = {
        name: PartFile(folder, rows, checksums, (low, high))
        for name, (rows, checksums, low, high) in told.parts.items()
    }
    columns = _checked(table, about, parts)
    part, subscription, *numbers = columns
    return Index(
        about,
        version,
        PartFiles(about.width, batch_rows(about.width), parts),
        part.dictionary.to_pylist(),
        part.indices.to_numpy(),
        subscription,
        *(column.to_numpy() for column in numbers),
    )


def _checked(table: pa.Table, about: About, parts: Mapping[str, PartFile]) -> list[pa.Array]:
    """Columns of an index whose runs do not overlap in their parts.

    Raises:
        KeyError, TypeError, ValueError, pa.ArrowException: it is not such a table.
    """
    table = table.select(RUNS.names).cast(_COLUMNS)
    table.validate(full=True)
    if any(c.null_count for c in table.drop_columns(["subscription"] * about.rounds).columns):
        raise ValueError("a value is missing")
    columns = [_whole(column) for column in table.columns]
    part = columns[0]
    names = part.dictionary.to_pylist()
    if not all(map(is_part, names)):
        raise ValueError("it names files that are not parts of a store")
    if set(parts) != set(names) or len(parts) != len(names):
        raise ValueError("it lacks checksums of a part")
    numbers = part.indices.to_numpy()
    rows = np.array([parts[name].rows for name in names], dtype=np.int64)
    if any(
        len(found.checksums) != -(-found.rows // batch_rows(about.width)) * CHECKSUM_BYTES
        for found in parts.values()
    ):
        raise ValueError("it lacks checksums of a part")
    if about.rounds and columns[1].null_count < len(table):
        raise ValueError("events of a broadcast have a subscription")
    start, stop, first, last = (column.to_numpy() for column in columns[2:])
    order = np.lexsort((start, numbers))
    same = np.diff(numbers[order]) == 0
    before = np.zeros(len(order), dtype=np.int64)
    before[1:] = np.where(same, stop[order][:-1], 0)
    if (start[order] < before).any() or (stop <= start).any() or (stop > rows[numbers]).any():
        raise ValueError("runs do not follow one another")
    if (first < 0).any() or (last - first < stop - start - 1).any():
        raise ValueError("a run has fewer rounds than rows")
    if not about.rounds:
        same &= np.diff(columns[1].dictionary_encode().indices.to_numpy()[order]) == 0
    if (same & (first[order][1:] <= last[order][:-1])).any():
        raise ValueError("rounds go back within a part")
    return columns


def _overlap(runs: pa.Table) -> bool:
    """May a round be in two runs?"""
    first, last = (runs[name].to_numpy() for name in ("first_round", "last_round"))
    order = np.argsort(first)
    return bool((first[order][1:] <= last[order][:-1]).any())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
