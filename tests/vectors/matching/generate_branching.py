"""Writes branching.json: whole messages of BranchingMatch, made without the package's encoders.

The formula R1 * L * R2 + Z comes from tests/reference, the key stream from HKDF and AES-CTR of
`cryptography`, the fingerprint from its parts; only the layout of bits, the program and the input
bits are the package's.

    python -m tests.vectors.matching.generate_branching
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps import Category, Decimal, Schema, UInt
from ccbps.matching import BranchingMatch
from tests.reference.fingerprints import category, decimal, fingerprint, uint
from tests.reference.ishai_kushilevitz import encode_event, encode_interest

SCHEMA = Schema(
    issue=Category(["AAPL", "GOOG", "IBM"]), price=Decimal(0, "6.55", "0.01"), n=UInt(3)
)
ATTRIBUTES = [
    category("issue", ["AAPL", "GOOG", "IBM"]), decimal("price", "0", "6.55", "0.01"), uint("n", 3)
]  # fmt: skip
CASES = [
    ({"issue": "IBM", "price": "1.20", "n": 5}, "issue = 'IBM' AND price < 2", 7, True),
    ({"issue": "AAPL", "price": "6.55", "n": 0}, "n BETWEEN 1 AND 3", 2**64 - 1, False),
]
SEED = bytes(range(32))


def derive(key: bytes, use: bytes, info: bytes) -> bytes:
    context = b"ccbps 1 " + use + b"\0" + len(info).to_bytes(8, "big") + info
    return HKDF(SHA256(), 32, salt=None, info=context).derive(key)


def stream(key: bytes, number: int, width: int) -> bytes:
    counter = number * -(-width // 16)
    cipher = Cipher(algorithms.AES256(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()
    return cipher.update(bytes(width))


def bits(value: int, width: int) -> list[int]:
    return [value >> (width - 1 - i) & 1 for i in range(width)]


def head(kind: int, name: bytes, tag: bytes) -> bytes:
    """Kind and version 2 in a byte; then the tag plus the event's or the interest's 7 bytes of the
    fingerprint."""
    part = name[:7] if kind == 1 else name[7:14]
    return bytes([0x20 | kind]) + bytes(a ^ b for a, b in zip(tag, part, strict=True))


def box_fingerprint(matcher: BranchingMatch) -> bytes:
    """Of the box: no template, the nodes, layout 2, and every edge with its label."""
    edges = [
        [u, v, sorted(label.event), sorted(label.interest), bool(label.one)]
        for (u, v), label in matcher.program.edges.items()
    ]
    # By the node they lead to.
    layout = [2, sorted(edges, key=lambda edge: (edge[1], edge[0]))]
    nodes = 1 + max(edge[1] for edge in edges)
    return fingerprint("branching", ATTRIBUTES, {"template": None, "nodes": nodes}, layout)


def cases() -> list[dict[str, object]]:
    """Every case with its two messages."""
    matcher = BranchingMatch.box(SCHEMA)
    name = box_fingerprint(matcher)
    key = derive(derive(SEED, b"pair", b"alice"), b"stream", name)
    out = []
    for event, predicate, number, matched in CASES:
        codes = SCHEMA.encode([event]).codes
        box = SCHEMA.parse(predicate).box()
        x = [b for name in SCHEMA for b in bits(int(codes[name][0, 0]), SCHEMA[name].bits)]
        y = [
            b for name in SCHEMA for bound in box.ranges[name]
            for b in bits(bound, SCHEMA[name].bits)
        ]  # fmt: skip
        random = stream(key, number, matcher.randomness_bytes)
        body, tag = np.frombuffer(random[:-7], dtype=np.uint8)[None, :], random[-7:]
        row: dict[str, object] = {
            "event": event, "predicate": predicate, "round": number, "matched": matched,
        }  # fmt: skip
        for kind, encode, given in ((1, encode_event, x), (2, encode_interest, y)):
            message = encode(matcher.program, np.array([given], dtype=np.uint8), body)
            row["event_message" if kind == 1 else "interest_message"] = (
                head(kind, name, tag) + message.tobytes()
            ).hex()
        out.append(row)
    return out


if __name__ == "__main__":
    vectors = {
        "scheme": "BranchingMatch.box",
        "format": 2,
        "source": "R1 * L * R2 + Z, Ishai and Kushilevitz, FOCS 2000; message format 2",
        "generator": "tests/vectors/matching/generate_branching.py",
        "confirmed_by": "tests/reference/ishai_kushilevitz.py (plain matrices)",
        "seed": SEED.hex(),
        "pair": "alice",
        "cases": cases(),
    }
    path = Path(__file__).with_name("branching.json")
    path.write_text(json.dumps(vectors, indent=1) + "\n")
