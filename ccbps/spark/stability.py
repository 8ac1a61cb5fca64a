"""Columns that name rows must keep their values when Spark runs a task again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from threading import Lock
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame

from ccbps.errors import ParameterError
from ccbps.spark.columns import column

_UNSTABLE: Final = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|"
    r"spark_partition_id|current_timestamp|now|current_date|curdate|current_time|localtimestamp)\(",
    re.IGNORECASE,
)
_CHOSEN: Final = re.compile(r"(sample)\b", re.IGNORECASE)
# Headings in the text of a plan, and the setting that cuts off its long rows.
_ANALYZED: Final = "== Analyzed Logical Plan =="
_OPTIMIZED: Final = "== Optimized Logical Plan =="
_FIELDS: Final = "spark.sql.debug.maxToStringFields"
_explaining: Final = Lock()

# A step of a plan, behind lines that draw the tree. Steps of a stream have a tilde.
_STEP: Final = re.compile(r"^[ :]*(?:[+:]- )?~?(?=[A-Z]\w*)", re.MULTILINE)
_ATTRIBUTE: Final = re.compile(r"#(\d+)")
_DEFINED: Final = re.compile(r" AS .*?#(\d+)", re.DOTALL)
_CHOOSING: Final = {"Filter", "Join", "Sort", "Sample"}
"""Steps that change no value, but choose rows or put them in order."""
_PLAIN: Final = {
    *("Project", "SubqueryAlias", "View", "Window", "Aggregate", "Generate", "Deduplicate"),
    *("Distinct", "Repartition", "RepartitionByExpression", "ResolvedHint", "GlobalLimit"),
    *("LocalLimit", "EventTimeWatermark", "Range", "Relation", "RelationV2", "LogicalRDD"),
    *_CHOOSING,
}
"""Steps whose columns are those of the step below, or are defined with AS, or by the whole step."""


def refuse_unstable(df: DataFrame, name: str, argument: str) -> None:
    """Refuse a column that has other values when Spark runs a task or a job again.

    The check follows the column through Spark's plan, and searches the expressions from which it is
    computed for functions whose values change. If rows are numbered or put together, it also
    searches the expressions that choose and order these rows. It does not see functions of the
    caller, or an order with ties, such as `row_number` of equal rows.

    Raises:
        ParameterError: there is rand(), current_timestamp(), sample() or the like.
    """
    for text in _sources(_plan_of(df, name)):
        unstable = _UNSTABLE.search(text) or _CHOSEN.match(text)
        if unstable:
            raise ParameterError(
                f"{argument}={name!r} comes from {unstable[1].lower()}(), or from rows that are "
                "chosen or put in order by it, and has another value when a task or a job is run "
                "again: number rows once, in a table, and read that"
            )


def _sources(plan: str) -> Iterator[str]:
    """Yield the parts of a plan that decide the values of the columns of its first step.

    The text of a plan may be read in several ways, since constants stand in it without quotes. In
    doubt a part is taken. Steps above come first, so one pass finds all attributes that are needed.
    """
    needed, everything, mixed = set[str](), False, False
    starts = [match.end() for match in _STEP.finditer(plan)]
    for start, stop in zip(starts, [*starts[1:], len(plan)], strict=True):
        step = plan[start:stop].rstrip(" :+-~\n")
        kind = re.match(r"\w+", step)[0]  # type: ignore[index]
        if not needed:
            needed.update(_ATTRIBUTE.findall(step))
        everything |= not (kind in _PLAIN or kind.endswith("Relation")) or "subquery#" in step
        if everything:
            parts = [step]
        elif kind == "Project":
            parts = [part for part in _expressions(step) if needed & {*_DEFINED.findall(part)}]
        elif kind in ("Window", "Aggregate"):
            used = bool(needed & {*_DEFINED.findall(step)})
            parts, mixed = [step] * used, mixed or used
        elif kind in _CHOOSING:
            parts = [step] * mixed
        else:
            parts = [step]
        for part in parts:
            needed.update(_ATTRIBUTE.findall(part))
            yield part


def _expressions(step: str) -> list[str]:
    """Split the list of a step in its expressions, unless its brackets do not pair."""
    begin, depth, parts = step.find("[") + 1, 0, list[str]()
    for place in range(begin, len(step) - 1):
        letter = step[place]
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            break
        if depth == 0 and step.startswith(", ", place):
            parts.append(step[begin:place])
            begin = place + 2
    return [step] if depth else [*parts, step[begin:]]


def _plan_of(df: DataFrame, name: str) -> str:
    """Return the text of Spark's plan for a column, before it is optimized.

    Spark replaces the current time by a constant when it optimizes a plan.
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
    _, _, plan = str(row[0]).partition(_ANALYZED + "\n")
    # The first line lists the columns and their types.
    return plan.partition(_OPTIMIZED)[0].partition("\n")[2]
