"""Write less_than_3bit.txt, at_most_3bit_old.txt and bristol.json: small circuits as text.

The gates are written by hand, line by line, from the description of the formats; neither the
package's writer nor its blocks have a part in them. `bfcl`, another implementation, reads the first
and computes the answers for all inputs; the second one's answers are those of Python's <=.

    python -m tests.vectors.circuits.generate_bristol
"""

from __future__ import annotations

import hashlib
import json
from itertools import product
from pathlib import Path

import bfcl

HERE = Path(__file__).parent
# Wires 0, 1, 2 are x and 3, 4, 5 are y, the least significant bit first. c is "x < y in the bits so
# far": ~x0 & y0 to begin with, and then y ^ ((c ^ y) & ~(x ^ y)), which keeps c where x = y.
LESS_THAN = """\
12 18
2 3 3
1 1

1 1 0 6 INV
2 1 6 3 7 AND
2 1 1 4 8 XOR
1 1 8 9 INV
2 1 7 4 10 XOR
2 1 9 10 11 AND
2 1 11 4 12 XOR
2 1 2 5 13 XOR
1 1 13 14 INV
2 1 12 5 15 XOR
2 1 14 15 16 AND
2 1 16 5 17 XOR
"""
# x <= y is not y < x: the same with the values exchanged, and an INV behind.
AT_MOST_OLD = """\
13 19
3 3 1

1 1 3 6 INV
2 1 6 0 7 AND
2 1 4 1 8 XOR
1 1 8 9 INV
2 1 7 1 10 XOR
2 1 9 10 11 AND
2 1 11 1 12 XOR
2 1 5 2 13 XOR
1 1 13 14 INV
2 1 12 2 15 XOR
2 1 14 15 16 AND
2 1 16 2 17 XOR
1 1 17 18 INV
"""


def answers_of_bfcl(text: str) -> list[int]:
    """Return the outputs for x, y = 0, 0; 0, 1; ...; 7, 7."""
    circuit = bfcl.circuit(text)
    bits = [[value >> i & 1 for i in range(3)] for value in range(8)]
    return [int(circuit.evaluate([bits[x], bits[y]])[0][0]) for x, y in product(range(8), repeat=2)]


def vectors() -> dict[str, object]:
    """Return each file's function, digest and answers."""
    pairs = list(product(range(8), repeat=2))
    files = (
        ("less_than_3bit.txt", "x < y", LESS_THAN, answers_of_bfcl(LESS_THAN)),
        ("at_most_3bit_old.txt", "x <= y", AT_MOST_OLD, [int(x <= y) for x, y in pairs]),
    )
    return {
        "scheme": "bristol",
        "format": 1,
        "source": "Bristol Fashion and Bristol Format as [BF] describes them; gates by hand",
        "generator": "tests/vectors/circuits/generate_bristol.py",
        "confirmed_by": "bfcl, which evaluates the first file; Python's <= for the second",
        "cases": [
            {
                "file": name,
                "function": function,
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
                "out": answers,
            }
            for name, function, text, answers in files
        ],
    }


if __name__ == "__main__":
    for name, text in (("less_than_3bit.txt", LESS_THAN), ("at_most_3bit_old.txt", AT_MOST_OLD)):
        (HERE / name).write_text(text)
    (HERE / "bristol.json").write_text(json.dumps(vectors(), indent=1) + "\n")
