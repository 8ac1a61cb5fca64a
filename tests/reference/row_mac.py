"""Tags of rows, one by one, with Python's integers: the formula of `ccbps.ciphers.row_mac`."""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

P = 2**127 - 1


def hash_numbers(key: bytes, width: int) -> tuple[list[int], bytes]:
    """Return the numbers k_i, and the key of the PRF."""
    info = b"ccbps row mac\0" + width.to_bytes(8, "big")
    derived = HKDF(SHA256(), 64, salt=None, info=info).derive(key)
    stream = Cipher(algorithms.AES256(derived[:32]), modes.CTR(bytes(16))).encryptor()
    count = (width + 1) // 2
    drawn = [int.from_bytes(stream.update(bytes(16)), "little") for _ in range(count)]
    return [number % 2**127 for number in drawn], derived[32:]


def row_hash(numbers: list[int], row: bytes) -> int:
    words = [int.from_bytes(row[i : i + 2], "little") for i in range(0, len(row), 2)]
    return sum(k * x for k, x in zip(numbers, words, strict=True)) % P


def row_tag(key: bytes, row: bytes, tag_bytes: int) -> bytes:
    numbers, prf = hash_numbers(key, len(row))
    block = row_hash(numbers, row).to_bytes(16, "little")
    aes = Cipher(algorithms.AES256(prf), modes.ECB()).encryptor()
    return aes.update(block)[:tag_bytes]
