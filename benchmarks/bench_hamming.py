"""What does a private Hamming match cost, by the number of bits and by the protocol?

An event of n bits matches if it is within n/4 bits of a private value. The broker's time for a
match, in batches, and the bytes of both messages. The paper's protocol [SSM] stops at 16 bits where
a match may take a second. Protocols that would take longer than --limit seconds are left out, and
so are the ones that this library refuses for their size.

`ThresholdMatch` and `OFSGPMatch` hide the limit, too. The messages of `ThreeBrokerMatch` are made
once. Its time is that of all three brokers, for 16 events, with the making of their tables.

    python benchmarks/bench_hamming.py [--limit 2] [--plot hamming_growth.png] [--quick]
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench_garbled import distance
from report import Table, options, picture
from timing import machine, one_core, timed

from ccbps import Schema, SharedSeed, UInt
from ccbps.circuits.networks import hamming_circuit
from ccbps.circuits.rewriting import without_xor
from ccbps.errors import CcbpsError
from ccbps.matching import (
    BranchingMatch,
    FormulaMatch,
    GarbledMatch,
    OFSGPMatch,
    PublicFunctionMatch,
    ThreeBrokerMatch,
    ThresholdMatch,
)

SIZES = (4, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024)
TOGETHER = 1 << 12
"""Greatest number of pairs of a batch."""
BATCH_BYTES = 1 << 26
"""Greatest number of bytes of messages of a batch."""
WORD = 64


def words(n: int) -> Schema:
    """Return a schema of n bits, in attributes of at most 64."""
    parts = [WORD] * (n // WORD) + ([n % WORD] if n % WORD else [])
    return Schema({f"x{number}": UInt(bits) for number, bits in enumerate(parts)})


def values(schema: Schema, count: int, seed: int) -> dict[str, Any]:
    """Return random values of each attribute."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, (1 << bits) - 1, count, dtype=np.uint64, endpoint=True)
        for name, bits in schema.widths.items()
    }


def ofsgp(n: int) -> tuple[Any, Any]:
    """Return the paper's matcher, and a circuit with a value of zeros and the limit."""
    circuit = without_xor(hamming_circuit(n, n // 4, y=[0] * n, within=True))
    return OFSGPMatch(Schema(x0=UInt(n)), circuit.depth), circuit


def public_function(n: int) -> tuple[Any, Any]:
    """Return the protocol of Feige, Kilian and Naor over group programs."""
    return PublicFunctionMatch.hamming(n, limit=n // 4), {"y": 0}


def template(scheme: Callable[..., Any], n: int) -> tuple[Any, Any]:
    """Return a template's matcher, and a value of zeros."""
    schema = Schema(x0=UInt(n))
    return scheme(schema, f"hamming(x0, :y) <= {n // 4}"), {"y": 0}


def threshold(n: int) -> tuple[Any, Any]:
    """Return the matcher of thresholds, and a value of zeros with the limit."""
    schema = words(n)
    if n <= WORD:
        return ThresholdMatch(schema), f"hamming(x0, 0) <= {n // 4}"
    return ThresholdMatch(schema), {**dict.fromkeys(schema, 0), "within": n // 4}


def garbled(n: int) -> tuple[Any, Any]:
    """Return the matcher of garbled circuits, and values of zeros."""
    if n <= WORD:
        return template(GarbledMatch, n)
    matcher = distance(n, n // 4)
    return matcher, dict.fromkeys(matcher.private_names or (), 0)


PROTOCOLS: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "OFSGPMatch": ofsgp,
    "PublicFunctionMatch": public_function,
    "BranchingMatch": lambda n: template(BranchingMatch, n),
    "FormulaMatch": lambda n: template(FormulaMatch, n),
    "GarbledMatch": garbled,
    "ThreeBrokerMatch": lambda n: template(ThreeBrokerMatch, n),
    "ThresholdMatch": threshold,
}


def pairs(matcher: Any, interest: Any, count: int) -> tuple[Callable[[], Any], int]:
    """Return an action that matches so many pairs, and its number of pairs."""
    records = values(matcher.schema, count, count)
    if isinstance(matcher, ThreeBrokerMatch):
        # One interest a lane: a batch has as many interests as a block, and 16 events.
        local = matcher.local()
        publisher, subscriber = matcher.publisher(local.public), matcher.subscriber(local.public)
        for role in (publisher, subscriber):
            local.greet(role.hellos)
        few = {name: column[:16] for name, column in records.items()}
        events = publisher.encode(few)
        interests = subscriber.encode([interest] * count)
        return lambda: local.match_messages(events, interests), 16 * count
    seed, rounds = SharedSeed.generate(), range(count)
    events = matcher.publisher(seed).encode(records, rounds)
    interests = matcher.subscriber(seed).encode(interest, rounds)
    broker = matcher.broker()
    found = broker.match(events, interests)
    bits = sum(np.bitwise_count(column).astype(int) for column in records.values())
    assert np.array_equal(found, bits <= matcher.schema.bits // 4), matcher
    return lambda: broker.match(events, interests), count


def measure(name: str, n: int, limit: float) -> tuple[float, int] | None:
    """Return seconds of a match and bytes of both messages; None if they are too many."""
    try:
        matcher, interest = PROTOCOLS[name](n)
    except CcbpsError:
        return None
    size = matcher.event_bytes + matcher.interest_bytes
    if size > BATCH_BYTES:
        return None
    count = max(1, min(TOGETHER, BATCH_BYTES // (4 * size)))
    action, matched = pairs(matcher, interest, 1)
    once = timed(action) / matched
    if once > limit:
        return None
    count = max(1, min(count, int(limit / once / 4)))
    action, matched = pairs(matcher, interest, count)
    return min(timed(action) for _ in range(5)) / matched, size


def plot(seconds: dict[str, dict[int, float]], path: Path) -> None:
    """Draw the seconds of a match over the number of bits."""
    with picture(path, (7, 4.2)) as (_, axes):
        for name, line in seconds.items():
            axes.plot([*line], [*line.values()], "o-", label=name)
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.annotate("1 s: the paper's limit, 16 bits", (40, 1.3), color="grey")
        axes.set(xscale="log", yscale="log", xlabel="bits n", ylabel="broker, seconds per match")
        axes.set_xticks(SIZES, [str(n) for n in SIZES])
        axes.minorticks_off()
        axes.set_title("Private Hamming match")
        axes.legend(fontsize="small")


def main() -> None:
    given = options(__doc__, limit=2.0, plot=Path, quick="small sizes, a tenth of a second")
    limit, sizes = (0.1, SIZES[:4]) if given.quick else (given.limit, SIZES)
    print(machine())
    done = {
        name: {n: found for n in sizes if (found := measure(name, n, limit))} for name in PROTOCOLS
    }
    columns = dict.fromkeys(PROTOCOLS, ".3g")
    table = Table("Broker, microseconds a match", columns, head="bits", width=8)
    for n in sizes:
        table.row(n, *(1e6 * line[n][0] if n in line else None for line in done.values()))
    table = Table("Bytes of both messages", dict.fromkeys(PROTOCOLS, ",.0f"), head="bits", width=8)
    for n in sizes:
        table.row(n, *(line[n][1] if n in line else None for line in done.values()))
    if given.plot:
        plot(
            {name: {n: found[0] for n, found in line.items()} for name, line in done.items()},
            given.plot,
        )


if __name__ == "__main__":
    one_core()
    main()
