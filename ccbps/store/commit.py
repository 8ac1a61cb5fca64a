"""Changes of a store: one writer takes the next version, and others follow it or are refused.

A writer that replaces a store began from a version, and fails if there is a later one. A writer
that appends, compacts or drops rounds follows all commits made meanwhile. Appended messages form a
generation. Compaction merges all generations that it found into one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccbps.arrays import Bools, Numbers
from ccbps.errors import DecodeError, ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.store.files import MANIFEST, by_part
from ccbps.store.folder import Folder
from ccbps.store.index import About, Index, StoreKind
from ccbps.store.once import without_known
from ccbps.store.plan import dense_runs, lower_bound
from ccbps.store.versions import WriterRun, current, is_claim

_TRIES: Final = 20
_RUNS: Final = 64
"""Number of writer runs that an index names: more than may commit while a run checks whether it
has committed."""
AGAIN: Final = "Write to another folder, or once more with mode='overwrite'"

Change = Callable[[Index], Index | None]
"""Function from the index of a store to its next index; None if the store is changed already."""


class Overtaken(ParameterError):
    """Other runs committed first again and again, or removed a run's parts: it must begin anew."""


def commit(folder: Folder, run: WriterRun, index: Index) -> str | None:
    """Write an index under the name of the run's version, unless another run has.

    Returns:
        None; or the file that stood in the way, so that nothing was changed.
    """
    about = index.about
    runs, store = (*about.runs, run.run)[-_RUNS:], about.store or run.run
    signed = replace(index, about=about._replace(runs=runs, store=store))
    with folder.create(run.draft) as file:
        file.write(_dated(signed, run.version, run.version).to_bytes())
    if {*index.files.parts} <= {*folder.names()}:
        obstacle = folder.publish(run.draft, run.index)
    else:
        # Removed by the commit of another run, or by hand; either way this is no store.
        folder.remove(run.draft)
        other = WriterRun(current(folder)[0])
        obstacle = other.index if other.version else "parts of this one are gone"
    if obstacle is None and current(folder)[0] > run.version:
        # Other runs committed after this version. Or they did long before, and its name was free
        # again, since versions before the last are removed.
        later = Index.read(folder)
        if run.run not in later.about.runs:
            folder.remove(run.index)
            obstacle = WriterRun(later.version).index
    return obstacle


def _dated(index: Index, first: int, last: int) -> Index:
    """Return an index whose new parts name the versions that brought their messages."""
    parts = {
        name: part if any(part.added) else part._replace(added=(first, last))
        for name, part in index.files.parts.items()
    }
    return replace(index, files=replace(index.files, parts=parts))


def _advice(again: str, obstacle: str) -> str:
    """Return advice about an obstacle, for errors."""
    return again + is_claim(obstacle) * ", after removing that file if no other writer is at work"


def renew(folder: Folder, run: WriterRun, index: Index, *, before: int) -> None:
    """Replace the store that a run began from.

    Args:
        folder: folder of the store.
        run: the run.
        index: index of the new store.
        before: files of runs that began below this version are removed.

    Raises:
        ParameterError: another run has committed since this one began.
    """
    void = max(index.about.void, before)
    obstacle = commit(folder, run, replace(index, about=index.about._replace(void=void)))
    if obstacle is not None:
        raise ParameterError(
            f"path={folder.path!r}: another call finished there while this one ran, or is about to "
            f"({obstacle}); nothing of this one is kept. {_advice(AGAIN, obstacle)}"
        )
    with suppress(OSError):
        folder.remove(*run.replaced(folder.names(), index.files.parts, before=before))


def abandon(folder: Folder, run: WriterRun) -> None:
    """Remove the files of a run, unless it has committed."""
    version, names = current(folder)
    kept = Index.read(folder).files.parts if version else {}
    folder.remove(*(name for name in run.left(names) if name not in kept))


def append(
    folder: Folder,
    run: WriterRun,
    change: Change,
    matcher: Matcher,
    kind: StoreKind,
    *,
    party: int | None = None,
    own: Collection[str] = (),
    before: int = 0,
) -> Index | None:
    """Change a store, after all commits that other runs make meanwhile.

    Args:
        folder: folder of the store.
        run: the run.
        change: the change. It is called once or more, with an empty store if there is none.
        matcher: matcher of the messages.
        kind: side of the messages.
        party: number of the broker whose parts of messages the store must hold; None for any.
        own: parts that the run has written.
        before: files of runs that began below this version are removed; 0 for none.

    Returns:
        the new store; None if it was changed already.

    Raises:
        Overtaken: other runs committed first again and again, or removed the run's own parts.
        ParameterError: `change` raises it.
    """
    obstacle = ""
    for _ in range(_TRIES):
        if current(folder)[0]:
            now = Index.read(folder, matcher, kind, party)
        else:
            now = Index.of(folder, About.of(matcher, kind, party), MANIFEST.empty_table())
        if own and run.version < now.about.void:
            obstacle = WriterRun(now.version).index
            break
        try:
            index = change(now)
        except DecodeError:
            obstacle = WriterRun(now.version).index
            if current(folder)[0] == now.version:
                raise
            continue  # a compaction has removed a part that was looked into
        if index is None:
            return None
        void = max(now.about.void, before)
        attempt = run.after(now.version)
        changed = replace(index, about=index.about._replace(void=void))
        obstacle = commit(folder, attempt, changed) or ""
        if not obstacle:
            dropped = [name for name in now.files.parts if name not in index.files.parts]
            with suppress(OSError):
                gone = attempt.replaced(folder.names(), index.files.parts, before=before)
                folder.remove(*gone, *dropped)
            return index
        if not {*own} <= {*folder.names()}:
            break
    raise Overtaken(
        f"path={folder.path!r}: others finished there while this one ran ({obstacle}); nothing of "
        f"this one is kept. {_advice('Call it once more', obstacle)}"
    )


def add_generation(
    folder: Folder,
    run: WriterRun,
    fresh: Index,
    matcher: Matcher,
    batch: tuple[str, int] | None,
) -> None:
    """Add the messages of a run, unless the store has that batch of a stream, or a later one.

    Args:
        folder: folder of the store.
        run: the run.
        fresh: index of its parts.
        matcher: matcher of the messages.
        batch: name of the stream and number of the batch; None if there is no stream.

    Raises:
        ParameterError: a round was dropped; or see `append`.
        RandomnessReuseError: the store has another message for a pair and round.
    """

    def added(now: Index) -> Index | None:
        batches = dict(now.about.batches)
        if batch is not None:
            if batches.get(batch[0], -1) >= batch[1]:
                return None
            batches[batch[0]] = batch[1]
        new = without_known(now, fresh)
        low = new.first.min(initial=now.about.floor)
        if low < now.about.floor:
            raise ParameterError(
                f"path={folder.path!r}: nothing was written: round {low} is below "
                f"{now.about.floor}, and rounds below that were dropped"
            )
        return replace(Index.together([now, new]), about=now.about._replace(batches=batches))

    kind, party = fresh.about.kind, fresh.about.party
    if append(folder, run, added, matcher, kind, party=party, own=fresh.parts) is None:
        abandon(folder, run)


def drop_below(folder: Folder, matcher: Matcher, kind: StoreKind, before: int) -> int:
    """Drop rounds below `before`, and refuse such rounds from now on.

    Returns:
        number of messages that were dropped.
    """
    dropped = 0

    def cut(now: Index) -> Index:
        nonlocal dropped
        left = _from_round(now, before)
        dropped = int((now.stop - now.start).sum() - (left.stop - left.start).sum())
        return replace(left, about=now.about._replace(floor=max(now.about.floor, before)))

    append(folder, WriterRun(1), cut, matcher, kind)
    return dropped


def drop_labels(folder: Folder, matcher: Matcher, kind: StoreKind, labels: Collection[str]) -> int:
    """Drop the messages of subscriptions, which may be added again.

    Returns:
        number of messages that were dropped.
    """
    dropped = 0

    def cut(now: Index) -> Index:
        nonlocal dropped
        gone = _labelled(now, pa.array(labels, pa.string()))
        dropped = int((now.stop - now.start)[gone].sum())
        return now.keeping(~gone)

    append(folder, WriterRun(1), cut, matcher, kind)
    return dropped


def _labelled(index: Index, labels: pa.Array) -> Bools:
    """Mark the runs of some subscriptions, shape (runs,)."""
    runs: Bools = pc.is_in(index.subscription, labels).to_numpy(zero_copy_only=False)
    return runs


def _from_round(index: Index, floor: int) -> Index:
    """Return an index without rounds below `floor`. It reads the rounds of runs that have gaps."""
    start, first, dense = index.start.copy(), index.first.copy(), dense_runs(index)
    cut = (first < floor) & (index.last >= floor)
    whole = cut & dense
    start[whole] += floor - first[whole]
    first[whole] = floor
    runs = np.flatnonzero(cut & ~dense)
    readers = by_part(lambda n: index.files.reader(index.parts[n]), index.part[runs], runs)
    for reader, _, own in readers:
        floors = np.full(len(own), floor)
        start[own] = lower_bound(reader.rounds, start[own], index.stop[own], floors)
        first[own] = reader.rounds[start[own]]
    return replace(index, start=start, first=first).keeping(index.last >= floor)


def replace_generations(
    folder: Folder, run: WriterRun, now: Index, manifest: pa.Table, matcher: Matcher
) -> None:
    """Replace the generations of a store by the parts into which tasks have merged them.

    Generations that other runs added meanwhile stay. Rounds and subscriptions that other runs
    dropped meanwhile are dropped.

    Args:
        folder: folder of the store.
        run: the run.
        now: the store that the tasks read.
        manifest: reports of the tasks.
        matcher: matcher of the messages.

    Raises:
        ParameterError: a task has a problem; or another run has compacted or replaced the store.
    """
    added = [version for part in now.files.parts.values() for version in part.added]
    merged = _dated(Index.of(folder, now.about, manifest), min(added), max(added))

    def merge(later: Index) -> Index:
        floor = later.about.floor
        if not {*now.keeping(now.last >= floor).parts} <= {*later.parts}:
            raise ParameterError(
                f"path={folder.path!r}: another call compacted or replaced the store, or dropped "
                "all messages of a file, while this one ran; nothing of this one is kept. Compact "
                "once more"
            )
        old = np.array([name in now.files.parts for name in later.parts], dtype=np.bool_)
        new, left = later.keeping(~old[later.part]), _from_round(merged, floor)
        if not later.about.rounds:
            left = left.keeping(_labelled(left, later.keeping(old[later.part]).subscription))
        return replace(Index.together([left, new]), about=later.about)

    append(folder, run, merge, matcher, now.about.kind, own=merged.parts, before=run.version)


def without_gaps(index: Index) -> dict[str, range]:
    """Return the rounds of each subscription, from its first one to the first gap.

    It reads the rounds of runs that have gaps, and no other messages.
    """
    dense = dense_runs(index)
    whole = np.flatnonzero(dense)
    runs, firsts, lasts = [whole], [index.first[whole]], [index.last[whole]]
    others = np.flatnonzero(~dense)

    @lru_cache(maxsize=1)
    def rounds_of(part: int) -> Numbers:
        return index.files.reader(index.parts[part]).rounds

    for run in others[np.argsort(index.part[others])].tolist():
        rounds = rounds_of(index.part[run])[index.start[run] : index.stop[run]]
        gaps = np.flatnonzero(np.diff(rounds) != 1)
        firsts.append(rounds[np.append(0, gaps + 1)])
        lasts.append(rounds[np.append(gaps, len(rounds) - 1)])
        runs.append(np.full(len(gaps) + 1, run))
    first, last = np.concatenate(firsts), np.concatenate(lasts)
    order = np.argsort(first)
    names = index.subscription.take(pa.array(np.concatenate(runs)[order])).to_pylist()
    provided: dict[str, range] = {}
    for name, low, high in zip(names, first[order].tolist(), last[order].tolist(), strict=True):
        before = provided.setdefault(name, range(low, high + 1))
        if low <= before.stop:
            provided[name] = range(before.start, max(before.stop, high + 1))
    return provided
