"""Slots: one event for many holders of keys, of whom few may know that it is for them.

With a holder's key K and the number n of an event, the slot is AES-256_K(n, 0), which the holder
recognizes, and where there is a payload also AES-256_K(n, 1) XOR the payload's key. The payload is
encrypted once, with AES-128-GCM under a key of its own. To who lacks K a slot is noise, for any
number of events; which of a holder's keys an event uses does not show either.

Conventions: numbers are uint64 and are never used twice under one key. Rows of bytes, uint8.

Hazards: a repeated number repeats the slot. Slots by themselves are not authenticated, payloads
with their headers are. Whoever can read a payload could also have written one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from ccbps.errors import DecodeError, ParameterError
from ccbps.keys import Confined

__all__ = ["BLOCK", "SlotKey", "seal", "sealed_bytes", "unseal"]

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Numbers = NDArray[np.uint64]

BLOCK: Final = 16
LENGTH_BYTES: Final = 4
NONCE: Final = bytes(12)
"""Every payload has a key of its own."""


class SlotKey(Confined):
    """One holder's key of 32 bytes, ready for use. Prints nothing."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        # Single blocks of distinct counters: AES as a pseudorandom function.
        self._cipher: Cipher[Any] = Cipher(algorithms.AES256(key), modes.ECB())  # noqa: S305

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


def sealed_bytes(payload_bytes: int) -> int:
    """Bytes of an encrypted payload of up to that many bytes; all have the same length."""
    return LENGTH_BYTES + payload_bytes + BLOCK


def seal(payloads: Sequence[bytes], size: int, keys: Bytes, headers: Bytes) -> Bytes:
    """Encrypt each payload with its key, bound to its header; shape (events, sealed_bytes(size)).

    Raises:
        ParameterError: a payload is not bytes, or longer than `size`.
    """
    out = np.zeros((len(payloads), sealed_bytes(size)), dtype=np.uint8)
    for row, payload in enumerate(payloads):
        if not isinstance(payload, (bytes, bytearray)) or len(payload) > size:
            raise ParameterError(f"payload {row} must be bytes, {size} or less")
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
