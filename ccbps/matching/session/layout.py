r"""Messages of `ccbps.matching.session`: places of their parts, signatures, saved keys.

The layout is public. Of a signed message the signature covers all bytes in front of it, the kind of
message, the whole fingerprint of the matcher and, in a session, a digest of the request that it
answers::

    request   Ed25519("ccbps oblivious request\0" fingerprint message)
    session   Ed25519("ccbps oblivious session\0" fingerprint digest message)

where the digest is SHA-256 of the bytes that the request's signature covers. Keys are bound to
fingerprint, the publisher's identity and that digest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Any, ClassVar, Final, Literal

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.checks import Printable
from ccbps.ciphers.oblivious import EqCot
from ccbps.ciphers.payloads import sealed_bytes
from ccbps.ciphers.signatures import NAME_BYTES, SIGNATURE_BYTES, name_of
from ccbps.ciphers.slots import BLOCK
from ccbps.errors import DecodeError, KeyMismatchError
from ccbps.keys.plain_key import SigningKey
from ccbps.keys.role_key import KEY_ID_BYTES, RoleKey, hex_bytes
from ccbps.keys.secret import Confined
from ccbps.matching.contract.access import check_key
from ccbps.matching.contract.scheme import SessionScheme
from ccbps.predicates import Schema
from ccbps.wire import KEY_HEADER_BYTES, Kind

WIRE_VERSION: Final = 3
NUMBER_BYTES: Final = 8
PLACE_BYTES: Final = 4
DIGEST_BYTES: Final = 32
SIGNED: Final = KEY_HEADER_BYTES + NAME_BYTES
"""End of the signer's name in a request or a session."""
NUMBERED: Final = KEY_HEADER_BYTES + NUMBER_BYTES
OPENED: Final = SIGNED + PLACE_BYTES


class Layout:
    """The layout of messages, which both roles know.

    Attributes:
        schema: the events' attributes.
        attributes: names of the topic's attributes.
        payload_bytes: longest payload, bytes; 0 for none.
        transfer: the oblivious transfer of keys.
        matcher_digest: `Scheme.digest` of the matcher, 32 bytes.
        request_bytes: bytes of a request.
        fixed_bytes: bytes of an event in front of its slots.
        slot_bytes: bytes of a slot.
        topic_bytes: bytes of a topic.
    """

    def __init__(
        self,
        schema: Schema,
        attributes: tuple[str, ...],
        payload_bytes: int,
        transfer: EqCot,
        matcher_digest: bytes,
    ) -> None:
        self.schema, self.attributes, self.payload_bytes = schema, attributes, payload_bytes
        self.transfer, self.matcher_digest = transfer, matcher_digest
        self.request_bytes = SIGNED + transfer.request_bytes + SIGNATURE_BYTES
        self.fixed_bytes = NUMBERED + (sealed_bytes(payload_bytes) if payload_bytes else 0)
        self.slot_bytes = 2 * BLOCK if payload_bytes else BLOCK
        self.topic_bytes = 8 * sum(schema[name].limbs for name in attributes)

    def session_bytes(self, topics: int) -> int:
        """Return the bytes of a session with a publisher of that many topics."""
        return OPENED + topics * self.transfer.response_bytes + SIGNATURE_BYTES

    def event_bytes(self, requests: int) -> int:
        """Return the bytes of an event of a publisher that has answered that many requests."""
        return self.fixed_bytes + requests * self.slot_bytes

    def headers(self, kind: Kind, names: Bytes) -> Bytes:
        """Return headers, one for each row of names."""
        head = np.zeros((len(names), KEY_HEADER_BYTES), dtype=np.uint8)
        first = bytes([kind, WIRE_VERSION]) + self.matcher_digest[:6]
        head[:, :8] = np.frombuffer(first, dtype=np.uint8)
        head[:, 8:] = names
        return head

    def request(self, message: Bytes) -> bytes:
        """Return the bytes that the signature of a request covers."""
        body = message[:-SIGNATURE_BYTES].tobytes()
        return b"ccbps oblivious request\0" + self.matcher_digest + body

    def digest(self, message: Bytes) -> bytes:
        """Return 32 bytes that tell a request from all others."""
        return sha256(self.request(message)).digest()

    def session(self, message: Bytes, digest: bytes) -> bytes:
        """Return the bytes that the signature of a session covers, for its request's digest."""
        body = message[:-SIGNATURE_BYTES].tobytes()
        return b"ccbps oblivious session\0" + self.matcher_digest + digest + body

    def context(self, publisher: bytes, digest: bytes) -> bytes:
        """Return the bytes that a key is bound to, for a publisher's identity and a request."""
        return self.matcher_digest + publisher + digest

    def check(self, messages: Bytes, kind: Kind, fixed: int, step: int, name: str) -> int:
        """Return the number of parts of `step` bytes beside the `fixed` ones.

        Raises:
            DecodeError: these are not such messages of this matcher; names rows.
        """
        count = self.parts(messages, fixed, step, name)
        bad = np.flatnonzero(self.foreign(messages, kind)).tolist()
        self.refuse(dict.fromkeys(bad, self.cause(name)))
        return count

    def parts(self, messages: Bytes, fixed: int, step: int, name: str) -> int:
        """Return the number of parts as `check` does, without a look at the headers."""
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
        """Return the messages not of this kind, version and matcher, bool, shape (batch,)."""
        expected = self.headers(kind, np.zeros((1, NAME_BYTES), dtype=np.uint8))[0, :8]
        return np.asarray((messages[:, :8] != expected).any(axis=1))

    def cause(self, name: str) -> str:
        """Return the cause for refusing foreign messages."""
        return f"no {name} of this version and matcher"

    def refuse(self, problems: Mapping[int, str]) -> None:
        """Raise a DecodeError that names rows and their causes, if there are any."""
        if problems:
            rows = tuple(sorted(problems))
            causes = tuple(problems[row] for row in rows)
            raise DecodeError(f"row {rows[0]}: {causes[0]}", rows=rows, causes=causes)


@dataclass(frozen=True, slots=True, repr=False)
class Opened(Printable):
    """A batch of events as a subscriber reads it.

    Attributes:
        matched: True where an event is of the topic of an interest, bool (events, interests).
        payloads: payload of each event that is of one of the topics, None for the others.
    """

    matched: Bools
    payloads: list[bytes | None]

    def __repr__(self) -> str:
        return f"<Opened: {len(self.payloads)} events>"


@dataclass(frozen=True, slots=True, repr=False)
class Asked:
    """A request of this subscriber.

    Attributes:
        secret: the number z.
        interest: place of the interest among all.
        digest: digest of the request, 32 bytes.
    """

    secret: int
    interest: int
    digest: bytes


def role_key(
    layout: Layout, role: Literal["publisher", "subscriber"], signing: SigningKey, **data: Any
) -> RoleKey:
    """Return the key of a role, which holds its signing key and all of its data."""
    data["signing"] = signing.export_secret().hex()
    name = name_of(signing.identity)[:KEY_ID_BYTES]
    return RoleKey.make(layout.matcher_digest, role, name, 0, data)


class SessionRole(Confined):
    """A role with an identity of its own, which keeps its agreements and can be saved.

    Args:
        matcher: the matcher that made it.
        layout: the layout of its messages.
        key: the role as it was saved.

    Raises:
        KeyMismatchError: `key` is of another matcher or role, or damaged.
    """

    _role: ClassVar[Literal["publisher", "subscriber"]]

    def __init__(self, matcher: SessionScheme, layout: Layout, key: RoleKey) -> None:
        check_key(matcher, key, self._role)
        self.matcher, self._layout, self._lock = matcher, layout, Lock()
        is_damaged = True
        # No secret in a local variable of this frame: tracebacks may show those.
        with suppress(LookupError, TypeError, ValueError):
            self._identify(key.export_secret_data()["signing"], key.key_id)
            self._restore(key.export_secret_data())
            is_damaged = False
        if is_damaged:
            raise KeyMismatchError(
                "this role key is damaged: take the text that the role's key.to_text() wrote"
            )

    def _identify(self, signing: str, key_id: bytes) -> None:
        self._signing = SigningKey(hex_bytes(signing, SigningKey.length))
        self._name = np.frombuffer(name_of(self.identity), dtype=np.uint8)
        if self._name[:KEY_ID_BYTES].tobytes() != key_id:
            raise ValueError

    @abstractmethod
    def _restore(self, data: Mapping[str, Any]) -> None:
        """Take over the data of a key; a LookupError, TypeError or ValueError if it is damaged."""

    @property
    def identity(self) -> bytes:
        """Public half of the role's signing key, 32 bytes, to hand to the other role."""
        return self._signing.identity

    def _sign(self, message: Bytes, covered: bytes) -> None:
        """Write the signature of a message, which covers some bytes."""
        signature = self._signing.sign(covered)
        message[-SIGNATURE_BYTES:] = np.frombuffer(signature, dtype=np.uint8)
