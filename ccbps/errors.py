"""All errors that this package raises on purpose: one tree, rooted at `CcbpsError`.

Each class also derives from the expected standard type (`ValueError`, `RuntimeError`, ...), so both
styles of ``except`` work. A message names the argument, the expected and the given value, and the
remedy. It never contains a secret. Malformed bytes from the wire are a single `DecodeError`. A
predicate that does not match is ``False``, never an exception.

There is one warning: `BrokenSchemeWarning`.
"""

from __future__ import annotations


class CcbpsError(Exception):
    """The base of all errors that this package raises on purpose.

    Example:
        >>> from ccbps import CcbpsError, Schema, UInt
        >>> try:
        ...     Schema(price=UInt(16)).parse("prize < 120")
        ... except CcbpsError as error:
        ...     print(type(error).__name__, "is a ValueError:", isinstance(error, ValueError))
        UnknownAttributeError is a ValueError: True
    """


class ParameterError(CcbpsError, ValueError):
    """A public parameter that the scheme or type does not accept."""


class ShapeError(ParameterError):
    """An array of the wrong shape or dtype."""


class KeyMismatchError(CcbpsError, ValueError):
    """Key material of the wrong length, or of another owner, server or purpose."""


class SerializationError(CcbpsError, TypeError):
    """An attempt to pickle or copy a secret without an explicit export."""


class DecodeError(CcbpsError, ValueError):
    """Bytes that are not a message of the expected kind, version, matcher, pair or round.

    Attributes:
        rows: positions of the malformed messages in the batch; empty for an error that is not
            about rows.
        causes: cause for each of `rows`, from a small fixed vocabulary.
    """

    def __init__(
        self, message: str, *, rows: tuple[int, ...] = (), causes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.rows = rows
        self.causes = causes


class EnclaveError(CcbpsError, RuntimeError):
    """A simulated enclave whose process has ended, does not answer, or failed inside."""


class MissingKeyError(CcbpsError, LookupError):
    """A message that is or may be for this subscriber, under a key that it does not hold.

    Attributes:
        request: bytes to be sent to the broker, whose answer opens the message.
    """

    def __init__(self, message: str, *, request: bytes = b"") -> None:
        super().__init__(message)
        self.request = request


class UnknownItemError(CcbpsError, LookupError):
    """An item that a repository does not hold: it was never stored, or its time is over."""


class FilterFullError(CcbpsError, OverflowError):
    """A filter without room for a key. It is unchanged: no key was lost, and none was added."""


class RandomnessReuseError(CcbpsError, RuntimeError):
    """A round that is or may be requested again: its one-time randomness would be used twice."""


class ReplayError(DecodeError):
    """A message that was or may have been accepted before."""


class RefusedError(CcbpsError, RuntimeError):
    """A client's message that a broker refuses, by a limit or because the client is not admitted.

    Attributes:
        reason: word for the cause: at a broker "size", "rate", "cost", "subscriptions", "queue",
            "order" or "revoked"; between brokers "label", "hop", "link" or "domain". Access control
            and other parts have further ones, such as "version".
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class LedgerError(CcbpsError, OSError):
    """A ledger of rounds on disk that cannot be read or written. Nothing was encoded."""


class NetworkError(CcbpsError, ConnectionError):
    """A machine cannot be reached, a connection ended, or the other side took too long."""


class PeerError(NetworkError):
    """The other side of a connection is not a pinned peer, or broke the protocol."""


class PadExhaustedError(CcbpsError, RuntimeError):
    """A one-time pad without bytes for the requested rounds."""


class SamplingError(CcbpsError, RuntimeError):
    """A round whose random bytes were used up before its random elements were complete.

    Nothing of that round may be sent: abandon it and use another one.
    """


class EventError(CcbpsError, ValueError):
    """A record that does not fit the schema.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.errors import EventError
        >>> try:
        ...     Schema(price=UInt(16)).encode([{"price": 120}, {"price": -1}])
        ... except EventError as error:
        ...     print(error, error.attribute, error.row, sep=" | ")
        attribute 'price', row 1: out of range; expected a whole number 0..65535 | price | 1

    Attributes:
        attribute: name of the attribute that does not fit, or None for the whole batch.
        row: position in the batch of the first record that does not fit, or None.
    """

    def __init__(
        self, message: str, *, attribute: str | None = None, row: int | None = None
    ) -> None:
        super().__init__(message)
        self.attribute = attribute
        self.row = row


class PredicateError(CcbpsError, ValueError):
    """A predicate text that cannot be used. The message shows it with a caret under the place.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.errors import PredicateError
        >>> try:
        ...     Schema(price=UInt(16)).parse("price < 120 & price > 100")
        ... except PredicateError as error:
        ...     print(error)
        & is not supported; write AND (line 1, column 13)
          price < 120 & price > 100
                      ^

    Attributes:
        reason: problem, without the text.
        summary: problem, without any name or value of the text; safe to log.
        text: predicate as written.
        position: offset of the place in `text` in characters, from 0, or None.
        row: position in a batch of the first row with this predicate, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        text: str = "",
        position: int | None = None,
        summary: str | None = None,
    ) -> None:
        shown = message
        if text and position is not None:
            line_start = text.rfind("\n", 0, position) + 1
            line_end = text.find("\n", position)
            line = text[line_start : line_end if line_end >= 0 else len(text)]
            column = position - line_start
            line_number = text.count("\n", 0, position) + 1
            shown = (
                f"{message} (line {line_number}, column {column + 1})\n  {line}\n  {' ' * column}^"
            )
        super().__init__(shown)
        self.reason = message
        self.summary = message if summary is None else summary
        self.row: int | None = None
        self.text = text
        self.position = position


class PredicateSyntaxError(PredicateError):
    """A text that is not a predicate in SQL."""


class UnknownAttributeError(PredicateError):
    """A predicate with an attribute that the schema does not have."""


class PredicateTypeError(PredicateError):
    """A predicate with an operator or a constant that does not fit the attribute's type."""


class UnsupportedPredicateError(PredicateError):
    """A predicate in SQL that the predicate language or the matcher does not support."""


class BrokenSchemeWarning(UserWarning):
    """A warning of a matcher whose broker can read the data: its leakage card says "broken".

    ``warnings.simplefilter("ignore", ccbps.BrokenSchemeWarning)`` silences it.
    """
