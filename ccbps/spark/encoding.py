"""Encoders: attributes or predicates in, one-time messages out.

Each row names the pair it is for and its round. A pair's seed comes from the key source by label:
derived from a publisher's master, or one of a subscriber's ring. One event and one predicate may
use a (pair, round), once. Duplicates within a DataFrame are found before anything is encoded;
rounds used by earlier jobs are the caller's to remember (a sequence number that never goes back
will do).

Hazard: columns that are neither attributes nor predicates pass through in the clear.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.matching.branching import BranchingMatch
from ccbps.spark.arrow import binary_column, integers, is_valid, strings
from ccbps.spark.keysource import KeySource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["check_key", "check_rounds", "encode_events", "encode_interests", "ordered"]


def encode_events(
    df: DataFrame,
    matcher: BranchingMatch,
    key: KeySource,
    *,
    pair: str = "subscription",
    round: str = "round",
    output: str = "event_message",
) -> DataFrame:
    """Encode events: one row for each event and subscription it is meant for.

    Args:
        df: has the schema's attributes, `pair` and `round`.
        matcher: public.
        key: where the workers find the publisher's master seed.
        pair: column with the label of the pair.
        round: column with the round, a whole number.
        output: name of the message column.

    Returns:
        `df` without the attributes, with a binary message column; NULL where pair or round is.

    Raises:
        ParameterError: a column is missing.
        RandomnessReuseError: a (pair, round) occurs twice. Runs one job to find out.
        EventError (when the result is computed): a record does not fit the schema.
    """
    check_key(key)
    check_rounds(df, pair, round, [*matcher.schema])

    @F.arrow_udf("binary")
    def encode(row: pa.Array) -> pa.Array:
        pairs, rounds, *attributes = row.flatten()
        valid, order, label, number = ordered(pairs, rounds)
        records = pa.RecordBatch.from_arrays(
            [column.filter(pa.array(valid)) for column in attributes], names=list(matcher.schema)
        )
        events = matcher.schema.encode(records).take(order)
        messages = np.empty((len(order), matcher.event_bytes), dtype=np.uint8)
        messages[order] = matcher.publisher(key.load()).encode(events, number, pairs=label)
        return binary_column(messages, valid)

    columns = [pair, round, *matcher.schema]
    message = encode(F.struct(*[F.col(f"`{name}`") for name in columns])).alias(output)
    kept = [F.col(f"`{name}`") for name in df.columns if name not in matcher.schema]
    return df.select(*kept, message)


def encode_interests(
    df: DataFrame,
    matcher: BranchingMatch,
    key: KeySource,
    *,
    pair: str = "subscription",
    round: str = "round",
    predicate: str = "predicate",
    constants: Mapping[str, str] | None = None,
    output: str = "interest_message",
) -> DataFrame:
    """Encode subscriptions: one row for each subscription and round.

    Args:
        df: has `pair`, `round` and the predicate's columns.
        matcher: public.
        key: where the workers find the subscribers' seeds (or the master they come from).
        pair: column with the label of the pair.
        round: column with the round, a whole number.
        predicate: column with SQL text, for a box matcher.
        constants: for a template matcher, the column of each private constant; by default the
            columns are named like the constants.
        output: name of the message column.

    Returns:
        `df` without the predicate's columns, with a binary message column; NULL where one of
        pair, round, predicate and constants is.

    Raises:
        ParameterError: a column is missing.
        RandomnessReuseError: a (pair, round) occurs twice. Runs one job to find out.
        PredicateError (when the result is computed): a predicate cannot be used.
    """
    check_key(key)
    template = matcher.template
    if template is None:
        sources = {predicate: predicate}
    else:
        sources = {name: (constants or {}).get(name, name) for name in template.private_names}
    secret = list(sources.values())
    check_rounds(df, pair, round, secret)

    @F.arrow_udf("binary")
    def encode(row: pa.Array) -> pa.Array:
        pairs, rounds, *given = row.flatten()
        valid, order, label, number = ordered(pairs, rounds, *given)
        chosen = [column.filter(pa.array(valid)) for column in given]
        if template is None:
            interests: DictionaryColumn[Any] = strings(chosen[0])
        else:
            interests = _bindings(list(sources), chosen, int(valid.sum()))
        interests = DictionaryColumn(interests.values, interests.index[order])
        messages = np.empty((len(order), matcher.interest_bytes), dtype=np.uint8)
        messages[order] = matcher.subscriber(key.load()).encode(interests, number, pairs=label)
        return binary_column(messages, valid)

    columns = [pair, round, *secret]
    message = encode(F.struct(*[F.col(f"`{name}`") for name in columns])).alias(output)
    kept = [F.col(f"`{name}`") for name in df.columns if name not in secret]
    return df.select(*kept, message)


def check_key(key: KeySource) -> None:
    """A key source, and not a key."""
    if not isinstance(key, KeySource):
        raise ParameterError(
            f"key must be a KeySource such as EnvKey('NAME') or FileKey('path'), got "
            f"{type(key).__name__}; a key itself must not enter a Spark plan"
        )


def check_rounds(df: DataFrame, pair: str, round: str, columns: list[str]) -> None:
    """Refuse a DataFrame that lacks a column or would use a (pair, round) twice."""
    missing = [name for name in [pair, round, *columns] if name not in df.columns]
    if missing:
        raise ParameterError(
            f"column {missing[0]!r} is missing; the DataFrame has {', '.join(df.columns)}"
        )
    if df.isStreaming:
        raise ParameterError(
            "rounds of a streaming DataFrame cannot be checked: call this in foreachBatch"
        )
    counts = df.groupBy(F.col(f"`{pair}`").alias("pair"), F.col(f"`{round}`").alias("round"))
    twice = counts.count().where("`count` > 1 AND pair IS NOT NULL AND round IS NOT NULL")
    found = twice.limit(1).collect()
    if found:
        raise RandomnessReuseError(
            f"pair {found[0]['pair']!r}: round {found[0]['round']} occurs {found[0]['count']} "
            "times; each (pair, round) encodes one event and one predicate, once"
        )


def ordered(
    pairs: pa.Array, rounds: pa.Array, *others: pa.Array
) -> tuple[np.ndarray, np.ndarray, DictionaryColumn[str], np.ndarray]:
    """Rows without NULL, and their order by pair and round, which runs the cipher longest.

    Returns:
        valid (rows,), order (valid rows,), and pair labels and rounds in that order.
    """
    valid = is_valid(pairs, rounds, *others)
    mask = pa.array(valid)
    label, number = strings(pairs.filter(mask)), integers(rounds.filter(mask))
    order = np.lexsort((number, label.index))
    return valid, order, DictionaryColumn(label.values, label.index[order]), number[order]


def _bindings(
    names: list[str], columns: list[pa.Array], rows: int
) -> DictionaryColumn[dict[str, Any]]:
    """Values of private constants, one mapping for each distinct combination."""
    coded = [column.dictionary_encode() for column in columns]
    index = np.zeros((rows, len(coded)), dtype=np.intp)
    for i, column in enumerate(coded):
        index[:, i] = column.indices.to_numpy(zero_copy_only=False)
    distinct, place = np.unique(index, axis=0, return_inverse=True)
    values = [column.dictionary.to_pylist() for column in coded]
    mappings = [
        {name: values[i][code] for i, (name, code) in enumerate(zip(names, row, strict=True))}
        for row in distinct.tolist()
    ]
    return DictionaryColumn(mappings, place.reshape(-1).astype(np.intp))
