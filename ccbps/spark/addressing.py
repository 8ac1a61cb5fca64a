"""Who gets an event under which round: a ledger allots rounds, in the task that encodes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.columnar.addressing import allotted_rounds
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.remote_ledger import RemoteLedger
from ccbps.spark.columns import AGAIN, column, row_function
from ccbps.spark.frames import PLAN_BYTES, check_keep, check_partitions, refuse_given, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REFUSED: Final = "__ccbps_refused"
_ALLOTTED: Final = "__ccbps_allotted"
_FIRST: Final = "__ccbps_first"
_TOGETHER: Final = 1 << 14
"""Rounds of a row that stay together when rows are spread."""
_IDS: Final = ("byte", "short", "integer", "long", "string")
_UNSTABLE: Final = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|"
    r"spark_partition_id)\(",
    re.IGNORECASE,
)
# Of a plan as text: its parts, and the setting that cuts off long rows, while it is changed.
_OPTIMIZED: Final = "== Optimized Logical Plan =="
_PHYSICAL: Final = "== Physical Plan =="
_FIELDS: Final = "spark.sql.debug.maxToStringFields"
_explaining: Final = Lock()


def address(
    df: DataFrame,
    matcher: Matcher,
    key: KeySource,
    ids: Sequence[str],
    ledger: EventLedger | RemoteLedger,
    labels: Sequence[str] | None,
    event: str | None,
    keep: Sequence[str],
    reject: bool,
) -> tuple[DataFrame, list[str]]:
    """Give each event a round, and repeat it for each label.

    Returns:
        a DataFrame with the columns `ids`, `keep` and of the schema; and which of them stay. With
        `reject`, there is another one that stays, for `with_refused`: why an event has no round.
        Such an event has one row, whose `ids` are NULL.

    Raises:
        ParameterError: an argument does not fit the matcher or the DataFrame.
    """
    if matcher.keying is not Keying.ROUNDS:
        refuse_given(matcher, matcher.keying, ledger=ledger, labels=labels, event=event)
    attributes, name = list(matcher.schema), "event" if event is None else event
    kept = check_keep(keep, [], [*attributes, *ids])
    require(df, [*attributes, *kept], rest=False)
    whom = _labels(df, matcher, labels, ledger, name)
    if isinstance(ledger, EventLedger):
        ledger.foretell()  # workers say it, too, but nobody may read what they say

    @row_function("round bigint, rejected string" if reject else "bigint")
    def allot(row: pa.Array) -> pa.Array:
        return allotted_rounds(matcher, key, ledger, row, name, reject=reject)

    record = [column(one).alias(str(i)) for i, one in enumerate(attributes)]
    given = F.struct(column(name).cast("string").alias("event"), *record)
    others = [column(one) for one in [*kept, *attributes]]
    found = df.select(*others, allot(given).alias(_ALLOTTED))
    number = F.col(f"{_ALLOTTED}.round") if reject else F.col(_ALLOTTED)
    columns = [number.alias(ids[-1]), *others]
    if whom is not None:
        # As one constant, however many there are.
        every = F.from_json(F.lit(json.dumps(whom, ensure_ascii=False)), "array<string>")
        columns.insert(0, F.explode_outer(F.when(number.isNotNull(), every)).alias(ids[0]))
    if reject:
        columns.append(F.col(f"{_ALLOTTED}.rejected").alias(_REFUSED))
    return found.select(*columns), [*ids, *kept, *[_REFUSED] * reject]


def check_ahead(rounds: range | None, partitions: int | None) -> None:
    """Refuse rounds that nobody can provide for; None is allowed."""
    check_partitions(partitions)
    if rounds is None:
        if partitions is not None:
            raise ParameterError("partitions= is for rounds=, which it spreads over tasks")
    elif (
        not isinstance(rounds, range)
        or rounds.step != 1
        or not 0 <= rounds.start < rounds.stop <= 1 << 63
    ):
        raise ParameterError(
            f"rounds must be a range of rounds from 0 on, such as range(5000, 6000), got {rounds!r}"
        )


def ahead(
    df: DataFrame, columns: Sequence[str], name: str, rounds: range, partitions: int | None
) -> DataFrame:
    """Repeat some columns of each row for each of `rounds`, which stand in the second column."""
    count = rounds.stop - rounds.start
    size = min(_TOGETHER, -(-count // (partitions or 1)))
    if name in df.columns:
        raise ParameterError(
            f"round={name!r} is a new column with rounds=, and the DataFrame has one of that name"
        )
    last = F.lit(rounds.stop - 1).cast("long")
    # In two steps, so that no array is long, and in some places few rows travel.
    starts = F.sequence(F.lit(rounds.start).cast("long"), last, F.lit(size).cast("long"))
    kept = [column(one) for one in (*columns, *[AGAIN] * (AGAIN in df.columns))]
    some = df.select(*kept, F.explode(starts).alias(_FIRST))
    some = some if partitions is None else some.repartition(partitions)
    until = column(_FIRST) + F.least(F.lit(size - 1), last - column(_FIRST))
    every = F.explode(F.sequence(column(_FIRST), until)).alias(name)
    return some.select(kept[0], every, *kept[1:])


def with_refused(df: DataFrame) -> DataFrame:
    """Merge the reasons of the ledger and of the encoder in one column "rejected"."""
    why = F.coalesce(F.col(_REFUSED), F.col("rejected")).alias("rejected")
    others = [name for name in df.columns if name not in (_REFUSED, "rejected")]
    return df.select(*[column(name) for name in others], why)


def refuse_alone(**arguments: object) -> None:
    """Refuse arguments that are not None, since there is no ledger."""
    for name, value in arguments.items():
        if value is not None:
            raise ParameterError(f"{name}= is for a ledger, which allots rounds: give ledger=, too")


def refuse_unstable(df: DataFrame, name: str, argument: str) -> None:
    """Refuse a column that Spark computes anew, and otherwise, when a task is run again.

    Looks for functions whose values change, in whatever of the plan the column is computed from.
    Does not see what a plan does not show: functions of the caller's own, and an order that is
    not one, as `row_number` gives numbers to equal rows.

    Raises:
        ParameterError: there is rand(), monotonically_increasing_id(), uuid() or the like.
    """
    found = _UNSTABLE.search(_plan_of(df, name))
    if found:
        raise ParameterError(
            f"{argument}={name!r} comes from {found[1].lower()}(), or from rows that are chosen or "
            "put in order by it, and has another value when a task is run again: number rows once, "
            "in a table, and read that"
        )


def _plan_of(df: DataFrame, name: str) -> str:
    """Return the text of Spark's plan for a column, optimized where there is such a plan.

    A stream has none until it starts; its text is all that the column is defined by.
    """
    spark, view = df.sparkSession, f"ccbps_{uuid4().hex}"
    df.select(column(name)).createTempView(view)
    try:
        # `explain` prints, and so would have to take the output of all threads.
        with _explaining:
            fields = spark.conf.get(_FIELDS)
            spark.conf.set(_FIELDS, str(1 << 20))
            try:
                (row,) = spark.sql(f"EXPLAIN EXTENDED SELECT * FROM {view}").collect()  # noqa: S608
            finally:
                spark.conf.set(_FIELDS, fields)
    finally:
        spark.catalog.dropTempView(view)
    plan = str(row[0])
    optimized = plan.partition(_OPTIMIZED)[2].partition(_PHYSICAL)[0]
    # Of a stream there is none until it starts, and in its place what that means.
    known = optimized and not df.isStreaming and "Exception" not in optimized
    return optimized if known else plan


def _labels(
    df: DataFrame, matcher: Matcher, labels: Sequence[str] | None, ledger: object, event: str
) -> list[str] | None:
    """Return the labels, each once; None for a broadcast."""
    if not isinstance(ledger, EventLedger | RemoteLedger):
        raise ParameterError(
            f"ledger must be an EventLedger or a RemoteLedger, got {type(ledger).__name__}"
        )
    kind = df.schema[event].dataType.typeName() if event in df.columns else "not there"
    if kind not in _IDS:
        raise ParameterError(
            f"event={event!r} must be a column of whole numbers or strings that names each event "
            f"once and for all; it is {kind}"
        )
    refuse_unstable(df, event, "event")
    if matcher.answers is Answers.ROUND:
        refuse_given(matcher, Keying.ROUNDS, labels=labels)
        return None
    if isinstance(labels, str) or not labels or not all(map(_is_label, labels)):
        raise ParameterError(
            f"labels must name the subscriptions that events are encoded for, such as "
            f"['alice/cheap', 'bob/all'], got {labels!r}"
        )
    size = sum(len(one.encode()) for one in labels)
    if size > PLAN_BYTES:
        raise ParameterError(
            f"labels= takes at most {PLAN_BYTES >> 20} MiB of names, got {size >> 20} MiB: they "
            "travel with the plan, which is one gRPC message in Spark Connect. Encode for some of "
            "them at a time, or take BroadcastMatch, whose events have no labels"
        )
    return [*dict.fromkeys(labels)]


def _is_label(label: object) -> bool:
    """Return whether a plan can hold a label: no half of a character, not too long for Java."""
    return (
        isinstance(label, str)
        and len(label) <= 1 << 20
        and label == label.encode("utf-8", "replace").decode()
    )
