"""Sessions: keys that an enclave and another party share, and fragments encrypted under them.

=========  =====  ====================================================================
part       bytes  content
=========  =====  ====================================================================
kind           1  `Kind.SEALED_FRAGMENT`
version        1  1
session        8  name of the session: public, different in every session
counter        8  of this session and direction, little-endian; the nonce
fragment          head and path as in `ccbps.overlay.splits.fragments`, readable for routing
value             encrypted, and 16 bytes of a tag
=========  =====  ====================================================================

Each direction has a key of its own. The cipher is AES-256-GCM. Everything in front of the value is
authenticated, and so is the direction. A message that was opened is refused from then on. Messages
may overtake one another, but not by `WINDOW` messages or more.

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

FRONT: Final = bytes([Kind.SEALED_FRAGMENT, 1])
"""Kind and version."""
ID_BYTES: Final = 8
HEAD_BYTES: Final = len(FRONT) + ID_BYTES + 8
KEY_BYTES: Final = 32
WINDOW: Final = 1024
"""Number of messages. A message that is behind the newest one by so many is refused as old."""

SessionKeys = tuple[bytes, bytes, bytes]
"""Name of the session, key to the enclave, and key from it."""


class Session(Confined):
    """End of a session.

    Args:
        keys: keys from `derive_keys`.
        enclave: True if this end is the enclave's.

    Attributes:
        name: name of the session, 8 bytes, which is in all its messages.
    """

    def __init__(self, keys: SessionKeys, *, enclave: bool) -> None:
        self.name, to_key, from_key = keys
        # The names of the directions are authenticated, so messages do not pass for answers.
        directions = (b"to enclave", AESGCM(to_key)), (b"from enclave", AESGCM(from_key))
        self._sends, self._receives = directions[::-1] if enclave else directions
        self._next = 0
        # Bit i of `_seen` is set if the message i before the newest one was opened.
        self._newest, self._seen = -1, 0

    def seal(self, fragment: Fragment) -> bytes:
        """Encrypt a fragment's value for the other end."""
        direction, cipher = self._sends
        counter = self._next.to_bytes(8, "little")
        self._next += 1
        head = FRONT + self.name + counter
        bound = direction + head + _public_part(fragment)
        value = cipher.encrypt(bytes(4) + counter, fragment.value, bound)
        return head + replace(fragment, value=value).to_bytes()

    def open(self, message: bytes) -> Fragment:
        """Decrypt a message of the other end, once.

        Raises:
            DecodeError: it is altered, of another session or direction, or was opened before.
        """
        fragment = self.peek(message)
        self.spend(message)
        return fragment

    def peek(self, message: bytes) -> Fragment:
        """Decrypt a message as `open` does, but allow it again until `spend` is called."""
        name, fragment = read_sealed(message)
        counter = message[HEAD_BYTES - 8 : HEAD_BYTES]
        if name != self.name:
            raise DecodeError(f"a message of session {name.hex()}, not of {self.name.hex()}")
        behind = self._newest - int.from_bytes(counter, "little")
        if behind >= WINDOW or (behind >= 0 and self._seen >> behind & 1):
            raise DecodeError("a replay: this message was opened before, or is too old to tell")
        direction, cipher = self._receives
        bound = direction + message[:HEAD_BYTES] + _public_part(fragment)
        try:
            value = cipher.decrypt(bytes(4) + counter, fragment.value, bound)
        except InvalidTag:
            raise DecodeError(
                "a sealed fragment was altered on its way, or is of another direction"
            ) from None
        return replace(fragment, value=value)

    def spend(self, message: bytes) -> None:
        """Refuse a message from now on, after `peek` accepted it."""
        counter = int.from_bytes(message[HEAD_BYTES - 8 : HEAD_BYTES], "little")
        if counter > self._newest:
            self._seen = self._seen << min(counter - self._newest, WINDOW) & (1 << WINDOW) - 1
            self._newest = counter
        self._seen |= 1 << self._newest - counter


def derive_keys(own: X25519PrivateKey, other: bytes, quote: bytes, publics: bytes) -> SessionKeys:
    """Derive the keys of a session, the same at both ends.

    Args:
        own: key pair of this end.
        other: public key of the other end, 32 bytes.
        quote: digest of the enclave's quote.
        publics: both public keys, the enclave's first.

    Raises:
        DecodeError: the other end's key is no public key with which a key can be agreed on.
    """
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise DecodeError("not an X25519 public key to agree on a session key with") from None
    info = b"ccbps simulated enclave session\0" + publics
    size = ID_BYTES + 2 * KEY_BYTES
    keys = HKDF(algorithm=SHA256(), length=size, salt=quote, info=info).derive(shared)
    return keys[:ID_BYTES], keys[ID_BYTES:][:KEY_BYTES], keys[ID_BYTES + KEY_BYTES :]


def read_sealed(message: bytes) -> tuple[bytes, Fragment]:
    """Read the public parts of a sealed fragment.

    Returns:
        the name of the session, and the fragment with its encrypted value.

    Raises:
        DecodeError: it is no sealed fragment of this version.
    """
    if not message.startswith(FRONT):
        raise DecodeError(
            f"not a sealed fragment of this version: {len(message)} bytes that do not begin as one"
        )
    return message[len(FRONT) :][:ID_BYTES], Fragment.from_bytes(message[HEAD_BYTES:])


def _public_part(fragment: Fragment) -> bytes:
    """Write everything of a fragment but its value."""
    return fragment.to_bytes()[: -len(fragment.value)]
