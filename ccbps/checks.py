"""Check arguments, one way for the whole package.

Each check returns the argument in the type that the caller goes on with, or raises an error. The
error names the argument, the expected and the given value, and the remedy. NumPy's integers, floats
and booleans count as Python's. Bytes are never shown: they may be secret.

Convention: bounds include both ends. A `hint` ends the message, after a semicolon.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import wraps
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ccbps.errors import ParameterError, ShapeError

T = TypeVar("T")

_MAX_SHOWN: Final = 200
"""Characters of a value in an error."""


def whole(
    name: str,
    value: Any,
    low: int | None = None,
    high: int | None = None,
    *,
    unit: str = "",
    hint: str = "",
) -> int:
    """Return a whole number between two bounds as a Python int.

    Args:
        name: the argument's name.
        value: an int or a NumPy integer; not a bool, not a float.
        low: the smallest value allowed; None for no bound.
        high: the largest value allowed; None for no bound.
        unit: the thing counted, such as ``bits``.
        hint: advice on another argument.

    Raises:
        ParameterError: it is no whole number, or out of bounds.

    Example:
        >>> import numpy as np
        >>> from ccbps.checks import whole
        >>> whole("depth", np.uint8(3), 0, 8)
        3
        >>> whole("depth", 9, 0, 8)
        Traceback (most recent call last):
            ...
        ccbps.errors.ParameterError: depth must be a whole number from 0 to 8, got 9
    """
    if type(value) is int or isinstance(value, np.integer):
        integer = int(value)
        if (low is None or low <= integer) and (high is None or integer <= high):
            return integer
    elif isinstance(value, int) and not isinstance(value, bool):  # a subclass, such as IntEnum
        return whole(name, int(value), low, high, unit=unit, hint=hint)
    kind = f"a whole number of {unit}" if unit else "a whole number"
    raise _wrong(name, f"{kind}{_bounds(low, high)}", shown(value), hint)


def number(
    name: str,
    value: Any,
    low: float | None = None,
    high: float | None = None,
    *,
    endless: bool = False,
    hint: str = "",
) -> float:
    """Return a finite number between two bounds as a Python float.

    Args:
        name: the argument's name.
        value: an int or a float, of Python or NumPy; not a bool.
        low: the smallest value allowed; None for no bound.
        high: the largest value allowed; None for no bound.
        endless: whether the float infinity is allowed, too, as for times.
        hint: advice on another argument.

    Raises:
        ParameterError: it is no number, not finite, or out of bounds.

    Example:
        >>> from ccbps.checks import number
        >>> number("rate", 1, 0, 1)
        1.0
    """
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            real = float(value)
        except OverflowError:
            real = np.nan
        if endless and real == np.inf:
            return real
        inside = (low is None or low <= real) and (high is None or real <= high)
        if inside and abs(real) < np.inf:
            return real
    raise _wrong(name, f"a finite number{_bounds(low, high)}", shown(value), hint)


def flag(name: str, value: Any) -> bool:
    """Return True or False.

    Raises:
        ParameterError: it is neither, such as 1 or "yes".
    """
    if not isinstance(value, bool | np.bool_):
        raise _wrong(name, "True or False", shown(value))
    return bool(value)


def choice(name: str, value: T, options: Collection[Any], *, hint: str = "") -> T:
    """Return a value that is one of some options, by equality and type.

    Raises:
        ParameterError: the value is none of the options.

    Example:
        >>> from ccbps.checks import choice
        >>> choice("when_full", "wait", ("drop", "refuse"))
        Traceback (most recent call last):
            ...
        ccbps.errors.ParameterError: when_full must be 'drop' or 'refuse', got 'wait'
    """
    if not any(type(value) is type(option) and value == option for option in options):
        raise _wrong(name, _either(map(repr, options)), shown(value), hint)
    return value


def instance(name: str, value: Any, kind: type[T] | tuple[type[T], ...], *, hint: str = "") -> T:
    """Return a value of one of some classes. The message shows the value's class only.

    Raises:
        ParameterError: it is of another class.

    Example:
        >>> from ccbps import Schema
        >>> from ccbps.checks import instance
        >>> instance("schema", {"price": 16}, Schema, hint="make one with Schema(price=UInt(16))")
        Traceback (most recent call last):
            ...
        ccbps.errors.ParameterError: schema must be a Schema, got dict; make one with \
Schema(price=UInt(16))
    """
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = _either(f"{_article(one.__name__)} {one.__name__}" for one in kinds)
        raise _wrong(name, names, type(value).__name__, hint)
    return value


def text(name: str, value: Any, most: int | None = None, *, hint: str = "") -> str:
    """Return a text that is not empty.

    Args:
        name: the argument's name.
        value: the text.
        most: the largest number of characters allowed; None for no bound.
        hint: advice on another argument.

    Raises:
        ParameterError: it is no text, empty, too long, or has characters without bytes in UTF-8.
    """
    if not isinstance(value, str):
        raise _wrong(name, "text", type(value).__name__, hint)
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise _wrong(name, "text that UTF-8 can write", "half of a surrogate pair", hint)
    if not value or (most is not None and len(value) > most):
        limit = "at least 1 character" if most is None else f"1 to {most:,} characters"
        raise _wrong(name, f"text of {limit}", f"{len(value):,}", hint)
    return value


def octets(name: str, value: Any, length: int | None = None, *, hint: str = "") -> bytes:
    """Return bytes. The message never shows them.

    Args:
        name: the argument's name.
        value: bytes, a bytearray or a memoryview.
        length: the number of bytes; None for any.
        hint: advice on another argument.

    Raises:
        ParameterError: they are not bytes, or of another length.
    """
    wanted = "bytes" if length is None else f"{length:,} bytes"
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong(name, wanted, type(value).__name__, hint)
    content = bytes(value)
    if length is not None and len(content) != length:
        raise _wrong(name, wanted, f"{len(content):,}", hint)
    return content


def array(
    name: str, value: ArrayLike, dtype: DTypeLike, shape: tuple[int | str, ...]
) -> NDArray[Any]:
    """Return an array of one type and shape.

    Args:
        name: the argument's name.
        value: the array, or a value from which NumPy makes one.
        dtype: the type of its elements. Nothing is converted.
        shape: length of each axis, or a word for any length. Axes with the same word have the same
            length.

    Raises:
        ShapeError: it has another type or shape.

    Example:
        >>> import numpy as np
        >>> from ccbps.checks import array
        >>> array("rows", np.zeros((2, 3)), np.uint8, ("rows", 3))
        Traceback (most recent call last):
            ...
        ccbps.errors.ShapeError: rows must be a uint8 array of shape (rows, 3), got float64 (2, 3)
    """
    given = np.asarray(value)
    lengths: dict[int | str, int] = {}
    fits = given.dtype == np.dtype(dtype) and given.ndim == len(shape)
    for axis, length in zip(shape, given.shape, strict=False):
        fits = fits and length == (
            axis if isinstance(axis, int) else lengths.setdefault(axis, length)
        )
    if not fits:
        axes = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ShapeError(
            f"{name} must be {_article(np.dtype(dtype).name)} {np.dtype(dtype).name} array of "
            f"shape ({axes}), got {given.dtype} {given.shape}"
        )
    return given


def fields(name: str, value: Any, names: Iterable[str], *, hint: str = "") -> Mapping[str, Any]:
    """Return a mapping that has exactly some keys.

    Raises:
        ParameterError: it is no mapping, or has other keys.
    """
    keys = {*names}
    wanted = f"a mapping with the keys {', '.join(sorted(keys))}" if keys else "an empty mapping"
    if not isinstance(value, Mapping):
        raise _wrong(name, wanted, type(value).__name__, hint)
    if value.keys() != keys:
        raise _wrong(name, wanted, ", ".join(sorted(map(str, value))) or "none", hint)
    return value


def shown(value: Any) -> str:
    """Write a public value for an error, cut off where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a number of very many digits"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


class Printable:
    """Base of objects that print even if a check ended their constructor half-way.

    Loggers print the locals of a traceback: one is the object, still without attributes.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls).get("__repr__")
        if own is None:
            return

        @wraps(own)
        def shown_always(self: Any) -> str:
            try:
                return str(own(self))
            except AttributeError:
                return f"<{type(self).__name__}, incomplete>"

        cls.__repr__ = shown_always  # type: ignore[method-assign]


class Redacted(Struct, frozen=True):
    """Base of values that print their public fields only: by default, none."""

    _hidden: ClassVar[tuple[str, ...] | None] = None
    """Names of the fields that are not printed; None for all of them."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        names = () if self._hidden is None else self.__struct_fields__
        return [(name, getattr(self, name)) for name in names if name not in (self._hidden or ())]


def _wrong(name: str, wanted: str, came: str, hint: str = "") -> ParameterError:
    return ParameterError(f"{name} must be {wanted}, got {came}{hint and f'; {hint}'}")


def _bounds(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    if high is None:
        return f", at least {low:,}"
    if low is None:
        return f", at most {high:,}"
    return f" from {low:,} to {high:,}"


def _either(options: Iterable[str]) -> str:
    names = [*options]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "nothing"


def _article(noun: str) -> str:
    # "a uint8 array", "an int64 array", "an Event", "a UInt".
    return "an" if noun[0] in "aeioAEIO" else "a"


def other_version(subject: str, came: object, own: int) -> str:
    """Return the text of an error: something is of another version than this one reads.

    Args:
        subject: name of the thing.
        came: its version, of whatever type.
        own: the version that this installation reads.
    """
    newer = type(came) is int and came > own
    where = "here" if newer else "where it was written, and write it again"
    return (
        f"{subject} is of version {came!r:.20}, and this ccbps reads {own}: upgrade ccbps {where}"
    )
