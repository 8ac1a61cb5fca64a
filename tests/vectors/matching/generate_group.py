"""Write ofsgp.json and public_function.json: whole messages, made without the package's encoders.

Blinding, drawing of elements and their bytes come from tests/reference, the key stream from HKDF
and AES-CTR of `cryptography`, fingerprints from their parts; only the programs, with the index
sequence, are the package's.

    python -m tests.vectors.matching.generate_group
"""

from __future__ import annotations

from typing import Any

from ccbps import Category, Schema, UInt
from ccbps.circuits import Circuit, Gate, Op
from ccbps.matching import OFSGPMatch, PublicFunctionMatch
from ccbps.matching.group.group_match import GroupMatch
from tests.reference.fingerprints import category, fingerprint, index_digest, uint
from tests.reference.group_programs import ONE, Preserving, blinded, sequence
from tests.reference.group_wire import draw, padded, random_bytes, rank, write
from tests.vectors.matching.parts import event_bits, messages, round_bytes, write_vectors

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
    """Return the fingerprint of a matcher."""
    length = matcher.length
    randomness = 2 * random_bytes(group, padded(group, length))
    index = matcher._index(0, length).tolist()
    if scheme == "ofsgp":
        index = index[: length // 16]  # the part that each instruction repeats
    layout = [2, length, 1 << 20, randomness, index_digest(index)]
    if scheme == "ofsgp":
        attributes = [category("issue", ["AAPL", "GOOG", "IBM"]), uint("n", 3)]
        return fingerprint("OFSGP", attributes, {"length": 16, "group": group}, layout)
    parameters = {
        "inputs": 6, "gates": [list(gate) for gate in GATES], "outputs": [13],
        "private": {"ccbps": "schema", "version": 1, "attributes": [uint("y", 3)]}, "group": group,
    }  # fmt: skip
    return fingerprint("FKN", [uint("x", 3)], parameters, layout)


def program(matcher: GroupMatch, interest: Any) -> Preserving:
    """Return an interest's program: interstitial elements and the index sequence."""
    prepared, length = matcher.prepare(interest), matcher.length
    ranks = matcher._interstitials(prepared, 0, length + 1).tolist()
    index = matcher._index(0, length).tolist()
    return [matcher.group.one_line(number) for number in ranks], index


def bodies(
    name: str, made: Preserving, x: list[bool], tag: bytes, random: bytes
) -> tuple[bytes, bytes]:
    """Return the bodies of both messages: the blinded elements of both parties."""
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
    """Return every case of a scheme, in both groups, with its two messages."""
    out: list[dict[str, object]] = []
    for group, matcher in MATCHERS[scheme].items():
        name = name_of(scheme, group, matcher)
        size = 2 * random_bytes(group, padded(group, matcher.length)) + 7
        for event, interest, number, matched in CASES[scheme]:
            random, tag = round_bytes(name, number, size)
            x = [bool(bit) for bit in event_bits(matcher.schema, event)]
            case = {"group": group, "event": event, "interest": interest, "round": number}
            sent = bodies(group, program(matcher, interest), x, tag, random)
            out.append(case | {"matched": matched} | messages(name, tag, *sent))
    return out


if __name__ == "__main__":
    for scheme, title in (("ofsgp", "OFSGPMatch"), ("public_function", "PublicFunctionMatch")):
        write_vectors(
            __file__,
            f"{scheme}.json",
            cases(scheme),
            scheme=title,
            source="[SSM] Definition 4 over a program of fixed structure, or of the public "
            "circuit; message format 2, layout 2",
            confirmed_by="tests/reference/group_programs.py (permutations as tuples)",
        )
