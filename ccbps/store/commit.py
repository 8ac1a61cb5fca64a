"""How a store changes: one writer takes the next version; others are told, or come after it.

Whoever writes a whole store, or compacts one, began from a version, and fails if there is a later
one. Whoever appends, or drops rounds, comes after whatever was committed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ccbps.errors import DecodeError, ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.store.files import RUNS
from ccbps.store.folder import Folder
from ccbps.store.index import About, Index, StoreKind
from ccbps.store.versions import WriterRun, current, is_claim

_TRIES: Final = 20
# Runs that an index names: more than may commit while one looks whether it has.
_RUNS: Final = 64

AGAIN: Final = "Write to another folder, or once more with mode='overwrite'"

Change = Callable[[Index], Index | None]
"""What a store is to become; None for: it is that already."""


def commit(folder: Folder, run: WriterRun, index: Index) -> str | None:
    """Write an index under the name of the run's version, unless somebody else has.

    Returns:
        None; or what stood in the way, and nothing is changed.
    """
    with folder.create(run.draft) as file:
        file.write(_signed(dated(index, run.version, run.version), run).to_bytes())
    names = folder.names()
    if set(index.files.parts) <= set(names):
        obstacle = folder.publish(run.draft, run.index)
    else:
        # Removed by the commit of another run, or by hand; either way this is no store.
        folder.remove(run.draft)
        other = WriterRun(current(folder)[0])
        obstacle = other.index if other.version else "parts of this one are gone"
    if obstacle is None and current(folder)[0] > run.version:
        # Others came after this version; or long before, and its name was free again, since
        # versions before the last are removed.
        later = Index.read(folder)
        if run.run not in later.about.runs:
            folder.remove(run.index)
            obstacle = WriterRun(later.version).index
    return obstacle


def _signed(index: Index, run: WriterRun) -> Index:
    """The index, which says that this run has committed."""
    runs, store = (*index.about.runs, run.run)[-_RUNS:], index.about.store or run.run
    return replace(index, about=index.about._replace(runs=runs, store=store))


def renew(
    folder: Folder, run: WriterRun, index: Index, *, before: int, instead: str = AGAIN
) -> None:
    """Replace the store that the run began from, and remove what was begun below version `before`.

    Args:
        instead: what to do if another run was first, for the error.

    Raises:
        ParameterError: another run has committed since this one began.
    """
    void = max(index.about.void, before)
    obstacle = commit(folder, run, replace(index, about=index.about._replace(void=void)))
    if obstacle is not None:
        raise ParameterError(
            f"path={folder.path!r}: another call finished there while this one ran, or is about to "
            f"({obstacle}); nothing of this one is kept. {instead}"
            + is_claim(obstacle)
            * ", after removing that file if no other writer is at work"
        )
    with suppress(OSError):
        folder.remove(*run.replaced(folder.names(), index.files.parts, before=before))


def abandon(folder: Folder, run: WriterRun) -> None:
    """Remove what a run made, unless it has committed."""
    version, names = current(folder)
    kept = Index.read(folder).files.parts if version else {}
    folder.remove(*(name for name in run.left(names) if name not in kept))


def append(
    folder: Folder, run: WriterRun, change: Change, matcher: Matcher, kind: StoreKind
) -> Index | None:
    """Change a store, after whatever others commit meanwhile.

    Args:
        change: called with the store, an empty one if there is none, once or more.

    Returns:
        the store; None if it was changed already.

    Raises:
        ParameterError: others came first again and again; what this run wrote was removed; or, by
            `change`.
    """
    obstacle = ""
    for _ in range(_TRIES):
        if current(folder)[0]:
            now = Index.read(folder, matcher, kind)
        else:
            now = Index.of(folder, About.of(matcher, kind), RUNS.empty_table(), {})
        try:
            index = change(now)
        except DecodeError:
            obstacle = WriterRun(now.version).index
            if run.version < now.about.void:
                break  # its own parts have been removed
            if current(folder)[0] == now.version:
                raise
            continue  # a compaction has removed a part that was looked into
        if index is None:
            return None
        own = {name for name in index.files.parts if run.run in name}
        if own and run.version < now.about.void:
            obstacle = WriterRun(now.version).index
            break
        attempt = run.after(now.version)
        found = commit(folder, attempt, index)
        if found is None:
            dropped = [name for name in now.files.parts if name not in index.files.parts]
            with suppress(OSError):
                gone = attempt.replaced(folder.names(), index.files.parts, before=0)
                folder.remove(*gone, *dropped)
            return index
        obstacle = found
        if not own <= set(folder.names()):
            break
    raise ParameterError(
        f"path={folder.path!r}: others finished there while this one ran ({obstacle}); nothing of "
        "this one is kept. Append once more"
        + is_claim(obstacle)
        * ", after removing that file if no other writer is at work"
    )


def dated(index: Index, first: int, last: int) -> Index:
    """The index, which says of its new parts which versions brought their messages."""
    parts = {
        name: part if any(part.added) else part._replace(added=(first, last))
        for name, part in index.files.parts.items()
    }
    return replace(index, files=replace(index.files, parts=parts))
