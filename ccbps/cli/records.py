"""Read records from files, a block at a time: CSV, JSON lines and Parquet.

A block holds the records that lie in about a mebibyte of a file, or all that standard input has at
the moment. So a command needs little memory for a long file, and takes each record of a slow pipe
as it comes. Messages are hexadecimal text in CSV and JSON lines, and binary in Parquet.
"""

from __future__ import annotations

import csv
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal as Number
from functools import cached_property
from itertools import compress
from operator import index
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec
import numpy as np

from ccbps.arrays import Bools, Bytes, Rounds
from ccbps.cli.command import Option
from ccbps.cli.progress import progress
from ccbps.errors import DecodeError, EventError
from ccbps.loading import need
from ccbps.predicates import AttributeType, Bool, Int, UInt
from ccbps.predicates.attributes import Attributes

FORMATS: Final = ("csv", "json", "parquet")
FORMAT: Final = Option(
    "--format",
    "CSV with a line of names, JSON lines, or Parquet (default: by the name of the file, or JSON)",
    choices=FORMATS,
)
OUT: Final = (
    Option("--out FILE", "file to write (default: standard output)", default="-"),
    Option(
        "--out-format",
        "format to write (default: by the name of the file, or that of the records)",
        choices=FORMATS,
    ),
)
CHUNK: Final = 1 << 20
"""Bytes of a text that are read at a time."""
ROWS: Final = 1 << 14
"""Records of a block of CSV or Parquet at most."""
FIELD: Final = 1 << 30
"""Bytes of a line, and characters of a field of CSV, at most."""

_WHOLE: Final = re.compile("-?[0-9]{1,40}")
_TRUTH: Final = {"true": True, "false": False, "1": True, "0": False}
_DECODER: Final = msgspec.json.Decoder(dict[str, Any], float_hook=Number)
ENCODER: Final = msgspec.json.Encoder(enc_hook=str, decimal_format="number")

# What msgspec raises; the last is of Decimal, for an exponent beyond its own.
_NO_JSON: Final = (msgspec.MsgspecError, ValueError, RecursionError, ArithmeticError)
Reject: TypeAlias = Callable[[int, str], object]
"""Function that takes a record's number, from 0, and the reason why it cannot be used."""


def format_of(path: str, form: str | None, other: str = "json") -> str:
    """Return the format of a file: as asked for, or by the file's name, or another one."""
    if form is not None:
        return form
    ending = path.rpartition(".")[2].lower()
    return {"csv": "csv", "json": "json", "jsonl": "json", "parquet": "parquet"}.get(ending, other)


class Block(ABC):
    """Records that follow one another in a file.

    Args:
        numbers: number of each record in the file, from 0, in their order.

    Attributes:
        numbers: number of each record in the file.
        following: number of the record behind the block.
    """

    def __init__(self, numbers: Sequence[int], following: int) -> None:
        self.numbers, self.following = numbers, following

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    @abstractmethod
    def values(self) -> Any:
        """Records as `Schema.encode` takes them."""

    @abstractmethod
    def column(self, name: str) -> Any:
        """Return a column: a list, an array or an Arrow array; None stands for no value.

        Raises:
            EventError: there is no such column.
        """

    def python_values(self, name: str) -> list[Any]:
        """Return a column as a list of Python values.

        Raises:
            EventError: there is no such column.
        """
        return _python_values(self.column(name))

    @abstractmethod
    def take(self, chosen: Bools) -> Block:
        """Return the records of a mask."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return each record as a mapping of names to values."""

    def texts(self) -> list[str]:
        """Return each record as a line of JSON."""
        return [ENCODER.encode(row).decode() for row in self.rows()]


class Lines(Block):
    """Records of lines of JSON, whose fields may differ."""

    def __init__(
        self, numbers: Sequence[int], following: int, rows: list[dict[str, Any]], lines: list[str]
    ) -> None:
        super().__init__(numbers, following)
        self._rows, self._lines = rows, lines

    @property
    def values(self) -> list[dict[str, Any]]:
        return self._rows

    def column(self, name: str) -> list[Any]:
        return [row.get(name) for row in self._rows]

    def take(self, chosen: Bools) -> Lines:
        return Lines(
            [*compress(self.numbers, chosen)],
            self.following,
            [*compress(self._rows, chosen)],
            [*compress(self._lines, chosen)],
        )

    def rows(self) -> list[dict[str, Any]]:
        return self._rows

    def texts(self) -> list[str]:
        return self._lines


class Table(Block):
    """Records of columns of one length.

    Args:
        numbers: see `Block`.
        following: see `Block`.
        columns: columns by name: lists, arrays, Arrow arrays, or messages, shape (rows, bytes).
        schema: types of columns of text, which become values; None if they are values.

    Attributes:
        columns: columns as they were read.
    """

    def __init__(
        self,
        numbers: Sequence[int],
        following: int,
        columns: Mapping[str, Any],
        schema: Attributes | None = None,
    ) -> None:
        super().__init__(numbers, following)
        self.columns, self._schema = columns, schema

    @cached_property
    def values(self) -> dict[str, Any]:
        if self._schema is None:
            return {**self.columns}
        types = {name: self._schema[name] for name in self.columns if name in self._schema}
        return {
            name: _typed(types[name], column) if name in types else column
            for name, column in self.columns.items()
        }

    def column(self, name: str) -> Any:
        if name not in self.columns:
            raise EventError(f"the records have no field {name!r}", attribute=name)
        return self.values[name]

    def take(self, chosen: Bools) -> Table:
        columns = {name: _chosen(column, chosen) for name, column in self.columns.items()}
        return Table([*compress(self.numbers, chosen)], self.following, columns, self._schema)

    def rows(self) -> list[dict[str, Any]]:
        names, columns = [*self.values], map(plain_values, self.values.values())
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _chosen(column: Any, chosen: Bools) -> Any:
    if isinstance(column, list):
        return [*compress(column, chosen)]
    return column[chosen] if isinstance(column, np.ndarray) else column.filter(chosen)


def _typed(kind: AttributeType, texts: Sequence[str]) -> Sequence[Any]:
    """Convert texts of CSV. A text that does not fit stays, and the schema refuses it then.

    The schema takes numbers as texts, too, but records that are written as JSON lines or sent to
    subscribers have numbers.
    """
    if isinstance(kind, Bool):
        values: Sequence[Any] = [_TRUTH.get(text.lower(), text) for text in texts]
    elif isinstance(kind, UInt | Int):
        values = [int(text) if _WHOLE.fullmatch(text) else text for text in texts]
    else:
        values = texts
    if kind.nullable:
        values = [value if text else None for value, text in zip(values, texts, strict=True)]
    return values


def _python_values(column: Any) -> list[Any]:
    return column if isinstance(column, list) else list(column.to_pylist())


def plain_values(column: Any) -> Sequence[Any]:
    """Convert a column to Python values, and bytes to hexadecimal text."""
    if isinstance(column, list):
        return column
    if isinstance(column, np.ndarray):
        if column.ndim == 2:
            digits = column.tobytes().hex()
            width = 2 * column.shape[1]
            return [digits[at : at + width] for at in range(0, len(digits), width)]
        return list(column.tolist())
    return [v.hex() if isinstance(v, bytes) else v for v in _python_values(column)]


# -- reading ------------------------------------------------------------------------------------


def read_records(
    path: str,
    form: str | None,
    schema: Attributes | None = None,
    reject: Reject | None = None,
    *,
    bar: bool = True,
) -> Iterator[Block]:
    """Yield the records of a file in blocks.

    Args:
        path: path of the file; ``-`` for standard input.
        form: one of `FORMATS`; None to decide by the path.
        schema: types of the values of CSV. Columns outside the schema stay text.
        reject: called for each line that is no record; None if such a line is an error.
        bar: whether a bar shows how much of the file was taken.

    Raises:
        EventError: a line is no record; or the file has another format.
        ImportError: the file is Parquet, and pyarrow is missing.
        OSError: the file cannot be read.
    """

    def refuse(number: int, line: int, reason: str) -> None:
        if reject is None:
            raise EventError(f"{path}, line {line}: {reason}")
        reject(number, reason)

    form = format_of(path, form)
    if form == "parquet":
        yield from _parquet_blocks(path, bar)
    else:
        with _source(path, bar) as chunks:
            yield from (
                _csv_blocks(path, chunks, schema, refuse)
                if form == "csv"
                else _json_blocks(chunks, refuse)
            )


@contextmanager
def _source(path: str, bar: bool) -> Iterator[Iterator[list[str]]]:
    """Open a text, and give an iterator of its lines: those of each chunk that is read."""
    with ExitStack() as stack:
        if path == "-":
            file: BinaryIO = sys.stdin.buffer
            size, bar = None, False
        else:
            file = stack.enter_context(Path(path).open("rb"))
            size = Path(path).stat().st_size
        advance = stack.enter_context(progress(size, "B", shown=bar))
        yield _lines(path, file, advance)


def _lines(path: str, file: BinaryIO, advance: Callable[[int], object]) -> Iterator[list[str]]:
    """Yield the lines of each chunk of a text, with their ends.

    Raises:
        EventError: the file is no text in UTF-8.
    """
    # What there is, and not a whole chunk: a pipe may be slow.
    read = getattr(file, "read1", file.read)
    pieces: list[bytes] = []  # of a line whose end was not read yet
    length, codec = 0, "utf-8-sig"
    while True:
        chunk = read(CHUNK)
        whole, newline, rest = chunk.rpartition(b"\n")
        text = b""
        if newline or not chunk:
            text = b"".join([*pieces, whole, newline])
            pieces, length = [], 0
        pieces.append(rest)
        length += len(rest)
        if length > FIELD:
            raise EventError(
                f"{path} has a line of more than {FIELD:,} bytes: write one record a line"
            )
        if text:
            try:
                # Not by str.splitlines, for which more than "\n" ends a line.
                lines = text.decode(codec).split("\n")
            except UnicodeDecodeError:
                raise EventError(f"{path} is not a text in UTF-8") from None
            codec = "utf-8"  # a byte order mark is at the start only
            last = lines.pop()
            yield [line + "\n" for line in lines] + ([last] if last else [])
        if not chunk:
            return
        advance(len(chunk))


def _json_blocks(
    chunks: Iterator[list[str]], refuse: Callable[[int, int, str], object]
) -> Iterator[Block]:
    number = line = 0
    decode = _DECODER.decode
    for chunk in chunks:
        # Not by decode_lines, for which an object may end within a line, or in another one.
        texts = [*filter(None, map(str.strip, chunk))]
        following = number + len(texts)
        try:
            block = Lines(range(number, following), following, [*map(decode, texts)], texts)
        except _NO_JSON:
            block = Lines(*_good_lines(chunk, number, line, refuse))
        yield block
        number, line = following, line + len(chunk)


def _good_lines(
    chunk: list[str], number: int, line: int, refuse: Callable[[int, int, str], object]
) -> tuple[list[int], int, list[dict[str, Any]], list[str]]:
    """Return what makes `Lines` of the lines that are records, and refuse the others."""
    numbers, rows, lines = [], [], []
    for text in map(str.strip, chunk):
        line += 1
        if not text:
            continue
        try:
            rows.append(_DECODER.decode(text))
            numbers.append(number)
            lines.append(text)
        except _NO_JSON:
            refuse(number, line, "not a JSON object; write one object a line")
        number += 1
    return numbers, number, rows, lines


class _Feed:
    """Lines for a reader of CSV.

    Attributes:
        left: number of lines of the chunk that were not taken.
    """

    def __init__(self, chunks: Iterator[list[str]]) -> None:
        self._chunks, self.left = chunks, 0
        self._lines: Iterator[str] = iter(())

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        if not self.left:
            chunk = next(self._chunks)
            self._lines, self.left = iter(chunk), len(chunk)
        self.left -= 1
        return next(self._lines)


def _csv_blocks(
    path: str,
    chunks: Iterator[list[str]],
    schema: Attributes | None,
    refuse: Callable[[int, int, str], object],
) -> Iterator[Block]:
    csv.field_size_limit(FIELD)  # messages may be longer than Python's limit of 128 KiB
    feed = _Feed(chunks)
    reader = csv.reader(feed, strict=True)
    try:
        names = next(reader, [])
        if len({*names}) < len(names):
            raise EventError(f"{path}: a name occurs twice in the first line")
        number = 0
        rows: list[list[str]] = []
        numbers: list[int] = []
        if names and not feed.left:
            # Shows the columns, even if no record follows.
            yield _csv_table(names, rows, numbers, number, schema)
        for row in reader:
            if len(row) == len(names):
                rows.append(row)
                numbers.append(number)
            elif row:
                refuse(number, reader.line_num, "not as many values as names")
            number += bool(row)
            if len(rows) >= ROWS or not feed.left:
                yield _csv_table(names, rows, numbers, number, schema)
                rows, numbers = [], []
    except csv.Error as error:
        raise EventError(f"{path}, line {reader.line_num}: {error}") from None
    if rows:
        yield _csv_table(names, rows, numbers, number, schema)


def _csv_table(
    names: list[str],
    rows: list[list[str]],
    numbers: list[int],
    following: int,
    schema: Attributes | None,
) -> Table:
    columns = map(list, zip(*rows, strict=True)) if rows else ([] for _ in names)
    return Table(numbers, following, dict(zip(names, columns, strict=True)), schema)


def load_parquet() -> Any:
    """Load PyArrow's module for Parquet."""
    need("the format Parquet", "arrow")
    import pyarrow.parquet

    return pyarrow.parquet


def _parquet_blocks(path: str, bar: bool) -> Iterator[Block]:
    parquet = load_parquet()
    import pyarrow as pa

    try:
        # Parquet is read from its end, so standard input is read as a whole first.
        file = parquet.ParquetFile(
            pa.BufferReader(sys.stdin.buffer.read()) if path == "-" else path
        )
        names, number = file.schema_arrow.names, 0
        if len({*names}) < len(names):
            raise EventError(f"{path}: two columns have one name")
        if not file.metadata.num_rows:
            columns = [pa.array([], field.type) for field in file.schema_arrow]
            yield Table([], 0, dict(zip(names, columns, strict=True)))
        with progress(file.metadata.num_rows, " records", shown=bar) as advance:
            for batch in file.iter_batches(batch_size=ROWS):
                numbers = range(number, number + len(batch))
                number += len(batch)
                yield Table(numbers, number, dict(zip(names, batch.columns, strict=True)))
                advance(len(batch))
    except pa.ArrowException as error:
        raise EventError(f"{path} is not a Parquet file that can be read: {error}") from None


def whole_numbers(column: Any, title: str) -> Rounds:
    """Return a column of rounds.

    Raises:
        DecodeError: a value is no whole number from 0 to 2^64 - 1.
    """
    try:
        if not isinstance(column, list):
            import pyarrow as pa

            if pa.types.is_integer(column.type) and not column.null_count:
                # Refused if one is negative.
                return np.asarray(column.cast(pa.uint64()).to_numpy(zero_copy_only=False))
        numbers = [int(v) if isinstance(v, str) else index(v) for v in plain_values(column)]
        return np.array(numbers, dtype=np.uint64)
    except (ValueError, TypeError, OverflowError):
        raise DecodeError(f"{title} must be whole numbers, at least 0") from None


def message_rows(column: Any, width: int, title: str) -> Bytes:
    """Return messages, binary or as hexadecimal text, shape (rows, width).

    Raises:
        DecodeError: a value is no message of this width.
    """
    if not isinstance(column, list):
        import pyarrow as pa

        from ccbps.arrow import binary_rows

        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = column.to_pylist()
        else:
            rows, good = binary_rows(column, width)
            if not good.all():
                row = int(np.argmin(good))
                raise DecodeError(
                    f"{title}, row {row} of the block: not {width} bytes", rows=(row,)
                )
            return rows
    for row, text in enumerate(column):
        if not isinstance(text, str) or len(text) != 2 * width:
            raise DecodeError(
                f"{title}, row {row} of a block: not {width} bytes in hexadecimal", rows=(row,)
            )
    try:
        # Blanks between digits would be skipped, and make it too short.
        data = bytes.fromhex("".join(column))
        return np.frombuffer(data, dtype=np.uint8).reshape(len(column), width)
    except ValueError:
        raise DecodeError(f"{title}: a message is not hexadecimal") from None
