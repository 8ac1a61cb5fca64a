"""Answers row by row: an event and an interest in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccbps.arrays import Bools, Bytes
from ccbps.arrow import binary_rows, is_valid
from ccbps.columnar.reasons import cause_texts
from ccbps.columnar.roles import kept_role
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource, role_key
from ccbps.matching.contract.matcher import Matcher
from ccbps.wire import Cause


def examine_rows(
    matcher: Matcher, key: KeySource | None, events: pa.Array, interests: pa.Array
) -> tuple[Bools, Bools, Bytes]:
    """Return the answers of a batch, its rows without NULL, and the `Cause` of each row.

    A NULL row has no cause, and neither has a message of a user who was revoked, which matches
    nothing.
    """
    broker = kept_role(matcher, "broker", None if key is None else role_key(key))
    events, interests = _messages(events, "event"), _messages(interests, "interest")
    valid = is_valid(events, interests)
    event_rows, event_good = binary_rows(events, matcher.event_bytes)
    interest_rows, interest_good = binary_rows(interests, matcher.interest_bytes)
    answers, causes = broker.examine(event_rows, interest_rows)
    causes[~interest_good] = Cause.INTEREST_WIDTH
    causes[~event_good] = Cause.EVENT_WIDTH
    causes[~valid | (causes == Cause.USER)] = Cause.NONE
    return answers, valid, causes


def answer_column(
    examined: tuple[Bools, Bools, Bytes],
    again: Bools | None = None,
    *,
    reject: bool,
    repeated: str = "",
) -> pa.Array:
    """Return the answers of a batch as a column, NULL where there is none.

    Args:
        examined: what `examine_rows` returned.
        again: rows that have no answer since others have their ids; None if no row is such.
        reject: return a struct of `matched` and `rejected`, the reason of each row that has one.
        repeated: the reason of rows in `again`.
    """
    answers, valid, causes = examined
    again = np.zeros(len(answers), dtype=np.bool_) if again is None else again
    matched = pa.array(answers, mask=~valid | (causes != Cause.NONE) | again)
    if not reject:
        return matched
    reasons = pc.if_else(pa.array(again), repeated, cause_texts(causes))
    return pa.StructArray.from_arrays([matched, reasons], names=["matched", "rejected"])


def _messages(array: pa.Array, kind: str) -> pa.Array:
    """Return a binary column; one of SQL's untyped NULL becomes one of NULLs.

    Raises:
        ParameterError: the column is of another type.
    """
    if pa.types.is_null(array.type):
        return array.cast(pa.binary())
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    if not any(is_one(array.type) for is_one in binary):
        raise ParameterError(
            f"{kind} messages must be a binary column, got {array.type}: take the column that "
            f"encode_{kind}s made"
        )
    return array


def with_repeated(
    batches: Iterable[Sequence[pa.Array]], first: int
) -> Iterator[tuple[Sequence[pa.Array], Bools]]:
    """Yield batches, and which of their rows have the ids of other rows. Reads one batch ahead.

    Args:
        batches: of rows that come in the order of their ids, in whatever parts.
        first: the ids are the columns from here on, without NULL, of types whose values are equal
            where their bytes are.
    """
    filled = (batch for batch in batches if len(batch[0]))
    batch, before = next(filled, None), None
    while batch is not None:
        ids, after = batch[first:], next(filled, None)
        same = np.ones(len(ids[0]) - 1, dtype=np.bool_)  # as the next row
        for column in ids:
            same &= pc.equal(column[:-1], column[1:]).to_numpy(zero_copy_only=False)
        repeated = np.zeros(len(same) + 1, dtype=np.bool_)
        repeated[:-1] = same
        repeated[1:] |= same
        last = [column[-1] for column in ids]
        repeated[0] |= before == [column[0] for column in ids]
        repeated[-1] |= after is not None and last == [column[0] for column in after[first:]]
        yield batch, repeated
        batch, before = after, last
