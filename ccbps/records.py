"""Records: keys, states and messages that consist of fields, declared once and read strictly.

A record is a class with annotated fields, and its bytes are MessagePack. `read` accepts exactly the
bytes of `write`: bytes of other types, outside the declared bounds, with a field too many or too
few, or spelled in another way (a long form of a number, a key that occurs twice) raise one error,
which shows none of them.

Wide rows of numbers are no records: their modules define their layouts. Nor are texts of JSON that
describe something to people: `ccbps.predicates.described` reads those.

Source: MessagePack specification, https://github.com/msgpack/msgpack/blob/master/spec.md.
"""

from __future__ import annotations

import contextlib
import re
from functools import cache
from typing import Annotated, Any, ClassVar, Final, NoReturn, Self, TypeVar, get_origin

import msgspec
import numpy as np

from ccbps import primitives
from ccbps.errors import DecodeError, ParameterError, SerializationError

T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

MOST_BYTES: Final = 1 << 30
"""Greatest number of bytes that are parsed."""
_PLACE: Final = re.compile(r"\$\[(\d+)\]")
"""Place of a field in errors of msgspec."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Base of records; their bytes have the fields in order, without names."""

    def __post_init__(self) -> None:
        """Check the types and bounds of all fields, also of records that were not read.

        Raises:
            ParameterError: a field does not have its type, or is out of bounds.
        """
        problem = ""
        try:
            # Bytes as they are: by itself, msgspec would take base64 for them. The values are in no
            # local variable: tracebacks may show those.
            msgspec.convert(
                msgspec.structs.astuple(self),
                _unchecked(type(self)),
                dec_hook=_rows_from,
                builtin_types=(bytes,),
            )
        except msgspec.ValidationError as error:
            problem = str(error).replace("`", "")
        if problem:
            expected, _, place = problem.removeprefix("Expected ").partition(" - at ")
            name = self.__struct_fields__[int(_PLACE.findall(place)[0])]
            raise ParameterError(f"{name} must be {expected}")


class Message(Record, frozen=True):
    """Base of records that are sent or stored by themselves.

    Attributes:
        front: kind and version, the first bytes of all messages of this class.
        what: name of such a message in errors.
    """

    front: ClassVar[bytes]
    what: ClassVar[str]

    def to_bytes(self) -> bytes:
        """Return the bytes of the message; equal messages have equal bytes."""
        return write(self, self.front)

    @classmethod
    def from_bytes(cls, message: bytes) -> Self:
        """Read a message of this class.

        Raises:
            DecodeError: the bytes are not such a message.
        """
        return read(cls, message, cls.front, refusal=f"not {cls.what} of this version, or cut off")


class SecretRecord(Record, frozen=True):
    """Base of records that hold secrets: they do not print, and are not pickled or copied."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []  # by itself, msgspec would show all fields to tools that print tracebacks

    def __reduce__(self) -> NoReturn:
        raise SerializationError(f"a {type(self).__name__} holds a secret: write() it on purpose")

    __copy__ = __reduce__


def write(value: Any, front: bytes = b"", *, check: int = 0) -> bytes:
    """Return the bytes of a record; equal records have equal bytes.

    Args:
        value: a record, or lists, mappings and values.
        front: first bytes, with kind and version.
        check: length of the checksum at the end (bytes), SHA-256 of all other bytes; 0 for none.

    Raises:
        ParameterError: a part of the value has no encoding, such as a number beyond 2^64.
    """
    content: bytes | None = None
    with contextlib.suppress(TypeError, ValueError, OverflowError, RecursionError):
        content = front + msgspec.msgpack.encode(value, enc_hook=_rows_to, order="deterministic")
    if content is None:
        raise ParameterError(
            f"a {type(value).__name__} cannot be written: use text, numbers and bytes"
        )
    return content + primitives.sha256(content).digest()[:check] if check else content


def read(
    kind: type[T],
    message: bytes | bytearray | memoryview,
    front: bytes = b"",
    *,
    refusal: Exception | str,
    check: int = 0,
) -> T:
    """Return the record of the bytes from `write`.

    Args:
        kind: class of the record, or another declared type.
        message: untrusted bytes; any content is allowed.
        front: first bytes expected, as given to `write`.
        refusal: error for any other message; a text becomes a `DecodeError`.
        check: length of the checksum at the end (bytes), as given to `write`.
    """
    if isinstance(message, (bytes, bytearray, memoryview)) and len(message) <= MOST_BYTES:
        # Errors of msgspec are ValueErrors, too.
        with contextlib.suppress(ValueError, TypeError, OverflowError, RecursionError):
            content = memoryview(message)[len(front) : len(message) - check]
            value: T = msgspec.msgpack.decode(content, type=kind, dec_hook=_rows_from)
            if write(value, front, check=check) == message:
                return value
    value, message, content = None, b"", None  # type: ignore[assignment]  # tracebacks show locals
    raise DecodeError(refusal) if isinstance(refusal, str) else refusal


@cache
def _unchecked(kind: type[Record]) -> type[msgspec.Struct]:
    """Return a class with the same fields that checks nothing more, for `msgspec.convert`."""
    fields = [(field.name, field.type) for field in msgspec.structs.fields(kind)]
    return msgspec.defstruct(kind.__name__, fields, array_like=True)


def _rows_to(rows: Any) -> tuple[int, bytes]:
    if not isinstance(rows, np.ndarray):
        raise TypeError
    return rows.shape[1], rows.tobytes()


def _rows_from(kind: Any, value: Any) -> Any:
    """Return an array of bytes, shape (rows, width), from itself or from width and bytes."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 2:
        return value
    if get_origin(kind) is not np.ndarray or isinstance(value, np.ndarray):
        raise ValueError("Expected a uint8 array of shape (rows, bytes)")
    width, content = msgspec.convert(value, tuple[int, bytes])
    return np.frombuffer(content, dtype=np.uint8).reshape(-1 if width else 0, width)
