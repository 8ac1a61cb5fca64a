"""Where an executor finds a key: by name, never by value.

A key that travels inside a Spark plan, a configuration or a broadcast ends up in event logs, in
temporary files or in error messages. A `KeySource` travels instead; each Python worker reads the
key itself, once. The text is that of `SharedSeed.to_text` (a publisher's master seed, from which
every pair's seed is derived), `EpochSeed.to_text` (the same for an epoch, with its pairs' seeds),
`SeedRing.to_text` (the seeds of some pairs, for subscribers) or, for reusable matchers,
`RoleKey.to_text`: of a key that a key server gives out or, with `ObliviousTopicMatch`, of a role's
own `key`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ccbps.errors import KeyMismatchError
from ccbps.matching.role_keys import RoleKey
from ccbps.randomness import SeedRing, SharedSeed, parse_seeds
from ccbps.spark.confine import confined

__all__ = ["EnvKey", "FileKey", "KeySource", "master", "role_key", "seeds"]

Key = SharedSeed | SeedRing | RoleKey


@runtime_checkable
class KeySource(Protocol):
    """Anything picklable that can load seeds where they are needed."""

    def load(self) -> Key:
        """The seed, seeds or role key.

        Raises:
            KeyMismatchError: there is none, or the text is none of these.
        """


@dataclass(frozen=True, slots=True)
class EnvKey:
    """Seeds in an environment variable of the Python workers.

    Local sessions inherit the environment the driver had when Java started, so a later change is
    not seen; on a cluster let the platform's secret store set the variable on the executors.
    """

    name: str

    def load(self) -> Key:
        """See `KeySource.load`."""
        return _from_environment(self.name)


@dataclass(frozen=True, slots=True)
class FileKey:
    """Seeds in a file that the Python workers can read (a mounted secret)."""

    path: str

    def load(self) -> Key:
        """See `KeySource.load`."""
        return _from_file(self.path)


def master(key: KeySource) -> SharedSeed:
    """The publisher's master seed; a ring of pairs' seeds will not do."""
    seed = key.load()
    if not isinstance(seed, SharedSeed):
        raise KeyMismatchError(f"{key!r} holds single pairs' seeds; this needs the master seed")
    return seed


def seeds(key: KeySource) -> SharedSeed | SeedRing:
    """What encoders of one-time matchers take."""
    found = key.load()
    if isinstance(found, RoleKey):
        raise KeyMismatchError(f"{key!r} holds the key of a reusable matcher; this needs seeds")
    return found


def role_key(key: KeySource) -> RoleKey:
    """What roles of reusable matchers take."""
    found = key.load()
    if not isinstance(found, RoleKey):
        raise KeyMismatchError(
            f"{key!r} holds seeds; a reusable matcher needs a RoleKey: its KeyServer gives it, or "
            "the role"
        )
    return found


# The last text of each place, and its key: parsed once, and dropped as soon as another text stands
# there, as the seed of an epoch that is over must be.
_parsed: dict[str, tuple[str, Key]] = {}


@confined
def _parse(place: str, text: str) -> Key:
    known, key = _parsed.pop(place, ("", None))
    if key is None or known != text:
        role = text.lstrip().startswith("ccbps-role-key-")
        key = RoleKey.from_text(text) if role else parse_seeds(text)
    _parsed[place] = text, key
    return key


@confined
def _from_environment(name: str) -> Key:
    if name not in os.environ:
        raise KeyMismatchError(
            f"environment variable {name} is not set on the Python worker; set it to "
            "to_text() of a SharedSeed, SeedRing or RoleKey before the session starts"
        )
    return _parse(f"environment {name}", os.environ[name])


@confined
def _from_file(path: str) -> Key:
    text, problem = "", None
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        problem = error.strerror
    except UnicodeDecodeError:
        problem = "it is no text"
    if problem is None:
        return _parse(f"file {path}", text)
    raise KeyMismatchError(f"key file {path} cannot be read on the Python worker: {problem}")
