"""Where an executor finds a key: by name, never by value.

A key that travels inside a Spark plan, a configuration or a broadcast ends up in event logs, in
temporary files or in error messages. A `KeySource` travels instead; each Python worker reads the
key itself, once. Keys are in the text form of `SharedSeed.to_text`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from ccbps.errors import KeyMismatchError
from ccbps.randomness import SharedSeed

__all__ = ["EnvKey", "FileKey", "KeySource"]


@runtime_checkable
class KeySource(Protocol):
    """Anything picklable that can load a seed where it is needed."""

    def load(self) -> SharedSeed:
        """The seed.

        Raises:
            KeyMismatchError: there is none, or it is not a seed.
        """


@dataclass(frozen=True, slots=True)
class EnvKey:
    """A seed in an environment variable of the Python workers.

    Local sessions inherit the driver's environment; on a cluster let the platform's secret store
    set the variable on the executors.
    """

    name: str

    def load(self) -> SharedSeed:
        """See `KeySource.load`."""
        return _from_environment(self.name)


@dataclass(frozen=True, slots=True)
class FileKey:
    """A seed in a file that the Python workers can read (a mounted secret)."""

    path: str

    def load(self) -> SharedSeed:
        """See `KeySource.load`."""
        return _from_file(self.path)


@lru_cache(maxsize=16)
def _from_environment(name: str) -> SharedSeed:
    text = os.environ.get(name)
    if text is None:
        raise KeyMismatchError(
            f"environment variable {name} is not set on the Python worker; set it to "
            "SharedSeed.to_text() before the session starts"
        )
    return SharedSeed.from_text(text)


@lru_cache(maxsize=16)
def _from_file(path: str) -> SharedSeed:
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise KeyMismatchError(
            f"key file {path} cannot be read on the Python worker: {error.strerror}"
        ) from None
    return SharedSeed.from_text(text)
