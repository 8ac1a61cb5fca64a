"""Message stores: the broker's workers read messages from files by themselves.

`match` moves every message through Spark's joins and its socket to Python, which takes longer than
deciding the pair. Here Spark moves messages once, when a store is written; to match two stores, the
driver looks up in their indexes which rows belong together, and the workers map the files into
memory and hand back answers alone. Nothing secret comes here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from ccbps.errors import ParameterError
from ccbps.matching.contract import Answers, Keying, is_broadcast
from ccbps.matching.matcher import Matcher
from ccbps.spark.frames import (
    check_matcher,
    check_on_error,
    check_partitions,
    column,
    refuse_given,
    require,
)
from ccbps.spark.store_answers import ANSWERS, answers_of, unfolded
from ccbps.store.broadcast_plan import plan_rounds
from ccbps.store.files import RUNS, PartReader, PartWriter, Refused
from ccbps.store.folder import Folder
from ccbps.store.index import (
    Index,
    StoreKind,
    WriterRun,
    is_unfinished,
    latest,
    message_width,
    serves_all,
)
from ccbps.store.plan import open_piece, plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["match_messages", "write_messages"]

# What a task reports about its part: its runs, with the checksums in the row of the first; or why
# there are none.
_MANIFEST = RUNS.append(pa.field("checksums", pa.binary())).append(pa.field("problem", pa.string()))

# Parts that a worker keeps open: two of pairs at a time, and all those of the subscriptions that
# the events of a broadcast meet together.
_OPEN: Final = 8
_OPEN_TOGETHER: Final = 128


def write_messages(
    df: DataFrame,
    path: str | os.PathLike[str],
    matcher: Matcher,
    *,
    kind: StoreKind,
    message: str | None = None,
    subscription: str | None = None,
    round: str = "round",
    mode: Literal["error", "overwrite"] = "error",
    partitions: int | None = None,
) -> None:
    """Write messages as a store, which `match_messages` reads. Runs one job; with the events of a
    broadcast another one before it, which computes `df` to see how its rounds are spread.

    Example:
        .. code-block:: python

            cs.write_messages(events, "/data/events", matcher, kind="event")
            cs.write_messages(interests, "/data/interests", matcher, kind="interest")

    Args:
        df: has `subscription`, where it applies, `round` and `message`; other columns are not kept.
        path: a folder, or its URI, which driver and workers must see under the same path.
        matcher: whose messages these are; public.
        kind: "event" or "interest": which side's messages these are.
        message: binary column with messages; by default "event_message" or "interest_message".
        subscription: string column with the label of the pair; None for "subscription". One pair's
            messages go into one file. It does not apply to the events of a broadcast, such as
            `BroadcastMatch`: there is one for each round, and each file has a range of rounds.
        round: column with the round, a whole number.
        mode: "error" refuses a folder that is not empty, apart from what unfinished writers left;
            "overwrite" replaces a store once the new one is complete.
        partitions: tasks, and files at most; by default as many as Spark chooses. Two stores of the
            same pairs with the same number are laid out alike.

    Raises:
        ParameterError: a column is missing or of the wrong type, or `subscription` does not apply;
            the folder is not empty or cannot be made; a row has a NULL, a negative round or a
            message of another width; a (pair, round), or a round of a broadcast's events, comes
            twice; another call finished a store there while this one ran. Nothing of this call is
            left.
    """
    if mode not in ("error", "overwrite"):
        raise ParameterError(f"mode must be 'error' or 'overwrite', got {mode!r}")
    if kind not in ("event", "interest"):
        raise ParameterError(f"kind must be 'event' or 'interest', got {kind!r}")
    _check_pairs(matcher)
    message = f"{kind}_message" if message is None else message
    by_round = serves_all(matcher, kind)
    if by_round:
        refuse_given(matcher, Keying.ROUNDS, subscription=subscription)
    labels = [] if by_round else ["subscription" if subscription is None else subscription]
    require(df, [], whole=[round], text=labels, binary=[message], rest=False)
    if df.isStreaming:
        raise ParameterError(
            "a store is written once: call this in foreachBatch, with a new path each time"
        )
    check_partitions(partitions)
    folder = Folder.of(path, "path")
    found = folder.names()
    if mode == "error" and not all(map(is_unfinished, found)):
        raise ParameterError(
            f"path={folder.path!r} is not empty; choose another folder, or mode='overwrite'"
        )
    width = message_width(matcher, kind)
    folder.make("path")
    run = WriterRun(latest(found) + 1)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part, runs, problem = PartWriter(folder, run.stem, width), {}, None
        try:
            for batch in batches:
                part.append(*batch.columns)
            runs = part.finish()
        except BaseException as error:
            part.abandon()
            if not isinstance(error, Refused):
                raise
            problem = str(error)
        # A problem is an answer, not a failure: Spark would try a failed task again.
        if problem is not None:
            runs = {"problem": pa.array([problem])}
        rows = len(next(iter(runs.values()), ()))
        if part.checksums and problem is None:
            runs["checksums"] = pa.array([part.checksums] + [None] * (rows - 1), pa.binary())
        yield pa.RecordBatch.from_arrays(
            [
                runs[f.name].cast(f.type) if f.name in runs else pa.nulls(rows, f.type)
                for f in _MANIFEST
            ],
            schema=_MANIFEST,
        )

    chosen = df.select(
        column(round).cast("long").alias("round"),
        column(message).alias("message"),
        *[column(name).alias("subscription") for name in labels],
    )
    spread = chosen.repartitionByRange if by_round else chosen.repartition
    by = "round" if by_round else "subscription"
    parts = spread(by) if partitions is None else spread(partitions, by)
    ordered = parts.sortWithinPartitions(*["subscription"] * (not by_round), "round")
    committed = False
    try:
        manifest = ordered.mapInArrow(write, _as_spark(_MANIFEST)).toArrow().cast(_MANIFEST)
        problems = manifest["problem"].drop_null()
        if len(problems):
            raise ParameterError(f"path={folder.path!r}: nothing was written: {problems[0]}")
        first = manifest.filter(manifest["checksums"].is_valid())
        checksums = dict(
            zip(first["part"].to_pylist(), first["checksums"].to_pylist(), strict=True)
        )
        runs = manifest.select(RUNS.names)
        Index.write(folder, run, matcher, kind, runs, checksums)
        committed = True
    finally:
        # Where this fails, what it wrote; else what it replaces, and what tasks tried twice left.
        names = folder.names()
        gone = run.replaced(names, checksums) if committed else run.left(names)
        folder.remove(*gone)


def match_messages(
    spark: SparkSession,
    events: str | os.PathLike[str],
    interests: str | os.PathLike[str],
    matcher: Matcher,
    *,
    on_error: Literal["raise", "reject"] = "raise",
    verify: bool = False,
    partitions: int | None = None,
) -> DataFrame:
    """Match a store of event messages with a store of interest messages.

    Messages of the same pair and round are matched, or of a broadcast those of the same round, as
    by `match`; those without a counterpart are not read. The indexes are read now, the messages
    when the result is computed, which must be before either store is overwritten.

    Example:
        .. code-block:: python

            answers = cs.match_messages(spark, "/data/events", "/data/interests", matcher)
            # subscription, round, matched

    Args:
        events: path of a store of event messages, from `write_messages`.
        interests: path of a store of interest messages.
        matcher: public.
        on_error: "raise" fails the job and names the first malformed row by pair and round;
            "reject" gives it NULL and the cause in a string column "rejected", and leaves the other
            rows' answers as they are.
        verify: compare the checksums of messages, too, which takes about half as long as deciding
            them. Those of indexes and rounds are always compared.
        partitions: tasks; by default the session's parallelism. A task costs some 0.05 s.

    Returns:
        columns subscription (string), round (long), matched (boolean) and, with "reject", rejected
        (string, NULL where nothing is wrong); in no particular order.

    Raises:
        ParameterError: a path has no complete store, or one of another matcher or side.
        DecodeError: an index is damaged; or (as the cause of Spark's error, when the result is
            computed) a file is, or see `on_error`.
    """
    check_on_error(on_error, "reject")
    _check_pairs(matcher)
    check_partitions(partitions)
    event_index = Index.read(Folder.of(events, "events"), matcher, "event")
    interest_index = Index.read(Folder.of(interests, "interests"), matcher, "interest")
    opened, most = open_piece, _OPEN
    if is_broadcast(matcher):
        planned, parts = plan_rounds(event_index, interest_index)
        opened, most = parts.open_piece, _OPEN_TOGETHER
    else:
        planned = plan(event_index, interest_index)
    pieces = spark.createDataFrame(planned, _as_spark(planned.schema))
    if partitions is not None:
        pieces = pieces.repartition(partitions)
    reject = on_error == "reject"
    stores = [index.files for index in (event_index, interest_index)]

    def decide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        broker = matcher.broker()

        @lru_cache(maxsize=most)
        def part(side: int, name: str) -> PartReader:
            return stores[side].reader(name, verify=verify)

        for piece in (row for batch in batches for row in batch.to_pylist()):
            yield answers_of(opened(piece, part), broker, reject=reject)

    return unfolded(pieces.mapInArrow(decide, _as_spark(ANSWERS)), reject=reject)


def _check_pairs(matcher: Matcher) -> None:
    """A matcher whose messages belong to pairs and rounds."""
    check_matcher(matcher)
    if matcher.answers is not Answers.PAIRS:
        raise ParameterError(
            f"message stores hold messages of pairs and rounds, which {type(matcher).__name__} "
            "has not: write its messages as a table, such as Parquet, and call match"
        )


def _as_spark(schema: pa.Schema) -> str:
    kinds = {
        pa.string(): "string",
        pa.binary(): "binary",
        pa.int64(): "long",
        pa.bool_(): "boolean",
    }

    def kind(of: pa.DataType) -> str:
        return f"array<{kind(of.value_type)}>" if pa.types.is_list(of) else kinds[of]

    return ", ".join(f"{field.name} {kind(field.type)}" for field in schema)
