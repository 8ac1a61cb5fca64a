"""What a job does: its numbers as Spark counts them, its progress, and settings that suit it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from tqdm import tqdm

from ccbps.errors import ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.spark.columns import column
from ccbps.spark.frames import check_matcher, is_connect, refuse_given, require

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

_POLL: Final = 0.2  # seconds
_PATIENCE: Final = 5  # seconds for the last look
# An Arrow batch of wide messages that stays in a core's cache, and rows of it at most.
_BATCH_BYTES: Final = 8 << 20
_BATCH_ROWS: Final = 10_000
_MOST_BYTES: Final = (1 << 31) - 1


def observe(
    df: DataFrame,
    name: str | Observation,
    matcher: Matcher | None = None,
    *,
    matched: str | None = None,
) -> DataFrame:
    """Count rows while they pass: no job of its own, in batches and in streams.

    Example:
        .. code-block:: python

            from pyspark.sql import Observation

            seen = Observation("match")
            decided = cs.match(events, interests, matcher, on_error="reject")
            cs.observe(decided, seen, matcher).collect()
            # seen.get == {"pairs": 2, "matches": 1, "bytes": 68, "rejected": 0}

    Args:
        df: what encoders or matchers give; batch or streaming.
        name: an `Observation`, whose ``get`` waits for the first action on the result; or in a
            stream, the metrics' name in the query's progress (``observedMetrics``).
        matcher: where `df` is what `match` gives: the matcher that gave it.
        matched: the boolean column, if `match` was told another `output`, or `match_column` was
            called with a matcher for all pairs; None for "matched".

    Returns:
        the DataFrame, which counts ``rows``; ``bytes``, of all binary columns; ``matches``, where
        there is a boolean `matched`, and those rows are pairs; and ``rejected``, rows with a
        reason, where there is a column `rejected`. Numbers are of rows that are computed: with a
        ``limit`` behind it, or a task that is tried twice, they differ.

        With `matcher`, where rows are pairs: ``pairs``; ``matches``; ``bytes``, of the two messages
        of each pair, which the result has no more: pairs x (``event_bytes`` + ``interest_bytes``);
        and ``rejected``. Where rows are matches: ``matches``, rows without a reason, and
        ``rejected``. A result of those shows no pairs: observe the events, too, whose ``rows``,
        times the interests, are the pairs (without a topic).

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
        metrics = [rows.alias("rows"), _binary_bytes(kinds).alias("bytes")]
        if matched is not None or kinds.get("matched") == "boolean":
            metrics.append(F.count_if(column(matched or "matched")).alias("matches"))
    elif matched is not None:
        width = matcher.event_bytes + matcher.interest_bytes
        metrics = [rows.alias("pairs"), F.count_if(column(matched)).alias("matches")]
        metrics.append((rows * F.lit(width)).alias("bytes"))
    else:
        answers = F.count_if(column("rejected").isNull()) if rejects else rows
        metrics = [answers.alias("matches")]
    if rejects:
        metrics.append(F.count(column("rejected")).alias("rejected"))
    return df.observe(name, *metrics)


def _binary_bytes(kinds: Mapping[str, str]) -> Column:
    """Sum the bytes of all binary columns."""
    total = F.lit(0)
    for of in (name for name, kind in kinds.items() if kind == "binary"):
        total = total + F.coalesce(F.octet_length(column(of)), F.lit(0))
    return F.coalesce(F.sum(total.cast("long")), F.lit(0))


@contextmanager
def progress(spark: SparkSession, label: str) -> Iterator[None]:
    """Show a bar over the tasks of the jobs that run inside, on standard error.

    Example:
        .. code-block:: python

            with cs.progress(spark, "broker: match"):
                answer_rows = cs.match(events, interests, matcher).collect()

    Args:
        spark: the session that runs them.
        label: shown before the bar.
    """
    with tqdm(desc=label, unit=" tasks", mininterval=1) as bar:
        watch = _watch_connect if is_connect(spark) else _watch_classic
        with watch(spark, bar):
            yield
        bar.total = max(bar.n, bar.total or 0)
        bar.update(bar.total - bar.n)


@contextmanager
def _watch_classic(spark: SparkSession, bar: Any) -> Iterator[None]:
    """Ask Spark's tracker now and then."""
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
    """Let Spark Connect tell."""
    seen: dict[Any, tuple[int, int]] = {}

    def told(stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
        for stage in stages or ():
            key = operation_id, stage.stage_id
            seen[key] = stage.num_completed_tasks, stage.num_tasks
        _show(bar, seen)

    spark.registerProgressHandler(told)
    try:
        yield
    finally:
        spark.removeProgressHandler(told)


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
    core's cache: batches of 10,000 rows, but of at most 8 MiB.

    Args:
        matcher: public.

    Returns:
        names and values, all of them settings that may change while a session runs.

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
