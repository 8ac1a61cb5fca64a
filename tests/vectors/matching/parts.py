"""Common parts of the generators: the schema, derived randomness, headers, and files of vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps import Category, Decimal, Schema, UInt
from tests.reference.fingerprints import category, decimal, uint

SCHEMA = Schema(
    issue=Category(["AAPL", "GOOG", "IBM"]), price=Decimal(0, "6.55", "0.01"), n=UInt(3)
)
ATTRIBUTES = [
    category("issue", ["AAPL", "GOOG", "IBM"]),
    decimal("price", "0", "6.55", "0.01"),
    uint("n", 3),
]
SEED = bytes(range(32))


def bits(value: int, width: int) -> list[int]:
    return [value >> (width - 1 - i) & 1 for i in range(width)]


def event_bits(schema: Schema, event: Mapping[str, Any]) -> list[int]:
    codes = schema.encode([event]).codes
    return [bit for name in schema for bit in bits(int(codes[name][0, 0]), schema[name].bits)]


def _derive(key: bytes, use: bytes, info: bytes) -> bytes:
    context = b"ccbps 1 " + use + b"\0" + len(info).to_bytes(8, "big") + info
    return HKDF(SHA256(), 32, salt=None, info=context).derive(key)


def round_bytes(fingerprint: bytes, number: int, width: int) -> tuple[bytes, bytes]:
    """Return a round's randomness of the pair "alice", and its tag of 7 bytes at the end."""
    key = _derive(_derive(SEED, b"pair", b"alice"), b"stream", fingerprint)
    counter = number * -(-width // 16)
    cipher = Cipher(algorithms.AES256(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()
    stream = cipher.update(bytes(width))
    return stream[:-7], stream[-7:]


def messages(fingerprint: bytes, tag: bytes, event: bytes, interest: bytes) -> dict[str, str]:
    """Return both messages in hex, with a header of 8 bytes before each body.

    A header is a byte of kind and version 2, and the tag combined with 7 bytes of the fingerprint.
    """
    parts = (1, fingerprint[:7], event), (2, fingerprint[7:14], interest)
    heads = (
        bytes([0x20 | kind, *(a ^ b for a, b in zip(tag, part, strict=True))]) + body
        for kind, part, body in parts
    )
    names = ("event_message", "interest_message")
    return {name: message.hex() for name, message in zip(names, heads, strict=True)}


def write_vectors(generator: str, path: str, cases: Sequence[object], **sources: str) -> None:
    """Write a file beside its generator, with the scheme, the source and the reference."""
    vectors = {
        "scheme": sources["scheme"],
        "format": 2,
        "source": sources["source"],
        "generator": f"tests/vectors/matching/{Path(generator).name}",
        "confirmed_by": sources["confirmed_by"],
        "seed": SEED.hex(),
        "pair": "alice",
        "cases": cases,
    }
    Path(generator).with_name(path).write_text(json.dumps(vectors, indent=1) + "\n")
