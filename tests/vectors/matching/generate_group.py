"""Writes ofsgp.json and public_function.json: whole messages, made without the package's encoders.

Blinding, drawing of elements and their bytes come from tests/reference, the key stream from HKDF
and AES-CTR of `cryptography`, fingerprints from their parts; only the programs, with the index
sequence, are the package's.

    python -m tests.vectors.matching.generate_group
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccbps import Category, Schema, UInt
from ccbps.circuits import Circuit, Gate, Op
from ccbps.matching import OFSGPMatch, PublicFunctionMatch
from ccbps.matching.group.group_match import GroupMatch
from tests.reference.fingerprints import category, fingerprint, index_digest, uint
from tests.reference.group_programs import ONE, Preserving, blinded, sequence
from tests.reference.group_wire import draw, padded, random_bytes, rank, write
from tests.vectors.matching.generate_branching import SEED, bits, derive, head, stream

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM"]), n=UInt(3))
# Equal to y, but for the last bit if y's first one is set.
GATES = (
    (5, 0, 3),
    (5, 1, 4),
    (5, 2, 5),
    (2, 3, -1),
    (3, 8, 9),
    (4, 6, 7),
    (4, 11, 10),
    (2, 12, -1),
)
CIRCUIT = Circuit(6, tuple(Gate(Op(op), a, b) for op, a, b in GATES), (13,))
MATCHERS: dict[str, dict[str, GroupMatch]] = {
    "ofsgp": {group: OFSGPMatch(SCHEMA, 2, group=group) for group in ("A5", "S5")},
    "public_function": {
        group: PublicFunctionMatch(Schema(x=UInt(3)), CIRCUIT, Schema(y=UInt(3)), group=group)
        for group in ("A5", "S5")
    },
}
CASES: dict[str, list[tuple[dict[str, Any], Any, int, bool]]] = {
    "ofsgp": [
        ({"issue": "IBM", "n": 5}, "issue = 'IBM' AND n >= 4", 7, True),
        ({"issue": "GOOG", "n": 2}, "issue = 'IBM' OR n >= 4", 2**64 - 1, False),
    ],
    "public_function": [
        ({"x": 0b101}, {"y": 0b100}, 7, True),
        ({"x": 0b001}, {"y": 0b000}, 2**64 - 1, False),
    ],
}


def name_of(scheme: str, group: str, matcher: GroupMatch) -> bytes:
    """The fingerprint of one of the matchers."""
    length = matcher.length
    randomness = 2 * random_bytes(group, padded(group, length))
    index = matcher._index(0, length).tolist()
    if scheme == "ofsgp":
        index = index[: length // 16]  # what each of the instructions repeats
    layout = [2, length, 1 << 20, randomness, index_digest(index)]
    if scheme == "ofsgp":
        attributes = [category("issue", ["AAPL", "GOOG", "IBM"]), uint("n", 3)]
        return fingerprint("OFSGP", attributes, {"length": 16, "group": group}, layout)
    parameters = {
        "inputs": 6, "gates": [list(gate) for gate in GATES], "outputs": [13],
        "private": {"ccbps": "schema", "version": 1, "attributes": [uint("y", 3)]}, "group": group,
    }  # fmt: skip
    return fingerprint("FKN", [uint("x", 3)], parameters, layout)


def event_bits(schema: Schema, event: Mapping[str, Any]) -> list[bool]:
    codes = schema.encode([event]).codes
    rows = [bits(int(codes[name][0, 0]), schema[name].bits) for name in schema]
    return [bool(bit) for row in rows for bit in row]


def program(matcher: GroupMatch, interest: Any) -> Preserving:
    """What the package makes of an interest: interstitial elements and the index sequence."""
    prepared, length = matcher.prepare(interest), matcher.length
    ranks = matcher._interstitials(prepared, 0, length + 1).tolist()
    index = matcher._index(0, length).tolist()
    return [matcher.group.one_line(number) for number in ranks], index


def messages(
    name: str, made: Preserving, x: list[bool], tag: bytes, random: bytes
) -> tuple[bytes, bytes]:
    """The blinded elements of both parties: the event's and the interest's."""
    given, length = sequence(made, x), len(made[1])
    positions = padded(name, length)
    given[2 * length : 2 * length] = [ONE] * 2 * (positions - length)
    width = random_bytes(name, positions)
    odd, even = (draw(name, random[i : i + width], positions) for i in (0, width))
    seen = blinded(given, [r for pair in zip(odd, even, strict=True) for r in pair])
    # One segment, number 0: the last element is part 1 and carries the tag plus 1.
    end = int.from_bytes(tag, "little") + 1
    trailer = bytes([rank(name, seen[-1])]) + end.to_bytes(8, "little")[:7]
    return write(name, seen[1::2]), write(name, seen[:-1:2]) + trailer


def cases(scheme: str) -> list[dict[str, object]]:
    """Every case of a scheme, in both groups, with its two messages."""
    out: list[dict[str, object]] = []
    for name, matcher in MATCHERS[scheme].items():
        own = name_of(scheme, name, matcher)
        key = derive(derive(SEED, b"pair", b"alice"), b"stream", own)
        size = 2 * random_bytes(name, padded(name, matcher.length)) + 7
        for event, interest, number, matched in CASES[scheme]:
            random = stream(key, number, size)
            made, x = program(matcher, interest), event_bits(matcher.schema, event)
            bodies = messages(name, made, x, random[-7:], random[:-7])
            heads = [head(kind, own, random[-7:]) for kind in (1, 2)]
            event_message, interest_message = (
                (head + body).hex() for head, body in zip(heads, bodies, strict=True)
            )
            out.append(
                {
                    "group": name, "event": event, "interest": interest, "round": number,
                    "matched": matched, "event_message": event_message,
                    "interest_message": interest_message,
                }
            )  # fmt: skip
    return out


if __name__ == "__main__":
    for scheme, title in (
        ("ofsgp", "OFSGPMatch"),
        ("public_function", "PublicFunctionMatch"),
    ):
        vectors = {
            "scheme": title,
            "format": 2,
            "source": "[SSM] Definition 4 over a program of fixed structure, or of the public "
            "circuit; message format 2, layout 2",
            "generator": "tests/vectors/matching/generate_group.py",
            "confirmed_by": "tests/reference/group_programs.py (permutations as tuples)",
            "seed": SEED.hex(),
            "pair": "alice",
            "cases": cases(scheme),
        }
        path = Path(__file__).with_name(f"{scheme}.json")
        path.write_text(json.dumps(vectors, indent=1) + "\n")
