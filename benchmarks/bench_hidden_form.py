"""What does it cost to hide the form of a predicate? OFSGPMatch beside BranchingMatch.

Unit: microseconds per pair, one core, and bytes per side, for the same predicates. A BranchingMatch
template shows the predicate's form; a box hides it, and takes one interval for each attribute; an
OFSGPMatch shows a bound on its depth. Limit in the same run: XOR of the same message bytes.

    python benchmarks/bench_hidden_form.py [--rounds 5]
"""

from __future__ import annotations

import argparse

import numpy as np
from timing import machine, one_core, seconds

from ccbps import Category, Decimal, Schema, SharedSeed, UInt
from ccbps.inputs.circuit import predicate_circuit
from ccbps.matching import BranchingMatch, OFSGPMatch
from ccbps.matching.matcher import Matcher

ISSUE = Category(["AAPL", "GOOG", "IBM", "MSFT"])
SMALL = Schema(issue=ISSUE, price=UInt(6))
LARGE = Schema(issue=ISSUE, price=Decimal(0, 1000, "0.01"), volume=UInt(32))
CASES = (
    (
        SMALL,
        "issue = 'IBM' AND price < 40",
        "issue = :issue AND price < :limit",
        {"issue": "IBM", "limit": 40},
    ),
    (
        LARGE,
        "issue = 'IBM' AND price < 120 AND volume > 1000",
        "issue = :issue AND price < :limit AND volume > :least",
        {"issue": "IBM", "limit": 120, "least": 1000},
    ),
)


def measure(
    matcher: Matcher, events: list[dict[str, object]], interest: object, times: int
) -> dict[str, float]:
    """Microseconds per pair of each role."""
    seed = SharedSeed.generate()
    batch = matcher.schema.encode(events)
    numbers = np.arange(len(events), dtype=np.uint64)
    sent = matcher.publisher(seed).encode(batch, numbers)
    wanted = matcher.subscriber(seed).encode(interest, numbers)
    found = matcher.broker().match(sent, wanted)
    assert found.tolist() == [event["issue"] == "IBM" for event in events]
    width = min(sent.shape[1], wanted.shape[1])
    actions = {
        "broker": lambda: matcher.broker().match(sent, wanted),
        "publisher": lambda: matcher.publisher(seed).encode(batch, numbers),
        "subscriber": lambda: matcher.subscriber(seed).encode(interest, numbers),
        "xor": lambda: np.bitwise_xor(sent[:, :width], wanted[:, :width]),
    }
    return {name: 1e6 * s / len(events) for name, s in seconds(actions, times).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(machine())
    for schema, text, form, values in CASES:
        depth = predicate_circuit(schema.parse(text)).depth
        print(f"\n{text}: {schema.bits} bits, depth {depth}")
        print(
            f"{'':<18}{'bytes':>11}{'broker':>11}{'publisher':>11}{'subscriber':>11}{'xor':>9}  us"
        )
        for name, matcher, interest in (
            ("template", BranchingMatch(schema, form), values),
            ("box", BranchingMatch.box(schema), text),
            (f"OFSGP, depth {depth}", OFSGPMatch(schema, depth), text),
        ):
            count = max(4, min(100_000, 40_000_000 // matcher.event_bytes // 16))
            events = [
                {"issue": "IBM" if i % 3 == 0 else "MSFT", "price": 10, "volume": 2500}
                for i in range(count)
            ]
            r = measure(matcher, events, interest, options.rounds)
            print(
                f"{name:<18}{matcher.event_bytes:>11,}{r['broker']:>11,.2f}{r['publisher']:>11,.2f}"
                f"{r['subscriber']:>11,.2f}{r['xor']:>9,.2f}"
            )


if __name__ == "__main__":
    one_core()
    main()
