"""The texts of matchers, and the circumstances in which matchers are made.

Anybody may have written a text, and a few of its bytes can ask for very much. So what is made of
one has limits that a constructor has not; schemes ask `from_text` and `within_text` before they
build anything large.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from ccbps.errors import DecodeError, ParameterError
from ccbps.predicates.described import from_text as read_description

_again: ContextVar[bool] = ContextVar("_again", default=False)
"""Whether a matcher is made again that somebody was already told is broken."""

_from_text: ContextVar[bool] = ContextVar("_from_text", default=False)
"""Whether a matcher is made of a text, which anybody may have written."""

MATCHER_FIELDS: Final = {"scheme", "scheme_version", "schema", "parameters"}
MAX_TEXT: Final = 1 << 24
"""Most characters of a matcher's text."""
MAX_TEXT_BYTES: Final = 1 << 26
"""Most bytes of a message of a matcher that is made of a text."""


@contextmanager
def quietly() -> Iterator[None]:
    """Matchers made in here do not warn when they are broken: the card and the repr say it."""
    token = _again.set(True)
    try:
        yield
    finally:
        _again.reset(token)


@contextmanager
def written(by_anybody: bool) -> Iterator[None]:
    """Matchers made in here are made of a text; or, if not by anybody, of what somebody made."""
    token = _from_text.set(by_anybody)
    try:
        yield
    finally:
        _from_text.reset(token)


def warns() -> bool:
    """Whether a matcher that is made now is to warn when it is broken."""
    return not _again.get()


def from_text() -> bool:
    """Whether a matcher is being made of a text, which must not cost much."""
    return _from_text.get()


def within_text(wanted: int) -> None:
    """Refuse a matcher of a text whose messages are too long; best before it is built.

    Args:
        wanted: bytes of a message.

    Raises:
        ParameterError: they are more than `MAX_TEXT_BYTES`, and a text asks for them.
    """
    if from_text() and wanted > MAX_TEXT_BYTES:
        raise ParameterError(
            f"messages would have {wanted:,} bytes, and at most {MAX_TEXT_BYTES:,} where a text "
            "says so; if such messages are what you want, call the constructor"
        )


def matcher_fields(text: str) -> dict[str, Any]:
    """Return the parts of what `Matcher.to_json` wrote.

    Raises:
        DecodeError: it is not such a text.
    """
    fields = read_description("matcher", text, MATCHER_FIELDS, most=MAX_TEXT)
    if not isinstance(fields["parameters"], dict):
        raise DecodeError("the parameters of a matcher are an object of JSON")
    return fields
