"""Answers row by row: to an event and an interest in each row, or in each round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccbps.arrays import Bools, Bytes, Index
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
    """Match each row's event and interest.

    Args:
        matcher: the public parameters.
        key: source of the broker's key; None if the broker has none.
        events: column of event messages.
        interests: column of interest messages.

    Returns:
        The answers, the mask of rows without NULL, and the `Cause` of each row, shape (rows,). Rows
        with NULL have no cause. Messages of a revoked user match nothing, and have no cause either.

    Raises:
        ParameterError: a column is not binary.
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
        examined: result of `examine_rows`.
        again: mask of rows that have no answer, because other rows have their ids; None for none.
        reject: whether to return a struct of `matched` and `rejected`, the reason.
        repeated: the reason for the rows in `again`.
    """
    answers, valid, causes = examined
    again = np.zeros(len(answers), dtype=np.bool_) if again is None else again
    matched = pa.array(answers, mask=~valid | (causes != Cause.NONE) | again)
    if not reject:
        return matched
    reasons = pc.if_else(pa.array(again), repeated, cause_texts(causes))
    return pa.StructArray.from_arrays([matched, reasons], names=["matched", "rejected"])


def _messages(array: pa.Array, kind: str) -> pa.Array:
    """Return a binary column. A column of SQL's untyped NULL becomes one.

    Raises:
        ParameterError: the column has another type.
    """
    if pa.types.is_null(array.type):
        return array.cast(pa.binary())
    fixed = pa.types.is_fixed_size_binary(array.type)
    if not fixed and array.type not in (pa.binary(), pa.large_binary()):
        raise ParameterError(
            f"{kind} messages must be a binary column, got {array.type}: take the column that "
            f"encode_{kind}s made"
        )
    return array


def with_repeated(
    batches: Iterable[Sequence[pa.Array]], first: int
) -> Iterator[tuple[Sequence[pa.Array], Bools]]:
    """Yield batches, and the masks of their rows whose ids other rows have. Reads one batch ahead.

    Args:
        batches: columns of rows that are sorted by their ids, across batches.
        first: position of the first column of ids. They are without NULL, and have types whose
            values are equal if their bytes are.
    """
    filled = (batch for batch in batches if len(batch[0]))
    batch, before = next(filled, None), None
    while batch is not None:
        ids, after = batch[first:], next(filled, None)
        same = np.ones(len(ids[0]) - 1, dtype=np.bool_)  # equal to the next row
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


@dataclass(frozen=True, slots=True)
class RoundEvents:
    """Event messages of rounds, one for each round, to match interests with. Picklable.

    Attributes:
        matcher: the public parameters of a broadcast.
        names: columns without NULL that together name a round.
        messages: binary column, the event message of each round.
    """

    matcher: Matcher
    names: tuple[pa.Array, ...]
    messages: pa.Array

    def rows(self, names: Sequence[pa.Array]) -> Index:
        """Find the event of each named round, shape (rows,); -1 if there is none."""
        number = np.zeros(len(self.messages) + len(names[0]), dtype=np.intp)
        for own, column in zip(self.names, names, strict=True):
            both = pa.concat_arrays([own.cast(column.type), column])
            codes = both.dictionary_encode(null_encoding="encode")
            number = number * len(codes.dictionary) + codes.indices.to_numpy()
            # Numbered anew after each column, so that numbers stay small.
            number = np.unique(number, return_inverse=True)[1]
        ours, theirs = np.split(number, [len(self.messages)])
        place = np.full(number.max(initial=0) + 1, -1)
        place[ours[::-1]] = np.arange(len(ours))[::-1]  # the first event of a round stays
        return place[theirs]

    def examine(self, interests: pa.Array, names: Sequence[pa.Array]) -> tuple[Bools, Bools, Bytes]:
        """Match interests with the events of the named rounds; see `examine_rows`.

        Raises:
            ParameterError: a round has no event.
        """
        rows = self.rows(names)
        if (rows < 0).any():
            raise ParameterError(
                "the events changed while they were matched: a round has none any more; write "
                "them to a table first"
            )
        # Interests of one event together: the key schedules of its labels serve all of them.
        order = np.argsort(rows, kind="stable")
        events, chosen = self.messages.take(pa.array(rows[order])), interests.take(pa.array(order))
        answers, valid, causes = examine_rows(self.matcher, None, events, chosen)
        back = np.argsort(order)
        return answers[back], valid[back], causes[back]
