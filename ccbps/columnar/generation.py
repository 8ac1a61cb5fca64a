"""Messages made where they are written: events of many subscriptions, interests of many rounds.

A row of a DataFrame stands for many pairs, which never exist as rows of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ccbps.arrays import Index
from ccbps.arrow import binary_column, integers, is_valid, row_name, strings
from ccbps.columnar.encoding import bindings
from ccbps.columnar.reasons import named
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import EventError, ParameterError, PredicateError, RandomnessReuseError
from ccbps.keys.sources import KeySource, seeds
from ccbps.matching.contract.matcher import Matcher
from ccbps.predicates.syntax import single_quoted

SPAN_BITS: Final = 16
"""Binary logarithm of the number of rounds that stay together."""
PAIRS: Final = 1 << 16
"""Largest number of pairs that are encoded together."""
_BLOCK_BYTES: Final = 8 << 20
"""Largest size of the messages that are encoded together, unless one is larger (bytes)."""

Columns = list[pa.Array]
"""Rounds, messages and subscriptions, in order, for a part of a store."""


def event_blocks(
    matcher: Matcher,
    key: KeySource,
    batches: Iterable[pa.RecordBatch],
    labels: Sequence[str],
    chunks: int,
) -> Iterator[Columns]:
    """Encode events, each for all subscriptions of its chunk.

    Args:
        matcher: the public parameters.
        key: source of the publisher's seeds.
        batches: columns: the chunk, the round and the schema's attributes. Rows are sorted by
            chunk, span of rounds and round, and no two tasks have rows of one chunk and span.
        labels: all subscriptions; chunk c has every `chunks`-th from c on.
        chunks: number of chunks.

    Raises:
        EventError: an event does not fit the schema; names it by its round.
        ParameterError: a round is NULL or negative.
        RandomnessReuseError: a round occurs twice.
    """
    for cell in _cells(batches):
        rounds = integers(cell.column(1))
        again = np.diff(rounds, prepend=-1) == 0
        if again.any():
            raise RandomnessReuseError(
                f"round={rounds[again][0]} occurs more than once: each round is for one event, once"
            )
        record = pa.RecordBatch.from_arrays(cell.columns[2:], names=[*matcher.schema])
        try:
            events = matcher.schema.encode(record)
        except EventError as error:
            raise named(error, ["round"], [cell.column(1)]) from None
        own = list(labels[cell.column(0)[0].as_py() :: chunks])
        names = pa.array(own, pa.string())
        for at in _places(len(own) * len(rounds), matcher.event_bytes):
            pair, row = np.divmod(at, len(rounds))
            number, pairs = rounds[row], DictionaryColumn(own, pair)
            made = matcher.publisher(seeds(key)).encode(events.take(row), number, pairs=pairs)
            yield [pa.array(number), binary_column(made), names.take(pa.array(pair))]


def _places(total: int, width: int) -> Iterator[Index]:
    """Yield the numbers below `total`, as many at a time as messages are encoded together."""
    step = max(1, min(PAIRS, _BLOCK_BYTES // width))
    return (np.arange(low, min(low + step, total)) for low in range(0, total, step))


def _cells(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put rows of one chunk and span of rounds together."""
    waiting, before = list[pa.RecordBatch](), (-1, -1)
    for batch in batches:
        if not batch.num_rows:
            continue
        if not is_valid(batch.column(1)).all():
            raise ParameterError("a round is NULL; leave such rows out")
        chunk, rounds = (integers(column) for column in batch.columns[:2])
        if rounds.min() < 0:
            raise ParameterError(f"round={rounds.min()} is negative")
        span = rounds >> SPAN_BITS
        cuts = np.flatnonzero((np.diff(chunk) != 0) | (np.diff(span) != 0)) + 1
        for start, stop in pairwise([0, *cuts.tolist(), batch.num_rows]):
            here = int(chunk[start]), int(span[start])
            if here != before and waiting:
                yield pa.concat_batches(waiting)
                waiting = []
            before = here
            waiting.append(batch.slice(start, stop - start))
    if waiting:
        yield pa.concat_batches(waiting)


def interest_blocks(
    matcher: Matcher,
    key: KeySource,
    batches: Iterable[pa.RecordBatch],
    stop: int,
    *,
    double_quoted_strings: bool,
) -> Iterator[Columns]:
    """Encode interests, each for a span of rounds.

    Args:
        matcher: the public parameters.
        key: source of the subscribers' seeds.
        batches: columns: the subscription, the first round of the span, and the predicate or the
            matcher's `private_names`. Rows are sorted by subscription and round, and no two tasks
            have rows of one subscription and span.
        stop: round behind the last one.
        double_quoted_strings: read text in double quotes as strings; see `Schema.parse`.

    Raises:
        ParameterError: a column is NULL.
        PredicateError: an interest cannot be encoded; names its subscription, and shows no name or
            constant of it but the schema's own names.
        RandomnessReuseError: a subscription occurs twice.
    """
    private, before = matcher.private_names, ("", -1)
    titles = ["the subscription", "round", "the predicate"]
    if private is not None:
        titles[2:] = [f"constant {name!r}" for name in private]
    for batch in batches:
        for title, column in zip(titles, batch.columns, strict=True):
            if column.null_count:
                raise ParameterError(f"{title} is NULL; leave such rows out")
        if not batch.num_rows:
            continue
        names = batch.column(0)
        label, first = strings(names), integers(batch.column(1))
        again = np.append(False, (np.diff(label.index) == 0) & (np.diff(first) == 0))
        again[0] = before == (names[0].as_py(), int(first[0]))
        if again.any():
            raise RandomnessReuseError(
                f"subscription={names[int(again.argmax())].as_py()!r} occurs more than once: each "
                "pair and round encodes one predicate, once"
            )
        before = names[-1].as_py(), int(first[-1])
        interests = _interests(private, batch.columns[2:], double_quoted_strings)
        counts = np.minimum(first + (1 << SPAN_BITS), stop) - first
        ends = np.cumsum(counts)
        for at in _places(int(counts.sum()), matcher.interest_bytes):
            row = np.searchsorted(ends, at, side="right")
            number = first[row] + at - (ends - counts)[row]
            pairs = DictionaryColumn(label.values, label.index[row])
            some = DictionaryColumn(interests.values, interests.index[row])
            try:
                made = matcher.subscriber(seeds(key)).encode(some, number, pairs=pairs)
            except PredicateError as error:
                where = row_name(["subscription"], [names], int(row[error.row or 0]))
                raise type(error)(f"{where}: {error.summary}") from None
            yield [pa.array(number), binary_column(made), names.take(pa.array(row))]


def _interests(
    private: Sequence[str] | None, columns: Sequence[pa.Array], double_quoted_strings: bool
) -> DictionaryColumn[Any]:
    if private is not None:
        return bindings(private, columns, len(columns[0]))
    texts = strings(columns[0])
    if double_quoted_strings:
        return DictionaryColumn([single_quoted(text) for text in texts.values], texts.index)
    return texts
