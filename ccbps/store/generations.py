"""What happens to a store that grows: a generation is added, old rounds go, all become one."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ccbps.arrays import Numbers
from ccbps.errors import ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.store.commit import abandon, append, dated, renew
from ccbps.store.folder import Folder
from ccbps.store.index import Index, StoreKind
from ccbps.store.manifest import collected
from ccbps.store.once import without_known
from ccbps.store.plan import dense_runs
from ccbps.store.versions import WriterRun


def add_generation(
    folder: Folder,
    run: WriterRun,
    fresh: Index,
    matcher: Matcher,
    batch: tuple[str, int] | None,
) -> None:
    """Add what a run has written, unless the store has that batch of a stream, or a later one.

    Raises:
        ParameterError: a round was dropped; or see `append`.
        RandomnessReuseError: see `ccbps.store.once`.
    """

    def added(now: Index) -> Index | None:
        last = dict(now.about.batches)
        if batch is not None:
            if last.get(batch[0], -1) >= batch[1]:
                return None
            last[batch[0]] = batch[1]
        new = without_known(now, fresh)
        low = new.first.min(initial=now.about.floor)
        if low < now.about.floor:
            raise ParameterError(
                f"path={folder.path!r}: nothing was written: round {low} is below "
                f"{now.about.floor}, and rounds below that were dropped"
            )
        both = Index.together([now, new])
        return replace(both, about=now.about._replace(batches=last))

    if append(folder, run, added, matcher, fresh.about.kind) is None:
        abandon(folder, run)


def drop_below(folder: Folder, matcher: Matcher, kind: StoreKind, before: int) -> int:
    """Drop runs all of whose rounds are below `before`, and refuse such rounds from now on.

    Returns:
        messages dropped.
    """
    dropped = 0

    def cut(now: Index) -> Index:
        nonlocal dropped
        stay = now.last >= before
        dropped = int((now.stop - now.start)[~stay].sum())
        about = now.about._replace(floor=max(now.about.floor, before))
        return replace(now.keeping(stay), about=about)

    append(folder, WriterRun(1), cut, matcher, kind)
    return dropped


def replace_generations(folder: Folder, run: WriterRun, now: Index, manifest: pa.Table) -> None:
    """Replace all generations of the store by the parts into which tasks have merged them.

    Raises:
        ParameterError: a task has a problem; or see `renew`.
    """
    merged = collected(folder, now.about, manifest)
    added = [version for part in now.files.parts.values() for version in part.added]
    renew(
        folder,
        run,
        dated(merged, min(added), max(added)),
        before=run.version,
        instead="Compact once more",
    )


def without_gaps(index: Index) -> dict[str, range]:
    """Of each subscription the rounds from its first one to the first gap. Reads rounds of runs
    that have gaps, and nothing elsewhere."""
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
    found: dict[str, range] = {}
    for name, a, b in zip(names, first[order].tolist(), last[order].tolist(), strict=True):
        known = found.setdefault(name, range(a, b + 1))
        if a <= known.stop:
            found[name] = range(known.start, max(known.stop, b + 1))
    return found
