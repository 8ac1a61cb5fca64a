"""Writes formula.json: whole messages of FormulaMatch, made without the package's encoders.

What each party adds to each slot comes from tests/reference, the key stream from HKDF and AES-CTR
of `cryptography`, the fingerprint from its parts; only the formula, the order of slots and the
bits of interests are the package's.

    python -m tests.vectors.matching.generate_formula
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ccbps import Category, Decimal, Schema, UInt
from ccbps.matching import FormulaMatch
from ccbps.programs.formula import as_json, gates
from tests.reference.fingerprints import category, decimal, fingerprint, uint
from tests.reference.rank_one_gates import RankOneTwin
from tests.vectors.matching.generate_branching import bits, derive, head, stream

SCHEMA = Schema(
    issue=Category(["AAPL", "GOOG", "IBM"]), price=Decimal(0, "6.55", "0.01"), n=UInt(3)
)
ATTRIBUTES = [
    category("issue", ["AAPL", "GOOG", "IBM"]), decimal("price", "0", "6.55", "0.01"), uint("n", 3)
]  # fmt: skip
TEMPLATE = "issue IN (:issue, 'GOOG') AND (price < :limit OR n = :n) AND n > 2"
MATCHERS = {"box": FormulaMatch.box(SCHEMA), "template": FormulaMatch(SCHEMA, TEMPLATE)}
CASES: list[tuple[str, dict[str, Any], Any, int, bool]] = [
    ("box", {"issue": "IBM", "price": "1.20", "n": 5}, "issue = 'IBM' AND price < 2", 7, True),
    ("box", {"issue": "AAPL", "price": "6.55", "n": 0}, "n BETWEEN 1 AND 3", 2**64 - 1, False),
    (
        "template",
        {"issue": "IBM", "price": "6.00", "n": 5},
        {"issue": "IBM", "limit": 2, "n": 5},
        0,
        True,
    ),
    (
        "template",
        {"issue": "AAPL", "price": "1.00", "n": 5},
        {"issue": "IBM", "limit": 2, "n": 5},
        1,
        False,
    ),
]
SEED = bytes(range(32))


def unpacked(rows: Any, count: int) -> list[int]:
    """The first bits of bytes or words, the lowest first."""
    data = np.frombuffer(np.ascontiguousarray(rows).tobytes(), dtype=np.uint8)
    found: list[int] = np.unpackbits(data, bitorder="little")[:count].tolist()
    return found


def packed(bits: list[int]) -> bytes:
    """Bits as bytes, the first one lowest."""
    return np.packbits(np.array(bits, dtype=np.uint8), bitorder="little").tobytes()


def bodies(matcher: FormulaMatch, event: Any, interest: Any, random: bytes) -> tuple[bytes, bytes]:
    """Both messages behind the header, from what the twin's parties add to slots."""
    twin, slots = RankOneTwin(matcher.formula), matcher.encoding.slots
    codes = SCHEMA.encode([event]).codes
    x = [b for name in SCHEMA for b in bits(int(codes[name][0, 0]), SCHEMA[name].bits)]
    if matcher.template is not None:  # what it says with public constants alone
        x += [int(event["issue"] == "GOOG"), int(event["n"] > 2)]
    y = unpacked(matcher.prepare(interest), matcher.encoding.interest_bits)
    data = np.frombuffer(random, dtype=np.uint8)
    masks = unpacked(data, twin.random_bits)
    common = unpacked(data[-(-twin.random_bits // 8) :], len(slots.both))
    publisher, subscriber = twin.parts(x, y, masks)
    sent = [publisher[slot] ^ bit for slot, bit in zip(slots.both, common, strict=True)]
    sent += [publisher[slot] for slot in slots.lone["publisher"]]
    asked = [subscriber[slot] ^ bit for slot, bit in zip(slots.both, common, strict=True)]
    asked += [subscriber[slot] ^ subscriber[first] for slot, first in slots.ties]
    asked += [subscriber[slot] for slot in slots.lone["subscriber"]]
    return packed(sent), packed(asked)


def name_of(kind: str) -> bytes:
    """The fingerprint: of the template, the number of gates, the layout and the formula."""
    matcher = MATCHERS[kind]
    parameters = {
        "template": None if kind == "box" else TEMPLATE,
        "hidden": None,
        "gates": gates(matcher.formula),
    }
    return fingerprint("formula", ATTRIBUTES, parameters, [1, as_json(matcher.formula)])


def cases() -> list[dict[str, object]]:
    """Every case with its two messages."""
    out = []
    for kind, event, interest, number, matched in CASES:
        matcher, name = MATCHERS[kind], name_of(kind)
        key = derive(derive(SEED, b"pair", b"alice"), b"stream", name)
        random = stream(key, number, matcher.randomness_bytes)
        messages = bodies(matcher, event, interest, random[:-7])
        row: dict[str, object] = {
            "kind": kind, "event": event, "interest": interest, "round": number,
            "matched": matched,
        }  # fmt: skip
        for side, body in enumerate(messages):
            row[("event_message", "interest_message")[side]] = (
                head(1 + side, name, random[-7:]) + body
            ).hex()
        out.append(row)
    return out


if __name__ == "__main__":
    vectors = {
        "scheme": "FormulaMatch",
        "format": 2,
        "source": "rank-one gates, two bits a gate and one for each gate above; message format 2",
        "generator": "tests/vectors/matching/generate_formula.py",
        "confirmed_by": "tests/reference/rank_one_gates.py (explicit matrices, one pair at a time)",
        "seed": SEED.hex(),
        "pair": "alice",
        "cases": cases(),
    }
    path = Path(__file__).with_name("formula.json")
    path.write_text(json.dumps(vectors, indent=1) + "\n")
