"""The index of a message store, which lists its parts and their runs.

A store is a folder on a file system that driver and workers see under one path:

===================================  ===============================================================
file                                 holds
===================================  ===============================================================
``part-<version>-<run>-<id>.arrow``  messages (`ccbps.store.files`)
``index-<version>.arrow``            Arrow IPC with a row for each run (`ccbps.store.files.RUNS`);
                                     in the schema's metadata the store (`About`), `batch_rows`,
                                     and of each part its rows, its checksums and the versions that
                                     brought them; then the SHA-256 of all bytes before it
===================================  ===============================================================

The index of the highest version is the store. A part or run that it does not name is not in the
store. `ccbps.store.commit` decides who may write the next index.
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
from ccbps.keys.plain_key import PARTIES
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers
from ccbps.records import Number, Record, read, write
from ccbps.shares.clients import part_bytes
from ccbps.store.files import CHECKSUM_BYTES, MANIFEST, RUNS, PartFile, PartFiles, batch_rows
from ccbps.store.folder import Folder
from ccbps.store.versions import WriterRun, current, is_old, is_part

StoreKind = Literal["event", "interest"]

FORMAT: Final = "ccbps messages 5"
"""Format of the files, which the index names."""
_SHA256_BYTES: Final = 32
_READS: Final = 50
# The index has few parts, so it codes them as a dictionary.
_COLUMNS: Final = RUNS.set(0, pa.field("part", pa.dictionary(pa.int32(), pa.string())))


def message_width(matcher: Matcher, kind: StoreKind, party: int | None = None) -> int:
    """Return the number of bytes of a message of one side, or of a broker's part of it."""
    width = matcher.event_bytes if kind == "event" else matcher.interest_bytes
    return width if party is None else part_bytes(party, width)


def serves_all(matcher: Matcher, kind: StoreKind) -> bool:
    """Tell whether messages of one side serve all subscriptions, and name none."""
    return kind == "event" and matcher.answers in (Answers.ROUND, Answers.TOGETHER)


class About(NamedTuple):
    """The messages that a store may hold.

    Attributes:
        kind: their side.
        rounds: True if they serve all subscriptions, and name none.
        matcher: fingerprint of their matcher, in hex.
        width: bytes of a message.
        floor: least round that may be added; lower rounds were dropped.
        batches: number of the last batch of each stream that appends.
        runs: writer runs that committed last, by which a run knows whether it has committed.
        void: version; parts of runs that began below it, and are not in the store yet, are being
            removed.
        store: run that made the store, which distinguishes it from a later one in its place.
        party: number of the broker that has these parts of messages; None for whole messages.
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
    party: Annotated[int, Meta(ge=0, lt=PARTIES)] | None = None

    @classmethod
    def of(cls, matcher: Matcher, kind: StoreKind, party: int | None = None) -> About:
        """Describe an empty store."""
        rounds, width = serves_all(matcher, kind), message_width(matcher, kind, party)
        return cls(kind, rounds, matcher.fingerprint, width, 0, {}, party=party)


class _Metadata(Record, frozen=True):
    """Metadata of an index's schema.

    Attributes:
        about: messages that the store may hold.
        batch_rows: rows of each batch of a part.
        parts: rows, checksums and first and last version of each part, by name.
    """

    about: About
    batch_rows: Number
    parts: dict[str, tuple[Number, bytes, int, int]]


@dataclass(frozen=True)
class Index:
    """Runs of a store, or of several together.

    Attributes:
        about: messages that the store may hold.
        version: version of the store; 0 if it is not written yet.
        files: parts by name.
        parts: names of parts by number.
        part: number of each run's part, shape (runs,).
        subscription: each run's subscription; NULL for events of a broadcast.
        start: first row of each run, shape (runs,).
        stop: row behind each run, shape (runs,).
        first: first round of each run, shape (runs,).
        last: last round of each run, shape (runs,).
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
    def of(cls, folder: Folder, about: About, manifest: pa.Table) -> Index:
        """Return the index of parts that were just written.

        Args:
            folder: folder of the store.
            about: messages that the store may hold.
            manifest: reports on the parts (`ccbps.store.files.write_part`).

        Raises:
            ParameterError: a part has a problem, or rows of one round, which has no subscription,
                are in two runs.
        """
        manifest = manifest.cast(MANIFEST)
        refusal = f"path={folder.path!r}: nothing was written"
        if len(problems := manifest["problem"].drop_null()):
            raise ParameterError(f"{refusal}: {problems[0]}")
        part, subscription, *numbers, checksums, _ = (
            column.combine_chunks() for column in manifest.columns
        )
        start, stop, first, last = (column.to_numpy() for column in numbers)
        if about.rounds:
            order = np.argsort(first)
            if (first[order][1:] <= last[order][:-1]).any():
                raise ParameterError(f"{refusal}: a round has two runs")
        coded = part.dictionary_encode()
        number, names = coded.indices.to_numpy(), coded.dictionary.to_pylist()
        rows = np.zeros(len(names), dtype=np.int64)
        np.maximum.at(rows, number, stop)
        said = checksums.is_valid()
        checksum_of = dict(
            zip(part.filter(said).to_pylist(), checksums.filter(said).to_pylist(), strict=True)
        )
        parts = {
            name: PartFile(folder, count, checksum_of[name], (0, 0))
            for name, count in zip(names, rows.tolist(), strict=True)
        }
        files = PartFiles(about.width, batch_rows(about.width), parts)
        return cls(about, 0, files, names, number, subscription, start, stop, first, last)

    @classmethod
    def together(cls, several: Sequence[Index]) -> Index:
        """Join the runs of indexes of the same side and matcher, in order."""
        first = several[0]
        if len(several) == 1:
            return first
        before = np.cumsum([0, *(len(one.parts) for one in several[:-1])])
        number = [one.part + np.int32(n) for one, n in zip(several, before, strict=True)]
        numbers = (
            np.concatenate([getattr(one, name) for one in several])
            for name in ("start", "stop", "first", "last")
        )
        parts = {name: part for one in several for name, part in one.files.parts.items()}
        return cls(
            first.about,
            first.version,
            replace(first.files, parts=parts),
            [name for one in several for name in one.parts],
            np.concatenate(number),
            pa.concat_arrays([one.subscription for one in several]),
            *numbers,
        )

    def keeping(self, runs: NDArray[np.bool_]) -> Index:
        """Select runs, and the parts that have any of them.

        Args:
            runs: whether each run stays, shape (runs,).
        """
        used = np.unique(self.part[runs])
        names = [self.parts[number] for number in used.tolist()]
        return Index(
            self.about,
            self.version,
            replace(self.files, parts={name: self.files.parts[name] for name in names}),
            names,
            np.searchsorted(used, self.part[runs]).astype(np.int32),
            self.subscription.filter(pa.array(runs)),
            *(array[runs] for array in (self.start, self.stop, self.first, self.last)),
        )

    def labelled(self) -> Index:
        """Return the index with events of a broadcast as those of one subscription."""
        if not self.about.rounds:
            return self
        return replace(self, subscription=pa.repeat("", len(self.part)))

    def to_bytes(self) -> bytes:
        """Return the bytes of the file."""
        parts = {
            name: (part.rows, part.checksums, *part.added)
            for name, part in self.files.parts.items()
        }
        metadata = write(_Metadata(self.about, self.files.batch_rows, parts))
        names = pa.DictionaryArray.from_arrays(self.part, pa.array(self.parts, pa.string()))
        numbers = (self.start, self.stop, self.first, self.last)
        table = pa.table([names, self.subscription, *numbers], schema=_COLUMNS)
        table = table.replace_schema_metadata({"format": FORMAT, "ccbps": metadata})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        content: bytes = sink.getvalue().to_pybytes()
        return content + sha256(content).digest()

    @classmethod
    def read(
        cls,
        folder: Folder,
        matcher: Matcher | None = None,
        kind: StoreKind | None = None,
        party: int | None = None,
    ) -> Index:
        """Read the index of a store.

        Args:
            folder: folder of the store.
            matcher: matcher whose messages the store must hold; None for any.
            kind: side whose messages the store must hold; None for either.
            party: number of the broker whose parts of messages the store must hold; None for any.

        Raises:
            ParameterError: there is no store, or one for another matcher, side or broker.
            DecodeError: the index is damaged, or of another format.
        """
        named = f"{kind}s={folder.path!r}" if kind else f"path={folder.path!r}"
        version, content = _read(folder, named)
        name = WriterRun(version).index
        try:
            index = _opened(folder, version, content)
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise DecodeError(f"{named}: {name} is damaged: {error!r}; write it again") from error
        if isinstance(index, str):
            raise DecodeError(f"{named} has format {index!r}; this reads {FORMAT!r}")
        about = index.about
        if matcher is not None and about.matcher != matcher.fingerprint:
            raise ParameterError(
                f"{named} holds messages of another matcher (fingerprint {about.matcher[:12]}..., "
                f"wanted {matcher.fingerprint[:12]}...): schema and template must be the same"
            )
        if kind is not None and about.kind != kind:
            raise ParameterError(f"{named} holds {about.kind} messages, not {kind} messages")
        if party is not None and about.party != party:
            raise ParameterError(f"{named} holds messages for broker {about.party}, not {party}")
        if matcher is not None and about.rounds != serves_all(matcher, about.kind):
            raise DecodeError(f"{named}: {name} is damaged: it is not of this matcher's format")
        return index


def _read(folder: Folder, named: str) -> tuple[int, bytes]:
    """Return the version and the bytes of the last index."""
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
    """Read the bytes of an index, or return its format if that is another one.

    Raises:
        KeyError, TypeError, ValueError, pa.ArrowException: they are not an index, or damaged.
    """
    body, digest = content[:-_SHA256_BYTES], content[-_SHA256_BYTES:]
    if sha256(body).digest() != digest:
        raise ValueError("its checksum is another")
    with pa.ipc.open_file(pa.py_buffer(body)) as reader:
        table = reader.read_all()
    encoded = table.schema.metadata or {}
    if encoded[b"format"] != FORMAT.encode():
        return str(encoded[b"format"], errors="replace")
    metadata = read(_Metadata, encoded[b"ccbps"], refusal=ValueError("its metadata are malformed"))
    about = metadata.about
    if metadata.batch_rows != batch_rows(about.width):
        raise ValueError("width and rows of a batch do not go together")
    parts = {
        name: PartFile(folder, rows, checksums, (low, high), version)
        for name, (rows, checksums, low, high) in metadata.parts.items()
    }
    table = table.select(RUNS.names).cast(_COLUMNS)
    table.validate(full=True)
    if any(c.null_count for c in table.drop_columns(["subscription"] * about.rounds).columns):
        raise ValueError("a value is missing")
    part, subscription, *numbers = (column.combine_chunks() for column in table.columns)
    if about.rounds and subscription.null_count < len(table):
        raise ValueError("events of a broadcast have a subscription")
    index = Index(
        about,
        version,
        PartFiles(about.width, metadata.batch_rows, parts),
        part.dictionary.to_pylist(),
        part.indices.to_numpy(),
        subscription,
        *(column.to_numpy() for column in numbers),
    )
    _check_runs(index)
    return index


def _check_runs(index: Index) -> None:
    """Refuse an index whose runs overlap in their parts, or are not in order.

    Raises:
        ValueError: it is damaged.
    """
    names, parts, most = index.parts, index.files.parts, index.files.batch_rows
    if not all(map(is_part, names)):
        raise ValueError("it names files that are not parts of a store")
    if (
        {*parts} != {*names}
        or len(parts) != len(names)
        or any(len(p.checksums) != -(-p.rows // most) * CHECKSUM_BYTES for p in parts.values())
    ):
        raise ValueError("it lacks checksums of a part")
    rows = np.array([parts[name].rows for name in names], dtype=np.int64)
    order = np.lexsort((index.start, index.part))
    part = index.part[order]
    start, stop, first, last = (
        column[order] for column in (index.start, index.stop, index.first, index.last)
    )
    same = np.diff(part) == 0
    before = np.append(0, np.where(same, stop[:-1], 0))[: len(part)]
    if (start < before).any() or (stop <= start).any() or (stop > rows[part]).any():
        raise ValueError("runs do not follow one another")
    if (first < 0).any() or (last - first < stop - start - 1).any():
        raise ValueError("a run has fewer rounds than rows")
    if not index.about.rounds:
        label = index.subscription.dictionary_encode().indices.to_numpy()
        same &= np.diff(label[order]) == 0
    if (same & (first[1:] <= last[:-1])).any():
        raise ValueError("rounds go back within a part")
