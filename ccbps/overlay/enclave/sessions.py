"""Sessions: keys that an enclave and another party share, and fragments encrypted under them.

Each direction has a key of its own. The cipher is AES-256-GCM, and the nonce is the number of the
message. Two messages of one number would reveal the difference of their fragments and let others be
forged. So a session seals only in the process that made it, not in forked children. Several threads
may use it.

Everything but the value of a fragment is readable for routing, and authenticated together with the
direction. A message that was opened is refused from then on. Messages may overtake one another, but
not by a window's length or more, since a receiver remembers a bit for each message. The length of
the window is `Policy.window`.

Source: [Survey] section 8.3 asks for session keys and names no cipher; [SP800-38D], [RFC5869].
"""

from __future__ import annotations

from itertools import count
from typing import Annotated, Any, ClassVar, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta
from msgspec.structs import replace

from ccbps.errors import DecodeError, RandomnessReuseError
from ccbps.keys.secret import Confined
from ccbps.keys.used_rounds import this_process
from ccbps.overlay.splits.fragments import Fragment
from ccbps.records import Message, Number, write
from ccbps.wire import Kind

ID_BYTES: Final = 8
KEY_BYTES: Final = 32
WAITING: Final = 1 << 16
"""Largest number of secrets whose fragments wait for others at one place."""
MOST_WINDOW: Final = 1 << 26
"""Longest window: 8 MB of memory, of which only parts with messages are used."""

SessionKeys = tuple[bytes, bytes, bytes]
"""Name of the session, key to the enclave, and key from it."""


class SealedFragment(Message, frozen=True):
    """Fragment that is encrypted for the other end of a session.

    Attributes:
        session: name of the session: public, different in every session.
        counter: number of the message in this session and direction.
        fragment: fragment with its encrypted value, which is 16 bytes longer.
    """

    front: ClassVar[bytes] = bytes([Kind.SEALED_FRAGMENT, 2])
    what: ClassVar[str] = "a sealed fragment"
    session: Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
    counter: Number
    fragment: Fragment

    def bound(self, direction: bytes) -> bytes:
        """Return the bytes that the value is bound to: the direction, and everything else."""
        part = self.fragment
        public = self.session, self.counter, part.name, part.k, part.path, part.checked
        return write((direction, *public))


class Session(Confined):
    """End of a session.

    Args:
        keys: keys from `derive_keys`.
        enclave: True if this end is the enclave's.
        window: number of messages, a multiple of 8. A message that is this many behind the newest
            one is refused as old.

    Attributes:
        name: name of the session, 8 bytes, which is in all its messages.
    """

    def __init__(self, keys: SessionKeys, *, enclave: bool, window: int = WAITING) -> None:
        self.name, to_key, from_key = keys
        # The names of the directions are authenticated, so messages do not pass for answers.
        directions = (b"to enclave", AESGCM(to_key)), (b"from enclave", AESGCM(from_key))
        self._sends, self._receives = directions[::-1] if enclave else directions
        self._numbers, self._process = count(), this_process()
        # The bit of message i, at i modulo the window, is set if it was opened.
        self._newest, self._window, self._seen = -1, window, bytearray(window // 8)

    def seal(self, fragment: Fragment) -> bytes:
        """Encrypt a fragment's value for the other end.

        Raises:
            RandomnessReuseError: the process has forked since the session was made.
        """
        if self._process != this_process():
            raise RandomnessReuseError(
                "this session was made before the process forked, and the parent goes on with its "
                "numbers: attest the enclave in the child, for a session of its own"
            )
        direction, cipher = self._sends
        # One step of the interpreter: no two threads get one number.
        sealed = SealedFragment(self.name, next(self._numbers), fragment)
        value = cipher.encrypt(_nonce(sealed), fragment.value, sealed.bound(direction))
        return replace(sealed, fragment=replace(fragment, value=value)).to_bytes()

    def open(self, message: bytes) -> Fragment:
        """Decrypt a message of the other end, once.

        Raises:
            DecodeError: it is altered, of another session or direction, or was opened before.
        """
        sealed = SealedFragment.from_bytes(message)
        fragment = self.peek(sealed)
        self.spend(sealed)
        return fragment

    def peek(self, sealed: SealedFragment) -> Fragment:
        """Decrypt a message as `open` does, but allow it again until `spend` is called."""
        if sealed.session != self.name:
            raise DecodeError(
                f"a message of session {sealed.session.hex()}, not of {self.name.hex()}"
            )
        behind = self._newest - sealed.counter
        byte, bit = divmod(sealed.counter % self._window, 8)
        if behind >= self._window or (behind >= 0 and self._seen[byte] >> bit & 1):
            raise DecodeError("a replay: this message was opened before, or is too old to tell")
        direction, cipher = self._receives
        try:
            value = cipher.decrypt(_nonce(sealed), sealed.fragment.value, sealed.bound(direction))
        except InvalidTag:
            raise DecodeError(
                "a sealed fragment was altered on its way, or is of another direction"
            ) from None
        return replace(sealed.fragment, value=value)

    def spend(self, sealed: SealedFragment) -> None:
        """Refuse a message from now on that `peek` accepted."""
        if sealed.counter > self._newest:
            self._forget(max(self._newest + 1, sealed.counter - self._window + 1), sealed.counter)
            self._newest = sealed.counter
        byte, bit = divmod(sealed.counter % self._window, 8)
        self._seen[byte] |= 1 << bit

    def _forget(self, first: int, last: int) -> None:
        """Clear the bits of messages that come into the window, at most as many as it has."""
        while first <= last:
            byte, bit = divmod(first % self._window, 8)
            # Whole bytes at once, up to the end of the window's bits.
            full = 0 if bit else min(last - first + 1, self._window - 8 * byte) // 8
            if full:
                self._seen[byte : byte + full] = bytes(full)
                first += 8 * full
            else:
                self._seen[byte] &= ~(1 << bit)
                first += 1


def forget_oldest(entries: dict[bytes, Any], most: int) -> None:
    """Remove the oldest entries beyond a number of them."""
    while len(entries) > most:
        del entries[next(iter(entries))]


def _nonce(sealed: SealedFragment) -> bytes:
    return sealed.counter.to_bytes(12, "little")


def derive_keys(own: X25519PrivateKey, other: bytes, quote: bytes, publics: bytes) -> SessionKeys:
    """Derive the keys of a session, the same at both ends.

    Args:
        own: key pair of this end.
        other: public key of the other end, 32 bytes.
        quote: digest of the enclave's quote.
        publics: both public keys, the enclave's first.

    Raises:
        DecodeError: the other end's key is no valid public key.
    """
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise DecodeError("not an X25519 public key to agree on a session key with") from None
    info = b"ccbps simulated enclave session\0" + publics
    size = ID_BYTES + 2 * KEY_BYTES
    keys = HKDF(algorithm=SHA256(), length=size, salt=quote, info=info).derive(shared)
    return keys[:ID_BYTES], keys[ID_BYTES:][:KEY_BYTES], keys[ID_BYTES + KEY_BYTES :]
