"""What does a ledger of rounds on disk cost? `encode` with and without one, and the ledger alone.

Unit: microseconds per round and bytes of the file per round, one core, 50,000 rounds in one call,
and a single round per call. Limit in the same run: 16 bytes per round written to a file and synced.

    python benchmarks/bench_ledger.py [--rounds 3] [--folder PATH] [--quick]
"""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from report import Table, options
from timing import machine, one_core, seconds

from ccbps import Decimal, Schema, SharedSeed, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.matching import BranchingMatch
from ccbps.rounds.disk_ledger import DiskLedger

COUNT = 50_000
SCHEMA = Schema(price=Decimal(0, 1000, "0.01"), volume=UInt(32))


def synced(path: Path, data: bytes) -> None:
    """Write bytes to the disk: the limit."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    given = options(__doc__, rounds=3, folder=Path, quick="one round, few repetitions")
    one_core()
    if given.quick:
        given.rounds = 1
    rng = np.random.default_rng(1)
    columns = {"price": rng.integers(0, 1000, COUNT), "volume": rng.integers(0, 2**32, COUNT)}
    matcher, seed = BranchingMatch.box(SCHEMA), SharedSeed.generate()
    events = SCHEMA.encode(columns)
    out = np.empty((COUNT, matcher.event_bytes), dtype=np.uint8)
    labels = DictionaryColumn([f"s{i}" for i in range(COUNT)], np.arange(COUNT, dtype=np.intp))
    content = np.zeros((COUNT, 16), dtype=np.uint8)
    cases = {
        "consecutive": (np.arange(COUNT, dtype=np.uint64), None),
        "scattered": (rng.permutation(100 * COUNT)[:COUNT].astype(np.uint64), None),
        "a pair each": (np.zeros(COUNT, dtype=np.uint64), labels),
    }
    print(machine())
    heads = dict.fromkeys(("encode", "with ledger", "again", "ledger", "limit"), ".2f")
    table = Table("Microseconds and bytes of a round", {**heads, "bytes": ".1f"}, head="rounds")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        number = itertools.count()

        def fresh() -> Path:
            return Path(folder) / str(next(number))

        for name, (rounds, pairs) in cases.items():
            kept = fresh()
            matcher.publisher(seed, ledger=kept).encode(events, rounds, pairs=pairs, out=out)
            marks = seed.marks(b"benchmark", rounds, pairs, content)

            def encode(path: Path | None, rounds: np.ndarray = rounds, pairs: Any = pairs) -> None:
                publisher = matcher.publisher(seed, ledger=path)
                publisher.encode(events, rounds, pairs=pairs, out=out)

            actions = {
                "encode": lambda encode=encode: encode(None),
                "with": lambda encode=encode: encode(fresh()),
                "again": lambda encode=encode, kept=kept: encode(kept),
                "ledger": lambda r=rounds, m=marks: DiskLedger(fresh()).claim(r, m),
                "limit": lambda: synced(fresh(), bytes(16 * COUNT)),
            }
            took = [1e6 * s / COUNT for s in seconds(actions, given.rounds).values()]
            table.row(name, *took, kept.stat().st_size / COUNT)
        one, alone, kept = events.take([0]), itertools.count(), fresh()
        roles = {"encode": matcher.publisher(seed), "with": matcher.publisher(seed, ledger=kept)}
        actions = {
            n: lambda role=role: role.encode(one, [next(alone)]) for n, role in roles.items()
        }
        actions["limit"] = lambda: synced(fresh(), bytes(16))
        encode, both, limit = (1e6 * s for s in seconds(actions, 30 * given.rounds).values())
        size = kept.stat().st_size / (30 * given.rounds + 1)
        table.row("one per call", encode, both, None, None, limit, size)


if __name__ == "__main__":
    main()
