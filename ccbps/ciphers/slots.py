"""Slots: one event for many holders of keys, of whom few may know that it is for them.

With a holder's key K and the number n of an event, the slot is AES-256_K(n, 0), which the holder
recognizes, and where there is a payload also AES-256_K(n, 1) XOR the payload's key. The payload is
encrypted once, with AES-128-GCM under a key of its own, HMAC-SHA256_S(n, payload) for a secret S
that the sender keeps. To anyone who lacks K a slot is noise, for any number of events; which of a
holder's keys an event uses does not show either.

Conventions: numbers are uint64 and are never used twice under one key. Rows of bytes, uint8.

Hazards: nothing is drawn, so the same number, payload and keys give the same bytes. A number that
is used for two events shows whether they are alike, and whoever can open one can open the other.
`EventNumbers` knows what one role has used.
Slots by themselves are not authenticated, payloads with their headers are. Whoever can read a
payload could also have written one.
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Sequence
from threading import Lock
from typing import Any, Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import ArrayLike, NDArray

from ccbps.arrays import Bools, Bytes
from ccbps.errors import DecodeError, ParameterError, RandomnessReuseError
from ccbps.keys.rounds import RoundLedger, as_rounds, this_process
from ccbps.keys.secret import Confined, SecretBytes

__all__ = [
    "BLOCK",
    "SLOT_KEY_BYTES",
    "EventNumbers",
    "SlotKey",
    "check_payloads",
    "joined_keys",
    "seal",
    "sealed_bytes",
    "sealing_keys",
    "split_keys",
    "unseal",
]

Numbers = NDArray[np.uint64]

BLOCK: Final = 16
SLOT_KEY_BYTES: Final = 32
LENGTH_BYTES: Final = 4
NONCE: Final = bytes(12)
"""Every payload has a key of its own."""


class SlotKey(SecretBytes):
    """One holder's key of 32 bytes, ready for use."""

    kind = "slot key"
    length = SLOT_KEY_BYTES
    __slots__ = ("_cipher",)

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        # Single blocks of distinct counters: AES as a pseudorandom function.
        mode = modes.ECB()  # noqa: S305
        self._cipher: Cipher[Any] = Cipher(algorithms.AES256(self._secret), mode)

    def slots(self, numbers: Numbers, keys: Bytes | None = None) -> Bytes:
        """Slots of events, shape (events, 16), or (events, 32) with the keys of payloads."""
        count = 1 if keys is None else 2
        out = self._blocks(numbers, count)
        if keys is not None:
            out[:, 1] ^= keys
        return out.reshape(len(numbers), count * BLOCK)

    def recognizes(self, numbers: Numbers, slots: Bytes) -> Bools:
        """Which slots were made with this key, shape (events,)."""
        blocks = self._blocks(numbers, 1)[:, 0]
        return np.asarray((blocks == slots[:, :BLOCK]).all(axis=1))

    def payload_keys(self, numbers: Numbers, slots: Bytes) -> Bytes:
        """The keys in slots that it recognizes, shape (events, 16)."""
        return slots[:, BLOCK:] ^ self._blocks(numbers, 2)[:, 1]

    def _blocks(self, numbers: Numbers, count: int) -> Bytes:
        words = np.zeros((len(numbers), count, 2), dtype="<u8")
        words[:, :, 0] = numbers[:, None]
        words[:, :, 1] = np.arange(count)
        data = bytearray(self._cipher.encryptor().update(words.tobytes()))
        return np.frombuffer(data, dtype=np.uint8).reshape(len(numbers), count, BLOCK)


def joined_keys(keys: Sequence[SlotKey]) -> str:
    """The secrets of keys as hex digits, to keep them: for `split_keys`."""
    return "".join(key.export_secret().hex() for key in keys)


def split_keys(text: str) -> list[SlotKey]:
    """The keys that `joined_keys` wrote; a ValueError where it did not."""
    size = 2 * SLOT_KEY_BYTES
    return [SlotKey(bytes.fromhex(text[at : at + size])) for at in range(0, len(text), size)]


class EventNumbers(Confined):
    """Numbers of one role's events: counted or given, and never taken twice."""

    def __init__(self, first: int = 0) -> None:
        """
        Args:
            first: smaller numbers may have been used by an earlier role and are refused.
        """
        self._first = self._next = first
        self._used = RoundLedger(
            "event number", "each number is for one event: give one that was not used"
        )
        self._lock, self._process = Lock(), this_process()

    @property
    def next(self) -> int:
        """The next number of the counter: beyond all that were taken."""
        return self._next

    def take(self, count: int, numbers: ArrayLike | None = None) -> Numbers:
        """Numbers for `count` events; never again, whatever happens to the events.

        Args:
            numbers: those to take, whole numbers 0 .. 2^64 - 1, shape (count,); None to continue
                the counter.

        Raises:
            ParameterError: not whole numbers, negative, or not `count` of them. Takes none.
            RandomnessReuseError: a number was or may have been used, or occurs twice; the counter
                is at its end; or the process has forked. Takes none.
        """
        given = None if numbers is None else as_rounds(numbers, count, "numbers")
        if not count:
            return np.empty(0, dtype=np.uint64)
        if this_process() != self._process:
            raise RandomnessReuseError(
                "a publisher cannot encode after a fork: its event numbers would be used twice; "
                "make one in each process"
            )
        with self._lock:
            if given is None:
                if self._next + count > 1 << 64:
                    raise RandomnessReuseError(
                        f"the counter stands at {self._next} and has no {count} numbers left "
                        "below 2^64: give numbers that were not used"
                    )
                given = np.arange(count, dtype=np.uint64) + np.uint64(self._next)
            if int(given.min()) < self._first:
                raise RandomnessReuseError(
                    f"event number {given.min()} may have been used before this publisher's key "
                    f"was saved: give numbers from {self._first} on"
                )
            self._used.claim(given)
            self._next = max(self._next, int(given.max()) + 1)
        return given


def sealing_keys(secret: SlotKey, numbers: Numbers, payloads: Sequence[bytes]) -> Bytes:
    """A key for each payload, shape (events, 16): no other payload or number has it."""
    key = secret.export_secret()
    drawn = [
        hmac.digest(key, int(number).to_bytes(8, "little") + payload, "sha256")[:BLOCK]
        for number, payload in zip(numbers.tolist(), payloads, strict=True)
    ]
    return np.frombuffer(b"".join(drawn), dtype=np.uint8).reshape(-1, BLOCK)


def sealed_bytes(payload_bytes: int) -> int:
    """Bytes of an encrypted payload of up to that many bytes; all have the same length."""
    return LENGTH_BYTES + payload_bytes + BLOCK


def check_payloads(payloads: Sequence[bytes], size: int) -> None:
    """Refuse with a ParameterError payloads that are not bytes, or longer than `size`."""
    for row, payload in enumerate(payloads):
        if not isinstance(payload, (bytes, bytearray)) or len(payload) > size:
            raise ParameterError(f"payload {row} must be bytes, {size} or less")


def seal(payloads: Sequence[bytes], size: int, keys: Bytes, headers: Bytes) -> Bytes:
    """Encrypt each payload with its key, bound to its header; shape (events, sealed_bytes(size)).

    Raises:
        ParameterError: a payload is not bytes, or longer than `size`.
    """
    check_payloads(payloads, size)
    out = np.zeros((len(payloads), sealed_bytes(size)), dtype=np.uint8)
    for row, payload in enumerate(payloads):
        text = len(payload).to_bytes(LENGTH_BYTES, "little") + bytes(payload).ljust(size, b"\0")
        sealed = AESGCM(keys[row].tobytes()).encrypt(NONCE, text, headers[row].tobytes())
        out[row] = np.frombuffer(sealed, dtype=np.uint8)
    return out


def unseal(sealed: bytes, key: bytes, header: bytes) -> bytes:
    """The payload.

    Raises:
        DecodeError: key, header or payload are not those that were sealed.
    """
    text = None
    with contextlib.suppress(InvalidTag):
        text = AESGCM(key).decrypt(NONCE, sealed, header)
    if text is None:
        raise DecodeError("the payload was altered")
    return text[LENGTH_BYTES : LENGTH_BYTES + int.from_bytes(text[:LENGTH_BYTES], "little")]
