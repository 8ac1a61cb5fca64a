"""Every error this package raises on purpose: one tree, rooted at `CcbpsError`.

Each class also derives from the standard type a caller would expect (`ValueError`,
`RuntimeError`, ...), so both styles of ``except`` work. A message names the argument, what was
wanted and what came, and what to do; it never contains a secret. Malformed bytes from the wire are
one `DecodeError`; a predicate that does not match is ``False``, never an exception.

There is one warning: `BrokenSchemeWarning`.
"""

from __future__ import annotations


class CcbpsError(Exception):
    """Base of every error raised on purpose by this package.

    Example:
        >>> from ccbps import CcbpsError, Schema, UInt
        >>> try:
        ...     Schema(price=UInt(16)).parse("prize < 120")
        ... except CcbpsError as error:
        ...     print(type(error).__name__, "is a ValueError:", isinstance(error, ValueError))
        UnknownAttributeError is a ValueError: True
    """


class ParameterError(CcbpsError, ValueError):
    """A public parameter is outside what the scheme or type accepts."""


class ShapeError(ParameterError):
    """An array has the wrong shape or dtype."""


class KeyMismatchError(CcbpsError, ValueError):
    """Key material is of the wrong length, or belongs to something else."""


class SerializationError(CcbpsError, TypeError):
    """A secret was about to be pickled or copied without an explicit export."""


class DecodeError(CcbpsError, ValueError):
    """Bytes from the wire are not a message of this kind, version, matcher, pair or round.

    Attributes:
        rows: positions in the batch of the offending messages; empty when the error is not about
            rows.
        causes: the cause for each of `rows`, from a small fixed vocabulary.
    """

    def __init__(
        self, message: str, *, rows: tuple[int, ...] = (), causes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.rows = rows
        self.causes = causes


class EnclaveError(CcbpsError, RuntimeError):
    """A simulated enclave's process has ended, does not answer, or failed inside."""


class MissingKeyError(CcbpsError, LookupError):
    """A message is for this subscriber, or may be, and under a key that it does not hold.

    Attributes:
        request: what to send to the broker, whose answer opens the message.
    """

    def __init__(self, message: str, *, request: bytes = b"") -> None:
        super().__init__(message)
        self.request = request


class FilterFullError(CcbpsError, OverflowError):
    """A filter has no room for a key. It is as it was: no key was lost, and none was added."""


class RandomnessReuseError(CcbpsError, RuntimeError):
    """A round was asked for twice, or may be: its one-time randomness would be used again."""


class ReplayError(DecodeError):
    """A message was accepted before, or may have been."""


class RefusedError(CcbpsError, RuntimeError):
    """A broker refuses a client's message: it is too much, or the client is not let in.

    Attributes:
        reason: "size", "rate", "cost", "subscriptions", "queue" or "revoked".
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class LedgerError(CcbpsError, OSError):
    """A ledger of rounds on disk cannot be read or written; nothing was encoded."""


class NetworkError(CcbpsError, ConnectionError):
    """A machine cannot be reached, a connection ended, or the other side took too long."""


class PeerError(NetworkError):
    """The other side of a connection is not a pinned peer, or sent what no peer sends."""


class PadExhaustedError(CcbpsError, RuntimeError):
    """A one-time pad has no bytes left for the rounds asked for."""


class SamplingError(CcbpsError, RuntimeError):
    """A round's random bytes were used up before its random elements were complete.

    Nothing from that round may be sent: abandon it and use another one.
    """


class EventError(CcbpsError, ValueError):
    """A record does not fit the schema.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.errors import EventError
        >>> try:
        ...     Schema(price=UInt(16)).encode([{"price": 120}, {"price": -1}])
        ... except EventError as error:
        ...     print(error, error.attribute, error.row, sep=" | ")
        attribute 'price', row 1: out of range; expected a whole number 0..65535 | price | 1

    Attributes:
        attribute: name of the offending attribute, or None when it is about the whole batch.
        row: position of the first offending record in the batch, or None.
    """

    def __init__(
        self, message: str, *, attribute: str | None = None, row: int | None = None
    ) -> None:
        super().__init__(message)
        self.attribute = attribute
        self.row = row


class PredicateError(CcbpsError, ValueError):
    """A predicate text cannot be used; shows the text with a caret under the place.

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
        reason: what is wrong, without the text around it.
        summary: the same without any name or value from the text; safe to log.
        text: the predicate as written.
        position: offset of the offending place in `text` (characters, 0-based), or None.
        row: position in a batch of the first row that has this predicate, or None.
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
    """The text is not a predicate in SQL."""


class UnknownAttributeError(PredicateError):
    """The predicate names an attribute that the schema does not have."""


class PredicateTypeError(PredicateError):
    """An operator or a constant does not fit the attribute's type."""


class UnsupportedPredicateError(PredicateError):
    """Valid SQL, but outside the predicate language, or outside what this matcher can hide."""


class BrokenSchemeWarning(UserWarning):
    """A matcher was made whose broker can read the data: its leakage card says "broken".

    To silence it: ``warnings.simplefilter("ignore", ccbps.BrokenSchemeWarning)``.
    """
