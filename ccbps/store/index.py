"""The index of a message store: what is in it, and the commit of whoever wrote it.

A store is a folder on a file system that driver and workers see under one path:

===================================  ===============================================================
file                                 holds
===================================  ===============================================================
``part-<version>-<run>-<id>.arrow``  messages (`ccbps.store.files`)
``index-<version>.arrow``            Arrow IPC, one row per run (the rows of one subscription, all
                                     in one part; of a broadcast's events, those of one part, whose
                                     subscription is NULL): `part`, `subscription`, `start`, `stop`,
                                     `first_round`, `last_round`; in the schema's metadata the side,
                                     the matcher's fingerprint, the message width, `batch_rows` and
                                     the parts' checksums; then the SHA-256 of all bytes before it
===================================  ===============================================================

The index of the highest version is the store: a part that it does not name is not in the store.
A writer takes the version after the one it found, and writes its index last, under a name that no
other writer can have taken: so of several that began from the same state, one commits and the
others are told. Files are named after the version and the run that wrote them, so that whoever
commits knows what runs that died, or lost, have left behind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ccbps.arrays import Numbers
from ccbps.errors import DecodeError, ParameterError
from ccbps.matching.contract import is_broadcast
from ccbps.matching.matcher import Matcher
from ccbps.store.files import CHECKSUM_BYTES, RUNS, PartFiles, batch_rows
from ccbps.store.folder import Folder

__all__ = [
    "Index",
    "StoreKind",
    "WriterRun",
    "is_unfinished",
    "latest",
    "message_width",
    "serves_all",
]

StoreKind = Literal["event", "interest"]

FORMAT: Final = "ccbps messages 2"
ROUNDS_FORMAT: Final = "ccbps rounds 1"
"""Of a broadcast's events: no subscriptions, and each part has rounds of its own range."""
_OLD: Final = re.compile(r"index\.arrow|part-[0-9a-f]{32}\.arrow")  # of "ccbps messages 1"
_INDEX: Final = re.compile(r"index-(\d{8,})\.arrow")
_PART: Final = re.compile(r"part-(\d{8,})-([0-9a-f]{32})-[0-9a-f]{32}\.arrow")
_DRAFT: Final = re.compile(r"draft-(\d{8,})-([0-9a-f]{32})")
_SHA256_BYTES: Final = 32
_READS: Final = 5
# The index has few parts, so it codes them as a dictionary.
_COLUMNS: Final = RUNS.set(0, pa.field("part", pa.dictionary(pa.int32(), pa.string())))


def latest(names: Iterable[str]) -> int:
    """The version of the store in a folder with files of these names; 0 if there is none."""
    return max((int(found[1]) for found in map(_INDEX.fullmatch, names) if found), default=0)


def is_unfinished(name: str) -> bool:
    """Is a file of that name left by a writer that did not finish, or by one at work?"""
    return any(kind.fullmatch(name) for kind in (_PART, _DRAFT)) or is_claim(name)


def is_claim(name: str) -> bool:
    """Is it what `Folder.publish` leaves where it is killed, on file systems without links?"""
    return re.fullmatch(r"index-\d{8,}\.arrow\.claim-[0-9a-f]{32}", name) is not None


def message_width(matcher: Matcher, kind: StoreKind) -> int:
    """Bytes of one message of a side."""
    return matcher.event_bytes if kind == "event" else matcher.interest_bytes


def serves_all(matcher: Matcher, kind: StoreKind) -> bool:
    """Are these messages that serve all subscriptions of their round?"""
    return kind == "event" and is_broadcast(matcher)


def _format(matcher: Matcher, kind: StoreKind) -> str:
    return ROUNDS_FORMAT if serves_all(matcher, kind) else FORMAT


@dataclass(frozen=True)
class WriterRun:
    """One call that writes a store.

    Attributes:
        version: of the store, if this run commits.
        run: 32 hex digits that no other run has.
    """

    version: int
    run: str = field(default_factory=lambda: uuid4().hex)

    @property
    def stem(self) -> str:
        """What names of its parts begin with."""
        return f"part-{self.version:08d}-{self.run}"

    @property
    def draft(self) -> str:
        """Its index until it is committed."""
        return f"draft-{self.version:08d}-{self.run}"

    @property
    def index(self) -> str:
        """Its index."""
        return f"index-{self.version:08d}.arrow"

    def left(self, names: Iterable[str]) -> list[str]:
        """Files that this run made, except its index."""
        return [n for n in names if n.startswith(self.stem) or n == self.draft]

    def replaced(self, names: Iterable[str], kept: Iterable[str]) -> list[str]:
        """Files that this run's commit made useless: of the versions before, and of runs that
        died or will fail. A run that began later writes a later version."""
        useful = {self.index, *kept}
        out = []
        for name in set(names) - useful:
            found = [kind.fullmatch(name) for kind in (_PART, _DRAFT, _INDEX)]
            versions = [int(match[1]) for match in found if match]
            if _OLD.fullmatch(name) or any(version <= self.version for version in versions):
                out.append(name)
        return out


@dataclass(frozen=True)
class Index:
    """What a store holds: for each run its part, subscription, rows and rounds.

    `start`, `stop`, `first` and `last` have shape (runs,); a subscription has one run. Of a
    broadcast's events, a part has one run, whose subscription is NULL.
    """

    files: PartFiles
    parts: list[str]
    part: NDArray[np.int32]
    subscription: pa.Array
    start: Numbers
    stop: Numbers
    first: Numbers
    last: Numbers

    @classmethod
    def write(
        cls,
        folder: Folder,
        run: WriterRun,
        matcher: Matcher,
        kind: StoreKind,
        runs: pa.Table,
        checksums: Mapping[str, bytes],
    ) -> None:
        """Commit a store whose parts are written, or fail.

        Args:
            runs: the columns of the index.
            checksums: of each part's batches.

        Raises:
            ParameterError: two runs clash; or another run has committed since this one began.
        """
        if clash := _clash(runs, serves_all(matcher, kind)):
            raise ParameterError(f"path={folder.path!r}: nothing was written: {clash}")
        width = message_width(matcher, kind)
        about = {
            "kind": kind,
            "format": _format(matcher, kind),
            "matcher": matcher.fingerprint.hex(),
            "width": width,
            "batch_rows": batch_rows(width),
            "checksums": {name: sums.hex() for name, sums in checksums.items()},
        }
        encoded = runs["part"].combine_chunks().dictionary_encode()
        table = runs.set_column(runs.column_names.index("part"), "part", encoded)
        table = table.replace_schema_metadata({"ccbps": json.dumps(about)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        content = sink.getvalue()
        with folder.create(run.draft) as file:
            file.write(content)
            file.write(sha256(content).digest())
        names = folder.names()
        if set(checksums) <= set(names):
            obstacle = folder.publish(run.draft, run.index)
        else:
            # Removed by the commit of another run, or by hand; either way this is no store.
            folder.remove(run.draft)
            other = WriterRun(latest(names))
            obstacle = other.index if other.version else "parts of this one are gone"
        if obstacle is None:
            # The name may be free again, since versions before the last are removed.
            later = latest(folder.names())
            if later > run.version:
                folder.remove(run.index)
                obstacle = WriterRun(later).index
        if obstacle is not None:
            raise ParameterError(
                f"path={folder.path!r}: another write_messages finished there while this one ran, "
                f"or is about to ({obstacle}); nothing of this one is kept. Write to another "
                "folder, or once more with mode='overwrite'"
                + is_claim(obstacle)
                * ", after removing that file if no other writer is at work"
            )

    @classmethod
    def read(cls, folder: Folder, matcher: Matcher, kind: StoreKind) -> Index:
        """The index of a store for `matcher`, of one side's messages.

        Raises:
            ParameterError: there is no store, or one for another matcher or side.
            DecodeError: the index is damaged, or of another format.
        """
        named = f"{kind}s={folder.path!r}"
        name, content = _read(folder, named)
        try:
            about, columns = _opened(content)
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise DecodeError(f"{named}: {name} is damaged: {error!r}; write it again") from error
        wanted = _format(matcher, kind)
        if about["format"] not in (FORMAT, ROUNDS_FORMAT):
            raise DecodeError(f"{named} has format {about['format']!r}; this reads {wanted!r}")
        if about["matcher"] != matcher.fingerprint.hex():
            raise ParameterError(
                f"{named} holds messages of another matcher (fingerprint "
                f"{about['matcher'][:12]}..., wanted {matcher.fingerprint.hex()[:12]}...): schema "
                "and template must be the same"
            )
        if about["kind"] != kind:
            raise ParameterError(f"{named} holds {about['kind']} messages, not {kind} messages")
        if about["format"] != wanted:
            raise DecodeError(f"{named}: {name} is damaged: it has not format {wanted!r}")
        part, subscription, *numbers = columns
        sums = {part: bytes.fromhex(found) for part, found in about["checksums"].items()}
        return cls(
            PartFiles(folder, about["width"], about["batch_rows"], sums),
            part.dictionary.to_pylist(),
            part.indices.to_numpy(),
            subscription,
            *(column.to_numpy() for column in numbers),
        )


def _read(folder: Folder, named: str) -> tuple[str, bytes]:
    """Name and bytes of the last index."""
    problem: OSError | None = None
    for _ in range(_READS):
        names = folder.names()
        version = latest(names)
        if not version:
            if any(map(_OLD.fullmatch, names)):
                raise DecodeError(f"{named} has an older format; write it again")
            raise ParameterError(
                f"{named}: no message store is there, or one that was never finished (no index); "
                "write_messages makes one"
            )
        name = WriterRun(version).index
        try:
            with folder.open(name) as file:
                return name, file.read()
        except OSError as error:  # replaced since the folder was listed, or damaged
            problem = error
    raise DecodeError(f"{named}: {name} cannot be read: {problem}; write it again")


class _Content(NamedTuple):
    about: dict[str, Any]
    columns: list[pa.Array]


def _opened(content: bytes) -> _Content:
    """What the bytes of an index say.

    Raises:
        KeyError, TypeError, ValueError, pa.ArrowException: they are not an index, or damaged.
    """
    body, digest = content[:-_SHA256_BYTES], content[-_SHA256_BYTES:]
    if sha256(body).digest() != digest:
        raise ValueError("its checksum is another")
    with pa.ipc.open_file(pa.py_buffer(body)) as reader:
        table = reader.read_all().combine_chunks()
    about = json.loads((table.schema.metadata or {})[b"ccbps"])
    known = about["format"] in (FORMAT, ROUNDS_FORMAT)
    return _Content(about, _checked(table, about) if known else [])


def _checked(table: pa.Table, about: Mapping[str, Any]) -> list[pa.Array]:
    """Columns of an index whose runs lie one after the other in their parts and leave no row out.

    Raises:
        KeyError, TypeError, ValueError, pa.ArrowException: it is not such a table.
    """
    table = table.select(RUNS.names).cast(_COLUMNS)
    table.validate(full=True)
    rounds = about["format"] == ROUNDS_FORMAT
    if any(c.null_count for c in table.drop_columns(["subscription"] * rounds).columns):
        raise ValueError("a value is missing")
    if about["kind"] not in ("event", "interest") or not isinstance(about["matcher"], str):
        raise ValueError("it does not say whose messages these are")
    width = about["width"]
    if type(width) is not int or width < 1 or about["batch_rows"] != batch_rows(width):
        raise ValueError("width and rows of a batch do not go together")
    columns = [_whole(column) for column in table.columns]
    part = columns[0]
    if not all(map(_PART.fullmatch, part.dictionary.to_pylist())):
        raise ValueError("it names files that are not parts of a store")
    if clash := _clash(table, rounds):
        raise ValueError(clash)
    start, stop, first, last = (column.to_numpy() for column in columns[2:])
    order = np.lexsort((start, part.indices.to_numpy()))
    same = np.diff(part.indices.to_numpy()[order]) == 0
    expected = np.zeros(len(order), dtype=np.int64)
    expected[1:] = np.where(same, stop[order][:-1], 0)
    if (start[order] != expected).any() or (stop <= start).any():
        raise ValueError("runs do not follow one another")
    rows = np.zeros(len(part.dictionary), dtype=np.int64)
    np.maximum.at(rows, part.indices.to_numpy(), stop)
    sizes = {name: len(bytes.fromhex(sums)) for name, sums in about["checksums"].items()}
    wanted = -(-rows // about["batch_rows"]) * CHECKSUM_BYTES
    if sizes != dict(zip(part.dictionary.to_pylist(), wanted.tolist(), strict=True)):
        raise ValueError("it lacks checksums of a part")
    if (first < 0).any() or (last - first < stop - start - 1).any():
        raise ValueError("a run has fewer rounds than rows")
    return columns


def _clash(runs: pa.Table, rounds: bool) -> str:
    """What is wrong if rows of one subscription, or with `rounds` of one round, may be in two runs;
    empty if nothing is."""
    if not rounds:
        labels = runs["subscription"]
        return (
            "a subscription has two runs" if pc.count_distinct(labels).as_py() < len(labels) else ""
        )
    if runs["subscription"].null_count < len(runs):
        return "events of a broadcast have a subscription"
    first, last = (runs[name].to_numpy() for name in ("first_round", "last_round"))
    order = np.argsort(first)
    return "a round has two runs" if (first[order][1:] <= last[order][:-1]).any() else ""


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
