"""Write branching.json: whole messages of BranchingMatch, made without the package's encoders.

The formula R1 * L * R2 + Z comes from tests/reference, the key stream from HKDF and AES-CTR of
`cryptography`, the fingerprint from its parts; only the layout of bits, the program and the input
bits are the package's.

    python -m tests.vectors.matching.generate_branching
"""

from __future__ import annotations

import numpy as np

from ccbps.matching import BranchingMatch
from tests.reference.fingerprints import fingerprint
from tests.reference.ishai_kushilevitz import encode_event, encode_interest
from tests.vectors.matching.parts import (
    ATTRIBUTES,
    SCHEMA,
    bits,
    event_bits,
    messages,
    round_bytes,
    write_vectors,
)

CASES = [
    ({"issue": "IBM", "price": "1.20", "n": 5}, "issue = 'IBM' AND price < 2", 7, True),
    ({"issue": "AAPL", "price": "6.55", "n": 0}, "n BETWEEN 1 AND 3", 2**64 - 1, False),
]


def box_fingerprint(matcher: BranchingMatch) -> bytes:
    """Return the fingerprint: no template, the nodes, layout 2, and every edge with its label."""
    edges = [
        [u, v, sorted(label.event), sorted(label.interest), bool(label.one)]
        for (u, v), label in matcher.program.edges.items()
    ]
    # By the node they lead to.
    layout = [2, sorted(edges, key=lambda edge: (edge[1], edge[0]))]
    nodes = 1 + max(edge[1] for edge in edges)
    return fingerprint("branching", ATTRIBUTES, {"template": None, "nodes": nodes}, layout)


def cases() -> list[dict[str, object]]:
    """Return every case with its two messages."""
    matcher = BranchingMatch.box(SCHEMA)
    name = box_fingerprint(matcher)
    out = []
    for event, predicate, number, matched in CASES:
        box = SCHEMA.parse(predicate).box()
        x = event_bits(SCHEMA, event)
        y = [
            bit
            for attribute in SCHEMA
            for bound in box.ranges[attribute]
            for bit in bits(bound, SCHEMA[attribute].bits)
        ]
        random, tag = round_bytes(name, number, matcher.randomness_bytes)
        body = np.frombuffer(random, dtype=np.uint8)[None, :]
        bodies = (
            encode(matcher.program, np.array([inputs], dtype=np.uint8), body).tobytes()
            for encode, inputs in ((encode_event, x), (encode_interest, y))
        )
        case = {"event": event, "predicate": predicate, "round": number, "matched": matched}
        out.append(case | messages(name, tag, *bodies))
    return out


if __name__ == "__main__":
    write_vectors(
        __file__,
        "branching.json",
        cases(),
        scheme="BranchingMatch.box",
        source="R1 * L * R2 + Z, Ishai and Kushilevitz, FOCS 2000; message format 2",
        confirmed_by="tests/reference/ishai_kushilevitz.py (plain matrices)",
    )
