"""Rows of Arrow batches made k-anonymous, in pieces of a bounded size.

Each piece is a release of its own, so its classes have k rows of the piece. A row that has the same
ranges in another piece makes a class larger, and never smaller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ccbps.anonymity import Anonymizer
from ccbps.anonymity.partition import extremes, renumbered
from ccbps.anonymity.releases import HIGH, LOW


def anonymous_rows(
    anonymizer: Anonymizer,
    kept: Sequence[str],
    piece: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that may be published, with ranges in place of identifying values.

    Args:
        anonymizer: the way classes are made.
        kept: names of the columns that stay as they are.
        piece: number of rows of a piece, at least k; the last piece has up to twice as many.
        batches: columns with the schema's attributes and those of `kept`.

    Raises:
        EventError: a row does not fit the schema.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= 2 * piece:
            table = pa.Table.from_batches(waiting)
            at = 0
            while rows - at >= 2 * piece:
                yield from _piece(anonymizer, kept, table.slice(at, piece))
                at += piece
            waiting, rows = table.slice(at).to_batches(), rows - at
    if rows:
        yield from _piece(anonymizer, kept, pa.Table.from_batches(waiting))


def _piece(
    anonymizer: Anonymizer, kept: Sequence[str], table: pa.Table
) -> Iterator[pa.RecordBatch]:
    schema = anonymizer.schema
    events = schema.encode(table.select(list(schema)))
    classes = anonymizer.classes(events)
    places = np.flatnonzero(classes >= 0)
    numbers = renumbered(classes)[places]
    columns: dict[str, pa.ChunkedArray] = {}
    for name in schema:
        own = table.column(name)
        if name not in anonymizer.identifying:
            columns[name] = own.take(pa.array(places))
            continue
        codes = events.codes[name][0][places]
        for end, greatest in ((LOW, False), (HIGH, True)):
            # A bound is the value of a row of the class, so no code has to be read back.
            bounds = places[extremes(numbers, codes, greatest=greatest)]
            columns[name + end] = own.take(pa.array(bounds[numbers]))
    for name in kept:
        columns[name] = table.column(name).take(pa.array(places))
    yield from pa.table(columns).combine_chunks().to_batches()
