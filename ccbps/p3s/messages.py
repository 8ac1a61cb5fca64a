"""Messages of P3S: requests to its servers, and their replies.

An event is two messages. The *item* is its payload, sealed for a policy
(`ccbps.delivery.PolicySealer`), and is stored under a GUID of 128 random bits. The *announcement*
is a message of hidden vectors for the event's metadata (`ccbps.functional.HiddenVectors`). Its
payload is the *ticket*: the GUID, and the SHA-256 of the item.

The source has only the GUID in the announcement. The hash prevents a repository from substituting
an item that it sealed itself under the public key.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta

from ccbps.errors import (
    CcbpsError,
    DecodeError,
    KeyMismatchError,
    ParameterError,
    PeerError,
    PredicateError,
    RefusedError,
    ReplayError,
    UnknownItemError,
)
from ccbps.functional.keys import NAME_BYTES
from ccbps.records import Message, Number, SecretRecord
from ccbps.wire import Kind

VERSION: Final = 1
GUID_BYTES: Final = 16
TICKET_BYTES: Final = GUID_BYTES + 32
PREDICATE_BYTES: Final = 1 << 14
"""Largest number of bytes of a predicate."""
ANNOUNCED_BYTES: Final = 1 << 21
"""Largest number of bytes of an announcement; few bits of metadata take far fewer."""
LISTEN_BYTES: Final = 1 << 22
"""Largest number of bytes of the announcements in a reply; a single one may be longer."""
KEY_BYTES: Final = 1 << 23
"""Largest number of bytes of the keys in a reply."""
ITEM_BYTES: Final = 1 << 24
"""Largest number of bytes of an item, by default."""
MOST_ITEM_BYTES: Final = 1 << 26
"""Upper bound of `item_bytes` of repositories and lines."""
BESIDE: Final = 1 << 12
"""Largest number of bytes of a request or a reply beside its content."""

Verb = Literal["public", "token", "access", "announce", "listen", "store", "fetch"]
_ASKED: Final[dict[str, int]] = {
    "token": PREDICATE_BYTES,
    "announce": ANNOUNCED_BYTES,
    "listen": NAME_BYTES,
}
_GIVEN: Final[dict[str, int]] = {
    "public": KEY_BYTES,
    "token": KEY_BYTES,
    "access": KEY_BYTES,
    "listen": 2 * LISTEN_BYTES,
}
_WITH_GUID: Final = ("store", "fetch")


class Request(SecretRecord, Message, frozen=True):
    """A request to one of the servers.

    ============  ==========================================================================
    verb          what the server does
    ============  ==========================================================================
    ``public``    the authority gives the public keys of metadata and of access
    ``token``     the authority gives a token for a predicate, the content
    ``access``    the authority gives the client's key for payloads
    ``announce``  the dissemination server takes an announcement, the content, for everybody
    ``listen``    it gives the announcements from a number on, and waits for one if there is
                  none; the content names the authority of the tokens
    ``store``     the repository keeps an item, the content, for a number of seconds
    ``fetch``     it gives an item
    ============  ==========================================================================

    Attributes:
        verb: the verb.
        content: predicate, announcement or item, by the table above.
        guid: GUID of the item to store or to fetch; otherwise None.
        number: number of the first announcement, or of seconds.
    """

    front: ClassVar[bytes] = bytes([Kind.P3S, VERSION]) + b"Q"
    what: ClassVar[str] = "a request of P3S"
    verb: Verb
    content: bytes = b""
    guid: Annotated[bytes, Meta(min_length=GUID_BYTES, max_length=GUID_BYTES)] | None = None
    number: Number = 0

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ParameterError: a field does not have its type, or the GUID is missing or too much.
        """
        super().__post_init__()
        if (self.guid is not None) != (self.verb in _WITH_GUID):
            raise ParameterError(f"guid goes with {' and '.join(_WITH_GUID)}, and with no other")


class Reply(SecretRecord, Message, frozen=True):
    """A reply of a server.

    Attributes:
        contents: keys, announcements, or an item.
        number: number of the first announcement.
        error: name of an error's class; empty for none.
        text: text of the error.
    """

    front: ClassVar[bytes] = bytes([Kind.P3S, VERSION]) + b"R"
    what: ClassVar[str] = "a reply of P3S"
    contents: tuple[bytes, ...] = ()
    number: Number = 0
    error: str = ""
    text: str = ""

    @classmethod
    def refusing(cls, error: CcbpsError) -> Reply:
        """Return the reply that tells a client of an error."""
        names = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
        return cls(error=next(names, "PeerError"), text=str(error))


Ask: TypeAlias = Callable[[Request], Reply]
"""Way to a server: `ccbps.p3s.Line` over the network, `ccbps.p3s.local` in this process."""

_ERRORS: Final[dict[str, Callable[[str], CcbpsError]]] = {
    "DecodeError": DecodeError,
    "KeyMismatchError": KeyMismatchError,
    "ParameterError": ParameterError,
    "PredicateError": PredicateError,
    "RefusedError": partial(RefusedError, reason="queue"),
    "ReplayError": ReplayError,
    "UnknownItemError": UnknownItemError,
}


def asked_bytes(verb: Verb, item_bytes: int) -> int:
    """Return the largest length of a request's content, given that of items, in bytes."""
    return item_bytes if verb == "store" else _ASKED.get(verb, 0)


def reply_bytes(verb: Verb, item_bytes: int) -> int:
    """Return the largest length of the reply to a request, given that of items, in bytes."""
    return BESIDE + (item_bytes if verb == "fetch" else _GIVEN.get(verb, 0))


def read_reply(content: bytes) -> Reply:
    """Read a reply; raise the error that it carries.

    Raises:
        DecodeError: it is no reply.
        CcbpsError: the server refused the request.
    """
    reply = Reply.from_bytes(content)
    if reply.error:
        raise _ERRORS.get(reply.error, PeerError)(reply.text)
    return reply
