"""Sealed payloads: padded, encrypted with AES-GCM, and bound to the bytes in front of them.

Padding is that of ISO/IEC 7816-4: a byte 80, then zeros up to a multiple of a number of bytes,
`PAD_TO` by default. So a sealed payload shows little of the length of its payload.

Under one key a nonce must never be used twice. Either the nonce is drawn for each payload and
stands in the bytes it is bound to, or each payload has a key of its own (`own_keys`), and the nonce
is `ONE_PAYLOAD`.

Hazard: a party that can open a payload could also have sealed it.
Source: NIST SP 800-38D (GCM).
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Sequence
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ccbps.arrays import Bytes, Words
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.secret import SecretBytes

NONCE_BYTES: Final = 12
SEAL_BYTES: Final = 16
"""Bytes that sealing adds to a padded payload."""
PAD_TO: Final = 256
ONE_PAYLOAD: Final = bytes(NONCE_BYTES)
"""Nonce of a key that seals one payload, ever."""
OWN_KEY_BYTES: Final = 16


def sealed_bytes(size: int) -> int:
    """Return the bytes of a sealed payload that is padded to size + 1 bytes."""
    return size + 1 + SEAL_BYTES


def seal(
    payload: bytes, key: bytes, bound: bytes, *, pad_to: int, nonce: bytes = ONE_PAYLOAD
) -> bytes:
    """Pad a payload to a multiple of `pad_to` bytes and encrypt it; this adds `SEAL_BYTES`.

    Args:
        payload: any bytes.
        key: key of 16 or 32 bytes.
        bound: bytes without which the payload does not open, such as its header with the nonce.
        pad_to: number of bytes to pad to a multiple of.
        nonce: nonce of 12 bytes, never used with this key before.
    """
    padded = payload + b"\x80" + bytes(-(len(payload) + 1) % pad_to)
    return AESGCM(key).encrypt(nonce, padded, bound)


def open_sealed(sealed: bytes, key: bytes, bound: bytes, *, nonce: bytes = ONE_PAYLOAD) -> bytes:
    """Open a sealed payload.

    Raises:
        DecodeError: the payload was not sealed with this key and nonce, is not bound to these
            bytes, or was altered.
    """
    padded = b""
    with contextlib.suppress(InvalidTag, ValueError):
        padded = AESGCM(key).decrypt(nonce, sealed, bound).rstrip(b"\0")
    if not padded.endswith(b"\x80"):
        raise DecodeError("not a payload for this key, or one that was altered")
    return padded[:-1]


def own_keys(secret: SecretBytes, numbers: Words, payloads: Sequence[bytes]) -> Bytes:
    """Derive a key for each payload, shape (payloads, 16): no other payload or event has it.

    The key of payload p of event n is HMAC-SHA256_S(n, p), for a secret S that the sender keeps.
    """
    key = secret.export_secret()
    drawn = [
        hmac.digest(key, number.to_bytes(8, "little") + payload, "sha256")[:OWN_KEY_BYTES]
        for number, payload in zip(numbers.tolist(), payloads, strict=True)
    ]
    return np.frombuffer(b"".join(drawn), dtype=np.uint8).reshape(-1, OWN_KEY_BYTES)


def as_bytes(name: str, values: Sequence[bytes]) -> list[bytes]:
    """Return values as immutable `bytes`.

    Raises:
        ParameterError: a value is not bytes. The error names the argument `name`.
    """
    if isinstance(values, (bytes, bytearray, memoryview, str)):
        raise ParameterError(f"{name} must be a list of bytes, one for each row; pass [value]")
    for row, value in enumerate(values):
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise ParameterError(
                f"{name} must be bytes, one per row; row {row} is {type(value).__name__}"
            )
    return [bytes(value) for value in values]


def check_sizes(payloads: Sequence[bytes], size: int) -> None:
    """Check that no payload is longer than `size` bytes; a longer one is a ParameterError."""
    for row, payload in enumerate(payloads):
        if len(payload) > size:
            raise ParameterError(
                f"payloads must have {size} bytes or less; row {row} has {len(payload)}"
            )
