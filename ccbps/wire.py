"""The 16-byte header in front of every message.

=====  =======  ================================================================
bytes  field    meaning
=====  =======  ================================================================
0      kind     `Kind`: 1 = event, 2 = interest
1      version  of the message format: 1
2-7    matcher  first 6 bytes of the matcher's fingerprint (its public parameters)
8-15   tag      8 bytes of the pair's shared randomness for this round; or, where
                a key server gives keys, 6 bytes of the key's id and 2 of its epoch
=====  =======  ================================================================

Both messages of a pair and round carry the same tag. It is randomness that serves no other purpose,
so it tells the broker only what belongs together, and it lets the broker refuse two messages of
different pairs, rounds or seeds (one chance in 2^64) where it would otherwise compute nonsense.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes
from ccbps.errors import DecodeError

__all__ = [
    "HEADER_BYTES",
    "SERVER_BYTES",
    "TAG_BYTES",
    "VERSION",
    "Cause",
    "Kind",
    "check_headers",
    "check_key_headers",
    "key_header",
    "raise_for",
    "write_header",
]


HEADER_BYTES: Final = 16
TAG_BYTES: Final = 8
VERSION: Final = 1
SERVER_BYTES: Final = 2
"""First bytes of a key's id, which name its server and stay when the key changes."""


@unique
class Kind(IntEnum):
    """The first byte of everything that has a header: what it is. No other module defines one.

    Events and interests have the header above; behind the kind and the version of the others stands
    what their own modules say: `ccbps.delivery.naive` and `ccbps.matching.session.layout`.
    """

    EVENT = 1
    INTEREST = 2
    PAYLOAD = 3
    """A sealed payload."""
    REQUEST = 4
    """A subscriber asks for a session."""
    SESSION = 5
    """A publisher's answer to a request."""
    SESSION_EVENT = 6
    """An event for the subscribers of sessions."""
    TABLE = 7
    """A saved table of interests: `ccbps.matching.table`."""


class Cause(IntEnum):
    """Why a message is refused."""

    NONE = 0
    EVENT_WIDTH = 1
    INTEREST_WIDTH = 2
    EVENT_KIND = 3
    INTEREST_KIND = 4
    EVENT_MATCHER = 5
    INTEREST_MATCHER = 6
    PAIRING = 7
    PADDING = 8
    ELEMENT = 9
    PRODUCT = 10
    KEY = 11
    EPOCH = 12
    VALUE = 13
    USER = 14
    SEGMENT = 15
    ALTERED = 16

    @property
    def text(self) -> str:
        """The cause in words."""
        return _TEXTS[self]


_TEXTS: Final = {
    Cause.NONE: "",
    Cause.EVENT_WIDTH: "the event message has the wrong number of bytes",
    Cause.INTEREST_WIDTH: "the interest message has the wrong number of bytes",
    Cause.EVENT_KIND: "the event bytes are not an event message of this version",
    Cause.INTEREST_KIND: "the interest bytes are not an interest message of this version",
    Cause.EVENT_MATCHER: "the event message was made for another matcher",
    Cause.INTEREST_MATCHER: "the interest message was made for another matcher",
    Cause.PAIRING: "event and interest are of different pairs, rounds or seeds",
    Cause.PADDING: "unused bits at the end of a message are not zero",
    Cause.ELEMENT: "a message holds bytes that are not elements of the group",
    Cause.PRODUCT: "the product is neither alpha nor the identity: a message was altered",
    Cause.KEY: "the message was made under another master key",
    Cause.EPOCH: "the message was made in another key epoch",
    Cause.VALUE: "the message holds a value that no message of this scheme has",
    Cause.USER: "the message is from a user this broker does not serve: revoked, or not admitted",
    Cause.ALTERED: "the message was altered on its way, or made without a key of its side",
    Cause.SEGMENT: "a segment is from another message, or out of place: pieces were mixed up",
}


def _first_word(kind: Kind, fingerprint: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(bytes([kind, VERSION]) + fingerprint[:6], dtype=np.uint8)


def write_header(messages: Bytes, kind: Kind, fingerprint: bytes, tags: Bytes) -> None:
    """Write the headers of messages, shape (batch, bytes); `tags` has shape (batch, 8)."""
    messages[:, : HEADER_BYTES - TAG_BYTES] = _first_word(kind, fingerprint)
    messages[:, HEADER_BYTES - TAG_BYTES : HEADER_BYTES] = tags


def key_header(kind: Kind, fingerprint: bytes, key_id: bytes, epoch: int) -> Bytes:
    """The header of all messages that one key makes: 6 bytes of its id and 2 of its epoch stand in
    place of the tag."""
    head = bytes([kind, VERSION]) + fingerprint[:6] + key_id + epoch.to_bytes(2, "little")
    return np.frombuffer(head, dtype=np.uint8)


def check_key_headers(heads: Bytes, wanted: Bytes) -> Bytes:
    """The `Cause` for refusing each header, shape (count, 16), that is not `key_header`'s."""
    event = wanted[0] == Kind.EVENT
    causes = np.zeros(len(heads), dtype=np.uint8)
    other = heads != wanted
    if not other.any():
        return causes
    causes[other[:, 14:].any(axis=1)] = Cause.EPOCH
    # A server's next keys have new ids: a key of this server and of another epoch is old or new.
    key = other[:, 8:14].any(axis=1)
    server = other[:, 8 : 8 + SERVER_BYTES].any(axis=1)
    causes[key & (server | (causes == Cause.NONE))] = Cause.KEY
    causes[other[:, 2:8].any(axis=1)] = Cause.EVENT_MATCHER if event else Cause.INTEREST_MATCHER
    causes[other[:, :2].any(axis=1)] = Cause.EVENT_KIND if event else Cause.INTEREST_KIND
    return causes


def check_headers(events: Bytes, interests: Bytes, fingerprint: bytes) -> NDArray[np.uint8]:
    """The `Cause` for refusing each pair of messages, 0 where there is none; shape (batch,).

    Args:
        events: the event messages' headers, C-contiguous, shape (batch, HEADER_BYTES).
        interests: the interest messages' headers, likewise.
        fingerprint: of the broker's matcher.
    """
    causes = np.zeros(len(events), dtype=np.uint8)
    event, interest = events.view("<u8"), interests.view("<u8")
    good = np.ones(len(events), dtype=np.bool_)
    good &= event[:, 0] == _first_word(Kind.EVENT, fingerprint).view("<u8")[0]
    good &= interest[:, 0] == _first_word(Kind.INTEREST, fingerprint).view("<u8")[0]
    good &= event[:, 1] == interest[:, 1]
    if good.all():
        return causes
    causes[event[:, 1] != interest[:, 1]] = Cause.PAIRING
    for rows, kind, kind_cause, matcher_cause in (
        (interests, Kind.INTEREST, Cause.INTEREST_KIND, Cause.INTEREST_MATCHER),
        (events, Kind.EVENT, Cause.EVENT_KIND, Cause.EVENT_MATCHER),
    ):
        wanted = _first_word(kind, fingerprint)
        causes[(rows[:, 2:8] != wanted[2:]).any(axis=1)] = matcher_cause
        causes[(rows[:, :2] != wanted[:2]).any(axis=1)] = kind_cause
    return causes


def raise_for(causes: NDArray[np.uint8]) -> None:
    """Raise one `DecodeError` that names the refused rows, if there are any."""
    rows = np.flatnonzero(causes)
    if not len(rows):
        return
    texts = tuple(Cause(c).text for c in causes[rows])
    more = f" (and {len(rows) - 1} more rows)" if len(rows) > 1 else ""
    raise DecodeError(f"row {rows[0]}: {texts[0]}{more}", rows=tuple(rows.tolist()), causes=texts)
