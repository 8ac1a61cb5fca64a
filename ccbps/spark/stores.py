"""Message stores in DataFrames: written, checked before, compacted, and freed of old messages.

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
from ccbps.keys.plain_key import PARTIES
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Keying
from ccbps.spark.columns import AGAIN, NUMBER_REPEATED, REPEATED, column, mark_repeated
from ccbps.spark.encoding import broker_columns
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
    drop_labels,
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

MOST_ROUND: Final = (1 << 63) - 1
"""Greatest round, which `drop_rounds` never drops."""
_TRIES: Final = 5
"""Number of times that an append is written, if others remove its files."""
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
    party: int | None = None,
    message: str | None = None,
    subscription: str | None = None,
    round: str | None = None,
    mode: Literal["error", "overwrite", "append"] = "error",
    batch: tuple[str, int] | None = None,
    partitions: int | None = None,
) -> None:
    """Write messages as a store, which `match_messages` or `match_shares` reads.

    This runs one job. With events that are for all subscriptions, another one runs before it, which
    computes `df` to see how its rounds are spread.

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

        With three brokers, the stores of operator 1:

        .. code-block:: python

            cs.write_messages(sent, "/data/sent-1", three, kind="event", party=1, round="event")
            cs.write_messages(asked, "/data/asked-1", three, kind="interest", party=1)

    Args:
        df: the messages, with their subscriptions and rounds, where these apply. Other columns are
            not kept.
        path: folder, or its URI, which driver and workers must see under the same path.
        matcher: the matcher of the messages; public.
        kind: side of the messages, "event" or "interest".
        party: number of the broker whose messages these are: 0, 1 or 2. It applies with three
            brokers only (`Answers.TOGETHER`), and is required there: each operator has its stores.
        message: binary column with messages; None for "event_message" or "interest_message", or
            with three brokers for "broker_0", "broker_1" or "broker_2".
        subscription: string column with the label of the pair; None for "subscription". It does
            not apply to events that are for all subscriptions, as those of `BroadcastMatch` and
            `ThreeBrokerMatch`: there is one event for each round, and each file has a range of
            rounds.
        round: column with the round, a whole number; None for "round". With three brokers, the
            round of an event is any number that names it. That of an interest is any number that
            grows with time, at which the interest ends: see `drop_rounds`. There None is for
            interests without an end, whose round is the greatest one, 2^63 - 1.
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
            the folder is not empty or cannot be made, or holds a store of another matcher, side or
            broker; a row has a NULL, a negative round, one that `drop_rounds` dropped, or a message
            of another width; a (pair, round), or a round of events for all subscriptions, comes
            with two messages (the same one twice is kept once); an earlier batch of a stream comes
            after a later one; or another call finished a store there while this one ran. Nothing of
            this call is left. Where rows come from others, set such rows aside before, with
            `check_messages`.
        RandomnessReuseError: with "append", the store has another message for a (pair, round), or
            for a round of a broadcast's events. (With three brokers, this is a ParameterError.)
            Nothing of this call is left. A message that the store has already, as where a stream's
            source sends it again, is kept once.
    """
    check_mode(mode, batch)
    message, labels, rounds = _message_columns(
        df, matcher, kind, party, message, subscription, round
    )
    messages = df.select(
        (column(rounds[0]) if rounds else F.lit(MOST_ROUND)).cast("long").alias("round"),
        column(message).alias("message"),
        *[column(name).alias("subscription") for name in labels],
    )
    partitions = check_partitions(partitions)
    # However many messages a subscription has, several tasks write them.
    spread = messages.repartition if labels else messages.repartitionByRange
    by = ["subscription", F.shiftright("round", SPAN_BITS)] if labels else ["round"]
    parts = spread(*by) if partitions is None else spread(partitions, *by)
    ordered = parts.sortWithinPartitions(*["subscription"] * len(labels), "round")
    save_parts(ordered, path, matcher, kind, mode, batch, _as_they_are, party)


def _as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.Array]]:
    return (batch.columns for batch in batches)


def check_mode(mode: str, batch: tuple[str, int] | None = None) -> None:
    """Refuse an impossible mode or batch; see `write_messages`."""
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
    party: int | None = None,
) -> None:
    """Write the messages that tasks make from rows as a store, a part for each task. Runs one job.

    Args:
        rows: the rows, spread over tasks and in order.
        path: path of the store.
        matcher: the matcher of the messages; public.
        kind: side of the messages.
        mode: treatment of a store that is there; see `write_messages`.
        batch: name of a stream and number of its batch; see `write_messages`.
        contents: function from a task's batches of rows to columns of its part.
        party: number of the broker whose parts of messages these are; None for whole messages.

    Raises:
        ParameterError, RandomnessReuseError: see `write_messages`.
    """
    if rows.isStreaming:
        raise ParameterError(
            "a stream is written batch by batch: call this in foreachBatch, with mode='append' and "
            "batch=(a name, the batch's number)"
        )
    folder, about = Folder.of(path, "path"), About.of(matcher, kind, party)
    version, names = current(folder)
    if not all(map(is_unfinished, names)):
        if mode == "error":
            raise ParameterError(
                f"path={folder.path!r} is not empty; choose another folder, or mode='overwrite'"
            )
        if mode == "append" and not version:
            raise ParameterError(f"path={folder.path!r} holds files, and no store to append to")
    if mode == "append" and version:
        before = Index.read(folder, matcher, kind, party)
        last = -1 if batch is None else before.about.batches.get(batch[0], -1)
        if batch is not None and last > batch[1]:
            raise ParameterError(
                f"batch={batch!r} comes after number {last} of that stream, which the store has. "
                "If the stream begins anew, with another checkpoint, give it another name"
            )
        if batch is not None and last == batch[1]:
            # Computed all the same: a stream with state, such as one of dropDuplicates, goes on
            # from the state that a batch leaves, and fails where that was not computed.
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
            # A compaction has removed the files of a slow writer: they are written again.
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
        store = Index.read(folder, matcher, kind, fresh.about.party).about.store
        return replace(fresh, about=fresh.about._replace(store=store))
    return fresh


def check_messages(
    df: DataFrame,
    matcher: Matcher,
    *,
    kind: StoreKind,
    party: int | None = None,
    message: str | None = None,
    subscription: str | None = None,
    round: str | None = None,
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
        df: the messages, as for `write_messages`; not a stream, since repeated rows are searched:
            call it in ``foreachBatch``.
        matcher: the matcher of the messages; public.
        kind: side of the messages, "event" or "interest".
        party: number of the broker whose messages these are; see `write_messages`.
        message: binary column with messages; see `write_messages`.
        subscription: string column with the label of the pair; see `write_messages`.
        round: column with the round, a whole number; see `write_messages`.

    Returns:
        All columns of `df`, and "rejected", which is NULL where nothing is wrong. It says that a
        column is NULL, that a round is negative, that a message has another width, side or version,
        or that the pair and round occurs more than once, with different messages. In the last case
        all such rows are rejected, since any of them may be the right one. Of equal messages,
        `write_messages` keeps one. Spark alone computes this, in one shuffle.

    Raises:
        ParameterError: a column is missing or of the wrong type, or `subscription` does not apply;
            `df` is a stream, or has a column "rejected".
    """
    message, labels, rounds = _message_columns(
        df, matcher, kind, party, message, subscription, round
    )
    refuse_rejected(df.columns)
    side, other_width, other_kind = _CAUSES[kind]
    ids, content = [*labels, *rounds], column(message)
    again = REPEATED if labels else NUMBER_REPEATED
    first = round_kind(side) if party is None else side
    width = F.octet_length(content) == message_width(matcher, kind, party)
    begun = F.substring(content, 1, 1) == F.lit(bytes([first]))
    problems = {
        **{f"column {name!r} is NULL": column(name).isNull() for name in (*ids, message)},
        **{f"column {name!r} is negative": column(name) < 0 for name in rounds},
        other_width.text: ~width,
        other_kind.text: ~begun,
        again: column(AGAIN),
    }
    why = F.coalesce(*[F.when(condition, F.lit(text)) for text, condition in problems.items()])
    # Malformed messages do not count, or anybody could have a well-formed one set aside.
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

        With three brokers, interests that have ended, where the rounds of interests are days:

        .. code-block:: python

            ended = cs.drop_rounds("/data/asked-1", three, kind="interest", before=20_783)

    Args:
        path: path of a store, from `write_messages`.
        matcher: the matcher of the messages; public.
        kind: side of the messages, "event" or "interest".
        before: first round that is kept.

    Returns:
        The number of messages dropped.

    Raises:
        ParameterError: there is no such store, or `before` is no round.
        DecodeError: the index, or a file, is damaged.
    """
    before = whole("before", before, 0, MOST_ROUND, hint="it is a round")
    folder, _ = _store(path, matcher, kind)
    return drop_below(folder, matcher, kind, before)


def drop_interests(path: StorePath, matcher: Matcher, subscriptions: Sequence[str]) -> int:
    """Drop the interests of subscriptions from a store of one of three brokers.

    They are dropped in the index, as `drop_rounds` does: this runs no job, and the next compaction
    removes them from files. A subscription may have another interest afterwards. All three
    operators drop the same ones.

    Example:
        .. code-block:: python

            gone = cs.drop_interests("/data/asked-1", three, ["alice"])

    Args:
        path: path of a store of interests, from `write_messages`.
        matcher: the matcher of the messages; public. It has three brokers (`Answers.TOGETHER`).
        subscriptions: names of subscriptions. Those that the store does not have are ignored.

    Returns:
        The number of interests dropped.

    Raises:
        ParameterError: there is no such store, `subscriptions` is no list of names, or the matcher
            is of another kind: an interest for one round is not replaced by another.
        DecodeError: the index is damaged.
    """
    check_matcher(matcher)
    if matcher.keying is not Keying.BROKERS:
        refuse_given(matcher, matcher.keying, subscriptions=subscriptions)
    if isinstance(subscriptions, str) or not all(isinstance(name, str) for name in subscriptions):
        raise ParameterError(f"subscriptions must be a list of names, got {subscriptions!r}")
    folder, _ = _store(path, matcher, "interest")
    return drop_labels(folder, matcher, "interest", list(subscriptions))


def provided_rounds(interests: Stores, matcher: Matcher) -> dict[str, range]:
    """List the rounds that subscribers have provided interests for. Runs no job.

    An event of a round for which a subscription has no interest gets no answer, and no error. Give
    the least end of these ranges to the ledger, which warns before the rounds run out.

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
    _check_stored(matcher)
    if matcher.keying is not Keying.ROUNDS:
        raise ParameterError(
            f"messages of {type(matcher).__name__} have no pairs and rounds: call encode_events or "
            "encode_interests, write_messages for each broker, and match_shares"
        )


def _check_stored(matcher: Matcher) -> None:
    """Refuse a matcher whose messages do not go into stores."""
    check_matcher(matcher)
    if matcher.keying not in (Keying.ROUNDS, Keying.BROKERS):
        raise ParameterError(
            f"message stores hold messages of pairs and rounds, which {type(matcher).__name__} "
            "has not: write its messages as a table, such as Parquet, and call match"
        )


def indexes(paths: Stores, matcher: Matcher, kind: StoreKind, party: int | None = None) -> Index:
    """Join the indexes of all stores of a side."""
    name = f"{kind}s"
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(several, list | tuple) or not several:
        raise ParameterError(f"{name} must be a path or a URI as text, or several, got {paths!r}")
    folders = [Folder.of(path, name) for path in several]
    if len({folder.path for folder in folders}) < len(folders):
        raise ParameterError(f"{name} names the same store twice")
    read = [Index.read(folder, matcher, kind, party) for folder in folders]
    if len(read) > 1:
        refuse_twice(read)
    return Index.together(read)


def pieces_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return pieces of work as a DataFrame, so that those of a large plan go to several tasks."""
    # A plan that is large has a task for each chunk.
    chunks = [table.slice(row, 1) for row in range(len(table))] or [table]
    return spark.createDataFrame(pa.concat_tables(chunks), as_spark(table.schema))


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
    party: int | None,
    message: str | None,
    subscription: str | None,
    round: str | None,
) -> tuple[str, list[str], list[str]]:
    """Return the columns of messages and, where there are any, of subscriptions and of rounds.

    The arguments are those of `write_messages`, and are checked.
    """
    _check_side(matcher, kind)
    shared, usual = matcher.keying is Keying.BROKERS, f"{kind}_message"
    if shared:
        usual = broker_columns()[whole("party", party, 0, PARTIES - 1)]
    else:
        refuse_given(matcher, matcher.keying, party=party)
    message = usual if message is None else message
    labels = ["subscription" if subscription is None else subscription]
    rounds = ["round" if round is None else round]
    if serves_all(matcher, kind):
        because = "its events are for all subscriptions" if shared else Keying.ROUNDS
        refuse_given(matcher, because, subscription=subscription)
        labels = []
    elif shared and round is None:
        rounds = []
    require(df, [], whole=rounds, text=labels, binary=[message], rest=False)
    return message, labels, rounds


def _store(path: StorePath, matcher: Matcher, kind: StoreKind) -> tuple[Folder, Index]:
    """Return the folder and the index of a store of this matcher and side."""
    _check_side(matcher, kind)
    folder = Folder.of(path, "path")
    return folder, Index.read(folder, matcher, kind)


def _check_side(matcher: Matcher, kind: str) -> None:
    choice("kind", kind, ("event", "interest"))
    _check_stored(matcher)
