"""One ciphertext of AES-GCM that opens under two keys, since GCM does not commit to its key.

Source: Dodis, Grubbs, Ristenpart and Woodage, Fast Message Franking, CRYPTO 2018.
"""

from __future__ import annotations

import os
from itertools import count

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

POLYNOMIAL = 0xE1 << 120


def product(a: int, b: int) -> int:
    """Multiply in the field of GCM, whose bits count from the left."""
    out = 0
    for bit in range(127, -1, -1):
        out ^= b * (a >> bit & 1)
        b = b >> 1 ^ POLYNOMIAL * (b & 1)
    return out


def power(a: int, exponent: int) -> int:
    out = 1 << 127
    for bit in bin(exponent)[2:]:
        out = product(out, out)
        out = product(out, a) if bit == "1" else out
    return out


def two_openings(key: bytes, nonce: bytes, bound: bytes) -> tuple[bytes, bytes]:
    """Return a sealed payload (`ccbps.ciphers.payloads`) and another key that opens it, too."""

    def stream(key: bytes) -> int:
        return int.from_bytes(AESGCM(key).encrypt(nonce, bytes(32), bound)[:32])

    def tag(key: bytes, ciphertext: int) -> int:
        plain = (ciphertext ^ stream(key)).to_bytes(32)
        return int.from_bytes(AESGCM(key).encrypt(nonce, plain, bound)[32:])

    def cubed_hash_key(key: bytes) -> int:
        block = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(bytes(16))
        return power(int.from_bytes(block), 3)

    # Both contents end with the byte that padding begins with.
    candidates = (os.urandom(len(key)) for _ in count())
    other = next(k for k in candidates if (stream(k) ^ stream(key)) & 0xFF == 0)
    last = (stream(key) & 0xFF) ^ 0x80
    difference = cubed_hash_key(key) ^ cubed_hash_key(other)
    # The first block makes the tags equal: it counts times the cube of the hash key.
    first = product(tag(key, last) ^ tag(other, last), power(difference, 2**128 - 2))
    sealed = first << 128 | last
    return sealed.to_bytes(32) + tag(key, sealed).to_bytes(16), other
