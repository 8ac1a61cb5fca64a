"""Where a process finds a key: by name, never by value.

A key that travels inside a query plan, a configuration or a message to another process ends up in
event logs, in temporary files or in error messages. A `KeySource` travels instead; each process
that needs the key reads it itself, once. The text is what the key's `to_text` wrote: a publisher's
master `SharedSeed`, from which every pair's seed is derived; an `EpochSeed`, the same for an epoch,
with its pairs' seeds; a `SeedRing`, the seeds of some pairs, for subscribers; a `RoleKey`, which a
key server gives out or, where there is none, a role has itself as its `key`; for delivery to
groups, a `BrokerState`, a `SubscriberKey` or a `SubscriberRing`; for topics, a `FilterKey`; for
the server of a ledger, a `LedgerKey`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.any_key import Key, from_text
from ccbps.keys.confine import confined
from ccbps.keys.delivery_keys import BrokerState, SubscriberKey, SubscriberRing
from ccbps.keys.filter_key import FilterKey
from ccbps.keys.ledger_key import LedgerKey
from ccbps.keys.rings import SeedRing
from ccbps.keys.role_key import RoleKey
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.text_form import is_key_text


@runtime_checkable
class KeySource(Protocol):
    """Anything picklable that can load a key where it is needed: a `FileKey`, an `EnvKey`, or a
    class of your own that asks a secret store.

    Example:
        >>> from ccbps.keys import EnvKey, FileKey, KeySource
        >>> isinstance(FileKey("/run/secrets/publisher"), KeySource)
        True
    """

    def load(self) -> Key:
        """The seed, seeds or key.

        Raises:
            KeyMismatchError: there is no key, or the text is none of these.
        """


@dataclass(frozen=True, slots=True)
class FileKey:
    """A key in a file that every process which needs it can read: on one machine any file, on a
    cluster a mounted secret. Works in a session that is already running, so use it in notebooks.

    Example:
        >>> import pathlib, tempfile
        >>> from ccbps import SharedSeed
        >>> from ccbps.keys import FileKey
        >>> path = pathlib.Path(tempfile.mkdtemp(), "publisher.key")
        >>> path.touch(mode=0o600, exist_ok=False)          # nobody else may read it
        >>> _ = path.write_text(SharedSeed.generate().to_text())
        >>> key = FileKey(path)
        >>> key.load()
        <SharedSeed ...>

    Attributes:
        path: of the file. A relative path is looked up in the folder of the process that loads it.
    """

    path: str | os.PathLike[str]

    def __post_init__(self) -> None:
        _check_place("FileKey", "the path of a file", self.path, (str, os.PathLike))

    def load(self) -> Key:
        """See `KeySource.load`."""
        return _from_file(os.fspath(self.path))


@dataclass(frozen=True, slots=True)
class EnvKey:
    """A key in an environment variable of the process that loads it.

    Processes that were started earlier, such as Spark's workers, have the environment of that time,
    so a later change is not seen; on a cluster let the platform's secret store set the variable. In
    a notebook, where Spark is already running, use a `FileKey`.

    Example:
        >>> from ccbps.keys import EnvKey
        >>> EnvKey("CCBPS_SEED")              # the name travels, the key does not
        EnvKey(name='CCBPS_SEED')

    Attributes:
        name: of the variable.
    """

    name: str

    def __post_init__(self) -> None:
        _check_place("EnvKey", "the name of an environment variable", self.name, (str,))

    def load(self) -> Key:
        """See `KeySource.load`."""
        return _from_environment(self.name)


def _check_place(source: str, wanted: str, place: object, kinds: tuple[type, ...]) -> None:
    if isinstance(place, kinds) and not is_key_text(str(place)):
        return
    got = "a key itself" if isinstance(place, kinds) else type(place).__name__
    raise ParameterError(
        f"{source} takes {wanted}, got {got}; write the key's to_text() to a file that only you "
        "may read, and pass FileKey('path')"
    )


def master(key: KeySource) -> SharedSeed:
    """The publisher's master seed; a ring of pairs' seeds will not do."""
    seed = key.load()
    if not isinstance(seed, SharedSeed):
        what = "single pairs' seeds" if isinstance(seed, SeedRing) else _called(seed)
        raise KeyMismatchError(f"{key!r} holds {what}; this needs the master seed")
    return seed


def seeds(key: KeySource) -> SharedSeed | SeedRing:
    """Seeds; the key of a role will not do."""
    found = key.load()
    if not isinstance(found, SharedSeed | SeedRing):
        raise KeyMismatchError(f"{key!r} holds {_called(found)}; this needs seeds")
    return found


def role_key(key: KeySource) -> RoleKey:
    """The key of a role; seeds will not do."""
    found = key.load()
    if not isinstance(found, RoleKey):
        raise KeyMismatchError(
            f"{key!r} holds {_called(found)}; this needs a RoleKey: a key server gives it, or the "
            "role"
        )
    return found


def broker_state(key: KeySource) -> BrokerState:
    """The state of a broker that delivers to groups."""
    found = key.load()
    if not isinstance(found, BrokerState):
        raise KeyMismatchError(
            f"{key!r} holds {_called(found)}; this needs the text of a GroupSealer's state"
        )
    return found


def filter_key(key: KeySource) -> FilterKey:
    """The key of topics' tokens."""
    found = key.load()
    if not isinstance(found, FilterKey):
        raise KeyMismatchError(
            f"{key!r} holds {_called(found)}; this needs the text of a FilterKey"
        )
    return found


def ledger_key(key: KeySource) -> LedgerKey:
    """The key under which workers know the server of a ledger; of a seed, the one it has."""
    found = key.load()
    if isinstance(found, SharedSeed):
        return found.ledger_key()
    if not isinstance(found, LedgerKey):
        raise KeyMismatchError(
            f"{key!r} holds {_called(found)}; this needs the text of a LedgerKey"
        )
    return found


def subscriber_keys(key: KeySource) -> SubscriberRing:
    """Subscribers' keys for delivery, one or a ring of them."""
    found = key.load()
    if isinstance(found, SubscriberKey):
        return SubscriberRing.of([found])
    if not isinstance(found, SubscriberRing):
        raise KeyMismatchError(
            f"{key!r} holds {_called(found)}; this needs the text of a SubscriberKey or of a "
            "SubscriberRing"
        )
    return found


def _called(found: Key) -> str:
    if isinstance(found, SharedSeed | SeedRing):
        return "seeds"
    if isinstance(found, RoleKey):
        return f"the key of a {found.role}"
    return f"a {type(found).__name__}"


# The last text of each place, and its key: parsed once, and dropped as soon as another text stands
# there, as the seed of an epoch that is over must be.
_parsed: dict[str, tuple[str, Key]] = {}


@confined
def _parse(place: str, text: str) -> Key:
    known, key = _parsed.pop(place, ("", None))
    if key is None or known != text:
        key, problem = None, ""
        try:
            key = from_text(text)
        except KeyMismatchError as error:
            problem = str(error)
        if key is None:
            raise KeyMismatchError(f"{place}: {problem}")
    _parsed[place] = text, key
    return key


@confined
def _from_environment(name: str) -> Key:
    if name not in os.environ:
        raise KeyMismatchError(
            f"environment variable {name} is not set in this process; a worker of Spark has the "
            "environment that Spark was started with: what a notebook sets later is not seen. "
            "Write the key's to_text() to a file and pass "
            f"FileKey('path'), or set {name} and start the notebook's kernel, and Spark, again"
        )
    return _parse(f"environment variable {name}", os.environ[name])


@confined
def _from_file(path: str) -> Key:
    text, problem = "", None
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        problem = error.strerror
    except UnicodeDecodeError:
        problem = "it is not text"
    if problem is None:
        return _parse(f"key file {path}", text)
    hint = "" if Path(path).is_absolute() else f"; its path is relative to {Path.cwd()}"
    raise KeyMismatchError(f"key file {path} cannot be read in this process: {problem}{hint}")
