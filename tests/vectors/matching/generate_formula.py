"""Write formula.json: whole messages of FormulaMatch, made without the package's encoders.

What each party adds to each slot comes from tests/reference, the key stream from HKDF and AES-CTR
of `cryptography`, the fingerprint from its parts; only the formula, the order of slots and the
bits of interests are the package's.

    python -m tests.vectors.matching.generate_formula
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccbps.matching import FormulaMatch
from ccbps.programs.formula import as_json, gates
from tests.reference.fingerprints import fingerprint
from tests.reference.rank_one_gates import RankOneTwin
from tests.vectors.matching.parts import (
    ATTRIBUTES,
    SCHEMA,
    event_bits,
    messages,
    round_bytes,
    write_vectors,
)

TEMPLATE = "issue IN (:issue, 'GOOG') AND (price < :limit OR n = :n) AND n > 2"
MATCHERS = {"box": FormulaMatch.box(SCHEMA), "template": FormulaMatch(SCHEMA, TEMPLATE)}
CONSTANTS = {"issue": "IBM", "limit": 2, "n": 5}
CASES: list[tuple[str, dict[str, Any], Any, int, bool]] = [
    ("box", {"issue": "IBM", "price": "1.20", "n": 5}, "issue = 'IBM' AND price < 2", 7, True),
    ("box", {"issue": "AAPL", "price": "6.55", "n": 0}, "n BETWEEN 1 AND 3", 2**64 - 1, False),
    ("template", {"issue": "IBM", "price": "6.00", "n": 5}, CONSTANTS, 0, True),
    ("template", {"issue": "AAPL", "price": "1.00", "n": 5}, CONSTANTS, 1, False),
]


def unpacked(rows: Any, count: int) -> list[int]:
    """Return the first bits of bytes or words, the lowest first."""
    data = np.frombuffer(np.ascontiguousarray(rows).tobytes(), dtype=np.uint8)
    out: list[int] = np.unpackbits(data, bitorder="little")[:count].tolist()
    return out


def packed(bits: list[int]) -> bytes:
    """Pack bits into bytes, the first one lowest."""
    return np.packbits(np.array(bits, dtype=np.uint8), bitorder="little").tobytes()


def bodies(matcher: FormulaMatch, event: Any, interest: Any, random: bytes) -> tuple[bytes, bytes]:
    """Return the bodies of both messages, from the parts that the twin's parties add to slots."""
    twin, slots = RankOneTwin(matcher.formula), matcher.encoding.slots
    x = event_bits(SCHEMA, event)
    if matcher.template is not None:  # the conditions with public constants alone
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
    """Return the fingerprint: of the template, the number of gates, the layout and the formula."""
    matcher = MATCHERS[kind]
    parameters = {
        "template": None if kind == "box" else TEMPLATE,
        "hidden": None,
        "gates": gates(matcher.formula),
    }
    return fingerprint("formula", ATTRIBUTES, parameters, [1, as_json(matcher.formula)])


def cases() -> list[dict[str, object]]:
    """Return every case with its two messages."""
    out = []
    for kind, event, interest, number, matched in CASES:
        matcher, name = MATCHERS[kind], name_of(kind)
        random, tag = round_bytes(name, number, matcher.randomness_bytes)
        case = {"kind": kind, "event": event, "interest": interest, "round": number}
        sent = messages(name, tag, *bodies(matcher, event, interest, random))
        out.append(case | {"matched": matched} | sent)
    return out


if __name__ == "__main__":
    write_vectors(
        __file__,
        "formula.json",
        cases(),
        scheme="FormulaMatch",
        source="rank-one gates, two bits a gate and one for each gate above; message format 2",
        confirmed_by="tests/reference/rank_one_gates.py (explicit matrices, one pair at a time)",
    )
