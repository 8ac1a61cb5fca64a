"""Why rows cannot be used, in an encoder or at a broker, in words that show no value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ccbps.arrays import Bools
from ccbps.arrow import is_valid, row_name
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import DecodeError, EventError, PredicateError
from ccbps.keys.seeds import EpochSeed, SeedRing, SharedSeed
from ccbps.matching.contract.scheme import Scheme
from ccbps.predicates import Events, Schema
from ccbps.wire import Cause

Reasons = NDArray[np.object_]
"""For each row, why it is set aside, in words; None where it is not."""


SET_ASIDE: Final = "match and match_messages set such rows aside with on_error='reject'"


def refuse(
    causes: NDArray[np.uint8],
    names: Sequence[str],
    ids: Sequence[pa.Array],
    advice: str = SET_ASIDE,
) -> None:
    """Raise one `DecodeError` that names the first refused row by its columns, if there is any."""
    texts = {row: Cause(causes[row]).text for row in np.flatnonzero(causes).tolist()}
    refuse_rows(texts, names, ids, advice)


def named(error: EventError, names: Sequence[str], ids: Sequence[pa.Array]) -> EventError:
    """Return the error with the row's columns `names` in front; as it is, where there are none."""
    row = row_name(names, ids[: len(names)], error.row or 0)
    return EventError(f"{row}: {error}", attribute=error.attribute) if names else error


def refuse_rows(
    problems: Mapping[int, str], names: Sequence[str], ids: Sequence[pa.Array], advice: str
) -> None:
    """Raise one `DecodeError` for rows with what is wrong in words; see `refuse`."""
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


def cause_texts(causes: NDArray[np.uint8]) -> pa.Array:
    """Return `Cause`s in words, NULL where there is none."""
    texts = pa.array([cause.text or None for cause in Cause], type=pa.string())
    return texts.take(pa.array(causes))


def no_reasons(rows: int) -> Reasons:
    """Return reasons of rows none of which is set aside."""
    return np.full(rows, None, dtype=np.object_)


def usable(reasons: Reasons) -> Bools:
    """Return which rows are not set aside."""
    out: Bools = pa.array(reasons, pa.string()).is_null().to_numpy(zero_copy_only=False)
    return out


def examine_events(schema: Schema, records: pa.RecordBatch) -> tuple[Events, Reasons]:
    """Return events of the records that fit the schema, in order; and why the others do not."""
    reasons, codes = no_reasons(records.num_rows), {}
    for name in schema:
        codes[name], problems = schema[name].examine(records.column(name), attribute=name)
        for mask, reason in problems:
            reasons[mask & usable(reasons)] = f"attribute {name!r}: {reason}"
    return Events(schema, records.num_rows, codes).take(usable(reasons)), reasons


def readable(
    ids: Sequence[str],
    columns: Sequence[pa.Array],
    *,
    reject: bool,
    others: Sequence[str] = (),
    numbers: Sequence[int] = (),
    seed: SharedSeed | SeedRing | None = None,
) -> tuple[Bools, Reasons]:
    """Return the rows that have what they need, and why the others are set aside.

    Without `reject`, rows with a NULL are left out for no reason.

    Args:
        ids: names of the first columns, for reasons.
        others: what the other columns are, for reasons, such as "the payload".
        numbers: which of the columns hold numbers that must not be negative.
        seed: has seeds of the pairs in the first column, if that is none of them.
    """
    reasons = no_reasons(len(columns[0]))
    if not reject:
        return is_valid(*columns), reasons
    called = [*(f"column {name!r}" for name in ids), *others]
    for place, (name, column) in enumerate(zip(called, columns, strict=True)):
        problems = {"NULL": column.is_null()}
        if place in numbers:
            problems["negative"] = pc.less(column, 0)
        elif not place and isinstance(seed, SeedRing | EpochSeed):
            known = [one for one in column.unique().to_pylist() if one in seed]
            there = pc.is_in(column, pa.array(known, pa.string()))
            problems["of a pair for which the key has no seed"] = pc.invert(there)
        for what, rows in problems.items():
            mask = rows.fill_null(False).to_numpy(zero_copy_only=False)
            if mask.any():
                reasons[mask & usable(reasons)] = f"{name} is {what}"
    return usable(reasons), reasons


def examine_interests(matcher: Scheme, interests: DictionaryColumn[Any]) -> Reasons:
    """Return why interests cannot be encoded; each distinct one is looked at once."""
    reasons = no_reasons(len(interests.values))
    for place, interest in enumerate(interests.values):
        try:
            matcher.prepare(interest)
        except PredicateError as error:
            reasons[place] = error.summary
    return reasons[interests.index]


def with_reasons(column: pa.Array, reasons: Reasons | None, name: str = "message") -> pa.Array:
    """Return a function's answer, with the reasons of all rows if it sets rows aside."""
    if reasons is None:
        return column
    return pa.StructArray.from_arrays(
        [column, pa.array(reasons, pa.string())], names=[name, "rejected"]
    )
