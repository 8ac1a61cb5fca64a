"""Parts of a message store: messages in Arrow files, written once, mapped and read without a copy.

A part ``part-<version>-<run>-<part>.arrow`` is an Arrow IPC file, uncompressed, with the columns
`round`, int64, and `message`, fixed-size binary. Its rows are in runs of one subscription, if
messages have one, with rounds in order. They are in batches of `batch_rows` rows; the last one may
have fewer. The store's index keeps two checksums for each batch. A reader compares that of the
rounds only if it reads them: not if the index says that they are consecutive. It compares that of
the messages on request only, since reading a message takes as long as deciding it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Index, Numbers
from ccbps.arrow import binary_rows, integers, is_valid, row_name
from ccbps.errors import CcbpsError, DecodeError
from ccbps.store.folder import Folder
from ccbps.store.versions import current

BATCH_BYTES: Final = 32 << 20
"""Number of bytes of a batch in a part. A writer holds them in memory, and so does a reader that
cannot map files."""
CHECKSUM_BYTES: Final = 32
"""Bytes of each batch's checksums: 16 for the rounds and 16 for the messages."""
RUN_ROWS: Final = 1 << 12
"""Least number of rows of a run that ends at a gap of rounds. So the rounds of long runs are
consecutive, and a store whose rounds have many gaps still has few runs."""

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
"""Columns of runs. A run consists of consecutive rows of one subscription in a part; a subscription
has several runs in a part if rounds have gaps. Messages without subscriptions have one run for each
part, whose `subscription` is NULL."""
MANIFEST: Final = RUNS.append(pa.field("checksums", pa.binary())).append(
    pa.field("problem", pa.string())
)
"""Columns of the report on a part. It has a row for each run, and in the first row the checksums of
all batches; or one row with the problem."""


class Refused(CcbpsError):
    """Rows that do not go into a store; internal to writers, never raised to callers."""


def batch_rows(width: int) -> int:
    """Return the number of rows of a batch in a part with messages of `width` bytes."""
    return max(1, BATCH_BYTES // width)


def checksum(data: NDArray[Any]) -> bytes:
    """Return a checksum of 16 bytes: AES-GMAC under a public key.

    It detects damage, not attacks. Nothing in the standard library is as fast (9 GB per second).
    """
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
    return AESGCM(bytes(16)).encrypt(bytes(12), b"", flat)


def write_part(
    folder: Folder, stem: str, width: int, batches: Iterable[Sequence[pa.Array]]
) -> pa.RecordBatch:
    """Write a part, and report on it.

    Args:
        folder: folder of the store.
        stem: beginning of the part's name.
        width: bytes of a message.
        batches: rows in order: rounds, messages and, if there are any, subscriptions.

    Returns:
        columns of `MANIFEST`. A problem is reported, not raised, since Spark would repeat a failed
        task.
    """
    part = PartWriter(folder, stem, width)
    try:
        for columns in batches:
            part.append(*columns)
        return part.finish()
    except BaseException as error:
        part.abandon()
        if not isinstance(error, Refused):
            raise
        return _report({"problem": [str(error)]}, 1)


def _report(columns: Mapping[str, Any], rows: int) -> pa.RecordBatch:
    """Return columns of a report, those that are missing as NULL."""
    arrays = [pa.array(columns.get(name, [None] * rows)) for name in MANIFEST.names]
    return pa.record_batch(arrays, names=MANIFEST.names).cast(MANIFEST)


class PartWriter:
    """Writer of one part from rows in order.

    Attributes:
        name: name of the file.
        checksums: checksums of the batches written so far, `CHECKSUM_BYTES` each.
        width: bytes of a message.
    """

    def __init__(self, folder: Folder, stem: str, width: int) -> None:
        self.name = f"{stem}-{uuid4().hex}.arrow"
        self.checksums = b""
        self._folder, self.width = folder, width
        self._schema = pa.schema([("round", pa.int64()), ("message", pa.binary(width))])
        self._file: pa.NativeFile | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._waiting_rows = self._begun = 0
        # Labels, first rows and first rounds of runs, and the last rounds of the runs before them.
        self._runs: list[tuple[pa.Array, Numbers, Numbers, Numbers]] = []
        self._previous: tuple[str | None, int] = (None, 0)
        self._message = np.zeros(width, dtype=np.uint8)

    def append(
        self, rounds: pa.Array, messages: pa.Array, subscriptions: pa.Array | None = None
    ) -> None:
        """Add a batch of rows. A part has subscriptions in all batches or in none.

        A message that comes once more is left out.

        Raises:
            Refused: a row has a NULL, a negative round or a message of another width; or a pair of
                a subscription and a round, or without subscriptions a round, has two messages.
        """
        count = len(rounds)
        if not count:
            return
        named = {} if subscriptions is None else {"subscription": subscriptions}
        columns = {**named, "round": rounds}

        def refuse(rows: Bools, problem: str) -> None:
            if rows.any():
                row = int(np.flatnonzero(rows)[0])
                raise Refused(f"{row_name([*columns], [*columns.values()], row)}{problem}")

        for name, column in {**columns, "message": messages}.items():
            refuse(~is_valid(column), f": the {name} is NULL; leave such rows out")
        rows, good = binary_rows(messages, self.width)
        if not good.all():
            size = len(messages[int(np.argmin(good))].as_py())
            wanted = f"messages of this matcher have {self.width}"
            refuse(~good, f": the message has {size} bytes; {wanted}")
        number = integers(rounds)
        refuse(number < 0, ": the round is negative")
        label, last = self._previous
        new = np.zeros(count, dtype=np.bool_)
        if subscriptions is None:
            new[0] = not self._rows
            subscriptions = pa.nulls(count, pa.string())
        else:
            new[0] = subscriptions[0].as_py() != label
            other = pc.not_equal(subscriptions[1:], subscriptions[:-1])
            new[1:] = other.to_numpy(zero_copy_only=False)
        before = np.concatenate([[last], number[:-1]])
        again = ~new & (number == before)
        if again.any():
            differs = np.zeros_like(again)
            earlier = np.concatenate([[self._message], rows[:-1]])[again]
            differs[again] = (rows[again] != earlier).any(axis=1)
            key = "pair and round" if named else "round"
            refuse(differs, f" occurs twice; a {key} has one message")
            subscriptions = subscriptions.filter(pa.array(~again))
            new, number, before, rows = (a[~again] for a in (new, number, before, rows))
            if not (count := len(number)):
                return
        if named:
            new[self._gaps(new, number != before + 1)] = True
        starts = np.flatnonzero(new)
        labels = subscriptions.take(pa.array(starts))
        self._runs.append((labels, starts + self._rows, number[starts], before[starts]))
        self._previous, self._message = (subscriptions[-1].as_py(), int(number[-1])), rows[-1]
        if len(starts):
            self._begun = self._rows + int(starts[-1])
        self._rows += count
        message = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(self.width), count, [None, pa.py_buffer(rows)]
        )
        self._waiting.append(pa.record_batch([pa.array(number), message], schema=self._schema))
        self._waiting_rows += count
        whole = batch_rows(self.width)
        if self._waiting_rows >= whole:
            self._write(self._waiting_rows // whole * whole)

    def _gaps(self, new: Bools, gap: Bools) -> list[int]:
        """Return the rows at which a run of at least `RUN_ROWS` rows ends.

        Args:
            new: whether each row begins a run.
            gap: whether rounds have a gap in front of each row.
        """
        starts, gaps = np.flatnonzero(new), np.flatnonzero(gap & ~new)
        begun = np.append(self._begun - self._rows, starts)
        gaps = gaps[gaps - begun[np.searchsorted(starts, gaps)] >= RUN_ROWS]
        ends = list[int]()
        while len(gaps):
            ends.append(int(gaps[0]))
            gaps = gaps[np.searchsorted(gaps, gaps[0] + RUN_ROWS) :]
        return ends

    def finish(self) -> pa.RecordBatch:
        """End the file, and report on it. A part without rows has no file.

        Returns:
            columns of `MANIFEST`.
        """
        if not self._rows:
            return _report({}, 0)
        self._write(self._waiting_rows)
        self._close()
        labels, starts, firsts, lasts = zip(*self._runs, strict=True)
        start = np.concatenate(starts)
        columns = {
            "part": pa.repeat(self.name, len(start)),
            "subscription": pa.concat_arrays(labels),
            "start": start,
            "stop": np.append(start[1:], self._rows),
            "first_round": np.concatenate(firsts),
            "last_round": np.append(np.concatenate(lasts)[1:], np.int64(self._previous[1])),
            "checksums": [self.checksums] + [None] * (len(start) - 1),
        }
        return _report(columns, len(start))

    def abandon(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._close()
            self._folder.remove(self.name)

    def _write(self, rows: int) -> None:
        """Write buffered rows."""
        if self._file is None:
            self._file = self._folder.create(self.name)
            self._writer = pa.ipc.new_file(self._file, self._schema)
        table = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
        most = batch_rows(self.width)
        for start in range(0, rows, most):
            (batch,) = table.slice(start, min(most, rows - start)).to_batches()
            self._writer.write_batch(batch)
            self.checksums += b"".join(checksum(array) for array in _arrays(batch))
        self._waiting = table.slice(rows).to_batches()
        self._waiting_rows -= rows

    def _close(self) -> None:
        if self._file is not None:
            self._writer.close()
            self._file.close()


class PartFile(NamedTuple):
    """A part as the index of its store names it.

    Attributes:
        folder: folder of the store.
        rows: number of its rows, including those that no run names any more.
        checksums: checksums of its batches.
        added: first and last version that brought messages of it.
        version: version of the store whose index names it; 0 if it is not written yet.
    """

    folder: Folder
    rows: int
    checksums: bytes
    added: tuple[int, int]
    version: int = 0


@dataclass(frozen=True)
class PartFiles:
    """The parts of one store or several. It travels to the workers, which read them.

    Attributes:
        width: bytes of a message.
        batch_rows: rows of each batch of a part, except the last.
        parts: parts by name; no two share a name.
    """

    width: int
    batch_rows: int
    parts: Mapping[str, PartFile]

    def reader(self, name: str, *, verify: bool = False) -> PartReader:
        """Open a part; `verify` compares the checksums of messages, too."""
        return PartReader(self, name, verify)


def _arrays(batch: pa.RecordBatch) -> tuple[Numbers, Bytes]:
    """Return rounds, shape (rows,), and messages, shape (rows, width), without a copy."""
    column = batch.column(1)
    width = column.type.byte_width
    flat = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    at = slice(column.offset * width, (column.offset + len(column)) * width)
    return batch.column(0).to_numpy(), flat[at].reshape(-1, width)


class PartReader:
    """Reader of the messages and rounds of one part.

    Each method raises DecodeError if the file is missing or damaged.

    Attributes:
        width: bytes of a message.
    """

    def __init__(self, files: PartFiles, name: str, verify: bool) -> None:
        self.width = files.width
        self._files, self._name, self._verify = files, name, verify
        self._part = files.parts[name]
        self._checksums = self._part.checksums
        self._checked: set[tuple[int, int]] = set()
        try:
            self._mapped = self._part.folder.mapped(name)
        except FileNotFoundError as error:
            raise self._gone() from error
        except (OSError, ValueError) as error:  # ValueError: it is empty
            raise self._damaged(str(error)) from error
        self._large_pages = False
        self._reader = self._open()
        self._held: tuple[int, Bytes] = (-1, np.empty((0, self.width), dtype=np.uint8))
        if self._reader.num_record_batches * CHECKSUM_BYTES != len(self._checksums):
            raise self._damaged(f"{self._reader.num_record_batches} batches")

    def _open(self, **options: Any) -> pa.ipc.RecordBatchFileReader:
        try:
            file = self._mapped or self._part.folder.open(self._name)
            return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(**options))
        except FileNotFoundError as error:
            raise self._gone() from error
        except (pa.ArrowInvalid, OSError) as error:
            raise self._damaged(str(error)) from error

    def _gone(self) -> DecodeError:
        """Return the error for a missing file: another run removed it, or it was lost."""
        folder, planned = self._part.folder, self._part.version
        version, _ = current(folder)
        if version <= planned:
            return self._damaged("no such file")
        return DecodeError(
            f"{folder.path}: the store was compacted or overwritten, or messages were dropped, "
            f"after this was planned (it is at version {version}, and was at {planned}). Nothing "
            "is damaged: plan the job anew, as with another call of match_messages"
        )

    def _damaged(self, problem: str) -> DecodeError:
        return DecodeError(
            f"{self._part.folder.path}/{self._name}: a file of this message store is missing, cut "
            f"off or damaged ({problem}): write the store again"
        )

    def _check(self, number: int, column: int, data: NDArray[Any]) -> None:
        """Compare a column of a batch with its checksum, once."""
        if (number, column) in self._checked:
            return
        at = number * CHECKSUM_BYTES + column * 16
        if checksum(data) != self._checksums[at : at + 16]:
            name = ("rounds", "messages")[column]
            raise self._damaged(f"the {name} of batch {number} have another checksum")
        self._checked.add((number, column))

    def release(self) -> None:
        """Free the messages and rounds that are held in memory."""
        self._held = (-1, self._held[1][:0])
        self.__dict__.pop("rounds", None)

    @cached_property
    def rounds(self) -> Numbers:
        """Rounds of all rows, shape (rows,)."""
        try:
            column = self._open(included_fields=[0]).read_all()["round"]
            arrays = [chunk.to_numpy() for chunk in column.chunks]
        except (pa.ArrowInvalid, OSError, KeyError) as error:
            raise self._damaged(str(error)) from error
        for number, rounds in enumerate(arrays):
            self._check(number, 0, rounds)
        out: Numbers = np.concatenate(arrays)
        return out

    def view(self, start: int, most: int) -> Bytes:
        """Return messages from row `start` on, at least one and at most `most`, without a copy.

        Callers read long stretches of the file. So it is mapped with large pages, if the system has
        them: a disk is several times as fast then, and memory needs fewer look-ups.
        """
        if self._mapped is not None and not self._large_pages:
            self._large_pages = True
            with suppress(AttributeError, OSError):  # a system that has none
                self._mapped.madvise(mmap.MADV_HUGEPAGE)
        batch, row = divmod(start, self._files.batch_rows)
        stop = min(row + most, self._files.batch_rows)
        return self._batch(batch, stop)[row:stop]

    def gather(self, rows: Numbers) -> Bytes:
        """Return the messages of some rows, shape (rows, width), as a view if they are neighbours.

        Args:
            rows: numbers of the rows, at least one.
        """
        batches, places = np.divmod(rows, self._files.batch_rows)
        numbers = np.unique(batches).tolist()
        if len(numbers) == 1:
            batch = self._batch(numbers[0], int(places.max()) + 1)
            if (np.diff(places) == 1).all():
                return batch[places[0] : places[-1] + 1]
            return np.take(batch, places, axis=0)
        out = np.empty((len(rows), self.width), dtype=np.uint8)
        self.scatter(rows, out, np.arange(len(rows)))
        return out

    def scatter(self, rows: Numbers, out: Bytes, at: Index) -> None:
        """Copy the messages of some rows, at least one, to the rows `at` of an array."""
        batches, places = np.divmod(rows, self._files.batch_rows)
        for number in np.flatnonzero(np.bincount(batches)).tolist():
            here = np.flatnonzero(batches == number)
            there = places[here]
            out[at[here]] = np.take(self._batch(number, int(there.max()) + 1), there, axis=0)

    def _batch(self, number: int, least: int) -> Bytes:
        """Return the messages of a batch, which must have at least `least` rows."""
        held, view = self._held
        if held != number:
            try:
                batch = self._reader.get_batch(number)
            except (pa.ArrowInvalid, OSError, IndexError, ValueError) as error:
                raise self._damaged(str(error)) from error
            if batch.schema.types != [pa.int64(), pa.binary(self.width)]:
                raise self._damaged(f"columns are {', '.join(map(str, batch.schema.types))}")
            rounds, view = _arrays(batch)
            if self._verify:
                self._check(number, 0, rounds)
                self._check(number, 1, view)
            self._held = number, view
        if len(view) < least:
            raise self._damaged(f"{len(view)} rows, wanted {least} or more")
        return view


def by_part(
    open_part: Callable[[int], PartReader], number: Index, rows: Numbers
) -> Iterator[tuple[PartReader, Index, Numbers]]:
    """Group rows of several parts by part.

    Args:
        open_part: returns the reader of a part by its number.
        number: number of each row's part, shape (rows,).
        rows: each row's place in its part, shape (rows,).

    Yields:
        the reader of a part, the places of its rows in `rows`, and these rows.
    """
    for part in np.flatnonzero(np.bincount(number)).tolist():
        at = np.flatnonzero(number == part)
        yield open_part(part), at, rows[at]
