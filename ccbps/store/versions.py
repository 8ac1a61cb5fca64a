"""Names of a store's files, which identify a file's writer and whether it may be removed.

A store has versions. A writer takes the version after the one that it found, and writes its index
last, under a name that no other writer can have taken. So one of several writers that began from
the same state commits, and the others are refused. Files are named after the version and the run
that wrote them. So a run that commits can remove the files of runs that died or were refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from ccbps.store.folder import Folder

_OLD: Final = re.compile(r"index\.arrow|part-[0-9a-f]{32}\.arrow")  # of "ccbps messages 1"
_INDEX: Final = re.compile(r"index-(\d{8,})\.arrow")
_PART: Final = re.compile(r"part-(\d{8,})-([0-9a-f]{32})-[0-9a-f]{32}\.arrow")
_DRAFT: Final = re.compile(r"draft-(\d{8,})-([0-9a-f]{32})")
_CLAIM: Final = re.compile(r"index-\d{8,}\.arrow\.claim-[0-9a-f]{32}")


def current(folder: Folder) -> tuple[int, list[str]]:
    """Return the version of the store in a folder, 0 for none, and the names of its files.

    A list of files that is made while one index replaces another may miss both. So a version counts
    if two lists have no later one.
    """
    version, names = -1, folder.names()
    while (latest := _latest(names)) > version:
        version, names = latest, folder.names()
    return version, names


def _latest(names: Iterable[str]) -> int:
    return max((int(index[1]) for index in map(_INDEX.fullmatch, names) if index), default=0)


def is_part(name: str) -> bool:
    """Tell whether a name is that of a part."""
    return _PART.fullmatch(name) is not None


def is_old(name: str) -> bool:
    """Tell whether a name is that of a file of a format without versions."""
    return _OLD.fullmatch(name) is not None


def is_claim(name: str) -> bool:
    """Tell whether a name is that of a claim.

    `Folder.publish` leaves one behind if it is killed, on file systems without links.
    """
    return _CLAIM.fullmatch(name) is not None


def is_unfinished(name: str) -> bool:
    """Tell whether a file is of a writer that did not finish, or has not finished yet."""
    return any(kind.fullmatch(name) for kind in (_PART, _DRAFT, _CLAIM))


@dataclass(frozen=True)
class WriterRun:
    """One call that writes a store.

    Attributes:
        version: version of the store, if this run commits.
        run: unique name of the run, 32 hex digits.
    """

    version: int
    run: str = field(default_factory=lambda: uuid4().hex)

    @property
    def stem(self) -> str:
        """Beginning of the names of its parts."""
        return f"part-{self.version:08d}-{self.run}"

    @property
    def draft(self) -> str:
        """Name of its index before it is committed."""
        return f"draft-{self.version:08d}-{self.run}"

    @property
    def index(self) -> str:
        """Name of its index."""
        return f"index-{self.version:08d}.arrow"

    def after(self, version: int) -> WriterRun:
        """Return the same run, committing after another version."""
        return WriterRun(version + 1, self.run)

    def left(self, names: Iterable[str]) -> list[str]:
        """Select the files that this run wrote, except its index."""
        return [name for name in names if (match := _written(name)) and match[2] == self.run]

    def replaced(self, names: Iterable[str], kept: Iterable[str], *, before: int) -> list[str]:
        """Select the files that are useless once this run has committed.

        These are older indexes, files that this run wrote and did not keep, and files of runs that
        began below a version: they were replaced, died or will fail.

        Args:
            names: files of the folder.
            kept: parts of the new store.
            before: the version; 0 for none.
        """
        useful, own, useless = {self.index, *kept}, {*self.left(names)}, []
        for name in {*names} - useful:
            index, other = _INDEX.fullmatch(name), _written(name)
            if (
                name in own
                or (index and int(index[1]) <= self.version)
                or (other and int(other[1]) < before)
                or (is_old(name) and before)
            ):
                useless.append(name)
        return useless


def _written(name: str) -> re.Match[str] | None:
    """Return version and run in the name of a part or draft."""
    return _PART.fullmatch(name) or _DRAFT.fullmatch(name)
