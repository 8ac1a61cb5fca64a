"""Secrets that do not print or pickle, and functions whose exceptions do not show them.

`SecretBytes` is the base of every secret in the package. Its repr shows the class and a
fingerprint. Pickling and copying raise `SerializationError`. The bytes leave only through
`SecretBytes.export_secret`, a name that is easy to search for.

Many loggers print the locals of every frame of a traceback, as Spark does with
``spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled``. Frames of this package may hold the
text of a key, values of events and private constants. `confined` empties them before an exception
leaves. The caller's own frames are still printed.

Hazard: Python cannot wipe memory. Secret bytes stay in the process until they are collected.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, NoReturn, ParamSpec, Self, TypeVar

from ccbps import primitives
from ccbps.checks import Printable
from ccbps.errors import KeyMismatchError, SerializationError

P = ParamSpec("P")
R = TypeVar("R")


def confined(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function or generator function: its exceptions keep line numbers, and lose locals."""
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def run_steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            steps = function(*args, **kwargs)
            del args, kwargs
            try:
                return (yield from steps)
            except BaseException as error:
                _forget(error)
                raise

        return run_steps  # type: ignore[return-value]

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            _forget(error)
            raise

    return run


def _forget(error: BaseException) -> None:
    """Empty the frames of an exception and of its causes."""
    import traceback

    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            traceback.clear_frames(current.__traceback__)
            waiting += [
                current.__cause__,
                current.__context__,
                *getattr(current, "exceptions", ()),
            ]


class Confined(Printable):
    """Base of objects that hold a secret or must not exist twice: not pickled, not copied."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise SerializationError(
            f"a {type(self).__name__} must not be pickled or copied, since it holds a secret: hand "
            "out a KeySource (FileKey, EnvKey) and make it where it is needed"
        )


class Closable(Confined):
    """Base of confined objects with a method `close`, which the end of a `with` block calls."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all that the object has begun."""
        raise NotImplementedError


class SecretBytes(Confined):
    """Secret bytes. Subclasses define their name in errors, `kind`, and their `length` (bytes).

    Args:
        secret: raw bytes.

    Raises:
        KeyMismatchError: the secret is not bytes, or does not have the length of this kind.
    """

    kind = "secret"
    length: int | None = None

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = b""  # tracebacks may show `self`
        if not isinstance(secret, (bytes, bytearray, memoryview)):
            raise KeyMismatchError(f"a {self.kind} is made of bytes, got {type(secret).__name__}")
        if self.length is not None and len(secret) != self.length:
            raise KeyMismatchError(f"a {self.kind} has {self.length} bytes, got {len(secret)}")
        self._secret = bytes(secret)

    def export_secret(self) -> bytes:
        """Return the raw secret. Its reader can do everything that its owner can."""
        return self._secret

    @property
    def fingerprint(self) -> str:
        """16 hex digits that name the secret in logs and say nothing else about it."""
        digest = primitives.sha256(f"ccbps fingerprint of {self.kind}\0".encode() + self._secret)
        return digest.hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.fingerprint}>"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, SecretBytes)
        return primitives.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash((self.kind, self.fingerprint))
