"""Slots: one event for many holders of keys. Only its readers learn that it is for them.

With a holder's key K and the number n of an event, the slot is AES-256_K(n, 0), which the holder
recognizes. Where there is a payload, AES-256_K(n, 1) XOR the payload's key follows
(`ccbps.ciphers.payloads.own_keys`). Without K a slot is noise, for any number of events, and does
not show which of a holder's keys an event uses.

Conventions: numbers are uint64 and are never used twice under one key. Rows of bytes, uint8.

Hazards: nothing is drawn, so the same number, payload and keys give the same bytes. A number that
is used for two events shows whether they are alike, and the reader of one can open the other: keep
a ledger of numbers (`ccbps.keys.used_rounds.RoundLedger`).
Slots by themselves are not authenticated, payloads with their headers are. The reader of a payload
could also have written it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ccbps.arrays import Bools, Bytes, Words
from ccbps.keys.secret import SecretBytes

BLOCK: Final = 16
SLOT_KEY_BYTES: Final = 32


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

    def slots(self, numbers: Words, keys: Bytes | None = None) -> Bytes:
        """Return the slots of events, shape (events, 16), or (events, 32) with payloads' keys."""
        count = 1 if keys is None else 2
        out = self._blocks(numbers, count)
        if keys is not None:
            out[:, 1] ^= keys
        return out.reshape(len(numbers), count * BLOCK)

    def recognizes(self, numbers: Words, slots: Bytes) -> Bools:
        """Mark the slots that were made with this key, shape (events,)."""
        blocks = self._blocks(numbers, 1)[:, 0]
        return np.asarray((blocks == slots[:, :BLOCK]).all(axis=1))

    def payload_keys(self, numbers: Words, slots: Bytes) -> Bytes:
        """Return the keys in slots that this key recognizes, shape (events, 16)."""
        return slots[:, BLOCK:] ^ self._blocks(numbers, 2)[:, 1]

    def _blocks(self, numbers: Words, count: int) -> Bytes:
        words = np.zeros((len(numbers), count, 2), dtype="<u8")
        words[:, :, 0] = numbers[:, None]
        words[:, :, 1] = np.arange(count)
        data = bytearray(self._cipher.encryptor().update(words.tobytes()))
        return np.frombuffer(data, dtype=np.uint8).reshape(len(numbers), count, BLOCK)


def joined_keys(keys: Sequence[SlotKey]) -> str:
    """Return the secrets of keys as hex digits, for `split_keys`."""
    return "".join(key.export_secret().hex() for key in keys)


def split_keys(text: str) -> list[SlotKey]:
    """Read the keys that `joined_keys` wrote; other text is a ValueError."""
    size = 2 * SLOT_KEY_BYTES
    return [SlotKey(bytes.fromhex(text[at : at + size])) for at in range(0, len(text), size)]
