"""Parts of a message store: messages in Arrow files, written once, mapped and read without a copy.

A part ``part-<version>-<run>-<part>.arrow`` is an Arrow IPC file, uncompressed, with the columns
`round`, int64, and `message`, fixed-size binary; sorted by subscription, where messages have one,
and round; in batches of `batch_rows` rows, except the last. The store's index keeps two
checksums for each batch. A reader compares that of the rounds where it uses them (not where the
index says that they are consecutive), and that of the messages where it is told to, since reading
a message takes as long as deciding it.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
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

# Of a batch in a part: what a writer holds in memory, and what a reader does that cannot map.
BATCH_BYTES: Final = 32 << 20
CHECKSUM_BYTES: Final = 32
"""Of each batch: 16 bytes for the rounds and 16 for the messages."""
RUN_ROWS: Final = 1 << 12
"""Rows of a run, before it ends where rounds have a gap: the rounds of long runs are consecutive,
and a store whose rounds have many gaps has few runs all the same."""

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
"""Runs as `PartWriter` lists them: rows of one subscription, of which a part has several runs
where rounds have gaps. Messages without subscriptions have one run for each part, whose
`subscription` is NULL."""


class Refused(CcbpsError):
    """Rows that do not go into a store; internal to writers, never raised to callers."""


def batch_rows(width: int) -> int:
    """Rows of a batch in a part whose messages have `width` bytes."""
    return max(1, BATCH_BYTES // width)


def checksum(data: NDArray[Any]) -> bytes:
    """16 bytes that differ when the data do: AES-GMAC under a key that everybody knows.

    It finds damage, not an attacker. Nothing in the standard library reads 9 GB per second.
    """
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
    return AESGCM(bytes(16)).encrypt(bytes(12), b"", flat)


class PartWriter:
    """Writes one part from rows that come sorted, and lists its runs.

    Attributes:
        name: of the file.
        checksums: of all batches written so far, `CHECKSUM_BYTES` each.
    """

    def __init__(self, folder: Folder, stem: str, width: int) -> None:
        self.name = f"{stem}-{uuid4().hex}.arrow"
        self.checksums = b""
        self._folder, self.width = folder, width
        self._schema = pa.schema([("round", pa.int64()), ("message", pa.binary(width))])
        self._file: pa.NativeFile | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._waiting_rows = self._begun = 0
        # Of each run: its label and first row and round, and the last round of the run before it.
        self._labels: list[pa.Array] = []
        self._starts: list[Numbers] = []
        self._firsts: list[Numbers] = []
        self._lasts: list[Numbers] = []
        self._previous: tuple[str | None, int] = (None, 0)
        self._message = np.zeros(width, dtype=np.uint8)

    def append(
        self, rounds: pa.Array, messages: pa.Array, subscriptions: pa.Array | None = None
    ) -> None:
        """Add a batch; with subscriptions always or never.

        Raises:
            Refused: a row has a NULL, a negative round or a message of another width, or a
                (subscription, round) comes with two messages, or without subscriptions a round. The
                same message once more is left out.
        """
        count = len(rounds)
        if not count:
            return
        named = {} if subscriptions is None else {"subscription": subscriptions}
        names, columns = (*named, "round"), (*named.values(), rounds)
        valid = is_valid(*columns, messages)
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
            twice = np.flatnonzero(again)
            other = (rows[twice] != np.concatenate([[self._message], rows[:-1]])[twice]).any(axis=1)
            if other.any():
                where = row_name(names, columns, int(twice[other][0]))
                what = "pair and round" if named else "round"
                raise Refused(f"{where} occurs twice; a {what} has one message")
            subscriptions = subscriptions.filter(pa.array(~again))
            new, number, before, rows = (a[~again] for a in (new, number, before, rows))
            if not (count := len(number)):
                return
        if named:
            new[self._gaps(new, number != before + 1)] = True
        starts = np.flatnonzero(new)
        self._labels.append(subscriptions.take(pa.array(starts)))
        self._starts.append(starts + self._rows)
        self._firsts.append(number[starts])
        self._lasts.append(before[starts])
        self._previous, self._message = (subscriptions[-1].as_py(), int(number[-1])), rows[-1]
        if len(starts):
            self._begun = self._rows + int(starts[-1])
        self._rows += count
        message = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(self.width), count, [None, pa.py_buffer(rows)]
        )
        self._waiting.append(pa.record_batch([pa.array(number), message], schema=self._schema))
        self._waiting_rows += count
        if self._waiting_rows >= batch_rows(self.width):
            self._write(self._waiting_rows // batch_rows(self.width) * batch_rows(self.width))

    def _gaps(self, new: Bools, gap: Bools) -> list[int]:
        """Where a run ends, of the rows in front of which rounds have a gap: it has `RUN_ROWS`."""
        starts, gaps = np.flatnonzero(new), np.flatnonzero(gap & ~new)
        begun = np.append(self._begun - self._rows, starts)
        gaps = gaps[gaps - begun[np.searchsorted(starts, gaps)] >= RUN_ROWS]
        found = list[int]()
        while len(gaps):
            found.append(int(gaps[0]))
            gaps = gaps[np.searchsorted(gaps, gaps[0] + RUN_ROWS) :]
        return found

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

    `folder`: where it is. `rows`: in it, also those that no run names any more. `checksums`: of its
    batches. `added`: the first and the last version that brought messages of it.
    """

    folder: Folder
    rows: int
    checksums: bytes
    added: tuple[int, int]


@dataclass(frozen=True)
class PartFiles:
    """What is needed to read the parts of a store, or of several; travels to the workers.

    Attributes:
        width: bytes of a message.
        batch_rows: rows of each batch of a part, except the last.
        parts: by name, which no two parts share.
    """

    width: int
    batch_rows: int
    parts: Mapping[str, PartFile]

    def reader(self, name: str, *, verify: bool = False) -> PartReader:
        """A part to read; `verify` compares the checksums of messages, too."""
        return PartReader(self, name, verify)


def _arrays(batch: pa.RecordBatch) -> tuple[Numbers, Bytes]:
    """Rounds and messages of a batch, shapes (rows,) and (rows, width), without a copy."""
    column = batch.column(1)
    width = column.type.byte_width
    flat = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    at = slice(column.offset * width, (column.offset + len(column)) * width)
    return batch.column(0).to_numpy(), flat[at].reshape(-1, width)


class PartReader:
    """Reads messages and rounds of one part.

    Raises:
        DecodeError: by each method: the file is missing, or not what was written.
    """

    def __init__(self, files: PartFiles, name: str, verify: bool) -> None:
        self.width = files.width
        self._files, self._name, self._verify = files, name, verify
        self._part = files.parts[name]
        self._checksums = self._part.checksums
        self._checked: set[tuple[int, int]] = set()
        try:
            self._mapped = self._part.folder.mapped(name)
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
        except (pa.ArrowInvalid, OSError) as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, what: str) -> DecodeError:
        return DecodeError(
            f"{self._part.folder.path}/{self._name}: a file of this message store is missing, cut "
            f"off or damaged ({what}). If the store was compacted or overwritten, or rounds were "
            "dropped, since this was planned, plan it anew; otherwise write the store again"
        )

    def _check(self, number: int, column: int, data: NDArray[Any]) -> None:
        """Compare a column of a batch with its checksum, once."""
        if (number, column) in self._checked:
            return
        at = number * CHECKSUM_BYTES + column * 16
        if checksum(data) != self._checksums[at : at + 16]:
            what = ("rounds", "messages")[column]
            raise self._damaged(f"the {what} of batch {number} have another checksum")
        self._checked.add((number, column))

    def release(self) -> None:
        """Forget messages and rounds that are held in memory, but not what was compared."""
        self._held = (-1, self._held[1][:0])
        self.__dict__.pop("rounds", None)

    @cached_property
    def rounds(self) -> Numbers:
        """Rounds of all rows."""
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
        """Messages from row `start` on, at least one and at most `most`, without a copy.

        Whoever calls it reads long stretches of the file: by large pages, where the system has
        some. A disk is read several times as fast so, and memory with less to look up.
        """
        if self._mapped is not None and not self._large_pages:
            self._large_pages = True
            with suppress(AttributeError, OSError):  # a system that has none
                self._mapped.madvise(mmap.MADV_HUGEPAGE)
        batch, row = divmod(start, self._files.batch_rows)
        stop = min(row + most, self._files.batch_rows)
        return self._batch(batch, stop)[row:stop]

    def gather(self, rows: Numbers) -> Bytes:
        """Messages of any `rows`, at least one, shape (rows, width): copied, unless neighbours."""
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
        """Copy messages of any `rows`, at least one, to rows `at` of `out`."""
        batches, places = np.divmod(rows, self._files.batch_rows)
        for number in np.flatnonzero(np.bincount(batches)).tolist():
            here = np.flatnonzero(batches == number)
            there = places[here]
            out[at[here]] = np.take(self._batch(number, int(there.max()) + 1), there, axis=0)

    def _batch(self, number: int, least: int) -> Bytes:
        """Messages of a batch, which must have `least` rows."""
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
