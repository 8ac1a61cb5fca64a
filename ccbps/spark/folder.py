"""A folder of files that driver and workers see under one path, local or not."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from ccbps.errors import ParameterError

__all__ = ["Folder"]


@dataclass(frozen=True)
class Folder:
    """Where a store is. Small and picklable: each process finds the file system by itself."""

    path: str

    @classmethod
    def of(cls, path: str | os.PathLike[str], argument: str) -> Folder:
        """A local path, made absolute, or a URI of a file system that pyarrow knows."""
        text = os.fspath(path)
        folder = cls(text if _is_uri(text) else str(Path(text).absolute()))
        try:
            _ = folder._found
        except (pa.ArrowInvalid, OSError) as error:
            raise ParameterError(
                f"{argument}={text!r} must be a local path or a URI that pyarrow.fs understands: "
                f"{error}"
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
        """A file to read: mapped into memory where it is local."""
        system, root = self._found
        if isinstance(system, fs.LocalFileSystem):
            return pa.memory_map(f"{root}/{name}")
        return system.open_input_file(f"{root}/{name}")

    def create(self, name: str) -> pa.NativeFile:
        system, root = self._found
        system.create_dir(root, recursive=True)
        return system.open_output_stream(f"{root}/{name}")

    def rename(self, old: str, new: str) -> None:
        system, root = self._found
        system.move(f"{root}/{old}", f"{root}/{new}")

    def names(self) -> list[str]:
        """Files in the folder; none where there is no folder."""
        system, root = self._found
        selector = fs.FileSelector(root, allow_not_found=True)
        return [info.base_name for info in system.get_file_info(selector)]

    def remove(self, *names: str) -> None:
        """Delete files, as far as they are there."""
        system, root = self._found
        for name in names:
            if system.get_file_info(f"{root}/{name}").type == fs.FileType.File:
                system.delete_file(f"{root}/{name}")


def _is_uri(path: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path) is not None
