"""Stores that have grown: generations put together, and old rounds dropped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ccbps.errors import ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.spark.frames import check_partitions
from ccbps.spark.store_tables import Stores, as_spark, check_kind, check_pairs, indexes
from ccbps.spark.workers import on_worker
from ccbps.store.commit import abandon, drop_below, replace_generations, without_gaps
from ccbps.store.files import MANIFEST, write_part
from ccbps.store.folder import Folder
from ccbps.store.index import Index, StoreKind
from ccbps.store.merging import merged_rows, plan_merge
from ccbps.store.versions import WriterRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of messages in a file that compaction writes, about.
_PART_BYTES: Final = 256 << 20


def compact_messages(
    spark: SparkSession,
    path: str | os.PathLike[str],
    matcher: Matcher,
    *,
    kind: StoreKind,
    partitions: int | None = None,
) -> None:
    """Put the generations of a store together, in as few files as their size allows.

    Runs one job, whose tasks read and write files by themselves; messages do not pass through
    Spark, and their checksums are compared. Who matches at that time may find files gone, and
    starts again; who appends waits for nobody, but who began several commits before is told to
    append once more.

    Example:
        .. code-block:: python

            cs.compact_messages(spark, "/data/events", matcher, kind="event")

    Args:
        path: of a store, from `write_messages`.
        matcher: public.
        kind: "event" or "interest": which side's messages it holds.
        partitions: files at most; by default one for each 256 MiB.

    Raises:
        ParameterError: there is no such store; or another call changed it while this one ran.
            Nothing of this call is left.
        DecodeError: the index is damaged; or (as the cause of Spark's error) a file is.
    """
    check_partitions(partitions)
    folder, now = _store(path, matcher, kind)
    if not now.files.parts:
        return
    run, files, about = WriterRun(now.version + 1), now.files, now.about
    size = int((now.stop - now.start).sum()) * about.width
    tasks = max(1, size // _PART_BYTES) if partitions is None else partitions

    @on_worker
    def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in (one for batch in batches for one in batch.column(0).to_pylist()):
            rows = merged_rows(files, piece, about.floor)
            yield write_part(folder, run.stem, about.width, rows)

    pieces = spark.createDataFrame(plan_merge(now, tasks), "runs binary")
    try:
        manifest = pieces.mapInArrow(merge, as_spark(MANIFEST)).toArrow()
        replace_generations(folder, run, now, manifest)
    except BaseException:
        abandon(folder, run)
        raise


def drop_rounds(
    path: str | os.PathLike[str], matcher: Matcher, *, kind: StoreKind, before: int
) -> int:
    """Drop messages of rounds below `before`, and refuse such rounds from now on.

    A run, messages of one subscription that a generation has one after the other, is dropped when
    all its rounds are below; one that goes beyond stays whole, until the store is compacted. A file
    is removed when none of its runs is left. Runs no job.

    Example:
        .. code-block:: python

            gone = cs.drop_rounds("/data/events", matcher, kind="event", before=1_000_000)

    Args:
        path: of a store, from `write_messages`.
        matcher: public.
        kind: "event" or "interest": which side's messages it holds.
        before: a round.

    Returns:
        messages dropped.

    Raises:
        ParameterError: there is no such store, or `before` is no round.
        DecodeError: the index is damaged.
    """
    if type(before) is not int or not 0 <= before < 1 << 63:
        raise ParameterError(f"before must be a round, a whole number from 0 on, got {before!r}")
    folder, _ = _store(path, matcher, kind)
    return drop_below(folder, matcher, kind, before)


def provided_rounds(interests: Stores, matcher: Matcher) -> dict[str, range]:
    """List the rounds that subscribers have provided interests for. Runs no job.

    An event of a round for which a subscription has no interest is not answered, and nobody says
    so. Give the least of these bounds to the ledger, which foretells that rounds run out.

    Example:
        .. code-block:: python

            provided = cs.provided_rounds(["/data/interests"], matcher)
            # {"alice": range(0, 2)}
            bound = min(rounds.stop for rounds in provided.values())
            allotting = cs.EventLedger("/data/bounded.ledger", rounds=bound)

    Args:
        interests: path of a store of interest messages, from `write_messages`; or of several.
        matcher: public.

    Returns:
        of each subscription the rounds from its first one (those before were dropped, or were
        never there) to the first gap.

    Raises:
        ParameterError: a path has no complete store, or one of another matcher or side.
        RandomnessReuseError: two stores have an interest for one (pair, round).
        DecodeError: an index, or a file, is damaged.
    """
    check_pairs(matcher)
    return without_gaps(indexes(interests, matcher, "interest"))


def _store(path: str | os.PathLike[str], matcher: Matcher, kind: StoreKind) -> tuple[Folder, Index]:
    """Return the folder and the index of a store of this matcher and side."""
    check_kind(kind)
    check_pairs(matcher)
    folder = Folder.of(path, "path")
    return folder, Index.read(folder, matcher, kind)
