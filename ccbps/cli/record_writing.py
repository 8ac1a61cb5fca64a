"""Records written as CSV, JSON lines or Parquet, to a file or to standard output."""

from __future__ import annotations

import csv
import json
import sys
from contextlib import ExitStack
from decimal import Decimal as Number
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ccbps.cli.records import ENCODER, Block, Table, load_parquet, plain_values
from ccbps.errors import EventError
from ccbps.predicates import AttributeType, Bool, Decimal, Int, UInt
from ccbps.predicates.attributes import Attributes


class RecordWriter:
    """Writer of records, in a `with` block.

    Args:
        path: path of a file that is made anew; ``-`` for standard output.
        form: one of `FORMATS`.
        schema: types of columns of Parquet. The other columns have those of their first values.
    """

    def __init__(self, path: str, form: str, schema: Attributes | None = None) -> None:
        self._path, self._form, self._schema = path, form, schema
        self._stack = ExitStack()
        self._names: list[str] = []
        self._has_head = False
        self._file: Any = None
        self._parquet: Any = None
        # Shows the columns, if there are no records at all.
        self._empty: Block = Table([], 0, {})

    def __enter__(self) -> RecordWriter:
        if self._form == "parquet":
            load_parquet()
        if self._path == "-":
            sys.stdout.flush()
            self._file = sys.stdout.buffer
            self._stack.callback(self._file.flush)
        else:
            self._file = self._stack.enter_context(Path(self._path).open("xb"))
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._form == "parquet" and self._parquet is None:
            self._write_parquet(self._empty)
        self._stack.close()
        if kind is not None and self._path != "-":
            Path(self._path).unlink()  # else it would stand in the way of another try

    def write(self, block: Block) -> None:
        """Write the records of a block behind the others.

        Raises:
            EventError: they have other fields than the ones before.
        """
        if self._form == "parquet" and not len(block):
            # Types of columns are not known yet.
            self._empty = block
        elif self._form == "json":
            texts = block.texts()
            self._file.write("".join(f"{text}\n" for text in texts).encode())
        elif self._form == "csv":
            self._write_csv(block)
        else:
            self._write_parquet(block)
        if self._path == "-" and self._form != "parquet":
            self._file.flush()

    def _write_csv(self, block: Block) -> None:
        columns = self._columns(block)
        if not columns:
            return
        text = _TextBuffer()
        writer = csv.writer(text)
        if not self._has_head:
            self._has_head = True
            writer.writerow(columns)
        cells = (map(_cell, plain_values(column)) for column in columns.values())
        writer.writerows(zip(*cells, strict=True))
        # Each piece is a line. Python quotes the characters that end lines: here "\r" and "\n".
        self._file.write("".join(f"{line[:-2]}\n" for line in text).encode())

    def _columns(self, block: Block) -> dict[str, Any]:
        """Return the columns of a block, in the order of the first block.

        Raises:
            EventError: records have different fields.
        """
        if isinstance(block, Table):
            # CSV gets texts as they were read.
            columns = {**(block.columns if self._form == "csv" else block.values)}
        else:
            rows = block.rows()
            names = [*rows[0]] if rows else []
            if any(row.keys() != rows[0].keys() for row in rows):
                self._refuse_fields()
            columns = {name: [row[name] for row in rows] for name in names}
        if not len(block) and not columns:
            return columns
        self._names = self._names or [*columns]
        if {*columns} != {*self._names}:
            self._refuse_fields()
        return {name: columns[name] for name in self._names}

    def _refuse_fields(self) -> NoReturn:
        form = {"csv": "CSV", "parquet": "Parquet"}[self._form]
        raise EventError(f"records of {form} all have the same fields: write JSON lines instead")

    def _write_parquet(self, block: Block) -> None:
        import pyarrow as pa

        types = {}
        if self._parquet is not None:
            types = {field.name: field.type for field in self._parquet.schema}
        try:
            arrays = {}
            for name, column in self._columns(block).items():
                kind = (
                    None if self._schema is None or name not in self._schema else self._schema[name]
                )
                arrays[name] = _arrow(column, kind, types.get(name))
            table = pa.table(arrays)
            if self._parquet is None:
                writer = load_parquet().ParquetWriter(self._file, table.schema)
                self._parquet = self._stack.enter_context(writer)
            self._parquet.write_table(table)
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
            raise EventError(
                f"these records do not fit one Parquet table: {error}; write JSON lines instead"
            ) from None


class _TextBuffer(list[str]):
    """Text that a writer of CSV makes, in pieces."""

    write = list[str].append


def _cell(value: Any) -> str:
    """Return a value as a text of CSV, from which it can be read again."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return str(value) if isinstance(value, int | Number) else _json_cell(value)


def _json_cell(value: Any) -> str:
    text = ENCODER.encode(value).decode()
    return str(json.loads(text)) if text.startswith('"') else text


def _arrow(column: Any, kind: AttributeType | None, dtype: Any) -> Any:
    """Convert a column to an Arrow array, and messages to binary.

    Args:
        column: column of a block.
        kind: type of its attribute; None if the schema does not have it.
        dtype: Arrow type; None for the first block.

    Raises:
        ValueError: a value does not fit the type.
    """
    import pyarrow as pa

    from ccbps.arrow import binary_column

    if isinstance(column, np.ndarray) and column.ndim == 2:
        return binary_column(column)
    if not isinstance(column, list):
        array = pa.array(column)
        return array if dtype is None else array.cast(dtype)
    if isinstance(kind, UInt | Int):
        dtype = pa.uint64() if isinstance(kind, UInt) and kind.width == 64 else pa.int64()
        if not {*map(type, column)} <= {int, type(None)}:
            column = [None if value is None else int(Number(value)) for value in column]
    elif isinstance(kind, Decimal):
        scale = max(0, *(-int(n.as_tuple().exponent) for n in (kind.low, kind.step)))
        dtype = pa.decimal128(38, scale)
        column = [None if value is None else Number(value) for value in column]
    elif isinstance(kind, Bool):
        dtype = pa.bool_()
    elif dtype is None and any(isinstance(value, Number) for value in column):
        dtype = None if any(map(_is_long, column)) else pa.float64()
    elif kind is None and dtype == pa.int64() and any(isinstance(v, Number) for v in column):
        raise ValueError("a fraction among whole numbers")
    if kind is None and dtype == pa.float64():
        if any(map(_is_long, column)):
            raise ValueError("a number has more digits than a float64")
        column = [float(value) if isinstance(value, Number) else value for value in column]
    array = pa.array(column, dtype)
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array


def _is_long(value: Any) -> bool:
    """Tell whether a number has digits that a float64 would lose."""
    if not isinstance(value, Number | int):
        return False
    return Number(repr(float(value))) != value
