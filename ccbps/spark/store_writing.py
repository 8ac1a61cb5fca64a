"""Message stores written: Spark moves messages once, here.

A store grows by generations: each call with ``mode="append"`` adds some files and a new index, and
changes no file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.errors import CcbpsError, ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.spark.columns import column
from ccbps.spark.frames import check_partitions
from ccbps.spark.store_tables import as_spark, message_columns
from ccbps.spark.workers import on_worker
from ccbps.store.commit import abandon, add_generation, renew
from ccbps.store.files import MANIFEST, write_part
from ccbps.store.folder import Folder
from ccbps.store.index import About, Index, StoreKind
from ccbps.store.versions import WriterRun, current, is_unfinished

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPAN_BITS: Final = 16
"""2^16 rounds of a subscription, or those that there are of these, are written by one task."""


def write_messages(
    df: DataFrame,
    path: str | os.PathLike[str],
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

    Runs one job; with the events of a broadcast another one before it, which computes `df` to see
    how its rounds are spread.

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
        df: has `subscription`, where it applies, `round` and `message`; other columns are not kept.
        path: a folder, or its URI, which driver and workers must see under the same path.
        matcher: whose messages these are; public.
        kind: "event" or "interest": which side's messages these are.
        message: binary column with messages; by default "event_message" or "interest_message".
        subscription: string column with the label of the pair; None for "subscription". It does
            not apply to the events of a broadcast, such as `BroadcastMatch`: there is one for each
            round, and each file has a range of rounds.
        round: column with the round, a whole number.
        mode: "error" refuses a folder that is not empty, apart from what unfinished writers left;
            "overwrite" replaces a store once the new one is complete; "append" adds a generation to
            a store, or makes one. Several may append at once.
        batch: with "append", a stream's name and the number of its batch: the last batch that is
            there, if it comes again, is computed (a stream's state may need it), and not written
            again. A stream that begins anew, with another checkpoint, needs another name.
        partitions: tasks, and files at most; by default as many as Spark chooses. Two stores of the
            same pairs with the same number are laid out alike.

    Raises:
        ParameterError: a column is missing or of the wrong type, or `subscription` does not apply;
            the folder is not empty or cannot be made, or holds a store of another matcher or side;
            a row has a NULL, a negative round, one that `drop_rounds` dropped, or a message of
            another width; a (pair, round), or a round of a broadcast's events, comes with two
            messages (the same one twice is kept once); an earlier batch of a stream comes after a
            later one; another call finished a store there while this one ran. Nothing of this call
            is left. Where rows come from others, set such rows aside before: see `check_messages`.
        RandomnessReuseError: with "append", the store has another message for a (pair, round), or
            for a round of a broadcast's events. (What it has already, as where a stream's source
            sends it again, is kept once.) Nothing is left, either.
    """
    if mode not in ("error", "overwrite", "append"):
        raise ParameterError(f"mode must be 'error', 'overwrite' or 'append', got {mode!r}")
    message, labels = message_columns(df, matcher, kind, message, subscription, round)
    by_round = not labels
    _check_batch(batch, mode)
    if df.isStreaming:
        raise ParameterError(
            "a stream is written batch by batch: call this in foreachBatch, with mode='append' and "
            "batch=(a name, the batch's number)"
        )
    check_partitions(partitions)
    folder, about = Folder.of(path, "path"), About.of(matcher, kind)
    version, found = current(folder)
    _check_folder(folder, version, found, mode)
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
            df.write.format("noop").mode("overwrite").save()
            return
    folder.make("path")
    run = WriterRun(version + 1)

    @on_worker
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield write_part(folder, run.stem, about.width, (batch.columns for batch in batches))

    chosen = df.select(
        column(round).cast("long").alias("round"),
        column(message).alias("message"),
        *[column(name).alias("subscription") for name in labels],
    )
    spread = chosen.repartitionByRange if by_round else chosen.repartition
    # However many messages a subscription has, several tasks write them.
    by = ["round"] if by_round else ["subscription", F.shiftright("round", SPAN_BITS)]
    parts = spread(*by) if partitions is None else spread(partitions, *by)
    ordered = parts.sortWithinPartitions(*["subscription"] * (not by_round), "round")
    try:
        manifest = ordered.mapInArrow(write, as_spark(MANIFEST)).toArrow()
        fresh = Index.of(folder, about, manifest)
        if mode == "overwrite" and version:
            fresh = _in_place(fresh, folder, matcher, kind)
        if mode != "append":
            renew(folder, run, fresh, before=run.version + 1)
        elif len(fresh.part) or batch is not None:
            add_generation(folder, run, fresh, matcher, batch)
    except BaseException:
        abandon(folder, run)
        raise


def _in_place(fresh: Index, folder: Folder, matcher: Matcher, kind: StoreKind) -> Index:
    """Give a store the identity of the one that it replaces, for streams that read it."""
    with suppress(CcbpsError):  # it is another matcher's, or damaged
        store = Index.read(folder, matcher, kind).about.store
        return replace(fresh, about=fresh.about._replace(store=store))
    return fresh


def _check_batch(batch: tuple[str, int] | None, mode: str) -> None:
    if batch is None:
        return
    if mode != "append":
        raise ParameterError("batch= is for mode='append'")
    if (
        not isinstance(batch, tuple)
        or [type(part) for part in batch] != [str, int]
        or not batch[0]
        or batch[1] < 0
    ):
        raise ParameterError(
            f"batch must be a stream's name and the number of its batch, such as ('quotes', 17), "
            f"got {batch!r}"
        )


def _check_folder(folder: Folder, version: int, found: list[str], mode: str) -> None:
    others = not all(map(is_unfinished, found))
    if mode == "error" and others:
        raise ParameterError(
            f"path={folder.path!r} is not empty; choose another folder, or mode='overwrite'"
        )
    if mode == "append" and others and not version:
        raise ParameterError(f"path={folder.path!r} holds files, and no store to append to")
