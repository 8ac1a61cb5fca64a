"""Message stores in DataFrames: written, checked before, compacted, and freed of old rounds.

Spark moves messages once, when it writes them. A store grows by generations: each call with
``mode="append"`` adds some files and a new index, and changes no file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Literal, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F

from ccbps.checks import choice, whole
from ccbps.columnar.generation import SPAN_BITS
from ccbps.errors import CcbpsError, ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Keying
from ccbps.spark.columns import AGAIN, NUMBER_REPEATED, REPEATED, column, mark_repeated
from ccbps.spark.frames import (
    check_matcher,
    check_partitions,
    refuse_given,
    refuse_rejected,
    require,
)
from ccbps.spark.workers import on_worker
from ccbps.store.commit import (
    Overtaken,
    abandon,
    add_generation,
    drop_below,
    renew,
    replace_generations,
    without_gaps,
)
from ccbps.store.files import MANIFEST, write_part
from ccbps.store.folder import Folder
from ccbps.store.index import About, Index, StoreKind, message_width, serves_all
from ccbps.store.merging import merged_rows, plan_merge
from ccbps.store.once import refuse_twice
from ccbps.store.versions import WriterRun, current, is_unfinished
from ccbps.wire import Cause, Kind, round_kind

StorePath: TypeAlias = "str | os.PathLike[str]"
Stores: TypeAlias = "StorePath | Sequence[StorePath]"
"""Path of a store, or of several."""
Contents: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[list[pa.Array]]]
"""Function from the batches of a task to rounds, messages and, if there are any, subscriptions."""

_TRIES: Final = 5
"""Number of times that an append is written, if others remove what it has written."""
_PART_BYTES: Final = 256 << 20
"""Approximate size of the messages in a file that compaction writes (bytes)."""
_CAUSES: Final = {
    "event": (Kind.EVENT, Cause.EVENT_WIDTH, Cause.EVENT_KIND),
    "interest": (Kind.INTEREST, Cause.INTEREST_WIDTH, Cause.INTEREST_KIND),
}
_TYPES: Final[dict[pa.DataType, types.DataType]] = {
    pa.string(): types.StringType(),
    pa.binary(): types.BinaryType(),
    pa.int32(): types.IntegerType(),
    pa.int64(): types.LongType(),
    pa.bool_(): types.BooleanType(),
}


def write_messages(
    df: DataFrame,
    path: StorePath,
    matcher: Matcher,
    *,
    kind: StoreKind,
    message: str | None = None,
    subscription: str | None = None,
    round: str = "round",
    mode: Literal["error", "overwrite", "append"] = "error",
    batch: tuple[str, int] | None = None,
    partitions: int | None = None,
) -> None:
    """Write messages as a store, which `match_messages` reads.

    This runs one job. With the events of a broadcast another one runs before it, which computes
    `df` to see how its rounds are spread.

    Example:
        .. code-block:: python

            cs.write_messages(events, "/data/events", matcher, kind="event")
            cs.write_messages(interests, "/data/interests", matcher, kind="interest")

        A stream, exactly once, however often it fails and starts again:

        .. code-block:: python

            def write(messages, number):
                cs.write_messages(messages, "/data/quotes", matcher, kind="event", mode="append",
                                  batch=("quotes", number))

            encoded.writeStream.foreachBatch(write).option("checkpointLocation", ...).start()

    Args:
        df: the messages, with their subscriptions, where these apply, and rounds. Other columns are
            not kept.
        path: folder, or its URI, which driver and workers must see under the same path.
        matcher: the matcher of the messages; public.
        kind: side of the messages, "event" or "interest".
        message: binary column with messages; by default "event_message" or "interest_message".
        subscription: string column with the label of the pair; None for "subscription". It does
            not apply to the events of a broadcast, such as `BroadcastMatch`: there is one event for
            each round, and each file has a range of rounds.
        round: column with the round, a whole number.
        mode: "error" refuses a folder that is not empty, apart from files that unfinished writers
            left. "overwrite" replaces a store once the new one is complete. "append" adds a
            generation to a store, or makes one. Several calls may append at once, also while the
            store is compacted. An append that a compaction overtakes runs its job once more.
        batch: name of a stream and number of its batch, with "append" only. If the last batch of
            the store comes again, it is computed (a stream's state may need it), and not written
            again. A stream that begins anew, with another checkpoint, needs another name.
        partitions: number of tasks, and of files at most; by default as many as Spark chooses. Two
            stores of the same pairs with the same number are laid out alike.

    Raises:
        ParameterError: a column is missing or of the wrong type, or `subscription` does not apply;
            the folder is not empty or cannot be made, or holds a store of another matcher or side;
            a row has a NULL, a negative round, one that `drop_rounds` dropped, or a message of
            another width; a (pair, round), or a round of a broadcast's events, comes with two
            messages (the same one twice is kept once); an earlier batch of a stream comes after a
            later one; or another call finished a store there while this one ran. Nothing of this
            call is left. Where rows come from others, set such rows aside before, with
            `check_messages`.
        RandomnessReuseError: with "append", the store has another message for a (pair, round), or
            for a round of a broadcast's events. Nothing of this call is left. A message that the
            store has already, as where a stream's source sends it again, is kept once.
    """
    check_mode(mode, batch)
    message, labels = _message_columns(df, matcher, kind, message, subscription, round)
    messages = df.select(
        column(round).cast("long").alias("round"),
        column(message).alias("message"),
        *[column(name).alias("subscription") for name in labels],
    )
    partitions = check_partitions(partitions)
    # However many messages a subscription has, several tasks write them.
    spread = messages.repartition if labels else messages.repartitionByRange
    by = ["subscription", F.shiftright("round", SPAN_BITS)] if labels else ["round"]
    parts = spread(*by) if partitions is None else spread(partitions, *by)
    ordered = parts.sortWithinPartitions(*["subscription"] * len(labels), "round")
    save_parts(ordered, path, matcher, kind, mode, batch, _as_they_are)


def _as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.Array]]:
    return (batch.columns for batch in batches)


def check_mode(mode: str, batch: tuple[str, int] | None = None) -> None:
    """Refuse a mode or a batch that is none; see `write_messages`."""
    choice("mode", mode, ("error", "overwrite", "append"))
    if batch is not None and mode != "append":
        raise ParameterError("batch= is for mode='append'")
    if batch is not None and (
        not isinstance(batch, tuple)
        or [type(part) for part in batch] != [str, int]
        or not batch[0]
        or batch[1] < 0
    ):
        raise ParameterError(
            "batch must be a stream's name and the number of its batch, such as ('quotes', 17), "
            f"got {batch!r}"
        )


def save_parts(
    rows: DataFrame,
    path: StorePath,
    matcher: Matcher,
    kind: StoreKind,
    mode: str,
    batch: tuple[str, int] | None,
    contents: Contents,
) -> None:
    """Write what tasks make of rows as a store, in a part for each task. Runs one job.

    Args:
        rows: the rows, spread over tasks and in order.
        path: path of the store.
        matcher: the matcher of the messages; public.
        kind: side of the messages.
        mode: treatment of a store that is there; see `write_messages`.
        batch: name of a stream and number of its batch; see `write_messages`.
        contents: function from a task's batches of rows to columns of its part.

    Raises:
        ParameterError, RandomnessReuseError: see `write_messages`.
    """
    if rows.isStreaming:
        raise ParameterError(
            "a stream is written batch by batch: call this in foreachBatch, with mode='append' and "
            "batch=(a name, the batch's number)"
        )
    folder, about = Folder.of(path, "path"), About.of(matcher, kind)
    version, names = current(folder)
    if not all(map(is_unfinished, names)):
        if mode == "error":
            raise ParameterError(
                f"path={folder.path!r} is not empty; choose another folder, or mode='overwrite'"
            )
        if mode == "append" and not version:
            raise ParameterError(f"path={folder.path!r} holds files, and no store to append to")
    if mode == "append" and version:
        before = Index.read(folder, matcher, kind)
        last = -1 if batch is None else before.about.batches.get(batch[0], -1)
        if batch is not None and last > batch[1]:
            raise ParameterError(
                f"batch={batch!r} comes after number {last} of that stream, which the store has. "
                "If the stream begins anew, with another checkpoint, give it another name"
            )
        if batch is not None and last == batch[1]:
            # Computed all the same: a stream with state, such as one of dropDuplicates, goes on
            # from the state that a batch leaves, and fails where nobody computed it.
            rows.write.format("noop").mode("overwrite").save()
            return
    folder.make("path")
    for _ in range(_TRIES):
        run = WriterRun(version + 1)
        try:
            fresh = _write_parts(rows, folder, run, about, contents)
            if mode != "append":
                renew(folder, run, _same_store(folder, fresh, matcher, kind), before=version + 2)
            elif len(fresh.part) or batch is not None:
                add_generation(folder, run, fresh, matcher, batch)
            return
        except BaseException as error:
            abandon(folder, run)
            # A compaction has removed what a slow writer had written: it is written again.
            if not isinstance(error, Overtaken):
                raise
            overtaken = error
        version, _ = current(folder)
    raise overtaken


def _write_parts(
    rows: DataFrame, folder: Folder, run: WriterRun, about: About, contents: Contents
) -> Index:
    """Write a part for each task, and return their index."""

    @on_worker
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield write_part(folder, run.stem, about.width, contents(batches))

    return Index.of(folder, about, rows.mapInArrow(write, as_spark(MANIFEST)).toArrow())


def _same_store(folder: Folder, fresh: Index, matcher: Matcher, kind: StoreKind) -> Index:
    """Let streams that read the store in a folder go on with the one that replaces it."""
    with suppress(CcbpsError):  # there is none, or it is another matcher's, or damaged
        store = Index.read(folder, matcher, kind).about.store
        return replace(fresh, about=fresh.about._replace(store=store))
    return fresh


def check_messages(
    df: DataFrame,
    matcher: Matcher,
    *,
    kind: StoreKind,
    message: str | None = None,
    subscription: str | None = None,
    round: str = "round",
) -> DataFrame:
    """Find rows that are no messages, and say why in a new string column "rejected".

    `write_messages` refuses all rows if one is malformed, and a stream that writes them would fail
    again each time it starts. Write the rows that are well formed, and keep the others elsewhere.
    Whether the two messages of a pair belong together is seen when they are matched.

    Example:
        .. code-block:: python

            def write(messages, number):
                told = cs.check_messages(messages, matcher, kind="event").persist()
                good, bad = told.where("rejected IS NULL"), told.where("rejected IS NOT NULL")
                cs.write_messages(good, "/data/quotes", matcher, kind="event", mode="append",
                                  batch=("quotes", number))
                bad.write.mode("append").parquet("/data/rejected")
                told.unpersist()

    Args:
        df: the messages, as for `write_messages`. No stream, since rows that occur twice are
            searched: call it in ``foreachBatch``.
        matcher: the matcher of the messages; public.
        kind: side of the messages, "event" or "interest".
        message: binary column with messages; see `write_messages`.
        subscription: string column with the label of the pair; see `write_messages`.
        round: column with the round, a whole number.

    Returns:
        All columns of `df`, and "rejected", which is NULL where nothing is wrong. It says that a
        column is NULL, that a round is negative, that a message has another width, side or version,
        or that the pair and round occurs more than once, with several messages. In the last case
        all such rows are rejected, since nobody knows which of them is right. Of one message that
        came twice, `write_messages` keeps one. Spark alone computes this, in one shuffle.

    Raises:
        ParameterError: a column is missing or of the wrong type, or `subscription` does not apply;
            `df` is a stream, or has a column "rejected".
    """
    message, labels = _message_columns(df, matcher, kind, message, subscription, round)
    refuse_rejected(df.columns)
    side, other_width, other_kind = _CAUSES[kind]
    ids, content = [*labels, round], column(message)
    again = REPEATED if labels else NUMBER_REPEATED
    width = F.octet_length(content) == message_width(matcher, kind)
    begun = F.substring(content, 1, 1) == F.lit(bytes([round_kind(side)]))
    problems = {
        **{f"column {name!r} is NULL": column(name).isNull() for name in (*ids, message)},
        f"column {round!r} is negative": column(round) < 0,
        other_width.text: ~width,
        other_kind.text: ~begun,
        again: column(AGAIN),
    }
    why = F.coalesce(*[F.when(condition, F.lit(text)) for text, condition in problems.items()])
    # Malformed messages do not count, or anybody could have a good one set aside.
    marked = mark_repeated(df, ids, again, F.when(width & begun, content))
    return marked.select(*map(column, df.columns), why.alias("rejected"))


def compact_messages(
    spark: SparkSession,
    path: StorePath,
    matcher: Matcher,
    *,
    kind: StoreKind,
    partitions: int | None = None,
) -> None:
    """Put the generations of a store together, in as few files as their size allows.

    This runs one job, whose tasks read and write files by themselves. Messages do not pass through
    Spark, and their checksums are compared. A job that matches at that time may find files gone,
    is told so, and must start again. Appends wait for nobody, and their generations stay as they
    are. If one began several commits before, its files are removed, and it writes them once more.

    Example:
        .. code-block:: python

            cs.compact_messages(spark, "/data/events", matcher, kind="event")

    Args:
        spark: the session.
        path: path of a store, from `write_messages`.
        matcher: the matcher of the messages; public.
        kind: side of the messages, "event" or "interest".
        partitions: largest number of files; by default one for each 256 MiB.

    Raises:
        ParameterError: there is no such store; or another call compacted or replaced it while this
            one ran. Nothing of this call is left.
        DecodeError: the index is damaged; or (as the cause of Spark's error) a file is.
    """
    partitions = check_partitions(partitions)
    folder, now = _store(path, matcher, kind)
    if not now.files.parts:
        return
    run, files, about = WriterRun(now.version + 1), now.files, now.about
    size = int((now.stop - now.start).sum()) * about.width
    tasks = max(1, size // _PART_BYTES) if partitions is None else partitions

    @on_worker
    def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.column(0).to_pylist():
                rows = merged_rows(files, piece, about.floor)
                yield write_part(folder, run.stem, about.width, rows)

    pieces = spark.createDataFrame(plan_merge(now, tasks), "runs binary")
    try:
        manifest = pieces.mapInArrow(merge, as_spark(MANIFEST)).toArrow()
        replace_generations(folder, run, now, manifest, matcher)
    except BaseException:
        abandon(folder, run)
        raise


def drop_rounds(path: StorePath, matcher: Matcher, *, kind: StoreKind, before: int) -> int:
    """Drop messages of rounds below `before`, and refuse such rounds from now on.

    The messages are dropped in the index: they are not matched and not read any more. A file is
    removed when none of its messages is left, and the next compaction leaves dropped messages out
    of the files that it writes. This runs no job. It reads rounds from files where they have gaps.

    Example:
        .. code-block:: python

            gone = cs.drop_rounds("/data/events", matcher, kind="event", before=1_000_000)

    Args:
        path: path of a store, from `write_messages`.
        matcher: the matcher of the messages; public.
        kind: side of the messages, "event" or "interest".
        before: a round.

    Returns:
        The number of messages dropped.

    Raises:
        ParameterError: there is no such store, or `before` is no round.
        DecodeError: the index, or a file, is damaged.
    """
    before = whole("before", before, 0, (1 << 63) - 1, hint="it is a round")
    folder, _ = _store(path, matcher, kind)
    return drop_below(folder, matcher, kind, before)


def provided_rounds(interests: Stores, matcher: Matcher) -> dict[str, range]:
    """List the rounds that subscribers have provided interests for. Runs no job.

    An event of a round for which a subscription has no interest is not answered, and no error says
    so. Give the least of these bounds to the ledger, which foretells that rounds run out.

    Example:
        .. code-block:: python

            provided = cs.provided_rounds(["/data/interests"], matcher)
            # {"alice": range(0, 2)}
            bound = min(rounds.stop for rounds in provided.values())
            allotting = cs.EventLedger("/data/bounded.ledger", rounds=bound)

    Args:
        interests: path of a store of interest messages, from `write_messages`; or several paths.
        matcher: the matcher of the messages; public.

    Returns:
        The rounds of each subscription from its first one to the first gap. Rounds before the first
        one were dropped, or were never there.

    Raises:
        ParameterError: a path has no complete store, or one of another matcher or side.
        RandomnessReuseError: two stores have an interest for one (pair, round).
        DecodeError: an index, or a file, is damaged.
    """
    check_pairs(matcher)
    return without_gaps(indexes(interests, matcher, "interest"))


def check_pairs(matcher: Matcher) -> None:
    """Refuse a matcher whose messages do not belong to pairs and rounds."""
    check_matcher(matcher)
    if matcher.keying is not Keying.ROUNDS:
        raise ParameterError(
            f"message stores hold messages of pairs and rounds, which {type(matcher).__name__} "
            "has not: write its messages as a table, such as Parquet, and call match"
        )


def indexes(paths: Stores, matcher: Matcher, kind: StoreKind) -> Index:
    """Join the indexes of all stores of a side."""
    name = f"{kind}s"
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(several, list | tuple) or not several:
        raise ParameterError(f"{name} must be a path or a URI as text, or several, got {paths!r}")
    folders = [Folder.of(path, name) for path in several]
    if len({folder.path for folder in folders}) < len(folders):
        raise ParameterError(f"{name} names the same store twice")
    read = [Index.read(folder, matcher, kind) for folder in folders]
    if len(read) > 1:
        refuse_twice(read)
    return Index.together(read)


def as_spark(schema: pa.Schema) -> types.StructType:
    """Convert an Arrow schema to Spark's."""
    out = types.StructType()
    for field in schema:
        if pa.types.is_list(field.type):
            element = field.type.value_field
            out.add(field.name, types.ArrayType(_TYPES[element.type], element.nullable))
        else:
            out.add(field.name, _TYPES[field.type])
    return out


def _message_columns(
    df: DataFrame,
    matcher: Matcher,
    kind: StoreKind,
    message: str | None,
    subscription: str | None,
    round: str,
) -> tuple[str, list[str]]:
    """Return the column of messages, and that of subscriptions where there is one.

    The arguments are those of `write_messages`, and are checked.
    """
    _check_side(matcher, kind)
    message = f"{kind}_message" if message is None else message
    labels = ["subscription" if subscription is None else subscription]
    if serves_all(matcher, kind):
        refuse_given(matcher, Keying.ROUNDS, subscription=subscription)
        labels = []
    require(df, [], whole=[round], text=labels, binary=[message], rest=False)
    return message, labels


def _store(path: StorePath, matcher: Matcher, kind: StoreKind) -> tuple[Folder, Index]:
    """Return the folder and the index of a store of this matcher and side."""
    _check_side(matcher, kind)
    folder = Folder.of(path, "path")
    return folder, Index.read(folder, matcher, kind)


def _check_side(matcher: Matcher, kind: str) -> None:
    choice("kind", kind, ("event", "interest"))
    check_pairs(matcher)
