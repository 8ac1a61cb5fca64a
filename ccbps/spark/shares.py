"""Three brokers as three applications of Spark, one for each operator.

Each application has the columns for its own broker. Its tasks meet the tasks of equal number of the
other two over TLS, and match together with them. All tasks of a stage must run at once for that, so
it is a barrier stage: where one task fails, Spark runs all again. The other two applications see
their connections end, and their stages run again, too. Twins then meet anew, with fresh masks.
No stage ends before all tasks of all three have made their rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ccbps.checks import instance, number, octets, text, whole
from ccbps.columnar.shares import MESSAGE, SIDE, ShareMatching
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.shares.clients import HEAD_BYTES
from ccbps.shares.operators import Operator
from ccbps.shares.replicated import PARTIES
from ccbps.spark.columns import column, map_batches
from ccbps.spark.encoding import broker_columns
from ccbps.spark.frames import (
    PLAN_BYTES,
    check_answers,
    check_key,
    check_on_error,
    check_partitions,
    is_connect,
    refuse_alike,
    refuse_rejected,
    require,
)
from ccbps.spark.source import stored_rows
from ccbps.spark.stores import Stores, indexes
from ccbps.store.index import StoreKind

_TASK: Final = "__ccbps_task"
_ORDER: Final = "__ccbps_order"


def match_shares(
    events: DataFrame | Stores,
    interests: DataFrame | Stores,
    matcher: Matcher,
    key: KeySource,
    *,
    party: int,
    operators: Sequence[Operator],
    hellos: Sequence[bytes],
    job: str,
    subscription: str = "subscription",
    message: str | None = None,
    partitions: int | None = None,
    host: str = "127.0.0.1",
    seconds: float = 600,
    on_error: Literal["raise", "reject", "drop"] = "raise",
) -> DataFrame:
    """Match every event with every interest, as one of three brokers that match together.

    The other two operators call it at the same time, each with its own messages, key and number.
    All three get the same rows. Each action on the result matches anew, together with the other
    two: write the result once, all three.

    Example:
        .. code-block:: python

            matched = cs.match_shares(
                spark.read.parquet("/data/events-1"),        # event, broker_1
                spark.read.parquet("/data/interests-1"),     # subscription, broker_1
                three, cs.FileKey("/run/secrets/operator"),
                party=1, operators=operators, hellos=hellos, job="day 1", host="0.0.0.0",
            )
            matched.write.parquet("/data/matched")           # subscription, event

        From stores of `write_messages`; either of them may be a DataFrame as well:

        .. code-block:: python

            matched = cs.match_shares(
                "/data/sent-1", "/data/asked-1", three, cs.FileKey("/run/secrets/operator"),
                party=1, operators=operators, hellos=hellos, job="day 2", host="0.0.0.0",
            )
            matched.write.parquet("/data/matched")           # subscription, round

    Args:
        events: messages of events for this broker. Other columns are kept. Or the path of a store
            of such messages, or several paths; then the column `round` is kept.
        interests: messages of interests for this broker, with their subscriptions; or the path of a
            store of them, or several paths.
        matcher: the matcher; public. It has three brokers (`Answers.TOGETHER`).
        key: source of the `OperatorKey` for the workers.
        party: number of this operator's broker: 0, 1 or 2.
        operators: public sides of operators 0, 1 and 2, the same at all three.
        hellos: hellos of all clients for this broker, up to 32 MiB.
        job: name of this match, the same at all three; another one whenever messages change. So a
            stage that Spark repeats at one operator never meets the next match of the other two.
        subscription: string column with the names of subscriptions, in a DataFrame of `interests`
            and in the result.
        message: binary column of messages in DataFrames; None for "broker_0", "broker_1" or
            "broker_2".
        partitions: number of tasks, the same at all three; by default the session's parallelism. At
            most as many as can run at once.
        host: name or number of its machine that each worker listens at; "0.0.0.0" for all. Task
            i listens at the port of the operator's address + i.
        seconds: time that tasks wait for those of the other two.
        on_error: "raise" fails the job at the first message that is refused, and names its row.
            "drop" lets it match nothing. "reject" does so, too, and gives it a row with the cause
            in a string column "rejected". In this row the columns of the other side are NULL.

    Returns:
        A row for each match: `subscription`, the columns of `events` without the message and, with
        "reject", "rejected" (NULL where nothing is wrong). A message that is NULL matches nothing.
        Indexes of stores are read now, and their files when the result is computed.

    Raises:
        ParameterError: an argument is not possible; a column is missing, of the wrong type, in both
            DataFrames, or another broker's; the matcher is of another kind; or a path has no
            complete store, or one of another matcher, side or broker, or comes twice.
        KeyMismatchError: (as the cause of Spark's error, when the result is computed) the key is
            not that of this operator.
        NetworkError: (likewise) the other two did not come, or a connection broke.
        DecodeError: (likewise) with "raise", a message is refused by any of the three; a hello is
            malformed; or a file of a store is damaged. An index is compared at once.
    """
    check_answers(matcher, "match_shares")
    if not matcher.leakage.answers:
        raise ParameterError(
            "match_shares gives the answers to the brokers, which must not learn those of this "
            'matcher: take one with reveal="brokers", or run its brokers (ThreeBrokerMatch.broker)'
        )
    check_key(key)
    partitions = check_partitions(partitions)
    whole("party", party, 0, PARTIES - 1)
    if len(operators) != PARTIES:
        raise ParameterError(f"operators must be three, got {len(operators)}")
    for operator in operators:
        instance("operators", operator, Operator)
    for hello in hellos:
        octets("hellos", hello)
    text("job", job)
    text("host", host)
    number("seconds", seconds, 0)
    if sum(map(len, hellos)) > PLAN_BYTES:
        raise ParameterError(f"hellos= takes at most {PLAN_BYTES >> 20} MiB")
    own = broker_columns()[party]
    name = own if message is None else message
    reject = check_on_error(on_error, drop=True)
    events, interests = _tables(events, interests, matcher, party, subscription, name)
    for df, title in ((events, "events"), (interests, "interests")):
        if df.isStreaming:
            raise ParameterError(f"{title} is a stream: call match_shares in foreachBatch")
        for other in broker_columns():
            if other not in (own, name) and other in df.columns:
                raise ParameterError(
                    f"{title} has the column {other!r}, which is for another broker: with it, "
                    "this operator could read messages. Give each operator its own columns only"
                )
    kept = tuple(c for c in events.columns if c != name)
    refuse_alike(events, {"events": kept, "interests": [subscription]})
    require(events, [], binary=[name], name="events")
    require(interests, [], text=[subscription], binary=[name], name="interests")
    if subscription in events.columns:
        raise ParameterError(f"column {subscription!r} is in both DataFrames; rename one")
    schema = StructType().add(subscription, "string")
    for field in events.schema.fields:
        if field.name in kept:
            schema.add(field)
    if reject:
        refuse_rejected([*kept, subscription])
        schema.add("rejected", "string")
    tasks = partitions or _parallelism(events)
    matching = ShareMatching(
        matcher,
        key,
        party,
        tuple(operators),
        tuple(dict.fromkeys(hellos)),
        subscription,
        kept,
        on_error,
        tasks,
        job,
        host,
        seconds,
    )

    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = BarrierTaskContext.get()
        yield from matching.matches(context.partitionId(), batches, context.barrier)

    rows = _spread(events, interests, name, subscription, kept, tasks)
    # Spark repeats a barrier stage only if its result goes to another stage.
    return map_batches(rows, match, schema, barrier=True).repartition(column(subscription))


def _tables(
    events: DataFrame | Stores,
    interests: DataFrame | Stores,
    matcher: Matcher,
    party: int,
    subscription: str,
    message: str,
) -> tuple[DataFrame, DataFrame]:
    """Return both sides as DataFrames; workers read the files of stores."""
    given: dict[StoreKind, DataFrame | Stores] = {"event": events, "interest": interests}
    tables = {kind: df for kind, df in given.items() if isinstance(df, DataFrame)}
    stored = {
        kind: indexes(paths, matcher, kind, party)
        for kind, paths in given.items()
        if kind not in tables
    }
    for kind, index in stored.items():
        df = next(iter(tables.values()), None)
        spark = SparkSession.active() if df is None else df.sparkSession
        rows = stored_rows(spark, index, message)
        label = column("subscription").alias(subscription)
        first = column("round") if kind == "event" else label
        tables[kind] = rows.select(first, column(message))
    return tables["event"], tables["interest"]


def _spread(
    events: DataFrame,
    interests: DataFrame,
    name: str,
    subscription: str,
    kept: Sequence[str],
    tasks: int,
) -> DataFrame:
    """Give each task its part of the interests and all events, in the order that all three have.

    The heads of messages are the same at all three brokers, and decide on the task and the order.
    """
    message, label = column(name), column(subscription)
    head = F.substring(message, 1, HEAD_BYTES)
    every = F.explode(F.sequence(F.lit(0), F.lit(tasks - 1)))
    asked = interests.where(label.isNotNull() & message.isNotNull()).select(
        F.pmod(F.xxhash64(head), F.lit(tasks)).cast("int").alias(_TASK),
        F.lit(0).alias(SIDE),
        message.alias(MESSAGE),
        label.alias(subscription),
    )
    sent = events.where(message.isNotNull()).select(
        every.alias(_TASK), F.lit(1).alias(SIDE), message.alias(MESSAGE), *map(column, kept)
    )
    both = asked.unionByName(sent, allowMissingColumns=True)
    placed = both.repartitionById(tasks, F.col(_TASK))
    order = F.substring(F.col(MESSAGE), 1, HEAD_BYTES)
    return placed.sortWithinPartitions(SIDE, order).drop(_TASK)


def _parallelism(df: DataFrame) -> int:
    """Return the number of tasks that a session runs at a time."""
    if is_connect(df):
        raise ParameterError("Spark Connect does not tell how many tasks it runs: give partitions=")
    return int(df.sparkSession.sparkContext.defaultParallelism)
