"""Encoders that write stores: the workers make messages in place, and none passes through Spark.

An event for many subscriptions, or an interest in many rounds, stands for as many pairs. If these
become rows of a DataFrame, Spark moves each message out of Python, through a shuffle and a sort,
and into Python again. That takes many times as long as making it. Here only events and predicates
move, in pieces of work for the tasks: a chunk of the subscriptions, or a span of rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ccbps.columnar.generation import SPAN_BITS, event_blocks, interest_blocks
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers
from ccbps.spark.columns import quoted
from ccbps.spark.encoding import check_rounds, checked_labels, interest_sources
from ccbps.spark.frames import (
    check_key,
    check_partitions,
    is_connect,
    refuse_floats,
    refuse_quoting,
    require,
)
from ccbps.spark.stability import refuse_unstable
from ccbps.spark.stores import StorePath, check_mode, check_pairs, save_parts

_CONNECT_TASKS: Final = 16
"""Number of tasks where Spark does not tell how many run at a time."""


def write_events(
    df: DataFrame,
    path: StorePath,
    matcher: Matcher,
    key: KeySource,
    *,
    labels: Sequence[str],
    round: str = "round",
    mode: Literal["error", "overwrite", "append"] = "error",
    batch: tuple[str, int] | None = None,
    partitions: int | None = None,
) -> None:
    """Encode each event for all subscriptions, and write the messages as a store.

    The store is that of `encode_events` and `write_messages`, for events that are crossed with
    subscriptions. It takes a fraction of the time, since messages are made where they are written.
    This runs one job.

    Example:
        .. code-block:: python

            listed = quotes.where("subscription = 'alice'").drop("subscription")
            cs.write_events(listed, "/data/listed", matcher, key, labels=["alice", "bob"])

    Args:
        df: the events, with the schema's attributes and a round. Other columns are not used.
        path: folder, or its URI, which driver and workers must see under the same path.
        matcher: the matcher; public. It has messages of pairs (`Answers.PAIRS`).
        key: source of the publisher's master seed for the workers.
        labels: subscriptions that events are encoded for: labels of the pairs, up to 32 MiB.
        round: column with the round, a whole number, different for each event.
        mode: treatment of a store that is there; see `write_messages`.
        batch: name of a stream and number of its batch; see `write_messages`.
        partitions: number of tasks, and of files at most; by default the session's parallelism.

    Raises:
        ParameterError: a column is missing or of the wrong type, or `labels` are no names; the
            matcher is of another kind; `round` comes from rand() or the like; or as
            `write_messages` does.
        RandomnessReuseError: with "append", as `write_messages` does; or (as the cause of Spark's
            error) two events have one round.
        EventError: (as the cause of Spark's error) an event does not fit the schema. The error
            names it by its round.
    """
    check_mode(mode, batch)
    check_pairs(matcher)
    check_key(key)
    if matcher.answers is not Answers.PAIRS:
        raise ParameterError(
            f"an event of {type(matcher).__name__} serves all subscriptions of its round, and is "
            "encoded once: take encode_events and write_messages"
        )
    attributes, own = list(matcher.schema), checked_labels(labels)
    if round in attributes:
        raise ParameterError(f"round={round!r} is also an attribute; use another column for round=")
    require(df, attributes, whole=[round], rest=False)
    refuse_floats(df, attributes)
    refuse_unstable(df, round, "round")
    tasks = _tasks(df, partitions)
    chunks = min(tasks, len(own))
    rows = df.selectExpr(
        f"explode(sequence(0, {chunks - 1})) AS chunk",
        f"CAST({quoted(round)} AS long) AS round",
        *[f"{quoted(name)} AS a{place}" for place, name in enumerate(attributes)],
    )
    # Cells of one span go to different tasks, and so do cells of one chunk.
    span = f"shiftright(coalesce(`round`, 0L), {SPAN_BITS})"
    task = F.expr(f"CAST(pmod(chunk + {span} * {chunks}, {tasks}) AS int)")
    cells = rows.repartitionById(tasks, task).sortWithinPartitions("chunk", "round")

    def contents(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.Array]]:
        return event_blocks(matcher, key, batches, own, chunks)

    save_parts(cells, path, matcher, "event", mode, batch, contents)


def write_interests(
    df: DataFrame,
    path: StorePath,
    matcher: Matcher,
    key: KeySource,
    *,
    rounds: range,
    subscription: str = "subscription",
    predicate: str | None = None,
    constants: Mapping[str, str] | None = None,
    double_quoted_strings: bool = False,
    mode: Literal["error", "overwrite", "append"] = "error",
    partitions: int | None = None,
) -> None:
    """Encode each subscription for a range of rounds, and write the messages as a store.

    The store is that of `encode_interests` with `rounds` and `write_messages`. It takes a fraction
    of the time, since messages are made where they are written. This runs one job.

    Example:
        .. code-block:: python

            hopes = wanted.select("subscription", "predicate").distinct()
            cs.write_interests(hopes, "/data/hopes", matcher, key, rounds=range(1000))

    Args:
        df: the subscriptions, with the columns that the arguments name, each subscription once.
        path: folder, or its URI, which driver and workers must see under the same path.
        matcher: the matcher; public. It has rounds.
        key: source of the subscribers' seeds (or of the master they come from) for the workers.
        rounds: rounds to encode each subscription for, none of which an earlier job has used.
        subscription: string column with the label of the pair.
        predicate: column with SQL text, where an interest is a predicate; None for "predicate".
        constants: names of the columns that hold the matcher's `private_names`; by default, columns
            of the same names.
        double_quoted_strings: True to read text in double quotes as a string, as Spark does.
        mode: treatment of a store that is there; see `write_messages`.
        partitions: number of tasks, and of files at most; by default the session's parallelism.

    Raises:
        ParameterError: a column is missing or of the wrong type, or does not apply; the matcher is
            of another kind; `subscription` comes from rand() or the like; or as `write_messages`
            does. Or (as the cause of Spark's error) a value is NULL.
        RandomnessReuseError: with "append", as `write_messages` does; or (as the cause of Spark's
            error) a subscription occurs twice.
        PredicateError: (as the cause of Spark's error) a predicate cannot be used. The error names
            its subscription, and shows no name or constant of the predicate but the schema's own
            names.
    """
    check_mode(mode)
    check_pairs(matcher)
    check_key(key)
    check_rounds(rounds)
    private = interest_sources(matcher, predicate, constants)
    refuse_quoting(matcher, double_quoted_strings)
    if subscription in private:
        raise ParameterError(
            f"subscription={subscription!r} is also a column to be encoded; use another column"
        )
    texts = [subscription] + private * (matcher.private_names is None)
    require(df, private, text=texts, rest=False)
    refuse_floats(df, private)
    refuse_unstable(df, subscription, "subscription")
    tasks = _tasks(df, partitions)
    rows = df.selectExpr(
        f"{quoted(subscription)} AS label",
        f"explode(sequence({rounds.start}L, {rounds.stop - 1}L, {1 << SPAN_BITS}L)) AS first",
        *[f"{quoted(name)} AS c{place}" for place, name in enumerate(private)],
    )
    place = f"CAST(hash(label) AS long) + shiftright(`first`, {SPAN_BITS})"
    task = F.expr(f"CAST(pmod({place}, {tasks}) AS int)")
    spans = rows.repartitionById(tasks, task).sortWithinPartitions("label", "first")
    stop = rounds.stop

    def contents(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.Array]]:
        return interest_blocks(
            matcher, key, batches, stop, double_quoted_strings=double_quoted_strings
        )

    save_parts(spans, path, matcher, "interest", mode, None, contents)


def _tasks(df: DataFrame, partitions: int | None) -> int:
    """Return the number of tasks: as many as run at a time, unless told."""
    partitions = check_partitions(partitions)
    if partitions is not None:
        return partitions
    spark = df.sparkSession
    return _CONNECT_TASKS if is_connect(df) else int(spark.sparkContext.defaultParallelism)
