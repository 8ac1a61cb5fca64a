"""Places where a process finds a key: by name, never by value.

A key that travels inside a query plan, a configuration or a message to another process ends up in
event logs, in temporary files or in error messages. A `KeySource` travels instead. Each process
that needs the key reads it itself, once. The place holds the text that the key's `to_text` wrote:

- a publisher's master `SharedSeed`, from which every pair's seed is derived; or an `EpochSeed`, the
  master seed of an epoch, with its pairs' seeds;
- a `SeedRing`, the seeds of some pairs, for subscribers;
- a `RoleKey`, from a key server, or, where there is none, from the `key` of a role;
- for delivery to groups, a `BrokerState`, a `SubscriberKey`, a `SubscriberRing` or a `SigningKey`;
- for topics, a `FilterKey`;
- for the server of a ledger, a `LedgerKey`;
- for three brokers, a `ClientKey` or an `OperatorKey`;
- for domains, an `ExchangeKey`.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar, get_args, runtime_checkable

from ccbps.checks import flag
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.delivery_keys import BrokerState, SubscriberKey, SubscriberRing
from ccbps.keys.plain_key import (
    ClientKey,
    ExchangeKey,
    FilterKey,
    LedgerKey,
    OperatorKey,
    SigningKey,
)
from ccbps.keys.role_key import KeyUpdate, RoleKey
from ccbps.keys.secret import confined
from ccbps.keys.seeds import EpochSeed, SeedRing, SharedSeed
from ccbps.keys.text_form import KINDS, is_key_text, read_key

Key = (
    SharedSeed
    | SeedRing
    | RoleKey
    | SubscriberKey
    | SubscriberRing
    | BrokerState
    | FilterKey
    | LedgerKey
    | SigningKey
    | ClientKey
    | OperatorKey
    | ExchangeKey
)
T = TypeVar("T")
U = TypeVar("U")

_CLASSES: Final[dict[str, type[Key]]] = {
    kind: key for key in (*get_args(Key), EpochSeed, KeyUpdate) for kind in key.text_kinds()
}


@confined
def from_text(text: str) -> Key:
    """Read a key of any kind from the text that its `to_text` wrote.

    Example:
        >>> import ccbps.keys
        >>> from ccbps import SharedSeed
        >>> text = SharedSeed.generate().to_text()
        >>> ccbps.keys.from_text(text)
        <SharedSeed ...>
        >>> ccbps.keys.from_text(text[:-1])
        Traceback (most recent call last):
            ...
        ccbps.errors.KeyMismatchError: not a key: expected one line, 'ccbps-<kind>-3:' and hex \
digits, which the key's to_text() wrote

    Raises:
        KeyMismatchError: the text is no key's, or damaged. The error does not show it.
    """
    kind, _ = read_key(text)
    if kind not in _CLASSES:
        raise KeyMismatchError(f"this is {KINDS[kind]}: read it by ccbps.shares.clients.BrokerKey")
    return _CLASSES[kind].from_text(text)


@runtime_checkable
class KeySource(Protocol):
    """A picklable object that loads a key where it is needed.

    It is a `FileKey`, an `EnvKey`, or an object of a class of your own that asks a secret store.

    Example:
        >>> from ccbps.keys import EnvKey, FileKey, KeySource
        >>> isinstance(FileKey("/run/secrets/publisher"), KeySource)
        True
    """

    def load(self) -> Key:
        """Load the seed, seeds or key.

        Raises:
            KeyMismatchError: there is no key, or the text is not a key's.
        """


@dataclass(frozen=True, slots=True)
class FileKey:
    """A key in a file that every process which needs it can read.

    On one machine it is any file, on a cluster a mounted secret. It works in a session that is
    already running, so use it in notebooks.

    A file that every user of the machine may read or change is refused. Its group may read it, as
    clusters mount secrets for a group.

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
        path: path of the file. A relative path starts at the folder of the process that loads it.
        shared: True to load the file although every user of the machine may read it, as in a
            container that has one user.
    """

    path: str | os.PathLike[str]
    shared: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        _check_place("FileKey", "the path of a file", self.path, (str, os.PathLike))
        flag("shared", self.shared)

    @confined
    def load(self) -> Key:
        path = Path(self.path)
        try:
            if not self.shared:
                check_private(path, f"key file {self.path}")
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problem = error.strerror if isinstance(error, OSError) else "it is not text"
        else:
            return _parse(f"key file {self.path}", text)
        hint = "" if path.is_absolute() else f"; its path is relative to {Path.cwd()}"
        raise KeyMismatchError(
            f"key file {self.path} cannot be read in this process: {problem}{hint}"
        )


@dataclass(frozen=True, slots=True)
class EnvKey:
    """A key in an environment variable of the process that loads it.

    Processes that were started earlier, such as Spark's workers, have the environment of that time,
    so a later change is not seen. On a cluster let the platform's secret store set the variable. In
    a notebook, where Spark is already running, use a `FileKey`.

    Example:
        >>> from ccbps.keys import EnvKey
        >>> EnvKey("CCBPS_SEED")              # the name travels, the key does not
        EnvKey(name='CCBPS_SEED')

    Attributes:
        name: name of the variable.
    """

    name: str

    def __post_init__(self) -> None:
        _check_place("EnvKey", "the name of an environment variable", self.name, (str,))

    @confined
    def load(self) -> Key:
        if self.name not in os.environ:
            raise KeyMismatchError(
                f"environment variable {self.name} is not set in this process; a worker of Spark "
                "has the environment that Spark was started with: what a notebook sets later is "
                f"not seen. Write the key's to_text() to a file and pass FileKey('path'), or set "
                f"{self.name} and start the notebook's kernel, and Spark, again"
            )
        return _parse(f"environment variable {self.name}", os.environ[self.name])


def check_private(path: Path, title: str) -> None:
    """Refuse a secret's file that every user of this machine may read or change.

    A file is out of the others' reach if they may not enter one of its folders. Windows has other
    permissions, which are not examined.

    Args:
        path: path of the file.
        title: name of the file for the error.

    Raises:
        KeyMismatchError: others may read or change it.
        OSError: there is no such file.
    """
    if os.name == "nt":
        return
    place = path.resolve(strict=True)
    mode = stat.S_IMODE(place.stat().st_mode)
    may_enter = all(folder.stat().st_mode & stat.S_IXOTH for folder in place.parents)
    if may_enter and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise KeyMismatchError(
            f"{title} may be read or changed by every user of this machine (mode {mode:04o}). If "
            "others use the machine, run chmod o-rwx, and replace the secret. If none do, pass "
            "FileKey(path, shared=True), or --shared-keys on the command line"
        )


def _check_place(source: str, expected: str, place: object, kinds: tuple[type, ...]) -> None:
    if isinstance(place, kinds) and not is_key_text(str(place)):
        return
    got = "a key itself" if isinstance(place, kinds) else type(place).__name__
    raise ParameterError(
        f"{source} takes {expected}, got {got}; write the key's to_text() to a file that only you "
        "may read, and pass FileKey('path')"
    )


# The last text of each place, and its key. A key is parsed once, and dropped as soon as its place
# has another text: the seed of a past epoch must not stay in memory.
_parsed: dict[str, tuple[str, Key]] = {}


@confined
def _parse(place: str, text: str) -> Key:
    last, key = _parsed.pop(place, ("", None))
    if key is None or last != text:
        key, problem = None, ""
        try:
            key = from_text(text)
        except KeyMismatchError as error:
            problem = str(error)
        if key is None:
            raise KeyMismatchError(f"{place}: {problem}")
    _parsed[place] = text, key
    return key


def _loaded(source: KeySource, needed: str, kind: type[T], other: type[U] | None = None) -> T | U:
    """Load a key of one or two kinds; `needed` names them in the error about any other."""
    key = source.load()
    if isinstance(key, kind) or (other and isinstance(key, other)):
        return key
    if isinstance(key, SharedSeed | SeedRing):
        name = "single pairs' seeds" if isinstance(key, SeedRing) else "seeds"
    else:
        name = f"the key of a {key.role}" if isinstance(key, RoleKey) else f"a {type(key).__name__}"
    raise KeyMismatchError(f"{source!r} holds {name}; this needs {needed}")


def master(key: KeySource) -> SharedSeed:
    """Load the publisher's master seed; a ring of pairs' seeds is refused."""
    return _loaded(key, "the master seed", SharedSeed)


def seeds(key: KeySource) -> SharedSeed | SeedRing:
    """Load seeds; the key of a role is refused."""
    return _loaded(key, "seeds", SharedSeed, SeedRing)


def role_key(key: KeySource) -> RoleKey:
    """Load the key of a role; seeds are refused."""
    return _loaded(key, "a RoleKey: a key server gives it, or the role", RoleKey)


def broker_state(key: KeySource) -> BrokerState:
    """Load the state of a broker that delivers to groups."""
    return _loaded(key, "the text of a GroupSealer's state", BrokerState)


def signing_key(key: KeySource) -> SigningKey:
    """Load the key that signs events."""
    return _loaded(key, "the text of a SigningKey", SigningKey)


def client_key(key: KeySource) -> ClientKey:
    """Load the key of a client of three brokers."""
    return _loaded(key, "the text of a ClientKey", ClientKey)


def operator_key(key: KeySource) -> OperatorKey:
    """Load the key of the operator of one of three brokers."""
    return _loaded(key, "the text of an OperatorKey", OperatorKey)


def filter_key(key: KeySource) -> FilterKey:
    """Load the key of topics' tokens."""
    return _loaded(key, "the text of a FilterKey", FilterKey)


def ledger_key(key: KeySource) -> LedgerKey:
    """Load the key that workers share with the server of a ledger, or derive it from a seed."""
    needed = "the text of a LedgerKey"
    loaded = _loaded(key, needed, LedgerKey, SharedSeed)
    return loaded.ledger_key() if isinstance(loaded, SharedSeed) else loaded


def subscriber_keys(key: KeySource) -> SubscriberRing:
    """Load subscribers' keys for delivery, one or a ring of them."""
    needed = "the text of a SubscriberKey or of a SubscriberRing"
    loaded = _loaded(key, needed, SubscriberKey, SubscriberRing)
    return SubscriberRing.of([loaded]) if isinstance(loaded, SubscriberKey) else loaded
