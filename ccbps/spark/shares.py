"""Three brokers as three applications of Spark, one for each operator.

Each application has the columns for its own broker. Each task connects over TLS to the tasks of the
same number at the other two, and matches together with them. All tasks of a stage must run at once
for that, so it is a barrier stage: where one task fails, Spark runs all again. The other two
applications see their connections end, and their stages run again, too. The tasks then connect
anew, with fresh masks. No stage ends before all tasks of all three have made their rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ccbps.checks import instance, number, octets, text, whole
from ccbps.columnar.roles import for_subscribers
from ccbps.columnar.share_opening import opened_keys
from ccbps.columnar.shares import MESSAGE, SEALED, SIDE, ShareMatching
from ccbps.errors import ParameterError
from ccbps.keys.plain_key import PARTIES
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.shares.clients import HEAD_BYTES
from ccbps.shares.operators import Operator
from ccbps.spark.columns import column, map_batches
from ccbps.spark.encoding import COMMITMENT, broker_columns
from ccbps.spark.frames import (
    PLAN_BYTES,
    check_answers,
    check_key,
    check_matcher,
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
_EVENT: Final = "__ccbps_event"
_COMMITMENT: Final = "__ccbps_commitment"
_INTEREST: Final = "__ccbps_interest"
_OWN: Final = "__ccbps_own_"
_SHARE: Final = "__ccbps_share_"


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
        host: name or IP address at which each worker listens; "0.0.0.0" for all of its machine's.
            Task i listens at the port of the operator's address + i.
        seconds: longest time that tasks wait for those of the other two, in seconds.
        on_error: "raise" fails the job at the first message that is refused, and names its row.
            "drop" lets it match nothing. "reject" does so, too, and gives it a row with the cause
            in a string column "rejected". In this row the columns of the other side are NULL.

    Returns:
        A row for each match: `subscription`, the columns of `events` without the message and, with
        "reject", "rejected" (NULL where nothing is wrong). A message that is NULL matches nothing.
        Where no broker learns the answers (``reveal="subscriber"``), a row for each event and each
        interest instead, with the columns `attempt` and `share` of 16 bytes, for `open_shares`.
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
    if getattr(matcher, "grants", False):
        raise ParameterError(
            "match_shares takes no grants, and this matcher demands them: take one without "
            "grants=True, or run its brokers (ThreeBrokerMatch.broker)"
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
    if for_subscribers(matcher):
        for sealed in SEALED:
            if sealed in {c.lower() for c in (*kept, subscription)}:
                raise ParameterError(f"there is a column {sealed!r}, and the result gets one")
            schema.add(sealed, "binary")
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


def open_shares(
    answers: Sequence[DataFrame],
    events: DataFrame,
    interests: DataFrame,
    matcher: Matcher,
    key: KeySource,
    *,
    subscription: str = "subscription",
    message: str = "broker_0",
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Open the answers that no broker learns, as their subscriber.

    Do not let brokers or publishers see that a row could not be opened: a publisher can bring this
    about where its event matches, and nowhere else.

    Example:
        .. code-block:: python

            found = cs.open_shares(
                [rows_0, rows_1, rows_2],    # subscription, event, attempt, share
                sent,                        # event, broker_0, commitment
                asked,                       # subscription, broker_0
                three, cs.FileKey("/run/secrets/subscriber"),
            )
            # subscription, event, payload_key

    Args:
        answers: results of `match_shares` at operators 0, 1 and 2, with the same columns. They may
            have rows of other subscriptions, which are not opened.
        events: columns that name events in `answers`, with each event's message, or its first 52
            bytes, and its "commitment". They come from the publisher, over a channel that no broker
            can alter.
        interests: the subscriber's own subscriptions and messages, or the first 52 bytes of these.
        matcher: the matcher; public. No broker learns its answers (``reveal="subscriber"``).
        key: source of the subscriber's `ClientKey` for the workers.
        subscription: string column that names a subscription.
        message: binary column of `events` and `interests` with messages.
        on_error: "raise" fails the job at the first row that cannot be opened, and names it.
            "reject" keeps it, with the reason in a string column "rejected".

    Returns:
        A row for each match: `subscription`, the columns that name the event, and `payload_key`, of
        16 bytes. With "reject" also a row for each one that cannot be opened, whose key is NULL.

    Raises:
        ParameterError: a column is missing or of the wrong type; there are not three DataFrames of
            answers; or brokers learn this matcher's answers.
        KeyMismatchError: (as the cause of Spark's error, when the result is computed) the key is
            not that of a client of the brokers.
        DecodeError: (likewise) with "raise", an operator has no row of an attempt that another one
            has, or the shares do not fit the commitment; or the interests are another client's.
    """
    check_matcher(matcher)
    check_key(key)
    reject = check_on_error(on_error)
    if not for_subscribers(matcher):
        raise ParameterError(
            "open_shares is for three brokers that do not learn the answers: ThreeBrokerMatch with "
            'reveal="subscriber"'
        )
    if len(answers) != PARTIES:
        raise ParameterError(f"answers must be of three operators, got {len(answers)}")
    attempt, share = SEALED
    first = answers[0]
    own = [c for c in first.columns if c not in (subscription, *SEALED, "rejected")]
    if not own:
        raise ParameterError("answers have no column that names an event")
    for party, df in enumerate(answers):
        name = f"answers[{party}]"
        require(df, own, text=[subscription], binary=[attempt, share], name=name)
    require(events, own, binary=[message, COMMITMENT], name="events", rest=False)
    require(interests, [], text=[subscription], binary=[message], name="interests", rest=False)
    names = [subscription, *own]
    asked = interests.select(column(subscription), column(message).alias(_INTEREST))
    sent = events.select(
        *[column(name).alias(_OWN + name) for name in own],
        column(message).alias(_EVENT),
        column(COMMITMENT).alias(_COMMITMENT),
    )
    shares = [f"{_SHARE}{party}" for party in range(PARTIES)]
    parts = [
        df.where(column(share).isNotNull()).select(
            *map(column, names), column(attempt), column(share).alias(own_share)
        )
        for df, own_share in zip(answers, shares, strict=True)
    ]
    # Names of an event may be NULL: a group has such rows too, and a join of columns drops them.
    rows = reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), parts)
    grouped = rows.groupBy(*map(column, [*names, attempt]))
    whole = grouped.agg(*[F.first(column(name), ignorenulls=True).alias(name) for name in shares])
    alike = [column(name).eqNullSafe(column(_OWN + name)) for name in own]
    joined = whole.join(sent, reduce(and_, alike)).join(asked, subscription)
    values = [_EVENT, _COMMITMENT, _INTEREST, attempt, *shares]
    schema = StructType()
    for name in names:
        schema.add(first.schema[name])
    schema.add("payload_key", "binary")
    if reject:
        schema.add("rejected", "string")

    def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = [batch.column(name) for name in names]
            keys, reasons = opened_keys(
                matcher, key, [batch.column(c) for c in values], names, ids, reject=reject
            )
            columns = [*ids, keys, *[pa.array(reasons, pa.string())] * reject]
            some = pa.RecordBatch.from_arrays(columns, names=schema.names)
            known = pc.or_(keys.is_valid(), pc.is_valid(pa.array(reasons, pa.string())))
            yield some.filter(known)

    # Rows of one interest are opened together.
    return map_batches(joined.sortWithinPartitions(column(subscription)), opened, schema)


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
