"""Masks of three brokers: AES streams from keys that neighbours agree on, never used twice.

The key k_i is known to brokers i and i - 1. Both draw 32 fresh bytes for every connection, and
HKDF-SHA256 derives the key from these, the worker and the attempt. So a broker that starts again
has other keys, and old ones exist in memory only. Broker i masks with F(k_i) + F(k_{i+1}), and the
masks of the three add up to 0.

Work comes in *units*: a batch of events and a block of interests. A unit's number is the first half
of the counter of AES-256 in counter mode, and each number is used once, in rising order.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps.arrays import Words
from ccbps.checks import octets, whole
from ccbps.errors import RandomnessReuseError
from ccbps.keys.secret import Confined
from ccbps.keys.used_rounds import this_process
from ccbps.shares.replicated import Masks

FRESH_BYTES: Final = 32
_CHUNK: Final = 1 << 17
"""Bytes of a stream that are enciphered at a time, so that they stay in the cache."""


def mask_key(
    lower: bytes, upper: bytes, worker: int = 0, attempt: int = 0, purpose: str = "masks"
) -> bytes:
    """Derive a key of two neighbours from fresh bytes of both, 32 bytes.

    Args:
        lower: 32 fresh bytes of broker i - 1.
        upper: 32 fresh bytes of broker i.
        worker: number of the pair of worker processes that use the key.
        attempt: number of the attempt, where work is done again.
        purpose: purpose of the key; another one gives an unrelated key.
    """
    fresh = octets("lower", lower, FRESH_BYTES) + octets("upper", upper, FRESH_BYTES)
    place = whole("worker", worker, 0, (1 << 32) - 1) << 32 | whole("attempt", attempt, 0)
    info = b"ccbps " + purpose.encode() + b"\0" + place.to_bytes(16, "little")
    return HKDF(SHA256(), 32, salt=None, info=info).derive(fresh)


class MaskStreams(Confined):
    """Masks of one broker.

    Args:
        lower: key k_i, which broker i - 1 has, too; 32 bytes.
        upper: key k_{i+1}, which broker i + 1 has, too.
    """

    def __init__(self, lower: bytes, upper: bytes) -> None:
        self._ciphers = [
            algorithms.AES256(octets(name, key, 32))
            for name, key in (("lower", lower), ("upper", upper))
        ]
        self._next, self._process = 0, this_process()

    def unit(self, number: int) -> Masks:
        """Return the masks of a unit of work.

        Args:
            number: number of the unit, greater than all before it.

        Raises:
            RandomnessReuseError: the number is not greater, or this is another process.
        """
        whole("number", number, 0, (1 << 64) - 1)
        if number < self._next or this_process() != self._process:
            raise RandomnessReuseError(
                f"masks of unit {number} may be in use: units rise from {self._next}, and a "
                "process that was forked agrees on keys of its own"
            )
        self._next = number + 1
        counter = modes.CTR(number.to_bytes(8, "big") + bytes(8))
        streams = [Cipher(cipher, counter).encryptor() for cipher in self._ciphers]

        def masks(shape: tuple[int, ...]) -> Words:
            out = np.zeros(shape, dtype="<u8")
            for stream in streams:
                _encipher(stream, out.reshape(-1).view(np.uint8))
            return out.astype(np.uint64, copy=False)

        return masks


def _encipher(stream: CipherContext, octets: np.ndarray) -> None:
    """Add the next bytes of a stream to an array, in place."""
    room = np.empty(_CHUNK + 15, dtype=np.uint8)
    for start in range(0, len(octets), _CHUNK):
        part = octets[start : start + _CHUNK]
        stream.update_into(part.data, room.data)
        part[:] = room[: len(part)]
