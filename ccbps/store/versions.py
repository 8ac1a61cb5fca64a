"""Names of a store's files, which say who wrote them and what may be removed.

A store has versions. A writer takes the version after the one it found, and writes its index last,
under a name that no other writer can have taken: so of several that began from the same state, one
commits and the others are told. Files are named after the version and the run that wrote them, so
that whoever commits knows what runs that died, or lost, have left behind.
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


def latest(names: Iterable[str]) -> int:
    """The version of the store in a folder with files of these names; 0 if there is none."""
    return max((int(found[1]) for found in map(_INDEX.fullmatch, names) if found), default=0)


def current(folder: Folder) -> tuple[int, list[str]]:
    """The version of the store in a folder, and its files.

    A list of files that is made while one index replaces another may have neither: so a version is
    believed in if two lists have none above it.
    """
    version, names = -1, folder.names()
    while (found := latest(names)) > version:
        version, names = found, folder.names()
    return version, names


def is_part(name: str) -> bool:
    """Is it the name of a part?"""
    return _PART.fullmatch(name) is not None


def is_old(name: str) -> bool:
    """Is it a file of a format without versions?"""
    return _OLD.fullmatch(name) is not None


def is_unfinished(name: str) -> bool:
    """Is a file of that name left by a writer that did not finish, or by one at work?"""
    return any(kind.fullmatch(name) for kind in (_PART, _DRAFT)) or is_claim(name)


def is_claim(name: str) -> bool:
    """Is it what `Folder.publish` leaves where it is killed, on file systems without links?"""
    return re.fullmatch(r"index-\d{8,}\.arrow\.claim-[0-9a-f]{32}", name) is not None


@dataclass(frozen=True)
class WriterRun:
    """One call that writes a store.

    Attributes:
        version: of the store, if this run commits.
        run: 32 hex digits that no other run has.
    """

    version: int
    run: str = field(default_factory=lambda: uuid4().hex)

    @property
    def stem(self) -> str:
        """What names of its parts begin with."""
        return f"part-{self.version:08d}-{self.run}"

    @property
    def draft(self) -> str:
        """Its index until it is committed."""
        return f"draft-{self.version:08d}-{self.run}"

    @property
    def index(self) -> str:
        """Its index."""
        return f"index-{self.version:08d}.arrow"

    def after(self, version: int) -> WriterRun:
        """The same run, which now commits after another version."""
        return WriterRun(version + 1, self.run)

    def left(self, names: Iterable[str]) -> list[str]:
        """Files that this run made, except its index."""
        found = ((n, _PART.fullmatch(n) or _DRAFT.fullmatch(n)) for n in names)
        return [name for name, match in found if match and match[2] == self.run]

    def replaced(self, names: Iterable[str], kept: Iterable[str], *, before: int) -> list[str]:
        """Files that are useless once this run has committed: older indexes, what this run made
        and did not keep, and what was begun below version `before`, by runs that were replaced,
        died or will fail."""
        useful, own = {self.index, *kept}, set(self.left(names))
        out = []
        for name in set(names) - useful:
            index, other = _INDEX.fullmatch(name), _PART.fullmatch(name) or _DRAFT.fullmatch(name)
            if (
                name in own
                or (index and int(index[1]) <= self.version)
                or (other and int(other[1]) < before)
                or (is_old(name) and before)
            ):
                out.append(name)
        return out
