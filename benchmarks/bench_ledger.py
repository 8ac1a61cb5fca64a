"""What does a ledger of rounds on disk cost? `encode` with and without one, and the ledger alone.

Unit: microseconds per round and bytes of the file per round, one core, 100,000 rounds in one call,
and a single round per call. Limit in the same run: 16 bytes per round written to a file and synced.

    python benchmarks/bench_ledger.py [--rounds 5] [--folder /var/lib/somewhere]
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from pathlib import Path

import numpy as np
from timing import machine, one_core, seconds

from ccbps import Decimal, Schema, SharedSeed, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.matching import BranchingMatch
from ccbps.rounds.disk_ledger import DiskLedger

COUNT = 100_000
SCHEMA = Schema(price=Decimal(0, 1000, "0.01"), volume=UInt(32))


def synced(path: Path, data: bytes) -> None:
    """The limit: bytes on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="folder on the disk to measure")
    options = parser.parse_args()
    one_core()
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
    print(
        f"{'':<14}{'encode':>9}{'+ ledger':>10}{'again':>9}{'ledger':>9}{'limit':>9} us{'bytes':>9}"
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        number = itertools.count()

        def fresh() -> Path:
            return Path(folder) / str(next(number))

        for name, (rounds, pairs) in cases.items():
            kept = fresh()
            matcher.publisher(seed, ledger=kept).encode(events, rounds, pairs=pairs, out=out)
            marks = seed.marks(b"benchmark", rounds, pairs, content)
            actions = {
                "encode": lambda r=rounds, p=pairs: matcher.publisher(seed).encode(
                    events, r, pairs=p, out=out
                ),
                "with": lambda r=rounds, p=pairs: matcher.publisher(seed, ledger=fresh()).encode(
                    events, r, pairs=p, out=out
                ),
                "again": lambda r=rounds, p=pairs, k=kept: matcher.publisher(seed, ledger=k).encode(
                    events, r, pairs=p, out=out
                ),
                "ledger": lambda r=rounds, m=marks: DiskLedger(fresh()).claim(r, m),
                "limit": lambda: synced(fresh(), bytes(16 * COUNT)),
            }
            took = {n: 1e6 * s / COUNT for n, s in seconds(actions, options.rounds).items()}
            print(
                f"{name:<14}{took['encode']:>9.2f}{took['with']:>10.2f}{took['again']:>9.2f}"
                f"{took['ledger']:>9.2f}{took['limit']:>9.2f}   {kept.stat().st_size / COUNT:>9.1f}"
            )
        one, alone, kept = events.take([0]), itertools.count(), fresh()
        roles = {"encode": matcher.publisher(seed), "with": matcher.publisher(seed, ledger=kept)}
        actions = {
            n: lambda role=role: role.encode(one, [next(alone)]) for n, role in roles.items()
        }
        actions["limit"] = lambda: synced(fresh(), bytes(16))
        took = {n: 1e6 * s for n, s in seconds(actions, 20 * options.rounds).items()}
        print(
            f"{'one per call':<14}{took['encode']:>9.0f}{took['with']:>10.0f}{'':>18}"
            f"{took['limit']:>9.0f}   {kept.stat().st_size / (20 * options.rounds + 1):>9.1f}"
        )


if __name__ == "__main__":
    main()
