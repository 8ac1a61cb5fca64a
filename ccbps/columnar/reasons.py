"""Reasons for setting rows aside, at an encoder or a broker, in words that show no value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ccbps.arrays import Bools, Index
from ccbps.arrow import chosen, is_valid, row_name
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import DecodeError, EventError, PredicateError
from ccbps.keys.seeds import EpochSeed, SeedRing, SharedSeed
from ccbps.matching.contract.scheme import Scheme
from ccbps.predicates import Events, Schema
from ccbps.wire import Cause

Reasons = NDArray[np.object_]
"""Reason for setting a row aside, in words, or None, for each row."""

SET_ASIDE: Final = "match and match_messages set such rows aside with on_error='reject'"


def refuse(
    causes: NDArray[np.uint8],
    names: Sequence[str],
    ids: Sequence[pa.Array],
    advice: str = SET_ASIDE,
) -> None:
    """Raise one `DecodeError` if a row has a `Cause`; see `refuse_rows`."""
    texts = {row: Cause(causes[row]).text for row in np.flatnonzero(causes).tolist()}
    refuse_rows(texts, names, ids, advice)


def refuse_rows(
    problems: Mapping[int, str], names: Sequence[str], ids: Sequence[pa.Array], advice: str
) -> None:
    """Raise one `DecodeError` that names the first refused row by its columns.

    Args:
        problems: reasons by row; nothing is raised if there are none.
        names: names of the columns `ids`.
        ids: public columns that tell rows apart.
        advice: end of the message.
    """
    if not problems:
        return
    rows = sorted(problems)
    where = row_name(names, ids, rows[0]) or f"row {rows[0]} of the batch"
    more = f" (and {len(rows) - 1} more rows in this batch)" if len(rows) > 1 else ""
    raise DecodeError(
        f"{where}: {problems[rows[0]]}{more}; {advice}",
        rows=tuple(rows),
        causes=tuple(problems[row] for row in rows),
    )


def named(error: EventError, names: Sequence[str], ids: Sequence[pa.Array]) -> EventError:
    """Return an error whose message begins with the row's columns `names`, if there are any."""
    row = row_name(names, ids[: len(names)], error.row or 0)
    return EventError(f"{row}: {error}", attribute=error.attribute) if names else error


def cause_texts(causes: NDArray[np.uint8]) -> pa.Array:
    """Return `Cause`s in words, NULL where there is none."""
    texts = pa.array([cause.text or None for cause in Cause], type=pa.string())
    return texts.take(pa.array(causes))


def no_reasons(rows: int) -> Reasons:
    """Return reasons that set no row aside, shape (rows,)."""
    return np.full(rows, None, dtype=np.object_)


def usable(reasons: Reasons) -> Bools:
    """Mark the rows that are not set aside, shape (rows,)."""
    out: Bools = pa.array(reasons, pa.string()).is_null().to_numpy(zero_copy_only=False)
    return out


def readable(
    ids: Sequence[str],
    columns: Sequence[pa.Array],
    *,
    reject: bool,
    others: Sequence[str] = (),
    numbers: Sequence[int] = (),
    seed: SharedSeed | SeedRing | None = None,
) -> tuple[Bools, Reasons]:
    """Return the mask of rows that can be read, and the reasons of the others.

    Without `reject`, rows with a NULL are left out without a reason.

    Args:
        ids: names of the first columns, for reasons.
        columns: columns of the batch.
        reject: whether rows that cannot be read get a reason.
        others: descriptions of the other columns, for reasons, such as "the payload".
        numbers: positions of columns whose numbers must not be negative.
        seed: seeds of the pairs in the first column; None if it holds no pairs.
    """
    reasons = no_reasons(len(columns[0]))
    if not reject:
        return is_valid(*columns), reasons
    titles = [*(f"column {name!r}" for name in ids), *others]
    for place, (title, column) in enumerate(zip(titles, columns, strict=True)):
        problems = {"NULL": column.is_null()}
        if place in numbers:
            problems["negative"] = pc.less(column, 0)
        elif not place and isinstance(seed, SeedRing | EpochSeed):
            pairs = [pair for pair in column.unique().to_pylist() if pair in seed]
            has_seed = pc.is_in(column, pa.array(pairs, pa.string()))
            problems["of a pair for which the key has no seed"] = pc.invert(has_seed)
        for problem, rows in problems.items():
            mask = rows.fill_null(False).to_numpy(zero_copy_only=False)
            if mask.any():
                reasons[mask & usable(reasons)] = f"{title} is {problem}"
    return usable(reasons), reasons


class Batch:
    """Usable rows of a batch, and the reasons of the others.

    Args:
        columns: columns of the batch.
        public: number of the first columns that may name rows in errors.
        valid: mask of the usable rows.
        reasons: reasons of the others.

    Attributes:
        rows: positions of the usable rows in the batch, shape (usable rows,).
        public: the public columns of the usable rows.
        values: the other columns of the rows that were usable at first.
    """

    def __init__(
        self, columns: Sequence[pa.Array], public: int, valid: Bools, reasons: Reasons
    ) -> None:
        self.rows: Index = np.flatnonzero(valid)
        self._reasons = reasons
        columns = chosen(valid, *columns)
        self.public, self.values = columns[:public], columns[public:]

    def set_aside(self, reasons: Reasons) -> Bools:
        """Set aside the usable rows that have a reason, and return the mask of the others."""
        good = usable(reasons)
        self._reasons[self.rows] = reasons
        self.rows, self.public = self.rows[good], chosen(good, *self.public)
        return good

    def encode(self, schema: Schema, ids: Sequence[str], *, reject: bool) -> Events:
        """Encode the values as events. With `reject`, set aside the rows that do not fit.

        Raises:
            EventError: a row does not fit the schema, and is not set aside; names it by its ids.
        """
        records = pa.RecordBatch.from_arrays(self.values, names=list(schema))
        try:
            return schema.encode(records)
        except EventError as error:
            if not reject:
                raise named(error, ids, self.public) from None
        reasons, codes = no_reasons(records.num_rows), {}
        for name in schema:
            codes[name], problems = schema[name].examine(records.column(name), attribute=name)
            for mask, reason in problems:
                reasons[mask & usable(reasons)] = f"attribute {name!r}: {reason}"
        return Events(schema, records.num_rows, codes).take(self.set_aside(reasons))

    @property
    def valid(self) -> Bools:
        """Mask of the usable rows, shape (rows of the batch,)."""
        mask = np.zeros(len(self._reasons), dtype=np.bool_)
        mask[self.rows] = True
        return mask

    def answer(self, column: pa.Array, name: str = "message", *, reject: bool) -> pa.Array:
        """Return a column of the whole batch; with `reject`, a struct with all reasons."""
        return with_reasons(column, self._reasons if reject else None, name)


def examine_interests(matcher: Scheme, interests: DictionaryColumn[Any]) -> Reasons:
    """Return the reasons why interests cannot be encoded. Examine each distinct one once."""
    reasons = no_reasons(len(interests.values))
    for place, interest in enumerate(interests.values):
        try:
            matcher.prepare(interest)
        except PredicateError as error:
            reasons[place] = error.summary
    return reasons[interests.index]


def with_reasons(column: pa.Array, reasons: Reasons | None, name: str = "message") -> pa.Array:
    """Return a column or, if there are reasons, a struct of the column and ``rejected``."""
    if reasons is None:
        return column
    return pa.StructArray.from_arrays(
        [column, pa.array(reasons, pa.string())], names=[name, "rejected"]
    )
