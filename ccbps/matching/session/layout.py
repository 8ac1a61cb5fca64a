"""What stands where in the messages of `ccbps.matching.session`, and what is signed.

Everything here is public. Of a signed message the signature covers all bytes in front of it, what
kind of message it is, the whole fingerprint of the matcher and, in a session, a digest of the
request that it answers:

    request   Ed25519("ccbps oblivious request\\0" fingerprint message)
    session   Ed25519("ccbps oblivious session\\0" fingerprint digest message)

where the digest is SHA-256 of what the request's signature covers. Keys are bound to fingerprint,
the publisher's identity and that digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.ciphers.oblivious import EqCot
from ccbps.ciphers.payloads import sealed_bytes
from ccbps.ciphers.signatures import NAME_BYTES, SIGNATURE_BYTES
from ccbps.ciphers.slots import BLOCK
from ccbps.errors import DecodeError
from ccbps.predicates import Schema
from ccbps.wire import KEY_HEADER_BYTES, Kind

WIRE_VERSION: Final = 3
NUMBER_BYTES: Final = 8
PLACE_BYTES: Final = 4
DIGEST_BYTES: Final = 32
SIGNED: Final = KEY_HEADER_BYTES + NAME_BYTES
"""Where the name of who signed a request or a session ends."""
NUMBERED: Final = KEY_HEADER_BYTES + NUMBER_BYTES
OPENED: Final = SIGNED + PLACE_BYTES

DAMAGED: Final = "this role key is damaged: take the text that the role's key.to_text() wrote"


def raw(text: Any, size: int) -> bytes:
    """The bytes that a role key holds as hex digits; a ValueError or TypeError if it does not."""
    if len(text) != 2 * size:
        raise ValueError
    return bytes.fromhex(text)


def whole(value: Any, end: int) -> int:
    """A number in 0..end - 1 that a role key holds; a ValueError if it does not."""
    if type(value) is not int or not 0 <= value < end:
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class Layout:
    """What both roles know of messages: public."""

    schema: Schema
    attributes: tuple[str, ...]
    payload_bytes: int
    transfer: EqCot
    fingerprint: bytes

    @property
    def request_bytes(self) -> int:
        """Bytes of a request."""
        return SIGNED + self.transfer.request_bytes + SIGNATURE_BYTES

    def session_bytes(self, topics: int) -> int:
        """Bytes of a session with a publisher of that many topics."""
        return OPENED + topics * self.transfer.response_bytes + SIGNATURE_BYTES

    @property
    def fixed_bytes(self) -> int:
        """Bytes of an event in front of its slots."""
        return NUMBERED + (sealed_bytes(self.payload_bytes) if self.payload_bytes else 0)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot."""
        return 2 * BLOCK if self.payload_bytes else BLOCK

    def event_bytes(self, requests: int) -> int:
        """Bytes of an event of a publisher that has answered that many requests."""
        return self.fixed_bytes + requests * self.slot_bytes

    @property
    def topic_bytes(self) -> int:
        """Bytes of a topic."""
        return 8 * sum(self.schema[name].limbs for name in self.attributes)

    def headers(self, kind: Kind, names: Bytes) -> Bytes:
        """Headers, one for each row of names."""
        head = np.zeros((len(names), KEY_HEADER_BYTES), dtype=np.uint8)
        first = bytes([kind, WIRE_VERSION]) + self.fingerprint[:6]
        head[:, :8] = np.frombuffer(first, dtype=np.uint8)
        head[:, 8:] = names
        return head

    def request(self, message: Bytes) -> bytes:
        """What the signature of a request covers; shape (request_bytes,)."""
        body = message[:-SIGNATURE_BYTES].tobytes()
        return b"ccbps oblivious request\0" + self.fingerprint + body

    def digest(self, message: Bytes) -> bytes:
        """What a request is known by: 32 bytes."""
        return sha256(self.request(message)).digest()

    def session(self, message: Bytes, digest: bytes) -> bytes:
        """What the signature of a session covers that answers the request of that digest."""
        body = message[:-SIGNATURE_BYTES].tobytes()
        return b"ccbps oblivious session\0" + self.fingerprint + digest + body

    def context(self, publisher: bytes, digest: bytes) -> bytes:
        """What a key is bound to: the publisher's identity, and the request."""
        return self.fingerprint + publisher + digest

    def check(self, messages: Bytes, kind: Kind, fixed: int, step: int, name: str) -> int:
        """How many parts of `step` bytes there are beside the `fixed` ones.

        Raises:
            DecodeError: these are not such messages of this matcher; names rows.
        """
        count = self.parts(messages, fixed, step, name)
        bad = np.flatnonzero(self.foreign(messages, kind)).tolist()
        self.refuse(dict.fromkeys(bad, self.cause(name)))
        return count

    def parts(self, messages: Bytes, fixed: int, step: int, name: str) -> int:
        """The same without a look at the headers."""
        if not isinstance(messages, np.ndarray) or messages.dtype != np.uint8 or messages.ndim != 2:
            raise DecodeError(
                f"{name}s must be a uint8 array of shape (batch, bytes), "
                f"got {type(messages).__name__}"
            )
        width = messages.shape[1]
        if width != fixed if not step else width < fixed or (width - fixed) % step:
            more = f" and a multiple of {step}" if step else ""
            raise DecodeError(f"{name}s have {fixed} bytes{more}, got {width}")
        return (width - fixed) // step if step else 0

    def foreign(self, messages: Bytes, kind: Kind) -> Bools:
        """Which messages are not of this kind, version and matcher, shape (batch,)."""
        wanted = self.headers(kind, np.zeros((1, NAME_BYTES), dtype=np.uint8))[0, :8]
        return np.asarray((messages[:, :8] != wanted).any(axis=1))

    def cause(self, name: str) -> str:
        """What is wrong with foreign messages."""
        return f"no {name} of this version and matcher"

    def refuse(self, problems: Mapping[int, str]) -> None:
        """Raise a DecodeError that names rows and their causes, if there are any."""
        if problems:
            rows = tuple(sorted(problems))
            causes = tuple(problems[row] for row in rows)
            raise DecodeError(f"row {rows[0]}: {causes[0]}", rows=rows, causes=causes)
