"""Folders of files that driver and workers see under one path, local or not."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from ccbps.errors import ParameterError

_NO_LINKS: Final = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
"""Errors of a file system without links."""


@dataclass(frozen=True)
class Folder:
    """Location of a store, small and picklable: each process opens the file system by itself.

    Attributes:
        path: absolute path or URI.
    """

    path: str

    @classmethod
    def of(cls, path: str | os.PathLike[str], argument: str) -> Folder:
        """Return the folder of a local path or of a URI that pyarrow knows.

        Args:
            path: the path, made absolute (`~` is the user's home), or the URI.
            argument: name of the argument, for errors.

        Raises:
            ParameterError: it is not a path, or it is a file.
        """
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(text, str) or not text or "\0" in text:
            raise ParameterError(f"{argument} must be a path or a URI as text, got {path!r}")
        folder = cls(text if _is_uri(text) else str(Path(text).expanduser().absolute()))
        try:
            folder.names()
        except (pa.ArrowInvalid, OSError) as error:
            raise ParameterError(
                f"{argument}={text!r} must be a folder, a local path or a URI that pyarrow.fs "
                f"understands: {error}"
            ) from error
        return folder

    @cached_property
    def _found(self) -> tuple[fs.FileSystem, str]:
        if _is_uri(self.path):
            system, root = fs.FileSystem.from_uri(self.path)
            return system, root
        return fs.LocalFileSystem(), self.path

    def __reduce__(self) -> tuple[Any, ...]:
        return Folder, (self.path,)

    def open(self, name: str) -> pa.NativeFile:
        """Open a file to read it."""
        system, root = self._found
        return system.open_input_file(f"{root}/{name}")

    def mapped(self, name: str) -> mmap | None:
        """Map a file into memory, if it is local."""
        system, root = self._found
        if not isinstance(system, fs.LocalFileSystem):
            return None
        with Path(root, name).open("rb") as file:
            return mmap(file.fileno(), 0, access=ACCESS_READ)

    def create(self, name: str) -> pa.NativeFile:
        """Create a file to write it, in a folder that exists (`make`)."""
        system, root = self._found
        return system.open_output_stream(f"{root}/{name}")

    def make(self, argument: str) -> None:
        """Make the folder, if it does not exist.

        Args:
            argument: name of the argument, for errors.

        Raises:
            ParameterError: it cannot be made.
        """
        system, root = self._found
        try:
            system.create_dir(root, recursive=True)
        except OSError as error:
            raise ParameterError(f"{argument}={self.path!r} cannot be made: {error}") from error

    def publish(self, draft: str, name: str) -> str | None:
        """Give a finished file its name, unless that name is taken. The draft is gone afterwards.

        If files can be linked, as on local file systems, one of several writers that publish under
        one name succeeds. In object stores files appear whole, but may replace others of the same
        name. So each writer first claims the name and checks for claims of others: at most one
        succeeds.

        Returns:
            None, or the file that stood in the way: the draft, if it has been removed.

        Raises:
            OSError: the file system failed.
        """
        system, root = self._found
        try:
            if isinstance(system, fs.LocalFileSystem):
                try:
                    os.link(f"{root}/{draft}", f"{root}/{name}")
                    return None
                except FileExistsError:
                    # A network may lose the answer; then a link that was made is made again.
                    with suppress(FileNotFoundError):
                        if Path(root, name).samefile(Path(root, draft)):
                            return None
                    return name
                except FileNotFoundError:
                    return draft
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
            claim = f"{name}.claim-{uuid4().hex}"
            self.create(claim).close()
            try:
                names = self.names()
                others = [n for n in names if n.startswith(f"{name}.claim-") and n != claim]
                if name in names or others:
                    return name if name in names else others[0]
                try:
                    system.move(f"{root}/{draft}", f"{root}/{name}")
                except FileNotFoundError:
                    return draft
                return None
            finally:
                self.remove(claim)
        finally:
            self.remove(draft)

    def names(self) -> list[str]:
        """List the files in the folder; none if there is no folder."""
        system, root = self._found
        if isinstance(system, fs.LocalFileSystem):
            # Arrow would look at each file, and fail if another process has just removed one.
            with suppress(FileNotFoundError):
                return [path.name for path in Path(root).iterdir()]
            return []
        selector = fs.FileSelector(root, allow_not_found=True)
        return [info.base_name for info in system.get_file_info(selector)]

    def remove(self, *names: str) -> None:
        """Delete files that exist; ignore others."""
        system, root = self._found
        for name in names:
            if system.get_file_info(f"{root}/{name}").type == fs.FileType.File:
                with suppress(FileNotFoundError):  # another process was faster
                    system.delete_file(f"{root}/{name}")


def _is_uri(path: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path) is not None
