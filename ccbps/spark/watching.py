"""Numbers of a job as Spark counts them, its progress, and settings that suit it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from tqdm import tqdm

from ccbps.errors import ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.spark.columns import column
from ccbps.spark.frames import check_matcher, is_connect, refuse_given, require

_POLL: Final = 0.2
"""Time between two looks at the tasks (seconds)."""
_PATIENCE: Final = 5
"""Longest time for the last look (seconds)."""
_BATCH_BYTES: Final = 8 << 20
"""Size of an Arrow batch of wide messages that stays in a core's cache (bytes)."""
_BATCH_ROWS: Final = 10_000
_MOST_BYTES: Final = (1 << 31) - 1


def observe(
    df: DataFrame,
    name: str | Observation,
    matcher: Matcher | None = None,
    *,
    matched: str | None = None,
) -> DataFrame:
    """Count rows while they pass, in batches and in streams, without an extra job.

    Example:
        .. code-block:: python

            from pyspark.sql import Observation

            seen = Observation("match")
            decided = cs.match(events, interests, matcher, on_error="reject")
            cs.observe(decided, seen, matcher).collect()
            # seen.get == {"pairs": 2, "matches": 1, "bytes": 68, "rejected": 0}

    Args:
        df: rows of an encoder or a matcher, batch or streaming.
        name: an `Observation`, whose ``get`` waits for the first action on the result; or, for a
            stream, the metrics' name in the query's progress (``observedMetrics``).
        matcher: matcher that `match` was called with; None if the rows are of no match.
        matched: boolean column, if `match` was told another `output`, or `match_udf` was used
            with a matcher for all pairs; None for "matched".

    Returns:
        The DataFrame, which counts ``rows``; ``bytes``, of all binary columns; ``matches``, where
        there is a boolean column `matched`, whose rows are pairs; and ``rejected``, the rows with a
        reason, where there is a column `rejected`. Only rows that are computed count, and each time
        they are: a ``limit`` behind, or a task that is tried twice, changes the numbers.

        With `matcher`, where rows are pairs: ``pairs``; ``matches``; ``bytes``, the size of the two
        messages of each pair, which the result no longer has, pairs x (``event_bytes`` +
        ``interest_bytes``); and ``rejected``. Where rows are matches: ``matches``, rows without a
        reason, and ``rejected``. Such a result shows no pairs. Observe the events, too: their
        ``rows``, times the interests, are the pairs (without a topic).

    Raises:
        ParameterError: the boolean column is missing or of another type, or does not apply.
    """
    if matcher is not None:
        check_matcher(matcher)
        if matcher.answers is Answers.SUBSCRIBER:
            refuse_given(matcher, matcher.answers, matched=matched)
        if matcher.keying is Keying.ROUNDS and matched is None:
            matched = "matched"
    if matched is not None:
        require(df, [], boolean=[matched], name="df", rest=False)
    kinds = {field.name: field.dataType.typeName() for field in df.schema.fields}
    rejects = kinds.get("rejected") == "string"
    rows = F.count(F.lit(1))
    if matcher is None:
        size = F.lit(0)
        for binary in (name for name, kind in kinds.items() if kind == "binary"):
            size = size + F.coalesce(F.octet_length(column(binary)), F.lit(0))
        metrics = {"rows": rows, "bytes": F.coalesce(F.sum(size.cast("long")), F.lit(0))}
        if matched is not None or kinds.get("matched") == "boolean":
            metrics["matches"] = F.count_if(column(matched or "matched"))
    elif matched is not None:
        width = matcher.event_bytes + matcher.interest_bytes
        matches = F.count_if(column(matched))
        metrics = {"pairs": rows, "matches": matches, "bytes": rows * F.lit(width)}
    else:
        metrics = {"matches": F.count_if(column("rejected").isNull()) if rejects else rows}
    if rejects:
        metrics["rejected"] = F.count(column("rejected"))
    return df.observe(name, *[metric.alias(label) for label, metric in metrics.items()])


@contextmanager
def progress(spark: SparkSession, label: str) -> Iterator[None]:
    """Show a bar of the tasks of all jobs that run inside, on standard error.

    Example:
        .. code-block:: python

            with cs.progress(spark, "broker: match"):
                answer_rows = cs.match(events, interests, matcher).collect()

    Args:
        spark: the session that runs them.
        label: text before the bar.
    """
    with tqdm(desc=label, unit=" tasks", mininterval=1) as bar:
        watch = _watch_connect if is_connect(spark) else _watch_classic
        with watch(spark, bar):
            yield
        bar.total = max(bar.n, bar.total or 0)
        bar.update(bar.total - bar.n)


@contextmanager
def _watch_classic(spark: SparkSession, bar: Any) -> Iterator[None]:
    """Ask Spark's tracker from time to time."""
    tracker, seen, done = spark.sparkContext.statusTracker(), {}, threading.Event()

    def poll() -> None:
        while not done.wait(_POLL):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    seen[stage] = (info.numCompletedTasks, info.numTasks)
            _show(bar, seen)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    try:
        yield
    finally:
        done.set()
        poller.join(_PATIENCE)  # a bar does not hold up what it shows


@contextmanager
def _watch_connect(spark: Any, bar: Any) -> Iterator[None]:
    """Receive the progress from Spark Connect."""
    seen: dict[Any, tuple[int, int]] = {}

    def receive(stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
        for stage in stages or ():
            key = operation_id, stage.stage_id
            seen[key] = stage.num_completed_tasks, stage.num_tasks
        _show(bar, seen)

    spark.registerProgressHandler(receive)
    try:
        yield
    finally:
        spark.removeProgressHandler(receive)


def _show(bar: Any, seen: dict[Any, tuple[int, int]]) -> None:
    bar.total = sum(total for _, total in seen.values()) or None
    bar.update(sum(done for done, _ in seen.values()) - bar.n)


def settings_for(matcher: Matcher) -> dict[str, str]:
    """Return settings of a session that suit the width of a matcher's messages.

    Example:
        .. code-block:: python

            for name, value in cs.settings_for(matcher).items():
                spark.conf.set(name, value)

    A worker holds a few Arrow batches at a time, and kernels are fastest where a batch stays in a
    core's cache. So batches have 10,000 rows, but at most 8 MiB.

    Args:
        matcher: the matcher; public.

    Returns:
        Names and values of settings that may change while a session runs.

    Raises:
        ParameterError: one message does not fit into an Arrow batch of 2 GiB.
    """
    check_matcher(matcher)
    width = max(matcher.event_bytes, matcher.interest_bytes)
    if width > _MOST_BYTES:
        raise ParameterError(
            f"a message of {width} bytes does not fit into an Arrow batch of 2 GiB: take a smaller "
            "schema or circuit, or another matcher"
        )
    rows = min(_BATCH_ROWS, max(1, _BATCH_BYTES // width))
    return {
        "spark.sql.execution.arrow.maxBytesPerBatch": f"{max(_BATCH_BYTES, width)}b",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows),
    }
