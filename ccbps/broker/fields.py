"""Fields of messages: bytes behind their length, and what stands in them. Numbers are big-endian.

Each message is kind and version, a byte each, and fields, each behind its length, 4 bytes. A field
that is not there has no bytes and the length 2^32 - 1.
"""

from __future__ import annotations

from typing import Final

from ccbps.errors import DecodeError, ParameterError
from ccbps.filters.tokens import TOKEN_BYTES
from ccbps.wire import Kind

VERSION: Final = 1
NUMBER_BYTES: Final = 8
LENGTH_BYTES: Final = 4
_NONE: Final = (1 << 8 * LENGTH_BYTES) - 1
MOST_NAME: Final = 256
"""Bytes of names."""


def joined(kind: Kind, parts: list[bytes | None]) -> bytes:
    """Kind, version, and the fields."""
    out = [bytes([kind, VERSION])]
    for part in parts:
        out.append((_NONE if part is None else len(part)).to_bytes(LENGTH_BYTES))
        out.append(part or b"")
    return b"".join(out)


def split(message: bytes, kind: Kind, what: str, least: int) -> list[bytes | None]:
    """The fields of a message, at least so many.

    Raises:
        DecodeError: it is of another kind or version, or cut off.
    """
    if not isinstance(message, bytes) or message[:2] != bytes([kind, VERSION]):
        raise malformed(what)
    parts: list[bytes | None] = []
    at = 2
    while at < len(message):
        length = int.from_bytes(message[at : at + LENGTH_BYTES])
        at += LENGTH_BYTES
        end = at if length == _NONE else at + length
        if end > len(message) or at > len(message):
            raise malformed(what)
        parts.append(None if length == _NONE else message[at:end])
        at = end
    if len(parts) < least:
        raise malformed(what)
    return parts


def malformed(what: str) -> DecodeError:
    """The error for a message that is none."""
    return DecodeError(f"not {what} of this version, or cut off")


def name_from(name: bytes | None) -> str:
    """Raises DecodeError if it is not a name."""
    try:
        found = b"".join([name] if name else []).decode()
        check_name("name", found)
    except (UnicodeDecodeError, ParameterError):
        raise malformed("a message with a name") from None
    return found


def label_from(label: bytes | None) -> str:
    """Raises DecodeError if it is not "client/name"."""
    client, _, name = (label or b"").partition(b"/")
    return f"{name_from(client)}/{name_from(name)}"


def optional_name(name: bytes | None) -> str | None:
    """A name, or none."""
    return None if name is None else name_from(name)


def text_bytes(text: str | None) -> bytes | None:
    """A text, or none, as a field."""
    return None if text is None else text.encode()


def number_bytes(number: int | None) -> bytes | None:
    """A number, or none, as a field."""
    return None if number is None else number.to_bytes(NUMBER_BYTES)


def number_from(number: bytes | None) -> int | None:
    """A number, or none.

    Raises:
        DecodeError: it is no number below 2^63.
    """
    if number is None:
        return None
    if len(number) != NUMBER_BYTES or number[0] >> 7:
        raise malformed("a message with a number")
    return int.from_bytes(number)


def check_number(what: str, number: int | None) -> None:
    """Raises ParameterError if it is neither a number below 2^63 nor None."""
    if number is not None and (type(number) is not int or not 0 <= number < 1 << 63):
        raise ParameterError(f"{what} must be a whole number, 0 .. 2^63 - 1, got {number!r}")


def check_token(token: bytes | None) -> None:
    """Raises ParameterError if it is neither a topic's token nor None."""
    if token is not None and (not isinstance(token, bytes) or len(token) != TOKEN_BYTES):
        raise ParameterError(
            f"token must be {TOKEN_BYTES} bytes, as TopicTokens makes, or None, got "
            f"{type(token).__name__}"
        )


def check_name(what: str, name: str) -> None:
    """Raises ParameterError if it is none: names stand in labels, and in topics of MQTT."""
    if (
        not isinstance(name, str)
        or not name.isprintable()  # so that it can be encoded
        or not 0 < len(name.encode()) <= MOST_NAME
        or set(name) & set("/+#$")
    ):
        raise ParameterError(
            f"{what} must be 1 to {MOST_NAME} bytes of printable text without / + # $, got {name!r}"
        )
