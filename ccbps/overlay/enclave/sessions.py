"""Sessions: keys that an enclave and another party share, and fragments encrypted under them.

=========  =====  ====================================================================
part       bytes  holds
=========  =====  ====================================================================
kind           1  `Kind.SEALED_FRAGMENT`
version        1  1
session        8  names the session: public, different in every one
counter        8  of this session and direction, little-endian; the nonce
fragment          head and path as in `ccbps.overlay.splits.fragments`, readable for routing
value             encrypted, and 16 bytes of a tag
=========  =====  ====================================================================

Each direction has a key of its own; the cipher is AES-256-GCM. Everything in front of the value is
authenticated, and so is the direction. A message that was opened is refused from then on; messages
may overtake one another, but not by more than `WINDOW`.

Source: [Survey] section 8.3 asks for session keys and names no cipher; [SP800-38D], [RFC5869].
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps.errors import DecodeError
from ccbps.keys.secret import Confined
from ccbps.overlay.splits.fragments import Fragment
from ccbps.wire import Kind

VERSION: Final = 1
ID_BYTES: Final = 8
HEAD_BYTES: Final = 2 + ID_BYTES + 8
KEY_BYTES: Final = 32
WINDOW: Final = 1024
"""Messages that are behind the newest one by this many are refused as old."""

SessionKeys = tuple[bytes, bytes, bytes]
"""The session's name, the key to the enclave and the key from it."""


class Session(Confined):
    """One party's end of a session.

    Attributes:
        name: of the session, 8 bytes: in all its messages.
    """

    def __init__(self, keys: SessionKeys, *, enclave: bool) -> None:
        """
        Args:
            keys: from `derive_keys`.
            enclave: whether this end is the enclave's.
        """
        self.name, to_enclave, from_enclave = keys
        to, from_ = b"to enclave", b"from enclave"
        self._sends, self._receives = (from_, to) if enclave else (to, from_)
        ciphers = {to: AESGCM(to_enclave), from_: AESGCM(from_enclave)}
        self._seal, self._open = ciphers[self._sends], ciphers[self._receives]
        self._next = 0
        self._newest, self._seen = -1, 0

    def __repr__(self) -> str:
        return f"<Session {self.name.hex()}>"

    def seal(self, fragment: Fragment) -> bytes:
        """Encrypt a fragment's value for the other end."""
        counter = self._next.to_bytes(8, "little")
        self._next += 1
        head = bytes([Kind.SEALED_FRAGMENT, VERSION]) + self.name + counter
        bound = self._sends + head + public_part(fragment)
        value = self._seal.encrypt(_nonce(counter), fragment.value, bound)
        return head + replace(fragment, value=value).to_bytes()

    def open(self, message: bytes) -> Fragment:
        """Decrypt a message of the other end, once.

        Raises:
            DecodeError: altered, of another session or direction, or opened before.
        """
        fragment = self.peek(message)
        self.spend(message)
        return fragment

    def peek(self, message: bytes) -> Fragment:
        """As `open`, but the message can be opened again until `spend` is called."""
        name, fragment = read_sealed(message)
        counter = message[HEAD_BYTES - 8 : HEAD_BYTES]
        if name != self.name:
            raise DecodeError(f"a message of session {name.hex()}, not of {self.name.hex()}")
        behind = self._newest - int.from_bytes(counter, "little")
        if behind >= WINDOW or (behind >= 0 and self._seen >> behind & 1):
            raise DecodeError("a replay: this message was opened before, or is too old to tell")
        bound = self._receives + message[:HEAD_BYTES] + public_part(fragment)
        try:
            value = self._open.decrypt(_nonce(counter), fragment.value, bound)
        except InvalidTag:
            raise DecodeError(
                "a sealed fragment was altered on its way, or is of another direction"
            ) from None
        return replace(fragment, value=value)

    def spend(self, message: bytes) -> None:
        """Refuse this message from now on. Only for what `peek` has accepted."""
        counter = int.from_bytes(message[HEAD_BYTES - 8 : HEAD_BYTES], "little")
        if counter > self._newest:
            self._seen = self._seen << min(counter - self._newest, WINDOW) & (1 << WINDOW) - 1
            self._newest = counter
        self._seen |= 1 << self._newest - counter


def derive_keys(own: X25519PrivateKey, other: bytes, quote: bytes, publics: bytes) -> SessionKeys:
    """The keys of a session, the same at both ends.

    Args:
        own: this end's key pair.
        other: the other end's public key, 32 bytes.
        quote: the digest of the enclave's quote.
        publics: both public keys, the enclave's first.

    Raises:
        DecodeError: `other` is no public key to agree on a key with.
    """
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise DecodeError("not an X25519 public key to agree on a session key with") from None
    info = b"ccbps simulated enclave session\0" + publics
    size = ID_BYTES + 2 * KEY_BYTES
    made = HKDF(algorithm=SHA256(), length=size, salt=quote, info=info).derive(shared)
    return made[:ID_BYTES], made[ID_BYTES:][:KEY_BYTES], made[ID_BYTES + KEY_BYTES :]


def read_sealed(message: bytes) -> tuple[bytes, Fragment]:
    """What anybody can read of a sealed fragment: its session's name, and the fragment with the
    encrypted value in place of the value.

    Raises:
        DecodeError: it is no sealed fragment of this version.
    """
    if message[:2] != bytes([Kind.SEALED_FRAGMENT, VERSION]):
        raise DecodeError(
            f"not a sealed fragment of this version: {len(message)} bytes that do not begin as one"
        )
    return message[2 : 2 + ID_BYTES], Fragment.from_bytes(message[HEAD_BYTES:])


def public_part(fragment: Fragment) -> bytes:
    """Everything of a fragment but its value."""
    return fragment.to_bytes()[: -len(fragment.value)]


def _nonce(counter: bytes) -> bytes:
    return bytes(4) + counter
